#include "engine/experts/host_lane.h"

#include "backends/registry.h"
#include "common/clock.h"
#include "common/metrics.h"

#include <stdlib.h>

const char *sl_host_lane_refuses(const struct sl_layer *layer) {
    if (layer->spec.experts.n_latent)
        return "experts read rows of another width than the layer's";
    for (uint32_t i = 0; i < SL_EXPERT_MATRICES; i++)
        if (sl_dtype_info(sl_layer_expert_matrix(layer, i).t->dtype)->block_elems == 1)
            return "products of float weights have other bits on the device";
    return NULL;
}

struct sl_device_limits sl_host_lane_limits(const struct sl_device_limits *of_device, uint32_t k) {
    return (struct sl_device_limits){.max_tok = SL_LANE_ROWS,
                                     .max_n_in = of_device->max_n_embd > of_device->max_n_ff
                                                     ? of_device->max_n_embd
                                                     : of_device->max_n_ff,
                                     .max_pairs = SL_LANE_ROWS * k,
                                     .max_n_embd = of_device->max_n_embd,
                                     .max_n_ff = of_device->max_n_ff,
                                     .max_expert = of_device->max_expert};
}

uint64_t sl_host_lane_bytes(const struct sl_device_limits *limits, uint32_t n_threads) {
    struct sl_device *planned;
    struct sl_err err;
    if (sl_backend_of_host()->planned(&(struct sl_device_offer){.n_threads = n_threads}, 0,
                                      &planned, &err) != SL_OK)
        return 0;
    uint64_t bytes = sl_device_scratch_bytes(planned, limits);
    sl_device_close(&planned);
    return bytes;
}

enum sl_status sl_host_lane_create(const struct sl_host_lane_config *config,
                                   struct sl_host_lane **out_lane, struct sl_err *err) {
    *out_lane = NULL;
    struct sl_host_lane *lane = calloc(1, sizeof *lane);
    if (!lane)
        return sl_fail(err, SL_ERR_NOMEM, "no memory for the CPU lane");
    enum sl_status st = sl_backend_of_host()->open(
        &(struct sl_device_options){.n_threads = config->n_threads, .cpu_isa = config->isa}, 0,
        &lane->cpu, err);
    if (st == SL_OK)
        st = sl_device_configure(lane->cpu, &config->limits, err);
    if (st != SL_OK) {
        sl_host_lane_destroy(&lane);
        return st;
    }
    sl_lane_split_init(&lane->split, config->link_bytes_per_s, 0);
    if (config->forced)
        sl_lane_split_force(&lane->split, config->percent);
    *out_lane = lane;
    return SL_OK;
}

void sl_host_lane_destroy(struct sl_host_lane **lane) {
    if (!*lane)
        return;
    if ((*lane)->cpu)
        sl_device_close(&(*lane)->cpu);
    free(*lane);
    *lane = NULL;
}

/* Pairs that follow one another go up together. */
static enum sl_status send_up(const struct sl_host_lane *lane, struct sl_device *dev,
                              const struct sl_op_moe *op) {
    size_t row = op->n_embd * sizeof(float);
    for (uint32_t i = 0, n; i < op->n_pairs; i += n) {
        uint32_t first = op->pairs ? op->pairs[i] : i;
        for (n = 1; i + n < op->n_pairs && (op->pairs ? op->pairs[i + n] : i + n) == first + n;)
            n++;
        SL_TRY(sl_device_copy(dev, SL_QUEUE_OPS,
                              sl_span_part(lane->io.device_y, first * row, n * row),
                              sl_span_part(lane->io.mapped_y, first * row, n * row)));
    }
    return SL_OK;
}

enum sl_status sl_host_lane_run(struct sl_host_lane *lane, struct sl_device *dev,
                                const struct sl_op_moe *op, uint32_t n_experts, uint64_t bytes) {
    struct sl_op_moe own = *op;
    own.x = lane->io.x;
    own.pair_y = lane->io.pair_y;
    own.gate_bias = lane->io.gate_bias;
    own.up_bias = lane->io.up_bias;
    own.down_bias = lane->io.down_bias;
    uint64_t start = sl_now_ns();
    SL_TRY(sl_op_moe(lane->cpu, &own));
    uint64_t ns = sl_now_ns() - start;
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
