/* Gemma 4: heads of two sizes (those with a window have the smaller one), norms behind attention
 * and feed-forward parts, a dense feed-forward part next to the experts, scores that are not
 * scaled. In layers without a window values may be the keys' projection. In the small models (E2B,
 * E4B) each layer has an embedding of its own for each token, and the last layers read the keys and
 * values of the last one before them that has its own and the same window. Source: Google's Gemma 4
 * as in Hugging Face Transformers, "modeling_gemma4". */
#include "model/arch/arch_internal.h"

#include <inttypes.h>

static const char *const keys[] = {"final_logit_softcapping",
                                   "attention.key_length_swa",
                                   "attention.value_length_swa",
                                   "rope.dimension_count_swa",
                                   "attention.shared_kv_layers",
                                   "embedding_length_per_layer_input",
                                   NULL};

/* Which layer's keys and values each of the last n reads. */
static enum sl_status share_kv(struct sl_keys *k, const struct sl_hparams *hp,
                               struct sl_layer *layers, uint32_t n) {
    bool windowed[SL_MAX_LAYERS];
    for (uint32_t l = 0; l < hp->n_layer; l++)
        windowed[l] = true;
    SL_TRY(sl_keys_pattern(k, "attention.sliding_window_pattern", windowed));
    for (uint32_t l = hp->n_layer - n; l < hp->n_layer; l++) {
        uint32_t from = hp->n_layer - n;
        while (from && windowed[from - 1] != windowed[l])
            from--;
        const struct sl_attention_spec *own = from ? &layers[from - 1].spec.attention : NULL;
        struct sl_attention_spec *a = &layers[l].spec.attention;
        if (!own || own->n_head_kv != a->n_head_kv || own->head_dim_k != a->head_dim_k ||
            own->head_dim_v != a->head_dim_v || own->window != a->window)
            return sl_keys_fail(k, SL_ERR_CORRUPT, "attention.shared_kv_layers",
                                "of %" PRIu32 ": no layer before them has keys and values of the "
                                "shape and window of layer %" PRIu32 "'s",
                                n, l);
        a->kv_back = l + 1 - from;
    }
    return SL_OK;
}

static enum sl_status read_own(struct sl_keys *k, struct sl_hparams *hp, struct sl_layer *layers) {
    uint32_t n_shared = 0;
    SL_TRY(sl_keys_u32(k, "attention.shared_kv_layers", false, 0, hp->n_layer - 1, &n_shared));
    SL_TRY(sl_keys_u32(k, "embedding_length_per_layer_input", false, 0,
                       SL_ARCH_MAX_WIDTH / hp->n_layer, &hp->n_embd_layer));
    return share_kv(k, hp, layers, n_shared);
}

const struct sl_arch sl_arch_gemma4 = {
    .name = "gemma4",
    .experts = SL_ARCH_EITHER,
    .rope_kind = SL_ROPE_KIND_NEOX,
    .qk_norm = SL_QK_NORM_HEAD,
    .v_norm = true,
    .v_of_k = true,
    .attention_scale = 1,
    .rope_freqs = true,
    .embd_sqrt = true,
    .gelu = true,
    .with_dense = true,
    .router_normalize = true,
    .activation = SL_EXPERT_GEGLU,
    .keys = keys,
    .needs = SL_ROLES_QK_NORM | SL_ROLE(SL_L_ATTN_POST_NORM) | SL_ROLE(SL_L_FFN_POST_NORM) |
             SL_ROLE(SL_L_SHARED_POST_NORM) | SL_ROLE(SL_L_EXPERTS_POST_NORM) |
             SL_ROLE(SL_L_EXPERTS_NORM) | SL_ROLE(SL_L_ROUTER_NORM),
    .optional = SL_ROLE(SL_L_LAYER_SCALE) | SL_ROLE(SL_L_EXPERTS_SCALE),
    .read_own = read_own,
};
