#include "cli/measure/device_bandwidth.h"

#include "backends/registry/registry.h"
#include "common/clock.h"
#include "streaming/slab.h"

#include <math.h>

#define LINK_BYTES       ((size_t)32 << 20) /* as much as weights passed through: --ram holds */
#define LEAST_BYTES      ((size_t)64 << 20)
#define MOST_BYTES       ((size_t)1 << 30)
#define MEASURE_NS       100000000u
#define COPIES_AT_A_TIME 8u

/* Copies over and over; returns the bytes that were copied in a second. */
static enum sl_status copy_rate(struct sl_device *d, enum sl_queue q, const struct sl_buffer *to,
                                const struct sl_buffer *from, double *out_rate) {
    struct sl_span dst = sl_span_all(to), src = sl_span_all(from);
    uint64_t n = 0, start = 0, now;
    enum sl_status status = sl_device_copy(d, q, dst, src); /* not the first one */
    if (status == SL_OK)
        status = sl_device_sync(d);
    start = now = sl_now_ns();
    while (status == SL_OK && now - start < MEASURE_NS) {
        for (uint32_t i = 0; i < COPIES_AT_A_TIME && status == SL_OK; i++, n++)
            status = sl_device_copy(d, q, dst, src);
        if (status == SL_OK)
            status = sl_device_sync(d);
        now = sl_now_ns();
    }
    if (status == SL_OK)
        *out_rate = (double)n * (double)dst.bytes / ((double)(now - start) * 1e-9);
    return status;
}

static enum sl_status measure_memory(struct sl_device *d, double *out_rate) {
    uint64_t free_bytes, total_bytes;
    SL_TRY(sl_device_memory(d, &free_bytes, &total_bytes));
    size_t bytes = free_bytes / 8 < LEAST_BYTES  ? LEAST_BYTES
                   : free_bytes / 8 > MOST_BYTES ? MOST_BYTES
                                                 : free_bytes / 8;
    if (d->caps.max_alloc_bytes && bytes > d->caps.max_alloc_bytes)
        bytes = d->caps.max_alloc_bytes;
    struct sl_buffer *a = NULL, *b = NULL;
    enum sl_status status = sl_device_alloc(d, bytes, &a);
    if (status == SL_OK)
        status = sl_device_alloc(d, bytes, &b);
    if (status == SL_OK)
        status = copy_rate(d, SL_QUEUE_OPS, b, a, out_rate);
    *out_rate *= 2; /* each byte is read and written */
    sl_device_free(d, &a);
    sl_device_free(d, &b);
    return status;
}

static enum sl_status measure_link(struct sl_device *d, double *out_rate, struct sl_err *why) {
    struct sl_slab slab;
    struct sl_buffer *mapped, *there = NULL;
    SL_TRY(sl_slab_init(&slab, LINK_BYTES, false, why));
    enum sl_status status = sl_device_map_host(d, slab.base, slab.size_bytes, &mapped);
    if (status == SL_OK) {
        status = sl_device_alloc(d, LINK_BYTES, &there);
        if (status == SL_OK)
            status = copy_rate(d, SL_QUEUE_UP, there, mapped, out_rate);
        sl_device_free(d, &there);
        sl_device_unmap_host(d, &mapped);
    }
    sl_slab_release(&slab);
    return status;
}

void sl_device_bandwidth(const char *id, struct sl_device_bandwidth *out, struct sl_err *why) {
    const struct sl_device_options options = {.n_threads = 1};
    struct sl_device_bandwidth b = {0, 0};
    struct sl_device *d = NULL;
    *out = b;
    if (sl_registry_open_id(id, &options, &d, why) != SL_OK)
        return;
    enum sl_status status = measure_memory(d, &b.memory);
    if (status == SL_OK)
        status = measure_link(d, &b.link, why);
    if (status == SL_OK)
        *out = b;
    else
        sl_fail(why, status, "%s: measuring its memory: %s", id, sl_status_text(status));
    sl_device_close(&d);
}

void sl_stages_bandwidth(const struct sl_engine_info *info, double ram_rate,
                         struct sl_device_bandwidth *out, struct sl_err *why) {
    double memory_s = 0, link_s = 0, layers = 0;
    *out = (struct sl_device_bandwidth){0, 0};
    for (uint32_t i = 0; i < info->n_stages; i++)
        layers += info->stages[i].n_layer;
    for (uint32_t i = 0; i < info->n_stages; i++) {
        double part = info->stages[i].n_layer / layers;
        struct sl_device_bandwidth b = {ram_rate, INFINITY};
        if (info->stages[i].discrete)
            sl_device_bandwidth(info->stages[i].id, &b, why);
        else if (ram_rate <= 0)
            sl_fail(why, SL_ERR_UNSUPPORTED, "%s: how fast RAM is read is not known",
                    info->stages[i].id);
        if (b.memory <= 0 || b.link <= 0)
            return;
        memory_s += part / b.memory;
        link_s += part / b.link;
    }
    if (layers > 0)
        *out = (struct sl_device_bandwidth){1 / memory_s, 1 / link_s};
}
