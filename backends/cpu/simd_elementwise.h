/* Template of the row kernels, over the v16 of vec_avx2.h or vec_avx512.h: the includer takes one
 * of these first and calls fill_elementwise. The definitions are the C kernels of norm.c, rope.c,
 * kv.c and elementwise.c; each operation here is one of theirs, 16 at a time. */
#ifndef SL_BACKENDS_CPU_SIMD_ELEMENTWISE_H
#define SL_BACKENDS_CPU_SIMD_ELEMENTWISE_H

#include "backends/cpu/cpu_internal.h"
#include "backends/ops/moe.h"

#ifdef SL_V16

/* For i in steps of 16 with v_load/v_store, then the tail with their _n. */
#define FOR_V16(i, n) for (i = 0; i + 16 <= (n); i += 16)

static void rms_norm(const float *x, const float *w, float *y, uint32_t n, float eps) {
    v16 sum = v_zero();
    uint32_t i, tail = n % 16;
    FOR_V16(i, n) {
        v16 v = v_load(x + i);
        sum = v_fma(v, v, sum);
    }
    if (tail) {
        v16 v = v_load_n(x + i, tail, 0);
        sum = v_fma(v, v, sum);
    }
    float inv = 1.0f / sqrtf(v_sum(sum) / (float)n + eps);
    v16 by = v_set1(inv);
    FOR_V16(i, n) {
        v16 v = v_mul(v_load(x + i), by);
        v_store(y + i, w ? v_mul(v, v_load(w + i)) : v);
    }
    if (tail) {
        v16 v = v_mul(v_load_n(x + i, tail, 0), by);
        v_store_n(y + i, tail, w ? v_mul(v, v_load_n(w + i, tail, 0)) : v);
    }
}

static void rope_norm(float *x, const float *table, uint32_t n_freq) {
    uint32_t i, n = 2 * n_freq;
    FOR_V16(i, n)
    v_store(x + i, v_rotate_pairs(v_load(x + i), v_load(table + i)));
    if (n % 16)
        v_store_n(x + i, n % 16,
                  v_rotate_pairs(v_load_n(x + i, n % 16, 0), v_load_n(table + i, n % 16, 0)));
}

static void rope_neox(float *x, const float *table, uint32_t n_freq) {
    uint32_t i;
    FOR_V16(i, n_freq) {
        v16 c, s, a = v_load(x + i), b = v_load(x + n_freq + i);
        v_load_pairs(table + 2 * (size_t)i, &c, &s);
        v_store(x + i, v_fma(a, c, v_neg(v_mul(b, s))));
        v_store(x + n_freq + i, v_fma(a, s, v_mul(b, c)));
    }
    for (; i < n_freq; i++) {
        float a = x[i], b = x[n_freq + i], c = table[2 * (size_t)i], s = table[2 * (size_t)i + 1];
        x[i] = fmaf(a, c, -(b * s));
        x[n_freq + i] = fmaf(a, s, b * c);
    }
}

static void silu_mul(const float *gate, const float *up, float *y, size_t n) {
    size_t i;
    FOR_V16(i, n) v_store(y + i, v_mul(v_silu(v_load(gate + i)), v_load(up + i)));
    uint32_t tail = n % 16;
    if (tail)
        v_store_n(y + i, tail,
                  v_mul(v_silu(v_load_n(gate + i, tail, 0)), v_load_n(up + i, tail, 0)));
}

static inline v16 v_swiglu_clamped(v16 g, v16 u) {
    v16 limit = v_set1(SL_SWIGLU_CLAMPED_LIMIT), one = v_set1(1.0f);
    g = v_min(limit, g);
    u = v_max(v_set1(-SL_SWIGLU_CLAMPED_LIMIT), v_min(limit, u));
    v16 e = v_exp(v_neg(v_mul(v_set1(SL_SWIGLU_CLAMPED_ALPHA), g)));
    return v_mul(v_div(g, v_add(one, e)), v_add(u, one));
}

static void swiglu_clamped(const float *gate, const float *up, float *y, size_t n) {
    size_t i;
    FOR_V16(i, n) v_store(y + i, v_swiglu_clamped(v_load(gate + i), v_load(up + i)));
    uint32_t tail = n % 16;
    if (tail)
        v_store_n(y + i, tail,
                  v_swiglu_clamped(v_load_n(gate + i, tail, 0), v_load_n(up + i, tail, 0)));
}

static inline v16 v_gelu(v16 x) {
    v16 one = v_set1(1.0f), p = v_fma(v_mul(x, x), v_set1(SL_GELU_CUBE), one);
    v16 e = v_exp(v_mul(v_set1(SL_GELU_SCALE), v_mul(x, p)));
    return v_div(x, v_add(one, e));
}

static void gelu_mul(const float *gate, const float *up, float *y, size_t n) {
    size_t i;
    FOR_V16(i, n) v_store(y + i, v_mul(v_gelu(v_load(gate + i)), v_load(up + i)));
    uint32_t tail = n % 16;
    if (tail)
        v_store_n(y + i, tail,
                  v_mul(v_gelu(v_load_n(gate + i, tail, 0)), v_load_n(up + i, tail, 0)));
}

static inline v16 v_softcap(v16 x, v16 cap) {
    v16 one = v_set1(1.0f), two = v_set1(2.0f);
    v16 e = v_exp(v_mul(two, v_div(x, cap)));
    return v_mul(cap, v_sub(one, v_div(two, v_add(one, e))));
}

static inline v16 v_situ(v16 g, v16 u, v16 limit, v16 limit_up, bool capped) {
    v16 a = v_mul(v_softcap(g, limit), v_sigmoid(g));
    return v_mul(a, capped ? v_softcap(u, limit_up) : u);
}

static void situ(const float *gate, const float *up, float *y, size_t n, float limit,
                 float limit_up) {
    v16 by = v_set1(limit), by_up = v_set1(limit_up);
    bool capped = limit_up > 0;
    size_t i;
    FOR_V16(i, n) v_store(y + i, v_situ(v_load(gate + i), v_load(up + i), by, by_up, capped));
    uint32_t tail = n % 16;
    if (tail)
        v_store_n(
            y + i, tail,
            v_situ(v_load_n(gate + i, tail, 0), v_load_n(up + i, tail, 0), by, by_up, capped));
}

static float norm_dot(const float *x, const float *w, uint32_t n, float eps) {
    v16 squares = v_zero(), dot = v_zero();
    uint32_t i, tail = n % 16;
    FOR_V16(i, n) {
        v16 v = v_load(x + i);
        squares = v_fma(v, v, squares);
        dot = v_fma(v, v_load(w + i), dot);
    }
    if (tail) {
        v16 v = v_load_n(x + i, tail, 0);
        squares = v_fma(v, v, squares);
        dot = v_fma(v, v_load_n(w + i, tail, 0), dot);
    }
    return v_sum(dot) * (1.0f / sqrtf(v_sum(squares) / (float)n + eps));
}

static void softcap(float *x, float cap, size_t n) {
    v16 by = v_set1(cap);
    size_t i;
    FOR_V16(i, n) v_store(x + i, v_softcap(v_load(x + i), by));
    uint32_t tail = n % 16;
    if (tail)
        v_store_n(x + i, tail, v_softcap(v_load_n(x + i, tail, 0), by));
}

static void add(const float *x, float *y, size_t n) {
    size_t i;
    FOR_V16(i, n) v_store(y + i, v_add(v_load(y + i), v_load(x + i)));
    uint32_t tail = n % 16;
    if (tail)
        v_store_n(y + i, tail, v_add(v_load_n(y + i, tail, 0), v_load_n(x + i, tail, 0)));
}

static void add_scaled(const float *x, float s, float *y, size_t n) {
    v16 by = v_set1(s);
    size_t i;
    FOR_V16(i, n) v_store(y + i, v_fma(v_load(x + i), by, v_load(y + i)));
    uint32_t tail = n % 16;
    if (tail)
        v_store_n(y + i, tail, v_fma(v_load_n(x + i, tail, 0), by, v_load_n(y + i, tail, 0)));
}

static void combine(const float *x, const float *w, float *y, uint32_t k, uint32_t n) {
    uint32_t i, tail = n % 16;
    /* y stays in registers over the k experts. */
    for (i = 0; i + 64 <= n; i += 64) {
        v16 a = v_load(y + i), b = v_load(y + i + 16), c = v_load(y + i + 32),
            d = v_load(y + i + 48);
        for (uint32_t r = 0; r < k; r++) {
            const float *xr = x + (size_t)r * n + i;
            v16 by = v_set1(w[r]);
            a = v_fma(v_load(xr), by, a);
            b = v_fma(v_load(xr + 16), by, b);
            c = v_fma(v_load(xr + 32), by, c);
            d = v_fma(v_load(xr + 48), by, d);
        }
        v_store(y + i, a), v_store(y + i + 16, b), v_store(y + i + 32, c), v_store(y + i + 48, d);
    }
    for (; i + 16 <= n; i += 16) {
        v16 a = v_load(y + i);
        for (uint32_t r = 0; r < k; r++)
            a = v_fma(v_load(x + (size_t)r * n + i), v_set1(w[r]), a);
        v_store(y + i, a);
    }
    if (tail) {
        v16 a = v_load_n(y + i, tail, 0);
        for (uint32_t r = 0; r < k; r++)
            a = v_fma(v_load_n(x + (size_t)r * n + i, tail, 0), v_set1(w[r]), a);
        v_store_n(y + i, tail, a);
    }
}

static float softmax(const float *x, float *y, uint32_t n, float *out_max) {
    v16 most = v_set1(-INFINITY), sum = v_zero();
    uint32_t i, tail = n % 16;
    FOR_V16(i, n) most = v_max(v_load(x + i), most);
    if (tail)
        most = v_max(v_load_n(x + i, tail, -INFINITY), most);
    float max = v_most(most);
    v16 less = v_set1(max);
    FOR_V16(i, n) {
        v16 e = v_exp(v_sub(v_load(x + i), less));
        sum = v_add(sum, e);
        v_store(y + i, e);
    }
    if (tail) {
        v16 e = v_exp(v_sub(v_load_n(x + i, tail, -INFINITY), less)); /* 0 in the others */
        sum = v_add(sum, e);
        v_store_n(y + i, tail, e);
    }
    *out_max = max;
    return v_sum(sum);
}

static void sigmoid(const float *x, float *y, uint32_t n) {
    uint32_t i, tail = n % 16;
    FOR_V16(i, n) v_store(y + i, v_sigmoid(v_load(x + i)));
    if (tail)
        v_store_n(y + i, tail, v_sigmoid(v_load_n(x + i, tail, 0)));
}

static void f32_to_f16(const float *x, void *y, uint32_t n) {
    uint16_t *out = y;
    uint32_t i, tail = n % 16;
    FOR_V16(i, n) v_store_f16(out + i, v_load(x + i));
    if (tail)
        v_store_f16_n(out + i, tail, v_load_n(x + i, tail, 0));
}

static void f16_to_f32(const void *x, float *y, uint32_t n) {
    const uint16_t *in = x;
    uint32_t i, tail = n % 16;
    FOR_V16(i, n) v_store(y + i, v_load_f16(in + i));
    if (tail)
        v_store_n(y + i, tail, v_load_f16_n(in + i, tail));
}

static void f32_to_q8_0(const float *x, void *y, uint32_t n) {
    uint8_t *out = y;
    for (; n >= 32; n -= 32, x += 32, out += 34) {
        v16 a = v_load(x), b = v_load(x + 16);
        float most = v_most(v_max(v_abs(b), v_max(v_abs(a), v_zero())));
        float d = most / 127.0f;
        d = d < 65504.0f ? d : 65504.0f;
        uint16_t d16 = _cvtss_sh(d, _MM_FROUND_TO_NEAREST_INT);
        float d_stored = _cvtsh_ss(d16);
        v16 inv = v_set1(d_stored > 0 ? 1.0f / d_stored : 0.0f);
        v16 top = v_set1(127.0f), bottom = v_set1(-127.0f);
        memcpy(out, &d16, sizeof d16);
        v_store_i8(out + 2, v_max(v_min(v_mul(a, inv), top), bottom));
        v_store_i8(out + 18, v_max(v_min(v_mul(b, inv), top), bottom));
    }
}

static void q8_0_to_f32(const void *x, float *y, uint32_t n) {
    const uint8_t *in = x;
    for (; n >= 32; n -= 32, in += 34, y += 32) {
        uint16_t d16;
        memcpy(&d16, in, sizeof d16);
        v16 d = v_set1(_cvtsh_ss(d16));
        v_store(y, v_mul(d, v_load_i8(in + 2)));
        v_store(y + 16, v_mul(d, v_load_i8(in + 18)));
    }
}

static void fill_elementwise(struct sl_cpu_kernels *k) {
    k->rms_norm = rms_norm;
    k->rope_norm = rope_norm;
    k->rope_neox = rope_neox;
    k->silu_mul = silu_mul;
    k->swiglu_clamped = swiglu_clamped;
    k->gelu_mul = gelu_mul;
    k->situ = situ;
    k->norm_dot = norm_dot;
    k->softcap = softcap;
    k->add = add;
    k->add_scaled = add_scaled;
    k->combine = combine;
    k->softmax = softmax;
    k->sigmoid = sigmoid;
    k->f32_to_f16 = f32_to_f16;
    k->f16_to_f32 = f16_to_f32;
    k->f32_to_q8_0 = f32_to_q8_0;
    k->q8_0_to_f32 = q8_0_to_f32;
}

#endif
#endif
