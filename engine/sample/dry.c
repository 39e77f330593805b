#include "engine/sample/dry.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum sl_status sl_dry_check(const struct sl_dry *d, struct sl_err *err) {
    if (!(d->multiplier >= 0) || !isfinite(d->multiplier))
        return sl_fail(err, SL_ERR_INVALID, "dry_multiplier must be a number from 0 up");
    if (!sl_dry_is_on(d))
        return SL_OK;
    if (!(d->base >= 1) || !isfinite(d->base))
        return sl_fail(err, SL_ERR_INVALID, "dry_base must be a number from 1 up");
    if (d->allowed_length > SL_DRY_MAX_LENGTH)
        return sl_fail(err, SL_ERR_INVALID, "dry_allowed_length must be at most %u",
                       SL_DRY_MAX_LENGTH);
    if (d->breakers && d->breakers->n > SL_DRY_MAX_BREAKERS)
        return sl_fail(err, SL_ERR_INVALID, "dry_sequence_breakers: at most %u",
                       SL_DRY_MAX_BREAKERS);
    for (uint32_t i = 0; d->breakers && i < d->breakers->n; i++)
        if (!d->breakers->breaker[i].len || d->breakers->breaker[i].len > SL_DRY_MAX_BREAKER_BYTES)
            return sl_fail(err, SL_ERR_INVALID, "dry_sequence_breakers: each has 1 to %u bytes",
                           SL_DRY_MAX_BREAKER_BYTES);
    return SL_OK;
}

/* ---- breakers ---- */

/* Which bytes some breaker ends with. */
struct last_bytes {
    uint64_t bit[4];
};

static struct last_bytes last_bytes(const struct sl_dry_breakers *b) {
    struct last_bytes l = {{0}};
    for (uint32_t i = 0; i < b->n; i++) {
        unsigned char c = (unsigned char)b->breaker[i].bytes[b->breaker[i].len - 1];
        l.bit[c / 64] |= (uint64_t)1 << c % 64;
    }
    return l;
}

/* Does breaker i end with byte `at` of token h[k]'s text? Its beginning may lie in tokens before,
 * as far as h[0]. */
static bool ends_at(const struct sl_dry_breakers *b, uint32_t i, const uint32_t *h, uint32_t k,
                    const char *text, uint32_t at) {
    uint32_t left = b->breaker[i].len, n_tokens = left;
    const char *want = b->breaker[i].bytes;
    for (uint32_t n = at + 1;;) {
        uint32_t m = n < left ? n : left;
        if (memcmp(want + left - m, text + n - m, m) != 0)
            return false;
        left -= m;
        if (!left)
            return true;
        if (!k || !--n_tokens)
            return false;
        text = b->text(b->ctx, h[--k], &n);
    }
}

/* Does a breaker end within token h[k]? */
static bool ends_in(const struct sl_dry_breakers *b, const struct last_bytes *last,
                    const uint32_t *h, uint32_t k) {
    uint32_t len;
    const char *text = b->text(b->ctx, h[k], &len);
    for (uint32_t at = 0; at < len; at++) {
        unsigned char c = (unsigned char)text[at];
        if (!(last->bit[c / 64] >> c % 64 & 1))
            continue;
        for (uint32_t i = 0; i < b->n; i++)
            if (ends_at(b, i, h, k, text, at))
                return true;
    }
    return false;
}

/* How many tokens stand behind the last one in which a breaker ends, up to `most`. start: of h in
 * the whole history. */
static uint32_t n_behind(const struct sl_dry_breakers *b, const struct last_bytes *last,
                         const uint32_t *h, uint32_t n, uint32_t most, uint32_t start,
                         struct sl_dry_clear *clear) {
    uint32_t end = start + n, at = end, least = end - most;
    while (at > least) {
        if (at <= clear->to && at > clear->from)
            at = clear->from;
        else if (ends_in(b, last, h, at - 1 - start))
            break;
        else
            at--;
    }
    clear->from = at <= clear->to && clear->from < at ? clear->from : at;
    clear->to = end;
    return end - (at > least ? at : least);
}

/* ---- repetitions ---- */

/* Notes that t has followed n tokens of the suffix; count is n + 1, the largest of a token. */
static uint32_t note(uint32_t *count, uint32_t *ids, uint32_t n_ids, uint32_t t, uint32_t n) {
    if (!count[t])
        ids[n_ids++] = t;
    if (count[t] < n + 1)
        count[t] = n + 1;
    return n_ids;
}

/* The tokens with n >= d->allowed_length, breakers aside. z: see dry.h. */
static uint32_t find_repeats(const struct sl_dry *d, const uint32_t *h, uint32_t n_h, uint32_t *z,
                             uint32_t *count, uint32_t *ids) {
    const uint32_t *end = h + n_h - 1; /* end[-i]: the history from its end */
    uint32_t most = n_h - 1 < SL_DRY_MAX_LENGTH ? n_h - 1 : SL_DRY_MAX_LENGTH, n_ids = 0;
    /* The window that reaches furthest: [from, to) is equal to the first to - from tokens. */
    uint32_t from = 0, to = 0;
    for (uint32_t k = 1; k < n_h; k++) {
        uint32_t n = 0;
        if (k < to)
            n = z[k - from] < to - k ? z[k - from] : to - k;
        while (n < most && k + n < n_h && *(end - n) == *(end - k - n))
            n++;
        if (k < SL_DRY_MAX_LENGTH)
            z[k] = n;
        if (k + n > to) {
            from = k;
            to = k + n;
        }
        if (n >= d->allowed_length)
            n_ids = note(count, ids, n_ids, *(end - k + 1), n);
    }
    return n_ids;
}

static float penalty(const struct sl_dry *d, uint32_t n) {
    double p = (double)d->multiplier * pow((double)d->base, (double)(n - d->allowed_length));
    return p < (double)SL_DRY_MAX_PENALTY ? (float)p : SL_DRY_MAX_PENALTY;
}

uint32_t sl_dry_find(const struct sl_dry *d, const uint32_t *history, uint32_t n_history,
                     struct sl_dry_clear *clear, uint32_t *table, uint32_t *count, uint32_t *out_id,
                     float *out_penalty) {
    const struct sl_dry_breakers *b = d->breakers && d->breakers->n ? d->breakers : NULL;
    uint32_t n_h = n_history < d->last_n ? n_history : d->last_n, longest = 0, n_out = 0;
    if (!sl_dry_is_on(d) || n_h < 2 || n_h <= d->allowed_length)
        return 0;
    assert(d->allowed_length <= SL_DRY_MAX_LENGTH);
    const uint32_t *h = history + (n_history - n_h);
    uint32_t n_ids = find_repeats(d, h, n_h, table, count, out_id);
    for (uint32_t i = 0; i < n_ids; i++)
        longest = count[out_id[i]] - 1 > longest ? count[out_id[i]] - 1 : longest;
    struct last_bytes last = b && n_ids ? last_bytes(b) : (struct last_bytes){{0}};
    uint32_t behind = longest;
    if (b && n_ids)
        behind = n_behind(b, &last, h, n_h, longest, n_history - n_h, clear);
    for (uint32_t i = 0; i < n_ids; i++) {
        uint32_t t = out_id[i], n = count[t] - 1;
        count[t] = 0;
        n = n < behind ? n : behind;
        if (n < d->allowed_length || (b && ends_in(b, &last, &t, 0)))
            continue;
        out_id[n_out] = t;
        out_penalty[n_out++] = penalty(d, n);
    }
    return n_out;
}
