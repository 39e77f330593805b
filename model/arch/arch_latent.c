/* Latent attention.
 * Source: DeepSeek-AI 2024, "DeepSeek-V2", section 2.1; key names of ggml's GGUF. Newer files state
 * a key's and a value's size as attention sees them when the projections are taken into query and
 * output, n_latent + n_rot and n_latent, and the heads' own as *_mla; older ones the heads' own. */
#include "model/arch/arch_internal.h"

#include <inttypes.h>
#include <math.h>

/* Of a key that other keys decide: absent, or what they say. */
static enum sl_status check_is(struct sl_keys *k, const char *key, uint32_t want,
                               const char *because) {
    uint32_t v = want;
    SL_TRY(sl_keys_u32(k, key, false, 0, UINT32_MAX, &v));
    return v == want ? SL_OK
                     : sl_keys_fail(k, SL_ERR_CORRUPT, key, "%" PRIu32 ", but %s make it %" PRIu32,
                                    v, because, want);
}

/* A head's key and value: dim_k of which n_rot are turned. Between layers of another kind
 * attention.value_length may be of these. */
static enum sl_status read_head(struct sl_keys *k, const struct sl_arch *arch,
                                struct sl_latent_spec *c) {
    uint32_t dim_k = 0;
    bool mla_k = sl_keys_find(k, "attention.key_length_mla");
    bool mla_v = sl_keys_find(k, "attention.value_length_mla");
    if (mla_k != mla_v)
        return sl_keys_fail(k, SL_ERR_CORRUPT,
                            mla_k ? "attention.value_length_mla" : "attention.key_length_mla",
                            "is missing, and %s is there",
                            mla_k ? "attention.key_length_mla" : "attention.value_length_mla");
    c->joined = !mla_k;
    const char *key = c->joined ? "attention.key_length" : "attention.key_length_mla";
    SL_TRY(sl_keys_u32(k, key, true, 1, SL_ARCH_MAX_HEAD_DIM, &dim_k));
    SL_TRY(sl_keys_u32(k, c->joined ? "attention.value_length" : "attention.value_length_mla", true,
                       1, SL_ARCH_MAX_HEAD_DIM, &c->head_dim_v));
    SL_TRY(sl_keys_u32(k, "rope.dimension_count", true, 2, SL_ARCH_MAX_HEAD_DIM, &c->n_rot));
    if (dim_k <= c->n_rot)
        return sl_keys_fail(k, SL_ERR_CORRUPT, key,
                            "%" PRIu32 " leaves nothing beside the %" PRIu32
                            " elements of rope.dimension_count",
                            dim_k, c->n_rot);
    c->n_nope = dim_k - c->n_rot;
    if (c->joined)
        return SL_OK;
    SL_TRY(check_is(k, "attention.key_length", c->n_latent + c->n_rot,
                    "attention.kv_lora_rank and rope.dimension_count"));
    if (arch->keyless)
        return SL_OK;
    return check_is(k, "attention.value_length", c->n_latent, "attention.kv_lora_rank");
}

/* Of each layer: what the form of the projections makes it, or 0 where a layer may have none. */
static enum sl_status read_kinds(struct sl_keys *k, const struct sl_arch *arch,
                                 const struct sl_hparams *hp, uint32_t want,
                                 struct sl_layer *layers) {
    uint32_t n_head_kv[SL_MAX_LAYERS];
    for (uint32_t l = 0; l < hp->n_layer; l++)
        n_head_kv[l] = want;
    SL_TRY(sl_keys_u32_each(k, "attention.head_count_kv", false, 0, UINT32_MAX, n_head_kv));
    bool any = false;
    for (uint32_t l = 0; l < hp->n_layer; l++) {
        if (n_head_kv[l] != want && (n_head_kv[l] || !arch->keyless))
            return sl_keys_fail(k, SL_ERR_CORRUPT, "attention.head_count_kv",
                                "%" PRIu32 ", but %s projections make it %" PRIu32, n_head_kv[l],
                                want == 1 ? "split" : "joined", want);
        layers[l].spec.mixer = n_head_kv[l] ? SL_MIXER_LATENT : arch->keyless;
        any |= n_head_kv[l] != 0;
    }
    return any ? SL_OK
               : sl_keys_fail(k, SL_ERR_UNSUPPORTED, "attention.head_count_kv",
                              "of %" PRIu32 " layers none has attention", hp->n_layer);
}

enum sl_status sl_arch_check_latent(struct sl_keys *k, const struct sl_latent_spec *c) {
    uint64_t widest = c->n_latent + c->n_rot;
    if (widest < c->n_nope + c->head_dim_v)
        widest = c->n_nope + c->head_dim_v;
    if (widest < c->n_nope + c->n_rot)
        widest = c->n_nope + c->n_rot;
    if (c->n_head * widest <= SL_ARCH_MAX_WIDTH)
        return SL_OK;
    return sl_keys_fail(k, SL_ERR_CORRUPT, "attention.head_count",
                        "%" PRIu32 " heads of %" PRIu64 " elements are wider than %u", c->n_head,
                        widest, SL_ARCH_MAX_WIDTH);
}

enum sl_status sl_arch_read_latent(struct sl_keys *k, const struct sl_arch *arch,
                                   const struct sl_hparams *hp, struct sl_layer *layers) {
    struct sl_latent_spec c = {.n_head = 0};
    bool causal = true;
    uint32_t n_head[SL_MAX_LAYERS];
    SL_TRY(sl_keys_u32_each(k, "attention.head_count", true, 1, SL_ARCH_MAX_WIDTH, n_head));
    if (!arch->latent_windows) /* one number for all */
        SL_TRY(sl_keys_u32(k, "attention.head_count", true, 1, SL_ARCH_MAX_WIDTH, &c.n_head));
    c.n_head = n_head[0];
    SL_TRY(sl_keys_u32(k, "attention.kv_lora_rank", true, 1, SL_ARCH_MAX_HEAD_DIM, &c.n_latent));
    SL_TRY(sl_keys_u32(k, "attention.q_lora_rank", false, 0, SL_ARCH_MAX_WIDTH, &c.n_lora_q));
    SL_TRY(read_head(k, arch, &c));
    SL_TRY(read_kinds(k, arch, hp, c.joined ? c.n_head : 1, layers));
    if (!arch->latent_windows)
        SL_TRY(check_is(k, "attention.sliding_window", 0, "all layers"));
    SL_TRY(sl_keys_bool(k, "attention.causal", &causal));
    if (!causal)
        return sl_keys_fail(k, SL_ERR_UNSUPPORTED, "attention.causal",
                            "attention that is not causal is not supported");
    for (uint32_t l = 0; l < hp->n_layer; l++) {
        c.n_head = n_head[l];
        SL_TRY(sl_arch_check_latent(k, &c));
        layers[l].spec.latent = c;
    }
    return SL_OK;
}

/* With YaRN the scores are scaled by a square that grows with the factor's logarithm. Where the
 * file has the multiplier of that (a tenth of checkpoints' mscale_all_dim), cos and sin keep their
 * amplitude. */
enum sl_status sl_arch_scale_latent(struct sl_keys *k, const struct sl_arch *arch,
                                    struct sl_hparams *hp, struct sl_layer *layers) {
    struct sl_rope_spec *r = &hp->rope[0];
    float attn = 1, log_mul = 0, amplitude = 1;
    SL_TRY(sl_keys_f32(k, "rope.scaling.attn_factor", 0.0f, 1e3f, &attn));
    SL_TRY(sl_keys_f32(k, "rope.scaling.yarn_log_multiplier", 0.0f, 1e3f, &log_mul));
    if (hp->n_rope > 1 && !arch->latent_windows)
        return sl_keys_fail(k, SL_ERR_UNSUPPORTED, "rope.freq_base_swa",
                            "latent attention has no window");
    if (log_mul > 0 && arch->latent_unscaled)
        return sl_keys_fail(k, SL_ERR_UNSUPPORTED, "rope.scaling.yarn_log_multiplier",
                            "%g is not known to scale anything in this architecture",
                            (double)log_mul);
    if (r->scale != 1.0f)
        return sl_keys_fail(k, SL_ERR_UNSUPPORTED, "rope.scaling.factor",
                            "%g is supported with YaRN only", 1.0 / (double)r->scale);
    if (r->yarn_factor > 0 && !arch->latent_unscaled) {
        float log_factor = logf(r->yarn_factor), usual = 1.0f + 0.1f * log_factor;
        r->yarn_attn = log_mul > 0 ? attn / usual : attn; /* usual is in cos and sin anyway */
        amplitude = r->yarn_attn * usual * (1.0f + log_mul * log_factor);
    }
    for (uint32_t l = 0; l < hp->n_layer; l++) {
        struct sl_latent_spec *c = &layers[l].spec.latent;
        c->scale = amplitude * amplitude / sqrtf((float)(c->n_nope + c->n_rot));
    }
    return SL_OK;
}

uint32_t sl_arch_latent_gating(const struct sl_keys *k, const struct sl_hparams *hp) {
    /* Early files of GLM-4.7-Flash lack the key; all that is told of them by is their size. */
    const struct sl_gguf_kv *tokens = sl_gguf_kv_find(k->g, "tokenizer.ggml.tokens");
    bool glm = tokens && tokens->type == SL_GGUF_ARRAY && tokens->n_elems == 154880 &&
               (hp->n_layer == 47 || hp->n_layer == 48);
    return glm ? 2 : 0;
}
