/* The opposite of a schema, as a schema: an anyOf of what may be wrong with a value. It need not be
 * all of it: what has no opposite here is left out, and then fewer values are allowed, never more.
 * For the same reason nothing is merged or narrowed before. */
#include "model/grammar/json_schema_internal.h"

#include <stdlib.h>
#include <string.h>

#define MAX_NUMBERS 64u /* values that numbers are kept apart from */

struct wrongs {
    struct sl_schema *c;
    json_t *list; /* alternatives */
    uint32_t depth;
};

/* Takes the reference to one; NULL: no memory. */
static enum sl_status add(struct wrongs *w, json_t *one) {
    enum sl_status status = sl_schema_spend(w->c, 4);
    if (!one || json_array_append_new(w->list, one) != 0)
        return status == SL_OK ? sl_schema_no_memory(w->c) : status;
    return status;
}

static enum sl_status negate(struct sl_schema *c, const json_t *s, uint32_t depth, json_t **out);

/* ---- values ---- */

static int by_number(const void *a, const void *b) {
    const json_t *x = *(json_t *const *)a, *y = *(json_t *const *)b;
    long double u = sl_schema_value(x), v = sl_schema_value(y);
    return (u > v) - (u < v);
}

/* Numbers between those that are listed. */
static enum sl_status add_numbers(struct wrongs *w, const json_t *values) {
    json_t *sorted[MAX_NUMBERS];
    size_t n = 0, i;
    const json_t *v;
    json_array_foreach((json_t *)values, i, v) if (json_is_number(v)) {
        if (n == MAX_NUMBERS)
            return SL_OK;
        sorted[n++] = (json_t *)v;
    }
    if (n)
        qsort(sorted, n, sizeof *sorted, by_number);
    enum sl_status status = SL_OK;
    for (i = 0; status == SL_OK && i <= n; i++) {
        json_t *one =
            json_pack("{s:s,s:O*,s:O*}", "type", "number", "exclusiveMinimum",
                      i ? sorted[i - 1] : NULL, "exclusiveMaximum", i < n ? sorted[i] : NULL);
        status = add(w, one);
    }
    return status;
}

static enum sl_status add_others(struct wrongs *w, const json_t *values) {
    unsigned types = 0;
    bool yes = false, no = false, empty_array = false, empty_object = false;
    size_t i;
    const json_t *v;
    if (!json_is_array(values) || json_array_size(values) > SL_SCHEMA_MAX_ENUM)
        return SL_OK;
    json_array_foreach((json_t *)values, i, v) {
        types |= sl_schema_type_of(v);
        yes = yes || json_is_true(v);
        no = no || json_is_false(v);
        empty_array = empty_array || (json_is_array(v) && !json_array_size(v));
        empty_object = empty_object || (json_is_object(v) && !json_object_size(v));
    }
    if (types & (SL_TYPE_INTEGER | SL_TYPE_FRACTION))
        types |= SL_TYPE_INTEGER | SL_TYPE_FRACTION;
    json_t *names = sl_schema_type_names(SL_TYPE_ALL & ~types);
    enum sl_status status = add(w, names ? json_pack("{s:o}", "type", names) : NULL);
    if (status == SL_OK && (yes != no))
        status = add(w, json_pack("{s:b}", "const", no));
    if (status == SL_OK && (types & SL_TYPE_INTEGER))
        status = add_numbers(w, values);
    if (status == SL_OK && (types & SL_TYPE_STRING))
        status = add(w, json_pack("{s:s,s:[O]}", "type", "string", SL_SCHEMA_NOT_ENUM, values));
    if (status == SL_OK && (types & SL_TYPE_ARRAY) && !empty_array)
        status = add(w, json_pack("{s:s,s:i}", "type", "array", "maxItems", 0));
    if (status == SL_OK && (types & SL_TYPE_OBJECT) && !empty_object)
        status = add(w, json_pack("{s:s,s:i}", "type", "object", "maxProperties", 0));
    return status;
}

/* ---- keywords ---- */

/* A whole number below or above the one that was asked for. */
static enum sl_status add_counts(struct wrongs *w, const json_t *s) {
    static const struct {
        const char *type, *least, *most;
    } counts[] = {{"string", "minLength", "maxLength"},
                  {"array", "minItems", "maxItems"},
                  {"object", "minProperties", "maxProperties"}};
    enum sl_status status = SL_OK;
    for (size_t i = 0; status == SL_OK && i < 3; i++) {
        const json_t *least = json_object_get(s, counts[i].least);
        const json_t *most = json_object_get(s, counts[i].most);
        if (least && json_number_value(least) >= 1 && json_number_value(least) < 1e6)
            status = add(w, json_pack("{s:s,s:i}", "type", counts[i].type, counts[i].most,
                                      (int)json_number_value(least) - 1));
        if (status == SL_OK && most && json_number_value(most) >= 0 &&
            json_number_value(most) < 1e6)
            status = add(w, json_pack("{s:s,s:i}", "type", counts[i].type, counts[i].least,
                                      (int)json_number_value(most) + 1));
    }
    return status;
}

static enum sl_status add_bounds(struct wrongs *w, const json_t *s) {
    static const struct {
        const char *bound, *open, *opposite, *open_opposite;
    } bounds[] = {{"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"},
                  {"maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum"}};
    enum sl_status status = SL_OK;
    for (size_t i = 0; status == SL_OK && i < 2; i++) {
        const json_t *b = json_object_get(s, bounds[i].bound);
        const json_t *o = json_object_get(s, bounds[i].open);
        if (json_is_number(b)) /* true: draft 4 */
            status = add(
                w, json_pack("{s:s,s:O}", "type", "number",
                             json_is_true(o) ? bounds[i].opposite : bounds[i].open_opposite, b));
        if (status == SL_OK && json_is_number(o))
            status = add(w, json_pack("{s:s,s:O}", "type", "number", bounds[i].opposite, o));
    }
    return status;
}

static enum sl_status add_members(struct wrongs *w, const json_t *s) {
    const json_t *props = json_object_get(s, "properties"), *v;
    const json_t *required = json_object_get(s, "required");
    enum sl_status status = SL_OK;
    const char *key;
    size_t i;
    json_array_foreach((json_t *)required, i, v) {
        if (status == SL_OK && json_is_string(v))
            status = add(w, json_pack("{s:s,s:{s:b}}", "type", "object", "properties",
                                      json_string_value(v), 0));
    }
    json_t *value;
    json_object_foreach((json_t *)props, key, value) {
        json_t *wrong = NULL;
        if (status == SL_OK)
            status = negate(w->c, value, w->depth + 1, &wrong);
        if (status == SL_OK && !json_is_false(wrong))
            status = add(w, json_pack("{s:s,s:[s],s:{s:O}}", "type", "object", "required", key,
                                      "properties", key, wrong));
        json_decref(wrong);
    }
    return status;
}

static enum sl_status add_items(struct wrongs *w, const json_t *s) {
    const json_t *items = json_object_get(s, "items"), *contains = json_object_get(s, "contains");
    json_t *wrong = NULL;
    enum sl_status status = SL_OK;
    if (items && !json_is_array(items) && !json_object_get(s, "prefixItems"))
        status = negate(w->c, items, w->depth + 1, &wrong);
    if (status == SL_OK && wrong && !json_is_false(wrong))
        status = add(w, json_pack("{s:s,s:O}", "type", "array", "contains", wrong));
    json_decref(wrong);
    wrong = NULL;
    if (status == SL_OK && contains && !json_object_get(s, "minContains"))
        status = negate(w->c, contains, w->depth + 1, &wrong);
    if (status == SL_OK && wrong)
        status = add(w, json_pack("{s:s,s:O}", "type", "array", "items", wrong));
    json_decref(wrong);
    return status;
}

/* allOf: one of them is wrong; anyOf: all are; oneOf: all are (or two hold, which is left out). */
static enum sl_status add_lists(struct wrongs *w, const json_t *s) {
    static const char *const keys[] = {"allOf", "anyOf", "oneOf"};
    enum sl_status status = SL_OK;
    for (size_t k = 0; status == SL_OK && k < 3; k++) {
        const json_t *list = json_object_get(s, keys[k]);
        json_t *all = json_is_array(list) ? json_array() : NULL;
        for (size_t i = 0; all && status == SL_OK && i < json_array_size(list); i++) {
            json_t *wrong = NULL;
            status = negate(w->c, json_array_get(list, i), w->depth + 1, &wrong);
            if (status == SL_OK && json_array_append_new(k ? all : w->list, wrong) != 0)
                status = sl_schema_no_memory(w->c);
        }
        if (status == SL_OK && k && all)
            status = add(w, json_pack("{s:O}", "allOf", all));
        json_decref(all);
    }
    return status;
}

static enum sl_status negate(struct sl_schema *c, const json_t *s, uint32_t depth, json_t **out) {
    struct wrongs w = {.c = c, .depth = depth};
    *out = NULL;
    if (depth > 16)
        return sl_fail(c->err, SL_ERR_INVALID, "not: nested too deep, or in a circle");
    SL_TRY(sl_schema_spend(c, 1));
    if (json_is_boolean(s)) {
        *out = json_boolean(json_is_false(s));
        return SL_OK;
    }
    if (!json_is_object(s))
        return sl_fail(c->err, SL_ERR_INVALID, "a schema must be an object, true or false");
    const char *ref = json_string_value(json_object_get(s, "$ref"));
    if (ref) {
        const json_t *target = sl_schema_find(c, ref);
        if (!target)
            return sl_fail(c->err, SL_ERR_INVALID, "$ref: '%.100s' is not in the schema", ref);
        return negate(c, target, depth + 1, out);
    }
    if (json_object_get(s, "$id") || json_object_get(s, "id"))
        return sl_fail(c->err, SL_ERR_INVALID, "not: not supported of a schema with $id");
    w.list = json_array();
    if (!w.list)
        return sl_schema_no_memory(c);
    enum sl_status status = SL_OK;
    if (json_object_get(s, "type")) {
        json_t *only = json_pack("{s:O}", "type", json_object_get(s, "type"));
        unsigned types = SL_TYPE_ALL;
        status = only ? sl_schema_types(c, only, &types) : sl_schema_no_memory(c);
        json_decref(only);
        json_t *names = sl_schema_type_names(SL_TYPE_ALL & ~types);
        if (status == SL_OK)
            status = add(&w, names ? json_pack("{s:O}", "type", names) : NULL);
        json_decref(names);
    }
    const json_t *pattern = json_object_get(s, "pattern");
    if (status == SL_OK && json_object_get(s, "const")) {
        json_t *one = json_pack("[O]", json_object_get(s, "const"));
        status = one ? add_others(&w, one) : sl_schema_no_memory(c);
        json_decref(one);
    }
    if (status == SL_OK && json_object_get(s, "enum"))
        status = add_others(&w, json_object_get(s, "enum"));
    if (status == SL_OK && json_is_string(pattern))
        status =
            add(&w, json_pack("{s:s,s:[O]}", "type", "string", SL_SCHEMA_NOT_PATTERN, pattern));
    if (status == SL_OK)
        status = add_counts(&w, s);
    if (status == SL_OK)
        status = add_bounds(&w, s);
    if (status == SL_OK)
        status = add_members(&w, s);
    if (status == SL_OK)
        status = add_items(&w, s);
    if (status == SL_OK)
        status = add_lists(&w, s);
    if (status == SL_OK && json_object_get(s, "not"))
        status = add(&w, json_incref(json_object_get(s, "not")));
    if (status == SL_OK)
        *out = json_array_size(w.list) ? json_pack("{s:O}", "anyOf", w.list) : json_false();
    json_decref(w.list);
    return status != SL_OK || *out ? status : sl_schema_no_memory(c);
}

enum sl_status sl_schema_not(struct sl_schema *c, const json_t *s, json_t **out) {
    return negate(c, s, 0, out);
}
