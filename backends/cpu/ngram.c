/* What the embeddings of n-grams give to the streams of rows. */
#include "backends/cpu/conv.h"
#include "backends/cpu/cpu_internal.h"
#include "backends/cpu/math.h"
#include "backends/ops/ngram.h"

#include <math.h>

static void gate_rows(void *ctx, uint32_t begin, uint32_t end) {
    const struct sl_op_ngram_gate *a = ctx;
    float scale = (float)(1 / sqrt((double)a->n));
    for (size_t t = begin; t < end; t++)
        for (size_t s = 0; s < a->n_stream; s++) {
            size_t at = (t * a->n_stream + s) * a->n;
            float score = sl_dotf(a->key + at, a->query + at, a->n) * scale;
            float root = sqrtf(fabsf(score) > 1e-6f ? fabsf(score) : 1e-6f);
            float gate = sl_sigmoidf(score > 0 ? root : score < 0 ? -root : score);
            for (size_t i = 0; i < a->n; i++)
                a->y[at + i] = a->value[t * a->n + i] * gate;
        }
}

enum sl_status sl_cpu_ngram_gate(struct sl_device *d, const struct sl_op_ngram_gate *a) {
    sl_cpu_for_rows((struct sl_cpu *)d, a->n_tok, (size_t)a->n * a->n_stream * 3, gate_rows,
                    (void *)a);
    return SL_OK;
}

#define MAX_KEPT ((SL_CONV_MAX_TAPS - 1) * SL_NGRAM_MAX_STEP)

struct conv_job {
    const struct sl_op_ngram_conv *a;
    const struct sl_cpu_kernels *k;
};

/* Channels [c, c + n) of all rows. */
static void conv_channels(const struct conv_job *j, uint32_t c, uint32_t n) {
    const struct sl_op_ngram_conv *a = j->a;
    float w[SL_CONV_MAX_TAPS * SL_CONV_COLS], old[MAX_KEPT * SL_CONV_COLS], out[SL_CONV_COLS];
    static const float none[SL_CONV_COLS];
    const float *h[SL_CONV_MAX_TAPS];
    struct sl_conv_inputs in = {&a->state, a->h, old, a->n, c, n, (a->n_taps - 1) * a->step, 0};
    sl_conv_weights(a->w, a->n_taps, c, n, w);
    for (uint32_t t = 0; t < a->n_tok; t++) {
        sl_conv_go_to(&in, t);
        for (uint32_t k = 0; k < a->n_taps; k++)
            h[k] = sl_conv_input(&in, t, (a->n_taps - 1 - k) * a->step);
        j->k->conv_silu(h, w, SL_CONV_COLS, none, out, a->n_taps, n);
        const float *x = a->x + (size_t)t * a->n + c;
        float *y = a->y + (size_t)t * a->n + c;
        for (uint32_t i = 0; i < n; i++)
            y[i] += x[i] + out[i];
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

enum sl_status sl_cpu_ngram_conv(struct sl_device *d, const struct sl_op_ngram_conv *a) {
    struct sl_cpu *cpu = (struct sl_cpu *)d;
    struct conv_job j = {a, &cpu->k};
    sl_cpu_for_rows(cpu, (a->n + SL_CONV_COLS - 1) / SL_CONV_COLS,
                    (size_t)a->n_tok * a->n_taps * SL_CONV_COLS, conv_blocks, &j);
    return SL_OK;
}
