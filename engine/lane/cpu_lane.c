#include "engine/lane/cpu_lane.h"

#include "backends/registry/registry.h"
#include "common/clock.h"
#include "common/cpus.h"
#include "common/metrics.h"

#include <stdlib.h>

/* How long its threads stay awake without work: until the next layer that needs them, which may be
 * the next step's. Waking them takes longer than a layer: on a virtual machine of 16 CPUs two
 * milliseconds were seen. */
#define AWAKE_NS 10000000u
/* With at least this many threads, one makes the device's calls instead of computing; with fewer it
 * would be missed. */
#define MANY_THREADS 6u

const char *sl_lane_refuses(const struct sl_layer *layer) {
    if (layer->spec.experts.n_latent)
        return "experts read rows of another width than the layer's";
    for (uint32_t i = 0; i < SL_EXPERT_MATRICES; i++)
        if (sl_dtype_info(sl_layer_expert_matrix(layer, i).t->dtype)->block_elems == 1)
            return "products of float weights have other bits on the device";
    return NULL;
}

struct sl_device_limits sl_lane_limits(const struct sl_device_limits *of_device, uint32_t k) {
    return (struct sl_device_limits){.max_tok = SL_LANE_ROWS,
                                     .max_n_in = of_device->max_n_embd > of_device->max_n_ff
                                                     ? of_device->max_n_embd
                                                     : of_device->max_n_ff,
                                     .max_pairs = SL_LANE_ROWS * k,
                                     .max_n_embd = of_device->max_n_embd,
                                     .max_n_ff = of_device->max_n_ff,
                                     .max_expert = of_device->max_expert};
}

uint64_t sl_lane_bytes(const struct sl_device_limits *limits, uint32_t n_threads) {
    struct sl_device *planned;
    struct sl_err err;
    if (sl_backend_of_host()->planned(&(struct sl_device_offer){.n_threads = n_threads}, 0,
                                      &planned, &err) != SL_OK)
        return 0;
    uint64_t bytes = sl_device_scratch_bytes(planned, limits) +
                     limits->max_expert * sizeof(struct sl_expert_ref) +
                     limits->max_pairs * sizeof(uint32_t);
    sl_device_close(&planned);
    return bytes;
}

enum sl_status sl_lane_create(const struct sl_lane_config *config, struct sl_lane **out_lane,
                              struct sl_err *err) {
    *out_lane = NULL;
    struct sl_lane *lane = calloc(1, sizeof *lane);
    if (!lane)
        return sl_fail(err, SL_ERR_NOMEM, "no memory for the CPU lane");
    enum sl_status status = sl_backend_of_host()->open(
        &(struct sl_device_options){
            .n_threads = config->n_threads, .cpu_isa = config->isa, .awake_ns = AWAKE_NS},
        0, &lane->cpu, err);
    if (status == SL_OK)
        status = sl_device_configure(lane->cpu, &config->limits, err);
    lane->n_threads = config->n_threads ? config->n_threads : sl_cpus_allowed();
    lane->refs = calloc(config->limits.max_expert, sizeof *lane->refs);
    lane->pairs = calloc(config->limits.max_pairs, sizeof *lane->pairs);
    if (status == SL_OK && (!lane->refs || !lane->pairs))
        status = sl_fail(err, SL_ERR_NOMEM, "no memory for the CPU lane");
    if (status != SL_OK) {
        sl_lane_destroy(&lane);
        return status;
    }
    sl_lane_split_init(&lane->split, config->link_bytes_per_s, 0);
    sl_lane_trial_init(&lane->trial);
    lane->always = config->always || config->forced;
    if (config->forced)
        sl_lane_split_force(&lane->split, config->percent);
    *out_lane = lane;
    return SL_OK;
}

void sl_lane_destroy(struct sl_lane **lane) {
    if (!*lane)
        return;
    if ((*lane)->cpu)
        sl_device_close(&(*lane)->cpu);
    free((*lane)->refs);
    free((*lane)->pairs);
    free(*lane);
    *lane = NULL;
}

static enum sl_status send_up(const struct sl_lane *lane, struct sl_device *dev,
                              const struct sl_op_moe *op) {
    for (uint32_t i = 0, n; i < op->n_pairs; i += n) {
        n = op->n_pairs - i < SL_COPY_ROWS_MAX ? op->n_pairs - i : SL_COPY_ROWS_MAX;
        SL_TRY(sl_device_copy_rows(dev, lane->io.device_y, lane->io.mapped_y,
                                   op->n_embd * sizeof(float), op->pairs + i, n));
    }
    return SL_OK;
}

/* What the caller does while the lane's threads compute. */
struct meanwhile {
    const struct sl_lane_overlap *overlap;
    enum sl_status status;
};

static void run_overlap(void *ctx) {
    struct meanwhile *m = ctx;
    m->status = m->overlap->run(m->overlap->ctx);
}

enum sl_status sl_lane_run(struct sl_lane *lane, struct sl_device *dev, const struct sl_op_moe *op,
                           uint32_t n_experts, uint64_t bytes,
                           const struct sl_lane_overlap *overlap) {
    struct sl_op_moe own = *op;
    struct meanwhile m = {.overlap = overlap};
    own.x = lane->io.x;
    own.pair_y = lane->io.pair_y;
    own.gate_bias = lane->io.gate_bias;
    own.up_bias = lane->io.up_bias;
    own.down_bias = lane->io.down_bias;
    if (lane->n_threads >= MANY_THREADS) {
        own.overlap = run_overlap;
        own.overlap_ctx = &m;
    } else {
        run_overlap(&m);
        SL_TRY(m.status);
    }
    uint64_t start = sl_now_ns(), end = 0;
    own.out_end_ns = &end;
    SL_TRY(sl_op_moe(lane->cpu, &own));
    uint64_t ns = (end ? end : sl_now_ns()) - start;
    SL_TRY(m.status);
    sl_lane_split_computed(&lane->split, bytes, ns);
    lane->n_experts += n_experts;
    lane->n_pairs += op->n_pairs;
    lane->bytes += bytes;
    lane->ns += ns;
    sl_count(lane_experts_total, n_experts);
    sl_count(lane_bytes_total, bytes);
    sl_count(lane_ns_total, ns);
    return send_up(lane, dev, op);
}

bool sl_lane_begin(struct sl_lane *lane, uint32_t n_rows) {
    if (!lane->always && !sl_lane_trial_on(&lane->trial, n_rows))
        return false;
    lane->saved_ns = lane->split.saved_ns;
    if (lane->trial.rows[n_rows - 1].fresh)
        sl_device_wake(lane->cpu);
    return true;
}

void sl_lane_stepped(struct sl_lane *lane, uint32_t n_rows, uint64_t ns) {
    sl_lane_trial_took(&lane->trial, n_rows, (double)ns, lane->split.saved_ns - lane->saved_ns);
}
