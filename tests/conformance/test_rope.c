/* sl_op_rope_table, sl_op_rope */
#include "tests/conformance/conformance.h"
#include "backends/ops/rope.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct sl_device_limits limits = {.max_tok = 600};

struct table_case {
    uint32_t n_tok, n_freq;
    const int32_t *pos;
    const float *inv_freq;
    float mscale;
};

static void run_table(struct sl_device *d, const void *ctx, void *out) {
    const struct table_case *c = ctx;
    size_t n = (size_t)c->n_tok * c->n_freq * 2;
    float *table = conf_put(d, NULL, n * sizeof(float));
    conf_ok(sl_op_rope_table(d, &(struct sl_op_rope_table){
                                    .pos = conf_put(d, c->pos, c->n_tok * sizeof *c->pos),
                                    .inv_freq = conf_put(d, c->inv_freq, c->n_freq * sizeof(float)),
                                    .table = table,
                                    .n_tok = c->n_tok,
                                    .n_freq = c->n_freq,
                                    .mscale = c->mscale}));
    conf_get(d, out, table, n * sizeof(float));
}

static void frequencies(float *f, uint32_t n, double base) {
    for (uint32_t i = 0; i < n; i++)
        f[i] = (float)pow(base, -(double)i / n);
}

static void tables(void) {
    static const uint32_t n_freq[] = {1, 8, 13, 16, 20, 32, 48, 64, 128};
    static const uint32_t n_tok[] = {1, 2, 7, 130, 513};
    for (size_t a = 0; a < CONF_COUNT(n_freq); a++)
        for (size_t b = 0; b < CONF_COUNT(n_tok); b++) {
            struct sl_rng rng = {a * 100 + b};
            uint32_t nf = n_freq[a], nt = n_tok[b];
            float *f = conf_host(nf * sizeof *f);
            int32_t *pos = conf_host(nt * sizeof *pos);
            float *table = conf_host((size_t)nt * nf * 2 * sizeof *table);
            frequencies(f, nf, a % 2 ? 10000 : 1e6);
            for (uint32_t t = 0; t < nt; t++)
                pos[t] = t == 0 ? 0 : t == 1 ? 1000000 : (int32_t)sl_rng_below(&rng, 200000);
            struct table_case c = {nt, nf, pos, f, b % 2 ? 1.0f : 1.2079441f};
            conf_tolerance(0x1p-23f); /* another sine may round the other way */
            conf_case("table", run_table, &c, CONF_F32, (size_t)nt * nf * 2, table);
            for (uint32_t t = 0; t < nt; t++)
                for (uint32_t i = 0; i < nf; i++) {
                    long double angle = (long double)pos[t] * f[i];
                    double ref[2] = {(double)(cosl(angle) * c.mscale),
                                     (double)(sinl(angle) * c.mscale)};
                    /* One rounding to f32, and the double product's 2^-53 of up to 10^6 rad. */
                    double tol[2] = {fabs(ref[0]) * 0x1.1p-24 + 4e-10,
                                     fabs(ref[1]) * 0x1.1p-24 + 4e-10};
                    conf_near("table", table + ((size_t)t * nf + i) * 2, ref, tol, 2);
                }
        }
}

struct rope_case {
    uint32_t n_tok, n_heads, head_dim, stride, n_freq;
    enum sl_rope_style style;
    const float *x, *table;
};

static void run_rope(struct sl_device *d, const void *ctx, void *out) {
    const struct rope_case *c = ctx;
    size_t n = (size_t)c->n_tok * c->stride;
    float *x = conf_put(d, c->x, n * sizeof(float));
    const float *table = conf_put(d, c->table, (size_t)c->n_tok * c->n_freq * 2 * sizeof(float));
    conf_ok(sl_op_rope(d, &(struct sl_op_rope){.x = x,
                                               .table = table,
                                               .n_tok = c->n_tok,
                                               .n_heads = c->n_heads,
                                               .head_dim = c->head_dim,
                                               .stride = c->stride,
                                               .n_freq = c->n_freq,
                                               .style = c->style}));
    conf_get(d, out, x, n * sizeof(float));
}

static void one(uint32_t n_tok, uint32_t n_heads, uint32_t head_dim, uint32_t n_freq, uint32_t gap,
                enum sl_rope_style style, enum conf_fill fill) {
    struct sl_rng rng = {n_tok * 131u + head_dim * 7u + n_freq};
    struct rope_case c = {n_tok,  n_heads, head_dim, n_heads * head_dim + gap,
                          n_freq, style,   NULL,     NULL};
    size_t n = (size_t)n_tok * c.stride, n_table = (size_t)n_tok * n_freq * 2;
    float *x = conf_host(n * sizeof *x), *y = conf_host(n * sizeof *y);
    double *ref = conf_host(n * sizeof *ref), *tol = conf_host(n * sizeof *tol);
    float *table = conf_host(n_table * sizeof *table);
    conf_fill(&rng, fill, x, n);
    for (size_t i = 0; i < n_table / 2; i++) {
        double angle = sl_rng_unit(&rng) * 1000;
        table[2 * i] = (float)cos(angle), table[2 * i + 1] = (float)sin(angle);
    }
    c.x = x, c.table = table;
    char what[128];
    snprintf(what, sizeof what, "%u x %u heads of %u, %u rotations, style %d, fill %d", n_tok,
             n_heads, head_dim, n_freq, (int)style, (int)fill);
    conf_tolerance(0);
    conf_case(what, run_rope, &c, CONF_F32, n, y);
    for (size_t i = 0; i < n; i++)
        ref[i] = x[i], tol[i] = 0; /* what is not rotated stays as it is */
    for (uint32_t t = 0; t < n_tok; t++)
        for (uint32_t h = 0; h < n_heads; h++)
            for (uint32_t i = 0; i < n_freq; i++) {
                size_t head = (size_t)t * c.stride + (size_t)h * head_dim;
                size_t a = head + (style == SL_ROPE_NORM ? 2 * i : i);
                size_t b = head + (style == SL_ROPE_NORM ? 2 * i + 1 : i + n_freq);
                double cs = table[((size_t)t * n_freq + i) * 2];
                double sn = table[((size_t)t * n_freq + i) * 2 + 1];
                ref[a] = x[a] * cs - x[b] * sn;
                ref[b] = x[a] * sn + x[b] * cs;
                tol[a] = tol[b] = 0x1p-23 * (fabs((double)x[a]) + fabs((double)x[b])) + 0x1p-148;
            }
    conf_near(what, y, ref, tol, n);
}

static void rotations(void) {
    static const uint32_t dim[] = {2, 6, 32, 40, 64, 80, 96, 128, 256};
    for (size_t i = 0; i < CONF_COUNT(dim); i++)
        for (int style = 0; style < 2; style++) {
            one(3, 2, dim[i], dim[i] / 2, 5, (enum sl_rope_style)style, CONF_PLAIN);
            one(2, 3, dim[i], (dim[i] / 2 + 1) / 2, 0, (enum sl_rope_style)style, CONF_WIDE);
            one(1, 1, dim[i], 1, 0, (enum sl_rope_style)style, CONF_DENORMAL);
        }
    one(130, 32, 128, 64, 256, SL_ROPE_NEOX, CONF_PLAIN);
    one(130, 8, 64, 32, 0, SL_ROPE_NORM, CONF_SPIKES);
}

int main(int argc, char **argv) {
    static const struct conf_test tests[] = {{"tables", tables}, {"rotations", rotations}};
    return conf_main(argc, argv, "rope", &limits, tests, CONF_COUNT(tests));
}
