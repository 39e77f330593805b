/* sl_op_matmul and sl_op_embed: every type that Sluice reads. */
#include "tests/conformance/conformance.h"
#include "tests/conformance/weights.h"

#include "backends/cpu/matmul/formats.h"
#include "backends/cpu/matmul/quantize.h"
#include "backends/ops/matmul.h"
#include "backends/ops/rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TOK  130u
#define MAX_N_IN 4352u

static const struct sl_device_limits limits = {.max_tok = MAX_TOK, .max_n_in = MAX_N_IN};

struct matmul_case {
    struct sl_op_matmul op; /* pointers are the host's */
    uint32_t shift;         /* bytes that weights lie behind an aligned address */
};

static size_t n_values(const struct sl_op_matmul *op) {
    size_t n = 0;
    for (uint32_t m = 0; m < op->n_w; m++)
        n += (size_t)op->n_tok * op->out[m].w.n_out;
    return n;
}

/* `bytes` on the device, `shift` behind where it would put them. */
static void *put_at(struct sl_device *d, const void *src, size_t bytes, uint32_t shift) {
    uint8_t *all = conf_host(shift + bytes);
    memset(all, 0, shift);
    memcpy(all + shift, src, bytes);
    return (uint8_t *)conf_put(d, all, shift + bytes) + shift;
}

static void run(struct sl_device *d, const void *ctx, void *out) {
    const struct matmul_case *c = ctx;
    struct sl_op_matmul op = c->op;
    op.x = conf_put(d, op.x, (size_t)op.n_tok * op.out[0].w.n_in * 4);
    for (uint32_t m = 0; m < op.n_w; m++) {
        struct sl_matmul_out *o = &op.out[m];
        o->w.data =
            put_at(d, o->w.data, sl_dtype_row_bytes(o->w.dtype, o->w.n_in) * o->w.n_out, c->shift);
        o->bias = o->bias ? conf_put(d, o->bias, (size_t)o->w.n_out * 4) : NULL;
        o->y = conf_put(d, o->add ? o->y : NULL, (size_t)op.n_tok * o->w.n_out * 4);
    }
    conf_ok(sl_op_matmul(d, &op));
    float *y = out;
    for (uint32_t m = 0; m < op.n_w; m++) {
        size_t n = (size_t)op.n_tok * op.out[m].w.n_out;
        conf_get(d, y, op.out[m].y, n * 4);
        y += n;
    }
}

static void *weights(struct sl_rng *rng, enum sl_dtype t, enum weights_mode mode, uint32_t n_in,
                     uint32_t n_out) {
    void *w = conf_host(sl_dtype_row_bytes(t, n_in) * n_out);
    weights_fill(rng, t, mode, w, (uint64_t)n_in * n_out);
    return w;
}

static float *inputs(struct sl_rng *rng, enum conf_fill fill, size_t n) {
    float *x = conf_host(n * 4);
    conf_fill(rng, fill, x, n);
    return x;
}

static struct sl_op_matmul one(struct sl_rng *rng, enum sl_dtype t, enum weights_mode mode,
                               enum conf_fill fill, uint32_t n_in, uint32_t n_out, uint32_t n_tok) {
    struct sl_op_matmul op = {
        .x = inputs(rng, fill, (size_t)n_tok * n_in), .n_tok = n_tok, .n_w = 1};
    op.out[0].w = (struct sl_weight){t, n_in, n_out, weights(rng, t, mode, n_in, n_out)};
    return op;
}

/* Sums of integers are exact in any order, and blocks join in the definition's order everywhere; a
 * sum of floats may be taken in another. */
static float tolerance(const struct sl_op_matmul *op) {
    for (uint32_t m = 0; m < op->n_w; m++)
        if (sl_dtype_is_float(op->out[m].w.dtype))
            return 1e-5f;
    return 0;
}

static float *case_of(const char *what, const struct sl_op_matmul *op) {
    float *y = conf_host(n_values(op) * 4);
    conf_tolerance(tolerance(op));
    for (uint32_t m = 0; m < op->n_w; m++)
        conf_needs(op->out[m].w.dtype);
    conf_case(what, run, &(struct matmul_case){*op, 0}, CONF_F32, n_values(op), y);
    return y;
}

/* Generated rows, prompt rows, or first the ones and then the others. */
static uint32_t n_decode_of(uint32_t n_tok, size_t i) {
    return i % 3 == 0 ? 0 : i % 3 == 1 ? n_tok : n_tok / 2;
}

#define FOR_TYPES(t)                                                                               \
    for (enum sl_dtype t = SL_DTYPE_F32; t < SL_DTYPE_COUNT; t++)                                  \
        if (sl_dtype_info(t))

static void test_shapes(void) {
    /* Every n_tok and n_out, each with some n_in; tails of panels, tiles and blocks. */
    static const uint32_t shapes[][3] = {{32, 1, 1},    {64, 3, 2},    {96, 17, 5},   {256, 100, 1},
                                         {512, 17, 8},  {768, 3, 33},  {96, 33, 130}, {256, 1, 130},
                                         {768, 100, 2}, {512, 40, 13}, {288, 16, 3},  {7, 5, 4},
                                         {33, 17, 7},   {250, 21, 12}, {256, 65, 24}};
    struct sl_rng rng = {1};
    FOR_TYPES(t) for (size_t i = 0; i < CONF_COUNT(shapes); i++) {
        const uint32_t *s = shapes[i];
        if (s[0] % sl_dtype_info(t)->block_elems)
            continue;
        char what[96];
        snprintf(what, sizeof what, "%s [%u, %u] x %u rows", sl_dtype_name(t), s[1], s[0], s[2]);
        struct sl_op_matmul op =
            one(&rng, t, WEIGHTS_PLAIN, (enum conf_fill)(i % CONF_N_FILL), s[0], s[1], s[2]);
        for (size_t k = 0; k < 3; k++) {
            /* Emulated devices are slow, and generated rows are few: of many rows a type has one
             * shape as a prompt, the next half of it as generated. */
            if (s[2] > 16 && (k == 1 || k / 2 != (i + (size_t)t) % 2))
                continue;
            op.n_decode = n_decode_of(s[2], k);
            case_of(what, &op);
        }
    }
}

/* What the tensor cores take for a few rows: whole tiles of output rows; from one block of 256 to
 * more than all warps of a GPU's block take at once, more tiles than its blocks, weights at any
 * address. One and two rows, whose weights lie ahead in shared memory: a block or two a
 * multiprocessor, rows that do not divide, and more than it holds. More than eight rows go in
 * parts.
 */
static void test_few_rows(void) {
    static const uint32_t shapes[][4] = {
        {256, 48, 8, 0},    {768, 160, 3, 0},   {1280, 64, 5, 0},  {2048, 12800, 3, 0},
        {2304, 80, 8, 0},   {4352, 32, 7, 0},   {768, 48, 4, 2},   {2304, 32, 6, 1},
        {1024, 32, 8, 8},   {256, 40000, 3, 0}, {768, 16, 1, 3},   {2048, 16, 2, 14},
        {2048, 9000, 2, 0}, {4096, 301, 1, 0},  {4352, 100, 2, 0}, {256, 40000, 2, 0},
        {256, 40000, 1, 0}, {2048, 48, 12, 0},  {768, 160, 33, 2}, {1280, 64, 64, 0},
        {256, 40000, 16, 0}};
    static const enum sl_dtype types[] = {SL_DTYPE_Q4_K, SL_DTYPE_Q5_K, SL_DTYPE_Q6_K,
                                          SL_DTYPE_Q8_0};
    struct sl_rng rng = {8};
    for (size_t t = 0; t < CONF_COUNT(types); t++)
        for (size_t i = 0; i < CONF_COUNT(shapes); i++) {
            const uint32_t *s = shapes[i];
            if (s[1] > 1000 && !conf_gpu())
                continue;
            char what[96];
            snprintf(what, sizeof what, "%s [%u, %u] x %u rows, %u bytes on",
                     sl_dtype_name(types[t]), s[1], s[0], s[2], s[3]);
            struct matmul_case c = {
                one(&rng, types[t], WEIGHTS_PLAIN, CONF_PLAIN, s[0], s[1], s[2]), s[3]};
            c.op.n_decode = s[2];
            float *y = conf_host(n_values(&c.op) * 4);
            conf_tolerance(0);
            conf_case(what, run, &c, CONF_F32, n_values(&c.op), y);
        }
}

/* Q8_0 through tensor cores: every number of rows, warps that share tiles and (from 16,896 output
 * rows on with 132 multiprocessors) warps that do not, last tiles that reach back into the one
 * before, output rows fewer than a tile, several weights with tails, and rows that they do not
 * take: those have a block's weights in shared memory, all at once or in two stages. */
static void test_few_rows_q8(void) {
    static const uint32_t shapes[][3] = {
        {256, 16, 0}, {512, 31, 0},  {1280, 40, 0}, {2304, 72, 0}, {2304, 265, 0}, {1024, 15, 0},
        {288, 48, 0}, {1024, 40, 2}, {2880, 61, 0}, {96, 700, 0},  {2880, 1501, 0}};
    static const uint32_t large[][3] = {{256, 40003, 1},  {256, 40003, 2}, {1280, 17005, 8},
                                        {2304, 16900, 3}, {96, 70001, 2},  {2880, 20001, 1},
                                        {2880, 12007, 3}};
    struct sl_rng rng = {9};
    uint32_t n_large = conf_gpu() ? CONF_COUNT(large) : 0;
    for (uint32_t i = 0; i < CONF_COUNT(shapes) * 8 + n_large; i++) {
        bool is_large = i >= CONF_COUNT(shapes) * 8;
        const uint32_t *s = is_large ? large[i - CONF_COUNT(shapes) * 8] : shapes[i / 8];
        uint32_t n_tok = is_large ? s[2] : i % 8 + 1;
        struct matmul_case c = {
            one(&rng, SL_DTYPE_Q8_0, WEIGHTS_PLAIN, CONF_PLAIN, s[0], s[1], n_tok),
            is_large ? 0 : s[2]};
        if (!is_large &&
            i / 8 == 3) { /* 72 rows, and 17 and 33 with what else a product can have */
            for (uint32_t m = 1; m < 3; m++) {
                uint32_t n_out = 1 + 16 * m;
                c.op.out[m] = (struct sl_matmul_out){
                    .w = {SL_DTYPE_Q8_0, s[0], n_out,
                          weights(&rng, SL_DTYPE_Q8_0, WEIGHTS_PLAIN, s[0], n_out)},
                    .bias = inputs(&rng, CONF_PLAIN, n_out),
                    .y = inputs(&rng, CONF_PLAIN, (size_t)n_tok * n_out),
                    .add = true};
            }
            c.op.n_w = 3;
        }
        c.op.n_decode = n_tok;
        char what[96];
        snprintf(what, sizeof what, "Q8_0 [%u, %u] x %u rows", s[1], s[0], n_tok);
        float *y = conf_host(n_values(&c.op) * 4);
        conf_tolerance(0);
        conf_case(what, run, &c, CONF_F32, n_values(&c.op), y);
    }
}

static void test_adversarial(void) {
    static const uint32_t n_toks[] = {1, 2, 6};
    struct sl_rng rng = {2};
    FOR_TYPES(t)
    for (int mode = WEIGHTS_ZERO_SCALE; mode < WEIGHTS_N_MODE; mode++)
        for (size_t i = 0; i < CONF_COUNT(n_toks); i++) {
            char what[96];
            snprintf(what, sizeof what, "%s, mode %d, %u rows", sl_dtype_name(t), mode, n_toks[i]);
            struct sl_op_matmul op =
                one(&rng, t, (enum weights_mode)mode, CONF_SPIKES, 512, 18, n_toks[i]);
            float *x = (float *)(uintptr_t)op.x;
            if (mode == WEIGHTS_MAX) /* the largest quants: sums reach their bounds */
                for (uint32_t j = 0; j < 512 * n_toks[i]; j++)
                    x[j] = sl_rng_below(&rng, 8) ? 1.0f : -1.0f;
            for (size_t k = 0; k < 2; k++) {
                op.n_decode = n_decode_of(n_toks[i], k);
                case_of(what, &op);
            }
        }
}

/* Inputs that are zero, tiny or not finite: zeros, zeros and NaN, in any batch. */
static void test_special_inputs(void) {
    struct sl_rng rng = {3};
    static const enum sl_dtype types[] = {SL_DTYPE_Q4_K, SL_DTYPE_Q8_0, SL_DTYPE_F16};
    for (size_t i = 0; i < CONF_COUNT(types); i++)
        for (uint32_t n_tok = 1; n_tok <= 9; n_tok += 4) {
            struct sl_op_matmul op = one(&rng, types[i], WEIGHTS_PLAIN, CONF_PLAIN, 512, 20, n_tok);
            float *x = (float *)(uintptr_t)op.x;
            for (uint32_t j = 0; j < 256; j++)
                x[j] = 0;
            for (uint32_t j = 256; j < 288; j++)
                x[j] = 0x1p-130f;
            if (n_tok > 1) {
                x[512 + 7] = INFINITY;
                x[1024 + 300] = NAN;
            }
            for (size_t k = 0; k < 3; k++) {
                op.n_decode = n_decode_of(n_tok, k);
                float *y = case_of(sl_dtype_name(types[i]), &op);
                for (uint32_t o = 0; o < 20; o++)
                    assert_true(isfinite(y[o]));
                if (n_tok > 1)
                    assert_true(!isfinite(y[20]) && !isfinite(y[40]) && isfinite(y[60]));
            }
        }
}

static void test_together(void) {
    static const uint32_t n_toks[] = {1, 3, 40};
    static const enum sl_dtype types[][SL_MATMUL_MAX_W] = {
        {SL_DTYPE_Q4_K, SL_DTYPE_Q8_0, SL_DTYPE_F32, SL_DTYPE_Q6_K},
        {SL_DTYPE_F16, SL_DTYPE_BF16, SL_DTYPE_F32, SL_DTYPE_F32},
        {SL_DTYPE_IQ4_XS, SL_DTYPE_Q5_K, SL_DTYPE_MXFP4, SL_DTYPE_IQ2_XXS}};
    static const uint32_t n_out[SL_MATMUL_MAX_W] = {50, 1, 33, 300};
    struct sl_rng rng = {4};
    for (size_t c = 0; c < CONF_COUNT(types); c++)
        for (size_t i = 0; i < CONF_COUNT(n_toks); i++) {
            uint32_t n_tok = n_toks[i];
            struct sl_op_matmul op = {
                .x = inputs(&rng, CONF_PLAIN, (size_t)n_tok * 256), .n_tok = n_tok, .n_w = 4};
            for (uint32_t m = 0; m < 4; m++)
                op.out[m] = (struct sl_matmul_out){
                    .w = {types[c][m], 256, n_out[m],
                          weights(&rng, types[c][m], WEIGHTS_PLAIN, 256, n_out[m])},
                    .bias = m % 2 ? inputs(&rng, CONF_PLAIN, n_out[m]) : NULL,
                    .y = inputs(&rng, CONF_PLAIN, (size_t)n_tok * n_out[m]),
                    .add = m >= 2};
            for (size_t k = 0; k < 3; k++) {
                op.n_decode = n_decode_of(n_tok, k);
                case_of("four weights", &op);
            }
        }
}

/* A row alone gives what it gives among others. */
static void test_rows_apart(void) {
    struct sl_rng rng = {5};
    const uint32_t n_tok = 33, n_in = 256, n_out = 19;
    FOR_TYPES(t) {
        struct sl_op_matmul op = one(&rng, t, WEIGHTS_PLAIN, CONF_SPIKES, n_in, n_out, n_tok);
        op.n_decode = 14; /* rows of both kinds, and slices with both */
        float *all = case_of(sl_dtype_name(t), &op), row[19 * 4];
        if (conf_lacks(t))
            continue;
        for (uint32_t n = 1; n <= 4; n += 3)
            for (uint32_t r = 0; r + n <= n_tok; r += 5) {
                struct matmul_case c = {op, 0};
                c.op.x += r * n_in;
                c.op.n_tok = n;
                c.op.n_decode = op.n_decode <= r ? 0 : op.n_decode - r < n ? op.n_decode - r : n;
                struct sl_device *d = conf_device();
                struct sl_op_matmul got = c.op;
                got.x = conf_put(d, c.op.x, (size_t)n * n_in * 4);
                got.out[0].w.data =
                    conf_put(d, c.op.out[0].w.data, sl_dtype_row_bytes(t, n_in) * n_out);
                got.out[0].y = conf_put(d, NULL, (size_t)n * n_out * 4);
                conf_ok(sl_op_matmul(d, &got));
                conf_get(d, row, got.out[0].y, (size_t)n * n_out * 4);
                if (memcmp(row, all + r * n_out, (size_t)n * n_out * 4) != 0)
                    fail_msg("%s: rows %u to %u differ when they go alone", sl_dtype_name(t), r,
                             r + n);
            }
    }
}

/* The quantised input as numbers. */
static void quantised(enum sl_dtype t, const float *x, uint32_t n, double *out, double *half_step) {
    struct sl_qx *q = aligned_alloc(64, sl_qx_row_bytes(n));
    bool b32 = sl_dtype_is_block32(t);
    assert_non_null(q);
    if (b32)
        sl_quantize_q32(x, n, q);
    else
        sl_quantize_q256(x, n, q);
    for (uint32_t i = 0; i < n; i++) {
        const struct sl_qx *g = &q[i / 256];
        double d = (double)(b32 ? g->q32.d[i % 256 / 32] : g->q256.d);
        out[i] = d * g->q[i % 256];
        half_step[i] = 0.501 * d;
    }
    free(q);
}

/* Against double: with the quantised input only rounding remains; with the input itself, no more
 * than half a step per element. */
static void test_against_double(void) {
    struct sl_rng rng = {6};
    const uint32_t n_in = 512, n_out = 11, n_tok = 5;
    FOR_TYPES(t) {
        struct sl_op_matmul op = one(&rng, t, WEIGHTS_PLAIN, CONF_PLAIN, n_in, n_out, n_tok);
        float *y = case_of(sl_dtype_name(t), &op);
        float *w = conf_host(n_in * 4);
        double *xq = conf_host(n_in * 8), *half = conf_host(n_in * 8);
        for (uint32_t k = 0; k < n_tok; k++)
            for (uint32_t o = 0; o < n_out; o++) {
                const float *x = op.x + k * n_in;
                sl_dequantize_row(
                    t, (const uint8_t *)op.out[0].w.data + o * sl_dtype_row_bytes(t, n_in), n_in,
                    w);
                if (sl_dtype_is_float(t))
                    for (uint32_t i = 0; i < n_in; i++) {
                        xq[i] = (double)x[i];
                        half[i] = 0;
                    }
                else
                    quantised(t, x, n_in, xq, half);
                double ref_q = 0, ref = 0, size = 0, steps = 0;
                for (uint32_t i = 0; i < n_in; i++) {
                    ref_q += w[i] * xq[i];
                    ref += (double)w[i] * (double)x[i];
                    size += fabs(w[i] * xq[i]);
                    steps += fabs((double)w[i]) * half[i];
                }
                float got = y[k * n_out + o];
                /* Minima make w small where d*scale*q and dmin*min are large: 30 covers it. */
                conf_near(sl_dtype_name(t), &got, &ref_q, &(double){30e-6 * size}, 1);
                conf_near(sl_dtype_name(t), &got, &ref, &(double){30e-6 * size + steps}, 1);
            }
    }
}

struct embed_case {
    struct sl_op_embed op;
};

static void run_embed(struct sl_device *d, const void *ctx, void *out) {
    struct sl_op_embed op = ((const struct embed_case *)ctx)->op;
    size_t n = (size_t)op.n_tok * op.w.n_in;
    op.w.data = conf_put(d, op.w.data, sl_dtype_row_bytes(op.w.dtype, op.w.n_in) * op.w.n_out);
    op.ids = conf_put(d, op.ids, op.n_tok * 4);
    op.y = conf_put(d, NULL, n * 4);
    conf_ok(sl_op_embed(d, &op));
    conf_get(d, out, op.y, n * 4);
}

static void test_embed(void) {
    static const uint32_t n_ins[] = {7, 32, 96, 256, 768};
    struct sl_rng rng = {7};
    FOR_TYPES(t) for (size_t i = 0; i < CONF_COUNT(n_ins); i++) {
        uint32_t n_in = n_ins[i], n_tok = i ? 20 : 1, n_out = 9;
        if (n_in % sl_dtype_info(t)->block_elems)
            continue;
        uint32_t *ids = conf_host(n_tok * 4);
        for (uint32_t k = 0; k < n_tok; k++)
            ids[k] = sl_rng_below(&rng, n_out);
        struct embed_case c = {{.w = {t, n_in, n_out, weights(&rng, t, WEIGHTS_PLAIN, n_in, n_out)},
                                .ids = ids,
                                .n_tok = n_tok,
                                .scale = i % 2 ? 1.0f : 45.25f}};
        float *y = conf_host((size_t)n_tok * n_in * 4), *w = conf_host(n_in * 4);
        conf_needs(t);
        conf_case(sl_dtype_name(t), run_embed, &c, CONF_F32, (size_t)n_tok * n_in, y);
        for (uint32_t k = 0; k < n_tok; k++) {
            sl_dequantize_row(
                t, (const uint8_t *)c.op.w.data + ids[k] * sl_dtype_row_bytes(t, n_in), n_in, w);
            for (uint32_t j = 0; j < n_in; j++)
                assert_float_equal(y[k * n_in + j], w[j] * c.op.scale, 0);
        }
    }
}

int main(int argc, char **argv) {
    static const struct conf_test tests[] = {
        {"every type, odd shapes", test_shapes},
        {"few rows", test_few_rows},
        {"few rows of Q8_0", test_few_rows_q8},
        {"adversarial blocks", test_adversarial},
        {"inputs that are zero, tiny, infinite, NaN", test_special_inputs},
        {"four weights together, bias, add", test_together},
        {"a row alone", test_rows_apart},
        {"against double", test_against_double},
        {"embed", test_embed},
    };
    return conf_main(argc, argv, "matmul", &limits, tests, CONF_COUNT(tests));
}
