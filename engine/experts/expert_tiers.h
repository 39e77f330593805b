/* The tier above the host's slots: routed experts in the memory of a discrete device.
 *
 * The host's cache and the reader stay as they are; their slots are pinned and mapped, so that
 * copies up begin where disk reads land. Above them is a second cache with the same heat:
 *
 * - What is on the device is leased there and needs nothing of the host.
 * - What is in a host slot is copied up first: into a slot of its own when its heat is clearly
 *   above that of the coldest expert there; else into a pass-through slot for this one use, which
 * costs the link less than kernels that read it in place. Between two layers, when the link would
 * idle, pass-through slots take what the next layer will probably need.
 * - What must leave the device goes down to a host slot, if the host has not got it and its heat
 *   earns it one. Host slots whose expert is on the device are the first to be given to others, so
 *   that the tiers together hold as much as they can.
 * - An integrated device has no slots of its own: its kernels read all of it in place, in the
 * host's slots.
 *
 * Queues: a copy up is waited for by the ops after it; a copy down waits for the copy up that
 * filled the slot, and the copy up that overwrites the slot for it. So once what routers chose has
 * been read back, all copies and ops of the layers before have run, and leases that were kept for
 * them can go: nothing else is waited for while there are slots enough.
 *
 * Part of the fetch (expert_fetch.h); used by its thread, the device's owner. */
#ifndef SL_ENGINE_EXPERT_TIERS_H
#define SL_ENGINE_EXPERT_TIERS_H

#include "backends/backend.h"
#include "backends/ops/moe.h"
#include "engine/reads/expert_layout.h"
#include "expert_cache/expert_cache.h"

struct sl_fetch;
struct sl_lane;
struct sl_lane_io;
struct sl_tiers;

struct sl_tiers_config {
    struct sl_device *dev;       /* all are borrowed until destroy */
    const uint32_t *class_slots; /* [n_class] on the device; NULL: integrated */
    uint32_t max_rows;           /* of one step */
    struct sl_lane *lane;        /* taken over, also on a failure; NULL: there is none */
};

struct sl_tiers_stats {
    uint64_t device_hits, host_hits; /* where experts were when their layer asked */
    uint64_t promotions, demotions;
    uint64_t up_bytes, down_bytes; /* copied */
    uint64_t link_up_bytes;        /* of up_bytes: not from elsewhere on the device */
    uint64_t in_place_bytes;       /* integrated: read by kernels, for each row that needs them */
    uint64_t early, early_used;    /* copied before their layer asked; and wanted by it */
};

/* Adds the tier to a fetch that holds no expert yet, whose slots are mapped for the device. On a
 * failure the fetch is as it was. */
enum sl_status sl_tiers_create(struct sl_fetch *f, const struct sl_tiers_config *config,
                               struct sl_err *err) SL_MUST_CHECK;
/* Waits for the device; before the fetch's slots are released. NULL is fine. */
void sl_tiers_destroy(struct sl_tiers **t);
/* For the plan: the host's tables, and the device's memory beyond its slots. */
size_t sl_tiers_host_bytes(const struct sl_expert_layout *layout, uint32_t n_device_slots,
                           uint32_t max_rows);
uint64_t sl_tiers_device_bytes(const struct sl_expert_layout *layout, uint32_t max_rows);

const struct sl_tiers_stats *sl_tiers_stats(const struct sl_tiers *t);
/* The device's slots; NULL: integrated. */
const struct sl_cache *sl_tiers_cache(const struct sl_tiers *t);
/* Are all experts of all layers on the device? Then none will ever leave, until forget. */
bool sl_tiers_complete(const struct sl_tiers *t);
/* Where a routed layer's experts are, when the tier is complete: refs [n_expert of the layer]. */
void sl_tiers_refs(const struct sl_tiers *t, uint32_t routed_layer, struct sl_expert_ref *out_refs);
/* Incremented whenever the tier has become complete again: refs of an earlier count are stale. */
uint32_t sl_tiers_version(const struct sl_tiers *t);

/* ---- for expert_fetch.c and expert_ahead.c ---- */

bool sl_tiers_has(const struct sl_tiers *t, struct sl_expert_id id);
/* The layer's ids have been read back, so all before has run: gives leases back, and leases what of
 * the wanted is on the device, which is then wanted no more. */
void sl_tiers_begin(struct sl_fetch *f);
/* The rows of the layer that has begun are generated ones, and come to the host too. NULL: the host
 * computes none of its experts. */
void sl_tiers_feed_lane(struct sl_tiers *t, const struct sl_lane_io *io);
/* sl_fetch_lane_begin, sl_fetch_lane_stepped. */
bool sl_tiers_lane_begin(struct sl_tiers *t, uint32_t n_rows);
void sl_tiers_lane_stepped(struct sl_tiers *t, uint32_t n_rows, uint64_t ns);
/* NULL: there is none. */
const struct sl_lane *sl_tiers_lane(const struct sl_tiers *t);
/* Are there experts on the device that are leased and not yet computed? */
bool sl_tiers_pending(const struct sl_tiers *t);
/* Computes what is leased on the device, and the first n of what the fetch holds, which is ready in
 * host slots; the leases are kept until the device has used them. */
enum sl_status sl_tiers_call(struct sl_fetch *f, uint32_t n, struct sl_op_moe *op) SL_MUST_CHECK;
/* Waits for the oldest work that leases are kept for and gives them back. False: there is none. */
enum sl_status sl_tiers_drain(struct sl_tiers *t, bool *out_any) SL_MUST_CHECK;
/* All calls of a layer of prompt rows have been made: copies what the next layer will probably
 * need, ids [n], likeliest first, as far as there are pass-through slots. */
void sl_tiers_copy_next(struct sl_fetch *f, const struct sl_expert_id *ids, uint32_t n);
/* Would the next prediction be followed? Decided by how many were right so far. */
bool sl_tiers_predictions(const struct sl_tiers *t);
/* The next layer's router, run early, chose these, surest first. After the layer's own copies. */
void sl_tiers_predict(struct sl_fetch *f, const struct sl_expert_id *ids, uint32_t n);
/* Gives up what is leased on the device and not yet computed. */
void sl_tiers_give_back(struct sl_tiers *t);
/* Waits for copies in flight and gives their leases back; short, since nothing else runs. */
enum sl_status sl_tiers_rest(struct sl_fetch *f) SL_MUST_CHECK;
/* Copies the hottest experts of the warm-up that have come to the host into free device slots. */
void sl_tiers_warm(struct sl_fetch *f);
bool sl_tiers_warming(const struct sl_fetch *f);
/* Are host slots leased to copies that have not been seen to end? */
bool sl_tiers_copying(const struct sl_fetch *f);
/* Waits for the device and forgets all. */
void sl_tiers_forget(struct sl_fetch *f);

#endif
