/* Schemas as sets: what two of them both take, and whether they exclude each other. */
#include "model/json_schema_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum sl_status no_memory(struct sl_schema *c) {
    return sl_fail(c->err, SL_ERR_NOMEM, "out of memory");
}

/* ---- types ---- */

unsigned sl_schema_type_of(const json_t *v) {
    switch (json_typeof(v)) {
    case JSON_NULL:
        return SL_TYPE_NULL;
    case JSON_TRUE:
    case JSON_FALSE:
        return SL_TYPE_BOOLEAN;
    case JSON_INTEGER:
        return SL_TYPE_INTEGER;
    case JSON_REAL:
        return json_real_value(v) == floor(json_real_value(v)) ? SL_TYPE_INTEGER : SL_TYPE_FRACTION;
    case JSON_STRING:
        return SL_TYPE_STRING;
    case JSON_ARRAY:
        return SL_TYPE_ARRAY;
    default:
        return SL_TYPE_OBJECT;
    }
}

static unsigned type_named(const char *name) {
    static const struct {
        const char *name;
        unsigned type;
    } types[] = {{"null", SL_TYPE_NULL},       {"boolean", SL_TYPE_BOOLEAN},
                 {"integer", SL_TYPE_INTEGER}, {"number", SL_TYPE_INTEGER | SL_TYPE_FRACTION},
                 {"string", SL_TYPE_STRING},   {"array", SL_TYPE_ARRAY},
                 {"object", SL_TYPE_OBJECT}};
    for (size_t i = 0; name && i < sizeof types / sizeof *types; i++)
        if (strcmp(name, types[i].name) == 0)
            return types[i].type;
    return 0;
}

const json_t *sl_schema_values(const json_t *s, json_t **out_new) {
    const json_t *v = json_object_get(s, "const");
    *out_new = NULL;
    if (v) {
        *out_new = json_array();
        if (*out_new && json_array_append(*out_new, (json_t *)v) != 0) {
            json_decref(*out_new);
            *out_new = NULL;
        }
        return *out_new;
    }
    return json_object_get(s, "enum");
}

enum sl_status sl_schema_types(struct sl_schema *c, const json_t *s, unsigned *out_types) {
    const json_t *t = json_object_get(s, "type");
    unsigned types = t ? 0 : SL_TYPE_ALL;
    size_t n = json_is_array(t) ? json_array_size(t) : t ? 1 : 0;
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_is_array(t) ? json_array_get(t, i) : t;
        unsigned type = type_named(json_string_value(one));
        if (!type)
            return sl_fail(c->err, SL_ERR_INVALID,
                           "type must be null, boolean, integer, number, string, array, object, or "
                           "an array of them");
        types |= type;
    }
    json_t *own;
    const json_t *values = sl_schema_values(s, &own), *v;
    if (json_is_array(values)) {
        unsigned of_values = 0;
        size_t i;
        json_array_foreach(values, i, v) of_values |= sl_schema_type_of(v);
        types &= of_values;
    }
    json_decref(own);
    *out_types = types;
    return SL_OK;
}

/* ---- references ---- */

/* A JSON pointer in the fragment of a $ref. Source: RFC 6901. */
static const json_t *find(const json_t *root, const char *ref) {
    if (*ref++ != '#')
        return NULL;
    const json_t *v = root;
    while (*ref == '/') {
        char key[512];
        size_t n = 0;
        for (ref++; *ref && *ref != '/'; ref++) {
            char ch = *ref;
            unsigned hex;
            if (ch == '~' && (ref[1] == '0' || ref[1] == '1')) {
                ch = ref[1] == '0' ? '~' : '/';
                ref++;
            } else if (ch == '%' && ref[1] && ref[2] && sscanf(ref + 1, "%2x", &hex) == 1) {
                ch = (char)hex;
                ref += 2;
            }
            if (n + 1 == sizeof key)
                return NULL;
            key[n++] = ch;
        }
        key[n] = '\0';
        if (json_is_array(v)) {
            char *end;
            unsigned long i = strtoul(key, &end, 10);
            v = *end || !n ? NULL : json_array_get(v, i);
        } else {
            v = json_object_get(v, key);
        }
        if (!v)
            return NULL;
    }
    return *ref ? NULL : v;
}

static json_t *without(const json_t *s, const char *key) {
    json_t *copy = json_copy((json_t *)s);
    if (copy)
        json_object_del(copy, key);
    return copy;
}

enum sl_status sl_schema_flatten(struct sl_schema *c, const json_t *s, uint32_t depth,
                                 json_t **out) {
    if (depth > SL_SCHEMA_MAX_DEPTH)
        return sl_fail(c->err, SL_ERR_INVALID,
                       "$ref or allOf: nested more than %u deep, or in a circle",
                       SL_SCHEMA_MAX_DEPTH);
    if (json_is_boolean(s)) {
        *out = json_incref((json_t *)s);
        return SL_OK;
    }
    if (!json_is_object(s))
        return sl_fail(c->err, SL_ERR_INVALID, "a schema must be an object, true or false");
    const json_t *ref = json_object_get(s, "$ref"), *all = json_object_get(s, "allOf");
    if (!ref && !all) {
        *out = json_incref((json_t *)s);
        return SL_OK;
    }
    if (ref && !json_is_string(ref))
        return sl_fail(c->err, SL_ERR_INVALID, "$ref must be a string");
    if (all && !json_is_array(all))
        return sl_fail(c->err, SL_ERR_INVALID, "allOf must be an array");
    json_t *rest = without(s, "$ref"), *sum = NULL;
    if (!rest)
        return no_memory(c);
    json_object_del(rest, "allOf");
    sum = rest;
    size_t n = (ref ? 1 : 0) + json_array_size(all);
    enum sl_status st = SL_OK;
    for (size_t i = 0; i < n && st == SL_OK; i++) {
        const json_t *part = ref && i == 0 ? find(c->root, json_string_value(ref))
                                           : json_array_get(all, i - (ref ? 1 : 0));
        if (!part)
            st = sl_fail(c->err, SL_ERR_INVALID,
                         "$ref: '%.100s' is not in the schema (only '#' and '#/...' are supported)",
                         json_string_value(ref));
        json_t *flat = NULL, *both = NULL;
        if (st == SL_OK)
            st = sl_schema_flatten(c, part, depth + 1, &flat);
        if (st == SL_OK)
            st = sl_schema_merge(c, sum, flat, depth + 1, &both);
        json_decref(flat);
        if (st == SL_OK) {
            json_decref(sum);
            sum = both;
        }
    }
    if (st == SL_OK)
        *out = sum;
    else
        json_decref(sum);
    return st;
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

/* allOf of two, to be flattened where it is used. */
static json_t *both_of(json_t *a, json_t *b) {
    if (json_equal(a, b))
        return json_incref(a);
    return json_pack("{s:[O,O]}", "allOf", a, b);
}

static json_t *common_values(const json_t *a, const json_t *b) {
    json_t *out = json_array();
    size_t i, k;
    json_t *x, *y;
    json_array_foreach((json_t *)a, i, x)
        json_array_foreach((json_t *)b, k, y) if (json_equal(x, y)) {
        if (!out || json_array_append(out, x) != 0)
            return out;
        break;
    }
    return out;
}

static json_t *type_list(unsigned types) {
    static const struct {
        const char *name;
        unsigned type;
    } names[] = {{"null", SL_TYPE_NULL},
                 {"boolean", SL_TYPE_BOOLEAN},
                 {"number", SL_TYPE_INTEGER | SL_TYPE_FRACTION},
                 {"integer", SL_TYPE_INTEGER},
                 {"string", SL_TYPE_STRING},
                 {"array", SL_TYPE_ARRAY},
                 {"object", SL_TYPE_OBJECT}};
    json_t *out = json_array();
    for (size_t i = 0; out && i < sizeof names / sizeof *names; i++)
        if ((types & names[i].type) == names[i].type) {
            json_array_append_new(out, json_string(names[i].name));
            types &= ~names[i].type;
        }
    return out;
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
        if (theirs)
            sum = both_of(theirs, value);
        else if (json_is_false(extra))
            continue; /* if it is required, that will be found impossible */
        else if (json_is_object(extra))
            sum = both_of((json_t *)extra, value);
        else
            sum = json_incref(value);
        if (!sum || json_object_set_new(into, key, sum) != 0)
            return no_memory(c);
    }
    return SL_OK;
}

static enum sl_status merge_properties(struct sl_schema *c, json_t *out, const json_t *a,
                                       const json_t *b) {
    json_t *p = json_object();
    enum sl_status st = p ? add_properties(c, p, a, b) : no_memory(c);
    /* Those of both are there by now, in the order of a. */
    json_t *only_b =
        json_object_get(b, "properties") ? json_copy(json_object_get(b, "properties")) : NULL;
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(a, "properties"), key, value) json_object_del(only_b, key);
    json_t *rest = json_pack("{s:o?}", "properties", only_b);
    if (st == SL_OK && only_b)
        st = rest ? add_properties(c, p, rest, a) : no_memory(c);
    json_decref(rest);
    if (st == SL_OK && json_object_set_new(out, "properties", p) != 0)
        return no_memory(c);
    if (st != SL_OK)
        json_decref(p);
    return st;
}

static bool one_of(const char *key, const char *const *keys) {
    for (; *keys; keys++)
        if (strcmp(key, *keys) == 0)
            return true;
    return false;
}

/* One keyword that both have, with different values. NULL and *conflict: it cannot be said. */
static json_t *merge_keyword(const char *key, json_t *x, json_t *y, bool *conflict) {
    static const char *const larger[] = {"minimum",  "exclusiveMinimum", "minLength",
                                         "minItems", "minProperties",    NULL};
    static const char *const smaller[] = {"maximum",  "exclusiveMaximum", "maxLength",
                                          "maxItems", "maxProperties",    NULL};
    if (one_of(key, larger) && json_is_number(x) && json_is_number(y))
        return json_incref(json_number_value(x) > json_number_value(y) ? x : y);
    if (one_of(key, smaller) && json_is_number(x) && json_is_number(y))
        return json_incref(json_number_value(x) < json_number_value(y) ? x : y);
    if (strcmp(key, "required") == 0 && json_is_array(x) && json_is_array(y)) {
        json_t *sum = json_copy(x);
        if (sum)
            json_array_extend(sum, y); /* doubles do no harm */
        return sum;
    }
    if (strcmp(key, "items") == 0)
        return both_of(x, y);
    if (strcmp(key, "additionalProperties") == 0) {
        if (json_is_false(x) || json_is_true(y))
            return json_incref(x);
        if (json_is_false(y) || json_is_true(x))
            return json_incref(y);
        return both_of(x, y);
    }
    if (strcmp(key, "uniqueItems") == 0)
        return json_boolean(json_is_true(x) || json_is_true(y));
    *conflict = true;
    return NULL;
}

static enum sl_status merge_values(struct sl_schema *c, json_t *out, const json_t *a,
                                   const json_t *b) {
    json_t *own_a, *own_b;
    const json_t *x = sl_schema_values(a, &own_a), *y = sl_schema_values(b, &own_b);
    json_t *values = x && y ? common_values(x, y) : json_copy((json_t *)(x ? x : y));
    json_decref(own_a);
    json_decref(own_b);
    json_object_del(out, "const");
    return values && json_object_set_new(out, "enum", values) == 0 ? SL_OK : no_memory(c);
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
    json_t *sum = json_copy((json_t *)a);
    if (!sum)
        return no_memory(c);
    const char *key;
    json_t *y;
    enum sl_status st = SL_OK;
    json_object_foreach((json_t *)b, key, y) {
        json_t *x = json_object_get(sum, key), *both;
        bool conflict = false;
        if (is_annotation(key) || strcmp(key, "properties") == 0 || strcmp(key, "const") == 0 ||
            strcmp(key, "enum") == 0)
            continue;
        if (!x || json_equal(x, y)) {
            both = json_incref(y);
        } else if (strcmp(key, "type") == 0) {
            unsigned tx, ty;
            st = sl_schema_types(c, a, &tx);
            if (st == SL_OK)
                st = sl_schema_types(c, b, &ty);
            if (st != SL_OK)
                break;
            both = type_list(tx & ty);
        } else {
            both = merge_keyword(key, x, y, &conflict);
        }
        if (conflict) {
            st = sl_fail(c->err, SL_ERR_INVALID,
                         "%.60s: cannot be combined with another %.60s by allOf, anyOf, oneOf or "
                         "beside $ref",
                         key, key);
            break;
        }
        if (!both || json_object_set_new(sum, key, both) != 0) {
            st = no_memory(c);
            break;
        }
    }
    bool values = json_object_get(b, "enum") || json_object_get(b, "const");
    if (st == SL_OK && values)
        st = merge_values(c, sum, a, b);
    if (st == SL_OK && (json_object_get(a, "properties") || json_object_get(b, "properties")) &&
        (json_object_get(b, "properties") || json_object_get(b, "additionalProperties")))
        st = merge_properties(c, sum, a, b);
    if (st == SL_OK)
        *out = sum;
    else
        json_decref(sum);
    return st;
}

/* ---- neither ---- */

static bool requires(const json_t *s, const char *key) {
    size_t i;
    json_t *v;
    json_array_foreach((json_t *)json_object_get(s, "required"), i,
                       v) if (json_is_string(v) &&
                              strcmp(json_string_value(v), key) == 0) return true;
    return false;
}

/* Does a require a property that b forbids, or one that differs? */
static enum sl_status differs(struct sl_schema *c, const json_t *a, const json_t *b, uint32_t depth,
                              bool *out) {
    const json_t *pa = json_object_get(a, "properties"), *pb = json_object_get(b, "properties");
    size_t i;
    json_t *name;
    json_array_foreach((json_t *)json_object_get(a, "required"), i, name) {
        const char *key = json_string_value(name);
        if (!key)
            continue;
        const json_t *va = json_object_get(pa, key), *vb = json_object_get(pb, key);
        if (!vb && json_is_false(json_object_get(b, "additionalProperties"))) {
            *out = true;
            return SL_OK;
        }
        if (!va || !vb || !requires(b, key))
            continue;
        json_t *fa = NULL, *fb = NULL;
        enum sl_status st = sl_schema_flatten(c, va, depth + 1, &fa);
        if (st == SL_OK)
            st = sl_schema_flatten(c, vb, depth + 1, &fb);
        if (st == SL_OK)
            st = sl_schema_disjoint(c, fa, fb, depth + 1, out);
        json_decref(fa);
        json_decref(fb);
        if (st != SL_OK || *out)
            return st;
    }
    return SL_OK;
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
    enum sl_status st = sl_schema_types(c, a, &ta);
    if (st == SL_OK)
        st = sl_schema_types(c, b, &tb);
    if (st != SL_OK)
        return st;
    if (!(ta & tb)) {
        *out = true;
        return SL_OK;
    }
    json_t *own_a, *own_b;
    const json_t *x = sl_schema_values(a, &own_a), *y = sl_schema_values(b, &own_b);
    if (json_is_array(x) && json_is_array(y)) {
        json_t *common = common_values(x, y);
        *out = common && json_array_size(common) == 0;
        json_decref(common);
    }
    json_decref(own_a);
    json_decref(own_b);
    if (!*out && (ta & tb) == SL_TYPE_OBJECT) {
        st = differs(c, a, b, depth, out);
        if (st == SL_OK && !*out)
            st = differs(c, b, a, depth, out);
    }
    return st;
}
