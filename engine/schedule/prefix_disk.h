/* The prefix tree's second home: pages that were computed go to files, and come back when a prompt
 * needs them and reading is faster than computing.
 *
 * Everything here is called by the scheduler and returns at once; the store's thread
 * (block_store.h) waits for the disk. What a full or slow disk loses is computed again. */
#ifndef SL_ENGINE_PREFIX_DISK_H
#define SL_ENGINE_PREFIX_DISK_H

#include "engine/prefix/block_store.h"
#include "engine/prefix/prefix_tree.h"

struct sl_engine;
struct sl_session;
struct sl_prefix_disk;

/* Opens the folder. *out_disk NULL with SL_OK: another process has it, which has been logged. */
enum sl_status sl_prefix_disk_open(struct sl_engine *e, struct sl_prefix_disk **out_disk,
                                   struct sl_err *err) SL_MUST_CHECK;
void sl_prefix_disk_close(struct sl_prefix_disk **d);

/* For the tree: the secret of its keys, and the key of its root, which stands for everything that
 * the bits of a page depend on. */
void sl_prefix_disk_keys(const struct sl_prefix_disk *d, struct sl_hash128 *out_secret,
                         struct sl_hash128 *out_root);

/* A page became a node, or stopped being one. */
void sl_prefix_disk_added(struct sl_prefix_disk *d, uint32_t page);
void sl_prefix_disk_evicted(struct sl_prefix_disk *d, uint32_t page);
/* A session took the node from others. */
void sl_prefix_disk_used(struct sl_prefix_disk *d, uint32_t node);

/* The session's next page is not in the tree: makes it wait for what the disk has of its text,
 * where that is faster than computing it. */
void sl_prefix_disk_seek(struct sl_prefix_disk *d, struct sl_session *s);
/* The session leaves its slot. */
void sl_prefix_disk_forget(struct sl_prefix_disk *d, struct sl_session *s);
/* Between steps: takes what has arrived, requests more, and hands new pages to the writer. A
 * failure is the device's. */
enum sl_status sl_prefix_disk_poll(struct sl_prefix_disk *d) SL_MUST_CHECK;
/* At shutdown: writes what is new, but for no longer than this. */
void sl_prefix_disk_flush(struct sl_prefix_disk *d, uint64_t most_ns);

/* Whether reading n pages is faster than computing them, as far as both speeds are known. */
bool sl_prefix_disk_pays(double read_page_ns, double row_cost_ns, uint32_t n);

#endif
