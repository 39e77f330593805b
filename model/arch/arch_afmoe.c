/* Arcee's Trinity (afmoe): norms behind attention and feed-forward parts, a gate on what attention
 * gives, windows in three layers of four; the fourth rotates nothing. A router of sigmoids with a
 * bias for the choice; shared experts; the first layers are dense.
 * Source: Arcee AI 2025, "Trinity"; Hugging Face Transformers, "modeling_afmoe". */
#include "model/arch/arch_internal.h"

static enum sl_status read_own(struct sl_keys *k, struct sl_hparams *hp, struct sl_layer *layers) {
    (void)k;
    for (uint32_t l = 3; l < hp->n_layer; l += 4)
        layers[l].spec.attention.no_rope = true;
    return SL_OK;
}

const struct sl_arch sl_arch_afmoe = {
    .name = "afmoe",
    .experts = SL_ARCH_MOE,
    .rope_kind = SL_ROPE_KIND_NEOX,
    .qk_norm = SL_QK_NORM_HEAD,
    .window_period = 4,
    .shared = SL_ARCH_SHARED_COUNT,
    .dense_lead = true,
    .embd_sqrt = true,
    .router_sigmoid = true,
    .gate = SL_ARCH_GATE_ELEMENT,
    .needs = SL_ROLES_QK_NORM | SL_ROLE(SL_L_ATTN_POST_NORM) | SL_ROLE(SL_L_FFN_POST_NORM) |
             SL_ROLE(SL_L_ROUTER_BIAS),
    .read_own = read_own,
};
