/* bench_token: whole steps of a Qwen3-30B-A3B shape on a GPU, without the engine: 48 layers, 2048
 * wide, 32 heads of 128 over 4 KV heads, 128 experts of 768 with Q4_K gate and up and Q6_K down,
 * top-8, a vocabulary of 151,936. The ops are engine/forward/forward.c's, in its order.
 *
 * --attention and --output: another type of q/k/v/o and of the output matrix, of Q4_0, Q5_0, Q8_0,
 * Q4_K, Q5_K, Q6_K, IQ4_NL.
 *
 * Prints: decode steps replayed as a graph and submitted op by op, with the bytes that they must
 * read and the bandwidth that this makes; each part of a layer alone, as a chain of 48; prompt
 * steps. Weights are random bytes; the graph's logits are compared with the single ops', bit by
 * bit.
 *
 * Usage: bench_token [--seconds S] [--layers N] [--parts] [--prefill] [--decode] [--rows N]...
 * [--cpu]
 *        [--attention TYPE] [--output TYPE] */
#include "backends/cpu/cpu.h"
#include "backends/cuda/cuda.h"
#include "backends/ops/attention.h"
#include "backends/ops/matmul.h"
#include "backends/ops/moe.h"
#include "backends/ops/norm.h"
#include "backends/ops/rope.h"
#include "backends/ops/router.h"
#include "backends/ops/rows.h"
#include "common/clock.h"
#include "common/rng.h"
#include "tests/support/device_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_EMBD     2048u
#define N_FF       768u
#define N_EXPERT   128u
#define TOP_K      8u
#define N_HEAD     32u
#define N_KV       4u
#define DIM        128u
#define N_VOCAB    151936u
#define MAX_LAYER  48u
#define MAX_TOK    2048u
#define MAX_DECODE 64u /* rows */
#define FULL_SEQS  8u  /* so many have room for MAX_LEN positions, more have less each */
#define MAX_LEN    4608u
#define PAGES      (MAX_LEN / SL_KV_PAGE_TOKENS)
#define PATTERN    ((size_t)48 << 20)

struct layer {
    struct sl_weight q, k, v, o, router;
    float *attn_norm, *q_norm, *k_norm, *ffn_norm;
    struct sl_expert_ref *refs; /* on the device */
    struct sl_kv_view kv;
};

static struct sl_device *dev;
static uint32_t n_layer = MAX_LAYER;
static double seconds = 0.3;
static enum sl_dtype attn_type = SL_DTYPE_Q4_K, output_type = SL_DTYPE_Q6_K;
static struct layer layers[MAX_LAYER];
static struct sl_weight embedding, output;
static float *output_norm, *x, *h, *q, *k, *v, *attn, *logits, *maxima, *sums, *sums_at, *router,
    *weights, *pair_y, *table, *inv_freq;
static uint32_t *maxima_at, *ids, *slot, *row_seq, *row_len, *pages, *expert_ids;
static int32_t *pos;

/* What a step has: rows, and how they are kept. */
static uint32_t n_tok, n_decode;

static void check(enum sl_status status, const char *what) {
    if (status == SL_OK)
        return;
    fprintf(stderr, "bench_token: %s: %s\n", what, sl_status_text(status));
    exit(1);
}

static void *memory(size_t bytes) {
    void *p;
    check(mem_alloc(dev, bytes, &p), "memory");
    return p;
}

static void put(void *to, const void *from, size_t bytes) {
    check(mem_upload(dev, to, from, bytes), "upload");
}

/* Random bytes of a type, from which weights are copied; scales are small: f16 0x1c.. is 0.004. */
static const uint8_t *pattern(enum sl_dtype t) {
    static const uint8_t *made[SL_DTYPE_COUNT];
    if (made[t])
        return made[t];
    uint64_t *host = malloc(PATTERN);
    struct sl_rng rng = {t};
    if (!host)
        exit(1);
    for (size_t i = 0; i < PATTERN / 8; i++)
        host[i] = sl_rng_u64(&rng) & (t == SL_DTYPE_F32 ? 0xbbffffffbbffffffull : ~0ull);
    const struct sl_dtype_info *info = sl_dtype_info((uint32_t)t);
    size_t scale = t == SL_DTYPE_Q6_K ? 208 : 0;
    for (size_t b = 0; t != SL_DTYPE_F32 && b + info->block_bytes <= PATTERN;
         b += info->block_bytes)
        for (size_t i = 0; i < (t == SL_DTYPE_Q4_K || t == SL_DTYPE_Q5_K ? 4 : 2); i++)
            ((uint8_t *)host)[b + scale + i] &= 0x1f;
    uint8_t *p = memory(PATTERN);
    put(p, host, PATTERN);
    free(host);
    return made[t] = p;
}

/* Each tensor begins elsewhere in its pattern. */
static void *random_bytes(enum sl_dtype t, size_t bytes) {
    static size_t begin;
    const uint8_t *source = pattern(t);
    size_t block = sl_dtype_info((uint32_t)t)->block_bytes, whole = PATTERN / block * block;
    begin = (begin + 12345) % (whole / block);
    uint8_t *p = memory(bytes);
    size_t from = begin * block;
    for (size_t at = 0, n; at < bytes; at += n) {
        n = bytes - at < whole - from ? bytes - at : whole - from;
        check(mem_copy(dev, SL_QUEUE_OPS, p + at, source + from, n), "copy");
        from = (from + n) % whole;
    }
    return p;
}

static struct sl_weight weight(enum sl_dtype t, uint32_t n_in, uint32_t n_out) {
    return (struct sl_weight){t, n_in, n_out, random_bytes(t, sl_dtype_row_bytes(t, n_in) * n_out)};
}

static float *floats(size_t n, float around) {
    float *host = malloc(n * 4), *p = memory(n * 4);
    struct sl_rng rng = {n};
    if (!host)
        exit(1);
    for (size_t i = 0; i < n; i++)
        host[i] = around + (float)sl_rng_unit(&rng) - 0.5f;
    put(p, host, n * 4);
    free(host);
    return p;
}

static void make_layer(struct layer *l) {
    l->q = weight(attn_type, N_EMBD, N_HEAD * DIM);
    l->k = weight(attn_type, N_EMBD, N_KV * DIM);
    l->v = weight(attn_type, N_EMBD, N_KV * DIM);
    l->o = weight(attn_type, N_HEAD * DIM, N_EMBD);
    l->router = weight(SL_DTYPE_F32, N_EMBD, N_EXPERT);
    l->attn_norm = floats(N_EMBD, 1);
    l->q_norm = floats(DIM, 1);
    l->k_norm = floats(DIM, 1);
    l->ffn_norm = floats(N_EMBD, 1);
    size_t up = sl_dtype_row_bytes(SL_DTYPE_Q4_K, N_EMBD) * N_FF,
           down = sl_dtype_row_bytes(SL_DTYPE_Q6_K, N_FF) * N_EMBD;
    uint8_t *gates = random_bytes(SL_DTYPE_Q4_K, up * N_EXPERT),
            *ups = random_bytes(SL_DTYPE_Q4_K, up * N_EXPERT),
            *downs = random_bytes(SL_DTYPE_Q6_K, down * N_EXPERT);
    struct sl_expert_ref refs[N_EXPERT];
    for (size_t e = 0; e < N_EXPERT; e++)
        refs[e] = (struct sl_expert_ref){gates + e * up, ups + e * up, downs + e * down};
    l->refs = memory(sizeof refs);
    put(l->refs, refs, sizeof refs);
    size_t page = (size_t)N_KV * SL_KV_PAGE_TOKENS * DIM * 2, all = page * PAGES * FULL_SEQS;
    l->kv = (struct sl_kv_view){memory(all), memory(all), SL_DTYPE_F16, N_KV, DIM, DIM, page, page};
    uint16_t *half = malloc(all);
    struct sl_rng rng = {7};
    if (!half)
        exit(1);
    for (size_t i = 0; i < all / 2; i++)
        half[i] = (uint16_t)(sl_rng_u64(&rng) & 0xbbff);
    put(l->kv.k, half, all);
    put(l->kv.v, half, all);
    free(half);
}

static void make_model(void) {
    for (uint32_t i = 0; i < n_layer; i++)
        make_layer(&layers[i]);
    embedding = weight(SL_DTYPE_Q4_K, N_EMBD, N_VOCAB);
    output = weight(output_type, N_EMBD, N_VOCAB);
    output_norm = floats(N_EMBD, 1);
    x = memory((size_t)MAX_TOK * N_EMBD * 4);
    h = memory((size_t)MAX_TOK * N_EMBD * 4);
    q = floats((size_t)MAX_TOK * N_HEAD * DIM, 0);
    k = floats((size_t)MAX_TOK * N_KV * DIM, 0);
    v = floats((size_t)MAX_TOK * N_KV * DIM, 0);
    attn = floats((size_t)MAX_TOK * N_HEAD * DIM, 0);
    logits = memory((size_t)MAX_DECODE * N_VOCAB * 4);
    maxima = memory((size_t)MAX_DECODE * (N_VOCAB / SL_BLOCK_MAX_ELEMS) * 4);
    maxima_at = memory((size_t)MAX_DECODE * (N_VOCAB / SL_BLOCK_MAX_ELEMS) * 4);
    sums = memory((size_t)MAX_DECODE * (N_VOCAB / SL_BLOCK_MAX_ELEMS) * 4);
    sums_at = floats(MAX_DECODE, 1);
    router = memory((size_t)MAX_TOK * N_EXPERT * 4);
    weights = floats((size_t)MAX_TOK * TOP_K, 0.1f);
    pair_y = memory((size_t)MAX_TOK * TOP_K * N_EMBD * 4);
    table = memory((size_t)MAX_TOK * DIM * 4);
    inv_freq = floats(DIM / 2, 0.5f);
    ids = memory(MAX_TOK * 4);
    pos = memory(MAX_TOK * 4);
    slot = memory(MAX_TOK * 4);
    row_seq = memory(MAX_TOK * 4);
    row_len = memory(MAX_TOK * 4);
    pages = memory(MAX_DECODE * PAGES * 4);
    expert_ids = memory((size_t)MAX_TOK * TOP_K * 4);
    check(sl_device_sync(dev), "filling");
}

/* The step's tables: `decode` sequences of `len` positions, or one prompt of `rows`. */
static void set_step(uint32_t rows, bool decode, uint32_t len) {
    uint32_t *t = malloc((size_t)MAX_TOK * TOP_K * 4);
    if (!t)
        exit(1);
    n_tok = rows;
    n_decode = decode ? rows : 0;
    uint32_t each = PAGES * FULL_SEQS / (rows > FULL_SEQS && decode ? rows : FULL_SEQS);
    struct sl_rng rng = {rows + len};
    for (uint32_t i = 0; i < rows; i++)
        t[i] = sl_rng_below(&rng, N_VOCAB);
    put(ids, t, rows * 4);
    for (uint32_t i = 0; i < rows; i++)
        t[i] = decode ? len - 1 : i;
    put(pos, t, rows * 4);
    for (uint32_t i = 0; i < rows; i++)
        t[i] = decode ? i * each * SL_KV_PAGE_TOKENS + len - 1 : i;
    put(slot, t, rows * 4);
    for (uint32_t i = 0; i < rows; i++)
        t[i] = decode ? i : 0;
    put(row_seq, t, rows * 4);
    for (uint32_t i = 0; i < rows; i++)
        t[i] = decode ? len : i + 1;
    put(row_len, t, rows * 4);
    for (uint32_t i = 0; i < MAX_DECODE * PAGES; i++)
        t[i] = i / PAGES * each + i % PAGES;
    put(pages, t, MAX_DECODE * PAGES * 4);
    for (uint32_t i = 0; i < rows; i++)
        for (uint32_t j = 0; j < TOP_K; j++) /* for the parts that run without a router */
            t[i * TOP_K + j] = (i * 37 + j * 16 + sl_rng_below(&rng, 16)) % N_EXPERT;
    put(expert_ids, t, (size_t)rows * TOP_K * 4);
    free(t);
    check(sl_device_sync(dev), "tables");
}

/* ---- the parts of a layer ---- */

static enum sl_status norm(const float *from, const float *w, float *to, uint32_t rows,
                           uint32_t n) {
    return sl_op_rms_norm(dev, &(struct sl_op_rms_norm){.x = from,
                                                        .w = w,
                                                        .y = to,
                                                        .n_rows = rows,
                                                        .n = n,
                                                        .stride_x = n,
                                                        .stride_y = n,
                                                        .eps = 1e-6f});
}

static enum sl_status matmul1(const float *from, struct sl_weight w, float *to, bool add) {
    return sl_op_matmul(dev, &(struct sl_op_matmul){.x = from,
                                                    .n_tok = n_tok,
                                                    .n_decode = n_decode,
                                                    .n_w = 1,
                                                    .out = {{w, NULL, to, add}}});
}

static enum sl_status part_embed(const struct layer *l) {
    (void)l;
    enum sl_status status = sl_op_embed(dev, &(struct sl_op_embed){embedding, ids, x, n_tok, 1});
    return status ? status
                  : sl_op_rope_table(
                        dev, &(struct sl_op_rope_table){pos, inv_freq, table, n_tok, DIM / 2, 1});
}
static enum sl_status part_qkv(const struct layer *l) {
    enum sl_status status = norm(x, l->attn_norm, h, n_tok, N_EMBD);
    return status ? status
                  : sl_op_matmul(dev, &(struct sl_op_matmul){.x = h,
                                                             .n_tok = n_tok,
                                                             .n_decode = n_decode,
                                                             .n_w = 3,
                                                             .out = {{l->q, NULL, q, false},
                                                                     {l->k, NULL, k, false},
                                                                     {l->v, NULL, v, false}}});
}
static enum sl_status rope(float *from, uint32_t heads) {
    return sl_op_rope(dev, &(struct sl_op_rope){from, table, n_tok, heads, DIM, heads * DIM,
                                                DIM / 2, SL_ROPE_NEOX});
}
static enum sl_status part_rope_kv(const struct layer *l) {
    enum sl_status status = norm(q, l->q_norm, q, n_tok * N_HEAD, DIM);
    if (!status)
        status = norm(k, l->k_norm, k, n_tok * N_KV, DIM);
    if (!status)
        status = rope(q, N_HEAD);
    if (!status)
        status = rope(k, N_KV);
    return status ? status
                  : sl_op_kv_write(dev, &(struct sl_op_kv_write){.kv = l->kv,
                                                                 .k = k,
                                                                 .v = v,
                                                                 .slot = slot,
                                                                 .n_tok = n_tok,
                                                                 .stride_k = N_KV * DIM,
                                                                 .stride_v = N_KV * DIM});
}
static enum sl_status part_attention(const struct layer *l) {
    return sl_op_attention(dev, &(struct sl_op_attention){.kv = l->kv,
                                                          .q = q,
                                                          .y = attn,
                                                          .page_table = pages,
                                                          .row_seq = row_seq,
                                                          .row_len = row_len,
                                                          .n_tok = n_tok,
                                                          .n_decode = n_decode,
                                                          .n_heads = N_HEAD,
                                                          .stride_q = N_HEAD * DIM,
                                                          .max_pages = PAGES,
                                                          .scale = 0.088f});
}
static enum sl_status part_rope_attention(const struct layer *l) {
    enum sl_status status = part_rope_kv(l);
    return status ? status : part_attention(l);
}
static enum sl_status part_out(const struct layer *l) {
    return matmul1(attn, l->o, x, true);
}
static enum sl_status part_router(const struct layer *l) {
    enum sl_status status = norm(x, l->ffn_norm, h, n_tok, N_EMBD);
    if (!status)
        status = matmul1(h, l->router, router, false);
    return status ? status
                  : sl_op_router(dev, &(struct sl_op_router){.logits = router,
                                                             .ids = expert_ids,
                                                             .weights = weights,
                                                             .n_tok = n_tok,
                                                             .n_expert = N_EXPERT,
                                                             .k = TOP_K,
                                                             .score = SL_ROUTER_SOFTMAX,
                                                             .normalize = true,
                                                             .scale = 1});
}
static enum sl_status part_experts(const struct layer *l) {
    enum sl_status status = sl_op_moe(dev, &(struct sl_op_moe){.x = h,
                                                               .ids = expert_ids,
                                                               .pair_y = pair_y,
                                                               .device_refs = l->refs,
                                                               .gate_dtype = SL_DTYPE_Q4_K,
                                                               .up_dtype = SL_DTYPE_Q4_K,
                                                               .down_dtype = SL_DTYPE_Q6_K,
                                                               .n_tok = n_tok,
                                                               .n_decode = n_decode,
                                                               .k = TOP_K,
                                                               .n_pairs = n_tok * TOP_K,
                                                               .n_expert = N_EXPERT,
                                                               .n_embd = N_EMBD,
                                                               .n_ff = N_FF});
    return status ? status
                  : sl_op_moe_combine(
                        dev, &(struct sl_op_moe_combine){pair_y, weights, x, n_tok, TOP_K, N_EMBD});
}
static enum sl_status part_output(const struct layer *l) {
    (void)l;
    uint32_t rows = n_decode ? n_tok : 1;
    enum sl_status status = norm(x, output_norm, h, rows, N_EMBD);
    if (!status)
        status = sl_op_matmul(dev, &(struct sl_op_matmul){.x = h,
                                                          .n_tok = rows,
                                                          .n_decode = n_decode,
                                                          .n_w = 1,
                                                          .out = {{output, NULL, logits, false}}});
    return status ? status
                  : sl_op_block_max(dev, &(struct sl_op_block_max){logits, maxima, maxima_at, sums,
                                                                   sums_at, rows, N_VOCAB});
}

typedef enum sl_status part_fn(const struct layer *l);
static const struct part {
    const char *name;
    part_fn *run;
    bool once; /* a step, not a layer */
    bool also; /* others together, as a graph fuses them */
} parts[] = {{"embedding, rope table", part_embed, true, false},
             {"norm, q/k/v", part_qkv, false, false},
             {"q/k norm, rope, KV write", part_rope_kv, false, false},
             {"attention", part_attention, false, false},
             {"the last two as one", part_rope_attention, false, true},
             {"attention out, residual", part_out, false, false},
             {"norm, router", part_router, false, false},
             {"experts, sum", part_experts, false, false},
             {"norm, output, maxima", part_output, true, false}};
#define N_PARTS (sizeof parts / sizeof *parts)

static void step(void) {
    check(part_embed(NULL), "embedding");
    for (uint32_t l = 0; l < n_layer; l++)
        for (size_t p = 1; p + 1 < N_PARTS; p++)
            if (!parts[p].also)
                check(parts[p].run(&layers[l]), parts[p].name);
    check(part_output(NULL), "output");
}

/* ---- timing ---- */

static struct sl_graph *recorded(const struct part *only) {
    struct sl_graph *g;
    check(sl_device_record(dev), "recording");
    if (!only)
        step();
    for (uint32_t l = 0; only && l < n_layer; l++)
        check(only->run(&layers[l]), only->name);
    check(sl_device_recorded(dev, &g), "recording");
    return g;
}

/* Seconds a call. */
static double timed(struct sl_graph *g) {
    for (int i = 0; i < 3; i++)
        if (g)
            check(sl_device_replay(dev, g), "replay");
        else
            step();
    check(sl_device_sync(dev), "sync");
    uint64_t start = sl_now_ns();
    uint32_t done = 0;
    double took = 0;
    while (took < seconds) {
        for (uint32_t i = 0; i < 4; i++, done++)
            if (g)
                check(sl_device_replay(dev, g), "replay");
            else
                step();
        check(sl_device_sync(dev), "sync");
        took = (double)(sl_now_ns() - start) * 1e-9;
    }
    return took / done;
}

static uint64_t hash(const void *p, size_t bytes) {
    uint64_t f = 1469598103934665603u;
    for (size_t i = 0; i < bytes; i++)
        f = (f ^ ((const uint8_t *)p)[i]) * 1099511628211u;
    return f;
}

static uint64_t logits_hash(void) {
    size_t bytes = (size_t)(n_decode ? n_tok : 1) * N_VOCAB * 4;
    float *host = malloc(bytes);
    if (!host)
        exit(1);
    check(mem_download(dev, host, logits, bytes), "logits");
    uint64_t f = hash(host, bytes);
    for (size_t i = 0; i < 8; i++)
        if (!(host[i] == host[i]) || host[i] == 0)
            f = 0;
    free(host);
    return f;
}

/* Bytes of weights and KV that a step must read; experts as the router chose them. */
static double step_bytes(uint32_t len) {
    double attn_bytes = (double)sl_dtype_row_bytes(attn_type, N_EMBD) * (N_HEAD + 2 * N_KV) * DIM +
                        (double)sl_dtype_row_bytes(attn_type, N_HEAD * DIM) * N_EMBD +
                        4.0 * N_EMBD * N_EXPERT;
    double expert = 2.0 * (double)sl_dtype_row_bytes(SL_DTYPE_Q4_K, N_EMBD) * N_FF +
                    (double)sl_dtype_row_bytes(SL_DTYPE_Q6_K, N_FF) * N_EMBD;
    uint32_t *host = malloc((size_t)n_tok * TOP_K * 4), touched = 0;
    bool seen[N_EXPERT] = {false};
    if (!host)
        exit(1);
    check(mem_download(dev, host, expert_ids, (size_t)n_tok * TOP_K * 4), "ids");
    for (uint32_t i = 0; i < n_tok * TOP_K; i++) { /* of the last layer, as a sample */
        touched += !seen[host[i] % N_EXPERT];
        seen[host[i] % N_EXPERT] = true;
    }
    free(host);
    return n_layer * (attn_bytes + touched * expert + 4.0 * N_KV * DIM * len * n_tok) +
           (double)sl_dtype_row_bytes(output_type, N_EMBD) * N_VOCAB;
}

static void decode(uint32_t rows, uint32_t len) {
    set_step(rows, true, len);
    step();
    uint64_t ops = logits_hash();
    double single = timed(NULL);
    struct sl_graph *g = recorded(NULL);
    check(sl_device_replay(dev, g), "replay");
    uint64_t replayed = logits_hash();
    double s = timed(g), bytes = step_bytes(len);
    printf(
        "decode %u x %-5u %8.1f us %8.0f tokens/s  %5.2f GB %5.0f GB/s  single ops %8.1f us  %s\n",
        rows, len, s * 1e6, rows / s, bytes * 1e-9, bytes / s * 1e-9, single * 1e6,
        ops && ops == replayed ? "same bits" : "THE BITS DIFFER");
    sl_graph_free(dev, &g);
    fflush(stdout);
}

static void each_part(uint32_t rows, uint32_t len) {
    set_step(rows, true, len);
    printf("parts, %u x %u, a chain of %u in a graph:\n", rows, len, n_layer);
    for (size_t p = 0; p < N_PARTS; p++) {
        struct sl_graph *g = recorded(&parts[p]);
        double s = timed(g) / n_layer;
        printf("  %-26s %8.2f us%s\n", parts[p].name, s * 1e6,
               parts[p].once ? " (once a step)" : "");
        sl_graph_free(dev, &g);
    }
    fflush(stdout);
}

static void prefill(uint32_t rows) {
    set_step(rows, false, rows);
    double s = timed(NULL);
    printf("prefill %-5u %9.1f us %8.0f tokens/s\n", rows, s * 1e6, rows / s);
    double total = 0;
    for (size_t p = 0; p < N_PARTS; p++) {
        check(sl_device_sync(dev), "sync");
        uint64_t start = sl_now_ns();
        for (uint32_t l = 0; l < n_layer; l++)
            check(parts[p].run(&layers[l]), parts[p].name);
        check(sl_device_sync(dev), "sync");
        double one = (double)(sl_now_ns() - start) * 1e-9 / n_layer;
        total += parts[p].also ? 0 : one * (parts[p].once ? 1 : n_layer);
        printf("  %-26s %8.1f us\n", parts[p].name, one * 1e6);
    }
    printf("  all parts %.1f us\n", total * 1e6);
    fflush(stdout);
}

/* Those whose scales pattern() finds. */
static enum sl_dtype type_of(const char *name) {
    static const enum sl_dtype types[] = {SL_DTYPE_Q4_0,  SL_DTYPE_Q5_0, SL_DTYPE_Q8_0,
                                          SL_DTYPE_Q4_K,  SL_DTYPE_Q5_K, SL_DTYPE_Q6_K,
                                          SL_DTYPE_IQ4_NL};
    enum sl_dtype t = sl_dtype_from_name(name);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i] == t)
            return t;
    fprintf(stderr, "bench_token: no weights of type '%s' here\n", name);
    exit(2);
}

int main(int argc, char **argv) {
    bool cpu = false, all = true, want_parts = false, want_prefill = false, want_decode = false;
    uint32_t rows[16], n_rows = 0;
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--seconds") == 0 && i + 1 < argc)
            seconds = atof(argv[++i]);
        else if (strcmp(argv[i], "--layers") == 0 && i + 1 < argc)
            n_layer = (uint32_t)atoi(argv[++i]);
        else if (strcmp(argv[i], "--attention") == 0 && i + 1 < argc)
            attn_type = type_of(argv[++i]);
        else if (strcmp(argv[i], "--output") == 0 && i + 1 < argc)
            output_type = type_of(argv[++i]);
        else if (strcmp(argv[i], "--rows") == 0 && i + 1 < argc && n_rows < 16)
            rows[n_rows++] = (uint32_t)atoi(argv[++i]), all = false;
        else if (strcmp(argv[i], "--cpu") == 0)
            cpu = true;
        else if (strcmp(argv[i], "--parts") == 0)
            want_parts = true, all = false;
        else if (strcmp(argv[i], "--prefill") == 0)
            want_prefill = true, all = false;
        else if (strcmp(argv[i], "--decode") == 0)
            want_decode = true, all = false;
    n_layer = n_layer < 1 ? 1 : n_layer > MAX_LAYER ? MAX_LAYER : n_layer;
    struct sl_err err = {{0}};
    if (cpu ? sl_cpu_open(&(struct sl_cpu_config){0}, &dev, &err)
            : sl_cuda_open(&(struct sl_cuda_config){0}, &dev, &err)) {
        fprintf(stderr, "bench_token: %s\n", err.text);
        return 77;
    }
    static const struct sl_device_limits limits = {.max_tok = MAX_TOK,
                                                   .max_n_in = N_HEAD * DIM,
                                                   .max_pairs = MAX_TOK * TOP_K,
                                                   .max_n_embd = N_EMBD,
                                                   .max_n_ff = N_FF,
                                                   .max_expert = N_EXPERT,
                                                   .max_heads = N_HEAD,
                                                   .max_head_dim = DIM};
    check(sl_device_configure(dev, &limits, &err), err.text);
    uint64_t start = sl_now_ns();
    make_model();
    printf("%s, %u layers, made in %.1f s\n", dev->caps.name, n_layer,
           (double)(sl_now_ns() - start) * 1e-9);
    if (all || want_decode) {
        decode(1, 512);
        decode(1, 4096);
        decode(2, 512);
        decode(2, 4096);
        decode(4, 512);
        decode(8, 512);
    }
    for (uint32_t i = 0; i < n_rows; i++)
        if (rows[i] && rows[i] <= MAX_DECODE) {
            decode(rows[i], 512);
            each_part(rows[i], 512);
        }
    if (all || want_parts) {
        each_part(1, 512);
        each_part(2, 512);
        each_part(4, 512);
        each_part(8, 512);
    }
    if (all || want_prefill) {
        prefill(512);
        prefill(2048);
    }
    sl_device_close(&dev);
    return 0;
}
