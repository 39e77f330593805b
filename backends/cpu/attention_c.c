/* The definition's kernels; attention.h says what they define. */
#include "backends/cpu/attention.h"
#include "backends/cpu/math.h"

#include <math.h>

typedef void load_fn(const void *x, float *y, uint32_t n);

static void qk(const float *q, uint32_t n_heads, const struct sl_cpu_kv_page *k, load_fn *load,
               float scale, float *s) {
    float row[SL_CPU_MAX_HEAD_DIM];
    for (uint32_t j = k->begin; j < k->end; j++) {
        load((const char *)k->rows + (size_t)j * k->row_bytes, row, k->head_dim);
        for (uint32_t h = 0; h < n_heads; h++)
            s[h * SL_CPU_ATTN_PART + j] =
                sl_dotf(q + (size_t)h * k->head_dim, row, k->head_dim) * scale;
    }
}

static void pv(const float *s, uint32_t n_heads, const struct sl_cpu_kv_page *v, load_fn *load,
               float *o) {
    float row[SL_CPU_MAX_HEAD_DIM];
    for (uint32_t j = v->begin; j < v->end; j++) {
        load((const char *)v->rows + (size_t)j * v->row_bytes, row, v->head_dim);
        for (uint32_t h = 0; h < n_heads; h++)
            for (uint32_t i = 0; i < v->head_dim; i++)
                o[h * v->head_dim + i] =
                    fmaf(s[h * SL_CPU_ATTN_PART + j], row[i], o[h * v->head_dim + i]);
    }
}

static void qk_f16(const float *q, uint32_t n_heads, const struct sl_cpu_kv_page *k, float scale,
                   float *s) {
    qk(q, n_heads, k, sl_cpu_f16_to_f32_c, scale, s);
}

static void qk_q8_0(const float *q, uint32_t n_heads, const struct sl_cpu_kv_page *k, float scale,
                    float *s) {
    qk(q, n_heads, k, sl_cpu_q8_0_to_f32_c, scale, s);
}

static void pv_f16(const float *s, uint32_t n_heads, const struct sl_cpu_kv_page *v, float *o) {
    pv(s, n_heads, v, sl_cpu_f16_to_f32_c, o);
}

static void pv_q8_0(const float *s, uint32_t n_heads, const struct sl_cpu_kv_page *v, float *o) {
    pv(s, n_heads, v, sl_cpu_q8_0_to_f32_c, o);
}

static void merge(float *o, float a, const float *x, float b, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        o[i] = fmaf(o[i], a, x[i] * b);
}

static void index_sum(const float *s, const float *w, uint32_t n_heads, float *y, uint32_t n) {
    for (uint32_t h = 0; h < n_heads; h++)
        for (uint32_t j = 0; j < n; j++) {
            float v = s[h * SL_CPU_ATTN_PART + j];
            y[j] = fmaf(w[h], v > 0.0f ? v : 0.0f, y[j]);
        }
}

void sl_cpu_attention_init(struct sl_cpu_kernels *k) {
    k->index_sum = index_sum;
    k->qk_f16 = qk_f16;
    k->qk_q8_0 = qk_q8_0;
    k->pv_f16 = pv_f16;
    k->pv_q8_0 = pv_q8_0;
    k->merge = merge;
}
