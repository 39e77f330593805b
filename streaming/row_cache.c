#include "streaming/row_cache.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

struct sl_cached_row {
    uint64_t row;
    uint32_t next;         /* of the chain */
    uint32_t newer, older; /* by use */
};

static uint32_t n_heads_for(uint32_t n) {
    uint32_t heads = 1;
    while (heads < n)
        heads *= 2;
    return heads;
}

size_t sl_row_cache_table_bytes(uint32_t n) {
    return n * sizeof(struct sl_cached_row) + n_heads_for(n) * sizeof(uint32_t);
}

/* Fibonacci hashing: numbers that follow one another go to different chains. */
static uint32_t *head_of(const struct sl_row_cache *c, uint64_t row) {
    uint64_t hash = row * UINT64_C(0x9e3779b97f4a7c15);
    return &c->head[(hash >> 32) & (c->n_heads - 1)];
}

enum sl_status sl_row_cache_init(struct sl_row_cache *c, uint8_t *rows, uint32_t n,
                                 uint32_t row_bytes) {
    *c = (struct sl_row_cache){
        .rows = rows, .row_bytes = row_bytes, .n = n, .n_heads = n_heads_for(n)};
    c->head = malloc(c->n_heads * sizeof *c->head);
    c->info = calloc((size_t)n + 1, sizeof *c->info);
    if (!c->head || !c->info) {
        sl_row_cache_release(c);
        return SL_ERR_NOMEM;
    }
    sl_row_cache_forget(c);
    return SL_OK;
}

void sl_row_cache_release(struct sl_row_cache *c) {
    free(c->head);
    free(c->info);
    memset(c, 0, sizeof *c);
}

void sl_row_cache_forget(struct sl_row_cache *c) {
    memset(c->head, 0xff, c->n_heads * sizeof *c->head);
    c->n_used = 0;
    c->newest = c->oldest = NONE;
}

static void unlink_use(struct sl_row_cache *c, uint32_t i) {
    struct sl_cached_row *r = &c->info[i];
    *(r->newer == NONE ? &c->newest : &c->info[r->newer].older) = r->older;
    *(r->older == NONE ? &c->oldest : &c->info[r->older].newer) = r->newer;
}

static void make_newest(struct sl_row_cache *c, uint32_t i) {
    struct sl_cached_row *r = &c->info[i];
    r->newer = NONE;
    r->older = c->newest;
    *(c->newest == NONE ? &c->oldest : &c->info[c->newest].newer) = i;
    c->newest = i;
}

static uint32_t find(const struct sl_row_cache *c, uint64_t row) {
    uint32_t i = *head_of(c, row);
    while (i != NONE && c->info[i].row != row)
        i = c->info[i].next;
    return i;
}

const uint8_t *sl_row_cache_find(struct sl_row_cache *c, uint64_t row) {
    uint32_t i = c->n ? find(c, row) : NONE;
    if (i == NONE)
        return NULL;
    unlink_use(c, i);
    make_newest(c, i);
    return c->rows + (size_t)i * c->row_bytes;
}

static uint32_t take_oldest(struct sl_row_cache *c) {
    uint32_t i = c->oldest, *at = head_of(c, c->info[i].row);
    while (*at != i)
        at = &c->info[*at].next;
    *at = c->info[i].next;
    unlink_use(c, i);
    return i;
}

uint8_t *sl_row_cache_add(struct sl_row_cache *c, uint64_t row) {
    if (!c->n)
        return NULL;
    assert(find(c, row) == NONE);
    uint32_t i = c->n_used < c->n ? c->n_used++ : take_oldest(c), *head = head_of(c, row);
    c->info[i].row = row;
    c->info[i].next = *head;
    *head = i;
    make_newest(c, i);
    return c->rows + (size_t)i * c->row_bytes;
}
