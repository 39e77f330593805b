/* Ops of layers whose state is replaced by every row: convolution, delta rule, and the small ones
 * around them. */
#include "backends/cpu/cpu_internal.h"
#include "backends/cpu/conv.h"
#include "backends/cpu/math.h"
#include "backends/ops/elementwise.h"
#include "backends/ops/kv.h"
#include "backends/ops/norm.h"
#include "backends/ops/recurrent.h"

#include <math.h>
#include <string.h>

#define PAGE SL_KV_PAGE_TOKENS

static void mul_sigmoid_c(const float *gate, float *y, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        y[i] *= sl_sigmoidf(gate[i]);
}

static void l2_norm_c(float *x, uint32_t n, float eps) {
    float inv = 1.0f / sqrtf(sl_dotf(x, x, n) + eps);
    for (uint32_t i = 0; i < n; i++)
        x[i] *= inv;
}

static void conv_silu_c(const float *const *x, const float *w, uint32_t stride_w, const float *bias,
                        float *y, uint32_t n_taps, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        float sum = bias[i];
        for (uint32_t k = 0; k < n_taps; k++)
            sum = fmaf(x[k][i], w[k * stride_w + i], sum);
        y[i] = sl_siluf(sum);
    }
}

static void short_conv_c(const float *const *x, const float *w, uint32_t stride_w,
                         const float *gate, float *y, uint32_t n_taps, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        float sum = 0;
        for (uint32_t k = 0; k < n_taps; k++)
            sum = fmaf(x[k][i], w[k * stride_w + i], sum);
        y[i] = gate[i] * sum;
    }
}

static void delta_rule_c(const struct sl_cpu_delta_row *r, const float *from, float *to,
                         uint32_t n) {
    for (uint32_t j = 0; j < n; j++) {
        float sum = 0, out = 0;
        for (uint32_t i = 0; i < r->n_k; i++)
            sum = fmaf(from[(size_t)i * r->stride_s + j], r->k[i], sum);
        float d = (r->v[j] - r->g * sum) * r->b;
        for (uint32_t i = 0; i < r->n_k; i++) {
            size_t at = (size_t)i * r->stride_s + j;
            float s = fmaf(r->k[i], d, r->g * from[at]);
            out = fmaf(s, r->q[i], out);
            to[at] = s;
        }
        r->y[j] = out * r->scale;
    }
}

static void channel_delta_c(const struct sl_cpu_channel_delta_row *r, const float *from, float *to,
                            uint32_t n) {
    for (uint32_t j = 0; j < n; j++) {
        float sum = 0, out = 0;
        for (uint32_t i = 0; i < r->n_k; i++)
            sum = fmaf(r->g[i] * from[(size_t)i * r->stride_s + j], r->k[i], sum);
        float d = (r->v[j] - sum) * r->b;
        for (uint32_t i = 0; i < r->n_k; i++) {
            size_t at = (size_t)i * r->stride_s + j;
            float s = fmaf(r->k[i], d, r->g[i] * from[at]);
            out = fmaf(s, r->q[i], out);
            to[at] = s;
        }
        r->y[j] = out * r->scale;
    }
}

static void state_scan_c(const struct sl_cpu_scan_row *r, const float *from, float *to,
                         uint32_t n) {
    for (uint32_t j = 0; j < n; j++) {
        float sum = 0, u = r->d * r->x[j];
        for (uint32_t i = 0; i < r->n_state; i++) {
            size_t at = (size_t)i * r->stride_s + j;
            float s = fmaf(r->b[i], u, r->g * from[at]);
            sum = fmaf(s, r->c[i], sum);
            to[at] = s;
        }
        r->y[j] = fmaf(r->skip, r->x[j], sum);
    }
}

static void channel_scan_c(const struct sl_cpu_channel_row *r, const float *from, float *to,
                           uint32_t n) {
    for (uint32_t j = 0; j < n; j++) {
        float sum = 0, d = r->d[j], u = d * r->x[j];
        for (uint32_t i = 0; i < r->n_state; i++) {
            size_t at = (size_t)i * r->stride_s + j;
            float g = sl_expf(r->a[(size_t)i * r->stride_a + j] * d);
            float s = fmaf(r->b[i], u, g * from[at]);
            sum = fmaf(s, r->c[i], sum);
            to[at] = s;
        }
        r->y[j] = fmaf(r->skip[j], r->x[j], sum);
    }
}

void sl_cpu_recurrent_init(struct sl_cpu_kernels *k) {
    k->mul_sigmoid = mul_sigmoid_c;
    k->l2_norm = l2_norm_c;
    k->conv_silu = conv_silu_c;
    k->short_conv = short_conv_c;
    k->delta_rule = delta_rule_c;
    k->channel_delta = channel_delta_c;
    k->state_scan = state_scan_c;
    k->channel_scan = channel_scan_c;
}

/* ---- by rows ---- */

struct gate_job {
    const struct sl_op_mul_sigmoid *a;
    const struct sl_cpu_kernels *k;
};

static void gate_rows(void *ctx, uint32_t begin, uint32_t end) {
    const struct gate_job *j = ctx;
    const struct sl_op_mul_sigmoid *a = j->a;
    for (size_t r = begin; r < end; r++)
        j->k->mul_sigmoid(a->gate + r * a->stride_gate, a->y + r * a->n, a->n);
}

enum sl_status sl_cpu_mul_sigmoid(struct sl_device *d, const struct sl_op_mul_sigmoid *a) {
    struct sl_cpu *cpu = (struct sl_cpu *)d;
    struct gate_job j = {a, &cpu->k};
    sl_cpu_for_rows(cpu, a->n_rows, (size_t)a->n * 3, gate_rows, &j);
    return SL_OK;
}

struct l2_job {
    const struct sl_op_l2_norm *a;
    const struct sl_cpu_kernels *k;
};

static void l2_rows(void *ctx, uint32_t begin, uint32_t end) {
    const struct l2_job *j = ctx;
    const struct sl_op_l2_norm *a = j->a;
    for (size_t t = begin; t < end; t++)
        for (size_t h = 0; h < a->n_heads; h++)
            j->k->l2_norm(a->x + t * a->stride + h * a->head_dim, a->head_dim, a->eps);
}

enum sl_status sl_cpu_l2_norm(struct sl_device *d, const struct sl_op_l2_norm *a) {
    struct sl_cpu *cpu = (struct sl_cpu *)d;
    struct l2_job j = {a, &cpu->k};
    sl_cpu_for_rows(cpu, a->n_tok, (size_t)a->n_heads * a->head_dim * 2, l2_rows, &j);
    return SL_OK;
}

/* ---- by sequences ---- */

/* A part of a state: n_rows rows of n elements, stride apart, from element `at` of a page on. The
 * one behind row t; *out_from: the one before it. If there is none that is zeros, at the same
 * place as the result. */
static float *state_of(const struct sl_state_view *s, size_t t, size_t at, uint32_t n_rows,
                       size_t stride, uint32_t n, const float **out_from) {
    const float *from = sl_cpu_state_before(s, (uint32_t)t);
    float *to = (float *)sl_cpu_state_behind(s, (uint32_t)t) + at;
    for (uint32_t i = 0; !from && i < n_rows; i++)
        memset(to + i * stride, 0, n * sizeof *to);
    *out_from = from ? from + at : to;
    return to;
}

struct conv_job {
    const struct sl_op_conv_silu *a;
    const struct sl_cpu_kernels *k;
};

/* Channels [c, c + n) of all rows. */
static void conv_channels(const struct conv_job *j, uint32_t c, uint32_t n) {
    const struct sl_op_conv_silu *a = j->a;
    float w[SL_CONV_MAX_TAPS * SL_CONV_COLS], old[(SL_CONV_MAX_TAPS - 1) * SL_CONV_COLS];
    float bias[SL_CONV_COLS];
    const float *x[SL_CONV_MAX_TAPS];
    struct sl_conv_inputs in = {&a->state, a->x, old, a->n, c, n, a->n_taps - 1, 0};
    sl_conv_weights(a->w, a->n_taps, c, n, w);
    for (uint32_t i = 0; i < n; i++)
        bias[i] = a->bias ? a->bias[c + i] : 0;
    for (uint32_t t = 0; t < a->n_tok; t++) {
        sl_conv_go_to(&in, t);
        for (uint32_t k = 0; k < a->n_taps; k++)
            x[k] = sl_conv_input(&in, t, a->n_taps - 1 - k);
        j->k->conv_silu(x, w, SL_CONV_COLS, bias, a->y + (size_t)t * a->n + c, a->n_taps, n);
        sl_conv_keep(&in, t, a->n_tok);
    }
}

static void conv_blocks(void *ctx, uint32_t begin, uint32_t end) {
    const struct conv_job *j = ctx;
    for (uint32_t b = begin; b < end; b++) {
        uint32_t c = b * SL_CONV_COLS, left = j->a->n - c;
        conv_channels(j, c, left < SL_CONV_COLS ? left : SL_CONV_COLS);
    }
}

enum sl_status sl_cpu_conv_silu(struct sl_device *d, const struct sl_op_conv_silu *a) {
    struct sl_cpu *cpu = (struct sl_cpu *)d;
    struct conv_job j = {a, &cpu->k};
    sl_cpu_for_rows(cpu, (a->n + SL_CONV_COLS - 1) / SL_CONV_COLS,
                    (size_t)a->n_tok * a->n_taps * SL_CONV_COLS, conv_blocks, &j);
    return SL_OK;
}

struct short_conv_job {
    const struct sl_op_short_conv *a;
    const struct sl_cpu_kernels *k;
};

/* Channels [c, c + n) of all rows. The products of the last n_taps positions are kept here, since
 * the state's page may be written before the last row that needs it has been computed. */
static void short_conv_channels(const struct short_conv_job *j, uint32_t c, uint32_t n) {
    const struct sl_op_short_conv *a = j->a;
    float w[SL_CONV_MAX_TAPS * SL_CONV_COLS], kept[SL_CONV_MAX_TAPS][SL_CONV_COLS];
    const float *p[SL_CONV_MAX_TAPS];
    uint32_t n_old = a->n_taps - 1, last = 0; /* kept[last]: of the newest row; older ones before */
    sl_conv_weights(a->w, a->n_taps, c, n, w);
    for (uint32_t t = 0; t < a->n_tok; t++) {
        const float *b = a->x + (size_t)t * 3 * a->n + c, *gate = b + a->n, *v = gate + a->n;
        if (!sl_cpu_follows(&a->state, t)) {
            const float *from = sl_cpu_state_before(&a->state, t);
            last = n_old - 1;
            for (uint32_t k = 0; k < n_old; k++)
                if (from)
                    memcpy(kept[k], from + (size_t)k * a->n + c, n * sizeof *from);
                else
                    memset(kept[k], 0, n * sizeof *from);
        }
        last = (last + 1) % a->n_taps;
        for (uint32_t i = 0; i < n; i++)
            kept[last][i] = b[i] * v[i];
        for (uint32_t k = 0; k < a->n_taps; k++)
            p[k] = kept[(last + 1 + k) % a->n_taps];
        j->k->short_conv(p, w, SL_CONV_COLS, gate, a->y + (size_t)t * a->n + c, a->n_taps, n);
        if (!sl_cpu_is_kept(&a->state, t, a->n_tok))
            continue;
        float *to = sl_cpu_state_behind(&a->state, t);
        for (uint32_t k = 0; k < n_old; k++)
            memcpy(to + (size_t)k * a->n + c, p[k + 1], n * sizeof *to);
    }
}

static void short_conv_blocks(void *ctx, uint32_t begin, uint32_t end) {
    const struct short_conv_job *j = ctx;
    for (uint32_t b = begin; b < end; b++) {
        uint32_t c = b * SL_CONV_COLS, left = j->a->n - c;
        short_conv_channels(j, c, left < SL_CONV_COLS ? left : SL_CONV_COLS);
    }
}

enum sl_status sl_cpu_short_conv(struct sl_device *d, const struct sl_op_short_conv *a) {
    struct sl_cpu *cpu = (struct sl_cpu *)d;
    struct short_conv_job j = {a, &cpu->k};
    sl_cpu_for_rows(cpu, (a->n + SL_CONV_COLS - 1) / SL_CONV_COLS,
                    (size_t)a->n_tok * (a->n_taps + 2) * SL_CONV_COLS, short_conv_blocks, &j);
    return SL_OK;
}

struct delta_job {
    const struct sl_op_delta_rule *a;
    const struct sl_cpu_kernels *k;
    uint32_t n_blocks; /* of columns in a head */
};

/* Columns [c, c + n) of a head in all rows. */
static void delta_columns(const struct delta_job *j, uint32_t h, uint32_t c, uint32_t n) {
    const struct sl_op_delta_rule *a = j->a;
    uint32_t h_k = a->grouped ? h / (a->n_heads / a->n_heads_k) : h % a->n_heads_k;
    size_t gate = (size_t)(h / a->gate_group) * a->gate_group_stride + h % a->gate_group;
    size_t in_state = (size_t)h * a->head_dim_k * a->head_dim_v + c;
    for (size_t t = 0; t < a->n_tok; t++) {
        float alpha = a->alpha[t * a->stride_gate + gate];
        size_t v = (size_t)h * a->head_dim_v + c;
        struct sl_cpu_delta_row r = {
            .q = a->q + t * a->stride + (size_t)h_k * a->head_dim_k,
            .k = a->k + t * a->stride + (size_t)h_k * a->head_dim_k,
            .v = a->v + t * a->stride + v,
            .y = a->y + t * a->n_heads * a->head_dim_v + v,
            .n_k = a->head_dim_k,
            .stride_s = a->head_dim_v,
            .g = sl_expf(a->a[h] * sl_softplusf(alpha + a->dt[h])),
            .b = sl_sigmoidf(a->beta[t * a->stride_gate + gate]),
            .scale = a->scale,
        };
        const float *from;
        float *to = state_of(&a->state, t, in_state, a->head_dim_k, a->head_dim_v, n, &from);
        j->k->delta_rule(&r, from, to, n);
    }
}

static void delta_blocks(void *ctx, uint32_t begin, uint32_t end) {
    const struct delta_job *j = ctx;
    for (uint32_t b = begin; b < end; b++) {
        uint32_t c = b % j->n_blocks * SL_CPU_DELTA_COLS, left = j->a->head_dim_v - c;
        delta_columns(j, b / j->n_blocks, c, left < SL_CPU_DELTA_COLS ? left : SL_CPU_DELTA_COLS);
    }
}

enum sl_status sl_cpu_delta_rule(struct sl_device *d, const struct sl_op_delta_rule *a) {
    struct sl_cpu *cpu = (struct sl_cpu *)d;
    uint32_t n_blocks = (a->head_dim_v + SL_CPU_DELTA_COLS - 1) / SL_CPU_DELTA_COLS;
    struct delta_job j = {a, &cpu->k, n_blocks};
    sl_cpu_for_rows(cpu, a->n_heads * n_blocks,
                    (size_t)a->n_tok * a->head_dim_k * SL_CPU_DELTA_COLS * 2, delta_blocks, &j);
    return SL_OK;
}

struct channel_delta_job {
    const struct sl_op_channel_delta *a;
    const struct sl_cpu_kernels *k;
};

/* A head in all rows, so that its decays are computed once. */
static void channel_delta_head(const struct channel_delta_job *j, uint32_t h) {
    const struct sl_op_channel_delta *a = j->a;
    uint32_t n_k = a->head_dim_k, n_v = a->head_dim_v;
    size_t in_state = (size_t)h * n_k * n_v;
    float g[SL_CHANNEL_DELTA_MAX];
    for (size_t t = 0; t < a->n_tok; t++) {
        size_t at_k = (t * a->n_heads + h) * n_k, at_v = (t * a->n_heads + h) * n_v;
        for (uint32_t i = 0; i < n_k; i++) {
            float x = a->alpha[at_k + i] + a->dt[(size_t)h * n_k + i];
            g[i] = sl_expf(a->bound < 0 ? a->bound * sl_sigmoidf(fabsf(a->a[h]) * x)
                                        : a->a[h] * sl_softplusf(x));
        }
        struct sl_cpu_channel_delta_row r = {.q = a->q + at_k,
                                             .k = a->k + at_k,
                                             .v = a->v + at_v,
                                             .g = g,
                                             .y = a->y + at_v,
                                             .n_k = n_k,
                                             .stride_s = n_v,
                                             .b = sl_sigmoidf(a->beta[t * a->n_heads + h]),
                                             .scale = a->scale};
        const float *from;
        float *to = state_of(&a->state, t, in_state, n_k, n_v, n_v, &from);
        j->k->channel_delta(&r, from, to, n_v);
    }
}

static void channel_delta_heads(void *ctx, uint32_t begin, uint32_t end) {
    for (uint32_t h = begin; h < end; h++)
        channel_delta_head(ctx, h);
}

enum sl_status sl_cpu_channel_delta(struct sl_device *d, const struct sl_op_channel_delta *a) {
    struct sl_cpu *cpu = (struct sl_cpu *)d;
    struct channel_delta_job j = {a, &cpu->k};
    sl_cpu_for_rows(cpu, a->n_heads, (size_t)a->n_tok * a->head_dim_k * (a->head_dim_v + 16) * 2,
                    channel_delta_heads, &j);
    return SL_OK;
}

struct scan_job {
    const struct sl_op_state_scan *a;
    const struct sl_cpu_kernels *k;
    uint32_t n_blocks; /* of columns in a head */
};

/* Columns [c, c + n) of a head in all rows. */
static void scan_columns(const struct scan_job *j, uint32_t h, uint32_t c, uint32_t n) {
    const struct sl_op_state_scan *a = j->a;
    size_t group = (size_t)(h / (a->n_heads / a->n_groups)) * a->n_state;
    size_t in_state = (size_t)h * a->n_state * a->head_dim + c;
    size_t at = (size_t)h * a->head_dim + c;
    for (size_t t = 0; t < a->n_tok; t++) {
        float d = sl_softplusf(a->dt[t * a->n_heads + h] + a->dt_bias[h]);
        struct sl_cpu_scan_row r = {
            .b = a->b + t * a->stride + group,
            .c = a->c + t * a->stride + group,
            .x = a->x + t * a->stride + at,
            .y = a->y + t * a->n_heads * a->head_dim + at,
            .n_state = a->n_state,
            .stride_s = a->head_dim,
            .g = sl_expf(a->a[h] * d),
            .d = d,
            .skip = a->skip[h],
        };
        const float *from;
        float *to = state_of(&a->state, t, in_state, a->n_state, a->head_dim, n, &from);
        j->k->state_scan(&r, from, to, n);
    }
}

static void scan_blocks(void *ctx, uint32_t begin, uint32_t end) {
    const struct scan_job *j = ctx;
    for (uint32_t b = begin; b < end; b++) {
        uint32_t c = b % j->n_blocks * SL_CPU_DELTA_COLS, left = j->a->head_dim - c;
        scan_columns(j, b / j->n_blocks, c, left < SL_CPU_DELTA_COLS ? left : SL_CPU_DELTA_COLS);
    }
}

enum sl_status sl_cpu_state_scan(struct sl_device *d, const struct sl_op_state_scan *a) {
    struct sl_cpu *cpu = (struct sl_cpu *)d;
    uint32_t n_blocks = (a->head_dim + SL_CPU_DELTA_COLS - 1) / SL_CPU_DELTA_COLS;
    struct scan_job j = {a, &cpu->k, n_blocks};
    sl_cpu_for_rows(cpu, a->n_heads * n_blocks, (size_t)a->n_tok * a->n_state * SL_CPU_DELTA_COLS,
                    scan_blocks, &j);
    return SL_OK;
}

#define CHANNEL_COLS 64u

struct channel_job {
    const struct sl_op_channel_scan *a;
    const struct sl_cpu_kernels *k;
};

/* Channels [c, c + n) of all rows. */
static void scan_channels(const struct channel_job *j, uint32_t c, uint32_t n) {
    const struct sl_op_channel_scan *a = j->a;
    float decay[SL_SCAN_MAX_STATE * CHANNEL_COLS], d[CHANNEL_COLS];
    for (uint32_t i = 0; i < a->n_state; i++)
        for (uint32_t k = 0; k < n; k++)
            decay[i * CHANNEL_COLS + k] = a->a[(size_t)(c + k) * a->n_state + i];
    for (size_t t = 0; t < a->n_tok; t++) {
        struct sl_cpu_channel_row r = {.b = a->b + t * a->n_state,
                                       .c = a->c + t * a->n_state,
                                       .x = a->x + t * a->n + c,
                                       .d = d,
                                       .skip = a->skip + c,
                                       .a = decay,
                                       .y = a->y + t * a->n + c,
                                       .n_state = a->n_state,
                                       .stride_s = a->n,
                                       .stride_a = CHANNEL_COLS};
        const float *from;
        float *to = state_of(&a->state, t, c, a->n_state, a->n, n, &from);
        for (uint32_t k = 0; k < n; k++)
            d[k] = sl_softplusf(a->dt[t * a->n + c + k]);
        j->k->channel_scan(&r, from, to, n);
    }
}

static void channel_blocks(void *ctx, uint32_t begin, uint32_t end) {
    const struct channel_job *j = ctx;
    for (uint32_t b = begin; b < end; b++) {
        uint32_t c = b * CHANNEL_COLS, left = j->a->n - c;
        scan_channels(j, c, left < CHANNEL_COLS ? left : CHANNEL_COLS);
    }
}

enum sl_status sl_cpu_channel_scan(struct sl_device *d, const struct sl_op_channel_scan *a) {
    struct sl_cpu *cpu = (struct sl_cpu *)d;
    struct channel_job j = {a, &cpu->k};
    sl_cpu_for_rows(cpu, (a->n + CHANNEL_COLS - 1) / CHANNEL_COLS,
                    (size_t)a->n_tok * a->n_state * CHANNEL_COLS * 4, channel_blocks, &j);
    return SL_OK;
}
