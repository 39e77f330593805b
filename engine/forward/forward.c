#include "engine/forward/forward_internal.h"

#include "engine/forward/rope_freq.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- activations ---- */

static void *take(uintptr_t *cursor, uint64_t n, size_t elem_bytes) {
    void *p = (void *)*cursor;
    *cursor += (n * elem_bytes + 63) & ~(uint64_t)63;
    return p;
}

static uint32_t step_elems(const struct sl_memory_plan *p) {
    return sl_step_elems(sl_forward_step_rows(p->config.batch_tokens), p->n_logit_rows);
}

/* Tensors whose elements ops take as floats, in whatever type the file has them. */
static const enum sl_layer_role places[] = {SL_L_BLOCK_PLACE, SL_L_INDEX_PLACE, SL_L_NGRAM_CONV};
#define N_PLACES ((uint32_t)(sizeof places / sizeof places[0]))

/* Elements of such a tensor that has to become floats; 0: it is, or there is none. */
static uint64_t place_elems(const struct sl_gguf_tensor *t) {
    return t && t->dtype != SL_DTYPE_F32 ? t->ne[0] * t->ne[1] : 0;
}

/* Lays the buffers out from base on; returns the end. */
static uintptr_t lay_out(const struct sl_model *model, const struct sl_memory_plan *p,
                         uintptr_t base, struct sl_activations *a) {
    const struct sl_hparams *hp = &model->hp;
    struct sl_layer_needs needs = sl_layer_needs(model);
    uint64_t rows = p->config.batch_tokens, out = p->n_logit_rows;
    /* The host reads them while other steps run, from here where it can. */
    uint64_t logit_rows = p->reads_back ? out : out * p->n_micro_batches;
    uint64_t k = hp->n_expert_used;
    uint64_t ahead = p->streaming ? SL_FETCH_AHEAD_ROWS : 0;
    uint64_t id_layers = p->reads_back ? hp->n_layer : 1;
    uint64_t refs = p->reads_back ? (uint64_t)hp->n_layer * hp->n_expert : 0;
    uintptr_t c = base;
    uint64_t row = sl_row_elems(hp), wide = hp->n_stream ? 1 : 0;
    a->x = take(&c, rows * row, 4);
    a->sent = take(&c, out ? 0 : p->n_micro_batches * rows * row, 4);
    uint64_t receives = p->reads_back && p->stage ? p->n_micro_batches : 0;
    a->received = take(&c, receives * sl_forward_received_elems(hp), 4);
    a->raised = take(&c, receives, 4);
    a->h = take(&c, rows * hp->n_embd, 4);
    a->streams_h = take(&c, sl_has_hyper_connections(hp) ? rows * row : 0, 4);
    a->stream_w = take(&c, rows * needs.streams, 4);
    a->out_stream_w = take(&c, out * needs.streams, 4);
    a->stream_x = take(&c, wide * rows * hp->n_embd, 4);
    a->stream_low = take(&c, rows * hp->stream_rank, 4);
    a->stream_gate = take(&c, hp->stream_rank ? rows * row : 0, 4);
    uint64_t n_places = 0;
    for (uint32_t l = 0; l < hp->n_layer; l++)
        for (uint32_t i = 0; i < N_PLACES; i++)
            n_places += place_elems(model->layers[l].t[places[i]]);
    a->places = take(&c, n_places, 4);
    uint64_t embds = rows * sl_table_layers(model).n * hp->n_embd_layer;
    for (uint32_t i = 0; i < SL_TABLES; i++)
        a->table_rows[i] = take(&c, sl_forward_table_bytes(model, p, (enum sl_table_id)i), 1);
    a->table_ids = take(&c, rows * sl_tables_token_rows(model, p->streamed_tables), 4);
    bool ngrams_come = p->streamed_tables >> SL_TABLE_NGRAMS & 1;
    a->ngram_rows = take(&c, ngrams_come ? 0 : rows * hp->ngram.n_head, 4);
    a->layer_embd = take(&c, embds, 4);
    a->layer_made = take(&c, embds, 4);
    a->early_h = take(&c, rows * needs.early, 4);
    a->latent = take(&c, rows * needs.latent, 4);
    a->joint = take(&c, rows * needs.joint, 4);
    a->q = take(&c, rows * needs.q, 4);
    a->k = take(&c, rows * needs.k, 4);
    a->v = take(&c, rows * needs.v, 4);
    a->mixed = take(&c, rows * needs.mixed, 4);
    a->gate = take(&c, rows * needs.ff, 4);
    a->up = take(&c, rows * needs.ff, 4);
    a->shared_y = take(&c, rows * needs.shared, 4);
    a->shared_weight = take(&c, rows, 4);
    a->router = take(&c, rows * hp->n_expert, 4);
    a->weights = take(&c, rows * k, 4);
    a->adjugate_weights = take(&c, needs.adjugate ? rows * k : 0, 4);
    a->adjugate_ids = take(&c, needs.adjugate ? rows * k : 0, 4);
    a->next_h = take(&c, ahead * hp->n_embd, 4);
    a->next_router = take(&c, ahead * hp->n_expert, 4);
    a->next_weights = take(&c, ahead * k, 4);
    a->next_ids = take(&c, ahead * SL_FETCH_PREDICTIONS * k, 4);
    a->pair_y = take(&c, rows * k * hp->n_embd, 4);
    a->out_x = take(&c, out * row, 4);
    a->out_mixed = take(&c, out * needs.mixed, 4);
    uint64_t draft_rows = hp->n_draft ? rows : 0;
    a->draft_states = take(&c, hp->n_draft ? (rows + 1) * hp->n_embd : 0, 4);
    a->draft_in = take(&c, draft_rows * 2 * hp->n_embd, 4);
    a->draft_from = take(&c, draft_rows, 4);
    a->blocks = take(&c, p->reads_back ? 3 * sl_forward_blocks(hp, p->n_logit_rows) : 0, 4);
    a->logits = take(&c, logit_rows * hp->n_vocab, 4);
    for (uint32_t i = 0; i < hp->n_rope; i++) {
        a->rope_table[i] = take(&c, rows * hp->rope[i].n_rot, 4);
        a->inv_freq[i] = take(&c, hp->rope[i].n_rot / 2, 4);
    }
    a->expert_ids = take(&c, id_layers * rows * k, 4);
    a->chosen = take(&c, rows * needs.chosen, 4);
    a->refs = take(&c, refs, sizeof *a->refs);
    a->adjugate_refs = take(&c, p->reads_back ? (uint64_t)hp->n_layer * needs.adjugate : 0,
                            sizeof *a->adjugate_refs);
    a->step_arrays = take(&c, step_elems(p), 4);
    uint64_t table = (uint64_t)p->config.parallel * p->session_pages;
    a->page_table = take(&c, table, 4);
    a->tail_table = take(&c, p->n_tails ? table : 0, 4);
    return c;
}

uint64_t sl_forward_activation_bytes(const struct sl_model *model,
                                     const struct sl_memory_plan *plan) {
    struct sl_activations a;
    return lay_out(model, plan, 0, &a);
}

uint64_t sl_forward_host_bytes(const struct sl_model *model, const struct sl_memory_plan *plan) {
    const struct sl_hparams *hp = &model->hp;
    uint64_t refs = plan->streaming ? 0 : (uint64_t)hp->n_layer * hp->n_expert + 1;
    refs += (uint64_t)hp->n_layer * sl_layer_needs(model).adjugate;
    uint64_t pages = sl_page_table_bytes(plan->config.parallel, plan->session_pages);
    uint64_t from = hp->n_draft ? plan->config.batch_tokens * sizeof(uint32_t) : 0;
    from += (uint64_t)plan->config.batch_tokens * hp->ngram.n_head * sizeof(uint32_t);
    for (uint32_t i = 0; i < SL_TABLES && plan->reads_back; i++)
        from += sl_forward_table_bytes(model, plan, (enum sl_table_id)i);
    return pages * (plan->n_tails ? 2 : 1) + from + plan->config.batch_tokens + plan->n_logit_rows +
           1 + step_elems(plan) * sizeof(uint32_t) + hp->n_layer * sizeof(struct sl_layer_weights) +
           sl_kv_list_bytes(hp->n_layer) + refs * sizeof(struct sl_expert_ref);
}

/* ---- create, destroy ---- */

/* divisors [n_rot/2] as in the file, or NULL. */
static enum sl_status upload_freqs(struct sl_forward *f, uint32_t rope, const float *divisors) {
    uint32_t n = f->hp->rope[rope].n_rot / 2;
    float *inv_freq = malloc((n + 1) * sizeof *inv_freq);
    if (!inv_freq)
        return SL_ERR_NOMEM;
    sl_rope_inv_freq(&f->hp->rope[rope], divisors, inv_freq, &f->rope_mscale[rope]);
    enum sl_status status =
        sl_forward_upload(f, f->a.inv_freq[rope], inv_freq, n * sizeof *inv_freq);
    if (status == SL_OK)
        status = sl_device_sync(f->dev);
    free(inv_freq);
    return status;
}

static enum sl_status init_ropes(struct sl_forward *f, const struct sl_model *model,
                                 const struct sl_weights *weights, struct sl_err *err) {
    const struct sl_gguf_tensor *t = model->global[SL_G_ROPE_FREQS];
    float *divisors = NULL;
    enum sl_status status = SL_OK;
    if (t) {
        size_t bytes = (size_t)t->ne[0] * sizeof *divisors; /* checked when the model was opened */
        divisors = malloc(bytes);
        status = divisors ? sl_device_download(f->dev, divisors,
                                               sl_span_part(sl_weights_span(weights, t), 0, bytes))
                          : SL_ERR_NOMEM;
        if (status == SL_OK)
            status = sl_device_sync(f->dev);
    }
    for (uint32_t i = 0; i < f->hp->n_rope && status == SL_OK; i++)
        status = upload_freqs(f, i, f->hp->rope[i].undivided ? NULL : divisors);
    free(divisors);
    return status == SL_OK
               ? status
               : sl_fail(err, status, "preparing the RoPE frequencies: %s", sl_status_text(status));
}

/* Rows of t become floats at y, as rows of an embedding do. */
static enum sl_status read_places(struct sl_forward *f, const struct sl_weights *weights,
                                  const struct sl_gguf_tensor *t, float *y) {
    struct sl_weight w = {t->dtype, (uint32_t)t->ne[0], (uint32_t)t->ne[1],
                          sl_weights_addr(weights, t)};
    for (uint32_t row = 0, n; row < w.n_out; row += n) {
        uint32_t ids[64],
            most = f->plan->config.batch_tokens < 64 ? f->plan->config.batch_tokens : 64;
        n = w.n_out - row < most ? w.n_out - row : most;
        for (uint32_t i = 0; i < n; i++)
            ids[i] = row + i;
        SL_TRY(sl_forward_upload(f, f->a.step_arrays, ids, n * sizeof *ids));
        SL_TRY(sl_op_embed(f->dev, &(struct sl_op_embed){.w = w,
                                                         .ids = f->a.step_arrays,
                                                         .y = y + (size_t)row * w.n_in,
                                                         .n_tok = n,
                                                         .scale = 1}));
        SL_TRY(sl_device_sync(f->dev));
    }
    return SL_OK;
}

static enum sl_status init_places(struct sl_forward *f, const struct sl_model *model,
                                  const struct sl_weights *weights, struct sl_err *err) {
    float *at = f->a.places;
    for (uint32_t l = 0; l < model->hp.n_layer; l++)
        for (uint32_t i = 0; i < N_PLACES; i++) {
            const struct sl_gguf_tensor *t = model->layers[l].t[places[i]];
            struct sl_layer_weights *w = &f->layers[l];
            const float **const to[N_PLACES] = {&w->block_place, &w->index_place, &w->ngram_conv};
            if (!place_elems(t))
                continue;
            enum sl_status status = read_places(f, weights, t, at);
            if (status != SL_OK)
                return sl_fail(err, status, "tensor '%.*s': %s", (int)t->name.len, t->name.ptr,
                               sl_status_text(status));
            *to[i] = at;
            at += place_elems(t);
        }
    return SL_OK;
}

/* Are the numbers in tables of tokens' experts experts? The file's word is not taken for it. */
static enum sl_status check_router_table(struct sl_forward *f, const struct sl_weights *weights,
                                         const struct sl_gguf_tensor *t, uint32_t n_expert,
                                         struct sl_err *err) {
    enum { AT_ONCE = 1 << 14 };
    size_t n = (size_t)t->ne[0] * t->ne[1];
    int32_t *ids = malloc(AT_ONCE * sizeof *ids);
    enum sl_status status = ids ? SL_OK : SL_ERR_NOMEM;
    for (size_t at = 0, m; at < n && status == SL_OK; at += m) {
        m = n - at < AT_ONCE ? n - at : AT_ONCE;
        struct sl_span span = sl_weights_span(weights, t);
        status =
            sl_device_download(f->dev, ids, sl_span_part(span, at * sizeof *ids, m * sizeof *ids));
        if (status == SL_OK)
            status = sl_device_sync(f->dev);
        for (size_t i = 0; i < m && status == SL_OK; i++)
            if (ids[i] < 0 || (uint32_t)ids[i] >= n_expert) {
                status = sl_fail(err, SL_ERR_CORRUPT,
                                 "tensor '%.*s' gives token %llu expert %d: there are %u",
                                 (int)t->name.len, t->name.ptr,
                                 (unsigned long long)((at + i) / t->ne[0]), ids[i], n_expert);
                free(ids);
                return status;
            }
    }
    free(ids);
    return status == SL_OK
               ? SL_OK
               : sl_fail(err, status, "a table of tokens' experts: %s", sl_status_text(status));
}

static enum sl_status check_router_tables(struct sl_forward *f, const struct sl_model *model,
                                          const struct sl_weights *weights, struct sl_err *err) {
    for (uint32_t l = 0; l < model->hp.n_layer; l++) {
        const struct sl_layer *layer = &model->layers[l];
        if (layer->t[SL_L_ROUTER_TABLE])
            SL_TRY(check_router_table(f, weights, layer->t[SL_L_ROUTER_TABLE],
                                      layer->spec.experts.n_expert, err));
    }
    return SL_OK;
}

/* Where adjugate experts are never changes. */
static enum sl_status upload_adjugate(struct sl_forward *f, const struct sl_model *model,
                                      struct sl_err *err) {
    size_t n = (size_t)f->hp->n_layer * sl_layer_needs(model).adjugate;
    if (!n || !f->plan->reads_back)
        return SL_OK;
    enum sl_status status =
        sl_forward_upload(f, f->a.adjugate_refs, f->adjugate_refs, n * sizeof *f->adjugate_refs);
    if (status == SL_OK)
        status = sl_device_sync(f->dev);
    return status == SL_OK
               ? status
               : sl_fail(err, status, "the table of adjugate experts: %s", sl_status_text(status));
}

enum sl_status sl_forward_create(const struct sl_forward_config *config,
                                 struct sl_forward **out_forward, struct sl_err *err) {
    const struct sl_memory_plan *plan = config->plan;
    struct sl_device *dev = config->dev;
    struct sl_forward *f = calloc(1, sizeof *f);
    if (!f)
        return sl_fail(err, SL_ERR_NOMEM, "no memory for the layer loop");
    f->hp = &config->model->hp;
    f->plan = plan;
    f->dev = dev;
    f->kv = config->kv;
    f->fetch = config->fetch;
    f->table_store = config->table_store;
    f->timeline = config->timeline;
    f->routes = config->routes;
    enum sl_status status = sl_forward_bind(f, config->model, config->weights, err);
    if (status == SL_OK)
        status = check_router_tables(f, config->model, config->weights, err);
    if (status != SL_OK)
        goto fail;
    f->row_failed = calloc(plan->config.batch_tokens, 1);
    f->out_failed = calloc(plan->n_logit_rows + 1, 1);
    f->step_arrays = calloc(step_elems(plan), sizeof *f->step_arrays);
    if (f->hp->n_draft)
        f->draft_from = calloc(plan->config.batch_tokens, sizeof *f->draft_from);
    status = sl_page_table_init(&f->pages, plan->config.parallel, plan->session_pages);
    if (status == SL_OK && plan->n_tails)
        status = sl_page_table_init(&f->tails, plan->config.parallel, plan->session_pages);
    if (status != SL_OK || !f->row_failed || !f->out_failed || !f->step_arrays ||
        (f->hp->n_draft && !f->draft_from)) {
        status = sl_fail(err, SL_ERR_NOMEM, "no memory for the step arrays");
        goto fail;
    }
    if (plan->reads_back) {
        status = sl_forward_map_host(f, config->send_by_host, err);
        if (status != SL_OK)
            goto fail;
    }
    f->arena_bytes = plan->activation_bytes;
    status = sl_device_alloc(dev, f->arena_bytes, &f->arena);
    if (status != SL_OK) {
        status = sl_fail(err, status, "no memory for %.1f MiB of activations: lower the batch size",
                         (double)f->arena_bytes / 0x1p20);
        goto fail;
    }
    lay_out(config->model, plan, (uintptr_t)f->arena->addr, &f->a);
    if (dev->caps.host_visible)
        memset(f->arena->host, 0, f->arena_bytes); /* page faults now, not at the first token */
    status = sl_forward_init_seqno(f, err);
    if (status != SL_OK)
        goto fail;
    status = sl_forward_draft_init(f, err);
    if (status == SL_OK)
        status = sl_forward_tables_init(f, config->model, err);
    if (status == SL_OK)
        status = init_ropes(f, config->model, config->weights, err);
    if (status == SL_OK)
        status = init_places(f, config->model, config->weights, err);
    if (status == SL_OK)
        status = upload_adjugate(f, config->model, err);
    if (status == SL_OK)
        status = sl_forward_lane_init(f, config->model, config->weights, err);
    if (status != SL_OK)
        goto fail;
    *out_forward = f;
    return SL_OK;
fail:
    sl_forward_destroy(&f);
    return status;
}

void sl_forward_destroy(struct sl_forward **pf) {
    struct sl_forward *f = *pf;
    if (!f)
        return;
    sl_forward_drop_graphs(f);
    sl_device_free(f->dev, &f->arena);
    free(f->layers);
    free(f->refs);
    free(f->adjugate_refs);
    sl_page_table_release(&f->pages);
    sl_page_table_release(&f->tails);
    free(f->row_failed);
    free(f->out_failed);
    free(f->step_arrays);
    free(f->draft_from);
    free(f->lane_biases);
    free(f->arriving_own);
    free(f->ngram_rows);
    sl_forward_unmap_host(f);
    free(f);
    *pf = NULL;
}

/* ---- one step ---- */

/* What cannot be written now is written before the next step. */
static enum sl_status set_pages(struct sl_forward *f, struct sl_page_table *t, uint32_t *on_device,
                                const struct sl_page_table *changes) {
    sl_page_table_add(t, changes);
    for (uint32_t i = 0; i < t->n_seq; i++) {
        struct sl_page_range *r = &t->changed[i];
        size_t at = (size_t)i * t->n_pages + r->first;
        if (r->first == r->end)
            continue;
        SL_TRY(sl_forward_upload(f, on_device + at, t->pages + at,
                                 (r->end - r->first) * sizeof *t->pages));
        *r = (struct sl_page_range){0, 0};
    }
    return SL_OK;
}

enum sl_status sl_forward_set_pages(struct sl_forward *f, const struct sl_page_table *pages,
                                    const struct sl_page_table *tails) {
    enum sl_status status = set_pages(f, &f->pages, f->a.page_table, pages);
    enum sl_status tails_status = set_pages(f, &f->tails, f->a.tail_table, tails);
    return status == SL_OK ? tails_status : status;
}

enum sl_status sl_forward_prepare(struct sl_forward *f, const struct sl_step *step,
                                  struct sl_err *err) {
    struct sl_step *s = &f->step;
    struct sl_place place = {err, UINT32_MAX, f->hp->first_layer, NULL}, *where = &place;
    *s = *step;
    f->n_experts = 0;
    f->n_states = s->n_rows;
    assert(s->n_rows && s->n_rows <= f->plan->config.batch_tokens && s->n_decode <= s->n_rows);
    assert(s->keep_all || !f->output.data || s->n_out <= f->plan->n_logit_rows);
    memcpy(f->row_failed, s->failed, s->n_rows);
    SL_TRY(sl_forward_ask_tables(f, where));
    sl_forward_begin_seqno(f);
    SL_FORWARD_TRY("placing experts", sl_forward_place(f));
    SL_FORWARD_TRY("step arrays", sl_forward_upload_step(f));
    return SL_OK;
}

enum sl_status sl_forward_start(struct sl_forward *f, const struct sl_abort *give_up,
                                struct sl_err *err) {
    struct sl_step *s = &f->step;
    struct sl_place place = {err, UINT32_MAX, f->hp->first_layer, give_up}, *where = &place;
    SL_TRY(sl_forward_take_tables(f, where));
    f->logits = NULL;
    if (s->n_failed == s->n_rows)
        return SL_OK;
    enum sl_status status = sl_forward_wants_graph(f) ? sl_forward_replay(f, &f->logits, where)
                                                      : sl_forward_compute(f, &f->logits, where);
    if (status != SL_OK || f->output.data)
        return status;
    f->logits = NULL;
    if (s->n_failed < s->n_rows && !sl_forward_sends(f))
        SL_FORWARD_TRY("sending rows", sl_forward_copy_out(f));
    return SL_OK;
}

enum sl_status sl_forward_finish(struct sl_forward *f, struct sl_logits *out_logits,
                                 uint64_t *out_n_experts, struct sl_err *err) {
    struct sl_place place = {err, UINT32_MAX, f->hp->first_layer, NULL}, *where = &place;
    SL_FORWARD_TRY("reading back the step",
                   sl_forward_read_back(f, f->step.n_failed < f->step.n_rows, f->logits,
                                        f->step.n_out, out_logits));
    *out_n_experts = f->n_experts;
    return SL_OK;
}

void sl_forward_mark_failed(const struct sl_forward *f, struct sl_step *step) {
    memcpy(step->failed, f->row_failed, step->n_rows);
    step->n_failed = f->step.n_failed;
}
