#include "model/jinja/jinja_arena.h"

#include <stdint.h>
#include <stdlib.h>

enum { FIRST_CHUNK = 8 << 10, LAST_CHUNK = 1 << 20 };

struct sl_j_chunk {
    struct sl_j_chunk *older;
    size_t pad; /* keeps the payload 16-byte aligned */
};

void sl_j_arena_init(struct sl_j_arena *a, size_t limit_bytes) {
    *a = (struct sl_j_arena){.limit_bytes = limit_bytes, .chunk_bytes = FIRST_CHUNK};
}

void sl_j_arena_release(struct sl_j_arena *a) {
    while (a->head) {
        struct sl_j_chunk *older = a->head->older;
        free(a->head);
        a->head = older;
    }
    sl_j_arena_init(a, a->limit_bytes);
}

static struct sl_j_chunk *add_chunk(struct sl_j_arena *a, size_t size) {
    if (size > a->limit_bytes || a->used_bytes > a->limit_bytes - size)
        return NULL;
    struct sl_j_chunk *c = malloc(size);
    if (!c) {
        a->no_memory = true;
        return NULL;
    }
    a->used_bytes += size;
    c->older = a->head;
    a->head = c;
    return c;
}

void *sl_j_arena_alloc(struct sl_j_arena *a, size_t size_bytes) {
    if (size_bytes > SIZE_MAX / 2)
        return NULL;
    size_t size = (size_bytes + 15) & ~(size_t)15;
    if (size <= (size_t)(a->end - a->next)) {
        void *p = a->next;
        a->next += size;
        return p;
    }
    if (size > a->chunk_bytes / 4) { /* a big one lives alone; the current chunk goes on */
        struct sl_j_chunk *c = add_chunk(a, sizeof *c + size);
        return c ? c + 1 : NULL;
    }
    struct sl_j_chunk *c = add_chunk(a, a->chunk_bytes);
    if (!c)
        return NULL;
    a->next = (char *)(c + 1);
    a->end = (char *)c + a->chunk_bytes;
    if (a->chunk_bytes < LAST_CHUNK)
        a->chunk_bytes *= 2;
    void *p = a->next;
    a->next += size;
    return p;
}
