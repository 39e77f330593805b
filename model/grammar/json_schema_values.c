/* enum and const: the values written out. */
#include "model/grammar/json_schema_regex.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Behind a whole number in a value's text: it may be written with a point and zeros. Not in JSON.
 */
#define WHOLE "\001"

/* The shortest digits that give a number back. */
static void put_real(struct sl_buf *b, double v) {
    char text[40];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v)
            break;
    }
    sl_buf_puts(b, text);
    sl_buf_puts(b, text[strspn(text, "-0123456789")] ? "" : WHOLE);
}

/* A value's text as a grammar. */
static void put_literal(struct sl_schema *c, struct sl_buf *b, const char *text, size_t len) {
    while (len) {
        const char *whole = memchr(text, *WHOLE, len);
        size_t n = whole ? (size_t)(whole - text) : len;
        sl_schema_literal(b, text, n);
        if (whole && c->open)
            sl_buf_puts(b, " (\".\" \"0\"{1,15})?");
        sl_buf_puts(b, whole && n + 1 < len ? " " : "");
        text += n + (whole != NULL);
        len -= n + (whole != NULL);
    }
}

static void put_value(struct sl_buf *b, const json_t *v, uint32_t depth) {
    const char *key;
    json_t *x;
    size_t i;
    long long whole;
    bool first = true;
    if (depth > SL_SCHEMA_MAX_DEPTH)
        b->failed = true;
    switch (b->failed ? JSON_NULL : json_typeof(v)) {
    case JSON_OBJECT:
        sl_buf_puts(b, "{");
        json_object_foreach((json_t *)v, key, x) {
            sl_buf_puts(b, first ? "" : ",");
            sl_buf_json_text(b, key);
            sl_buf_puts(b, ":");
            put_value(b, x, depth + 1);
            first = false;
        }
        sl_buf_puts(b, "}");
        break;
    case JSON_ARRAY:
        sl_buf_puts(b, "[");
        json_array_foreach((json_t *)v, i, x) {
            sl_buf_puts(b, i ? "," : "");
            put_value(b, x, depth + 1);
        }
        sl_buf_puts(b, "]");
        break;
    case JSON_STRING:
        sl_buf_json(b, json_string_value(v), json_string_length(v));
        break;
    case JSON_INTEGER:
        whole = json_integer_value(v);
        sl_buf_printf(b, "%lld", whole);
        if (whole >= -SL_SCHEMA_EXACT && whole <= SL_SCHEMA_EXACT) /* the least has no absolute */
            sl_buf_puts(b, WHOLE);
        break;
    case JSON_REAL:
        put_real(b, json_real_value(v));
        break;
    default:
        sl_buf_puts(b, json_is_true(v) ? "true" : json_is_false(v) ? "false" : "null");
    }
}

/* Does a value keep to what stands beside enum or const? */
static bool admits(const json_t *s, unsigned types, struct sl_rx *rx, uint32_t strings,
                   const json_t *v) {
    const json_t *b;
    if (!(sl_schema_type_of(v) & types))
        return false;
    if (json_is_number(v)) {
        static const struct {
            const char *key, *open_key;
            int sign;
        } bounds[] = {{"minimum", "exclusiveMinimum", 1}, {"maximum", "exclusiveMaximum", -1}};
        for (size_t i = 0; i < 2; i++) {
            const json_t *open = json_object_get(s, bounds[i].open_key);
            long double x = sl_schema_value(v) * bounds[i].sign;
            if ((b = json_object_get(s, bounds[i].key))) {
                long double at = sl_schema_value(b) * bounds[i].sign;
                if (x < at || (x == at && json_is_true(open))) /* true: draft 4 */
                    return false;
            }
            if (json_is_number(open) && x <= sl_schema_value(open) * bounds[i].sign)
                return false;
        }
        return true;
    }
    return !json_is_string(v) || sl_rx_has(rx, strings, json_string_value(v));
}

enum sl_status sl_schema_put_values(struct sl_schema *c, const json_t *s, const json_t *values,
                                    unsigned types, struct sl_buf *b) {
    if (!json_is_array(values))
        return sl_fail(c->err, SL_ERR_INVALID, "enum must be an array");
    if (json_array_size(values) > SL_SCHEMA_MAX_ENUM)
        return sl_fail(c->err, SL_ERR_INVALID, "enum: at most %u values are supported",
                       SL_SCHEMA_MAX_ENUM);
    enum sl_status status = sl_schema_check_with_values(c, s, types);
    bool any = false;
    struct sl_rx x;
    uint32_t strings = SL_RX_ANY;
    sl_rx_init(&x, c->err);
    if (status == SL_OK)
        status = x.status;
    if (status == SL_OK && (types & SL_TYPE_STRING))
        status = sl_schema_strings(c, s, &x, &strings);
    for (size_t i = 0; status == SL_OK && i < json_array_size(values); i++) {
        const json_t *v = json_array_get(values, i);
        if (!admits(s, types, &x, strings, v)) {
            status = x.status;
            continue;
        }
        struct sl_buf text = {0};
        put_value(&text, v, 0);
        if (text.failed)
            status = sl_fail(c->err, SL_ERR_INVALID, "enum: a value is nested too deep");
        sl_buf_puts(b, any ? " | " : "");
        if (status == SL_OK)
            put_literal(c, b, text.ptr, text.len);
        sl_buf_release(&text);
        any = true;
    }
    sl_rx_release(&x);
    if (status == SL_OK && !any)
        return SL_SCHEMA_NOTHING(c, "enum: the keywords beside it allow none of its values");
    return status;
}
