/* Maple: windows by a pattern that the file states; layers without one rotate nothing. Norms of q
 * and k; SwiGLU whose inputs are cut.
 * Source: names, defaults and order of operations of llama.cpp's GGUF. */
#include "model/arch/arch_internal.h"

static const char *const keys[] = {"swiglu_clamp_exp", "rope.dimension_count_swa", NULL};

static enum sl_status read_own(struct sl_keys *k, struct sl_hparams *hp, struct sl_layer *layers) {
    float limit[SL_MAX_LAYERS] = {0};
    bool windowed[SL_MAX_LAYERS];
    static const char *const needed[] = {"attention.sliding_window",
                                         "attention.sliding_window_pattern", "swiglu_clamp_exp"};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!sl_keys_find(k, needed[i]))
            return sl_keys_fail(k, SL_ERR_CORRUPT, needed[i], "is missing");
    SL_TRY(sl_keys_pattern(k, "attention.sliding_window_pattern", windowed));
    SL_TRY(sl_keys_f32_each(k, "swiglu_clamp_exp", 0.0f, 1e6f, limit));
    for (uint32_t l = 0; l < hp->n_layer; l++) {
        struct sl_experts_spec *x = &layers[l].spec.experts;
        layers[l].spec.attention.no_rope = !windowed[l];
        if (limit[l] > 1e-6f) { /* so llama.cpp's threshold */
            x->activation = SL_EXPERT_SWIGLU_CUT;
            x->limit = limit[l];
        }
    }
    return SL_OK;
}

const struct sl_arch sl_arch_maple = {
    .name = "maple",
    .experts = SL_ARCH_MOE,
    .rope_kind = SL_ROPE_KIND_NEOX,
    .qk_norm = SL_QK_NORM_HEAD,
    .router_normalize = true,
    .keys = keys,
    .needs = SL_ROLES_QK_NORM,
    .optional = SL_ROLES_ATTN_BIAS,
    .read_own = read_own,
};
