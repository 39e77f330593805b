/* Attention with heads of 512 elements (wide.cuh). */
#include "backends/kernels/wide.cuh"

#define KERNEL(NAME, FORM, MT)                                                                     \
    extern "C" __global__ void __launch_bounds__((MT) == 1 ? 128 : 256)                            \
        sl_k_attention_wide_##NAME(SL_KERNEL_ARGS(sl_karg_attention, a)) {                         \
        sl_grid_begin();                                                                           \
        FORM<MT, (int)SL_WIDE_DIM, 1, false>(a);                                                                   \
    }
KERNEL(rows_1, wide_rows, 1)
KERNEL(rows_2, wide_rows, 2)
KERNEL(rows_4, wide_rows, 4)
KERNEL(parts, wide_parts, 1)
