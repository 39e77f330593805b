/* Heat: how likely each expert is to be used next, learned from what the router chose.
 *
 * For every expert it keeps the age of its last use and two decayed use counts, a fast one (the
 * present sentence) and a slow one (the present text). The three together select a cell of a table
 * that counts how often experts in that state were used by the next token: the table, not a rule,
 * decides whether recency or frequency counts in this model and text, and it keeps learning. So an
 * expert's probability falls back to a use count where uses are independent and to recency where
 * they come in runs.
 *
 * One heat serves all the tiers of a stage; each tier's sl_cache borrows it. It is told once per
 * layer and step what the router chose (sl_heat_route), before the experts are acquired.
 *
 * Threads: none of its own, no locks: one stage thread. Nothing allocates after create.
 * Cost: sl_heat_route is O(n_expert + n_rows * k). */
#ifndef SL_EXPERT_CACHE_HEAT_H
#define SL_EXPERT_CACHE_HEAT_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sl_heat;

struct sl_expert_id {
    uint16_t layer, expert;
};

enum sl_phase { SL_PHASE_DECODE = 0, SL_PHASE_PREFILL = 1 };

struct sl_heat_layer {
    uint16_t n_expert; /* 1..n_expert of the configuration */
    uint16_t k;        /* 1..n_expert, at most k of the configuration */
};

struct sl_heat_config {
    uint32_t n_layer;  /* 1..1024: layers of the stage that have routed experts, in order of use */
    uint32_t n_expert; /* 1..4096: experts of a layer, the largest if they differ */
    uint32_t k;        /* 1..n_expert: experts that one token uses in a layer, the most likewise */
    /* [n_layer] borrowed until create returns; NULL: n_expert and k in all of them. Arrays of a
     * layer have n_expert elements all the same, and those beyond its own number say nothing. */
    const struct sl_heat_layer *layers;
    uint64_t fingerprint; /* of the model; a heat file of another one is refused */
};

/* SL_ERR_INVALID for a configuration out of range, SL_ERR_NOMEM. */
enum sl_status sl_heat_create(const struct sl_heat_config *config, struct sl_heat **out_heat,
                              struct sl_err *err) SL_MUST_CHECK;
void sl_heat_destroy(struct sl_heat **heat);
/* What create allocates, for the memory plan. */
size_t sl_heat_bytes(const struct sl_heat_config *config);
/* Its layers are never NULL, and live as long as the heat. */
const struct sl_heat_config *sl_heat_config(const struct sl_heat *heat);

/* The router chose ids [n_rows, k] for the rows of one layer's step.
 * Decode: the rows are one token of each of n_rows sequences, that is one tick of the layer's time.
 * Prefill: the rows follow each other in one sequence, a tick each; nothing is learned about what
 * follows a token, since the experts of all rows are asked for at once.
 * ids that the layer does not have are our own mistake and assert. */
void sl_heat_route(struct sl_heat *heat, uint32_t layer, const uint16_t *ids, uint32_t n_rows,
                   uint32_t k, enum sl_phase phase);

/* Probability that the next tick of the expert's layer uses it; in (0, 1]. */
float sl_heat_probability(const struct sl_heat *heat, struct sl_expert_id id);
/* The same for all experts of a layer [n_expert]; valid until its next route. */
const float *sl_heat_layer(const struct sl_heat *heat, uint32_t layer);
/* How often each of a layer's experts was used of late, by the slow count: the part of ticks
 * [n_expert]; valid until its next route. For comparing layers over a long time, where the state of
 * the moment does not matter. */
const float *sl_heat_rates(const struct sl_heat *heat, uint32_t layer);
/* Changes whenever the layer's probabilities do. */
uint32_t sl_heat_version(const struct sl_heat *heat, uint32_t layer);
/* The layer that was routed last; n_layer - 1 at the start, so that layer 0 is next. */
uint32_t sl_heat_position(const struct sl_heat *heat);

/* The n hottest experts by the slow count, hottest first, and of equally hot ones expert 0 of every
 * layer before expert 1 of any; returns how many were written, which is less than n only when the
 * stage has fewer experts. O(N log n). */
uint32_t sl_heat_hottest(const struct sl_heat *heat, uint32_t n, struct sl_expert_id *out_id);

/* Takes over what `from` knows of n layers: layer `first` of h becomes as layer `from_first` of it,
 * and so on. Those have as many experts, and so have the largest of both. */
void sl_heat_take_layers(struct sl_heat *h, uint32_t first, const struct sl_heat *from,
                         uint32_t from_first, uint32_t n);

/* What the image below has of each layer, for heat that is kept elsewhere: bytes of one, n of them
 * written, and taken over from those of a heat with layers of as many experts. Any bytes are some
 * heat. */
size_t sl_heat_layer_bytes(const struct sl_heat *heat);
void sl_heat_export_layers(const struct sl_heat *heat, uint32_t first, uint32_t n, uint8_t *out);
void sl_heat_import_layers(struct sl_heat *heat, uint32_t first, uint32_t n, const uint8_t *bytes);

/* The heat file's image: what a restart needs to warm up. Fixed size for a configuration, all
 * numbers little-endian:
 *   0  8  "SLHEAT" and the version, 1, as u16
 *   8  8  model fingerprint
 *  16  4  n_layer       20  4  n_expert       24  4  k       28  4  zero
 *  32  ..  per layer: ticks seen, u32; n_expert slow rates, u16, in units of 1/65535; 0 for
 *          experts that the layer does not have, whatever a reader finds there
 *  end 4  CRC-32C of all that precedes
 * Reading and writing the file is the caller's. */
size_t sl_heat_image_bytes(const struct sl_heat_config *config);
#define SL_HEAT_MARK_BYTES 6u
/* Whether a file that starts with these n bytes is an image, whole or cut: nothing of it is one
 * too.
 */
bool sl_heat_is_image(const uint8_t *start, size_t n);
/* Writes sl_heat_image_bytes bytes. */
void sl_heat_export(const struct sl_heat *heat, uint8_t *out_image);
/* Takes the rates over from an image, which is untrusted: on any error the heat is as it was.
 * SL_ERR_CORRUPT: not a heat file, damaged or cut short.
 * SL_ERR_INVALID: of another version, model or shape. */
enum sl_status sl_heat_import(struct sl_heat *heat, const uint8_t *image, size_t size_bytes,
                              struct sl_err *err) SL_MUST_CHECK;

#endif
