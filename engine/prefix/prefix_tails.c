#include "engine/prefix/prefix_tails.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

struct tail {
    uint32_t node;    /* NONE: free, or a session's alone */
    uint32_t n_users; /* of a node's */
    uint32_t newer,
        older; /* of those that nobody uses, among those worth the same; older: also of the free */
    enum sl_tail_worth worth;
};

struct sl_tail_pages {
    uint32_t n_tails, n_nodes, n_unused;
    uint32_t free;                                           /* a list by older */
    uint32_t newest[SL_TAIL_WORTHS], oldest[SL_TAIL_WORTHS]; /* nodes' that nobody uses */
    struct tail *tails;                                      /* [n_tails] */
    uint32_t *of_node;                                       /* [n_nodes] */
};

uint64_t sl_tail_pages_bytes(uint32_t n_tails, uint32_t n_nodes) {
    return n_tails ? sizeof(struct sl_tail_pages) + (uint64_t)n_tails * sizeof(struct tail) +
                         (uint64_t)n_nodes * sizeof(uint32_t)
                   : 0;
}

enum sl_status sl_tail_pages_create(uint32_t n_tails, uint32_t n_nodes,
                                    struct sl_tail_pages **out_tails, struct sl_err *err) {
    struct sl_tail_pages *t = calloc(1, sizeof *t);
    if (t) {
        t->tails = calloc(n_tails, sizeof *t->tails);
        t->of_node = malloc((size_t)n_nodes * sizeof *t->of_node);
    }
    if (!t || !t->tails || !t->of_node) {
        sl_tail_pages_destroy(&t);
        return sl_fail(err, SL_ERR_NOMEM, "no memory for the list of %u tail pages", n_tails);
    }
    memset(t->of_node, 0xff, (size_t)n_nodes * sizeof *t->of_node);
    t->n_tails = n_tails;
    t->n_nodes = n_nodes;
    for (uint32_t r = 0; r < SL_TAIL_WORTHS; r++)
        t->newest[r] = t->oldest[r] = NONE;
    t->free = NONE;
    for (uint32_t i = n_tails; i-- > 0;) /* the lowest first */
        sl_tail_give(t, i);
    *out_tails = t;
    return SL_OK;
}

void sl_tail_pages_destroy(struct sl_tail_pages **pt) {
    struct sl_tail_pages *t = *pt;
    if (!t)
        return;
    free(t->tails);
    free(t->of_node);
    free(t);
    *pt = NULL;
}

/* Of a node's page that nobody uses: out of its list. */
static void idle_out(struct sl_tail_pages *t, struct tail *p) {
    *(p->newer == NONE ? &t->newest[p->worth] : &t->tails[p->newer].older) = p->older;
    *(p->older == NONE ? &t->oldest[p->worth] : &t->tails[p->older].newer) = p->newer;
    t->n_unused--;
}

uint32_t sl_tail_take(struct sl_tail_pages *t) {
    uint32_t tail = t->free;
    if (tail != NONE) {
        t->free = t->tails[tail].older;
        t->n_unused--;
    } else {
        for (uint32_t w = 0; w < SL_TAIL_WORTHS && tail == NONE; w++)
            tail = t->oldest[w];
        if (tail == NONE)
            return SL_KV_NO_PAGE;
        idle_out(t, &t->tails[tail]);
        t->of_node[t->tails[tail].node] = NONE;
    }
    t->tails[tail] = (struct tail){.node = NONE};
    return tail;
}

void sl_tail_give(struct sl_tail_pages *t, uint32_t tail) {
    assert(tail < t->n_tails && t->n_unused < t->n_tails);
    t->tails[tail] = (struct tail){.node = NONE, .older = t->free};
    t->free = tail;
    t->n_unused++;
}

uint32_t sl_tail_of(const struct sl_tail_pages *t, uint32_t node) {
    assert(node < t->n_nodes);
    return t->of_node[node];
}

bool sl_tail_is_shared(const struct sl_tail_pages *t, uint32_t tail) {
    assert(tail < t->n_tails);
    return t->tails[tail].node != NONE;
}

void sl_tail_attach(struct sl_tail_pages *t, uint32_t tail, uint32_t node) {
    assert(!sl_tail_is_shared(t, tail) && sl_tail_of(t, node) == NONE);
    t->tails[tail] = (struct tail){.node = node, .n_users = 1};
    t->of_node[node] = tail;
}

void sl_tail_use(struct sl_tail_pages *t, uint32_t tail) {
    assert(sl_tail_is_shared(t, tail));
    struct tail *p = &t->tails[tail];
    if (p->n_users++ == 0)
        idle_out(t, p);
}

void sl_tail_release(struct sl_tail_pages *t, uint32_t tail, enum sl_tail_worth worth) {
    assert(sl_tail_is_shared(t, tail) && t->tails[tail].n_users);
    struct tail *p = &t->tails[tail];
    if (p->worth < worth)
        p->worth = worth;
    if (--p->n_users)
        return;
    uint32_t *newest = &t->newest[p->worth];
    p->newer = NONE;
    p->older = *newest;
    *(*newest == NONE ? &t->oldest[p->worth] : &t->tails[*newest].newer) = tail;
    *newest = tail;
    t->n_unused++;
}

void sl_tail_drop(struct sl_tail_pages *t, uint32_t node) {
    uint32_t tail = sl_tail_of(t, node);
    if (tail == NONE)
        return;
    assert(!t->tails[tail].n_users);
    idle_out(t, &t->tails[tail]);
    t->of_node[node] = NONE;
    sl_tail_give(t, tail);
}

uint32_t sl_tail_n_unused(const struct sl_tail_pages *t) {
    return t->n_unused;
}

bool sl_tail_is_likely(uint32_t i, uint32_t n_before) {
    uint32_t end = 1; /* the first such end behind page i */
    while (end <= i && end + end / 2 <= i)
        end *= 2;
    if (end <= i)
        end += end / 2 > 0 ? end / 2 : 1;
    return end - i <= n_before;
}
