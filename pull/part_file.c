#include "pull/part_file.h"

#include "common/crc.h"
#include "common/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define MARK "SLPULL1"

/* As it lies on disk; only this machine reads it. */
struct saved {
    char mark[8];
    uint64_t size_bytes;
    char identity[256];
    struct sl_pull_span spans[SL_PULL_MAX_SPANS];
    uint32_t n_spans;
    uint32_t crc; /* of all before it */
};

static enum sl_status io_error(struct sl_err *err, const char *path) {
    bool full = errno == ENOSPC || errno == EDQUOT || errno == EFBIG;
    return sl_fail(err, SL_ERR_IO, "%.300s: %s%s", path, strerror(errno),
                   full ? "; make room and run it again: it resumes where it stopped" : "");
}

static uint32_t crc_of(const struct saved *s) {
    return sl_crc32c(0, s, offsetof(struct saved, crc));
}

void sl_part_file_restart(struct sl_part_file *f) {
    f->spans[0] = (struct sl_pull_span){0, f->size_bytes, 0};
    f->n_spans = 1;
}

uint64_t sl_part_file_done(const struct sl_part_file *f) {
    uint64_t done = 0;
    for (uint32_t i = 0; i < f->n_spans; i++)
        done += f->spans[i].done;
    return done;
}

/* Spans that cover the file once, in any order, are what was written. */
static bool spans_ok(const struct saved *s) {
    uint64_t covered = 0;
    if (s->n_spans < 1 || s->n_spans > SL_PULL_MAX_SPANS)
        return false;
    for (uint32_t i = 0; i < s->n_spans; i++) {
        const struct sl_pull_span *a = &s->spans[i];
        if (a->begin > a->end || a->end > s->size_bytes || a->done > a->end - a->begin)
            return false;
        for (uint32_t k = 0; k < i; k++)
            if (a->begin < s->spans[k].end && s->spans[k].begin < a->end)
                return false;
        covered += a->end - a->begin;
    }
    return covered == s->size_bytes;
}

static void read_state(struct sl_part_file *f) {
    struct saved s;
    struct stat about;
    sl_part_file_restart(f);
    if (!f->identity[0] || pread(f->state_fd, &s, sizeof s, 0) != (ssize_t)sizeof s ||
        memcmp(s.mark, MARK, sizeof s.mark) != 0 || s.crc != crc_of(&s) ||
        s.size_bytes != f->size_bytes || fstat(f->fd, &about) != 0 ||
        (uint64_t)about.st_size != f->size_bytes ||
        memcmp(s.identity, f->identity, sizeof s.identity) != 0 || !spans_ok(&s))
        return;
    memcpy(f->spans, s.spans, sizeof f->spans);
    f->n_spans = s.n_spans;
}

/* All of it now: a disk that is too small shows before hours have passed. Where the file system
 * cannot reserve, what is free is compared. */
static enum sl_status reserve(struct sl_part_file *f, struct sl_err *err) {
    struct statvfs v;
    struct stat about;
    if (ftruncate(f->fd, (off_t)f->size_bytes) != 0)
        return io_error(err, f->part);
    if (fallocate(f->fd, 0, 0, (off_t)f->size_bytes) == 0)
        return SL_OK;
    if (errno != ENOSPC && errno != EDQUOT && errno != EFBIG) {
        if (fstatvfs(f->fd, &v) != 0 || fstat(f->fd, &about) != 0)
            return SL_OK;
        uint64_t there = (uint64_t)about.st_blocks * 512u;
        if (there >= f->size_bytes || (uint64_t)v.f_bavail * v.f_frsize >= f->size_bytes - there)
            return SL_OK;
        errno = ENOSPC;
    }
    return sl_fail(err, SL_ERR_IO, "%.300s: %s: the file has %.2f GiB; make room and run it again",
                   f->part, strerror(errno), (double)f->size_bytes / 0x1p30);
}

/* A state that is there, or was made by a process that was killed at once and is empty, is ours; a
 * part without one is not. */
static enum sl_status open_ours(struct sl_part_file *f, struct sl_err *err) {
    struct stat about;
    f->state_fd = open(f->state, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (f->state_fd < 0 && errno == ENOENT) {
        if (access(f->part, F_OK) == 0)
            return sl_fail(err, SL_ERR_IO,
                           "%.300s: already exists and was not started by this command; remove it",
                           f->part);
        f->state_fd = open(f->state, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    }
    if (f->state_fd < 0 || fstat(f->state_fd, &about) != 0)
        return io_error(err, f->state);
    if (!S_ISREG(about.st_mode) ||
        (about.st_size > 0 && !sl_file_has(f->state_fd, 0, MARK, sizeof MARK)))
        return sl_fail(err, SL_ERR_IO,
                       "%.300s: already exists and was not written by this command; remove it",
                       f->state);
    if (flock(f->state_fd, LOCK_EX | LOCK_NB) != 0)
        return sl_fail(err, SL_ERR_IO, "%.300s: another process is pulling this file", f->part);
    f->fd = open(f->part, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    return f->fd >= 0 ? SL_OK : io_error(err, f->part);
}

enum sl_status sl_part_file_open(struct sl_part_file *f, const char *folder, const char *name,
                                 uint64_t size_bytes, const char *identity, struct sl_err *err) {
    *f = (struct sl_part_file){.fd = -1, .state_fd = -1, .folder_fd = -1, .size_bytes = size_bytes};
    if (strlen(folder) > 3890 || strlen(name) > 200)
        return sl_fail(err, SL_ERR_INVALID, "the folder's name is too long");
    snprintf(f->path, sizeof f->path, "%.3890s/%.200s", folder, name);
    snprintf(f->part, sizeof f->part, "%s.part", f->path);
    snprintf(f->state, sizeof f->state, "%s.state", f->part);
    snprintf(f->identity, sizeof f->identity, "%s", identity);
    f->folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->folder_fd < 0)
        return io_error(err, folder);
    enum sl_status status = open_ours(f, err);
    if (status == SL_OK) {
        read_state(f);
        status = reserve(f, err);
    }
    /* What was pulled before stays, whatever went wrong. */
    if (status != SL_OK)
        sl_part_file_close(f, sl_part_file_done(f) > 0 || f->fd < 0);
    return status;
}

enum sl_status sl_part_file_write(struct sl_part_file *f, uint64_t at, const void *bytes, size_t n,
                                  struct sl_err *err) {
    const char *from = bytes;
    while (n) {
        ssize_t put = pwrite(f->fd, from, n, (off_t)at);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0) {
            errno = put < 0 ? errno : ENOSPC;
            return io_error(err, f->part);
        }
        from += put;
        at += (uint64_t)put;
        n -= (size_t)put;
    }
    return SL_OK;
}

enum sl_status sl_part_file_save(struct sl_part_file *f, struct sl_err *err) {
    struct saved s;
    memset(&s, 0, sizeof s); /* with its padding */
    memcpy(s.mark, MARK, sizeof s.mark);
    s.size_bytes = f->size_bytes;
    memcpy(s.identity, f->identity, sizeof s.identity);
    memcpy(s.spans, f->spans, sizeof s.spans);
    s.n_spans = f->n_spans;
    s.crc = crc_of(&s);
    if (fdatasync(f->fd) != 0)
        return io_error(err, f->part);
    return pwrite(f->state_fd, &s, sizeof s, 0) == (ssize_t)sizeof s ? SL_OK
                                                                     : io_error(err, f->state);
}

enum sl_status sl_part_file_finish(struct sl_part_file *f, const char *sha256, bool replace,
                                   struct sl_err *err) {
    if (fsync(f->fd) != 0)
        return io_error(err, f->part);
    if (renameat2(AT_FDCWD, f->part, AT_FDCWD, f->path, replace ? 0 : RENAME_NOREPLACE) != 0) {
        if (errno != EINVAL || replace)
            return io_error(err, f->path);
        /* A file system without RENAME_NOREPLACE. */
        if (access(f->path, F_OK) == 0 || rename(f->part, f->path) != 0)
            return sl_fail(err, SL_ERR_IO, "%.300s: cannot be renamed", f->path);
    }
    SL_TRY(sl_pull_write_sum(f->path, sha256, err));
    unlink(f->state);
    fsync(f->folder_fd);
    return SL_OK;
}

void sl_part_file_close(struct sl_part_file *f, bool keep) {
    if (!keep && f->state_fd >= 0 && f->fd >= 0) { /* the lock is ours */
        unlink(f->part);
        unlink(f->state);
    }
    if (f->fd >= 0)
        close(f->fd);
    if (f->state_fd >= 0)
        close(f->state_fd);
    if (f->folder_fd >= 0)
        close(f->folder_fd);
    f->fd = f->state_fd = f->folder_fd = -1;
}
