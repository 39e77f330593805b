/* bench_cuda: how fast the heavy ops run on a GPU, at the shapes of a Qwen3-30B-A3B (2048 wide, 32
 * heads of 128 over 4 KV heads, 128 experts of 768, top-8).
 *
 * One line an op: microseconds a call, GB/s of the weights or KV that it must read, TFLOP/s (2 for
 * a multiply and an add). Calls are queued and the queue is waited for once, so what a launch costs
 * the host shows only where it is longer than the work. Weights are random bytes, more of them than
 * any cache holds.
 *
 * Usage: bench_cuda [--seconds S] [--only TEXT] */
#include "backends/cuda/cuda.h"
#include "backends/ops/attention.h"
#include "backends/ops/matmul.h"
#include "backends/ops/moe.h"
#include "common/clock.h"
#include "common/rng.h"
#include "tests/support/device_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_EMBD   2048u
#define N_FF     768u
#define N_EXPERT 128u
#define TOP_K    8u
#define N_HEADS  32u
#define N_KV     4u
#define HEAD_DIM 128u
#define MAX_TOK  2048u
#define N_SETS   16u /* different experts chosen, call after call */

static struct sl_device *dev;
static double seconds = 0.2;
static const char *only;

static void check(enum sl_status status, const char *what) {
    if (status == SL_OK)
        return;
    fprintf(stderr, "bench_cuda: %s: %s\n", what, sl_status_text(status));
    exit(1);
}

static void *memory(size_t bytes) {
    void *p;
    check(mem_alloc(dev, bytes, &p), "memory");
    return p;
}

/* Random bytes with the scales of every block kept small: f16 0x1c.. is about 0.004. */
static void *random_weights(enum sl_dtype t, uint64_t n_elems) {
    const struct sl_dtype_info *info = sl_dtype_info((uint32_t)t);
    size_t bytes = n_elems / info->block_elems * info->block_bytes, chunk = (size_t)1 << 20;
    uint8_t *p = memory(bytes), *host = malloc(chunk);
    struct sl_rng rng = {1};
    if (!host)
        exit(1);
    for (size_t i = 0; i < chunk; i++)
        host[i] =
            (uint8_t)(sl_rng_u64(&rng) & (t == SL_DTYPE_F16 || t == SL_DTYPE_F32 ? 0x3b : 0x9f));
    for (size_t at = 0; at < bytes; at += chunk)
        check(mem_upload(dev, p + at, host, bytes - at < chunk ? bytes - at : chunk), "upload");
    free(host);
    return p;
}

static float *random_floats(size_t n) {
    float *p = memory(n * 4), *host = malloc(n * 4);
    struct sl_rng rng = {2};
    if (!host)
        exit(1);
    for (size_t i = 0; i < n; i++)
        host[i] = (float)sl_rng_unit(&rng) - 0.5f;
    check(mem_upload(dev, p, host, n * 4), "upload");
    free(host);
    return p;
}

typedef enum sl_status op_fn(void *ctx, uint32_t i);

static void measure(const char *name, op_fn *op, void *ctx, double bytes, double flop) {
    if (only && !strstr(name, only))
        return;
    check(op(ctx, 0), name);
    check(sl_device_sync(dev), name);
    uint64_t start = sl_now_ns();
    uint32_t n = 1, done = 0;
    double took = 0;
    while (took < seconds) {
        for (uint32_t i = 0; i < n; i++)
            check(op(ctx, done + i), name);
        check(sl_device_sync(dev), name);
        done += n;
        took = (double)(sl_now_ns() - start) * 1e-9;
        n = n < 64 ? n * 2 : n;
    }
    double s = took / done;
    printf("%-44s %9.1f us %8.0f GB/s %8.2f TFLOP/s\n", name, s * 1e6, bytes / s * 1e-9,
           flop / s * 1e-12);
    fflush(stdout);
}

static enum sl_status run_matmul(void *ctx, uint32_t i) {
    (void)i;
    return sl_op_matmul(dev, ctx);
}

static void matmuls(const float *x, float *y) {
    static const struct {
        enum sl_dtype t;
        uint32_t n_in, n_out;
    } shapes[] = {{SL_DTYPE_Q6_K, 2048, 151936},  {SL_DTYPE_Q4_K, 2048, 131072},
                  {SL_DTYPE_Q5_K, 2048, 131072},  {SL_DTYPE_Q8_0, 2048, 65536},
                  {SL_DTYPE_Q4_0, 2048, 131072},  {SL_DTYPE_MXFP4, 2048, 131072},
                  {SL_DTYPE_IQ3_S, 2048, 131072}, {SL_DTYPE_IQ2_XXS, 2048, 131072},
                  {SL_DTYPE_F16, 2048, 65536},    {SL_DTYPE_Q4_K, 2048, 4096},
                  {SL_DTYPE_Q8_0, 2048, 4096},    {SL_DTYPE_F32, 2048, 128}};
    static const uint32_t rows[] = {1, 8, 512, 2048};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        void *w = random_weights(shapes[s].t, (uint64_t)shapes[s].n_in * shapes[s].n_out);
        double bytes = (double)sl_dtype_row_bytes(shapes[s].t, shapes[s].n_in) * shapes[s].n_out;
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
            if (rows[r] > 8 && shapes[s].n_out > 4096)
                continue;
            struct sl_op_matmul op = {
                .x = x, .n_tok = rows[r], .n_decode = rows[r] <= 8 ? rows[r] : 0, .n_w = 1};
            op.out[0].w = (struct sl_weight){shapes[s].t, shapes[s].n_in, shapes[s].n_out, w};
            op.out[0].y = y;
            char name[96];
            snprintf(name, sizeof name, "matmul %s [%u, %u] x %u", sl_dtype_name(shapes[s].t),
                     shapes[s].n_out, shapes[s].n_in, rows[r]);
            measure(name, run_matmul, &op, bytes, 2.0 * rows[r] * shapes[s].n_in * shapes[s].n_out);
        }
        mem_free(dev, w);
    }
}

struct moe {
    struct sl_op_moe op;
    const uint32_t *ids; /* [N_SETS, n_tok * k] */
};
static enum sl_status run_moe(void *ctx, uint32_t i) {
    struct moe *m = ctx;
    struct sl_op_moe op = m->op;
    op.ids = m->ids + (size_t)(i % N_SETS) * op.n_tok * op.k;
    return sl_op_moe(dev, &op);
}

/* A router's choices for N_SETS steps of so many rows; how many experts these touch together. */
static double draw_choices(uint32_t *ids, uint32_t n_rows) {
    struct sl_rng rng = {n_rows};
    double touched = 0;
    for (size_t t = 0; t < (size_t)N_SETS * n_rows; t++)
        for (uint32_t k = 0; k < TOP_K; k++) { /* distinct within a row */
            bool again;
            do {
                ids[t * TOP_K + k] = sl_rng_below(&rng, N_EXPERT);
                again = false;
                for (uint32_t j = 0; j < k; j++)
                    again |= ids[t * TOP_K + j] == ids[t * TOP_K + k];
            } while (again);
        }
    for (uint32_t s = 0; s < N_SETS; s++) {
        bool seen[N_EXPERT] = {false};
        for (uint32_t i = 0; i < n_rows * TOP_K; i++) {
            uint32_t e = ids[(size_t)s * n_rows * TOP_K + i];
            touched += !seen[e];
            seen[e] = true;
        }
    }
    return touched;
}

static void moes(const float *x, float *y, enum sl_dtype up, enum sl_dtype down) {
    uint64_t n = (uint64_t)N_EMBD * N_FF;
    size_t up_bytes = sl_dtype_row_bytes(up, N_EMBD) * N_FF,
           down_bytes = sl_dtype_row_bytes(down, N_FF) * N_EMBD;
    uint8_t *gate = random_weights(up, n * N_EXPERT), *ups = random_weights(up, n * N_EXPERT),
            *downs = random_weights(down, n * N_EXPERT);
    struct sl_expert_ref refs[N_EXPERT];
    for (size_t e = 0; e < N_EXPERT; e++)
        refs[e] =
            (struct sl_expert_ref){gate + e * up_bytes, ups + e * up_bytes, downs + e * down_bytes};
    static const uint32_t rows[] = {1, 4, 8, 64, 512, 2048};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        size_t n_ids = (size_t)N_SETS * rows[r] * TOP_K;
        uint32_t *host = malloc(n_ids * 4), *ids = memory(n_ids * 4);
        if (!host)
            exit(1);
        double touched = draw_choices(host, rows[r]);
        check(mem_upload(dev, ids, host, n_ids * 4), "upload");
        free(host);
        struct moe m = {{.x = x,
                         .pair_y = y,
                         .refs = refs,
                         .gate_dtype = up,
                         .up_dtype = up,
                         .down_dtype = down,
                         .n_tok = rows[r],
                         .n_decode = rows[r] <= 8 ? rows[r] : 0,
                         .k = TOP_K,
                         .n_pairs = rows[r] * TOP_K,
                         .n_expert = N_EXPERT,
                         .n_embd = N_EMBD,
                         .n_ff = N_FF},
                        ids};
        char name[96];
        snprintf(name, sizeof name, "moe %s/%s x %u", sl_dtype_name(up), sl_dtype_name(down),
                 rows[r]);
        measure(name, run_moe, &m, touched / N_SETS * (double)(2 * up_bytes + down_bytes),
                2.0 * rows[r] * TOP_K * 3 * (double)n);
        mem_free(dev, ids);
    }
    mem_free(dev, gate);
    mem_free(dev, ups);
    mem_free(dev, downs);
}

static enum sl_status run_attention(void *ctx, uint32_t i) {
    (void)i;
    return sl_op_attention(dev, ctx);
}

static void attentions(const float *x, float *y, enum sl_dtype dtype) {
    static const struct {
        uint32_t rows, len;
        bool decode;
    } cases[] = {{1, 512, true},    {1, 4096, true},     {1, 32768, true},  {8, 4096, true},
                 {512, 512, false}, {2048, 2048, false}, {512, 8192, false}};
    uint32_t max_pages = 32768 / SL_KV_PAGE_TOKENS;
    struct sl_kv_view kv = {NULL, NULL, dtype, N_KV, HEAD_DIM, HEAD_DIM, 0, 0};
    kv.k_page_bytes = kv.v_page_bytes =
        N_KV * SL_KV_PAGE_TOKENS * sl_dtype_row_bytes(dtype, HEAD_DIM);
    kv.k = random_weights(dtype, (uint64_t)max_pages * N_KV * SL_KV_PAGE_TOKENS * HEAD_DIM);
    kv.v = random_weights(dtype, (uint64_t)max_pages * N_KV * SL_KV_PAGE_TOKENS * HEAD_DIM);
    uint32_t *host = malloc(MAX_TOK * 4), *pages = memory(max_pages * 4),
             *lens = memory(MAX_TOK * 4), *seqs = memory(MAX_TOK * 4);
    if (!host)
        exit(1);
    for (uint32_t i = 0; i < max_pages; i++)
        host[i] = i;
    check(mem_upload(dev, pages, host, max_pages * 4), "upload");
    memset(host, 0, MAX_TOK * 4);
    check(mem_upload(dev, seqs, host, MAX_TOK * 4), "upload");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double positions = 0;
        for (uint32_t r = 0; r < cases[i].rows; r++) {
            host[r] = cases[i].decode ? cases[i].len : cases[i].len - cases[i].rows + 1 + r;
            positions += host[r];
        }
        check(mem_upload(dev, lens, host, cases[i].rows * 4), "upload");
        struct sl_op_attention op = {.kv = kv,
                                     .q = x,
                                     .y = y,
                                     .page_table = pages,
                                     .row_seq = seqs,
                                     .row_len = lens,
                                     .n_tok = cases[i].rows,
                                     .n_decode = cases[i].decode ? cases[i].rows : 0,
                                     .n_heads = N_HEADS,
                                     .stride_q = N_HEADS * HEAD_DIM,
                                     .max_pages = max_pages,
                                     .scale = 0.088f};
        char name[96];
        snprintf(name, sizeof name, "attention %s %s x %u of %u", sl_dtype_name(dtype),
                 cases[i].decode ? "decode" : "prefill", cases[i].rows, cases[i].len);
        double row = 2.0 * N_KV * (double)sl_dtype_row_bytes(dtype, HEAD_DIM);
        measure(name, run_attention, &op,
                row * (cases[i].decode ? positions : (double)cases[i].len),
                positions * N_HEADS * HEAD_DIM * 4.0);
    }
    free(host);
}

int main(int argc, char **argv) {
    for (int i = 1; i + 1 < argc; i += 2)
        if (strcmp(argv[i], "--seconds") == 0)
            seconds = atof(argv[i + 1]);
        else if (strcmp(argv[i], "--only") == 0)
            only = argv[i + 1];
    struct sl_err err = {{0}};
    if (sl_cuda_open(&(struct sl_cuda_config){0}, &dev, &err)) {
        fprintf(stderr, "bench_cuda: %s\n", err.text);
        return 77;
    }
    static const struct sl_device_limits limits = {.max_tok = MAX_TOK,
                                                   .max_n_in = 4096,
                                                   .max_pairs = MAX_TOK * TOP_K,
                                                   .max_n_embd = N_EMBD,
                                                   .max_n_ff = N_FF,
                                                   .max_expert = N_EXPERT,
                                                   .max_heads = N_HEADS,
                                                   .max_head_dim = HEAD_DIM};
    if (sl_device_configure(dev, &limits, &err)) {
        fprintf(stderr, "bench_cuda: %s\n", err.text);
        return 1;
    }
    printf("%s, scratch %.1f MiB\n", dev->caps.name,
           (double)sl_device_scratch_bytes(dev, &limits) / (1 << 20));
    float *x = random_floats((size_t)MAX_TOK * N_HEADS * HEAD_DIM);
    float *y = memory((size_t)MAX_TOK * TOP_K * N_EMBD * 4);
    moes(x, y, SL_DTYPE_Q4_K, SL_DTYPE_Q6_K);
    attentions(x, y, SL_DTYPE_F16);
    attentions(x, y, SL_DTYPE_Q8_0);
    matmuls(x, y);
    sl_device_close(&dev);
    return 0;
}
