/* The wide tiles of gemm.cuh, for long prompts. */
#include "backends/kernels/gemm.cuh"

#define KERNEL(NAME) SL_GEMM_KERNEL(large, SL_GEMM_N_LARGE, NAME)
SL_QUANT_TYPES(KERNEL)
SL_FLOAT_TYPES(KERNEL)
