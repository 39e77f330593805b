/* A GPU that need not be here (backends/planned.h). */
#include "backends/cuda/cuda_internal.h"
#include "backends/planned.h"

#include <stdlib.h>

/* What a context with the kernels' code takes of a GPU's memory (docs/ARCHITECTURE.md). */
#define CONTEXT_BYTES ((uint64_t)545 << 20)
/* Of the GPUs with 12 to 48 GB that people have: Ada's. */
#define SHARED_BYTES  101376u
#define STAGING_BYTES ((uint64_t)16 << 20)
#define BYTES_PER_S   900000000000u /* of memory: layers are divided by it; cards are alike */

struct planned {
    struct sl_gpu gpu; /* without a driver */
    struct sl_backend_ops ops;
};

static enum sl_status planned_memory(struct sl_device *d, uint64_t *out_free, uint64_t *out_total) {
    const struct sl_device_caps *caps = &d->caps;
    uint64_t taken = CONTEXT_BYTES + caps->held_bytes;
    *out_total = caps->memory_bytes;
    *out_free = caps->memory_bytes > taken ? caps->memory_bytes - taken : 0;
    return SL_OK;
}

enum sl_status sl_cuda_planned(const struct sl_device_offer *offer, uint32_t number,
                               struct sl_device **out_device, struct sl_err *err) {
    struct planned *p = calloc(1, sizeof *p);
    if (!p)
        return sl_fail(err, SL_ERR_NOMEM, "cuda: out of memory");
    p->ops = sl_planned_ops(&sl_cuda_ops);
    p->ops.memory = planned_memory;
    for (uint32_t k = 0; k < SL_KERNEL_COUNT; k++) /* as a whole build has them; none is launched */
        p->gpu.kernel[k] = (struct CUfunc_st *)p;
    p->gpu.kind = &sl_cuda_kind;
    p->gpu.name = sl_cuda_kind.name;
    p->gpu.max_smem_bytes = SHARED_BYTES;
    struct sl_device *d = &p->gpu.base;
    d->ops = &p->ops;
    sl_planned_gpu(d, offer, number, BYTES_PER_S);
    if (!offer->held_bytes)
        d->caps.held_bytes = STAGING_BYTES + SL_GPU_COUNTERS * sizeof(uint32_t);
    sl_gpu_caps(&p->gpu, &d->caps);
    *out_device = d;
    return SL_OK;
}
