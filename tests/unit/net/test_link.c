/* Links over sockets of this machine: frames arrive whole and in order, whoever has no key gets
 * nowhere, and who goes, lies or keeps silent is noticed. */
#include "net/link.h"

#include "common/clock.h"
#include "common/cond.h"
#include "common/log.h"
#include "net/address.h"
#include "net/frame.h"
#include "net/key.h"
#include "net/transport.h"
#include "tests/support/slow_build.h"

#include <arpa/inet.h>
#include <errno.h>
#include <gnutls/gnutls.h>
#include <malloc.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define LONG_NS  60000000000u /* as good as never */
#define MAX_SENT (1u << 20)

/* One end, and what came to it. */
struct end {
    struct sl_link_owner owner; /* first */
    struct sl_link *link;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t n_frames, n_lost;
    uint64_t sum; /* of what came */
    bool echoes, refuses;
    sem_t *until; /* what comes is with the owner till then */
    atomic_bool is_with_owner;
    pthread_t by; /* who received the last frame */
    enum sl_status lost;
    struct sl_err why;
};

/* What a frame of so many bytes has in it, by its number. */
static uint8_t byte_of(uint32_t frame, size_t i) {
    return (uint8_t)(frame * 31u + i * 7u + (i >> 8));
}

static enum sl_status was_received(struct sl_link_owner *o, struct sl_link *l,
                                   const struct sl_frame *f, struct sl_err *err) {
    struct end *e = (struct end *)(void *)o;
    if (e->until) {
        atomic_store(&e->is_with_owner, true);
        while (sem_wait(e->until) != 0)
            ;
    }
    pthread_mutex_lock(&e->lock);
    uint32_t frame = e->n_frames++;
    bool same = true;
    for (size_t i = 0; i < f->n && same; i++)
        same = f->bytes[i] == byte_of(frame, i);
    e->sum += f->n;
    e->by = pthread_self();
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
    const struct sl_bytes_part part = {f->bytes, f->n};
    while (e->echoes && sl_link_send(l, f->type, f->epoch, &part, 1) == SL_AGAIN)
        usleep(100);
    if (e->refuses || !same || f->type != SL_FRAME_CALL || f->epoch != 3)
        return sl_fail(err, SL_ERR_PROTOCOL, "frame %u makes no sense", frame);
    return SL_OK;
}

static void was_lost(struct sl_link_owner *o, struct sl_link *l, enum sl_status status,
                     const struct sl_err *why) {
    struct end *e = (struct end *)(void *)o;
    (void)l;
    pthread_mutex_lock(&e->lock);
    e->n_lost++;
    e->lost = status;
    e->why = *why;
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
}

/* The link's thread may still have to say that the link is lost. */
static uint32_t times_lost(struct end *e) {
    pthread_mutex_lock(&e->lock);
    uint32_t n = e->n_lost;
    pthread_mutex_unlock(&e->lock);
    return n;
}

static void end_init(struct end *e) {
    *e = (struct end){.owner = {was_received, was_lost}};
    pthread_mutex_init(&e->lock, NULL);
    sl_cond_init(&e->changed);
}

/* Waits until so many frames are there, or it is lost. */
static void wait_for(struct end *e, uint32_t n_frames) {
    uint64_t until = sl_now_ns() + LONG_NS;
    pthread_mutex_lock(&e->lock);
    while (e->n_frames < n_frames && !e->n_lost && sl_now_ns() < until)
        sl_cond_wait_until(&e->changed, &e->lock, until);
    pthread_mutex_unlock(&e->lock);
}

struct room {
    struct sl_listener_owner owner; /* first */
    struct sl_listener *listener;
    struct sl_link_config config;
    struct sl_net_key *key;
    struct end near, far; /* who connected, who was connected to */
    char folder[64];
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t n_accepted;
};

static void was_accepted(struct sl_listener_owner *o, struct sl_link *l) {
    struct room *r = (struct room *)(void *)o;
    struct sl_err err;
    pthread_mutex_lock(&r->lock);
    bool first = !r->n_accepted++;
    if (first) {
        r->far.link = l;
        sl_link_own(l, &r->far.owner);
        assert_int_equal(sl_link_start(l, &err), SL_OK);
    }
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    if (!first)
        sl_link_close(l, 0);
}

static struct sl_net_key *new_key(void) {
    char text[SL_NET_KEY_TEXT_BYTES];
    struct sl_net_key *key = NULL;
    struct sl_err err;
    assert_int_equal(sl_net_key_generate(text, &err), SL_OK);
    assert_int_equal(sl_net_key_parse(text, "the test", &key, &err), SL_OK);
    return key;
}

/* Listens: with or without a key, on loopback or on a UNIX socket. */
static void room_init_beating(struct room *r, bool keyed, bool tcp, uint64_t heartbeat_ns) {
    char address[128];
    struct sl_err err;
    memset(r, 0, sizeof *r);
    snprintf(r->folder, sizeof r->folder, "/tmp/sl-link-XXXXXX");
    assert_non_null(mkdtemp(r->folder));
    snprintf(address, sizeof address, tcp ? "127.0.0.1:0" : "unix:%s/s", r->folder);
    r->owner.accepted = was_accepted;
    r->key = keyed ? new_key() : NULL;
    r->config = (struct sl_link_config){.key = r->key,
                                        .connect_ns = LONG_NS,
                                        .heartbeat_ns = heartbeat_ns,
                                        .silence_ns = LONG_NS,
                                        .max_payload_bytes = MAX_SENT,
                                        .queue_bytes = 3 * MAX_SENT};
    pthread_mutex_init(&r->lock, NULL);
    sl_cond_init(&r->changed);
    end_init(&r->near);
    end_init(&r->far);
    if (sl_listener_open(address, &r->config, &r->owner, &r->listener, &err) != SL_OK)
        fail_msg("%s", err.text);
}

static void room_init(struct room *r, bool keyed, bool tcp) {
    room_init_beating(r, keyed, tcp, 5000000);
}

/* No heartbeat wakes a link's thread that has missed something. */
static void room_init_quiet(struct room *r, bool keyed, bool tcp) {
    room_init_beating(r, keyed, tcp, 2 * LONG_NS);
}

static void room_join_by(struct room *r, const char *address) {
    struct sl_err err;
    if (sl_link_connect(address, &r->config, &r->near.owner, NULL, &r->near.link, &err) != SL_OK)
        fail_msg("%s", err.text);
    assert_int_equal(sl_link_start(r->near.link, &err), SL_OK);
    pthread_mutex_lock(&r->lock);
    while (!r->n_accepted)
        pthread_cond_wait(&r->changed, &r->lock);
    pthread_mutex_unlock(&r->lock);
}

static void room_join(struct room *r) {
    room_join_by(r, sl_listener_address(r->listener));
}

static void room_release(struct room *r) {
    if (r->near.link)
        sl_link_close(r->near.link, 0);
    sl_listener_close(r->listener);
    if (r->far.link)
        sl_link_close(r->far.link, 0);
    sl_net_key_free(&r->key);
    rmdir(r->folder);
}

static enum sl_status send_one(struct sl_link *l, uint32_t frame, size_t n) {
    uint8_t *bytes = malloc(n + 1);
    assert_non_null(bytes);
    for (size_t i = 0; i < n; i++)
        bytes[i] = byte_of(frame, i);
    const struct sl_bytes_part parts[] = {{bytes, n / 3}, {bytes + n / 3, n - n / 3}};
    enum sl_status status = sl_link_send(l, SL_FRAME_CALL, 3, parts, 2);
    free(bytes);
    return status;
}

/* ---- what is sent arrives ---- */

static void echo(bool keyed, bool tcp) {
    static const size_t sizes[] = {0, 1, 31, 32, 33, 4095, 16384, 16385, 70001, MAX_SENT};
    uint32_t n = BY_BUILD(200, 60, 40), sent = 0;
    uint64_t sum = 0;
    struct room r;
    room_init(&r, keyed, tcp);
    r.far.echoes = true;
    room_join(&r);
    for (uint32_t i = 0; i < n; i++) {
        size_t bytes = sizes[i % (sizeof sizes / sizeof *sizes)];
        enum sl_status status;
        while ((status = send_one(r.near.link, i, bytes)) == SL_AGAIN)
            usleep(100); /* the queue is full: nothing was sent */
        assert_int_equal(status, SL_OK);
        sum += bytes;
        sent++;
    }
    wait_for(&r.far, sent);
    wait_for(&r.near, sent);
    assert_int_equal(r.far.n_frames, sent);
    assert_int_equal(r.near.n_frames, sent);
    assert_int_equal(r.near.sum, sum);
    assert_int_equal(times_lost(&r.far) + times_lost(&r.near), 0);
    struct sl_link_stats s = sl_link_stats(r.near.link);
    assert_true(s.sent_frames >= sent && s.received_frames >= sent);
    assert_true(keyed ? s.received_bytes > sum : s.received_bytes > sum);
    room_release(&r);
}

static void frames_come_back(void **state) {
    (void)state;
    echo(false, false);
    echo(false, true);
    echo(true, false);
    echo(true, true);
}

/* Heartbeats measure the way and the other's clock, which is ours here. */
static void clocks_are_compared(void **state) {
    (void)state;
    struct room r;
    struct sl_link_stats s = {0};
    room_init(&r, true, true);
    room_join(&r);
    for (uint64_t until = sl_now_ns() + LONG_NS; !s.round_trip_ns && sl_now_ns() < until;) {
        usleep(1000);
        s = sl_link_stats(r.near.link);
    }
    assert_true(s.round_trip_ns > 0);
    int64_t off = s.clock_offset_ns < 0 ? -s.clock_offset_ns : s.clock_offset_ns;
    assert_true((uint64_t)off <= s.round_trip_ns + 1000000000u);
    room_release(&r);
}

static int connect_raw(const struct room *r) {
    struct sl_net_address a[SL_NET_ADDRESSES];
    struct sl_err err;
    size_t n;
    assert_int_equal(sl_net_resolve(sl_listener_address(r->listener), false, a, &n, &err), SL_OK);
    int fd = socket(a->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0 && connect(fd, &a->any, a->n) == 0);
    return fd;
}

/* ---- what they take ---- */

static size_t allocated(void) {
    const struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
}

/* All that links and strangers have allocated is in what is stated of them, which is not much more.
 */
static void they_take_what_is_stated(void **state) {
    (void)state;
    if (SLOW_BUILD) /* whose allocators say nothing */
        skip();
    for (uint32_t keyed = 0; keyed < 2; keyed++) {
        enum { PAIRS = 8, STRANGERS = 40, FRAME = 60000 };
        struct room rooms[PAIRS];
        int fds[STRANGERS];
        size_t before = allocated();
        for (uint32_t i = 0; i < PAIRS; i++) {
            room_init(&rooms[i], keyed, true);
            sl_listener_close(rooms[i].listener);
            rooms[i].config.max_payload_bytes = FRAME;
            rooms[i].config.queue_bytes = 2 * FRAME;
            struct sl_err err;
            assert_int_equal(sl_listener_open("127.0.0.1:0", &rooms[i].config, &rooms[i].owner,
                                              &rooms[i].listener, &err),
                             SL_OK);
            room_join(&rooms[i]);
        }
        for (uint32_t i = 0; i < PAIRS; i++) { /* TLS has had its largest records by then */
            assert_int_equal(send_one(rooms[i].near.link, 0, FRAME), SL_OK);
            wait_for(&rooms[i].far, 1);
        }
        size_t own = FRAME + 1 + 2 * FRAME, took = (allocated() - before) / PAIRS;
        size_t stated = 2 * (sl_link_bytes(keyed) + own) + sl_listener_bytes(keyed);
        assert_true(took <= stated);
        /* Strangers that there are not aside. */
        assert_true(took >= (stated - sl_listener_bytes(keyed)) * 3 / 4);
        before = allocated();
        for (uint32_t i = 0; i < STRANGERS; i++) {
            fds[i] = connect_raw(&rooms[0]);
            static const char hello[] = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
            (void)!send(fds[i], hello, sizeof hello - 1, MSG_NOSIGNAL);
        }
        usleep(50000); /* those that come later count as well */
        assert_true(allocated() - before <= sl_listener_bytes(keyed));
        for (uint32_t i = 0; i < STRANGERS; i++)
            close(fds[i]);
        for (uint32_t i = 0; i < PAIRS; i++)
            room_release(&rooms[i]);
    }
}

/* ---- who attends ---- */

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

/* ---- who goes ---- */

static void who_goes_is_noticed_once(void **state) {
    (void)state;
    for (uint32_t keyed = 0; keyed < 2; keyed++) {
        struct room r;
        room_init(&r, keyed, true);
        room_join(&r);
        sl_link_close(r.far.link, 0);
        r.far.link = NULL;
        wait_for(&r.near, UINT32_MAX);
        assert_int_equal(times_lost(&r.near), 1);
        assert_int_equal(r.near.lost, SL_ERR_PEER_LOST);
        assert_int_equal(send_one(r.near.link, 0, 10), SL_ERR_PEER_LOST);
        room_release(&r);
        assert_int_equal(times_lost(&r.near), 1);
    }
}

static void who_makes_no_sense_is_left(void **state) {
    (void)state;
    struct room r;
    room_init(&r, true, false);
    r.far.refuses = true;
    room_join(&r);
    assert_int_equal(send_one(r.near.link, 0, 10), SL_OK);
    wait_for(&r.far, UINT32_MAX);
    assert_int_equal(r.far.lost, SL_ERR_PROTOCOL);
    assert_non_null(strstr(r.far.why.text, "no sense"));
    room_release(&r);
}

static void what_does_not_fit_is_not_sent(void **state) {
    (void)state;
    struct room r;
    room_init(&r, false, false);
    room_join(&r);
    assert_int_equal(send_one(r.near.link, 0, 3 * MAX_SENT), SL_AGAIN);
    assert_int_equal(sl_link_set_max_payload(r.far.link, 4 * MAX_SENT, 0), SL_OK);
    assert_int_equal(sl_link_set_max_payload(r.near.link, MAX_SENT, 4 * MAX_SENT), SL_OK);
    assert_int_equal(send_one(r.near.link, 0, 3 * MAX_SENT), SL_OK);
    wait_for(&r.far, 1);
    assert_int_equal(r.far.sum, 3 * MAX_SENT);
    room_release(&r);
}

/* ---- strangers ---- */

/* With the right key, or without one, when everybody on this machine is a peer: not everything is a
 * frame. */
static struct sl_transport *connect_proven(const struct room *r) {
    struct sl_transport *t;
    struct sl_err err;
    enum sl_status status;
    short events;
    assert_int_equal(sl_transport_create(connect_raw(r), r->key, false, &t, &err), SL_OK);
    while ((status = sl_transport_shake(t, &events, &err)) == SL_AGAIN) {
        struct pollfd fd = {sl_transport_fd(t), events, 0};
        (void)!poll(&fd, 1, 1000);
    }
    if (status != SL_OK)
        fail_msg("%s", err.text);
    return t;
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

static void lies_end_the_link(void **state) {
    (void)state;
    static const struct sl_frame_head lies[] = {{SL_FRAME_CALL, 0, 2, 0},
                                                {SL_FRAME_CALL, 0, 1, (uint64_t)1 << 63},
                                                {SL_FRAME_CALL, 0, 1, UINT64_MAX},
                                                {SL_FRAME_CALL, 0, 1, MAX_SENT + 2},
                                                {SL_FRAME_TYPES, 0, 1, 0},
                                                {SL_FRAME_HEARTBEAT, 0, 1, 7},
                                                {SL_FRAME_HEARTBEAT_ANSWER, 0, 1, 16}};
    size_t n_lies = sizeof lies / sizeof *lies;
    for (size_t i = 0; i < 2 * n_lies; i++) {
        uint8_t bytes[SL_FRAME_HEAD_BYTES + 16];
        struct room r;
        struct sl_err err;
        size_t n = 0;
        memset(bytes, 0xff, sizeof bytes);
        room_init(&r, i >= n_lies, i % 2);
        struct sl_transport *t = connect_proven(&r);
        sl_frame_put_head(&lies[i % n_lies], bytes);
        assert_int_equal(sl_transport_write(t, bytes, sizeof bytes, &n, &err), SL_OK);
        assert_int_equal(n, sizeof bytes);
        wait_for(&r.far, UINT32_MAX);
        assert_int_equal(r.far.lost, SL_ERR_PROTOCOL);
        assert_int_equal(r.far.n_frames, 0);
        sl_transport_close(&t);
        room_release(&r);
    }
}

static void silence_is_a_loss(void **state) {
    (void)state;
    struct room r;
    room_init(&r, false, false);
    sl_listener_close(r.listener);
    r.config.silence_ns = 50000000;
    struct sl_err err;
    char address[128];
    snprintf(address, sizeof address, "unix:%s/s", r.folder);
    assert_int_equal(sl_listener_open(address, &r.config, &r.owner, &r.listener, &err), SL_OK);
    int fd = connect_raw(&r);
    wait_for(&r.far, UINT32_MAX);
    assert_int_equal(r.far.lost, SL_ERR_PEER_LOST);
    assert_non_null(strstr(r.far.why.text, "nothing has come"));
    close(fd);
    room_release(&r);
}

static void another_key_is_refused(void **state) {
    (void)state;
    struct room r;
    struct sl_err err;
    struct sl_link *link;
    room_init(&r, true, true);
    struct sl_net_key *other = new_key();
    struct sl_link_config c = r.config;
    c.key = other;
    assert_int_equal(
        sl_link_connect(sl_listener_address(r.listener), &c, &r.near.owner, NULL, &link, &err),
        SL_ERR_PROTOCOL);
    assert_non_null(strstr(err.text, "another key"));
    sl_net_key_free(&other);
    room_join(&r); /* who has it is served */
    room_release(&r);
}

/* Whether the other side has closed it, or does so within ms. */
static bool is_closed(int fd, int ms) {
    struct pollfd p = {fd, POLLIN, 0};
    char rest[4096];
    while (poll(&p, 1, ms) > 0) {
        ssize_t n = recv(fd, rest, sizeof rest, MSG_DONTWAIT);
        if (n <= 0)
            return n == 0 || errno != EAGAIN;
    }
    return false;
}

/* More of them than there are places, and somebody with the key behind them: who comes is accepted
 * in order, so that all but 64 have lost their places by then. */
static void strangers_are_in_nobodys_way(void **state) {
    (void)state;
    enum { N = 1000, PLACES = 64 };
    struct room r;
    struct rlimit files;
    int fds[N], n_open = 0;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    struct rlimit more = files;
    if (more.rlim_cur < N + 200)
        more.rlim_cur = N + 200;
    if (setrlimit(RLIMIT_NOFILE, &more) != 0)
        skip();
    room_init(&r, true, true);
    for (int i = 0; i < N; i++) {
        fds[i] = connect_raw(&r);
        static const char garbage[] = "GET / HTTP/1.1\r\n\r\n\x16\x03\x01\xff\xff\x01";
        if (i % 4 == 1) /* which may have lost its place */
            (void)!send(fds[i], garbage, sizeof garbage, MSG_NOSIGNAL);
    }
    room_join(&r);
    assert_int_equal(send_one(r.near.link, 0, 100), SL_OK);
    wait_for(&r.far, 1);
    assert_int_equal(r.far.n_frames, 1);
    for (int i = 0; i < N; i++) {
        n_open += !is_closed(fds[i], 0);
        close(fds[i]);
    }
    assert_in_range(n_open, 0, PLACES);
    room_release(&r);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
}

/* Between the two, with both sides' bytes and no key. */
struct relay {
    const struct room *room;
    char address[64];
    int fd; /* where it listens */
    pthread_t thread;
    atomic_bool stop, repeat;
    int n_crowd;              /* who come, and say nothing, before the first answer is passed on */
    size_t most_back, n_back; /* it ends when so many bytes have gone back; 0: never */
    bool resets;              /* ... as a cut does, and not as who closes */
    atomic_size_t n;
    size_t last;             /* where the bytes that came last begin */
    uint8_t bytes[64 << 10]; /* [n] from who connected, the first of them */
};

static void write_all(int fd, const uint8_t *bytes, size_t n) {
    while (n) {
        ssize_t done = send(fd, bytes, n, MSG_NOSIGNAL);
        if (done <= 0)
            return;
        bytes += done;
        n -= (size_t)done;
    }
}

/* They all come, which the first of them sees: it has lost its place. */
static void let_crowd_come(struct relay *y) {
    int fds[256], n = y->n_crowd;
    y->n_crowd = 0;
    for (int i = 0; i < n; i++)
        fds[i] = connect_raw(y->room);
    assert_true(n == 0 || is_closed(fds[0], 60000));
    for (int i = 0; i < n; i++)
        close(fds[i]);
}

static void *relay_main(void *arg) {
    struct relay *y = arg;
    uint8_t bytes[4096];
    int from = accept(y->fd, NULL, NULL), to = connect_raw(y->room);
    assert_true(from >= 0);
    for (bool open = true; open && !atomic_load(&y->stop);) {
        struct pollfd fds[] = {{from, POLLIN, 0}, {to, POLLIN, 0}};
        (void)!poll(fds, 2, 1);
        if (atomic_exchange(&y->repeat, false))
            write_all(to, y->bytes + y->last, atomic_load(&y->n) - y->last);
        for (int i = 0; i < 2; i++) {
            ssize_t n = fds[i].revents ? recv(fds[i].fd, bytes, sizeof bytes, 0) : 1;
            open &= n > 0;
            if (!fds[i].revents || n <= 0)
                continue;
            if (i)
                let_crowd_come(y);
            if (i && y->most_back && (size_t)n >= y->most_back - y->n_back) {
                write_all(from, bytes, y->most_back - y->n_back);
                y->n_back = y->most_back;
                open = false;
                break;
            }
            write_all(i ? from : to, bytes, (size_t)n);
            y->n_back += i ? (size_t)n : 0;
            size_t had = atomic_load(&y->n);
            if (i || had + (size_t)n > sizeof y->bytes)
                continue;
            memcpy(y->bytes + had, bytes, (size_t)n);
            y->last = had;
            atomic_store(&y->n, had + (size_t)n);
        }
    }
    const struct linger reset = {.l_onoff = 1};
    if (y->resets)
        assert_int_equal(setsockopt(from, SOL_SOCKET, SO_LINGER, &reset, sizeof reset), 0);
    close(from);
    close(to);
    return NULL;
}

static void relay_start(struct relay *y, const struct room *r) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t n = sizeof at;
    memset(y, 0, sizeof *y);
    y->room = r;
    y->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(y->fd, (struct sockaddr *)&at, n), 0);
    assert_int_equal(listen(y->fd, 1), 0);
    assert_int_equal(getsockname(y->fd, (struct sockaddr *)&at, &n), 0);
    snprintf(y->address, sizeof y->address, "127.0.0.1:%u", ntohs(at.sin_port));
    assert_int_equal(pthread_create(&y->thread, NULL, relay_main, y), 0);
}

static void relay_end(struct relay *y) {
    atomic_store(&y->stop, true);
    pthread_join(y->thread, NULL);
    close(y->fd);
}

/* Whose handshake takes its time keeps its place. */
static void silence_makes_way(void **state) {
    (void)state;
    struct room r;
    static struct relay y;
    room_init(&r, true, true);
    relay_start(&y, &r);
    y.n_crowd = 200;
    room_join_by(&r, y.address);
    assert_int_equal(send_one(r.near.link, 0, 100), SL_OK);
    wait_for(&r.far, 1);
    assert_int_equal(r.far.n_frames, 1);
    room_release(&r);
    relay_end(&y);
}

/* So many bytes of the answer come, then the connection ends: how it went with who connects, and
 * how many have come. */
static enum sl_status cut_after(struct room *r, size_t most, bool resets, size_t *out_n,
                                struct sl_err *err) {
    static struct relay y;
    relay_start(&y, r);
    y.most_back = most;
    y.resets = resets;
    enum sl_status status =
        sl_link_connect(y.address, &r->config, &r->near.owner, NULL, &r->near.link, err);
    if (status == SL_OK)
        sl_link_close(r->near.link, 0);
    r->near.link = NULL;
    relay_end(&y);
    *out_n = y.n_back;
    return status;
}

/* It says nothing of keys, wherever it is cut: that can be tried again. */
static void a_cut_handshake_is_a_loss(void **state) {
    (void)state;
    struct sl_err err = {""};
    struct room r;
    size_t whole, n;
    room_init_quiet(&r, true, true);
    r.n_accepted = 1; /* who is accepted is left at once, and has not said a word */
    assert_int_equal(cut_after(&r, 0, false, &whole, &err), SL_OK);
    assert_true(whole > 100);
    for (size_t i = 0; i < 48; i++) {
        size_t k = i / 2, most = k < 6 ? k + 1 : k == 23 ? whole - 1 : whole * k / 24;
        bool resets = i % 2;
        enum sl_status status = cut_after(&r, most, resets, &n, &err);
        assert_int_equal(n, most);
        /* What has come is still read before a reset is seen, or is not. */
        if (status != SL_ERR_PEER_LOST || !strstr(err.text, "in the handshake") ||
            (resets && !strstr(err.text, strerror(ECONNRESET))))
            fail_msg("%zu of %zu bytes, %d: %d %s", most, whole, resets, status, err.text);
    }
    room_release(&r);
}

/* What was recorded of somebody with the key lets nobody in: not the whole of it, and no part. */
static void recordings_are_refused(void **state) {
    (void)state;
    struct room r;
    static struct relay y;
    room_init(&r, true, true);
    relay_start(&y, &r);
    room_join_by(&r, y.address);
    assert_int_equal(send_one(r.near.link, 0, 100), SL_OK);
    wait_for(&r.far, 1);
    size_t n = atomic_load(&y.n);
    assert_true(n > 200);
    for (size_t i = 0; i < 24; i++) { /* cut handshakes, and the last is whole */
        size_t cut = i == 23 ? n : i < 8 ? i + 1 : n * i / 24;
        int fd = connect_raw(&r);
        write_all(fd, y.bytes, cut);
        const struct linger reset = {.l_onoff = 1};
        if (i % 3 == 1)
            assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset), 0);
        else if (i % 3 == 2 && i < 23)
            (void)!shutdown(fd, SHUT_WR);
        if (i % 3 == 2) /* the whole recording too */
            assert_true(is_closed(fd, 60000));
        close(fd);
    }
    assert_int_equal(send_one(r.near.link, 1, 100), SL_OK); /* others are served meanwhile */
    wait_for(&r.far, 2);
    assert_int_equal(r.far.n_frames, 2);
    assert_int_equal(times_lost(&r.far), 0);
    pthread_mutex_lock(&r.lock);
    assert_int_equal(r.n_accepted, 1);
    pthread_mutex_unlock(&r.lock);
    room_release(&r);
    relay_end(&y);
}

/* Nor is a record believed twice within its connection. */
static void what_comes_twice_ends_the_link(void **state) {
    (void)state;
    struct room r;
    static struct relay y;
    room_init(&r, true, true);
    relay_start(&y, &r);
    room_join_by(&r, y.address);
    assert_int_equal(send_one(r.near.link, 0, 100), SL_OK);
    wait_for(&r.far, 1);
    atomic_store(&y.repeat, true);
    wait_for(&r.far, UINT32_MAX);
    assert_int_equal(times_lost(&r.far), 1);
    assert_int_equal(r.far.lost, SL_ERR_PEER_LOST);
    assert_int_equal(r.far.n_frames, 1);
    room_release(&r);
    relay_end(&y);
}

/* ---- addresses and keys ---- */

static void only_this_machine_without_a_key(void **state) {
    (void)state;
    const struct sl_link_config plain = {.connect_ns = LONG_NS};
    struct sl_listener_owner owner = {NULL};
    struct sl_listener *l;
    struct sl_link *link;
    struct sl_err err;
    assert_int_equal(sl_listener_open("0.0.0.0:0", &plain, &owner, &l, &err), SL_ERR_CONFIG);
    assert_non_null(strstr(err.text, "not on this machine"));
    assert_int_equal(sl_link_connect("192.0.2.1:7070", &plain, NULL, NULL, &link, &err),
                     SL_ERR_CONFIG);
    static const char *const bad[] = {
        "", ":", "host", "host:", "host:x", "1:2:3", "host:123456", "unix:"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(sl_link_connect(bad[i], &plain, NULL, NULL, &link, &err), SL_ERR_CONFIG);
}

/* "two" is a machine with two addresses; all else is a number. */
int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                struct addrinfo **out) {
    static const char *const two[] = {"127.0.0.2", "127.0.0.1"};
    bool both = node && strcmp(node, "two") == 0;
    (void)hints;
    *out = NULL;
    for (uint32_t i = both ? 2 : 1; i-- > 0;) {
        struct addrinfo *a = calloc(1, sizeof *a + sizeof(struct sockaddr_in));
        assert_non_null(a);
        struct sockaddr_in *in = (struct sockaddr_in *)(void *)(a + 1);
        const char *host = both ? two[i] : node ? node : "0.0.0.0";
        *in =
            (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(service))};
        if (inet_pton(AF_INET, host, &in->sin_addr) != 1) {
            free(a);
            return EAI_NONAME;
        }
        *a = (struct addrinfo){.ai_family = AF_INET,
                               .ai_addr = (struct sockaddr *)(void *)in,
                               .ai_addrlen = sizeof *in,
                               .ai_next = *out};
        *out = a;
    }
    return 0;
}

void freeaddrinfo(struct addrinfo *list) {
    while (list) {
        struct addrinfo *a = list;
        list = a->ai_next;
        free(a);
    }
}

/* The first address of a machine takes connections from nobody, without a word: the second has its
 * time. */
static void an_address_that_is_dead_is_passed_over(void **state) {
    (void)state;
    struct room r;
    struct sl_err err;
    struct sockaddr_in dead = {.sin_family = AF_INET};
    char address[64];
    room_init(&r, true, true);
    int port = atoi(strrchr(sl_listener_address(r.listener), ':') + 1), crowd[8];
    dead.sin_port = htons((uint16_t)port);
    dead.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
    int full = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(full, (struct sockaddr *)(void *)&dead, sizeof dead), 0);
    assert_int_equal(listen(full, 0), 0);
    for (size_t i = 0; i < sizeof crowd / sizeof *crowd; i++) { /* it has room for few */
        crowd[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        (void)!connect(crowd[i], (struct sockaddr *)(void *)&dead, sizeof dead);
    }
    snprintf(address, sizeof address, "127.0.0.2:%d", port);
    r.config.connect_ns = 200000000u;
    assert_int_equal(sl_link_connect(address, &r.config, &r.near.owner, NULL, &r.near.link, &err),
                     SL_ERR_PEER_LOST);
    assert_non_null(strstr(err.text, "does not answer"));
    snprintf(address, sizeof address, "two:%d", port);
    r.config.connect_ns = 4000000000u;
    room_join_by(&r, address);
    close(full);
    for (size_t i = 0; i < sizeof crowd / sizeof *crowd; i++)
        close(crowd[i]);
    room_release(&r);
}

static void keys_are_read_with_care(void **state) {
    (void)state;
    struct sl_net_key *key = NULL;
    struct sl_err err;
    char text[SL_NET_KEY_TEXT_BYTES], other[SL_NET_KEY_TEXT_BYTES];
    assert_int_equal(sl_net_key_generate(text, &err), SL_OK);
    assert_int_equal(sl_net_key_generate(other, &err), SL_OK);
    assert_string_not_equal(text, other);
    assert_int_equal(strlen(text), strlen("sluice-key-1:") + 64);
    static const size_t wrong[] = {0, 12, 13, 40, 76};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snprintf(other, sizeof other, "%s", text);
        other[wrong[i]] = 'G';
        assert_int_equal(sl_net_key_parse(other, "x", &key, &err), SL_ERR_CONFIG);
        assert_null(strstr(err.text, text + 20)); /* never shown */
    }
    other[0] = 0;
    assert_int_equal(sl_net_key_parse(other, "x", &key, &err), SL_ERR_CONFIG);
    char padded[128];
    snprintf(padded, sizeof padded, " \n%s\r\n", text);
    assert_int_equal(sl_net_key_parse(padded, "x", &key, &err), SL_OK);
    sl_net_key_free(&key);
    assert_int_equal(sl_net_key_read("/", &key, &err), SL_ERR_CONFIG);
    assert_int_equal(sl_net_key_read("/no/such/file", &key, &err), SL_ERR_CONFIG);
}

int main(void) {
    sl_log_set_level(SL_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_come_back),
        cmocka_unit_test(clocks_are_compared),
        cmocka_unit_test(they_take_what_is_stated),
        cmocka_unit_test(who_attends_receives),
        cmocka_unit_test(nothing_is_missed),
        cmocka_unit_test(nor_is_what_is_being_passed_on),
        cmocka_unit_test(new_keys_hold_nothing_up),
        cmocka_unit_test(a_reset_is_named),
        cmocka_unit_test(the_rest_is_received),
        cmocka_unit_test(the_rest_is_sent),
        cmocka_unit_test(who_attends_may_leave),
        cmocka_unit_test(frames_keep_their_order),
        cmocka_unit_test(who_attends_sees_the_end),
        cmocka_unit_test(who_goes_is_noticed_once),
        cmocka_unit_test(who_makes_no_sense_is_left),
        cmocka_unit_test(what_does_not_fit_is_not_sent),
        cmocka_unit_test(who_attends_may_leave_a_flood),
        cmocka_unit_test(lies_end_the_link),
        cmocka_unit_test(silence_is_a_loss),
        cmocka_unit_test(another_key_is_refused),
        cmocka_unit_test(strangers_are_in_nobodys_way),
        cmocka_unit_test(silence_makes_way),
        cmocka_unit_test(a_cut_handshake_is_a_loss),
        cmocka_unit_test(recordings_are_refused),
        cmocka_unit_test(what_comes_twice_ends_the_link),
        cmocka_unit_test(only_this_machine_without_a_key),
        cmocka_unit_test(an_address_that_is_dead_is_passed_over),
        cmocka_unit_test(keys_are_read_with_care),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
