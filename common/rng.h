/* A small seeded generator (SplitMix64): every seed gives a full-period stream, and the same seed
 * the same numbers on every machine.
 * Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014. */
#ifndef SL_COMMON_RNG_H
#define SL_COMMON_RNG_H

#include <stdint.h>

struct sl_rng {
    uint64_t state;
};

static inline uint64_t sl_rng_u64(struct sl_rng *r) {
    uint64_t z = (r->state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Uniform in [0, 1). */
static inline double sl_rng_unit(struct sl_rng *r) {
    return (double)(sl_rng_u64(r) >> 11) * 0x1p-53;
}

/* Uniform in [0, n); n > 0. The bias of the multiply is below 2^-32 for the n used here. */
static inline uint32_t sl_rng_below(struct sl_rng *r, uint32_t n) {
    return (uint32_t)(((sl_rng_u64(r) >> 32) * n) >> 32);
}

#endif
