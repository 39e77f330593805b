/* Hyper-connections: the residual stream is several, of which each part of a layer reads a weighted
 * sum. The weights come from all streams of the row, normed as one; or, by way of a low rank, gates
 * of all their elements come from the streams, each normed for itself. Residual attention: the
 * others are what the first was before some layers, and a weight comes from its stream alone. */
#include "engine/layers/streams.h"
#include "engine/pass/pass_internal.h"
#include "backends/ops/elementwise.h"
#include "backends/ops/matmul.h"
#include "backends/ops/norm.h"
#include "backends/ops/streams.h"

/* Of r's rows; those that go on to the logits have a place of their own. */
static float *weights_of(const struct sl_forward *f, const struct sl_rows *r) {
    return r->of_step ? f->a.out_stream_w : f->a.stream_w;
}

/* The products that weights are made of: fn over n normed rows, into w. */
static enum sl_status products(struct sl_forward *f, const float *x, uint32_t n, uint32_t n_decode,
                               const struct sl_streams *s, float *w, const struct sl_place *where) {
    SL_FORWARD_TRY("norm of streams",
                   sl_forward_norm(f, x, NULL, f->a.streams_h, n, sl_row_elems(f->hp)));
    SL_FORWARD_TRY("weights of streams",
                   sl_op_matmul(f->dev, &(struct sl_op_matmul){.x = f->a.streams_h,
                                                               .n_tok = n,
                                                               .n_decode = n_decode,
                                                               .n_w = 1,
                                                               .out = {{s->fn, NULL, w, false}}}));
    return SL_OK;
}

/* w becomes weights, and the sum of x's streams by them stream_x. */
static enum sl_status read(struct sl_forward *f, const float *x, uint32_t n,
                           const struct sl_streams *s, float *w, bool only_read,
                           const struct sl_place *where) {
    const struct sl_hparams *hp = f->hp;
    SL_FORWARD_TRY(
        "weights of streams",
        sl_op_stream_weights(f->dev, &(struct sl_op_stream_weights){.x = w,
                                                                    .scale = s->scale,
                                                                    .base = s->base,
                                                                    .n_tok = n,
                                                                    .n_stream = hp->n_stream,
                                                                    .n_iter = hp->stream_iters,
                                                                    .eps = hp->stream_eps,
                                                                    .only_read = only_read}));
    SL_FORWARD_TRY(
        "reading streams",
        sl_op_stream_read(
            f->dev, &(struct sl_op_stream_read){
                        .x = x,
                        .w = w,
                        .y = f->a.stream_x,
                        .n_tok = n,
                        .n_stream = hp->n_stream,
                        .n = hp->n_embd,
                        .stride_w = only_read ? hp->n_stream : SL_STREAM_WEIGHTS(hp->n_stream)}));
    return SL_OK;
}

static enum sl_status attend(struct sl_forward *f, const float *x, uint32_t n,
                             const struct sl_streams *s, const struct sl_place *where) {
    const struct sl_hparams *hp = f->hp;
    SL_FORWARD_TRY(
        "attending to streams",
        sl_op_stream_attend(f->dev, &(struct sl_op_stream_attend){.x = x,
                                                                  .w = s->score,
                                                                  .y = f->a.stream_x,
                                                                  .n_tok = n,
                                                                  .n_stream = hp->n_stream,
                                                                  .n_kept = s->n_kept,
                                                                  .n = hp->n_embd,
                                                                  .eps = hp->norm_eps}));
    return SL_OK;
}

enum sl_status sl_streams_norm(struct sl_forward *f, const float *x, const float *w, float *y,
                               uint32_t n_rows, const struct sl_place *where) {
    uint32_t n = f->hp->n_embd, row = sl_row_elems(f->hp);
    for (uint32_t s = 0; s < f->hp->n_stream; s++)
        SL_FORWARD_TRY("norm of streams",
                       sl_op_rms_norm(f->dev, &(struct sl_op_rms_norm){.x = x + (size_t)s * n,
                                                                       .w = w + (size_t)s * n,
                                                                       .y = y + (size_t)s * n,
                                                                       .n_rows = n_rows,
                                                                       .n = n,
                                                                       .stride_x = row,
                                                                       .stride_y = row,
                                                                       .eps = f->hp->norm_eps}));
    return SL_OK;
}

/* By way of a low rank, what is read of n rows to h; w: what is written by, NULL: nothing is. */
static enum sl_status read_low(struct sl_forward *f, const float *x, uint32_t n, uint32_t n_decode,
                               const struct sl_streams *s, float *w, const struct sl_place *where) {
    const struct sl_hparams *hp = f->hp;
    struct sl_activations *a = &f->a;
    SL_TRY(sl_streams_norm(f, x, s->norm, a->streams_h, n, where));
    SL_FORWARD_TRY(
        "weights of streams",
        sl_op_matmul(f->dev, &(struct sl_op_matmul){.x = a->streams_h,
                                                    .n_tok = n,
                                                    .n_decode = n_decode,
                                                    .n_w = w ? 2 : 1,
                                                    .out = {{s->down, NULL, a->stream_low, false},
                                                            {s->fn, NULL, w, false}}}));
    SL_FORWARD_TRY("gates of streams",
                   sl_op_silu(f->dev, &(struct sl_op_silu){.x = a->stream_low,
                                                           .n = (size_t)n * hp->stream_rank,
                                                           .scale = 1 / (float)hp->n_stream}));
    SL_FORWARD_TRY("gates of streams",
                   sl_op_matmul(f->dev, &(struct sl_op_matmul){
                                            .x = a->stream_low,
                                            .n_tok = n,
                                            .n_decode = n_decode,
                                            .n_w = 1,
                                            .out = {{s->up, NULL, a->stream_gate, false}}}));
    SL_FORWARD_TRY("reading streams",
                   sl_op_stream_mean(f->dev, &(struct sl_op_stream_mean){.x = a->streams_h,
                                                                         .gate = a->stream_gate,
                                                                         .y = a->h,
                                                                         .n_tok = n,
                                                                         .n_stream = hp->n_stream,
                                                                         .n = hp->n_embd}));
    return SL_OK;
}

enum sl_status sl_streams_read(struct sl_forward *f, const struct sl_rows *r,
                               const struct sl_streams *s, const float **out_x,
                               const struct sl_place *where) {
    *out_x = r->x;
    if (!f->hp->n_stream)
        return SL_OK;
    *out_x = f->a.stream_x;
    if (f->hp->keep_every)
        return attend(f, r->x, r->n, s, where);
    float *w = weights_of(f, r);
    *out_x = f->hp->stream_rank ? f->a.h : f->a.stream_x;
    if (f->hp->stream_rank)
        return read_low(f, r->x, r->n, r->n_decode, s, w, where);
    SL_TRY(products(f, r->x, r->n, r->n_decode, s, w, where));
    return read(f, r->x, r->n, s, w, false, where);
}

enum sl_status sl_streams_read_last(struct sl_forward *f, const float *x, uint32_t n,
                                    uint32_t n_decode, const float **out_x,
                                    const struct sl_place *where) {
    *out_x = x;
    if (!f->hp->n_stream)
        return SL_OK;
    *out_x = f->hp->stream_rank ? f->a.h : f->a.stream_x;
    if (f->hp->keep_every)
        return attend(f, x, n, &f->output_streams, where);
    if (f->hp->stream_rank)
        return read_low(f, x, n, n_decode, &f->output_streams, NULL, where);
    SL_TRY(products(f, x, n, n_decode, &f->output_streams, f->a.stream_w, where));
    return read(f, x, n, &f->output_streams, f->a.stream_w, true, where);
}

enum sl_status sl_streams_write(struct sl_forward *f, const struct sl_rows *r,
                                const struct sl_streams *s, float *y, const float *w,
                                const struct sl_place *where) {
    const struct sl_hparams *hp = f->hp;
    if (!hp->n_stream)
        return sl_forward_add_normed(f, r, y, w, where);
    if (w)
        SL_FORWARD_TRY("norm behind a part", sl_forward_norm(f, y, w, y, r->n, hp->n_embd));
    if (hp->keep_every) {
        SL_FORWARD_TRY("keeping streams", sl_op_stream_keep(f->dev, &(struct sl_op_stream_keep){
                                                                        .x = r->x,
                                                                        .y = y,
                                                                        .n_tok = r->n,
                                                                        .n_stream = hp->n_stream,
                                                                        .to = s->keep_in,
                                                                        .n = hp->n_embd}));
        return SL_OK;
    }
    if (hp->stream_rank) {
        SL_FORWARD_TRY("writing streams", sl_op_stream_inject(f->dev, &(struct sl_op_stream_inject){
                                                                          .x = r->x,
                                                                          .y = y,
                                                                          .w = weights_of(f, r),
                                                                          .n_tok = r->n,
                                                                          .n_stream = hp->n_stream,
                                                                          .n = hp->n_embd}));
        return SL_OK;
    }
    SL_FORWARD_TRY("writing streams",
                   sl_op_stream_write(f->dev, &(struct sl_op_stream_write){.x = r->x,
                                                                           .y = y,
                                                                           .w = weights_of(f, r),
                                                                           .n_tok = r->n,
                                                                           .n_stream = hp->n_stream,
                                                                           .n = hp->n_embd}));
    return SL_OK;
}

/* A layer that keeps what the residual stream was when it began does so when its mixer is added. */
static void bind_kept(struct sl_binder *b, const struct sl_hparams *hp, uint32_t layer,
                      const struct sl_layer *in, struct sl_layer_weights *out) {
    uint32_t before = sl_kept_streams(hp, layer), behind = sl_kept_streams(hp, layer + 1);
    out->streams[0] = (struct sl_streams){.score = sl_bind_vector(b, in->t[SL_L_STREAMS_MIX_BASE]),
                                          .n_kept = before,
                                          .keep_in = behind > before ? behind : 0};
    out->streams[1] = (struct sl_streams){.score = sl_bind_vector(b, in->t[SL_L_STREAMS_FFN_BASE]),
                                          .n_kept = behind};
}

void sl_streams_bind(struct sl_binder *b, const struct sl_hparams *hp, uint32_t layer,
                     const struct sl_layer *in, struct sl_layer_weights *out) {
    if (hp->keep_every) {
        bind_kept(b, hp, layer, in, out);
        return;
    }
    for (uint32_t i = 0; i < 2; i++) {
        enum sl_layer_role fn = i ? SL_L_STREAMS_FFN : SL_L_STREAMS_MIX;
        out->streams[i] = (struct sl_streams){.fn = sl_bind_matrix(b, in->t[fn]),
                                              .base = sl_bind_vector(b, in->t[fn + 1]),
                                              .scale = sl_bind_vector(b, in->t[fn + 2])};
        enum sl_layer_role low = i ? SL_L_LOW_FFN_NORM : SL_L_LOW_MIX_NORM;
        if (in->t[low])
            out->streams[i] = (struct sl_streams){.norm = sl_bind_vector(b, in->t[low]),
                                                  .down = sl_bind_matrix(b, in->t[low + 1]),
                                                  .up = sl_bind_matrix(b, in->t[low + 2]),
                                                  .fn = sl_bind_matrix(b, in->t[low + 3])};
    }
}
