/* $ref and allOf: a schema that says the same without them. */
#include "model/grammar/json_schema_internal.h"

#include <stdio.h>
#include <stdlib.h>

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

/* Once nothing else is to be merged into a schema, what no keyword of it speaks of is known: then
 * unevaluatedProperties and unevaluatedItems say what additionalProperties and items do, and are
 * replaced by them. */
static enum sl_status close_unevaluated(struct sl_schema *c, json_t *s) {
    static const char *const later[] = {
        "anyOf",       "oneOf",         "if",       "dependentSchemas",
        "$dynamicRef", "$recursiveRef", "contains", "dependencies"};
    json_t *props = json_object_get(s, "unevaluatedProperties");
    json_t *rest = json_object_get(s, "unevaluatedItems");
    int failed = 0;
    if (!props && !rest)
        return SL_OK;
    if (json_object_get(s, SL_SCHEMA_OPPOSITE))
        return sl_fail(c->err, SL_ERR_INVALID,
                       "%s: not supported beside not, if or a oneOf that overlaps",
                       props ? "unevaluatedProperties" : "unevaluatedItems");
    for (size_t i = 0; i < sizeof later / sizeof *later; i++)
        if (json_object_get(s, later[i]))
            return SL_OK;
    if (props && !json_object_get(s, "additionalProperties"))
        failed |= json_object_set(s, "additionalProperties", props);
    json_t *items = json_object_get(s, "items");
    const char *key = json_is_array(items) ? "additionalItems" : "items";
    if (rest && !json_object_get(s, key))
        failed |= json_object_set(s, key, rest);
    json_object_del(s, "unevaluatedProperties");
    json_object_del(s, "unevaluatedItems");
    return failed ? sl_schema_no_memory(c) : SL_OK;
}

enum sl_status sl_schema_check_closed(struct sl_schema *c, const json_t *part) {
    if (!json_object_get(part, "unevaluatedProperties") &&
        !json_object_get(part, "unevaluatedItems"))
        return SL_OK;
    return sl_fail(c->err, SL_ERR_INVALID,
                   "%s: not supported beside anyOf, oneOf and alike in a part of another schema",
                   json_object_get(part, "unevaluatedItems") ? "unevaluatedItems"
                                                             : "unevaluatedProperties");
}

/* dependentRequired, dependentSchemas and dependencies as parts of an allOf: a property is not
 * there, or what it brings holds. */
static enum sl_status add_dependent(struct sl_schema *c, const json_t *s, json_t *parts) {
    static const char *const keys[] = {"dependentRequired", "dependentSchemas", "dependencies"};
    const char *name;
    json_t *value;
    for (size_t k = 0; k < 3; k++) {
        const json_t *all = json_object_get(s, keys[k]);
        if (all && !json_is_object(all))
            return sl_fail(c->err, SL_ERR_INVALID, "%s must be an object", keys[k]);
        json_object_foreach((json_t *)all, name, value) {
            if (k == 0 ? !json_is_array(value) : json_is_array(value) && k == 1)
                return sl_fail(c->err, SL_ERR_INVALID, "%s: '%.60s' has a value of a wrong type",
                               keys[k], name);
            json_t *then =
                json_is_array(value) ? json_pack("{s:O}", "required", value) : json_incref(value);
            json_t *part = json_pack("{s:[{s:{s:b}},{s:[{s:s,s:[s]},o]}]}", "anyOf", "properties",
                                     name, 0, "allOf", "type", "object", "required", name, then);
            if (!part || json_array_append_new(parts, part) != 0)
                return sl_schema_no_memory(c);
            SL_TRY(sl_schema_spend(c, 4));
        }
    }
    return SL_OK;
}

/* not, and if with then and else, as parts: what a condition brings, or its opposite. */
static enum sl_status add_conditions(struct sl_schema *c, const json_t *s, json_t *parts) {
    json_t *no = json_object_get(s, "not"), *cond = json_object_get(s, "if"), *opposite = NULL;
    json_t *then = json_object_get(s, "then"), *other = json_object_get(s, "else");
    enum sl_status status = SL_OK;
    if (no) {
        status = sl_schema_not(c, no, &opposite);
        if (status == SL_OK && json_array_append_new(parts, opposite) != 0)
            status = sl_schema_no_memory(c);
    }
    if (status != SL_OK || !cond || (!then && !other))
        return status;
    status = sl_schema_not(c, cond, &opposite);
    if (status == SL_OK) {
        json_t *yes = json_pack("{s:[O]}", "allOf", cond), *all = json_object_get(yes, "allOf");
        json_t *wrong = json_pack("{s:[o]}", "allOf", opposite);
        int failed = !yes || !wrong;
        failed = failed || (then && json_array_append(all, then) != 0);
        failed =
            failed || (other && json_array_append(json_object_get(wrong, "allOf"), other) != 0);
        json_t *part = failed ? NULL : json_pack("{s:[O,O]}", "anyOf", yes, wrong);
        json_decref(yes);
        json_decref(wrong);
        if (!part || json_array_append_new(parts, part) != 0)
            status = sl_schema_no_memory(c);
    }
    return status;
}

/* The schema with what depends on properties or conditions in its allOf; *out NULL: nothing does.
 */
static enum sl_status expand(struct sl_schema *c, const json_t *s, json_t **out) {
    static const char *const keys[] = {
        "not", "if", "dependentRequired", "dependentSchemas", "dependencies", "then", "else"};
    const json_t *all = json_object_get(s, "allOf");
    bool any = false;
    *out = NULL;
    for (size_t i = 0; i < 7; i++)
        any = any || json_object_get(s, keys[i]);
    if (!any)
        return SL_OK;
    if (all && !json_is_array(all))
        return sl_fail(c->err, SL_ERR_INVALID, "allOf must be an array");
    json_t *sum = NULL, *parts = NULL;
    enum sl_status status = sl_schema_copy(c, s, &sum);
    if (status == SL_OK && all)
        status = sl_schema_copy(c, all, &parts);
    else if (status == SL_OK && !(parts = json_array()))
        status = sl_schema_no_memory(c);
    if (status == SL_OK)
        status = add_dependent(c, s, parts);
    if (status == SL_OK)
        status = add_conditions(c, s, parts);
    if (status == SL_OK && json_object_set(sum, "allOf", parts) != 0)
        status = sl_schema_no_memory(c);
    if (status == SL_OK && (json_object_get(s, "not") || json_object_get(s, "if")) &&
        json_object_set_new(sum, SL_SCHEMA_OPPOSITE, json_true()) != 0)
        status = sl_schema_no_memory(c);
    json_decref(parts);
    for (size_t i = 0; i < 7; i++)
        json_object_del(sum, keys[i]);
    if (status == SL_OK)
        *out = sum;
    else
        json_decref(sum);
    return status;
}

const json_t *sl_schema_find(const struct sl_schema *c, const char *ref) {
    return find(c->root, ref);
}

enum sl_status sl_schema_flatten(struct sl_schema *c, const json_t *s, uint32_t depth,
                                 json_t **out) {
    if (depth > SL_SCHEMA_MAX_DEPTH)
        return sl_fail(c->err, SL_ERR_INVALID,
                       "$ref or allOf: nested more than %u deep, or in a circle",
                       SL_SCHEMA_MAX_DEPTH);
    SL_TRY(sl_schema_spend(c, 1));
    if (json_is_boolean(s)) {
        *out = json_incref((json_t *)s);
        return SL_OK;
    }
    if (!json_is_object(s))
        return sl_fail(c->err, SL_ERR_INVALID, "a schema must be an object, true or false");
    json_t *expanded = NULL;
    SL_TRY(expand(c, s, &expanded));
    if (expanded) {
        enum sl_status status = sl_schema_flatten(c, expanded, depth + 1, out);
        json_decref(expanded);
        return status;
    }
    const json_t *ref = json_object_get(s, "$ref"), *all = json_object_get(s, "allOf");
    if (!ref && !all) {
        if (!json_object_get(s, "unevaluatedProperties") &&
            !json_object_get(s, "unevaluatedItems")) {
            *out = json_incref((json_t *)s);
            return SL_OK;
        }
        json_t *own = NULL;
        enum sl_status status = sl_schema_copy(c, s, &own);
        if (status == SL_OK)
            status = close_unevaluated(c, own);
        if (status == SL_OK)
            *out = own;
        else
            json_decref(own);
        return status;
    }
    if (ref && !json_is_string(ref))
        return sl_fail(c->err, SL_ERR_INVALID, "$ref must be a string");
    if (all && !json_is_array(all))
        return sl_fail(c->err, SL_ERR_INVALID, "allOf must be an array");
    json_t *sum = NULL;
    enum sl_status status = sl_schema_copy(c, s, &sum);
    if (status == SL_OK)
        status = sl_schema_spend(c, json_string_length(ref) / 16); /* to be walked */
    if (sum) {
        json_object_del(sum, "$ref");
        json_object_del(sum, "allOf");
    }
    size_t n = (ref ? 1 : 0) + json_array_size(all);
    for (size_t i = 0; i < n && status == SL_OK; i++) {
        const json_t *part = ref && i == 0 ? find(c->root, json_string_value(ref))
                                           : json_array_get(all, i - (ref ? 1 : 0));
        if (!part)
            status =
                sl_fail(c->err, SL_ERR_INVALID,
                        "$ref: '%.100s' is not in the schema (only '#' and '#/...' are supported)",
                        json_string_value(ref));
        json_t *flat = NULL, *both = NULL;
        if (status == SL_OK)
            status = sl_schema_flatten(c, part, depth + 1, &flat);
        if (status == SL_OK)
            status = sl_schema_check_closed(c, flat);
        if (status == SL_OK)
            status = sl_schema_merge(c, sum, flat, depth + 1, &both);
        json_decref(flat);
        if (status == SL_OK) {
            json_decref(sum);
            sum = both;
        }
    }
    if (status == SL_OK && json_is_object(sum))
        status = close_unevaluated(c, sum);
    if (status == SL_OK)
        *out = sum;
    else
        json_decref(sum);
    return status;
}
