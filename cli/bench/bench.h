/* Internals of sluice bench: measuring (bench_run.c), ceilings (bench_limits.c), and output
 * (bench_report.c). */
#ifndef SL_CLI_BENCH_H
#define SL_CLI_BENCH_H

#include "cli/measure/device_bandwidth.h"
#include "cli/options/open_engine.h"

#define SL_BENCH_MAX_REPS     100u
#define SL_BENCH_MAX_PARALLEL 8u /* entries of --parallel */

struct sl_bench_options {
    const char *model, *parallel, *format, *cpu_isa, *record_routes, *trace;
    uint32_t n_prompt, n_gen, depth, reps, threads, batch;
    float resident_prefill; /* tokens/s of the prompt with all experts resident; 0 = not known */
    bool json, no_warmup, own_answers;
};

/* What the process counted over some runs (common/metrics.h). */
struct sl_bench_counts {
    uint64_t steps, step_ns;
    uint64_t experts, expert_bytes;         /* computed, each once a layer and step */
    uint64_t hits, host_hits, late, misses; /* hits: where the device computes */
    uint64_t promotions, demotions;         /* between the tiers of a discrete device */
    uint64_t early, early_used;             /* copied to it before their layer asked */
    uint64_t link_up_bytes, link_down_bytes, link_read_bytes;
    uint64_t lane_experts, lane_bytes, lane_ns; /* computed by the CPU alongside a device */
    uint64_t drafts, drafts_accepted, draft_ns; /* tokens; time in the layer that drafts them */
    uint64_t missed_bytes;                      /* of late and misses */
    uint64_t prefetch_used;                     /* of hits: prefetched */
    uint64_t evictions;
    uint64_t stall_demand_ns, stall_late_ns, stall_slot_ns;
    uint64_t disk_reads, disk_read_bytes, disk_needed_bytes, disk_requests, disk_syscalls;
    uint64_t disk_busy_ns, disk_flight_ns;
};

/* The disk's rate, bytes/s, before, between and after the runs of a test: others may use it too.
 * Not before the first run if slots are still empty then. */
struct sl_bench_disk {
    uint32_t n; /* 0: not measured */
    double sum, least, most;
};

/* One line of the table. */
struct sl_bench_test {
    char name[32];
    uint32_t n_prompt, n_gen, depth, parallel; /* depth: tokens before those that are generated */
    double rate[SL_BENCH_MAX_REPS];            /* tokens/s, all sequences together */
    uint32_t n_reps;
    struct sl_bench_counts counts; /* of all measured runs */
    struct sl_bench_disk disk;
    double mean, sd;
};

/* Tokens that the counts are of. */
static inline uint64_t sl_bench_tokens(const struct sl_bench_test *t) {
    uint32_t n = t->n_gen ? t->n_gen + !t->depth : t->n_prompt;
    return (uint64_t)t->n_reps * t->parallel * n;
}

struct sl_bench {
    const struct sl_bench_options *o;
    struct sl_engine *engine;
    const struct sl_model *model;
    struct sl_engine_info info;
    uint32_t n_threads;
    bool own_answers;                  /* what the model chooses is generated, not random tokens */
    uint64_t dense_bytes;              /* weights that every token reads */
    double ram_rate;                   /* bytes/s */
    struct sl_device_bandwidth device; /* of a discrete device */
    struct sl_err device_why;          /* ... why it is not known */
    struct sl_err disk_why;            /* why the disk could not be measured last time */
    uint64_t budget_bytes;             /* of host memory: --ram, or what was free */
    uint64_t rss_bytes;                /* the peak resident memory while the tests ran */
    struct sl_bench_test tests[1 + SL_BENCH_MAX_PARALLEL];
    uint32_t n_tests;
};

/* bench_run.c: false after an error message. */
bool sl_bench_run(struct sl_bench *b, struct sl_bench_test *t);

/* bench_limits.c */
/* Measures the rate at which the idle engine reads experts into its slots. If it cannot, leaves
 * disk unchanged and says why. */
void sl_bench_disk_rate(struct sl_bench *b, struct sl_bench_disk *disk);
/* The best that the measured bandwidths allow for the bytes that a test's runs used. 0 = unknown.
 * Decode: causal, a read can start only when the router has chosen: 1 / (T_mem + max(T_link,
 * T_disk)); overlap, perfect look-ahead: 1 / max(T_mem, T_link, T_disk). The link carries what was
 * not on a discrete device. Prompt: reading what was missing, once a chunk, against computing it
 * with all experts resident, if that is known. */
struct sl_bench_limits {
    double mem_s, link_s, disk_s;     /* of one step; a prompt test: of one prompt */
    double compute_s;                 /* of one prompt, all experts resident; 0 = not known */
    double causal_rate, overlap_rate; /* tokens/s; for a prompt test both are equal */
    double step_bytes;                /* weights read from memory in a step, or for a prompt */
    double disk_bytes;                /* of experts that were on disk when it began */
    double link_bytes;                /* of experts that were not on the device when it began */
    double touched_s;                 /* prompt: reading all experts it uses, present or not */
};
void sl_bench_limits(const struct sl_bench *b, const struct sl_bench_test *t,
                     struct sl_bench_limits *out);

/* bench_report.c */
void sl_bench_print(const struct sl_bench *b);
/* Exit status. */
int sl_bench_print_json(const struct sl_bench *b);

#endif
