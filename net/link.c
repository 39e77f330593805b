#include "net/link_internal.h"

#include "common/bytes.h"
#include "common/clock.h"
#include "common/cpus.h"
#include "net/frame.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define MIN_QUEUE_BYTES 4096u
/* The clocks of two machines drift: the shortest round trip of so many counts. */
#define ROUND_TRIPS 16u

struct queue {
    uint8_t *bytes; /* [cap]; waiting: [begin, end) */
    size_t cap, begin, end;
};

struct sl_link {
    struct sl_transport *transport;
    struct sl_link_owner *owner;
    uint64_t heartbeat_ns, silence_ns;
    char peer[64];
    int wake;  /* an eventfd: the thread is to look */
    int gate;  /* an epoll of that and the socket, at which the thread waits */
    int nudge; /* an eventfd: whoever attends is to leave, as nudged says too */
    pthread_t thread;
    bool started;
    atomic_bool closing, looks_out, nudged;
    _Atomic uint64_t busy_ns; /* when a frame of the owner's was sent or came last */

    pthread_mutex_t send_lock;
    /* Under it. */
    struct queue queue;
    uint64_t sent_seqno, sent_ns;
    enum sl_status broken; /* not SL_OK: nothing can be sent any more */
    struct sl_err why;

    pthread_mutex_t attend_lock;
    /* Under it. */
    bool attended;  /* somebody else receives: the thread does not look at what comes */
    bool has_rest;  /* the thread writes as soon as the socket takes more */
    uint32_t armed; /* what it waits for on the socket */

    /* Used by the thread that attends: how long its last two waits for a frame took. */
    uint64_t waits_ns[2];

    pthread_mutex_t receive_lock; /* recursive: the owner may ask for more room in its calls */
    /* Under it: whoever receives. */
    uint8_t *payload; /* [max_payload] */
    size_t max_payload;
    uint8_t head_bytes[SL_FRAME_HEAD_BYTES];
    struct sl_frame_head head;
    size_t n_head, n_payload; /* received so far of the frame */
    uint64_t received_seqno;
    uint64_t n_passed; /* frames that the owner was given */
    uint32_t n_round_trips;
    uint64_t best_ns;     /* the shortest of late */
    enum sl_status ended; /* not SL_OK: nothing more can be received */
    struct sl_err ended_why;

    uint64_t asked_ns; /* the thread's */
    _Atomic uint64_t received_ns;

    _Atomic uint64_t sent_bytes, received_bytes, sent_frames, received_frames, round_trip_ns;
    _Atomic int64_t clock_offset_ns;
};

/* ---- sending ---- */

static size_t n_waiting(const struct queue *q) {
    return q->end - q->begin;
}

/* Room for n more at the end; false: there is none. */
static bool make_room(struct queue *q, size_t n) {
    if (q->cap - q->end >= n)
        return true;
    if (q->cap - n_waiting(q) < n)
        return false;
    memmove(q->bytes, q->bytes + q->begin, n_waiting(q));
    q->end = n_waiting(q);
    q->begin = 0;
    return true;
}

static void append(struct queue *q, const void *bytes, size_t n) {
    if (n)
        memcpy(q->bytes + q->end, bytes, n);
    q->end += n;
}

/* Writes as much as the socket takes. Under the lock. */
static enum sl_status flush(struct sl_link *l) {
    struct queue *q = &l->queue;
    while (l->broken == SL_OK && n_waiting(q)) {
        size_t n = 0;
        enum sl_status status =
            sl_transport_write(l->transport, q->bytes + q->begin, n_waiting(q), &n, &l->why);
        if (status == SL_AGAIN)
            return SL_OK;
        if (status != SL_OK)
            return l->broken = status;
        q->begin += n;
        atomic_fetch_add_explicit(&l->sent_bytes, n, memory_order_relaxed);
        l->sent_ns = sl_now_ns();
    }
    if (!n_waiting(q))
        q->begin = q->end = 0;
    return l->broken;
}

static void poke(struct sl_link *l) {
    uint64_t one = 1;
    (void)!write(l->wake, &one, sizeof one);
}

static enum sl_status send_frame(struct sl_link *l, uint16_t type, uint32_t epoch,
                                 const struct sl_bytes_part *parts, size_t n_parts) {
    uint8_t head_bytes[SL_FRAME_HEAD_BYTES];
    struct sl_frame_head head = {.type = type, .epoch = epoch};
    for (size_t i = 0; i < n_parts; i++)
        head.n_bytes += parts[i].n;
    pthread_mutex_lock(&l->send_lock);
    enum sl_status status = l->broken;
    if (status == SL_OK && !make_room(&l->queue, sizeof head_bytes + head.n_bytes)) {
        status = flush(l); /* the link's own thread may be busy with its owner */
        if (status == SL_OK && !make_room(&l->queue, sizeof head_bytes + head.n_bytes))
            status = SL_AGAIN;
    }
    bool left = false;
    if (status == SL_OK) {
        head.seqno = ++l->sent_seqno;
        sl_frame_put_head(&head, head_bytes);
        append(&l->queue, head_bytes, sizeof head_bytes);
        for (size_t i = 0; i < n_parts; i++)
            append(&l->queue, parts[i].bytes, parts[i].n);
        atomic_fetch_add_explicit(&l->sent_frames, 1, memory_order_relaxed);
        status = flush(l);
        left = status != SL_OK || n_waiting(&l->queue);
    }
    pthread_mutex_unlock(&l->send_lock);
    if (left)
        poke(l);
    return status;
}

/* The owner is at work: the peer's answer may come soon. */
static void is_busy(struct sl_link *l) {
    if (atomic_load_explicit(&l->looks_out, memory_order_relaxed))
        atomic_store_explicit(&l->busy_ns, sl_now_ns(), memory_order_relaxed);
}

enum sl_status sl_link_send(struct sl_link *l, uint16_t type, uint32_t epoch,
                            const struct sl_bytes_part *parts, size_t n_parts) {
    is_busy(l);
    return send_frame(l, type, epoch, parts, n_parts);
}

/* ---- what links say by themselves ---- */

static void send_own(struct sl_link *l, uint16_t type, const uint8_t *bytes, size_t n) {
    const struct sl_bytes_part part = {bytes, n};
    (void)!send_frame(l, type, 0, &part, 1); /* a full queue is as good as a heartbeat */
}

static void send_heartbeat(struct sl_link *l, uint64_t now) {
    uint8_t bytes[8];
    sl_put_u64(bytes, now);
    send_own(l, SL_FRAME_HEARTBEAT, bytes, sizeof bytes);
}

static enum sl_status answer_heartbeat(struct sl_link *l, const struct sl_frame *f,
                                       struct sl_err *err) {
    uint8_t bytes[16];
    if (f->n != 8)
        return sl_fail(err, SL_ERR_PROTOCOL, "a heartbeat of %zu bytes", f->n);
    memcpy(bytes, f->bytes, 8);
    sl_put_u64(bytes + 8, sl_now_ns());
    send_own(l, SL_FRAME_HEARTBEAT_ANSWER, bytes, sizeof bytes);
    return SL_OK;
}

static enum sl_status take_round_trip(struct sl_link *l, const struct sl_frame *f,
                                      struct sl_err *err) {
    uint64_t now = sl_now_ns();
    if (f->n != 16 || sl_get_u64(f->bytes) > now)
        return sl_fail(err, SL_ERR_PROTOCOL, "the answer to no heartbeat");
    uint64_t sent = sl_get_u64(f->bytes), took = now - sent, theirs = sl_get_u64(f->bytes + 8);
    atomic_store_explicit(&l->round_trip_ns, took ? took : 1, memory_order_relaxed);
    if (l->n_round_trips++ % ROUND_TRIPS == 0 || took <= l->best_ns) {
        l->best_ns = took;
        atomic_store_explicit(&l->clock_offset_ns, (int64_t)(theirs - (sent + took / 2)),
                              memory_order_relaxed);
    }
    return SL_OK;
}

/* ---- receiving: the link's thread, or who attends it ---- */

static enum sl_status pass_on(struct sl_link *l, struct sl_err *err) {
    const struct sl_frame f = {l->head.type, l->head.epoch, l->payload, l->head.n_bytes};
    atomic_fetch_add_explicit(&l->received_frames, 1, memory_order_relaxed);
    if (f.type == SL_FRAME_HEARTBEAT)
        return answer_heartbeat(l, &f, err);
    if (f.type == SL_FRAME_HEARTBEAT_ANSWER)
        return take_round_trip(l, &f, err);
    is_busy(l);
    l->n_passed++;
    return l->owner->received(l->owner, l, &f, err);
}

/* Reads what there is of a frame, and passes it on when it is whole. SL_AGAIN: no more came. */
static enum sl_status receive(struct sl_link *l, struct sl_err *err) {
    bool in_head = l->n_head < SL_FRAME_HEAD_BYTES;
    size_t n = 0;
    if (in_head || l->n_payload < l->head.n_bytes) {
        uint8_t *to = in_head ? l->head_bytes + l->n_head : l->payload + l->n_payload;
        size_t room = in_head ? SL_FRAME_HEAD_BYTES - l->n_head : l->head.n_bytes - l->n_payload;
        SL_TRY(sl_transport_read(l->transport, to, room, &n, err));
        atomic_fetch_add_explicit(&l->received_bytes, n, memory_order_relaxed);
        atomic_store_explicit(&l->received_ns, sl_now_ns(), memory_order_relaxed);
    }
    l->n_head += in_head ? n : 0;
    l->n_payload += in_head ? 0 : n;
    if (l->n_head < SL_FRAME_HEAD_BYTES)
        return SL_OK;
    if (in_head)
        SL_TRY(
            sl_frame_get_head(l->head_bytes, ++l->received_seqno, l->max_payload, &l->head, err));
    if (l->n_payload < l->head.n_bytes)
        return SL_OK;
    l->n_head = l->n_payload = 0;
    return pass_on(l, err);
}

/* The next piece, and whether it has ended a frame of the owner's. */
static enum sl_status receive_some(struct sl_link *l, bool *out_passed, struct sl_err *err) {
    pthread_mutex_lock(&l->receive_lock);
    uint64_t before = l->n_passed;
    enum sl_status status = l->ended;
    if (status != SL_OK)
        *err = l->ended_why;
    else
        status = receive(l, err);
    if (status != SL_OK && status != SL_AGAIN && l->ended == SL_OK) {
        l->ended = status;
        l->ended_why = *err;
    }
    *out_passed = l->n_passed != before;
    pthread_mutex_unlock(&l->receive_lock);
    return status;
}

/* The thread had begun to receive before somebody attended, who may have looked before that. */
static void tell_attendant(struct sl_link *l) {
    pthread_mutex_lock(&l->attend_lock);
    if (l->attended)
        sl_link_nudge(l);
    pthread_mutex_unlock(&l->attend_lock);
}

/* All that is there now. */
static enum sl_status receive_all(struct sl_link *l, struct sl_err *err) {
    enum sl_status status = SL_OK;
    bool passed;
    while (status == SL_OK && !atomic_load(&l->closing)) {
        status = receive_some(l, &passed, err);
        if (passed)
            tell_attendant(l);
    }
    return status == SL_AGAIN ? SL_OK : status;
}

static void drain(int event) {
    uint64_t count;
    (void)!read(event, &count, sizeof count);
}

/* What the thread waits for on the socket. While it waits it learns of a change, and wakes only if
 * that is there already. Under attend_lock. */
static void arm(struct sl_link *l) {
    struct epoll_event e = {.events = (l->attended ? 0u : (uint32_t)EPOLLIN) |
                                      (l->has_rest ? (uint32_t)EPOLLOUT : 0u)};
    if (e.events != l->armed)
        (void)!epoll_ctl(l->gate, EPOLL_CTL_MOD, sl_transport_fd(l->transport), &e);
    l->armed = e.events;
}

/* True: there is something to do. What others queue meanwhile pokes. */
static bool look_out(struct sl_link *l, struct epoll_event *out) {
    while (atomic_load_explicit(&l->looks_out, memory_order_relaxed) &&
           sl_now_ns() - atomic_load_explicit(&l->busy_ns, memory_order_relaxed) < SL_LOOK_OUT_NS) {
        if (epoll_wait(l->gate, out, 1, 0) > 0)
            return true;
        sl_cpu_relax();
    }
    return false;
}

/* Waits for something to do. */
static void wait_for_work(struct sl_link *l, uint64_t until_ns) {
    pthread_mutex_lock(&l->send_lock);
    bool rest = n_waiting(&l->queue);
    pthread_mutex_unlock(&l->send_lock);
    pthread_mutex_lock(&l->attend_lock);
    l->has_rest = rest;
    arm(l);
    bool attended = l->attended;
    pthread_mutex_unlock(&l->attend_lock);
    struct epoll_event e = {0};
    uint64_t now = sl_now_ns();
    int ms = until_ns > now ? (int)((until_ns - now) / 1000000u) + 1 : 0;
    if (!attended && sl_transport_has_more(l->transport))
        return;
    if ((look_out(l, &e) || epoll_wait(l->gate, &e, 1, ms) > 0) && e.data.u32)
        drain(l->wake);
}

static enum sl_status keep_alive(struct sl_link *l, uint64_t *out_until_ns, struct sl_err *err) {
    uint64_t received_ns = atomic_load_explicit(&l->received_ns, memory_order_relaxed);
    uint64_t now = sl_now_ns(); /* later than any */
    if (now - received_ns > l->silence_ns)
        return sl_fail(err, SL_ERR_PEER_LOST, "nothing has come for %.1f s",
                       (double)(now - received_ns) * 1e-9);
    if (now - l->asked_ns >= l->heartbeat_ns) {
        l->asked_ns = now;
        send_heartbeat(l, now);
    }
    uint64_t silent = received_ns + l->silence_ns, beat = l->asked_ns + l->heartbeat_ns;
    *out_until_ns = silent < beat ? silent : beat;
    return SL_OK;
}

static enum sl_status write_rest(struct sl_link *l, struct sl_err *err) {
    pthread_mutex_lock(&l->send_lock);
    enum sl_status status = flush(l);
    if (status != SL_OK)
        *err = l->why;
    pthread_mutex_unlock(&l->send_lock);
    return status;
}

static void break_off(struct sl_link *l, enum sl_status status, const struct sl_err *why) {
    pthread_mutex_lock(&l->send_lock);
    if (l->broken == SL_OK) {
        l->broken = SL_ERR_PEER_LOST;
        l->why = *why;
    }
    pthread_mutex_unlock(&l->send_lock);
    pthread_mutex_lock(&l->receive_lock);
    if (l->ended == SL_OK) { /* for silence, say */
        l->ended = status;
        l->ended_why = *why;
    }
    pthread_mutex_unlock(&l->receive_lock);
    sl_link_nudge(l);
    if (!atomic_load(&l->closing))
        l->owner->lost(l->owner, l, status, why);
}

static void *link_main(void *arg) {
    struct sl_link *l = arg;
    enum sl_status status = SL_OK;
    struct sl_err why = {{0}};
    uint64_t until_ns = 0;
    atomic_store_explicit(&l->received_ns, sl_now_ns(), memory_order_relaxed);
    while (status == SL_OK && !atomic_load(&l->closing)) {
        status = receive_all(l, &why);
        if (status == SL_OK)
            status = write_rest(l, &why);
        if (status == SL_OK)
            status = keep_alive(l, &until_ns, &why);
        if (status == SL_OK)
            wait_for_work(l, until_ns);
    }
    if (status != SL_OK)
        break_off(l, status, &why);
    return NULL;
}

/* ---- who attends it ---- */

static bool begin_attending(struct sl_link *l) {
    pthread_mutex_lock(&l->attend_lock);
    bool can = !l->attended;
    l->attended = true;
    arm(l);
    pthread_mutex_unlock(&l->attend_lock);
    return can;
}

static void end_attending(struct sl_link *l) {
    pthread_mutex_lock(&l->attend_lock);
    l->attended = false;
    arm(l);
    pthread_mutex_unlock(&l->attend_lock);
    /* What has been read from the socket already does not wake the thread. */
    if (sl_transport_has_more(l->transport))
        poke(l);
}

/* When another machine computes its part of each token, one wait takes about as long as the next,
 * so the thread that attends can tell when it will end: it sleeps, polls from a little before that
 * until a little after, and sleeps again. Waking up would take as long as the rest of a hop. */
#define MOST_EARLY_NS 250000u
#define MOST_LATE_NS  500000u
struct due {
    uint64_t from_ns, to_ns; /* equal: not known */
};

static struct due next_due(const struct sl_link *l, uint64_t began_ns) {
    uint64_t a = l->waits_ns[0], b = l->waits_ns[1];
    uint64_t less = a < b ? a : b, more = a < b ? b : a;
    if (more - less > less / 4)
        return (struct due){began_ns, began_ns};
    uint64_t early = less / 8 < MOST_EARLY_NS ? less / 8 : MOST_EARLY_NS;
    uint64_t late = less / 4 < MOST_LATE_NS ? less / 4 : MOST_LATE_NS;
    return (struct due){began_ns + less - early, began_ns + more + late};
}

/* Sleeps until something comes, it is nudged, or until_ns. */
static bool sleep_to_receive(struct pollfd fds[2], uint64_t until_ns) {
    uint64_t now = sl_now_ns(), left = until_ns > now ? until_ns - now : 0;
    const struct timespec most = {(time_t)(left / 1000000000u), (long)(left % 1000000000u)};
    return ppoll(fds, 2, until_ns == UINT64_MAX ? NULL : &most, NULL) > 0;
}

/* Until something comes, it is nudged, or until_ns. */
static void wait_to_receive(struct sl_link *l, const struct due *due, uint64_t until_ns) {
    struct pollfd fds[] = {{sl_transport_fd(l->transport), POLLIN, 0}, {l->nudge, POLLIN, 0}};
    if (sl_transport_has_more(l->transport)) /* behind new keys, which are no bytes to receive */
        return;
    uint64_t from_ns = due->from_ns < until_ns ? due->from_ns : until_ns;
    uint64_t to_ns = due->to_ns < until_ns ? due->to_ns : until_ns;
    bool came = sl_now_ns() < from_ns && sleep_to_receive(fds, from_ns);
    while (!came && sl_now_ns() < to_ns) {
        came = poll(fds, 2, 0) > 0;
        if (!came)
            sl_cpu_relax();
    }
    if ((came || sleep_to_receive(fds, until_ns)) && fds[1].revents)
        drain(l->nudge);
}

static void has_waited(struct sl_link *l, uint64_t took_ns) {
    l->waits_ns[0] = l->waits_ns[1];
    l->waits_ns[1] = took_ns;
}

bool sl_link_attend(struct sl_link *l, bool (*ready)(void *what), void *what, uint64_t until_ns) {
    struct sl_err why;
    enum sl_status status = SL_OK;
    if (!begin_attending(l))
        return false;
    const uint64_t began_ns = sl_now_ns();
    const struct due due = next_due(l, began_ns);
    for (bool over = ready && ready(what); !over;) {
        status = receive_some(l, &over, &why);
        if (status != SL_OK && status != SL_AGAIN)
            break;
        if (over)
            has_waited(l, sl_now_ns() - began_ns);
        over = over || sl_now_ns() >= until_ns || atomic_exchange(&l->nudged, false);
        if (status == SL_AGAIN && !over)
            wait_to_receive(l, &due, until_ns);
    }
    end_attending(l);
    if (status == SL_OK || status == SL_AGAIN)
        return true;
    poke(l); /* its thread finds the same, and says so */
    return false;
}

void sl_link_nudge(struct sl_link *l) {
    uint64_t one = 1;
    atomic_store(&l->nudged, true);
    (void)!write(l->nudge, &one, sizeof one);
}

/* ---- made, closed ---- */

static enum sl_status grow(uint8_t **bytes, size_t *n, size_t want) {
    uint8_t *grown = want > *n ? realloc(*bytes, want) : *bytes;
    if (!grown)
        return SL_ERR_NOMEM;
    *bytes = grown;
    *n = want > *n ? want : *n;
    return SL_OK;
}

size_t sl_link_queue_bytes(size_t n_frames, size_t payload_bytes) {
    return n_frames * (SL_FRAME_HEAD_BYTES + payload_bytes) + SL_LINK_OWN_BYTES;
}

size_t sl_link_bytes(bool keyed) {
    return sizeof(struct sl_link) + sl_transport_bytes(keyed, true);
}

enum sl_status sl_link_set_max_payload(struct sl_link *l, size_t max_payload_bytes,
                                       size_t queue_bytes) {
    size_t queue = queue_bytes > MIN_QUEUE_BYTES ? queue_bytes : MIN_QUEUE_BYTES;
    pthread_mutex_lock(&l->receive_lock);
    enum sl_status status = grow(&l->payload, &l->max_payload, max_payload_bytes + 1);
    pthread_mutex_unlock(&l->receive_lock);
    pthread_mutex_lock(&l->send_lock);
    if (status == SL_OK)
        status = grow(&l->queue.bytes, &l->queue.cap, queue);
    pthread_mutex_unlock(&l->send_lock);
    return status;
}

static bool open_gate(struct sl_link *l) {
    struct epoll_event wake = {.events = EPOLLIN, .data.u32 = 1}, socket = {.events = EPOLLIN};
    l->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    l->nudge = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    l->gate = epoll_create1(EPOLL_CLOEXEC);
    l->armed = socket.events;
    return l->wake >= 0 && l->nudge >= 0 && l->gate >= 0 &&
           epoll_ctl(l->gate, EPOLL_CTL_ADD, l->wake, &wake) == 0 &&
           epoll_ctl(l->gate, EPOLL_CTL_ADD, sl_transport_fd(l->transport), &socket) == 0;
}

static void close_gate(struct sl_link *l) {
    const int fds[] = {l->gate, l->wake, l->nudge};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

enum sl_status sl_link_create(struct sl_transport *t, const struct sl_net_address *peer,
                              const struct sl_link_config *config, struct sl_link **out,
                              struct sl_err *err) {
    struct sl_link *l = calloc(1, sizeof *l);
    pthread_mutexattr_t recursive;
    if (!l) {
        sl_transport_close(&t);
        return sl_fail(err, SL_ERR_NOMEM, "no memory for a link");
    }
    l->transport = t;
    l->heartbeat_ns = config->heartbeat_ns;
    l->silence_ns = config->silence_ns;
    sl_net_address_text(peer, l->peer, sizeof l->peer);
    pthread_mutex_init(&l->send_lock, NULL);
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&l->receive_lock, &recursive);
    pthread_mutexattr_destroy(&recursive);
    atomic_init(&l->closing, false);
    atomic_init(&l->looks_out, false);
    atomic_init(&l->nudged, false);
    pthread_mutex_init(&l->attend_lock, NULL);
    enum sl_status status =
        sl_link_set_max_payload(l, config->max_payload_bytes, config->queue_bytes);
    bool gated = open_gate(l);
    if (status != SL_OK || !gated) {
        status = sl_fail(err, SL_ERR_NOMEM, "no memory for a link");
        sl_link_close(l, 0);
        return status;
    }
    *out = l;
    return SL_OK;
}

void sl_link_own(struct sl_link *l, struct sl_link_owner *owner) {
    l->owner = owner;
}

enum sl_status sl_link_start(struct sl_link *l, struct sl_err *err) {
    int rc = pthread_create(&l->thread, NULL, link_main, l);
    if (rc != 0)
        return sl_fail(err, SL_ERR_NOMEM, "a link's thread could not be started: %s", strerror(rc));
    pthread_setname_np(l->thread, "sl-link");
    l->started = true;
    return SL_OK;
}

void sl_link_look_out(struct sl_link *l, bool looks_out) {
    atomic_store_explicit(&l->looks_out, looks_out, memory_order_relaxed);
}

struct sl_link_stats sl_link_stats(struct sl_link *l) {
    struct sl_link_stats s = {
        .sent_bytes = atomic_load_explicit(&l->sent_bytes, memory_order_relaxed),
        .received_bytes = atomic_load_explicit(&l->received_bytes, memory_order_relaxed),
        .sent_frames = atomic_load_explicit(&l->sent_frames, memory_order_relaxed),
        .received_frames = atomic_load_explicit(&l->received_frames, memory_order_relaxed),
        .round_trip_ns = atomic_load_explicit(&l->round_trip_ns, memory_order_relaxed),
        .clock_offset_ns = atomic_load_explicit(&l->clock_offset_ns, memory_order_relaxed),
    };
    pthread_mutex_lock(&l->send_lock);
    s.queued_bytes = n_waiting(&l->queue);
    s.queue_bytes = l->queue.cap;
    pthread_mutex_unlock(&l->send_lock);
    return s;
}

const char *sl_link_peer(const struct sl_link *l) {
    return l->peer;
}

/* What is queued, for a while. */
static void linger(struct sl_link *l, uint64_t linger_ns) {
    uint64_t until_ns = sl_now_ns() + linger_ns;
    struct sl_err why;
    while (write_rest(l, &why) == SL_OK && n_waiting(&l->queue) && sl_now_ns() < until_ns) {
        struct pollfd fd = {sl_transport_fd(l->transport), POLLOUT, 0};
        (void)!poll(&fd, 1, 10);
    }
    if (l->broken == SL_OK)
        sl_transport_finish(l->transport, linger_ns);
}

void sl_link_close(struct sl_link *l, uint64_t linger_ns) {
    atomic_store(&l->closing, true);
    if (l->wake >= 0)
        poke(l);
    if (l->started)
        pthread_join(l->thread, NULL);
    if (l->queue.bytes && linger_ns)
        linger(l, linger_ns);
    close_gate(l);
    sl_transport_close(&l->transport);
    pthread_mutex_destroy(&l->attend_lock);
    pthread_mutex_destroy(&l->send_lock);
    pthread_mutex_destroy(&l->receive_lock);
    free(l->queue.bytes);
    free(l->payload);
    free(l);
}
