/* DRY against its definition in dry.h, written out as it stands there, on random histories of small
 * alphabets; and what the sampler makes of it. */
#include "tests/support/slow_build.h"
#include "tests/unit/engine/fixture.h"

#include "engine/sample/sampler.h"

#include <math.h>

#define N_VOCAB 12u
#define MAX_H   400u
#define N_ROUND BY_BUILD(6000u, 1200u, 1200u)

/* Token texts of several shapes: one byte, several, a part of a breaker, none, long. */
static const char *const texts[N_VOCAB] = {
    "a", "b", "ab", "\n", "x:y", "", "<|im", "_end|>", "b:", "qqqqqqqq", "<|im_end|>", "c\nd"};

static uint64_t n_looked_at;

static const char *text_of(const void *ctx, uint32_t token, uint32_t *out_len) {
    (void)ctx;
    n_looked_at++;
    *out_len = (uint32_t)strlen(texts[token]);
    return texts[token];
}

static void add_breaker(struct sl_dry_breakers *b, const char *text) {
    b->breaker[b->n].len = (uint32_t)strlen(text);
    memcpy(b->breaker[b->n++].bytes, text, strlen(text));
}

/* ---- the definition ---- */

/* Does a breaker end in token k of h? Tries every run of tokens that ends with it. */
static bool breaks(const struct sl_dry_breakers *b, const uint32_t *h, uint32_t k) {
    for (uint32_t i = 0; b && i < b->n; i++) {
        uint32_t len = b->breaker[i].len;
        for (uint32_t first = k + 1; first-- > 0 && k - first < len;) {
            char all[4096];
            size_t n = 0, before = 0;
            for (uint32_t j = first; j <= k; j++) {
                before = j == k ? n : before;
                memcpy(all + n, texts[h[j]], strlen(texts[h[j]]));
                n += strlen(texts[h[j]]);
            }
            for (size_t at = 0; at + len <= n; at++)
                if (at + len > before && memcmp(all + at, b->breaker[i].bytes, len) == 0)
                    return true;
        }
    }
    return false;
}

/* behind: how many tokens of h [n], which is what DRY looks at, come after the last breaker. */
static float wanted(const struct sl_dry *d, const uint32_t *h, uint32_t n, uint32_t behind,
                    uint32_t t) {
    uint32_t longest = 0;
    bool seen = false;
    if (breaks(d->breakers, &t, 0))
        return 0;
    for (uint32_t p = 1; p < n; p++) {
        uint32_t len = 0;
        if (h[p] != t)
            continue;
        seen = true;
        while (len < p && len < SL_DRY_MAX_LENGTH && h[p - 1 - len] == h[n - 1 - len])
            len++;
        longest = len > longest ? len : longest;
    }
    longest = longest < behind ? longest : behind;
    if (!seen || longest < d->allowed_length)
        return 0;
    double x = (double)d->multiplier;
    for (uint32_t i = d->allowed_length; i < longest && x < 1e30; i++)
        x *= (double)d->base;
    return x < (double)SL_DRY_MAX_PENALTY ? (float)x : SL_DRY_MAX_PENALTY;
}

static uint32_t table[SL_DRY_MAX_LENGTH];

/* How many tokens are penalised. */
static uint32_t check_on(const struct sl_dry *d, const uint32_t *h, uint32_t n,
                         struct sl_dry_clear *clear) {
    uint32_t count[N_VOCAB] = {0}, ids[N_VOCAB];
    float by[N_VOCAB], found[N_VOCAB] = {0};
    uint32_t n_found = sl_dry_find(d, h, n, clear, table, count, ids, by);
    assert_true(n_found <= N_VOCAB);
    for (uint32_t i = 0; i < n_found; i++) {
        assert_true(by[i] > 0 && found[ids[i]] == 0);
        found[ids[i]] = by[i];
    }
    uint32_t n_seen = n < d->last_n ? n : d->last_n, behind = 0;
    const uint32_t *last = h + (n - n_seen);
    while (behind < n_seen && !breaks(d->breakers, last, n_seen - 1 - behind))
        behind++;
    for (uint32_t t = 0; t < N_VOCAB; t++) {
        float want = wanted(d, last, n_seen, behind, t);
        if (fabsf(found[t] - want) > 1e-5f * want)
            fail_msg("token %u of a history of %u: %g, not %g", t, n, (double)found[t],
                     (double)want);
        assert_int_equal(count[t], 0);
    }
    return n_found;
}

static uint32_t check(const struct sl_dry *d, const uint32_t *h, uint32_t n) {
    struct sl_dry_clear clear = {0, 0};
    return check_on(d, h, n, &clear);
}

/* ---- tests ---- */

static void random_histories(void **state) {
    (void)state;
    static const char *const lists[][4] = {{NULL},
                                           {"\n", ":", "\"", "*"},
                                           {"<|im_end|>", "aab", NULL},
                                           {"ab", "bab", "qqq", NULL},
                                           {"a", "b", "x:yb", NULL}};
    struct sl_rng rng = {7};
    uint32_t n_penalised = 0;
    for (uint32_t round = 0; round < N_ROUND; round++) {
        struct sl_dry_breakers b = {.text = text_of};
        for (uint32_t i = 0; i < 4 && lists[round % 5][i]; i++)
            add_breaker(&b, lists[round % 5][i]);
        uint32_t h[MAX_H], n = (uint32_t)sl_rng_below(&rng, round % 10 ? 40 : MAX_H) + 1;
        uint32_t n_letters = (uint32_t)sl_rng_below(&rng, N_VOCAB) + 1;
        uint32_t shift = (uint32_t)sl_rng_below(&rng, N_VOCAB);
        uint32_t period = (uint32_t)sl_rng_below(&rng, 9);
        for (uint32_t i = 0; i < n; i++) {
            h[i] = ((uint32_t)sl_rng_below(&rng, n_letters) + shift) % N_VOCAB;
            if (period && i >= period && sl_rng_below(&rng, 12))
                h[i] = h[i - period];
        }
        struct sl_dry d = {.multiplier = 0.8f,
                           .base = round % 3 ? 1.75f : 1,
                           .allowed_length = (uint32_t)sl_rng_below(&rng, 5),
                           .last_n = round % 4 ? UINT32_MAX : (uint32_t)sl_rng_below(&rng, 30),
                           .breakers = round % 7 ? &b : NULL};
        n_penalised += check(&d, h, n);
        struct sl_dry_clear clear = {0, 0};
        for (uint32_t k = 1; k <= n && round % 4 == 1; k++) /* and token by token */
            check_on(&d, h, k, &clear);
    }
    assert_true(n_penalised > N_ROUND / 2);
}

/* a b c c b c y a b c: "a b c" was followed by c, "b c" by y. */
static void known_example(void **state) {
    (void)state;
    static const uint32_t h[] = {0, 1, 2, 2, 1, 2, 3, 0, 1, 2};
    struct sl_dry d = {.multiplier = 2, .base = 3, .allowed_length = 2, .last_n = UINT32_MAX};
    uint32_t count[N_VOCAB] = {0}, ids[N_VOCAB], n;
    struct sl_dry_clear clear = {0, 0};
    float by[N_VOCAB];
    n = sl_dry_find(&d, h, 10, &clear, table, count, ids, by);
    assert_int_equal(n, 2); /* c after "a b c", y after "b c" */
    for (uint32_t i = 0; i < n; i++)
        assert_true(ids[i] == 2 ? by[i] == 6 : ids[i] == 3 && by[i] == 2);
    d.multiplier = 0;
    assert_int_equal(sl_dry_find(&d, h, 10, &clear, table, count, ids, by), 0);
    d.multiplier = 2;
    d.last_n = 0;
    assert_int_equal(sl_dry_find(&d, h, 10, &clear, table, count, ids, by), 0);
}

/* Repetitions beyond the table's length, and a penalty beyond its bound. */
static void long_histories(void **state) {
    (void)state;
    enum { N = 3 * SL_DRY_MAX_LENGTH };
    static uint32_t h[N];
    struct sl_dry d = {.multiplier = 1, .base = 1.001f, .last_n = UINT32_MAX};
    for (uint32_t period = 1; period < 4; period++)
        for (uint32_t allowed = 0; allowed <= SL_DRY_MAX_LENGTH; allowed += SL_DRY_MAX_LENGTH / 2) {
            for (uint32_t i = 0; i < N; i++)
                h[i] = i % period;
            h[17] = 5;
            d.allowed_length = allowed;
            assert_true(check(&d, h, N) >= 1);
        }
    d.base = 2;
    assert_true(check(&d, h, N) == 1);
}

/* Text that comes close to a breaker at every byte, and tokens without text between. */
static void hard_breakers(void **state) {
    (void)state;
    static uint32_t h[200];
    struct sl_dry_breakers b = {.text = text_of};
    struct sl_dry d = {
        .multiplier = 1, .base = 1.5f, .allowed_length = 2, .last_n = UINT32_MAX, .breakers = &b};
    for (uint32_t i = 0; i < SL_DRY_MAX_BREAKERS; i++) {
        memset(b.breaker[i].bytes, 'q', SL_DRY_MAX_BREAKER_BYTES);
        b.breaker[i].bytes[0] = (char)('A' + i % 26);
        b.breaker[i].len = SL_DRY_MAX_BREAKER_BYTES;
    }
    b.n = SL_DRY_MAX_BREAKERS;
    for (uint32_t kind = 0; kind < 2; kind++) {
        for (uint32_t i = 0; i < 200; i++)
            h[i] = kind && i % 40 ? 5 : 9;
        assert_true(check(&d, h, 200) >= 1);
    }
    /* The first look is at a long repetition; each after it at what has come since. */
    static uint32_t grown[2 * SL_DRY_MAX_LENGTH];
    uint32_t count[N_VOCAB] = {0}, ids[N_VOCAB];
    float by[N_VOCAB];
    struct sl_dry_clear clear = {0, 0};
    uint64_t first = 0;
    n_looked_at = 0;
    for (uint32_t i = 0; i < 2 * SL_DRY_MAX_LENGTH; i++)
        grown[i] = 9;
    for (uint32_t k = 100; k > 0; k--) {
        uint32_t n = 2 * SL_DRY_MAX_LENGTH - k;
        assert_int_equal(sl_dry_find(&d, grown, n, &clear, table, count, ids, by), 1);
        first = first ? first : n_looked_at;
    }
    assert_true(n_looked_at < 2 * first);
    struct sl_err err;
    struct sl_sampling s = sl_sampling_default;
    s.dry = d;
    assert_int_equal(sl_sampling_check(&s, N_VOCAB, &err), SL_OK);
    b.breaker[1].len = SL_DRY_MAX_BREAKER_BYTES + 1;
    assert_int_equal(sl_sampling_check(&s, N_VOCAB, &err), SL_ERR_INVALID);
}

/* Penalised logits: after the penalties, before the constraint and the filters; with the blocks'
 * maxima known and not; the original logit is what is told. */
static void in_the_sampler(void **state) {
    (void)state;
    enum { N = 5000 };
    static float logits[N], work[N], max[SL_VOCAB_BLOCKS(N)];
    static const uint32_t h[] = {1, 2, 3, 4000, 1, 2, 3};
    struct sl_logit_bias bias = {77, 1};
    struct sl_sampler_space space;
    struct sl_sampler sampler;
    assert_int_equal(sl_sampler_space_init(&space, N), SL_OK);
    for (uint32_t i = 0; i < N; i++)
        logits[i] = (float)(i % 10) * 0.1f;
    logits[4000] = 9;
    logits[77] = 5;
    space.pass->max(logits, N, max);
    const struct sl_vocab_blocks blocks = {.max = max};
    for (uint32_t kind = 0; kind < 32; kind++) {
        struct sl_sampling s = sl_sampling_default;
        uint32_t id;
        float logit;
        bool heavy = kind & 1;
        s.temperature = kind & 2 ? 0.01f : 0;
        s.top_k = kind & 4 ? 1 : 0;
        s.n_logit_bias = kind & 8 ? 1 : 0;
        s.logit_bias = &bias;
        s.dry.multiplier = heavy ? 3 : 1; /* times 1.75: 5.25 and 1.75 below 9 */
        assert_false(sl_sampling_is_largest(&s));
        sl_sampler_init(&sampler, &s);
        memcpy(work, logits, sizeof work);
        assert_int_equal(
            sl_sampler_pick(&sampler, &space, work, kind & 16 ? &blocks : NULL, h, 7, &id, &logit),
            SL_OK);
        assert_int_equal(id, heavy ? 77 : 4000);
        assert_true(logit == logits[id]);
        /* Nothing repeats here: the logits stay as they are. */
        memcpy(work, logits, sizeof work);
        s.n_logit_bias = 0;
        sl_sampler_init(&sampler, &s);
        assert_int_equal(
            sl_sampler_pick(&sampler, &space, work, kind & 16 ? &blocks : NULL, h, 4, &id, NULL),
            SL_OK);
        assert_int_equal(id, 4000);
        assert_memory_equal(work, logits, sizeof work);
    }
    sl_sampler_space_release(&space);
}

static enum sl_status only_token_3(struct sl_constraint *c, float *logits, uint32_t n_vocab) {
    (void)c;
    for (uint32_t i = 0; i < n_vocab; i++)
        logits[i] = i == 3 ? logits[i] : -INFINITY;
    return SL_OK;
}
static enum sl_status accept_any(struct sl_constraint *c, uint32_t token) {
    (void)c;
    (void)token;
    return SL_OK;
}

/* However often it was repeated, what a grammar demands still comes. */
static void with_a_constraint(void **state) {
    (void)state;
    uint32_t h[300];
    float logits[N_VOCAB] = {0};
    struct sl_constraint c = {.mask = only_token_3, .accept = accept_any};
    struct sl_sampling s = sl_sampling_default;
    struct sl_sampler_space space;
    struct sl_sampler sampler;
    for (uint32_t i = 0; i < 300; i++)
        h[i] = 3;
    s.dry.multiplier = 100;
    s.dry.base = 100;
    s.constraint = &c;
    assert_int_equal(sl_sampler_space_init(&space, N_VOCAB), SL_OK);
    sl_sampler_init(&sampler, &s);
    for (uint32_t n = 1; n < 300; n++) {
        uint32_t id;
        memset(logits, 0, sizeof logits);
        assert_int_equal(sl_sampler_pick(&sampler, &space, logits, NULL, h, n, &id, NULL), SL_OK);
        assert_int_equal(id, 3);
    }
    sl_sampler_space_release(&space);
}

static void settings(void **state) {
    (void)state;
    struct sl_err err;
    struct sl_sampling s = sl_sampling_default;
    assert_int_equal(sl_sampling_check(&s, N_VOCAB, &err), SL_OK);
    assert_true(sl_sampling_is_largest(
        &(struct sl_sampling){.temperature = 0, .repeat_penalty = 1, .dry = s.dry}));
    const struct {
        float multiplier, base;
        uint32_t allowed;
    } bad[] = {{-1, 2, 2},   {NAN, 2, 2},      {INFINITY, 2, 2},
               {1, 0.9f, 2}, {1, INFINITY, 2}, {1, 2, SL_DRY_MAX_LENGTH + 1}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        s.dry.multiplier = bad[i].multiplier;
        s.dry.base = bad[i].base;
        s.dry.allowed_length = bad[i].allowed;
        assert_int_equal(sl_sampling_check(&s, N_VOCAB, &err), SL_ERR_INVALID);
        assert_non_null(strstr(err.text, "dry_"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_histories), cmocka_unit_test(known_example),
        cmocka_unit_test(long_histories),   cmocka_unit_test(hard_breakers),
        cmocka_unit_test(in_the_sampler),   cmocka_unit_test(with_a_constraint),
        cmocka_unit_test(settings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
