/* Two cards that are spoken to as if the second were another process's: steps of few generated rows
 * go there before their rows, and all of their work waits on that card for them. The bits are those
 * of two cards in one process; steps that are given up, and a card that fails, hold nobody up. */
#include "tests/support/card.h"
#include "tests/unit/engine/fixture.h"

#include "engine/engine.h"
#include "engine/stage/stage_local.h"
#include "engine/stage/stage_remote.h"

#define LAYERS 4u
#define N_RUNS 6u

static struct card_source source;
static atomic_uint n_ahead;   /* steps that went before their rows */
static atomic_uint n_none;    /* of them, whose rows never came */
static atomic_uint drop_rows; /* so many of the next ones' rows are said not to come */

/* ---- the order of what two threads do ---- */

/* Steps go ahead where the first card takes longer than the host, as cards do beside so small a
 * model's. Here its stage waits, for as long as that takes, until the step has been sent to the
 * second. */
static bool announced;       /* the next step may have been; the first stage's thread alone */
static unsigned n_announced; /* likewise */
static unsigned n_sent;      /* under the lock */
static bool await_holds;     /* rows come when the second card waits for them */
static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t sent_one = PTHREAD_COND_INITIALIZER;

static void was_sent_ahead(void) {
    pthread_mutex_lock(&order);
    n_sent++;
    pthread_cond_broadcast(&sent_one);
    pthread_mutex_unlock(&order);
}

static void await_sent_ahead(void) {
    pthread_mutex_lock(&order);
    while (n_sent < n_announced)
        pthread_cond_wait(&sent_one, &order);
    pthread_mutex_unlock(&order);
}

/* Rows of as many steps have come as n_ahead says, and one hold was for trying. */
static void await_hold(void) {
    for (bool held = false; !held; usleep(100)) {
        pthread_mutex_lock(&source.lock);
        held = source.stats.n_holds > n_ahead + 1;
        pthread_mutex_unlock(&source.lock);
    }
}

/* Before the second stage, which other steps wait for. */
struct first {
    struct sl_stage base; /* first */
    struct sl_stage *behind;
};

static struct first *first_of(const struct sl_stage *s) {
    return (struct first *)(uintptr_t)s;
}

static void send_first(struct sl_stage *stage, struct sl_stage_call *c) {
    struct sl_stage *behind = first_of(stage)->behind;
    if (announced && c->ask.what == SL_STAGE_STEP && sl_stage_may_go_ahead(&c->ask.step)) {
        n_announced++;
        await_sent_ahead();
    }
    announced = false;
    behind->ops->send(behind, c);
}

static void close_first(struct sl_stage *stage) {
    free(first_of(stage));
}

static bool loses_none(const struct sl_stage *stage) {
    const struct sl_stage *behind = first_of(stage)->behind;
    return behind->ops->loses_none(behind);
}

static struct sl_stage *wrap_first(struct sl_stage *behind) {
    static const struct sl_stage_ops ops = {
        .send = send_first, .close = close_first, .loses_none = loses_none};
    struct first *s = calloc(1, sizeof *s);
    assert_non_null(s);
    *s = (struct first){{&ops}, behind};
    return &s->base;
}

/* ---- both ends of a stage elsewhere, with nothing but bytes between them ---- */

struct elsewhere {
    struct sl_stage base; /* first */
    struct sl_stage_local *behind;
    struct sl_message_limits limits;
    struct sl_stage_remote *asks; /* NULL: not yet, it is being loaded */
    struct sl_stage_server *works;
    struct sl_stage_carrier there, back;
    pthread_mutex_t lock; /* what goes there is received by one thread at a time */
};

static struct elsewhere *elsewhere_of(struct sl_stage *s) {
    return (struct elsewhere *)(void *)s;
}

/* Bytes in a block of just their size, so that reading past it is seen. */
static uint8_t *copied(const uint8_t *bytes, size_t n) {
    uint8_t *copy = malloc(n);
    assert_non_null(copy);
    memcpy(copy, bytes, n);
    return copy;
}

static enum sl_status carry_there(struct sl_stage_carrier *c, enum sl_message_kind kind,
                                  const uint8_t *bytes, size_t n) {
    struct elsewhere *s =
        (struct elsewhere *)(void *)((char *)c - offsetof(struct elsewhere, there));
    uint8_t *copy = copied(bytes, n);
    struct sl_err err;
    n_none += kind == SL_MESSAGE_ROWS && !copy[SL_MESSAGE_HEAD_BYTES];
    n_ahead += kind == SL_MESSAGE_ROWS;
    pthread_mutex_lock(&s->lock);
    enum sl_status status = sl_stage_server_received(s->works, copy, n, &err);
    pthread_mutex_unlock(&s->lock);
    free(copy);
    if (status != SL_OK)
        fprintf(stderr, "%s\n", err.text);
    assert_int_equal(status, SL_OK);
    return SL_OK;
}

static enum sl_status carry_back(struct sl_stage_carrier *c, enum sl_message_kind kind,
                                 const uint8_t *bytes, size_t n) {
    struct elsewhere *s =
        (struct elsewhere *)(void *)((char *)c - offsetof(struct elsewhere, back));
    uint8_t *copy = copied(bytes, n);
    struct sl_err err;
    assert_int_equal(kind, SL_MESSAGE_ANSWER);
    enum sl_status status = sl_stage_remote_received(s->asks, copy, n, &err);
    free(copy);
    if (status != SL_OK)
        sl_stage_remote_lost(s->asks, SL_ERR_PEER_LOST, &err);
    return SL_OK;
}

static void begin(struct elsewhere *s) {
    struct sl_stage_call hello = {.ask = {.what = SL_STAGE_HELLO}};
    if (s->asks)
        return;
    assert_ok(sl_stage_ask(&s->behind->base, &hello, &test_err));
    s->limits = sl_message_limits(s->behind->plan, &hello.answer.hello);
    assert_ok(
        sl_stage_remote_create(&s->limits, &hello.answer.hello, &s->there, &s->asks, &test_err));
    assert_ok(sl_stage_server_create(&s->limits, &s->behind->base, &s->back, false, &s->works,
                                     &test_err));
}

static void send_call(struct sl_stage *stage, struct sl_stage_call *c) {
    struct elsewhere *s = elsewhere_of(stage);
    if (s->behind->forward)
        begin(s);
    if (s->asks) {
        /* It may be answered, and be another, when this returns. */
        bool later = c->ask.what == SL_STAGE_STEP && c->ask.step.sent == SL_SENT_LATER;
        sl_stage_remote_stage(s->asks)->ops->send(sl_stage_remote_stage(s->asks), c);
        if (later)
            was_sent_ahead();
        return;
    }
    /* Nobody is its neighbour. */
    sl_stage_answer_begin(&c->answer);
    c->owner->answered(c->owner, c);
}

static void cancel_call(struct sl_stage *stage, struct sl_stage_call *c) {
    struct sl_stage *s = sl_stage_remote_stage(elsewhere_of(stage)->asks);
    s->ops->cancel(s, c);
}

static void send_rows(struct sl_stage *stage, struct sl_stage_call *c, const float *rows) {
    struct sl_stage *s = sl_stage_remote_stage(elsewhere_of(stage)->asks);
    unsigned n = atomic_load(&drop_rows);
    while (n && !atomic_compare_exchange_weak(&drop_rows, &n, n - 1))
        continue;
    if (await_holds)
        await_hold();
    s->ops->rows(s, c, n ? NULL : rows);
}

static bool begins_ahead(const struct sl_stage *stage) {
    const struct elsewhere *s = (const struct elsewhere *)(const void *)stage;
    struct sl_stage *asks = s->asks ? sl_stage_remote_stage(s->asks) : NULL;
    announced = asks && asks->ops->begins_ahead(asks);
    return announced;
}

static void close_call(struct sl_stage *stage) {
    struct elsewhere *s = elsewhere_of(stage);
    sl_stage_server_destroy(&s->works);
    if (s->asks)
        sl_stage_remote_stage(s->asks)->ops->close(sl_stage_remote_stage(s->asks));
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static enum sl_status wrap(const struct sl_stage_source *wraps, uint32_t index,
                           struct sl_stage *behind, struct sl_stage **out_stage,
                           struct sl_err *err) {
    static const struct sl_stage_ops ops = {.send = send_call,
                                            .cancel = cancel_call,
                                            .close = close_call,
                                            .begins_ahead = begins_ahead,
                                            .rows = send_rows};
    (void)wraps;
    (void)err;
    if (!index) {
        *out_stage = wrap_first(behind);
        return SL_OK;
    }
    struct elsewhere *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->base.ops = &ops;
    s->behind = (struct sl_stage_local *)(void *)behind;
    ((struct sl_memory_plan *)(uintptr_t)s->behind->plan)->remote = true; /* as a worker plans it */
    s->there.send = carry_there;
    s->back.send = carry_back;
    pthread_mutex_init(&s->lock, NULL);
    *out_stage = &s->base;
    return SL_OK;
}

static const struct sl_stage_source elsewhere_source = {wrap};

/* ---- engines ---- */

static struct sl_engine *start(const struct test_model *m, bool elsewhere,
                               struct card_config cards) {
    cards.n_threads = 1;
    cards.n_cards = 2;
    card_source_init(&source, &cards);
    struct sl_engine_config c = {.n_threads = 1,
                                 .ctx_tokens = 400,
                                 .parallel = 4,
                                 .batch_tokens = 48,
                                 .queue_max = 16,
                                 .ram_bytes = (uint64_t)1 << 34,
                                 .vram_bytes = (uint64_t)1 << 34,
                                 .io = SL_EXPERTS_IO_PREAD,
                                 .experts = SL_EXPERTS_RESIDENT,
                                 .device_source = &source.source,
                                 .stage_source = elsewhere ? &elsewhere_source : NULL,
                                 .split = "2,2"};
    n_ahead = n_none = drop_rows = n_announced = n_sent = 0;
    announced = await_holds = false;
    return new_engine(m, &c);
}

static struct run *ask(const struct test_model *m, struct sl_engine *e, uint32_t seed) {
    struct run *r = new_run(seed, 20 + 17 * seed, m->model->hp.n_vocab, 24);
    r->req.ignore_eog = true;
    r->req.logprobs = seed % 2; /* all logits, or maxima alone */
    submit(e, r);
    return r;
}

static void ask_all(const struct test_model *m, struct sl_engine *e, uint32_t n_at_once,
                    struct run *out[N_RUNS]) {
    for (uint32_t i = 0; i < N_RUNS; i += n_at_once) {
        for (uint32_t j = i; j < i + n_at_once; j++)
            out[j] = ask(m, e, j);
        for (uint32_t j = i; j < i + n_at_once; j++) {
            wait_run(out[j]);
            assert_int_equal(out[j]->result.status, SL_OK);
        }
    }
}

static void close_engine(struct sl_engine **e) {
    sl_engine_destroy(e);
    assert_int_equal(source.n_open, 0);
    assert_int_equal(source.stats.n_signals, 0);
    assert_int_equal(source.stats.used_bytes, 0);
}

/* ---- tests ---- */

/* One session, and several that share steps: also of a model that keeps recurrent states. */
static void same_bits(void **state) {
    static const char *const archs[] = {"qwen3moe", "qwen35moe"};
    static const uint32_t at_once[] = {1, 3};
    (void)state;
    for (uint32_t a = 0; a < 2; a++)
        for (uint32_t k = 0; k < 2; k++) {
            struct sl_synth_config c = tiny_config(archs[a]);
            struct run *plain[N_RUNS], *ahead[N_RUNS];
            struct test_model m;
            c.n_layer = LAYERS;
            open_model(&m, &c);
            struct sl_engine *e = start(&m, false, (struct card_config){0});
            ask_all(&m, e, at_once[k], plain);
            close_engine(&e);
            e = start(&m, true, (struct card_config){0});
            await_holds = true;
            ask_all(&m, e, at_once[k], ahead);
            assert_true(n_ahead > 20); /* most steps; in some a prompt shares */
            assert_int_equal(n_ahead, n_announced);
            assert_int_equal(source.stats.n_holds, n_ahead + 1);
            assert_int_equal(n_none, 0);
            close_engine(&e);
            for (uint32_t i = 0; i < N_RUNS; i++) {
                assert_same_tokens(plain[i], ahead[i]);
                free_run(plain[i]);
                free_run(ahead[i]);
            }
            close_model(&m);
        }
}

/* A card without graphs takes no step before its rows, and neither does one that streams. */
static void who_takes_none(void **state) {
    struct sl_synth_config c = tiny_config("qwen3moe");
    struct run *r[N_RUNS];
    struct test_model m;
    (void)state;
    c.n_layer = LAYERS;
    open_model(&m, &c);
    struct sl_engine *e = start(&m, true, (struct card_config){.no_graphs = true});
    ask_all(&m, e, 3, r);
    assert_int_equal(n_ahead, 0);
    assert_int_equal(source.stats.n_holds, 0);
    close_engine(&e);
    for (uint32_t i = 0; i < N_RUNS; i++)
        free_run(r[i]);
    close_model(&m);
}

static void cancel_self(struct run *r) {
    if (r->n == 5)
        sl_engine_cancel(r->engine, &r->req);
}

/* Requests that leave while their step is under way, which is given up with its last one: the
 * others', and those that come after it into the same places, have their tokens. */
static void given_up(void **state) {
    static const char *const archs[] = {"qwen3moe", "qwen35moe"};
    (void)state;
    for (uint32_t a = 0; a < 2; a++) {
        struct sl_synth_config c = tiny_config(archs[a]);
        struct run *plain[N_RUNS], *ahead[N_RUNS];
        struct test_model m;
        c.n_layer = LAYERS;
        open_model(&m, &c);
        struct sl_engine *e = start(&m, true, (struct card_config){0});
        ask_all(&m, e, 1, plain);
        for (uint32_t round = 0; round < 8; round++) {
            struct run *gone = new_run(40 + round, 30, m.model->hp.n_vocab, 100);
            gone->req.ignore_eog = true;
            gone->on_token = round % 2 ? cancel_self : NULL;
            submit(e, gone);
            struct run *stays = ask(&m, e, round % N_RUNS);
            if (round % 2 == 0)
                sl_engine_cancel(e, &gone->req);
            wait_run(gone);
            wait_run(stays);
            assert_int_equal(gone->result.reason, SL_FINISH_CANCELED);
            assert_int_equal(stays->result.status, SL_OK);
            assert_same_tokens(plain[round % N_RUNS], stays);
            free_run(gone);
            free_run(stays);
        }
        ask_all(&m, e, 3, ahead);
        close_engine(&e);
        for (uint32_t i = 0; i < N_RUNS; i++) {
            assert_same_tokens(plain[i], ahead[i]);
            free_run(plain[i]);
            free_run(ahead[i]);
        }
        close_model(&m);
    }
}

static void drop_next(struct run *r) {
    if (r->n == 5)
        drop_rows = 1;
}

/* Rows that never come, as of a stage that failed: the step ends, its session too, and the next one
 * in its place finds nothing of it. */
static void rows_that_never_come(void **state) {
    static const char *const archs[] = {"qwen3moe", "qwen35moe"};
    (void)state;
    for (uint32_t a = 0; a < 2; a++) {
        struct sl_synth_config c = tiny_config(archs[a]);
        struct test_model m;
        c.n_layer = LAYERS;
        open_model(&m, &c);
        struct sl_engine *e = start(&m, true, (struct card_config){0});
        struct run *first = ask(&m, e, 2);
        wait_run(first);
        for (uint32_t round = 0; round < 4; round++) {
            struct run *r = new_run(60 + round, 30, m.model->hp.n_vocab, 100);
            r->req.ignore_eog = true;
            r->on_token = drop_next;
            submit(e, r);
            /* Nobody canceled the step that is given up: its request ends, and says so. */
            wait_run(r);
            assert_int_equal(n_none, 1);
            assert_int_equal(r->result.status, SL_ERR_PROTOCOL);
            assert_non_null(strstr(r->result.err.text, "gave up a step"));
            free_run(r);
            n_none = 0;
            struct run *again = ask(&m, e, 2);
            wait_run(again);
            assert_same_tokens(first, again);
            free_run(again);
        }
        free_run(first);
        close_engine(&e);
        close_model(&m);
    }
}

/* A card is lost at some wait or other: n_at_once requests of so many tokens end with that status,
 * and all is freed. */
static void lose_card(uint32_t card, uint32_t n_at_once, uint32_t n_tokens, enum sl_status want) {
    struct sl_synth_config c = tiny_config("qwen3moe");
    struct test_model m;
    c.n_layer = LAYERS;
    open_model(&m, &c);
    for (uint32_t fail = 60; fail < 120; fail += 7) {
        struct sl_engine *e =
            start(&m, true, (struct card_config){.fail_wait = fail, .fail_card = card});
        struct run *r[N_RUNS];
        for (uint32_t i = 0; i < n_at_once; i++) {
            r[i] = new_run(i, 20, m.model->hp.n_vocab, n_tokens);
            r[i]->req.ignore_eog = true;
            submit(e, r[i]);
        }
        for (uint32_t i = 0; i < n_at_once; i++) {
            wait_run(r[i]);
            assert_int_equal(r[i]->result.status, want);
            free_run(r[i]);
        }
        assert_true(n_ahead > 0);
        close_engine(&e);
    }
    close_model(&m);
}

/* The second card, which waits for the first's rows, is let go. */
static void first_card_lost(void **state) {
    (void)state;
    lose_card(1, 3, 200, SL_ERR_DEVICE_LOST);
}

/* While it waits or computes: a lost stage elsewhere, not a hang. */
static void second_card_lost(void **state) {
    (void)state;
    lose_card(2, 1, 300, SL_ERR_PEER_LOST);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits),       cmocka_unit_test(who_takes_none),
        cmocka_unit_test(given_up),        cmocka_unit_test(rows_that_never_come),
        cmocka_unit_test(first_card_lost), cmocka_unit_test(second_card_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
