/* Reads of experts into slots: a slot has one at a time, for the fill that the cache gave out. When
 * a read ends the cache hears of it, and the trace, if there is one.
 *
 * Threads: one, the reader's owner. Nothing is allocated after init. */
#ifndef SL_ENGINE_SLOT_READS_H
#define SL_ENGINE_SLOT_READS_H

#include "engine/reads/expert_layout.h"
#include "engine/trace/timeline.h"
#include "expert_cache/expert_cache.h"
#include "streaming/reader.h"

struct sl_slot_reads_config {
    const struct sl_expert_layout *layout; /* all are borrowed until release */
    const struct sl_slots *slots;
    struct sl_reader *reader;
    struct sl_cache *cache;
    struct sl_timeline *timeline;    /* NULL: no trace */
    uint64_t (*now_ns)(void *clock); /* the reader's clock */
    void *clock;
};

/* What a slot's read is for, and where it is drawn. */
struct sl_traced {
    uint16_t layer, expert, read_track;
};

/* Written by slot_reads.c alone, but for `hold`. */
struct sl_slot_reads {
    struct sl_slot_reads_config config;
    uint32_t n_slots;
    struct sl_read *reads;    /* [n_slots] */
    struct sl_lease *fills;   /* [n_slots] which fill its read is for */
    uint8_t *background;      /* [n_slots] its read was started ahead or to warm up */
    struct sl_traced *traced; /* [n_slots]; NULL: no trace */
    uint32_t n, n_background; /* under way */
    /* The owner's: what is started goes to the drive with the next submit, poll or wait. */
    bool hold;
    struct sl_err read_err;   /* where the reader writes */
    struct sl_err failed_err; /* of the read that failed last ... */
    uint32_t failed_slot;     /* ... into this slot */
};

/* SL_ERR_NOMEM: release all the same. */
enum sl_status sl_slot_reads_init(struct sl_slot_reads *r,
                                  const struct sl_slot_reads_config *config) SL_MUST_CHECK;
/* No read may be under way. Also of a zeroed one. */
void sl_slot_reads_release(struct sl_slot_reads *r);
/* What init allocates, for the memory plan. */
size_t sl_slot_reads_bytes(uint32_t n_slots);

/* Starts the reads of fills with action START, in their order; one that cannot be started ends its
 * fill. */
void sl_slot_reads_start(struct sl_slot_reads *r, const struct sl_fill *fills, uint32_t n,
                         enum sl_read_priority priority, bool background);
/* Makes the slot's read urgent; it goes to the drive with the next submit, poll or wait. */
void sl_slot_reads_raise(struct sl_slot_reads *r, uint32_t slot);
/* Submits what is held back. */
void sl_slot_reads_submit(struct sl_slot_reads *r);
/* Requests of the slot's read that have not ended. The read must be under way. */
uint32_t sl_slot_reads_left(const struct sl_slot_reads *r, uint32_t slot);
void sl_slot_reads_cancel(struct sl_slot_reads *r, uint32_t slot);
/* The fill is no longer wanted: requests that are not yet in flight are dropped. False: it has
 * arrived, the slot is another's by now, or all of it is in flight. */
bool sl_slot_reads_give_up(struct sl_slot_reads *r, struct sl_expert_id id, struct sl_lease fill);
/* Cancels all that is under way and waits until the disk has let go of the slots. */
void sl_slot_reads_end(struct sl_slot_reads *r);
/* Fills in a read of an expert into its slot for a caller who starts it and handles its end:
 * everything but done, user and err. Not counted in n. */
struct sl_read *sl_slot_reads_prepare(struct sl_slot_reads *r, struct sl_expert_id id,
                                      struct sl_lease fill, enum sl_read_priority priority);

#endif
