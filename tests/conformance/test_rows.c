/* sl_op_gate_heads, sl_op_temper, sl_op_center, sl_op_clamp, sl_op_limited_glu,
 * sl_op_clamped_glu, sl_op_cut_glu, sl_op_situ_glu, sl_op_bias,
 * sl_op_gelu_rows */
#include "tests/conformance/conformance.h"
#include "backends/ops/elementwise.h"
#include "backends/ops/norm.h"

#include <math.h>
#include <stdio.h>

static const struct sl_device_limits limits = {.max_tok = 600};
static const uint32_t sizes[] = {1, 7, 15, 16, 17, 33, 65, 100, 4097};

static bool lacks(enum sl_op op) {
    return conf_device() && !sl_device_has_op(conf_device(), op);
}

struct rows_case {
    const float *x, *gate;
    const int32_t *pos;
    uint32_t n_tok, n_heads, n, span;
    bool per_head, softplus;
    float by;
};

static void run_gate(struct sl_device *d, const void *ctx, void *out) {
    const struct rows_case *c = ctx;
    size_t heads = (size_t)c->n_tok * c->n_heads, n = heads * c->n;
    float *y = conf_put(d, c->x, n * sizeof *y);
    float *gate = conf_put(d, c->gate, (c->per_head ? heads : n) * sizeof *gate);
    conf_ok(sl_op_gate_heads(d, &(struct sl_op_gate_heads){.gate = gate,
                                                           .y = y,
                                                           .n_tok = c->n_tok,
                                                           .n_heads = c->n_heads,
                                                           .n = c->n,
                                                           .per_head = c->per_head,
                                                           .softplus = c->softplus}));
    conf_get(d, out, y, n * sizeof *y);
}

static void gate_heads(void) {
    conf_needs_op(SL_OP_gate_heads);
    for (size_t i = 0; i < CONF_COUNT(sizes); i++)
        for (uint32_t kind = 0; kind < 4; kind++) {
            uint32_t n = sizes[i], n_tok = n > 200 ? 2 : 9, n_heads = 1 + n % 5;
            size_t all = (size_t)n_tok * n_heads * n;
            struct sl_rng rng = {n * 4 + kind};
            float *x = conf_host(all * sizeof *x), *gate = conf_host(all * sizeof *gate);
            float *y = conf_host(all * sizeof *y);
            conf_fill(&rng, CONF_PLAIN, x, all);
            conf_fill(&rng, CONF_PLAIN, gate, all);
            for (size_t j = 0; j < all; j++)
                gate[j] *= j % 3 ? 9 : 50;
            struct rows_case c = {.x = x,
                                  .gate = gate,
                                  .n_tok = n_tok,
                                  .n_heads = n_heads,
                                  .n = n,
                                  .per_head = kind & 1,
                                  .softplus = kind & 2};
            char what[96];
            snprintf(what, sizeof what, "%u rows of %u heads of %u, kind %u", n_tok, n_heads, n,
                     kind);
            conf_tolerance(1e-6f);
            conf_case(what, run_gate, &c, CONF_F32, all, y);
            for (size_t j = 0; j < all && !conf_same_bits(); j++) {
                double g = gate[c.per_head ? j / n : j];
                double ref = x[j] * (c.softplus ? (g > 40 ? g : log1p(exp(g))) : 1 / (1 + exp(-g)));
                /* 1 + exp(g) loses what is small beside 1. */
                double tol = fabs(ref) * 0x1p-20 + fabs((double)x[j]) * 0x1p-38;
                conf_near(what, &y[j], &ref, &tol, 1);
            }
        }
}

static void run_temper(struct sl_device *d, const void *ctx, void *out) {
    const struct rows_case *c = ctx;
    size_t n = (size_t)c->n_tok * c->n;
    float *x = conf_put(d, c->x, n * sizeof *x);
    conf_ok(sl_op_temper(
        d, &(struct sl_op_temper){.x = x,
                                  .pos = conf_put(d, c->pos, c->n_tok * sizeof *c->pos),
                                  .n_tok = c->n_tok,
                                  .n = c->n,
                                  .span = c->span,
                                  .offset = c->per_head,
                                  .scale = c->by}));
    conf_get(d, out, x, n * sizeof *x);
}

static void temper(void) {
    conf_needs_op(SL_OP_temper);
    static const int32_t pos[] = {0, 1, 8190, 8191, 8192, 16382, 16383, 100000, 1 << 30};
    for (size_t i = 0; i < CONF_COUNT(sizes); i++) {
        uint32_t n = sizes[i], n_tok = CONF_COUNT(pos);
        size_t all = (size_t)n_tok * n;
        struct sl_rng rng = {n};
        float *x = conf_host(all * sizeof *x), *y = conf_host(all * sizeof *y);
        conf_fill(&rng, CONF_PLAIN, x, all);
        struct rows_case c = {.x = x,
                              .pos = pos,
                              .n_tok = n_tok,
                              .n = n,
                              .span = i % 3 ? 8192 : 1 + (uint32_t)i,
                              .per_head = i % 2, /* the offset */
                              .by = i % 2 ? 0.1f : 3.0f};
        char what[64];
        snprintf(what, sizeof what, "rows of %u, span %u", n, c.span);
        conf_tolerance(1e-6f);
        conf_case(what, run_temper, &c, CONF_F32, all, y);
        for (size_t j = 0; j < all && !conf_same_bits(); j++) {
            double ref =
                x[j] * (1 + c.by * log(floor((pos[j / n] + (double)c.per_head) / c.span) + 1));
            double tol = fabs(ref) * 0x1p-22;
            conf_near(what, &y[j], &ref, &tol, 1);
        }
    }
}

static void run_center(struct sl_device *d, const void *ctx, void *out) {
    const struct rows_case *c = ctx;
    size_t n = (size_t)c->n_tok * c->n;
    float *x = conf_put(d, c->x, n * sizeof *x);
    float *y = c->per_head ? x : conf_put(d, NULL, n * sizeof *y); /* in place or not */
    conf_ok(sl_op_center(d, &(struct sl_op_center){.x = x, .y = y, .n_tok = c->n_tok, .n = c->n}));
    conf_get(d, out, y, n * sizeof *y);
}

static void run_clamp(struct sl_device *d, const void *ctx, void *out) {
    const struct rows_case *c = ctx;
    size_t n = (size_t)c->n_tok * c->n;
    float *x = conf_put(d, c->x, n * sizeof *x);
    conf_ok(sl_op_clamp(d, &(struct sl_op_clamp){.x = x, .n = n, .limit = c->by}));
    conf_get(d, out, x, n * sizeof *x);
}

static void center_and_clamp(void) {
    for (size_t i = 0; i < CONF_COUNT(sizes); i++)
        for (int fill = 0; fill < CONF_N_FILL; fill++) {
            uint32_t n = sizes[i], n_tok = n > 200 ? 3 : 17;
            size_t all = (size_t)n_tok * n;
            struct sl_rng rng = {n + (uint32_t)fill};
            float *x = conf_host(all * sizeof *x), *y = conf_host(all * sizeof *y);
            conf_fill(&rng, (enum conf_fill)fill, x, all);
            struct rows_case c = {
                .x = x, .n_tok = n_tok, .n = n, .per_head = fill % 2, .by = 0.25f};
            char what[64];
            snprintf(what, sizeof what, "%u rows of %u, fill %d", n_tok, n, fill);
            if (!lacks(SL_OP_center)) {
                conf_tolerance(1e-5f);
                conf_case(what, run_center, &c, CONF_F32, all, y);
            }
            for (uint32_t t = 0; t < n_tok && !lacks(SL_OP_center) && !conf_same_bits(); t++) {
                double sum = 0, most = 0;
                for (uint32_t j = 0; j < n; j++) {
                    sum += x[t * n + j];
                    most = fmax(most, fabs((double)x[t * n + j]));
                }
                for (uint32_t j = 0; j < n; j++) {
                    double ref = x[t * n + j] - sum / n, tol = most * (n / 16 + 8) * 0x1p-23;
                    conf_near(what, &y[t * n + j], &ref, &tol, 1);
                }
            }
            if (lacks(SL_OP_clamp))
                continue;
            conf_case(what, run_clamp, &c, CONF_F32, all, y);
            for (size_t j = 0; j < all && !conf_same_bits(); j++) {
                double ref = fmin(fmax(x[j], -0.25), 0.25), tol = 0;
                conf_near(what, &y[j], &ref, &tol, 1);
            }
        }
}

static void run_relu_squared(struct sl_device *d, const void *ctx, void *out) {
    const struct rows_case *c = ctx;
    size_t n = (size_t)c->n_tok * c->n;
    float *x = conf_put(d, c->x, n * sizeof *x);
    conf_ok(sl_op_relu_squared(d, &(struct sl_op_relu_squared){.x = x, .n = n}));
    conf_get(d, out, x, n * sizeof *x);
}

static void relu_squared(void) {
    conf_needs_op(SL_OP_relu_squared);
    for (size_t i = 0; i < CONF_COUNT(sizes); i++)
        for (int fill = 0; fill < CONF_N_FILL; fill++) {
            uint32_t n = sizes[i], n_tok = n > 200 ? 3 : 17;
            size_t all = (size_t)n_tok * n;
            struct sl_rng rng = {n + (uint32_t)fill};
            float *x = conf_host(all * sizeof *x), *y = conf_host(all * sizeof *y);
            conf_fill(&rng, (enum conf_fill)fill, x, all);
            struct rows_case c = {.x = x, .n_tok = n_tok, .n = n};
            char what[64];
            snprintf(what, sizeof what, "%u rows of %u squared, fill %d", n_tok, n, fill);
            conf_case(what, run_relu_squared, &c, CONF_F32, all, y);
            for (size_t j = 0; j < all && !conf_same_bits(); j++) {
                double ref = x[j] > 0 ? (double)x[j] * (double)x[j] : 0;
                double tol = ref * 0x1p-23 + 0x1p-126;
                conf_near(what, &y[j], &ref, &tol, 1);
            }
        }
}

static void run_bias(struct sl_device *d, const void *ctx, void *out) {
    const struct rows_case *c = ctx;
    size_t n = (size_t)c->n_tok * c->n;
    float *x = conf_put(d, c->x, n * sizeof *x);
    conf_ok(sl_op_bias(d, &(struct sl_op_bias){.x = x,
                                               .b = conf_put(d, c->gate, c->n * sizeof *c->gate),
                                               .n_tok = c->n_tok,
                                               .n = c->n}));
    conf_get(d, out, x, n * sizeof *x);
}

static void bias(void) {
    conf_needs_op(SL_OP_bias);
    for (size_t i = 0; i < CONF_COUNT(sizes); i++)
        for (int fill = 0; fill < CONF_N_FILL; fill++) {
            uint32_t n = sizes[i], n_tok = n > 200 ? 3 : 17;
            size_t all = (size_t)n_tok * n;
            struct sl_rng rng = {n + (uint32_t)fill};
            float *x = conf_host(all * sizeof *x), *b = conf_host(n * sizeof *b);
            float *y = conf_host(all * sizeof *y);
            conf_fill(&rng, (enum conf_fill)fill, x, all);
            conf_fill(&rng, CONF_PLAIN, b, n);
            struct rows_case c = {.x = x, .gate = b, .n_tok = n_tok, .n = n};
            char what[64];
            snprintf(what, sizeof what, "%u rows of %u, fill %d", n_tok, n, fill);
            conf_tolerance(0);
            conf_case(what, run_bias, &c, CONF_F32, all, y);
            for (size_t j = 0; j < all && !conf_same_bits(); j++) {
                double ref = (double)x[j] + (double)b[j % n], tol = fabs(ref) * 0x1p-23 + 0x1p-140;
                conf_near(what, &y[j], &ref, &tol, 1);
            }
        }
}

static void run_gelu_rows(struct sl_device *d, const void *ctx, void *out) {
    const struct rows_case *c = ctx;
    size_t bytes = (size_t)c->n_tok * c->n * sizeof(float);
    float *gate = conf_put(d, c->gate, bytes), *y = c->per_head ? gate : conf_put(d, NULL, bytes);
    conf_ok(sl_op_gelu_rows(
        d, &(struct sl_op_gelu_rows){
               .gate = gate,
               .up = conf_put(d, c->x, (size_t)2 * c->n_tok * c->span * sizeof(float)),
               .rows = c->pos ? conf_put(d, c->pos, c->n_tok * sizeof *c->pos) : NULL,
               .y = y,
               .n_tok = c->n_tok,
               .n = c->n,
               .stride_up = c->span}));
    conf_get(d, out, y, bytes);
}

/* The other factor is a part of wider rows, in order or picked. */
static void gelu_rows(void) {
    conf_needs_op(SL_OP_gelu_rows);
    for (size_t i = 0; i < CONF_COUNT(sizes); i++)
        for (uint32_t kind = 0; kind < 4; kind++) {
            uint32_t n = sizes[i], n_tok = n > 200 ? 2 : 9, stride = n + kind * 5;
            size_t all = (size_t)n_tok * n, wide = (size_t)2 * n_tok * stride;
            struct sl_rng rng = {n * 4 + kind};
            float *gate = conf_host(all * sizeof *gate), *up = conf_host(wide * sizeof *up);
            float *y = conf_host(all * sizeof *y);
            int32_t rows[9];
            conf_fill(&rng, CONF_PLAIN, gate, all);
            conf_fill(&rng, CONF_PLAIN, up, wide);
            for (size_t j = 0; j < all; j++)
                gate[j] *= 3;
            for (uint32_t t = 0; t < n_tok; t++)
                rows[t] = (int32_t)(kind & 2 ? (t * 7 + 3) % (2 * n_tok) : t);
            struct rows_case c = {.x = up,
                                  .gate = gate,
                                  .pos = kind & 2 ? rows : NULL,
                                  .n_tok = n_tok,
                                  .n = n,
                                  .span = stride,
                                  .per_head = kind & 1};
            char what[64];
            snprintf(what, sizeof what, "%u rows of %u, kind %u", n_tok, n, kind);
            conf_tolerance(1e-6f);
            conf_case(what, run_gelu_rows, &c, CONF_F32, all, y);
            for (size_t j = 0; j < all && !conf_same_bits(); j++) {
                double g = gate[j];
                double u = up[(size_t)rows[j / n] * stride + j % n];
                double ref = 0.5 * g * (1 + tanh(sqrt(2 / M_PI) * (g + 0.044715 * g * g * g))) * u;
                double tol = fabs(ref) * 0x1p-19 + fabs(u) * 0x1p-40;
                conf_near(what, &y[j], &ref, &tol, 1);
            }
        }
}

static void run_glu(struct sl_device *d, const void *ctx, void *out) {
    const struct rows_case *c = ctx;
    size_t bytes = c->n * sizeof(float);
    float *gate = conf_put(d, c->gate, bytes), *y = c->per_head ? gate : conf_put(d, NULL, bytes);
    conf_ok(sl_op_limited_glu(
        d, &(struct sl_op_limited_glu){
               .gate = gate, .up = conf_put(d, c->x, bytes), .y = y, .n = c->n, .limit = c->by}));
    conf_get(d, out, y, bytes);
}

static void limited_glu(void) {
    conf_needs_op(SL_OP_limited_glu);
    for (size_t i = 0; i < CONF_COUNT(sizes); i++)
        for (int fill = 0; fill < CONF_N_FILL; fill++) {
            uint32_t n = sizes[i];
            struct sl_rng rng = {n + (uint32_t)fill};
            float *gate = conf_host(n * sizeof *gate), *up = conf_host(n * sizeof *up);
            float *y = conf_host(n * sizeof *y);
            conf_fill(&rng, (enum conf_fill)fill, gate, n);
            conf_fill(&rng, CONF_PLAIN, up, n);
            struct rows_case c = {
                .x = up, .gate = gate, .n = n, .per_head = fill % 2, .by = 0.2f + (float)fill};
            char what[64];
            snprintf(what, sizeof what, "%u elements, fill %d", n, fill);
            conf_tolerance(1e-6f);
            conf_case(what, run_glu, &c, CONF_F32, n, y);
            for (uint32_t j = 0; j < n && !conf_same_bits(); j++) {
                double l = c.by, g = gate[j];
                double ref = fmin(g / (1 + exp(-g)), l) * fmin(fmax(up[j], -l), l);
                double tol = fabs(ref) * 0x1p-20 + 0x1p-120;
                conf_near(what, &y[j], &ref, &tol, 1);
            }
        }
}

static void run_clamped(struct sl_device *d, const void *ctx, void *out) {
    const struct rows_case *c = ctx;
    size_t bytes = c->n * sizeof(float);
    float *gate = conf_put(d, c->gate, bytes), *y = c->per_head ? gate : conf_put(d, NULL, bytes);
    conf_ok(
        sl_op_clamped_glu(d, &(struct sl_op_clamped_glu){
                                 .gate = gate, .up = conf_put(d, c->x, bytes), .y = y, .n = c->n}));
    conf_get(d, out, y, bytes);
}

static void clamped_glu(void) {
    conf_needs_op(SL_OP_clamped_glu);
    for (size_t i = 0; i < CONF_COUNT(sizes); i++)
        for (int fill = 0; fill < CONF_N_FILL; fill++) {
            uint32_t n = sizes[i];
            struct sl_rng rng = {n + (uint32_t)fill};
            float *gate = conf_host(n * sizeof *gate), *up = conf_host(n * sizeof *up);
            float *y = conf_host(n * sizeof *y);
            conf_fill(&rng, (enum conf_fill)fill, gate, n);
            conf_fill(&rng, CONF_PLAIN, up, n);
            for (uint32_t j = 0; j < n; j++) /* many beyond the limits */
                gate[j] *= 6, up[j] *= 6;
            struct rows_case c = {.x = up, .gate = gate, .n = n, .per_head = fill % 2};
            char what[64];
            snprintf(what, sizeof what, "%u elements, fill %d", n, fill);
            conf_tolerance(1e-6f);
            conf_case(what, run_clamped, &c, CONF_F32, n, y);
            for (uint32_t j = 0; j < n && !conf_same_bits(); j++) {
                double g = fmin(gate[j], 7), u = fmin(fmax(up[j], -7), 7);
                double swish = g / (1 + exp(-1.702 * g)), ref = swish * (u + 1);
                /* the exponential's argument is rounded, and so is u + 1 */
                double tol = fabs(swish) * (fabs(u) + 1) * (8 + 2 * fabs(g)) * 0x1p-23 + 0x1p-120;
                conf_near(what, &y[j], &ref, &tol, 1);
            }
        }
}

static void run_cut(struct sl_device *d, const void *ctx, void *out) {
    const struct rows_case *c = ctx;
    size_t bytes = c->n * sizeof(float);
    float *gate = conf_put(d, c->gate, bytes), *y = c->per_head ? gate : conf_put(d, NULL, bytes);
    conf_ok(sl_op_cut_glu(
        d, &(struct sl_op_cut_glu){
               .gate = gate, .up = conf_put(d, c->x, bytes), .y = y, .n = c->n, .limit = 2.5f}));
    conf_get(d, out, y, bytes);
}

static void cut_glu(void) {
    conf_needs_op(SL_OP_cut_glu);
    for (size_t i = 0; i < CONF_COUNT(sizes); i++)
        for (int fill = 0; fill < CONF_N_FILL; fill++) {
            uint32_t n = sizes[i];
            struct sl_rng rng = {n + (uint32_t)fill + 5};
            float *gate = conf_host(n * sizeof *gate), *up = conf_host(n * sizeof *up);
            float *y = conf_host(n * sizeof *y);
            conf_fill(&rng, (enum conf_fill)fill, gate, n);
            conf_fill(&rng, CONF_PLAIN, up, n);
            for (uint32_t j = 0; j < n; j++) /* many beyond the limit */
                gate[j] *= 6, up[j] *= 6;
            struct rows_case c = {.x = up, .gate = gate, .n = n, .per_head = fill % 2};
            char what[64];
            snprintf(what, sizeof what, "%u elements, fill %d", n, fill);
            conf_tolerance(1e-6f);
            conf_case(what, run_cut, &c, CONF_F32, n, y);
            for (uint32_t j = 0; j < n && !conf_same_bits(); j++) {
                double g = fmin(gate[j], 2.5), u = fmin(fmax(up[j], -2.5), 2.5);
                double ref = g / (1 + exp(-g)) * u;
                double tol = fabs(ref) * (8 + 2 * fabs(g)) * 0x1p-23 + 0x1p-120;
                conf_near(what, &y[j], &ref, &tol, 1);
            }
        }
}

static void run_situ(struct sl_device *d, const void *ctx, void *out) {
    const struct rows_case *c = ctx;
    size_t bytes = c->n * sizeof(float);
    float *gate = conf_put(d, c->gate, bytes), *y = c->per_head ? gate : conf_put(d, NULL, bytes);
    conf_ok(sl_op_situ_glu(d, &(struct sl_op_situ_glu){.gate = gate,
                                                       .up = conf_put(d, c->x, bytes),
                                                       .y = y,
                                                       .n = c->n,
                                                       .limit = 4,
                                                       .limit_up = c->per_head ? 0 : 2.5f}));
    conf_get(d, out, y, bytes);
}

static void situ_glu(void) {
    conf_needs_op(SL_OP_situ_glu);
    for (size_t i = 0; i < CONF_COUNT(sizes); i++)
        for (int fill = 0; fill < CONF_N_FILL; fill++) {
            uint32_t n = sizes[i];
            struct sl_rng rng = {n + (uint32_t)fill + 6};
            float *gate = conf_host(n * sizeof *gate), *up = conf_host(n * sizeof *up);
            float *y = conf_host(n * sizeof *y);
            conf_fill(&rng, (enum conf_fill)fill, gate, n);
            conf_fill(&rng, CONF_PLAIN, up, n);
            for (uint32_t j = 0; j < n; j++) /* many beyond the limits */
                gate[j] *= 8, up[j] *= 6;
            struct rows_case c = {.x = up, .gate = gate, .n = n, .per_head = fill % 2};
            char what[64];
            snprintf(what, sizeof what, "%u elements, fill %d", n, fill);
            conf_tolerance(1e-5f);
            conf_case(what, run_situ, &c, CONF_F32, n, y);
            for (uint32_t j = 0; j < n && !conf_same_bits(); j++) {
                double g = gate[j], u = up[j], sigmoid = 1 / (1 + exp(-g));
                double capped = 4 * tanh(g / 4), ref = c.per_head ? u : 2.5 * tanh(u / 2.5);
                /* each cap to some 2^-22 of its limit */
                double tol =
                    0x1p-21 * (4 * fabs(ref) + (c.per_head ? 0 : 2.5 * fabs(capped))) * sigmoid +
                    fabs(capped * sigmoid * ref) * (8 + 2 * fabs(g)) * 0x1p-23 + 0x1p-120;
                ref *= capped * sigmoid;
                conf_near(what, &y[j], &ref, &tol, 1);
            }
        }
}

int main(int argc, char **argv) {
    static const struct conf_test tests[] = {{"gate_heads", gate_heads},
                                             {"temper", temper},
                                             {"center, clamp", center_and_clamp},
                                             {"limited_glu", limited_glu},
                                             {"clamped_glu", clamped_glu},
                                             {"cut_glu", cut_glu},
                                             {"situ_glu", situ_glu},
                                             {"bias", bias},
                                             {"gelu_rows", gelu_rows},
                                             {"relu_squared", relu_squared}};
    return conf_main(argc, argv, "rows", &limits, tests, CONF_COUNT(tests));
}
