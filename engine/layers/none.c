/* Where a layer is one part alone: the mixer of one that has none, and the feed-forward part. */
#include "engine/layers/layer_kind.h"
#include "engine/pass/pass_internal.h"

static enum sl_status no_mixer(struct sl_forward *f, struct sl_rows *r,
                               const struct sl_place *where) {
    if (!sl_forward_cuts(f, where->layer))
        return SL_OK;
    if (f->step.n_out == 0) {
        r->n = 0;
        return SL_OK;
    }
    return sl_forward_cut(f, r, NULL, 0, where);
}

static enum sl_status no_ffn(struct sl_forward *f, const struct sl_rows *r,
                             const struct sl_place *where) {
    return sl_forward_end_layer(f, r, where);
}

static void ops(struct sl_op_asker *a, const struct sl_hparams *hp, const struct sl_layer *layer) {
    (void)a, (void)hp, (void)layer;
}

static void need(const struct sl_hparams *hp, const struct sl_layer_spec *spec,
                 struct sl_layer_needs *needs) {
    (void)hp, (void)spec, (void)needs;
}

static void bind(struct sl_binder *b, const struct sl_layer *in, struct sl_layer_weights *out) {
    (void)b, (void)in, (void)out;
}

static struct sl_seq_store keeps(const struct sl_layer_spec *spec, enum sl_dtype kv_dtype) {
    (void)spec, (void)kv_dtype;
    return (struct sl_seq_store){.name = "nothing", .reach = SL_SEQ_ALL, .repeatable = true};
}

const struct sl_mixer sl_mixer_none = {
    .name = "no mixer", .ops = ops, .keeps = keeps, .need = need, .bind = bind, .run = no_mixer};
const struct sl_ffn sl_ffn_none = {
    .name = "no feed-forward part", .ops = ops, .need = need, .bind = bind, .run = no_ffn};
