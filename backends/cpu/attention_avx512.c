#include "backends/cpu/vec_avx512.h"

#include "backends/cpu/simd_attention.h"

void sl_cpu_attention_init_avx512(struct sl_cpu_kernels *k) {
    fill_attention(k);
}
