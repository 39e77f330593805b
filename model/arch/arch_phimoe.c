/* Phi-3.5-MoE: biases everywhere but in experts: of norms, of attention's matrices and of the
 * output. Frequencies divided by one of two sets of factors. Norms are RMS and the router a softmax
 * over all experts, as llama.cpp has them; Microsoft's code takes the mean out too, and masks what
 * is far below the first choice (SparseMixer). Source: Microsoft 2024, "Phi-3 Technical Report";
 * names and order of llama.cpp's GGUF. */
#include "model/arch/arch.h"

const struct sl_arch sl_arch_phimoe = {
    .name = "phimoe",
    .experts = SL_ARCH_MOE,
    .rope_kind = SL_ROPE_KIND_NEOX,
    .rope_factors = true,
    .output_biases = true,
    .router_normalize = true,
    .needs =
        SL_ROLE(SL_L_ATTN_NORM_BIAS) | SL_ROLE(SL_L_FFN_NORM_BIAS) | SL_ROLE(SL_L_ATTN_OUT_BIAS),
    .optional = SL_ROLES_ATTN_BIAS,
};
