#include "common/siphash.h"

#include <string.h>

static inline uint64_t rotl(uint64_t x, unsigned n) {
    return x << n | x >> (64 - n);
}

static inline void sip_round(uint64_t v[4]) {
    v[0] += v[1];
    v[2] += v[3];
    v[1] = rotl(v[1], 13) ^ v[0];
    v[3] = rotl(v[3], 16) ^ v[2];
    v[0] = rotl(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = rotl(v[1], 17) ^ v[2];
    v[3] = rotl(v[3], 21) ^ v[0];
    v[2] = rotl(v[2], 32);
}

static inline void absorb(uint64_t v[4], uint64_t word) {
    v[3] ^= word;
    sip_round(v);
    sip_round(v);
    v[0] ^= word;
}

static inline uint64_t word_at(const uint8_t *p) {
    uint64_t w;
    memcpy(&w, p, 8); /* little endian, as all of this program's targets are */
    return w;
}

void sl_siphash_init(struct sl_siphash *s, struct sl_hash128 key) {
    *s = (struct sl_siphash){
        {UINT64_C(0x736f6d6570736575) ^ key.lo, UINT64_C(0x646f72616e646f6d) ^ key.hi ^ 0xee,
         UINT64_C(0x6c7967656e657261) ^ key.lo, UINT64_C(0x7465646279746573) ^ key.hi},
        0,
        {0}};
}

void sl_siphash_add(struct sl_siphash *s, const void *data, size_t size_bytes) {
    const uint8_t *p = data;
    size_t n = size_bytes, held = s->total_bytes % 8;
    s->total_bytes += size_bytes;
    if (held) {
        size_t take = 8 - held < n ? 8 - held : n;
        memcpy(s->held + held, p, take);
        p += take;
        n -= take;
        if (held + take < 8)
            return;
        absorb(s->v, word_at(s->held));
    }
    uint64_t v[4] = {s->v[0], s->v[1], s->v[2], s->v[3]};
    for (; n >= 8; p += 8, n -= 8)
        absorb(v, word_at(p));
    memcpy(s->v, v, sizeof v);
    memcpy(s->held, p, n);
}

struct sl_hash128 sl_siphash_end(struct sl_siphash *s) {
    size_t held = s->total_bytes % 8;
    memset(s->held + held, 0, 8 - held);
    absorb(s->v, word_at(s->held) | s->total_bytes << 56);
    struct sl_hash128 out;
    s->v[2] ^= 0xee;
    for (int i = 0; i < 4; i++)
        sip_round(s->v);
    out.lo = s->v[0] ^ s->v[1] ^ s->v[2] ^ s->v[3];
    s->v[1] ^= 0xdd;
    for (int i = 0; i < 4; i++)
        sip_round(s->v);
    out.hi = s->v[0] ^ s->v[1] ^ s->v[2] ^ s->v[3];
    return out;
}

struct sl_hash128 sl_siphash128(struct sl_hash128 key, const void *data, size_t size_bytes) {
    struct sl_siphash s;
    sl_siphash_init(&s, key);
    sl_siphash_add(&s, data, size_bytes);
    return sl_siphash_end(&s);
}
