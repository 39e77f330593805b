/* Hyper-connections and residual attention: what parts of layers and the output read of the rows'
 * streams, and write. */
#ifndef SL_ENGINE_LAYERS_STREAMS_H
#define SL_ENGINE_LAYERS_STREAMS_H

#include "engine/pass/pass_internal.h"

/* What a part of a layer reads of the rows' streams, to *out_x [r->n, n_embd], and the weights by
 * which sl_streams_write() does the rest; where there are no streams r's rows themselves. *out_x is
 * a.h where it is not to be normed. */
enum sl_status sl_streams_read(struct sl_forward *f, const struct sl_rows *r,
                               const struct sl_streams *s, const float **out_x,
                               const struct sl_place *where) SL_MUST_CHECK;
/* What the output reads of n rows, likewise: x, where there are no streams. */
enum sl_status sl_streams_read_last(struct sl_forward *f, const float *x, uint32_t n,
                                    uint32_t n_decode, const float **out_x,
                                    const struct sl_place *where) SL_MUST_CHECK;
/* Where the rows have streams: mixes them with one another and with y [r->n, n_embd], which part s
 * gave, normed by w in place (w NULL: as it is), or, of residual attention, adds it to the first,
 * which may be kept before; else sl_forward_add_normed(). */
enum sl_status sl_streams_write(struct sl_forward *f, const struct sl_rows *r,
                                const struct sl_streams *s, float *y, const float *w,
                                const struct sl_place *where) SL_MUST_CHECK;
/* layer: of the whole model. */
void sl_streams_bind(struct sl_binder *b, const struct sl_hparams *hp, uint32_t layer,
                     const struct sl_layer *in, struct sl_layer_weights *out);
/* Each stream of rows [n_rows, row] normed for itself, with weights w [row]; y may be x. */
enum sl_status sl_streams_norm(struct sl_forward *f, const float *x, const float *w, float *y,
                               uint32_t n_rows, const struct sl_place *where) SL_MUST_CHECK;

#endif
