/* Gated linear units, of whole arrays and of what an expert makes of a row. */
#include "backends/cpu/cpu_internal.h"
#include "backends/ops/elementwise.h"

/* silu(g) is silu(g) * 1, so that the kernel of silu_mul does its exponentials. */
static void limited(const struct sl_cpu_kernels *k, const float *gate, const float *up, float *y,
                    size_t n, float limit) {
    enum { AT_ONCE = 256 };
    float one[AT_ONCE];
    for (size_t i = 0; i < AT_ONCE; i++)
        one[i] = 1;
    for (size_t from = 0; from < n; from += AT_ONCE) {
        size_t m = n - from < AT_ONCE ? n - from : AT_ONCE;
        k->silu_mul(gate + from, one, y + from, m);
        for (size_t i = from; i < from + m; i++) {
            float u = up[i] > limit ? limit : up[i];
            u = u < -limit ? -limit : u;
            y[i] = (y[i] > limit ? limit : y[i]) * u;
        }
    }
}

static void cut(const struct sl_cpu_kernels *k, const float *gate, const float *up, float *y,
                size_t n, float limit) {
    enum { AT_ONCE = 256 };
    float g[AT_ONCE], u[AT_ONCE];
    for (size_t from = 0; from < n; from += AT_ONCE) {
        size_t m = n - from < AT_ONCE ? n - from : AT_ONCE;
        for (size_t i = 0; i < m; i++) {
            g[i] = gate[from + i] > limit ? limit : gate[from + i];
            float v = up[from + i] > limit ? limit : up[from + i];
            u[i] = v < -limit ? -limit : v;
        }
        k->silu_mul(g, u, y + from, m);
    }
}

void sl_cpu_glu(const struct sl_cpu_kernels *k, enum sl_activation activation, const float *gate,
                const float *up, float *y, size_t n, float limit, float limit_up) {
    switch (activation) {
    case SL_SWIGLU:
        k->silu_mul(gate, up, y, n);
        return;
    case SL_SWIGLU_CLAMPED:
        k->swiglu_clamped(gate, up, y, n);
        return;
    case SL_GEGLU:
        k->gelu_mul(gate, up, y, n);
        return;
    case SL_SWIGLU_LIMITED:
        limited(k, gate, up, y, n, limit);
        return;
    case SL_REGLU:
        k->reglu(gate, up, y, n);
        return;
    case SL_SWIGLU_CUT:
        cut(k, gate, up, y, n, limit);
        return;
    case SL_RELU_SQUARED:
        k->relu_squared(up, y, n);
        return;
    case SL_SITU:
        k->situ(gate, up, y, n, limit, limit_up);
        return;
    }
}

/* ---- ops ---- */

#define PIECE 1024u /* elements that count as a row */

struct job {
    enum sl_activation activation;
    const float *gate, *up;
    float *y;
    size_t n;
    float limit, limit_up;
    const struct sl_cpu_kernels *k;
};

static void pieces(void *ctx, uint32_t begin, uint32_t end) {
    const struct job *j = ctx;
    size_t from = (size_t)begin * PIECE, to = (size_t)end * PIECE;
    to = to < j->n ? to : j->n;
    sl_cpu_glu(j->k, j->activation, j->gate ? j->gate + from : NULL, j->up + from, j->y + from,
               to - from, j->limit, j->limit_up);
}

static enum sl_status run(struct sl_device *d, struct job j) {
    struct sl_cpu *cpu = (struct sl_cpu *)d;
    j.k = &cpu->k;
    sl_cpu_for_rows(cpu, (uint32_t)((j.n + PIECE - 1) / PIECE), j.gate ? PIECE * 3 : PIECE, pieces,
                    &j);
    return SL_OK;
}

enum sl_status sl_cpu_silu_mul(struct sl_device *d, const struct sl_op_silu_mul *a) {
    return run(d, (struct job){SL_SWIGLU, a->gate, a->up, a->y, .n = a->n});
}

enum sl_status sl_cpu_gelu_mul(struct sl_device *d, const struct sl_op_gelu_mul *a) {
    return run(d, (struct job){SL_GEGLU, a->gate, a->up, a->y, .n = a->n});
}

enum sl_status sl_cpu_clamped_glu(struct sl_device *d, const struct sl_op_clamped_glu *a) {
    return run(d, (struct job){SL_SWIGLU_CLAMPED, a->gate, a->up, a->y, .n = a->n});
}

enum sl_status sl_cpu_limited_glu(struct sl_device *d, const struct sl_op_limited_glu *a) {
    return run(d, (struct job){SL_SWIGLU_LIMITED, a->gate, a->up, a->y, a->n, a->limit, 0, NULL});
}

enum sl_status sl_cpu_cut_glu(struct sl_device *d, const struct sl_op_cut_glu *a) {
    return run(d, (struct job){SL_SWIGLU_CUT, a->gate, a->up, a->y, a->n, a->limit, 0, NULL});
}

enum sl_status sl_cpu_relu_squared(struct sl_device *d, const struct sl_op_relu_squared *a) {
    return run(d, (struct job){SL_RELU_SQUARED, NULL, a->x, a->x, .n = a->n});
}

enum sl_status sl_cpu_situ_glu(struct sl_device *d, const struct sl_op_situ_glu *a) {
    return run(d, (struct job){SL_SITU, a->gate, a->up, a->y, a->n, a->limit, a->limit_up, NULL});
}
