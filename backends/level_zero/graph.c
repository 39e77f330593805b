/* Recorded ops, kept as a command list that is run again and again. */
#include "backends/level_zero/level_zero_internal.h"
#include "common/log.h"

#include <stdlib.h>
#include <string.h>

struct sl_graph {
    ze_command_list_handle_t list;
    bool replayed;
};

static enum sl_status make_event(struct sl_level_zero *z, uint32_t i, ze_event_handle_t *out) {
    const ze_event_desc_t event = {.stype = ZE_STRUCTURE_TYPE_EVENT_DESC,
                                   .index = SL_QUEUES * SL_LZ_EVENTS + i,
                                   .signal = ZE_EVENT_SCOPE_FLAG_DEVICE,
                                   .wait = ZE_EVENT_SCOPE_FLAG_DEVICE};
    return sl_lz_check(z, z->ze->EventCreate(z->events, &event, out), "creating an event");
}

/* The queue is that of SL_QUEUE_OPS's immediate list. */
static enum sl_status start(struct sl_level_zero *z) {
    struct sl_lz_replays *r = &z->replays;
    const ze_command_queue_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                                          .ordinal = z->info.compute_ordinal,
                                          .mode = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS,
                                          .priority = ZE_COMMAND_QUEUE_PRIORITY_NORMAL};
    if (!r->begin)
        SL_TRY(make_event(z, 0, &r->begin));
    if (!r->end)
        SL_TRY(make_event(z, 1, &r->end));
    return r->queue
               ? SL_OK
               : sl_lz_check(
                     z, z->ze->CommandQueueCreate(z->context, z->info.handle, &desc, &r->queue),
                     "creating a queue for graphs");
}

void sl_lz_replays_release(struct sl_level_zero *z) {
    struct sl_lz_replays *r = &z->replays;
    if (r->queue)
        z->ze->CommandQueueDestroy(r->queue);
    if (r->begin)
        z->ze->EventDestroy(r->begin);
    if (r->end)
        z->ze->EventDestroy(r->end);
    memset(r, 0, sizeof *r);
}

static enum sl_status record(struct sl_level_zero *z, const struct sl_recorded_op *ops,
                             uint32_t n_ops, ze_command_list_handle_t list) {
    struct sl_lz_replays *r = &z->replays;
    SL_TRY(sl_lz_check(z, z->ze->CommandListAppendBarrier(list, NULL, 1, &r->begin),
                       "recording a graph"));
    SL_TRY(sl_lz_check(z, z->ze->CommandListAppendEventReset(list, r->begin), "recording a graph"));
    r->recording = list;
    r->after_barrier = true; /* what follows may overtake the reset */
    enum sl_status status = sl_recorded_submit(&z->base, ops, n_ops);
    r->recording = NULL;
    z->overlap = false;
    if (status)
        return status;
    SL_TRY(sl_lz_check(z, z->ze->CommandListAppendBarrier(list, r->end, 0, NULL),
                       "recording a graph"));
    return sl_lz_check(z, z->ze->CommandListClose(list), "recording a graph");
}

enum sl_status sl_lz_graph_create(struct sl_device *d, const struct sl_recorded_op *ops,
                                  uint32_t n_ops, struct sl_graph **out_graph) {
    struct sl_level_zero *z = (struct sl_level_zero *)d;
    const ze_command_list_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC,
                                         .commandQueueGroupOrdinal = z->info.compute_ordinal};
    if (z->lost)
        return SL_ERR_DEVICE_LOST;
    SL_TRY(start(z));
    struct sl_graph *graph = calloc(1, sizeof *graph);
    if (!graph)
        return SL_ERR_NOMEM;
    ze_result_t result = z->ze->CommandListCreate(z->context, z->info.handle, &desc, &graph->list);
    if (result)
        graph->list = NULL;
    enum sl_status status = sl_lz_check(z, result, "creating a graph");
    if (!status)
        status = record(z, ops, n_ops, graph->list);
    if (status)
        sl_lz_graph_free(d, graph);
    else
        *out_graph = graph;
    return status;
}

/* Once `begin` is to be raised the graph has to run, or nothing goes on: a failure in between gives
 * the device up. */
enum sl_status sl_lz_replay(struct sl_device *d, struct sl_graph *graph) {
    struct sl_level_zero *z = (struct sl_level_zero *)d;
    struct sl_lz_queue *q = &z->queue[SL_QUEUE_OPS];
    struct sl_lz_replays *r = &z->replays;
    if (z->lost)
        return SL_ERR_DEVICE_LOST;
    ze_result_t result = z->ze->CommandListAppendBarrier(q->list, r->begin, 0, NULL);
    if (!result)
        result = z->ze->CommandQueueExecuteCommandLists(r->queue, 1, &graph->list, NULL);
    if (!result)
        result = z->ze->CommandListAppendBarrier(q->list, NULL, 1, &r->end);
    if (!result)
        result = z->ze->CommandListAppendEventReset(q->list, r->end);
    if (result) {
        (void)!sl_lz_check(z, result, "replaying a graph");
        z->lost = true;
        return SL_ERR_DEVICE_LOST;
    }
    graph->replayed = true;
    q->after_barrier = true; /* what follows may overtake the reset */
    q->unmarked = true;
    return SL_OK;
}

void sl_lz_graph_free(struct sl_device *d, struct sl_graph *graph) {
    struct sl_level_zero *z = (struct sl_level_zero *)d;
    sl_point point;
    if (graph->replayed && sl_lz_mark(d, SL_QUEUE_OPS, &point) == SL_OK)
        (void)!sl_lz_await(d, SL_QUEUE_OPS, point); /* a lost device has let go of it */
    if (graph->list)
        z->ze->CommandListDestroy(graph->list);
    free(graph);
}
