/* Which KV pages a slot has: private ones, that its session writes, behind shared ones, that hold
 * the beginning of its text and are written by nobody any more.
 *
 * A page becomes shared when its last position is written: it goes into the prefix tree, where any
 * session with the same text finds it, now or later. What is found is held, so that it stays; the
 * rest of the tree stays as long as no page is wanted. */
#include "engine/schedule/schedule.h"

#include "common/metrics.h"

#include <assert.h>
#include <string.h>

#define PAGE SL_KV_PAGE_TOKENS

static void tell_idle(struct sl_engine *e) {
    sl_kv_set_idle(&e->kv, sl_prefix_n_idle(e->prefixes));
}

/* A free page, or that of the prefix whose last use is longest ago. */
static enum sl_status take_page(struct sl_engine *e, uint32_t *out_page) {
    *out_page = sl_kv_page_take(&e->kv);
    if (*out_page != SL_KV_NO_PAGE)
        return SL_OK;
    uint32_t node = sl_prefix_oldest(e->prefixes);
    if (node == SL_KV_NO_PAGE)
        return SL_ERR_DEVICE_OOM;
    enum sl_status status = e->ram ? sl_prefix_ram_keep(e->ram, node) : SL_OK;
    if (sl_is_fatal(status)) /* else it is not kept, and computed when it is asked for again */
        return status;
    if (e->tails)
        sl_tail_drop(e->tails, node);
    *out_page = sl_prefix_evict(e->prefixes);
    sl_count(prefix_evictions_total, 1);
    if (e->disk)
        sl_prefix_disk_evicted(e->disk, node);
    return SL_OK;
}

void sl_prefixes_forget(struct sl_engine *e) {
    for (uint32_t node; (node = sl_prefix_oldest(e->prefixes)) != SL_KV_NO_PAGE;) {
        if (e->tails)
            sl_tail_drop(e->tails, node);
        sl_kv_page_give(&e->kv, sl_prefix_evict(e->prefixes));
        if (e->disk)
            sl_prefix_disk_evicted(e->disk, node);
    }
    tell_idle(e);
}

/* One for all pages up to `end`. */
static enum sl_status take_tail(struct sl_engine *e, uint32_t slot, struct sl_held_pages *held,
                                uint32_t end) {
    uint32_t tail = sl_tail_take(e->tails);
    if (tail == SL_KV_NO_PAGE)
        return SL_ERR_DEVICE_OOM;
    while (held->tail_end < end)
        sl_page_table_set(&e->tail_table, slot, held->tail_end++, tail);
    return SL_OK;
}

/* Is the tail page in this place its own, and not a later page's? */
static bool has_own_tail(const struct sl_engine *e, uint32_t slot, const struct sl_held_pages *held,
                         uint32_t i) {
    const struct sl_page_table *t = &e->tail_table;
    return i + 1 == held->tail_end ||
           sl_page_table_get(t, slot, i) != sl_page_table_get(t, slot, i + 1);
}

/* Gives back the last ones down to page `end`, and with a page's those that have the same. */
static void give_last_tails(struct sl_engine *e, uint32_t slot, struct sl_held_pages *held,
                            uint32_t end) {
    while (held->tail_end > held->tail_first && held->tail_end > end) {
        uint32_t tail = sl_page_table_get(&e->tail_table, slot, held->tail_end - 1);
        while (held->tail_end > held->tail_first &&
               sl_page_table_get(&e->tail_table, slot, held->tail_end - 1) == tail)
            held->tail_end--;
        sl_tail_give(e->tails, tail);
    }
}

static enum sl_status take_pages(struct sl_engine *e, uint32_t slot, struct sl_held_pages *held,
                                 uint32_t need) {
    enum sl_status status = SL_OK;
    uint32_t page;
    assert(need <= e->plan.session_pages);
    while (held->n < need && status == SL_OK) {
        status = take_page(e, &page);
        if (status == SL_OK)
            sl_page_table_set(&e->pages, slot, held->n++, page);
    }
    tell_idle(e);
    return status;
}

/* The page end at which the next tail page is to be kept, of rows up to n_tokens. */
static uint32_t next_tail_end(const struct sl_engine *e, const struct sl_held_pages *held,
                              uint32_t n_tokens) {
    uint32_t from = held->tail_end, full = n_tokens / PAGE;
    if (!e->plan.tail_gaps)
        return from + 1;
    if (from < held->known_end && held->known_end <= full)
        return held->known_end;
    return from < full ? full : full + 1;
}

enum sl_status sl_slot_reserve(struct sl_engine *e, uint32_t slot, struct sl_held_pages *held,
                               uint32_t n_tokens, uint32_t n_ahead) {
    enum sl_status status = take_pages(e, slot, held, (n_ahead + PAGE - 1) / PAGE);
    /* With gaps, a tail page is that of the last state in it. */
    uint32_t need = ((e->plan.tail_gaps ? n_tokens : n_ahead) + PAGE - 1) / PAGE;
    while (e->tails && held->tail_end < need && status == SL_OK)
        status = take_tail(e, slot, held, next_tail_end(e, held, n_tokens));
    return status;
}

/* The first of the tail pages that rows from position n_done on need, and that belong to the page
 * end before it: whoever goes on from there needs them. */
static uint32_t tail_needed(const struct sl_engine *e, uint32_t n_done) {
    uint32_t page = n_done / PAGE, before = e->plan.tail_pages;
    return page > before ? page - before : 0;
}

void sl_slot_pass(struct sl_engine *e, uint32_t slot, struct sl_held_pages *held, uint32_t n_done) {
    uint32_t first = tail_needed(e, n_done);
    for (; held->tail_first < first && held->tail_first < held->tail_end; held->tail_first++)
        if (has_own_tail(e, slot, held, held->tail_first))
            sl_tail_give(e->tails, sl_page_table_get(&e->tail_table, slot, held->tail_first));
}

void sl_slot_release(struct sl_engine *e, uint32_t slot, struct sl_held_pages *held) {
    while (held->n)
        sl_kv_page_give(&e->kv, sl_page_table_get(&e->pages, slot, --held->n));
    give_last_tails(e, slot, held, 0);
    held->tail_first = held->tail_end = 0;
}

uint32_t sl_session_shared_end(const struct sl_engine *e, const struct sl_session *s) {
    return s->n_shared ? sl_page_table_get(&e->pages, s->slot, s->n_shared - 1) : SL_PREFIX_ROOT;
}

bool sl_rows_alike(const struct sl_engine *e) {
    bool alike = true;
    for (uint32_t i = 0; i < e->n_stages; i++)
        alike &= sl_pipeline_hello(e->pipeline, i)->rows_alike;
    return alike;
}

/* Pages of the session's text that may be shared, counted from its start. Where prompt rows and
 * generated rows round differently, only prompt rows make pages that others may take; and a session
 * that lost its slot takes back no more than that, so that its own generated rows stay such. */
static uint32_t shareable_pages(const struct sl_engine *e, const struct sl_session *s) {
    if (s->req->no_cache || s->req->scored || s->req->hidden)
        return 0;
    return (sl_rows_alike(e) ? s->n_history : s->n_prompt) / PAGE;
}

/* Of them, those that the session may take from others: its last position is always computed, since
 * it is that row's logits that choose the next token. */
uint32_t sl_session_adoptable(const struct sl_engine *e, const struct sl_session *s) {
    uint32_t most = (s->n_history - 1) / PAGE, n = shareable_pages(e, s);
    return n < most ? n : most;
}

/* ---- tail pages of a session ---- */

static bool ends_within(uint32_t end, uint32_t page, uint32_t n) {
    return end > page && end - page <= n;
}

/* Which sessions may continue from a page end that needs this tail page of the session's text? */
static enum sl_tail_worth worth(const struct sl_engine *e, const struct sl_session *s, uint32_t i) {
    uint32_t n = e->plan.tail_pages;
    if (ends_within(s->n_prompt / PAGE, i, n) || ends_within(s->n_shared, i, n))
        return SL_TAIL_END;
    for (uint32_t j = i; j < i + n && j < s->n_shared; j++)
        if (sl_prefix_n_children(e->prefixes, sl_page_table_get(&e->pages, s->slot, j)) > 1)
            return SL_TAIL_END;
    return sl_tail_is_likely(i, n) ? SL_TAIL_LIKELY : SL_TAIL_PASSED;
}

static void leave_tail(struct sl_engine *e, const struct sl_session *s, uint32_t i) {
    uint32_t tail = sl_page_table_get(&e->tail_table, s->slot, i);
    if (!has_own_tail(e, s->slot, &s->held, i))
        return;
    if (sl_tail_is_shared(e->tails, tail))
        sl_tail_release(e->tails, tail, worth(e, s, i));
    else
        sl_tail_give(e->tails, tail);
}

/* Leaves all before page `first`. */
static void leave_tails(struct sl_engine *e, struct sl_session *s, uint32_t first) {
    struct sl_held_pages *h = &s->held;
    for (; h->tail_first < first && h->tail_first < h->tail_end; h->tail_first++)
        leave_tail(e, s, h->tail_first);
}

void sl_session_pass(struct sl_engine *e, struct sl_session *s) {
    /* With gaps, gives back the tail pages that were reserved for rows which were not fed in the
     * end. */
    if (e->plan.tail_gaps)
        give_last_tails(e, s->slot, &s->held, (s->n_fed + PAGE - 1) / PAGE);
    leave_tails(e, s, tail_needed(e, s->n_kv));
}

/* Uses the tail pages before the end of its shared pages, which are there, and leaves others. */
static void use_tails(struct sl_engine *e, struct sl_session *s) {
    struct sl_held_pages *h = &s->held;
    uint32_t first = tail_needed(e, s->n_shared * PAGE);
    if (!e->tails)
        return;
    leave_tails(e, s, first);
    if (h->tail_end < first)
        h->tail_first = h->tail_end = first;
    for (; h->tail_end < s->n_shared; h->tail_end++) {
        uint32_t node = sl_page_table_get(&e->pages, s->slot, h->tail_end);
        uint32_t tail = sl_tail_of(e->tails, node);
        sl_tail_use(e->tails, tail);
        sl_page_table_set(&e->tail_table, s->slot, h->tail_end, tail);
    }
}

/* Gives back what was reserved behind the shared pages for a step that was given up. */
static void leave_reserved(struct sl_engine *e, struct sl_session *s) {
    struct sl_held_pages *h = &s->held;
    while (h->n > s->n_shared)
        sl_kv_page_give(&e->kv, sl_page_table_get(&e->pages, s->slot, --h->n));
    give_last_tails(e, s->slot, h, s->n_shared);
}

void sl_session_leave_pages(struct sl_engine *e, struct sl_session *s) {
    if (e->disk)
        sl_prefix_disk_forget(e->disk, s);
    leave_reserved(e, s);
    leave_tails(e, s, UINT32_MAX);
    while (s->n_shared)
        sl_prefix_release(e->prefixes, sl_page_table_get(&e->pages, s->slot, --s->n_shared));
    s->held = (struct sl_held_pages){0};
    s->n_kv = s->n_fed = s->n_draft_seen = 0;
    s->unseen = false;
    tell_idle(e);
}

/* Is the tail page of every page in [end - tail_pages, end) there? */
static bool can_go_on(const struct sl_engine *e, const struct sl_session *s, uint32_t end) {
    for (uint32_t i = tail_needed(e, end * PAGE); i < end; i++)
        if (sl_tail_of(e->tails, sl_page_table_get(&e->pages, s->slot, i)) == SL_KV_NO_PAGE)
            return false;
    return true;
}

void sl_session_step_back(struct sl_engine *e, struct sl_session *s) {
    uint32_t had = s->n_shared;
    struct sl_held_pages *h = &s->held;
    bool has_all = h->tail_end >= had && h->tail_first <= tail_needed(e, had * PAGE) &&
                   (!had || has_own_tail(e, s->slot, h, had - 1));
    if (!e->tails || s->n_kv != had * PAGE || has_all)
        return;
    leave_reserved(e, s);
    leave_tails(e, s, UINT32_MAX);
    while (!can_go_on(e, s, s->n_shared))
        sl_prefix_release(e->prefixes, sl_page_table_get(&e->pages, s->slot, --s->n_shared));
    uint32_t lost = (had - s->n_shared) * PAGE;
    h->n = s->n_shared;
    s->n_kv = s->n_fed = s->n_shared * PAGE;
    if (!s->first_done)
        s->n_cached -= lost < s->n_cached ? lost : s->n_cached;
    h->tail_first = h->tail_end = tail_needed(e, s->n_kv);
    use_tails(e, s);
    tell_idle(e);
}

/* A page of the session's has become a node, or is one already: its tail page is the node's, too.
 */
static void share_tail(struct sl_engine *e, struct sl_session *s, uint32_t i, uint32_t node) {
    if (!e->tails || i < s->held.tail_first || i >= s->held.tail_end)
        return;
    uint32_t own = sl_page_table_get(&e->tail_table, s->slot, i), tail = sl_tail_of(e->tails, node);
    if (!has_own_tail(e, s->slot, &s->held, i))
        return;
    if (tail == SL_KV_NO_PAGE) {
        sl_tail_attach(e->tails, own, node);
        return;
    }
    sl_tail_use(e->tails, tail);
    sl_tail_give(e->tails, own);
    sl_page_table_set(&e->tail_table, s->slot, i, tail);
    while (i-- > s->held.tail_first && sl_page_table_get(&e->tail_table, s->slot, i) == own)
        sl_page_table_set(&e->tail_table, s->slot, i, tail);
}

void sl_session_publish(struct sl_engine *e, struct sl_session *s) {
    uint32_t n = shareable_pages(e, s), full = s->n_kv / PAGE;
    /* Pages are shared from the start on without a gap: one that may not be ends it. */
    while (s->n_shared < full && s->n_shared < n) {
        uint32_t parent = sl_session_shared_end(e, s), i = s->n_shared++;
        uint32_t page = sl_page_table_get(&e->pages, s->slot, i);
        const uint32_t *ids = s->history + (size_t)i * PAGE;
        uint32_t node = sl_prefix_find(e->prefixes, parent, ids);
        bool fresh = node == SL_KV_NO_PAGE;
        if (fresh) {
            node = page;
            sl_prefix_add(e->prefixes, page, parent, ids);
        } else { /* another session was faster: the same bits are there twice */
            sl_prefix_use(e->prefixes, node);
            sl_kv_page_give(&e->kv, page);
            sl_page_table_set(&e->pages, s->slot, i, node);
        }
        bool had_tail = e->tails && sl_tail_of(e->tails, node) != SL_KV_NO_PAGE;
        share_tail(e, s, i, node);
        bool got_tail = e->tails && !had_tail && sl_tail_of(e->tails, node) != SL_KV_NO_PAGE;
        if (e->disk && (fresh || got_tail))
            sl_prefix_disk_added(e->disk, node);
    }
    tell_idle(e);
}

bool sl_session_before_page(const struct sl_engine *e, const struct sl_session *s) {
    return s->n_kv == s->n_shared * PAGE && s->n_fed == s->n_kv &&
           s->n_shared < sl_session_adoptable(e, s);
}

void sl_session_count_cached(struct sl_session *s, uint32_t n_tokens) {
    if (!s->first_done)
        s->n_cached += n_tokens;
    sl_count(prefix_hit_tokens_total, n_tokens);
}

/* How many pages of its text the session can take from the tree: up to the last page end for which
 * all the tail pages that it needs are there. It has those before its current page. */
static uint32_t reachable(const struct sl_engine *e, const struct sl_session *s,
                          uint32_t *out_known) {
    uint32_t most = sl_session_adoptable(e, s), node = sl_session_shared_end(e, s);
    uint32_t end = s->n_shared, before = e->plan.tail_pages, run = before;
    *out_known = s->n_shared;
    for (uint32_t i = s->n_shared; i < most; i++) {
        node = sl_prefix_find(e->prefixes, node, s->history + (size_t)i * PAGE);
        if (node == SL_KV_NO_PAGE)
            break;
        *out_known = i + 1;
        run = e->tails && sl_tail_of(e->tails, node) == SL_KV_NO_PAGE ? 0 : run + 1;
        if (run >= before || run > i)
            end = i + 1;
    }
    return end;
}

void sl_session_adopt(struct sl_engine *e, struct sl_session *s) {
    uint32_t had = s->n_shared;
    bool looks = sl_session_before_page(e, s);
    uint32_t end = looks ? reachable(e, s, &s->held.known_end) : had;
    if (end == had)
        return;
    leave_reserved(e, s);
    while (s->n_shared < end) {
        uint32_t node =
            sl_prefix_find(e->prefixes, sl_session_shared_end(e, s), s->history + s->n_kv);
        sl_prefix_use(e->prefixes, node);
        if (e->disk)
            sl_prefix_disk_used(e->disk, node);
        sl_page_table_set(&e->pages, s->slot, s->n_shared++, node);
        s->held.n = s->n_shared;
        s->n_kv = s->n_fed = s->n_kv + PAGE;
    }
    use_tails(e, s);
    sl_session_count_cached(s, (end - had) * PAGE);
    tell_idle(e);
}

enum sl_status sl_session_reserve_page(struct sl_engine *e, struct sl_session *s, bool tail) {
    struct sl_held_pages *h = &s->held;
    if (e->plan.tail_gaps) /* a later page's must not be written */
        give_last_tails(e, s->slot, h, s->n_shared);
    enum sl_status status = take_pages(e, s->slot, h, s->n_shared + 1);
    if (status != SL_OK || !e->tails)
        return status;
    if (!tail) {
        leave_tails(e, s, UINT32_MAX);
        h->tail_first = h->tail_end = s->n_shared + 1;
        return SL_OK;
    }
    leave_tails(e, s, tail_needed(e, s->n_shared * PAGE));
    return h->tail_end > s->n_shared ? SL_OK : take_tail(e, s->slot, h, s->n_shared + 1);
}

enum sl_status sl_session_fill_page(struct sl_engine *e, struct sl_session *s, uint8_t *host,
                                    bool holds_tail) {
    uint32_t i = s->n_shared;
    bool tail = e->tails && i >= s->held.tail_first && i < s->held.tail_end;
    assert(holds_tail || !tail);
    struct sl_kv_copy copy = {.page = sl_page_table_get(&e->pages, s->slot, i),
                              .tail = tail ? sl_page_table_get(&e->tail_table, s->slot, i)
                                           : SL_KV_NO_PAGE,
                              .holds_tail = holds_tail,
                              .to_device = true};
    SL_TRY(sl_page_copy(e, &copy, host));
    s->n_kv = s->n_fed = s->n_kv + PAGE;
    sl_session_publish(e, s);
    sl_session_count_cached(s, PAGE);
    return SL_OK;
}

bool sl_session_follows(const struct sl_engine *e, const struct sl_session *s,
                        const struct sl_session *leader) {
    uint32_t page = s->n_shared;
    if (!sl_session_before_page(e, s) || leader->n_shared != page || leader->n_kv < s->n_kv ||
        leader->n_kv >= s->n_kv + PAGE ||
        (leader->n_kv == s->n_kv && leader->slot > s->slot &&
         leader->state != SL_SESSION_LOADING) ||
        page >= shareable_pages(e, leader) ||
        sl_session_shared_end(e, s) != sl_session_shared_end(e, leader))
        return false;
    return memcmp(s->history + s->n_kv, leader->history + s->n_kv, PAGE * sizeof s->history[0]) ==
           0;
}
