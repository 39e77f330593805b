#include "engine/prefix_disk.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/metrics.h"
#include "engine/engine_internal.h"
#include "engine/prefix/model_identity.h"
#include "engine/prefix/prefix_sizes.h"

#include <stdlib.h>
#include <string.h>

#define PAGE SL_KV_PAGE_TOKENS
#define NONE UINT32_MAX
/* A page is read unless that takes longer than this share of computing it. */
#define PAYS 0.8
/* Read before a disk's speed is known. */
#define PROBE_PAGES 4u
/* Each time that reading was refused its measured cost counts so much less, so that a disk that was
 * slow once is tried again. */
#define FORGIVE 0.9

struct sl_prefix_disk {
    struct sl_engine *e;
    struct sl_block_store *store;
    struct sl_hash128 root;
    struct sl_prefix_copy *copies; /* [n_pages] */
    uint32_t first, last;
    uint32_t n_pages;
    double read_page_ns; /* what a page took; 0 = not known yet */
};
_Static_assert(sizeof(struct sl_prefix_disk) <= SL_PREFIX_HOME_BYTES, "the plan counts less");

static void wake(void *ctx) {
    struct sl_engine *e = ctx;
    pthread_mutex_lock(&e->lock);
    e->poked = true;
    pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->lock);
}

/* What the bits of pages depend on, as the stages say it of theirs. */
static enum sl_status find_root(struct sl_engine *e, struct sl_hash128 *out_root,
                                struct sl_err *err) {
    struct sl_seq_config stores = sl_kv_size_of(&e->plan).stores;
    struct sl_hash128 first = {0};
    for (uint32_t i = 0; i < e->n_stages; i++) {
        struct sl_stage_call call = {.ask = {.what = SL_STAGE_HELLO}};
        const struct sl_stage_hello *h = &call.answer.hello;
        enum sl_status st = sl_stage_ask(e->ports[i], &call, err);
        if (st != SL_OK)
            return st;
        if (i == 0) {
            first = h->arithmetic;
            st = sl_model_identity(e->model, &stores, first, out_root, err);
        } else {
            sl_model_identity_add(first, h->arithmetic, h->first_layer, h->n_layer, out_root);
        }
        if (st != SL_OK)
            return st;
    }
    return SL_OK;
}

enum sl_status sl_prefix_disk_open(struct sl_engine *e, struct sl_prefix_disk **out_disk,
                                   struct sl_err *err) {
    struct sl_prefix_disk *d = calloc(1, sizeof *d);
    *out_disk = NULL;
    if (!d)
        return sl_fail(err, SL_ERR_NOMEM, "no memory for the prefix cache");
    d->e = e;
    d->n_pages = e->plan.n_pages;
    d->first = d->last = NONE;
    d->copies = calloc(d->n_pages, sizeof *d->copies);
    enum sl_status st = d->copies ? SL_OK
                                  : sl_fail(err, SL_ERR_NOMEM,
                                            "no memory for the list of "
                                            "pages to keep");
    struct sl_block_store_config c = {.folder = e->plan.config.cache_dir,
                                      .disk_bytes = e->plan.config.cache_disk_bytes,
                                      .block_bytes = sl_plan_copy_bytes(&e->plan),
                                      .wake = wake,
                                      .ctx = e};
    if (st == SL_OK)
        st = sl_block_store_open(&c, &d->store, err);
    if (st == SL_OK)
        st = find_root(e, &d->root, err);
    if (st != SL_OK) {
        sl_prefix_disk_close(&d);
        if (st == SL_AGAIN)
            sl_warn("%s: prefixes are kept in memory only", err->text);
        return st == SL_AGAIN ? SL_OK : st;
    }
    *out_disk = d;
    return SL_OK;
}

void sl_prefix_disk_close(struct sl_prefix_disk **pd) {
    struct sl_prefix_disk *d = *pd;
    if (!d)
        return;
    sl_block_store_close(&d->store);
    free(d->copies);
    free(d);
    *pd = NULL;
}

void sl_prefix_disk_keys(const struct sl_prefix_disk *d, struct sl_hash128 *out_secret,
                         struct sl_hash128 *out_root) {
    *out_secret = sl_block_store_secret(d->store);
    *out_root = d->root;
}

/* ---- which pages are to be written ---- */

static void want(struct sl_prefix_disk *d, uint32_t page) {
    struct sl_prefix_copy *c = &d->copies[page];
    *c = (struct sl_prefix_copy){SL_COPY_WANTED, NONE, d->last};
    *(d->last == NONE ? &d->first : &d->copies[d->last].next) = page;
    d->last = page;
}

static void set_copy(struct sl_prefix_disk *d, uint32_t page, enum sl_prefix_copy_state state) {
    struct sl_prefix_copy *c = &d->copies[page];
    if (c->state == SL_COPY_WANTED) {
        *(c->prev == NONE ? &d->first : &d->copies[c->prev].next) = c->next;
        *(c->next == NONE ? &d->last : &d->copies[c->next].prev) = c->prev;
    }
    c->state = state;
}

/* The name of a page's file without its tail page: another than that of the whole. */
static struct sl_hash128 bare(struct sl_hash128 key) {
    key.hi ^= 1;
    return key;
}

/* Does the node have all that a file of its page should hold? */
static bool is_whole(const struct sl_prefix_disk *d, uint32_t node) {
    const struct sl_tail_pages *tails = d->e->tails;
    return !tails || sl_tail_of(tails, node) != SL_KV_NO_PAGE;
}

/* The name under which its page would be written now. */
static struct sl_hash128 file_key(const struct sl_prefix_disk *d, uint32_t node) {
    struct sl_hash128 key = sl_prefix_key(d->e->prefixes, node);
    return is_whole(d, node) ? key : bare(key);
}

/* Is there nothing to write of a node's page? */
static bool is_kept(const struct sl_prefix_disk *d, uint32_t node) {
    return sl_block_store_knows(d->store, file_key(d, node)) ||
           sl_block_store_knows(d->store, sl_prefix_key(d->e->prefixes, node));
}

static void touch(struct sl_prefix_disk *d, uint32_t node) {
    struct sl_hash128 key = sl_prefix_key(d->e->prefixes, node);
    sl_block_store_touch(d->store, key);
    if (d->e->tails)
        sl_block_store_touch(d->store, bare(key));
}

void sl_prefix_disk_added(struct sl_prefix_disk *d, uint32_t page) {
    touch(d, page);
    if (is_kept(d, page))
        set_copy(d, page, SL_COPY_THERE);
    else if (d->copies[page].state != SL_COPY_WANTED)
        want(d, page);
}

void sl_prefix_disk_evicted(struct sl_prefix_disk *d, uint32_t page) {
    if (d->copies[page].state == SL_COPY_WANTED)
        sl_count(prefix_disk_dropped_total, 1);
    set_copy(d, page, SL_COPY_NONE);
}

void sl_prefix_disk_used(struct sl_prefix_disk *d, uint32_t node) {
    touch(d, node);
}

/* ---- writing ---- */

static uint64_t payload_bytes(const struct sl_prefix_disk *d, bool whole) {
    const struct sl_memory_plan *p = &d->e->plan;
    return whole ? sl_plan_copy_bytes(p) : p->page_bytes;
}

/* Writes go while half of the buffers are free for prompts that wait. */
static enum sl_status write_new(struct sl_prefix_disk *d) {
    struct sl_engine *e = d->e;
    struct sl_prefix_tree *t = e->prefixes;
    enum sl_status st = SL_OK;
    while (st == SL_OK && d->first != NONE && sl_block_store_writable(d->store) &&
           sl_block_store_n_free(d->store) > sl_block_store_n_buffers(d->store) / 2) {
        uint32_t page = d->first, parent = sl_prefix_parent(t, page);
        struct sl_hash128 key = file_key(d, page);
        if (is_kept(d, page)) {
            set_copy(d, page, SL_COPY_THERE);
            continue;
        }
        struct sl_block_buf *b = sl_block_store_take(d->store);
        b->user = NULL;
        b->number = page;
        b->payload_bytes = payload_bytes(d, is_whole(d, page));
        b->id =
            (struct sl_block_id){.root = d->root, .key = key, .parent = sl_prefix_key(t, parent)};
        memcpy(b->id.ids, sl_prefix_ids(t, page), sizeof b->id.ids);
        uint32_t tail = e->tails ? sl_tail_of(e->tails, page) : SL_KV_NO_PAGE;
        struct sl_kv_copy copy = {.page = page, .tail = tail, .holds_tail = tail != SL_KV_NO_PAGE};
        st = sl_page_copy(e, &copy, b->payload);
        if (st != SL_OK) {
            sl_block_store_give(d->store, b);
            set_copy(d, page, SL_COPY_NONE);
            sl_count(prefix_disk_dropped_total, 1);
            return sl_is_fatal(st) ? st : SL_OK;
        }
        set_copy(d, page, SL_COPY_UNDER_WAY);
        sl_block_store_write(d->store, b);
    }
    return st;
}

static void was_written(struct sl_prefix_disk *d, const struct sl_block_buf *b) {
    if (d->copies[b->number].state == SL_COPY_UNDER_WAY)
        set_copy(d, b->number, b->status == SL_OK ? SL_COPY_THERE : SL_COPY_NONE);
}

/* ---- reading ---- */

bool sl_prefix_disk_pays(double read_page_ns, double row_cost_ns, uint32_t n) {
    if (read_page_ns <= 0 || row_cost_ns <= 0)
        return true; /* try it and see */
    return n * read_page_ns < PAYS * n * PAGE * row_cost_ns;
}

/* The page with this key: is it in a file, and with its tail page? */
static bool find_file(const struct sl_prefix_disk *d, struct sl_hash128 key, bool *out_whole) {
    *out_whole = sl_block_store_has(d->store, key);
    return *out_whole || (d->e->tails && sl_block_store_has(d->store, bare(key)));
}

/* Up to which page the session's next pages are in files, at most `most`: up to the last page end
 * before which all tail pages are there that are needed, but to the first that is no less than
 * `enough`. It has those before the page that it stands at. */
static uint32_t reachable(const struct sl_prefix_disk *d, const struct sl_session *s,
                          struct sl_hash128 key, uint32_t most, uint32_t enough) {
    uint32_t before = d->e->plan.tail_pages, run = before, end = s->n_shared;
    for (uint32_t i = s->n_shared; i < most && (end < enough || end == s->n_shared); i++) {
        bool whole;
        key = sl_prefix_extend(d->e->prefixes, key, s->history + (size_t)i * PAGE);
        if (!find_file(d, key, &whole))
            break;
        run = whole ? run + 1 : 0;
        if (run >= before || run > i)
            end = i + 1;
    }
    return end;
}

void sl_prefix_disk_seek(struct sl_prefix_disk *d, struct sl_session *s) {
    struct sl_engine *e = d->e;
    uint32_t most = sl_session_adoptable(e, s);
    struct sl_hash128 key = sl_prefix_key(e->prefixes, sl_session_shared_end(e, s));
    s->load_key = key;
    uint32_t end = s->load_failed ? s->n_shared : reachable(d, s, key, most, most);
    if (end == s->n_shared)
        return;
    double row_ns = sl_pace_row_cost_ns(&e->pace);
    if (!e->plan.config.cache_read_always &&
        !sl_prefix_disk_pays(d->read_page_ns, row_ns, end - s->n_shared)) {
        d->read_page_ns *= FORGIVE;
        return;
    }
    /* Of a disk that nobody knows yet a few pages tell whether the rest is worth it. */
    if (d->read_page_ns <= 0 && row_ns > 0 && end - s->n_shared > PROBE_PAGES &&
        !e->plan.config.cache_read_always)
        end = reachable(d, s, key, end, s->n_shared + PROBE_PAGES);
    s->load_next = s->n_shared;
    s->load_end = end;
    sl_session_become(s, SL_SESSION_LOADING);
}

static void read_more(struct sl_prefix_disk *d) {
    struct sl_engine *e = d->e;
    for (uint32_t i = 0; i < e->plan.config.parallel; i++) {
        struct sl_session *s = e->slots[i];
        while (sl_session_is(s, SL_SESSION_LOADING) && s->load_next < s->load_end) {
            struct sl_block_buf *b = sl_block_store_take(d->store);
            if (!b)
                return;
            const uint32_t *ids = s->history + (size_t)s->load_next * PAGE;
            b->user = s;
            b->number = s->load_next++;
            b->id = (struct sl_block_id){.root = d->root, .parent = s->load_key};
            memcpy(b->id.ids, ids, sizeof b->id.ids);
            s->load_key = sl_prefix_extend(e->prefixes, s->load_key, ids);
            bool whole, there = find_file(d, s->load_key, &whole);
            whole = whole || !there; /* gone meanwhile: the store says so */
            b->id.key = whole ? s->load_key : bare(s->load_key);
            b->payload_bytes = payload_bytes(d, whole);
            s->n_loading++;
            sl_block_store_read(d->store, b);
        }
    }
}

/* The session's next page is what was read. Where the copy fails it stays to be computed, and so it
 * does where its tail page has gone meanwhile. */
static enum sl_status take_in(struct sl_prefix_disk *d, struct sl_session *s,
                              const struct sl_block_buf *b) {
    struct sl_engine *e = d->e;
    bool whole = b->payload_bytes == payload_bytes(d, true);
    bool tail = sl_needs_tail(e, s->n_shared, s->load_end) && e->tails;
    enum sl_status st = tail && !whole ? SL_AGAIN : sl_session_reserve_page(e, s, tail);
    if (st == SL_OK) {
        enum sl_status copied = sl_session_fill_page(e, s, b->payload, e->tails && whole);
        if (copied != SL_OK) {
            s->load_end = s->load_next;
            s->load_failed = true;
            return sl_is_fatal(copied) ? copied : SL_OK;
        }
        sl_count(prefix_disk_hit_tokens_total, PAGE);
    } else if (st == SL_AGAIN) {
        s->load_end = s->load_next;
        return SL_OK;
    }
    if (!sl_is_fatal(st))
        s->page_status = st;
    return sl_is_fatal(st) ? st : SL_OK;
}

static enum sl_status was_read(struct sl_prefix_disk *d, struct sl_block_buf *b) {
    struct sl_session *s = b->user;
    if (b->status == SL_OK) {
        double ns = (double)b->took_ns;
        d->read_page_ns = d->read_page_ns > 0 ? 0.5 * (d->read_page_ns + ns) : ns;
    }
    if (!s)
        return SL_OK; /* left meanwhile */
    s->n_loading--;
    enum sl_status st = SL_OK;
    if (b->status == SL_OK && b->number == s->n_shared)
        st = take_in(d, s, b);
    else
        s->load_end = s->load_next; /* the rest is computed */
    if (!s->n_loading && s->load_next >= s->load_end) {
        sl_session_become(s, SL_SESSION_READY);
        if (!sl_is_fatal(st))
            sl_session_step_back(d->e, s);
    }
    return st;
}

void sl_prefix_disk_forget(struct sl_prefix_disk *d, struct sl_session *s) {
    if (s->state == SL_SESSION_LOADING) {
        sl_block_store_disown(d->store, s);
        sl_session_become(s, SL_SESSION_READY);
    }
    s->n_loading = 0;
}

enum sl_status sl_prefix_disk_poll(struct sl_prefix_disk *d) {
    struct sl_block_buf *b;
    enum sl_status st = SL_OK;
    while (st == SL_OK && (b = sl_block_store_done(d->store))) {
        if (b->op == SL_BLOCK_WRITE)
            was_written(d, b);
        else
            st = was_read(d, b);
        sl_block_store_give(d->store, b);
        read_more(d);
    }
    read_more(d);
    return st == SL_OK ? write_new(d) : st;
}

void sl_prefix_disk_flush(struct sl_prefix_disk *d, uint64_t most_ns) {
    uint64_t until = sl_now_ns() + most_ns;
    while (sl_now_ns() < until && sl_block_store_writable(d->store) &&
           sl_prefix_disk_poll(d) == SL_OK && d->first != NONE)
        sl_block_store_wait(d->store, until);
}
