/* sl_op_rms_norm */
#include "tests/conformance/conformance.h"
#include "backends/ops/norm.h"

#include <math.h>
#include <stdio.h>

static const struct sl_device_limits limits = {.max_tok = 64};

struct norm_case {
    uint32_t n_rows, n, stride_x, stride_y;
    const float *x, *w;
    float eps;
    bool in_place;
};

static void run(struct sl_device *d, const void *ctx, void *out) {
    const struct norm_case *c = ctx;
    size_t nx = (size_t)c->n_rows * c->stride_x, ny = (size_t)c->n_rows * c->stride_y;
    float *x = conf_put(d, c->x, nx * sizeof(float));
    float *y = c->in_place ? x : conf_put(d, NULL, ny * sizeof(float));
    const float *w = c->w ? conf_put(d, c->w, c->n * sizeof(float)) : NULL;
    conf_ok(sl_op_rms_norm(d, &(struct sl_op_rms_norm){.x = x,
                                                       .w = w,
                                                       .y = y,
                                                       .n_rows = c->n_rows,
                                                       .n = c->n,
                                                       .stride_x = c->stride_x,
                                                       .stride_y = c->stride_y,
                                                       .eps = c->eps}));
    conf_get(d, out, y, ny * sizeof(float));
}

static void one(uint32_t n_rows, uint32_t n, uint32_t gap, enum conf_fill fill, bool weight,
                bool in_place, float eps) {
    struct sl_rng rng = {n_rows * 1000003u + n * 17u + gap + (uint32_t)fill};
    struct norm_case c = {n_rows, n,    n + gap, in_place ? n + gap : n + 2 * gap,
                          NULL,   NULL, eps,     in_place};
    size_t nx = (size_t)n_rows * c.stride_x, ny = (size_t)n_rows * c.stride_y;
    float *x = conf_host(nx * sizeof *x), *w = conf_host(n * sizeof *w);
    float *y = conf_host(ny * sizeof *y);
    conf_fill(&rng, fill, x, nx);
    conf_fill(&rng, CONF_PLAIN, w, n);
    c.x = x;
    c.w = weight ? w : NULL;
    char what[128];
    snprintf(what, sizeof what, "%u rows of %u, gap %u, fill %d%s%s", n_rows, n, gap, (int)fill,
             weight ? ", weighted" : "", in_place ? ", in place" : "");
    conf_tolerance(1e-6f);
    conf_case(what, run, &c, CONF_F32, ny, y);

    for (uint32_t r = 0; r < n_rows && !conf_same_bits(); r++) {
        const float *xr = x + (size_t)r * c.stride_x, *yr = y + (size_t)r * c.stride_y;
        double ss = 0;
        for (uint32_t i = 0; i < n; i++)
            ss += (double)xr[i] * xr[i];
        double inv = 1 / sqrt(ss / n + (double)eps);
        for (uint32_t i = 0; i < n; i++) {
            double ref = xr[i] * inv * (weight ? w[i] : 1);
            /* The sum: n/16 + 4 roundings, halved by the root; four more. */
            double tol = (n / 32.0 + 7) * 0x1p-24 * fabs(ref) + 0x1p-148;
            conf_near(what, &yr[i], &ref, &tol, 1);
        }
    }
}

static void sizes(void) {
    static const uint32_t n[] = {1,  7,  15,  16,  17,  32,   33,   40,  64,
                                 80, 96, 100, 128, 256, 1000, 2048, 5001};
    for (size_t i = 0; i < CONF_COUNT(n); i++)
        for (int fill = 0; fill < CONF_N_FILL; fill++)
            one(3, n[i], (uint32_t)i % 3, (enum conf_fill)fill, fill != CONF_EQUAL, false, 1e-6f);
}

static void many_rows(void) {
    one(1, 2048, 0, CONF_PLAIN, true, false, 1e-6f);
    one(517, 128, 0, CONF_PLAIN, true, true, 1e-5f);
    one(100, 1000, 24, CONF_SPIKES, false, true, 1e-6f);
    one(33, 4096, 0, CONF_WIDE, true, false, 0);
}

static void zeros(void) {
    float y[40];
    static const float x[40];
    struct norm_case c = {1, 40, 40, 40, x, NULL, 1e-6f, false};
    conf_case("a row of zeros", run, &c, CONF_F32, 40, y);
    for (int i = 0; i < 40; i++)
        assert_true(y[i] == 0);
}

int main(int argc, char **argv) {
    static const struct conf_test tests[] = {
        {"sizes", sizes}, {"many rows", many_rows}, {"zeros", zeros}};
    return conf_main(argc, argv, "rms_norm", &limits, tests, CONF_COUNT(tests));
}
