/* DeepSeek V4 (Flash, Pro): compressed attention. All heads share one key of each position, which
 * is the value too; a row attends to a window, and to one row for each block of positions before:
 * of 4, chosen by an indexer, or of 128. Layers are joined by hyper-connections. All have experts,
 * a router of square roots of softpluses, with a bias for the choice or, in the first layers, a
 * table of tokens in place of a choice, a shared expert, and SwiGLU with limits. Source:
 * DeepSeek-AI 2026, "DeepSeek-V4", and its configuration; names of llama.cpp's GGUF. */
#include "model/arch/arch_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static const char ratios_key[] = "attention.compress_ratios",
                  out_groups[] = "attention.output_group_count";
static const char *const keys[] = {"attention.q_lora_rank",
                                   "attention.indexer.head_count",
                                   "attention.indexer.key_length",
                                   "attention.indexer.top_k",
                                   out_groups,
                                   "attention.output_lora_rank",
                                   "attention.compress_rope_freq_base",
                                   ratios_key,
                                   "hyper_connection.count",
                                   "hyper_connection.sinkhorn_iterations",
                                   "hyper_connection.epsilon",
                                   "hash_layer_count",
                                   "swiglu_clamp_exp",
                                   "swiglu_clamp_shexp",
                                   "embedding_length_out",
                                   NULL};
static const struct sl_arch_name names[] = {
    {SL_L_LATENT_KV_A, "attn_kv.weight", false},
    {SL_L_ATTN_OUT, "attn_output_b.weight", false},
    {SL_L_INDEX_K, "indexer_compressor_kv.weight", false},
    {SL_L_INDEX_K_NORM, "indexer_compressor_norm.weight", false},
    {SL_L_COUNT, NULL, false}};

/* Blocks of so many positions overlap, and an indexer chooses among them. */
#define SHORT_RATIO 4u
#define LONG_RATIO  128u
#define N_STREAM    4u /* that any model has, and llama.cpp computes */
#define MAX_ITERS   1000u

/* The array may have values of draft layers, whether the file has them or not. */
static enum sl_status read_ratios(struct sl_keys *k, const struct sl_hparams *hp, uint32_t *out) {
    const struct sl_gguf_kv *kv = sl_keys_find(k, ratios_key);
    if (!kv || kv->type != SL_GGUF_ARRAY || kv->n_elems < hp->n_layer)
        return sl_keys_fail(k, SL_ERR_CORRUPT, ratios_key,
                            "is missing, or has no value for each of %" PRIu32 " layers",
                            hp->n_layer);
    for (uint32_t l = 0; l < hp->n_layer; l++) {
        double v = sl_gguf_array_f64(kv, l);
        if (v != 0 && v != SHORT_RATIO && v != LONG_RATIO)
            return sl_keys_fail(k, SL_ERR_UNSUPPORTED, ratios_key,
                                "%g in layer %" PRIu32 ": only 0, %u and %u are supported", v, l,
                                SHORT_RATIO, LONG_RATIO);
        out[l] = (uint32_t)v;
    }
    return SL_OK;
}

/* What all layers have in common. */
static enum sl_status read_shape(struct sl_keys *k, const struct sl_hparams *hp,
                                 const struct sl_attention_spec *a, struct sl_compressed_spec *c) {
    *c = (struct sl_compressed_spec){.n_head = a->n_head,
                                     .head_dim = a->head_dim_k,
                                     .n_rot = hp->rope[0].n_rot,
                                     .scale = a->scale};
    if (a->n_head_kv != 1 || a->head_dim_v != a->head_dim_k)
        return sl_keys_fail(k, SL_ERR_CORRUPT, "attention.head_count_kv",
                            "%" PRIu32 " heads of keys of %" PRIu32
                            " elements and values of %" PRIu32
                            ": all heads share one row, which is both",
                            a->n_head_kv, a->head_dim_k, a->head_dim_v);
    SL_TRY(sl_keys_u32(k, "attention.q_lora_rank", true, 1, SL_ARCH_MAX_WIDTH, &c->n_lora_q));
    SL_TRY(sl_keys_u32(k, out_groups, true, 1, c->n_head, &c->n_group));
    SL_TRY(
        sl_keys_u32(k, "attention.output_lora_rank", true, 1, SL_ARCH_MAX_WIDTH, &c->n_lora_out));
    SL_TRY(sl_keys_u32(k, "attention.sliding_window", true, 1, UINT32_MAX, &c->window));
    SL_TRY(sl_keys_u32(k, "attention.indexer.head_count", true, 1, SL_ARCH_MAX_WIDTH,
                       &c->n_index_head));
    SL_TRY(sl_keys_u32(k, "attention.indexer.key_length", true, c->n_rot, SL_ARCH_MAX_HEAD_DIM,
                       &c->index_dim));
    SL_TRY(sl_keys_u32(k, "attention.indexer.top_k", true, 1, SL_ARCH_MAX_WIDTH, &c->n_index_top));
    if (c->window > hp->n_ctx_train)
        c->window = hp->n_ctx_train; /* the rest is never reached */
    if (c->n_head % c->n_group || (uint64_t)c->n_group * c->n_lora_out > SL_ARCH_MAX_WIDTH)
        return sl_keys_fail(k, SL_ERR_CORRUPT, out_groups,
                            "%" PRIu32 " groups of rank %" PRIu32 " of %" PRIu32
                            " heads: must divide these, and be no wider than %u",
                            c->n_group, c->n_lora_out, c->n_head, SL_ARCH_MAX_WIDTH);
    if ((uint64_t)c->n_index_head * c->index_dim > SL_ARCH_MAX_WIDTH)
        return sl_keys_fail(k, SL_ERR_CORRUPT, "attention.indexer.head_count",
                            "%" PRIu32 " heads of %" PRIu32 " elements are wider than %u",
                            c->n_index_head, c->index_dim, SL_ARCH_MAX_WIDTH);
    return SL_OK;
}

/* Layers with blocks have a base of their own, and YaRN without its amplitude; the others have
 * neither. Each table once more, to turn outputs back. */
static enum sl_status read_ropes(struct sl_keys *k, struct sl_hparams *hp) {
    static const char key[] = "attention.compress_rope_freq_base";
    struct sl_rope_spec *r = hp->rope;
    float base = 0;
    SL_TRY(sl_keys_f32(k, key, 1.001f, 1e30f, &base));
    if (!(base > 0))
        return sl_keys_fail(k, SL_ERR_CORRUPT, key, "is missing");
    r[1] = r[0];
    r[1].scale = 1, r[1].yarn_factor = 0;
    r[0].base = base;
    r[0].yarn_attn = r[0].yarn_factor > 1 ? 1 / (1 + 0.1f * logf(r[0].yarn_factor)) : 1;
    r[1].yarn_attn = 1;
    for (uint32_t i = 0; i < 2; i++) {
        r[2 + i] = r[i];
        r[2 + i].back = true;
    }
    hp->n_rope = 4;
    return SL_OK;
}

static enum sl_status read_streams(struct sl_keys *k, struct sl_hparams *hp) {
    uint32_t width = 0;
    float eps = -1;
    SL_TRY(sl_keys_u32(k, "hyper_connection.count", true, N_STREAM, N_STREAM, &hp->n_stream));
    SL_TRY(sl_keys_u32(k, "hyper_connection.sinkhorn_iterations", true, 1, MAX_ITERS,
                       &hp->stream_iters));
    SL_TRY(sl_keys_f32(k, "hyper_connection.epsilon", 0.0f, 1.0f, &eps));
    if (eps < 0)
        return sl_keys_fail(k, SL_ERR_CORRUPT, "hyper_connection.epsilon", "is missing");
    hp->stream_eps = eps;
    if ((uint64_t)hp->n_stream * hp->n_embd > SL_ARCH_MAX_WIDTH)
        return sl_keys_fail(k, SL_ERR_CORRUPT, "hyper_connection.count",
                            "%" PRIu32 " streams of %" PRIu32 " elements are wider than %u",
                            hp->n_stream, hp->n_embd, SL_ARCH_MAX_WIDTH);
    width = hp->n_stream * hp->n_embd;
    return sl_keys_u32(k, "embedding_length_out", false, width, width, &width);
}

/* Which layers' experts a table of tokens says, and the limits of SwiGLU. */
static enum sl_status read_experts(struct sl_keys *k, const struct sl_hparams *hp,
                                   struct sl_layer *layers) {
    float routed[SL_MAX_LAYERS] = {0}, shared[SL_MAX_LAYERS];
    uint32_t n_table = 0;
    SL_TRY(sl_keys_u32(k, "hash_layer_count", true, 0, hp->n_layer, &n_table));
    SL_TRY(sl_keys_f32_each(k, "swiglu_clamp_exp", 0.0f, 1e6f, routed));
    for (uint32_t l = 0; l < hp->n_layer; l++)
        shared[l] = routed[l];
    SL_TRY(sl_keys_f32_each(k, "swiglu_clamp_shexp", 0.0f, 1e6f, shared));
    for (uint32_t l = 0; l < hp->n_layer; l++) {
        struct sl_layer_spec *s = &layers[l].spec;
        if (s->experts.router_kind != SL_ROUTER_KIND_SQRT_SOFTPLUS || s->experts.n_group)
            return sl_keys_fail(k, SL_ERR_UNSUPPORTED, "expert_gating_func",
                                "only routers of square roots of softpluses (4), without groups, "
                                "are supported");
        s->experts.by_token = l < n_table;
        s->cut = true;
        s->limit = shared[l] > 1e-6f ? shared[l] : 0; /* so llama.cpp's threshold */
        if (routed[l] > 1e-6f) {
            s->experts.activation = SL_EXPERT_SWIGLU_CUT;
            s->experts.limit = routed[l];
        }
    }
    return SL_OK;
}

static enum sl_status read_own(struct sl_keys *k, struct sl_hparams *hp, struct sl_layer *layers) {
    uint32_t ratio[SL_MAX_LAYERS];
    struct sl_compressed_spec all;
    char join[64];
    snprintf(join, sizeof join, "blk.%" PRIu32 ".nextn.eh_proj.weight", hp->n_layer);
    if (hp->n_layer_nextn && !sl_gguf_tensor_find(k->g, join))
        return sl_keys_fail(k, SL_ERR_CORRUPT, "nextn_predict_layers",
                            "%" PRIu32 ", and there is no tensor '%s'", hp->n_layer_nextn, join);
    SL_TRY(read_ratios(k, hp, ratio));
    SL_TRY(read_shape(k, hp, &layers[0].spec.attention, &all));
    SL_TRY(read_ropes(k, hp));
    SL_TRY(read_streams(k, hp));
    SL_TRY(read_experts(k, hp, layers));
    for (uint32_t l = 0; l < hp->n_layer; l++) {
        struct sl_compressed_spec *c = &layers[l].spec.compressed;
        const struct sl_attention_spec *a = &layers[l].spec.attention;
        if (a->n_head != all.n_head || a->n_head_kv != 1)
            return sl_keys_fail(k, SL_ERR_UNSUPPORTED, "attention.head_count",
                                "%" PRIu32 " in layer %" PRIu32 ": all must have as many",
                                a->n_head, l);
        *c = all;
        c->ratio = ratio[l];
        c->overlap = ratio[l] == SHORT_RATIO;
        c->rope = ratio[l] ? 0 : 1;
        c->rope_back = 2 + c->rope;
        if (ratio[l] != SHORT_RATIO)
            c->n_index_head = c->index_dim = c->n_index_top = 0;
        layers[l].spec.mixer = SL_MIXER_COMPRESSED;
    }
    return SL_OK;
}

const struct sl_arch sl_arch_deepseek4 = {
    .name = "deepseek4",
    .experts = SL_ARCH_MOE,
    .rope_kind = SL_ROPE_KIND_NORM,
    .shared = SL_ARCH_SHARED_COUNT,
    .router_softplus = true,
    .nextn = true,
    .keys = keys,
    .names = names,
    .needs = SL_ROLE(SL_L_ROUTER_BIAS),
    .read_own = read_own,
};
