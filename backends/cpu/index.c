/* The indexer: which positions, or blocks of positions, rows attend to, and the rotation of its
 * queries and keys.
 *
 * Scores of a row go into scratch in blocks of positions, with the kernels that give attention its
 * scores; the choice is made by a radix search for the lowest score that is in. */
#include "backends/cpu/cpu_internal.h"
#include "backends/ops/compress.h"
#include "backends/ops/elementwise.h"
#include "backends/ops/index.h"
#include "backends/ops/pool.h"

#include <math.h>
#include <string.h>

#define PART       SL_CPU_ATTN_PART
#define HEAD_BLOCK 8u /* heads that go through the keys together */

/* ---- rotation ---- */

void sl_cpu_hadamard_row(float *x, uint32_t n) {
    float by = (float)(1 / sqrt((double)n));
    for (uint32_t step = 1; step < n; step *= 2)
        for (uint32_t i = 0; i < n; i += 2 * step)
            for (uint32_t j = i; j < i + step; j++) {
                float u = x[j], v = x[j + step];
                x[j] = u + v;
                x[j + step] = u - v;
            }
    for (uint32_t i = 0; i < n; i++)
        x[i] *= by;
}

static void hadamard_rows(void *ctx, uint32_t begin, uint32_t end) {
    const struct sl_op_hadamard *a = ctx;
    for (size_t t = begin; t < end; t++)
        sl_cpu_hadamard_row(a->x + t * a->n, a->n);
}

enum sl_status sl_cpu_hadamard(struct sl_device *d, const struct sl_op_hadamard *a) {
    sl_cpu_for_rows((struct sl_cpu *)d, a->n_rows, (size_t)a->n * 8, hadamard_rows, (void *)a);
    return SL_OK;
}

/* ---- scores ---- */

struct job {
    const struct sl_op_index_choose *a;
    const struct sl_cpu *cpu;
    uint32_t ratio; /* positions of a row of keys */
    uint32_t page_rows;
    void (*qk)(const float *q, uint32_t n_heads, const struct sl_cpu_kv_page *k, float scale,
               float *s);
    size_t row_bytes;
    float *scores; /* [rows of a wave or threads, stride] */
    size_t stride;
    uint32_t row0, n_rows; /* the wave's */
    uint32_t n_blocks;     /* of PART positions, of the wave's longest row */
};

uint64_t sl_cpu_index_scratch_bytes(const struct sl_device_limits *limits, uint32_t n_threads) {
    uint64_t padded = ((uint64_t)limits->max_scores + 15) / 16 * 16;
    return n_threads * padded * sizeof(float);
}

/* Rows of keys that it chooses among. */
static uint32_t n_keys(const struct job *j, uint32_t row) {
    return j->a->row_len[row] / j->ratio;
}

/* Scores of the row's keys from block * PART on. */
static void score(const struct job *j, uint32_t row, uint32_t block, float *scores) {
    const struct sl_op_index_choose *a = j->a;
    const uint32_t *pages = a->page_table + (size_t)a->row_seq[row] * a->max_pages;
    uint32_t base = block * PART, dim = a->keys.n_latent;
    uint32_t n = n_keys(j, row) - base < PART ? n_keys(j, row) - base : PART;
    static const float ones[HEAD_BLOCK] = {1, 1, 1, 1, 1, 1, 1, 1};
    const float *q = a->q + (size_t)row * a->n_heads * dim;
    _Alignas(64) float s[HEAD_BLOCK * PART];
    float *y = scores + base;
    memset(y, 0, n * sizeof *y);
    for (uint32_t h = 0; h < a->n_heads; h += HEAD_BLOCK) {
        uint32_t n_heads = a->n_heads - h < HEAD_BLOCK ? a->n_heads - h : HEAD_BLOCK;
        for (uint32_t at = 0; at < n; at += j->page_rows) {
            uint32_t page = pages[sl_block_page(base + at, j->ratio)];
            struct sl_cpu_kv_page k = {.rows =
                                           (const char *)a->keys.rows + page * a->keys.page_bytes,
                                       .end = n - at < j->page_rows ? n - at : j->page_rows,
                                       .head_dim = dim,
                                       .row_bytes = (uint32_t)j->row_bytes};
            j->qk(q + (size_t)h * dim, n_heads, &k, 1.0f, s + at);
        }
        const float *w = a->w ? a->w + (size_t)row * a->n_heads + h : ones;
        j->cpu->k.index_sum(s, w, n_heads, y, n);
    }
}

/* ---- choice ---- */

/* Ascending as scores do. Positive and negative zeros are one. */
static uint32_t key_of(float score) {
    uint32_t bits;
    if (score != score)
        return 0;
    score += 0.0f; /* -0 becomes 0 */
    memcpy(&bits, &score, sizeof bits);
    return bits >> 31 ? ~bits : bits | UINT32_C(1) << 31;
}

#define DIGIT_BITS 11u
#define N_DIGITS   (1u << DIGIT_BITS)

/* Of n keys the n_top-th largest; *out_above: how many are larger. 0 < n_top < n. Its digits are
 * found from the highest on, among the keys that agree with it so far. */
static uint32_t lowest_in(const uint32_t *keys, uint32_t n, uint32_t n_top, uint32_t *out_above) {
    static const uint32_t shifts[] = {21, 10, 0};
    uint32_t found = 0, above = 0;
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t count[N_DIGITS] = {0};
        uint32_t shift = shifts[i], width = i ? shifts[i - 1] - shift : 32 - shift;
        uint32_t mask = (1u << width) - 1;
        uint32_t known = i ? UINT32_MAX << shifts[i - 1] : 0;
        for (uint32_t j = 0; j < n; j++)
            if ((keys[j] & known) == found)
                count[keys[j] >> shift & mask]++;
        uint32_t digit = mask;
        while (above + count[digit] < n_top)
            above += count[digit--];
        found |= digit << shift;
    }
    *out_above = above;
    return found;
}

/* scores [n], which become keys; all where no more than n_top are there. The last n_last are in
 * whatever their scores. */
static void choose(float *scores, uint32_t n, uint32_t n_top, uint32_t n_last, uint32_t *chosen) {
    if (n <= n_top) {
        for (uint32_t j = 0; j < n; j++)
            chosen[j] = j;
        return;
    }
    uint32_t *keys = (uint32_t *)(void *)scores, above, n_chosen = 0;
    for (uint32_t j = 0; j < n; j++) {
        uint32_t key = j + n_last < n ? key_of(scores[j]) : UINT32_MAX;
        memcpy(&keys[j], &key, sizeof key);
    }
    uint32_t least = lowest_in(keys, n, n_top, &above), equals = n_top - above;
    for (uint32_t j = 0; n_chosen < n_top; j++) {
        bool in = keys[j] > least || (keys[j] == least && equals);
        equals -= in && keys[j] == least;
        chosen[n_chosen] = j;
        n_chosen += in;
    }
}

/* ---- the op ---- */

static uint32_t n_blocks(const struct job *j, uint32_t row) {
    uint32_t n = n_keys(j, row);
    return n <= j->a->n_top ? 0 : (n + PART - 1) / PART;
}

static void choose_row(const struct job *j, uint32_t row, float *scores) {
    const struct sl_op_index_choose *a = j->a;
    choose(scores, n_keys(j, row), a->n_top, 0, a->chosen + (size_t)row * a->n_top);
}

/* Many rows: each is one thread's. */
static void by_rows(void *ctx, uint32_t thread, uint32_t n_threads) {
    const struct job *j = ctx;
    float *scores = j->scores + thread * j->stride;
    (void)n_threads;
    for (uint32_t t; (t = sl_pool_next(j->cpu->pool, j->a->n_tok)) != UINT32_MAX;) {
        for (uint32_t b = 0, n = n_blocks(j, t); b < n; b++)
            score(j, t, b, scores);
        choose_row(j, t, scores);
    }
}

/* Few rows: all threads share out the blocks of each. */
static void together(void *ctx, uint32_t thread, uint32_t n_threads) {
    const struct job *j = ctx;
    struct sl_pool *pool = j->cpu->pool;
    (void)thread, (void)n_threads;
    for (uint32_t c; (c = sl_pool_next(pool, j->n_rows * j->n_blocks)) != UINT32_MAX;) {
        uint32_t i = c / j->n_blocks, block = c % j->n_blocks;
        if (block < n_blocks(j, j->row0 + i))
            score(j, j->row0 + i, block, j->scores + i * j->stride);
    }
    sl_pool_barrier(pool);
    for (uint32_t i; (i = sl_pool_next(pool, j->n_rows)) != UINT32_MAX;)
        choose_row(j, j->row0 + i, j->scores + i * j->stride);
}

static enum sl_status run_choice(struct sl_cpu *cpu, const struct sl_op_index_choose *a,
                                 uint32_t ratio) {
    uint32_t n_threads = sl_pool_n_threads(cpu->pool);
    struct job j = {.a = a,
                    .cpu = cpu,
                    .ratio = ratio,
                    .page_rows = sl_block_rows(ratio),
                    .qk = a->keys.dtype == SL_DTYPE_F16 ? cpu->k.qk_f16 : cpu->k.qk_q8_0,
                    .row_bytes = sl_dtype_row_bytes(a->keys.dtype, a->keys.n_latent),
                    .scores = cpu->scratch,
                    .stride = ((size_t)cpu->base.limits.max_scores + 15) / 16 * 16};
    if (a->n_tok > 2 * n_threads) {
        sl_pool_run(cpu->pool, by_rows, &j);
        return SL_OK;
    }
    for (uint32_t t = 0; t < a->n_tok; t += j.n_rows) {
        j.row0 = t;
        j.n_rows = a->n_tok - t < n_threads ? a->n_tok - t : n_threads;
        j.n_blocks = 1;
        for (uint32_t i = t; i < t + j.n_rows; i++)
            j.n_blocks = n_blocks(&j, i) > j.n_blocks ? n_blocks(&j, i) : j.n_blocks;
        sl_pool_run(cpu->pool, together, &j);
    }
    return SL_OK;
}

enum sl_status sl_cpu_index_choose(struct sl_device *d, const struct sl_op_index_choose *a) {
    return run_choice((struct sl_cpu *)d, a, 1);
}

enum sl_status sl_cpu_compressed_choose(struct sl_device *d,
                                        const struct sl_op_compressed_choose *a) {
    return run_choice((struct sl_cpu *)d, &a->choice, a->ratio);
}

/* The same, of weights that are all 1. */
enum sl_status sl_cpu_pooled_choose(struct sl_device *d, const struct sl_op_pooled_choose *a) {
    const struct sl_op_index_choose op = {.keys = a->keys,
                                          .q = a->q,
                                          .chosen = a->chosen,
                                          .page_table = a->page_table,
                                          .row_seq = a->row_seq,
                                          .row_len = a->row_len,
                                          .n_tok = a->n_tok,
                                          .n_decode = a->n_decode,
                                          .n_heads = a->n_heads,
                                          .max_pages = a->max_pages,
                                          .n_top = a->n_top};
    return run_choice((struct sl_cpu *)d, &op, a->ratio);
}

/* ---- blocks ---- */

/* Scores of blocks go into scratch for as many heads at a time as it has room for. They are
 * computed in units: runs of whole blocks of about PART positions. */
struct block_job {
    const struct sl_op_block_choose *a;
    const struct sl_cpu *cpu;
    void (*qk)(const float *q, uint32_t n_heads, const struct sl_cpu_kv_page *k, float scale,
               float *s);
    size_t row_bytes;
    float *scores; /* [rows of a wave or threads, stride] */
    size_t stride;
    uint32_t unit;          /* blocks of one */
    uint32_t head, n_heads; /* those that go through the keys now */
    uint32_t row0, n_rows;  /* the wave's */
    uint32_t n_units;       /* of the wave's longest row */
};

static uint32_t blocks_of(const struct sl_op_block_choose *a, uint32_t row) {
    return (a->row_len[row] - 1) / a->block + 1;
}

/* Units of a row whose scores are wanted. */
static uint32_t units_of(const struct block_job *j, uint32_t row) {
    uint32_t n = blocks_of(j->a, row);
    return n <= j->a->n_top ? 0 : (n + j->unit - 1) / j->unit;
}

/* Into y [n_heads, n_blocks] the maxima over what s has of a page, whose first position is base:
 * its positions [begin, end). */
static void raise(const struct block_job *j, const float *s, uint32_t base, uint32_t begin,
                  uint32_t end, uint32_t n_blocks, float *y) {
    for (uint32_t h = 0; h < j->n_heads; h++, s += PART, y += n_blocks) {
        uint32_t block = (base + begin) / j->a->block, next = (block + 1) * j->a->block - base;
        for (uint32_t i = begin; i < end; i++) {
            if (i == next)
                block++, next += j->a->block;
            y[block] = s[i] > y[block] ? s[i] : y[block];
        }
    }
}

static void score_blocks(const struct block_job *j, uint32_t row, uint32_t unit, float *scores) {
    const struct sl_op_block_choose *a = j->a;
    const uint32_t *pages = a->page_table + (size_t)a->row_seq[row] * a->max_pages;
    uint32_t n_blocks = blocks_of(a, row), first = unit * j->unit, dim = a->keys.n_latent;
    uint32_t n = n_blocks - first < j->unit ? n_blocks - first : j->unit;
    uint32_t lo = first * a->block;
    uint32_t hi = first + n < n_blocks ? (first + n) * a->block : a->row_len[row];
    const float *q = a->q + ((size_t)row * a->n_heads + j->head) * dim;
    _Alignas(64) float s[HEAD_BLOCK * PART];
    for (uint32_t h = 0; h < j->n_heads; h++)
        for (uint32_t b = first; b < first + n; b++)
            scores[h * n_blocks + b] = -INFINITY;
    for (uint32_t at = lo - lo % SL_KV_PAGE_TOKENS; at < hi; at += SL_KV_PAGE_TOKENS) {
        uint32_t page = pages[at / SL_KV_PAGE_TOKENS];
        struct sl_cpu_kv_page k = {.rows = (const char *)a->keys.rows + page * a->keys.page_bytes,
                                   .begin = lo > at ? lo - at : 0,
                                   .end = hi - at < SL_KV_PAGE_TOKENS ? hi - at : SL_KV_PAGE_TOKENS,
                                   .head_dim = dim,
                                   .row_bytes = (uint32_t)j->row_bytes};
        j->qk(q, j->n_heads, &k, 1.0f, s);
        raise(j, s, at, k.begin, k.end, n_blocks, scores);
    }
}

/* head: of those that go through the keys now. */
static void choose_blocks(const struct block_job *j, uint32_t row, uint32_t head, float *scores) {
    const struct sl_op_block_choose *a = j->a;
    uint32_t n = blocks_of(a, row);
    choose(scores + (size_t)head * n, n, a->n_top, a->n_local,
           a->chosen + ((size_t)row * a->n_heads + j->head + head) * a->n_top);
}

static void blocks_by_rows(void *ctx, uint32_t thread, uint32_t n_threads) {
    const struct block_job *j = ctx;
    float *scores = j->scores + thread * j->stride;
    (void)n_threads;
    for (uint32_t t; (t = sl_pool_next(j->cpu->pool, j->a->n_tok)) != UINT32_MAX;) {
        for (uint32_t u = 0, n = units_of(j, t); u < n; u++)
            score_blocks(j, t, u, scores);
        for (uint32_t h = 0; h < j->n_heads; h++)
            choose_blocks(j, t, h, scores);
    }
}

static void blocks_together(void *ctx, uint32_t thread, uint32_t n_threads) {
    const struct block_job *j = ctx;
    struct sl_pool *pool = j->cpu->pool;
    (void)thread, (void)n_threads;
    for (uint32_t c; (c = sl_pool_next(pool, j->n_rows * j->n_units)) != UINT32_MAX;) {
        uint32_t i = c / j->n_units, unit = c % j->n_units;
        if (unit < units_of(j, j->row0 + i))
            score_blocks(j, j->row0 + i, unit, j->scores + i * j->stride);
    }
    sl_pool_barrier(pool);
    for (uint32_t c; (c = sl_pool_next(pool, j->n_rows * j->n_heads)) != UINT32_MAX;) {
        uint32_t i = c / j->n_heads;
        choose_blocks(j, j->row0 + i, c % j->n_heads, j->scores + i * j->stride);
    }
}

static void run_blocks(struct block_job *j) {
    const struct sl_op_block_choose *a = j->a;
    uint32_t n_threads = sl_pool_n_threads(j->cpu->pool);
    if (a->n_tok > 2 * n_threads) {
        sl_pool_run(j->cpu->pool, blocks_by_rows, j);
        return;
    }
    for (uint32_t t = 0; t < a->n_tok; t += j->n_rows) {
        j->row0 = t;
        j->n_rows = a->n_tok - t < n_threads ? a->n_tok - t : n_threads;
        j->n_units = 1;
        for (uint32_t i = t; i < t + j->n_rows; i++)
            j->n_units = units_of(j, i) > j->n_units ? units_of(j, i) : j->n_units;
        sl_pool_run(j->cpu->pool, blocks_together, j);
    }
}

enum sl_status sl_cpu_block_choose(struct sl_device *d, const struct sl_op_block_choose *a) {
    struct sl_cpu *cpu = (struct sl_cpu *)d;
    struct block_job j = {.a = a,
                          .cpu = cpu,
                          .qk = a->keys.dtype == SL_DTYPE_F16 ? cpu->k.qk_f16 : cpu->k.qk_q8_0,
                          .row_bytes = sl_dtype_row_bytes(a->keys.dtype, a->keys.n_latent),
                          .scores = cpu->scratch,
                          .stride = ((size_t)cpu->base.limits.max_scores + 15) / 16 * 16,
                          .unit = a->block < PART ? PART / a->block : 1};
    uint32_t most = 1; /* blocks of the longest row: no more than positions, so there is room */
    for (uint32_t t = 0; t < a->n_tok; t++)
        most = blocks_of(a, t) > most ? blocks_of(a, t) : most;
    uint32_t at_once = j.stride / most < HEAD_BLOCK ? (uint32_t)(j.stride / most) : HEAD_BLOCK;
    for (j.head = 0; j.head < a->n_heads; j.head += j.n_heads) {
        j.n_heads = a->n_heads - j.head < at_once ? a->n_heads - j.head : at_once;
        run_blocks(&j);
    }
    return SL_OK;
}
