#include "common/output.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static enum sl_status cannot(const char *path, const char *why, struct sl_err *err) {
    return sl_fail(err, SL_ERR_IO, "%s: cannot be written: %s", path, why);
}

bool sl_file_has(int fd, uint64_t at, const void *bytes, size_t n) {
    char chunk[512];
    for (size_t done = 0; done < n;) {
        size_t part = n - done < sizeof chunk ? n - done : sizeof chunk;
        ssize_t got = pread(fd, chunk, part, (off_t)(at + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0 || memcmp(chunk, (const char *)bytes + done, (size_t)got) != 0)
            return false;
        done += (size_t)got;
    }
    return true;
}

static bool is_same(const struct stat *a, const struct stat *b) {
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static enum sl_status make_new(const char *path, mode_t mode, struct sl_output *o,
                               struct sl_err *err) {
    struct stat about;
    o->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (o->fd >= 0)
        return SL_OK;
    int error = errno;
    if (error == EEXIST && lstat(path, &about) == 0 && S_ISLNK(about.st_mode))
        return cannot(path, "it is a symbolic link to a file that is not there", err);
    return cannot(path, strerror(error), err);
}

/* Checked and written through one descriptor, so that nobody can put another file in between. */
static enum sl_status take_over(const char *path, const struct stat *was, sl_output_test is_ours,
                                const void *ctx, struct sl_output *o, struct sl_err *err) {
    struct stat is;
    o->fd = open(path, O_RDWR | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (o->fd < 0 || fstat(o->fd, &is) != 0)
        return cannot(path, strerror(errno), err);
    if (!is_same(&is, was) || !S_ISREG(is.st_mode))
        return cannot(path, "it was replaced a moment ago", err);
    if (is.st_size > 0 && !(is_ours && is_ours(o->fd, (uint64_t)is.st_size, ctx)))
        return cannot(path,
                      "it is there already and does not hold what this option writes; it was left "
                      "as it is: remove it, or give another name",
                      err);
    return ftruncate(o->fd, 0) == 0 ? SL_OK : cannot(path, strerror(errno), err);
}

static enum sl_status open_stream(const char *path, struct sl_output *o, struct sl_err *err) {
    struct stat is;
    o->fd = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (o->fd < 0)
        return cannot(path, errno == ENXIO ? "nobody reads from it" : strerror(errno), err);
    if (fstat(o->fd, &is) != 0)
        return cannot(path, strerror(errno), err);
    if (S_ISREG(is.st_mode))
        return cannot(path, "it was replaced a moment ago", err);
    int flags = fcntl(o->fd, F_GETFL);
    if (flags < 0 || fcntl(o->fd, F_SETFL, flags & ~O_NONBLOCK) != 0)
        return cannot(path, strerror(errno), err);
    return SL_OK;
}

enum sl_status sl_output_open(const char *path, mode_t mode, sl_output_test is_ours,
                              const void *ctx, struct sl_output *out, struct sl_err *err) {
    struct stat about = {0};
    *out = (struct sl_output){.fd = -1};
    enum sl_status status;
    if (stat(path, &about) != 0)
        status =
            errno == ENOENT ? make_new(path, mode, out, err) : cannot(path, strerror(errno), err);
    else if (S_ISBLK(about.st_mode))
        status = cannot(path, "it is a block device", err);
    else if (S_ISREG(about.st_mode))
        status = take_over(path, &about, is_ours, ctx, out, err);
    else
        status = open_stream(path, out, err);
    if (status == SL_OK && fstat(out->fd, &about) != 0)
        status = cannot(path, strerror(errno), err);
    if (status != SL_OK) {
        if (out->fd >= 0)
            close(out->fd);
        out->fd = -1;
        return status;
    }
    out->regular = S_ISREG(about.st_mode);
    out->dev = about.st_dev;
    out->ino = about.st_ino;
    return SL_OK;
}

void sl_output_discard(const struct sl_output *o, const char *path) {
    struct stat now;
    if (o->fd < 0 || !o->regular)
        return;
    bool cut = ftruncate(o->fd, 0) == 0;
    if (lstat(path, &now) == 0 && S_ISREG(now.st_mode) && now.st_dev == o->dev &&
        now.st_ino == o->ino)
        unlink(path);
    (void)cut; /* what it still holds carries the mark: the next run takes it over */
}
