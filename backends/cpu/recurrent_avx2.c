#include "backends/cpu/vec_avx2.h"

#include "backends/cpu/simd_recurrent.h"

void sl_cpu_recurrent_init_avx2(struct sl_cpu_kernels *k) {
    fill_recurrent(k);
}
