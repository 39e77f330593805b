/* The ops of attention, to heads, blocks of positions and latents; sl_op_kv_write. */
#include "backends/gpu/ops_internal.h"

/* Values of 512 elements have up to four times the parts. Latents have fewer rows at once. */
#define LATENT_WAVE_ROWS 8u
#define WIDE_MOST_PARTS  4096u /* of all heads */

uint32_t sl_gpu_wave_rows(const struct sl_gpu *c, uint32_t n_heads, uint32_t splits,
                          uint32_t dim_v) {
    uint64_t n = c->scratch_bytes / ((uint64_t)n_heads * splits * SL_ATTN_PART_FLOATS(dim_v) * 4);
    return n < 1 ? 1 : n < SL_ATTN_WAVE_ROWS ? (uint32_t)n : SL_ATTN_WAVE_ROWS;
}

uint64_t sl_gpu_attention_scratch(const struct sl_device_limits *limits) {
    uint64_t rows = limits->max_tok < SL_ATTN_WAVE_ROWS ? limits->max_tok : SL_ATTN_WAVE_ROWS;
    uint64_t wide = (uint64_t)limits->max_heads * SL_WIDE_SPLITS(limits->max_heads);
    if (limits->max_heads > 32 && wide < WIDE_MOST_PARTS) /* fewer heads may have more */
        wide = WIDE_MOST_PARTS;
    uint64_t parts = rows * limits->max_heads * SL_ATTN_SPLITS;
    if (limits->max_head_n) /* so these are latents */
        parts = wide * (rows < LATENT_WAVE_ROWS ? rows : LATENT_WAVE_ROWS);
    else if (limits->max_head_dim >= SL_WIDE_DIM && parts < wide)
        parts = wide;
    return parts * SL_ATTN_PART_FLOATS(limits->max_head_dim) * 4;
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

enum sl_status sl_gpu_kv_write(struct sl_device *d, const struct sl_op_kv_write *a) {
    struct sl_karg_kv_write k = {.kv = kv_args(&a->kv),
                                 .k = a->k,
                                 .v = a->v,
                                 .slot = a->slot,
                                 .n_tok = a->n_tok,
                                 .stride_k = a->stride_k,
                                 .stride_v = a->stride_v};
    struct sl_dim3 grid = {a->n_tok, a->kv.n_kv_heads, 1};
    return SL_LAUNCH((struct sl_gpu *)d, SL_KERNEL_kv_write, grid, ((struct sl_dim3){64, 1, 1}), 0,
                     k);
}

struct sl_karg_kv sl_gpu_latents(const struct sl_latent_view *kv) {
    return (struct sl_karg_kv){.k = kv->rows,
                               .v = kv->rows,
                               .k_page_bytes = kv->page_bytes,
                               .v_page_bytes = kv->page_bytes,
                               .n_kv_heads = 1,
                               .dim_k = kv->n_latent + kv->n_rot,
                               .dim_v = kv->n_latent,
                               .q8 = kv->dtype == SL_DTYPE_Q8_0};
}

enum sl_status sl_gpu_latent_write(struct sl_device *d, const struct sl_op_latent_write *a) {
    struct sl_karg_kv_write k = {.kv = sl_gpu_latents(&a->kv),
                                 .k = a->x,
                                 .v = a->x,
                                 .slot = a->slot,
                                 .n_tok = a->n_tok,
                                 .stride_k = a->stride,
                                 .stride_v = a->stride};
    k.kv.dim_v = 0;
    return SL_LAUNCH((struct sl_gpu *)d, SL_KERNEL_kv_write, ((struct sl_dim3){a->n_tok, 1, 1}),
                     ((struct sl_dim3){64, 1, 1}), 0, k);
}

bool sl_gpu_takes_qkv(const struct sl_device *d, const struct sl_fused_qkv *a) {
    (void)d;
    return a->q_rope->head_dim <= SL_QKV_MAX_DIM && a->write->kv.head_dim_v <= SL_QKV_MAX_DIM &&
           a->q_rope->n_tok <= 65535;
}

enum sl_status sl_gpu_fused_qkv(struct sl_device *d, const struct sl_fused_qkv *a) {
    struct sl_gpu *c = (struct sl_gpu *)d;
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

/* Soft caps and chunks, which kernels of their own have: one row at a time. */
static bool any(const struct sl_op_attention *a) {
    return a->softcap > 0 || a->chunk;
}

/* They have no soft caps and no chunks, and copy 16 bytes at a time, so rows of K and V must lie on
 * 16-byte boundaries. All this is the
 * model's alone, so all of a model's rows go one way. */
static int dim_class(const struct sl_op_attention *a) {
    const struct sl_kv_view *kv = &a->kv;
    if (any(a))
        return -1;
    uintptr_t addresses =
        (uintptr_t)kv->k | (uintptr_t)kv->v | kv->k_page_bytes | kv->v_page_bytes | (uintptr_t)a->y;
    return addresses % 16 ? -1 : head_class(kv->dtype, kv->head_dim_k, kv->head_dim_v);
}

/* Attention to all of a row's positions, or to those of blocks that were chosen, which have kernels
 * of their own. What decides how a row goes is the same for both, so that they give the same bits;
 * but for heads of SL_WIDE_DIM, of which there are none with blocks. */
struct heads {
    struct sl_op_attention a;
    const uint32_t *chosen; /* NULL: all */
    uint32_t n_top, block;
    uint32_t most_pages; /* that a row sees at most */
};

static enum sl_kernel_family split_family(bool blocks) {
    return blocks ? SL_FAMILY_attention_split_blocks : SL_FAMILY_attention_split;
}
static enum sl_kernel_family tile_family(bool blocks) {
    return blocks ? SL_FAMILY_attention_tile_blocks : SL_FAMILY_attention_tile;
}

static bool split_fits(const struct sl_gpu *c, bool blocks, int class) {
    return class >= 0 && sl_gpu_has(c, split_family(blocks), (uint32_t) class) &&
           SL_ATTN_SPLIT_SMEM(64u << class) + SL_ATTN_SPLIT_STATIC_SMEM(64u << class) <=
               c->max_smem_bytes;
}

static bool tile_fits(const struct sl_gpu *c, bool blocks, int class) {
    return class >= 0 && sl_gpu_has(c, tile_family(blocks), (uint32_t) class) &&
           SL_ATTN_TILE_SMEM(64u << class) <= c->max_smem_bytes;
}

bool sl_gpu_attention_fits(const struct sl_gpu *c, const struct sl_op_need *need) {
    uint32_t dim_k = need->head_dim_k, dim_v = need->head_dim_v;
    return (!need->extra && split_fits(c, need->op == SL_OP_block_attention,
                                       head_class(need->dtype, dim_k, dim_v))) ||
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

static enum sl_status plan_single(const struct sl_gpu *c, const struct heads *h, int class,
                                  struct single *out) {
    const struct sl_op_attention *a = &h->a;
    uint32_t group = a->n_heads / a->kv.n_kv_heads;
    uint32_t heads = a->kv.n_kv_heads * sl_ceil_div(group, SL_ATTN_HEAD_BLOCK);
    uint32_t dim = a->kv.head_dim_k > a->kv.head_dim_v ? a->kv.head_dim_k : a->kv.head_dim_v;
    uint32_t splits = h->most_pages < SL_ATTN_SPLITS ? h->most_pages : SL_ATTN_SPLITS;
    *out = (struct single){.kernel = h->chosen ? SL_KERNEL_attention_blocks
                                     : any(a)  ? SL_KERNEL_attention_row_any
                                               : SL_KERNEL_attention_row,
                           .grid = {splits, heads, 0},
                           .smem_bytes = SL_ATTN_SMEM(a->kv.head_dim_k, dim)};
    if (split_fits(c, h->chosen != NULL, class)) {
        out->kernel = sl_kernel_of(split_family(h->chosen != NULL), (uint32_t) class);
        out->smem_bytes = SL_ATTN_SPLIT_SMEM(64u << class);
        out->joins = heads <= SL_GPU_COUNTERS / SL_ATTN_WAVE_ROWS;
    } else if (a->kv.head_dim_v > SL_ATTN_MAX_DIM_V) {
        return SL_ERR_UNSUPPORTED;
    }
    return SL_OK;
}

/* Single rows [row0, end): in parts, joined by the block that finishes last or by a second kernel.
 */
static enum sl_status single_rows(struct sl_gpu *c, const struct heads *h,
                                  struct sl_karg_attention *k, int class, uint32_t row0,
                                  uint32_t end) {
    const struct sl_op_attention *a = &h->a;
    struct single s;
    SL_TRY(plan_single(c, h, class, &s));
    enum sl_kernel join = h->chosen ? SL_KERNEL_attention_blocks_join
                          : any(a)  ? SL_KERNEL_attention_join_any
                                    : SL_KERNEL_attention_join;
    uint32_t wave = sl_gpu_wave_rows(c, a->n_heads, SL_ATTN_SPLITS, a->kv.head_dim_v);
    k->done = s.joins ? c->counters : NULL;
    for (; row0 < end; row0 += wave) {
        k->row0 = row0;
        k->n_rows = s.grid.z = end - row0 < wave ? end - row0 : wave;
        SL_TRY(SL_LAUNCH(c, s.kernel, s.grid, ((struct sl_dim3){128, 1, 1}), s.smem_bytes, *k));
        if (s.joins)
            continue;
        SL_TRY(SL_LAUNCH(c, join, ((struct sl_dim3){a->n_heads, k->n_rows, 1}),
                         ((struct sl_dim3){128, 1, 1}), 0, *k));
    }
    return SL_OK;
}

static struct sl_karg_attention attention_args(const struct sl_gpu *c, const struct heads *h) {
    const struct sl_op_attention *a = &h->a;
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
                                      .scale = a->scale,
                                      .softcap = a->softcap,
                                      .chunk = a->chunk,
                                      .chosen = h->chosen,
                                      .n_top = h->n_top,
                                      .block = h->block};
}

/* ---- heads of 512 ---- */

/* Tiles of 16 pairs that a block of the kernels for heads of SL_WIDE_DIM takes at most; 0: such
 * heads are not theirs. All this is the model's and the device's alone, so all rows of a model go
 * one way.
 */
static uint32_t wide_tiles(const struct sl_gpu *c, const struct sl_op_attention *a) {
    const struct sl_kv_view *kv = &a->kv;
    uintptr_t addresses =
        (uintptr_t)kv->k | (uintptr_t)kv->v | kv->k_page_bytes | kv->v_page_bytes | (uintptr_t)a->y;
    if (kv->dtype != SL_DTYPE_F16 || kv->head_dim_k != SL_WIDE_DIM ||
        kv->head_dim_v != SL_WIDE_DIM || a->window || a->sinks || any(a) || addresses % 16 ||
        !sl_gpu_has(c, SL_FAMILY_attention_wide_parts, 0) ||
        !sl_gpu_has(c, SL_FAMILY_latent_join, 0))
        return 0;
    for (uint32_t n = 4; n; n /= 2)
        if (sl_gpu_has(c, SL_FAMILY_attention_wide_rows, n) &&
            SL_ATTN_WIDE_SMEM(n) + SL_WIDE_STATIC_SMEM(n) <= c->max_smem_bytes)
            return n;
    return 0;
}

/* Rows [row0, end) in parts, so many rows at once as the scratch has room for. */
static enum sl_status wide_parts(struct sl_gpu *c, const struct sl_op_attention *a,
                                 struct sl_karg_attention *k, uint32_t row0, uint32_t end) {
    uint32_t group = a->n_heads / a->kv.n_kv_heads, most = SL_WIDE_SPLITS(a->n_heads);
    uint32_t blocks = a->kv.n_kv_heads * sl_ceil_div(group, 16);
    uint32_t splits = a->max_pages * 2 < most ? a->max_pages * 2 : most;
    uint32_t wave = sl_gpu_wave_rows(c, a->n_heads, most, SL_WIDE_DIM);
    for (; row0 < end; row0 += k->n_rows) {
        k->row0 = row0;
        k->n_rows = end - row0 < wave ? end - row0 : wave;
        SL_TRY(SL_LAUNCH(c, SL_KERNEL_attention_wide_parts,
                         ((struct sl_dim3){splits, blocks, k->n_rows}),
                         ((struct sl_dim3){128, 1, 1}), SL_ATTN_WIDE_SMEM(1), *k));
        SL_TRY(SL_LAUNCH(c, SL_KERNEL_latent_join, ((struct sl_dim3){a->n_heads, k->n_rows, 1}),
                         ((struct sl_dim3){SL_WIDE_DIM / 4, 1, 1}), 0, *k));
    }
    return SL_OK;
}

static enum sl_status wide_attention(struct sl_gpu *c, const struct sl_op_attention *a,
                                     struct sl_karg_attention *k, uint32_t tiles) {
    SL_TRY(wide_parts(c, a, k, 0, a->n_decode));
    if (a->n_decode == a->n_tok)
        return SL_OK;
    uint32_t group = a->n_heads / a->kv.n_kv_heads;
    k->row0 = a->n_decode;
    k->n_rows = a->n_tok - a->n_decode;
    struct sl_dim3 grid = {sl_ceil_div((uint64_t)k->n_rows * group, 16 * tiles), a->kv.n_kv_heads,
                           1};
    return SL_LAUNCH(c, sl_kernel_of(SL_FAMILY_attention_wide_rows, tiles), grid,
                     ((struct sl_dim3){tiles == 1 ? 128 : 256, 1, 1}), SL_ATTN_WIDE_SMEM(tiles),
                     *k);
}

static enum sl_status attend_heads(struct sl_gpu *c, const struct heads *h) {
    const struct sl_op_attention *a = &h->a;
    struct sl_karg_attention k = attention_args(c, h);
    int class = dim_class(a);
    /* What the tiles need of shared memory not every GPU has. */
    if (!tile_fits(c, h->chosen != NULL, class))
        return single_rows(c, h, &k, class, 0, a->n_tok);
    SL_TRY(single_rows(c, h, &k, class, 0, a->n_decode));
    if (a->n_decode == a->n_tok)
        return SL_OK;
    uint32_t group = a->n_heads / a->kv.n_kv_heads;
    uint32_t width = group < SL_ATTN_HEAD_BLOCK ? group : SL_ATTN_HEAD_BLOCK;
    k.row0 = a->n_decode;
    k.n_rows = a->n_tok - a->n_decode;
    struct sl_dim3 grid = {sl_ceil_div(k.n_rows, h->chosen ? 1 : SL_ATTN_TILE_PAIRS / width),
                           a->kv.n_kv_heads * sl_ceil_div(group, width), 1};
    return SL_LAUNCH(c, sl_kernel_of(tile_family(h->chosen != NULL), (uint32_t) class), grid,
                     ((struct sl_dim3){128, 1, 1}), SL_ATTN_TILE_SMEM(64u << class), k);
}

enum sl_status sl_gpu_attention(struct sl_device *d, const struct sl_op_attention *a) {
    struct sl_gpu *c = (struct sl_gpu *)d;
    struct heads h = {.a = *a, .most_pages = a->max_pages};
    struct sl_karg_attention k = attention_args(c, &h);
    uint32_t tiles = wide_tiles(c, a);
    return tiles ? wide_attention(c, a, &k, tiles) : attend_heads(c, &h);
}

enum sl_status sl_gpu_block_attention(struct sl_device *d, const struct sl_op_block_attention *a) {
    uint32_t pages = sl_ceil_div((uint64_t)a->n_top * a->block, SL_KV_PAGE_TOKENS);
    struct heads h = {.a = {.kv = a->kv,
                            .q = a->q,
                            .y = a->y,
                            .page_table = a->page_table,
                            .row_seq = a->row_seq,
                            .row_len = a->row_len,
                            .n_tok = a->n_tok,
                            .n_decode = a->n_decode,
                            .n_heads = a->n_heads,
                            .stride_q = a->stride_q,
                            .max_pages = a->max_pages,
                            .scale = a->scale},
                      .chosen = a->chosen,
                      .n_top = a->n_top,
                      .block = a->block,
                      .most_pages = pages < a->max_pages ? pages : a->max_pages};
    return attend_heads((struct sl_gpu *)d, &h);
}

/* ---- latents ---- */

/* Kernels on tensor cores for latents of dim + SL_LATENT_ROT elements in f16. */
struct latent_kernels {
    enum sl_kernel_family parts, rows;
    enum sl_kernel join;
    uint32_t dim;
    uint32_t most_parts, most_rows; /* tiles of 16 pairs that a block takes at most */
    bool windows;
};
static const struct latent_kernels to_all = {
    SL_FAMILY_latent_parts, SL_FAMILY_latent_rows, SL_KERNEL_latent_join, SL_WIDE_DIM, 2, 4, false};
static const struct latent_kernels to_chosen = {SL_FAMILY_latent_chosen_parts,
                                                SL_FAMILY_latent_chosen_rows,
                                                SL_KERNEL_latent_chosen_join,
                                                SL_WIDE_DIM,
                                                2,
                                                4,
                                                false};
static const struct latent_kernels to_long = {SL_FAMILY_latent_long_parts,
                                              SL_FAMILY_latent_long_rows,
                                              SL_KERNEL_latent_long_join,
                                              SL_LATENT_LONG_DIM,
                                              2,
                                              2,
                                              true};

/* Shared memory of a block, with latents in one stage or in two. */
static uint32_t latent_smem(const struct latent_kernels *of, uint32_t tiles) {
    return SL_LATENT_SMEM(tiles, of->dim == SL_WIDE_DIM && tiles == 2 ? 2u : 1u, of->dim);
}

/* Tiles that a block takes; 0: it cannot. Those of chosen positions go as the others do. */
static uint32_t tiles_of(const struct sl_gpu *c, const struct latent_kernels *of, bool rows) {
    if (!c->kernel[of->join] || (of == &to_chosen && !c->kernel[to_all.join]))
        return 0;
    enum sl_kernel_family family = rows ? of->rows : of->parts;
    enum sl_kernel_family other = rows ? to_all.rows : to_all.parts;
    for (uint32_t n = rows ? of->most_rows : of->most_parts; n; n /= 2)
        if (sl_gpu_has(c, family, n) && (of != &to_chosen || sl_gpu_has(c, other, n)) &&
            latent_smem(of, n) + SL_WIDE_STATIC_SMEM(n) <= c->max_smem_bytes)
            return n;
    return 0;
}

bool sl_gpu_latent_fits(const struct sl_gpu *c, const struct sl_op_need *need) {
    bool all = need->op == SL_OP_latent_attention;
    bool longer = all && sl_gpu_has(c, SL_FAMILY_attention_latent_long, 0);
    if (all && need->dtype == SL_DTYPE_F16 && need->head_dim_v == SL_LATENT_LONG_DIM &&
        need->head_dim_k == SL_LATENT_LONG_DIM + SL_LATENT_ROT && tiles_of(c, &to_long, false))
        return true;
    return need->head_dim_v <= (longer ? SL_LATENT_MAX_DIM_V : SL_ATTN_MAX_DIM_V) &&
           SL_ATTN_SMEM(need->head_dim_k, need->head_dim_k) <= c->max_smem_bytes;
}

/* Attention to latents, to all of a row's or to those that were chosen, which have kernels of their
 * own. What decides how a row goes is the same for both, so that they give the same bits. */
struct latents {
    struct sl_op_latent_attention a;
    const uint32_t *chosen; /* NULL: all */
    uint32_t n_top;
    uint32_t
        most_pages; /* that a row sees at most, counted as if what it sees had pages of its own */
};

static const struct latent_kernels *kernels_of(const struct latents *l) {
    return l->chosen ? &to_chosen : l->a.kv.n_latent == SL_LATENT_LONG_DIM ? &to_long : &to_all;
}

/* Tiles that a block of the tensor-core kernels takes at most; 0: such latents are not theirs. All
 * this is the model's and the device's alone, so all rows of a model go one way. */
static uint32_t latent_tiles(const struct sl_gpu *c, const struct latents *l, bool rows) {
    const struct sl_latent_view *kv = &l->a.kv;
    const struct latent_kernels *of = kernels_of(l);
    if ((l->a.window && !of->windows) || kv->dtype != SL_DTYPE_F16 || kv->n_latent != of->dim ||
        kv->n_rot != SL_LATENT_ROT ||
        ((uintptr_t)kv->rows | kv->page_bytes | (uintptr_t)l->a.y) % 16)
        return 0;
    return tiles_of(c, of, rows);
}

static struct sl_karg_attention latent_attention_args(const struct sl_gpu *c,
                                                      const struct latents *l) {
    const struct sl_op_latent_attention *a = &l->a;
    return (struct sl_karg_attention){.kv = sl_gpu_latents(&a->kv),
                                      .q = a->q,
                                      .y = a->y,
                                      .part = c->scratch,
                                      .page_table = a->page_table,
                                      .row_seq = a->row_seq,
                                      .row_len = a->row_len,
                                      .n_heads = a->n_heads,
                                      .stride_q = a->n_heads * (a->kv.n_latent + a->kv.n_rot),
                                      .max_pages = a->max_pages,
                                      .window = a->window,
                                      .scale = a->scale,
                                      .chosen = l->chosen,
                                      .n_top = l->n_top};
}

/* Rows [row0, end) in parts, so many rows at once as the scratch has room for; tiles 0: with f32
 * arithmetic. */
static enum sl_status latent_parts(struct sl_gpu *c, const struct latents *l, uint32_t tiles,
                                   uint32_t row0, uint32_t end) {
    struct sl_karg_attention k = latent_attention_args(c, l);
    const struct sl_op_latent_attention *a = &l->a;
    const struct latent_kernels *of = kernels_of(l);
    uint32_t dim = a->kv.n_latent + a->kv.n_rot;
    uint32_t most = tiles ? SL_WIDE_SPLITS(a->n_heads) : SL_ATTN_SPLITS;
    uint32_t splits = tiles ? l->most_pages * 2 : l->most_pages;
    uint32_t wave = sl_gpu_wave_rows(c, a->n_heads, most, a->kv.n_latent);
    enum sl_kernel parts, join;
    if (tiles) {
        parts = sl_kernel_of(of->parts, tiles);
        join = of->join;
    } else {
        parts = l->chosen                            ? SL_KERNEL_attention_chosen
                : a->kv.n_latent > SL_ATTN_MAX_DIM_V ? SL_KERNEL_attention_latent_long
                                                     : SL_KERNEL_attention_latent;
        join = l->chosen ? SL_KERNEL_attention_chosen_join : SL_KERNEL_attention_join;
    }
    splits = splits < most ? splits : most;
    for (; row0 < end; row0 += k.n_rows) {
        k.row0 = row0;
        k.n_rows = end - row0 < wave ? end - row0 : wave;
        if (tiles) {
            SL_TRY(SL_LAUNCH(
                c, parts, ((struct sl_dim3){splits, sl_ceil_div(a->n_heads, 16 * tiles), k.n_rows}),
                ((struct sl_dim3){tiles == 1 ? 128 : 256, 1, 1}), latent_smem(of, tiles), k));
            SL_TRY(SL_LAUNCH(c, join, ((struct sl_dim3){a->n_heads, k.n_rows, 1}),
                             ((struct sl_dim3){of->dim / 4, 1, 1}), 0, k));
            continue;
        }
        SL_TRY(SL_LAUNCH(
            c, parts,
            ((struct sl_dim3){splits, sl_ceil_div(a->n_heads, SL_ATTN_HEAD_BLOCK), k.n_rows}),
            ((struct sl_dim3){128, 1, 1}), SL_ATTN_SMEM(dim, dim), k));
        SL_TRY(SL_LAUNCH(c, join, ((struct sl_dim3){a->n_heads, k.n_rows, 1}),
                         ((struct sl_dim3){128, 1, 1}), 0, k));
    }
    return SL_OK;
}

static enum sl_status attend(struct sl_gpu *c, const struct latents *l) {
    const struct sl_op_latent_attention *a = &l->a;
    uint32_t parts = latent_tiles(c, l, false), tiles = latent_tiles(c, l, true);
    if (!tiles)
        return latent_parts(c, l, parts, 0, a->n_tok);
    SL_TRY(latent_parts(c, l, parts, 0, a->n_decode));
    if (a->n_decode == a->n_tok)
        return SL_OK;
    struct sl_karg_attention k = latent_attention_args(c, l);
    k.row0 = a->n_decode;
    k.n_rows = a->n_tok - a->n_decode;
    struct sl_dim3 grid = {sl_ceil_div((uint64_t)k.n_rows * a->n_heads, 16 * tiles), 1, 1};
    if (l->chosen) /* no two rows have the same positions */
        grid.x = k.n_rows * sl_ceil_div(a->n_heads, 16 * tiles);
    return SL_LAUNCH(c, sl_kernel_of(kernels_of(l)->rows, tiles), grid,
                     ((struct sl_dim3){tiles == 1 ? 128 : 256, 1, 1}),
                     latent_smem(kernels_of(l), tiles), k);
}

enum sl_status sl_gpu_latent_attention(struct sl_device *d,
                                       const struct sl_op_latent_attention *a) {
    struct latents l = {.a = *a, .most_pages = a->max_pages};
    if (a->window && (a->window - 1) / SL_KV_PAGE_TOKENS + 2 < a->max_pages)
        l.most_pages = (a->window - 1) / SL_KV_PAGE_TOKENS + 2; /* it may begin within a page */
    return attend((struct sl_gpu *)d, &l);
}

enum sl_status sl_gpu_chosen_attention(struct sl_device *d,
                                       const struct sl_op_chosen_attention *a) {
    uint32_t pages = sl_ceil_div(a->n_top, SL_KV_PAGE_TOKENS);
    struct latents l = {.a = sl_chosen_as_latent(a),
                        .chosen = a->chosen,
                        .n_top = a->n_top,
                        .most_pages = pages < a->max_pages ? pages : a->max_pages};
    return attend((struct sl_gpu *)d, &l);
}
