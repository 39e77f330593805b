/* Granite 3 and 4 with experts: the embedding, what each part adds to the residual stream, the
 * scores and the logits are scaled; perhaps a shared expert without a gate. In Granite 4's hybrids
 * most layers are Mamba-2 in place of attention, which may not be rotated. Source: IBM 2024,
 * "Granite 3.0 Language Models", section 2; IBM 2025, Granite 4.0's model cards.
 */
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

static const char *const hybrid_keys[] = {"embedding_scale",    "residual_scale",  "logit_scale",
                                          "ssm.conv_kernel",    "ssm.inner_size",  "ssm.state_size",
                                          "ssm.time_step_rank", "ssm.group_count", NULL};

static enum sl_status read_hybrid(struct sl_keys *k, struct sl_hparams *hp,
                                  struct sl_layer *layers) {
    bool rotated = true; /* by this key's name one would not think so */
    SL_TRY(read_own(k, hp, layers));
    SL_TRY(sl_arch_read_mamba(k, hp, layers));
    SL_TRY(sl_keys_bool(k, "rope.scaling.finetuned", &rotated));
    for (uint32_t l = 0; l < hp->n_layer; l++) {
        layers[l].spec.attention.no_rope = !rotated;
        layers[l].spec.mamba.out_scale = layers[l].spec.attention.out_scale;
    }
    return SL_OK;
}

const struct sl_arch sl_arch_granitehybrid = {
    .name = "granitehybrid",
    .experts = SL_ARCH_MOE,
    .rope_kind = SL_ROPE_KIND_NORM,
    .rope_freqs = true,
    .keyless = SL_MIXER_MAMBA,
    .shared = SL_ARCH_MAY_SHARE,
    .router_normalize = true,
    .keys = hybrid_keys,
    .optional = SL_ROLES_ATTN_BIAS | SL_ROLE(SL_L_ATTN_OUT_BIAS),
    .read_own = read_hybrid,
};
