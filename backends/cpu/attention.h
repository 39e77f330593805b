/* Attention over paged KV.
 *
 * The definition, which every path and instruction set keeps to the bit:
 *  - K and V are converted to f32 (exact for both types: binary16 fits, and q8_0's d * q has 18
 *    significant bits). That costs a conversion where an integer dot product would not, but the
 *    query stays unquantised, and one set of kernels serves both types.
 *  - score s_j = (q . k_j) * scale, the dot product in 16 partial sums (cpu.h); with a soft cap
 *    then s_j = sl_softcapf(s_j).
 *  - A row's positions are cut into partitions of SL_CPU_ATTN_PART, aligned to position 0. In each:
 *    m = max s_j, p_j = exp(s_j - m), l = sum p_j in 16 partial sums by j % 16, and
 *    o[i] = fma(p_j, v_j[i], o[i]) for ascending j.
 *  - Partitions join in ascending order, from (M, L, O) = (-inf, 0, 0):
 *    N = max(M, m), a = exp(M - N), b = exp(m - N),
 *    L = fma(L, a, l * b), O = fma(O, a, o * b), M = N.
 *  - A sink joins last as m = sink, l = 1, o = 0; then y = O * (a * (1 / L)), a = 1 without a sink.
 * So a row's result depends on its own positions only, and the partitions of a long context can be
 * computed by different threads.
 *
 * Of a row that leaves positions out, those that it attends to count as 0, 1, 2, ..., in ascending
 * order.
 *
 * There are two paths with the same result: attention_rows.c computes each row alone (generated
 * rows), attention_tile.c many rows of one sequence, one per lane (prompts). */
#ifndef SL_BACKENDS_CPU_ATTENTION_H
#define SL_BACKENDS_CPU_ATTENTION_H

#include "backends/cpu/cpu_internal.h"
#include "backends/ops/attention.h"
#include "backends/ops/compress.h"
#include "backends/ops/pool.h"

/* Partitions computed between two joins: enough to keep many threads busy. */
#define SL_CPU_ATTN_SLOTS 64u
/* The most lanes of a tile. More lanes amortise the conversion of K and V better; 128 keep the
 * scores of a partition within 256 KiB. */
#define SL_CPU_ATTN_LANES 128u

/* The positions [lo, hi) that a row sees. */
static inline void sl_cpu_attn_range(const struct sl_op_attention *a, uint32_t row, uint32_t *lo,
                                     uint32_t *hi) {
    *hi = a->row_len[row];
    *lo = a->chunk                       ? (*hi - 1) / a->chunk * a->chunk
          : a->window && *hi > a->window ? *hi - a->window
                                         : 0;
}

/* The positions that rows attend to where these are chosen, in blocks of `block`, for each KV head:
 * sl_op_block_attention; sl_op_chosen_attention has blocks of one. at NULL: all of their range. */
struct sl_cpu_attn_choice {
    const uint32_t *at; /* [n_tok, n_kv_heads, n_top] ascending */
    uint32_t n_top, block;
    bool
        tail; /* sl_op_pooled_attention: at [n_tok, n_top], and behind these what is no block yet */
    const struct sl_op_compressed_attention *mixed; /* NULL, or all rows have two sources: rows of
                                                       blocks, then those of a window */
};
/* Of such a row: how many blocks it sees, and how many positions. */
static inline uint32_t sl_cpu_attn_blocks(const struct sl_op_compressed_attention *a,
                                          uint32_t row) {
    uint32_t n = a->ratio ? a->row_len[row] / a->ratio : 0;
    return a->chosen && n > a->n_top ? a->n_top : n;
}
static inline uint32_t sl_cpu_attn_window(const struct sl_op_compressed_attention *a,
                                          uint32_t row) {
    return a->row_len[row] < a->window ? a->row_len[row] : a->window;
}
/* Does the row leave out positions? */
static inline bool sl_cpu_attn_chooses(const struct sl_op_attention *a,
                                       const struct sl_cpu_attn_choice *c, uint32_t row) {
    if (c->tail)
        return a->row_len[row] / c->block > c->n_top;
    return c->mixed || (c->at && a->row_len[row] > (uint64_t)c->n_top * c->block);
}
/* To how many it attends then: only its own block, the last, need not be complete. */
static inline uint32_t sl_cpu_attn_chosen(const struct sl_op_attention *a,
                                          const struct sl_cpu_attn_choice *c, uint32_t row) {
    if (c->mixed)
        return sl_cpu_attn_blocks(c->mixed, row) + sl_cpu_attn_window(c->mixed, row);
    if (c->tail)
        return c->n_top * c->block + a->row_len[row] % c->block;
    return (c->n_top - 1) * c->block + (a->row_len[row] - 1) % c->block + 1;
}

/* A partition of a row, computed between two joins. */
struct sl_cpu_attn_item {
    uint32_t row, part;
};

/* n_rows rows from row on, of one sequence. */
struct sl_cpu_attn_rows {
    uint32_t row, n_rows;
};

/* The layout of the device's scratch. */
struct sl_cpu_attn_scratch {
    struct sl_cpu_attn_item *items;  /* [SLOTS] */
    uint32_t *row_slot;              /* [SLOTS] first slot of each row that has several */
    float *part_m, *part_l, *part_o; /* [SLOTS, n_heads], part_o times head_dim_v */
    float *state;                    /* [max_tok, n_heads, 2] M and L between joins */
    uint32_t *rows;                  /* [max_tok] rows computed alone */
    struct sl_cpu_attn_rows *tiles;  /* [max_tok] */
    char *thread;                    /* [n_threads, thread_bytes] */
    size_t thread_bytes;
    size_t k_row_bytes, v_row_bytes; /* from one position of a KV head to the next */
    struct sl_cpu_attn_choice choice;
};

void sl_cpu_attention_rows(struct sl_cpu *cpu, const struct sl_op_attention *a,
                           const uint32_t *rows, uint32_t n_rows,
                           const struct sl_cpu_attn_scratch *mem);
/* mem->tiles [n_tiles], each of at most SL_CPU_ATTN_LANES lanes (one row at least). */
void sl_cpu_attention_tiles(struct sl_cpu *cpu, const struct sl_op_attention *a, uint32_t n_tiles,
                            const struct sl_cpu_attn_scratch *mem);
/* Bytes of scratch that one thread's tiles take, and the rows of a page that it gathers. */
size_t sl_cpu_attention_tile_bytes(uint32_t max_head_dim);
size_t sl_cpu_attention_gather_bytes(uint32_t max_head_dim);

#endif
