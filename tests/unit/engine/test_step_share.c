/* How prompts and answers share steps: the pace, who gets how many rows, and what time allows. */
#include "tests/unit/engine/fixture.h"

#include "common/metrics.h"
#include "engine/engine.h"
#include "engine/schedule/schedule.h"

#include <math.h>

static struct test_model tiny;

static int setup(void **state) {
    (void)state;
    struct sl_synth_config c = tiny_config("qwen3moe");
    open_model(&tiny, &c);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    close_model(&tiny);
    return 0;
}

static struct run *make(uint32_t seed, uint32_t n_prompt, uint32_t max_tokens) {
    struct run *r = new_run(seed, n_prompt, tiny.model->hp.n_vocab, max_tokens);
    r->req.ignore_eog = true;
    return r;
}

/* ---- the pace ---- */

/* Steps on a machine where n prompt rows with one generated row take cost(n). */
static double (*cost)(double rows);

static double linear(double rows) { /* computing */
    return 20e6 + 2e6 * rows;
}
static double
reading(double rows) { /* each row touches experts that no row before it did, at first */
    return 30e6 + 900e6 * (1 - exp(-rows / 40));
}
static double slow(double rows) { /* no slice keeps the bound */
    return 400e6 + 1e6 * rows;
}

static uint32_t run_pace(struct sl_pace *p, uint32_t n_steps, double *out_longest_late) {
    uint32_t rows = 0;
    *out_longest_late = 0;
    for (uint32_t i = 0; i < n_steps; i++) {
        rows = sl_pace_rows(p, 511, 1, 1);
        assert_true(rows >= SL_MIN_SHARED_ROWS && rows <= 511);
        double ns = cost(rows);
        if (i >= n_steps / 2 && ns > *out_longest_late)
            *out_longest_late = ns;
        sl_pace_learn(p, rows, 1, (uint64_t)ns, (uint64_t)ns);
    }
    return rows;
}

static void slices_follow_the_bound(void **state) {
    (void)state;
    double longest;
    struct sl_pace p = {.stall_ns = 300e6};
    cost = linear;
    uint32_t rows = run_pace(&p, 40, &longest);
    assert_true(longest <= 300e6);
    assert_in_range(rows, 80, 140); /* 140 would fill the bound */
    cost = reading; /* the load changes: one step may be too long, not those after it */
    run_pace(&p, 1, &longest);
    rows = run_pace(&p, 40, &longest);
    assert_true(longest <= 300e6);
    assert_in_range(rows, SL_MIN_SHARED_ROWS, 16);
    cost = linear; /* and back up */
    rows = run_pace(&p, 40, &longest);
    assert_in_range(rows, 80, 140);
    cost = slow; /* prompts go on all the same, as slowly as they may */
    rows = run_pace(&p, 40, &longest);
    assert_int_equal(rows, SL_MIN_SHARED_ROWS);
    p = (struct sl_pace){.stall_ns = 2000e6};
    cost = linear;
    assert_int_equal(run_pace(&p, 40, &longest), 511);
}

static void the_bound_is_for_those_who_generate(void **state) {
    (void)state;
    struct sl_pace p = {.stall_ns = 1e6};
    sl_pace_learn(&p, 512, 0, 4000000000u, 4000000000u);
    assert_int_equal(sl_pace_rows(&p, 512, 0, 3), 512);
    assert_int_equal(sl_pace_rows(&p, 511, 1, 3), SL_MIN_SHARED_ROWS);
    assert_int_equal(sl_pace_rows(&p, 500, 12, 100), 100); /* a row for each, at least */
    assert_int_equal(sl_pace_rows(&p, 5, 12, 5), 5);
    struct sl_pace fresh = {.stall_ns = 300e6};
    assert_in_range(sl_pace_rows(&fresh, 511, 1, 1), SL_MIN_SHARED_ROWS, 100);
}

/* A long prompt through several stages that take as long each, and as many steps under way: each
 * step takes as long as all of them, and costs its time at one stage. seen: so many of their ends
 * are seen at once. */
static void prompt_through(struct sl_pace *p, uint32_t n_stages, uint32_t n_slices, uint32_t seen) {
    const uint64_t slice_ns = 100000000u;
    uint64_t ended = 0, end[64] = {0};
    for (uint32_t i = 0; i < n_slices; i++) {
        uint64_t start = i < n_stages ? 0 : end[i - n_stages];
        uint32_t last = i - i % seen + seen - 1;
        end[i] = (n_stages + last) * slice_ns + i % seen;
        sl_pace_learn(p, 512, 0, end[i] - start, end[i] - (start > ended ? start : ended));
        ended = end[i];
    }
}

static void what_rows_cost_with_others(void **state) {
    (void)state;
    const double row_ns = 100e6 / 512, page_ns = row_ns * SL_KV_PAGE_TOKENS;
    struct sl_pace fresh = {0};
    assert_true(sl_pace_row_cost_ns(&fresh) == 0);
    for (uint32_t n_stages = 1; n_stages <= 8; n_stages *= 2)
        for (uint32_t seen = 1; seen <= 2 && seen <= n_stages; seen++) {
            struct sl_pace p = {0};
            prompt_through(&p, n_stages, 40, seen);
            assert_in_range(sl_pace_row_cost_ns(&p), 0.85 * row_ns, 1.15 * row_ns);
            assert_in_range(p.prompt_row_ns, 0.85 * n_stages * row_ns,
                            (n_stages + seen - 0.85) * row_ns);
            /* A disk that takes a little longer than computing, and one that takes a little less.
             */
            double costs = sl_pace_row_cost_ns(&p);
            assert_false(sl_prefix_disk_pays(1.1 * page_ns, costs, 10));
            assert_true(sl_prefix_disk_pays(0.6 * page_ns, costs, 10));
            prompt_through(&p, n_stages, 1, 1); /* alone it costs what it takes */
            assert_true(sl_pace_row_cost_ns(&p) >= 0.99 * costs);
        }
}

/* ---- shares ---- */

static struct run *lengthy[2], *quick[2];
static uint32_t n_early; /* short ones that ended before any token of the long ones */

static void note_early(struct run *r) {
    (void)r;
    n_early += !lengthy[0]->n && !lengthy[1]->n; /* the scheduler's own thread writes them */
}

/* From the scheduler's thread, so that it sees all four at once. */
static void submit_all(struct run *r) {
    submit(r->engine, lengthy[0]);
    submit(r->engine, lengthy[1]);
    submit(r->engine, quick[0]);
    submit(r->engine, quick[1]);
}

/* Short prompts that come while a long one is computed are through before it. */
static void short_prompts_do_not_wait_for_long_ones(void **state) {
    (void)state;
    struct sl_engine_config c = {
        .n_threads = 1, .ctx_tokens = 1000, .parallel = 4, .batch_tokens = 32};
    struct sl_engine *e = new_engine(&tiny, &c);
    struct run *first = make(9, 5, 1);
    first->on_progress = submit_all;
    for (uint32_t i = 0; i < 2; i++) {
        lengthy[i] = make(1 + i, 900, 1);
        quick[i] = make(3 + i, 30, 1);
        quick[i]->on_finish = note_early;
    }
    submit(e, first);
    wait_run(first);
    free_run(first);
    for (uint32_t i = 0; i < 2; i++) {
        wait_run(quick[i]);
        wait_run(lengthy[i]);
        assert_int_equal(lengthy[i]->n, 1);
        free_run(lengthy[i]);
        free_run(quick[i]);
    }
    assert_int_equal(n_early, 2);
    sl_engine_destroy(&e);
}

static struct run *answering;
static uint32_t tokens_at_first_slice, tokens_at_last_slice;

static void note_tokens(struct run *r) {
    if (r->n_progress == 1)
        tokens_at_first_slice = answering->n; /* the scheduler's own thread writes it */
    tokens_at_last_slice = answering->n;
}

/* While a prompt is computed in slices, one that generates gets a token with every slice. */
static void answers_overlap_a_prompt(void **state) {
    (void)state;
    struct sl_engine_config c = {
        .n_threads = 1, .ctx_tokens = 1000, .parallel = 2, .batch_tokens = 512, .max_stall_ms = 1};
    struct sl_engine *e = new_engine(&tiny, &c);
    assert_true(e->pace.stall_ns == 1e6);
    answering = make(5, 5, 900);
    answering->hold_at = 2;
    submit(e, answering);
    wait_parked(answering);
    struct run *prompt = make(6, 900, 1);
    prompt->on_progress = note_tokens;
    pthread_mutex_lock(&answering->lock);
    answering->hold_at = 0;
    answering->parked = false;
    pthread_mutex_unlock(&answering->lock);
    sl_engine_resume(e, &answering->req);
    submit(e, prompt);
    wait_run(prompt);
    assert_true(prompt->n_progress >= 2);
    assert_true(tokens_at_last_slice - tokens_at_first_slice + 2 >= prompt->n_progress);
    wait_run(answering);
    assert_int_equal(answering->n, 900);
    free_run(answering);
    free_run(prompt);
    sl_engine_destroy(&e);
}

/* ---- deadlines ---- */

static uint64_t in_ms(uint64_t ms) {
    return sl_now_ns() + ms * 1000000u;
}

static void assert_timed_out(struct run *r, const char *says) {
    wait_run(r);
    assert_int_equal(r->n_finish, 1);
    assert_int_equal(r->result.reason, SL_FINISH_ERROR);
    assert_int_equal(r->result.status, SL_ERR_TIMEOUT);
    assert_non_null(strstr(r->result.err.text, says));
}

/* Running, waiting for a slot, waiting for its client, come too late, and in time. */
static void time_runs_out_everywhere(void **state) {
    (void)state;
    struct sl_engine_config c = {
        .n_threads = 1, .ctx_tokens = 1000, .parallel = 1, .batch_tokens = 64};
    struct sl_engine *e = new_engine(&tiny, &c);
    int64_t before = sl_metric(requests_timed_out_total);
    struct run *r = make(10, 20, 4);
    r->req.deadline_ns = in_ms(600000);
    submit(e, r);
    wait_run(r);
    assert_int_equal(r->result.status, SL_OK);
    free_run(r);

    r = make(11, 20, 4);
    r->req.deadline_ns = 1;
    submit(e, r);
    assert_timed_out(r, "waiting for its turn");
    free_run(r);

    /* Nothing else runs: the thread must wake by itself. A busy machine may need longer to get
     * there. */
    bool was_parked = false;
    for (uint32_t ms = 150; !was_parked; ms *= 4) {
        struct run *parked = make(12, 20, 100);
        parked->hold_at = 3;
        parked->req.deadline_ns = in_ms(ms);
        submit(e, parked);
        pthread_mutex_lock(&parked->lock);
        while (!parked->n_finish)
            pthread_cond_wait(&parked->changed, &parked->lock);
        was_parked = parked->parked;
        pthread_mutex_unlock(&parked->lock);
        assert_true(was_parked || ms < 100000);
        if (was_parked)
            assert_timed_out(parked, "still running");
        else
            assert_int_equal(parked->result.status, SL_ERR_TIMEOUT);
        free_run(parked);
    }

    struct run *runs = make(13, 20, 0), *waits = make(14, 20, 4);
    runs->req.deadline_ns = in_ms(250);
    runs->park_every = 5; /* slow enough never to end before */
    waits->req.deadline_ns = in_ms(50);
    struct run *hold = make(15, 900, 0);
    submit(e, hold);
    submit(e, waits);
    submit(e, runs);
    wait_run(waits);
    assert_true(waits->result.status == SL_ERR_TIMEOUT || waits->result.status == SL_OK);
    sl_engine_cancel(e, &hold->req);
    wait_run(hold);
    wait_run(runs);
    assert_true(runs->result.status == SL_ERR_TIMEOUT || runs->n == 980);
    free_run(hold);
    free_run(runs);
    free_run(waits);
    assert_true(sl_metric(requests_timed_out_total) - before >= 2);
    assert_int_equal(sl_metric(kv_pages_used), 0);
    sl_engine_destroy(&e);
}

int main(void) {
    sl_log_set_level(SL_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_follow_the_bound),
        cmocka_unit_test(the_bound_is_for_those_who_generate),
        cmocka_unit_test(what_rows_cost_with_others),
        cmocka_unit_test(short_prompts_do_not_wait_for_long_ones),
        cmocka_unit_test(answers_overlap_a_prompt),
        cmocka_unit_test(time_runs_out_everywhere),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
