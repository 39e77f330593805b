/* The plan as plain data. Every part of the engine reads its sizes here. It is made by
 * engine/plan/memory_plan.h, and for several devices by engine/plan/stage_plan.h. */
#ifndef SL_ENGINE_TYPES_PLAN_H
#define SL_ENGINE_TYPES_PLAN_H

#include "backends/backend.h"
#include "engine/types/config.h"
#include "model/arch/model.h"
#include "streaming/slab.h"

#define SL_PLAN_MAX_ROWS 160u

/* The device that computes a run of layers, and how much of its memory that takes. */
struct sl_plan_stage {
    char device[SL_DEVICE_NAME_BYTES], id[SL_DEVICE_ID_BYTES], model[SL_DEVICE_NAME_BYTES];
    bool discrete; /* the device has memory of its own */
    uint32_t host; /* which of the plan's hosts has the device */
    uint32_t first_layer, n_layer;
    bool streaming;
    bool lane; /* the host's CPU computes experts alongside it */
    uint32_t n_device_slots, n_slots, n_experts;
    /* As in struct sl_memory_plan; classes are those of the stage's slice. */
    uint32_t class_slots[SL_SLAB_CLASSES], device_class_slots[SL_SLAB_CLASSES];
    uint64_t vram_total_bytes, vram_budget_bytes, vram_least_bytes; /* 0 unless it is discrete */
    uint64_t ram_bytes;                                             /* of the host, for it */
    /* Of a discrete device: bandwidth of its own memory, and of its link to host memory; 0 = not
     * known. The plan leaves them 0; whoever measures them sets them. */
    double memory_bytes_per_s, link_bytes_per_s;
};

/* A machine: memory and a disk of its own, and the stages on its devices. No byte of one machine's
 * memory is ever counted for another one's stages. */
struct sl_plan_host {
    char name[SL_HOST_NAME_BYTES]; /* "" where there is one */
    uint32_t n_stages;
    uint64_t ram_budget_bytes, pinned_budget_bytes; /* UINT64_MAX = no bound */
    uint64_t ram_total_bytes, pinned_total_bytes;   /* what its stages and its process take */
    uint64_t ram_least_bytes;                       /* the least sufficient budget, in whole MiB */
    double ram_bytes_per_s, disk_bytes_per_s; /* 0 = not known; the disk's: of the model's files */
};

/* Scoring needs the logits of every position. They are read for this many rows at a time, however
 * few sessions there are. */
#define SL_SCORE_ROWS 16u

struct sl_memory_plan {
    /* The configuration with defaults filled in for every 0. */
    struct sl_engine_config config;
    struct sl_device_limits limits;
    /* One of n_stages devices that the layers are divided over, or all of them (stage_plan.h).
     * What the process has once is in the plan of stage 0 alone, what the process of each further
     * host has in that of the host's first stage. */
    uint32_t stage, n_stages;
    uint32_t host;      /* of the one stage */
    bool first_on_host; /* it includes what the process on that machine has once */
    bool relays;        /* its device may relay other stages' copies of experts */
    bool remote;        /* another machine speaks to the stage by messages */
    uint32_t n_threads; /* that compute */
    /* Steps that may be under way at once: one for each stage, and one between machines. */
    uint32_t n_micro_batches;
    uint32_t n_logit_rows;  /* rows of one step that may ask for logits; 0 in
                               a slice that gives none */
    uint32_t session_pages; /* KV pages of one session at ctx_tokens */
    uint32_t n_pages;       /* in the pool: parallel * session_pages + cache_pages */
    uint32_t cache_pages;   /* more than sessions can ever hold at once */
    uint32_t ram_pages;     /* copies in the host's memory, where the device is discrete */
    uint64_t page_bytes;    /* of one page: of all layers, on all devices together */
    /* Stores that keep the tail of a sequence alone (engine/seq/seq_state.h). */
    uint32_t n_tails;         /* tail pages in their pool; 0: every store keeps all pages */
    uint32_t tail_pages;      /* that are needed before a page end to go on from it; or 0 */
    uint64_t tail_page_bytes; /* as page_bytes; or 0 */
    bool tail_gaps;           /* sl_seq_shape.tail_gaps: sessions leave pages out */
    uint32_t draft_tails;     /* of n_tails, those of each session for the states behind its drafts
                                 (engine/schedule/drafts.c) */

    bool reads_back;     /* the host cannot follow device addresses */
    bool discrete;       /* weights, KV and activations are in a device's own memory */
    bool pages_discrete; /* some stage's KV is: pages that it gives up are copied to the host's */
    bool loads_by_copy;  /* some stage's weights pass through buffers */
    bool streaming;      /* routed experts pass through slots */
    /* The host's CPU computes experts alongside the device, in steps of so many generated rows at
     * most; 0: it does not, and why, where it might have. */
    uint32_t lane_rows, lane_threads;
    const char *lane_why_not;              /* static; NULL: there is nothing to say */
    uint64_t lane_bytes;                   /* of host_bytes: scratch */
    uint32_t n_class;                      /* size classes of experts; 0 in a dense model */
    uint32_t class_slots[SL_SLAB_CLASSES]; /* slots of each in host memory; 0 where all experts are
                                              resident */
    uint32_t n_slots, n_experts;           /* in all classes, all layers */
    /* The same in the memory of a discrete device. */
    uint32_t device_class_slots[SL_SLAB_CLASSES], n_device_slots;

    /* Tables that steps read by row: bits of enum sl_table_id of those that are streamed, the bytes
     * of all that are large, the host memory that streaming takes, the part of it that is cache,
     * and how many rows of each table that keeps. */
    uint32_t streamed_tables;
    uint64_t large_table_bytes, streamed_table_bytes;
    uint64_t table_bytes, table_cache_bytes;
    uint32_t table_rows;
    uint32_t n_before;      /* tokens before each row's that steps say; 0: no layer wants them */
    const char *tables_why; /* static: why they are where they are; NULL: there are none */

    uint64_t weight_bytes; /* resident from the start: dense, and routed when not streaming; with
                              the gaps between them in the file */
    uint64_t expert_bytes; /* all routed experts, wherever they are */
    uint64_t slot_bytes;   /* all slots */
    uint64_t stream_bytes; /* tables of slots, the reader's queue */
    uint64_t device_slot_bytes; /* all slots of the device */
    uint64_t pinned_bytes;      /* of the host, for a device to read and write: logits and ids */
    uint64_t load_bytes;        /* buffers that weights pass through on their way to a device */
    uint64_t process_bytes;     /* the caller's */
    uint64_t link_bytes;        /* connections to other machines, and messages on them */
    uint64_t session_bytes;     /* histories of all requests that may be in at once */
    uint64_t thread_bytes;      /* stacks */
    uint64_t kernel_bytes;      /* page tables and alike: no part of RSS, but of a memory cgroup */
    uint64_t slack_bytes;       /* rounding to huge pages, the allocator's gaps */
    /* Of total_bytes, what is pinned for devices; what it must fit, and the least that would do. */
    uint64_t pinned_total_bytes, pinned_budget_bytes, pinned_least_bytes;
    uint64_t budget_bytes;     /* that all of it must fit; of several hosts, all of them together */
    uint64_t least_bytes;      /* a budget that would do, whole MiB: the smallest, and a little for
                                  what the process holds to vary in */
    uint64_t needed_bytes;     /* the smallest itself */
    uint64_t kv_bytes;         /* all pages of all layers, tail pages too */
    uint64_t activation_bytes; /* the layer loop's buffers, logits included */
    uint64_t scratch_bytes;    /* the backend's own, what opening the device took with it */
    uint64_t prefix_ram_bytes; /* of host_bytes: ram_pages with their list */
    uint64_t prefix_disk_bytes; /* of host_bytes: for prefixes kept on disk */
    uint64_t host_bytes;        /* step arrays, sampler */
    uint64_t total_bytes;       /* of the host */
    /* The device's own memory: what is taken, the budget, and one that would do (0 = unknown). */
    uint64_t vram_total_bytes, vram_budget_bytes, vram_least_bytes;

    uint32_t n_hosts;
    struct sl_plan_host hosts[SL_MAX_STAGES]; /* [n_hosts] */
    bool split_by_heat; /* the layers are divided by the heat of earlier runs, too */
    struct sl_plan_stage stages[SL_MAX_STAGES]; /* [n_stages]; of one stage's plan its own is set */
    uint32_t n_rows;
    /* They sum to total_bytes, those of kind DEVICE to vram_total_bytes. */
    struct sl_plan_row rows[SL_PLAN_MAX_ROWS];
};

/* CPUs that computing the stage takes. */
static inline uint32_t sl_plan_busy_cpus(const struct sl_memory_plan *p) {
    return !p->discrete ? p->n_threads : p->streaming && p->lane_rows ? p->lane_threads : 0;
}

/* Of a page in the host's memory or on disk, with the tail page of the same positions. */
static inline uint64_t sl_plan_copy_bytes(const struct sl_memory_plan *p) {
    return p->page_bytes + p->tail_page_bytes;
}

struct sl_stage_plan {
    struct sl_model model; /* a slice; the whole model where there is one stage */
    struct sl_device *dev; /* whoever takes it sets NULL here */
    uint32_t host;         /* which of the plans' hosts has it */
    struct sl_memory_plan plan;
};

struct sl_stage_plans {
    uint32_t n, n_local; /* the stages behind the first n_local are other machines' */
    struct sl_host_config *host_configs; /* [n_hosts] heap; NULL: the caller's, or there is one */
    struct sl_stage_plan *at;            /* [n] heap, in the order of layers; does not move */
    uint32_t n_hosts;
    struct sl_plan_host hosts[SL_MAX_STAGES]; /* [n_hosts] */
    /* All of them as one: sums of bytes, slots and experts, the rows of every stage. With one stage
     * that stage's plan. */
    struct sl_memory_plan whole;
};

#endif
