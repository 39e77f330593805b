/* The mixer that is compressed attention. Of each position one row is kept, key and value of all
 * heads, while it is in the window. What a block's row is made of is kept for as long, and becomes
 * the row when the block's last position comes; an indexer has keys of blocks made the same way,
 * and chooses among them. */
#include "backends/ops/compress.h"
#include "backends/ops/elementwise.h"
#include "backends/ops/matmul.h"
#include "backends/ops/rope.h"
#include "engine/layers/layer_kind.h"
#include "engine/layers/streams.h"
#include "engine/pass/pass_internal.h"
#include "engine/layers/op_asker.h"

/* Of the indexer's keys, which decide what is attended to: whatever the type of the KV cache. */
#define KEY_DTYPE SL_DTYPE_F16

/* Stores of a layer, and their parts. */
enum { STORE_WINDOW, STORE_BLOCKS };
enum { PART_ROWS, PART_KEPT };       /* of the window: rows; what blocks will be made of */
enum { PART_COMPRESSED, PART_KEYS }; /* of the blocks */

/* Elements of kept values and gates of a position, of the blocks' rows and of their keys. */
static uint32_t kept(uint32_t width) {
    return 2 * width;
}

/* What is in a.joint of a row, one part behind the other for all rows. */
struct parts {
    float *block_kv, *block_gate, *index_kv, *index_gate, *index_w, *index_q;
};

/* Elements of a row. */
static uint32_t parts_elems(const struct sl_compressed_spec *c) {
    return 2 * sl_compressed_width(c) + 2 * sl_compressed_index_width(c) +
           c->n_index_head * (1 + c->index_dim);
}

static struct parts parts_at(const struct sl_compressed_spec *c, float *base, uint32_t n_rows) {
    uint32_t block = sl_compressed_width(c), index = sl_compressed_index_width(c);
    struct parts p;
    float *at = base;
    p.block_kv = at, at += (size_t)n_rows * block;
    p.block_gate = at, at += (size_t)n_rows * block;
    p.index_kv = at, at += (size_t)n_rows * index;
    p.index_gate = at, at += (size_t)n_rows * index;
    p.index_w = at, at += (size_t)n_rows * c->n_index_head;
    p.index_q = at;
    return p;
}

static struct sl_latent_view view_of(const struct sl_forward *f, const struct sl_kv_part *part,
                                     enum sl_dtype dtype, uint32_t n) {
    return (struct sl_latent_view){.rows = sl_span_addr(sl_kv_part_span(f->kv, part)),
                                   .dtype = dtype,
                                   .n_latent = n,
                                   .page_bytes = part->bytes};
}

/* Of the store of the window, which may have tail pages. */
static const uint32_t *window_table(const struct sl_forward *f, uint32_t layer) {
    return sl_kv_is_tail(f->kv, layer) ? f->a.tail_table : f->a.page_table;
}
static const uint32_t *window_slot(const struct sl_forward *f, uint32_t layer) {
    return sl_kv_is_tail(f->kv, layer) ? f->on_device.tail_slot : f->on_device.slot;
}

static enum sl_status rope(struct sl_forward *f, uint32_t rope, float *x, uint32_t n_head,
                           uint32_t head_dim) {
    const struct sl_rope_spec *r = &f->hp->rope[rope];
    return sl_op_rope(
        f->dev,
        &(struct sl_op_rope){.x = x + head_dim - r->n_rot,
                             .table = f->a.rope_table[rope],
                             .n_tok = f->step.n_rows,
                             .n_heads = n_head,
                             .head_dim = head_dim,
                             .stride = n_head * head_dim,
                             .n_freq = r->n_rot / 2,
                             .style = r->kind == SL_ROPE_KIND_NORM ? SL_ROPE_NORM : SL_ROPE_NEOX});
}

/* What is made of the layer's normed input, and of the queries' low rank. */
static enum sl_status products(struct sl_forward *f, const struct sl_layer_weights *w,
                               const struct parts *p, const struct sl_place *where) {
    const struct sl_compressed_spec *c = &w->spec->compressed;
    const struct sl_step *s = &f->step;
    struct sl_activations *a = &f->a;
    struct sl_op_matmul in = {.x = a->h,
                              .n_tok = s->n_rows,
                              .n_decode = s->n_decode,
                              .n_w = c->ratio ? 4 : 2,
                              .out = {{w->q_a, NULL, a->v, false},
                                      {w->kv_a, NULL, a->k, false},
                                      {w->block_kv, NULL, p->block_kv, false},
                                      {w->block_gate, NULL, p->block_gate, false}}};
    SL_FORWARD_TRY("q, kv, blocks", sl_op_matmul(f->dev, &in));
    if (c->n_index_top) {
        struct sl_op_matmul index = {.x = a->h,
                                     .n_tok = s->n_rows,
                                     .n_decode = s->n_decode,
                                     .n_w = 3,
                                     .out = {{w->index_k, NULL, p->index_kv, false},
                                             {w->index_gate, NULL, p->index_gate, false},
                                             {w->index_w, NULL, p->index_w, false}}};
        SL_FORWARD_TRY("index keys", sl_op_matmul(f->dev, &index));
    }
    SL_FORWARD_TRY("q norm", sl_forward_norm(f, a->v, w->q_a_norm, a->v, s->n_rows, c->n_lora_q));
    struct sl_op_matmul q = {
        .x = a->v,
        .n_tok = s->n_rows,
        .n_decode = s->n_decode,
        .n_w = c->n_index_top ? 2 : 1,
        .out = {{w->q, NULL, a->q, false}, {w->index_q, NULL, p->index_q, false}}};
    SL_FORWARD_TRY("q", sl_op_matmul(f->dev, &q));
    return SL_OK;
}

/* Keeps kv and gate [rows, width] of n elements, which begin at `first` bytes of a page, and has
 * complete blocks of them go to out. */
static enum sl_status compress(struct sl_forward *f, const struct sl_compressed_spec *c,
                               const struct sl_op_compress *of, size_t first,
                               const struct sl_place *where) {
    const struct sl_kv_part *part = sl_kv_part(f->kv, where->layer, STORE_WINDOW) + PART_KEPT;
    struct sl_op_compress op = *of;
    op.inv_freq = f->a.inv_freq[c->rope];
    op.kept = (char *)sl_span_addr(sl_kv_part_span(f->kv, part)) + first;
    op.kept_bytes = part->bytes;
    op.slot = window_slot(f, where->layer);
    op.kept_table = window_table(f, where->layer);
    op.out_table = f->a.page_table;
    op.row_seq = f->on_device.row_seq;
    op.row_len = f->on_device.row_len;
    op.n_tok = f->step.n_rows;
    op.ratio = c->ratio;
    op.max_pages = f->plan->session_pages;
    op.n_freq = f->hp->rope[c->rope].n_rot / 2;
    op.overlap = c->overlap;
    op.eps = f->hp->norm_eps;
    op.mscale = f->rope_mscale[c->rope];
    SL_FORWARD_TRY("compression", sl_op_compress(f->dev, &op));
    return SL_OK;
}

/* Blocks' rows and keys, and which of them rows attend to. */
static enum sl_status blocks(struct sl_forward *f, const struct sl_layer_weights *w,
                             const struct parts *p, const struct sl_place *where) {
    const struct sl_compressed_spec *c = &w->spec->compressed;
    const struct sl_kv_part *store = sl_kv_part(f->kv, where->layer, STORE_BLOCKS);
    const struct sl_step *s = &f->step;
    struct sl_op_compress rows = {
        .kv = p->block_kv,
        .gate = p->block_gate,
        .ape = w->block_place,
        .norm = w->block_norm,
        .out = view_of(f, store + PART_COMPRESSED, f->plan->config.kv_dtype, c->head_dim),
        .n = c->head_dim};
    SL_TRY(compress(f, c, &rows, 0, where));
    if (!c->n_index_top)
        return SL_OK;
    struct sl_latent_view keys = view_of(f, store + PART_KEYS, KEY_DTYPE, c->index_dim);
    uint32_t n = c->index_dim & -c->index_dim; /* the largest power of two that divides a head */
    struct sl_op_compress of_keys = {.kv = p->index_kv,
                                     .gate = p->index_gate,
                                     .ape = w->index_place,
                                     .norm = w->index_norm,
                                     .out = keys,
                                     .n = c->index_dim,
                                     .spread = n};
    SL_TRY(compress(f, c, &of_keys,
                    SL_KV_PAGE_TOKENS * kept(sl_compressed_width(c)) * sizeof(float), where));
    SL_FORWARD_TRY("index rope", rope(f, c->rope, p->index_q, c->n_index_head, c->index_dim));
    SL_FORWARD_TRY(
        "index rotation",
        sl_op_hadamard(f->dev, &(struct sl_op_hadamard){.x = p->index_q,
                                                        .n_rows = s->n_rows * c->n_index_head *
                                                                  (c->index_dim / n),
                                                        .n = n}));
    SL_FORWARD_TRY(
        "index", sl_op_compressed_choose(f->dev, &(struct sl_op_compressed_choose){
                                                     .choice = {.keys = keys,
                                                                .q = p->index_q,
                                                                .w = p->index_w,
                                                                .chosen = f->a.chosen,
                                                                .page_table = f->a.page_table,
                                                                .row_seq = f->on_device.row_seq,
                                                                .row_len = f->on_device.row_len,
                                                                .n_tok = s->n_rows,
                                                                .n_decode = s->n_decode,
                                                                .n_heads = c->n_index_head,
                                                                .max_pages = f->plan->session_pages,
                                                                .n_top = c->n_index_top},
                                                     .ratio = c->ratio}));
    return SL_OK;
}

static struct sl_latent_view window_rows(const struct sl_forward *f,
                                         const struct sl_compressed_spec *c, uint32_t layer) {
    return view_of(f, sl_kv_part(f->kv, layer, STORE_WINDOW) + PART_ROWS, f->plan->config.kv_dtype,
                   c->head_dim);
}

/* Queries to q; all that is kept goes to its place. */
static enum sl_status project(struct sl_forward *f, const struct sl_layer_weights *w,
                              const struct sl_rows *r, const struct sl_place *where) {
    const struct sl_compressed_spec *c = &w->spec->compressed;
    const struct sl_step *s = &f->step;
    struct sl_activations *a = &f->a;
    const struct parts p = parts_at(c, a->joint, s->n_rows);
    const float *x;
    SL_TRY(sl_streams_read(f, r, &w->streams[0], &x, where));
    SL_FORWARD_TRY("attention norm",
                   sl_forward_norm(f, x, w->attn_norm, a->h, s->n_rows, f->hp->n_embd));
    SL_TRY(products(f, w, &p, where));
    SL_FORWARD_TRY("heads' norm",
                   sl_forward_norm(f, a->q, NULL, a->q, s->n_rows * c->n_head, c->head_dim));
    SL_FORWARD_TRY("kv norm", sl_forward_norm(f, a->k, w->kv_a_norm, a->k, s->n_rows, c->head_dim));
    SL_FORWARD_TRY("rope", rope(f, c->rope, a->q, c->n_head, c->head_dim));
    SL_FORWARD_TRY("rope", rope(f, c->rope, a->k, 1, c->head_dim));
    SL_FORWARD_TRY("kv write", sl_op_latent_write(f->dev, &(struct sl_op_latent_write){
                                                              .kv = window_rows(f, c, where->layer),
                                                              .x = a->k,
                                                              .slot = window_slot(f, where->layer),
                                                              .n_tok = s->n_rows,
                                                              .stride = c->head_dim}));
    return c->ratio ? blocks(f, w, &p, where) : SL_OK;
}

/* From q to mixed. */
static enum sl_status attend(struct sl_forward *f, const struct sl_layer_weights *w,
                             const struct sl_place *where) {
    const struct sl_compressed_spec *c = &w->spec->compressed;
    const struct sl_step *s = &f->step;
    struct sl_op_compressed_attention op = {.kv = window_rows(f, c, where->layer),
                                            .q = f->a.q,
                                            .sinks = w->sinks,
                                            .y = f->a.mixed,
                                            .page_table = window_table(f, where->layer),
                                            .row_seq = f->on_device.row_seq,
                                            .row_len = f->on_device.row_len,
                                            .n_tok = s->n_rows,
                                            .n_decode = s->n_decode,
                                            .n_heads = c->n_head,
                                            .max_pages = f->plan->session_pages,
                                            .window = c->window,
                                            .ratio = c->ratio,
                                            .n_top = c->n_index_top,
                                            .scale = c->scale};
    if (c->ratio) {
        op.blocks = view_of(f, sl_kv_part(f->kv, where->layer, STORE_BLOCKS) + PART_COMPRESSED,
                            f->plan->config.kv_dtype, c->head_dim);
        op.block_table = f->a.page_table;
    }
    if (c->n_index_top)
        op.chosen = f->a.chosen;
    SL_FORWARD_TRY("compressed attention", sl_op_compressed_attention(f->dev, &op));
    SL_FORWARD_TRY("rope back", rope(f, c->rope_back, f->a.mixed, c->n_head, c->head_dim));
    return SL_OK;
}

/* r's rows of mixed, by way of each group's low rank, in h; then to r's rows. */
static enum sl_status give(struct sl_forward *f, const struct sl_layer_weights *w,
                           const struct sl_rows *r, const float *mixed,
                           const struct sl_place *where) {
    const struct sl_compressed_spec *c = &w->spec->compressed;
    uint32_t n_in = c->n_head / c->n_group * c->head_dim;
    struct sl_activations *a = &f->a;
    SL_FORWARD_TRY(
        "groups' output",
        sl_op_head_matmul(
            f->dev, &(struct sl_op_head_matmul){
                        .x = mixed,
                        .y = a->v,
                        .w = w->out_group.data,
                        .dtype = w->out_group.dtype,
                        .head_bytes = c->n_lora_out * sl_dtype_row_bytes(w->out_group.dtype, n_in),
                        .n_tok = r->n,
                        .n_decode = r->n_decode,
                        .n_heads = c->n_group,
                        .n_in = n_in,
                        .n_out = c->n_lora_out,
                        .stride_x = n_in,
                        .stride_y = c->n_lora_out}));
    SL_FORWARD_TRY(
        "attention out",
        sl_op_matmul(f->dev, &(struct sl_op_matmul){.x = a->v,
                                                    .n_tok = r->n,
                                                    .n_decode = r->n_decode,
                                                    .n_w = 1,
                                                    .out = {{w->out, NULL, a->h, false}}}));
    return sl_streams_write(f, r, &w->streams[0], a->h, NULL, where);
}

static enum sl_status run(struct sl_forward *f, struct sl_rows *r, const struct sl_place *where) {
    const struct sl_layer_weights *w = &f->layers[where->layer];
    const struct sl_compressed_spec *c = &w->spec->compressed;
    const float *mixed = f->a.mixed;
    uint64_t start = sl_timeline_now(f->timeline);
    SL_TRY(project(f, w, r, where));
    if (!f->resident)
        sl_fetch_poll(f->fetch);
    bool cut = sl_forward_cuts(f, where->layer);
    if (cut && f->step.n_out == 0) {
        r->n = 0;
        return SL_OK;
    }
    SL_TRY(attend(f, w, where));
    if (!f->resident)
        sl_fetch_poll(f->fetch);
    if (cut)
        SL_TRY(sl_forward_cut(f, r, &mixed, c->n_head * c->head_dim, where));
    SL_TRY(give(f, w, r, mixed, where));
    sl_timeline_since(f->timeline, "compressed attention", start, {"rows", f->step.n_rows});
    return SL_OK;
}

static void need(const struct sl_hparams *hp, const struct sl_layer_spec *spec,
                 struct sl_layer_needs *needs) {
    const struct sl_compressed_spec *c = &spec->compressed;
    uint32_t heads = c->n_head * c->head_dim, low = c->n_group * c->n_lora_out;
    (void)hp;
    sl_raise(&needs->q, heads);
    sl_raise(&needs->mixed, heads);
    sl_raise(&needs->k, c->head_dim);
    sl_raise(&needs->v, c->n_lora_q);
    sl_raise(&needs->v, low);
    sl_raise(&needs->joint, parts_elems(c));
    sl_raise(&needs->n_in, c->n_lora_q);
    sl_raise(&needs->n_in, low);
    sl_raise(&needs->heads, c->n_head);
    sl_raise(&needs->heads, c->n_index_head);
    sl_raise(&needs->head_dim, c->head_dim);
    sl_raise(&needs->head_dim, c->index_dim);
    sl_raise(&needs->head_n, heads / c->n_group);
    sl_raise(&needs->head_n, c->n_lora_out);
    sl_raise(&needs->chosen, c->n_index_top);
}

/* NULL where they have another type: forward.c then makes floats of them. */
static const float *floats(struct sl_binder *b, const struct sl_gguf_tensor *t) {
    return t && t->dtype == SL_DTYPE_F32 ? sl_bind_vector(b, t) : NULL;
}

static void bind(struct sl_binder *b, const struct sl_layer *in, struct sl_layer_weights *out) {
    out->attn_norm = sl_bind_vector(b, in->t[SL_L_ATTN_NORM]);
    out->q_a = sl_bind_matrix(b, in->t[SL_L_LATENT_Q_A]);
    out->q_a_norm = sl_bind_vector(b, in->t[SL_L_LATENT_Q_A_NORM]);
    out->q = sl_bind_matrix(b, in->t[SL_L_LATENT_Q_B]);
    out->kv_a = sl_bind_matrix(b, in->t[SL_L_LATENT_KV_A]);
    out->kv_a_norm = sl_bind_vector(b, in->t[SL_L_LATENT_KV_A_NORM]);
    out->sinks = sl_bind_vector(b, in->t[SL_L_ATTN_SINKS]);
    out->block_kv = sl_bind_matrix(b, in->t[SL_L_BLOCK_KV]);
    out->block_gate = sl_bind_matrix(b, in->t[SL_L_BLOCK_GATE]);
    out->block_place = floats(b, in->t[SL_L_BLOCK_PLACE]);
    out->block_norm = sl_bind_vector(b, in->t[SL_L_BLOCK_NORM]);
    out->index_q = sl_bind_matrix(b, in->t[SL_L_INDEX_Q]);
    out->index_k = sl_bind_matrix(b, in->t[SL_L_INDEX_K]);
    out->index_gate = sl_bind_matrix(b, in->t[SL_L_INDEX_GATE]);
    out->index_place = floats(b, in->t[SL_L_INDEX_PLACE]);
    out->index_w = sl_bind_matrix(b, in->t[SL_L_INDEX_WEIGHTS]);
    out->index_norm = sl_bind_vector(b, in->t[SL_L_INDEX_K_NORM]);
    out->out_group = sl_bind_matrix(b, in->t[SL_L_ATTN_OUT_GROUP]);
    out->out = sl_bind_matrix(b, in->t[SL_L_ATTN_OUT]);
}

static void ops(struct sl_op_asker *a, const struct sl_hparams *hp, const struct sl_layer *layer) {
    static const enum sl_layer_role matrices[] = {
        SL_L_LATENT_Q_A, SL_L_LATENT_Q_B, SL_L_LATENT_KV_A, SL_L_BLOCK_KV,      SL_L_BLOCK_GATE,
        SL_L_INDEX_Q,    SL_L_INDEX_K,    SL_L_INDEX_GATE,  SL_L_INDEX_WEIGHTS, SL_L_ATTN_OUT};
    const struct sl_compressed_spec *c = &layer->spec.compressed;
    const struct sl_op_need on_rows[] = {
        {.op = SL_OP_latent_write, .dtype = sl_asker_kv(a), .head_dim_k = c->head_dim},
        {.op = SL_OP_compressed_attention, .dtype = sl_asker_kv(a), .head_dim_k = c->head_dim},
        {.op = SL_OP_compress, .dtype = sl_asker_kv(a), .head_dim_k = c->head_dim},
        {.op = SL_OP_compress, .dtype = KEY_DTYPE, .head_dim_k = c->index_dim},
        {.op = SL_OP_compressed_choose, .dtype = KEY_DTYPE, .head_dim_k = c->index_dim}};
    uint32_t n = c->n_index_top ? 5 : c->ratio ? 3 : 2;
    (void)hp;
    for (uint32_t i = 0; i < n; i++) {
        struct sl_op_need need_op = on_rows[i];
        need_op.head_dim_v = need_op.head_dim_k;
        sl_ask_op(a, need_op);
    }
    if (c->n_index_top)
        sl_ask_plain(a, SL_OP_hadamard);
    sl_ask_plain(a, SL_OP_rms_norm);
    sl_ask_plain(a, SL_OP_rope_table);
    sl_ask_plain(a, SL_OP_rope);
    sl_ask_weight(a, SL_OP_embed, layer->t[SL_L_BLOCK_PLACE]);
    sl_ask_weight(a, SL_OP_embed, layer->t[SL_L_INDEX_PLACE]);
    sl_ask_weight(a, SL_OP_head_matmul, layer->t[SL_L_ATTN_OUT_GROUP]);
    for (uint32_t i = 0; i < sizeof matrices / sizeof matrices[0]; i++)
        sl_ask_weight(a, SL_OP_matmul, layer->t[matrices[i]]);
}

static struct sl_seq_store keeps(const struct sl_layer_spec *spec, enum sl_dtype kv_dtype) {
    const struct sl_compressed_spec *c = &spec->compressed;
    uint32_t n_kept = kept(sl_compressed_width(c)) + kept(sl_compressed_index_width(c));
    uint32_t block = c->overlap ? 2 * c->ratio : c->ratio; /* positions that one is made of */
    return (struct sl_seq_store){
        .name = "rows of a window",
        .n_parts = n_kept ? 2 : 1,
        .part_bytes = {SL_KV_PAGE_TOKENS * sl_dtype_row_bytes(kv_dtype, c->head_dim),
                       SL_KV_PAGE_TOKENS * n_kept * sizeof(float)},
        .kv_elems = {c->head_dim},
        .reach = (c->window > block ? c->window : block) - 1,
        .repeatable = true};
}

static bool keeps_more(const struct sl_layer_spec *spec, enum sl_dtype kv_dtype, uint32_t i,
                       struct sl_seq_store *out) {
    const struct sl_compressed_spec *c = &spec->compressed;
    if (i || !c->ratio)
        return false;
    uint32_t n = sl_block_rows(c->ratio);
    *out = (struct sl_seq_store){.name = "rows of blocks",
                                 .n_parts = c->n_index_top ? 2 : 1,
                                 .part_bytes = {n * sl_dtype_row_bytes(kv_dtype, c->head_dim),
                                                n * sl_dtype_row_bytes(KEY_DTYPE, c->index_dim)},
                                 .kv_elems = {c->head_dim},
                                 .reach = SL_SEQ_ALL,
                                 .repeatable = true};
    return true;
}

const struct sl_mixer sl_mixer_compressed = {.name = "compressed attention",
                                             .ops = ops,
                                             .keeps = keeps,
                                             .keeps_more = keeps_more,
                                             .need = need,
                                             .bind = bind,
                                             .run = run};
