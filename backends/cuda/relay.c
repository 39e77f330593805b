/* Copies to a GPU by way of another one: the host's memory is read over two links at once, and what
 * comes by the other GPU's goes on over the direct link between them (NVLink), which is several
 * times as fast as either.
 *
 * A copy is cut in two: the first part goes as ever, the rest through a buffer on the other GPU, by
 * a stream of that one. Both are ordered behind what was enqueued on the queue before, and what is
 * enqueued later waits for both, so nobody else need know. The driver takes the receiving GPU's
 * link for a copy without a buffer, whose stream ever it is on.
 *
 * On two H200s: 3 MB by one link 67 us, by both 52 with halves (bench/results). */
#include "backends/cuda/cuda_internal.h"
#include "common/log.h"

#include <string.h>

/* Copies of less are not worth the calls. */
#define LEAST_BYTES (512u << 10)
/* Sixteenths that go by the GPU's own link: the other part has a second leg. */
#define OWN_SHARE   10u
#define ALIGN_BYTES 4096u

static enum sl_status use_context(struct sl_cuda *c, struct CUctx_st *ctx) {
    return sl_cuda_check(c, c->driver.ctx_set_current(ctx), "making another GPU's context current");
}

/* A direct link lets one GPU's atomics work on the other's memory, PCIe does not. */
static bool has_direct_link(struct sl_cuda *c, const struct sl_cuda *other) {
    int atomics = 0;
    return c->driver.p2p_attribute &&
           c->driver.p2p_attribute(&atomics, SL_CU_P2P_NATIVE_ATOMICS, other->device, c->device) ==
               SL_CU_OK &&
           atomics;
}

/* What belongs to the other GPU's context. */
static enum sl_status open_there(struct sl_cuda *c, const struct sl_cuda *other) {
    struct sl_cuda_relay *r = &c->relay;
    enum sl_status status = use_context(c, other->ctx);
    if (status)
        return status;
    int result = c->driver.peer_enable(c->ctx, 0);
    if (result == SL_CU_PEER_ACCESS_UNSUPPORTED || result == SL_CU_TOO_MANY_PEERS)
        return SL_ERR_UNSUPPORTED;
    if (result != SL_CU_PEER_ACCESS_ALREADY_ENABLED)
        status = sl_cuda_check(c, result, "writing to another GPU's memory");
    if (!status)
        status = sl_cuda_check(c, c->driver.stream_create(&r->stream, SL_CU_STREAM_NON_BLOCKING),
                               "creating a stream");
    if (!status)
        status = sl_cuda_check(c, c->driver.event_create(&r->ended, SL_CU_EVENT_NO_TIMING),
                               "creating an event");
    return status;
}

enum sl_status sl_cuda_relay_open(struct sl_device *d, struct sl_device *other,
                                  const atomic_bool *busy) {
    struct sl_cuda *c = (struct sl_cuda *)d, *o = (struct sl_cuda *)other;
    struct sl_cuda_relay *r = &c->relay;
    enum sl_status status = sl_cuda_enter(c);
    if (status)
        return status;
    if (r->by || c->ctx == o->ctx || !has_direct_link(c, o))
        return SL_ERR_UNSUPPORTED;
    r->by = o;
    r->busy = busy;
    status = sl_cuda_alloc(other, SL_RELAY_BYTES, &r->buffer);
    if (!status)
        status = open_there(c, o);
    enum sl_status back = sl_cuda_enter(c);
    status = status ? status : back;
    if (!status)
        status = sl_cuda_check(c, c->driver.event_create(&r->begun, SL_CU_EVENT_NO_TIMING),
                               "creating an event");
    if (status)
        sl_cuda_relay_close(d);
    else
        sl_debug("cuda:%d: large copies may come by way of cuda:%d", c->ordinal, o->ordinal);
    return status;
}

void sl_cuda_relay_close(struct sl_device *d) {
    struct sl_cuda *c = (struct sl_cuda *)d;
    struct sl_cuda_relay *r = &c->relay;
    if (!r->by)
        return;
    (void)!sl_cuda_sync(d); /* a lost device has nothing under way */
    c->driver.ctx_set_current(r->by->ctx);
    if (r->ended)
        c->driver.event_destroy(r->ended);
    if (r->stream)
        c->driver.stream_destroy(r->stream);
    c->driver.ctx_set_current(c->ctx);
    if (r->begun)
        c->driver.event_destroy(r->begun);
    if (r->buffer)
        sl_cuda_free(&r->by->base, r->buffer, SL_RELAY_BYTES);
    memset(r, 0, sizeof *r);
}

bool sl_cuda_relays(const struct sl_cuda *c, enum sl_queue q, size_t bytes) {
    const struct sl_cuda_relay *r = &c->relay;
    return r->by && !r->failed && q == SL_QUEUE_UP && bytes >= LEAST_BYTES &&
           !atomic_load_explicit(r->busy, memory_order_relaxed);
}

/* Through the buffer, in as many pieces as it takes; a CUresult. Nothing is read before the queue
 * has come to this copy: an expert may be moved from where an earlier copy is still writing it. */
static int by_other(const struct sl_cuda *c, uint64_t dst, uint64_t src, size_t bytes) {
    const struct sl_cuda_relay *r = &c->relay;
    uint64_t buffer = (uint64_t)(uintptr_t)r->buffer;
    int result = c->driver.ctx_set_current(r->by->ctx);
    if (!result)
        result = c->driver.stream_wait(r->stream, r->begun, 0);
    for (size_t done = 0, n; done < bytes && !result; done += n) {
        n = bytes - done < SL_RELAY_BYTES ? bytes - done : SL_RELAY_BYTES;
        result = c->driver.copy(buffer, src + done, n, r->stream);
        if (!result)
            result = c->driver.copy(dst + done, buffer, n, r->stream);
    }
    return result ? result : c->driver.event_record(r->ended, r->stream);
}

/* The other GPU does not do it, for reasons that are its owner's to find out. What it has begun
 * ends before anybody goes on. */
static void give_up(struct sl_cuda *c) {
    sl_warn("cuda:%d: nothing is copied by way of cuda:%d any more, which fails", c->ordinal,
            c->relay.by->ordinal);
    c->driver.stream_sync(c->relay.stream);
    c->relay.failed = true;
}

enum sl_status sl_cuda_relay_copy(struct sl_cuda *c, uint64_t dst, uint64_t src, size_t bytes) {
    struct sl_cuda_relay *r = &c->relay;
    struct CUstream_st *up = c->queue[SL_QUEUE_UP].stream;
    size_t own = bytes / 16 * OWN_SHARE / ALIGN_BYTES * ALIGN_BYTES;
    enum sl_status status =
        sl_cuda_check(c, c->driver.event_record(r->begun, up), "marking a queue");
    if (!status)
        status = sl_cuda_check(c, c->driver.copy(dst, src, own, up), "copying");
    if (status)
        return status;
    if (by_other(c, dst + own, src + own, bytes - own))
        give_up(c);
    status = use_context(c, c->ctx);
    if (status)
        return status;
    return r->failed
               ? sl_cuda_check(c, c->driver.copy(dst + own, src + own, bytes - own, up), "copying")
               : sl_cuda_check(c, c->driver.stream_wait(up, r->ended, 0), "ordering two queues");
}
