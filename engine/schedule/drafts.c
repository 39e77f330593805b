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
 * Who drafts: the model's own layer (draft_layer.c), or a source of the configuration.
 *
 * A state that every row replaces cannot be restored, so models with such layers get no drafts. */
#include "engine/schedule/schedule.h"

#include "common/metrics.h"

#include <string.h>

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

bool sl_draft_take(struct sl_engine *e, struct sl_session *s, uint32_t i) {
    if (!sl_session_runs(s) || atomic_load(&s->cancel) ||
        s->history[s->n_history - 1] != s->draft[i])
        return false;
    s->n_kv++;
    s->n_fed++;
    s->n_draft_accepted++;
    sl_count(draft_accepted_total, 1);
    /* A draft layer has not seen the position: the page is shared with the next step. */
    if (!e->draft_layer)
        sl_session_publish(e, s);
    return true;
}
