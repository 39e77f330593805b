/* The bookkeeping of the layer that is being run: which rows need which experts, and how far each
 * expert is. Experts move from wanted to held, when their slot is leased, to done. What is lost
 * with an expert that cannot be read are the rows that need it.
 *
 * Ids, counts and leases come in and go out; nothing here knows a cache, a reader or a device.
 * Threads: one. Nothing is allocated after init. */
#ifndef SL_ENGINE_LAYER_RUN_H
#define SL_ENGINE_LAYER_RUN_H

#include "common/status.h"
#include "expert_cache/expert_cache.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The rows of a layer: generated ones first. */
struct sl_fetch_rows {
    const uint32_t *ids; /* [n, k] host memory, borrowed until run has returned */
    uint32_t n, n_decode;
    uint8_t *failed; /* [n] non-zero: the row is lost already, nothing is read for it. Run sets it
                        for rows whose expert cannot be read */
    uint32_t n_next_prompt; /* prompt rows that will go through the next routed layer: of the last
                               layer only those that are sampled from */
};

struct sl_held {
    struct sl_expert_id id;
    struct sl_lease lease;
};

/* Written by layer_run.c, but where it says otherwise. */
struct sl_layer_run {
    uint32_t n_expert, max_k;
    uint32_t layer;
    uint32_t k;           /* experts that each row uses */
    uint32_t max_loading; /* the owner's: demanded experts that may be on their way at once */
    struct sl_fetch_rows rows;
    uint32_t *pair_count;        /* [n_expert] pairs of rows that were not lost when it began */
    struct sl_expert_id *wanted; /* [n_expert]; the tier of a device takes from it, too */
    struct sl_held *held;        /* [n_expert] leased, not yet run */
    uint32_t n_wanted, n_held;
    uint32_t n_loading; /* of held: the owner's, what it last saw */
    bool dense_call;    /* all pairs can be run in one call with no list */
    uint8_t *in_call;   /* [n_expert] anybody's marks; zero when they are done */
    uint32_t *pairs;    /* [max_rows * max_k] what was listed last */
};

/* SL_ERR_NOMEM: release all the same. max_k: experts that a row uses in any layer; max_rows: of one
 * step. */
enum sl_status sl_layer_run_init(struct sl_layer_run *r, uint32_t n_expert, uint32_t max_k,
                                 uint32_t max_rows) SL_MUST_CHECK;
/* Also of a zeroed one. */
void sl_layer_run_release(struct sl_layer_run *r);
/* What init allocates, for the memory plan. */
size_t sl_layer_run_bytes(uint32_t n_expert, uint32_t max_k, uint32_t max_rows);

/* The router of the layer has chosen k experts for each row: counts the pairs of rows that are not
 * lost, and wants their distinct experts, in the order of the file. */
void sl_layer_run_begin(struct sl_layer_run *r, uint32_t layer, uint32_t k,
                        const struct sl_fetch_rows *rows);
/* leases [n_wanted]: those with a slot are held from now on, n_loading of them not ready. */
void sl_layer_run_leased(struct sl_layer_run *r, const struct sl_lease *leases, uint32_t n_loading);
/* A wave: what is still wanted waits for slots, not for its turn in the disk's queue. */
bool sl_layer_run_is_wave(const struct sl_layer_run *r);
/* Number `at` of those held is no longer held, its lease given back; the last one takes its place.
 */
void sl_layer_run_drop(struct sl_layer_run *r, uint32_t at);
/* The same, and its expert is wanted again. */
void sl_layer_run_want_again(struct sl_layer_run *r, uint32_t at);
/* Swaps two that are held. */
void sl_layer_run_swap(struct sl_layer_run *r, uint32_t a, uint32_t b);
/* The rows that need this expert are lost: their number. */
uint32_t sl_layer_run_fail(struct sl_layer_run *r, uint32_t expert);
/* Lists in pairs, ascending, the pairs of the experts marked in in_call, without lost rows;
 * returns their number. */
uint32_t sl_layer_run_list_marked(struct sl_layer_run *r);
/* The same of the first n that are held. */
uint32_t sl_layer_run_list(struct sl_layer_run *r, uint32_t n);
/* The first n that are held have run; the others keep their order, and are no longer all pairs of
 * the layer. */
void sl_layer_run_ran(struct sl_layer_run *r, uint32_t n);
/* From now on nothing is held or wanted. */
void sl_layer_run_give_up(struct sl_layer_run *r);

#endif
