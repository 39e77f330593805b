#include "common/metrics.h"

#include <inttypes.h>

struct sl_metrics sl_metrics;

enum kind { COUNTER, COUNTER_NS, GAUGE };

static void write_one(FILE *out, enum kind kind, const char *name, const char *help,
                      int64_t value) {
    fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name,
            kind == GAUGE ? "gauge" : "counter");
    if (kind == COUNTER_NS) /* Prometheus' base unit is the second */
        fprintf(out, "%s %" PRId64 ".%09" PRId64 "\n", name, value / 1000000000,
                value % 1000000000);
    else
        fprintf(out, "%s %" PRId64 "\n", name, value);
}

void sl_metrics_write(FILE *out) {
#define SL_METRIC(kind, field, name, help) write_one(out, kind, name, help, sl_metric(field));
#include "common/metrics.def"
#undef SL_METRIC
}
