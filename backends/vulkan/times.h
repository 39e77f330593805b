/* How long each kernel takes, for whoever tunes them: with $SLUICE_TEST_KERNEL_TIMES set each
 * launch stands between two timestamps, which are read when there are many of them, so that the
 * device is kept as busy as without. A table goes to the log when the device is closed: what a
 * kernel takes, and how long after the one before it. A replay of a graph is waited for, and two
 * timestamps take some 2 us themselves. */
#ifndef SL_BACKENDS_VULKAN_TIMES_H
#define SL_BACKENDS_VULKAN_TIMES_H

#include "backends/vulkan/vulkan_internal.h"

/* Does nothing where it is not asked for, or where the queue has no timestamps. */
enum sl_status sl_vk_times_init(struct sl_vulkan *v) SL_MUST_CHECK;
void sl_vk_times_release(struct sl_vulkan *v);
/* Around a dispatch to the open command buffer of SL_QUEUE_OPS; the second may submit and wait. */
void sl_vk_times_begin(struct sl_vulkan *v, VkCommandBuffer commands);
enum sl_status sl_vk_times_end(struct sl_vulkan *v, VkCommandBuffer commands,
                               enum sl_vk_kernel kernel, uint32_t variant) SL_MUST_CHECK;
/* Launches in all graphs so far; and after a replay of a graph that has n of them, from `first` on:
 * submits and waits. */
uint32_t sl_vk_times_recorded(const struct sl_vulkan *v);
enum sl_status sl_vk_times_replayed(struct sl_vulkan *v, uint32_t first, uint32_t n) SL_MUST_CHECK;

#endif
