/* Special tokens in a text: an Aho-Corasick automaton finds which occur, in one pass and whatever
 * the text; only the lengths that do occur cost a further pass each. */
#include "model/tokenizer/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>

#define NO_EDGE UINT64_MAX

static inline uint32_t edge_slot(const struct sl_matcher *m, uint64_t key) {
    uint64_t h = key * 0x9e3779b97f4a7c15u;
    uint32_t i = (uint32_t)(h >> 32) & (m->n_edge_slots - 1);
    while (m->edges[i].key != key && m->edges[i].key != NO_EDGE)
        i = (i + 1) & (m->n_edge_slots - 1);
    return i;
}

/* The state after byte, 0 when there is no such edge. */
static inline uint32_t edge(const struct sl_matcher *m, uint32_t state, unsigned char byte) {
    if (state == 0)
        return m->root_next[byte];
    const struct sl_matcher_edge *e = &m->edges[edge_slot(m, (uint64_t)state << 8 | byte)];
    return e->key == NO_EDGE ? 0 : e->next;
}

static inline uint32_t step(const struct sl_matcher *m, uint32_t state, unsigned char byte) {
    for (;;) {
        uint32_t next = edge(m, state, byte);
        if (next || state == 0)
            return next;
        state = m->states[state].fail;
    }
}

/* Sets fail and output of all states, shallow ones first: a state's fail is shallower than it. */
static enum sl_status link_states(struct sl_matcher *m, const uint32_t *parent,
                                  const unsigned char *byte) {
    uint32_t *first = calloc((size_t)m->max_len + 2, sizeof *first);
    uint32_t *order = malloc(m->n_states * sizeof *order);
    if (!first || !order) {
        free(first);
        free(order);
        return SL_ERR_NOMEM;
    }
    for (uint32_t s = 0; s < m->n_states; s++)
        first[m->states[s].depth + 1]++;
    for (uint32_t d = 0; d <= m->max_len; d++)
        first[d + 1] += first[d];
    for (uint32_t s = 0; s < m->n_states; s++)
        order[first[m->states[s].depth]++] = s;
    for (uint32_t i = 1; i < m->n_states; i++) {
        uint32_t s = order[i];
        struct sl_matcher_state *status = &m->states[s];
        status->fail = status->depth == 1 ? 0 : step(m, m->states[parent[s]].fail, byte[s]);
        status->output = status->token != SL_NO_TOKEN ? s : m->states[status->fail].output;
    }
    free(first);
    free(order);
    return SL_OK;
}

enum sl_status sl_matcher_init(struct sl_matcher *m, const struct sl_strings *tokens,
                               const uint32_t *ids, uint32_t n_ids) {
    memset(m, 0, sizeof *m);
    uint64_t n_bytes = 0;
    for (uint32_t i = 0; i < n_ids; i++)
        n_bytes += sl_strings_get(tokens, ids[i]).len;
    if (n_bytes >= 1u << 29)
        return SL_ERR_NOMEM;
    uint32_t n_slots = 16;
    while (n_slots < 2 * n_bytes)
        n_slots *= 2;
    m->n_edge_slots = n_slots;
    m->edges = malloc(n_slots * sizeof *m->edges);
    m->states = calloc(n_bytes + 1, sizeof *m->states);
    uint32_t *parent = malloc((n_bytes + 1) * sizeof *parent);
    unsigned char *byte = malloc(n_bytes + 1);
    enum sl_status status = SL_ERR_NOMEM;
    if (!m->edges || !m->states || !parent || !byte)
        goto out;
    for (uint32_t i = 0; i < n_slots; i++)
        m->edges[i] = (struct sl_matcher_edge){NO_EDGE, 0};
    m->states[0].token = SL_NO_TOKEN;
    m->n_states = 1;
    for (uint32_t i = 0; i < n_ids; i++) {
        struct sl_str text = sl_strings_get(tokens, ids[i]);
        uint32_t s = 0;
        for (size_t k = 0; k < text.len; k++) {
            unsigned char c = (unsigned char)text.ptr[k];
            uint32_t next = edge(m, s, c);
            if (!next) {
                next = m->n_states++;
                m->states[next].token = SL_NO_TOKEN;
                m->states[next].depth = (uint32_t)k + 1;
                parent[next] = s;
                byte[next] = c;
                if (s == 0)
                    m->root_next[c] = next;
                else
                    m->edges[edge_slot(m, (uint64_t)s << 8 | c)] =
                        (struct sl_matcher_edge){(uint64_t)s << 8 | c, next};
            }
            s = next;
        }
        if (s && m->states[s].token == SL_NO_TOKEN)
            m->states[s].token = ids[i];
        if (text.len > m->max_len)
            m->max_len = (uint32_t)text.len;
    }
    status = link_states(m, parent, byte);
out:
    free(parent);
    free(byte);
    if (status != SL_OK)
        sl_matcher_release(m);
    return status;
}

void sl_matcher_release(struct sl_matcher *m) {
    free(m->states);
    free(m->edges);
    memset(m, 0, sizeof *m);
}

struct fragments {
    struct sl_fragment *items;
    size_t n, cap;
};

static enum sl_status add(struct fragments *f, size_t offset, size_t len, uint32_t token) {
    if (f->n == f->cap) {
        size_t cap = f->cap ? f->cap * 2 : 16;
        void *items = realloc(f->items, cap * sizeof *f->items);
        if (!items)
            return SL_ERR_NOMEM;
        f->items = items;
        f->cap = cap;
    }
    f->items[f->n++] = (struct sl_fragment){offset, len, token};
    return SL_OK;
}

/* Marks in seen[] the lengths of all tokens that occur. Nested tokens hang on one chain of outputs,
 * which is walked only as far as it is new: linear in text and automaton. */
static enum sl_status find_lengths(const struct sl_matcher *m, const char *text, size_t len,
                                   struct sl_encode_pace *pace, bool *seen, bool *any) {
    bool *visited = NULL;
    uint32_t s = 0;
    enum sl_status status = SL_OK;
    for (size_t i = 0; i < len && (status = sl_encode_go_on(pace)) == SL_OK; i++) {
        s = step(m, s, (unsigned char)text[i]);
        uint32_t o = m->states[s].output;
        if (!o)
            continue;
        if (!visited && !(visited = calloc(m->n_states, sizeof *visited)))
            return SL_ERR_NOMEM;
        for (; o && !visited[o]; o = m->states[m->states[o].fail].output) {
            visited[o] = true;
            seen[m->states[o].depth] = true;
            *any = true;
        }
    }
    free(visited);
    return status;
}

static bool is_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool may_stand(const struct sl_guard *g, uint32_t token, size_t from, size_t len) {
    if (!g || !(g->attr[token] & SL_ATTR_GUARDED))
        return true;
    size_t lo = 0, hi = g->n_own; /* the first span that ends behind `from` */
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (g->own[mid].to > from)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo < g->n_own && g->own[lo].from <= from && from + len <= g->own[lo].to;
}

/* Cuts one text fragment at the tokens of one length, leftmost first. */
static enum sl_status cut_fragment(const struct sl_matcher *m, const bool *strip_right,
                                   const struct sl_guard *guard, const char *text,
                                   struct sl_fragment f, uint32_t token_len,
                                   struct sl_encode_pace *pace, struct fragments *out) {
    size_t done = f.offset, end = f.offset + f.len;
    uint32_t s = 0;
    for (size_t i = f.offset; i < end; i++) {
        SL_TRY(sl_encode_go_on(pace));
        s = step(m, s, (unsigned char)text[i]);
        uint32_t o = m->states[s].output;
        while (o && m->states[o].depth > token_len)
            o = m->states[m->states[o].fail].output;
        if (!o || m->states[o].depth != token_len)
            continue;
        size_t start = i + 1 - token_len;
        uint32_t token = m->states[o].token;
        if (!may_stand(guard, token, start, token_len))
            continue;
        if (start > done)
            SL_TRY(add(out, done, start - done, SL_NO_TOKEN));
        SL_TRY(add(out, start, token_len, token));
        done = i + 1;
        if (strip_right && strip_right[token]) {
            while (done < end && is_space(text[done]))
                done++;
        }
        i = done - 1;
        s = 0;
    }
    return done < end ? add(out, done, end - done, SL_NO_TOKEN) : SL_OK;
}

enum sl_status sl_matcher_cut(const struct sl_matcher *m, const bool *strip_right,
                              const struct sl_guard *guard, const char *text, size_t len,
                              struct sl_encode_pace *pace, struct sl_fragment **out,
                              size_t *out_n) {
    *out = NULL;
    *out_n = 0;
    if (len == 0)
        return SL_OK;
    struct fragments now = {0}, next = {0};
    bool *seen = calloc((size_t)m->max_len + 1, sizeof *seen), any = false;
    enum sl_status status = seen ? add(&now, 0, len, SL_NO_TOKEN) : SL_ERR_NOMEM;
    if (status == SL_OK && m->n_states > 1)
        status = find_lengths(m, text, len, pace, seen, &any);
    for (uint32_t l = m->max_len; any && l > 0 && status == SL_OK; l--) {
        if (!seen[l])
            continue;
        next.n = 0;
        for (size_t i = 0; i < now.n && status == SL_OK; i++) {
            struct sl_fragment f = now.items[i];
            if ((status = sl_encode_go_on(pace)) != SL_OK)
                break;
            if (f.token != SL_NO_TOKEN || f.len < l)
                status = add(&next, f.offset, f.len, f.token);
            else
                status = cut_fragment(m, strip_right, guard, text, f, l, pace, &next);
        }
        struct fragments swap = now;
        now = next;
        next = swap;
    }
    free(seen);
    free(next.items);
    if (status != SL_OK) {
        free(now.items);
        return status;
    }
    *out = now.items;
    *out_n = now.n;
    return SL_OK;
}
