/* Opening a block store's folder: whose it is, its lock, its key. */
#include "engine/prefix/block_file.h"
#include "engine/prefix/block_folder_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum sl_status sl_block_folder_refuse(const struct sl_block_folder *f, const char *what,
                                      struct sl_err *err) {
    return sl_fail(err, SL_ERR_CONFIG, "--cache-dir %s: %s: %s", f->path, what, strerror(errno));
}

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

/* ---- whose it is ---- */

/* Who may write to the folder could put other texts' pages there, or take these away. */
static enum sl_status check_owner(const struct sl_block_folder *f, struct sl_err *err) {
    struct stat about;
    if (fstat(f->fd, &about) != 0)
        return sl_block_folder_refuse(f, "the folder cannot be looked at", err);
    if (about.st_uid != geteuid())
        return sl_fail(err, SL_ERR_CONFIG,
                       "--cache-dir %s: the folder belongs to user %u, and this is user %u: chown "
                       "it, or name a folder in it, which is made",
                       f->path, (unsigned)about.st_uid, (unsigned)geteuid());
    if (about.st_mode & (S_IWGRP | S_IWOTH))
        return sl_fail(err, SL_ERR_CONFIG,
                       "--cache-dir %s: others can write to the folder (mode %03o): chmod go-w it, "
                       "or name a folder in it, which is made with mode 0700",
                       f->path, (unsigned)about.st_mode & 0777);
    return SL_OK;
}

/* A folder whose key does not say so is taken only if nothing else is in it: "" or what is. The
 * root of a file system may have its lost+found. */
static enum sl_status check_strangers(const struct sl_block_folder *f, struct sl_err *err) {
    int fd = openat(f->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d) {
        if (fd >= 0)
            close(fd);
        return sl_block_folder_refuse(f, "the folder cannot be listed", err);
    }
    enum sl_status status = SL_OK;
    for (struct dirent *e; status == SL_OK && (e = readdir(d));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
            strcmp(e->d_name, "lost+found") != 0 &&
            sl_block_entry_kind(f->fd, e->d_name) == SL_ENTRY_FOREIGN &&
            faccessat(f->fd, e->d_name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
            status =
                sl_fail(err, SL_ERR_CONFIG,
                        "--cache-dir %s: not a prefix cache: it holds '%.100s', which is not of "
                        "this program; name an empty folder, or one that is not there yet",
                        f->path, e->d_name);
    closedir(d);
    return status;
}

/* Its key says that a folder is a prefix cache; the secret in it must be nobody else's. */
static enum sl_status check_key(const struct sl_block_folder *f, bool *out_there,
                                struct sl_err *err) {
    struct stat about;
    *out_there = fstatat(f->fd, "key", &about, AT_SYMLINK_NOFOLLOW) == 0;
    if (!*out_there)
        return errno == ENOENT ? SL_OK
                               : sl_block_folder_refuse(f, "its key cannot be looked at", err);
    if (sl_block_entry_kind(f->fd, "key") != SL_ENTRY_KEY)
        return sl_fail(err, SL_ERR_CONFIG,
                       "--cache-dir %s: not a prefix cache: the file 'key' in it is not of this "
                       "program, or cannot be read; name an empty folder, or one that is not there "
                       "yet",
                       f->path);
    if (about.st_uid != geteuid() || (about.st_mode & 077))
        return sl_fail(err, SL_ERR_CONFIG,
                       "--cache-dir %s: its key was open to others (user %u, mode %03o), who could "
                       "have forged what is in the folder: remove the folder, or name another",
                       f->path, (unsigned)about.st_uid, (unsigned)about.st_mode & 0777);
    return SL_OK;
}

/* An empty key, or one of zeros, as a power cut may leave it, says nothing of whose folder it is.
 */
static bool is_marked(const struct sl_block_folder *f) {
    char mark[SL_BLOCK_MARK_BYTES];
    int fd = openat(f->fd, "key", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    bool marked = fd >= 0 && sl_block_read_all(fd, mark, sizeof mark) == (ssize_t)sizeof mark &&
                  memcmp(mark, SL_BLOCK_KEY_MARK, sizeof mark) == 0;
    if (fd >= 0)
        close(fd);
    return marked;
}

static enum sl_status open_folder(struct sl_block_folder *f, bool *out_key, struct sl_err *err) {
    f->fd = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->fd < 0 && errno == ENOTDIR)
        return sl_fail(err, SL_ERR_CONFIG, "--cache-dir %s: must be a folder", f->path);
    if (f->fd < 0)
        return sl_block_folder_refuse(f, "the folder cannot be opened", err);
    enum sl_status status = check_owner(f, err);
    if (status == SL_OK)
        status = check_key(f, out_key, err);
    return status == SL_OK && !(*out_key && is_marked(f)) ? check_strangers(f, err) : status;
}

/* ---- lock and key ---- */

static enum sl_status take_lock(struct sl_block_folder *f, struct sl_err *err) {
    struct stat about;
    f->lock_fd = openat(f->fd, "lock",
                        O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0600);
    if (f->lock_fd < 0 || fstat(f->lock_fd, &about) != 0)
        return sl_block_folder_refuse(f, "its lock cannot be opened", err);
    if (!S_ISREG(about.st_mode))
        return sl_fail(err, SL_ERR_CONFIG, "--cache-dir %s: its lock is not a file", f->path);
    if (flock(f->lock_fd, LOCK_EX | LOCK_NB) == 0)
        return SL_OK;
    if (errno != EWOULDBLOCK)
        return sl_block_folder_refuse(f, "its lock cannot be taken", err);
    return sl_fail(err, SL_AGAIN, "--cache-dir %s is in use by another process", f->path);
}

/* The folder's secret with a hash of itself, so that half a file is known for what it is. */
struct key_file {
    char magic[SL_BLOCK_MARK_BYTES];
    struct sl_hash128 secret, check;
};
_Static_assert(sizeof(struct key_file) == SL_BLOCK_KEY_BYTES, "said otherwise in block_file.h");

static bool read_key(struct sl_block_folder *f) {
    struct key_file k;
    int fd = openat(f->fd, "key", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool whole = sl_block_read_all(fd, &k, sizeof k) == (ssize_t)sizeof k;
    close(fd);
    if (!whole || memcmp(k.magic, SL_BLOCK_KEY_MARK, sizeof k.magic) != 0)
        return false;
    struct sl_hash128 check = sl_siphash128(k.secret, k.magic, sizeof k.magic);
    f->secret = k.secret;
    return memcmp(&check, &k.check, sizeof check) == 0;
}

static enum sl_status make_key(struct sl_block_folder *f, struct sl_err *err) {
    struct key_file k = {.secret = {0}};
    uint64_t file_bytes;
    memcpy(k.magic, SL_BLOCK_KEY_MARK, sizeof k.magic);
    if (getrandom(&k.secret, sizeof k.secret, 0) != (ssize_t)sizeof k.secret)
        return sl_block_folder_refuse(f, "the system gives no random numbers", err);
    k.check = sl_siphash128(k.secret, k.magic, sizeof k.magic);
    if (!sl_block_write_new(f->fd, "key", SL_ENTRY_KEY, &k, sizeof k, true, &file_bytes))
        return sl_block_folder_refuse(f, "its key cannot be written", err);
    f->secret = k.secret;
    return SL_OK;
}

static enum sl_status set_path(struct sl_block_folder *f, const char *path, struct sl_err *err) {
    f->fd = f->lock_fd = -1;
    if (snprintf(f->path, sizeof f->path, "%s", path) >= (int)sizeof f->path)
        return sl_fail(err, SL_ERR_CONFIG, "--cache-dir: the path is too long");
    return SL_OK;
}

enum sl_status sl_block_folder_open(struct sl_block_folder *f, const char *path, bool *out_kept,
                                    struct sl_err *err) {
    bool has_key;
    SL_TRY(set_path(f, path, err));
    if (!make_folder(f->path))
        return sl_block_folder_refuse(f, "the folder cannot be made", err);
    enum sl_status status = open_folder(f, &has_key, err);
    if (status == SL_OK)
        status = take_lock(f, err);
    if (status == SL_OK)
        status = check_key(f, &has_key, err); /* of whoever had the lock before */
    if (status != SL_OK)
        return status;
    *out_kept = has_key && read_key(f);
    return *out_kept ? SL_OK : make_key(f, err);
}

void sl_block_folder_close(struct sl_block_folder *f) {
    if (f->lock_fd >= 0)
        close(f->lock_fd);
    if (f->fd >= 0)
        close(f->fd);
    f->fd = f->lock_fd = -1;
}

enum sl_status sl_block_folder_check(const char *path, struct sl_err *err) {
    struct sl_block_folder f;
    struct stat about;
    bool has_key;
    enum sl_status status = set_path(&f, path, err);
    if (status != SL_OK || (stat(path, &about) != 0 && errno == ENOENT))
        return status;
    status = open_folder(&f, &has_key, err);
    sl_block_folder_close(&f);
    return status;
}
