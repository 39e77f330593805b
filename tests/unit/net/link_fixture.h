/* Two ends of a link on this machine and what came to each, and who connects by other means. */
#ifndef TESTS_NET_LINK_FIXTURE_H
#define TESTS_NET_LINK_FIXTURE_H

#include "common/clock.h"
#include "common/cond.h"
#include "common/log.h"
#include "net/address.h"
#include "net/frame.h"
#include "net/key.h"
#include "net/link.h"
#include "net/transport.h"
#include "tests/support/slow_build.h"

#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

static inline void room_init(struct room *r, bool keyed, bool tcp) {
    room_init_beating(r, keyed, tcp, 5000000);
}

/* No heartbeat wakes a link's thread that has missed something. */
static inline void room_init_quiet(struct room *r, bool keyed, bool tcp) {
    room_init_beating(r, keyed, tcp, 2 * LONG_NS);
}

static inline void room_join_by(struct room *r, const char *address) {
    struct sl_err err;
    if (sl_link_connect(address, &r->config, &r->near.owner, NULL, &r->near.link, &err) != SL_OK)
        fail_msg("%s", err.text);
    assert_int_equal(sl_link_start(r->near.link, &err), SL_OK);
    pthread_mutex_lock(&r->lock);
    while (!r->n_accepted)
        pthread_cond_wait(&r->changed, &r->lock);
    pthread_mutex_unlock(&r->lock);
}

static inline void room_join(struct room *r) {
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

static inline enum sl_status send_one(struct sl_link *l, uint32_t frame, size_t n) {
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

static inline int connect_raw(const struct room *r) {
    struct sl_net_address a[SL_NET_ADDRESSES];
    struct sl_err err;
    size_t n;
    assert_int_equal(sl_net_resolve(sl_listener_address(r->listener), false, a, &n, &err), SL_OK);
    int fd = socket(a->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0 && connect(fd, &a->any, a->n) == 0);
    return fd;
}

/* With the right key, or without one, when everybody on this machine is a peer: not everything is a
 * frame. */
static inline struct sl_transport *connect_proven(const struct room *r) {
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

#endif
