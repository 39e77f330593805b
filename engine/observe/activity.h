/* What steps did and what it cost: shares of it for the requests that ran, metrics, and a log line
 * now and then. Counters are read where they are kept (fetch, cache, reader), through a source for
 * each; sources take the differences from step to step.
 *
 * Threads: a source belongs to the thread that calls its fetch; the rest to the scheduler. Nothing
 * is allocated. */
#ifndef SL_ENGINE_ACTIVITY_H
#define SL_ENGINE_ACTIVITY_H

#include "common/metrics.h"
#include "engine/experts/expert_fetch.h"
#include "engine/experts/expert_tiers.h"
#include "engine/types/request.h"

/* Sums over a period. */
struct sl_activity_sums {
    uint64_t steps, prompt_rows, decode_rows;
    uint64_t prompt_ns, decode_ns; /* of steps, divided by rows */
    struct sl_expert_use use;
    uint64_t stall_ns[SL_STALL_CAUSES];
    uint64_t needed_bytes;                            /* payload of what was read */
    uint64_t prefill_bytes, decode_bytes, idle_bytes; /* of use.read_bytes */
    uint64_t disk_busy_ns, disk_flight_ns;            /* of all readers together */
    uint64_t evictions, prefetches, prefetch_used, prefetch_late, prefetch_wasted;
};

struct sl_activity_source {
    struct sl_fetch *fetch;         /* NULL: all experts are resident */
    const struct sl_reader *reader; /* the fetch's */
    struct sl_stage_metrics *shown; /* of its stage */
    /* The counters when last read. */
    struct sl_fetch_stats fetch_seen;
    struct sl_cache_stats cache_seen;
    struct sl_reader_stats reader_seen;
    struct sl_tiers_stats tiers_seen;
    struct sl_cache_usage slots_seen; /* this source's part of the gauges */
    uint32_t warmups_seen;
    uint64_t gauges_ns; /* when slots were counted last */
};

/* All are borrowed; fetch and reader are NULL if all experts are resident. */
void sl_activity_source_init(struct sl_activity_source *s, struct sl_fetch *fetch,
                             const struct sl_reader *reader, struct sl_stage_metrics *shown);
/* Removes its part from the gauges. Call it before the fetch is gone; a zeroed source is allowed.
 */
void sl_activity_source_release(struct sl_activity_source *s);
/* Adds to sums what has happened since the last call: in a step, which computed n_experts routed
 * experts there, each once a layer; or, if idle, between steps. */
void sl_activity_look(struct sl_activity_source *s, uint64_t n_experts, bool idle,
                      struct sl_activity_sums *inout_sums);

struct sl_activity {
    bool streaming;
    struct sl_activity_sums all;  /* since init */
    struct sl_activity_sums then; /* all, at the last line */
    uint64_t line_ns;             /* of the first step since then; 0 = none */
    /* The disk's highest rate, over stretches of PEAK_NS with requests in flight. */
    uint64_t peak_busy_ns, peak_bytes; /* of the current stretch */
    uint64_t peak_bytes_per_s;
};

void sl_activity_add(struct sl_activity_sums *inout_sums, const struct sl_activity_sums *more);

/* n_experts: in all layers of the model. streaming: some of them pass through slots. */
void sl_activity_init(struct sl_activity *a, bool streaming, uint32_t n_experts);
/* A step has ended, in whatever way: its rows, its time, and what the sources found, whose use is
 * what the step cost. n_rows 0: no step, but reading in the background. */
void sl_activity_take(struct sl_activity *a, uint32_t n_rows, uint32_t n_decode, uint64_t ns,
                      const struct sl_activity_sums *found);
/* The share of `rows` rows, from row first on, of use's n_rows; the shares of all rows add up to
 * use exactly. */
void sl_expert_use_share(const struct sl_expert_use *use, uint32_t first, uint32_t rows,
                         uint32_t n_rows, struct sl_expert_use *inout_sum);
/* The engine stops: logs one line for its whole run. */
void sl_activity_close(struct sl_activity *a);

#endif
