/* Recorded ops, kept as a command buffer that is submitted again and again. */
#include "backends/vulkan/times.h"
#include "backends/vulkan/vulkan_internal.h"

#include <stdlib.h>

struct sl_graph {
    VkCommandBuffer commands;
    sl_point last;                /* of SL_QUEUE_OPS: its latest replay has run by then */
    uint32_t first_time, n_times; /* launches, of those that times.c counts */
};

static enum sl_status record(struct sl_vulkan *v, const struct sl_recorded_op *ops, uint32_t n_ops,
                             struct sl_graph *graph) {
    const VkCommandBufferAllocateInfo info = {.sType =
                                                  VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                              .commandPool = v->queue[SL_QUEUE_OPS].pool,
                                              .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                              .commandBufferCount = 1};
    /* A replay may be submitted while the one before it runs. */
    const VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                            .flags = VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT};
    SL_TRY(sl_vk_check(v, v->vk.AllocateCommandBuffers(v->device, &info, &graph->commands),
                       "allocating a graph"));
    SL_TRY(sl_vk_check(v, v->vk.BeginCommandBuffer(graph->commands, &begin), "recording"));
    v->recording = graph->commands;
    v->recording_after_kernel = false;
    v->left.x = 0;
    graph->first_time = sl_vk_times_recorded(v);
    enum sl_status status = sl_recorded_submit(&v->base, ops, n_ops);
    v->recording = NULL;
    graph->n_times = sl_vk_times_recorded(v) - graph->first_time;
    v->left.x = 0; /* another graph may be replayed before what comes next */
    sl_vk_barrier_to_host(v, graph->commands, false);
    enum sl_status ended = sl_vk_check(v, v->vk.EndCommandBuffer(graph->commands), "recording");
    return status ? status : ended;
}

enum sl_status sl_vk_graph_create(struct sl_device *d, const struct sl_recorded_op *ops,
                                  uint32_t n_ops, struct sl_graph **out_graph) {
    struct sl_vulkan *v = (struct sl_vulkan *)d;
    struct sl_graph *graph = calloc(1, sizeof *graph);
    if (v->lost || !graph) {
        free(graph);
        return graph ? SL_ERR_DEVICE_LOST : SL_ERR_NOMEM;
    }
    enum sl_status status = record(v, ops, n_ops, graph);
    if (status)
        sl_vk_graph_free(d, graph);
    else
        *out_graph = graph;
    return status;
}

enum sl_status sl_vk_replay(struct sl_device *d, struct sl_graph *graph) {
    struct sl_vulkan *v = (struct sl_vulkan *)d;
    SL_TRY(sl_vk_append(v, SL_QUEUE_OPS, graph->commands));
    graph->last =
        v->queue[SL_QUEUE_OPS].submitted + 1; /* the submission that it is collected for */
    return sl_vk_times_replayed(v, graph->first_time, graph->n_times);
}

void sl_vk_graph_free(struct sl_device *d, struct sl_graph *graph) {
    struct sl_vulkan *v = (struct sl_vulkan *)d;
    if (graph->last > v->queue[SL_QUEUE_OPS].submitted)
        (void)!sl_vk_submit(v, SL_QUEUE_OPS);
    if (graph->last && graph->last <= v->queue[SL_QUEUE_OPS].submitted)
        (void)!sl_vk_await(d, SL_QUEUE_OPS, graph->last);
    if (graph->commands)
        v->vk.FreeCommandBuffers(v->device, v->queue[SL_QUEUE_OPS].pool, 1, &graph->commands);
    free(graph);
}
