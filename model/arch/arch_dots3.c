/* dots3-note: latent attention in two shapes. Some layers attend to what an indexer chooses of all
 * positions, the others to a window, with heads, latents and a rotation of their own; both have a
 * gate of each head, and the elements of key that heads share are normed. The first layers are
 * dense, the others have experts, a router of sigmoids with a bias for the choice, and shared
 * experts; perhaps draft layers. Source: rednote-hilab 2026, "dots3-note",
 * configuration; names of llama.cpp's GGUF. */
#include "model/arch/arch_internal.h"

#include <inttypes.h>
#include <math.h>

static const char *const keys[] = {"attention.indexer.head_count",   "attention.indexer.key_length",
                                   "attention.indexer.top_k",        "attention.indexer.types",
                                   "attention.kv_lora_rank_swa",     "attention.key_length_mla_swa",
                                   "attention.value_length_mla_swa", "attention.key_length_swa",
                                   "attention.value_length_swa",     NULL};

/* Of a key that repeats what others say. */
static enum sl_status check_is(struct sl_keys *k, const char *key, uint32_t want) {
    uint32_t v = want;
    SL_TRY(sl_keys_u32(k, key, false, 0, UINT32_MAX, &v));
    return v == want ? SL_OK
                     : sl_keys_fail(k, SL_ERR_CORRUPT, key,
                                    "%" PRIu32 ", but attention.kv_lora_rank_swa and "
                                    "rope.dimension_count make it %" PRIu32,
                                    v, want);
}

/* A layer with a window, but for its number of heads; like is one without. */
static enum sl_status read_windowed(struct sl_keys *k, const struct sl_hparams *hp,
                                    const struct sl_latent_spec *like, struct sl_latent_spec *out) {
    static const char dim_k[] = "attention.key_length_mla_swa";
    uint32_t dim = 0, window = 0;
    *out = *like;
    SL_TRY(sl_keys_u32(k, "attention.kv_lora_rank_swa", true, 1, SL_ARCH_MAX_HEAD_DIM,
                       &out->n_latent));
    SL_TRY(sl_keys_u32(k, dim_k, true, 1, SL_ARCH_MAX_HEAD_DIM, &dim));
    SL_TRY(sl_keys_u32(k, "attention.value_length_mla_swa", true, 1, SL_ARCH_MAX_HEAD_DIM,
                       &out->head_dim_v));
    SL_TRY(sl_keys_u32(k, "attention.sliding_window", true, 1, UINT32_MAX, &window));
    SL_TRY(check_is(k, "attention.key_length_swa", out->n_latent + out->n_rot));
    SL_TRY(check_is(k, "attention.value_length_swa", out->n_latent));
    if (dim <= out->n_rot)
        return sl_keys_fail(k, SL_ERR_CORRUPT, dim_k,
                            "%" PRIu32 " leaves nothing beside the %" PRIu32
                            " elements of rope.dimension_count",
                            dim, out->n_rot);
    out->n_nope = dim - out->n_rot;
    out->scale = 1 / sqrtf((float)dim);
    out->window = window < hp->n_ctx_train ? window : 0; /* else it is never reached */
    out->rope = 1;
    out->n_index_head = out->index_dim = out->n_index_top = 0;
    return SL_OK;
}

static enum sl_status read_own(struct sl_keys *k, struct sl_hparams *hp, struct sl_layer *layers) {
    static const char pattern[] = "attention.sliding_window_pattern",
                      types[] = "attention.indexer.types";
    static const char *const needed[] = {pattern, types, "attention.key_length_mla",
                                         "rope.freq_base_swa"};
    bool windowed[SL_MAX_LAYERS] = {false}, chooses[SL_MAX_LAYERS] = {false};
    struct sl_latent_spec own;
    for (uint32_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!sl_keys_find(k, needed[i]))
            return sl_keys_fail(k, SL_ERR_CORRUPT, needed[i], "is missing");
    SL_TRY(sl_keys_pattern(k, pattern, windowed));
    SL_TRY(sl_keys_pattern(k, types, chooses));
    SL_TRY(sl_arch_read_indexer(k, hp, true, layers));
    SL_TRY(read_windowed(k, hp, &layers[0].spec.latent, &own));
    for (uint32_t l = 0; l < hp->n_layer; l++) {
        struct sl_latent_spec *c = &layers[l].spec.latent;
        if (windowed[l] == chooses[l])
            return sl_keys_fail(k, SL_ERR_CORRUPT, types,
                                "layer %" PRIu32 " has %s a window %s an indexer", l,
                                windowed[l] ? "both" : "neither", windowed[l] ? "and" : "nor");
        own.n_head = c->n_head;
        if (windowed[l])
            *c = own;
        c->gate = SL_GATE_HEAD;
        c->k_norm = true;
        SL_TRY(sl_arch_check_latent(k, c));
    }
    return SL_OK;
}

const struct sl_arch sl_arch_dots3note = {
    .name = "dots3note",
    .experts = SL_ARCH_MOE,
    .rope_kind = SL_ROPE_KIND_NORM,
    .latent = true,
    .latent_windows = true,
    .latent_unscaled = true,
    .shared = SL_ARCH_SHARED_COUNT,
    .dense_lead = true,
    .nextn = true,
    .router_sigmoid = true,
    .keys = keys,
    .needs = SL_ROLE(SL_L_ROUTER_BIAS),
    .read_own = read_own,
};
