#include "backends/immediate.h"

#include <stdlib.h>
#include <string.h>

enum sl_status sl_immediate_map_host(struct sl_device *d, struct sl_buffer *buffer) {
    (void)d;
    buffer->addr = buffer->host;
    return SL_OK;
}

void sl_immediate_unmap_host(struct sl_device *d, struct sl_buffer *buffer) {
    (void)d, (void)buffer;
}

enum sl_status sl_immediate_copy(struct sl_device *d, enum sl_queue q, struct sl_span dst,
                                 struct sl_span src) {
    (void)d, (void)q;
    memmove(sl_span_host(dst), sl_span_host(src), dst.bytes);
    return SL_OK;
}

enum sl_status sl_immediate_mark(struct sl_device *d, enum sl_queue q, sl_point *out_point) {
    (void)d, (void)q;
    *out_point = 0;
    return SL_OK;
}

enum sl_status sl_immediate_passed(struct sl_device *d, enum sl_queue q, sl_point point) {
    (void)d, (void)q;
    return point ? SL_ERR_INVALID : SL_OK; /* none but 0 was ever given out */
}

enum sl_status sl_immediate_after(struct sl_device *d, enum sl_queue q, enum sl_queue other,
                                  sl_point point) {
    (void)d, (void)q, (void)other;
    return point ? SL_ERR_INVALID : SL_OK;
}

/* ---- graphs ---- */

struct sl_graph {
    uint32_t n_ops;
    struct sl_recorded_op ops[];
};

enum sl_status sl_immediate_graph_create(struct sl_device *d, const struct sl_recorded_op *ops,
                                         uint32_t n_ops, struct sl_graph **out_graph) {
    (void)d;
    struct sl_graph *graph = malloc(sizeof *graph + n_ops * sizeof *ops);
    if (!graph)
        return SL_ERR_NOMEM;
    graph->n_ops = n_ops;
    memcpy(graph->ops, ops, n_ops * sizeof *ops);
    *out_graph = graph;
    return SL_OK;
}

enum sl_status sl_immediate_replay(struct sl_device *d, struct sl_graph *graph) {
    return sl_recorded_submit(d, graph->ops, graph->n_ops);
}

void sl_immediate_graph_free(struct sl_device *d, struct sl_graph *graph) {
    (void)d;
    free(graph);
}

/* ---- fused forms: what they are ---- */

enum sl_status sl_immediate_norm_router(struct sl_device *d, const struct sl_fused_norm_router *a) {
    SL_TRY(d->ops->rms_norm(d, a->norm));
    SL_TRY(d->ops->matmul(d, a->logits));
    return d->ops->router(d, a->router);
}

enum sl_status sl_immediate_norm_matmul(struct sl_device *d, const struct sl_fused_norm_matmul *a) {
    SL_TRY(d->ops->rms_norm(d, a->norm));
    return d->ops->matmul(d, a->matmul);
}

enum sl_status sl_immediate_qkv(struct sl_device *d, const struct sl_fused_qkv *a) {
    if (a->q_norm)
        SL_TRY(d->ops->rms_norm(d, a->q_norm));
    if (a->k_norm)
        SL_TRY(d->ops->rms_norm(d, a->k_norm));
    SL_TRY(d->ops->rope(d, a->q_rope));
    SL_TRY(d->ops->rope(d, a->k_rope));
    return d->ops->kv_write(d, a->write);
}

enum sl_status sl_immediate_moe_sum(struct sl_device *d, const struct sl_fused_moe_sum *a) {
    SL_TRY(d->ops->moe(d, a->moe));
    return d->ops->moe_combine(d, a->sum);
}

/* ---- other devices ---- */

enum sl_status sl_immediate_peer_open(struct sl_device *d, struct sl_device *other) {
    (void)d, (void)other;
    return SL_OK;
}

enum sl_status sl_immediate_copy_from(struct sl_device *d, struct sl_span dst,
                                      struct sl_device *other, struct sl_span src) {
    (void)d, (void)other;
    memmove(sl_span_host(dst), sl_span_host(src), dst.bytes);
    return SL_OK;
}

/* What a raise stands for has happened when the call returns; the one who follows knows of it. */
struct sl_signal {
    char unused;
};

enum sl_status sl_immediate_signal_create(struct sl_device *d, struct sl_signal **out_signal) {
    (void)d;
    *out_signal = calloc(1, sizeof **out_signal);
    return *out_signal ? SL_OK : SL_ERR_NOMEM;
}

void sl_immediate_signal_free(struct sl_device *d, struct sl_signal *signal) {
    (void)d;
    free(signal);
}

enum sl_status sl_immediate_signal(struct sl_device *d, struct sl_signal *signal) {
    (void)d, (void)signal;
    return SL_OK;
}

void sl_immediate_signal_release(struct sl_signal *signal) {
    (void)signal;
}
