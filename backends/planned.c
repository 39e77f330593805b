#include "backends/planned.h"

#include <stdio.h>
#include <stdlib.h>

static void planned_close(struct sl_device *d) {
    free(d);
}

static enum sl_status planned_configure(struct sl_device *d,
                                        const struct sl_device_limits *limits) {
    (void)d, (void)limits;
    return SL_OK;
}

static enum sl_status planned_alloc(struct sl_device *d, struct sl_buffer *buffer) {
    (void)d, (void)buffer;
    return SL_ERR_DEVICE_OOM;
}

static enum sl_status planned_memory(struct sl_device *d, uint64_t *out_free, uint64_t *out_total) {
    const struct sl_device_caps *caps = &d->caps;
    *out_total = caps->memory_bytes;
    *out_free = caps->memory_bytes > caps->held_bytes ? caps->memory_bytes - caps->held_bytes : 0;
    return SL_OK;
}

struct sl_backend_ops sl_planned_ops(const struct sl_backend_ops *ops) {
    struct sl_backend_ops planned = *ops;
    planned.close = planned_close;
    planned.configure = planned_configure;
    planned.alloc = planned_alloc;
    planned.memory = planned_memory;
    return planned;
}

void sl_planned_gpu(struct sl_device *d, const struct sl_device_offer *offer, uint32_t number,
                    uint64_t bytes_per_s) {
    struct sl_device_caps *caps = &d->caps;
    snprintf(caps->model, sizeof caps->model, "a planned GPU of %.1f GiB",
             (double)offer->memory_bytes / 0x1p30);
    sl_device_caps_set_id(caps, d->ops->name, number, false);
    caps->kind = SL_DEVICE_DISCRETE;
    caps->memory_bytes = offer->memory_bytes;
    caps->held_bytes = offer->held_bytes;
    caps->max_alloc_bytes = offer->max_alloc_bytes;
    caps->lacks_ops = offer->lacks_ops;
    caps->memory_bytes_per_s = offer->memory_bytes_per_s ? offer->memory_bytes_per_s : bytes_per_s;
    caps->mapped_host = true;
}
