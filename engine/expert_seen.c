/* What the fetch lets others see of itself: why it waits, and for how long. */
#include "engine/expert_fetch_internal.h"

#include "common/metrics.h"

enum sl_stall_cause sl_fetch_stall_cause(const struct sl_fetch *f) {
    if (!f->n_loading)
        return SL_STALL_SLOT;
    for (uint32_t i = 0; i < f->n_held; i++)
        if (!f->background[f->held[i].lease.slot] &&
            sl_cache_ready(f->cache, f->held[i].lease) == SL_AGAIN)
            return SL_STALL_DEMAND;
    return SL_STALL_LATE;
}

void sl_fetch_stalled(struct sl_fetch *f, enum sl_stall_cause cause, uint64_t start_ns) {
    uint64_t ns = sl_fetch_now(f) - start_ns;
    f->stats.stall_ns += ns;
    f->stats.stall_cause_ns[cause] += ns;
    if (cause == SL_STALL_DEMAND)
        sl_count(expert_stall_demand_ns_total, ns);
    else if (cause == SL_STALL_LATE)
        sl_count(expert_stall_late_ns_total, ns);
    else
        sl_count(expert_stall_slot_ns_total, ns);
}

uint32_t sl_fetch_warm_up_left(const struct sl_fetch *f) {
    return f->n_warm - f->warm_cursor;
}
