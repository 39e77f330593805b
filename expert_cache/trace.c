#include "expert_cache/trace.h"

#include "common/crc.h"
#include "common/bytes.h"

#include <assert.h>
#include <string.h>

#define MAX_LAYERS  1024u
#define MAX_EXPERTS 4096u
#define VERSION     1u
#define LAYER_MASK  0x03ffu
#define STEP_BIT    0x4000u
#define PREFILL_BIT 0x8000u

static const char magic[7] = SL_TRACE_MARK; /* without its NUL */

static bool in_range(const struct sl_trace_shape *s) {
    return s->n_layer >= 1 && s->n_layer <= MAX_LAYERS && s->n_expert >= 1 &&
           s->n_expert <= MAX_EXPERTS && s->k >= 1 && s->k <= SL_TRACE_MAX_K && s->k <= s->n_expert;
}

static size_t id_bytes(const struct sl_trace_shape *s) {
    return s->n_expert <= 256 ? 1 : 2;
}

size_t sl_trace_record_bytes(const struct sl_trace_shape *s) {
    return 10 + s->k * id_bytes(s);
}

/* ---- write ---- */

enum sl_status sl_trace_write_header(const struct sl_trace_shape *shape,
                                     uint8_t out[SL_TRACE_HEADER_BYTES], struct sl_err *err) {
    if (!in_range(shape))
        return sl_fail(
            err, SL_ERR_INVALID,
            "router trace: %u layers of %u experts, %u per token; the format holds up to "
            "%u, %u and %u",
            shape->n_layer, shape->n_expert, shape->k, MAX_LAYERS, MAX_EXPERTS, SL_TRACE_MAX_K);
    memset(out, 0, SL_TRACE_HEADER_BYTES);
    memcpy(out, magic, sizeof magic);
    out[7] = VERSION;
    sl_put_u64(out + 8, shape->fingerprint);
    sl_put_u16(out + 16, (uint16_t)shape->n_layer);
    sl_put_u16(out + 18, (uint16_t)shape->n_expert);
    sl_put_u16(out + 20, (uint16_t)shape->k);
    sl_put_u32(out + 28, sl_crc32c(0, out, 28));
    return SL_OK;
}

size_t sl_trace_write(const struct sl_trace_shape *shape, const struct sl_trace_record *r,
                      uint8_t *out) {
    assert(r->layer < shape->n_layer);
    sl_put_u32(out, r->sequence);
    sl_put_u32(out + 4, r->position_tokens);
    sl_put_u16(out + 8, (uint16_t)(r->layer | (r->first_of_step ? STEP_BIT : 0u) |
                                   (r->phase == SL_PHASE_PREFILL ? PREFILL_BIT : 0u)));
    for (uint32_t i = 0; i < shape->k; i++) {
        assert(r->ids[i] < shape->n_expert);
        if (id_bytes(shape) == 1)
            out[10 + i] = (uint8_t)r->ids[i];
        else
            sl_put_u16(out + 10 + 2 * (size_t)i, r->ids[i]);
    }
    return sl_trace_record_bytes(shape);
}

/* ---- read ---- */

enum sl_status sl_trace_open(struct sl_trace_reader *out_reader, const void *data,
                             size_t size_bytes, struct sl_err *err) {
    const uint8_t *d = data;
    if (size_bytes < SL_TRACE_HEADER_BYTES || memcmp(d, magic, sizeof magic) != 0)
        return sl_fail(err, SL_ERR_CORRUPT, "not a router trace: it does not start with SLTRACE");
    if (d[7] != VERSION)
        return sl_fail(err, SL_ERR_INVALID,
                       "router trace of format version %u; this program reads version %u", d[7],
                       VERSION);
    if (sl_crc32c(0, d, 28) != sl_get_u32(d + 28))
        return sl_fail(err, SL_ERR_CORRUPT, "router trace: the header's checksum is wrong");
    struct sl_trace_reader r = {.data = d, .size_bytes = size_bytes, .at = SL_TRACE_HEADER_BYTES};
    r.shape.fingerprint = sl_get_u64(d + 8);
    r.shape.n_layer = sl_get_u16(d + 16);
    r.shape.n_expert = sl_get_u16(d + 18);
    r.shape.k = sl_get_u16(d + 20);
    if (!in_range(&r.shape))
        return sl_fail(err, SL_ERR_CORRUPT,
                       "router trace: %u layers of %u experts, %u per token is out of range",
                       r.shape.n_layer, r.shape.n_expert, r.shape.k);
    size_t body = size_bytes - SL_TRACE_HEADER_BYTES, each = sl_trace_record_bytes(&r.shape);
    r.n_records = body / each;
    if (body % each != 0)
        return sl_fail(err, SL_ERR_CORRUPT,
                       "router trace: the last record is cut short: %zu of %zu bytes after record "
                       "%llu; the recording did not end properly",
                       body % each, each, (unsigned long long)r.n_records);
    *out_reader = r;
    return SL_OK;
}

static enum sl_status check_ids(const struct sl_trace_reader *r,
                                const struct sl_trace_record *record, struct sl_err *err) {
    uint64_t seen[MAX_EXPERTS / 64] = {0};
    for (uint32_t i = 0; i < r->shape.k; i++) {
        uint32_t e = record->ids[i];
        if (e >= r->shape.n_expert)
            return sl_fail(err, SL_ERR_CORRUPT, "router trace: record %llu: expert %u of %u",
                           (unsigned long long)r->n_read, e, r->shape.n_expert);
        if (seen[e / 64] >> (e % 64) & 1)
            return sl_fail(err, SL_ERR_CORRUPT, "router trace: record %llu: expert %u twice",
                           (unsigned long long)r->n_read, e);
        seen[e / 64] |= UINT64_C(1) << (e % 64);
    }
    return SL_OK;
}

enum sl_status sl_trace_next(struct sl_trace_reader *r, struct sl_trace_record *out_record,
                             bool *out_end, struct sl_err *err) {
    *out_end = r->n_read == r->n_records;
    if (*out_end)
        return SL_OK;
    const uint8_t *d = r->data + r->at;
    uint32_t bits = sl_get_u16(d + 8);
    struct sl_trace_record rec = {.sequence = sl_get_u32(d),
                                  .position_tokens = sl_get_u32(d + 4),
                                  .layer = (uint16_t)(bits & LAYER_MASK),
                                  .first_of_step = (bits & STEP_BIT) != 0,
                                  .phase = bits & PREFILL_BIT ? SL_PHASE_PREFILL : SL_PHASE_DECODE};
    if (bits & ~(LAYER_MASK | STEP_BIT | PREFILL_BIT))
        return sl_fail(err, SL_ERR_CORRUPT, "router trace: record %llu: unknown flags",
                       (unsigned long long)r->n_read);
    if (rec.layer >= r->shape.n_layer)
        return sl_fail(err, SL_ERR_CORRUPT, "router trace: record %llu: layer %u of %u",
                       (unsigned long long)r->n_read, rec.layer, r->shape.n_layer);
    if (!rec.first_of_step && (r->n_read == 0 || rec.layer != r->step_layer))
        return sl_fail(err, SL_ERR_CORRUPT,
                       "router trace: record %llu: layer %u does not continue the step before it",
                       (unsigned long long)r->n_read, rec.layer);
    for (uint32_t i = 0; i < r->shape.k; i++)
        rec.ids[i] = id_bytes(&r->shape) == 1 ? d[10 + i] : sl_get_u16(d + 10 + 2 * (size_t)i);
    SL_TRY(check_ids(r, &rec, err));
    r->step_layer = rec.layer;
    r->at += sl_trace_record_bytes(&r->shape);
    r->n_read++;
    *out_record = rec;
    return SL_OK;
}
