#include "cluster/model_cache.h"

#include "common/bytes.h"
#include "common/clock.h"
#include "common/cond.h"
#include "common/crc.h"
#include "engine/tables/table_layout.h"
#include "model/arch/model_slice.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define MAX_FILES 32u
/* The most pieces that are requested at once. */
#define MAX_ASKED 4u
/* How many are written before the list is updated. */
#define FLUSH_PIECES 16u
/* Of all files: 16 TiB. There are two bytes for each piece in memory while the model is fetched. */
#define MAX_PIECES (UINT64_C(1) << 22)
#define LOOK_NS    50000000u

_Static_assert(MAX_FILES == sizeof((struct sl_setup_model *)0)->files /
                                sizeof((struct sl_setup_model *)0)->files[0],
               "as many files as the message holds");

/* Of a piece. What the list says of it is LISTED or something else. */
enum has { MISSING, LISTED, WRITTEN, FLUSHING };

struct file {
    int fd;
    uint64_t size_bytes, header_bytes;
    uint32_t n_pieces;
    uint8_t *has; /* [n_pieces] enum has; under the lock while pieces are asked for */
    off_t listed; /* where its bytes are in the list */
};

struct asked {
    uint32_t file, piece;
    bool waits;
};

struct sl_model_cache {
    char folder[4096 - 64], path[4096];
    struct file files[MAX_FILES];
    uint32_t n_files;
    int list;
    pthread_mutex_t lock;
    pthread_cond_t came;
    /* Under the lock. */
    uint32_t n_unlisted;
    struct asked asked[MAX_ASKED];
    enum sl_status failed; /* the status of writing a piece */
    struct sl_err why;
};

/* ---- the folder ---- */

static enum sl_status io_error(const char *what, const char *path, struct sl_err *err) {
    return sl_fail(err, SL_ERR_IO, "%s '%.300s': %s", what, path, strerror(errno));
}

/* Built from our own words alone: nothing that a peer sends becomes part of a path. */
static void name_file(const struct sl_model_cache *c, uint32_t i, char *out, size_t size) {
    if (c->n_files == 1)
        snprintf(out, size, "%s/model.gguf", c->folder);
    else
        snprintf(out, size, "%s/model-%05u-of-%05u.gguf", c->folder, i + 1, c->n_files);
}

static enum sl_status open_file(struct sl_model_cache *c, uint32_t i, struct sl_err *err) {
    struct file *f = &c->files[i];
    char path[4096];
    name_file(c, i, path, sizeof path);
    f->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (f->fd < 0)
        return io_error("the copy of the model cannot be written:", path, err);
    f->has = calloc(f->n_pieces, 1);
    return f->has ? SL_OK : sl_fail(err, SL_ERR_NOMEM, "no memory for a list of pieces");
}

/* One byte for each piece, files in order; whatever is not 1 is missing. */
static enum sl_status open_list(struct sl_model_cache *c, struct sl_err *err) {
    char path[4096];
    snprintf(path, sizeof path, "%s/pieces", c->folder);
    c->list = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (c->list < 0)
        return io_error("the list of what was fetched cannot be opened:", path, err);
    if (flock(c->list, LOCK_EX | LOCK_NB) != 0)
        return sl_fail(err, SL_ERR_CONFIG,
                       "another worker uses '%.300s': give each its own --model-cache", c->folder);
    return SL_OK;
}

/* A file that is new, or that somebody has truncated, has none of its pieces. The list is written
 * first, and the file gets its full size afterwards. */
static enum sl_status settle_size(struct sl_model_cache *c, struct file *f, struct sl_err *err) {
    struct stat about;
    if (fstat(f->fd, &about) == 0 && (uint64_t)about.st_size == f->size_bytes)
        return SL_OK;
    memset(f->has, MISSING, f->n_pieces);
    if (pwrite(c->list, f->has, f->n_pieces, f->listed) != (ssize_t)f->n_pieces ||
        fdatasync(c->list) != 0)
        return io_error("the list of what was fetched cannot be written:", c->folder, err);
    return ftruncate(f->fd, (off_t)f->size_bytes) == 0
               ? SL_OK
               : io_error("the copy of the model cannot be written:", c->folder, err);
}

static enum sl_status read_list(struct sl_model_cache *c, struct sl_err *err) {
    off_t at = 0;
    for (uint32_t i = 0; i < c->n_files; i++) {
        struct file *f = &c->files[i];
        f->listed = at;
        ssize_t n = pread(c->list, f->has, f->n_pieces, at);
        if (n < 0)
            return io_error("the list of what was fetched cannot be read:", c->folder, err);
        for (uint32_t k = 0; k < f->n_pieces; k++)
            f->has[k] = f->has[k] == LISTED ? LISTED : MISSING;
        at += f->n_pieces;
        SL_TRY(settle_size(c, f, err));
    }
    return SL_OK;
}

/* path and the folders above it, those that are not there yet. What is wrong with one shows when
 * the last one cannot be made. */
static bool make_folders(const char *path) {
    char part[sizeof((struct sl_model_cache *)0)->folder];
    size_t n = strlen(path);
    for (size_t i = 1; i <= n && n < sizeof part; i++) {
        if (path[i] && path[i] != '/')
            continue;
        memcpy(part, path, i);
        part[i] = 0;
        if (mkdir(part, 0700) != 0 && errno != EEXIST && i == n)
            return false;
    }
    return n < sizeof part;
}

static enum sl_status make_folder(struct sl_model_cache *c, const char *dir, uint64_t content,
                                  struct sl_err *err) {
    int n = snprintf(c->folder, sizeof c->folder, "%s/%016" PRIx64, dir, content);
    if (n < 0 || (size_t)n >= sizeof c->folder)
        return sl_fail(err, SL_ERR_CONFIG, "--model-cache: the folder's name is too long");
    if (!make_folders(c->folder))
        return io_error("the folder cannot be made:", c->folder, err);
    return SL_OK;
}

static uint64_t n_pieces(uint64_t bytes) {
    return bytes / SL_PIECE_BYTES + (bytes % SL_PIECE_BYTES != 0);
}

/* Before memory or disk is taken for them. */
static enum sl_status check_files(const struct sl_setup_model *m, struct sl_err *err) {
    uint64_t n = 0;
    if (!m->n_files)
        return sl_fail(err, SL_ERR_PROTOCOL, "a model with no files");
    for (uint32_t i = 0; i < m->n_files; i++) {
        const struct sl_setup_file *f = &m->files[i];
        if (!f->size_bytes || f->header_bytes > f->size_bytes ||
            n_pieces(f->size_bytes) > MAX_PIECES - n)
            return sl_fail(err, SL_ERR_PROTOCOL,
                           "a model with a file of %" PRIu64 " bytes: it may have 1 byte to "
                           "%.0f TiB, with all others",
                           f->size_bytes, (double)(MAX_PIECES * SL_PIECE_BYTES) / 0x1p40);
        n += n_pieces(f->size_bytes);
    }
    return SL_OK;
}

enum sl_status sl_model_cache_open(const char *dir, const struct sl_setup_model *m,
                                   struct sl_model_cache **out, struct sl_err *err) {
    struct sl_model_cache *c = calloc(1, sizeof *c);
    if (!c)
        return sl_fail(err, SL_ERR_NOMEM, "no memory for a copy of the model");
    c->list = -1;
    pthread_mutex_init(&c->lock, NULL);
    sl_cond_init(&c->came);
    c->n_files = m->n_files;
    for (uint32_t i = 0; i < MAX_FILES; i++)
        c->files[i].fd = -1;
    enum sl_status status = check_files(m, err);
    if (status == SL_OK)
        status = make_folder(c, dir, m->content, err);
    if (status == SL_OK)
        status = open_list(c, err);
    for (uint32_t i = 0; i < m->n_files && status == SL_OK; i++) {
        struct file *f = &c->files[i];
        f->size_bytes = m->files[i].size_bytes;
        f->header_bytes = m->files[i].header_bytes;
        f->n_pieces = (uint32_t)n_pieces(f->size_bytes);
        status = open_file(c, i, err);
    }
    if (status == SL_OK)
        status = read_list(c, err);
    if (status != SL_OK) {
        sl_model_cache_close(&c);
        return status;
    }
    name_file(c, 0, c->path, sizeof c->path);
    *out = c;
    return SL_OK;
}

/* Finds pieces that are there and not listed yet; false: there are none. */
static bool begin_flush(struct sl_model_cache *c, struct file *f) {
    bool any = false;
    pthread_mutex_lock(&c->lock);
    for (uint32_t k = 0; k < f->n_pieces; k++)
        if (f->has[k] > LISTED) {
            f->has[k] = FLUSHING;
            any = true;
        }
    pthread_mutex_unlock(&c->lock);
    return any;
}

static bool list_flushed(struct sl_model_cache *c, struct file *f) {
    pthread_mutex_lock(&c->lock);
    for (uint32_t k = 0; k < f->n_pieces; k++)
        if (f->has[k] == FLUSHING)
            f->has[k] = LISTED;
    bool ok = pwrite(c->list, f->has, f->n_pieces, f->listed) == (ssize_t)f->n_pieces;
    pthread_mutex_unlock(&c->lock);
    return ok;
}

/* The bytes are synced before the list, so that every piece that it names survives a crash. Never
 * on the link's thread: a slow disk takes longer than the coordinator waits for a sign of life. */
static enum sl_status flush(struct sl_model_cache *c, struct sl_err *err) {
    pthread_mutex_lock(&c->lock);
    c->n_unlisted = 0;
    pthread_mutex_unlock(&c->lock);
    for (uint32_t i = 0; i < c->n_files; i++) {
        struct file *f = &c->files[i];
        if (!f->has || !begin_flush(c, f))
            continue;
        if (fdatasync(f->fd) != 0)
            return io_error("the copy of the model cannot be written:", c->folder, err);
        if (!list_flushed(c, f))
            return io_error("the list of what was fetched cannot be written:", c->folder, err);
    }
    return SL_OK;
}

void sl_model_cache_close(struct sl_model_cache **pc) {
    struct sl_model_cache *c = *pc;
    struct sl_err unused;
    if (!c)
        return;
    if (c->list >= 0)
        (void)!flush(c, &unused);
    for (uint32_t i = 0; i < MAX_FILES; i++) {
        if (c->files[i].fd >= 0)
            close(c->files[i].fd);
        free(c->files[i].has);
    }
    if (c->list >= 0)
        close(c->list);
    pthread_cond_destroy(&c->came);
    pthread_mutex_destroy(&c->lock);
    free(c);
    *pc = NULL;
}

const char *sl_model_cache_path(const struct sl_model_cache *c) {
    return c->path;
}

/* ---- pieces ---- */

static uint32_t piece_bytes(const struct file *f, uint32_t piece) {
    uint64_t left = f->size_bytes - (uint64_t)piece * SL_PIECE_BYTES;
    return left < SL_PIECE_BYTES ? (uint32_t)left : SL_PIECE_BYTES;
}

/* Under the lock. */
static enum sl_status store(struct sl_model_cache *c, uint32_t file, uint32_t piece,
                            const uint8_t *bytes) {
    struct file *f = &c->files[file];
    size_t n = piece_bytes(f, piece), done = 0;
    while (done < n) {
        ssize_t k =
            pwrite(f->fd, bytes + done, n - done, (off_t)((uint64_t)piece * SL_PIECE_BYTES + done));
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return io_error("the copy of the model cannot be written:", c->folder, &c->why);
        done += (size_t)k;
    }
    f->has[piece] = WRITTEN;
    c->n_unlisted++;
    return SL_OK;
}

enum sl_status sl_model_cache_take(struct sl_model_cache *c, const uint8_t *bytes, size_t n,
                                   struct sl_err *err) {
    if (n < SL_PIECE_HEAD_BYTES)
        return sl_fail(err, SL_ERR_PROTOCOL, "a piece of a file without a head");
    uint32_t file = sl_get_u32(bytes), crc = sl_get_u32(bytes + 12);
    uint64_t offset = sl_get_u64(bytes + 4);
    struct asked *a = NULL;
    pthread_mutex_lock(&c->lock);
    for (uint32_t i = 0; i < MAX_ASKED; i++)
        if (c->asked[i].waits && c->asked[i].file == file &&
            (uint64_t)c->asked[i].piece * SL_PIECE_BYTES == offset)
            a = &c->asked[i];
    bool sound = a && n - SL_PIECE_HEAD_BYTES == piece_bytes(&c->files[file], a->piece);
    bool whole = sound && sl_crc32c(0, bytes + SL_PIECE_HEAD_BYTES, n - SL_PIECE_HEAD_BYTES) == crc;
    if (whole) {
        if (c->failed == SL_OK)
            c->failed = store(c, file, a->piece, bytes + SL_PIECE_HEAD_BYTES);
        a->waits = false;
        pthread_cond_signal(&c->came);
    }
    pthread_mutex_unlock(&c->lock);
    return whole ? SL_OK
                 : sl_fail(err, SL_ERR_PROTOCOL,
                           sound ? "a piece of a file whose bytes are not those that were sent"
                                 : "a piece of a file that nobody asked for");
}

/* ---- fetching ---- */

struct fetching {
    struct sl_model_cache *c;
    struct sl_piece_source *source;
    uint8_t *wanted[MAX_FILES]; /* [n_pieces] */
    uint64_t n_wanted, n_done;
};

/* Marks the pieces that a range of a file is in. */
static void want(struct fetching *f, uint32_t file, uint64_t offset, uint64_t n) {
    const struct file *of = &f->c->files[file];
    uint64_t last = n ? (offset + n - 1) / SL_PIECE_BYTES : 0;
    for (uint64_t k = offset / SL_PIECE_BYTES; n && k <= last && k < of->n_pieces; k++)
        if (!of->has[k] && !f->wanted[file][k]) {
            f->wanted[file][k] = 1;
            f->n_wanted++;
        }
}

static void fetching_release(struct fetching *f) {
    for (uint32_t i = 0; i < MAX_FILES; i++)
        free(f->wanted[i]);
}

static enum sl_status fetching_init(struct fetching *f, struct sl_model_cache *c,
                                    struct sl_piece_source *source, struct sl_err *err) {
    *f = (struct fetching){.c = c, .source = source};
    for (uint32_t i = 0; i < c->n_files; i++)
        if (!(f->wanted[i] = calloc(c->files[i].n_pieces, 1))) {
            fetching_release(f);
            return sl_fail(err, SL_ERR_NOMEM, "no memory for a list of pieces");
        }
    return SL_OK;
}

/* Waits for a free place in asked[]; n_free: how many are to be free. */
static enum sl_status wait_for_place(struct fetching *f, uint32_t n_free, uint32_t *out_place,
                                     struct sl_err *err) {
    struct sl_model_cache *c = f->c;
    enum sl_status status = SL_OK;
    pthread_mutex_lock(&c->lock);
    for (uint32_t n = 0; n < n_free && status == SL_OK;) {
        n = 0;
        for (uint32_t i = 0; i < MAX_ASKED; i++)
            if (!c->asked[i].waits) {
                n++;
                *out_place = i;
            }
        status = c->failed;
        if (status == SL_OK && n < n_free) {
            sl_cond_wait_until(&c->came, &c->lock, sl_now_ns() + LOOK_NS);
            pthread_mutex_unlock(&c->lock);
            bool wanted = f->source->wanted(f->source);
            pthread_mutex_lock(&c->lock);
            if (!wanted)
                status = sl_fail(&c->why, SL_ERR_CANCELED, "fetching the model was given up");
        }
    }
    if (status != SL_OK)
        *err = c->why;
    pthread_mutex_unlock(&c->lock);
    return status;
}

static enum sl_status ask(struct fetching *f, uint32_t file, uint32_t piece, struct sl_err *err) {
    struct sl_model_cache *c = f->c;
    uint32_t place = 0;
    SL_TRY(wait_for_place(f, 1, &place, err));
    pthread_mutex_lock(&c->lock);
    c->asked[place] = (struct asked){file, piece, true};
    bool full = c->n_unlisted >= FLUSH_PIECES;
    pthread_mutex_unlock(&c->lock);
    const struct sl_setup_fetch m = {file, (uint64_t)piece * SL_PIECE_BYTES,
                                     piece_bytes(&c->files[file], piece)};
    enum sl_status status = f->source->ask(f->source, &m);
    if (status != SL_OK)
        return sl_fail(err, status, "a piece of the model cannot be asked for: %s",
                       sl_status_text(status));
    return full ? flush(c, err) : SL_OK; /* while what was asked for comes */
}

static enum sl_status check_room(const struct fetching *f, struct sl_err *err) {
    struct statvfs about;
    uint64_t need = f->n_wanted * SL_PIECE_BYTES;
    if (statvfs(f->c->folder, &about) != 0)
        return SL_OK; /* writing will tell */
    uint64_t room = (uint64_t)about.f_bavail * about.f_frsize;
    return room >= need
               ? SL_OK
               : sl_fail(err, SL_ERR_CONFIG,
                         "the layers take %.1f GiB in '%.200s', and %.1f GiB are free there: "
                         "give another --model-cache",
                         (double)need / 0x1p30, f->c->folder, (double)room / 0x1p30);
}

/* Forgets all requests, and an earlier failure. */
static void forget_asked(struct sl_model_cache *c) {
    pthread_mutex_lock(&c->lock);
    memset(c->asked, 0, sizeof c->asked);
    c->failed = SL_OK;
    pthread_mutex_unlock(&c->lock);
}

static enum sl_status ask_all(struct fetching *f, struct sl_progress *progress,
                              struct sl_err *err) {
    struct sl_model_cache *c = f->c;
    uint32_t unused;
    SL_TRY(check_room(f, err));
    for (uint32_t i = 0; i < c->n_files; i++)
        for (uint32_t k = 0; k < c->files[i].n_pieces; k++)
            if (f->wanted[i][k]) {
                SL_TRY(ask(f, i, k, err));
                if (progress && !progress->report(progress, f->n_done++ * SL_PIECE_BYTES,
                                                  f->n_wanted * SL_PIECE_BYTES))
                    return sl_fail(err, SL_ERR_CANCELED, "fetching the model was given up");
            }
    SL_TRY(wait_for_place(f, MAX_ASKED, &unused, err));
    return flush(c, err);
}

static enum sl_status fetch(struct fetching *f, struct sl_progress *progress, struct sl_err *err) {
    enum sl_status status = ask_all(f, progress, err);
    forget_asked(f->c);
    return status;
}

enum sl_status sl_model_cache_headers(struct sl_model_cache *c, struct sl_piece_source *source,
                                      struct sl_err *err) {
    struct fetching f;
    SL_TRY(fetching_init(&f, c, source, err));
    for (uint32_t i = 0; i < c->n_files; i++)
        want(&f, i, 0, c->files[i].header_bytes);
    enum sl_status status = fetch(&f, NULL, err);
    fetching_release(&f);
    return status;
}

/* The header says where; the size of the file is the bound. */
static void want_tensor(struct fetching *f, const struct sl_model *slice,
                        const struct sl_gguf_tensor *t) {
    struct sl_tensor_cut cut;
    if (!t || t->file >= f->c->n_files)
        return;
    if (sl_table_cut(slice, t, &cut))
        want(f, t->file, cut.offset_bytes, sl_tensor_cut_extent(&cut));
    else
        want(f, t->file, t->offset_bytes, t->size_bytes);
}

enum sl_status sl_model_cache_layers(struct sl_model_cache *c, const struct sl_model *model,
                                     uint32_t first, uint32_t n, struct sl_piece_source *source,
                                     struct sl_progress *progress, struct sl_err *err) {
    struct sl_model slice = {0};
    struct fetching f;
    SL_TRY(sl_model_slice(model, first, n, &slice, err));
    sl_model_slice_drop_input(&slice); /* it is the coordinator's */
    enum sl_status status = fetching_init(&f, c, source, err);
    if (status == SL_OK) {
        for (uint32_t i = 0; i < SL_G_COUNT; i++)
            want_tensor(&f, &slice, slice.global[i]);
        for (uint32_t l = 0; l < slice.hp.n_layer; l++)
            for (uint32_t r = 0; r < SL_L_COUNT; r++)
                want_tensor(&f, &slice, slice.layers[l].t[r]);
        status = fetch(&f, progress, err);
        fetching_release(&f);
    }
    sl_model_slice_release(&slice);
    return status;
}
