/* What share of the routing of a run of layers goes to the experts that fit on a card, given how
 * often an earlier run used each expert.
 *
 * Experts are ranked within their size class, as the cache does: each class has its own slots, for
 * the same share of its experts (sl_cache_split). So in each class the most used ones are assumed
 * to be on the card, as many as that share allows, whatever their layers; the others are read from
 * elsewhere. A layer's uses are scaled to what a token reads there, however large their sum is: a
 * token uses k experts of each.
 *
 * Uses are grouped in 64 logarithmic levels, four to a factor of two, and summed over layers, so an
 * answer takes a few steps for each class. A pure function; read-only once created, any thread. */
#ifndef SL_ENGINE_SPLIT_HEAT_H
#define SL_ENGINE_SPLIT_HEAT_H

#include "common/status.h"

#include <stdint.h>

struct sl_split_heat;

struct sl_split_routing {
    uint32_t n_layer;
    const uint32_t *n_expert; /* [n_layer] routed experts; 0 = none */
    /* [n_layer] each [n_expert], in any unit; NULL: nothing is known of that layer, or it has no
     * routed experts. Values below 0 or not finite count as never used. A layer of which no expert
     * is used counts as unknown: all its experts are alike. */
    const float *const *uses;
    const uint8_t *size_class;        /* [n_layer] from the fourth on they are ranked as one */
    const double *routed_token_bytes; /* [n_layer] bytes of experts that a token reads; 0 = none */
};

/* *out_heat NULL with SL_OK: experts are alike in all layers, so the heat makes no difference.
 * SL_ERR_NOMEM leaves err unchanged. */
enum sl_status sl_split_heat_create(const struct sl_split_routing *routing,
                                    struct sl_split_heat **out_heat) SL_MUST_CHECK;
void sl_split_heat_destroy(struct sl_split_heat **heat);

/* The part, in [0, 1], of what a token reads of experts in layers [from, to) that is on a card
 * which holds a share, 0 to 1, of them. */
double sl_split_heat_hits(const struct sl_split_heat *heat, uint32_t from, uint32_t to,
                          double share);

#endif
