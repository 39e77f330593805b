/* Llama 1 to 3 and Mistral (dense), Mixtral (experts): no biases, rotation of neighbouring pairs,
 * Llama 3's frequency divisors in rope_freqs.weight.
 *
 * Mixtral takes the softmax over the k chosen logits; that equals the softmax over all, divided by
 * the k weights' sum, which is how it is described here.
 * Source: Touvron et al. 2023; Jiang et al. 2024, "Mixtral of Experts", section 2.1. */
#include "model/arch/arch.h"

const struct sl_arch sl_arch_llama = {
    .name = "llama",
    .experts = SL_ARCH_EITHER,
    .rope_kind = SL_ROPE_KIND_NORM,
    .rope_freqs = true,
    .router_normalize = true,
    .always = SL_ROLES_ATTENTION,
    .dense = SL_ROLES_FFN,
    .moe = SL_ROLES_EXPERTS,
    .optional = SL_ROLES_ATTN_BIAS | SL_ROLE(SL_L_ATTN_OUT_BIAS),
};
