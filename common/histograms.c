#include "common/histograms.h"

#include <inttypes.h>

struct sl_histograms sl_histograms;

static const uint64_t bounds_ns[SL_HISTOGRAM_BOUNDS] = {
    100000,     250000,      500000,      1000000,     2500000,      5000000,    10000000,
    25000000,   50000000,    100000000,   250000000,   500000000,    1000000000, 2500000000,
    5000000000, 10000000000, 25000000000, 50000000000, 100000000000,
};

void sl_histogram_add(struct sl_histogram *h, uint64_t ns) {
    uint32_t i = 0;
    while (i < SL_HISTOGRAM_BOUNDS && ns > bounds_ns[i])
        i++;
    atomic_fetch_add_explicit(&h->buckets[i], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&h->sum_ns, ns, memory_order_relaxed);
}

static void write_one(FILE *out, struct sl_histogram *h, const char *name, const char *help) {
    fprintf(out, "# HELP %s %s\n# TYPE %s histogram\n", name, help, name);
    uint64_t n = 0; /* the count is the last bucket's, so that they agree while others add */
    for (uint32_t i = 0; i < SL_HISTOGRAM_BOUNDS; i++) {
        n += atomic_load_explicit(&h->buckets[i], memory_order_relaxed);
        fprintf(out, "%s_bucket{le=\"%g\"} %" PRIu64 "\n", name, (double)bounds_ns[i] * 1e-9, n);
    }
    n += atomic_load_explicit(&h->buckets[SL_HISTOGRAM_BOUNDS], memory_order_relaxed);
    uint64_t sum = atomic_load_explicit(&h->sum_ns, memory_order_relaxed);
    fprintf(out, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n", name, n);
    fprintf(out, "%s_sum %" PRIu64 ".%09" PRIu64 "\n%s_count %" PRIu64 "\n", name,
            sum / 1000000000u, sum % 1000000000u, name, n);
}

void sl_histograms_write(FILE *out) {
#define SL_HISTOGRAM(field, name, help) write_one(out, &sl_histograms.field, name, help);
#include "common/histograms.def"
#undef SL_HISTOGRAM
}
