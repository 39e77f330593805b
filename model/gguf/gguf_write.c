#include "model/gguf/gguf_write.h"

#include "model/gguf/gguf.h"

#include <stdlib.h>
#include <string.h>

static void put(struct sl_gguf_buf *b, const void *data, size_t n) {
    if (b->failed)
        return;
    if (b->cap - b->n < n) {
        size_t cap = b->cap ? b->cap : 4096;
        while (cap - b->n < n)
            cap *= 2;
        uint8_t *bytes = realloc(b->bytes, cap);
        if (!bytes) {
            b->failed = true;
            return;
        }
        b->bytes = bytes;
        b->cap = cap;
    }
    if (n)
        memcpy(b->bytes + b->n, data, n);
    b->n += n;
}

static void put_u32(struct sl_gguf_buf *b, uint32_t v) {
    put(b, &v, sizeof v);
}

static void put_u64(struct sl_gguf_buf *b, uint64_t v) {
    put(b, &v, sizeof v);
}

static void put_str(struct sl_gguf_buf *b, const char *text, size_t len) {
    put_u64(b, len);
    put(b, text, len);
}

static void put_key(struct sl_gguf_writer *w, const char *key, uint32_t type) {
    put_str(&w->kv, key, strlen(key));
    put_u32(&w->kv, type);
    w->n_kv++;
}

void sl_gguf_writer_init(struct sl_gguf_writer *w) {
    memset(w, 0, sizeof *w);
}

void sl_gguf_writer_release(struct sl_gguf_writer *w) {
    free(w->kv.bytes);
    free(w->tensors.bytes);
    free(w->array.bytes);
    memset(w, 0, sizeof *w);
}

void sl_gguf_write_u32(struct sl_gguf_writer *w, const char *key, uint32_t v) {
    put_key(w, key, SL_GGUF_U32);
    put_u32(&w->kv, v);
}

void sl_gguf_write_i32(struct sl_gguf_writer *w, const char *key, int32_t v) {
    put_key(w, key, SL_GGUF_I32);
    put(&w->kv, &v, sizeof v);
}

void sl_gguf_write_u16(struct sl_gguf_writer *w, const char *key, uint16_t v) {
    put_key(w, key, SL_GGUF_U16);
    put(&w->kv, &v, sizeof v);
}

void sl_gguf_write_f32(struct sl_gguf_writer *w, const char *key, float v) {
    put_key(w, key, SL_GGUF_F32);
    put(&w->kv, &v, sizeof v);
}

void sl_gguf_write_bool(struct sl_gguf_writer *w, const char *key, bool v) {
    uint8_t byte = v;
    put_key(w, key, SL_GGUF_BOOL);
    put(&w->kv, &byte, 1);
}

void sl_gguf_write_str(struct sl_gguf_writer *w, const char *key, const char *text) {
    put_key(w, key, SL_GGUF_STRING);
    put_str(&w->kv, text, strlen(text));
}

static void array_begin(struct sl_gguf_writer *w, const char *key, uint32_t type) {
    w->array_key = key;
    w->array_type = type;
    w->array.n = 0;
    w->n_array = 0;
}

void sl_gguf_array_begin_str(struct sl_gguf_writer *w, const char *key) {
    array_begin(w, key, SL_GGUF_STRING);
}

void sl_gguf_array_begin_i32(struct sl_gguf_writer *w, const char *key) {
    array_begin(w, key, SL_GGUF_I32);
}

void sl_gguf_array_begin_u64(struct sl_gguf_writer *w, const char *key) {
    array_begin(w, key, SL_GGUF_U64);
}

void sl_gguf_array_begin_f32(struct sl_gguf_writer *w, const char *key) {
    array_begin(w, key, SL_GGUF_F32);
}
void sl_gguf_array_begin_bool(struct sl_gguf_writer *w, const char *key) {
    array_begin(w, key, SL_GGUF_BOOL);
}

void sl_gguf_array_add_str(struct sl_gguf_writer *w, const char *text, size_t len) {
    put_str(&w->array, text, len);
    w->n_array++;
}

void sl_gguf_array_add_i32(struct sl_gguf_writer *w, int32_t v) {
    put(&w->array, &v, sizeof v);
    w->n_array++;
}

void sl_gguf_array_add_u64(struct sl_gguf_writer *w, uint64_t v) {
    put(&w->array, &v, sizeof v);
    w->n_array++;
}

void sl_gguf_array_add_f32(struct sl_gguf_writer *w, float v) {
    put(&w->array, &v, sizeof v);
    w->n_array++;
}
void sl_gguf_array_add_bool(struct sl_gguf_writer *w, bool v) {
    uint8_t byte = v;
    put(&w->array, &byte, 1);
    w->n_array++;
}

void sl_gguf_array_end(struct sl_gguf_writer *w) {
    put_key(w, w->array_key, SL_GGUF_ARRAY);
    put_u32(&w->kv, w->array_type);
    put_u64(&w->kv, w->n_array);
    put(&w->kv, w->array.bytes, w->array.n);
    w->kv.failed |= w->array.failed;
}

uint64_t sl_gguf_write_tensor(struct sl_gguf_writer *w, const char *name, enum sl_dtype dtype,
                              uint32_t n_dims, const uint64_t *ne) {
    uint64_t rows = 1;
    put_str(&w->tensors, name, strlen(name));
    put_u32(&w->tensors, n_dims);
    for (uint32_t i = 0; i < n_dims; i++) {
        put_u64(&w->tensors, ne[i]);
        if (i)
            rows *= ne[i];
    }
    uint64_t offset = (w->data_bytes + SL_GGUF_ALIGN - 1) / SL_GGUF_ALIGN * SL_GGUF_ALIGN;
    put_u32(&w->tensors, (uint32_t)dtype);
    put_u64(&w->tensors, offset);
    w->n_tensors++;
    w->data_bytes = offset + rows * sl_dtype_row_bytes(dtype, ne[0]);
    return offset;
}

enum sl_status sl_gguf_writer_finish(struct sl_gguf_writer *w, uint8_t **out_bytes, size_t *out_n) {
    static const uint8_t zeros[SL_GGUF_ALIGN];
    struct sl_gguf_buf b = {0};
    put(&b, "GGUF", 4);
    put_u32(&b, 3);
    put_u64(&b, w->n_tensors);
    put_u64(&b, w->n_kv);
    put(&b, w->kv.bytes, w->kv.n);
    put(&b, w->tensors.bytes, w->tensors.n);
    put(&b, zeros, (SL_GGUF_ALIGN - b.n % SL_GGUF_ALIGN) % SL_GGUF_ALIGN);
    if (b.failed || w->kv.failed || w->tensors.failed) {
        free(b.bytes);
        return SL_ERR_NOMEM;
    }
    *out_bytes = b.bytes;
    *out_n = b.n;
    return SL_OK;
}
