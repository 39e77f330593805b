/* Timestamps around launches; the table is in order of the time spent. */
#include "backends/vulkan/times.h"
#include "common/dtype.h"
#include "common/log.h"

#include <stdlib.h>

struct entry {
    uint64_t calls;
    double ns;
};

struct sl_vk_times {
    VkQueryPool pool;
    double ns_per_tick;
    struct entry at[SL_VK_KERNEL_COUNT][SL_DTYPE_COUNT];
};

enum sl_status sl_vk_times_init(struct sl_vulkan *v) {
    const VkQueryPoolCreateInfo info = {.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
                                        .queryType = VK_QUERY_TYPE_TIMESTAMP,
                                        .queryCount = 2};
    if (!getenv("SLUICE_TEST_KERNEL_TIMES"))
        return SL_OK;
    if (v->info.ns_per_tick <= 0) {
        sl_warn("vulkan:%u: it has no timestamps: no times of kernels", v->number);
        return SL_OK;
    }
    v->times = calloc(1, sizeof *v->times);
    if (!v->times)
        return SL_ERR_NOMEM;
    v->times->ns_per_tick = v->info.ns_per_tick;
    return sl_vk_check(v, v->vk.CreateQueryPool(v->device, &info, NULL, &v->times->pool),
                       "creating a pool of timestamps");
}

void sl_vk_times_begin(struct sl_vulkan *v, VkCommandBuffer commands) {
    v->vk.CmdResetQueryPool(commands, v->times->pool, 0, 2);
    v->vk.CmdWriteTimestamp2(commands, VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT, v->times->pool, 0);
}

enum sl_status sl_vk_times_end(struct sl_vulkan *v, VkCommandBuffer commands,
                               enum sl_vk_kernel kernel, uint32_t variant) {
    struct entry *e = &v->times->at[kernel][variant];
    uint64_t ticks[2];
    v->vk.CmdWriteTimestamp2(commands, VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT, v->times->pool, 1);
    SL_TRY(sl_vk_submit(v, SL_QUEUE_OPS));
    SL_TRY(sl_vk_await(&v->base, SL_QUEUE_OPS, v->queue[SL_QUEUE_OPS].submitted));
    SL_TRY(sl_vk_check(v,
                       v->vk.GetQueryPoolResults(v->device, v->times->pool, 0, 2, sizeof ticks,
                                                 ticks, sizeof *ticks,
                                                 VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT),
                       "reading timestamps"));
    e->calls++;
    e->ns += (double)(ticks[1] - ticks[0]) * v->times->ns_per_tick;
    return SL_OK;
}

static void print(struct sl_vulkan *v) {
    for (;;) {
        struct entry *most = NULL;
        uint32_t kernel = 0, type = 0;
        for (uint32_t k = 0; k < SL_VK_KERNEL_COUNT; k++)
            for (uint32_t t = 0; t < SL_DTYPE_COUNT; t++)
                if (v->times->at[k][t].calls && (!most || v->times->at[k][t].ns > most->ns)) {
                    most = &v->times->at[k][t];
                    kernel = k;
                    type = t;
                }
        if (!most)
            return;
        sl_info("vulkan:%u: %10.2f ms, %8llu times %8.2f us: %s %s", v->number, most->ns * 1e-6,
                (unsigned long long)most->calls, most->ns * 1e-3 / (double)most->calls,
                sl_vk_kernel_name((enum sl_vk_kernel)kernel),
                type ? sl_dtype_info(type)->name : "");
        most->calls = 0;
    }
}

void sl_vk_times_release(struct sl_vulkan *v) {
    if (!v->times)
        return;
    print(v);
    if (v->times->pool)
        v->vk.DestroyQueryPool(v->device, v->times->pool, NULL);
    free(v->times);
    v->times = NULL;
}
