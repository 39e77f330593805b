/* Tail pages (engine/seq/seq_state.h): who has them, and which stay when nobody needs them.
 *
 * A tail page is free, a session's alone, or a node's of the prefix tree: that of the node's
 * positions. A node need not have one. Sessions use the tail pages of nodes that they go on from,
 * or have just passed; one that nobody uses stays until its page is wanted. Those that are worth
 * least go first, in the order of their last use.
 *
 * No threads, no device: the scheduler's. A release pairs with each attach or use. */
#ifndef SL_ENGINE_PREFIX_TAILS_H
#define SL_ENGINE_PREFIX_TAILS_H

#include "engine/kv/kv.h"

struct sl_tail_pages;

/* What a page that nobody uses is worth: the least goes first. */
enum sl_tail_worth {
    SL_TAIL_PASSED, /* on the way */
    SL_TAIL_LIKELY, /* sl_tail_is_likely() */
    SL_TAIL_END,    /* of a text, or where texts part */
    SL_TAIL_WORTHS
};

/* n_tails: of the pool; n_nodes: that the tree may have. */
enum sl_status sl_tail_pages_create(uint32_t n_tails, uint32_t n_nodes,
                                    struct sl_tail_pages **out_tails,
                                    struct sl_err *err) SL_MUST_CHECK;
void sl_tail_pages_destroy(struct sl_tail_pages **t);
/* What create allocates; 0 for n_tails 0. */
uint64_t sl_tail_pages_bytes(uint32_t n_tails, uint32_t n_nodes);

/* A page for a session alone, free or taken from a node; SL_KV_NO_PAGE: all are in use. */
uint32_t sl_tail_take(struct sl_tail_pages *t);
void sl_tail_give(struct sl_tail_pages *t, uint32_t tail);
/* That of a node; SL_KV_NO_PAGE: it has none. */
uint32_t sl_tail_of(const struct sl_tail_pages *t, uint32_t node);
/* Has it become a node's? */
bool sl_tail_is_shared(const struct sl_tail_pages *t, uint32_t tail);
/* A session's own page becomes that of a node, which has none; in use by one. */
void sl_tail_attach(struct sl_tail_pages *t, uint32_t tail, uint32_t node);
void sl_tail_use(struct sl_tail_pages *t, uint32_t tail);
/* One less uses it. It is worth the most that any of its users has said. */
void sl_tail_release(struct sl_tail_pages *t, uint32_t tail, enum sl_tail_worth worth);
/* The node leaves the tree; nobody uses its page. */
void sl_tail_drop(struct sl_tail_pages *t, uint32_t node);
/* Free, or a node's that nobody uses. */
uint32_t sl_tail_n_unused(const struct sl_tail_pages *t);

/* Is a session that goes on from some page end of a text of any length likely to need page i, when
 * n_before pages before that end are needed? Page ends 1, 2, 3, 4, 6, 8, 12, 16, 24, ... are held
 * to be likely: going on from the last one of them leaves at most half as much to compute as is
 * known. */
bool sl_tail_is_likely(uint32_t i, uint32_t n_before);

#endif
