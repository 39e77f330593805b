/* Where ops that go through the rows of sequences find their states and leave them. */
#ifndef SL_BACKENDS_CPU_STATE_H
#define SL_BACKENDS_CPU_STATE_H

#include "backends/ops/kv.h"
#include "backends/ops/recurrent.h"

/* Does row t go on from the row before it in the call? */
static inline bool sl_cpu_follows(const struct sl_state_view *s, uint32_t t) {
    return t && s->row_seq[t] == s->row_seq[t - 1] && s->row_len[t] == s->row_len[t - 1] + 1;
}

static inline void *sl_cpu_state_behind(const struct sl_state_view *s, uint32_t t) {
    return (char *)s->pages + (size_t)(s->slot[t] / SL_KV_PAGE_TOKENS) * s->page_bytes;
}

/* The page of the state before row t; NULL: t is the first position. */
static inline const void *sl_cpu_state_before(const struct sl_state_view *s, uint32_t t) {
    uint32_t len = s->row_len[t];
    if (sl_cpu_follows(s, t))
        return sl_cpu_state_behind(s, t - 1);
    if (len < 2)
        return NULL;
    size_t page =
        s->page_table[(size_t)s->row_seq[t] * s->max_pages + (len - 2) / SL_KV_PAGE_TOKENS];
    return (const char *)s->pages + page * s->page_bytes;
}

/* Is the state behind row t kept: does the next row belong to another page, or to another sequence?
 */
static inline bool sl_cpu_is_kept(const struct sl_state_view *s, uint32_t t, uint32_t n_tok) {
    return t + 1 == n_tok || !sl_cpu_follows(s, t + 1) ||
           s->slot[t] / SL_KV_PAGE_TOKENS != s->slot[t + 1] / SL_KV_PAGE_TOKENS;
}

#endif
