/* Timestamps around launches; the table is in order of the time spent. */
#include "backends/vulkan/times.h"
#include "common/dtype.h"
#include "common/log.h"

#include <stdlib.h>

#define LAUNCHES 2048u  /* between two looks at the timestamps */
#define RECORDED 32768u /* launches in graphs; what is beyond has no times */
#define GAP_NS   50e3   /* what is longer waited for the host */

struct entry {
    uint64_t calls, n_gaps;
    double ns, gap_ns; /* gaps: since the launch before it, barrier and all */
};

struct sl_vk_times {
    VkQueryPool pool;
    double ns_per_tick;
    uint32_t n;          /* launches whose timestamps have not been read */
    uint32_t n_recorded; /* behind LAUNCHES: in graphs, which have their timestamps to themselves */
    struct {
        uint16_t kernel, variant;
    } launch[LAUNCHES + RECORDED];
    uint64_t ticks[2 * RECORDED];
    struct entry at[SL_VK_KERNEL_COUNT][SL_DTYPE_COUNT];
};

enum sl_status sl_vk_times_init(struct sl_vulkan *v) {
    const VkQueryPoolCreateInfo info = {.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
                                        .queryType = VK_QUERY_TYPE_TIMESTAMP,
                                        .queryCount = 2 * (LAUNCHES + RECORDED)};
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

/* Where the next launch is in launch[]; false: there is no room. */
static bool place(const struct sl_vulkan *v, uint32_t *out_at) {
    *out_at = v->recording ? LAUNCHES + v->times->n_recorded : v->times->n;
    return !v->recording || v->times->n_recorded < RECORDED;
}

void sl_vk_times_begin(struct sl_vulkan *v, VkCommandBuffer commands) {
    uint32_t at;
    if (!place(v, &at))
        return;
    v->vk.CmdResetQueryPool(commands, v->times->pool, 2 * at, 2);
    v->vk.CmdWriteTimestamp2(commands, VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT, v->times->pool,
                             2 * at);
}

uint32_t sl_vk_times_recorded(const struct sl_vulkan *v) {
    return v->times ? v->times->n_recorded : 0;
}

/* Waits for what was launched and adds up launches [n] from `first` on. */
static enum sl_status look(struct sl_vulkan *v, uint32_t first, uint32_t n) {
    struct sl_vk_times *times = v->times;
    if (!n)
        return SL_OK;
    SL_TRY(sl_vk_submit(v, SL_QUEUE_OPS));
    SL_TRY(sl_vk_await(&v->base, SL_QUEUE_OPS, v->queue[SL_QUEUE_OPS].submitted));
    SL_TRY(sl_vk_check(v,
                       v->vk.GetQueryPoolResults(v->device, times->pool, 2 * first, 2 * n,
                                                 2 * n * sizeof *times->ticks, times->ticks,
                                                 sizeof *times->ticks,
                                                 VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT),
                       "reading timestamps"));
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t *t = &times->ticks[2 * i];
        struct entry *e =
            &times->at[times->launch[first + i].kernel][times->launch[first + i].variant];
        e->calls++;
        e->ns += (double)(t[1] - t[0]) * times->ns_per_tick;
        double gap_ns = i && t[0] > t[-1] ? (double)(t[0] - t[-1]) * times->ns_per_tick : 0;
        if (i && gap_ns < GAP_NS) {
            e->n_gaps++;
            e->gap_ns += gap_ns;
        }
    }
    return SL_OK;
}

enum sl_status sl_vk_times_end(struct sl_vulkan *v, VkCommandBuffer commands,
                               enum sl_vk_kernel kernel, uint32_t variant) {
    struct sl_vk_times *times = v->times;
    uint32_t at;
    if (!place(v, &at))
        return SL_OK;
    v->vk.CmdWriteTimestamp2(commands, VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT, times->pool,
                             2 * at + 1);
    times->launch[at].kernel = (uint16_t)kernel;
    times->launch[at].variant = (uint16_t)variant;
    if (v->recording) {
        times->n_recorded++;
        return SL_OK;
    }
    if (++times->n < LAUNCHES)
        return SL_OK;
    times->n = 0;
    return look(v, 0, LAUNCHES);
}

enum sl_status sl_vk_times_replayed(struct sl_vulkan *v, uint32_t first, uint32_t n) {
    return v->times ? look(v, LAUNCHES + first, n) : SL_OK;
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
        double gap_us = most->n_gaps ? most->gap_ns * 1e-3 / (double)most->n_gaps : 0;
        sl_info("vulkan:%u: %10.2f ms, %8llu times %8.2f us, after %5.2f: %s %s", v->number,
                most->ns * 1e-6, (unsigned long long)most->calls,
                most->ns * 1e-3 / (double)most->calls, gap_us,
                sl_vk_kernel_name((enum sl_vk_kernel)kernel),
                type ? sl_dtype_info(type)->name : "");
        most->calls = 0;
    }
}

void sl_vk_times_release(struct sl_vulkan *v) {
    if (!v->times)
        return;
    /* What was never submitted may use memory that is gone. */
    if (!v->queue[SL_QUEUE_OPS].open && !v->queue[SL_QUEUE_OPS].n_batch && look(v, 0, v->times->n))
        sl_warn("vulkan:%u: the last times of kernels are missing", v->number);
    print(v);
    if (v->times->pool)
        v->vk.DestroyQueryPool(v->device, v->times->pool, NULL);
    free(v->times);
    v->times = NULL;
}
