/* The kernels: one SPIR-V module each, shaders/NAME.comp, and the struct that its push constants
 * are, member by member. Addresses are the device's; 0 stands for NULL. */
#ifndef SL_BACKENDS_VULKAN_KERNELS_H
#define SL_BACKENDS_VULKAN_KERNELS_H

#include <stdint.h>

#define SL_VK_KERNELS(X)                                                                           \
    X(probe)                                                                                       \
    X(embed)                                                                                       \
    X(rms_norm)                                                                                    \
    X(rms_norm_wide)                                                                               \
    X(quantize)                                                                                    \
    X(norm_quantize)                                                                               \
    X(float_row)                                                                                   \
    X(qkv)                                                                                         \
    X(matmul_float)                                                                                \
    X(matmul_quant)                                                                                \
    X(matmul_tall)                                                                                 \
    X(matmul_tile)                                                                                 \
    X(matmul_matrix)                                                                               \
    X(rope_table)                                                                                  \
    X(rope)                                                                                        \
    X(kv_write)                                                                                    \
    X(attention)                                                                                   \
    X(attention_wide)                                                                              \
    X(attention_join)                                                                              \
    X(join_quantize)                                                                               \
    X(attention_prompt)                                                                            \
    X(router)                                                                                      \
    X(moe_float)                                                                                   \
    X(moe_quant)                                                                                   \
    X(moe_up)                                                                                      \
    X(moe_down)                                                                                    \
    X(moe_down_strips)                                                                             \
    X(moe_group)                                                                                   \
    X(moe_tile)                                                                                    \
    X(moe_matrix)                                                                                  \
    X(moe_combine)                                                                                 \
    X(glu)                                                                                         \
    X(add_gated)                                                                                   \
    X(gather_rows)                                                                                 \
    X(block_max)                                                                                   \
    X(mul_sigmoid)                                                                                 \
    X(l2_norm)                                                                                     \
    X(conv_silu)                                                                                   \
    X(delta_rule)                                                                                  \
    X(head_float)                                                                                  \
    X(head_quant)                                                                                  \
    X(head_turned)                                                                                 \
    X(keep)                                                                                        \
    X(scale)                                                                                       \
    X(gate_heads)                                                                                  \
    X(temper)                                                                                      \
    X(center)                                                                                      \
    X(clamp)                                                                                       \
    X(bias)                                                                                        \
    X(gelu_rows)

enum sl_vk_kernel {
#define ENTRY(name) SL_VK_##name,
    SL_VK_KERNELS(ENTRY)
#undef ENTRY
        SL_VK_KERNEL_COUNT
};

/* Room for push constants: what every device has. */
#define SL_VK_ARGS_BYTES 128u

/* Rows of weights of a workgroup, also of matmul_quant and of float products, and rows of input
 * that it takes with them (shaders/product.glsl).
 */
#define SL_VK_PRODUCT_ROWS 8u
#define SL_VK_WIDE_ROWS    4u
#define SL_VK_PRODUCT_TOK  8u
/* Shared memory of moe_down_strips. */
#define SL_VK_DOWN_SHARED_BYTES 24832u
/* Elements of a head at most: shaders/qkv.comp. */
#define SL_VK_QKV_MAX_DIM 256u
/* The same of shaders/tile.glsl, and the shared memory that it needs. */
#define SL_VK_TILE_ROWS         64u
#define SL_VK_TILE_TOK          32u
#define SL_VK_TILE_SHARED_BYTES 19456u
/* By cooperative matrices: rows of input, for devices whose fma rounds once and where the matrices
 * are emulated, and shared memory (shaders/tile_matrix.glsl). */
#define SL_VK_MATRIX_TOK                   128u
#define SL_VK_MATRIX_SHARED_BYTES          49152u
#define SL_VK_EMULATED_MATRIX_TOK          32u
#define SL_VK_EMULATED_MATRIX_SHARED_BYTES 32768u
/* Elements of a workgroup of a kernel that goes element by element. */
#define SL_VK_ELEMS 256u

/* Elements of a key of shaders/delta_rule.comp at most; its variants have 64, 128 and 256. */
#define SL_VK_DELTA_MAX_DIM 256u

struct sl_vk_probe {
    uint64_t y;
};
/* grid: of the type's values, for types with one (grids.c). */
struct sl_vk_embed {
    uint64_t w, ids, y, grid;
    uint64_t row_bytes;
    uint32_t n_in, n_tok;
    float scale;
};
struct sl_vk_rms_norm {
    uint64_t x, w, y;
    uint32_t n_rows, n, stride_x, stride_y;
    float eps;
};
struct sl_vk_quantize {
    uint64_t x, y;
    uint32_t n_rows, n, block32, stride;
};
struct sl_vk_matmul { /* x: f32 or quantised rows */
    uint64_t w, x, bias, y, grid;
    uint64_t row_bytes;
    uint32_t n_in, n_out, n_tok, add;
};
/* A norm of rows of n, and what comes of it quantised: q256, q32; 0: not. */
struct sl_vk_norm_quantize {
    uint64_t x, w, y, q256, q32;
    uint32_t n_rows, n;
    float eps;
};
struct sl_vk_float_row {
    uint64_t w, x, bias, y;
    uint64_t row_bytes;
    uint32_t n_in, n_out, n_tok, add;
};
#define SL_VK_QKV_NORMS 1u
#define SL_VK_QKV_NEOX  2u
#define SL_VK_QKV_Q8    4u
struct sl_vk_qkv {
    uint64_t q, k, v, q_norm, k_norm, table, k_pages, v_pages, slot;
    uint32_t heads; /* of q, and those of KV in the upper half */
    uint32_t dims;  /* of k, and of v in the upper half */
    uint32_t n_tok, n_freq, stride_v, flags;
    float q_eps, k_eps;
    uint32_t k_page_bytes, v_page_bytes;
};
struct sl_vk_rope_table {
    uint64_t pos, inv_freq, table;
    uint32_t n_tok, n_freq;
    float mscale;
};
struct sl_vk_rope {
    uint64_t x, table;
    uint32_t n_tok, n_heads, head_dim, stride, n_freq, neox;
};
struct sl_vk_kv_write { /* K or V */
    uint64_t x, pages, slot;
    uint64_t page_bytes;
    uint32_t n_tok, n_heads, head_dim, stride, q8;
};
struct sl_vk_attention {
    uint64_t k, v, q, sinks, y, page_table, row_seq, row_len;
    uint64_t k_page_bytes, v_page_bytes;
    uint32_t heads; /* heads, and those of KV in the upper half */
    uint32_t dims;  /* of K, and of V in the upper half */
    uint32_t stride_q, max_pages, window, chunk;
    float scale, softcap; /* the type of KV is the variant */
    uint32_t v_width;     /* elements of a row of V: of latents those of the whole row */
    union {
        uint64_t parts;  /* 0: a workgroup has all parts of a row's positions */
        uint32_t n_rows; /* attention_prompt: prompt rows; dims in sixteens are the variant */
    };
};
/* Pairs of a row and a head of a workgroup of attention_prompt, elements of a head at most, and
 * shared memory beside that of V. */
#define SL_VK_PROMPT_PAIRS        64u
#define SL_VK_PROMPT_DIM          128u
#define SL_VK_PROMPT_SHARED_BYTES 19456u
/* Parts of a row's positions at most, and heads times rows that are divided among workgroups:
 * shaders/attention_parts.glsl. */
#define SL_VK_ATTENTION_PARTS 16u
#define SL_VK_ATTENTION_ROWS  256u
struct sl_vk_attention_join {
    uint64_t parts, sinks, y, row_len;
    uint32_t n_heads, dim_v, window, chunk;
};
/* The same, 256 elements of a row of all heads at a time, and what comes of it quantised. */
struct sl_vk_join_quantize {
    uint64_t parts, sinks, y, row_len, q256, q32;
    uint32_t n_heads, dim_v, window, chunk, n_tok;
};
struct sl_vk_router {
    uint64_t logits, bias, ids, weights, expert_scale;
    uint32_t n_tok, n_expert, k, sigmoid, softmax_topk, normalize;
    float scale;
    uint32_t n_group, n_group_used;
};
/* One of an expert's matrices (which: 0 gate, 1 up, 2 down) for each listed pair; bias [n_expert,
 * n_out]. x: rows of tokens, or with by_pair of the listed pairs; y: rows of the listed pairs, or
 * with to_pair of pairs. */
struct sl_vk_moe {
    uint64_t x, ids, pairs, refs, bias, y, grid;
    uint64_t row_bytes;
    uint32_t n_in, n_out, n_pairs, k, which, by_pair, to_pair;
};
/* The activation's output for each listed pair, rows y of the listed pairs, from quantised rows x.
 */
struct sl_vk_moe_up {
    uint64_t x, ids, pairs, refs, gate_bias, up_bias, y, grid;
    uint64_t row_bytes;
    uint32_t n_in, n_out, n_pairs, k, activation;
    float limit;
};
/* down of all k pairs of each row, and their sum; is_float: x is, which moe_down_strips alone
 * takes. */
struct sl_vk_moe_down {
    uint64_t x, ids, weights, refs, bias, pair_y, y, grid;
    uint64_t row_bytes;
    uint32_t n_in, n_out, n_tok, k, set, is_float;
};
/* Sorts n_pairs listed pairs by expert: order [n_pairs] are places in the list, tiles one number
 * and then three for each tile. */
struct sl_vk_moe_group {
    uint64_t ids, pairs, order, tiles;
    uint32_t n_pairs, n_expert, tile;
};
struct sl_vk_moe_tile { /* as struct sl_vk_moe */
    uint64_t x, pairs, refs, bias, y, grid, order, tiles;
    uint64_t row_bytes;
    uint32_t n_in, n_out, k, which, by_pair, to_pair;
};
struct sl_vk_moe_combine {
    uint64_t pair_y, weights, y;
    uint32_t n_tok, k, n, set;
};
struct sl_vk_glu {
    uint64_t gate, up, y, n;
    uint32_t activation; /* enum sl_activation */
    float limit;
};
struct sl_vk_add_gated {
    uint64_t x, gate, y;
    uint32_t n_tok, n;
};
struct sl_vk_gather_rows {
    uint64_t x, rows, y;
    uint32_t n_out, n;
};
struct sl_vk_block_max {
    uint64_t x, max, at, sum, inv_t;
    uint32_t n_tok, n, n_blocks;
};
struct sl_vk_mul_sigmoid {
    uint64_t gate, y;
    uint32_t n_rows, n, stride_gate;
};
struct sl_vk_l2_norm {
    uint64_t x;
    uint32_t n_tok, n_heads, head_dim, stride;
    float eps;
};
struct sl_vk_state { /* struct sl_state_view; max_pages is among the others */
    uint64_t pages, page_bytes, page_table, slot, row_seq, row_len;
};
struct sl_vk_conv_silu {
    uint64_t x, w, bias, y;
    struct sl_vk_state state;
    uint32_t max_pages, n_tok, n, n_taps;
};
struct sl_vk_delta_rule {
    uint64_t q, alpha, decay, dt, y;
    uint64_t pages, page_table, slot, row_seq, row_len; /* as in struct sl_vk_state */
    int32_t k, v, beta;                                 /* elements behind q, q and alpha */
    uint32_t page_bytes, max_pages, n_tok;
    uint32_t heads;      /* n_heads, and n_heads_k in the upper half */
    uint32_t dims;       /* head_dim_k, and head_dim_v in the upper half */
    uint32_t gates;      /* stride_gate, and gate_group in the upper half */
    uint32_t gate_group; /* gate_group_stride, and grouped in the upper half */
    uint32_t stride;
    float scale;
};
struct sl_vk_head { /* head_float, head_quant, head_turned */
    uint64_t w, x, y, grid, head_bytes, row_bytes;
    uint32_t n_in, n_out, n_tok, n_heads, stride_x, stride_y;
};
struct sl_vk_keep {
    uint64_t x, y;
    uint32_t n_rows, n, stride_x, stride_y;
};
struct sl_vk_scale {
    uint64_t x, by, rows, y;
    uint32_t n_tok, n;
    float factor, cap;
};
struct sl_vk_gate_heads {
    uint64_t gate, y;
    uint32_t n_rows, n, per_row, soft;
};
struct sl_vk_temper {
    uint64_t x, pos;
    uint32_t n_tok, n, span, offset;
    float factor;
};
struct sl_vk_center {
    uint64_t x, y;
    uint32_t n_tok, n;
};
struct sl_vk_clamp {
    uint64_t x, n;
    float limit;
};
struct sl_vk_bias {
    uint64_t x, b;
    uint32_t n_tok, n;
};
struct sl_vk_gelu_rows {
    uint64_t gate, up, rows, y;
    uint32_t n_tok, n, stride_up;
};

#endif
