/* Attention over all positions of a sequence, or a window or chunk of them: of heads' keys and
 * values, and of latents. Who owns the arguments, and until when: backend.h. */
#ifndef SL_BACKENDS_OPS_ATTENTION_H
#define SL_BACKENDS_OPS_ATTENTION_H

#include "backends/ops/kv.h"

#include <stdint.h>

/* Causal attention of n_tok query rows over paged KV, heads grouped (n_heads / n_kv_heads share
 * one KV head): y[t,h,:] = softmax_j(scale * q[t,h,:].k[j,:]) v[j,:] over the positions
 * j in [max(0, len - window), len), len = row_len[t], window 0 = all.
 * q [n_tok, n_heads, head_dim_k], token t at t*stride_q elements; y [n_tok, n_heads, head_dim_v]
 * contiguous. Position j of row t is in page page_table[row_seq[t] * max_pages + j / PAGE_TOKENS].
 * sinks [n_heads] f32 or NULL: an extra logit that takes part in the softmax's sum only.
 * softcap above 0: the score s = scale * q.k becomes softcap * tanh(s / softcap).
 * chunk above 0: positions are divided into chunks of this size, and a row sees only those of its
 * own chunk: j >= (len - 1) / chunk * chunk; window must be 0. softcap, chunk: caps.extra_args.
 * Source: FlashAttention's online softmax (Dao et al. 2022); gpt-oss model card for sinks. */
struct sl_op_attention {
    struct sl_kv_view kv;
    const float *q, *sinks;
    float *y;
    const uint32_t *page_table, *row_seq, *row_len;
    uint32_t n_tok, n_decode, n_heads, stride_q, max_pages, window;
    float scale;
    float softcap;
    uint32_t chunk;
};

/* Causal attention of n_tok query rows over paged latents c:
 *   y[t,h,:] = softmax_j(scale * q[t,h,:].c[j,:]) c[j,0..n_latent) over the positions j <
 * row_len[t] q [n_tok, n_heads, n_latent + n_rot], y [n_tok, n_heads, n_latent], both contiguous.
 * page_table, row_seq and row_len as in sl_op_attention, whose order of operations it has too.
 * Source: DeepSeek-AI 2024, "DeepSeek-V2", section 2.1, with the projections of keys and values
 * taken into query and output. */
struct sl_op_latent_attention {
    struct sl_latent_view kv;
    const float *q;
    float *y;
    const uint32_t *page_table, *row_seq, *row_len;
    uint32_t n_tok, n_decode, n_heads, max_pages;
    float scale;
    uint32_t window; /* as in sl_op_attention; caps.latent_window */
};

/* The same as attention: latents are the keys of one KV head, whose first elements are its values
 * too. A row of values is then as wide as one of keys. */
static inline struct sl_op_attention
sl_latent_as_attention(const struct sl_op_latent_attention *a) {
    uint32_t dim = a->kv.n_latent + a->kv.n_rot;
    return (struct sl_op_attention){.kv = {.k = a->kv.rows,
                                           .v = a->kv.rows,
                                           .dtype = a->kv.dtype,
                                           .n_kv_heads = 1,
                                           .head_dim_k = dim,
                                           .head_dim_v = a->kv.n_latent,
                                           .k_page_bytes = a->kv.page_bytes,
                                           .v_page_bytes = a->kv.page_bytes},
                                    .q = a->q,
                                    .y = a->y,
                                    .page_table = a->page_table,
                                    .row_seq = a->row_seq,
                                    .row_len = a->row_len,
                                    .n_tok = a->n_tok,
                                    .n_decode = a->n_decode,
                                    .n_heads = a->n_heads,
                                    .stride_q = a->n_heads * dim,
                                    .max_pages = a->max_pages,
                                    .window = a->window,
                                    .scale = a->scale};
}

#endif
