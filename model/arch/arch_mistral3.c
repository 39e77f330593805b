/* Ministral 3, and Mistral's of its kind with experts: Llama's layers with queries that grow with
 * the position, by the context before its extension. Source: Mistral AI 2025, "Ministral 3"; names
 * of llama.cpp's GGUF. */
#include "model/arch/arch_internal.h"

static const char *const keys[] = {"attention.temperature_scale", NULL};

static enum sl_status read_own(struct sl_keys *k, struct sl_hparams *hp, struct sl_layer *layers) {
    float scale = 0;
    SL_TRY(sl_keys_f32(k, "attention.temperature_scale", 0.0f, 1e3f, &scale));
    for (uint32_t l = 0; l < hp->n_layer && scale > 0; l++) {
        layers[l].spec.attention.temper_scale = scale;
        layers[l].spec.attention.temper_span = hp->rope[0].yarn_ctx_orig;
    }
    return SL_OK;
}

const struct sl_arch sl_arch_mistral3 = {
    .name = "mistral3",
    .experts = SL_ARCH_EITHER,
    .rope_kind = SL_ROPE_KIND_NORM,
    .rope_freqs = true,
    .router_normalize = true,
    .keys = keys,
    .optional = SL_ROLES_ATTN_BIAS | SL_ROLE(SL_L_ATTN_OUT_BIAS),
    .read_own = read_own,
};
