/* How far two runs with equally good arithmetic may be apart.
 *
 * A GPU sums floats in another order than the definition, so its log-probabilities are others. What
 * that may come to is measured here with the CPU in the GPU's place: behind each op that a GPU may
 * round differently the results are moved at random, by one rounding, or by what the conformance
 * programs allow. From it come the bars that bench/logprobs.py holds a GPU to, and this test holds
 * the bars to be what they claim: within reach of sound arithmetic, out of reach of an op that
 * computes with f16.
 *
 * Where activations are quantised, a rounding that falls the other way is a step of 1/127 of its
 * block, and a router near a tie takes another expert: a difference of 1e-7 is as good as one of
 * 1e-4 after a few layers. So models of F32 weights tell whether the arithmetic is sound, and
 * quantised ones only whether the answers are as good. */
#include "tests/unit/engine/fixture.h"

#include "backends/backend_table.h"
#include "backends/cpu/cpu.h"
#include "backends/ops/attention.h"
#include "backends/ops/matmul.h"
#include "backends/ops/norm.h"
#include "backends/ops/rope.h"
#include "backends/ops/router.h"
#include "engine/engine.h"
#include "engine/schedule/schedule.h"
#include "model/tokenizer/tokenizer.h"

#include <math.h>

/* bench/logprobs.py has the same. */
#define F32_MAX_DIFFERENCE 2e-3 /* of a log-probability above LIKELY */
#define QUANTISED_MEAN_KL  1e-2 /* nats, mean over positions */
#define LIKELY             -12.0

/* ---- a CPU that rounds differently ---- */

struct noise {
    const char *name;
    float relative;
    bool of_largest; /* relative to the row's largest value, not to each */
};

static struct sl_backend_ops ops;
static const struct sl_backend_ops *plain;
static struct noise noise;
static struct sl_rng rng;

static bool is_float(enum sl_dtype t) {
    return t == SL_DTYPE_F32 || t == SL_DTYPE_F16 || t == SL_DTYPE_BF16;
}

static void stir(float *y, size_t n) {
    float most = 0;
    for (size_t i = 0; noise.of_largest && i < n; i++)
        most = fmaxf(most, fabsf(y[i]));
    for (size_t i = 0; i < n; i++) {
        float by = 2 * (float)sl_rng_unit(&rng) - 1;
        if (!noise.of_largest) /* a rounding, up or down */
            by = by < 0 ? -1 : 1;
        y[i] += by * noise.relative * (noise.of_largest ? most : fabsf(y[i]));
    }
}

static void stir_rows(float *y, uint32_t n_rows, uint32_t n, uint32_t stride) {
    for (uint32_t r = 0; r < n_rows; r++)
        stir(y + (size_t)r * stride, n);
}

static enum sl_status rms_norm(struct sl_device *d, const struct sl_op_rms_norm *a) {
    enum sl_status status = plain->rms_norm(d, a);
    stir_rows(a->y, a->n_rows, a->n, a->stride_y);
    return status;
}

static enum sl_status matmul(struct sl_device *d, const struct sl_op_matmul *a) {
    enum sl_status status = plain->matmul(d, a);
    for (uint32_t i = 0; i < a->n_w; i++)
        if (is_float(a->out[i].w.dtype))
            stir_rows(a->out[i].y, a->n_tok, a->out[i].w.n_out, a->out[i].w.n_out);
    return status;
}

static enum sl_status rope(struct sl_device *d, const struct sl_op_rope *a) {
    enum sl_status status = plain->rope(d, a);
    for (uint32_t t = 0; t < a->n_tok; t++)
        stir_rows(a->x + (size_t)t * a->stride, a->n_heads, 2 * a->n_freq, a->head_dim);
    return status;
}

static enum sl_status attention(struct sl_device *d, const struct sl_op_attention *a) {
    enum sl_status status = plain->attention(d, a);
    uint32_t n = a->n_heads * a->kv.head_dim_v;
    stir_rows(a->y, a->n_tok, n, n);
    return status;
}

static enum sl_status router(struct sl_device *d, const struct sl_op_router *a) {
    enum sl_status status = plain->router(d, a);
    stir_rows(a->weights, a->n_tok, a->k, a->k);
    return status;
}

static enum sl_status moe(struct sl_device *d, const struct sl_op_moe *a) {
    enum sl_status status = plain->moe(d, a);
    if (is_float(a->gate_dtype) || is_float(a->down_dtype))
        for (uint32_t i = 0; i < a->n_pairs; i++)
            stir(a->pair_y + (size_t)(a->pairs ? a->pairs[i] : i) * a->n_embd, a->n_embd);
    return status;
}

static enum sl_status open_noisy(const struct sl_device_source *source, uint32_t index,
                                 struct sl_device **out_device, struct sl_err *err) {
    (void)source;
    (void)index;
    enum sl_status status =
        sl_cpu_open(&(struct sl_cpu_config){.n_threads = 2, .isa = SL_CPU_BEST}, out_device, err);
    if (status)
        return status;
    plain = (*out_device)->ops;
    ops = *plain;
    ops.rms_norm = rms_norm;
    ops.matmul = matmul;
    ops.rope = rope;
    ops.attention = attention;
    ops.router = router;
    ops.moe = moe;
    (*out_device)->ops = &ops;
    return SL_OK;
}

/* ---- log-probabilities, and how far apart ---- */

struct logprobs {
    uint32_t n, n_vocab;
    double *p; /* [n, n_vocab] */
};

static bool keep(void *ctx, uint32_t pos, const float *logits) {
    struct logprobs *l = ctx;
    double most = -INFINITY, sum = 0, *p = l->p + (size_t)pos * l->n_vocab;
    for (uint32_t i = 0; i < l->n_vocab; i++)
        most = fmax(most, logits[i]);
    for (uint32_t i = 0; i < l->n_vocab; i++)
        sum += exp(logits[i] - most);
    for (uint32_t i = 0; i < l->n_vocab; i++)
        p[i] = logits[i] - most - log(sum);
    return true;
}

#define MAX_TEXT 512u
struct text {
    uint32_t ids[MAX_TEXT], n;
};

static struct logprobs score(const struct sl_model *m, const struct text *text,
                             const struct noise *with) {
    struct logprobs l = {text->n, m->hp.n_vocab,
                         malloc((size_t)text->n * m->hp.n_vocab * sizeof *l.p)};
    struct sl_device_source source = {.open = open_noisy};
    struct sl_engine_config c = {.n_threads = 2,
                                 .ctx_tokens = text->n + 1,
                                 .parallel = 1,
                                 .batch_tokens = 64,
                                 .experts = SL_EXPERTS_RESIDENT,
                                 .device = "cpu",
                                 .device_source = with ? &source : NULL};
    struct sl_engine *e;
    assert_non_null(l.p);
    noise = with ? *with : (struct noise){0};
    rng = (struct sl_rng){5};
    assert_ok(sl_engine_create(m, &c, NULL, &e, &test_err));
    assert_ok(sl_engine_score(e, text->ids, text->n, keep, &l, &test_err));
    sl_engine_destroy(&e);
    return l;
}

struct apart {
    double mean_kl, worst_kl, mean, worst, worst_likely;
    uint32_t n_other_best;
};

static struct apart compare(const struct logprobs *a, const struct logprobs *b) {
    struct apart out = {0};
    for (uint32_t t = 0; t < a->n; t++) {
        const double *x = a->p + (size_t)t * a->n_vocab, *y = b->p + (size_t)t * a->n_vocab;
        double kl = 0;
        uint32_t best_x = 0, best_y = 0;
        for (uint32_t i = 0; i < a->n_vocab; i++) {
            double by = fabs(x[i] - y[i]);
            kl += exp(x[i]) * (x[i] - y[i]);
            out.mean += by / a->n_vocab / a->n;
            out.worst = fmax(out.worst, by);
            if (x[i] > LIKELY)
                out.worst_likely = fmax(out.worst_likely, by);
            best_x = x[i] > x[best_x] ? i : best_x;
            best_y = y[i] > y[best_y] ? i : best_y;
        }
        out.mean_kl += kl / a->n;
        out.worst_kl = fmax(out.worst_kl, kl);
        out.n_other_best += best_x != best_y;
    }
    return out;
}

static struct apart apart(const struct sl_model *m, const struct text *text,
                          const struct noise *with) {
    struct logprobs a = score(m, text, NULL), b = score(m, text, with);
    struct apart by = compare(&a, &b);
    print_message("%s: mean KL %.1e, worst %.1e; a log-probability by %.1e in the mean, %.1e at "
                  "most, %.1e where likely; another best token at %u of %u\n",
                  with->name, by.mean_kl, by.worst_kl, by.mean, by.worst, by.worst_likely,
                  by.n_other_best, text->n);
    free(a.p);
    free(b.p);
    return by;
}

/* ---- the models ---- */

static const struct noise rounding = {"one rounding", 0x1p-23f, false},
                          tolerance = {"the conformance programs' tolerance", 1e-5f, true},
                          half = {"rounded to f16", 0x1p-11f, false},
                          percent = {"a hundredth of the largest", 1e-2f, true};

static void f32_model(void **state) {
    (void)state;
    struct sl_synth_config c = sl_synth_default;
    c.n_vocab = 1024;
    c.embd = c.output = SL_DTYPE_F32;
    c.attn = c.gate = c.up = c.down = (struct sl_synth_types){{SL_DTYPE_F32}, 1};
    struct test_model m;
    open_model(&m, &c);
    struct text text = {.n = 184};
    struct sl_rng ids = {3};
    for (uint32_t i = 0; i < text.n; i++)
        text.ids[i] = sl_rng_below(&ids, c.n_vocab);
    assert_true(apart(m.model, &text, &rounding).worst_likely < F32_MAX_DIFFERENCE / 4);
    struct apart by = apart(m.model, &text, &tolerance);
    assert_true(by.worst_likely < F32_MAX_DIFFERENCE / 2);
    assert_int_equal(by.n_other_best, 0);
    assert_true(apart(m.model, &text, &half).worst_likely > F32_MAX_DIFFERENCE);
    close_model(&m);
}

/* The text of bench/h200_engine.sh. It is none that the model was made for, and the harder. */
static void quantised_model(void **state) {
    (void)state;
    struct sl_model *m;
    struct sl_tokenizer *tok;
    struct sl_ids ids = {0};
    struct text text = {0};
    assert_ok(sl_model_open("demo/demo.gguf", &m, &test_err));
    assert_ok(sl_tokenizer_create(m->gguf, &tok, &test_err));
    for (int i = 1; i <= 6; i++) {
        char line[256];
        int n = snprintf(line, sizeof line,
                         "Once there was a river that ran past an old mill. What is 17 plus %d, "
                         "and which month follows March?  Count from five to twelve, then spell "
                         "the word river backwards, then tell a story of %d lines.\n",
                         i, i);
        ids.n = 0;
        assert_ok(sl_tokenizer_encode(tok, line, (size_t)n, 0, &ids));
        assert_true(text.n + ids.n <= MAX_TEXT);
        memcpy(text.ids + text.n, ids.ids, ids.n * sizeof *ids.ids);
        text.n += (uint32_t)ids.n;
    }
    assert_true(text.n > 300);
    struct apart by = apart(m, &text, &rounding);
    assert_true(by.mean_kl < QUANTISED_MEAN_KL / 2);
    assert_true(by.worst > 0.1); /* or else quantised models could have a sharper bar */
    assert_true(apart(m, &text, &tolerance).mean_kl < QUANTISED_MEAN_KL / 2);
    assert_true(apart(m, &text, &percent).mean_kl > QUANTISED_MEAN_KL);
    sl_ids_release(&ids);
    sl_tokenizer_destroy(&tok);
    sl_model_close(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(f32_model),
                                       cmocka_unit_test(quantised_model)};
    sl_log_set_level(SL_LOG_WARN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
