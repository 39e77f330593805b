/* Which KV pages a slot has: private ones, that its session writes, behind shared ones, that hold
 * the beginning of its text and are written by nobody any more.
 *
 * A page becomes shared when its last position is written: it goes into the prefix tree, where any
 * session with the same text finds it, now or later. What is found is held, so that it stays; the
 * rest of the tree stays as long as no page is wanted. */
#include "engine/engine_internal.h"

#include "common/metrics.h"

#include <assert.h>
#include <string.h>

#define PAGE SL_KV_PAGE_TOKENS

static void tell_idle(struct sl_engine *e) {
    sl_kv_set_idle(&e->kv, sl_prefix_n_idle(e->prefixes));
}

/* A copy on its way through the stages, each with its layers' part. */
struct page_copy {
    struct sl_passage passage; /* first */
    struct sl_stage_call calls[SL_MAX_STAGES];
    enum sl_stage_request what;
    uint32_t page;
    uint8_t *host;    /* of the next stage's part */
    uint32_t n_asked; /* stages, until one failed */
};

static bool ask_page(struct sl_passage *p, uint32_t stage, struct sl_stage_call *c) {
    struct page_copy *copy = (struct page_copy *)(void *)p;
    if (stage && copy->calls[copy->n_asked - 1].answer.status != SL_OK)
        return false;
    c->ask.what = copy->what;
    c->ask.page.page = copy->page;
    c->with.bytes = copy->host;
    c->with.n_bytes = sl_pipeline_hello(p->pipeline, stage)->page_bytes;
    copy->host += c->with.n_bytes;
    copy->n_asked = stage + 1;
    return true;
}

enum sl_status sl_page_copy(struct sl_engine *e, uint32_t page, uint8_t *host, bool to_device) {
    struct page_copy c = {.passage = {.ask = ask_page},
                          .what = to_device ? SL_STAGE_WRITE_PAGE : SL_STAGE_READ_PAGE,
                          .page = page,
                          .host = host};
    c.passage.calls = c.calls;
    sl_pipeline_send(e->pipeline, &c.passage);
    sl_pipeline_wait(e->pipeline, &c.passage);
    const struct sl_stage_answer *a = &c.calls[c.n_asked - 1].answer;
    if (sl_is_fatal(a->status))
        e->pages_lost = a->err;
    return a->status;
}

enum sl_status sl_pages_fail(const struct sl_engine *e, struct sl_err *err, enum sl_status st,
                             const char *what) {
    const char *lost = e->pages_lost.text;
    return sl_fail(err, st, "%s: %.400s", what, *lost ? lost : sl_status_text(st));
}

/* A free page, or that of the prefix whose last use is longest ago. */
static enum sl_status take_page(struct sl_engine *e, uint32_t *out_page) {
    *out_page = sl_kv_page_take(&e->kv);
    if (*out_page != SL_KV_NO_PAGE)
        return SL_OK;
    uint32_t node = sl_prefix_oldest(e->prefixes);
    if (node == SL_KV_NO_PAGE)
        return SL_ERR_DEVICE_OOM;
    enum sl_status st = e->ram ? sl_prefix_ram_keep(e->ram, node) : SL_OK;
    if (sl_is_fatal(st)) /* else it is not kept, and computed when it is asked for again */
        return st;
    *out_page = sl_prefix_evict(e->prefixes);
    sl_count(prefix_evictions_total, 1);
    if (e->disk)
        sl_prefix_disk_evicted(e->disk, node);
    return SL_OK;
}

enum sl_status sl_slot_reserve(struct sl_engine *e, uint32_t slot, uint32_t *n_pages,
                               uint32_t n_tokens) {
    uint32_t need = (n_tokens + PAGE - 1) / PAGE, page;
    assert(need <= e->plan.session_pages);
    enum sl_status st = SL_OK;
    while (*n_pages < need && st == SL_OK) {
        st = take_page(e, &page);
        if (st == SL_OK)
            sl_page_table_set(&e->pages, slot, (*n_pages)++, page);
    }
    tell_idle(e);
    return st;
}

void sl_slot_release(struct sl_engine *e, uint32_t slot, uint32_t *n_pages) {
    while (*n_pages)
        sl_kv_page_give(&e->kv, sl_page_table_get(&e->pages, slot, --*n_pages));
}

uint32_t sl_session_shared_end(const struct sl_engine *e, const struct sl_session *s) {
    return s->n_shared ? sl_page_table_get(&e->pages, s->slot, s->n_shared - 1) : SL_PREFIX_ROOT;
}

static bool rows_alike(const struct sl_engine *e) {
    bool alike = true;
    for (uint32_t i = 0; i < e->n_stages; i++)
        alike &= sl_pipeline_hello(e->pipeline, i)->rows_alike;
    return alike;
}

/* Pages of the session's text that may be shared, counted from its start. Where prompt rows and
 * generated rows round differently, only prompt rows make pages that others may take; and a session
 * that lost its slot takes back no more than that, so that its own generated rows stay such. */
static uint32_t shareable_pages(const struct sl_engine *e, const struct sl_session *s) {
    if (s->req->no_cache)
        return 0;
    return (rows_alike(e) ? s->n_history : s->n_prompt) / PAGE;
}

/* Of them, those that the session may take from others: its last position is always computed, since
 * it is that row's logits that choose the next token. */
uint32_t sl_session_adoptable(const struct sl_engine *e, const struct sl_session *s) {
    uint32_t most = (s->n_history - 1) / PAGE, n = shareable_pages(e, s);
    return n < most ? n : most;
}

void sl_session_leave_pages(struct sl_engine *e, struct sl_session *s) {
    if (e->disk)
        sl_prefix_disk_forget(e->disk, s);
    while (s->n_pages > s->n_shared)
        sl_kv_page_give(&e->kv, sl_page_table_get(&e->pages, s->slot, --s->n_pages));
    while (s->n_shared)
        sl_prefix_release(e->prefixes, sl_page_table_get(&e->pages, s->slot, --s->n_shared));
    s->n_pages = s->n_kv = s->n_fed = 0;
    tell_idle(e);
}

void sl_session_publish(struct sl_engine *e, struct sl_session *s) {
    uint32_t n = shareable_pages(e, s), full = s->n_kv / PAGE;
    /* Pages are shared from the start on without a gap: one that may not be ends it. */
    while (s->n_shared < full && s->n_shared < n) {
        uint32_t parent = sl_session_shared_end(e, s), i = s->n_shared++;
        uint32_t page = sl_page_table_get(&e->pages, s->slot, i);
        const uint32_t *ids = s->history + (size_t)i * PAGE;
        uint32_t node = sl_prefix_find(e->prefixes, parent, ids);
        if (node == SL_KV_NO_PAGE) {
            sl_prefix_add(e->prefixes, page, parent, ids);
            if (e->disk)
                sl_prefix_disk_added(e->disk, page);
        } else { /* another session was faster: the same bits are there twice */
            sl_prefix_use(e->prefixes, node);
            sl_kv_page_give(&e->kv, page);
            sl_page_table_set(&e->pages, s->slot, i, node);
        }
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

void sl_session_adopt(struct sl_engine *e, struct sl_session *s) {
    uint32_t had = s->n_shared;
    while (sl_session_before_page(e, s)) {
        uint32_t node =
            sl_prefix_find(e->prefixes, sl_session_shared_end(e, s), s->history + s->n_kv);
        if (node == SL_KV_NO_PAGE)
            break;
        while (s->n_pages > s->n_shared) /* reserved for a step that was given up */
            sl_kv_page_give(&e->kv, sl_page_table_get(&e->pages, s->slot, --s->n_pages));
        sl_prefix_use(e->prefixes, node);
        if (e->disk)
            sl_prefix_disk_used(e->disk, node);
        sl_page_table_set(&e->pages, s->slot, s->n_shared++, node);
        s->n_pages = s->n_shared;
        s->n_kv = s->n_fed = s->n_kv + PAGE;
    }
    uint32_t n_tokens = (s->n_shared - had) * PAGE;
    if (n_tokens) {
        sl_session_count_cached(s, n_tokens);
        tell_idle(e);
    }
}

bool sl_session_follows(const struct sl_engine *e, const struct sl_session *s,
                        const struct sl_session *leader) {
    uint32_t page = s->n_shared;
    if (!sl_session_before_page(e, s) || leader->n_shared != page || leader->n_kv < s->n_kv ||
        leader->n_kv >= s->n_kv + PAGE ||
        (leader->n_kv == s->n_kv && leader->slot > s->slot && !leader->loads) ||
        page >= shareable_pages(e, leader) ||
        sl_session_shared_end(e, s) != sl_session_shared_end(e, leader))
        return false;
    return memcmp(s->history + s->n_kv, leader->history + s->n_kv, PAGE * sizeof s->history[0]) ==
           0;
}
