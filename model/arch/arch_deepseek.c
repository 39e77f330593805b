/* DeepSeek-MoE, the first: plain attention, the first layers dense, shared experts without a gate,
 * weights that are a softmax over all experts. Source: DeepSeek-AI 2024, "DeepSeekMoE", section 3.
 *
 * DeepSeek-V2, V2-Lite, V3 and R1, and those built like them: Kimi-K2, GLM-4.7-Flash; Mistral 4.
 * Latent attention; the first layers are dense; shared experts without a gate; V3's router takes
 * sigmoids, with a bias for the choice alone; perhaps draft layers. Source: DeepSeek-AI
 * 2024, "DeepSeek-V2" and "DeepSeek-V3 Technical Report", section 2. */
#include "model/arch/arch_internal.h"

static const char *const keys[] = {"attention.temperature_scale", "attention.temperature_length",
                                   NULL};

/* Mistral's: queries grow with the position. */
static enum sl_status read_own(struct sl_keys *k, struct sl_hparams *hp, struct sl_layer *layers) {
    float scale = 0;
    uint32_t span = 0;
    SL_TRY(sl_keys_f32(k, "attention.temperature_scale", 0.0f, 1e3f, &scale));
    SL_TRY(sl_keys_u32(k, "attention.temperature_length", scale > 0, 0, 1u << 30, &span));
    if (scale > 0 && !span)
        return sl_keys_fail(k, SL_ERR_CORRUPT, "attention.temperature_length",
                            "0 beside a scale of %g", (double)scale);
    for (uint32_t l = 0; l < hp->n_layer; l++) {
        layers[l].spec.latent.temper_scale = scale;
        layers[l].spec.latent.temper_span = scale > 0 ? span : 0;
    }
    return SL_OK;
}

const struct sl_arch sl_arch_deepseek2 = {
    .name = "deepseek2",
    .experts = SL_ARCH_MOE,
    .rope_kind = SL_ROPE_KIND_NORM,
    .latent = true,
    .shared = SL_ARCH_SHARED_COUNT,
    .dense_lead = true,
    .nextn = true,
    .drafts = true,
    .keys = keys,
    .optional = SL_ROLE(SL_L_ROUTER_BIAS),
    .read_own = read_own,
};

const struct sl_arch sl_arch_mistral4 = {
    .name = "mistral4",
    .experts = SL_ARCH_MOE,
    .rope_kind = SL_ROPE_KIND_NORM,
    .latent = true,
    .shared = SL_ARCH_SHARED_COUNT,
    .dense_lead = true,
    .nextn = true,
    .keys = keys,
    .optional = SL_ROLE(SL_L_ROUTER_BIAS),
    .read_own = read_own,
};

const struct sl_arch sl_arch_deepseek = {
    .name = "deepseek",
    .experts = SL_ARCH_MOE,
    .rope_kind = SL_ROPE_KIND_NORM,
    .shared = SL_ARCH_SHARED_COUNT,
    .dense_lead = true,
    .optional = SL_ROLES_ATTN_BIAS,
};
