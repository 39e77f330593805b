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

/* For tests and simulations: opens the reader (streaming/reader.h) of the model's experts instead
 * of the real one. File i of the reader must be file i of the model. */
struct sl_reader_source {
    enum sl_status (*open)(const struct sl_reader_source *source,
                           const struct sl_reader_config *config, struct sl_reader **out_reader,
                           struct sl_err *err);
};

struct sl_device;
struct sl_seq_source;

/* The most devices that one model's layers can be divided over. */
#define SL_MAX_STAGES 8u

/* Upper bounds on settings. No product of them overflows, and absurd values are refused. */
#define SL_MAX_CTX_TOKENS   (1u << 24)
#define SL_MAX_PARALLEL     1024u
#define SL_MAX_BATCH_TOKENS 16384u
#define SL_MAX_QUEUE        65536u

/* For tests: opens the devices that compute, in order of index, instead of those that `device`
 * names. */
struct sl_device_source {
    enum sl_status (*open)(const struct sl_device_source *source, uint32_t index,
                           struct sl_device **out_device, struct sl_err *err);
    uint32_t n_devices; /* 0 = 1 */
};

struct sl_stage;

/* For tests: wraps each stage, between it and the scheduler. The caller closes the stage that wrap
 * makes with sl_stage_ops.close; that must not close the one behind it. */
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
    /* What its stages were asked, and how long they were waited for: each stage by itself, while at
     * least one of its answers had not come. */
    uint64_t n_calls, waited_ns;
    /* Of the link that there is now, or 0. */
    uint64_t sent_bytes, received_bytes, queued_bytes;
    uint64_t round_trip_ns;  /* of the last heartbeat */
    int64_t clock_offset_ns; /* its clock minus ours */
};

/* Devices of other machines, which run the model's last stages. The engine reaches them through
 * this alone and knows nothing of the network. */
struct sl_remote_stages {
    uint32_t n; /* devices, each with a stage */
    /* Of each device. */
    uint32_t host_of[SL_MAX_STAGES];    /* which of hosts has it */
    uint64_t vram_bytes[SL_MAX_STAGES]; /* what may be taken of its own memory; 0: it has none */
    /* How fast it reads its own memory, and the host's comes to it; 0: not known. */
    double memory_bytes_per_s[SL_MAX_STAGES], link_bytes_per_s[SL_MAX_STAGES];
    const struct sl_host_config *hosts; /* [n_hosts] the other machines */
    uint32_t n_hosts;
    uint64_t wait_ns; /* how long running requests wait for a lost machine to come back */
    /* Whether every machine is connected, with its stages unchanged. If false, out_why names the
     * one that is not and the reason. Call it only after the stages are open; any thread. */
    bool (*all_there)(const struct sl_remote_stages *r, struct sl_err *out_why);
    /* The engine counts on nothing that lost machines had. Until it says so, the stage of a machine
     * that was lost answers SL_ERR_PEER_LOST, also when the machine is back. Call it after
     * all_there, while nothing is under way. */
    void (*resume)(const struct sl_remote_stages *r);
    /* The current state of hosts[i]. Any thread. */
    void (*look)(const struct sl_remote_stages *r, uint32_t i, struct sl_remote_look *out);
    /* Opens a stand-in for device i to plan with. */
    enum sl_status (*open_planned)(const struct sl_remote_stages *r, uint32_t i,
                                   struct sl_device **out_device, struct sl_err *err);
    /* Tells the other machines to start loading their stages, the last n of the plans. */
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

/* Tables: matrices of which a step needs the rows of its tokens (engine/tables/table_layout.h). */
enum sl_tables_where {
    SL_TABLES_AUTO,     /* resident where everything else is too, else large ones are streamed */
    SL_TABLES_RESIDENT, /* loaded at the start */
    SL_TABLES_STREAMED, /* their rows are read when tokens need them, also when they would fit */
};

/* Whether the host's CPU computes experts alongside a discrete device (engine/lane/cpu_lane.h). */
enum sl_lane_use {
    SL_LANE_AUTO, /* where it can, as far as it pays */
    SL_LANE_ON,   /* the same; refused where it cannot */
    SL_LANE_OFF,
};

/* The kind of memory that a line of the plan takes. All but SL_MEMORY_DEVICE counts against the
 * host's budget. */
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
    uint32_t stage; /* with several devices: the one that uses it, from 1; 0 = shared */
    uint32_t
        host; /* index into struct sl_memory_plan's hosts: whose memory it is, or whose device's */
};

#define SL_HOST_NAME_BYTES 64u

/* A machine with devices that compute, as the plan sees it. */
struct sl_host_config {
    char name[SL_HOST_NAME_BYTES];
    uint64_t ram_bytes;     /* limit on the resident memory of the process there; not 0 */
    uint64_t pinned_bytes;  /* of that, how much may be pinned for devices; 0 = all */
    uint64_t process_bytes; /* of ram_bytes, what the process there already holds */
    uint64_t link_bytes;    /* as in struct sl_engine_config */
    /* How fast it reads its memory and its copy of the model's files; 0 = not known. */
    double ram_bytes_per_s, disk_bytes_per_s;
};

/* Tokens that may be drafted for a session at once: they are verified in one step with the row that
 * it has anyway. */
#define SL_MAX_DRAFT 4u

/* For tests: proposes tokens in the place of the model's own layers. Called on the scheduler's
 * thread. */
struct sl_draft_source {
    /* Writes up to most tokens that may follow history [n_history]; returns how many. Tokens that
     * do not follow cost time alone. */
    uint32_t (*propose)(const struct sl_draft_source *s, const uint32_t *history,
                        uint32_t n_history, uint32_t most, uint32_t *out_ids);
};

struct sl_engine_config {
    uint32_t n_threads;    /* 0 = all CPUs */
    uint32_t ctx_tokens;   /* most tokens of one session, prompt and answer; 0 = the model's, at
                              most 8192 */
    uint32_t parallel;     /* sessions that run at once; 0 = 4 */
    uint32_t batch_tokens; /* rows of one step at most; 0 = 512 */
    uint32_t queue_max;    /* requests waiting at most; 0 = 256 */
    uint32_t max_stall_ms; /* prompt rows alongside generated ones are limited so that a step
                              ends within this time, but to no less than 8; 0 = 300 */
    uint32_t draft_tokens; /* drafted at once for a session at most, SL_MAX_DRAFT at most; 0 =
                              none */
    bool draft_auto;       /* only while that is measured to be faster */
    bool draft_forced;     /* for measurements: of an answer that is given beforehand (`forced`),
                              draft_percent of a hundred drafts are right, whatever the layer says */
    uint32_t draft_percent;
    uint64_t cache_ram_bytes;  /* KV pages for repeated prompts, beyond those that running sessions
                                  may need (of which idle ones serve too); SL_CACHE_RAM_AUTO = what
                                  the budget can spare */
    enum sl_dtype kv_dtype;    /* SL_DTYPE_F16 or SL_DTYPE_Q8_0 */
    const char *cache_dir;     /* folder where these pages are also kept, across restarts; NULL =
                                  none; borrowed until destroy */
    uint64_t cache_disk_bytes; /* limit on the size of its files; 0 = 8 GiB */
    bool cache_read_always;    /* even if computing seems faster: for tests and comparisons */
    const char *record_routes; /* file for the experts that each row chooses, NULL = none */
    const char *trace_file; /* what happened when, for a trace viewer (timeline.h), NULL = none */
    const char *cpu_isa;    /* NULL = the best; "c", "avx2", "avx512", "vnni" for tests */
    /* What computes: ids of the registry (backends/registry.h), several with commas between, over
     * which the layers are divided; or "auto": the first device in the registry's order that the
     * model's dense weights fit, else the host. NULL = the host. */
    const char *device;
    const struct sl_device_source *device_source; /* NULL = those that `device` names */
    const struct sl_stage_source *stage_source;   /* NULL = stages are called directly */
    const struct sl_remote_stages *remote; /* devices behind those; NULL = none; borrowed until
                                              destroy */
    /* With several devices: the number of layers of each, in order, as in "20,28"; NULL or "auto" =
     * chosen by their memory. */
    const char *split;

    /* Limit on the resident memory of the process; 0 = what is free now, less a reserve
     * (engine/plan/memory_budget.h). process_bytes of it are the caller's own (what it already
     * holds, the server, ...), computed or measured by the caller; process_rows [n_process_rows]
     * itemise some or all of them, borrowed until create returns. */
    uint64_t ram_bytes, process_bytes;
    const struct sl_plan_row *process_rows;
    uint32_t n_process_rows;
    /* Of ram_bytes too: what connections to other machines take here, besides the messages that
     * arrive and wait to be sent, which the plan knows. */
    uint64_t link_bytes;
    uint64_t pinned_bytes; /* of ram_bytes, how much may be pinned for devices; 0 = all */
    enum sl_experts_where experts;
    enum sl_tables_where tables;
    uint64_t table_cache_bytes; /* rows of streamed tables that are kept; 0 = chosen by the plan */
    /* Limit on what is taken of a card's own memory; 0 = what is free now, less the reserve (0 =
     * the default). Ignored for a device that computes in host memory. */
    uint64_t vram_bytes, vram_reserve_bytes;
    uint64_t vram_each[SL_MAX_STAGES]; /* [n_vram] one for each device, instead of vram_bytes;
                                          n_vram 0 = vram_bytes for each */
    uint32_t n_vram;
    bool devices_logged; /* an earlier plan has logged the devices and their free memory: do not log
                          them again */
    uint64_t driver_bytes; /* of process_bytes, what opening the device took; set by create */
    bool no_overflow; /* on a card: refuse a model that does not fit, instead of keeping experts in
                         pinned host memory */

    /* The machines that have the devices: device i is host_of[i]'s, and the first device's machine
     * also runs the scheduler. Budgets are then each machine's own, and ram_bytes, pinned_bytes and
     * process_bytes above are ignored, and link_bytes. n_hosts 0 = all devices are this machine's,
     * with the budgets above, or `remote`'s. Borrowed until create returns. */
    const struct sl_host_config *hosts; /* [n_hosts] */
    uint32_t n_hosts, host_of[SL_MAX_STAGES];

    enum sl_lane_use lane;
    uint32_t lane_threads; /* 0 = n_threads */
    bool lane_forced; /* for tests: it gets lane_percent of the experts in host memory, whatever
                         that costs */
    uint32_t lane_percent;

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
    const struct sl_seq_source *seq_source;       /* for tests: one more store of each layer
                                                     (seq_state.h); NULL = none; borrowed until
                                                     destroy */
    const struct sl_draft_source *draft_source; /* for tests; NULL = none; borrowed until destroy */
};

/* Loading: done of total bytes. Returning false cancels the load. May be called from any thread. */
struct sl_progress {
    bool (*report)(struct sl_progress *p, uint64_t done_bytes, uint64_t total_bytes);
};

#endif
