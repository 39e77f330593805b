#include "cluster/peer.h"

#include "cluster/model_cache.h"
#include "common/bytes.h"
#include "common/clock.h"
#include "common/cond.h"
#include "common/crc.h"
#include "common/interrupt.h"
#include "common/log.h"
#include "common/version.h"
#include "net/frame.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CONNECT_NS   3000000000u /* for one try */
#define AGAIN_NS     250000000u  /* between two */
#define HEARTBEAT_NS 1000000000u
/* For an offer, of a worker that has to fetch headers for it, and to open and measure its devices.
 * One with a copy has done that before it listens. */
#define PREPARE_NS 30000000000u
#define SILENCE_NS 5000000000u
#define LINGER_NS  1000000000u
/* The limit until shapes are agreed on. */
#define SETUP_QUEUE_BYTES (4u * SL_SETUP_MAX_BYTES)
/* What a worker may request at once, and a little more. */
#define MAX_PIECES 6u

/* ---- what comes from a worker ---- */

static enum sl_status refused(struct sl_peer *p, const struct sl_frame *f, struct sl_err *err) {
    struct sl_setup_refuse m;
    SL_TRY(sl_setup_get_refuse(f->bytes, f->n, &m, err));
    return sl_fail(err, SL_ERR_CONFIG, "%s: %s", p->address, m.why);
}

/* ... and what goes to one that this side refuses. */
static void refuse(struct sl_link *l, uint32_t epoch, enum sl_status status, const char *why) {
    struct sl_setup_refuse m = {.status = (uint32_t)-status};
    uint8_t bytes[SL_SETUP_MAX_BYTES];
    snprintf(m.why, sizeof m.why, "%s", why);
    const struct sl_bytes_part part = {bytes, sl_setup_put_refuse(&m, bytes)};
    (void)!sl_link_send(l, SL_FRAME_REFUSE, epoch, &part, 1); /* its loss is noticed anyway */
}

/* ---- the model's bytes, for a worker without a copy ---- */

static size_t fetch_queue_bytes(void) {
    return sl_link_queue_bytes(MAX_PIECES, SL_PIECE_HEAD_BYTES + SL_PIECE_BYTES);
}

uint64_t sl_peer_fetch_bytes(void) {
    return fetch_queue_bytes() + SL_PIECE_BYTES;
}

static enum sl_status offer_model(struct sl_peer *p, struct sl_err *err) {
    uint8_t bytes[SL_SETUP_MAX_BYTES];
    const struct sl_bytes_part part = {bytes, sl_setup_put_model(p->files, bytes)};
    enum sl_status status =
        sl_link_set_max_payload(p->link, SL_SETUP_MAX_BYTES, fetch_queue_bytes());
    if (status == SL_OK)
        status = sl_link_send(p->link, SL_FRAME_MODEL, p->epoch, &part, 1);
    return status == SL_OK ? SL_OK
                           : sl_fail(err, status, "%s: %s", p->address, sl_status_text(status));
}

static enum sl_status read_piece(const char *path, uint64_t offset, uint8_t *bytes, size_t n,
                                 struct sl_err *err) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t done = 0;
    ssize_t k = fd < 0 ? -1 : 1;
    while (k > 0 && done < n)
        if ((k = pread(fd, bytes + done, n - done, (off_t)(offset + done))) > 0)
            done += (size_t)k;
    if (done < n)
        sl_fail(err, SL_ERR_IO, "'%.200s' cannot be read for a worker: %s", path,
                k ? strerror(errno) : "it has become shorter");
    if (fd >= 0)
        close(fd);
    return done < n ? SL_ERR_IO : SL_OK;
}

/* Runs on the link's thread, which has nothing else to do while its worker loads. */
static enum sl_status send_piece(struct sl_peer *p, const struct sl_frame *f, struct sl_err *err) {
    struct sl_setup_fetch m;
    uint8_t head[SL_PIECE_HEAD_BYTES];
    SL_TRY(sl_setup_get_fetch(f->bytes, f->n, &m, err));
    if (m.file >= p->files->n_files || !m.n_bytes || m.n_bytes > SL_PIECE_BYTES ||
        m.offset > p->files->files[m.file].size_bytes ||
        m.n_bytes > p->files->files[m.file].size_bytes - m.offset)
        return sl_fail(err, SL_ERR_PROTOCOL, "bytes that the model's files do not have");
    uint8_t *bytes = malloc(m.n_bytes);
    if (!bytes)
        return sl_fail(err, SL_ERR_NOMEM, "no memory for a piece of the model");
    enum sl_status status =
        read_piece(sl_gguf_file_path(p->model->gguf, m.file), m.offset, bytes, m.n_bytes, err);
    if (status == SL_OK) {
        sl_put_u32(head, m.file);
        sl_put_u64(head + 4, m.offset);
        sl_put_u32(head + 12, sl_crc32c(0, bytes, m.n_bytes));
        const struct sl_bytes_part parts[] = {{head, sizeof head}, {bytes, m.n_bytes}};
        status = sl_link_send(p->link, SL_FRAME_PIECE, p->epoch, parts, 2);
        const struct sl_link_stats stats = sl_link_stats(p->link);
        if (status == SL_AGAIN)
            status =
                sl_fail(err, SL_ERR_PROTOCOL,
                        "more pieces are asked for than may be at once: %u bytes of file %u at "
                        "%" PRIu64 ", while %" PRIu64 " of %" PRIu64 " bytes wait to be sent",
                        m.n_bytes, m.file, m.offset, stats.queued_bytes, stats.queue_bytes);
        else if (status != SL_OK)
            status = sl_fail(err, status, "it closed the connection while the model was sent");
    }
    free(bytes);
    return status;
}

static enum sl_status take_hello(struct sl_peer *p, const struct sl_frame *f, struct sl_err *err) {
    struct sl_setup_hello m;
    SL_TRY(sl_setup_get_hello(f->bytes, f->n, &m, err));
    if (m.role != 2)
        return sl_fail(err, SL_ERR_CONFIG, "%s is no worker", p->address);
    if (strcmp(m.program, SL_VERSION) != 0 || m.messages != SL_MESSAGE_VERSION)
        return sl_fail(err, SL_ERR_CONFIG,
                       "the worker at %s is version %s (messages %u), and the coordinator is %s "
                       "(messages %u): install the same on both",
                       p->address, m.program, m.messages, SL_VERSION, SL_MESSAGE_VERSION);
    p->has_hello = true;
    p->wants_model = m.wants_model;
    return m.wants_model ? offer_model(p, err) : SL_OK;
}

static enum sl_status take_offer(struct sl_peer *p, const struct sl_frame *f, struct sl_err *err) {
    struct sl_setup_offer *o = &p->offer;
    SL_TRY(sl_setup_get_offer(f->bytes, f->n, o, err));
    if (o->content != p->files->content)
        return sl_fail(
            err, SL_ERR_CONFIG,
            "the worker at %s has another model, '%s': its header or its bytes differ from "
            "those of '%s' here",
            p->address, o->model, p->files->name);
    if (!o->n_devices || !o->ram_bytes || o->process_bytes > o->ram_bytes)
        return sl_fail(err, SL_ERR_PROTOCOL, "the worker at %s offers no device, or no memory",
                       p->address);
    for (uint32_t i = 0; i < o->n_devices; i++) {
        const struct sl_setup_device *d = &o->devices[i];
        if ((d->memory_bytes && d->held_bytes > d->memory_bytes) || d->memory_bytes_per_s >= 0x1p63)
            return sl_fail(err, SL_ERR_PROTOCOL,
                           "the worker at %s offers device %s, which takes more memory than it has "
                           "or reads it too fast to be true",
                           p->address, d->id);
    }
    p->asked = SL_PEER_ASKED_NOTHING;
    return SL_OK;
}

static enum sl_status take_ready(struct sl_peer *p, const struct sl_frame *f, struct sl_err *err) {
    SL_TRY(sl_setup_get_ready(f->bytes, f->n, &p->ready, err));
    p->asked = SL_PEER_ASKED_NOTHING;
    return SL_OK;
}

static enum sl_status take_progress(struct sl_peer *p, const struct sl_frame *f,
                                    struct sl_err *err) {
    struct sl_setup_progress m;
    SL_TRY(sl_setup_get_progress(f->bytes, f->n, &m, err));
    uint64_t done = m.done_bytes < m.total_bytes ? m.done_bytes : m.total_bytes;
    if (done != p->done_bytes || m.total_bytes != p->total_bytes)
        p->news_ns = sl_now_ns();
    p->done_bytes = done;
    p->total_bytes = m.total_bytes;
    return SL_OK;
}

static enum sl_status take_answer(struct sl_peer *p, const struct sl_frame *f, struct sl_err *err) {
    uint32_t at = f->n >= SL_PEER_STAGE_BYTES ? sl_get_u32(f->bytes) : UINT32_MAX;
    if (f->epoch != p->epoch)
        return SL_OK; /* to who was there before */
    if (at >= SL_MAX_STAGES || !p->ports[at].remote)
        return sl_fail(err, SL_ERR_PROTOCOL, "an answer of a stage that there is not");
    return sl_stage_remote_received(p->ports[at].remote, f->bytes + SL_PEER_STAGE_BYTES,
                                    f->n - SL_PEER_STAGE_BYTES, err);
}

static enum sl_status take(struct sl_peer *p, const struct sl_frame *f, struct sl_err *err) {
    if (f->type == SL_FRAME_REFUSE)
        return refused(p, f, err);
    if (f->type == SL_FRAME_ANSWER && p->asked == SL_PEER_ASKED_NOTHING)
        return take_answer(p, f, err);
    if (f->type == SL_FRAME_FETCH && p->wants_model)
        return send_piece(p, f, err);
    if (f->type == SL_FRAME_PROGRESS && p->asked == SL_PEER_ASKED_LOAD)
        return take_progress(p, f, err);
    if (f->type == SL_FRAME_READY && p->asked == SL_PEER_ASKED_LOAD)
        return take_ready(p, f, err);
    if (f->type == SL_FRAME_HELLO && !p->has_hello)
        return take_hello(p, f, err);
    if (f->type == SL_FRAME_OFFER && p->has_hello && p->asked == SL_PEER_ASKED_OFFER)
        return take_offer(p, f, err);
    return sl_fail(err, SL_ERR_PROTOCOL, "the worker at %s sent a frame of type %u out of turn",
                   p->address, f->type);
}

static enum sl_status was_received(struct sl_link_owner *o, struct sl_link *l,
                                   const struct sl_frame *f, struct sl_err *err) {
    struct sl_peer *p = (struct sl_peer *)(void *)o;
    pthread_mutex_lock(&p->lock);
    enum sl_status status = take(p, f, err);
    if (status != SL_OK && f->type != SL_FRAME_REFUSE)
        refuse(l, p->epoch, status, err->text);
    if (f->type != SL_FRAME_ANSWER || status != SL_OK) /* those concern nobody who waits */
        pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    return status;
}

struct sl_stage_remote *sl_peer_next_open(struct sl_peer *p, uint32_t *inout_at) {
    struct sl_stage_remote *found = NULL;
    while (!found && *inout_at < SL_MAX_STAGES)
        found = p->ports[(*inout_at)++].remote;
    return found;
}

bool sl_peer_is_open(struct sl_peer *p) {
    uint32_t n = 0;
    for (uint32_t i = 0; sl_peer_next_open(p, &i);)
        n++;
    return n && n == p->load.n_of_worker;
}

void sl_peer_tell(struct sl_peer *p, enum sl_status status, const struct sl_err *why) {
    pthread_mutex_lock(&p->link_lock);
    if (p->link)
        refuse(p->link, p->epoch, status, why->text);
    pthread_mutex_unlock(&p->link_lock);
}

void sl_peer_lose(struct sl_peer *p, enum sl_status status, const struct sl_err *why) {
    pthread_mutex_lock(&p->lock);
    if (p->lost == SL_OK) {
        p->cut = status == SL_ERR_PEER_LOST;
        bool refused = status == SL_ERR_CONFIG && !p->there; /* from one that serves it is a loss */
        p->lost = refused ? status : SL_ERR_PEER_LOST;
        if (refused)
            p->why = *why;
        else
            sl_fail(&p->why, p->lost, "the worker at %s is lost: %.400s", p->address, why->text);
        p->n_lost += p->there;
        p->there = false;
    }
    struct sl_stage_remote *r;
    for (uint32_t i = 0; (r = sl_peer_next_open(p, &i));)
        sl_stage_remote_lost(r, p->lost, &p->why);
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

void sl_peer_watch_calls(struct sl_peer *p, uint64_t most_ns) {
    uint64_t since = UINT64_MAX, now = sl_now_ns();
    struct sl_err why;
    pthread_mutex_lock(&p->lock);
    struct sl_stage_remote *remote;
    for (uint32_t i = 0; p->there && (remote = sl_peer_next_open(p, &i));) {
        uint64_t sent = sl_stage_remote_waits_since_ns(remote);
        since = sent && sent < since ? sent : since;
    }
    pthread_mutex_unlock(&p->lock);
    if (since > now || now - since < most_ns)
        return;
    sl_fail(&why, SL_ERR_PEER_LOST, "it has not answered for %.0f s", (double)(now - since) * 1e-9);
    sl_peer_lose(p, SL_ERR_PEER_LOST, &why);
}

static void was_lost(struct sl_link_owner *o, struct sl_link *l, enum sl_status status,
                     const struct sl_err *why) {
    (void)l;
    sl_peer_lose((struct sl_peer *)(void *)o, status, why);
}

/* ---- what goes to one ---- */

static enum sl_status send_setup(struct sl_peer *p, uint16_t type, const uint8_t *bytes, size_t n,
                                 struct sl_err *err) {
    const struct sl_bytes_part part = {bytes, n};
    enum sl_status status = sl_link_send(p->link, type, p->epoch, &part, 1);
    return status == SL_OK ? SL_OK
                           : sl_fail(err, status, "%s: %s", p->address, sl_status_text(status));
}

void sl_peer_carry(struct sl_peer *p) {
    pthread_mutex_lock(&p->link_lock);
    p->carries = p->link != NULL;
    pthread_mutex_unlock(&p->link_lock);
}

/* The link may be closed and replaced meanwhile. */
static enum sl_status carry(struct sl_stage_carrier *c, enum sl_message_kind kind,
                            const uint8_t *bytes, size_t n) {
    struct sl_peer_port *port = (struct sl_peer_port *)(void *)c;
    struct sl_peer *p = port->peer;
    uint8_t at[SL_PEER_STAGE_BYTES];
    sl_put_u32(at, port->at);
    const struct sl_bytes_part parts[] = {{at, sizeof at}, {bytes, n}};
    uint16_t type = kind == SL_MESSAGE_CANCEL ? SL_FRAME_CANCEL : SL_FRAME_CALL;
    pthread_mutex_lock(&p->link_lock);
    enum sl_status status =
        p->carries ? sl_link_send(p->link, type, p->epoch, parts, 2) : SL_ERR_PEER_LOST;
    pthread_mutex_unlock(&p->link_lock);
    return status;
}

static bool attend(struct sl_stage_carrier *c, bool (*ready)(void *what), void *what,
                   uint64_t until_ns) {
    struct sl_peer *p = ((struct sl_peer_port *)(void *)c)->peer;
    pthread_mutex_lock(&p->link_lock);
    struct sl_link *l = p->carries && !p->attended ? p->link : NULL;
    p->attended |= l != NULL;
    pthread_mutex_unlock(&p->link_lock);
    if (!l)
        return false;
    bool could = sl_link_attend(l, ready, what, until_ns);
    pthread_mutex_lock(&p->link_lock);
    p->attended = false;
    pthread_cond_broadcast(&p->left);
    pthread_mutex_unlock(&p->link_lock);
    return could;
}

/* Also for somebody who is about to attend. */
static void nudge(struct sl_stage_carrier *c) {
    struct sl_peer *p = ((struct sl_peer_port *)(void *)c)->peer;
    pthread_mutex_lock(&p->link_lock);
    if (p->link)
        sl_link_nudge(p->link);
    pthread_mutex_unlock(&p->link_lock);
}

/* The engine closes the stage: nothing that arrives from now on may reach it. */
static void port_closed(struct sl_stage_carrier *c) {
    struct sl_peer_port *port = (struct sl_peer_port *)(void *)c;
    pthread_mutex_lock(&port->peer->lock);
    port->remote = NULL;
    pthread_mutex_unlock(&port->peer->lock);
}

/* Measured by heartbeats; known once one of them has been answered. */
static bool clock_offset(struct sl_stage_carrier *c, int64_t *out_ns) {
    struct sl_peer *p = ((struct sl_peer_port *)(void *)c)->peer;
    struct sl_link_stats s = {0};
    pthread_mutex_lock(&p->link_lock);
    if (p->link)
        s = sl_link_stats(p->link);
    pthread_mutex_unlock(&p->link_lock);
    *out_ns = s.clock_offset_ns;
    return s.round_trip_ns > 0;
}

struct sl_stage_carrier *sl_peer_port(struct sl_peer *p, uint32_t at) {
    struct sl_peer_port *port = &p->ports[at];
    port->carrier = (struct sl_stage_carrier){.send = carry,
                                              .closed = port_closed,
                                              .clock_offset = clock_offset,
                                              .attend = attend,
                                              .nudge = nudge};
    port->peer = p;
    port->at = at;
    return &port->carrier;
}

/* ---- connecting ---- */

static bool is_canceled(const struct sl_peer *p) {
    return atomic_load(p->cancel) || sl_interrupt_pending();
}

static void pause_ns(uint64_t ns) {
    nanosleep(&(struct timespec){(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)}, NULL);
}

static void set_link(struct sl_peer *p, struct sl_link *link) {
    pthread_mutex_lock(&p->link_lock);
    p->link = link;
    pthread_mutex_unlock(&p->link_lock);
}

/* The link, which nobody else has from now on. NULL: there is none. */
static struct sl_link *take_link(struct sl_peer *p) {
    pthread_mutex_lock(&p->link_lock);
    p->carries = false;
    if (p->attended)
        sl_link_nudge(p->link);
    while (p->attended)
        pthread_cond_wait(&p->left, &p->link_lock);
    struct sl_link *link = p->link;
    p->link = NULL;
    pthread_mutex_unlock(&p->link_lock);
    return link;
}

static enum sl_status connect_once(struct sl_peer *p, struct sl_err *err) {
    const struct sl_link_config config = {.key = p->key,
                                          .connect_ns = CONNECT_NS,
                                          .heartbeat_ns = HEARTBEAT_NS,
                                          .silence_ns = SILENCE_NS,
                                          .max_payload_bytes = SL_SETUP_MAX_BYTES,
                                          .queue_bytes = SETUP_QUEUE_BYTES};
    struct sl_link *link = NULL;
    SL_TRY(sl_link_connect(p->address, &config, &p->owner, p->cancel, &link, err));
    set_link(p, link);
    return SL_OK;
}

/* Waits until it is there. */
static enum sl_status wait_for_offer(struct sl_peer *p, uint64_t most_ns, struct sl_err *err) {
    uint64_t until_ns = sl_now_ns() + most_ns;
    pthread_mutex_lock(&p->lock);
    while (p->asked != SL_PEER_ASKED_NOTHING && p->lost == SL_OK && !is_canceled(p) &&
           sl_now_ns() < until_ns + (p->has_hello && p->wants_model ? PREPARE_NS : 0))
        sl_cond_wait_until(&p->changed, &p->lock, sl_now_ns() + AGAIN_NS);
    enum sl_status status = p->lost;
    if (status != SL_OK)
        *err = p->why;
    else if (is_canceled(p))
        status = sl_fail(err, SL_ERR_CANCELED, "interrupted");
    else if (p->asked != SL_PEER_ASKED_NOTHING)
        status = sl_fail(err, SL_ERR_PEER_LOST, "the worker at %s does not answer", p->address);
    pthread_mutex_unlock(&p->lock);
    return status;
}

static bool was_cut(struct sl_peer *p) {
    pthread_mutex_lock(&p->lock);
    bool cut = p->lost != SL_OK && p->cut;
    pthread_mutex_unlock(&p->lock);
    return cut;
}

/* One try; *out_again: another may end otherwise. */
static enum sl_status meet_once(struct sl_peer *p, uint64_t most_ns, bool *out_again,
                                struct sl_err *err) {
    struct sl_setup_hello hello = {.role = 1, .messages = SL_MESSAGE_VERSION};
    uint8_t bytes[SL_SETUP_MAX_BYTES];
    snprintf(hello.program, sizeof hello.program, "%s", SL_VERSION);
    if (gethostname(hello.name, sizeof hello.name - 1) != 0)
        snprintf(hello.name, sizeof hello.name, "?");
    enum sl_status status = connect_once(p, err);
    *out_again = status == SL_ERR_PEER_LOST;
    SL_TRY(status);
    /* The hello comes first. A worker that refuses has sent the reason before it closed, and that
     * is still read. */
    if (send_setup(p, SL_FRAME_HELLO, bytes, sl_setup_put_hello(&hello, bytes), err) == SL_AGAIN)
        return SL_ERR_PEER_LOST;
    SL_TRY(sl_link_start(p->link, err));
    status = wait_for_offer(p, most_ns, err);
    /* Without a key, who closes at once may be a worker that has one. */
    *out_again = status == SL_ERR_PEER_LOST && p->key && was_cut(p);
    return status;
}

enum sl_status sl_peer_meet(struct sl_peer *p, uint64_t wait_ns, struct sl_err *err) {
    uint64_t until_ns = sl_now_ns() + wait_ns;
    for (bool logged = false, again;; logged = true) {
        uint64_t now = sl_now_ns(), left_ns = until_ns > now ? until_ns - now : 0;
        enum sl_status status = meet_once(p, CONNECT_NS + left_ns, &again, err);
        if (!again || sl_now_ns() > until_ns || is_canceled(p))
            return status;
        sl_peer_leave(p);
        if (!logged)
            sl_info("waiting for the worker at %s: %s", p->address, err->text);
        pause_ns(AGAIN_NS);
    }
}

enum sl_status sl_peer_send_load(struct sl_peer *p, struct sl_err *err) {
    uint8_t bytes[SL_SETUP_MAX_BYTES];
    pthread_mutex_lock(&p->lock);
    p->asked = SL_PEER_ASKED_LOAD;
    p->done_bytes = p->total_bytes = 0;
    p->news_ns = sl_now_ns();
    pthread_mutex_unlock(&p->lock);
    return send_setup(p, SL_FRAME_LOAD, bytes, sl_setup_put_load(&p->load, bytes), err);
}

/* Passes on how far loading has come. */
enum sl_status sl_peer_watch_load(struct sl_peer *p, uint64_t stuck_ns,
                                  struct sl_progress *progress, struct sl_err *err) {
    pthread_mutex_lock(&p->lock);
    bool canceled = false, stuck = false;
    while (p->asked == SL_PEER_ASKED_LOAD && p->lost == SL_OK && !canceled && !stuck &&
           !is_canceled(p)) {
        sl_cond_wait_until(&p->changed, &p->lock, sl_now_ns() + AGAIN_NS);
        uint64_t done = p->done_bytes, total = p->total_bytes;
        pthread_mutex_unlock(&p->lock);
        if (progress && total)
            canceled = !progress->report(progress, done, total);
        pthread_mutex_lock(&p->lock);
        stuck = sl_now_ns() - p->news_ns > stuck_ns;
    }
    enum sl_status status = p->lost;
    if (status != SL_OK)
        *err = p->why;
    else if (p->asked == SL_PEER_ASKED_LOAD && stuck)
        status = sl_fail(
            err, SL_ERR_PEER_LOST,
            "the worker at %s is alive, but has loaded nothing for %.0f s: %.1f of %.1f MiB "
            "are there",
            p->address, (double)stuck_ns * 1e-9, (double)p->done_bytes / 0x1p20,
            (double)p->total_bytes / 0x1p20);
    else if (p->asked == SL_PEER_ASKED_LOAD)
        status = sl_fail(err, SL_ERR_CANCELED, "loading was canceled");
    pthread_mutex_unlock(&p->lock);
    return status;
}

void sl_peer_look(struct sl_peer *p, struct sl_remote_look *out) {
    struct sl_link_stats s = {0};
    pthread_mutex_lock(&p->link_lock);
    if (p->link)
        s = sl_link_stats(p->link);
    pthread_mutex_unlock(&p->link_lock);
    *out = (struct sl_remote_look){.sent_bytes = s.sent_bytes,
                                   .received_bytes = s.received_bytes,
                                   .queued_bytes = s.queued_bytes,
                                   .round_trip_ns = s.round_trip_ns,
                                   .clock_offset_ns = s.clock_offset_ns};
    pthread_mutex_lock(&p->lock);
    snprintf(out->name, sizeof out->name, "%s", p->address);
    out->n_stages = p->load.n_of_worker;
    out->there = p->there;
    out->n_lost = p->n_lost;
    struct sl_stage_remote *remote;
    for (uint32_t i = 0; (remote = sl_peer_next_open(p, &i));) {
        uint64_t n_calls, waited_ns;
        sl_stage_remote_waits(remote, &n_calls, &waited_ns);
        out->n_calls += n_calls;
        out->waited_ns += waited_ns;
    }
    pthread_mutex_unlock(&p->lock);
}

/* ---- made, left ---- */

void sl_peer_init(struct sl_peer *p, const char *address, const struct sl_model *model,
                  const struct sl_setup_model *files, const struct sl_net_key *key,
                  const atomic_bool *cancel) {
    *p = (struct sl_peer){.owner = {was_received, was_lost},
                          .address = address,
                          .model = model,
                          .files = files,
                          .key = key,
                          .cancel = cancel,
                          .epoch = 1};
    pthread_mutex_init(&p->lock, NULL);
    pthread_mutex_init(&p->link_lock, NULL);
    pthread_cond_init(&p->left, NULL);
    sl_cond_init(&p->changed);
}

void sl_peer_leave(struct sl_peer *p) {
    struct sl_link *link = take_link(p);
    if (link)
        sl_link_close(link, LINGER_NS);
    pthread_mutex_lock(&p->lock);
    p->asked = SL_PEER_ASKED_OFFER;
    p->has_hello = p->there = false;
    p->lost = SL_OK;
    p->epoch++;
    pthread_mutex_unlock(&p->lock);
}

void sl_peer_release(struct sl_peer *p) {
    sl_peer_leave(p);
    pthread_cond_destroy(&p->changed);
    pthread_cond_destroy(&p->left);
    pthread_mutex_destroy(&p->link_lock);
    pthread_mutex_destroy(&p->lock);
}
