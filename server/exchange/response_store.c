#include "server/exchange/response_store.h"

#include "common/siphash.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS     1024u
#define ENTRY_BYTES 256u /* of an entry besides its texts: the struct, what malloc adds to each */

struct entry {
    struct sl_stored_response r;
    uint32_t owner;
    uint64_t bytes;
    struct entry *newer, *older; /* by their last use */
    struct entry *next;          /* in the bucket */
};

struct sl_response_store {
    uint64_t most_bytes, bytes, n;
    pthread_mutex_t lock;
    struct entry *newest, *oldest;
    struct entry *buckets[BUCKETS];
};

void sl_stored_response_release(struct sl_stored_response *r) {
    free(r->id);
    free(r->previous);
    free(r->input);
    free(r->response);
    *r = (struct sl_stored_response){0};
}

struct sl_response_store *sl_response_store_create(uint64_t most_bytes) {
    struct sl_response_store *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->most_bytes = most_bytes;
    pthread_mutex_init(&s->lock, NULL);
    return s;
}

/* Ids are ours and random, and who looks for another finds nothing: no key is needed. */
static struct entry **bucket_of(struct sl_response_store *s, const char *id) {
    const struct sl_hash128 none = {0};
    return &s->buckets[sl_siphash128(none, id, strlen(id)).lo % BUCKETS];
}

static struct entry *find(struct sl_response_store *s, uint32_t owner, const char *id) {
    for (struct entry *e = *bucket_of(s, id); e; e = e->next)
        if (e->owner == owner && strcmp(e->r.id, id) == 0)
            return e;
    return NULL;
}

static void unlink_use(struct sl_response_store *s, struct entry *e) {
    *(e->newer ? &e->newer->older : &s->newest) = e->older;
    *(e->older ? &e->older->newer : &s->oldest) = e->newer;
}

static void link_newest(struct sl_response_store *s, struct entry *e) {
    e->newer = NULL;
    e->older = s->newest;
    *(s->newest ? &s->newest->newer : &s->oldest) = e;
    s->newest = e;
}

static void drop(struct sl_response_store *s, struct entry *e) {
    struct entry **p = bucket_of(s, e->r.id);
    while (*p != e)
        p = &(*p)->next;
    *p = e->next;
    unlink_use(s, e);
    s->bytes -= e->bytes;
    s->n--;
    sl_stored_response_release(&e->r);
    free(e);
}

void sl_response_store_destroy(struct sl_response_store **p) {
    struct sl_response_store *s = *p;
    if (!s)
        return;
    while (s->oldest)
        drop(s, s->oldest);
    pthread_mutex_destroy(&s->lock);
    free(s);
    *p = NULL;
}

bool sl_response_store_takes(const struct sl_response_store *s, size_t input_bytes) {
    return input_bytes <= s->most_bytes / 2;
}

static uint64_t text_bytes(const char *text) {
    return text ? strlen(text) + 1 : 0;
}

void sl_response_store_put(struct sl_response_store *s, uint32_t owner,
                           struct sl_stored_response *r) {
    uint64_t bytes = ENTRY_BYTES + text_bytes(r->id) + text_bytes(r->previous) +
                     text_bytes(r->input) + text_bytes(r->response);
    struct entry *e = bytes <= s->most_bytes ? malloc(sizeof *e) : NULL;
    if (!e) {
        sl_stored_response_release(r);
        return;
    }
    *e = (struct entry){.r = *r, .owner = owner, .bytes = bytes};
    *r = (struct sl_stored_response){0};
    pthread_mutex_lock(&s->lock);
    while (s->bytes + bytes > s->most_bytes)
        drop(s, s->oldest);
    struct entry **bucket = bucket_of(s, e->r.id);
    e->next = *bucket;
    *bucket = e;
    link_newest(s, e);
    s->bytes += bytes;
    s->n++;
    pthread_mutex_unlock(&s->lock);
}

/* False: out of memory. */
static bool copy(const char *text, char **out) {
    *out = text ? strdup(text) : NULL;
    return *out || !text;
}

enum sl_status sl_response_store_get(struct sl_response_store *s, uint32_t owner, const char *id,
                                     struct sl_stored_response *out) {
    struct sl_stored_response r = {0};
    enum sl_status status = SL_AGAIN;
    pthread_mutex_lock(&s->lock);
    struct entry *e = find(s, owner, id);
    if (e) {
        bool ok = copy(e->r.id, &r.id) && copy(e->r.previous, &r.previous) &&
                  copy(e->r.input, &r.input) && copy(e->r.response, &r.response);
        status = ok ? SL_OK : SL_ERR_NOMEM;
        unlink_use(s, e);
        link_newest(s, e);
    }
    pthread_mutex_unlock(&s->lock);
    if (status == SL_OK)
        *out = r;
    else
        sl_stored_response_release(&r);
    return status;
}

bool sl_response_store_delete(struct sl_response_store *s, uint32_t owner, const char *id) {
    pthread_mutex_lock(&s->lock);
    struct entry *e = find(s, owner, id);
    if (e)
        drop(s, e);
    pthread_mutex_unlock(&s->lock);
    return e != NULL;
}

void sl_response_store_use(struct sl_response_store *s, uint64_t *out_n, uint64_t *out_bytes) {
    pthread_mutex_lock(&s->lock);
    *out_n = s->n;
    *out_bytes = s->bytes;
    pthread_mutex_unlock(&s->lock);
}
