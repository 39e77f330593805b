/* What a backend implements: the table behind the calls of backend.h, whose front end has checked
 * the arguments. */
#ifndef SL_BACKENDS_BACKEND_TABLE_H
#define SL_BACKENDS_BACKEND_TABLE_H

#include "backends/backend.h"

/* recorded.h */
struct sl_recorded_op;
#define SL_FUSED(name) struct sl_fused_##name;
#include "backends/fused.def"

/* Every entry is required unless its comment says what NULL means;
 * backends/immediate.h has those of a device that executes at once. The device struct is the
 * backend's own with struct sl_device first. */
struct sl_backend_ops {
    const char *name;
    void (*close)(struct sl_device *d);
    enum sl_status (*configure)(struct sl_device *d, const struct sl_device_limits *limits);
    /* Bytes that configure() will take for these limits. */
    uint64_t (*scratch_bytes)(const struct sl_device *d, const struct sl_device_limits *limits);
    /* Fills in addr, and host where the host can reach it; the rest is set, and no larger than
     * caps.max_alloc_bytes. free: what a buffer stands for, not the struct, which is the front's.
     * Spans lie within their buffers and are not empty. */
    enum sl_status (*alloc)(struct sl_device *d, struct sl_buffer *buffer);
    void (*free)(struct sl_device *d, struct sl_buffer *buffer);
    enum sl_status (*upload)(struct sl_device *d, struct sl_span dst, const void *src_host);
    enum sl_status (*download)(struct sl_device *d, void *dst_host, struct sl_span src);
    enum sl_status (*sync)(struct sl_device *d);
    /* NULL: nothing of it sleeps. */
    void (*wake)(struct sl_device *d);
    enum sl_status (*memory)(struct sl_device *d, uint64_t *out_free, uint64_t *out_total);

    /* Fills in addr; host is set. */
    enum sl_status (*map_host)(struct sl_device *d, struct sl_buffer *buffer);
    void (*unmap_host)(struct sl_device *d, struct sl_buffer *buffer);
    /* Both of one length, and one of them at least of kind DEVICE. */
    enum sl_status (*copy)(struct sl_device *d, enum sl_queue q, struct sl_span dst,
                           struct sl_span src);
    /* Rows within their spans. NULL, or SL_ERR_UNSUPPORTED for these arguments: one copy for each
     * run of rows. */
    enum sl_status (*copy_rows)(struct sl_device *d, struct sl_span dst, struct sl_span src,
                                size_t row_bytes, const uint32_t *rows, uint32_t n);
    enum sl_status (*mark)(struct sl_device *d, enum sl_queue q, sl_point *out_point);
    enum sl_status (*passed)(struct sl_device *d, enum sl_queue q, sl_point point);
    enum sl_status (*await)(struct sl_device *d, enum sl_queue q, sl_point point);
    enum sl_status (*after)(struct sl_device *d, enum sl_queue q, enum sl_queue other,
                            sl_point point);
    /* Of a device without caps.graphs these three are not called. The ops are the front's and are
     * borrowed for the call: sl_recorded_submit() gives them to the entries below. */
    enum sl_status (*graph_create)(struct sl_device *d, const struct sl_recorded_op *ops,
                                   uint32_t n_ops, struct sl_graph **out_graph);
    enum sl_status (*replay)(struct sl_device *d, struct sl_graph *graph);
    void (*graph_free)(struct sl_device *d, struct sl_graph *graph);

    /* NULL, as signal_create then is: devices of this kind do not read one another's memory, and of
     * what follows nothing is called. */
    enum sl_status (*peer_open)(struct sl_device *d, struct sl_device *other);
    enum sl_status (*copy_from)(struct sl_device *d, struct sl_span dst, struct sl_device *other,
                                struct sl_span src);
    enum sl_status (*signal_create)(struct sl_device *d, struct sl_signal **out_signal);
    void (*signal_free)(struct sl_device *d, struct sl_signal *signal);
    enum sl_status (*signal_raise)(struct sl_device *d, struct sl_signal *signal);
    enum sl_status (*signal_follow)(struct sl_device *d, struct sl_signal *signal);
    void (*signal_release)(struct sl_signal *signal);
    /* NULL: its queues cannot wait for the host. */
    enum sl_status (*signal_hold)(struct sl_device *d, struct sl_signal *signal);
    /* NULL, all four: none can. */
    enum sl_status (*relay_open)(struct sl_device *d, struct sl_device *other,
                                 const atomic_bool *busy);
    void (*relay_end)(struct sl_device *d);
    void (*relay_close)(struct sl_device *d);
    bool (*relay_lost)(const struct sl_device *d);
    /* NULL, as hand and take: no op writes to another device's memory. */
    bool (*reaches)(const struct sl_device *d, const struct sl_device *other);
    /* NULL: each is a piece of hardware of its own. */
    bool (*same)(const struct sl_device *d, const struct sl_device *other);

    /* NULL: takes whatever caps allow. Else whether it has the op for such arguments. */
    bool (*supports)(const struct sl_device *d, const struct sl_op_need *need);

    /* NULL, as with a bit in caps.fused_ops that is not set: has no such form. Its bits are those
     * of the ops one by one, and every buffer that one of them writes is written. */
#define SL_FUSED(name)                                                                             \
    enum sl_status (*fused_##name)(struct sl_device * d, const struct sl_fused_##name *a);
#include "backends/fused.def"
    /* Whether it does such arguments in one, and faster than one by one. NULL: all of them. */
#define SL_FUSED(name)                                                                             \
    bool (*takes_##name)(const struct sl_device *d, const struct sl_fused_##name *a);
#include "backends/fused.def"

    /* The ops, last. NULL, as with a bit in caps.lacks_ops: the device lacks it. */
#define SL_OP(name) enum sl_status (*name)(struct sl_device * d, const struct sl_op_##name *a);
#include "backends/ops.def"
};

#endif
