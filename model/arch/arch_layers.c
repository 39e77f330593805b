/* The layers' specs: which kinds, and each one's shapes. */
#include "model/arch/arch_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* expert_shared_count; so that its product with a width fits 32 bits. */
#define MAX_SHARED 1024u

/* windowed [n_layer]: such layers may have heads of another size. */
static enum sl_status read_heads(struct sl_keys *k, const struct sl_arch *arch,
                                 const struct sl_hparams *hp, const bool *windowed,
                                 struct sl_layer *layers) {
    uint32_t n_head[SL_MAX_LAYERS], n_head_kv[SL_MAX_LAYERS], dim_k = 0, dim_v = 0;
    SL_TRY(sl_keys_u32_each(k, "attention.head_count", true, 1, SL_ARCH_MAX_WIDTH, n_head));
    for (uint32_t l = 0; l < hp->n_layer; l++)
        n_head_kv[l] = n_head[l];
    SL_TRY(sl_keys_u32_each(k, "attention.head_count_kv", false, arch->keyless ? 0 : 1,
                            SL_ARCH_MAX_WIDTH, n_head_kv));
    SL_TRY(sl_keys_u32(k, "attention.key_length", false, 1, SL_ARCH_MAX_HEAD_DIM, &dim_k));
    SL_TRY(sl_keys_u32(k, "attention.value_length", false, 1, SL_ARCH_MAX_HEAD_DIM, &dim_v));
    uint32_t window_k = dim_k, window_v = dim_v;
    if (sl_arch_reads(arch, "attention.key_length_swa", sizeof "attention.key_length_swa" - 1)) {
        SL_TRY(
            sl_keys_u32(k, "attention.key_length_swa", false, 1, SL_ARCH_MAX_HEAD_DIM, &window_k));
        SL_TRY(sl_keys_u32(k, "attention.value_length_swa", false, 1, SL_ARCH_MAX_HEAD_DIM,
                           &window_v));
    }
    for (uint32_t l = 0; l < hp->n_layer; l++) {
        struct sl_attention_spec *a = &layers[l].spec.attention;
        a->n_head = n_head[l];
        a->n_head_kv = n_head_kv[l];
        if (n_head_kv[l] > n_head[l])
            return sl_keys_fail(k, SL_ERR_CORRUPT, "attention.head_count_kv",
                                "%" PRIu32 " is out of range, 1 to %" PRIu32 " are allowed",
                                n_head_kv[l], n_head[l]);
        if (n_head_kv[l] && n_head[l] % n_head_kv[l] != 0)
            return sl_keys_fail(k, SL_ERR_CORRUPT, "attention.head_count_kv",
                                "%" PRIu32 " does not divide the %" PRIu32 " heads", n_head_kv[l],
                                n_head[l]);
        uint32_t dim = hp->n_embd / n_head[l];
        if ((!dim_k || !dim_v) && (hp->n_embd % n_head[l] != 0 || dim > SL_ARCH_MAX_HEAD_DIM))
            return sl_keys_fail(k, SL_ERR_CORRUPT, "attention.head_count",
                                "%" PRIu32 " heads do not divide the embedding of %" PRIu32
                                ", and there is no attention.key_length",
                                n_head[l], hp->n_embd);
        uint32_t own_k = windowed[l] ? window_k : dim_k, own_v = windowed[l] ? window_v : dim_v;
        a->head_dim_k = own_k ? own_k : dim;
        a->head_dim_v = own_v ? own_v : dim;
        if (arch->gated && a->head_dim_k != a->head_dim_v)
            return sl_keys_fail(k, SL_ERR_CORRUPT, "attention.value_length",
                                "%" PRIu32 " is not the keys' %" PRIu32
                                ", and each head's gate is as wide as its query",
                                a->head_dim_v, a->head_dim_k);
        if ((uint64_t)n_head[l] * a->head_dim_k > SL_ARCH_MAX_WIDTH ||
            (uint64_t)n_head[l] * a->head_dim_v > SL_ARCH_MAX_WIDTH)
            return sl_keys_fail(k, SL_ERR_CORRUPT, "attention.head_count",
                                "%" PRIu32 " heads of %" PRIu32 " and %" PRIu32
                                " are wider than %u",
                                n_head[l], a->head_dim_k, a->head_dim_v, SL_ARCH_MAX_WIDTH);
    }
    return SL_OK;
}

static enum sl_status read_attention(struct sl_keys *k, const struct sl_arch *arch,
                                     const struct sl_hparams *hp, struct sl_layer *layers) {
    float scale = arch->attention_scale;
    SL_TRY(sl_keys_f32(k, "attention.scale", 0.0f, 1e6f, &scale));
    uint32_t window = 0;
    bool windowed[SL_MAX_LAYERS], causal = true;
    for (uint32_t l = 0; l < hp->n_layer; l++)
        windowed[l] =
            !arch->window_period || (arch->window_last ? l : l + 1) % arch->window_period != 0;
    SL_TRY(sl_keys_u32(k, "attention.sliding_window", false, 0, UINT32_MAX, &window));
    SL_TRY(sl_keys_pattern(k, "attention.sliding_window_pattern", windowed));
    SL_TRY(read_heads(k, arch, hp, windowed, layers));
    if (window >= hp->n_ctx_train)
        window = 0; /* never reached */
    SL_TRY(sl_keys_bool(k, "attention.causal", &causal));
    if (!causal)
        return sl_keys_fail(k, SL_ERR_UNSUPPORTED, "attention.causal",
                            "attention that is not causal is not supported");
    for (uint32_t l = 0; l < hp->n_layer; l++) {
        struct sl_attention_spec *a = &layers[l].spec.attention;
        layers[l].spec.mixer = a->n_head_kv ? SL_MIXER_ATTENTION : arch->keyless;
        a->window = windowed[l] ? window : 0;
        a->rope = hp->n_rope > 1 && windowed[l] ? 1 : 0;
        a->scale = scale > 0 ? scale : 1.0f / sqrtf((float)a->head_dim_k);
        a->qk_norm = arch->qk_norm;
        a->norm_after_rope = arch->norm_after_rope;
        a->gated = arch->gated;
        a->v_norm = arch->v_norm;
    }
    return SL_OK;
}

/* How many experts each layer has, and how many of them a row uses: [n_layer]. */
struct expert_counts {
    uint32_t n[SL_MAX_LAYERS], used[SL_MAX_LAYERS];
    bool each; /* the file has numbers that differ; 0 is of a dense layer */
};

/* One number, or one for each layer; the most of them into hp. */
static enum sl_status read_counts(struct sl_keys *k, struct sl_hparams *hp,
                                  struct expert_counts *x) {
    SL_TRY(sl_keys_u32_each(k, "expert_count", false, 0, SL_MAX_EXPERTS, x->n));
    for (uint32_t l = 0; l < hp->n_layer; l++) {
        hp->n_expert = x->n[l] > hp->n_expert ? x->n[l] : hp->n_expert;
        x->each |= x->n[l] != x->n[0];
    }
    return SL_OK;
}

/* Groups of experts of which a router chooses some first, as many in each layer. One group is none.
 */
static enum sl_status read_groups(struct sl_keys *k, const struct sl_hparams *hp,
                                  const struct expert_counts *have, struct sl_experts_spec *x) {
    uint32_t n = 0, used = 0;
    SL_TRY(sl_keys_u32(k, "expert_group_count", false, 0, hp->n_expert < 4 ? 1 : hp->n_expert / 2,
                       &n));
    if (n <= 1)
        return SL_OK;
    uint32_t most = n < SL_MAX_EXPERTS_USED ? n : SL_MAX_EXPERTS_USED;
    for (uint32_t l = 0; l < hp->n_layer; l++)
        if (have->n[l] % n != 0)
            return sl_keys_fail(k, SL_ERR_CORRUPT, "expert_group_count",
                                "%" PRIu32 " experts are not %" PRIu32 " groups of one size",
                                have->n[l], n);
    SL_TRY(sl_keys_u32(k, "expert_group_used_count", true, 1, most, &used));
    for (uint32_t l = 0; l < hp->n_layer; l++)
        if (have->n[l] && have->used[l] > have->n[l] / n * used)
            return sl_keys_fail(k, SL_ERR_CORRUPT, "expert_group_used_count",
                                "%" PRIu32 " groups have fewer than %" PRIu32 " experts", used,
                                have->used[l]);
    x->n_group = n, x->n_group_used = used;
    return SL_OK;
}

/* Experts that a row uses: one number, or one for each layer, where those without experts may have
 * 0. Into used [n_layer], the most of them into hp. */
static enum sl_status read_used(struct sl_keys *k, struct sl_hparams *hp, uint32_t max,
                                uint32_t *used) {
    const struct sl_gguf_kv *kv = sl_keys_find(k, "expert_used_count");
    uint32_t min = kv && kv->type == SL_GGUF_ARRAY ? 0 : 1;
    SL_TRY(sl_keys_u32_each(k, "expert_used_count", true, min, max, used));
    for (uint32_t l = 0; l < hp->n_layer; l++)
        hp->n_expert_used = used[l] > hp->n_expert_used ? used[l] : hp->n_expert_used;
    return hp->n_expert_used
               ? SL_OK
               : sl_keys_fail(k, SL_ERR_CORRUPT, "expert_used_count", "it is 0 in every layer");
}

/* What the layers that have experts have in common, and how many experts a row uses in each. */
static enum sl_status read_router(struct sl_keys *k, const struct sl_arch *arch,
                                  struct sl_hparams *hp, struct sl_experts_spec *x,
                                  struct expert_counts *have) {
    SL_TRY(read_counts(k, hp, have));
    if (hp->n_expert == 0) {
        if (arch->experts == SL_ARCH_MOE)
            return sl_keys_fail(k, SL_ERR_CORRUPT, "expert_count",
                                "%s has experts, the file declares none", arch->name);
        return SL_OK;
    }
    if (arch->experts == SL_ARCH_DENSE)
        return sl_keys_fail(k, SL_ERR_UNSUPPORTED, "expert_count",
                            "experts in dense architecture '%s'", arch->name);
    uint32_t max = hp->n_expert < SL_MAX_EXPERTS_USED ? hp->n_expert : SL_MAX_EXPERTS_USED;
    SL_TRY(read_used(k, hp, max, have->used));
    x->activation = arch->activation;
    x->router_normalize = arch->router_normalize;
    SL_TRY(sl_keys_bool(k, "expert_weights_norm", &x->router_normalize));
    SL_TRY(sl_keys_f32(k, "expert_weights_scale", 0.0f, 1e6f, &x->router_scale));
    if (x->router_scale == 0) /* 0 is written for "none" */
        x->router_scale = 1;
    SL_TRY(read_groups(k, hp, have, x));
    uint32_t gate = 0;
    SL_TRY(sl_keys_u32(k, "expert_gating_func", false, 0, UINT32_MAX, &gate));
    if (!gate && arch->latent)
        gate = sl_arch_latent_gating(k, hp);
    switch (gate) {
    case 0: /* not stated */
        x->router_softmax_topk = arch->router_softmax_topk;
        x->router_kind = arch->router_sigmoid ? SL_ROUTER_KIND_SIGMOID : SL_ROUTER_KIND_SOFTMAX;
        return SL_OK;
    case 1:
        x->router_kind = SL_ROUTER_KIND_SOFTMAX;
        return SL_OK;
    case 2:
        x->router_kind = SL_ROUTER_KIND_SIGMOID;
        return SL_OK;
    case 3:
        x->router_kind = SL_ROUTER_KIND_SOFTMAX;
        x->router_softmax_topk = true;
        return SL_OK;
    case 4:
        if (!arch->router_softplus)
            break;
        x->router_kind = SL_ROUTER_KIND_SQRT_SOFTPLUS;
        return SL_OK;
    default:
        break;
    }
    return sl_keys_fail(k, SL_ERR_UNSUPPORTED, "expert_gating_func",
                        "function %" PRIu32 " is not known", gate);
}

/* Which layers have experts: of those behind the leading dense ones each step-th, but for those of
 * which the file says that they have 0. It cannot say that a dense one has some. ff: widths. */
static enum sl_status read_ffn_kinds(struct sl_keys *k, const struct sl_arch *arch,
                                     const struct sl_hparams *hp, const struct expert_counts *have,
                                     const uint32_t *ff, struct sl_layer *layers) {
    uint32_t lead = 0, step = 1;
    if (arch->dense_lead && hp->n_expert) {
        SL_TRY(sl_keys_u32(k, "leading_dense_block_count", false, 0, hp->n_layer - 1, &lead));
        SL_TRY(sl_keys_u32(k, "interleave_moe_layer_step", false, 1, hp->n_layer, &step));
    }
    bool any = false;
    for (uint32_t l = 0; l < hp->n_layer; l++) {
        char router[64];
        snprintf(router, sizeof router, "blk.%" PRIu32 ".ffn_gate_inp.weight", l);
        bool may = l >= lead && (l + 1) % step == 0 &&
                   (!arch->experts_by_tensor || sl_gguf_tensor_find(k->g, router));
        bool experts = have->n[l] && may;
        if (have->each && have->n[l] && !may)
            return sl_keys_fail(k, SL_ERR_CORRUPT, "expert_count",
                                "it is %" PRIu32 " in layer %" PRIu32 ", which has none",
                                have->n[l], l);
        layers[l].spec.parallel = arch->parallel;
        layers[l].spec.ffn = experts ? SL_FFN_EXPERTS : SL_FFN_DENSE;
        if (arch->one_part && ff[l])
            layers[l].spec.mixer = SL_MIXER_NONE;
        else if (arch->one_part)
            layers[l].spec.ffn = SL_FFN_NONE;
        any |= layers[l].spec.ffn == SL_FFN_EXPERTS;
    }
    return any || !hp->n_expert
               ? SL_OK
               : sl_keys_fail(k, SL_ERR_CORRUPT,
                              arch->one_part            ? "feed_forward_length"
                              : arch->experts_by_tensor ? "expert_count"
                                                        : "interleave_moe_layer_step",
                              "of %" PRIu32 " layers none has experts", hp->n_layer);
}

static enum sl_status read_ffn(struct sl_keys *k, const struct sl_arch *arch, struct sl_hparams *hp,
                               struct sl_layer *layers) {
    struct sl_experts_spec common = {0};
    struct expert_counts have = {0};
    uint32_t ff[SL_MAX_LAYERS] = {0}, ff_expert[SL_MAX_LAYERS] = {0}, *used = have.used;
    uint32_t n_ff_shared = 0;
    SL_TRY(read_router(k, arch, hp, &common, &have));
    SL_TRY(sl_keys_u32_each(k, "feed_forward_length", hp->n_expert == 0 || arch->one_part, 0,
                            SL_ARCH_MAX_WIDTH, ff));
    SL_TRY(read_ffn_kinds(k, arch, hp, &have, ff, layers));
    if (arch->latent_experts)
        SL_TRY(sl_keys_u32(k, arch->latent_experts, false, 0, hp->n_embd, &common.n_latent));
    if (hp->n_expert)
        SL_TRY(sl_keys_u32_each(k, "expert_feed_forward_length", false, 0, SL_ARCH_MAX_WIDTH,
                                ff_expert));
    if (hp->n_expert && arch->shared)
        SL_TRY(sl_keys_u32(k, "expert_shared_feed_forward_length", false, 0, SL_ARCH_MAX_WIDTH,
                           &n_ff_shared));
    uint32_t n_shared = 0;
    if (hp->n_expert && arch->shared == SL_ARCH_SHARED_COUNT)
        SL_TRY(sl_keys_u32(k, "expert_shared_count", true, 1, MAX_SHARED, &n_shared));
    for (uint32_t l = 0; l < hp->n_layer; l++) {
        struct sl_layer_spec *s = &layers[l].spec;
        s->gelu = arch->gelu;
        s->relu_squared = arch->relu_squared;
        s->clamped = arch->clamped;
        if (s->ffn == SL_FFN_NONE)
            continue;
        if (s->ffn == SL_FFN_DENSE) {
            s->n_ff = ff[l];
            if (!s->n_ff)
                return sl_keys_fail(k, SL_ERR_CORRUPT, "feed_forward_length",
                                    "of layer %" PRIu32 " it is 0 or missing", l);
            continue;
        }
        s->experts = common;
        s->experts.n_expert = have.n[l];
        s->experts.n_used = used[l];
        if (!used[l])
            return sl_keys_fail(k, SL_ERR_CORRUPT, "expert_used_count",
                                "it is 0 in layer %" PRIu32 ", which has experts", l);
        if (used[l] > have.n[l])
            return sl_keys_fail(k, SL_ERR_CORRUPT, "expert_used_count",
                                "it is %" PRIu32 " in layer %" PRIu32 ", which has %" PRIu32
                                " experts",
                                used[l], l, have.n[l]);
        s->experts.n_ff = ff_expert[l] ? ff_expert[l] : arch->split_ff ? ff[l] / used[l] : ff[l];
        if (!s->experts.n_ff)
            return sl_keys_fail(k, SL_ERR_CORRUPT, "expert_feed_forward_length",
                                "the experts' width is 0 or missing");
        s->experts.n_ff_shared =
            n_ff_shared || arch->shared != SL_ARCH_SHARED ? n_ff_shared : ff[l];
        if (n_shared && !n_ff_shared)
            s->experts.n_ff_shared = n_shared * s->experts.n_ff;
        if (s->experts.n_ff_shared > SL_ARCH_MAX_WIDTH)
            return sl_keys_fail(k, SL_ERR_CORRUPT, "expert_shared_count",
                                "%" PRIu32 " shared experts of %" PRIu32 " are wider than %u",
                                n_shared, s->experts.n_ff, SL_ARCH_MAX_WIDTH);
        if (arch->with_dense) {
            s->experts.with_dense = true;
            s->n_ff = s->experts.n_ff_shared = ff[l];
            if (!ff[l])
                return sl_keys_fail(k, SL_ERR_CORRUPT, "feed_forward_length",
                                    "of layer %" PRIu32 " it is 0 or missing", l);
        }
        if (arch->shared == SL_ARCH_SHARED && !s->experts.n_ff_shared)
            return sl_keys_fail(k, SL_ERR_CORRUPT, "expert_shared_feed_forward_length",
                                "the shared expert's width is 0 or missing");
    }
    return SL_OK;
}

enum sl_status sl_arch_read_layers(struct sl_keys *k, const struct sl_arch *arch,
                                   struct sl_hparams *hp, struct sl_layer *layers) {
    SL_TRY(arch->latent ? sl_arch_read_latent(k, arch, hp, layers)
                        : read_attention(k, arch, hp, layers));
    if (arch->delta)
        SL_TRY(sl_arch_read_delta(k, arch, hp, layers));
    return read_ffn(k, arch, hp, layers);
}
