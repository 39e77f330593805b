/* Attention over paged KV, and writing to its pages. */
#include "backends/vulkan/ops.h"

#define NARROW_DIM   256u  /* shaders/attention.comp */
#define MAX_HEAD_DIM 1024u /* shaders/attention_wide.comp */
#define UNITS        32u   /* elements of a thread of shaders/kv_write.comp */
#define WRITE_UNITS  64u   /* ... and its threads */
#define PAGE         64u   /* positions */
#define PADDING      16u   /* bytes, of a row of V in shared memory */

bool sl_vk_supports(const struct sl_device *d, const struct sl_op_need *need) {
    (void)d;
    if (need->op == SL_OP_delta_rule)
        return need->head_dim_k <= SL_VK_DELTA_MAX_DIM;
    if (need->op != SL_OP_attention && need->op != SL_OP_latent_attention)
        return true;
    return need->head_dim_k <= MAX_HEAD_DIM && need->head_dim_v <= MAX_HEAD_DIM;
}

/* Rows of n_heads heads to pages of one layer. */
static enum sl_status write(struct sl_vulkan *v, enum sl_dtype dtype, const float *x, void *pages,
                            const uint32_t *slot, size_t page_bytes, uint32_t n_tok,
                            uint32_t n_heads, uint32_t head_dim, uint32_t stride) {
    const struct sl_vk_kv_write k = {.x = sl_addr_of(x),
                                     .pages = sl_addr_of(pages),
                                     .slot = sl_addr_of(slot),
                                     .page_bytes = page_bytes,
                                     .n_tok = n_tok,
                                     .n_heads = n_heads,
                                     .head_dim = head_dim,
                                     .stride = stride,
                                     .q8 = dtype == SL_DTYPE_Q8_0};
    uint64_t units = (uint64_t)n_tok * n_heads * sl_div_up(head_dim, UNITS);
    return units ? SL_VK_LAUNCH(v, kv_write, 0, sl_div_up(units, WRITE_UNITS), k) : SL_OK;
}

enum sl_status sl_vk_op_kv_write(struct sl_device *d, const struct sl_op_kv_write *a) {
    struct sl_vulkan *v = (struct sl_vulkan *)d;
    const struct sl_kv_view *kv = &a->kv;
    SL_TRY(write(v, kv->dtype, a->k, kv->k, a->slot, kv->k_page_bytes, a->n_tok, kv->n_kv_heads,
                 kv->head_dim_k, a->stride_k));
    if (a->n_tok)
        sl_vk_overlap(v);
    return write(v, kv->dtype, a->v, kv->v, a->slot, kv->v_page_bytes, a->n_tok, kv->n_kv_heads,
                 kv->head_dim_v, a->stride_v);
}

bool sl_vk_takes_qkv(const struct sl_device *d, const struct sl_fused_qkv *a) {
    const struct sl_kv_view *kv = &a->write->kv;
    (void)d;
    return kv->head_dim_k <= SL_VK_QKV_MAX_DIM && kv->head_dim_v <= SL_VK_QKV_MAX_DIM &&
           kv->k_page_bytes <= UINT32_MAX && kv->v_page_bytes <= UINT32_MAX &&
           a->q_rope->n_heads <= 0xffff && kv->n_kv_heads <= 0xffff;
}

enum sl_status sl_vk_fused_qkv(struct sl_device *d, const struct sl_fused_qkv *a) {
    const struct sl_op_rope *q = a->q_rope;
    const struct sl_op_kv_write *w = a->write;
    uint32_t flags = (a->q_norm ? SL_VK_QKV_NORMS : 0) |
                     (q->style == SL_ROPE_NEOX ? SL_VK_QKV_NEOX : 0) |
                     (w->kv.dtype == SL_DTYPE_Q8_0 ? SL_VK_QKV_Q8 : 0);
    const struct sl_vk_qkv k = {.q = sl_addr_of(q->x),
                                .k = sl_addr_of(w->k),
                                .v = sl_addr_of(w->v),
                                .q_norm = a->q_norm ? sl_addr_of(a->q_norm->w) : 0,
                                .k_norm = a->k_norm ? sl_addr_of(a->k_norm->w) : 0,
                                .table = sl_addr_of(q->table),
                                .k_pages = sl_addr_of(w->kv.k),
                                .v_pages = sl_addr_of(w->kv.v),
                                .slot = sl_addr_of(w->slot),
                                .heads = q->n_heads | w->kv.n_kv_heads << 16,
                                .dims = w->kv.head_dim_k | w->kv.head_dim_v << 16,
                                .n_tok = q->n_tok,
                                .n_freq = q->n_freq,
                                .stride_v = w->stride_v,
                                .flags = flags,
                                .q_eps = a->q_norm ? a->q_norm->eps : 0,
                                .k_eps = a->k_norm ? a->k_norm->eps : 0,
                                .k_page_bytes = (uint32_t)w->kv.k_page_bytes,
                                .v_page_bytes = (uint32_t)w->kv.v_page_bytes};
    uint64_t n = (uint64_t)q->n_tok * (q->n_heads + 2 * w->kv.n_kv_heads);
    return n ? SL_VK_LAUNCH((struct sl_vulkan *)d, qkv, 0, n, k) : SL_OK;
}

enum sl_status sl_vk_op_latent_write(struct sl_device *d, const struct sl_op_latent_write *a) {
    const struct sl_latent_view *kv = &a->kv;
    return write((struct sl_vulkan *)d, kv->dtype, a->x, kv->rows, a->slot, kv->page_bytes,
                 a->n_tok, 1, kv->n_latent + kv->n_rot, a->stride);
}

/* Puts the parts of n_tok rows together, and quantises these where there is room and rows are whole
 * blocks: most often a product with quantised weights follows. */
static enum sl_status join(struct sl_vulkan *v, uint32_t n_tok, const struct sl_vk_attention *k) {
    uint32_t n_heads = k->heads & 0xffff, dim_v = k->dims >> 16, n = n_heads * dim_v;
    uint64_t parts_bytes = sl_round_256((uint64_t)n_tok * n_heads * SL_VK_ATTENTION_PARTS *
                                        (dim_v + 2) * sizeof(float));
    uint64_t row_bytes = sl_round_256(sl_qx_bytes(n_tok, n));
    const uint64_t at[2] = {k->parts + parts_bytes, k->parts + parts_bytes + row_bytes};
    const struct sl_vk_attention_join one = {k->parts, k->sinks, k->y,      k->row_len,
                                             n_heads,  dim_v,    k->window, k->chunk};
    const struct sl_vk_join_quantize both = {k->parts,  k->sinks, k->y,    k->row_len,
                                             at[0],     at[1],    n_heads, dim_v,
                                             k->window, k->chunk, n_tok};
    if (n % 256 != 0 || parts_bytes + 2 * row_bytes > v->scratch.bytes)
        return SL_VK_LAUNCH(v, attention_join, 0, (uint64_t)n_tok * n_heads, one);
    SL_TRY(SL_VK_LAUNCH(v, join_quantize, 0, (uint64_t)n_tok * (n / 256), both));
    sl_vk_leave(v, k->y, n_tok, n, at);
    return SL_OK;
}

static enum sl_status attend(struct sl_device *d, enum sl_dtype dtype, uint32_t n_tok,
                             const struct sl_vk_attention *k) {
    uint32_t n_heads = k->heads & 0xffff, dim_k = k->dims & 0xffff, dim_v = k->dims >> 16;
    uint64_t n = (uint64_t)n_tok * n_heads;
    bool narrow = dim_k <= NARROW_DIM && dim_v <= NARROW_DIM;
    if (!n)
        return SL_OK;
    struct sl_vulkan *v = (struct sl_vulkan *)d;
    enum sl_vk_kernel kernel = narrow ? SL_VK_attention : SL_VK_attention_wide;
    struct sl_vk_attention own = *k;
    bool divided = n <= SL_VK_ATTENTION_ROWS &&
                   n * SL_VK_ATTENTION_PARTS * (dim_v + 2) * sizeof(float) <= v->scratch.bytes;
    own.parts = divided ? v->scratch.addr : 0;
    SL_TRY(sl_vk_launch(v, kernel, (uint32_t)dtype, divided ? n * SL_VK_ATTENTION_PARTS : n, &own,
                        sizeof own));
    return divided ? join(v, n_tok, &own) : SL_OK;
}

bool sl_vk_has_prompt_attention(const struct sl_vulkan *v, uint32_t dim) {
    uint32_t shared = SL_VK_PROMPT_SHARED_BYTES + PAGE * (2 * dim + PADDING);
    return (v->fused_fma ? v->info.half_matrices : v->emulate_matrices) &&
           dim <= SL_VK_PROMPT_DIM && v->info.shared_bytes >= shared;
}

/* k: of all rows. */
static enum sl_status attend_prompt(struct sl_vulkan *v, uint32_t n_rows,
                                    const struct sl_vk_attention *k) {
    uint32_t n_heads = k->heads & 0xffff, n_kv = k->heads >> 16, per_kv = n_heads / n_kv;
    uint32_t width = per_kv < SL_VK_PROMPT_PAIRS ? per_kv : SL_VK_PROMPT_PAIRS;
    uint64_t n = sl_div_up(n_rows, SL_VK_PROMPT_PAIRS / width) * n_kv * sl_div_up(per_kv, width);
    uint32_t dim_k = k->dims & 0xffff, dim_v = k->dims >> 16;
    struct sl_vk_attention own = *k;
    own.n_rows = n_rows;
    return SL_VK_LAUNCH(v, attention_prompt, (dim_k > dim_v ? dim_k : dim_v) / 16, n, own);
}

/* Whether rows' own kernel takes these. Never by how many rows there are: a row's bits would
 * differ. */
static bool takes_prompt(const struct sl_vulkan *v, const struct sl_op_attention *a) {
    const struct sl_kv_view *kv = &a->kv;
    uint64_t all = sl_addr_of(kv->k) | sl_addr_of(kv->v) | kv->k_page_bytes | kv->v_page_bytes;
    uint32_t dims = kv->head_dim_k | kv->head_dim_v;
    uint32_t dim = kv->head_dim_k > kv->head_dim_v ? kv->head_dim_k : kv->head_dim_v;
    return kv->dtype == SL_DTYPE_F16 && dims % 16 == 0 && all % 16 == 0 &&
           sl_vk_has_prompt_attention(v, dim);
}

/* v_width: elements of a row of V. */
static struct sl_vk_attention args_of(const struct sl_op_attention *a, uint32_t v_width) {
    return (struct sl_vk_attention){.k = sl_addr_of(a->kv.k),
                                    .v = sl_addr_of(a->kv.v),
                                    .q = sl_addr_of(a->q),
                                    .sinks = sl_addr_of(a->sinks),
                                    .y = sl_addr_of(a->y),
                                    .page_table = sl_addr_of(a->page_table),
                                    .row_seq = sl_addr_of(a->row_seq),
                                    .row_len = sl_addr_of(a->row_len),
                                    .k_page_bytes = a->kv.k_page_bytes,
                                    .v_page_bytes = a->kv.v_page_bytes,
                                    .heads = a->n_heads | a->kv.n_kv_heads << 16,
                                    .dims = a->kv.head_dim_k | a->kv.head_dim_v << 16,
                                    .stride_q = a->stride_q,
                                    .max_pages = a->max_pages,
                                    .window = a->window,
                                    .chunk = a->chunk,
                                    .scale = a->scale,
                                    .softcap = a->softcap,
                                    .v_width = v_width};
}

/* sl_vk_supports says so of dimensions before anything is loaded. */
static bool too_large(const struct sl_op_attention *a) {
    return a->kv.head_dim_k > MAX_HEAD_DIM || a->kv.head_dim_v > MAX_HEAD_DIM ||
           a->n_heads > 0xffff;
}

enum sl_status sl_vk_op_attention(struct sl_device *d, const struct sl_op_attention *a) {
    const struct sl_vk_attention k = args_of(a, a->kv.head_dim_v);
    if (too_large(a))
        return SL_ERR_UNSUPPORTED;
    struct sl_vulkan *v = (struct sl_vulkan *)d;
    if (a->n_decode >= a->n_tok || !takes_prompt(v, a))
        return attend(d, a->kv.dtype, a->n_tok, &k);
    SL_TRY(attend(d, a->kv.dtype, a->n_decode, &k));
    struct sl_vk_attention prompt = k;
    uint64_t n = a->n_decode;
    prompt.q += n * a->stride_q * sizeof(float);
    prompt.y += n * a->n_heads * a->kv.head_dim_v * sizeof(float);
    prompt.row_seq += n * sizeof(uint32_t);
    prompt.row_len += n * sizeof(uint32_t);
    if (n)
        sl_vk_overlap(v);
    return attend_prompt(v, a->n_tok - a->n_decode, &prompt);
}

enum sl_status sl_vk_op_latent_attention(struct sl_device *d,
                                         const struct sl_op_latent_attention *a) {
    const struct sl_op_attention op = sl_latent_as_attention(a);
    const struct sl_vk_attention k = args_of(&op, op.kv.head_dim_k);
    return too_large(&op) ? SL_ERR_UNSUPPORTED : attend(d, op.kv.dtype, op.n_tok, &k);
}
