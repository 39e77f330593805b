#include "engine/forward_internal.h"

#include "common/log.h"
#include "engine/rope_freq.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- activations ---- */

static void *take(uintptr_t *cursor, uint64_t n, size_t elem_bytes) {
    void *p = (void *)*cursor;
    *cursor += (n * elem_bytes + 63) & ~(uint64_t)63;
    return p;
}

static uint32_t tables_elems(const struct sl_memory_plan *p) {
    return 5 * p->config.batch_tokens + p->n_logit_rows;
}

static struct sl_step lay_tables(const struct sl_memory_plan *p, uint32_t *base) {
    uint32_t rows = p->config.batch_tokens;
    return (struct sl_step){.ids = base,
                            .pos = (int32_t *)(base + rows),
                            .slot = base + 2 * rows,
                            .row_seq = base + 3 * rows,
                            .row_len = base + 4 * rows,
                            .out_rows = base + 5 * rows};
}

/* Lays the buffers out from base on; returns the end. */
static uintptr_t lay_out(const struct sl_hparams *hp, const struct sl_memory_plan *p,
                         uintptr_t base, struct sl_activations *a) {
    uint64_t rows = p->config.batch_tokens, out = p->n_logit_rows;
    uint64_t n_ff = hp->n_ff > hp->n_ff_shared ? hp->n_ff : hp->n_ff_shared;
    uint64_t k = hp->n_expert_used;
    uint64_t ahead = p->streaming ? SL_FETCH_AHEAD_ROWS : 0;
    uint64_t id_layers = p->reads_back ? hp->n_layer : 1;
    uint64_t refs = p->reads_back ? (uint64_t)hp->n_layer * hp->n_expert : 0;
    uintptr_t c = base;
    a->x = take(&c, rows * hp->n_embd, 4);
    a->h = take(&c, rows * hp->n_embd, 4);
    a->q = take(&c, rows * hp->n_head * hp->head_dim_k, 4);
    a->k = take(&c, rows * hp->n_head_kv * hp->head_dim_k, 4);
    a->v = take(&c, rows * hp->n_head_kv * hp->head_dim_v, 4);
    a->attn = take(&c, rows * hp->n_head * hp->head_dim_v, 4);
    a->gate = take(&c, rows * n_ff, 4);
    a->up = take(&c, rows * n_ff, 4);
    a->shared_y = take(&c, hp->n_ff_shared ? rows * hp->n_embd : 0, 4);
    a->shared_weight = take(&c, rows, 4);
    a->router = take(&c, rows * hp->n_expert, 4);
    a->weights = take(&c, rows * k, 4);
    a->next_h = take(&c, ahead * hp->n_embd, 4);
    a->next_router = take(&c, ahead * hp->n_expert, 4);
    a->next_weights = take(&c, ahead * k, 4);
    a->next_ids = take(&c, ahead * k, 4);
    a->pair_y = take(&c, rows * k * hp->n_embd, 4);
    a->out_x = take(&c, out * hp->n_embd, 4);
    a->out_attn = take(&c, out * hp->n_head * hp->head_dim_v, 4);
    a->logits = take(&c, out * hp->n_vocab, 4);
    a->rope_table = take(&c, rows * hp->n_rot, 4);
    a->inv_freq = take(&c, hp->n_rot / 2, 4);
    a->expert_ids = take(&c, id_layers * rows * k, 4);
    a->refs = take(&c, refs, sizeof *a->refs);
    a->tables = take(&c, tables_elems(p), 4);
    a->page_table = take(&c, (uint64_t)p->config.parallel * p->session_pages, 4);
    return c;
}

uint64_t sl_forward_activation_bytes(const struct sl_hparams *hp,
                                     const struct sl_memory_plan *plan) {
    struct sl_activations a;
    return lay_out(hp, plan, 0, &a);
}

uint64_t sl_forward_host_bytes(const struct sl_hparams *hp, const struct sl_memory_plan *plan) {
    uint64_t refs = plan->streaming ? 0 : (uint64_t)hp->n_layer * hp->n_expert + 1;
    return (tables_elems(plan) + (uint64_t)plan->config.parallel * plan->session_pages) * 4 +
           plan->config.batch_tokens + plan->n_logit_rows +
           (uint64_t)hp->n_layer * sizeof(struct sl_layer_weights) +
           refs * sizeof(struct sl_expert_ref);
}

/* ---- create, destroy ---- */

static enum sl_status init_rope(struct sl_forward *f, const struct sl_model *model,
                                const struct sl_weights *weights, struct sl_err *err) {
    const struct sl_gguf_tensor *t = model->global[SL_G_ROPE_FREQS];
    uint32_t n = f->hp->n_rot / 2;
    float *divisors = NULL, *inv_freq = malloc((n + 1) * sizeof *inv_freq);
    enum sl_status st = inv_freq ? SL_OK : SL_ERR_NOMEM;
    if (st == SL_OK && t) {
        if (t->dtype != SL_DTYPE_F32 || t->ne[0] < n) {
            st = sl_fail(err, SL_ERR_UNSUPPORTED, "tensor 'rope_freqs.weight' is not %u F32 values",
                         n);
            goto done;
        }
        divisors = malloc((n + 1) * sizeof *divisors);
        st = divisors ? sl_device_download(f->dev, divisors, sl_weights_addr(weights, t),
                                           n * sizeof *divisors)
                      : SL_ERR_NOMEM;
        if (st == SL_OK)
            st = sl_device_sync(f->dev);
    }
    if (st == SL_OK) {
        sl_rope_inv_freq(f->hp, divisors, inv_freq, &f->rope_mscale);
        st = sl_device_upload(f->dev, f->a.inv_freq, inv_freq, n * sizeof *inv_freq);
    }
    if (st == SL_OK)
        st = sl_device_sync(f->dev);
    if (st != SL_OK)
        st = sl_fail(err, st, "preparing the RoPE frequencies: %s", sl_status_text(st));
done:
    free(divisors);
    free(inv_freq);
    return st;
}

enum sl_status sl_forward_create(const struct sl_model *model, const struct sl_memory_plan *plan,
                                 struct sl_device *dev, const struct sl_weights *weights,
                                 const struct sl_kv_pool *kv, struct sl_fetch *fetch,
                                 struct sl_timeline *timeline, struct sl_forward **out_forward,
                                 struct sl_err *err) {
    struct sl_forward *f = calloc(1, sizeof *f);
    if (!f)
        return sl_fail(err, SL_ERR_NOMEM, "no memory for the layer loop");
    f->hp = &model->hp;
    f->plan = plan;
    f->dev = dev;
    f->kv = kv;
    f->fetch = fetch;
    f->timeline = timeline;
    enum sl_status st = sl_forward_bind(f, model, weights, err);
    if (st != SL_OK)
        goto fail;
    size_t pages = (size_t)plan->config.parallel * plan->session_pages;
    f->host_tables = calloc(tables_elems(plan), 4);
    f->host_pages = calloc(pages, 4);
    f->row_failed = calloc(plan->config.batch_tokens, 1);
    f->out_failed = calloc(plan->n_logit_rows, 1);
    if (!f->host_tables || !f->host_pages || !f->row_failed || !f->out_failed) {
        st = sl_fail(err, SL_ERR_NOMEM, "no memory for the step tables");
        goto fail;
    }
    if (plan->reads_back) {
        st = sl_forward_map_host(f, err);
        if (st != SL_OK)
            goto fail;
    }
    f->arena_bytes = plan->activation_bytes;
    st = sl_device_alloc(dev, f->arena_bytes, &f->arena);
    if (st != SL_OK) {
        f->arena = NULL;
        st = sl_fail(err, st, "no memory for %.1f MiB of activations: lower the batch size",
                     (double)f->arena_bytes / 0x1p20);
        goto fail;
    }
    lay_out(f->hp, plan, (uintptr_t)f->arena, &f->a);
    if (dev->caps.host_visible)
        memset(f->arena, 0, f->arena_bytes); /* page faults now, not at the first token */
    f->step = lay_tables(plan, f->host_tables);
    f->step.failed = f->row_failed;
    f->on_device = lay_tables(plan, f->a.tables);
    st = init_rope(f, model, weights, err);
    if (st == SL_OK && plan->config.record_routes)
        st = sl_route_recorder_open(plan->config.record_routes, model, &f->routes, err);
    if (st != SL_OK)
        goto fail;
    *out_forward = f;
    return SL_OK;
fail:
    sl_forward_destroy(&f);
    return st;
}

void sl_forward_destroy(struct sl_forward **pf) {
    struct sl_forward *f = *pf;
    if (!f)
        return;
    for (uint32_t i = 0; i < SL_FORWARD_GRAPHS; i++)
        sl_graph_free(f->dev, &f->graphs[i]);
    if (f->arena)
        sl_device_free(f->dev, f->arena, f->arena_bytes);
    free(f->layers);
    free(f->refs);
    free(f->host_tables);
    free(f->host_pages);
    free(f->row_failed);
    free(f->out_failed);
    sl_forward_unmap_host(f);
    sl_route_recorder_close(&f->routes);
    free(f);
    *pf = NULL;
}

/* ---- one step ---- */

struct sl_step *sl_forward_begin(struct sl_forward *f) {
    f->step.n_rows = f->step.n_decode = f->step.n_out = f->step.n_failed = 0;
    f->step.n_experts = 0;
    f->step.keep_all = false;
    return &f->step;
}

enum sl_status sl_forward_set_page(struct sl_forward *f, uint32_t seq, uint32_t index,
                                   uint32_t page) {
    assert(seq < f->plan->config.parallel && index < f->plan->session_pages);
    size_t i = (size_t)seq * f->plan->session_pages + index;
    f->host_pages[i] = page;
    return sl_device_upload(f->dev, f->a.page_table + i, f->host_pages + i, sizeof page);
}

uint32_t sl_forward_page(const struct sl_forward *f, uint32_t seq, uint32_t index) {
    assert(seq < f->plan->config.parallel && index < f->plan->session_pages);
    return f->host_pages[(size_t)seq * f->plan->session_pages + index];
}

/* Where in the step an op failed. */
struct place {
    struct sl_err *err;
    uint32_t layer; /* UINT32_MAX outside the layers */
    const struct sl_abort *give_up;
};

static enum sl_status at(const struct place *where, const char *op, enum sl_status st) {
    if (st == SL_OK)
        return SL_OK;
    if (where->layer == UINT32_MAX)
        return sl_fail(where->err, st, "%s: %s", op, sl_status_text(st));
    return sl_fail(where->err, st, "layer %u, %s: %s", where->layer, op, sl_status_text(st));
}

#define TRY(op, call)                                                                              \
    do {                                                                                           \
        enum sl_status try_st = at(where, op, call);                                               \
        if (try_st != SL_OK)                                                                       \
            return try_st;                                                                         \
    } while (0)

/* The rows that a block works on: all of the step's, or in the last layer those that go on. */
struct rows {
    float *x;
    uint32_t n, n_decode;
    const uint32_t *of_step; /* [n] which of the step's rows they are; NULL = all */
    uint8_t *failed;         /* [n] */
};

static enum sl_status rms_norm(struct sl_forward *f, const float *x, const float *w, float *y,
                               uint32_t n_rows, uint32_t n) {
    return sl_op_rms_norm(f->dev, &(struct sl_op_rms_norm){.x = x,
                                                           .w = w,
                                                           .y = y,
                                                           .n_rows = n_rows,
                                                           .n = n,
                                                           .stride_x = n,
                                                           .stride_y = n,
                                                           .eps = f->hp->norm_eps});
}

static enum sl_status head_norm(struct sl_forward *f, float *x, const float *w, bool row,
                                uint32_t n_tok, uint32_t n_head) {
    uint32_t dim = f->hp->head_dim_k;
    return row ? rms_norm(f, x, w, x, n_tok, n_head * dim)
               : rms_norm(f, x, w, x, n_tok * n_head, dim);
}

static enum sl_status rope(struct sl_forward *f, float *x, uint32_t n_tok, uint32_t n_head) {
    const struct sl_hparams *hp = f->hp;
    return sl_op_rope(f->dev, &(struct sl_op_rope){.x = x,
                                                   .table = f->a.rope_table,
                                                   .n_tok = n_tok,
                                                   .n_heads = n_head,
                                                   .head_dim = hp->head_dim_k,
                                                   .stride = n_head * hp->head_dim_k,
                                                   .n_freq = hp->n_rot / 2,
                                                   .style = hp->rope_kind == SL_ROPE_KIND_NORM
                                                                ? SL_ROPE_NORM
                                                                : SL_ROPE_NEOX});
}

/* q, k, v of all rows; k and v go to the cache. */
static enum sl_status project_qkv(struct sl_forward *f, const struct sl_layer_weights *w,
                                  const struct place *where) {
    const struct sl_hparams *hp = f->hp;
    const struct sl_step *s = &f->step;
    struct sl_activations *a = &f->a;
    TRY("attention norm", rms_norm(f, a->x, w->attn_norm, a->h, s->n_rows, hp->n_embd));
    TRY("q, k, v",
        sl_op_matmul(f->dev, &(struct sl_op_matmul){.x = a->h,
                                                    .n_tok = s->n_rows,
                                                    .n_decode = s->n_decode,
                                                    .n_w = 3,
                                                    .out = {{w->q, w->q_bias, a->q, false},
                                                            {w->k, w->k_bias, a->k, false},
                                                            {w->v, w->v_bias, a->v, false}}}));
    if (w->q_norm)
        TRY("q norm", head_norm(f, a->q, w->q_norm, w->q_norm_row, s->n_rows, hp->n_head));
    if (w->k_norm)
        TRY("k norm", head_norm(f, a->k, w->k_norm, w->k_norm_row, s->n_rows, hp->n_head_kv));
    if (hp->n_rot) {
        TRY("rope", rope(f, a->q, s->n_rows, hp->n_head));
        TRY("rope", rope(f, a->k, s->n_rows, hp->n_head_kv));
    }
    TRY("kv write", sl_op_kv_write(f->dev, &(struct sl_op_kv_write){
                                               .kv = sl_kv_layer(f->kv, where->layer),
                                               .k = a->k,
                                               .v = a->v,
                                               .slot = f->on_device.slot,
                                               .n_tok = s->n_rows,
                                               .stride_k = hp->n_head_kv * hp->head_dim_k,
                                               .stride_v = hp->n_head_kv * hp->head_dim_v}));
    return SL_OK;
}

static enum sl_status attend(struct sl_forward *f, const struct place *where) {
    const struct sl_hparams *hp = f->hp;
    const struct sl_step *s = &f->step;
    struct sl_activations *a = &f->a;
    TRY("attention",
        sl_op_attention(f->dev, &(struct sl_op_attention){.kv = sl_kv_layer(f->kv, where->layer),
                                                          .q = a->q,
                                                          .y = a->attn,
                                                          .page_table = a->page_table,
                                                          .row_seq = f->on_device.row_seq,
                                                          .row_len = f->on_device.row_len,
                                                          .n_tok = s->n_rows,
                                                          .n_decode = s->n_decode,
                                                          .n_heads = hp->n_head,
                                                          .stride_q = hp->n_head * hp->head_dim_k,
                                                          .max_pages = f->plan->session_pages,
                                                          .window = hp->window,
                                                          .scale = hp->attn_scale}));
    return SL_OK;
}

static enum sl_status gather(struct sl_forward *f, const float *x, float *y, uint32_t n) {
    return sl_op_gather_rows(
        f->dev, &(struct sl_op_gather_rows){
                    .x = x, .rows = f->on_device.out_rows, .y = y, .n_out = f->step.n_out, .n = n});
}

static enum sl_status dense_ffn(struct sl_forward *f, const struct sl_layer_weights *w,
                                const struct rows *r, const struct place *where) {
    struct sl_activations *a = &f->a;
    TRY("FFN gate, up",
        sl_op_matmul(f->dev, &(struct sl_op_matmul){.x = a->h,
                                                    .n_tok = r->n,
                                                    .n_decode = r->n_decode,
                                                    .n_w = 2,
                                                    .out = {{w->gate, NULL, a->gate, false},
                                                            {w->up, NULL, a->up, false}}}));
    TRY("FFN", sl_op_silu_mul(f->dev, &(struct sl_op_silu_mul){a->gate, a->up, a->gate,
                                                               (size_t)r->n * w->gate.n_out}));
    TRY("FFN down",
        sl_op_matmul(f->dev, &(struct sl_op_matmul){.x = a->gate,
                                                    .n_tok = r->n,
                                                    .n_decode = r->n_decode,
                                                    .n_w = 1,
                                                    .out = {{w->down, NULL, r->x, true}}}));
    return SL_OK;
}

static struct sl_op_router router_op(const struct sl_forward *f, uint32_t layer, uint32_t n_rows) {
    const struct sl_hparams *hp = f->hp;
    const struct sl_layer_weights *w = &f->layers[layer];
    return (struct sl_op_router){
        .logits = f->a.router,
        .bias = w->router_bias,
        .ids = sl_forward_ids(f, layer),
        .weights = f->a.weights,
        .n_tok = n_rows,
        .n_expert = hp->n_expert,
        .k = hp->n_expert_used,
        .score = hp->router_kind == SL_ROUTER_KIND_SIGMOID ? SL_ROUTER_SIGMOID : SL_ROUTER_SOFTMAX,
        .softmax_topk = hp->router_softmax_topk,
        .normalize = hp->router_normalize,
        .scale = hp->router_scale};
}

/* The shared expert's share of the rows, into shared_y; its first products are there already. */
static enum sl_status shared_expert(struct sl_forward *f, const struct sl_layer_weights *w,
                                    const struct rows *r, const struct place *where) {
    struct sl_activations *a = &f->a;
    uint64_t start = sl_timeline_now(f->timeline);
    TRY("shared expert",
        sl_op_silu_mul(f->dev, &(struct sl_op_silu_mul){a->gate, a->up, a->gate,
                                                        (size_t)r->n * w->shared_gate.n_out}));
    TRY("shared expert",
        sl_op_matmul(f->dev,
                     &(struct sl_op_matmul){.x = a->gate,
                                            .n_tok = r->n,
                                            .n_decode = r->n_decode,
                                            .n_w = 1,
                                            .out = {{w->shared_down, NULL, a->shared_y, false}}}));
    sl_timeline_since(f->timeline, "shared expert", start, {"rows", r->n});
    return SL_OK;
}

/* Runs the next layer's router on this layer's input, where that pays, so that the disk has
 * something to do while this layer is computed. What it chooses is a guess: it changes what is read
 * early and nothing else. */
static enum sl_status look_ahead(struct sl_forward *f, const struct rows *r,
                                 const struct place *where) {
    const struct sl_hparams *hp = f->hp;
    struct sl_activations *a = &f->a;
    if (f->plan->reads_back || where->layer + 1 == hp->n_layer || !sl_fetch_wants_ahead(f->fetch))
        return SL_OK;
    const struct sl_layer_weights *next = &f->layers[where->layer + 1];
    if (next->routed_layer == SL_NO_ROUTED_LAYER)
        return SL_OK;
    uint64_t start = sl_timeline_now(f->timeline);
    TRY("early router", rms_norm(f, r->x, next->ffn_norm, a->next_h, r->n, hp->n_embd));
    TRY("early router",
        sl_op_matmul(f->dev,
                     &(struct sl_op_matmul){.x = a->next_h,
                                            .n_tok = r->n,
                                            .n_decode = r->n_decode,
                                            .n_w = 1,
                                            .out = {{next->router, NULL, a->next_router, false}}}));
    struct sl_op_router op = router_op(f, where->layer + 1, r->n);
    op.logits = a->next_router;
    op.ids = a->next_ids;
    op.weights = a->next_weights;
    TRY("early router", sl_op_router(f->dev, &op));
    sl_timeline_since(f->timeline, "early router", start, {"rows", r->n});
    sl_fetch_ahead(f->fetch, next->routed_layer, a->next_ids, r->n * hp->n_expert_used);
    return SL_OK;
}

static bool asked_to_stop(void *ctx) {
    const struct sl_abort *give_up = ctx;
    return give_up->asked(give_up);
}

/* The routed experts, as they arrive. Ends what sl_fetch_begin began, whatever happened since. */
static enum sl_status fetch_experts(struct sl_forward *f, const struct rows *r,
                                    struct sl_op_moe *op, const struct place *where) {
    struct sl_fetch_abort stop = {asked_to_stop, (void *)where->give_up};
    struct sl_err why = {{0}};
    uint32_t n_failed;
    enum sl_status st =
        sl_fetch_run(f->fetch, f->dev, op, where->give_up ? &stop : NULL, &n_failed, &why);
    if (st == SL_ERR_CANCELED)
        return sl_fail(where->err, st, "%s", why.text);
    TRY("experts", st);
    if (!n_failed)
        return SL_OK;
    if (!f->step.n_failed)
        sl_fail(where->err, SL_ERR_IO, "%s", why.text);
    f->step.n_failed += n_failed;
    for (uint32_t i = 0; r->of_step && i < r->n; i++)
        f->row_failed[r->of_step[i]] = r->failed[i];
    return SL_OK;
}

/* Prompt rows that will go through the next layer's FFN: of the last layer's only those that go on
 * to the logits. */
static uint32_t next_prompt_rows(const struct sl_forward *f, const struct rows *r,
                                 const struct place *where) {
    const struct sl_step *s = &f->step;
    if (where->layer + 2 != f->hp->n_layer || s->keep_all || s->n_out >= s->n_rows)
        return r->n - r->n_decode;
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_out; i++)
        n += s->out_rows[i] >= s->n_decode;
    return n;
}

static enum sl_status moe_ffn(struct sl_forward *f, const struct sl_layer_weights *w,
                              const struct rows *r, const struct place *where) {
    const struct sl_hparams *hp = f->hp;
    struct sl_activations *a = &f->a;
    bool shared = w->shared_gate.data != NULL;
    /* The shared expert's first products read the same input as the router. */
    struct sl_op_matmul in = {.x = a->h, .n_tok = r->n, .n_decode = r->n_decode};
    in.out[in.n_w++] = (struct sl_matmul_out){w->router, NULL, a->router, false};
    if (shared) {
        in.out[in.n_w++] = (struct sl_matmul_out){w->shared_gate, NULL, a->gate, false};
        in.out[in.n_w++] = (struct sl_matmul_out){w->shared_up, NULL, a->up, false};
        if (w->shared_router.data)
            in.out[in.n_w++] =
                (struct sl_matmul_out){w->shared_router, NULL, a->shared_weight, false};
    }
    uint64_t start = sl_timeline_now(f->timeline);
    TRY("router", sl_op_matmul(f->dev, &in));
    struct sl_op_router choose = router_op(f, where->layer, r->n);
    TRY("router", sl_op_router(f->dev, &choose));
    sl_timeline_since(f->timeline, "router", start, {"rows", r->n});
    const uint32_t *chosen = choose.ids;
    if (!f->resident && f->plan->reads_back)
        TRY("reading the router's choice", sl_forward_read_ids(f, where->layer, r->n, &chosen));
    struct sl_op_moe op = {.x = a->h,
                           .ids = choose.ids,
                           .pair_y = a->pair_y,
                           .refs = f->plan->reads_back ? NULL : w->experts,
                           .device_refs = f->a.refs + (size_t)where->layer * hp->n_expert,
                           .gate_dtype = w->expert_gate,
                           .up_dtype = w->expert_up,
                           .down_dtype = w->expert_down,
                           .n_tok = r->n,
                           .n_decode = r->n_decode,
                           .k = hp->n_expert_used,
                           .n_pairs = r->n * hp->n_expert_used,
                           .n_expert = hp->n_expert,
                           .n_embd = hp->n_embd,
                           .n_ff = hp->n_ff_expert};
    if (!f->resident) {
        op.device_refs = NULL;
        sl_fetch_begin(f->fetch, w->routed_layer,
                       &(struct sl_fetch_rows){chosen, r->n, r->n_decode, r->failed,
                                               next_prompt_rows(f, r, where)});
        enum sl_status st = look_ahead(f, r, where);
        if (st == SL_OK && shared)
            st = shared_expert(f, w, r, where);
        enum sl_status run = fetch_experts(f, r, &op, where);
        if (st != SL_OK || run != SL_OK)
            return st != SL_OK ? st : run;
    } else {
        start = sl_timeline_now(f->timeline);
        TRY("experts", sl_op_moe(f->dev, &op));
        sl_timeline_since(f->timeline, "experts", start, {"pairs", op.n_pairs});
        enum sl_status st = shared ? shared_expert(f, w, r, where) : SL_OK;
        if (st != SL_OK)
            return st;
    }
    TRY("expert sum", sl_op_moe_combine(f->dev, &(struct sl_op_moe_combine){.pair_y = a->pair_y,
                                                                            .weights = a->weights,
                                                                            .y = r->x,
                                                                            .n_tok = r->n,
                                                                            .k = hp->n_expert_used,
                                                                            .n = hp->n_embd}));
    if (!f->resident ||
        !f->plan->reads_back) /* else sl_forward_read_routes does it for all layers */
        sl_forward_count_routes(f, where->layer, r->n, r->of_step, chosen);
    if (!shared)
        return SL_OK;
    TRY("shared expert",
        sl_op_add_gated(f->dev, &(struct sl_op_add_gated){
                                    .x = a->shared_y,
                                    .gate = w->shared_router.data ? a->shared_weight : NULL,
                                    .y = r->x,
                                    .n_tok = r->n,
                                    .n = hp->n_embd}));
    return SL_OK;
}

/* One layer. In the last one only the rows that go on to the logits pass the attention output and
 * the FFN; r tells which buffer they are in. */
static enum sl_status run_layer(struct sl_forward *f, bool last, struct rows *r,
                                const struct place *where) {
    const struct sl_hparams *hp = f->hp;
    const struct sl_layer_weights *w = &f->layers[where->layer];
    struct sl_activations *a = &f->a;
    const struct sl_step *s = &f->step;
    uint64_t start = sl_timeline_now(f->timeline);
    enum sl_status st = project_qkv(f, w, where);
    if (st != SL_OK)
        return st;
    if (!f->resident)
        sl_fetch_poll(f->fetch);
    const float *attn = a->attn;
    bool cut = last && !s->keep_all && s->n_out < s->n_rows;
    if (cut && s->n_out == 0)
        return SL_OK;
    st = attend(f, where);
    if (st != SL_OK)
        return st;
    if (!f->resident)
        sl_fetch_poll(f->fetch);
    if (cut) {
        TRY("gather", gather(f, a->x, a->out_x, hp->n_embd));
        TRY("gather", gather(f, a->attn, a->out_attn, hp->n_head * hp->head_dim_v));
        attn = a->out_attn;
        r->x = a->out_x;
        r->n = s->n_out;
        r->of_step = s->out_rows;
        r->failed = f->out_failed;
        for (uint32_t i = 0; i < s->n_out; i++)
            f->out_failed[i] = f->row_failed[s->out_rows[i]];
        r->n_decode = 0;
        while (r->n_decode < s->n_out && s->out_rows[r->n_decode] < s->n_decode)
            r->n_decode++;
    }
    TRY("attention out",
        sl_op_matmul(f->dev, &(struct sl_op_matmul){.x = attn,
                                                    .n_tok = r->n,
                                                    .n_decode = r->n_decode,
                                                    .n_w = 1,
                                                    .out = {{w->out, w->out_bias, r->x, true}}}));
    TRY("FFN norm", rms_norm(f, r->x, w->ffn_norm, a->h, r->n, hp->n_embd));
    sl_timeline_since(f->timeline, "attention", start, {"rows", s->n_rows});
    return w->routed_layer != SL_NO_ROUTED_LAYER ? moe_ffn(f, w, r, where)
                                                 : dense_ffn(f, w, r, where);
}

static enum sl_status run_output(struct sl_forward *f, const float *x, uint32_t n,
                                 uint32_t n_decode, float **out_logits, const struct place *where) {
    struct sl_activations *a = &f->a;
    assert(n <= f->plan->n_logit_rows);
    uint64_t start = sl_timeline_now(f->timeline);
    TRY("output norm", rms_norm(f, x, f->output_norm, a->h, n, f->hp->n_embd));
    TRY("output",
        sl_op_matmul(f->dev, &(struct sl_op_matmul){.x = a->h,
                                                    .n_tok = n,
                                                    .n_decode = n_decode,
                                                    .n_w = 1,
                                                    .out = {{f->output, NULL, a->logits, false}}}));
    sl_timeline_since(f->timeline, "logits", start, {"rows", n});
    *out_logits = a->logits;
    return SL_OK;
}

/* All ops of the step. *out_logits: in the device's memory; NULL when nobody wants any. */
static enum sl_status compute(struct sl_forward *f, float **out_logits, struct place *where) {
    const struct sl_hparams *hp = f->hp;
    struct sl_activations *a = &f->a;
    struct sl_step *s = &f->step;
    const struct sl_abort *give_up = where->give_up;
    *out_logits = NULL;
    TRY("embedding", sl_op_embed(f->dev, &(struct sl_op_embed){.w = f->embd,
                                                               .ids = f->on_device.ids,
                                                               .y = a->x,
                                                               .n_tok = s->n_rows,
                                                               .scale = 1}));
    if (hp->n_rot)
        TRY("rope table",
            sl_op_rope_table(f->dev, &(struct sl_op_rope_table){.pos = f->on_device.pos,
                                                                .inv_freq = a->inv_freq,
                                                                .table = a->rope_table,
                                                                .n_tok = s->n_rows,
                                                                .n_freq = hp->n_rot / 2,
                                                                .mscale = f->rope_mscale}));
    struct rows r = {a->x, s->n_rows, s->n_decode, NULL, f->row_failed};
    for (uint32_t i = 0; i < hp->n_layer; i++) {
        if (give_up && give_up->asked(give_up)) {
            TRY("canceled step", sl_device_sync(f->dev));
            return sl_fail(where->err, SL_ERR_CANCELED, "canceled");
        }
        where->layer = i;
        uint64_t start = sl_timeline_now(f->timeline);
        enum sl_status st = run_layer(f, i + 1 == hp->n_layer, &r, where);
        sl_timeline_since(f->timeline, "layer", start, {"layer", i});
        if (st != SL_OK)
            return st;
        if (s->n_failed == s->n_rows)
            break; /* nothing is left that anybody could use */
    }
    where->layer = UINT32_MAX;
    if (s->keep_all || !s->n_out || s->n_failed == s->n_rows)
        return SL_OK;
    return run_output(f, r.x, r.n, r.n_decode, out_logits, where);
}

/* The same as a graph, which is recorded when a step of this shape comes for the first time. */
static enum sl_status replay(struct sl_forward *f, float **out_logits, struct place *where) {
    struct sl_graph **graph = &f->graphs[f->step.n_rows - 1];
    *out_logits = f->a.logits;
    if (!*graph) {
        where->give_up = NULL; /* a part of a step is no graph */
        TRY("recording the step", sl_device_record(f->dev));
        enum sl_status st = compute(f, out_logits, where);
        enum sl_status end = sl_device_recorded(f->dev, st == SL_OK ? graph : NULL);
        if (st != SL_OK)
            return st;
        if (end == SL_ERR_DEVICE_OOM || end == SL_ERR_UNSUPPORTED) {
            sl_warn("%s keeps no graphs of steps (%s): decoding will be slower", f->dev->caps.name,
                    sl_status_text(end));
            f->no_graphs = true;
            return compute(f, out_logits, where);
        }
        TRY("recording the step", end);
    }
    TRY("the step", sl_device_replay(f->dev, *graph));
    return SL_OK;
}

enum sl_status sl_forward_run(struct sl_forward *f, const struct sl_abort *give_up,
                              float **out_logits, struct sl_err *err) {
    struct sl_step *s = &f->step;
    struct place place = {err, UINT32_MAX, give_up}, *where = &place;
    assert(s->n_rows && s->n_rows <= f->plan->config.batch_tokens && s->n_decode <= s->n_rows);
    assert(s->keep_all || s->n_out <= f->plan->n_logit_rows);
    memset(f->row_failed, 0, s->n_rows);
    TRY("placing experts", sl_forward_place(f));
    TRY("step tables",
        sl_device_upload(f->dev, f->a.tables, f->host_tables, tables_elems(f->plan) * (size_t)4));
    float *logits;
    enum sl_status st =
        sl_forward_wants_graph(f) ? replay(f, &logits, where) : compute(f, &logits, where);
    if (st != SL_OK)
        return st;
    TRY("reading back the step", sl_forward_read_back(f, true, logits, s->n_out, out_logits));
    return SL_OK;
}

enum sl_status sl_forward_logits(struct sl_forward *f, uint32_t first, uint32_t n,
                                 float **out_logits, struct sl_err *err) {
    assert(f->step.keep_all && first + n <= f->step.n_rows && n <= f->plan->n_logit_rows);
    struct place where = {err, UINT32_MAX, NULL};
    float *logits;
    enum sl_status st =
        run_output(f, f->a.x + (size_t)first * f->hp->n_embd, n, 0, &logits, &where);
    if (st != SL_OK)
        return st;
    st = sl_forward_read_back(f, false, logits, n, out_logits);
    return st == SL_OK ? SL_OK : at(&where, "reading back the logits", st);
}
