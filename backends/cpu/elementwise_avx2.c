#include "backends/cpu/vec_avx2.h"

#include "backends/cpu/simd_elementwise.h"

void sl_cpu_elementwise_init_avx2(struct sl_cpu_kernels *k) {
    fill_elementwise(k);
}
