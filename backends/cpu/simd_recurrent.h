/* Template of the recurrent ops' kernels, over the v16 of vec_avx2.h or vec_avx512.h: the includer
 * takes one of these first and calls fill_recurrent. The definitions are the C kernels of
 * recurrent.c; each operation here is one of theirs, 16 at a time. */
#ifndef SL_BACKENDS_CPU_SIMD_RECURRENT_H
#define SL_BACKENDS_CPU_SIMD_RECURRENT_H

#include "backends/cpu/cpu_internal.h"

#ifdef SL_V16

static void mul_sigmoid(const float *gate, float *y, uint32_t n) {
    uint32_t i, tail = n % 16;
    for (i = 0; i + 16 <= n; i += 16)
        v_store(y + i, v_mul(v_load(y + i), v_sigmoid(v_load(gate + i))));
    if (tail)
        v_store_n(y + i, tail,
                  v_mul(v_load_n(y + i, tail, 0), v_sigmoid(v_load_n(gate + i, tail, 0))));
}

static void l2_norm(float *x, uint32_t n, float eps) {
    v16 sum = v_zero();
    uint32_t i, tail = n % 16;
    for (i = 0; i + 16 <= n; i += 16) {
        v16 v = v_load(x + i);
        sum = v_fma(v, v, sum);
    }
    if (tail) {
        v16 v = v_load_n(x + i, tail, 0);
        sum = v_fma(v, v, sum);
    }
    v16 by = v_set1(1.0f / sqrtf(v_sum(sum) + eps));
    for (i = 0; i + 16 <= n; i += 16)
        v_store(x + i, v_mul(v_load(x + i), by));
    if (tail)
        v_store_n(x + i, tail, v_mul(v_load_n(x + i, tail, 0), by));
}

static void conv_silu(const float *const *x, const float *w, uint32_t stride_w, const float *bias,
                      float *y, uint32_t n_taps, uint32_t n) {
    uint32_t i, tail = n % 16;
    for (i = 0; i + 16 <= n; i += 16) {
        v16 sum = v_load(bias + i);
        for (uint32_t k = 0; k < n_taps; k++)
            sum = v_fma(v_load(x[k] + i), v_load(w + k * stride_w + i), sum);
        v_store(y + i, v_silu(sum));
    }
    if (tail) {
        v16 sum = v_load_n(bias + i, tail, 0);
        for (uint32_t k = 0; k < n_taps; k++)
            sum = v_fma(v_load_n(x[k] + i, tail, 0), v_load_n(w + k * stride_w + i, tail, 0), sum);
        v_store_n(y + i, tail, v_silu(sum));
    }
}

static void short_conv(const float *const *x, const float *w, uint32_t stride_w, const float *gate,
                       float *y, uint32_t n_taps, uint32_t n) {
    uint32_t i, tail = n % 16;
    for (i = 0; i + 16 <= n; i += 16) {
        v16 sum = v_zero();
        for (uint32_t k = 0; k < n_taps; k++)
            sum = v_fma(v_load(x[k] + i), v_load(w + k * stride_w + i), sum);
        v_store(y + i, v_mul(v_load(gate + i), sum));
    }
    if (tail) {
        v16 sum = v_zero();
        for (uint32_t k = 0; k < n_taps; k++)
            sum = v_fma(v_load_n(x[k] + i, tail, 0), v_load_n(w + k * stride_w + i, tail, 0), sum);
        v_store_n(y + i, tail, v_mul(v_load_n(gate + i, tail, 0), sum));
    }
}

/* NAME, which goes over the n columns of a state: NAME_vecs takes as many at a time as have their
 * sums in registers, NAME_few what is left. IN is what a row has for each column, besides y. */
#define WALK_COLUMNS(NAME, ROW, IN)                                                                \
    static void NAME(const struct ROW *row, const float *from, float *to, uint32_t n) {            \
        struct ROW r = *row;                                                                       \
        while (n) {                                                                                \
            uint32_t step = n;                                                                     \
            if (V_ACC >= 16 && n >= 64)                                                            \
                NAME##_vecs(&r, from, to, (step = 64) / 16);                                       \
            else if (n >= 32)                                                                      \
                NAME##_vecs(&r, from, to, (step = 32) / 16);                                       \
            else if (n >= 16)                                                                      \
                NAME##_vecs(&r, from, to, (step = 16) / 16);                                       \
            else                                                                                   \
                NAME##_few(&r, from, to, n);                                                       \
            r.IN += step, r.y += step, from += step, to += step, n -= step;                        \
        }                                                                                          \
    }

/* 16 n columns, side by side so that one's sum need not wait for the next. */
static inline __attribute__((always_inline)) void
delta_rule_vecs(const struct sl_cpu_delta_row *r, const float *from, float *to, const uint32_t n) {
    v16 sum[4], d[4];
    uint32_t j;
    for (j = 0; j < n; j++)
        sum[j] = v_zero();
    for (size_t i = 0; i < r->n_k; i++) {
        v16 k = v_set1(r->k[i]);
        for (j = 0; j < n; j++)
            sum[j] = v_fma(v_load(from + i * r->stride_s + j * 16), k, sum[j]);
    }
    v16 g = v_set1(r->g), b = v_set1(r->b), scale = v_set1(r->scale);
    for (j = 0; j < n; j++) {
        d[j] = v_mul(v_sub(v_load(r->v + j * 16), v_mul(g, sum[j])), b);
        sum[j] = v_zero();
    }
    for (size_t i = 0; i < r->n_k; i++) {
        v16 k = v_set1(r->k[i]), q = v_set1(r->q[i]);
        for (j = 0; j < n; j++) {
            size_t at = i * r->stride_s + j * 16;
            v16 s = v_fma(k, d[j], v_mul(g, v_load(from + at)));
            sum[j] = v_fma(s, q, sum[j]);
            v_store(to + at, s);
        }
    }
    for (j = 0; j < n; j++)
        v_store(r->y + j * 16, v_mul(sum[j], scale));
}

/* n columns, less than 16. */
static void delta_rule_few(const struct sl_cpu_delta_row *r, const float *from, float *to,
                           uint32_t n) {
    v16 sum = v_zero();
    for (size_t i = 0; i < r->n_k; i++)
        sum = v_fma(v_load_n(from + i * r->stride_s, n, 0), v_set1(r->k[i]), sum);
    v16 g = v_set1(r->g), out = v_zero();
    v16 d = v_mul(v_sub(v_load_n(r->v, n, 0), v_mul(g, sum)), v_set1(r->b));
    for (size_t i = 0; i < r->n_k; i++) {
        size_t at = i * r->stride_s;
        v16 s = v_fma(v_set1(r->k[i]), d, v_mul(g, v_load_n(from + at, n, 0)));
        out = v_fma(s, v_set1(r->q[i]), out);
        v_store_n(to + at, n, s);
    }
    v_store_n(r->y, n, v_mul(out, v_set1(r->scale)));
}

WALK_COLUMNS(delta_rule, sl_cpu_delta_row, v)

/* 16 n columns, side by side. */
static inline __attribute__((always_inline)) void
channel_delta_vecs(const struct sl_cpu_channel_delta_row *r, const float *from, float *to,
                   const uint32_t n) {
    v16 sum[4], d[4], b = v_set1(r->b), scale = v_set1(r->scale);
    uint32_t j;
    for (j = 0; j < n; j++)
        sum[j] = v_zero();
    for (size_t i = 0; i < r->n_k; i++) {
        v16 k = v_set1(r->k[i]), g = v_set1(r->g[i]);
        for (j = 0; j < n; j++)
            sum[j] = v_fma(v_mul(g, v_load(from + i * r->stride_s + j * 16)), k, sum[j]);
    }
    for (j = 0; j < n; j++) {
        d[j] = v_mul(v_sub(v_load(r->v + j * 16), sum[j]), b);
        sum[j] = v_zero();
    }
    for (size_t i = 0; i < r->n_k; i++) {
        v16 k = v_set1(r->k[i]), q = v_set1(r->q[i]), g = v_set1(r->g[i]);
        for (j = 0; j < n; j++) {
            size_t at = i * r->stride_s + j * 16;
            v16 s = v_fma(k, d[j], v_mul(g, v_load(from + at)));
            sum[j] = v_fma(s, q, sum[j]);
            v_store(to + at, s);
        }
    }
    for (j = 0; j < n; j++)
        v_store(r->y + j * 16, v_mul(sum[j], scale));
}

/* n columns, less than 16. */
static void channel_delta_few(const struct sl_cpu_channel_delta_row *r, const float *from,
                              float *to, uint32_t n) {
    v16 sum = v_zero(), out = v_zero();
    for (size_t i = 0; i < r->n_k; i++)
        sum = v_fma(v_mul(v_set1(r->g[i]), v_load_n(from + i * r->stride_s, n, 0)), v_set1(r->k[i]),
                    sum);
    v16 d = v_mul(v_sub(v_load_n(r->v, n, 0), sum), v_set1(r->b));
    for (size_t i = 0; i < r->n_k; i++) {
        size_t at = i * r->stride_s;
        v16 s = v_fma(v_set1(r->k[i]), d, v_mul(v_set1(r->g[i]), v_load_n(from + at, n, 0)));
        out = v_fma(s, v_set1(r->q[i]), out);
        v_store_n(to + at, n, s);
    }
    v_store_n(r->y, n, v_mul(out, v_set1(r->scale)));
}

WALK_COLUMNS(channel_delta, sl_cpu_channel_delta_row, v)

/* 16 n columns, side by side. */
static inline __attribute__((always_inline)) void
state_scan_vecs(const struct sl_cpu_scan_row *r, const float *from, float *to, const uint32_t n) {
    v16 sum[4], u[4], g = v_set1(r->g), d = v_set1(r->d), skip = v_set1(r->skip);
    uint32_t j;
    for (j = 0; j < n; j++) {
        u[j] = v_mul(d, v_load(r->x + j * 16));
        sum[j] = v_zero();
    }
    for (size_t i = 0; i < r->n_state; i++) {
        v16 b = v_set1(r->b[i]), c = v_set1(r->c[i]);
        for (j = 0; j < n; j++) {
            size_t at = i * r->stride_s + j * 16;
            v16 s = v_fma(b, u[j], v_mul(g, v_load(from + at)));
            sum[j] = v_fma(s, c, sum[j]);
            v_store(to + at, s);
        }
    }
    for (j = 0; j < n; j++)
        v_store(r->y + j * 16, v_fma(skip, v_load(r->x + j * 16), sum[j]));
}

/* n columns, less than 16. */
static void state_scan_few(const struct sl_cpu_scan_row *r, const float *from, float *to,
                           uint32_t n) {
    v16 sum = v_zero(), g = v_set1(r->g), x = v_load_n(r->x, n, 0);
    v16 u = v_mul(v_set1(r->d), x);
    for (size_t i = 0; i < r->n_state; i++) {
        size_t at = i * r->stride_s;
        v16 s = v_fma(v_set1(r->b[i]), u, v_mul(g, v_load_n(from + at, n, 0)));
        sum = v_fma(s, v_set1(r->c[i]), sum);
        v_store_n(to + at, n, s);
    }
    v_store_n(r->y, n, v_fma(v_set1(r->skip), x, sum));
}

WALK_COLUMNS(state_scan, sl_cpu_scan_row, x)

static void channel_scan(const struct sl_cpu_channel_row *r, const float *from, float *to,
                         uint32_t n) {
    for (uint32_t j = 0; j < n; j += 16) {
        uint32_t m = n - j < 16 ? n - j : 16;
        v16 sum = v_zero(), d = v_load_n(r->d + j, m, 0), x = v_load_n(r->x + j, m, 0);
        v16 u = v_mul(d, x);
        for (size_t i = 0; i < r->n_state; i++) {
            size_t at = i * r->stride_s + j;
            v16 g = v_exp(v_mul(v_load_n(r->a + i * r->stride_a + j, m, 0), d));
            v16 s = v_fma(v_set1(r->b[i]), u, v_mul(g, v_load_n(from + at, m, 0)));
            sum = v_fma(s, v_set1(r->c[i]), sum);
            v_store_n(to + at, m, s);
        }
        v_store_n(r->y + j, m, v_fma(v_load_n(r->skip + j, m, 0), x, sum));
    }
}

static void fill_recurrent(struct sl_cpu_kernels *k) {
    k->mul_sigmoid = mul_sigmoid;
    k->l2_norm = l2_norm;
    k->conv_silu = conv_silu;
    k->short_conv = short_conv;
    k->delta_rule = delta_rule;
    k->channel_delta = channel_delta;
    k->state_scan = state_scan;
    k->channel_scan = channel_scan;
}

#endif
#endif
