/* The ops that go element by element, and the exponentials that the router shares. */
#include "backends/cpu/cpu_internal.h"
#include "backends/cpu/math.h"
#include "backends/ops/elementwise.h"
#include "backends/ops/moe.h"
#include "backends/ops/rows.h"
#include "common/fast_exp.h"

#include <math.h>
#include <string.h>

static void silu_mul_c(const float *gate, const float *up, float *y, size_t n) {
    for (size_t i = 0; i < n; i++)
        y[i] = sl_siluf(gate[i]) * up[i];
}

static void swiglu_clamped_c(const float *gate, const float *up, float *y, size_t n) {
    const float limit = SL_SWIGLU_CLAMPED_LIMIT;
    for (size_t i = 0; i < n; i++) {
        /* As MINPS and MAXPS: a NaN stays. */
        float g = limit < gate[i] ? limit : gate[i], u = limit < up[i] ? limit : up[i];
        u = -limit > u ? -limit : u;
        y[i] = g / (1.0f + sl_expf(-(SL_SWIGLU_CLAMPED_ALPHA * g))) * (u + 1.0f);
    }
}

static void gelu_mul_c(const float *gate, const float *up, float *y, size_t n) {
    for (size_t i = 0; i < n; i++)
        y[i] = sl_geluf(gate[i]) * up[i];
}

static void reglu_c(const float *gate, const float *up, float *y, size_t n) {
    for (size_t i = 0; i < n; i++)
        y[i] = (gate[i] > 0 ? gate[i] : 0.0f) * up[i];
}

static void relu_squared_c(const float *x, float *y, size_t n) {
    for (size_t i = 0; i < n; i++) {
        float v = x[i] < 0 ? 0.0f : x[i];
        y[i] = v * v;
    }
}

static void situ_c(const float *gate, const float *up, float *y, size_t n, float limit,
                   float limit_up) {
    for (size_t i = 0; i < n; i++) {
        float u = limit_up > 0 ? sl_softcapf(up[i], limit_up) : up[i];
        y[i] = sl_softcapf(gate[i], limit) * sl_sigmoidf(gate[i]) * u;
    }
}

static float norm_dot_c(const float *x, const float *w, uint32_t n, float eps) {
    return sl_dotf(x, w, n) * (1.0f / sqrtf(sl_dotf(x, x, n) / (float)n + eps));
}

static void softcap_c(float *x, float cap, size_t n) {
    for (size_t i = 0; i < n; i++)
        x[i] = sl_softcapf(x[i], cap);
}

static void add_c(const float *x, float *y, size_t n) {
    for (size_t i = 0; i < n; i++)
        y[i] += x[i];
}

static void add_scaled_c(const float *x, float s, float *y, size_t n) {
    for (size_t i = 0; i < n; i++)
        y[i] = fmaf(x[i], s, y[i]);
}

static void combine_c(const float *x, const float *w, float *y, uint32_t k, uint32_t n) {
    for (uint32_t r = 0; r < k; r++)
        add_scaled_c(x + (size_t)r * n, w[r], y, n);
}

static float softmax_c(const float *x, float *y, uint32_t n, float *out_max) {
    float max = -INFINITY;
    for (uint32_t i = 0; i < n; i++)
        max = x[i] > max ? x[i] : max;
    float part[16] = {0};
    for (uint32_t i = 0; i < n; i++) {
        y[i] = sl_expf(x[i] - max);
        part[i % 16] += y[i];
    }
    *out_max = max;
    return sl_sum16(part);
}

static void sigmoid_c(const float *x, float *y, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        y[i] = sl_sigmoidf(x[i]);
}

void sl_cpu_elementwise_init(struct sl_cpu_kernels *k) {
    k->silu_mul = silu_mul_c;
    k->swiglu_clamped = swiglu_clamped_c;
    k->gelu_mul = gelu_mul_c;
    k->reglu = reglu_c;
    k->relu_squared = relu_squared_c;
    k->situ = situ_c;
    k->norm_dot = norm_dot_c;
    k->softcap = softcap_c;
    k->add = add_c;
    k->add_scaled = add_scaled_c;
    k->combine = combine_c;
    k->softmax = softmax_c;
    k->sigmoid = sigmoid_c;
}

#define PIECE 1024u /* elements of a flat array that count as a row */

static void silu_pieces(void *ctx, uint32_t begin, uint32_t end) {
    const struct sl_op_silu *a = ctx;
    size_t from = (size_t)begin * PIECE, to = (size_t)end * PIECE;
    to = to < a->n ? to : a->n;
    for (size_t i = from; i < to; i++)
        a->x[i] = sl_siluf(a->x[i] * a->scale);
}

enum sl_status sl_cpu_silu(struct sl_device *d, const struct sl_op_silu *a) {
    sl_cpu_for_rows((struct sl_cpu *)d, (uint32_t)((a->n + PIECE - 1) / PIECE), PIECE * 8,
                    silu_pieces, (void *)a);
    return SL_OK;
}

struct scale_job {
    const struct sl_op_scale *a;
    const struct sl_cpu_kernels *k;
};

static void scale_rows(void *ctx, uint32_t begin, uint32_t end) {
    const struct scale_job *j = ctx;
    const struct sl_op_scale *a = j->a;
    float by = a->by ? *a->by : 1.0f;
    for (size_t t = begin; t < end; t++) {
        const float *x = a->x + t * a->n;
        float *y = (a->y ? a->y : a->x) + t * a->n, row = a->rows ? a->rows[t] : 1.0f;
        for (size_t i = 0; i < a->n; i++)
            y[i] = x[i] * a->scale * by * row;
        if (a->cap > 0)
            j->k->softcap(y, a->cap, a->n);
    }
}

enum sl_status sl_cpu_scale(struct sl_device *d, const struct sl_op_scale *a) {
    struct sl_cpu *cpu = (struct sl_cpu *)d;
    struct scale_job j = {a, &cpu->k};
    sl_cpu_for_rows(cpu, a->n_tok, a->n * (a->cap > 0 ? (size_t)3 : 1), scale_rows, &j);
    return SL_OK;
}

struct add_job {
    const struct sl_op_add_gated *a;
    const struct sl_cpu_kernels *k;
};

static void add_rows(void *ctx, uint32_t begin, uint32_t end) {
    const struct add_job *j = ctx;
    const struct sl_op_add_gated *a = j->a;
    size_t from = (size_t)begin * a->n, n = a->n;
    if (!a->gate) {
        j->k->add(a->x + from, a->y + from, (end - begin) * n);
        return;
    }
    for (size_t t = begin; t < end; t++)
        j->k->add_scaled(a->x + t * n, sl_sigmoidf(a->gate[t]), a->y + t * n, n);
}

enum sl_status sl_cpu_add_gated(struct sl_device *d, const struct sl_op_add_gated *a) {
    struct sl_cpu *cpu = (struct sl_cpu *)d;
    struct add_job j = {a, &cpu->k};
    sl_cpu_for_rows(cpu, a->n_tok, a->n, add_rows, &j);
    return SL_OK;
}

struct combine_job {
    const struct sl_op_moe_combine *a;
    const struct sl_cpu_kernels *k;
};

static void combine_rows(void *ctx, uint32_t begin, uint32_t end) {
    const struct combine_job *j = ctx;
    const struct sl_op_moe_combine *a = j->a;
    if (a->set)
        memset(a->y + (size_t)begin * a->n, 0, (size_t)(end - begin) * a->n * sizeof *a->y);
    for (size_t t = begin; t < end; t++)
        j->k->combine(a->pair_y + t * a->k * a->n, a->weights + t * a->k, a->y + t * a->n, a->k,
                      a->n);
}

enum sl_status sl_cpu_moe_combine(struct sl_device *d, const struct sl_op_moe_combine *a) {
    struct sl_cpu *cpu = (struct sl_cpu *)d;
    struct combine_job j = {a, &cpu->k};
    sl_cpu_for_rows(cpu, a->n_tok, (size_t)a->k * a->n, combine_rows, &j);
    return SL_OK;
}

static void gather_rows(void *ctx, uint32_t begin, uint32_t end) {
    const struct sl_op_gather_rows *a = ctx;
    for (size_t j = begin; j < end; j++)
        memcpy(a->y + j * a->n, a->x + (size_t)a->rows[j] * a->n, a->n * sizeof(float));
}

enum sl_status sl_cpu_gather_rows(struct sl_device *d, const struct sl_op_gather_rows *a) {
    struct sl_op_gather_rows copy = *a;
    sl_cpu_for_rows((struct sl_cpu *)d, a->n_out, a->n, gather_rows, &copy);
    return SL_OK;
}

static float max_of(const float *x, uint32_t n, uint32_t *out_at) {
    float top = -INFINITY;
    bool nan = false;
    for (uint32_t i = 0; i < n; i++) {
        nan = nan || isnan(x[i]);
        if (x[i] > top || (x[i] == top && !signbit(x[i])))
            top = x[i];
    }
    uint32_t at = 0;
    while (!nan && x[at] != top)
        at++;
    *out_at = at;
    return nan ? NAN : top;
}

static float sum_of_exp(const float *x, uint32_t n, float max, float inv_t) {
    float lane[16] = {0};
    if (!isfinite(max) || !(inv_t > 0))
        return 0;
    for (uint32_t i = 0; i < n; i++)
        lane[i % 16] += sl_exp_neg((x[i] - max) * inv_t);
    return sl_sum16(lane);
}

static void block_max(void *ctx, uint32_t begin, uint32_t end) {
    const struct sl_op_block_max *a = ctx;
    uint32_t n_blocks = (a->n + SL_BLOCK_MAX_ELEMS - 1) / SL_BLOCK_MAX_ELEMS;
    for (size_t i = (size_t)begin * n_blocks; i < (size_t)end * n_blocks; i++) {
        uint32_t from = (uint32_t)(i % n_blocks) * SL_BLOCK_MAX_ELEMS, left = a->n - from, at;
        uint32_t n = left < SL_BLOCK_MAX_ELEMS ? left : SL_BLOCK_MAX_ELEMS;
        const float *x = a->x + i / n_blocks * a->n + from;
        a->max[i] = max_of(x, n, &at);
        if (a->at)
            a->at[i] = at;
        if (a->sum)
            a->sum[i] = sum_of_exp(x, n, a->max[i], a->inv_t[i / n_blocks]);
    }
}

enum sl_status sl_cpu_block_max(struct sl_device *d, const struct sl_op_block_max *a) {
    struct sl_op_block_max copy = *a;
    sl_cpu_for_rows((struct sl_cpu *)d, a->n_tok, a->n, block_max, &copy);
    return SL_OK;
}
