/* What the fault tests share: a small model with experts of two sizes whose bytes are in memory,
 * the answers it gives on a sound disk, and how those of a faulty one must relate to them. */
#ifndef TESTS_FAULT_FAULTY_H
#define TESTS_FAULT_FAULTY_H

#include "tests/support/budget.h"

#include "common/metrics.h"
#include "engine/reads/expert_layout.h"

#include <fcntl.h>
#include <sys/stat.h>

#define N_RUNS   4u
#define N_ANSWER 12u
#define N_CTX    200u

static struct test_model model;
static uint8_t *model_bytes;
static uint64_t model_size;
static struct sl_expert_layout layout;
static struct run *clean[N_RUNS]; /* what a sound disk gives */

static inline struct sl_synth_config faulty_config(void) {
    struct sl_synth_config c = sl_synth_default;
    c.arch = "qwen2moe";
    c.n_layer = 4;
    c.n_expert = 8;
    c.n_expert_used = 2;
    c.n_vocab = 512;
    c.n_ctx = 512;
    c.down = (struct sl_synth_types){{SL_DTYPE_Q8_0, SL_DTYPE_Q4_0}, 2};
    return c;
}

static inline struct run *make_run(uint32_t i) {
    static const uint32_t n_prompt[N_RUNS] = {3, 2, 40, 1};
    struct run *r = new_run(500 + i, n_prompt[i], model.model->hp.n_vocab, N_ANSWER);
    r->req.ignore_eog = true;
    r->req.logprobs = true;
    if (i % 2) {
        r->req.sampling.temperature = 1;
        r->req.sampling.seed = i;
    }
    return r;
}

static inline struct sl_engine_config streamed_config(uint32_t percent) {
    struct sl_engine_config c = {.n_threads = 1,
                                 .ctx_tokens = N_CTX,
                                 .parallel = N_RUNS,
                                 .batch_tokens = 32,
                                 .no_warm_up = true};
    set_budget(model.model, &c, percent);
    return c;
}

static inline void read_model(void) {
    struct stat st;
    int fd = open(model.path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    model_size = (uint64_t)st.st_size;
    model_bytes = malloc(model_size);
    assert_int_equal(read(fd, model_bytes, model_size), model_size);
    close(fd);
}

static inline int setup_model(void **state) {
    (void)state;
    struct sl_synth_config sc = faulty_config();
    open_model(&model, &sc);
    read_model();
    assert_ok(sl_expert_layout_make(model.model, &layout, &test_err));
    struct sl_engine_config c = {.n_threads = 1,
                                 .ctx_tokens = N_CTX,
                                 .parallel = 1,
                                 .experts = SL_EXPERTS_RESIDENT,
                                 .ram_bytes = AMPLE_BYTES};
    struct sl_engine *e = new_engine(&model, &c);
    for (uint32_t i = 0; i < N_RUNS; i++) {
        clean[i] = make_run(i);
        submit(e, clean[i]);
        wait_run(clean[i]);
        assert_int_equal(clean[i]->n, N_ANSWER);
    }
    sl_engine_destroy(&e);
    return 0;
}

static inline int teardown_model(void **state) {
    (void)state;
    for (uint32_t i = 0; i < N_RUNS; i++)
        free_run(clean[i]);
    sl_expert_layout_release(&layout);
    free(model_bytes);
    close_model(&model);
    return 0;
}

/* Every token that was pushed is the right one. */
static inline void assert_no_wrong_token(const struct run *r, uint32_t i) {
    assert_int_equal(r->n_finish, 1);
    assert_true(r->n <= N_ANSWER);
    for (uint32_t t = 0; t < r->n; t++)
        if (r->tokens[t].id != clean[i]->tokens[t].id ||
            memcmp(&r->tokens[t].logprob, &clean[i]->tokens[t].logprob, sizeof(float)) != 0)
            fail_msg("request %u: wrong token %u", i, t);
}

static inline void assert_clean(const struct run *r, uint32_t i) {
    assert_no_wrong_token(r, i);
    if (r->result.status != SL_OK || r->n != N_ANSWER)
        fail_msg("request %u: %u tokens: %s", i, r->n, r->result.err.text);
}

static inline void assert_failed(const struct run *r, uint32_t i, enum sl_status status,
                                 const char *says) {
    assert_no_wrong_token(r, i);
    assert_int_equal(r->result.reason, SL_FINISH_ERROR);
    assert_int_equal(r->result.status, status);
    if (!strstr(r->result.err.text, says))
        fail_msg("request %u: '%s' does not say '%s'", i, r->result.err.text, says);
}

/* Request i alone. */
static inline struct run *run_one(struct sl_engine *e, uint32_t i) {
    struct run *r = make_run(i);
    submit(e, r);
    wait_run(r);
    return r;
}

static inline void expect_clean(struct sl_engine *e) {
    struct run *r[N_RUNS];
    for (uint32_t i = 0; i < N_RUNS; i++) {
        r[i] = make_run(i);
        submit(e, r[i]);
    }
    for (uint32_t i = 0; i < N_RUNS; i++) {
        wait_run(r[i]);
        assert_clean(r[i], i);
        free_run(r[i]);
    }
}

#endif
