#include "backends/immediate.h"

#include <string.h>

enum sl_status sl_immediate_map_host(struct sl_device *d, void *host, size_t bytes,
                                     void **out_addr) {
    (void)d, (void)bytes;
    *out_addr = host;
    return SL_OK;
}

void sl_immediate_unmap_host(struct sl_device *d, void *host, size_t bytes) {
    (void)d, (void)host, (void)bytes;
}

enum sl_status sl_immediate_copy(struct sl_device *d, enum sl_queue q, void *dst, const void *src,
                                 size_t bytes) {
    (void)d, (void)q;
    memmove(dst, src, bytes);
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

enum sl_status sl_immediate_record(struct sl_device *d) {
    (void)d;
    return SL_ERR_UNSUPPORTED;
}

enum sl_status sl_immediate_recorded(struct sl_device *d, struct sl_graph **out_graph) {
    (void)d, (void)out_graph;
    return SL_ERR_UNSUPPORTED;
}

enum sl_status sl_immediate_replay(struct sl_device *d, struct sl_graph *graph) {
    (void)d, (void)graph;
    return SL_ERR_UNSUPPORTED;
}

void sl_immediate_graph_free(struct sl_device *d, struct sl_graph *graph) {
    (void)d, (void)graph;
}
