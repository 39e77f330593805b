/* sluice plan: what `serve` would do with a model and a budget, without loading anything. */
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/device_bandwidth.h"
#include "cli/engine_options.h"
#include "cli/open_engine.h"
#include "cli/ram_bandwidth.h"
#include "cli/serve_memory.h"
#include "common/log.h"
#include "engine/experts/expert_speed.h"
#include "engine/experts/expert_layout.h"
#include "engine/plan/memory_budget.h"
#include "engine/plan/plan_speed.h"
#include "engine/prefix/block_folder.h"
#include "model/tokenizer/tokenizer.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define DISK_SECONDS 0.5
#define RAM_SECONDS  0.5

struct options {
    const char *model;
    float disk_gb_per_s, ram_gb_per_s, device_gb_per_s, link_gb_per_s;
    uint32_t max_body_mib;
    bool json;
    struct sl_engine_config engine;
    struct sl_engine_options memory;
    struct sl_server_config server;
};

struct report {
    const struct options *o;
    const struct sl_model *model;
    struct sl_expert_layout layout;
    struct sl_memory_plan plan;
    struct sl_plan_speed speed;
    struct sl_ceilings ceilings;
    double several_tokens_per_s; /* of sessions that keep all of several devices busy */
    char device[64];
    double ram_rate, disk_rate;     /* bytes/s, 0 = not known or not needed */
    struct sl_device_bandwidth gpu; /* the same of a device that is apart, or of several joined */
    bool ram_given, disk_given, gpu_given;
};

/* ---- bandwidths ---- */

/* How fast a stage's device and its link are: given, or measured. False: not known. */
static bool measure_gpu(const struct report *r, uint32_t stage, struct sl_device_bandwidth *out) {
    const struct options *o = r->o;
    struct sl_err err;
    if (!r->plan.stages[stage].discrete) { /* it computes in RAM, which no link is before */
        *out = (struct sl_device_bandwidth){r->ram_rate, INFINITY};
        return r->ram_rate > 0;
    }
    *out = (struct sl_device_bandwidth){(double)o->device_gb_per_s * 1e9,
                                        (double)o->link_gb_per_s * 1e9};
    if (out->memory > 0 && out->link > 0)
        return true;
    struct sl_device_bandwidth seen;
    sl_show_progress("measuring the memory and the link of %s", r->plan.stages[stage].device);
    sl_device_bandwidth(r->plan.stages[stage].id, &seen, &err);
    if (seen.memory <= 0)
        sl_warn("a GPU's speed is not known (--device-bandwidth and --link-bandwidth give it): %s",
                err.text);
    out->memory = out->memory > 0 ? out->memory : seen.memory;
    out->link = out->link > 0 ? out->link : seen.link;
    return out->memory > 0 && out->link > 0;
}

/* One sequence passes all devices one after the other; what each takes goes by its layers. */
static void limit_gpus(struct report *r) {
    double memory_s = 0, link_s = 0, slowest = 0;
    uint32_t n_layer = r->model->hp.n_layer;
    r->gpu_given = r->o->device_gb_per_s > 0 && r->o->link_gb_per_s > 0;
    for (uint32_t i = 0; i < r->plan.n_stages; i++) {
        double part = (double)r->plan.stages[i].n_layer / n_layer;
        struct sl_device_bandwidth b;
        if (!measure_gpu(r, i, &b))
            return;
        memory_s += part / b.memory;
        link_s += part / b.link;
        struct sl_tier_rates rates = {b.memory / part, b.link / part, r->disk_rate / part};
        double rate = sl_ceilings_discrete(&r->speed, &rates).overlap_tokens_per_s;
        slowest = i == 0 || rate < slowest ? rate : slowest;
    }
    r->gpu = (struct sl_device_bandwidth){1 / memory_s, 1 / link_s};
    struct sl_tier_rates rates = {r->gpu.memory, r->gpu.link, r->disk_rate};
    r->ceilings = sl_ceilings_discrete(&r->speed, &rates);
    r->several_tokens_per_s = r->plan.n_stages > 1 ? slowest : 0;
}

static void measure(struct report *r) {
    const struct options *o = r->o;
    r->ram_given = o->ram_gb_per_s > 0;
    r->disk_given = o->disk_gb_per_s > 0;
    r->ram_rate = (double)o->ram_gb_per_s * 1e9;
    r->disk_rate = (double)o->disk_gb_per_s * 1e9;
    struct sl_memory_look look;
    struct sl_err err;
    uint64_t room = UINT64_MAX;
    if (sl_memory_look("", &look, &err) == SL_OK)
        room = (look.limit_free_bytes < look.available_bytes ? look.limit_free_bytes
                                                             : look.available_bytes) /
               2;
    if (!r->ram_given) {
        sl_show_progress("measuring how fast RAM can be read");
        r->ram_rate = sl_ram_read_bandwidth(r->plan.n_threads, RAM_SECONDS, room);
    }
    if (!r->disk_given && r->plan.streaming) {
        struct sl_disk_speed speed;
        sl_show_progress("measuring how fast the disk can be read");
        if (sl_store_disk_speed(r->model, &r->plan.config, DISK_SECONDS, &speed, &err) == SL_OK)
            r->disk_rate = speed.bytes_per_s;
        else
            sl_warn("the disk's speed is not known (--disk-bandwidth gives it): %s", err.text);
    }
    sl_show_progress("%s", "");
    if (r->plan.discrete)
        limit_gpus(r);
    else /* what a GPU computes does not come from RAM at RAM's speed */
        r->ceilings = sl_ceilings(r->speed.dense_bytes, r->speed.routed_bytes, r->speed.hit_share,
                                  r->ram_rate, r->disk_rate);
}

/* ---- output ---- */

static double mib(uint64_t bytes) {
    return (double)bytes / 0x1p20;
}

static void print_classes(const struct report *r) {
    const struct sl_expert_layout *l = &r->layout;
    if (!l->n_layer)
        return;
    bool discrete = r->plan.discrete && r->plan.streaming;
    printf("\n%-10s %10s %10s %10s%s %12s %10s\n", "class", "layers", "experts",
           discrete ? "host slots" : "slots", discrete ? "     device" : "", "slot", "held");
    for (uint32_t c = 0; c < l->n_class; c++) {
        uint32_t n = l->classes[c].n_layer * l->n_expert;
        uint32_t slots = r->plan.streaming ? r->plan.class_slots[c] : n;
        uint32_t device = discrete ? r->plan.device_class_slots[c] : 0;
        uint32_t held = slots + device < n ? slots + device : n;
        printf("%-10u %10u %10u %10u", c, l->classes[c].n_layer, n, slots);
        if (discrete)
            printf(" %10u", device);
        printf(" %8.2f MiB %8.1f %%\n", mib(l->classes[c].slot.slot_bytes), 100.0 * held / n);
    }
}

static void print_row(const struct sl_memory_plan *p, uint32_t i) {
    const struct sl_plan_row *row = &p->rows[i];
    uint32_t before = i ? p->rows[i - 1].stage : 0;
    if (p->n_stages > 1 && row->stage && row->stage != before) {
        const struct sl_plan_stage *s = &p->stages[row->stage - 1];
        printf("\nlayers %u to %u on %s\n", s->first_layer, s->first_layer + s->n_layer - 1,
               s->device);
    } else if (p->n_stages > 1 && !row->stage && before) {
        printf("\nthe process\n");
    }
    printf("%-16s %12.1f  %s%s%s\n", row->what, mib(row->bytes),
           p->reads_back ? sl_memory_kind_name(row->kind) : "", p->reads_back ? ": " : "",
           row->detail);
}

static void print_stages(const struct sl_memory_plan *p) {
    printf("\n%-16s %12s %12s %12s\n", "devices", "MiB", "budget", "least");
    for (uint32_t i = 0; i < p->n_stages; i++) {
        const struct sl_plan_stage *s = &p->stages[i];
        uint32_t last = s->first_layer + s->n_layer - 1;
        if (s->discrete)
            printf("layers %3u - %-3u %12.1f %12.1f %12.1f  %s\n", s->first_layer, last,
                   mib(s->vram_total_bytes), mib(s->vram_budget_bytes), mib(s->vram_least_bytes),
                   s->device);
        else
            printf("layers %3u - %-3u %12.1f %12s %12s  %s: of the host's memory\n", s->first_layer,
                   last, mib(s->ram_bytes), "", "", s->device);
    }
    if (p->split_by_heat)
        printf("divided by the heat of earlier runs, too\n");
    printf("smallest that would do, divided so: --vram ");
    const char *before = "";
    for (uint32_t i = 0; i < p->n_stages; i++)
        if (p->stages[i].discrete) {
            printf("%s%.0fMiB", before, mib(p->stages[i].vram_least_bytes));
            before = ",";
        }
    printf("\n\n");
}

static void print_rates(const struct report *r) {
    const struct sl_memory_plan *p = &r->plan;
    printf("RAM %.1f GB/s%s", r->ram_rate * 1e-9, r->ram_given ? " (given)" : "");
    if (p->streaming)
        printf(", disk %.2f GB/s%s", r->disk_rate * 1e-9, r->disk_given ? " (given)" : "");
    if (r->gpu.memory > 0)
        printf(", device %.0f GB/s, its link %.1f GB/s%s", r->gpu.memory * 1e-9, r->gpu.link * 1e-9,
               r->gpu_given ? " (given)" : "");
    printf("; %s\n", r->device);
    if (r->ceilings.causal_tokens_per_s > 0)
        printf("ceilings for one sequence: causal %.1f tokens/s, overlap %.1f tokens/s\n",
               r->ceilings.causal_tokens_per_s, r->ceilings.overlap_tokens_per_s);
    if (r->several_tokens_per_s > 0)
        printf("for sequences one by one that keep all devices busy: %.1f tokens/s\n",
               r->several_tokens_per_s);
}

static void print_text(const struct report *r) {
    const struct sl_memory_plan *p = &r->plan;
    printf("%-16s %12s\n", "memory", "MiB");
    for (uint32_t i = 0; i < p->n_rows; i++)
        print_row(p, i);
    if (p->discrete && p->n_stages > 1)
        print_stages(p);
    else if (p->discrete)
        printf("%-16s %12.1f\n%-16s %12.1f\n%-16s %12.1f  smallest that would do: --vram %.0fMiB\n",
               "device", mib(p->vram_total_bytes), "its budget", mib(p->vram_budget_bytes),
               "its least", mib(p->vram_least_bytes), mib(p->vram_least_bytes));
    printf("%-16s %12.1f\n%-16s %12.1f\n%-16s %12.1f  smallest that would do: --ram %.0fMiB\n",
           p->discrete ? "host" : "total", mib(p->total_bytes), "budget", mib(p->budget_bytes),
           "least", mib(p->least_bytes), mib(p->least_bytes));
    print_classes(r);
    const struct sl_plan_speed *s = &r->speed;
    printf("\na token reads %.1f MiB of dense weights and %.1f MiB of routed experts\n",
           mib(s->dense_bytes), mib(s->routed_bytes));
    if (p->streaming)
        printf("expected in memory: %.1f %% of the latter, %s; %.1f MiB a token come from disk\n",
               100 * s->hit_share,
               s->from_heat ? "by the heat of earlier runs" : "by uniform routing",
               (1 - s->hit_share) * mib(s->routed_bytes));
    if (p->discrete && p->streaming)
        printf("expected on the device: %.1f %%; %.1f MiB a token pass its link\n",
               100 * s->device_share, (1 - s->device_share) * mib(s->routed_bytes));
    print_rates(r);
}

static json_t *rows_json(const struct report *r) {
    json_t *rows = json_array();
    for (uint32_t i = 0; i < r->plan.n_rows; i++)
        json_array_append_new(rows, json_pack("{s:s,s:I,s:s,s:s,s:I}", "what", r->plan.rows[i].what,
                                              "bytes", (json_int_t)r->plan.rows[i].bytes, "memory",
                                              sl_memory_kind_name(r->plan.rows[i].kind), "detail",
                                              r->plan.rows[i].detail, "stage",
                                              (json_int_t)r->plan.rows[i].stage));
    return rows;
}

static json_t *stages_json(const struct report *r) {
    json_t *stages = json_array();
    for (uint32_t i = 0; i < r->plan.n_stages; i++) {
        const struct sl_plan_stage *s = &r->plan.stages[i];
        json_array_append_new(
            stages,
            json_pack("{s:s,s:I,s:I,s:b,s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "device", s->device,
                      "first_layer", (json_int_t)s->first_layer, "layers", (json_int_t)s->n_layer,
                      "streaming", (int)s->streaming, "device_slots", (json_int_t)s->n_device_slots,
                      "slots", (json_int_t)s->n_slots, "experts", (json_int_t)s->n_experts,
                      "vram_budget_bytes", (json_int_t)s->vram_budget_bytes, "vram_total_bytes",
                      (json_int_t)s->vram_total_bytes, "vram_least_bytes",
                      (json_int_t)s->vram_least_bytes, "host_bytes", (json_int_t)s->ram_bytes));
    }
    return stages;
}

static json_t *classes_json(const struct report *r) {
    json_t *classes = json_array();
    for (uint32_t c = 0; c < r->layout.n_class; c++) {
        uint32_t n = r->layout.classes[c].n_layer * r->layout.n_expert;
        json_array_append_new(
            classes,
            json_pack("{s:I,s:I,s:I,s:I}", "layers", (json_int_t)r->layout.classes[c].n_layer,
                      "experts", (json_int_t)n, "slots",
                      (json_int_t)(r->plan.streaming ? r->plan.class_slots[c] : n), "slot_bytes",
                      (json_int_t)r->layout.classes[c].slot.slot_bytes));
    }
    return classes;
}

static int print_json(json_t *j) {
    int rc = !j || json_dumpf(j, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) != 0;
    json_decref(j);
    putchar('\n');
    return rc || fflush(stdout) != 0;
}

static json_t *plan_json(const struct report *r) {
    const struct sl_memory_plan *p = &r->plan;
    const struct sl_plan_speed *s = &r->speed;
    return json_pack(
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
        s->from_heat ? "heat" : "uniform", "ram_bytes_per_s", r->ram_rate, "disk_bytes_per_s",
        r->disk_rate, "causal_ceiling_ts", r->ceilings.causal_tokens_per_s, "overlap_ceiling_ts",
        r->ceilings.overlap_tokens_per_s, "ctx_tokens", (json_int_t)p->config.ctx_tokens,
        "parallel", (json_int_t)p->config.parallel, "stages", stages_json(r), "split_by_heat",
        (int)p->split_by_heat, "expected_device_share", s->device_share, "device_bytes_per_s",
        r->gpu.memory, "link_bytes_per_s", r->gpu.link, "pipelined_ceiling_ts",
        r->several_tokens_per_s);
}

/* ---- the command ---- */

static int refuse(const struct report *r, const struct sl_err *err) {
    if (!r->o->json || !(r->plan.least_bytes || r->plan.vram_least_bytes)) {
        fprintf(stderr, "sluice plan: %s\n", err->text);
        return 1;
    }
    print_json(json_pack("{s:b,s:I,s:I,s:s}", "fits", 0, "least_bytes",
                         (json_int_t)r->plan.least_bytes, "vram_least_bytes",
                         (json_int_t)r->plan.vram_least_bytes, "error", err->text));
    return 1;
}

/* What serve would find wrong with folders that are named, or, of mirrors, go on without. */
static enum sl_status check_folders(const struct report *r, struct sl_err *err) {
    const struct sl_engine_config *c = &r->o->engine;
    enum sl_status status = c->cache_dir ? sl_block_folder_check(c->cache_dir, err) : SL_OK;
    return status != SL_OK ? status : sl_store_check_mirrors(r->model, c, err);
}

static int plan(struct options *o) {
    struct report r = {.o = o};
    struct sl_opened opened;
    struct sl_tokenizer *tok = NULL;
    struct sl_process_memory memory;
    struct sl_err err = {{0}};
    if (!sl_open_model("plan", o->model, &opened))
        return 1;
    r.model = opened.model;
    /* Open as in serve, so that what is measured is what serve will hold. */
    enum sl_status status = check_folders(&r, &err);
    if (status == SL_OK)
        status = sl_tokenizer_create(r.model->gguf, &tok, &err);
    if (status == SL_OK)
        status = sl_expert_layout_make(r.model, &r.layout, &err);
    if (status == SL_OK)
        status =
            sl_serve_plan(r.model, tok, &o->engine, &o->server, &memory, &r.plan, r.device, &err);
    if (status == SL_OK)
        status = sl_plan_speed_make(r.model, &r.plan, o->engine.heat_file, &r.speed, &err);
    int rc;
    if (status != SL_OK) {
        rc = refuse(&r, &err);
    } else {
        measure(&r);
        rc = 0;
        if (o->json)
            rc = print_json(plan_json(&r));
        else
            print_text(&r);
    }
    sl_expert_layout_release(&r.layout);
    sl_tokenizer_destroy(&tok);
    sl_close_engine(&opened);
    return rc || fflush(stdout) != 0;
}

static bool check_options(struct options *o) {
    if (o->engine.cache_disk_bytes && !o->engine.cache_dir) {
        sl_usage_error("plan", "--cache-disk needs --cache-dir");
        return false;
    }
    o->server.max_body_bytes = (uint64_t)o->max_body_mib << 20;
    const struct sl_engine_options *m = &o->memory;
    return sl_engine_options_gpu("plan", m, o->device_gb_per_s > 0, "--device-bandwidth") &&
           sl_engine_options_gpu("plan", m, o->link_gb_per_s > 0, "--link-bandwidth") &&
           sl_engine_options_apply("plan", &o->memory, &o->engine);
}

int sl_cmd_plan(int argc, char **argv) {
    struct options o = {.memory = SL_ENGINE_OPTIONS_DEFAULT,
                        .engine = {.cache_ram_bytes = SL_CACHE_RAM_AUTO}};
    const struct sl_arg args[] = {
        {SL_ARG_STRING, 'm', "--model", "FILE", &o.model,
         "the GGUF file (also as the only argument)", false},
        {SL_ARG_FLAG, 0, "--json", NULL, &o.json, "print a JSON object", false},
        {SL_ARG_F32, 0, "--ram-bandwidth", "GB/S", &o.ram_gb_per_s,
         "how fast RAM is read (default: measured, half a second)", false},
        {SL_ARG_F32, 0, "--disk-bandwidth", "GB/S", &o.disk_gb_per_s,
         "how fast the model's drive is read (default: measured, half a second)", false},
        {SL_ARG_F32, 0, "--device-bandwidth", "GB/S", &o.device_gb_per_s,
         "how fast a GPU reads its own memory (default: measured)", false},
        {SL_ARG_F32, 0, "--link-bandwidth", "GB/S", &o.link_gb_per_s,
         "how fast the host's memory reaches a GPU (default: measured)", false},
        {SL_ARG_HEADING, 0, "As for serve", NULL, NULL, NULL, false},
        {SL_ARG_U32, 'c', "--ctx", "TOKENS", &o.engine.ctx_tokens,
         "most tokens of one request (default: the model's, at most 8192)", false},
        {SL_ARG_U32, 0, "--parallel", "N", &o.engine.parallel,
         "requests that run at once (default 4)", false},
        {SL_ARG_U32, 0, "--queue", "N", &o.engine.queue_max, "requests that may wait (default 256)",
         false},
        {SL_ARG_U32, 0, "--batch", "TOKENS", &o.engine.batch_tokens,
         "most tokens of one step (default 512)", false},
        {SL_ARG_U32, 't', "--threads", "N", &o.engine.n_threads,
         "CPU threads that compute (default: all CPUs)", false},
        {SL_ARG_BYTES, 0, "--cache-ram", "SIZE", &o.engine.cache_ram_bytes,
         "memory for texts that may come again", false},
        {SL_ARG_FOLDER, 0, "--cache-dir", "DIR", &o.engine.cache_dir,
         "with what keeping them in a folder takes of memory", false},
        {SL_ARG_BYTES, 0, "--cache-disk", "SIZE", &o.engine.cache_disk_bytes,
         "and on disk (default 8GiB)", false},
        {SL_ARG_U32, 0, "--max-body-mib", "MIB", &o.max_body_mib, "largest request body", false},
        {SL_ARG_U32, 0, "--max-connections", "N", &o.server.max_connections, "open connections",
         false},
        SL_ENGINE_OPTIONS(&o.memory),
    };
    static const struct sl_arg_limit limits[] = {
        SL_ENGINE_LIMITS,
        {"--ram-bandwidth", SL_ARG_ABOVE_0, INFINITY, NULL},
        {"--disk-bandwidth", SL_ARG_ABOVE_0, INFINITY, NULL},
        {"--device-bandwidth", SL_ARG_ABOVE_0, INFINITY, NULL},
        {"--link-bandwidth", SL_ARG_ABOVE_0, INFINITY, NULL},
    };
    const struct sl_command command = {
        .name = "plan",
        .about = "Says what `sluice serve` would do with a model and a budget: every byte by\n"
                 "purpose, the slots for experts, the speed to expect at best, and the smallest\n"
                 "budget. Loads nothing.",
        .usage = "sluice plan -m MODEL [--ram 2GiB] [--ctx 8192] [--parallel 4] [--device LIST] "
                 "[--json]",
        .notes =
            "The ceilings are arithmetic: bytes over bandwidth, KV and latency left out. "
            "Causal: a read\nstarts when the router has spoken; overlap: with perfect "
            "look-ahead. On a GPU what\nits slots lack passes the link, and the slower of link and "
            "disk counts. Exit code 1:\nit does not fit.\n",
        .args = args,
        .n_args = SL_COUNTOF(args),
        .help_of = sl_engine_options_help,
        .limits = limits,
        .n_limits = SL_COUNTOF(limits),
        .model = &o.model,
    };
    int rc = sl_args_parse(&command, argc, argv);
    if (rc >= 0)
        return rc;
    if (!check_options(&o))
        return 2;
    sl_log_set_level(SL_LOG_WARN);
    return plan(&o);
}
