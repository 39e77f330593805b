#include "backends/cpu/vec_avx512.h"

#include "backends/cpu/simd_elementwise.h"

void sl_cpu_elementwise_init_avx512(struct sl_cpu_kernels *k) {
    fill_elementwise(k);
}
