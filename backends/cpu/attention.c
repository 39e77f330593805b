/* The op: which rows go which way, and where things lie in scratch. */
#include "backends/cpu/attention.h"
#include "backends/ops/index.h"

#include <string.h>

static size_t align64(size_t n) {
    return (n + 63) / 64 * 64;
}

/* Lays the arrays out from base (NULL to measure) and returns their size. */
static size_t lay_out(struct sl_cpu_attn_scratch *m, char *base,
                      const struct sl_device_limits *limits, uint32_t n_threads) {
    size_t at = 0, heads = limits->max_heads, tok = limits->max_tok;
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
    PLACE(tiles, tok);
    size_t gathered = sl_cpu_attention_gather_bytes(limits->max_head_dim);
    m->thread_bytes = sl_cpu_attention_tile_bytes(limits->max_head_dim);
    m->thread_bytes = m->thread_bytes > gathered ? m->thread_bytes : gathered;
    PLACE(thread, n_threads * m->thread_bytes);
#undef PLACE
    return at;
}

uint64_t sl_cpu_attention_scratch_bytes(const struct sl_device_limits *limits, uint32_t n_threads) {
    struct sl_cpu_attn_scratch m;
    return lay_out(&m, NULL, limits, n_threads);
}

/* Rows of one sequence, next to each other, with at least this many heads between them that share a
 * KV head, go as tiles: from here on these are faster although lanes stay empty (measured). */
#define MIN_LANES 24u

/* Rows of one sequence that leave out no position; each of the others goes alone. */
static uint32_t run_length(const struct sl_op_attention *a, const struct sl_cpu_attn_choice *choice,
                           uint32_t t) {
    uint32_t n = 1;
    if (sl_cpu_attn_chooses(a, choice, t))
        return n;
    while (t + n < a->n_tok && a->row_seq[t + n] == a->row_seq[t] &&
           !sl_cpu_attn_chooses(a, choice, t + n))
        n++;
    return n;
}

static void run(struct sl_cpu *cpu, const struct sl_op_attention *a, size_t v_row_bytes,
                struct sl_cpu_attn_choice choice) {
    struct sl_cpu_attn_scratch mem;
    uint32_t n_threads = sl_pool_n_threads(cpu->pool), n_kv = a->kv.n_kv_heads;
    uint32_t group = a->n_heads / n_kv, n_rows = 0, n_tiles = 0, n_tile_rows = 0;
    lay_out(&mem, cpu->scratch, &cpu->base.limits, n_threads);
    mem.k_row_bytes = sl_dtype_row_bytes(a->kv.dtype, a->kv.head_dim_k);
    mem.v_row_bytes = v_row_bytes;
    mem.choice = choice;

    for (uint32_t t = 0, n; t < a->n_tok; t += n) {
        n = run_length(a, &choice, t);
        n_tile_rows += cpu->k.tile_qk && n > 1 && n * group >= MIN_LANES ? n : 0;
    }
    /* Large tiles convert K and V less often, small ones keep more threads busy. */
    uint32_t rows_per_tile = SL_CPU_ATTN_LANES / group;
    while (rows_per_tile * group > SL_CPU_ATTN_TILE &&
           n_tile_rows / rows_per_tile * n_kv < 4 * n_threads)
        rows_per_tile /= 2;
    rows_per_tile = rows_per_tile ? rows_per_tile : 1;

    for (uint32_t t = 0, n; t < a->n_tok; t += n) {
        n = run_length(a, &choice, t);
        if (!cpu->k.tile_qk || n == 1 || n * group < MIN_LANES) {
            for (uint32_t r = t; r < t + n; r++)
                mem.rows[n_rows++] = r;
            continue;
        }
        for (uint32_t r = 0; r < n; r += rows_per_tile)
            mem.tiles[n_tiles++] =
                (struct sl_cpu_attn_rows){t + r, n - r < rows_per_tile ? n - r : rows_per_tile};
    }
    sl_cpu_attention_rows(cpu, a, mem.rows, n_rows, &mem);
    sl_cpu_attention_tiles(cpu, a, n_tiles, &mem);
}

enum sl_status sl_cpu_attention(struct sl_device *d, const struct sl_op_attention *a) {
    run((struct sl_cpu *)d, a, sl_dtype_row_bytes(a->kv.dtype, a->kv.head_dim_v),
        (struct sl_cpu_attn_choice){.at = NULL});
    return SL_OK;
}

static enum sl_status run_blocks(struct sl_device *d, const struct sl_op_block_attention *a,
                                 bool tail) {
    const struct sl_op_attention op = {.kv = a->kv,
                                       .q = a->q,
                                       .y = a->y,
                                       .page_table = a->page_table,
                                       .row_seq = a->row_seq,
                                       .row_len = a->row_len,
                                       .n_tok = a->n_tok,
                                       .n_decode = a->n_decode,
                                       .n_heads = a->n_heads,
                                       .stride_q = a->stride_q,
                                       .max_pages = a->max_pages,
                                       .scale = a->scale};
    run((struct sl_cpu *)d, &op, sl_dtype_row_bytes(a->kv.dtype, a->kv.head_dim_v),
        (struct sl_cpu_attn_choice){
            .at = a->chosen, .n_top = a->n_top, .block = a->block, .tail = tail});
    return SL_OK;
}

enum sl_status sl_cpu_block_attention(struct sl_device *d, const struct sl_op_block_attention *a) {
    return run_blocks(d, a, false);
}

enum sl_status sl_cpu_pooled_attention(struct sl_device *d,
                                       const struct sl_op_pooled_attention *a) {
    return run_blocks(d, &a->blocks, true);
}

static void run_latents(struct sl_device *d, const struct sl_op_latent_attention *a,
                        const float *sinks, struct sl_cpu_attn_choice choice) {
    struct sl_op_attention op = sl_latent_as_attention(a);
    op.sinks = sinks;
    run((struct sl_cpu *)d, &op, sl_dtype_row_bytes(op.kv.dtype, op.kv.head_dim_k), choice);
}

enum sl_status sl_cpu_latent_attention(struct sl_device *d,
                                       const struct sl_op_latent_attention *a) {
    run_latents(d, a, NULL, (struct sl_cpu_attn_choice){.at = NULL});
    return SL_OK;
}

enum sl_status sl_cpu_chosen_attention(struct sl_device *d,
                                       const struct sl_op_chosen_attention *a) {
    const struct sl_op_latent_attention op = sl_chosen_as_latent(a);
    run_latents(d, &op, NULL,
                (struct sl_cpu_attn_choice){.at = a->chosen, .n_top = a->n_top, .block = 1});
    return SL_OK;
}

enum sl_status sl_cpu_compressed_attention(struct sl_device *d,
                                           const struct sl_op_compressed_attention *a) {
    const struct sl_op_latent_attention op = {.kv = a->kv,
                                              .q = a->q,
                                              .y = a->y,
                                              .page_table = a->page_table,
                                              .row_seq = a->row_seq,
                                              .row_len = a->row_len,
                                              .n_tok = a->n_tok,
                                              .n_decode = a->n_decode,
                                              .n_heads = a->n_heads,
                                              .max_pages = a->max_pages,
                                              .scale = a->scale};
    run_latents(d, &op, a->sinks, (struct sl_cpu_attn_choice){.mixed = a});
    return SL_OK;
}
