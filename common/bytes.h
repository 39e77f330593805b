/* Little-endian numbers in byte images, on any machine. */
#ifndef SL_COMMON_BYTES_H
#define SL_COMMON_BYTES_H

#include <stdint.h>

static inline void sl_put_u16(uint8_t *p, uint16_t v) {
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

static inline void sl_put_u32(uint8_t *p, uint32_t v) {
    sl_put_u16(p, (uint16_t)v);
    sl_put_u16(p + 2, (uint16_t)(v >> 16));
}

static inline void sl_put_u64(uint8_t *p, uint64_t v) {
    sl_put_u32(p, (uint32_t)v);
    sl_put_u32(p + 4, (uint32_t)(v >> 32));
}

static inline uint16_t sl_get_u16(const uint8_t *p) {
    return (uint16_t)(p[0] | (uint32_t)p[1] << 8);
}

static inline uint32_t sl_get_u32(const uint8_t *p) {
    return sl_get_u16(p) | (uint32_t)sl_get_u16(p + 2) << 16;
}

static inline uint64_t sl_get_u64(const uint8_t *p) {
    return sl_get_u32(p) | (uint64_t)sl_get_u32(p + 4) << 32;
}

#endif
