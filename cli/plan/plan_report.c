#include "cli/plan/plan_report.h"

#include "cli/plan/plan_columns.h"

#include <math.h>

/* ---- speeds ---- */

/* How fast a stage's device and its link are, with what the CPU computes alongside it; for a device
 * that computes in RAM, and so has no link, RAM's speed. */
static struct sl_device_bandwidth rates_of(const struct sl_memory_plan *p, uint32_t stage) {
    const struct sl_plan_stage *s = &p->stages[stage];
    if (!s->discrete)
        return (struct sl_device_bandwidth){p->hosts[s->host].ram_bytes_per_s, INFINITY};
    return (struct sl_device_bandwidth){s->memory_bytes_per_s, sl_stage_link_rate(p, stage)};
}

/* One sequence passes all devices one after the other; what each takes goes by its layers. */
static void limit_gpus(struct sl_plan_report *r) {
    double memory_s = 0, link_s = 0, slowest = 0, disk_rate = r->plan.hosts[0].disk_bytes_per_s;
    uint32_t n_layer = r->model->hp.n_layer;
    for (uint32_t i = 0; i < r->plan.n_stages; i++) {
        double part = (double)r->plan.stages[i].n_layer / n_layer;
        struct sl_device_bandwidth b = rates_of(&r->plan, i);
        if (b.memory <= 0 || b.link <= 0)
            return;
        memory_s += part / b.memory;
        link_s += part / b.link;
        struct sl_tier_rates rates = {b.memory / part, b.link / part, disk_rate / part};
        double rate = sl_ceilings_discrete(&r->speed, &rates).overlap_tokens_per_s;
        slowest = i == 0 || rate < slowest ? rate : slowest;
    }
    r->gpu = (struct sl_device_bandwidth){1 / memory_s, 1 / link_s};
    struct sl_tier_rates rates = {r->gpu.memory, r->gpu.link, disk_rate};
    r->ceilings = sl_ceilings_discrete(&r->speed, &rates);
    r->several_tokens_per_s = r->plan.n_stages > 1 ? slowest : 0;
}

enum sl_status sl_plan_report_limit(struct sl_plan_report *r, const char *heat_file,
                                    struct sl_err *err) {
    struct sl_plan_speed stages[SL_MAX_STAGES];
    const struct sl_plan_host *host = r->plan.hosts;
    enum sl_status status = SL_OK;
    if (r->plan.n_hosts > 1) {
        status = sl_plan_stage_speeds(r->model, &r->plan, heat_file, stages, err);
        if (status == SL_OK)
            r->ceilings = sl_ceilings_hosts(&r->plan, stages, &r->several_tokens_per_s);
    } else if (r->plan.discrete) {
        limit_gpus(r);
    } else { /* what a GPU computes does not come from RAM at RAM's speed */
        r->ceilings = sl_ceilings(r->speed.dense_bytes, r->speed.routed_bytes, r->speed.hit_share,
                                  host->ram_bytes_per_s, host->disk_bytes_per_s);
    }
    return status;
}

/* ---- text ---- */

static double mib(uint64_t bytes) {
    return (double)bytes / 0x1p20;
}

static void print_classes(FILE *out, const struct sl_plan_report *r) {
    const struct sl_expert_layout *l = &r->layout;
    if (!l->n_layer)
        return;
    bool discrete = r->plan.discrete && r->plan.streaming;
    fprintf(out, "\n%-10s %10s %10s %10s%s %12s %10s\n", "class", "layers", "experts",
            discrete ? "host slots" : "slots", discrete ? "     device" : "", "slot", "held");
    for (uint32_t c = 0; c < l->n_class; c++) {
        uint32_t n = l->classes[c].n_expert;
        uint32_t slots = r->plan.streaming ? r->plan.class_slots[c] : n;
        uint32_t device = discrete ? r->plan.device_class_slots[c] : 0;
        uint32_t held = slots + device < n ? slots + device : n;
        fprintf(out, "%-10u %10u %10u %10u", c, l->classes[c].n_layer, n, slots);
        if (discrete)
            fprintf(out, " %10u", device);
        fprintf(out, " %8.2f MiB %8.1f %%\n", mib(l->classes[c].slot.slot_bytes), 100.0 * held / n);
    }
}

static void print_row(FILE *out, const struct sl_memory_plan *p, uint32_t i) {
    const struct sl_plan_row *row = &p->rows[i];
    uint32_t before = i ? p->rows[i - 1].stage : 0;
    if (p->n_stages > 1 && row->stage && row->stage != before) {
        const struct sl_plan_stage *s = &p->stages[row->stage - 1];
        if (s->n_layer)
            fprintf(out, "\nlayers %u to %u", s->first_layer, s->first_layer + s->n_layer - 1);
        else
            fprintf(out, "\nno layers");
        fprintf(out, " on %s\n", s->device);
    } else if (p->n_stages > 1 && !row->stage && before) {
        fprintf(out, "\nthe process\n");
    }
    fprintf(out, "%-16s %12.1f  %s%s%s\n", row->what, mib(row->bytes),
            p->reads_back ? sl_memory_kind_name(row->kind) : "", p->reads_back ? ": " : "",
            row->detail);
}

static void print_stages(FILE *out, const struct sl_memory_plan *p) {
    fprintf(out, "\n%-16s %12s %12s %12s\n", "devices", "MiB", "budget", "least");
    for (uint32_t i = 0; i < p->n_stages; i++) {
        const struct sl_plan_stage *s = &p->stages[i];
        uint32_t last = s->first_layer + s->n_layer - 1;
        if (s->discrete)
            fprintf(out, "layers %3u - %-3u %12.1f %12.1f %12.1f  %s\n", s->first_layer, last,
                    mib(s->vram_total_bytes), mib(s->vram_budget_bytes), mib(s->vram_least_bytes),
                    s->device);
        else if (s->n_layer)
            fprintf(out, "layers %3u - %-3u %12.1f %12s %12s  %s: of the host's memory\n",
                    s->first_layer, last, mib(s->ram_bytes), "", "", s->device);
        else
            fprintf(out, "%-16s %12.1f %12s %12s  %s: of the host's memory\n", "no layers",
                    mib(s->ram_bytes), "", "", s->device);
    }
    if (p->split_by_heat)
        fprintf(out, "divided by the heat of earlier runs, too\n");
    fprintf(out, "smallest that works with this split: --vram ");
    const char *before = "";
    for (uint32_t i = 0; i < p->n_stages; i++)
        if (p->stages[i].discrete) {
            fprintf(out, "%s%.0fMiB", before, mib(p->stages[i].vram_least_bytes));
            before = ",";
        }
    fprintf(out, "\n\n");
}

static void print_total(FILE *out, const struct sl_memory_plan *p) {
    fprintf(out, "%-16s %12.1f\n%-16s %12.1f\n%-16s %12.1f  smallest that works: --ram %.0fMiB\n",
            p->discrete ? "host" : "total", mib(p->total_bytes), "budget", mib(p->budget_bytes),
            "least", mib(p->least_bytes), mib(p->least_bytes));
}

static void print_host_rates(FILE *out, const struct sl_plan_report *r) {
    const struct sl_memory_plan *p = &r->plan;
    const struct sl_plan_host *host = p->hosts;
    fprintf(out, "RAM %.1f GB/s%s", host->ram_bytes_per_s * 1e-9, r->ram_given ? " (given)" : "");
    if (p->streaming)
        fprintf(out, ", disk %.2f GB/s%s", host->disk_bytes_per_s * 1e-9,
                r->disk_given ? " (given)" : "");
    if (r->gpu.memory > 0)
        fprintf(out, ", device %.0f GB/s, its link %s%.1f GB/s%s", r->gpu.memory * 1e-9,
                p->stages[0].lane ? "and the CPU beside it " : "", r->gpu.link * 1e-9,
                r->gpu_given ? " (given)" : "");
    fprintf(out, "; %s\n", r->device);
}

static void print_rates(FILE *out, const struct sl_plan_report *r) {
    if (r->plan.n_hosts <= 1) /* else each has them in its column */
        print_host_rates(out, r);
    if (r->ceilings.causal_tokens_per_s > 0)
        fprintf(out, "ceilings for one sequence: causal %.1f tokens/s, overlap %.1f tokens/s\n",
                r->ceilings.causal_tokens_per_s, r->ceilings.overlap_tokens_per_s);
    if (r->several_tokens_per_s > 0)
        fprintf(out, "for sequences one by one that keep all devices busy: %.1f tokens/s\n",
                r->several_tokens_per_s);
}

static void print_one_host(FILE *out, const struct sl_memory_plan *p) {
    fprintf(out, "%-16s %12s\n", "memory", "MiB");
    for (uint32_t i = 0; i < p->n_rows; i++)
        print_row(out, p, i);
    if (p->discrete && p->n_stages > 1)
        print_stages(out, p);
    else if (p->discrete)
        fprintf(out,
                "%-16s %12.1f\n%-16s %12.1f\n%-16s %12.1f  smallest that works: --vram %.0fMiB\n",
                "device", mib(p->vram_total_bytes), "its budget", mib(p->vram_budget_bytes),
                "its least", mib(p->vram_least_bytes), mib(p->vram_least_bytes));
    print_total(out, p);
}

static void print_several_hosts(FILE *out, const struct sl_memory_plan *p) {
    sl_plan_columns_print(out, p);
    fprintf(out, "\n%u session%s of %u tokens, keys and values in %s\n", p->config.parallel,
            p->config.parallel == 1 ? "" : "s", p->config.ctx_tokens,
            sl_dtype_name(p->config.kv_dtype));
    if (p->split_by_heat)
        fprintf(out, "divided by the heat of earlier runs, too\n");
}

void sl_plan_report_print(FILE *out, const struct sl_plan_report *r) {
    const struct sl_memory_plan *p = &r->plan;
    if (p->n_hosts > 1)
        print_several_hosts(out, p);
    else
        print_one_host(out, p);
    if (r->ctx_note[0])
        fprintf(out, "\ncontext: %s\n", r->ctx_note);
    print_classes(out, r);
    const struct sl_plan_speed *s = &r->speed;
    fprintf(out, "\na token reads %.1f MiB of dense weights and %.1f MiB of routed experts\n",
            mib(s->dense_bytes), mib(s->routed_bytes));
    if (p->streaming)
        fprintf(
            out, "expected in memory: %.1f %% of the latter, %s; %.1f MiB a token come from disk\n",
            100 * s->hit_share, s->from_heat ? "by the heat of earlier runs" : "by uniform routing",
            (1 - s->hit_share) * mib(s->routed_bytes));
    if (p->discrete && p->streaming)
        fprintf(out, "expected on the device: %.1f %%; %.1f MiB a token pass its link\n",
                100 * s->device_share, (1 - s->device_share) * mib(s->routed_bytes));
    print_rates(out, r);
}

/* ---- JSON ---- */

/* Which host a row or a stage is of, where there are several. */
static void add_host(const struct sl_memory_plan *p, uint32_t host, json_t *j) {
    if (p->n_hosts > 1)
        json_object_set_new(j, "host", json_integer(host));
}

static json_t *hosts_json(const struct sl_memory_plan *p) {
    json_t *hosts = json_array();
    for (uint32_t h = 0; h < p->n_hosts; h++) {
        const struct sl_plan_host *host = &p->hosts[h];
        json_array_append_new(hosts, json_pack("{s:s,s:I,s:I,s:I,s:I,s:I,s:f,s:f}", "name",
                                               host->name, "stages", (json_int_t)host->n_stages,
                                               "budget_bytes", (json_int_t)host->ram_budget_bytes,
                                               "total_bytes", (json_int_t)host->ram_total_bytes,
                                               "least_bytes", (json_int_t)host->ram_least_bytes,
                                               "pinned_bytes", (json_int_t)host->pinned_total_bytes,
                                               "ram_bytes_per_s", host->ram_bytes_per_s,
                                               "disk_bytes_per_s", host->disk_bytes_per_s));
    }
    return hosts;
}

static json_t *rows_json(const struct sl_plan_report *r) {
    json_t *rows = json_array();
    for (uint32_t i = 0; i < r->plan.n_rows; i++) {
        const struct sl_plan_row *row = &r->plan.rows[i];
        json_t *j = json_pack("{s:s,s:I,s:s,s:s,s:I}", "what", row->what, "bytes",
                              (json_int_t)row->bytes, "memory", sl_memory_kind_name(row->kind),
                              "detail", row->detail, "stage", (json_int_t)row->stage);
        add_host(&r->plan, row->host, j);
        json_array_append_new(rows, j);
    }
    return rows;
}

static json_t *stages_json(const struct sl_plan_report *r) {
    json_t *stages = json_array();
    for (uint32_t i = 0; i < r->plan.n_stages; i++) {
        const struct sl_plan_stage *s = &r->plan.stages[i];
        json_t *j =
            json_pack("{s:s,s:I,s:I,s:b,s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "device", s->device,
                      "first_layer", (json_int_t)s->first_layer, "layers", (json_int_t)s->n_layer,
                      "streaming", (int)s->streaming, "device_slots", (json_int_t)s->n_device_slots,
                      "slots", (json_int_t)s->n_slots, "experts", (json_int_t)s->n_experts,
                      "vram_budget_bytes", (json_int_t)s->vram_budget_bytes, "vram_total_bytes",
                      (json_int_t)s->vram_total_bytes, "vram_least_bytes",
                      (json_int_t)s->vram_least_bytes, "host_bytes", (json_int_t)s->ram_bytes);
        add_host(&r->plan, s->host, j);
        if (r->plan.n_hosts > 1) {
            json_object_set_new(j, "memory_bytes_per_s", json_real(s->memory_bytes_per_s));
            json_object_set_new(j, "link_bytes_per_s", json_real(s->link_bytes_per_s));
        }
        json_array_append_new(stages, j);
    }
    return stages;
}

static json_t *classes_json(const struct sl_plan_report *r) {
    json_t *classes = json_array();
    for (uint32_t c = 0; c < r->layout.n_class; c++) {
        uint32_t n = r->layout.classes[c].n_expert;
        json_array_append_new(
            classes,
            json_pack("{s:I,s:I,s:I,s:I}", "layers", (json_int_t)r->layout.classes[c].n_layer,
                      "experts", (json_int_t)n, "slots",
                      (json_int_t)(r->plan.streaming ? r->plan.class_slots[c] : n), "slot_bytes",
                      (json_int_t)r->layout.classes[c].slot.slot_bytes));
    }
    return classes;
}

json_t *sl_plan_report_json(const struct sl_plan_report *r) {
    const struct sl_memory_plan *p = &r->plan;
    const struct sl_plan_speed *s = &r->speed;
    json_t *j = json_pack(
        "{s:b,s:s,s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:o,s:b,s:o,s:I,s:I,s:f,s:f,s:s,s:f,s:f,s:f,s:f,s:I,"
        "s:I,s:o,s:b,s:f,s:f,s:f,s:f}",
        "fits", 1, "model", sl_gguf_file_path(r->model->gguf, 0), "device", r->device,
        "budget_bytes", (json_int_t)p->budget_bytes, "total_bytes", (json_int_t)p->total_bytes,
        "least_bytes", (json_int_t)p->least_bytes, "vram_budget_bytes",
        (json_int_t)p->vram_budget_bytes, "vram_total_bytes", (json_int_t)p->vram_total_bytes,
        "vram_least_bytes", (json_int_t)p->vram_least_bytes, "rows", rows_json(r), "streaming",
        (int)p->streaming, "classes", classes_json(r), "dense_bytes_per_token",
        (json_int_t)s->dense_bytes, "routed_bytes_per_token", (json_int_t)s->routed_bytes,
        "resident_share", s->resident_share, "expected_hit_share", s->hit_share, "expected_from",
        s->from_heat ? "heat" : "uniform", "ram_bytes_per_s", p->hosts[0].ram_bytes_per_s,
        "disk_bytes_per_s", p->hosts[0].disk_bytes_per_s, "causal_ceiling_ts",
        r->ceilings.causal_tokens_per_s, "overlap_ceiling_ts", r->ceilings.overlap_tokens_per_s,
        "ctx_tokens", (json_int_t)p->config.ctx_tokens, "parallel", (json_int_t)p->config.parallel,
        "stages", stages_json(r), "split_by_heat", (int)p->split_by_heat, "expected_device_share",
        s->device_share, "device_bytes_per_s", r->gpu.memory, "link_bytes_per_s", r->gpu.link,
        "pipelined_ceiling_ts", r->several_tokens_per_s);
    if (p->n_hosts > 1)
        json_object_set_new(j, "hosts", hosts_json(p));
    if (r->ctx_note[0])
        json_object_set_new(j, "ctx_note", json_string(r->ctx_note));
    return j;
}
