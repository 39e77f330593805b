/* Sessions take pages of their text that are in the host's memory. */
#include "engine/schedule/prefix_ram_internal.h"

#include "common/metrics.h"

#include <string.h>

#define PAGE SL_KV_PAGE_TOKENS

/* The slot whose page has these ids after that prefix. */
static uint32_t find(const struct sl_prefix_ram *r, struct sl_hash128 parent, const uint32_t *ids) {
    uint32_t slot = sl_block_index_find(&r->index, sl_prefix_extend(r->e->prefixes, parent, ids));
    if (slot == SL_NO_BLOCK || memcmp(&r->kept[slot].parent, &parent, sizeof parent) != 0 ||
        memcmp(r->kept[slot].ids, ids, sizeof r->kept[slot].ids) != 0)
        return SL_NO_BLOCK;
    return slot;
}

/* How many pages of its text the session can take from host memory: up to the last page end for
 * which all the tail pages that it needs are there. It has those before its current page. */
static uint32_t reachable(const struct sl_prefix_ram *r, const struct sl_session *s) {
    const struct sl_engine *e = r->e;
    struct sl_hash128 key = sl_prefix_key(e->prefixes, sl_session_shared_end(e, s));
    uint32_t most = sl_session_adoptable(e, s), before = e->plan.tail_pages, run = before;
    uint32_t end = s->n_shared;
    for (uint32_t i = s->n_shared; i < most; i++) {
        const uint32_t *ids = s->history + (size_t)i * PAGE;
        uint32_t slot = find(r, key, ids);
        if (slot == SL_NO_BLOCK)
            break;
        run = e->tails && !r->kept[slot].holds_tail ? 0 : run + 1;
        if (run >= before || run > i)
            end = i + 1;
        key = sl_prefix_extend(e->prefixes, key, ids);
    }
    return end;
}

/* Takes the next page. *out_slot SL_NO_BLOCK: it is not there any more, or did not arrive. */
static enum sl_status take_in(struct sl_prefix_ram *r, struct sl_session *s, bool tail,
                              uint32_t *out_slot) {
    struct sl_engine *e = r->e;
    const uint32_t *ids = s->history + s->n_kv;
    struct sl_hash128 parent = sl_prefix_key(e->prefixes, sl_session_shared_end(e, s));
    uint32_t slot = find(r, parent, ids);
    *out_slot = SL_NO_BLOCK;
    if (slot == SL_NO_BLOCK)
        return SL_OK;
    /* Marked as most recent, so that making room for it does not evict it. */
    sl_block_index_touch(&r->index, slot);
    enum sl_status status = sl_session_reserve_page(e, s, tail);
    if (status != SL_OK || find(r, parent, ids) != slot)
        return status; /* a cache of one slot */
    status = sl_session_fill_page(e, s, r->data + slot * r->page_bytes, r->kept[slot].holds_tail);
    if (status != SL_OK)
        return sl_is_fatal(status) ? status : SL_OK; /* the session computes its page */
    sl_count(prefix_ram_hit_tokens_total, PAGE);
    *out_slot = slot;
    return SL_OK;
}

enum sl_status sl_prefix_ram_adopt(struct sl_prefix_ram *r, struct sl_session *s) {
    struct sl_engine *e = r->e;
    enum sl_status status = SL_OK;
    uint32_t end = sl_session_before_page(e, s) ? reachable(r, s) : s->n_shared, slot = 0;
    while (status == SL_OK && s->n_shared < end && slot != SL_NO_BLOCK)
        status = take_in(r, s, sl_needs_tail(e, s->n_shared, end), &slot);
    if (status == SL_OK && s->n_shared < end) /* some were pushed out, or did not arrive */
        sl_session_step_back(e, s);
    return status;
}
