#include "engine/prefix/block_index.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define NONE SL_NO_BLOCK

uint64_t sl_block_index_bytes(uint32_t max_blocks) {
    return (uint64_t)max_blocks * sizeof(struct sl_block_entry) +
           (uint64_t)sl_hash_buckets(max_blocks) * sizeof(uint32_t);
}

enum sl_status sl_block_index_init(struct sl_block_index *x, uint32_t max_blocks,
                                   struct sl_err *err) {
    uint32_t n_buckets = sl_hash_buckets(max_blocks);
    *x = (struct sl_block_index){.max_blocks = max_blocks, .bucket_mask = n_buckets - 1};
    x->entries = calloc(max_blocks, sizeof *x->entries);
    x->buckets = malloc(n_buckets * sizeof *x->buckets);
    if (!x->entries || !x->buckets) {
        sl_block_index_release(x);
        return sl_fail(err, SL_ERR_NOMEM, "no memory for a list of %u KV pages on disk",
                       max_blocks);
    }
    memset(x->buckets, 0xff, n_buckets * sizeof *x->buckets);
    x->newest = x->oldest = x->unused = NONE;
    for (uint32_t i = max_blocks; i > 0; i--) {
        x->entries[i - 1].chain = x->unused;
        x->unused = i - 1;
    }
    return SL_OK;
}

void sl_block_index_release(struct sl_block_index *x) {
    free(x->entries);
    free(x->buckets);
    *x = (struct sl_block_index){.newest = NONE, .oldest = NONE, .unused = NONE};
}

static uint32_t *bucket_of(const struct sl_block_index *x, struct sl_hash128 key) {
    return &x->buckets[key.lo & x->bucket_mask];
}

uint32_t sl_block_index_find(const struct sl_block_index *x, struct sl_hash128 key) {
    uint32_t i = *bucket_of(x, key);
    while (i != NONE && (x->entries[i].key.lo != key.lo || x->entries[i].key.hi != key.hi))
        i = x->entries[i].chain;
    return i;
}

static void link_newest(struct sl_block_index *x, uint32_t entry) {
    struct sl_block_entry *n = &x->entries[entry];
    n->newer = NONE;
    n->older = x->newest;
    *(x->newest == NONE ? &x->oldest : &x->entries[x->newest].newer) = entry;
    x->newest = entry;
}

static void unlink_entry(struct sl_block_index *x, const struct sl_block_entry *n) {
    *(n->newer == NONE ? &x->newest : &x->entries[n->newer].older) = n->older;
    *(n->older == NONE ? &x->oldest : &x->entries[n->older].newer) = n->newer;
}

uint32_t sl_block_index_add(struct sl_block_index *x, struct sl_hash128 key, uint64_t file_bytes) {
    uint32_t entry = x->unused;
    if (entry == NONE)
        return NONE;
    struct sl_block_entry *n = &x->entries[entry];
    x->unused = n->chain;
    uint32_t *bucket = bucket_of(x, key);
    *n = (struct sl_block_entry){
        .key = key, .file_bytes = file_bytes, .chain = *bucket, .there = true};
    *bucket = entry;
    link_newest(x, entry);
    x->n_blocks++;
    x->file_bytes += file_bytes;
    return entry;
}

void sl_block_index_resize(struct sl_block_index *x, uint32_t entry, uint64_t file_bytes) {
    x->file_bytes += file_bytes - x->entries[entry].file_bytes;
    x->entries[entry].file_bytes = file_bytes;
}

void sl_block_index_touch(struct sl_block_index *x, uint32_t entry) {
    unlink_entry(x, &x->entries[entry]);
    link_newest(x, entry);
}

void sl_block_index_remove(struct sl_block_index *x, uint32_t entry) {
    struct sl_block_entry *n = &x->entries[entry];
    assert(n->there);
    unlink_entry(x, n);
    uint32_t *link = bucket_of(x, n->key);
    while (*link != entry)
        link = &x->entries[*link].chain;
    *link = n->chain;
    x->file_bytes -= n->file_bytes;
    x->n_blocks--;
    *n = (struct sl_block_entry){.chain = x->unused};
    x->unused = entry;
}
