/* What `sluice plan` says of a plan: as text, and as JSON. Hosts are named where there are several.
 */
#ifndef SL_CLI_PLAN_REPORT_H
#define SL_CLI_PLAN_REPORT_H

#include "cli/measure/device_bandwidth.h"
#include "engine/reads/expert_layout.h"
#include "engine/plan/plan_speed.h"

#include <jansson.h>
#include <stdio.h>

struct sl_plan_report {
    const struct sl_model *model;
    struct sl_expert_layout layout;
    /* Its hosts and stages have the speeds that are known. */
    struct sl_memory_plan plan;
    struct sl_plan_speed speed;
    struct sl_ceilings ceilings;
    double several_tokens_per_s; /* of sessions that keep all of several devices busy */
    char device[64];
    char ctx_note[256];             /* why the context is as large as it is; "": it was asked for */
    struct sl_device_bandwidth gpu; /* of a discrete device, or of one host's joined */
    bool ram_given, disk_given, gpu_given;
};

/* Sets gpu, ceilings and several_tokens_per_s by the speeds in the plan. heat_file may be NULL; it
 * is read where there are several hosts. */
enum sl_status sl_plan_report_limit(struct sl_plan_report *r, const char *heat_file,
                                    struct sl_err *err) SL_MUST_CHECK;
void sl_plan_report_print(FILE *out, const struct sl_plan_report *r);
/* NULL: no memory. */
json_t *sl_plan_report_json(const struct sl_plan_report *r);

#endif
