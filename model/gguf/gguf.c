#include "model/gguf/gguf_internal.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct sl_gguf {
    struct sl_gguf_file *files; /* [n_files]; kv are those of files[0] */
    uint32_t n_files;
    struct sl_gguf_tensor *tensors; /* of all files, in order */
    uint64_t n_tensors;
    /* Indices sorted by name. A sorted table instead of a hash: no input makes it slow. */
    uint32_t *by_name, *by_key;
};

static int compare(struct sl_str a, struct sl_str b) {
    if (a.len != b.len)
        return a.len < b.len ? -1 : 1;
    return memcmp(a.ptr, b.ptr, a.len);
}

static int by_tensor_name(const void *a, const void *b, void *ctx) {
    const struct sl_gguf_tensor *t = ctx;
    return compare(t[*(const uint32_t *)a].name, t[*(const uint32_t *)b].name);
}

static int by_kv_key(const void *a, const void *b, void *ctx) {
    const struct sl_gguf_kv *kv = ctx;
    return compare(kv[*(const uint32_t *)a].key, kv[*(const uint32_t *)b].key);
}

static uint32_t *sorted(uint64_t n, int (*order)(const void *, const void *, void *), void *base) {
    uint32_t *index = malloc(((size_t)n + 1) * sizeof *index);
    if (!index)
        return NULL;
    for (uint32_t i = 0; i < n; i++)
        index[i] = i;
    qsort_r(index, (size_t)n, sizeof *index, order, base);
    return index;
}

/* Builds both indices and refuses names that occur twice. */
static enum sl_status build_index(struct sl_gguf *g, struct sl_err *err) {
    const struct sl_gguf_file *f = &g->files[0];
    char name[96], path[160];
    g->by_key = sorted(f->n_kv, by_kv_key, f->kv);
    g->by_name = sorted(g->n_tensors, by_tensor_name, g->tensors);
    if (!g->by_key || !g->by_name)
        return sl_fail(err, SL_ERR_NOMEM, "out of memory for %" PRIu64 " tensors", g->n_tensors);
    for (uint64_t i = 1; i < f->n_kv; i++) {
        const struct sl_gguf_kv *kv = &f->kv[g->by_key[i]];
        if (by_kv_key(&g->by_key[i - 1], &g->by_key[i], f->kv) == 0)
            return sl_gguf_kv_fail(g, kv, SL_ERR_CORRUPT, err, "the key occurs twice");
    }
    for (uint64_t i = 1; i < g->n_tensors; i++) {
        const struct sl_gguf_tensor *t = &g->tensors[g->by_name[i]];
        if (by_tensor_name(&g->by_name[i - 1], &g->by_name[i], g->tensors) == 0)
            return sl_fail(err, SL_ERR_CORRUPT,
                           "%s: tensor '%s' occurs twice (data at byte %" PRIu64 ")",
                           sl_gguf_short_path(g->files[t->file].path, path, sizeof path),
                           sl_str_escape(t->name, name, sizeof name), t->offset_bytes);
    }
    return SL_OK;
}

/* Collects the tensors of all files into one table. */
static enum sl_status join_files(struct sl_gguf *g, struct sl_err *err) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < g->n_files; i++)
        n += g->files[i].n_tensors;
    if (n > SL_GGUF_MAX_TENSORS)
        return sl_fail(err, SL_ERR_CORRUPT, "%" PRIu64 " tensors in all parts, the limit is %u", n,
                       SL_GGUF_MAX_TENSORS);
    g->tensors = calloc((size_t)n + 1, sizeof *g->tensors);
    if (!g->tensors)
        return sl_fail(err, SL_ERR_NOMEM, "out of memory for %" PRIu64 " tensors", n);
    for (uint32_t i = 0; i < g->n_files; i++) {
        struct sl_gguf_file *f = &g->files[i];
        for (uint64_t j = 0; j < f->n_tensors; j++) {
            g->tensors[g->n_tensors] = f->tensors[j];
            g->tensors[g->n_tensors++].file = i;
        }
        free(f->tensors);
        f->tensors = NULL;
    }
    return build_index(g, err);
}

static enum sl_status open_file(const char *path, struct sl_gguf_file *f, struct sl_err *err) {
    char cut[160];
    struct stat sb;
    f->path = strdup(path);
    if (!f->path)
        return sl_fail(err, SL_ERR_NOMEM, "out of memory");
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not block us */
    if (fd < 0 || fstat(fd, &sb) != 0) {
        enum sl_status status = sl_fail(err, SL_ERR_IO, "%s: cannot open: %s",
                                        sl_gguf_short_path(path, cut, sizeof cut), strerror(errno));
        if (fd >= 0)
            close(fd);
        return status;
    }
    enum sl_status status;
    if (!S_ISREG(sb.st_mode)) {
        status = sl_fail(err, SL_ERR_IO, "%s: %s, not a model file",
                         sl_gguf_short_path(path, cut, sizeof cut),
                         S_ISDIR(sb.st_mode) ? "a directory" : "not a regular file");
    } else {
        f->size_bytes = (uint64_t)sb.st_size;
        status = sl_gguf_file_parse(f, fd, err);
    }
    close(fd);
    return status;
}

/* "NAME-00002-of-00005.gguf": length of NAME, part (from 1) and count; false for other names. */
static bool split_name(const char *path, size_t *out_prefix, uint32_t *out_no,
                       uint32_t *out_count) {
    size_t len = strlen(path);
    static const char shape[] = "-00000-of-00000.gguf";
    const size_t tail = sizeof shape - 1;
    if (len <= tail)
        return false;
    const char *s = path + len - tail;
    uint32_t value[2] = {0, 0};
    unsigned field = 0;
    for (size_t i = 0; i < tail; i++) {
        if (shape[i] == '0') {
            if (s[i] < '0' || s[i] > '9')
                return false;
            value[field] = value[field] * 10 + (uint32_t)(s[i] - '0');
        } else if (s[i] != shape[i]) {
            return false;
        } else if (shape[i] == 'o') {
            field = 1;
        }
    }
    *out_prefix = len - tail;
    *out_no = value[0];
    *out_count = value[1];
    return value[0] >= 1 && value[0] <= value[1];
}

static char *split_path(const char *path, size_t prefix, uint32_t no, uint32_t count) {
    char *p = NULL;
    if (asprintf(&p, "%.*s-%05" PRIu32 "-of-%05" PRIu32 ".gguf", (int)prefix, path, no, count) < 0)
        return NULL;
    return p;
}

/* An integer key of one part; parts after the first are not indexed. SL_AGAIN when absent. */
static enum sl_status part_i64(const struct sl_gguf_file *f, const char *key, int64_t *out,
                               struct sl_err *err) {
    struct sl_str want = {key, strlen(key)};
    char path[160];
    for (uint64_t i = 0; i < f->n_kv; i++) {
        const struct sl_gguf_kv *kv = &f->kv[i];
        if (compare(kv->key, want) != 0)
            continue;
        if (kv->type >= SL_GGUF_F32 && kv->type != SL_GGUF_U64 && kv->type != SL_GGUF_I64)
            return sl_fail(err, SL_ERR_CORRUPT, "%s: byte %" PRIu64 ": key '%s' is not an integer",
                           sl_gguf_short_path(f->path, path, sizeof path),
                           (uint64_t)((const uint8_t *)kv->data - f->meta), key);
        *out = sl_gguf_elem_i64(kv->type, kv->data, 0);
        return SL_OK;
    }
    return SL_AGAIN;
}

static enum sl_status check_part(const struct sl_gguf_file *f, uint32_t no, int64_t count,
                                 struct sl_err *err) {
    int64_t its_no = -1, its_count = -1;
    char path[160];
    enum sl_status status = part_i64(f, "split.no", &its_no, err);
    if (status == SL_OK)
        status = part_i64(f, "split.count", &its_count, err);
    if (status == SL_AGAIN)
        return sl_fail(err, SL_ERR_CORRUPT,
                       "%s: no key 'split.no' or 'split.count': not part %" PRIu32
                       " of a split model",
                       sl_gguf_short_path(f->path, path, sizeof path), no + 1);
    if (status != SL_OK)
        return status;
    if (its_no != (int64_t)no || its_count != count)
        return sl_fail(err, SL_ERR_CORRUPT,
                       "%s: it says that it is part %" PRId64 " of %" PRId64
                       ", expected part %" PRIu32 " of %" PRId64
                       ": files renamed or of different models",
                       sl_gguf_short_path(f->path, path, sizeof path),
                       its_no < INT64_MAX ? its_no + 1 : its_no, its_count, no + 1, count);
    return SL_OK;
}

/* The first part is open in files[0] and says that there are count parts. */
static enum sl_status open_parts(struct sl_gguf *g, const char *path, int64_t count,
                                 struct sl_err *err) {
    size_t prefix;
    uint32_t no, name_count;
    char cut[160];
    const char *shown = sl_gguf_short_path(path, cut, sizeof cut);
    if (count < 1 || count > SL_GGUF_MAX_SPLITS)
        return sl_fail(err, SL_ERR_CORRUPT,
                       "%s: key 'split.count' is %" PRId64 ", 1 to %u are allowed", shown, count,
                       SL_GGUF_MAX_SPLITS);
    if (!split_name(path, &prefix, &no, &name_count) || name_count != count)
        return sl_fail(err, SL_ERR_CORRUPT,
                       "%s: one of %" PRId64 " parts, but the name does not end in "
                       "-00001-of-%05" PRId64 ".gguf: give the parts their names back",
                       shown, count, count);
    SL_TRY(check_part(&g->files[0], 0, count, err));
    struct sl_gguf_file *files = realloc(g->files, (size_t)count * sizeof *files);
    if (!files)
        return sl_fail(err, SL_ERR_NOMEM, "out of memory for %" PRId64 " parts", count);
    g->files = files;
    memset(files + 1, 0, (size_t)(count - 1) * sizeof *files);
    for (uint32_t i = 1; i < (uint32_t)count; i++) {
        char *part = split_path(path, prefix, i + 1, name_count);
        if (!part)
            return sl_fail(err, SL_ERR_NOMEM, "out of memory");
        g->n_files = i + 1;
        enum sl_status status = SL_OK;
        if (access(part, F_OK) != 0)
            status = sl_fail(err, SL_ERR_IO,
                             "%s: part %" PRIu32 " of %" PRId64
                             " is missing: put all parts into one folder",
                             sl_gguf_short_path(part, cut, sizeof cut), i + 1, count);
        else
            status = open_file(part, &g->files[i], err);
        free(part);
        SL_TRY(status);
        SL_TRY(check_part(&g->files[i], i, count, err));
    }
    return SL_OK;
}

/* Opens what else the first file asks for, then builds the tables. */
static enum sl_status finish_open(struct sl_gguf *g, const char *path, struct sl_err *err) {
    int64_t count = 1, total = -1;
    char cut[160];
    enum sl_status status = part_i64(&g->files[0], "split.count", &count, err);
    if (status != SL_OK && status != SL_AGAIN)
        return status;
    /* split.count 0 is written by tools that split into one file. */
    if (status == SL_OK && count > 1) {
        if (!path)
            return sl_fail(err, SL_ERR_UNSUPPORTED,
                           "key 'split.count' is %" PRId64 ": a split model needs its files",
                           count);
        status = open_parts(g, path, count, err);
    } else if (status == SL_OK && count < 0) {
        status = sl_fail(err, SL_ERR_CORRUPT, "%s: key 'split.count' is %" PRId64,
                         sl_gguf_short_path(g->files[0].path, cut, sizeof cut), count);
    } else {
        status = SL_OK;
    }
    if (status == SL_OK)
        status = join_files(g, err);
    if (status != SL_OK || g->n_files == 1)
        return status;
    status = part_i64(&g->files[0], "split.tensors.count", &total, err);
    if (status == SL_OK && (total < 0 || (uint64_t)total != g->n_tensors))
        return sl_fail(err, SL_ERR_CORRUPT,
                       "%s: key 'split.tensors.count' is %" PRId64 ", but the parts hold %" PRIu64
                       " tensors",
                       sl_gguf_short_path(g->files[0].path, cut, sizeof cut), total, g->n_tensors);
    return status == SL_AGAIN ? SL_OK : status;
}

static struct sl_gguf *create(void) {
    struct sl_gguf *g = calloc(1, sizeof *g);
    if (!g)
        return NULL;
    g->files = calloc(1, sizeof *g->files);
    if (!g->files) {
        free(g);
        return NULL;
    }
    g->n_files = 1;
    return g;
}

enum sl_status sl_gguf_open(const char *path, struct sl_gguf **out_gguf, struct sl_err *err) {
    struct sl_gguf *g = create();
    char *first = NULL, cut[160];
    size_t prefix;
    uint32_t no, count;
    if (!g)
        return sl_fail(err, SL_ERR_NOMEM, "out of memory");
    enum sl_status status = SL_OK;
    if (split_name(path, &prefix, &no, &count) && no > 1) {
        first = split_path(path, prefix, 1, count);
        if (!first)
            status = sl_fail(err, SL_ERR_NOMEM, "out of memory");
        else if (access(first, F_OK) != 0)
            status = sl_fail(err, SL_ERR_IO,
                             "%s: part 1 of %" PRIu32 " is missing: put all parts into one folder",
                             sl_gguf_short_path(first, cut, sizeof cut), count);
        else
            path = first;
    }
    if (status == SL_OK)
        status = open_file(path, &g->files[0], err);
    if (status == SL_OK)
        status = finish_open(g, path, err);
    free(first);
    if (status != SL_OK) {
        sl_gguf_close(&g);
        return status;
    }
    *out_gguf = g;
    return SL_OK;
}

enum sl_status sl_gguf_open_memory(const void *data, size_t size_bytes, struct sl_gguf **out_gguf,
                                   struct sl_err *err) {
    struct sl_gguf *g = create();
    if (!g)
        return sl_fail(err, SL_ERR_NOMEM, "out of memory");
    struct sl_gguf_file *f = &g->files[0];
    enum sl_status status;
    f->meta = data;
    f->size_bytes = size_bytes;
    f->path = strdup("(memory)");
    if (!f->path)
        status = sl_fail(err, SL_ERR_NOMEM, "out of memory");
    else
        status = sl_gguf_file_parse(f, -1, err);
    if (status == SL_OK)
        status = finish_open(g, NULL, err);
    if (status != SL_OK) {
        sl_gguf_close(&g);
        return status;
    }
    *out_gguf = g;
    return SL_OK;
}

void sl_gguf_close(struct sl_gguf **g) {
    if (!*g)
        return;
    for (uint32_t i = 0; i < (*g)->n_files; i++)
        sl_gguf_file_release(&(*g)->files[i]);
    free((*g)->files);
    free((*g)->tensors);
    free((*g)->by_name);
    free((*g)->by_key);
    free(*g);
    *g = NULL;
}

uint32_t sl_gguf_version(const struct sl_gguf *g) {
    return g->files[0].version;
}
uint32_t sl_gguf_n_files(const struct sl_gguf *g) {
    return g->n_files;
}
const char *sl_gguf_file_path(const struct sl_gguf *g, uint32_t file) {
    return g->files[file].path;
}
uint64_t sl_gguf_file_bytes(const struct sl_gguf *g, uint32_t file) {
    return g->files[file].size_bytes;
}
uint64_t sl_gguf_n_tensors(const struct sl_gguf *g) {
    return g->n_tensors;
}
const struct sl_gguf_tensor *sl_gguf_tensor_at(const struct sl_gguf *g, uint64_t i) {
    return &g->tensors[i];
}
uint64_t sl_gguf_n_kv(const struct sl_gguf *g) {
    return g->files[0].n_kv;
}
const struct sl_gguf_kv *sl_gguf_kv_at(const struct sl_gguf *g, uint64_t i) {
    return &g->files[0].kv[i];
}

const struct sl_gguf_tensor *sl_gguf_tensor_find(const struct sl_gguf *g, const char *name) {
    struct sl_str want = {name, strlen(name)};
    for (uint64_t lo = 0, hi = g->n_tensors; lo < hi;) {
        uint64_t mid = lo + (hi - lo) / 2;
        const struct sl_gguf_tensor *t = &g->tensors[g->by_name[mid]];
        int c = compare(t->name, want);
        if (c == 0)
            return t;
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

const struct sl_gguf_kv *sl_gguf_kv_find(const struct sl_gguf *g, const char *key) {
    struct sl_str want = {key, strlen(key)};
    for (uint64_t lo = 0, hi = g->files[0].n_kv; lo < hi;) {
        uint64_t mid = lo + (hi - lo) / 2;
        const struct sl_gguf_kv *kv = &g->files[0].kv[g->by_key[mid]];
        int c = compare(kv->key, want);
        if (c == 0)
            return kv;
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

uint64_t sl_gguf_kv_offset(const struct sl_gguf *g, const struct sl_gguf_kv *kv) {
    return (uint64_t)((const uint8_t *)kv->data - g->files[0].meta);
}

enum sl_status sl_gguf_kv_fail(const struct sl_gguf *g, const struct sl_gguf_kv *kv,
                               enum sl_status status, struct sl_err *err, const char *fmt, ...) {
    char text[256], key[96], path[160];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return sl_fail(err, status, "%s: byte %" PRIu64 ": key '%s': %s",
                   sl_gguf_short_path(g->files[0].path, path, sizeof path),
                   sl_gguf_kv_offset(g, kv), sl_str_escape(kv->key, key, sizeof key), text);
}

/* Multiply and fold eight bytes at a time: a checksum against mix-ups, not against attackers. */
static uint64_t mix(uint64_t h, const void *data, uint64_t n) {
    const uint8_t *p = data;
    uint64_t w = n;
    h = (h ^ w) * UINT64_C(0x9e3779b97f4a7c15);
    for (; n >= 8; n -= 8, p += 8) {
        memcpy(&w, p, 8);
        h = (h ^ le64toh(w)) * UINT64_C(0xff51afd7ed558ccd);
        h ^= h >> 32;
    }
    w = 0;
    for (unsigned i = 0; i < n; i++)
        w |= (uint64_t)p[i] << (8 * i);
    h = (h ^ w) * UINT64_C(0xc4ceb9fe1a85ec53);
    return h ^ h >> 29;
}

static uint64_t mix_u64(uint64_t h, uint64_t v) {
    h = (h ^ v) * UINT64_C(0xff51afd7ed558ccd);
    return h ^ h >> 32;
}

uint64_t sl_gguf_fingerprint(const struct sl_gguf *g) {
    uint64_t h = UINT64_C(0x534c55494345); /* any constant; part of the format of stored caches */
    for (uint64_t i = 0; i < g->files[0].n_kv; i++) {
        const struct sl_gguf_kv *kv = &g->files[0].kv[i];
        h = mix(h, kv->key.ptr, kv->key.len);
        h = mix_u64(h, (uint64_t)kv->type << 8 | (uint64_t)kv->elem_type);
        h = mix(h, kv->data, kv->data_bytes);
    }
    for (uint64_t i = 0; i < g->n_tensors; i++) {
        const struct sl_gguf_tensor *t = &g->tensors[i];
        h = mix(h, t->name.ptr, t->name.len);
        h = mix_u64(h, (uint64_t)t->dtype);
        for (unsigned d = 0; d < SL_GGUF_MAX_DIMS; d++)
            h = mix_u64(h, t->ne[d]);
        h = mix_u64(h, t->file);
        h = mix_u64(h, t->offset_bytes);
    }
    for (uint32_t i = 0; i < g->n_files; i++)
        h = mix_u64(h, g->files[i].size_bytes);
    return h;
}
