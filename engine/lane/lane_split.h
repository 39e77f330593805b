/* Which share of the experts that a layer needs from the host's memory the host's CPU computes, and
 * which share is copied to the device: so that both end together.
 *
 * How long the CPU takes is measured, as a fixed part and one for each byte. How long the link
 * takes is measured now and then, where the host would wait for it anyway; and whenever the CPU
 * ends after the copies they took less than that.
 *
 * Times and bytes come in as numbers: nothing here knows a device. One thread; nothing is
 * allocated. */
#ifndef SL_ENGINE_LANE_SPLIT_H
#define SL_ENGINE_LANE_SPLIT_H

#include <stdbool.h>
#include <stdint.h>

/* Written by lane_split.c alone. */
struct sl_lane_split {
    double weight, x, y, xx, xy; /* of the CPU's times: decaying sums, x bytes, y ns */
    double link_byte_ns;         /* copying a byte */
    uint32_t untimed;            /* layers since the link was timed */
    uint32_t last;               /* layers in a row in which the CPU ended after the copies */
    uint32_t unused;             /* layers since the CPU was used last */
    uint32_t percent, carry;     /* forced share; its remainder, in hundredths of an expert */
    double saved_ns; /* in all, compared with the link alone, as far as the measured tells */
    bool forced;
};

/* 0: rates of a usual machine, until they are measured. */
void sl_lane_split_init(struct sl_lane_split *s, double link_bytes_per_s, double cpu_bytes_per_s);
/* From now on the CPU gets this share, whatever it costs: for tests. */
void sl_lane_split_force(struct sl_lane_split *s, uint32_t percent);
/* Of n experts, each of so many bytes, how many the CPU computes. copied_bytes go over the link
 * whatever is chosen. After many layers without it one is tried, since a busy machine does not stay
 * busy. */
uint32_t sl_lane_split_choose(struct sl_lane_split *s, uint32_t n, uint64_t expert_bytes,
                              uint64_t copied_bytes);
/* Of n experts of the next layer, how many the link should bring before it asks, so that link and
 * CPU end together: at least as many as sl_lane_split_choose() would leave to the link. */
uint32_t sl_lane_split_ahead(const struct sl_lane_split *s, uint32_t n, uint64_t expert_bytes);
/* The CPU took so long for experts of so many bytes. */
void sl_lane_split_computed(struct sl_lane_split *s, uint64_t bytes, uint64_t ns);
/* The copies of so many bytes took so long. */
void sl_lane_split_linked(struct sl_lane_split *s, uint64_t bytes, uint64_t ns);
/* They had ended when the CPU did, after so long. */
void sl_lane_split_had_linked(struct sl_lane_split *s, uint64_t bytes, uint64_t ns);
/* Is it time to wait for a layer's copies, to see how long they take? */
bool sl_lane_split_wants_time(const struct sl_lane_split *s);
/* ... and to keep the link clear before the next layer for that? Not each time: there may be
 * nothing to time. */
bool sl_lane_split_clears_link(const struct sl_lane_split *s);
/* The CPU has had nothing for long, and gets an expert to try in some layers: its threads may
 * sleep. */
bool sl_lane_split_tries_soon(const struct sl_lane_split *s);

/* What the CPU is expected to take for so many bytes, and the link. */
double sl_lane_split_cpu_ns(const struct sl_lane_split *s, uint64_t bytes);
double sl_lane_split_link_ns(const struct sl_lane_split *s, uint64_t bytes);

#endif
