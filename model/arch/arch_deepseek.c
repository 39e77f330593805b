/* DeepSeek-V2, V2-Lite, V3 and R1, and those built like them: Kimi-K2, GLM-4.7-Flash. Latent
 * attention; the first layers are dense; shared experts without a gate; V3's router takes sigmoids,
 * with a bias for the choice alone; perhaps layers that guess ahead.
 * Source: DeepSeek-AI 2024, "DeepSeek-V2" and "DeepSeek-V3 Technical Report", section 2. */
#include "model/arch/arch.h"

const struct sl_arch sl_arch_deepseek2 = {
    .name = "deepseek2",
    .experts = SL_ARCH_MOE,
    .rope_kind = SL_ROPE_KIND_NORM,
    .latent = true,
    .shared = SL_ARCH_SHARED_COUNT,
    .dense_lead = true,
    .nextn = true,
    .optional = SL_ROLE(SL_L_ROUTER_BIAS),
};
