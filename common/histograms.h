/* Process-wide distributions of times from one table (histograms.def), next to metrics.h. Relaxed
 * atomics: any thread, no lock, some 20 ns. */
#ifndef SL_COMMON_HISTOGRAMS_H
#define SL_COMMON_HISTOGRAMS_H

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>

/* 1, 2.5 and 5 of every decade from 100 us to 100 s. */
#define SL_HISTOGRAM_BOUNDS 19u

struct sl_histogram {
    _Atomic uint64_t
        buckets[SL_HISTOGRAM_BOUNDS + 1]; /* not cumulative; the last: above all bounds */
    _Atomic uint64_t sum_ns;
};

struct sl_histograms {
#define SL_HISTOGRAM(field, name, help) struct sl_histogram field;
#include "common/histograms.def"
#undef SL_HISTOGRAM
};

extern struct sl_histograms sl_histograms;

void sl_histogram_add(struct sl_histogram *h, uint64_t ns);
#define sl_observe(field, ns) sl_histogram_add(&sl_histograms.field, ns)

/* Writes all of them in Prometheus' text format, version 0.0.4. */
void sl_histograms_write(FILE *out);

#endif
