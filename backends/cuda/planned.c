/* A GPU that need not be here: what planning asks of a device, and nothing else. */
#include "backends/cuda/cuda_internal.h"

#include <stdio.h>
#include <stdlib.h>

/* What a context with the kernels' code takes of a GPU's memory (docs/ARCHITECTURE.md). */
#define CONTEXT_BYTES ((uint64_t)545 << 20)
/* Of the GPUs with 12 to 48 GB that people have: Ada's. */
#define PLANNED_CC   89u
#define SHARED_BYTES 101376u
#define STAGE_BYTES  ((uint64_t)16 << 20)
#define BYTES_PER_S  900000000000u /* of memory: layers are divided by it; cards are alike */

struct planned {
    struct sl_cuda cuda; /* without a driver */
    struct sl_backend_ops ops;
};

static void planned_close(struct sl_device *d) {
    free(d);
}

static enum sl_status planned_configure(struct sl_device *d,
                                        const struct sl_device_limits *limits) {
    (void)d, (void)limits;
    return SL_OK;
}

static enum sl_status planned_memory(struct sl_device *d, uint64_t *out_free, uint64_t *out_total) {
    const struct sl_device_caps *caps = &d->caps;
    uint64_t taken = CONTEXT_BYTES + caps->held_bytes;
    *out_total = caps->memory_bytes;
    *out_free = caps->memory_bytes > taken ? caps->memory_bytes - taken : 0;
    return SL_OK;
}

static enum sl_status planned_alloc(struct sl_device *d, struct sl_buffer *buffer) {
    (void)d, (void)buffer;
    return SL_ERR_DEVICE_OOM;
}

enum sl_status sl_cuda_planned(const struct sl_device_offer *offer, uint32_t number,
                               struct sl_device **out_device, struct sl_err *err) {
    uint64_t memory_bytes = offer->memory_bytes;
    struct planned *p = calloc(1, sizeof *p);
    if (!p)
        return sl_fail(err, SL_ERR_NOMEM, "cuda: out of memory");
    p->ops = sl_cuda_ops;
    p->ops.close = planned_close;
    p->ops.configure = planned_configure;
    p->ops.memory = planned_memory;
    p->ops.alloc = planned_alloc;
    for (uint32_t k = 0; k < SL_KERNEL_COUNT; k++) /* as a whole build has them; none is launched */
        p->cuda.kernel[k] = (struct CUfunc_st *)p;
    p->cuda.cc = PLANNED_CC;
    p->cuda.max_smem_bytes = SHARED_BYTES;
    struct sl_device *d = &p->cuda.base;
    struct sl_device_caps *caps = &d->caps;
    d->ops = &p->ops;
    snprintf(caps->model, sizeof caps->model, "a planned GPU of %.1f GiB",
             (double)memory_bytes / 0x1p30);
    sl_device_caps_set_id(caps, sl_cuda_ops.name, number, false);
    caps->kind = SL_DEVICE_DISCRETE;
    caps->memory_bytes = memory_bytes;
    caps->held_bytes = STAGE_BYTES + SL_CUDA_COUNTERS * sizeof(uint32_t);
    caps->memory_bytes_per_s = offer->memory_bytes_per_s ? offer->memory_bytes_per_s : BYTES_PER_S;
    caps->mapped_host = true;
    sl_cuda_caps(&p->cuda, caps);
    *out_device = d;
    return SL_OK;
}
