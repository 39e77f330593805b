/* sl_op_silu_mul, sl_op_add_gated, sl_op_moe_combine, sl_op_gather_rows, sl_op_block_max */
#include "tests/conformance/conformance.h"
#include "backends/ops/elementwise.h"
#include "backends/ops/moe.h"
#include "backends/ops/rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct sl_device_limits limits = {.max_tok = 600, .max_pairs = 5000};

static const uint32_t sizes[] = {1, 7, 15, 16, 17, 33, 63, 64, 65, 100, 768, 1000, 2048, 16391};

struct binary_case {
    const float *a, *b, *gate;
    uint32_t n_tok, n;
    bool in_place;
};

static void run_silu(struct sl_device *d, const void *ctx, void *out) {
    const struct binary_case *c = ctx;
    size_t bytes = c->n * sizeof(float);
    float *gate = conf_put(d, c->a, bytes);
    float *y = c->in_place ? gate : conf_put(d, NULL, bytes);
    conf_ok(sl_op_silu_mul(
        d,
        &(struct sl_op_silu_mul){.gate = gate, .up = conf_put(d, c->b, bytes), .y = y, .n = c->n}));
    conf_get(d, out, y, bytes);
}

static void silu_mul(void) {
    for (size_t i = 0; i < CONF_COUNT(sizes); i++)
        for (int fill = 0; fill < CONF_N_FILL; fill++) {
            uint32_t n = sizes[i];
            struct sl_rng rng = {n + (uint32_t)fill};
            float *a = conf_host(n * sizeof *a), *b = conf_host(n * sizeof *b);
            float *y = conf_host(n * sizeof *y);
            conf_fill(&rng, (enum conf_fill)fill, a, n);
            conf_fill(&rng, CONF_PLAIN, b, n);
            for (uint32_t j = 0; j < n && fill == CONF_PLAIN; j++)
                a[j] *= 110; /* past both ends of exp */
            struct binary_case c = {.a = a, .b = b, .n = n, .in_place = fill % 2};
            char what[96];
            snprintf(what, sizeof what, "%u elements, fill %d", n, fill);
            conf_case(what, run_silu, &c, CONF_F32, n, y);
            for (uint32_t j = 0; j < n; j++) {
                double s = a[j] / (1 + exp(-(double)a[j])), ref = s * b[j];
                /* Below -88.7 exp(-x) overflows and silu is 0 instead of some 1e-37. */
                double tol = fabs(ref) * 5 * 0x1p-24 + 0x1p-120;
                conf_near(what, &y[j], &ref, &tol, 1);
            }
        }
}

static void run_add(struct sl_device *d, const void *ctx, void *out) {
    const struct binary_case *c = ctx;
    size_t bytes = (size_t)c->n_tok * c->n * sizeof(float);
    float *y = conf_put(d, c->b, bytes);
    const float *gate = c->gate ? conf_put(d, c->gate, c->n_tok * sizeof(float)) : NULL;
    conf_ok(sl_op_add_gated(
        d, &(struct sl_op_add_gated){
               .x = conf_put(d, c->a, bytes), .gate = gate, .y = y, .n_tok = c->n_tok, .n = c->n}));
    conf_get(d, out, y, bytes);
}

static void add_gated(void) {
    for (size_t i = 0; i < CONF_COUNT(sizes); i++)
        for (int fill = 0; fill < CONF_N_FILL; fill++)
            for (int gated = 0; gated < 2; gated++) {
                uint32_t n = sizes[i], n_tok = n < 100 ? 37 : 5;
                size_t all = (size_t)n * n_tok;
                struct sl_rng rng = {n + (uint32_t)fill};
                float *a = conf_host(all * sizeof *a), *b = conf_host(all * sizeof *b);
                float *y = conf_host(all * sizeof *y), *gate = conf_host(n_tok * sizeof *gate);
                conf_fill(&rng, (enum conf_fill)fill, a, all);
                conf_fill(&rng, CONF_PLAIN, b, all);
                conf_fill(&rng, CONF_PLAIN, gate, n_tok);
                for (uint32_t t = 0; t < n_tok; t++)
                    gate[t] *= 12;
                struct binary_case c = {a, b, gated ? gate : NULL, n_tok, n, false};
                char what[96];
                snprintf(what, sizeof what, "%u rows of %u, fill %d%s", n_tok, n, fill,
                         gated ? ", gated" : "");
                conf_case(what, run_add, &c, CONF_F32, all, y);
                for (size_t j = 0; j < all; j++) {
                    double g = gated ? 1 / (1 + exp(-(double)gate[j / n])) : 1;
                    double ref = b[j] + a[j] * g;
                    double tol = (fabs((double)b[j]) + fabs(a[j] * g)) * 4 * 0x1p-24;
                    conf_near(what, &y[j], &ref, &tol, 1);
                }
            }
}

struct combine_case {
    const float *x, *w, *y;
    uint32_t n_tok, k, n;
};

static void run_combine(struct sl_device *d, const void *ctx, void *out) {
    const struct combine_case *c = ctx;
    size_t pairs = (size_t)c->n_tok * c->k, bytes = (size_t)c->n_tok * c->n * sizeof(float);
    float *y = conf_put(d, c->y, bytes);
    conf_ok(sl_op_moe_combine(
        d, &(struct sl_op_moe_combine){.pair_y = conf_put(d, c->x, pairs * c->n * sizeof(float)),
                                       .weights = conf_put(d, c->w, pairs * sizeof(float)),
                                       .y = y,
                                       .n_tok = c->n_tok,
                                       .k = c->k,
                                       .n = c->n}));
    conf_get(d, out, y, bytes);
}

static void moe_combine(void) {
    static const uint32_t k[] = {1, 2, 4, 8, 13, 64};
    for (size_t i = 0; i < CONF_COUNT(sizes); i++)
        for (size_t j = 0; j < CONF_COUNT(k); j++) {
            uint32_t n = sizes[i], n_tok = n > 2000 ? 2 : 5;
            size_t all = (size_t)n * n_tok, pairs = (size_t)n_tok * k[j];
            struct sl_rng rng = {n + k[j]};
            float *x = conf_host(pairs * n * sizeof *x), *w = conf_host(pairs * sizeof *w);
            float *y0 = conf_host(all * sizeof *y0), *y = conf_host(all * sizeof *y);
            conf_fill(&rng, (enum conf_fill)((i + j) % CONF_N_FILL), x, pairs * n);
            conf_fill(&rng, CONF_PLAIN, w, pairs);
            conf_fill(&rng, CONF_PLAIN, y0, all);
            struct combine_case c = {x, w, y0, n_tok, k[j], n};
            char what[96];
            snprintf(what, sizeof what, "%u rows of %u, %u experts", n_tok, n, k[j]);
            conf_case(what, run_combine, &c, CONF_F32, all, y);
            for (size_t e = 0; e < all; e++) {
                size_t t = e / n;
                double ref = y0[e], size = fabs((double)y0[e]);
                for (uint32_t r = 0; r < k[j]; r++) {
                    double p = (double)w[t * k[j] + r] * x[(t * k[j] + r) * n + e % n];
                    ref += p, size += fabs(p);
                }
                double tol = size * (k[j] + 1) * 0x1p-24;
                conf_near(what, &y[e], &ref, &tol, 1);
            }
        }
}

struct gather_case {
    const float *x;
    const uint32_t *rows;
    uint32_t n_in, n_out, n;
};

static void run_gather(struct sl_device *d, const void *ctx, void *out) {
    const struct gather_case *c = ctx;
    size_t bytes = (size_t)c->n_out * c->n * sizeof(float);
    float *y = conf_put(d, NULL, bytes);
    conf_ok(sl_op_gather_rows(d, &(struct sl_op_gather_rows){
                                     .x = conf_put(d, c->x, (size_t)c->n_in * c->n * sizeof(float)),
                                     .rows = conf_put(d, c->rows, c->n_out * sizeof(uint32_t)),
                                     .y = y,
                                     .n_out = c->n_out,
                                     .n = c->n}));
    conf_get(d, out, y, bytes);
}

static void gather(void) {
    static const uint32_t n_out[] = {1, 3, 200};
    for (size_t i = 0; i < CONF_COUNT(sizes); i++)
        for (size_t j = 0; j < CONF_COUNT(n_out); j++) {
            enum { N_IN = 9 };
            uint32_t n = sizes[i];
            struct sl_rng rng = {n};
            float *x = conf_host((size_t)N_IN * n * sizeof *x);
            float *y = conf_host((size_t)n_out[j] * n * sizeof *y);
            uint32_t *rows = conf_host(n_out[j] * sizeof *rows);
            conf_fill(&rng, CONF_WIDE, x, (size_t)N_IN * n);
            for (uint32_t r = 0; r < n_out[j]; r++)
                rows[r] = sl_rng_below(&rng, N_IN);
            struct gather_case c = {x, rows, N_IN, n_out[j], n};
            conf_case("gather", run_gather, &c, CONF_F32, (size_t)n_out[j] * n, y);
            for (uint32_t r = 0; r < n_out[j]; r++)
                assert_memory_equal(y + (size_t)r * n, x + (size_t)rows[r] * n, n * sizeof *x);
        }
}

/* ---- block_max ---- */

#define N_BLOCKS(n) (((n) + SL_BLOCK_MAX_ELEMS - 1) / SL_BLOCK_MAX_ELEMS)

struct block_case {
    const float *x;
    uint32_t n_tok, n;
    const float *inv_t; /* [n_tok] NULL: the maxima alone; else behind them where they are, as
                           floats, and the sums */
};

static void run_block_max(struct sl_device *d, const void *ctx, void *out) {
    const struct block_case *c = ctx;
    size_t n_max = (size_t)c->n_tok * N_BLOCKS(c->n), bytes = n_max * sizeof(float);
    float *max = conf_put(d, NULL, bytes), *places = (float *)out + n_max;
    float *sum = c->inv_t ? conf_put(d, NULL, bytes) : NULL;
    uint32_t *at = c->inv_t ? conf_put(d, NULL, bytes) : NULL;
    conf_ok(sl_op_block_max(
        d, &(struct sl_op_block_max){
               .x = conf_put(d, c->x, (size_t)c->n_tok * c->n * sizeof(float)),
               .max = max,
               .at = at,
               .sum = sum,
               .inv_t = sum ? conf_put(d, c->inv_t, c->n_tok * sizeof(float)) : NULL,
               .n_tok = c->n_tok,
               .n = c->n}));
    conf_get(d, out, max, bytes);
    if (!at)
        return;
    conf_get(d, places + n_max, sum, bytes);
    uint32_t *host_at = conf_host(bytes);
    conf_get(d, host_at, at, bytes);
    for (size_t i = 0; i < n_max; i++)
        places[i] = (float)host_at[i];
}

/* Sorted, +0 behind -0 and NaN last, as fmaxf and > are not used. */
static int by_value(const void *pa, const void *pb) {
    float a = *(const float *)pa, b = *(const float *)pb;
    if (isnan(a) || isnan(b))
        return (isnan(a) != 0) - (isnan(b) != 0);
    if (a == b)
        return (signbit(b) != 0) - (signbit(a) != 0);
    return a < b ? -1 : 1;
}

/* Of a block of m: near what double gives, all of it at the largest. */
static void check_sum(const float *x, size_t m, float max, float inv_t, float sum) {
    double want = 0;
    for (size_t i = 0; i < m && isfinite(max) && inv_t > 0; i++)
        want += exp(((double)x[i] - (double)max) * (double)inv_t);
    assert_true(fabs((double)sum - want) <= 1e-4 * want);
}

static void check_block_max(const char *what, const float *x, uint32_t n_tok, uint32_t n) {
    static const float inv_t[] = {1, 0.8f, 0, 0x1p60f, 3, 1.5f, -1, 0.01f};
    struct block_case c = {x, n_tok, n, NULL};
    size_t n_max = (size_t)n_tok * N_BLOCKS(n);
    float *max = conf_host(3 * n_max * sizeof *max);
    assert_true(n_tok <= CONF_COUNT(inv_t));
    conf_case(what, run_block_max, &c, CONF_F32, n_max, max);
    c.inv_t = inv_t;
    conf_case(what, run_block_max, &c, CONF_F32, 3 * n_max, max);
    for (size_t i = 0; i < n_max && conf_checking(); i++) {
        float sorted[SL_BLOCK_MAX_ELEMS];
        size_t at = i % N_BLOCKS(n) * SL_BLOCK_MAX_ELEMS, left = n - at;
        size_t m = left < SL_BLOCK_MAX_ELEMS ? left : SL_BLOCK_MAX_ELEMS;
        memcpy(sorted, x + i / N_BLOCKS(n) * n + at, m * sizeof *x);
        qsort(sorted, m, sizeof *sorted, by_value);
        if (isnan(sorted[m - 1]))
            assert_true(isnan(max[i]));
        else
            assert_memory_equal(&max[i], &sorted[m - 1], sizeof *max);
        size_t first = 0;
        while (!isnan(max[i]) && x[i / N_BLOCKS(n) * n + at + first] != max[i])
            first++;
        assert_true(max[n_max + i] == (float)first);
        check_sum(x + i / N_BLOCKS(n) * n + at, m, max[i], inv_t[i / N_BLOCKS(n)],
                  max[2 * n_max + i]);
    }
}

static void block_max(void) {
    static const uint32_t more[] = {127, 128, 129, 511, 513, 151936};
    static const float odd[] = {NAN, -NAN, INFINITY, -INFINITY, 0.0f, -0.0f};
    for (size_t i = 0; i < CONF_COUNT(sizes) + CONF_COUNT(more); i++)
        for (int fill = 0; fill < CONF_N_FILL; fill++) {
            uint32_t n = i < CONF_COUNT(sizes) ? sizes[i] : more[i - CONF_COUNT(sizes)];
            uint32_t n_tok = n > 2000 ? 3 : 8;
            struct sl_rng rng = {n + (uint32_t)fill};
            float *x = conf_host((size_t)n_tok * n * sizeof *x);
            conf_fill(&rng, (enum conf_fill)fill, x, (size_t)n_tok * n);
            for (uint32_t j = 0; j < n_tok * (n / 500 + 1); j++)
                x[sl_rng_below(&rng, n_tok * n)] = odd[sl_rng_below(&rng, CONF_COUNT(odd))];
            char what[64];
            snprintf(what, sizeof what, "%u rows of %u, fill %d", n_tok, n, fill);
            check_block_max(what, x, n_tok, n);
        }
}

/* Rows that are the same all through, or but for one element: the last, the first, one within. */
static void block_max_plain(void) {
    static const float all[] = {-INFINITY, NAN, -0.0f, 0.0f, -3.5f, -0x1p-140f};
    static const float one[] = {-0.0f, 0.0f, -3.25f, NAN, INFINITY};
    for (size_t a = 0; a < CONF_COUNT(all); a++)
        for (size_t o = 0; o < CONF_COUNT(one); o++) {
            enum { N = 131, ROWS = 4 };
            float *x = conf_host(ROWS * N * sizeof *x);
            for (uint32_t i = 0; i < ROWS * N; i++)
                x[i] = all[a];
            x[N + N - 1] = x[2 * N] = x[3 * N + 33] = x[3 * N + 100] = one[o];
            check_block_max("one among equals", x, ROWS, N);
        }
}

int main(int argc, char **argv) {
    static const struct conf_test tests[] = {
        {"silu_mul", silu_mul},  {"add_gated", add_gated}, {"moe_combine", moe_combine},
        {"gather_rows", gather}, {"block_max", block_max}, {"block_max_plain", block_max_plain}};
    return conf_main(argc, argv, "elementwise", &limits, tests, CONF_COUNT(tests));
}
