/* Products with weights: the definition. */
#include "backends/cpu/matmul/matmul_kernels.h"

#include <math.h>

/* 16 partial sums, element i into partial i % 16, then a tree. */
static float dot_float(enum sl_dtype dtype, const uint8_t *w, const float *x, uint32_t n) {
    float part[16] = {0};
    for (uint32_t i = 0; i < n; i++) {
        float v;
        if (dtype == SL_DTYPE_F32) {
            memcpy(&v, w + 4 * (size_t)i, 4);
        } else {
            uint16_t h;
            memcpy(&h, w + 2 * (size_t)i, 2);
            v = dtype == SL_DTYPE_F16 ? sl_f16_to_f32(h) : sl_bf16_to_f32(h);
        }
        part[i % 16] = fmaf(v, x[i], part[i % 16]);
    }
    for (int step = 8; step; step /= 2)
        for (int i = 0; i < step; i++)
            part[i] += part[i + step];
    return part[0];
}

/* One unpacked block with the inputs that meet it, onto the sum of the blocks before. */
static float add_block(const struct sl_unpacked *u, uint32_t block, bool has_min,
                       const struct sl_qx *x, uint32_t i0, float total) {
    const struct sl_qx *g = &x[i0 / 256];
    const int8_t *q = g->q + i0 % 256;
    float dx = block == 32 ? g->q32.d[i0 % 256 / 32] : g->q256.d;
    int32_t isum = 0, imin = 0;
    for (uint32_t s = 0; s < block / 16; s++) {
        int32_t dot = 0, sum = 0;
        for (uint32_t i = 16 * s; i < 16 * s + 16; i++) {
            dot += u->q[i] * q[i];
            sum += q[i];
        }
        isum += u->scale[s] * dot;
        imin += u->min[s] * sum;
    }
    total = fmaf(u->d * dx, (float)isum, total);
    return has_min ? fmaf(-(u->dmin * dx), (float)imin, total) : total;
}

/* A weight row with n_tok input rows, sl_qx_blocks(n) apart: out[t * stride]. Each block is
 * unpacked once. */
static void dot_quantized(enum sl_dtype dtype, const uint8_t *w, const struct sl_qx *x, uint32_t n,
                          uint32_t n_tok, size_t stride, float *out) {
    const struct sl_dtype_info *info = sl_dtype_info(dtype);
    bool has_min = sl_dtype_has_min(dtype);
    struct sl_unpacked u;
    for (uint32_t t = 0; t < n_tok; t++)
        out[t * stride] = 0;
    for (uint32_t i0 = 0; i0 < n; i0 += info->block_elems, w += info->block_bytes) {
        sl_unpack_block(dtype, w, &u);
        for (uint32_t t = 0; t < n_tok; t++)
            out[t * stride] = add_block(&u, info->block_elems, has_min, x + t * sl_qx_blocks(n), i0,
                                        out[t * stride]);
    }
}

static void vec_c(const struct sl_mm_rows *w, const void *x, float *out) {
    for (uint32_t r = 0; r < w->n_rows; r++) {
        const uint8_t *row = w->data + r * w->row_bytes;
        if (sl_dtype_is_float(w->dtype))
            out[r] = dot_float(w->dtype, row, x, w->n_in);
        else
            dot_quantized(w->dtype, row, x, w->n_in, 1, 1, &out[r]);
    }
}

static void many_c(const struct sl_mm_rows *w, const void *x, uint32_t n_tok, uint32_t begin,
                   uint32_t end, void *panel, float *out) {
    (void)panel;
    uint32_t t0 = sl_mm_tile_start(n_tok, begin), n = sl_mm_tile_start(n_tok, end) - t0;
    for (uint32_t r = 0; r < w->n_rows; r++) {
        const uint8_t *row = w->data + r * w->row_bytes;
        if (sl_dtype_is_float(w->dtype))
            for (uint32_t t = 0; t < n; t++)
                out[t * SL_MM_PANEL + r] =
                    dot_float(w->dtype, row, ((const float *const *)x)[t0 + t], w->n_in);
        else
            dot_quantized(w->dtype, row, (const struct sl_qx *)x + t0 * sl_qx_blocks(w->n_in),
                          w->n_in, n, SL_MM_PANEL, out + r);
    }
}

static void pack_c(const struct sl_qx *const *rows, uint32_t n_tok, uint32_t n, void *tile) {
    size_t bytes = sl_qx_row_bytes(n);
    for (uint32_t t = 0; t < n_tok; t++)
        memcpy((uint8_t *)tile + t * bytes, rows[t], bytes);
}

void sl_mm_init_c(struct sl_mm_kernels *k) {
    memset(k, 0, sizeof *k);
    k->quantize[SL_X_Q32] = sl_quantize_q32;
    k->quantize[SL_X_Q256] = sl_quantize_q256;
    k->pack[SL_X_Q32] = k->pack[SL_X_Q256] = pack_c;
    for (uint32_t t = 0; t < SL_DTYPE_COUNT; t++)
        if (sl_dtype_info(t)) {
            k->vec[t] = vec_c;
            k->many[t] = many_c;
        }
    k->tile_min = 2;
}
