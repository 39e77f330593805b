/* Small ops on whole rows: gates of heads, temperature by position, centring, biases, clamping. One
 * pass over memory each: the compiler's code for the definitions is as fast as any. */
#include "backends/cpu/cpu_internal.h"
#include "backends/cpu/math.h"
#include "backends/ops/elementwise.h"
#include "backends/ops/norm.h"

#include <math.h>

static void gate_rows(void *ctx, uint32_t begin, uint32_t end) {
    const struct sl_op_gate_heads *a = ctx;
    for (size_t r = (size_t)begin * a->n_heads; r < (size_t)end * a->n_heads; r++) {
        float *y = a->y + r * a->n;
        if (!a->per_head) {
            for (size_t i = 0; i < a->n; i++) {
                float g = a->gate[r * a->n + i];
                y[i] *= a->softplus ? sl_softplusf(g) : sl_sigmoidf(g);
            }
            continue;
        }
        float g = a->softplus ? sl_softplusf(a->gate[r]) : sl_sigmoidf(a->gate[r]);
        for (size_t i = 0; i < a->n; i++)
            y[i] *= g;
    }
}

enum sl_status sl_cpu_gate_heads(struct sl_device *d, const struct sl_op_gate_heads *a) {
    struct sl_cpu *cpu = (struct sl_cpu *)d;
    size_t work = (size_t)a->n_heads * a->n * (a->per_head ? 1 : 8);
    sl_cpu_for_rows(cpu, a->n_tok, work, gate_rows, (void *)a);
    return SL_OK;
}

static void temper_rows(void *ctx, uint32_t begin, uint32_t end) {
    const struct sl_op_temper *a = ctx;
    for (size_t t = begin; t < end; t++) {
        double k = floor(((double)a->pos[t] + a->offset) / a->span) + 1;
        float by = (float)(1 + (double)a->scale * (k > 1 ? sl_ln(k) : 0));
        for (size_t i = 0; i < a->n; i++)
            a->x[t * a->n + i] *= by;
    }
}

enum sl_status sl_cpu_temper(struct sl_device *d, const struct sl_op_temper *a) {
    sl_cpu_for_rows((struct sl_cpu *)d, a->n_tok, a->n, temper_rows, (void *)a);
    return SL_OK;
}

static void center_rows(void *ctx, uint32_t begin, uint32_t end) {
    const struct sl_op_center *a = ctx;
    for (size_t t = begin; t < end; t++) {
        const float *x = a->x + t * a->n;
        float part[16] = {0};
        for (uint32_t i = 0; i < a->n; i++)
            part[i % 16] += x[i];
        float mean = sl_sum16(part) / (float)a->n;
        for (size_t i = 0; i < a->n; i++)
            a->y[t * a->n + i] = x[i] - mean;
    }
}

static void bias_rows(void *ctx, uint32_t begin, uint32_t end) {
    const struct sl_op_bias *a = ctx;
    for (size_t t = begin; t < end; t++)
        for (size_t i = 0; i < a->n; i++)
            a->x[t * a->n + i] += a->b[i];
}

enum sl_status sl_cpu_bias(struct sl_device *d, const struct sl_op_bias *a) {
    sl_cpu_for_rows((struct sl_cpu *)d, a->n_tok, a->n, bias_rows, (void *)a);
    return SL_OK;
}

enum sl_status sl_cpu_center(struct sl_device *d, const struct sl_op_center *a) {
    sl_cpu_for_rows((struct sl_cpu *)d, a->n_tok, (size_t)a->n * 2, center_rows, (void *)a);
    return SL_OK;
}

#define PIECE 4096u
static void clamp_pieces(void *ctx, uint32_t begin, uint32_t end) {
    const struct sl_op_clamp *a = ctx;
    size_t to = (size_t)end * PIECE;
    for (size_t i = (size_t)begin * PIECE; i < (to < a->n ? to : a->n); i++) {
        float v = a->x[i];
        v = v > a->limit ? a->limit : v;
        a->x[i] = v < -a->limit ? -a->limit : v;
    }
}

enum sl_status sl_cpu_clamp(struct sl_device *d, const struct sl_op_clamp *a) {
    sl_cpu_for_rows((struct sl_cpu *)d, (uint32_t)((a->n + PIECE - 1) / PIECE), PIECE, clamp_pieces,
                    (void *)a);
    return SL_OK;
}

struct gelu_job {
    const struct sl_op_gelu_rows *a;
    const struct sl_cpu_kernels *k;
};

static void gelu_some(void *ctx, uint32_t begin, uint32_t end) {
    const struct gelu_job *j = ctx;
    const struct sl_op_gelu_rows *a = j->a;
    for (size_t t = begin; t < end; t++)
        j->k->gelu_mul(a->gate + t * a->n,
                       a->up + (size_t)(a->rows ? a->rows[t] : t) * a->stride_up, a->y + t * a->n,
                       a->n);
}

enum sl_status sl_cpu_gelu_rows(struct sl_device *d, const struct sl_op_gelu_rows *a) {
    struct sl_cpu *cpu = (struct sl_cpu *)d;
    sl_cpu_for_rows(cpu, a->n_tok, (size_t)a->n * 8, gelu_some, &(struct gelu_job){a, &cpu->k});
    return SL_OK;
}
