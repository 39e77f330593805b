/* What a layer keeps of a sequence: a list of stores.
 *
 * All that is kept is kept by pages of SL_KV_PAGE_TOKENS positions. A store says how many bytes a
 * page of a layer takes, in one array or two, and how far back a row looks:
 *
 *   SL_SEQ_ALL     at all positions before it, so all pages of a sequence are kept: keys and values
 *   a number n     at the n positions before it and no others: keys and values of a layer with a
 *                  window of n + 1; for a state that every row reads and replaces n is 1, and a
 * page holds the state behind the last of its positions that was computed
 *
 * Stores of the second kind keep a tail of the sequence, in pages of a pool of their own ("tail
 * pages"). What lies before the tail is dropped, and may be kept for its text: a sequence can go on
 * from a page end when its last sl_seq_shape.tail_pages tail pages before it are there. That is all
 * that the memory plan, sessions, the prefix tree, copies in memory and on disk, and the identity
 * of their contents know of a store; what its bytes mean is the business of the layer's kind.
 *
 * A page is written by the rows of its own positions alone. So truncating a sequence to a page end
 * is to forget the pages behind it, a page end is a snapshot as soon as its last position has been
 * computed, and to restore it is to have its pages again. Within a page, a store that is not
 * repeatable must not be given the same rows twice: see sl_kv_save(). */
#ifndef SL_ENGINE_SEQ_STATE_H
#define SL_ENGINE_SEQ_STATE_H

#include "backends/backend.h"
#include "model/arch/model.h"

#define SL_SEQ_ALL    UINT32_MAX
#define SL_SEQ_PARTS  2u /* arrays of a store */
#define SL_SEQ_STORES 4u /* of a layer */

struct sl_seq_store {
    const char *name; /* static */
    uint32_t n_parts;
    size_t part_bytes[SL_SEQ_PARTS]; /* of a page, in each of its arrays */
    uint32_t kv_elems[SL_SEQ_PARTS]; /* of rows that are kept in the type of the KV cache and have
                                        to be whole blocks of it; 0: none */
    uint32_t reach;                  /* positions before a row that it needs, or SL_SEQ_ALL */
    bool repeatable; /* the rows of a step may be given to it again before others follow; else it is
                        a state, whose pages hold nothing but what is behind a position */
};

struct sl_step;
struct sl_page_table;
/* One layer's part of a step, for a source of stores. All in the host's memory. */
struct sl_seq_rows {
    uint32_t layer;                    /* of the whole model */
    const struct sl_step *step;        /* its rows */
    const uint32_t *slot;              /* [n_rows] page * SL_KV_PAGE_TOKENS + index */
    const struct sl_page_table *pages; /* the sessions' */
    const float *x;                    /* [n_rows, n_embd] what goes into the layer */
    uint32_t n_embd;                   /* of all streams, where there are several */
    char *part[SL_SEQ_PARTS];          /* [pages, part_bytes] */
};
/* Gives every layer one more store, and is shown the rows of each step once for each layer, before
 * the layer's own mixer: for tests. Devices whose memory the host cannot follow are refused. */
struct sl_seq_source {
    struct sl_seq_store store;
    void (*update)(const struct sl_seq_source *source, const struct sl_seq_rows *rows);
};

/* What decides which stores there are and where they are. */
struct sl_seq_config {
    enum sl_dtype kv_dtype;
    const struct sl_seq_source *source; /* NULL: none */
    bool tails; /* stores with a limited reach have tail pages; else they keep all pages too */
};
static inline bool sl_seq_is_tail(const struct sl_seq_config *c, const struct sl_seq_store *store) {
    return c->tails && store->reach != SL_SEQ_ALL;
}

#endif
