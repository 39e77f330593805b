/* Keys and values in pages, how one layer has them, and writing a step's rows to them: of heads,
 * and latents, of which one row serves all heads. Who owns the arguments, and until when:
 * backend.h. */
#ifndef SL_BACKENDS_OPS_KV_H
#define SL_BACKENDS_OPS_KV_H

#include "common/dtype.h"

#include <stddef.h>
#include <stdint.h>

/* Positions per KV page. */
#define SL_KV_PAGE_TOKENS 64u

/* One layer's paged KV. Page p: K at k + p*k_page_bytes as [n_kv_heads, SL_KV_PAGE_TOKENS,
 * head_dim_k] of dtype (F16 or Q8_0), V alike. head_dim_* are multiples of the type's block. */
struct sl_kv_view {
    void *k, *v;
    enum sl_dtype dtype;
    uint32_t n_kv_heads, head_dim_k, head_dim_v;
    size_t k_page_bytes, v_page_bytes;
};

/* Writes row t's k and v to position slot[t] = page * SL_KV_PAGE_TOKENS + index in the page.
 * k [n_tok, n_kv_heads, head_dim_k], v [n_tok, n_kv_heads, head_dim_v] f32, token t at
 * t*stride_k and t*stride_v elements. */
struct sl_op_kv_write {
    struct sl_kv_view kv;
    const float *k, *v;
    const uint32_t *slot;
    uint32_t n_tok, stride_k, stride_v;
};

/* One layer's paged latents. Page p: at rows + p*page_bytes as [SL_KV_PAGE_TOKENS, n_latent +
 * n_rot] of dtype (F16 or Q8_0): one row per position, shared by all heads. The whole row is
 * the key; its first n_latent elements are also the value. Both widths are multiples of the type's
 * block. */
struct sl_latent_view {
    void *rows;
    enum sl_dtype dtype;
    uint32_t n_latent, n_rot;
    size_t page_bytes;
};

/* Writes row t of x, n_latent + n_rot elements at t*stride, to position slot[t] = page *
 * SL_KV_PAGE_TOKENS + index in the page. */
struct sl_op_latent_write {
    struct sl_latent_view kv;
    const float *x;
    const uint32_t *slot;
    uint32_t n_tok, stride;
};

#endif
