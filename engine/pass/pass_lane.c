/* What the CPU lane (engine/lane/cpu_lane.h) needs of the layers: the rows that experts
 * read, room for their results, and biases, which the device has in its own memory. */
#include "engine/pass/pass_internal.h"

#include "engine/lane/cpu_lane.h"

#include <stdlib.h>

static const enum sl_layer_role bias_roles[SL_EXPERT_MATRICES] = {
    SL_L_EXPERTS_GATE_BIAS, SL_L_EXPERTS_UP_BIAS, SL_L_EXPERTS_DOWN_BIAS};

static uint64_t layer_bias_bytes(const struct sl_layer *layer) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < SL_EXPERT_MATRICES; i++)
        bytes += layer->t[bias_roles[i]] ? layer->t[bias_roles[i]]->size_bytes : 0;
    return layer->spec.ffn == SL_FFN_EXPERTS && !sl_lane_refuses(layer) ? bytes : 0;
}

uint64_t sl_forward_lane_bytes(const struct sl_model *model) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < model->hp.n_layer; i++)
        bytes += layer_bias_bytes(&model->layers[i]);
    return bytes;
}

static enum sl_status copy_biases(struct sl_forward *f, const struct sl_model *model,
                                  const struct sl_weights *weights, char *to) {
    for (uint32_t i = 0; i < f->hp->n_layer; i++) {
        if (!layer_bias_bytes(&model->layers[i]))
            continue;
        for (uint32_t k = 0; k < SL_EXPERT_MATRICES; k++) {
            const struct sl_gguf_tensor *t = model->layers[i].t[bias_roles[k]];
            if (!t)
                continue;
            SL_TRY(sl_device_download(f->dev, to, sl_weights_span(weights, t)));
            f->layers[i].lane_bias[k] = (const float *)(const void *)to;
            to += t->size_bytes;
        }
    }
    return sl_device_sync(f->dev);
}

enum sl_status sl_forward_lane_init(struct sl_forward *f, const struct sl_model *model,
                                    const struct sl_weights *weights, struct sl_err *err) {
    uint64_t bytes = f->plan->lane_rows ? sl_forward_lane_bytes(model) : 0;
    if (!bytes)
        return SL_OK;
    f->lane_biases = malloc(bytes);
    enum sl_status status =
        f->lane_biases ? copy_biases(f, model, weights, f->lane_biases) : SL_ERR_NOMEM;
    return status == SL_OK
               ? status
               : sl_fail(err, status, "copying %.1f MiB of experts' biases from %s: %s",
                         (double)bytes / 0x1p20, f->dev->caps.name, sl_status_text(status));
}

static bool feeds_lane(const struct sl_forward *f, uint32_t layer, const struct sl_rows *r) {
    return f->host_x && !f->lane_rests && f->layers[layer].lane && r->n_decode == r->n &&
           r->n <= f->plan->lane_rows;
}

enum sl_status sl_forward_send_rows(struct sl_forward *f, uint32_t layer, const struct sl_rows *r) {
    if (!feeds_lane(f, layer, r))
        return SL_OK;
    return sl_forward_copy_back(f, f->host_x, sl_forward_expert_rows(f, layer),
                                (size_t)r->n * f->hp->n_embd * sizeof *f->host_x);
}

void sl_forward_feed_lane(struct sl_forward *f, uint32_t layer, const struct sl_rows *r) {
    if (!feeds_lane(f, layer, r)) {
        sl_fetch_feed_lane(f->fetch, NULL);
        return;
    }
    size_t bytes = (size_t)r->n * f->layers[layer].spec->experts.n_used * f->hp->n_embd *
                   sizeof *f->host_pair_y;
    sl_fetch_feed_lane(f->fetch, &(struct sl_lane_io){
                                     .x = f->host_x,
                                     .pair_y = f->host_pair_y,
                                     .mapped_y = sl_span_at_host(f->mapped, f->host_pair_y, bytes),
                                     .device_y = sl_span_at(f->arena, f->a.pair_y, bytes),
                                     .gate_bias = f->layers[layer].lane_bias[0],
                                     .up_bias = f->layers[layer].lane_bias[1],
                                     .down_bias = f->layers[layer].lane_bias[2],
                                 });
}
