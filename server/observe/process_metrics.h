/* Metrics of the process, under the names that Prometheus' own libraries use. */
#ifndef SL_SERVER_PROCESS_METRICS_H
#define SL_SERVER_PROCESS_METRICS_H

#include <stdint.h>
#include <stdio.h>

/* One gauge with its head, in Prometheus' text format. */
void sl_gauge_write(FILE *out, const char *name, const char *help, uint64_t value);
/* started_s: the process's start, in Unix time. */
void sl_process_metrics_write(FILE *out, int64_t started_s);

#endif
