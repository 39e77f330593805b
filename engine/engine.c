#include "engine/engine.h"
#include "engine/layers/seq_shape.h"
#include "engine/schedule/schedule.h"

#include "common/cpus.h"
#include "common/cond.h"
#include "common/log.h"
#include "common/metrics.h"
#include "engine/trace/route_recorder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* While requests run the experts' heat goes to its file so often. */
#define HEAT_BUSY_NS 120000000000u

enum sl_status sl_engine_plan(const struct sl_model *model, const struct sl_engine_config *config,
                              struct sl_memory_plan *out_plan, char out_device[64],
                              struct sl_err *err) {
    struct sl_stage_plans plans;
    enum sl_status status = sl_stage_plans_open(model, config, &plans, err);
    out_plan->least_bytes = plans.whole.least_bytes;
    out_plan->vram_least_bytes = plans.whole.vram_least_bytes;
    if (status != SL_OK)
        return status;
    *out_plan = plans.whole;
    if (config->remote) { /* the list is the plans' */
        out_plan->config.hosts = NULL;
        out_plan->config.n_hosts = 0;
    }
    if (out_device)
        sl_stage_plans_device(out_plan, out_device);
    sl_stage_plans_release(&plans);
    return SL_OK;
}

static void log_plan(const struct sl_memory_plan *plan) {
    for (uint32_t i = 0; i < plan->n_rows; i++) {
        const struct sl_plan_row *r = &plan->rows[i];
        char stage[16] = "";
        if (r->stage)
            snprintf(stage, sizeof stage, " %u", r->stage);
        sl_info("memory: %-14s %10.1f MiB %-6s%s %s", r->what, (double)r->bytes / 0x1p20,
                plan->reads_back ? sl_memory_kind_name(r->kind) : "", stage, r->detail);
    }
    for (uint32_t i = 0; i < plan->n_stages && plan->n_stages > 1; i++) {
        const struct sl_plan_stage *s = &plan->stages[i];
        if (!s->n_layer) {
            sl_info("memory: device %u: the embedding, on %s: %.1f MiB of the host's", i + 1,
                    s->device, (double)s->ram_bytes / 0x1p20);
            continue;
        }
        if (!s->discrete) {
            sl_info("memory: device %u: layers %u to %u on %s: %.1f MiB of the host's", i + 1,
                    s->first_layer, s->first_layer + s->n_layer - 1, s->device,
                    (double)s->ram_bytes / 0x1p20);
            continue;
        }
        sl_info("memory: device %u: layers %u to %u on %s: %.1f MiB of %.1f MiB, at least %.1f MiB "
                "are needed",
                i + 1, s->first_layer, s->first_layer + s->n_layer - 1, s->device,
                (double)s->vram_total_bytes / 0x1p20, (double)s->vram_budget_bytes / 0x1p20,
                (double)s->vram_least_bytes / 0x1p20);
    }
    if (plan->split_by_heat)
        sl_info("memory: the layers are divided by the heat of earlier runs, too");
    if (plan->discrete)
        sl_info("memory: %-14s %10.1f MiB of %.1f MiB, at least %.1f MiB are needed",
                "total, device", (double)plan->vram_total_bytes / 0x1p20,
                (double)plan->vram_budget_bytes / 0x1p20, (double)plan->vram_least_bytes / 0x1p20);
    for (uint32_t h = 0; h < plan->n_hosts && plan->n_hosts > 1; h++) {
        const struct sl_plan_host *host = &plan->hosts[h];
        sl_info("memory: host %s: %.1f MiB of %.1f MiB, at least %.1f MiB are needed", host->name,
                (double)host->ram_total_bytes / 0x1p20, (double)host->ram_budget_bytes / 0x1p20,
                (double)host->ram_least_bytes / 0x1p20);
    }
    if (plan->n_hosts > 1)
        return;
    sl_info("memory: %-14s %10.1f MiB of %.1f MiB, at least %.1f MiB are needed",
            plan->discrete ? "total, host" : "total", (double)plan->total_bytes / 0x1p20,
            (double)plan->budget_bytes / 0x1p20, (double)plan->least_bytes / 0x1p20);
}

/* The tree's secret is of this process alone, or of the folder where its pages are kept too, so
 * that nobody outside can aim at its buckets. */
static enum sl_status open_prefixes(struct sl_engine *e, struct sl_err *err) {
    struct sl_hash128 secret = {0}, root = {0};
    if (getrandom(&secret, sizeof secret, 0) != (ssize_t)sizeof secret)
        return sl_fail(err, SL_ERR_IO, "the system gives no random numbers: %s", strerror(errno));
    if (e->plan.config.cache_dir)
        SL_TRY(sl_prefix_disk_open(e, &e->disk, err));
    if (e->plan.ram_pages)
        SL_TRY(
            sl_prefix_ram_create(e, e->plan.ram_pages, sl_plan_copy_bytes(&e->plan), &e->ram, err));
    if (e->disk)
        sl_prefix_disk_keys(e->disk, &secret, &root);
    if (e->plan.n_tails)
        SL_TRY(sl_tail_pages_create(e->plan.n_tails, e->plan.n_pages, &e->tails, err));
    for (uint32_t i = 0; e->draft_tails && i < e->plan.config.parallel * e->plan.draft_tails; i++)
        e->draft_tails[i] = sl_tail_take(e->tails);
    return sl_prefix_tree_create(e->plan.n_pages, secret, root, &e->prefixes, err);
}

/* Loads the stages' weights one after the other: of the whole so much is done. */
struct part_progress {
    struct sl_progress base;
    struct sl_progress *whole;
    uint64_t before_bytes, whole_bytes;
};

static bool report_part(struct sl_progress *p, uint64_t done_bytes, uint64_t total_bytes) {
    (void)total_bytes;
    const struct part_progress *part = (const struct part_progress *)p;
    return part->whole->report(part->whole, part->before_bytes + done_bytes, part->whole_bytes);
}

/* The stages of other machines, which have been loading meanwhile. */
static enum sl_status wait_for_remote(struct sl_engine *e, struct part_progress *part,
                                      struct sl_err *err) {
    const struct sl_remote_stages *remote = e->plan.config.remote;
    enum sl_status status = SL_OK;
    for (uint32_t i = e->n_local; i < e->plans.n && status == SL_OK; i++) {
        status = remote->wait(remote, i - e->n_local, part ? &part->base : NULL, &e->ports[i], err);
        e->n_stages += status == SL_OK;
        if (part)
            part->before_bytes += e->plans.at[i].plan.weight_bytes;
    }
    return status;
}

static enum sl_status load_stages(struct sl_engine *e, struct sl_progress *progress,
                                  struct sl_err *err) {
    struct part_progress part = {.base = {report_part}, .whole = progress};
    enum sl_status status = SL_OK;
    for (uint32_t i = 0; i < e->plans.n; i++)
        part.whole_bytes += e->plans.at[i].plan.weight_bytes;
    for (uint32_t i = 0; i < e->n_local && status == SL_OK; i++) {
        struct sl_progress *own = e->plans.n > 1 && progress ? &part.base : progress;
        bool by_host = i + 1 < e->plans.n && !e->reads_rows[i + 1];
        status = sl_stage_local_load(&e->stages[i], by_host, own, e->routes, err);
        part.before_bytes += e->stages[i].plan->weight_bytes;
    }
    for (uint32_t i = 1; i < e->n_local && status == SL_OK; i++) {
        struct sl_stage_call link = {.ask = {.what = SL_STAGE_LINK}};
        link.ask.link.alone = sl_stage_local_is_alone(e->stages, e->n_local, i);
        status = sl_stage_ask(e->ports[i], &link, err);
    }
    return status == SL_OK ? wait_for_remote(e, progress ? &part : NULL, err) : status;
}

/* Tells a stage which one comes before it. */
static enum sl_status join(struct sl_engine *e, uint32_t i, struct sl_err *err) {
    struct sl_stage_call hello = {.ask = {.what = SL_STAGE_HELLO}};
    enum sl_status status = sl_stage_ask(e->ports[i - 1], &hello, err);
    struct sl_stage_call call = {.ask = {.what = SL_STAGE_JOIN}};
    call.ask.join.before = hello.answer.hello.name;
    if (status == SL_OK)
        status = sl_stage_ask(e->ports[i], &call, err);
    e->reads_rows[i] = status == SL_OK && call.answer.join.reads;
    return status;
}

static enum sl_status make_port(struct sl_engine *e, uint32_t i, struct sl_err *err) {
    const struct sl_stage_source *source = e->plan.config.stage_source;
    e->ports[i] = source ? NULL : &e->stages[i].base;
    return source ? source->wrap(source, i, &e->stages[i].base, &e->ports[i], err) : SL_OK;
}

/* Each lets its copies go by way of the next that copies experts too, where the plan has room. */
static enum sl_status open_relays(struct sl_engine *e, struct sl_err *err) {
    enum sl_status status = SL_OK;
    for (uint32_t i = 0; i < e->n_local && status == SL_OK; i++) {
        uint32_t by = (i + 1) % e->n_local;
        while (by != i && !sl_stage_relays(&e->stages[by]))
            by = (by + 1) % e->n_local;
        if (by != i && sl_stage_relays(&e->stages[i]))
            status = sl_stage_local_relay(&e->stages[i], &e->stages[by], err);
    }
    return status;
}

/* Devices, KV and expert stores. */
static enum sl_status open_stages(struct sl_engine *e, struct sl_err *err) {
    enum sl_status status = SL_OK;
    e->stages = calloc(e->plans.n_local, sizeof *e->stages);
    if (!e->stages)
        return sl_fail(err, SL_ERR_NOMEM, "no memory for %u stages", e->plans.n);
    if (e->plans.n > 1 && e->plan.streaming && e->plan.config.heat_file)
        status = sl_joint_heat_open(e->plan.config.heat_file, e->model, &e->heat, err);
    struct sl_store_heat known = {.heat = e->heat ? sl_joint_heat(e->heat) : NULL};
    if (status == SL_OK && e->plan.config.remote)
        status = e->plan.config.remote->load(e->plan.config.remote, &e->plans, err);
    for (uint32_t i = 0; i < e->plans.n_local && status == SL_OK; i++) {
        struct sl_stage_local *s = &e->stages[i];
        e->n_stages = e->n_local = i + 1;
        status = sl_stage_local_open(s, i, e->plans.n, &e->plans.at[i], e->heat ? &known : NULL,
                                     e->timeline, err);
        known.first += s->n_routed;
        if (status == SL_OK)
            status = make_port(e, i, err);
        if (status == SL_OK && i)
            status = join(e, i, err);
    }
    return status == SL_OK ? open_relays(e, err) : status;
}

static enum sl_status map_experts(struct sl_engine *e, struct sl_err *err) {
    enum sl_status status =
        sl_expert_map_create(e->model, e->plan.discrete ? SL_TIER_DEVICE : SL_TIER_HOST,
                             !e->plan.streaming, e->n_stages, &e->map, err);
    return status == SL_OK ? sl_show_create(e, err) : status;
}

static enum sl_status make_tables(struct sl_engine *e, struct sl_err *err) {
    const struct sl_engine_config *c = &e->plan.config;
    const struct sl_memory_plan *last = &e->plans.at[e->plans.n - 1].plan;
    uint32_t n_micro_batches = e->plan.n_micro_batches;
    e->slots = calloc(c->parallel, sizeof *e->slots);
    e->published = calloc(c->parallel, sizeof *e->published);
    e->micro_batches = calloc(n_micro_batches, sizeof *e->micro_batches);
    e->flying = calloc(n_micro_batches, sizeof *e->flying);
    bool ok = e->slots && e->published && e->micro_batches && e->flying &&
              sl_sampler_space_init(&e->space, e->model->hp.n_vocab) == SL_OK &&
              sl_page_table_init(&e->pages, c->parallel, e->plan.session_pages) == SL_OK;
    if (ok && e->plan.n_tails)
        ok = sl_page_table_init(&e->tail_table, c->parallel, e->plan.session_pages) == SL_OK;
    if (ok && e->drafts && e->plan.draft_tails) {
        e->draft_tails = calloc((size_t)c->parallel * e->plan.draft_tails, sizeof *e->draft_tails);
        ok = e->draft_tails;
    }
    for (uint32_t i = 0; i < n_micro_batches && ok; i++) {
        ok = sl_micro_batch_init(&e->micro_batches[i], i, last) == SL_OK;
        e->n_micro_batches += ok;
    }
    return ok ? SL_OK : sl_fail(err, SL_ERR_NOMEM, "no memory for the scheduler's tables");
}

static enum sl_status open_records(struct sl_engine *e, struct sl_err *err) {
    const struct sl_engine_config *c = &e->plan.config;
    enum sl_status status = SL_OK;
    if (c->trace_file)
        status = sl_timeline_open(c->trace_file, SL_TIMELINE_MAX_BYTES, &e->timeline, err);
    if (status == SL_OK && c->record_routes)
        status = sl_route_recorder_open(c->record_routes, e->model, &e->routes, err);
    return status;
}

/* A track in the trace for each other machine. */
static void name_machines(struct sl_engine *e) {
    const struct sl_remote_stages *r = e->plan.config.remote;
    for (uint32_t i = 0; e->timeline && r && i < r->n; i++) {
        struct sl_remote_look look;
        r->look(r, r->host_of[i], &look);
        sl_timeline_machine(e->timeline, e->n_stages - r->n + i, r->host_of[i], look.name);
    }
}

/* Something has passed through all stages, or was read in the background. */
static void arrived(void *ctx) {
    struct sl_engine *e = ctx;
    pthread_mutex_lock(&e->lock);
    sl_engine_poke(e);
    pthread_mutex_unlock(&e->lock);
}

/* The only stage's work is done on the scheduler's thread, which looks after the rest meanwhile. */
static void meanwhile(void *ctx) {
    sl_steps_look_after(ctx);
}

static bool stopping(void *ctx) {
    const struct sl_engine *e = ctx;
    return atomic_load_explicit(&e->stop, memory_order_relaxed);
}

/* Draft rows must not be seen in what they have left: no state that cannot go back, no record of
 * what each row chose. */
static bool can_draft(const struct sl_engine *e) {
    const struct sl_engine_config *c = &e->plan.config;
    struct sl_seq_config seq = {c->kv_dtype, c->seq_source, true};
    if (!c->draft_tokens || (!c->draft_source && !e->model->hp.n_draft))
        return false;
    if (sl_seq_shape(e->model, &seq).once_bytes && !e->plan.draft_tails) {
        sl_warn("no tokens are drafted: the model has layers with a state that cannot go back");
        return false;
    }
    if (c->record_routes) {
        sl_warn("no tokens are drafted while routes are recorded");
        return false;
    }
    return true;
}

static enum sl_status build(struct sl_engine *e, const struct sl_engine_config *config,
                            struct sl_progress *progress, struct sl_err *err) {
    const struct sl_hparams *hp = &e->model->hp;
    SL_TRY(sl_stage_plans_open(e->model, config, &e->plans, err));
    e->plan = e->plans.whole;
    const struct sl_engine_config *c = &e->plan.config;
    if (hp->n_ctx_train && c->ctx_tokens > hp->n_ctx_train)
        sl_warn("the context of %u tokens is longer than the %u that the model was trained for",
                c->ctx_tokens, hp->n_ctx_train);
    log_plan(&e->plan);
    e->drafts = can_draft(e);
    if (e->drafts && !c->draft_source)
        SL_TRY(sl_draft_layer_create(e, err));
    e->pace.stall_ns = c->max_stall_ms * 1e6;
    SL_TRY(make_tables(e, err));
    SL_TRY(open_records(e, err));
    SL_TRY(sl_kv_pages_init(&e->kv, e->plan.n_pages, err));
    SL_TRY(open_stages(e, err));
    SL_TRY(open_prefixes(e, err));
    SL_TRY(load_stages(e, progress, err));
    const struct sl_pipeline_hooks hooks = {arrived, meanwhile, stopping, e};
    sl_activity_init(&e->activity, e->plan.streaming, e->plan.n_experts);
    uint64_t resident_tables = 0;
    for (uint32_t i = 0; i < e->plans.n; i++) {
        const struct sl_memory_plan *p = &e->plans.at[i].plan;
        resident_tables += p->streamed_tables ? 0 : p->large_table_bytes;
    }
    sl_gauge(table_bytes, resident_tables);
    sl_gauge(table_streamed_bytes, e->plan.streamed_table_bytes);
    sl_gauge(table_cache_bytes, e->plan.table_cache_bytes);
    name_machines(e);
    uint32_t n_busy = 0;
    for (uint32_t i = 0; i < e->plans.n_local; i++)
        n_busy += sl_plan_busy_cpus(&e->plans.at[i].plan);
    SL_TRY(sl_pipeline_open(e->ports, e->n_stages, sl_cpus_spare(n_busy, e->n_stages), &hooks,
                            e->timeline, e->shown, &e->pipeline, err));
    /* Where the cut of a prompt shows, it is always the same. */
    sl_prompt_slices_init(&e->slices, c->batch_tokens, sl_rows_alike(e) ? e->n_stages : 1);
    return map_experts(e, err);
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
    sl_cond_init(&e->wake);
    pthread_cond_init(&e->job_done, NULL);
    atomic_init(&e->stop, false);
    atomic_init(&e->cancel_asked, false);
    e->heat_busy_ns = HEAT_BUSY_NS;
    e->next_deadline_ns = UINT64_MAX;
    enum sl_status status = build(e, config, progress, err);
    if (status == SL_OK && pthread_create(&e->thread, NULL, sl_scheduler_main, e) != 0)
        status = sl_fail(err, SL_ERR_NOMEM, "the scheduler's thread could not be started");
    if (status != SL_OK) {
        sl_engine_destroy(&e);
        return status;
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
        sl_engine_poke(e);
        pthread_mutex_unlock(&e->lock);
        pthread_join(e->thread, NULL);
    }
    sl_pipeline_close(&e->pipeline);
    sl_prefix_disk_close(&e->disk);
    sl_prefix_ram_destroy(&e->ram);
    sl_prefix_tree_destroy(&e->prefixes);
    sl_tail_pages_destroy(&e->tails);
    for (uint32_t i = 0; i < e->n_local; i++)
        sl_stage_local_end_relay(&e->stages[i]);
    for (uint32_t i = 0; i < e->n_local; i++)
        sl_stage_local_leave_relay(&e->stages[i]);
    for (uint32_t i = 0; i < e->n_stages; i++) {
        if (e->ports[i])
            e->ports[i]->ops->close(e->ports[i]);
        if (i < e->n_local)
            sl_stage_local_close(&e->stages[i]);
    }
    free(e->stages);
    sl_stage_plans_release(&e->plans);
    sl_joint_heat_close(&e->heat);
    free(e->show);
    sl_expert_map_destroy(&e->map);
    sl_timeline_close(&e->timeline);
    sl_route_recorder_close(&e->routes);
    for (uint32_t i = 0; i < e->n_micro_batches; i++)
        sl_micro_batch_release(&e->micro_batches[i]);
    free(e->micro_batches);
    free(e->flying);
    sl_draft_layer_destroy(&e->draft_layer);
    sl_page_table_release(&e->pages);
    sl_page_table_release(&e->tail_table);
    sl_kv_pages_release(&e->kv);
    sl_sampler_space_release(&e->space);
    free(e->draft_tails);
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
                                   .n_embd = e->model->hp.n_embd,
                                   .weight_bytes = p->weight_bytes,
                                   .kv_bytes = p->kv_bytes,
                                   .activation_bytes = p->activation_bytes + p->scratch_bytes,
                                   .discrete = p->discrete,
                                   .n_device_slots = p->n_device_slots,
                                   .streaming = p->streaming,
                                   .n_slots = p->n_slots,
                                   .n_experts = p->n_experts,
                                   .n_stages = p->n_stages};
    for (uint32_t i = 0; i < p->n_stages; i++) {
        struct sl_engine_stage *s = &out->stages[i];
        memcpy(s->device, p->stages[i].device, sizeof s->device);
        memcpy(s->id, p->stages[i].id, sizeof s->id);
        s->discrete = p->stages[i].discrete;
        out->lane |= p->stages[i].lane;
        s->first_layer = p->stages[i].first_layer;
        s->n_layer = p->stages[i].n_layer;
        s->n_slots = p->stages[i].n_slots;
        s->n_device_slots = p->stages[i].n_device_slots;
        s->vram_total_bytes = p->stages[i].vram_total_bytes;
        s->vram_budget_bytes = p->stages[i].vram_budget_bytes;
    }
    sl_stage_plans_device(p, out->device);
}

const struct sl_stage_metrics *sl_engine_stage_metrics(struct sl_engine *e, uint32_t stage) {
    return &e->shown[stage];
}

uint32_t sl_engine_slots(struct sl_engine *e, struct sl_slot_info *out, uint32_t n) {
    uint32_t parallel = e->plan.config.parallel;
    pthread_mutex_lock(&e->published_lock);
    memcpy(out, e->published, (n < parallel ? n : parallel) * sizeof *out);
    pthread_mutex_unlock(&e->published_lock);
    return parallel;
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
    sl_engine_poke(e);
    pthread_mutex_unlock(&e->lock);
    return seen_ns;
}

uint32_t sl_engine_workers(const struct sl_engine *e, struct sl_remote_look *out) {
    const struct sl_remote_stages *remote = e->plan.config.remote;
    uint32_t n = remote ? remote->n_hosts : 0;
    for (uint32_t i = 0; i < n; i++)
        remote->look(remote, i, &out[i]);
    return n;
}

bool sl_engine_failed(struct sl_engine *e, struct sl_err *out_why) {
    pthread_mutex_lock(&e->lock);
    bool failed = e->dead != SL_OK || e->away;
    if (failed)
        *out_why = e->dead != SL_OK ? e->dead_err : e->away_err;
    pthread_mutex_unlock(&e->lock);
    const struct sl_remote_stages *remote = e->plan.config.remote;
    if (!failed && remote) /* steps notice a lost machine, but there may be none */
        failed = !remote->all_there(remote, out_why);
    return failed;
}

enum sl_status sl_engine_submit(struct sl_engine *e, struct sl_gen_request *r, struct sl_err *err) {
    struct sl_session *s;
    SL_TRY(sl_session_create(r, e->model->hp.n_vocab, e->plan.config.ctx_tokens, &s, err));
    enum sl_status status = SL_OK;
    pthread_mutex_lock(&e->lock);
    if (atomic_load(&e->stop))
        status = sl_fail(err, SL_ERR_CANCELED, "the engine is shutting down");
    else if (e->dead != SL_OK)
        status = sl_fail(err, e->dead, "%s", e->dead_err.text);
    else if (e->away)
        status = sl_fail(err, SL_ERR_PEER_LOST, "%s", e->away_err.text);
    else if (e->n_waiting >= e->plan.config.queue_max)
        status = sl_fail(err, SL_AGAIN, "%u requests are waiting already: try again later",
                         e->n_waiting);
    else if (e->n_alive >= e->plan.config.parallel + e->plan.config.queue_max)
        status = sl_fail(err, SL_AGAIN,
                         "%u requests are there already, many of them paused because "
                         "their clients do not read: try again later",
                         e->n_alive); /* the plan has memory for so many histories */
    if (status == SL_OK) {
        r->engine_private = s;
        s->task = ++e->n_tasks;
        sl_session_push_back(&e->inbox, s);
        e->n_waiting++;
        e->n_alive++;
        sl_engine_poke(e);
    }
    pthread_mutex_unlock(&e->lock);
    if (status != SL_OK) {
        free(s);
        return status;
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
        sl_engine_poke(e);
    }
    pthread_mutex_unlock(&e->lock);
}

void sl_engine_cancel(struct sl_engine *e, struct sl_gen_request *r) {
    flag(e, r, true);
}

void sl_engine_resume(struct sl_engine *e, struct sl_gen_request *r) {
    flag(e, r, false);
}
