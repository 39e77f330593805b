/* The kernels and the struct that each has as its one argument, for the host and for OpenCL C
 * alike. Addresses are the device's; 0 stands for NULL. kernels/NAME.cl has the kernel NAME; of one
 * that is typed there is a module for each tensor type of its list in mk/level_zero.mk. NAME_one
 * and NAME_few are NAME compiled for subgroups (kernels/product_sub.clh), for one row of input and
 * for up to SL_LZ_PRODUCT_TOK: for devices that can (sl_lz_info). */
#ifndef SL_BACKENDS_LEVEL_ZERO_KERNELS_H
#define SL_BACKENDS_LEVEL_ZERO_KERNELS_H

#ifdef __OPENCL_C_VERSION__
typedef ulong sl_lz_addr;
typedef ulong sl_lz_u64;
typedef uint sl_lz_u32;
#else
#include <stdint.h>
typedef uint64_t sl_lz_addr;
typedef uint64_t sl_lz_u64;
typedef uint32_t sl_lz_u32;
#endif

/* Name, work-items of a group, whether it is typed. */
#define SL_LZ_KERNELS(X)                                                                           \
    X(embed, 64, 1)                                                                                \
    X(rms_norm, 64, 0)                                                                             \
    X(quantize, 64, 0)                                                                             \
    X(matmul_float, 64, 1)                                                                         \
    X(matmul_quant, 64, 1)                                                                         \
    X(matmul_quant_one, 64, 1)                                                                     \
    X(matmul_quant_few, 64, 1)                                                                     \
    X(rope_table, 64, 0)                                                                           \
    X(rope, 64, 0)                                                                                 \
    X(kv_write, 64, 0)                                                                             \
    X(attention, 64, 0)                                                                            \
    X(attention_wide, 64, 0)                                                                       \
    X(attention_chosen, 64, 0)                                                                     \
    X(attention_join, 64, 0)                                                                       \
    X(head_float, 64, 1)                                                                           \
    X(head_quant, 64, 1)                                                                           \
    X(head_quant_one, 64, 1)                                                                       \
    X(head_quant_few, 64, 1)                                                                       \
    X(head_turned, 64, 1)                                                                          \
    X(keep, 64, 0)                                                                                 \
    X(router, 64, 0)                                                                               \
    X(moe_float, 64, 1)                                                                            \
    X(moe_quant, 64, 1)                                                                            \
    X(moe_quant_one, 64, 1)                                                                        \
    X(moe_combine, 64, 0)                                                                          \
    X(glu, 64, 0)                                                                                  \
    X(add_gated, 64, 0)                                                                            \
    X(gather_rows, 64, 0)                                                                          \
    X(block_max, 64, 0)                                                                            \
    X(mul_sigmoid, 64, 0)                                                                          \
    X(l2_norm, 64, 0)                                                                              \
    X(conv_silu, 64, 0)                                                                            \
    X(short_conv, 64, 0)                                                                           \
    X(delta_rule, 64, 0)                                                                           \
    X(channel_delta, 64, 0)                                                                        \
    X(state_scan, 64, 0)                                                                           \
    X(channel_scan, 64, 0)                                                                         \
    X(hadamard, 64, 0)                                                                             \
    X(index_score, 64, 0)                                                                          \
    X(index_choose, 64, 0)                                                                         \
    X(scale, 64, 0)                                                                                \
    X(gate_heads, 64, 0)                                                                           \
    X(temper, 64, 0)                                                                               \
    X(center, 64, 0)                                                                               \
    X(clamp, 64, 0)                                                                                \
    X(bias, 64, 0)                                                                                 \
    X(gelu_rows, 64, 0)

/* What a device must have for them: bytes of arguments, of shared memory, work-items of a group. */
#define SL_LZ_ARGS_BYTES   256u
#define SL_LZ_SHARED_BYTES 32768u
#define SL_LZ_MAX_THREADS  64u

/* Work-items of a group of a kernel that goes element by element. */
#define SL_LZ_ELEMS 64u
/* Work-items of a subgroup, of kernels for them. */
#define SL_LZ_SUBGROUP 16u
/* Rows of weights of a group, of one by subgroups with one row of input, and rows of input that it
 * takes with them else. */
#define SL_LZ_PRODUCT_ROWS 4u
#define SL_LZ_ONE_ROWS     8u
#define SL_LZ_PRODUCT_TOK  8u
/* Of 256 elements of quantised input: SL_QX_BYTES (backends/kernel_args.h) says what they are. */
#define SL_LZ_QX_BYTES 320u
/* Elements of a head at most, for kernels/attention.cl and for attention_wide.cl, experts of a
 * router, and experts of a row. */
#define SL_LZ_NARROW_DIM   256u
#define SL_LZ_MAX_HEAD_DIM 1024u
#define SL_LZ_MAX_EXPERTS  1024u
#define SL_LZ_MAX_USED     64u
/* Positions that a convolution spans at most. */
#define SL_LZ_MAX_TAPS 8u
/* Elements of a key at most that each have a decay. */
#define SL_LZ_MAX_DECAYS 1024u

struct sl_lz_embed {
    sl_lz_addr w, ids, y;
    sl_lz_u64 row_bytes;
    sl_lz_u32 n_in, n_tok;
    float scale;
};
struct sl_lz_rms_norm {
    sl_lz_addr x, w, y;
    sl_lz_u32 n_rows, n, stride_x, stride_y;
    float eps;
};
struct sl_lz_quantize {
    sl_lz_addr x, y;
    sl_lz_u32 n_rows, n, block32, stride;
};
struct sl_lz_matmul { /* x: f32 or quantised rows */
    sl_lz_addr w, x, bias, y;
    sl_lz_u64 row_bytes;
    sl_lz_u32 n_in, n_out, n_tok, add;
};
struct sl_lz_rope_table {
    sl_lz_addr pos, inv_freq, table;
    sl_lz_u32 n_tok, n_freq;
    float mscale;
};
struct sl_lz_rope {
    sl_lz_addr x, table;
    sl_lz_u32 n_tok, n_heads, head_dim, stride, n_freq, neox;
};
struct sl_lz_kv_write { /* K or V */
    sl_lz_addr x, pages, slot;
    sl_lz_u64 page_bytes;
    sl_lz_u32 n_tok, n_heads, head_dim, stride, q8;
};
struct sl_lz_attention {
    sl_lz_addr k, v, q, sinks, y, page_table, row_seq, row_len;
    sl_lz_u64 k_page_bytes, v_page_bytes;
    sl_lz_u32 n_tok, n_heads, n_kv_heads, dim_k, dim_v, stride_q, max_pages, window, chunk, q8;
    sl_lz_u32 v_width; /* elements of a row of V: of latents those of the whole row */
    float scale, softcap;
    sl_lz_addr chosen; /* attention_chosen, of latents: [n_tok, n_top], ascending */
    sl_lz_u32 n_top;
    sl_lz_addr parts; /* where each part's most, total and sums go; 0: all in one group */
};
struct sl_lz_attention_join { /* n_top 0: no list */
    sl_lz_addr parts, sinks, y, row_len;
    sl_lz_u32 n_tok, n_heads, dim_v, window, chunk, n_top;
};
/* Parts of a row's pages at most, and rows of heads that are divided into them. */
#define SL_LZ_ATTENTION_PARTS 16u
#define SL_LZ_ATTENTION_ROWS  256u
struct sl_lz_head { /* head_float, head_quant, head_turned; strides: of heads */
    sl_lz_addr w, x, y;
    sl_lz_u64 head_bytes, row_bytes;
    sl_lz_u32 n_in, n_out, n_tok, n_heads, stride_x, stride_y;
};
struct sl_lz_keep {
    sl_lz_addr x, y; /* of the first row's */
    sl_lz_u32 n_rows, n, stride_x, stride_y;
};
struct sl_lz_router {
    sl_lz_addr logits, bias, ids, weights, expert_scale;
    sl_lz_u32 n_tok, n_expert, k, sigmoid, softmax_topk, normalize;
    float scale;
    sl_lz_u32 n_group, n_group_used, share;
};
/* One of an expert's matrices (which: 0 gate, 1 up, 2 down) for each listed pair; bias [n_expert,
 * n_out]. x: rows of tokens, or with by_pair of the listed pairs; y: rows of the listed pairs, or
 * with to_pair of pairs. */
struct sl_lz_moe {
    sl_lz_addr x, ids, pairs, refs, bias, y;
    sl_lz_u64 row_bytes;
    sl_lz_u32 n_in, n_out, n_pairs, k, which, by_pair, to_pair;
};
struct sl_lz_moe_combine {
    sl_lz_addr pair_y, weights, y;
    sl_lz_u32 n_tok, k, n, set;
};
struct sl_lz_glu {
    sl_lz_addr gate, up, y;
    sl_lz_u64 n;
    sl_lz_u32 activation; /* enum sl_activation */
    float limit;
};
struct sl_lz_add_gated {
    sl_lz_addr x, gate, y;
    sl_lz_u32 n_tok, n;
};
struct sl_lz_gather_rows {
    sl_lz_addr x, rows, y;
    sl_lz_u32 n_out, n;
};
struct sl_lz_block_max {
    sl_lz_addr x, most, at, sum, inv_t;
    sl_lz_u32 n_tok, n, n_blocks;
};
struct sl_lz_mul_sigmoid {
    sl_lz_addr gate, y;
    sl_lz_u32 n_rows, n, stride_gate;
};
struct sl_lz_l2_norm {
    sl_lz_addr x;
    sl_lz_u32 n_tok, n_heads, head_dim, stride;
    float eps;
};
struct sl_lz_state { /* as struct sl_state_view */
    sl_lz_addr pages, page_table, slot, row_seq, row_len;
    sl_lz_u64 page_bytes;
    sl_lz_u32 max_pages, n_tok;
};
struct sl_lz_conv { /* conv_silu, short_conv */
    sl_lz_addr x, w, bias, y;
    struct sl_lz_state state;
    sl_lz_u32 n, n_taps;
};
struct sl_lz_delta_rule {
    sl_lz_addr q, k, v, alpha, beta, a, dt, y;
    struct sl_lz_state state;
    sl_lz_u32 n_heads, n_heads_k, head_dim_k, head_dim_v, stride, stride_gate;
    sl_lz_u32 gate_group, gate_group_stride, grouped;
    float scale;
};
struct sl_lz_channel_delta {
    sl_lz_addr q, k, v, alpha, beta, a, dt, y;
    struct sl_lz_state state;
    sl_lz_u32 n_heads, head_dim_k, head_dim_v;
    float scale, bound;
};
struct sl_lz_state_scan {
    sl_lz_addr x, b, c, dt, a, dt_bias, skip, y;
    struct sl_lz_state state;
    sl_lz_u32 n_heads, n_groups, head_dim, n_state, stride;
};
struct sl_lz_channel_scan {
    sl_lz_addr x, b, c, dt, a, skip, y;
    struct sl_lz_state state;
    sl_lz_u32 n, n_state;
};
struct sl_lz_hadamard {
    sl_lz_addr x;
    sl_lz_u32 n_rows, n;
    float by; /* one over the root of n */
};
/* index_score: of n_rows rows from row0 on to scores [n_rows, max_pages * 64]; index_choose: from
 * these to chosen [all rows, n_top]. */
struct sl_lz_index {
    sl_lz_addr keys, q, w, scores, chosen, page_table, row_seq, row_len;
    sl_lz_u64 page_bytes;
    sl_lz_u32 row0, n_rows, n_heads, dim, max_pages, n_top, q8;
};
struct sl_lz_scale {
    sl_lz_addr x, by, rows, y;
    sl_lz_u32 n_tok, n;
    float factor, cap;
};
struct sl_lz_gate_heads { /* rows: heads of all tokens */
    sl_lz_addr gate, y;
    sl_lz_u32 n_rows, n, per_row, soft;
};
struct sl_lz_temper {
    sl_lz_addr x, pos;
    sl_lz_u32 n_tok, n, span, offset;
    float factor;
};
struct sl_lz_center {
    sl_lz_addr x, y;
    sl_lz_u32 n_tok, n;
};
struct sl_lz_clamp {
    sl_lz_addr x;
    sl_lz_u64 n;
    float limit;
};
struct sl_lz_bias {
    sl_lz_addr x, b;
    sl_lz_u32 n_tok, n;
};
struct sl_lz_gelu_rows {
    sl_lz_addr gate, up, rows, y;
    sl_lz_u32 n_tok, n, stride_up;
};

#endif
