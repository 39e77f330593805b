/* Router traces: which experts each token chose, in the order in which the layers ran. Recorded by
 * the engine, made up by trace_synth.h, replayed by tests/replay.
 *
 * File, all numbers little-endian:
 *   0  8  "SLTRACE" and the version, 1, as u8
 *   8  8  model fingerprint, 0 when there is no model
 *  16  2  n_layer (1..1024)   18  2  n_expert (1..4096)   20  2  k (1..64, at most n_expert)
 *  22  2  zero                24  4  zero                 28  4  CRC-32C of bytes 0..27
 * then records to the end of the file, each
 *   0  4  sequence            4  4  position of the token in it
 *   8  2  bits 0..9 layer; bit 14: first record of a step; bit 15: prefill
 *  10  .. k expert ids, of one byte each when n_expert is at most 256, else of two
 * A step is what one layer computes at once: one record per row, all of one layer.
 *
 * Encoding and decoding only; files are the caller's. No allocation, any thread. */
#ifndef SL_EXPERT_CACHE_TRACE_H
#define SL_EXPERT_CACHE_TRACE_H

#include "common/status.h"
#include "expert_cache/heat.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_TRACE_MARK         "SLTRACE" /* what every trace begins with */
#define SL_TRACE_MAX_K        64u
#define SL_TRACE_HEADER_BYTES 32u
#define SL_TRACE_RECORD_BYTES (10u + 2u * SL_TRACE_MAX_K) /* the largest */

struct sl_trace_shape {
    uint64_t fingerprint;
    uint32_t n_layer, n_expert, k;
};

struct sl_trace_record {
    uint32_t sequence, position_tokens;
    uint16_t layer;
    bool first_of_step;
    enum sl_phase phase;
    uint16_t ids[SL_TRACE_MAX_K]; /* [k] */
};

/* SL_ERR_INVALID when the shape is out of the format's range. */
enum sl_status sl_trace_write_header(const struct sl_trace_shape *shape,
                                     uint8_t out[SL_TRACE_HEADER_BYTES],
                                     struct sl_err *err) SL_MUST_CHECK;
/* Bytes of every record of the shape. */
size_t sl_trace_record_bytes(const struct sl_trace_shape *shape);
/* Writes sl_trace_record_bytes and returns them. A record outside the shape asserts. */
size_t sl_trace_write(const struct sl_trace_shape *shape, const struct sl_trace_record *record,
                      uint8_t *out);

/* Reads an image, which is untrusted and borrowed. */
struct sl_trace_reader {
    struct sl_trace_shape shape;
    const uint8_t *data;
    size_t size_bytes, at;
    uint64_t n_records, n_read;
    uint16_t step_layer; /* of the record read last */
};
/* SL_ERR_CORRUPT: no trace, damaged header, or a last record that is cut short.
 * SL_ERR_INVALID: another version. */
enum sl_status sl_trace_open(struct sl_trace_reader *out_reader, const void *data,
                             size_t size_bytes, struct sl_err *err) SL_MUST_CHECK;
/* *out_end: there was none left, and out_record is untouched. SL_ERR_CORRUPT names the record:
 * a layer or expert out of range, an expert twice, a step that changes its layer. */
enum sl_status sl_trace_next(struct sl_trace_reader *reader, struct sl_trace_record *out_record,
                             bool *out_end, struct sl_err *err) SL_MUST_CHECK;

#endif
