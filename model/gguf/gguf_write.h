/* Writes GGUF version 3: metadata first, then tensor data in the order of declaration.
 *
 * Use: sl_gguf_writer_init, kv and tensor calls, then sl_gguf_writer_finish gives the bytes up to
 * the data; data_bytes is the size of what follows, which the caller streams. Out of memory is
 * remembered and reported by finish. Not thread-safe.
 * Source: ggml docs/gguf.md. */
#ifndef SL_MODEL_GGUF_WRITE_H
#define SL_MODEL_GGUF_WRITE_H

#include "common/dtype.h"
#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_GGUF_ALIGN 32u

struct sl_gguf_buf {
    uint8_t *bytes;
    size_t n, cap;
    bool failed;
};

struct sl_gguf_writer {
    struct sl_gguf_buf kv, tensors, array;
    uint64_t n_kv, n_tensors, data_bytes, n_array;
    uint32_t array_type;
    const char *array_key;
};

void sl_gguf_writer_init(struct sl_gguf_writer *w);
void sl_gguf_writer_release(struct sl_gguf_writer *w);

void sl_gguf_write_u32(struct sl_gguf_writer *w, const char *key, uint32_t v);
void sl_gguf_write_i32(struct sl_gguf_writer *w, const char *key, int32_t v);
void sl_gguf_write_u16(struct sl_gguf_writer *w, const char *key, uint16_t v);
void sl_gguf_write_f32(struct sl_gguf_writer *w, const char *key, float v);
void sl_gguf_write_bool(struct sl_gguf_writer *w, const char *key, bool v);
void sl_gguf_write_str(struct sl_gguf_writer *w, const char *key, const char *text);

/* An array of strings, int32, uint64, float32 or bool: begin, add each, end. key is borrowed until
 * end. */
void sl_gguf_array_begin_str(struct sl_gguf_writer *w, const char *key);
void sl_gguf_array_begin_i32(struct sl_gguf_writer *w, const char *key);
void sl_gguf_array_begin_u64(struct sl_gguf_writer *w, const char *key);
void sl_gguf_array_begin_f32(struct sl_gguf_writer *w, const char *key);
void sl_gguf_array_begin_bool(struct sl_gguf_writer *w, const char *key);
void sl_gguf_array_add_str(struct sl_gguf_writer *w, const char *text, size_t len);
void sl_gguf_array_add_i32(struct sl_gguf_writer *w, int32_t v);
void sl_gguf_array_add_u64(struct sl_gguf_writer *w, uint64_t v);
void sl_gguf_array_add_f32(struct sl_gguf_writer *w, float v);
void sl_gguf_array_add_bool(struct sl_gguf_writer *w, bool v);
void sl_gguf_array_end(struct sl_gguf_writer *w);

/* Declares a tensor; returns its offset in the data section (aligned). ne innermost first. */
uint64_t sl_gguf_write_tensor(struct sl_gguf_writer *w, const char *name, enum sl_dtype dtype,
                              uint32_t n_dims, const uint64_t *ne);

/* The complete header, padded so that data follows at once. malloc'd, the caller frees. */
enum sl_status sl_gguf_writer_finish(struct sl_gguf_writer *w, uint8_t **out_bytes,
                                     size_t *out_n) SL_MUST_CHECK;

#endif
