/* Llama 4 (Scout, Maverick): three layers of four rotate queries and keys and see chunks of
 * positions alone; the fourth sees all, rotates none, and its queries grow with the position. Each
 * step-th layer has experts, one a token, whose input is weighted, and a shared one of their width.
 * Source: Meta AI 2025, "The Llama 4 herd"; Hugging Face Transformers, "modeling_llama4". */
#include "model/arch/arch_internal.h"

#define CHUNK 8192u

static enum sl_status read_own(struct sl_keys *k, struct sl_hparams *hp, struct sl_layer *layers) {
    uint32_t chunk = CHUNK;
    SL_TRY(sl_keys_u32(k, "attention.sliding_window", false, 1, UINT32_MAX, &chunk));
    if (hp->n_expert_used != 1)
        return sl_keys_fail(k, SL_ERR_UNSUPPORTED, "expert_used_count",
                            "experts whose input is weighted are supported one a token, not %u",
                            hp->n_expert_used);
    for (uint32_t l = 0; l < hp->n_layer; l++) {
        struct sl_attention_spec *a = &layers[l].spec.attention;
        struct sl_experts_spec *x = &layers[l].spec.experts;
        bool chunked = l % 4 < 3;
        a->window = 0;
        a->chunk = chunked && chunk < hp->n_ctx_train ? chunk : 0;
        a->no_rope = !chunked;
        a->temper_span = chunked ? 0 : CHUNK;
        a->temper_scale = chunked ? 0 : 0.1f;
        a->temper_ahead = true;
        /* Maverick's 128 experts are how its lack of these norms is told. */
        a->qk_norm_plain = chunked && hp->n_expert != 128;
        if (layers[l].spec.ffn != SL_FFN_EXPERTS)
            continue;
        x->n_ff_shared = x->n_ff;
        x->router_kind = SL_ROUTER_KIND_SIGMOID;
        x->router_softmax_topk = true;
        x->weights_in = true;
    }
    return SL_OK;
}

const struct sl_arch sl_arch_llama4 = {
    .name = "llama4",
    .experts = SL_ARCH_MOE,
    .rope_kind = SL_ROPE_KIND_NORM,
    .rope_freqs = true,
    .dense_lead = true,
    .read_own = read_own,
};
