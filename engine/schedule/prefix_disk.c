#include "engine/schedule/prefix_disk_internal.h"

#include "common/log.h"
#include "common/metrics.h"
#include "engine/prefix/model_identity.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

static void wake(void *ctx) {
    struct sl_engine *e = ctx;
    pthread_mutex_lock(&e->lock);
    sl_engine_poke(e);
    pthread_mutex_unlock(&e->lock);
}

/* What the bits of pages depend on, as each stage states it for its own layers. */
static enum sl_status find_root(struct sl_engine *e, struct sl_hash128 *out_root,
                                struct sl_err *err) {
    struct sl_seq_config stores = sl_kv_size_of(&e->plan).stores;
    struct sl_hash128 first = {0};
    for (uint32_t i = 0; i < e->n_stages; i++) {
        struct sl_stage_call call = {.ask = {.what = SL_STAGE_HELLO}};
        const struct sl_stage_hello *h = &call.answer.hello;
        SL_TRY(sl_stage_ask(e->ports[i], &call, err));
        if (i == 0) {
            first = h->arithmetic;
            SL_TRY(sl_model_identity(e->model, &stores, first, out_root, err));
        } else {
            sl_model_identity_add(first, h->arithmetic, h->first_layer, h->n_layer, out_root);
        }
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
    enum sl_status status = d->copies ? SL_OK
                                      : sl_fail(err, SL_ERR_NOMEM,
                                                "no memory for the list of "
                                                "pages to keep");
    struct sl_block_store_config c = {.folder = e->plan.config.cache_dir,
                                      .disk_bytes = e->plan.config.cache_disk_bytes,
                                      .block_bytes = sl_plan_copy_bytes(&e->plan),
                                      .wake = wake,
                                      .ctx = e};
    if (status == SL_OK)
        status = sl_block_store_open(&c, &d->store, err);
    if (status == SL_OK)
        status = find_root(e, &d->root, err);
    if (status != SL_OK) {
        sl_prefix_disk_close(&d);
        if (status == SL_AGAIN)
            sl_warn("%s: prefixes are kept in memory only", err->text);
        return status == SL_AGAIN ? SL_OK : status;
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

/* The name of a page's file when it lacks the tail page; it differs from that of the whole. */
struct sl_hash128 sl_prefix_disk_bare(struct sl_hash128 key) {
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
    return is_whole(d, node) ? key : sl_prefix_disk_bare(key);
}

/* Is there nothing of the node's page left to write? */
static bool is_kept(const struct sl_prefix_disk *d, uint32_t node) {
    return sl_block_store_knows(d->store, file_key(d, node)) ||
           sl_block_store_knows(d->store, sl_prefix_key(d->e->prefixes, node));
}

static void touch(struct sl_prefix_disk *d, uint32_t node) {
    struct sl_hash128 key = sl_prefix_key(d->e->prefixes, node);
    sl_block_store_touch(d->store, key);
    if (d->e->tails)
        sl_block_store_touch(d->store, sl_prefix_disk_bare(key));
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

uint64_t sl_prefix_disk_payload_bytes(const struct sl_prefix_disk *d, bool whole) {
    const struct sl_memory_plan *p = &d->e->plan;
    return whole ? sl_plan_copy_bytes(p) : p->page_bytes;
}

/* Pages are written only while half of the buffers stay free for prompts that wait. */
enum sl_status sl_prefix_disk_write_new(struct sl_prefix_disk *d) {
    struct sl_engine *e = d->e;
    struct sl_prefix_tree *t = e->prefixes;
    enum sl_status status = SL_OK;
    while (status == SL_OK && d->first != NONE && sl_block_store_writable(d->store) &&
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
        b->payload_bytes = sl_prefix_disk_payload_bytes(d, is_whole(d, page));
        b->id =
            (struct sl_block_id){.root = d->root, .key = key, .parent = sl_prefix_key(t, parent)};
        memcpy(b->id.ids, sl_prefix_ids(t, page), sizeof b->id.ids);
        uint32_t tail = e->tails ? sl_tail_of(e->tails, page) : SL_KV_NO_PAGE;
        struct sl_kv_copy copy = {.page = page, .tail = tail, .holds_tail = tail != SL_KV_NO_PAGE};
        status = sl_page_copy(e, &copy, b->payload);
        if (status != SL_OK) {
            sl_block_store_give(d->store, b);
            set_copy(d, page, SL_COPY_NONE);
            sl_count(prefix_disk_dropped_total, 1);
            return sl_is_fatal(status) ? status : SL_OK;
        }
        set_copy(d, page, SL_COPY_UNDER_WAY);
        sl_block_store_write(d->store, b);
    }
    return status;
}

void sl_prefix_disk_was_written(struct sl_prefix_disk *d, const struct sl_block_buf *b) {
    if (d->copies[b->number].state == SL_COPY_UNDER_WAY)
        set_copy(d, b->number, b->status == SL_OK ? SL_COPY_THERE : SL_COPY_NONE);
}

/* ---- a session that leaves ---- */

void sl_prefix_disk_forget(struct sl_prefix_disk *d, struct sl_session *s) {
    if (s->state == SL_SESSION_LOADING) {
        sl_block_store_disown(d->store, s);
        sl_session_become(s, SL_SESSION_READY);
    }
    s->n_loading = 0;
}
