/* Of which types a schema's values are, and which values enum and const list. */
#include "model/grammar/json_schema_internal.h"

#include <math.h>
#include <string.h>

/* Number before integer, which is a part of it. */
static const struct {
    const char *name;
    unsigned types;
} type_names[] = {{"null", SL_TYPE_NULL},
                  {"boolean", SL_TYPE_BOOLEAN},
                  {"number", SL_TYPE_INTEGER | SL_TYPE_FRACTION},
                  {"integer", SL_TYPE_INTEGER},
                  {"string", SL_TYPE_STRING},
                  {"array", SL_TYPE_ARRAY},
                  {"object", SL_TYPE_OBJECT}};

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

static unsigned types_named(const char *name) {
    for (size_t i = 0; name && i < sizeof type_names / sizeof *type_names; i++)
        if (strcmp(name, type_names[i].name) == 0)
            return type_names[i].types;
    return 0;
}

json_t *sl_schema_type_names(unsigned types) {
    json_t *out = json_array();
    for (size_t i = 0; out && i < sizeof type_names / sizeof *type_names; i++)
        if ((types & type_names[i].types) == type_names[i].types) {
            json_array_append_new(out, json_string(type_names[i].name));
            types &= ~type_names[i].types;
        }
    return out;
}

const json_t *sl_schema_values(const json_t *s, json_t **out_new) {
    const json_t *v = json_object_get(s, "const");
    *out_new = NULL;
    if (v) {
        const json_t *list = json_object_get(s, "enum"), *one;
        bool listed = !json_is_array(list);
        size_t i;
        json_array_foreach((json_t *)list, i, one) listed = listed || json_equal(one, v);
        *out_new = json_array();
        if (*out_new && listed && json_array_append(*out_new, (json_t *)v) != 0) {
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
    SL_TRY(sl_schema_spend(c, n / 8));
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_is_array(t) ? json_array_get(t, i) : t;
        unsigned type = types_named(json_string_value(one));
        if (!type)
            return sl_fail(c->err, SL_ERR_INVALID,
                           "type must be null, boolean, integer, number, string, array, object, or "
                           "an array of them");
        types |= type;
    }
    json_t *own;
    const json_t *values = sl_schema_values(s, &own), *v;
    enum sl_status status = SL_OK;
    if (json_is_array(values)) {
        unsigned of_values = 0;
        size_t i;
        status = sl_schema_spend(c, json_array_size(values) / 8);
        if (status == SL_OK)
            json_array_foreach(values, i, v) of_values |= sl_schema_type_of(v);
        types &= of_values;
    }
    json_decref(own);
    *out_types = types;
    return status;
}
