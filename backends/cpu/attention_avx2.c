#include "backends/cpu/vec_avx2.h"

#include "backends/cpu/simd_attention.h"

void sl_cpu_attention_init_avx2(struct sl_cpu_kernels *k) {
    fill_attention(k);
}
