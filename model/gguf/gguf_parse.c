#include "model/gguf/gguf_internal.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FIRST_READ_BYTES (UINT64_C(64) << 10)
#define MAX_READ_BYTES   (UINT64_C(4) << 20)

/* Bytes of one element; 0 for strings and arrays. */
static const uint8_t type_bytes[] = {
    [SL_GGUF_U8] = 1,    [SL_GGUF_I8] = 1,  [SL_GGUF_U16] = 2, [SL_GGUF_I16] = 2,
    [SL_GGUF_U32] = 4,   [SL_GGUF_I32] = 4, [SL_GGUF_F32] = 4, [SL_GGUF_BOOL] = 1,
    [SL_GGUF_U64] = 8,   [SL_GGUF_I64] = 8, [SL_GGUF_F64] = 8, [SL_GGUF_STRING] = 0,
    [SL_GGUF_ARRAY] = 0,
};

/* Types that exist (or existed) in GGUF and that we refuse, for the error's sake. */
static const struct {
    uint32_t number;
    const char *name;
} refused_types[] = {
    {4, "Q4_2"},
    {5, "Q4_3"},
    {9, "Q8_1"},
    {15, "Q8_K"},
    {24, "I8"},
    {25, "I16"},
    {26, "I32"},
    {27, "I64"},
    {28, "F64"},
    {31, "Q4_0_4_4"},
    {32, "Q4_0_4_8"},
    {33, "Q4_0_8_8"},
    {36, "IQ4_NL_4_4"},
    {37, "IQ4_NL_4_8"},
    {38, "IQ4_NL_8_8"},
    {40, "NVFP4"},
    {41, "Q1_0"},
    {42, "Q2_0"},
    /* ik_llama.cpp's that are not read; those with rows interleaved have numbers above 200. */
    {133, "Q6_0"},
    {134, "IQ1_BN"},
    {135, "IQ2_BN"},
    {142, "IQ2_TN"},
    {143, "IQ1_TN"},
    {144, "IQ4_KS"},
    {145, "IQ2_KS"},
    {146, "IQ4_KSS"},
    {152, "IQ5_KS"},
    {153, "IQ2_KT"},
    {154, "IQ3_KT"},
    {155, "IQ4_KT"},
    {156, "IQ3_KS"},
    {157, "IQ2_KL"},
    {158, "IQ1_KT"},
};

/* A cursor over the metadata. The buffer is an anonymous mapping of the most that may be needed, so
 * its pages cost nothing until read into and pointers stay valid while it fills. It is filled with
 * pread and not mapped from the file: a file cut while we look must give an error, not SIGBUS. */
struct reader {
    struct sl_gguf_file *f;
    struct sl_err *err;
    int fd;        /* negative: everything is there */
    uint8_t *fill; /* f->meta, writable, when fd is not negative */
    uint64_t have; /* bytes valid at f->meta */
    uint64_t limit;
    uint64_t pos;
    char what[128]; /* "key 'general.name'", for errors */
};

SL_PRINTF(4, 5)
static enum sl_status fail_at(const struct reader *r, enum sl_status status, uint64_t at,
                              const char *fmt, ...) {
    char text[320], path[160];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return sl_fail(r->err, status, "%s: byte %" PRIu64 ": %s",
                   sl_gguf_short_path(r->f->path, path, sizeof path), at, text);
}

/* Makes n bytes at pos readable. */
static enum sl_status need(struct reader *r, uint64_t n) {
    if (n > r->f->size_bytes - r->pos)
        return fail_at(r, SL_ERR_CORRUPT, r->pos,
                       "%s needs %" PRIu64 " bytes here, but the file ends at byte %" PRIu64
                       ": truncated or damaged, download it again",
                       r->what, n, r->f->size_bytes);
    if (n > r->limit - r->pos)
        return fail_at(r, SL_ERR_CORRUPT, r->pos,
                       "%s: the metadata exceeds the limit of %" PRIu64 " bytes", r->what,
                       SL_GGUF_MAX_META_BYTES);
    uint64_t end = r->pos + n;
    if (end <= r->have)
        return SL_OK;
    uint64_t step = r->have < FIRST_READ_BYTES ? FIRST_READ_BYTES : r->have;
    if (step > MAX_READ_BYTES)
        step = MAX_READ_BYTES;
    uint64_t want = r->have + step > end ? r->have + step : end;
    if (want > r->limit)
        want = r->limit;
    while (r->have < want) {
        ssize_t got = pread(r->fd, r->fill + r->have, (size_t)(want - r->have), (off_t)r->have);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fail_at(r, SL_ERR_IO, r->have, "cannot read: %s", strerror(errno));
        if (got == 0)
            return fail_at(r, SL_ERR_IO, r->have, "the file became shorter while it was read");
        r->have += (uint64_t)got;
    }
    return SL_OK;
}

static enum sl_status read_bytes(struct reader *r, void *out, uint64_t n) {
    SL_TRY(need(r, n));
    memcpy(out, r->f->meta + r->pos, n);
    r->pos += n;
    return SL_OK;
}

static enum sl_status read_u32(struct reader *r, uint32_t *out) {
    enum sl_status status = read_bytes(r, out, sizeof *out);
    if (status == SL_OK)
        *out = le32toh(*out);
    return status;
}

static enum sl_status read_u64(struct reader *r, uint64_t *out) {
    enum sl_status status = read_bytes(r, out, sizeof *out);
    if (status == SL_OK)
        *out = le64toh(*out);
    return status;
}

static enum sl_status read_str(struct reader *r, uint64_t max_bytes, struct sl_str *out) {
    uint64_t at = r->pos, len;
    SL_TRY(read_u64(r, &len));
    /* Past the end is the likelier mistake, and its text the clearer one. */
    if (len > max_bytes && len <= r->f->size_bytes - r->pos)
        return fail_at(r, SL_ERR_CORRUPT, at,
                       "%s: a string of %" PRIu64 " bytes, at most %" PRIu64 " are allowed",
                       r->what, len, max_bytes);
    SL_TRY(need(r, len));
    out->ptr = (const char *)r->f->meta + r->pos;
    out->len = (size_t)len;
    r->pos += len;
    return SL_OK;
}

static enum sl_status read_array(struct reader *r, struct sl_gguf_kv *kv, uint64_t at) {
    uint32_t type;
    uint64_t n;
    SL_TRY(read_u32(r, &type));
    SL_TRY(read_u64(r, &n));
    if (type > SL_GGUF_F64)
        return fail_at(r, SL_ERR_CORRUPT, at,
                       "%s: array of value type %" PRIu32 ", which does not exist", r->what, type);
    if (type == SL_GGUF_ARRAY)
        return fail_at(r, SL_ERR_UNSUPPORTED, at, "%s: an array of arrays is not supported",
                       r->what);
    kv->elem_type = (enum sl_gguf_type)type;
    kv->n_elems = n;
    uint64_t elem_bytes = type == SL_GGUF_STRING ? 8 : type_bytes[type];
    if (n > (r->f->size_bytes - r->pos) / elem_bytes)
        return fail_at(r, SL_ERR_CORRUPT, at,
                       "%s: an array of %" PRIu64 " elements does not fit the file, which ends at "
                       "byte %" PRIu64,
                       r->what, n, r->f->size_bytes);
    if (type != SL_GGUF_STRING) {
        SL_TRY(need(r, n * elem_bytes));
        r->pos += n * elem_bytes;
        return SL_OK;
    }
    for (uint64_t i = 0; i < n; i++) {
        struct sl_str s;
        SL_TRY(read_str(r, SL_GGUF_MAX_STRING_BYTES, &s));
    }
    return SL_OK;
}

static enum sl_status read_kv(struct reader *r, struct sl_gguf_kv *kv, uint64_t index) {
    uint64_t at = r->pos;
    uint32_t type;
    snprintf(r->what, sizeof r->what, "the name of key %" PRIu64 " of %" PRIu64, index + 1,
             r->f->n_kv);
    SL_TRY(read_str(r, SL_GGUF_MAX_KEY_BYTES, &kv->key));
    if (kv->key.len == 0)
        return fail_at(r, SL_ERR_CORRUPT, at, "%s is empty", r->what);
    char name[96];
    snprintf(r->what, sizeof r->what, "key '%s'", sl_str_escape(kv->key, name, sizeof name));
    at = r->pos;
    SL_TRY(read_u32(r, &type));
    if (type > SL_GGUF_F64)
        return fail_at(r, SL_ERR_CORRUPT, at, "%s: value type %" PRIu32 " does not exist", r->what,
                       type);
    kv->type = kv->elem_type = (enum sl_gguf_type)type;
    kv->n_elems = 1;
    if (type == SL_GGUF_ARRAY) {
        uint64_t payload = r->pos + 4 + 8; /* past the element type and the count */
        SL_TRY(read_array(r, kv, at));
        kv->data = r->f->meta + payload;
        kv->data_bytes = r->pos - payload;
    } else if (type == SL_GGUF_STRING) {
        struct sl_str s;
        SL_TRY(read_str(r, SL_GGUF_MAX_STRING_BYTES, &s));
        kv->data = s.ptr;
        kv->data_bytes = s.len;
    } else {
        SL_TRY(need(r, type_bytes[type]));
        kv->data = r->f->meta + r->pos;
        kv->data_bytes = type_bytes[type];
        if (type == SL_GGUF_BOOL && r->f->meta[r->pos] > 1)
            return fail_at(r, SL_ERR_CORRUPT, r->pos, "%s: a boolean of value %u", r->what,
                           r->f->meta[r->pos]);
        r->pos += type_bytes[type];
    }
    return SL_OK;
}

static enum sl_status read_alignment(struct reader *r) {
    r->f->alignment = 32;
    for (uint64_t i = 0; i < r->f->n_kv; i++) {
        const struct sl_gguf_kv *kv = &r->f->kv[i];
        static const char key[] = "general.alignment";
        if (kv->key.len != sizeof key - 1 || memcmp(kv->key.ptr, key, sizeof key - 1) != 0)
            continue;
        uint64_t at = (uint64_t)((const uint8_t *)kv->data - r->f->meta);
        if (kv->type != SL_GGUF_U32)
            return fail_at(r, SL_ERR_CORRUPT, at, "key 'general.alignment' is not a u32");
        int64_t a = sl_gguf_elem_i64(kv->type, kv->data, 0);
        if (a < 8 || a > (int64_t)SL_GGUF_MAX_ALIGNMENT || (a & (a - 1)) != 0)
            return fail_at(r, SL_ERR_CORRUPT, at,
                           "key 'general.alignment' is %" PRId64
                           ": it must be a power of two from 8 to %u",
                           a, SL_GGUF_MAX_ALIGNMENT);
        r->f->alignment = (uint32_t)a;
    }
    return SL_OK;
}

static enum sl_status refuse_type(const struct reader *r, uint64_t at, uint32_t type) {
    for (size_t i = 0; i < sizeof refused_types / sizeof refused_types[0]; i++)
        if (refused_types[i].number == type)
            return fail_at(r, SL_ERR_UNSUPPORTED, at, "%s: type %" PRIu32 " (%s) is not supported",
                           r->what, type, refused_types[i].name);
    return fail_at(r, SL_ERR_UNSUPPORTED, at,
                   "%s: type %" PRIu32 " is unknown: a newer format, or a damaged file", r->what,
                   type);
}

/* Size from type and dimensions, every product checked. */
static enum sl_status size_tensor(const struct reader *r, struct sl_gguf_tensor *t, uint64_t at) {
    const struct sl_dtype_info *info = sl_dtype_stored((uint32_t)t->dtype);
    uint64_t n = 1;
    for (uint32_t d = 0; d < t->n_dims; d++) {
        if (t->ne[d] == 0)
            return fail_at(r, SL_ERR_CORRUPT, at, "%s: dimension %" PRIu32 " is 0", r->what, d);
        if (__builtin_mul_overflow(n, t->ne[d], &n))
            n = UINT64_MAX;
    }
    if (n > UINT64_MAX / 16)
        return fail_at(r, SL_ERR_CORRUPT, at,
                       "%s: its dimensions multiply to more than 2^60 elements", r->what);
    if (t->ne[0] % info->block_elems != 0)
        return fail_at(r, SL_ERR_CORRUPT, at,
                       "%s: rows of %" PRIu64 " elements are not whole blocks of %u (%s)", r->what,
                       t->ne[0], info->block_elems, info->name);
    t->size_bytes = n / info->block_elems * info->block_bytes;
    return SL_OK;
}

static enum sl_status read_tensor(struct reader *r, struct sl_gguf_tensor *t, uint64_t index) {
    uint64_t at = r->pos;
    snprintf(r->what, sizeof r->what, "the name of tensor %" PRIu64 " of %" PRIu64, index + 1,
             r->f->n_tensors);
    SL_TRY(read_str(r, SL_GGUF_MAX_NAME_BYTES, &t->name));
    if (t->name.len == 0)
        return fail_at(r, SL_ERR_CORRUPT, at, "%s is empty", r->what);
    char name[96];
    snprintf(r->what, sizeof r->what, "tensor '%s'", sl_str_escape(t->name, name, sizeof name));

    uint64_t dims_at = r->pos;
    SL_TRY(read_u32(r, &t->n_dims));
    if (t->n_dims == 0 || t->n_dims > SL_GGUF_MAX_DIMS)
        return fail_at(r, SL_ERR_CORRUPT, dims_at, "%s: %" PRIu32 " dimensions, 1 to 4 are allowed",
                       r->what, t->n_dims);
    for (uint32_t d = 0; d < SL_GGUF_MAX_DIMS; d++) {
        t->ne[d] = 1;
        if (d < t->n_dims)
            SL_TRY(read_u64(r, &t->ne[d]));
    }
    uint32_t type;
    at = r->pos;
    SL_TRY(read_u32(r, &type));
    SL_TRY(read_u64(r, &t->offset_bytes));
    if (!sl_dtype_stored(type))
        return refuse_type(r, at, type);
    t->dtype = (enum sl_dtype)type;
    return size_tensor(r, t, dims_at);
}

static int by_offset(const void *a, const void *b, void *ctx) {
    const struct sl_gguf_tensor *t = ctx;
    uint64_t x = t[*(const uint32_t *)a].offset_bytes, y = t[*(const uint32_t *)b].offset_bytes;
    return x < y ? -1 : x > y;
}

/* Relative offsets become absolute; data must lie inside the file and tensors apart. */
static enum sl_status place_tensors(struct reader *r, const uint64_t *entry_at) {
    struct sl_gguf_file *f = r->f;
    uint64_t mask = f->alignment - 1, data = (r->pos + mask) & ~mask;
    char name[96], other[96];
    if (f->n_tensors == 0)
        return SL_OK;
    for (uint64_t i = 0; i < f->n_tensors; i++) {
        struct sl_gguf_tensor *t = &f->tensors[i];
        sl_str_escape(t->name, name, sizeof name);
        if (t->offset_bytes & mask)
            return fail_at(r, SL_ERR_CORRUPT, entry_at[i],
                           "tensor '%s': offset %" PRIu64
                           " is not a multiple of the alignment %" PRIu32,
                           name, t->offset_bytes, f->alignment);
        if (data > f->size_bytes || t->offset_bytes > f->size_bytes - data ||
            t->size_bytes > f->size_bytes - data - t->offset_bytes)
            return fail_at(r, SL_ERR_CORRUPT, entry_at[i],
                           "tensor '%s': its %" PRIu64 " bytes at %" PRIu64 " + %" PRIu64
                           " pass the end of the file at %" PRIu64
                           ": truncated or damaged, download it again",
                           name, t->size_bytes, data, t->offset_bytes, f->size_bytes);
        t->offset_bytes += data;
    }
    uint32_t *order = malloc((size_t)f->n_tensors * sizeof *order);
    if (!order)
        return sl_fail(r->err, SL_ERR_NOMEM, "out of memory for %" PRIu64 " tensors", f->n_tensors);
    for (uint32_t i = 0; i < f->n_tensors; i++)
        order[i] = i;
    qsort_r(order, (size_t)f->n_tensors, sizeof *order, by_offset, f->tensors);
    enum sl_status status = SL_OK;
    for (uint64_t i = 1; i < f->n_tensors && status == SL_OK; i++) {
        const struct sl_gguf_tensor *a = &f->tensors[order[i - 1]], *b = &f->tensors[order[i]];
        if (b->offset_bytes - a->offset_bytes < a->size_bytes)
            status = fail_at(r, SL_ERR_CORRUPT, entry_at[order[i]], "tensors '%s' and '%s' overlap",
                             sl_str_escape(a->name, other, sizeof other),
                             sl_str_escape(b->name, name, sizeof name));
    }
    free(order);
    return status;
}

static enum sl_status read_header(struct reader *r) {
    struct sl_gguf_file *f = r->f;
    char path[160];
    snprintf(r->what, sizeof r->what, "the header");
    const char *short_path = sl_gguf_short_path(f->path, path, sizeof path);
    if (f->size_bytes < 4)
        return sl_fail(r->err, SL_ERR_CORRUPT, "%s: not a GGUF file: only %" PRIu64 " bytes",
                       short_path, f->size_bytes);
    SL_TRY(need(r, 4));
    if (memcmp(f->meta, "GGUF", 4) != 0) {
        struct sl_str head = {(const char *)f->meta, 4};
        char text[24];
        const char *hint = "";
        if (memcmp(f->meta, "vers", 4) == 0)
            hint = ": this looks like a Git LFS pointer, fetch the file itself (git lfs pull)";
        else if (memcmp(f->meta, "lmgg", 4) == 0 || memcmp(f->meta, "tjgg", 4) == 0 ||
                 memcmp(f->meta, "fmgg", 4) == 0)
            hint = ": this is the old GGML format, convert the model again";
        return sl_fail(r->err, SL_ERR_CORRUPT, "%s: not a GGUF file (it begins with \"%s\")%s",
                       short_path, sl_str_escape(head, text, sizeof text), hint);
    }
    r->pos = 4;
    SL_TRY(read_u32(r, &f->version));
    if (f->version != 0 && (f->version & 0xffff) == 0)
        return fail_at(r, SL_ERR_UNSUPPORTED, 4,
                       "a big-endian GGUF file; only little-endian ones are supported");
    if (f->version != 2 && f->version != 3)
        return fail_at(r, SL_ERR_UNSUPPORTED, 4,
                       "GGUF version %" PRIu32 " is not supported, versions 2 and 3 are%s",
                       f->version, f->version == 1 ? ": convert the model again" : "");
    uint64_t at = r->pos;
    SL_TRY(read_u64(r, &f->n_tensors));
    SL_TRY(read_u64(r, &f->n_kv));
    /* The smallest entries: a tensor takes 8+1+4+8+4+8 bytes, a key 8+1+4+1. */
    uint64_t rest = f->size_bytes - r->pos;
    if (f->n_tensors > SL_GGUF_MAX_TENSORS || f->n_tensors > rest / 33)
        return fail_at(r, SL_ERR_CORRUPT, at,
                       "a count of %" PRIu64 " tensors (limit %u) does not fit a file of %" PRIu64
                       " bytes",
                       f->n_tensors, SL_GGUF_MAX_TENSORS, f->size_bytes);
    if (f->n_kv > SL_GGUF_MAX_KV || f->n_kv > rest / 14)
        return fail_at(r, SL_ERR_CORRUPT, at + 8,
                       "a count of %" PRIu64 " keys (limit %u) does not fit a file of %" PRIu64
                       " bytes",
                       f->n_kv, SL_GGUF_MAX_KV, f->size_bytes);
    return SL_OK;
}

static enum sl_status parse_all(struct reader *r) {
    struct sl_gguf_file *f = r->f;
    SL_TRY(read_header(r));
    enum sl_status status = SL_OK;
    f->kv = calloc((size_t)f->n_kv + 1, sizeof *f->kv);
    f->tensors = calloc((size_t)f->n_tensors + 1, sizeof *f->tensors);
    uint64_t *entry_at = calloc((size_t)f->n_tensors + 1, sizeof *entry_at);
    if (!f->kv || !f->tensors || !entry_at)
        status = sl_fail(r->err, SL_ERR_NOMEM,
                         "out of memory for %" PRIu64 " keys and %" PRIu64 " tensors", f->n_kv,
                         f->n_tensors);
    for (uint64_t i = 0; i < f->n_kv && status == SL_OK; i++)
        status = read_kv(r, &f->kv[i], i);
    if (status == SL_OK)
        status = read_alignment(r);
    for (uint64_t i = 0; i < f->n_tensors && status == SL_OK; i++) {
        entry_at[i] = r->pos;
        status = read_tensor(r, &f->tensors[i], i);
    }
    if (status == SL_OK)
        status = place_tensors(r, entry_at);
    free(entry_at);
    return status;
}

enum sl_status sl_gguf_file_parse(struct sl_gguf_file *f, int fd, struct sl_err *err) {
    struct reader r = {.f = f, .err = err, .fd = fd};
    r.limit = f->size_bytes < SL_GGUF_MAX_META_BYTES ? f->size_bytes : SL_GGUF_MAX_META_BYTES;
    if (fd < 0) {
        r.have = f->size_bytes;
    } else if (r.limit > 0) {
        void *map = mmap(NULL, (size_t)r.limit, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (map == MAP_FAILED)
            return sl_fail(err, SL_ERR_NOMEM, "cannot reserve %" PRIu64 " bytes for metadata: %s",
                           r.limit, strerror(errno));
        f->meta = r.fill = map;
        f->mapped_bytes = (size_t)r.limit;
    }
    enum sl_status status = parse_all(&r);
    f->meta_bytes = r.pos;
    if (status == SL_OK && f->mapped_bytes) {
        /* Give back what was reserved and not used; shrinking never moves the mapping. */
        void *same = mremap((void *)f->meta, f->mapped_bytes, (size_t)r.pos, 0);
        if (same != MAP_FAILED)
            f->mapped_bytes = (size_t)r.pos;
    }
    return status;
}

void sl_gguf_file_release(struct sl_gguf_file *f) {
    if (f->mapped_bytes)
        munmap((void *)f->meta, f->mapped_bytes);
    free(f->kv);
    free(f->tensors);
    free(f->path);
    memset(f, 0, sizeof *f);
}

const char *sl_gguf_short_path(const char *path, char *buf, size_t size) {
    size_t len = strlen(path);
    if (len <= 120)
        return path;
    snprintf(buf, size, "...%s", path + len - 120);
    return buf;
}

const char *sl_str_escape(struct sl_str s, char *buf, size_t size) {
    size_t n = 0;
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.ptr[i];
        size_t room = c >= 0x20 && c < 0x7f && c != '\\' ? 1 : 4;
        if (n + room + 4 > size) { /* "..." and the NUL */
            memcpy(buf + n, "...", 3);
            n += 3;
            break;
        }
        if (room == 1)
            buf[n++] = (char)c;
        else
            n += (size_t)snprintf(buf + n, 5, "\\x%02x", c);
    }
    buf[n] = 0;
    return buf;
}
