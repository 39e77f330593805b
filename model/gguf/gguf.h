/* GGUF files, versions 2 and 3, little endian, whole or split.
 *
 * Everything in the file is untrusted: counts, lengths, offsets and types are checked against the
 * file's size and fixed limits before anything is allocated by them, and every error names the
 * file, the byte offset and the key or tensor.
 * Source: ggml docs/gguf.md. */
#ifndef SL_MODEL_GGUF_H
#define SL_MODEL_GGUF_H

#include "common/dtype.h"
#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum sl_gguf_type {
    SL_GGUF_U8,
    SL_GGUF_I8,
    SL_GGUF_U16,
    SL_GGUF_I16,
    SL_GGUF_U32,
    SL_GGUF_I32,
    SL_GGUF_F32,
    SL_GGUF_BOOL,
    SL_GGUF_STRING,
    SL_GGUF_ARRAY,
    SL_GGUF_U64,
    SL_GGUF_I64,
    SL_GGUF_F64,
};

#define SL_GGUF_MAX_DIMS 4u

/* A string inside the metadata held in memory: not NUL-terminated, may hold any byte. */
struct sl_str {
    const char *ptr;
    size_t len;
};
/* The string for a message: bytes outside printable ASCII as \xNN, cut to fit buf (size at least
 * 8). Returns buf. */
const char *sl_str_escape(struct sl_str s, char *buf, size_t size);

struct sl_gguf_tensor {
    struct sl_str name;
    enum sl_dtype dtype;
    uint32_t n_dims;
    uint64_t ne[SL_GGUF_MAX_DIMS]; /* innermost first; 1 past n_dims */
    uint32_t file;                 /* index of the split file that holds it */
    uint64_t offset_bytes;         /* from the start of that file */
    uint64_t size_bytes;
};

struct sl_gguf_kv {
    struct sl_str key;
    enum sl_gguf_type type;      /* SL_GGUF_ARRAY: elem_type and n_elems say the rest */
    enum sl_gguf_type elem_type; /* of an array (never an array); of a scalar: type */
    uint64_t n_elems;            /* 1 for a scalar */
    const void *data;            /* unaligned little-endian payload inside the file's metadata */
    uint64_t data_bytes;
};

/* An open model: one file or all files of a split. Immutable after open, any thread may read. */
struct sl_gguf;

/* Opens PATH; of a split ("-00001-of-0000N.gguf", any part may be named) opens all N and checks
 * that they belong together; keys are the first part's.
 * Reads metadata only (at most 1 GiB, with pread: a file cut later cannot fault) and keeps no file
 * open; vocabulary-only files (no tensor) are fine.
 * Errors: SL_ERR_IO cannot open or read; SL_ERR_CORRUPT the file contradicts itself or the format;
 * SL_ERR_UNSUPPORTED version, byte order or tensor type. */
enum sl_status sl_gguf_open(const char *path, struct sl_gguf **out_gguf,
                            struct sl_err *err) SL_MUST_CHECK;
/* The same from memory (for fuzzing and tests); borrows data until close. */
enum sl_status sl_gguf_open_memory(const void *data, size_t size_bytes, struct sl_gguf **out_gguf,
                                   struct sl_err *err) SL_MUST_CHECK;
void sl_gguf_close(struct sl_gguf **g);

uint32_t sl_gguf_version(const struct sl_gguf *g);
uint32_t sl_gguf_n_files(const struct sl_gguf *g);
const char *sl_gguf_file_path(const struct sl_gguf *g, uint32_t file);
uint64_t sl_gguf_file_bytes(const struct sl_gguf *g, uint32_t file);

uint64_t sl_gguf_n_tensors(const struct sl_gguf *g);
const struct sl_gguf_tensor *sl_gguf_tensor_at(const struct sl_gguf *g, uint64_t i);
/* NULL when absent. Binary search: an untrusted file cannot make it slow. */
const struct sl_gguf_tensor *sl_gguf_tensor_find(const struct sl_gguf *g, const char *name);

uint64_t sl_gguf_n_kv(const struct sl_gguf *g);
const struct sl_gguf_kv *sl_gguf_kv_at(const struct sl_gguf *g, uint64_t i);
const struct sl_gguf_kv *sl_gguf_kv_find(const struct sl_gguf *g, const char *key);

/* A stable 64-bit identity: keys, tensor table and sizes, not names and places of files. */
uint64_t sl_gguf_fingerprint(const struct sl_gguf *g);

/* Typed reads. Absent key: SL_AGAIN, *out untouched, err untouched. A value of another kind, or out
 * of the range of the C type: SL_ERR_CORRUPT with a text that names key and offset. Integers of any
 * width convert; f64 to f32 converts; a float must be finite. */
enum sl_status sl_gguf_get_u32(const struct sl_gguf *g, const char *key, uint32_t *out,
                               struct sl_err *err) SL_MUST_CHECK;
enum sl_status sl_gguf_get_f32(const struct sl_gguf *g, const char *key, float *out,
                               struct sl_err *err) SL_MUST_CHECK;
enum sl_status sl_gguf_get_bool(const struct sl_gguf *g, const char *key, bool *out,
                                struct sl_err *err) SL_MUST_CHECK;
enum sl_status sl_gguf_get_str(const struct sl_gguf *g, const char *key, struct sl_str *out,
                               struct sl_err *err) SL_MUST_CHECK;

/* Walks an array of strings (tokens, merges) without allocating: start with offset 0. */
struct sl_gguf_str_iter {
    const struct sl_gguf_kv *kv;
    uint64_t index, offset_bytes;
};
bool sl_gguf_str_next(struct sl_gguf_str_iter *it, struct sl_str *out);
/* Element i of a numeric array (or scalar, i = 0) as a number, clamped to the result's range; 0 for
 * strings. The caller checked i < n_elems. */
double sl_gguf_array_f64(const struct sl_gguf_kv *kv, uint64_t i);
int64_t sl_gguf_array_i64(const struct sl_gguf_kv *kv, uint64_t i);
/* Where the value begins in the (first) file, for messages. */
uint64_t sl_gguf_kv_offset(const struct sl_gguf *g, const struct sl_gguf_kv *kv);
/* Writes "PATH: byte N: key 'K': TEXT" for a key whose value is unusable and returns status. */
enum sl_status sl_gguf_kv_fail(const struct sl_gguf *g, const struct sl_gguf_kv *kv,
                               enum sl_status status, struct sl_err *err, const char *fmt, ...)
    SL_PRINTF(5, 6);

#endif
