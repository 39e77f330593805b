/* The sampler against a plain reference that sorts everything, and against the distributions that
 * its settings promise. */
#include "tests/support/slow_build.h"
#include "tests/unit/engine/fixture.h"

#include "common/fast_exp.h"
#include "engine/sample/sampler.h"

#include <math.h>

/* ---- the reference: doubles, full sorts, one filter after the other as sampler.h says ---- */

struct cand {
    uint32_t id;
    double logit, key;
};

static int by_key(const void *pa, const void *pb) {
    const struct cand *a = pa, *b = pb;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return (a->id > b->id) - (a->id < b->id);
}

static double total_mass(const struct cand *c, uint32_t n, double max) {
    double t = 0;
    for (uint32_t i = 0; i < n; i++)
        t += exp(c[i].logit - max);
    return t;
}

static double max_logit(const struct cand *c, uint32_t n) {
    double m = -INFINITY;
    for (uint32_t i = 0; i < n; i++)
        m = c[i].logit > m ? c[i].logit : m;
    return m;
}

/* Cuts the sorted candidates where the mass reaches share of the whole. */
static uint32_t cut_at(const struct cand *c, uint32_t n, double max, double share) {
    double limit = share * total_mass(c, n, max), sum = 0;
    uint32_t kept = 0;
    while (kept < n && (!kept || sum < limit))
        sum += exp(c[kept++].logit - max);
    return kept;
}

/* Returns how many candidates are left; c sorted by id, probabilities in key. */
static uint32_t reference(const struct sl_sampling *s, const float *logits, uint32_t n_vocab,
                          const uint32_t *history, uint32_t n_history, struct cand *c) {
    uint32_t n = n_vocab;
    for (uint32_t i = 0; i < n; i++)
        c[i] = (struct cand){i, (double)logits[i], 0};
    for (uint32_t i = 0; i < s->n_logit_bias; i++)
        c[s->logit_bias[i].token].logit += (double)s->logit_bias[i].bias;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t count = 0;
        for (uint32_t j = 0; j < n_history; j++)
            count += history[j] == i && n_history - j <= s->repeat_last_n;
        if (!count)
            continue;
        double p = (double)s->repeat_penalty;
        c[i].logit = c[i].logit > 0 ? c[i].logit / p : c[i].logit * p;
        c[i].logit -= count * (double)s->frequency_penalty + (double)s->presence_penalty;
    }
    if (s->top_n_sigma > 0) {
        double mean = 0, square = 0, floor = max_logit(c, n);
        uint32_t n_finite = 0, kept = 0;
        for (uint32_t i = 0; i < n; i++)
            if (isfinite(c[i].logit))
                mean += c[i].logit, n_finite++;
        mean /= n_finite;
        for (uint32_t i = 0; i < n; i++)
            if (isfinite(c[i].logit))
                square += pow(c[i].logit - mean, 2) / n_finite;
        floor -= (double)s->top_n_sigma * sqrt(square);
        for (uint32_t i = 0; i < n; i++)
            if (c[i].logit >= floor)
                c[kept++] = c[i];
        n = kept;
    }
    if (s->top_k && s->top_k < n) {
        for (uint32_t i = 0; i < n; i++)
            c[i].key = -c[i].logit;
        qsort(c, n, sizeof *c, by_key);
        n = s->top_k;
    }
    double max = max_logit(c, n);
    if (s->typical_p < 1) {
        double t = total_mass(c, n, max), entropy = 0;
        for (uint32_t i = 0; i < n; i++) {
            double lp = c[i].logit - max - log(t);
            if (exp(lp) > 0)
                entropy -= exp(lp) * lp;
        }
        for (uint32_t i = 0; i < n; i++)
            c[i].key = fabs(-(c[i].logit - max - log(t)) - entropy);
        qsort(c, n, sizeof *c, by_key);
        n = cut_at(c, n, max, (double)s->typical_p);
        max = max_logit(c, n);
    }
    for (uint32_t i = 0; i < n; i++)
        c[i].key = -c[i].logit;
    qsort(c, n, sizeof *c, by_key);
    if (s->top_p < 1)
        n = cut_at(c, n, max, (double)s->top_p);
    if (s->min_p > 0) {
        uint32_t kept = 0;
        while (kept < n && exp(c[kept].logit - max) >= (double)s->min_p)
            kept++;
        n = kept;
    }
    if (s->xtc_probability == 1 && s->xtc_threshold <= 0.5f) { /* c is sorted, best first */
        double all = total_mass(c, n, max);
        uint32_t likely = 0;
        while (likely < n && exp(c[likely].logit - max) / all >= (double)s->xtc_threshold)
            likely++;
        if (likely > 1) {
            n -= likely - 1;
            memmove(c, c + likely - 1, n * sizeof *c);
            max = c[0].logit;
        }
    }
    double t = 0;
    for (uint32_t i = 0; i < n; i++)
        t += exp((c[i].logit - max) / (double)s->temperature);
    for (uint32_t i = 0; i < n; i++)
        c[i].key = exp((c[i].logit - max) / (double)s->temperature) / t;
    return n;
}

/* ---- comparing by drawing ---- */

#define N_DRAWS BY_BUILD(40000u, 6000u, 6000u)

/* Draws many times: nothing outside the reference's set, and chi-square within its 1e-6 tail. */
static void check_distribution(const struct sl_sampling *s, const float *logits, uint32_t n_vocab,
                               const uint32_t *history, uint32_t n_history) {
    struct cand *c = malloc(n_vocab * sizeof *c);
    double *p = calloc(n_vocab, sizeof *p);
    uint32_t *seen = calloc(n_vocab, sizeof *seen);
    float *work = malloc(n_vocab * sizeof *work);
    uint32_t n = reference(s, logits, n_vocab, history, n_history, c);
    for (uint32_t i = 0; i < n; i++)
        p[c[i].id] = c[i].key;
    struct sl_sampler_space space;
    assert_int_equal(sl_sampler_space_init(&space, n_vocab), SL_OK);
    struct sl_sampler sampler;
    sl_sampler_init(&sampler, s);
    for (uint32_t i = 0; i < N_DRAWS; i++) {
        uint32_t id;
        memcpy(work, logits, n_vocab * sizeof *work);
        assert_int_equal(
            sl_sampler_pick(&sampler, &space, work, NULL, history, n_history, &id, NULL), SL_OK);
        assert_true(id < n_vocab);
        if (p[id] == 0)
            fail_msg("token %u was drawn, the reference leaves it out (of %u kept)", id, n);
        seen[id]++;
    }
    double chi = 0, rest_p = 0, rest_seen = 0;
    uint32_t cells = 0;
    for (uint32_t i = 0; i < n_vocab; i++) {
        double want = p[i] * N_DRAWS;
        if (want < 8) { /* rare tokens share a cell */
            rest_p += p[i];
            rest_seen += seen[i];
            continue;
        }
        chi += (seen[i] - want) * (seen[i] - want) / want;
        cells++;
    }
    if (rest_p * N_DRAWS >= 8) {
        double want = rest_p * N_DRAWS;
        chi += (rest_seen - want) * (rest_seen - want) / want;
        cells++;
    }
    /* Wilson-Hilferty: the 1e-6 quantile of chi-square with df degrees of freedom. */
    double df = cells > 1 ? cells - 1 : 1, a = 2 / (9 * df);
    double bound = df * pow(1 - a + 4.75 * sqrt(a), 3);
    if (cells > 1 && chi > bound)
        fail_msg("chi-square %.1f over %.1f with %.0f degrees of freedom", chi, bound, df);
    for (uint32_t i = 0; i < n_vocab; i++)
        assert_int_equal(space.count[i], 0); /* left clean for the next */
    sl_sampler_space_release(&space);
    free(c);
    free(p);
    free(seen);
    free(work);
}

static void fill_normal(float *logits, uint32_t n, float std, uint64_t seed) {
    struct sl_rng rng = {seed};
    for (uint32_t i = 0; i < n; i++) {
        double u = sl_rng_unit(&rng) + 1e-12, v = sl_rng_unit(&rng);
        logits[i] = std * (float)(sqrt(-2 * log(u)) * cos(2 * M_PI * v));
    }
}

static void distributions(void **state) {
    (void)state;
    static const uint32_t sizes[] = {1, 2, 17, 100, 1000};
    struct sl_logit_bias bias[2] = {{0, -INFINITY}, {1, 1.5f}};
    uint32_t history[40];
    for (uint32_t v = 0; v < sizeof sizes / sizeof *sizes; v++) {
        uint32_t n = sizes[v];
        float logits[1000];
        fill_normal(logits, n, 2, 5 + v);
        for (uint32_t i = 0; i < 40; i++)
            history[i] = (i * i) % n;
        for (uint32_t set = 0; set < 12; set++) {
            struct sl_sampling s = sl_sampling_default;
            s.seed = 1000 * v + set;
            s.temperature = set % 3 == 0 ? 1 : set % 3 == 1 ? 0.7f : 1.6f;
            switch (set) {
            case 1:
                s.top_k = 5;
                break;
            case 2:
                s.top_p = 0.8f;
                break;
            case 3:
                s.min_p = 0.1f;
                break;
            case 4:
                s.typical_p = 0.6f;
                break;
            case 5:
                s.top_k = 40;
                s.top_p = 0.9f;
                s.min_p = 0.02f;
                break;
            case 6:
                s.repeat_penalty = 1.3f;
                s.repeat_last_n = 10;
                break;
            case 7:
                s.presence_penalty = 0.7f;
                s.frequency_penalty = 0.3f;
                s.repeat_last_n = UINT32_MAX;
                break;
            case 8:
                if (n > 2) {
                    s.logit_bias = bias;
                    s.n_logit_bias = 2;
                }
                break;
            case 9:
                s.top_k = 30;
                s.typical_p = 0.9f;
                s.top_p = 0.95f;
                s.min_p = 0.05f;
                s.repeat_penalty = 1.1f;
                break;
            case 10:
                s.top_p = 0;
                break;
            case 11:
                s.top_k = n;
                s.typical_p = 0.97f;
                break;
            default:
                break;
            }
            check_distribution(&s, logits, n, history, 40);
        }
    }
}

/* A large vocabulary whose best twenty are equal: top-k keeps exactly the lowest ids. */
static void exact_top_k_with_ties(void **state) {
    (void)state;
    enum { N = 151936, K = 9 };
    float *logits = malloc(N * sizeof *logits), *work = malloc(N * sizeof *work);
    struct sl_sampler_space space;
    assert_int_equal(sl_sampler_space_init(&space, N), SL_OK);
    fill_normal(logits, N, 3, 77);
    /* A plateau of equal logits at the top: the lower ids win. */
    for (uint32_t i = 0; i < 20; i++)
        logits[1000 + 7000 * i] = 40;
    struct sl_sampling s = sl_sampling_default;
    s.top_k = K;
    s.temperature = 100;
    struct sl_sampler sampler;
    sl_sampler_init(&sampler, &s);
    uint32_t seen[20] = {0};
    for (uint32_t i = 0; i < 2000; i++) {
        uint32_t id;
        memcpy(work, logits, N * sizeof *work);
        assert_int_equal(sl_sampler_pick(&sampler, &space, work, NULL, NULL, 0, &id, NULL), SL_OK);
        assert_int_equal((id - 1000) % 7000, 0);
        seen[(id - 1000) / 7000]++;
    }
    for (uint32_t i = 0; i < 20; i++)
        assert_int_equal(seen[i] > 0, i < K);
    sl_sampler_space_release(&space);
    free(logits);
    free(work);
}

/* All logits equal, one bucket holds all: still right, still in order. */
static void flat_distribution(void **state) {
    (void)state;
    enum { N = 5000 };
    float work[N];
    struct sl_sampler_space space;
    assert_int_equal(sl_sampler_space_init(&space, N), SL_OK);
    struct sl_sampling s = sl_sampling_default;
    s.top_p = 0.01f; /* 50 tokens: the lowest ids */
    struct sl_sampler sampler;
    sl_sampler_init(&sampler, &s);
    uint32_t max = 0;
    for (uint32_t i = 0; i < 2000; i++) {
        uint32_t id;
        for (uint32_t j = 0; j < N; j++)
            work[j] = 1.25f;
        assert_int_equal(sl_sampler_pick(&sampler, &space, work, NULL, NULL, 0, &id, NULL), SL_OK);
        max = id > max ? id : max;
    }
    assert_in_range(max, 48, 50);
    sl_sampler_space_release(&space);
}

static void greedy_and_extremes(void **state) {
    (void)state;
    enum { N = 100 };
    float logits[N], work[N];
    struct sl_sampler_space space;
    assert_int_equal(sl_sampler_space_init(&space, N), SL_OK);
    fill_normal(logits, N, 1, 3);
    logits[41] = logits[77] = 9;
    struct sl_sampling s = sl_sampling_default;
    struct sl_sampler sampler;
    uint32_t id;
    static const float temperatures[] = {0, 1e-40f, 1e-6f};
    for (uint32_t t = 0; t < 3; t++) {
        s.temperature = temperatures[t];
        s.top_k = t ? 1 : 0;
        sl_sampler_init(&sampler, &s);
        memcpy(work, logits, sizeof work);
        assert_int_equal(sl_sampler_pick(&sampler, &space, work, NULL, NULL, 0, &id, NULL), SL_OK);
        assert_int_equal(id, 41); /* ties to the lower id */
    }
    s = sl_sampling_default;
    s.temperature = 1e30f; /* all but uniform, nothing breaks */
    sl_sampler_init(&sampler, &s);
    for (uint32_t i = 0; i < N; i++)
        work[i] = i % 2 ? -INFINITY : (float)i;
    for (uint32_t i = 0; i < 200; i++) {
        float again[N];
        memcpy(again, work, sizeof work);
        assert_int_equal(sl_sampler_pick(&sampler, &space, again, NULL, NULL, 0, &id, NULL), SL_OK);
        assert_int_equal(id % 2, 0); /* what is forbidden stays so */
    }
    work[5] = NAN;
    assert_int_equal(sl_sampler_pick(&sampler, &space, work, NULL, NULL, 0, &id, NULL),
                     SL_ERR_INVALID);
    for (uint32_t i = 0; i < N; i++)
        work[i] = -INFINITY;
    assert_int_equal(sl_sampler_pick(&sampler, &space, work, NULL, NULL, 0, &id, NULL),
                     SL_ERR_INVALID);
    work[3] = INFINITY;
    assert_int_equal(sl_sampler_pick(&sampler, &space, work, NULL, NULL, 0, &id, NULL),
                     SL_ERR_INVALID);
    sl_sampler_space_release(&space);
}

static void seeds_reproduce(void **state) {
    (void)state;
    enum { N = 3000, M = 300 };
    float logits[N], work[N];
    uint32_t first[M];
    struct sl_sampler_space space;
    assert_int_equal(sl_sampler_space_init(&space, N), SL_OK);
    fill_normal(logits, N, 2, 8);
    struct sl_sampling s = sl_sampling_default;
    uint32_t same = 0;
    for (uint32_t pass = 0; pass < 3; pass++) {
        struct sl_sampler sampler;
        s.seed = pass == 2 ? 43 : 42;
        sl_sampler_init(&sampler, &s);
        for (uint32_t i = 0; i < M; i++) {
            uint32_t id;
            memcpy(work, logits, sizeof work);
            assert_int_equal(sl_sampler_pick(&sampler, &space, work, NULL, NULL, 0, &id, NULL),
                             SL_OK);
            if (pass == 0)
                first[i] = id;
            else if (pass == 1)
                assert_int_equal(first[i], id);
            else
                same += first[i] == id;
        }
    }
    assert_true(same < M / 10);
    sl_sampler_space_release(&space);
}

static void logprobs(void **state) {
    (void)state;
    enum { N = 5003 };
    float logits[N];
    struct sl_sampler_space space;
    assert_int_equal(sl_sampler_space_init(&space, N), SL_OK);
    for (uint32_t pass = 0; pass < 20; pass++) {
        fill_normal(logits, N, 0.1f + (float)pass, 100 + pass);
        if (pass == 3)
            for (uint32_t i = 0; i < N; i += 2)
                logits[i] = -INFINITY;
        double max = -INFINITY, sum = 0;
        for (uint32_t i = 0; i < N; i++)
            max = (double)logits[i] > max ? (double)logits[i] : max;
        for (uint32_t i = 0; i < N; i++)
            sum += exp((double)logits[i] - max);
        double want = max + log(sum), got = sl_log_sum_exp(logits, NULL, N);
        assert_true(fabs(want - got) < 1e-6);
        struct sl_token t;
        sl_top_logprobs(&space, logits, NULL, got, 7, &t);
        assert_int_equal(t.n_top, 7);
        for (uint32_t j = 0; j < 7; j++) {
            uint32_t better = 0;
            for (uint32_t i = 0; i < N; i++)
                better += logits[i] > logits[t.top[j].id];
            assert_int_equal(better, j);
            assert_true(fabs((double)logits[t.top[j].id] - want - (double)t.top[j].logprob) < 1e-5);
        }
    }
    sl_sampler_space_release(&space);
}

static void fast_exp_is_near(void **state) {
    (void)state;
    double worst = 0;
    for (float x = 0; x > -86.5f; x -= 0.00037f) {
        double want = exp((double)x), got = (double)sl_exp_neg(x);
        double rel = fabs(got - want) / want;
        worst = rel > worst ? rel : worst;
    }
    print_message("largest relative error of exp: %.2e\n", worst);
    assert_true(worst < 3e-7);
    assert_true(sl_exp_neg(0) == 1);
    assert_true(sl_exp_neg(-88) == 0);
    assert_true(sl_exp_neg(-INFINITY) == 0);
}

/* exp with the sum is exp; blocks and all are summed, near what double gives, and each block
 * beside its own maximum as beside that of all. Returns the sum. */
static double sum_of_exp(const struct sl_vocab_pass *p, const float *x, float max,
                         const float *block_max, const float *want, uint32_t n,
                         float *out_block_sum) {
    static float y[7000], mass[7000 / SL_VOCAB_BLOCK + 1];
    double sum = p->exp_sum(x, max, 0.8f, y, n), all = 0;
    uint32_t n_blocks = SL_VOCAB_BLOCKS(n);
    assert_memory_equal(y, want, n * sizeof *y);
    p->block_sums(x, block_max, 0.8f, out_block_sum, n);
    double weighed = p->weigh(out_block_sum, block_max, max, 0.8f, mass, n_blocks);
    for (uint32_t b = 0; b < n_blocks; b++) {
        double plain = 0;
        for (uint32_t i = b * SL_VOCAB_BLOCK; i < n && i < (b + 1) * SL_VOCAB_BLOCK; i++)
            plain += (double)y[i];
        assert_true(fabs(plain - (double)mass[b]) <= 1e-5 * plain + 1e-30);
        all += plain;
    }
    assert_true(fabs(all - sum) <= 1e-5 * all);
    assert_true(fabs(all - weighed) <= 1e-5 * all);
    return sum;
}

/* Every build of the passes gives the same bits. */
static void passes_agree(void **state) {
    (void)state;
    enum { N = 7000 };
    static float x[N], a[N], b[N], block_a[N / SL_VOCAB_BLOCK + 1], block_b[N / SL_VOCAB_BLOCK + 1];
    static float sums_a[N / SL_VOCAB_BLOCK + 1], sums_b[N / SL_VOCAB_BLOCK + 1];
    const struct sl_vocab_pass *all[] = {&sl_vocab_pass_c, &sl_vocab_pass_avx2,
                                         &sl_vocab_pass_avx512};
    bool have[] = {true, __builtin_cpu_supports("avx2"), __builtin_cpu_supports("avx512bw")};
    static const uint32_t sizes[] = {1, 15, 63, 64, 65, 1000, N};
    for (uint32_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        uint32_t n = sizes[k], n_blocks = (n + SL_VOCAB_BLOCK - 1) / SL_VOCAB_BLOCK;
        fill_normal(x, n, 20, k);
        if (n > 1)
            x[n / 2] = -INFINITY;
        float max = all[0]->max(x, n, block_a);
        all[0]->exp(x, max, 0.8f, a, n);
        double sum = sum_of_exp(all[0], x, max, block_a, a, n, sums_a);
        for (uint32_t v = 1; v < 3; v++) {
            if (!have[v])
                continue;
            assert_true(all[v]->max(x, n, block_b) == max);
            assert_memory_equal(block_a, block_b, n_blocks * sizeof(float));
            all[v]->exp(x, max, 0.8f, b, n);
            assert_memory_equal(a, b, n * sizeof(float));
            assert_true(sum_of_exp(all[v], x, max, block_a, a, n, sums_b) == sum);
            assert_memory_equal(sums_a, sums_b, n_blocks * sizeof(float));
            x[n - 1] = NAN;
            assert_true(isnan(all[v]->max(x, n, block_b)));
            x[n - 1] = -1;
            max = all[0]->max(x, n, block_a);
            all[0]->exp(x, max, 0.8f, a, n);
            sum = sum_of_exp(all[0], x, max, block_a, a, n, sums_a);
        }
    }
}

/* Filters of llama.cpp, at odd sizes, alone and with others. */
static void sigma_and_xtc(void **state) {
    (void)state;
    static const uint32_t sizes[] = {1, 3, 65, 131, 1000};
    float logits[1000];
    struct sl_rng rng = {3};
    for (uint32_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        uint32_t n = sizes[k];
        for (uint32_t i = 0; i < n; i++)
            logits[i] = i % 7 == 3 ? -INFINITY : 6 * (float)sl_rng_unit(&rng);
        for (uint32_t kind = 0; kind < 6; kind++) {
            struct sl_sampling s = sl_sampling_default;
            s.seed = kind + 1;
            s.top_n_sigma = kind % 2 ? 1.1f : 0;
            s.xtc_probability = kind >= 2 ? 1 : 0;
            s.xtc_threshold = kind == 3 ? 0.001f : kind == 5 ? 0.6f : 0.02f;
            s.top_k = kind == 4 ? 5 : 0;
            s.temperature = kind == 2 ? 0.7f : 1;
            check_distribution(&s, logits, n, NULL, 0);
        }
    }
}

/* XTC at a share of the tokens: two equal candidates, of which the lower goes. */
static void xtc_share(void **state) {
    (void)state;
    float logits[2] = {1, 1};
    struct sl_sampling s = sl_sampling_default;
    struct sl_sampler_space space;
    struct sl_sampler sampler;
    uint32_t n_low = 0, id;
    s.xtc_probability = 0.4f;
    s.xtc_threshold = 0.1f;
    assert_int_equal(sl_sampler_space_init(&space, 2), SL_OK);
    sl_sampler_init(&sampler, &s);
    for (uint32_t i = 0; i < 10000; i++) {
        assert_int_equal(sl_sampler_pick(&sampler, &space, logits, NULL, NULL, 0, &id, NULL),
                         SL_OK);
        n_low += id == 0;
    }
    assert_true(n_low > 2800 && n_low < 3200); /* 0.6 / 2 of them, within four deviations */
    sl_sampler_space_release(&space);
}

/* Tokens that are held back come as soon as they may, and cost the others nothing. */
static void held_back(void **state) {
    (void)state;
    enum { N = 131 };
    static const uint32_t held[] = {130, 64};
    float logits[N], work[N];
    for (uint32_t i = 0; i < N; i++)
        logits[i] = (float)(i % 60) * 0.1f;
    logits[130] = 20;
    logits[64] = 19;
    logits[7] = 18;
    struct sl_sampler_space space;
    assert_int_equal(sl_sampler_space_init(&space, N), SL_OK);
    for (uint32_t hot = 0; hot < 2; hot++) {
        struct sl_sampling s = sl_sampling_default;
        s.temperature = hot ? 0.01f : 0;
        s.min_tokens = 3;
        s.held = held;
        s.n_held = 2;
        struct sl_err err;
        assert_int_equal(sl_sampling_check(&s, N, &err), SL_OK);
        assert_int_equal(sl_sampling_check(&s, 130, &err), SL_ERR_INVALID);
        struct sl_sampler sampler;
        sl_sampler_init(&sampler, &s);
        for (uint32_t i = 0; i < 6; i++) {
            uint32_t id;
            float logit;
            memcpy(work, logits, sizeof work);
            assert_int_equal(sl_sampler_pick(&sampler, &space, work, NULL, NULL, 0, &id, &logit),
                             SL_OK);
            assert_int_equal(id, i < 3 ? 7 : 130);
            assert_true(logit == logits[id]);
        }
    }
    sl_sampler_space_release(&space);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fast_exp_is_near),  cmocka_unit_test(passes_agree),
        cmocka_unit_test(distributions),     cmocka_unit_test(exact_top_k_with_ties),
        cmocka_unit_test(flat_distribution), cmocka_unit_test(greedy_and_extremes),
        cmocka_unit_test(seeds_reproduce),   cmocka_unit_test(logprobs),
        cmocka_unit_test(held_back),         cmocka_unit_test(sigma_and_xtc),
        cmocka_unit_test(xtc_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
