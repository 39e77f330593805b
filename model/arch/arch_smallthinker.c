/* SmallThinker: the router reads a layer's input before attention, so that experts can be fetched
 * while attention computes; experts have a ReLU for a gate. Where there are windows three layers of
 * four have one; the first of four has none, and rotates nothing.
 * Source: Song et al. 2025, "SmallThinker", section 2. */
#include "model/arch/arch_internal.h"

static enum sl_status read_own(struct sl_keys *k, struct sl_hparams *hp, struct sl_layer *layers) {
    uint32_t window = 0;
    SL_TRY(sl_keys_u32(k, "attention.sliding_window", false, 0, UINT32_MAX, &window));
    for (uint32_t l = 0; l < hp->n_layer; l++) {
        layers[l].spec.attention.no_rope = window && l % 4 == 0;
        layers[l].spec.experts.router_first = true;
    }
    return SL_OK;
}

const struct sl_arch sl_arch_smallthinker = {
    .name = "smallthinker",
    .experts = SL_ARCH_MOE,
    .rope_kind = SL_ROPE_KIND_NEOX,
    .window_period = 4,
    .window_last = true,
    .router_sigmoid = true,
    .router_normalize = true,
    .activation = SL_EXPERT_REGLU,
    .optional = SL_ROLES_ATTN_BIAS,
    .read_own = read_own,
};
