/* Poolside's Laguna: a softplus gate on what attention gives, of each head or each element; windows
 * in three layers of four, the first without, with a rotation of their own that no YaRN extends. A
 * router of sigmoids with a bias for the choice; a shared expert; the first layers are dense.
 * Source: poolside 2025, "Laguna"; names of llama.cpp's GGUF. */
#include "model/arch/arch_internal.h"

static const char *const keys[] = {"rope.dimension_count_swa", NULL};

static enum sl_status read_own(struct sl_keys *k, struct sl_hparams *hp, struct sl_layer *layers) {
    uint32_t n_shared = 1;
    SL_TRY(sl_keys_u32(k, "expert_shared_count", false, 1, 1024, &n_shared));
    for (uint32_t l = 0; l < hp->n_layer; l++) {
        struct sl_experts_spec *x = &layers[l].spec.experts;
        if (layers[l].spec.ffn != SL_FFN_EXPERTS || x->n_ff_shared)
            continue;
        if (x->n_ff > SL_ARCH_MAX_WIDTH / n_shared)
            return sl_keys_fail(k, SL_ERR_CORRUPT, "expert_shared_count",
                                "%u shared experts of %u are wider than %u", n_shared, x->n_ff,
                                SL_ARCH_MAX_WIDTH);
        x->n_ff_shared = x->n_ff * n_shared;
    }
    return SL_OK;
}

const struct sl_arch sl_arch_laguna = {
    .name = "laguna",
    .experts = SL_ARCH_MOE,
    .rope_kind = SL_ROPE_KIND_NEOX,
    .qk_norm = SL_QK_NORM_HEAD,
    .window_period = 4,
    .window_last = true,
    .window_rope_plain = true,
    .shared = SL_ARCH_MAY_SHARE,
    .dense_lead = true,
    .router_sigmoid = true,
    .gate = SL_ARCH_GATE_EITHER,
    .gate_softplus = true,
    .keys = keys,
    .needs = SL_ROLES_QK_NORM | SL_ROLE(SL_L_ROUTER_BIAS),
    .read_own = read_own,
};
