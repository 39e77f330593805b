/* How long each kernel takes, for whoever tunes them: with $SLUICE_TEST_KERNEL_TIMES set each
 * launch is submitted and awaited alone, between two timestamps, and a table goes to the log when
 * the device is closed. Nothing is recorded into graphs then, and everything is slower. */
#ifndef SL_BACKENDS_VULKAN_TIMES_H
#define SL_BACKENDS_VULKAN_TIMES_H

#include "backends/vulkan/vulkan_internal.h"

/* Does nothing where it is not asked for, or where the queue has no timestamps. */
enum sl_status sl_vk_times_init(struct sl_vulkan *v) SL_MUST_CHECK;
void sl_vk_times_release(struct sl_vulkan *v);
/* Around a dispatch to the open command buffer of SL_QUEUE_OPS. */
void sl_vk_times_begin(struct sl_vulkan *v, VkCommandBuffer commands);
enum sl_status sl_vk_times_end(struct sl_vulkan *v, VkCommandBuffer commands,
                               enum sl_vk_kernel kernel, uint32_t variant) SL_MUST_CHECK;

#endif
