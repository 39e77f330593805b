#include "backends/immediate.h"

#include <stdlib.h>
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

enum sl_status sl_immediate_peer_open(struct sl_device *d, struct sl_device *other) {
    (void)d, (void)other;
    return SL_OK;
}

enum sl_status sl_immediate_copy_from(struct sl_device *d, void *dst, struct sl_device *other,
                                      const void *src, size_t bytes) {
    (void)d, (void)other;
    memmove(dst, src, bytes);
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

void sl_immediate_graph_free(struct sl_device *d, struct sl_graph *graph) {
    (void)d, (void)graph;
}
