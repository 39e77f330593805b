/* A GPU that need not be here (backends/planned.h). */
#include "backends/planned.h"
#include "backends/level_zero/ops.h"

#include <stdlib.h>

/* What cards have, where whoever asks has not said what this one has. */
#define BYTES_PER_S 500000000000u

struct planned {
    struct sl_level_zero level_zero; /* without a driver */
    struct sl_backend_ops ops;
};

enum sl_status sl_lz_planned(const struct sl_device_offer *offer, uint32_t number,
                             struct sl_device **out_device, struct sl_err *err) {
    struct planned *p = calloc(1, sizeof *p);
    if (!p)
        return sl_fail(err, SL_ERR_NOMEM, "level_zero: out of memory");
    p->ops = sl_planned_ops(&sl_level_zero_ops);
    struct sl_device *d = &p->level_zero.base;
    d->ops = &p->ops;
    sl_planned_gpu(d, offer, number, BYTES_PER_S); /* integrated ones are not opened */
    d->caps.graphs = true;
    sl_lz_ops_caps(&d->caps);
    *out_device = d;
    return SL_OK;
}
