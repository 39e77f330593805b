#include "engine/prefix/prefix_tree.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

struct node {
    struct sl_hash128 key;
    uint32_t ids[SL_KV_PAGE_TOKENS];
    uint32_t parent; /* SL_PREFIX_ROOT: none */
    uint32_t n_users, n_children;
    uint32_t newer, older; /* among the idle */
    uint32_t chain;        /* the next one in its bucket */
    bool there;
};

struct sl_prefix_tree {
    struct sl_hash128 secret, root;
    uint32_t n_pages, n_nodes, n_idle;
    uint32_t newest, oldest; /* idle */
    uint32_t bucket_mask;
    uint32_t *buckets;  /* [bucket_mask + 1] by the key */
    struct node *nodes; /* [n_pages] */
};

uint64_t sl_prefix_tree_bytes(uint32_t n_pages) {
    return sizeof(struct sl_prefix_tree) + (uint64_t)n_pages * sizeof(struct node) +
           (uint64_t)sl_hash_buckets(n_pages) * sizeof(uint32_t);
}

enum sl_status sl_prefix_tree_create(uint32_t n_pages, struct sl_hash128 secret,
                                     struct sl_hash128 root, struct sl_prefix_tree **out_tree,
                                     struct sl_err *err) {
    struct sl_prefix_tree *t = calloc(1, sizeof *t);
    uint32_t n_buckets = sl_hash_buckets(n_pages);
    if (t) {
        t->nodes = calloc(n_pages, sizeof *t->nodes);
        t->buckets = malloc(n_buckets * sizeof *t->buckets);
    }
    if (!t || !t->nodes || !t->buckets) {
        sl_prefix_tree_destroy(&t);
        return sl_fail(err, SL_ERR_NOMEM, "no memory for the tree of %u KV pages", n_pages);
    }
    memset(t->buckets, 0xff, n_buckets * sizeof *t->buckets);
    t->bucket_mask = n_buckets - 1;
    t->n_pages = n_pages;
    t->secret = secret;
    t->root = root;
    t->newest = t->oldest = NONE;
    *out_tree = t;
    return SL_OK;
}

void sl_prefix_tree_destroy(struct sl_prefix_tree **pt) {
    struct sl_prefix_tree *t = *pt;
    if (!t)
        return;
    free(t->nodes);
    free(t->buckets);
    free(t);
    *pt = NULL;
}

static struct node *at(const struct sl_prefix_tree *t, uint32_t node) {
    assert(node < t->n_pages && t->nodes[node].there);
    return &t->nodes[node];
}

struct sl_hash128 sl_prefix_extend(const struct sl_prefix_tree *t, struct sl_hash128 parent,
                                   const uint32_t *ids) {
    struct sl_siphash s;
    sl_siphash_init(&s, t->secret);
    sl_siphash_add(&s, &parent, sizeof parent);
    sl_siphash_add(&s, ids, SL_KV_PAGE_TOKENS * sizeof *ids);
    return sl_siphash_end(&s);
}

struct sl_hash128 sl_prefix_key(const struct sl_prefix_tree *t, uint32_t node) {
    return node == SL_PREFIX_ROOT ? t->root : at(t, node)->key;
}

const uint32_t *sl_prefix_ids(const struct sl_prefix_tree *t, uint32_t node) {
    return at(t, node)->ids;
}

uint32_t sl_prefix_parent(const struct sl_prefix_tree *t, uint32_t node) {
    return at(t, node)->parent;
}

uint32_t sl_prefix_n_children(const struct sl_prefix_tree *t, uint32_t node) {
    return node == SL_PREFIX_ROOT ? 0 : at(t, node)->n_children;
}

bool sl_prefix_has(const struct sl_prefix_tree *t, uint32_t page) {
    assert(page < t->n_pages);
    return t->nodes[page].there;
}

static uint32_t *bucket_of(const struct sl_prefix_tree *t, struct sl_hash128 key) {
    return &t->buckets[key.lo & t->bucket_mask];
}

uint32_t sl_prefix_find(const struct sl_prefix_tree *t, uint32_t parent, const uint32_t *ids) {
    if (parent != SL_PREFIX_ROOT && !at(t, parent)->n_children)
        return SL_KV_NO_PAGE;
    struct sl_hash128 key = sl_prefix_extend(t, sl_prefix_key(t, parent), ids);
    for (uint32_t i = *bucket_of(t, key); i != NONE; i = t->nodes[i].chain)
        if (t->nodes[i].parent == parent &&
            memcmp(t->nodes[i].ids, ids, sizeof t->nodes[i].ids) == 0)
            return i;
    return SL_KV_NO_PAGE;
}

void sl_prefix_add(struct sl_prefix_tree *t, uint32_t page, uint32_t parent, const uint32_t *ids) {
    assert(page < t->n_pages && !t->nodes[page].there);
    struct node *n = &t->nodes[page];
    n->key = sl_prefix_extend(t, sl_prefix_key(t, parent), ids);
    memcpy(n->ids, ids, sizeof n->ids);
    n->parent = parent;
    n->n_users = 1;
    n->n_children = 0;
    n->there = true;
    if (parent != SL_PREFIX_ROOT) {
        assert(at(t, parent)->n_users);
        at(t, parent)->n_children++;
    }
    uint32_t *bucket = bucket_of(t, n->key);
    n->chain = *bucket;
    *bucket = page;
    t->n_nodes++;
}

static void idle_out(struct sl_prefix_tree *t, struct node *n) {
    *(n->newer == NONE ? &t->newest : &t->nodes[n->newer].older) = n->older;
    *(n->older == NONE ? &t->oldest : &t->nodes[n->older].newer) = n->newer;
    t->n_idle--;
}

void sl_prefix_use(struct sl_prefix_tree *t, uint32_t node) {
    struct node *n = at(t, node);
    assert(n->parent == SL_PREFIX_ROOT || at(t, n->parent)->n_users);
    if (n->n_users++ == 0)
        idle_out(t, n);
}

void sl_prefix_release(struct sl_prefix_tree *t, uint32_t node) {
    struct node *n = at(t, node);
    assert(n->n_users);
    if (--n->n_users)
        return;
    n->newer = NONE;
    n->older = t->newest;
    *(t->newest == NONE ? &t->oldest : &t->nodes[t->newest].newer) = node;
    t->newest = node;
    t->n_idle++;
}

uint32_t sl_prefix_oldest(const struct sl_prefix_tree *t) {
    return t->oldest;
}

uint32_t sl_prefix_evict(struct sl_prefix_tree *t) {
    uint32_t node = t->oldest;
    if (node == NONE)
        return SL_KV_NO_PAGE;
    struct node *n = at(t, node);
    assert(!n->n_users && !n->n_children);
    idle_out(t, n);
    if (n->parent != SL_PREFIX_ROOT)
        at(t, n->parent)->n_children--;
    uint32_t *link = bucket_of(t, n->key);
    while (*link != node)
        link = &t->nodes[*link].chain;
    *link = n->chain;
    n->there = false;
    t->n_nodes--;
    return node;
}

uint32_t sl_prefix_n_nodes(const struct sl_prefix_tree *t) {
    return t->n_nodes;
}

uint32_t sl_prefix_n_idle(const struct sl_prefix_tree *t) {
    return t->n_idle;
}
