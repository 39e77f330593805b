/* What becomes of the products of experts: biases and the activation. Both are asked for as the kernel
 * runs, once for each output, so that experts without them have the same arithmetic and registers. */
#ifndef SL_BACKENDS_KERNELS_MOE_CUH
#define SL_BACKENDS_KERNELS_MOE_CUH

#include "backends/kernels/device.cuh"

/* Output row o of a product: expert() is asked only if there are biases. bias [n_expert, n_out] */
template <class EXPERT>
__device__ __forceinline__ float sl_moe_biased(const float *bias, EXPERT expert, uint32_t n_out,
                                               uint32_t o, float v) {
    return bias ? v + bias[(size_t)expert() * n_out + o] : v;
}

/* Any activation, of products that have their biases. A NaN stays. */
__device__ __forceinline__ float sl_moe_activated(const struct sl_karg_experts &a, float gate,
                                                  float up) {
    if (a.activation == SL_GEGLU)
        return sl_dev_gelu(gate) * up;
    if (a.activation == SL_RELU_SQUARED)
        return sl_dev_relu_squared(up);
    if (a.activation == SL_REGLU)
        return (gate > 0 ? gate : 0.0f) * up;
    if (a.activation == SL_SWIGLU_LIMITED)
        return sl_dev_limited_glu(gate, up, a.limit);
    if (a.activation == SL_SWIGLU_CUT)
        return sl_dev_cut_glu(gate, up, a.limit);
    float steep = gate;
    if (a.activation == SL_SWIGLU_CLAMPED) {
        gate = a.limit < gate ? a.limit : gate;
        up = a.limit < up ? a.limit : up;
        up = (-a.limit > up ? -a.limit : up) + 1.0f;
        steep = a.alpha * gate;
    }
    return gate / (1.0f + sl_dev_exp(-steep)) * up;
}

/* What mode UP finds as the product of gate: of squared ReLU there is none, and nothing there. */
__device__ __forceinline__ float sl_moe_gate(const struct sl_karg_experts &a, const float *h) {
    return a.activation == SL_RELU_SQUARED ? 0.0f : *h;
}

/* The value of h for output row o. PLAIN: the experts have no biases, and SwiGLU. */
template <bool PLAIN = false, class EXPERT>
__device__ __forceinline__ float sl_moe_gated(const struct sl_karg_experts &a, EXPERT expert,
                                              uint32_t n_out, uint32_t o, float gate, float up) {
    if constexpr (PLAIN)
        return sl_dev_silu(gate) * up;
    return sl_moe_activated(a, sl_moe_biased(a.gate_bias, expert, n_out, o, gate),
                            sl_moe_biased(a.up_bias, expert, n_out, o, up));
}

#endif
