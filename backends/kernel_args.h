/* What backends whose kernels take addresses compute for them: addresses, numbers of groups, sizes
 * of scratch. */
#ifndef SL_BACKENDS_KERNEL_ARGS_H
#define SL_BACKENDS_KERNEL_ARGS_H

#include "backends/backend.h"

static inline uint64_t sl_addr_of(const void *p) {
    return (uint64_t)(uintptr_t)p;
}
static inline uint64_t sl_div_up(uint64_t a, uint32_t b) {
    return (a + b - 1) / b;
}
static inline uint64_t sl_round_256(uint64_t bytes) {
    return (bytes + 255) & ~(uint64_t)255;
}

static inline bool sl_is_float(enum sl_dtype t) {
    return sl_dtype_info((uint32_t)t)->block_elems == 1;
}
static inline bool sl_is_block32(enum sl_dtype t) {
    return sl_dtype_info((uint32_t)t)->block_elems == 32;
}

/* Bytes of 256 elements of quantised input: q int8 [256], d f32 [8], sum int16 [16]
 * (backends/cpu/matmul/quantize.h says what they are; for types of 256 elements d[0] is the scale
 * and there are 16 sums of 16, for types of 32 there are 8 of each). */
#define SL_QX_BYTES 320u
/* Bytes of rows of n quantised elements. */
static inline uint64_t sl_qx_bytes(uint64_t rows, uint32_t n) {
    return rows * sl_div_up(n, 256) * SL_QX_BYTES;
}

/* Scratch of index_choose: scores of as many rows as fit into 64 MiB, and of one at the least. None
 * where there is no indexer. */
static inline uint64_t sl_index_scratch(const struct sl_device_limits *limits) {
    uint64_t row_bytes = (uint64_t)limits->max_scores * sizeof(float);
    uint64_t all_bytes = row_bytes * limits->max_tok, most_bytes = (uint64_t)64 << 20;
    uint64_t bytes = all_bytes < most_bytes ? all_bytes : most_bytes;
    return bytes < row_bytes ? row_bytes : bytes;
}

#endif
