/* The product kernels for AVX2, FMA, F16C and BMI2. */
#include "backends/cpu/matmul/matmul_float.h"

#if defined(__x86_64__)
void sl_mm_init_avx2(struct sl_mm_kernels *k) {
    fill_kernels(k);
}
#endif
