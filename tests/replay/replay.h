/* A router trace as steps, and cache policies run over it: ours and what it is measured against. */
#ifndef SL_TESTS_REPLAY_REPLAY_H
#define SL_TESTS_REPLAY_REPLAY_H

#include "expert_cache/heat.h"
#include "expert_cache/trace.h"

#include <stdint.h>

struct replay_step {
    uint16_t layer;
    enum sl_phase phase;
    uint32_t n_rows, n_distinct;
    uint64_t rows_at;     /* into ids: [n_rows, k] as routed */
    uint64_t distinct_at; /* into distinct and next_use */
};

struct replay_trace {
    struct sl_trace_shape shape;
    uint32_t n_steps;
    uint32_t measure_from; /* steps before it warm the caches and are not counted */
    struct replay_step *steps;
    uint16_t *ids;
    uint16_t *distinct;
    uint32_t *next_use; /* step of the expert's next use after this one, or UINT32_MAX */
};

/* Reads a trace image; the first quarter of its steps will be warm-up. */
enum sl_status replay_open(const uint8_t *image, size_t size_bytes, struct replay_trace *out_trace,
                           struct sl_err *err) SL_MUST_CHECK;
void replay_close(struct replay_trace *trace);

/* Share of a decoded token's experts that the token before in its layer used; one sequence. */
double replay_repeat_share(const struct replay_trace *trace);

enum replay_policy {
    REPLAY_OURS,
    REPLAY_LRU,
    REPLAY_LFU,         /* all uses since the start, also of what is not in a slot */
    REPLAY_LFU_DECAYED, /* the same, each use weighing half after 256 tokens */
    REPLAY_STATIC,      /* the most used of the whole measured part, known beforehand, never moved;
                           k slots are left to compute the rest from */
    REPLAY_BELADY,      /* evicts what is used again last: knows the future, the optimum */
    REPLAY_POLICIES,
};

/* Share of the measured accesses that hit, 0..1. An access is one distinct expert in one step. All
 * policies live by the same rules: a miss takes a slot, what runs is pinned, and a step runs its
 * hits first with the first k misses, then k misses at a time (or as many as there are slots). */
double replay_run(const struct replay_trace *trace, enum replay_policy policy, uint32_t n_slots);

#endif
