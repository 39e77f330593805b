/* Nemotron-H and Nemotron 3: every layer is one part, Mamba-2, attention that is not rotated, or a
 * feed-forward one with squared ReLU, dense or with experts, which may read rows of fewer elements
 * than the others. One norm goes before each, called the attention's. Source: NVIDIA 2025,
 * "Nemotron-H: A Family of Accurate and Efficient Hybrid Mamba-Transformer Models"; "Nemotron 3
 * Nano", section 2. */
#include "model/arch/arch_internal.h"

static const char *const keys[] = {"ssm.conv_kernel",
                                   "ssm.inner_size",
                                   "ssm.state_size",
                                   "ssm.time_step_rank",
                                   "ssm.group_count",
                                   "moe_latent_size",
                                   NULL};
static const struct sl_arch_name names[] = {{SL_L_FFN_NORM, "attn_norm.weight", false}, {0}};

static enum sl_status read_own(struct sl_keys *k, struct sl_hparams *hp, struct sl_layer *layers) {
    for (uint32_t l = 0; l < hp->n_layer; l++)
        layers[l].spec.attention.no_rope = true;
    return sl_arch_read_mamba(k, hp, layers);
}

#define COMMON                                                                                     \
    .rope_kind = SL_ROPE_KIND_NEOX, .keyless = SL_MIXER_MAMBA, .one_part = true,                   \
    .relu_squared = true, .any_epsilon = true, .keys = keys, .names = names, .read_own = read_own, \
    .optional = SL_ROLES_ATTN_BIAS | SL_ROLE(SL_L_ATTN_OUT_BIAS)

const struct sl_arch sl_arch_nemotron_h = {
    .name = "nemotron_h",
    .experts = SL_ARCH_DENSE,
    COMMON,
};
const struct sl_arch sl_arch_nemotron_h_moe = {
    .name = "nemotron_h_moe",
    .experts = SL_ARCH_MOE,
    .nextn = true,
    .shared = SL_ARCH_MAY_SHARE,
    .router_sigmoid = true,
    .activation = SL_EXPERT_RELU_SQUARED,
    .latent_experts = "moe_latent_size",
    .needs = SL_ROLE(SL_L_ROUTER_BIAS),
    COMMON,
};
