/* The end of a remote stage that asks, when the other end goes away. */
#include "tests/unit/engine/fixture.h"

#include "engine/stage/stage_remote.h"

static const struct sl_message_limits limits = {.n_micro_batches = 1,
                                                .max_rows = 4,
                                                .max_out = 2,
                                                .n_seq = 1,
                                                .seq_pages = 2,
                                                .n_pages = 3,
                                                .n_tails = 1,
                                                .n_embd = 8,
                                                .n_vocab = 16,
                                                .page_bytes = 48,
                                                .tail_bytes = 16,
                                                .heat_bytes = 28};

struct end {
    struct sl_stage_carrier carrier; /* first */
    enum sl_status st;
    uint32_t n_sent;
    struct sl_stage_owner owner;
    uint32_t n_answered;
};

static enum sl_status carry(struct sl_stage_carrier *c, enum sl_message_kind kind,
                            const uint8_t *bytes, size_t n) {
    struct end *e = (struct end *)(void *)c;
    assert_true(kind == SL_MESSAGE_ASK && bytes && n);
    e->n_sent++;
    return e->st;
}

static void was_answered(struct sl_stage_owner *o, struct sl_stage_call *c) {
    struct end *e = (struct end *)(void *)((char *)o - offsetof(struct end, owner));
    (void)c;
    e->n_answered++;
}

static struct sl_stage_remote *open_remote(struct end *e, enum sl_status st) {
    const struct sl_stage_hello hello = {.device = "cpu", .heat_bytes = limits.heat_bytes};
    struct sl_stage_remote *r = NULL;
    struct sl_err err;
    *e = (struct end){.carrier.send = carry, .st = st, .owner.answered = was_answered};
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
    return e->st;
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
    sl_fail(&why, SL_ERR_PEER_LOST, "the worker at b:7070 is lost: it was killed");
    sl_stage_remote_lost(r, SL_ERR_PEER_LOST, &why);
    assert_int_equal(e.n_answered, 1);
    s->ops->close(s);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reason_of_a_loss),
        cmocka_unit_test(test_a_loss_between_calls),
        cmocka_unit_test(test_a_loss_while_a_request_is_sent),
        cmocka_unit_test(test_a_cancellation_while_a_request_is_sent),
        cmocka_unit_test(test_a_message_that_is_not_sent),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
