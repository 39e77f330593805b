#include "cluster/coordinator.h"

#include "backends/registry.h"
#include "cluster/setup.h"
#include "common/clock.h"
#include "common/cond.h"
#include "common/log.h"
#include "common/version.h"
#include "engine/stage/joint_heat.h"
#include "engine/stage/stage_remote.h"
#include "engine/types/plan.h"
#include "common/bytes.h"
#include "net/frame.h"
#include "net/link.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CONNECT_NS   10000000000u /* for one try */
#define AGAIN_NS     250000000u   /* between two */
#define LOOK_NS      50000000u    /* how often it is looked who is lost */
#define HEARTBEAT_NS 1000000000u
#define SILENCE_NS   5000000000u
#define LINGER_NS    1000000000u
/* Before shapes are agreed on. */
#define SETUP_QUEUE_BYTES (4u * SL_SETUP_MAX_BYTES)
/* What is written, and what is read. */
#define QUEUE_MESSAGES 3u
#define STAGE_BYTES    4u /* in front of each message: which of the worker's stages it is for */

enum asked { ASKED_OFFER, ASKED_LOAD, ASKED_NOTHING };

struct worker;

/* A stage of a worker: how messages get there. */
struct port {
    struct sl_stage_carrier carrier; /* first */
    struct worker *w;
    uint32_t at;                    /* which of the worker's */
    struct sl_stage_remote *remote; /* under the worker's lock */
};

struct worker {
    struct sl_link_owner owner; /* first */
    struct sl_cluster *cluster;
    const char *address;
    struct sl_link *link;
    struct sl_setup_offer offer;
    uint32_t first; /* of the cluster's devices, which is its first */
    struct sl_setup_load load;
    struct port ports[SL_MAX_STAGES];
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Under the lock. */
    enum asked asked; /* what is waited for */
    bool has_hello;
    bool there; /* its stages can be asked */
    struct sl_setup_ready ready;
    uint64_t done_bytes, total_bytes; /* of loading */
    enum sl_status lost;              /* not SL_OK: it is gone, or has refused */
    struct sl_err why;
};

struct sl_cluster {
    struct sl_remote_stages base; /* first */
    struct sl_cluster_config config;
    const struct sl_model *model;
    uint32_t epoch;
    struct worker *workers; /* [config.n_workers] */
    struct sl_host_config hosts[SL_CLUSTER_MAX_WORKERS];
    const struct sl_stage_plan *plans[SL_MAX_STAGES]; /* [base.n] from load on */
    /* Who looks for workers that are lost. */
    pthread_t keeper;
    bool keeper_started;
    volatile bool closing;
};

static const struct sl_cluster *cluster_of(const struct sl_remote_stages *r) {
    return (const struct sl_cluster *)(const void *)r;
}

/* ---- what comes from a worker ---- */

static enum sl_status refused(struct worker *w, const struct sl_frame *f, struct sl_err *err) {
    struct sl_setup_refuse m;
    SL_TRY(sl_setup_get_refuse(f->bytes, f->n, &m, err));
    return sl_fail(err, SL_ERR_CONFIG, "%s: %s", w->address, m.why);
}

static enum sl_status take_hello(struct worker *w, const struct sl_frame *f, struct sl_err *err) {
    struct sl_setup_hello m;
    SL_TRY(sl_setup_get_hello(f->bytes, f->n, &m, err));
    if (m.role != 2)
        return sl_fail(err, SL_ERR_CONFIG, "%s is no worker", w->address);
    if (strcmp(m.program, SL_VERSION) != 0 || m.messages != SL_MESSAGE_VERSION)
        return sl_fail(err, SL_ERR_CONFIG,
                       "the worker at %s is version %s, and this is %s: install the same on both",
                       w->address, m.program, SL_VERSION);
    w->has_hello = true;
    return SL_OK;
}

static enum sl_status take_offer(struct worker *w, const struct sl_frame *f, struct sl_err *err) {
    const struct sl_model *m = w->cluster->model;
    struct sl_setup_offer *o = &w->offer;
    SL_TRY(sl_setup_get_offer(f->bytes, f->n, o, err));
    if (o->fingerprint != sl_model_fingerprint(m))
        return sl_fail(err, SL_ERR_CONFIG,
                       "the worker at %s has another model, '%s' (%016" PRIx64
                       "): here it is %016" PRIx64,
                       w->address, o->model, o->fingerprint, sl_model_fingerprint(m));
    if (!o->n_devices || !o->ram_bytes || o->process_bytes > o->ram_bytes)
        return sl_fail(err, SL_ERR_PROTOCOL, "the worker at %s offers no device, or no memory",
                       w->address);
    w->asked = ASKED_NOTHING;
    return SL_OK;
}

static enum sl_status take_ready(struct worker *w, const struct sl_frame *f, struct sl_err *err) {
    SL_TRY(sl_setup_get_ready(f->bytes, f->n, &w->ready, err));
    w->asked = ASKED_NOTHING;
    return SL_OK;
}

static enum sl_status take_progress(struct worker *w, const struct sl_frame *f,
                                    struct sl_err *err) {
    struct sl_setup_progress m;
    SL_TRY(sl_setup_get_progress(f->bytes, f->n, &m, err));
    w->done_bytes = m.done_bytes < m.total_bytes ? m.done_bytes : m.total_bytes;
    w->total_bytes = m.total_bytes;
    return SL_OK;
}

static enum sl_status take_answer(struct worker *w, const struct sl_frame *f, struct sl_err *err) {
    uint32_t at = f->n >= STAGE_BYTES ? sl_get_u32(f->bytes) : UINT32_MAX;
    if (at >= SL_MAX_STAGES || !w->ports[at].remote)
        return sl_fail(err, SL_ERR_PROTOCOL, "an answer of a stage that there is not");
    return sl_stage_remote_received(w->ports[at].remote, f->bytes + STAGE_BYTES, f->n - STAGE_BYTES,
                                    err);
}

static enum sl_status take(struct worker *w, const struct sl_frame *f, struct sl_err *err) {
    if (f->type == SL_FRAME_REFUSE)
        return refused(w, f, err);
    if (f->type == SL_FRAME_ANSWER && w->asked == ASKED_NOTHING)
        return take_answer(w, f, err);
    if (f->type == SL_FRAME_PROGRESS && w->asked == ASKED_LOAD)
        return take_progress(w, f, err);
    if (f->type == SL_FRAME_READY && w->asked == ASKED_LOAD)
        return take_ready(w, f, err);
    if (f->type == SL_FRAME_HELLO && !w->has_hello)
        return take_hello(w, f, err);
    if (f->type == SL_FRAME_OFFER && w->has_hello && w->asked == ASKED_OFFER)
        return take_offer(w, f, err);
    return sl_fail(err, SL_ERR_PROTOCOL, "the worker at %s sent a frame of type %u out of turn",
                   w->address, f->type);
}

static enum sl_status was_received(struct sl_link_owner *o, struct sl_link *l,
                                   const struct sl_frame *f, struct sl_err *err) {
    struct worker *w = (struct worker *)(void *)o;
    (void)l;
    pthread_mutex_lock(&w->lock);
    enum sl_status st = take(w, f, err);
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    return st;
}

static void was_lost(struct sl_link_owner *o, struct sl_link *l, enum sl_status status,
                     const struct sl_err *why) {
    struct worker *w = (struct worker *)(void *)o;
    (void)l;
    pthread_mutex_lock(&w->lock);
    if (w->lost == SL_OK) {
        w->lost = status == SL_ERR_CONFIG ? status : SL_ERR_PEER_LOST;
        if (status == SL_ERR_CONFIG)
            w->why = *why;
        else
            sl_fail(&w->why, w->lost, "the worker at %s is lost: %.400s", w->address, why->text);
        if (w->there)
            sl_error("%s", w->why.text);
        w->there = false;
    }
    for (uint32_t i = 0; i < SL_MAX_STAGES; i++)
        if (w->ports[i].remote)
            sl_stage_remote_lost(w->ports[i].remote, w->lost, &w->why);
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

/* ---- what goes to one ---- */

static enum sl_status send_setup(struct worker *w, uint16_t type, const uint8_t *bytes, size_t n,
                                 struct sl_err *err) {
    const struct sl_bytes_part part = {bytes, n};
    enum sl_status st = sl_link_send(w->link, type, w->cluster->epoch, &part, 1);
    return st == SL_OK ? SL_OK : sl_fail(err, st, "%s: %s", w->address, sl_status_text(st));
}

static enum sl_status carry(struct sl_stage_carrier *c, enum sl_message_kind kind,
                            const uint8_t *bytes, size_t n) {
    struct port *p = (struct port *)(void *)c;
    uint8_t at[STAGE_BYTES];
    sl_put_u32(at, p->at);
    const struct sl_bytes_part parts[] = {{at, sizeof at}, {bytes, n}};
    return sl_link_send(p->w->link, kind == SL_MESSAGE_ASK ? SL_FRAME_CALL : SL_FRAME_CANCEL,
                        p->w->cluster->epoch, parts, 2);
}

/* The engine closes the stage: nothing that comes now may reach it. */
static void port_closed(struct sl_stage_carrier *c) {
    struct port *p = (struct port *)(void *)c;
    pthread_mutex_lock(&p->w->lock);
    p->remote = NULL;
    pthread_mutex_unlock(&p->w->lock);
}

/* ---- connecting ---- */

static bool is_canceled(const struct sl_cluster *c) {
    return c->closing || (c->config.cancel && *c->config.cancel);
}

static void pause_ns(uint64_t ns) {
    nanosleep(&(struct timespec){(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)}, NULL);
}

/* Until one answers. */
static enum sl_status reach(struct sl_cluster *c, struct worker *w, uint64_t wait_ns,
                            struct sl_err *err) {
    const struct sl_link_config config = {.key = c->config.key,
                                          .connect_ns = CONNECT_NS,
                                          .heartbeat_ns = HEARTBEAT_NS,
                                          .silence_ns = SILENCE_NS,
                                          .max_payload_bytes = SL_SETUP_MAX_BYTES,
                                          .queue_bytes = SETUP_QUEUE_BYTES};
    uint64_t until_ns = sl_now_ns() + wait_ns;
    bool told = false;
    for (;;) {
        enum sl_status st =
            sl_link_connect(w->address, &config, &w->owner, &c->closing, &w->link, err);
        if (st != SL_ERR_PEER_LOST || sl_now_ns() > until_ns || is_canceled(c))
            return st;
        if (!told)
            sl_info("waiting for the worker at %s: %s", w->address, err->text);
        told = true;
        pause_ns(AGAIN_NS);
    }
}

/* Until what was asked has come. */
static enum sl_status wait_for(struct sl_cluster *c, struct worker *w, uint64_t most_ns,
                               struct sl_err *err) {
    uint64_t until_ns = sl_now_ns() + most_ns;
    pthread_mutex_lock(&w->lock);
    while (w->asked != ASKED_NOTHING && w->lost == SL_OK && !is_canceled(c) &&
           sl_now_ns() < until_ns)
        sl_cond_wait_until(&w->changed, &w->lock, sl_now_ns() + AGAIN_NS);
    enum sl_status st = w->lost;
    if (st != SL_OK)
        *err = w->why;
    else if (is_canceled(c))
        st = sl_fail(err, SL_ERR_CANCELED, "interrupted");
    else if (w->asked != ASKED_NOTHING)
        st = sl_fail(err, SL_ERR_PEER_LOST, "the worker at %s does not answer", w->address);
    pthread_mutex_unlock(&w->lock);
    return st;
}

static enum sl_status meet(struct sl_cluster *c, struct worker *w, uint64_t wait_ns,
                           struct sl_err *err) {
    struct sl_setup_hello hello = {.role = 1, .messages = SL_MESSAGE_VERSION};
    uint8_t bytes[SL_SETUP_MAX_BYTES];
    snprintf(hello.program, sizeof hello.program, "%s", SL_VERSION);
    if (gethostname(hello.name, sizeof hello.name - 1) != 0)
        snprintf(hello.name, sizeof hello.name, "?");
    SL_TRY(reach(c, w, wait_ns, err));
    SL_TRY(sl_link_start(w->link, err));
    /* One that refuses has said why before it closed. */
    if (send_setup(w, SL_FRAME_HELLO, bytes, sl_setup_put_hello(&hello, bytes), err) == SL_AGAIN)
        return SL_ERR_PEER_LOST;
    return wait_for(c, w, CONNECT_NS + wait_ns, err);
}

static enum sl_status list_devices(struct sl_cluster *c, struct worker *w, uint32_t host,
                                   struct sl_err *err) {
    struct sl_remote_stages *r = &c->base;
    const struct sl_setup_offer *o = &w->offer;
    struct sl_host_config *h = &c->hosts[host];
    w->first = r->n;
    snprintf(h->name, sizeof h->name, "%s", w->address);
    h->ram_bytes = o->ram_bytes;
    h->pinned_bytes = o->pinned_bytes;
    h->process_bytes = o->process_bytes;
    h->ram_bytes_per_s = o->ram_bytes_per_s;
    h->disk_bytes_per_s = o->disk_bytes_per_s;
    for (uint32_t i = 0; i < o->n_devices; i++) {
        if (r->n + 1 >= SL_MAX_STAGES)
            return sl_fail(err, SL_ERR_CONFIG,
                           "the workers have more devices than a model can be divided over (%u): "
                           "give them fewer with --device",
                           SL_MAX_STAGES);
        r->host_of[r->n] = host;
        r->vram_bytes[r->n++] = o->devices[i].vram_bytes;
    }
    r->n_hosts = host + 1;
    return SL_OK;
}

/* ---- struct sl_remote_stages ---- */

static struct worker *worker_of(const struct sl_cluster *c, uint32_t i) {
    return &c->workers[c->base.host_of[i]];
}

static const struct sl_backend *backend_named(const char *name) {
    const struct sl_backend *b;
    for (uint32_t i = 0; (b = sl_backend_at(i)); i++)
        if (strcmp(b->name, name) == 0 && b->planned)
            return b;
    return NULL;
}

static enum sl_status open_planned(const struct sl_remote_stages *r, uint32_t i,
                                   struct sl_device **out_device, struct sl_err *err) {
    const struct sl_cluster *c = cluster_of(r);
    const struct worker *w = worker_of(c, i);
    const struct sl_setup_device *d = &w->offer.devices[i - w->first];
    const struct sl_backend *b = backend_named(d->backend);
    const struct sl_device_offer offer = {d->memory_bytes, d->memory_bytes_per_s, d->n_threads};
    if (!b)
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "the worker at %s computes with '%s', which this build does not know",
                       w->address, d->backend);
    SL_TRY(b->planned(&offer, i, out_device, err));
    struct sl_device_caps *caps = &(*out_device)->caps;
    memcpy(caps->id, d->id, sizeof caps->id);
    memcpy(caps->model, d->model, sizeof caps->model);
    memcpy(caps->arithmetic_id, d->arithmetic, sizeof caps->arithmetic_id);
    snprintf(caps->name, sizeof caps->name, "%.30s %.30s", w->address, d->model);
    return SL_OK;
}

static struct sl_setup_load load_of(const struct sl_cluster *c, const struct worker *w,
                                    const struct sl_stage_plans *plans) {
    const struct sl_memory_plan *p = &plans->at[plans->n_local].plan;
    const struct sl_engine_config *g = &p->config;
    struct sl_setup_load m = {
        .fingerprint = sl_model_fingerprint(c->model),
        .n_stages = plans->n,
        .n_layer = c->model->hp.n_layer,
        .ctx_tokens = g->ctx_tokens,
        .parallel = g->parallel,
        .batch_tokens = g->batch_tokens,
        .queue_max = g->queue_max,
        .cache_ram_bytes = g->cache_ram_bytes,
        .kv_dtype = (uint32_t)g->kv_dtype,
        .experts = (uint32_t)g->experts,
        .no_overflow = g->no_overflow,
        .no_lookahead = g->no_lookahead,
        .no_warm_up = g->no_warm_up,
        .any_discrete = p->pages_discrete,
        .session_pages = p->session_pages,
        .n_pages = p->n_pages,
        .n_tails = p->n_tails,
        .tail_pages = p->tail_pages,

    };
    for (uint32_t i = 0; i < w->offer.n_devices; i++) {
        const struct sl_stage_plan *s = &plans->at[plans->n_local + w->first + i];
        m.of_worker[m.n_of_worker++] = (struct sl_setup_stage){
            .stage = plans->n_local + w->first + i,
            .device = i,
            .first_layer = s->model.hp.first_layer,
            .n_layer = s->model.hp.n_layer,
            .ram_bytes = s->plan.budget_bytes,
            .pinned_bytes = s->plan.config.pinned_bytes,
            .vram_bytes = s->plan.vram_budget_bytes,
            .first_on_host = s->plan.first_on_host,
        };
    }
    return m;
}

static enum sl_status send_load(struct worker *w, struct sl_err *err) {
    uint8_t bytes[SL_SETUP_MAX_BYTES];
    pthread_mutex_lock(&w->lock);
    w->asked = ASKED_LOAD;
    w->done_bytes = w->total_bytes = 0;
    pthread_mutex_unlock(&w->lock);
    return send_setup(w, SL_FRAME_LOAD, bytes, sl_setup_put_load(&w->load, bytes), err);
}

static enum sl_status load(const struct sl_remote_stages *r, const struct sl_stage_plans *plans,
                           struct sl_err *err) {
    struct sl_cluster *c = (struct sl_cluster *)(uintptr_t)cluster_of(r);
    for (uint32_t i = 0; i < r->n; i++)
        c->plans[i] = &plans->at[plans->n_local + i];
    for (uint32_t i = 0; i < c->config.n_workers; i++) {
        struct worker *w = &c->workers[i];
        w->load = load_of(c, w, plans);
        SL_TRY(send_load(w, err));
    }
    return SL_OK;
}

/* What a worker says of a stage is what the plan says. */
static enum sl_status check_hello(const struct worker *w, const struct sl_setup_hello_of_stage *h,
                                  const struct sl_stage_plan *s, const struct sl_hparams *whole,
                                  struct sl_err *err) {
    const struct sl_hparams *hp = &s->model.hp;
    const struct sl_memory_plan *p = &s->plan;
    uint32_t n_routed = 0;
    for (uint32_t l = 0; l < hp->n_layer; l++)
        n_routed += sl_model_layer_is_moe(&s->model, l);
    bool sound = h->first_layer == hp->first_layer && h->n_layer == hp->n_layer &&
                 h->n_embd == whole->n_embd && h->n_vocab == whole->n_vocab &&
                 h->n_logit_rows == p->n_logit_rows && h->n_routed == n_routed &&
                 h->n_expert == whole->n_expert && h->page_bytes <= p->page_bytes &&
                 h->tail_bytes <= p->tail_page_bytes && h->heat_bytes <= sl_joint_heat_bytes(whole);
    return sound ? SL_OK
                 : sl_fail(err, SL_ERR_PROTOCOL,
                           "the worker at %s has loaded layers %u to %u in other shapes than were "
                           "planned here",
                           w->address, hp->first_layer, hp->first_layer + hp->n_layer - 1);
}

static struct sl_stage_hello hello_of(const struct sl_setup_hello_of_stage *m) {
    struct sl_stage_hello h = {
        .rows_alike = m->rows_alike,
        .arithmetic = {m->arithmetic_lo, m->arithmetic_hi},
        .first_layer = m->first_layer,
        .n_layer = m->n_layer,
        .n_embd = m->n_embd,
        .n_vocab = m->n_vocab,
        .n_logit_rows = m->n_logit_rows,
        .n_routed = m->n_routed,
        .n_expert = m->n_expert,
        .page_bytes = m->page_bytes,
        .tail_bytes = m->tail_bytes,
        .heat_bytes = m->heat_bytes,
    };
    memcpy(h.device, m->device, sizeof h.device);
    return h;
}

/* Passes on how far loading has come. */
static enum sl_status watch_load(struct sl_cluster *c, struct worker *w,
                                 struct sl_progress *progress, struct sl_err *err) {
    pthread_mutex_lock(&w->lock);
    bool canceled = false;
    while (w->asked == ASKED_LOAD && w->lost == SL_OK && !canceled && !is_canceled(c)) {
        sl_cond_wait_until(&w->changed, &w->lock, sl_now_ns() + AGAIN_NS);
        uint64_t done = w->done_bytes, total = w->total_bytes;
        pthread_mutex_unlock(&w->lock);
        if (progress && total)
            canceled = !progress->report(progress, done, total);
        pthread_mutex_lock(&w->lock);
    }
    enum sl_status st = w->lost;
    if (st != SL_OK)
        *err = w->why;
    else if (w->asked == ASKED_LOAD)
        st = sl_fail(err, SL_ERR_CANCELED, "loading was canceled");
    pthread_mutex_unlock(&w->lock);
    return st;
}

/* The limits of messages to the i-th device's stage, and room for them, once its worker is ready.
 */
static enum sl_status agree(struct sl_cluster *c, uint32_t i, struct sl_stage_hello *out_hello,
                            struct sl_message_limits *out_limits, struct sl_err *err) {
    struct worker *w = worker_of(c, i);
    const struct sl_setup_hello_of_stage *m = &w->ready.stages[i - w->first];
    if (w->ready.n_stages != w->load.n_of_worker)
        return sl_fail(err, SL_ERR_PROTOCOL, "the worker at %s has loaded %u of %u stages",
                       w->address, w->ready.n_stages, w->load.n_of_worker);
    SL_TRY(check_hello(w, m, c->plans[i], &c->model->hp, err));
    *out_hello = hello_of(m);
    *out_limits = sl_message_limits(&c->plans[i]->plan, out_hello);
    size_t most = STAGE_BYTES + sl_message_max_bytes(out_limits);
    if (sl_link_set_max_payload(w->link, most, w->load.n_of_worker * QUEUE_MESSAGES * most) !=
        SL_OK)
        return sl_fail(err, SL_ERR_NOMEM, "no memory for messages of %zu bytes", most);
    return SL_OK;
}

static enum sl_status wait_stage(const struct sl_remote_stages *r, uint32_t i,
                                 struct sl_progress *progress, struct sl_stage **out_stage,
                                 struct sl_err *err) {
    struct sl_cluster *c = (struct sl_cluster *)(uintptr_t)cluster_of(r);
    struct worker *w = worker_of(c, i);
    struct port *port = &w->ports[i - w->first];
    struct sl_stage_hello hello;
    struct sl_message_limits limits;
    SL_TRY(watch_load(c, w, progress, err));
    SL_TRY(agree(c, i, &hello, &limits, err));
    port->carrier = (struct sl_stage_carrier){.send = carry, .closed = port_closed};
    port->w = w;
    port->at = i - w->first;
    struct sl_stage_remote *remote = NULL;
    SL_TRY(sl_stage_remote_create(&limits, &hello, &port->carrier, &remote, err));
    pthread_mutex_lock(&w->lock);
    port->remote = remote;
    w->there = w->lost == SL_OK;
    if (!w->there)
        sl_stage_remote_lost(remote, w->lost, &w->why);
    pthread_mutex_unlock(&w->lock);
    *out_stage = sl_stage_remote_stage(remote);
    return SL_OK;
}

static bool all_there(const struct sl_remote_stages *r, struct sl_err *out_why) {
    const struct sl_cluster *c = cluster_of(r);
    bool there = true;
    for (uint32_t i = 0; i < c->config.n_workers && there; i++) {
        struct worker *w = &c->workers[i];
        pthread_mutex_lock(&w->lock);
        there = w->there;
        if (!there)
            *out_why = w->why;
        pthread_mutex_unlock(&w->lock);
    }
    return there;
}

/* ---- workers that are lost ---- */

/* Gives an attempt up: the reason stays what it was at first, but for what a worker says. */
static void stays_lost(struct worker *w, enum sl_status st, const struct sl_err *why) {
    pthread_mutex_lock(&w->lock);
    w->lost = SL_ERR_PEER_LOST;
    if (st == SL_ERR_CONFIG)
        w->why = *why;
    pthread_mutex_unlock(&w->lock);
}

static enum sl_status load_again(struct sl_cluster *c, struct worker *w, struct sl_err *err) {
    struct sl_stage_hello hello;
    struct sl_message_limits limits;
    SL_TRY(meet(c, w, 0, err));
    if (w->offer.n_devices != w->load.n_of_worker)
        return sl_fail(err, SL_ERR_CONFIG, "the worker at %s has %u devices now, not %u",
                       w->address, w->offer.n_devices, w->load.n_of_worker);
    SL_TRY(send_load(w, err));
    SL_TRY(watch_load(c, w, NULL, err));
    for (uint32_t i = 0; i < w->load.n_of_worker; i++)
        SL_TRY(agree(c, w->first + i, &hello, &limits, err));
    return SL_OK;
}

static void regain(struct sl_cluster *c, struct worker *w) {
    struct sl_err err = {{0}};
    if (w->link)
        sl_link_close(w->link, 0);
    w->link = NULL;
    pthread_mutex_lock(&w->lock);
    w->asked = ASKED_OFFER;
    w->has_hello = false;
    w->lost = SL_OK;
    pthread_mutex_unlock(&w->lock);
    c->epoch++;
    enum sl_status st = load_again(c, w, &err);
    if (st != SL_OK) {
        stays_lost(w, st, &err);
        return;
    }
    pthread_mutex_lock(&w->lock);
    w->there = w->lost == SL_OK;
    for (uint32_t i = 0; i < SL_MAX_STAGES && w->there; i++)
        if (w->ports[i].remote)
            sl_stage_remote_regain(w->ports[i].remote);
    pthread_mutex_unlock(&w->lock);
    sl_info("the worker at %s is back", w->address);
}

static void *keeper_main(void *arg) {
    struct sl_cluster *c = arg;
    while (!c->closing) {
        pause_ns(LOOK_NS);
        for (uint32_t i = 0; i < c->config.n_workers && !c->closing; i++) {
            struct worker *w = &c->workers[i];
            pthread_mutex_lock(&w->lock);
            bool lost = w->lost != SL_OK && w->ports[0].remote; /* else its opener hears of it */
            pthread_mutex_unlock(&w->lock);
            if (lost)
                regain(c, w);
        }
    }
    return NULL;
}

/* ---- opened, closed ---- */

enum sl_status sl_cluster_open(const struct sl_cluster_config *config, const struct sl_model *model,
                               struct sl_cluster **out_cluster, struct sl_err *err) {
    struct sl_cluster *c = calloc(1, sizeof *c);
    if (!c || !(c->workers = calloc(config->n_workers, sizeof *c->workers))) {
        free(c);
        return sl_fail(err, SL_ERR_NOMEM, "no memory for a list of workers");
    }
    c->base = (struct sl_remote_stages){.hosts = c->hosts,
                                        .wait_ns = config->wait_ns,
                                        .all_there = all_there,
                                        .open_planned = open_planned,
                                        .load = load,
                                        .wait = wait_stage};
    c->config = *config;
    c->model = model;
    c->epoch = 1;
    for (uint32_t i = 0; i < config->n_workers; i++) {
        struct worker *w = &c->workers[i];
        w->owner = (struct sl_link_owner){was_received, was_lost};
        w->cluster = c;
        w->address = config->workers[i];
        pthread_mutex_init(&w->lock, NULL);
        sl_cond_init(&w->changed);
    }
    enum sl_status st = SL_OK;
    for (uint32_t i = 0; i < config->n_workers && st == SL_OK; i++) {
        st = meet(c, &c->workers[i], c->config.wait_ns, err);
        if (st == SL_OK)
            st = list_devices(c, &c->workers[i], i, err);
    }
    if (st == SL_OK && pthread_create(&c->keeper, NULL, keeper_main, c) != 0)
        st = sl_fail(err, SL_ERR_NOMEM, "no thread that looks after workers could be started");
    c->keeper_started = st == SL_OK;
    if (st != SL_OK) {
        sl_cluster_close(&c);
        return st;
    }
    pthread_setname_np(c->keeper, "sl-keeper");
    *out_cluster = c;
    return SL_OK;
}

const struct sl_remote_stages *sl_cluster_stages(const struct sl_cluster *c) {
    return &c->base;
}

void sl_cluster_close(struct sl_cluster **pc) {
    struct sl_cluster *c = *pc;
    if (!c)
        return;
    c->closing = true;
    if (c->keeper_started)
        pthread_join(c->keeper, NULL);
    for (uint32_t i = 0; i < c->config.n_workers; i++) {
        struct worker *w = &c->workers[i];
        if (w->link)
            sl_link_close(w->link, LINGER_NS);
        pthread_cond_destroy(&w->changed);
        pthread_mutex_destroy(&w->lock);
    }
    free(c->workers);
    free(c);
    *pc = NULL;
}
