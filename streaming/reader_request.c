/* Reads to requests and back: cutting extents, starting requests, and what their results mean. */
#include "streaming/reader_internal.h"

#include "common/metrics.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_TRIES      3u  /* of a request that errs or makes no progress, on its last copy */
#define MAX_INTERRUPTS 64u /* EINTR and EAGAIN: nothing is wrong, but not for ever */

static uint64_t down(uint64_t n) {
    return n & ~(uint64_t)(SL_IO_BLOCK_BYTES - 1);
}

static uint64_t up(uint64_t n) {
    return down(n + SL_IO_BLOCK_BYTES - 1);
}

bool sl_reader_has_queued(const struct sl_reader *r) {
    for (uint32_t p = 0; p < SL_READ_PRIORITIES; p++)
        if (r->queue[p].first)
            return true;
    return false;
}

/* The number of equal pieces of about request_bytes that so many bytes are cut into. */
static uint64_t n_pieces(const struct sl_reader *r, uint64_t bytes) {
    uint64_t n = (bytes + r->config.request_bytes / 2) / r->config.request_bytes;
    return n ? n : 1;
}

uint32_t sl_reader_requests_left(const struct sl_reader *r, const struct sl_read *read) {
    uint32_t n = read->n_flying;
    if (read->state != SL_READ_QUEUED)
        return n;
    for (uint32_t i = read->cursor_extent; i < read->n_extents; i++) {
        const struct sl_extent *e = &read->extent[i];
        uint64_t all = up(e->offset_bytes + e->size_bytes) - down(e->offset_bytes);
        uint64_t pieces = n_pieces(r, all), at = i == read->cursor_extent ? read->cursor_bytes : 0;
        n += (uint32_t)(pieces - at * pieces / all);
    }
    return n;
}

/* The next request of a queued read, without moving its cursor. An extent is cut into equal pieces
 * of about request_bytes, so that none is a crumb. Returns the bytes it ends at in the extent's
 * blocks. */
static uint64_t cut(const struct sl_reader *r, const struct sl_read *read,
                    struct sl_io_request *q) {
    const struct sl_extent *e = &read->extent[read->cursor_extent];
    uint64_t first = down(e->offset_bytes), end = e->offset_bytes + e->size_bytes;
    uint64_t all = up(end) - first, at = read->cursor_bytes;
    uint64_t n = n_pieces(r, all), len = up((all + n - 1) / n);
    if (len > all - at)
        len = all - at;

    q->buf = read->slot + e->place_bytes + at;
    q->fixed_region = -1;
    const struct sl_slab *slab = r->config.slab;
    if (slab && q->buf >= slab->base && q->buf + len <= slab->base + slab->size_bytes) {
        size_t in_slab = (size_t)(q->buf - slab->base);
        size_t left = SL_REGION_BYTES - in_slab % SL_REGION_BYTES;
        q->fixed_region = (int32_t)(in_slab / SL_REGION_BYTES);
        if (len > left)
            len = left; /* regions are registered one by one: a request stays inside */
    }
    q->file = e->file;
    q->offset_bytes = first + at;
    q->len_bytes = (uint32_t)len;
    uint64_t need = end - q->offset_bytes;
    q->need_bytes = (uint32_t)(need < len ? need : len);
    return at + len;
}

static void start(struct sl_reader *r, struct sl_io_request *q) {
    struct sl_file_copy *c = &r->files[q->file].copy[q->copy];
    struct sl_reader_copy *drive = &r->drive[q->copy];
    q->fd = c->fd;
    q->fixed_file = c->fixed_file;
    drive->flying++;
    drive->flying_bytes += q->len_bytes;
    q->ahead_bytes = drive->flying_bytes;
    q->started_ns = r->io->ops->now_ns(r->io);
    q->prediction = q->read->priority == SL_READ_PREDICTION;
    r->prediction_bytes += q->prediction ? q->len_bytes : 0;
    if (r->n_flying++ == 0)
        r->busy_since_ns = q->started_ns;
    if (r->n_flying > r->stats.max_flying)
        r->stats.max_flying = r->n_flying;
    r->stats.requests++;
    sl_count(disk_requests_total, 1);
    if (!c->direct && r->config.kind != SL_IO_FAKE) {
        /* All of the request at once; the kernel's own read-ahead is a quarter of it at best. */
        posix_fadvise(c->fd, (off_t)q->offset_bytes, q->len_bytes, POSIX_FADV_WILLNEED);
        r->io->syscalls++;
    }
    r->io->ops->start(r->io, q);
}

/* The most urgent read with something to start, or NULL. Reads in the background only fill up what
 * background_depth leaves, so that a demand never waits behind more than that. Predictions may be
 * wrong, so few of their requests are in flight, but those also while a demand is: when it ends,
 * the drive has something to do until its end has been seen. */
static struct sl_read *next_read(const struct sl_reader *r) {
    if (r->queue[SL_READ_DEMAND].first)
        return r->queue[SL_READ_DEMAND].first;
    if (r->n_flying >= r->config.background_depth * r->n_drives)
        return NULL;
    if (r->queue[SL_READ_PREFETCH].first)
        return r->queue[SL_READ_PREFETCH].first;
    if (r->queue[SL_READ_PREDICTION].first)
        return r->prediction_bytes < r->config.prediction_bytes ? r->queue[SL_READ_PREDICTION].first
                                                                : NULL;
    return r->queue[SL_READ_WARMUP].first;
}

void sl_reader_fill(struct sl_reader *r) {
    struct sl_read *read;
    while (r->free_requests && (read = next_read(r)) != NULL) {
        struct sl_io_request *q = r->free_requests;
        uint64_t end = cut(r, read, q);
        q->copy = sl_reader_pick_copy(r, q->file, q->len_bytes);
        if (q->copy == SL_READER_COPIES)
            return;
        r->free_requests = q->next;
        q->read = read;
        q->tries = q->interrupts = 0;
        q->tried_copies = 1u << q->copy;

        const struct sl_extent *e = &read->extent[read->cursor_extent];
        read->cursor_bytes = end;
        if (end >= up(e->offset_bytes + e->size_bytes) - down(e->offset_bytes)) {
            read->cursor_bytes = 0;
            read->cursor_extent++;
        }
        if (read->cursor_extent == read->n_extents) {
            sl_read_unlink(&r->queue[read->priority], read);
            read->state = SL_READ_FLYING;
        }
        read->n_flying++;
        start(r, q);
        if (read->started_ns == 0)
            read->started_ns = q->started_ns;
    }
}

void sl_reader_end(struct sl_reader *r, struct sl_read *read, enum sl_status status) {
    if (read->state == SL_READ_QUEUED)
        sl_read_unlink(&r->queue[read->priority], read);
    if (read->state != SL_READ_ENDING)
        read->status = status;
    read->state = SL_READ_ENDING;
    if (read->n_flying == 0) {
        read->state = SL_READ_FINISHED;
        sl_read_push(&r->finished, read);
    }
}

/* The request has no more to do: its read goes on without it. */
static void retire(struct sl_reader *r, struct sl_io_request *q) {
    struct sl_read *read = q->read;
    q->read = NULL;
    q->next = r->free_requests;
    r->free_requests = q;
    assert(read->n_flying > 0);
    read->n_flying--;
    if (read->n_flying == 0 && (read->state == SL_READ_FLYING || read->state == SL_READ_ENDING)) {
        read->state = SL_READ_FINISHED;
        sl_read_push(&r->finished, read);
    }
}

static void fail(struct sl_reader *r, struct sl_io_request *q, const char *why,
                 uint64_t now_bytes) {
    struct sl_read *read = q->read;
    const struct sl_file_copy *c = &r->files[q->file].copy[q->copy];
    if (read->state != SL_READ_ENDING) {
        if (now_bytes < q->offset_bytes + q->need_bytes)
            sl_fail(read->err, SL_ERR_IO,
                    "%s: cannot read %u bytes at %" PRIu64 ": the file was cut from %" PRIu64
                    " to %" PRIu64 " bytes while in use; put it back and start again",
                    c->path, q->need_bytes, q->offset_bytes, c->size_bytes, now_bytes);
        else
            sl_fail(read->err, SL_ERR_IO,
                    "%s: cannot read %u bytes at %" PRIu64 " after %u tries: %s; check the drive",
                    c->path, q->need_bytes, q->offset_bytes, q->tries, why);
        sl_reader_end(r, read, SL_ERR_IO);
    }
    retire(r, q);
}

/* The file's present size, when the engine reads real files. */
static uint64_t size_now(const struct sl_reader *r, const struct sl_file_copy *c) {
    struct stat st;
    if (r->config.kind == SL_IO_FAKE || fstat(c->fd, &st) != 0 || !S_ISREG(st.st_mode))
        return c->size_bytes;
    return (uint64_t)st.st_size;
}

/* A result that is not what was asked for: read the rest again, from another copy if there is one.
 */
static void retry(struct sl_reader *r, struct sl_io_request *q, int error, const char *why) {
    if (error == EINTR || error == EAGAIN) {
        if (++q->interrupts < MAX_INTERRUPTS) {
            r->stats.retries++;
            sl_count(disk_retries_total, 1);
            start(r, q);
            return;
        }
        why = "the system keeps refusing for now";
    }
    q->tries++;
    struct sl_file *f = &r->files[q->file];
    uint64_t now_bytes = size_now(r, &f->copy[q->copy]);
    bool cut_off = now_bytes < q->offset_bytes + q->need_bytes;
    sl_reader_copy_failed(r, q->file, q->copy, cut_off, cut_off ? "the file was cut off" : why);

    uint32_t other = SL_READER_COPIES;
    for (uint32_t c = 0; c < f->n_copies; c++)
        if (f->copy[c].alive && !(q->tried_copies & (1u << c)))
            other = c;
    if (other < SL_READER_COPIES) {
        q->copy = other;
        q->tried_copies |= 1u << other;
        q->tries = 0;
    } else if (q->tries >= MAX_TRIES || cut_off) {
        fail(r, q, why, now_bytes);
        return;
    }
    r->stats.retries++;
    sl_count(disk_retries_total, 1);
    start(r, q);
}

void sl_reader_complete(struct sl_reader *r, struct sl_io_request *q) {
    struct sl_reader_copy *drive = &r->drive[q->copy];
    struct sl_file_copy *c = &r->files[q->file].copy[q->copy];
    uint64_t now = r->io->ops->now_ns(r->io);
    drive->flying--;
    drive->flying_bytes -= q->len_bytes;
    r->prediction_bytes -= q->prediction ? q->len_bytes : 0;
    r->stats.flight_ns += now - q->started_ns;
    if (--r->n_flying == 0)
        r->stats.busy_ns += now - r->busy_since_ns;

    uint32_t got = q->result > 0 ? (uint32_t)q->result : 0;
    assert(got <= q->len_bytes);
    r->stats.read_bytes += got;
    c->read_bytes += got;
    sl_count(disk_read_bytes_total, got);
    if (got >= q->need_bytes) {
        /* What was in flight ahead of it, over the time it took: the rate at which the drive
         * works its queue off. */
        double rate = (double)q->ahead_bytes / (double)(now - q->started_ns + 1);
        drive->bytes_per_ns +=
            (rate - drive->bytes_per_ns) * (drive->bytes_per_ns > 0 ? 1.0 / 16 : 1);
        retire(r, q);
        return;
    }
    if (q->read->state == SL_READ_ENDING) {
        retire(r, q); /* nobody wants it any more */
        return;
    }
    if (q->result < 0) {
        r->stats.errors++;
        sl_count(disk_errors_total, 1);
        retry(r, q, -q->result, strerror(-q->result));
        return;
    }
    r->stats.short_reads++;
    uint32_t whole = (uint32_t)down(got); /* the rest must begin at a block again */
    if (whole == 0) {
        retry(r, q, 0, "the read ended before its data");
        return;
    }
    q->buf += whole;
    q->offset_bytes += whole;
    q->len_bytes -= whole;
    q->need_bytes -= whole;
    q->tries = 0;
    r->stats.retries++;
    sl_count(disk_retries_total, 1);
    start(r, q);
}
