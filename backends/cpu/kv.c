/* The KV types and writing to pages.
 *
 * Q8_0: blocks of 32, a binary16 scale d = max|x| / 127 (at most 65504) and int8 q = x / d rounded
 * to nearest even. The division is by the scale as stored, so that what reads d * q gets the
 * closest that the block can say. */
#include "backends/cpu/cpu_internal.h"
#include "backends/ops/kv.h"

#include <math.h>
#include <string.h>

#define Q8_ELEMS 32u
#define Q8_BYTES 34u

static void f32_to_f16_c(const float *x, void *y, uint32_t n) {
    uint16_t *out = y;
    for (uint32_t i = 0; i < n; i++)
        out[i] = sl_f32_to_f16(x[i]);
}

void sl_cpu_f16_to_f32_c(const void *x, float *y, uint32_t n) {
    const uint16_t *in = x;
    for (uint32_t i = 0; i < n; i++)
        y[i] = sl_f16_to_f32(in[i]);
}

static void f32_to_q8_0_c(const float *x, void *y, uint32_t n) {
    uint8_t *out = y;
    for (uint32_t b = 0; b < n / Q8_ELEMS; b++, x += Q8_ELEMS, out += Q8_BYTES) {
        float most = 0;
        for (uint32_t i = 0; i < Q8_ELEMS; i++)
            most = fabsf(x[i]) > most ? fabsf(x[i]) : most; /* a NaN is passed over */
        float d = most / 127.0f;
        d = d < 65504.0f ? d : 65504.0f;
        uint16_t d16 = sl_f32_to_f16(d);
        float d_stored = sl_f16_to_f32(d16);
        float inv = d_stored > 0 ? 1.0f / d_stored : 0.0f;
        memcpy(out, &d16, sizeof d16);
        for (uint32_t i = 0; i < Q8_ELEMS; i++) {
            float v = x[i] * inv;
            v = v < 127.0f ? v : 127.0f; /* also a NaN */
            v = v > -127.0f ? v : -127.0f;
            /* Adding 1.5 * 2^23 leaves the nearest integer, ties to even, in the low bits. */
            v += 0x1.8p23f;
            uint32_t bits;
            memcpy(&bits, &v, sizeof bits);
            out[2 + i] = (uint8_t)bits;
        }
    }
}

void sl_cpu_q8_0_to_f32_c(const void *x, float *y, uint32_t n) {
    const uint8_t *in = x;
    for (uint32_t b = 0; b < n / Q8_ELEMS; b++, in += Q8_BYTES, y += Q8_ELEMS) {
        uint16_t d16;
        memcpy(&d16, in, sizeof d16);
        float d = sl_f16_to_f32(d16);
        for (uint32_t i = 0; i < Q8_ELEMS; i++)
            y[i] = d * (float)(int8_t)in[2 + i]; /* 11 + 7 bits: exact */
    }
}

void sl_cpu_kv_init(struct sl_cpu_kernels *k) {
    k->f32_to_f16 = f32_to_f16_c;
    k->f16_to_f32 = sl_cpu_f16_to_f32_c;
    k->f32_to_q8_0 = f32_to_q8_0_c;
    k->q8_0_to_f32 = sl_cpu_q8_0_to_f32_c;
}

struct job {
    const struct sl_op_kv_write *a;
    void (*convert)(const float *x, void *y, uint32_t n);
};

static void write_heads(const struct job *j, const float *x, char *page, uint32_t pos,
                        uint32_t head_dim) {
    size_t row_bytes = sl_dtype_row_bytes(j->a->kv.dtype, head_dim);
    for (size_t h = 0; h < j->a->kv.n_kv_heads; h++)
        j->convert(x + h * head_dim, page + (h * SL_KV_PAGE_TOKENS + pos) * row_bytes, head_dim);
}

static void rows(void *ctx, uint32_t begin, uint32_t end) {
    const struct job *j = ctx;
    const struct sl_op_kv_write *a = j->a;
    for (size_t t = begin; t < end; t++) {
        size_t page = a->slot[t] / SL_KV_PAGE_TOKENS;
        uint32_t pos = a->slot[t] % SL_KV_PAGE_TOKENS;
        write_heads(j, a->k + t * a->stride_k, (char *)a->kv.k + page * a->kv.k_page_bytes, pos,
                    a->kv.head_dim_k);
        write_heads(j, a->v + t * a->stride_v, (char *)a->kv.v + page * a->kv.v_page_bytes, pos,
                    a->kv.head_dim_v);
    }
}

enum sl_status sl_cpu_kv_write(struct sl_device *d, const struct sl_op_kv_write *a) {
    struct sl_cpu *cpu = (struct sl_cpu *)d;
    struct job j = {a, a->kv.dtype == SL_DTYPE_F16 ? cpu->k.f32_to_f16 : cpu->k.f32_to_q8_0};
    sl_cpu_for_rows(cpu, a->n_tok, (size_t)a->kv.n_kv_heads * (a->kv.head_dim_k + a->kv.head_dim_v),
                    rows, &j);
    return SL_OK;
}

struct latent_job {
    const struct sl_op_latent_write *a;
    void (*convert)(const float *x, void *y, uint32_t n);
};

static void latent_rows(void *ctx, uint32_t begin, uint32_t end) {
    const struct latent_job *j = ctx;
    const struct sl_op_latent_write *a = j->a;
    uint32_t dim = a->kv.n_latent + a->kv.n_rot;
    size_t row_bytes = sl_dtype_row_bytes(a->kv.dtype, dim);
    for (size_t t = begin; t < end; t++) {
        size_t page = a->slot[t] / SL_KV_PAGE_TOKENS, pos = a->slot[t] % SL_KV_PAGE_TOKENS;
        j->convert(a->x + t * a->stride,
                   (char *)a->kv.rows + page * a->kv.page_bytes + pos * row_bytes, dim);
    }
}

enum sl_status sl_cpu_latent_write(struct sl_device *d, const struct sl_op_latent_write *a) {
    struct sl_cpu *cpu = (struct sl_cpu *)d;
    struct latent_job j = {a, a->kv.dtype == SL_DTYPE_F16 ? cpu->k.f32_to_f16 : cpu->k.f32_to_q8_0};
    sl_cpu_for_rows(cpu, a->n_tok, a->kv.n_latent + a->kv.n_rot, latent_rows, &j);
    return SL_OK;
}
