#include "backends/cpu/vec_avx512.h"

#include "backends/cpu/simd_recurrent.h"

void sl_cpu_recurrent_init_avx512(struct sl_cpu_kernels *k) {
    fill_recurrent(k);
}
