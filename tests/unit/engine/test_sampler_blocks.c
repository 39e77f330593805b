/* The sampler with the maxima of the logits' blocks given, or these and the sums: the same answers,
 * to the bit, as when it looks at all logits itself; and a device that gives wrong ones does no
 * harm. */
#include "tests/unit/engine/fixture.h"

#include "backends/cpu/cpu.h"
#include "engine/sample/sampler.h"

#include <math.h>

#define MAX_N   6000u
#define N_SETS  160u
#define N_DRAWS 6u

static struct sl_sampler_space space;
static float logits[MAX_N], work[MAX_N];
static float block_max[SL_VOCAB_BLOCKS(MAX_N)], block_sum[SL_VOCAB_BLOCKS(MAX_N)];
static uint32_t history[300], block_at[SL_VOCAB_BLOCKS(MAX_N)];
static struct sl_device *cpu;

static struct sl_vocab_blocks look(const float *x, uint32_t n, float inv_t) {
    assert_int_equal(sl_op_block_max(cpu, &(struct sl_op_block_max){.x = x,
                                                                    .max = block_max,
                                                                    .at = block_at,
                                                                    .sum = block_sum,
                                                                    .inv_t = &inv_t,
                                                                    .n_tok = 1,
                                                                    .n = n}),
                     SL_OK);
    return (struct sl_vocab_blocks){block_max, block_at, block_sum, inv_t};
}

struct even {
    struct sl_constraint base;
    uint32_t n_accepted;
};
static enum sl_status mask_odd(struct sl_constraint *c, float *x, uint32_t n) {
    (void)c;
    for (uint32_t i = 1; i < n; i += 2)
        x[i] = -INFINITY;
    return SL_OK;
}
static enum sl_status accept(struct sl_constraint *c, uint32_t token) {
    struct even *e = (struct even *)c;
    e->n_accepted++;
    return token % 2 ? SL_ERR_INVALID : SL_OK;
}

/* Of every setting now one value, now another, by the bits of a random number. */
static struct sl_sampling some_sampling(struct sl_rng *rng, uint32_t n, struct sl_logit_bias *bias,
                                        struct sl_constraint *bound) {
    static const float temperature[] = {0, 1, 0.4f, 1.7f};
    static const uint32_t top_k[] = {0, 1, 7, 50};
    struct sl_sampling s = sl_sampling_default;
    uint64_t r = sl_rng_u64(rng);
    s.temperature = temperature[r & 3];
    s.top_k = top_k[r >> 2 & 3];
    s.top_p = r >> 4 & 1 ? 0.8f : 1;
    s.typical_p = (r >> 5 & 3) == 0 ? 0.7f : 1;
    s.min_p = (r >> 7 & 3) == 0 ? 0.02f : 0;
    s.repeat_penalty = r >> 9 & 1 ? 1.3f : 1;
    s.presence_penalty = r >> 10 & 1 ? 0.5f : 0;
    s.frequency_penalty = r >> 11 & 1 ? 0.25f : 0;
    s.repeat_last_n = r >> 12 & 1 ? 12 : UINT32_MAX; /* few changes, and many */
    s.n_logit_bias = (uint32_t)(r >> 13) % 5;
    s.logit_bias = bias;
    for (uint32_t i = 0; i < s.n_logit_bias; i++)
        bias[i] = (struct sl_logit_bias){sl_rng_below(rng, n),
                                         r >> 17 & 1 ? -INFINITY : 4 - 2 * (float)i};
    s.constraint = (r >> 18 & 7) == 0 ? bound : NULL;
    static const uint32_t held[] = {0, 0, 0};
    s.min_tokens = n > 2 && (r >> 21 & 3) == 0 ? 3 : 0;
    s.n_held = 1 + (r >> 23 & 1) * 2;
    s.held = held;
    s.top_n_sigma = (r >> 25 & 7) == 0 ? 1.5f : 0;
    s.xtc_probability = (r >> 28 & 7) == 0 ? 0.5f : 0;
    s.xtc_threshold = 0.05f;
    s.seed = r;
    return s;
}

static bool changes(const struct sl_sampling *s) {
    return s->constraint || s->n_logit_bias || s->min_tokens || s->repeat_penalty != 1 ||
           s->presence_penalty != 0 || s->frequency_penalty != 0;
}

/* With the blocks and without, with the token's logit asked for and without; what came. */
static enum sl_status draw_both(const struct sl_sampling *s, uint32_t n) {
    struct sl_sampler a, b;
    enum sl_status status = SL_OK;
    sl_sampler_init(&a, s);
    sl_sampler_init(&b, s);
    for (uint32_t i = 0; i < N_DRAWS; i++) {
        /* The sums that are asked for, none, and others. */
        float inv_t = i % 3 == 0 ? sl_sampling_sums_at(s, false) : i % 3 == 1 ? 0 : 0.9f;
        struct sl_vocab_blocks known = look(logits, n, inv_t);
        uint32_t id_a = UINT32_MAX, id_b = UINT32_MAX;
        float logit = NAN;
        memcpy(work, logits, n * sizeof *work);
        status = sl_sampler_pick(&a, &space, work, NULL, history, 250 + i, &id_a, NULL);
        memcpy(work, logits, n * sizeof *work);
        assert_int_equal(sl_sampler_pick(&b, &space, work, &known, history, 250 + i, &id_b, &logit),
                         status);
        assert_int_equal(id_a, id_b);
        assert_true(status != SL_OK || logit == logits[id_b]);
        assert_true(changes(s) || memcmp(work, logits, n * sizeof *work) == 0);
    }
    assert_true(s->temperature == 0 || !sl_sampling_is_largest(s));
    assert_true(!changes(s) || s->min_tokens || s->repeat_last_n == 0 ||
                !sl_sampling_is_largest(s));
    if (s->temperature == 0 && !changes(s)) {
        uint32_t id_a = UINT32_MAX, id_b = UINT32_MAX;
        struct sl_vocab_blocks known = look(logits, n, 0);
        assert_true(sl_sampling_is_largest(s));
        memcpy(work, logits, n * sizeof *work);
        status = sl_sampler_pick(&a, &space, work, NULL, history, 0, &id_a, NULL);
        assert_int_equal(sl_sampler_largest(&space, &known, &id_b), status);
        assert_int_equal(id_a, id_b);
    }
    return status;
}

static void open_space(uint32_t n, struct sl_rng *rng) {
    assert_int_equal(sl_sampler_space_init(&space, n), SL_OK);
    for (uint32_t i = 0; i < sizeof history / sizeof *history; i++)
        history[i] = sl_rng_below(rng, n < 90 ? n : 90); /* some of them often */
}

/* Wide and flat ones, with ties and forbidden tokens. */
static void fill(struct sl_rng *rng, uint32_t n, uint32_t kind) {
    for (uint32_t i = 0; i < n; i++) {
        float u = (float)sl_rng_unit(rng) - 0.5f;
        logits[i] = kind % 3 == 0 ? 30 * u : kind % 3 == 1 ? 60 * u * u * u : floorf(12 * u);
        if (kind % 4 == 1 && sl_rng_below(rng, 3))
            logits[i] = -INFINITY;
    }
    logits[sl_rng_below(rng, n)] = 3;
}

static void picks(void **state) {
    (void)state;
    static const uint32_t sizes[] = {1, 2, 63, 64, 65, 128, 1000, MAX_N};
    struct even even = {.base = {.mask = mask_odd, .accept = accept}};
    for (uint32_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        struct sl_rng rng = {k};
        uint32_t n = sizes[k], n_picked = 0;
        open_space(n, &rng);
        for (uint32_t i = 0; i < N_SETS; i++) {
            struct sl_logit_bias bias[4];
            struct sl_sampling s = some_sampling(&rng, n, bias, &even.base);
            fill(&rng, n, i);
            n_picked += draw_both(&s, n) == SL_OK;
        }
        assert_true(n_picked > N_SETS / 2);
        sl_sampler_space_release(&space);
    }
    assert_true(even.n_accepted > N_SETS);
}

/* The refusals, wherever in a block what is not finite is; a bias of it is forbidding. */
static void not_finite(void **state) {
    (void)state;
    static const float odd[] = {NAN, INFINITY, -NAN};
    struct sl_rng rng = {9};
    uint32_t n = 1000;
    open_space(n, &rng);
    for (uint32_t i = 0; i < 300; i++) {
        struct sl_logit_bias bias[4];
        struct sl_sampling s = some_sampling(&rng, n, bias, NULL);
        fill(&rng, n, i);
        uint32_t at = i % 5 ? sl_rng_below(&rng, n) : n - 1;
        logits[at] = odd[i % 3];
        if (i % 2 && s.n_logit_bias)
            bias[0].token = at; /* the block of the NaN is looked at again */
        assert_int_equal(draw_both(&s, n), SL_ERR_INVALID);
    }
    for (uint32_t i = 0; i < n; i++)
        logits[i] = -INFINITY;
    assert_int_equal(draw_both(&sl_sampling_default, n), SL_ERR_INVALID);
    sl_sampler_space_release(&space);
}

static void logprobs(void **state) {
    (void)state;
    static const uint32_t sizes[] = {1, 64, 65, 1000, 1024, 1025, MAX_N};
    for (uint32_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        struct sl_rng rng = {k};
        uint32_t n = sizes[k];
        open_space(n, &rng);
        for (uint32_t i = 0; i < 60; i++) {
            struct sl_token a = {0}, b = {0};
            fill(&rng, n, i);
            if (i % 20 == 19)
                logits[sl_rng_below(&rng, n)] = i % 40 == 19 ? NAN : INFINITY;
            struct sl_vocab_blocks known = look(logits, n, i % 3 ? 1 : i % 2 ? 0 : 0.5f);
            double lse_a = sl_log_sum_exp(logits, NULL, n),
                   lse_b = sl_log_sum_exp(logits, &known, n);
            assert_true(isnan(lse_a) ? isnan(lse_b) : lse_a == lse_b);
            sl_top_logprobs(&space, logits, NULL, lse_a, i % 21, &a);
            sl_top_logprobs(&space, logits, &known, lse_b, i % 21, &b);
            assert_int_equal(a.n_top, b.n_top);
            assert_memory_equal(a.top, b.top, a.n_top * sizeof *a.top);
        }
        sl_sampler_space_release(&space);
    }
}

/* Never more than were asked for, and none where the largest is no number. */
static void logprobs_not_finite(void **state) {
    (void)state;
    static const float odd[] = {INFINITY, INFINITY, -INFINITY, NAN};
    struct sl_rng rng = {5};
    uint32_t n = 1000, n_none = 0;
    open_space(n, &rng);
    for (uint32_t i = 0; i < 1000; i++) {
        struct sl_token t;
        uint32_t n_top = 1 + sl_rng_below(&rng, 20);
        fill(&rng, n, i);
        for (uint32_t j = 1 + sl_rng_below(&rng, 4); j; j--)
            logits[sl_rng_below(&rng, n)] = odd[sl_rng_below(&rng, 2 + i % 3)];
        struct sl_vocab_blocks known = look(logits, n, 1);
        double lse = sl_log_sum_exp(logits, &known, n);
        sl_top_logprobs(&space, logits, i % 2 ? &known : NULL, lse, n_top, &t);
        assert_int_equal(t.n_top, isfinite(lse) ? n_top : 0);
        n_none += !t.n_top;
    }
    assert_true(n_none > 500 && n_none < 1000);
    sl_sampler_space_release(&space);
}

/* Maxima and sums that are none: whoever takes them finds no token, or one of the vocabulary. */
static void wrong_blocks(void **state) {
    (void)state;
    static const float off[] = {5, -5, 1e30f, -1e30f}, wrong[] = {1, 0, NAN, INFINITY, -3};
    struct sl_rng rng = {4};
    uint32_t n = 1000, n_refused = 0;
    open_space(n, &rng);
    for (uint32_t i = 0; i < 400; i++) {
        struct sl_logit_bias bias[4];
        struct sl_sampling s = some_sampling(&rng, n, bias, NULL);
        struct sl_sampler sampler;
        uint32_t id = UINT32_MAX;
        struct sl_token t;
        fill(&rng, n, i);
        struct sl_vocab_blocks known = look(logits, n, sl_sampling_sums_at(&s, i % 7 == 0));
        for (uint32_t b = 0; b < SL_VOCAB_BLOCKS(n); b++) {
            block_sum[b] *= wrong[i % 5];
            block_max[b] += off[i / 4 % 4] * (i % 3 ? 1 : (float)sl_rng_unit(&rng));
        }
        sl_top_logprobs(&space, logits, &known, sl_log_sum_exp(logits, &known, n), 20, &t);
        assert_true(t.n_top <= 20);
        for (uint32_t j = 0; j < t.n_top; j++)
            assert_true(t.top[j].id < n);
        s.temperature = i % 4 ? s.temperature : 0;
        sl_sampler_init(&sampler, &s);
        enum sl_status status =
            sl_sampler_pick(&sampler, &space, logits, &known, history, 20 * (i % 2), &id, NULL);
        assert_true(status == SL_OK ? id < n : status == SL_ERR_INVALID);
        n_refused += status != SL_OK;
    }
    assert_true(n_refused > 50); /* so they are what is looked at */
    uint32_t id, last = SL_VOCAB_BLOCKS(n) - 1;
    for (uint32_t b = 0; b <= last; b++) { /* a draw goes by the sums */
        struct sl_sampler sampler;
        sl_sampler_init(&sampler, &sl_sampling_default);
        fill(&rng, n, 0);
        struct sl_vocab_blocks all_in_one = look(logits, n, 1);
        block_sum[b] = 1e30f;
        assert_ok(sl_sampler_pick(&sampler, &space, logits, &all_in_one, NULL, 0, &id, NULL));
        assert_int_equal(id / SL_VOCAB_BLOCK, b);
    }
    struct sl_vocab_blocks known = look(logits, n, 0);
    block_max[last] = 1e6f;
    block_at[last] = n - 1 - last * SL_VOCAB_BLOCK;
    assert_int_equal(sl_sampler_largest(&space, &known, &id), SL_OK);
    assert_int_equal(id, n - 1);
    block_at[last]++; /* beyond the vocabulary */
    assert_int_equal(sl_sampler_largest(&space, &known, &id), SL_ERR_INVALID);
    block_max[0] = 2e6f;
    block_at[0] = SL_VOCAB_BLOCK; /* beyond the block */
    assert_int_equal(sl_sampler_largest(&space, &known, &id), SL_ERR_INVALID);
    sl_sampler_space_release(&space);
}

/* The last draw of all, of tokens of which some are as good as impossible: what rounding leaves
 * when all masses have been gone through is not theirs. */
static void no_impossible_tokens(void **state) {
    (void)state;
    static const uint64_t seed = 0x31628af67b2131ab; /* whose first number is all ones */
    struct sl_rng rng = {.state = seed};
    uint32_t n = 1000;
    assert_true(sl_rng_unit(&rng) == 1 - 0x1p-53);
    rng.state = 12;
    open_space(n, &rng);
    for (uint32_t i = 0; i < 200; i++) {
        struct sl_sampler sampler;
        struct sl_sampling s = sl_sampling_default;
        uint32_t id;
        s.seed = seed;
        s.top_k = i / 2 % 2 ? n - 1 : 0; /* not the whole vocabulary */
        fill(&rng, n, 0);
        for (uint32_t j = 0; j < n; j++)
            if (j % SL_VOCAB_BLOCK >= 60 || j > n - 100)
                logits[j] = -50; /* e^-38 of what the others have, at the most */
        struct sl_vocab_blocks known = look(logits, n, 1);
        sl_sampler_init(&sampler, &s);
        assert_ok(
            sl_sampler_pick(&sampler, &space, logits, i % 2 ? &known : NULL, NULL, 0, &id, NULL));
        assert_true(logits[id] > -50);
    }
    sl_sampler_space_release(&space);
}

static int open_cpu(void **state) {
    (void)state;
    assert_ok(sl_cpu_open(&(struct sl_cpu_config){.n_threads = 1}, &cpu, &test_err));
    return sl_device_configure(cpu, &(struct sl_device_limits){.max_tok = 1}, &test_err);
}

static int close_cpu(void **state) {
    (void)state;
    sl_device_close(&cpu);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(picks),        cmocka_unit_test(not_finite),
        cmocka_unit_test(logprobs),     cmocka_unit_test(logprobs_not_finite),
        cmocka_unit_test(wrong_blocks), cmocka_unit_test(no_impossible_tokens),
    };
    return cmocka_run_group_tests(tests, open_cpu, close_cpu);
}
