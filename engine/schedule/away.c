/* What happens when a machine that has some of the layers is lost. Its part of every session's
 * state is gone, so all sessions leave their slots and wait. When it is back, their histories are
 * processed again, generated rows as generated rows, and their answers go on with the tokens that
 * they would have had. */
#include "engine/schedule/schedule.h"

#include "common/clock.h"
#include "common/log.h"

/* How often the scheduler checks whether all machines are back. */
#define LOOK_NS 20000000u
/* A request that is interrupted this often without a new token may itself bring the machine down;
 * without a limit that would repeat for ever. */
#define MAX_INTERRUPTED 5u

static void set_away(struct sl_engine *e, bool away, const struct sl_err *why) {
    pthread_mutex_lock(&e->lock);
    e->away = away;
    if (why)
        e->away_err = *why;
    pthread_mutex_unlock(&e->lock);
}

bool sl_engine_is_away(struct sl_engine *e, enum sl_status status, const struct sl_err *why) {
    const struct sl_remote_stages *remote = e->plan.config.remote;
    if (status != SL_ERR_PEER_LOST || !remote)
        return false;
    if (!e->away) {
        e->away_since_ns = sl_now_ns();
        e->away_left = false;
        set_away(e, true, why);
        sl_warn("%s; requests wait for it, for %.0f s at most", why->text,
                (double)remote->wait_ns * 1e-9);
    }
    return true;
}

/* Counts a loss that interrupts it. False: it must not go on when the machine is back. */
static bool may_go_on(struct sl_session *s) {
    uint64_t at = (uint64_t)s->n_history + s->n_told;
    if (at != s->interrupted_at)
        s->n_interrupted = 0;
    s->interrupted_at = at;
    return ++s->n_interrupted < MAX_INTERRUPTED;
}

static void give_up(struct sl_engine *e, struct sl_session *s) {
    struct sl_err why;
    sl_fail(&why, SL_ERR_PEER_LOST,
            "%.400s; this request was interrupted %u times without a new token", e->away_err.text,
            s->n_interrupted);
    sl_session_finish(e, s, SL_FINISH_ERROR, SL_ERR_PEER_LOST, why.text);
}

/* They go in front of those that already wait, in the order in which they came. */
static void leave_slots(struct sl_engine *e) {
    for (struct sl_session *s; (s = sl_slots_last_come(e));) {
        if (!may_go_on(s)) {
            give_up(e, s);
            continue;
        }
        enum sl_session_state to =
            s->state == SL_SESSION_PARKED ? SL_SESSION_SWAPPED : SL_SESSION_WAITING;
        sl_session_leave_slot(e, s);
        sl_session_become(s, to);
        if (to == SL_SESSION_SWAPPED)
            sl_session_push_back(&e->swapped, s);
        else
            sl_session_wait_first(e, s);
    }
}

static void come_back(struct sl_engine *e) {
    e->plan.config.remote->resume(e->plan.config.remote);
    sl_info("all machines are there again after %.1f s",
            (double)(sl_now_ns() - e->away_since_ns) * 1e-9);
    set_away(e, false, NULL);
}

void sl_engine_tend_away(struct sl_engine *e) {
    const struct sl_remote_stages *remote = e->plan.config.remote;
    uint64_t now = sl_now_ns();
    struct sl_err why = e->away_err;
    if (!e->away || e->n_flying)
        return;
    if (!e->away_left) {
        leave_slots(e);
        sl_prefixes_forget(e);
        e->away_left = !sl_prefix_n_nodes(e->prefixes); /* else somebody is still copying one */
    }
    if (e->away_left && remote->all_there(remote, &why)) {
        come_back(e);
        return;
    }
    if (e->away_left)
        set_away(e, true, &why);
    if (now - e->away_since_ns >= remote->wait_ns)
        sl_sessions_finish_all(e, SL_FINISH_ERROR, SL_ERR_PEER_LOST, why.text);
    if (now + LOOK_NS < e->next_deadline_ns)
        e->next_deadline_ns = now + LOOK_NS;
}
