/* A bump allocator with a hard limit: everything a template is made of, or makes in one rendering,
 * is freed at once. One thread at a time. */
#ifndef SL_MODEL_JINJA_ARENA_H
#define SL_MODEL_JINJA_ARENA_H

#include <stdbool.h>
#include <stddef.h>

struct sl_j_chunk;

struct sl_j_arena {
    struct sl_j_chunk *head;
    char *next, *end;   /* free part of the current chunk */
    size_t used_bytes;  /* asked of malloc so far */
    size_t limit_bytes; /* used_bytes never passes it */
    size_t chunk_bytes; /* size of the next chunk */
    bool no_memory;     /* it was the machine's memory that did not suffice, not the limit */
};

void sl_j_arena_init(struct sl_j_arena *a, size_t limit_bytes);
void sl_j_arena_release(struct sl_j_arena *a);
/* 16-byte aligned, not cleared; NULL when the limit or the machine's memory does not allow it. */
void *sl_j_arena_alloc(struct sl_j_arena *a, size_t size_bytes);

#endif
