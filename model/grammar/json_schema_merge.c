/* Schemas as sets: what two of them both take, and whether they exclude each other. */
#include "model/grammar/json_schema_internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- work ---- */

enum sl_status sl_schema_spend(struct sl_schema *c, uint64_t steps) {
    c->steps += steps;
    if (c->steps <= SL_SCHEMA_MAX_STEPS)
        return SL_OK;
    return sl_fail(c->err, SL_ERR_INVALID,
                   "the schema is too complex: combining allOf, anyOf, oneOf and $ref takes more "
                   "than %u steps; use fewer of them, or smaller ones",
                   SL_SCHEMA_MAX_STEPS);
}

enum sl_status sl_schema_copy(struct sl_schema *c, const json_t *v, json_t **out) {
    uint64_t n = 1 + (json_is_array(v) ? json_array_size(v) / 4 : json_object_size(v));
    const char *key;
    json_t *unused;
    if (json_is_object(v) && n <= SL_SCHEMA_MAX_STEPS)
        json_object_foreach((json_t *)v, key, unused) n += strlen(key) / 32;
    SL_TRY(sl_schema_spend(c, n));
    *out = json_copy((json_t *)v);
    return *out ? SL_OK : sl_schema_no_memory(c);
}

/* json_equal, counted. False as well when there was too much work: what is charged next fails. */
static bool equal(struct sl_schema *c, const json_t *x, const json_t *y) {
    if (x == y)
        return true;
    if (json_typeof(x) != json_typeof(y))
        return false;
    size_t n = json_is_string(x) ? json_string_length(x) / 64 : 0;
    if (sl_schema_spend(c, 1 + n) != SL_OK)
        return false;
    if (json_is_array(x)) {
        bool same = json_array_size(x) == json_array_size(y);
        for (size_t i = 0; same && i < json_array_size(x); i++)
            same = equal(c, json_array_get(x, i), json_array_get(y, i));
        return same;
    }
    if (json_is_object(x)) {
        const char *key;
        json_t *v;
        if (json_object_size(x) != json_object_size(y))
            return false;
        json_object_foreach((json_t *)x, key, v) {
            const json_t *w = json_object_get(y, key);
            if (!w || !equal(c, v, w))
                return false;
        }
        return true;
    }
    return json_equal(x, y);
}

enum sl_status sl_schema_required(struct sl_schema *c, const json_t *s, json_t **out) {
    const json_t *names = json_object_get(s, "required");
    json_t *name, *set = json_object();
    size_t i;
    enum sl_status status =
        set ? sl_schema_spend(c, json_array_size(names)) : sl_schema_no_memory(c);
    if (status == SL_OK)
        json_array_foreach((json_t *)names, i, name) {
            const char *key = json_string_value(name);
            if (key && !json_object_get(set, key) &&
                json_object_set_new(set, key, json_true()) != 0) {
                status = sl_schema_no_memory(c);
                break;
            }
        }
    if (status == SL_OK)
        *out = set;
    else
        json_decref(set);
    return status;
}

/* ---- both ---- */

static bool is_annotation(const char *key) {
    static const char *const keys[] = {
        "title",       "description", "default",         "examples",
        "$comment",    "deprecated",  "readOnly",        "writeOnly",
        "$schema",     "$id",         "$defs",           "definitions",
        "$vocabulary", "id",          "contentEncoding", "contentMediaType"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(key, keys[i]) == 0)
            return true;
    return false;
}

/* The parts of a schema that is an allOf and nothing else. */
static const json_t *all_parts(const json_t *s) {
    const json_t *all = json_object_get(s, "allOf");
    return json_object_size(s) == 1 && json_is_array(all) ? all : NULL;
}

/* allOf of two, to be flattened where it is used; side by side, so that many in a row do not nest.
 * NULL: no memory, or too much work. */
static json_t *both_of(struct sl_schema *c, json_t *a, json_t *b) {
    if (json_is_false(a) || json_is_true(b) || equal(c, a, b))
        return json_incref(a);
    if (json_is_false(b) || json_is_true(a))
        return json_incref(b);
    json_t *list = json_array(), *one[] = {a, b};
    bool ok = list != NULL;
    for (size_t i = 0; ok && i < 2; i++) {
        const json_t *parts = all_parts(one[i]);
        ok = sl_schema_spend(c, 1 + json_array_size(parts)) == SL_OK &&
             (parts ? json_array_extend(list, (json_t *)parts) : json_array_append(list, one[i])) ==
                 0;
    }
    if (ok)
        return json_pack("{s:o}", "allOf", list);
    json_decref(list);
    return NULL;
}

/* What a NULL of both_of means. */
static enum sl_status no_both(struct sl_schema *c) {
    enum sl_status status = sl_schema_spend(c, 0);
    return status != SL_OK ? status : sl_schema_no_memory(c);
}

/* A key that equal values share, and no others. */
static char *value_text(struct sl_schema *c, const json_t *v, enum sl_status *status) {
    char *text = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY | JSON_SORT_KEYS);
    *status = text ? sl_schema_spend(c, 1 + strlen(text) / 32) : sl_schema_no_memory(c);
    return text;
}

/* Those of a that are in b too. */
static enum sl_status common_values(struct sl_schema *c, const json_t *a, const json_t *b,
                                    json_t **out) {
    const json_t *of[] = {b, a};
    if (json_array_size(a) > SL_SCHEMA_MAX_ENUM || json_array_size(b) > SL_SCHEMA_MAX_ENUM)
        return sl_fail(c->err, SL_ERR_INVALID, "enum: at most %u values are supported",
                       SL_SCHEMA_MAX_ENUM);
    json_t *common = json_array(), *set = json_object();
    enum sl_status status = common && set ? SL_OK : sl_schema_no_memory(c);
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; status == SL_OK && i < json_array_size(of[k]); i++) {
            json_t *v = json_array_get(of[k], i);
            char *text = value_text(c, v, &status);
            if (status == SL_OK && k == 0 && json_object_set_new(set, text, json_true()) != 0)
                status = sl_schema_no_memory(c);
            if (status == SL_OK && k == 1 && json_object_get(set, text) &&
                json_array_append(common, v) != 0)
                status = sl_schema_no_memory(c);
            free(text);
        }
    json_decref(set);
    if (status == SL_OK)
        *out = common;
    else
        json_decref(common);
    return status;
}

/* What the one says of a property that only the other names: additionalProperties. */
static enum sl_status add_properties(struct sl_schema *c, json_t *into, const json_t *from,
                                     const json_t *other) {
    const json_t *extra = json_object_get(other, "additionalProperties");
    const json_t *named = json_object_get(other, "properties");
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)json_object_get(from, "properties"), key, value) {
        json_t *theirs = json_object_get(named, key), *sum;
        SL_TRY(sl_schema_spend(c, 1 + strlen(key) / 32));
        if (theirs)
            sum = both_of(c, theirs, value);
        else if (json_is_false(extra))
            continue; /* if it is required, that will be found impossible */
        else if (json_is_object(extra))
            sum = both_of(c, (json_t *)extra, value);
        else
            sum = json_incref(value);
        if (!sum)
            return no_both(c);
        if (json_object_set_new(into, key, sum) != 0)
            return sl_schema_no_memory(c);
    }
    return SL_OK;
}

static enum sl_status merge_properties(struct sl_schema *c, json_t *out, const json_t *a,
                                       const json_t *b) {
    json_t *p = json_object();
    enum sl_status status = p ? add_properties(c, p, a, b) : sl_schema_no_memory(c);
    /* Those of both are there by now, in the order of a. */
    json_t *only_b = NULL;
    if (status == SL_OK && json_object_get(b, "properties"))
        status = sl_schema_copy(c, json_object_get(b, "properties"), &only_b);
    const char *key;
    json_t *value;
    if (only_b)
        json_object_foreach(json_object_get(a, "properties"), key, value)
            json_object_del(only_b, key);
    json_t *rest = json_pack("{s:o?}", "properties", only_b);
    if (status == SL_OK && only_b)
        status = rest ? add_properties(c, p, rest, a) : sl_schema_no_memory(c);
    json_decref(rest);
    if (status == SL_OK && json_object_set_new(out, "properties", p) != 0)
        return sl_schema_no_memory(c);
    if (status != SL_OK)
        json_decref(p);
    return status;
}

static bool one_of(const char *key, const char *const *keys) {
    for (; *keys; keys++)
        if (strcmp(key, *keys) == 0)
            return true;
    return false;
}

/* Both lists, each name once. NULL: no memory, or too much work. */
static json_t *merge_required(struct sl_schema *c, json_t *x, json_t *y) {
    json_t *both[] = {x, y}, *seen = json_object(), *sum = json_array(), *name;
    bool ok = seen && sum;
    for (size_t k = 0; ok && k < 2; k++) {
        size_t i;
        ok = sl_schema_spend(c, json_array_size(both[k])) == SL_OK;
        if (ok)
            json_array_foreach(both[k], i, name) {
                const char *text = json_string_value(name);
                if (text && json_object_get(seen, text))
                    continue;
                if (text)
                    ok = json_object_set_new(seen, text, json_true()) == 0;
                ok = json_array_append(sum, name) == 0 && ok;
                if (!ok)
                    break;
            }
    }
    json_decref(seen);
    if (ok)
        return sum;
    json_decref(sum);
    return NULL;
}

/* Patterns or formats, each one or several already. */
static json_t *merge_lists(struct sl_schema *c, json_t *x, json_t *y) {
    json_t *sum = json_array(), *both[] = {x, y};
    bool ok = sum != NULL;
    for (size_t i = 0; ok && i < 2; i++) {
        ok = sl_schema_spend(c, 1 + json_array_size(both[i])) == SL_OK &&
             (json_is_array(both[i]) ? json_array_extend(sum, both[i])
                                     : json_array_append(sum, both[i])) == 0;
    }
    if (ok)
        return sum;
    json_decref(sum);
    return NULL;
}

/* Members of both; what both have must hold together. */
static json_t *merge_named(struct sl_schema *c, json_t *x, json_t *y) {
    json_t *sum = NULL, *v;
    const char *key;
    bool ok = sl_schema_copy(c, x, &sum) == SL_OK;
    json_object_foreach(y, key, v) {
        if (!ok)
            break;
        json_t *have = json_object_get(sum, key),
               *both = have ? both_of(c, have, v) : json_incref(v);
        ok = both && sl_schema_spend(c, 1) == SL_OK;
        if (!ok)
            json_decref(both);
        else
            ok = json_object_set_new(sum, key, both) == 0;
    }
    if (ok)
        return sum;
    json_decref(sum);
    return NULL;
}

/* Each alternative of x with all of y's. */
static json_t *merge_choices(struct sl_schema *c, const char *key, json_t *x, json_t *y) {
    json_t *sum = json_array(), *one;
    size_t i;
    bool ok = sum && sl_schema_spend(c, json_array_size(x)) == SL_OK;
    if (ok)
        json_array_foreach(x, i, one) {
            json_t *both = json_pack("{s:[O,{s:O}]}", "allOf", one, key, y);
            ok = both && json_array_append_new(sum, both) == 0;
            if (!ok)
                break;
        }
    if (ok)
        return sum;
    json_decref(sum);
    return NULL;
}

/* One keyword that both have, with different values. NULL and *conflict: it cannot be said. */
static json_t *merge_keyword(struct sl_schema *c, const char *key, json_t *x, json_t *y,
                             bool *conflict) {
    static const char *const larger[] = {"minimum",  "exclusiveMinimum", "minLength",
                                         "minItems", "minProperties",    NULL};
    static const char *const smaller[] = {"maximum",  "exclusiveMaximum", "maxLength",
                                          "maxItems", "maxProperties",    NULL};
    if (one_of(key, larger) && json_is_number(x) && json_is_number(y))
        return json_incref(sl_schema_value(x) > sl_schema_value(y) ? x : y);
    if (one_of(key, smaller) && json_is_number(x) && json_is_number(y))
        return json_incref(sl_schema_value(x) < sl_schema_value(y) ? x : y);
    if (strcmp(key, "required") == 0 && json_is_array(x) && json_is_array(y))
        return merge_required(c, x, y);
    if (strcmp(key, "items") == 0 || strcmp(key, "propertyNames") == 0 ||
        strcmp(key, "additionalItems") == 0)
        return both_of(c, x, y);
    if (strcmp(key, "pattern") == 0 || strcmp(key, "format") == 0 ||
        strcmp(key, SL_SCHEMA_NOT_ENUM) == 0 || strcmp(key, SL_SCHEMA_NOT_PATTERN) == 0)
        return merge_lists(c, x, y);
    if (strcmp(key, "patternProperties") == 0 && json_is_object(x) && json_is_object(y))
        return merge_named(c, x, y);
    if (strcmp(key, "additionalProperties") == 0) {
        if (json_is_false(x) || json_is_true(y))
            return json_incref(x);
        if (json_is_false(y) || json_is_true(x))
            return json_incref(y);
        return both_of(c, x, y);
    }
    if ((strcmp(key, "anyOf") == 0 || strcmp(key, "oneOf") == 0) && json_is_array(x) &&
        json_is_array(y))
        return merge_choices(c, key, x, y);
    if (strcmp(key, "uniqueItems") == 0)
        return json_boolean(json_is_true(x) || json_is_true(y));
    *conflict = true;
    return NULL;
}

static enum sl_status merge_values(struct sl_schema *c, json_t *out, const json_t *a,
                                   const json_t *b) {
    json_t *own_a, *own_b;
    const json_t *x = sl_schema_values(a, &own_a), *y = sl_schema_values(b, &own_b);
    json_t *values = NULL;
    enum sl_status status =
        x && y ? common_values(c, x, y, &values) : sl_schema_copy(c, x ? x : y, &values);
    json_decref(own_a);
    json_decref(own_b);
    if (status != SL_OK)
        return status;
    json_object_del(out, "const");
    return json_object_set_new(out, "enum", values) == 0 ? SL_OK : sl_schema_no_memory(c);
}

/* items holds for what comes behind prefixItems. One that stands in a schema without prefixItems
 * holds for those of the other as well. The older form, items as an array, is not combined. */
static enum sl_status merge_prefix(struct sl_schema *c, json_t *out, const json_t *a,
                                   const json_t *b) {
    static const char *const keys[] = {"items", "prefixItems", "additionalItems"};
    const json_t *of[] = {a, b};
    for (size_t k = 0; k < 2; k++) {
        if (!json_is_array(json_object_get(of[k], "items")))
            continue;
        bool same = true, there = false;
        for (size_t i = 0; i < 3; i++) {
            json_t *x = json_object_get(of[k], keys[i]), *y = json_object_get(of[1 - k], keys[i]);
            there = there || y;
            same = same && (x && y ? equal(c, x, y) : x == y);
        }
        if (there && !same)
            return sl_fail(c->err, SL_ERR_INVALID,
                           "items: an array of schemas cannot be combined with another items, "
                           "prefixItems or additionalItems; write it as prefixItems");
        return SL_OK;
    }
    for (size_t k = 0; k < 2; k++) {
        const json_t *prefix = json_object_get(of[k], "prefixItems");
        json_t *all = json_object_get(of[1 - k], "items"), *v, *sum;
        size_t i;
        if (!json_is_array(prefix) || json_object_get(of[1 - k], "prefixItems") || !all)
            continue;
        SL_TRY(sl_schema_spend(c, json_array_size(prefix)));
        json_t *list = json_array();
        json_array_foreach((json_t *)prefix, i, v) {
            sum = list ? both_of(c, v, all) : NULL;
            if (!sum || json_array_append_new(list, sum) != 0) {
                json_decref(list);
                return no_both(c);
            }
        }
        if (!list || json_object_set_new(out, "prefixItems", list) != 0)
            return sl_schema_no_memory(c);
    }
    return SL_OK;
}

/* additionalProperties speaks of what neither properties nor patternProperties of its own schema
 * name; with the other's patternProperties it would mean something else. */
static enum sl_status check_names(struct sl_schema *c, const json_t *a, const json_t *b) {
    const json_t *of[] = {a, b};
    for (size_t k = 0; k < 2; k++) {
        const json_t *extra = json_object_get(of[k], "additionalProperties");
        const json_t *own = json_object_get(of[k], "patternProperties");
        const json_t *other = json_object_get(of[1 - k], "patternProperties");
        if (extra && !json_is_true(extra) && other && !(own && equal(c, own, other)))
            return sl_fail(c->err, SL_ERR_INVALID,
                           "patternProperties: cannot be combined with additionalProperties of "
                           "another schema");
    }
    return SL_OK;
}

/* Adds to sum, a copy of a, what b says by keywords that can be merged one by one. */
static enum sl_status merge_keywords(struct sl_schema *c, json_t *sum, const json_t *a,
                                     const json_t *b) {
    const char *key;
    json_t *y;
    json_object_foreach((json_t *)b, key, y) {
        json_t *x = json_object_get(sum, key), *both;
        bool conflict = false;
        if (is_annotation(key) || strcmp(key, "properties") == 0 || strcmp(key, "const") == 0 ||
            strcmp(key, "enum") == 0)
            continue;
        if (!x || equal(c, x, y)) {
            both = json_incref(y);
        } else if (strcmp(key, "type") == 0) {
            unsigned tx, ty;
            SL_TRY(sl_schema_types(c, a, &tx));
            SL_TRY(sl_schema_types(c, b, &ty));
            both = sl_schema_type_names(tx & ty);
        } else {
            both = merge_keyword(c, key, x, y, &conflict);
        }
        if (conflict)
            return sl_fail(c->err, SL_ERR_INVALID,
                           "%.60s: cannot be combined with another %.60s by allOf, anyOf, oneOf or "
                           "beside $ref",
                           key, key);
        if (!both || json_object_set_new(sum, key, both) != 0)
            return no_both(c);
    }
    return SL_OK;
}

enum sl_status sl_schema_merge(struct sl_schema *c, const json_t *a, const json_t *b,
                               uint32_t depth, json_t **out) {
    if (depth > SL_SCHEMA_MAX_DEPTH)
        return sl_fail(c->err, SL_ERR_INVALID, "allOf: nested too deep");
    if (json_is_true(a) || json_is_false(b)) {
        *out = json_incref((json_t *)b);
        return SL_OK;
    }
    if (json_is_true(b) || json_is_false(a)) {
        *out = json_incref((json_t *)a);
        return SL_OK;
    }
    json_t *sum = NULL;
    enum sl_status status = sl_schema_spend(c, json_object_size(b));
    if (status == SL_OK)
        status = sl_schema_copy(c, a, &sum);
    if (status == SL_OK)
        status = merge_keywords(c, sum, a, b);
    if (status == SL_OK)
        status = check_names(c, a, b);
    bool values = json_object_get(b, "enum") || json_object_get(b, "const");
    if (status == SL_OK && values)
        status = merge_values(c, sum, a, b);
    if (status == SL_OK)
        status = merge_prefix(c, sum, a, b);
    if (status == SL_OK && (json_object_get(a, "properties") || json_object_get(b, "properties")) &&
        (json_object_get(b, "properties") || json_object_get(b, "additionalProperties")))
        status = merge_properties(c, sum, a, b);
    if (status == SL_OK)
        *out = sum;
    else
        json_decref(sum);
    return status;
}

/* ---- neither ---- */

/* Does a require a property that b forbids, or one that differs? */
static enum sl_status differs(struct sl_schema *c, const json_t *a, const json_t *b, uint32_t depth,
                              bool *out) {
    const json_t *pa = json_object_get(a, "properties"), *pb = json_object_get(b, "properties");
    const json_t *extra = json_object_get(b, "additionalProperties");
    const char *key;
    json_t *name, *ours = NULL, *theirs = NULL;
    enum sl_status status = sl_schema_required(c, a, &ours);
    if (status == SL_OK)
        status = sl_schema_required(c, b, &theirs);
    json_object_foreach(ours, key, name) {
        if (status != SL_OK || *out)
            break;
        const json_t *va = json_object_get(pa, key), *vb = json_object_get(pb, key);
        if (!vb && json_is_false(extra) && !json_object_get(b, "patternProperties"))
            *out = true;
        if (!va || !vb || !json_object_get(theirs, key))
            continue;
        json_t *fa = NULL, *fb = NULL;
        status = sl_schema_flatten(c, va, depth + 1, &fa);
        if (status == SL_OK)
            status = sl_schema_flatten(c, vb, depth + 1, &fb);
        if (status == SL_OK)
            status = sl_schema_disjoint(c, fa, fb, depth + 1, out);
        json_decref(fa);
        json_decref(fb);
    }
    json_decref(ours);
    json_decref(theirs);
    return status;
}

enum sl_status sl_schema_disjoint(struct sl_schema *c, const json_t *a, const json_t *b,
                                  uint32_t depth, bool *out) {
    *out = false;
    if (depth > 6)
        return SL_OK;
    if (json_is_boolean(a) || json_is_boolean(b)) {
        *out = json_is_false(a) || json_is_false(b);
        return SL_OK;
    }
    unsigned ta, tb;
    SL_TRY(sl_schema_spend(c, 1));
    SL_TRY(sl_schema_types(c, a, &ta));
    SL_TRY(sl_schema_types(c, b, &tb));
    if (!(ta & tb)) {
        *out = true;
        return SL_OK;
    }
    enum sl_status status = SL_OK;
    json_t *own_a, *own_b;
    const json_t *x = sl_schema_values(a, &own_a), *y = sl_schema_values(b, &own_b);
    if (json_is_array(x) && json_is_array(y)) {
        json_t *common = NULL;
        status = common_values(c, x, y, &common);
        *out = common && json_array_size(common) == 0;
        json_decref(common);
    }
    json_decref(own_a);
    json_decref(own_b);
    if (status == SL_OK && !*out && (ta & tb) == SL_TYPE_OBJECT) {
        status = differs(c, a, b, depth, out);
        if (status == SL_OK && !*out)
            status = differs(c, b, a, depth, out);
    }
    return status;
}
