/* What heat.c and heat_file.c share. */
#ifndef SL_EXPERT_CACHE_HEAT_INTERNAL_H
#define SL_EXPERT_CACHE_HEAT_INTERNAL_H

#include "expert_cache/heat.h"

#define SL_HEAT_MAX_LAYERS  1024u
#define SL_HEAT_MAX_EXPERTS 4096u

/* The table of states: age of the last use, fast count, slow count. */
#define SL_HEAT_AGES  20u
#define SL_HEAT_FASTS 8u
#define SL_HEAT_SLOWS 15u
#define SL_HEAT_CELLS (SL_HEAT_AGES * SL_HEAT_FASTS * SL_HEAT_SLOWS)

#define SL_HEAT_AGE_LIMIT 1024u /* ages from here on count as this less one */

struct sl_heat_cell {
    float used, seen; /* decayed counts */
};

struct sl_heat {
    struct sl_heat_config config;
    uint32_t position;      /* layer routed last */
    uint32_t until_rates;   /* routes until the rates are computed again */
    uint32_t learned_ticks; /* since the table was last halved */
    float log2_mean;        /* log2(k / n_expert) over all layers: the middle of the slow axis */
    struct sl_heat_cell cells[SL_HEAT_CELLS];
    uint8_t age_bucket[SL_HEAT_AGE_LIMIT];
    float priors[SL_HEAT_FASTS * SL_HEAT_SLOWS];
    float rates[SL_HEAT_CELLS];   /* used / seen, smoothed */
    uint32_t *tick;               /* [n_layer] ticks of the layer's time, 0 at the start */
    uint32_t *version;            /* [n_layer] */
    struct sl_heat_layer *layers; /* [n_layer] config's */
    uint32_t *last;               /* [n_layer, n_expert] tick of the last use, 0 when never */
    float *fast, *slow;
    float *probability;
    uint16_t *cell; /* the expert's state now, counted when its layer's next tick comes */
};

static inline uint32_t sl_heat_n_expert(const struct sl_heat *heat, uint32_t layer) {
    return heat->layers[layer].n_expert;
}

/* Recomputes states and probabilities of a layer from its counts. */
void sl_heat_refresh(struct sl_heat *heat, uint32_t layer);

#endif
