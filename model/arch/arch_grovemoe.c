/* GroveMoE: Qwen3's layers with a second set of small experts, the adjugate ones, each shared by a
 * group of the routed experts. Source: Wu et al. 2025, "Grove MoE: Towards Efficient and Superior
 * MoE LLMs with Adjugate Experts", arXiv:2508.07785; that they read what the routed experts give,
 * and how they are weighted, is as llama.cpp v0.5.0 computes them. */
#include "model/arch/arch_internal.h"

#include <inttypes.h>

static const char *const keys[] = {"expert_chunk_feed_forward_length", "experts_per_group",
                                   "expert_group_scale", NULL};

static enum sl_status read_own(struct sl_keys *k, struct sl_hparams *hp, struct sl_layer *layers) {
    uint32_t n_ff = 0, n_per = 0;
    float scale = 0;
    SL_TRY(sl_keys_u32(k, "expert_chunk_feed_forward_length", true, 1, SL_ARCH_MAX_WIDTH, &n_ff));
    SL_TRY(sl_keys_u32(k, "experts_per_group", true, 2, SL_MAX_EXPERTS, &n_per));
    if (!sl_keys_find(k, "expert_group_scale"))
        return sl_keys_fail(k, SL_ERR_CORRUPT, "expert_group_scale", "is missing");
    SL_TRY(sl_keys_f32(k, "expert_group_scale", 1e-6f, 1e6f, &scale));
    for (uint32_t l = 0; l < hp->n_layer; l++) {
        struct sl_experts_spec *x = &layers[l].spec.experts;
        if (layers[l].spec.ffn != SL_FFN_EXPERTS)
            continue;
        if (x->n_expert % n_per)
            return sl_keys_fail(k, SL_ERR_CORRUPT, "experts_per_group",
                                "%" PRIu32 " does not divide the %" PRIu32 " experts", n_per,
                                x->n_expert);
        if (x->router_softmax_topk)
            return sl_keys_fail(k, SL_ERR_UNSUPPORTED, "expert_gating_func",
                                "adjugate experts need the scores of all experts");
        x->n_ff_adjugate = n_ff;
        x->n_per_adjugate = n_per;
        x->adjugate_scale = scale;
    }
    return SL_OK;
}

const struct sl_arch sl_arch_grovemoe = {
    .name = "grovemoe",
    .experts = SL_ARCH_MOE,
    .rope_kind = SL_ROPE_KIND_NEOX,
    .qk_norm = SL_QK_NORM_HEAD,
    .router_normalize = true,
    .keys = keys,
    .needs = SL_ROLES_QK_NORM,
    .read_own = read_own,
};
