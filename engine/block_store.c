#include "engine/block_store.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/metrics.h"
#include "engine/block_index.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/* Pages on their way to or from the disk: enough that it is never idle between two. */
#define N_BUFFERS 4u
/* Blocks in a folder at most, whatever their size: bounds the list in memory. */
#define MAX_BLOCKS ((uint32_t)1 << 18)
/* After a failed write the disk is left alone for so long. */
#define QUIET_NS  60000000000u
#define NAME_SIZE 40u

struct found {
    struct sl_hash128 key;
    uint64_t file_bytes;
    struct timespec used;
};

struct sl_block_store {
    uint64_t disk_bytes, block_bytes;
    void (*wake)(void *ctx);
    void *ctx;
    char folder[4096];
    int dir, lock_fd;
    struct sl_hash128 secret;

    /* the owner's */
    struct sl_block_index index;
    struct sl_block_buf bufs[N_BUFFERS];
    struct sl_block_buf *free_bufs;
    uint32_t n_free;
    uint64_t quiet_until_ns;
    bool warned;

    pthread_t thread;
    bool started;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* under lock */
    struct sl_block_buf *todo, **todo_end, *done, **done_end;
    uint32_t n_under_way;
    bool quit;
};

static uint32_t max_blocks(uint64_t disk_bytes, uint64_t block_bytes) {
    uint64_t n = disk_bytes / (SL_BLOCK_HEAD_BYTES + block_bytes) + 1;
    return n < MAX_BLOCKS ? (uint32_t)n : MAX_BLOCKS;
}

uint64_t sl_block_store_bytes(uint64_t disk_bytes, uint64_t block_bytes) {
    return sizeof(struct sl_block_store) +
           sl_block_index_bytes(max_blocks(disk_bytes, block_bytes)) +
           N_BUFFERS * (SL_BLOCK_HEAD_BYTES + block_bytes + 4096);
}

/* ---- names ---- */

static void name_of(struct sl_hash128 key, const char *end, char out[NAME_SIZE]) {
    snprintf(out, NAME_SIZE, "%016" PRIx64 "%016" PRIx64 "%s", key.hi, key.lo, end);
}

/* The key of "<32 hex digits>.kv". */
static bool key_of(const char *name, struct sl_hash128 *out_key) {
    char again[NAME_SIZE];
    if (strlen(name) != 35 ||
        sscanf(name, "%16" SCNx64 "%16" SCNx64, &out_key->hi, &out_key->lo) != 2)
        return false;
    name_of(*out_key, ".kv", again);
    return strcmp(name, again) == 0;
}

static uint64_t disk_bytes_of(const struct stat *about) {
    return (uint64_t)about->st_blocks * 512;
}

/* ---- whole reads and writes ---- */

/* Bytes read, less than asked for at the file's end; negative: errno is set. */
static ssize_t read_all(int fd, void *to, size_t n) {
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

/* ---- the store's thread ---- */

static uint64_t file_size(const struct sl_block_store *s) {
    return SL_BLOCK_HEAD_BYTES + s->block_bytes;
}

/* The block's bytes into the buffer; how many in out_bytes. False: there is none, or errno is set.
 */
static bool read_file(struct sl_block_store *s, struct sl_block_buf *b, const char *name,
                      uint64_t *out_bytes) {
    struct stat about;
    /* A fifo or a device in the folder must not hold us. */
    int fd = openat(s->dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t got = -1;
    if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode)) {
        errno = ENOENT;
    } else if ((uint64_t)about.st_size != file_size(s)) {
        got = 0;
        *out_bytes = (uint64_t)about.st_size;
    } else {
        got = read_all(fd, b->block, file_size(s));
        *out_bytes = (uint64_t)got;
        futimens(fd, NULL); /* its last use, for the next process */
    }
    int error = errno;
    close(fd);
    errno = error;
    return got >= 0;
}

static void do_read(struct sl_block_store *s, struct sl_block_buf *b) {
    char name[NAME_SIZE];
    struct sl_err why;
    uint64_t n_bytes = 0;
    name_of(b->id.key, ".kv", name);
    b->status = SL_OK;
    if (!read_file(s, b, name, &n_bytes)) {
        b->status = errno == ENOENT ? SL_AGAIN : SL_ERR_IO;
        if (b->status == SL_ERR_IO)
            sl_warn("%s/%s cannot be read, its text is computed again: %s", s->folder, name,
                    strerror(errno));
    } else if (sl_block_check(b->block, n_bytes, s->block_bytes, &b->id, s->secret, &why) !=
               SL_OK) {
        b->status = SL_ERR_CORRUPT;
        sl_warn("%s/%s is not used and removed: %s", s->folder, name, why.text);
    }
    if (b->status == SL_ERR_IO || b->status == SL_ERR_CORRUPT) {
        sl_count(prefix_disk_bad_total, 1);
        unlinkat(s->dir, name, 0);
    }
}

static bool write_file(struct sl_block_store *s, struct sl_block_buf *b) {
    char name[NAME_SIZE], beside[NAME_SIZE];
    struct stat about;
    name_of(b->id.key, ".kv", name);
    name_of(b->id.key, ".tmp", beside);
    int fd = openat(s->dir, beside, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    bool ok = write_all(fd, b->block, file_size(s)) && fstat(fd, &about) == 0;
    int error = errno;
    if (close(fd) != 0 && ok) {
        ok = false;
        error = errno;
    }
    if (ok && renameat(s->dir, beside, s->dir, name) != 0) {
        ok = false;
        error = errno;
    }
    if (ok)
        b->file_bytes = disk_bytes_of(&about);
    else
        unlinkat(s->dir, beside, 0);
    errno = error;
    return ok;
}

static void do_write(struct sl_block_store *s, struct sl_block_buf *b) {
    char name[NAME_SIZE];
    for (uint32_t i = 0; i < b->n_victims; i++) {
        name_of(b->victims[i], ".kv", name);
        unlinkat(s->dir, name, 0);
    }
    if (b->entry == SL_NO_BLOCK) {
        b->status = SL_AGAIN;
        return;
    }
    sl_block_seal(b->block, s->block_bytes, &b->id, s->secret);
    b->status = write_file(s, b) ? SL_OK : SL_ERR_IO;
    b->error = b->status == SL_OK ? 0 : errno;
}

static void *store_main(void *arg) {
    struct sl_block_store *s = arg;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!s->todo && !s->quit)
            pthread_cond_wait(&s->changed, &s->lock);
        struct sl_block_buf *b = s->todo;
        if (!b)
            break; /* what was asked for is done first */
        s->todo = b->next;
        if (!s->todo)
            s->todo_end = &s->todo;
        bool skip = s->quit && b->op == SL_BLOCK_READ;
        pthread_mutex_unlock(&s->lock);
        uint64_t start = sl_now_ns();
        if (skip)
            b->status = SL_AGAIN;
        else if (b->op == SL_BLOCK_READ)
            do_read(s, b);
        else
            do_write(s, b);
        b->took_ns = sl_now_ns() - start;
        pthread_mutex_lock(&s->lock);
        b->next = NULL;
        *s->done_end = b;
        s->done_end = &b->next;
        pthread_cond_broadcast(&s->changed);
        if (s->wake && !s->quit) {
            pthread_mutex_unlock(&s->lock);
            s->wake(s->ctx);
            pthread_mutex_lock(&s->lock);
        }
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- opening ---- */

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

static enum sl_status refuse(const struct sl_block_store *s, const char *what, struct sl_err *err) {
    return sl_fail(err, SL_ERR_CONFIG, "--cache-dir %s: %s: %s", s->folder, what, strerror(errno));
}

static enum sl_status take_folder(struct sl_block_store *s, struct sl_err *err) {
    if (!make_folder(s->folder))
        return refuse(s, "the folder cannot be made", err);
    s->dir = open(s->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (s->dir < 0)
        return refuse(s, "the folder cannot be opened", err);
    s->lock_fd = openat(s->dir, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (s->lock_fd < 0)
        return refuse(s, "its lock cannot be opened", err);
    if (flock(s->lock_fd, LOCK_EX | LOCK_NB) == 0)
        return SL_OK;
    if (errno != EWOULDBLOCK)
        return refuse(s, "its lock cannot be taken", err);
    return sl_fail(err, SL_AGAIN, "--cache-dir %s is in use by another process", s->folder);
}

/* The folder's secret with a hash of itself, so that half a file is known for what it is. */
struct key_file {
    char magic[8];
    struct sl_hash128 secret, check;
};

static const char key_magic[8] = {'S', 'L', 'U', 'I', 'C', 'E', 'K', 'Y'};

static bool read_key(struct sl_block_store *s) {
    struct key_file k;
    int fd = openat(s->dir, "key", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool whole = read_all(fd, &k, sizeof k) == (ssize_t)sizeof k;
    close(fd);
    if (!whole || memcmp(k.magic, key_magic, sizeof k.magic) != 0)
        return false;
    struct sl_hash128 check = sl_siphash128(k.secret, k.magic, sizeof k.magic);
    s->secret = k.secret;
    return memcmp(&check, &k.check, sizeof check) == 0;
}

static enum sl_status make_key(struct sl_block_store *s, struct sl_err *err) {
    struct key_file k = {.secret = {0}};
    memcpy(k.magic, key_magic, sizeof k.magic);
    if (getrandom(&k.secret, sizeof k.secret, 0) != (ssize_t)sizeof k.secret)
        return refuse(s, "the system gives no random numbers", err);
    k.check = sl_siphash128(k.secret, k.magic, sizeof k.magic);
    unlinkat(s->dir, "key.tmp", 0);
    int fd = openat(s->dir, "key.tmp", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return refuse(s, "its key cannot be written", err);
    bool ok = write_all(fd, &k, sizeof k) && fsync(fd) == 0;
    ok = close(fd) == 0 && ok;
    if (!ok || renameat(s->dir, "key.tmp", s->dir, "key") != 0)
        return refuse(s, "its key cannot be written", err);
    s->secret = k.secret;
    return SL_OK;
}

static int by_use(const void *a, const void *b) {
    const struct found *x = a, *y = b;
    if (x->used.tv_sec != y->used.tv_sec)
        return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
    return x->used.tv_nsec < y->used.tv_nsec ? -1 : x->used.tv_nsec > y->used.tv_nsec;
}

static bool has_end(const char *name, const char *end) {
    size_t n = strlen(name), m = strlen(end);
    return n > m && strcmp(name + n - m, end) == 0;
}

/* Lists what an earlier process left. keep false: nothing of it can be read any more. */
static enum sl_status scan(struct sl_block_store *s, bool keep, struct found **out_list,
                           size_t *out_n, struct sl_err *err) {
    int fd = dup(s->dir);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d)
        return refuse(s, "the folder cannot be listed", err);
    size_t room = 0;
    enum sl_status st = SL_OK;
    for (struct dirent *e; st == SL_OK && (e = readdir(d));) {
        struct found f;
        struct stat about;
        bool block = key_of(e->d_name, &f.key);
        bool crowd = block && *out_n >= 2 * (size_t)s->index.max_blocks;
        if (has_end(e->d_name, ".tmp") || (block && (!keep || crowd))) {
            unlinkat(s->dir, e->d_name, 0);
            continue;
        }
        if (!block || fstatat(s->dir, e->d_name, &about, AT_SYMLINK_NOFOLLOW) != 0 ||
            !S_ISREG(about.st_mode))
            continue;
        f.file_bytes = disk_bytes_of(&about);
        f.used = about.st_mtim;
        if (*out_n == room) {
            room = room ? 2 * room : 256;
            struct found *more = realloc(*out_list, room * sizeof f);
            if (!more) {
                st = sl_fail(err, SL_ERR_NOMEM, "no memory to list %s", s->folder);
                break;
            }
            *out_list = more;
        }
        (*out_list)[(*out_n)++] = f;
    }
    closedir(d);
    return st;
}

static void tell(const struct sl_block_store *s) {
    sl_gauge(prefix_disk_blocks, s->index.n_blocks);
    sl_gauge(prefix_disk_bytes, s->index.file_bytes);
}

static enum sl_status take_over(struct sl_block_store *s, bool keep, struct sl_err *err) {
    struct found *list = NULL;
    size_t n = 0, first = 0;
    uint64_t bytes = 0;
    enum sl_status st = scan(s, keep, &list, &n, err);
    if (st != SL_OK) {
        free(list);
        return st;
    }
    if (n)
        qsort(list, n, sizeof *list, by_use);
    for (size_t i = 0; i < n; i++)
        bytes += list[i].file_bytes;
    for (; first < n && (bytes > s->disk_bytes || n - first > s->index.max_blocks); first++) {
        char name[NAME_SIZE];
        name_of(list[first].key, ".kv", name);
        unlinkat(s->dir, name, 0);
        bytes -= list[first].file_bytes;
    }
    for (size_t i = first; i < n; i++) {
        uint32_t entry = sl_block_index_add(&s->index, list[i].key, list[i].file_bytes);
        s->index.entries[entry].whole = true;
    }
    free(list);
    tell(s);
    if (n)
        sl_info("prefix cache: %zu blocks, %.1f MiB, are in %s", n - first, (double)bytes / 0x1p20,
                s->folder);
    return SL_OK;
}

static enum sl_status make_buffers(struct sl_block_store *s, struct sl_err *err) {
    for (uint32_t i = 0; i < N_BUFFERS; i++) {
        struct sl_block_buf *b = &s->bufs[i];
        b->block = aligned_alloc(64, (file_size(s) + 63) & ~(uint64_t)63);
        if (!b->block)
            return sl_fail(err, SL_ERR_NOMEM, "no memory for the prefix cache's buffers");
        memset(b->block, 0, file_size(s)); /* page faults now */
        b->payload = b->block + SL_BLOCK_HEAD_BYTES;
        b->next = s->free_bufs;
        s->free_bufs = b;
        s->n_free++;
    }
    return SL_OK;
}

enum sl_status sl_block_store_open(const struct sl_block_store_config *config,
                                   struct sl_block_store **out_store, struct sl_err *err) {
    struct sl_block_store *s = calloc(1, sizeof *s);
    if (!s)
        return sl_fail(err, SL_ERR_NOMEM, "no memory for the prefix cache");
    s->dir = s->lock_fd = -1;
    s->disk_bytes = config->disk_bytes;
    s->block_bytes = config->block_bytes;
    s->wake = config->wake;
    s->ctx = config->ctx;
    s->todo_end = &s->todo;
    s->done_end = &s->done;
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&s->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    snprintf(s->folder, sizeof s->folder, "%s", config->folder);
    enum sl_status st =
        sl_block_index_init(&s->index, max_blocks(config->disk_bytes, config->block_bytes), err);
    if (st == SL_OK)
        st = make_buffers(s, err);
    if (st == SL_OK)
        st = take_folder(s, err);
    if (st == SL_OK) {
        bool keep = read_key(s);
        if (!keep)
            st = make_key(s, err);
        if (st == SL_OK)
            st = take_over(s, keep, err);
    }
    if (st == SL_OK && pthread_create(&s->thread, NULL, store_main, s) != 0)
        st = sl_fail(err, SL_ERR_NOMEM, "the prefix cache's thread could not be started");
    if (st != SL_OK) {
        sl_block_store_close(&s);
        return st;
    }
    s->started = true;
    pthread_setname_np(s->thread, "sl-blocks");
    *out_store = s;
    return SL_OK;
}

void sl_block_store_close(struct sl_block_store **ps) {
    struct sl_block_store *s = *ps;
    if (!s)
        return;
    if (s->started) {
        pthread_mutex_lock(&s->lock);
        s->quit = true;
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->lock);
        pthread_join(s->thread, NULL);
    }
    for (uint32_t i = 0; i < N_BUFFERS; i++)
        free(s->bufs[i].block);
    sl_block_index_release(&s->index);
    if (s->lock_fd >= 0)
        close(s->lock_fd);
    if (s->dir >= 0)
        close(s->dir);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
    *ps = NULL;
}

/* ---- the owner's side ---- */

struct sl_hash128 sl_block_store_secret(const struct sl_block_store *s) {
    return s->secret;
}

bool sl_block_store_has(const struct sl_block_store *s, struct sl_hash128 key) {
    uint32_t entry = sl_block_index_find(&s->index, key);
    return entry != SL_NO_BLOCK && s->index.entries[entry].whole;
}

bool sl_block_store_knows(const struct sl_block_store *s, struct sl_hash128 key) {
    return sl_block_index_find(&s->index, key) != SL_NO_BLOCK;
}

void sl_block_store_touch(struct sl_block_store *s, struct sl_hash128 key) {
    uint32_t entry = sl_block_index_find(&s->index, key);
    if (entry != SL_NO_BLOCK)
        sl_block_index_touch(&s->index, entry);
}

bool sl_block_store_writable(const struct sl_block_store *s) {
    return !s->quiet_until_ns || sl_now_ns() >= s->quiet_until_ns;
}

uint32_t sl_block_store_n_free(const struct sl_block_store *s) {
    return s->n_free;
}

uint32_t sl_block_store_n_buffers(const struct sl_block_store *s) {
    (void)s;
    return N_BUFFERS;
}

struct sl_block_buf *sl_block_store_take(struct sl_block_store *s) {
    struct sl_block_buf *b = s->free_bufs;
    if (b) {
        s->free_bufs = b->next;
        s->n_free--;
        b->next = NULL;
    }
    return b;
}

void sl_block_store_give(struct sl_block_store *s, struct sl_block_buf *b) {
    b->next = s->free_bufs;
    s->free_bufs = b;
    s->n_free++;
}

static void hand_over(struct sl_block_store *s, struct sl_block_buf *b) {
    pthread_mutex_lock(&s->lock);
    b->next = NULL;
    *s->todo_end = b;
    s->todo_end = &b->next;
    s->n_under_way++;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

void sl_block_store_read(struct sl_block_store *s, struct sl_block_buf *b) {
    b->op = SL_BLOCK_READ;
    sl_block_store_touch(s, b->id.key);
    hand_over(s, b);
}

void sl_block_store_disown(struct sl_block_store *s, const void *user) {
    for (uint32_t i = 0; i < N_BUFFERS; i++)
        if (s->bufs[i].user == user)
            s->bufs[i].user = NULL; /* the thread does not look at it */
}

/* Makes room for another file; what goes is named in the buffer. False: there is none even so. */
static bool make_room(struct sl_block_store *s, struct sl_block_buf *b, uint64_t more_bytes) {
    struct sl_block_index *x = &s->index;
    b->n_victims = 0;
    while (x->file_bytes + more_bytes > s->disk_bytes || x->unused == SL_NO_BLOCK) {
        uint32_t oldest = x->oldest;
        if (oldest == SL_NO_BLOCK || !x->entries[oldest].whole ||
            b->n_victims == sizeof b->victims / sizeof *b->victims)
            return false;
        b->victims[b->n_victims++] = x->entries[oldest].key;
        sl_block_index_remove(x, oldest);
        sl_count(prefix_disk_evictions_total, 1);
    }
    return true;
}

void sl_block_store_write(struct sl_block_store *s, struct sl_block_buf *b) {
    b->op = SL_BLOCK_WRITE;
    assert(sl_block_index_find(&s->index, b->id.key) == SL_NO_BLOCK);
    uint64_t most = (file_size(s) + 4095) / 4096 * 4096; /* until the file system says */
    b->entry = make_room(s, b, most) ? sl_block_index_add(&s->index, b->id.key, most) : SL_NO_BLOCK;
    tell(s);
    hand_over(s, b);
}

static void written(struct sl_block_store *s, const struct sl_block_buf *b) {
    if (b->entry == SL_NO_BLOCK)
        return;
    if (b->status == SL_OK) {
        sl_block_index_resize(&s->index, b->entry, b->file_bytes);
        s->index.entries[b->entry].whole = true;
        s->quiet_until_ns = 0;
        sl_count(prefix_disk_writes_total, 1);
        sl_count(prefix_disk_written_bytes_total, file_size(s));
        return;
    }
    sl_block_index_remove(&s->index, b->entry);
    sl_count(prefix_disk_errors_total, 1);
    s->quiet_until_ns = sl_now_ns() + QUIET_NS;
    if (!s->warned)
        sl_warn("prefix cache: %s cannot be written to: %s; trying again every minute, which is "
                "not said again",
                s->folder, strerror(b->error));
    s->warned = true;
}

static void was_read(struct sl_block_store *s, const struct sl_block_buf *b) {
    uint32_t entry = sl_block_index_find(&s->index, b->id.key);
    if (b->status == SL_OK) {
        sl_count(prefix_disk_reads_total, 1);
        sl_count(prefix_disk_read_bytes_total, file_size(s));
    } else if (entry != SL_NO_BLOCK && s->index.entries[entry].whole) {
        sl_block_index_remove(&s->index, entry);
    }
}

struct sl_block_buf *sl_block_store_done(struct sl_block_store *s) {
    pthread_mutex_lock(&s->lock);
    struct sl_block_buf *b = s->done;
    if (b) {
        s->done = b->next;
        if (!s->done)
            s->done_end = &s->done;
        s->n_under_way--;
    }
    pthread_mutex_unlock(&s->lock);
    if (!b)
        return NULL;
    b->next = NULL;
    if (b->op == SL_BLOCK_WRITE)
        written(s, b);
    else
        was_read(s, b);
    tell(s);
    return b;
}

void sl_block_store_wait(struct sl_block_store *s, uint64_t until_ns) {
    struct timespec until = {(time_t)(until_ns / 1000000000u), (long)(until_ns % 1000000000u)};
    pthread_mutex_lock(&s->lock);
    while (!s->done && s->n_under_way)
        if (pthread_cond_timedwait(&s->changed, &s->lock, &until) != 0)
            break;
    pthread_mutex_unlock(&s->lock);
}
