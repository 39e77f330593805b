/* Blocks of positions that become one row each: first all rows of the step are kept, then each row
 * that completes a block reads the block's. */
#include "backends/cpu/cpu_internal.h"
#include "backends/cpu/math.h"
#include "backends/ops/compress.h"

#include <string.h>

struct job {
    const struct sl_op_compress *a;
    const struct sl_cpu_kernels *k;
    void (*convert)(const float *x, void *y, uint32_t n);
    uint32_t width;
};

/* Of a slot: kv, then gate. */
static float *kept_row(const struct job *j, size_t page, uint32_t at) {
    return (float *)(void *)((char *)j->a->kept + page * j->a->kept_bytes) +
           (size_t)at * 2 * j->width;
}

static void keep_rows(void *ctx, uint32_t begin, uint32_t end) {
    const struct job *j = ctx;
    const struct sl_op_compress *a = j->a;
    size_t n = j->width;
    for (size_t t = begin; t < end; t++) {
        float *to = kept_row(j, a->slot[t] / SL_KV_PAGE_TOKENS, a->slot[t] % SL_KV_PAGE_TOKENS);
        const float *ape = a->ape + (a->row_len[t] - 1) % a->ratio * n;
        memcpy(to, a->kv + t * n, n * sizeof *to);
        for (size_t i = 0; i < n; i++)
            to[n + i] = a->gate[t * n + i] + ape[i];
    }
}

/* Channels whose sums are together in the nearest cache. */
#define AT_ONCE 64u

/* m channels, from the first-th on, of the block that row t completes. */
static void pool(const struct job *j, size_t t, uint32_t first, uint32_t m, float *y) {
    const struct sl_op_compress *a = j->a;
    const uint32_t *pages = a->kept_table + (size_t)a->row_seq[t] * a->max_pages;
    uint32_t end = a->row_len[t], own = end - a->ratio,
             n_back = a->overlap ? 2 * a->ratio : a->ratio;
    float max[AT_ONCE], sum[AT_ONCE];
    for (uint32_t c = 0; c < m; c++)
        max[c] = -INFINITY, sum[c] = y[c] = 0;
    for (uint32_t pass = 0; pass < 2; pass++)
        for (uint32_t p = end > n_back ? end - n_back : 0; p < end; p++) {
            const float *kv = kept_row(j, pages[p / SL_KV_PAGE_TOKENS], p % SL_KV_PAGE_TOKENS);
            kv += first + (a->overlap && p >= own ? a->n : 0);
            const float *gate = kv + j->width;
            for (uint32_t c = 0; !pass && c < m; c++)
                max[c] = gate[c] > max[c] ? gate[c] : max[c];
            for (uint32_t c = 0; pass && c < m; c++) {
                float e = sl_expf(gate[c] - max[c]);
                sum[c] += e;
                y[c] = fmaf(e, kv[c], y[c]);
            }
        }
    for (uint32_t c = 0; c < m; c++)
        y[c] /= sum[c];
}

static void rotate(const struct sl_op_compress *a, float *x, uint32_t pos) {
    for (uint32_t i = 0; i < a->n_freq; i++) {
        double angle = (double)pos * (double)a->inv_freq[i], c, s;
        sincos(angle, &s, &c);
        float by_cos = (float)(c * (double)a->mscale), by_sin = (float)(s * (double)a->mscale);
        float u = x[2 * i], v = x[2 * i + 1];
        x[2 * i] = fmaf(u, by_cos, -(v * by_sin));
        x[2 * i + 1] = fmaf(u, by_sin, v * by_cos);
    }
}

static void compress_rows(void *ctx, uint32_t begin, uint32_t end) {
    const struct job *j = ctx;
    const struct sl_op_compress *a = j->a;
    size_t row_bytes = sl_dtype_row_bytes(a->out.dtype, a->n);
    float y[SL_CPU_MAX_HEAD_DIM];
    for (size_t t = begin; t < end; t++) {
        if (a->row_len[t] % a->ratio)
            continue;
        uint32_t block = a->row_len[t] / a->ratio - 1;
        for (uint32_t i = 0; i < a->n; i += AT_ONCE)
            pool(j, t, i, a->n - i < AT_ONCE ? a->n - i : AT_ONCE, y + i);
        j->k->rms_norm(y, a->norm, y, a->n, a->eps);
        rotate(a, y + a->n - 2 * a->n_freq, block * a->ratio);
        for (uint32_t i = 0; a->spread && i < a->n; i += a->spread)
            sl_cpu_hadamard_row(y + i, a->spread);
        size_t page =
            a->out_table[(size_t)a->row_seq[t] * a->max_pages + sl_block_page(block, a->ratio)];
        j->convert(y,
                   (char *)a->out.rows + page * a->out.page_bytes +
                       block % sl_block_rows(a->ratio) * row_bytes,
                   a->n);
    }
}

enum sl_status sl_cpu_compress(struct sl_device *d, const struct sl_op_compress *a) {
    struct sl_cpu *cpu = (struct sl_cpu *)d;
    struct job j = {a, &cpu->k,
                    a->out.dtype == SL_DTYPE_F16 ? cpu->k.f32_to_f16 : cpu->k.f32_to_q8_0,
                    a->overlap ? 2 * a->n : a->n};
    sl_cpu_for_rows(cpu, a->n_tok, (size_t)j.width * 3, keep_rows, &j);
    sl_cpu_for_rows(cpu, a->n_tok, (size_t)a->n * 16, compress_rows, &j);
    return SL_OK;
}
