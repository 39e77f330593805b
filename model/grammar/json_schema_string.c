/* Strings: lengths, patterns, formats. */
#include "model/grammar/json_schema_regex.h"

#include <string.h>

/* A pattern, or the array of several that allOf has put together. */
static enum sl_status add_all(struct sl_schema *c, const json_t *s, const char *key,
                              struct sl_rx *x, uint32_t *set) {
    const json_t *list = json_object_get(s, key);
    size_t n = json_is_array(list) ? json_array_size(list) : list ? 1 : 0;
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_is_array(list) ? json_array_get(list, i) : list;
        const char *text = json_string_value(one);
        if (!text)
            return sl_fail(c->err, SL_ERR_INVALID, "%s must be a string", key);
        if (strcmp(key, "format") == 0) {
            const char *format = text;
            text = sl_schema_format(format, c->open);
            if (!text && c->strict && !json_object_get(s, "pattern"))
                return sl_fail(c->err, SL_ERR_INVALID,
                               "format: '%.60s' is not known here, and strict is true", format);
            if (!text)
                continue;
        }
        SL_TRY(sl_schema_spend(c, 1 + strlen(text) / 64));
        *set = sl_rx_and(x, *set, sl_rx_pattern(x, text, strlen(text)));
        if (x->status != SL_OK)
            return x->status;
    }
    return SL_OK;
}

/* What json_schema_not.c has excluded. */
static enum sl_status keep_out(struct sl_schema *c, const json_t *s, struct sl_rx *x,
                               uint32_t *set) {
    const json_t *lists = json_object_get(s, SL_SCHEMA_NOT_ENUM);
    const json_t *patterns = json_object_get(s, SL_SCHEMA_NOT_PATTERN);
    uint32_t out = SL_RX_NONE;
    enum sl_status status = SL_OK;
    for (size_t i = 0; i < json_array_size(lists); i++)
        for (size_t k = 0; status == SL_OK && k < json_array_size(json_array_get(lists, i)); k++) {
            const char *text = json_string_value(json_array_get(json_array_get(lists, i), k));
            if (text)
                out = sl_rx_alt(x, out, sl_rx_text(x, text));
            status = sl_schema_spend(c, 1);
        }
    for (size_t i = 0; status == SL_OK && i < json_array_size(patterns); i++) {
        const char *text = json_string_value(json_array_get(patterns, i));
        if (text)
            out = sl_rx_alt(x, out, sl_rx_pattern(x, text, strlen(text)));
        status = sl_schema_spend(c, 1);
    }
    *set = sl_rx_and(x, *set, sl_rx_not(x, out));
    return status == SL_OK ? x->status : status;
}

enum sl_status sl_schema_strings(struct sl_schema *c, const json_t *s, struct sl_rx *x,
                                 uint32_t *out_set) {
    uint32_t least, most, set = SL_RX_ANY;
    SL_TRY(sl_schema_counts(c, s, "minLength", "maxLength", &least, &most));
    SL_TRY(add_all(c, s, "pattern", x, &set));
    SL_TRY(add_all(c, s, "format", x, &set));
    SL_TRY(keep_out(c, s, x, &set));
    const struct sl_rx_node *n = &x->nodes[set];
    if (!n->direct || n->min_len < least || n->max_len > most)
        set = sl_rx_and(x, set, sl_rx_lengths(x, least, most));
    *out_set = set;
    return x->status;
}

enum sl_status sl_schema_put_string(struct sl_schema *c, const json_t *s, struct sl_buf *b) {
    struct sl_rx x;
    uint32_t set;
    sl_rx_init(&x, c->err);
    enum sl_status status = x.status;
    if (status == SL_OK)
        status = sl_schema_strings(c, s, &x, &set);
    sl_buf_puts(b, "\"\\\"\"");
    if (status == SL_OK)
        status = sl_rx_put(c, &x, set, b);
    c->steps += x.steps / 16;
    if (status == SL_OK)
        status = sl_schema_spend(c, 0);
    sl_rx_release(&x);
    return status;
}
