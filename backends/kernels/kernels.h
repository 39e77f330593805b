/* What host code and device code share: the list of kernels and their argument structs.
 *
 * Compiled as C by the host and as C++ by nvcc (and hipcc), so plain structs of fixed-width numbers
 * and pointers only. Pointers are device addresses.
 *
 * A kernel NAME is `extern "C" __global__ void sl_k_NAME(const __grid_constant__ struct ARGS a)`:
 * its one parameter is its argument struct, by value. On the host it is SL_KERNEL_NAME, launched by
 * sl_cuda_launch(). The device's start fails with the kernel's name when one of the list is missing
 * from the embedded code.
 *
 * A kernel that exists once per tensor type is listed by SL_KERNEL_TYPES: NAME_Q4_K and so on, in
 * the order of that list, so that SL_KERNEL_BY_TYPE finds the one for a type. */
#ifndef SL_BACKENDS_KERNELS_KERNELS_H
#define SL_BACKENDS_KERNELS_KERNELS_H

#include <stdint.h>

/* Every tensor type (common/dtype.h), in the order of the typed kernels. */
#define SL_KERNEL_TYPES(X, name, args)                                                             \
    X(name##_F32, args)                                                                            \
    X(name##_F16, args)                                                                            \
    X(name##_BF16, args)                                                                           \
    X(name##_Q4_0, args)                                                                           \
    X(name##_Q4_1, args)                                                                           \
    X(name##_Q5_0, args)                                                                           \
    X(name##_Q5_1, args)                                                                           \
    X(name##_Q8_0, args)                                                                           \
    X(name##_Q2_K, args)                                                                           \
    X(name##_Q3_K, args)                                                                           \
    X(name##_Q4_K, args)                                                                           \
    X(name##_Q5_K, args)                                                                           \
    X(name##_Q6_K, args)                                                                           \
    X(name##_IQ1_S, args)                                                                          \
    X(name##_IQ1_M, args)                                                                          \
    X(name##_IQ2_XXS, args)                                                                        \
    X(name##_IQ2_XS, args)                                                                         \
    X(name##_IQ2_S, args)                                                                          \
    X(name##_IQ3_XXS, args)                                                                        \
    X(name##_IQ3_S, args)                                                                          \
    X(name##_IQ4_NL, args)                                                                         \
    X(name##_IQ4_XS, args)                                                                         \
    X(name##_MXFP4, args)

/* dst[i] = value, i < n. Marks memory for tests, and proves at start that launches work. */
struct sl_karg_fill {
    uint32_t *dst;
    uint64_t n;
    uint32_t value;
};

/* X(name, argument struct) for each kernel. */
#define SL_KERNELS(X) X(fill, struct sl_karg_fill)

enum sl_kernel {
#define SL_KERNEL_ENUM(name, args) SL_KERNEL_##name,
    SL_KERNELS(SL_KERNEL_ENUM)
#undef SL_KERNEL_ENUM
        SL_KERNEL_COUNT
};

/* The kernel of a typed family for a type: SL_KERNEL_BY_TYPE(matvec, SL_DTYPE_Q4_K). */
#define SL_KERNEL_BY_TYPE(name, dtype)                                                             \
    ((enum sl_kernel)((int)SL_KERNEL_##name##_F32 + sl_kernel_type_index((uint32_t)(dtype))))

/* Index in SL_KERNEL_TYPES of a GGUF type number; -1 if it is none of ours. */
static inline int sl_kernel_type_index(uint32_t dtype) {
    static const int8_t index[40] = {
        0,  1,  3,  4,  -1, -1, 5,  6,  7,  -1, 8, 9,  10, 11, 12, -1, 15, 16, 18, 13,
        20, 19, 17, 21, -1, -1, -1, -1, -1, 14, 2, -1, -1, -1, -1, -1, -1, -1, -1, 22,
    };
    return dtype < 40 ? index[dtype] : -1;
}

#endif
