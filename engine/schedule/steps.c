/* Steps: which sessions' rows go into the next one, on its way through the stages, and what becomes
 * of its outcome.
 *
 * With one stage a step has been done when it is sent. With several, so many steps are under way at
 * once, each with other sessions, or with later rows of the same prompt: all of them keep to the
 * order in which they were sent at every stage, so a row finds the KV of those before it. */
#include "engine/schedule/schedule.h"

#include "common/clock.h"
#include "common/metrics.h"

#include <string.h>

/* ---- rows ---- */

/* Does it need more of a row of logits than the maximum? */
static bool needs_logits(const struct sl_session *s) {
    return s->req->logprobs || !sl_sampling_is_largest(&s->sampler.set);
}

static void add_out(struct sl_step *step, const struct sl_session *s) {
    sl_step_add_out(step, sl_sampling_sums_at(&s->sampler.set, s->req->logprobs));
    step->only_largest = step->only_largest && !needs_logits(s);
}

/* Adds the rows of the sessions that generate, or of those that do not. */
static enum sl_status add_rows(struct sl_engine *e, struct sl_micro_batch *l, bool decode) {
    struct sl_step *step = &l->step;
    for (uint32_t i = 0; i < e->plan.config.parallel; i++) {
        struct sl_session *s = e->slots[i];
        if (!s || !s->step_rows || sl_session_decodes(s) != decode)
            continue;
        uint32_t end = s->n_fed + s->step_rows, drafts = s->step_drafts;
        l->shares[i] = (struct sl_micro_batch_share){.s = s,
                                                     .first = step->n_rows,
                                                     .rows = s->step_rows + drafts,
                                                     .pos = s->n_fed,
                                                     .drafts = drafts,
                                                     .out = UINT32_MAX};
        sl_session_pass(e, s);
        SL_TRY(sl_slot_reserve(e, s->slot, &s->held, end + drafts,
                               sl_draft_layer_positions(e, s, end + drafts)));
        for (uint32_t pos = s->n_fed; pos < end; pos++) {
            sl_step_add_row(e, step, s->slot, pos, s->history[pos]);
            sl_step_add_before(step, s->history, pos);
        }
        if (step->keep_all) {
            l->shares[i].out = end == s->n_history ? 0 : UINT32_MAX; /* see end_step */
        } else if (end == s->n_history) {
            l->shares[i].out = step->n_out;
            add_out(step, s);
        }
        for (uint32_t j = 0; j < drafts; j++) {
            sl_draft_add_row(e, step, s, j, end + j);
            add_out(step, s);
        }
    }
    return SL_OK;
}

/* Rows count as fed once their step is sent; a draft's rows once its token has turned out to be
 * right (sl_draft_take). */
static void mark_fed(struct sl_engine *e, const struct sl_micro_batch *l) {
    for (uint32_t i = 0; i < e->plan.config.parallel; i++)
        if (l->shares[i].s)
            l->shares[i].s->n_fed += l->shares[i].rows - l->shares[i].drafts;
}

/* ---- which sessions ---- */

static bool can_feed(const struct sl_session *s) {
    return sl_session_runs(s) && sl_session_todo(s);
}

/* Does it need a step that keeps its rows? */
static bool is_told(const struct sl_session *s) {
    return can_feed(s) && sl_session_tells(s);
}

/* Sessions of which rows are kept have steps of their own, which take turns with those of all
 * others: with so many as may be under way. */
static bool keeps_next(const struct sl_engine *e) {
    bool any = false, others = false;
    for (uint32_t i = 0; i < e->plan.config.parallel; i++) {
        any = any || is_told(e->slots[i]);
        others = others || (can_feed(e->slots[i]) && !is_told(e->slots[i]));
    }
    return any && (!others || e->n_since_kept >= e->n_stages);
}

/* Rows that are kept stay at the last stage until the next step comes there: no other one is under
 * way alongside theirs. */
static bool keeps_alone(const struct sl_engine *e) {
    return e->n_flying && (e->flying[e->n_flying - 1]->step.keep_all || keeps_next(e));
}

static bool any_generates(const struct sl_engine *e) {
    for (uint32_t i = 0; i < e->plan.config.parallel; i++)
        if (sl_session_runs(e->slots[i]) && e->slots[i]->first_done)
            return true;
    return false;
}

static struct sl_micro_batch *free_micro_batch(const struct sl_engine *e) {
    /* What is recorded is in the order of one device. */
    if ((e->n_flying && e->routes) || keeps_alone(e))
        return NULL;
    /* Rows of prompts take a while from one machine to the next, in which the stages need others.
     * Generated ones are few, and divided over so many steps as there are stages. */
    if (e->n_flying >= e->n_stages && any_generates(e))
        return NULL;
    for (uint32_t i = 0; i < e->n_micro_batches; i++)
        if (!e->micro_batches[i].flying)
            return &e->micro_batches[i];
    return NULL;
}

bool sl_steps_wanted(const struct sl_engine *e) {
    if (!free_micro_batch(e))
        return false;
    for (uint32_t i = 0; i < e->plan.config.parallel; i++)
        if (can_feed(e->slots[i]))
            return true;
    return false;
}

/* All that can, where one step is under way at a time; else so many that every micro-batch gets as
 * many, and no stage waits while another has all of the work. */
static void choose(struct sl_engine *e, struct sl_micro_batch *l) {
    uint32_t parallel = e->plan.config.parallel, n_running = 0, n_chosen = 0;
    bool keep = keeps_next(e);
    l->step.keep_all = keep;
    e->n_since_kept = keep ? 0 : e->n_since_kept + 1;
    for (uint32_t i = 0; i < parallel; i++)
        n_running += sl_session_runs(e->slots[i]);
    uint32_t most = keep ? parallel : (n_running + e->n_stages - 1) / e->n_stages,
             first = e->next_slot % parallel;
    for (uint32_t j = 0; j < parallel; j++) {
        uint32_t i = (first + j) % parallel;
        struct sl_session *s = e->slots[i];
        if (!s)
            continue;
        s->chosen = n_chosen < most && can_feed(s) && is_told(s) == keep;
        n_chosen += s->chosen;
        if (s->chosen && !keep)
            e->next_slot = i + 1;
        if (!s->chosen)
            l->n_elsewhere += sl_session_runs(s) && s->first_done;
    }
}

/* ---- giving up ---- */

/* Between layers and while a step waits for the disk, on the scheduler's own thread. A canceled
 * request is answered at once, whatever else the step still does: its rows go on, but nobody looks
 * at them, and its KV pages are given to no other session before the step ends. The step is given
 * up when none of its rows is wanted any more. */
void sl_steps_look_after(struct sl_engine *e) {
    if (!e->n_flying ||
        (!atomic_exchange(&e->cancel_asked, false) && sl_now_ns() < e->next_deadline_ns))
        return;
    pthread_mutex_lock(&e->lock);
    sl_session_splice(&e->waiting, &e->inbox);
    pthread_mutex_unlock(&e->lock);
    sl_sessions_sweep(e); /* which makes steps forget sessions that leave */
}

/* ---- the outcome ---- */

static void step_failed(struct sl_engine *e, struct sl_micro_batch *l) {
    if (sl_is_fatal(l->status))
        sl_engine_break_down(e, l->status, &l->err);
    for (uint32_t i = 0; i < e->plan.config.parallel; i++)
        if (l->shares[i].s)
            sl_session_finish(e, l->shares[i].s, SL_FINISH_ERROR, l->status, l->err.text);
}

/* Ends the sessions that lost a row. Nobody needs a draft's. */
static void finish_failed(struct sl_engine *e, struct sl_micro_batch *l) {
    for (uint32_t i = 0; i < e->plan.config.parallel && l->step.n_failed; i++) {
        struct sl_micro_batch_share *a = &l->shares[i];
        if (a->s && memchr(l->step.failed + a->first, 1, a->rows - a->drafts))
            sl_session_finish(e, a->s, SL_FINISH_ERROR, SL_ERR_IO, l->err.text);
    }
}

/* Before anything is sampled: what has become full is shared. */
static void publish(struct sl_engine *e, const struct sl_micro_batch *l) {
    for (uint32_t i = 0; i < e->plan.config.parallel; i++) {
        const struct sl_micro_batch_share *a = &l->shares[i];
        if (!a->s)
            continue;
        a->s->n_kv += a->rows - a->drafts;
        sl_session_publish(e, a->s);
    }
}

static struct sl_logits row_of(const struct sl_micro_batch *l, uint32_t row, uint32_t n_vocab) {
    size_t first = (size_t)row * SL_VOCAB_BLOCKS(n_vocab);
    const struct sl_vocab_blocks *b = &l->logits.blocks;
    float *rows = l->logits.rows;
    return (struct sl_logits){.rows = rows ? rows + (size_t)row * n_vocab : NULL,
                              .blocks = {.max = b->max ? b->max + first : NULL,
                                         .at = b->at ? b->at + first : NULL,
                                         .sum = b->sum ? b->sum + first : NULL,
                                         .inv_t = l->step.sums_at[row]}};
}

/* The logits behind a prompt whose rows were kept. False: they cannot be had, and the session has
 * ended, or waits for a machine that is lost. */
static bool last_kept(struct sl_engine *e, const struct sl_micro_batch *l,
                      const struct sl_micro_batch_share *a, struct sl_logits *out_row) {
    struct sl_err err = {""};
    enum sl_status status = sl_kept_logits(e, l, a->first + a->rows - 1, 1, &out_row->rows, &err);
    if (status == SL_OK)
        return true;
    if (sl_engine_is_away(e, status, &err))
        return false;
    if (sl_is_fatal(status))
        sl_engine_break_down(e, status, &err);
    sl_session_finish(e, a->s, SL_FINISH_ERROR, status, err.text);
    return false;
}

/* A token was chosen: as long as it is the one that was drafted, the row behind it is the next
 * one's, and the token after it is chosen from that. Each is chosen and offered as it would have
 * been after a step of its own. */
static void sample_drafts(struct sl_engine *e, struct sl_micro_batch *l, uint32_t slot) {
    const struct sl_micro_batch_share *a = &l->shares[slot];
    uint32_t first = a->first + a->rows - a->drafts;
    for (uint32_t i = 0; i < a->drafts; i++) {
        struct sl_session *s = a->s;
        if (l->step.failed[first + i] || !sl_draft_take(e, s, i))
            return;
        struct sl_logits row = row_of(l, a->out + 1 + i, e->space.n_vocab);
        if (!sl_session_sample(e, s, &row))
            return;
    }
}

static void step_done(struct sl_engine *e, struct sl_micro_batch *l) {
    uint64_t now = sl_now_ns();
    for (uint32_t i = 0; i < e->plan.config.parallel; i++) {
        const struct sl_micro_batch_share *a = &l->shares[i];
        struct sl_session *s = a->s;
        if (!s)
            continue;
        struct sl_token_sink *sink = s->req->sink;
        if (!s->first_done) {
            if (sink->progress)
                sink->progress(sink, &(struct sl_prompt_progress){s->n_kv, s->n_cached, s->n_prompt,
                                                                  now - s->start_ns});
            if (s->n_kv >= s->n_prompt) {
                s->first_done = true;
                s->prompt_ns = now;
            }
        }
        if (a->out == UINT32_MAX || atomic_load(&s->cancel))
            continue;
        struct sl_logits row = {0};
        if (!l->step.keep_all)
            row = row_of(l, a->out, e->space.n_vocab);
        else if (!s->req->prompt_only && !last_kept(e, l, a, &row))
            continue;
        if (sl_session_sample(e, s, &row))
            sample_drafts(e, l, i);
    }
}

/* Counts what the step took and gives each session its share. Of steps that ran at the same time
 * each counts the time since the one before it ended. */
static void account(struct sl_engine *e, struct sl_micro_batch *l, uint64_t now) {
    const struct sl_step *step = &l->step;
    uint64_t ns = now - (l->start_ns > e->ended_ns ? l->start_ns : e->ended_ns);
    e->ended_ns = now;
    l->took_ns = ns;
    e->n_ended++;
    sl_activity_take(&e->activity, step->n_rows, step->n_decode, ns, &l->found);
    for (uint32_t i = 0; i < e->plan.config.parallel && step->n_rows; i++) {
        const struct sl_micro_batch_share *a = &l->shares[i];
        if (a->s)
            sl_expert_use_share(&l->found.use, a->first, a->rows, step->n_rows, &a->s->use);
    }
    if (l->status != SL_OK)
        return;
    uint32_t n_prompt = step->n_rows - step->n_decode;
    uint64_t prompt_ns = ns * n_prompt / step->n_rows;
    sl_count(steps_total, 1);
    sl_count(step_rows_total, step->n_rows);
    sl_count(prompt_tokens_total, n_prompt);
    sl_count(prefill_ns_total, prompt_ns);
    sl_count(decode_ns_total, ns - prompt_ns);
    sl_pace_learn(&e->pace, n_prompt, step->n_decode + l->n_elsewhere, now - l->start_ns, ns);
    if (step->n_decode || l->n_elsewhere)
        sl_prompt_slices_end(&e->slices);
    else
        sl_prompt_slices_learn(&e->slices, n_prompt, ns);
}

/* Of a step that kept all: its requests get what they want of the rows. */
static void tell_rows(struct sl_engine *e, struct sl_micro_batch *l) {
    for (uint32_t i = 0; i < e->plan.config.parallel && l->status == SL_OK; i++)
        if (l->shares[i].s)
            l->status = sl_session_tell(e, l, i, &l->err);
}

/* The model's own layer sees what the step has added to the texts: before pages are shared, with
 * the tokens that are known by then; and when tokens have been chosen. False: the engine has broken
 * down, and the sessions are gone. */
static bool run_draft_layer(struct sl_engine *e, struct sl_micro_batch *l, bool chosen) {
    struct sl_err err = {""};
    enum sl_status status = sl_draft_layer_step(e, l, chosen, &err);
    if (status == SL_OK)
        return true;
    l->status = status;
    l->err = err;
    step_failed(e, l);
    return false;
}

/* A stage gave it up although nobody wanted that: its sessions would wait for ever. */
static bool was_dropped(const struct sl_engine *e, const struct sl_micro_batch *l) {
    return l->status == SL_ERR_CANCELED && !atomic_load(&l->item.canceled) &&
           !atomic_load(&e->stop);
}

static void end_step(struct sl_engine *e, struct sl_micro_batch *l) {
    if (l->status == SL_OK && l->step.keep_all) {
        finish_failed(e, l);
        tell_rows(e, l);
    }
    account(e, l, sl_now_ns()); /* sinks included: the others waited for them too */
    if (was_dropped(e, l))
        l->status =
            sl_fail(&l->err, SL_ERR_PROTOCOL, "a stage gave up a step that was not canceled");
    if (l->status == SL_ERR_CANCELED)
        return; /* the next sweep finishes them */
    if (sl_engine_is_away(e, l->status, &l->err))
        return; /* its sessions wait */
    if (l->status != SL_OK) {
        step_failed(e, l);
        return;
    }
    finish_failed(e, l);
    if (!run_draft_layer(e, l, false))
        return;
    publish(e, l);
    uint64_t start = sl_timeline_now(e->timeline);
    step_done(e, l);
    sl_timeline_since(e->timeline, "sample", start, {"rows", l->step.n_out});
    (void)run_draft_layer(e, l, true);
}

/* ---- under way ---- */

bool sl_steps_end(struct sl_engine *e) {
    bool any = false;
    while (e->n_flying && sl_pipeline_done(e->pipeline, &e->flying[0]->item)) {
        struct sl_micro_batch *l = e->flying[0];
        any = true;
        if (l->status == SL_OK)
            sl_micro_batch_end(l, e->n_stages);
        end_step(e, l); /* sessions that leave meanwhile are forgotten in this micro-batch too */
        l->flying = false;
        memmove(e->flying, e->flying + 1, --e->n_flying * sizeof *e->flying);
        if (!e->n_flying)
            sl_prompt_slices_end(&e->slices);
    }
    return any;
}

bool sl_steps_start(struct sl_engine *e) {
    struct sl_micro_batch *l = sl_steps_wanted(e) ? free_micro_batch(e) : NULL;
    if (!l)
        return false;
    sl_micro_batch_begin(l);
    memset(l->shares, 0, e->plan.config.parallel * sizeof *l->shares);
    l->start_ns = sl_now_ns();
    choose(e, l);
    sl_share_rows(e, l->n_elsewhere, !l->step.keep_all);
    sl_drafts_share(e, l->step.keep_all);
    l->step.only_largest = !l->step.keep_all;
    enum sl_status status = add_rows(e, l, true);
    l->step.n_decode = l->step.n_rows;
    if (status == SL_OK)
        status = add_rows(e, l, false);
    e->flying[e->n_flying++] = l;
    l->flying = true;
    mark_fed(e, l);
    if (status != SL_OK) {
        l->status = sl_pages_fail(e, &l->err, status, "no KV page for a running session");
    } else {
        sl_step_send(e, l);
    }
    return true;
}
