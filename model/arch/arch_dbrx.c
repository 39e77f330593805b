/* DBRX: layer norms, q, k and v in one matrix and cut at a limit.
 * Source: Databricks 2024, "Introducing DBRX"; Hugging Face Transformers, "modeling_dbrx". */
#include "model/arch/arch_internal.h"

static const char *const keys[] = {"attention.clamp_kqv", NULL};

static enum sl_status read_own(struct sl_keys *k, struct sl_hparams *hp, struct sl_layer *layers) {
    float clamp = 0;
    SL_TRY(sl_keys_f32(k, "attention.clamp_kqv", 0.0f, 1e6f, &clamp));
    for (uint32_t l = 0; l < hp->n_layer; l++)
        layers[l].spec.attention.clamp = clamp;
    return SL_OK;
}

const struct sl_arch sl_arch_dbrx = {
    .name = "dbrx",
    .experts = SL_ARCH_MOE,
    .rope_kind = SL_ROPE_KIND_NEOX,
    .router_normalize = true,
    .ffn_norm = "attn_output_norm.weight",
    .norm = SL_ARCH_NORM_LAYER,
    .keys = keys,
    .read_own = read_own,
};
