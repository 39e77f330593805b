/* The host's list of kernels (kernels.h), by family: what is one kernel for each tensor type, or
 * for each size of head, is a family of several, told apart by a variant. On the host a kernel is
 * SL_KERNEL_NAME, launched by sl_gpu_launch(); sl_kernel_of() finds a family's.
 *
 * A kernel may be missing from the code that is embedded. Then the ops that cannot do without it
 * are missing too (for the tensor type, where the family has one for each), the fused forms that
 * use it are done op by op, and what it only made faster goes through another kernel. */
#ifndef SL_BACKENDS_KERNELS_FAMILIES_H
#define SL_BACKENDS_KERNELS_FAMILIES_H

#include "backends/kernels/compress.h"
#include "backends/kernels/elem.h"
#include "backends/kernels/index.h"
#include "backends/kernels/kernels.h"
#include "backends/kernels/recurrent.h"
#include "backends/kernels/streams.h"
#include "common/dtype.h"

/* X(family, kernel, variant, argument struct) for each kernel of a family. */
#define SL_VARIANTS_ONE(X, name, args)  X(name, name, 0, args)
#define SL_VARIANTS_ROWS(X, name, args) /* as many input rows */                                   \
    X(name, name##_1, 1, args)                                                                     \
    X(name, name##_2, 2, args)
#define SL_VARIANTS_PAIRS_32(X, name, args) /* 16 pairs of row and head, and 32 */                 \
    X(name, name##_1, 1, args)                                                                     \
    X(name, name##_2, 2, args)
#define SL_VARIANTS_PAIRS_64(X, name, args)                                                        \
    SL_VARIANTS_PAIRS_32(X, name, args)                                                            \
    X(name, name##_4, 4, args)
#define SL_VARIANTS_HEADS(X, name, args) /* heads of at most 64 << variant elements */             \
    X(name, name##_64, 0, args)                                                                    \
    X(name, name##_128, 1, args)                                                                   \
    X(name, name##_256, 2, args)
#define SL_VARIANTS_STATES(X, name, args) /* states of at most 16, and 64 */                       \
    X(name, name##_16, 0, args)                                                                    \
    X(name, name##_64, 1, args)
#define SL_VARIANTS_MMA(X, name, args)                                                             \
    X(name, name##_Q4_K, SL_DTYPE_Q4_K, args)                                                      \
    X(name, name##_Q5_K, SL_DTYPE_Q5_K, args)                                                      \
    X(name, name##_Q6_K, SL_DTYPE_Q6_K, args)
#define SL_VARIANTS_PAIR(X, name, args)                                                            \
    SL_VARIANTS_MMA(X, name, args)                                                                 \
    X(name, name##_MXFP4, SL_DTYPE_MXFP4, args)
#define SL_VARIANTS_HEAD(X, name, args) /* as files have matrices of heads */                      \
    SL_VARIANTS_MMA_Q8_0(X, name, args)                                                            \
    X(name, name##_Q4_0, SL_DTYPE_Q4_0, args)                                                      \
    X(name, name##_Q5_0, SL_DTYPE_Q5_0, args)
#define SL_VARIANTS_F32(X, name, args)  X(name, name##_F32, SL_DTYPE_F32, args)
#define SL_VARIANTS_Q8_0(X, name, args) X(name, name##_Q8_0, SL_DTYPE_Q8_0, args)
#define SL_VARIANTS_MMA_Q8_0(X, name, args)                                                        \
    SL_VARIANTS_MMA(X, name, args)                                                                 \
    X(name, name##_Q8_0, SL_DTYPE_Q8_0, args)
#define SL_VARIANTS_TYPES(X, name, args) /* every type of common/dtype.h */                        \
    X(name, name##_F32, SL_DTYPE_F32, args)                                                        \
    X(name, name##_F16, SL_DTYPE_F16, args)                                                        \
    X(name, name##_BF16, SL_DTYPE_BF16, args)                                                      \
    X(name, name##_Q4_0, SL_DTYPE_Q4_0, args)                                                      \
    X(name, name##_Q4_1, SL_DTYPE_Q4_1, args)                                                      \
    X(name, name##_Q5_0, SL_DTYPE_Q5_0, args)                                                      \
    X(name, name##_Q5_1, SL_DTYPE_Q5_1, args)                                                      \
    X(name, name##_Q8_0, SL_DTYPE_Q8_0, args)                                                      \
    X(name, name##_Q2_K, SL_DTYPE_Q2_K, args)                                                      \
    X(name, name##_Q3_K, SL_DTYPE_Q3_K, args)                                                      \
    X(name, name##_Q4_K, SL_DTYPE_Q4_K, args)                                                      \
    X(name, name##_Q5_K, SL_DTYPE_Q5_K, args)                                                      \
    X(name, name##_Q6_K, SL_DTYPE_Q6_K, args)                                                      \
    X(name, name##_IQ1_S, SL_DTYPE_IQ1_S, args)                                                    \
    X(name, name##_IQ1_M, SL_DTYPE_IQ1_M, args)                                                    \
    X(name, name##_IQ2_XXS, SL_DTYPE_IQ2_XXS, args)                                                \
    X(name, name##_IQ2_XS, SL_DTYPE_IQ2_XS, args)                                                  \
    X(name, name##_IQ2_S, SL_DTYPE_IQ2_S, args)                                                    \
    X(name, name##_IQ3_XXS, SL_DTYPE_IQ3_XXS, args)                                                \
    X(name, name##_IQ3_S, SL_DTYPE_IQ3_S, args)                                                    \
    X(name, name##_IQ4_NL, SL_DTYPE_IQ4_NL, args)                                                  \
    X(name, name##_IQ4_XS, SL_DTYPE_IQ4_XS, args)                                                  \
    X(name, name##_MXFP4, SL_DTYPE_MXFP4, args)                                                    \
    X(name, name##_TQ1_0, SL_DTYPE_TQ1_0, args)                                                    \
    X(name, name##_TQ2_0, SL_DTYPE_TQ2_0, args)                                                    \
    X(name, name##_IQ2_K, SL_DTYPE_IQ2_K, args)                                                    \
    X(name, name##_IQ3_K, SL_DTYPE_IQ3_K, args)                                                    \
    X(name, name##_IQ4_K, SL_DTYPE_IQ4_K, args)                                                    \
    X(name, name##_IQ5_K, SL_DTYPE_IQ5_K, args)                                                    \
    X(name, name##_IQ6_K, SL_DTYPE_IQ6_K, args)

/* F(X, family, variants, argument struct, ops that cannot do without it, fused forms that cannot,
 *   wants the cache) for each family. OP(name) and FORM(name) are bits; 0: what it does is faster
 * by it, and can be done without. DEVICE: the device cannot do without it.
 * Wants the cache: what steps with prompt rows spend their time in, and two that come between them
 * (launch.c). A few generated rows have these as well, which costs four of them half a percent, but
 * gains prompts three. */
#define SL_KERNEL_FAMILIES(F, X)                                                                   \
    F(X, fill, ONE, struct sl_karg_fill, 0, 0, false)                                              \
    F(X, words, ONE, struct sl_karg_words, DEVICE, 0, false)                                       \
    F(X, words_rows, ONE, struct sl_karg_words_rows, 0, 0, false)                                  \
    F(X, quantize, ONE, struct sl_karg_quantize, OP(matmul) | OP(moe), 0, true)                    \
    F(X, matvec, TYPES, struct sl_karg_matvec, OP(matmul), 0, false)                               \
    F(X, matvec_mma, MMA_Q8_0, struct sl_karg_matvec_mma, 0, 0, false)                             \
    F(X, matvec_few, ROWS, struct sl_karg_matvec, 0, 0, false)                                     \
    F(X, matvec_block, Q8_0, struct sl_karg_matvec_block, 0, 0, false)                             \
    F(X, moe_vec, TYPES, struct sl_karg_moe, OP(moe), 0, false)                                    \
    F(X, moe_down, TYPES, struct sl_karg_moe, 0, 0, false)                                         \
    F(X, moe_mma, MMA, struct sl_karg_moe, 0, 0, false)                                            \
    F(X, moe_pair_up, PAIR, struct sl_karg_moe, 0, 0, false)                                       \
    F(X, moe_pair_up_any, PAIR, struct sl_karg_moe, 0, 0, false)                                   \
    F(X, moe_pair_sum, PAIR, struct sl_karg_moe, 0, 0, false)                                      \
    F(X, moe_pair_sum_any, PAIR, struct sl_karg_moe, 0, 0, false)                                  \
    F(X, gemm_small, TYPES, struct sl_karg_gemm, OP(matmul) | OP(moe), 0, true)                    \
    F(X, gemm_large, TYPES, struct sl_karg_gemm, 0, 0, true)                                       \
    F(X, gemm_narrow, F32, struct sl_karg_gemm, 0, 0, true)                                        \
    F(X, moe_sort, ONE, struct sl_karg_moe_sort, OP(moe), 0, true)                                 \
    F(X, embed, TYPES, struct sl_karg_embed, OP(embed), 0, false)                                  \
    F(X, rms_norm, ONE, struct sl_karg_rms_norm, OP(rms_norm), 0, false)                           \
    F(X, rope_table, ONE, struct sl_karg_rope_table, OP(rope_table), 0, false)                     \
    F(X, rope, ONE, struct sl_karg_rope, OP(rope), 0, false)                                       \
    F(X, kv_write, ONE, struct sl_karg_kv_write, OP(kv_write) | OP(latent_write), 0, false)        \
    F(X, attention_row, ONE, struct sl_karg_attention, OP(attention), 0, false)                    \
    F(X, attention_row_any, ONE, struct sl_karg_attention, OP(attention), 0, false)                \
    F(X, attention_latent, ONE, struct sl_karg_attention, OP(latent_attention), 0, false)          \
    F(X, attention_latent_long, ONE, struct sl_karg_attention, 0, 0, false)                        \
    F(X, latent_rows, PAIRS_64, struct sl_karg_attention, 0, 0, true)                              \
    F(X, latent_parts, PAIRS_32, struct sl_karg_attention, 0, 0, false)                            \
    F(X, latent_long_rows, PAIRS_32, struct sl_karg_attention, 0, 0, true)                         \
    F(X, latent_long_parts, PAIRS_32, struct sl_karg_attention, 0, 0, false)                       \
    F(X, latent_long_join, ONE, struct sl_karg_attention, 0, 0, false)                             \
    F(X, latent_join, ONE, struct sl_karg_attention, 0, 0, false)                                  \
    F(X, attention_chosen, ONE, struct sl_karg_attention, OP(chosen_attention), 0, false)          \
    F(X, attention_chosen_join, ONE, struct sl_karg_attention, OP(chosen_attention), 0, false)     \
    F(X, latent_chosen_rows, PAIRS_64, struct sl_karg_attention, 0, 0, true)                       \
    F(X, latent_chosen_parts, PAIRS_32, struct sl_karg_attention, 0, 0, false)                     \
    F(X, latent_chosen_join, ONE, struct sl_karg_attention, 0, 0, false)                           \
    F(X, attention_compressed, ONE, struct sl_karg_attention, OP(compressed_attention), 0, false)  \
    F(X, attention_compressed_join, ONE, struct sl_karg_attention, OP(compressed_attention), 0,    \
      false)                                                                                       \
    F(X, compress, ONE, struct sl_karg_compress, OP(compress), 0, false)                           \
    F(X, index_hadamard, ONE, struct sl_karg_hadamard, OP(hadamard), 0, false)                     \
    F(X, index_score, HEADS, struct sl_karg_index, OP(index_choose), 0, true)                      \
    F(X, index_compressed, HEADS, struct sl_karg_index, OP(compressed_choose), 0, true)            \
    F(X, index_choose, ONE, struct sl_karg_index, OP(index_choose) | OP(compressed_choose), 0,     \
      false)                                                                                       \
    F(X, index_block_score, HEADS, struct sl_karg_blocks, OP(block_choose), 0, true)               \
    F(X, index_block_choose, ONE, struct sl_karg_blocks, OP(block_choose), 0, false)               \
    F(X, attention_wide_rows, PAIRS_64, struct sl_karg_attention, 0, 0, true)                      \
    F(X, attention_wide_parts, ONE, struct sl_karg_attention, 0, 0, false)                         \
    F(X, head_matmul, TYPES, struct sl_karg_head, OP(head_matmul), 0, false)                       \
    F(X, head_gemm, HEAD, struct sl_karg_head_gemm, 0, 0, true)                                    \
    F(X, head_gemm_quantize, ONE, struct sl_karg_head_gemm, 0, 0, true)                            \
    F(X, head_turned, TYPES, struct sl_karg_head, OP(head_matmul), 0, false)                       \
    F(X, attention_join, ONE, struct sl_karg_attention, OP(attention), 0, false)                   \
    F(X, attention_join_any, ONE, struct sl_karg_attention, OP(attention), 0, false)               \
    F(X, attention_blocks, ONE, struct sl_karg_attention, OP(block_attention), 0, false)           \
    F(X, attention_blocks_join, ONE, struct sl_karg_attention, OP(block_attention), 0, false)      \
    F(X, attention_split_blocks, HEADS, struct sl_karg_attention, 0, 0, false)                     \
    F(X, attention_tile_blocks, HEADS, struct sl_karg_attention, 0, 0, true)                       \
    F(X, attention_split, HEADS, struct sl_karg_attention, 0, 0, false)                            \
    F(X, attention_tile, HEADS, struct sl_karg_attention, 0, 0, true)                              \
    F(X, router, ONE, struct sl_karg_router, OP(router), 0, false)                                 \
    F(X, router_groups, ONE, struct sl_karg_router_groups, 0, 0, false)                            \
    F(X, router_share, ONE, struct sl_karg_router_share, 0, 0, false)                              \
    F(X, router_softplus, ONE, struct sl_karg_softplus_router, OP(softplus_router), 0, false)      \
    F(X, moe_combine, ONE, struct sl_karg_moe_combine, OP(moe_combine), 0, false)                  \
    F(X, silu_mul, ONE, struct sl_karg_silu_mul, OP(silu_mul), 0, false)                           \
    F(X, add_gated, ONE, struct sl_karg_add_gated, OP(add_gated), 0, false)                        \
    F(X, gather_rows, ONE, struct sl_karg_gather, OP(gather_rows), 0, false)                       \
    F(X, block_max, ONE, struct sl_karg_block_max, OP(block_max), 0, false)                        \
    F(X, send, ONE, struct sl_karg_send, OP(send), 0, false)                                       \
    F(X, receive, ONE, struct sl_karg_receive, OP(receive), 0, false)                              \
    F(X, recurrent_mul_sigmoid, ONE, struct sl_karg_mul_sigmoid, OP(mul_sigmoid), 0, false)        \
    F(X, recurrent_l2_norm, ONE, struct sl_karg_l2_norm, OP(l2_norm), 0, false)                    \
    F(X, recurrent_conv_silu, ONE, struct sl_karg_conv, OP(conv_silu), 0, false)                   \
    F(X, recurrent_short_conv, ONE, struct sl_karg_conv, OP(short_conv), 0, false)                 \
    F(X, recurrent_delta, HEADS, struct sl_karg_delta, OP(delta_rule), 0, false)                   \
    F(X, recurrent_delta_channel, HEADS, struct sl_karg_delta, OP(channel_delta), 0, false)        \
    F(X, recurrent_scan, HEADS, struct sl_karg_delta, OP(state_scan), 0, false)                    \
    F(X, recurrent_scan_channel, STATES, struct sl_karg_channel_scan, OP(channel_scan), 0, false)  \
    F(X, elem_gelu_mul, ONE, struct sl_karg_gelu_mul, OP(gelu_mul), 0, false)                      \
    F(X, elem_scale, ONE, struct sl_karg_scale, OP(scale), 0, false)                               \
    F(X, elem_scale_chosen, ONE, struct sl_karg_scale_chosen, OP(router), 0, false)                \
    F(X, elem_gate_heads, ONE, struct sl_karg_gate_heads, OP(gate_heads), 0, false)                \
    F(X, elem_temper, ONE, struct sl_karg_temper, OP(temper), 0, false)                            \
    F(X, elem_center, ONE, struct sl_karg_center, OP(center), 0, false)                            \
    F(X, elem_clamp, ONE, struct sl_karg_clamp, OP(clamp), 0, false)                               \
    F(X, elem_relu_squared, ONE, struct sl_karg_relu_squared, OP(relu_squared), 0, false)          \
    F(X, elem_limited_glu, ONE, struct sl_karg_limited_glu, OP(limited_glu), 0, false)             \
    F(X, elem_cut_glu, ONE, struct sl_karg_limited_glu, OP(cut_glu), 0, false)                     \
    F(X, elem_clamped_glu, ONE, struct sl_karg_clamped_glu, OP(clamped_glu), 0, false)             \
    F(X, elem_bias, ONE, struct sl_karg_bias, OP(bias), 0, false)                                  \
    F(X, elem_gelu_rows, ONE, struct sl_karg_gelu_rows, OP(gelu_rows), 0, false)                   \
    F(X, elem_combine, ONE, struct sl_karg_moe_combine, OP(moe_combine), 0, false)                 \
    F(X, streams_spread, ONE, struct sl_karg_stream_spread, OP(stream_spread), 0, false)           \
    F(X, streams_weights, ONE, struct sl_karg_stream_weights, OP(stream_weights), 0, false)        \
    F(X, streams_read, ONE, struct sl_karg_stream_read, OP(stream_read), 0, false)                 \
    F(X, streams_write, ONE, struct sl_karg_stream_write, OP(stream_write), 0, false)              \
    F(X, fused_route, ONE, struct sl_karg_route, 0, FORM(norm_router), false)                      \
    F(X, fused_route_wide, ONE, struct sl_karg_route, 0, FORM(norm_router), false)                 \
    F(X, fused_route_groups, ONE, struct sl_karg_route_groups, 0, 0, false)                        \
    F(X, fused_qkv, ONE, struct sl_karg_qkv, 0, FORM(qkv), false)                                  \
    F(X, fused_norm_quantize, ONE, struct sl_karg_norm_quantize, 0, FORM(norm_matmul), false)

#define SL_KERNEL_MEMBERS(X, name, variants, args, ops, forms, cache)                              \
    SL_VARIANTS_##variants(X, name, args)
/* X(family, kernel, variant, argument struct) for each kernel. */
#define SL_KERNELS(X) SL_KERNEL_FAMILIES(SL_KERNEL_MEMBERS, X)

enum sl_kernel_family {
#define SL_FAMILY_ENUM(X, name, ...) SL_FAMILY_##name,
    SL_KERNEL_FAMILIES(SL_FAMILY_ENUM, )
#undef SL_FAMILY_ENUM
        SL_FAMILY_COUNT
};

enum sl_kernel {
#define SL_KERNEL_ENUM(family, name, variant, args) SL_KERNEL_##name,
    SL_KERNELS(SL_KERNEL_ENUM)
#undef SL_KERNEL_ENUM
        SL_KERNEL_COUNT
};

/* A family's kernel for a variant: a tensor type's number, rows, or a class of heads, 0 where there
 * is one; SL_KERNEL_COUNT: it has none. */
enum sl_kernel sl_kernel_of(enum sl_kernel_family family, uint32_t variant);

#endif
