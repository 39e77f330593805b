/* What one GPU takes from another: copies out of its memory, and signals, an event each.
 *
 * Each device is its owner's, a thread; what is read here of another device (its context) is set
 * when it is opened and stays. An event may be waited for from any context. */
#include "backends/cuda/cuda_internal.h"
#include "common/log.h"

#include <stdlib.h>

struct sl_signal {
    struct CUevent_st *event;
    bool raised; /* ever: written by who raises, who tells those that follow */
};

enum sl_status sl_cuda_peer_open(struct sl_device *d, struct sl_device *other) {
    struct sl_cuda *c = (struct sl_cuda *)d;
    const struct sl_cuda *o = (const struct sl_cuda *)other;
    int can = 0;
    enum sl_status status = sl_cuda_enter(c);
    if (status || c->ctx == o->ctx)
        return status;
    status = sl_cuda_check(c, c->driver.can_access_peer(&can, c->device, o->device),
                           "asking for access to another GPU");
    if (status)
        return status;
    int result = can ? c->driver.peer_enable(o->ctx, 0) : SL_CU_PEER_ACCESS_UNSUPPORTED;
    switch (result) {
    case SL_CU_OK:
    case SL_CU_PEER_ACCESS_ALREADY_ENABLED:
        sl_debug("cuda:%d: reads cuda:%d directly", c->ordinal, o->ordinal);
        return SL_OK;
    case SL_CU_PEER_ACCESS_UNSUPPORTED:
    case SL_CU_TOO_MANY_PEERS:
        /* The same call copies then too, by way of the host. */
        sl_info("cuda:%d cannot read cuda:%d directly: what it takes goes through the host",
                c->ordinal, o->ordinal);
        return SL_OK;
    default:
        return sl_cuda_check(c, result, "reading another GPU");
    }
}

enum sl_status sl_cuda_copy_from(struct sl_device *d, void *dst, struct sl_device *other,
                                 const void *src, size_t bytes) {
    struct sl_cuda *c = (struct sl_cuda *)d;
    const struct sl_cuda *o = (const struct sl_cuda *)other;
    uint64_t to = (uint64_t)(uintptr_t)dst, from = (uint64_t)(uintptr_t)src;
    enum sl_status status = sl_cuda_enter(c);
    if (status)
        return status;
    int result = c->ctx == o->ctx ? c->driver.copy(to, from, bytes, c->stream)
                                  : c->driver.copy_peer(to, c->ctx, from, o->ctx, bytes, c->stream);
    return sl_cuda_check(c, result, "copying from another GPU");
}

enum sl_status sl_cuda_signal_create(struct sl_device *d, struct sl_signal **out_signal) {
    struct sl_cuda *c = (struct sl_cuda *)d;
    enum sl_status status = sl_cuda_enter(c);
    if (status)
        return status;
    struct sl_signal *s = calloc(1, sizeof *s);
    if (!s)
        return SL_ERR_NOMEM;
    status = sl_cuda_check(c, c->driver.event_create(&s->event, SL_CU_EVENT_NO_TIMING),
                           "creating an event");
    if (status)
        free(s);
    else
        *out_signal = s;
    return status;
}

void sl_cuda_signal_free(struct sl_device *d, struct sl_signal *signal) {
    struct sl_cuda *c = (struct sl_cuda *)d;
    /* Of a lost device too: who waits for it keeps what it needs. */
    c->driver.ctx_set_current(c->ctx);
    c->driver.event_destroy(signal->event);
    free(signal);
}

enum sl_status sl_cuda_signal_raise(struct sl_device *d, struct sl_signal *signal) {
    struct sl_cuda *c = (struct sl_cuda *)d;
    enum sl_status status = sl_cuda_enter(c);
    if (!status)
        status =
            sl_cuda_check(c, c->driver.event_record(signal->event, c->stream), "raising a signal");
    if (!status)
        signal->raised = true;
    return status;
}

enum sl_status sl_cuda_signal_follow(struct sl_device *d, struct sl_signal *signal) {
    struct sl_cuda *c = (struct sl_cuda *)d;
    enum sl_status status = sl_cuda_enter(c);
    if (status || !signal->raised)
        return status;
    return sl_cuda_check(c, c->driver.stream_wait(c->stream, signal->event, 0),
                         "following another GPU");
}
