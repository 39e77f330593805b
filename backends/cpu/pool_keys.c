/* Keys of blocks of positions: sums that go from row to row, and become a key with the block's
 * last. A few hundred elements a row, so one thread does them. */
#include "backends/cpu/cpu_internal.h"
#include "backends/cpu/state.h"
#include "backends/ops/pool.h"

#include <math.h>
#include <string.h>

static void make_key(const struct sl_cpu *cpu, const struct sl_op_pool_keys *a, uint32_t t,
                     const float *sum) {
    float y[SL_CPU_MAX_HEAD_DIM], table[SL_CPU_MAX_HEAD_DIM], by = 1.0f / (float)a->ratio;
    uint32_t block = a->state.row_len[t] / a->ratio - 1, rows = SL_KV_PAGE_TOKENS / a->ratio;
    for (uint32_t i = 0; i < a->n; i++)
        y[i] = sum[i] * by;
    cpu->k.rms_norm(y, a->norm, y, a->n, a->eps);
    for (uint32_t i = 0; i < a->n_freq; i++) {
        double angle = (double)(block * a->ratio) * (double)a->inv_freq[i], c, s;
        sincos(angle, &s, &c);
        table[2 * i] = (float)(c * (double)a->mscale);
        table[2 * i + 1] = (float)(s * (double)a->mscale);
    }
    cpu->k.rope_neox(y, table, a->n_freq);
    size_t page = a->out_table[(size_t)a->state.row_seq[t] * a->state.max_pages + block / rows];
    char *to = (char *)a->out.rows + page * a->out.page_bytes +
               block % rows * sl_dtype_row_bytes(a->out.dtype, a->n);
    (a->out.dtype == SL_DTYPE_F16 ? cpu->k.f32_to_f16 : cpu->k.f32_to_q8_0)(y, to, a->n);
}

enum sl_status sl_cpu_pool_keys(struct sl_device *d, const struct sl_op_pool_keys *a) {
    struct sl_cpu *cpu = (struct sl_cpu *)d;
    float sum[SL_CPU_MAX_HEAD_DIM];
    for (uint32_t t = 0; t < a->n_tok; t++) {
        const float *k = a->k + (size_t)t * a->n;
        if ((a->state.row_len[t] - 1) % a->ratio == 0) {
            memcpy(sum, k, a->n * sizeof *sum);
        } else {
            if (!sl_cpu_follows(&a->state, t))
                memcpy(sum, sl_cpu_state_before(&a->state, t), a->n * sizeof *sum);
            cpu->k.add(k, sum, a->n);
        }
        if (a->state.row_len[t] % a->ratio == 0)
            make_key(cpu, a, t, sum);
        if (sl_cpu_is_kept(&a->state, t, a->n_tok))
            memcpy(sl_cpu_state_behind(&a->state, t), sum, a->n * sizeof *sum);
    }
    return SL_OK;
}
