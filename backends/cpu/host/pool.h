/* A persistent pool: the calling thread and n-1 helpers run one function together.
 *
 * Between runs helpers spin for a short while, then sleep on a futex: decode makes hundreds of
 * short runs per token, while an idle server must cost nothing. One caller at a time. */
#ifndef SL_BACKENDS_CPU_HOST_POOL_H
#define SL_BACKENDS_CPU_HOST_POOL_H

#include "common/status.h"

#include <stdint.h>

struct sl_pool;

/* n_threads counts the caller; at least 1. */
enum sl_status sl_pool_create(uint32_t n_threads, struct sl_pool **out_pool) SL_MUST_CHECK;
void sl_pool_destroy(struct sl_pool **pool);
uint32_t sl_pool_n_threads(const struct sl_pool *pool);
/* From now on helpers that have nothing to do spin for so long before they sleep; not where there
 * are more threads than CPUs, nor for less than they do anyway. */
void sl_pool_stay_awake(struct sl_pool *pool, uint64_t ns);
/* Work comes soon: helpers that sleep are woken and spin. */
void sl_pool_wake(struct sl_pool *pool);

/* Calls fn(ctx, thread, n_threads) once on every thread, thread 0 being the caller, and returns
 * when all have returned. What fn wrote is visible to the caller. */
void sl_pool_run(struct sl_pool *pool, void (*fn)(void *ctx, uint32_t thread, uint32_t n_threads),
                 void *ctx);

/* Like run, but fn runs on every thread except the caller's, which runs overlap(overlap_ctx)
 * meanwhile and may block. With one thread: fn, then overlap. *out_end_ns, if it is not NULL: when
 * the last of them had ended; not set with one thread. */
void sl_pool_run_overlap(struct sl_pool *pool,
                         void (*fn)(void *ctx, uint32_t thread, uint32_t n_threads), void *ctx,
                         void (*overlap)(void *ctx), void *overlap_ctx, uint64_t *out_end_ns);

/* Inside fn, called by every thread equally often: no thread goes on before all have arrived;
 * writes before it are visible after it. Which thread does what must never show in results. */
void sl_pool_barrier(struct sl_pool *pool);

/* Inside fn: gives out the chunks 0..n_chunks-1 of the phase since the last barrier (or the start),
 * each to one thread; UINT32_MAX when none is left. Every thread must ask until none is left. */
uint32_t sl_pool_next(struct sl_pool *pool, uint32_t n_chunks);

#endif
