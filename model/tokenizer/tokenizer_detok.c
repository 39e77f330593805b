/* Streaming detokenisation: token pieces are bytes, and what comes out is always whole, well-formed
 * UTF-8. Bytes that cannot become a character are replaced by U+FFFD, one for each maximal
 * ill-formed part (Unicode 3.9, "Constraints on Conversion"), as Python's decoder does. */
#include "model/tokenizer/tokenizer_internal.h"
#include "common/utf8.h"

#include <stdlib.h>
#include <string.h>

/* How many bytes at s belong together: a character (*ok), an ill-formed part (!*ok), or 0 when they
 * are the start of a character that may still come. */
static uint32_t next_part(const unsigned char *s, size_t n, bool *ok) {
    uint32_t len = sl_utf8_len(s, n);
    *ok = len > 0;
    if (len)
        return len;
    /* The longest start of some character: try its bytes with the most permissive tail. */
    uint32_t want = s[0] < 0xc2 || s[0] > 0xf4 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    if (want == 0)
        return 1;
    for (uint32_t have = 1; have < want; have++) {
        if (have == n)
            return 0;
        unsigned char filled[4] = {s[0], s[1], 0x80, 0x80};
        if (have >= 2)
            filled[2] = s[2];
        if (have >= 3)
            filled[3] = s[3];
        if (sl_utf8_len(filled, want) == 0)
            return have;
    }
    return 1; /* not reached: all bytes fit, so the character was whole */
}

static enum sl_status reserve(struct sl_detok *d, size_t n) {
    if (n <= d->cap)
        return SL_OK;
    char *buf = realloc(d->buf, n + 64);
    if (!buf)
        return SL_ERR_NOMEM;
    d->buf = buf;
    d->cap = n + 64;
    return SL_OK;
}

enum sl_status sl_detok_push(struct sl_detok *d, const struct sl_tokenizer *tok, uint32_t id,
                             bool special, struct sl_str *out) {
    struct sl_str piece = sl_tokenizer_piece(tok, id, special);
    *out = (struct sl_str){"", 0};
    if (piece.len == 0)
        return SL_OK;
    if (!d->started && tok->add_space_prefix && piece.ptr[0] == ' ') {
        piece.ptr++;
        piece.len--;
    }
    d->started = true;
    if (piece.len == 0)
        return SL_OK;
    /* Each byte grows to three at most; the pieces themselves go behind that room. */
    size_t n_in = d->n_pending + piece.len, room = 3 * n_in;
    SL_TRY(reserve(d, room + n_in));
    unsigned char *in = (unsigned char *)d->buf + room;
    memcpy(in, d->pending, d->n_pending);
    memcpy(in + d->n_pending, piece.ptr, piece.len);
    size_t n = 0, i = 0;
    while (i < n_in) {
        bool ok;
        uint32_t len = next_part(in + i, n_in - i, &ok);
        if (len == 0)
            break;
        if (ok)
            memcpy(d->buf + n, in + i, len);
        else
            memcpy(d->buf + n, "\xef\xbf\xbd", 3);
        n += ok ? len : 3;
        i += len;
    }
    d->n_pending = (uint32_t)(n_in - i);
    memcpy(d->pending, in + i, d->n_pending);
    *out = (struct sl_str){d->buf, n};
    return SL_OK;
}

enum sl_status sl_detok_finish(struct sl_detok *d, struct sl_str *out) {
    *out = d->n_pending ? (struct sl_str){"\xef\xbf\xbd", 3} : (struct sl_str){"", 0};
    d->n_pending = 0;
    d->started = false;
    return SL_OK;
}

void sl_detok_release(struct sl_detok *d) {
    free(d->buf);
    *d = (struct sl_detok){0};
}
