#include "engine/weights/weights.h"

#include "common/clock.h"
#include "common/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Two tensors this far apart are read in one go; the bytes between them are wasted. */
#define MAX_GAP_BYTES (64u << 10)
#define PIECE_BYTES   (8u << 20)
#define N_READERS     4u
#define ROWS_BYTES    (1u << 20) /* of a piece of a tensor of which a part is kept */
#define MAX_PARTS     2u         /* tensors of which a part is kept: sl_table_cut */
/* Reading a piece of this size or less unbuffered gains nothing. */
#define MIN_DIRECT_BYTES (256u << 10)

static uint64_t round_up(uint64_t n) {
    return (n + SL_IO_ALIGN_BYTES - 1) & ~(uint64_t)(SL_IO_ALIGN_BYTES - 1);
}

/* ---- layout ---- */

static int tensor_order(const void *pa, const void *pb) {
    const struct sl_gguf_tensor *a = *(const struct sl_gguf_tensor *const *)pa;
    const struct sl_gguf_tensor *b = *(const struct sl_gguf_tensor *const *)pb;
    if (a->file != b->file)
        return a->file < b->file ? -1 : 1;
    return (a->offset_bytes > b->offset_bytes) - (a->offset_bytes < b->offset_bytes);
}

/* The tensor that holds this byte of the file, for error texts. */
static struct sl_str tensor_at(const struct sl_weights_layout *l, uint32_t file, uint64_t offset) {
    for (uint32_t i = 0; i < l->n_tensors; i++) {
        const struct sl_gguf_tensor *t = l->tensors[i];
        if (t->file == file && offset < t->offset_bytes + t->size_bytes)
            return t->name;
    }
    return (struct sl_str){"?", 1};
}

/* Places runs as they will be read: to the end of a block. */
static enum sl_status place_runs(struct sl_weights_layout *l, const struct sl_device *dev,
                                 struct sl_err *err) {
    sl_buffer_pool_init(&l->pool, dev, SL_IO_ALIGN_BYTES);
    for (uint32_t i = 0; i < l->n_runs; i++) {
        struct sl_weight_run *r = &l->runs[i];
        enum sl_status status = sl_buffer_pool_add(&l->pool, 1, round_up(r->size_bytes), &r->place);
        if (status == SL_ERR_UNSUPPORTED) {
            char what[128];
            struct sl_str name = tensor_at(l, r->file, r->offset_bytes + r->size_bytes - 1);
            snprintf(what, sizeof what, "tensor '%.*s'", (int)(name.len < 100 ? name.len : 100),
                     name.ptr);
            return sl_buffer_pool_refuse(dev, what, r->size_bytes,
                                         "use another device, or a file with smaller types", err);
        }
        if (status != SL_OK)
            return sl_fail(err, status, "no memory for the list of the model's tensors");
    }
    l->total_bytes = sl_buffer_pool_bytes(&l->pool);
    return SL_OK;
}

/* Does a run from offset on to this end fit a buffer? */
static bool fits(const struct sl_device *dev, uint64_t offset, uint64_t end) {
    uint64_t most = dev ? dev->caps.max_alloc_bytes : 0;
    return !most || round_up(end - offset) + SL_IO_ALIGN_BYTES <= most;
}

enum sl_status sl_weights_layout_make(const struct sl_model *model, struct sl_weights_part part,
                                      const struct sl_device *dev,
                                      struct sl_weights_layout *out_layout, struct sl_err *err) {
    struct sl_weights_layout l = {0};
    size_t max = (size_t)SL_G_COUNT + (size_t)model->hp.n_layer * SL_L_COUNT;
    l.tensors = malloc(max * sizeof *l.tensors);
    l.runs = malloc(max * sizeof *l.runs);
    if (!l.tensors || !l.runs) {
        sl_weights_layout_release(&l);
        return sl_fail(err, SL_ERR_NOMEM, "no memory for the list of the model's tensors");
    }
    uint32_t n = 0;
    for (uint32_t g = 0; g < SL_G_COUNT; g++)
        if (model->global[g] && !sl_tables_have(model, part.no_tables, model->global[g]))
            l.tensors[n++] = model->global[g];
    for (uint32_t i = 0; i < model->hp.n_layer; i++)
        for (uint32_t r = 0; r < SL_L_COUNT; r++)
            if (model->layers[i].t[r] &&
                (part.experts || !sl_role_is_expert((enum sl_layer_role)r)))
                l.tensors[n++] = model->layers[i].t[r];
    qsort(l.tensors, n, sizeof *l.tensors, tensor_order);
    struct sl_weight_run parts[MAX_PARTS];
    uint32_t n_parts = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct sl_gguf_tensor *t = l.tensors[i];
        struct sl_tensor_cut cut;
        if (l.n_tensors && l.tensors[l.n_tensors - 1] == t)
            continue; /* a tied output is the embedding again */
        l.tensors[l.n_tensors++] = t;
        if (n_parts < MAX_PARTS && sl_table_cut(model, t, &cut)) {
            parts[n_parts++] = (struct sl_weight_run){.file = t->file,
                                                      .offset_bytes = cut.offset_bytes,
                                                      .size_bytes = cut.n_rows * cut.row_bytes,
                                                      .of = t,
                                                      .cut = cut};
            continue;
        }
        struct sl_weight_run *last = l.n_runs ? &l.runs[l.n_runs - 1] : NULL;
        uint64_t end = t->offset_bytes + t->size_bytes;
        if (last && last->file == t->file &&
            t->offset_bytes - (last->offset_bytes + last->size_bytes) <= MAX_GAP_BYTES &&
            fits(dev, last->offset_bytes, end)) {
            last->size_bytes = end - last->offset_bytes;
            continue;
        }
        uint64_t start = t->offset_bytes & ~(uint64_t)(SL_IO_ALIGN_BYTES - 1);
        l.runs[l.n_runs++] = (struct sl_weight_run){
            .file = t->file, .offset_bytes = start, .size_bytes = end - start};
    }
    for (uint32_t i = 0; i < n_parts; i++)
        l.runs[l.n_runs++] = parts[i];
    enum sl_status status = place_runs(&l, dev, err);
    if (status == SL_OK)
        *out_layout = l;
    else
        sl_weights_layout_release(&l);
    return status;
}

void sl_weights_layout_release(struct sl_weights_layout *layout) {
    sl_buffer_pool_release(&layout->pool);
    free(layout->tensors);
    free(layout->runs);
    memset(layout, 0, sizeof *layout);
}

/* ---- loading ---- */

struct sl_weights {
    struct sl_device *dev;
    struct sl_weights_layout layout;
};

static ssize_t system_pread(const struct sl_weights_io *io, int fd, void *buf, size_t n,
                            off_t offset) {
    (void)io;
    return pread(fd, buf, n, offset);
}

/* Asks mincore about a mapping that is never touched. (preadv2 with RWF_NOWAIT would start a
 * readahead for what it does not find, and each byte would be read from the disk twice.) */
static bool system_cached(const struct sl_weights_io *io, int fd, off_t offset, size_t n) {
    (void)io;
    unsigned char page[PIECE_BYTES / SL_IO_ALIGN_BYTES + 1];
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE), n_pages = (n + page_bytes - 1) / page_bytes;
    void *map = mmap(NULL, n, PROT_READ, MAP_SHARED, fd, offset);
    if (map == MAP_FAILED)
        return false;
    size_t have = 0;
    if (n_pages <= sizeof page && mincore(map, n, page) == 0)
        for (size_t i = 0; i < n_pages; i++)
            have += page[i] & 1;
    munmap(map, n);
    return have * 10 >= n_pages * 9;
}

const struct sl_weights_io sl_weights_system_io = {system_pread, system_cached};

struct loader {
    struct sl_weights *w;
    const struct sl_gguf *gguf;
    const struct sl_weights_io *io;
    struct sl_progress *progress;
    int *fd;        /* [n_files] through the page cache */
    int *fd_direct; /* [n_files] unbuffered, -1 where the file system has none */
    /* [N_READERS, buffer_bytes] of PIECE_BYTES on the way to the device, of ROWS_BYTES where rows
     * are cut on the way to the host's own memory; NULL: none is needed */
    char *buffers;
    size_t buffer_bytes;
    uint32_t n_buffers_taken; /* under lock */
    pthread_mutex_t device;   /* held to call it: it is for one thread at a time */
    pthread_mutex_t lock;
    /* under lock */
    uint32_t run; /* next piece: run and offset in it */
    uint64_t run_done_bytes;
    uint64_t done_bytes, total_bytes;
    uint64_t cached_bytes;
    enum sl_status status;
    struct sl_err err;
};

static enum sl_status read_failed(struct loader *ld, struct sl_err *err, uint32_t file,
                                  uint64_t offset, int error) {
    struct sl_str name = tensor_at(&ld->w->layout, file, offset);
    int name_len = (int)(name.len < 100 ? name.len : 100);
    const char *path = sl_gguf_file_path(ld->gguf, file);
    if (error)
        return sl_fail(err, SL_ERR_IO, "%s: reading tensor '%.*s' at byte %" PRIu64 ": %s", path,
                       name_len, name.ptr, offset, strerror(error));
    return sl_fail(err, SL_ERR_IO,
                   "%s: ends at byte %" PRIu64 ", inside tensor '%.*s'; the file was %" PRIu64
                   " bytes long when it was opened: copy it again",
                   path, offset, name_len, name.ptr, sl_gguf_file_bytes(ld->gguf, file));
}

/* Fills dst[0..n) from the file. dst and offset share their remainder modulo the I/O alignment;
 * dst may be written up to the next multiple after n. */
static enum sl_status read_piece(struct loader *ld, uint32_t file, char *dst, uint64_t offset,
                                 uint64_t n, uint64_t *out_cached, struct sl_err *err) {
    uint64_t done = 0;
    /* What the page cache holds is copied at memory speed; the rest goes around it, so that a
     * model does not push everything else out of RAM by being in it twice. */
    bool cached = ld->io->cached(ld->io, ld->fd[file], (off_t)offset, n);
    if (cached)
        *out_cached = n;
    else if (ld->fd_direct[file] >= 0 && n >= MIN_DIRECT_BYTES) {
        while (done < n) {
            ssize_t got = ld->io->pread(ld->io, ld->fd_direct[file], dst + done, round_up(n - done),
                                        (off_t)(offset + done));
            if (got < 0 && errno == EINTR)
                continue;
            if (got <= 0)
                break; /* the buffered loop below tries again and words the error */
            done += (uint64_t)got;
            if (done % SL_IO_ALIGN_BYTES)
                break; /* end of file or an odd short read */
        }
    }
    while (done < n) {
        ssize_t got =
            ld->io->pread(ld->io, ld->fd[file], dst + done, n - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return read_failed(ld, err, file, offset + done, got < 0 ? errno : 0);
        done += (uint64_t)got;
    }
    return SL_OK;
}

static enum sl_status upload(struct loader *ld, struct sl_span to, const char *from,
                             struct sl_err *err) {
    pthread_mutex_lock(&ld->device);
    enum sl_status status = sl_device_upload(ld->w->dev, to, from);
    pthread_mutex_unlock(&ld->device);
    return status == SL_OK ? SL_OK
                           : sl_fail(err, status, "copying weights to %s: %s",
                                     ld->w->dev->caps.name, sl_status_text(status));
}

/* Reads whole rows, of which a part is kept, and packs these: n bytes from start on of what is
 * kept. */
static enum sl_status load_rows(struct loader *ld, const struct sl_weight_run *run, uint64_t start,
                                uint64_t n, char *buffer, uint64_t *out_cached,
                                struct sl_err *err) {
    const struct sl_tensor_cut *c = &run->cut;
    struct sl_span to =
        sl_span_part(sl_buffer_pool_at(&ld->w->layout.pool, &run->place, 0), start, n);
    bool straight = ld->w->dev->caps.host_visible;
    uint64_t first = start / c->row_bytes, rows = n / c->row_bytes;
    uint64_t offset = c->offset_bytes + first * c->stride_bytes, skew = offset % SL_IO_ALIGN_BYTES;
    char *from = buffer + skew, *at = straight ? sl_span_host(to) : buffer;
    SL_TRY(read_piece(ld, run->file, buffer, offset - skew,
                      skew + (rows - 1) * c->stride_bytes + c->row_bytes, out_cached, err));
    for (uint64_t i = 0; i < rows; i++)
        memmove(at + i * c->row_bytes, from + i * c->stride_bytes, c->row_bytes);
    return straight ? SL_OK : upload(ld, to, buffer, err);
}

/* Of a run's bytes from start on, how many are loaded at once. */
static uint64_t piece_bytes(const struct sl_weight_run *run, uint64_t start) {
    uint64_t left = run->size_bytes - start, most = PIECE_BYTES;
    if (run->of) /* whole rows, with what aligning them takes */
        most = (ROWS_BYTES - 2 * SL_IO_ALIGN_BYTES) / run->cut.stride_bytes * run->cut.row_bytes;
    return left < most ? left : most;
}

/* Reads n bytes of a run from start on to their place, through buffer (NULL: straight). */
static enum sl_status load_piece(struct loader *ld, const struct sl_weight_run *run, uint64_t start,
                                 uint64_t n, char *buffer, uint64_t *out_cached,
                                 struct sl_err *err) {
    struct sl_span image = sl_buffer_pool_at(&ld->w->layout.pool, &run->place, 0);
    struct sl_span place = sl_span_part(image, start, n);
    bool straight = ld->w->dev->caps.host_visible;
    if (run->of)
        return load_rows(ld, run, start, n, buffer, out_cached, err);
    SL_TRY(read_piece(ld, run->file, straight ? sl_span_host(place) : buffer,
                      run->offset_bytes + start, n, out_cached, err));
    return straight ? SL_OK : upload(ld, place, buffer, err);
}

static void *reader_main(void *arg) {
    struct loader *ld = arg;
    const struct sl_weights_layout *l = &ld->w->layout;
    pthread_mutex_lock(&ld->lock);
    char *buffer = ld->buffers ? ld->buffers + ld->n_buffers_taken++ * ld->buffer_bytes : NULL;
    while (ld->status == SL_OK && ld->run < l->n_runs) {
        const struct sl_weight_run *run = &l->runs[ld->run];
        uint64_t start = ld->run_done_bytes;
        uint64_t n = piece_bytes(run, start);
        ld->run_done_bytes += n;
        if (ld->run_done_bytes == run->size_bytes) {
            ld->run++;
            ld->run_done_bytes = 0;
        }
        pthread_mutex_unlock(&ld->lock);

        struct sl_err err;
        uint64_t cached = 0;
        enum sl_status status = load_piece(ld, run, start, n, buffer, &cached, &err);
        pthread_mutex_lock(&ld->lock);
        if (status != SL_OK) {
            if (ld->status == SL_OK) {
                ld->status = status;
                ld->err = err;
            }
            break;
        }
        ld->done_bytes += n;
        ld->cached_bytes += cached;
        if (ld->progress && ld->status == SL_OK &&
            !ld->progress->report(ld->progress, ld->done_bytes, ld->total_bytes))
            ld->status = sl_fail(&ld->err, SL_ERR_CANCELED, "loading was canceled");
    }
    pthread_mutex_unlock(&ld->lock);
    return NULL;
}

static enum sl_status open_files(struct loader *ld, uint32_t n_files, struct sl_err *err) {
    for (uint32_t i = 0; i < n_files; i++) {
        const char *path = sl_gguf_file_path(ld->gguf, i);
        ld->fd[i] = open(path, O_RDONLY | O_CLOEXEC);
        if (ld->fd[i] < 0)
            return sl_fail(err, SL_ERR_IO, "%s: %s", path, strerror(errno));
        ld->fd_direct[i] = open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);
        if (ld->fd_direct[i] < 0)
            sl_debug("%s: no unbuffered reads here (%s), reading through the page cache", path,
                     strerror(errno));
    }
    return SL_OK;
}

static enum sl_status load_all(struct loader *ld, struct sl_err *err) {
    uint64_t start_ns = sl_now_ns();
    for (uint32_t r = 0; r < ld->w->layout.n_runs; r++)
        ld->total_bytes += ld->w->layout.runs[r].size_bytes;
    pthread_t thread[N_READERS];
    uint32_t n_started = 0;
    while (n_started + 1 < N_READERS && ld->total_bytes > (uint64_t)n_started * PIECE_BYTES &&
           pthread_create(&thread[n_started], NULL, reader_main, ld) == 0)
        n_started++;
    reader_main(ld); /* this thread too: it works even where no thread could be started */
    for (uint32_t i = 0; i < n_started; i++)
        pthread_join(thread[i], NULL);
    if (ld->status != SL_OK)
        return sl_fail(err, ld->status, "%s", ld->err.text);
    double s = (double)(sl_now_ns() - start_ns) * 1e-9;
    sl_debug("read %.2f GiB of weights in %.2f s, %.2f GB/s, %.0f %% of it from the page cache",
             (double)ld->total_bytes / 0x1p30, s, (double)ld->total_bytes * 1e-9 / s,
             100.0 * (double)ld->cached_bytes / (double)(ld->total_bytes ? ld->total_bytes : 1));
    return SL_OK;
}

static enum sl_status make_buffers(struct loader *ld, struct sl_err *err) {
    const struct sl_weights_layout *l = &ld->w->layout;
    bool straight = ld->w->dev->caps.host_visible;
    if (straight && !(l->n_runs && l->runs[l->n_runs - 1].of))
        return SL_OK;
    ld->buffer_bytes = straight ? ROWS_BYTES : PIECE_BYTES;
    ld->buffers = aligned_alloc(SL_IO_ALIGN_BYTES, N_READERS * ld->buffer_bytes);
    return ld->buffers ? SL_OK : sl_fail(err, SL_ERR_NOMEM, "no memory to load the weights");
}

enum sl_status sl_weights_load(const struct sl_model *model, struct sl_weights_part part,
                               struct sl_device *dev, const struct sl_weights_io *io,
                               struct sl_progress *progress, struct sl_weights **out_weights,
                               struct sl_err *err) {
    uint32_t n_files = sl_gguf_n_files(model->gguf);
    struct sl_weights *w = calloc(1, sizeof *w);
    struct loader ld = {.w = w, .gguf = model->gguf, .io = io, .progress = progress};
    ld.fd = malloc(n_files * sizeof *ld.fd);
    ld.fd_direct = malloc(n_files * sizeof *ld.fd_direct);
    enum sl_status status;
    _Static_assert(SL_WEIGHTS_LOAD_BYTES == (uint64_t)N_READERS * PIECE_BYTES, "as planned");
    _Static_assert(SL_WEIGHTS_CUT_BYTES == (uint64_t)N_READERS * ROWS_BYTES, "as planned");
    if (!w || !ld.fd || !ld.fd_direct) {
        status = sl_fail(err, SL_ERR_NOMEM, "no memory to load the weights");
        goto free_lists;
    }
    for (uint32_t i = 0; i < n_files; i++)
        ld.fd[i] = ld.fd_direct[i] = -1;
    pthread_mutex_init(&ld.lock, NULL);
    pthread_mutex_init(&ld.device, NULL);
    w->dev = dev;
    status = sl_weights_layout_make(model, part, dev, &w->layout, err);
    if (status == SL_OK)
        status = make_buffers(&ld, err);
    if (status != SL_OK)
        goto close_files;
    status = sl_buffer_pool_alloc(&w->layout.pool, dev);
    if (status != SL_OK) {
        status = sl_fail(err, status, "no memory for %.1f MiB of weights on %s",
                         (double)w->layout.total_bytes / 0x1p20, dev->caps.name);
        goto close_files;
    }
    status = open_files(&ld, n_files, err);
    if (status == SL_OK)
        status = load_all(&ld, err);
    if (status == SL_OK && !dev->caps.host_visible) {
        status = sl_device_sync(dev);
        if (status != SL_OK)
            status = sl_fail(err, status, "copying weights to %s: %s", dev->caps.name,
                             sl_status_text(status));
    }
close_files:
    for (uint32_t i = 0; i < n_files; i++) {
        if (ld.fd[i] >= 0)
            close(ld.fd[i]);
        if (ld.fd_direct[i] >= 0)
            close(ld.fd_direct[i]);
    }
    pthread_mutex_destroy(&ld.device);
    pthread_mutex_destroy(&ld.lock);
free_lists:
    free(ld.buffers);
    free(ld.fd);
    free(ld.fd_direct);
    if (status != SL_OK) {
        sl_weights_destroy(&w);
        return status;
    }
    *out_weights = w;
    return SL_OK;
}

void sl_weights_destroy(struct sl_weights **pw) {
    struct sl_weights *w = *pw;
    if (!w)
        return;
    sl_weights_layout_release(&w->layout);
    free(w);
    *pw = NULL;
}

struct sl_span sl_weights_span(const struct sl_weights *w, const struct sl_gguf_tensor *tensor) {
    const struct sl_weights_layout *l = &w->layout;
    /* Another run may have all of a small one between two tensors: parts, which are last, first. */
    for (uint32_t i = l->n_runs; tensor && i-- > 0;) {
        const struct sl_weight_run *r = &l->runs[i];
        if (r->of == tensor)
            return sl_span_part(sl_buffer_pool_at(&l->pool, &r->place, 0), 0, r->size_bytes);
        if (!r->of && r->file == tensor->file && tensor->offset_bytes >= r->offset_bytes &&
            tensor->offset_bytes + tensor->size_bytes <= r->offset_bytes + r->size_bytes)
            return sl_span_part(sl_buffer_pool_at(&w->layout.pool, &r->place, 0),
                                tensor->offset_bytes - r->offset_bytes, tensor->size_bytes);
    }
    return (struct sl_span){0};
}

const void *sl_weights_addr(const struct sl_weights *w, const struct sl_gguf_tensor *tensor) {
    struct sl_span s = sl_weights_span(w, tensor);
    return s.buffer ? sl_span_addr(s) : NULL;
}
