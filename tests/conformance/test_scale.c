/* sl_op_gelu_mul, sl_op_scale, and what caps.extra_args adds to sl_op_moe_combine */
#include "tests/conformance/conformance.h"
#include "backends/ops/elementwise.h"
#include "backends/ops/moe.h"

#include <math.h>
#include <stdio.h>

static const struct sl_device_limits limits = {.max_tok = 600, .max_pairs = 5000};

static const uint32_t sizes[] = {1, 7, 15, 16, 17, 33, 63, 64, 65, 100, 768, 1000, 2048, 16391};

struct glu_case {
    const float *gate, *up;
    uint32_t n;
    bool in_place;
};

static void run_gelu(struct sl_device *d, const void *ctx, void *out) {
    const struct glu_case *c = ctx;
    size_t bytes = c->n * sizeof(float);
    float *gate = conf_put(d, c->gate, bytes);
    float *y = c->in_place ? gate : conf_put(d, NULL, bytes);
    conf_ok(
        sl_op_gelu_mul(d, &(struct sl_op_gelu_mul){
                              .gate = gate, .up = conf_put(d, c->up, bytes), .y = y, .n = c->n}));
    conf_get(d, out, y, bytes);
}

static void gelu_mul(void) {
    if (!sl_device_has_op(conf_device(), SL_OP_gelu_mul))
        return;
    for (size_t i = 0; i < CONF_COUNT(sizes); i++)
        for (int fill = 0; fill < CONF_N_FILL; fill++) {
            uint32_t n = sizes[i];
            struct sl_rng rng = {n + (uint32_t)fill};
            float *a = conf_host(n * sizeof *a), *b = conf_host(n * sizeof *b);
            float *y = conf_host(n * sizeof *y);
            conf_fill(&rng, (enum conf_fill)fill, a, n);
            conf_fill(&rng, CONF_PLAIN, b, n);
            for (uint32_t j = 0; j < n && fill == CONF_PLAIN; j++)
                a[j] *= 9; /* past both ends */
            struct glu_case c = {a, b, n, fill % 2};
            char what[96];
            snprintf(what, sizeof what, "%u elements, fill %d", n, fill);
            conf_case(what, run_gelu, &c, CONF_F32, n, y);
            for (uint32_t j = 0; j < n; j++) {
                double x = a[j], inner = sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
                double ref = 0.5 * x * (1 + tanh(inner)) * b[j];
                /* The exponent's rounding is relative to its size; where it is large gelu is x, or
                 * nothing beside the largest error that tanh leaves of 1 + tanh. */
                double tol = fabs(ref) * (fmin(fabs(inner), 45) * 10 + 8) * 0x1p-24 +
                             fabs(x) * 0x1p-50 + 0x1p-120;
                conf_near(what, &y[j], &ref, &tol, 1);
            }
        }
}

struct scale_case {
    const float *x, *by, *rows;
    uint32_t n_tok, n;
    float scale, cap;
    bool apart;
};

static void run_scale(struct sl_device *d, const void *ctx, void *out) {
    const struct scale_case *c = ctx;
    size_t bytes = (size_t)c->n_tok * c->n * sizeof(float);
    float *x = conf_put(d, c->x, bytes), *y = c->apart ? conf_put(d, NULL, bytes) : NULL;
    conf_ok(
        sl_op_scale(d, &(struct sl_op_scale){
                           .x = x,
                           .by = c->by ? conf_put(d, c->by, sizeof *c->by) : NULL,
                           .rows = c->rows ? conf_put(d, c->rows, c->n_tok * sizeof(float)) : NULL,
                           .y = y,
                           .n_tok = c->n_tok,
                           .n = c->n,
                           .scale = c->scale,
                           .cap = c->cap}));
    conf_get(d, out, y ? y : x, bytes);
}

static void scale(void) {
    if (!sl_device_has_op(conf_device(), SL_OP_scale))
        return;
    for (size_t i = 0; i < CONF_COUNT(sizes); i++)
        for (int fill = 0; fill < CONF_N_FILL; fill++)
            for (uint32_t mode = 0; mode < 6; mode++) {
                uint32_t n = sizes[i], n_tok = n < 100 ? 37 : 3;
                size_t all = (size_t)n * n_tok;
                struct sl_rng rng = {n + (uint32_t)fill};
                float *x = conf_host(all * sizeof *x), *y = conf_host(all * sizeof *y);
                float *rows = conf_host(n_tok * sizeof *rows), by = 0.75f;
                conf_fill(&rng, (enum conf_fill)fill, x, all);
                conf_fill(&rng, CONF_PLAIN, rows, n_tok);
                struct scale_case c = {.x = x,
                                       .by = mode & 1 ? &by : NULL,
                                       .rows = mode & 2 ? rows : NULL,
                                       .n_tok = n_tok,
                                       .n = n,
                                       .scale = mode % 3 ? 40.0f : 1.0f,
                                       .cap = mode >= 3 ? 30.0f : 0.0f,
                                       .apart = mode == 2 || mode == 4};
                char what[96];
                snprintf(what, sizeof what, "%u rows of %u, fill %d, mode %u", n_tok, n, fill,
                         mode);
                conf_case(what, run_scale, &c, CONF_F32, all, y);
                for (size_t j = 0; j < all; j++) {
                    double ref = x[j] * (double)c.scale * (c.by ? (double)by : 1) *
                                 (c.rows ? (double)rows[j / n] : 1);
                    double tol = fabs(ref) * 4 * 0x1p-24 + 0x1p-140;
                    if (c.cap > 0) {
                        ref = (double)c.cap * tanh(ref / (double)c.cap);
                        tol = fmin(tol, (double)c.cap) + (double)c.cap * 8 * 0x1p-24;
                    }
                    conf_near(what, &y[j], &ref, &tol, 1);
                }
            }
}

struct combine_case {
    const float *x, *w;
    uint32_t n_tok, k, n;
};

static void run_combine(struct sl_device *d, const void *ctx, void *out) {
    const struct combine_case *c = ctx;
    size_t pairs = (size_t)c->n_tok * c->k, bytes = (size_t)c->n_tok * c->n * sizeof(float);
    float *y = conf_put(d, NULL, bytes); /* NaN before */
    conf_ok(sl_op_moe_combine(
        d, &(struct sl_op_moe_combine){.pair_y = conf_put(d, c->x, pairs * c->n * sizeof(float)),
                                       .weights = conf_put(d, c->w, pairs * sizeof(float)),
                                       .y = y,
                                       .n_tok = c->n_tok,
                                       .k = c->k,
                                       .n = c->n,
                                       .set = true}));
    conf_get(d, out, y, bytes);
}

static void combine_set(void) {
    if (!conf_device()->caps.extra_args)
        return;
    for (size_t i = 0; i < CONF_COUNT(sizes); i++) {
        uint32_t n = sizes[i], n_tok = n > 2000 ? 2 : 33, k = 1 + (uint32_t)i % 5;
        size_t all = (size_t)n * n_tok, pairs = (size_t)n_tok * k;
        struct sl_rng rng = {n + k};
        float *x = conf_host(pairs * n * sizeof *x), *w = conf_host(pairs * sizeof *w);
        float *y = conf_host(all * sizeof *y);
        conf_fill(&rng, CONF_PLAIN, x, pairs * n);
        conf_fill(&rng, CONF_PLAIN, w, pairs);
        struct combine_case c = {x, w, n_tok, k, n};
        char what[96];
        snprintf(what, sizeof what, "%u rows of %u, %u experts", n_tok, n, k);
        conf_case(what, run_combine, &c, CONF_F32, all, y);
        for (size_t e = 0; e < all; e++) {
            double ref = 0, size = 0;
            for (uint32_t r = 0; r < k; r++) {
                double p = (double)w[e / n * k + r] * x[(e / n * k + r) * n + e % n];
                ref += p, size += fabs(p);
            }
            double tol = size * (k + 1) * 0x1p-24;
            conf_near(what, &y[e], &ref, &tol, 1);
        }
    }
}

int main(int argc, char **argv) {
    static const struct conf_test tests[] = {
        {"gelu_mul", gelu_mul}, {"scale", scale}, {"moe_combine, set", combine_set}};
    return conf_main(argc, argv, "scale", &limits, tests, CONF_COUNT(tests));
}
