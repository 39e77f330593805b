/* A layer with routed experts, in the parts between which the host may have to know what the router
 * chose. */
#ifndef SL_ENGINE_LAYERS_EXPERTS_H
#define SL_ENGINE_LAYERS_EXPERTS_H

#include "engine/pass/pass_internal.h"

/* Within a mixer, before it adds to r->x: the router's logits of a layer whose router reads that.
 */
enum sl_status sl_forward_route_first(struct sl_forward *f, const struct sl_rows *r,
                                      const struct sl_place *where) SL_MUST_CHECK;
/* The router; the shared expert, if the layer has one, into shared_y (its first products come from
 * the router's call); the routed experts as they arrive, chosen [n, k] in host memory; their sum.
 */
enum sl_status sl_forward_route(struct sl_forward *f, const struct sl_rows *r,
                                const struct sl_place *where) SL_MUST_CHECK;
enum sl_status sl_forward_shared(struct sl_forward *f, const struct sl_rows *r,
                                 const struct sl_place *where) SL_MUST_CHECK;
enum sl_status sl_forward_fetch(struct sl_forward *f, const struct sl_rows *r,
                                const uint32_t *chosen, bool shared,
                                const struct sl_place *where) SL_MUST_CHECK;
enum sl_status sl_forward_join(struct sl_forward *f, const struct sl_rows *r,
                               const struct sl_place *where) SL_MUST_CHECK;
/* Runs a following layer's router on this layer's input, so that disk and link have something to do
 * while this layer is computed. What it chooses, in a.next_ids, is a prediction: it changes what is
 * read and copied early and nothing else. which: number of it, of those that the layer can make
 * (sl_forward_can_predict). */
enum sl_status sl_forward_predict(struct sl_forward *f, const struct sl_rows *r, uint32_t which,
                                  const struct sl_place *where) SL_MUST_CHECK;

#endif
