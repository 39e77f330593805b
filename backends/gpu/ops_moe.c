/* sl_op_moe: few pairs go one by one, each reading its expert's matrices as decode does; many are
 * sorted by expert on the device, so that every touched expert is read once for a tile of rows.
 *
 * With quantised types both ways give the same bits and the number of pairs decides; with a float
 * type among the three, generated rows go one way and prompt rows the other. */
#include "backends/gpu/ops_internal.h"

/* Pairs from which on tensor cores are faster; rounds of tiles that a block of theirs then makes at
 * most: experts differ in rows, which many small blocks even out. */
#define MMA_MIN_PAIRS       16u
#define MMA_MAX_ROUNDS      4u
#define MMA_MAX_DOWN_ROUNDS 1u

/* Kernels that have all of a block's weights in shared memory: the most pairs for which they are
 * faster than tensor cores; what a block takes at most, so that two fit, and what it has besides
 * what it is launched with. */
#define PAIR_UP_MAX_PAIRS      64u
#define PAIR_SUM_MAX_PAIRS     16u
#define PAIR_SMEM_BYTES        (100u << 10)
#define PAIR_STATIC_SMEM_BYTES 2048u

/* Rows an expert gets on average, from which on wide tiles are filled well enough. */
#define LARGE_MIN_MEAN 48u

/* Rows an expert gets on average, up to which sorted pairs go through the kernels for few rows: a
 * tile of SL_GEMM_N_SMALL rows would be mostly empty. */
#define FEW_MAX_MEAN 4u

struct layout {
    struct sl_karg_qx qx, qh;
    float *h;
    uint32_t *order, *n_tiles;
    struct sl_karg_tile *tiles;
    uint64_t bytes;
};

static uint32_t max_tiles(uint32_t n_pairs, uint32_t n_expert, uint32_t tile_n) {
    uint32_t partial = n_pairs < n_expert ? n_pairs : n_expert;
    return n_pairs / tile_n + partial;
}

static struct layout lay_out(void *base, uint32_t n_tok, uint32_t n_pairs, uint32_t n_expert,
                             uint32_t n_embd, uint32_t n_ff) {
    struct sl_gpu_carve v = {(uintptr_t)base, 0};
    struct layout l;
    l.qx = sl_gpu_carve_qx(&v, n_tok, n_embd);
    l.qh = sl_gpu_carve_qx(&v, n_pairs, n_ff);
    l.h = sl_gpu_carve(&v, (uint64_t)n_pairs * n_ff * 4);
    l.order = sl_gpu_carve(&v, (uint64_t)n_pairs * 4);
    l.n_tiles = sl_gpu_carve(&v, 4);
    l.tiles = sl_gpu_carve(&v, (uint64_t)max_tiles(n_pairs, n_expert, SL_VEC_MAX_TOK) *
                                   sizeof(struct sl_karg_tile));
    l.bytes = v.used_bytes;
    return l;
}

uint64_t sl_gpu_moe_scratch(const struct sl_device_limits *limits) {
    if (!limits->max_pairs)
        return 0;
    return lay_out(NULL, limits->max_tok, limits->max_pairs, limits->max_expert, limits->max_n_embd,
                   limits->max_n_ff)
        .bytes;
}

/* Biases and activation, as the kernels take them. */
static struct sl_karg_experts experts_arg(const struct sl_op_moe *a) {
    struct sl_karg_experts e = {.gate_bias = a->gate_bias,
                                .up_bias = a->up_bias,
                                .down_bias = a->down_bias,
                                .is_plain = !a->gate_bias && !a->up_bias && !a->down_bias &&
                                            a->activation == SL_SWIGLU,
                                .activation = a->activation,
                                .limit = a->limit};
    if (a->activation == SL_SWIGLU_CLAMPED)
        e.alpha = SL_SWIGLU_CLAMPED_ALPHA, e.limit = SL_SWIGLU_CLAMPED_LIMIT;
    return e;
}

struct run {
    struct sl_gpu *c;
    const struct sl_op_moe *a;
    struct layout l;
    const void *refs; /* on the device */
    uint32_t tok_begin, tok_end;
    bool sorted; /* l.tiles has the pairs in tiles of SL_VEC_MAX_TOK */
};

/* Output rows of an expert that make a tile: gate and up share one. */
static uint32_t mma_tile(const struct sl_karg_moe *k) {
    return k->mode == SL_MOE_GATE_UP ? SL_MMA_TILE / 2 : SL_MMA_TILE;
}

static uint32_t mma_cols(const struct sl_karg_moe *k) {
    return k->n_pairs < SL_VEC_MAX_TOK ? k->n_pairs : SL_VEC_MAX_TOK;
}

static bool mma_fits(const struct run *r, enum sl_dtype t, const struct sl_karg_moe *k) {
    if (k->n_placed || k->n_pairs < MMA_MIN_PAIRS ||
        (k->n_pairs > SL_MOE_MMA_MAX_PAIRS && !k->tiles))
        return false;
    uint32_t split = sl_gpu_mma_split(k->n_in);
    struct sl_gpu_mma m = sl_gpu_mma_smem(t, k->n_in, split, UINT32_MAX, mma_cols(k));
    return sl_gpu_mma_fits(r->c, SL_FAMILY_moe_mma, t, k->n_in, k->n_out, mma_tile(k),
                           m.smem_bytes);
}

/* Shared memory of the kernels that have a block's weights there at once: `parts` matrices' rows
 * and `inputs` input rows; 0: they do not take such weights. */
static uint32_t pair_smem(const struct run *r, enum sl_kernel_family family, enum sl_dtype t,
                          struct sl_karg_moe *k, uint32_t parts, uint32_t inputs) {
    uint32_t rows = k->rows_per_block;
    if (!sl_gpu_has(r->c, family, t) || k->n_in % sl_dtype_info((uint32_t)t)->block_elems ||
        k->n_out % rows)
        return 0;
    uint64_t part_bytes = rows * sl_dtype_row_bytes(t, k->n_in);
    if (sl_is_block32(t) && part_bytes % 16)
        return 0;
    part_bytes = (part_bytes + 15) & ~(uint64_t)15;
    uint64_t bytes = parts * part_bytes + k->n_table * 16 +
                     (uint64_t)sl_ceil_div((uint64_t)inputs * k->n_in, 256) * SL_BLOCK_GROUP_BYTES;
    k->in_at = (uint32_t)(parts * part_bytes);
    return bytes <= PAIR_SMEM_BYTES && bytes + PAIR_STATIC_SMEM_BYTES <= r->c->max_smem_bytes
               ? (uint32_t)bytes
               : 0;
}

/* Gate and up of pairs; *done: whether these kernels take them, and it is. */
static enum sl_status pair_up(const struct run *r, enum sl_dtype t, struct sl_karg_moe k,
                              bool *done) {
    k.rows_per_block = SL_MOE_UP_ROWS;
    k.n_table = !k.n_placed && k.n_expert <= SL_MOE_UP_TABLE ? k.n_expert : 0;
    enum sl_kernel_family family =
        k.expert.is_plain ? SL_FAMILY_moe_pair_up : SL_FAMILY_moe_pair_up_any;
    uint32_t bytes = k.mode == SL_MOE_GATE_UP && k.n_pairs <= PAIR_UP_MAX_PAIRS
                         ? pair_smem(r, family, t, &k, 2, 1)
                         : 0;
    *done = bytes > 0;
    if (!*done)
        return SL_OK;
    struct sl_dim3 grid = {k.n_pairs, k.n_out / SL_MOE_UP_ROWS, 1};
    return SL_LAUNCH(r->c, sl_kernel_of(family, t), grid,
                     ((struct sl_dim3){SL_MOE_UP_THREADS, 1, 1}), bytes, k);
}

/* Down of all pairs and their sum. */
static enum sl_status pair_sum(const struct run *r, enum sl_dtype t, struct sl_karg_moe k,
                               bool *done) {
    uint32_t bytes = 0;
    *done = false;
    bool may_mma = sl_kernel_of(SL_FAMILY_moe_mma, t) != SL_KERNEL_COUNT;
    enum sl_kernel_family family =
        k.expert.down_bias || k.set ? SL_FAMILY_moe_pair_sum_any : SL_FAMILY_moe_pair_sum;
    if (k.n_pairs > (may_mma ? PAIR_SUM_MAX_PAIRS : PAIR_UP_MAX_PAIRS))
        return SL_OK;
    for (k.rows_per_block = SL_MOE_SUM_ROWS; k.rows_per_block >= 8; k.rows_per_block /= 2)
        if ((bytes = pair_smem(r, family, t, &k, k.k, k.k)))
            break;
    if (!bytes)
        return SL_OK;
    *done = true;
    struct sl_dim3 grid = {r->a->n_tok, k.n_out / k.rows_per_block, 1};
    return SL_LAUNCH(r->c, sl_kernel_of(family, t), grid,
                     ((struct sl_dim3){SL_MOE_SUM_THREADS, 1, 1}), bytes, k);
}

static enum sl_status vec_mma(const struct run *r, enum sl_dtype t, struct sl_karg_moe *k) {
    uint32_t split = sl_gpu_mma_split(k->n_in), at_once = SL_MATVEC_WARPS / split * mma_tile(k);
    uint32_t rows = sl_gpu_vec_rows(r->c, (uint64_t)k->n_out * k->n_pairs, at_once, SL_MMA_BLOCKS);
    uint32_t most = (k->mode == SL_MOE_DOWN ? MMA_MAX_DOWN_ROUNDS : MMA_MAX_ROUNDS) * at_once;
    k->rows_per_block = rows < most ? rows : most;
    struct sl_gpu_mma m = sl_gpu_mma_smem(
        t, k->n_in, split, k->rows_per_block / at_once * sl_gpu_mma_steps(k->n_in, split),
        mma_cols(k));
    k->slots = m.slots;
    k->in_at = m.in_at;
    uint32_t tiles = k->tiles ? max_tiles(k->n_pairs, k->n_expert, SL_VEC_MAX_TOK) : k->n_pairs;
    struct sl_dim3 grid = {tiles, sl_ceil_div(k->n_out, k->rows_per_block), 1};
    return SL_LAUNCH(r->c, sl_kernel_of(SL_FAMILY_moe_mma, t), grid,
                     ((struct sl_dim3){SL_MATVEC_WARPS * SL_WARP, 1, 1}), m.smem_bytes, *k);
}

static enum sl_status vec(const struct run *r, enum sl_dtype t, enum sl_moe_mode mode) {
    const struct sl_op_moe *a = r->a;
    bool down = mode == SL_MOE_DOWN;
    struct sl_karg_moe k = {.x = a->x,
                            .h = r->l.h,
                            .y = a->pair_y,
                            .ids = a->ids,
                            .pairs = a->pairs,
                            .refs = r->refs,
                            .n_in = down ? a->n_ff : a->n_embd,
                            .n_out = down ? a->n_embd : a->n_ff,
                            .k = a->k,
                            .n_pairs = a->n_pairs,
                            .tok_begin = r->tok_begin,
                            .tok_end = r->tok_end,
                            .mode = mode,
                            .n_expert = a->n_expert,
                            .tiles = r->sorted ? r->l.tiles : NULL,
                            .n_tiles = r->l.n_tiles,
                            .order = r->l.order,
                            .expert = experts_arg(a)};
    _Static_assert(SL_MOE_PLACED == SL_MOE_MAX_PLACED, "one limit");
    for (; a->placed && k.n_placed < a->n_pairs; k.n_placed++) {
        const struct sl_placed_pair *p = &a->placed[k.n_placed];
        k.placed[k.n_placed] =
            (struct sl_karg_placed){{p->ref.gate, p->ref.up, p->ref.down}, p->pair};
    }
    bool done;
    SL_TRY(pair_up(r, t, k, &done));
    if (done)
        return SL_OK;
    if (mma_fits(r, t, &k))
        return vec_mma(r, t, &k);
    uint32_t at_once = sl_gpu_vec_at_once(t, k.n_in);
    if (mode == SL_MOE_GATE_UP)
        at_once /= 2; /* each is two rows of weights */
    k.rows_per_block =
        sl_gpu_vec_rows(r->c, (uint64_t)k.n_out * a->n_pairs, at_once, SL_MOE_VEC_BLOCKS);
    struct sl_dim3 grid = {sl_ceil_div(k.n_out, k.rows_per_block), a->n_pairs, 1};
    return SL_LAUNCH(r->c, sl_kernel_of(SL_FAMILY_moe_vec, t), grid,
                     ((struct sl_dim3){SL_MATVEC_WARPS * SL_WARP, 1, 1}),
                     sl_gpu_vec_smem(t, k.n_in, 1), k);
}

/* Squared ReLU has no gate. */
static bool has_gate(const struct sl_op_moe *a) {
    return a->activation != SL_RELU_SQUARED;
}

static enum sl_status vec_gate_up(const struct run *r) {
    const struct sl_op_moe *a = r->a;
    if (has_gate(a) && a->gate_dtype == a->up_dtype)
        return vec(r, a->gate_dtype, SL_MOE_GATE_UP);
    if (has_gate(a))
        SL_TRY(vec(r, a->gate_dtype, SL_MOE_GATE));
    return vec(r, a->up_dtype, SL_MOE_UP);
}

static enum sl_status vec_all(const struct run *r) {
    SL_TRY(vec_gate_up(r));
    return vec(r, r->a->down_dtype, SL_MOE_DOWN);
}

static enum sl_status gemm(const struct run *r, enum sl_dtype t, enum sl_moe_mode mode,
                           uint32_t tile_n) {
    const struct sl_op_moe *a = r->a;
    bool down = mode == SL_MOE_DOWN;
    struct sl_karg_gemm k = {.qx = down ? r->l.qh : r->l.qx,
                             .x = a->x,
                             .n_in = down ? a->n_ff : a->n_embd,
                             .n_mat = 1,
                             .refs = r->refs,
                             .order = r->l.order,
                             .pairs = a->pairs,
                             .n_tiles = r->l.n_tiles,
                             .tiles = r->l.tiles,
                             .h = r->l.h,
                             .y = a->pair_y,
                             .n_out = down ? a->n_embd : a->n_ff,
                             .k = a->k,
                             .mode = mode,
                             .expert = experts_arg(a)};
    /* With gate and up together a block's rows are half of each. */
    uint32_t rows = mode == SL_MOE_GATE_UP ? SL_GEMM_M / 2 : SL_GEMM_M;
    struct sl_dim3 grid = {max_tiles(a->n_pairs, a->n_expert, tile_n), sl_ceil_div(k.n_out, rows),
                           1};
    return SL_LAUNCH(
        r->c,
        sl_kernel_of(tile_n == SL_GEMM_N_LARGE ? SL_FAMILY_gemm_large : SL_FAMILY_gemm_small, t),
        grid, ((struct sl_dim3){256, 1, 1}), sl_gpu_gemm_smem(t, tile_n), k);
}

/* Quantises the input as t wants it, unless it is so already. */
static enum sl_status input(const struct run *r, enum sl_dtype t, int *kind) {
    if (sl_is_float(t) || *kind == sl_is_block32(t))
        return SL_OK;
    *kind = sl_is_block32(t);
    return sl_gpu_quantize(r->c, t, r->a->x, r->a->n_tok, r->a->n_embd, &r->l.qx);
}

static enum sl_status sort(const struct run *r, uint32_t tile_n) {
    const struct sl_op_moe *a = r->a;
    struct sl_karg_moe_sort s = {.ids = a->ids,
                                 .pairs = a->pairs,
                                 .order = r->l.order,
                                 .n_tiles = r->l.n_tiles,
                                 .tiles = r->l.tiles,
                                 .n_pairs = a->n_pairs,
                                 .n_expert = a->n_expert,
                                 .k = a->k,
                                 .tok_begin = r->tok_begin,
                                 .tok_end = r->tok_end,
                                 .tile_n = tile_n};
    return SL_LAUNCH(r->c, SL_KERNEL_moe_sort, ((struct sl_dim3){1, 1, 1}),
                     ((struct sl_dim3){1024, 1, 1}), 0, s);
}

/* Whether the kernels for few rows take all three matrices, with sorted pairs. */
static bool few_fits(const struct run *r) {
    const struct sl_op_moe *a = r->a;
    struct sl_karg_moe k = {.n_pairs = a->n_pairs, .tiles = r->l.tiles, .mode = SL_MOE_GATE_UP};
    if (a->n_pairs > FEW_MAX_MEAN * a->n_expert)
        return false;
    k.n_in = a->n_embd, k.n_out = a->n_ff;
    if (!has_gate(a) || a->gate_dtype != a->up_dtype)
        k.mode = SL_MOE_UP;
    if ((has_gate(a) && !mma_fits(r, a->gate_dtype, &k)) || !mma_fits(r, a->up_dtype, &k))
        return false;
    k.n_in = a->n_ff, k.n_out = a->n_embd, k.mode = SL_MOE_DOWN;
    return mma_fits(r, a->down_dtype, &k);
}

static enum sl_status few(struct run *r) {
    SL_TRY(sort(r, SL_VEC_MAX_TOK));
    r->sorted = true;
    return vec_all(r);
}

static enum sl_status grouped(const struct run *r) {
    const struct sl_op_moe *a = r->a;
    bool large = a->n_pairs / a->n_expert >= LARGE_MIN_MEAN &&
                 (!has_gate(a) || sl_gpu_gemm_large_fits(r->c, a->gate_dtype)) &&
                 sl_gpu_gemm_large_fits(r->c, a->up_dtype) &&
                 sl_gpu_gemm_large_fits(r->c, a->down_dtype);
    uint32_t tile_n = large ? SL_GEMM_N_LARGE : SL_GEMM_N_SMALL;
    SL_TRY(sort(r, tile_n));
    int kind = -1;
    if (has_gate(a) && a->gate_dtype == a->up_dtype) {
        SL_TRY(input(r, a->gate_dtype, &kind));
        SL_TRY(gemm(r, a->gate_dtype, SL_MOE_GATE_UP, tile_n));
    } else {
        if (has_gate(a)) {
            SL_TRY(input(r, a->gate_dtype, &kind));
            SL_TRY(gemm(r, a->gate_dtype, SL_MOE_GATE, tile_n));
        }
        SL_TRY(input(r, a->up_dtype, &kind));
        SL_TRY(gemm(r, a->up_dtype, SL_MOE_UP, tile_n));
    }
    if (!sl_is_float(a->down_dtype))
        SL_TRY(sl_gpu_quantize(r->c, a->down_dtype, r->l.h, a->n_pairs, a->n_ff, &r->l.qh));
    return gemm(r, a->down_dtype, SL_MOE_DOWN, tile_n);
}

static enum sl_status begin(struct run *r) {
    const struct sl_op_moe *a = r->a;
    _Static_assert(sizeof(struct sl_karg_ref) == sizeof(struct sl_expert_ref), "one layout");
    r->tok_end = a->n_tok;
    r->l = lay_out(r->c->scratch, a->n_tok, a->n_pairs, a->n_expert, a->n_embd, a->n_ff);
    r->refs = a->device_refs;
    return r->refs || a->placed
               ? SL_OK
               : sl_gpu_push(r->c, a->refs, a->n_expert * sizeof *a->refs, &r->refs);
}

enum sl_status sl_gpu_moe(struct sl_device *d, const struct sl_op_moe *a) {
    struct run r = {.c = (struct sl_gpu *)d, .a = a};
    SL_TRY(begin(&r));
    bool any_float = (has_gate(a) && sl_is_float(a->gate_dtype)) || sl_is_float(a->up_dtype) ||
                     sl_is_float(a->down_dtype);
    if (!any_float) {
        if (a->placed || a->n_pairs < SL_GPU_SORT_MIN_PAIRS)
            return vec_all(&r);
        return few_fits(&r) ? few(&r) : grouped(&r);
    }
    if (a->n_decode) {
        r.tok_end = a->n_decode;
        SL_TRY(vec_all(&r));
    }
    if (a->n_decode < a->n_tok) {
        r.tok_begin = a->n_decode;
        r.tok_end = a->n_tok;
        SL_TRY(grouped(&r));
    }
    return SL_OK;
}

bool sl_gpu_takes_moe_sum(const struct sl_device *d, const struct sl_fused_moe_sum *a) {
    const struct sl_op_moe *moe = a->moe;
    return sl_gpu_has((const struct sl_gpu *)d, SL_FAMILY_moe_down, moe->down_dtype) &&
           moe->n_pairs < SL_GPU_SORT_MIN_PAIRS && moe->k <= SL_MOE_DOWN_MAX_K &&
           sl_gpu_vec_smem(moe->down_dtype, moe->n_ff, moe->k) <=
               ((const struct sl_gpu *)d)->max_smem_bytes - (4u << 10);
}

enum sl_status sl_gpu_fused_moe_sum(struct sl_device *d, const struct sl_fused_moe_sum *fused) {
    struct sl_gpu *c = (struct sl_gpu *)d;
    const struct sl_op_moe *a = fused->moe;
    const struct sl_op_moe_combine *sum = fused->sum;
    struct run r = {.c = c, .a = a};
    SL_TRY(begin(&r));
    SL_TRY(vec_gate_up(&r));
    struct sl_karg_moe k = {.h = r.l.h,
                            .y = a->pair_y,
                            .ids = a->ids,
                            .refs = r.refs,
                            .n_in = a->n_ff,
                            .n_out = a->n_embd,
                            .k = a->k,
                            .n_pairs = a->n_pairs,
                            .tok_end = a->n_tok,
                            .mode = SL_MOE_DOWN,
                            .n_expert = a->n_expert,
                            .k_inverse = sl_ceil_div(65536, a->k),
                            .weights = sum->weights,
                            .sum_y = sum->y,
                            .set = sum->set,
                            .expert = experts_arg(a)};
    bool done;
    SL_TRY(pair_sum(&r, a->down_dtype, k, &done));
    if (done)
        return SL_OK;
    /* Reading each expert once saves more than the sum's own launch costs. */
    if (mma_fits(&r, a->down_dtype, &k)) {
        SL_TRY(vec_mma(&r, a->down_dtype, &k));
        return sl_gpu_moe_combine(d, sum);
    }
    if (sum->set) { /* moe_down only adds */
        SL_TRY(vec(&r, a->down_dtype, SL_MOE_DOWN));
        return sl_gpu_moe_combine(d, sum);
    }
    struct sl_dim3 grid = {sl_ceil_div(k.n_out, SL_MOE_DOWN_ROWS), a->n_tok, 1};
    return SL_LAUNCH(c, sl_kernel_of(SL_FAMILY_moe_down, a->down_dtype), grid,
                     ((struct sl_dim3){SL_MATVEC_WARPS * SL_WARP, 1, 1}),
                     sl_gpu_vec_smem(a->down_dtype, k.n_in, a->k), k);
}

enum sl_status sl_gpu_moe_combine(struct sl_device *d, const struct sl_op_moe_combine *a) {
    struct sl_karg_moe_combine k = {a->pair_y, a->weights, a->y, a->n_tok, a->k, a->n};
    struct sl_dim3 grid = {a->n_tok, sl_ceil_div(a->n, 256), 1};
    return SL_LAUNCH((struct sl_gpu *)d, a->set ? SL_KERNEL_elem_combine : SL_KERNEL_moe_combine,
                     grid, ((struct sl_dim3){256, 1, 1}), 0, k);
}
