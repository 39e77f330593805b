/* What the op files share: scratch, launches.
 *
 * Float types (sl_is_float) go through other arithmetic in decode kernels than in prefill kernels,
 * so rows are told apart by n_decode; quantised types have one definition to the bit in both. */
#ifndef SL_BACKENDS_GPU_OPS_INTERNAL_H
#define SL_BACKENDS_GPU_OPS_INTERNAL_H

#include "backends/gpu/gpu_internal.h"
#include "backends/kernel_args.h"

#define SL_LAUNCH(c, kernel, grid, block, smem, args)                                              \
    sl_gpu_launch(c, kernel, grid, block, smem, &(args), sizeof(args))

#define SL_GPU_MAX_GRID_Y 65535u

static inline uint32_t sl_ceil_div(uint64_t a, uint32_t b) {
    return (uint32_t)((a + b - 1) / b);
}
static inline uint32_t sl_pad_256(uint32_t n) {
    return (n + 255u) & ~255u;
}

/* Hands out 256-byte aligned parts of the scratch; with base 0 it only counts. */
struct sl_gpu_carve {
    uintptr_t base;
    uint64_t used_bytes;
};
static inline void *sl_gpu_carve(struct sl_gpu_carve *v, uint64_t bytes) {
    uintptr_t p = v->base + v->used_bytes;
    v->used_bytes += (bytes + 255) & ~(uint64_t)255;
    return (void *)p;
}

/* Room for rows of n_in, quantised either way. */
struct sl_karg_qx sl_gpu_carve_qx(struct sl_gpu_carve *v, uint64_t rows, uint32_t n_in);
/* Quantises rows x [n_rows, n_in] as weights of type t want them. */
enum sl_status sl_gpu_quantize(struct sl_gpu *c, enum sl_dtype t, const float *x, uint32_t n_rows,
                               uint32_t n_in, const struct sl_karg_qx *to) SL_MUST_CHECK;
/* Shared memory of the decode kernels for `rows` input rows, and of the gemm kernels. */
uint32_t sl_gpu_vec_smem(enum sl_dtype t, uint32_t n_in, uint32_t rows);
uint32_t sl_gpu_gemm_smem(enum sl_dtype t, uint32_t tile_n);
/* Turing's 64 KiB are too few for the wide tiles. */
static inline bool sl_gpu_gemm_large_fits(const struct sl_gpu *c, enum sl_dtype t) {
    return SL_GEMM_SMEM(SL_GEMM_N_LARGE) <= c->max_smem_bytes &&
           sl_gpu_has(c, SL_FAMILY_gemm_large, t);
}
/* Shared memory of the decode kernels on tensor cores: `split` warps share a tile, each goes
 * through `items` blocks of 256 of tiles; `rows` input rows. */
struct sl_gpu_mma {
    uint32_t slots, in_at, smem_bytes;
};
struct sl_gpu_mma sl_gpu_mma_smem(enum sl_dtype t, uint32_t n_in, uint32_t split, uint32_t items,
                                  uint32_t rows);
/* Whether those of a family take such weights: a type that it has, rows that make whole tiles of
 * tile_rows, and no more shared memory than there is. */
bool sl_gpu_mma_fits(const struct sl_gpu *c, enum sl_kernel_family family, enum sl_dtype t,
                     uint32_t n_in, uint32_t n_out, uint32_t tile_rows, uint32_t smem_bytes);
/* How they cut rows of n_in: warps that share a tile (those of 256-element types), blocks of 256
 * that each of them takes. */
uint32_t sl_gpu_mma_split(uint32_t n_in);
uint32_t sl_gpu_mma_steps(uint32_t n_in, uint32_t split);
/* How a decode kernel cuts rows of n_in: weight rows that a block's warps take at once. */
uint32_t sl_gpu_vec_at_once(enum sl_dtype t, uint32_t n_in);
/* Output rows that a block of a decode kernel takes, a multiple of at_once, so that n_rows in all
 * make no more blocks than the multiprocessors have room for, `blocks` each. */
uint32_t sl_gpu_vec_rows(const struct sl_gpu *c, uint64_t n_rows, uint32_t at_once,
                         uint32_t blocks);
/* Fewer rows than these go through the decode kernels, where the bits do not depend on it. */
#define SL_GPU_GEMM_MIN_ROWS  (SL_VEC_MAX_TOK + 1)
#define SL_GPU_SORT_MIN_PAIRS 65u

/* Rows of a norm that is done within another kernel, as sl_vec_norm does it: sl_k_rms_norm takes
 * 256 threads for them. */
static inline bool sl_gpu_norm_fits(const struct sl_op_rms_norm *a) {
    return a->n > 256 && a->n <= 8192 && a->n % 4 == 0;
}

/* What expert_scale does to the weights that a router has chosen; without one nothing. */
enum sl_status sl_gpu_scale_chosen(struct sl_gpu *c, const struct sl_op_router *a) SL_MUST_CHECK;

uint64_t sl_gpu_matmul_scratch(const struct sl_device_limits *limits);
uint64_t sl_gpu_moe_scratch(const struct sl_device_limits *limits);
/* Is there a kernel for heads and KV of that kind? */
bool sl_gpu_attention_fits(const struct sl_gpu *c, const struct sl_op_need *need);
/* The size class of keys of dim elements (families.h); the last has the longest. */
static inline uint32_t sl_gpu_key_class(uint32_t dim) {
    return dim <= 64 ? 0 : dim <= 128 ? 1 : 2;
}
/* delta_rule, channel_delta, state_scan; index_choose, block_choose: is there a kernel for keys, or
 * states, of that many elements? */
bool sl_gpu_columns_fit(const struct sl_gpu *c, const struct sl_op_need *need);
bool sl_gpu_index_fits(const struct sl_gpu *c, const struct sl_op_need *need);
bool sl_gpu_latent_fits(const struct sl_gpu *c, const struct sl_op_need *need);
bool sl_gpu_compress_fits(const struct sl_gpu *c, const struct sl_op_need *need);
/* Latents as the keys of one head, whose first elements are its values too. */
struct sl_karg_kv sl_gpu_latents(const struct sl_latent_view *kv);
/* Where rows of blocks are. */
struct sl_karg_block_rows sl_gpu_block_rows(uint32_t ratio);
/* Rows whose parts, `splits` a head, the scratch has room for at once. */
uint32_t sl_gpu_wave_rows(const struct sl_gpu *c, uint32_t n_heads, uint32_t splits,
                          uint32_t dim_v);
uint64_t sl_gpu_attention_scratch(const struct sl_device_limits *limits);

#endif
