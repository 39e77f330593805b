/* What the kinds of layer share: norms, sums, the cut of the last layer, and the text of an error.
 */
#include "engine/pass/pass_internal.h"
#include "backends/ops/elementwise.h"
#include "backends/ops/matmul.h"
#include "backends/ops/norm.h"
#include "backends/ops/streams.h"

enum sl_status sl_forward_at(const struct sl_place *where, const char *op, enum sl_status status) {
    if (status == SL_OK)
        return SL_OK;
    if (where->layer == UINT32_MAX)
        return sl_fail(where->err, status, "%s: %s", op, sl_status_text(status));
    return sl_fail(where->err, status, "layer %u, %s: %s", where->first_layer + where->layer, op,
                   sl_status_text(status));
}

enum sl_status sl_forward_norm(struct sl_forward *f, const float *x, const float *w, float *y,
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

enum sl_status sl_forward_row_norm(struct sl_forward *f, const float *x, const float *w,
                                   const float *bias, float *y, uint32_t n_rows) {
    uint32_t n = f->hp->n_embd;
    if (f->hp->layer_norm) {
        SL_TRY(
            sl_op_center(f->dev, &(struct sl_op_center){.x = x, .y = y, .n_tok = n_rows, .n = n}));
        x = y;
    }
    SL_TRY(sl_forward_norm(f, x, w, y, n_rows, n));
    return bias ? sl_op_bias(f->dev,
                             &(struct sl_op_bias){.x = y, .b = bias, .n_tok = n_rows, .n = n})
                : SL_OK;
}

enum sl_status sl_forward_add_normed(struct sl_forward *f, const struct sl_rows *r, float *y,
                                     const float *w, const struct sl_place *where) {
    uint32_t n = f->hp->n_embd;
    if (w)
        SL_FORWARD_TRY("norm behind a part", sl_forward_norm(f, y, w, y, r->n, n));
    SL_FORWARD_TRY("sum", sl_op_add_gated(f->dev, &(struct sl_op_add_gated){
                                                      .x = y, .y = r->x, .n_tok = r->n, .n = n}));
    return SL_OK;
}

/* What the layer gives chooses what of its own embedding of each token is added. */
static enum sl_status add_embedding(struct sl_forward *f, const struct sl_rows *r,
                                    const struct sl_place *where) {
    const struct sl_layer_weights *w = &f->layers[where->layer];
    struct sl_activations *a = &f->a;
    uint32_t n = f->hp->n_embd_layer, n_all = n * f->embd_layers.n;
    uint32_t at = f->hp->first_layer + where->layer - f->embd_layers.first;
    struct sl_op_matmul gate = {.x = r->x,
                                .n_tok = r->n,
                                .n_decode = r->n_decode,
                                .n_w = 1,
                                .out = {{w->embd_gate, NULL, a->gate, false}}};
    SL_FORWARD_TRY("layer's embedding", sl_op_matmul(f->dev, &gate));
    SL_FORWARD_TRY("layer's embedding",
                   sl_op_gelu_rows(f->dev, &(struct sl_op_gelu_rows){
                                               .gate = a->gate,
                                               .up = a->layer_embd + (size_t)at * n,
                                               .rows = r->of_step ? f->on_device.out_rows : NULL,
                                               .y = a->gate,
                                               .n_tok = r->n,
                                               .n = n,
                                               .stride_up = n_all}));
    struct sl_op_matmul back = {.x = a->gate,
                                .n_tok = r->n,
                                .n_decode = r->n_decode,
                                .n_w = 1,
                                .out = {{w->embd_proj, NULL, a->h, false}}};
    SL_FORWARD_TRY("layer's embedding", sl_op_matmul(f->dev, &back));
    return sl_forward_add_normed(f, r, a->h, w->embd_norm, where);
}

enum sl_status sl_forward_end_layer(struct sl_forward *f, const struct sl_rows *r,
                                    const struct sl_place *where) {
    const float *scale = f->layers[where->layer].scale;
    SL_TRY(f->hp->n_embd_layer ? add_embedding(f, r, where) : SL_OK);
    if (scale)
        SL_FORWARD_TRY("layer scale", sl_op_scale(f->dev, &(struct sl_op_scale){.x = r->x,
                                                                                .by = scale,
                                                                                .n_tok = r->n,
                                                                                .n = f->hp->n_embd,
                                                                                .scale = 1}));
    return SL_OK;
}

enum sl_status sl_forward_glu(struct sl_forward *f, const struct sl_layer_spec *spec, size_t n) {
    struct sl_activations *a = &f->a;
    enum sl_op op = sl_glu_op(spec);
    if (op == SL_OP_relu_squared)
        return sl_op_relu_squared(f->dev, &(struct sl_op_relu_squared){a->gate, n});
    if (op == SL_OP_clamped_glu)
        return sl_op_clamped_glu(f->dev, &(struct sl_op_clamped_glu){a->gate, a->up, a->gate, n});
    if (op == SL_OP_situ_glu)
        return sl_op_situ_glu(f->dev, &(struct sl_op_situ_glu){a->gate, a->up, a->gate, n,
                                                               spec->limit, spec->limit_up});
    if (op == SL_OP_cut_glu)
        return sl_op_cut_glu(f->dev,
                             &(struct sl_op_cut_glu){a->gate, a->up, a->gate, n, spec->limit});
    if (op == SL_OP_limited_glu)
        return sl_op_limited_glu(
            f->dev, &(struct sl_op_limited_glu){a->gate, a->up, a->gate, n, spec->limit});
    if (op == SL_OP_gelu_mul)
        return sl_op_gelu_mul(f->dev, &(struct sl_op_gelu_mul){a->gate, a->up, a->gate, n});
    return sl_op_silu_mul(f->dev, &(struct sl_op_silu_mul){a->gate, a->up, a->gate, n});
}

static enum sl_status gather(struct sl_forward *f, const float *x, float *y, uint32_t n) {
    return sl_op_gather_rows(
        f->dev, &(struct sl_op_gather_rows){
                    .x = x, .rows = f->on_device.out_rows, .y = y, .n_out = f->step.n_out, .n = n});
}

enum sl_status sl_forward_cut(struct sl_forward *f, struct sl_rows *r, const float **mixed,
                              uint32_t n, const struct sl_place *where) {
    struct sl_activations *a = &f->a;
    const struct sl_step *s = &f->step;
    SL_FORWARD_TRY("gather", gather(f, a->x, a->out_x, sl_row_elems(f->hp)));
    if (sl_has_hyper_connections(f->hp))
        SL_FORWARD_TRY("gather",
                       gather(f, a->stream_w, a->out_stream_w, sl_forward_stream_weights(f->hp)));
    if (mixed) {
        SL_FORWARD_TRY("gather", gather(f, *mixed, a->out_mixed, n));
        *mixed = a->out_mixed;
    }
    r->x = a->out_x;
    r->n = s->n_out;
    r->of_step = s->out_rows;
    r->failed = f->out_failed;
    for (uint32_t i = 0; i < s->n_out; i++)
        f->out_failed[i] = f->row_failed[s->out_rows[i]];
    r->n_decode = 0;
    while (r->n_decode < s->n_out && s->out_rows[r->n_decode] < s->n_decode)
        r->n_decode++;
    return SL_OK;
}

struct sl_state_view sl_forward_state(const struct sl_forward *f, const struct sl_kv_part *part) {
    return (struct sl_state_view){
        .pages = sl_span_addr(sl_kv_part_span(f->kv, part)),
        .page_bytes = part->bytes,
        .page_table = part->tail ? f->a.tail_table : f->a.page_table,
        .slot = part->tail ? f->on_device.tail_slot : f->on_device.slot,
        .row_seq = f->on_device.row_seq,
        .row_len = f->on_device.row_len,
        .max_pages = f->plan->session_pages,
    };
}

enum sl_status sl_forward_upload_step(struct sl_forward *f) {
    const struct sl_step *s = &f->step;
    uint32_t room = sl_forward_step_rows(s->n_rows);
    uint32_t n_out = f->output.data && !s->keep_all ? s->n_out : 0;
    size_t n = sl_step_pack(s, room, n_out, f->step_arrays);
    f->on_device = sl_step_lay(f->a.step_arrays, room, n_out);
    return sl_forward_upload(f, f->a.step_arrays, f->step_arrays, n * sizeof *f->step_arrays);
}
