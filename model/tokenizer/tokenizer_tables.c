/* The tokenizer's tables: strings by content, merge pairs, a heap, and the byte alphabet. */
#include "model/tokenizer/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* Multiply-xorshift over 8 bytes at a time. The seed keeps a file from choosing collisions. */
static uint64_t mix(uint64_t h) {
    h ^= h >> 32;
    h *= 0xd6e8feb86659fd93u;
    h ^= h >> 32;
    h *= 0xd6e8feb86659fd93u;
    h ^= h >> 32;
    return h;
}

static uint32_t hash_bytes(uint64_t seed, const char *s, size_t n) {
    uint64_t h = seed ^ (n * 0x9e3779b97f4a7c15u), w;
    for (; n >= 8; n -= 8, s += 8) {
        memcpy(&w, s, 8);
        h = mix(h ^ w);
    }
    w = 0;
    for (size_t i = 0; i < n; i++)
        w |= (uint64_t)(unsigned char)s[i] << (8 * i);
    return (uint32_t)mix(h ^ w);
}

static uint32_t power_of_two_above(uint64_t n) {
    uint32_t p = 16;
    while (p < n && p < 1u << 31)
        p *= 2;
    return p;
}

static uint64_t random_seed(void) {
    uint64_t seed;
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != (ssize_t)sizeof seed)
        seed = 0x243f6a8885a308d3u;
    return seed;
}

enum sl_status sl_strings_init(struct sl_strings *s, uint32_t n_expected) {
    memset(s, 0, sizeof *s);
    s->seed = random_seed();
    s->n_slots = power_of_two_above((uint64_t)n_expected * 2);
    s->slots = calloc(s->n_slots, sizeof *s->slots);
    return s->slots ? SL_OK : SL_ERR_NOMEM;
}

void sl_strings_release(struct sl_strings *s) {
    free(s->bytes);
    free(s->items);
    free(s->slots);
    memset(s, 0, sizeof *s);
}

static uint32_t find_slot(const struct sl_strings *s, const char *text, size_t len, uint32_t hash) {
    uint32_t i = hash & (s->n_slots - 1);
    for (; s->slots[i]; i = (i + 1) & (s->n_slots - 1)) {
        const struct sl_string *it = &s->items[s->slots[i] - 1];
        if (it->hash == hash && it->len == len && memcmp(s->bytes + it->offset, text, len) == 0)
            break;
    }
    return i;
}

static enum sl_status grow_slots(struct sl_strings *s) {
    if (s->n_slots >= 1u << 31)
        return SL_ERR_NOMEM;
    uint32_t n_slots = s->n_slots * 2;
    uint32_t *slots = calloc(n_slots, sizeof *slots);
    if (!slots)
        return SL_ERR_NOMEM;
    for (uint32_t i = 0; i < s->n_slots; i++) {
        if (!s->slots[i])
            continue;
        uint32_t j = s->items[s->slots[i] - 1].hash & (n_slots - 1);
        while (slots[j])
            j = (j + 1) & (n_slots - 1);
        slots[j] = s->slots[i];
    }
    free(s->slots);
    s->slots = slots;
    s->n_slots = n_slots;
    return SL_OK;
}

enum sl_status sl_strings_append(struct sl_strings *s, const char *text, size_t len,
                                 uint32_t *out_id) {
    if (len > UINT32_MAX || s->n >= UINT32_MAX / 4)
        return SL_ERR_NOMEM;
    if (s->n == s->cap) {
        uint32_t cap = s->cap ? s->cap * 2 : 256;
        void *items = realloc(s->items, cap * sizeof *s->items);
        if (!items)
            return SL_ERR_NOMEM;
        s->items = items;
        s->cap = cap;
    }
    if (s->cap_bytes - s->n_bytes < len) {
        size_t cap = s->cap_bytes * 2 + len + 4096;
        char *bytes = realloc(s->bytes, cap);
        if (!bytes)
            return SL_ERR_NOMEM;
        s->bytes = bytes;
        s->cap_bytes = cap;
    }
    if (s->n >= s->n_slots / 2) {
        SL_TRY(grow_slots(s));
    }
    uint32_t hash = hash_bytes(s->seed, text, len);
    uint32_t slot = find_slot(s, text, len, hash);
    s->items[s->n] = (struct sl_string){s->n_bytes, (uint32_t)len, hash};
    if (len)
        memcpy(s->bytes + s->n_bytes, text, len);
    s->n_bytes += len;
    if (!s->slots[slot])
        s->slots[slot] = s->n + 1;
    *out_id = s->n++;
    return SL_OK;
}

uint32_t sl_strings_find(const struct sl_strings *s, const char *text, size_t len) {
    uint32_t slot = s->slots[find_slot(s, text, len, hash_bytes(s->seed, text, len))];
    return slot ? slot - 1 : SL_NO_TOKEN;
}

enum sl_status sl_strings_intern(struct sl_strings *s, const char *text, size_t len,
                                 uint32_t *out_id) {
    uint32_t id = sl_strings_find(s, text, len);
    if (id == SL_NO_TOKEN)
        return sl_strings_append(s, text, len, out_id);
    *out_id = id;
    return SL_OK;
}

enum sl_status sl_pairs_init(struct sl_pairs *p, uint32_t n_expected) {
    p->seed = random_seed();
    p->n_slots = power_of_two_above((uint64_t)n_expected * 2 + 1);
    p->slots = malloc(p->n_slots * sizeof *p->slots);
    if (!p->slots)
        return SL_ERR_NOMEM;
    for (uint32_t i = 0; i < p->n_slots; i++)
        p->slots[i].key = UINT64_MAX;
    return SL_OK;
}

void sl_pairs_release(struct sl_pairs *p) {
    free(p->slots);
    memset(p, 0, sizeof *p);
}

static inline uint32_t pair_slot(const struct sl_pairs *p, uint64_t key) {
    uint32_t i = (uint32_t)mix(key ^ p->seed) & (p->n_slots - 1);
    while (p->slots[i].key != key && p->slots[i].key != UINT64_MAX)
        i = (i + 1) & (p->n_slots - 1);
    return i;
}

void sl_pairs_add(struct sl_pairs *p, uint32_t left, uint32_t right, uint32_t rank,
                  uint32_t merged) {
    uint64_t key = (uint64_t)left << 32 | right;
    struct sl_pair *e = &p->slots[pair_slot(p, key)];
    if (e->key == UINT64_MAX)
        *e = (struct sl_pair){key, rank, merged};
}

const struct sl_pair *sl_pairs_find(const struct sl_pairs *p, uint32_t left, uint32_t right) {
    const struct sl_pair *e = &p->slots[pair_slot(p, (uint64_t)left << 32 | right)];
    return e->key == UINT64_MAX ? NULL : e;
}

static void sift_down(uint64_t *heap, size_t n, size_t i) {
    uint64_t key = heap[i];
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= n)
            break;
        if (child + 1 < n && heap[child + 1] < heap[child])
            child++;
        if (key <= heap[child])
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = key;
}

void sl_heap_build(uint64_t *heap, size_t n) {
    for (size_t i = n / 2; i-- > 0;)
        sift_down(heap, n, i);
}

void sl_heap_push(uint64_t *heap, size_t *n, uint64_t key) {
    size_t i = (*n)++;
    for (; i > 0 && key < heap[(i - 1) / 2]; i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = key;
}

uint64_t sl_heap_pop(uint64_t *heap, size_t *n) {
    uint64_t top = heap[0];
    heap[0] = heap[--*n];
    if (*n)
        sift_down(heap, *n, 0);
    return top;
}

/* GPT-2's alphabet: printable Latin-1 stands for itself, the other 68 bytes follow U+0100 in
 * order. */
static bool stands_for_itself(uint32_t b) {
    return (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || (b >= 0xae && b <= 0xff);
}

uint32_t sl_byte_to_char(uint8_t byte) {
    if (stands_for_itself(byte))
        return byte;
    uint32_t cp = 0x100;
    for (uint32_t b = 0; b < byte; b++)
        cp += !stands_for_itself(b);
    return cp;
}

int sl_char_to_byte(uint32_t cp) {
    if (cp < 0x100)
        return stands_for_itself(cp) ? (int)cp : -1;
    uint32_t nth = cp - 0x100;
    for (uint32_t b = 0; b < 256; b++) {
        if (!stands_for_itself(b) && nth-- == 0)
            return (int)b;
    }
    return -1;
}

enum sl_status sl_ids_push(struct sl_ids *ids, uint32_t id) {
    if (ids->n == ids->cap) {
        size_t cap = ids->cap ? ids->cap * 2 : 64;
        uint32_t *p = realloc(ids->ids, cap * sizeof *p);
        if (!p)
            return SL_ERR_NOMEM;
        ids->ids = p;
        ids->cap = cap;
    }
    ids->ids[ids->n++] = id;
    return SL_OK;
}

void sl_ids_release(struct sl_ids *ids) {
    free(ids->ids);
    *ids = (struct sl_ids){0};
}
