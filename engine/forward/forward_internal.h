/* Inside the layer loop: the parts of a step. */
#ifndef SL_ENGINE_FORWARD_INTERNAL_H
#define SL_ENGINE_FORWARD_INTERNAL_H

#include "engine/forward/forward.h"
#include "engine/layers/layer_kind.h"
#include "engine/pass/pass_internal.h"

/* forward_tables.c: binds streamed tables, when the activations are there; asks for the rows of
 * f->step; waits for them, and counts those that failed. */
enum sl_status sl_forward_tables_init(struct sl_forward *f, const struct sl_model *model,
                                      struct sl_err *err) SL_MUST_CHECK;
/* Of the rows of one step, as they come; 0: the table is not streamed. */
uint64_t sl_forward_table_bytes(const struct sl_model *model, const struct sl_memory_plan *plan,
                                enum sl_table_id id);
enum sl_status sl_forward_ask_tables(struct sl_forward *f,
                                     const struct sl_place *where) SL_MUST_CHECK;
enum sl_status sl_forward_take_tables(struct sl_forward *f,
                                      const struct sl_place *where) SL_MUST_CHECK;
/* forward_draft.c: when the activations are there. */
enum sl_status sl_forward_draft_init(struct sl_forward *f, struct sl_err *err) SL_MUST_CHECK;

/* forward_send.c: rows from slice to slice. Resets the sequence numbers. */
enum sl_status sl_forward_init_seqno(struct sl_forward *f, struct sl_err *err) SL_MUST_CHECK;
/* Writes the step's sequence numbers into its table. */
void sl_forward_begin_seqno(struct sl_forward *f);
/* The op that receives the rows from the slice before. */
enum sl_status sl_forward_receive(struct sl_forward *f, const struct sl_place *where) SL_MUST_CHECK;
/* The op that sends them to the next slice. */
enum sl_status sl_forward_send(struct sl_forward *f, const struct sl_place *where) SL_MUST_CHECK;
/* A copy of x for the next stage. */
enum sl_status sl_forward_copy_out(struct sl_forward *f) SL_MUST_CHECK;

/* forward_layers.c: the parts of a step. Input rows from ids, where the slice has the first layer;
 * what all layers need of positions. */
enum sl_status sl_forward_embed(struct sl_forward *f, const struct sl_place *where) SL_MUST_CHECK;
/* Of the latter, the tables of how positions rotate. */
enum sl_status sl_forward_rope_tables(struct sl_forward *f,
                                      const struct sl_place *where) SL_MUST_CHECK;
/* A layer, from r's rows to r's rows. */
enum sl_status sl_forward_layer(struct sl_forward *f, struct sl_rows *r,
                                const struct sl_place *where) SL_MUST_CHECK;
/* The first half of a layer: its mixer, and the FFN's norm. In a layer that is cut r tells which
 * buffer its rows are in; none is left when nobody wants logits. */
enum sl_status sl_forward_mix(struct sl_forward *f, struct sl_rows *r,
                              const struct sl_place *where) SL_MUST_CHECK;
/* All ops of the step. *out_logits: in the device's memory; NULL when nobody wants any, and in a
 * slice that gives none. */
enum sl_status sl_forward_compute(struct sl_forward *f, float **out_logits,
                                  struct sl_place *where) SL_MUST_CHECK;

/* forward_output.c: the last norm and the output matrix, of the model or of a draft layer
 * ahead, as sl_forward_output(). */
struct sl_head {
    const float *norm, *norm_bias;
    struct sl_weight output;
    const float *bias;
};
enum sl_status sl_forward_head(struct sl_forward *f, const struct sl_head *head, const float *x,
                               uint32_t n, uint32_t n_decode, float **out_logits,
                               const struct sl_place *where) SL_MUST_CHECK;
/* The last norm and the output matrix for n rows [n, n_embd], of which the first
 * n_decode are generated ones; on a device whose logits are read back also what the sampler
 * wants to know of their blocks. *out_logits [n, n_vocab]: in the device's memory. */
enum sl_status sl_forward_output(struct sl_forward *f, const float *x, uint32_t n,
                                 uint32_t n_decode, float **out_logits,
                                 const struct sl_place *where) SL_MUST_CHECK;

/* forward_graphs.c: the same as sl_forward_compute with the ops in graphs, which are recorded when
 * a step of this shape comes for the first time. Only where sl_forward_wants_graph. */
enum sl_status sl_forward_replay(struct sl_forward *f, float **out_logits,
                                 struct sl_place *where) SL_MUST_CHECK;
void sl_forward_drop_graphs(struct sl_forward *f);

/* bind_layers.c: fills layers, refs, embd, output, output_norm. */
enum sl_status sl_forward_bind(struct sl_forward *f, const struct sl_model *model,
                               const struct sl_weights *weights, struct sl_err *err) SL_MUST_CHECK;

#endif
