#include "engine/activity.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/metrics.h"

#include <inttypes.h>
#include <stdio.h>

/* A line in the log after so much time with steps. */
#define LINE_NS 30000000000u
/* Counting slots by state looks at every one of them. */
#define GAUGES_NS 1000000000u
/* The disk's rate is taken over so much time with requests in flight: less, and what a disk's own
 * cache hands out in a burst would pass for its limit. */
#define PEAK_NS 250000000u

void sl_activity_init(struct sl_activity *a, struct sl_fetch *fetch, const struct sl_reader *reader,
                      uint32_t n_experts) {
    *a = (struct sl_activity){.fetch = fetch, .reader = reader};
    sl_gauge(experts, n_experts);
    struct sl_expert_use none;
    sl_activity_take(a, 0, 0, 0, 0, &none);
    a->all = (struct sl_activity_sums){0};
}

/* ---- sums ---- */

static void count_slots(struct sl_activity *a) {
    struct sl_cache_usage u;
    sl_cache_usage(sl_fetch_cache(a->fetch), &u);
    sl_gauge(expert_slots_free, u.free);
    sl_gauge(expert_slots_loading, u.loading);
    sl_gauge(expert_slots_ready, u.ready);
    sl_gauge(expert_slots_failed, u.failed);
}

static void take_fetch(struct sl_activity *a, struct sl_expert_use *use) {
    struct sl_activity_sums *all = &a->all;
    const struct sl_fetch_stats *f = sl_fetch_stats(a->fetch), *was = &a->fetch_seen;
    use->hits = f->hits - was->hits;
    use->late = f->late - was->late;
    use->misses = f->misses - was->misses;
    use->stall_ns = f->stall_ns - was->stall_ns;
    for (uint32_t i = 0; i < SL_STALL_CAUSES; i++)
        all->stall_ns[i] += f->stall_cause_ns[i] - was->stall_cause_ns[i];
    sl_count(expert_missed_bytes_total, f->needed_bytes - was->needed_bytes);
    sl_count(expert_waves_total, f->waves - was->waves);
    a->fetch_seen = *f;
    sl_gauge(expert_warmups_left, sl_fetch_warm_up_left(a->fetch));
}

static void take_cache(struct sl_activity *a) {
    struct sl_activity_sums *all = &a->all;
    const struct sl_cache_stats *c = sl_fetch_cache_stats(a->fetch), *was = &a->cache_seen;
    uint64_t evictions = c->evictions - was->evictions;
    uint64_t used = c->prefetch_used - was->prefetch_used;
    uint64_t late = c->prefetch_late - was->prefetch_late;
    uint64_t wasted = c->prefetch_wasted - was->prefetch_wasted;
    all->evictions += evictions;
    all->prefetches += c->prefetches - was->prefetches;
    all->prefetch_used += used;
    all->prefetch_late += late;
    all->prefetch_wasted += wasted;
    sl_count(expert_evictions_total, evictions);
    sl_count(prefetch_used_total, used);
    sl_count(prefetch_late_total, late);
    sl_count(prefetch_wasted_total, wasted);
    sl_count(prefetch_refused_total, c->prefetch_refused - was->prefetch_refused);
    a->cache_seen = *c;
}

static void take_peak(struct sl_activity *a, uint64_t busy_ns, uint64_t bytes) {
    a->peak_busy_ns += busy_ns;
    a->peak_bytes += bytes;
    if (a->peak_busy_ns < PEAK_NS)
        return;
    uint64_t rate = (uint64_t)((double)a->peak_bytes * 1e9 / (double)a->peak_busy_ns);
    if (rate > a->peak_bytes_per_s) {
        a->peak_bytes_per_s = rate;
        sl_gauge(disk_peak_bytes_per_s, rate);
    }
    a->peak_busy_ns = a->peak_bytes = 0;
}

static void take_reader(struct sl_activity *a, struct sl_expert_use *use) {
    struct sl_activity_sums *all = &a->all;
    struct sl_reader_stats r;
    const struct sl_reader_stats *was = &a->reader_seen;
    sl_reader_get_stats(a->reader, &r);
    use->read_bytes = r.read_bytes - was->read_bytes;
    uint64_t busy = r.busy_ns - was->busy_ns, flight = r.flight_ns - was->flight_ns;
    all->needed_bytes += r.needed_bytes - was->needed_bytes;
    all->disk_busy_ns += busy;
    all->disk_flight_ns += flight;
    sl_count(disk_busy_ns_total, busy);
    sl_count(disk_flight_ns_total, flight);
    take_peak(a, busy, use->read_bytes);
    a->reader_seen = r;
}

static void count_step(struct sl_activity *a, uint32_t n_rows, uint32_t n_decode, uint64_t ns,
                       const struct sl_expert_use *use) {
    struct sl_activity_sums *all = &a->all;
    uint64_t decode_bytes = 0, prefill_bytes = 0, decode_ns = 0;
    if (n_rows) {
        decode_bytes = use->read_bytes * n_decode / n_rows;
        prefill_bytes = use->read_bytes - decode_bytes;
        decode_ns = ns * n_decode / n_rows;
        all->steps++;
    }
    all->prompt_rows += n_rows - n_decode;
    all->decode_rows += n_decode;
    all->decode_ns += decode_ns;
    all->prompt_ns += ns - decode_ns;
    all->prefill_bytes += prefill_bytes;
    all->decode_bytes += decode_bytes;
    all->idle_bytes += use->read_bytes - prefill_bytes - decode_bytes;
    all->use.hits += use->hits;
    all->use.late += use->late;
    all->use.misses += use->misses;
    all->use.read_bytes += use->read_bytes;
    all->use.stall_ns += use->stall_ns;
    sl_count(disk_prefill_bytes_total, prefill_bytes);
    sl_count(disk_decode_bytes_total, decode_bytes);
    sl_count(disk_idle_bytes_total, use->read_bytes - prefill_bytes - decode_bytes);
}

/* ---- the log ---- */

static double share(uint64_t part, uint64_t whole) {
    return whole ? 100.0 * (double)part / (double)whole : 0;
}

static double ratio(uint64_t a, uint64_t b) {
    return b ? (double)a / (double)b : 0;
}

static double rate(uint64_t n, uint64_t ns) {
    return ratio(n, ns) * 1e9;
}

/* What lies between two sums, as text. */
static void describe(const struct sl_activity *a, const struct sl_activity_sums *now,
                     const struct sl_activity_sums *was, char *out, size_t size) {
    uint64_t ns = now->prompt_ns + now->decode_ns - was->prompt_ns - was->decode_ns;
    uint64_t prompt = now->prompt_rows - was->prompt_rows,
             decode = now->decode_rows - was->decode_rows;
    uint64_t hits = now->use.hits - was->use.hits, late = now->use.late - was->use.late;
    uint64_t misses = now->use.misses - was->use.misses, asked = hits + late + misses;
    int n = snprintf(out, size,
                     "%.1f s of steps: %" PRIu64 " tokens generated (%.1f/s), %" PRIu64
                     " of prompts (%.1f/s)",
                     (double)ns * 1e-9, decode, rate(decode, now->decode_ns - was->decode_ns),
                     prompt, rate(prompt, now->prompt_ns - was->prompt_ns));
    if (!a->fetch || n < 0 || (size_t)n >= size)
        return;
    uint64_t bytes = now->use.read_bytes - was->use.read_bytes;
    uint64_t busy = now->disk_busy_ns - was->disk_busy_ns;
    const uint64_t *stall = now->stall_ns, *before = was->stall_ns;
    snprintf(
        out + n, size - (size_t)n,
        "; experts: %.1f %% found in slots, %.1f %% coming, %.1f %% on disk; disk: %.2f MB a "
        "generated token, %.2f MB a prompt token, %.3f of what was needed, %.2f GB/s with %.0f "
        "requests in flight; stalled %.1f %% of the time (demand %.1f, late %.1f, slot %.1f); "
        "%" PRIu64 " evicted; of %" PRIu64 " read ahead %" PRIu64 " used, %" PRIu64
        " late, %" PRIu64 " wasted",
        share(hits, asked), share(late, asked), share(misses, asked),
        ratio(now->decode_bytes - was->decode_bytes, decode) * 1e-6,
        ratio(now->prefill_bytes - was->prefill_bytes, prompt) * 1e-6,
        ratio(bytes, now->needed_bytes - was->needed_bytes), ratio(bytes, busy),
        ratio(now->disk_flight_ns - was->disk_flight_ns, busy),
        share(now->use.stall_ns - was->use.stall_ns, ns),
        share(stall[SL_STALL_DEMAND] - before[SL_STALL_DEMAND], ns),
        share(stall[SL_STALL_LATE] - before[SL_STALL_LATE], ns),
        share(stall[SL_STALL_SLOT] - before[SL_STALL_SLOT], ns), now->evictions - was->evictions,
        now->prefetches - was->prefetches, now->prefetch_used - was->prefetch_used,
        now->prefetch_late - was->prefetch_late, now->prefetch_wasted - was->prefetch_wasted);
}

static void log_line(struct sl_activity *a, const char *head, const struct sl_activity_sums *was) {
    char text[800];
    if (!sl_log_enabled(SL_LOG_INFO))
        return;
    describe(a, &a->all, was, text, sizeof text);
    sl_info("%s%s", head, text);
}

void sl_activity_take(struct sl_activity *a, uint32_t n_rows, uint32_t n_decode, uint64_t n_experts,
                      uint64_t ns, struct sl_expert_use *out_use) {
    struct sl_expert_use use = {0};
    uint64_t now = sl_now_ns();
    if (a->fetch) {
        take_fetch(a, &use);
        take_cache(a);
        take_reader(a, &use);
        if (!n_rows || now - a->gauges_ns >= GAUGES_NS) {
            a->gauges_ns = now;
            count_slots(a);
        }
    } else {
        use.hits = n_experts;
        sl_count(expert_hits_total, n_experts);
    }
    count_step(a, n_rows, n_decode, ns, &use);
    *out_use = use;
    if (!n_rows)
        return;
    if (!a->line_ns)
        a->line_ns = now - ns;
    if (now - a->line_ns >= LINE_NS) {
        log_line(a, "", &a->then);
        a->then = a->all;
        a->line_ns = 0;
    }
}

void sl_activity_close(struct sl_activity *a) {
    static const struct sl_activity_sums none;
    if (a->all.steps)
        log_line(a, "in all ", &none);
}

/* ---- shares ---- */

/* Of n, what falls to rows of n_rows from row first on. */
static uint64_t part(uint64_t n, uint32_t first, uint32_t rows, uint32_t n_rows) {
    return n * (first + rows) / n_rows - n * first / n_rows;
}

void sl_expert_use_share(const struct sl_expert_use *use, uint32_t first, uint32_t rows,
                         uint32_t n_rows, struct sl_expert_use *sum) {
    sum->hits += part(use->hits, first, rows, n_rows);
    sum->late += part(use->late, first, rows, n_rows);
    sum->misses += part(use->misses, first, rows, n_rows);
    sum->read_bytes += part(use->read_bytes, first, rows, n_rows);
    sum->stall_ns += part(use->stall_ns, first, rows, n_rows);
}
