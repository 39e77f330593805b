/* Frames: how the bytes of a link are divided. docs/WIRE.md describes them for other programs.
 *
 * All numbers are little-endian. A frame is a head of 32 bytes and its payload:
 *    0  4  magic, "SLCE"
 *    4  2  version, 1
 *    6  2  type (frame.def)
 *    8  4  epoch: the sender's, which it raises when all that was sent before is void
 *   12  4  0
 *   16  8  sequence number: 1 for the first frame of a sender on a link, then one more each time
 *   24  8  length of the payload */
#ifndef SL_NET_FRAME_H
#define SL_NET_FRAME_H

#include "common/status.h"

#include <stddef.h>
#include <stdint.h>

#define SL_FRAME_MAGIC      0x45434c53u
#define SL_FRAME_VERSION    1u
#define SL_FRAME_HEAD_BYTES 32u

enum sl_frame_type {
    SL_FRAME_NONE,
#define SL_FRAME(name, max_bytes, text) SL_FRAME_##name,
#include "net/frame.def"
#undef SL_FRAME
    SL_FRAME_TYPES
};

/* "HELLO"; "?" for no type. */
const char *sl_frame_name(uint32_t type);
/* The most bytes of payload that a frame of this type may have on a link with this limit. */
uint64_t sl_frame_max_payload(uint32_t type, uint64_t link_max);

struct sl_frame_head {
    uint16_t type;
    uint32_t epoch;
    uint64_t seqno, n_bytes;
};
void sl_frame_put_head(const struct sl_frame_head *head, uint8_t out[SL_FRAME_HEAD_BYTES]);
/* seqno: the one that must come; link_max: as above. SL_ERR_PROTOCOL: no head, or not one that may
 * come now, with what is wrong. */
enum sl_status sl_frame_get_head(const uint8_t bytes[SL_FRAME_HEAD_BYTES], uint64_t seqno,
                                 uint64_t link_max, struct sl_frame_head *out_head,
                                 struct sl_err *err) SL_MUST_CHECK;

#endif
