/* Ops that go element by element and that not every model has. */
#include "backends/kernels/device.cuh"
#include "backends/kernels/elem.h"

extern "C" __global__ void __launch_bounds__(256)
    sl_k_elem_gelu_mul(SL_KERNEL_ARGS(sl_karg_gelu_mul, a)) {
    sl_grid_begin();
    uint64_t i = (uint64_t)blockIdx.x * 256 + threadIdx.x;
    if (i < a.n)
        a.y[i] = sl_dev_gelu(a.gate[i]) * a.up[i];
}

extern "C" __global__ void __launch_bounds__(256)
    sl_k_elem_scale(SL_KERNEL_ARGS(sl_karg_scale, a)) {
    sl_grid_begin();
    size_t t = blockIdx.x, i = (size_t)blockIdx.y * 256 + threadIdx.x;
    if (i >= a.n)
        return;
    float by = a.by ? *a.by : 1.0f, row = a.rows ? a.rows[t] : 1.0f;
    float v = a.x[t * a.n + i] * a.scale * by * row;
    a.y[t * a.n + i] = a.cap > 0 ? sl_dev_softcap(v, a.cap) : v;
}

extern "C" __global__ void __launch_bounds__(256)
    sl_k_elem_scale_chosen(SL_KERNEL_ARGS(sl_karg_scale_chosen, a)) {
    sl_grid_begin();
    uint32_t i = blockIdx.x * 256 + threadIdx.x;
    if (i < a.n)
        a.weights[i] *= a.scale[a.ids[i]];
}

/* sl_k_moe_combine, from 0. */
extern "C" __global__ void __launch_bounds__(256)
    sl_k_elem_combine(SL_KERNEL_ARGS(sl_karg_moe_combine, a)) {
    sl_grid_begin();
    size_t t = blockIdx.x, i = (size_t)blockIdx.y * 256 + threadIdx.x;
    if (i >= a.n)
        return;
    float y = 0;
    for (uint32_t r = 0; r < a.k; r++)
        y = fmaf(a.pair_y[(t * a.k + r) * a.n + i], a.weights[t * a.k + r], y);
    a.y[t * a.n + i] = y;
}
