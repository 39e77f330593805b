#include "engine/stage/stage.h"

#include "common/clock.h"
#include "engine/experts/expert_tiers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- whose failure ---- */

enum sl_status sl_stage_blame(const struct sl_stage *s, enum sl_status st, struct sl_err *err) {
    char name[SL_DEVICE_ID_BYTES + 1];
    if (!err || (st != SL_ERR_DEVICE_LOST && st != SL_ERR_DEVICE_OOM))
        return st;
    bool by_other = st == SL_ERR_DEVICE_LOST && s->relay_by && sl_device_relay_lost(s->dev);
    const struct sl_device *dev = by_other ? s->relay_by->dev : s->dev;
    snprintf(name, sizeof name, "%s:", dev->caps.id);
    struct sl_err what = *err;
    return strstr(what.text, name) ? st : sl_fail(err, st, "%s %s", name, what.text);
}

/* ---- open, close ---- */

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
        st = sl_kv_data_init(&s->kv, s->dev, s->model, s->plan->config.kv_dtype, s->plan->n_pages,
                             err);
    if (st == SL_OK && s->plan->streaming)
        st = sl_store_create(s->model, s->plan, s->dev, known, timeline, &s->store, err);
    return sl_stage_blame(s, st, err);
}

enum sl_status sl_stage_join(struct sl_stage *s, struct sl_stage *before, struct sl_err *err) {
    s->before = before;
    s->reads_peer = before->plan->reads_back && sl_device_peer_open(s->dev, before->dev) == SL_OK;
    s->reached = s->reads_peer && sl_device_peer_open(before->dev, s->dev) == SL_OK &&
                 sl_device_reaches(before->dev, s->dev);
    for (uint32_t i = 0; s->reads_peer && i < sl_plan_lanes(s->plan); i++) {
        enum sl_status st = sl_signal_create(before->dev, &before->handed[i]);
        if (st == SL_ERR_UNSUPPORTED)
            break;
        if (st != SL_OK)
            return sl_fail(err, st, "joining %s to %s: %s", s->dev->caps.name,
                           before->dev->caps.name, sl_status_text(st));
    }
    return SL_OK;
}

enum sl_status sl_stage_relay(struct sl_stage *s, struct sl_stage *by, struct sl_err *err) {
    enum sl_status st = sl_device_relay_open(s->dev, by->dev, &by->busy);
    s->relay_by = st == SL_OK ? by : NULL;
    if (st == SL_OK || st == SL_ERR_UNSUPPORTED)
        return SL_OK;
    return sl_fail(err, st, "%scopying to %s by way of %s: %s",
                   st == SL_ERR_DEVICE_OOM ? "no memory for " : "", s->dev->caps.name,
                   by->dev->caps.name, sl_status_text(st));
}

void sl_stage_end_relay(struct sl_stage *s) {
    if (s->relay_by)
        sl_device_relay_end(s->dev);
}

void sl_stage_leave_relay(struct sl_stage *s) {
    if (s->relay_by)
        sl_device_relay_close(s->dev);
    s->relay_by = NULL;
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

void sl_stages_link(struct sl_stage *stages, uint32_t n) {
    for (uint32_t i = 1; i < n; i++) {
        bool alone = true;
        for (uint32_t j = 0; j < n; j++)
            alone &= j == i || !sl_device_is_same(stages[i].dev, stages[j].dev);
        if (stages[i].reached && alone)
            sl_forward_link(stages[i - 1].forward, stages[i].forward);
    }
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
    for (uint32_t i = 0; i < SL_MAX_STAGES; i++)
        sl_signal_free(s->dev, &s->handed[i]);
    if (s->dev)
        sl_device_close(&s->dev);
}

/* ---- between steps ---- */

void sl_stage_idle(struct sl_stage *s, int64_t timeout_ns, struct sl_activity_sums *found) {
    sl_fetch_idle(sl_stage_fetch(s), timeout_ns);
    sl_activity_look(&s->activity, 0, true, found);
}

enum sl_status sl_stage_disk_speed(struct sl_stage *s, double seconds,
                                   const struct sl_fetch_abort *give_up, double *out_bytes_per_s,
                                   struct sl_activity_sums *found, struct sl_err *err) {
    if (!s->store)
        return sl_fail(err, SL_ERR_UNSUPPORTED, "no expert is read from disk: all are resident");
    uint64_t start = sl_timeline_now(s->timeline);
    enum sl_status st =
        sl_fetch_disk_speed(sl_stage_fetch(s), seconds, give_up, out_bytes_per_s, err);
    sl_activity_look(&s->activity, 0, true, found); /* no step's */
    sl_timeline_since(s->timeline, "measuring the disk", start, {NULL, 0});
    return sl_stage_blame(s, st, err);
}

void sl_stage_show_experts(struct sl_stage *s) {
    if (!sl_expert_map_asked(s->map, s->part.index))
        return;
    struct sl_fetch *fetch = sl_stage_fetch(s);
    if (!fetch) {
        const struct sl_expert_map_tier all = {s->plan->apart ? SL_TIER_DEVICE : SL_TIER_HOST,
                                               NULL};
        sl_expert_map_publish(s->map, &s->part, NULL, &all, 1, sl_now_ns());
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

/* The rows' hidden states from the stage before. */
static enum sl_status take_over(struct sl_stage *s, const struct sl_lane *l) {
    uint32_t lane = l->step.lane, n_rows = l->step.n_rows;
    if (sl_forward_takes(s->forward, &l->step))
        return SL_OK;
    const float *host = sl_forward_handed_host(s->before->forward, lane);
    struct sl_span to = sl_forward_x(s->forward, n_rows);
    enum sl_status st =
        l->follows ? sl_signal_follow(s->dev, s->before->dev, s->before->handed[lane]) : SL_OK;
    if (st != SL_OK)
        return st;
    return host ? sl_device_upload(s->dev, to, host)
                : sl_device_copy_from(s->dev, to, s->before->dev,
                                      sl_forward_handed(s->before->forward, lane, n_rows));
}

/* What a step that was given up has left under way must not reach the next one: it would write over
 * what that is told, and read what the stage before has been given back. Nor may it wait for a
 * signal for longer than the step is under way: then that may be freed. */
static enum sl_status abandon(struct sl_stage *s, enum sl_status st) {
    (void)!sl_device_sync(s->dev); /* a lost device has nothing under way */
    return st;
}

/* Enqueues the step's rows through the layers of this stage, from the files that were opened: again
 * when a changed copy had to be dropped. SL_ERR_CORRUPT: they have changed. */
static enum sl_status start_layers(struct sl_stage *s, struct sl_lane *l) {
    enum sl_status st;
    do {
        st = s->before ? take_over(s, l) : SL_OK;
        if (st != SL_OK)
            st = sl_fail(&l->err, st, "taking over %u rows at layer %u: %s", l->step.n_rows,
                         s->model->hp.first_layer, sl_status_text(st));
        else
            st = sl_forward_start(s->forward, &l->step, l->abort, &l->err);
        if (st == SL_OK && s->store) /* all that it needs has been read */
            st = sl_store_verify(s->store, &l->err);
        if (st != SL_OK)
            st = abandon(s, st);
    } while (st == SL_AGAIN);
    return st;
}

/* Has the next stage's device wait for this one's, where it can: its thread enqueues meanwhile. */
static enum sl_status pass_on_early(struct sl_stage *s, struct sl_lane *l, bool *out_passed) {
    struct sl_signal *handed = s->handed[l->step.lane];
    bool hands = sl_forward_hands(s->forward);
    *out_passed = false;
    if ((!hands && (!handed || !sl_forward_is_brief(s->forward))) ||
        l->step.n_failed == l->step.n_rows)
        return SL_OK;
    enum sl_status st = hands ? SL_OK : sl_signal_raise(s->dev, handed);
    if (st != SL_OK)
        return abandon(s, sl_fail(&l->err, st, "handing over: %s", sl_status_text(st)));
    l->follows = true;
    *out_passed = true;
    sl_pipeline_pass_on(&l->passage, s);
    return SL_OK;
}

/* Waits for the step's end, and notes what came of it where nobody else writes: in `rest`, if the
 * step has gone on. */
static void finish_layers(struct sl_stage *s, struct sl_lane *l, struct sl_lane_rest *rest) {
    uint64_t n_experts = 0;
    struct sl_logits logits = {0};
    struct sl_err *err = rest ? &rest->err : &l->err;
    enum sl_status st = sl_forward_finish(s->forward, &logits, &n_experts, err);
    if (st != SL_OK)
        st = sl_stage_blame(s, abandon(s, st), err);
    sl_activity_look(&s->activity, n_experts, false, rest ? &rest->found : &l->found);
    if (rest) {
        rest->status = st;
        if (st != SL_OK && sl_forward_hands(s->forward))
            sl_forward_release(s->forward, l->step.lane);
        else if (st != SL_OK)
            sl_signal_release(s->dev, s->handed[l->step.lane]);
    } else {
        l->status = st;
        l->logits = logits;
    }
}

/* Before the step has gone on. What it asked for and read is its all the same. */
static void fail_layers(struct sl_stage *s, struct sl_lane *l, enum sl_status st) {
    sl_activity_look(&s->activity, 0, false, &l->found);
    l->status = sl_stage_blame(s, st, &l->err);
}

/* At work from when it began, or the stage before ended, whose device it waited for till then. If
 * that one's thread has not seen its end yet, all of the time is counted there. */
static void count_busy(struct sl_stage *s, uint64_t began_ns, uint64_t ended_ns,
                       const struct sl_lane_rest *before) {
    uint64_t before_ns = before ? atomic_load(&before->ended_ns) : began_ns;
    uint64_t from_ns = before_ns > began_ns ? before_ns : began_ns;
    sl_stage_count(&s->shown, steps_total, 1);
    if (before_ns && ended_ns > from_ns)
        sl_stage_count(&s->shown, busy_ns_total, ended_ns - from_ns);
}

static void run_rows(struct sl_stage *s, struct sl_lane *l) {
    uint64_t start = sl_timeline_now(s->timeline), began_ns = sl_now_ns();
    uint32_t n_rows = l->step.n_rows, n_decode = l->step.n_decode;
    struct sl_lane_rest *before = l->follows ? &l->rest[s->index - 1] : NULL;
    bool passed = false;
    atomic_store_explicit(&s->busy, true, memory_order_relaxed);
    enum sl_status st = start_layers(s, l);
    if (st == SL_OK) {
        sl_forward_mark_failed(s->forward, &l->step);
        st = pass_on_early(s, l, &passed);
    }
    if (passed) /* all but the last layer's copies have been made */
        atomic_store_explicit(&s->busy, false, memory_order_relaxed);
    if (st == SL_OK)
        finish_layers(s, l, passed ? &l->rest[s->index] : NULL);
    else
        fail_layers(s, l, st);
    atomic_store_explicit(&s->busy, false, memory_order_relaxed);
    uint64_t ended_ns = sl_now_ns();
    if (passed)
        atomic_store(&l->rest[s->index].ended_ns, ended_ns);
    else
        l->follows = false;
    count_busy(s, began_ns, ended_ns, before);
    sl_timeline_since(s->timeline, "step", start, {"rows", n_rows}, {"generated", n_decode});
}

/* A step that has failed goes on through the other stages for its pages' sake alone. */
static void run_lane(struct sl_passage *p, struct sl_stage *s) {
    struct sl_lane *l = (struct sl_lane *)(void *)p;
    enum sl_status st = sl_forward_set_pages(s->forward, &l->pages);
    if (st != SL_OK && l->status == SL_OK)
        l->status = sl_stage_blame(
            s, sl_fail(&l->err, st, "the page table: %s", sl_status_text(st)), &l->err);
    if (l->status == SL_OK && l->step.n_failed < l->step.n_rows)
        run_rows(s, l);
}

/* ---- lanes ---- */

enum sl_status sl_lane_init(struct sl_lane *l, uint32_t index, const struct sl_memory_plan *plan) {
    const struct sl_engine_config *c = &plan->config;
    memset(l, 0, sizeof *l);
    atomic_init(&l->give_up.unwanted, false);
    l->passage.at_stage = run_lane;
    uint32_t *tables = calloc(sl_step_elems(c->batch_tokens, plan->n_logit_rows), sizeof *tables);
    l->step = sl_step_lay(tables, c->batch_tokens, plan->n_logit_rows);
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
    l->logits = (struct sl_logits){0};
    l->found = (struct sl_activity_sums){0};
    l->n_beside = 0;
    l->follows = false;
    memset(l->rest, 0, sizeof l->rest);
    atomic_store(&l->give_up.unwanted, false);
}

void sl_lane_end(struct sl_lane *l) {
    for (uint32_t i = SL_MAX_STAGES; i-- > 0;) { /* the first that failed is who is to blame */
        const struct sl_lane_rest *r = &l->rest[i];
        sl_activity_add(&l->found, &r->found);
        if (r->status == SL_OK)
            continue;
        l->status = r->status;
        l->err = r->err;
    }
}
