/* Runs sequences of random tokens through the engine and counts what they took. */
#include "cli/bench/bench.h"

#include "common/clock.h"
#include "common/metrics.h"
#include "common/rng.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- one sequence ---- */

struct sequence {
    struct sl_token_sink sink; /* first */
    struct sl_gen_request req;
    uint64_t *time_ns; /* [max_tokens] when each token came */
    uint32_t n;
    struct sl_gen_result result;
    struct group *group;
};

struct group {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t n_running;
    struct sl_bench_counts begun; /* when the last sequence's first token had come */
};

static struct sl_bench_counts count_now(void);

static enum sl_status push(struct sl_token_sink *s, const struct sl_token *token) {
    struct sequence *q = (struct sequence *)s;
    (void)token;
    q->time_ns[q->n++] = sl_now_ns();
    if (q->n == 1) {
        struct sl_bench_counts now = count_now();
        pthread_mutex_lock(&q->group->lock);
        q->group->begun = now;
        pthread_mutex_unlock(&q->group->lock);
    }
    return SL_OK;
}

static void finish(struct sl_token_sink *s, const struct sl_gen_result *result) {
    struct sequence *q = (struct sequence *)s;
    struct group *g = q->group;
    pthread_mutex_lock(&g->lock);
    q->result = *result;
    g->n_running--;
    pthread_cond_signal(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

/* Runs n sequences to their end: random prompts, and random answers or the model's own. ids:
 * [n * (n_prompt + n_answer)]; out_begun: what was counted when all of them had begun to generate.
 */
static bool run_group(struct sl_bench *b, struct sequence *seq, uint32_t n, const uint32_t *ids,
                      uint32_t n_prompt, uint32_t n_answer, struct sl_bench_counts *out_begun) {
    struct group g = {.n_running = n};
    struct sl_err err = {{0}};
    pthread_mutex_init(&g.lock, NULL);
    pthread_cond_init(&g.changed, NULL);
    bool ok = true;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t *own = ids + (size_t)i * (n_prompt + n_answer);
        seq[i].sink = (struct sl_token_sink){push, NULL, finish};
        seq[i].n = 0;
        seq[i].group = &g;
        seq[i].result = (struct sl_gen_result){.reason = SL_FINISH_ERROR};
        seq[i].req = (struct sl_gen_request){.prompt = own,
                                             .n_prompt = n_prompt,
                                             .max_tokens = n_answer,
                                             .forced = b->own_answers ? NULL : own + n_prompt,
                                             .ignore_eog = true,
                                             .no_cache = true, /* every run computes its prompt */
                                             .sampling = sl_sampling_default,
                                             .sink = &seq[i].sink};
        seq[i].req.sampling.temperature = 0;
        if (sl_engine_submit(b->engine, &seq[i].req, &err) != SL_OK) {
            pthread_mutex_lock(&g.lock);
            g.n_running--;
            pthread_mutex_unlock(&g.lock);
            ok = false;
        }
    }
    pthread_mutex_lock(&g.lock);
    while (g.n_running)
        pthread_cond_wait(&g.changed, &g.lock);
    pthread_mutex_unlock(&g.lock);
    for (uint32_t i = 0; i < n && ok; i++)
        if (seq[i].result.status != SL_OK || seq[i].n != n_answer) {
            ok = false;
            err = seq[i].result.err;
        }
    *out_begun = g.begun;
    pthread_cond_destroy(&g.changed);
    pthread_mutex_destroy(&g.lock);
    if (!ok) {
        sl_show_progress("%s", "");
        fprintf(stderr, "sluice bench: a run failed: %s\n", err.text);
    }
    return ok;
}

/* Tokens per second while all sequences were generating. */
static double steady_rate(const struct sequence *seq, uint32_t n, uint32_t n_answer) {
    uint64_t from = 0, to = UINT64_MAX, count = 0;
    for (uint32_t i = 0; i < n; i++) {
        from = seq[i].time_ns[0] > from ? seq[i].time_ns[0] : from;
        to = seq[i].time_ns[n_answer - 1] < to ? seq[i].time_ns[n_answer - 1] : to;
    }
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < n_answer; j++)
            count += seq[i].time_ns[j] > from && seq[i].time_ns[j] <= to;
    return to > from ? (double)count / ((double)(to - from) * 1e-9) : 0;
}

/* ---- counts ---- */

static struct sl_bench_counts count_now(void) {
#define READ(field) (uint64_t) sl_metric(field)
    return (struct sl_bench_counts){
        .steps = READ(steps_total),
        .step_ns = READ(prefill_ns_total) + READ(decode_ns_total),
        .experts = READ(expert_reads_total),
        .expert_bytes = READ(expert_read_bytes_total),
        .hits = READ(expert_hits_total),
        .host_hits = READ(expert_host_hits_total),
        .promotions = READ(expert_promotions_total),
        .demotions = READ(expert_demotions_total),
        .early = READ(expert_early_total) + READ(expert_predicted_total),
        .early_used = READ(expert_early_used_total) + READ(expert_predicted_used_total),
        .link_up_bytes = READ(link_up_bytes_total),
        .link_down_bytes = READ(link_down_bytes_total),
        .link_read_bytes = READ(link_read_bytes_total),
        .lane_experts = READ(lane_experts_total),
        .lane_bytes = READ(lane_bytes_total),
        .lane_ns = READ(lane_ns_total),
        .drafts = READ(draft_tokens_total),
        .drafts_accepted = READ(draft_accepted_total),
        .draft_ns = READ(draft_ns_total),
        .late = READ(expert_late_total),
        .misses = READ(expert_misses_total),
        .missed_bytes = READ(expert_missed_bytes_total),
        .prefetch_used = READ(prefetch_used_total),
        .evictions = READ(expert_evictions_total),
        .stall_demand_ns = READ(expert_stall_demand_ns_total),
        .stall_late_ns = READ(expert_stall_late_ns_total),
        .stall_slot_ns = READ(expert_stall_slot_ns_total),
        .disk_reads = READ(disk_reads_total),
        .disk_read_bytes = READ(disk_read_bytes_total),
        .disk_needed_bytes = READ(disk_needed_bytes_total),
        .disk_requests = READ(disk_requests_total),
        .disk_syscalls = READ(disk_syscalls_total),
        .disk_busy_ns = READ(disk_busy_ns_total),
        .disk_flight_ns = READ(disk_flight_ns_total),
    };
#undef READ
}

/* sum += now - was, member by member: all are uint64_t. */
static void add_counts(struct sl_bench_counts *sum, const struct sl_bench_counts *now,
                       const struct sl_bench_counts *was) {
    uint64_t *s = (uint64_t *)sum;
    const uint64_t *n = (const uint64_t *)now, *w = (const uint64_t *)was;
    for (size_t i = 0; i < sizeof *sum / sizeof *s; i++)
        s[i] += n[i] - w[i];
}

/* ---- a test ---- */

static void measure_disk(struct sl_bench *b, struct sl_bench_test *t) {
    if (!b->info.streaming)
        return;
    sl_show_progress("%s: measuring how fast the disk can be read", t->name);
    sl_bench_disk_rate(b, &t->disk);
}

static bool run_rep(struct sl_bench *b, struct sl_bench_test *t, struct sequence *seq,
                    uint32_t *ids, struct sl_rng *rng) {
    /* Decoding n tokens: one comes out of the prompt's only row, n more out of n steps. */
    uint32_t n_prompt = t->n_gen ? t->depth + 1 : t->n_prompt,
             n_answer = t->n_gen ? t->n_gen + 1 : 1;
    for (size_t i = 0; i < (size_t)t->parallel * (n_prompt + n_answer); i++)
        ids[i] = sl_rng_below(rng, b->model->hp.n_vocab);
    struct sl_bench_counts was = count_now(), begun;
    if (!run_group(b, seq, t->parallel, ids, n_prompt, n_answer, &begun))
        return false;
    struct sl_bench_counts now = count_now();
    if (t->depth) /* the prompt is not what is measured */
        was = begun;
    add_counts(&t->counts, &now, &was);
    t->rate[t->n_reps++] = t->n_gen ? steady_rate(seq, t->parallel, n_answer)
                                    : t->n_prompt / ((double)seq[0].result.prefill_ns * 1e-9);
    return true;
}

static void mean_rate(struct sl_bench_test *t) {
    double sum = 0, sq = 0;
    for (uint32_t r = 0; r < t->n_reps; r++)
        sum += t->rate[r];
    t->mean = sum / t->n_reps;
    for (uint32_t r = 0; r < t->n_reps; r++)
        sq += (t->rate[r] - t->mean) * (t->rate[r] - t->mean);
    t->sd = t->n_reps > 1 ? sqrt(sq / (t->n_reps - 1)) : 0;
}

bool sl_bench_run(struct sl_bench *b, struct sl_bench_test *t) {
    const struct sl_bench_options *o = b->o;
    uint32_t n_answer = t->n_gen + 1, n_ids = (t->n_gen ? t->depth + 1 : t->n_prompt) + n_answer;
    struct sequence *seq = calloc(t->parallel, sizeof *seq);
    uint32_t *ids = malloc((size_t)t->parallel * n_ids * sizeof *ids);
    uint64_t *times = malloc((size_t)t->parallel * n_answer * sizeof *times);
    bool ok = seq && ids && times;
    if (!ok)
        fprintf(stderr, "sluice bench: out of memory\n");
    for (uint32_t i = 0; ok && i < t->parallel; i++)
        seq[i].time_ns = times + (size_t)i * n_answer;
    struct sl_rng rng = {42};
    if (ok && !o->no_warmup) {
        sl_show_progress("%s: warm-up", t->name);
        struct sl_bench_test warm = *t;
        warm.n_gen = t->n_gen > 8 ? 8 : t->n_gen;
        ok = run_rep(b, &warm, seq, ids, &rng);
    }
    measure_disk(b, t);
    for (uint32_t r = 0; ok && r < o->reps; r++) {
        sl_show_progress("%s: run %u of %u", t->name, r + 1, o->reps);
        ok = run_rep(b, t, seq, ids, &rng);
        measure_disk(b, t);
    }
    sl_show_progress("%s", "");
    if (ok)
        mean_rate(t);
    free(seq);
    free(ids);
    free(times);
    return ok;
}
