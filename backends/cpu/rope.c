/* Rotary embedding: Su et al., "RoFormer", 2021. The angles are made once a step, in double: at
 * position 100,000 a float product would be off by 0.004 rad. */
#include "backends/cpu/cpu_internal.h"
#include "backends/ops/rope.h"

#include <math.h>

static void rotate(float *a, float *b, float c, float s) {
    float x = *a, y = *b;
    *a = fmaf(x, c, -(y * s));
    *b = fmaf(x, s, y * c);
}

static void rope_norm_c(float *x, const float *table, uint32_t n_freq) {
    for (uint32_t i = 0; i < n_freq; i++)
        rotate(&x[2 * i], &x[2 * i + 1], table[2 * i], table[2 * i + 1]);
}

static void rope_neox_c(float *x, const float *table, uint32_t n_freq) {
    for (uint32_t i = 0; i < n_freq; i++)
        rotate(&x[i], &x[i + n_freq], table[2 * i], table[2 * i + 1]);
}

void sl_cpu_rope_init(struct sl_cpu_kernels *k) {
    k->rope_norm = rope_norm_c;
    k->rope_neox = rope_neox_c;
}

static void table_rows(void *ctx, uint32_t begin, uint32_t end) {
    const struct sl_op_rope_table *a = ctx;
    for (size_t t = begin; t < end; t++)
        for (uint32_t i = 0; i < a->n_freq; i++) {
            double angle = (double)a->pos[t] * (double)a->inv_freq[i], c, s;
            sincos(angle, &s, &c);
            float *out = a->table + (t * a->n_freq + i) * 2;
            out[0] = (float)(c * (double)a->mscale);
            out[1] = (float)(s * (double)a->mscale);
        }
}

enum sl_status sl_cpu_rope_table(struct sl_device *d, const struct sl_op_rope_table *a) {
    struct sl_op_rope_table copy = *a;
    sl_cpu_for_rows((struct sl_cpu *)d, a->n_tok, (size_t)a->n_freq * 64, table_rows, &copy);
    return SL_OK;
}

struct job {
    const struct sl_op_rope *a;
    void (*head)(float *x, const float *table, uint32_t n_freq);
};

static void rope_rows(void *ctx, uint32_t begin, uint32_t end) {
    const struct job *j = ctx;
    const struct sl_op_rope *a = j->a;
    for (size_t t = begin; t < end; t++)
        for (size_t h = 0; h < a->n_heads; h++)
            j->head(a->x + t * a->stride + h * a->head_dim, a->table + t * a->n_freq * 2,
                    a->n_freq);
}

enum sl_status sl_cpu_rope(struct sl_device *d, const struct sl_op_rope *a) {
    struct sl_cpu *cpu = (struct sl_cpu *)d;
    struct job j = {a, a->style == SL_ROPE_NORM ? cpu->k.rope_norm : cpu->k.rope_neox};
    sl_cpu_for_rows(cpu, a->n_tok, (size_t)a->n_heads * a->n_freq * 2, rope_rows, &j);
    return SL_OK;
}
