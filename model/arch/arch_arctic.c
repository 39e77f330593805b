/* Snowflake's Arctic: a dense part behind attention, as wide as the embedding, and experts that
 * read what attention read, normed on their own. Source: Snowflake 2024, "Arctic"; Hugging Face
 * Transformers' names as in llama.cpp's GGUF. */
#include "model/arch/arch_internal.h"

static const struct sl_arch_name names[] = {
    {SL_L_EXPERTS_NORM, "ffn_norm_exps.weight", false},
    {0, NULL, false},
};

static enum sl_status read_own(struct sl_keys *k, struct sl_hparams *hp, struct sl_layer *layers) {
    (void)k;
    for (uint32_t l = 0; l < hp->n_layer; l++) {
        struct sl_layer_spec *s = &layers[l].spec;
        s->experts.with_dense = s->experts.early = true;
        s->n_ff = s->experts.n_ff_shared = hp->n_embd;
    }
    return SL_OK;
}

const struct sl_arch sl_arch_arctic = {
    .name = "arctic",
    .experts = SL_ARCH_MOE,
    .rope_kind = SL_ROPE_KIND_NORM,
    .router_normalize = true,
    .names = names,
    .needs = SL_ROLE(SL_L_EXPERTS_NORM),
    .read_own = read_own,
};
