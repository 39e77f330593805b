/* sl_op_head_matmul. The unit of work is (head, some of its rows of output, some tokens): each
 * thread quantises the tokens' inputs of that head itself, as they are few beside the weights that
 * they meet. */
#include "backends/cpu/cpu_internal.h"
#include "backends/cpu/matmul.h"
#include "backends/ops/matmul.h"

#include <string.h>

/* Tokens of a unit, at most: what many() takes at once. */
#define TOKENS (SL_MM_TILES * SL_MM_TILE)
/* Tokens of a unit whose outputs stay in the first cache while rows of weights are added to them.
 */
#define TOKENS_TRANSPOSED 8u

struct thread_scratch {
    float out[SL_MM_OUT];
    float vec[SL_MM_CHUNK_MAX];
    const float *rows[TOKENS];
};

/* The panel, a tile's rows before packing, and all tokens' rows; or, transposed, a row of weights.
 */
static size_t thread_bytes(uint32_t n) {
    return sl_mm_round_64(sizeof(struct thread_scratch)) + SL_MM_PANEL_BYTES +
           (size_t)(SL_MM_TILE + TOKENS) * sl_mm_round_64(sl_qx_row_bytes(n)) +
           sl_mm_round_64(n * sizeof(float));
}

uint64_t sl_cpu_head_matmul_scratch_bytes(const struct sl_device_limits *limits,
                                          uint32_t n_threads) {
    return limits->max_head_n ? n_threads * (uint64_t)thread_bytes(limits->max_head_n) : 0;
}

struct run {
    const struct sl_op_head_matmul *a;
    const struct sl_mm_kernels *k;
    const struct sl_cpu *cpu;
    size_t thread_bytes;
    uint32_t n_parts, part_rows;     /* of a head's output */
    uint32_t n_groups, group_tokens; /* of tokens */
    bool tiled;
};

static const float *in_row(const struct run *r, uint32_t t, uint32_t head) {
    return r->a->x + ((size_t)t * r->a->n_heads + head) * r->a->stride_x;
}

static float *out_row(const struct run *r, uint32_t t, uint32_t head) {
    return r->a->y + ((size_t)t * r->a->n_heads + head) * r->a->stride_y;
}

/* Tokens [t0, t0 + n) of a head, as vec() or many() want them. */
static const void *inputs(const struct run *r, uint32_t head, uint32_t t0, uint32_t n,
                          struct thread_scratch *s, uint8_t *q) {
    enum sl_x_kind kind = sl_x_kind(r->a->dtype);
    size_t row_bytes = sl_qx_row_bytes(r->a->n_in);
    for (uint32_t t = 0; t < n; t++)
        s->rows[t] = in_row(r, t0 + t, head);
    if (kind == SL_X_F32)
        return s->rows;
    if (!r->tiled) {
        for (uint32_t t = 0; t < n; t++)
            r->k->quantize[kind](s->rows[t], r->a->n_in,
                                 (struct sl_qx *)(void *)(q + t * row_bytes));
        return q;
    }
    struct sl_qx *rows = (struct sl_qx *)(void *)(q + TOKENS * sl_mm_round_64(row_bytes));
    const struct sl_qx *list[SL_MM_TILE];
    for (uint32_t i = 0; i < sl_mm_n_tiles(n); i++) {
        uint32_t begin = sl_mm_tile_start(n, i), m = sl_mm_tile_start(n, i + 1) - begin;
        for (uint32_t t = 0; t < m; t++) {
            struct sl_qx *row = rows + t * sl_qx_blocks(r->a->n_in);
            r->k->quantize[kind](s->rows[begin + t], r->a->n_in, row);
            list[t] = row;
        }
        r->k->pack[kind](list, m, r->a->n_in, q + begin * row_bytes);
    }
    return q;
}

static void products(const struct run *r, uint32_t head, uint32_t o0, uint32_t n_out, uint32_t t0,
                     uint32_t n, uint8_t *own) {
    const struct sl_op_head_matmul *a = r->a;
    struct thread_scratch *s = (struct thread_scratch *)(void *)own;
    uint8_t *panel = own + sl_mm_round_64(sizeof *s);
    const void *x = inputs(r, head, t0, n, s, panel + SL_MM_PANEL_BYTES);
    struct sl_mm_rows w = {
        .row_bytes = sl_dtype_row_bytes(a->dtype, a->n_in), .n_in = a->n_in, .dtype = a->dtype};
    const uint8_t *head_w = (const uint8_t *)a->w + head * a->head_bytes;
    if (!r->tiled) {
        bool plain = sl_x_kind(a->dtype) == SL_X_F32;
        w.data = head_w + o0 * w.row_bytes;
        w.n_rows = n_out;
        for (uint32_t t = 0; t < n; t++) {
            const void *row = plain ? (const void *)s->rows[t]
                                    : (const uint8_t *)x + t * sl_qx_row_bytes(a->n_in);
            r->k->vec[a->dtype](&w, row, s->vec);
            memcpy(out_row(r, t0 + t, head) + o0, s->vec, n_out * sizeof *s->vec);
        }
        return;
    }
    for (uint32_t o = o0; o < o0 + n_out; o += SL_MM_PANEL) {
        w.data = head_w + o * w.row_bytes;
        w.n_rows = o0 + n_out - o < SL_MM_PANEL ? o0 + n_out - o : SL_MM_PANEL;
        r->k->many[a->dtype](&w, x, n, 0, sl_mm_n_tiles(n), panel, s->out);
        for (uint32_t t = 0; t < n; t++)
            memcpy(out_row(r, t0 + t, head) + o, s->out + t * SL_MM_PANEL,
                   w.n_rows * sizeof *s->out);
    }
}

static void transposed(const struct run *r, uint32_t head, uint32_t t0, uint32_t n, uint8_t *own) {
    const struct sl_op_head_matmul *a = r->a;
    size_t row_bytes = sl_dtype_row_bytes(a->dtype, a->n_out);
    const uint8_t *w = (const uint8_t *)a->w + head * a->head_bytes;
    float *row = (float *)(void *)own;
    for (uint32_t t = t0; t < t0 + n; t++)
        memset(out_row(r, t, head), 0, a->n_out * sizeof(float));
    for (uint32_t i = 0; i < a->n_in; i++) {
        sl_dequantize_row(a->dtype, w + i * row_bytes, a->n_out, row);
        for (uint32_t t = t0; t < t0 + n; t++)
            r->cpu->k.add_scaled(row, in_row(r, t, head)[i], out_row(r, t, head), a->n_out);
    }
}

static void unit(const struct run *r, uint32_t c, uint8_t *own) {
    const struct sl_op_head_matmul *a = r->a;
    uint32_t part = c % r->n_parts, head = c / r->n_parts % a->n_heads;
    uint32_t t0 = c / r->n_parts / a->n_heads * r->group_tokens;
    uint32_t n = a->n_tok - t0 < r->group_tokens ? a->n_tok - t0 : r->group_tokens;
    uint32_t o0 = part * r->part_rows;
    if (a->transposed)
        transposed(r, head, t0, n, own);
    else
        products(r, head, o0, a->n_out - o0 < r->part_rows ? a->n_out - o0 : r->part_rows, t0, n,
                 own);
    for (uint32_t t = t0; part == 0 && a->n_keep && t < t0 + n; t++)
        memcpy(out_row(r, t, head) + a->n_out, in_row(r, t, head) + a->n_in,
               a->n_keep * sizeof(float));
}

static void run_thread(void *ctx, uint32_t thread, uint32_t n_threads) {
    (void)n_threads;
    const struct run *r = ctx;
    uint8_t *own = (uint8_t *)r->cpu->scratch + thread * r->thread_bytes;
    uint32_t n = r->n_parts * r->a->n_heads * r->n_groups;
    for (uint32_t c; (c = sl_pool_next(r->cpu->pool, n)) != UINT32_MAX;)
        unit(r, c, own);
}

enum sl_status sl_cpu_head_matmul(struct sl_device *d, const struct sl_op_head_matmul *a) {
    struct sl_cpu *cpu = (struct sl_cpu *)d;
    struct run r = {.a = a, .k = sl_mm_kernels(cpu->isa), .cpu = cpu};
    r.thread_bytes = thread_bytes(d->limits.max_head_n);
    r.tiled = !a->transposed && a->n_tok >= r.k->tile_min;
    /* A head's weights go by once for each group of tokens. */
    r.group_tokens = a->transposed ? TOKENS_TRANSPOSED : TOKENS;
    r.n_groups = (a->n_tok + r.group_tokens - 1) / r.group_tokens;
    r.part_rows = a->transposed || (r.tiled && a->n_heads >= sl_pool_n_threads(cpu->pool))
                      ? a->n_out
                      : SL_MM_CHUNK_MAX;
    r.n_parts = (a->n_out + r.part_rows - 1) / r.part_rows;
    sl_pool_run(cpu->pool, run_thread, &r);
    return SL_OK;
}
