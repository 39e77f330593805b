/* A worker that its coordinator waits for, not always in vain: it has to prepare what it offers,
 * its loading comes no further, it owes an answer, gives one too late, or is left while somebody
 * attends it. */
#include "cluster/peer.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/version.h"
#include "net/frame.h"
#include "tests/support/folder.h"

#include <semaphore.h>
#include <stdio.h>

#define SECOND_NS 1000000000u
/* Far beyond what anything here takes. */
#define LONG_NS  (60u * (uint64_t)SECOND_NS)
#define CONTENT  77u
#define STUCK_NS (SECOND_NS / 4)
/* Longer than a worker with a copy of the model has time to answer. */
#define LATE_MS 3500u

/* A worker that says who it is and what it has, then n_words of progress, and from then on nothing
 * but heartbeats. */
static struct {
    struct sl_listener_owner listens; /* first */
    struct sl_link_owner owner;
    struct sl_link *link;
    sem_t started; /* the link, by the listener's thread */
    uint32_t n_words;
    _Atomic uint32_t n_loads;
    bool fetches; /* has no copy, and needs LATE_MS for its offer */
    pthread_t preparing;
} worker;

static void say_of(uint32_t epoch, uint16_t type, const uint8_t *bytes, size_t n) {
    const struct sl_bytes_part part = {bytes, n};
    assert_int_equal(sl_link_send(worker.link, type, epoch, &part, 1), SL_OK);
}

static void say(uint16_t type, const uint8_t *bytes, size_t n) {
    say_of(0, type, bytes, n);
}

static void say_offer(void) {
    struct sl_setup_offer offer = {.content = CONTENT, .ram_bytes = 1u << 30, .n_devices = 1};
    uint8_t bytes[SL_SETUP_MAX_BYTES];
    snprintf(offer.devices[0].id, sizeof offer.devices[0].id, "cpu");
    say(SL_FRAME_OFFER, bytes, sl_setup_put_offer(&offer, bytes));
}

static void *prepare(void *unused) {
    (void)unused;
    usleep(LATE_MS * 1000);
    say_offer();
    return NULL;
}

static enum sl_status was_received(struct sl_link_owner *o, struct sl_link *l,
                                   const struct sl_frame *f, struct sl_err *err) {
    uint8_t bytes[SL_SETUP_MAX_BYTES];
    (void)o, (void)l, (void)err;
    if (f->type == SL_FRAME_LOAD)
        atomic_fetch_add(&worker.n_loads, 1);
    if (f->type == SL_FRAME_MODEL)
        assert_int_equal(pthread_create(&worker.preparing, NULL, prepare, NULL), 0);
    for (uint32_t i = 1; f->type == SL_FRAME_LOAD && i <= worker.n_words; i++) {
        const struct sl_setup_progress m = {(uint64_t)i << 20, 10u << 20};
        say(SL_FRAME_PROGRESS, bytes, sl_setup_put_progress(&m, bytes));
    }
    return SL_OK;
}

static void was_lost(struct sl_link_owner *o, struct sl_link *l, enum sl_status status,
                     const struct sl_err *why) {
    (void)o, (void)l, (void)status, (void)why;
}

static void was_accepted(struct sl_listener_owner *o, struct sl_link *l) {
    struct sl_setup_hello hello = {
        .role = 2, .messages = SL_MESSAGE_VERSION, .wants_model = worker.fetches};
    uint8_t bytes[SL_SETUP_MAX_BYTES];
    struct sl_err err;
    (void)o;
    snprintf(hello.program, sizeof hello.program, "%s", SL_VERSION);
    worker.link = l;
    worker.owner = (struct sl_link_owner){was_received, was_lost};
    sl_link_own(l, &worker.owner);
    say(SL_FRAME_HELLO, bytes, sl_setup_put_hello(&hello, bytes));
    if (!worker.fetches)
        say_offer();
    assert_int_equal(sl_link_start(l, &err), SL_OK);
    sem_post(&worker.started);
}

struct meeting {
    struct sl_setup_model files;
    struct sl_listener *listener;
    struct sl_peer p;
    char folder[32], at[64];
    atomic_bool cancel;
};

static void open_meeting(struct meeting *m) {
    const struct sl_link_config links = {.heartbeat_ns = SECOND_NS / 20,
                                         .silence_ns = LONG_NS,
                                         .max_payload_bytes = SL_SETUP_MAX_BYTES,
                                         .queue_bytes = 4 * SL_SETUP_MAX_BYTES};
    struct sl_err err;
    *m = (struct meeting){.files.content = CONTENT, .folder = "/tmp/sluice-peer-XXXXXX"};
    assert_non_null(mkdtemp(m->folder));
    snprintf(m->at, sizeof m->at, "unix:%s/s", m->folder);
    worker.listens.accepted = was_accepted;
    sem_init(&worker.started, 0, 0);
    assert_int_equal(sl_listener_open(m->at, &links, &worker.listens, &m->listener, &err), SL_OK);
    sl_peer_init(&m->p, m->at, NULL, &m->files, NULL, &m->cancel);
}

/* Its end of the link that its coordinator has left. */
static void close_worker(void) {
    while (sem_wait(&worker.started) != 0)
        ;
    sl_link_close(worker.link, 0);
}

static void close_meeting(struct meeting *m) {
    sl_peer_release(&m->p);
    sl_listener_close(m->listener);
    unlink(m->at + 5);
    rmdir(m->folder);
}

static void test_loading_that_comes_no_further(void **state) {
    struct meeting m;
    struct sl_peer *p = &m.p;
    struct sl_err err;
    (void)state;
    open_meeting(&m);
    for (worker.n_words = 0; worker.n_words < 2; worker.n_words++) {
        assert_int_equal(sl_peer_meet(p, LONG_NS, &err), SL_OK);
        assert_int_equal(p->offer.n_devices, 1);
        assert_int_equal(sl_peer_send_load(p, &err), SL_OK);
        uint64_t before_ns = sl_now_ns();
        assert_int_equal(sl_peer_watch_load(p, STUCK_NS, NULL, &err), SL_ERR_PEER_LOST);
        assert_true(sl_now_ns() - before_ns >= STUCK_NS);
        assert_true(sl_now_ns() - before_ns < LONG_NS / 2);
        assert_non_null(strstr(err.text, m.at));
        assert_non_null(strstr(err.text, "has loaded nothing for"));
        assert_non_null(strstr(err.text, worker.n_words ? "1.0 of 10.0 MiB" : "0.0 of 0.0 MiB"));
        assert_int_equal(p->lost, SL_OK); /* its link is as alive as before */
        sl_peer_leave(p);
        close_worker();
    }
    assert_int_equal(worker.n_loads, 2);
    close_meeting(&m);
}

/* Also when it is met again, which is tried without a wait: a lost one could not come back. */
static void test_one_without_a_copy_has_time(void **state) {
    struct meeting m;
    struct sl_err err = {""};
    (void)state;
    worker.fetches = true;
    open_meeting(&m);
    if (sl_peer_meet(&m.p, 0, &err) != SL_OK)
        fail_msg("%s", err.text);
    assert_int_equal(m.p.offer.n_devices, 1);
    pthread_join(worker.preparing, NULL);
    worker.fetches = false;
    sl_peer_leave(&m.p);
    close_worker();
    close_meeting(&m);
}

struct asker {
    struct sl_stage_owner owner; /* first */
    uint32_t n_answered;
};

static void was_answered(struct sl_stage_owner *o, struct sl_stage_call *c) {
    (void)c;
    ((struct asker *)(void *)o)->n_answered++;
}

static struct sl_stage_remote *open_stage(struct sl_peer *p) {
    const struct sl_message_limits limits = {.n_micro_batches = 1,
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
    const struct sl_stage_hello hello = {.device = "cpu", .heat_bytes = limits.heat_bytes};
    struct sl_stage_remote *r = NULL;
    struct sl_err err;
    assert_int_equal(sl_stage_remote_create(&limits, &hello, sl_peer_port(p, 0), &r, &err), SL_OK);
    pthread_mutex_lock(&p->lock);
    p->ports[0].remote = r;
    p->there = true;
    sl_peer_carry(p);
    pthread_mutex_unlock(&p->lock);
    return r;
}

/* It owes nothing, then an answer, for a while and for too long: heartbeats do not count. */
static void test_an_answer_that_does_not_come(void **state) {
    struct meeting m;
    struct sl_peer *p = &m.p;
    struct asker a = {.owner.answered = was_answered};
    uint8_t heat[28];
    struct sl_stage_call c = {.ask = {.what = SL_STAGE_HEAT},
                              .with = {.bytes = heat, .n_bytes = sizeof heat},
                              .owner = &a.owner};
    struct sl_err err;
    (void)state;
    open_meeting(&m);
    assert_int_equal(sl_peer_meet(p, LONG_NS, &err), SL_OK);
    struct sl_stage *s = sl_stage_remote_stage(open_stage(p));
    sl_peer_watch_calls(p, 0);
    assert_int_equal(p->lost, SL_OK);
    s->ops->send(s, &c);
    sl_peer_watch_calls(p, LONG_NS);
    assert_int_equal(p->lost, SL_OK);
    assert_int_equal(a.n_answered, 0);
    usleep(STUCK_NS / 1000);
    assert_int_equal(p->lost, SL_OK); /* its link is as alive as before */
    sl_peer_watch_calls(p, STUCK_NS);
    assert_int_equal(p->lost, SL_ERR_PEER_LOST);
    assert_int_equal(p->n_lost, 1);
    assert_false(p->there);
    assert_int_equal(a.n_answered, 1);
    assert_int_equal(c.answer.status, SL_ERR_PEER_LOST);
    assert_non_null(strstr(c.answer.err.text, m.at));
    assert_non_null(strstr(c.answer.err.text, "has not answered for"));
    s->ops->close(s);
    assert_null(p->ports[0].remote);
    sl_peer_leave(p);
    close_worker();
    close_meeting(&m);
}

/* Frames keep their order: when heartbeats and their answers have come, so has what was said. */
static void wait_for_more_frames(struct sl_peer *p) {
    struct sl_link_stats before = sl_link_stats(p->link);
    uint64_t until_ns = sl_now_ns() + LONG_NS;
    while (sl_link_stats(p->link).received_frames < before.received_frames + 8 &&
           sl_now_ns() < until_ns)
        usleep(1000);
}

static enum sl_status how_lost(struct sl_peer *p) {
    pthread_mutex_lock(&p->lock);
    enum sl_status lost = p->lost;
    pthread_mutex_unlock(&p->lock);
    return lost;
}

/* An answer that is none is dropped if it is of an epoch before, and ends the link if it is not. */
static void test_an_answer_of_an_epoch_before(void **state) {
    const uint8_t nonsense[SL_PEER_STAGE_BYTES + 8] = {0};
    struct meeting m;
    struct sl_peer *p = &m.p;
    struct sl_err err;
    (void)state;
    open_meeting(&m);
    assert_int_equal(sl_peer_meet(p, LONG_NS, &err), SL_OK);
    sl_peer_leave(p);
    close_worker();
    uint32_t before = p->epoch - 1;
    assert_int_equal(sl_peer_meet(p, LONG_NS, &err), SL_OK);
    struct sl_stage *s = sl_stage_remote_stage(open_stage(p));
    while (sem_wait(&worker.started) != 0)
        ;
    sem_post(&worker.started); /* for who closes it */
    say_of(before, SL_FRAME_ANSWER, nonsense, sizeof nonsense);
    wait_for_more_frames(p);
    assert_int_equal(how_lost(p), SL_OK);
    say_of(p->epoch, SL_FRAME_ANSWER, nonsense, sizeof nonsense);
    uint64_t until_ns = sl_now_ns() + LONG_NS;
    while (how_lost(p) == SL_OK && sl_now_ns() < until_ns)
        usleep(1000);
    assert_int_equal(how_lost(p), SL_ERR_PEER_LOST);
    s->ops->close(s);
    sl_peer_leave(p);
    close_worker();
    close_meeting(&m);
}

struct attendant {
    struct sl_stage_carrier *carrier;
    pthread_t thread;
    atomic_uint n_times;
};

static void *attend(void *arg) {
    struct attendant *a = arg;
    while (a->carrier->attend(a->carrier, NULL, NULL, sl_now_ns() + LONG_NS))
        atomic_fetch_add(&a->n_times, 1);
    return NULL;
}

static void wait_until_attended(struct sl_peer *p) {
    for (bool is = false; !is; usleep(100)) {
        pthread_mutex_lock(&p->link_lock);
        is = p->attended;
        pthread_mutex_unlock(&p->link_lock);
    }
}

/* Whoever attends one returns when he is nudged, and for good before its link is closed. Nobody can
 * attend one that is left, or that carries nothing yet. */
static void test_left_while_attended(void **state) {
    struct meeting m;
    struct sl_err err;
    (void)state;
    open_meeting(&m);
    for (uint32_t i = 0; i < 20; i++) {
        struct attendant a = {.carrier = sl_peer_port(&m.p, 0)};
        uint64_t before_ns = sl_now_ns();
        assert_int_equal(sl_peer_meet(&m.p, LONG_NS, &err), SL_OK);
        assert_false(a.carrier->attend(a.carrier, NULL, NULL, before_ns + LONG_NS));
        sl_peer_carry(&m.p);
        assert_int_equal(pthread_create(&a.thread, NULL, attend, &a), 0);
        if (i % 2)
            wait_until_attended(&m.p);
        while (!a.n_times && i % 4 == 3) {
            a.carrier->nudge(a.carrier);
            usleep(100);
        }
        sl_peer_leave(&m.p);
        pthread_join(a.thread, NULL);
        assert_false(a.carrier->attend(a.carrier, NULL, NULL, before_ns + LONG_NS));
        a.carrier->nudge(a.carrier); /* nobody */
        assert_true(sl_now_ns() - before_ns < LONG_NS / 2);
        close_worker();
    }
    close_meeting(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loading_that_comes_no_further),
        cmocka_unit_test(test_one_without_a_copy_has_time),
        cmocka_unit_test(test_an_answer_that_does_not_come),
        cmocka_unit_test(test_an_answer_of_an_epoch_before),
        cmocka_unit_test(test_left_while_attended),
    };
    sl_log_set_level(SL_LOG_ERROR);
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
