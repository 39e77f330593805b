/* Requests of many kinds, each sampled in another way, for tests of drafts. */
#ifndef TESTS_ENGINE_DRAFT_REQUESTS_H
#define TESTS_ENGINE_DRAFT_REQUESTS_H

#include "tests/unit/engine/fixture.h"

#include <math.h>

#define N_RUNS   6u
#define N_ANSWER 40u

/* Allows a third of the vocabulary, which depends on all that was accepted. */
struct third {
    struct sl_constraint base; /* first */
    uint32_t state, n_accepted;
};

static enum sl_status third_mask(struct sl_constraint *c, float *logits, uint32_t n_vocab) {
    const struct third *t = (const struct third *)c;
    for (uint32_t i = 0; i < n_vocab; i++)
        if (i % 3 != t->state % 3)
            logits[i] = -INFINITY;
    return SL_OK;
}

static enum sl_status third_accept(struct sl_constraint *c, uint32_t token) {
    struct third *t = (struct third *)c;
    t->state = t->state * 7 + token + 1;
    t->n_accepted++;
    return SL_OK;
}

static struct third thirds[N_RUNS];
static const uint32_t held[] = {1, 5, 9, 100, 101, 102};

/* The i-th of the requests; each is sampled in another way. */
static inline struct run *make(uint32_t i, uint32_t n_vocab) {
    static const uint32_t prompts[N_RUNS] = {150, 1, 64, 90, 63, 130};
    struct run *r = new_run(71 + i, prompts[i], n_vocab, i == 4 ? 0 : N_ANSWER + 7 * i);
    struct sl_sampling *s = &r->req.sampling;
    r->req.ignore_eog = true;
    r->req.logprobs = i != 0;
    r->req.n_top_logprobs = i == 3 ? 5 : 0;
    s->seed = 1000 + i;
    s->temperature = i < 2 ? 0 : 0.6f + 0.1f * (float)i;
    if (i == 1 || i == 3) {
        s->repeat_penalty = 1.3f;
        s->repeat_last_n = 20;
        s->presence_penalty = 0.4f;
        s->frequency_penalty = 0.2f;
    }
    if (i == 2) {
        s->dry = (struct sl_dry){1.2f, 1.75f, 2, UINT32_MAX, NULL};
        s->top_k = 40;
        s->top_p = 0.95f;
        s->xtc_probability = 0.3f;
        s->xtc_threshold = 0.02f;
    }
    if (i == 3) {
        s->min_tokens = 20;
        s->held = held;
        s->n_held = 6;
    }
    if (i == 5) {
        thirds[i] = (struct third){.base = {third_mask, third_accept, {""}}};
        s->constraint = &thirds[i].base;
    }
    return r;
}

static inline void finish_all(struct sl_engine *e, struct run *const *runs) {
    for (uint32_t i = 0; i < N_RUNS; i++)
        submit(e, runs[i]);
    for (uint32_t i = 0; i < N_RUNS; i++) {
        wait_run(runs[i]);
        assert_int_equal(runs[i]->result.status, SL_OK);
    }
}

static inline void make_all(struct run **runs, uint32_t n_vocab) {
    for (uint32_t i = 0; i < N_RUNS; i++)
        runs[i] = make(i, n_vocab);
}

static inline void free_all(struct run **runs) {
    for (uint32_t i = 0; i < N_RUNS; i++)
        free_run(runs[i]);
}

static inline struct sl_engine_config config(void) {
    return (struct sl_engine_config){
        .n_threads = 1, .ctx_tokens = 256, .parallel = 3, .batch_tokens = 48};
}

#endif
