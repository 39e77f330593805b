/* Xiaomi's MiMo-V2: layers with a window have other numbers of heads than those without, and sinks;
 * keys are wider than values, which are scaled; a router of sigmoids with a bias for the choice;
 * layers without a router are dense; perhaps draft layers.
 * Source: Xiaomi 2025, "MiMo-V2-Flash"; names of llama.cpp's GGUF. */
#include "model/arch/arch_internal.h"

static const char *const keys[] = {"attention.value_scale", NULL};

static enum sl_status read_own(struct sl_keys *k, struct sl_hparams *hp, struct sl_layer *layers) {
    float scale = 0;
    SL_TRY(sl_keys_f32(k, "attention.value_scale", 0.0f, 1e6f, &scale));
    if (!sl_keys_find(k, "attention.sliding_window_pattern"))
        return sl_keys_fail(k, SL_ERR_CORRUPT, "attention.sliding_window_pattern", "is missing");
    for (uint32_t l = 0; l < hp->n_layer; l++) {
        layers[l].spec.attention.value_scale = scale;
        layers[l].spec.experts.router_kind = SL_ROUTER_KIND_SIGMOID;
        layers[l].spec.experts.router_softmax_topk = false;
    }
    return SL_OK;
}

const struct sl_arch sl_arch_mimo2 = {
    .name = "mimo2",
    .experts = SL_ARCH_MOE,
    .rope_kind = SL_ROPE_KIND_NEOX,
    .window_freqs = true,
    .window_rope_base = 10000,
    .window_rope_plain = true,
    .router_normalize = true,
    .nextn = true,
    .router_sigmoid = true,
    .experts_by_tensor = true,
    .keys = keys,
    .optional = SL_ROLE(SL_L_ATTN_SINKS) | SL_ROLE(SL_L_ROUTER_BIAS) | SL_ROLES_ATTN_BIAS,
    .read_own = read_own,
};
