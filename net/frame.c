#include "net/frame.h"

#include "common/bytes.h"

#include <inttypes.h>
#include <stdbool.h>

static const struct {
    const char *name;
    uint64_t max_bytes;
} types[SL_FRAME_TYPES] = {
#define SL_FRAME(name, max_bytes, text) [SL_FRAME_##name] = {#name, max_bytes},
#include "net/frame.def"
#undef SL_FRAME
};

static bool is_type(uint32_t type) {
    return type > SL_FRAME_NONE && type < SL_FRAME_TYPES;
}

const char *sl_frame_name(uint32_t type) {
    return is_type(type) ? types[type].name : "?";
}

uint64_t sl_frame_max_payload(uint32_t type, uint64_t link_max) {
    uint64_t own = is_type(type) ? types[type].max_bytes : 0;
    return own && own < link_max ? own : link_max;
}

void sl_frame_put_head(const struct sl_frame_head *h, uint8_t out[SL_FRAME_HEAD_BYTES]) {
    sl_put_u32(out, SL_FRAME_MAGIC);
    sl_put_u16(out + 4, SL_FRAME_VERSION);
    sl_put_u16(out + 6, h->type);
    sl_put_u32(out + 8, h->epoch);
    sl_put_u32(out + 12, 0);
    sl_put_u64(out + 16, h->seqno);
    sl_put_u64(out + 24, h->n_bytes);
}

enum sl_status sl_frame_get_head(const uint8_t bytes[SL_FRAME_HEAD_BYTES], uint64_t seqno,
                                 uint64_t link_max, struct sl_frame_head *out, struct sl_err *err) {
    const struct sl_frame_head h = {.type = sl_get_u16(bytes + 6),
                                    .epoch = sl_get_u32(bytes + 8),
                                    .seqno = sl_get_u64(bytes + 16),
                                    .n_bytes = sl_get_u64(bytes + 24)};
    uint32_t version = sl_get_u16(bytes + 4);
    if (sl_get_u32(bytes) != SL_FRAME_MAGIC)
        return sl_fail(err, SL_ERR_PROTOCOL, "what came is no frame: it does not begin as one");
    if (version != SL_FRAME_VERSION)
        return sl_fail(err, SL_ERR_PROTOCOL, "a frame of version %u: this program reads version %u",
                       version, SL_FRAME_VERSION);
    if (!is_type(h.type) || sl_get_u32(bytes + 12))
        return sl_fail(err, SL_ERR_PROTOCOL, "a frame of unknown type %u", h.type);
    if (h.seqno != seqno)
        return sl_fail(err, SL_ERR_PROTOCOL,
                       "frame %" PRIu64 " where %" PRIu64 " should be: one is lost, or came twice",
                       h.seqno, seqno);
    uint64_t max = sl_frame_max_payload(h.type, link_max);
    if (h.n_bytes > max)
        return sl_fail(err, SL_ERR_PROTOCOL,
                       "a %s frame of %" PRIu64 " bytes: at most %" PRIu64 " are allowed",
                       sl_frame_name(h.type), h.n_bytes, max);
    *out = h;
    return SL_OK;
}
