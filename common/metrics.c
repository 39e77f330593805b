#include "common/metrics.h"

#include <inttypes.h>
#include <string.h>

struct sl_metrics sl_metrics;

enum kind { COUNTER, COUNTER_NS, GAUGE };

/* Without its labels; names that differ in them alone share one head. */
static size_t base_len(const char *name) {
    return strcspn(name, "{");
}

static void write_head(FILE *out, enum kind kind, const char *name, const char *before,
                       const char *help) {
    int len = (int)base_len(name);
    if (base_len(before) != (size_t)len || strncmp(before, name, (size_t)len) != 0)
        fprintf(out, "# HELP %.*s %s\n# TYPE %.*s %s\n", len, name, help, len, name,
                kind == GAUGE ? "gauge" : "counter");
}

static void write_value(FILE *out, enum kind kind, int64_t value) {
    if (kind == COUNTER_NS) /* Prometheus' base unit is the second */
        fprintf(out, " %" PRId64 ".%09" PRId64 "\n", value / 1000000000, value % 1000000000);
    else
        fprintf(out, " %" PRId64 "\n", value);
}

static void write_one(FILE *out, enum kind kind, const char *name, const char *before,
                      const char *help, int64_t value) {
    write_head(out, kind, name, before, help);
    fputs(name, out);
    write_value(out, kind, value);
}

void sl_metrics_write(FILE *out) {
    const char *before = "";
#define SL_METRIC(kind, field, name, help)                                                         \
    write_one(out, kind, name, before, help, sl_metric(field));                                    \
    before = name;
#include "common/metrics.def"
#undef SL_METRIC
}

/* Up to ": ", with what the format escapes. */
static void write_label(FILE *out, const char *text) {
    const char *end = strstr(text, ": ");
    for (const char *p = text; *p && p != end; p++) {
        if (*p == '"' || *p == '\\' || *p == '\n')
            fputc('\\', out);
        fputc(*p == '\n' ? 'n' : *p, out);
    }
}

static void write_stage(FILE *out, enum kind kind, const char *name, uint32_t stage,
                        const char *device, int64_t value) {
    size_t len = base_len(name);
    fprintf(out, "%.*s{stage=\"%u\",device=\"", (int)len, name, stage);
    write_label(out, device);
    fprintf(out, "\"%s%s", name[len] ? "," : "}", name[len] ? name + len + 1 : "");
    write_value(out, kind, value);
}

void sl_stage_metrics_write(FILE *out, const struct sl_stage_shown *stages, uint32_t n) {
    const char *before = "";
#define SL_STAGE_METRIC(kind, field, name, help)                                                   \
    write_head(out, kind, name, before, help);                                                     \
    for (uint32_t i = 0; i < n; i++)                                                               \
        write_stage(out, kind, name, stages[i].number, stages[i].device,                           \
                    atomic_load_explicit(&stages[i].metrics->field, memory_order_relaxed));        \
    before = name;
#include "common/stage_metrics.def"
#undef SL_STAGE_METRIC
}
