/* A fingerprint of dequantised blocks, shared by tests/peer/dequant.c and the unit test. */
#ifndef SL_TESTS_PEER_DEQUANT_HASH_H
#define SL_TESTS_PEER_DEQUANT_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define DEQUANT_HASH_BLOCKS 4000u

/* FNV-1a over the bits. */
static inline uint64_t dequant_hash(const float *y, size_t n) {
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, &y[i], 4);
        for (int k = 0; k < 32; k += 8)
            h = (h ^ (u >> k & 0xff)) * 0x100000001b3u;
    }
    return h;
}

#endif
