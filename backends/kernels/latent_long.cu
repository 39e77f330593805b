/* Latent attention (wide.cuh) over latents of SL_LATENT_LONG_DIM elements and their rotated end, as
 * dots3-note's layers with a window have them. */
#include "backends/kernels/wide.cuh"

#define KEYS ((int)(SL_LATENT_LONG_DIM + SL_LATENT_ROT))

#define KERNEL(NAME, THREADS, DO)                                                                  \
    extern "C" __global__ void __launch_bounds__(THREADS)                                          \
        sl_k_latent_long_##NAME(SL_KERNEL_ARGS(sl_karg_attention, a)) {                            \
        sl_grid_begin();                                                                           \
        DO(a);                                                                                     \
    }
KERNEL(rows_1, 128, (wide_rows<1, KEYS, 1, true, true>))
KERNEL(rows_2, 256, (wide_rows<2, KEYS, 1, true, true>))
KERNEL(parts_1, 128, (wide_parts<1, KEYS, 1, true, false, true>))
KERNEL(parts_2, 256, (wide_parts<2, KEYS, 1, true, false, true>))
KERNEL(join, SL_LATENT_LONG_DIM / 4, (wide_join<(int)SL_LATENT_LONG_DIM, false, true>))
