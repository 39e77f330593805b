/* sluice worker: holds layers of a model and computes them for a coordinator on another machine. */
#include "cli/options/args.h"
#include "cli/options/cluster_options.h"
#include "cli/options/commands.h"
#include "cli/measure/device_bandwidth.h"
#include "cli/options/open_engine.h"
#include "cli/measure/ram_bandwidth.h"
#include "cli/serve/worker_pages.h"
#include "cluster/worker.h"
#include "common/cpus.h"
#include "common/log.h"
#include "engine/experts/expert_speed.h"
#include "net/key.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How long memory, and the disk, are measured. */
#define MEASURE_S 0.3

struct options {
    bool no_measure;
    const char *model, *cache, *address, *http, *log_level;
    char cache_folder[4096], heat_folder[4096];
    struct sl_engine_config engine;
    struct sl_engine_options memory;
};

static atomic_bool stop;

static void on_signal(int sig) {
    (void)sig;
    stop = true;
}

static void listening(void *ctx, const char *address) {
    const struct options *o = ctx;
    if (o->model)
        sl_info("listening on %s for a coordinator, with %s", address, o->model);
    else
        sl_info("listening on %s for a coordinator; what it asks for is fetched to %s", address,
                o->cache);
}

static const struct options defaults = {
    .log_level = "info",
    .address = "0.0.0.0:7070",
    .memory = SL_ENGINE_OPTIONS_DEFAULT,
};

/* What was given; the table writes here. One command runs at a time. */
static struct options given;

static const struct sl_arg args[] = {
    {SL_ARG_STRING, 'm', "--model", "FILE", &given.model,
     "the GGUF file, the same as the coordinator's (also as the only argument)", false},
    {SL_ARG_FOLDER, 0, "--model-cache", "DIR", &given.cache,
     "without -m, where the parts that the coordinator asks for are fetched to, from it and\n"
     "once (default: sluice/layers/ in $XDG_CACHE_HOME or ~/.cache)",
     false},
    {SL_ARG_STRING, 0, "--listen", "ADDRESS", &given.address,
     "HOST:PORT, [V6]:PORT or unix:PATH (default 0.0.0.0:7070)", false},
    SL_KEY_OPTIONS(&given.memory),
    {SL_ARG_HEADING, 0, "Memory and streaming", NULL, NULL, NULL, false},
    {SL_ARG_STRING, 0, "--device", "DEVICE", &given.memory.device, NULL, false},
    {SL_ARG_STRING, 0, "--vram", "SIZE", &given.memory.vram,
     "limit on the GPU memory used, as 20GiB; one for each of several GPUs, as 12G,24G (default: "
     "what is free, less the reserve)",
     false},
    {SL_ARG_U32, 0, "--vram-reserve-mib", "MIB", &given.memory.vram_reserve_mib,
     "how much of a GPU's free memory to leave free if --vram is not given (default 512)", false},
    {SL_ARG_BYTES, 0, "--ram", "SIZE", &given.memory.ram_bytes,
     "limit on the host memory that the process may ever take, as 2GiB or 1500M\n"
     "(default: what is free, less 512 MiB or 5 % of it)",
     false},
    {SL_ARG_STRING, 0, "--io", "HOW", &given.memory.io,
     "how experts are read: uring, pread, or auto (default auto)", false},
    {SL_ARG_INPUTS, 0, "--mirror", "PATH", &given.memory.mirrors,
     "a copy of the model on another drive, to read from both; up to three times", false},
    {SL_ARG_KEPT, 0, "--heat-file", "DIR", &given.memory.heat_file,
     "which experts were hot, kept from run to run: a folder with a file for each run of\n"
     "layers, or off (default: heat/ in --model-cache, with -m sluice/heat/ in\n"
     "$XDG_CACHE_HOME or ~/.cache)",
     false},
    {SL_ARG_U32, 't', "--threads", "N", &given.engine.n_threads,
     "CPU threads that compute (default: all CPUs)", false},
    {SL_ARG_HEADING, 0, "Other", NULL, NULL, NULL, false},
    {SL_ARG_STRING, 0, "--http", "ADDRESS", &given.http,
     "HOST:PORT where the worker serves its own /health and /metrics, without a key or\n"
     "encryption: for probes and Prometheus (default: nowhere)",
     false},
    {SL_ARG_FLAG, 0, "--no-measure", NULL, &given.no_measure,
     "do not measure the memory's and the disk's speed at the start: 'sluice plan\n"
     "--workers' then knows less",
     false},
    {SL_ARG_STRING, 0, "--log-level", "LEVEL", &given.log_level,
     "error, warn, info (default) or debug", false},
};

static const struct sl_arg_limit limits[] = {SL_ENGINE_LIMITS};

static const struct sl_command command = {
    .name = "worker",
    .about = "Computes layers of a model for a coordinator on another machine.",
    .usage = "sluice worker [-m MODEL | --model-cache DIR] --key-file FILE [options]",
    .notes = "The coordinator is 'sluice serve -m MODEL.gguf --workers THIS_HOST:7070 --key-file\n"
             "cluster.key'. It decides which layers, and with which context. SIGTERM or Ctrl-C "
             "ends the worker.\n",
    .args = args,
    .n_args = SL_COUNTOF(args),
    .help_of = sl_engine_options_help,
    .limits = limits,
    .n_limits = SL_COUNTOF(limits),
    .model = &given.model,
    .model_optional = true,
};

static bool set_log_level(const char *text) {
    static const char *const levels[] = {"error", "warn", "info", "debug"};
    for (int i = SL_LOG_ERROR; i <= SL_LOG_DEBUG; i++)
        if (strcmp(text, levels[i]) == 0) {
            sl_log_set_level((enum sl_log_level)i);
            return true;
        }
    sl_usage_error("worker", "--log-level must be error, warn, info or debug, not %s", text);
    return false;
}

/* Without a copy of the model there is a folder for what is fetched of it. */
static bool set_cache_folder(struct options *o) {
    const char *base = getenv("XDG_CACHE_HOME"), *below = "";
    if (o->model && o->cache) {
        sl_usage_error("worker", "-m FILE is a copy of the model, --model-cache a folder for one "
                                 "that is fetched: give one of the two");
        return false;
    }
    if (o->model || o->cache)
        return true;
    if (!base || base[0] != '/') {
        base = getenv("HOME");
        below = "/.cache";
    }
    if (!base || base[0] != '/') {
        sl_usage_error("worker", "no model given, and neither XDG_CACHE_HOME nor HOME says where "
                                 "what is fetched of one may go: -m FILE, or --model-cache DIR");
        return false;
    }
    int n = snprintf(o->cache_folder, sizeof o->cache_folder, "%s%s/sluice/layers", base, below);
    if (n < 0 || (size_t)n >= sizeof o->cache_folder) {
        sl_usage_error("worker", "the cache folder's name is too long: give --model-cache DIR");
        return false;
    }
    o->cache = o->cache_folder;
    return true;
}

/* Always a folder: each stage has its file. With --model-cache it is in that one, which outlives a
 * pod. */
static bool set_heat_folder(struct options *o) {
    const char *given_as = o->memory.heat_file, *base = given_as ? given_as : o->cache;
    if (!base || (given_as && !o->engine.heat_file))
        return true; /* in the user's cache folder; off */
    int n = snprintf(o->heat_folder, sizeof o->heat_folder, "%s/%s", base, given_as ? "" : "heat/");
    if (n < 0 || (size_t)n >= sizeof o->heat_folder) {
        sl_usage_error("worker", "--heat-file: the folder's name is too long");
        return false;
    }
    o->engine.heat_file = o->heat_folder;
    return true;
}

static void measure_device(const char *id, double *out_memory, double *out_link) {
    struct sl_device_bandwidth seen;
    struct sl_err why;
    sl_device_bandwidth(id, &seen, &why);
    if (seen.memory <= 0)
        sl_warn("the speed of %s is not known: %s", id, why.text);
    *out_memory = seen.memory;
    *out_link = seen.link;
}

/* What coordinators plan with. */
static void measure(const struct options *o, const struct sl_model *model,
                    struct sl_worker_config *c) {
    struct sl_disk_speed disk;
    struct sl_err why;
    uint64_t room = sl_process_memory_room(o->engine.ram_bytes);
    uint32_t n_threads = o->engine.n_threads ? o->engine.n_threads : sl_cpus_allowed();
    c->ram_bytes_per_s = sl_ram_read_bandwidth(n_threads, MEASURE_S, room / 2);
    enum sl_status status = SL_ERR_UNSUPPORTED;
    if (model)
        status = sl_store_disk_speed(model, &o->engine, MEASURE_S, &disk, &why);
    if (status == SL_OK)
        c->disk_bytes_per_s = disk.bytes_per_s;
    else if (status != SL_ERR_UNSUPPORTED)
        sl_warn("the disk's speed is not known: %s", why.text);
    if (c->disk_bytes_per_s > 0)
        sl_info("memory reads %.1f GB/s, the disk %.2f GB/s", c->ram_bytes_per_s * 1e-9,
                c->disk_bytes_per_s * 1e-9);
    else
        sl_info("memory reads %.1f GB/s", c->ram_bytes_per_s * 1e-9);
}

/* What the process holds now. */
static uint64_t process_bytes(void) {
    struct sl_process_memory m = {.n = 0};
    struct sl_engine_config unused = {.n_threads = 0};
    sl_process_memory_apply(&m, &unused);
    return unused.process_bytes;
}

static int work(struct options *o, struct sl_net_key *key) {
    struct sl_opened opened = {.model = NULL};
    struct sl_err err;
    if (o->model && !sl_open_model("worker", o->model, &opened))
        return 1;
    o->engine.process_bytes = process_bytes();
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    struct sl_worker_config config = {.model = opened.model,
                                      .model_name = o->model,
                                      .cache = o->cache,
                                      .process_bytes = process_bytes,
                                      .address = o->address,
                                      .key = key,
                                      .engine = o->engine,
                                      .stop = &stop,
                                      .listening = listening,
                                      .ctx = o};
    if (!o->no_measure) {
        measure(o, opened.model, &config);
        config.measure = measure_device;
    }
    struct sl_worker *worker = NULL;
    struct sl_worker_pages *pages = NULL;
    enum sl_status status = sl_worker_create(&config, &worker, &err);
    if (status == SL_OK && o->http)
        status = sl_worker_pages_start(o->http, worker, &pages, &err);
    if (status == SL_OK)
        status = sl_worker_run(worker, &err);
    if (status != SL_OK)
        sl_error("%s", err.text);
    else
        sl_info("stopped");
    sl_worker_pages_stop(&pages);
    sl_worker_destroy(&worker);
    sl_close_engine(&opened);
    return status != SL_OK;
}

int sl_cmd_worker(int argc, char **argv) {
    struct options *o = &given;
    struct sl_net_key *key = NULL;
    struct sl_err err;
    *o = defaults;
    int rc = sl_args_parse(&command, argc, argv);
    if (rc >= 0)
        return rc;
    if (!set_cache_folder(o))
        return 2;
    if (!set_log_level(o->log_level) || !sl_engine_options_apply("worker", &o->memory, &o->engine))
        return 2;
    if (!set_heat_folder(o))
        return 2;
    if (sl_cluster_key(&o->memory, &key, &err) != SL_OK) {
        fprintf(stderr, "sluice worker: %s\n", err.text);
        return 1;
    }
    rc = work(o, key);
    sl_net_key_free(&key);
    return rc;
}
