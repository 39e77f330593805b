/* The op: which rows go which way, and where things lie in scratch. */
#include "backends/cpu/attention.h"

#include <string.h>

static size_t align64(size_t n) {
    return (n + 63) / 64 * 64;
}

/* Lays the arrays out from base (NULL to measure) and returns their size. */
static size_t lay_out(struct sl_cpu_attn_scratch *m, char *base,
                      const struct sl_device_limits *limits, uint32_t n_threads) {
    size_t at = 0, heads = limits->max_heads, tok = limits->max_tok;
    (void)n_threads;
#define PLACE(field, n)                                                                            \
    do {                                                                                           \
        m->field = (void *)(base ? base + at : NULL);                                              \
        at += align64((n) * sizeof *m->field);                                                     \
    } while (0)
    PLACE(items, SL_CPU_ATTN_SLOTS);
    PLACE(row_slot, SL_CPU_ATTN_SLOTS);
    PLACE(part_m, SL_CPU_ATTN_SLOTS * heads);
    PLACE(part_l, SL_CPU_ATTN_SLOTS * heads);
    PLACE(part_o, SL_CPU_ATTN_SLOTS * heads * limits->max_head_dim);
    PLACE(state, tok * heads * 2);
    PLACE(rows, tok);
#undef PLACE
    return at;
}

uint64_t sl_cpu_attention_scratch_bytes(const struct sl_device_limits *limits, uint32_t n_threads) {
    struct sl_cpu_attn_scratch m;
    return lay_out(&m, NULL, limits, n_threads);
}

enum sl_status sl_cpu_attention(struct sl_device *d, const struct sl_op_attention *a) {
    struct sl_cpu *cpu = (struct sl_cpu *)d;
    struct sl_cpu_attn_scratch mem;
    lay_out(&mem, cpu->scratch, &d->limits, sl_pool_n_threads(cpu->pool));
    for (uint32_t t = 0; t < a->n_tok; t++)
        mem.rows[t] = t;
    sl_cpu_attention_rows(cpu, a, mem.rows, a->n_tok, &mem);
    return SL_OK;
}
