/* What choosing a token costs the host: bench_sampler [N_VOCAB].
 *
 * Rows of logits (152k unless said) such as a model gives, new ones for each token, as a device's
 * copies leave them in host memory; for each kind of request the time of a token, in the thread's
 * own time, when the sampler looks at all of them itself and when the device has found the maxima
 * and the sums of their blocks (sl_op_block_max). The tokens are the same. */
#include "common/rng.h"
#include "engine/sample/sampler.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define N_ROWS   32u /* 19 MB: more than a core's own caches hold */
#define N_TOKENS 640u
#define N_SEEN   64u   /* tokens that penalties look back */
#define N_DRY    8192u /* and DRY */

static uint32_t n_vocab = 151936;
static float *rows, *work, *maxima, *sums;

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void *array(size_t n) {
    void *p = malloc(n * sizeof(float));
    if (!p) {
        fprintf(stderr, "bench_sampler: no memory\n");
        exit(1);
    }
    return p;
}

/* A few likely tokens far above a bell of all others. */
static void make_rows(void) {
    struct sl_rng rng = {1};
    rows = array((size_t)N_ROWS * n_vocab);
    work = array((size_t)N_ROWS * n_vocab);
    maxima = array((size_t)N_ROWS * SL_VOCAB_BLOCKS(n_vocab));
    sums = array((size_t)N_ROWS * SL_VOCAB_BLOCKS(n_vocab));
    for (size_t i = 0; i < (size_t)N_ROWS * n_vocab; i++) {
        float sum = 0;
        for (uint32_t j = 0; j < 4; j++)
            sum += (float)sl_rng_unit(&rng) - 0.5f;
        rows[i] = 4 * sum;
        if (sl_rng_below(&rng, 3000) == 0)
            rows[i] += 10 * (float)sl_rng_unit(&rng);
    }
    for (size_t t = 0; t < N_ROWS; t++)
        sl_vocab_pass_c.max(rows + t * n_vocab, n_vocab, maxima + t * SL_VOCAB_BLOCKS(n_vocab));
}

static void sum_blocks(float inv_t) {
    for (size_t t = 0; t < N_ROWS && inv_t > 0; t++) {
        size_t first = t * SL_VOCAB_BLOCKS(n_vocab);
        sl_vocab_pass_c.block_sums(rows + t * n_vocab, maxima + first, inv_t, sums + first,
                                   n_vocab);
    }
}

struct request {
    const char *name;
    float temperature, top_p, typical_p, penalty;
    uint32_t top_k;
    bool logprobs;
    float dry;
};

/* As the scheduler does it; microseconds a token. The sum of ids tells whether two are the same. */
static double run(const struct request *q, bool given, uint64_t *out_ids) {
    struct sl_sampler_space space;
    struct sl_sampling set = sl_sampling_default;
    struct sl_sampler sampler;
    struct sl_token top;
    static uint32_t history[N_DRY];
    uint32_t n_history = q->dry > 0 ? N_DRY : N_SEEN;
    double total = 0;
    set.temperature = q->temperature;
    set.top_p = q->top_p;
    set.typical_p = q->typical_p;
    set.top_k = q->top_k;
    set.repeat_penalty = q->penalty;
    set.dry.multiplier = q->dry;
    sl_sampler_init(&sampler, &set);
    float sums_at = sl_sampling_sums_at(&set, q->logprobs);
    sum_blocks(sums_at);
    if (sl_sampler_space_init(&space, n_vocab) != SL_OK)
        exit(1);
    for (uint32_t i = 0; i < n_history; i++) /* which comes again after 64 tokens */
        history[i] = i % N_SEEN * 1009 % n_vocab;
    *out_ids = 0;
    for (uint32_t i = 0; i < N_TOKENS; i++) {
        size_t row = i % N_ROWS;
        if (row == 0)
            memcpy(work, rows, (size_t)N_ROWS * n_vocab * sizeof *work);
        float *x = work + row * n_vocab;
        size_t first = row * SL_VOCAB_BLOCKS(n_vocab);
        struct sl_vocab_blocks b = {.max = maxima + first, .sum = sums + first, .inv_t = sums_at};
        const struct sl_vocab_blocks *known = given ? &b : NULL;
        uint32_t id;
        float logit;
        double start = now_us();
        if (q->logprobs)
            sl_top_logprobs(&space, x, known, sl_log_sum_exp(x, known, n_vocab), 5, &top);
        if (sl_sampler_pick(&sampler, &space, x, known, history, n_history, &id,
                            q->logprobs ? &logit : NULL) != SL_OK)
            exit(1);
        total += now_us() - start;
        *out_ids = *out_ids * 31 + id;
    }
    sl_sampler_space_release(&space);
    return total / N_TOKENS;
}

int main(int argc, char **argv) {
    static const struct request requests[] = {
        {"greedy", 0, 1, 1, 1, 0, false, 0},
        {"greedy, 64 tokens penalised", 0, 1, 1, 1.1f, 0, false, 0},
        {"greedy, top log-probabilities", 0, 1, 1, 1, 0, true, 0},
        {"temperature 0.7, top-k 40", 0.7f, 1, 1, 1, 40, false, 0},
        {"temperature 0.7, top-p 0.9", 0.7f, 0.9f, 1, 1, 0, false, 0},
        {"temperature 0.7, typical 0.9", 0.7f, 1, 0.9f, 1, 0, false, 0},
        {"temperature 1", 1, 1, 1, 1, 0, false, 0},
        {"greedy, DRY over 8192 tokens", 0, 1, 1, 1, 0, false, 0.8f},
    };
    if (argc > 1)
        n_vocab = (uint32_t)strtoul(argv[1], NULL, 10);
    if (argc > 2 || n_vocab < 1 || n_vocab > 4000000) {
        fprintf(stderr, "usage: bench_sampler [N_VOCAB]: 1 to 4,000,000; 151936 unless given\n");
        return 2;
    }
    make_rows();
    printf(
        "%u logits; us a token, the sampler looking at all of them, and with their blocks given\n",
        n_vocab);
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        uint64_t ids[2];
        double own = run(&requests[i], false, &ids[0]), given = run(&requests[i], true, &ids[1]);
        printf("%-32s %7.1f %7.1f%s\n", requests[i].name, own, given,
               ids[0] == ids[1] ? "" : "  other tokens!");
        if (ids[0] != ids[1])
            return 1;
    }
    return 0;
}
