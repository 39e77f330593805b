/* Grok 1 and 2: scores with a soft cap, norms behind attention and feed-forward parts, GELU in
 * experts, scales of embedding and logits; Grok 2 has a dense part next to the experts, and takes
 * the two parts' mean times the root of 2. A soft cap of the router's logits is stated by files and
 * ignored, as in llama.cpp.
 * Source: xAI 2024, "grok-1" (model.py); names and defaults of llama.cpp's GGUF. */
#include "model/arch/arch_internal.h"

#include <inttypes.h>
#include <stdio.h>

static const char *const keys[] = {"logit_scale",
                                   "embedding_scale",
                                   "attention.output_scale",
                                   "attn_logit_softcapping",
                                   "router_logit_softcapping",
                                   "final_logit_softcapping",
                                   NULL};

static const struct sl_arch_name names[] = {
    {SL_L_ATTN_POST_NORM, "attn_output_norm.weight", false},
    {SL_L_FFN_POST_NORM, "layer_output_norm.weight", true},
    {0, NULL, false},
};

static enum sl_status read_own(struct sl_keys *k, struct sl_hparams *hp, struct sl_layer *layers) {
    /* Grok 1's, which its files do not state. */
    float scale = 0.08838834764831845f, cap = 30;
    hp->embd_scale = 78.38367176906169f;
    if (!sl_keys_find(k, "logit_scale"))
        hp->logit_scale = 0.5773502691896257f;
    if (!sl_keys_find(k, "rope.scaling.yarn_beta_fast"))
        hp->rope[0].yarn_beta_fast = 8;
    SL_TRY(sl_keys_f32(k, "embedding_scale", 1e-6f, 1e6f, &hp->embd_scale));
    SL_TRY(sl_keys_f32(k, "attention.output_scale", 1e-6f, 1e6f, &scale));
    SL_TRY(sl_keys_f32(k, "attn_logit_softcapping", 1e-3f, 1e6f, &cap));
    for (uint32_t l = 0; l < hp->n_layer; l++) {
        struct sl_layer_spec *s = &layers[l].spec;
        char up[64];
        snprintf(up, sizeof up, "blk.%" PRIu32 ".ffn_up.weight", l);
        s->attention.scale = scale;
        s->attention.softcap = cap;
        if (!sl_gguf_tensor_find(k->g, up))
            continue;
        uint32_t ff[SL_MAX_LAYERS] = {0};
        SL_TRY(sl_keys_u32_each(k, "feed_forward_length", true, 1, SL_ARCH_MAX_WIDTH, ff));
        s->experts.with_dense = true;
        s->n_ff = s->experts.n_ff_shared = ff[l];
        s->experts.sum_scale = 0.70710678118654752f;
    }
    return SL_OK;
}

const struct sl_arch sl_arch_grok = {
    .name = "grok",
    .experts = SL_ARCH_MOE,
    .rope_kind = SL_ROPE_KIND_NEOX,
    .router_normalize = true,
    .activation = SL_EXPERT_GEGLU,
    .gelu = true,
    .keys = keys,
    .names = names,
    .needs = SL_ROLE(SL_L_ATTN_POST_NORM) | SL_ROLE(SL_L_FFN_POST_NORM),
    .read_own = read_own,
};
