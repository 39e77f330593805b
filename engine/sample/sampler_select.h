/* Selects the best of a row's candidates without sorting them all: the sampler's filters. */
#ifndef SL_ENGINE_SAMPLER_SELECT_H
#define SL_ENGINE_SAMPLER_SELECT_H

#include "engine/sample/sampler.h"

/* Where a selection ends: it includes the candidates with a smaller key, and of those with the same
 * key the lower numbers. */
struct sl_cut {
    float key;
    uint32_t last; /* the highest number with that key that is included */
};
static inline bool sl_cut_has(struct sl_cut cut, const float *key, uint32_t i) {
    /* Without branches, since they could not be predicted. */
    return (key[i] < cut.key) | ((key[i] == cut.key) & (i <= cut.last));
}

/* Selects the best of n candidates, at least one: those with the smallest key (>= 0, +infinity
 * allowed, ties to the lower number), as many as needed to reach `limit`: in number if mass is
 * NULL, otherwise in summed mass. Returns how many are included. Uses the space's order and
 * buckets. */
uint32_t sl_select_best(struct sl_sampler_space *sp, const float *key, const float *mass,
                        uint32_t n, double limit, struct sl_cut *out_cut);
/* Sorts candidate numbers by (key, number). */
void sl_sort_by_key(const float *key, uint32_t *order, uint32_t n);

#endif
