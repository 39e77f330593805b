#include "model/arch/arch.h"

const struct sl_arch sl_arch_llama = {
    .name = "llama",
    .experts = SL_ARCH_EITHER,
    .rope_kind = SL_ROPE_KIND_NORM,
    .rope_freqs = true,
    .router_normalize = true,
    .optional = SL_ROLES_ATTN_BIAS | SL_ROLE(SL_L_ATTN_OUT_BIAS),
};
