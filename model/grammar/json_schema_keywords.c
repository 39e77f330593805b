/* What keywords say by being there: which are not supported, and of which types the others speak.
 */
#include "model/grammar/json_schema_internal.h"

#include <math.h>
#include <string.h>

enum sl_status sl_schema_check_keywords(struct sl_schema *c, const json_t *s) {
    static const char *const no[] = {"unevaluatedItems", "unevaluatedProperties", "$dynamicRef",
                                     "$recursiveRef"};
    for (size_t i = 0; i < sizeof no / sizeof *no; i++) {
        const json_t *v = json_object_get(s, no[i]);
        /* Settled with each alternative, see json_schema_refs.c. */
        if (v && strncmp(no[i], "unevaluated", 11) == 0 &&
            (json_object_get(s, "anyOf") || json_object_get(s, "oneOf")))
            continue;
        if (v)
            return sl_fail(c->err, SL_ERR_INVALID, "%s: this keyword is not supported", no[i]);
    }
    static const char *const counts[] = {"minLength",   "maxLength",     "minItems",
                                         "maxItems",    "minProperties", "maxProperties",
                                         "minContains", "maxContains"};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const json_t *v = json_object_get(s, counts[i]);
        if (v && !(json_is_number(v) && json_number_value(v) >= 0 &&
                   json_number_value(v) == floor(json_number_value(v))))
            return sl_fail(c->err, SL_ERR_INVALID, "%s must be a whole number from 0 up",
                           counts[i]);
    }
    return sl_schema_check_bounds(c, s);
}

#define NUMBER (SL_TYPE_INTEGER | SL_TYPE_FRACTION)

/* In the order in which they are looked for beside enum and const. */
static const struct {
    const char *key;
    unsigned types;
    bool tried; /* the values of enum and const are tried against it, see json_schema_values.c */
} keywords[] = {{"pattern", SL_TYPE_STRING, true},
                {"format", SL_TYPE_STRING, true},
                {"minLength", SL_TYPE_STRING, true},
                {"maxLength", SL_TYPE_STRING, true},
                {"multipleOf", NUMBER, false},
                {"minimum", NUMBER, true},
                {"maximum", NUMBER, true},
                {"exclusiveMinimum", NUMBER, true},
                {"exclusiveMaximum", NUMBER, true},
                {"properties", SL_TYPE_OBJECT, false},
                {"required", SL_TYPE_OBJECT, false},
                {"additionalProperties", SL_TYPE_OBJECT, false},
                {"patternProperties", SL_TYPE_OBJECT, false},
                {"propertyNames", SL_TYPE_OBJECT, false},
                {"minProperties", SL_TYPE_OBJECT, false},
                {"maxProperties", SL_TYPE_OBJECT, false},
                {"items", SL_TYPE_ARRAY, false},
                {"prefixItems", SL_TYPE_ARRAY, false},
                {"additionalItems", SL_TYPE_ARRAY, false},
                {"contains", SL_TYPE_ARRAY, false},
                {"minItems", SL_TYPE_ARRAY, false},
                {"maxItems", SL_TYPE_ARRAY, false},
                {"uniqueItems", SL_TYPE_ARRAY, false}};

unsigned sl_schema_implied_types(const json_t *s) {
    unsigned types = 0;
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
        if (json_object_get(s, keywords[i].key))
            types |= keywords[i].types;
    return types ? types : SL_TYPE_ALL;
}

enum sl_status sl_schema_check_with_values(struct sl_schema *c, const json_t *s, unsigned types) {
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
        if (!keywords[i].tried && (types & keywords[i].types) &&
            json_object_get(s, keywords[i].key))
            return sl_fail(c->err, SL_ERR_INVALID,
                           "%s: not supported beside enum or const of such values",
                           keywords[i].key);
    return SL_OK;
}
