/* Which KV pages hold which text: a tree whose nodes are full pages.
 *
 * A node stands for SL_KV_PAGE_TOKENS ids after those of its parent, and its number is that of the
 * page with their keys and values. A path from the root is a prefix, found by comparing ids, never
 * by trusting a hash. Sessions use nodes; one that nobody uses stays until its page is wanted, and
 * leaves are given up in the order of their last use. Whoever uses a node uses all above it, and
 * gives them back from the deepest up, so that a parent is always more recent than its children.
 *
 * Each node also has a key, a keyed hash of its whole prefix: a name under which the page can be
 * kept elsewhere.
 *
 * No threads, no device: the scheduler's. A release pairs with each add or use. */
#ifndef SL_ENGINE_PREFIX_TREE_H
#define SL_ENGINE_PREFIX_TREE_H

#include "common/siphash.h"
#include "engine/kv/kv.h"

#define SL_PREFIX_ROOT UINT32_MAX

struct sl_prefix_tree;

/* n_pages: of the pool. secret and root: the key of the hash, and the key of the empty prefix. */
enum sl_status sl_prefix_tree_create(uint32_t n_pages, struct sl_hash128 secret,
                                     struct sl_hash128 root, struct sl_prefix_tree **out_tree,
                                     struct sl_err *err) SL_MUST_CHECK;
void sl_prefix_tree_destroy(struct sl_prefix_tree **t);
/* What create allocates. */
uint64_t sl_prefix_tree_bytes(uint32_t n_pages);

/* The key of ids [SL_KV_PAGE_TOKENS] after a prefix with the key parent. */
struct sl_hash128 sl_prefix_extend(const struct sl_prefix_tree *t, struct sl_hash128 parent,
                                   const uint32_t *ids);
/* Of a node, or of SL_PREFIX_ROOT. */
struct sl_hash128 sl_prefix_key(const struct sl_prefix_tree *t, uint32_t node);
/* [SL_KV_PAGE_TOKENS]; borrowed until the node goes. */
const uint32_t *sl_prefix_ids(const struct sl_prefix_tree *t, uint32_t node);
uint32_t sl_prefix_parent(const struct sl_prefix_tree *t, uint32_t node);
/* Nodes below it; 0 for the root, whose are not counted. */
uint32_t sl_prefix_n_children(const struct sl_prefix_tree *t, uint32_t node);
bool sl_prefix_has(const struct sl_prefix_tree *t, uint32_t page);

/* The child of a node (or the root) with these ids; SL_KV_NO_PAGE: there is none. */
uint32_t sl_prefix_find(const struct sl_prefix_tree *t, uint32_t parent, const uint32_t *ids);
/* Makes a page that is no node a child of parent, which has none with these ids; in use by one. */
void sl_prefix_add(struct sl_prefix_tree *t, uint32_t page, uint32_t parent, const uint32_t *ids);
/* One more uses the node; its parent is in use already. */
void sl_prefix_use(struct sl_prefix_tree *t, uint32_t node);
/* One less, after all below it that the same user had. */
void sl_prefix_release(struct sl_prefix_tree *t, uint32_t node);
/* The node that evict would take; SL_KV_NO_PAGE: all are in use. */
uint32_t sl_prefix_oldest(const struct sl_prefix_tree *t);
/* Takes the node out that nobody uses and whose last use is longest ago, always a leaf, and returns
 * its page; SL_KV_NO_PAGE: all are in use. */
uint32_t sl_prefix_evict(struct sl_prefix_tree *t);

uint32_t sl_prefix_n_nodes(const struct sl_prefix_tree *t);
/* Those that nobody uses. */
uint32_t sl_prefix_n_idle(const struct sl_prefix_tree *t);

#endif
