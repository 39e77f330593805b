#include "streaming/reader_internal.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/metrics.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REAP_BATCH 64u

void sl_reader_defaults(struct sl_reader_config *c) {
    /* docs/STREAMING.md has the measurements behind these. */
    if (c->depth == 0)
        c->depth = 128;
    if (c->request_bytes == 0)
        c->request_bytes = 512u << 10;
    if (c->background_depth == 0)
        c->background_depth = c->depth < 16 ? c->depth : 16;
    if (c->prediction_bytes == 0)
        c->prediction_bytes = 4 * c->request_bytes;
    if (c->n_threads == 0)
        c->n_threads = c->depth < 32 ? c->depth : 32;
}

static enum sl_status check_config(const struct sl_reader_config *c, struct sl_err *err) {
    if (c->depth > SL_READER_MAX_DEPTH)
        return sl_fail(err, SL_ERR_INVALID, "a queue depth of %u; 1 to %u are possible", c->depth,
                       SL_READER_MAX_DEPTH);
    if (c->request_bytes < (64u << 10) || c->request_bytes > (4u << 20) ||
        c->request_bytes % SL_IO_BLOCK_BYTES != 0)
        return sl_fail(err, SL_ERR_INVALID,
                       "requests of %u bytes; 64 KiB to 4 MiB in steps of 4 KiB are possible",
                       c->request_bytes);
    if (c->background_depth > c->depth)
        return sl_fail(err, SL_ERR_INVALID, "a background depth of %u exceeds the depth of %u",
                       c->background_depth, c->depth);
    if (c->n_threads > 256)
        return sl_fail(err, SL_ERR_INVALID, "%u reading threads; 1 to 256 are possible",
                       c->n_threads);
    return SL_OK;
}

size_t sl_reader_size_bytes(const struct sl_reader_config *config) {
    struct sl_reader_config c = *config;
    sl_reader_defaults(&c);
    size_t n = (size_t)c.depth * SL_READER_COPIES;
    /* Per request also a ring entry of 64 bytes, two completions of 16 and an index. */
    return sizeof(struct sl_reader) + SL_READER_FILES * sizeof(struct sl_file) +
           n * (sizeof(struct sl_io_request) + 128) +
           (c.kind == SL_IO_PREAD || c.kind == SL_IO_AUTO ? (size_t)c.n_threads * (64u << 10) : 0);
}

struct sl_reader *sl_reader_alloc(struct sl_io *io, const struct sl_reader_config *config) {
    struct sl_reader *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    uint32_t n = config->depth * SL_READER_COPIES;
    r->files = calloc(SL_READER_FILES, sizeof *r->files);
    r->requests = calloc(n, sizeof *r->requests);
    if (!r->files || !r->requests) {
        free(r->files);
        free(r->requests);
        free(r);
        return NULL;
    }
    r->io = io;
    r->config = *config;
    for (uint32_t i = n; i-- > 0;) {
        r->requests[i].next = r->free_requests;
        r->free_requests = &r->requests[i];
    }
    return r;
}

enum sl_status sl_reader_open(const struct sl_reader_config *config, struct sl_reader **out_reader,
                              struct sl_err *err) {
    struct sl_reader_config c = *config;
    sl_reader_defaults(&c);
    SL_TRY(check_config(&c, err));
    struct sl_io *io = NULL;
    switch (c.kind) {
    case SL_IO_URING:
        SL_TRY(sl_io_uring_create(&c, &io, err));
        break;
    case SL_IO_PREAD:
        SL_TRY(sl_io_pread_create(&c, &io, err));
        break;
    case SL_IO_AUTO: {
        struct sl_err why;
        enum sl_status status = sl_io_uring_create(&c, &io, &why);
        if (status == SL_ERR_UNSUPPORTED) {
            sl_warn("%s; reading with a pool of %u threads instead", why.text, c.n_threads);
            sl_gauge(disk_without_uring, 1);
            SL_TRY(sl_io_pread_create(&c, &io, err));
        } else if (status != SL_OK) {
            if (err)
                *err = why;
            return status;
        }
        break;
    }
    default:
        return sl_fail(err, SL_ERR_INVALID, "unknown kind of reader %d", (int)c.kind);
    }
    struct sl_reader *r = sl_reader_alloc(io, &c);
    if (!r) {
        io->ops->destroy(io);
        return sl_fail(err, SL_ERR_NOMEM, "no memory for the reader's queue of %u requests",
                       c.depth);
    }
    *out_reader = r;
    return SL_OK;
}

/* Empties the finished list. A done may submit, cancel or raise; what it finishes is delivered in
 * the same turn. */
static uint32_t deliver(struct sl_reader *r) {
    uint32_t n = 0;
    struct sl_read *read;
    if (r->delivering)
        return 0; /* a done called poll: the outer turn goes on */
    r->delivering = true;
    while ((read = r->finished.first) != NULL) {
        sl_read_unlink(&r->finished, read);
        enum sl_status status = read->status;
        read->state = SL_READ_IDLE;
        read->done_ns = r->io->ops->now_ns(r->io);
        r->n_outstanding--;
        if (status == SL_OK) {
            uint64_t bytes = 0;
            for (uint32_t i = 0; i < read->n_extents; i++)
                bytes += read->extent[i].size_bytes;
            r->stats.reads++;
            r->stats.needed_bytes += bytes;
            sl_count(disk_needed_bytes_total, bytes);
            sl_count(disk_reads_total, 1);
        } else if (status == SL_ERR_CANCELED) {
            r->stats.canceled++;
        } else {
            r->stats.failed++;
            sl_count(disk_reads_failed_total, 1);
        }
        n++;
        read->done(read, status);
    }
    r->delivering = false;
    return n;
}

static void publish(struct sl_reader *r) {
    uint64_t n = r->io->syscalls;
    if (n != r->seen_syscalls)
        sl_count(disk_syscalls_total, n - r->seen_syscalls);
    r->seen_syscalls = n;
    sl_gauge(disk_queue_depth, r->n_flying);
}

/* One look at the engine. Returns the number of requests that ended. */
static uint32_t reap(struct sl_reader *r, uint32_t wait_n, int64_t timeout_ns) {
    struct sl_io_request *ended[REAP_BATCH];
    uint32_t total = 0, n;
    if (r->n_flying == 0)
        return 0;
    do {
        n = r->io->ops->reap(r->io, ended, REAP_BATCH, wait_n, timeout_ns);
        for (uint32_t i = 0; i < n; i++)
            sl_reader_complete(r, ended[i]);
        total += n;
        wait_n = 0;
    } while (n == REAP_BATCH && r->n_flying > 0);
    return total;
}

enum sl_status sl_reader_queue(struct sl_reader *r, struct sl_read *chain, struct sl_err *err) {
    for (const struct sl_read *d = chain; d; d = d->next) {
        if (d->n_extents == 0 || d->n_extents > SL_SLOT_EXTENTS || !d->done ||
            (uint32_t)d->priority >= SL_READ_PRIORITIES ||
            (uintptr_t)d->slot % SL_IO_BLOCK_BYTES != 0)
            return sl_fail(err, SL_ERR_INVALID, "malformed read of %u extents", d->n_extents);
        for (uint32_t i = 0; i < d->n_extents; i++) {
            const struct sl_extent *e = &d->extent[i];
            if (e->file >= r->n_files)
                return sl_fail(err, SL_ERR_INVALID, "read from file %u; there are %u", e->file,
                               r->n_files);
            const struct sl_file *f = &r->files[e->file];
            if (e->size_bytes == 0 || e->offset_bytes > f->size_bytes ||
                e->size_bytes > f->size_bytes - e->offset_bytes)
                return sl_fail(err, SL_ERR_INVALID,
                               "%s: %u bytes at %" PRIu64 " are not inside its %" PRIu64,
                               f->copy[0].path, e->size_bytes, e->offset_bytes, f->size_bytes);
            if (e->place_bytes % SL_IO_BLOCK_BYTES != 0)
                return sl_fail(err, SL_ERR_INVALID, "place %u in a slot is not 4 KiB aligned",
                               e->place_bytes);
        }
    }
    r->started = true;
    uint64_t now = r->io->ops->now_ns(r->io);
    for (struct sl_read *d = chain, *next; d; d = next) {
        next = d->next;
        assert(d->state == SL_READ_IDLE);
        d->submitted_ns = now;
        d->started_ns = d->done_ns = 0;
        d->cursor_bytes = 0;
        d->cursor_extent = 0;
        d->n_flying = 0;
        d->status = SL_OK;
        d->state = SL_READ_QUEUED;
        r->n_outstanding++;
        sl_read_push(&r->queue[d->priority], d);
    }
    sl_reader_fill(r);
    return SL_OK;
}

enum sl_status sl_reader_submit(struct sl_reader *r, struct sl_read *chain, struct sl_err *err) {
    enum sl_status status = sl_reader_queue(r, chain, err);
    if (status == SL_OK && !r->delivering) { /* a done's submits go out when the turn ends */
        r->io->ops->flush(r->io);
        publish(r);
    }
    return status;
}

void sl_reader_cancel(struct sl_reader *r, struct sl_read *read) {
    if (read->state == SL_READ_QUEUED || read->state == SL_READ_FLYING)
        sl_reader_end(r, read, SL_ERR_CANCELED);
}

void sl_reader_raise(struct sl_reader *r, struct sl_read *read, enum sl_read_priority priority) {
    if (priority >= read->priority || read->state == SL_READ_IDLE)
        return;
    if (read->state == SL_READ_QUEUED) {
        sl_read_unlink(&r->queue[read->priority], read);
        sl_read_push(&r->queue[priority], read);
    }
    read->priority = priority;
    sl_reader_fill(r); /* what that starts goes out with the owner's next call */
}

bool sl_reader_has_unstarted(const struct sl_reader *r) {
    return sl_reader_has_queued(r) || r->io->n_held > 0;
}

uint32_t sl_reader_poll(struct sl_reader *r) {
    if (r->delivering)
        return 0;
    reap(r, 0, 0);
    sl_reader_fill(r);
    uint32_t n = deliver(r);
    sl_reader_fill(r); /* what cancel made room for, what a done submitted */
    r->io->ops->flush(r->io);
    publish(r);
    return n;
}

/* How many requests must end at least before n reads can have: the kernel is asked to wait for so
 * many, since waking for fewer is a system call in vain. Never so many that the queue, while there
 * is something to refill it with, runs down to less than half. */
static uint32_t least_requests(const struct sl_reader *r, uint32_t n) {
    enum { MOST = 64 };
    uint32_t seen[MOST + 1] = {0}; /* by what a read has in flight: requests of such reads */
    for (uint32_t i = 0; i < r->config.depth * SL_READER_COPIES; i++) {
        const struct sl_read *d = r->requests[i].read;
        if (d && d->state != SL_READ_QUEUED)
            seen[d->n_flying < MOST ? d->n_flying : MOST]++;
    }
    uint32_t want = 0;
    for (uint32_t k = 1; k <= MOST && n > 0; k++) {
        uint32_t reads = seen[k] / k;
        reads = reads < n ? reads : n;
        want += reads * k;
        n -= reads;
    }
    if (n > 0)
        want = r->n_flying; /* all that is wholly in flight, and then some */
    if (sl_reader_has_queued(r) && want > (r->n_flying + 1) / 2)
        want = (r->n_flying + 1) / 2;
    return want ? want : 1;
}

uint32_t sl_reader_wait(struct sl_reader *r, uint32_t min_done, int64_t timeout_ns) {
    if (r->delivering)
        return 0;
    const struct sl_io_ops *ops = r->io->ops;
    uint64_t start = ops->now_ns(r->io), now = start;
    uint32_t done = 0;
    if (timeout_ns == 0)
        reap(r, 0, 0);
    sl_reader_fill(r);
    done = deliver(r);
    sl_reader_fill(r);
    while (done < min_done && r->n_outstanding > 0) {
        int64_t left = -1;
        if (timeout_ns >= 0) {
            if (now - start >= (uint64_t)timeout_ns)
                break;
            left = timeout_ns - (int64_t)(now - start);
        }
        if (r->n_flying > 0) /* else everything outstanding has finished already */
            reap(r, least_requests(r, min_done - done), left);
        sl_reader_fill(r);
        done += deliver(r);
        sl_reader_fill(r);
        now = ops->now_ns(r->io);
    }
    /* With half of the queue in the drive's hands the rest goes with the next call: that halves the
     * system calls under load. */
    if (r->n_flying - r->io->n_held < r->config.depth / 2)
        ops->flush(r->io);
    r->stats.wait_ns += now - start;
    sl_count(disk_wait_ns_total, now - start);
    publish(r);
    return done;
}

uint32_t sl_reader_wait_until(struct sl_reader *r, uint32_t leave, int64_t timeout_ns) {
    if (r->delivering)
        return 0;
    const struct sl_io_ops *ops = r->io->ops;
    uint64_t start = ops->now_ns(r->io), now = start;
    sl_reader_fill(r);
    uint32_t done = deliver(r);
    sl_reader_fill(r);
    while (r->n_flying > 0 && (r->n_flying > leave || r->queue[SL_READ_DEMAND].first)) {
        int64_t left = -1;
        if (timeout_ns >= 0) {
            if (now - start >= (uint64_t)timeout_ns)
                break;
            left = timeout_ns - (int64_t)(now - start);
        }
        uint32_t n = r->n_flying > leave ? r->n_flying - leave : 1;
        uint32_t low = r->queue[SL_READ_DEMAND].first ? r->n_flying / 2
                       : sl_reader_has_queued(r)      ? r->config.background_depth / 2
                                                      : 0;
        if (r->n_flying > low && n > r->n_flying - low)
            n = r->n_flying - low; /* the queue must not run dry */
        reap(r, n, left);
        sl_reader_fill(r);
        done += deliver(r);
        sl_reader_fill(r);
        now = ops->now_ns(r->io);
    }
    ops->flush(r->io);
    r->stats.wait_ns += now - start;
    sl_count(disk_wait_ns_total, now - start);
    publish(r);
    return done;
}

uint32_t sl_reader_look(struct sl_reader *r, uint64_t ns) {
    const struct sl_io_ops *ops = r->io->ops;
    if (r->delivering || !ops->look)
        return 0;
    uint64_t start = ops->now_ns(r->io), now = start;
    uint32_t done;
    for (;;) {
        reap(r, 0, 0);
        sl_reader_fill(r);
        done = deliver(r);
        sl_reader_fill(r);
        ops->flush(r->io); /* a request that is repeated, or that now has room */
        if (done > 0 || r->n_flying == 0 || now - start >= ns)
            break;
        ops->look(r->io, start + ns);
        now = ops->now_ns(r->io);
    }
    r->stats.wait_ns += now - start;
    sl_count(disk_wait_ns_total, now - start);
    publish(r);
    return done;
}

bool sl_reader_can_look(const struct sl_reader *r) {
    return r->io->ops->look != NULL;
}

uint32_t sl_reader_flying(const struct sl_reader *r) {
    return r->n_flying;
}

void sl_reader_unregister(struct sl_reader *r) {
    if (r->io->ops->unregister && !r->n_outstanding)
        r->io->ops->unregister(r->io);
}

void sl_reader_close(struct sl_reader **reader) {
    struct sl_reader *r = *reader;
    if (!r)
        return;
    for (uint32_t p = 0; p < SL_READ_PRIORITIES; p++)
        while (r->queue[p].first)
            sl_reader_end(r, r->queue[p].first, SL_ERR_CANCELED);
    for (uint32_t i = 0; i < r->config.depth * SL_READER_COPIES; i++)
        if (r->requests[i].read)
            sl_reader_cancel(r, r->requests[i].read);
    while (r->n_outstanding > 0)
        sl_reader_wait(r, r->n_outstanding, -1);
    publish(r);
    sl_reader_close_files(r);
    sl_reader_unregister(r);
    r->io->ops->destroy(r->io);
    free(r->requests);
    free(r->files);
    free(r);
    *reader = NULL;
}

void sl_reader_get_stats(const struct sl_reader *r, struct sl_reader_stats *out_stats) {
    struct sl_reader_stats s = r->stats;
    s.syscalls = r->io->syscalls;
    s.waiting_reads = r->n_outstanding;
    s.flying_requests = r->n_flying;
    if (r->n_flying > 0)
        s.busy_ns += r->io->ops->now_ns(r->io) - r->busy_since_ns;
    *out_stats = s;
}

void sl_reader_describe(const struct sl_reader *r, char *out_text, size_t size) {
    uint32_t n = 0, direct = 0;
    for (uint32_t f = 0; f < r->n_files; f++)
        for (uint32_t c = 0; c < r->files[f].n_copies; c++)
            if (r->files[f].copy[c].alive) {
                n++;
                direct += r->files[f].copy[c].direct;
            }
    char io[160];
    r->io->ops->describe(r->io, io, sizeof io);
    const char *how = direct == n ? "O_DIRECT" : direct ? "partly O_DIRECT" : "buffered";
    snprintf(out_text, size, "%s, %s, %u requests of %u KiB, %u file%s", io, how, r->config.depth,
             r->config.request_bytes >> 10, n, n == 1 ? "" : "s");
}
