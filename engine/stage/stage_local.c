#include "engine/stage/stage_local.h"

#include "common/clock.h"
#include "engine/experts/expert_tiers.h"
#include "engine/forward/arithmetic.h"
#include "engine/observe/expert_map.h"
#include "expert_cache/heat.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

/* ---- those that are open ---- */

static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sl_stage_local *open_stages; /* under the lock, as what follows */
static uint64_t n_opened, process_id;

/* Random, so that two processes which speak with each other never take one another for themselves.
 */
static void choose_process_id(void) {
    while (!process_id)
        if (getrandom(&process_id, sizeof process_id, 0) != (ssize_t)sizeof process_id)
            process_id = sl_now_ns() ^ (uint64_t)getpid() << 32;
}

static void enlist(struct sl_stage_local *s) {
    pthread_mutex_lock(&open_lock);
    choose_process_id();
    s->number = ++n_opened;
    s->next_open = open_stages;
    open_stages = s;
    pthread_mutex_unlock(&open_lock);
}

static void strike_off(struct sl_stage_local *s) {
    pthread_mutex_lock(&open_lock);
    struct sl_stage_local **at = &open_stages;
    while (*at && *at != s)
        at = &(*at)->next_open;
    if (*at)
        *at = s->next_open;
    pthread_mutex_unlock(&open_lock);
}

/* NULL: it is of another process, or not open any more. */
static struct sl_stage_local *find(struct sl_stage_name name) {
    pthread_mutex_lock(&open_lock);
    struct sl_stage_local *s = name.process == process_id ? open_stages : NULL;
    while (s && s->number != name.number)
        s = s->next_open;
    pthread_mutex_unlock(&open_lock);
    return s;
}

/* ---- open, close ---- */

static void show_plan(struct sl_stage_local *s) {
    sl_stage_gauge(&s->shown, layers, s->model->hp.n_layer);
    sl_stage_gauge(&s->shown, memory_budget_bytes, s->plan->vram_budget_bytes);
    sl_stage_gauge(&s->shown, device_slots, s->plan->n_device_slots);
    sl_stage_gauge(&s->shown, host_slots, s->plan->n_slots);
}

static const struct sl_stage_ops ops;

enum sl_status sl_stage_local_open(struct sl_stage_local *s, uint32_t index, uint32_t n_stages,
                                   struct sl_stage_plan *p, const struct sl_store_heat *known,
                                   struct sl_timeline *timeline, struct sl_err *err) {
    *s = (struct sl_stage_local){.base = {&ops},
                                 .index = index,
                                 .n_stages = n_stages,
                                 .model = &p->model,
                                 .plan = &p->plan,
                                 .dev = p->dev,
                                 .timeline = timeline};
    p->dev = NULL;
    for (uint32_t l = 0; l < s->model->hp.n_layer; l++)
        s->n_routed += sl_model_layer_is_moe(s->model, l);
    enlist(s);
    enum sl_status status = sl_device_configure(s->dev, &s->plan->limits, err);
    struct sl_kv_size size = sl_kv_size_of(s->plan);
    if (status == SL_OK)
        status = sl_kv_data_init(&s->kv, s->dev, s->model, &size, err);
    if (status == SL_OK && s->plan->streaming)
        status = sl_store_create(s->model, s->plan, s->dev, known, timeline, &s->store, err);
    if (status == SL_OK && s->plan->streamed_tables)
        status = sl_table_store_create(s->model, s->plan, timeline, &s->table_store, err);
    show_plan(s);
    return sl_stage_local_blame(s, status, err);
}

enum sl_status sl_stage_local_relay(struct sl_stage_local *s, struct sl_stage_local *by,
                                    struct sl_err *err) {
    enum sl_status status = sl_device_relay_open(s->dev, by->dev, &by->busy);
    s->relay_by = status == SL_OK ? by : NULL;
    if (status == SL_OK || status == SL_ERR_UNSUPPORTED)
        return SL_OK;
    return sl_fail(err, status, "%scopying to %s by way of %s: %s",
                   status == SL_ERR_DEVICE_OOM ? "no memory for " : "", s->dev->caps.name,
                   by->dev->caps.name, sl_status_text(status));
}

void sl_stage_local_end_relay(struct sl_stage_local *s) {
    if (s->relay_by)
        sl_device_relay_end(s->dev);
}

void sl_stage_local_leave_relay(struct sl_stage_local *s) {
    if (s->relay_by)
        sl_device_relay_close(s->dev);
    s->relay_by = NULL;
}

static void drop_arrivals(struct sl_stage_local *s) {
    for (uint32_t i = 0; i < SL_MAX_STAGES; i++)
        sl_signal_free(s->dev, &s->arrival[i]);
}

/* Where another process speaks to it, and a step of few rows is enqueued in one go: without the
 * host, which would have to wait for the rows to know which experts they need. */
static enum sl_status init_arrivals(struct sl_stage_local *s, struct sl_err *err) {
    enum sl_status status = SL_OK;
    uint32_t n = s->plan->n_micro_batches;
    if (s->store || s->table_store || !s->dev->caps.graphs || !sl_forward_come_host(s->forward, 0))
        return SL_OK;
    for (uint32_t i = 0; i < n && status == SL_OK; i++)
        status = sl_signal_create(s->dev, &s->arrival[i]);
    /* Some can raise signals and not wait for the host. */
    if (status == SL_OK)
        status = sl_signal_hold(s->dev, s->arrival[0]);
    if (status == SL_OK)
        sl_signal_release(s->dev, s->arrival[0]);
    else
        drop_arrivals(s);
    return status == SL_OK || status == SL_ERR_UNSUPPORTED
               ? SL_OK
               : sl_fail(err, status, "preparing for rows: %s", sl_status_text(status));
}

enum sl_status sl_stage_local_load(struct sl_stage_local *s, bool by_host,
                                   struct sl_progress *progress, struct sl_route_recorder *routes,
                                   struct sl_err *err) {
    const struct sl_weights_part part = {!s->plan->streaming, s->plan->streamed_tables};
    enum sl_status status =
        sl_weights_load(s->model, part, s->dev, &sl_weights_system_io, progress, &s->weights, err);
    if (status == SL_OK)
        status = sl_kv_data_touched(&s->kv, err);
    if (status == SL_OK && s->store)
        status = sl_store_check_files(s->store, err);
    if (status == SL_OK && s->table_store)
        status = sl_table_store_check_files(s->table_store, err);
    if (status == SL_OK)
        status = sl_forward_create(&(struct sl_forward_config){.model = s->model,
                                                               .plan = s->plan,
                                                               .dev = s->dev,
                                                               .weights = s->weights,
                                                               .kv = &s->kv,
                                                               .fetch = sl_stage_fetch(s),
                                                               .table_store = s->table_store,
                                                               .timeline = s->timeline,
                                                               .routes = routes,
                                                               .send_by_host = by_host},
                                   &s->forward, err);
    if (status == SL_OK)
        status = init_arrivals(s, err);
    if (status == SL_OK)
        sl_activity_source_init(&s->activity, sl_stage_fetch(s),
                                s->store ? sl_store_reader(s->store) : NULL, &s->shown);
    return sl_stage_local_blame(s, status, err);
}

bool sl_stage_local_is_alone(const struct sl_stage_local *stages, uint32_t n, uint32_t i) {
    bool alone = true;
    for (uint32_t j = 0; j < n; j++)
        alone &= j == i || !sl_device_is_same(stages[i].dev, stages[j].dev);
    return alone;
}

void sl_stage_local_close(struct sl_stage_local *s) {
    strike_off(s);
    sl_activity_source_release(&s->activity);
    sl_forward_destroy(&s->forward);
    sl_table_store_destroy(&s->table_store);
    sl_store_destroy(&s->store);
    sl_weights_destroy(&s->weights);
    sl_kv_data_release(&s->kv);
    for (uint32_t i = 0; i < SL_MAX_STAGES; i++)
        sl_signal_free(s->dev, &s->sent[i]);
    drop_arrivals(s);
    if (s->dev)
        sl_device_close(&s->dev);
}

/* ---- requests ---- */

static void say_hello(struct sl_stage_local *s, struct sl_stage_hello *out) {
    const struct sl_hparams *hp = &s->model->hp;
    *out = (struct sl_stage_hello){
        .name = {process_id, s->number},
        .rows_alike = s->dev->caps.rows_alike,
        .loses_none = !s->store && !s->table_store,
        .begins_ahead = s->arrival[0] != NULL,
        .arithmetic = sl_arithmetic_hash(s->dev),
        .first_layer = hp->first_layer,
        .n_layer = hp->n_layer,
        .n_row = sl_row_elems(hp),
        .n_embd = hp->n_embd,
        .n_vocab = hp->n_vocab,
        .n_logit_rows = s->plan->n_logit_rows,
        .n_routed = s->n_routed,
        .n_expert = hp->n_expert,
        .page_bytes = s->kv.page_bytes,
        .tail_bytes = s->kv.tail_bytes,
    };
    snprintf(out->device, sizeof out->device, "%s", s->dev->caps.id);
    if (s->store && s->n_routed)
        out->heat_bytes = s->n_routed * sl_heat_layer_bytes(sl_fetch_heat(sl_stage_fetch(s)));
}

/* Where the two devices can, so that the one before makes its signals now. */
static enum sl_status join(struct sl_stage_local *s, const struct sl_ask_join *ask,
                           struct sl_answer_join *out, struct sl_err *err) {
    struct sl_stage_local *b = find(ask->before);
    if (!b || b == s || !b->plan->reads_back || sl_device_peer_open(s->dev, b->dev) != SL_OK)
        return SL_OK; /* its rows come with the requests */
    out->reads = true;
    s->before.dev = b->dev;
    s->reached = sl_device_peer_open(b->dev, s->dev) == SL_OK && sl_device_reaches(b->dev, s->dev);
    for (uint32_t i = 0; i < s->plan->n_micro_batches; i++) {
        enum sl_status status = sl_signal_create(b->dev, &b->sent[i]);
        if (status == SL_ERR_UNSUPPORTED)
            break;
        if (status != SL_OK)
            return sl_fail(err, status, "joining %s to %s: %s", s->dev->caps.name,
                           b->dev->caps.name, sl_status_text(status));
        s->before.signal[i] = b->sent[i];
    }
    s->before_name = ask->before;
    return SL_OK;
}

/* On devices that have other stages too, what waits could hold up what it waits for. */
static void link_to(struct sl_stage_local *s, bool alone, struct sl_answer_link *out) {
    struct sl_stage_local *b = s->before.dev ? find(s->before_name) : NULL;
    if (!b)
        return;
    for (uint32_t i = 0; i < s->plan->n_micro_batches; i++)
        s->before.sent[i] = sl_forward_sent(b->forward, i, s->plan->config.batch_tokens);
    s->before.copies = true;
    if (!s->reached || !alone)
        return;
    sl_forward_link(b->forward, s->forward);
    out->by_ops = s->before.linked = true;
}

/* Logits or hidden states. */
static enum sl_status give_rows(struct sl_stage_local *s, struct sl_stage_call *c) {
    const struct sl_ask_logits *a = &c->ask.logits;
    struct sl_err *err = &c->answer.err;
    if (!a->n || a->n > s->plan->n_logit_rows || a->n > s->n_kept || a->first > s->n_kept - a->n)
        return sl_fail(err, SL_ERR_PROTOCOL,
                       "%s of rows %u to %u: the last step kept %u, and %u can be asked for",
                       sl_stage_request_name(c->ask.what), a->first, a->first + a->n, s->n_kept,
                       s->plan->n_logit_rows);
    c->with.out_logits = (struct sl_logits){0};
    c->with.out_rows = NULL;
    if (c->ask.what == SL_STAGE_HIDDEN)
        return sl_forward_hidden(s->forward, a->first, a->n, &c->with.out_rows, err);
    return sl_forward_logits(s->forward, a->first, a->n, &c->with.out_logits.rows, err);
}

static bool is_page(uint32_t page, uint32_t n) {
    return page == SL_KV_NO_PAGE || page < n;
}

static enum sl_status copy_page(struct sl_stage_local *s, struct sl_stage_call *c, bool to_device) {
    const struct sl_ask_page *a = &c->ask.page;
    const struct sl_kv_copy copy = {a->page, a->tail, a->holds_tail, to_device};
    size_t bytes = sl_kv_copy_bytes(&s->kv, a->holds_tail);
    if (!is_page(a->page, s->kv.n_pages) || !is_page(a->tail, s->kv.n_tails) ||
        (a->tail != SL_KV_NO_PAGE && !a->holds_tail) || c->with.n_bytes != bytes)
        return sl_fail(&c->answer.err, SL_ERR_PROTOCOL,
                       "page %u of %u and tail page %u of %u, with %zu bytes of %zu", a->page,
                       s->kv.n_pages, a->tail, s->kv.n_tails, c->with.n_bytes, bytes);
    enum sl_status status = sl_kv_page_copy(&s->kv, &copy, c->with.bytes);
    return status == SL_OK
               ? status
               : sl_fail(&c->answer.err, status, "copying a KV page: %s", sl_status_text(status));
}

static enum sl_status show_experts(struct sl_stage_local *s, struct sl_stage_call *c) {
    uint32_t n_expert = s->model->hp.n_expert;
    struct sl_fetch *fetch = sl_stage_fetch(s);
    if (c->with.n_bytes != (size_t)s->n_routed * n_expert)
        return sl_fail(&c->answer.err, SL_ERR_PROTOCOL, "a map of %zu experts: there are %zu",
                       c->with.n_bytes, (size_t)s->n_routed * n_expert);
    if (!fetch) {
        const struct sl_expert_map_tier all = {s->plan->discrete ? SL_TIER_DEVICE : SL_TIER_HOST,
                                               NULL};
        sl_expert_map_look(s->n_routed, n_expert, NULL, &all, 1, c->with.bytes);
        return SL_OK;
    }
    const struct sl_tiers *tiers = sl_fetch_tiers(fetch);
    const struct sl_cache *device = tiers ? sl_tiers_cache(tiers) : NULL;
    struct sl_expert_map_tier slots[] = {{SL_TIER_HOST, sl_fetch_cache(fetch)},
                                         {SL_TIER_DEVICE, device}};
    sl_expert_map_look(s->n_routed, n_expert, sl_fetch_heat(fetch), slots, device ? 2 : 1,
                       c->with.bytes);
    return SL_OK;
}

static enum sl_status give_heat(struct sl_stage_local *s, struct sl_stage_call *c) {
    struct sl_stage_hello h;
    say_hello(s, &h);
    if (c->with.n_bytes != h.heat_bytes)
        return sl_fail(&c->answer.err, SL_ERR_PROTOCOL, "%zu bytes of heat: there are %" PRIu64,
                       c->with.n_bytes, h.heat_bytes);
    if (h.heat_bytes)
        sl_heat_export_layers(sl_fetch_heat(sl_stage_fetch(s)), 0, s->n_routed, c->with.bytes);
    return SL_OK;
}

static bool asked_to_stop(void *ctx) {
    return sl_stage_call_is_canceled(ctx);
}

static enum sl_status measure_disk(struct sl_stage_local *s, struct sl_stage_call *c) {
    struct sl_fetch_abort give_up = {asked_to_stop, c};
    struct sl_err *err = &c->answer.err;
    if (!s->store)
        return sl_fail(err, SL_ERR_UNSUPPORTED, "no expert is read from disk: all are resident");
    uint64_t start = sl_timeline_now(s->timeline);
    enum sl_status status = sl_fetch_disk_speed(sl_stage_fetch(s), c->ask.disk_speed.seconds,
                                                &give_up, &c->answer.disk_speed.bytes_per_s, err);
    sl_activity_look(&s->activity, 0, true, &c->answer.found); /* no step's */
    sl_timeline_since(s->timeline, "measuring the disk", start, {NULL, 0});
    return status;
}

static void read_in_background(struct sl_stage_local *s, struct sl_stage_call *c) {
    if (!s->store)
        return;
    uint64_t most_ns = c->ask.idle.most_ns;
    sl_fetch_idle(sl_stage_fetch(s), most_ns < INT64_MAX ? (int64_t)most_ns : INT64_MAX);
    sl_activity_look(&s->activity, 0, true, &c->answer.found);
}

static enum sl_status perform(struct sl_stage_local *s, struct sl_stage_call *c) {
    struct sl_stage_answer *a = &c->answer;
    switch (c->ask.what) {
    case SL_STAGE_HELLO:
        say_hello(s, &a->hello);
        return SL_OK;
    case SL_STAGE_JOIN:
        return join(s, &c->ask.join, &a->join, &a->err);
    case SL_STAGE_LINK:
        link_to(s, c->ask.link.alone, &a->link);
        return SL_OK;
    case SL_STAGE_STEP:
        return sl_stage_local_step(s, c);
    case SL_STAGE_LOGITS:
    case SL_STAGE_HIDDEN:
        return give_rows(s, c);
    case SL_STAGE_READ_PAGE:
        return copy_page(s, c, false);
    case SL_STAGE_WRITE_PAGE:
        return copy_page(s, c, true);
    case SL_STAGE_EXPERTS:
        return show_experts(s, c);
    case SL_STAGE_HEAT:
        return give_heat(s, c);
    case SL_STAGE_SAVE_HEAT:
        if (s->store)
            sl_store_save_heat(s->store);
        return SL_OK;
    case SL_STAGE_DISK_SPEED:
        return measure_disk(s, c);
    case SL_STAGE_IDLE:
        read_in_background(s, c);
        return SL_OK;
    case SL_STAGE_QUIT:
        if (s->store)
            sl_store_quit(s->store);
        if (s->table_store)
            sl_table_store_quit(s->table_store);
        return SL_OK;
    case SL_STAGE_REQUESTS:
        break;
    }
    return sl_fail(&a->err, SL_ERR_PROTOCOL, "request %d: a stage knows no such", (int)c->ask.what);
}

/* What goes with every answer. */
static void note(struct sl_stage_local *s, struct sl_stage_answer *a) {
    a->has_background = s->store && sl_fetch_has_background(sl_stage_fetch(s));
    a->heat_unsaved = s->store && sl_store_heat_unsaved(s->store);
    sl_stage_gauge(&s->shown, memory_bytes,
                   atomic_load_explicit(&s->dev->own_bytes, memory_order_relaxed));
#define SL_STAGE_METRIC(kind, field, name, help)                                                   \
    a->counts.field = atomic_load_explicit(&s->shown.field, memory_order_relaxed);
#include "common/stage_metrics.def"
#undef SL_STAGE_METRIC
}

static void send_to(struct sl_stage *stage, struct sl_stage_call *c) {
    struct sl_stage_local *s = (struct sl_stage_local *)(void *)stage;
    sl_stage_answer_begin(&c->answer);
    c->answer.status = sl_stage_local_blame(s, perform(s, c), &c->answer.err);
    note(s, &c->answer);
    c->owner->answered(c->owner, c);
}

/* Who opened it closes it, when all stages have come to rest. */
static void let_go(struct sl_stage *stage) {
    (void)stage;
}

static bool loses_none(const struct sl_stage *stage) {
    const struct sl_stage_local *s = (const struct sl_stage_local *)(const void *)stage;
    return !s->store && !s->table_store;
}

/* Reads belong to the thread that began them, and some drivers' contexts to the one that uses them.
 */
static bool on_any_thread(const struct sl_stage *stage) {
    const struct sl_stage_local *s = (const struct sl_stage_local *)(const void *)stage;
    return loses_none(stage) && s->dev->caps.kind == SL_DEVICE_HOST;
}

static const struct sl_stage_ops ops = {.send = send_to,
                                        .close = let_go,
                                        .loses_none = loses_none,
                                        .on_any_thread = on_any_thread,
                                        .rows = sl_stage_local_rows,
                                        .place = sl_stage_local_place};
