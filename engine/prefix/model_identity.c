#include "engine/prefix/model_identity.h"
#include "backends/ops/kv.h"
#include "engine/layers/seq_shape.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Samples of a file: two models of one shape and size differ in all of them. */
#define N_SAMPLES    16u
#define SAMPLE_BYTES 4096u

static void add_u64(struct sl_siphash *h, uint64_t v) {
    sl_siphash_add(h, &v, sizeof v);
}

static void add_text(struct sl_siphash *h, const char *text) {
    sl_siphash_add(h, text, strlen(text) + 1);
}

static void add_times(struct sl_siphash *h, const struct stat *about) {
    add_u64(h, (uint64_t)about->st_size);
    add_u64(h, (uint64_t)about->st_mtim.tv_sec);
    add_u64(h, (uint64_t)about->st_mtim.tv_nsec);
}

static enum sl_status add_file(struct sl_siphash *h, const char *path, bool times,
                               struct sl_err *err) {
    uint8_t sample[SAMPLE_BYTES];
    struct stat about;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &about) != 0)
        goto fail;
    if (times)
        add_times(h, &about);
    uint64_t size = (uint64_t)about.st_size;
    for (uint32_t i = 1; i <= N_SAMPLES; i++) {
        uint64_t at = size / (N_SAMPLES + 1) * i;
        ssize_t got = pread(fd, sample, sizeof sample, (off_t)at);
        if (got < 0)
            goto fail;
        sl_siphash_add(h, sample, (size_t)got);
    }
    close(fd);
    return SL_OK;
fail:
    sl_fail(err, SL_ERR_IO, "%s cannot be read: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    return SL_ERR_IO;
}

static void add_hash(struct sl_siphash *h, struct sl_hash128 hash) {
    add_u64(h, hash.lo);
    add_u64(h, hash.hi);
}

static void add_stores(struct sl_siphash *h, const struct sl_model *model,
                       const struct sl_seq_config *c) {
    struct sl_seq_store stores[SL_SEQ_STORES];
    add_text(h, sl_dtype_name(c->kv_dtype));
    add_u64(h, SL_KV_PAGE_TOKENS);
    for (uint32_t l = 0; l < model->hp.n_layer; l++) {
        uint32_t n = sl_seq_stores(&model->layers[l].spec, c, stores);
        add_u64(h, n);
        for (uint32_t i = 0; i < n; i++) {
            const struct sl_seq_store *s = &stores[i];
            add_text(h, s->name);
            add_u64(h, s->reach);
            add_u64(h, sl_seq_is_tail(c, s));
            add_u64(h, s->n_parts);
            for (uint32_t p = 0; p < s->n_parts; p++)
                add_u64(h, s->part_bytes[p]);
        }
    }
}

static enum sl_status add_files(struct sl_siphash *h, const struct sl_model *model, bool times,
                                struct sl_err *err) {
    const struct sl_gguf *g = model->gguf;
    add_u64(h, sl_model_fingerprint(model));
    for (uint32_t i = 0; i < sl_gguf_n_files(g); i++)
        SL_TRY(add_file(h, sl_gguf_file_path(g, i), times, err));
    return SL_OK;
}

enum sl_status sl_model_content(const struct sl_model *model, uint64_t *out_content,
                                struct sl_err *err) {
    struct sl_siphash h;
    sl_siphash_init(&h, (struct sl_hash128){UINT64_C(0x736c756963652d63), 1});
    SL_TRY(add_files(&h, model, false, err));
    *out_content = sl_siphash_end(&h).lo;
    return SL_OK;
}

enum sl_status sl_model_identity(const struct sl_model *model, const struct sl_seq_config *stores,
                                 struct sl_hash128 arithmetic, struct sl_hash128 *out_identity,
                                 struct sl_err *err) {
    struct sl_siphash h;
    sl_siphash_init(&h, (struct sl_hash128){UINT64_C(0x736c756963652d6b), 1});
    SL_TRY(add_files(&h, model, true, err));
    add_stores(&h, model, stores);
    add_hash(&h, arithmetic);
    *out_identity = sl_siphash_end(&h);
    return SL_OK;
}

void sl_model_identity_add(struct sl_hash128 first, struct sl_hash128 other, uint32_t first_layer,
                           uint32_t n_layer, struct sl_hash128 *inout_identity) {
    struct sl_siphash h;
    if (first.lo == other.lo && first.hi == other.hi)
        return;
    sl_siphash_init(&h, *inout_identity);
    add_u64(&h, first_layer);
    add_u64(&h, n_layer);
    add_hash(&h, other);
    *inout_identity = sl_siphash_end(&h);
}
