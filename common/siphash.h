/* SipHash-2-4 with 128 bits of output: a keyed hash. Without the key nobody can make two inputs
 * collide, so clients can neither crowd one bucket nor forge a name. With the key it is a checksum
 * that a damaged file does not pass by chance.
 * Source: Aumasson and Bernstein, SipHash: a fast short-input PRF, 2012; its 128-bit variant. */
#ifndef SL_COMMON_SIPHASH_H
#define SL_COMMON_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

/* 128 bits, of a key or of a hash. */
struct sl_hash128 {
    uint64_t lo, hi;
};

/* Incremental: init, any number of adds, end. How the input is cut makes no difference. */
struct sl_siphash {
    uint64_t v[4], total_bytes;
    uint8_t held[8];
};
void sl_siphash_init(struct sl_siphash *s, struct sl_hash128 key);
void sl_siphash_add(struct sl_siphash *s, const void *data, size_t size_bytes);
struct sl_hash128 sl_siphash_end(struct sl_siphash *s);

/* The number of buckets for a table of n hashes: a power of two, at least 64. */
static inline uint32_t sl_hash_buckets(uint32_t n) {
    uint32_t buckets = 64;
    while (buckets < n && buckets < (1u << 30))
        buckets *= 2;
    return buckets;
}

struct sl_hash128 sl_siphash128(struct sl_hash128 key, const void *data, size_t size_bytes);

#endif
