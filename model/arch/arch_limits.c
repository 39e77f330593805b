/* Limits of SwiGLU, of each layer: of its routed experts, and of the experts that all rows use or
 * its dense part. Key names of ggml's GGUF. */
#include "model/arch/arch_internal.h"

enum sl_status sl_arch_read_limits(struct sl_keys *k, const struct sl_hparams *hp,
                                   struct sl_layer *layers) {
    float routed[SL_MAX_LAYERS] = {0}, shared[SL_MAX_LAYERS] = {0};
    SL_TRY(sl_keys_f32_each(k, "swiglu_clamp_exp", 0.0f, 1e6f, routed));
    SL_TRY(sl_keys_f32_each(k, "swiglu_clamp_shexp", 0.0f, 1e6f, shared));
    for (uint32_t l = 0; l < hp->n_layer; l++) {
        struct sl_layer_spec *s = &layers[l].spec;
        s->limit = shared[l] > 1e-6f ? shared[l] : 0; /* so llama.cpp's threshold */
        if (routed[l] > 1e-6f) {
            s->experts.activation = SL_EXPERT_SWIGLU_LIMITED;
            s->experts.limit = routed[l];
        }
    }
    return SL_OK;
}
