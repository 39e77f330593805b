/* The queue entries of struct sl_backend_ops for a device that executes at once in host memory:
 * every point has passed, every signal is raised, copies are done when the call returns, and
 * mapping changes nothing.
 *
 * A graph is the list of ops, run anew by each replay, and a fused form is run as the ops it stands
 * for. Neither gains anything, so caps.graphs and caps.fused_ops stay empty. A test may set them,
 * to record and fuse what otherwise runs one by one. */
#ifndef SL_BACKENDS_IMMEDIATE_H
#define SL_BACKENDS_IMMEDIATE_H

#include "backends/recorded.h"

enum sl_status sl_immediate_map_host(struct sl_device *d, struct sl_buffer *buffer);
void sl_immediate_unmap_host(struct sl_device *d, struct sl_buffer *buffer);
enum sl_status sl_immediate_copy(struct sl_device *d, enum sl_queue q, struct sl_span dst,
                                 struct sl_span src);
enum sl_status sl_immediate_mark(struct sl_device *d, enum sl_queue q, sl_point *out_point);
enum sl_status sl_immediate_passed(struct sl_device *d, enum sl_queue q, sl_point point);
enum sl_status sl_immediate_after(struct sl_device *d, enum sl_queue q, enum sl_queue other,
                                  sl_point point);
enum sl_status sl_immediate_graph_create(struct sl_device *d, const struct sl_recorded_op *ops,
                                         uint32_t n_ops, struct sl_graph **out_graph);
enum sl_status sl_immediate_replay(struct sl_device *d, struct sl_graph *graph);
void sl_immediate_graph_free(struct sl_device *d, struct sl_graph *graph);
enum sl_status sl_immediate_peer_open(struct sl_device *d, struct sl_device *other);
enum sl_status sl_immediate_copy_from(struct sl_device *d, struct sl_span dst,
                                      struct sl_device *other, struct sl_span src);
enum sl_status sl_immediate_signal_create(struct sl_device *d, struct sl_signal **out_signal);
void sl_immediate_signal_free(struct sl_device *d, struct sl_signal *signal);
enum sl_status sl_immediate_signal(struct sl_device *d, struct sl_signal *signal);
void sl_immediate_signal_release(struct sl_signal *signal);
#define SL_FUSED(name)                                                                             \
    enum sl_status sl_immediate_##name(struct sl_device *d, const struct sl_fused_##name *a);
#include "backends/fused.def"

/* Initialisers of struct sl_backend_ops. */
#define SL_IMMEDIATE_QUEUES                                                                        \
    .map_host = sl_immediate_map_host, .unmap_host = sl_immediate_unmap_host,                      \
    .copy = sl_immediate_copy, .mark = sl_immediate_mark, .passed = sl_immediate_passed,           \
    .await = sl_immediate_passed, .after = sl_immediate_after,                                     \
    .graph_create = sl_immediate_graph_create, .replay = sl_immediate_replay,                      \
    .graph_free = sl_immediate_graph_free, .peer_open = sl_immediate_peer_open,                    \
    .copy_from = sl_immediate_copy_from, .signal_create = sl_immediate_signal_create,              \
    .signal_free = sl_immediate_signal_free, .signal_raise = sl_immediate_signal,                  \
    .signal_follow = sl_immediate_signal, .signal_release = sl_immediate_signal_release

#define SL_IMMEDIATE_FUSED                                                                         \
    .fused_norm_router = sl_immediate_norm_router, .fused_norm_matmul = sl_immediate_norm_matmul,  \
    .fused_qkv = sl_immediate_qkv, .fused_moe_sum = sl_immediate_moe_sum

#endif
