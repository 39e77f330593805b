/* Where rows of blocks of positions are. */
#ifndef SL_BACKENDS_KERNELS_BLOCKS_CUH
#define SL_BACKENDS_KERNELS_BLOCKS_CUH

#include "backends/kernels/device.cuh"

/* Which page of its sequence block b is in, and its row there. */
__device__ __forceinline__ uint32_t sl_block_at(const struct sl_karg_block_rows &of, uint32_t b,
                                                uint32_t &row) {
    row = b & ((1u << of.shift) - 1);
    return ((b >> of.shift) + 1) * of.pages - 1;
}

#endif
