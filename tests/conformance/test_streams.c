/* sl_op_stream_spread, sl_op_stream_weights, sl_op_stream_read, sl_op_stream_write,
 * sl_op_stream_attend and sl_op_stream_keep. */
#include "tests/conformance/conformance.h"
#include "backends/ops/streams.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct sl_device_limits limits = {.max_tok = 200};

struct streams {
    uint32_t n_tok, n_stream, n, n_iter;
    bool only_read;
    const float *x, *y, *w, *scale, *base;
};

static uint32_t width_of(const struct streams *c) {
    return c->only_read ? c->n_stream : SL_STREAM_WEIGHTS(c->n_stream);
}

static void run_weights(struct sl_device *d, const void *ctx, void *out) {
    const struct streams *c = ctx;
    size_t width = width_of(c), bytes = c->n_tok * width * sizeof(float);
    float *x = conf_put(d, c->w, bytes);
    conf_ok(sl_op_stream_weights(
        d, &(struct sl_op_stream_weights){
               .x = x,
               .scale = conf_put(d, c->scale, (c->only_read ? 1 : 3) * sizeof(float)),
               .base = conf_put(d, c->base, width * sizeof(float)),
               .n_tok = c->n_tok,
               .n_stream = c->n_stream,
               .n_iter = c->n_iter,
               .eps = 1e-6f,
               .only_read = c->only_read}));
    conf_get(d, out, x, bytes);
}

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

static void check_weights(const char *what, const struct streams *c, const float *got) {
    uint32_t n = c->n_stream, width = width_of(c);
    double y[SL_STREAM_WEIGHTS(SL_MAX_STREAMS)], tol[SL_STREAM_WEIGHTS(SL_MAX_STREAMS)];
    for (size_t t = 0; t < c->n_tok; t++) {
        for (uint32_t i = 0; i < width; i++) {
            double v = (double)c->w[t * width + i];
            uint32_t part = i < n ? 0 : i < 2 * n ? 1 : 2;
            y[i] = v * (double)c->scale[part] + (double)c->base[i];
            tol[i] = 2e-5;
            if (part < 2)
                y[i] = part ? 2 * sigmoid(y[i]) : sigmoid(y[i]) + 1e-6;
        }
        double *m = y + 2 * n;
        for (uint32_t s = 0; !c->only_read && s < n; s++) {
            double sum = 0;
            for (uint32_t j = 0; j < n; j++)
                sum += m[s * n + j] = exp(m[s * n + j]);
            for (uint32_t j = 0; j < n; j++)
                m[s * n + j] = m[s * n + j] / sum + 1e-6;
        }
        for (uint32_t i = 0; !c->only_read && i < 2 * c->n_iter - 1; i++)
            for (uint32_t a = 0; a < n; a++) { /* columns, then rows and columns */
                double sum = 1e-6;
                for (uint32_t b = 0; b < n; b++)
                    sum += i % 2 ? m[a * n + b] : m[b * n + a];
                for (uint32_t b = 0; b < n; b++)
                    m[i % 2 ? a * n + b : b * n + a] /= sum;
            }
        conf_near(what, got + t * width, y, tol, width);
    }
}

static void weights(void) {
    static const uint32_t shapes[][3] = {{4, 20, 9}, {4, 1, 150}, {2, 3, 1}, {8, 5, 40}, {3, 7, 5}};
    conf_needs_op(SL_OP_stream_weights);
    for (size_t k = 0; k < 2 * CONF_COUNT(shapes); k++) {
        const uint32_t *s = shapes[k / 2];
        struct streams c = {.n_tok = s[2], .n_stream = s[0], .n_iter = s[1], .only_read = k % 2};
        struct sl_rng rng = {k + 1};
        size_t width = width_of(&c), n = c.n_tok * width;
        float *w = conf_host(n * sizeof *w), *base = conf_host(width * sizeof *base);
        float *scale = conf_host(3 * sizeof *scale), *y = conf_host(n * sizeof *y);
        conf_fill(&rng, CONF_PLAIN, w, n);
        for (size_t i = 0; i < n; i++)
            w[i] *= 5;
        conf_fill(&rng, CONF_PLAIN, base, width);
        conf_fill(&rng, CONF_PLAIN, scale, 3);
        c.w = w, c.base = base, c.scale = scale;
        char what[80];
        snprintf(what, sizeof what, "%u rows of %u streams, %u iterations%s", c.n_tok, c.n_stream,
                 c.n_iter, c.only_read ? ", read alone" : "");
        conf_case(what, run_weights, &c, CONF_F32, n, y);
        if (conf_checking())
            check_weights(what, &c, y);
    }
}

static void run_spread(struct sl_device *d, const void *ctx, void *out) {
    const struct streams *c = ctx;
    size_t bytes = (size_t)c->n_tok * c->n * sizeof(float);
    float *y = conf_put(d, NULL, bytes * c->n_stream);
    conf_ok(sl_op_stream_spread(d, &(struct sl_op_stream_spread){.x = conf_put(d, c->y, bytes),
                                                                 .y = y,
                                                                 .n_tok = c->n_tok,
                                                                 .n_stream = c->n_stream,
                                                                 .n = c->n}));
    conf_get(d, out, y, bytes * c->n_stream);
}

static void run_read(struct sl_device *d, const void *ctx, void *out) {
    const struct streams *c = ctx;
    size_t bytes = (size_t)c->n_tok * c->n * sizeof(float), width = SL_STREAM_WEIGHTS(c->n_stream);
    float *y = conf_put(d, NULL, bytes);
    conf_ok(sl_op_stream_read(
        d, &(struct sl_op_stream_read){.x = conf_put(d, c->x, bytes * c->n_stream),
                                       .w = conf_put(d, c->w, c->n_tok * width * sizeof(float)),
                                       .y = y,
                                       .n_tok = c->n_tok,
                                       .n_stream = c->n_stream,
                                       .n = c->n,
                                       .stride_w = (uint32_t)width}));
    conf_get(d, out, y, bytes);
}

static void run_write(struct sl_device *d, const void *ctx, void *out) {
    const struct streams *c = ctx;
    size_t bytes = (size_t)c->n_tok * c->n * sizeof(float), width = SL_STREAM_WEIGHTS(c->n_stream);
    float *x = conf_put(d, c->x, bytes * c->n_stream);
    conf_ok(sl_op_stream_write(
        d, &(struct sl_op_stream_write){.x = x,
                                        .y = conf_put(d, c->y, bytes),
                                        .w = conf_put(d, c->w, c->n_tok * width * sizeof(float)),
                                        .n_tok = c->n_tok,
                                        .n_stream = c->n_stream,
                                        .n = c->n}));
    conf_get(d, out, x, bytes * c->n_stream);
}

static void rows(void) {
    static const uint32_t shapes[][3] = {
        {4, 256, 3}, {4, 1000, 40}, {2, 1, 1}, {8, 300, 7}, {3, 17, 150}};
    conf_needs_op(SL_OP_stream_write);
    for (size_t k = 0; k < CONF_COUNT(shapes); k++) {
        struct streams c = {.n_tok = shapes[k][2], .n_stream = shapes[k][0], .n = shapes[k][1]};
        struct sl_rng rng = {k + 9};
        size_t S = c.n_stream, n = (size_t)c.n_tok * c.n, width = SL_STREAM_WEIGHTS(S);
        float *x = conf_host(n * S * sizeof *x), *y = conf_host(n * sizeof *y);
        float *w = conf_host(c.n_tok * width * sizeof *w), *out = conf_host(n * S * sizeof *out);
        conf_fill(&rng, CONF_PLAIN, x, n * S);
        conf_fill(&rng, CONF_PLAIN, y, n);
        conf_fill(&rng, CONF_PLAIN, w, c.n_tok * width);
        c.x = x, c.y = y, c.w = w;
        char what[80];
        snprintf(what, sizeof what, "%u rows of %zu streams of %u", c.n_tok, S, c.n);
        conf_case(what, run_spread, &c, CONF_F32, n * S, out);
        for (size_t i = 0; conf_checking() && i < n * S; i++)
            assert_true(out[i] == y[i / (S * c.n) * c.n + i % c.n]);
        conf_case(what, run_read, &c, CONF_F32, n, out);
        for (size_t i = 0; conf_checking() && i < n; i++) {
            size_t t = i / c.n;
            double ref = 0, tol = 1e-5;
            for (size_t s = 0; s < S; s++)
                ref += (double)w[t * width + s] * (double)x[(t * S + s) * c.n + i % c.n];
            conf_near(what, &out[i], &ref, &tol, 1);
        }
        conf_case(what, run_write, &c, CONF_F32, n * S, out);
        for (size_t i = 0; conf_checking() && i < n * S; i++) {
            size_t t = i / (S * c.n), to = i / c.n % S, at = i % c.n;
            const float *wt = w + t * width;
            double ref = (double)wt[S + to] * (double)y[t * c.n + at], tol = 1e-5;
            for (size_t s = 0; s < S; s++)
                ref += (double)wt[2 * S + s * S + to] * (double)x[(t * S + s) * c.n + at];
            conf_near(what, &out[i], &ref, &tol, 1);
        }
    }
}

struct attended {
    uint32_t n_tok, n_stream, n_kept, n, to;
    const float *x, *w, *y;
};

static void run_attend(struct sl_device *d, const void *ctx, void *out) {
    const struct attended *c = ctx;
    size_t bytes = (size_t)c->n_tok * c->n * sizeof(float);
    float *y = conf_put(d, NULL, bytes);
    conf_ok(sl_op_stream_attend(
        d, &(struct sl_op_stream_attend){.x = conf_put(d, c->x, bytes * c->n_stream),
                                         .w = conf_put(d, c->w, c->n * sizeof(float)),
                                         .y = y,
                                         .n_tok = c->n_tok,
                                         .n_stream = c->n_stream,
                                         .n_kept = c->n_kept,
                                         .n = c->n,
                                         .eps = 1e-5f}));
    conf_get(d, out, y, bytes);
}

static void run_keep(struct sl_device *d, const void *ctx, void *out) {
    const struct attended *c = ctx;
    size_t bytes = (size_t)c->n_tok * c->n * sizeof(float);
    float *x = conf_put(d, c->x, bytes * c->n_stream);
    conf_ok(sl_op_stream_keep(d, &(struct sl_op_stream_keep){.x = x,
                                                             .y = conf_put(d, c->y, bytes),
                                                             .n_tok = c->n_tok,
                                                             .n_stream = c->n_stream,
                                                             .to = c->to,
                                                             .n = c->n}));
    conf_get(d, out, x, bytes * c->n_stream);
}

static void check_attend(const char *what, const struct attended *c, const float *got) {
    for (size_t t = 0; t < c->n_tok; t++) {
        const float *x = c->x + t * c->n_stream * c->n;
        double p[SL_MAX_ATTENDED], max = -INFINITY, sum = 0;
        for (size_t s = 0; s <= c->n_kept; s++) {
            double squares = 0, dot = 0;
            for (size_t i = 0; i < c->n; i++) {
                double v = (double)x[s * c->n + i];
                squares += v * v;
                dot += v * (double)c->w[i];
            }
            p[s] = dot / sqrt(squares / c->n + (double)1e-5f);
            max = fmax(max, p[s]);
        }
        for (size_t s = 0; s <= c->n_kept; s++)
            sum += p[s] = exp(p[s] - max);
        for (size_t i = 0; i < c->n; i++) {
            double ref = 0, tol = 2e-5;
            for (size_t s = 0; s <= c->n_kept; s++)
                ref += p[s] / sum * (double)x[s * c->n + i];
            conf_near(what, &got[t * c->n + i], &ref, &tol, 1);
        }
    }
}

/* Streams, of which kept; elements, rows. Streams that are not in use may hold anything. */
static void attended(void) {
    static const uint32_t shapes[][4] = {{2, 0, 1, 1},    {2, 1, 16, 3},    {9, 8, 300, 7},
                                         {9, 3, 1000, 2}, {64, 63, 20, 40}, {5, 2, 47, 150}};
    conf_needs_op(SL_OP_stream_attend);
    for (size_t k = 0; k < CONF_COUNT(shapes); k++) {
        const uint32_t *s = shapes[k];
        struct attended c = {.n_stream = s[0], .n_kept = s[1], .n = s[2], .n_tok = s[3]};
        struct sl_rng rng = {k + 21};
        size_t n = (size_t)c.n_tok * c.n, all = n * c.n_stream;
        float *x = conf_host(all * sizeof *x), *y = conf_host(n * sizeof *y);
        float *w = conf_host(c.n * sizeof *w), *out = conf_host(all * sizeof *out);
        conf_fill(&rng, CONF_PLAIN, x, all);
        conf_fill(&rng, CONF_PLAIN, y, n);
        conf_fill(&rng, CONF_PLAIN, w, c.n);
        for (size_t i = 0; i < c.n; i++) /* scores of some units */
            w[i] *= 3 / sqrtf((float)c.n);
        for (size_t i = 0; i < all; i++)
            if (i / c.n % c.n_stream > c.n_kept)
                x[i] = NAN;
        c.x = x, c.y = y, c.w = w;
        char what[80];
        snprintf(what, sizeof what, "%u rows of %u of %u streams of %u", c.n_tok, c.n_kept,
                 c.n_stream, c.n);
        conf_tolerance(2e-5f);
        conf_case(what, run_attend, &c, CONF_F32, n, out);
        if (conf_checking())
            check_attend(what, &c, out);
        for (size_t i = 0; i < all; i++)
            x[i] = isnan(x[i]) ? 7.5f : x[i];
        for (c.to = 0; c.to < c.n_stream; c.to += 1 + c.n_stream / 3) {
            conf_case(what, run_keep, &c, CONF_F32, all, out);
            for (size_t i = 0; conf_checking() && i < all; i++) {
                size_t t = i / (c.n_stream * c.n), at = i / c.n % c.n_stream, e = i % c.n;
                float first = x[t * c.n_stream * c.n + e], part = y[t * c.n + e];
                float want = at == 0 ? (c.to ? part : first + part) : at == c.to ? first : x[i];
                assert_true(out[i] == want);
            }
        }
    }
}

int main(int argc, char **argv) {
    static const struct conf_test tests[] = {
        {"stream weights", weights}, {"spread, read, write", rows}, {"attend, keep", attended}};
    return conf_main(argc, argv, "streams", &limits, tests, CONF_COUNT(tests));
}
