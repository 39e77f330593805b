/* K-EXAONE: windows in three layers of four; the fourth rotates nothing. Norms of q and k; the
 * first layers are dense; the router takes sigmoids, perhaps with a bias for the choice; a shared
 * expert without a gate; perhaps draft layers. Source: LG AI Research 2026, "K-EXAONE
 * Technical Report", section 2. */
#include "model/arch/arch_internal.h"

static enum sl_status read_own(struct sl_keys *k, struct sl_hparams *hp, struct sl_layer *layers) {
    bool windowed[SL_MAX_LAYERS];
    if (!sl_keys_find(k, "attention.sliding_window"))
        return sl_keys_fail(k, SL_ERR_CORRUPT, "attention.sliding_window", "is missing");
    for (uint32_t l = 0; l < hp->n_layer; l++)
        windowed[l] = l % 4 < 3;
    SL_TRY(sl_keys_pattern(k, "attention.sliding_window_pattern", windowed));
    for (uint32_t l = 0; l < hp->n_layer; l++) {
        struct sl_experts_spec *x = &layers[l].spec.experts;
        layers[l].spec.attention.no_rope = !windowed[l];
        if (!x->n_ff_shared)
            x->n_ff_shared = x->n_ff;
    }
    return SL_OK;
}

const struct sl_arch sl_arch_exaone_moe = {
    .name = "exaone-moe",
    .experts = SL_ARCH_MOE,
    .rope_kind = SL_ROPE_KIND_NEOX,
    .qk_norm = SL_QK_NORM_HEAD,
    .window_period = 4,
    .rope_freqs = true,
    .window_freqs = true,
    .shared = SL_ARCH_MAY_SHARE,
    .dense_lead = true,
    .nextn = true,
    .router_sigmoid = true,
    .needs = SL_ROLES_QK_NORM,
    .optional = SL_ROLES_ATTN_BIAS | SL_ROLE(SL_L_ROUTER_BIAS),
    .read_own = read_own,
};
