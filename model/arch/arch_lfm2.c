/* LFM2 with experts: layers without key heads have a short convolution between gates, the others
 * attention with norms of q and k; the first layers are dense, the router takes sigmoids with a
 * bias for the choice. Source: Liquid AI 2025, "LFM2 Technical Report". */
#include "model/arch/arch_internal.h"

#define MAX_TAPS 8u /* models have 3 */

static const char *const keys[] = {"shortconv.l_cache", NULL};

static enum sl_status read_own(struct sl_keys *k, struct sl_hparams *hp, struct sl_layer *layers) {
    struct sl_conv_spec conv = {.n = hp->n_embd};
    SL_TRY(sl_keys_u32(k, keys[0], true, 2, MAX_TAPS, &conv.n_taps));
    for (uint32_t l = 0; l < hp->n_layer; l++)
        if (layers[l].spec.mixer == SL_MIXER_CONV)
            layers[l].spec.conv = conv;
    return SL_OK;
}

const struct sl_arch sl_arch_lfm2moe = {
    .name = "lfm2moe",
    .experts = SL_ARCH_MOE,
    .rope_kind = SL_ROPE_KIND_NEOX,
    .qk_norm = SL_QK_NORM_HEAD,
    .keyless = SL_MIXER_CONV,
    .dense_lead = true,
    .router_normalize = true,
    .router_sigmoid = true,
    .output_norm = "token_embd_norm.weight",
    .keys = keys,
    .needs = SL_ROLES_QK_NORM | SL_ROLE(SL_L_ROUTER_BIAS),
    .read_own = read_own,
};
