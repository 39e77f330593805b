/* The entries of the folder: names, marks, whole reads and writes. */
#include "engine/prefix/block_folder_internal.h"

#include "engine/prefix/block_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- names ---- */

static bool is_hex(const char *text, size_t n) {
    return strspn(text, "0123456789abcdef") >= n;
}

bool sl_block_key_of(const char *name, struct sl_hash128 *out_key) {
    return strlen(name) == 35 && is_hex(name, 32) && strcmp(name + 32, ".kv") == 0 &&
           sscanf(name, "%16" SCNx64 "%16" SCNx64, &out_key->hi, &out_key->lo) == 2;
}

#define TEMP_HEAD "sluice-"

static bool make_temp_name(char out[SL_BLOCK_TEMP_SIZE]) {
    uint64_t random;
    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
        return false;
    snprintf(out, SL_BLOCK_TEMP_SIZE, TEMP_HEAD "%016" PRIx64 ".tmp", random);
    return true;
}

/* As they are made now, and as earlier versions made them: "<32 hex digits>.tmp" and "key.tmp". */
bool sl_block_is_temp_name(const char *name) {
    size_t head = sizeof TEMP_HEAD - 1;
    if (strncmp(name, TEMP_HEAD, head) == 0)
        return is_hex(name + head, 16) && strcmp(name + head + 16, ".tmp") == 0;
    return strcmp(name, "key.tmp") == 0 ||
           (strlen(name) == 36 && is_hex(name, 32) && strcmp(name + 32, ".tmp") == 0);
}

/* ---- marks ---- */

/* Both kinds of file begin with eight bytes of their own. A file that a process or a power cut left
 * behind may be empty, cut, or zeros. */
static bool starts_as(const uint8_t *start, size_t n, const char *mark) {
    static const uint8_t zeros[SL_BLOCK_MARK_BYTES];
    size_t m = n < SL_BLOCK_MARK_BYTES ? n : SL_BLOCK_MARK_BYTES;
    return memcmp(start, mark, m) == 0 || memcmp(start, zeros, m) == 0;
}

/* A damaged block whose mark is gone is known by the key that it repeats. */
static bool is_block(const uint8_t *start, size_t n, const struct sl_hash128 *key) {
    return starts_as(start, n, SL_BLOCK_MARK) ||
           (n >= SL_BLOCK_KEY_AT + sizeof *key &&
            memcmp(start + SL_BLOCK_KEY_AT, key, sizeof *key) == 0);
}

enum sl_block_entry_kind sl_block_entry_kind(int folder, const char *name) {
    uint8_t start[64];
    struct stat about;
    struct sl_hash128 key;
    enum sl_block_entry_kind kind = SL_ENTRY_FOREIGN;
    /* A fifo or a device in the folder must not hold us. */
    int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return SL_ENTRY_FOREIGN;
    ssize_t got =
        fstat(fd, &about) == 0 && S_ISREG(about.st_mode) ? pread(fd, start, sizeof start, 0) : -1;
    close(fd);
    size_t n = got > 0 ? (size_t)got : 0;
    if (got < 0)
        return SL_ENTRY_FOREIGN;
    if (strcmp(name, "lock") == 0)
        kind = about.st_size == 0 ? SL_ENTRY_LOCK : SL_ENTRY_FOREIGN;
    else if (strcmp(name, "key") == 0)
        kind = about.st_size <= SL_BLOCK_KEY_BYTES && starts_as(start, n, SL_BLOCK_KEY_MARK)
                   ? SL_ENTRY_KEY
                   : SL_ENTRY_FOREIGN;
    else if (sl_block_key_of(name, &key))
        kind = is_block(start, n, &key) ? SL_ENTRY_BLOCK : SL_ENTRY_FOREIGN;
    else if (sl_block_is_temp_name(name) &&
             (starts_as(start, n, SL_BLOCK_MARK) || starts_as(start, n, SL_BLOCK_KEY_MARK)))
        kind = SL_ENTRY_LEFT_OVER;
    return kind;
}

/* ---- whole reads and writes ---- */

uint64_t sl_block_disk_bytes(const struct stat *about) {
    return (uint64_t)about->st_blocks * 512;
}

ssize_t sl_block_read_all(int fd, void *to, size_t n) {
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

/* Gives a file its name; in the place of another only where that is ours. */
static bool give_name(int folder, const char *temp, const char *name,
                      enum sl_block_entry_kind kind) {
    struct stat about;
    if (renameat2(folder, temp, folder, name, RENAME_NOREPLACE) == 0)
        return true;
    int error = errno;
    if (error == EINVAL || error == ENOSYS) /* the file system cannot tell */
        error = fstatat(folder, name, &about, AT_SYMLINK_NOFOLLOW) == 0 ? EEXIST : 0;
    if ((error && error != EEXIST) ||
        (error == EEXIST && sl_block_entry_kind(folder, name) != kind)) {
        errno = error;
        return false;
    }
    return renameat(folder, temp, folder, name) == 0;
}

bool sl_block_write_new(int folder, const char *name, enum sl_block_entry_kind kind,
                        const void *from, size_t n, bool synced, uint64_t *out_file_bytes) {
    char temp[SL_BLOCK_TEMP_SIZE];
    struct stat about;
    if (!make_temp_name(temp))
        return false;
    int fd = openat(folder, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    bool ok = write_all(fd, from, n) && (!synced || fsync(fd) == 0) && fstat(fd, &about) == 0;
    int error = errno;
    if (close(fd) != 0 && ok) {
        ok = false;
        error = errno;
    }
    if (ok && !give_name(folder, temp, name, kind)) {
        ok = false;
        error = errno;
    }
    if (ok)
        *out_file_bytes = sl_block_disk_bytes(&about);
    else
        unlinkat(folder, temp, 0);
    errno = error;
    return ok;
}
