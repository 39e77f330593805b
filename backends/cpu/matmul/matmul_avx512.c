/* The product kernels for AVX-512 F, BW, DQ and VL. */
#include "backends/cpu/matmul/matmul_float.h"

#if defined(__x86_64__)
void sl_mm_init_avx512(struct sl_mm_kernels *k) {
    fill_kernels(k);
}
#endif
