#include "engine/schedule/prefix_ram_internal.h"

#include "common/metrics.h"
#include "engine/schedule/schedule.h"

#include <stdlib.h>
#include <string.h>

enum sl_status sl_prefix_ram_create(struct sl_engine *e, uint32_t n_slots, uint64_t page_bytes,
                                    struct sl_prefix_ram **out_ram, struct sl_err *err) {
    struct sl_prefix_ram *r = calloc(1, sizeof *r);
    enum sl_status status = r ? sl_block_index_init(&r->index, n_slots, err) : SL_ERR_NOMEM;
    if (status == SL_OK) {
        r->e = e;
        r->page_bytes = page_bytes;
        r->kept = calloc(n_slots, sizeof *r->kept);
        r->data = malloc(n_slots * page_bytes);
    }
    if (status != SL_OK || !r->kept || !r->data) {
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
    bool tail_is_new = r->e->tails && sl_tail_of(r->e->tails, node) != SL_KV_NO_PAGE &&
                       slot != SL_NO_BLOCK && !r->kept[slot].holds_tail;
    if (slot != SL_NO_BLOCK && !tail_is_new) { /* it came from there */
        sl_block_index_touch(&r->index, slot);
        return SL_OK;
    }
    if (slot != SL_NO_BLOCK)
        sl_block_index_remove(&r->index, slot);
    else if (r->index.unused == SL_NO_BLOCK)
        sl_block_index_remove(&r->index, r->index.oldest);
    slot = sl_block_index_add(&r->index, key, r->page_bytes);
    r->kept[slot].parent = sl_prefix_key(t, sl_prefix_parent(t, node));
    memcpy(r->kept[slot].ids, sl_prefix_ids(t, node), sizeof r->kept[slot].ids);
    uint32_t tail = r->e->tails ? sl_tail_of(r->e->tails, node) : SL_KV_NO_PAGE;
    struct sl_kv_copy copy = {.page = node, .tail = tail, .holds_tail = tail != SL_KV_NO_PAGE};
    r->kept[slot].holds_tail = copy.holds_tail;
    enum sl_status status = sl_page_copy(r->e, &copy, r->data + slot * r->page_bytes);
    if (status != SL_OK) /* nobody may find what has not arrived */
        sl_block_index_remove(&r->index, slot);
    sl_gauge(prefix_ram_pages, r->index.n_blocks);
    return status;
}
