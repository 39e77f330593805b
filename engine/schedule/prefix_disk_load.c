/* Sessions take pages of their text from files. */
#include "engine/schedule/prefix_disk_internal.h"

#include "common/clock.h"
#include "common/metrics.h"

#include <string.h>

#define PAGE SL_KV_PAGE_TOKENS
/* A page is read unless that takes longer than this share of computing it. */
#define PAYS 0.8
/* Read before a disk's speed is known. */
#define PROBE_PAGES 4u
/* Each time reading is rejected, its measured cost is reduced by this factor, so that a disk that
 * was slow once is tried again. */
#define FORGIVE 0.9

bool sl_prefix_disk_pays(double read_page_ns, double row_cost_ns, uint32_t n) {
    if (read_page_ns <= 0 || row_cost_ns <= 0)
        return true; /* try it and see */
    return n * read_page_ns < PAYS * n * PAGE * row_cost_ns;
}

/* The page with this key: is it in a file, and with its tail page? */
static bool find_file(const struct sl_prefix_disk *d, struct sl_hash128 key, bool *out_whole) {
    *out_whole = sl_block_store_has(d->store, key);
    return *out_whole || (d->e->tails && sl_block_store_has(d->store, sl_prefix_disk_bare(key)));
}

/* The page, at most `most`, up to which the session's next pages are in files: the last page end
 * for which all the tail pages that it needs are there, or the first such end that is no less than
 * `enough`. The session has those before its current page. */
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
    /* While a disk's speed is unknown, a few pages show whether the rest is worth reading. */
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
            whole = whole || !there; /* gone meanwhile: its read will say so */
            b->id.key = whole ? s->load_key : sl_prefix_disk_bare(s->load_key);
            b->payload_bytes = sl_prefix_disk_payload_bytes(d, whole);
            s->n_loading++;
            sl_block_store_read(d->store, b);
        }
    }
}

/* The session's next page is the one that was read. If the copy fails, or its tail page has gone
 * meanwhile, the page remains to be computed. */
static enum sl_status take_in(struct sl_prefix_disk *d, struct sl_session *s,
                              const struct sl_block_buf *b) {
    struct sl_engine *e = d->e;
    bool whole = b->payload_bytes == sl_prefix_disk_payload_bytes(d, true);
    bool tail = sl_needs_tail(e, s->n_shared, s->load_end) && e->tails;
    enum sl_status status = tail && !whole ? SL_AGAIN : sl_session_reserve_page(e, s, tail);
    if (status == SL_OK) {
        enum sl_status copied = sl_session_fill_page(e, s, b->payload, e->tails && whole);
        if (copied != SL_OK) {
            s->load_end = s->load_next;
            s->load_failed = true;
            return sl_is_fatal(copied) ? copied : SL_OK;
        }
        sl_count(prefix_disk_hit_tokens_total, PAGE);
    } else if (status == SL_AGAIN) {
        s->load_end = s->load_next;
        return SL_OK;
    }
    if (!sl_is_fatal(status))
        s->page_status = status;
    return sl_is_fatal(status) ? status : SL_OK;
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
    enum sl_status status = SL_OK;
    if (b->status == SL_OK && b->number == s->n_shared)
        status = take_in(d, s, b);
    else
        s->load_end = s->load_next; /* the rest is computed */
    if (!s->n_loading && s->load_next >= s->load_end) {
        sl_session_become(s, SL_SESSION_READY);
        if (!sl_is_fatal(status))
            sl_session_step_back(d->e, s);
    }
    return status;
}

enum sl_status sl_prefix_disk_poll(struct sl_prefix_disk *d) {
    struct sl_block_buf *b;
    enum sl_status status = SL_OK;
    while (status == SL_OK && (b = sl_block_store_done(d->store))) {
        if (b->op == SL_BLOCK_WRITE)
            sl_prefix_disk_was_written(d, b);
        else
            status = was_read(d, b);
        sl_block_store_give(d->store, b);
        read_more(d);
    }
    read_more(d);
    return status == SL_OK ? sl_prefix_disk_write_new(d) : status;
}

void sl_prefix_disk_flush(struct sl_prefix_disk *d, uint64_t most_ns) {
    uint64_t until = sl_now_ns() + most_ns;
    while (sl_now_ns() < until && sl_block_store_writable(d->store) &&
           sl_prefix_disk_poll(d) == SL_OK && sl_prefix_disk_has_new(d))
        sl_block_store_wait(d->store, until);
}
