/* The options that all commands with an engine share: memory, and where routed experts are. */
#ifndef SL_CLI_ENGINE_OPTIONS_H
#define SL_CLI_ENGINE_OPTIONS_H

#include "backends/registry/registry.h"
#include "cli/options/args.h"
#include "engine/engine.h"

#include <math.h>

struct sl_engine_options {
    uint64_t ram_bytes; /* UINT64_MAX = not given */
    const char *device, *experts, *io, *heat_file, *look_ahead, *warm_up, *overflow, *cpu_lane;
    const char *split, *vram, *kv_type, *draft;
    uint32_t vram_reserve_mib; /* UINT32_MAX = not given */
    uint32_t cpu_lane_threads; /* 0 = not given */
    const char *tables;
    uint64_t table_cache_bytes; /* 0 = not given */
    struct sl_arg_list mirrors;
    const char *workers, *spares, *key_file;
    uint32_t worker_wait_s;
    bool plain;
    char heat_folder[4096];
};

#define SL_ENGINE_OPTIONS_DEFAULT                                                                  \
    { .ram_bytes = UINT64_MAX, .vram_reserve_mib = UINT32_MAX, .worker_wait_s = 30 }

/* The help text of --device, by the backends of this build: for the help_of of a command with the
 * rows below. Main thread. */
const char *sl_engine_options_help(const char *option);

/* Rows for a command's table; o is a struct sl_engine_options *. --device has its help from
 * sl_engine_options_help(). */
#define SL_ENGINE_OPTIONS(o)                                                                         \
    {SL_ARG_HEADING, 0, "Memory and streaming", NULL, NULL, NULL, false},                            \
        {SL_ARG_STRING, 0, "--device", "DEVICE", &(o)->device, NULL, false},                         \
        {SL_ARG_STRING,                                                                              \
         0,                                                                                          \
         "--split",                                                                                  \
         "LAYERS",                                                                                   \
         &(o)->split,                                                                                \
         "how many layers each of several GPUs gets, as 20,28, or auto: by their memory, its "       \
         "speed, and the heat of earlier runs, which shows the layers that need less memory "        \
         "(default auto)",                                                                           \
         false},                                                                                     \
        {SL_ARG_STRING,                                                                              \
         0,                                                                                          \
         "--vram",                                                                                   \
         "SIZE",                                                                                     \
         &(o)->vram,                                                                                 \
         "limit on the GPU memory used, as 20GiB; one for each of several GPUs, as 12G,24G "         \
         "(default: what is free, less the reserve)",                                                \
         false},                                                                                     \
        {SL_ARG_U32,                                                                                 \
         0,                                                                                          \
         "--vram-reserve-mib",                                                                       \
         "MIB",                                                                                      \
         &(o)->vram_reserve_mib,                                                                     \
         "how much of a GPU's free memory to leave free if --vram is not given (default 512)",       \
         false},                                                                                     \
        {SL_ARG_STRING,                                                                              \
         0,                                                                                          \
         "--overflow",                                                                               \
         "ON",                                                                                       \
         &(o)->overflow,                                                                             \
         "on: experts that a GPU has no room for stay in pinned host memory, within its\n"           \
         "reach; off: refuse such a model (default on)",                                             \
         false},                                                                                     \
        {SL_ARG_STRING,                                                                              \
         0,                                                                                          \
         "--cpu-lane",                                                                               \
         "ON",                                                                                       \
         &(o)->cpu_lane,                                                                             \
         "on: the CPU computes some of the experts that a GPU has no room for, while the GPU\n"      \
         "computes the others; the answer is the same; auto: where it can; off (default off)",       \
         false},                                                                                     \
        {SL_ARG_U32,                                                                                 \
         0,                                                                                          \
         "--cpu-lane-threads",                                                                       \
         "N",                                                                                        \
         &(o)->cpu_lane_threads,                                                                     \
         "threads for that (default: as many as --threads)",                                         \
         false},                                                                                     \
        {SL_ARG_BYTES,                                                                               \
         0,                                                                                          \
         "--ram",                                                                                    \
         "SIZE",                                                                                     \
         &(o)->ram_bytes,                                                                            \
         "hard limit on the host memory of the process, as 2GiB or 1500M; what does not fit is "     \
         "refused before anything is loaded (default: what is free, less 512 MiB or 5 % of it)",     \
         false},                                                                                     \
        {SL_ARG_STRING,                                                                              \
         0,                                                                                          \
         "--kv-type",                                                                                \
         "TYPE",                                                                                     \
         &(o)->kv_type,                                                                              \
         "type of the KV cache: f16, or q8_0, which takes half the memory (default f16)",            \
         false},                                                                                     \
        {SL_ARG_STRING,                                                                              \
         0,                                                                                          \
         "--draft",                                                                                  \
         "HOW",                                                                                      \
         &(o)->draft,                                                                                \
         "tokens that the model's own layer for that (nextn, MTP) drafts, 1 to 4: one "              \
         "step "                                                                                     \
         "verifies them, the answer is the same; auto: 1, while measured to be faster, if the "      \
         "file "                                                                                     \
         "has such a layer; off (default off)",                                                      \
         false},                                                                                     \
        {SL_ARG_STRING,                                                                              \
         0,                                                                                          \
         "--experts",                                                                                \
         "WHERE",                                                                                    \
         &(o)->experts,                                                                              \
         "routed experts: resident, streamed from the model file through a cache, or\n"              \
         "auto: resident if they fit (default auto)",                                                \
         false},                                                                                     \
        {SL_ARG_STRING,                                                                              \
         0,                                                                                          \
         "--tables",                                                                                 \
         "WHERE",                                                                                    \
         &(o)->tables,                                                                               \
         "embeddings: resident, streamed (rows are read from the model file when tokens need "       \
         "them), or auto: those of layers are streamed if not everything fits (default auto)",       \
         false},                                                                                     \
        {SL_ARG_BYTES,                                                                               \
         0,                                                                                          \
         "--table-cache",                                                                            \
         "SIZE",                                                                                     \
         &(o)->table_cache_bytes,                                                                    \
         "memory for rows of streamed tables that were read before, within --ram (default: an "      \
         "eighth of what is left of it, at most 128 MiB)",                                           \
         false},                                                                                     \
        {SL_ARG_STRING,                                                                              \
         0,                                                                                          \
         "--io",                                                                                     \
         "HOW",                                                                                      \
         &(o)->io,                                                                                   \
         "how experts are read: uring, pread, or auto: io_uring if the system allows\n"              \
         "it (default auto); buffered, uring-buffered, pread-buffered: the same\n"                   \
         "through the page cache",                                                                   \
         false},                                                                                     \
        {SL_ARG_INPUTS,                                                                              \
         0,                                                                                          \
         "--mirror",                                                                                 \
         "PATH",                                                                                     \
         &(o)->mirrors,                                                                              \
         "a copy of the model on another drive, to read from both: a file, or a folder with "        \
         "files of the same names; up to three times",                                               \
         false},                                                                                     \
        {SL_ARG_KEPT,                                                                                \
         0,                                                                                          \
         "--heat-file",                                                                              \
         "PATH",                                                                                     \
         &(o)->heat_file,                                                                            \
         "where to record which experts are hot, from run to run: a file, a folder, or off; a "      \
         "file that is not a heat file is refused (default: sluice/heat/ in $XDG_CACHE_HOME or "     \
         "~/.cache)",                                                                                \
         false},                                                                                     \
        {SL_ARG_STRING,                                                                              \
         0,                                                                                          \
         "--look-ahead",                                                                             \
         "ON",                                                                                       \
         &(o)->look_ahead,                                                                           \
         "on or off: run the next layer's router early and read the experts it chooses while the "   \
         "disk is idle (default on; pauses by itself when it does not pay)",                         \
         false},                                                                                     \
        {SL_ARG_STRING,                                                                              \
         0,                                                                                          \
         "--warm-up",                                                                                \
         "ON",                                                                                       \
         &(o)->warm_up,                                                                              \
         "on or off: read hot experts in the background after the start (default on)",               \
         false},                                                                                     \
        {SL_ARG_HEADING, 0, "Other machines", NULL, NULL, NULL, false},                              \
        {SL_ARG_STRING,                                                                              \
         0,                                                                                          \
         "--workers",                                                                                \
         "ADDRESSES",                                                                                \
         &(o)->workers,                                                                              \
         "machines with the later layers, in this order: HOST:PORT of each 'sluice worker', "        \
         "separated by commas; or slurm, lws or dns:NAME:PORT, to ask the job, the "                 \
         "LeaderWorkerSet or the name server (IPv4 addresses, or IPv6 if the name has no other)",    \
         false},                                                                                     \
        {SL_ARG_STRING, 0,                                                                           \
         "--spare",     "ADDRESSES",                                                                 \
         &(o)->spares,  "workers that replace a lost or absent one: HOST:PORT, separated by commas", \
         false},                                                                                     \
        {SL_ARG_U32,                                                                                 \
         0,                                                                                          \
         "--worker-wait",                                                                            \
         "S",                                                                                        \
         &(o)->worker_wait_s,                                                                        \
         "how long running requests wait for a lost worker before they fail, and a start for one "   \
         "that does not answer (default 30)",                                                        \
         false},                                                                                     \
        SL_KEY_OPTIONS(o)

/* How peers prove themselves: rows for a command's table. */
#define SL_KEY_OPTIONS(o)                                                                          \
    {SL_ARG_INPUT,                                                                                 \
     0,                                                                                            \
     "--key-file",                                                                                 \
     "FILE",                                                                                       \
     &(o)->key_file,                                                                               \
     "the key that all machines share ('sluice keygen' makes one); only its owner may be able to " \
     "read the file. SLUICE_CLUSTER_KEY may hold the key itself",                                  \
     false},                                                                                       \
    {                                                                                              \
        SL_ARG_FLAG, 0, "--plain", NULL, &(o)->plain,                                              \
            "no key and no encryption: only between processes on this machine", false              \
    }

/* The numbers that these options accept, and those of options that several commands have besides
 * them: rows for a command's limits. */
#define SL_ENGINE_LIMITS                                                                           \
    {"--ctx", 2, SL_MAX_CTX_TOKENS, "the model's own, at most 8192"},                              \
        {"--parallel", 1, SL_MAX_PARALLEL, NULL}, {"--queue", 1, SL_MAX_QUEUE, NULL},              \
        {"--batch", 1, SL_MAX_BATCH_TOKENS, NULL},                                                 \
        {"--threads", 1, SL_DEVICE_MAX_THREADS, "all CPUs"},                                       \
        {"--cache-disk", SL_ARG_ABOVE_0, INFINITY, NULL}, {"--worker-wait", 1, 86400, NULL},       \
        {"--max-body-mib", 1, 65536, NULL}, {"--max-connections", 1, 1u << 20, NULL}, {            \
        "--vram-reserve-mib", 1, 1u << 24, NULL                                                    \
    }

/* The most devices besides the host that --device may name; 0 for NULL, which is the host. */
uint32_t sl_device_option_cards(const char *device);
/* False after an error message: the option was given although --device names the host only, where
 * it has no meaning. With auto a GPU may be found, so it is accepted. */
bool sl_engine_options_gpu(const char *command, const struct sl_engine_options *o, bool given,
                           const char *option);
/* Fills the configuration; false after an error message. o must outlive the engine. */
bool sl_engine_options_apply(const char *command, struct sl_engine_options *o,
                             struct sl_engine_config *config);

/* Before anything else is done with the model: takes its draft layer to its layers, if
 * config drafts. Where `auto` finds none, or there are several devices, config drafts no more. */
enum sl_status sl_use_drafts(struct sl_model *model, struct sl_engine_config *config,
                             struct sl_err *err) SL_MUST_CHECK;

#endif
