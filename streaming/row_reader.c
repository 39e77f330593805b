#include "streaming/row_reader.h"

#include "common/clock.h"
#include "common/metrics.h"
#include "streaming/row_cache.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX
/* How often a wait looks whether it is to be given up. */
#define LOOK_NS 20000000

/* A place for the blocks of one row. */
struct landing {
    struct sl_read read; /* first: done() gets its address */
    struct sl_row_reader *rows;
    uint32_t want; /* the first that wants it; NONE: nobody any more */
    uint32_t next; /* free list */
    bool flying;
};

struct sl_row_reader {
    struct sl_row_reader_config config;
    struct sl_reader *reader;
    struct sl_slab landings_slab, rows_slab;
    uint32_t landing_bytes;
    struct landing *landings; /* [depth] */
    uint32_t free_landing;
    uint32_t n_flying, n_left; /* reads under way; those among them that nobody wants any more */
    struct sl_row_cache cache[SL_ROW_TABLES];
    uint32_t *wanted; /* [n_wanted_heads] hash of this ask's rows: the first want of each */
    uint32_t n_wanted_heads;
    uint32_t *missing; /* [max_wants] first wants of rows to read, in the order of asking */
    uint32_t n_missing, n_started;
    struct sl_row_want *wants;  /* of this ask; NULL: there is none */
    uint32_t n_wants, n_unread; /* rows of it that have not arrived */
    struct sl_err read_err, first_err;
    uint32_t n_failed;
    struct sl_row_reader_stats stats;
};

/* ---- sizes ---- */

static uint32_t depth_of(const struct sl_row_reader_config *c) {
    uint32_t depth = c->depth ? c->depth : SL_ROW_DEPTH;
    return depth < 512 ? depth : 512;
}

static uint64_t up(uint64_t n) {
    return (n + SL_IO_BLOCK_BYTES - 1) / SL_IO_BLOCK_BYTES * SL_IO_BLOCK_BYTES;
}

static uint32_t largest_row(const struct sl_row_reader_config *c) {
    uint32_t most = 0;
    for (uint32_t i = 0; i < c->n_tables; i++)
        most = c->table[i].row_bytes > most ? c->table[i].row_bytes : most;
    return most;
}

/* A row may begin anywhere in a block. */
static uint32_t landing_bytes(const struct sl_row_reader_config *c) {
    return (uint32_t)up((uint64_t)largest_row(c) + SL_IO_BLOCK_BYTES - 1);
}

uint64_t sl_row_reader_landing_bytes(const struct sl_row_reader_config *c) {
    return (uint64_t)depth_of(c) * landing_bytes(c);
}

static uint64_t row_bytes_of_all(const struct sl_row_reader_config *c) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < c->n_tables; i++)
        sum += c->table[i].row_bytes;
    return sum;
}

uint32_t sl_row_reader_cached(const struct sl_row_reader_config *c) {
    uint64_t each = row_bytes_of_all(c), n = each ? c->cache_bytes / each : 0, most = 0;
    for (uint32_t i = 0; i < c->n_tables; i++)
        most = c->table[i].n_rows > most ? c->table[i].n_rows : most;
    n = n < most ? n : most;
    return n < UINT32_MAX / 2 ? (uint32_t)n : UINT32_MAX / 2;
}

static uint64_t cached_bytes(const struct sl_row_reader_config *c) {
    return up(sl_row_reader_cached(c) * row_bytes_of_all(c));
}

/* A hash that is at most half full. */
static uint32_t wanted_heads(uint32_t n) {
    uint32_t heads = 2;
    while (heads < 2 * n)
        heads *= 2;
    return heads;
}

uint64_t sl_row_reader_table_bytes(const struct sl_row_reader_config *c) {
    return sizeof(struct sl_row_reader) + depth_of(c) * sizeof(struct landing) +
           c->n_tables * sl_row_cache_table_bytes(sl_row_reader_cached(c)) +
           (wanted_heads(c->max_wants) + c->max_wants) * sizeof(uint32_t);
}

void sl_row_reader_queue(const struct sl_row_reader_config *c, struct sl_reader_config *queue) {
    queue->depth = depth_of(c);
    queue->background_depth = 0;
    /* A row is one request. */
    queue->request_bytes = landing_bytes(c) < (64u << 10) ? 64u << 10 : landing_bytes(c);
}

uint64_t sl_row_reader_size_bytes(const struct sl_row_reader_config *c,
                                  const struct sl_reader_config *queue) {
    struct sl_reader_config q = *queue;
    sl_row_reader_queue(c, &q);
    return sl_row_reader_table_bytes(c) + sl_row_reader_landing_bytes(c) + cached_bytes(c) +
           sl_reader_size_bytes(&q);
}

/* ---- create, destroy ---- */

static enum sl_status check(const struct sl_row_reader_config *c, struct sl_err *err) {
    if (!c->n_tables || c->n_tables > SL_ROW_TABLES)
        return sl_fail(err, SL_ERR_INVALID, "%u tables to read rows of: 1 to %u are possible",
                       c->n_tables, SL_ROW_TABLES);
    for (uint32_t i = 0; i < c->n_tables; i++)
        if (!c->table[i].row_bytes || c->table[i].row_bytes > SL_ROW_BYTES)
            return sl_fail(err, SL_ERR_INVALID,
                           "a table with rows of %u bytes: 1 to %u can be read one by one",
                           c->table[i].row_bytes, SL_ROW_BYTES);
        else if (c->table[i].stride_bytes < c->table[i].row_bytes)
            return sl_fail(err, SL_ERR_INVALID, "a table's rows of %u bytes every %u overlap",
                           c->table[i].row_bytes, c->table[i].stride_bytes);
    return SL_OK;
}

static enum sl_status init_caches(struct sl_row_reader *r, struct sl_err *err) {
    uint32_t n = sl_row_reader_cached(&r->config);
    uint64_t bytes = cached_bytes(&r->config);
    SL_TRY(bytes ? sl_slab_init(&r->rows_slab, bytes, false, err) : SL_OK);
    uint8_t *at = r->rows_slab.base;
    for (uint32_t i = 0; i < r->config.n_tables; i++) {
        uint32_t row_bytes = r->config.table[i].row_bytes;
        if (sl_row_cache_init(&r->cache[i], at, n, row_bytes) != SL_OK)
            return sl_fail(err, SL_ERR_NOMEM, "no memory for the list of %u cached rows", n);
        at += n ? (size_t)n * row_bytes : 0;
    }
    return SL_OK;
}

static void read_ended(struct sl_read *read, enum sl_status status);

enum sl_status sl_row_reader_create(const struct sl_row_reader_config *config,
                                    struct sl_row_reader **out_rows, struct sl_err *err) {
    SL_TRY(check(config, err));
    struct sl_row_reader *r = calloc(1, sizeof *r);
    if (!r)
        return sl_fail(err, SL_ERR_NOMEM, "no memory to read rows");
    r->config = *config;
    r->config.depth = depth_of(config);
    r->landing_bytes = landing_bytes(config);
    r->n_wanted_heads = wanted_heads(config->max_wants);
    r->landings = calloc(r->config.depth, sizeof *r->landings);
    r->wanted = malloc(r->n_wanted_heads * sizeof *r->wanted);
    r->missing = malloc(((size_t)config->max_wants + 1) * sizeof *r->missing);
    enum sl_status status = SL_OK;
    if (!r->landings || !r->wanted || !r->missing)
        status = sl_fail(err, SL_ERR_NOMEM, "no memory to read rows");
    if (status == SL_OK)
        status = init_caches(r, err);
    if (status == SL_OK)
        status = sl_slab_init(&r->landings_slab, sl_row_reader_landing_bytes(config), true, err);
    if (status != SL_OK) {
        sl_row_reader_destroy(&r);
        return status;
    }
    r->free_landing = NONE;
    for (uint32_t i = r->config.depth; i-- > 0;) {
        struct landing *l = &r->landings[i];
        l->rows = r;
        l->next = r->free_landing;
        l->read.n_extents = 1;
        l->read.priority = SL_READ_DEMAND;
        l->read.slot = r->landings_slab.base + (size_t)i * r->landing_bytes;
        l->read.done = read_ended;
        l->read.err = &r->read_err;
        r->free_landing = i;
    }
    *out_rows = r;
    return SL_OK;
}

const struct sl_slab *sl_row_reader_slab(const struct sl_row_reader *r) {
    return &r->landings_slab;
}

enum sl_status sl_row_reader_start(struct sl_row_reader *r, struct sl_reader *reader,
                                   struct sl_err *err) {
    for (uint32_t i = 0; i < r->config.n_tables; i++) {
        const struct sl_row_table *t = &r->config.table[i];
        uint64_t size =
            t->file < sl_reader_n_files(reader) ? sl_reader_file_bytes(reader, t->file) : 0;
        if (t->offset_bytes > size || (t->n_rows && size - t->offset_bytes < t->row_bytes) ||
            t->n_rows > (size - t->offset_bytes - t->row_bytes) / t->stride_bytes + 1)
            return sl_fail(err, SL_ERR_CORRUPT,
                           "a table of %" PRIu64 " rows of %u bytes, %u apart, at %" PRIu64
                           " does not fit its file of %" PRIu64 " bytes",
                           t->n_rows, t->row_bytes, t->stride_bytes, t->offset_bytes, size);
    }
    r->reader = reader;
    return SL_OK;
}

/* What has not arrived is nobody's any more; the disk may still write where it lands. */
static void give_up_wants(struct sl_row_reader *r) {
    for (uint32_t i = 0; i < r->config.depth; i++) {
        struct landing *l = &r->landings[i];
        if (!l->flying || l->want == NONE)
            continue;
        l->want = NONE;
        r->n_left++;
        sl_reader_cancel(r->reader, &l->read);
    }
    r->wants = NULL;
}

void sl_row_reader_destroy(struct sl_row_reader **pr) {
    struct sl_row_reader *r = *pr;
    if (!r)
        return;
    if (r->wants)
        give_up_wants(r);
    sl_reader_close(&r->reader);
    for (uint32_t i = 0; i < r->config.n_tables; i++)
        sl_row_cache_release(&r->cache[i]);
    sl_slab_release(&r->landings_slab);
    sl_slab_release(&r->rows_slab);
    free(r->landings);
    free(r->wanted);
    free(r->missing);
    free(r);
    *pr = NULL;
}

/* ---- reading ---- */

static uint32_t bytes_of(const struct sl_row_reader *r, const struct sl_row_want *w) {
    return r->config.table[w->table].row_bytes;
}

/* To all who want it. */
static void give(struct sl_row_reader *r, uint32_t want, const uint8_t *row) {
    for (uint32_t i = want; i != NONE; i = r->wants[i].same) {
        memcpy(r->wants[i].to, row, bytes_of(r, &r->wants[i]));
        r->wants[i].status = SL_OK;
    }
}

static void refuse(struct sl_row_reader *r, uint32_t want, enum sl_status status) {
    if (!r->n_failed)
        r->first_err = r->read_err;
    r->stats.failed++;
    sl_count(table_rows_failed_total, 1);
    for (uint32_t i = want; i != NONE; i = r->wants[i].same) {
        r->wants[i].status = status;
        r->n_failed++;
    }
}

static void read_ended(struct sl_read *read, enum sl_status status) {
    struct landing *l = (struct landing *)(void *)read;
    struct sl_row_reader *r = l->rows;
    uint32_t want = l->want;
    l->flying = false;
    l->next = r->free_landing;
    r->free_landing = (uint32_t)(l - r->landings);
    r->n_flying--;
    if (want == NONE) {
        r->n_left--;
        return;
    }
    l->want = NONE;
    r->n_unread--;
    if (status != SL_OK) {
        refuse(r, want, status);
        return;
    }
    const struct sl_row_want *w = &r->wants[want];
    const uint8_t *row = read->slot + read->extent[0].offset_bytes % SL_IO_BLOCK_BYTES;
    give(r, want, row);
    uint8_t *kept = sl_row_cache_add(&r->cache[w->table], w->row);
    if (kept)
        memcpy(kept, row, bytes_of(r, w));
}

/* Starts reads of what is missing, as far as there are places to land. */
static void start_reads(struct sl_row_reader *r) {
    struct sl_read *first = NULL, **end = &first;
    while (r->n_started < r->n_missing && r->free_landing != NONE) {
        struct landing *l = &r->landings[r->free_landing];
        const struct sl_row_want *w = &r->wants[r->missing[r->n_started]];
        const struct sl_row_table *t = &r->config.table[w->table];
        r->free_landing = l->next;
        l->want = r->missing[r->n_started++];
        l->flying = true;
        l->read.extent[0] =
            (struct sl_extent){.offset_bytes = t->offset_bytes + w->row * t->stride_bytes,
                               .size_bytes = t->row_bytes,
                               .file = t->file};
        uint64_t at = l->read.extent[0].offset_bytes % SL_IO_BLOCK_BYTES;
        uint64_t bytes = up(at + t->row_bytes);
        r->stats.reads++;
        r->stats.disk_bytes += bytes;
        sl_count(table_misses_total, 1);
        sl_count(table_read_bytes_total, bytes);
        l->read.next = NULL;
        *end = &l->read;
        end = &l->read.next;
        r->n_flying++;
    }
    /* Tables lie in their files (start) and rows in their tables (ask). */
    if (first && sl_reader_submit(r->reader, first, NULL) != SL_OK)
        abort();
}

/* ---- an ask ---- */

/* The first want of the same row in this ask, or this one. */
static uint32_t first_want(struct sl_row_reader *r, uint32_t n_heads, uint32_t i) {
    const struct sl_row_want *w = &r->wants[i];
    uint64_t hash = (w->row * SL_ROW_TABLES + w->table) * UINT64_C(0x9e3779b97f4a7c15);
    uint32_t at = (uint32_t)(hash >> 32) & (n_heads - 1);
    while (r->wanted[at] != NONE) {
        const struct sl_row_want *o = &r->wants[r->wanted[at]];
        if (o->row == w->row && o->table == w->table)
            return r->wanted[at];
        at = (at + 1) & (n_heads - 1);
    }
    r->wanted[at] = i;
    return i;
}

enum sl_status sl_row_reader_ask(struct sl_row_reader *r, struct sl_row_want *wants, uint32_t n,
                                 struct sl_err *err) {
    assert(n <= r->config.max_wants);
    if (r->wants)
        give_up_wants(r);
    for (uint32_t i = 0; i < n; i++) {
        const struct sl_row_want *w = &wants[i];
        if (w->table >= r->config.n_tables || w->row >= r->config.table[w->table].n_rows)
            return sl_fail(err, SL_ERR_INVALID, "row %" PRIu64 " of table %u: there is no such",
                           w->row, w->table);
    }
    uint32_t n_heads = wanted_heads(n);
    memset(r->wanted, 0xff, n_heads * sizeof *r->wanted);
    r->wants = wants;
    r->n_wants = n;
    r->n_missing = r->n_started = r->n_unread = r->n_failed = 0;
    r->stats.wants += n;
    uint32_t hits = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct sl_row_want *w = &wants[i];
        w->status = SL_AGAIN;
        w->same = NONE;
        uint32_t first = first_want(r, n_heads, i);
        struct sl_row_want *f = &wants[first];
        if (first != i && f->status != SL_OK) { /* on its way: behind the first */
            w->same = f->same;
            f->same = i;
            hits++;
            continue;
        }
        const uint8_t *row = first != i ? f->to : sl_row_cache_find(&r->cache[w->table], w->row);
        if (!row) {
            r->missing[r->n_missing++] = i;
            continue;
        }
        give(r, i, row);
        hits++;
    }
    r->n_unread = r->n_missing;
    r->stats.hits += hits;
    sl_count(table_hits_total, hits);
    start_reads(r);
    return SL_OK;
}

enum sl_status sl_row_reader_wait(struct sl_row_reader *r, const struct sl_row_abort *give_up,
                                  uint32_t *out_n_failed, struct sl_err *err) {
    *out_n_failed = 0;
    if (!r->wants)
        return SL_OK;
    uint64_t start = r->n_unread ? sl_now_ns() : 0;
    while (r->n_unread) {
        if (give_up && give_up->asked(give_up->ctx)) {
            give_up_wants(r);
            return sl_fail(err, SL_ERR_CANCELED, "canceled");
        }
        /* Several at once save system calls; the queue is still three quarters full. What an ask
         * before has left may take for ever, and counts where it ends: then each is looked at. */
        bool more = r->n_started < r->n_missing;
        uint32_t n = more ? (r->n_flying + 3) / 4 : r->n_flying;
        sl_reader_wait(r->reader, r->n_left ? 1 : n, LOOK_NS);
        start_reads(r);
    }
    if (start) {
        uint64_t ns = sl_now_ns() - start;
        r->stats.wait_ns += ns;
        sl_count(table_stall_ns_total, ns);
    }
    r->wants = NULL;
    *out_n_failed = r->n_failed;
    if (r->n_failed && err)
        *err = r->first_err;
    return SL_OK;
}

void sl_row_reader_quit(struct sl_row_reader *r) {
    if (r->wants)
        give_up_wants(r);
    while (r->n_flying)
        sl_reader_wait(r->reader, r->n_flying, -1);
    sl_reader_unregister(r->reader);
}

void sl_row_reader_forget(struct sl_row_reader *r) {
    assert(!r->wants);
    for (uint32_t i = 0; i < r->config.n_tables; i++)
        sl_row_cache_forget(&r->cache[i]);
}

void sl_row_reader_get_stats(const struct sl_row_reader *r, struct sl_row_reader_stats *out_stats) {
    *out_stats = r->stats;
}

struct sl_reader *sl_row_reader_reader(const struct sl_row_reader *r) {
    return r->reader;
}
