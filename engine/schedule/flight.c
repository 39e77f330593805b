/* Steps in flight: sending them, giving them up, waiting for them. Their outcome is handled in
 * steps.c. */
#include "engine/schedule/schedule.h"

void sl_step_add_row(struct sl_engine *e, struct sl_step *step, uint32_t slot, uint32_t pos,
                     uint32_t id) {
    uint32_t i = pos / SL_KV_PAGE_TOKENS;
    uint32_t tail = e->tails ? sl_page_table_get(&e->tail_table, slot, i) : 0;
    sl_step_add(step, slot, pos, sl_page_table_get(&e->pages, slot, i), tail, id);
}

void sl_step_send(struct sl_engine *e, struct sl_micro_batch *l) {
    sl_page_table_take(&e->pages, &l->pages);
    sl_page_table_take(&e->tail_table, &l->tails);
    l->item.is_brief = l->step.n_rows == l->step.n_decode && l->step.n_rows <= SL_STAGE_AHEAD_ROWS;
    sl_pipeline_send(e->pipeline, &l->item);
}

static bool is_wanted(const struct sl_engine *e, const struct sl_micro_batch *l) {
    for (uint32_t i = 0; i < e->plan.config.parallel; i++)
        if (l->shares[i].s)
            return true;
    return false;
}

void sl_steps_forget(struct sl_engine *e, const struct sl_session *s) {
    for (uint32_t i = 0; i < e->n_flying; i++) {
        struct sl_micro_batch *l = e->flying[i];
        if (l->shares[s->slot].s != s)
            continue;
        l->shares[s->slot].s = NULL;
        if (!is_wanted(e, l))
            sl_pipeline_cancel(e->pipeline, &l->item);
    }
}

void sl_steps_drain(struct sl_engine *e) {
    for (uint32_t i = 0; i < e->n_flying; i++)
        sl_pipeline_cancel(e->pipeline, &e->flying[i]->item);
    for (uint32_t i = 0; i < e->n_flying; i++)
        sl_pipeline_wait(e->pipeline, &e->flying[i]->item);
}
