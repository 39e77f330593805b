/* The pages that go to files: prefix_disk.c writes them, prefix_disk_load.c has sessions take them.
 */
#ifndef SL_ENGINE_PREFIX_DISK_INTERNAL_H
#define SL_ENGINE_PREFIX_DISK_INTERNAL_H

#include "engine/schedule/schedule.h"
#include "engine/prefix/prefix_sizes.h"
#include "engine/schedule/prefix_disk.h"

struct sl_prefix_disk {
    struct sl_engine *e;
    struct sl_block_store *store;
    struct sl_hash128 root;
    struct sl_prefix_copy *copies; /* [n_pages] */
    uint32_t first, last;          /* pages to write, UINT32_MAX: none */
    uint32_t n_pages;
    double read_page_ns; /* what a page took; 0 = not known yet */
};
_Static_assert(sizeof(struct sl_prefix_disk) <= SL_PREFIX_HOME_BYTES, "the plan counts less");

/* Are there pages to write? */
static inline bool sl_prefix_disk_has_new(const struct sl_prefix_disk *d) {
    return d->first != UINT32_MAX;
}

/* The name of a page's file without its tail page, from the name of the whole. */
struct sl_hash128 sl_prefix_disk_bare(struct sl_hash128 key);
/* Of a file with the tail page, or without. */
uint64_t sl_prefix_disk_payload_bytes(const struct sl_prefix_disk *d, bool whole);
/* Writes what is new while buffers are free. A failure is the device's. */
enum sl_status sl_prefix_disk_write_new(struct sl_prefix_disk *d) SL_MUST_CHECK;
void sl_prefix_disk_was_written(struct sl_prefix_disk *d, const struct sl_block_buf *b);

#endif
