/* Cohere's Command with experts: attention and the feed-forward part read the same norm and are
 * added together; the mean of routed and shared experts, of which the router takes sigmoids. Layers
 * without a window, the first of four, rotate nothing unless they are dense ones at the start.
 * Source: Cohere 2025, "Command A"; names and defaults of llama.cpp's GGUF. */
#include "model/arch/arch_internal.h"

static const char *const keys[] = {"logit_scale", NULL};

static enum sl_status read_own(struct sl_keys *k, struct sl_hparams *hp, struct sl_layer *layers) {
    uint32_t n_shared = 0;
    SL_TRY(sl_keys_u32(k, "expert_shared_count", false, 0, 1024, &n_shared));
    if (!sl_keys_find(k, "logit_scale"))
        return sl_keys_fail(k, SL_ERR_CORRUPT, "logit_scale", "is missing");
    for (uint32_t l = 0; l < hp->n_layer; l++) {
        struct sl_attention_spec *a = &layers[l].spec.attention;
        struct sl_experts_spec *x = &layers[l].spec.experts;
        bool dense = layers[l].spec.ffn == SL_FFN_DENSE;
        a->rope = 0;
        a->no_rope = !a->window && !dense;
        if (dense)
            continue;
        if (n_shared && x->n_ff > SL_ARCH_MAX_WIDTH / n_shared)
            return sl_keys_fail(k, SL_ERR_CORRUPT, "expert_shared_count",
                                "%u shared experts of %u are wider than %u", n_shared, x->n_ff,
                                SL_ARCH_MAX_WIDTH);
        if (!n_shared)
            x->n_ff_shared = 0;
        else if (!x->n_ff_shared)
            x->n_ff_shared = x->n_ff * n_shared;
        x->sum_scale = n_shared ? 0.5f : 0;
    }
    return SL_OK;
}

const struct sl_arch sl_arch_cohere2moe = {
    .name = "cohere2moe",
    .experts = SL_ARCH_MOE,
    .rope_kind = SL_ROPE_KIND_NORM,
    .window_period = 4,
    .window_last = true,
    .rope_freqs = true,
    .shared = SL_ARCH_MAY_SHARE,
    .dense_lead = true,
    .nextn = true,
    .router_sigmoid = true,
    .norm = SL_ARCH_NORM_EITHER,
    .parallel = true,
    .keys = keys,
    .read_own = read_own,
};
