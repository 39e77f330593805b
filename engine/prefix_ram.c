#include "engine/prefix_ram.h"

#include "common/metrics.h"
#include "engine/prefix/block_index.h"
#include "engine/prefix/prefix_sizes.h"
#include "engine/engine_internal.h"

#include <stdlib.h>
#include <string.h>

#define PAGE SL_KV_PAGE_TOKENS

struct sl_prefix_ram {
    struct sl_engine *e;
    struct sl_block_index index;
    struct sl_prefix_kept *kept; /* [n_slots]; entry i of the index is slot i */
    uint8_t *data;               /* [n_slots, page_bytes] */
    uint64_t page_bytes;
};
_Static_assert(sizeof(struct sl_prefix_ram) <= SL_PREFIX_HOME_BYTES, "the plan counts less");

enum sl_status sl_prefix_ram_create(struct sl_engine *e, uint32_t n_slots, uint64_t page_bytes,
                                    struct sl_prefix_ram **out_ram, struct sl_err *err) {
    struct sl_prefix_ram *r = calloc(1, sizeof *r);
    enum sl_status st = r ? sl_block_index_init(&r->index, n_slots, err) : SL_ERR_NOMEM;
    if (st == SL_OK) {
        r->e = e;
        r->page_bytes = page_bytes;
        r->kept = calloc(n_slots, sizeof *r->kept);
        r->data = malloc(n_slots * page_bytes);
    }
    if (st != SL_OK || !r->kept || !r->data) {
        sl_prefix_ram_destroy(&r);
        return sl_fail(err, SL_ERR_NOMEM,
                       "no memory for a prefix cache of %u pages: lower "
                       "--cache-ram",
                       n_slots);
    }
    memset(r->data, 0, n_slots * page_bytes); /* page faults now */
    *out_ram = r;
    return SL_OK;
}

void sl_prefix_ram_destroy(struct sl_prefix_ram **pr) {
    struct sl_prefix_ram *r = *pr;
    if (!r)
        return;
    sl_block_index_release(&r->index);
    free(r->kept);
    free(r->data);
    free(r);
    *pr = NULL;
}

enum sl_status sl_prefix_ram_keep(struct sl_prefix_ram *r, uint32_t node) {
    const struct sl_prefix_tree *t = r->e->prefixes;
    struct sl_hash128 key = sl_prefix_key(t, node);
    uint32_t slot = sl_block_index_find(&r->index, key);
    if (slot != SL_NO_BLOCK) { /* it came from there */
        sl_block_index_touch(&r->index, slot);
        return SL_OK;
    }
    if (r->index.unused == SL_NO_BLOCK)
        sl_block_index_remove(&r->index, r->index.oldest);
    slot = sl_block_index_add(&r->index, key, r->page_bytes);
    r->kept[slot].parent = sl_prefix_key(t, sl_prefix_parent(t, node));
    memcpy(r->kept[slot].ids, sl_prefix_ids(t, node), sizeof r->kept[slot].ids);
    enum sl_status st = sl_page_copy(r->e, node, r->data + slot * r->page_bytes, false);
    if (st != SL_OK) /* nobody may find what has not arrived */
        sl_block_index_remove(&r->index, slot);
    sl_gauge(prefix_ram_pages, r->index.n_blocks);
    return st;
}

/* The slot with these ids after that prefix. */
static uint32_t find(const struct sl_prefix_ram *r, struct sl_hash128 parent, const uint32_t *ids) {
    uint32_t slot = sl_block_index_find(&r->index, sl_prefix_extend(r->e->prefixes, parent, ids));
    if (slot == SL_NO_BLOCK || memcmp(&r->kept[slot].parent, &parent, sizeof parent) != 0 ||
        memcmp(r->kept[slot].ids, ids, sizeof r->kept[slot].ids) != 0)
        return SL_NO_BLOCK;
    return slot;
}

enum sl_status sl_prefix_ram_adopt(struct sl_prefix_ram *r, struct sl_session *s) {
    struct sl_engine *e = r->e;
    enum sl_status st = SL_OK;
    while (st == SL_OK && sl_session_before_page(e, s)) {
        struct sl_hash128 parent = sl_prefix_key(e->prefixes, sl_session_shared_end(e, s));
        uint32_t slot = find(r, parent, s->history + s->n_kv);
        if (slot == SL_NO_BLOCK)
            break;
        /* Most recent, so that making room for it does not push it out. */
        sl_block_index_touch(&r->index, slot);
        st = sl_slot_reserve(e, s->slot, &s->n_pages, s->n_kv + PAGE);
        if (st != SL_OK || find(r, parent, s->history + s->n_kv) != slot)
            break; /* a cache of one slot */
        st = sl_page_copy(e, sl_page_table_get(&e->pages, s->slot, s->n_shared),
                          r->data + slot * r->page_bytes, true);
        if (st != SL_OK)
            return sl_is_fatal(st) ? st : SL_OK; /* the page is the session's: it is computed */
        s->n_kv = s->n_fed = s->n_kv + PAGE;
        sl_session_publish(e, s);
        sl_session_count_cached(s, PAGE);
        sl_count(prefix_ram_hit_tokens_total, PAGE);
    }
    return st;
}
