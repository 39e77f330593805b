/* What host code and device code share: the kernels' argument structs and shapes.
 *
 * Compiled as C by the host and as C++ by nvcc (and hipcc), so plain structs of fixed-width numbers
 * and pointers only. Pointers are device addresses.
 *
 * A kernel NAME is `extern "C" __global__ void sl_k_NAME(const __grid_constant__ struct ARGS a)`:
 * its one parameter is its argument struct, by value. It is in the file with the longest name that
 * its own begins with (attention_row in attention.cu), else in small.cu. The host's list of them,
 * and what cannot be done without each, is families.h. */
#ifndef SL_BACKENDS_KERNELS_KERNELS_H
#define SL_BACKENDS_KERNELS_KERNELS_H

#include "backends/ops/activation.h"

#include <stdbool.h>
#include <stdint.h>

/* Lanes of a warp: what a shuffle, a vote, a fragment or a sum over lanes spans. It is the same on
 * every card, and so are the order of each sum and its bits. A wave, the lanes that a card has go
 * on together, is a warp or two (machine_hip.cuh); no kernel rests on which. */
#define SL_WARP 32

/* dst[i] = value, i < n. Marks memory for tests, and proves at start that launches work. */
struct sl_karg_fill {
    uint32_t *dst;
    uint64_t n;
    uint32_t value;
};

/* One input row quantised to int8 (backends/cpu/matmul/quantize.h has the rule), for products with
 * quantised weights. n_pad = n_in rounded up to 256; what is beyond n_in is zero.
 *   q     int8 [rows, n_pad]
 *   d     f32  [rows, n_pad / 256], or [rows, n_pad / 32] for the 32-element types
 *   sum   the sums of q that minima need: for the 256-element types, per 256, int8 high[16] and
 *         low[16] with sum of 16 q = 64 * high + low; for the 32-element types f32 sums of 32 q */
struct sl_karg_qx {
    int8_t *q;
    float *d;
    void *sum;
};

/* Quantises rows of n_in at x + row * n_in; block32: which rule. One warp a 256-group, 8 warps a
 * block: grid (rows, ceil(n_pad / 256 / 8)). */
struct sl_karg_quantize {
    const float *x;
    struct sl_karg_qx to;
    uint32_t n_in, block32;
};

/* A plain weight matrix and where its product goes: struct sl_matmul_out on the device. */
struct sl_karg_mat {
    const void *w;
    const float *bias;
    float *y;
    uint32_t n_out, add;
};

/* Mirrors struct sl_expert_ref (backends/ops/moe.h). */
struct sl_karg_ref {
    const void *gate, *up, *down;
};

/* What becomes of an expert's products (moe.cuh): biases as in struct sl_op_moe, NULL: none; alpha
 * of the clamped SwiGLU; limit of that, of the limited and of the cut one. */
struct sl_karg_experts {
    const float *gate_bias, *up_bias, *down_bias;
    float alpha, limit;
    bool is_plain; /* no biases, and SwiGLU as it is */
    enum sl_activation activation;
};

/* An RMS norm that a kernel does on its input first, as sl_k_rms_norm would: y gets the result, for
 * whoever reads it later. eps < 0: none. */
struct sl_karg_norm {
    const float *w;
    float *y;
    float eps;
};

/* Decode: vec.cuh. Blocks of SL_MATVEC_WARPS warps. Dynamic shared memory: two stages, `rows` input
 * rows as the weights want them, and, with a norm, each row in f32 from norm_at on. */
#define SL_MATVEC_WARPS               8u
#define SL_VEC_STAGE_BYTES(block32)   ((block32) ? 33280u : 4608u)
#define SL_VEC_ROW_BYTES(n_pad)       ((n_pad) + (n_pad) / 32 * 4 + (n_pad) / 16 * 2)
#define SL_VEC_SMEM(b32, n_pad, rows) (SL_VEC_STAGE_BYTES(b32) + (rows)*SL_VEC_ROW_BYTES(n_pad))
#define SL_VEC_FLOAT_SMEM(n_in, rows) ((rows) * (((n_in) + 3) & ~3u) * 4)
/* Blocks that a multiprocessor has registers for. */
#define SL_MATVEC_BLOCKS  2u
#define SL_MOE_VEC_BLOCKS 2u
#define SL_VEC_MAX_TOK    8u

/* Rows times up to four weights of one type. A block takes rows_per_block output rows of one weight
 * for tok_per_block input rows; first[i] is the first block of weight i. grid (blocks, ceil(n_tok /
 * tok_per_block)). */
struct sl_karg_matvec {
    const float *x;
    struct sl_karg_mat mat[4];
    uint32_t first[4];
    uint32_t n_in, n_mat, rows_per_block, n_tok, tok_per_block, norm_at;
    struct sl_karg_norm norm;
};

/* One or two rows times Q4_K weights that begin on 16 bytes (matvec_few_N, N = n_tok), with
 * sl_karg_matvec's arguments: blocks of SL_FEW_THREADS threads, grid (blocks). Dynamic shared
 * memory: the block's weights, input rows as int8 with sums of 32, then norm_at bytes for what is
 * normed and later for terms that wait to be joined, the rows' scales, and 8 sums a row.
 * rows_per_block * n_tok is at most SL_FEW_THREADS. */
#define SL_FEW_THREADS                  512u
#define SL_FEW_MAX_TOK                  2u
#define SL_FEW_X_BYTES                  272u /* a block of 256, and 16 to spread banks */
#define SL_FEW_WEIGHT_BYTES(n_in, rows) ((rows) * ((n_in) / 256u) * 144u)
#define SL_FEW_STAGE_BYTES(n_in, rows, tok, norm)                                                  \
    ((norm) && (n_in)*4u > (rows) * ((n_in) / 256u + 1u) * 16u                                     \
         ? (tok) * (n_in)*4u                                                                       \
         : (tok) * (rows) * ((n_in) / 256u + 1u) * 16u)
#define SL_FEW_SMEM(n_in, rows, tok, norm)                                                         \
    (SL_FEW_WEIGHT_BYTES(n_in, rows) + (tok) * ((n_in) / 256u) * (SL_FEW_X_BYTES + 36u) +          \
     (tok)*32u + SL_FEW_STAGE_BYTES(n_in, rows, tok, norm))

/* A few rows on tensor cores, for the types that have them: mma_vec.cuh. Weights in tiles
 * of SL_MMA_TILE rows, n_out a multiple of it; n_in a multiple of 256. Dynamic shared memory: for
 * each warp `slots` tiles of a block of 256 (as many as it has to go through, at most SL_MMA_AHEAD,
 * and one more where warps share tiles), SL_MMA_STRIDE from row to row; input rows from in_at on.
 */
#define SL_MMA_BLOCKS               2u /* that a multiprocessor has registers for */
#define SL_MMA_TILE                 16u
#define SL_MMA_AHEAD                2u /* items that are on their way while one is multiplied */
#define SL_MMA_IN_PAD               32u
#define SL_MMA_STRIDE_Q4_K          160u
#define SL_MMA_STRIDE_Q5_K          224u
#define SL_MMA_STRIDE_Q6_K          240u
#define SL_MMA_IN_BYTES(n_in, rows) ((n_in) / 256 * 8 * 36 + (rows) * ((n_in) + SL_MMA_IN_PAD))
/* matvec_mma has Q8_0 too: mma_q8.cuh. Rows of 256-groups as above, which begin on 16 bytes; any
 * n_out from SL_MMA_TILE on; 2^log_split warps share a tile, 0: slots for SL_MMA_AHEAD. */
#define SL_MMA_STRIDE_Q8_0            272u
#define SL_MMA_IN32_PAD               16u
#define SL_MMA_IN32_BYTES(n_in, rows) ((n_in) + (rows) * ((n_in) + SL_MMA_IN32_PAD))

/* As sl_karg_matvec, with rows that are quantised already; at most SL_VEC_MAX_TOK a block.
 * log_split: of Q8_0; the others go by n_in. */
struct sl_karg_matvec_mma {
    struct sl_karg_qx qx;
    struct sl_karg_mat mat[4];
    uint32_t first[4];
    uint32_t n_in, n_mat, rows_per_block, n_tok, tok_per_block, slots, in_at, log_split;
};

/* At most SL_VEC_MAX_TOK rows times weights of a 32-element type that begin on 16 bytes, as do
 * every rows_at_once rows (matvec_block, block_vec.cuh): blocks of SL_MATVEC_WARPS warps, grid
 * (blocks). Dynamic shared memory: `stages` parts of rows_at_once rows each, stage_bytes long (1:
 * these are all rows of the block; 2: one is copied while the other is multiplied), from in_at on
 * the quantised rows, from terms_at on what rows_at_once rows of blocks come to, an odd number of
 * pairs a row, or before that a row that is normed. */
#define SL_MATVEC_BLOCK_TERMS(n_in) (((n_in) / 32u | 1u) * 8u)
struct sl_karg_matvec_block {
    const float *x;
    struct sl_karg_mat mat[4];
    uint32_t first[4];
    uint32_t n_in, n_mat, n_tok, rows_per_block, rows_at_once, stages;
    uint32_t stage_bytes, in_at, terms_at;
    struct sl_karg_norm norm;
};

/* Experts of single pairs: up and gate products with SwiGLU, or the down product.
 * Listed pair i (pair p = pairs ? pairs[i] : i) of token p / k:
 *   GATE_UP  h[i,:] = activation(gate x, up x)
 *   GATE     h[i,:] = gate x             the two halves where gate and up have different types
 *   UP       h[i,:] = activation(h[i,:], up x)
 *            of squared ReLU alone, which has no gate: activation(up x)
 *   DOWN     y[p,:] = down h[i,:]
 * each product plus the bias of its expert, ids[p], where there is one.
 * Pairs of tokens outside [tok_begin, tok_end) are left out. grid (row blocks, n_pairs).
 * n_placed (moe_vec): pair i and where its expert is are in placed[i] instead of pairs, ids and
 * refs. moe_down does DOWN for all k pairs of a token and then sums as moe_combine: sum_y[t,:] +=
 * sum_r weights[t,r] * y[t*k+r,:]. grid (row blocks, n_tok). moe_mma does what moe_vec does, but
 * all listed pairs of an expert at once: the block of the first of each SL_VEC_MAX_TOK works, those
 * of the others end. grid (n_pairs, row blocks), n_pairs at most SL_MOE_MMA_MAX_PAIRS. With more
 * pairs moe_sort has cut them into tiles of at most SL_VEC_MAX_TOK before, and a block takes a
 * tile: grid (the most tiles there can be, row blocks). */
enum sl_moe_mode { SL_MOE_GATE_UP, SL_MOE_GATE, SL_MOE_UP, SL_MOE_DOWN };
#define SL_MOE_DOWN_ROWS     8u
#define SL_MOE_DOWN_MAX_K    16u
#define SL_MOE_MMA_MAX_PAIRS 64u
#define SL_MOE_PLACED        16u
/* moe_pair_up does GATE_UP, moe_pair_sum DOWN and the sum, where n_in is a multiple of the type's
 * block and n_out of the rows of a block of threads (block_vec.cuh): all of a block's weights are
 * in dynamic shared memory at once, rows_per_block rows of gate and of up, or of each of k experts'
 * down, which together end where 16 bytes do for 32-element types; from in_at on the quantised
 * input rows, one or k as if they were one, and behind them, n_table > 0, where all n_table
 * experts' gate and up are. grid (n_pairs or n_tok, row blocks), SL_MOE_UP_THREADS or
 * SL_MOE_SUM_THREADS. */
#define SL_BLOCK_GROUP_BYTES 304u
#define SL_MOE_UP_THREADS    128u
#define SL_MOE_UP_ROWS       16u  /* at most */
#define SL_MOE_UP_TABLE      256u /* at most */
#define SL_MOE_SUM_THREADS   512u
#define SL_MOE_SUM_ROWS      16u /* at most, a multiple of 8 */
struct sl_karg_tile;
struct sl_karg_placed {
    struct sl_karg_ref ref;
    uint32_t pair;
};
struct sl_karg_moe {
    const float *x;
    float *h, *y;
    const uint32_t *ids, *pairs;
    const struct sl_karg_ref *refs;
    uint32_t n_in, n_out, k, n_pairs, tok_begin, tok_end, mode, rows_per_block, n_expert;
    uint32_t k_inverse;               /* moe_down: 65536 / k, rounded up */
    uint32_t slots, in_at;            /* moe_mma: as in matvec_mma */
    uint32_t n_table;                 /* moe_pair_up */
    const struct sl_karg_tile *tiles; /* moe_mma: of sorted pairs, or NULL */
    const uint32_t *n_tiles, *order;
    const float *weights;
    float *sum_y;
    uint32_t n_placed;
    uint32_t set; /* moe_pair_sum_any: the sum begins with 0 instead of sum_y */
    struct sl_karg_placed placed[SL_MOE_PLACED];
    struct sl_karg_experts expert;
};

/* Sorts listed pairs by expert and cuts them into tiles of at most tile_n, one block.
 *   order [n_pairs]: list indices by expert     tiles [*n_tiles]: expert, first position, count */
struct sl_karg_tile {
    uint32_t expert, begin, n;
};
struct sl_karg_moe_sort {
    const uint32_t *ids, *pairs;
    uint32_t *order, *n_tiles;
    struct sl_karg_tile *tiles;
    uint32_t n_pairs, n_expert, k, tok_begin, tok_end, tile_n;
};

/* Products on tensor cores: prompt rows times up to four weights of one type (refs NULL), or tiles
 * of sorted pairs times their expert's matrix. Quantised types read qx, float types x.
 * grid (row tiles or the most tiles there can be, blocks of SL_GEMM_M output rows). */
#define SL_GEMM_M       64u
#define SL_GEMM_N_LARGE 128u
#define SL_GEMM_N_SMALL 32u
#define SL_GEMM_STRIDE  272u /* bytes from row to row of a tile: 256, and 16 to spread banks */
/* Dynamic shared memory for a tile of n rows of quantised types; gemm.cu says what lies there. */
#define SL_GEMM_META    80u /* 64 bytes of scales and sums a row, and 16 to spread banks */
#define SL_GEMM_SMEM(n) ((SL_GEMM_M + (n)) * (SL_GEMM_STRIDE + SL_GEMM_META))
struct sl_karg_gemm {
    struct sl_karg_qx qx;
    const float *x;
    struct sl_karg_mat mat[4];
    uint32_t first[4]; /* first block of output rows of each weight */
    uint32_t n_in, n_mat, n_tok;
    /* grouped: */
    const struct sl_karg_ref *refs;
    const uint32_t *order, *pairs, *n_tiles;
    const struct sl_karg_tile *tiles;
    float *h, *y;
    uint32_t n_out, k, mode;
    struct sl_karg_experts expert;
};

/* gemm_narrow_F32, with sl_karg_gemm (refs NULL, x): rows of n_in, a multiple of four, that begin
 * on 16 bytes, as do the weights; first[i] in tiles of SL_GEMM_NARROW_M outputs. grid (ceil(n_tok /
 * SL_GEMM_NARROW_N), tiles of outputs). */
#define SL_GEMM_NARROW_M       32u
#define SL_GEMM_NARROW_N       32u
#define SL_GEMM_NARROW_K       64u
#define SL_GEMM_NARROW_STAGES  3u
#define SL_GEMM_NARROW_THREADS 128u
#define SL_GEMM_NARROW_SMEM                                                                        \
    (SL_GEMM_NARROW_STAGES * (SL_GEMM_NARROW_M + SL_GEMM_NARROW_N) * (SL_GEMM_NARROW_K + 4u) * 4u)

struct sl_karg_embed {
    const void *w;
    const uint32_t *ids;
    float *y;
    uint32_t n_in, n_tok;
    float scale;
};

struct sl_karg_rms_norm {
    const float *x, *w;
    float *y;
    uint32_t n_rows, n, stride_x, stride_y;
    float eps;
};

struct sl_karg_rope_table {
    const int32_t *pos;
    const float *inv_freq;
    float *table;
    uint32_t n_tok, n_freq;
    float mscale;
};

struct sl_karg_rope {
    float *x;
    const float *table;
    uint32_t n_tok, n_heads, head_dim, stride, n_freq, neox;
};

struct sl_karg_kv {
    void *k, *v;
    uint64_t k_page_bytes, v_page_bytes;
    uint32_t n_kv_heads, dim_k, dim_v, q8;
};

struct sl_karg_kv_write {
    struct sl_karg_kv kv;
    const float *k, *v;
    const uint32_t *slot;
    uint32_t n_tok, stride_k, stride_v;
};

/* Attention of single rows (decode). Row row0 + r is cut into at most SL_ATTN_SPLITS parts of whole
 * pages; part [rows, n_heads, SL_ATTN_SPLITS, SL_ATTN_PART_FLOATS] holds each part's output,
 * maximum and sum until they are joined in ascending order. */
#define SL_ATTN_SPLITS      32u
#define SL_ATTN_WAVE_ROWS   32u
#define SL_ATTN_HEAD_BLOCK  8u
#define SL_ATTN_MAX_DIM_V   512u
#define SL_LATENT_MAX_DIM_V 1024u
/* The two beside the output make a part begin on 16 bytes, where dim_v is a multiple of four. */
#define SL_ATTN_PART_FLOATS(dim_v) ((dim_v) + 4u)
#define SL_ATTN_CHUNK              32u /* positions in shared memory at a time */
/* Dynamic shared memory: q, scores, K or V as f32. */
#define SL_ATTN_SMEM(dim_k, dim_max)                                                               \
    ((SL_ATTN_HEAD_BLOCK * ((dim_k) + SL_ATTN_CHUNK + 4u) + SL_ATTN_CHUNK * ((dim_max) + 1u)) * 4u)
/* The same arguments serve attention_tile_DIM (prompt rows over f16 KV, heads of at most DIM, 64 of
 * (row, head) a block: grid (ceil(n_rows / (64 / width)), n_kv_heads * ceil(group / width)), width
 * = min(group, SL_ATTN_HEAD_BLOCK)); part is not used. */
/* attention_split_DIM does what attention_row does for f16 KV and heads of at most DIM; for each of
 * 4 warps two stages of 16 rows of K and of V, and, static, queries in f32 and as pairs of f16. */
#define SL_ATTN_SPLIT_SMEM(dim)        (4u * 2u * 2u * 16u * ((dim) + 8u) * 2u)
#define SL_ATTN_SPLIT_STATIC_SMEM(dim) ((dim) * (8u * 4u + 16u * 2u) + 1024u)
#define SL_ATTN_TILE_PAIRS             64u
#define SL_ATTN_TILE_SMEM(dim)         ((2u * SL_ATTN_TILE_PAIRS + 2u * 64u) * ((dim) + 8u) * 2u)
/* Blocks of `ratio` positions, and where the row is that stands for one (sl_block_page()): in a
 * page there are 1 << shift of them, or one in the last of so many pages. ratio 0: there are none.
 */
struct sl_karg_block_rows {
    uint32_t ratio, shift, pages;
};

/* attention_latent does what attention_row does where K and V are the same rows of dim_k elements,
 * of which the first dim_v are V, and all heads share them; attention_latent_long where dim_v is
 * more than SL_ATTN_MAX_DIM_V, and at most SL_LATENT_MAX_DIM_V. attention_chosen and
 * attention_chosen_join do what it and attention_join do, of chosen positions,
 * attention_compressed and attention_compressed_join of rows of blocks and a window's. */
struct sl_karg_attention {
    struct sl_karg_kv kv;
    const float *q, *sinks;
    float *y, *part;
    const uint32_t *page_table, *row_seq, *row_len;
    uint32_t row0, n_rows, n_heads, stride_q, max_pages, window;
    float scale, softcap; /* softcap: attention_row_any */
    /* attention_split: [n_rows, gridDim.y] zeros; the last block of a row's heads joins the parts,
     * and leaves zero. NULL: attention_join is launched after it. */
    uint32_t *done;
    uint32_t chunk; /* attention_row_any, attention_join_any */
    /* *_chosen_*: row t attends to positions chosen[t * n_top + i], i < min(n_top, row_len[t]). */
    const uint32_t *chosen;
    uint32_t n_top;
    /* attention_blocks, attention_*_blocks: to the positions of chosen blocks, as in struct
     * sl_op_block_attention. Where these are no whole pages, a block of attention_tile_blocks_DIM
     * has one row. */
    uint32_t block;
    /* attention_compressed*: row t attends to rows of complete blocks, to chosen ones as
     * above or (chosen NULL) to all, and then to the positions of its window. */
    const void *blocks;
    uint64_t block_page_bytes;
    const uint32_t *block_table;
    struct sl_karg_block_rows of;
};

struct sl_karg_router {
    const float *logits, *bias;
    uint32_t *ids;
    float *weights;
    uint32_t n_tok, n_expert, k;
    uint32_t sigmoid, softmax_topk, normalize;
    float scale;
};
/* router_groups: n > 1 groups of n_expert / n experts, of which n_used are chosen from. */
struct sl_karg_groups {
    uint32_t n, n_used;
};
struct sl_karg_router_groups {
    struct sl_karg_router router;
    struct sl_karg_groups groups;
};
/* router_share: one group may be all experts; each `share` experts in a row have one id. */
struct sl_karg_router_share {
    struct sl_karg_router router;
    struct sl_karg_groups groups;
    uint32_t share;
};

/* As struct sl_op_softplus_router. grid (n_tok), 128 threads. */
struct sl_karg_softplus_router {
    const float *logits, *bias;
    const int32_t *table;
    const uint32_t *tokens, *rows;
    uint32_t *ids;
    float *weights;
    uint32_t n_expert, k, normalize;
    float scale;
};

/* Norm, router logits (F32 weights [n_expert, n_in]) and choice of decode rows in one: what
 * rms_norm, matvec_F32 and router do one after the other. A block takes SL_ROUTE_EXPERTS experts;
 * the last one of a row (done [n_tok], zeros, left zero) chooses. grid (ceil(n_expert /
 * SL_ROUTE_EXPERTS), n_tok), dynamic shared memory n_in * 4. fused_route takes n_in up to
 * SL_ROUTE_NARROW without a bias, fused_route_wide all. */
#define SL_ROUTE_EXPERTS 8u
#define SL_ROUTE_NARROW  2048u
struct sl_karg_route {
    const float *x, *w;
    struct sl_karg_norm norm;
    struct sl_karg_router router;
    uint32_t *done;
    uint32_t n_in;
    const float *logit_bias; /* fused_route_wide: [n_expert], NULL: none */
};

/* fused_route_groups: what fused_route_wide takes, with groups. */
struct sl_karg_route_groups {
    struct sl_karg_route route;
    struct sl_karg_groups groups;
};

/* Per-head q and k norms (NULL: none), rope of both, and the KV write, in place as the ops do it:
 * one warp a head; heads are q's, k's, v's. grid (ceil(heads / 4), n_tok), 128 threads. n_freq 0:
 * no rope. */
#define SL_QKV_MAX_DIM 256u
struct sl_karg_qkv {
    struct sl_karg_kv kv;
    float *q, *k;
    const float *v, *q_norm, *k_norm, *table;
    const uint32_t *slot;
    uint32_t n_heads, dim, stride_v, n_freq, neox;
    float q_eps, k_eps; /* below 0: no norm */
};

/* rms_norm of contiguous rows longer than 256, a multiple of it, to norm.y, and that quantised;
 * block32: which rule. grid (rows), SL_MATVEC_WARPS warps, dynamic shared memory n_in * 4. */
struct sl_karg_norm_quantize {
    const float *x;
    struct sl_karg_norm norm;
    struct sl_karg_qx to;
    uint32_t n_in, block32;
};

/* Attention over f16 KV whose values have SL_WIDE_DIM elements, with sl_karg_attention (wide.cuh),
 * where there are no windows, soft caps, chunks or sinks. attention_wide_*: heads of SL_WIDE_DIM;
 * latent_*: latents of SL_WIDE_DIM + SL_LATENT_ROT elements, as one KV head. With group = n_heads /
 * n_kv_heads:
 * *_rows_N, prompt rows, 16 N pairs of row and head a block: grid (ceil(n_rows * group / 16 / N),
 * n_kv_heads); *_parts_N (attention_wide_parts: N = 1), single rows, 16 N heads a block: grid
 * (SL_WIDE_SPLITS(n_heads), n_kv_heads * ceil(group / 16 / N), n_rows), then latent_join: grid
 * (n_heads, n_rows), SL_WIDE_DIM / 4 threads. Blocks of 128 threads for N = 1, else 256. A row's
 * parts: [n_heads, SL_WIDE_SPLITS(n_heads), SL_ATTN_PART_FLOATS(SL_WIDE_DIM)]. latent_chosen_* do
 * the same of chosen positions, with the same bits as over a sequence that had those alone; a block
 * of latent_chosen_rows_N has heads of one row: grid (n_rows * ceil(n_heads / 16 / N)).
 * latent_long_* do what latent_* do where latents have SL_LATENT_LONG_DIM + SL_LATENT_ROT elements,
 * with windows; latent_long_join has SL_LATENT_LONG_DIM / 4 threads. */
#define SL_WIDE_DIM             512u
#define SL_LATENT_LONG_DIM      1024u
#define SL_LATENT_ROT           64u
#define SL_WIDE_CHUNK           32u
#define SL_WIDE_MAX_SPLITS      128u
#define SL_WIDE_SPLITS(n_heads) ((n_heads) <= 32u ? 128u : (n_heads) <= 64u ? 64u : 32u)
/* Shared memory of 16 n queries as pairs of f16, and chunks of rows with 16 bytes to spread banks.
 */
#define SL_WIDE_ROWS_SMEM(n, chunks, keys)                                                         \
    ((2u * 16u * (n) + (chunks)*SL_WIDE_CHUNK) * ((keys) + 8u) * 2u)
#define SL_LATENT_SMEM(n, stages, dim) SL_WIDE_ROWS_SMEM(n, stages, (dim) + SL_LATENT_ROT)
/* Where n is 1, values take the place of their keys. */
#define SL_ATTN_WIDE_SMEM(n) SL_WIDE_ROWS_SMEM(n, (n) == 1u ? 1u : 2u, SL_WIDE_DIM)
/* What a block of either has beside it. */
#define SL_WIDE_STATIC_SMEM(n) ((n)*16u * (2u * (SL_WIDE_CHUNK + 8u) * 2u + 48u) + 512u)

/* struct sl_op_head_matmul. head_matmul: grid (ceil(n_out / rows_per_block), n_heads, ceil(n_tok /
 * tok_per_block)), SL_MATVEC_WARPS warps, shared memory as matvec. head_turned, where the weights
 * are transposed: grid (ceil(n_out / 32 / SL_HEAD_TURNED_THREADS), or n_out for float types,
 * n_heads, n_tok). */
#define SL_HEAD_TURNED_THREADS 64u
struct sl_karg_head {
    const float *x;
    float *y;
    const void *w;
    uint64_t head_bytes;
    uint32_t n_tok, n_heads, n_in, n_out, n_keep, stride_x, stride_y;
    uint32_t rows_per_block, tok_per_block;
};

/* The same on tensor cores, from rows of heads that head_gemm_quantize has quantised, which also
 * keeps what stands behind them: grid (n_tok * n_heads, ceil(n_pad / 256 / 8)), 256 threads; then
 * head_gemm_TYPE: grid (ceil(n_tok / SL_GEMM_N_LARGE), ceil(n_out / SL_GEMM_M), n_heads), 256
 * threads, shared memory as gemm_large. */
struct sl_karg_head_gemm {
    struct sl_karg_qx qx;
    const float *x;
    float *y;
    const void *w;
    uint64_t head_bytes;
    uint32_t n_tok, n_heads, n_in, n_out, n_keep, stride_x, stride_y, block32;
};

struct sl_karg_moe_combine {
    const float *pair_y, *weights;
    float *y;
    uint32_t n_tok, k, n;
};

struct sl_karg_silu_mul {
    const float *gate, *up;
    float *y;
    uint64_t n;
};

struct sl_karg_add_gated {
    const float *x, *gate;
    float *y;
    uint32_t n_tok, n;
};

struct sl_karg_gather {
    const float *x;
    const uint32_t *rows;
    float *y;
    uint32_t n_out, n;
};

/* dst[i] = src[i], i < n: a small copy from or to the host's memory, which sees each word as it
 * comes. grid: blocks of 256 threads, as many as are useful. */
struct sl_karg_words {
    const uint32_t *src;
    uint32_t *dst;
    uint32_t n;
};

/* The same of rows of n words: row rows[i] to row rows[i]. grid (ceil(n / 256), rows), 256 threads.
 */
#define SL_WORDS_ROWS 128u
struct sl_karg_words_rows {
    const uint32_t *src;
    uint32_t *dst;
    uint32_t n;
    uint16_t rows[SL_WORDS_ROWS];
};

/* As struct sl_op_block_max: a warp takes 64 elements, SL_BLOCK_MAX_WARPS of them a block. grid
 * (rows, ceil(n / 64 / SL_BLOCK_MAX_WARPS)). */
#define SL_BLOCK_MAX_WARPS 8u
struct sl_karg_block_max {
    const float *x;
    float *max;
    uint32_t *at;
    float *sum;
    const float *inv_t;
    uint32_t n;
};

/* As struct sl_op_send and struct sl_op_receive. grid: one block. */
struct sl_karg_send {
    const float *x;
    float *to;
    uint32_t *raised;
    const uint32_t *channel, *seqno;
    uint32_t n, stride;
};
struct sl_karg_receive {
    const float *from;
    float *x;
    const uint32_t *raised, *released;
    const uint32_t *channel, *seqno;
    uint32_t n, stride;
    uint32_t alone;
};

#endif
