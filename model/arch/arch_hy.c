/* Hunyuan V3 (Hy3): norms of q and k before the rotation; layers without a router are dense; the
 * router takes sigmoids, perhaps with a bias for the choice; a shared expert without a gate;
 * perhaps draft layers. Source: Tencent 2026, "Hy3", model card; names of llama.cpp's
 * GGUF. */
#include "model/arch/arch_internal.h"

static const struct sl_arch_name names[] = {
    {SL_L_ROUTER_BIAS, "exp_probs_b", false},
    {0, NULL, false},
};

/* Without a width of its own the shared expert has that of a routed one. */
static enum sl_status read_own(struct sl_keys *k, struct sl_hparams *hp, struct sl_layer *layers) {
    (void)k;
    for (uint32_t l = 0; l < hp->n_layer; l++) {
        struct sl_experts_spec *x = &layers[l].spec.experts;
        if (!x->n_ff_shared)
            x->n_ff_shared = x->n_ff;
    }
    return SL_OK;
}

const struct sl_arch sl_arch_hy_v3 = {
    .name = "hy_v3",
    .experts = SL_ARCH_MOE,
    .rope_kind = SL_ROPE_KIND_NEOX,
    .qk_norm = SL_QK_NORM_HEAD,
    .shared = SL_ARCH_MAY_SHARE,
    .split_ff = true,
    .nextn = true,
    .drafts = true,
    .router_sigmoid = true,
    .experts_by_tensor = true,
    .names = names,
    .needs = SL_ROLES_QK_NORM,
    .optional = SL_ROLES_ATTN_BIAS | SL_ROLE(SL_L_ROUTER_BIAS),
    .read_own = read_own,
};
