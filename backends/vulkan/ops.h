/* The ops that have kernels. */
#ifndef SL_BACKENDS_VULKAN_OPS_H
#define SL_BACKENDS_VULKAN_OPS_H

#include "backends/vulkan/vulkan_internal.h"

/* Of caps what follows from the kernels. */
void sl_vk_ops_caps(struct sl_device_caps *caps);
/* Prompt rows have an attention kernel of their own, for heads of so many elements of F16 at most,
 * and so bits of their own. */
bool sl_vk_has_prompt_attention(const struct sl_vulkan *v, uint32_t dim);
uint64_t sl_vk_scratch_bytes(const struct sl_device *d, const struct sl_device_limits *limits);
bool sl_vk_supports(const struct sl_device *d, const struct sl_op_need *need);

/* Workgroups of a kernel that goes element by element. */
static inline uint64_t sl_vk_elems(uint64_t n) {
    return sl_div_up(n, SL_VK_ELEMS);
}
/* Products by tiles: whether there is room for them, and tiles of n_pairs pairs of so many experts,
 * at most. */
static inline bool sl_vk_has_tiles(const struct sl_vulkan *v) {
    return v->info.shared_bytes >= SL_VK_TILE_SHARED_BYTES;
}
/* Few rows times weights of this type go by strips of 64 elements: shaders/strips.glsl. */
static inline bool sl_vk_has_strips(enum sl_dtype t) {
    return t == SL_DTYPE_Q4_K || t == SL_DTYPE_Q5_K || t == SL_DTYPE_Q6_K;
}
/* Tiles go by cooperative matrices. */
static inline bool sl_vk_by_matrices(const struct sl_vulkan *v) {
    if (!v->fused_fma)
        return v->emulate_matrices && v->info.shared_bytes >= SL_VK_EMULATED_MATRIX_SHARED_BYTES;
    return v->info.matrix_k && v->info.shared_bytes >= SL_VK_MATRIX_SHARED_BYTES;
}
/* Rows of input of a tile. */
static inline uint32_t sl_vk_tile_tok(const struct sl_vulkan *v) {
    if (!sl_vk_by_matrices(v))
        return SL_VK_TILE_TOK;
    return v->fused_fma ? SL_VK_MATRIX_TOK : SL_VK_EMULATED_MATRIX_TOK;
}
static inline uint64_t sl_vk_most_tiles(uint64_t n_pairs, uint32_t n_expert) {
    uint64_t n = n_pairs / SL_VK_TILE_TOK + n_expert;
    return n < n_pairs ? n : n_pairs;
}
/* Quantises rows x [n_rows, n], stride elements apart, as weights of type t want them. */
enum sl_status sl_vk_quantize(struct sl_vulkan *v, enum sl_dtype t, uint64_t x, uint32_t n_rows,
                              uint32_t n, uint32_t stride, uint64_t y) SL_MUST_CHECK;
/* A norm of contiguous rows and, in scratch, its result quantised for types of 256 elements and of
 * 32 (out[sl_is_block32()], 0: as not asked for). Elements are a multiple of 32, or of 256. */
bool sl_vk_takes_norm_quantize(const struct sl_op_rms_norm *a);
enum sl_status sl_vk_norm_quantize(struct sl_vulkan *v, const struct sl_op_rms_norm *a,
                                   const bool want[2], uint64_t out[2]) SL_MUST_CHECK;
/* Where rows are in scratch that were quantised for such types. */
static inline uint64_t sl_vk_quantized_at(const struct sl_vulkan *v, bool block32, uint64_t rows,
                                          uint32_t n) {
    return v->scratch.addr + (block32 ? sl_round_256(sl_qx_bytes(rows, n)) : 0);
}
/* y = act(gate) * up, element by element; enum sl_activation. */
enum sl_status sl_vk_glu(struct sl_vulkan *v, uint64_t gate, uint64_t up, uint64_t y, uint64_t n,
                         uint32_t activation, float limit) SL_MUST_CHECK;

#define SL_VK_OPS(X)                                                                               \
    X(embed)                                                                                       \
    X(rms_norm)                                                                                    \
    X(matmul)                                                                                      \
    X(rope_table)                                                                                  \
    X(rope)                                                                                        \
    X(kv_write)                                                                                    \
    X(attention)                                                                                   \
    X(router)                                                                                      \
    X(moe)                                                                                         \
    X(moe_combine)                                                                                 \
    X(silu_mul)                                                                                    \
    X(gelu_mul)                                                                                    \
    X(limited_glu)                                                                                 \
    X(add_gated)                                                                                   \
    X(gather_rows)                                                                                 \
    X(block_max)                                                                                   \
    X(mul_sigmoid)                                                                                 \
    X(l2_norm)                                                                                     \
    X(conv_silu)                                                                                   \
    X(delta_rule)                                                                                  \
    X(head_matmul)                                                                                 \
    X(latent_write)                                                                                \
    X(latent_attention)                                                                            \
    X(scale)                                                                                       \
    X(gate_heads)                                                                                  \
    X(temper)                                                                                      \
    X(center)                                                                                      \
    X(clamp)                                                                                       \
    X(bias)                                                                                        \
    X(gelu_rows)

#define SL_FUSED(name)                                                                             \
    enum sl_status sl_vk_fused_##name(struct sl_device *d, const struct sl_fused_##name *a);       \
    bool sl_vk_takes_##name(const struct sl_device *d, const struct sl_fused_##name *a);
#include "backends/fused.def"

#define DECLARE(name)                                                                              \
    enum sl_status sl_vk_op_##name(struct sl_device *d, const struct sl_op_##name *a);
SL_VK_OPS(DECLARE)
#undef DECLARE

#endif
