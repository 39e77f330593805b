#include "server/request/dry.h"

#include <stdlib.h>
#include <string.h>

#define NAME "dry_sequence_breakers"

static const char *token_text(const void *ctx, uint32_t token, uint32_t *out_len) {
    struct sl_str s = sl_tokenizer_piece(ctx, token, true);
    *out_len = (uint32_t)s.len;
    return s.ptr;
}

static void add(struct sl_dry_breakers *b, const char *text, size_t len) {
    memcpy(b->breaker[b->n].bytes, text, len);
    b->breaker[b->n++].len = (uint32_t)len;
}

static bool read_breakers(const json_t *v, struct sl_dry_breakers *b, struct sl_http_error *e) {
    size_t n = json_array_size(v);
    if (!json_is_array(v))
        return sl_http_bad(e, NAME, "'" NAME "' must be an array of strings, not %s",
                           sl_json_kind(v));
    if (n > SL_DRY_MAX_BREAKERS)
        return sl_http_bad(e, NAME, "'" NAME "' has %zu strings: at most %u are allowed", n,
                           SL_DRY_MAX_BREAKERS);
    for (size_t i = 0; i < n; i++) {
        const json_t *s = json_array_get(v, i);
        size_t len = json_string_length(s);
        if (!json_is_string(s))
            return sl_http_bad(e, NAME, "'" NAME "[%zu]' must be a string, not %s", i,
                               sl_json_kind(s));
        if (!len || len > SL_DRY_MAX_BREAKER_BYTES)
            return sl_http_bad(e, NAME, "'" NAME "[%zu]' has %zu bytes; a breaker has 1 to %u", i,
                               len, SL_DRY_MAX_BREAKER_BYTES);
        add(b, json_string_value(s), len);
    }
    return true;
}

bool sl_dry_read(const json_t *body, const struct sl_tokenizer *tok, struct sl_gen_params *p,
                 struct sl_http_error *e) {
    static const char usual[] = {'\n', ':', '"', '*'};
    const json_t *v = json_object_get(body, NAME);
    bool given = v && !json_is_null(v), off = !(p->sampling.dry.multiplier > 0);
    if (!given && off)
        return true;
    struct sl_dry_breakers *b = calloc(1, sizeof *b);
    if (!b)
        return sl_http_from_status(e, SL_ERR_NOMEM, NULL);
    p->breakers = b;
    p->sampling.dry.breakers = b;
    b->text = token_text;
    b->ctx = tok;
    for (size_t i = 0; !given && i < sizeof usual; i++)
        add(b, usual + i, 1);
    return !given || read_breakers(v, b, e);
}
