#include "engine/prefix/block_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- names ---- */

static void name_of(struct sl_hash128 key, const char *end, char out[SL_BLOCK_NAME_SIZE]) {
    snprintf(out, SL_BLOCK_NAME_SIZE, "%016" PRIx64 "%016" PRIx64 "%s", key.hi, key.lo, end);
}

/* The key of "<32 hex digits>.kv". */
static bool key_of(const char *name, struct sl_hash128 *out_key) {
    char again[SL_BLOCK_NAME_SIZE];
    if (strlen(name) != 35 ||
        sscanf(name, "%16" SCNx64 "%16" SCNx64, &out_key->hi, &out_key->lo) != 2)
        return false;
    name_of(*out_key, ".kv", again);
    return strcmp(name, again) == 0;
}

void sl_block_folder_name(struct sl_hash128 key, char out[SL_BLOCK_NAME_SIZE]) {
    name_of(key, ".kv", out);
}

static uint64_t disk_bytes_of(const struct stat *about) {
    return (uint64_t)about->st_blocks * 512;
}

/* ---- whole reads and writes ---- */

/* Bytes read, less than asked for at the file's end; negative: errno is set. */
static ssize_t read_all(int fd, void *to, size_t n) {
    size_t have = 0;
    while (have < n) {
        ssize_t got = read(fd, (char *)to + have, n - have);
        if (got == 0)
            break;
        if (got < 0 && errno != EINTR)
            return -1;
        have += got > 0 ? (size_t)got : 0;
    }
    return (ssize_t)have;
}

static bool write_all(int fd, const void *from, size_t n) {
    for (size_t at = 0; at < n;) {
        ssize_t put = write(fd, (const char *)from + at, n - at);
        if (put < 0 && errno != EINTR)
            return false;
        at += put > 0 ? (size_t)put : 0;
    }
    return true;
}

/* The new file; what is in its place, whatever it is, goes. */
static int open_new(const struct sl_block_folder *f, const char *name) {
    unlinkat(f->fd, name, 0);
    return openat(f->fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
}

/* ---- opening ---- */

static bool make_folder(const char *path) {
    char folder[4096];
    size_t n = strlen(path);
    if (!n || n >= sizeof folder) {
        errno = n ? ENAMETOOLONG : ENOENT;
        return false;
    }
    memcpy(folder, path, n + 1);
    for (char *at = strchr(folder + 1, '/'); at; at = strchr(at + 1, '/')) {
        *at = 0;
        mkdir(folder, 0700); /* one that cannot be made shows in the last */
        *at = '/';
    }
    struct stat about;
    return mkdir(path, 0700) == 0 ||
           (errno == EEXIST && stat(path, &about) == 0 && S_ISDIR(about.st_mode));
}

static enum sl_status refuse(const struct sl_block_folder *f, const char *what,
                             struct sl_err *err) {
    return sl_fail(err, SL_ERR_CONFIG, "--cache-dir %s: %s: %s", f->path, what, strerror(errno));
}

static enum sl_status take_folder(struct sl_block_folder *f, struct sl_err *err) {
    if (!make_folder(f->path))
        return refuse(f, "the folder cannot be made", err);
    f->fd = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->fd < 0)
        return refuse(f, "the folder cannot be opened", err);
    f->lock_fd = openat(f->fd, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (f->lock_fd < 0)
        return refuse(f, "its lock cannot be opened", err);
    if (flock(f->lock_fd, LOCK_EX | LOCK_NB) == 0)
        return SL_OK;
    if (errno != EWOULDBLOCK)
        return refuse(f, "its lock cannot be taken", err);
    return sl_fail(err, SL_AGAIN, "--cache-dir %s is in use by another process", f->path);
}

/* The folder's secret with a hash of itself, so that half a file is known for what it is. */
struct key_file {
    char magic[8];
    struct sl_hash128 secret, check;
};

static const char key_magic[8] = {'S', 'L', 'U', 'I', 'C', 'E', 'K', 'Y'};

static bool read_key(struct sl_block_folder *f) {
    struct key_file k;
    int fd = openat(f->fd, "key", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool whole = read_all(fd, &k, sizeof k) == (ssize_t)sizeof k;
    close(fd);
    if (!whole || memcmp(k.magic, key_magic, sizeof k.magic) != 0)
        return false;
    struct sl_hash128 check = sl_siphash128(k.secret, k.magic, sizeof k.magic);
    f->secret = k.secret;
    return memcmp(&check, &k.check, sizeof check) == 0;
}

static enum sl_status make_key(struct sl_block_folder *f, struct sl_err *err) {
    struct key_file k = {.secret = {0}};
    memcpy(k.magic, key_magic, sizeof k.magic);
    if (getrandom(&k.secret, sizeof k.secret, 0) != (ssize_t)sizeof k.secret)
        return refuse(f, "the system gives no random numbers", err);
    k.check = sl_siphash128(k.secret, k.magic, sizeof k.magic);
    int fd = open_new(f, "key.tmp");
    if (fd < 0)
        return refuse(f, "its key cannot be written", err);
    bool ok = write_all(fd, &k, sizeof k) && fsync(fd) == 0;
    ok = close(fd) == 0 && ok;
    if (!ok || renameat(f->fd, "key.tmp", f->fd, "key") != 0)
        return refuse(f, "its key cannot be written", err);
    f->secret = k.secret;
    return SL_OK;
}

enum sl_status sl_block_folder_open(struct sl_block_folder *f, const char *path, bool *out_kept,
                                    struct sl_err *err) {
    f->fd = f->lock_fd = -1;
    if (snprintf(f->path, sizeof f->path, "%s", path) >= (int)sizeof f->path)
        return sl_fail(err, SL_ERR_CONFIG, "--cache-dir: the path is too long");
    enum sl_status st = take_folder(f, err);
    if (st != SL_OK)
        return st;
    *out_kept = read_key(f);
    return *out_kept ? SL_OK : make_key(f, err);
}

void sl_block_folder_close(struct sl_block_folder *f) {
    if (f->lock_fd >= 0)
        close(f->lock_fd);
    if (f->fd >= 0)
        close(f->fd);
    f->fd = f->lock_fd = -1;
}

/* ---- blocks ---- */

static int by_use(const void *a, const void *b) {
    const struct sl_block_found *x = a, *y = b;
    if (x->used.tv_sec != y->used.tv_sec)
        return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
    return x->used.tv_nsec < y->used.tv_nsec ? -1 : x->used.tv_nsec > y->used.tv_nsec;
}

static bool has_end(const char *name, const char *end) {
    size_t n = strlen(name), m = strlen(end);
    return n > m && strcmp(name + n - m, end) == 0;
}

enum sl_status sl_block_folder_list(const struct sl_block_folder *f, bool keep, size_t most,
                                    struct sl_block_found **out_list, size_t *out_n,
                                    struct sl_err *err) {
    struct sl_block_found *list = NULL;
    size_t n = 0, room = 0;
    int fd = dup(f->fd);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d) {
        if (fd >= 0)
            close(fd);
        return refuse(f, "the folder cannot be listed", err);
    }
    enum sl_status st = SL_OK;
    for (struct dirent *e; st == SL_OK && (e = readdir(d));) {
        struct sl_block_found found;
        struct stat about;
        bool block = key_of(e->d_name, &found.key);
        if (has_end(e->d_name, ".tmp") || (block && (!keep || n == most))) {
            unlinkat(f->fd, e->d_name, 0);
            continue;
        }
        if (!block || fstatat(f->fd, e->d_name, &about, AT_SYMLINK_NOFOLLOW) != 0 ||
            !S_ISREG(about.st_mode))
            continue;
        found.file_bytes = disk_bytes_of(&about);
        found.used = about.st_mtim;
        if (n == room) {
            room = room ? 2 * room : 256;
            struct sl_block_found *more = realloc(list, room * sizeof *list);
            if (!more) {
                st = sl_fail(err, SL_ERR_NOMEM, "no memory to list %s", f->path);
                break;
            }
            list = more;
        }
        list[n++] = found;
    }
    closedir(d);
    if (st != SL_OK) {
        free(list);
        return st;
    }
    if (n)
        qsort(list, n, sizeof *list, by_use);
    *out_list = list;
    *out_n = n;
    return SL_OK;
}

bool sl_block_folder_read(const struct sl_block_folder *f, struct sl_hash128 key, void *to,
                          size_t n, uint64_t *out_n) {
    char name[SL_BLOCK_NAME_SIZE];
    struct stat about;
    name_of(key, ".kv", name);
    /* A fifo or a device in the folder must not hold us. */
    int fd = openat(f->fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t got = -1;
    if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode)) {
        errno = ENOENT;
    } else if ((uint64_t)about.st_size != n) {
        got = 0;
        *out_n = (uint64_t)about.st_size;
    } else {
        got = read_all(fd, to, n);
        *out_n = (uint64_t)got;
        futimens(fd, NULL);
    }
    int error = errno;
    close(fd);
    errno = error;
    return got >= 0;
}

bool sl_block_folder_write(const struct sl_block_folder *f, struct sl_hash128 key, const void *from,
                           size_t n, uint64_t *out_file_bytes) {
    char name[SL_BLOCK_NAME_SIZE], beside[SL_BLOCK_NAME_SIZE];
    struct stat about;
    name_of(key, ".kv", name);
    name_of(key, ".tmp", beside);
    int fd = open_new(f, beside);
    if (fd < 0)
        return false;
    bool ok = write_all(fd, from, n) && fstat(fd, &about) == 0;
    int error = errno;
    if (close(fd) != 0 && ok) {
        ok = false;
        error = errno;
    }
    if (ok && renameat(f->fd, beside, f->fd, name) != 0) {
        ok = false;
        error = errno;
    }
    if (ok)
        *out_file_bytes = disk_bytes_of(&about);
    else
        unlinkat(f->fd, beside, 0);
    errno = error;
    return ok;
}

void sl_block_folder_remove(const struct sl_block_folder *f, struct sl_hash128 key) {
    char name[SL_BLOCK_NAME_SIZE];
    name_of(key, ".kv", name);
    unlinkat(f->fd, name, 0);
}
