#include "model/grammar/json_types.h"

#include <string.h>

#define MAX_DEPTH 8u
#define MAX_WORK  1000u /* schemas looked at: references can multiply */
#define MAX_ENUM  1000u /* values of an enum looked at; more of them are of any type */

uint32_t sl_json_type_of(const json_t *v) {
    switch (json_typeof(v)) {
    case JSON_STRING:
        return SL_JSON_STRING;
    case JSON_INTEGER:
    case JSON_REAL:
        return SL_JSON_NUMBER;
    case JSON_TRUE:
    case JSON_FALSE:
        return SL_JSON_BOOLEAN;
    case JSON_NULL:
        return SL_JSON_NULL;
    case JSON_ARRAY:
        return SL_JSON_ARRAY;
    case JSON_OBJECT:
        return SL_JSON_OBJECT;
    }
    return SL_JSON_ANY;
}

static uint32_t named_type(const json_t *name) {
    static const struct {
        const char *name;
        uint32_t type;
    } types[] = {{"string", SL_JSON_STRING}, {"integer", SL_JSON_NUMBER},
                 {"number", SL_JSON_NUMBER}, {"boolean", SL_JSON_BOOLEAN},
                 {"null", SL_JSON_NULL},     {"array", SL_JSON_ARRAY},
                 {"object", SL_JSON_OBJECT}};
    const char *n = json_string_value(name);
    for (size_t i = 0; n && i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, n) == 0)
            return types[i].type;
    return SL_JSON_ANY;
}

/* "#/$defs/name": no other reference is followed. */
static const json_t *referred(const json_t *root, const char *ref) {
    static const char *const at[] = {"#/$defs/", "#/definitions/"};
    static const char *const members[] = {"$defs", "definitions"};
    for (size_t i = 0; i < 2; i++)
        if (strncmp(ref, at[i], strlen(at[i])) == 0)
            return json_object_get(json_object_get(root, members[i]), ref + strlen(at[i]));
    return NULL;
}

static uint32_t types_of(const json_t *root, const json_t *s, uint32_t depth, uint32_t *work) {
    static const char *const any[] = {"anyOf", "oneOf"};
    uint32_t types = SL_JSON_ANY;
    if (!json_is_object(s) || depth > MAX_DEPTH || ++*work > MAX_WORK)
        return SL_JSON_ANY;
    const char *ref = json_string_value(json_object_get(s, "$ref"));
    if (ref)
        types &= types_of(root, referred(root, ref), depth + 1, work);
    const json_t *type = json_object_get(s, "type");
    uint32_t listed = json_array_size(type) ? 0 : SL_JSON_ANY;
    for (size_t i = 0; i < json_array_size(type) && i < 16; i++)
        listed |= named_type(json_array_get(type, i));
    types &= json_is_string(type) ? named_type(type) : listed;
    const json_t *values = json_object_get(s, "enum"), *one = json_object_get(s, "const");
    if (one)
        types &= sl_json_type_of(one);
    size_t n_values = json_array_size(values);
    uint32_t of_values = n_values && n_values <= MAX_ENUM ? 0 : SL_JSON_ANY;
    for (size_t i = 0; of_values != SL_JSON_ANY && i < n_values; i++)
        of_values |= sl_json_type_of(json_array_get(values, i));
    types &= of_values;
    for (size_t k = 0; k < 2; k++) {
        const json_t *list = json_object_get(s, any[k]);
        uint32_t of_any = json_array_size(list) ? 0 : SL_JSON_ANY;
        for (size_t i = 0; i < json_array_size(list) && i < 16; i++)
            of_any |= types_of(root, json_array_get(list, i), depth + 1, work);
        types &= of_any;
    }
    const json_t *all = json_object_get(s, "allOf");
    for (size_t i = 0; i < json_array_size(all) && i < 16; i++)
        types &= types_of(root, json_array_get(all, i), depth + 1, work);
    return types ? types : SL_JSON_ANY;
}

uint32_t sl_json_types(const json_t *root, const json_t *schema) {
    uint32_t work = 0;
    return types_of(root, schema, 0, &work);
}
