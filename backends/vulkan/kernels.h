/* The kernels: one SPIR-V module each, shaders/NAME.comp, and the struct that its push constants
 * are, member by member. Addresses are the device's; 0 stands for NULL. */
#ifndef SL_BACKENDS_VULKAN_KERNELS_H
#define SL_BACKENDS_VULKAN_KERNELS_H

#include <stdint.h>

#define SL_VK_KERNELS(X)                                                                           \
    X(probe)                                                                                       \
    X(embed)                                                                                       \
    X(rms_norm)                                                                                    \
    X(quantize)                                                                                    \
    X(matmul_float)                                                                                \
    X(matmul_quant)                                                                                \
    X(rope_table)                                                                                  \
    X(rope)                                                                                        \
    X(kv_write)                                                                                    \
    X(attention)                                                                                   \
    X(router)                                                                                      \
    X(moe_float)                                                                                   \
    X(moe_quant)                                                                                   \
    X(moe_combine)                                                                                 \
    X(glu)                                                                                         \
    X(add_gated)                                                                                   \
    X(gather_rows)                                                                                 \
    X(block_max)

enum sl_vk_kernel {
#define ENTRY(name) SL_VK_##name,
    SL_VK_KERNELS(ENTRY)
#undef ENTRY
        SL_VK_KERNEL_COUNT
};

/* Every vendor's cards have at least this much room for push constants. */
#define SL_VK_ARGS_BYTES 128u

/* Rows of weights of a workgroup, and rows of input that it takes with them (shaders/product.glsl).
 */
#define SL_VK_PRODUCT_ROWS 4u
#define SL_VK_PRODUCT_TOK  8u
/* Elements of a workgroup of a kernel that goes element by element. */
#define SL_VK_ELEMS 256u
/* Bytes of 256 elements of quantised input: q int8 [256], d f32 [8], sum int16 [16]
 * (backends/cpu/quantize.h says what they are; for types of 256 elements d[0] is the scale and
 * there are 16 sums of 16, for types of 32 there are 8 of each). */
#define SL_VK_QX_BYTES 320u

struct sl_vk_probe {
    uint64_t y;
};
struct sl_vk_embed {
    uint64_t w, ids, y;
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
    uint32_t n_rows, n, block32;
};
struct sl_vk_matmul { /* x: f32 or quantised rows */
    uint64_t w, x, bias, y;
    uint64_t row_bytes;
    uint32_t n_in, n_out, n_tok, add;
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
};
struct sl_vk_router {
    uint64_t logits, bias, ids, weights, expert_scale;
    uint32_t n_tok, n_expert, k, sigmoid, softmax_topk, normalize;
    float scale;
};
/* One of an expert's matrices (which: 0 gate, 1 up, 2 down) for each listed pair; bias [n_expert,
 * n_out]. x: rows of tokens, or with by_pair of the listed pairs; y: rows of the listed pairs, or
 * with to_pair of pairs. */
struct sl_vk_moe {
    uint64_t x, ids, pairs, refs, bias, y;
    uint64_t row_bytes;
    uint32_t n_in, n_out, n_pairs, k, which, by_pair, to_pair;
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

#endif
