#include "common/crc.h"

/* Four bits at a time: 64 bytes of table, and what is checked is small. */
static const uint32_t nibble[16] = {
    0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
    0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9, 0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75,
};

uint32_t sl_crc32c(uint32_t crc, const void *data, size_t size_bytes) {
    const uint8_t *p = data;
    crc = ~crc;
    for (size_t i = 0; i < size_bytes; i++) {
        crc ^= p[i];
        crc = crc >> 4 ^ nibble[crc & 15];
        crc = crc >> 4 ^ nibble[crc & 15];
    }
    return ~crc;
}
