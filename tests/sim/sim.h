/* Virtual time: the real cache, fetch, look-ahead and reader's queues over a made-up disk and a
 * made-up device, driven over a router trace as engine/forward/forward.c drives them. Only the
 * clock, the drive (streaming/fake.h) and the device's op are made up; nothing sleeps, nothing is
 * read.
 *
 * The device computes as many bytes per second as its memory delivers: an op takes the bytes of the
 * weights that it reads over mem_bytes_per_s, sl_op_moe those of the distinct experts of the call
 * and call_ns besides. Prompt rows cost arithmetic too. Reading from the disk goes on meanwhile,
 * but new requests start only where the code under test polls. */
#ifndef SL_TESTS_SIM_SIM_H
#define SL_TESTS_SIM_SIM_H

#include "tests/replay/replay.h"

#include <stdbool.h>
#include <stdint.h>

struct sim_shape {
    const char *name;
    uint32_t n_layer, n_expert, k;
    uint32_t extent_bytes[2][3]; /* gate, up, down; every third layer is of the second kind */
    uint64_t layer_bytes;        /* dense weights of a layer before its router */
    uint64_t shared_bytes;       /* of the shared expert; 0: none */
    uint64_t output_bytes;       /* after the last layer */
};

struct sim_machine {
    const char *name;
    uint64_t disk_bytes_per_s, latency_ns;
    uint32_t drive_depth;
    uint64_t mem_bytes_per_s;
    uint64_t call_ns;   /* beside the bytes, of each sl_op_moe */
    double row_byte_ns; /* arithmetic of one prompt row with one byte of weights */
};

enum sim_ahead {
    SIM_CAUSAL,     /* no look-ahead */
    SIM_PROMPT,     /* what the engine does by itself for prompt rows */
    SIM_PREDICTION, /* and predictions of the next layer's ids, a share of them right, when it asks
                     */
    SIM_FAR, /* and predictions of several layers' ids at once, as a device that is apart makes them
              */
    SIM_LAYER,   /* and the true ids of the next layer, never of the next token: the best that
                    running routers early could do */
    SIM_PERFECT, /* and those of the next token's first layer */
};

struct sim_run {
    const struct sim_shape *shape;
    const struct sim_machine *machine;
    const struct replay_trace *trace;
    double share; /* of all experts that have a slot; 0: the least, k slots of each class */
    enum sim_ahead ahead;
    /* SIM_PREDICTION: each id is right with this probability, else any. SIM_FAR: the surest of the
     * next layer is; the others' chance to be wrong grows with their rank and with the distance */
    double right;
    enum sl_phase phase; /* which steps are measured */
};

struct sim_result {
    uint64_t n_steps;  /* measured: all layers once, for one row or more */
    double step_ns;    /* mean */
    double hit_share;  /* of touched experts' bytes: there without a read that was made for it */
    double disk_ns;    /* T_ssd of a step: needed bytes over bandwidth */
    double mem_ns;     /* T_mem: dense bytes and touched bytes that were resident */
    double dense_ns;   /* of it, what is not experts' */
    double all_mem_ns; /* the same with all touched bytes: what must be computed */
    double touched_read_ns; /* every touched expert once from disk */
    /* The least time in which anybody could run the steps who knows a layer's experts when its
     * router has spoken (SIM_CAUSAL) or one layer earlier: with the drive's latency, with computing
     * what was read, with layers that need nothing from the disk. */
    double bound_ns;
    double amplification;          /* bytes from disk over bytes that were used */
    double read_ahead, used_ahead; /* experts of a step */
    double calls;                  /* of sl_op_moe */
    double reads, syscalls;        /* experts read; system calls that the reader would make */
};

/* Wrong behaviour (an expert computed that is not there, a pair computed twice or never, a read
 * left over) ends the program with a message. */
void sim_run(const struct sim_run *run, struct sim_result *out_result);

/* Slots of each class for a share of all experts. Returns what share it came to. */
double sim_slots(const struct sim_shape *shape, double share, uint32_t out_slots[2]);

#endif
