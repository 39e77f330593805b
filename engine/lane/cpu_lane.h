/* The CPU lane: while a discrete device computes a layer's experts, the host's CPU computes some of
 * those that are in host memory, from their slots, instead of copying them to the device.
 *
 *     device   hits ........... copied experts ....  sum in router order
 *     link          copies up ..........            ^
 *     host     experts of the lane ......... rows up |
 *
 * The rows that the experts read come down with what the router chose, the results of pairs go up
 * when they are there; both pass through memory that is pinned for the device. How many experts the
 * lane takes is decided layer by layer (lane_split.h). It does not show in the answer: the lane
 * takes only what gives the same bits on the device (caps.moe_as_host), and experts are summed in
 * router order. Generated rows only.
 *
 * Its threads stay awake between layers that need them, for 10 ms at most. Which steps those are is
 * tried now and then (lane_trial.h): in the others the device does all as if there were no lane.
 *
 * Part of the tier (expert_tiers.h); used by its thread. Nothing is allocated after create. */
#ifndef SL_ENGINE_CPU_LANE_H
#define SL_ENGINE_CPU_LANE_H

#include "backends/backend.h"
#include "backends/ops/moe.h"
#include "engine/lane/lane_split.h"
#include "engine/lane/lane_trial.h"
#include "model/arch/model.h"

/* Generated rows of a step at most for which the lane works. */
#define SL_LANE_ROWS SL_LANE_TRIAL_ROWS

struct sl_lane_config {
    uint32_t n_threads; /* of the host's CPU, the caller included; 0 = all */
    const char *isa;    /* struct sl_engine_config's cpu_isa */
    struct sl_device_limits limits;
    double link_bytes_per_s; /* until it is measured; 0 = a usual one */
    bool always;             /* in every step: it is not tried whether steps are faster without */
    bool forced;
    uint32_t percent; /* forced: of the experts that are in host memory */
};

/* What a layer's rows and results pass through: set for one layer. */
struct sl_lane_io {
    const float *x;          /* [rows, n_embd] host memory: the experts' input, there when the
                                router's choice is */
    float *pair_y;           /* [rows * k, n_embd] host memory */
    struct sl_span mapped_y; /* the same, as the device knows it */
    struct sl_span device_y; /* where the device wants them */
    const float *gate_bias, *up_bias, *down_bias; /* as in struct sl_op_moe, in host memory */
};

struct sl_lane {
    struct sl_device *cpu;
    struct sl_lane_split split;
    struct sl_lane_trial trial;
    bool always;
    uint32_t n_threads;
    double saved_ns; /* split.saved_ns when the step began */
    bool fed;        /* for the layer that runs */
    struct sl_lane_io io;
    /* What a call of its own reads while the device's calls are made. */
    struct sl_expert_ref *refs;             /* [max_expert] */
    uint32_t *pairs;                        /* [max_pairs] */
    uint64_t n_experts, n_pairs, bytes, ns; /* computed so far */
};

/* NULL: the layer's experts can be the lane's, if the device computes as the host does. Else why
 * not. */
const char *sl_lane_refuses(const struct sl_layer *layer);
/* The largest calls of a lane on a device with these. */
struct sl_device_limits sl_lane_limits(const struct sl_device_limits *of_device, uint32_t k);
/* What create allocates, for the plan. */
uint64_t sl_lane_bytes(const struct sl_device_limits *limits, uint32_t n_threads);

enum sl_status sl_lane_create(const struct sl_lane_config *config, struct sl_lane **out_lane,
                              struct sl_err *err) SL_MUST_CHECK;
/* NULL is fine. */
void sl_lane_destroy(struct sl_lane **lane);

/* What the caller does meanwhile. */
struct sl_lane_overlap {
    enum sl_status (*run)(void *ctx);
    void *ctx;
};

/* Computes the pairs of op, whose refs and pairs are the lane's and whose ids are the host's, and
 * runs `overlap` meanwhile or, with few threads, before; then enqueues, on the device's OPS, copies
 * of the results to where it wants them. */
enum sl_status sl_lane_run(struct sl_lane *lane, struct sl_device *dev, const struct sl_op_moe *op,
                           uint32_t n_experts, uint64_t bytes,
                           const struct sl_lane_overlap *overlap) SL_MUST_CHECK;

/* For the step of so many generated rows that begins: does the lane take part? If so, its threads
 * wake. */
bool sl_lane_begin(struct sl_lane *lane, uint32_t n_rows);
/* It has run, with all rows, in so long. */
void sl_lane_stepped(struct sl_lane *lane, uint32_t n_rows, uint64_t ns);

#endif
