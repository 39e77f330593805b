/* What steps did and what it took: shares of it for the requests that ran, metrics, and a line in
 * the log now and then. Counters are read where they are kept (fetch, cache, reader), by a source
 * for each of them; sources take their differences from step to step.
 *
 * Threads: a source is the thread's that calls its fetch; the rest is the scheduler's. Nothing is
 * allocated. */
#ifndef SL_ENGINE_ACTIVITY_H
#define SL_ENGINE_ACTIVITY_H

#include "common/metrics.h"
#include "engine/experts/expert_fetch.h"
#include "engine/experts/expert_tiers.h"
#include "engine/types/request.h"

/* Sums over some time. */
struct sl_activity_sums {
    uint64_t steps, prompt_rows, decode_rows;
    uint64_t prompt_ns, decode_ns; /* of steps, shared out by rows */
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
    /* The counters when they were last looked at. */
    struct sl_fetch_stats fetch_seen;
    struct sl_cache_stats cache_seen;
    struct sl_reader_stats reader_seen;
    struct sl_tiers_stats tiers_seen;
    struct sl_cache_usage slots_seen; /* what is in the gauges of this source */
    uint32_t warmups_seen;
    uint64_t gauges_ns; /* when slots were counted last */
};

/* All are borrowed; fetch and reader NULL where all experts are resident. */
void sl_activity_source_init(struct sl_activity_source *s, struct sl_fetch *fetch,
                             const struct sl_reader *reader, struct sl_stage_metrics *shown);
/* Takes its part of the gauges back. Also a zeroed one; before the fetch is gone. */
void sl_activity_source_release(struct sl_activity_source *s);
/* Adds to sums what has happened since the last call: in a step, which computed so many routed
 * experts there, each once a layer; or, idle, between steps. */
void sl_activity_look(struct sl_activity_source *s, uint64_t n_experts, bool idle,
                      struct sl_activity_sums *inout_sums);

struct sl_activity {
    bool streaming;
    struct sl_activity_sums all;  /* since init */
    struct sl_activity_sums then; /* all, at the last line */
    uint64_t line_ns;             /* of the first step since then; 0 = none */
    /* The disk's highest rate, over stretches of PEAK_NS with requests in flight. */
    uint64_t peak_busy_ns, peak_bytes; /* of the stretch that runs */
    uint64_t peak_bytes_per_s;
};

void sl_activity_add(struct sl_activity_sums *inout_sums, const struct sl_activity_sums *more);

/* n_experts: of the model, in all layers. streaming: some of them pass through slots. */
void sl_activity_init(struct sl_activity *a, bool streaming, uint32_t n_experts);
/* A step has ended, however it ended: rows it had, its time, and what the sources found, whose use
 * is what the step took. n_rows 0: no step, but reading in the background. */
void sl_activity_take(struct sl_activity *a, uint32_t n_rows, uint32_t n_decode, uint64_t ns,
                      const struct sl_activity_sums *found);
/* rows of use's n_rows from row first on: shares of all rows add up to use exactly. */
void sl_expert_use_share(const struct sl_expert_use *use, uint32_t first, uint32_t rows,
                         uint32_t n_rows, struct sl_expert_use *inout_sum);
/* The engine stops: one line for all of its time. */
void sl_activity_close(struct sl_activity *a);

#endif
