/* Which stores a layer has, by its kind, and what those of all layers take
 * (engine/seq/seq_state.h).
 */
#ifndef SL_ENGINE_SEQ_SHAPE_H
#define SL_ENGINE_SEQ_SHAPE_H

#include "engine/seq/seq_state.h"

/* A layer's stores, its mixer's first, then its n-grams'; returns how many. */
uint32_t sl_seq_stores(const struct sl_layer_spec *spec, const struct sl_seq_config *config,
                       struct sl_seq_store out[SL_SEQ_STORES]);

/* Of all layers of a model or slice. */
struct sl_seq_shape {
    uint64_t page_bytes; /* of a page, of those that keep all pages */
    uint64_t tail_bytes; /* of a tail page, of the others */
    uint64_t once_bytes; /* of a page, of those among both that are not repeatable */
    uint32_t tail_pages; /* whole pages before a page end that the rows behind it need */
    /* All tail pages hold states alone. Then a step need not leave one for each page end that it
     * passes: the pages between may have the same one, and what is in it in the end is the state
     * behind the last. */
    bool tail_gaps;
};
struct sl_seq_shape sl_seq_shape(const struct sl_model *model, const struct sl_seq_config *config);

#endif
