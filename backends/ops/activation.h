/* Activations of gated feed-forward parts: kernels know them too. */
#ifndef SL_BACKENDS_OPS_ACTIVATION_H
#define SL_BACKENDS_OPS_ACTIVATION_H

/* How g and u, the products of gate and up, are combined:
 *   SwiGLU          silu(g) * u                                               (Shazeer 2020)
 *   SwiGLU clamped  g / (1 + exp(-1.702 g)) * (u + 1), g at most 7, u -7 to 7 (gpt-oss model card)
 *   GEGLU           gelu(g) * u, as in sl_op_gelu_mul                        (Shazeer 2020)
 *   SwiGLU limited  min(silu(g), limit) * min(max(u, -limit), limit)          (Step-3.5)
 *   ReGLU           (g > 0 ? g : 0) * u                                       (Shazeer 2020)
 *   SwiGLU cut      silu(min(g, limit)) * min(max(u, -limit), limit)          (Maple)
 *   squared ReLU    (u < 0 ? 0 : u)^2: there is no gate                       (So et al. 2021)
 *   SiTU            cap(g, limit) * sigmoid(g) * cap(u, limit_up), the last factor u itself where
 *                   limit_up is 0; cap(x, c) = c * tanh(x / c)                        (Kimi K3)
 */
enum sl_activation {
    SL_SWIGLU,
    SL_SWIGLU_CLAMPED,
    SL_GEGLU,
    SL_SWIGLU_LIMITED,
    SL_REGLU,
    SL_SWIGLU_CUT,
    SL_RELU_SQUARED,
    SL_SITU,
};

#endif
