/* The life of requests: limits, cancellation, parking, queueing, shutdown. */
#include "tests/unit/engine/fixture.h"

#include "backends/backend_table.h"
#include "common/metrics.h"
#include "engine/engine.h"
#include "engine/schedule/schedule.h"

#include <math.h>
#include <stdatomic.h>

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

static struct sl_engine_config config(uint32_t parallel, uint32_t ctx) {
    return (struct sl_engine_config){
        .n_threads = 1, .ctx_tokens = ctx, .parallel = parallel, .batch_tokens = 64};
}

static struct run *make(uint32_t seed, uint32_t n_prompt, uint32_t max_tokens) {
    return new_run(seed, n_prompt, tiny.model->hp.n_vocab, max_tokens);
}

static void pages_all_free(void) {
    assert_int_equal(sl_metric(kv_pages_used), 0);
}

/* ---- ends ---- */

static void max_tokens_ends_it(void **state) {
    (void)state;
    struct sl_engine_config c = config(2, 200);
    struct sl_engine *e = new_engine(&tiny, &c);
    for (uint32_t n = 1; n <= 3; n++) {
        struct run *r = make(1, 5, n);
        submit(e, r);
        wait_run(r);
        assert_int_equal(r->result.reason, SL_FINISH_LENGTH);
        assert_int_equal(r->n, n);
        assert_int_equal(r->result.n_predicted, n);
        assert_int_equal(r->result.n_prompt, 5);
        assert_null(r->req.engine_private);
        free_run(r);
    }
    pages_all_free();
    sl_engine_destroy(&e);
}

static void context_bounds_the_answer(void **state) {
    (void)state;
    struct sl_engine_config c = config(1, 70);
    struct sl_engine *e = new_engine(&tiny, &c);
    /* No limit asked: the answer fills the context, over a page's edge. */
    struct run *r = make(2, 60, 0);
    submit(e, r);
    wait_run(r);
    assert_int_equal(r->result.reason, SL_FINISH_LENGTH);
    assert_int_equal(r->n, 10);
    free_run(r);
    /* The largest prompt leaves one token, one more does not fit. */
    r = make(2, 69, 50);
    submit(e, r);
    wait_run(r);
    assert_int_equal(r->n, 1);
    free_run(r);
    r = make(2, 70, 1);
    assert_int_equal(sl_engine_submit(e, &r->req, &test_err), SL_ERR_CONTEXT_FULL);
    assert_non_null(strstr(test_err.text, "70 tokens"));
    free_run(r);
    sl_engine_destroy(&e);
}

static void end_of_generation_stops(void **state) {
    (void)state;
    struct sl_engine_config c = config(1, 200);
    struct sl_engine *e = new_engine(&tiny, &c);
    struct run *probe = make(3, 5, 8);
    probe->req.sampling.temperature = 2;
    probe->req.sampling.seed = 9;
    submit(e, probe);
    wait_run(probe);
    assert_int_equal(probe->n, 8);
    uint32_t third = probe->tokens[3].id, at = 0;
    while (probe->tokens[at].id != third)
        at++;
    for (uint32_t pass = 0; pass < 2; pass++) {
        struct run *r = make(3, 5, 8);
        r->req.sampling = probe->req.sampling;
        r->req.eog = &third;
        r->req.n_eog = 1;
        r->req.ignore_eog = pass == 1;
        submit(e, r);
        wait_run(r);
        if (pass == 0) {
            assert_int_equal(r->result.reason, SL_FINISH_STOP);
            assert_int_equal(r->n, at + 1);
            assert_true(r->tokens[at].eog);
            assert_int_equal(r->tokens[at].id, third);
        } else {
            assert_int_equal(r->result.reason, SL_FINISH_LENGTH);
            assert_int_equal(r->n, 8);
            assert_false(r->tokens[at].eog);
        }
        free_run(r);
    }
    free_run(probe);
    sl_engine_destroy(&e);
}

static void bad_requests_are_named(void **state) {
    (void)state;
    struct sl_engine_config c = config(1, 200);
    struct sl_engine *e = new_engine(&tiny, &c);
    struct run *r = make(4, 5, 4);
    r->prompt[2] = tiny.model->hp.n_vocab;
    assert_int_equal(sl_engine_submit(e, &r->req, &test_err), SL_ERR_INVALID);
    assert_non_null(strstr(test_err.text, "prompt token 2"));
    r->prompt[2] = 0;
    r->req.n_prompt = 0;
    assert_int_equal(sl_engine_submit(e, &r->req, &test_err), SL_ERR_INVALID);
    r->req.n_prompt = 5;
    struct sl_sampling good = r->req.sampling;
    r->req.sampling.temperature = -1;
    assert_int_equal(sl_engine_submit(e, &r->req, &test_err), SL_ERR_INVALID);
    assert_non_null(strstr(test_err.text, "temperature"));
    r->req.sampling = good;
    r->req.sampling.top_p = NAN;
    assert_int_equal(sl_engine_submit(e, &r->req, &test_err), SL_ERR_INVALID);
    assert_non_null(strstr(test_err.text, "top_p"));
    r->req.sampling = good;
    struct sl_logit_bias bias = {tiny.model->hp.n_vocab, 1};
    r->req.sampling.logit_bias = &bias;
    r->req.sampling.n_logit_bias = 1;
    assert_int_equal(sl_engine_submit(e, &r->req, &test_err), SL_ERR_INVALID);
    assert_non_null(strstr(test_err.text, "logit_bias"));
    r->req.sampling = good;
    r->req.n_top_logprobs = SL_MAX_TOP_LOGPROBS + 1;
    assert_int_equal(sl_engine_submit(e, &r->req, &test_err), SL_ERR_INVALID);
    r->req.n_top_logprobs = 0;
    submit(e, r); /* and the engine is none the worse */
    wait_run(r);
    assert_int_equal(r->n, 4);
    free_run(r);
    sl_engine_destroy(&e);
}

/* A request that cannot be answered fails alone. */
static void a_failing_request_harms_nobody(void **state) {
    (void)state;
    struct sl_engine_config c = config(2, 200);
    struct sl_engine *e = new_engine(&tiny, &c);
    uint32_t n = tiny.model->hp.n_vocab;
    struct sl_logit_bias *all = malloc(n * sizeof *all);
    for (uint32_t i = 0; i < n; i++)
        all[i] = (struct sl_logit_bias){i, -INFINITY};
    struct run *bad = make(5, 5, 10), *good = make(6, 5, 10), *alone = make(6, 5, 10);
    bad->req.sampling.logit_bias = all;
    bad->req.sampling.n_logit_bias = n;
    submit(e, alone);
    wait_run(alone);
    int64_t failed = sl_metric(requests_failed_total);
    submit(e, bad);
    submit(e, good);
    wait_run(bad);
    wait_run(good);
    assert_int_equal(bad->result.reason, SL_FINISH_ERROR);
    assert_int_equal(bad->result.status, SL_ERR_INVALID);
    assert_non_null(strstr(bad->result.err.text, "logit_bias"));
    assert_int_equal(sl_metric(requests_failed_total), failed + 1);
    assert_same_tokens(alone, good);
    free(all);
    free_run(bad);
    free_run(good);
    free_run(alone);
    pages_all_free();
    sl_engine_destroy(&e);
}

/* A device whose experts fail on demand: the ops table with one entry replaced. */
static struct sl_backend_ops failing_ops;
static enum sl_status (*real_moe)(struct sl_device *d, const struct sl_op_moe *a);
static atomic_int fail_in_calls; /* calls of moe until one fails; 0 = never */
static enum sl_status fail_with;
static struct sl_engine *test_engine_of_device;

static enum sl_status moe_or_failure(struct sl_device *d, const struct sl_op_moe *a) {
    if (atomic_load(&fail_in_calls) > 0 && atomic_fetch_sub(&fail_in_calls, 1) == 1)
        return fail_with;
    return real_moe(d, a);
}

static void a_failing_op_fails_its_step_only(void **state) {
    (void)state;
    struct sl_engine_config c = config(2, 200);
    struct sl_engine *e = new_engine(&tiny, &c);
    /* Before the first submit the scheduler's thread does not look at it. */
    failing_ops = *e->stages->dev->ops;
    real_moe = failing_ops.moe;
    failing_ops.moe = moe_or_failure;
    e->stages->dev->ops = &failing_ops;
    struct run *alone = make(5, 20, 10);
    submit(e, alone);
    wait_run(alone);
    assert_int_equal(alone->n, 10);

    fail_with = SL_ERR_DEVICE_OOM;
    atomic_store(&fail_in_calls, 3 * 4 + 2); /* the fifth step's second layer */
    struct run *hit = make(5, 20, 10);
    submit(e, hit);
    wait_run(hit);
    assert_int_equal(hit->result.reason, SL_FINISH_ERROR);
    assert_int_equal(hit->result.status, SL_ERR_DEVICE_OOM);
    assert_non_null(strstr(hit->result.err.text, "layer 1, experts"));
    assert_int_equal(hit->n, 4);
    pages_all_free();

    struct run *after = make(5, 20, 10); /* the engine lives and is none the worse */
    submit(e, after);
    wait_run(after);
    assert_same_tokens(alone, after);

    fail_with = SL_ERR_DEVICE_LOST;
    atomic_store(&fail_in_calls, 2);
    struct run *lost = make(5, 20, 10), *refused = make(5, 20, 10);
    submit(e, lost);
    wait_run(lost);
    assert_int_equal(lost->result.status, SL_ERR_DEVICE_LOST);
    assert_int_equal(sl_engine_submit(e, &refused->req, &test_err), SL_ERR_DEVICE_LOST);
    assert_non_null(strstr(test_err.text, "layer 1, experts"));
    free_run(alone);
    free_run(hit);
    free_run(after);
    free_run(lost);
    free_run(refused);
    sl_engine_destroy(&e);
}

static atomic_bool job_first; /* the call that fails waits until somebody scores */
static atomic_bool failing;   /* it has begun */

static enum sl_status moe_or_late_failure(struct sl_device *d, const struct sl_op_moe *a) {
    struct sl_engine *e = test_engine_of_device;
    atomic_store(&failing, atomic_load(&job_first));
    for (bool seen = !atomic_load(&job_first); !seen; usleep(1000)) {
        pthread_mutex_lock(&e->lock);
        seen = e->job != NULL;
        pthread_mutex_unlock(&e->lock);
    }
    return moe_or_failure(d, a);
}

static bool take_logits(void *ctx, uint32_t pos, const float *logits) {
    (void)ctx, (void)pos, (void)logits;
    return true;
}

static void *score_one(void *arg) {
    uint32_t id = 1;
    struct sl_err err;
    return (void *)(uintptr_t)sl_engine_score(arg, &id, 1, take_logits, NULL, &err);
}

/* With the device go the parked sessions, which no step touches, and whoever waits to score. */
static void a_lost_device_is_told_to_all(void **state) {
    (void)state;
    struct sl_engine_config c = config(2, 200);
    struct sl_engine *e = new_engine(&tiny, &c);
    failing_ops = *e->stages->dev->ops;
    real_moe = failing_ops.moe;
    failing_ops.moe = moe_or_late_failure;
    e->stages->dev->ops = &failing_ops;
    test_engine_of_device = e;
    atomic_store(&job_first, false);
    atomic_store(&fail_in_calls, 0);
    alarm(600); /* what is not told waits for ever */
    struct run *parked = make(5, 20, 10), *lost = make(6, 20, 10);
    parked->hold_at = 3;
    submit(e, parked);
    wait_parked(parked);
    fail_with = SL_ERR_DEVICE_LOST;
    atomic_store(&fail_in_calls, 1);
    atomic_store(&job_first, true);
    submit(e, lost);
    while (!atomic_load(&failing))
        usleep(1000);
    pthread_t scorer;
    assert_int_equal(pthread_create(&scorer, NULL, score_one, e), 0);
    void *scored;
    pthread_join(scorer, &scored);
    assert_int_equal((uintptr_t)scored, SL_ERR_DEVICE_LOST);
    wait_run(lost);
    wait_run(parked);
    assert_int_equal(parked->result.status, SL_ERR_DEVICE_LOST);
    alarm(0);
    free_run(parked);
    free_run(lost);
    sl_engine_destroy(&e);
}

/* ---- cancellation ---- */

static void cancel_self(struct run *r) {
    if (r->n == 5)
        sl_engine_cancel(r->engine, &r->req);
}

static void cancel_self_in_prefill(struct run *r) {
    sl_engine_cancel(r->engine, &r->req);
}

static void cancel_in_decode(void **state) {
    (void)state;
    struct sl_engine_config c = config(2, 600);
    struct sl_engine *e = new_engine(&tiny, &c);
    struct run *r = make(7, 10, 500);
    r->on_token = cancel_self;
    submit(e, r);
    wait_run(r);
    assert_int_equal(r->result.reason, SL_FINISH_CANCELED);
    assert_int_equal(r->result.status, SL_ERR_CANCELED);
    assert_int_equal(r->n, 5);
    assert_int_equal(r->n_finish, 1);
    pages_all_free();
    sl_engine_cancel(e, &r->req); /* late: nothing happens */
    free_run(r);
    sl_engine_destroy(&e);
}

static void cancel_in_prefill(void **state) {
    (void)state;
    struct sl_engine_config c = config(2, 600);
    c.batch_tokens = 16;
    struct sl_engine *e = new_engine(&tiny, &c);
    struct run *r = make(8, 500, 5);
    r->on_progress = cancel_self_in_prefill;
    submit(e, r);
    wait_run(r);
    assert_int_equal(r->result.reason, SL_FINISH_CANCELED);
    assert_int_equal(r->n, 0);
    assert_int_equal(r->n_progress, 1); /* not one more slice */
    pages_all_free();
    free_run(r);
    sl_engine_destroy(&e);
}

static void cancel_in_queue_and_from_outside(void **state) {
    (void)state;
    struct sl_engine_config c = config(1, 600);
    struct sl_engine *e = new_engine(&tiny, &c);
    struct run *first = make(9, 10, 0), *queued = make(10, 10, 5);
    first->hold_at = 3; /* parked: with one slot only, `queued` would push it out, so... */
    submit(e, first);
    wait_parked(first);
    struct run *busy = make(11, 400, 190); /* ... this one takes the slot and keeps it busy */
    submit(e, busy);
    submit(e, queued);
    sl_engine_cancel(e, &queued->req);
    wait_run(queued);
    assert_int_equal(queued->result.reason, SL_FINISH_CANCELED);
    assert_int_equal(queued->n, 0);
    sl_engine_cancel(e, &first->req);
    pthread_mutex_lock(&first->lock);
    while (!first->n_finish)
        pthread_cond_wait(&first->changed, &first->lock);
    pthread_mutex_unlock(&first->lock);
    assert_int_equal(first->result.reason, SL_FINISH_CANCELED);
    assert_int_equal(first->n, 2);
    wait_run(busy);
    assert_int_equal(busy->n, 190);
    free_run(first);
    free_run(queued);
    free_run(busy);
    pages_all_free();
    sl_engine_destroy(&e);
}

/* The receiver says stop by what push returns. */
static enum sl_status push_stop(struct sl_token_sink *s, const struct sl_token *t) {
    struct run *r = (struct run *)s;
    (void)t;
    return ++r->n == 3 ? SL_ERR_CANCELED : r->n > 3 ? SL_ERR_IO : SL_OK;
}

static void push_can_end_it(void **state) {
    (void)state;
    struct sl_engine_config c = config(1, 600);
    struct sl_engine *e = new_engine(&tiny, &c);
    struct run *r = make(12, 10, 50);
    r->sink.push = push_stop;
    submit(e, r);
    wait_run(r);
    assert_int_equal(r->n, 3);
    assert_int_equal(r->result.reason, SL_FINISH_CANCELED);
    assert_int_equal(r->result.n_predicted, 2);
    free_run(r);
    r = make(12, 10, 50);
    r->sink.push = push_stop;
    r->n = 10; /* the next push fails */
    submit(e, r);
    wait_run(r);
    assert_int_equal(r->result.reason, SL_FINISH_ERROR);
    assert_int_equal(r->result.status, SL_ERR_IO);
    free_run(r);
    pages_all_free();
    sl_engine_destroy(&e);
}

/* ---- parking ---- */

static void parking_does_not_show(void **state) {
    (void)state;
    struct sl_engine_config c = config(3, 300);
    struct sl_engine *e = new_engine(&tiny, &c);
    struct run *plain = make(13, 20, 40), *parks = make(13, 20, 40), *mate = make(14, 30, 60);
    plain->req.logprobs = parks->req.logprobs = true;
    plain->req.sampling.temperature = parks->req.sampling.temperature = 1;
    parks->park_every = 3;
    submit(e, plain);
    wait_run(plain);
    submit(e, mate);
    submit(e, parks);
    wait_run(parks);
    wait_run(mate);
    assert_same_tokens(plain, parks);
    assert_int_equal(parks->n_pushes, 40 + 13);
    assert_int_equal(plain->n_pushes, 40);
    free_run(plain);
    free_run(parks);
    free_run(mate);
    sl_engine_destroy(&e);
}

/* What the engine shows of itself when it says that a request has ended: who has its answer must
 * not find it in there. */
struct shown {
    int64_t running, parked, waiting;
    struct sl_slot_info slot;
};

static void note_shown(struct run *r) {
    struct shown *w = r->user;
    w->running = sl_metric(sessions_running);
    w->parked = sl_metric(sessions_parked);
    w->waiting = sl_metric(sessions_waiting);
    assert_int_equal(sl_engine_slots(r->engine, &w->slot, 1), 1);
}

static void nothing_is_shown_of_what_has_ended(void **state) {
    (void)state;
    struct sl_engine_config c = config(1, 200);
    struct sl_engine *e = new_engine(&tiny, &c);
    struct shown running, parked;
    struct run *runs = make(13, 20, 4), *parks = make(14, 20, 4);
    runs->user = &running;
    parks->user = &parked;
    runs->on_finish = parks->on_finish = note_shown;
    parks->park_every = 4; /* it ends with the token that was refused, and in no step */
    submit(e, runs);
    wait_run(runs);
    submit(e, parks);
    wait_run(parks);
    assert_int_equal(parks->n_pushes, 5);
    for (int i = 0; i < 2; i++) {
        const struct shown *w = i ? &parked : &running;
        assert_int_equal(w->running, 0);
        assert_int_equal(w->parked, 0);
        assert_int_equal(w->waiting, 0);
        assert_int_equal(w->slot.state, SL_SLOT_FREE);
    }
    free_run(runs);
    free_run(parks);
    pages_all_free();
    sl_engine_destroy(&e);
}

/* A parked session costs no steps. */
static void parked_means_idle(void **state) {
    (void)state;
    struct sl_engine_config c = config(2, 300);
    struct sl_engine *e = new_engine(&tiny, &c);
    struct run *r = make(15, 20, 40);
    r->hold_at = 10;
    submit(e, r);
    wait_parked(r);
    int64_t steps = sl_metric(steps_total);
    usleep(50000);
    assert_int_equal(sl_metric(steps_total), steps);
    pthread_mutex_lock(&r->lock);
    r->hold_at = 0;
    r->parked = false;
    pthread_mutex_unlock(&r->lock);
    sl_engine_resume(e, &r->req);
    wait_run(r);
    assert_int_equal(r->n, 40);
    free_run(r);
    sl_engine_destroy(&e);
}

/* More slow readers than slots: others still get their turn, and the slow ones' answers are the
 * same although their KV was given away and computed again. */
static void parked_sessions_give_way(void **state) {
    (void)state;
    struct sl_engine_config c = config(2, 400);
    struct sl_engine *e = new_engine(&tiny, &c);
    struct run *plain[4], *slow[4];
    for (uint32_t i = 0; i < 4; i++) {
        plain[i] = make(20 + i, 30 + 70 * i, 60);
        slow[i] = make(20 + i, 30 + 70 * i, 60);
        plain[i]->req.logprobs = slow[i]->req.logprobs = true;
        plain[i]->req.sampling.temperature = slow[i]->req.sampling.temperature = 0.8f;
        plain[i]->req.sampling.seed = slow[i]->req.sampling.seed = i;
        submit(e, plain[i]);
        wait_run(plain[i]);
    }
    for (uint32_t i = 0; i < 4; i++) {
        slow[i]->hold_at = 20 + 5 * i;
        submit(e, slow[i]);
    }
    for (uint32_t i = 0; i < 4; i++)
        wait_parked(slow[i]); /* all four got to run on two slots */
    struct run *quick = make(30, 50, 30);
    submit(e, quick);
    wait_run(quick);
    assert_int_equal(quick->n, 30);
    free_run(quick);
    for (uint32_t i = 0; i < 4; i++) {
        pthread_mutex_lock(&slow[i]->lock);
        slow[i]->hold_at = 0;
        slow[i]->parked = false;
        pthread_mutex_unlock(&slow[i]->lock);
        sl_engine_resume(e, &slow[i]->req);
    }
    for (uint32_t i = 0; i < 4; i++) {
        wait_run(slow[i]);
        assert_same_tokens(plain[i], slow[i]);
        free_run(plain[i]);
        free_run(slow[i]);
    }
    pages_all_free();
    sl_engine_destroy(&e);
}

/* ---- queue, shutdown ---- */

static void queue_full_takes_nothing(void **state) {
    (void)state;
    struct sl_engine_config c = config(1, 600);
    c.queue_max = 3;
    struct sl_engine *e = new_engine(&tiny, &c);
    struct run *runs[12];
    uint32_t accepted = 0, refused = 0;
    for (uint32_t i = 0; i < 12; i++) {
        runs[i] = make(40 + i, 200, 20);
        runs[i]->engine = e;
        enum sl_status status = sl_engine_submit(e, &runs[i]->req, &test_err);
        if (status == SL_OK)
            accepted++;
        else {
            assert_int_equal(status, SL_AGAIN);
            refused++;
            free_run(runs[i]);
            runs[i] = NULL;
        }
    }
    assert_true(accepted >= 3 && refused >= 1);
    for (uint32_t i = 0; i < 12; i++) {
        if (!runs[i])
            continue;
        wait_run(runs[i]);
        assert_int_equal(runs[i]->n, 20);
        free_run(runs[i]);
    }
    struct run *later = make(60, 5, 2); /* there is room again */
    submit(e, later);
    wait_run(later);
    free_run(later);
    sl_engine_destroy(&e);
}

static void destroy_finishes_all(void **state) {
    (void)state;
    struct sl_engine_config c = config(2, 600);
    struct sl_engine *e = new_engine(&tiny, &c);
    struct run *runs[6];
    for (uint32_t i = 0; i < 6; i++) {
        runs[i] = make(70 + i, 100, 0);
        runs[i]->hold_at = i == 0 ? 2 : 0;
        submit(e, runs[i]);
    }
    wait_parked(runs[0]);
    sl_engine_destroy(&e);
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(runs[i]->n_finish, 1);
        assert_int_equal(runs[i]->result.reason, SL_FINISH_CANCELED);
        free_run(runs[i]);
    }
}

static void score_refuses_while_requests_run(void **state) {
    (void)state;
    struct sl_engine_config c = config(1, 600);
    struct sl_engine *e = new_engine(&tiny, &c);
    struct run *r = make(80, 100, 0);
    r->hold_at = 2;
    submit(e, r);
    wait_parked(r);
    uint32_t ids[3] = {1, 2, 3};
    assert_int_equal(sl_engine_score(e, ids, 3, NULL, NULL, &test_err), SL_AGAIN);
    sl_engine_destroy(&e);
    free_run(r);
}

static void forced_tokens_are_followed(void **state) {
    (void)state;
    struct sl_engine_config c = config(1, 600);
    struct sl_engine *e = new_engine(&tiny, &c);
    uint32_t want[7] = {3, 1, 4, 1, 5, 9, 2};
    struct run *r = make(81, 10, 7);
    r->req.forced = want;
    submit(e, r);
    wait_run(r);
    assert_int_equal(r->n, 7);
    for (uint32_t i = 0; i < 7; i++)
        assert_int_equal(r->tokens[i].id, want[i]);
    free_run(r);

    /* The tokens that a request has chosen, forced: their log-probabilities, though others are
     * chosen meanwhile, by settings that change logits. */
    struct run *chosen = make(82, 10, 7), *forced = make(82, 10, 7);
    chosen->req.logprobs = forced->req.logprobs = true;
    chosen->req.ignore_eog = forced->req.ignore_eog = true;
    submit(e, chosen);
    wait_run(chosen);
    for (uint32_t i = 0; i < 7; i++)
        want[i] = chosen->tokens[i].id;
    forced->req.forced = want;
    forced->req.sampling.temperature = 2;
    forced->req.sampling.repeat_penalty = 1.5f;
    submit(e, forced);
    wait_run(forced);
    assert_int_equal(forced->n, 7);
    for (uint32_t i = 0; i < 7; i++) {
        assert_int_equal(forced->tokens[i].id, want[i]);
        assert_true(forced->tokens[i].logprob == chosen->tokens[i].logprob);
    }
    free_run(chosen);
    free_run(forced);
    sl_engine_destroy(&e);
}

/* Many threads submit, cancel and resume at random; every request ends exactly once. */
struct storm {
    struct sl_engine *e;
    uint32_t seed;
    atomic_uint *finished;
};

static void *storm_main(void *arg) {
    struct storm *s = arg;
    struct sl_rng rng = {s->seed};
    for (uint32_t i = 0; i < 12; i++) {
        struct run *r = make((uint32_t)sl_rng_u64(&rng), 1 + sl_rng_below(&rng, 90),
                             1 + sl_rng_below(&rng, 20));
        r->engine = s->e;
        r->park_every = sl_rng_below(&rng, 2) ? 4 : 0;
        struct sl_err err;
        enum sl_status status = sl_engine_submit(s->e, &r->req, &err);
        if (status == SL_OK) {
            if (sl_rng_below(&rng, 3) == 0) {
                usleep(sl_rng_below(&rng, 3000));
                sl_engine_cancel(s->e, &r->req);
            }
            sl_engine_resume(s->e, &r->req); /* unasked: harmless */
            wait_run(r);
            if (r->n_finish == 1)
                atomic_fetch_add(s->finished, 1);
        } else if (status == SL_AGAIN) {
            atomic_fetch_add(s->finished, 1);
        }
        free_run(r);
    }
    return NULL;
}

static void storm(void **state) {
    (void)state;
    struct sl_engine_config c = config(3, 128);
    c.queue_max = 4;
    c.n_threads = 2;
    struct sl_engine *e = new_engine(&tiny, &c);
    atomic_uint finished = 0;
    pthread_t t[6];
    struct storm s[6];
    for (uint32_t i = 0; i < 6; i++) {
        s[i] = (struct storm){e, 1000 + i, &finished};
        assert_int_equal(pthread_create(&t[i], NULL, storm_main, &s[i]), 0);
    }
    for (uint32_t i = 0; i < 6; i++)
        pthread_join(t[i], NULL);
    assert_int_equal(atomic_load(&finished), 6 * 12);
    pages_all_free();
    sl_engine_destroy(&e);
}

int main(void) {
    sl_log_set_level(SL_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(max_tokens_ends_it),
        cmocka_unit_test(context_bounds_the_answer),
        cmocka_unit_test(end_of_generation_stops),
        cmocka_unit_test(bad_requests_are_named),
        cmocka_unit_test(a_failing_request_harms_nobody),
        cmocka_unit_test(a_failing_op_fails_its_step_only),
        cmocka_unit_test(a_lost_device_is_told_to_all),
        cmocka_unit_test(cancel_in_decode),
        cmocka_unit_test(cancel_in_prefill),
        cmocka_unit_test(cancel_in_queue_and_from_outside),
        cmocka_unit_test(push_can_end_it),
        cmocka_unit_test(parking_does_not_show),
        cmocka_unit_test(nothing_is_shown_of_what_has_ended),
        cmocka_unit_test(parked_means_idle),
        cmocka_unit_test(parked_sessions_give_way),
        cmocka_unit_test(queue_full_takes_nothing),
        cmocka_unit_test(destroy_finishes_all),
        cmocka_unit_test(score_refuses_while_requests_run),
        cmocka_unit_test(forced_tokens_are_followed),
        cmocka_unit_test(storm),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
