/* Logits of rows that have been through all layers. */
#include "engine/forward/forward_internal.h"
#include "backends/ops/elementwise.h"
#include "backends/ops/matmul.h"
#include "engine/layers/streams.h"

#include <assert.h>

/* To right before the n rows (sl_activations). */
static enum sl_status look_at_blocks(struct sl_forward *f, float *logits, uint32_t n) {
    size_t n_blocks = sl_forward_blocks(f->hp, n);
    return sl_op_block_max(f->dev,
                           &(struct sl_op_block_max){.x = logits,
                                                     .max = logits - n_blocks,
                                                     .at = (uint32_t *)(logits - 2 * n_blocks),
                                                     .sum = logits - 3 * n_blocks,
                                                     .inv_t = f->on_device.sums_at,
                                                     .n_tok = n,
                                                     .n = f->hp->n_vocab});
}

enum sl_status sl_forward_head(struct sl_forward *f, const struct sl_head *head, const float *x,
                               uint32_t n, uint32_t n_decode, float **out_logits,
                               const struct sl_place *where) {
    struct sl_activations *a = &f->a;
    float *logits = a->logits;
    if (!f->plan->reads_back)
        logits += (size_t)f->step.micro_batch * f->plan->n_logit_rows * f->hp->n_vocab;
    assert(n <= f->plan->n_logit_rows);
    uint64_t start = sl_timeline_now(f->timeline);
    sl_device_section(f->dev, "output", true);
    SL_TRY(sl_streams_read_last(f, x, n, n_decode, &x, where));
    if (x != a->h)
        SL_FORWARD_TRY("output norm",
                       sl_forward_row_norm(f, x, head->norm, head->norm_bias, a->h, n));
    SL_FORWARD_TRY("output",
                   sl_op_matmul(f->dev, &(struct sl_op_matmul){
                                            .x = a->h,
                                            .n_tok = n,
                                            .n_decode = n_decode,
                                            .n_w = 1,
                                            .out = {{head->output, head->bias, logits, false}}}));
    if (f->hp->logit_softcap > 0 || f->hp->logit_scale != 1)
        SL_FORWARD_TRY("logits' scale",
                       sl_op_scale(f->dev, &(struct sl_op_scale){.x = logits,
                                                                 .n_tok = n,
                                                                 .n = f->hp->n_vocab,
                                                                 .scale = f->hp->logit_scale,
                                                                 .cap = f->hp->logit_softcap}));
    if (sl_forward_has_blocks(f))
        SL_FORWARD_TRY("blocks of the logits", look_at_blocks(f, logits, n));
    sl_timeline_since(f->timeline, "logits", start, {"rows", n});
    *out_logits = logits;
    return SL_OK;
}

enum sl_status sl_forward_output(struct sl_forward *f, const float *x, uint32_t n,
                                 uint32_t n_decode, float **out_logits,
                                 const struct sl_place *where) {
    const struct sl_head head = {f->output_norm, f->output_norm_bias, f->output, f->output_bias};
    return sl_forward_head(f, &head, x, n, n_decode, out_logits, where);
}

enum sl_status sl_forward_logits(struct sl_forward *f, uint32_t first, uint32_t n,
                                 float **out_logits, struct sl_err *err) {
    assert(f->step.keep_all && first + n <= f->step.n_rows && n <= f->plan->n_logit_rows);
    struct sl_place where = {err, UINT32_MAX, f->hp->first_layer, NULL};
    float *logits;
    SL_TRY(
        sl_forward_output(f, f->a.x + (size_t)first * sl_row_elems(f->hp), n, 0, &logits, &where));
    struct sl_logits read = {0};
    enum sl_status status = sl_forward_read_back(f, false, logits, n, &read);
    *out_logits = read.rows;
    return status == SL_OK ? SL_OK : sl_forward_at(&where, "reading back the logits", status);
}

enum sl_status sl_forward_hidden(struct sl_forward *f, uint32_t first, uint32_t n,
                                 const float **out_rows, struct sl_err *err) {
    assert(f->step.keep_all && first + n <= f->step.n_rows && n <= f->plan->n_logit_rows);
    struct sl_place place = {err, UINT32_MAX, f->hp->first_layer, NULL}, *where = &place;
    const float *x = f->a.x + (size_t)first * sl_row_elems(f->hp);
    SL_TRY(sl_streams_read_last(f, x, n, 0, &x, where));
    if (x != f->a.h)
        SL_FORWARD_TRY("output norm",
                       sl_forward_row_norm(f, x, f->output_norm, f->output_norm_bias, f->a.h, n));
    SL_FORWARD_TRY("reading back hidden states", sl_forward_read_hidden(f, f->a.h, n, out_rows));
    return SL_OK;
}
