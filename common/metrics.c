#include "common/metrics.h"

#include <inttypes.h>

struct sl_metrics sl_metrics;

void sl_metrics_write(FILE *out) {
    enum kind { COUNTER, GAUGE };
    static const char *const kinds[] = {"counter", "gauge"};
#define SL_METRIC(kind, field, name, help)                                                         \
    fprintf(out, "# HELP " name " " help "\n# TYPE " name " %s\n" name " %" PRId64 "\n",           \
            kinds[kind], sl_metric(field));
#include "common/metrics.def"
#undef SL_METRIC
}
