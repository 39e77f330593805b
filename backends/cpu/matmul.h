/* Products by whichever kernels (matmul/) a machine is to use; for ops that multiply. */
#ifndef SL_BACKENDS_CPU_MATMUL_H
#define SL_BACKENDS_CPU_MATMUL_H

#include "backends/cpu/cpu.h"
#include "backends/cpu/matmul/matmul_kernels.h"

const struct sl_mm_kernels *sl_mm_kernels(enum sl_cpu_isa isa);

/* Under a sanitizer: what each kernel of isa's table reads and writes is checked before it runs. */
void sl_mm_watch(struct sl_mm_kernels *k, enum sl_cpu_isa isa);

enum sl_x_kind sl_x_kind(enum sl_dtype dtype);

/* Weight rows per chunk so that n_threads have enough of them to share; whole panels. */
uint32_t sl_mm_chunk_rows(uint32_t n_rows, uint32_t n_threads);

#endif
