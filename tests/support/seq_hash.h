/* A store for tests whose state depends on the order of rows and does not stand a row twice: a
 * running hash over the rows that a layer is given (engine/seq/seq_state.h). It is a recurrent
 * state in all that the engine has to do with one: every row reads what the row before it left.
 *
 * Each state says which text it is of and how long that is. A row that finds another length than
 * its position has been given a wrong snapshot, or was given twice, or out of order; that is noted
 * at once. Of which text it is must be said by who knows the texts: seq_hash_text() for each, then
 * seq_hash_end(), which finds states of texts that nobody had. */
#ifndef TESTS_SUPPORT_SEQ_HASH_H
#define TESTS_SUPPORT_SEQ_HASH_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "backends/ops/kv.h"
#include "engine/seq/seq_state.h"
#include "engine/step/step.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define SEQ_HASH_ROOM (1u << 18)

/* The first of its two parts; the second has the same again, inverted. */
struct seq_hash_state {
    uint64_t text; /* over the ids up to here */
    uint64_t rows; /* over the rows that went into the layer */
    uint64_t n;    /* positions */
};

/* A state that some row had. */
struct seq_hash_seen {
    uint64_t text, rows;
    uint32_t layer, n; /* n 0: nothing here */
    bool known;        /* its text is one that was asked for */
};

struct seq_hash {
    struct sl_seq_source source; /* first */
    pthread_mutex_t lock;
    struct seq_hash_seen *seen; /* [SEQ_HASH_ROOM] by text and layer */
    uint32_t n_layer;
    uint64_t n_rows, n_again; /* of layer 0; rows that were the last ones given before, too */
    uint32_t last_pos, last_seq;
    char wrong[160]; /* the first thing that was; empty: nothing */
};

static inline uint64_t seq_hash_mix(uint64_t h, const void *bytes, size_t n) {
    const uint8_t *b = bytes;
    for (size_t i = 0; i < n; i++)
        h = (h ^ b[i]) * UINT64_C(0x100000001b3);
    return h ^ h >> 29;
}

static inline struct seq_hash_seen *seq_hash_find(struct seq_hash *s, uint32_t layer,
                                                  uint64_t text) {
    uint32_t i = (uint32_t)((text ^ text >> 21) + layer * 0x9e3779b1u) % SEQ_HASH_ROOM;
    while (s->seen[i].n && (s->seen[i].text != text || s->seen[i].layer != layer))
        i = (i + 1) % SEQ_HASH_ROOM;
    return &s->seen[i];
}

static inline void seq_hash_row(struct seq_hash *s, const struct sl_seq_rows *r, uint32_t row) {
    const struct sl_step *step = r->step;
    uint32_t pos = (uint32_t)step->pos[row], seq = step->row_seq[row];
    struct seq_hash_state old = {.text = 14695981039346656037u, .rows = 7}, again;
    bool follows = row && step->row_seq[row - 1] == seq && (uint32_t)step->pos[row - 1] + 1 == pos;
    if (pos) {
        uint32_t page = follows ? r->slot[row - 1] / SL_KV_PAGE_TOKENS
                                : sl_page_table_get(r->pages, seq, (pos - 1) / SL_KV_PAGE_TOKENS);
        memcpy(&old, r->part[0] + page * sizeof old, sizeof old);
        memcpy(&again, r->part[1] + page * sizeof again, sizeof again);
        again = (struct seq_hash_state){~again.text, ~again.rows, ~again.n};
        if (!s->wrong[0] && (old.n != pos || memcmp(&old, &again, sizeof old) != 0))
            snprintf(s->wrong, sizeof s->wrong,
                     "layer %u, session %u: position %u goes on from a state of %llu and %llu",
                     r->layer, seq, pos, (unsigned long long)old.n, (unsigned long long)again.n);
    }
    const float *x = r->x + (size_t)row * r->n_embd;
    struct seq_hash_state now = {.text = seq_hash_mix(old.text, &step->ids[row], 4),
                                 .rows = seq_hash_mix(old.rows, x, r->n_embd * sizeof *x),
                                 .n = old.n + 1};
    uint32_t page = r->slot[row] / SL_KV_PAGE_TOKENS;
    memcpy(r->part[0] + page * sizeof now, &now, sizeof now);
    again = (struct seq_hash_state){~now.text, ~now.rows, ~now.n};
    memcpy(r->part[1] + page * sizeof again, &again, sizeof again);

    struct seq_hash_seen *seen = seq_hash_find(s, r->layer, now.text);
    if (!seen->n)
        *seen = (struct seq_hash_seen){now.text, now.rows, r->layer, (uint32_t)now.n, false};
    else if (!s->wrong[0] && seen->rows != now.rows)
        snprintf(s->wrong, sizeof s->wrong, "layer %u, position %u: the text's rows were others",
                 r->layer, pos);
}

static inline void seq_hash_update(const struct sl_seq_source *source,
                                   const struct sl_seq_rows *r) {
    struct seq_hash *s = (struct seq_hash *)(uintptr_t)source;
    pthread_mutex_lock(&s->lock);
    if (!r->layer) {
        uint32_t last = r->step->n_rows - 1;
        s->n_rows += r->step->n_rows;
        s->n_again += s->last_pos == (uint32_t)r->step->pos[last] + 1 &&
                      s->last_seq == r->step->row_seq[last];
        s->last_pos = (uint32_t)r->step->pos[last] + 1;
        s->last_seq = r->step->row_seq[last];
    }
    for (uint32_t i = 0; i < r->step->n_rows; i++)
        seq_hash_row(s, r, i);
    pthread_mutex_unlock(&s->lock);
}

static inline void seq_hash_init(struct seq_hash *s, uint32_t n_layer) {
    size_t bytes = sizeof(struct seq_hash_state);
    *s = (struct seq_hash){.source = {.store = {.name = "running hash",
                                                .n_parts = 2,
                                                .part_bytes = {bytes, bytes},
                                                .reach = 1},
                                      .update = seq_hash_update},
                           .n_layer = n_layer};
    pthread_mutex_init(&s->lock, NULL);
    s->seen = calloc(SEQ_HASH_ROOM, sizeof *s->seen);
    assert_non_null(s->seen);
}

/* These ids were a request's, the last of them perhaps not fed. `whole`: all others were, from
 * position first on, to every layer. */
static inline void seq_hash_text(struct seq_hash *s, const uint32_t *ids, uint32_t n, bool whole,
                                 uint32_t first) {
    uint64_t text = 14695981039346656037u;
    uint32_t missing = UINT32_MAX, layer = 0;
    pthread_mutex_lock(&s->lock); /* other requests may run */
    for (uint32_t i = 0; i < n; i++) {
        text = seq_hash_mix(text, &ids[i], 4);
        for (uint32_t l = 0; l < s->n_layer; l++) {
            struct seq_hash_seen *seen = seq_hash_find(s, l, text);
            if (seen->n) {
                seen->known = true;
            } else if (whole && i >= first && i + 1 < n && missing == UINT32_MAX) {
                missing = i;
                layer = l;
            }
        }
    }
    pthread_mutex_unlock(&s->lock);
    if (missing != UINT32_MAX)
        fail_msg("layer %u has never seen position %u of a text", layer, missing);
}

/* Whichever texts there were. */
static inline void seq_hash_release(struct seq_hash *s) {
    if (s->wrong[0])
        fail_msg("%s", s->wrong);
    free(s->seen);
    pthread_mutex_destroy(&s->lock);
}

/* All texts have been told. */
static inline void seq_hash_end(struct seq_hash *s) {
    for (uint32_t i = 0; i < SEQ_HASH_ROOM; i++)
        if (s->seen[i].n && !s->seen[i].known)
            fail_msg("layer %u had a state of %u positions of no text", s->seen[i].layer,
                     s->seen[i].n);
    seq_hash_release(s);
}

#endif
