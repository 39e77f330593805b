/* One GGUF file as read from disk or memory: what gguf_parse.c gives to gguf.c. */
#ifndef SL_MODEL_GGUF_INTERNAL_H
#define SL_MODEL_GGUF_INTERNAL_H

#include "model/gguf/gguf.h"

/* Limits on what a file may declare. Real files stay far below: a model of 61 layers with separate
 * experts has 48,000 tensors, the largest vocabularies fill 30 MiB. */
#define SL_GGUF_MAX_META_BYTES   (UINT64_C(1) << 30)
#define SL_GGUF_MAX_STRING_BYTES (UINT64_C(128) << 20)
#define SL_GGUF_MAX_KEY_BYTES    65535u /* the specification's */
#define SL_GGUF_MAX_NAME_BYTES   64u    /* the specification's */
#define SL_GGUF_MAX_KV           65536u
#define SL_GGUF_MAX_TENSORS      262144u
#define SL_GGUF_MAX_ALIGNMENT    (1u << 20)
#define SL_GGUF_MAX_SPLITS       4096u

struct sl_gguf_file {
    char *path; /* owned */
    uint64_t size_bytes;
    const uint8_t *meta; /* the file's first bytes, at least up to the end of the tensor table */
    uint64_t meta_bytes;
    size_t mapped_bytes; /* length of our anonymous mapping at meta; 0 = borrowed memory */
    uint32_t version, alignment;
    struct sl_gguf_kv *kv; /* owned, file order */
    uint64_t n_kv;
    struct sl_gguf_tensor *tensors; /* owned, file order; offsets absolute, file = 0 */
    uint64_t n_tensors;
};

/* Reads and checks the metadata of the file open at fd, or of f->meta[0, size_bytes) when fd is
 * negative. f->path and f->size_bytes are set. What it allocates is released by
 * sl_gguf_file_release, also after an error. */
enum sl_status sl_gguf_file_parse(struct sl_gguf_file *f, int fd, struct sl_err *err) SL_MUST_CHECK;
void sl_gguf_file_release(struct sl_gguf_file *f);

/* The path, or its last 120 bytes after "...", so that the rest of an error text has room. */
const char *sl_gguf_short_path(const char *path, char *buf, size_t size);

/* Little-endian payload element i of a numeric type (gguf_value.c). */
double sl_gguf_elem_f64(enum sl_gguf_type type, const void *data, uint64_t i);
int64_t sl_gguf_elem_i64(enum sl_gguf_type type, const void *data, uint64_t i);

#endif
