/* Queues: commands are collected, submitted together, and known by the values of a timeline. */
#include "backends/vulkan/vulkan_internal.h"
#include "common/log.h"

#include <string.h>

/* How long one wait asks the driver to wait; after it the wait begins anew. */
#define WAIT_NS 1000000000ull

/* OPS has a queue of its own where there are several; copies go to those that only copy, else to
 * the next ones of the same family. */
static enum sl_status queue_init(struct sl_vulkan *v, enum sl_queue which) {
    struct sl_vk_queue *q = &v->queue[which];
    uint32_t family = v->info.family, index = which, n = v->info.n_queues;
    if (which != SL_QUEUE_OPS && v->info.copy_family != v->info.family) {
        family = v->info.copy_family;
        index = which - 1;
        n = v->info.n_copy_queues;
        q->copies = true;
    }
    index = index < n ? index : n - 1;
    const VkSemaphoreTypeCreateInfo type = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                            .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
    const VkSemaphoreCreateInfo semaphore = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO,
                                             .pNext = &type};
    const VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                          .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
                                          .queueFamilyIndex = family};
    v->vk.GetDeviceQueue(v->device, family, index, &q->handle);
    SL_TRY(sl_vk_check(v, v->vk.CreateSemaphore(v->device, &semaphore, NULL, &q->timeline),
                       "creating a semaphore"));
    SL_TRY(sl_vk_check(v, v->vk.CreateCommandPool(v->device, &pool, NULL, &q->pool),
                       "creating a command pool"));
    const VkCommandBufferAllocateInfo info = {.sType =
                                                  VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                              .commandPool = q->pool,
                                              .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                              .commandBufferCount = SL_VK_COMMANDS};
    return sl_vk_check(v, v->vk.AllocateCommandBuffers(v->device, &info, q->commands),
                       "allocating command buffers");
}

enum sl_status sl_vk_queues_init(struct sl_vulkan *v) {
    for (uint32_t i = 0; i < SL_QUEUES; i++)
        SL_TRY(queue_init(v, (enum sl_queue)i));
    return SL_OK;
}

void sl_vk_queues_release(struct sl_vulkan *v) {
    for (uint32_t i = 0; i < SL_QUEUES; i++) {
        struct sl_vk_queue *q = &v->queue[i];
        if (q->pool)
            v->vk.DestroyCommandPool(v->device, q->pool, NULL);
        if (q->timeline)
            v->vk.DestroySemaphore(v->device, q->timeline, NULL);
        memset(q, 0, sizeof *q);
    }
}

static void barrier(struct sl_vulkan *v, VkCommandBuffer commands, VkPipelineStageFlags2 from,
                    VkAccessFlags2 writes, VkPipelineStageFlags2 to, VkAccessFlags2 reads) {
    const VkMemoryBarrier2 memory = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER_2,
                                     .srcStageMask = from,
                                     .srcAccessMask = writes,
                                     .dstStageMask = to,
                                     .dstAccessMask = reads};
    const VkDependencyInfo info = {.sType = VK_STRUCTURE_TYPE_DEPENDENCY_INFO,
                                   .memoryBarrierCount = 1,
                                   .pMemoryBarriers = &memory};
    v->vk.CmdPipelineBarrier2(commands, &info);
}

/* What a queue does. */
static VkPipelineStageFlags2 work(bool copies) {
    return VK_PIPELINE_STAGE_2_ALL_TRANSFER_BIT |
           (copies ? 0 : VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT);
}

/* A kernel after a kernel needs less than what a copy has a part in: on NVIDIA's driver 2 us
 * instead of 5. */
static void barrier_before(struct sl_vulkan *v, VkCommandBuffer commands, bool copies,
                           bool kernels) {
    if (kernels)
        barrier(v, commands, VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT, VK_ACCESS_2_SHADER_WRITE_BIT,
                VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT,
                VK_ACCESS_2_SHADER_READ_BIT | VK_ACCESS_2_SHADER_WRITE_BIT);
    else
        barrier(v, commands, work(copies), VK_ACCESS_2_MEMORY_WRITE_BIT, work(copies),
                VK_ACCESS_2_MEMORY_READ_BIT | VK_ACCESS_2_MEMORY_WRITE_BIT);
}

void sl_vk_barrier_to_host(struct sl_vulkan *v, VkCommandBuffer commands, bool copies) {
    barrier(v, commands, work(copies), VK_ACCESS_2_MEMORY_WRITE_BIT, VK_PIPELINE_STAGE_2_HOST_BIT,
            VK_ACCESS_2_HOST_READ_BIT);
}

/* ---- filling ---- */

static enum sl_status open_commands(struct sl_vulkan *v, enum sl_queue which) {
    struct sl_vk_queue *q = &v->queue[which];
    uint32_t i = q->next;
    if (q->busy_until[i] > q->submitted) /* all of them are in one batch */
        SL_TRY(sl_vk_submit(v, which));
    if (q->busy_until[i] > q->passed)
        SL_TRY(sl_vk_await(&v->base, which, q->busy_until[i]));
    const VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                            .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT};
    SL_TRY(sl_vk_check(v, v->vk.BeginCommandBuffer(q->commands[i], &begin),
                       "beginning a command buffer"));
    q->open = q->commands[i];
    q->after_kernel = false; /* what is before it is not known */
    q->busy_until[i] = q->submitted + 1;
    q->next = (i + 1) % SL_VK_COMMANDS;
    return SL_OK;
}

/* Ends the open command buffer and adds it to the batch. */
static enum sl_status close_commands(struct sl_vulkan *v, struct sl_vk_queue *q) {
    if (!q->open)
        return SL_OK;
    sl_vk_barrier_to_host(v, q->open, q->copies);
    q->batch[q->n_batch++] = q->open;
    VkResult result = v->vk.EndCommandBuffer(q->open);
    q->open = NULL;
    return sl_vk_check(v, result, "ending a command buffer");
}

enum sl_status sl_vk_commands(struct sl_vulkan *v, enum sl_queue which, bool kernel,
                              VkCommandBuffer *out_commands) {
    struct sl_vk_queue *q = &v->queue[which];
    bool *after_kernel = &q->after_kernel;
    /* Where the one before went to another command buffer, what both follow did, too. */
    bool overlap = v->overlap && which == SL_QUEUE_OPS && (v->recording || q->open);
    v->overlap = false;
    if (!kernel && which == SL_QUEUE_OPS)
        v->left.x = 0; /* a copy may change what was quantised */
    if (v->lost)
        return SL_ERR_DEVICE_LOST;
    if (which == SL_QUEUE_OPS && v->recording) {
        *out_commands = v->recording;
        after_kernel = &v->recording_after_kernel;
    } else {
        if (!q->open && q->n_batch == SL_VK_BATCH)
            SL_TRY(sl_vk_submit(v, which));
        if (!q->open)
            SL_TRY(open_commands(v, which));
        *out_commands = q->open;
    }
    if (!overlap)
        barrier_before(v, *out_commands, q->copies, kernel && *after_kernel);
    *after_kernel = kernel;
    return SL_OK;
}

enum sl_status sl_vk_append(struct sl_vulkan *v, enum sl_queue which, VkCommandBuffer commands) {
    struct sl_vk_queue *q = &v->queue[which];
    if (v->lost)
        return SL_ERR_DEVICE_LOST;
    if (q->n_batch + 2 > SL_VK_BATCH)
        SL_TRY(sl_vk_submit(v, which));
    SL_TRY(close_commands(v, q));
    q->batch[q->n_batch++] = commands;
    return SL_OK;
}

static VkSemaphoreSubmitInfo at_value(VkSemaphore semaphore, uint64_t value) {
    return (VkSemaphoreSubmitInfo){.sType = VK_STRUCTURE_TYPE_SEMAPHORE_SUBMIT_INFO,
                                   .semaphore = semaphore,
                                   .value = value,
                                   .stageMask = VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT};
}

enum sl_status sl_vk_submit(struct sl_vulkan *v, enum sl_queue which) {
    struct sl_vk_queue *q = &v->queue[which];
    VkSemaphoreSubmitInfo waits[SL_QUEUES], raise = at_value(q->timeline, q->submitted + 1);
    VkCommandBufferSubmitInfo commands[SL_VK_BATCH];
    uint32_t n_waits = 0;
    if (v->lost)
        return SL_ERR_DEVICE_LOST;
    SL_TRY(close_commands(v, q));
    for (uint32_t i = 0; i < SL_QUEUES; i++)
        if (q->waits[i])
            waits[n_waits++] = at_value(v->queue[i].timeline, q->waits[i]);
    if (!q->n_batch && !n_waits)
        return SL_OK;
    for (uint32_t i = 0; i < q->n_batch; i++)
        commands[i] = (VkCommandBufferSubmitInfo){
            .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_SUBMIT_INFO, .commandBuffer = q->batch[i]};
    const VkSubmitInfo2 info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO_2,
                                .waitSemaphoreInfoCount = n_waits,
                                .pWaitSemaphoreInfos = waits,
                                .commandBufferInfoCount = q->n_batch,
                                .pCommandBufferInfos = commands,
                                .signalSemaphoreInfoCount = 1,
                                .pSignalSemaphoreInfos = &raise};
    SL_TRY(sl_vk_check(v, v->vk.QueueSubmit2(q->handle, 1, &info, VK_NULL_HANDLE), "submitting"));
    q->submitted++;
    q->n_batch = 0;
    memset(q->waits, 0, sizeof q->waits);
    return SL_OK;
}

/* ---- copies ---- */

enum sl_status sl_vk_copy(struct sl_device *d, enum sl_queue q, struct sl_span dst,
                          struct sl_span src) {
    struct sl_vulkan *v = (struct sl_vulkan *)d;
    const struct sl_vk_memory *to = dst.buffer->own, *from = src.buffer->own;
    const VkBufferCopy copy = {.srcOffset = src.offset, .dstOffset = dst.offset, .size = dst.bytes};
    VkCommandBuffer commands;
    SL_TRY(sl_vk_commands(v, q, false, &commands));
    v->vk.CmdCopyBuffer(commands, from->buffer, to->buffer, 1, &copy);
    return SL_OK;
}

/* ---- points ---- */

/* Points that were never given out are our own mistake. */
static enum sl_status check_point(const struct sl_vulkan *v, enum sl_queue q, sl_point point) {
    if (point <= v->queue[q].submitted)
        return SL_OK;
    sl_error("vulkan:%u: point %llu of queue %d; the last one marked is %llu", v->number,
             (unsigned long long)point, (int)q, (unsigned long long)v->queue[q].submitted);
    return SL_ERR_INVALID;
}

enum sl_status sl_vk_mark(struct sl_device *d, enum sl_queue q, sl_point *out_point) {
    struct sl_vulkan *v = (struct sl_vulkan *)d;
    SL_TRY(sl_vk_submit(v, q));
    *out_point = v->queue[q].submitted;
    return SL_OK;
}

enum sl_status sl_vk_passed(struct sl_device *d, enum sl_queue which, sl_point point) {
    struct sl_vulkan *v = (struct sl_vulkan *)d;
    struct sl_vk_queue *q = &v->queue[which];
    SL_TRY(check_point(v, which, point));
    if (point <= q->passed)
        return SL_OK;
    if (v->lost)
        return SL_ERR_DEVICE_LOST;
    uint64_t value = 0;
    SL_TRY(sl_vk_check(v, v->vk.GetSemaphoreCounterValue(v->device, q->timeline, &value),
                       "asking for a point"));
    /* A device that was just lost may say anything. */
    q->passed = value > q->passed && value <= q->submitted ? value : q->passed;
    return point <= q->passed ? SL_OK : SL_AGAIN;
}

enum sl_status sl_vk_await(struct sl_device *d, enum sl_queue which, sl_point point) {
    struct sl_vulkan *v = (struct sl_vulkan *)d;
    struct sl_vk_queue *q = &v->queue[which];
    SL_TRY(check_point(v, which, point));
    const VkSemaphoreWaitInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                                      .semaphoreCount = 1,
                                      .pSemaphores = &q->timeline,
                                      .pValues = &point};
    while (point > q->passed) {
        if (v->lost)
            return SL_ERR_DEVICE_LOST;
        VkResult result = v->vk.WaitSemaphores(v->device, &info, WAIT_NS);
        if (result == VK_TIMEOUT)
            continue;
        SL_TRY(sl_vk_check(v, result, "waiting for a point"));
        q->passed = point;
    }
    return SL_OK;
}

enum sl_status sl_vk_after(struct sl_device *d, enum sl_queue which, enum sl_queue other,
                           sl_point point) {
    struct sl_vulkan *v = (struct sl_vulkan *)d;
    struct sl_vk_queue *q = &v->queue[which];
    SL_TRY(check_point(v, other, point));
    if (point <= v->queue[other].passed)
        return SL_OK;
    /* A submission waits before all that it brings: what came before this call goes ahead. */
    if (q->open || q->n_batch)
        SL_TRY(sl_vk_submit(v, which));
    q->waits[other] = point > q->waits[other] ? point : q->waits[other];
    return SL_OK;
}

enum sl_status sl_vk_sync(struct sl_device *d) {
    struct sl_vulkan *v = (struct sl_vulkan *)d;
    for (uint32_t q = 0; q < SL_QUEUES; q++)
        SL_TRY(sl_vk_submit(v, (enum sl_queue)q));
    for (uint32_t q = 0; q < SL_QUEUES; q++)
        SL_TRY(sl_vk_await(d, (enum sl_queue)q, v->queue[q].submitted));
    return SL_OK;
}
