/* Copies to the device before a layer asks, so that the link works while it would have nothing to
 * do: for prompt rows the next layer's experts behind this one's computation; for generated rows
 * what an early router says that the next layer will choose, behind this one's own copies. Both go
 * to pass-through slots, and what turns out not to be wanted is overwritten there. */
#include "engine/experts/expert_tiers_internal.h"

#include "common/log.h"
#include "common/metrics.h"

/* Between the last copy that a layer waits for and the first that the next one asks for, the link
 * idles for about as long as one expert's copy takes on an H200: so one prediction, two where the
 * layer had nothing to copy. A prediction pays when more than PAYS_PERCENT are right: a wrong one
 * delays the next layer's copies by what it takes longer than the link would have idled. More
 * predictions were slower there, though nine in ten were right. */
#define PREDICTIONS      1u
#define PREDICTIONS_IDLE 2u
#define PAYS_PERCENT     30u
/* How long the link idles around a layer's end when the host computes some of its experts. */
#define EARLY_LINK_NS 120000.0
/* Predictions are judged after this many, and after a rest of this many tokens are tried again. */
#define TRIES       128u
#define REST_TOKENS 256u
/* The share of pass-through slots for early copies; the rest takes other copies while these are
 * computed.
 */
#define EARLY_PART(n) ((n) - (n) / 4)

/* Nobody waits for the copy, so its lease stays until it has passed. */
static void drop(struct sl_tiers *t, struct sl_pass_slot *s) {
    s->state = SL_PASS_FREE;
    s->used = 0;
    t->pass.n_early--;
    if (sl_tiers_keep(t, s->host, true, SL_QUEUE_UP, s->up) != SL_OK)
        sl_cache_release(t->host, &s->host, 1); /* the device is lost: nothing is under way */
}

static void judge(struct sl_fetch *f, uint32_t tried, uint32_t used) {
    struct sl_tiers_judge *j = &f->tiers->judge;
    j->rest -= j->rest > 0;
    j->tried += tried;
    j->used += used;
    if (j->tried < TRIES)
        return;
    if (j->used * 100 < j->tried * PAYS_PERCENT)
        j->rest = REST_TOKENS * f->layout->n_layer;
    j->tried = j->used = 0;
}

void sl_tiers_ahead_begin(struct sl_fetch *f) {
    struct sl_tiers *t = f->tiers;
    uint32_t tried = t->pass.n_early, used = 0;
    bool predicted = f->run.rows.n == f->run.rows.n_decode;
    for (uint32_t i = 0; i < t->pass.n && t->pass.n_early; i++) {
        struct sl_pass_slot *s = &t->pass.slots[i];
        if (s->state != SL_PASS_EARLY)
            continue;
        if (s->id.layer == f->run.layer && f->run.pair_count[s->id.expert] &&
            !sl_tiers_has(t, s->id))
            used++;
        else
            drop(t, s);
    }
    if (predicted)
        judge(f, tried, used);
}

void sl_tiers_ahead_forget(struct sl_tiers *t) {
    for (uint32_t i = 0; i < t->pass.n; i++)
        if (t->pass.slots[i].state == SL_PASS_EARLY)
            drop(t, &t->pass.slots[i]);
}

/* Pins the expert's host slot and copies it from there. */
static enum sl_status begin_early(struct sl_fetch *f, struct sl_expert_id id,
                                  struct sl_pass_slot *s, bool prediction) {
    struct sl_tiers *t = f->tiers;
    struct sl_lease lease = sl_tiers_pin(t->host, id, sl_fetch_now(f));
    enum sl_status status = sl_tiers_copy_once(f, id, lease.slot, s);
    if (status == SL_OK)
        status = sl_device_mark(t->dev, SL_QUEUE_UP, &s->up);
    if (status != SL_OK) {
        (void)!sl_device_sync(t->dev); /* a copy may have begun all the same */
        sl_cache_release(t->host, &lease, 1);
        return status;
    }
    s->state = SL_PASS_EARLY;
    s->id = id;
    s->host = lease;
    t->pass.n_early++;
    s->prediction = prediction;
    t->stats.early++;
    if (s->prediction)
        sl_count(expert_predicted_total, 1);
    else
        sl_count(expert_early_total, 1);
    return SL_OK;
}

/* Copies the first `most` of the experts that are ready in the host and not on the device. What
 * fails costs speed alone; if the device is lost, the next op says so. */
static void copy_early(struct sl_fetch *f, const struct sl_expert_id *ids, uint32_t n,
                       uint32_t most, bool prediction) {
    struct sl_tiers *t = f->tiers;
    for (uint32_t i = 0; i < n && most; i++) {
        struct sl_pass_slot *s;
        if (sl_tiers_has(t, ids[i]) || !sl_cache_is_ready(t->host, ids[i]) ||
            sl_pass_find(&t->pass, ids[i]))
            continue;
        if (!(s = sl_pass_room(&t->pass)))
            return;
        enum sl_status status = begin_early(f, ids[i], s, prediction);
        if (status != SL_OK) {
            sl_debug("copying an expert early: %s", sl_status_text(status));
            return;
        }
        most--;
    }
}

void sl_tiers_copy_next(struct sl_fetch *f, const struct sl_expert_id *ids, uint32_t n) {
    struct sl_tiers *t = f->tiers;
    uint32_t most = EARLY_PART(t->pass.n);
    if (t->cache && t->pass.n_early < most)
        copy_early(f, ids, n, most - t->pass.n_early, false);
}

bool sl_tiers_predictions(const struct sl_tiers *t) {
    return t->cache && !t->judge.rest && t->n_on < t->n_all;
}

void sl_tiers_predict(struct sl_fetch *f, const struct sl_expert_id *ids, uint32_t n) {
    struct sl_tiers *t = f->tiers;
    uint32_t most = t->n_layer_copies ? PREDICTIONS : PREDICTIONS_IDLE;
    if (!sl_tiers_predictions(t))
        return;
    uint64_t bytes = f->layout->layers[f->run.layer].expert_bytes;
    /* The next layer's copies are to be timed: nothing is in their way. */
    if (t->lane && t->lane->fed && sl_lane_split_clears_link(&t->lane->split))
        return;
    /* On a slow link early copies would delay what the layer itself asks for, so no more are made
     * than the link carries in that time. */
    if (t->lane && t->n_lane_held &&
        sl_lane_split_link_ns(&t->lane->split, bytes) > EARLY_LINK_NS) {
        uint32_t of_link = sl_lane_split_ahead(&t->lane->split, t->n_lane_held, bytes);
        most = of_link < most ? of_link : most;
    }
    copy_early(f, ids, n, most, true);
}
