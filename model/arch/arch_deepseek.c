/* DeepSeek-MoE, the first: plain attention, the first layers dense, shared experts without a gate,
 * weights that are a softmax over all experts. Source: DeepSeek-AI 2024, "DeepSeekMoE", section 3.
 *
 * DeepSeek-V2, V2-Lite, V3 and R1, and those built like them: Kimi-K2, GLM-4.7-Flash. Latent
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

const struct sl_arch sl_arch_deepseek = {
    .name = "deepseek",
    .experts = SL_ARCH_MOE,
    .rope_kind = SL_ROPE_KIND_NORM,
    .shared = SL_ARCH_SHARED_COUNT,
    .dense_lead = true,
    .optional = SL_ROLES_ATTN_BIAS,
};
