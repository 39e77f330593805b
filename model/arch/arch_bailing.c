/* Ling and Ring. The first, bailingmoe: every layer has experts, weights that are a softmax over
 * all of them, shared experts without a gate. Ling 2.0, bailingmoe2: norms of q and k, partial
 * rotation, dense layers first, a router of sigmoids that chooses by groups, perhaps layers that
 * draft tokens. Source: Ling Team 2025, "Every FLOP Counts"; "Every Activation Boosted". */
#include "model/arch/arch_internal.h"

#include <inttypes.h>

/* Where the file gives the width of a shared expert it is that of each. */
static enum sl_status read_own(struct sl_keys *k, struct sl_hparams *hp, struct sl_layer *layers) {
    uint32_t n_shared = 1, width = 0;
    SL_TRY(sl_keys_u32(k, "expert_shared_count", true, 1, UINT32_MAX, &n_shared));
    SL_TRY(sl_keys_u32(k, "expert_shared_feed_forward_length", false, 0, UINT32_MAX, &width));
    if ((uint64_t)width * n_shared > SL_ARCH_MAX_WIDTH)
        return sl_keys_fail(k, SL_ERR_CORRUPT, "expert_shared_feed_forward_length",
                            "%" PRIu32 " shared experts of %" PRIu32 " are wider than %u", n_shared,
                            width, SL_ARCH_MAX_WIDTH);
    for (uint32_t l = 0; l < hp->n_layer && width; l++)
        if (layers[l].spec.ffn == SL_FFN_EXPERTS)
            layers[l].spec.experts.n_ff_shared = width * n_shared;
    return SL_OK;
}

const struct sl_arch sl_arch_bailingmoe = {
    .name = "bailingmoe",
    .experts = SL_ARCH_MOE,
    .rope_kind = SL_ROPE_KIND_NORM,
    .shared = SL_ARCH_SHARED_COUNT,
    .optional = SL_ROLES_ATTN_BIAS,
};

const struct sl_arch sl_arch_bailingmoe2 = {
    .name = "bailingmoe2",
    .experts = SL_ARCH_MOE,
    .rope_kind = SL_ROPE_KIND_NEOX,
    .qk_norm = SL_QK_NORM_HEAD,
    .shared = SL_ARCH_SHARED_COUNT,
    .dense_lead = true,
    .router_sigmoid = true,
    .nextn = true,
    .needs = SL_ROLES_QK_NORM,
    .optional = SL_ROLES_ATTN_BIAS | SL_ROLE(SL_L_ROUTER_BIAS),
    .read_own = read_own,
};
