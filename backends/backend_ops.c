/* The front of the ops: their arguments are checked here, then they go to the backend, or are kept
 * while ops are recorded. */
#include "backends/backend.h"

#include "backends/backend_internal.h"
#include "backends/recorded.h"

#include <math.h>
#include <string.h>

/* What every op comes to when its arguments have been checked. */
static enum sl_status refuse(const struct sl_device *d, enum sl_op op) {
    return UNSUPPORTED("device %s has no op '%s'", d->caps.id, sl_op_name(op));
}
#define SL_OP(name)                                                                                \
    static enum sl_status submit_##name(struct sl_device *d, const struct sl_op_##name *a) {       \
        if (!d->ops->name || d->caps.lacks_ops >> SL_OP_##name & 1)                                \
            return refuse(d, SL_OP_##name);                                                        \
        return d->recording ? sl_record_keep(d, SL_OP_##name, a, sizeof *a) : d->ops->name(d, a);  \
    }
#include "backends/ops.def"

/* n_tok within the limits given to configure, and n_decode within n_tok. */
static enum sl_status check_rows(const struct sl_device *d, const char *op, uint32_t n_tok,
                                 uint32_t n_decode) {
    if (n_tok > d->limits.max_tok)
        return INVALID("%s: %u rows; the device was configured for %u", op, n_tok,
                       d->limits.max_tok);
    if (n_decode > n_tok)
        return INVALID("%s: %u generated rows among %u", op, n_decode, n_tok);
    return SL_OK;
}

/* May the host look at what an op will read? What is recorded reads what is there at each replay.
 */
static bool can_look(const struct sl_device *d) {
    return d->caps.host_visible && !d->recording;
}

static enum sl_status check_dtype(const struct sl_device *d, const char *op, enum sl_dtype dtype,
                                  uint32_t n_in) {
    const struct sl_dtype_info *info = sl_dtype_info((uint32_t)dtype);
    if (!info || !d->caps.weight_dtype[dtype])
        return UNSUPPORTED("%s: %s has no weights of type %s (%u)", op, d->ops->name,
                           sl_dtype_name((uint32_t)dtype), (uint32_t)dtype);
    if (n_in == 0 || n_in % info->block_elems)
        return INVALID("%s: rows of %u elements are not whole %s blocks of %u", op, n_in,
                       info->name, info->block_elems);
    return SL_OK;
}

static enum sl_status check_kv(const struct sl_device *d, const char *op,
                               const struct sl_kv_view *kv) {
    if ((uint32_t)kv->dtype >= SL_DTYPE_COUNT || !d->caps.kv_dtype[kv->dtype])
        return UNSUPPORTED("%s: %s has no KV of type %s (%u)", op, d->ops->name,
                           sl_dtype_name((uint32_t)kv->dtype), (uint32_t)kv->dtype);
    uint32_t block = sl_dtype_info((uint32_t)kv->dtype)->block_elems;
    if (!kv->n_kv_heads || !kv->head_dim_k || !kv->head_dim_v || kv->head_dim_k % block ||
        kv->head_dim_v % block)
        return INVALID("%s: %u KV heads of %u and %u elements, in %s blocks of %u", op,
                       kv->n_kv_heads, kv->head_dim_k, kv->head_dim_v,
                       sl_dtype_name((uint32_t)kv->dtype), block);
    size_t rows = (size_t)kv->n_kv_heads * SL_KV_PAGE_TOKENS;
    if (kv->k_page_bytes < rows * sl_dtype_row_bytes(kv->dtype, kv->head_dim_k) ||
        kv->v_page_bytes < rows * sl_dtype_row_bytes(kv->dtype, kv->head_dim_v))
        return INVALID("%s: KV pages of %zu and %zu bytes are too small", op, kv->k_page_bytes,
                       kv->v_page_bytes);
    if ((kv->k_page_bytes | kv->v_page_bytes) % 2)
        return INVALID("%s: KV pages of %zu and %zu bytes: odd sizes", op, kv->k_page_bytes,
                       kv->v_page_bytes);
    if (!kv->k || !kv->v)
        return INVALID("%s: no KV memory", op);
    return SL_OK;
}

enum sl_status sl_op_embed(struct sl_device *d, const struct sl_op_embed *a) {
    SL_TRY(check_rows(d, "embed", a->n_tok, 0));
    SL_TRY(check_dtype(d, "embed", a->w.dtype, a->w.n_in));
    if (!a->n_tok)
        return SL_OK;
    if (!a->w.data || !a->ids || !a->y)
        return INVALID("embed: a NULL argument");
    if (can_look(d))
        for (uint32_t t = 0; t < a->n_tok; t++)
            if (a->ids[t] >= a->w.n_out)
                return INVALID("embed: id %u in row %u; there are %u", a->ids[t], t, a->w.n_out);
    return submit_embed(d, a);
}

enum sl_status sl_op_rms_norm(struct sl_device *d, const struct sl_op_rms_norm *a) {
    if (!a->n_rows)
        return SL_OK;
    if (!a->x || !a->y)
        return INVALID("rms_norm: a NULL argument");
    if (!a->n || (a->n_rows > 1 && (a->stride_x < a->n || a->stride_y < a->n)))
        return INVALID("rms_norm: rows of %u elements at strides %u and %u", a->n, a->stride_x,
                       a->stride_y);
    if (a->y == a->x && a->n_rows > 1 && a->stride_x != a->stride_y)
        return INVALID("rms_norm: in place with two strides, %u and %u", a->stride_x, a->stride_y);
    if (!(a->eps >= 0 && isfinite(a->eps)))
        return INVALID("rms_norm: eps %g", (double)a->eps);
    return submit_rms_norm(d, a);
}

enum sl_status sl_op_matmul(struct sl_device *d, const struct sl_op_matmul *a) {
    SL_TRY(check_rows(d, "matmul", a->n_tok, a->n_decode));
    if (a->n_w < 1 || a->n_w > SL_MATMUL_MAX_W)
        return INVALID("matmul: %u weights in one call; 1 to %u", a->n_w, SL_MATMUL_MAX_W);
    uint32_t n_in = a->out[0].w.n_in;
    if (n_in > d->limits.max_n_in)
        return INVALID("matmul: rows of %u elements; the device was configured for %u", n_in,
                       d->limits.max_n_in);
    for (uint32_t i = 0; i < a->n_w; i++) {
        const struct sl_matmul_out *o = &a->out[i];
        SL_TRY(check_dtype(d, "matmul", o->w.dtype, o->w.n_in));
        if (o->w.n_in != n_in)
            return INVALID("matmul: weights of %u and %u inputs share one x", n_in, o->w.n_in);
        if (!o->w.n_out || (a->n_tok && (!o->w.data || !o->y)))
            return INVALID("matmul: weight %u is empty or NULL", i);
    }
    if (!a->n_tok)
        return SL_OK;
    if (!a->x)
        return INVALID("matmul: a NULL argument");
    return submit_matmul(d, a);
}

enum sl_status sl_op_rope_table(struct sl_device *d, const struct sl_op_rope_table *a) {
    SL_TRY(check_rows(d, "rope_table", a->n_tok, 0));
    if (!a->n_tok)
        return SL_OK;
    if (!a->pos || !a->inv_freq || !a->table || !a->n_freq)
        return INVALID("rope_table: a NULL or empty argument");
    return submit_rope_table(d, a);
}

enum sl_status sl_op_rope(struct sl_device *d, const struct sl_op_rope *a) {
    SL_TRY(check_rows(d, "rope", a->n_tok, 0));
    if (!a->n_tok || !a->n_heads)
        return SL_OK;
    if (!a->x || !a->table || !a->n_freq)
        return INVALID("rope: a NULL or empty argument");
    if (a->n_freq > a->head_dim / 2)
        return INVALID("rope: %u rotations in heads of %u elements", a->n_freq, a->head_dim);
    if (a->n_tok > 1 && a->stride < (uint64_t)a->n_heads * a->head_dim)
        return INVALID("rope: %u heads of %u elements at stride %u", a->n_heads, a->head_dim,
                       a->stride);
    if (a->style != SL_ROPE_NORM && a->style != SL_ROPE_NEOX)
        return UNSUPPORTED("rope: style %u", (unsigned)a->style);
    return submit_rope(d, a);
}

enum sl_status sl_op_kv_write(struct sl_device *d, const struct sl_op_kv_write *a) {
    SL_TRY(check_rows(d, "kv_write", a->n_tok, 0));
    SL_TRY(check_kv(d, "kv_write", &a->kv));
    if (!a->n_tok)
        return SL_OK;
    if (!a->k || !a->v || !a->slot)
        return INVALID("kv_write: a NULL argument");
    if (a->n_tok > 1 && (a->stride_k < (uint64_t)a->kv.n_kv_heads * a->kv.head_dim_k ||
                         a->stride_v < (uint64_t)a->kv.n_kv_heads * a->kv.head_dim_v))
        return INVALID("kv_write: rows at strides %u and %u overlap", a->stride_k, a->stride_v);
    return submit_kv_write(d, a);
}

/* Query heads over those of keys and values. */
static enum sl_status check_heads(const struct sl_device *d, const char *op,
                                  const struct sl_kv_view *kv, uint32_t n_heads, uint32_t n_tok,
                                  uint32_t stride_q) {
    if (!n_heads || n_heads % kv->n_kv_heads)
        return INVALID("%s: %u heads over %u KV heads", op, n_heads, kv->n_kv_heads);
    if (n_heads > d->limits.max_heads || kv->head_dim_k > d->limits.max_head_dim ||
        kv->head_dim_v > d->limits.max_head_dim)
        return INVALID("%s: %u heads of %u and %u elements; the device was configured for %u of %u",
                       op, n_heads, kv->head_dim_k, kv->head_dim_v, d->limits.max_heads,
                       d->limits.max_head_dim);
    if (n_tok > 1 && stride_q < (uint64_t)n_heads * kv->head_dim_k)
        return INVALID("%s: %u heads of %u elements at stride %u", op, n_heads, kv->head_dim_k,
                       stride_q);
    return SL_OK;
}

enum sl_status sl_op_attention(struct sl_device *d, const struct sl_op_attention *a) {
    SL_TRY(check_rows(d, "attention", a->n_tok, a->n_decode));
    SL_TRY(check_kv(d, "attention", &a->kv));
    if (!a->n_tok)
        return SL_OK;
    if (!a->q || !a->y || !a->page_table || !a->row_seq || !a->row_len || !a->max_pages)
        return INVALID("attention: a NULL or empty argument");
    SL_TRY(check_heads(d, "attention", &a->kv, a->n_heads, a->n_tok, a->stride_q));
    if (!isfinite(a->scale))
        return INVALID("attention: scale %g", (double)a->scale);
    if (!(a->softcap >= 0 && isfinite(a->softcap)) || (a->chunk && a->window))
        return INVALID("attention: soft cap %g, chunk %u, window %u", (double)a->softcap, a->chunk,
                       a->window);
    if ((a->softcap > 0 || a->chunk) && !d->caps.extra_args)
        return UNSUPPORTED("attention: %s has no %s", d->ops->name,
                           a->chunk ? "chunks" : "soft cap");
    if (can_look(d))
        for (uint32_t t = 0; t < a->n_tok; t++)
            if (!a->row_len[t] || a->row_len[t] > (uint64_t)a->max_pages * SL_KV_PAGE_TOKENS)
                return INVALID("attention: row %u has %u positions; 1 to %u pages of %u", t,
                               a->row_len[t], a->max_pages, SL_KV_PAGE_TOKENS);
    return submit_attention(d, a);
}

enum sl_status sl_op_router(struct sl_device *d, const struct sl_op_router *a) {
    SL_TRY(check_rows(d, "router", a->n_tok, 0));
    if (!a->n_tok)
        return SL_OK;
    if (!a->logits || !a->ids || !a->weights)
        return INVALID("router: a NULL argument");
    if (a->n_expert > d->limits.max_expert)
        return INVALID("router: %u experts; the device was configured for %u", a->n_expert,
                       d->limits.max_expert);
    if (!a->k || a->k > a->n_expert || a->k > SL_MAX_EXPERTS_USED)
        return INVALID("router: %u of %u experts; at most %u", a->k, a->n_expert,
                       SL_MAX_EXPERTS_USED);
    if (a->score != SL_ROUTER_SOFTMAX && a->score != SL_ROUTER_SIGMOID)
        return UNSUPPORTED("router: score %u", (unsigned)a->score);
    if (a->softmax_topk && a->score != SL_ROUTER_SOFTMAX) {
        if (!d->caps.sigmoid_topk)
            return UNSUPPORTED("device %s has no op 'router' with sigmoids of the chosen alone",
                               d->caps.id);
        if (a->bias)
            return INVALID("router: sigmoids of the chosen alone, and a bias");
    }
    if (a->n_group > 1) {
        if (!d->caps.router_groups)
            return UNSUPPORTED("device %s has no op 'router' with groups of experts", d->caps.id);
        uint32_t length = a->n_expert / a->n_group;
        if (a->n_expert % a->n_group || length < 2 || !a->n_group_used ||
            a->n_group_used > a->n_group || a->n_group_used > SL_MAX_EXPERTS_USED ||
            a->k > length * a->n_group_used)
            return INVALID("router: %u of %u experts, in %u of %u groups", a->k, a->n_expert,
                           a->n_group_used, a->n_group);
    }
    if (a->share > 1) {
        if (!d->caps.router_share)
            return UNSUPPORTED("device %s has no op 'router' with ids that experts share",
                               d->caps.id);
        if (a->n_expert % a->share || a->softmax_topk || a->expert_scale)
            return INVALID("router: %u experts, ids for %u each%s", a->n_expert, a->share,
                           a->softmax_topk || a->expert_scale ? ", and weights of the chosen" : "");
    }
    if (a->expert_scale && !d->caps.extra_args)
        return UNSUPPORTED("router: %s has no scale for each expert", d->ops->name);
    return submit_router(d, a);
}

enum sl_status sl_op_softplus_router(struct sl_device *d, const struct sl_op_softplus_router *a) {
    SL_TRY(check_rows(d, "softplus_router", a->n_tok, 0));
    if (!a->n_tok)
        return SL_OK;
    if (!a->logits || !a->ids || !a->weights || (a->table && !a->tokens))
        return INVALID("softplus_router: a NULL argument");
    if (a->n_expert > d->limits.max_expert)
        return INVALID("softplus_router: %u experts; the device was configured for %u", a->n_expert,
                       d->limits.max_expert);
    if (!a->k || a->k > a->n_expert || a->k > SL_MAX_EXPERTS_USED)
        return INVALID("softplus_router: %u of %u experts; at most %u", a->k, a->n_expert,
                       SL_MAX_EXPERTS_USED);
    if (a->table && a->bias)
        return INVALID("softplus_router: a table, and a bias for a choice");
    return submit_softplus_router(d, a);
}

static bool are_situ_limits(float limit, float limit_up) {
    return limit > 0 && isfinite(limit) && limit_up >= 0 && isfinite(limit_up);
}

static enum sl_status check_placed(const struct sl_device *d, const struct sl_op_moe *a,
                                   uint64_t n_all) {
    if (!d->caps.moe_placed || d->recording)
        return INVALID("moe: placed pairs%s", d->recording ? " recorded" : " on this device");
    if (a->n_pairs > SL_MOE_MAX_PLACED || a->n_decode != a->n_tok || a->pairs || a->refs)
        return INVALID("moe: %u placed pairs; at most %u, of generated rows, and no other list",
                       a->n_pairs, SL_MOE_MAX_PLACED);
    for (uint32_t i = 0; i < a->n_pairs; i++)
        if (a->placed[i].pair >= n_all || (i && a->placed[i].pair <= a->placed[i - 1].pair))
            return INVALID("moe: pair %u of the list is %u: not ascending below %llu", i,
                           a->placed[i].pair, (unsigned long long)n_all);
    return SL_OK;
}

enum sl_status sl_op_moe(struct sl_device *d, const struct sl_op_moe *a) {
    SL_TRY(check_rows(d, "moe", a->n_tok, a->n_decode));
    SL_TRY(check_dtype(d, "moe", a->gate_dtype, a->n_embd));
    SL_TRY(check_dtype(d, "moe", a->up_dtype, a->n_embd));
    SL_TRY(check_dtype(d, "moe", a->down_dtype, a->n_ff));
    if (!a->k || a->k > SL_MAX_EXPERTS_USED || a->n_expert > d->limits.max_expert)
        return INVALID("moe: %u of %u experts; at most %u of %u", a->k, a->n_expert,
                       SL_MAX_EXPERTS_USED, d->limits.max_expert);
    uint64_t n_all = (uint64_t)a->n_tok * a->k;
    if (n_all > d->limits.max_pairs || a->n_embd > d->limits.max_n_embd ||
        a->n_ff > d->limits.max_n_ff)
        return INVALID("moe: %llu pairs of %u x %u; the device was configured for %u of %u x %u",
                       (unsigned long long)n_all, a->n_embd, a->n_ff, d->limits.max_pairs,
                       d->limits.max_n_embd, d->limits.max_n_ff);
    if (a->pairs || a->placed ? a->n_pairs > n_all : a->n_pairs != n_all)
        return INVALID("moe: %u pairs listed of %llu", a->n_pairs, (unsigned long long)n_all);
    if (!a->n_pairs)
        return SL_OK;
    if (!a->x || !a->ids || !a->pair_y || (!a->refs && !a->device_refs && !a->placed))
        return INVALID("moe: a NULL argument");
    if (a->activation != SL_SWIGLU &&
        (a->activation != SL_SWIGLU_CLAMPED || !d->caps.swiglu_clamped) &&
        (a->activation != SL_GEGLU || !d->caps.geglu) &&
        (a->activation != SL_SWIGLU_LIMITED || !d->caps.swiglu_limited) &&
        (a->activation != SL_REGLU || !d->caps.reglu) &&
        (a->activation != SL_SWIGLU_CUT || !d->caps.swiglu_cut) &&
        (a->activation != SL_RELU_SQUARED || !d->caps.relu_squared) &&
        (a->activation != SL_SITU || !d->caps.situ))
        return UNSUPPORTED("moe: %s has no activation %u", d->ops->name, (unsigned)a->activation);
    if ((a->activation == SL_SWIGLU_LIMITED || a->activation == SL_SWIGLU_CUT) &&
        !(a->limit > 0 && isfinite(a->limit)))
        return INVALID("moe: SwiGLU limited to %g", (double)a->limit);
    if (a->activation == SL_SITU && !are_situ_limits(a->limit, a->limit_up))
        return INVALID("moe: SiTU limited to %g and %g", (double)a->limit, (double)a->limit_up);
    if ((a->gate_bias || a->up_bias || a->down_bias) && !d->caps.moe_bias)
        return UNSUPPORTED("moe: %s has no biases of experts", d->ops->name);
    if (a->placed)
        SL_TRY(check_placed(d, a, n_all));
    if (d->recording && !a->device_refs)
        return INVALID("moe: recorded with refs in host memory");
    if (can_look(d)) {
        for (uint32_t i = 0; i < a->n_pairs; i++) {
            uint32_t p = a->pairs ? a->pairs[i] : i;
            if (p >= n_all || (a->pairs && i && p <= a->pairs[i - 1]))
                return INVALID("moe: pair %u of the list is %u: not ascending below %llu", i, p,
                               (unsigned long long)n_all);
            if (a->ids[p] >= a->n_expert)
                return INVALID("moe: pair %u goes to expert %u of %u", p, a->ids[p], a->n_expert);
        }
    }
    struct sl_op_moe op = *a;
    if (d->caps.host_visible && !op.refs)
        op.refs = op.device_refs;
    bool later = a->overlap && (d->recording || !d->caps.overlap);
    if (d->recording)
        op.overlap = NULL;
    enum sl_status status = submit_moe(d, &op);
    if (later)
        a->overlap(a->overlap_ctx);
    return status;
}

enum sl_status sl_op_moe_combine(struct sl_device *d, const struct sl_op_moe_combine *a) {
    SL_TRY(check_rows(d, "moe_combine", a->n_tok, 0));
    if (!a->n_tok || !a->n)
        return SL_OK;
    if (!a->pair_y || !a->weights || !a->y || !a->k)
        return INVALID("moe_combine: a NULL or empty argument");
    if (a->set && !d->caps.extra_args)
        return UNSUPPORTED("moe_combine: %s only adds", d->ops->name);
    return submit_moe_combine(d, a);
}

enum sl_status sl_op_silu_mul(struct sl_device *d, const struct sl_op_silu_mul *a) {
    if (!a->n)
        return SL_OK;
    if (!a->gate || !a->up || !a->y)
        return INVALID("silu_mul: a NULL argument");
    return submit_silu_mul(d, a);
}

enum sl_status sl_op_add_gated(struct sl_device *d, const struct sl_op_add_gated *a) {
    SL_TRY(check_rows(d, "add_gated", a->n_tok, 0));
    if (!a->n_tok || !a->n)
        return SL_OK;
    if (!a->x || !a->y)
        return INVALID("add_gated: a NULL argument");
    return submit_add_gated(d, a);
}

enum sl_status sl_op_gather_rows(struct sl_device *d, const struct sl_op_gather_rows *a) {
    SL_TRY(check_rows(d, "gather_rows", a->n_out, 0));
    if (!a->n_out || !a->n)
        return SL_OK;
    if (!a->x || !a->rows || !a->y)
        return INVALID("gather_rows: a NULL argument");
    return submit_gather_rows(d, a);
}

enum sl_status sl_op_mul_sigmoid(struct sl_device *d, const struct sl_op_mul_sigmoid *a) {
    if (!a->n_rows || !a->n)
        return SL_OK;
    if (!a->gate || !a->y)
        return INVALID("mul_sigmoid: a NULL argument");
    if (a->n_rows > 1 && a->stride_gate < a->n)
        return INVALID("mul_sigmoid: rows of %u elements at stride %u", a->n, a->stride_gate);
    return submit_mul_sigmoid(d, a);
}

enum sl_status sl_op_l2_norm(struct sl_device *d, const struct sl_op_l2_norm *a) {
    SL_TRY(check_rows(d, "l2_norm", a->n_tok, 0));
    if (!a->n_tok || !a->n_heads)
        return SL_OK;
    if (!a->x)
        return INVALID("l2_norm: a NULL argument");
    if (!a->head_dim || (a->n_tok > 1 && a->stride < (uint64_t)a->n_heads * a->head_dim))
        return INVALID("l2_norm: %u heads of %u elements at stride %u", a->n_heads, a->head_dim,
                       a->stride);
    if (!(a->eps >= 0 && isfinite(a->eps)))
        return INVALID("l2_norm: eps %g", (double)a->eps);
    return submit_l2_norm(d, a);
}

static enum sl_status check_state(const struct sl_device *d, const char *op,
                                  const struct sl_state_view *s, uint32_t n_tok,
                                  uint64_t state_bytes) {
    if (!s->pages || !s->page_table || !s->slot || !s->row_seq || !s->row_len || !s->max_pages)
        return INVALID("%s: a NULL or empty argument", op);
    if (s->page_bytes < state_bytes)
        return INVALID("%s: pages of %zu bytes for a state of %llu", op, s->page_bytes,
                       (unsigned long long)state_bytes);
    if (can_look(d))
        for (uint32_t t = 0; t < n_tok; t++)
            if (!s->row_len[t] || s->row_len[t] > (uint64_t)s->max_pages * SL_KV_PAGE_TOKENS)
                return INVALID("%s: row %u has %u positions; 1 to %u pages of %u", op, t,
                               s->row_len[t], s->max_pages, SL_KV_PAGE_TOKENS);
    return SL_OK;
}

enum sl_status sl_op_conv_silu(struct sl_device *d, const struct sl_op_conv_silu *a) {
    SL_TRY(check_rows(d, "conv_silu", a->n_tok, 0));
    if (!a->n_tok || !a->n)
        return SL_OK;
    if (!a->x || !a->w || !a->y || a->x == a->y)
        return INVALID("conv_silu: a NULL argument, or in place");
    if (a->n_taps < 2 || a->n_taps > SL_CONV_MAX_TAPS)
        return UNSUPPORTED("conv_silu: %u taps; 2 to %u", a->n_taps, SL_CONV_MAX_TAPS);
    SL_TRY(check_state(d, "conv_silu", &a->state, a->n_tok,
                       (uint64_t)(a->n_taps - 1) * a->n * sizeof(float)));
    return submit_conv_silu(d, a);
}

enum sl_status sl_op_short_conv(struct sl_device *d, const struct sl_op_short_conv *a) {
    SL_TRY(check_rows(d, "short_conv", a->n_tok, 0));
    if (!a->n_tok || !a->n)
        return SL_OK;
    if (!a->x || !a->w || !a->y || a->x == a->y)
        return INVALID("short_conv: a NULL argument, or in place");
    if (a->n_taps < 2 || a->n_taps > SL_CONV_MAX_TAPS)
        return UNSUPPORTED("short_conv: %u taps; 2 to %u", a->n_taps, SL_CONV_MAX_TAPS);
    SL_TRY(check_state(d, "short_conv", &a->state, a->n_tok,
                       (uint64_t)(a->n_taps - 1) * a->n * sizeof(float)));
    return submit_short_conv(d, a);
}

enum sl_status sl_op_delta_rule(struct sl_device *d, const struct sl_op_delta_rule *a) {
    SL_TRY(check_rows(d, "delta_rule", a->n_tok, 0));
    if (!a->n_tok)
        return SL_OK;
    if (!a->q || !a->k || !a->v || !a->alpha || !a->beta || !a->a || !a->dt || !a->y)
        return INVALID("delta_rule: a NULL argument");
    if (!a->n_heads || !a->n_heads_k || a->n_heads % a->n_heads_k || !a->head_dim_k ||
        !a->head_dim_v)
        return INVALID("delta_rule: %u heads of %u over %u of %u", a->n_heads, a->head_dim_v,
                       a->n_heads_k, a->head_dim_k);
    uint64_t widest_k = (uint64_t)a->n_heads_k * a->head_dim_k;
    uint64_t widest_v = (uint64_t)a->n_heads * a->head_dim_v;
    if (a->n_tok > 1 && (a->stride < widest_k || a->stride < widest_v))
        return INVALID("delta_rule: rows of %llu and %llu elements at stride %u",
                       (unsigned long long)widest_k, (unsigned long long)widest_v, a->stride);
    if (!a->gate_group || a->n_heads % a->gate_group || !isfinite(a->scale))
        return INVALID("delta_rule: %u heads' gates in groups of %u, scale %g", a->n_heads,
                       a->gate_group, (double)a->scale);
    uint32_t groups = a->n_heads / a->gate_group;
    uint64_t gates = (uint64_t)(groups - 1) * a->gate_group_stride + a->gate_group;
    if ((groups > 1 && a->gate_group_stride < a->gate_group) ||
        (a->n_tok > 1 && a->stride_gate < gates))
        return INVALID("delta_rule: groups of %u gates at stride %u, rows at stride %u",
                       a->gate_group, a->gate_group_stride, a->stride_gate);
    SL_TRY(check_state(d, "delta_rule", &a->state, a->n_tok,
                       widest_v * a->head_dim_k * sizeof(float)));
    return submit_delta_rule(d, a);
}

enum sl_status sl_op_channel_delta(struct sl_device *d, const struct sl_op_channel_delta *a) {
    SL_TRY(check_rows(d, "channel_delta", a->n_tok, 0));
    if (!a->n_tok)
        return SL_OK;
    if (!a->q || !a->k || !a->v || !a->alpha || !a->beta || !a->a || !a->dt || !a->y)
        return INVALID("channel_delta: a NULL argument");
    if (!a->n_heads || !a->head_dim_k || !a->head_dim_v || !isfinite(a->scale))
        return INVALID("channel_delta: %u heads of %u and %u, scale %g", a->n_heads, a->head_dim_k,
                       a->head_dim_v, (double)a->scale);
    if (!isfinite(a->bound) || a->bound > 0)
        return INVALID("channel_delta: decays bound by %g", (double)a->bound);
    if (a->head_dim_k > SL_CHANNEL_DELTA_MAX)
        return UNSUPPORTED("channel_delta: keys of %u; 1 to %u", a->head_dim_k,
                           SL_CHANNEL_DELTA_MAX);
    SL_TRY(check_state(d, "channel_delta", &a->state, a->n_tok,
                       (uint64_t)a->n_heads * a->head_dim_v * a->head_dim_k * sizeof(float)));
    return submit_channel_delta(d, a);
}

enum sl_status sl_op_state_scan(struct sl_device *d, const struct sl_op_state_scan *a) {
    SL_TRY(check_rows(d, "state_scan", a->n_tok, 0));
    if (!a->n_tok)
        return SL_OK;
    if (!a->x || !a->b || !a->c || !a->dt || !a->a || !a->dt_bias || !a->skip || !a->y)
        return INVALID("state_scan: a NULL argument");
    if (!a->n_heads || !a->n_groups || a->n_heads % a->n_groups || !a->head_dim || !a->n_state)
        return INVALID("state_scan: %u heads of %u over %u groups of %u", a->n_heads, a->head_dim,
                       a->n_groups, a->n_state);
    uint64_t inner = (uint64_t)a->n_heads * a->head_dim;
    if (a->n_tok > 1 && (a->stride < inner || a->stride < (uint64_t)a->n_groups * a->n_state))
        return INVALID("state_scan: rows of %llu and %llu elements at stride %u",
                       (unsigned long long)inner, (unsigned long long)a->n_groups * a->n_state,
                       a->stride);
    SL_TRY(check_state(d, "state_scan", &a->state, a->n_tok, inner * a->n_state * sizeof(float)));
    return submit_state_scan(d, a);
}

enum sl_status sl_op_channel_scan(struct sl_device *d, const struct sl_op_channel_scan *a) {
    SL_TRY(check_rows(d, "channel_scan", a->n_tok, 0));
    if (!a->n_tok || !a->n)
        return SL_OK;
    if (!a->x || !a->b || !a->c || !a->dt || !a->a || !a->skip || !a->y)
        return INVALID("channel_scan: a NULL argument");
    if (!a->n_state || a->n_state > SL_SCAN_MAX_STATE)
        return UNSUPPORTED("channel_scan: states of %u; 1 to %u", a->n_state, SL_SCAN_MAX_STATE);
    SL_TRY(check_state(d, "channel_scan", &a->state, a->n_tok,
                       (uint64_t)a->n * a->n_state * sizeof(float)));
    return submit_channel_scan(d, a);
}

enum sl_status sl_op_gelu_mul(struct sl_device *d, const struct sl_op_gelu_mul *a) {
    if (!a->n)
        return SL_OK;
    if (!a->gate || !a->up || !a->y)
        return INVALID("gelu_mul: a NULL argument");
    return submit_gelu_mul(d, a);
}

enum sl_status sl_op_gate_heads(struct sl_device *d, const struct sl_op_gate_heads *a) {
    SL_TRY(check_rows(d, "gate_heads", a->n_tok, 0));
    if (!a->n_tok || !a->n_heads || !a->n)
        return SL_OK;
    if (!a->gate || !a->y)
        return INVALID("gate_heads: a NULL argument");
    return submit_gate_heads(d, a);
}

enum sl_status sl_op_temper(struct sl_device *d, const struct sl_op_temper *a) {
    SL_TRY(check_rows(d, "temper", a->n_tok, 0));
    if (!a->n_tok || !a->n)
        return SL_OK;
    if (!a->x || !a->pos)
        return INVALID("temper: a NULL argument");
    if (!a->span || a->offset > 1 || !isfinite(a->scale))
        return INVALID("temper: by %g for every %u positions", (double)a->scale, a->span);
    return submit_temper(d, a);
}

enum sl_status sl_op_center(struct sl_device *d, const struct sl_op_center *a) {
    SL_TRY(check_rows(d, "center", a->n_tok, 0));
    if (!a->n_tok || !a->n)
        return SL_OK;
    if (!a->x || !a->y)
        return INVALID("center: a NULL argument");
    return submit_center(d, a);
}

enum sl_status sl_op_clamp(struct sl_device *d, const struct sl_op_clamp *a) {
    if (!a->n)
        return SL_OK;
    if (!a->x)
        return INVALID("clamp: a NULL argument");
    if (!(a->limit > 0 && isfinite(a->limit)))
        return INVALID("clamp: to %g", (double)a->limit);
    return submit_clamp(d, a);
}

enum sl_status sl_op_relu_squared(struct sl_device *d, const struct sl_op_relu_squared *a) {
    if (!a->n)
        return SL_OK;
    if (!a->x)
        return INVALID("relu_squared: a NULL argument");
    return submit_relu_squared(d, a);
}

enum sl_status sl_op_limited_glu(struct sl_device *d, const struct sl_op_limited_glu *a) {
    if (!a->n)
        return SL_OK;
    if (!a->gate || !a->up || !a->y)
        return INVALID("limited_glu: a NULL argument");
    if (!(a->limit > 0 && isfinite(a->limit)))
        return INVALID("limited_glu: to %g", (double)a->limit);
    return submit_limited_glu(d, a);
}

enum sl_status sl_op_clamped_glu(struct sl_device *d, const struct sl_op_clamped_glu *a) {
    if (!a->n)
        return SL_OK;
    if (!a->gate || !a->up || !a->y)
        return INVALID("clamped_glu: a NULL argument");
    return submit_clamped_glu(d, a);
}

enum sl_status sl_op_cut_glu(struct sl_device *d, const struct sl_op_cut_glu *a) {
    if (!a->n)
        return SL_OK;
    if (!a->gate || !a->up || !a->y)
        return INVALID("cut_glu: a NULL argument");
    if (!(a->limit > 0 && isfinite(a->limit)))
        return INVALID("cut_glu: to %g", (double)a->limit);
    return submit_cut_glu(d, a);
}

enum sl_status sl_op_situ_glu(struct sl_device *d, const struct sl_op_situ_glu *a) {
    if (!a->n)
        return SL_OK;
    if (!a->gate || !a->up || !a->y)
        return INVALID("situ_glu: a NULL argument");
    if (!are_situ_limits(a->limit, a->limit_up))
        return INVALID("situ_glu: to %g and %g", (double)a->limit, (double)a->limit_up);
    return submit_situ_glu(d, a);
}

static enum sl_status check_streams(const struct sl_device *d, const char *op, uint32_t n_tok,
                                    uint32_t n_stream) {
    SL_TRY(check_rows(d, op, n_tok, 0));
    return n_stream >= 2 && n_stream <= SL_MAX_STREAMS
               ? SL_OK
               : INVALID("%s: %u streams; 2 to %u", op, n_stream, SL_MAX_STREAMS);
}

static enum sl_status check_attended(const struct sl_device *d, const char *op, uint32_t n_tok,
                                     uint32_t n_stream) {
    SL_TRY(check_rows(d, op, n_tok, 0));
    return n_stream >= 2 && n_stream <= SL_MAX_ATTENDED
               ? SL_OK
               : INVALID("%s: %u streams; 2 to %u", op, n_stream, SL_MAX_ATTENDED);
}

enum sl_status sl_op_stream_spread(struct sl_device *d, const struct sl_op_stream_spread *a) {
    SL_TRY(check_attended(d, "stream_spread", a->n_tok, a->n_stream));
    if (!a->n_tok || !a->n)
        return SL_OK;
    if (!a->x || !a->y || a->x == a->y)
        return INVALID("stream_spread: a NULL argument, or in place");
    return submit_stream_spread(d, a);
}

enum sl_status sl_op_stream_weights(struct sl_device *d, const struct sl_op_stream_weights *a) {
    SL_TRY(check_streams(d, "stream_weights", a->n_tok, a->n_stream));
    if (!a->n_tok)
        return SL_OK;
    if (!a->x || !a->scale || !a->base)
        return INVALID("stream_weights: a NULL argument");
    if ((!a->only_read && !a->n_iter) || !(a->eps >= 0 && isfinite(a->eps)))
        return INVALID("stream_weights: %u iterations, eps %g", a->n_iter, (double)a->eps);
    return submit_stream_weights(d, a);
}

enum sl_status sl_op_stream_read(struct sl_device *d, const struct sl_op_stream_read *a) {
    SL_TRY(check_streams(d, "stream_read", a->n_tok, a->n_stream));
    if (!a->n_tok || !a->n)
        return SL_OK;
    if (!a->x || !a->w || !a->y || a->stride_w < a->n_stream)
        return INVALID("stream_read: a NULL argument, or weights at stride %u", a->stride_w);
    return submit_stream_read(d, a);
}

enum sl_status sl_op_stream_write(struct sl_device *d, const struct sl_op_stream_write *a) {
    SL_TRY(check_streams(d, "stream_write", a->n_tok, a->n_stream));
    if (!a->n_tok || !a->n)
        return SL_OK;
    if (!a->x || !a->y || !a->w)
        return INVALID("stream_write: a NULL argument");
    return submit_stream_write(d, a);
}

enum sl_status sl_op_stream_attend(struct sl_device *d, const struct sl_op_stream_attend *a) {
    SL_TRY(check_attended(d, "stream_attend", a->n_tok, a->n_stream));
    if (a->n_kept >= a->n_stream || !(a->eps >= 0 && isfinite(a->eps)))
        return INVALID("stream_attend: %u kept of %u streams, eps %g", a->n_kept, a->n_stream,
                       (double)a->eps);
    if (!a->n_tok || !a->n)
        return SL_OK;
    if (!a->x || !a->w || !a->y)
        return INVALID("stream_attend: a NULL argument");
    return submit_stream_attend(d, a);
}

enum sl_status sl_op_stream_keep(struct sl_device *d, const struct sl_op_stream_keep *a) {
    SL_TRY(check_attended(d, "stream_keep", a->n_tok, a->n_stream));
    if (a->to >= a->n_stream)
        return INVALID("stream_keep: in stream %u of %u", a->to, a->n_stream);
    if (!a->n_tok || !a->n)
        return SL_OK;
    if (!a->x || !a->y)
        return INVALID("stream_keep: a NULL argument");
    return submit_stream_keep(d, a);
}

enum sl_status sl_op_stream_mean(struct sl_device *d, const struct sl_op_stream_mean *a) {
    SL_TRY(check_streams(d, "stream_mean", a->n_tok, a->n_stream));
    if (!a->n_tok || !a->n)
        return SL_OK;
    if (!a->x || !a->gate || !a->y)
        return INVALID("stream_mean: a NULL argument");
    return submit_stream_mean(d, a);
}

enum sl_status sl_op_stream_inject(struct sl_device *d, const struct sl_op_stream_inject *a) {
    SL_TRY(check_streams(d, "stream_inject", a->n_tok, a->n_stream));
    if (!a->n_tok || !a->n)
        return SL_OK;
    if (!a->x || !a->y || !a->w)
        return INVALID("stream_inject: a NULL argument");
    return submit_stream_inject(d, a);
}

enum sl_status sl_op_silu(struct sl_device *d, const struct sl_op_silu *a) {
    if (!a->n)
        return SL_OK;
    if (!a->x || !isfinite(a->scale))
        return INVALID("silu: a NULL argument, or times %g", (double)a->scale);
    return submit_silu(d, a);
}

enum sl_status sl_op_ngram_gate(struct sl_device *d, const struct sl_op_ngram_gate *a) {
    SL_TRY(check_streams(d, "ngram_gate", a->n_tok, a->n_stream));
    if (!a->n_tok || !a->n)
        return SL_OK;
    if (!a->key || !a->query || !a->value || !a->y)
        return INVALID("ngram_gate: a NULL argument");
    return submit_ngram_gate(d, a);
}

enum sl_status sl_op_bias(struct sl_device *d, const struct sl_op_bias *a) {
    SL_TRY(check_rows(d, "bias", a->n_tok, 0));
    if (!a->n_tok || !a->n)
        return SL_OK;
    if (!a->x || !a->b)
        return INVALID("bias: a NULL argument");
    return submit_bias(d, a);
}

enum sl_status sl_op_gelu_rows(struct sl_device *d, const struct sl_op_gelu_rows *a) {
    SL_TRY(check_rows(d, "gelu_rows", a->n_tok, 0));
    if (!a->n_tok || !a->n)
        return SL_OK;
    if (!a->gate || !a->up || !a->y)
        return INVALID("gelu_rows: a NULL argument");
    if (a->stride_up < a->n)
        return INVALID("gelu_rows: %u elements at stride %u", a->n, a->stride_up);
    return submit_gelu_rows(d, a);
}

enum sl_status sl_op_scale(struct sl_device *d, const struct sl_op_scale *a) {
    SL_TRY(check_rows(d, "scale", a->n_tok, 0));
    if (!a->n_tok || !a->n)
        return SL_OK;
    if (!a->x)
        return INVALID("scale: a NULL argument");
    if (!isfinite(a->scale) || !(a->cap >= 0 && isfinite(a->cap)))
        return INVALID("scale: by %g, cap %g", (double)a->scale, (double)a->cap);
    return submit_scale(d, a);
}

enum sl_status sl_op_block_max(struct sl_device *d, const struct sl_op_block_max *a) {
    SL_TRY(check_rows(d, "block_max", a->n_tok, 0));
    if (!a->n_tok || !a->n)
        return SL_OK;
    if (!a->x || !a->max || (a->sum && !a->inv_t))
        return INVALID("block_max: a NULL argument");
    return submit_block_max(d, a);
}

enum sl_status sl_op_head_matmul(struct sl_device *d, const struct sl_op_head_matmul *a) {
    SL_TRY(check_rows(d, "head_matmul", a->n_tok, a->n_decode));
    uint32_t n_row = a->transposed ? a->n_out : a->n_in,
             n_rows = a->transposed ? a->n_in : a->n_out;
    SL_TRY(check_dtype(d, "head_matmul", a->dtype, n_row));
    if (!a->n_heads || !n_rows || a->n_in > d->limits.max_head_n || a->n_out > d->limits.max_head_n)
        return INVALID("head_matmul: %u heads, %u to %u; the device was configured for %u",
                       a->n_heads, a->n_in, a->n_out, d->limits.max_head_n);
    if (a->stride_x < (uint64_t)a->n_in + a->n_keep || a->stride_y < (uint64_t)a->n_out + a->n_keep)
        return INVALID("head_matmul: heads of %u and %u elements and %u kept, at strides %u and %u",
                       a->n_in, a->n_out, a->n_keep, a->stride_x, a->stride_y);
    if (a->head_bytes < n_rows * sl_dtype_row_bytes(a->dtype, n_row))
        return INVALID("head_matmul: matrices of %u x %u at %zu bytes from one another", n_rows,
                       n_row, a->head_bytes);
    if (!a->n_tok)
        return SL_OK;
    if (!a->x || !a->y || !a->w || a->x == a->y)
        return INVALID("head_matmul: a NULL argument, or in place");
    return submit_head_matmul(d, a);
}

/* n_rows: of a page. */
static enum sl_status check_latent_pages(const struct sl_device *d, const char *op,
                                         const struct sl_latent_view *kv, uint32_t n_rows) {
    if ((uint32_t)kv->dtype >= SL_DTYPE_COUNT || !d->caps.kv_dtype[kv->dtype])
        return UNSUPPORTED("%s: %s has no KV of type %s (%u)", op, d->ops->name,
                           sl_dtype_name((uint32_t)kv->dtype), (uint32_t)kv->dtype);
    uint32_t block = sl_dtype_info((uint32_t)kv->dtype)->block_elems;
    if (!kv->n_latent || kv->n_latent % block || kv->n_rot % block)
        return INVALID("%s: latents of %u and %u elements, in %s blocks of %u", op, kv->n_latent,
                       kv->n_rot, sl_dtype_name((uint32_t)kv->dtype), block);
    if (kv->page_bytes < n_rows * sl_dtype_row_bytes(kv->dtype, (uint64_t)kv->n_latent + kv->n_rot))
        return INVALID("%s: pages of %zu bytes are too small", op, kv->page_bytes);
    if (kv->page_bytes % 2)
        return INVALID("%s: pages of %zu bytes: an odd size", op, kv->page_bytes);
    return kv->rows ? SL_OK : INVALID("%s: no KV memory", op);
}

static enum sl_status check_latents(const struct sl_device *d, const char *op,
                                    const struct sl_latent_view *kv) {
    return check_latent_pages(d, op, kv, SL_KV_PAGE_TOKENS);
}

enum sl_status sl_op_latent_write(struct sl_device *d, const struct sl_op_latent_write *a) {
    SL_TRY(check_rows(d, "latent_write", a->n_tok, 0));
    SL_TRY(check_latents(d, "latent_write", &a->kv));
    if (!a->n_tok)
        return SL_OK;
    if (!a->x || !a->slot)
        return INVALID("latent_write: a NULL argument");
    if (a->n_tok > 1 && a->stride < (uint64_t)a->kv.n_latent + a->kv.n_rot)
        return INVALID("latent_write: rows at stride %u overlap", a->stride);
    return submit_latent_write(d, a);
}

/* How long the rows' sequences are. */
static enum sl_status check_lengths(const struct sl_device *d, const char *op,
                                    const uint32_t *row_len, uint32_t n_tok, uint32_t max_pages) {
    for (uint32_t t = 0; can_look(d) && t < n_tok; t++)
        if (!row_len[t] || row_len[t] > (uint64_t)max_pages * SL_KV_PAGE_TOKENS)
            return INVALID("%s: row %u has %u positions; 1 to %u pages of %u", op, t, row_len[t],
                           max_pages, SL_KV_PAGE_TOKENS);
    return SL_OK;
}

static enum sl_status check_latent_heads(const struct sl_device *d, const char *op,
                                         const struct sl_latent_view *kv, uint32_t n_heads) {
    uint64_t dim = (uint64_t)kv->n_latent + kv->n_rot;
    if (!n_heads || n_heads > d->limits.max_heads || dim > d->limits.max_head_dim)
        return INVALID("%s: %u heads of %llu elements; the device was configured for %u of %u", op,
                       n_heads, (unsigned long long)dim, d->limits.max_heads,
                       d->limits.max_head_dim);
    return SL_OK;
}

enum sl_status sl_op_latent_attention(struct sl_device *d, const struct sl_op_latent_attention *a) {
    SL_TRY(check_rows(d, "latent_attention", a->n_tok, a->n_decode));
    SL_TRY(check_latents(d, "latent_attention", &a->kv));
    if (!a->n_tok)
        return SL_OK;
    if (!a->q || !a->y || !a->page_table || !a->row_seq || !a->row_len || !a->max_pages)
        return INVALID("latent_attention: a NULL or empty argument");
    SL_TRY(check_latent_heads(d, "latent_attention", &a->kv, a->n_heads));
    if (!isfinite(a->scale))
        return INVALID("latent_attention: scale %g", (double)a->scale);
    if (a->window && !d->caps.latent_window)
        return UNSUPPORTED("latent_attention: %s has no windows", d->ops->name);
    SL_TRY(check_lengths(d, "latent_attention", a->row_len, a->n_tok, a->max_pages));
    return submit_latent_attention(d, a);
}

enum sl_status sl_op_hadamard(struct sl_device *d, const struct sl_op_hadamard *a) {
    SL_TRY(check_rows(d, "hadamard", 1, 0));
    if (!a->n || (a->n & (a->n - 1)) != 0)
        return INVALID("hadamard: rows of %u elements: must be a power of two", a->n);
    if (!a->n_rows)
        return SL_OK;
    if (!a->x)
        return INVALID("hadamard: a NULL argument");
    return submit_hadamard(d, a);
}

/* Scores of a row's positions. */
static enum sl_status check_scores(const struct sl_device *d, const char *op, uint32_t max_pages) {
    if ((uint64_t)max_pages * SL_KV_PAGE_TOKENS > d->limits.max_scores)
        return INVALID("%s: %u pages of %u positions; the device was configured for %u positions",
                       op, max_pages, SL_KV_PAGE_TOKENS, d->limits.max_scores);
    return SL_OK;
}

/* n_tok is not 0, and the keys are sound. */
static enum sl_status check_choice(const struct sl_device *d, const char *op,
                                   const struct sl_op_index_choose *a) {
    if (!a->q || !a->w || !a->chosen || !a->page_table || !a->row_seq || !a->row_len ||
        !a->max_pages || !a->n_top)
        return INVALID("%s: a NULL or empty argument", op);
    SL_TRY(check_latent_heads(d, op, &a->keys, a->n_heads));
    SL_TRY(check_scores(d, op, a->max_pages));
    return check_lengths(d, op, a->row_len, a->n_tok, a->max_pages);
}

enum sl_status sl_op_index_choose(struct sl_device *d, const struct sl_op_index_choose *a) {
    SL_TRY(check_rows(d, "index_choose", a->n_tok, a->n_decode));
    SL_TRY(check_latents(d, "index_choose", &a->keys));
    if (!a->n_tok)
        return SL_OK;
    SL_TRY(check_choice(d, "index_choose", a));
    return submit_index_choose(d, a);
}

enum sl_status sl_op_chosen_attention(struct sl_device *d, const struct sl_op_chosen_attention *a) {
    SL_TRY(check_rows(d, "chosen_attention", a->n_tok, a->n_decode));
    SL_TRY(check_latents(d, "chosen_attention", &a->kv));
    if (!a->n_tok)
        return SL_OK;
    if (!a->q || !a->y || !a->chosen || !a->page_table || !a->row_seq || !a->row_len ||
        !a->max_pages || !a->n_top)
        return INVALID("chosen_attention: a NULL or empty argument");
    SL_TRY(check_latent_heads(d, "chosen_attention", &a->kv, a->n_heads));
    if (!isfinite(a->scale))
        return INVALID("chosen_attention: scale %g", (double)a->scale);
    SL_TRY(check_lengths(d, "chosen_attention", a->row_len, a->n_tok, a->max_pages));
    for (uint32_t t = 0; can_look(d) && t < a->n_tok; t++) {
        uint32_t n = a->row_len[t] < a->n_top ? a->row_len[t] : a->n_top;
        for (uint32_t i = 0; i < n; i++) {
            uint32_t at = a->chosen[(size_t)t * a->n_top + i];
            if (at >= a->row_len[t])
                return INVALID("chosen_attention: row %u chooses position %u of %u", t, at,
                               a->row_len[t]);
        }
    }
    return submit_chosen_attention(d, a);
}

enum sl_status sl_op_block_choose(struct sl_device *d, const struct sl_op_block_choose *a) {
    SL_TRY(check_rows(d, "block_choose", a->n_tok, a->n_decode));
    SL_TRY(check_latents(d, "block_choose", &a->keys));
    if (!a->n_tok)
        return SL_OK;
    if (!a->q || !a->chosen || !a->page_table || !a->row_seq || !a->row_len || !a->max_pages)
        return INVALID("block_choose: a NULL or empty argument");
    if (!a->block || !a->n_local || a->n_local > a->n_top)
        return INVALID("block_choose: %u blocks of %u, of them %u near", a->n_top, a->block,
                       a->n_local);
    SL_TRY(check_latent_heads(d, "block_choose", &a->keys, a->n_heads));
    SL_TRY(check_scores(d, "block_choose", a->max_pages));
    SL_TRY(check_lengths(d, "block_choose", a->row_len, a->n_tok, a->max_pages));
    return submit_block_choose(d, a);
}

/* Of rows that leave blocks out: ascending, and the row's own at the end. */
static enum sl_status check_blocks(const struct sl_op_block_attention *a) {
    for (uint32_t i = 0; i < a->n_tok * a->kv.n_kv_heads; i++) {
        uint32_t t = i / a->kv.n_kv_heads, own = (a->row_len[t] - 1) / a->block;
        const uint32_t *at = a->chosen + (size_t)i * a->n_top;
        if (own < a->n_top)
            continue;
        bool sound = at[a->n_top - 1] == own;
        for (uint32_t j = 1; j < a->n_top; j++)
            sound = sound && at[j - 1] < at[j];
        if (!sound)
            return INVALID("block_attention: the blocks of row %u do not ascend to its own, %u", t,
                           own);
    }
    return SL_OK;
}

static enum sl_status check_block_attention(struct sl_device *d, const char *op,
                                            const struct sl_op_block_attention *a) {
    SL_TRY(check_rows(d, op, a->n_tok, a->n_decode));
    SL_TRY(check_kv(d, op, &a->kv));
    if (!a->n_tok)
        return SL_OK;
    if (!a->q || !a->y || !a->chosen || !a->page_table || !a->row_seq || !a->row_len ||
        !a->max_pages || !a->n_top || !a->block)
        return INVALID("%s: a NULL or empty argument", op);
    SL_TRY(check_heads(d, op, &a->kv, a->n_heads, a->n_tok, a->stride_q));
    if (!isfinite(a->scale))
        return INVALID("%s: scale %g", op, (double)a->scale);
    return check_lengths(d, op, a->row_len, a->n_tok, a->max_pages);
}

enum sl_status sl_op_block_attention(struct sl_device *d, const struct sl_op_block_attention *a) {
    SL_TRY(check_block_attention(d, "block_attention", a));
    if (!a->n_tok)
        return SL_OK;
    if (can_look(d))
        SL_TRY(check_blocks(a));
    return submit_block_attention(d, a);
}

/* Blocks of positions, and their rows. */
static enum sl_status check_compressed(const struct sl_device *d, const char *op,
                                       const struct sl_latent_view *rows, uint32_t ratio) {
    if (!ratio || (SL_KV_PAGE_TOKENS % ratio && ratio % SL_KV_PAGE_TOKENS))
        return INVALID("%s: blocks of %u positions, in pages of %u", op, ratio, SL_KV_PAGE_TOKENS);
    return rows->n_rot ? INVALID("%s: rows with %u elements that are no value", op, rows->n_rot)
                       : check_latent_pages(d, op, rows, sl_block_rows(ratio));
}

enum sl_status sl_op_compress(struct sl_device *d, const struct sl_op_compress *a) {
    uint64_t width = a->overlap ? 2 * (uint64_t)a->n : a->n;
    SL_TRY(check_rows(d, "compress", a->n_tok, 0));
    SL_TRY(check_compressed(d, "compress", &a->out, a->ratio));
    if (!a->n_tok)
        return SL_OK;
    if (!a->kv || !a->gate || !a->ape || !a->norm || !a->inv_freq || !a->kept || !a->slot ||
        !a->kept_table || !a->out_table || !a->row_seq || !a->row_len || !a->max_pages)
        return INVALID("compress: a NULL or empty argument");
    if (a->out.n_latent != a->n || a->n > d->limits.max_head_dim ||
        2 * (uint64_t)a->n_freq > a->n ||
        a->kept_bytes < SL_KV_PAGE_TOKENS * 2 * width * sizeof(float))
        return INVALID("compress: %u elements to %u, %u rotated; the device was configured for %u",
                       a->n, a->out.n_latent, 2 * a->n_freq, d->limits.max_head_dim);
    if (a->spread && ((a->spread & (a->spread - 1)) || a->n % a->spread))
        return INVALID("compress: %u elements, %u rotated together", a->n, a->spread);
    if (!(a->eps >= 0 && isfinite(a->eps)) || !isfinite(a->mscale))
        return INVALID("compress: eps %g, scale %g", (double)a->eps, (double)a->mscale);
    SL_TRY(check_lengths(d, "compress", a->row_len, a->n_tok, a->max_pages));
    return submit_compress(d, a);
}

enum sl_status sl_op_compressed_choose(struct sl_device *d,
                                       const struct sl_op_compressed_choose *a) {
    SL_TRY(check_rows(d, "compressed_choose", a->choice.n_tok, a->choice.n_decode));
    SL_TRY(check_compressed(d, "compressed_choose", &a->choice.keys, a->ratio));
    if (!a->choice.n_tok)
        return SL_OK;
    SL_TRY(check_choice(d, "compressed_choose", &a->choice));
    return submit_compressed_choose(d, a);
}

enum sl_status sl_op_compressed_attention(struct sl_device *d,
                                          const struct sl_op_compressed_attention *a) {
    SL_TRY(check_rows(d, "compressed_attention", a->n_tok, a->n_decode));
    SL_TRY(check_latents(d, "compressed_attention", &a->kv));
    if (a->ratio)
        SL_TRY(check_compressed(d, "compressed_attention", &a->blocks, a->ratio));
    if (!a->n_tok)
        return SL_OK;
    if (!a->q || !a->y || !a->page_table || !a->row_seq || !a->row_len || !a->max_pages ||
        !a->window || (a->ratio && !a->block_table) || (a->chosen && (!a->n_top || !a->ratio)))
        return INVALID("compressed_attention: a NULL or empty argument");
    if (a->kv.n_rot ||
        (a->ratio && (a->blocks.n_latent != a->kv.n_latent || a->blocks.dtype != a->kv.dtype)))
        return INVALID("compressed_attention: rows of %u and %u elements, or of two types",
                       a->kv.n_latent, a->blocks.n_latent);
    SL_TRY(check_latent_heads(d, "compressed_attention", &a->kv, a->n_heads));
    if (!isfinite(a->scale))
        return INVALID("compressed_attention: scale %g", (double)a->scale);
    SL_TRY(check_lengths(d, "compressed_attention", a->row_len, a->n_tok, a->max_pages));
    for (uint32_t t = 0; can_look(d) && a->chosen && t < a->n_tok; t++) {
        uint32_t all = a->row_len[t] / a->ratio, n = all < a->n_top ? all : a->n_top;
        for (uint32_t i = 0; i < n; i++)
            if (a->chosen[(size_t)t * a->n_top + i] >= all)
                return INVALID("compressed_attention: row %u chooses block %u of %u", t,
                               a->chosen[(size_t)t * a->n_top + i], all);
    }
    return submit_compressed_attention(d, a);
}

enum sl_status sl_op_ngram_conv(struct sl_device *d, const struct sl_op_ngram_conv *a) {
    SL_TRY(check_rows(d, "ngram_conv", a->n_tok, 0));
    if (!a->n_tok || !a->n)
        return SL_OK;
    if (!a->x || !a->h || !a->w || !a->y || a->y == a->x || a->y == a->h)
        return INVALID("ngram_conv: a NULL argument, or in place");
    if (a->n_taps < 2 || a->n_taps > SL_CONV_MAX_TAPS || !a->step || a->step > SL_NGRAM_MAX_STEP)
        return UNSUPPORTED("ngram_conv: %u taps, %u apart; 2 to %u, 1 to %u", a->n_taps, a->step,
                           SL_CONV_MAX_TAPS, SL_NGRAM_MAX_STEP);
    SL_TRY(check_state(d, "ngram_conv", &a->state, a->n_tok,
                       (uint64_t)(a->n_taps - 1) * a->step * a->n * sizeof(float)));
    return submit_ngram_conv(d, a);
}

/* Blocks within pages. */
static enum sl_status check_pooled(const struct sl_device *d, const char *op,
                                   const struct sl_latent_view *rows, uint32_t ratio) {
    return ratio && SL_KV_PAGE_TOKENS % ratio == 0
               ? check_compressed(d, op, rows, ratio)
               : INVALID("%s: blocks of %u positions, in pages of %u", op, ratio,
                         SL_KV_PAGE_TOKENS);
}

enum sl_status sl_op_pool_keys(struct sl_device *d, const struct sl_op_pool_keys *a) {
    SL_TRY(check_rows(d, "pool_keys", a->n_tok, 0));
    SL_TRY(check_pooled(d, "pool_keys", &a->out, a->ratio));
    if (!a->n_tok)
        return SL_OK;
    if (!a->k || !a->norm || !a->inv_freq || !a->out_table)
        return INVALID("pool_keys: a NULL argument");
    if (a->out.n_latent != a->n || a->n > d->limits.max_head_dim || 2 * (uint64_t)a->n_freq > a->n)
        return INVALID("pool_keys: %u elements to %u, %u rotated; the device was configured for %u",
                       a->n, a->out.n_latent, 2 * a->n_freq, d->limits.max_head_dim);
    if (!(a->eps >= 0 && isfinite(a->eps)) || !isfinite(a->mscale))
        return INVALID("pool_keys: eps %g, scale %g", (double)a->eps, (double)a->mscale);
    SL_TRY(check_state(d, "pool_keys", &a->state, a->n_tok, a->n * sizeof(float)));
    return submit_pool_keys(d, a);
}

enum sl_status sl_op_pooled_choose(struct sl_device *d, const struct sl_op_pooled_choose *a) {
    SL_TRY(check_rows(d, "pooled_choose", a->n_tok, a->n_decode));
    SL_TRY(check_pooled(d, "pooled_choose", &a->keys, a->ratio));
    if (!a->n_tok)
        return SL_OK;
    if (!a->q || !a->chosen || !a->page_table || !a->row_seq || !a->row_len || !a->max_pages ||
        !a->n_top)
        return INVALID("pooled_choose: a NULL or empty argument");
    SL_TRY(check_latent_heads(d, "pooled_choose", &a->keys, a->n_heads));
    if ((uint64_t)a->max_pages * SL_KV_PAGE_TOKENS > d->limits.max_scores)
        return INVALID("pooled_choose: %u pages of %u positions; the device was configured for %u "
                       "positions",
                       a->max_pages, SL_KV_PAGE_TOKENS, d->limits.max_scores);
    SL_TRY(check_lengths(d, "pooled_choose", a->row_len, a->n_tok, a->max_pages));
    return submit_pooled_choose(d, a);
}

/* Of rows that leave blocks out: ascending, and complete. */
static enum sl_status check_pooled_blocks(const struct sl_op_block_attention *a) {
    for (uint32_t t = 0; t < a->n_tok; t++) {
        const uint32_t *at = a->chosen + (size_t)t * a->n_top;
        uint32_t n = a->row_len[t] / a->block;
        bool sound = n <= a->n_top || at[a->n_top - 1] < n;
        for (uint32_t j = 1; n > a->n_top && j < a->n_top; j++)
            sound = sound && at[j - 1] < at[j];
        if (!sound)
            return INVALID("pooled_attention: the blocks of row %u do not ascend below %u", t, n);
    }
    return SL_OK;
}

enum sl_status sl_op_pooled_attention(struct sl_device *d, const struct sl_op_pooled_attention *a) {
    SL_TRY(check_block_attention(d, "pooled_attention", &a->blocks));
    if (!a->blocks.n_tok)
        return SL_OK;
    if (SL_KV_PAGE_TOKENS % a->blocks.block)
        return INVALID("pooled_attention: blocks of %u", a->blocks.block);
    if (can_look(d))
        SL_TRY(check_pooled_blocks(&a->blocks));
    return submit_pooled_attention(d, a);
}

static enum sl_status check_channel(const struct sl_device *d, const char *op, bool complete,
                                    uint32_t n, uint32_t stride) {
    SL_TRY(check_rows(d, op, 1, 0));
    if (!complete)
        return INVALID("%s: a NULL argument", op);
    return n <= stride ? SL_OK : INVALID("%s: %u words in a channel of %u", op, n, stride);
}

enum sl_status sl_op_send(struct sl_device *d, const struct sl_op_send *a) {
    bool complete = a->x && a->to && a->raised && a->channel && a->seqno;
    SL_TRY(check_channel(d, "send", complete, a->n, a->stride));
    return submit_send(d, a);
}

enum sl_status sl_op_receive(struct sl_device *d, const struct sl_op_receive *a) {
    bool complete = a->from && a->x && a->raised && a->released && a->channel && a->seqno;
    SL_TRY(check_channel(d, "receive", complete, a->n, a->stride));
    return submit_receive(d, a);
}
