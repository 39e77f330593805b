/* Which recorded ops one call of a backend may take the place of: those that follow one another as
 * the layer loop submits them for a few generated rows. What does not match goes as it came.
 *
 * find_NAME looks only at what a form is, and fills its arguments; whether a device does it in one,
 * for such shapes and types, is for the backend to say. */
#include "backends/recorded.h"

#include <assert.h>

static bool is(const struct sl_recorded_op *op, uint32_t n, uint32_t i, enum sl_op kind) {
    return i < n && op[i].kind == kind;
}

/* Whether a matmul's rows are generated ones, with the norm's result as their input. */
static bool reads_norm(const struct sl_op_rms_norm *norm, const struct sl_op_matmul *a) {
    if (norm->stride_x != norm->n || norm->stride_y != norm->n || norm->x == norm->y ||
        a->x != norm->y || a->n_tok != norm->n_rows || a->n_decode != a->n_tok ||
        a->out[0].w.n_in != norm->n)
        return false;
    for (uint32_t i = 0; i < a->n_w; i++) /* outputs that a norm done later would read */
        if (a->out[i].y == norm->x || a->out[i].y == norm->y)
            return false;
    return true;
}

/* Each returns how many ops the form has from op on; 0: it is none. */
static uint16_t find_norm_router(const struct sl_recorded_op *op, uint32_t n,
                                 struct sl_fused_norm_router *out) {
    if (!is(op, n, 0, SL_OP_rms_norm) || !is(op, n, 1, SL_OP_matmul) || !is(op, n, 2, SL_OP_router))
        return 0;
    *out = (struct sl_fused_norm_router){&op[0].u.rms_norm, &op[1].u.matmul, &op[2].u.router};
    const struct sl_op_matmul *logits = out->logits;
    const struct sl_op_router *router = out->router;
    const struct sl_matmul_out *o = &logits->out[0];
    bool found = reads_norm(out->norm, logits) && logits->n_w == 1 && !o->add &&
                 o->y == router->logits && o->w.n_out == router->n_expert &&
                 logits->n_tok == router->n_tok;
    return found ? 3 : 0;
}

static uint16_t find_norm_matmul(const struct sl_recorded_op *op, uint32_t n,
                                 struct sl_fused_norm_matmul *out) {
    if (!is(op, n, 0, SL_OP_rms_norm) || !is(op, n, 1, SL_OP_matmul))
        return 0;
    *out = (struct sl_fused_norm_matmul){&op[0].u.rms_norm, &op[1].u.matmul};
    return reads_norm(out->norm, out->matmul) ? 2 : 0;
}

/* A norm of all heads in place. */
static bool head_norm(const struct sl_op_rms_norm *a, const struct sl_op_rope *rope) {
    return a->x == rope->x && a->y == rope->x && a->n == rope->head_dim &&
           a->n_rows == rope->n_tok * rope->n_heads && a->stride_x == a->n && a->stride_y == a->n;
}

static uint16_t find_qkv(const struct sl_recorded_op *op, uint32_t n, struct sl_fused_qkv *out) {
    uint16_t at = is(op, n, 0, SL_OP_rms_norm) && is(op, n, 1, SL_OP_rms_norm) ? 2 : 0;
    if (!is(op, n, at, SL_OP_rope) || !is(op, n, at + 1, SL_OP_rope) ||
        !is(op, n, at + 2, SL_OP_kv_write))
        return 0;
    *out = (struct sl_fused_qkv){.q_norm = at ? &op[0].u.rms_norm : NULL,
                                 .k_norm = at ? &op[1].u.rms_norm : NULL,
                                 .q_rope = &op[at].u.rope,
                                 .k_rope = &op[at + 1].u.rope,
                                 .write = &op[at + 2].u.kv_write};
    const struct sl_op_rope *q = out->q_rope, *k = out->k_rope;
    const struct sl_op_kv_write *w = out->write;
    bool found = (!at || (head_norm(out->q_norm, q) && head_norm(out->k_norm, k))) &&
                 q->head_dim == k->head_dim && q->table == k->table && q->n_freq == k->n_freq &&
                 q->style == k->style && q->n_tok == k->n_tok && q->n_tok == w->n_tok &&
                 w->k == k->x && w->kv.n_kv_heads == k->n_heads &&
                 w->kv.head_dim_k == k->head_dim && q->stride == q->n_heads * q->head_dim &&
                 k->stride == k->n_heads * k->head_dim && w->stride_k == k->stride;
    return found ? (uint16_t)(at + 3) : 0;
}

static uint16_t find_moe_sum(const struct sl_recorded_op *op, uint32_t n,
                             struct sl_fused_moe_sum *out) {
    if (!is(op, n, 0, SL_OP_moe) || !is(op, n, 1, SL_OP_moe_combine))
        return 0;
    *out = (struct sl_fused_moe_sum){&op[0].u.moe, &op[1].u.moe_combine};
    const struct sl_op_moe *moe = out->moe;
    const struct sl_op_moe_combine *sum = out->sum;
    bool found = !moe->pairs && moe->n_decode == moe->n_tok && sum->pair_y == moe->pair_y &&
                 sum->n_tok == moe->n_tok && sum->k == moe->k && sum->n == moe->n_embd &&
                 sum->y != moe->pair_y;
    return found ? 2 : 0;
}

/* The first form of the list that begins at op and that the device has and takes. */
static uint16_t find(const struct sl_device *d, const struct sl_recorded_op *op, uint32_t n,
                     enum sl_fused *out_fused) {
    uint16_t n_ops;
#define SL_FUSED(name)                                                                             \
    if (d->caps.fused_ops >> SL_FUSED_##name & 1 && d->ops->fused_##name) {                        \
        struct sl_fused_##name a;                                                                  \
        n_ops = find_##name(op, n, &a);                                                            \
        if (n_ops && (!d->ops->takes_##name || d->ops->takes_##name(d, &a))) {                     \
            *out_fused = SL_FUSED_##name;                                                          \
            return n_ops;                                                                          \
        }                                                                                          \
    }
#include "backends/fused.def"
    *out_fused = SL_FUSED_COUNT;
    return 1;
}

void sl_fuse(const struct sl_device *d, struct sl_recorded_op *ops, uint32_t n) {
    for (uint32_t i = 0; i < n;) {
        enum sl_fused fused;
        uint16_t n_ops = find(d, ops + i, n - i, &fused);
        ops[i].fused = (uint16_t)fused;
        ops[i].n = n_ops;
        for (uint32_t k = 1; k < n_ops; k++)
            ops[i + k].n = 0;
        i += n_ops;
    }
}

enum sl_status sl_fuse_submit(struct sl_device *d, const struct sl_recorded_op *op) {
    switch ((enum sl_fused)op->fused) {
#define SL_FUSED(name)                                                                             \
    case SL_FUSED_##name: {                                                                        \
        struct sl_fused_##name a;                                                                  \
        uint16_t n_ops = find_##name(op, op->n, &a);                                               \
        assert(n_ops == op->n);                                                                    \
        return n_ops == op->n ? d->ops->fused_##name(d, &a) : SL_ERR_INVALID;                      \
    }
#include "backends/fused.def"
    case SL_FUSED_COUNT:
        break;
    }
    return SL_ERR_INVALID;
}
