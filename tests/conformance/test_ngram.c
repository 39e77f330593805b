/* sl_op_ngram_gate and sl_op_ngram_conv; sl_op_silu, sl_op_stream_mean and sl_op_stream_inject. */
#include "tests/conformance/conformance.h"
#include "backends/ops/elementwise.h"
#include "backends/ops/kv.h"
#include "backends/ops/ngram.h"
#include "backends/ops/streams.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct sl_device_limits limits = {.max_tok = 200};

struct shape {
    uint32_t n_tok, n_stream, n;
};
static const struct shape shapes[] = {{1, 4, 256}, {3, 2, 1}, {40, 4, 300}, {7, 8, 17}};

struct rows {
    struct shape s;
    const float *a, *b, *c; /* [n_tok, n_stream, n]; of streams; [n_tok, n] or [n_tok, n_stream] */
};

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

static size_t all(const struct rows *r) {
    return (size_t)r->s.n_tok * r->s.n_stream * r->s.n;
}

static void run_silu(struct sl_device *d, const void *ctx, void *out) {
    const struct rows *r = ctx;
    float *x = conf_put(d, r->a, all(r) * sizeof *x);
    conf_ok(sl_op_silu(d, &(struct sl_op_silu){.x = x, .n = all(r), .scale = 0.25f}));
    conf_get(d, out, x, all(r) * sizeof *x);
}

static void run_mean(struct sl_device *d, const void *ctx, void *out) {
    const struct rows *r = ctx;
    size_t bytes = all(r) * sizeof(float), one = bytes / r->s.n_stream;
    float *y = conf_put(d, NULL, one);
    conf_ok(sl_op_stream_mean(d, &(struct sl_op_stream_mean){.x = conf_put(d, r->a, bytes),
                                                             .gate = conf_put(d, r->b, bytes),
                                                             .y = y,
                                                             .n_tok = r->s.n_tok,
                                                             .n_stream = r->s.n_stream,
                                                             .n = r->s.n}));
    conf_get(d, out, y, one);
}

static void run_inject(struct sl_device *d, const void *ctx, void *out) {
    const struct rows *r = ctx;
    size_t bytes = all(r) * sizeof(float);
    float *x = conf_put(d, r->a, bytes);
    conf_ok(sl_op_stream_inject(
        d, &(struct sl_op_stream_inject){
               .x = x,
               .y = conf_put(d, r->c, bytes / r->s.n_stream),
               .w = conf_put(d, r->b, (size_t)r->s.n_tok * r->s.n_stream * sizeof(float)),
               .n_tok = r->s.n_tok,
               .n_stream = r->s.n_stream,
               .n = r->s.n}));
    conf_get(d, out, x, bytes);
}

static void run_gate(struct sl_device *d, const void *ctx, void *out) {
    const struct rows *r = ctx;
    size_t bytes = all(r) * sizeof(float);
    float *y = conf_put(d, NULL, bytes);
    conf_ok(sl_op_ngram_gate(
        d, &(struct sl_op_ngram_gate){.key = conf_put(d, r->a, bytes),
                                      .query = conf_put(d, r->b, bytes),
                                      .value = conf_put(d, r->c, bytes / r->s.n_stream),
                                      .y = y,
                                      .n_tok = r->s.n_tok,
                                      .n_stream = r->s.n_stream,
                                      .n = r->s.n}));
    conf_get(d, out, y, bytes);
}

static double gate_of(const struct rows *r, size_t stream) {
    double s = 0;
    for (size_t i = 0; i < r->s.n; i++)
        s += (double)r->a[stream * r->s.n + i] * (double)r->b[stream * r->s.n + i];
    s /= sqrt(r->s.n);
    double root = sqrt(fmax(fabs(s), 1e-6));
    return sigmoid(s > 0 ? root : s < 0 ? -root : 0);
}

static void check(const char *what, const struct rows *r, uint32_t which, const float *y) {
    size_t S = r->s.n_stream, n = r->s.n, out = which == 1 ? all(r) / S : all(r);
    for (size_t i = 0; i < out; i++) {
        size_t t = i / n / (which == 1 ? 1 : S), at = i % n, stream = i / n;
        double ref = 0, tol = 2e-5, value = (double)r->c[t * n + at];
        if (which == 0)
            ref = (double)r->a[i] / 4 * sigmoid((double)r->a[i] / 4);
        for (size_t s = 0; which == 1 && s < S; s++)
            ref += (double)r->a[(t * S + s) * n + at] *
                   sigmoid((double)r->b[(t * S + s) * n + at]) / (double)S;
        if (which == 2)
            ref = (double)r->a[i] + 2 * sigmoid((double)r->b[stream] / (double)S) * value;
        if (which == 3) /* the root is steep near 0 */
            ref = value * gate_of(r, stream), tol = 2e-3;
        conf_near(what, &y[i], &ref, &tol, 1);
    }
}

static void streams(void) {
    static conf_run *const runs[] = {run_silu, run_mean, run_inject, run_gate};
    static const enum sl_op ops[] = {SL_OP_silu, SL_OP_stream_mean, SL_OP_stream_inject,
                                     SL_OP_ngram_gate};
    for (uint32_t i = 0; i < CONF_COUNT(ops); i++)
        conf_needs_op(ops[i]);
    for (size_t k = 0; k < CONF_COUNT(shapes); k++) {
        struct rows r = {.s = shapes[k]};
        struct sl_rng rng = {k + 1};
        size_t n = all(&r);
        float *a = conf_host(n * sizeof *a), *b = conf_host(n * sizeof *b);
        float *c = conf_host(n * sizeof *c), *y = conf_host(n * sizeof *y);
        conf_fill(&rng, CONF_PLAIN, a, n);
        conf_fill(&rng, CONF_PLAIN, b, n);
        conf_fill(&rng, CONF_PLAIN, c, n);
        for (size_t i = 0; i < n; i++)
            b[i] *= 6;
        if (k == 1) /* a product that is 0 has a gate of a half */
            a[0] = 0;
        r.a = a, r.b = b, r.c = c;
        for (uint32_t which = 0; which < CONF_COUNT(runs); which++) {
            char what[96];
            snprintf(what, sizeof what, "%s, %u rows of %u streams of %u", sl_op_name(ops[which]),
                     r.s.n_tok, r.s.n_stream, r.s.n);
            conf_case(what, runs[which], &r, CONF_F32, which == 1 ? n / r.s.n_stream : n, y);
            if (conf_checking())
                check(what, &r, which, y);
        }
    }
}

/* ---- convolution ---- */

#define N_SEQ 2u
#define PAGES 4u /* of a sequence */

struct conv {
    uint32_t n, n_taps, step, slice, len[N_SEQ];
    const float *x[N_SEQ], *h[N_SEQ], *w;
};

/* The sequences in slices, both in a call: what x becomes, y beginning as 1. */
static void run_conv(struct sl_device *d, const void *ctx, void *out) {
    const struct conv *c = ctx;
    size_t row = c->n * sizeof(float), page = (c->n_taps - 1) * c->step * row;
    uint32_t table[N_SEQ * PAGES], at[N_SEQ] = {0};
    float *to[N_SEQ] = {out, (float *)out + (size_t)c->len[0] * c->n};
    for (uint32_t i = 0; i < N_SEQ * PAGES; i++)
        table[i] = (i * 3 + 1) % (N_SEQ * PAGES);
    struct sl_op_ngram_conv op = {.w = conf_put(d, c->w, (size_t)c->n * c->n_taps * sizeof(float)),
                                  .state = {.pages = conf_put(d, NULL, N_SEQ * PAGES * page),
                                            .page_bytes = page,
                                            .page_table = conf_put(d, table, sizeof table),
                                            .max_pages = PAGES},
                                  .n = c->n,
                                  .n_taps = c->n_taps,
                                  .step = c->step};
    while (at[0] < c->len[0] || at[1] < c->len[1]) {
        uint32_t slot[200], seq[200], len[200], n = 0;
        float *x = malloc(200 * row), *h = malloc(200 * row), *y = malloc(200 * row);
        for (uint32_t s = 0; s < N_SEQ; s++)
            for (uint32_t i = 0; i < c->slice + s && at[s] + i < c->len[s]; i++, n++) {
                uint32_t p = at[s] + i;
                slot[n] = table[s * PAGES + p / SL_KV_PAGE_TOKENS] * SL_KV_PAGE_TOKENS +
                          p % SL_KV_PAGE_TOKENS;
                seq[n] = s, len[n] = p + 1;
                memcpy(x + (size_t)n * c->n, c->x[s] + (size_t)p * c->n, row);
                memcpy(h + (size_t)n * c->n, c->h[s] + (size_t)p * c->n, row);
                for (uint32_t j = 0; j < c->n; j++)
                    y[(size_t)n * c->n + j] = 1;
            }
        op.x = conf_put(d, x, n * row), op.h = conf_put(d, h, n * row);
        op.y = conf_put(d, y, n * row);
        op.state.slot = conf_put(d, slot, n * sizeof *slot);
        op.state.row_seq = conf_put(d, seq, n * sizeof *seq);
        op.state.row_len = conf_put(d, len, n * sizeof *len);
        op.n_tok = n;
        conf_ok(sl_op_ngram_conv(d, &op));
        conf_get(d, y, op.y, n * row);
        for (uint32_t i = 0; i < n; i++)
            memcpy(to[seq[i]] + (size_t)at[seq[i]]++ * c->n, y + (size_t)i * c->n, row);
        free(x), free(h), free(y);
    }
}

static void convolution(void) {
    static const uint32_t forms[][3] = {{4, 3, 256}, {2, 1, 1}, {8, 4, 300}, {3, 2, 17}};
    conf_needs_op(SL_OP_ngram_conv);
    for (size_t k = 0; k < CONF_COUNT(forms); k++) {
        struct conv c = {
            .n_taps = forms[k][0], .step = forms[k][1], .n = forms[k][2], .len = {150, 70}};
        struct sl_rng rng = {k + 77};
        size_t n = (size_t)(c.len[0] + c.len[1]) * c.n;
        float *x = conf_host(n * sizeof *x), *h = conf_host(n * sizeof *h);
        float *w = conf_host((size_t)c.n * c.n_taps * sizeof *w), *y = conf_host(n * sizeof *y);
        float *whole = conf_host(n * sizeof *whole);
        conf_fill(&rng, CONF_PLAIN, x, n);
        conf_fill(&rng, CONF_PLAIN, h, n);
        conf_fill(&rng, CONF_PLAIN, w, (size_t)c.n * c.n_taps);
        c.x[0] = x, c.x[1] = x + (size_t)c.len[0] * c.n;
        c.h[0] = h, c.h[1] = h + (size_t)c.len[0] * c.n, c.w = w;
        static const uint32_t slices[] = {90, 1, 7, 64};
        for (uint32_t i = 0; i < CONF_COUNT(slices); i++) {
            char what[96];
            c.slice = slices[i];
            snprintf(what, sizeof what, "%u taps %u apart, %u channels, slices of %u", c.n_taps,
                     c.step, c.n, c.slice);
            conf_case(what, run_conv, &c, CONF_F32, n, i ? y : whole);
            if (i && memcmp(y, whole, n * sizeof *y) != 0)
                fail_msg("%s: the slices show", what);
        }
        for (size_t i = 0; conf_checking() && i < n; i++) {
            size_t s = i >= (size_t)c.len[0] * c.n, from = s * c.len[0] * c.n;
            size_t p = (i - from) / c.n, ch = i % c.n;
            ch = (i - from) % c.n;
            double sum = 0, tol = 1e-5;
            for (uint32_t t = 0; t < c.n_taps; t++) {
                size_t back = (size_t)(c.n_taps - 1 - t) * c.step;
                if (back <= p)
                    sum += (double)w[ch * c.n_taps + t] * (double)c.h[s][(p - back) * c.n + ch];
            }
            double ref = 1 + (double)x[i] + sum * sigmoid(sum);
            conf_near("convolution", &whole[i], &ref, &tol, 1);
        }
    }
}

int main(int argc, char **argv) {
    static const struct conf_test tests[] = {{"streams and gates", streams},
                                             {"convolution", convolution}};
    return conf_main(argc, argv, "ngram", &limits, tests, CONF_COUNT(tests));
}
