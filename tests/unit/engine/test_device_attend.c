/* The second of two stages is at the other end of a wire, as on another machine: whoever waits for
 * what comes from there receives it himself, and misses neither that nor anything else. */
#include "tests/support/card.h"
#include "tests/support/slow_build.h"
#include "tests/unit/engine/fixture.h"

#include "common/cond.h"
#include "engine/stage/stage_local.h"
#include "engine/stage/stage_remote.h"

#define LAYERS  4u
#define ROOM    16u
#define LONG_NS ((uint64_t)60 * 1000000000u)

/* Messages for one end wait here until its thread takes them, or who attends it. */
struct end {
    struct sl_stage_carrier carrier; /* first; brings what this end sends to the other */
    struct end *other;
    bool asks; /* its messages are answers */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct {
        uint8_t *bytes;
        size_t n;
    } queue[ROOM];
    uint32_t n_queued, n_came, n_cancels;
    uint32_t n_taken[2]; /* by its thread, by who attended */
    bool held;           /* nobody takes anything */
    bool open, taking, attended, nudged, quit;
    void (*instead)(struct end *e); /* what happens once when somebody would attend, who cannot */
};

static struct end near, far; /* the asking end's, the working end's */
static struct sl_stage_remote *remote;
static struct sl_stage *worked; /* the stage at the working end, */
static struct sl_message_limits limits;
static struct sl_stage_server *server; /* and who serves it, from the first message on */
static struct test_model model;
static struct card_source source;

static enum sl_status carry(struct sl_stage_carrier *c, enum sl_message_kind kind,
                            const uint8_t *bytes, size_t n) {
    struct end *to = ((struct end *)(void *)c)->other;
    uint8_t *copy = malloc(n);
    assert_non_null(copy);
    memcpy(copy, bytes, n);
    pthread_mutex_lock(&to->lock);
    assert_true(to->n_queued < ROOM);
    to->queue[to->n_queued].bytes = copy;
    to->queue[to->n_queued++].n = n;
    to->n_came++;
    to->n_cancels += kind == SL_MESSAGE_CANCEL;
    pthread_cond_broadcast(&to->changed);
    pthread_mutex_unlock(&to->lock);
    return SL_OK;
}

static bool can_take(const struct end *e) {
    return e->n_queued && !e->held && !e->taking;
}

/* Under the lock, which is open meanwhile. */
static void take(struct end *e, bool attends) {
    struct sl_err err;
    uint8_t *bytes = e->queue[0].bytes;
    size_t n = e->queue[0].n;
    memmove(e->queue, e->queue + 1, --e->n_queued * sizeof *e->queue);
    e->taking = true;
    e->n_taken[attends]++;
    pthread_mutex_unlock(&e->lock);
    if (!e->asks && !server)
        assert_int_equal(sl_stage_server_create(&limits, worked, &e->carrier, false, &server, &err),
                         SL_OK);
    enum sl_status status = e->asks ? sl_stage_remote_received(remote, bytes, n, &err)
                                    : sl_stage_server_received(server, bytes, n, &err);
    assert_int_equal(status, SL_OK);
    free(bytes);
    pthread_mutex_lock(&e->lock);
    e->taking = false;
    pthread_cond_broadcast(&e->changed);
}

/* As a link does it: what its thread takes while somebody attends nudges him. */
static void *take_all(void *arg) {
    struct end *e = arg;
    pthread_mutex_lock(&e->lock);
    while (!e->quit) {
        if (can_take(e) && !e->attended) {
            take(e, false);
            e->nudged |= e->attended;
        } else {
            pthread_cond_wait(&e->changed, &e->lock);
        }
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

static bool attend(struct sl_stage_carrier *c, bool (*ready)(void *what), void *what,
                   uint64_t until_ns) {
    struct end *e = (struct end *)(void *)c;
    pthread_mutex_lock(&e->lock);
    void (*instead)(struct end * e) = e->instead;
    e->instead = NULL;
    bool can = !e->attended && !e->quit && !instead;
    e->attended |= can;
    pthread_mutex_unlock(&e->lock);
    if (instead)
        instead(e);
    if (!can)
        return false;
    bool over = ready && ready(what);
    pthread_mutex_lock(&e->lock);
    pthread_cond_broadcast(&e->changed);
    while (!over && !e->nudged && sl_now_ns() < until_ns) {
        over = can_take(e);
        if (over)
            take(e, true);
        else if (until_ns == UINT64_MAX)
            pthread_cond_wait(&e->changed, &e->lock);
        else
            sl_cond_wait_until(&e->changed, &e->lock, until_ns);
    }
    e->nudged = e->attended = false;
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
    return true;
}

static void nudge(struct sl_stage_carrier *c) {
    struct end *e = (struct end *)(void *)c;
    pthread_mutex_lock(&e->lock);
    e->nudged = true;
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
}

static void end_init(struct end *e, struct end *other, bool asks,
                     void (*closed)(struct sl_stage_carrier *c)) {
    assert_false(e->open); /* by a test that failed */
    *e = (struct end){.carrier = {.send = carry, .attend = attend, .closed = closed},
                      .other = other,
                      .asks = asks,
                      .open = true};
    if (asks)
        e->carrier.nudge = nudge;
    pthread_mutex_init(&e->lock, NULL);
    sl_cond_init(&e->changed);
}

static void end_release(struct end *e) {
    pthread_mutex_lock(&e->lock);
    e->quit = true;
    e->nudged = true;
    pthread_cond_broadcast(&e->changed);
    while (e->attended)
        pthread_cond_wait(&e->changed, &e->lock);
    pthread_mutex_unlock(&e->lock);
    pthread_join(e->thread, NULL);
    for (uint32_t i = 0; i < e->n_queued; i++)
        free(e->queue[i].bytes);
    e->open = false;
}

static void was_closed(struct sl_stage_carrier *c) {
    (void)c;
    end_release(&far);
    sl_stage_server_destroy(&server);
    end_release(&near);
}

static enum sl_status wrap(const struct sl_stage_source *s, uint32_t index, struct sl_stage *behind,
                           struct sl_stage **out_stage, struct sl_err *err) {
    const struct sl_stage_local *local = (const struct sl_stage_local *)(const void *)behind;
    struct sl_stage_call hello = {.ask = {.what = SL_STAGE_HELLO}};
    (void)s;
    *out_stage = behind;
    if (!index)
        return SL_OK;
    assert_int_equal(sl_stage_ask(behind, &hello, err), SL_OK);
    worked = behind;
    limits = sl_message_limits(local->plan, &hello.answer.hello);
    end_init(&near, &far, true, was_closed);
    end_init(&far, &near, false, NULL);
    assert_int_equal(
        sl_stage_remote_create(&limits, &hello.answer.hello, &near.carrier, &remote, err), SL_OK);
    assert_int_equal(pthread_create(&near.thread, NULL, take_all, &near), 0);
    assert_int_equal(pthread_create(&far.thread, NULL, take_all, &far), 0);
    *out_stage = sl_stage_remote_stage(remote);
    return SL_OK;
}

static const struct sl_stage_source over_a_wire = {wrap};

static struct sl_engine *open_engine(bool wired) {
    card_source_init(&source, &(struct card_config){.n_threads = 1, .n_cards = 2, .plain = 3});
    const struct sl_engine_config c = {.n_threads = 1,
                                       .ctx_tokens = 400,
                                       .parallel = 3,
                                       .batch_tokens = 48,
                                       .queue_max = 16,
                                       .ram_bytes = (uint64_t)1 << 34,
                                       .experts = SL_EXPERTS_RESIDENT,
                                       .device_source = &source.source,
                                       .stage_source = wired ? &over_a_wire : NULL,
                                       .split = "2,2"};
    return new_engine(&model, &c);
}

static struct run *ask(struct sl_engine *e, uint32_t seed, uint32_t n_prompt, uint32_t n_answer) {
    struct run *r = new_run(seed, n_prompt, model.model->hp.n_vocab, n_answer);
    r->req.logprobs = r->req.ignore_eog = true;
    submit(e, r);
    return r;
}

static void hold(struct end *e, bool held) {
    pthread_mutex_lock(&e->lock);
    e->held = held;
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
}

/* Until there came so many messages and cancels; fails where that would be for ever. */
static void wait_until_came(struct end *e, uint32_t n, uint32_t n_cancels) {
    uint64_t until_ns = sl_now_ns() + LONG_NS;
    pthread_mutex_lock(&e->lock);
    while (e->n_came < n || e->n_cancels < n_cancels) {
        assert_true(sl_now_ns() < until_ns);
        sl_cond_wait_until(&e->changed, &e->lock, until_ns);
    }
    pthread_mutex_unlock(&e->lock);
}

/* Until somebody waits there, with so many messages that he may not take. */
static void wait_until_attended(struct end *e, uint32_t n_queued) {
    uint64_t until_ns = sl_now_ns() + LONG_NS;
    pthread_mutex_lock(&e->lock);
    while (!e->attended || e->taking || e->n_queued < n_queued) {
        assert_true(sl_now_ns() < until_ns);
        sl_cond_wait_until(&e->changed, &e->lock, until_ns);
    }
    pthread_mutex_unlock(&e->lock);
}

/* A token of one sequence, whose next comes when its answer does, which is there and held; the
 * scheduler waits for that. */
static struct run *begin_held(struct sl_engine *e) {
    struct run *r = ask(e, 1, 5, 300);
    pthread_mutex_lock(&r->lock);
    while (r->n < 3)
        pthread_cond_wait(&r->changed, &r->lock);
    pthread_mutex_unlock(&r->lock);
    hold(&near, true);
    wait_until_attended(&near, 1);
    return r;
}

/* The same tokens as without the wire, one sequence and several. */
static void the_same_tokens(void **state) {
    (void)state;
    uint32_t n_tokens = BY_BUILD(120, 60, 30);
    struct sl_engine *alone = open_engine(false), *wired = open_engine(true);
    for (uint32_t n = 1; n <= 3; n++) {
        struct run *a[3], *b[3];
        for (uint32_t i = 0; i < n; i++) {
            a[i] = ask(alone, i + 1, 5 + 60 * i, n_tokens);
            b[i] = ask(wired, i + 1, 5 + 60 * i, n_tokens);
        }
        for (uint32_t i = 0; i < n; i++) {
            wait_run(a[i]);
            wait_run(b[i]);
            assert_int_equal(b[i]->result.status, SL_OK);
            assert_same_tokens(a[i], b[i]);
            free_run(a[i]);
            free_run(b[i]);
        }
    }
    sl_engine_destroy(&alone);
    sl_engine_destroy(&wired);
}

static void release_to_attendant(struct end *e) {
    wait_until_attended(e, 1);
    uint64_t until_ns = sl_now_ns() + LONG_NS;
    pthread_mutex_lock(&e->lock);
    uint32_t n_before = e->n_taken[1];
    e->held = false;
    pthread_cond_broadcast(&e->changed);
    while (e->n_taken[1] == n_before) {
        assert_true(sl_now_ns() < until_ns);
        sl_cond_wait_until(&e->changed, &e->lock, until_ns);
    }
    pthread_mutex_unlock(&e->lock);
}

/* An answer is taken by the scheduler, which waits for it, and a step by the thread that works. */
static void who_waits_takes_it(void **state) {
    (void)state;
    struct sl_engine *e = open_engine(true);
    struct run *r = begin_held(e);
    wait_until_attended(&far, 0);
    hold(&far, true);
    release_to_attendant(&near);
    release_to_attendant(&far);
    wait_run(r);
    assert_int_equal(r->n, 300);
    free_run(r);
    sl_engine_destroy(&e);
}

/* A request that comes while the scheduler waits for an answer is not kept waiting by that. */
static void a_new_request(void **state) {
    (void)state;
    struct sl_engine *e = open_engine(true);
    struct run *first = begin_held(e);
    uint32_t n_came = far.n_came;
    struct run *second = ask(e, 2, 20, 4);
    wait_until_came(&far, n_came + 1, 0); /* its prompt */
    wait_until_attended(&near, 1);
    hold(&near, false);
    wait_run(first);
    wait_run(second);
    assert_int_equal(first->n, 300);
    assert_int_equal(second->n, 4);
    free_run(first);
    free_run(second);
    sl_engine_destroy(&e);
}

/* Nor is who leaves: the other end hears of it at once. */
static void who_leaves(void **state) {
    (void)state;
    struct sl_engine *e = open_engine(true);
    struct run *r = begin_held(e);
    sl_engine_cancel(e, &r->req);
    wait_until_came(&far, 0, 1);
    hold(&near, false);
    wait_run(r);
    assert_int_equal(r->result.reason, SL_FINISH_CANCELED);
    free_run(r);
    sl_engine_destroy(&e);
}

/* Nor is whose time is over. */
static void whose_time_is_over(void **state) {
    (void)state;
    struct sl_engine *e = open_engine(true);
    bool heard = false;
    /* On a busy machine it may be over before the other end has heard of the request. */
    for (uint64_t time_ns = 100000000; !heard && time_ns < LONG_NS; time_ns *= 2) {
        hold(&near, true);
        struct run *r = new_run(1, 5, model.model->hp.n_vocab, 300);
        r->req.deadline_ns = sl_now_ns() + time_ns;
        submit(e, r);
        pthread_mutex_lock(&far.lock);
        while (!(heard = far.n_cancels) && sl_now_ns() < r->req.deadline_ns + time_ns)
            sl_cond_wait_until(&far.changed, &far.lock, r->req.deadline_ns + time_ns);
        pthread_mutex_unlock(&far.lock);
        hold(&near, false);
        wait_run(r);
        assert_int_equal(r->result.reason, SL_FINISH_ERROR);
        free_run(r);
    }
    assert_true(heard);
    sl_engine_destroy(&e);
}

static struct run *leaving;

static void he_leaves(struct end *e) {
    (void)e;
    sl_engine_cancel(leaving->engine, &leaving->req);
}

static void it_comes(struct end *e) {
    pthread_mutex_lock(&e->lock);
    while (!e->n_queued)
        pthread_cond_wait(&e->changed, &e->lock);
    take(e, false);
    e->held = false; /* the rows of a step may come by themselves */
    pthread_mutex_unlock(&e->lock);
}

/* Whoever attends an end comes back, and finds that he cannot. */
static void have_instead(struct end *e, void (*instead)(struct end *e)) {
    pthread_mutex_lock(&e->lock);
    e->instead = instead;
    pthread_mutex_unlock(&e->lock);
    nudge(&e->carrier);
}

/* What happens just before somebody waits elsewhere, as he cannot attend: a request is left, and
 * one comes to the other end. */
static void what_happens_meanwhile(void **state) {
    (void)state;
    struct sl_engine *e = open_engine(true);
    leaving = begin_held(e);
    have_instead(&near, he_leaves);
    wait_until_came(&far, 0, 1);
    hold(&near, false);
    wait_run(leaving);
    assert_int_equal(leaving->result.reason, SL_FINISH_CANCELED);
    free_run(leaving);
    wait_until_attended(&far, 0);
    hold(&far, true);
    have_instead(&far, it_comes);
    uint32_t n_came = near.n_came;
    struct run *r = ask(e, 2, 20, 1);
    wait_until_came(&near, n_came + 1, 0);
    wait_run(r);
    assert_int_equal(r->n, 1);
    free_run(r);
    sl_engine_destroy(&e);
}

static void *destroy(void *arg) {
    sl_engine_destroy(arg);
    return NULL;
}

/* The engine ends while its scheduler waits for an answer. */
static void the_end(void **state) {
    (void)state;
    struct sl_engine *e = open_engine(true);
    struct run *r = begin_held(e);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, destroy, &e), 0);
    wait_until_came(&far, 0, 1);
    hold(&near, false);
    pthread_join(thread, NULL);
    assert_int_equal(r->result.reason, SL_FINISH_CANCELED);
    free_run(r);
}

/* The other end is lost while the scheduler waits for its answer. */
static void a_loss(void **state) {
    (void)state;
    struct sl_engine *e = open_engine(true);
    struct run *r = begin_held(e);
    struct sl_err why;
    sl_fail(&why, SL_ERR_PEER_LOST, "it was killed");
    sl_stage_remote_lost(remote, SL_ERR_PEER_LOST, &why);
    wait_run(r);
    assert_int_equal(r->result.status, SL_ERR_PEER_LOST);
    free_run(r);
    sl_engine_destroy(&e);
}

static int setup(void **state) {
    (void)state;
    struct sl_synth_config c = tiny_config("qwen3moe");
    c.n_layer = LAYERS;
    open_model(&model, &c);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    close_model(&model);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_tokens),
        cmocka_unit_test(who_waits_takes_it),
        cmocka_unit_test(a_new_request),
        cmocka_unit_test(who_leaves),
        cmocka_unit_test(whose_time_is_over),
        cmocka_unit_test(what_happens_meanwhile),
        cmocka_unit_test(the_end),
        cmocka_unit_test(a_loss),
    };
    sl_log_set_level(SL_LOG_ERROR);
    return cmocka_run_group_tests(tests, setup, teardown);
}
