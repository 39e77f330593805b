/* Queues: immediate lists, barriers between their commands, and points, which are events. */
#include "backends/level_zero/level_zero_internal.h"
#include "common/log.h"

#include <string.h>

/* How long one wait asks the driver to wait; after it the wait begins anew. */
#define WAIT_NS 1000000000ull

/* OPS has a queue of its own where there are several; copies go to those that only copy, else to
 * the next ones that compute. */
static enum sl_status queue_init(struct sl_level_zero *z, enum sl_queue which) {
    struct sl_lz_queue *q = &z->queue[which];
    uint32_t ordinal = z->info.compute_ordinal, index = which, n = z->info.n_queues;
    if (which != SL_QUEUE_OPS && z->info.copy_ordinal != z->info.compute_ordinal) {
        ordinal = z->info.copy_ordinal;
        index = which - 1;
        n = z->info.n_copy_queues;
    }
    const ze_command_queue_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                                          .ordinal = ordinal,
                                          .index = index < n ? index : n - 1,
                                          .mode = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS,
                                          .priority = ZE_COMMAND_QUEUE_PRIORITY_NORMAL};
    SL_TRY(sl_lz_check(
        z, z->ze->CommandListCreateImmediate(z->context, z->info.handle, &desc, &q->list),
        "creating a command list"));
    q->after_barrier = true;
    for (uint32_t i = 0; i < SL_LZ_EVENTS; i++) {
        const ze_event_desc_t event = {.stype = ZE_STRUCTURE_TYPE_EVENT_DESC,
                                       .index = which * SL_LZ_EVENTS + i,
                                       .signal = ZE_EVENT_SCOPE_FLAG_HOST,
                                       .wait = ZE_EVENT_SCOPE_FLAG_DEVICE};
        SL_TRY(sl_lz_check(z, z->ze->EventCreate(z->events, &event, &q->event[i]),
                           "creating an event"));
    }
    return SL_OK;
}

enum sl_status sl_lz_queues_init(struct sl_level_zero *z) {
    const ze_event_pool_desc_t pool = {.stype = ZE_STRUCTURE_TYPE_EVENT_POOL_DESC,
                                       .flags = ZE_EVENT_POOL_FLAG_HOST_VISIBLE,
                                       .count = SL_QUEUES * SL_LZ_EVENTS + 2}; /* graph.c's */
    SL_TRY(sl_lz_check(z, z->ze->EventPoolCreate(z->context, &pool, 1, &z->info.handle, &z->events),
                       "creating events"));
    for (uint32_t i = 0; i < SL_QUEUES; i++)
        SL_TRY(queue_init(z, (enum sl_queue)i));
    return SL_OK;
}

void sl_lz_queues_release(struct sl_level_zero *z) {
    sl_lz_replays_release(z);
    for (uint32_t i = 0; i < SL_QUEUES; i++) {
        struct sl_lz_queue *q = &z->queue[i];
        if (q->list)
            z->ze->CommandListDestroy(q->list);
        for (uint32_t k = 0; k < SL_LZ_EVENTS; k++)
            if (q->event[k])
                z->ze->EventDestroy(q->event[k]);
        memset(q, 0, sizeof *q);
    }
    if (z->events)
        z->ze->EventPoolDestroy(z->events);
    z->events = NULL;
}

/* ---- commands ---- */

enum sl_status sl_lz_list_for(struct sl_level_zero *z, enum sl_queue which,
                              ze_command_list_handle_t *out_list) {
    struct sl_lz_queue *q = &z->queue[which];
    bool overlap = z->overlap && which == SL_QUEUE_OPS;
    z->overlap = false;
    bool recording = z->replays.recording && which == SL_QUEUE_OPS;
    bool *after_barrier = recording ? &z->replays.after_barrier : &q->after_barrier;
    *out_list = recording ? z->replays.recording : q->list;
    if (z->lost)
        return SL_ERR_DEVICE_LOST;
    if (!*after_barrier && !overlap)
        SL_TRY(sl_lz_check(z, z->ze->CommandListAppendBarrier(*out_list, NULL, 0, NULL),
                           "placing a barrier"));
    *after_barrier = false;
    q->unmarked = q->unmarked || !recording;
    return SL_OK;
}

enum sl_status sl_lz_append_copy(struct sl_level_zero *z, enum sl_queue q, void *dst,
                                 const void *src, size_t bytes) {
    ze_command_list_handle_t list;
    SL_TRY(sl_lz_list_for(z, q, &list));
    return sl_lz_check(z, z->ze->CommandListAppendMemoryCopy(list, dst, src, bytes, NULL, 0, NULL),
                       "copying");
}

enum sl_status sl_lz_copy(struct sl_device *d, enum sl_queue q, struct sl_span dst,
                          struct sl_span src) {
    return sl_lz_append_copy((struct sl_level_zero *)d, q, sl_span_addr(dst), sl_span_addr(src),
                             dst.bytes);
}

/* ---- points ---- */

/* Points that were never given out are our own mistake. */
static enum sl_status check_point(const struct sl_level_zero *z, enum sl_queue q, sl_point point) {
    if (point <= z->queue[q].marked)
        return SL_OK;
    sl_error("level_zero:%u: point %llu of queue %d; the last one marked is %llu", z->number,
             (unsigned long long)point, (int)q, (unsigned long long)z->queue[q].marked);
    return SL_ERR_INVALID;
}

/* The event of the point after the last one. Its last point, and who waited for that, have passed
 * before it is used again. */
static enum sl_status next_event(struct sl_level_zero *z, enum sl_queue which,
                                 ze_event_handle_t *out_event) {
    struct sl_lz_queue *q = &z->queue[which];
    uint64_t point = q->marked + 1;
    uint64_t *waits = q->waits[point % SL_LZ_EVENTS];
    *out_event = q->event[point % SL_LZ_EVENTS];
    if (point <= SL_LZ_EVENTS)
        return SL_OK;
    SL_TRY(sl_lz_await(&z->base, which, point - SL_LZ_EVENTS));
    for (uint32_t i = 0; i < SL_QUEUES; i++) {
        if (waits[i])
            SL_TRY(sl_lz_await(&z->base, (enum sl_queue)i, waits[i]));
        waits[i] = 0;
    }
    return sl_lz_check(z, z->ze->EventHostReset(*out_event), "using an event again");
}

enum sl_status sl_lz_mark(struct sl_device *d, enum sl_queue which, sl_point *out_point) {
    struct sl_level_zero *z = (struct sl_level_zero *)d;
    struct sl_lz_queue *q = &z->queue[which];
    if (z->lost)
        return SL_ERR_DEVICE_LOST;
    if (q->unmarked) {
        ze_event_handle_t event = NULL;
        SL_TRY(next_event(z, which, &event));
        SL_TRY(sl_lz_check(z, z->ze->CommandListAppendBarrier(q->list, event, 0, NULL),
                           "marking a point"));
        q->marked++;
        q->after_barrier = true;
        q->unmarked = false;
    }
    *out_point = q->marked;
    return SL_OK;
}

/* Each event stands for the last point it was used for; those before have passed, since
 * next_event() waited for them. */
static ze_event_handle_t event_of(struct sl_lz_queue *q, sl_point point) {
    if (point + SL_LZ_EVENTS <= q->marked && point > q->passed)
        q->passed = point;
    return q->event[point % SL_LZ_EVENTS];
}

enum sl_status sl_lz_passed(struct sl_device *d, enum sl_queue which, sl_point point) {
    struct sl_level_zero *z = (struct sl_level_zero *)d;
    struct sl_lz_queue *q = &z->queue[which];
    SL_TRY(check_point(z, which, point));
    ze_event_handle_t event = event_of(q, point);
    if (point <= q->passed)
        return SL_OK;
    if (z->lost)
        return SL_ERR_DEVICE_LOST;
    ze_result_t result = z->ze->EventQueryStatus(event);
    if (result == ZE_RESULT_NOT_READY)
        return SL_AGAIN;
    SL_TRY(sl_lz_check(z, result, "asking for a point"));
    q->passed = point;
    return SL_OK;
}

enum sl_status sl_lz_await(struct sl_device *d, enum sl_queue which, sl_point point) {
    struct sl_level_zero *z = (struct sl_level_zero *)d;
    struct sl_lz_queue *q = &z->queue[which];
    SL_TRY(check_point(z, which, point));
    ze_event_handle_t event = event_of(q, point);
    while (point > q->passed) {
        if (z->lost)
            return SL_ERR_DEVICE_LOST;
        ze_result_t result = z->ze->EventHostSynchronize(event, WAIT_NS);
        if (result == ZE_RESULT_NOT_READY)
            continue;
        SL_TRY(sl_lz_check(z, result, "waiting for a point"));
        q->passed = point;
    }
    return SL_OK;
}

/* A barrier that waits holds back what follows it, not what is before it. It gets a point of its
 * own, so that the event is not used again before that. */
enum sl_status sl_lz_after(struct sl_device *d, enum sl_queue which, enum sl_queue other,
                           sl_point point) {
    struct sl_level_zero *z = (struct sl_level_zero *)d;
    struct sl_lz_queue *q = &z->queue[which], *o = &z->queue[other];
    SL_TRY(check_point(z, other, point));
    ze_event_handle_t event = event_of(o, point);
    if (point <= o->passed || which == other)
        return SL_OK;
    if (z->lost)
        return SL_ERR_DEVICE_LOST;
    SL_TRY(sl_lz_check(z, z->ze->CommandListAppendBarrier(q->list, NULL, 1, &event),
                       "waiting for another queue"));
    q->unmarked = true;
    return sl_lz_mark(d, which, &o->waits[point % SL_LZ_EVENTS][which]);
}

enum sl_status sl_lz_sync(struct sl_device *d) {
    struct sl_level_zero *z = (struct sl_level_zero *)d;
    sl_point point[SL_QUEUES];
    for (uint32_t q = 0; q < SL_QUEUES; q++)
        SL_TRY(sl_lz_mark(d, (enum sl_queue)q, &point[q]));
    for (uint32_t q = 0; q < SL_QUEUES; q++)
        SL_TRY(sl_lz_await(d, (enum sl_queue)q, point[q]));
    return z->lost ? SL_ERR_DEVICE_LOST : SL_OK;
}
