#include "engine/prefix/block_folder_internal.h"

#include "engine/prefix/block_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void name_of(struct sl_hash128 key, char out[SL_BLOCK_NAME_SIZE]) {
    snprintf(out, SL_BLOCK_NAME_SIZE, "%016" PRIx64 "%016" PRIx64 ".kv", key.hi, key.lo);
}

void sl_block_folder_name(struct sl_hash128 key, char out[SL_BLOCK_NAME_SIZE]) {
    name_of(key, out);
}

static int by_use(const void *a, const void *b) {
    const struct sl_block_found *x = a, *y = b;
    if (x->used.tv_sec != y->used.tv_sec)
        return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
    return x->used.tv_nsec < y->used.tv_nsec ? -1 : x->used.tv_nsec > y->used.tv_nsec;
}

static void remove_ours(const struct sl_block_folder *f, const char *name,
                        enum sl_block_entry_kind kind) {
    if (sl_block_entry_kind(f->fd, name) == kind)
        unlinkat(f->fd, name, 0);
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
        return sl_block_folder_refuse(f, "the folder cannot be listed", err);
    }
    enum sl_status status = SL_OK;
    for (struct dirent *e; status == SL_OK && (e = readdir(d));) {
        struct sl_block_found found;
        struct stat about;
        bool block = sl_block_key_of(e->d_name, &found.key);
        if (sl_block_is_temp_name(e->d_name))
            remove_ours(f, e->d_name, SL_ENTRY_LEFT_OVER);
        if (block && (!keep || n == most)) {
            remove_ours(f, e->d_name, SL_ENTRY_BLOCK);
            continue;
        }
        if (!block || fstatat(f->fd, e->d_name, &about, AT_SYMLINK_NOFOLLOW) != 0 ||
            !S_ISREG(about.st_mode))
            continue;
        found.file_bytes = sl_block_disk_bytes(&about);
        found.used = about.st_mtim;
        if (n == room) {
            room = room ? 2 * room : 256;
            struct sl_block_found *more = realloc(list, room * sizeof *list);
            if (!more) {
                status = sl_fail(err, SL_ERR_NOMEM, "no memory to list %s", f->path);
                break;
            }
            list = more;
        }
        list[n++] = found;
    }
    closedir(d);
    if (status != SL_OK) {
        free(list);
        return status;
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
    name_of(key, name);
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
        got = sl_block_read_all(fd, to, n);
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
    char name[SL_BLOCK_NAME_SIZE];
    name_of(key, name);
    return sl_block_write_new(f->fd, name, SL_ENTRY_BLOCK, from, n, false, out_file_bytes);
}

void sl_block_folder_remove(const struct sl_block_folder *f, struct sl_hash128 key) {
    char name[SL_BLOCK_NAME_SIZE];
    name_of(key, name);
    remove_ours(f, name, SL_ENTRY_BLOCK);
}
