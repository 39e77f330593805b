/* What the slots are doing: the scheduler publishes it once a step and before it says that a
 * request has ended; readers copy. */
#include "engine/schedule/schedule.h"

#include "common/clock.h"
#include "common/metrics.h"

static struct sl_slot_info look_at(const struct sl_session *s, uint64_t now) {
    if (!s)
        return (struct sl_slot_info){.state = SL_SLOT_FREE};
    struct sl_slot_info i = {
        .state = s->state == SL_SESSION_PARKED ? SL_SLOT_PARKED
                 : s->first_done               ? SL_SLOT_DECODE
                                               : SL_SLOT_PREFILL,
        .task = s->task,
        .n_prompt = s->n_prompt,
        .n_prompt_done = s->first_done || s->n_kv > s->n_prompt ? s->n_prompt : s->n_kv,
        .n_predicted = sl_session_predicted(s),
        .n_max = s->n_max,
    };
    uint64_t started = s->start_ns ? s->start_ns : now,
             prompted = s->prompt_ns ? s->prompt_ns : now;
    i.queue_ns = started - s->submit_ns;
    i.prefill_ns = prompted - started;
    i.decode_ns = now - prompted;
    return i;
}

void sl_slots_publish(struct sl_engine *e) {
    uint64_t now = sl_now_ns();
    pthread_mutex_lock(&e->published_lock);
    for (uint32_t i = 0; i < e->plan.config.parallel; i++)
        e->published[i] = look_at(e->slots[i], now);
    pthread_mutex_unlock(&e->published_lock);
}

uint32_t sl_slots_update_gauges(struct sl_engine *e) {
    uint32_t running = 0, parked = e->swapped.n;
    for (uint32_t i = 0; i < e->plan.config.parallel; i++) {
        running += sl_session_runs(e->slots[i]);
        parked += sl_session_is(e->slots[i], SL_SESSION_PARKED);
    }
    sl_gauge(sessions_running, running);
    sl_gauge(sessions_parked, parked);
    sl_gauge(sessions_waiting, e->waiting.n);
    return running;
}
