/* sl_op_embed: rows of the embedding matrix. */
#include "backends/cpu/cpu_internal.h"
#include "backends/cpu/matmul/formats.h"
#include "backends/ops/rows.h"

static void embed_rows(void *ctx, uint32_t begin, uint32_t end) {
    const struct sl_op_embed *a = ctx;
    uint32_t n = a->w.n_in;
    size_t row_bytes = sl_dtype_row_bytes(a->w.dtype, n);
    for (uint32_t t = begin; t < end; t++) {
        float *y = a->y + (size_t)t * n;
        sl_dequantize_row(a->w.dtype, (const uint8_t *)a->w.data + a->ids[t] * row_bytes, n, y);
        if (a->scale != 1.0f)
            for (uint32_t i = 0; i < n; i++)
                y[i] *= a->scale;
    }
}

enum sl_status sl_cpu_embed(struct sl_device *d, const struct sl_op_embed *a) {
    sl_cpu_for_rows((struct sl_cpu *)d, a->n_tok, (size_t)a->w.n_in * 4, embed_rows, (void *)a);
    return SL_OK;
}
