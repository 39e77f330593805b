#include "engine/observe/activity.h"

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

/* ---- sources ---- */

/* Gauges are sums over the sources. */
static void tell_slots(struct sl_activity_source *s, const struct sl_cache_usage *now) {
    const struct sl_cache_usage *was = &s->slots_seen;
    sl_count(expert_slots_free, (int64_t)now->free - was->free);
    sl_count(expert_slots_loading, (int64_t)now->loading - was->loading);
    sl_count(expert_slots_ready, (int64_t)now->ready - was->ready);
    sl_count(expert_slots_failed, (int64_t)now->failed - was->failed);
    s->slots_seen = *now;
}

static void tell_warmups(struct sl_activity_source *s, uint32_t left) {
    sl_count(expert_warmups_left, (int64_t)left - s->warmups_seen);
    s->warmups_seen = left;
}

void sl_activity_source_init(struct sl_activity_source *s, struct sl_fetch *fetch,
                             const struct sl_reader *reader, struct sl_stage_metrics *shown) {
    *s = (struct sl_activity_source){.fetch = fetch, .reader = reader, .shown = shown};
    struct sl_activity_sums before = {0}; /* nobody's step */
    sl_activity_look(s, 0, true, &before);
}

void sl_activity_source_release(struct sl_activity_source *s) {
    static const struct sl_cache_usage none;
    if (!s->fetch)
        return;
    tell_slots(s, &none);
    tell_warmups(s, 0);
    s->fetch = NULL;
}

static void look_at_fetch(struct sl_activity_source *s, struct sl_activity_sums *sums) {
    const struct sl_fetch_stats *f = sl_fetch_stats(s->fetch), *was = &s->fetch_seen;
    uint64_t hits = f->hits - was->hits, host_hits = f->host_hits - was->host_hits;
    uint64_t late = f->late - was->late, misses = f->misses - was->misses;
    uint64_t stall_ns = f->stall_ns - was->stall_ns;
    sums->use.hits += hits;
    sums->use.late += late;
    sums->use.misses += misses;
    sums->use.stall_ns += stall_ns;
    sl_stage_count(s->shown, expert_hits_total, hits - host_hits);
    sl_stage_count(s->shown, expert_host_hits_total, host_hits);
    sl_stage_count(s->shown, expert_late_total, late);
    sl_stage_count(s->shown, expert_misses_total, misses);
    sl_stage_count(s->shown, stall_ns_total, stall_ns);
    for (uint32_t i = 0; i < SL_STALL_CAUSES; i++)
        sums->stall_ns[i] += f->stall_cause_ns[i] - was->stall_cause_ns[i];
    sl_count(expert_missed_bytes_total, f->needed_bytes - was->needed_bytes);
    sl_count(expert_waves_total, f->waves - was->waves);
    s->fetch_seen = *f;
    tell_warmups(s, sl_fetch_warm_up_left(s->fetch));
}

static void look_at_tiers(struct sl_activity_source *s, const struct sl_tiers *tiers) {
    const struct sl_tiers_stats *t = sl_tiers_stats(tiers), *was = &s->tiers_seen;
    sl_stage_count(s->shown, link_up_bytes_total, t->link_up_bytes - was->link_up_bytes);
    sl_stage_count(s->shown, link_down_bytes_total, t->down_bytes - was->down_bytes);
    sl_stage_count(s->shown, link_read_bytes_total, t->in_place_bytes - was->in_place_bytes);
    s->tiers_seen = *t;
}

static void look_at_cache(struct sl_activity_source *s, struct sl_activity_sums *sums) {
    const struct sl_cache_stats *c = sl_fetch_cache_stats(s->fetch), *was = &s->cache_seen;
    uint64_t evictions = c->evictions - was->evictions;
    uint64_t used = c->prefetch_used - was->prefetch_used;
    uint64_t late = c->prefetch_late - was->prefetch_late;
    uint64_t wasted = c->prefetch_wasted - was->prefetch_wasted;
    sums->evictions += evictions;
    sums->prefetches += c->prefetches - was->prefetches;
    sums->prefetch_used += used;
    sums->prefetch_late += late;
    sums->prefetch_wasted += wasted;
    sl_count(expert_evictions_total, evictions);
    sl_count(prefetch_used_total, used);
    sl_count(prefetch_late_total, late);
    sl_count(prefetch_wasted_total, wasted);
    sl_count(prefetch_refused_total, c->prefetch_refused - was->prefetch_refused);
    s->cache_seen = *c;
}

static void look_at_reader(struct sl_activity_source *s, struct sl_activity_sums *sums) {
    struct sl_reader_stats r;
    const struct sl_reader_stats *was = &s->reader_seen;
    sl_reader_get_stats(s->reader, &r);
    uint64_t busy = r.busy_ns - was->busy_ns, flight = r.flight_ns - was->flight_ns;
    sums->use.read_bytes += r.read_bytes - was->read_bytes;
    sums->needed_bytes += r.needed_bytes - was->needed_bytes;
    sums->disk_busy_ns += busy;
    sums->disk_flight_ns += flight;
    sl_count(disk_busy_ns_total, busy);
    sl_count(disk_flight_ns_total, flight);
    s->reader_seen = r;
}

void sl_activity_look(struct sl_activity_source *s, uint64_t n_experts, bool idle,
                      struct sl_activity_sums *sums) {
    if (!s->fetch) {
        sums->use.hits += n_experts;
        sl_count(expert_hits_total, n_experts);
        sl_stage_count(s->shown, expert_hits_total, n_experts);
        return;
    }
    look_at_fetch(s, sums);
    if (sl_fetch_tiers(s->fetch))
        look_at_tiers(s, sl_fetch_tiers(s->fetch));
    look_at_cache(s, sums);
    look_at_reader(s, sums);
    uint64_t now = sl_now_ns();
    if (idle || now - s->gauges_ns >= GAUGES_NS) {
        struct sl_cache_usage u;
        s->gauges_ns = now;
        sl_cache_usage(sl_fetch_cache(s->fetch), &u);
        tell_slots(s, &u);
    }
}

/* ---- sums ---- */

void sl_activity_init(struct sl_activity *a, bool streaming, uint32_t n_experts) {
    *a = (struct sl_activity){.streaming = streaming};
    sl_gauge(experts, n_experts);
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

void sl_activity_add(struct sl_activity_sums *all, const struct sl_activity_sums *found) {
    for (uint32_t i = 0; i < SL_STALL_CAUSES; i++)
        all->stall_ns[i] += found->stall_ns[i];
    all->use.hits += found->use.hits;
    all->use.late += found->use.late;
    all->use.misses += found->use.misses;
    all->use.read_bytes += found->use.read_bytes;
    all->use.stall_ns += found->use.stall_ns;
    all->needed_bytes += found->needed_bytes;
    all->disk_busy_ns += found->disk_busy_ns;
    all->disk_flight_ns += found->disk_flight_ns;
    all->evictions += found->evictions;
    all->prefetches += found->prefetches;
    all->prefetch_used += found->prefetch_used;
    all->prefetch_late += found->prefetch_late;
    all->prefetch_wasted += found->prefetch_wasted;
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
    sl_count(disk_prefill_bytes_total, prefill_bytes);
    sl_count(disk_decode_bytes_total, decode_bytes);
    sl_count(disk_idle_bytes_total, use->read_bytes - prefill_bytes - decode_bytes);
}

/* ---- the log ---- */

static double share(uint64_t share_of, uint64_t whole) {
    return whole ? 100.0 * (double)share_of / (double)whole : 0;
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
    if (!a->streaming || n < 0 || (size_t)n >= size)
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

void sl_activity_take(struct sl_activity *a, uint32_t n_rows, uint32_t n_decode, uint64_t ns,
                      const struct sl_activity_sums *found) {
    uint64_t now = sl_now_ns();
    sl_activity_add(&a->all, found);
    take_peak(a, found->disk_busy_ns, found->use.read_bytes);
    count_step(a, n_rows, n_decode, ns, &found->use);
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
static uint64_t share_of(uint64_t n, uint32_t first, uint32_t rows, uint32_t n_rows) {
    return n * (first + rows) / n_rows - n * first / n_rows;
}

void sl_expert_use_share(const struct sl_expert_use *use, uint32_t first, uint32_t rows,
                         uint32_t n_rows, struct sl_expert_use *sum) {
    sum->hits += share_of(use->hits, first, rows, n_rows);
    sum->late += share_of(use->late, first, rows, n_rows);
    sum->misses += share_of(use->misses, first, rows, n_rows);
    sum->read_bytes += share_of(use->read_bytes, first, rows, n_rows);
    sum->stall_ns += share_of(use->stall_ns, first, rows, n_rows);
}
