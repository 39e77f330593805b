#include "cluster/worker_stages.h"

#include "backends/backend_table.h"
#include "common/log.h"
#include "engine/plan/memory_plan.h"
#include "engine/plan/open_device.h"
#include "engine/stage/stage_local.h"
#include "model/arch/model_slice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct stage {
    struct sl_stage_plan plan;
    struct sl_stage_local local;
    struct sl_stage_hello hello;
    struct sl_message_limits limits;
    bool sliced, opened;
};

struct sl_worker_stages {
    uint32_t n;
    struct stage at[SL_MAX_STAGES];
};

/* ---- devices ---- */

/* "auto" is the first device with memory of its own that can be used, else the host. */
static enum sl_status choose_device(struct sl_device_names *names, struct sl_err *err) {
    struct sl_device_found *found = calloc(SL_DEVICE_MAX_NUMBER + 1, sizeof *found);
    const struct sl_backend *b;
    if (!found)
        return sl_fail(err, SL_ERR_NOMEM, "no memory for a list of devices");
    for (uint32_t i = 0; names->any && (b = sl_backend_at(i)); i++) {
        uint32_t n = 0;
        struct sl_err why;
        if (b->hidden || b->named_only || b->kind == SL_DEVICE_HOST ||
            (b->may_be_here && !b->may_be_here(&why)) ||
            sl_devices_look(b, found, SL_DEVICE_MAX_NUMBER + 1, &n, &why) != SL_OK)
            continue;
        for (uint32_t k = 0; names->any && k < n && k <= SL_DEVICE_MAX_NUMBER; k++)
            if (!found[k].why_not.text[0] && !found[k].software) {
                names->at[0] = (struct sl_device_ref){b, k};
                names->any = false;
            }
    }
    names->any = false;
    free(found);
    return SL_OK;
}

static enum sl_status open_devices(const struct sl_worker_config *config,
                                   struct sl_device *out_dev[SL_MAX_STAGES],
                                   struct sl_engine_config *out_planned, uint32_t *out_n,
                                   struct sl_err *err) {
    struct sl_device_names names;
    SL_TRY(sl_device_names(&config->engine, config->model->hp.n_layer, 0, &names, err));
    if (names.any)
        SL_TRY(choose_device(&names, err));
    *out_n = names.n;
    return sl_devices_open(&config->engine, &names, out_dev, out_planned, err);
}

static void close_devices(struct sl_device *dev[SL_MAX_STAGES], uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        sl_device_close(&dev[i]);
}

enum sl_status sl_worker_offer(const struct sl_worker_config *config, uint64_t content,
                               struct sl_setup_offer *out, struct sl_err *err) {
    struct sl_device *dev[SL_MAX_STAGES] = {0};
    struct sl_engine_config planned;
    uint32_t n = 0;
    SL_TRY(open_devices(config, dev, &planned, &n, err));
    *out = (struct sl_setup_offer){.ram_bytes = planned.ram_bytes,
                                   .pinned_bytes = planned.pinned_bytes,
                                   .process_bytes = planned.process_bytes,
                                   .disk_bytes_per_s = config->disk_bytes_per_s,
                                   .ram_bytes_per_s = config->ram_bytes_per_s,
                                   .n_devices = n};
    if (planned.ram_bytes && planned.process_bytes >= planned.ram_bytes) {
        close_devices(dev, n);
        return sl_fail(
            err, SL_ERR_CONFIG,
            "a budget of %.1f MiB is too small: the process alone takes %.1f MiB, and at "
            "least one layer must fit beside it: --ram",
            (double)planned.ram_bytes / 0x1p20, (double)planned.process_bytes / 0x1p20);
    }
    out->content = content;
    snprintf(out->model, sizeof out->model, "%s", config->model_name);
    for (uint32_t i = 0; i < n; i++) {
        const struct sl_device_caps *caps = &dev[i]->caps;
        struct sl_setup_device *d = &out->devices[i];
        memcpy(d->id, caps->id, sizeof d->id);
        snprintf(d->backend, sizeof d->backend, "%s", dev[i]->ops->name);
        memcpy(d->model, caps->model, sizeof d->model);
        memcpy(d->arithmetic, caps->arithmetic_id, sizeof d->arithmetic);
        d->memory_bytes = caps->memory_bytes;
        d->vram_bytes = planned.vram_each[i];
        d->memory_bytes_per_s = (double)caps->memory_bytes_per_s;
        d->n_threads = caps->kind == SL_DEVICE_HOST ? planned.n_threads : 0;
        d->max_alloc_bytes = caps->max_alloc_bytes;
        d->held_bytes = caps->held_bytes;
        d->lacks_ops = caps->lacks_ops;
    }
    close_devices(dev, n);
    for (uint32_t i = 0; i < n && config->measure; i++)
        if (out->devices[i].vram_bytes)
            config->measure(out->devices[i].id, &out->devices[i].memory_bytes_per_s,
                            &out->devices[i].link_bytes_per_s);
    return SL_OK;
}

/* ---- what was asked for ---- */

/* Checks what becomes an index into arrays, and what the plan does not check by itself. */
static enum sl_status check_numbers(const struct sl_setup_load *m, struct sl_err *err) {
    if (!sl_dtype_info(m->kv_dtype))
        return sl_fail(err, SL_ERR_PROTOCOL, "KV type %u: this worker knows none of that number",
                       m->kv_dtype);
    if (m->experts > SL_EXPERTS_STREAMED)
        return sl_fail(err, SL_ERR_PROTOCOL,
                       "a place of experts of number %u: this worker knows none", m->experts);
    if (m->tables > SL_TABLES_STREAMED)
        return sl_fail(err, SL_ERR_PROTOCOL,
                       "a place of tables of number %u: this worker knows none", m->tables);
    if (!m->ctx_tokens || !m->parallel || !m->batch_tokens || !m->queue_max)
        return sl_fail(err, SL_ERR_PROTOCOL,
                       "a context of %u tokens, %u sessions, batches of %u rows, a queue of %u "
                       "requests: each must be at least 1",
                       m->ctx_tokens, m->parallel, m->batch_tokens, m->queue_max);
    return SL_OK;
}

static enum sl_status check_load(const struct sl_worker_config *config,
                                 const struct sl_setup_offer *offer, const struct sl_setup_load *m,
                                 struct sl_err *err) {
    const struct sl_hparams *hp = &config->model->hp;
    uint64_t ram = 0;
    bool taken[SL_MAX_STAGES] = {0};
    bool sound = m->n_of_worker && m->n_stages > 1 && m->n_stages <= SL_MAX_STAGES;
    for (uint32_t i = 0; sound && i < m->n_of_worker; i++) {
        const struct sl_setup_stage *s = &m->of_worker[i];
        sound = s->stage && s->stage < m->n_stages && s->device < offer->n_devices &&
                !taken[s->device] && s->n_layer && s->first_layer < hp->n_layer &&
                s->n_layer <= hp->n_layer - s->first_layer && s->ram_bytes <= UINT64_MAX - ram;
        if (sound)
            taken[s->device] = true;
        ram += s->ram_bytes;
    }
    if (m->content != offer->content || m->n_layer != hp->n_layer)
        return sl_fail(err, SL_ERR_CONFIG, "the model here is '%s', another than the coordinator's",
                       offer->model);
    SL_TRY(check_numbers(m, err));
    if (sound && m->n_of_worker > 1 && ram > offer->ram_bytes)
        return sl_fail(
            err, SL_ERR_CONFIG,
            "the layers for %u devices take %.1f MiB here, and there are %.1f MiB: --ram",
            m->n_of_worker, (double)ram / 0x1p20, (double)offer->ram_bytes / 0x1p20);
    return sound ? SL_OK
                 : sl_fail(err, SL_ERR_PROTOCOL,
                           "%u of %u stages that cannot be asked for here: of a model of %u "
                           "layers, on %u device%s, a stage each, none of them the first",
                           m->n_of_worker, m->n_stages, hp->n_layer, offer->n_devices,
                           offer->n_devices == 1 ? "" : "s");
}

static struct sl_engine_config config_of(const struct sl_engine_config *own,
                                         const struct sl_setup_load *m,
                                         const struct sl_setup_stage *s) {
    struct sl_engine_config c = *own;
    c.ctx_tokens = m->ctx_tokens;
    c.parallel = m->parallel;
    c.batch_tokens = m->batch_tokens;
    c.queue_max = m->queue_max;
    c.cache_ram_bytes = m->cache_ram_bytes;
    c.kv_dtype = (enum sl_dtype)m->kv_dtype;
    c.experts = (enum sl_experts_where)m->experts;
    c.tables = (enum sl_tables_where)m->tables;
    c.table_cache_bytes = m->table_cache_bytes;
    c.no_overflow = m->no_overflow;
    c.no_lookahead = m->no_lookahead;
    c.no_warm_up = m->no_warm_up;
    /* If a worker has one stage, that stage may use the worker's whole budget. */
    c.ram_bytes = m->n_of_worker == 1 ? own->ram_bytes : s->ram_bytes;
    c.pinned_bytes = m->n_of_worker == 1 ? own->pinned_bytes : s->pinned_bytes;
    c.vram_bytes = own->vram_each[s->device];
    return c;
}

static enum sl_status agree(const struct sl_memory_plan *p, const struct sl_setup_load *m,
                            struct sl_err *err) {
    if (p->session_pages == m->session_pages && p->n_pages == m->n_pages &&
        p->n_tails == m->n_tails && p->tail_pages == m->tail_pages)
        return SL_OK;
    return sl_fail(err, SL_ERR_CONFIG,
                   "the plans differ: %u pages of %u a session here, %u of %u at the coordinator: "
                   "are both the same build?",
                   p->n_pages, p->session_pages, m->n_pages, m->session_pages);
}

static enum sl_status plan(const struct sl_worker_config *config,
                           const struct sl_engine_config *own, const struct sl_setup_load *m,
                           const struct sl_setup_stage *s, struct sl_device *const *dev,
                           uint32_t n_dev, struct stage *out, struct sl_err *err) {
    struct sl_engine_config c = config_of(own, m, s);
    struct sl_err why;
    struct sl_plan_place place = {.whole = config->model,
                                  .stage = s->stage,
                                  .n_stages = m->n_stages,
                                  .first_on_host = s->first_on_host,
                                  .any_discrete = m->any_discrete,
                                  .remote = true};
    for (uint32_t i = 0; i < n_dev; i++)
        place.any_reads_back |= !dev[i]->caps.host_visible;
    SL_TRY(sl_model_slice(config->model, s->first_layer, s->n_layer, &out->plan.model, err));
    out->sliced = true;
    sl_model_slice_drop_input(&out->plan.model); /* a worker's stage is never the first */
    enum sl_status status = sl_memory_plan_make_stage(&out->plan.model, &place, &c, dev[s->device],
                                                      &out->plan.plan, &why);
    if (status != SL_OK)
        return sl_fail(err, status, "layers %u to %u of %u, on %.40s: %.300s", s->first_layer,
                       s->first_layer + s->n_layer - 1, m->n_layer, dev[s->device]->caps.name,
                       why.text);
    return agree(&out->plan.plan, m, err);
}

/* ---- opening ---- */

static enum sl_status say_hello(struct stage *s, struct sl_err *err) {
    struct sl_stage_call hello = {.ask = {.what = SL_STAGE_HELLO}};
    SL_TRY(sl_stage_ask(&s->local.base, &hello, err));
    s->hello = hello.answer.hello;
    s->limits = sl_message_limits(&s->plan.plan, &s->hello);
    return SL_OK;
}

static enum sl_status open_stage(struct stage *s, const struct sl_setup_stage *asked,
                                 uint32_t n_stages, struct sl_device **dev,
                                 struct sl_progress *progress, struct sl_err *err) {
    s->plan.dev = *dev;
    *dev = NULL;
    s->opened = true;
    SL_TRY(sl_stage_local_open(&s->local, asked->stage, n_stages, &s->plan, NULL, NULL, err));
    SL_TRY(sl_stage_local_load(&s->local, true, progress, NULL, err));
    return say_hello(s, err);
}

enum sl_status sl_worker_stages_open(const struct sl_worker_config *config,
                                     const struct sl_setup_offer *offer,
                                     const struct sl_setup_load *load, struct sl_progress *progress,
                                     struct sl_worker_stages **out_stages, struct sl_err *err) {
    struct sl_device *dev[SL_MAX_STAGES] = {0};
    struct sl_engine_config own;
    uint32_t n_dev = 0;
    SL_TRY(check_load(config, offer, load, err));
    struct sl_worker_stages *w = calloc(1, sizeof *w);
    if (!w)
        return sl_fail(err, SL_ERR_NOMEM, "no memory for stages");
    enum sl_status status = open_devices(config, dev, &own, &n_dev, err);
    if (status == SL_OK && n_dev != offer->n_devices)
        status = sl_fail(err, SL_ERR_CONFIG, "%u devices are there now, %u were offered", n_dev,
                         offer->n_devices);
    for (uint32_t i = 0; status == SL_OK && i < load->n_of_worker; i++)
        status = plan(config, &own, load, &load->of_worker[i], dev, n_dev, &w->at[i], err);
    for (uint32_t i = 0; status == SL_OK && i < load->n_of_worker; i++) {
        w->n = i + 1;
        status = open_stage(&w->at[i], &load->of_worker[i], load->n_stages,
                            &dev[load->of_worker[i].device], progress, err);
    }
    w->n = load->n_of_worker;
    close_devices(dev, n_dev);
    if (status != SL_OK)
        sl_worker_stages_close(&w);
    else
        *out_stages = w;
    return status;
}

void sl_worker_stages_close(struct sl_worker_stages **pw) {
    struct sl_worker_stages *w = *pw;
    if (!w)
        return;
    for (uint32_t i = 0; i < w->n; i++) {
        struct stage *s = &w->at[i];
        if (s->opened) {
            struct sl_stage_call quit = {.ask = {.what = SL_STAGE_QUIT}};
            struct sl_err why;
            if (s->local.forward)
                (void)!sl_stage_ask(&s->local.base, &quit, &why);
            sl_stage_local_close(&s->local);
        }
        if (s->sliced)
            sl_model_slice_release(&s->plan.model);
    }
    free(w);
    *pw = NULL;
}

uint32_t sl_worker_n_stages(const struct sl_worker_stages *s) {
    return s->n;
}

uint32_t sl_worker_busy_cpus(const struct sl_worker_stages *s) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n; i++)
        n += sl_plan_busy_cpus(&s->at[i].plan.plan);
    return n;
}

struct sl_stage *sl_worker_stage(struct sl_worker_stages *s, uint32_t i) {
    return &s->at[i].local.base;
}

const struct sl_message_limits *sl_worker_limits(const struct sl_worker_stages *s, uint32_t i) {
    return &s->at[i].limits;
}

void sl_worker_stage_look(const struct sl_worker_stages *s, uint32_t i,
                          struct sl_worker_stage_look *out) {
    const struct sl_stage_local *l = &s->at[i].local;
    out->stage = l->index;
    out->first_layer = s->at[i].hello.first_layer;
    out->n_layer = s->at[i].hello.n_layer;
    memcpy(out->device, s->at[i].hello.device, sizeof out->device);
#define SL_STAGE_METRIC(kind, field, name, help)                                                   \
    sl_stage_gauge(&out->metrics, field,                                                           \
                   atomic_load_explicit(&l->shown.field, memory_order_relaxed));
#include "common/stage_metrics.def"
#undef SL_STAGE_METRIC
}

void sl_worker_ready(const struct sl_worker_stages *s, struct sl_setup_ready *out) {
    *out = (struct sl_setup_ready){.n_stages = s->n};
    for (uint32_t i = 0; i < s->n; i++) {
        const struct sl_stage_hello *h = &s->at[i].hello;
        out->stages[i] = (struct sl_setup_hello_of_stage){
            .rows_alike = h->rows_alike,
            .loses_none = h->loses_none,
            .begins_ahead = h->begins_ahead,
            .arithmetic_lo = h->arithmetic.lo,
            .arithmetic_hi = h->arithmetic.hi,
            .first_layer = h->first_layer,
            .n_layer = h->n_layer,
            .n_row = h->n_row,
            .n_embd = h->n_embd,
            .n_vocab = h->n_vocab,
            .n_logit_rows = h->n_logit_rows,
            .n_routed = h->n_routed,
            .n_expert = h->n_expert,
            .page_bytes = h->page_bytes,
            .tail_bytes = h->tail_bytes,
            .heat_bytes = h->heat_bytes,
        };
        memcpy(out->stages[i].device, h->device, sizeof h->device);
    }
}
