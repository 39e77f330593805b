/* From kept ops to launches. Where ops follow one another as the layer loop submits them for a few
 * generated rows, one kernel takes their place: the same operations in the same order, so the same
 * bits, and every buffer that an op writes is written. What does not match goes as it came. */
#include "backends/cuda/ops_internal.h"

static bool is(const struct sl_cuda_op *op, uint32_t n, uint32_t i, int kind) {
    return i < n && (int)op[i].kind == kind;
}

/* A norm of contiguous rows that sl_vec_norm does: sl_k_rms_norm takes 256 threads for it. */
static bool plain_norm(const struct sl_op_rms_norm *a) {
    return a->n > 256 && a->stride_x == a->n && a->stride_y == a->n && a->x != a->y;
}

/* Whether a matmul's rows are few generated ones with the norm's result as their input. */
static bool reads_norm(const struct sl_op_rms_norm *norm, const struct sl_op_matmul *a) {
    if (!plain_norm(norm) || a->x != norm->y || a->n_tok != norm->n_rows ||
        a->n_decode != a->n_tok || a->out[0].w.n_in != norm->n)
        return false;
    for (uint32_t i = 0; i < a->n_w; i++) /* outputs that the blocks' own norms would read */
        if (a->out[i].y == norm->x || a->out[i].y == norm->y)
            return false;
    return true;
}

/* rms_norm, matmul with the router's F32 matrix, router */
static enum sl_status try_route(struct sl_cuda *c, const struct sl_cuda_op *op, uint32_t n,
                                uint32_t *used) {
    if (!is(op, n, 0, SL_CUDA_OP_rms_norm) || !is(op, n, 1, SL_CUDA_OP_matmul) ||
        !is(op, n, 2, SL_CUDA_OP_router))
        return SL_OK;
    const struct sl_op_rms_norm *norm = &op[0].u.rms_norm;
    const struct sl_op_matmul *logits = &op[1].u.matmul;
    const struct sl_op_router *router = &op[2].u.router;
    const struct sl_matmul_out *o = &logits->out[0];
    if (!reads_norm(norm, logits) || logits->n_w != 1 || o->w.dtype != SL_DTYPE_F32 || o->bias ||
        o->add || o->y != router->logits || o->w.n_out != router->n_expert ||
        logits->n_tok != router->n_tok || router->n_tok > SL_VEC_MAX_TOK || norm->n > 8192 ||
        norm->n % 4)
        return SL_OK;
    *used = 3;
    return sl_cuda_route(c, norm, logits, router);
}

/* rms_norm, matmul */
static enum sl_status try_norm_matmul(struct sl_cuda *c, const struct sl_cuda_op *op, uint32_t n,
                                      uint32_t *used) {
    if (!is(op, n, 0, SL_CUDA_OP_rms_norm) || !is(op, n, 1, SL_CUDA_OP_matmul))
        return SL_OK;
    const struct sl_op_rms_norm *norm = &op[0].u.rms_norm;
    const struct sl_op_matmul *a = &op[1].u.matmul;
    if (!reads_norm(norm, a) || !sl_cuda_norm_matmul_fits(c, a) || norm->n > 8192 || norm->n % 4)
        return SL_OK;
    *used = 2;
    return sl_cuda_norm_matmul(c, norm, a);
}

/* A norm of all heads in place. */
static bool head_norm(const struct sl_op_rms_norm *a, const struct sl_op_rope *rope) {
    return a->x == rope->x && a->y == rope->x && a->n == rope->head_dim &&
           a->n_rows == rope->n_tok * rope->n_heads && a->stride_x == a->n && a->stride_y == a->n;
}

/* q norm and k norm or neither, rope of q, rope of k, kv_write */
static enum sl_status try_qkv(struct sl_cuda *c, const struct sl_cuda_op *op, uint32_t n,
                              uint32_t *used) {
    uint32_t at = is(op, n, 0, SL_CUDA_OP_rms_norm) && is(op, n, 1, SL_CUDA_OP_rms_norm) ? 2 : 0;
    if (!is(op, n, at, SL_CUDA_OP_rope) || !is(op, n, at + 1, SL_CUDA_OP_rope) ||
        !is(op, n, at + 2, SL_CUDA_OP_kv_write))
        return SL_OK;
    struct sl_cuda_qkv a = {.q_norm = at ? &op[0].u.rms_norm : NULL,
                            .k_norm = at ? &op[1].u.rms_norm : NULL,
                            .q_rope = &op[at].u.rope,
                            .k_rope = &op[at + 1].u.rope,
                            .write = &op[at + 2].u.kv_write};
    const struct sl_op_rope *q = a.q_rope, *k = a.k_rope;
    const struct sl_op_kv_write *w = a.write;
    if ((at && (!head_norm(a.q_norm, q) || !head_norm(a.k_norm, k))) ||
        q->head_dim > SL_QKV_MAX_DIM || w->kv.head_dim_v > SL_QKV_MAX_DIM ||
        q->head_dim != k->head_dim || q->table != k->table || q->n_freq != k->n_freq ||
        q->style != k->style || q->n_tok != k->n_tok || q->n_tok != w->n_tok || w->k != k->x ||
        w->kv.n_kv_heads != k->n_heads || w->kv.head_dim_k != k->head_dim ||
        q->stride != q->n_heads * q->head_dim || k->stride != k->n_heads * k->head_dim ||
        w->stride_k != k->stride || q->n_tok > 65535)
        return SL_OK;
    *used = at + 3;
    return sl_cuda_qkv(c, &a);
}

/* moe of all pairs, moe_combine */
static enum sl_status try_moe(struct sl_cuda *c, const struct sl_cuda_op *op, uint32_t n,
                              uint32_t *used) {
    if (!is(op, n, 0, SL_CUDA_OP_moe) || !is(op, n, 1, SL_CUDA_OP_moe_combine))
        return SL_OK;
    const struct sl_op_moe *moe = &op[0].u.moe;
    const struct sl_op_moe_combine *sum = &op[1].u.moe_combine;
    if (moe->pairs || moe->n_decode != moe->n_tok || moe->n_pairs >= SL_CUDA_SORT_MIN_PAIRS ||
        moe->k > SL_MOE_DOWN_MAX_K || sum->pair_y != moe->pair_y || sum->n_tok != moe->n_tok ||
        sum->k != moe->k || sum->n != moe->n_embd || sum->y == moe->pair_y ||
        sl_cuda_vec_smem(moe->down_dtype, moe->n_ff, moe->k) > c->max_smem_bytes - (4u << 10))
        return SL_OK;
    *used = 2;
    return sl_cuda_moe_sum(c, moe, sum);
}

static enum sl_status single(struct sl_cuda *c, const struct sl_cuda_op *op) {
    switch (op->kind) {
#define CASE(name)                                                                                 \
    case SL_CUDA_OP_##name:                                                                        \
        return sl_cuda_##name(&c->base, &op->u.name);
        SL_CUDA_OPS(CASE)
#undef CASE
    case SL_CUDA_OP_copy:
        return sl_cuda_copy(&c->base, SL_QUEUE_OPS, op->u.copy.dst, op->u.copy.src,
                            op->u.copy.bytes);
    }
    return SL_ERR_INVALID;
}

enum sl_status sl_cuda_emit(struct sl_cuda *c, const struct sl_cuda_op *op, uint32_t n) {
    static enum sl_status (*const tries[])(struct sl_cuda *, const struct sl_cuda_op *, uint32_t,
                                           uint32_t *) = {try_route, try_norm_matmul, try_qkv,
                                                          try_moe};
    for (uint32_t i = 0, used; i < n; i += used) {
        enum sl_status status = SL_OK;
        used = 0;
        for (size_t t = 0; t < sizeof tries / sizeof *tries && !used && !status; t++)
            status = tries[t](c, op + i, n - i, &used);
        if (!used && !status) {
            status = single(c, op + i);
            used = 1;
        }
        if (status)
            return status;
    }
    return SL_OK;
}
