/* The narrow tiles of gemm.cuh, for short prompts, decode batches and experts with few rows. */
#include "backends/kernels/gemm.cuh"

#define KERNEL(NAME) SL_GEMM_KERNEL(small, SL_GEMM_N_SMALL, NAME)
SL_QUANT_TYPES(KERNEL)
SL_FLOAT_TYPES(KERNEL)
