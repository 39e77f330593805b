#include "engine/engine_internal.h"

#include "common/log.h"
#include "common/metrics.h"
#include "engine/stage_plan.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* While requests run the experts' heat goes to its file so often. */
#define HEAT_BUSY_NS 120000000000u

enum sl_status sl_engine_plan(const struct sl_model *model, const struct sl_engine_config *config,
                              struct sl_memory_plan *out_plan, char out_device[64],
                              struct sl_err *err) {
    struct sl_stage_plans plans;
    enum sl_status st = sl_stage_plans_open(model, config, &plans, err);
    out_plan->least_bytes = plans.whole.least_bytes;
    out_plan->vram_least_bytes = plans.whole.vram_least_bytes;
    if (st != SL_OK)
        return st;
    *out_plan = plans.whole;
    if (out_device)
        sl_stage_plans_device(out_plan, out_device);
    sl_stage_plans_release(&plans);
    return SL_OK;
}

static void log_plan(const struct sl_memory_plan *plan) {
    for (uint32_t i = 0; i < plan->n_rows; i++)
        sl_info("memory: %-14s %10.1f MiB %-6s %s", plan->rows[i].what,
                (double)plan->rows[i].bytes / 0x1p20,
                plan->reads_back ? sl_memory_kind_name(plan->rows[i].kind) : "",
                plan->rows[i].detail);
    if (plan->apart)
        sl_info("memory: %-14s %10.1f MiB of %.1f MiB, at least %.1f MiB are needed",
                "total, device", (double)plan->vram_total_bytes / 0x1p20,
                (double)plan->vram_budget_bytes / 0x1p20, (double)plan->vram_least_bytes / 0x1p20);
    sl_info("memory: %-14s %10.1f MiB of %.1f MiB, at least %.1f MiB are needed",
            plan->apart ? "total, host" : "total", (double)plan->total_bytes / 0x1p20,
            (double)plan->budget_bytes / 0x1p20, (double)plan->least_bytes / 0x1p20);
}

/* The tree's secret is of this process alone, or of the folder where its pages are kept too, so
 * that nobody outside can aim at its buckets. */
static enum sl_status open_prefixes(struct sl_engine *e, struct sl_err *err) {
    struct sl_hash128 secret = {0}, root = {0};
    if (getrandom(&secret, sizeof secret, 0) != (ssize_t)sizeof secret)
        return sl_fail(err, SL_ERR_IO, "the system gives no random numbers: %s", strerror(errno));
    if (e->plan.config.cache_dir) {
        enum sl_status st = sl_prefix_disk_open(e, &e->disk, err);
        if (st != SL_OK)
            return st;
    }
    if (e->plan.ram_pages) {
        uint64_t page = (e->plan.k_page_bytes + e->plan.v_page_bytes) * e->model->hp.n_layer;
        enum sl_status st = sl_prefix_ram_create(e, e->plan.ram_pages, page, &e->ram, err);
        if (st != SL_OK)
            return st;
    }
    if (e->disk)
        sl_prefix_disk_keys(e->disk, &secret, &root);
    return sl_prefix_tree_create(e->plan.n_pages, secret, root, &e->prefixes, err);
}

static enum sl_status build(struct sl_engine *e, const struct sl_engine_config *config,
                            struct sl_progress *progress, struct sl_err *err) {
    const struct sl_hparams *hp = &e->model->hp;
    struct sl_stage_plans plans;
    enum sl_status st = sl_stage_plans_open(e->model, config, &plans, err);
    if (st == SL_OK && plans.n > 1)
        st = sl_fail(err, SL_ERR_UNSUPPORTED, "several devices: not yet");
    if (st != SL_OK)
        return st;
    e->dev = plans.at[0].dev;
    plans.at[0].dev = NULL;
    e->plan = plans.whole;
    sl_stage_plans_release(&plans);
    const struct sl_engine_config *c = &e->plan.config;
    if (hp->n_ctx_train && c->ctx_tokens > hp->n_ctx_train)
        sl_warn("the context of %u tokens is longer than the %u that the model was trained for",
                c->ctx_tokens, hp->n_ctx_train);
    log_plan(&e->plan);
    e->pace.stall_ns = c->max_stall_ms * 1e6;
    e->slots = calloc(c->parallel, sizeof *e->slots);
    e->published = calloc(c->parallel, sizeof *e->published);
    if (!e->slots || !e->published || sl_sampler_space_init(&e->space, hp->n_vocab) != SL_OK)
        return sl_fail(err, SL_ERR_NOMEM, "no memory for the scheduler's tables");
    if (c->trace_file)
        st = sl_timeline_open(c->trace_file, SL_TIMELINE_MAX_BYTES, &e->timeline, err);
    if (st == SL_OK)
        st = sl_device_configure(e->dev, &e->plan.limits, err);
    if (st != SL_OK)
        return st;
    struct sl_kv_view shape = {.dtype = c->kv_dtype,
                               .n_kv_heads = hp->n_head_kv,
                               .head_dim_k = hp->head_dim_k,
                               .head_dim_v = hp->head_dim_v,
                               .k_page_bytes = e->plan.k_page_bytes,
                               .v_page_bytes = e->plan.v_page_bytes};
    st = sl_kv_init(&e->kv, e->dev, &shape, hp->n_layer, e->plan.n_pages, err);
    if (st == SL_OK)
        st = open_prefixes(e, err);
    /* The store first: what it remembers of the files covers the loading too. */
    if (st == SL_OK && e->plan.streaming)
        st = sl_store_create(e->model, &e->plan, e->dev, e->timeline, &e->store, err);
    if (st == SL_OK)
        st = sl_weights_load(e->model, !e->plan.streaming, e->dev, &sl_weights_system_io, progress,
                             &e->weights, err);
    if (st == SL_OK && e->store)
        st = sl_store_check_files(e->store, err);
    if (st == SL_OK)
        st = sl_forward_create(e->model, &e->plan, e->dev, e->weights, &e->kv,
                               e->store ? sl_store_fetch(e->store) : NULL, e->timeline, &e->forward,
                               err);
    if (st == SL_OK)
        sl_activity_init(&e->activity, e->store ? sl_store_fetch(e->store) : NULL,
                         e->store ? sl_store_reader(e->store) : NULL, e->plan.n_experts);
    if (st == SL_OK)
        st = sl_expert_map_create(e->model, e->plan.apart ? SL_TIER_DEVICE : SL_TIER_HOST,
                                  !e->plan.streaming, &e->map, err);
    return st;
}

enum sl_status sl_engine_create(const struct sl_model *model, const struct sl_engine_config *config,
                                struct sl_progress *progress, struct sl_engine **out_engine,
                                struct sl_err *err) {
    struct sl_engine *e = calloc(1, sizeof *e);
    if (!e)
        return sl_fail(err, SL_ERR_NOMEM, "no memory for the engine");
    e->model = model;
    pthread_mutex_init(&e->lock, NULL);
    pthread_mutex_init(&e->published_lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&e->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_cond_init(&e->job_done, NULL);
    atomic_init(&e->stop, false);
    atomic_init(&e->cancel_asked, false);
    e->heat_busy_ns = HEAT_BUSY_NS;
    e->next_deadline_ns = UINT64_MAX;
    enum sl_status st = build(e, config, progress, err);
    if (st == SL_OK && pthread_create(&e->thread, NULL, sl_scheduler_main, e) != 0)
        st = sl_fail(err, SL_ERR_NOMEM, "the scheduler's thread could not be started");
    if (st != SL_OK) {
        sl_engine_destroy(&e);
        return st;
    }
    e->thread_started = true;
    pthread_setname_np(e->thread, "sl-scheduler");
    *out_engine = e;
    return SL_OK;
}

void sl_engine_destroy(struct sl_engine **pe) {
    struct sl_engine *e = *pe;
    if (!e)
        return;
    if (e->thread_started) {
        pthread_mutex_lock(&e->lock);
        atomic_store(&e->stop, true);
        e->poked = true;
        pthread_cond_signal(&e->wake);
        pthread_mutex_unlock(&e->lock);
        pthread_join(e->thread, NULL);
    }
    sl_forward_destroy(&e->forward);
    sl_prefix_disk_close(&e->disk);
    sl_prefix_ram_destroy(&e->ram);
    sl_prefix_tree_destroy(&e->prefixes);
    sl_store_destroy(&e->store);
    sl_expert_map_destroy(&e->map);
    sl_timeline_close(&e->timeline);
    sl_weights_destroy(&e->weights);
    sl_kv_release(&e->kv);
    sl_sampler_space_release(&e->space);
    sl_device_close(&e->dev);
    free(e->slots);
    free(e->published);
    pthread_mutex_destroy(&e->published_lock);
    pthread_cond_destroy(&e->job_done);
    pthread_cond_destroy(&e->wake);
    pthread_mutex_destroy(&e->lock);
    free(e);
    *pe = NULL;
}

void sl_engine_info(const struct sl_engine *e, struct sl_engine_info *out) {
    const struct sl_memory_plan *p = &e->plan;
    *out = (struct sl_engine_info){.ctx_tokens = p->config.ctx_tokens,
                                   .parallel = p->config.parallel,
                                   .queue_max = p->config.queue_max,
                                   .batch_tokens = p->config.batch_tokens,
                                   .n_vocab = e->model->hp.n_vocab,
                                   .weight_bytes = p->weight_bytes,
                                   .kv_bytes = p->kv_bytes,
                                   .activation_bytes = p->activation_bytes + p->scratch_bytes,
                                   .apart = p->apart,
                                   .n_device_slots = p->n_device_slots,
                                   .streaming = p->streaming,
                                   .n_slots = p->n_slots,
                                   .n_experts = p->n_experts};
    memcpy(out->device, e->dev->caps.name, sizeof out->device);
    out->device[sizeof out->device - 1] = 0;
}

void sl_engine_memory(const struct sl_engine *e, struct sl_engine_memory *out) {
    const struct sl_memory_plan *p = &e->plan;
    *out = (struct sl_engine_memory){.rows = p->rows,
                                     .n_rows = p->n_rows,
                                     .total_bytes = p->total_bytes,
                                     .budget_bytes = p->budget_bytes,
                                     .vram_total_bytes = p->vram_total_bytes,
                                     .vram_budget_bytes = p->vram_budget_bytes};
}

const struct sl_expert_map_shape *sl_engine_expert_shape(const struct sl_engine *e) {
    return sl_expert_map_shape(e->map);
}

uint64_t sl_engine_expert_cells(struct sl_engine *e, uint8_t *out_cells) {
    uint64_t seen_ns = sl_expert_map_read(e->map, out_cells);
    pthread_mutex_lock(&e->lock);
    e->poked = true;
    pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->lock);
    return seen_ns;
}

bool sl_engine_failed(struct sl_engine *e, struct sl_err *out_why) {
    pthread_mutex_lock(&e->lock);
    bool failed = e->dead != SL_OK;
    if (failed)
        *out_why = e->dead_err;
    pthread_mutex_unlock(&e->lock);
    return failed;
}

enum sl_status sl_engine_submit(struct sl_engine *e, struct sl_gen_request *r, struct sl_err *err) {
    struct sl_session *s;
    enum sl_status st =
        sl_session_create(r, e->model->hp.n_vocab, e->plan.config.ctx_tokens, &s, err);
    if (st != SL_OK)
        return st;
    pthread_mutex_lock(&e->lock);
    if (atomic_load(&e->stop))
        st = sl_fail(err, SL_ERR_CANCELED, "the engine is shutting down");
    else if (e->dead != SL_OK)
        st = sl_fail(err, e->dead, "%s", e->dead_err.text);
    else if (e->n_waiting >= e->plan.config.queue_max)
        st = sl_fail(err, SL_AGAIN, "%u requests are waiting already: try again later",
                     e->n_waiting);
    else if (e->n_alive >= e->plan.config.parallel + e->plan.config.queue_max)
        st = sl_fail(err, SL_AGAIN,
                     "%u requests are there already, many of them paused because "
                     "their clients do not read: try again later",
                     e->n_alive); /* the plan has memory for so many histories */
    if (st == SL_OK) {
        r->engine_private = s;
        s->task = ++e->n_tasks;
        sl_session_push_back(&e->inbox, s);
        e->n_waiting++;
        e->n_alive++;
        e->poked = true;
        pthread_cond_signal(&e->wake);
    }
    pthread_mutex_unlock(&e->lock);
    if (st != SL_OK) {
        free(s);
        return st;
    }
    sl_count(requests_total, 1);
    return SL_OK;
}

/* Sets one of a session's flags, unless the session has finished meanwhile. */
static void flag(struct sl_engine *e, struct sl_gen_request *r, bool cancel) {
    pthread_mutex_lock(&e->lock);
    struct sl_session *s = r->engine_private;
    if (s) {
        atomic_store(cancel ? &s->cancel : &s->resume, true);
        if (cancel)
            atomic_store(&e->cancel_asked, true);
        e->poked = true;
        pthread_cond_signal(&e->wake);
    }
    pthread_mutex_unlock(&e->lock);
}

void sl_engine_cancel(struct sl_engine *e, struct sl_gen_request *r) {
    flag(e, r, true);
}

void sl_engine_resume(struct sl_engine *e, struct sl_gen_request *r) {
    flag(e, r, false);
}
