/* Copies to a GPU by way of another one: the host's memory is read over two links at once, and what
 * comes by the other GPU's goes on over the direct link between them (NVLink), which is several
 * times as fast as either. What the GPU has itself takes no link, and does not come so.
 *
 * A copy is cut in two: the first part goes as ever, the rest through a buffer on the other GPU, by
 * a stream of that one. Both are ordered behind what was enqueued on the queue before, and what is
 * enqueued later waits for both, so nobody else need know. The driver takes the receiving GPU's
 * link for a copy without a buffer, whose stream ever it is on.
 *
 * The two streams are ordered by signals (peer.c), not by events: those of a GPU that has failed
 * might never pass. This one's owner, the only one to use either, looks after the other GPU while
 * it waits, and goes on without it if that has failed.
 *
 * On two H200s: 3 MB by one link 67 us, by both 52 with halves (bench/results). */
#include "backends/gpu/gpu_internal.h"
#include "common/clock.h"
#include "common/cpus.h"
#include "common/log.h"

#include <string.h>
#include <time.h>

/* Copies of less are not worth the calls. */
#define LEAST_BYTES (512u << 10)
/* Sixteenths that go by the GPU's own link: the other part has a second leg. */
#define OWN_SHARE   10u
#define ALIGN_BYTES 4096u
/* Between two looks at the other GPU while something waits: they go through its driver's locks. */
#define LOOK_NS 10000000u
/* Between two at both, when the relay is ended. */
#define DRAIN_NS 50000

static enum sl_status use_context(struct sl_gpu *c, struct CUctx_st *ctx) {
    return sl_gpu_check(c, c->driver.ctx_set_current(ctx), "making another GPU's context current");
}

/* A direct link lets one GPU's atomics work on the other's memory, PCIe does not. */
static bool has_direct_link(struct sl_gpu *c, const struct sl_gpu *other) {
    int atomics = 0;
    return c->driver.p2p_attribute &&
           c->driver.p2p_attribute(&atomics, SL_CU_P2P_NATIVE_ATOMICS, other->device, c->device) ==
               SL_CU_OK &&
           atomics;
}

/* What belongs to the other GPU's context. */
static enum sl_status open_there(struct sl_gpu *c, const struct sl_gpu *other) {
    struct sl_gpu_relay *r = &c->relay;
    SL_TRY(use_context(c, other->ctx));
    int result = c->driver.peer_enable(c->ctx, 0);
    if (result == SL_CU_PEER_ACCESS_UNSUPPORTED || result == SL_CU_TOO_MANY_PEERS)
        return SL_ERR_UNSUPPORTED;
    if (result != SL_CU_PEER_ACCESS_ALREADY_ENABLED)
        SL_TRY(sl_gpu_check(c, result, "writing to another GPU's memory"));
    return sl_gpu_check(c, c->driver.stream_create(&r->stream, SL_CU_STREAM_NON_BLOCKING),
                        "creating a stream");
}

enum sl_status sl_gpu_relay_open(struct sl_device *d, struct sl_device *other,
                                 const atomic_bool *busy) {
    struct sl_gpu *c = (struct sl_gpu *)d, *o = (struct sl_gpu *)other;
    struct sl_gpu_relay *r = &c->relay;
    SL_TRY(sl_gpu_enter(c));
    if (r->by || c->ctx == o->ctx || !has_direct_link(c, o))
        return SL_ERR_UNSUPPORTED;
    r->by = o;
    r->busy = busy;
    enum sl_status status = sl_gpu_signal_create(d, &r->begun);
    if (!status)
        status = sl_gpu_signal_create(other, &r->ended);
    if (!status)
        status = sl_gpu_alloc(other, SL_RELAY_BYTES, &r->buffer);
    if (!status)
        status = open_there(c, o);
    enum sl_status back = sl_gpu_enter(c);
    status = status ? status : back;
    if (status)
        sl_gpu_relay_close(d);
    else
        sl_debug("%s:%d: large copies may come by way of %s:%d", c->name, c->ordinal, o->name,
                 o->ordinal);
    return status;
}

/* ---- waiting ---- */

static int query_in(const struct sl_gpu *c, struct CUctx_st *ctx, struct CUstream_st *stream) {
    int result = c->driver.ctx_set_current(ctx);
    return result ? result : c->driver.stream_query(stream);
}

static bool is_failure(int query) {
    return query != SL_CU_OK && query != SL_CU_NOT_READY;
}

static bool is_out(const struct sl_gpu *c) {
    return c->relay.by && sl_gpu_signal_is_out(c->relay.ended);
}

void sl_gpu_relay_watch(struct sl_gpu *c) {
    struct sl_gpu_relay *r = &c->relay;
    if (!is_out(c) || sl_now_ns() <= r->look_ns)
        return;
    r->look_ns = sl_now_ns() + LOOK_NS;
    int there = query_in(c, r->by->ctx, r->stream);
    if (is_failure(there)) {
        char text[256];
        if (!r->lost)
            sl_error("%s:%d: %s; the device is given up, restart to use it again: %s:%d waits "
                     "for what was to come by way of it",
                     r->by->name, r->by->ordinal,
                     sl_gpu_result_text(&c->driver, there, text, sizeof text), c->name, c->ordinal);
        r->failed = true;
        r->lost = true;
        sl_gpu_signal_release(r->ended);
    }
    (void)!use_context(c, c->ctx);
}

/* Waits for the event, or without one for the stream, as long as something is out. SL_CU_NOT_READY:
 * nothing is any more, and the driver may wait for the rest. */
static int await_watching(struct sl_gpu *c, struct CUevent_st *event, struct CUstream_st *stream) {
    while (is_out(c)) {
        int result = event ? c->driver.event_query(event) : c->driver.stream_query(stream);
        if (result != SL_CU_NOT_READY)
            return result;
        sl_gpu_relay_watch(c);
        sl_cpu_relax();
    }
    return SL_CU_NOT_READY;
}

int sl_gpu_await_event(struct sl_gpu *c, struct CUevent_st *event) {
    int result = await_watching(c, event, NULL);
    return result == SL_CU_NOT_READY ? c->driver.event_sync(event) : result;
}

int sl_gpu_await_stream(struct sl_gpu *c, struct CUstream_st *stream) {
    int result = await_watching(c, NULL, stream);
    return result == SL_CU_NOT_READY ? c->driver.stream_sync(stream) : result;
}

bool sl_gpu_relay_lost(const struct sl_device *d) {
    return ((const struct sl_gpu *)d)->relay.lost;
}

void sl_gpu_relay_let_go(struct sl_gpu *c) {
    if (c->relay.begun)
        sl_gpu_signal_release(c->relay.begun);
}

/* Until neither stream has anything under way; one whose GPU has failed lets the other go on. */
void sl_gpu_relay_end(struct sl_device *d) {
    struct sl_gpu *c = (struct sl_gpu *)d;
    struct sl_gpu_relay *r = &c->relay;
    r->failed = r->by != NULL; /* no more copies go that way */
    while (r->stream) {
        int here = query_in(c, c->ctx, c->queue[SL_QUEUE_UP].stream);
        int there = query_in(c, r->by->ctx, r->stream);
        if (is_failure(here))
            sl_gpu_signal_release(r->begun);
        if (is_failure(there))
            sl_gpu_signal_release(r->ended);
        if (here != SL_CU_NOT_READY && there != SL_CU_NOT_READY)
            return;
        nanosleep(&(struct timespec){.tv_nsec = DRAIN_NS}, NULL);
    }
}

void sl_gpu_relay_close(struct sl_device *d) {
    struct sl_gpu *c = (struct sl_gpu *)d;
    struct sl_gpu_relay *r = &c->relay;
    if (!r->by)
        return;
    sl_gpu_relay_end(d);
    if (r->stream) {
        c->driver.ctx_set_current(r->by->ctx);
        c->driver.stream_destroy(r->stream);
    }
    if (r->ended)
        sl_gpu_signal_free(&r->by->base, r->ended);
    if (r->begun)
        sl_gpu_signal_free(d, r->begun);
    if (r->buffer)
        sl_gpu_free(&r->by->base, r->buffer, SL_RELAY_BYTES);
    c->driver.ctx_set_current(c->ctx);
    memset(r, 0, sizeof *r);
}

/* ---- copying ---- */

bool sl_gpu_relays(const struct sl_gpu *c, enum sl_queue q, size_t bytes) {
    const struct sl_gpu_relay *r = &c->relay;
    return r->by && !r->failed && q == SL_QUEUE_UP && bytes >= LEAST_BYTES &&
           !atomic_load_explicit(r->busy, memory_order_relaxed);
}

/* Through the buffer, in as many pieces as it takes; a CUresult. The other's context is current.
 * Nothing is read or written before the queue has come to this copy: where it goes may still be in
 * use, and what it reads may still be on its way down. */
static int by_other(const struct sl_gpu *c, uint64_t dst, const char *src, size_t bytes) {
    const struct sl_gpu_relay *r = &c->relay;
    uint64_t buffer = (uint64_t)(uintptr_t)r->buffer;
    int result = sl_gpu_follow_on(c, r->stream, r->begun);
    for (size_t done = 0, n; done < bytes && !result; done += n) {
        n = bytes - done < SL_RELAY_BYTES ? bytes - done : SL_RELAY_BYTES;
        result = c->driver.copy_to_device(buffer, src + done, n, r->stream);
        if (!result)
            result = c->driver.copy(dst + done, buffer, n, r->stream);
    }
    return result;
}

/* The other GPU does not do it, for reasons that are its owner's to find out. */
static void give_up(struct sl_gpu *c) {
    sl_warn("%s:%d: nothing is copied by way of %s:%d any more, which fails", c->name, c->ordinal,
            c->relay.by->name, c->relay.by->ordinal);
    c->relay.failed = true;
}

/* Until the other GPU has done what it was given; one that waits for this GPU, which has failed, is
 * let go. */
static void await_other(struct sl_gpu *c) {
    struct sl_gpu_relay *r = &c->relay;
    while (query_in(c, r->by->ctx, r->stream) == SL_CU_NOT_READY) {
        if (is_failure(query_in(c, c->ctx, c->queue[SL_QUEUE_UP].stream)))
            sl_gpu_signal_release(r->begun);
        nanosleep(&(struct timespec){.tv_nsec = DRAIN_NS}, NULL);
    }
}

enum sl_status sl_gpu_relay_copy(struct sl_gpu *c, uint64_t dst, const char *src, size_t bytes) {
    struct sl_gpu_relay *r = &c->relay;
    struct CUstream_st *up = c->queue[SL_QUEUE_UP].stream;
    size_t own = bytes / 16 * OWN_SHARE / ALIGN_BYTES * ALIGN_BYTES;
    SL_TRY(sl_gpu_check(c, sl_gpu_raise_on(c, up, r->begun), "raising a signal"));
    SL_TRY(sl_gpu_check(c, c->driver.copy_to_device(dst, src, own, up), "copying"));
    bool there = c->driver.ctx_set_current(r->by->ctx) == SL_CU_OK;
    bool whole = there && by_other(c, dst + own, src + own, bytes - own) == SL_CU_OK;
    /* What has begun ends before anybody goes on: also what was given up halfway. */
    bool ends = there && sl_gpu_raise_on(c, r->stream, r->ended) == SL_CU_OK;
    if (!whole || !ends)
        give_up(c);
    enum sl_status status = use_context(c, c->ctx);
    if (!status && ends)
        status = sl_gpu_check(c, sl_gpu_follow_on(c, up, r->ended), "ordering two queues");
    if (there && (!ends || status)) { /* the queue does not wait for it, so this thread does */
        await_other(c);
        enum sl_status back = use_context(c, c->ctx);
        status = status ? status : back;
    }
    if (!status && r->failed)
        status = sl_gpu_check(c, c->driver.copy_to_device(dst + own, src + own, bytes - own, up),
                              "copying");
    return status;
}
