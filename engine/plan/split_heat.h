/* Which part of a run of layers' routing goes to the experts that a card has room for, where an
 * earlier run has told how often each is used.
 *
 * Experts are ranked within their size class, as the cache does it: slots of a class are its own,
 * and every class has slots for the same share of its experts (sl_cache_split). So of each class
 * the most used ones are taken to be on the card, as many as that share allows, whatever their
 * layers; what the others are used is read from elsewhere. A layer's uses count for what a token
 * reads there, however large their sum is: a token uses k experts of each.
 *
 * Uses are told apart in 64 logarithmic levels, four to a factor of two, and summed up over layers,
 * so that an answer takes a few steps for each class. A pure function; read-only once made, any
 * thread. */
#ifndef SL_ENGINE_SPLIT_HEAT_H
#define SL_ENGINE_SPLIT_HEAT_H

#include "common/status.h"

#include <stdint.h>

struct sl_split_heat;

struct sl_split_routing {
    uint32_t n_layer, n_expert;
    /* [n_layer] each [n_expert], in any unit; NULL: nothing is known of that layer, or it has no
     * routed experts. What is below 0 or no finite number counts as never used. A layer whose
     * experts have none that is used is one of which nothing is known: all are alike. */
    const float *const *uses;
    const uint8_t *size_class;        /* [n_layer] from the fourth on they are ranked as one */
    const double *routed_token_bytes; /* [n_layer] that a token reads of experts; 0 = none there */
};

/* *out_heat NULL with SL_OK: experts are alike in all layers, so nothing is gained by knowing.
 * SL_ERR_NOMEM, err is left alone. */
enum sl_status sl_split_heat_create(const struct sl_split_routing *routing,
                                    struct sl_split_heat **out_heat) SL_MUST_CHECK;
void sl_split_heat_destroy(struct sl_split_heat **heat);

/* Of what a token reads of experts of layers [from, to), the part that a card has which has room
 * for a share, 0 to 1, of them. In [0, 1]. */
double sl_split_heat_hits(const struct sl_split_heat *heat, uint32_t from, uint32_t to,
                          double share);

#endif
