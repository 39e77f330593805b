/* Latent attention (wide.cuh), and the join of parts of 512 elements. */
#include "backends/kernels/wide.cuh"

#define KEYS ((int)(SL_WIDE_DIM + SL_LATENT_ROT))

#define JOIN(NAME, CHOSEN)                                                                         \
    extern "C" __global__ void __launch_bounds__(SL_WIDE_DIM / 4)                                  \
        sl_k_latent_##NAME(SL_KERNEL_ARGS(sl_karg_attention, a)) {                                 \
        sl_grid_begin();                                                                           \
        wide_join<(int)SL_WIDE_DIM, CHOSEN>(a);                                                                           \
    }
JOIN(join, false)
JOIN(chosen_join, true)

#define KERNEL(NAME, MT, STAGES)                                                                   \
    extern "C" __global__ void __launch_bounds__((MT) == 1 ? 128 : 256)                            \
        sl_k_latent_##NAME##_##MT(SL_KERNEL_ARGS(sl_karg_attention, a)) {                          \
        sl_grid_begin();                                                                           \
        wide_##NAME<MT, KEYS, STAGES, true>(a);                                                    \
    }
KERNEL(rows, 1, 1)
KERNEL(rows, 2, 2)
KERNEL(rows, 4, 1)
KERNEL(parts, 1, 1)
KERNEL(parts, 2, 2)

#define CHOSEN(NAME, MT, DO)                                                                       \
    extern "C" __global__ void __launch_bounds__((MT) == 1 ? 128 : 256)                            \
        sl_k_latent_chosen_##NAME##_##MT(SL_KERNEL_ARGS(sl_karg_attention, a)) {                   \
        sl_grid_begin();                                                                           \
        DO(a);                                                                                     \
    }
CHOSEN(rows, 1, (wide_chosen_rows<1, KEYS, 1>))
CHOSEN(rows, 2, (wide_chosen_rows<2, KEYS, 2>))
CHOSEN(rows, 4, (wide_chosen_rows<4, KEYS, 1>))
CHOSEN(parts, 1, (wide_parts<1, KEYS, 1, true, true>))
CHOSEN(parts, 2, (wide_parts<2, KEYS, 2, true, true>))
