#include "common/crc.h"

#include <stddef.h>
#include <string.h>
#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

/* Four bits at a time: 64 bytes of table. */
static const uint32_t nibble[16] = {
    0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
    0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9, 0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75,
};

/* The pieces of a model that a worker fetches are gigabytes: eight bytes at a time, where the CPU
 * has the instruction. Returns how many it took. */
#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static size_t take_words(uint32_t *crc, const uint8_t *p,
                                                           size_t size_bytes) {
    uint64_t sum = *crc;
    size_t i = 0;
    for (; size_bytes - i >= 8; i += 8) {
        uint64_t word;
        memcpy(&word, p + i, 8);
        sum = _mm_crc32_u64(sum, word);
    }
    *crc = (uint32_t)sum;
    return i;
}
#endif

uint32_t sl_crc32c(uint32_t crc, const void *data, size_t size_bytes) {
    const uint8_t *p = data;
    size_t i = 0;
    crc = ~crc;
#if defined(__x86_64__)
    if (size_bytes >= 8 && __builtin_cpu_supports("sse4.2"))
        i = take_words(&crc, p, size_bytes);
#endif
    for (; i < size_bytes; i++) {
        crc ^= p[i];
        crc = crc >> 4 ^ nibble[crc & 15];
        crc = crc >> 4 ^ nibble[crc & 15];
    }
    return ~crc;
}
