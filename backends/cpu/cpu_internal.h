/* Internal to the CPU backend: the device struct, the kernel table and shared helpers. */
#ifndef SL_BACKENDS_CPU_CPU_INTERNAL_H
#define SL_BACKENDS_CPU_CPU_INTERNAL_H

#include "backends/cpu/cpu.h"
#include "backends/cpu/host/pool.h"
#include "backends/ops/activation.h"

/* Positions per partition of the attention's softmax; see attention.h. */
#define SL_CPU_ATTN_PART 512u
/* Widest head; sl_device_configure refuses more. */
#define SL_CPU_MAX_HEAD_DIM 2048u

/* One page of one KV head, as the attention kernels read it. */
struct sl_cpu_kv_page {
    const void *rows;    /* [SL_KV_PAGE_TOKENS, head_dim] of the KV type */
    uint32_t begin, end; /* positions in the page that take part */
    uint32_t head_dim;
    uint32_t row_bytes; /* from one position to the next */
    /* Data needed after this page, prefetched row by row, because the hardware prefetcher does not
     * cross from one page to the next. NULL: nothing. */
    const void *ahead[2];
    uint32_t ahead_row_bytes[2];
};

/* Query rows that read the same pages together, one per lane. All arrays are 64-byte aligned;
 * positions are relative to the partition. */
#define SL_CPU_ATTN_TILE 32u
struct sl_cpu_attn_tile {
    uint32_t head_dim_k, head_dim_v;
    uint32_t begin, end;           /* positions that any lane needs */
    uint32_t full_begin, full_end; /* positions that all lanes with a query need */
    int32_t *lo, *hi;              /* [TILE] each lane's positions; none when lo >= hi */
    float *qt;                     /* [head_dim_k, TILE] */
    float *s;                      /* [SL_CPU_ATTN_PART, TILE] scores, then probabilities */
    float *m, *l, *ot;             /* [TILE], [TILE], [head_dim_v, TILE] M, L, O */
    float *part_m, *part_l, *part_ot;
};

/* Columns of a delta rule's state that a thread takes through all rows: few enough to stay in the
 * L1 cache, and enough to hide the latency of the sums. */
#define SL_CPU_DELTA_COLS 64u
struct sl_cpu_delta_row {
    const float *q, *k, *v; /* v and y at the first of the columns */
    float *y;
    uint32_t n_k;
    uint32_t stride_s; /* elements between rows of the state */
    float g, b, scale;
};

/* One row of one head of sl_op_channel_delta. */
struct sl_cpu_channel_delta_row {
    const float *q, *k, *v,
        *g; /* v and y at the first of the columns; g: each key element's decay */
    float *y;
    uint32_t n_k;
    uint32_t stride_s; /* elements between rows of the state */
    float b, scale;
};

/* One row of one head of sl_op_state_scan. */
struct sl_cpu_scan_row {
    const float *b, *c, *x; /* x and y at the first of the columns */
    float *y;
    uint32_t n_state;
    uint32_t stride_s; /* elements between rows of the state */
    float g, d, skip;
};

/* One row of sl_op_channel_scan, all at the first of the columns. */
struct sl_cpu_channel_row {
    const float *b, *c, *x, *d, *skip; /* b and c of all columns; d: of each its time step */
    const float *a;                    /* [n_state] rows at stride_a */
    float *y;
    uint32_t n_state, stride_s, stride_a;
};

/* The kernels that differ by instruction set. The C definitions fill the table and faster ones
 * overwrite entries; all give the same bits. */
struct sl_cpu_kernels {
    void (*rms_norm)(const float *x, const float *w, float *y, uint32_t n, float eps);
    /* One head: table [n_freq, 2]. */
    void (*rope_norm)(float *x, const float *table, uint32_t n_freq);
    void (*rope_neox)(float *x, const float *table, uint32_t n_freq);
    void (*silu_mul)(const float *gate, const float *up, float *y, size_t n);
    void (*swiglu_clamped)(const float *gate, const float *up, float *y, size_t n);
    void (*gelu_mul)(const float *gate, const float *up, float *y, size_t n);
    void (*reglu)(const float *gate, const float *up, float *y, size_t n);
    void (*relu_squared)(const float *x, float *y, size_t n);
    void (*situ)(const float *gate, const float *up, float *y, size_t n, float limit,
                 float limit_up);
    /* sum_i x[i] w[i] / sqrt(mean square of x + eps), both sums of 16 partials */
    float (*norm_dot)(const float *x, const float *w, uint32_t n, float eps);
    void (*softcap)(float *x, float cap, size_t n);
    void (*add)(const float *x, float *y, size_t n);
    /* y[i] = fma(x[i], s, y[i]) */
    void (*add_scaled)(const float *x, float s, float *y, size_t n);
    /* y[i] = fma(w[r], x[r*n+i], y[i]), r ascending */
    void (*combine)(const float *x, const float *w, float *y, uint32_t k, uint32_t n);
    /* y[i] = exp(x[i] - max x); returns the sum, 16 partials. y may be x. */
    float (*softmax)(const float *x, float *y, uint32_t n, float *out_max);
    void (*sigmoid)(const float *x, float *y, uint32_t n);
    /* y[i] *= sigmoid(gate[i]) */
    void (*mul_sigmoid)(const float *gate, float *y, uint32_t n);
    void (*l2_norm)(float *x, uint32_t n, float eps);
    /* y[i] = silu(bias[i] + sum_k x[k][i] * w[k * stride_w + i]) */
    void (*conv_silu)(const float *const *x, const float *w, uint32_t stride_w, const float *bias,
                      float *y, uint32_t n_taps, uint32_t n);
    /* y[i] = gate[i] * (sum_k x[k][i] * w[k * stride_w + i]) */
    void (*short_conv)(const float *const *x, const float *w, uint32_t stride_w, const float *gate,
                       float *y, uint32_t n_taps, uint32_t n);
    /* One row of sl_op_delta_rule in n columns, at most SL_CPU_DELTA_COLS, of one head. from, to:
     * the state before and behind it, [n_k] rows at stride_s; from may be to. */
    void (*delta_rule)(const struct sl_cpu_delta_row *r, const float *from, float *to, uint32_t n);

    /* The same of sl_op_channel_delta, in any number of columns. */
    void (*channel_delta)(const struct sl_cpu_channel_delta_row *r, const float *from, float *to,
                          uint32_t n);

    /* The same of sl_op_state_scan. */
    void (*state_scan)(const struct sl_cpu_scan_row *r, const float *from, float *to, uint32_t n);

    /* The same of sl_op_channel_scan. */
    void (*channel_scan)(const struct sl_cpu_channel_row *r, const float *from, float *to,
                         uint32_t n);

    /* KV types; n a multiple of the block. */
    void (*f32_to_f16)(const float *x, void *y, uint32_t n);
    void (*f32_to_q8_0)(const float *x, void *y, uint32_t n);
    void (*f16_to_f32)(const void *x, float *y, uint32_t n);
    void (*q8_0_to_f32)(const void *x, float *y, uint32_t n);

    /* Attention of n_heads heads of one row that share a KV head.
     * qk: s[h*SL_CPU_ATTN_PART + j] = (q[h,:].k[j,:]) * scale, s at the page's first position
     * pv: o[h,:] += s[h,j] * v[j,:], j ascending, one fma each */
    void (*qk_f16)(const float *q, uint32_t n_heads, const struct sl_cpu_kv_page *k, float scale,
                   float *s);
    void (*qk_q8_0)(const float *q, uint32_t n_heads, const struct sl_cpu_kv_page *k, float scale,
                    float *s);
    void (*pv_f16)(const float *s, uint32_t n_heads, const struct sl_cpu_kv_page *v, float *o);
    void (*pv_q8_0)(const float *s, uint32_t n_heads, const struct sl_cpu_kv_page *v, float *o);
    /* o[i] = fma(o[i], a, x[i] * b) */
    void (*merge)(float *o, float a, const float *x, float b, uint32_t n);

    /* y[j] = fma(w[h], max(s[h*SL_CPU_ATTN_PART + j], 0), y[j]), h ascending */
    void (*index_sum)(const float *s, const float *w, uint32_t n_heads, float *y, uint32_t n);

    /* The same for a tile; NULL in C, where rows go one by one. k, v: f32 [end - begin, head_dim],
     * positions begin to end. */
    /* rows [TILE] of head_dim_k elements, NULL for a lane without a query */
    void (*tile_load)(const struct sl_cpu_attn_tile *t, const float *const *rows);
    void (*tile_qk)(const struct sl_cpu_attn_tile *t, const float *k, uint32_t begin, uint32_t end,
                    float scale);
    void (*tile_softmax)(const struct sl_cpu_attn_tile *t);
    void (*tile_pv)(const struct sl_cpu_attn_tile *t, const float *v, uint32_t begin, uint32_t end);
    void (*tile_join)(const struct sl_cpu_attn_tile *t);
    /* sink [TILE] or NULL */
    void (*tile_finish)(const struct sl_cpu_attn_tile *t, const float *sink);
    /* rows [TILE] of head_dim_v elements, NULL: not wanted */
    void (*tile_store)(const struct sl_cpu_attn_tile *t, float *const *rows);
};

struct sl_cpu {
    struct sl_device base; /* first: a struct sl_device * is a struct sl_cpu * */
    struct sl_pool *pool;  /* NULL: a planned CPU, which computes nothing */
    uint32_t n_threads;    /* the pool's, or what it would have */
    enum sl_cpu_isa isa;
    /* Shared by all ops, one of which runs at a time; 64-byte aligned; large enough for every call
     * within base.limits. */
    void *scratch;
    size_t scratch_bytes;
    struct sl_cpu_kernels k;
};

/* kv.c: the C conversions, n a multiple of the block. */
void sl_cpu_f16_to_f32_c(const void *x, float *y, uint32_t n);
void sl_cpu_q8_0_to_f32_c(const void *x, float *y, uint32_t n);

/* Calls fn on ranges that cover [0, n_rows), on all threads when the rows are worth it.
 * row_cost: about how many elements one row touches. */
void sl_cpu_for_rows(struct sl_cpu *cpu, uint32_t n_rows, size_t row_cost,
                     void (*fn)(void *ctx, uint32_t begin, uint32_t end), void *ctx);

/* The ops (ops.def), each in the file of its name or family. The front end has checked the
 * arguments. */
#define SL_OP(name) enum sl_status sl_cpu_##name(struct sl_device *d, const struct sl_op_##name *a);
#define SL_OP_BETWEEN(name)
#include "backends/ops.def"

/* Bytes of base.scratch that matmul, moe, head_matmul, attention and index_choose use. */
uint64_t sl_cpu_matmul_scratch_bytes(const struct sl_device_limits *limits, uint32_t n_threads);
uint64_t sl_cpu_moe_scratch_bytes(const struct sl_device_limits *limits, uint32_t n_threads);
uint64_t sl_cpu_head_matmul_scratch_bytes(const struct sl_device_limits *limits,
                                          uint32_t n_threads);
uint64_t sl_cpu_attention_scratch_bytes(const struct sl_device_limits *limits, uint32_t n_threads);
uint64_t sl_cpu_index_scratch_bytes(const struct sl_device_limits *limits, uint32_t n_threads);

/* index.c: sl_op_hadamard of one row. */
void sl_cpu_hadamard_row(float *x, uint32_t n);
/* glu.c: n elements; y may be gate. gate: NULL for SL_RELU_SQUARED. limit: of those that have one.
 */
void sl_cpu_glu(const struct sl_cpu_kernels *k, enum sl_activation activation, const float *gate,
                const float *up, float *y, size_t n, float limit, float limit_up);

/* Each fills its entries of the table. */
void sl_cpu_norm_init(struct sl_cpu_kernels *k);
void sl_cpu_rope_init(struct sl_cpu_kernels *k);
void sl_cpu_kv_init(struct sl_cpu_kernels *k);
void sl_cpu_elementwise_init(struct sl_cpu_kernels *k);
void sl_cpu_attention_init(struct sl_cpu_kernels *k);
void sl_cpu_recurrent_init(struct sl_cpu_kernels *k);
void sl_cpu_elementwise_init_avx2(struct sl_cpu_kernels *k);
void sl_cpu_elementwise_init_avx512(struct sl_cpu_kernels *k);
void sl_cpu_recurrent_init_avx2(struct sl_cpu_kernels *k);
void sl_cpu_recurrent_init_avx512(struct sl_cpu_kernels *k);
void sl_cpu_attention_init_avx2(struct sl_cpu_kernels *k);
void sl_cpu_attention_init_avx512(struct sl_cpu_kernels *k);

#endif
