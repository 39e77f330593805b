#include "common/metrics.h"

#include <inttypes.h>
#include <string.h>

struct sl_metrics sl_metrics;

enum kind { COUNTER, COUNTER_NS, GAUGE };

/* Without its labels; names that differ in them alone share one head. */
static size_t base_len(const char *name) {
    return strcspn(name, "{");
}

static void write_one(FILE *out, enum kind kind, const char *name, const char *before,
                      const char *help, int64_t value) {
    int len = (int)base_len(name);
    if (base_len(before) != (size_t)len || strncmp(before, name, (size_t)len) != 0)
        fprintf(out, "# HELP %.*s %s\n# TYPE %.*s %s\n", len, name, help, len, name,
                kind == GAUGE ? "gauge" : "counter");
    if (kind == COUNTER_NS) /* Prometheus' base unit is the second */
        fprintf(out, "%s %" PRId64 ".%09" PRId64 "\n", name, value / 1000000000,
                value % 1000000000);
    else
        fprintf(out, "%s %" PRId64 "\n", name, value);
}

void sl_metrics_write(FILE *out) {
    const char *before = "";
#define SL_METRIC(kind, field, name, help)                                                         \
    write_one(out, kind, name, before, help, sl_metric(field));                                    \
    before = name;
#include "common/metrics.def"
#undef SL_METRIC
}
