/* A machine that has some of the layers is lost: its part of every session's state is gone, so all
 * sessions leave their slots and wait. When it is back, their histories are processed again,
 * generated rows as generated rows, and their answers go on with the tokens that they would have
 * had. */
#include "engine/schedule/schedule.h"

#include "common/clock.h"
#include "common/log.h"

/* How often it is looked whether all machines are there again. */
#define LOOK_NS 20000000u

static void set_away(struct sl_engine *e, bool away, const struct sl_err *why) {
    pthread_mutex_lock(&e->lock);
    e->away = away;
    if (why)
        e->away_err = *why;
    pthread_mutex_unlock(&e->lock);
}

bool sl_engine_is_away(struct sl_engine *e, enum sl_status st, const struct sl_err *why) {
    const struct sl_remote_stages *remote = e->plan.config.remote;
    if (st != SL_ERR_PEER_LOST || !remote)
        return false;
    if (!e->away) {
        e->away_since_ns = sl_now_ns();
        e->away_left = false;
        sl_warn("%s; requests wait for it, for %.0f s at most", why->text,
                (double)remote->wait_ns * 1e-9);
        set_away(e, true, why);
    }
    return true;
}

/* In front of those that wait already, the one that came first in front. */
static void leave_slots(struct sl_engine *e) {
    for (struct sl_session *s; (s = sl_slots_last_come(e));) {
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
        e->away_left = !sl_prefix_n_nodes(e->prefixes); /* else somebody still copies one */
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
