#include "cluster/coordinator.h"

#include "backends/registry/registry.h"
#include "cluster/peer.h"
#include "cluster/worker.h"
#include "common/cpus.h"
#include "common/clock.h"
#include "common/interrupt.h"
#include "common/log.h"
#include "engine/prefix/model_identity.h"
#include "engine/stage/joint_heat.h"
#include "engine/types/plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* How often workers are checked for loss. */
#define LOOK_NS 50000000u
/* The pause between two tries to reach one. After each refusal it is twice as long, up to the most:
 * a refusal is a line in the other machine's log. */
#define AGAIN_NS      UINT64_C(250000000)
#define AGAIN_MOST_NS UINT64_C(4000000000)

struct tries {
    uint64_t again_ns;  /* not before */
    uint32_t n_refused; /* in a row */
};

/* A worker's keeper: each worker has its own, so that one that is slow or hangs does not hold up
 * the others. */
struct keeper {
    struct sl_cluster *c;
    struct sl_peer *peer;
    pthread_t thread;
    bool started;
    struct tries tries; /* to reach the worker while it is lost */
};

/* A worker in reserve. */
struct spare {
    const char *address; /* NULL: a keeper tries it */
    struct tries tries;
    bool told; /* since the last loss: that it cannot take a place */
};

struct sl_cluster {
    struct sl_remote_stages base; /* first */
    struct sl_cluster_config config;
    const struct sl_model *model;
    struct sl_setup_model files;                  /* what workers without a copy may fetch */
    struct sl_peer peers[SL_CLUSTER_MAX_WORKERS]; /* [config.n_workers] */
    pthread_mutex_t spares_lock;
    struct spare spares[SL_CLUSTER_MAX_WORKERS]; /* [config.n_spares] */
    struct sl_host_config hosts[SL_CLUSTER_MAX_WORKERS];
    const struct sl_stage_plan *plans[SL_MAX_STAGES]; /* [base.n] from load on */
    bool spare_cpus; /* besides what computes in this process; from load on */
    struct keeper keepers[SL_CLUSTER_MAX_WORKERS]; /* [config.n_workers] */
    atomic_bool closing;                           /* also cancels what is waiting */
};

static void pause_ns(uint64_t ns) {
    nanosleep(&(struct timespec){(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)}, NULL);
}

/* The engine sees only struct sl_remote_stages; behind it is the cluster. */
static struct sl_cluster *cluster_of(const struct sl_remote_stages *r) {
    return (struct sl_cluster *)(uintptr_t)r;
}

static enum sl_status list_devices(struct sl_cluster *c, struct sl_peer *p, uint32_t host,
                                   struct sl_err *err) {
    struct sl_remote_stages *r = &c->base;
    const struct sl_setup_offer *o = &p->offer;
    struct sl_host_config *h = &c->hosts[host];
    p->first = r->n;
    snprintf(h->name, sizeof h->name, "%s", p->address);
    h->ram_bytes = o->ram_bytes;
    h->pinned_bytes = o->pinned_bytes;
    h->process_bytes = o->process_bytes;
    h->link_bytes = sl_worker_link_bytes(p->key);
    h->ram_bytes_per_s = o->ram_bytes_per_s;
    h->disk_bytes_per_s = o->disk_bytes_per_s;
    for (uint32_t i = 0; i < o->n_devices; i++) {
        if (r->n + 1 >= SL_MAX_STAGES)
            return sl_fail(err, SL_ERR_CONFIG,
                           "the workers have more devices than a model can be divided over (%u): "
                           "give them fewer with --device",
                           SL_MAX_STAGES);
        r->host_of[r->n] = host;
        r->memory_bytes_per_s[r->n] = o->devices[i].memory_bytes_per_s;
        r->link_bytes_per_s[r->n] = o->devices[i].link_bytes_per_s;
        r->vram_bytes[r->n++] = o->devices[i].vram_bytes;
    }
    r->n_hosts = host + 1;
    return SL_OK;
}

/* ---- struct sl_remote_stages ---- */

static struct sl_peer *worker_of(struct sl_cluster *c, uint32_t i) {
    return &c->peers[c->base.host_of[i]];
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
    struct sl_cluster *c = cluster_of(r);
    const struct sl_peer *p = worker_of(c, i);
    const struct sl_setup_device *d = &p->offer.devices[i - p->first];
    const struct sl_backend *b = backend_named(d->backend);
    const struct sl_device_offer offer = {.memory_bytes = d->memory_bytes,
                                          .memory_bytes_per_s = (uint64_t)d->memory_bytes_per_s,
                                          .n_threads = d->n_threads,
                                          .max_alloc_bytes = d->max_alloc_bytes,
                                          .held_bytes = d->held_bytes,
                                          .lacks_ops = d->lacks_ops};
    if (!b) {
        char known[96];
        sl_registry_list_planned(known, sizeof known);
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "the worker at %s computes with '%s', and no plan can be made for that from "
                       "here: give it a --device of one of %s",
                       p->address, d->backend, known);
    }
    SL_TRY(b->planned(&offer, i, out_device, err));
    struct sl_device_caps *caps = &(*out_device)->caps;
    memcpy(caps->id, d->id, sizeof caps->id);
    memcpy(caps->model, d->model, sizeof caps->model);
    memcpy(caps->arithmetic_id, d->arithmetic, sizeof caps->arithmetic_id);
    snprintf(caps->name, sizeof caps->name, "%.30s %.30s", p->address, d->model);
    return SL_OK;
}

static struct sl_setup_load load_of(const struct sl_cluster *c, const struct sl_peer *p,
                                    const struct sl_stage_plans *plans) {
    const struct sl_memory_plan *plan = &plans->at[plans->n_local].plan;
    const struct sl_engine_config *g = &plan->config;
    struct sl_setup_load m = {
        .content = c->files.content,
        .n_stages = plans->n,
        .n_layer = c->model->hp.n_layer,
        .ctx_tokens = g->ctx_tokens,
        .parallel = g->parallel,
        .batch_tokens = g->batch_tokens,
        .queue_max = g->queue_max,
        .cache_ram_bytes = g->cache_ram_bytes,
        .kv_dtype = (uint32_t)g->kv_dtype,
        .experts = (uint32_t)g->experts,
        .tables = (uint32_t)g->tables,
        .table_cache_bytes = g->table_cache_bytes,
        .no_overflow = g->no_overflow,
        .no_lookahead = g->no_lookahead,
        .no_warm_up = g->no_warm_up,
        .any_discrete = plan->pages_discrete,
        .session_pages = plan->session_pages,
        .n_pages = plan->n_pages,
        .n_tails = plan->n_tails,
        .tail_pages = plan->tail_pages,
    };
    for (uint32_t i = 0; i < p->offer.n_devices; i++) {
        const struct sl_stage_plan *s = &plans->at[plans->n_local + p->first + i];
        m.of_worker[m.n_of_worker++] = (struct sl_setup_stage){
            .stage = plans->n_local + p->first + i,
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

static enum sl_status load(const struct sl_remote_stages *r, const struct sl_stage_plans *plans,
                           struct sl_err *err) {
    struct sl_cluster *c = cluster_of(r);
    for (uint32_t i = 0; i < r->n; i++)
        c->plans[i] = &plans->at[plans->n_local + i];
    uint32_t n_busy = 0;
    for (uint32_t i = 0; i < plans->n_local; i++)
        n_busy += sl_plan_busy_cpus(&plans->at[i].plan);
    c->spare_cpus = sl_cpus_spare(n_busy, plans->n);
    for (uint32_t i = 0; i < c->config.n_workers; i++) {
        struct sl_peer *p = &c->peers[i];
        const struct sl_setup_load asked = load_of(c, p, plans);
        pthread_mutex_lock(&p->lock);
        p->load = asked;
        pthread_mutex_unlock(&p->lock);
        SL_TRY(sl_peer_send_load(p, err));
    }
    return SL_OK;
}

/* A worker's account of a stage must match the plan. */
static enum sl_status check_hello(const struct sl_peer *p, const struct sl_setup_hello_of_stage *h,
                                  const struct sl_stage_plan *s, const struct sl_hparams *whole,
                                  struct sl_err *err) {
    const struct sl_hparams *hp = &s->model.hp;
    const struct sl_memory_plan *plan = &s->plan;
    uint32_t n_routed = 0;
    for (uint32_t l = 0; l < hp->n_layer; l++)
        n_routed += sl_model_layer_is_moe(&s->model, l);
    bool sound = h->first_layer == hp->first_layer && h->n_layer == hp->n_layer &&
                 h->n_row == sl_row_elems(whole) && h->n_embd == whole->n_embd &&
                 h->n_vocab == whole->n_vocab && h->n_logit_rows == plan->n_logit_rows &&
                 h->n_routed == n_routed && h->n_expert == whole->n_expert &&
                 h->page_bytes <= plan->page_bytes && h->tail_bytes <= plan->tail_page_bytes &&
                 h->heat_bytes <= sl_joint_heat_bytes(whole);
    return sound ? SL_OK
                 : sl_fail(err, SL_ERR_PROTOCOL,
                           "the worker at %s has loaded layers %u to %u in other shapes than were "
                           "planned here",
                           p->address, hp->first_layer, hp->first_layer + hp->n_layer - 1);
}

static struct sl_stage_hello hello_of(const struct sl_setup_hello_of_stage *m) {
    struct sl_stage_hello h = {
        .rows_alike = m->rows_alike,
        .loses_none = m->loses_none,
        .begins_ahead = m->begins_ahead,
        .arithmetic = {m->arithmetic_lo, m->arithmetic_hi},
        .first_layer = m->first_layer,
        .n_layer = m->n_layer,
        .n_row = m->n_row,
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

/* The limits of messages to the i-th device's stage, and room for them, once its worker is ready.
 */
static enum sl_status agree(struct sl_cluster *c, uint32_t i, struct sl_stage_hello *out_hello,
                            struct sl_message_limits *out_limits, struct sl_err *err) {
    struct sl_peer *p = worker_of(c, i);
    const struct sl_setup_hello_of_stage *m = &p->ready.stages[i - p->first];
    if (p->ready.n_stages != p->load.n_of_worker)
        return sl_fail(err, SL_ERR_PROTOCOL, "the worker at %s has loaded %u of %u stages",
                       p->address, p->ready.n_stages, p->load.n_of_worker);
    SL_TRY(check_hello(p, m, c->plans[i], &c->model->hp, err));
    *out_hello = hello_of(m);
    *out_limits = sl_message_limits(&c->plans[i]->plan, out_hello);
    size_t most = SL_PEER_STAGE_BYTES + sl_message_max_bytes(out_limits);
    size_t queue =
        sl_link_queue_bytes(p->load.n_of_worker * sl_message_max_queued(out_limits), most);
    if (sl_link_set_max_payload(p->link, most, queue) != SL_OK)
        return sl_fail(err, SL_ERR_NOMEM, "no memory for messages of %zu bytes", most);
    sl_link_look_out(p->link, c->spare_cpus);
    return SL_OK;
}

static enum sl_status wait_stage(const struct sl_remote_stages *r, uint32_t i,
                                 struct sl_progress *progress, struct sl_stage **out_stage,
                                 struct sl_err *err) {
    struct sl_cluster *c = cluster_of(r);
    struct sl_peer *p = worker_of(c, i);
    uint32_t at = i - p->first;
    struct sl_stage_hello hello;
    struct sl_message_limits limits;
    SL_TRY(sl_peer_watch_load(p, c->config.answer_ns, progress, err));
    SL_TRY(agree(c, i, &hello, &limits, err));
    struct sl_stage_remote *remote = NULL;
    SL_TRY(sl_stage_remote_create(&limits, &hello, sl_peer_port(p, at), &remote, err));
    pthread_mutex_lock(&p->lock);
    p->ports[at].remote = remote;
    p->there = p->lost == SL_OK;
    if (p->there)
        sl_peer_carry(p);
    else
        sl_stage_remote_lost(remote, p->lost, &p->why);
    pthread_mutex_unlock(&p->lock);
    *out_stage = sl_stage_remote_stage(remote);
    return SL_OK;
}

static bool all_there(const struct sl_remote_stages *r, struct sl_err *out_why) {
    struct sl_cluster *c = cluster_of(r);
    bool there = true;
    for (uint32_t i = 0; i < c->config.n_workers && there; i++) {
        struct sl_peer *p = &c->peers[i];
        pthread_mutex_lock(&p->lock);
        there = p->there;
        if (!there)
            *out_why = p->why;
        pthread_mutex_unlock(&p->lock);
    }
    return there;
}

static void resume(const struct sl_remote_stages *r) {
    struct sl_cluster *c = cluster_of(r);
    for (uint32_t i = 0; i < c->config.n_workers; i++) {
        struct sl_peer *p = &c->peers[i];
        pthread_mutex_lock(&p->lock);
        struct sl_stage_remote *remote;
        if (p->there)
            sl_peer_carry(p);
        for (uint32_t at = 0; p->there && (remote = sl_peer_next_open(p, &at));)
            sl_stage_remote_resume(remote);
        pthread_mutex_unlock(&p->lock);
    }
}

static void look(const struct sl_remote_stages *r, uint32_t i, struct sl_remote_look *out) {
    sl_peer_look(&cluster_of(r)->peers[i], out);
}

/* ---- workers that are lost ---- */

static enum sl_status load_again(struct sl_cluster *c, struct sl_peer *p, struct sl_err *err) {
    struct sl_stage_hello hello;
    struct sl_message_limits limits;
    enum sl_status status = SL_OK;
    SL_TRY(sl_peer_meet(p, 0, err));
    if (p->offer.n_devices != p->load.n_of_worker)
        return sl_fail(err, SL_ERR_CONFIG, "the worker at %s has %u devices now, not %u",
                       p->address, p->offer.n_devices, p->load.n_of_worker);
    SL_TRY(sl_peer_send_load(p, err));
    SL_TRY(sl_peer_watch_load(p, c->config.answer_ns, NULL, err));
    for (uint32_t i = 0; i < p->load.n_of_worker && status == SL_OK; i++) {
        SL_TRY(agree(c, p->first + i, &hello, &limits, err));
        pthread_mutex_lock(&p->lock);
        if (p->ports[i].remote && p->lost == SL_OK)
            status = sl_stage_remote_regain(p->ports[i].remote, &limits, &hello, err);
        pthread_mutex_unlock(&p->lock);
    }
    return status;
}

static void set_address(struct sl_peer *p, const char *address) {
    pthread_mutex_lock(&p->lock);
    p->address = address;
    pthread_mutex_unlock(&p->lock);
}

static void note_try(struct tries *t, enum sl_status status) {
    bool refused = status != SL_OK && status != SL_ERR_PEER_LOST;
    t->n_refused = refused ? t->n_refused + 1 : 0;
    uint64_t pause = t->n_refused < 8 ? AGAIN_NS << t->n_refused : AGAIN_MOST_NS;
    t->again_ns = sl_now_ns() + (pause < AGAIN_MOST_NS ? pause : AGAIN_MOST_NS);
}

/* Is it that spare's turn? Then nobody else tries it until put_back(). */
static const char *take_spare(struct sl_cluster *c, uint32_t i) {
    pthread_mutex_lock(&c->spares_lock);
    struct spare *s = &c->spares[i];
    const char *address = sl_now_ns() >= s->tries.again_ns ? s->address : NULL;
    if (address)
        s->address = NULL;
    pthread_mutex_unlock(&c->spares_lock);
    return address;
}

/* What is a spare now, and how it went with the one that was. */
static void put_back(struct sl_cluster *c, uint32_t i, const char *spare, const char *lost,
                     enum sl_status status, const struct sl_err *why) {
    pthread_mutex_lock(&c->spares_lock);
    struct spare *s = &c->spares[i];
    bool tell = status != SL_OK && status != SL_ERR_PEER_LOST && !s->told;
    s->address = status == SL_OK ? lost : spare;
    note_try(&s->tries, status);
    s->told |= tell;
    pthread_mutex_unlock(&c->spares_lock);
    if (tell)
        sl_warn("the spare at %s cannot take the place of %s: %s", spare, lost, why->text);
}

/* What spares have said of that loss they may say again of the next. */
static void loss_is_over(struct sl_cluster *c) {
    pthread_mutex_lock(&c->spares_lock);
    for (uint32_t i = 0; i < c->config.n_spares; i++)
        c->spares[i].told = false;
    pthread_mutex_unlock(&c->spares_lock);
}

/* The first spare with which try() goes well takes the place of a worker. SL_ERR_PEER_LOST: there
 * is none. */
static enum sl_status replace(struct sl_cluster *c, struct sl_peer *p,
                              enum sl_status (*try)(struct sl_cluster *c, struct sl_peer *p,
                                                    struct sl_err *err)) {
    const char *lost = p->address;
    for (uint32_t i = 0; i < c->config.n_spares && !atomic_load(&c->closing); i++) {
        struct sl_err err;
        const char *spare = take_spare(c, i);
        if (!spare) /* another worker's keeper is trying it, or it has refused just now */
            continue;
        set_address(p, spare);
        sl_peer_leave(p);
        enum sl_status status = try(c, p, &err);
        if (status != SL_OK) {
            sl_peer_tell(p, status, &err);
            set_address(p, lost);
        }
        put_back(c, i, spare, lost, status, &err);
        if (status == SL_OK) {
            sl_info("the spare at %s has the place of %s", spare, lost);
            return SL_OK;
        }
    }
    return SL_ERR_PEER_LOST;
}

/* One try. If it fails, the stored reason stays, unless the worker itself gave one. */
static void regain(struct keeper *k) {
    struct sl_cluster *c = k->c;
    struct sl_peer *p = k->peer;
    struct sl_err err = {{0}}, before;
    pthread_mutex_lock(&p->lock);
    before = p->why;
    pthread_mutex_unlock(&p->lock);
    sl_peer_leave(p);
    enum sl_status status = load_again(c, p, &err);
    note_try(&k->tries, status);
    if (status != SL_OK)
        sl_peer_tell(p, status, &err);
    if (status != SL_OK && replace(c, p, load_again) == SL_OK)
        status = SL_OK;
    pthread_mutex_lock(&p->lock);
    if (status == SL_OK)
        status = p->lost;
    p->there = status == SL_OK;
    if (!p->there) {
        p->lost = SL_ERR_PEER_LOST;
        p->why = status == SL_ERR_CONFIG ? err : before;
    }
    struct sl_stage_remote *remote; /* one of several may be back */
    for (uint32_t i = 0; !p->there && (remote = sl_peer_next_open(p, &i));)
        sl_stage_remote_lost(remote, p->lost, &p->why);
    pthread_mutex_unlock(&p->lock);
    if (status != SL_OK)
        return;
    loss_is_over(c);
    sl_info("the worker at %s is back", p->address);
}

static void *keeper_main(void *arg) {
    struct keeper *k = arg;
    struct sl_peer *p = k->peer;
    while (!atomic_load(&k->c->closing)) {
        pause_ns(LOOK_NS);
        sl_peer_watch_calls(p, k->c->config.answer_ns);
        pthread_mutex_lock(&p->lock);
        bool lost = p->lost != SL_OK && sl_peer_is_open(p); /* else its opener hears of it */
        pthread_mutex_unlock(&p->lock);
        if (lost && sl_now_ns() >= k->tries.again_ns)
            regain(k);
    }
    return NULL;
}

static enum sl_status start_keeper(struct sl_cluster *c, uint32_t i, struct sl_err *err) {
    struct keeper *k = &c->keepers[i];
    k->c = c;
    k->peer = &c->peers[i];
    if (pthread_create(&k->thread, NULL, keeper_main, k) != 0)
        return sl_fail(err, SL_ERR_NOMEM, "no thread that looks after a worker could be started");
    k->started = true;
    pthread_setname_np(k->thread, "sl-keeper");
    return SL_OK;
}

/* ---- opened, closed ---- */

/* Of the files: how large, and where each one's first tensor begins. */
static enum sl_status describe(const struct sl_model *model, struct sl_setup_model *out,
                               struct sl_err *err) {
    const struct sl_gguf *g = model->gguf;
    uint32_t most = sizeof out->files / sizeof *out->files;
    SL_TRY(sl_model_content(model, &out->content, err));
    out->header = sl_model_fingerprint(model);
    const char *name = strrchr(sl_gguf_file_path(g, 0), '/');
    snprintf(out->name, sizeof out->name, "%s", name ? name + 1 : sl_gguf_file_path(g, 0));
    out->n_files = sl_gguf_n_files(g) <= most ? sl_gguf_n_files(g) : 0; /* 0: too many to fetch */
    for (uint32_t i = 0; i < out->n_files; i++)
        out->files[i].size_bytes = out->files[i].header_bytes = sl_gguf_file_bytes(g, i);
    for (uint64_t i = 0; i < sl_gguf_n_tensors(g); i++) {
        const struct sl_gguf_tensor *t = sl_gguf_tensor_at(g, i);
        if (t->file < out->n_files && t->offset_bytes < out->files[t->file].header_bytes)
            out->files[t->file].header_bytes = t->offset_bytes;
    }
    return SL_OK;
}

static enum sl_status meet_now(struct sl_cluster *c, struct sl_peer *p, struct sl_err *err) {
    (void)c;
    return sl_peer_meet(p, 0, err);
}

/* The worker, or a spare if it does not answer in time. */
static enum sl_status meet(struct sl_cluster *c, struct sl_peer *p, struct sl_err *err) {
    struct sl_err why;
    enum sl_status status = sl_peer_meet(p, c->config.wait_ns, &why);
    if (status != SL_ERR_PEER_LOST || !c->config.n_spares || sl_interrupt_pending()) {
        *err = why;
        return status;
    }
    if (replace(c, p, meet_now) == SL_OK)
        return SL_OK;
    return sl_fail(err, status, "%.400s; no spare can take its place", why.text);
}

enum sl_status sl_cluster_open(const struct sl_cluster_config *config, const struct sl_model *model,
                               struct sl_cluster **out_cluster, struct sl_err *err) {
    struct sl_cluster *c = calloc(1, sizeof *c);
    if (!c)
        return sl_fail(err, SL_ERR_NOMEM, "no memory for a list of workers");
    c->base = (struct sl_remote_stages){.hosts = c->hosts,
                                        .wait_ns = config->wait_ns,
                                        .all_there = all_there,
                                        .resume = resume,
                                        .look = look,
                                        .open_planned = open_planned,
                                        .load = load,
                                        .wait = wait_stage};
    c->config = *config;
    c->model = model;
    atomic_init(&c->closing, false);
    pthread_mutex_init(&c->spares_lock, NULL);
    for (uint32_t i = 0; i < config->n_spares; i++)
        c->spares[i].address = config->spares[i];
    enum sl_status status = describe(model, &c->files, err);
    for (uint32_t i = 0; i < config->n_workers; i++)
        sl_peer_init(&c->peers[i], config->workers[i], model, &c->files, config->key, &c->closing);
    for (uint32_t i = 0; i < config->n_workers && status == SL_OK; i++) {
        status = meet(c, &c->peers[i], err);
        if (status == SL_OK)
            status = list_devices(c, &c->peers[i], i, err);
    }
    for (uint32_t i = 0; i < config->n_workers && status == SL_OK; i++)
        status = start_keeper(c, i, err);
    if (status != SL_OK) {
        sl_cluster_tell(c, status, err);
        sl_cluster_close(&c);
    } else {
        *out_cluster = c;
    }
    return status;
}

const struct sl_remote_stages *sl_cluster_stages(const struct sl_cluster *c) {
    return &c->base;
}

uint64_t sl_cluster_link_bytes(const struct sl_cluster *c) {
    uint32_t n_fetch = 0, n = c->config.n_workers;
    for (uint32_t i = 0; i < n; i++)
        n_fetch += c->peers[i].wants_model;
    n_fetch += c->config.n_spares; /* what those lack is not known yet */
    return n * sl_link_bytes(c->config.key != NULL) +
           (n_fetch < n ? n_fetch : n) * sl_peer_fetch_bytes();
}

void sl_cluster_tell(struct sl_cluster *c, enum sl_status status, const struct sl_err *why) {
    for (uint32_t i = 0; c && status != SL_ERR_CANCELED && i < c->config.n_workers; i++)
        sl_peer_tell(&c->peers[i], status, why);
}

void sl_cluster_close(struct sl_cluster **pc) {
    struct sl_cluster *c = *pc;
    if (!c)
        return;
    atomic_store(&c->closing, true);
    for (uint32_t i = 0; i < c->config.n_workers; i++)
        if (c->keepers[i].started)
            pthread_join(c->keepers[i].thread, NULL);
    for (uint32_t i = 0; i < c->config.n_workers; i++)
        sl_peer_release(&c->peers[i]);
    pthread_mutex_destroy(&c->spares_lock);
    free(c);
    *pc = NULL;
}
