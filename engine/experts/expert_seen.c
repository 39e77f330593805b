/* What the fetch lets others see of itself: why it waits, and for how long. */
#include "engine/experts/expert_fetch_internal.h"

#include "common/metrics.h"

enum sl_stall_cause sl_fetch_stall_cause(const struct sl_fetch *f) {
    if (!f->run.n_loading)
        return SL_STALL_SLOT;
    for (uint32_t i = 0; i < f->run.n_held; i++)
        if (!f->reads.background[f->run.held[i].lease.slot] &&
            sl_cache_ready(f->cache, f->run.held[i].lease) == SL_AGAIN)
            return SL_STALL_DEMAND;
    return SL_STALL_LATE;
}

static void trace_queue(struct sl_fetch *f, uint64_t now) {
    struct sl_reader_stats r;
    sl_reader_get_stats(f->reader, &r);
    sl_timeline_counter(f->timeline, "disk queue", now,
                        (const struct sl_timeline_arg[SL_TIMELINE_ARGS]){
                            {"requests in flight", r.flying_requests},
                            {"reads", (int64_t)r.waiting_reads},
                        });
}

void sl_fetch_stalled(struct sl_fetch *f, enum sl_stall_cause cause, uint64_t start_ns) {
    static const char *const names[SL_STALL_CAUSES] = {[SL_STALL_DEMAND] = "wait: demand",
                                                       [SL_STALL_LATE] = "wait: late",
                                                       [SL_STALL_SLOT] = "wait: slot"};
    uint64_t now = sl_fetch_now(f), ns = now - start_ns;
    f->stats.stall_ns += ns;
    f->stats.stall_cause_ns[cause] += ns;
    if (cause == SL_STALL_DEMAND)
        sl_count(expert_stall_demand_ns_total, ns);
    else if (cause == SL_STALL_LATE)
        sl_count(expert_stall_late_ns_total, ns);
    else
        sl_count(expert_stall_slot_ns_total, ns);
    if (!f->timeline)
        return;
    sl_timeline_span(f->timeline, names[cause], start_ns, now,
                     (const struct sl_timeline_arg[SL_TIMELINE_ARGS]){
                         {"coming", f->run.n_loading}, {"not asked for yet", f->run.n_wanted}});
    trace_queue(f, now);
}

static void trace_experts(struct sl_fetch *f, const char *what, uint64_t start_ns,
                          uint32_t n_experts, uint32_t n_pairs) {
    sl_timeline_span(f->timeline, what, start_ns, sl_fetch_now(f),
                     (const struct sl_timeline_arg[SL_TIMELINE_ARGS]){{"experts", n_experts},
                                                                      {"pairs", n_pairs}});
}

void sl_fetch_trace_call(struct sl_fetch *f, uint64_t start_ns, uint32_t n_experts,
                         uint32_t n_pairs) {
    trace_experts(f, "experts", start_ns, n_experts, n_pairs);
}

void sl_fetch_trace_lane(struct sl_fetch *f, uint64_t start_ns, uint32_t n_experts,
                         uint32_t n_pairs) {
    trace_experts(f, "experts on the CPU", start_ns, n_experts, n_pairs);
}

void sl_fetch_trace_layer(struct sl_fetch *f) {
    const struct sl_fetch_stats *s = &f->stats;
    struct sl_fetch_stats *was = &f->traced_stats;
    uint64_t now = sl_fetch_now(f);
    sl_timeline_counter(f->timeline, "experts of a layer", now,
                        (const struct sl_timeline_arg[SL_TIMELINE_ARGS]){
                            {"hits", (int64_t)(s->hits - was->hits)},
                            {"late", (int64_t)(s->late - was->late)},
                            {"misses", (int64_t)(s->misses - was->misses)}});
    *was = *s;
    trace_queue(f, now);
}

uint32_t sl_fetch_warm_up_left(const struct sl_fetch *f) {
    return f->n_warm - f->warm_cursor;
}
