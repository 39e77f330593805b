/* Argument structs of compress.cu: blocks of positions that become one row each. */
#ifndef SL_BACKENDS_KERNELS_COMPRESS_H
#define SL_BACKENDS_KERNELS_COMPRESS_H

#include "backends/kernels/kernels.h"

/* As struct sl_op_compress; by: one over the root of `spread`. grid (n_tok),
 * SL_COMPRESS_THREADS(n), dynamic shared memory n * 4. */
#define SL_COMPRESS_MAX_THREADS 512u
#define SL_COMPRESS_THREADS(n)                                                                     \
    ((n) < SL_COMPRESS_MAX_THREADS ? ((n) + 31u) & ~31u : SL_COMPRESS_MAX_THREADS)
struct sl_karg_compress {
    const float *kv, *gate, *ape, *norm, *inv_freq;
    void *kept, *out;
    uint64_t kept_bytes, out_page_bytes;
    const uint32_t *slot, *kept_table, *out_table, *row_seq, *row_len;
    uint32_t n, max_pages, n_freq, spread, overlap, q8;
    float eps, mscale, by;
    struct sl_karg_block_rows of;
};

#endif
