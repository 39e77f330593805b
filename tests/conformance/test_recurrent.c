/* sl_op_mul_sigmoid, sl_op_l2_norm, sl_op_conv_silu, sl_op_short_conv, sl_op_delta_rule,
 * sl_op_channel_delta, sl_op_state_scan, sl_op_channel_scan */
#include "tests/conformance/conformance.h"
#include "backends/ops/elementwise.h"
#include "backends/ops/kv.h"
#include "backends/ops/norm.h"
#include "backends/ops/recurrent.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE SL_KV_PAGE_TOKENS

static const struct sl_device_limits limits = {.max_tok = 600};

/* ---- without a state ---- */

struct rows_case {
    const float *x, *gate;
    uint32_t n_rows, n, gap, n_heads;
    float eps;
};

static void run_gate(struct sl_device *d, const void *ctx, void *out) {
    const struct rows_case *c = ctx;
    size_t n = (size_t)c->n_rows * c->n;
    float *y = conf_put(d, c->x, n * sizeof *y);
    conf_ok(sl_op_mul_sigmoid(
        d, &(struct sl_op_mul_sigmoid){
               .gate = conf_put(d, c->gate, (size_t)c->n_rows * (c->n + c->gap) * sizeof *y),
               .y = y,
               .n_rows = c->n_rows,
               .n = c->n,
               .stride_gate = c->n + c->gap}));
    conf_get(d, out, y, n * sizeof *y);
}

static const uint32_t sizes[] = {1, 7, 15, 16, 17, 33, 64, 65, 100, 128, 256, 1000};

static void mul_sigmoid(void) {
    conf_needs_op(SL_OP_mul_sigmoid);
    for (size_t i = 0; i < CONF_COUNT(sizes); i++)
        for (int fill = 0; fill < CONF_N_FILL; fill++) {
            uint32_t n = sizes[i], rows = n > 200 ? 5 : 37, gap = (uint32_t)fill * n / 2;
            size_t all = (size_t)rows * n, all_gate = (size_t)rows * (n + gap);
            struct sl_rng rng = {n + (uint32_t)fill};
            float *x = conf_host(all * sizeof *x), *gate = conf_host(all_gate * sizeof *gate);
            float *y = conf_host(all * sizeof *y);
            conf_fill(&rng, (enum conf_fill)fill, x, all);
            conf_fill(&rng, CONF_PLAIN, gate, all_gate);
            for (size_t j = 0; j < all_gate; j++)
                gate[j] *= fill % 2 ? 110 : 9; /* past both ends of exp */
            struct rows_case c = {.x = x, .gate = gate, .n_rows = rows, .n = n, .gap = gap};
            char what[96];
            snprintf(what, sizeof what, "%u rows of %u, gap %u, fill %d", rows, n, gap, fill);
            conf_tolerance(1e-6f);
            conf_case(what, run_gate, &c, CONF_F32, all, y);
            for (size_t j = 0; j < all && !conf_same_bits(); j++) {
                double ref = x[j] / (1 + exp(-(double)gate[j / n * (n + gap) + j % n]));
                double tol = fabs(ref) * 6 * 0x1p-24 + fabs((double)x[j]) * 1e-38 + 0x1p-148;
                conf_near(what, &y[j], &ref, &tol, 1);
            }
        }
}

static void run_l2(struct sl_device *d, const void *ctx, void *out) {
    const struct rows_case *c = ctx;
    uint32_t stride = c->n_heads * c->n + c->gap;
    size_t n = (size_t)c->n_rows * stride;
    float *x = conf_put(d, c->x, n * sizeof *x);
    conf_ok(sl_op_l2_norm(d, &(struct sl_op_l2_norm){.x = x,
                                                     .n_tok = c->n_rows,
                                                     .n_heads = c->n_heads,
                                                     .head_dim = c->n,
                                                     .stride = stride,
                                                     .eps = c->eps}));
    conf_get(d, out, x, n * sizeof *x);
}

static void l2_norm(void) {
    conf_needs_op(SL_OP_l2_norm);
    for (size_t i = 0; i < CONF_COUNT(sizes); i++)
        for (int fill = 0; fill < CONF_N_FILL; fill++) {
            uint32_t n = sizes[i], heads = 1 + (uint32_t)fill, gap = (uint32_t)(i % 3) * n;
            size_t all = (size_t)5 * (heads * n + gap);
            struct sl_rng rng = {n * 31 + (uint32_t)fill};
            float *x = conf_host(all * sizeof *x), *y = conf_host(all * sizeof *y);
            conf_fill(&rng, (enum conf_fill)fill, x, all);
            struct rows_case c = {.x = x, .n_rows = 5, .n = n, .gap = gap, .n_heads = heads};
            c.eps = fill % 2 ? 1e-6f : 1e-3f;
            char what[96];
            snprintf(what, sizeof what, "%u heads of %u, gap %u, fill %d", heads, n, gap, fill);
            conf_tolerance(1e-6f);
            conf_case(what, run_l2, &c, CONF_F32, all, y);
            for (size_t j = 0; j < all && !conf_same_bits(); j++) {
                size_t in_row = j % (heads * n + gap), head = j - in_row + in_row / n * n;
                double ss = 0, ref = x[j];
                for (uint32_t e = 0; e < n && in_row < (size_t)heads * n; e++)
                    ss += (double)x[head + e] * x[head + e];
                if (in_row < (size_t)heads * n) /* what lies between is left alone */
                    ref /= sqrt(ss + (double)c.eps);
                double tol = (n / 32.0 + 7) * 0x1p-24 * fabs(ref) + 0x1p-148;
                conf_near(what, &y[j], &ref, &tol, 1);
            }
        }
}

/* ---- with a state ---- */

#define MAX_PAGES 6u
#define N_SEQ     3u
#define N_PAGES   (N_SEQ * MAX_PAGES)

/* Rows of up to N_SEQ sequences in one call, each going on from a position of its own. */
struct rows {
    uint32_t n, slot[600], row_seq[600], row_len[600], table[N_SEQ * MAX_PAGES];
};

/* Pages of a sequence are in no order; one table's page may lie anywhere. */
static void fill_table(struct rows *r) {
    for (uint32_t i = 0; i < N_PAGES; i++)
        r->table[i] = i * 7 % N_PAGES;
}

static void add_rows(struct rows *r, uint32_t seq, uint32_t pos, uint32_t n) {
    for (uint32_t i = 0; i < n; i++, pos++) {
        r->slot[r->n] = r->table[seq * MAX_PAGES + pos / PAGE] * PAGE + pos % PAGE;
        r->row_seq[r->n] = seq;
        r->row_len[r->n++] = pos + 1;
    }
}

/* Rows of two sequences, each of which leaves its state in a page of its own: those behind a
 * sequence's first in pages of the third one, over a page's end and within one. */
static void add_rows_apart(struct rows *r) {
    static const uint32_t pos[] = {62, 130}, n[] = {5, 2};
    uint32_t spare = 0;
    for (uint32_t seq = 0; seq < 2; seq++) {
        add_rows(r, seq, pos[seq], n[seq]);
        for (uint32_t i = 1; i < n[seq]; i++) {
            uint32_t *slot = &r->slot[r->n - n[seq] + i];
            *slot = r->table[2 * MAX_PAGES + spare++] * PAGE + *slot % PAGE;
        }
    }
}

/* Rows that pass pages of which only the state behind the last is kept: the table has that page for
 * the others too, from here on. */
static void add_rows_with_gaps(struct rows *r) {
    r->table[0 * MAX_PAGES + 1] = r->table[0 * MAX_PAGES + 2] = r->table[0 * MAX_PAGES + 3];
    r->table[1 * MAX_PAGES + 0] = r->table[1 * MAX_PAGES + 1];
    add_rows(r, 0, 61, 3 + 3 * PAGE + 2); /* three of them, and the next one's beginning */
    add_rows(r, 1, 0, PAGE + 9);          /* two, not to the end */
}

static struct sl_state_view put_state(struct sl_device *d, const struct rows *r, const void *pages,
                                      size_t page_bytes) {
    return (struct sl_state_view){.pages = conf_put(d, pages, N_PAGES * page_bytes),
                                  .page_bytes = page_bytes,
                                  .page_table = conf_put(d, r->table, sizeof r->table),
                                  .slot = conf_put(d, r->slot, r->n * sizeof *r->slot),
                                  .row_seq = conf_put(d, r->row_seq, r->n * sizeof *r->row_seq),
                                  .row_len = conf_put(d, r->row_len, r->n * sizeof *r->row_len),
                                  .max_pages = MAX_PAGES};
}

struct conv_case {
    const struct rows *r;
    const float *x, *w, *bias, *pages; /* bias NULL: none */
    uint32_t n, n_taps;
};

/* y, then all pages: what was to be left alone has to be as it was. */
static void run_conv(struct sl_device *d, const void *ctx, void *out) {
    const struct conv_case *c = ctx;
    size_t n = (size_t)c->r->n * c->n, page = (size_t)(c->n_taps - 1) * c->n;
    float *y = conf_put(d, NULL, n * sizeof *y);
    struct sl_op_conv_silu a = {.x = conf_put(d, c->x, n * sizeof *y),
                                .w = conf_put(d, c->w, c->n * c->n_taps * sizeof *y),
                                .bias = c->bias ? conf_put(d, c->bias, c->n * sizeof *y) : NULL,
                                .y = y,
                                .state = put_state(d, c->r, c->pages, page * sizeof *y),
                                .n_tok = c->r->n,
                                .n = c->n,
                                .n_taps = c->n_taps};
    conf_ok(sl_op_conv_silu(d, &a));
    conf_get(d, out, y, n * sizeof *y);
    conf_get(d, (float *)out + n, a.state.pages, N_PAGES * page * sizeof *y);
}

/* x of the position `back` before row t, or 0. */
static double conv_x(const struct conv_case *c, uint32_t t, uint32_t back, uint32_t ch) {
    const struct rows *r = c->r;
    uint32_t first = t;
    while (first && t - first < back && r->row_seq[first - 1] == r->row_seq[t])
        first--;
    if (t - first == back)
        return c->x[(size_t)(t - back) * c->n + ch];
    if (r->row_len[first] == 1)
        return 0;
    uint32_t before = back - (t - first);
    uint32_t page = r->table[r->row_seq[t] * MAX_PAGES + (r->row_len[first] - 2) / PAGE];
    return c->pages[((size_t)page * (c->n_taps - 1) + c->n_taps - 1 - before) * c->n + ch];
}

static void one_conv(const struct rows *r, uint32_t n, uint32_t n_taps, enum conf_fill fill,
                     bool biased) {
    size_t all = (size_t)r->n * n, page = (size_t)(n_taps - 1) * n, total = all + N_PAGES * page;
    struct sl_rng rng = {n * 13 + n_taps};
    float *x = conf_host(all * sizeof *x), *w = conf_host(n * n_taps * sizeof *w);
    float *pages = conf_host(N_PAGES * page * sizeof *pages), *y = conf_host(total * sizeof *y);
    conf_fill(&rng, fill, x, all);
    conf_fill(&rng, CONF_PLAIN, w, n * n_taps);
    conf_fill(&rng, CONF_PLAIN, pages, N_PAGES * page);
    float *bias = conf_host(n * sizeof *bias);
    conf_fill(&rng, CONF_PLAIN, bias, n);
    struct conv_case c = {r, x, w, biased ? bias : NULL, pages, n, n_taps};
    char what[96];
    snprintf(what, sizeof what, "%u rows of %u, %u taps, fill %d%s", r->n, n, n_taps, (int)fill,
             biased ? ", biased" : "");
    conf_tolerance(1e-6f);
    conf_case(what, run_conv, &c, CONF_F32, total, y);
    if (conf_same_bits())
        return;
    for (size_t i = 0; i < all; i++) {
        double sum = biased ? bias[i % n] : 0, size = fabs(sum);
        for (uint32_t k = 0; k < n_taps; k++) {
            double p = conv_x(&c, (uint32_t)(i / n), n_taps - 1 - k, (uint32_t)(i % n)) *
                       (double)w[i % n * n_taps + k];
            sum += p, size += fabs(p);
        }
        double ref = sum / (1 + exp(-sum)), tol = size * 24 * 0x1p-24 + 0x1p-120;
        conf_near(what, &y[i], &ref, &tol, 1);
    }
    /* The pages behind the last row of each sequence in each page; all others as they were. */
    double *want = conf_host(N_PAGES * page * sizeof *want), *tol = conf_host(page * sizeof *tol);
    for (size_t i = 0; i < N_PAGES * page; i++)
        want[i] = pages[i];
    for (uint32_t t = 0; t < r->n; t++)
        for (size_t i = 0; i < page; i++)
            want[r->slot[t] / PAGE * page + i] =
                conv_x(&c, t, n_taps - 2 - (uint32_t)(i / n), (uint32_t)(i % n));
    for (uint32_t p = 0; p < N_PAGES; p++)
        conf_near(what, y + all + p * page, want + p * page, tol, page);
}

static void conv_silu(void) {
    conf_needs_op(SL_OP_conv_silu);
    static struct rows r;
    static const uint32_t n[] = {1, 5, 16, 31, 64, 255, 256, 257, 600};
    for (size_t i = 0; i < CONF_COUNT(n); i++)
        for (uint32_t taps = 2; taps <= SL_CONV_MAX_TAPS; taps += 1 + taps / 4) {
            memset(&r, 0, sizeof r);
            fill_table(&r);
            add_rows(&r, 1, 7, 1);             /* goes on in a page */
            add_rows(&r, 0, 64, 1);            /* begins one */
            add_rows(&r, 2, 0, i % 2 ? 2 : 1); /* begins the sequence, with fewer rows than taps */
            one_conv(&r, n[i], taps, (enum conf_fill)(i % CONF_N_FILL), false);
            r.n = 0;
            add_rows(&r, 2, 63, 1);                  /* the last of a page */
            add_rows(&r, 0, 61, 70);                 /* over a page and more */
            add_rows(&r, 1, 0, n[i] > 100 ? 3 : 64); /* a page to its end */
            one_conv(&r, n[i], taps, CONF_PLAIN, false);
            r.n = 0;
            add_rows_apart(&r);
            one_conv(&r, n[i], taps, CONF_PLAIN, false);
            r.n = 0;
            add_rows_with_gaps(&r);
            one_conv(&r, n[i], taps, CONF_PLAIN, false);
        }
}

static void conv_silu_biased(void) {
    conf_needs_op(SL_OP_conv_silu);
    static struct rows r;
    static const uint32_t n[] = {1, 5, 16, 31, 64, 257};
    for (size_t i = 0; i < CONF_COUNT(n); i++) {
        memset(&r, 0, sizeof r);
        fill_table(&r);
        add_rows(&r, 2, 63, 1);
        add_rows(&r, 0, 61, 70);
        add_rows(&r, 1, 0, 3);
        one_conv(&r, n[i], 2 + (uint32_t)i, CONF_PLAIN, true);
    }
}

/* y, then all pages. x [rows, 3, n]. */
static void run_short_conv(struct sl_device *d, const void *ctx, void *out) {
    const struct conv_case *c = ctx;
    size_t n = (size_t)c->r->n * c->n, page = (size_t)(c->n_taps - 1) * c->n;
    float *y = conf_put(d, NULL, n * sizeof *y);
    struct sl_op_short_conv a = {.x = conf_put(d, c->x, 3 * n * sizeof *y),
                                 .w = conf_put(d, c->w, c->n * c->n_taps * sizeof *y),
                                 .y = y,
                                 .state = put_state(d, c->r, c->pages, page * sizeof *y),
                                 .n_tok = c->r->n,
                                 .n = c->n,
                                 .n_taps = c->n_taps};
    conf_ok(sl_op_short_conv(d, &a));
    conf_get(d, out, y, n * sizeof *y);
    conf_get(d, (float *)out + n, a.state.pages, N_PAGES * page * sizeof *y);
}

/* The same, from the formula, by way of the convolution of b * v. */
static void one_short_conv(const struct rows *r, uint32_t n, uint32_t n_taps, enum conf_fill fill) {
    size_t all = (size_t)r->n * n, page = (size_t)(n_taps - 1) * n, total = all + N_PAGES * page;
    struct sl_rng rng = {n * 17 + n_taps};
    float *x = conf_host(3 * all * sizeof *x), *w = conf_host(n * n_taps * sizeof *w);
    float *pages = conf_host(N_PAGES * page * sizeof *pages), *y = conf_host(total * sizeof *y);
    float *p = conf_host(all * sizeof *p);
    conf_fill(&rng, fill, x, 3 * all);
    conf_fill(&rng, CONF_PLAIN, w, n * n_taps);
    conf_fill(&rng, CONF_PLAIN, pages, N_PAGES * page);
    for (size_t i = 0; i < all; i++)
        p[i] = x[i / n * 3 * n + i % n] * x[i / n * 3 * n + 2 * n + i % n];
    struct conv_case c = {r, x, w, NULL, pages, n, n_taps};
    char what[96];
    snprintf(what, sizeof what, "%u rows of %u, %u taps, fill %d", r->n, n, n_taps, (int)fill);
    conf_tolerance(1e-6f);
    conf_case(what, run_short_conv, &c, CONF_F32, total, y);
    if (conf_same_bits())
        return;
    c.x = p;
    for (size_t i = 0; i < all; i++) {
        double sum = 0, size = 0, gate = x[i / n * 3 * n + n + i % n];
        for (uint32_t k = 0; k < n_taps; k++) {
            double v = conv_x(&c, (uint32_t)(i / n), n_taps - 1 - k, (uint32_t)(i % n)) *
                       (double)w[i % n * n_taps + k];
            sum += v, size += fabs(v);
        }
        double ref = gate * sum, tol = fabs(gate) * size * 16 * 0x1p-24 + 0x1p-120;
        conf_near(what, &y[i], &ref, &tol, 1);
    }
    double *want = conf_host(N_PAGES * page * sizeof *want), *tol = conf_host(page * sizeof *tol);
    for (size_t i = 0; i < N_PAGES * page; i++)
        want[i] = pages[i];
    for (uint32_t t = 0; t < r->n; t++)
        for (size_t i = 0; i < page; i++)
            want[r->slot[t] / PAGE * page + i] =
                conv_x(&c, t, n_taps - 2 - (uint32_t)(i / n), (uint32_t)(i % n));
    for (uint32_t i = 0; i < N_PAGES; i++)
        conf_near(what, y + all + i * page, want + i * page, tol, page);
}

static void short_conv(void) {
    conf_needs_op(SL_OP_short_conv);
    static struct rows r;
    static const uint32_t n[] = {1, 5, 16, 31, 64, 255, 256, 257, 600};
    for (size_t i = 0; i < CONF_COUNT(n); i++)
        for (uint32_t taps = 2; taps <= SL_CONV_MAX_TAPS; taps += 1 + taps / 4) {
            memset(&r, 0, sizeof r);
            fill_table(&r);
            add_rows(&r, 1, 7, 1);             /* goes on in a page */
            add_rows(&r, 0, 64, 1);            /* begins one */
            add_rows(&r, 2, 0, i % 2 ? 2 : 1); /* begins the sequence, with fewer rows than taps */
            one_short_conv(&r, n[i], taps, (enum conf_fill)(i % CONF_N_FILL));
            r.n = 0;
            add_rows(&r, 2, 63, 1);                  /* the last of a page */
            add_rows(&r, 0, 61, 70);                 /* over a page and more */
            add_rows(&r, 1, 0, n[i] > 100 ? 3 : 64); /* a page to its end */
            one_short_conv(&r, n[i], taps, CONF_PLAIN);
            r.n = 0;
            add_rows_apart(&r);
            one_short_conv(&r, n[i], taps, CONF_PLAIN);
            r.n = 0;
            add_rows_with_gaps(&r);
            one_short_conv(&r, n[i], taps, CONF_PLAIN);
        }
}

struct delta_case {
    const struct rows *r;
    const float *qkv, *gates, *a, *dt, *pages;
    uint32_t n_heads, n_heads_k, dim_k, dim_v, group;
    bool grouped;
};

static uint32_t qkv_width(const struct delta_case *c) {
    return 2 * c->n_heads_k * c->dim_k + c->n_heads * c->dim_v;
}

/* y, then all pages. Gates of group heads lie side by side, betas, then alphas. */
static void run_delta(struct sl_device *d, const void *ctx, void *out) {
    const struct delta_case *c = ctx;
    size_t width = qkv_width(c), n_y = (size_t)c->r->n * c->n_heads * c->dim_v;
    size_t page = (size_t)c->n_heads * c->dim_k * c->dim_v, key = (size_t)c->n_heads_k * c->dim_k;
    const float *x = conf_put(d, c->qkv, c->r->n * width * sizeof *x);
    const float *gates = conf_put(d, c->gates, (size_t)c->r->n * 2 * c->n_heads * sizeof *x);
    float *y = conf_put(d, NULL, n_y * sizeof *y);
    struct sl_op_delta_rule a = {.q = x,
                                 .k = x + key,
                                 .v = x + 2 * key,
                                 .beta = gates,
                                 .alpha = gates + c->group,
                                 .a = conf_put(d, c->a, c->n_heads * sizeof *y),
                                 .dt = conf_put(d, c->dt, c->n_heads * sizeof *y),
                                 .y = y,
                                 .state = put_state(d, c->r, c->pages, page * sizeof *y),
                                 .n_tok = c->r->n,
                                 .n_heads = c->n_heads,
                                 .n_heads_k = c->n_heads_k,
                                 .head_dim_k = c->dim_k,
                                 .head_dim_v = c->dim_v,
                                 .stride = (uint32_t)width,
                                 .stride_gate = 2 * c->n_heads,
                                 .gate_group = c->group,
                                 .gate_group_stride = 2 * c->group,
                                 .grouped = c->grouped,
                                 .scale = 0.37f};
    conf_ok(sl_op_delta_rule(d, &a));
    conf_get(d, out, y, n_y * sizeof *y);
    conf_get(d, (float *)out + n_y, a.state.pages, N_PAGES * page * sizeof *y);
}

/* In double precision, from the formula; s [dim_k, dim_v] is replaced. */
static void delta_ref(const struct delta_case *c, uint32_t t, uint32_t h, double *s, double *y) {
    uint32_t hk = c->grouped ? h / (c->n_heads / c->n_heads_k) : h % c->n_heads_k;
    const float *q = c->qkv + (size_t)t * qkv_width(c) + hk * c->dim_k;
    const float *k = q + (size_t)c->n_heads_k * c->dim_k;
    const float *v = c->qkv + (size_t)t * qkv_width(c) + 2 * c->n_heads_k * c->dim_k + h * c->dim_v;
    const float *gate =
        c->gates + (size_t)t * 2 * c->n_heads + h / c->group * 2 * c->group + h % c->group;
    double g = exp((double)c->a[h] * log1p(exp((double)gate[c->group] + (double)c->dt[h])));
    double b = 1 / (1 + exp(-(double)gate[0]));
    for (uint32_t j = 0; j < c->dim_v; j++) {
        double sum = 0, out = 0;
        for (uint32_t i = 0; i < c->dim_k; i++)
            sum += g * s[i * c->dim_v + j] * k[i];
        double d = b * (v[j] - sum);
        for (uint32_t i = 0; i < c->dim_k; i++) {
            s[i * c->dim_v + j] = g * s[i * c->dim_v + j] + k[i] * d;
            out += s[i * c->dim_v + j] * q[i];
        }
        y[j] = 0.37f * out;
    }
}

static void one_delta(const struct delta_case *shape, uint32_t seed) {
    struct delta_case c = *shape;
    const struct rows *r = c.r;
    size_t width = qkv_width(&c), n_y = (size_t)r->n * c.n_heads * c.dim_v;
    size_t head = (size_t)c.dim_k * c.dim_v, page = c.n_heads * head;
    size_t total = n_y + N_PAGES * page, n_gates = (size_t)r->n * 2 * c.n_heads;
    struct sl_rng rng = {seed};
    float *qkv = conf_host(r->n * width * sizeof *qkv), *gates = conf_host(n_gates * sizeof *gates);
    float *a = conf_host(c.n_heads * sizeof *a), *dt = conf_host(c.n_heads * sizeof *dt);
    float *pages = conf_host(N_PAGES * page * sizeof *pages), *y = conf_host(total * sizeof *y);
    conf_fill(&rng, CONF_PLAIN, qkv, r->n * width);
    conf_fill(&rng, CONF_PLAIN, gates, n_gates);
    conf_fill(&rng, CONF_PLAIN, a, c.n_heads);
    conf_fill(&rng, CONF_PLAIN, dt, c.n_heads);
    conf_fill(&rng, CONF_PLAIN, pages, N_PAGES * page);
    /* Keys of length one, as models have them: else the state grows without end. */
    for (size_t i = 0; i < r->n * width; i++)
        if (i % width < 2 * (size_t)c.n_heads_k * c.dim_k)
            qkv[i] *= 1.7f / sqrtf((float)c.dim_k);
    for (uint32_t h = 0; h < c.n_heads; h++)
        a[h] = -8 * fabsf(a[h]); /* from no decay to little left */
    for (size_t i = 0; i < n_gates; i++)
        gates[i] *= i % 5 ? 4 : 40; /* past 20, where softplus is its argument */
    c.qkv = qkv, c.gates = gates, c.a = a, c.dt = dt, c.pages = pages;
    char what[128];
    snprintf(what, sizeof what, "%u rows, %u heads of %u over %u of %u, gates by %u%s", r->n,
             c.n_heads, c.dim_v, c.n_heads_k, c.dim_k, c.group, c.grouped ? ", grouped" : "");
    conf_tolerance(1e-5f);
    conf_case(what, run_delta, &c, CONF_F32, total, y);
    if (conf_same_bits())
        return;
    double *s = conf_host(head * sizeof *s), *ref = conf_host(c.dim_v * sizeof *ref);
    double *want = conf_host(N_PAGES * page * sizeof *want);
    for (size_t i = 0; i < N_PAGES * page; i++)
        want[i] = pages[i];
    double *tol = conf_host((page > c.dim_v ? page : c.dim_v) * sizeof *tol);
    for (size_t i = 0; i < page || i < c.dim_v; i++)
        tol[i] = 2e-5;
    for (uint32_t h = 0; h < c.n_heads; h++)
        for (uint32_t t = 0; t < r->n; t++) {
            if (!t || r->row_seq[t] != r->row_seq[t - 1]) {
                uint32_t len = r->row_len[t];
                size_t from =
                    len < 2 ? 0 : r->table[r->row_seq[t] * MAX_PAGES + (len - 2) / PAGE] * page;
                for (size_t i = 0; i < head; i++)
                    s[i] = len < 2 ? 0 : (double)pages[from + h * head + i];
            }
            delta_ref(&c, t, h, s, ref);
            conf_near(what, y + ((size_t)t * c.n_heads + h) * c.dim_v, ref, tol, c.dim_v);
            memcpy(want + r->slot[t] / PAGE * page + h * head, s, head * sizeof *s);
        }
    for (uint32_t p = 0; p < N_PAGES; p++)
        conf_near(what, y + n_y + p * page, want + p * page, tol, page);
}

static void delta_rule(void) {
    conf_needs_op(SL_OP_delta_rule);
    static struct rows r;
    static const struct delta_case shapes[] = {
        {.n_heads = 1, .n_heads_k = 1, .dim_k = 1, .dim_v = 1, .group = 1},
        {.n_heads = 2, .n_heads_k = 1, .dim_k = 7, .dim_v = 15, .group = 2},
        {.n_heads = 6, .n_heads_k = 3, .dim_k = 16, .dim_v = 16, .group = 6},
        {.n_heads = 6, .n_heads_k = 2, .dim_k = 24, .dim_v = 40, .group = 3, .grouped = true},
        {.n_heads = 4, .n_heads_k = 4, .dim_k = 33, .dim_v = 65, .group = 1, .grouped = true},
        {.n_heads = 3, .n_heads_k = 1, .dim_k = 64, .dim_v = 100, .group = 3},
        {.n_heads = 2, .n_heads_k = 1, .dim_k = 128, .dim_v = 128, .group = 2},
        {.n_heads = 1, .n_heads_k = 1, .dim_k = 20, .dim_v = 250, .group = 1},
        {.n_heads = 2, .n_heads_k = 2, .dim_k = 130, .dim_v = 33, .group = 1},
    };
    for (size_t i = 0; i < CONF_COUNT(shapes); i++) {
        struct delta_case c = shapes[i];
        c.r = &r;
        memset(&r, 0, sizeof r);
        fill_table(&r);
        add_rows(&r, 1, 7, 1);
        add_rows(&r, 0, 64, 1);
        add_rows(&r, 2, 0, 2);
        one_delta(&c, (uint32_t)i);
        r.n = 0;
        add_rows(&r, 2, 63, 1);
        add_rows(&r, 0, 61, 70);
        add_rows(&r, 1, 0, 17);
        one_delta(&c, 100 + (uint32_t)i);
        r.n = 0;
        add_rows_apart(&r);
        one_delta(&c, 700 + (uint32_t)i);
        r.n = 0;
        add_rows_with_gaps(&r);
        one_delta(&c, 200 + (uint32_t)i);
    }
}

/* ---- cut into slices ---- */

enum { CUT_ROWS = 150, CUT_HEADS = 4, CUT_DIM = 40, CUT_N = 3 * CUT_HEADS * CUT_DIM, CUT_TAPS = 4 };

struct cut_case {
    const float *x, *w, *gates;
    uint32_t slice;
};

/* Convolution, then the delta rule over its result, slice rows a call: outputs, then all that is in
 * the sequence's pages. */
static void run_cut(struct sl_device *d, const void *ctx, void *out) {
    const struct cut_case *c = ctx;
    static struct rows r;
    size_t conv_page = (CUT_TAPS - 1) * CUT_N * sizeof(float);
    size_t page = CUT_HEADS * CUT_DIM * CUT_DIM * sizeof(float);
    memset(&r, 0, sizeof r);
    fill_table(&r);
    add_rows(&r, 1, 0, CUT_ROWS);
    float *zero = conf_host(N_PAGES * (page > conv_page ? page : conv_page));
    struct sl_state_view conv = put_state(d, &r, zero, conv_page);
    struct sl_state_view state = put_state(d, &r, zero, page);
    const float *x = conf_put(d, c->x, CUT_ROWS * CUT_N * sizeof *x);
    const float *w = conf_put(d, c->w, CUT_N * CUT_TAPS * sizeof *w);
    const float *gates = conf_put(d, c->gates, CUT_ROWS * 2 * CUT_HEADS * sizeof *gates);
    const float *heads = conf_put(d, c->w, CUT_HEADS * sizeof *w);
    float *mixed = conf_put(d, NULL, CUT_ROWS * CUT_N * sizeof *mixed);
    float *y = conf_put(d, NULL, CUT_ROWS * CUT_HEADS * CUT_DIM * sizeof *y);
    for (uint32_t t = 0; t < CUT_ROWS; t += c->slice) {
        uint32_t n = CUT_ROWS - t < c->slice ? CUT_ROWS - t : c->slice;
        struct sl_state_view conv_at = conv, state_at = state;
        conv_at.slot += t, conv_at.row_seq += t, conv_at.row_len += t;
        state_at.slot += t, state_at.row_seq += t, state_at.row_len += t;
        conf_ok(sl_op_conv_silu(d, &(struct sl_op_conv_silu){.x = x + t * CUT_N,
                                                             .w = w,
                                                             .y = mixed + t * CUT_N,
                                                             .state = conv_at,
                                                             .n_tok = n,
                                                             .n = CUT_N,
                                                             .n_taps = CUT_TAPS}));
        const float *q = mixed + t * CUT_N, *k = q + CUT_HEADS * CUT_DIM;
        conf_ok(sl_op_delta_rule(
            d, &(struct sl_op_delta_rule){.q = q,
                                          .k = k,
                                          .v = k + CUT_HEADS * CUT_DIM,
                                          .alpha = gates + t * 2 * CUT_HEADS,
                                          .beta = gates + t * 2 * CUT_HEADS + CUT_HEADS,
                                          .a = heads,
                                          .dt = heads,
                                          .y = y + t * CUT_HEADS * CUT_DIM,
                                          .state = state_at,
                                          .n_tok = n,
                                          .n_heads = CUT_HEADS,
                                          .n_heads_k = CUT_HEADS,
                                          .head_dim_k = CUT_DIM,
                                          .head_dim_v = CUT_DIM,
                                          .stride = CUT_N,
                                          .stride_gate = 2 * CUT_HEADS,
                                          .gate_group = CUT_HEADS,
                                          .scale = 0.2f}));
    }
    size_t n_y = CUT_ROWS * CUT_HEADS * CUT_DIM * sizeof(float);
    conf_get(d, out, y, n_y);
    conf_get(d, (char *)out + n_y, state.pages, N_PAGES * page);
    conf_get(d, (char *)out + n_y + N_PAGES * page, conv.pages, N_PAGES * conv_page);
}

/* However a sequence is cut, outputs and states have the same bits. */
static void slices(void) {
    conf_needs_op(SL_OP_conv_silu);
    conf_needs_op(SL_OP_delta_rule);
    static const uint32_t cuts[] = {CUT_ROWS, 1, 7, 64, 100};
    size_t n = CUT_ROWS * CUT_HEADS * CUT_DIM + N_PAGES * CUT_HEADS * CUT_DIM * CUT_DIM +
               N_PAGES * (CUT_TAPS - 1) * CUT_N;
    struct sl_rng rng = {5};
    float *x = conf_host(CUT_ROWS * CUT_N * sizeof *x), *w = conf_host(CUT_N * CUT_TAPS * 4);
    float *gates = conf_host(CUT_ROWS * 2 * CUT_HEADS * sizeof *gates);
    float *whole = conf_host(n * sizeof *whole), *y = conf_host(n * sizeof *y);
    conf_fill(&rng, CONF_PLAIN, x, CUT_ROWS * CUT_N);
    conf_fill(&rng, CONF_PLAIN, gates, CUT_ROWS * 2 * CUT_HEADS);
    for (uint32_t i = 0; i < CUT_N * CUT_TAPS; i++)
        w[i] = -0.2f * sl_rng_unit(&rng);
    for (size_t i = 0; i < CONF_COUNT(cuts); i++) {
        struct cut_case c = {x, w, gates, cuts[i]};
        conf_tolerance(1e-5f);
        conf_case("slices", run_cut, &c, CONF_F32, n, i ? y : whole);
        if (i)
            assert_memory_equal(y, whole, n * sizeof *y);
    }
}

struct scan_case {
    const struct rows *r;
    const float *x, *dt, *a, *dt_bias, *skip, *pages;
    uint32_t n_heads, n_groups, dim, n_state;
    uint32_t slice; /* rows of a call; 0: all */
};

static uint32_t scan_width(const struct scan_case *c) {
    return c->n_heads * c->dim + 2 * c->n_groups * c->n_state;
}

/* y, then all pages. */
static void run_scan(struct sl_device *d, const void *ctx, void *out) {
    const struct scan_case *c = ctx;
    uint32_t n = c->r->n, width = scan_width(c), inner = c->n_heads * c->dim;
    size_t page = (size_t)inner * c->n_state;
    const float *x = conf_put(d, c->x, (size_t)n * width * sizeof *x);
    const float *dt = conf_put(d, c->dt, (size_t)n * c->n_heads * sizeof *x);
    float *y = conf_put(d, NULL, (size_t)n * inner * sizeof *y);
    struct sl_op_state_scan a = {.a = conf_put(d, c->a, c->n_heads * sizeof *y),
                                 .dt_bias = conf_put(d, c->dt_bias, c->n_heads * sizeof *y),
                                 .skip = conf_put(d, c->skip, c->n_heads * sizeof *y),
                                 .state = put_state(d, c->r, c->pages, page * sizeof *y),
                                 .n_heads = c->n_heads,
                                 .n_groups = c->n_groups,
                                 .head_dim = c->dim,
                                 .n_state = c->n_state,
                                 .stride = width};
    void *pages = a.state.pages;
    uint32_t step = c->slice ? c->slice : n;
    for (uint32_t t = 0; t < n; t += step) {
        a.x = x + (size_t)t * width;
        a.b = a.x + inner;
        a.c = a.b + c->n_groups * c->n_state;
        a.dt = dt + (size_t)t * c->n_heads;
        a.y = y + (size_t)t * inner;
        a.n_tok = n - t < step ? n - t : step;
        conf_ok(sl_op_state_scan(d, &a));
        a.state.slot += step, a.state.row_seq += step, a.state.row_len += step;
    }
    conf_get(d, out, y, (size_t)n * inner * sizeof *y);
    conf_get(d, (float *)out + (size_t)n * inner, pages, N_PAGES * page * sizeof *y);
}

/* In double precision, from the formula; s [n_state, dim] is replaced. */
static void scan_ref(const struct scan_case *c, uint32_t t, uint32_t h, double *s, double *y) {
    const float *row = c->x + (size_t)t * scan_width(c), *x = row + h * c->dim;
    const float *b = row + c->n_heads * c->dim + h / (c->n_heads / c->n_groups) * c->n_state;
    const float *read = b + c->n_groups * c->n_state;
    double d = log1p(exp((double)c->dt[(size_t)t * c->n_heads + h] + (double)c->dt_bias[h]));
    double g = exp((double)c->a[h] * d);
    for (uint32_t j = 0; j < c->dim; j++) {
        y[j] = (double)c->skip[h] * x[j];
        for (uint32_t i = 0; i < c->n_state; i++) {
            s[i * c->dim + j] = g * s[i * c->dim + j] + d * x[j] * b[i];
            y[j] += s[i * c->dim + j] * read[i];
        }
    }
}

/* With slices: also cut into those, with the same bits. */
static void one_scan(const struct scan_case *shape, uint32_t seed, bool slices) {
    struct scan_case c = *shape;
    const struct rows *r = c.r;
    size_t width = scan_width(&c), inner = (size_t)c.n_heads * c.dim, n_y = r->n * inner;
    size_t head = (size_t)c.n_state * c.dim, page = c.n_heads * head, total = n_y + N_PAGES * page;
    struct sl_rng rng = {seed};
    float *x = conf_host(r->n * width * sizeof *x), *dt = conf_host(r->n * c.n_heads * sizeof *dt);
    float *heads = conf_host(3 * (size_t)c.n_heads * sizeof *heads);
    float *pages = conf_host(N_PAGES * page * sizeof *pages), *y = conf_host(total * sizeof *y);
    conf_fill(&rng, CONF_PLAIN, x, r->n * width);
    conf_fill(&rng, CONF_PLAIN, dt, (size_t)r->n * c.n_heads);
    conf_fill(&rng, CONF_PLAIN, heads, 3 * (size_t)c.n_heads);
    conf_fill(&rng, CONF_PLAIN, pages, N_PAGES * page);
    for (uint32_t h = 0; h < c.n_heads; h++)
        heads[h] = -0.1f - 8 * fabsf(heads[h]);
    for (size_t i = 0; i < r->n * width; i++)
        if (i % width >= inner)
            x[i] /= sqrtf((float)c.n_state);
    for (size_t i = 0; i < (size_t)r->n * c.n_heads; i++)
        dt[i] *= i % 7 ? 4 : 40; /* past 20, where softplus is its argument */
    c.x = x, c.dt = dt, c.a = heads, c.dt_bias = heads + c.n_heads;
    c.skip = heads + 2 * (size_t)c.n_heads, c.pages = pages;
    char what[128];
    snprintf(what, sizeof what, "%u rows, %u heads of %u, %u groups of %u", r->n, c.n_heads, c.dim,
             c.n_groups, c.n_state);
    conf_tolerance(1e-5f);
    conf_case(what, run_scan, &c, CONF_F32, total, y);
    float *cut = conf_host(total * sizeof *cut);
    for (uint32_t slice = 1; slices && slice < 80; slice = slice * 4 + 3) {
        c.slice = slice;
        conf_case(what, run_scan, &c, CONF_F32, total, cut);
        assert_memory_equal(cut, y, total * sizeof *cut);
    }
    if (conf_same_bits())
        return;
    double *s = conf_host(head * sizeof *s), *ref = conf_host(c.dim * sizeof *ref);
    double *want = conf_host(N_PAGES * page * sizeof *want);
    size_t most = page > c.dim ? page : c.dim;
    double *tol = conf_host(most * sizeof *tol);
    for (size_t i = 0; i < most; i++)
        tol[i] = 2e-4; /* of states of up to 40 * 4 * 4 */
    for (size_t i = 0; i < N_PAGES * page; i++)
        want[i] = pages[i];
    for (uint32_t h = 0; h < c.n_heads; h++)
        for (uint32_t t = 0; t < r->n; t++) {
            if (!t || r->row_seq[t] != r->row_seq[t - 1]) {
                uint32_t len = r->row_len[t];
                size_t from =
                    len < 2 ? 0 : r->table[r->row_seq[t] * MAX_PAGES + (len - 2) / PAGE] * page;
                for (size_t i = 0; i < head; i++)
                    s[i] = len < 2 ? 0 : (double)pages[from + h * head + i];
            }
            scan_ref(&c, t, h, s, ref);
            conf_near(what, y + ((size_t)t * c.n_heads + h) * c.dim, ref, tol, c.dim);
            memcpy(want + r->slot[t] / PAGE * page + h * head, s, head * sizeof *s);
        }
    for (uint32_t p = 0; p < N_PAGES; p++)
        conf_near(what, y + n_y + p * page, want + p * page, tol, page);
}

static void state_scan(void) {
    conf_needs_op(SL_OP_state_scan);
    static struct rows r;
    static const struct scan_case shapes[] = {
        {.n_heads = 1, .n_groups = 1, .dim = 1, .n_state = 1},
        {.n_heads = 2, .n_groups = 1, .dim = 15, .n_state = 7},
        {.n_heads = 6, .n_groups = 3, .dim = 16, .n_state = 16},
        {.n_heads = 4, .n_groups = 4, .dim = 65, .n_state = 33},
        {.n_heads = 3, .n_groups = 1, .dim = 100, .n_state = 64},
        {.n_heads = 2, .n_groups = 1, .dim = 64, .n_state = 128},
        {.n_heads = 1, .n_groups = 1, .dim = 250, .n_state = 20},
        {.n_heads = 2, .n_groups = 2, .dim = 33, .n_state = 200},
    };
    for (size_t i = 0; i < CONF_COUNT(shapes); i++) {
        struct scan_case c = shapes[i];
        c.r = &r;
        memset(&r, 0, sizeof r);
        fill_table(&r);
        add_rows(&r, 1, 7, 1);
        add_rows(&r, 0, 64, 1);
        add_rows(&r, 2, 0, 2);
        one_scan(&c, (uint32_t)i, false);
        r.n = 0;
        add_rows(&r, 2, 63, 1);
        add_rows(&r, 0, 61, 70);
        add_rows(&r, 1, 0, 17);
        one_scan(&c, 100 + (uint32_t)i, false);
        r.n = 0;
        add_rows(&r, 1, 0, 150);
        one_scan(&c, 200 + (uint32_t)i, true);
        r.n = 0;
        add_rows_apart(&r);
        one_scan(&c, 800 + (uint32_t)i, false);
        r.n = 0;
        add_rows_with_gaps(&r);
        one_scan(&c, 300 + (uint32_t)i, false);
    }
}

struct channel_case {
    const struct rows *r;
    const float *x, *dt, *b, *c, *a, *skip, *pages;
    uint32_t n, n_state, slice;
};

/* y, then all pages. */
static void run_channels(struct sl_device *d, const void *ctx, void *out) {
    const struct channel_case *c = ctx;
    size_t rows = c->r->n, page = (size_t)c->n * c->n_state;
    const float *x = conf_put(d, c->x, rows * c->n * sizeof *x);
    const float *dt = conf_put(d, c->dt, rows * c->n * sizeof *x);
    const float *b = conf_put(d, c->b, rows * c->n_state * sizeof *x);
    const float *from = conf_put(d, c->c, rows * c->n_state * sizeof *x);
    float *y = conf_put(d, NULL, rows * c->n * sizeof *y);
    struct sl_op_channel_scan a = {.a = conf_put(d, c->a, page * sizeof *y),
                                   .skip = conf_put(d, c->skip, c->n * sizeof *y),
                                   .state = put_state(d, c->r, c->pages, page * sizeof *y),
                                   .n = c->n,
                                   .n_state = c->n_state};
    void *pages = a.state.pages;
    uint32_t step = c->slice ? c->slice : c->r->n;
    for (size_t t = 0; t < rows; t += step) {
        a.x = x + t * c->n, a.dt = dt + t * c->n, a.y = y + t * c->n;
        a.b = b + t * c->n_state, a.c = from + t * c->n_state;
        a.n_tok = rows - t < step ? (uint32_t)(rows - t) : step;
        conf_ok(sl_op_channel_scan(d, &a));
        a.state.slot += step, a.state.row_seq += step, a.state.row_len += step;
    }
    conf_get(d, out, y, rows * c->n * sizeof *y);
    conf_get(d, (float *)out + rows * c->n, pages, N_PAGES * page * sizeof *y);
}

/* With slices: also cut into those, with the same bits. */
static void one_channels(const struct rows *r, uint32_t n, uint32_t n_state, bool slices) {
    size_t all = (size_t)r->n * n, few = (size_t)r->n * n_state, page = (size_t)n * n_state;
    size_t total = all + N_PAGES * page;
    struct sl_rng rng = {n * 7 + n_state};
    float *x = conf_host(all * sizeof *x), *dt = conf_host(all * sizeof *dt);
    float *b = conf_host(few * sizeof *b), *from = conf_host(few * sizeof *from);
    float *a = conf_host(page * sizeof *a), *skip = conf_host(n * sizeof *skip);
    float *pages = conf_host(N_PAGES * page * sizeof *pages), *y = conf_host(total * sizeof *y);
    conf_fill(&rng, CONF_PLAIN, x, all);
    conf_fill(&rng, CONF_PLAIN, dt, all);
    conf_fill(&rng, CONF_PLAIN, b, few);
    conf_fill(&rng, CONF_PLAIN, from, few);
    conf_fill(&rng, CONF_PLAIN, a, page);
    conf_fill(&rng, CONF_PLAIN, skip, n);
    conf_fill(&rng, CONF_PLAIN, pages, N_PAGES * page);
    for (size_t i = 0; i < page; i++)
        a[i] = -0.1f - 8 * fabsf(a[i]);
    for (size_t i = 0; i < all; i++)
        dt[i] *= i % 7 ? 4 : 40; /* past 20, where softplus is its argument */
    struct channel_case c = {r, x, dt, b, from, a, skip, pages, n, n_state, 0};
    char what[96];
    snprintf(what, sizeof what, "%u rows of %u, states of %u", r->n, n, n_state);
    conf_tolerance(1e-5f);
    conf_case(what, run_channels, &c, CONF_F32, total, y);
    float *cut = conf_host(total * sizeof *cut);
    for (uint32_t slice = 1; slices && slice < 80; slice = slice * 4 + 3) {
        c.slice = slice;
        conf_case(what, run_channels, &c, CONF_F32, total, cut);
        assert_memory_equal(cut, y, total * sizeof *cut);
    }
    if (conf_same_bits())
        return;
    double *s = conf_host(n_state * sizeof *s), *want = conf_host(N_PAGES * page * sizeof *want);
    double *tol = conf_host(page * sizeof *tol);
    for (size_t i = 0; i < page; i++)
        tol[i] = 5e-4; /* of states of up to 40 * 4 * 4 */
    for (size_t i = 0; i < N_PAGES * page; i++)
        want[i] = pages[i];
    for (uint32_t j = 0; j < n; j++)
        for (uint32_t t = 0; t < r->n; t++) {
            size_t at = (size_t)t * n + j, row = (size_t)t * n_state;
            if (!t || r->row_seq[t] != r->row_seq[t - 1]) {
                uint32_t len = r->row_len[t];
                size_t old =
                    len < 2 ? 0 : r->table[r->row_seq[t] * MAX_PAGES + (len - 2) / PAGE] * page;
                for (uint32_t i = 0; i < n_state; i++)
                    s[i] = len < 2 ? 0 : (double)pages[old + (size_t)i * n + j];
            }
            double d = log1p(exp((double)dt[at])), ref = (double)skip[j] * x[at];
            for (uint32_t i = 0; i < n_state; i++) {
                s[i] = exp((double)a[(size_t)j * n_state + i] * d) * s[i] + d * x[at] * b[row + i];
                ref += s[i] * from[row + i];
                want[r->slot[t] / PAGE * page + (size_t)i * n + j] = s[i];
            }
            double most = 2e-3;
            conf_near(what, &y[at], &ref, &most, 1);
        }
    for (uint32_t p = 0; p < N_PAGES; p++)
        conf_near(what, y + all + p * page, want + p * page, tol, page);
}

static void channel_scan(void) {
    conf_needs_op(SL_OP_channel_scan);
    static struct rows r;
    static const uint32_t n[] = {1, 5, 16, 31, 64, 100, 257};
    static const uint32_t n_state[] = {1, 16, 13, 64, 16, 7, 16};
    for (size_t i = 0; i < CONF_COUNT(n); i++) {
        memset(&r, 0, sizeof r);
        fill_table(&r);
        add_rows(&r, 2, 63, 1);
        add_rows(&r, 0, 61, 70);
        add_rows(&r, 1, 0, 17);
        one_channels(&r, n[i], n_state[i], false);
        r.n = 0;
        add_rows(&r, 1, 0, 150);
        one_channels(&r, n[i], n_state[i], true);
        r.n = 0;
        add_rows_apart(&r);
        one_channels(&r, n[i], n_state[i], false);
        r.n = 0;
        add_rows_with_gaps(&r);
        one_channels(&r, n[i], n_state[i], false);
    }
}

struct kda_case {
    const struct rows *r;
    const float *q, *k, *v, *alpha, *beta, *a, *dt, *pages;
    uint32_t n_heads, n_k, n_v, slice;
    float bound;
};

/* y, then all pages. */
static void run_kda(struct sl_device *d, const void *ctx, void *out) {
    const struct kda_case *c = ctx;
    size_t rows = c->r->n, keys = (size_t)c->n_heads * c->n_k, values = (size_t)c->n_heads * c->n_v;
    size_t page = keys * c->n_v;
    const float *q = conf_put(d, c->q, rows * keys * sizeof *q);
    const float *k = conf_put(d, c->k, rows * keys * sizeof *k);
    const float *v = conf_put(d, c->v, rows * values * sizeof *v);
    const float *alpha = conf_put(d, c->alpha, rows * keys * sizeof *alpha);
    const float *beta = conf_put(d, c->beta, rows * c->n_heads * sizeof *beta);
    float *y = conf_put(d, NULL, rows * values * sizeof *y);
    struct sl_op_channel_delta a = {.a = conf_put(d, c->a, c->n_heads * sizeof *y),
                                    .dt = conf_put(d, c->dt, keys * sizeof *y),
                                    .state = put_state(d, c->r, c->pages, page * sizeof *y),
                                    .n_heads = c->n_heads,
                                    .head_dim_k = c->n_k,
                                    .head_dim_v = c->n_v,
                                    .scale = 0.3f,
                                    .bound = c->bound};
    void *pages = a.state.pages;
    uint32_t step = c->slice ? c->slice : c->r->n;
    for (size_t t = 0; t < rows; t += step) {
        a.q = q + t * keys, a.k = k + t * keys, a.v = v + t * values, a.y = y + t * values;
        a.alpha = alpha + t * keys, a.beta = beta + t * c->n_heads;
        a.n_tok = rows - t < step ? (uint32_t)(rows - t) : step;
        conf_ok(sl_op_channel_delta(d, &a));
        a.state.slot += step, a.state.row_seq += step, a.state.row_len += step;
    }
    conf_get(d, out, y, rows * values * sizeof *y);
    conf_get(d, (float *)out + rows * values, pages, N_PAGES * page * sizeof *y);
}

/* A head in double precision, of which y and the pages are compared. */
static void check_kda(const struct kda_case *c, uint32_t h, const float *y) {
    const struct rows *r = c->r;
    uint32_t n_k = c->n_k, n_v = c->n_v;
    size_t page = (size_t)c->n_heads * n_k * n_v, head = (size_t)h * n_k * n_v;
    double *s = conf_host((size_t)n_k * n_v * sizeof *s), *g = conf_host(n_k * sizeof *g);
    for (uint32_t t = 0; t < r->n; t++) {
        const float *k = c->k + ((size_t)t * c->n_heads + h) * n_k;
        const float *q = c->q + ((size_t)t * c->n_heads + h) * n_k;
        size_t row = ((size_t)t * c->n_heads + h) * n_v;
        if (!t || r->row_seq[t] != r->row_seq[t - 1]) {
            uint32_t len = r->row_len[t];
            size_t old =
                len < 2 ? 0 : r->table[r->row_seq[t] * MAX_PAGES + (len - 2) / PAGE] * page;
            for (size_t i = 0; i < (size_t)n_k * n_v; i++)
                s[i] = len < 2 ? 0 : (double)c->pages[old + head + i];
        }
        for (uint32_t i = 0; i < n_k; i++) {
            double x = (double)c->alpha[((size_t)t * c->n_heads + h) * n_k + i] +
                       (double)c->dt[(size_t)h * n_k + i];
            g[i] = c->bound < 0 ? exp((double)c->bound / (1 + exp(-fabs((double)c->a[h]) * x)))
                                : exp((double)c->a[h] * log1p(exp(x)));
        }
        double b = 1 / (1 + exp(-(double)c->beta[(size_t)t * c->n_heads + h]));
        for (uint32_t j = 0; j < n_v; j++) {
            double sum = 0, ref = 0, tol = 2e-4;
            for (uint32_t i = 0; i < n_k; i++)
                sum += g[i] * s[(size_t)i * n_v + j] * (double)k[i];
            double d = b * ((double)c->v[row + j] - sum);
            for (uint32_t i = 0; i < n_k; i++) {
                double *at = &s[(size_t)i * n_v + j];
                *at = g[i] * *at + (double)k[i] * d;
                ref += *at * (double)q[i];
            }
            ref *= (double)0.3f;
            conf_near("y", &y[row + j], &ref, &tol, 1);
        }
        bool last = t + 1 == r->n || r->row_seq[t + 1] != r->row_seq[t] ||
                    r->slot[t + 1] / PAGE != r->slot[t] / PAGE;
        const float *have = y + (size_t)r->n * c->n_heads * n_v + r->slot[t] / PAGE * page + head;
        for (size_t i = 0; i < (size_t)n_k * n_v && last; i++)
            conf_near("state", &have[i], &s[i], &(double){2e-4}, 1);
    }
}

static void one_kda(const struct rows *r, uint32_t n_heads, uint32_t n_k, uint32_t n_v, float bound,
                    bool slices) {
    size_t keys = (size_t)r->n * n_heads * n_k, values = (size_t)r->n * n_heads * n_v;
    size_t page = (size_t)n_heads * n_k * n_v, total = values + N_PAGES * page;
    struct sl_rng rng = {n_k * 7 + n_v};
    float *q = conf_host(keys * sizeof *q), *k = conf_host(keys * sizeof *k);
    float *v = conf_host(values * sizeof *v), *alpha = conf_host(keys * sizeof *alpha);
    float *beta = conf_host(r->n * n_heads * sizeof *beta), *a = conf_host(n_heads * sizeof *a);
    float *dt = conf_host((size_t)n_heads * n_k * sizeof *dt);
    float *pages = conf_host(N_PAGES * page * sizeof *pages), *y = conf_host(total * sizeof *y);
    conf_fill(&rng, CONF_PLAIN, q, keys);
    conf_fill(&rng, CONF_PLAIN, k, keys);
    conf_fill(&rng, CONF_PLAIN, v, values);
    conf_fill(&rng, CONF_PLAIN, alpha, keys);
    conf_fill(&rng, CONF_PLAIN, beta, (size_t)r->n * n_heads);
    conf_fill(&rng, CONF_PLAIN, a, n_heads);
    conf_fill(&rng, CONF_PLAIN, dt, (size_t)n_heads * n_k);
    conf_fill(&rng, CONF_PLAIN, pages, N_PAGES * page);
    for (size_t i = 0; i < n_heads; i++)
        a[i] = (bound < 0 && i % 3 != 1 ? 1.0f : -1.0f) * (0.02f + 4 * fabsf(a[i]));
    for (size_t i = 0; i < keys; i++) {
        k[i] /= sqrtf((float)n_k);  /* as the norm leaves them, so that states stay bounded */
        alpha[i] *= i % 7 ? 4 : 40; /* past 20, where softplus is its argument */
    }
    struct kda_case c = {r, q, k, v, alpha, beta, a, dt, pages, n_heads, n_k, n_v, 0, bound};
    char what[96];
    snprintf(what, sizeof what, "%u rows, %u heads of %u and %u, bound %g", r->n, n_heads, n_k, n_v,
             (double)bound);
    conf_tolerance(1e-5f);
    conf_case(what, run_kda, &c, CONF_F32, total, y);
    float *cut = conf_host(total * sizeof *cut);
    for (uint32_t slice = 1; slices && slice < 80; slice = slice * 4 + 3) {
        c.slice = slice;
        conf_case(what, run_kda, &c, CONF_F32, total, cut);
        assert_memory_equal(cut, y, total * sizeof *cut);
    }
    for (uint32_t h = 0; h < n_heads && !conf_same_bits(); h++)
        check_kda(&c, h, y);
}

static void channel_delta(void) {
    conf_needs_op(SL_OP_channel_delta);
    static struct rows r;
    static const uint32_t heads[] = {1, 3, 2, 5, 2, 1, 1, 2};
    static const uint32_t n_k[] = {1, 24, 7, 16, 64, 40, 128, 200};
    static const uint32_t n_v[] = {1, 24, 33, 5, 64, 113, 128, 36};
    static const float bounds[] = {0, -5, -0.5f};
    for (size_t i = 0; i < CONF_COUNT(heads) * CONF_COUNT(bounds); i++) {
        size_t s = i / CONF_COUNT(bounds);
        float bound = bounds[i % CONF_COUNT(bounds)];
        memset(&r, 0, sizeof r);
        fill_table(&r);
        add_rows(&r, 2, 63, 1);
        add_rows(&r, 0, 61, 70);
        add_rows(&r, 1, 0, 17);
        one_kda(&r, heads[s], n_k[s], n_v[s], bound, false);
        r.n = 0;
        add_rows(&r, 1, 0, 150);
        one_kda(&r, heads[s], n_k[s], n_v[s], bound, true);
        r.n = 0;
        add_rows_apart(&r);
        one_kda(&r, heads[s], n_k[s], n_v[s], bound, false);
        r.n = 0;
        add_rows_with_gaps(&r);
        one_kda(&r, heads[s], n_k[s], n_v[s], bound, false);
    }
}

static void run_short_cut(struct sl_device *d, const void *ctx, void *out) {
    const struct cut_case *c = ctx;
    static struct rows r;
    const uint32_t n = CUT_N / 3;
    size_t page = (size_t)(CUT_TAPS - 1) * n * sizeof(float), n_y = CUT_ROWS * n * sizeof(float);
    r.n = 0;
    fill_table(&r);
    add_rows(&r, 1, 0, CUT_ROWS);
    struct sl_state_view state = put_state(d, &r, NULL, page);
    const float *x = conf_put(d, c->x, (size_t)CUT_ROWS * 3 * n * sizeof *x);
    const float *w = conf_put(d, c->w, n * CUT_TAPS * sizeof *w);
    float *y = conf_put(d, NULL, n_y);
    for (uint32_t t = 0; t < CUT_ROWS; t += c->slice) {
        struct sl_state_view at = state;
        at.slot += t, at.row_seq += t, at.row_len += t;
        conf_ok(sl_op_short_conv(d, &(struct sl_op_short_conv){
                                        .x = x + (size_t)t * 3 * n,
                                        .w = w,
                                        .y = y + (size_t)t * n,
                                        .state = at,
                                        .n_tok = CUT_ROWS - t < c->slice ? CUT_ROWS - t : c->slice,
                                        .n = n,
                                        .n_taps = CUT_TAPS}));
    }
    conf_get(d, out, y, n_y);
    conf_get(d, (char *)out + n_y, state.pages, N_PAGES * page);
}

static void short_slices(void) {
    conf_needs_op(SL_OP_short_conv);
    static const uint32_t cuts[] = {CUT_ROWS, 1, 2, 7, 64, 100};
    const size_t n = CUT_ROWS * (CUT_N / 3) + N_PAGES * (CUT_TAPS - 1) * (CUT_N / 3);
    struct sl_rng rng = {6};
    float *x = conf_host(CUT_ROWS * CUT_N * sizeof *x), *w = conf_host(CUT_N * CUT_TAPS * 4);
    float *whole = conf_host(n * sizeof *whole), *y = conf_host(n * sizeof *y);
    conf_fill(&rng, CONF_PLAIN, x, CUT_ROWS * CUT_N);
    conf_fill(&rng, CONF_PLAIN, w, CUT_N * CUT_TAPS);
    for (size_t i = 0; i < CONF_COUNT(cuts); i++) {
        struct cut_case c = {x, w, NULL, cuts[i]};
        conf_tolerance(1e-6f);
        conf_case("slices", run_short_cut, &c, CONF_F32, n, i ? y : whole);
        if (i)
            assert_memory_equal(y, whole, n * sizeof *y);
    }
}

int main(int argc, char **argv) {
    static const struct conf_test tests[] = {
        {"mul_sigmoid", mul_sigmoid},
        {"l2_norm", l2_norm},
        {"conv_silu", conv_silu},
        {"short_conv", short_conv},
        {"delta_rule", delta_rule},
        {"slices", slices},
        {"slices of short_conv", short_slices},
        {"conv_silu with a bias", conv_silu_biased},
        {"state_scan", state_scan},
        {"channel_scan", channel_scan},
        {"channel_delta", channel_delta},
    };
    return conf_main(argc, argv, "recurrent", &limits, tests, CONF_COUNT(tests));
}
