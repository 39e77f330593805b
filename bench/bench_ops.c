/* bench_ops: how fast the CPU's ops run, all but the matrix products, at the shapes of a
 * Qwen3-30B-A3B (2048 wide, 32 heads of 128 over 4 KV heads, 128 experts, top-8, 48 layers).
 *
 * One line an op, shape and instruction set: microseconds a call, GB/s of what it must read and
 * write, GFLOP/s where that is the limit, and milliseconds a step of 48 layers.
 *
 * Usage: bench_ops [--isa c|avx2|avx512|vnni|all] [--threads N] [--seconds S] [--only TEXT]
 *                  [--clock wall|cpu]
 * Machines are seldom quiet: every figure is the best of its repetitions, and with one thread
 * --clock cpu counts only the time that it ran. */
#include "backends/cpu/cpu.h"
#include "backends/cpu/host/pool.h"
#include "backends/ops/attention.h"
#include "backends/ops/elementwise.h"
#include "backends/ops/index.h"
#include "backends/ops/moe.h"
#include "backends/ops/norm.h"
#include "backends/ops/rope.h"
#include "backends/ops/router.h"
#include "common/clock.h"
#include "common/rng.h"
#include "tests/support/device_memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_EMBD   2048u
#define N_HEADS  32u
#define N_KV     4u
#define HEAD_DIM 128u
#define N_EXPERT 128u
#define TOP_K    8u
#define N_FF     768u
#define N_LAYERS 48u
#define MAX_TOK  4096u

struct bench {
    struct sl_device *d;
    const char *isa, *only;
    double seconds;
    float *x, *y, *w; /* [MAX_TOK * TOP_K * N_EMBD / 2], plenty for every op */
    float *table; /* of rotations: x is rotated in place again and again and must stay as it is */
    uint32_t *ids;
};

static clockid_t clock_id = CLOCK_MONOTONIC;

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(clock_id, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void check(enum sl_status status, const char *what) {
    if (status == SL_OK)
        return;
    fprintf(stderr, "bench_ops: %s: %s\n", what, sl_status_text(status));
    exit(1);
}

static void *device_memory(struct sl_device *d, size_t bytes) {
    void *p;
    check(mem_alloc(d, bytes, &p), "memory");
    return p;
}

/* Calls fn for about b->seconds and prints the best. per_step: calls in a step of the model. */
static void measure(const struct bench *b, const char *what, void (*fn)(void *ctx), void *ctx,
                    double bytes, double flop, double per_step) {
    if (b->only && !strstr(what, b->only))
        return;
    uint64_t best = UINT64_MAX, begin = sl_now_ns();
    uint32_t batch = 1;
    do {
        uint64_t t0 = now_ns();
        for (uint32_t i = 0; i < batch; i++)
            fn(ctx);
        uint64_t ns = (now_ns() - t0) / batch;
        best = ns < best ? ns : best;
        if (ns * batch < 200000)
            batch *= 2;
    } while ((double)(sl_now_ns() - begin) < b->seconds * 1e9);
    printf("%-8s %-44s %10.2f us %8.1f GB/s %8.1f GFLOP/s %9.3f ms a step\n", b->isa, what,
           (double)best / 1e3, bytes / (double)best, flop / (double)best,
           (double)best * per_step / 1e6);
    fflush(stdout);
}

static void nothing(void *ctx, uint32_t thread, uint32_t n_threads) {
    (void)ctx, (void)thread, (void)n_threads;
}
static void pool_run(void *ctx) {
    sl_pool_run(ctx, nothing, NULL);
}
static void thousand_barriers(void *ctx, uint32_t thread, uint32_t n_threads) {
    (void)thread, (void)n_threads;
    for (int i = 0; i < 1000; i++)
        sl_pool_barrier(ctx);
}
static void pool_barriers(void *ctx) {
    sl_pool_run(ctx, thousand_barriers, ctx);
}

static void bench_pool(const struct bench *b, uint32_t n_threads) {
    struct sl_pool *pool;
    check(sl_pool_create(n_threads, &pool), "threads");
    measure(b, "pool run", pool_run, pool, 0, 0, 0);
    measure(b, "pool 1000 barriers", pool_barriers, pool, 0, 0, 0);
    sl_pool_destroy(&pool);
}

struct call {
    const struct bench *b;
    uint32_t n_tok;
};

static void rms_norm(void *ctx) {
    const struct call *c = ctx;
    check(sl_op_rms_norm(c->b->d, &(struct sl_op_rms_norm){.x = c->b->x,
                                                           .w = c->b->w,
                                                           .y = c->b->y,
                                                           .n_rows = c->n_tok,
                                                           .n = N_EMBD,
                                                           .stride_x = N_EMBD,
                                                           .stride_y = N_EMBD,
                                                           .eps = 1e-6f}),
          "rms_norm");
}
static void qk_norm(void *ctx) {
    const struct call *c = ctx;
    check(sl_op_rms_norm(c->b->d, &(struct sl_op_rms_norm){.x = c->b->x,
                                                           .w = c->b->w,
                                                           .y = c->b->y,
                                                           .n_rows = c->n_tok * N_HEADS,
                                                           .n = HEAD_DIM,
                                                           .stride_x = HEAD_DIM,
                                                           .stride_y = HEAD_DIM,
                                                           .eps = 1e-6f}),
          "rms_norm");
}
static void rope(void *ctx) {
    const struct call *c = ctx;
    check(sl_op_rope(c->b->d, &(struct sl_op_rope){.x = c->b->x,
                                                   .table = c->b->table,
                                                   .n_tok = c->n_tok,
                                                   .n_heads = N_HEADS,
                                                   .head_dim = HEAD_DIM,
                                                   .stride = N_HEADS * HEAD_DIM,
                                                   .n_freq = HEAD_DIM / 2,
                                                   .style = SL_ROPE_NEOX}),
          "rope");
}
static void silu_mul(void *ctx) {
    const struct call *c = ctx;
    size_t n = (size_t)c->n_tok * TOP_K * N_FF;
    check(sl_op_silu_mul(c->b->d, &(struct sl_op_silu_mul){c->b->x, c->b->x + n, c->b->y, n}),
          "silu_mul");
}
static void combine(void *ctx) {
    const struct call *c = ctx;
    check(sl_op_moe_combine(c->b->d, &(struct sl_op_moe_combine){.pair_y = c->b->x,
                                                                 .weights = c->b->w,
                                                                 .y = c->b->y,
                                                                 .n_tok = c->n_tok,
                                                                 .k = TOP_K,
                                                                 .n = N_EMBD}),
          "moe_combine");
}
static void router(void *ctx) {
    const struct call *c = ctx;
    check(sl_op_router(c->b->d, &(struct sl_op_router){.logits = c->b->x,
                                                       .ids = c->b->ids,
                                                       .weights = c->b->y,
                                                       .n_tok = c->n_tok,
                                                       .n_expert = N_EXPERT,
                                                       .k = TOP_K,
                                                       .normalize = true,
                                                       .scale = 1}),
          "router");
}

static void bench_rows(const struct bench *b) {
    static const uint32_t n_tok[] = {1, 8, 512};
    for (size_t i = 0; i < sizeof n_tok / sizeof *n_tok; i++) {
        struct call c = {b, n_tok[i]};
        double n = n_tok[i];
        char what[64];
#define MEASURE(fn, name, floats)                                                                  \
    snprintf(what, sizeof what, "%s, %u rows", name, n_tok[i]);                                    \
    measure(b, what, fn, &c, (floats)*n * 4, 0, N_LAYERS)
        MEASURE(rms_norm, "rms_norm", 2.0 * N_EMBD);
        MEASURE(qk_norm, "q norm", 2.0 * N_HEADS * HEAD_DIM);
        MEASURE(rope, "rope", 2.0 * N_HEADS * HEAD_DIM);
        MEASURE(silu_mul, "silu_mul", 3.0 * TOP_K * N_FF);
        MEASURE(combine, "moe_combine", (2.0 + TOP_K) * N_EMBD);
        MEASURE(router, "router", 1.0 * N_EXPERT);
#undef MEASURE
    }
}

/* KV of as many layers as make the caches forget, used in turn. */
struct attention {
    const struct bench *b;
    struct sl_op_attention op;
    size_t layer_bytes; /* of K, and of V */
    uint32_t n_layers, layer;
    char *k, *v;
    uint32_t *slot;
};

static void attention(void *ctx) {
    struct attention *a = ctx;
    a->layer = (a->layer + 1) % a->n_layers;
    a->op.kv.k = a->k + a->layer * a->layer_bytes;
    a->op.kv.v = a->v + a->layer * a->layer_bytes;
    check(sl_op_attention(a->b->d, &a->op), "attention");
}

static void kv_write(void *ctx) {
    struct attention *a = ctx;
    struct sl_op_kv_write w = {.kv = a->op.kv,
                               .k = a->b->x,
                               .v = a->b->y,
                               .slot = a->slot,
                               .n_tok = a->op.n_tok,
                               .stride_k = N_KV * HEAD_DIM,
                               .stride_v = N_KV * HEAD_DIM};
    w.kv.k = a->k;
    w.kv.v = a->v;
    check(sl_op_kv_write(a->b->d, &w), "kv_write");
}

/* The first layer with ops, 64 rows at a time, the others with copies. */
static void fill_kv(struct attention *a, uint32_t n_pages) {
    uint32_t rows = a->op.n_tok;
    a->op.n_tok = 64;
    for (uint32_t at = 0; at < n_pages * SL_KV_PAGE_TOKENS; at += 64) {
        for (uint32_t i = 0; i < 64; i++)
            a->slot[i] = at + i;
        kv_write(a);
    }
    a->op.n_tok = rows;
    for (uint32_t l = 1; l < a->n_layers; l++) {
        memcpy(a->k + l * a->layer_bytes, a->k, a->layer_bytes);
        memcpy(a->v + l * a->layer_bytes, a->v, a->layer_bytes);
    }
}

/* n_seq sequences of ctx positions; rows of them go: one each (generated), or the last n_rows of
 * one sequence (a prompt's slice). */
static void bench_attention(const struct bench *b, enum sl_dtype dtype, uint32_t n_seq,
                            uint32_t n_rows, uint32_t ctx) {
    char what[64];
    snprintf(what, sizeof what, "attention %s, %u x %u rows at %u", sl_dtype_name(dtype), n_seq,
             n_rows, ctx);
    if (b->only && !strstr(what, b->only) && !strstr("kv_write", b->only))
        return;
    uint32_t n_pages = (ctx + SL_KV_PAGE_TOKENS - 1) / SL_KV_PAGE_TOKENS, n = n_seq * n_rows;
    struct attention a = {.b = b};
    size_t page_bytes = N_KV * SL_KV_PAGE_TOKENS * sl_dtype_row_bytes(dtype, HEAD_DIM);
    a.layer_bytes = page_bytes * n_pages * n_seq;
    a.n_layers = (uint32_t)(((size_t)400 << 20) / a.layer_bytes) + 1;
    a.n_layers = n_rows > 64 ? 2 : a.n_layers; /* compute-bound: 2 will do */
    a.k = device_memory(b->d, a.layer_bytes * a.n_layers);
    a.v = device_memory(b->d, a.layer_bytes * a.n_layers);
    uint32_t *table = device_memory(b->d, n_pages * n_seq * sizeof *table);
    uint32_t *seq = device_memory(b->d, n * sizeof *seq),
             *len = device_memory(b->d, n * sizeof *len);
    a.slot = device_memory(b->d, MAX_TOK * sizeof *a.slot);
    for (uint32_t i = 0; i < n_pages * n_seq; i++)
        table[i] = i;
    for (uint32_t i = 0; i < n; i++)
        seq[i] = i / n_rows, len[i] = ctx - n_rows + 1 + i % n_rows;
    a.op = (struct sl_op_attention){
        .kv = {a.k, a.v, dtype, N_KV, HEAD_DIM, HEAD_DIM, page_bytes, page_bytes},
        .q = b->x,
        .y = b->y,
        .page_table = table,
        .row_seq = seq,
        .row_len = len,
        .n_tok = n,
        .n_decode = n_rows == 1 ? n : 0,
        .n_heads = N_HEADS,
        .stride_q = N_HEADS * HEAD_DIM,
        .max_pages = n_pages,
        .scale = 0.088f};
    fill_kv(&a, n_pages * n_seq);
    double positions = 0;
    for (uint32_t i = 0; i < n; i++)
        positions += len[i];
    measure(b, what, attention, &a, 2.0 * (double)a.layer_bytes, positions * N_HEADS * HEAD_DIM * 4,
            N_LAYERS);
    if (ctx == 4096 && n_rows > 1) {
        for (uint32_t i = 0; i < n; i++)
            a.slot[i] = i;
        snprintf(what, sizeof what, "kv_write %s, %u rows", sl_dtype_name(dtype), n);
        measure(b, what, kv_write, &a, 2.0 * n * N_KV * HEAD_DIM * 6, 0, N_LAYERS);
    }
    mem_free(b->d, a.k);
    mem_free(b->d, a.v);
    mem_free(b->d, table);
    mem_free(b->d, seq);
    mem_free(b->d, len);
    mem_free(b->d, a.slot);
}

/* ---- an indexer, and attention over what it chooses: DeepSeek V3.2's and GLM-5.2's shapes ---- */

#define INDEX_DIM 128u
#define INDEX_TOP 2048u
#define LATENT    512u
#define ROTATED   64u
#define MOST_KEYS 32768u

struct sparse {
    struct sl_device *d;
    struct sl_op_index_choose choose;
    struct sl_op_chosen_attention attend;
};

static void index_choose(void *ctx) {
    struct sparse *s = ctx;
    check(sl_op_index_choose(s->d, &s->choose), "index_choose");
}
static void chosen_attention(void *ctx) {
    struct sparse *s = ctx;
    check(sl_op_chosen_attention(s->d, &s->attend), "chosen_attention");
}

static void *random_halves(const struct bench *b, size_t n) {
    uint16_t *out = device_memory(b->d, n * sizeof *out);
    struct sl_rng rng = {n};
    for (size_t i = 0; i < n; i++)
        out[i] = sl_f32_to_f16((float)sl_rng_unit(&rng) - 0.5f);
    return out;
}

/* One generated row. heads: of the indexer, of attention. */
static void bench_sparse(const struct bench *b, const uint32_t heads[2], uint32_t ctx) {
    char what[64];
    uint32_t n_pages = MOST_KEYS / SL_KV_PAGE_TOKENS;
    uint32_t *one = device_memory(b->d, (n_pages + 2) * sizeof *one);
    struct sparse s = {.d = b->d};
    for (uint32_t i = 0; i < n_pages; i++)
        one[i] = i * 37 % n_pages; /* 37 is prime to their number */
    one[n_pages] = 0, one[n_pages + 1] = ctx;
    s.choose = (struct sl_op_index_choose){.keys = {random_halves(b, (size_t)MOST_KEYS * INDEX_DIM),
                                                    SL_DTYPE_F16, INDEX_DIM, 0,
                                                    (size_t)SL_KV_PAGE_TOKENS * INDEX_DIM * 2},
                                           .q = b->x,
                                           .w = b->w,
                                           .chosen = b->ids,
                                           .page_table = one,
                                           .row_seq = one + n_pages,
                                           .row_len = one + n_pages + 1,
                                           .n_tok = 1,
                                           .n_decode = 1,
                                           .n_heads = heads[0],
                                           .max_pages = n_pages,
                                           .n_top = INDEX_TOP};
    s.attend = (struct sl_op_chosen_attention){
        .kv = {random_halves(b, (size_t)MOST_KEYS * (LATENT + ROTATED)), SL_DTYPE_F16, LATENT,
               ROTATED, (size_t)SL_KV_PAGE_TOKENS * (LATENT + ROTATED) * 2},
        .q = b->x,
        .y = b->y,
        .chosen = b->ids,
        .page_table = one,
        .row_seq = one + n_pages,
        .row_len = one + n_pages + 1,
        .n_tok = 1,
        .n_decode = 1,
        .n_heads = heads[1],
        .max_pages = n_pages,
        .n_top = INDEX_TOP,
        .scale = 0.07f};
    index_choose(&s); /* the choice that attention needs */
    snprintf(what, sizeof what, "sparse: index_choose, %u heads at %u", heads[0], ctx);
    measure(b, what, index_choose, &s, (double)ctx * INDEX_DIM * 2,
            (double)ctx * heads[0] * INDEX_DIM * 2, 1);
    snprintf(what, sizeof what, "sparse: chosen_attention, %u heads at %u", heads[1], ctx);
    measure(b, what, chosen_attention, &s, INDEX_TOP * (LATENT + ROTATED) * 2.0,
            (double)INDEX_TOP * heads[1] * (2 * LATENT + ROTATED) * 2, 1);
    mem_free(b->d, s.choose.keys.rows);
    mem_free(b->d, s.attend.kv.rows);
    mem_free(b->d, one);
}

static void bench_isa(enum sl_cpu_isa isa, uint32_t n_threads, const char *only, double seconds) {
    struct sl_err err;
    struct bench b = {.isa = sl_cpu_isa_name(isa), .only = only, .seconds = seconds};
    if (sl_cpu_open(&(struct sl_cpu_config){n_threads, isa, 0}, &b.d, &err)) {
        printf("%-8s %s\n", b.isa, err.text);
        return;
    }
    printf("%s\n", b.d->caps.name);
    struct sl_device_limits limits = {.max_tok = MAX_TOK,
                                      .max_expert = N_EXPERT,
                                      .max_heads = 128,
                                      .max_head_dim = LATENT + ROTATED,
                                      .max_scores = MOST_KEYS};
    if (sl_device_configure(b.d, &limits, &err)) {
        printf("%s\n", err.text);
        exit(1);
    }
    size_t n = (size_t)MAX_TOK * TOP_K * N_EMBD / 2;
    b.x = device_memory(b.d, n * sizeof(float));
    b.y = device_memory(b.d, n * sizeof(float));
    b.w = device_memory(b.d, n * sizeof(float));
    size_t n_table = (size_t)MAX_TOK * HEAD_DIM;
    b.table = device_memory(b.d, n_table * sizeof(float));
    for (size_t i = 0; i < n_table; i += 2)
        b.table[i] = cosf((float)i), b.table[i + 1] = sinf((float)i);
    b.ids = device_memory(b.d, MAX_TOK * TOP_K * sizeof(uint32_t));
    struct sl_rng rng = {1};
    for (size_t i = 0; i < n; i++) {
        uint64_t u = sl_rng_u64(&rng);
        b.x[i] = (float)(u & 0xffff) / 32768 - 1;
        b.y[i] = (float)(u >> 16 & 0xffff) / 32768 - 1;
        b.w[i] = (float)(u >> 32 & 0xffff) / 32768 - 1;
    }
    if (isa != SL_CPU_C || n_threads)
        bench_pool(&b, n_threads ? n_threads : 2);
    bench_rows(&b);
    static const enum sl_dtype types[] = {SL_DTYPE_F16, SL_DTYPE_Q8_0};
    for (int t = 0; t < 2; t++) {
        static const uint32_t shapes[][3] = {{1, 1, 512},   {1, 1, 4096},  {8, 1, 1024},
                                             {1, 1, 32768}, {1, 512, 512}, {1, 512, 4096}};
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            if (isa != SL_CPU_C || shapes[i][1] == 1) /* plain C would take minutes */
                bench_attention(&b, types[t], shapes[i][0], shapes[i][1], shapes[i][2]);
    }
    static const uint32_t sparse_heads[][2] = {{64, 128}, {32, 64}};
    for (int i = 0; i < 4 && isa != SL_CPU_C && (!only || !strncmp(only, "sparse", 6)); i++)
        bench_sparse(&b, sparse_heads[i / 2], i % 2 ? 32768 : 4096);
    mem_free(b.d, b.x);
    mem_free(b.d, b.y);
    mem_free(b.d, b.w);
    mem_free(b.d, b.table);
    mem_free(b.d, b.ids);
    sl_device_close(&b.d);
}

int main(int argc, char **argv) {
    const char *isa_name = "all", *only = NULL;
    uint32_t n_threads = 0;
    double seconds = 0.3;
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 == argc) {
            fprintf(stderr, "bench_ops: %s needs a value\n", argv[i]);
            return 2;
        }
        if (!strcmp(argv[i], "--isa"))
            isa_name = argv[i + 1];
        else if (!strcmp(argv[i], "--threads"))
            n_threads = (uint32_t)strtoul(argv[i + 1], NULL, 10);
        else if (!strcmp(argv[i], "--seconds"))
            seconds = strtod(argv[i + 1], NULL);
        else if (!strcmp(argv[i], "--clock"))
            clock_id = !strcmp(argv[i + 1], "cpu") ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC;
        else if (!strcmp(argv[i], "--only"))
            only = argv[i + 1];
        else {
            fprintf(stderr, "bench_ops: unknown option %s\n", argv[i]);
            return 2;
        }
    }
    for (int isa = SL_CPU_C; isa <= SL_CPU_VNNI; isa++)
        if (!strcmp(isa_name, "all") || !strcmp(isa_name, sl_cpu_isa_name((enum sl_cpu_isa)isa)))
            bench_isa((enum sl_cpu_isa)isa, n_threads, only, seconds);
    return 0;
}
