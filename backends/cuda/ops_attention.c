/* sl_op_attention and sl_op_kv_write. */
#include "backends/cuda/ops_internal.h"

uint64_t sl_cuda_attention_scratch(const struct sl_device_limits *limits) {
    uint64_t rows = limits->max_tok < SL_ATTN_WAVE_ROWS ? limits->max_tok : SL_ATTN_WAVE_ROWS;
    return rows * limits->max_heads * SL_ATTN_SPLITS * SL_ATTN_PART_FLOATS(limits->max_head_dim) *
           4;
}

static struct sl_karg_kv kv_args(const struct sl_kv_view *kv) {
    return (struct sl_karg_kv){.k = kv->k,
                               .v = kv->v,
                               .k_page_bytes = kv->k_page_bytes,
                               .v_page_bytes = kv->v_page_bytes,
                               .n_kv_heads = kv->n_kv_heads,
                               .dim_k = kv->head_dim_k,
                               .dim_v = kv->head_dim_v,
                               .q8 = kv->dtype == SL_DTYPE_Q8_0};
}

enum sl_status sl_cuda_kv_write(struct sl_device *d, const struct sl_op_kv_write *a) {
    struct sl_karg_kv_write k = {.kv = kv_args(&a->kv),
                                 .k = a->k,
                                 .v = a->v,
                                 .slot = a->slot,
                                 .n_tok = a->n_tok,
                                 .stride_k = a->stride_k,
                                 .stride_v = a->stride_v};
    struct sl_dim3 grid = {a->n_tok, a->kv.n_kv_heads, 1};
    return SL_LAUNCH((struct sl_cuda *)d, SL_KERNEL_kv_write, grid, ((struct sl_dim3){64, 1, 1}), 0,
                     k);
}

/* Latents as the keys of one head, whose first elements are its values too. */
static struct sl_karg_kv latent_args(const struct sl_latent_view *kv) {
    return (struct sl_karg_kv){.k = kv->rows,
                               .v = kv->rows,
                               .k_page_bytes = kv->page_bytes,
                               .v_page_bytes = kv->page_bytes,
                               .n_kv_heads = 1,
                               .dim_k = kv->n_latent + kv->n_rot,
                               .dim_v = kv->n_latent,
                               .q8 = kv->dtype == SL_DTYPE_Q8_0};
}

enum sl_status sl_cuda_latent_write(struct sl_device *d, const struct sl_op_latent_write *a) {
    struct sl_karg_kv_write k = {.kv = latent_args(&a->kv),
                                 .k = a->x,
                                 .v = a->x,
                                 .slot = a->slot,
                                 .n_tok = a->n_tok,
                                 .stride_k = a->stride,
                                 .stride_v = a->stride};
    k.kv.dim_v = 0;
    return SL_LAUNCH((struct sl_cuda *)d, SL_KERNEL_kv_write, ((struct sl_dim3){a->n_tok, 1, 1}),
                     ((struct sl_dim3){64, 1, 1}), 0, k);
}

bool sl_cuda_takes_qkv(const struct sl_device *d, const struct sl_fused_qkv *a) {
    (void)d;
    return a->q_rope->head_dim <= SL_QKV_MAX_DIM && a->write->kv.head_dim_v <= SL_QKV_MAX_DIM &&
           a->q_rope->n_tok <= 65535;
}

enum sl_status sl_cuda_fused_qkv(struct sl_device *d, const struct sl_fused_qkv *a) {
    struct sl_cuda *c = (struct sl_cuda *)d;
    const struct sl_op_kv_write *w = a->write;
    const struct sl_op_rms_norm *qn = a->q_norm, *kn = a->k_norm;
    struct sl_karg_qkv k = {.kv = kv_args(&w->kv),
                            .q = a->q_rope->x,
                            .k = a->k_rope->x,
                            .v = w->v,
                            .q_norm = qn ? qn->w : NULL,
                            .k_norm = kn ? kn->w : NULL,
                            .table = a->q_rope->table,
                            .slot = w->slot,
                            .n_heads = a->q_rope->n_heads,
                            .dim = a->q_rope->head_dim,
                            .stride_v = w->stride_v,
                            .n_freq = a->q_rope->n_freq,
                            .neox = a->q_rope->style == SL_ROPE_NEOX,
                            .q_eps = qn ? qn->eps : -1,
                            .k_eps = kn ? kn->eps : -1};
    struct sl_dim3 grid = {sl_ceil_div(k.n_heads + 2 * w->kv.n_kv_heads, 4), w->n_tok, 1};
    return SL_LAUNCH(c, SL_KERNEL_fused_qkv, grid, ((struct sl_dim3){128, 1, 1}), 0, k);
}

/* The size class that the tensor-core kernels take such heads in (0: 64, 1: 128, 2: 256), -1: they
 * do not. */
static int head_class(enum sl_dtype kv, uint32_t dim_k, uint32_t dim_v) {
    uint32_t dim = dim_k > dim_v ? dim_k : dim_v;
    if (kv != SL_DTYPE_F16 || dim > 256 || dim_k % 8 || dim_v % 8)
        return -1;
    return dim <= 64 ? 0 : dim <= 128 ? 1 : 2;
}

/* They copy 16 bytes at a time, so rows of K and V must lie on 16-byte boundaries. All this is the
 * model's alone, so all of a model's rows go one way. */
static int dim_class(const struct sl_op_attention *a) {
    const struct sl_kv_view *kv = &a->kv;
    uintptr_t addresses =
        (uintptr_t)kv->k | (uintptr_t)kv->v | kv->k_page_bytes | kv->v_page_bytes | (uintptr_t)a->y;
    return addresses % 16 ? -1 : head_class(kv->dtype, kv->head_dim_k, kv->head_dim_v);
}

static bool split_fits(const struct sl_cuda *c, int class) {
    return class >= 0 && sl_cuda_has(c, SL_FAMILY_attention_split, (uint32_t) class) &&
           SL_ATTN_SPLIT_SMEM(64u << class) + SL_ATTN_SPLIT_STATIC_SMEM(64u << class) <=
               c->max_smem_bytes;
}

static bool tile_fits(const struct sl_cuda *c, int class) {
    return class >= 0 && sl_cuda_has(c, SL_FAMILY_attention_tile, (uint32_t) class) &&
           SL_ATTN_TILE_SMEM(64u << class) <= c->max_smem_bytes;
}

bool sl_cuda_attention_fits(const struct sl_cuda *c, const struct sl_op_need *need) {
    uint32_t dim_k = need->head_dim_k, dim_v = need->head_dim_v;
    return split_fits(c, head_class(need->dtype, dim_k, dim_v)) ||
           (dim_v <= SL_ATTN_MAX_DIM_V &&
            SL_ATTN_SMEM(dim_k, dim_k > dim_v ? dim_k : dim_v) <= c->max_smem_bytes);
}

/* How single rows go: which kernel, and whether its last block joins the parts. */
struct single {
    enum sl_kernel kernel;
    struct sl_dim3 grid; /* z: rows */
    uint32_t smem_bytes;
    bool joins;
};

static enum sl_status plan_single(const struct sl_cuda *c, const struct sl_op_attention *a,
                                  int class, struct single *out) {
    uint32_t group = a->n_heads / a->kv.n_kv_heads;
    uint32_t heads = a->kv.n_kv_heads * sl_ceil_div(group, SL_ATTN_HEAD_BLOCK);
    uint32_t dim = a->kv.head_dim_k > a->kv.head_dim_v ? a->kv.head_dim_k : a->kv.head_dim_v;
    uint32_t splits = a->max_pages < SL_ATTN_SPLITS ? a->max_pages : SL_ATTN_SPLITS;
    *out = (struct single){.kernel = SL_KERNEL_attention_row,
                           .grid = {splits, heads, 0},
                           .smem_bytes = SL_ATTN_SMEM(a->kv.head_dim_k, dim)};
    if (split_fits(c, class)) {
        out->kernel = sl_kernel_of(SL_FAMILY_attention_split, (uint32_t) class);
        out->smem_bytes = SL_ATTN_SPLIT_SMEM(64u << class);
        out->joins = heads <= SL_CUDA_COUNTERS / SL_ATTN_WAVE_ROWS;
    } else if (a->kv.head_dim_v > SL_ATTN_MAX_DIM_V) {
        return SL_ERR_UNSUPPORTED;
    }
    return SL_OK;
}

/* Single rows [row0, end): in parts, joined by the block that finishes last or by a second kernel.
 */
static enum sl_status single_rows(struct sl_cuda *c, const struct sl_op_attention *a,
                                  struct sl_karg_attention *k, int class, uint32_t row0,
                                  uint32_t end) {
    struct single s;
    SL_TRY(plan_single(c, a, class, &s));
    k->done = s.joins ? c->counters : NULL;
    for (; row0 < end; row0 += SL_ATTN_WAVE_ROWS) {
        k->row0 = row0;
        k->n_rows = s.grid.z = end - row0 < SL_ATTN_WAVE_ROWS ? end - row0 : SL_ATTN_WAVE_ROWS;
        SL_TRY(SL_LAUNCH(c, s.kernel, s.grid, ((struct sl_dim3){128, 1, 1}), s.smem_bytes, *k));
        if (s.joins)
            continue;
        SL_TRY(SL_LAUNCH(c, SL_KERNEL_attention_join, ((struct sl_dim3){a->n_heads, k->n_rows, 1}),
                         ((struct sl_dim3){128, 1, 1}), 0, *k));
    }
    return SL_OK;
}

static struct sl_karg_attention attention_args(const struct sl_cuda *c,
                                               const struct sl_op_attention *a) {
    return (struct sl_karg_attention){.kv = kv_args(&a->kv),
                                      .q = a->q,
                                      .sinks = a->sinks,
                                      .y = a->y,
                                      .part = c->scratch,
                                      .page_table = a->page_table,
                                      .row_seq = a->row_seq,
                                      .row_len = a->row_len,
                                      .n_heads = a->n_heads,
                                      .stride_q = a->stride_q,
                                      .max_pages = a->max_pages,
                                      .window = a->window,
                                      .scale = a->scale};
}

enum sl_status sl_cuda_attention(struct sl_device *d, const struct sl_op_attention *a) {
    struct sl_cuda *c = (struct sl_cuda *)d;
    struct sl_karg_attention k = attention_args(c, a);
    int class = dim_class(a);
    /* What the tiles need of shared memory not every GPU has. */
    if (!tile_fits(c, class))
        return single_rows(c, a, &k, class, 0, a->n_tok);
    SL_TRY(single_rows(c, a, &k, class, 0, a->n_decode));
    if (a->n_decode == a->n_tok)
        return SL_OK;
    uint32_t group = a->n_heads / a->kv.n_kv_heads;
    uint32_t width = group < SL_ATTN_HEAD_BLOCK ? group : SL_ATTN_HEAD_BLOCK;
    k.row0 = a->n_decode;
    k.n_rows = a->n_tok - a->n_decode;
    struct sl_dim3 grid = {sl_ceil_div(k.n_rows, SL_ATTN_TILE_PAIRS / width),
                           a->kv.n_kv_heads * sl_ceil_div(group, width), 1};
    return SL_LAUNCH(c, sl_kernel_of(SL_FAMILY_attention_tile, (uint32_t) class), grid,
                     ((struct sl_dim3){128, 1, 1}), SL_ATTN_TILE_SMEM(64u << class), k);
}

/* ---- latents ---- */

bool sl_cuda_latent_fits(const struct sl_cuda *c, const struct sl_op_need *need) {
    return need->head_dim_v <= SL_ATTN_MAX_DIM_V &&
           SL_ATTN_SMEM(need->head_dim_k, need->head_dim_k) <= c->max_smem_bytes;
}

enum sl_status sl_cuda_latent_attention(struct sl_device *d,
                                        const struct sl_op_latent_attention *a) {
    struct sl_cuda *c = (struct sl_cuda *)d;
    uint32_t dim = a->kv.n_latent + a->kv.n_rot,
             blocks = sl_ceil_div(a->n_heads, SL_ATTN_HEAD_BLOCK);
    uint32_t splits = a->max_pages < SL_ATTN_SPLITS ? a->max_pages : SL_ATTN_SPLITS;
    struct sl_karg_attention k = {.kv = latent_args(&a->kv),
                                  .q = a->q,
                                  .y = a->y,
                                  .part = c->scratch,
                                  .page_table = a->page_table,
                                  .row_seq = a->row_seq,
                                  .row_len = a->row_len,
                                  .n_heads = a->n_heads,
                                  .stride_q = a->n_heads * dim,
                                  .max_pages = a->max_pages,
                                  .scale = a->scale};
    for (uint32_t row = 0; row < a->n_tok; row += SL_ATTN_WAVE_ROWS) {
        k.row0 = row;
        k.n_rows = a->n_tok - row < SL_ATTN_WAVE_ROWS ? a->n_tok - row : SL_ATTN_WAVE_ROWS;
        SL_TRY(SL_LAUNCH(c, SL_KERNEL_attention_latent,
                         ((struct sl_dim3){splits, blocks, k.n_rows}),
                         ((struct sl_dim3){128, 1, 1}), SL_ATTN_SMEM(dim, dim), k));
        SL_TRY(SL_LAUNCH(c, SL_KERNEL_attention_join, ((struct sl_dim3){a->n_heads, k.n_rows, 1}),
                         ((struct sl_dim3){128, 1, 1}), 0, k));
    }
    return SL_OK;
}
