/* Process-wide counters and gauges from one table (metrics.def). Relaxed atomics: any thread. */
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

/* Writes all of them in Prometheus' text format, version 0.0.4. */
void sl_metrics_write(FILE *out);

#endif
