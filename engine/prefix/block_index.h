/* Which blocks a folder holds, how large they are and when they were of use. No I/O, no threads. */
#ifndef SL_ENGINE_BLOCK_INDEX_H
#define SL_ENGINE_BLOCK_INDEX_H

#include "common/siphash.h"
#include "common/status.h"

#include <stdbool.h>

#define SL_NO_BLOCK UINT32_MAX

struct sl_block_entry {
    struct sl_hash128 key;
    uint64_t file_bytes;
    uint32_t newer, older, chain;
    bool there;
    bool whole;      /* its file has been written */
    bool unreadable; /* the disk refused to give it: it stays, and is not asked for again */
};

struct sl_block_index {
    struct sl_block_entry *entries; /* [max_blocks] */
    uint32_t *buckets;              /* [bucket_mask + 1] */
    uint32_t max_blocks, bucket_mask, n_blocks;
    uint32_t newest, oldest, unused; /* unused: a list by chain */
    uint64_t file_bytes;             /* of all */
};

enum sl_status sl_block_index_init(struct sl_block_index *x, uint32_t max_blocks,
                                   struct sl_err *err) SL_MUST_CHECK;
void sl_block_index_release(struct sl_block_index *x);
uint64_t sl_block_index_bytes(uint32_t max_blocks);

/* SL_NO_BLOCK when it is not there. */
uint32_t sl_block_index_find(const struct sl_block_index *x, struct sl_hash128 key);
/* A key that is not there, as the most recent; SL_NO_BLOCK: no room. */
uint32_t sl_block_index_add(struct sl_block_index *x, struct sl_hash128 key, uint64_t file_bytes);
void sl_block_index_resize(struct sl_block_index *x, uint32_t entry, uint64_t file_bytes);
void sl_block_index_touch(struct sl_block_index *x, uint32_t entry);
void sl_block_index_remove(struct sl_block_index *x, uint32_t entry);

#endif
