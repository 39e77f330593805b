#include "streaming/fake.h"
#include "streaming/reader_internal.h"

#include "common/rng.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FLYING (SL_READER_MAX_DEPTH * SL_READER_COPIES)

struct fake_file {
    const uint8_t *data;
    uint64_t size_bytes;
};

struct drive {
    struct sl_fake_drive model;
    uint64_t channel_free_ns;                   /* when the last byte asked for so far has passed */
    uint64_t slot_free_ns[SL_READER_MAX_DEPTH]; /* [drive_depth] when each place is free again */
    uint32_t first_free; /* the place that is free first: requests end in the order they came in */
};

struct flying {
    uint64_t end_ns, sequence;
    struct sl_io_request *request;
};

struct fake {
    struct sl_io base;
    struct sl_fake_clock *clock;
    struct drive drive[SL_READER_COPIES];
    struct fake_file *files; /* [SL_READER_FILES * SL_READER_COPIES], by descriptor */
    uint32_t n_files;
    struct sl_fake_fault *faults;
    uint32_t n_faults;
    struct sl_rng rng;
    uint64_t reorder_ns, sequence;
    struct sl_io_request *held[MAX_FLYING]; /* [base.n_held] started, not yet the drive's */
    uint32_t n_flying;
    struct flying heap[MAX_FLYING]; /* by end, then by start */
};

static bool before(const struct flying *a, const struct flying *b) {
    return a->end_ns != b->end_ns ? a->end_ns < b->end_ns : a->sequence < b->sequence;
}

static void push(struct fake *f, struct flying x) {
    assert(f->n_flying < MAX_FLYING);
    uint32_t i = f->n_flying++;
    for (; i > 0 && before(&x, &f->heap[(i - 1) / 2]); i = (i - 1) / 2)
        f->heap[i] = f->heap[(i - 1) / 2];
    f->heap[i] = x;
}

static struct sl_io_request *pop(struct fake *f) {
    struct sl_io_request *q = f->heap[0].request;
    struct flying x = f->heap[--f->n_flying];
    uint32_t i = 0;
    for (;;) {
        uint32_t c = 2 * i + 1;
        if (c >= f->n_flying)
            break;
        if (c + 1 < f->n_flying && before(&f->heap[c + 1], &f->heap[c]))
            c++;
        if (before(&x, &f->heap[c]))
            break;
        f->heap[i] = f->heap[c];
        i = c;
    }
    f->heap[i] = x;
    return q;
}

/* When the drive has the request's last byte. */
static uint64_t serve(struct fake *f, const struct sl_io_request *q) {
    struct drive *d = &f->drive[q->copy];
    uint64_t begin = f->clock->now_ns;
    uint64_t *place = NULL;
    uint32_t depth = d->model.drive_depth;
    if (depth > 0) {
        place = &d->slot_free_ns[d->first_free];
        d->first_free = (d->first_free + 1) % depth;
        if (*place > begin)
            begin = *place;
    }
    uint64_t end = begin + d->model.latency_ns;
    if (d->model.bytes_per_s > 0) {
        if (end < d->channel_free_ns)
            end = d->channel_free_ns;
        end += (uint64_t)((double)q->len_bytes * 1e9 / (double)d->model.bytes_per_s + 0.5);
        d->channel_free_ns = end;
    }
    if (place)
        *place = end;
    return end;
}

static void fake_start(struct sl_io *io, struct sl_io_request *q) {
    struct fake *f = (struct fake *)io;
    assert(io->n_held < MAX_FLYING);
    f->held[io->n_held++] = q;
}

/* The drive takes a request, now. */
static void hand_over(struct fake *f, struct sl_io_request *q) {
    assert(q->fd >= 0 && (uint32_t)q->fd < f->n_files);
    assert((uintptr_t)q->buf % SL_IO_BLOCK_BYTES == 0 && q->offset_bytes % SL_IO_BLOCK_BYTES == 0 &&
           q->len_bytes % SL_IO_BLOCK_BYTES == 0);
    const struct fake_file *file = &f->files[q->fd];
    uint64_t end = serve(f, q), n = 0;
    if (q->offset_bytes < file->size_bytes)
        n = file->size_bytes - q->offset_bytes;
    if (n > q->len_bytes)
        n = q->len_bytes;

    int error = 0;
    for (uint32_t i = 0; i < f->n_faults; i++) {
        struct sl_fake_fault *x = &f->faults[i];
        if (x->file != q->file || x->copy != q->copy || x->times == UINT32_MAX ||
            q->offset_bytes > x->last_byte || q->offset_bytes + q->len_bytes <= x->first_byte)
            continue;
        if (x->times > 0 && --x->times == 0)
            x->times = UINT32_MAX; /* used up */
        end += x->delay_ns;
        if (error == 0)
            error = x->error;
        if (x->cut_short && n > x->short_bytes)
            n = x->short_bytes;
    }
    if (f->reorder_ns > 0)
        end += sl_rng_u64(&f->rng) % f->reorder_ns;
    q->result = error ? -error : (int32_t)n;
    if (!error && file->data && n > 0)
        memcpy(q->buf, file->data + q->offset_bytes, n);
    push(f, (struct flying){.end_ns = end, .sequence = f->sequence++, .request = q});
}

/* One system call for all, as io_uring's. */
static void fake_flush(struct sl_io *io) {
    struct fake *f = (struct fake *)io;
    for (uint32_t i = 0; i < io->n_held; i++)
        hand_over(f, f->held[i]);
    io->syscalls += io->n_held > 0;
    io->n_held = 0;
}

static uint32_t n_ended(const struct fake *f) {
    uint32_t n = 0;
    if (f->n_flying > 0 && f->heap[0].end_ns > f->clock->now_ns)
        return 0;
    for (uint32_t i = 0; i < f->n_flying; i++)
        n += f->heap[i].end_ns <= f->clock->now_ns;
    return n;
}

static uint32_t fake_reap(struct sl_io *io, struct sl_io_request **out, uint32_t max,
                          uint32_t wait_n, int64_t timeout_ns) {
    struct fake *f = (struct fake *)io;
    uint64_t limit = timeout_ns < 0 ? UINT64_MAX : f->clock->now_ns + (uint64_t)timeout_ns;
    uint32_t n = 0, n_held = io->n_held;
    assert(wait_n <= f->n_flying + n_held);
    if (wait_n > 0 && n_ended(f) < wait_n) { /* submits and waits in one call */
        fake_flush(io);
        io->syscalls += n_held == 0;
    }
    while (n < max && f->n_flying > 0) {
        uint64_t end = f->heap[0].end_ns;
        if (end > f->clock->now_ns) {
            if (n >= wait_n)
                break;
            if (end > limit) {
                f->clock->now_ns = limit;
                break;
            }
            f->clock->now_ns = end;
        }
        out[n++] = pop(f);
    }
    return n;
}

static void fake_look(struct sl_io *io, uint64_t until_ns) {
    struct fake *f = (struct fake *)io;
    uint64_t end = f->n_flying > 0 && f->heap[0].end_ns < until_ns ? f->heap[0].end_ns : until_ns;
    if (end > f->clock->now_ns)
        f->clock->now_ns = end;
}

static uint64_t fake_now_ns(struct sl_io *io) {
    return ((struct fake *)io)->clock->now_ns;
}

static void fake_describe(const struct sl_io *io, char *out_text, size_t size) {
    (void)io;
    snprintf(out_text, size, "fake");
}

static void fake_destroy(struct sl_io *io) {
    struct fake *f = (struct fake *)io;
    free(f->files);
    free(f);
}

static const struct sl_io_ops fake_ops = {
    .name = "fake",
    .start = fake_start,
    .flush = fake_flush,
    .reap = fake_reap,
    .now_ns = fake_now_ns,
    .look = fake_look,
    .describe = fake_describe,
    .destroy = fake_destroy,
};

enum sl_status sl_fake_open(const struct sl_fake_config *config, struct sl_reader **out_reader,
                            struct sl_err *err) {
    struct sl_reader_config c = config->reader;
    c.kind = SL_IO_FAKE;
    sl_reader_defaults(&c);
    if (c.depth > SL_READER_MAX_DEPTH)
        return sl_fail(err, SL_ERR_INVALID, "a queue depth of %u; at most %u", c.depth,
                       SL_READER_MAX_DEPTH);
    struct fake *f = calloc(1, sizeof *f);
    if (f)
        f->files = calloc((size_t)SL_READER_FILES * SL_READER_COPIES, sizeof *f->files);
    if (!f || !f->files) {
        free(f);
        return sl_fail(err, SL_ERR_NOMEM, "no memory for a fake disk");
    }
    f->base.ops = &fake_ops;
    f->clock = config->clock;
    f->rng.state = config->reorder_seed;
    f->reorder_ns = config->reorder_seed ? config->reorder_ns : 0;
    for (uint32_t i = 0; i < SL_READER_COPIES; i++) {
        f->drive[i].model = config->drive[i];
        if (f->drive[i].model.drive_depth > SL_READER_MAX_DEPTH)
            f->drive[i].model.drive_depth = SL_READER_MAX_DEPTH;
    }
    *out_reader = sl_reader_alloc(&f->base, &c);
    if (!*out_reader) {
        fake_destroy(&f->base);
        return sl_fail(err, SL_ERR_NOMEM, "no memory for a fake reader");
    }
    return SL_OK;
}

enum sl_status sl_fake_add_file(struct sl_reader *r, uint32_t file, const uint8_t *data,
                                uint64_t size_bytes, uint32_t *out_file, struct sl_err *err) {
    struct fake *f = (struct fake *)r->io;
    assert(r->io->ops == &fake_ops);
    char name[32];
    snprintf(name, sizeof name, "fake%u", f->n_files);
    struct sl_file_copy c = {.path = strdup(name),
                             .fd = (int)f->n_files,
                             .fixed_file = -1,
                             .alive = true,
                             .direct = true,
                             .size_bytes = size_bytes};
    if (!c.path)
        return sl_fail(err, SL_ERR_NOMEM, "no memory for a fake file");
    if (file == SL_READER_FILES)
        file = r->n_files;
    enum sl_status status = sl_reader_adopt_file(r, file, &c, err);
    if (status != SL_OK) {
        free(c.path);
        return status;
    }
    f->files[f->n_files++] = (struct fake_file){.data = data, .size_bytes = size_bytes};
    if (out_file)
        *out_file = file;
    return SL_OK;
}

void sl_fake_set_faults(struct sl_reader *r, struct sl_fake_fault *faults, uint32_t n) {
    struct fake *f = (struct fake *)r->io;
    assert(r->io->ops == &fake_ops);
    f->faults = faults;
    f->n_faults = n;
}
