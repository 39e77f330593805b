/* Ops that go element by element and that not every model has. */
#include "backends/kernels/device.cuh"
#include "backends/kernels/elem.h"
#include "backends/kernels/moe.cuh"
#include "backends/kernels/router.cuh"

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

extern "C" __global__ void __launch_bounds__(256)
    sl_k_elem_gate_heads(SL_KERNEL_ARGS(sl_karg_gate_heads, a)) {
    sl_grid_begin();
    size_t r = blockIdx.x, i = (size_t)blockIdx.y * 256 + threadIdx.x;
    if (i >= a.n)
        return;
    float g = a.gate[a.per_head ? r : r * a.n + i];
    a.y[r * a.n + i] *= a.softplus ? sl_dev_softplus(g) : sl_dev_sigmoid(g);
}

/* One thread of each block has the factor, which needs double precision. */
extern "C" __global__ void __launch_bounds__(256)
    sl_k_elem_temper(SL_KERNEL_ARGS(sl_karg_temper, a)) {
    __shared__ float by;
    sl_grid_begin();
    size_t t = blockIdx.x;
    if (threadIdx.x == 0) {
        double k = floor(((double)a.pos[t] + a.offset) / a.span) + 1;
        by = (float)(1 + (double)a.scale * (k > 1 ? sl_dev_ln(k) : 0));
    }
    __syncthreads();
    size_t end = min((size_t)a.n, ((size_t)blockIdx.y + 1) * 1024);
    for (size_t i = (size_t)blockIdx.y * 1024 + threadIdx.x; i < end; i += 256)
        a.x[t * a.n + i] *= by;
}

extern "C" __global__ void __launch_bounds__(256)
    sl_k_elem_center(SL_KERNEL_ARGS(sl_karg_center, a)) {
    __shared__ float shared[32];
    sl_grid_begin();
    const float *x = a.x + (size_t)blockIdx.x * a.n;
    float *y = a.y + (size_t)blockIdx.x * a.n;
    float sum = 0;
    for (uint32_t i = threadIdx.x; i < a.n; i += 256)
        sum += x[i];
    float mean = sl_block_sum(sum, shared) / (float)a.n;
    for (uint32_t i = threadIdx.x; i < a.n; i += 256)
        y[i] = x[i] - mean;
}

extern "C" __global__ void __launch_bounds__(256)
    sl_k_elem_clamp(SL_KERNEL_ARGS(sl_karg_clamp, a)) {
    sl_grid_begin();
    uint64_t i = (uint64_t)blockIdx.x * 256 + threadIdx.x;
    if (i >= a.n)
        return;
    float v = a.x[i];
    v = v > a.limit ? a.limit : v;
    a.x[i] = v < -a.limit ? -a.limit : v;
}

extern "C" __global__ void __launch_bounds__(256)
    sl_k_elem_relu_squared(SL_KERNEL_ARGS(sl_karg_relu_squared, a)) {
    sl_grid_begin();
    uint64_t i = (uint64_t)blockIdx.x * 256 + threadIdx.x;
    if (i < a.n)
        a.x[i] = sl_dev_relu_squared(a.x[i]);
}

extern "C" __global__ void __launch_bounds__(256)
    sl_k_elem_bias(SL_KERNEL_ARGS(sl_karg_bias, a)) {
    sl_grid_begin();
    size_t t = blockIdx.x, i = (size_t)blockIdx.y * 256 + threadIdx.x;
    if (i < a.n)
        a.x[t * a.n + i] += a.b[i];
}

extern "C" __global__ void __launch_bounds__(256)
    sl_k_elem_gelu_rows(SL_KERNEL_ARGS(sl_karg_gelu_rows, a)) {
    sl_grid_begin();
    size_t t = blockIdx.x, i = (size_t)blockIdx.y * 256 + threadIdx.x;
    if (i >= a.n)
        return;
    size_t r = a.rows ? a.rows[t] : t;
    a.y[t * a.n + i] = sl_dev_gelu(a.gate[t * a.n + i]) * a.up[r * a.stride_up + i];
}

extern "C" __global__ void __launch_bounds__(256)
    sl_k_elem_limited_glu(SL_KERNEL_ARGS(sl_karg_limited_glu, a)) {
    sl_grid_begin();
    uint64_t i = (uint64_t)blockIdx.x * 256 + threadIdx.x;
    if (i < a.n)
        a.y[i] = sl_dev_limited_glu(a.gate[i], a.up[i], a.limit);
}

extern "C" __global__ void __launch_bounds__(256)
    sl_k_elem_cut_glu(SL_KERNEL_ARGS(sl_karg_limited_glu, a)) {
    sl_grid_begin();
    uint64_t i = (uint64_t)blockIdx.x * 256 + threadIdx.x;
    if (i < a.n)
        a.y[i] = sl_dev_cut_glu(a.gate[i], a.up[i], a.limit);
}

extern "C" __global__ void __launch_bounds__(256)
    sl_k_elem_clamped_glu(SL_KERNEL_ARGS(sl_karg_clamped_glu, a)) {
    sl_grid_begin();
    uint64_t i = (uint64_t)blockIdx.x * 256 + threadIdx.x;
    struct sl_karg_experts of = {};
    of.alpha = a.alpha, of.limit = a.limit, of.activation = SL_SWIGLU_CLAMPED;
    if (i < a.n)
        a.y[i] = sl_moe_activated(of, a.gate[i], a.up[i]);
}
