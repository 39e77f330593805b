/* What the embeddings of n-grams give to the streams of rows. */
#include "backends/cpu/cpu_internal.h"
#include "backends/cpu/math.h"
#include "backends/cpu/state.h"
#include "backends/ops/ngram.h"

#include <math.h>
#include <string.h>

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

#define COLS     256u
#define MAX_KEPT ((SL_CONV_MAX_TAPS - 1) * SL_NGRAM_MAX_STEP)

struct conv_job {
    const struct sl_op_ngram_conv *a;
    const struct sl_cpu_kernels *k;
};

/* Channels [c, c + n) of all rows. h of the positions before the call's rows is in `old`, since its
 * page may be written before the last row that needs it has been computed. */
static void conv_channels(const struct conv_job *j, uint32_t c, uint32_t n) {
    const struct sl_op_ngram_conv *a = j->a;
    float w[SL_CONV_MAX_TAPS * COLS], old[MAX_KEPT * COLS], out[COLS];
    static const float none[COLS];
    const float *h[SL_CONV_MAX_TAPS];
    uint32_t n_old = (a->n_taps - 1) * a->step, first = 0;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < a->n_taps; k++)
            w[k * COLS + i] = a->w[(size_t)(c + i) * a->n_taps + k];
    for (uint32_t t = 0; t < a->n_tok; t++) {
        if (!sl_cpu_follows(&a->state, t)) {
            const float *from = sl_cpu_state_before(&a->state, t);
            first = t;
            for (uint32_t k = 0; k < n_old; k++)
                if (from)
                    memcpy(old + k * COLS, from + (size_t)k * a->n + c, n * sizeof *old);
                else
                    memset(old + k * COLS, 0, n * sizeof *old);
        }
        for (uint32_t k = 0; k < a->n_taps; k++) {
            uint32_t back = (a->n_taps - 1 - k) * a->step;
            h[k] = t - first >= back ? a->h + (size_t)(t - back) * a->n + c
                                     : old + (size_t)(n_old + t - first - back) * COLS;
        }
        j->k->conv_silu(h, w, COLS, none, out, a->n_taps, n);
        const float *x = a->x + (size_t)t * a->n + c;
        float *y = a->y + (size_t)t * a->n + c;
        for (uint32_t i = 0; i < n; i++)
            y[i] += x[i] + out[i];
        if (!sl_cpu_is_kept(&a->state, t, a->n_tok))
            continue;
        float *to = sl_cpu_state_behind(&a->state, t);
        for (uint32_t k = 0; k < n_old; k++) {
            uint32_t back = n_old - 1 - k;
            const float *from = t - first >= back ? a->h + (size_t)(t - back) * a->n + c
                                                  : old + (size_t)(n_old + t - first - back) * COLS;
            memcpy(to + (size_t)k * a->n + c, from, n * sizeof *to);
        }
    }
}

static void conv_blocks(void *ctx, uint32_t begin, uint32_t end) {
    const struct conv_job *j = ctx;
    for (uint32_t b = begin; b < end; b++) {
        uint32_t c = b * COLS, left = j->a->n - c;
        conv_channels(j, c, left < COLS ? left : COLS);
    }
}

enum sl_status sl_cpu_ngram_conv(struct sl_device *d, const struct sl_op_ngram_conv *a) {
    struct sl_cpu *cpu = (struct sl_cpu *)d;
    struct conv_job j = {a, &cpu->k};
    sl_cpu_for_rows(cpu, (a->n + COLS - 1) / COLS, (size_t)a->n_tok * a->n_taps * COLS, conv_blocks,
                    &j);
    return SL_OK;
}
