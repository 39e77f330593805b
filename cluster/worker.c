/* A worker's connections: which coordinator it serves, and what that one requests. */
#include "cluster/worker.h"

#include "cluster/model_cache.h"
#include "cluster/worker_phase.h"
#include "cluster/worker_stages.h"
#include "common/cpus.h"
#include "common/bytes.h"
#include "common/clock.h"
#include "common/cond.h"
#include "common/log.h"
#include "common/version.h"
#include "engine/prefix/model_identity.h"
#include "engine/stage/stage_remote.h"
#include "net/frame.h"
#include "net/link.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HEARTBEAT_NS      1000000000u
#define SILENCE_NS        5000000000u
#define LINGER_NS         1000000000u
#define REFUSE_NS         200000000u  /* the listener waits meanwhile */
#define PART_NS           1500000000u /* ... and so long for one who leaves: LINGER_NS and a while */
#define LOOK_NS           50000000u   /* how often it is looked whether to stop */
#define PROGRESS_NS       100000000u  /* between two words about loading */
#define SETUP_QUEUE_BYTES (4u * SL_SETUP_MAX_BYTES)
#define STAGE_BYTES       4u
#define PIECE_MOST_BYTES  (SL_PIECE_BYTES + SL_PIECE_HEAD_BYTES)
/* What fetching takes of memory besides all else. */
#define FETCH_BYTES (4u * SL_PIECE_BYTES)

struct sl_worker;

/* How answers of a stage get to the coordinator. */
struct port {
    struct sl_stage_carrier carrier; /* first */
    struct sl_worker *w;
    uint32_t at;
    struct sl_stage_server *server; /* under the lock */
};

struct sl_worker {
    struct sl_link_owner owner;         /* first */
    struct sl_listener_owner listeners; /* its links are the worker's */
    struct sl_progress progress;
    struct sl_piece_source pieces;
    struct sl_worker_config config; /* with the model, once there is one */
    struct sl_setup_offer offer;
    /* Without a copy of the model: what has been fetched of it. */
    struct sl_model *fetched;
    struct sl_setup_model files;     /* of it */
    struct sl_worker_stages *stages; /* the main thread's; NULL: nothing is loaded */
    struct sl_setup_load loaded;     /* what they were asked for with */
    struct port ports[SL_MAX_STAGES];
    bool broke_down;        /* the stages that there were: none has been loaded since */
    enum sl_status useless; /* not SL_OK: nor can one be, for this reason */
    struct sl_err useless_why;
    uint64_t told_ns;
    pthread_mutex_t cache_lock;
    struct sl_model_cache *cache; /* under cache_lock; NULL: nothing is fetched */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Under the lock. */
    enum sl_worker_phase phase; /* set by become() alone */
    struct sl_link *link;       /* the coordinator's; NULL while the worker waits for one */
    char who[128];
    struct sl_setup_model wanted_model; /* as the coordinator describes it */
    struct sl_setup_load asked;
    bool gone;     /* in any phase: the link is to be closed */
    bool attended; /* a stage's thread receives, and has the link till it has left */
    uint32_t epoch;
    /* What is shown of it. */
    bool listens;
    uint64_t n_coordinators;
    struct sl_setup_progress loading;
    const struct sl_worker_stages *shown; /* the stages, from loaded until they are closed */
};

/* Under the lock. */
static void become(struct sl_worker *w, enum sl_worker_phase phase) {
    sl_worker_phase_become(&w->phase, phase);
}

/* ---- what goes out ---- */

static void send_frame(struct sl_link *l, uint16_t type, uint32_t epoch, const uint8_t *bytes,
                       size_t n) {
    const struct sl_bytes_part part = {bytes, n};
    (void)!sl_link_send(l, type, epoch, &part, 1); /* a lost coordinator is noticed anyway */
}

static void refuse(struct sl_link *l, enum sl_status status, const char *why) {
    struct sl_setup_refuse m = {.status = (uint32_t)-status};
    uint8_t bytes[SL_SETUP_MAX_BYTES];
    snprintf(m.why, sizeof m.why, "%s", why);
    send_frame(l, SL_FRAME_REFUSE, 0, bytes, sl_setup_put_refuse(&m, bytes));
}

/* The coordinator does not read, and waits for what cannot be sent: marks the link for closing.
 * Under the lock. */
static void give_up(struct sl_worker *w, const char *what, size_t n) {
    const struct sl_link_stats s = sl_link_stats(w->link);
    if (w->gone)
        return;
    sl_error("%s of %zu bytes cannot be sent to %s, which has left %" PRIu64 " of %" PRIu64
             " bytes unread: the connection ends",
             what, n, w->who, s.queued_bytes, s.queue_bytes);
    w->gone = true;
    pthread_cond_broadcast(&w->changed);
}

static enum sl_status carry(struct sl_stage_carrier *c, enum sl_message_kind kind,
                            const uint8_t *bytes, size_t n) {
    struct port *p = (struct port *)(void *)c;
    uint8_t at[STAGE_BYTES];
    (void)kind;
    sl_put_u32(at, p->at);
    /* Steps that are given up as the worker ends were not canceled: the coordinator waits for
     * another worker, as after any loss. */
    pthread_mutex_lock(&p->w->lock);
    bool parting = p->w->phase == SL_WORKER_PHASE_PARTING;
    pthread_mutex_unlock(&p->w->lock);
    if (parting)
        return SL_ERR_PEER_LOST;
    const struct sl_bytes_part parts[] = {{at, sizeof at}, {bytes, n}};
    enum sl_status status = sl_link_send(p->w->link, SL_FRAME_ANSWER, p->w->epoch, parts, 2);
    if (status == SL_AGAIN) {
        pthread_mutex_lock(&p->w->lock);
        give_up(p->w, "an answer", n);
        pthread_mutex_unlock(&p->w->lock);
    }
    return status;
}

/* A stage with nothing to do takes what comes. Others wait until that, or the link's thread, has
 * something for them. */
static bool attend(struct sl_stage_carrier *c, bool (*ready)(void *what), void *what,
                   uint64_t until_ns) {
    struct sl_worker *w = ((struct port *)(void *)c)->w;
    pthread_mutex_lock(&w->lock);
    bool can = w->phase == SL_WORKER_PHASE_SERVING && !w->attended;
    struct sl_link *l = w->link;
    w->attended |= can;
    pthread_mutex_unlock(&w->lock);
    if (!can)
        return false;
    bool could = sl_link_attend(l, ready, what, until_ns);
    pthread_mutex_lock(&w->lock);
    w->attended = false;
    if (w->phase == SL_WORKER_PHASE_PARTING)
        pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    return could;
}

/* Does it lack a copy of the model? */
static bool fetches(const struct sl_worker *w) {
    return w->config.cache != NULL;
}

static void introduce(struct sl_worker *w, struct sl_link *l) {
    struct sl_setup_hello hello = {
        .role = 2, .messages = SL_MESSAGE_VERSION, .wants_model = fetches(w)};
    uint8_t bytes[SL_SETUP_MAX_BYTES];
    snprintf(hello.program, sizeof hello.program, "%s", SL_VERSION);
    if (gethostname(hello.name, sizeof hello.name - 1) != 0)
        snprintf(hello.name, sizeof hello.name, "?");
    send_frame(l, SL_FRAME_HELLO, 0, bytes, sl_setup_put_hello(&hello, bytes));
    if (!fetches(w))
        send_frame(l, SL_FRAME_OFFER, 0, bytes, sl_setup_put_offer(&w->offer, bytes));
}

/* ---- what comes in: links' threads, under the lock ---- */

static enum sl_status take_hello(struct sl_worker *w, const struct sl_frame *f,
                                 struct sl_err *err) {
    struct sl_setup_hello m;
    SL_TRY(sl_setup_get_hello(f->bytes, f->n, &m, err));
    if (m.role != 1)
        return sl_fail(err, SL_ERR_PROTOCOL, "it is no coordinator");
    if (strcmp(m.program, SL_VERSION) != 0 || m.messages != SL_MESSAGE_VERSION) {
        sl_fail(err, SL_ERR_CONFIG,
                "the coordinator is version %s (messages %u), and the worker is %s (messages %u): "
                "install the same on both",
                m.program, m.messages, SL_VERSION, SL_MESSAGE_VERSION);
        refuse(w->link, SL_ERR_CONFIG, err->text);
        return SL_ERR_CONFIG;
    }
    become(w, SL_WORKER_PHASE_GREETED);
    snprintf(w->who, sizeof w->who, "%.60s (%.60s)", m.name, sl_link_peer(w->link));
    return SL_OK;
}

static enum sl_status take_message(struct sl_worker *w, const struct sl_frame *f,
                                   struct sl_err *err) {
    uint32_t at = f->n >= STAGE_BYTES ? sl_get_u32(f->bytes) : UINT32_MAX;
    if (at >= SL_MAX_STAGES || !w->ports[at].server)
        return sl_fail(err, SL_ERR_PROTOCOL, "a request to a stage that there is not");
    return sl_stage_server_received(w->ports[at].server, f->bytes + STAGE_BYTES, f->n - STAGE_BYTES,
                                    err);
}

/* The coordinator leaves, and says why. */
static enum sl_status was_refused(const struct sl_frame *f, struct sl_err *err) {
    struct sl_setup_refuse m;
    SL_TRY(sl_setup_get_refuse(f->bytes, f->n, &m, err));
    return sl_fail(err, SL_ERR_CONFIG, "it refuses: %.490s", m.why);
}

static enum sl_status out_of_turn(const struct sl_frame *f, struct sl_err *err) {
    return sl_fail(err, SL_ERR_PROTOCOL, "a frame of type %u (%s) out of turn", f->type,
                   sl_frame_name(f->type));
}

/* What a coordinator has under way before it hears that the worker parts. */
static bool starts_something(const struct sl_frame *f) {
    return f->type == SL_FRAME_HELLO || f->type == SL_FRAME_MODEL || f->type == SL_FRAME_LOAD;
}

static enum sl_status take(struct sl_worker *w, const struct sl_frame *f, struct sl_err *err) {
    const enum sl_worker_phase phase = w->phase;
    if (f->type == SL_FRAME_HELLO && phase == SL_WORKER_PHASE_GREETING)
        return take_hello(w, f, err);
    /* Not while layers are loaded: another model would take away what they are loaded from. */
    if (f->type == SL_FRAME_MODEL && phase == SL_WORKER_PHASE_GREETED && fetches(w)) {
        SL_TRY(sl_setup_get_model(f->bytes, f->n, &w->wanted_model, err));
        become(w, SL_WORKER_PHASE_OFFERING);
        return SL_OK;
    }
    if (f->type == SL_FRAME_LOAD && phase == SL_WORKER_PHASE_GREETED && w->config.model) {
        SL_TRY(sl_setup_get_load(f->bytes, f->n, &w->asked, err));
        w->epoch = f->epoch;
        become(w, SL_WORKER_PHASE_LOADING);
        return SL_OK;
    }
    /* An error would end the link before what is queued for the coordinator has been sent. */
    if (phase == SL_WORKER_PHASE_PARTING && starts_something(f))
        return SL_OK;
    if (f->type == SL_FRAME_REFUSE && phase != SL_WORKER_PHASE_GREETING)
        return was_refused(f, err);
    if ((f->type == SL_FRAME_CALL || f->type == SL_FRAME_CANCEL) &&
        phase == SL_WORKER_PHASE_SERVING)
        return take_message(w, f, err);
    return out_of_turn(f, err);
}

/* Not under the worker's lock: a disk is waited for. */
static enum sl_status take_piece(struct sl_worker *w, const struct sl_frame *f,
                                 struct sl_err *err) {
    pthread_mutex_lock(&w->cache_lock);
    enum sl_status status =
        w->cache ? sl_model_cache_take(w->cache, f->bytes, f->n, err) : out_of_turn(f, err);
    pthread_mutex_unlock(&w->cache_lock);
    return status;
}

static enum sl_status was_received(struct sl_link_owner *o, struct sl_link *l,
                                   const struct sl_frame *f, struct sl_err *err) {
    struct sl_worker *w = (struct sl_worker *)(void *)o;
    (void)l;
    if (f->type == SL_FRAME_PIECE)
        return take_piece(w, f, err);
    pthread_mutex_lock(&w->lock);
    enum sl_status status = take(w, f, err);
    if (f->type != SL_FRAME_CALL || status != SL_OK) /* those concern nobody who waits */
        pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    return status;
}

static void was_lost(struct sl_link_owner *o, struct sl_link *l, enum sl_status status,
                     const struct sl_err *why) {
    struct sl_worker *w = (struct sl_worker *)(void *)o;
    (void)l;
    pthread_mutex_lock(&w->lock);
    if (!w->gone && status == SL_ERR_CONFIG)
        sl_warn("the coordinator %s is gone: %s", w->who, why->text);
    else if (!w->gone) /* else why is in the log already */
        sl_info("the coordinator %s is gone: %s", w->who, why->text);
    w->gone = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

/* Whoever comes as soon as the one before has left finds the place still taken. Under the lock. */
static void let_part(struct sl_worker *w) {
    uint64_t until_ns = sl_now_ns() + PART_NS;
    while (w->link && (w->gone || w->phase == SL_WORKER_PHASE_PARTING) && !*w->config.stop &&
           sl_now_ns() < until_ns)
        sl_cond_wait_until(&w->changed, &w->lock, sl_now_ns() + LOOK_NS);
}

/* On the listener's thread. */
static void was_accepted(struct sl_listener_owner *o, struct sl_link *l) {
    struct sl_worker *w =
        (struct sl_worker *)(void *)((char *)o - offsetof(struct sl_worker, listeners));
    struct sl_err err;
    pthread_mutex_lock(&w->lock);
    let_part(w);
    bool busy = w->phase != SL_WORKER_PHASE_WAITING;
    char why[256];
    snprintf(why, sizeof why, "the worker serves another coordinator, %s", w->who);
    if (!busy) {
        w->link = l;
        become(w, SL_WORKER_PHASE_GREETING);
        w->loading = (struct sl_setup_progress){0};
        w->n_coordinators++;
        snprintf(w->who, sizeof w->who, "%s", sl_link_peer(l));
        sl_link_own(l, &w->owner);
        introduce(w, l);
        if (sl_link_start(l, &err) != SL_OK) {
            sl_error("%s", err.text);
            w->gone = true;
        }
        pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->lock);
    if (!busy)
        return;
    sl_info("%s was refused: %s", sl_link_peer(l), why);
    refuse(l, SL_ERR_CONFIG, why);
    sl_link_close(l, REFUSE_NS);
}

/* ---- the main thread ---- */

static bool is_wanted(struct sl_worker *w) {
    pthread_mutex_lock(&w->lock);
    bool wanted = !w->gone && !*w->config.stop;
    pthread_mutex_unlock(&w->lock);
    return wanted;
}

static bool report(struct sl_progress *p, uint64_t done_bytes, uint64_t total_bytes) {
    struct sl_worker *w =
        (struct sl_worker *)(void *)((char *)p - offsetof(struct sl_worker, progress));
    uint64_t now = sl_now_ns();
    if (now - w->told_ns > PROGRESS_NS) {
        struct sl_setup_progress m = {done_bytes, total_bytes};
        uint8_t bytes[SL_SETUP_MAX_BYTES];
        pthread_mutex_lock(&w->lock);
        w->loading = m;
        pthread_mutex_unlock(&w->lock);
        w->told_ns = now;
        send_frame(w->link, SL_FRAME_PROGRESS, 0, bytes, sl_setup_put_progress(&m, bytes));
    }
    return is_wanted(w);
}

/* ---- a model of which there is no copy here ---- */

static enum sl_status ask_piece(struct sl_piece_source *s, const struct sl_setup_fetch *what) {
    struct sl_worker *w =
        (struct sl_worker *)(void *)((char *)s - offsetof(struct sl_worker, pieces));
    uint8_t bytes[SL_SETUP_MAX_BYTES];
    const struct sl_bytes_part part = {bytes, sl_setup_put_fetch(what, bytes)};
    return sl_link_send(w->link, SL_FRAME_FETCH, 0, &part, 1);
}

static bool piece_wanted(struct sl_piece_source *s) {
    return is_wanted((struct sl_worker *)(void *)((char *)s - offsetof(struct sl_worker, pieces)));
}

static void set_cache(struct sl_worker *w, struct sl_model_cache *cache) {
    pthread_mutex_lock(&w->cache_lock);
    struct sl_model_cache *before = w->cache;
    w->cache = cache;
    pthread_mutex_unlock(&w->cache_lock);
    sl_model_cache_close(&before);
}

static void show_stages(struct sl_worker *w, const struct sl_worker_stages *stages) {
    pthread_mutex_lock(&w->lock);
    w->shown = stages;
    pthread_mutex_unlock(&w->lock);
}

static void end_servers(struct sl_worker *w) {
    for (uint32_t i = 0; i < SL_MAX_STAGES; i++) {
        pthread_mutex_lock(&w->lock);
        struct sl_stage_server *s = w->ports[i].server;
        w->ports[i].server = NULL;
        pthread_mutex_unlock(&w->lock);
        sl_stage_server_destroy(&s);
    }
}

static void close_stages(struct sl_worker *w) {
    show_stages(w, NULL);
    end_servers(w);
    sl_worker_stages_close(&w->stages);
}

/* A stage that has broken down is of no use to the next coordinator: it is to be loaded anew, on
 * its device opened anew. */
static void close_broken(struct sl_worker *w) {
    bool broken = false;
    for (uint32_t i = 0; i < SL_MAX_STAGES; i++) /* nobody else changes them */
        broken |= w->ports[i].server && sl_stage_server_is_broken(w->ports[i].server);
    if (!broken)
        return;
    sl_warn("a device or its part of the model has failed: the layers are loaded anew for the next "
            "coordinator");
    w->broke_down = true;
    close_stages(w);
}

/* After a breakdown, when loading anew has failed too: what the driver keeps of it goes with the
 * process alone. */
static void note_useless(struct sl_worker *w, enum sl_status status, const struct sl_err *why) {
    if (!w->broke_down || w->gone || *w->config.stop)
        return;
    w->useless = status;
    sl_fail(&w->useless_why, status, "a device has failed and cannot be used again: %.400s",
            why->text);
}

/* Releases everything of the earlier model. */
static void forget_model(struct sl_worker *w) {
    close_stages(w);
    set_cache(w, NULL);
    w->config.model = NULL;
    sl_model_close(&w->fetched);
}

static enum sl_status fetch_headers(struct sl_worker *w, const struct sl_setup_model *m,
                                    struct sl_err *err) {
    struct sl_model_cache *cache = NULL;
    forget_model(w);
    SL_TRY(sl_model_cache_open(w->config.cache, m, &cache, err));
    set_cache(w, cache);
    SL_TRY(sl_model_cache_headers(cache, &w->pieces, err));
    SL_TRY(sl_model_open(sl_model_cache_path(cache), &w->fetched, err));
    if (sl_model_fingerprint(w->fetched) != m->header)
        return sl_fail(
            err, SL_ERR_CORRUPT,
            "what was fetched of '%s' is not the coordinator's header: remove the folder "
            "of '%.200s'",
            m->name, sl_model_cache_path(cache));
    w->files = *m;
    w->config.model = w->fetched;
    w->config.model_name = w->files.name;
    if (w->config.process_bytes)
        w->config.engine.process_bytes = w->config.process_bytes() + FETCH_BYTES;
    sl_info("the headers of '%s' are there", m->name);
    return SL_OK;
}

static void do_offer(struct sl_worker *w) {
    struct sl_setup_model m;
    uint8_t bytes[SL_SETUP_MAX_BYTES];
    struct sl_err err;
    enum sl_status status = SL_OK;
    pthread_mutex_lock(&w->lock);
    m = w->wanted_model;
    pthread_mutex_unlock(&w->lock);
    if (!w->config.model || memcmp(&w->files, &m, sizeof m) != 0)
        status = fetch_headers(w, &m, &err);
    if (status == SL_OK)
        status = sl_worker_offer(&w->config, m.content, &w->offer, &err);
    w->config.engine.devices_logged |= status == SL_OK;
    pthread_mutex_lock(&w->lock);
    become(w, SL_WORKER_PHASE_GREETED);
    if (status == SL_OK) {
        send_frame(w->link, SL_FRAME_OFFER, 0, bytes, sl_setup_put_offer(&w->offer, bytes));
    } else if (!w->gone) {
        sl_error("%s", err.text);
        note_useless(w, status, &err);
        refuse(w->link, status, err.text);
        w->gone = true;
    }
    pthread_mutex_unlock(&w->lock);
    if (status != SL_OK)
        forget_model(w);
}

static enum sl_status fetch_layers(struct sl_worker *w, const struct sl_setup_load *m,
                                   struct sl_err *err) {
    uint32_t n_layer = w->config.model->hp.n_layer;
    for (uint32_t i = 0; i < m->n_of_worker; i++) {
        const struct sl_setup_stage *s = &m->of_worker[i];
        if (s->first_layer >= n_layer || !s->n_layer || s->n_layer > n_layer - s->first_layer)
            return sl_fail(err, SL_ERR_PROTOCOL, "layers that the model does not have");
        SL_TRY(sl_model_cache_layers(w->cache, w->config.model, s->first_layer, s->n_layer,
                                     &w->pieces, &w->progress, err));
    }
    return SL_OK;
}

/* ---- loading ---- */

static enum sl_status start_servers(struct sl_worker *w, struct sl_err *err) {
    size_t most = 0, n_most = 0;
    for (uint32_t i = 0; i < sl_worker_n_stages(w->stages); i++) {
        const struct sl_message_limits *l = sl_worker_limits(w->stages, i);
        size_t n = STAGE_BYTES + sl_message_max_bytes(l);
        most = n > most ? n : most;
        n_most += sl_message_max_queued(l);
    }
    if (sl_link_set_max_payload(w->link, most, sl_link_queue_bytes(n_most, most)) != SL_OK)
        return sl_fail(err, SL_ERR_NOMEM, "no memory for messages of %zu bytes", most);
    bool spare = sl_cpus_spare(sl_worker_busy_cpus(w->stages), sl_worker_n_stages(w->stages));
    sl_link_look_out(w->link, spare);
    for (uint32_t i = 0; i < sl_worker_n_stages(w->stages); i++) {
        struct port *p = &w->ports[i];
        struct sl_stage_server *server = NULL;
        if (p->server) /* of the coordinator before */
            continue;
        p->carrier = (struct sl_stage_carrier){.send = carry, .attend = attend};
        p->w = w;
        p->at = i;
        SL_TRY(sl_stage_server_create(sl_worker_limits(w->stages, i), sl_worker_stage(w->stages, i),
                                      &p->carrier, spare, &server, err));
        pthread_mutex_lock(&w->lock);
        p->server = server;
        pthread_mutex_unlock(&w->lock);
    }
    return SL_OK;
}

static enum sl_status load(struct sl_worker *w, const struct sl_setup_load *m, struct sl_err *err) {
    uint64_t start = sl_now_ns();
    if (w->stages && memcmp(&w->loaded, m, sizeof *m) == 0) {
        sl_info("the same layers as before: they are still there");
        return SL_OK;
    }
    close_stages(w);
    if (fetches(w))
        SL_TRY(fetch_layers(w, m, err));
    SL_TRY(sl_worker_stages_open(&w->config, &w->offer, m, &w->progress, &w->stages, err));
    w->loaded = *m;
    show_stages(w, w->stages);
    for (uint32_t i = 0; i < m->n_of_worker; i++)
        sl_info("layers %u to %u of %u loaded after %.1f s on %s", m->of_worker[i].first_layer,
                m->of_worker[i].first_layer + m->of_worker[i].n_layer - 1, m->n_layer,
                (double)(sl_now_ns() - start) * 1e-9,
                w->offer.devices[m->of_worker[i].device].model);
    return SL_OK;
}

static void do_load(struct sl_worker *w) {
    struct sl_setup_load m;
    struct sl_setup_ready ready;
    uint8_t bytes[SL_SETUP_MAX_BYTES];
    struct sl_err err;
    pthread_mutex_lock(&w->lock);
    m = w->asked;
    pthread_mutex_unlock(&w->lock);
    enum sl_status status = load(w, &m, &err);
    if (status == SL_OK)
        status = start_servers(w, &err);
    pthread_mutex_lock(&w->lock);
    become(w, status == SL_OK ? SL_WORKER_PHASE_SERVING : SL_WORKER_PHASE_GREETED);
    if (status == SL_OK) {
        sl_worker_ready(w->stages, &ready);
        const struct sl_bytes_part part = {bytes, sl_setup_put_ready(&ready, bytes)};
        if (sl_link_send(w->link, SL_FRAME_READY, 0, &part, 1) == SL_AGAIN)
            give_up(w, "that the layers are there,", part.n);
        else
            sl_info("serving %s", w->who);
        w->broke_down = false;
    } else if (!w->gone) {
        sl_error("%s", err.text);
        note_useless(w, status, &err);
        refuse(w->link, status, err.text);
        w->gone = true;
    }
    pthread_mutex_unlock(&w->lock);
}

/* Disconnects the current coordinator, so that another may connect. */
static void disconnect(struct sl_worker *w) {
    struct sl_link *l = w->link;
    pthread_mutex_lock(&w->lock);
    bool served = w->phase == SL_WORKER_PHASE_SERVING;
    become(w, SL_WORKER_PHASE_PARTING);
    if (w->attended)
        sl_link_nudge(l);
    while (w->attended)
        pthread_cond_wait(&w->changed, &w->lock);
    pthread_mutex_unlock(&w->lock);
    for (uint32_t i = 0; i < SL_MAX_STAGES; i++) /* nobody else changes them */
        if (w->ports[i].server)
            sl_stage_server_forget(w->ports[i].server);
    sl_link_close(l, LINGER_NS);
    close_broken(w);
    pthread_mutex_lock(&w->lock);
    w->link = NULL;
    w->gone = false;
    become(w, SL_WORKER_PHASE_WAITING);
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    if (served && !*w->config.stop) /* a peer that failed to prove itself has been logged already */
        sl_info("waiting for a coordinator");
}

/* Under the lock. */
static bool has_to_do(const struct sl_worker *w) {
    return w->phase == SL_WORKER_PHASE_OFFERING || w->phase == SL_WORKER_PHASE_LOADING;
}

static void serve(struct sl_worker *w) {
    for (bool useless = false; !*w->config.stop && !useless;) {
        pthread_mutex_lock(&w->lock);
        while (!w->gone && !has_to_do(w) && !*w->config.stop)
            sl_cond_wait_until(&w->changed, &w->lock, sl_now_ns() + LOOK_NS);
        bool gone = w->gone;
        enum sl_worker_phase phase = w->phase;
        pthread_mutex_unlock(&w->lock);
        if (gone) {
            disconnect(w);
            useless = w->useless != SL_OK;
        } else if (phase == SL_WORKER_PHASE_OFFERING) {
            do_offer(w);
        } else if (phase == SL_WORKER_PHASE_LOADING) {
            do_load(w);
        }
    }
}

/* ---- the worker ---- */

uint64_t sl_worker_link_bytes(const struct sl_net_key *key) {
    return sl_link_bytes(key != NULL) + sl_listener_bytes(key != NULL);
}

enum sl_status sl_worker_create(const struct sl_worker_config *config,
                                struct sl_worker **out_worker, struct sl_err *err) {
    struct sl_worker *w = calloc(1, sizeof *w);
    if (!w)
        return sl_fail(err, SL_ERR_NOMEM, "no memory for a worker");
    w->owner = (struct sl_link_owner){was_received, was_lost};
    w->listeners.accepted = was_accepted;
    w->progress.report = report;
    w->pieces = (struct sl_piece_source){ask_piece, piece_wanted};
    w->config = *config;
    w->config.engine.link_bytes = sl_worker_link_bytes(config->key);
    pthread_mutex_init(&w->cache_lock, NULL);
    pthread_mutex_init(&w->lock, NULL);
    sl_cond_init(&w->changed);
    uint64_t content = 0;
    enum sl_status status = config->model ? sl_model_content(config->model, &content, err) : SL_OK;
    if (status == SL_OK && config->model)
        status = sl_worker_offer(&w->config, content, &w->offer, err);
    w->config.engine.devices_logged = status == SL_OK && config->model;
    if (status != SL_OK)
        sl_worker_destroy(&w);
    else
        *out_worker = w;
    return status;
}

enum sl_status sl_worker_run(struct sl_worker *w, struct sl_err *err) {
    const struct sl_worker_config *config = &w->config;
    const struct sl_link_config links = {.key = config->key,
                                         .heartbeat_ns = HEARTBEAT_NS,
                                         .silence_ns = SILENCE_NS,
                                         .max_payload_bytes =
                                             config->cache ? PIECE_MOST_BYTES : SL_SETUP_MAX_BYTES,
                                         .queue_bytes = SETUP_QUEUE_BYTES};
    struct sl_listener *listener;
    SL_TRY(sl_listener_open(config->address, &links, &w->listeners, &listener, err));
    pthread_mutex_lock(&w->lock);
    w->listens = true;
    pthread_mutex_unlock(&w->lock);
    if (config->listening)
        config->listening(config->ctx, sl_listener_address(listener));
    serve(w);
    sl_listener_close(listener);
    pthread_mutex_lock(&w->lock);
    w->listens = false;
    pthread_mutex_unlock(&w->lock);
    if (w->link)
        disconnect(w);
    if (w->useless != SL_OK)
        *err = w->useless_why;
    return w->useless;
}

void sl_worker_destroy(struct sl_worker **pw) {
    struct sl_worker *w = *pw;
    if (!w)
        return;
    close_stages(w);
    if (fetches(w))
        forget_model(w);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    pthread_mutex_destroy(&w->cache_lock);
    free(w);
    *pw = NULL;
}

const char *sl_worker_state_name(enum sl_worker_state state) {
    static const char *const names[SL_WORKER_STATES] = {"starting", "waiting", "loading",
                                                        "serving"};
    return names[state];
}

void sl_worker_look(struct sl_worker *w, struct sl_worker_look *out) {
    static const enum sl_worker_state shown[SL_WORKER_PHASES] = {
        [SL_WORKER_PHASE_WAITING] = SL_WORKER_WAITING,
        [SL_WORKER_PHASE_GREETING] = SL_WORKER_LOADING,
        [SL_WORKER_PHASE_GREETED] = SL_WORKER_LOADING,
        [SL_WORKER_PHASE_OFFERING] = SL_WORKER_LOADING,
        [SL_WORKER_PHASE_LOADING] = SL_WORKER_LOADING,
        [SL_WORKER_PHASE_SERVING] = SL_WORKER_SERVING,
        /* It keeps others out until its link is closed. */
        [SL_WORKER_PHASE_PARTING] = SL_WORKER_SERVING,
    };
    *out = (struct sl_worker_look){.state = SL_WORKER_STARTING};
    pthread_mutex_lock(&w->lock);
    bool linked = w->link && w->phase != SL_WORKER_PHASE_PARTING;
    if (w->listens)
        out->state = shown[w->phase];
    out->n_coordinators = w->n_coordinators;
    out->done_bytes = w->loading.done_bytes;
    out->total_bytes = w->loading.total_bytes;
    if (linked)
        out->link = sl_link_stats(w->link);
    out->n_stages = w->shown ? sl_worker_n_stages(w->shown) : 0;
    for (uint32_t i = 0; i < out->n_stages; i++)
        sl_worker_stage_look(w->shown, i, &out->stages[i]);
    pthread_mutex_unlock(&w->lock);
}
