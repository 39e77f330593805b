#include "engine/predict/prediction_score.h"

#include <assert.h>

/* Predictions are followed of which this share was right, when so many have been counted: a right
 * one saves what the disk reads until its layer comes, a wrong one costs what is in flight of it
 * then, and an expert that had to go. */
#define CONFIDENT 0.8f
#define COUNTED   12u
/* Weight of a new one in the mean. */
#define NEW_PREDICTION (1.0f / 64)

size_t sl_prediction_score_bytes(const struct sl_prediction_shape *shape) {
    struct sl_prediction_score *s;
    size_t n_made = (size_t)shape->n * shape->reach, n_row = (size_t)shape->max_rows * shape->k;
    size_t bytes = n_made * sizeof *s->made + (size_t)shape->n * shape->k * sizeof *s->rank +
                   n_made * n_row * (sizeof *s->made->ids + sizeof *s->made->absent);
    return (bytes + 15) & ~(size_t)15;
}

void sl_prediction_score_init(struct sl_prediction_score *s,
                              const struct sl_prediction_shape *shape, void *memory) {
    size_t n_made = (size_t)shape->n * shape->reach, n_row = (size_t)shape->max_rows * shape->k;
    s->shape = *shape;
    s->made = memory;
    s->rank = (void *)(s->made + n_made);
    uint16_t *ids = (void *)(s->rank + (size_t)shape->n * shape->k);
    uint8_t *absent = (void *)(ids + n_made * n_row);
    for (size_t i = 0; i < n_made; i++, ids += n_row, absent += n_row)
        s->made[i] = (struct sl_prediction){SL_NO_PREDICTION, 0, 0, ids, absent};
}

void sl_prediction_score_forget(struct sl_prediction_score *s) {
    for (uint32_t i = 0; i < s->shape.n * s->shape.reach; i++)
        s->made[i].layer = SL_NO_PREDICTION;
}

static struct sl_prediction *made_of(struct sl_prediction_score *s, uint32_t which,
                                     uint32_t layer) {
    assert(which < s->shape.n);
    return &s->made[which * s->shape.reach + layer % s->shape.reach];
}

struct sl_prediction *sl_prediction_score_note(struct sl_prediction_score *s, uint32_t which,
                                               uint32_t layer, const uint32_t *ids, uint32_t n,
                                               uint32_t k) {
    struct sl_prediction *made = made_of(s, which, layer);
    assert(k <= s->shape.k && n <= s->shape.max_rows * k);
    made->layer = layer;
    made->n_rows = n / k;
    made->k = k;
    for (uint32_t i = 0; i < n; i++)
        made->ids[i] = (uint16_t)ids[i];
    return made;
}

void sl_prediction_score_judge(struct sl_prediction_score *s, uint32_t which, uint32_t layer,
                               const uint32_t *n_chosen, uint32_t *out_named, uint32_t *out_right) {
    struct sl_prediction *made = made_of(s, which, layer);
    uint32_t k = made->k, n_named = 0, n_right = 0;
    for (uint32_t i = 0; made->layer == layer && i < made->n_rows * k; i++) {
        struct sl_prediction_rank *r = &s->rank[which * s->shape.k + i % k];
        if (!made->absent[i])
            continue;
        bool right = n_chosen[made->ids[i]] > 0;
        r->n += r->n < UINT32_MAX;
        float share = 1.0f / (float)r->n;
        r->right += (right - r->right) * (share > NEW_PREDICTION ? share : NEW_PREDICTION);
        n_named++;
        n_right += right;
    }
    if (made->layer == layer)
        made->layer = SL_NO_PREDICTION;
    *out_named = n_named;
    *out_right = n_right;
}

bool sl_prediction_score_trusts(const struct sl_prediction_score *s, uint32_t which,
                                uint32_t rank) {
    const struct sl_prediction_rank *r = &s->rank[which * s->shape.k + rank];
    return r->n >= COUNTED && r->right >= CONFIDENT;
}
