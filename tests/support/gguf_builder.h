/* Builds GGUF files in memory for tests, honest or lying: every count and offset can be overridden.
 *
 *     struct gb b = gb_new(3);
 *     gb_str(&b, "general.architecture", "llama");
 *     gb_tensor(&b, "token_embd.weight", SL_DTYPE_F32, 2, (uint64_t[]){32, 100});
 *     size_t n;
 *     uint8_t *file = gb_finish(&b, &n);      (exactly n bytes; free() it; tensor data is zeros)
 *
 * Allocation failures abort: this is test code. */
#ifndef SL_TESTS_SUPPORT_GGUF_BUILDER_H
#define SL_TESTS_SUPPORT_GGUF_BUILDER_H

#include "common/dtype.h"
#include "model/gguf/gguf.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct gb_buf {
    uint8_t *p;
    size_t n, cap;
};

struct gb {
    uint32_t version;
    uint32_t alignment; /* 32; a general.alignment key is the caller's to write */
    struct gb_buf kv, tensors;
    uint64_t n_kv, n_tensors, data_bytes;
    /* Overrides, used where not UINT64_MAX. */
    uint64_t fake_n_kv, fake_n_tensors, fake_file_bytes;
    uint64_t next_offset; /* for the next tensor's entry alone */
};

static inline struct gb gb_new(uint32_t version) {
    return (struct gb){.version = version,
                       .alignment = 32,
                       .fake_n_kv = UINT64_MAX,
                       .fake_n_tensors = UINT64_MAX,
                       .fake_file_bytes = UINT64_MAX,
                       .next_offset = UINT64_MAX};
}

static inline void gb_raw(struct gb_buf *b, const void *data, size_t n) {
    if (b->n + n > b->cap) {
        b->cap = (b->n + n) * 2;
        b->p = realloc(b->p, b->cap);
        if (!b->p)
            abort();
    }
    if (n)
        memcpy(b->p + b->n, data, n);
    b->n += n;
}
static inline void gb_u32(struct gb_buf *b, uint32_t v) {
    gb_raw(b, &v, 4);
}
static inline void gb_u64(struct gb_buf *b, uint64_t v) {
    gb_raw(b, &v, 8);
}
static inline void gb_text(struct gb_buf *b, const char *s, size_t n) {
    gb_u64(b, n);
    gb_raw(b, s, n);
}

/* A key of any type with a raw payload. */
static inline void gb_kv(struct gb *b, const char *key, uint32_t type, const void *data, size_t n) {
    gb_text(&b->kv, key, strlen(key));
    gb_u32(&b->kv, type);
    gb_raw(&b->kv, data, n);
    b->n_kv++;
}
static inline void gb_uint(struct gb *b, const char *key, uint32_t v) {
    gb_kv(b, key, SL_GGUF_U32, &v, 4);
}
static inline void gb_float(struct gb *b, const char *key, float v) {
    gb_kv(b, key, SL_GGUF_F32, &v, 4);
}
static inline void gb_bool(struct gb *b, const char *key, bool v) {
    uint8_t byte = v;
    gb_kv(b, key, SL_GGUF_BOOL, &byte, 1);
}
static inline void gb_str(struct gb *b, const char *key, const char *v) {
    gb_kv(b, key, SL_GGUF_STRING, NULL, 0);
    gb_text(&b->kv, v, strlen(v));
}
/* An array of a numeric type: n elements of n_bytes in all. */
static inline void gb_array(struct gb *b, const char *key, uint32_t elem_type, uint64_t n,
                            const void *data, size_t n_bytes) {
    gb_kv(b, key, SL_GGUF_ARRAY, NULL, 0);
    gb_u32(&b->kv, elem_type);
    gb_u64(&b->kv, n);
    gb_raw(&b->kv, data, n_bytes);
}
static inline void gb_strings(struct gb *b, const char *key, const char *const *v, uint64_t n) {
    gb_array(b, key, SL_GGUF_STRING, n, NULL, 0);
    for (uint64_t i = 0; i < n; i++)
        gb_text(&b->kv, v[i], strlen(v[i]));
}

/* Declares a tensor behind the ones before it. dtype may be any number; of one that Sluice does not
 * read, the data takes 32 bytes. */
static inline void gb_tensor(struct gb *b, const char *name, uint32_t dtype, uint32_t n_dims,
                             const uint64_t *ne) {
    const struct sl_dtype_info *info = sl_dtype_info(dtype);
    uint64_t n = 1;
    gb_text(&b->tensors, name, strlen(name));
    gb_u32(&b->tensors, n_dims);
    for (uint32_t d = 0; d < n_dims; d++) {
        gb_u64(&b->tensors, ne[d]);
        n *= ne[d];
    }
    gb_u32(&b->tensors, dtype);
    gb_u64(&b->tensors, b->next_offset != UINT64_MAX ? b->next_offset : b->data_bytes);
    b->next_offset = UINT64_MAX;
    b->n_tensors++;
    uint64_t bytes = info ? n / info->block_elems * info->block_bytes : 32;
    if (bytes < (UINT64_C(1) << 30)) /* absurd dimensions are declared, not filled */
        b->data_bytes += (bytes + b->alignment - 1) / b->alignment * b->alignment;
}

/* The file: header, keys, tensor table, padding, zeros. Resets nothing but releases the builder. */
static inline uint8_t *gb_finish(struct gb *b, size_t *out_n) {
    struct gb_buf f = {0};
    gb_raw(&f, "GGUF", 4);
    gb_u32(&f, b->version);
    gb_u64(&f, b->fake_n_tensors != UINT64_MAX ? b->fake_n_tensors : b->n_tensors);
    gb_u64(&f, b->fake_n_kv != UINT64_MAX ? b->fake_n_kv : b->n_kv);
    gb_raw(&f, b->kv.p, b->kv.n);
    gb_raw(&f, b->tensors.p, b->tensors.n);
    size_t size = f.n;
    if (b->n_tensors)
        size = (f.n + b->alignment - 1) / b->alignment * b->alignment + b->data_bytes;
    if (b->fake_file_bytes != UINT64_MAX)
        size = (size_t)b->fake_file_bytes;
    /* A block of exactly the file's size lets ASan see a read past it. */
    uint8_t *file = calloc(1, size ? size : 1);
    if (!file)
        abort();
    memcpy(file, f.p, f.n < size ? f.n : size);
    free(f.p);
    free(b->kv.p);
    free(b->tensors.p);
    *out_n = size;
    return file;
}

static inline void gb_write_file(const char *path, const uint8_t *data, size_t n) {
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, n, f) != n || fclose(f) != 0) {
        perror(path);
        abort();
    }
}

#endif
