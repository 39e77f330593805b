/* Kimi Linear: in most layers a delta net whose decay is of each element (Kimi Delta Attention), in
 * the others latent attention that is not rotated; experts behind a sigmoid router with a bias for
 * the choice, and a shared one. Source: Kimi Team 2025, "Kimi Linear: An Expressive, Efficient
 * Attention Architecture"; key names of ggml's GGUF. */
#include "model/arch/arch_internal.h"

#include <inttypes.h>

#define MAX_TAPS 8u    /* models have 4 */
#define MAX_DIM  1024u /* SL_CHANNEL_DELTA_MAX; models have 128 */

static const char *const keys[] = {"ssm.conv_kernel", "kda.head_dim", NULL};

static enum sl_status read_own(struct sl_keys *k, struct sl_hparams *hp, struct sl_layer *layers) {
    struct sl_kda_spec s = {.n_head = layers[0].spec.latent.n_head};
    SL_TRY(sl_keys_u32(k, "ssm.conv_kernel", true, 2, MAX_TAPS, &s.n_taps));
    SL_TRY(sl_keys_u32(k, "kda.head_dim", true, 1, MAX_DIM, &s.head_dim));
    if ((uint64_t)s.n_head * s.head_dim > SL_ARCH_MAX_WIDTH)
        return sl_keys_fail(k, SL_ERR_CORRUPT, "kda.head_dim",
                            "%" PRIu32 " heads of %" PRIu32 " are wider than %u", s.n_head,
                            s.head_dim, SL_ARCH_MAX_WIDTH);
    for (uint32_t l = 0; l < hp->n_layer; l++) {
        layers[l].spec.latent.no_rope = true;
        if (layers[l].spec.mixer == SL_MIXER_KDA)
            layers[l].spec.kda = s;
    }
    return SL_OK;
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
