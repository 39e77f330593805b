/* sl_op_attention over pages that sl_op_kv_write filled */
#include "backends/ops/attention.h"
#include "tests/conformance/conformance.h"
#include "tests/support/slow_build.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct sl_device_limits limits = {
    .max_tok = 700, .max_heads = 64, .max_head_dim = 512};

#define N_SEQ     4u
#define MAX_PAGES 40u
#define PAGE      SL_KV_PAGE_TOKENS

struct shape {
    enum sl_dtype dtype;
    uint32_t n_kv, group, dim_k, dim_v, window;
    bool sinks;
    enum conf_fill fill;
    float q_factor;
};
/* With caps.extra_args. */
struct extra {
    float softcap;
    uint32_t chunk;
};

struct row {
    uint32_t seq, len;
};

struct attn_case {
    struct shape s;
    struct extra extra;
    const float *q, *sinks;
    const float *k[N_SEQ], *v[N_SEQ]; /* [len, n_kv, dim] */
    uint32_t len[N_SEQ];
    const uint32_t *page_table;
    const struct row *rows;
    uint32_t n_rows, n_decode, stride_q;
};

/* Pages are written in order of position, MAX rows of a call at a time; what no sequence wrote is
 * 0xff, that is NaN. */
static void write_kv(struct sl_device *d, const struct attn_case *c, const struct sl_kv_view *kv) {
    uint32_t n_k = c->s.n_kv * c->s.dim_k, n_v = c->s.n_kv * c->s.dim_v;
    for (uint32_t seq = 0; seq < N_SEQ; seq++) {
        if (!c->len[seq])
            continue;
        uint32_t *slot = malloc(c->len[seq] * sizeof *slot);
        for (uint32_t i = 0; i < c->len[seq]; i++)
            slot[i] = c->page_table[seq * MAX_PAGES + i / PAGE] * PAGE + i % PAGE;
        const float *k = conf_put(d, c->k[seq], (size_t)c->len[seq] * n_k * sizeof(float));
        const float *v = conf_put(d, c->v[seq], (size_t)c->len[seq] * n_v * sizeof(float));
        const uint32_t *slots = conf_put(d, slot, c->len[seq] * sizeof *slot);
        free(slot);
        for (uint32_t at = 0; at < c->len[seq]; at += limits.max_tok) {
            uint32_t n = c->len[seq] - at < limits.max_tok ? c->len[seq] - at : limits.max_tok;
            conf_ok(sl_op_kv_write(d, &(struct sl_op_kv_write){.kv = *kv,
                                                               .k = k + (size_t)at * n_k,
                                                               .v = v + (size_t)at * n_v,
                                                               .slot = slots + at,
                                                               .n_tok = n,
                                                               .stride_k = n_k,
                                                               .stride_v = n_v}));
        }
    }
}

static struct sl_kv_view new_kv(struct sl_device *d, const struct shape *s) {
    struct sl_kv_view kv = {NULL, NULL, s->dtype, s->n_kv, s->dim_k, s->dim_v, 0, 0};
    kv.k_page_bytes = s->n_kv * PAGE * sl_dtype_row_bytes(s->dtype, s->dim_k);
    kv.v_page_bytes = s->n_kv * PAGE * sl_dtype_row_bytes(s->dtype, s->dim_v);
    kv.k = conf_put(d, NULL, N_SEQ * MAX_PAGES * kv.k_page_bytes);
    kv.v = conf_put(d, NULL, N_SEQ * MAX_PAGES * kv.v_page_bytes);
    return kv;
}

/* n rows from first on, as one call; q and y are those rows' own. */
static void attend(struct sl_device *d, const struct attn_case *c, const struct sl_kv_view *kv,
                   uint32_t first, uint32_t n, float *out) {
    uint32_t n_heads = c->s.n_kv * c->s.group;
    size_t n_y = (size_t)n * n_heads * c->s.dim_v;
    uint32_t *seq = malloc(n * sizeof *seq), *len = malloc(n * sizeof *len);
    for (uint32_t i = 0; i < n; i++)
        seq[i] = c->rows[first + i].seq, len[i] = c->rows[first + i].len;
    float *y = conf_put(d, NULL, n_y * sizeof *y);
    uint32_t n_decode = c->n_decode > first ? c->n_decode - first : 0;
    struct sl_op_attention a = {
        .kv = *kv,
        .q = conf_put(d, c->q + (size_t)first * c->stride_q,
                      (size_t)n * c->stride_q * sizeof(float)),
        .sinks = c->sinks ? conf_put(d, c->sinks, n_heads * sizeof(float)) : NULL,
        .y = y,
        .page_table = conf_put(d, c->page_table, N_SEQ * MAX_PAGES * sizeof(uint32_t)),
        .row_seq = conf_put(d, seq, n * sizeof *seq),
        .row_len = conf_put(d, len, n * sizeof *len),
        .n_tok = n,
        .n_decode = n_decode < n ? n_decode : n,
        .n_heads = n_heads,
        .stride_q = c->stride_q,
        .max_pages = MAX_PAGES,
        .window = c->s.window,
        .scale = 1 / sqrtf((float)c->s.dim_k),
        .softcap = c->extra.softcap,
        .chunk = c->extra.chunk};
    free(seq);
    free(len);
    conf_ok(sl_op_attention(d, &a));
    conf_get(d, out, y, n_y * sizeof *y);
}

static void run(struct sl_device *d, const void *ctx, void *out) {
    const struct attn_case *c = ctx;
    struct sl_kv_view kv = new_kv(d, &c->s);
    write_kv(d, c, &kv);
    attend(d, c, &kv, 0, c->n_rows, out);
}

/* What a reader of the page sees. */
static void stored(enum sl_dtype dtype, const float *x, uint32_t n, double *out) {
    for (uint32_t i = 0; i < n; i++) {
        if (dtype == SL_DTYPE_F16) {
            out[i] = (double)sl_f16_to_f32(sl_f32_to_f16(x[i]));
            continue;
        }
        float most = 0;
        for (uint32_t j = i / 32 * 32; j < i / 32 * 32 + 32; j++)
            most = fmaxf(most, fabsf(x[j]));
        double d = (double)sl_f16_to_f32(sl_f32_to_f16(most / 127));
        double q = d > 0 ? nearbyint((double)(x[i] * (float)(1 / (float)d))) : 0;
        out[i] = d * fmax(-127, fmin(127, q));
    }
}

/* Rows of c against softmax in double, with an error bound from the magnitudes. */
static void check(const char *what, const struct attn_case *c, const float *y, uint32_t every) {
    const struct shape *s = &c->s;
    uint32_t n_heads = s->n_kv * s->group;
    double scale = (double)(1 / sqrtf((float)s->dim_k));
    double *k[N_SEQ], *v[N_SEQ];
    size_t n_k = (size_t)s->n_kv * s->dim_k, n_v = (size_t)s->n_kv * s->dim_v;
    for (uint32_t q = 0; q < N_SEQ; q++) {
        k[q] = malloc((c->len[q] + 1) * n_k * sizeof **k);
        v[q] = malloc((c->len[q] + 1) * n_v * sizeof **v);
        for (size_t i = 0; i < (size_t)c->len[q] * s->n_kv; i++) {
            stored(s->dtype, c->k[q] + i * s->dim_k, s->dim_k, k[q] + i * s->dim_k);
            stored(s->dtype, c->v[q] + i * s->dim_v, s->dim_v, v[q] + i * s->dim_v);
        }
    }
    double *score = malloc(MAX_PAGES * PAGE * sizeof *score);
    double *ref = malloc(s->dim_v * sizeof *ref), *tol = malloc(s->dim_v * sizeof *tol);
    double *size = malloc(s->dim_v * sizeof *size);
    for (uint32_t r = 0; r < c->n_rows; r += every)
        for (uint32_t h = 0; h < n_heads; h += 1 + every / 4) {
            uint32_t seq = c->rows[r].seq, len = c->rows[r].len, kvh = h / s->group;
            uint32_t lo = c->extra.chunk ? (len - 1) / c->extra.chunk * c->extra.chunk
                          : s->window && len > s->window ? len - s->window
                                                         : 0;
            const float *q = c->q + (size_t)r * c->stride_q + (size_t)h * s->dim_k;
            /* Tensor cores take a query as two f16 relative to its own largest element: 22 bits of
             * each, the last at 2^-24 of the largest. So an element is off by 2^-22 of itself,
             * which the roundings below allow for, or by 2^-25 of the largest. */
            double q_max = 0;
            for (uint32_t i = 0; i < s->dim_k && !conf_checking(); i++)
                q_max = fmax(q_max, fabs((double)q[i]));
            double max = c->sinks ? (double)c->sinks[h] : -INFINITY, err = 0, fixed = 0;
            for (uint32_t j = lo; j < len; j++) {
                const double *kj = k[seq] + j * n_k + (size_t)kvh * s->dim_k;
                double dot = 0, mag = 0, k_size = 0;
                for (uint32_t i = 0; i < s->dim_k; i++)
                    dot += (double)q[i] * kj[i], mag += fabs((double)q[i] * kj[i]),
                        k_size += fabs(kj[i]);
                score[j] = dot * scale;
                if (c->extra.softcap > 0)
                    score[j] = (double)c->extra.softcap * tanh(score[j] / (double)c->extra.softcap);
                max = fmax(max, score[j]);
                err = fmax(err, mag * scale);
                fixed = fmax(fixed, q_max * k_size * scale);
            }
            double sum = c->sinks ? exp((double)c->sinks[h] - max) : 0;
            for (uint32_t i = 0; i < s->dim_v; i++)
                ref[i] = size[i] = tol[i] = 0;
            /* Tensor cores take weights in fixed point, to 2^-24 of the largest there could be, and
             * values below f16's normal range as if they were at its end. */
            double step = conf_checking() ? 0 : 0x1p-24;
            for (uint32_t j = lo; j < len; j++) {
                double p = exp(score[j] - max);
                sum += p;
                const double *vj = v[seq] + j * n_v + (size_t)kvh * s->dim_v;
                for (uint32_t i = 0; i < s->dim_v; i++) {
                    ref[i] += p * vj[i], size[i] += p * fabs(vj[i]);
                    tol[i] += step * fmax(fabs(vj[i]), 0x1p-14);
                }
            }
            /* Scores are off by (dim/16 + 6) roundings of their magnitude; exp makes that relative;
             * then about one rounding a position in the worst case, far fewer in truth. */
            double rel = 2 *
                             (err * (s->dim_k / 16.0 + 6) + fixed / 2 + fabs(max) + 1 +
                              8 * (double)c->extra.softcap) *
                             0x1p-24 +
                         (len - lo + 16.0) * 0x1p-24;
            for (uint32_t i = 0; i < s->dim_v; i++) {
                ref[i] /= sum;
                tol[i] = (rel * size[i] + tol[i]) / sum + 1e-30;
            }
            conf_near(what, y + ((size_t)r * n_heads + h) * s->dim_v, ref, tol, s->dim_v);
        }
    for (uint32_t i = 0; i < N_SEQ; i++)
        free(k[i]), free(v[i]);
    free(score), free(ref), free(tol), free(size);
}

/* A row alone, and in a slice of another size, gives the bits that it has in the batch: all. */
static void check_mates(const char *what, struct attn_case *c, const float *all, uint32_t step) {
    struct sl_device *d = conf_device();
    if (!conf_checking() && strstr(d->caps.name, "plain C"))
        return; /* slow, and the definition's own run did it */
    if (SLOW_BUILD && conf_checking() && c->s.dim_v > 128)
        return; /* plain C has the same accesses in narrow heads */
    uint32_t n_heads = c->s.n_kv * c->s.group;
    size_t row_n = (size_t)n_heads * c->s.dim_v;
    float *part = malloc(c->n_rows * row_n * sizeof *part);
    struct sl_kv_view kv = new_kv(d, &c->s);
    write_kv(d, c, &kv);
    for (uint32_t at = 0, n; at < c->n_rows; at += n * step) {
        n = 1 + at % 37;
        n = n < c->n_rows - at ? n : c->n_rows - at;
        attend(d, c, &kv, at, n, part);
        if (memcmp(part, all + at * row_n, n * row_n * sizeof *all) != 0)
            fail_msg("%s: rows %u to %u differ when they go alone", what, at, at + n);
    }
    free(part);
}

static void one_with(const struct shape *s, struct extra extra, const struct row *rows,
                     uint32_t n_rows, uint32_t n_decode, uint32_t every) {
    struct sl_rng rng = {s->dim_k * 1000u + s->group * 100u + s->window + n_rows};
    uint32_t n_heads = s->n_kv * s->group;
    struct attn_case c = {.s = *s,
                          .extra = extra,
                          .rows = rows,
                          .n_rows = n_rows,
                          .n_decode = n_decode,
                          .stride_q = n_heads * s->dim_k + 16 * (n_rows % 2)};
    uint32_t *table = conf_host(N_SEQ * MAX_PAGES * sizeof *table);
    for (uint32_t i = 0; i < N_SEQ * MAX_PAGES; i++) /* a permutation: 67 is prime to 160 */
        table[i] = (i * 67u + 5u) % (N_SEQ * MAX_PAGES);
    c.page_table = table;
    for (uint32_t r = 0; r < n_rows; r++)
        c.len[rows[r].seq] = rows[r].len > c.len[rows[r].seq] ? rows[r].len : c.len[rows[r].seq];
    for (uint32_t q = 0; q < N_SEQ; q++) {
        size_t n_k = (size_t)c.len[q] * s->n_kv * s->dim_k,
               n_v = (size_t)c.len[q] * s->n_kv * s->dim_v;
        float *k = conf_host(n_k * sizeof *k), *v = conf_host(n_v * sizeof *v);
        conf_fill(&rng, s->fill, k, n_k);
        conf_fill(&rng, s->fill, v, n_v);
        c.k[q] = k, c.v[q] = v;
    }
    size_t n_q = (size_t)n_rows * c.stride_q, n_y = (size_t)n_rows * n_heads * s->dim_v;
    float *q = conf_host(n_q * sizeof *q), *y = conf_host(n_y * sizeof *y);
    conf_fill(&rng, s->fill, q, n_q);
    for (size_t i = 0; i < n_q; i++)
        q[i] *= s->q_factor;
    c.q = q;
    if (s->sinks) {
        float *sinks = conf_host(n_heads * sizeof *sinks);
        conf_fill(&rng, CONF_PLAIN, sinks, n_heads);
        for (uint32_t h = 0; h < n_heads; h++)
            sinks[h] *= 6;
        c.sinks = sinks;
    }
    char what[160];
    snprintf(
        what, sizeof what,
        "%s, %u rows (%u generated), %u x %u heads of %u and %u, window %u, chunk %u, cap %g%s, "
        "fill %d x %g",
        sl_dtype_name(s->dtype), n_rows, n_decode, s->n_kv, s->group, s->dim_k, s->dim_v, s->window,
        extra.chunk, (double)extra.softcap, s->sinks ? ", sinks" : "", (int)s->fill,
        (double)s->q_factor);
    /* A score is rounded relative to its size, and exp makes that a relative error: more where
     * scores go into the hundreds. check() has the bound of each element. */
    conf_tolerance(s->q_factor > 10 || s->fill == CONF_SPIKES ? 1e-4f : 1e-5f);
    conf_case(what, run, &c, CONF_F32, n_y, y);
    if (!conf_same_bits() && !SLOW_BUILD) /* in double: of no memory but the test's */
        check(what, &c, y, every);
    check_mates(what, &c, y, n_rows > 100 ? 9 : n_rows > 40 ? 4 : 1);
}

/* Heads that need more shared memory than every GPU has: the last cases of a test. */
static bool lacks_heads(enum sl_dtype dtype, uint32_t dim_k, uint32_t dim_v) {
    struct sl_err err;
    const struct sl_op_need need = {
        .op = SL_OP_attention, .dtype = dtype, .head_dim_k = dim_k, .head_dim_v = dim_v};
    return sl_device_need(conf_device(), &need, &err) != SL_OK;
}

static void one(const struct shape *s, const struct row *rows, uint32_t n_rows, uint32_t n_decode,
                uint32_t every) {
    one_with(s, (struct extra){0}, rows, n_rows, n_decode, every);
}

/* Generated rows of several lengths, around pages and partitions. */
static const struct row decode_rows[] = {{0, 1},   {1, 64},  {2, 65},  {3, 511},
                                         {0, 512}, {1, 513}, {2, 700}, {3, 1030}};
/* Two generated rows, then prompts: the start of one, the middle of another. */
static struct row mixed_rows[2 + 30 + 40];

static void make_mixed(void) {
    mixed_rows[0] = (struct row){3, 77};
    mixed_rows[1] = (struct row){2, 600};
    for (uint32_t i = 0; i < 30; i++)
        mixed_rows[2 + i] = (struct row){0, 1 + i};
    for (uint32_t i = 0; i < 40; i++)
        mixed_rows[32 + i] = (struct row){1, 490 + i};
}

static void shapes(enum sl_dtype dtype) {
    static const uint32_t dim[] = {32, 40, 64, 80, 96, 128, 256};
    static const uint32_t group[] = {1, 3, 8};
    make_mixed();
    for (size_t i = 0; i < CONF_COUNT(dim); i++)
        for (size_t g = 0; g < CONF_COUNT(group); g++) {
            if (SLOW_BUILD && dim[i] != 40 && dim[i] != 96 && dim[i] != 256)
                continue;
            if (dtype == SL_DTYPE_Q8_0 && dim[i] % 32)
                continue;
            struct shape s = {
                dtype, 1 + (uint32_t)(i % 2), group[g], dim[i], dim[i], 0, g == 1, CONF_PLAIN, 4};
            one(&s, decode_rows, i % 2 ? 4 : CONF_COUNT(decode_rows), CONF_COUNT(decode_rows) / 2,
                1);
            s.n_kv = 1;
            if (dim[i] == 256 && group[g] != 3)
                continue; /* plain C takes a second for each */
            one(&s, mixed_rows, CONF_COUNT(mixed_rows), 2, 17);
        }
}

static void f16(void) {
    shapes(SL_DTYPE_F16);
}
static void q8_0(void) {
    shapes(SL_DTYPE_Q8_0);
}

static void odd_shapes(void) {
    make_mixed();
    const struct shape s[] = {
        {SL_DTYPE_F16, 1, 2, 17, 33, 0, false, CONF_PLAIN, 4},
        {SL_DTYPE_F16, 1, 5, 7, 1, 0, true, CONF_PLAIN, 4},
        {SL_DTYPE_F16, 1, 1, 192, 128, 0, false, CONF_PLAIN, 4},
        {SL_DTYPE_F16, 2, 7, 16, 48, 0, false, CONF_PLAIN, 4},
        {SL_DTYPE_Q8_0, 1, 4, 64, 32, 0, true, CONF_PLAIN, 4},
        {SL_DTYPE_F16, 1, 20, 32, 32, 0, false, CONF_PLAIN, 4},
        {SL_DTYPE_F16, 1, 64, 16, 16, 0, false, CONF_PLAIN, 4},
        {SL_DTYPE_F16, 8, 8, 64, 64, 128, true, CONF_PLAIN, 4},
        {SL_DTYPE_F16, 2, 8, 64, 64, 0, true, CONF_PLAIN, 4},
        {SL_DTYPE_F16, 1, 8, 64, 64, 1, true, CONF_PLAIN, 4},
        {SL_DTYPE_Q8_0, 1, 8, 64, 64, 128, true, CONF_PLAIN, 4},
        {SL_DTYPE_F16, 1, 8, 512, 512, 0, false, CONF_PLAIN, 4},
        {SL_DTYPE_F16, 2, 1, 512, 512, 0, false, CONF_PLAIN, 4},
        {SL_DTYPE_F16, 1, 20, 512, 512, 0, false, CONF_PLAIN, 40},
        {SL_DTYPE_F16, 2, 3, 512, 512, 100, true, CONF_PLAIN, 4},
        {SL_DTYPE_F16, 1, 9, 264, 512, 0, false, CONF_PLAIN, 4},
        {SL_DTYPE_F16, 1, 2, 512, 328, 65, false, CONF_PLAIN, 4},
        {SL_DTYPE_Q8_0, 1, 4, 512, 512, 0, false, CONF_PLAIN, 4},
    };
    for (size_t i = 0; i < CONF_COUNT(s); i++) {
        if (s[i].dim_v > 256 && lacks_heads(s[i].dtype, s[i].dim_k, s[i].dim_v))
            continue;
        one(&s[i], decode_rows, 6, 6, 1);
        one(&s[i], mixed_rows, CONF_COUNT(mixed_rows), 2, 17);
    }
}

static void windows(void) {
    static const uint32_t window[] = {1, 16, 63, 64, 100, 512, 600};
    make_mixed();
    for (size_t i = 0; i < CONF_COUNT(window); i++) {
        struct shape s = {i % 2 ? SL_DTYPE_Q8_0 : SL_DTYPE_F16,
                          window[i] > 100 ? 1 : 2, /* slow where a device is emulated */
                          4,
                          32,
                          32,
                          window[i],
                          i % 3 == 0,
                          CONF_PLAIN,
                          8};
        one(&s, decode_rows, CONF_COUNT(decode_rows), 3, 1);
        one(&s, mixed_rows, CONF_COUNT(mixed_rows), 2, 17);
    }
}

static void values(void) {
    make_mixed();
    for (int fill = 0; fill < CONF_N_FILL; fill++)
        for (int type = 0; type < 2; type++) {
            if (fill == CONF_WIDE)
                continue; /* beyond binary16: infinite keys, NaN by right */
            struct shape s = {type ? SL_DTYPE_Q8_0 : SL_DTYPE_F16,
                              1,
                              4,
                              64,
                              64,
                              0,
                              type == 0,
                              (enum conf_fill)fill,
                              1};
            one(&s, decode_rows, CONF_COUNT(decode_rows), 8, 1);
            one(&s, mixed_rows, CONF_COUNT(mixed_rows), 2, 17);
            s.q_factor = fill == CONF_SPIKES ? 0.01f : 100; /* one position takes all */
            one(&s, decode_rows, CONF_COUNT(decode_rows), 8, 1);
            one(&s, mixed_rows, CONF_COUNT(mixed_rows), 2, 17);
        }
}

static void caps_and_chunks(void) {
    static const uint32_t chunk[] = {1, 16, 63, 64, 100, 512, 600};
    if (!conf_device()->caps.extra_args)
        return;
    make_mixed();
    for (size_t i = 0; i < CONF_COUNT(chunk); i++) {
        struct shape s = {i % 2 ? SL_DTYPE_Q8_0 : SL_DTYPE_F16,
                          chunk[i] > 100 ? 1 : 2,
                          1 + 3 * (uint32_t)(i % 3),
                          32,
                          i % 2 ? 64 : 33,
                          0,
                          i % 3 == 0,
                          CONF_PLAIN,
                          30};
        struct extra e = {i % 3 == 1 ? 0 : 3 + 5 * (float)i, i % 3 ? chunk[i] : 0};
        one_with(&s, e, decode_rows, CONF_COUNT(decode_rows), 3, 1);
        one_with(&s, e, mixed_rows, CONF_COUNT(mixed_rows), 2, 17);
        s.window = chunk[i];
        e = (struct extra){2, 0};
        one_with(&s, e, decode_rows, CONF_COUNT(decode_rows), 3, 1);
        one_with(&s, e, mixed_rows, CONF_COUNT(mixed_rows), 2, 17);
    }
}

/* A long context in decode, more partitions than one wave holds, and a long prompt. */
static void longer(void) {
    static struct row rows[660];
    for (uint32_t i = 0; i < 40; i++)
        rows[i] = (struct row){i % N_SEQ, 2560 - 13 * i};
    struct shape s = {SL_DTYPE_F16, 1, 4, 32, 32, 0, false, CONF_PLAIN, 8};
    one(&s, rows, 40, 40, 7);
    for (uint32_t i = 0; i < 660; i++)
        rows[i] = (struct row){2, 300 + i};
    one(&s, rows, 660, 0, 97);
    s.window = 128, s.sinks = true, s.group = 8;
    one(&s, rows, 400, 0, 97);

    if (lacks_heads(SL_DTYPE_F16, 512, 512))
        return;
    s = (struct shape){SL_DTYPE_F16, 1, 2, 512, 512, 0, false, CONF_PLAIN, 8};
    one(&s, rows, 40, 0, 97);
    for (uint32_t i = 0; i < 5; i++)
        rows[i] = (struct row){i % N_SEQ, 2560 - 13 * i};
    one(&s, rows, 5, 5, 1);
}

/* What lies in a later position, an infinity here, must not reach an earlier row of the same tile:
 * 0 times it would be NaN. */
static void later_in(uint32_t dim) {
    static struct row rows[48];
    struct shape s = {SL_DTYPE_F16, 1, 4, dim, dim, 0, false, CONF_PLAIN, 4};
    uint32_t *table = conf_host(N_SEQ * MAX_PAGES * sizeof *table);
    for (uint32_t i = 0; i < N_SEQ * MAX_PAGES; i++)
        table[i] = i;
    struct sl_rng rng = {9};
    enum { LEN = 100, N = 48 };
    uint32_t width = 4 * dim;
    float *k = conf_host(LEN * dim * sizeof *k), *v = conf_host(LEN * dim * sizeof *v);
    float *q = conf_host(N * width * sizeof *q), *y = conf_host(N * width * sizeof *y);
    conf_fill(&rng, CONF_PLAIN, k, LEN * dim);
    conf_fill(&rng, CONF_PLAIN, v, LEN * dim);
    conf_fill(&rng, CONF_PLAIN, q, N * width);
    for (uint32_t i = 0; i < dim; i++)
        k[99 * dim + i] = v[99 * dim + i] = INFINITY;
    for (uint32_t i = 0; i < N; i++)
        rows[i] = (struct row){0, 53 + i};
    struct attn_case c = {
        .s = s, .q = q, .rows = rows, .n_rows = N, .stride_q = width, .page_table = table};
    c.k[0] = k, c.v[0] = v, c.len[0] = LEN;
    conf_tolerance(1e-5f);
    conf_case("an infinity in the last position", run, &c, CONF_F32, N * width, y);
    for (uint32_t i = 0; i < (N - 1) * width; i++)
        if (!isfinite(y[i]))
            fail_msg("heads of %u: row %u sees a later position", dim, i / width);

    /* In V alone, so that the row that sees it must not lose it. */
    for (uint32_t i = 0; i < dim; i++)
        k[99 * dim + i] = 0.5f;
    conf_case("an infinity in the last value", run, &c, CONF_F32, N * width, y);
    for (uint32_t i = 0; i < N * width; i++)
        if (isfinite(y[i]) != (i < (N - 1) * width))
            fail_msg("heads of %u: row %u, %g", dim, i / width, (double)y[i]);
}

/* Nor may what lies in one sequence reach the rows of another in the same tile. */
static void other_sequence_in(uint32_t dim) {
    enum { LEN = 128, N = 12 };
    static struct row rows[N];
    struct shape s = {SL_DTYPE_F16, 1, 2, dim, dim, 0, false, CONF_PLAIN, 2};
    uint32_t width = 2 * dim, *table = conf_host(N_SEQ * MAX_PAGES * sizeof *table);
    for (uint32_t i = 0; i < N_SEQ * MAX_PAGES; i++)
        table[i] = i;
    struct attn_case c = {
        .s = s, .rows = rows, .n_rows = N, .stride_q = width, .page_table = table};
    struct sl_rng rng = {19};
    float *q = conf_host(N * width * sizeof *q), *y = conf_host(N * width * sizeof *y);
    for (uint32_t seq = 0; seq < 3; seq++) {
        float *k = conf_host(LEN * dim * sizeof *k), *v = conf_host(LEN * dim * sizeof *v);
        conf_fill(&rng, CONF_PLAIN, k, LEN * dim);
        conf_fill(&rng, CONF_PLAIN, v, LEN * dim);
        for (uint32_t i = 0; i < dim && seq == 1; i++)
            v[5 * dim + i] = INFINITY;
        c.k[seq] = k, c.v[seq] = v, c.len[seq] = LEN;
    }
    conf_fill(&rng, CONF_PLAIN, q, N * width);
    for (uint32_t i = 0; i < N; i++)
        rows[i] = (struct row){i < 3 ? 0 : i < 7 ? 1 : 2, LEN - i % 2};
    c.q = q;
    conf_tolerance(1e-5f);
    conf_case("an infinity in another sequence", run, &c, CONF_F32, N * width, y);
    for (uint32_t i = 0; i < N * width; i++)
        if (isfinite(y[i]) != (rows[i / width].seq != 1))
            fail_msg("heads of %u: row %u, %g", dim, i / width, (double)y[i]);
}

static void later_positions(void) {
    later_in(32);
    other_sequence_in(32);
    if (lacks_heads(SL_DTYPE_F16, 512, 512))
        return;
    later_in(512);
    other_sequence_in(512);
}

int main(int argc, char **argv) {
    static const struct conf_test tests[] = {{"f16", f16},
                                             {"q8_0", q8_0},
                                             {"odd shapes", odd_shapes},
                                             {"windows", windows},
                                             {"caps and chunks", caps_and_chunks},
                                             {"values", values},
                                             {"longer", longer},
                                             {"later positions", later_positions}};
    return conf_main(argc, argv, "attention", &limits, tests, CONF_COUNT(tests));
}
