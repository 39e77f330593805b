/* How far routers that were run early are to be trusted. What each of them chose is noted; when the
 * layer that it spoke for begins, what share of it was right is counted, for each prediction of a
 * layer (the router of the next layer, of the one after, ...) and each rank of choice: the surer a
 * router was the rarer it is wrong, and the nearer its layer. Only experts that were in no slot
 * count: the others would cost nothing, and are predicted right far oftener.
 *
 * Ids and counts come in as numbers: nothing here knows a cache or a read. One thread; nothing is
 * allocated. */
#ifndef SL_ENGINE_PREDICTION_SCORE_H
#define SL_ENGINE_PREDICTION_SCORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sl_prediction_shape {
    uint32_t n;        /* predictions that a layer makes */
    uint32_t reach;    /* layers that the farthest is ahead */
    uint32_t max_rows; /* of one prediction */
    uint32_t k;        /* experts that a row chooses, the most of any layer */
};

/* What a router that was run early chose. */
struct sl_prediction {
    uint32_t layer;     /* SL_NO_PREDICTION: nothing */
    uint32_t n_rows, k; /* k of that layer */
    uint16_t *ids;      /* [n_rows, k] surest first */
    uint8_t *absent;    /* [n_rows, k] it was in no slot then */
};
#define SL_NO_PREDICTION UINT32_MAX

/* How often predictions of one number and rank were right, of those that were absent. */
struct sl_prediction_rank {
    float right;
    uint32_t n;
};

/* Written by prediction_score.c alone. */
struct sl_prediction_score {
    struct sl_prediction_shape shape;
    struct sl_prediction *made;      /* [n, reach]: by which, by layer % reach */
    struct sl_prediction_rank *rank; /* [n, k] */
};

/* A multiple of 16. */
size_t sl_prediction_score_bytes(const struct sl_prediction_shape *shape);
/* memory: of that many bytes, zero, aligned for pointers; it must outlive s. */
void sl_prediction_score_init(struct sl_prediction_score *s,
                              const struct sl_prediction_shape *shape, void *memory);
/* Forgets what was noted and not judged yet. */
void sl_prediction_score_forget(struct sl_prediction_score *s);
/* Prediction number which of the layer that runs: that layer's router chose ids [n], k for each
 * row, at most shape.k. The caller fills absent [n] next. Replaces what the same number said of
 * that layer; at most `reach` layers apart, none replaces another's. */
struct sl_prediction *sl_prediction_score_note(struct sl_prediction_score *s, uint32_t which,
                                               uint32_t layer, const uint32_t *ids, uint32_t n,
                                               uint32_t k);
/* The layer begins: n_chosen [experts of the layer] rows chose each expert. Judges what prediction
 * number which said of it, once: how many experts it named that were absent, and how many of them
 * were chosen. */
void sl_prediction_score_judge(struct sl_prediction_score *s, uint32_t which, uint32_t layer,
                               const uint32_t *n_chosen, uint32_t *out_named, uint32_t *out_right);
/* Are such predictions right often enough to be read for? Not before some have been counted. */
bool sl_prediction_score_trusts(const struct sl_prediction_score *s, uint32_t which, uint32_t rank);

#endif
