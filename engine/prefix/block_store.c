#include "engine/prefix/block_store.h"

#include "common/clock.h"
#include "common/cond.h"
#include "common/log.h"
#include "common/metrics.h"
#include "engine/prefix/block_folder.h"
#include "engine/prefix/block_index.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Pages on their way to or from the disk: enough that it is never idle between two. */
#define N_BUFFERS 4u
/* Blocks in a folder at most, whatever their size: bounds the list in memory. */
#define MAX_BLOCKS ((uint32_t)1 << 18)
/* After a failed write the disk is left alone for so long. */
#define QUIET_NS 60000000000u
/* Nor is it read for so long when the process had no descriptor or memory for it. */
#define LACK_NS 1000000000u
/* Closing waits so long for what is under way. A disk that hangs is left alone then. */
#define CLOSE_NS 2000000000u

struct sl_block_store {
    uint64_t disk_bytes, block_bytes;
    void (*wake)(void *ctx);
    void *ctx;
    struct sl_block_folder folder;

    /* the owner's */
    struct sl_block_index index;
    struct sl_block_buf bufs[N_BUFFERS];
    struct sl_block_buf *free_bufs;
    uint32_t n_free;
    uint64_t quiet_until_ns, lack_until_ns;
    bool warned;

    pthread_t thread;
    bool started;
    uint64_t lack_logged_ns; /* its own: when it said last that descriptors or memory lack */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* under lock */
    struct sl_block_buf *todo, **todo_end, *done, **done_end;
    uint32_t n_under_way;
    bool quit;
    bool waking;   /* the thread is in wake */
    bool ended;    /* it touches nothing any more */
    bool given_up; /* nobody else has it any more: its thread releases it */
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

/* ---- the store's thread ---- */

/* The largest, and a buffer's. */
static uint64_t file_size(const struct sl_block_store *s) {
    return SL_BLOCK_HEAD_BYTES + s->block_bytes;
}

static uint64_t size_of(const struct sl_block_buf *b) {
    return SL_BLOCK_HEAD_BYTES + b->payload_bytes;
}

/* Of a read that failed: is it this process that lacks something, and not the file? */
static bool is_own_lack(int error) {
    return error == EMFILE || error == ENFILE || error == ENOMEM || error == EAGAIN;
}

static void could_not_read(struct sl_block_store *s, struct sl_block_buf *b, const char *name) {
    b->error = errno;
    b->status = b->error == ENOENT ? SL_AGAIN : SL_ERR_IO;
    if (b->status == SL_AGAIN)
        return;
    uint64_t now = sl_now_ns();
    bool lack = is_own_lack(b->error);
    if (lack && s->lack_logged_ns && now - s->lack_logged_ns < QUIET_NS)
        return; /* every block would say the same */
    if (lack)
        s->lack_logged_ns = now;
    sl_warn("%s/%s cannot be read, its text is computed again and the file stays: %s",
            s->folder.path, name, strerror(b->error));
}

/* Only a block that was read and is wrong is removed: one that could not be read may be sound. */
static void do_read(struct sl_block_store *s, struct sl_block_buf *b) {
    char name[SL_BLOCK_NAME_SIZE];
    struct sl_err why;
    uint64_t n_bytes = 0;
    sl_block_folder_name(b->id.key, name);
    b->status = SL_OK;
    if (!sl_block_folder_read(&s->folder, b->id.key, b->block, size_of(b), &n_bytes)) {
        could_not_read(s, b, name);
        return;
    }
    b->status = sl_block_check(b->block, n_bytes, b->payload_bytes, &b->id, s->folder.secret, &why);
    if (b->status == SL_OK)
        return;
    b->status = SL_ERR_CORRUPT;
    sl_warn("%s/%s is not used and removed: %s", s->folder.path, name, why.text);
    sl_count(prefix_disk_bad_total, 1);
    sl_block_folder_remove(&s->folder, b->id.key);
}

static void do_write(struct sl_block_store *s, struct sl_block_buf *b) {
    for (uint32_t i = 0; i < b->n_victims; i++)
        sl_block_folder_remove(&s->folder, b->victims[i]);
    if (b->entry == SL_NO_BLOCK) {
        b->status = SL_AGAIN;
        return;
    }
    sl_block_seal(b->block, b->payload_bytes, &b->id, s->folder.secret);
    bool ok = sl_block_folder_write(&s->folder, b->id.key, b->block, size_of(b), &b->file_bytes);
    b->error = ok ? 0 : errno;
    b->status = ok ? SL_OK : b->error == EEXIST ? SL_AGAIN : SL_ERR_IO;
    if (b->status == SL_AGAIN)
        sl_warn("%s: a block is not kept: a file of its name is there that is no block",
                s->folder.path);
}

static void release(struct sl_block_store *s) {
    for (uint32_t i = 0; i < N_BUFFERS; i++)
        free(s->bufs[i].block);
    sl_block_index_release(&s->index);
    sl_block_folder_close(&s->folder);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
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
            s->waking = true;
            pthread_mutex_unlock(&s->lock);
            s->wake(s->ctx);
            pthread_mutex_lock(&s->lock);
            s->waking = false;
        }
    }
    s->ended = true;
    bool given_up = s->given_up;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    if (given_up)
        release(s);
    return NULL;
}

/* ---- opening ---- */

static void tell(const struct sl_block_store *s) {
    sl_gauge(prefix_disk_blocks, s->index.n_blocks);
    sl_gauge(prefix_disk_bytes, s->index.file_bytes);
}

/* Lists what an earlier process left, as far as the budget goes. */
static enum sl_status take_over(struct sl_block_store *s, bool keep, struct sl_err *err) {
    struct sl_block_found *list = NULL;
    size_t n = 0, first = 0;
    uint64_t bytes = 0;
    SL_TRY(sl_block_folder_list(&s->folder, keep, 2 * (size_t)s->index.max_blocks, &list, &n, err));
    for (size_t i = 0; i < n; i++)
        bytes += list[i].file_bytes;
    for (; first < n && (bytes > s->disk_bytes || n - first > s->index.max_blocks); first++) {
        sl_block_folder_remove(&s->folder, list[first].key);
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
                s->folder.path);
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
    s->folder.fd = s->folder.lock_fd = -1;
    s->disk_bytes = config->disk_bytes;
    s->block_bytes = config->block_bytes;
    s->wake = config->wake;
    s->ctx = config->ctx;
    s->todo_end = &s->todo;
    s->done_end = &s->done;
    pthread_mutex_init(&s->lock, NULL);
    sl_cond_init(&s->changed);
    enum sl_status status =
        sl_block_index_init(&s->index, max_blocks(config->disk_bytes, config->block_bytes), err);
    if (status == SL_OK)
        status = make_buffers(s, err);
    bool kept = false;
    if (status == SL_OK)
        status = sl_block_folder_open(&s->folder, config->folder, &kept, err);
    if (status == SL_OK)
        status = take_over(s, kept, err);
    if (status == SL_OK && pthread_create(&s->thread, NULL, store_main, s) != 0)
        status = sl_fail(err, SL_ERR_NOMEM, "the prefix cache's thread could not be started");
    if (status != SL_OK) {
        sl_block_store_close(&s);
        return status;
    }
    s->started = true;
    pthread_setname_np(s->thread, "sl-blocks");
    *out_store = s;
    return SL_OK;
}

/* Whether the thread has come to its end. Where it has not, the disk hangs: the thread has the
 * store for itself, calls nobody, and releases it if the disk ever answers. */
static bool end_thread(struct sl_block_store *s) {
    uint64_t until_ns = sl_now_ns() + CLOSE_NS;
    pthread_mutex_lock(&s->lock);
    s->quit = true;
    pthread_cond_broadcast(&s->changed);
    while (!s->ended && (s->waking || sl_now_ns() < until_ns))
        sl_cond_wait_until(&s->changed, &s->lock, until_ns);
    bool ended = s->ended;
    s->given_up = !ended;
    if (!ended) {
        pthread_detach(s->thread);
        sl_warn("the disk under %s does not answer: it is waited for no longer", s->folder.path);
    }
    pthread_mutex_unlock(&s->lock);
    if (ended)
        pthread_join(s->thread, NULL);
    return ended;
}

void sl_block_store_close(struct sl_block_store **ps) {
    struct sl_block_store *s = *ps;
    *ps = NULL;
    if (!s || (s->started && !end_thread(s)))
        return;
    release(s);
}

/* ---- the owner's side ---- */

struct sl_hash128 sl_block_store_secret(const struct sl_block_store *s) {
    return s->folder.secret;
}

bool sl_block_store_has(const struct sl_block_store *s, struct sl_hash128 key) {
    uint32_t entry = sl_block_index_find(&s->index, key);
    if (entry == SL_NO_BLOCK || !s->index.entries[entry].whole ||
        s->index.entries[entry].unreadable)
        return false;
    return !s->lack_until_ns || sl_now_ns() >= s->lack_until_ns;
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
        b->payload_bytes = s->block_bytes;
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
    uint64_t most = (size_of(b) + 4095) / 4096 * 4096; /* until the file system says */
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
        sl_count(prefix_disk_written_bytes_total, size_of(b));
        return;
    }
    sl_block_index_remove(&s->index, b->entry);
    if (b->status == SL_AGAIN)
        return;
    sl_count(prefix_disk_errors_total, 1);
    s->quiet_until_ns = sl_now_ns() + QUIET_NS;
    if (!s->warned)
        sl_warn("prefix cache: %s cannot be written to: %s; trying again every minute, which is "
                "not said again",
                s->folder.path, strerror(b->error));
    s->warned = true;
}

static void was_read(struct sl_block_store *s, const struct sl_block_buf *b) {
    uint32_t entry = sl_block_index_find(&s->index, b->id.key);
    if (b->status == SL_OK) {
        s->lack_until_ns = 0;
        sl_count(prefix_disk_reads_total, 1);
        sl_count(prefix_disk_read_bytes_total, size_of(b));
    } else if (b->status == SL_ERR_IO) {
        sl_count(prefix_disk_errors_total, 1);
        if (is_own_lack(b->error))
            s->lack_until_ns = sl_now_ns() + LACK_NS;
        else if (entry != SL_NO_BLOCK)
            s->index.entries[entry].unreadable = true;
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
    pthread_mutex_lock(&s->lock);
    while (!s->done && s->n_under_way)
        if (sl_cond_wait_until(&s->changed, &s->lock, until_ns) != 0)
            break;
    pthread_mutex_unlock(&s->lock);
}
