/* OLMoE: q and k are normed over the whole row before they are cut into heads; router weights are
 * the softmax over all experts, not renormalised.
 * Source: Muennighoff et al. 2024, "OLMoE: Open Mixture-of-Experts Language Models", section 2. */
#include "model/arch/arch.h"

const struct sl_arch sl_arch_olmoe = {
    .name = "olmoe",
    .experts = SL_ARCH_MOE,
    .rope_kind = SL_ROPE_KIND_NEOX,
    .qk_norm_row = true,
    .always = SL_ROLES_ATTENTION | SL_ROLES_QK_NORM,
    .moe = SL_ROLES_EXPERTS,
};
