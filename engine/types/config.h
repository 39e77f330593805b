/* What an engine is created with: sizes, devices, budgets, files; and a line of its memory plan. */
#ifndef SL_ENGINE_TYPES_CONFIG_H
#define SL_ENGINE_TYPES_CONFIG_H

#include "common/dtype.h"
#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum sl_experts_io {
    SL_EXPERTS_IO_AUTO, /* io_uring, or with one warning a pool of threads with pread */
    SL_EXPERTS_IO_URING,
    SL_EXPERTS_IO_PREAD,
};

#define SL_CACHE_DISK_DEFAULT ((uint64_t)8 << 30)
#define SL_CACHE_RAM_AUTO     UINT64_MAX

struct sl_reader;
struct sl_reader_config;

/* Opens the reader (streaming/reader.h) of the model's experts in place of the real one: for tests
 * and simulations. File i of the reader must be file i of the model. */
struct sl_reader_source {
    enum sl_status (*open)(const struct sl_reader_source *source,
                           const struct sl_reader_config *config, struct sl_reader **out_reader,
                           struct sl_err *err);
};

struct sl_device;
struct sl_seq_source;

/* Devices that one model's layers are divided over, at most. */
#define SL_MAX_STAGES 8u

/* The most of what a configuration says: every product of these stays in range, every mistake is
 * seen. */
#define SL_MAX_CTX_TOKENS   (1u << 24)
#define SL_MAX_PARALLEL     1024u
#define SL_MAX_BATCH_TOKENS 16384u
#define SL_MAX_QUEUE        65536u

/* Opens the devices that compute in place of those that `device` names, one after the other by
 * index: for tests. */
struct sl_device_source {
    enum sl_status (*open)(const struct sl_device_source *source, uint32_t index,
                           struct sl_device **out_device, struct sl_err *err);
    uint32_t n_devices; /* 0 = 1 */
};

struct sl_stage;

/* Puts itself between the scheduler and each stage: for tests. The stage that it makes is closed
 * with sl_stage_ops.close; the one behind it is not its own. */
struct sl_stage_source {
    enum sl_status (*wrap)(const struct sl_stage_source *source, uint32_t index,
                           struct sl_stage *behind, struct sl_stage **out_stage,
                           struct sl_err *err);
};

struct sl_stage_plans;
struct sl_progress;

/* A machine with some of the stages, for people and metrics. */
struct sl_remote_look {
    char name[64]; /* its address */
    bool there;
    uint32_t n_stages;
    uint64_t n_lost; /* how often it was lost */
    /* Of the link that there is now, or 0. */
    uint64_t sent_bytes, received_bytes, queued_bytes;
    uint64_t round_trip_ns;  /* of the last heartbeat */
    int64_t clock_offset_ns; /* its clock minus ours */
};

/* Devices of other machines, which have the last of the model's stages. The engine asks this for
 * them and knows nothing of how they are reached. */
struct sl_remote_stages {
    uint32_t n; /* devices, each with a stage */
    /* Of each device. */
    uint32_t host_of[SL_MAX_STAGES];    /* which of hosts has it */
    uint64_t vram_bytes[SL_MAX_STAGES]; /* what may be taken of its own memory; 0: it has none */
    /* How fast it reads its own memory, and the host's comes to it; 0: not known. */
    double memory_bytes_per_s[SL_MAX_STAGES], link_bytes_per_s[SL_MAX_STAGES];
    const struct sl_host_config *hosts; /* [n_hosts] the other machines */
    uint32_t n_hosts;
    uint64_t wait_ns; /* running requests wait so long for a machine that is lost */
    /* Is every machine there, with its stages as they were? False: which is not, and why. After the
     * stages are open; any thread. */
    bool (*all_there)(const struct sl_remote_stages *r, struct sl_err *out_why);
    /* The i-th of hosts, now. Any thread. */
    void (*look)(const struct sl_remote_stages *r, uint32_t i, struct sl_remote_look *out);
    /* Something to plan with in place of the i-th device. */
    enum sl_status (*open_planned)(const struct sl_remote_stages *r, uint32_t i,
                                   struct sl_device **out_device, struct sl_err *err);
    /* Has the other machines begin to load what the plans give them: the last n stages. */
    enum sl_status (*load)(const struct sl_remote_stages *r, const struct sl_stage_plans *plans,
                           struct sl_err *err);
    /* Waits until the i-th device's stage is ready. The stage is the caller's, closed with
     * sl_stage_ops.close before the source goes. progress may be NULL. */
    enum sl_status (*wait)(const struct sl_remote_stages *r, uint32_t i,
                           struct sl_progress *progress, struct sl_stage **out_stage,
                           struct sl_err *err);
};

enum sl_experts_where {
    SL_EXPERTS_AUTO,     /* resident when they fit, else streamed */
    SL_EXPERTS_RESIDENT, /* loaded at the start, or refused */
    SL_EXPERTS_STREAMED, /* through the expert cache, also when they would fit */
};

/* What kind of memory a line of the plan is: all but the device's own counts against the host's
 * budget. */
enum sl_memory_kind {
    SL_MEMORY_HOST,
    SL_MEMORY_PINNED, /* of the host, locked and mapped for a device */
    SL_MEMORY_DEVICE, /* a discrete card's own */
};
const char *sl_memory_kind_name(enum sl_memory_kind kind);

/* One line of the memory plan. */
struct sl_plan_row {
    const char *what;
    char detail[96];
    uint64_t bytes;
    enum sl_memory_kind kind;
    uint32_t stage; /* of several devices, the one that it is for, from 1; 0 = not one's alone */
    uint32_t host;  /* whose memory, or whose device's, it is: of struct sl_memory_plan's hosts */
};

#define SL_HOST_NAME_BYTES 64u

/* A machine with devices that compute, as the plan is to count with it. */
struct sl_host_config {
    char name[SL_HOST_NAME_BYTES];
    uint64_t ram_bytes;     /* the most that the process there may ever have resident; not 0 */
    uint64_t pinned_bytes;  /* of that, the most that may be pinned for devices; 0 = all */
    uint64_t process_bytes; /* of ram_bytes, what the process there holds already */
    /* How fast it reads its memory and its copy of the model's files; 0 = not known. */
    double ram_bytes_per_s, disk_bytes_per_s;
};

struct sl_engine_config {
    uint32_t n_threads;       /* 0 = all CPUs */
    uint32_t ctx_tokens;      /* most tokens of one session, prompt and answer; 0 = the model's, at
                                 most 8192 */
    uint32_t parallel;        /* sessions that run at once; 0 = 4 */
    uint32_t batch_tokens;    /* rows of one step at most; 0 = 512 */
    uint32_t queue_max;       /* requests waiting at most; 0 = 256 */
    uint32_t max_stall_ms;    /* a step that generates takes so much of prompts that it ends within
                                 this time, as far as 8 rows of them allow; 0 = 300 */
    uint64_t cache_ram_bytes; /* KV pages beyond those that running sessions may need, for text that
                                 may come again (those that are idle serve anyway);
                                 SL_CACHE_RAM_AUTO = what the budget can spare */
    enum sl_dtype kv_dtype;   /* SL_DTYPE_F16 or SL_DTYPE_Q8_0 */
    const char *cache_dir;    /* folder where such text is kept too and found again after a restart;
                                 NULL = none; borrowed until destroy */
    uint64_t cache_disk_bytes; /* what its files may take; 0 = 8 GiB */
    bool cache_read_always;    /* also where computing looks faster: for tests and comparisons */
    const char *record_routes; /* file for the experts that each row chooses, NULL = none */
    const char *trace_file; /* what happened when, for a trace viewer (timeline.h), NULL = none */
    const char *cpu_isa;    /* NULL = the best; "c", "avx2", "avx512", "vnni" for tests */
    /* What computes: ids of the registry (backends/registry.h), several with commas between, over
     * which the layers are divided; or "auto": the first device in the registry's order that the
     * model's dense weights fit, else the host. NULL = the host. */
    const char *device;
    const struct sl_device_source *device_source; /* NULL = those that `device` names */
    const struct sl_stage_source *stage_source;   /* NULL = stages are spoken to directly */
    const struct sl_remote_stages *remote; /* devices behind those; NULL = none; borrowed until
                                              destroy */
    /* Several devices: how many layers each has, in their order, "20,28"; NULL or "auto" = by the
     * memory of each. */
    const char *split;

    /* Memory: the most that the process may ever have resident; 0 = what is free now, less a
     * reserve (engine/plan/memory_budget.h). process_bytes of it are the caller's own (what it
     * holds already, server, ...), worked out or measured by the caller; process_rows
     * [n_process_rows] say for what, as far as they go, borrowed until create returns. */
    uint64_t ram_bytes, process_bytes;
    const struct sl_plan_row *process_rows;
    uint32_t n_process_rows;
    uint64_t pinned_bytes; /* of ram_bytes, the most that may be pinned for devices; 0 = all */
    enum sl_experts_where experts;
    /* A card's own memory: the most to take of it; 0 = what is free now, less the reserve (0 = the
     * default). Nothing for a device that computes in the host's memory. */
    uint64_t vram_bytes, vram_reserve_bytes;
    uint64_t vram_each[SL_MAX_STAGES]; /* [n_vram] for each of several devices, in place of
                                          vram_bytes; n_vram 0 = vram_bytes for each */
    uint32_t n_vram;
    bool devices_logged; /* an earlier plan of this has logged what computes and what is free there:
                          this one does not again */
    uint64_t driver_bytes; /* of process_bytes: what opening the device took; set by create */
    bool no_overflow; /* on a card: refuse what does not fit it, rather than keep experts in pinned
                         memory of the host */

    /* The machines that have the devices: device i is host_of[i]'s, and the first device's machine
     * also runs the scheduler. Budgets are then each machine's own, and ram_bytes, pinned_bytes and
     * process_bytes above are not looked at. n_hosts 0 = all devices are this machine's, with the
     * budgets above, or `remote`'s. Borrowed until create returns. */
    const struct sl_host_config *hosts; /* [n_hosts] */
    uint32_t n_hosts, host_of[SL_MAX_STAGES];

    /* Streaming. */
    enum sl_experts_io io;
    bool io_buffered;           /* through the page cache, for comparisons */
    const char *const *mirrors; /* [n_mirrors] copies of the model: a file, or a folder
                                   with files of the same names; borrowed until destroy */
    uint32_t n_mirrors;
    const char *heat_file; /* a file, or a folder for one file per model; NULL =
                              heat is not kept */
    bool no_lookahead, no_warm_up;
    const struct sl_reader_source *reader_source; /* NULL = the model's files */
    const struct sl_seq_source *seq_source;       /* one more store of each layer (seq_state.h): for
                                                     tests;       NULL = none; borrowed until destroy */
};

/* Loading: done of total bytes. Returning false cancels the load. May be called from any thread. */
struct sl_progress {
    bool (*report)(struct sl_progress *p, uint64_t done_bytes, uint64_t total_bytes);
};

#endif
