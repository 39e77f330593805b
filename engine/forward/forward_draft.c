/* The draft layer: its input is a token and the model's state before it, the
 * rest is a layer like any other, with an output of its own. */
#include "engine/forward/forward_internal.h"
#include "backends/ops/matmul.h"
#include "backends/ops/norm.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* The state of rows whose own is not known: the last of draft_states. */
enum sl_status sl_forward_draft_init(struct sl_forward *f, struct sl_err *err) {
    uint32_t n = f->hp->n_embd;
    if (!f->hp->n_draft)
        return SL_OK;
    float *zeros = calloc(n, sizeof *zeros);
    enum sl_status status =
        zeros ? sl_forward_upload(f, f->a.draft_states + (size_t)f->plan->config.batch_tokens * n,
                                  zeros, n * sizeof *zeros)
              : SL_ERR_NOMEM;
    if (status == SL_OK)
        status = sl_device_sync(f->dev);
    free(zeros);
    return status == SL_OK
               ? SL_OK
               : sl_fail(err, status, "preparing the draft layer: %s", sl_status_text(status));
}

/* What the rows in x give: the model's states or the layer's own, each behind the norm before its
 * output matrix, if these are not read as they are. */
static enum sl_status keep_states(struct sl_forward *f, enum sl_draft_states which,
                                  const struct sl_place *where) {
    bool own = which == SL_DRAFT_STATES_OWN;
    if (which == SL_DRAFT_STATES_KEPT)
        return SL_OK;
    if (f->hp->draft_plain) {
        size_t bytes = (size_t)f->n_states * f->hp->n_embd * sizeof *f->a.x;
        SL_FORWARD_TRY("states", sl_device_copy(f->dev, SL_QUEUE_OPS,
                                                sl_span_at(f->arena, f->a.draft_states, bytes),
                                                sl_span_at(f->arena, f->a.x, bytes)));
        return SL_OK;
    }
    SL_FORWARD_TRY(
        "states",
        sl_forward_row_norm(f, f->a.x, own ? f->layers[where->layer].draft_norm : f->output_norm,
                            own ? NULL : f->output_norm_bias, f->a.draft_states, f->n_states));
    return SL_OK;
}

/* Half of the rows of draft_in, normed: x [n_rows, n_embd]. */
static enum sl_status norm_half(struct sl_forward *f, const float *x, const float *w, float *half) {
    uint32_t n = f->hp->n_embd;
    return sl_op_rms_norm(f->dev, &(struct sl_op_rms_norm){.x = x,
                                                           .w = w,
                                                           .y = half,
                                                           .n_rows = f->step.n_rows,
                                                           .n = n,
                                                           .stride_x = n,
                                                           .stride_y = 2 * n,
                                                           .eps = f->hp->norm_eps});
}

/* From tokens and states to the rows that the layer reads. */
static enum sl_status join(struct sl_forward *f, const struct sl_place *where) {
    const struct sl_layer_weights *w = &f->layers[where->layer];
    struct sl_activations *a = &f->a;
    uint32_t n = f->hp->n_embd, n_rows = f->step.n_rows;
    SL_FORWARD_TRY("embedding",
                   sl_op_embed(f->dev, &(struct sl_op_embed){.w = w->draft_embd,
                                                             .ids = f->on_device.ids,
                                                             .y = a->h,
                                                             .n_tok = n_rows,
                                                             .scale = f->hp->embd_scale}));
    SL_FORWARD_TRY("embedding's norm", norm_half(f, a->h, w->draft_embd_norm, a->draft_in));
    SL_FORWARD_TRY("states",
                   sl_op_gather_rows(f->dev, &(struct sl_op_gather_rows){.x = a->draft_states,
                                                                         .rows = a->draft_from,
                                                                         .y = a->h,
                                                                         .n_out = n_rows,
                                                                         .n = n}));
    SL_FORWARD_TRY("states' norm", norm_half(f, a->h, w->draft_state_norm, a->draft_in + n));
    SL_FORWARD_TRY(
        "joining tokens and states",
        sl_op_matmul(f->dev, &(struct sl_op_matmul){.x = a->draft_in,
                                                    .n_tok = n_rows,
                                                    .n_decode = f->step.n_decode,
                                                    .n_w = 1,
                                                    .out = {{w->draft_join, NULL, a->x, false}}}));
    return SL_OK;
}

/* The layer's output for the rows behind which a token is to be drafted. */
static enum sl_status draft_logits(struct sl_forward *f, struct sl_rows *r, float **out_logits,
                                   const struct sl_place *where) {
    const struct sl_layer_weights *w = &f->layers[where->layer];
    const struct sl_head head = {w->draft_norm, NULL, w->draft_output, NULL};
    enum sl_status status = sl_forward_cut(f, r, NULL, 0, where);
    return status == SL_OK ? sl_forward_head(f, &head, r->x, r->n, r->n_decode, out_logits, where)
                           : status;
}

static enum sl_status upload(struct sl_forward *f, const struct sl_draft_rows *rows) {
    uint32_t n_rows = f->step.n_rows, none = f->plan->config.batch_tokens;
    for (uint32_t i = 0; i < n_rows; i++)
        f->draft_from[i] = rows->from[i] == SL_DRAFT_NO_STATE ? none : rows->from[i];
    SL_TRY(sl_forward_upload_step(f));
    return sl_forward_upload(f, f->a.draft_from, f->draft_from, n_rows * sizeof *f->draft_from);
}

static enum sl_status run(struct sl_forward *f, const struct sl_draft_rows *rows,
                          struct sl_logits *out_logits, uint32_t *out_failed, struct sl_err *err) {
    struct sl_step *s = &f->step;
    struct sl_place place = {err, sl_answer_layers(f->hp), f->hp->first_layer, NULL};
    struct sl_place *where = &place;
    float *logits = NULL;
    assert(f->hp->n_draft && rows->step->n_rows && !rows->step->keep_all);
    assert(rows->step->n_rows <= f->plan->config.batch_tokens);
    assert(rows->step->n_out <= f->plan->n_logit_rows);
    *out_logits = (struct sl_logits){0};
    SL_TRY(keep_states(f, rows->states, where));
    *s = *rows->step;
    s->n_failed = 0;
    f->n_states = s->n_rows;
    memset(f->row_failed, 0, s->n_rows);
    SL_FORWARD_TRY("placing experts", sl_forward_place(f));
    SL_FORWARD_TRY("drafts' tables", upload(f, rows));
    sl_device_section(f->dev, "input", true);
    enum sl_status status = join(f, where);
    if (status == SL_OK)
        status = sl_forward_rope_tables(f, where);
    struct sl_rows r = {f->a.x, s->n_rows, s->n_decode, NULL, f->row_failed};
    if (status == SL_OK)
        status = sl_forward_layer(f, &r, where);
    if (status == SL_OK && s->n_out)
        status = draft_logits(f, &r, &logits, where);
    *out_failed = s->n_failed;
    if (status != SL_OK || !logits)
        return status;
    SL_FORWARD_TRY("reading back drafts",
                   sl_forward_read_back(f, false, logits, s->n_out, out_logits));
    return SL_OK;
}

enum sl_status sl_forward_draft(struct sl_forward *f, const struct sl_draft_rows *rows,
                                struct sl_logits *out_logits, uint32_t *out_failed,
                                struct sl_err *err) {
    bool rests = f->lane_rests;
    f->lane_rests = true; /* what it learns is of whole steps */
    enum sl_status status = run(f, rows, out_logits, out_failed, err);
    f->lane_rests = rests;
    return status;
}
