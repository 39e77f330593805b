/* Where the state of a sequence is that every row replaces, and which rows go on from one another.
 *
 * Whatever rows come in one call, a row's operations are the same in the same order: rows go one by
 * one, and how a sum is split depends on the width alone. */
#ifndef SL_BACKENDS_KERNELS_STATE_CUH
#define SL_BACKENDS_KERNELS_STATE_CUH

#include "backends/kernels/device.cuh"
#include "backends/kernels/recurrent.h"

#define SL_STATE_PAGE 64u

/* Does row t go on from the row before it in the call? */
__device__ __forceinline__ bool sl_state_follows(const struct sl_karg_state &s, uint32_t t) {
    return t && s.row_seq[t] == s.row_seq[t - 1] && s.row_len[t] == s.row_len[t - 1] + 1;
}
/* The state before row t, which goes on from none in the call; NULL: t is the first position. */
__device__ __forceinline__ const float *sl_state_before(const struct sl_karg_state &s, uint32_t t) {
    uint32_t len = s.row_len[t];
    if (len < 2)
        return NULL;
    size_t page = s.page_table[(size_t)s.row_seq[t] * s.max_pages + (len - 2) / SL_STATE_PAGE];
    return (const float *)((const char *)s.pages + page * s.page_bytes);
}
__device__ __forceinline__ float *sl_state_behind(const struct sl_karg_state &s, uint32_t t) {
    return (float *)((char *)s.pages + (size_t)(s.slot[t] / SL_STATE_PAGE) * s.page_bytes);
}
/* The last row of t's sequence in this call that writes t's page. Rows of a sequence follow one
 * another, so that row t + n is the n-th behind row t if its length says so. Pages of 64 rows may
 * be one and the same, where only the state behind the last of them is kept; and rows of 64
 * positions may each have a page. */
__device__ __forceinline__ uint32_t sl_state_last_in_page(const struct sl_karg_state &s,
                                                          uint32_t t) {
    uint32_t page = s.slot[t] / SL_STATE_PAGE, n = SL_STATE_PAGE - 1 - s.slot[t] % SL_STATE_PAGE;
    while (t + n + 1 < s.n_tok && s.row_seq[t + n + 1] == s.row_seq[t] &&
           s.row_len[t + n + 1] == s.row_len[t] + n + 1 &&
           s.slot[t + n + 1] / SL_STATE_PAGE == page)
        n += SL_STATE_PAGE;
    while (t + n >= s.n_tok || s.row_seq[t + n] != s.row_seq[t] ||
           s.row_len[t + n] != s.row_len[t] + n || s.slot[t + n] / SL_STATE_PAGE != page)
        n--;
    return t + n;
}

/* The rows of the call as a warp goes through them, so many at a time, one a lane. A lane loads
 * what it has to know of its next row while the rows before are worked on. Of n_z blocks, block z
 * has the sequence that row z begins, if n_z is the number of rows, else every n_z-th sequence. */
struct sl_state_rows {
    uint32_t at, end, runs, z, n_z;
    /* Of row at + lane: */
    uint32_t seq, len, slot, seq_before, len_before, seq_behind, len_behind, slot_behind;
    /* Of the row that the lane had at the last next(): */
    uint32_t t, all; /* all: a bit for each lane whose row is this block's */
    bool mine, first;
    const float *from; /* the state before it, where it is a sequence's first in the call and not
                          its first of all */
    float *to;         /* where the state behind it is kept; NULL: the row behind it replaces it */

    __device__ __forceinline__ uint32_t row(const struct sl_karg_state &s) const {
        return min(at + threadIdx.x % SL_WARP, s.n_tok - 1);
    }
    __device__ __forceinline__ void look(const struct sl_karg_state &s) {
        uint32_t i = row(s), before = i ? i - 1 : 0, behind = min(i + 1, s.n_tok - 1);
        seq = s.row_seq[i], len = s.row_len[i], slot = s.slot[i];
        seq_before = s.row_seq[before], len_before = s.row_len[before];
        seq_behind = s.row_seq[behind], len_behind = s.row_len[behind];
        slot_behind = s.slot[behind];
    }
    __device__ __forceinline__ void begin(const struct sl_karg_state &s, uint32_t block,
                                          uint32_t n_blocks) {
        z = block, n_z = n_blocks;
        at = n_z == s.n_tok ? z : 0;
        end = s.n_tok;
        runs = 0;
        look(s);
    }
    /* Of the next n rows at most, n up to 32: how many are this block's; `at` and what has been
     * loaded stay until advance(). State begins in_state floats into a page. */
    __device__ __forceinline__ uint32_t next(const struct sl_karg_state &s, uint32_t n,
                                             size_t in_state) {
        uint32_t lane = threadIdx.x % SL_WARP;
        t = at + lane;
        bool in = lane < n && t < end;
        first = in && !(t && seq == seq_before && len == len_before + 1);
        bool last = t + 1 == s.n_tok || seq_behind != seq || len_behind != len + 1 ||
                    slot / SL_STATE_PAGE != slot_behind / SL_STATE_PAGE;
        uint32_t firsts = sl_ballot(first);
        uint32_t run = runs + (uint32_t)__popc(firsts & (0xffffffffu >> (SL_WARP - 1 - lane)));
        mine = in && (n_z == s.n_tok ? run == 1 : (run - 1) % n_z == z);
        all = sl_ballot(mine);
        runs += (uint32_t)__popc(firsts);
        from = NULL;
        if (mine && first && len > 1)
            from = (const float *)((const char *)s.pages + s.page_table[(size_t)seq * s.max_pages +
                                                                        (len - 2) / SL_STATE_PAGE] *
                                                               (size_t)s.page_bytes) +
                   in_state;
        to = last ? (float *)((char *)s.pages + slot / SL_STATE_PAGE * (size_t)s.page_bytes) +
                        in_state
                  : NULL;
        return (uint32_t)__popc(all);
    }
    /* Which of the block's rows the lane has. */
    __device__ __forceinline__ uint32_t place() const {
        return (uint32_t)__popc(all & ((1u << threadIdx.x % SL_WARP) - 1));
    }
    __device__ __forceinline__ void advance(const struct sl_karg_state &s, uint32_t n) {
        at += n;
        look(s);
    }
};

#endif
