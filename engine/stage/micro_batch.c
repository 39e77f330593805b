#include "engine/stage/micro_batch.h"

#include <stdlib.h>
#include <string.h>

static struct sl_micro_batch *micro_batch_of(struct sl_pipeline_item *p) {
    return (struct sl_micro_batch *)(void *)p;
}

/* What the stage before said of the step when it let it go. */
static void follow(const struct sl_stage_call *before, struct sl_ask_step *ask,
                   struct sl_stage_arrays *with) {
    const struct sl_answer_step *a = &before->answer.step;
    ask->n_failed = a->n_failed;
    if (before->passed_on) { /* the rest of its answer is still to come */
        ask->dead = false;
    } else {
        ask->dead = before->ask.step.dead || before->answer.status != SL_OK;
        with->rows = a->sent == SL_SENT_ROWS ? before->with.out_rows : NULL;
    }
    bool runs = !ask->dead && ask->n_failed < ask->n_rows;
    ask->sent = runs ? a->sent : SL_SENT_NONE;
    ask->seqno = runs ? a->seqno : 0;
}

static void begin_step(struct sl_micro_batch *l, struct sl_stage_call *c) {
    const struct sl_step *s = &l->step;
    c->ask.what = SL_STAGE_STEP;
    c->ask.step = (struct sl_ask_step){.micro_batch = s->micro_batch,
                                       .n_rows = s->n_rows,
                                       .n_decode = s->n_decode,
                                       .n_out = s->n_out,
                                       .keep_all = s->keep_all,
                                       .only_largest = s->only_largest};
    c->with.failed = s->failed;
    c->with.pages = &l->pages;
    c->with.tails = &l->tails;
    c->with.step_arrays = s->arrays;
    c->with.rows = NULL;
}

static bool ask_step(struct sl_pipeline_item *p, uint32_t stage, struct sl_stage_call *c) {
    begin_step(micro_batch_of(p), c);
    if (stage)
        follow(c - 1, &c->ask.step, &c->with);
    return true;
}

static bool ask_step_ahead(struct sl_pipeline_item *p, uint32_t stage, struct sl_stage_call *c) {
    struct sl_micro_batch *l = micro_batch_of(p);
    begin_step(l, c);
    if (stage > 1) { /* what has been lost before; the stage between loses nothing */
        struct sl_stage_arrays with = {0};
        follow(&l->calls[stage - 2], &c->ask.step, &with);
    }
    c->ask.step.sent = SL_SENT_LATER;
    c->ask.step.seqno = 0;
    return sl_stage_may_go_ahead(&c->ask.step);
}

/* They come from the host's memory, or not at all. */
static const float *rows_of(struct sl_pipeline_item *p, uint32_t stage) {
    struct sl_micro_batch *l = micro_batch_of(p);
    struct sl_ask_step ask = {.n_rows = l->step.n_rows};
    struct sl_stage_arrays with = {0};
    follow(&l->calls[stage - 1], &ask, &with);
    return ask.sent == SL_SENT_ROWS ? with.rows : NULL;
}

/* At work from when it began, or the stage before ended, whose device it waited for till then. If
 * that one's end has not been heard of yet, all of the time is counted there. */
static void count_busy(struct sl_micro_batch *l, uint32_t stage, struct sl_stage_metrics *shown) {
    const struct sl_answer_step *a = &l->calls[stage].answer.step;
    bool followed = stage && l->calls[stage - 1].passed_on;
    uint64_t before_ns = followed ? atomic_load(&l->ended_ns[stage - 1]) : a->began_ns;
    uint64_t from_ns = before_ns > a->began_ns ? before_ns : a->began_ns;
    sl_stage_count(shown, steps_total, 1);
    if (before_ns && a->ended_ns > from_ns)
        sl_stage_count(shown, busy_ns_total, a->ended_ns - from_ns);
}

static void was_answered(struct sl_pipeline_item *p, uint32_t stage,
                         struct sl_stage_metrics *shown) {
    struct sl_micro_batch *l = micro_batch_of(p);
    const struct sl_stage_answer *a = &l->calls[stage].answer;
    if (!a->step.ended_ns)
        return;
    atomic_store(&l->ended_ns[stage], a->step.ended_ns);
    count_busy(l, stage, shown);
}

enum sl_status sl_micro_batch_init(struct sl_micro_batch *l, uint32_t index,
                                   const struct sl_memory_plan *plan) {
    const struct sl_engine_config *c = &plan->config;
    memset(l, 0, sizeof *l);
    l->item = (struct sl_pipeline_item){.ask = ask_step,
                                        .ask_ahead = ask_step_ahead,
                                        .rows = rows_of,
                                        .answered = was_answered,
                                        .calls = l->calls,
                                        .may_be_canceled = true};
    atomic_init(&l->item.canceled, false);
    atomic_init(&l->item.under_way, false);
    uint32_t *arrays = calloc(sl_step_elems(c->batch_tokens, plan->n_logit_rows), sizeof *arrays);
    l->step = sl_step_lay(arrays, c->batch_tokens, plan->n_logit_rows);
    l->step.micro_batch = index;
    l->step.failed = calloc(c->batch_tokens, 1);
    for (uint32_t i = 0; i < SL_MAX_STAGES; i++) {
        l->calls[i].with.max_rows = c->batch_tokens;
        l->calls[i].with.max_out = plan->n_logit_rows;
    }
    l->shares = calloc(c->parallel, sizeof *l->shares);
    enum sl_status status = sl_page_table_init(&l->pages, c->parallel, plan->session_pages);
    if (status == SL_OK && plan->n_tails)
        status = sl_page_table_init(&l->tails, c->parallel, plan->session_pages);
    if (status == SL_OK && arrays && l->step.failed && l->shares)
        return SL_OK;
    sl_micro_batch_release(l);
    return SL_ERR_NOMEM;
}

void sl_micro_batch_release(struct sl_micro_batch *l) {
    free(l->step.arrays);
    free(l->step.failed);
    free(l->shares);
    sl_page_table_release(&l->pages);
    sl_page_table_release(&l->tails);
    memset(l, 0, sizeof *l);
}

uint64_t sl_micro_batches_bytes(const struct sl_memory_plan *plan) {
    const struct sl_engine_config *c = &plan->config;
    uint32_t n = plan->n_micro_batches;
    /* n_logit_rows at most, which plan may not have: it need not be the last stage's. */
    uint32_t rows_out = c->parallel * (1 + c->draft_tokens);
    uint32_t most_out = rows_out > SL_SCORE_ROWS ? rows_out : SL_SCORE_ROWS;
    uint64_t pages =
        sl_page_table_bytes(c->parallel, plan->session_pages) * (plan->n_tails ? 2 : 1);
    uint64_t micro_batch = sizeof(struct sl_micro_batch) +
                           sl_step_elems(c->batch_tokens, most_out) * sizeof(uint32_t) +
                           c->batch_tokens + c->parallel * sizeof(struct sl_micro_batch_share) +
                           pages;
    uint64_t draft_layer =
        c->draft_tokens
            ? 64 +
                  (sl_step_elems(c->batch_tokens, most_out) + c->batch_tokens + 2 * most_out) *
                      sizeof(uint32_t) +
                  c->batch_tokens
            : 0;
    uint64_t draft_tails = (uint64_t)c->parallel * plan->draft_tails * sizeof(uint32_t);
    return pages + n * micro_batch + draft_layer + draft_tails;
}

void sl_micro_batch_begin(struct sl_micro_batch *l) {
    sl_step_begin(&l->step);
    l->status = SL_OK;
    l->err.text[0] = 0;
    l->logits = (struct sl_logits){0};
    l->found = (struct sl_activity_sums){0};
    l->n_elsewhere = 0;
    for (uint32_t i = 0; i < SL_MAX_STAGES; i++)
        atomic_store_explicit(&l->ended_ns[i], 0, memory_order_relaxed);
}

void sl_micro_batch_end(struct sl_micro_batch *l, uint32_t n_stages) {
    for (uint32_t i = 0; i < n_stages; i++) {
        const struct sl_stage_answer *a = &l->calls[i].answer;
        sl_activity_add(&l->found, &a->found);
        if (l->status == SL_OK && (a->status != SL_OK || !l->err.text[0]))
            l->err = a->err; /* the first that failed is who is to blame */
        if (l->status == SL_OK)
            l->status = a->status;
    }
    const struct sl_stage_call *last = &l->calls[n_stages - 1];
    l->step.n_failed = last->answer.step.n_failed;
    l->logits = last->with.out_logits;
}
