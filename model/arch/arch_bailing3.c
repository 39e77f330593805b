/* Ling 3.0: Kimi Delta Attention whose decays have a bound, its decays and gate one matrix each; in
 * every fourth or sixth layer latent attention that is rotated, with a gate of each head; dense
 * layers first; a router of sigmoids that chooses by groups; SwiGLU with limits in some layers;
 * perhaps a draft layer. Source: Ling Team 2026, "Ling-3.0", model card and
 * configuration; key names of ggml's GGUF. */
#include "model/arch/arch_internal.h"

static const char *const keys[] = {"ssm.conv_kernel",
                                   "kda.head_dim",
                                   "kda.safe_gate",
                                   "kda.gate_lower_bound",
                                   "swiglu_clamp_exp",
                                   "swiglu_clamp_shexp",
                                   NULL};

static enum sl_status read_own(struct sl_keys *k, struct sl_hparams *hp, struct sl_layer *layers) {
    static const char bound_key[] = "kda.gate_lower_bound";
    bool safe = true;
    float bound = 0;
    SL_TRY(sl_keys_bool(k, "kda.safe_gate", &safe));
    if (!safe)
        return sl_keys_fail(k, SL_ERR_UNSUPPORTED, "kda.safe_gate",
                            "decays without a bound are not supported for this architecture");
    if (!sl_keys_find(k, bound_key))
        return sl_keys_fail(k, SL_ERR_CORRUPT, bound_key, "is missing");
    SL_TRY(sl_keys_f32(k, bound_key, -1e3f, -1e-3f, &bound));
    SL_TRY(sl_arch_read_kda(k, hp, layers));
    for (uint32_t l = 0; l < hp->n_layer; l++) {
        layers[l].spec.kda.full = layers[l].spec.kda.full_gate = true;
        layers[l].spec.kda.bound = bound;
        layers[l].spec.latent.gate = SL_GATE_HEAD;
    }
    return sl_arch_read_limits(k, hp, layers);
}

const struct sl_arch sl_arch_bailingmoe3 = {
    .name = "bailingmoe3",
    .experts = SL_ARCH_MOE,
    .rope_kind = SL_ROPE_KIND_NORM,
    .latent = true,
    .latent_unscaled = true,
    .keyless = SL_MIXER_KDA,
    .shared = SL_ARCH_SHARED_COUNT,
    .dense_lead = true,
    .router_sigmoid = true,
    .nextn = true,
    .keys = keys,
    .read_own = read_own,
    .needs = SL_ROLE(SL_L_ROUTER_BIAS),
};
