#include "engine/stage.h"

#include "common/clock.h"
#include "engine/expert_tiers.h"

#include <stdlib.h>
#include <string.h>

/* ---- whose failure ---- */

enum sl_status sl_stage_blame(const struct sl_stage *s, enum sl_status st, struct sl_err *err) {
    char name[sizeof s->dev->caps.name] = "";
    if (!err || (st != SL_ERR_DEVICE_LOST && st != SL_ERR_DEVICE_OOM))
        return st;
    memcpy(name, s->dev->caps.name, strcspn(s->dev->caps.name, " ")); /* "cuda:1: ..." */
    struct sl_err what = *err;
    return strstr(what.text, name) ? st : sl_fail(err, st, "%s %s", name, what.text);
}

/* ---- open, close ---- */

static enum sl_status open_kv(struct sl_stage *s, struct sl_err *err) {
    const struct sl_hparams *hp = &s->model->hp;
    struct sl_kv_view shape = {.dtype = s->plan->config.kv_dtype,
                               .n_kv_heads = hp->n_head_kv,
                               .head_dim_k = hp->head_dim_k,
                               .head_dim_v = hp->head_dim_v,
                               .k_page_bytes = s->plan->k_page_bytes,
                               .v_page_bytes = s->plan->v_page_bytes};
    return sl_kv_data_init(&s->kv, s->dev, &shape, hp->n_layer, s->plan->n_pages, err);
}

enum sl_status sl_stage_open(struct sl_stage *s, uint32_t index, uint32_t n_stages,
                             struct sl_stage_plan *p, const struct sl_store_heat *known,
                             struct sl_timeline *timeline, struct sl_err *err) {
    *s = (struct sl_stage){.index = index,
                           .n_stages = n_stages,
                           .model = &p->model,
                           .plan = &p->plan,
                           .dev = p->dev,
                           .timeline = timeline};
    p->dev = NULL;
    enum sl_status st = sl_device_configure(s->dev, &s->plan->limits, err);
    if (st == SL_OK)
        st = open_kv(s, err);
    if (st == SL_OK && s->plan->streaming)
        st = sl_store_create(s->model, s->plan, s->dev, known, timeline, &s->store, err);
    return sl_stage_blame(s, st, err);
}

void sl_stage_join(struct sl_stage *s, struct sl_stage *before) {
    s->before = before;
    s->reads_peer = before->plan->reads_back && sl_device_peer_open(s->dev, before->dev) == SL_OK;
}

enum sl_status sl_stage_load(struct sl_stage *s, bool by_host, struct sl_progress *progress,
                             struct sl_route_recorder *routes, struct sl_err *err) {
    enum sl_status st = sl_weights_load(s->model, !s->plan->streaming, s->dev,
                                        &sl_weights_system_io, progress, &s->weights, err);
    if (st == SL_OK && s->store)
        st = sl_store_check_files(s->store, err);
    if (st == SL_OK)
        st = sl_forward_create(&(struct sl_forward_config){.model = s->model,
                                                           .plan = s->plan,
                                                           .dev = s->dev,
                                                           .weights = s->weights,
                                                           .kv = &s->kv,
                                                           .fetch = sl_stage_fetch(s),
                                                           .timeline = s->timeline,
                                                           .routes = routes,
                                                           .hand_by_host = by_host},
                               &s->forward, err);
    if (st == SL_OK)
        sl_activity_source_init(&s->activity, sl_stage_fetch(s),
                                s->store ? sl_store_reader(s->store) : NULL, &s->shown);
    return sl_stage_blame(s, st, err);
}

void sl_stage_quit(struct sl_stage *s) {
    if (s->store)
        sl_store_quit(s->store);
}

void sl_stage_close(struct sl_stage *s) {
    sl_activity_source_release(&s->activity);
    sl_forward_destroy(&s->forward);
    sl_store_destroy(&s->store);
    sl_weights_destroy(&s->weights);
    sl_kv_data_release(&s->kv);
    if (s->dev)
        sl_device_close(&s->dev);
}

/* ---- between steps ---- */

void sl_stage_idle(struct sl_stage *s, int64_t timeout_ns, struct sl_activity_sums *found) {
    sl_fetch_idle(sl_stage_fetch(s), timeout_ns);
    sl_activity_look(&s->activity, 0, true, found);
}

void sl_stage_show_experts(struct sl_stage *s) {
    if (!sl_expert_map_asked(s->map, s->part.index))
        return;
    struct sl_fetch *fetch = sl_stage_fetch(s);
    if (!fetch) {
        sl_expert_map_publish(s->map, &s->part, NULL, NULL, 0, sl_now_ns());
        return;
    }
    const struct sl_tiers *tiers = sl_fetch_tiers(fetch);
    const struct sl_cache *device = tiers ? sl_tiers_cache(tiers) : NULL;
    struct sl_expert_map_tier slots[] = {{SL_TIER_HOST, sl_fetch_cache(fetch)},
                                         {SL_TIER_DEVICE, device}};
    sl_expert_map_publish(s->map, &s->part, sl_fetch_heat(fetch), slots, device ? 2 : 1,
                          sl_now_ns());
}

/* ---- a step ---- */

/* The rows' hidden states from the stage before, which has ended. */
static enum sl_status take_over(struct sl_stage *s, const struct sl_lane *l) {
    bool host;
    const float *x = sl_forward_handed(s->before->forward, l->step.lane, &host);
    size_t bytes = (size_t)l->step.n_rows * s->model->hp.n_embd * sizeof *x;
    float *to = sl_forward_x(s->forward);
    return host ? sl_device_upload(s->dev, to, x, bytes)
                : sl_device_copy_from(s->dev, to, s->before->dev, x, bytes);
}

/* The step's rows through the layers of this stage, and whether what was computed came from the
 * files that were opened; run again when a changed copy had to be dropped. SL_ERR_CORRUPT: it did
 * not. */
static enum sl_status run_layers(struct sl_stage *s, struct sl_lane *l) {
    enum sl_status st;
    do {
        st = s->before ? take_over(s, l) : SL_OK;
        if (st != SL_OK)
            return sl_fail(&l->err, st, "taking over %u rows at layer %u: %s", l->step.n_rows,
                           s->model->hp.first_layer, sl_status_text(st));
        st = sl_forward_run(s->forward, &l->step, l->abort, &l->logits, &l->err);
        if (st == SL_OK && s->store)
            st = sl_store_verify(s->store, &l->err);
    } while (st == SL_AGAIN);
    /* What a step that was given up has left under way must not reach the next one: it would write
     * over what that is told, and read what the stage before has been given back. */
    if (st != SL_OK)
        (void)!sl_device_sync(s->dev); /* a lost device has nothing under way */
    return st;
}

/* A step that has failed goes on through the other stages for its pages' sake alone. */
static void run_lane(struct sl_passage *p, struct sl_stage *s) {
    struct sl_lane *l = (struct sl_lane *)(void *)p;
    enum sl_status st = sl_forward_set_pages(s->forward, &l->pages);
    if (st != SL_OK && l->status == SL_OK)
        l->status = sl_stage_blame(
            s, sl_fail(&l->err, st, "the page table: %s", sl_status_text(st)), &l->err);
    if (l->status != SL_OK || l->step.n_failed == l->step.n_rows)
        return;
    uint64_t n_experts = l->step.n_experts, start = sl_timeline_now(s->timeline);
    uint64_t began_ns = sl_now_ns();
    l->status = sl_stage_blame(s, run_layers(s, l), &l->err);
    if (l->status == SL_OK)
        sl_forward_end(s->forward, &l->step);
    sl_activity_look(&s->activity, l->step.n_experts - n_experts, false, &l->found);
    sl_stage_count(&s->shown, steps_total, 1);
    sl_stage_count(&s->shown, busy_ns_total, sl_now_ns() - began_ns);
    sl_timeline_since(s->timeline, "step", start, {"rows", l->step.n_rows},
                      {"generated", l->step.n_decode});
}

/* ---- lanes ---- */

enum sl_status sl_lane_init(struct sl_lane *l, uint32_t index, const struct sl_memory_plan *plan) {
    const struct sl_engine_config *c = &plan->config;
    memset(l, 0, sizeof *l);
    atomic_init(&l->give_up.unwanted, false);
    l->passage.at_stage = run_lane;
    uint32_t *tables = calloc(sl_step_elems(c->batch_tokens, plan->n_logit_rows), sizeof *tables);
    l->step = sl_step_lay(tables, c->batch_tokens);
    l->step.lane = index;
    l->step.failed = calloc(c->batch_tokens, 1);
    l->shares = calloc(c->parallel, sizeof *l->shares);
    enum sl_status st = sl_page_table_init(&l->pages, c->parallel, plan->session_pages);
    if (st == SL_OK && tables && l->step.failed && l->shares)
        return SL_OK;
    sl_lane_release(l);
    return SL_ERR_NOMEM;
}

void sl_lane_release(struct sl_lane *l) {
    free(l->step.tables);
    free(l->step.failed);
    free(l->shares);
    sl_page_table_release(&l->pages);
    memset(l, 0, sizeof *l);
}

uint64_t sl_lanes_bytes(const struct sl_memory_plan *plan) {
    const struct sl_engine_config *c = &plan->config;
    uint32_t n = sl_plan_lanes(plan);
    /* n_logit_rows at most, which plan may not have: it need not be the last stage's. */
    uint32_t most_out = c->parallel > SL_SCORE_ROWS ? c->parallel : SL_SCORE_ROWS;
    uint64_t pages = sl_page_table_bytes(c->parallel, plan->session_pages);
    uint64_t lane = sizeof(struct sl_lane) +
                    sl_step_elems(c->batch_tokens, most_out) * sizeof(uint32_t) + c->batch_tokens +
                    c->parallel * sizeof(struct sl_lane_share) + pages;
    return pages + n * lane;
}

void sl_lane_begin(struct sl_lane *l) {
    sl_step_begin(&l->step);
    l->status = SL_OK;
    l->err.text[0] = 0;
    l->logits = NULL;
    l->found = (struct sl_activity_sums){0};
    l->n_beside = 0;
    atomic_store(&l->give_up.unwanted, false);
}
