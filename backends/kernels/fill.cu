#include "backends/kernels/kernels.h"

extern "C" __global__ void sl_k_fill(const __grid_constant__ struct sl_karg_fill a) {
    uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < a.n)
        a.dst[i] = a.value;
}
