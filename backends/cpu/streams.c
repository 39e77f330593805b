/* Hyper-connections: streams of the residual, the weights between them, and what layers read of and
 * write to them; residual attention, whose streams are what was kept. One pass over memory each:
 * the compiler's code for the definitions is as fast as any. */
#include "backends/cpu/cpu_internal.h"
#include "backends/cpu/math.h"
#include "backends/ops/streams.h"

#include <string.h>

static void spread_rows(void *ctx, uint32_t begin, uint32_t end) {
    const struct sl_op_stream_spread *a = ctx;
    for (size_t t = begin; t < end; t++)
        for (size_t s = 0; s < a->n_stream; s++)
            memcpy(a->y + (t * a->n_stream + s) * a->n, a->x + t * a->n, a->n * sizeof *a->y);
}

enum sl_status sl_cpu_stream_spread(struct sl_device *d, const struct sl_op_stream_spread *a) {
    sl_cpu_for_rows((struct sl_cpu *)d, a->n_tok, (size_t)a->n * a->n_stream, spread_rows,
                    (void *)a);
    return SL_OK;
}

/* Divides n elements, `step` apart, by their sum and eps. */
static void divide(float *x, uint32_t n, uint32_t step, float eps) {
    float sum = x[0];
    for (uint32_t i = 1; i < n; i++)
        sum += x[i * step];
    sum += eps;
    for (uint32_t i = 0; i < n; i++)
        x[i * step] /= sum;
}

/* x [n, n]: how much of each stream goes to each. */
static void mix(const struct sl_op_stream_weights *a, float *x, const float *base) {
    uint32_t n = a->n_stream;
    for (uint32_t s = 0; s < n; s++) {
        float *row = x + s * n, max = -INFINITY, sum = 0;
        for (uint32_t d = 0; d < n; d++) {
            row[d] = row[d] * a->scale[2] + base[s * n + d];
            max = row[d] > max ? row[d] : max;
        }
        for (uint32_t d = 0; d < n; d++) {
            row[d] = sl_expf(row[d] - max);
            sum = d ? sum + row[d] : row[d];
        }
        for (uint32_t d = 0; d < n; d++)
            row[d] = row[d] / sum + a->eps;
    }
    for (uint32_t i = 0; i < a->n_iter; i++) {
        for (uint32_t s = 0; i && s < n; s++)
            divide(x + s * n, n, 1, a->eps);
        for (uint32_t d = 0; d < n; d++)
            divide(x + d, n, n, a->eps);
    }
}

static void weight_rows(void *ctx, uint32_t begin, uint32_t end) {
    const struct sl_op_stream_weights *a = ctx;
    uint32_t n = a->n_stream, width = a->only_read ? n : SL_STREAM_WEIGHTS(n);
    for (size_t t = begin; t < end; t++) {
        float *x = a->x + t * width;
        for (uint32_t i = 0; i < n; i++)
            x[i] = sl_sigmoidf(x[i] * a->scale[0] + a->base[i]) + a->eps;
        if (a->only_read)
            continue;
        for (uint32_t i = n; i < 2 * n; i++)
            x[i] = 2 * sl_sigmoidf(x[i] * a->scale[1] + a->base[i]);
        mix(a, x + 2 * n, a->base + 2 * n);
    }
}

enum sl_status sl_cpu_stream_weights(struct sl_device *d, const struct sl_op_stream_weights *a) {
    size_t work = a->only_read ? a->n_stream * 8
                               : SL_STREAM_WEIGHTS(a->n_stream) * (8 + 4 * (size_t)a->n_iter);
    sl_cpu_for_rows((struct sl_cpu *)d, a->n_tok, work, weight_rows, (void *)a);
    return SL_OK;
}

static void read_rows(void *ctx, uint32_t begin, uint32_t end) {
    const struct sl_op_stream_read *a = ctx;
    for (size_t t = begin; t < end; t++) {
        const float *w = a->w + t * a->stride_w;
        float *y = a->y + t * a->n;
        for (size_t s = 0; s < a->n_stream; s++) {
            const float *x = a->x + (t * a->n_stream + s) * a->n;
            for (size_t i = 0; i < a->n; i++)
                y[i] = s ? fmaf(w[s], x[i], y[i]) : w[s] * x[i];
        }
    }
}

enum sl_status sl_cpu_stream_read(struct sl_device *d, const struct sl_op_stream_read *a) {
    sl_cpu_for_rows((struct sl_cpu *)d, a->n_tok, (size_t)a->n * a->n_stream, read_rows, (void *)a);
    return SL_OK;
}

/* So many elements of every stream at a time, which then stay in the nearest cache. */
#define AT_ONCE 256u

static void write_part(const struct sl_op_stream_write *a, size_t t, uint32_t from, uint32_t m) {
    uint32_t n = a->n_stream;
    const float *w = a->w + t * SL_STREAM_WEIGHTS(n), *y = a->y + t * a->n + from;
    float old[SL_MAX_STREAMS][AT_ONCE], *x = a->x + t * n * a->n + from;
    for (uint32_t s = 0; s < n; s++)
        memcpy(old[s], x + (size_t)s * a->n, m * sizeof *x);
    for (uint32_t d = 0; d < n; d++) {
        float *out = x + (size_t)d * a->n;
        for (uint32_t i = 0; i < m; i++)
            out[i] = w[n + d] * y[i];
        for (uint32_t s = 0; s < n; s++) {
            float by = w[2 * n + s * n + d];
            for (uint32_t i = 0; i < m; i++)
                out[i] = fmaf(by, old[s][i], out[i]);
        }
    }
}

static void write_rows(void *ctx, uint32_t begin, uint32_t end) {
    const struct sl_op_stream_write *a = ctx;
    for (size_t t = begin; t < end; t++)
        for (uint32_t i = 0; i < a->n; i += AT_ONCE)
            write_part(a, t, i, a->n - i < AT_ONCE ? a->n - i : AT_ONCE);
}

enum sl_status sl_cpu_stream_write(struct sl_device *d, const struct sl_op_stream_write *a) {
    sl_cpu_for_rows((struct sl_cpu *)d, a->n_tok, (size_t)a->n * a->n_stream * a->n_stream,
                    write_rows, (void *)a);
    return SL_OK;
}

struct attend_job {
    const struct sl_op_stream_attend *a;
    const struct sl_cpu_kernels *k;
};

static void attend_rows(void *ctx, uint32_t begin, uint32_t end) {
    const struct attend_job *j = ctx;
    const struct sl_op_stream_attend *a = j->a;
    uint32_t m = a->n_kept + 1;
    float p[SL_MAX_ATTENDED];
    for (size_t t = begin; t < end; t++) {
        const float *x = a->x + t * a->n_stream * a->n;
        float max = -INFINITY, sum = 0, *y = a->y + t * a->n;
        for (uint32_t s = 0; s < m; s++) {
            p[s] = j->k->norm_dot(x + (size_t)s * a->n, a->w, a->n, a->eps);
            max = p[s] > max ? p[s] : max;
        }
        for (uint32_t s = 0; s < m; s++) {
            p[s] = sl_expf(p[s] - max);
            sum = s ? sum + p[s] : p[s];
        }
        for (uint32_t s = 0; s < m; s++)
            p[s] /= sum;
        memset(y, 0, a->n * sizeof *y);
        j->k->combine(x, p, y, m, a->n);
    }
}

enum sl_status sl_cpu_stream_attend(struct sl_device *d, const struct sl_op_stream_attend *a) {
    struct sl_cpu *cpu = (struct sl_cpu *)d;
    struct attend_job j = {a, &cpu->k};
    sl_cpu_for_rows(cpu, a->n_tok, (size_t)a->n * (a->n_kept + 1) * 2, attend_rows, &j);
    return SL_OK;
}

struct keep_job {
    const struct sl_op_stream_keep *a;
    const struct sl_cpu_kernels *k;
};

static void keep_rows(void *ctx, uint32_t begin, uint32_t end) {
    const struct keep_job *j = ctx;
    const struct sl_op_stream_keep *a = j->a;
    for (size_t t = begin; t < end; t++) {
        float *x = a->x + t * a->n_stream * a->n;
        const float *y = a->y + t * a->n;
        if (!a->to) {
            j->k->add(y, x, a->n);
            continue;
        }
        memcpy(x + (size_t)a->to * a->n, x, a->n * sizeof *x);
        memcpy(x, y, a->n * sizeof *x);
    }
}

enum sl_status sl_cpu_stream_keep(struct sl_device *d, const struct sl_op_stream_keep *a) {
    struct sl_cpu *cpu = (struct sl_cpu *)d;
    struct keep_job j = {a, &cpu->k};
    sl_cpu_for_rows(cpu, a->n_tok, (size_t)a->n * 2, keep_rows, &j);
    return SL_OK;
}

struct mean_job {
    const struct sl_op_stream_mean *a;
    const struct sl_cpu_kernels *k;
};

static void mean_part(const struct mean_job *j, size_t t, uint32_t from, uint32_t m) {
    const struct sl_op_stream_mean *a = j->a;
    float by = 1.0f / (float)a->n_stream, gate[AT_ONCE], *y = a->y + t * a->n + from;
    for (size_t s = 0; s < a->n_stream; s++) {
        size_t at = (t * a->n_stream + s) * a->n + from;
        j->k->sigmoid(a->gate + at, gate, m);
        for (uint32_t i = 0; i < m; i++)
            y[i] = s ? fmaf(a->x[at + i], gate[i], y[i]) : a->x[at + i] * gate[i];
    }
    for (uint32_t i = 0; i < m; i++)
        y[i] *= by;
}

static void mean_rows(void *ctx, uint32_t begin, uint32_t end) {
    const struct mean_job *j = ctx;
    uint32_t n = j->a->n;
    for (size_t t = begin; t < end; t++)
        for (uint32_t i = 0; i < n; i += AT_ONCE)
            mean_part(j, t, i, n - i < AT_ONCE ? n - i : AT_ONCE);
}

enum sl_status sl_cpu_stream_mean(struct sl_device *d, const struct sl_op_stream_mean *a) {
    struct sl_cpu *cpu = (struct sl_cpu *)d;
    struct mean_job j = {a, &cpu->k};
    sl_cpu_for_rows(cpu, a->n_tok, (size_t)a->n * a->n_stream * 3, mean_rows, &j);
    return SL_OK;
}

static void inject_rows(void *ctx, uint32_t begin, uint32_t end) {
    const struct sl_op_stream_inject *a = ctx;
    float by = 1.0f / (float)a->n_stream;
    for (size_t t = begin; t < end; t++)
        for (size_t s = 0; s < a->n_stream; s++) {
            float w = 2 * sl_sigmoidf(a->w[t * a->n_stream + s] * by);
            const float *y = a->y + t * a->n;
            float *x = a->x + (t * a->n_stream + s) * a->n;
            for (size_t i = 0; i < a->n; i++)
                x[i] = fmaf(w, y[i], x[i]);
        }
}

enum sl_status sl_cpu_stream_inject(struct sl_device *d, const struct sl_op_stream_inject *a) {
    sl_cpu_for_rows((struct sl_cpu *)d, a->n_tok, (size_t)a->n * a->n_stream, inject_rows,
                    (void *)a);
    return SL_OK;
}
