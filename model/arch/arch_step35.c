/* StepFun's Step-3.5: layers with a window have other numbers of heads and another rotation than
 * those without, which rotate half as many elements; a sigmoid gate of each head; SwiGLU with
 * limits; a router of sigmoids with a bias for the choice; layers without a router are dense;
 * draft layers, which read states that are not normed. Source: StepFun 2026, "Step-3.5-Flash";
 * names of llama.cpp's GGUF. */
#include "model/arch/arch_internal.h"

#include <inttypes.h>

static const char *const keys[] = {"swiglu_clamp_exp", "swiglu_clamp_shexp",
                                   "rope.dimension_count_swa", NULL};

static enum sl_status read_own(struct sl_keys *k, struct sl_hparams *hp, struct sl_layer *layers) {
    static const char *const needed[] = {"attention.sliding_window",
                                         "attention.sliding_window_pattern"};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!sl_keys_find(k, needed[i]))
            return sl_keys_fail(k, SL_ERR_CORRUPT, needed[i], "is missing");
    if (hp->rope[0].n_rot % 4 != 0)
        return sl_keys_fail(k, SL_ERR_CORRUPT, "rope.dimension_count",
                            "half of %" PRIu32 " elements cannot be rotated in pairs",
                            hp->rope[0].n_rot);
    hp->rope[0].n_rot /= 2;
    hp->n_rope_freqs =
        (hp->rope[1].n_rot > hp->rope[0].n_rot ? hp->rope[1].n_rot : hp->rope[0].n_rot) / 2;
    return sl_arch_read_limits(k, hp, layers);
}

const struct sl_arch sl_arch_step35 = {
    .name = "step35",
    .experts = SL_ARCH_MOE,
    .rope_kind = SL_ROPE_KIND_NEOX,
    .qk_norm = SL_QK_NORM_HEAD,
    .rope_freqs = true,
    .window_rope_base = 10000,
    .window_rope_plain = true,
    .shared = SL_ARCH_MAY_SHARE,
    .nextn = true,
    .drafts = true,
    .draft_plain = true,
    .router_sigmoid = true,
    .gate = SL_ARCH_GATE_HEAD,
    .experts_by_tensor = true,
    .keys = keys,
    .optional =
        SL_ROLES_QK_NORM | SL_ROLE(SL_L_ATTN_GATE) | SL_ROLE(SL_L_ROUTER_BIAS) | SL_ROLES_ATTN_BIAS,
    .read_own = read_own,
};
