/* Kimi Linear: in most layers a delta net whose decay is of each element (Kimi Delta Attention), in
 * the others latent attention that is not rotated; experts behind a sigmoid router with a bias for
 * the choice, and a shared one. Source: Kimi Team 2025, "Kimi Linear: An Expressive, Efficient
 * Attention Architecture"; key names of ggml's GGUF. */
#include "model/arch/arch_internal.h"

static const char *const keys[] = {"ssm.conv_kernel", "kda.head_dim", NULL};

static enum sl_status read_own(struct sl_keys *k, struct sl_hparams *hp, struct sl_layer *layers) {
    for (uint32_t l = 0; l < hp->n_layer; l++)
        layers[l].spec.latent.no_rope = true;
    return sl_arch_read_kda(k, hp, layers);
}

const struct sl_arch sl_arch_kimi_linear = {
    .name = "kimi-linear",
    .experts = SL_ARCH_MOE,
    .rope_kind = SL_ROPE_KIND_NORM,
    .latent = true,
    .keyless = SL_MIXER_KDA,
    .shared = SL_ARCH_SHARED_COUNT,
    .dense_lead = true,
    .router_sigmoid = true,
    .router_normalize = true,
    .keys = keys,
    .read_own = read_own,
    .needs = SL_ROLE(SL_L_ROUTER_BIAS),
};
