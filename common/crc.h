/* CRC-32C (Castagnoli), for files and frames of our own.
 * Source: RFC 3720, appendix B.4; check value of "123456789": 0xe3069283. */
#ifndef SL_COMMON_CRC_H
#define SL_COMMON_CRC_H

#include <stddef.h>
#include <stdint.h>

/* Continues crc, 0 at the start, over more bytes. Any thread. */
uint32_t sl_crc32c(uint32_t crc, const void *data, size_t size_bytes);

#endif
