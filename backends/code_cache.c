#include "backends/code_cache.h"

#include "common/crc.h"
#include "common/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char magic[8] = "SLCODE1";
/* Of sums, which are no secret. */
static const struct sl_hash128 sum_key;

struct header {
    char magic[8];
    struct sl_hash128 key, sum; /* the sum is the data's */
    uint64_t bytes;             /* of the data */
    uint32_t crc;               /* of the header before it */
    uint32_t zero;
};

static bool below(struct sl_code_file *out, const char *folder, const char *under,
                  const char *name) {
    char base[SL_CODE_PATH_BYTES];
    struct stat about;
    int n = folder && *folder ? snprintf(base, sizeof base, "%s%s", folder, under) : -1;
    if (n < 0 || (size_t)n >= sizeof base || stat(base, &about) != 0 || !S_ISDIR(about.st_mode))
        return false;
    n = snprintf(out->path, sizeof out->path, "%s/sluice/%s/%s", base, out->backend, name);
    return n > 0 && (size_t)n < sizeof out->path;
}

bool sl_code_file_find(struct sl_code_file *out, const char *backend, const char *name) {
    out->backend = backend;
    if (below(out, getenv("XDG_CACHE_HOME"), "", name) ||
        below(out, getenv("HOME"), "/.cache", name))
        return true;
    *out->path = 0;
    return false;
}

static uint32_t header_crc(const struct header *h) {
    return sl_crc32c(0, h, offsetof(struct header, crc));
}

static bool same(struct sl_hash128 a, struct sl_hash128 b) {
    return a.lo == b.lo && a.hi == b.hi;
}

/* What is wrong with a file; NULL: nothing. */
static const char *wrong(const struct header *h, size_t n, struct sl_hash128 key,
                         const uint8_t *data) {
    if (n < sizeof *h || memcmp(h->magic, magic, sizeof magic) != 0 || h->crc != header_crc(h))
        return "it is not one of this program's";
    if (!same(h->key, key))
        return "it belongs to other kernels or another driver";
    if (h->bytes != n - sizeof *h || !same(h->sum, sl_siphash128(sum_key, data, h->bytes)))
        return "it was damaged";
    return NULL;
}

/* Only what this user wrote, since it will run. */
static bool is_ours(const struct stat *about) {
    return S_ISREG(about->st_mode) && about->st_uid == geteuid() &&
           !(about->st_mode & (S_IWGRP | S_IWOTH));
}

/* All of a file, at most max bytes; NULL: it cannot be read. */
static uint8_t *read_all(const char *path, size_t max, size_t *out_bytes) {
    struct stat about;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return NULL;
    uint8_t *bytes = NULL;
    size_t n = 0;
    if (fstat(fd, &about) == 0 && is_ours(&about) && about.st_size >= 0 &&
        (uint64_t)about.st_size <= max)
        bytes = malloc((size_t)about.st_size + 1);
    while (bytes && n < (size_t)about.st_size) {
        ssize_t got = read(fd, bytes + n, (size_t)about.st_size - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    close(fd);
    *out_bytes = n;
    return bytes;
}

void sl_code_file_drop(const struct sl_code_file *f, const char *why) {
    sl_warn("%s: compiled kernels in %s are thrown away: %s", f->backend, f->path, why);
    unlink(f->path);
}

void *sl_code_file_read(const struct sl_code_file *f, size_t *out_bytes) {
    struct header h = {.bytes = 0};
    size_t n = 0;
    uint8_t *bytes = read_all(f->path, SL_CODE_MAX_BYTES + sizeof h, &n);
    struct stat about;
    if (!bytes) { /* no such file, or nothing that this program wrote */
        if (*f->path && lstat(f->path, &about) == 0)
            sl_warn("%s: compiled kernels in %s are not used: it cannot be read, or others may "
                    "write to it",
                    f->backend, f->path);
        return NULL;
    }
    if (n >= sizeof h)
        memcpy(&h, bytes, sizeof h);
    const char *why = wrong(&h, n, f->key, bytes + sizeof h);
    if (why) {
        sl_code_file_drop(f, why);
        free(bytes);
        return NULL;
    }
    memmove(bytes, bytes + sizeof h, h.bytes);
    *out_bytes = h.bytes;
    return bytes;
}

static bool write_all(int fd, const void *src, size_t n) {
    for (const char *at = src; n;) {
        ssize_t put = write(fd, at, n);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return false;
        at += put;
        n -= (size_t)put;
    }
    return true;
}

/* sluice and the backend's, the last two folders of a path. */
static void make_folders(const char *path) {
    char folder[SL_CODE_PATH_BYTES];
    snprintf(folder, sizeof folder, "%s", path);
    char *last = strrchr(folder, '/');
    *last = 0;
    char *between = strrchr(folder, '/');
    *between = 0;
    mkdir(folder, 0700); /* one that is there is fine; one that cannot be made shows in open */
    *between = '/';
    mkdir(folder, 0700);
}

bool sl_code_file_write(const struct sl_code_file *f, const void *data, size_t bytes) {
    char other[SL_CODE_PATH_BYTES + 16];
    struct header h = {.key = f->key, .bytes = bytes};
    if (!*f->path || bytes > SL_CODE_MAX_BYTES)
        return false;
    memcpy(h.magic, magic, sizeof magic);
    h.sum = sl_siphash128(sum_key, data, bytes);
    h.crc = header_crc(&h);
    make_folders(f->path);
    snprintf(other, sizeof other, "%s.XXXXXX", f->path);
    int fd = mkostemp(other, O_CLOEXEC);
    bool good =
        fd >= 0 && write_all(fd, &h, sizeof h) && write_all(fd, data, bytes) && fsync(fd) == 0;
    if (fd >= 0 && close(fd) != 0)
        good = false;
    good = good && rename(other, f->path) == 0;
    if (!good && fd >= 0)
        unlink(other);
    sl_debug("%s: %zu bytes of compiled kernels %s %s", f->backend, bytes,
             good ? "written to" : "not written to", f->path);
    return good;
}
