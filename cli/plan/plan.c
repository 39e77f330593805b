/* sluice plan: what `serve` would do with a model and a budget, without loading anything. */
#include "cli/options/args.h"
#include "cli/options/commands.h"
#include "cli/options/engine_options.h"
#include "cli/options/open_engine.h"
#include "cli/plan/plan_report.h"
#include "cli/measure/ram_bandwidth.h"
#include "cli/process/serve_memory.h"
#include "common/log.h"
#include "engine/experts/expert_speed.h"
#include "engine/plan/memory_budget.h"
#include "engine/prefix/block_folder.h"
#include "engine/reads/model_files.h"
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
    const char *cards_text;
    struct planned_cards {
        struct sl_device_source source;
        uint64_t memory_bytes[SL_MAX_STAGES];
    } cards; /* that need not be here; source.n_devices 0 = none */
    uint32_t max_body_mib;
    bool json;
    struct sl_engine_config engine;
    struct sl_engine_options memory;
    struct sl_server_config server;
};

/* ---- cards that need not be here ---- */

static enum sl_status open_card(const struct sl_device_source *source, uint32_t index,
                                struct sl_device **out_device, struct sl_err *err) {
    const struct planned_cards *cards = (const struct planned_cards *)source;
    const struct sl_device_offer offer = {.memory_bytes = cards->memory_bytes[index]};
    return sl_backend_for_plans()->planned(&offer, index, out_device, err);
}

/* "24GiB", or "24G,12G" for two. False: a message is out. */
static bool read_cards(struct options *o) {
    struct planned_cards *cards = &o->cards;
    if (!o->cards_text)
        return true;
    if (o->memory.device) {
        sl_usage_error("plan", "--card is a GPU that need not be here, --device one that is: give "
                               "one of the two");
        return false;
    }
    for (const char *text = o->cards_text, *comma; text; text = comma ? comma + 1 : NULL) {
        char one[32];
        comma = strchr(text, ',');
        size_t n = comma ? (size_t)(comma - text) : strlen(text);
        snprintf(one, sizeof one, "%.*s", (int)(n < sizeof one ? n : sizeof one - 1), text);
        uint32_t i = cards->source.n_devices;
        if (i == SL_MAX_STAGES || !sl_parse_bytes(one, &cards->memory_bytes[i]) ||
            !cards->memory_bytes[i]) {
            sl_usage_error("plan",
                           "--card is '%.60s': must be the size of a GPU's memory, as 24GiB, or up "
                           "to %u with commas between",
                           o->cards_text, SL_MAX_STAGES);
            return false;
        }
        cards->source.n_devices++;
    }
    cards->source.open = open_card;
    o->engine.device_source = &cards->source;
    return true;
}

/* ---- bandwidths ---- */

/* How fast a stage's device and its link are: given, or measured. */
static void measure_gpu(const struct options *o, struct sl_plan_stage *s, uint32_t stage,
                        uint32_t n_stages) {
    const struct sl_remote_stages *remote = o->engine.remote;
    struct sl_err err;
    if (s->host) { /* another machine has measured it */
        uint32_t i = stage + remote->n - n_stages;
        s->memory_bytes_per_s = remote->memory_bytes_per_s[i];
        s->link_bytes_per_s = remote->link_bytes_per_s[i];
        return;
    }
    s->memory_bytes_per_s = (double)o->device_gb_per_s * 1e9;
    s->link_bytes_per_s = (double)o->link_gb_per_s * 1e9;
    if ((s->memory_bytes_per_s > 0 && s->link_bytes_per_s > 0) || o->cards.source.n_devices)
        return;
    struct sl_device_bandwidth seen;
    sl_show_progress("measuring the memory and the link of %s", s->device);
    sl_device_bandwidth(s->id, &seen, &err);
    if (seen.memory <= 0)
        sl_warn("a GPU's speed is not known (--device-bandwidth and --link-bandwidth give it): %s",
                err.text);
    if (s->memory_bytes_per_s <= 0)
        s->memory_bytes_per_s = seen.memory;
    if (s->link_bytes_per_s <= 0)
        s->link_bytes_per_s = seen.link;
}

/* Of this machine, the plan's first host: others have measured themselves. */
static void measure(const struct options *o, struct sl_plan_report *r) {
    struct sl_plan_host *host = r->plan.hosts;
    r->ram_given = o->ram_gb_per_s > 0;
    r->disk_given = o->disk_gb_per_s > 0;
    r->gpu_given = r->plan.discrete && o->device_gb_per_s > 0 && o->link_gb_per_s > 0;
    host->ram_bytes_per_s = (double)o->ram_gb_per_s * 1e9;
    host->disk_bytes_per_s = (double)o->disk_gb_per_s * 1e9;
    struct sl_memory_look look;
    struct sl_err err;
    uint64_t room = UINT64_MAX;
    if (sl_memory_look("", &look, &err) == SL_OK)
        room = (look.limit_free_bytes < look.available_bytes ? look.limit_free_bytes
                                                             : look.available_bytes) /
               2;
    if (!r->ram_given) {
        sl_show_progress("measuring how fast RAM can be read");
        host->ram_bytes_per_s = sl_ram_read_bandwidth(r->plan.n_threads, RAM_SECONDS, room);
    }
    if (!r->disk_given && r->plan.streaming) {
        struct sl_disk_speed speed;
        sl_show_progress("measuring how fast the disk can be read");
        if (sl_store_disk_speed(r->model, &r->plan.config, DISK_SECONDS, &speed, &err) == SL_OK)
            host->disk_bytes_per_s = speed.bytes_per_s;
        else
            sl_warn("the disk's speed is not known (--disk-bandwidth gives it): %s", err.text);
    }
    for (uint32_t i = 0; i < r->plan.n_stages; i++)
        if (r->plan.stages[i].discrete)
            measure_gpu(o, &r->plan.stages[i], i, r->plan.n_stages);
    sl_show_progress("%s", "");
}

static int print_json(json_t *j) {
    int rc = !j || json_dumpf(j, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) != 0;
    json_decref(j);
    putchar('\n');
    return rc || fflush(stdout) != 0;
}

/* ---- the command ---- */

static int refuse(const struct options *o, const struct sl_plan_report *r,
                  const struct sl_err *err) {
    if (!o->json || !(r->plan.least_bytes || r->plan.vram_least_bytes)) {
        fprintf(stderr, "sluice plan: %s\n", err->text);
        return 1;
    }
    print_json(json_pack("{s:b,s:I,s:I,s:s}", "fits", 0, "least_bytes",
                         (json_int_t)r->plan.least_bytes, "vram_least_bytes",
                         (json_int_t)r->plan.vram_least_bytes, "error", err->text));
    return 1;
}

/* What serve would reject in the folders that options name, or, for mirrors, warn of and go on
 * without. */
static enum sl_status check_folders(const struct sl_engine_config *c, const struct sl_model *model,
                                    struct sl_err *err) {
    enum sl_status status = c->cache_dir ? sl_block_folder_check(c->cache_dir, err) : SL_OK;
    return status != SL_OK ? status : sl_model_files_check_mirrors(model->gguf, c, err);
}

static int plan(struct options *o) {
    struct sl_plan_report r = {.several_tokens_per_s = 0};
    struct sl_opened opened;
    struct sl_tokenizer *tok = NULL;
    struct sl_process_memory memory;
    struct sl_err err = {{0}};
    if (!sl_open_model("plan", o->model, &opened))
        return 1;
    r.model = opened.model;
    /* Open as in serve, so that what is measured is what serve will hold. */
    enum sl_status status = sl_use_drafts(opened.model, &o->engine, &err);
    if (status == SL_OK)
        status = check_folders(&o->engine, r.model, &err);
    if (status == SL_OK)
        status = sl_tokenizer_create(r.model->gguf, &tok, &err);
    if (status == SL_OK)
        status = sl_expert_layout_make(r.model, &r.layout, &err);
    if (status == SL_OK)
        status = sl_cluster_use(&o->memory, r.model, &opened.cluster, &o->engine, &err);
    if (status == SL_OK)
        status = sl_serve_plan(r.model, tok, &o->engine, &o->server, &memory, &r.plan, r.device,
                               r.ctx_note, &err);
    if (status == SL_OK)
        status = sl_plan_speed_make(r.model, &r.plan, o->engine.heat_file, &r.speed, &err);
    if (status == SL_OK) {
        measure(o, &r);
        status = sl_plan_report_limit(&r, o->engine.heat_file, &err);
    }
    int rc = 0;
    if (status != SL_OK)
        sl_cluster_say_why(&opened.cluster, status, &err);
    if (status != SL_OK)
        rc = refuse(o, &r, &err);
    else if (o->json)
        rc = print_json(sl_plan_report_json(&r));
    else
        sl_plan_report_print(stdout, &r);
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
    if (o->cards_text)
        return read_cards(o) && sl_engine_options_apply("plan", &o->memory, &o->engine);
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
        {SL_ARG_STRING, 0, "--card", "SIZE", &o.cards_text,
         "plan for a GPU with this much memory, which need not be in this machine; 24G,24G for "
         "several",
         false},
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
         "maximum tokens of one request (default: the model's, as far as memory allows, or\n"
         "8192)",
         false},
        {SL_ARG_U32, 0, "--parallel", "N", &o.engine.parallel,
         "requests that run at once (default 4)", false},
        {SL_ARG_U32, 0, "--queue", "N", &o.engine.queue_max, "requests that may wait (default 256)",
         false},
        {SL_ARG_U32, 0, "--batch", "TOKENS", &o.engine.batch_tokens,
         "maximum tokens of one step (default 512)", false},
        {SL_ARG_U32, 't', "--threads", "N", &o.engine.n_threads,
         "CPU threads that compute (default: all CPUs)", false},
        {SL_ARG_BYTES, 0, "--cache-ram", "SIZE", &o.engine.cache_ram_bytes,
         "memory for repeated prompts", false},
        {SL_ARG_FOLDER, 0, "--cache-dir", "DIR", &o.engine.cache_dir,
         "count the memory for keeping them in a folder", false},
        {SL_ARG_BYTES, 0, "--cache-disk", "SIZE", &o.engine.cache_disk_bytes,
         "limit on the files in that folder (default 8GiB)", false},
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
        .about = "Says what `sluice serve` would do with a model and a budget: where every byte "
                 "goes, the slots for experts, the best speed to expect, and the smallest budget. "
                 "Loads nothing.",
        .usage = "sluice plan -m MODEL.gguf [--ram SIZE] [--json] [options]",
        .notes = "The ceilings are arithmetic: bytes divided by bandwidth, without KV and latency. "
                 "Causal: a read starts once the router has chosen; overlap: with perfect "
                 "look-ahead. On a GPU, experts that are not in its slots pass the link, and the "
                 "slower of link and disk counts. Exit code 1: it does not fit.\n",
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
