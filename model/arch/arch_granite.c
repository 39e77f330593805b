/* Granite 3 with experts: the embedding, what each part adds to the residual stream, the scores and
 * the logits are scaled; perhaps a shared expert without a gate.
 * Source: IBM 2024, "Granite 3.0 Language Models", section 2. */
#include "model/arch/arch_internal.h"

static const char *const keys[] = {"embedding_scale", "residual_scale", "logit_scale", NULL};

static enum sl_status read_own(struct sl_keys *k, struct sl_hparams *hp, struct sl_layer *layers) {
    float residual = 0;
    if (!sl_keys_find(k, "logit_scale"))
        return sl_keys_fail(k, SL_ERR_CORRUPT, "logit_scale", "is missing");
    hp->logit_scale = 1 / hp->logit_scale; /* the file has what they are divided by */
    SL_TRY(sl_keys_f32(k, "embedding_scale", 1e-6f, 1e6f, &hp->embd_scale));
    SL_TRY(sl_keys_f32(k, "residual_scale", 1e-6f, 1e6f, &residual));
    for (uint32_t l = 0; l < hp->n_layer && residual > 0 && residual != 1; l++) {
        layers[l].spec.attention.out_scale = residual;
        layers[l].spec.experts.sum_scale = residual;
    }
    return SL_OK;
}

const struct sl_arch sl_arch_granitemoe = {
    .name = "granitemoe",
    .experts = SL_ARCH_MOE,
    .rope_kind = SL_ROPE_KIND_NORM,
    .rope_freqs = true,
    .shared = SL_ARCH_MAY_SHARE,
    .router_normalize = true,
    .keys = keys,
    .optional = SL_ROLES_ATTN_BIAS | SL_ROLE(SL_L_ATTN_OUT_BIAS),
    .read_own = read_own,
};
