/* Drafts: tokens that are proposed to follow a session's history, and verified in one step.
 *
 * A drafted token's row goes into the step behind the row of the session's last token, as a
 * generated row like any other: it attends to the rows before it, writes its KV, and has logits. A
 * row's result depends on its own sequence alone, so as far as the drafts are right these logits
 * are those that steps of one row each would have given, to the bit. The tokens are then chosen one
 * after another from them (steps.c), each with the sampler as it stands after the one before; from
 * the first wrong draft on, the remaining rows are dropped. Their KV lies behind the session's last
 * position, where nobody reads it before the right rows have been written over it.
 *
 * A state that every row replaces is another matter. A draft's row leaves the state behind it in a
 * tail page that the slot has for that, and the row before it keeps its own, so that each is there
 * when the step has ended. For a draft that was right the page takes the place of the one in the
 * page table that held the state before, which is free for a draft then: nothing is copied.
 *
 * Who drafts: the model's own layer (draft_layer.c), or a source of the configuration. */
#include "engine/schedule/schedule.h"

#include "common/metrics.h"

#include <assert.h>
#include <string.h>

#define PAGE SL_KV_PAGE_TOKENS

/* Does the step have room for drafts? For a session whose next row is that of its last token. */
static bool may_draft(const struct sl_session *s) {
    return s->step_rows == 1 && sl_session_decodes(s) && sl_session_todo(s) == 1;
}

static void propose(struct sl_engine *e, struct sl_session *s) {
    const struct sl_draft_source *source = e->plan.config.draft_source;
    if (!source)
        return; /* draft_layer.c has, behind the step before */
    s->draft_at = s->n_history;
    s->n_draft =
        source->propose(source, s->history, s->n_history, e->plan.config.draft_tokens, s->draft);
}

void sl_drafts_share(struct sl_engine *e, bool keep_all) {
    uint32_t parallel = e->plan.config.parallel, n_rows = 0, n_out = 0;
    for (uint32_t i = 0; i < parallel; i++) {
        struct sl_session *s = e->slots[i];
        if (!s)
            continue;
        s->step_drafts = 0;
        n_rows += s->step_rows;
        n_out += s->step_rows > 0;
    }
    if (!e->drafts || keep_all || (e->draft_layer && !sl_draft_layer_verifies(e)))
        return;
    uint32_t most_out = sl_kept_rows_most(e), most_rows = e->plan.config.batch_tokens;
    uint32_t room = most_rows - n_rows, room_out = most_out - n_out;
    if (room_out < room)
        room = room_out;
    for (uint32_t i = 0; i < parallel && room; i++) {
        struct sl_session *s = e->slots[i];
        if (!s || !may_draft(s))
            continue;
        propose(e, s);
        /* The last token of an answer needs no row. */
        uint32_t n = s->draft_at == s->n_history ? s->n_draft : 0,
                 most = s->n_max - s->n_history - 1;
        n = n < most ? n : most;
        s->step_drafts = n < room ? n : room;
        room -= s->step_drafts;
        s->n_drafted += s->step_drafts;
        sl_count(draft_tokens_total, s->step_drafts);
    }
}

/* The tail page of the state behind the draft at i of a slot. */
static uint32_t *tail_of(const struct sl_engine *e, uint32_t slot, uint32_t i) {
    return &e->draft_tails[slot * e->plan.draft_tails + i];
}

void sl_draft_add_row(struct sl_engine *e, struct sl_step *step, const struct sl_session *s,
                      uint32_t i, uint32_t pos) {
    sl_step_add_row(e, step, s->slot, pos, s->draft[i]);
    if (e->draft_tails)
        step->tail_slot[step->n_rows - 1] = *tail_of(e, s->slot, i) * PAGE + pos % PAGE;
}

/* The session goes on from the state behind the draft at i, in position pos. */
static void keep_state(struct sl_engine *e, const struct sl_session *s, uint32_t i, uint32_t pos) {
    uint32_t at = pos / PAGE, *kept = tail_of(e, s->slot, i);
    uint32_t before = sl_page_table_get(&e->tail_table, s->slot, at);
    assert(at >= s->held.tail_first && at < s->held.tail_end);
    /* No other page has the same tail page. */
    assert(at == s->held.tail_first ||
           sl_page_table_get(&e->tail_table, s->slot, at - 1) != before);
    sl_page_table_set(&e->tail_table, s->slot, at, *kept);
    *kept = before;
}

bool sl_draft_take(struct sl_engine *e, struct sl_session *s, uint32_t i) {
    if (!sl_session_runs(s) || atomic_load(&s->cancel) ||
        s->history[s->n_history - 1] != s->draft[i])
        return false;
    if (e->draft_tails)
        keep_state(e, s, i, s->n_kv);
    s->n_kv++;
    s->n_fed++;
    s->n_draft_accepted++;
    sl_count(draft_accepted_total, 1);
    /* A draft layer has not seen the position: the page is shared with the next step. */
    if (!e->draft_layer)
        sl_session_publish(e, s);
    return true;
}
