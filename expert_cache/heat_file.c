/* The heat file's image: see heat.h for its layout. */
#include "common/crc.h"
#include "common/bytes.h"
#include "expert_cache/heat_internal.h"

#include <assert.h>
#include <string.h>

#define HEADER_BYTES 32u
#define VERSION      1u
#define RATE_ONE     65535.0f
/* An average over more ticks than this says no more than one over as many. */
#define TICKS_KEPT 4096u

static const char magic[SL_HEAT_MARK_BYTES] = {'S', 'L', 'H', 'E', 'A', 'T'};

static size_t layer_bytes(const struct sl_heat_config *c) {
    return 4 + 2 * (size_t)c->n_expert;
}

size_t sl_heat_image_bytes(const struct sl_heat_config *c) {
    return HEADER_BYTES + c->n_layer * layer_bytes(c) + 4;
}

bool sl_heat_is_image(const uint8_t *start, size_t n) {
    return memcmp(start, magic, n < sizeof magic ? n : sizeof magic) == 0;
}

size_t sl_heat_layer_bytes(const struct sl_heat *h) {
    return layer_bytes(&h->config);
}

void sl_heat_export_layers(const struct sl_heat *h, uint32_t first, uint32_t n, uint8_t *p) {
    uint32_t n_expert = h->config.n_expert;
    assert(first + n <= h->config.n_layer);
    for (uint32_t l = first; l < first + n; l++) {
        sl_put_u32(p, h->tick[l]);
        p += 4;
        for (uint32_t e = 0; e < n_expert; e++, p += 2) {
            float rate = h->slow[(size_t)l * n_expert + e] * RATE_ONE + 0.5f;
            bool there = e < sl_heat_n_expert(h, l);
            sl_put_u16(p, there ? (uint16_t)(rate > RATE_ONE ? RATE_ONE : rate) : 0);
        }
    }
}

/* Every rate from 0 to 65535 is a probability: whatever stands there can be taken over. */
void sl_heat_import_layers(struct sl_heat *h, uint32_t first, uint32_t n, const uint8_t *p) {
    uint32_t n_expert = h->config.n_expert;
    assert(first + n <= h->config.n_layer);
    for (uint32_t l = first; l < first + n; l++) {
        uint32_t ticks = sl_get_u32(p);
        p += 4;
        h->tick[l] = ticks < TICKS_KEPT ? ticks : TICKS_KEPT;
        const uint8_t *rates = p;
        p += 2 * (size_t)n_expert;
        for (uint32_t e = 0; e < sl_heat_n_expert(h, l); e++, rates += 2) {
            size_t i = (size_t)l * n_expert + e;
            /* Half a unit for what was rounded to nothing; a new context: nothing was used lately,
             * and the slow rate is the best guess of the fast one. */
            float rate = ((float)sl_get_u16(rates) + 0.5f) / (RATE_ONE + 1.0f);
            h->slow[i] = h->fast[i] = rate;
            h->last[i] = 0;
        }
        sl_heat_refresh(h, l);
    }
}

void sl_heat_export(const struct sl_heat *h, uint8_t *out_image) {
    const struct sl_heat_config *c = &h->config;
    memset(out_image, 0, HEADER_BYTES);
    memcpy(out_image, magic, sizeof magic);
    sl_put_u16(out_image + 6, VERSION);
    sl_put_u64(out_image + 8, c->fingerprint);
    sl_put_u32(out_image + 16, c->n_layer);
    sl_put_u32(out_image + 20, c->n_expert);
    sl_put_u32(out_image + 24, c->k);
    uint8_t *p = out_image + HEADER_BYTES + c->n_layer * layer_bytes(c);
    sl_heat_export_layers(h, 0, c->n_layer, out_image + HEADER_BYTES);
    sl_put_u32(p, sl_crc32c(0, out_image, (size_t)(p - out_image)));
}

static enum sl_status check_header(const struct sl_heat_config *c, const uint8_t *d,
                                   size_t size_bytes, struct sl_err *err) {
    if (size_bytes < HEADER_BYTES + 4 || memcmp(d, magic, sizeof magic) != 0)
        return sl_fail(err, SL_ERR_CORRUPT, "not a heat file: it does not start with SLHEAT");
    if (sl_get_u16(d + 6) != VERSION)
        return sl_fail(err, SL_ERR_INVALID,
                       "heat file of format version %u; this program reads version %u",
                       sl_get_u16(d + 6), VERSION);
    if (sl_get_u64(d + 8) != c->fingerprint)
        return sl_fail(err, SL_ERR_INVALID,
                       "heat file of another model: fingerprint %016llx, the model's is %016llx",
                       (unsigned long long)sl_get_u64(d + 8), (unsigned long long)c->fingerprint);
    uint32_t n_layer = sl_get_u32(d + 16), n_expert = sl_get_u32(d + 20), k = sl_get_u32(d + 24);
    if (n_layer != c->n_layer || n_expert != c->n_expert || k != c->k)
        return sl_fail(
            err, SL_ERR_INVALID,
            "heat file of %u layers of %u experts, %u per token; the model has %u of %u, "
            "%u per token",
            n_layer, n_expert, k, c->n_layer, c->n_expert, c->k);
    if (size_bytes != sl_heat_image_bytes(c))
        return sl_fail(err, SL_ERR_CORRUPT, "heat file of %zu bytes; it should have %zu",
                       size_bytes, sl_heat_image_bytes(c));
    if (sl_crc32c(0, d, size_bytes - 4) != sl_get_u32(d + size_bytes - 4))
        return sl_fail(err, SL_ERR_CORRUPT, "heat file: the checksum is wrong");
    return SL_OK;
}

enum sl_status sl_heat_import(struct sl_heat *h, const uint8_t *image, size_t size_bytes,
                              struct sl_err *err) {
    const struct sl_heat_config *c = &h->config;
    SL_TRY(check_header(c, image, size_bytes, err));
    sl_heat_import_layers(h, 0, c->n_layer, image + HEADER_BYTES);
    return SL_OK;
}

void sl_heat_take_layers(struct sl_heat *h, uint32_t first, const struct sl_heat *from,
                         uint32_t from_first, uint32_t n) {
    uint32_t n_expert = h->config.n_expert;
    assert(n_expert == from->config.n_expert && first + n <= h->config.n_layer &&
           from_first + n <= from->config.n_layer);
    assert(memcmp(h->layers + first, from->layers + from_first, n * sizeof *h->layers) == 0);
    size_t at = (size_t)first * n_expert, from_at = (size_t)from_first * n_expert;
    size_t n_all = (size_t)n * n_expert;
    memcpy(h->tick + first, from->tick + from_first, n * sizeof *h->tick);
    memcpy(h->last + at, from->last + from_at, n_all * sizeof *h->last);
    memcpy(h->fast + at, from->fast + from_at, n_all * sizeof *h->fast);
    memcpy(h->slow + at, from->slow + from_at, n_all * sizeof *h->slow);
    for (uint32_t l = first; l < first + n; l++)
        sl_heat_refresh(h, l);
}
