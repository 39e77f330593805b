/* Counters and gauges. One table (metrics.def) is process-wide, another (stage_metrics.def) exists
 * once for each stage. Relaxed atomics: any thread. */
#ifndef SL_COMMON_METRICS_H
#define SL_COMMON_METRICS_H

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>

struct sl_metrics {
#define SL_METRIC(kind, field, name, help) _Atomic int64_t field;
#include "common/metrics.def"
#undef SL_METRIC
};

extern struct sl_metrics sl_metrics;

#define sl_count(field, n)                                                                         \
    atomic_fetch_add_explicit(&sl_metrics.field, (int64_t)(n), memory_order_relaxed)
#define sl_gauge(field, n)                                                                         \
    atomic_store_explicit(&sl_metrics.field, (int64_t)(n), memory_order_relaxed)
#define sl_metric(field) atomic_load_explicit(&sl_metrics.field, memory_order_relaxed)

/* Writes all metrics in Prometheus' text format, version 0.0.4. */
void sl_metrics_write(FILE *out);

/* Owned by the stage; one thread at a time counts, any thread may read. */
struct sl_stage_metrics {
#define SL_STAGE_METRIC(kind, field, name, help) _Atomic int64_t field;
#include "common/stage_metrics.def"
#undef SL_STAGE_METRIC
};

#define sl_stage_count(metrics, field, n)                                                          \
    atomic_store_explicit(&(metrics)->field,                                                       \
                          atomic_load_explicit(&(metrics)->field, memory_order_relaxed) +          \
                              (int64_t)(n),                                                        \
                          memory_order_relaxed)
#define sl_stage_gauge(metrics, field, n)                                                          \
    atomic_store_explicit(&(metrics)->field, (int64_t)(n), memory_order_relaxed)

/* A stage as it is written. number: among the stages on all machines, from 1. device: the label's
 * text, which ends before the first ": ". */
struct sl_stage_shown {
    uint32_t number;
    const char *device;
    const struct sl_stage_metrics *metrics;
};
/* Writes the metrics of n stages. Each metric has one header, followed by all stages. */
void sl_stage_metrics_write(FILE *out, const struct sl_stage_shown *stages, uint32_t n);

#endif
