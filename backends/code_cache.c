#include "backends/code_cache.h"

#include "common/crc.h"
#include "common/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
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

/* What is wrong with the n bytes of a file; NULL: nothing. Sets *h to its header. */
static const char *wrong(const uint8_t *bytes, size_t n, struct sl_hash128 key, struct header *h) {
    if (n >= sizeof *h)
        memcpy(h, bytes, sizeof *h);
    if (n < sizeof *h || memcmp(h->magic, magic, sizeof magic) != 0 || h->crc != header_crc(h))
        return "it is not one of this program's";
    if (!same(h->key, key))
        return "it belongs to other kernels or another driver";
    if (h->bytes != n - sizeof *h ||
        !same(h->sum, sl_siphash128(sum_key, bytes + sizeof *h, h->bytes)))
        return "it was damaged";
    return NULL;
}

/* Why an open file may not be used; NULL: it may. Only this user can have written it, since it
 * will run. */
static const char *refusal(int fd, struct stat *out_about) {
    if (fstat(fd, out_about) != 0)
        return strerror(errno);
    if (!S_ISREG(out_about->st_mode))
        return "it is not a regular file";
    if (out_about->st_uid != geteuid())
        return "it belongs to another user";
    if (out_about->st_mode & (S_IWGRP | S_IWOTH))
        return "other users may write to it";
    if ((uint64_t)out_about->st_size > SL_CODE_MAX_BYTES + sizeof(struct header))
        return "it is too large";
    return NULL;
}

/* All of a file. NULL: it may not be used, and why; or it is not there, and no reason. */
static uint8_t *read_all(const char *path, size_t *out_bytes, const char **out_why) {
    struct stat about;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    *out_why = fd < 0 ? strerror(errno) : refusal(fd, &about);
    if (fd < 0) {
        if (lstat(path, &about) != 0)
            *out_why = NULL;
        return NULL;
    }
    uint8_t *bytes = NULL;
    size_t n = 0;
    if (!*out_why && !(bytes = malloc((size_t)about.st_size + 1)))
        *out_why = strerror(ENOMEM);
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
    const char *why;
    uint8_t *bytes = read_all(f->path, &n, &why);
    if (!bytes) {
        if (why)
            sl_warn("%s: compiled kernels in %s are not used, but compiled anew: %s", f->backend,
                    f->path, why);
        return NULL;
    }
    why = wrong(bytes, n, f->key, &h);
    if (why) {
        sl_code_file_drop(f, why);
        free(bytes);
        return NULL;
    }
    utimensat(AT_FDCWD, f->path, NULL, AT_SYMLINK_NOFOLLOW); /* in use: see remove_unused */
    memmove(bytes, bytes + sizeof h, h.bytes);
    *out_bytes = h.bytes;
    return bytes;
}

/* 0, or an errno. */
static int write_all(int fd, const void *src, size_t n) {
    for (const char *at = src; n;) {
        ssize_t put = write(fd, at, n);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return put ? errno : EIO;
        at += put;
        n -= (size_t)put;
    }
    return 0;
}

/* sluice and the backend's, the last two folders of a path. 0, or the errno of the first that was
 * not made; one that is there already is fine. */
static int make_folders(const char *path) {
    char folder[SL_CODE_PATH_BYTES];
    snprintf(folder, sizeof folder, "%s", path);
    char *last = strrchr(folder, '/');
    *last = 0;
    char *between = strrchr(folder, '/');
    *between = 0;
    int why = mkdir(folder, 0700) == 0 || errno == EEXIST ? 0 : errno;
    *between = '/';
    if (mkdir(folder, 0700) != 0 && errno != EEXIST && !why)
        why = errno;
    return why;
}

/* 0, or the errno of what failed; then the file is as it was. */
static int replace(const char *path, const struct header *h, const void *data) {
    char other[SL_CODE_PATH_BYTES + 16];
    int no_folder = make_folders(path);
    snprintf(other, sizeof other, "%s.XXXXXX", path);
    int fd = mkostemp(other, O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT && no_folder ? no_folder : errno;
    int why = write_all(fd, h, sizeof *h);
    if (!why)
        why = write_all(fd, data, h->bytes);
    if (!why && fsync(fd) != 0)
        why = errno;
    if (close(fd) != 0 && !why)
        why = errno;
    if (!why && rename(other, path) != 0)
        why = errno;
    if (why)
        unlink(other);
    return why;
}

/* Whether a file is this user's, begins as those written here do, and was last read or written
 * before that time. */
static bool is_unused(int folder, const char *name, time_t before) {
    char begins[sizeof magic];
    struct stat about;
    if (fstatat(folder, name, &about, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(about.st_mode) ||
        about.st_uid != geteuid() || about.st_mtime >= before)
        return false;
    int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return false;
    bool ours = read(fd, begins, sizeof begins) == (ssize_t)sizeof begins &&
                memcmp(begins, magic, sizeof magic) == 0;
    close(fd);
    return ours;
}

/* From the folder of a file. */
static void remove_unused(const struct sl_code_file *f) {
    char folder[SL_CODE_PATH_BYTES];
    time_t before = time(NULL) - (time_t)SL_CODE_UNUSED_DAYS * 24 * 3600;
    snprintf(folder, sizeof folder, "%s", f->path);
    *strrchr(folder, '/') = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *e; dir && (e = readdir(dir));)
        if (is_unused(dirfd(dir), e->d_name, before) && unlinkat(dirfd(dir), e->d_name, 0) == 0)
            sl_debug("%s: removed %s/%s, which no start has read for %u days", f->backend, folder,
                     e->d_name, SL_CODE_UNUSED_DAYS);
    if (dir)
        closedir(dir);
}

bool sl_code_file_write(const struct sl_code_file *f, const void *data, size_t bytes) {
    struct header h = {.key = f->key, .bytes = bytes};
    if (!*f->path)
        return false;
    memcpy(h.magic, magic, sizeof magic);
    h.sum = sl_siphash128(sum_key, data, bytes);
    h.crc = header_crc(&h);
    int why = bytes > SL_CODE_MAX_BYTES ? EFBIG : replace(f->path, &h, data);
    if (why) {
        sl_warn("%s: compiled kernels are not kept in %s, so the next start compiles them again: "
                "%s",
                f->backend, f->path, strerror(why));
        return false;
    }
    sl_debug("%s: %zu bytes of compiled kernels written to %s", f->backend, bytes, f->path);
    remove_unused(f);
    return true;
}
