/* The layer loop of a step: embedding, each layer's mixer and feed-forward part, the output. */
#include "engine/forward/forward_internal.h"
#include "backends/ops/elementwise.h"
#include "backends/ops/matmul.h"
#include "backends/ops/rope.h"
#include "backends/ops/streams.h"
#include "engine/layers/ngrams.h"
#include "engine/layers/seq_shape.h"
#include "engine/layers/section.h"
#include "engine/layers/streams.h"

#include <math.h>

static char *part_of(const struct sl_forward *f, const struct sl_kv_part *part) {
    return part->bytes ? sl_span_host(sl_kv_part_span(f->kv, part)) : NULL;
}

/* To who has given the layers one more store. */
static void show_rows(const struct sl_forward *f, uint32_t layer) {
    const struct sl_seq_source *source = f->plan->config.seq_source;
    if (!source)
        return;
    struct sl_seq_store stores[SL_SEQ_STORES];
    struct sl_seq_config config = {f->plan->config.kv_dtype, source, f->plan->n_tails != 0};
    uint32_t n = sl_seq_stores(f->layers[layer].spec, &config, stores);
    const struct sl_kv_part *part = sl_kv_part(f->kv, layer, n - 1);
    source->update(source,
                   &(struct sl_seq_rows){.layer = f->hp->first_layer + layer,
                                         .step = &f->step,
                                         .slot = part->tail ? f->step.tail_slot : f->step.slot,
                                         .pages = part->tail ? &f->tails : &f->pages,
                                         .x = f->a.x,
                                         .n_embd = sl_row_elems(f->hp),
                                         .part = {part_of(f, &part[0]), part_of(f, &part[1])}});
}

enum sl_status sl_forward_mix(struct sl_forward *f, struct sl_rows *r,
                              const struct sl_place *where) {
    const struct sl_layer_weights *w = &f->layers[where->layer];
    sl_forward_section(f, where->layer, true);
    show_rows(f, where->layer);
    if (w->spec->ngram.n_taps)
        SL_TRY(sl_ngrams_add(f, r, where));
    enum sl_status status = w->mixer->run(f, r, where);
    if (status != SL_OK || !r->n)
        return status;
    if (w->spec->parallel || w->spec->ffn == SL_FFN_NONE)
        return SL_OK; /* it is in h; nobody reads it */
    const float *x;
    SL_TRY(sl_streams_read(f, r, &w->streams[1], &x, where));
    if (x != f->a.h)
        SL_FORWARD_TRY("FFN norm",
                       sl_forward_row_norm(f, x, w->ffn_norm, w->ffn_norm_bias, f->a.h, r->n));
    return SL_OK;
}

enum sl_status sl_forward_layer(struct sl_forward *f, struct sl_rows *r,
                                const struct sl_place *where) {
    enum sl_status status = sl_forward_mix(f, r, where);
    return status != SL_OK || !r->n ? status : f->layers[where->layer].ffn->run(f, r, where);
}

/* The usual embeddings of the step's tokens. Where rows come from the stage before, they are in
 * what is free yet: x may be theirs already. */
static enum sl_status embed_again(struct sl_forward *f, const float **out_x,
                                  const struct sl_place *where) {
    const struct sl_op_embed tokens = {.w = f->layer_tokens,
                                       .ids = sl_forward_rows_of(f, SL_TABLE_TOKENS),
                                       .y = f->a.h,
                                       .n_tok = f->step.n_rows,
                                       .scale = f->hp->embd_scale};
    *out_x = f->embd.data ? f->a.x : f->a.h;
    if (!f->embd.data)
        SL_FORWARD_TRY("embedding", sl_op_embed(f->dev, &tokens));
    return SL_OK;
}

/* Of the stage's layers the embeddings of the step's tokens: each one's own and what a matrix makes
 * of its usual one; their sum over the square root of 2. */
static enum sl_status embed_layers(struct sl_forward *f, const struct sl_place *where) {
    const struct sl_hparams *hp = f->hp;
    struct sl_activations *a = &f->a;
    uint32_t n_rows = f->step.n_rows, n = hp->n_embd_layer, n_all = n * f->embd_layers.n;
    const float *x;
    SL_TRY(embed_again(f, &x, where));
    struct sl_op_embed own = {.w = f->layer_embd,
                              .ids = sl_forward_rows_of(f, SL_TABLE_LAYERS),
                              .y = a->layer_embd,
                              .n_tok = n_rows,
                              .scale = sqrtf((float)n)};
    SL_FORWARD_TRY("layers' embeddings", sl_op_embed(f->dev, &own));
    struct sl_op_matmul made = {.x = x,
                                .n_tok = n_rows,
                                .n_decode = f->step.n_decode,
                                .n_w = 1,
                                .out = {{f->layer_proj, NULL, a->layer_made, false}}};
    SL_FORWARD_TRY("layers' embeddings", sl_op_matmul(f->dev, &made));
    SL_FORWARD_TRY(
        "layers' embeddings",
        sl_op_scale(f->dev, &(struct sl_op_scale){.x = a->layer_made,
                                                  .n_tok = n_rows,
                                                  .n = n_all,
                                                  .scale = 1 / sqrtf((float)hp->n_embd)}));
    SL_FORWARD_TRY("layers' embeddings",
                   sl_forward_norm(f, a->layer_made, f->layer_proj_norm, a->layer_made,
                                   n_rows * f->embd_layers.n, n));
    SL_FORWARD_TRY("layers' embeddings",
                   sl_op_add_gated(f->dev, &(struct sl_op_add_gated){.x = a->layer_made,
                                                                     .y = a->layer_embd,
                                                                     .n_tok = n_rows,
                                                                     .n = n_all}));
    SL_FORWARD_TRY("layers' embeddings",
                   sl_op_scale(f->dev, &(struct sl_op_scale){.x = a->layer_embd,
                                                             .n_tok = n_rows,
                                                             .n = n_all,
                                                             .scale = 0.70710678118654752f}));
    return SL_OK;
}

enum sl_status sl_forward_embed(struct sl_forward *f, const struct sl_place *where) {
    const struct sl_hparams *hp = f->hp;
    struct sl_activations *a = &f->a;
    const struct sl_step *s = &f->step;
    sl_device_section(f->dev, "input", true);
    if (f->embd.data)
        SL_FORWARD_TRY(
            "embedding",
            sl_op_embed(f->dev, &(struct sl_op_embed){.w = f->embd,
                                                      .ids = sl_forward_rows_of(f, SL_TABLE_TOKENS),
                                                      .y = hp->n_stream ? a->stream_x : a->x,
                                                      .n_tok = s->n_rows,
                                                      .scale = hp->embd_scale}));
    if (f->embd.data && hp->n_stream)
        SL_FORWARD_TRY("streams", sl_op_stream_spread(f->dev, &(struct sl_op_stream_spread){
                                                                  .x = a->stream_x,
                                                                  .y = a->x,
                                                                  .n_tok = s->n_rows,
                                                                  .n_stream = hp->n_stream,
                                                                  .n = hp->n_embd}));
    enum sl_status status = hp->n_embd_layer ? embed_layers(f, where) : SL_OK;
    if (status == SL_OK)
        status = sl_forward_rope_tables(f, where);
    return status == SL_OK && s->received ? sl_forward_receive(f, where) : status;
}

enum sl_status sl_forward_rope_tables(struct sl_forward *f, const struct sl_place *where) {
    const struct sl_hparams *hp = f->hp;
    struct sl_activations *a = &f->a;
    for (uint32_t i = 0; i < hp->n_rope; i++)
        SL_FORWARD_TRY("rope table", sl_op_rope_table(f->dev, &(struct sl_op_rope_table){
                                                                  .pos = f->on_device.pos,
                                                                  .inv_freq = a->inv_freq[i],
                                                                  .table = a->rope_table[i],
                                                                  .n_tok = f->step.n_rows,
                                                                  .n_freq = hp->rope[i].n_rot / 2,
                                                                  .mscale = f->rope_mscale[i]}));
    return SL_OK;
}

enum sl_status sl_forward_compute(struct sl_forward *f, float **out_logits,
                                  struct sl_place *where) {
    const struct sl_hparams *hp = f->hp;
    struct sl_step *s = &f->step;
    const struct sl_abort *give_up = where->give_up;
    *out_logits = NULL;
    SL_TRY(sl_forward_embed(f, where));
    struct sl_rows r = {f->a.x, s->n_rows, s->n_decode, NULL, f->row_failed};
    for (uint32_t i = 0; i < sl_answer_layers(hp); i++) {
        if (give_up && give_up->asked(give_up)) {
            SL_FORWARD_TRY("canceled step", sl_device_sync(f->dev));
            return sl_fail(where->err, SL_ERR_CANCELED, "canceled");
        }
        where->layer = i;
        uint64_t start = sl_timeline_now(f->timeline);
        enum sl_status status = sl_forward_layer(f, &r, where);
        sl_timeline_since(f->timeline, "layer", start, {"layer", hp->first_layer + i});
        if (status != SL_OK)
            return status;
        if (s->n_failed == s->n_rows)
            break; /* nothing is left that anybody could use */
    }
    where->layer = UINT32_MAX;
    if (sl_forward_sends(f) && s->n_failed < s->n_rows)
        return sl_forward_send(f, where);
    if (!f->output.data || s->keep_all || !s->n_out || s->n_failed == s->n_rows)
        return SL_OK;
    if (hp->n_draft && s->n_out < s->n_rows)
        SL_TRY(sl_forward_cut(f, &r, NULL, 0, where));
    return sl_forward_output(f, r.x, r.n, r.n_decode, out_logits, where);
}
