/* A thread that waits attends its link itself: nothing is missed, nothing comes twice or out of
 * order. */
#include "tests/unit/net/link_fixture.h"

#include <errno.h>
#include <gnutls/gnutls.h>
#include <poll.h>
#include <sched.h>

/* Attends in a thread of its own until it is over. */
struct attendant {
    struct sl_link *link;
    pthread_t thread;
    atomic_bool over;
    atomic_uint n_times, n_refused;
    bool once;
};

static void *attend(void *arg) {
    struct attendant *a = arg;
    do
        if (sl_link_attend(a->link, NULL, NULL, sl_now_ns() + LONG_NS))
            atomic_fetch_add(&a->n_times, 1);
        else if (atomic_fetch_add(&a->n_refused, 1))
            sched_yield();
    while (!atomic_load(&a->over) && !(a->once && atomic_load(&a->n_times)));
    return NULL;
}

static void attendant_init(struct attendant *a, struct sl_link *l, bool once) {
    *a = (struct attendant){.link = l, .once = once};
    assert_int_equal(pthread_create(&a->thread, NULL, attend, a), 0);
}

static void wait_until_attended(struct sl_link *l) {
    while (sl_link_attend(l, NULL, NULL, 0))
        sched_yield();
}

static void attendant_release(struct attendant *a) {
    atomic_store(&a->over, true);
    sl_link_nudge(a->link);
    pthread_join(a->thread, NULL);
}

/* Who attends receives, unless the link's thread was at it just then; which does again afterwards.
 */
static void who_attends_receives(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        struct room r;
        bool received = false;
        uint32_t n = 0;
        room_init_quiet(&r, i & 1, i & 2);
        room_join(&r);
        while (!received && n < 200) {
            struct attendant a;
            attendant_init(&a, r.far.link, true);
            wait_until_attended(r.far.link);
            assert_int_equal(send_one(r.near.link, n++, 70001), SL_OK);
            wait_for(&r.far, n);
            pthread_join(a.thread, NULL);
            assert_int_equal(r.far.n_frames, n);
            received = pthread_equal(r.far.by, a.thread);
        }
        assert_true(received);
        assert_int_equal(send_one(r.near.link, n, 70001), SL_OK);
        wait_for(&r.far, n + 1);
        assert_int_equal(r.far.n_frames, n + 1);
        assert_int_equal(times_lost(&r.far) + times_lost(&r.near), 0);
        room_release(&r);
    }
}

/* A caller that has looked, and asks again when it can miss nothing any more. */
static bool comes_before(void *room) {
    struct room *r = room;
    return r->far.n_frames == 0;
}

/* Callers wait for what the other thread may have received just before: none waits for ever. */
struct waiter {
    struct room *r;
    uint32_t want;
};

static bool has_come(void *waiter) {
    struct waiter *w = waiter;
    pthread_mutex_lock(&w->r->far.lock);
    bool has = w->r->far.n_frames >= w->want;
    pthread_mutex_unlock(&w->r->far.lock);
    return has;
}

static void nothing_is_missed(void **state) {
    (void)state;
    struct room r;
    room_init_quiet(&r, true, true);
    room_join(&r);
    uint64_t start = sl_now_ns();
    for (uint32_t i = 0; i < BY_BUILD(3000u, 500u, 300u); i++) {
        struct waiter w = {&r, i + 1};
        assert_int_equal(send_one(r.near.link, i, 40 + i % 700), SL_OK);
        for (uint32_t spin = 0; spin < i % 64 * 100; spin++) /* by then it may be on its way */
            __asm__ volatile("");
        while (!has_come(&w))
            assert_true(sl_link_attend(r.far.link, has_come, &w, start + 10 * LONG_NS));
    }
    assert_true(sl_now_ns() < start + LONG_NS);
    room_release(&r);
}

/* The link's thread is still passing a frame on while somebody begins to attend. */
static bool the_owner_goes_on(void *room) {
    struct room *r = room;
    sem_post(r->far.until);
    return false;
}

static void nor_is_what_is_being_passed_on(void **state) {
    (void)state;
    struct room r;
    sem_t until;
    sem_init(&until, 0, 0);
    room_init_quiet(&r, true, true);
    r.far.until = &until;
    room_join(&r);
    uint64_t start = sl_now_ns();
    assert_int_equal(send_one(r.near.link, 0, 100), SL_OK);
    while (!r.far.is_with_owner)
        sched_yield();
    assert_true(sl_link_attend(r.far.link, the_owner_goes_on, &r, start + LONG_NS));
    assert_true(sl_now_ns() < start + LONG_NS / 2);
    assert_int_equal(r.far.n_frames, 1);
    room_release(&r);
    sem_destroy(&until);
}

/* A peer that speaks TLS by itself, and collects what it sends. */
struct bare {
    int fd;
    size_t n;
    uint8_t bytes[4096];
};

static ssize_t collect(gnutls_transport_ptr_t bare, const void *bytes, size_t n) {
    struct bare *b = bare;
    assert_true(n <= sizeof b->bytes - b->n);
    memcpy(b->bytes + b->n, bytes, n);
    b->n += n;
    return (ssize_t)n;
}

static void send_collected(struct bare *b) {
    assert_int_equal(send(b->fd, b->bytes, b->n, MSG_NOSIGNAL), b->n);
    b->n = 0;
}

static ssize_t receive_bare(gnutls_transport_ptr_t bare, void *to, size_t room) {
    struct bare *b = bare;
    if (b->n)
        send_collected(b);
    return recv(b->fd, to, room, 0);
}

static gnutls_session_t join_bare(struct room *r, struct bare *b,
                                  gnutls_psk_client_credentials_t *out) {
    static unsigned char name[] = "sluice";
    const gnutls_datum_t identity = {name, 6}, key = {r->key->bytes, SL_NET_KEY_BYTES};
    struct sl_net_address to[SL_NET_ADDRESSES];
    struct sl_err err;
    size_t n;
    gnutls_session_t tls;
    assert_int_equal(sl_net_resolve(sl_listener_address(r->listener), false, to, &n, &err), SL_OK);
    b->n = 0;
    b->fd = socket(to->any.sa_family, SOCK_STREAM, 0);
    assert_int_equal(connect(b->fd, &to->any, to->n), 0);
    assert_int_equal(gnutls_init(&tls, GNUTLS_CLIENT), 0);
    assert_int_equal(
        gnutls_priority_set_direct(tls, "NORMAL:-VERS-ALL:+VERS-TLS1.3:-KX-ALL:+ECDHE-PSK", NULL),
        0);
    assert_int_equal(gnutls_psk_allocate_client_credentials(out), 0);
    assert_int_equal(gnutls_psk_set_client_credentials2(*out, &identity, &key, GNUTLS_PSK_KEY_RAW),
                     0);
    assert_int_equal(gnutls_credentials_set(tls, GNUTLS_CRD_PSK, *out), 0);
    gnutls_transport_set_ptr(tls, b);
    gnutls_transport_set_push_function(tls, collect);
    gnutls_transport_set_pull_function(tls, receive_bare);
    assert_int_equal(gnutls_handshake(tls), 0);
    send_collected(b);
    pthread_mutex_lock(&r->lock);
    while (!r->n_accepted)
        pthread_cond_wait(&r->changed, &r->lock);
    pthread_mutex_unlock(&r->lock);
    return tls;
}

/* New keys, which are no bytes to read, come together with a frame: it does not wait for more. */
static void new_keys_hold_nothing_up(void **state) {
    (void)state;
    struct room r;
    struct bare b;
    struct attendant a;
    gnutls_psk_client_credentials_t credentials;
    uint8_t bytes[SL_FRAME_HEAD_BYTES];
    room_init_quiet(&r, true, true);
    gnutls_session_t tls = join_bare(&r, &b, &credentials);
    attendant_init(&a, r.far.link, false);
    wait_until_attended(r.far.link);
    uint64_t start = sl_now_ns();
    for (uint32_t i = 0; i < 6; i++) { /* more in a second are refused */
        const struct sl_frame_head head = {.type = SL_FRAME_CALL, .epoch = 3, .seqno = i + 1};
        sl_frame_put_head(&head, bytes);
        assert_int_equal(gnutls_session_key_update(tls, i & 1 ? GNUTLS_KU_PEER : 0), 0);
        assert_int_equal(gnutls_record_send(tls, bytes, sizeof bytes), sizeof bytes);
        send_collected(&b);
        wait_for(&r.far, i + 1);
        if (r.far.n_frames != i + 1)
            fail_msg("%u frames came of %u: %s", r.far.n_frames, i + 1,
                     times_lost(&r.far) ? r.far.why.text : "the link is alive");
    }
    assert_true(sl_now_ns() < start + LONG_NS);
    assert_int_equal(times_lost(&r.far), 0);
    attendant_release(&a);
    gnutls_deinit(tls);
    gnutls_psk_free_client_credentials(credentials);
    close(b.fd);
    room_release(&r);
}

/* A peer that is killed leaves bytes unread: its machine's kernel says so, in words of the system.
 */
static void a_reset_is_named(void **state) {
    (void)state;
    struct room r;
    struct bare b;
    gnutls_psk_client_credentials_t credentials;
    const struct linger at_once = {.l_onoff = 1};
    room_init_quiet(&r, true, true);
    gnutls_session_t tls = join_bare(&r, &b, &credentials);
    /* Its only heartbeat: who sends later may be told in place of who receives. */
    struct pollfd beat = {b.fd, POLLIN, 0};
    assert_int_equal(poll(&beat, 1, LONG_NS / 1000000), 1);
    assert_int_equal(setsockopt(b.fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
    close(b.fd);
    wait_for(&r.far, 1);
    assert_int_equal(times_lost(&r.far), 1);
    assert_int_equal(r.far.lost, SL_ERR_PEER_LOST);
    if (!strstr(r.far.why.text, strerror(ECONNRESET)))
        fail_msg("%s", r.far.why.text);
    gnutls_deinit(tls);
    gnutls_psk_free_client_credentials(credentials);
    room_release(&r);
}

/* What the socket had no room for goes out while nobody sends more, whoever attends. */
static void the_rest_is_sent(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        struct room r;
        struct attendant a;
        room_init_quiet(&r, i & 1, false);
        room_join(&r);
        if (i & 2)
            attendant_init(&a, r.near.link, false);
        for (uint32_t k = 0; k < 2; k++)
            assert_int_equal(send_one(r.near.link, k, MAX_SENT), SL_OK);
        wait_for(&r.far, 2);
        assert_int_equal(r.far.n_frames, 2);
        if (i & 2)
            attendant_release(&a);
        room_release(&r);
    }
}

/* What happens as soon as somebody attends. */
static bool two_come(void *room) {
    struct room *r = room;
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(send_one(r->near.link, i, 100), SL_OK);
    return false;
}

static bool it_has_come(void *room) {
    (void)room;
    return true;
}

/* Who leaves leaves the rest to the link's thread: what he has read already, and what comes. */
static void the_rest_is_received(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 8; i++) {
        struct room r;
        room_init_quiet(&r, i & 1, i & 2);
        room_join(&r);
        usleep(i & 4 ? 1000 : 0); /* its thread waits by then */
        assert_true(sl_link_attend(r.far.link, two_come, &r, sl_now_ns() + LONG_NS));
        wait_for(&r.far, 2);
        assert_int_equal(r.far.n_frames, 2);
        assert_true(sl_link_attend(r.far.link, it_has_come, NULL, sl_now_ns() + LONG_NS));
        assert_int_equal(send_one(r.near.link, 2, 100), SL_OK);
        wait_for(&r.far, 3);
        assert_int_equal(r.far.n_frames, 3);
        room_release(&r);
    }
}

/* It returns when it is to, having received nothing. */
static void who_attends_may_leave(void **state) {
    (void)state;
    struct room r;
    struct attendant a;
    room_init(&r, true, true);
    room_join(&r);
    uint64_t start = sl_now_ns();
    assert_true(sl_link_attend(r.far.link, NULL, NULL, start + 20000000)); /* some heartbeats */
    assert_true(sl_now_ns() >= start + 20000000);
    attendant_init(&a, r.far.link, true);
    wait_until_attended(r.far.link);
    sl_link_nudge(r.far.link);
    pthread_join(a.thread, NULL);
    sl_link_nudge(r.far.link); /* one that comes late is not lost */
    assert_true(sl_link_attend(r.far.link, NULL, NULL, sl_now_ns() + LONG_NS));
    assert_int_equal(r.far.n_frames, 0);
    /* What the link's thread has received while it begins. */
    assert_true(sl_link_attend(r.far.link, comes_before, &r, sl_now_ns() + LONG_NS));
    room_release(&r);
}

static void after_ns(uint64_t from_ns, uint64_t ns) {
    uint64_t until_ns = from_ns + ns, now = sl_now_ns();
    if (now < until_ns)
        usleep((useconds_t)((until_ns - now) / 1000));
}

/* Sends at a beat, and now and then much later, or not at all. */
static void *send_at_a_beat(void *arg) {
    struct room *r = arg;
    for (uint32_t i = 0; i < 60; i++) {
        after_ns(sl_now_ns(), i % 20 == 19 ? 12000000 : 2000000);
        assert_int_equal(send_one(r->near.link, i, 8192), SL_OK);
    }
    return NULL;
}

/* Waits that resemble one another are polled when they are due: frames come then, before and
 * behind, and who attends leaves in time, or when nudged, wherever he is. */
static void who_attends_polls_when_it_is_due(void **state) {
    (void)state;
    struct room r;
    struct waiter w = {&r, 0};
    pthread_t sender;
    room_init_quiet(&r, true, true);
    room_join(&r);
    assert_int_equal(pthread_create(&sender, NULL, send_at_a_beat, &r), 0);
    for (w.want = 1; w.want <= 60; w.want++)
        while (!has_come(&w))
            assert_true(sl_link_attend(r.far.link, has_come, &w, sl_now_ns() + LONG_NS));
    pthread_join(sender, NULL);
    assert_int_equal(r.far.n_frames, 60);
    /* The last waits were of 2 ms, but for one. */
    for (uint64_t ns = 500000; ns < 5000000; ns += 250000) {
        uint64_t start = sl_now_ns();
        assert_true(sl_link_attend(r.far.link, NULL, NULL, start + ns));
        assert_true(sl_now_ns() >= start + ns);
        struct attendant a;
        attendant_init(&a, r.far.link, true);
        wait_until_attended(r.far.link);
        after_ns(sl_now_ns(), ns);
        attendant_release(&a);
    }
    assert_int_equal(r.far.n_frames, 60);
    room_release(&r);
}

/* Frames of all sizes, both ways, keep their order while threads come and leave at both ends. */
static void frames_keep_their_order(void **state) {
    (void)state;
    static const size_t sizes[] = {0, 1, 8192, 40, 70001, 33, MAX_SENT};
    uint32_t n = BY_BUILD(400, 100, 60);
    struct room r;
    struct attendant a[4];
    room_init_quiet(&r, true, true);
    r.far.echoes = true;
    room_join(&r);
    for (uint32_t i = 0; i < 4; i++)
        attendant_init(&a[i], i % 2 ? r.near.link : r.far.link, false);
    for (uint32_t i = 0; i < n; i++) {
        enum sl_status status;
        while ((status = send_one(r.near.link, i, sizes[i % 7])) == SL_AGAIN)
            usleep(100);
        assert_int_equal(status, SL_OK);
        if (i % 5 == 0)
            sl_link_nudge(i % 2 ? r.near.link : r.far.link);
        if (i % 3 == 0) /* one at a time too */
            wait_for(&r.near, i + 1);
    }
    wait_for(&r.far, n);
    wait_for(&r.near, n);
    assert_int_equal(times_lost(&r.far) + times_lost(&r.near), 0);
    for (uint32_t i = 0; i < 4; i++)
        attendant_release(&a[i]);
    assert_int_equal(r.near.n_frames, n);
    assert_true(atomic_load(&a[0].n_times) + atomic_load(&a[2].n_times) > 0);
    room_release(&r);
}

/* However a link ends: who attends it returns, it is said once, and nobody can attend any more. */
static void who_attends_sees_the_end(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        struct room r;
        struct attendant a;
        uint64_t start = sl_now_ns();
        room_init_quiet(&r, true, true);
        r.far.refuses = true;
        if (i == 2) { /* neither says anything */
            sl_listener_close(r.listener);
            struct sl_err err;
            r.config.silence_ns = 200000000;
            assert_int_equal(
                sl_listener_open("127.0.0.1:0", &r.config, &r.owner, &r.listener, &err), SL_OK);
            r.config.silence_ns = LONG_NS;
        }
        room_join(&r);
        attendant_init(&a, r.far.link, true);
        if (i < 2)
            wait_until_attended(r.far.link);
        if (i == 0)
            sl_link_close(r.near.link, 0);
        if (i == 0)
            r.near.link = NULL;
        if (i == 1)
            assert_int_equal(send_one(r.near.link, 0, 10), SL_OK);
        wait_for(&r.far, UINT32_MAX);
        while (!a.n_refused) { /* he has heard of it */
            assert_true(sl_now_ns() < start + LONG_NS);
            usleep(100);
        }
        attendant_release(&a);
        assert_int_equal(times_lost(&r.far), 1);
        assert_int_equal(r.far.lost, i == 1 ? SL_ERR_PROTOCOL : SL_ERR_PEER_LOST);
        if (i) /* else sending may notice it first */
            assert_non_null(strstr(r.far.why.text, i == 1 ? "no sense" : "nothing has come"));
        assert_false(sl_link_attend(r.far.link, NULL, NULL, sl_now_ns() + LONG_NS));
        room_release(&r);
        assert_int_equal(times_lost(&r.far), 1);
    }
}

struct flood {
    struct room r;
    struct sl_transport *to;
};

/* More heartbeats than he can answer, and a frame behind them; and he is to leave. */
static bool a_flood_comes(void *flood) {
    enum { N = 1000, BYTES = SL_FRAME_HEAD_BYTES + 8 };
    struct flood *f = flood;
    uint8_t bytes[(N + 1) * BYTES] = {0};
    struct sl_err err;
    size_t n = 0;
    for (uint32_t i = 0; i <= N; i++) {
        uint16_t type = i < N ? SL_FRAME_HEARTBEAT : SL_FRAME_CALL;
        sl_frame_put_head(&(struct sl_frame_head){type, 3, i + 1, i < N ? 8 : 0},
                          bytes + i * BYTES);
    }
    assert_int_equal(sl_transport_write(f->to, bytes, sizeof bytes - 8, &n, &err), SL_OK);
    assert_int_equal(n, sizeof bytes - 8);
    sl_link_nudge(f->r.far.link);
    return false;
}

static void who_attends_may_leave_a_flood(void **state) {
    (void)state;
    struct flood f;
    room_init_quiet(&f.r, false, false);
    f.to = connect_proven(&f.r);
    pthread_mutex_lock(&f.r.lock);
    while (!f.r.n_accepted)
        pthread_cond_wait(&f.r.changed, &f.r.lock);
    pthread_mutex_unlock(&f.r.lock);
    usleep(1000); /* its thread waits by then */
    assert_true(sl_link_attend(f.r.far.link, a_flood_comes, &f, sl_now_ns() + LONG_NS));
    wait_for(&f.r.far, 1);
    assert_int_equal(f.r.far.n_frames, 1);
    assert_false(pthread_equal(f.r.far.by, pthread_self()));
    sl_transport_close(&f.to);
    room_release(&f.r);
}

int main(void) {
    sl_log_set_level(SL_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_attends_receives),
        cmocka_unit_test(nothing_is_missed),
        cmocka_unit_test(nor_is_what_is_being_passed_on),
        cmocka_unit_test(new_keys_hold_nothing_up),
        cmocka_unit_test(a_reset_is_named),
        cmocka_unit_test(the_rest_is_received),
        cmocka_unit_test(the_rest_is_sent),
        cmocka_unit_test(who_attends_may_leave),
        cmocka_unit_test(who_attends_polls_when_it_is_due),
        cmocka_unit_test(frames_keep_their_order),
        cmocka_unit_test(who_attends_sees_the_end),
        cmocka_unit_test(who_attends_may_leave_a_flood),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
