/* How long reading and computing experts take, to choose when the reads of a layer of generated
 * rows go to the drive and how long to wait for them. Means of what was measured, in which a new
 * measurement weighs an eighth and counts as at most twice the mean: a drive's hiccup.
 *
 * Times, bytes and counts come in as numbers, and every `now_ns` is of one monotonic clock: nothing
 * here knows a reader or a device. One thread; nothing is allocated. */
#ifndef SL_ENGINE_READ_PACE_H
#define SL_ENGINE_READ_PACE_H

#include <stdbool.h>
#include <stdint.h>

/* Written by read_pace.c alone; zero at first: nothing is known. */
struct sl_read_pace {
    double mean_expert_ns; /* computing one expert */
    double byte_ns;        /* reading one byte, of a layer's reads together */
    double request_bytes;  /* of this layer's reads */
    double between_ns;     /* from begin to run */
    double layer_ns;       /* from layer to layer, not counting waits */
    uint64_t begun_ns, layer_began_ns, layer_stall_ns;
    uint64_t reading_ns;       /* since when this layer's reads are with the drive; 0: measured */
    uint32_t n_requests;       /* of them */
    bool overlap;              /* the device computes while the owner waits */
    uint32_t rest, rest_waits; /* waits that do not look before they call the kernel */
};

/* ---- what was measured ---- */

/* A layer begins, the first of a token or another one; stall_ns: all waits since the start.
 * counts: it is of few generated rows, as all that is measured here. */
void sl_read_pace_layer(struct sl_read_pace *p, uint64_t now_ns, uint64_t stall_ns, bool first,
                        bool counts);
/* An expert of so many bytes is read by so many requests. */
void sl_read_pace_size(struct sl_read_pace *p, uint64_t expert_bytes, uint32_t n_requests);
/* The layer's reads, of so many requests, are with the drive, or held. */
void sl_read_pace_begun(struct sl_read_pace *p, uint32_t n_requests, uint64_t now_ns);
/* Run begins, on a device that computes while its owner waits or does not. */
void sl_read_pace_run(struct sl_read_pace *p, bool overlap, bool counts, uint64_t now_ns);
/* What was held goes to the drive now. */
void sl_read_pace_submitted(struct sl_read_pace *p, uint64_t now_ns);
/* A wait has just seen that n_left of the layer's requests are left: the drive has done the others
 * since it has them. Measured once for each layer. */
void sl_read_pace_left(struct sl_read_pace *p, uint32_t n_left, uint64_t now_ns);
/* n experts were computed in so long. */
void sl_read_pace_computed(struct sl_read_pace *p, uint64_t ns, uint32_t n);

/* ---- what follows from it ---- */

/* Have reading and computing been measured? */
bool sl_read_pace_known(const struct sl_read_pace *p);
/* Is it better to hold the layer's reads until its first wait? n_left requests are queued, for
 * n_loading experts; n_hits are there. Not where computing takes nearly as long as reading, or work
 * between begin and run would delay the reads. */
bool sl_read_pace_holds(const struct sl_read_pace *p, uint32_t n_left, uint32_t n_hits,
                        uint32_t n_loading);
/* What the drive takes for n requests; 0: unknown. */
double sl_read_pace_requests_ns(const struct sl_read_pace *p, uint32_t n);
/* Requests that the drive does while all of n experts but the last are computed. */
uint32_t sl_read_pace_to_leave(const struct sl_read_pace *p, uint32_t n);
/* How long to look for the end of reads that is expected in so long, without a call of the kernel.
 * 0: do not look. Else say what came of it. */
uint64_t sl_read_pace_look_ns(struct sl_read_pace *p, double expected_ns);
void sl_read_pace_looked(struct sl_read_pace *p, bool seen);
/* Experts of so many bytes that the drive can read while a layer is computed, k at most. */
uint32_t sl_read_pace_ahead(const struct sl_read_pace *p, uint64_t expert_bytes, uint32_t k);

#endif
