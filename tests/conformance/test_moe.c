/* sl_op_moe */
#include "tests/conformance/conformance.h"
#include "tests/conformance/weights.h"
#include "tests/support/slow_build.h"

#include "backends/cpu/matmul/formats.h"
#include "backends/ops/moe.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct sl_device_limits limits = {.max_tok = 70,
                                               .max_n_in = 2880,
                                               .max_pairs = 70 * 8,
                                               .max_n_embd = 2880,
                                               .max_n_ff = 2880,
                                               .max_expert = 64};

struct moe_case {
    struct sl_op_moe op; /* pointers are the host's, refs apart */
    const void *gate, *up, *down;
    uint32_t shift; /* bytes by which experts' matrices miss the start of their memory */
    bool device_refs;
};

static size_t part_bytes(enum sl_dtype t, uint32_t n_in, uint32_t n_out) {
    return sl_dtype_row_bytes(t, n_in) * n_out;
}

/* A copy on the device, `shift` bytes into its memory. */
static const uint8_t *put_at(struct sl_device *d, const void *w, size_t bytes, uint32_t shift) {
    if (!shift)
        return conf_put(d, w, bytes);
    uint8_t *host = calloc(1, bytes + shift);
    assert_non_null(host);
    memcpy(host + shift, w, bytes);
    const uint8_t *at = conf_put(d, host, bytes + shift);
    free(host);
    return at + shift;
}

/* Few listed pairs of generated rows go with the launch, where the device takes them so. */
static void place(const struct sl_device *d, const struct moe_case *c, struct sl_op_moe *op,
                  struct sl_placed_pair *placed) {
    if (!d->caps.moe_placed || !c->op.pairs || op->n_pairs > SL_MOE_MAX_PLACED ||
        op->n_decode != op->n_tok)
        return;
    for (uint32_t i = 0; i < op->n_pairs; i++)
        placed[i] = (struct sl_placed_pair){op->refs[c->op.ids[c->op.pairs[i]]], c->op.pairs[i]};
    op->placed = placed;
    op->pairs = NULL;
    op->refs = NULL;
}

static void run(struct sl_device *d, const void *ctx, void *out) {
    const struct moe_case *c = ctx;
    struct sl_op_moe op = c->op;
    struct sl_placed_pair placed[SL_MOE_MAX_PLACED];
    size_t up_bytes = part_bytes(op.up_dtype, op.n_embd, op.n_ff);
    size_t gate_bytes = part_bytes(op.gate_dtype, op.n_embd, op.n_ff);
    size_t down_bytes = part_bytes(op.down_dtype, op.n_ff, op.n_embd);
    size_t n_y = (size_t)op.n_tok * op.k * op.n_embd;
    struct sl_expert_ref *refs = malloc(op.n_expert * sizeof *refs);
    const uint8_t *gate = put_at(d, c->gate, gate_bytes * op.n_expert, c->shift);
    const uint8_t *up = put_at(d, c->up, up_bytes * op.n_expert, c->shift);
    const uint8_t *down = put_at(d, c->down, down_bytes * op.n_expert, c->shift);
    for (uint32_t e = 0; e < op.n_expert; e++)
        refs[e] =
            (struct sl_expert_ref){gate + e * gate_bytes, up + e * up_bytes, down + e * down_bytes};
    op.refs = refs;
    op.x = conf_put(d, op.x, (size_t)op.n_tok * op.n_embd * 4);
    op.ids = conf_put(d, op.ids, (size_t)op.n_tok * op.k * 4);
    op.pairs = op.pairs ? conf_put(d, op.pairs, (size_t)op.n_pairs * 4) : NULL;
    size_t mid_bytes = (size_t)op.n_expert * op.n_ff * 4;
    op.gate_bias = op.gate_bias ? conf_put(d, op.gate_bias, mid_bytes) : NULL;
    op.up_bias = op.up_bias ? conf_put(d, op.up_bias, mid_bytes) : NULL;
    op.down_bias =
        op.down_bias ? conf_put(d, op.down_bias, (size_t)op.n_expert * op.n_embd * 4) : NULL;
    float *y = calloc(n_y, 4); /* pairs that are not listed stay as they are */
    op.pair_y = conf_put(d, y, n_y * 4);
    place(d, c, &op, placed);
    if (c->device_refs && op.refs) {
        op.device_refs = conf_put(d, refs, op.n_expert * sizeof *refs);
        op.refs = NULL;
    }
    conf_ok(sl_op_moe(d, &op));
    conf_get(d, out, op.pair_y, n_y * 4);
    free(refs);
    free(y);
}

struct shape {
    enum sl_dtype gate, up, down;
    uint32_t n_tok, k, n_expert, n_embd, n_ff;
};

static struct moe_case make(struct sl_rng *rng, const struct shape *s) {
    struct moe_case c = {.op = {.gate_dtype = s->gate,
                                .up_dtype = s->up,
                                .down_dtype = s->down,
                                .n_tok = s->n_tok,
                                .k = s->k,
                                .n_pairs = s->n_tok * s->k,
                                .n_expert = s->n_expert,
                                .n_embd = s->n_embd,
                                .n_ff = s->n_ff}};
    struct {
        enum sl_dtype t;
        uint32_t n_in, n_out;
        const void **to;
    } parts[3] = {{s->gate, s->n_embd, s->n_ff, &c.gate},
                  {s->up, s->n_embd, s->n_ff, &c.up},
                  {s->down, s->n_ff, s->n_embd, &c.down}};
    for (int i = 0; i < 3; i++) {
        size_t bytes = part_bytes(parts[i].t, parts[i].n_in, parts[i].n_out) * s->n_expert;
        void *w = conf_host(bytes);
        weights_fill(rng, parts[i].t, WEIGHTS_PLAIN, w,
                     (uint64_t)parts[i].n_in * parts[i].n_out * s->n_expert);
        *parts[i].to = w;
    }
    float *x = conf_host((size_t)s->n_tok * s->n_embd * 4);
    conf_fill(rng, CONF_PLAIN, x, (size_t)s->n_tok * s->n_embd);
    c.op.x = x;
    uint32_t *ids = conf_host((size_t)s->n_tok * s->k * 4);
    for (uint32_t t = 0; t < s->n_tok; t++)
        for (uint32_t r = 0; r < s->k; r++) {
            bool again;
            do { /* distinct; low numbers more often */
                uint32_t e = sl_rng_below(rng, 1 + sl_rng_below(rng, s->n_expert));
                ids[t * s->k + r] = e;
                again = false;
                for (uint32_t q = 0; q < r; q++)
                    again |= ids[t * s->k + q] == e;
            } while (again);
        }
    c.op.ids = ids;
    return c;
}

static size_t n_values(const struct moe_case *c) {
    return (size_t)c->op.n_tok * c->op.k * c->op.n_embd;
}

/* As in test_matmul: only sums of floats may be taken in another order. What the inner one is off
 * by is quantised again where down is a quantised type: half a step may become a whole one. */
static float tolerance(const struct sl_op_moe *op) {
    if (!sl_dtype_is_float(op->gate_dtype) && !sl_dtype_is_float(op->up_dtype))
        return sl_dtype_is_float(op->down_dtype) ? 1e-5f : 0;
    return sl_dtype_is_float(op->down_dtype) ? 1e-5f : 1e-2f;
}

static float *case_of(const char *what, const struct moe_case *c) {
    float *y = conf_host(n_values(c) * 4);
    conf_needs(c->op.gate_dtype);
    conf_needs(c->op.up_dtype);
    conf_needs(c->op.down_dtype);
    conf_tolerance(tolerance(&c->op));
    conf_case(what, run, c, CONF_F32, n_values(c), y);
    return y;
}

static const struct shape shapes[] = {
    {SL_DTYPE_Q4_K, SL_DTYPE_Q4_K, SL_DTYPE_Q6_K, 1, 8, 64, 256, 256},
    {SL_DTYPE_Q4_K, SL_DTYPE_Q4_K, SL_DTYPE_Q6_K, 8, 8, 16, 512, 256},
    {SL_DTYPE_Q4_K, SL_DTYPE_Q4_K, SL_DTYPE_Q6_K, 70, 8, 9, 256, 256},
    {SL_DTYPE_Q4_K, SL_DTYPE_Q8_0, SL_DTYPE_Q5_0, 5, 3, 7, 256, 96},
    {SL_DTYPE_Q8_0, SL_DTYPE_Q8_0, SL_DTYPE_Q8_0, 33, 2, 5, 96, 32},
    {SL_DTYPE_IQ2_XXS, SL_DTYPE_IQ2_XXS, SL_DTYPE_Q2_K, 9, 4, 6, 512, 512},
    {SL_DTYPE_MXFP4, SL_DTYPE_MXFP4, SL_DTYPE_MXFP4, 40, 4, 4, 160, 224},
    {SL_DTYPE_IQ2_K, SL_DTYPE_IQ3_K, SL_DTYPE_IQ4_K, 3, 4, 9, 512, 256},
    {SL_DTYPE_IQ5_K, SL_DTYPE_TQ2_0, SL_DTYPE_IQ6_K, 30, 4, 6, 256, 512},
    {SL_DTYPE_TQ1_0, SL_DTYPE_TQ1_0, SL_DTYPE_IQ5_K, 1, 2, 5, 256, 256},
    {SL_DTYPE_F32, SL_DTYPE_F32, SL_DTYPE_F32, 20, 3, 8, 50, 21},
    {SL_DTYPE_F16, SL_DTYPE_BF16, SL_DTYPE_Q4_1, 3, 1, 3, 33, 64},
    {SL_DTYPE_Q6_K, SL_DTYPE_F32, SL_DTYPE_F16, 14, 2, 3, 256, 40},
    {SL_DTYPE_IQ4_XS, SL_DTYPE_Q5_K, SL_DTYPE_IQ4_NL, 2, 6, 6, 256, 288},
    {SL_DTYPE_Q4_K, SL_DTYPE_Q4_K, SL_DTYPE_Q6_K, 6, 8, 20, 2304, 256},
    {SL_DTYPE_Q5_K, SL_DTYPE_Q6_K, SL_DTYPE_Q4_K, 7, 6, 9, 1280, 512},
    {SL_DTYPE_Q6_K, SL_DTYPE_Q6_K, SL_DTYPE_Q5_K, 32, 2, 3, 256,
     256}, /* more than eight rows each */
    {SL_DTYPE_Q5_K, SL_DTYPE_Q5_K, SL_DTYPE_Q5_K, 3, 4, 8, 768, 512},
    {SL_DTYPE_Q4_K, SL_DTYPE_Q4_K, SL_DTYPE_Q6_K, 2, 8, 12, 2048, 768},
    {SL_DTYPE_MXFP4, SL_DTYPE_MXFP4, SL_DTYPE_MXFP4, 1, 4, 5, 2880, 288},
    {SL_DTYPE_MXFP4, SL_DTYPE_MXFP4, SL_DTYPE_MXFP4, 2, 4, 5, 288, 2880},
    {SL_DTYPE_MXFP4, SL_DTYPE_MXFP4, SL_DTYPE_MXFP4, 8, 4, 32, 1056, 352},
    {SL_DTYPE_MXFP4, SL_DTYPE_MXFP4, SL_DTYPE_Q8_0, 30, 4, 9, 544, 96},
    {SL_DTYPE_Q8_0, SL_DTYPE_Q8_0, SL_DTYPE_Q8_0, 4, 4, 6, 1440, 160},
    {SL_DTYPE_F16, SL_DTYPE_F16, SL_DTYPE_F16, 4, 4, 5, 72, 66},
    {SL_DTYPE_BF16, SL_DTYPE_BF16, SL_DTYPE_BF16, 18, 4, 6, 66, 40},
    /* more pairs than one list has, few rows an expert */
    {SL_DTYPE_Q4_K, SL_DTYPE_Q4_K, SL_DTYPE_Q6_K, 12, 8, 40, 512, 256},
    {SL_DTYPE_Q5_K, SL_DTYPE_Q6_K, SL_DTYPE_Q4_K, 30, 8, 64, 256, 256},
};

/* Under a sanitizer the shapes that plain C takes long for go once, with rows of both kinds: their
 * rests are those of smaller ones. */
static bool once(size_t i) {
    const struct shape *s = &shapes[i];
    return SLOW_BUILD && (uint64_t)s->n_tok * s->k * s->n_embd * s->n_ff > 6000000;
}

static void test_shapes(void) {
    struct sl_rng rng = {1};
    for (size_t i = 0; i < CONF_COUNT(shapes); i++) {
        char what[32];
        snprintf(what, sizeof what, "shape %zu", i);
        struct moe_case c = make(&rng, &shapes[i]);
        for (uint32_t k = once(i); k < (once(i) ? 2 : 3); k++) { /* prompt, both, generated rows */
            c.op.n_decode = c.op.n_tok * k / 2;
            case_of(what, &c);
        }
        c.op.activation = SL_GEGLU;
        if (conf_device()->caps.geglu && !once(i))
            case_of(what, &c);
        c.op.activation = SL_SWIGLU_LIMITED;
        c.op.limit = 0.5f;
        if (conf_device()->caps.swiglu_limited && i % 4 == 0)
            case_of(what, &c);
        c.op.activation = SL_SWIGLU_CUT;
        if (conf_device()->caps.swiglu_cut && i % 4 == 2)
            case_of(what, &c);
        c.op.activation = SL_REGLU;
        if (conf_device()->caps.reglu && i % 4 == 1)
            case_of(what, &c);
        c.op.activation = SL_SITU;
        c.op.limit_up = i % 8 == 3 ? 0.75f : 0;
        if (conf_device()->caps.situ && i % 4 == 3)
            case_of(what, &c);
        c.op.activation = SL_RELU_SQUARED;
        for (uint32_t k = 0; k < 2 && !once(i); k++) {
            c.op.n_decode = k ? c.op.n_tok : 0;
            conf_needs_form(conf_device()->caps.relu_squared);
            case_of(what, &c);
        }
    }
}

/* A row may have an expert several times, as of experts that share ids: as often the same. */
static void test_repeated(void) {
    struct sl_rng rng = {5};
    static const struct shape of[] = {
        {SL_DTYPE_Q4_K, SL_DTYPE_Q4_K, SL_DTYPE_Q6_K, 1, 8, 8, 256, 256},
        {SL_DTYPE_Q4_K, SL_DTYPE_Q4_K, SL_DTYPE_Q6_K, 7, 8, 8, 512, 256}, /* one list of pairs */
        {SL_DTYPE_Q5_K, SL_DTYPE_Q6_K, SL_DTYPE_Q4_K, 21, 6, 60, 256, 256},
        {SL_DTYPE_Q8_0, SL_DTYPE_Q8_0, SL_DTYPE_Q8_0, 40, 5, 6, 96, 64}, /* sorted */
        {SL_DTYPE_MXFP4, SL_DTYPE_MXFP4, SL_DTYPE_MXFP4, 3, 4, 6, 160, 96},
        {SL_DTYPE_F32, SL_DTYPE_F32, SL_DTYPE_F32, 9, 4, 9, 50, 21},
    };
    for (size_t i = 0; i < CONF_COUNT(of); i++) {
        struct moe_case c = make(&rng, &of[i]);
        uint32_t k = c.op.k, n_embd = c.op.n_embd, n_all = c.op.n_tok * k;
        uint32_t *ids = conf_host(n_all * 4);
        for (uint32_t p = 0; p < n_all; p++)
            ids[p] = c.op.ids[p] / 3;
        c.op.ids = ids;
        char what[32];
        snprintf(what, sizeof what, "shape %zu, repeated", i);
        for (uint32_t part = 0; part < 3; part++) { /* prompt, both, generated rows */
            c.op.n_decode = c.op.n_tok * part / 2;
            float *y = case_of(what, &c);
            uint32_t n_equal = 0;
            for (uint32_t p = 0; p < n_all; p++)
                for (uint32_t q = p / k * k; q < p; q++)
                    if (ids[p] == ids[q]) {
                        n_equal++;
                        assert_memory_equal(y + (size_t)p * n_embd, y + (size_t)q * n_embd,
                                            n_embd * 4);
                    }
            assert_true(n_equal > 0);
        }
    }
}

/* Few generated rows, wherever experts lie. */
static void test_addresses(void) {
    struct sl_rng rng = {4};
    static const struct shape of[] = {
        {SL_DTYPE_Q4_K, SL_DTYPE_Q4_K, SL_DTYPE_Q6_K, 1, 4, 6, 768, 256},
        {SL_DTYPE_Q6_K, SL_DTYPE_Q6_K, SL_DTYPE_Q5_K, 2, 2, 3, 256, 256},
        {SL_DTYPE_Q5_K, SL_DTYPE_Q5_K, SL_DTYPE_Q4_K, 2, 2, 3, 512, 256},
    };
    static const uint32_t shifts[] = {2, 4, 8, 15};
    for (size_t i = 0; i < CONF_COUNT(of); i++) {
        struct moe_case c = make(&rng, &of[i]);
        c.op.n_decode = c.op.n_tok;
        for (size_t s = 0; s < CONF_COUNT(shifts); s++) {
            char what[32];
            c.shift = shifts[s];
            snprintf(what, sizeof what, "shape %zu, %u bytes in", i, c.shift);
            case_of(what, &c);
        }
    }
}

/* The listed pairs get what they get in the whole call, the others nothing; a row alone, generated
 * or prompt, gets what it gets among others. */
static void test_pairs(void) {
    struct sl_rng rng = {2};
    for (size_t i = 0; i < CONF_COUNT(shapes); i++) {
        if (once(i))
            continue;
        struct moe_case c = make(&rng, &shapes[i]);
        uint32_t n_embd = c.op.n_embd, n_all = c.op.n_tok * c.op.k;
        c.op.n_decode = c.op.n_tok / 2;
        float *all = case_of("all", &c);
        uint32_t *pairs = conf_host(n_all * 4);
        struct moe_case some = c;
        some.op.n_pairs = 0;
        for (uint32_t p = 0; p < n_all; p++)
            if (sl_rng_below(&rng, 3) == 0)
                pairs[some.op.n_pairs++] = p;
        some.op.pairs = pairs;
        float *y = case_of("some pairs", &some);
        for (uint32_t p = 0, q = 0; p < n_all; p++) {
            bool listed = q < some.op.n_pairs && pairs[q] == p;
            q += listed;
            for (uint32_t j = 0; j < n_embd; j++)
                assert_true(y[p * n_embd + j] == (listed ? all[p * n_embd + j] : 0.0f));
        }
        struct moe_case few = some;
        few.op.n_decode = few.op.n_tok;
        few.op.n_pairs = some.op.n_pairs < SL_MOE_MAX_PLACED ? some.op.n_pairs : SL_MOE_MAX_PLACED;
        case_of("few pairs of generated rows", &few);
        float *row = conf_host((size_t)c.op.k * n_embd * 4);
        bool lacks =
            conf_lacks(c.op.gate_dtype) || conf_lacks(c.op.up_dtype) || conf_lacks(c.op.down_dtype);
        for (uint32_t t = 0; t < c.op.n_tok && !lacks; t += 1 + t / 2) {
            struct moe_case alone = c;
            alone.op.n_tok = 1;
            alone.op.n_decode = t < c.op.n_decode;
            alone.op.n_pairs = c.op.k;
            alone.op.x += (size_t)t * n_embd;
            alone.op.ids += t * c.op.k;
            run(conf_device(), &alone, row);
            if (memcmp(row, all + (size_t)t * c.op.k * n_embd, (size_t)c.op.k * n_embd * 4) != 0)
                fail_msg("shape %zu: row %u differs when it goes alone", i, t);
        }
    }
}

static void row_of(enum sl_dtype t, const void *w, size_t row, uint32_t n, float *out) {
    sl_dequantize_row(t, (const uint8_t *)w + row * sl_dtype_row_bytes(t, n), n, out);
}

static double dot(const float *w, const double *x, uint32_t n, double *size) {
    double s = 0;
    for (uint32_t i = 0; i < n; i++) {
        s += (double)w[i] * x[i];
        *size += fabs((double)w[i] * x[i]);
    }
    return s;
}

static const float *random_bias(struct sl_rng *rng, uint32_t n_expert, uint32_t n) {
    float *b = conf_host((size_t)n_expert * n * 4);
    conf_fill(rng, CONF_PLAIN, b, (size_t)n_expert * n);
    return b;
}

static void add_biases(struct sl_rng *rng, struct moe_case *c) {
    c->op.gate_bias = random_bias(rng, c->op.n_expert, c->op.n_ff);
    c->op.up_bias = random_bias(rng, c->op.n_expert, c->op.n_ff);
    c->op.down_bias = random_bias(rng, c->op.n_expert, c->op.n_embd);
}

static bool has_all(const struct sl_device *d) {
    return d->caps.moe_bias && d->caps.swiglu_clamped;
}

/* Listed pairs have the biases of their own experts: placed ones, those of experts that the device
 * looks up itself, and all as prompt rows and as generated ones. */
static void biases_of_pairs(struct sl_rng *rng, struct moe_case *c, size_t shape) {
    char what[64];
    uint32_t n_all = c->op.n_tok * c->op.k;
    uint32_t *pairs = conf_host(n_all * 4);
    struct moe_case some = *c;
    some.device_refs = true;
    for (uint32_t k = 0; k < 3; k++) {
        some.op.n_decode = some.op.n_tok * k / 2;
        snprintf(what, sizeof what, "shape %zu, all biases, refs of the device, %u generated",
                 shape, some.op.n_decode);
        case_of(what, &some);
    }
    some.op.n_pairs = 0;
    for (uint32_t p = 0; p < n_all; p++)
        if (sl_rng_below(rng, 3) == 0 || p + 1 == n_all)
            pairs[some.op.n_pairs++] = p;
    some.op.pairs = pairs;
    some.op.n_decode = c->op.n_decode;
    snprintf(what, sizeof what, "shape %zu, all biases, some pairs", shape);
    case_of(what, &some);
    if (some.op.n_pairs > SL_MOE_MAX_PLACED)
        some.op.n_pairs = SL_MOE_MAX_PLACED;
    some.op.n_decode = some.op.n_tok;
    snprintf(what, sizeof what, "shape %zu, all biases, placed pairs", shape);
    case_of(what, &some);
}

/* Experts with biases, one or all; the clamped activation, past both its limits. */
static void test_biases(void) {
    struct sl_rng rng = {5};
    if (!has_all(conf_device()))
        return;
    for (size_t i = 0; i < CONF_COUNT(shapes); i++) {
        if (once(i))
            continue;
        char what[48];
        struct moe_case c = make(&rng, &shapes[i]);
        float *x = (float *)(uintptr_t)c.op.x;
        for (uint32_t j = 0; j < c.op.n_tok * c.op.n_embd; j++)
            x[j] *= 4;
        c.op.n_decode = c.op.n_tok / 2;
        c.op.activation = SL_SWIGLU_CLAMPED;
        snprintf(what, sizeof what, "shape %zu, clamped", i);
        float *plain = case_of(what, &c);
        struct moe_case down = c;
        down.op.down_bias = random_bias(&rng, c.op.n_expert, c.op.n_embd);
        snprintf(what, sizeof what, "shape %zu, clamped, bias of down", i);
        float *y = case_of(what, &down);
        for (uint32_t p = 0; p < c.op.n_tok * c.op.k; p++)
            for (uint32_t o = 0; o < c.op.n_embd; o++)
                assert_true(y[p * c.op.n_embd + o] ==
                            plain[p * c.op.n_embd + o] +
                                down.op.down_bias[c.op.ids[p] * c.op.n_embd + o]);
        for (uint32_t clamped = 0; clamped < 2; clamped++) {
            add_biases(&rng, &c);
            c.op.activation = clamped ? SL_SWIGLU_CLAMPED : SL_SWIGLU;
            snprintf(what, sizeof what, "shape %zu, all biases%s", i, clamped ? ", clamped" : "");
            case_of(what, &c);
        }
        biases_of_pairs(&rng, &c, i);
    }
}

/* What the activation makes of g and u. */
static double activated(const struct sl_op_moe *op, double g, double u) {
    if (op->activation == SL_SWIGLU)
        return g / (1 + exp(-g)) * u;
    if (op->activation == SL_SWIGLU_CUT) {
        g = fmin(g, (double)op->limit);
        return g / (1 + exp(-g)) * fmin(fmax(u, -(double)op->limit), (double)op->limit);
    }
    if (op->activation == SL_REGLU)
        return g > 0 ? g * u : 0;
    if (op->activation == SL_RELU_SQUARED)
        return u > 0 ? u * u : 0;
    if (op->activation == SL_SITU) {
        double a = (double)op->limit * tanh(g / (double)op->limit) / (1 + exp(-g));
        double up = (double)op->limit_up;
        return a * (up > 0 ? up * tanh(u / up) : u);
    }
    if (op->activation == SL_GEGLU)
        return 0.5 * g * (1 + tanh(sqrt(2 / M_PI) * (g + 0.044715 * g * g * g))) * u;
    if (op->activation == SL_SWIGLU_LIMITED)
        return fmin(g / (1 + exp(-g)), (double)op->limit) *
               fmin(fmax(u, -(double)op->limit), (double)op->limit);
    g = g > 7 ? 7 : g;
    u = u > 7 ? 7 : u < -7 ? -7 : u;
    return g / (1 + exp(-1.702 * g)) * (u + 1);
}

/* Float weights against double: only rounding differs. Quantised ones follow from test_matmul. */
static void against_double(bool all, enum sl_activation activation) {
    struct sl_rng rng = {3};
    const struct shape s = {SL_DTYPE_F32, SL_DTYPE_F16, SL_DTYPE_BF16, 6, 3, 5, 100, 60};
    struct moe_case c = make(&rng, &s);
    c.op.activation = activation;
    c.op.limit = 0.5f;
    c.op.limit_up = all ? 0 : 0.75f;
    if (all)
        add_biases(&rng, &c);
    const struct sl_op_moe *op = &c.op;
    float *y = case_of("float", &c);
    float w[100];
    double x[100], h[60];
    for (uint32_t p = 0; p < s.n_tok * s.k; p++) {
        size_t e = c.op.ids[p];
        for (uint32_t i = 0; i < s.n_embd; i++)
            x[i] = (double)c.op.x[p / s.k * s.n_embd + i];
        double scale = 0;
        for (uint32_t o = 0; o < s.n_ff; o++) {
            row_of(s.gate, c.gate, e * s.n_ff + o, s.n_embd, w);
            double g = dot(w, x, s.n_embd, &scale);
            row_of(s.up, c.up, e * s.n_ff + o, s.n_embd, w);
            double u = dot(w, x, s.n_embd, &scale);
            g += op->gate_bias ? (double)op->gate_bias[e * s.n_ff + o] : 0;
            u += op->up_bias ? (double)op->up_bias[e * s.n_ff + o] : 0;
            h[o] = activated(op, g, u);
        }
        for (uint32_t o = 0; o < s.n_embd; o++) {
            double size = 0;
            row_of(s.down, c.down, e * s.n_embd + o, s.n_ff, w);
            double ref = dot(w, h, s.n_ff, &size);
            ref += op->down_bias ? (double)op->down_bias[e * s.n_embd + o] : 0;
            conf_near("moe", &y[p * s.n_embd + o], &ref, &(double){1e-5 * size + 1e-5}, 1);
        }
    }
}

static void test_against_double(void) {
    against_double(false, SL_SWIGLU);
    if (conf_device()->caps.geglu)
        against_double(false, SL_GEGLU);
    if (conf_device()->caps.swiglu_limited)
        against_double(false, SL_SWIGLU_LIMITED);
    if (conf_device()->caps.reglu)
        against_double(false, SL_REGLU);
    conf_needs_form(conf_device()->caps.relu_squared);
    against_double(false, SL_RELU_SQUARED);
    conf_needs_form(conf_device()->caps.relu_squared);
    against_double(true, SL_RELU_SQUARED);
    if (conf_device()->caps.swiglu_cut)
        against_double(false, SL_SWIGLU_CUT);
    if (conf_device()->caps.situ)
        against_double(false, SL_SITU);
    if (conf_device()->caps.situ)
        against_double(true, SL_SITU);
    if (has_all(conf_device()))
        against_double(true, SL_SWIGLU_CLAMPED);
}

int main(int argc, char **argv) {
    static const struct conf_test tests[] = {
        {"type mixes and shapes", test_shapes},     {"listed pairs, a row alone", test_pairs},
        {"experts at any address", test_addresses}, {"biases, clamped SwiGLU", test_biases},
        {"an expert several times", test_repeated}, {"against double", test_against_double},
    };
    return conf_main(argc, argv, "moe", &limits, tests, CONF_COUNT(tests));
}
