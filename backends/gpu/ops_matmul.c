/* sl_op_matmul: which kernel takes which rows and weights.
 *
 * Quantised types: the decode and the prefill kernels give the same bits, so the number of rows
 * decides. Float types: generated rows take the decode kernel, prompt rows the prefill kernel. */
#include "backends/gpu/ops_internal.h"

struct sl_karg_qx sl_gpu_carve_qx(struct sl_gpu_carve *v, uint64_t rows, uint32_t n_in) {
    uint64_t n = rows * sl_pad_256(n_in);
    struct sl_karg_qx qx;
    qx.q = sl_gpu_carve(v, n);
    qx.d = sl_gpu_carve(v, n / 32 * 4);
    qx.sum = sl_gpu_carve(v, n / 8);
    return qx;
}

enum sl_status sl_gpu_quantize(struct sl_gpu *c, enum sl_dtype t, const float *x, uint32_t n_rows,
                               uint32_t n_in, const struct sl_karg_qx *to) {
    struct sl_karg_quantize a = {.x = x, .to = *to, .n_in = n_in, .block32 = sl_is_block32(t)};
    struct sl_dim3 grid = {n_rows, sl_ceil_div(sl_pad_256(n_in) / 256, 8), 1};
    return SL_LAUNCH(c, SL_KERNEL_quantize, grid, ((struct sl_dim3){256, 1, 1}), 0, a);
}

uint32_t sl_gpu_vec_smem(enum sl_dtype t, uint32_t n_in, uint32_t rows) {
    return sl_is_float(t) ? SL_VEC_FLOAT_SMEM(n_in, rows)
                          : SL_VEC_SMEM(sl_is_block32(t), sl_pad_256(n_in), rows);
}

uint32_t sl_gpu_mma_split(uint32_t n_in) {
    return n_in >= 2048 ? 8 : n_in >= 1024 ? 4 : 1; /* mma_vec.cuh */
}

uint32_t sl_gpu_mma_steps(uint32_t n_in, uint32_t split) {
    return sl_ceil_div(n_in / 256, split);
}

struct sl_gpu_mma sl_gpu_mma_smem(enum sl_dtype t, uint32_t n_in, uint32_t split, uint32_t items,
                                  uint32_t rows) {
    uint32_t stride = t == SL_DTYPE_Q4_K   ? SL_MMA_STRIDE_Q4_K
                      : t == SL_DTYPE_Q5_K ? SL_MMA_STRIDE_Q5_K
                      : t == SL_DTYPE_Q6_K ? SL_MMA_STRIDE_Q6_K
                                           : SL_MMA_STRIDE_Q8_0;
    uint32_t most = SL_MMA_AHEAD + (split > 1);
    struct sl_gpu_mma m = {.slots = items < most ? items : most};
    m.in_at = SL_MATVEC_WARPS * m.slots * SL_MMA_TILE * stride;
    m.smem_bytes = m.in_at + (t == SL_DTYPE_Q8_0 ? SL_MMA_IN32_BYTES(n_in, rows)
                                                 : SL_MMA_IN_BYTES(n_in, rows));
    return m;
}

/* What the kernels have of shared memory besides what they are launched with. */
#define MMA_STATIC_SMEM_BYTES 2048u

bool sl_gpu_mma_fits(const struct sl_gpu *c, enum sl_kernel_family family, enum sl_dtype t,
                     uint32_t n_in, uint32_t n_out, uint32_t tile_rows, uint32_t smem_bytes) {
    return sl_gpu_has(c, family, t) && n_in % 256 == 0 && n_out % tile_rows == 0 &&
           smem_bytes + MMA_STATIC_SMEM_BYTES <= c->max_smem_bytes;
}

uint32_t sl_gpu_vec_at_once(enum sl_dtype t, uint32_t n_in) {
    if (sl_is_float(t))
        return SL_MATVEC_WARPS * 2;
    uint32_t items = sl_ceil_div(n_in, 1024); /* that a row's blocks make: vec.cuh */
    uint32_t split = items > 4 ? 8 : items > 2 ? 4 : items;
    return SL_MATVEC_WARPS / split * 4;
}

uint32_t sl_gpu_gemm_smem(enum sl_dtype t, uint32_t tile_n) {
    if (sl_is_float(t))
        return 0; /* static */
    return SL_GEMM_SMEM(tile_n);
}

uint32_t sl_gpu_vec_rows(const struct sl_gpu *c, uint64_t n_rows, uint32_t at_once,
                         uint32_t blocks) {
    uint64_t round = (uint64_t)c->n_sm * blocks * at_once, rounds = (n_rows + round - 1) / round;
    return (uint32_t)(rounds < 64 ? rounds : 64) * at_once;
}

/* (row, head) pairs that are quantised at once: the scratch has room for so many. */
#define HEAD_ROWS_MAX 65536u

static uint64_t head_scratch(const struct sl_device_limits *limits) {
    uint64_t rows = (uint64_t)limits->max_tok * limits->max_heads;
    struct sl_gpu_carve v = {0, 0};
    if (!limits->max_head_n)
        return 0;
    sl_gpu_carve_qx(&v, rows < HEAD_ROWS_MAX ? rows : HEAD_ROWS_MAX, limits->max_head_n);
    return v.used_bytes;
}

uint64_t sl_gpu_matmul_scratch(const struct sl_device_limits *limits) {
    uint64_t heads = head_scratch(limits);
    struct sl_gpu_carve v = {0, 0};
    sl_gpu_carve_qx(&v, limits->max_tok, limits->max_n_in);
    return v.used_bytes > heads ? v.used_bytes : heads;
}

/* Whether no weight before the i-th has its type: those of one type go together. */
static bool is_first_of_type(const struct sl_op_matmul *a, uint32_t i) {
    for (uint32_t j = 0; j < i; j++)
        if (a->out[j].w.dtype == a->out[i].w.dtype)
            return false;
    return true;
}

/* Rows of all weights of type t. */
static uint64_t rows_of_type(const struct sl_op_matmul *a, enum sl_dtype t) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < a->n_w; i++)
        n += a->out[i].w.dtype == t ? a->out[i].w.n_out : 0;
    return n;
}

/* Weights of a's list that have type t, as the kernels take them; rows row0 on. */
static uint32_t collect(const struct sl_op_matmul *a, enum sl_dtype t, uint32_t row0,
                        uint32_t rows_per_block, struct sl_karg_mat *mat, uint32_t *first,
                        uint32_t *n_blocks) {
    uint32_t n = 0;
    *n_blocks = 0;
    for (uint32_t i = 0; i < a->n_w; i++) {
        const struct sl_matmul_out *o = &a->out[i];
        if (o->w.dtype != t)
            continue;
        mat[n] = (struct sl_karg_mat){.w = o->w.data,
                                      .bias = o->bias,
                                      .y = o->y + (size_t)row0 * o->w.n_out,
                                      .n_out = o->w.n_out,
                                      .add = o->add};
        first[n++] = *n_blocks;
        *n_blocks += sl_ceil_div(o->w.n_out, rows_per_block);
    }
    return n;
}

/* Input rows that a block takes: each weight is then read once for all of them. More shared memory
 * than this would leave too few blocks on a multiprocessor. */
#define VEC_SMEM_BYTES (64u << 10)

static uint32_t tok_per_block(enum sl_dtype t, uint32_t n_in, uint32_t n_rows, bool norm) {
    uint32_t n = n_rows < SL_VEC_MAX_TOK ? n_rows : SL_VEC_MAX_TOK;
    while (n > 1 && sl_gpu_vec_smem(t, n_in, n) + (norm ? n * n_in * 4 : 0) > VEC_SMEM_BYTES)
        n--;
    return n;
}

/* The first n_rows rows through the decode kernel; norm: of the input, or NULL. */
static enum sl_status vec(struct sl_gpu *c, const struct sl_op_matmul *a, enum sl_dtype t,
                          uint32_t n_rows, const struct sl_op_rms_norm *norm) {
    uint32_t n_in = a->out[0].w.n_in, n_blocks, at_once = sl_gpu_vec_at_once(t, n_in);
    uint64_t n_out = rows_of_type(a, t);
    struct sl_karg_matvec k = {.x = norm ? norm->x : a->x,
                               .n_in = n_in,
                               .n_tok = n_rows,
                               .tok_per_block = tok_per_block(t, n_in, n_rows, norm),
                               .norm.eps = -1};
    uint32_t smem = sl_gpu_vec_smem(t, n_in, k.tok_per_block);
    if (norm) {
        k.norm = (struct sl_karg_norm){norm->w, norm->y, norm->eps};
        k.norm_at = smem;
        smem += k.tok_per_block * n_in * 4;
    }
    uint32_t n_y = sl_ceil_div(n_rows, k.tok_per_block);
    k.rows_per_block = sl_gpu_vec_rows(c, n_out * n_y, at_once, SL_MATVEC_BLOCKS);
    k.n_mat = collect(a, t, 0, k.rows_per_block, k.mat, k.first, &n_blocks);
    return SL_LAUNCH(c, sl_kernel_of(SL_FAMILY_matvec, t), ((struct sl_dim3){n_blocks, n_y, 1}),
                     ((struct sl_dim3){SL_MATVEC_WARPS * SL_WARP, 1, 1}), smem, k);
}

/* Rows from which on the tensor cores' kernel is faster, though inputs are quantised by a kernel of
 * their own for it: that counts less where there are many weights. */
#define MMA_MIN_ROWS           3u
#define MMA_MIN_ROWS_MANY      2u
#define MMA_MIN_ROWS_MANY_Q8_0 1u
#define MMA_MANY_OUT           32768u
/* ... and up to which: blocks take SL_VEC_MAX_TOK of them each, and read the weights from the cache
 * again, which it has no room for where there are many. */
#define MMA_MAX_ROWS      64u
#define MMA_MAX_ROWS_MANY 8u

/* Warps that share a tile of n_out output rows in all. Q8_0: none where all warps of a block on
 * each multiprocessor have one of their own; it has eight joins an item to share. */
static uint32_t mma_split(const struct sl_gpu *c, enum sl_dtype t, uint32_t n_in, uint64_t n_out) {
    if (t == SL_DTYPE_Q8_0 && n_out >= (uint64_t)c->n_sm * SL_MATVEC_WARPS * SL_MMA_TILE)
        return 1;
    return sl_gpu_mma_split(n_in);
}

/* Whether it takes a weight, with so much shared memory. Q8_0 needs no whole tiles (mma_q8.cuh). */
static bool mma_takes(const struct sl_gpu *c, const struct sl_weight *w, uint32_t smem_bytes) {
    if (w->dtype != SL_DTYPE_Q8_0)
        return sl_gpu_mma_fits(c, SL_FAMILY_matvec_mma, w->dtype, w->n_in, w->n_out, SL_MMA_TILE,
                               smem_bytes);
    return sl_gpu_has(c, SL_FAMILY_matvec_mma, w->dtype) && w->n_in % 256 == 0 &&
           w->n_out >= SL_MMA_TILE && (uintptr_t)w->data % 16 == 0 &&
           smem_bytes + MMA_STATIC_SMEM_BYTES <= c->max_smem_bytes;
}

/* Whether it takes a's weights of type t, with how many input rows a block. */
static uint32_t mma_rows(const struct sl_gpu *c, const struct sl_op_matmul *a, enum sl_dtype t) {
    uint64_t n_out = rows_of_type(a, t);
    uint32_t many = t == SL_DTYPE_Q8_0 ? MMA_MIN_ROWS_MANY_Q8_0 : MMA_MIN_ROWS_MANY;
    if (a->n_tok < (n_out < MMA_MANY_OUT ? MMA_MIN_ROWS : many) ||
        a->n_tok > (n_out < MMA_MANY_OUT ? MMA_MAX_ROWS : MMA_MAX_ROWS_MANY))
        return 0;
    uint32_t n_in = a->out[0].w.n_in, split = mma_split(c, t, n_in, n_out);
    uint32_t n = sl_ceil_div(a->n_tok, sl_ceil_div(a->n_tok, SL_VEC_MAX_TOK)); /* equal parts */
    for (; n; n--) {
        uint32_t smem = sl_gpu_mma_smem(t, n_in, split, UINT32_MAX, n).smem_bytes;
        bool fits = true;
        for (uint32_t i = 0; i < a->n_w; i++)
            fits &= a->out[i].w.dtype != t || mma_takes(c, &a->out[i].w, smem);
        if (fits)
            break;
    }
    return n;
}

/* All rows, quantised in qx, through the decode kernel on tensor cores, `rows` a block. */
static enum sl_status vec_mma(struct sl_gpu *c, const struct sl_op_matmul *a, enum sl_dtype t,
                              uint32_t rows, const struct sl_karg_qx *qx) {
    uint32_t n_in = a->out[0].w.n_in, n_y = sl_ceil_div(a->n_tok, rows), n_blocks;
    uint64_t n_out = rows_of_type(a, t);
    uint32_t split = mma_split(c, t, n_in, n_out), at_once = SL_MATVEC_WARPS / split * SL_MMA_TILE;
    struct sl_karg_matvec_mma k = {
        .qx = *qx, .n_in = n_in, .n_tok = a->n_tok, .tok_per_block = rows};
    k.rows_per_block = sl_gpu_vec_rows(c, n_out * n_y, at_once, SL_MMA_BLOCKS);
    struct sl_gpu_mma m = sl_gpu_mma_smem(
        t, n_in, split, k.rows_per_block / at_once * sl_gpu_mma_steps(n_in, split), rows);
    k.slots = m.slots;
    k.in_at = m.in_at;
    k.log_split = split == 8 ? 3 : split == 4 ? 2 : 0;
    k.n_mat = collect(a, t, 0, k.rows_per_block, k.mat, k.first, &n_blocks);
    return SL_LAUNCH(c, sl_kernel_of(SL_FAMILY_matvec_mma, t), ((struct sl_dim3){n_blocks, n_y, 1}),
                     ((struct sl_dim3){SL_MATVEC_WARPS * SL_WARP, 1, 1}), m.smem_bytes, k);
}

/* Output rows that a block of matvec_few takes, so that the multiprocessors have one to four blocks
 * each and a kernel that starts early still has room alongside them. 0: it does not take a's
 * weights of type t. */
#define FEW_SMEM_BYTES (100u << 10)
#define FEW_ROUNDS     4u

static uint32_t few_rows(const struct sl_gpu *c, const struct sl_op_matmul *a, enum sl_dtype t,
                         bool norm) {
    uint32_t n_in = a->out[0].w.n_in, most = SL_FEW_THREADS / a->n_tok;
    uint32_t room = c->max_smem_bytes < FEW_SMEM_BYTES ? c->max_smem_bytes : FEW_SMEM_BYTES;
    if (t != SL_DTYPE_Q4_K || a->n_tok > SL_FEW_MAX_TOK || n_in % 256 ||
        !sl_gpu_has(c, SL_FAMILY_matvec_few, a->n_tok))
        return 0;
    for (uint32_t i = 0; i < a->n_w; i++)
        if (a->out[i].w.dtype == t && (uintptr_t)a->out[i].w.data % 16)
            return 0;
    while (most && SL_FEW_SMEM(n_in, most, a->n_tok, norm) > room)
        most--;
    for (uint32_t round = 1; round <= FEW_ROUNDS; round++) {
        uint32_t budget = c->n_sm * round, rows = sl_ceil_div(rows_of_type(a, t), budget);
        for (; rows && rows <= most; rows++) {
            uint32_t blocks = 0;
            for (uint32_t i = 0; i < a->n_w; i++)
                blocks += a->out[i].w.dtype == t ? sl_ceil_div(a->out[i].w.n_out, rows) : 0;
            if (blocks <= budget)
                return rows;
        }
    }
    return 0;
}

static enum sl_status vec_few(struct sl_gpu *c, const struct sl_op_matmul *a, enum sl_dtype t,
                              uint32_t rows, const struct sl_op_rms_norm *norm) {
    uint32_t n_in = a->out[0].w.n_in, n_blocks;
    struct sl_karg_matvec k = {.x = norm ? norm->x : a->x,
                               .n_in = n_in,
                               .n_tok = a->n_tok,
                               .rows_per_block = rows,
                               .norm_at = SL_FEW_STAGE_BYTES(n_in, rows, a->n_tok, norm != NULL),
                               .norm.eps = -1};
    if (norm)
        k.norm = (struct sl_karg_norm){norm->w, norm->y, norm->eps};
    k.n_mat = collect(a, t, 0, rows, k.mat, k.first, &n_blocks);
    return SL_LAUNCH(c, sl_kernel_of(SL_FAMILY_matvec_few, a->n_tok),
                     ((struct sl_dim3){n_blocks, 1, 1}), ((struct sl_dim3){SL_FEW_THREADS, 1, 1}),
                     SL_FEW_SMEM(n_in, rows, a->n_tok, norm != NULL), k);
}

/* How matvec_block cuts a's weights of type t: all of a block's rows at once where two blocks a
 * multiprocessor have room for them, else so many at once that copies and products keep each other
 * busy. rows_per_block 0: it does not take them. */
#define BLOCK_SMEM_BYTES  (100u << 10)
#define BLOCK_STAGE_BYTES (40u << 10)

static struct sl_karg_matvec_block block_cut(const struct sl_gpu *c, const struct sl_op_matmul *a,
                                             enum sl_dtype t) {
    struct sl_karg_matvec_block k = {.n_in = a->out[0].w.n_in, .n_tok = a->n_tok};
    const struct sl_karg_matvec_block none = k;
    uint32_t row_bytes = (uint32_t)sl_dtype_row_bytes(t, k.n_in), step = 1, n_mat = 0;
    if (!sl_gpu_has(c, SL_FAMILY_matvec_block, t) || a->n_tok > SL_VEC_MAX_TOK)
        return none;
    while (step * row_bytes % 16)
        step *= 2;
    for (uint32_t i = 0; i < a->n_w; i++) {
        if (a->out[i].w.dtype != t)
            continue;
        if ((uintptr_t)a->out[i].w.data % 16)
            return none;
        n_mat++;
    }
    uint32_t in_bytes = a->n_tok * sl_ceil_div(k.n_in, 256) * SL_BLOCK_GROUP_BYTES;
    uint64_t blocks = (uint64_t)c->n_sm * 2;
    uint64_t rows =
        sl_ceil_div(rows_of_type(a, t), (uint32_t)(blocks > n_mat ? blocks - n_mat : 1));
    k.rows_per_block = (uint32_t)(rows + step - 1) / step * step;
    for (k.stages = 1; k.stages <= 2; k.stages++) {
        k.rows_at_once = k.rows_per_block;
        if (k.stages == 2) {
            k.rows_at_once = BLOCK_STAGE_BYTES / row_bytes / step * step;
            if (!k.rows_at_once)
                return none;
            k.rows_per_block = sl_ceil_div(k.rows_per_block, k.rows_at_once) * k.rows_at_once;
        }
        uint64_t stage_bytes = (uint64_t)k.rows_at_once * row_bytes;
        uint64_t terms = (uint64_t)k.rows_at_once * SL_MATVEC_BLOCK_TERMS(k.n_in);
        uint64_t norm = (uint64_t)k.n_in * 4;
        uint64_t bytes = k.stages * stage_bytes + in_bytes + (terms > norm ? terms : norm);
        if (bytes > BLOCK_SMEM_BYTES || bytes + MMA_STATIC_SMEM_BYTES > c->max_smem_bytes ||
            k.rows_at_once > SL_MATVEC_WARPS * SL_WARP)
            continue;
        k.stage_bytes = (uint32_t)stage_bytes;
        k.in_at = (uint32_t)(k.stages * stage_bytes);
        k.terms_at = k.in_at + in_bytes;
        return k;
    }
    return none;
}

static enum sl_status vec_block(struct sl_gpu *c, const struct sl_op_matmul *a, enum sl_dtype t,
                                struct sl_karg_matvec_block k, const struct sl_op_rms_norm *norm) {
    uint32_t n_blocks, terms = k.rows_at_once * SL_MATVEC_BLOCK_TERMS(k.n_in);
    k.x = norm ? norm->x : a->x;
    k.norm.eps = -1;
    if (norm)
        k.norm = (struct sl_karg_norm){norm->w, norm->y, norm->eps};
    k.n_mat = collect(a, t, 0, k.rows_per_block, k.mat, k.first, &n_blocks);
    return SL_LAUNCH(c, sl_kernel_of(SL_FAMILY_matvec_block, t), ((struct sl_dim3){n_blocks, 1, 1}),
                     ((struct sl_dim3){SL_MATVEC_WARPS * SL_WARP, 1, 1}),
                     k.terms_at + (terms > k.n_in * 4 ? terms : k.n_in * 4), k);
}

/* Rows of quantised weights that neither tensor cores nor matvec_few take. */
static enum sl_status vec_or_block(struct sl_gpu *c, const struct sl_op_matmul *a, enum sl_dtype t,
                                   const struct sl_op_rms_norm *norm) {
    struct sl_karg_matvec_block k = block_cut(c, a, t);
    return k.rows_per_block ? vec_block(c, a, t, k, norm) : vec(c, a, t, a->n_tok, norm);
}

/* t: how the products want the input. */
static enum sl_status norm_quantize(struct sl_gpu *c, enum sl_dtype t,
                                    const struct sl_op_rms_norm *norm,
                                    const struct sl_karg_qx *to) {
    struct sl_karg_norm_quantize k = {
        norm->x, {norm->w, norm->y, norm->eps}, *to, norm->n, sl_is_block32(t)};
    return SL_LAUNCH(c, SL_KERNEL_fused_norm_quantize, ((struct sl_dim3){norm->n_rows, 1, 1}),
                     ((struct sl_dim3){SL_MATVEC_WARPS * SL_WARP, 1, 1}), norm->n * 4, k);
}

/* Rows up to which doing the norm again in every block is cheaper than a kernel of its own. */
#define MAX_NORM_ROWS 2u
_Static_assert(SL_FEW_MAX_TOK <= MAX_NORM_ROWS, "matvec_few norms its own input");

/* The first weight that goes through tensor cores if the first launch is not the one that norms;
 * a->n_w: none. */
static uint32_t first_mma(const struct sl_gpu *c, const struct sl_op_matmul *a) {
    uint32_t i = 0;
    while (i < a->n_w &&
           (few_rows(c, a, a->out[i].w.dtype, i == 0) || !mma_rows(c, a, a->out[i].w.dtype)))
        i++;
    return i;
}

/* Whether that is faster than the norm alone and then the products. */
static bool norm_pays(const struct sl_gpu *c, const struct sl_op_matmul *a) {
    if (a->n_tok <= SL_VEC_MAX_TOK)
        return a->n_tok <= MAX_NORM_ROWS || mma_rows(c, a, a->out[0].w.dtype);
    for (uint32_t i = 0; i < a->n_w; i++)
        if (!mma_rows(c, a, a->out[i].w.dtype))
            return false;
    return true;
}

bool sl_gpu_takes_norm_matmul(const struct sl_device *d, const struct sl_fused_norm_matmul *a) {
    return sl_gpu_norm_fits(a->norm) && norm_pays((const struct sl_gpu *)d, a->matmul);
}

enum sl_status sl_gpu_fused_norm_matmul(struct sl_device *d,
                                        const struct sl_fused_norm_matmul *fused) {
    struct sl_gpu *c = (struct sl_gpu *)d;
    const struct sl_op_rms_norm *norm = fused->norm;
    const struct sl_op_matmul *a = fused->matmul;
    struct sl_gpu_carve v = {(uintptr_t)c->scratch, 0};
    struct sl_karg_qx qx = sl_gpu_carve_qx(&v, a->n_tok, norm->n);
    uint32_t mma = first_mma(c, a);
    bool split = mma < a->n_w;
    int quantized = -1; /* the kind that qx holds: block32 or not */
    if (split) {
        SL_TRY(norm_quantize(c, a->out[mma].w.dtype, norm, &qx));
        quantized = sl_is_block32(a->out[mma].w.dtype);
    }
    for (uint32_t i = 0; i < a->n_w; i++) {
        enum sl_dtype t = a->out[i].w.dtype;
        /* The first launch leaves what is normed for the others. */
        const struct sl_op_rms_norm *own = i || split ? NULL : norm;
        if (!is_first_of_type(a, i))
            continue;
        uint32_t few = few_rows(c, a, t, own != NULL), rows = mma_rows(c, a, t);
        if (few) {
            SL_TRY(vec_few(c, a, t, few, own));
            continue;
        }
        if (!rows) {
            SL_TRY(vec_or_block(c, a, t, own));
            continue;
        }
        if (quantized != sl_is_block32(t))
            SL_TRY(sl_gpu_quantize(c, t, a->x, a->n_tok, norm->n, &qx));
        quantized = sl_is_block32(t);
        SL_TRY(vec_mma(c, a, t, rows, &qx));
    }
    return SL_OK;
}

/* Outputs up to which the tiles of gemm_narrow are faster. */
#define NARROW_MAX_OUT 1024u

static bool is_narrow(const struct sl_gpu *c, const struct sl_op_matmul *a, enum sl_dtype t) {
    uint32_t n_in = a->out[0].w.n_in;
    uintptr_t addresses = (uintptr_t)a->x;
    if (t != SL_DTYPE_F32 || n_in % 4 || rows_of_type(a, t) > NARROW_MAX_OUT ||
        !sl_gpu_has(c, SL_FAMILY_gemm_narrow, t) || SL_GEMM_NARROW_SMEM > c->max_smem_bytes)
        return false;
    for (uint32_t i = 0; i < a->n_w; i++)
        addresses |= a->out[i].w.dtype == t ? (uintptr_t)a->out[i].w.data : 0;
    return addresses % 16 == 0;
}

static enum sl_status gemm_narrow(struct sl_gpu *c, const struct sl_op_matmul *a, enum sl_dtype t,
                                  uint32_t row0) {
    uint32_t n_in = a->out[0].w.n_in, n_blocks;
    struct sl_karg_gemm k = {
        .x = a->x + (size_t)row0 * n_in, .n_in = n_in, .n_tok = a->n_tok - row0};
    k.n_mat = collect(a, t, row0, SL_GEMM_NARROW_M, k.mat, k.first, &n_blocks);
    struct sl_dim3 grid = {sl_ceil_div(k.n_tok, SL_GEMM_NARROW_N), n_blocks, 1};
    return SL_LAUNCH(c, sl_kernel_of(SL_FAMILY_gemm_narrow, t), grid,
                     ((struct sl_dim3){SL_GEMM_NARROW_THREADS, 1, 1}), SL_GEMM_NARROW_SMEM, k);
}

static enum sl_status gemm(struct sl_gpu *c, const struct sl_op_matmul *a, enum sl_dtype t,
                           const struct sl_karg_qx *qx, uint32_t row0) {
    uint32_t n_in = a->out[0].w.n_in, n_rows = a->n_tok - row0, n_blocks;
    uint64_t n_out = rows_of_type(a, t);
    if (is_narrow(c, a, t))
        return gemm_narrow(c, a, t, row0);
    /* Wide tiles when there are enough to give every multiprocessor one. */
    bool large =
        sl_gpu_gemm_large_fits(c, t) && n_out / SL_GEMM_M * (n_rows / SL_GEMM_N_LARGE) >= c->n_sm;
    uint32_t tile_n = large ? SL_GEMM_N_LARGE : SL_GEMM_N_SMALL;
    struct sl_karg_gemm k = {
        .qx = *qx, .x = a->x + (size_t)row0 * n_in, .n_in = n_in, .n_tok = n_rows};
    k.n_mat = collect(a, t, row0, SL_GEMM_M, k.mat, k.first, &n_blocks);
    struct sl_dim3 grid = {sl_ceil_div(n_rows, tile_n), n_blocks, 1};
    return SL_LAUNCH(c, sl_kernel_of(large ? SL_FAMILY_gemm_large : SL_FAMILY_gemm_small, t), grid,
                     ((struct sl_dim3){256, 1, 1}), sl_gpu_gemm_smem(t, tile_n), k);
}

enum sl_status sl_gpu_matmul(struct sl_device *d, const struct sl_op_matmul *a) {
    struct sl_gpu *c = (struct sl_gpu *)d;
    struct sl_gpu_carve v = {(uintptr_t)c->scratch, 0};
    struct sl_karg_qx qx = sl_gpu_carve_qx(&v, a->n_tok, a->out[0].w.n_in);
    int quantized = -1; /* the kind that qx holds: block32 or not */
    for (uint32_t i = 0; i < a->n_w; i++) {
        enum sl_dtype t = a->out[i].w.dtype;
        if (!is_first_of_type(a, i))
            continue;
        if (sl_is_float(t)) {
            if (a->n_decode)
                SL_TRY(vec(c, a, t, a->n_decode, NULL));
            if (a->n_decode < a->n_tok)
                SL_TRY(gemm(c, a, t, &qx, a->n_decode));
            continue;
        }
        uint32_t few = few_rows(c, a, t, false), rows = mma_rows(c, a, t);
        if (few) {
            SL_TRY(vec_few(c, a, t, few, NULL));
            continue;
        }
        if (!rows && a->n_tok < SL_GPU_GEMM_MIN_ROWS) {
            SL_TRY(vec_or_block(c, a, t, NULL));
            continue;
        }
        int kind = sl_is_block32(t);
        if (quantized != kind)
            SL_TRY(sl_gpu_quantize(c, t, a->x, a->n_tok, a->out[0].w.n_in, &qx));
        quantized = kind;
        if (rows)
            SL_TRY(vec_mma(c, a, t, rows, &qx));
        else
            SL_TRY(gemm(c, a, t, &qx, 0));
    }
    return SL_OK;
}

/* ---- one matrix for each head ---- */

#define GRID_MAX 65535u /* along z, where rows are */

static enum sl_status head_turned(struct sl_gpu *c, enum sl_dtype t, const struct sl_karg_head *k) {
    uint32_t n = sl_is_float(t) ? k->n_out : sl_ceil_div(k->n_out, 32);
    struct sl_dim3 grid = {sl_ceil_div(n, SL_HEAD_TURNED_THREADS), k->n_heads, 1};
    struct sl_karg_head part = *k;
    for (uint32_t at = 0; at < k->n_tok; at += GRID_MAX) {
        part.n_tok = grid.z = k->n_tok - at < GRID_MAX ? k->n_tok - at : GRID_MAX;
        part.x = k->x + (size_t)at * k->n_heads * k->stride_x;
        part.y = k->y + (size_t)at * k->n_heads * k->stride_y;
        SL_TRY(SL_LAUNCH(c, sl_kernel_of(SL_FAMILY_head_turned, t), grid,
                         ((struct sl_dim3){SL_HEAD_TURNED_THREADS, 1, 1}), 0, part));
    }
    return SL_OK;
}

/* Rows and shared memory for which the tensor cores' kernel is there; it gives the same bits. */
static bool head_gemm_fits(const struct sl_gpu *c, const struct sl_op_head_matmul *a) {
    return a->n_tok >= SL_GPU_GEMM_MIN_ROWS && a->n_heads <= HEAD_ROWS_MAX &&
           sl_gpu_has(c, SL_FAMILY_head_gemm, a->dtype) &&
           sl_gpu_has(c, SL_FAMILY_head_gemm_quantize, 0) &&
           SL_GEMM_SMEM(SL_GEMM_N_LARGE) <= c->max_smem_bytes;
}

static enum sl_status head_gemm(struct sl_gpu *c, const struct sl_op_head_matmul *a) {
    uint32_t most = HEAD_ROWS_MAX / a->n_heads;
    struct sl_gpu_carve v = {(uintptr_t)c->scratch, 0};
    struct sl_karg_head_gemm k = {
        .qx = sl_gpu_carve_qx(&v, (uint64_t)(a->n_tok < most ? a->n_tok : most) * a->n_heads,
                              a->n_in),
        .w = a->w,
        .head_bytes = a->head_bytes,
        .n_heads = a->n_heads,
        .n_in = a->n_in,
        .n_out = a->n_out,
        .n_keep = a->n_keep,
        .stride_x = a->stride_x,
        .stride_y = a->stride_y,
        .block32 = sl_is_block32(a->dtype)};
    for (uint32_t at = 0; at < a->n_tok; at += most) {
        k.n_tok = a->n_tok - at < most ? a->n_tok - at : most;
        k.x = a->x + (size_t)at * a->n_heads * a->stride_x;
        k.y = a->y + (size_t)at * a->n_heads * a->stride_y;
        struct sl_dim3 rows = {k.n_tok * a->n_heads, sl_ceil_div(sl_pad_256(a->n_in) / 256, 8), 1};
        SL_TRY(
            SL_LAUNCH(c, SL_KERNEL_head_gemm_quantize, rows, ((struct sl_dim3){256, 1, 1}), 0, k));
        struct sl_dim3 grid = {sl_ceil_div(k.n_tok, SL_GEMM_N_LARGE),
                               sl_ceil_div(a->n_out, SL_GEMM_M), a->n_heads};
        SL_TRY(SL_LAUNCH(c, sl_kernel_of(SL_FAMILY_head_gemm, a->dtype), grid,
                         ((struct sl_dim3){256, 1, 1}), SL_GEMM_SMEM(SL_GEMM_N_LARGE), k));
    }
    return SL_OK;
}

enum sl_status sl_gpu_head_matmul(struct sl_device *d, const struct sl_op_head_matmul *a) {
    struct sl_gpu *c = (struct sl_gpu *)d;
    struct sl_karg_head k = {.x = a->x,
                             .y = a->y,
                             .w = a->w,
                             .head_bytes = a->head_bytes,
                             .n_tok = a->n_tok,
                             .n_heads = a->n_heads,
                             .n_in = a->n_in,
                             .n_out = a->n_out,
                             .n_keep = a->n_keep,
                             .stride_x = a->stride_x,
                             .stride_y = a->stride_y};
    if (a->transposed)
        return head_turned(c, a->dtype, &k);
    if (head_gemm_fits(c, a))
        return head_gemm(c, a);
    uint32_t at_once = sl_gpu_vec_at_once(a->dtype, a->n_in);
    k.tok_per_block = tok_per_block(a->dtype, a->n_in, a->n_tok, NULL);
    uint32_t n_z = sl_ceil_div(a->n_tok, k.tok_per_block);
    k.rows_per_block =
        sl_gpu_vec_rows(c, (uint64_t)a->n_out * a->n_heads * n_z, at_once, SL_MATVEC_BLOCKS);
    struct sl_dim3 grid = {sl_ceil_div(a->n_out, k.rows_per_block), a->n_heads, n_z};
    return SL_LAUNCH(c, sl_kernel_of(SL_FAMILY_head_matmul, a->dtype), grid,
                     ((struct sl_dim3){SL_MATVEC_WARPS * SL_WARP, 1, 1}),
                     sl_gpu_vec_smem(a->dtype, a->n_in, k.tok_per_block), k);
}
