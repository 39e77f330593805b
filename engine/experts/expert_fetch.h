/* Experts on demand: the one place where a layer's router ids become leases of the expert cache,
 * misses become reads, and slots that are ready become calls of sl_op_moe.
 *
 * One layer of one step:
 *
 *     sl_fetch_begin(f, layer, &rows);     leases what is there, starts reading what is not, or
 *                                          leaves that to run, where it costs no time
 *     sl_fetch_ahead(f, next, ids, n);     optional: what the next layer will probably need
 *     ... other work of the layer (the shared expert) ...
 *     sl_fetch_run(f, dev, &op, ...);      hits at once, then each expert as it arrives
 *
 * and sl_fetch_poll between any two long operations, so that the disk never runs dry.
 *
 * - Experts run in any order and in any number of calls: sl_op_moe writes each pair's result apart,
 *   and sl_op_moe_combine sums in router order, so neither shows in the answer.
 * - A step that needs more experts than there are slots runs in waves: experts that have run give
 *   their slots to those that wait. One layer's top-k slots are enough.
 * - Prompt rows touch many experts, so the next layer's are read behind this layer's
 *   computation without being asked for, when they are likely enough to be touched.
 * - An expert that cannot be read fails the rows that need it and no others.
 *
 * Threads: one, the reader's owner (the scheduler thread). No allocation after create. */
#ifndef SL_ENGINE_EXPERT_FETCH_H
#define SL_ENGINE_EXPERT_FETCH_H

#include "backends/backend.h"
#include "engine/reads/expert_layout.h"
#include "engine/experts/layer_run.h"
#include "engine/trace/timeline.h"
#include "expert_cache/expert_cache.h"
#include "streaming/reader.h"

struct sl_fetch;

struct sl_fetch_config {
    const struct sl_expert_layout *layout; /* borrowed; file i of it is the reader's file i */
    const struct sl_slots *slots;          /* borrowed; their classes are the layout's */
    struct sl_reader *reader;              /* borrowed; must outlive no read: see sl_fetch_quit */
    uint64_t fingerprint;                  /* of the model, for the heat */
    uint32_t max_rows;                     /* of one step */
    uint32_t n_device_slots;               /* of the tier that sl_tiers_create will add */
    bool no_lookahead;                     /* never request sl_fetch_ahead, nor read ahead */
    struct sl_timeline *timeline;          /* borrowed until destroy; NULL: no trace. On the same
                                              clock as the reader */
    /* NULL: the monotonic clock. Simulations pass theirs. */
    uint64_t (*now_ns)(void *clock);
    void *clock;
};

enum sl_status sl_fetch_create(const struct sl_fetch_config *config, struct sl_fetch **out_fetch,
                               struct sl_err *err) SL_MUST_CHECK;
/* Cancels what is being read and waits until the disk has let go of the slots. On the reader's
 * owner thread; afterwards only destroy may be called. */
void sl_fetch_quit(struct sl_fetch *f);
/* No read may be outstanding. */
void sl_fetch_destroy(struct sl_fetch **f);
/* What create allocates, for the memory plan. */
size_t sl_fetch_bytes(const struct sl_expert_layout *layout, uint32_t n_slots, uint32_t max_rows);

/* Polled while waiting; true gives the layer up. */
struct sl_fetch_abort {
    bool (*asked)(void *ctx);
    void *ctx;
};

void sl_fetch_begin(struct sl_fetch *f, uint32_t routed_layer, const struct sl_fetch_rows *rows);
/* op: everything but refs, pairs and n_pairs, which are set here. Pairs of failed rows are not
 * computed. *out_n_failed: rows that failed in this call, the reason of the first in err.
 * SL_ERR_CANCELED: given up; the leases are back. Other errors are the op's. */
enum sl_status sl_fetch_run(struct sl_fetch *f, struct sl_device *dev, struct sl_op_moe *op,
                            const struct sl_fetch_abort *give_up, uint32_t *out_n_failed,
                            struct sl_err *err) SL_MUST_CHECK;
struct sl_lane_io;
/* The rows of the layer that has begun are generated ones and are copied to the host too, whose CPU
 * may compute some of their experts (cpu_lane.h). NULL: it computes none. Without effect where
 * there is no CPU lane. */
void sl_fetch_feed_lane(struct sl_fetch *f, const struct sl_lane_io *io);
/* A step of that many generated rows begins: returns whether the host computes some of its experts.
 * Afterwards, if all went well, stepped is told how long it took. */
bool sl_fetch_lane_begin(struct sl_fetch *f, uint32_t n_rows);
void sl_fetch_lane_stepped(struct sl_fetch *f, uint32_t n_rows, uint64_t ns);
/* Submits more reads if there are any; completions may stay unseen until somebody needs them. Never
 * blocks. */
void sl_fetch_poll(struct sl_fetch *f);

/* Ends all reading and forgets every expert that is in a slot: their bytes can no longer be
 * trusted. Between steps. Blocks until the disk has let go. */
void sl_fetch_forget(struct sl_fetch *f);

/* ---- looking ahead ---- */

/* Rows beyond which the distinct experts of a step are so many that the disk is never idle. */
#define SL_FETCH_AHEAD_ROWS 4u
/* Does it pay to run the next layer's router early, for the step whose layer has begun? Never with
 * prompt rows, nor with more rows than this limit. The answer comes from trials of some tokens: how
 * long steps wait for the disk with it and without. */
bool sl_fetch_wants_ahead(const struct sl_fetch *f);
/* For a discrete device: routers of several following layers may be run early on one
 * layer's input, as many layers ahead as sl_fetch_prediction_ahead says, nearest first. How many of
 * them pay in a step of n_rows generated rows? The first helps the link too; the others the disk.
 */
#define SL_FETCH_PREDICTIONS 3u
#define SL_FETCH_REACH       4u /* the farthest */
extern const uint8_t sl_fetch_prediction_ahead[SL_FETCH_PREDICTIONS];
uint32_t sl_fetch_predictions(const struct sl_fetch *f, uint32_t n_rows);
/* Does the layer that has begun wait for reads, so that predictions should be made at once?
 * Otherwise they can follow the layer's calls. */
bool sl_fetch_is_reading(const struct sl_fetch *f);
/* Prediction number `which` of the layer that has begun: the router of routed_layer, run early,
 * chose these [n], k for each row, surest first. Between begin of the layer and the next one's.
 * What is in no slot is read while the disk would have nothing to do, if such predictions have been
 * right often enough, and given up when its layer does not want it; the next layer's also go up
 * early. */
void sl_fetch_predict(struct sl_fetch *f, uint32_t which, uint32_t routed_layer,
                      const uint32_t *ids, uint32_t n);
/* The router of that layer, run early, chose these [n], k for each row, surest first; duplicates
 * are fine. Between begin of the layer before and its own. Read behind what that layer needs, no
 * more than the disk can while a layer is computed. */
void sl_fetch_ahead(struct sl_fetch *f, uint32_t routed_layer, const uint32_t *ids, uint32_t n);

/* ---- when nothing runs ---- */

/* Fills free slots with the hottest experts from now on, behind everything else. */
void sl_fetch_warm_up(struct sl_fetch *f);
/* Is there background reading to do? Then the owner should call sl_fetch_idle while it has no
 * step: it reads on for at most timeout_ns. Not what a step that was given up had planned. */
bool sl_fetch_has_background(const struct sl_fetch *f);
void sl_fetch_idle(struct sl_fetch *f, int64_t timeout_ns);

/* How fast the disk gives experts to the slots, bytes of payload a second: random ones that are in
 * slots are read again into the same slots, as many at once as keep the reader's queue full, for
 * about seconds. Between steps. Waits first for what is being read or copied. Nothing is evicted
 * and no heat, count of the cache or answer changes; only the reader counts what it reads. Slots
 * that are leased are left alone. An expert that cannot be read again is forgotten, since its slot
 * may hold anything. SL_ERR_UNSUPPORTED: too few experts are in slots. SL_ERR_CANCELED: given up.
 * SL_ERR_IO and the device's errors. */
enum sl_status sl_fetch_disk_speed(struct sl_fetch *f, double seconds,
                                   const struct sl_fetch_abort *give_up, double *out_bytes_per_s,
                                   struct sl_err *err) SL_MUST_CHECK;

/* ---- looking in ---- */

/* What a step that has nothing to compute waits for. */
enum sl_stall_cause {
    SL_STALL_DEMAND, /* experts that are read because a layer asked for them */
    SL_STALL_LATE,   /* only experts that were read ahead, not early enough */
    SL_STALL_SLOT,   /* every slot is being filled with what others asked for */
    SL_STALL_CAUSES
};

struct sl_fetch_stats {
    uint64_t hits;         /* experts that were in their slot when their layer asked */
    uint64_t host_hits;    /* ... in the host's memory, while a discrete device computes */
    uint64_t late;         /* ... being read ahead, and waited for */
    uint64_t misses;       /* ... read on demand */
    uint64_t needed_bytes; /* of misses and late ones */
    uint64_t stall_ns;     /* waiting for reads, with nothing but hits to compute meanwhile */
    uint64_t stall_cause_ns[SL_STALL_CAUSES]; /* the same by cause */
    uint64_t calls;                           /* of sl_op_moe */
    uint64_t waves;      /* how often a layer found fewer slots than experts to read */
    uint64_t ahead_read; /* experts read ahead */
    uint64_t ahead_used; /* ... and then asked for by their layer */
    /* Experts that each prediction named while they were in no slot, and those that were wanted. */
    uint64_t predicted[SL_FETCH_PREDICTIONS], predicted_right[SL_FETCH_PREDICTIONS];
    uint64_t failed; /* demanded experts that could not be read */
};
/* Experts that the warm-up has still to look at. */
uint32_t sl_fetch_warm_up_left(const struct sl_fetch *f);
const struct sl_fetch_stats *sl_fetch_stats(const struct sl_fetch *f);
const struct sl_cache_stats *sl_fetch_cache_stats(const struct sl_fetch *f);
struct sl_heat *sl_fetch_heat(struct sl_fetch *f);
const struct sl_cache *sl_fetch_cache(const struct sl_fetch *f);
struct sl_tiers;
/* Experts that a layer found on the device without a lookup, because all are there. */
void sl_fetch_count_hits(struct sl_fetch *f, uint32_t n);
/* NULL: there is no tier above the host's slots. */
const struct sl_tiers *sl_fetch_tiers(const struct sl_fetch *f);

#endif
