/* The files of a model and their copies: opening, comparing, choosing, dropping. */
#include "streaming/reader_internal.h"

#include "common/log.h"
#include "common/metrics.h"
#include "common/rng.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define SAMPLES         64u  /* blocks of 4 KiB by which a mirror is compared */
#define MAX_COPY_ERRORS 3u   /* a copy that is not the last is dropped at so many */
#define EXPLORE         256u /* requests after which a neglected copy is measured again */

static enum sl_status stat_copy(const char *path, int fd, struct sl_file_copy *c,
                                struct sl_err *err) {
    struct stat st;
    if (fstat(fd, &st) != 0)
        return sl_fail(err, SL_ERR_IO, "%s: cannot be examined: %s", path, strerror(errno));
    if (S_ISREG(st.st_mode)) {
        c->size_bytes = (uint64_t)st.st_size;
    } else if (S_ISBLK(st.st_mode)) {
        if (ioctl(fd, BLKGETSIZE64, &c->size_bytes) != 0)
            return sl_fail(err, SL_ERR_IO, "%s: cannot find its size: %s", path, strerror(errno));
    } else {
        return sl_fail(err, SL_ERR_IO, "%s: neither a regular file nor a block device", path);
    }
    c->mtime = st.st_mtim;
    return SL_OK;
}

static enum sl_status open_copy(const struct sl_reader *r, const char *path,
                                struct sl_file_copy *out, struct sl_err *err) {
    struct sl_file_copy c = {.fd = -1, .fixed_file = -1, .alive = true};
    int why = 0;
    if (!r->config.buffered) {
        /* Nonblocking, so that the path of a FIFO is refused and does not hang. */
        c.fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC | O_NONBLOCK);
        c.direct = c.fd >= 0;
        why = errno;
        void *block = NULL;
        if (c.direct && posix_memalign(&block, SL_IO_BLOCK_BYTES, SL_IO_BLOCK_BYTES) == 0) {
            /* Some file systems open with O_DIRECT and refuse the read. */
            if (pread(c.fd, block, SL_IO_BLOCK_BYTES, 0) < 0 && errno == EINVAL) {
                why = EINVAL;
                close(c.fd);
                c.fd = -1;
                c.direct = false;
            }
            free(block);
        }
    }
    if (c.fd < 0)
        c.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (c.fd < 0)
        return sl_fail(err, SL_ERR_IO, "%s: cannot be opened: %s", path, strerror(errno));
    enum sl_status status = stat_copy(path, c.fd, &c, err);
    if (status == SL_OK && !(c.path = strdup(path)))
        status = sl_fail(err, SL_ERR_NOMEM, "%s: no memory for its name", path);
    if (status != SL_OK) {
        close(c.fd);
        return status;
    }
    if (!c.direct) {
        if (!r->config.buffered)
            sl_warn("%s: its file system refuses O_DIRECT (%s): reading through the page cache, "
                    "which costs memory and speed; keep the model on a local disk",
                    path, strerror(why));
        sl_count(disk_buffered_files, 1);
    }
    /* The nonblocking flag makes some engines give up instead of waiting. */
    int flags = fcntl(c.fd, F_GETFL);
    if (flags >= 0)
        (void)fcntl(c.fd, F_SETFL, flags & ~O_NONBLOCK);
    *out = c;
    return SL_OK;
}

static void close_copy(struct sl_file_copy *c) {
    if (c->fd >= 0)
        close(c->fd);
    if (c->path && !c->direct)
        sl_count(disk_buffered_files, -1);
    free(c->path);
    *c = (struct sl_file_copy){.fd = -1};
}

void sl_reader_close_files(struct sl_reader *r) {
    for (uint32_t f = 0; f < r->n_files; f++)
        for (uint32_t c = 0; c < r->files[f].n_copies; c++) {
            if (r->config.kind == SL_IO_FAKE)
                r->files[f].copy[c].fd = -1; /* a number of its own, no descriptor */
            close_copy(&r->files[f].copy[c]);
        }
}

/* Takes the copy over: file == n_files adds a file, else it is one more copy of that file. */
enum sl_status sl_reader_adopt_file(struct sl_reader *r, uint32_t file,
                                    const struct sl_file_copy *copy, struct sl_err *err) {
    if (r->started)
        return sl_fail(err, SL_ERR_INVALID, "%s: files are added before the first read",
                       copy->path);
    if (file > r->n_files || file >= SL_READER_FILES)
        return sl_fail(err, SL_ERR_INVALID, "%s: more than %u files", copy->path, SL_READER_FILES);
    struct sl_file *f = &r->files[file];
    if (file < r->n_files && f->n_copies == SL_READER_COPIES)
        return sl_fail(err, SL_ERR_INVALID, "%s: more than %u mirrors", copy->path,
                       SL_READER_COPIES - 1);
    if (file == r->n_files) {
        r->n_files++;
        f->size_bytes = copy->size_bytes;
    }
    uint32_t c = f->n_copies++;
    f->copy[c] = *copy;
    if (r->io->ops->add_file)
        f->copy[c].fixed_file = r->io->ops->add_file(r->io, copy->fd);
    if (c + 1 > r->n_drives)
        r->n_drives = c + 1;
    return SL_OK;
}

enum sl_status sl_reader_add_file(struct sl_reader *r, const char *path, uint32_t *out_file,
                                  struct sl_err *err) {
    struct sl_file_copy c;
    SL_TRY(open_copy(r, path, &c, err));
    uint32_t file = r->n_files;
    enum sl_status status = sl_reader_adopt_file(r, file, &c, err);
    if (status != SL_OK) {
        close_copy(&c);
        return status;
    }
    *out_file = file;
    return SL_OK;
}

/* pread until the block or the file's end is there. */
static int read_block(int fd, uint8_t *block, uint64_t offset_bytes, uint32_t need_bytes) {
    for (uint32_t tries = 0; tries < 8; tries++) {
        ssize_t n = pread(fd, block, SL_IO_BLOCK_BYTES, (off_t)offset_bytes);
        if (n >= (ssize_t)need_bytes)
            return 0;
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            return errno;
    }
    return EIO;
}

/* Size, the first and the last block, and blocks spread over the file at places that depend on its
 * size: another model of the same size, a copy that was cut and padded, or one that was still being
 * written differ there. */
static enum sl_status compare(const struct sl_file *f, const struct sl_file_copy *mirror,
                              struct sl_err *err) {
    const struct sl_file_copy *own = &f->copy[0];
    if (mirror->size_bytes != f->size_bytes)
        return sl_fail(err, SL_ERR_CORRUPT,
                       "%s: not a copy of %s: it has %" PRIu64 " bytes, not %" PRIu64
                       "; copy it again",
                       mirror->path, own->path, mirror->size_bytes, f->size_bytes);
    uint8_t *blocks;
    if (posix_memalign((void **)&blocks, SL_IO_BLOCK_BYTES, 2 * SL_IO_BLOCK_BYTES) != 0)
        return sl_fail(err, SL_ERR_NOMEM, "%s: no memory to compare it", mirror->path);
    enum sl_status status = SL_OK;
    uint64_t n = (f->size_bytes + SL_IO_BLOCK_BYTES - 1) / SL_IO_BLOCK_BYTES;
    struct sl_rng rng = {.state = f->size_bytes};
    for (uint32_t i = 0; i < SAMPLES && n > 0 && status == SL_OK; i++) {
        uint64_t part = n / SAMPLES; /* blocks each sample stands for */
        uint64_t b = i == 0             ? 0
                     : i == SAMPLES - 1 ? n - 1
                     : part > 0         ? i * part + sl_rng_u64(&rng) % part
                                        : i % n;
        uint64_t at = b * SL_IO_BLOCK_BYTES, left = f->size_bytes - at;
        uint32_t need = left < SL_IO_BLOCK_BYTES ? (uint32_t)left : SL_IO_BLOCK_BYTES;
        int rc = read_block(mirror->fd, blocks + SL_IO_BLOCK_BYTES, at, need);
        if (rc != 0)
            status = sl_fail(err, SL_ERR_IO, "%s: cannot be read at %" PRIu64 ": %s", mirror->path,
                             at, strerror(rc));
        else if ((rc = read_block(own->fd, blocks, at, need)) != 0)
            status = sl_fail(err, SL_ERR_IO, "%s: cannot be read at %" PRIu64 ": %s", own->path, at,
                             strerror(rc));
        else if (memcmp(blocks, blocks + SL_IO_BLOCK_BYTES, need) != 0)
            status =
                sl_fail(err, SL_ERR_CORRUPT,
                        "%s: not a copy of %s: they differ near byte %" PRIu64 "; copy it again",
                        mirror->path, own->path, at);
    }
    free(blocks);
    return status;
}

enum sl_status sl_reader_add_mirror(struct sl_reader *r, uint32_t file, const char *path,
                                    struct sl_err *err) {
    if (file >= r->n_files)
        return sl_fail(err, SL_ERR_INVALID, "%s: mirror of file %u; there are %u", path, file,
                       r->n_files);
    struct sl_file_copy c;
    SL_TRY(open_copy(r, path, &c, err));
    enum sl_status status = compare(&r->files[file], &c, err);
    if (status == SL_OK)
        status = sl_reader_adopt_file(r, file, &c, err);
    if (status != SL_OK)
        close_copy(&c);
    return status;
}

uint32_t sl_reader_n_files(const struct sl_reader *r) {
    return r->n_files;
}

uint64_t sl_reader_file_bytes(const struct sl_reader *r, uint32_t file) {
    return file < r->n_files ? r->files[file].size_bytes : 0;
}

uint64_t sl_reader_copy_bytes(const struct sl_reader *r, uint32_t file, uint32_t copy) {
    if (file >= r->n_files || copy >= r->files[file].n_copies)
        return 0;
    return r->files[file].copy[copy].read_bytes;
}

static uint32_t n_alive(const struct sl_file *f) {
    uint32_t n = 0;
    for (uint32_t c = 0; c < f->n_copies; c++)
        n += f->copy[c].alive;
    return n;
}

void sl_reader_copy_failed(struct sl_reader *r, uint32_t file, uint32_t copy, bool for_good,
                           const char *why) {
    struct sl_file *f = &r->files[file];
    struct sl_file_copy *c = &f->copy[copy];
    c->errors++;
    if (!c->alive || n_alive(f) < 2 || (!for_good && c->errors < MAX_COPY_ERRORS))
        return;
    c->alive = false;
    r->stats.dropped_copies++;
    r->stats.changed_copies += for_good;
    sl_count(disk_dropped_copies_total, 1);
    sl_warn("%s: dropped, the other copy serves alone: %s", c->path, why);
}

enum sl_status sl_reader_check_files(struct sl_reader *r, struct sl_err *err) {
    for (uint32_t i = 0; i < r->n_files; i++) {
        struct sl_file *f = &r->files[i];
        for (uint32_t j = 0; j < f->n_copies; j++) {
            struct sl_file_copy *c = &f->copy[j], now = {.fd = -1};
            if (!c->alive || r->config.kind == SL_IO_FAKE)
                continue;
            enum sl_status status = stat_copy(c->path, c->fd, &now, err);
            if (status == SL_OK &&
                (now.size_bytes != c->size_bytes || now.mtime.tv_sec != c->mtime.tv_sec ||
                 now.mtime.tv_nsec != c->mtime.tv_nsec))
                status = sl_fail(err, SL_ERR_CORRUPT,
                                 "%s: was changed while in use (%" PRIu64 " bytes, was %" PRIu64
                                 "); start again with the model as it is now",
                                 c->path, now.size_bytes, c->size_bytes);
            if (status == SL_OK)
                continue;
            if (n_alive(f) < 2)
                return status;
            sl_reader_copy_failed(r, i, j, true, "it was changed while in use");
        }
    }
    return SL_OK;
}

/* The copy that would have these bytes first, by what is in flight on it and the rate at which it
 * has been working that off. When its queue is full the request waits for it: a slow drive with
 * room would only make it late. */
uint32_t sl_reader_pick_copy(struct sl_reader *r, uint32_t file, uint32_t len_bytes) {
    const struct sl_file *f = &r->files[file];
    if (f->n_copies == 1)
        return r->drive[0].flying < r->config.depth ? 0 : SL_READER_COPIES;
    double fastest = 0;
    for (uint32_t c = 0; c < f->n_copies; c++)
        if (r->drive[c].bytes_per_ns > fastest)
            fastest = r->drive[c].bytes_per_ns;
    uint32_t best = SL_READER_COPIES;
    double least = 0;
    for (uint32_t c = 0; c < f->n_copies; c++) {
        struct sl_reader_copy *l = &r->drive[c];
        if (!f->copy[c].alive)
            continue;
        double rate = l->bytes_per_ns > 0 ? l->bytes_per_ns : fastest > 0 ? fastest : 1;
        double ns = (double)(l->flying_bytes + len_bytes) / rate;
        if (l->idle_picks >= EXPLORE && l->flying == 0)
            ns = 0;
        if (best == SL_READER_COPIES || ns < least) {
            best = c;
            least = ns;
        }
    }
    if (best == SL_READER_COPIES || r->drive[best].flying >= r->config.depth)
        return SL_READER_COPIES;
    for (uint32_t c = 0; c < f->n_copies; c++)
        r->drive[c].idle_picks++;
    r->drive[best].idle_picks = 0;
    return best;
}
