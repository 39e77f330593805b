/* A step at a stage of this process: takes its rows over, runs them through the stage's layers,
 * hands them on. */
#include "engine/stage/stage_local.h"

#include "common/clock.h"

#include <stdio.h>
#include <string.h>

enum sl_status sl_stage_local_blame(const struct sl_stage_local *s, enum sl_status status,
                                    struct sl_err *err) {
    char name[SL_DEVICE_ID_BYTES + 1];
    if (!err || (status != SL_ERR_DEVICE_LOST && status != SL_ERR_DEVICE_OOM))
        return status;
    bool by_other = status == SL_ERR_DEVICE_LOST && s->relay_by && sl_device_relay_lost(s->dev);
    const struct sl_device *dev = by_other ? s->relay_by->dev : s->dev;
    snprintf(name, sizeof name, "%s:", dev->caps.id);
    struct sl_err what = *err;
    return strstr(what.text, name) ? status : sl_fail(err, status, "%s %s", name, what.text);
}

/* The scheduler's or a peer's mistake, never followed into an array. */
static enum sl_status check(const struct sl_stage_local *s, const struct sl_stage_call *c,
                            struct sl_err *err) {
    const struct sl_ask_step *a = &c->ask.step;
    const struct sl_memory_plan *p = s->plan;
    bool runs = !a->dead && a->n_failed < a->n_rows, comes = s->index && runs;
    if (a->micro_batch >= p->n_micro_batches || !a->n_rows || a->n_rows > p->config.batch_tokens ||
        a->n_decode > a->n_rows || a->n_failed > a->n_rows || a->n_rows > c->with.max_rows ||
        a->n_out > c->with.max_out ||
        (!a->keep_all && p->n_logit_rows && a->n_out > p->n_logit_rows))
        return sl_fail(
            err, SL_ERR_PROTOCOL,
            "a step of %u rows, %u generated, %u with logits, %u failed, in micro-batch %u: "
            "more than planned",
            a->n_rows, a->n_decode, a->n_out, a->n_failed, a->micro_batch);
    bool can = false;
    switch ((enum sl_sent)a->sent) {
    case SL_SENT_NONE:
        can = !comes;
        break;
    case SL_SENT_ROWS:
        can = comes && c->with.rows;
        break;
    case SL_SENT_LATER:
        can = comes && s->arrival[0] && sl_stage_may_go_ahead(a);
        break;
    case SL_SENT_COPY:
        can = comes && s->before.copies;
        break;
    case SL_SENT_SIGNAL:
        can = comes && s->before.copies && s->before.signal[a->micro_batch];
        break;
    case SL_SENT_BY_OPS:
        can = comes && s->before.linked;
        break;
    case SL_SENT_WAYS:
        break;
    }
    return can ? SL_OK
               : sl_fail(err, SL_ERR_PROTOCOL,
                         "a step of %u rows that come in way %u: this stage cannot take them so",
                         a->n_rows, a->sent);
}

static struct sl_step step_of(const struct sl_stage_call *c) {
    const struct sl_ask_step *a = &c->ask.step;
    struct sl_step step = sl_step_lay(c->with.step_arrays, c->with.max_rows, c->with.max_out);
    step.micro_batch = a->micro_batch;
    step.n_rows = a->n_rows;
    step.n_decode = a->n_decode;
    step.n_out = a->n_out;
    step.n_failed = a->n_failed;
    step.keep_all = a->keep_all;
    step.only_largest = a->only_largest;
    step.failed = c->with.failed;
    step.received = a->sent == SL_SENT_BY_OPS;
    if (step.received)
        step.seqno[SL_STEP_RECEIVES] = a->seqno;
    return step;
}

/* ---- rows that come later ---- */

/* What has become of the rows; the device goes on, if it waits for them. */
static int settle(struct sl_stage_local *s, struct sl_stage_call *c, int later) {
    int before = atomic_exchange(&c->later, later);
    if (before == SL_LATER_HELD)
        sl_signal_release(s->dev, s->arrival[c->ask.step.micro_batch]);
    return before;
}

void sl_stage_local_rows(struct sl_stage *stage, struct sl_stage_call *c, const float *rows) {
    struct sl_stage_local *s = (struct sl_stage_local *)(void *)stage;
    const struct sl_ask_step *a = &c->ask.step;
    float *to = sl_forward_come_host(s->forward, a->micro_batch);
    if (rows && rows != to)
        memcpy(to, rows, (size_t)a->n_rows * sl_row_elems(&s->model->hp) * sizeof *rows);
    atomic_store(&c->came_ns, sl_now_ns());
    settle(s, c, rows ? SL_LATER_CAME : SL_LATER_NEVER);
}

float *sl_stage_local_place(struct sl_stage *stage, uint32_t micro_batch) {
    const struct sl_stage_local *s = (const struct sl_stage_local *)(const void *)stage;
    return sl_forward_come_host(s->forward, micro_batch);
}

/* Has the device wait until they have come, unless they have: all of the step is enqueued behind
 * that. */
static enum sl_status await_rows(struct sl_stage_local *s, struct sl_stage_call *c) {
    int awaited = SL_LATER_AWAITED;
    struct sl_signal *arrival = s->arrival[c->ask.step.micro_batch];
    int later = atomic_load(&c->later);
    if (later != SL_LATER_AWAITED)
        return later == SL_LATER_NEVER ? SL_ERR_CANCELED : SL_OK;
    SL_TRY(sl_signal_hold(s->dev, arrival));
    if (!atomic_compare_exchange_strong(&c->later, &awaited, SL_LATER_HELD))
        sl_signal_release(s->dev, arrival); /* just now */
    return SL_OK;
}

/* The rows' hidden states from the stage before. */
static enum sl_status take_over(struct sl_stage_local *s, struct sl_stage_call *c) {
    const struct sl_ask_step *a = &c->ask.step;
    const struct sl_stage_neighbour *before = &s->before;
    struct sl_span to = sl_forward_x(s->forward, a->n_rows), from = before->sent[a->micro_batch];
    enum sl_status status = SL_OK;
    if (a->sent == SL_SENT_NONE || a->sent == SL_SENT_BY_OPS)
        return SL_OK;
    if (a->sent == SL_SENT_LATER)
        SL_TRY(await_rows(s, c));
    if (a->sent == SL_SENT_LATER ||
        (a->sent == SL_SENT_ROWS &&
         c->with.rows == sl_forward_come_host(s->forward, a->micro_batch)))
        return sl_forward_copy_in(s->forward, a->micro_batch, a->n_rows);
    if (a->sent == SL_SENT_ROWS)
        return sl_device_upload(s->dev, to, c->with.rows);
    if (a->sent == SL_SENT_SIGNAL)
        status = sl_signal_follow(s->dev, before->dev, before->signal[a->micro_batch]);
    from.bytes = to.bytes;
    return status == SL_OK ? sl_device_copy_from(s->dev, to, before->dev, from) : status;
}

/* What a step that was given up has left under way must not reach the next one: it would write over
 * what that is told, and read what the stage before has been given back. Nor may it wait for a
 * signal for longer than the step is under way: then that may be freed. */
static enum sl_status abandon(struct sl_stage_local *s, struct sl_stage_call *c,
                              enum sl_status status) {
    if (c && c->ask.step.sent == SL_SENT_LATER)
        settle(s, c, SL_LATER_NEVER);
    (void)!sl_device_sync(s->dev); /* a lost device has nothing under way */
    return status;
}

struct step_abort {
    struct sl_abort base; /* first */
    const struct sl_stage_call *call;
};

static bool is_canceled(const struct sl_abort *a) {
    return sl_stage_call_is_canceled(((const struct step_abort *)a)->call);
}

/* Of what must not be computed twice. Only a stage that reads experts or rows of tables starts a
 * step again. */
static enum sl_status begin_state(const struct sl_stage_local *s, const struct sl_step *step,
                                  bool again, struct sl_err *err) {
    if (!s->store && !s->table_store)
        return SL_OK;
    enum sl_status status = again ? sl_kv_restore(&s->kv, step) : sl_kv_save(&s->kv, step);
    return status == SL_OK ? SL_OK
                           : sl_fail(err, status, "keeping what a step may have to begin with: %s",
                                     sl_status_text(status));
}

/* Enqueues the step's rows through the layers of this stage, from the files that were opened: again
 * when a changed copy had to be dropped. SL_ERR_CORRUPT: they have changed. */
static enum sl_status start_layers(struct sl_stage_local *s, struct sl_stage_call *c,
                                   const struct sl_step *step) {
    struct step_abort give_up = {{is_canceled}, c};
    struct sl_err *err = &c->answer.err;
    enum sl_status status = SL_OK;
    do {
        SL_TRY(begin_state(s, step, status == SL_AGAIN, err));
        status = sl_forward_prepare(s->forward, step, err);
        enum sl_status taken = status == SL_OK ? take_over(s, c) : SL_OK;
        if (taken != SL_OK)
            status = sl_fail(err, taken, "receiving %u rows at layer %u: %s", step->n_rows,
                             s->model->hp.first_layer, sl_status_text(taken));
        if (status == SL_OK)
            status = sl_forward_start(s->forward, &give_up.base, err);
        if (status == SL_OK && s->store) /* all that it needs has been read */
            status = sl_store_verify(s->store, err);
        if (status == SL_OK && s->table_store)
            status = sl_table_store_verify(s->table_store, err);
        if (status != SL_OK)
            status = abandon(s, c, status);
    } while (status == SL_AGAIN);
    return status;
}

/* Has the next stage's device wait for this one's, where it can: the step goes on meanwhile. From
 * here on the next stage may be at the step's tables too. */
static enum sl_status pass_on_early(struct sl_stage_local *s, struct sl_stage_call *c,
                                    const struct sl_step *step, bool *out_passed) {
    struct sl_signal *sent = s->sent[step->micro_batch];
    bool sends = sl_forward_sends(s->forward);
    *out_passed = false;
    if ((!sends && (!sent || !sl_forward_is_brief(s->forward))) || step->n_failed == step->n_rows)
        return SL_OK;
    enum sl_status status = sends ? SL_OK : sl_signal_raise(s->dev, sent);
    if (status != SL_OK)
        return abandon(s, c,
                       sl_fail(&c->answer.err, status, "sending rows: %s", sl_status_text(status)));
    c->answer.step.sent = sends ? SL_SENT_BY_OPS : SL_SENT_SIGNAL;
    c->answer.step.seqno = sends ? sl_forward_seqno(s->forward, step->micro_batch) : 0;
    *out_passed = true;
    c->owner->passed(c->owner, c);
    return SL_OK;
}

/* Of a step that goes on when it has ended here. */
static void send_on(struct sl_stage_local *s, struct sl_stage_call *c) {
    c->with.out_rows = sl_forward_sent_host(s->forward, c->ask.step.micro_batch);
    c->answer.step.sent = c->with.out_rows ? SL_SENT_ROWS : SL_SENT_COPY;
}

/* The blocks are told as long as there are rows or maxima of them. */
static void give_logits(struct sl_stage_call *c, uint32_t n) {
    const struct sl_logits *l = &c->with.out_logits;
    struct sl_answer_step *a = &c->answer.step;
    a->has_rows = l->rows;
    a->has_max = l->blocks.max;
    a->has_at = l->blocks.at;
    a->has_sum = l->blocks.sum;
    a->n_logits = l->rows || l->blocks.max ? n : 0;
}

/* Waits for the step's end. */
static enum sl_status finish_layers(struct sl_stage_local *s, struct sl_stage_call *c,
                                    const struct sl_step *step, bool passed) {
    uint64_t n_experts = 0;
    struct sl_err *err = &c->answer.err;
    enum sl_status status = sl_forward_finish(s->forward, &c->with.out_logits, &n_experts, err);
    if (status != SL_OK)
        status = sl_stage_local_blame(s, abandon(s, c, status), err);
    /* What ran then were no rows: their sessions end, or are computed again, as with a stage of
     * this process that fails behind the next one's back. */
    if (status == SL_OK && c->ask.step.sent == SL_SENT_LATER &&
        atomic_load(&c->later) == SL_LATER_NEVER)
        status = sl_fail(err, SL_ERR_CANCELED, "canceled before its rows came");
    sl_activity_look(&s->activity, n_experts, false, &c->answer.found);
    if (status != SL_OK && passed) {
        if (sl_forward_sends(s->forward))
            sl_forward_release(s->forward, step->micro_batch);
        else
            sl_signal_release(s->dev, s->sent[step->micro_batch]);
    }
    if (status == SL_OK && !passed && !sl_stage_is_last(s) && step->n_failed < step->n_rows)
        send_on(s, c);
    if (status == SL_OK)
        give_logits(c, step->n_out);
    return status;
}

static enum sl_status run_rows(struct sl_stage_local *s, struct sl_stage_call *c) {
    const struct sl_ask_step *a = &c->ask.step;
    struct sl_step step = step_of(c);
    uint64_t start = sl_timeline_now(s->timeline), began_ns = sl_now_ns();
    bool passed = false;
    atomic_store_explicit(&s->busy, true, memory_order_relaxed);
    enum sl_status status = start_layers(s, c, &step);
    if (status == SL_OK) {
        sl_forward_mark_failed(s->forward, &step);
        c->answer.step.n_failed = step.n_failed;
        status = pass_on_early(s, c, &step, &passed);
    }
    if (passed) /* all but the last layer's copies have been made */
        atomic_store_explicit(&s->busy, false, memory_order_relaxed);
    if (status == SL_OK)
        status = finish_layers(s, c, &step, passed);
    else /* what it asked for and read is its all the same */
        sl_activity_look(&s->activity, 0, false, &c->answer.found);
    atomic_store_explicit(&s->busy, false, memory_order_relaxed);
    s->n_kept = status == SL_OK && step.keep_all ? step.n_rows : 0;
    uint64_t came_ns = a->sent == SL_SENT_LATER ? atomic_load(&c->came_ns) : 0;
    began_ns = came_ns > began_ns ? came_ns : began_ns; /* it only waited until then */
    c->answer.step.began_ns = began_ns;
    c->answer.step.ended_ns = sl_now_ns();
    /* For who looks at this process; the scheduler counts for itself, without waits for the stage
     * before. */
    sl_stage_count(&s->shown, steps_total, 1);
    sl_stage_count(&s->shown, busy_ns_total, c->answer.step.ended_ns - began_ns);
    sl_timeline_since(s->timeline, "step", start, {"rows", step.n_rows},
                      {"generated", step.n_decode});
    return status;
}

/* A step that has failed goes on through the other stages for its pages' sake alone. */
enum sl_status sl_stage_local_step(struct sl_stage_local *s, struct sl_stage_call *c) {
    const struct sl_ask_step *a = &c->ask.step;
    struct sl_err *err = &c->answer.err;
    c->answer.step.n_failed = a->n_failed;
    c->with.out_logits = (struct sl_logits){0};
    c->with.out_rows = NULL;
    s->n_kept = 0;
    SL_TRY(check(s, c, err));
    enum sl_status status = sl_forward_set_pages(s->forward, c->with.pages, c->with.tails);
    if (status != SL_OK)
        return sl_fail(err, status, "the page table: %s", sl_status_text(status));
    return a->dead || a->n_failed == a->n_rows ? SL_OK : run_rows(s, c);
}

enum sl_status sl_stage_local_draft(struct sl_stage_local *s, const struct sl_draft_rows *rows,
                                    struct sl_logits *out_logits, uint32_t *out_failed,
                                    struct sl_err *err) {
    uint64_t start = sl_timeline_now(s->timeline);
    atomic_store_explicit(&s->busy, true, memory_order_relaxed);
    enum sl_status status = sl_forward_draft(s->forward, rows, out_logits, out_failed, err);
    if (status == SL_OK && s->store) /* all that it needs has been read */
        status = sl_store_verify(s->store, err);
    if (status != SL_OK)
        status = sl_stage_local_blame(s, abandon(s, NULL, status), err);
    atomic_store_explicit(&s->busy, false, memory_order_relaxed);
    sl_timeline_since(s->timeline, "drafts", start, {"rows", rows->step->n_rows},
                      {"wanted", rows->step->n_out});
    return status;
}
