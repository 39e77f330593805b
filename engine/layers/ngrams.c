#include "engine/layers/ngrams.h"

#include "backends/ops/matmul.h"
#include "backends/ops/ngram.h"
#include "backends/ops/rows.h"
#include "engine/layers/op_asker.h"
#include "engine/layers/streams.h"

/* Of the layer's stores: a gated delta net, which the layer has, keeps one. */
#define STORE 1u

void sl_ngram_rows(const struct sl_ngram_spec *spec, uint32_t id, const uint32_t *before,
                   uint32_t *out) {
    uint64_t hash = id * spec->mul[0];
    bool cut = false;
    for (uint32_t n = 2; n <= spec->n_gram; n++) {
        uint32_t t = before[n - 2];
        cut = cut || t == SL_NO_TOKEN || t == spec->eos; /* what is before it does not count */
        hash ^= (cut ? spec->eos : t) * spec->mul[n - 1];
        for (uint32_t i = 0; i < spec->per_gram; i++) {
            uint32_t h = (n - 2) * spec->per_gram + i;
            out[h] = spec->offset[h] + (uint32_t)(hash % spec->size[h]);
        }
    }
}

/* To h, a few rows of the table at a time, as many as an op takes. */
static enum sl_status look_up(struct sl_forward *f, const struct sl_place *where) {
    const struct sl_ngram_spec *spec = &f->hp->ngram;
    uint32_t n_rows = f->step.n_rows * spec->n_head, most = f->plan->config.batch_tokens;
    const uint32_t *ids = sl_forward_rows_of(f, SL_TABLE_NGRAMS);
    for (uint32_t at = 0; at < n_rows; at += most)
        SL_FORWARD_TRY("n-grams",
                       sl_op_embed(f->dev, &(struct sl_op_embed){
                                               .w = f->ngrams,
                                               .ids = ids + at,
                                               .y = f->a.h + (size_t)at * spec->dim,
                                               .n_tok = n_rows - at < most ? n_rows - at : most,
                                               .scale = 1}));
    return SL_OK;
}

enum sl_status sl_ngrams_add(struct sl_forward *f, const struct sl_rows *r,
                             const struct sl_place *where) {
    const struct sl_layer_weights *w = &f->layers[where->layer];
    const struct sl_ngram_layer_spec *spec = &w->spec->ngram;
    const struct sl_kv_part *part = sl_kv_part(f->kv, where->layer, STORE);
    struct sl_activations *a = &f->a;
    uint64_t start = sl_timeline_now(f->timeline);
    SL_TRY(look_up(f, where));
    SL_FORWARD_TRY(
        "n-grams",
        sl_op_matmul(f->dev, &(struct sl_op_matmul){.x = a->h,
                                                    .n_tok = r->n,
                                                    .n_decode = r->n_decode,
                                                    .n_w = 2,
                                                    .out = {{w->ngram_key, NULL, a->q, false},
                                                            {w->ngram_value, NULL, a->v, false}}}));
    SL_TRY(sl_streams_norm(f, a->q, w->ngram_key_norm, a->q, r->n, where));
    SL_TRY(sl_streams_norm(f, r->x, w->ngram_query_norm, a->streams_h, r->n, where));
    SL_FORWARD_TRY("n-grams' gates",
                   sl_op_ngram_gate(f->dev, &(struct sl_op_ngram_gate){.key = a->q,
                                                                       .query = a->streams_h,
                                                                       .value = a->v,
                                                                       .y = a->joint,
                                                                       .n_tok = r->n,
                                                                       .n_stream = f->hp->n_stream,
                                                                       .n = f->hp->n_embd}));
    SL_TRY(sl_streams_norm(f, a->joint, w->ngram_conv_norm, a->mixed, r->n, where));
    SL_FORWARD_TRY(
        "n-grams' convolution",
        sl_op_ngram_conv(f->dev, &(struct sl_op_ngram_conv){.x = a->joint,
                                                            .h = a->mixed,
                                                            .w = w->ngram_conv,
                                                            .y = r->x,
                                                            .state = sl_forward_state(f, part),
                                                            .n_tok = r->n,
                                                            .n = spec->n,
                                                            .n_taps = spec->n_taps,
                                                            .step = spec->step}));
    sl_timeline_since(f->timeline, "n-grams", start, {"rows", r->n});
    return SL_OK;
}

void sl_ngrams_need(const struct sl_hparams *hp, const struct sl_layer_spec *spec,
                    struct sl_layer_needs *needs) {
    if (!spec->ngram.n_taps)
        return;
    sl_raise(&needs->q, spec->ngram.n);
    sl_raise(&needs->v, hp->n_embd);
    sl_raise(&needs->joint, spec->ngram.n);
    sl_raise(&needs->mixed, spec->ngram.n);
}

void sl_ngrams_bind(struct sl_binder *b, const struct sl_layer *in, struct sl_layer_weights *out) {
    const struct sl_gguf_tensor *conv = in->t[SL_L_NGRAM_CONV];
    out->ngram_key = sl_bind_matrix(b, in->t[SL_L_NGRAM_KEY]);
    out->ngram_value = sl_bind_matrix(b, in->t[SL_L_NGRAM_VALUE]);
    out->ngram_key_norm = sl_bind_vector(b, in->t[SL_L_NGRAM_KEY_NORM]);
    out->ngram_query_norm = sl_bind_vector(b, in->t[SL_L_NGRAM_QUERY_NORM]);
    out->ngram_conv_norm = sl_bind_vector(b, in->t[SL_L_NGRAM_CONV_NORM]);
    if (conv && conv->dtype == SL_DTYPE_F32) /* else forward.c makes floats of it */
        out->ngram_conv = sl_bind_vector(b, conv);
}

void sl_ngrams_ops(struct sl_op_asker *a, const struct sl_layer *layer) {
    if (!layer->spec.ngram.n_taps)
        return;
    sl_ask_plain(a, SL_OP_rms_norm);
    sl_ask_plain(a, SL_OP_ngram_gate);
    sl_ask_plain(a, SL_OP_ngram_conv);
    sl_ask_weight(a, SL_OP_matmul, layer->t[SL_L_NGRAM_KEY]);
    sl_ask_weight(a, SL_OP_matmul, layer->t[SL_L_NGRAM_VALUE]);
    if (layer->t[SL_L_NGRAM_CONV] && layer->t[SL_L_NGRAM_CONV]->dtype != SL_DTYPE_F32)
        sl_ask_weight(a, SL_OP_embed, layer->t[SL_L_NGRAM_CONV]);
}

struct sl_seq_store sl_ngrams_keeps(const struct sl_layer_spec *spec) {
    const struct sl_ngram_layer_spec *n = &spec->ngram;
    return (struct sl_seq_store){
        .name = "n-grams",
        .n_parts = 1,
        .part_bytes = {(size_t)(n->n_taps - 1) * n->step * n->n * sizeof(float)},
        .reach = 1};
}
