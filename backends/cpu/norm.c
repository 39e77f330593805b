/* RMS norm: Zhang and Sennrich 2019. */
#include "backends/cpu/cpu_internal.h"
#include "backends/cpu/math.h"
#include "backends/ops/norm.h"

#include <math.h>

static void rms_norm_c(const float *x, const float *w, float *y, uint32_t n, float eps) {
    float inv = 1.0f / sqrtf(sl_dotf(x, x, n) / (float)n + eps);
    for (uint32_t i = 0; i < n; i++) {
        float v = x[i] * inv;
        y[i] = w ? v * w[i] : v;
    }
}

void sl_cpu_norm_init(struct sl_cpu_kernels *k) {
    k->rms_norm = rms_norm_c;
}

struct job {
    const struct sl_op_rms_norm *a;
    const struct sl_cpu_kernels *k;
};

static void rows(void *ctx, uint32_t begin, uint32_t end) {
    const struct job *j = ctx;
    const struct sl_op_rms_norm *a = j->a;
    for (size_t r = begin; r < end; r++)
        j->k->rms_norm(a->x + r * a->stride_x, a->w, a->y + r * a->stride_y, a->n, a->eps);
}

enum sl_status sl_cpu_rms_norm(struct sl_device *d, const struct sl_op_rms_norm *a) {
    struct sl_cpu *cpu = (struct sl_cpu *)d;
    struct job j = {a, &cpu->k};
    sl_cpu_for_rows(cpu, a->n_rows, a->n, rows, &j);
    return SL_OK;
}
