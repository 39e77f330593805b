#include "model/arch/arch.h"

const struct sl_arch sl_arch_olmoe = {
    .name = "olmoe",
    .experts = SL_ARCH_MOE,
    .rope_kind = SL_ROPE_KIND_NEOX,
    .qk_norm = SL_QK_NORM_ROW,
    .needs = SL_ROLES_QK_NORM,
};
