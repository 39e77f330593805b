/* The queue entries of struct sl_backend_ops for a device that executes at once in the host's
 * memory: every point has passed, copies are done when the call returns, mapping changes nothing.
 * There are no graphs: caps.graphs stays false. */
#ifndef SL_BACKENDS_IMMEDIATE_H
#define SL_BACKENDS_IMMEDIATE_H

#include "backends/backend.h"

enum sl_status sl_immediate_map_host(struct sl_device *d, void *host, size_t bytes,
                                     void **out_addr);
void sl_immediate_unmap_host(struct sl_device *d, void *host, size_t bytes);
enum sl_status sl_immediate_copy(struct sl_device *d, enum sl_queue q, void *dst, const void *src,
                                 size_t bytes);
enum sl_status sl_immediate_mark(struct sl_device *d, enum sl_queue q, sl_point *out_point);
enum sl_status sl_immediate_passed(struct sl_device *d, enum sl_queue q, sl_point point);
enum sl_status sl_immediate_after(struct sl_device *d, enum sl_queue q, enum sl_queue other,
                                  sl_point point);
enum sl_status sl_immediate_record(struct sl_device *d);
enum sl_status sl_immediate_recorded(struct sl_device *d, struct sl_graph **out_graph);
enum sl_status sl_immediate_replay(struct sl_device *d, struct sl_graph *graph);
void sl_immediate_graph_free(struct sl_device *d, struct sl_graph *graph);

/* Initialisers of struct sl_backend_ops. */
#define SL_IMMEDIATE_QUEUES                                                                        \
    .map_host = sl_immediate_map_host, .unmap_host = sl_immediate_unmap_host,                      \
    .copy = sl_immediate_copy, .mark = sl_immediate_mark, .passed = sl_immediate_passed,           \
    .await = sl_immediate_passed, .after = sl_immediate_after, .record = sl_immediate_record,      \
    .recorded = sl_immediate_recorded, .replay = sl_immediate_replay,                              \
    .graph_free = sl_immediate_graph_free

#endif
