/* The end of a remote stage that asks, when the other end goes away. */
#include "tests/unit/engine/fixture.h"

#include "common/clock.h"
#include "engine/stage/stage_remote.h"

static const struct sl_message_limits limits = {.n_micro_batches = 1,
                                                .max_rows = 4,
                                                .max_out = 2,
                                                .n_seq = 1,
                                                .seq_pages = 2,
                                                .n_pages = 3,
                                                .n_tails = 1,
                                                .n_row = 8,
                                                .n_embd = 4,
                                                .n_vocab = 16,
                                                .page_bytes = 48,
                                                .tail_bytes = 16,
                                                .heat_bytes = 28};

struct end {
    struct sl_stage_carrier carrier; /* first */
    enum sl_status status;
    uint32_t n_sent;
    struct sl_stage_owner owner;
    uint32_t n_answered;
};

static enum sl_status carry(struct sl_stage_carrier *c, enum sl_message_kind kind,
                            const uint8_t *bytes, size_t n) {
    struct end *e = (struct end *)(void *)c;
    assert_true(kind == SL_MESSAGE_ASK && bytes && n);
    e->n_sent++;
    return e->status;
}

static void was_answered(struct sl_stage_owner *o, struct sl_stage_call *c) {
    struct end *e = (struct end *)(void *)((char *)o - offsetof(struct end, owner));
    (void)c;
    e->n_answered++;
}

static struct sl_stage_remote *open_remote(struct end *e, enum sl_status status) {
    const struct sl_stage_hello hello = {.device = "cpu", .heat_bytes = limits.heat_bytes};
    struct sl_stage_remote *r = NULL;
    struct sl_err err;
    *e = (struct end){.carrier.send = carry, .status = status, .owner.answered = was_answered};
    assert_int_equal(sl_stage_remote_create(&limits, &hello, &e->carrier, &r, &err), SL_OK);
    return r;
}

/* The carrier notices first that the other end is gone, and says why later: that is the answer. */
static void test_reason_of_a_loss(void **state) {
    struct end e;
    struct sl_stage_remote *r = open_remote(&e, SL_ERR_PEER_LOST);
    struct sl_stage *s = sl_stage_remote_stage(r);
    uint8_t heat[28];
    struct sl_stage_call c = {.ask = {.what = SL_STAGE_HEAT},
                              .with = {.bytes = heat, .n_bytes = sizeof heat},
                              .owner = &e.owner};
    struct sl_err why;
    (void)state;
    s->ops->send(s, &c);
    assert_int_equal(e.n_sent, 1);
    assert_int_equal(e.n_answered, 0);
    sl_fail(&why, SL_ERR_PEER_LOST, "the worker at b:7070 is lost: it was killed");
    sl_stage_remote_lost(r, SL_ERR_PEER_LOST, &why);
    assert_int_equal(e.n_answered, 1);
    assert_int_equal(c.answer.status, SL_ERR_PEER_LOST);
    assert_string_equal(c.answer.err.text, why.text);
    /* What is asked from now on is answered at once, likewise. */
    s->ops->send(s, &c);
    assert_int_equal(e.n_sent, 1);
    assert_int_equal(e.n_answered, 2);
    assert_string_equal(c.answer.err.text, why.text);
    s->ops->close(s);
}

/* The other end goes and another one comes while nothing is asked: whoever asks next hears that
 * what the first one had is gone, and only what is asked after a resume goes to the second. */
static void test_a_loss_between_calls(void **state) {
    struct end e;
    struct sl_stage_remote *r = open_remote(&e, SL_OK);
    struct sl_stage *s = sl_stage_remote_stage(r);
    const struct sl_stage_hello hello = {.device = "cpu", .heat_bytes = limits.heat_bytes};
    uint8_t heat[28];
    struct sl_stage_call c = {.ask = {.what = SL_STAGE_HEAT},
                              .with = {.bytes = heat, .n_bytes = sizeof heat},
                              .owner = &e.owner};
    struct sl_err first, second, err;
    (void)state;
    sl_fail(&first, SL_ERR_PEER_LOST, "the worker at b:7070 is lost: it was killed");
    sl_fail(&second, SL_ERR_PEER_LOST, "the worker at b:7070 is lost: it was stopped");
    sl_stage_remote_lost(r, SL_ERR_PEER_LOST, &first);
    assert_int_equal(sl_stage_remote_regain(r, &limits, &hello, &err), SL_OK);
    s->ops->send(s, &c);
    assert_int_equal(e.n_sent, 0);
    assert_int_equal(e.n_answered, 1);
    assert_int_equal(c.answer.status, SL_ERR_PEER_LOST);
    assert_string_equal(c.answer.err.text, first.text);
    /* One that was regained and is lost again cannot be resumed. */
    sl_stage_remote_lost(r, SL_ERR_PEER_LOST, &second);
    sl_stage_remote_resume(r);
    s->ops->send(s, &c);
    assert_int_equal(e.n_sent, 0);
    assert_string_equal(c.answer.err.text, second.text);
    assert_int_equal(sl_stage_remote_regain(r, &limits, &hello, &err), SL_OK);
    sl_stage_remote_resume(r);
    s->ops->send(s, &c);
    assert_int_equal(e.n_sent, 1);
    assert_int_equal(e.n_answered, 2);
    sl_stage_remote_lost(r, SL_ERR_PEER_LOST, &first);
    assert_int_equal(e.n_answered, 3);
    s->ops->close(s);
}

/* The other end is lost while a request is being sent, and perhaps back before that is done: its
 * sender still reads it, so it is answered when that has done with it, and once. */
static struct sl_stage_remote *lost_in_sending;
static bool back_in_sending;

static enum sl_status carry_and_lose(struct sl_stage_carrier *c, enum sl_message_kind kind,
                                     const uint8_t *bytes, size_t n) {
    struct end *e = (struct end *)(void *)c;
    const struct sl_stage_hello hello = {.device = "cpu", .heat_bytes = limits.heat_bytes};
    struct sl_err why;
    assert_true(kind == SL_MESSAGE_ASK && bytes && n);
    sl_fail(&why, SL_ERR_PEER_LOST, "the worker at b:7070 is lost: it was killed");
    sl_stage_remote_lost(lost_in_sending, SL_ERR_PEER_LOST, &why);
    assert_int_equal(e->n_answered, 0);
    if (back_in_sending) {
        assert_int_equal(sl_stage_remote_regain(lost_in_sending, &limits, &hello, &why), SL_OK);
        sl_stage_remote_resume(lost_in_sending);
    }
    e->n_sent++;
    return e->status;
}

static void test_a_loss_while_a_request_is_sent(void **state) {
    const enum sl_status ways[] = {SL_OK, SL_ERR_PEER_LOST};
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        struct end e;
        struct sl_stage_remote *r = open_remote(&e, ways[i % 2]);
        back_in_sending = i >= 2;
        struct sl_stage *s = sl_stage_remote_stage(r);
        uint8_t heat[28];
        struct sl_stage_call c = {.ask = {.what = SL_STAGE_HEAT},
                                  .with = {.bytes = heat, .n_bytes = sizeof heat},
                                  .owner = &e.owner};
        e.carrier.send = carry_and_lose;
        lost_in_sending = r;
        s->ops->send(s, &c);
        assert_int_equal(e.n_sent, 1);
        assert_int_equal(e.n_answered, 1);
        assert_int_equal(c.answer.status, SL_ERR_PEER_LOST);
        assert_non_null(strstr(c.answer.err.text, "it was killed"));
        assert_int_equal(sl_stage_remote_waits_since_ns(r), 0);
        s->ops->close(s);
    }
}

/* Canceled while it is being sent: the word follows the request, else it would say nothing. */
static struct sl_stage_call *canceled_in_sending;
static uint32_t n_asked_first;

static enum sl_status carry_and_cancel(struct sl_stage_carrier *c, enum sl_message_kind kind,
                                       const uint8_t *bytes, size_t n) {
    struct end *e = (struct end *)(void *)c;
    struct sl_stage *s = sl_stage_remote_stage(lost_in_sending);
    assert_true(bytes && n);
    if (kind == SL_MESSAGE_ASK)
        s->ops->cancel(s, canceled_in_sending);
    n_asked_first += kind == SL_MESSAGE_ASK && !e->n_sent;
    e->n_sent++;
    return SL_OK;
}

static void test_a_cancellation_while_a_request_is_sent(void **state) {
    struct end e;
    struct sl_stage_remote *r = open_remote(&e, SL_OK);
    struct sl_stage *s = sl_stage_remote_stage(r);
    uint8_t heat[28];
    struct sl_stage_call c = {.ask = {.what = SL_STAGE_HEAT},
                              .with = {.bytes = heat, .n_bytes = sizeof heat},
                              .owner = &e.owner};
    struct sl_err why;
    (void)state;
    e.carrier.send = carry_and_cancel;
    lost_in_sending = r;
    canceled_in_sending = &c;
    s->ops->send(s, &c);
    assert_int_equal(e.n_sent, 2);
    assert_int_equal(n_asked_first, 1);
    uint64_t n_calls, waited_ns, later_ns;
    sl_stage_remote_waits(r, &n_calls, &waited_ns);
    assert_int_equal(n_calls, 1);
    do /* it counts while there is no answer */
        sl_stage_remote_waits(r, &n_calls, &later_ns);
    while (later_ns <= waited_ns);
    sl_fail(&why, SL_ERR_PEER_LOST, "the worker at b:7070 is lost: it was killed");
    sl_stage_remote_lost(r, SL_ERR_PEER_LOST, &why);
    assert_int_equal(e.n_answered, 1);
    sl_stage_remote_waits(r, &n_calls, &waited_ns);
    assert_true(waited_ns >= later_ns);
    for (uint64_t until = sl_now_ns() + 2000000u; sl_now_ns() < until;)
        continue;
    sl_stage_remote_waits(r, &n_calls, &later_ns);
    assert_int_equal(n_calls, 1);
    assert_int_equal(later_ns, waited_ns); /* and not afterwards */
    s->ops->close(s);
}

/* A device that is lost elsewhere, or a damaged copy of the model there, is the loss of that end,
 * and nothing that breaks down the engine here. Another failure is its call's alone. */
static void test_an_end_that_breaks_down(void **state) {
    const enum sl_status ends[] = {SL_ERR_DEVICE_LOST, SL_ERR_CORRUPT, SL_ERR_IO};
    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        struct end e;
        struct sl_stage_remote *r = open_remote(&e, SL_OK);
        struct sl_stage *s = sl_stage_remote_stage(r);
        uint8_t heat[28], message[4096];
        struct sl_stage_call c = {.ask = {.what = SL_STAGE_HEAT},
                                  .with = {.bytes = heat, .n_bytes = sizeof heat},
                                  .owner = &e.owner};
        struct sl_stage_call theirs = c;
        struct sl_err why;
        size_t n = 0;
        s->ops->send(s, &c);
        sl_stage_answer_begin(&theirs.answer);
        theirs.answer.status = sl_fail(&theirs.answer.err, ends[i], "cuda:0: it fell off its bus");
        assert_int_equal(
            sl_message_put_answer(&theirs, 1, &limits, message, sizeof message, &n, &why), SL_OK);
        enum sl_status status = sl_stage_remote_received(r, message, n, &why);
        if (ends[i] == SL_ERR_IO) {
            assert_int_equal(status, SL_OK);
            assert_int_equal(c.answer.status, SL_ERR_IO);
        } else {
            assert_int_equal(status, SL_ERR_PEER_LOST);
            assert_string_equal(why.text, "cuda:0: it fell off its bus");
            assert_int_equal(e.n_answered, 0); /* by whoever closes the connection: */
            sl_stage_remote_lost(r, status, &why);
            assert_int_equal(c.answer.status, SL_ERR_PEER_LOST);
        }
        assert_int_equal(e.n_answered, 1);
        s->ops->close(s);
    }
}

static enum sl_status drop(struct sl_stage_carrier *c, enum sl_message_kind kind,
                           const uint8_t *bytes, size_t n) {
    (void)c, (void)kind, (void)bytes, (void)n;
    return SL_OK;
}

/* A step of one row, whose rows come later. */
static struct sl_stage_call step_ahead(const struct sl_message_arrays *a) {
    struct sl_stage_call c = {.ask = {.what = SL_STAGE_STEP}};
    c.ask.step =
        (struct sl_ask_step){.n_rows = 1, .n_decode = 1, .n_out = 1, .sent = SL_SENT_LATER};
    c.with = (struct sl_stage_arrays){.step_arrays = a->step_arrays,
                                      .rows = a->rows,
                                      .max_rows = limits.max_rows,
                                      .max_out = limits.max_out,
                                      .failed = a->failed,
                                      .pages = &a->pages,
                                      .tails = &a->tails};
    struct sl_step step = sl_step_lay(a->step_arrays, limits.max_rows, limits.max_out);
    step.failed = a->failed;
    sl_step_add(&step, 0, 3, 1, 0, 2);
    sl_step_add_out(&step, 0);
    return c;
}

/* A step whose rows have not been sent can fail, and cannot succeed. */
static void test_success_without_rows(void **state) {
    (void)state;
    for (int fails = 0; fails < 2; fails++) {
        struct end e;
        struct sl_stage_remote *r = open_remote(&e, SL_OK);
        struct sl_stage *s = sl_stage_remote_stage(r);
        struct sl_message_arrays a;
        uint8_t message[4096];
        struct sl_err why;
        size_t n = 0;
        e.carrier.send = drop;
        assert_int_equal(sl_message_arrays_init(&a, &limits), SL_OK);
        struct sl_stage_call c = step_ahead(&a), theirs = c;
        c.owner = &e.owner;
        s->ops->send(s, &c);
        assert_int_equal(e.n_answered, 0);
        theirs.ask.step.sent = SL_SENT_ROWS;
        sl_stage_answer_begin(&theirs.answer);
        theirs.answer.step.sent = SL_SENT_ROWS;
        theirs.with.out_rows = a.rows;
        if (fails)
            theirs.answer.status = sl_fail(&theirs.answer.err, SL_AGAIN, "canceled");
        assert_int_equal(
            sl_message_put_answer(&theirs, 1, &limits, message, sizeof message, &n, &why), SL_OK);
        if (!fails) {
            assert_int_equal(sl_stage_remote_received(r, message, n, &why), SL_ERR_PROTOCOL);
            assert_non_null(strstr(why.text, "rows have not been sent"));
            assert_int_equal(e.n_answered, 0);
            s->ops->rows(s, &c, a.rows);
        }
        assert_int_equal(sl_stage_remote_received(r, message, n, &why), SL_OK);
        assert_int_equal(e.n_answered, 1);
        assert_int_equal(c.answer.status, fails ? SL_AGAIN : SL_OK);
        sl_message_arrays_release(&a);
        s->ops->close(s);
    }
}

/* Success brings what comes next reads, logits or rows, unless nothing was to be computed: the
 * scheduler takes them as they are. */
static void test_success_without_results(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 10; i++) {
        bool last = i % 2, brings = i / 2 == 0, dead = i / 2 == 1, lost = i / 2 == 2,
             fails = i / 2 == 3;
        const struct sl_stage_hello hello = {.device = "cpu", .n_logit_rows = last ? 2 : 0};
        struct end e = {.carrier.send = drop, .owner.answered = was_answered};
        struct sl_stage_remote *r = NULL;
        struct sl_message_arrays a;
        uint8_t message[4096];
        struct sl_err why;
        size_t n = 0;
        assert_int_equal(sl_stage_remote_create(&limits, &hello, &e.carrier, &r, &why), SL_OK);
        assert_int_equal(sl_message_arrays_init(&a, &limits), SL_OK);
        struct sl_stage *s = sl_stage_remote_stage(r);
        struct sl_stage_call c = step_ahead(&a);
        c.ask.step.sent = SL_SENT_ROWS;
        c.ask.step.dead = dead;
        c.ask.step.only_largest = true;
        c.owner = &e.owner;
        s->ops->send(s, &c);
        struct sl_stage_call theirs = c;
        uint8_t failed[4] = {lost};
        sl_stage_answer_begin(&theirs.answer);
        theirs.with.failed = failed;
        theirs.answer.step.n_failed = lost;
        if (fails)
            theirs.answer.status = sl_fail(&theirs.answer.err, SL_ERR_IO, "it cannot be read");
        if (brings && last) {
            theirs.answer.step.n_logits = 1;
            theirs.answer.step.has_max = theirs.answer.step.has_at = true;
            theirs.with.out_logits.blocks.max = a.max;
            theirs.with.out_logits.blocks.at = a.at;
        } else if (brings) {
            theirs.answer.step.sent = SL_SENT_ROWS;
            theirs.with.out_rows = a.rows;
        }
        assert_int_equal(
            sl_message_put_answer(&theirs, 1, &limits, message, sizeof message, &n, &why), SL_OK);
        bool lies = i / 2 == 4;
        assert_int_equal(sl_stage_remote_received(r, message, n, &why),
                         lies ? SL_ERR_PROTOCOL : SL_OK);
        assert_int_equal(e.n_answered, !lies);
        if (lies)
            sl_stage_remote_lost(r, SL_ERR_PEER_LOST, &why);
        sl_message_arrays_release(&a);
        s->ops->close(s);
    }
}

/* A message for which there was no room concerns this call alone. */
static void test_a_message_that_is_not_sent(void **state) {
    struct end e;
    struct sl_stage_remote *r = open_remote(&e, SL_AGAIN);
    struct sl_stage *s = sl_stage_remote_stage(r);
    uint8_t heat[28];
    struct sl_stage_call c = {.ask = {.what = SL_STAGE_HEAT},
                              .with = {.bytes = heat, .n_bytes = sizeof heat},
                              .owner = &e.owner};
    (void)state;
    s->ops->send(s, &c);
    assert_int_equal(e.n_answered, 1);
    assert_int_equal(c.answer.status, SL_AGAIN);
    assert_int_equal(sl_stage_remote_waits_since_ns(r), 0);
    s->ops->close(s);
}

/* A worker's end, before a stage that takes no step ahead of its rows: such a step ends the
 * connection, and rows that belong to nothing, as of a step that has been answered, do nothing. */
static void answer_at_once(struct sl_stage *s, struct sl_stage_call *c) {
    (void)s;
    sl_stage_answer_begin(&c->answer);
    c->owner->answered(c->owner, c);
}

static void test_rows_without_a_step(void **state) {
    static const struct sl_stage_ops ops = {.send = answer_at_once};
    struct sl_stage stage = {&ops};
    struct sl_stage_carrier carrier = {.send = drop};
    struct sl_stage_server *server = NULL;
    struct sl_message_arrays a;
    uint8_t message[4096];
    struct sl_err err;
    size_t n = 0;
    (void)state;
    assert_int_equal(sl_stage_server_create(&limits, &stage, &carrier, false, &server, &err),
                     SL_OK);
    assert_int_equal(sl_message_arrays_init(&a, &limits), SL_OK);
    struct sl_stage_call c = step_ahead(&a);
    assert_int_equal(sl_message_put_rows(&c, 1, &limits, a.rows, message, sizeof message, &n, &err),
                     SL_OK);
    assert_int_equal(sl_stage_server_received(server, message, n, &err), SL_OK);
    assert_int_equal(sl_message_put_ask(&c, 1, &limits, message, sizeof message, &n, &err), SL_OK);
    assert_int_equal(sl_stage_server_received(server, message, n, &err), SL_ERR_PROTOCOL);
    assert_non_null(strstr(err.text, "takes none"));
    sl_stage_server_destroy(&server);
    sl_message_arrays_release(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reason_of_a_loss),
        cmocka_unit_test(test_a_loss_between_calls),
        cmocka_unit_test(test_a_loss_while_a_request_is_sent),
        cmocka_unit_test(test_a_cancellation_while_a_request_is_sent),
        cmocka_unit_test(test_an_end_that_breaks_down),
        cmocka_unit_test(test_success_without_rows),
        cmocka_unit_test(test_success_without_results),
        cmocka_unit_test(test_a_message_that_is_not_sent),
        cmocka_unit_test(test_rows_without_a_step),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
