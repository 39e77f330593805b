/* SentencePiece BPE ("llama"): spaces become U+2581, the whole stretch starts as one symbol per
 * character, and the adjacent pair whose text is the token of the highest score, leftmost first, is
 * merged until none is left. What is no token in the end is spelt in byte tokens. */
#include "model/tokenizer/tokenizer_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NONE        UINT32_MAX
#define MAX_SYMBOLS 0x7fffffffu

struct spm {
    const struct sl_tokenizer *t;
    bool guard; /* no guarded tokens */
    char *text; /* with spaces replaced */
    size_t len;
    /* per symbol; start[n] = len. A symbol merged away has next == itself. */
    size_t *start;
    uint32_t *next, *prev;
    uint32_t *key; /* of the pair that starts here, NONE = none */
    uint64_t *heap;
};

static uint32_t find_token(const struct spm *m, const char *s, size_t len) {
    uint32_t id = sl_strings_find(&m->t->strings, s, len);
    return m->guard && sl_tokenizer_guarded(m->t, id) ? SL_NO_TOKEN : id;
}

/* Orders scores from high to low as ascending integers below NONE. */
static uint32_t score_key(float score) {
    if (isnan(score))
        score = -INFINITY;
    score += 0.0f; /* -0 equals 0 */
    uint32_t bits;
    memcpy(&bits, &score, sizeof bits);
    uint32_t ascending = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return ~ascending;
}

static size_t symbol_end(const struct spm *m, uint32_t i) {
    return m->next[i] == NONE ? m->len : m->start[m->next[i]];
}

static uint32_t pair_key(const struct spm *m, uint32_t left) {
    uint32_t right = m->next[left];
    if (right == NONE)
        return NONE;
    size_t len = symbol_end(m, right) - m->start[left];
    if (len > m->t->max_token_bytes)
        return NONE;
    uint32_t id = find_token(m, m->text + m->start[left], len);
    return id == SL_NO_TOKEN ? NONE : score_key(m->t->scores[id]);
}

/* Length of a character by its first byte alone; what follows is not looked at (llama.cpp). */
static size_t char_len(unsigned char c) {
    return c < 0xc0 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
}

static enum sl_status merge_all(struct spm *m, uint32_t n, struct sl_encode_pace *pace) {
    size_t n_heap = 0;
    enum sl_status status = SL_OK;
    for (uint32_t i = 0; i < n && status == SL_OK; i++) {
        status = sl_encode_go_on(pace);
        m->key[i] = pair_key(m, i);
        if (m->key[i] != NONE)
            m->heap[n_heap++] = (uint64_t)m->key[i] << 32 | i;
    }
    sl_heap_build(m->heap, n_heap);
    while (n_heap && status == SL_OK) {
        status = sl_encode_go_on(pace);
        uint64_t top = sl_heap_pop(m->heap, &n_heap);
        uint32_t left = (uint32_t)top;
        /* An entry whose pair has changed since has another key, or the same key and so the same
         * place in the order: either way the current pair decides. */
        if (m->key[left] != (uint32_t)(top >> 32))
            continue;
        uint32_t right = m->next[left], after = m->next[right];
        m->key[right] = NONE;
        m->next[left] = after;
        if (after != NONE)
            m->prev[after] = left;
        uint32_t touched[2] = {left, m->prev[left]};
        for (int k = 0; k < 2; k++) {
            uint32_t i = touched[k];
            if (i == NONE)
                continue;
            m->key[i] = pair_key(m, i);
            if (m->key[i] != NONE)
                sl_heap_push(m->heap, &n_heap, (uint64_t)m->key[i] << 32 | i);
        }
    }
    return status;
}

static enum sl_status emit_all(const struct spm *m, struct sl_ids *out) {
    for (uint32_t i = 0; i != NONE; i = m->next[i]) {
        const char *s = m->text + m->start[i];
        size_t len = symbol_end(m, i) - m->start[i];
        uint32_t id = find_token(m, s, len);
        enum sl_status status = SL_OK;
        if (id != SL_NO_TOKEN)
            status = sl_ids_push(out, id);
        else {
            for (size_t k = 0; k < len && status == SL_OK; k++) {
                id = m->t->byte_token[(unsigned char)s[k]];
                if (id != SL_NO_TOKEN)
                    status = sl_ids_push(out, id);
            }
        }
        if (status != SL_OK)
            return status;
    }
    return SL_OK;
}

enum sl_status sl_spm_encode(const struct sl_tokenizer *t, const char *text, size_t len, bool space,
                             bool guard, struct sl_encode_pace *pace, struct sl_ids *out) {
    if (len == 0 && !space)
        return SL_OK;
    struct spm m = {.t = t, .guard = guard};
    enum sl_status status = SL_ERR_NOMEM;
    size_t n_spaces = space, n = 0;
    for (size_t i = 0; i < len; i++)
        n_spaces += text[i] == ' ';
    if (len > MAX_SYMBOLS / 4 || !(m.text = malloc(len + 2 * n_spaces + 1)))
        goto out;
    for (size_t i = 0; i < len + space; i++) {
        char c = space ? (i ? text[i - 1] : ' ') : text[i];
        if (c == ' ') {
            memcpy(m.text + m.len, "\xe2\x96\x81", 3);
            m.len += 3;
        } else
            m.text[m.len++] = c;
    }
    for (size_t i = 0; i < m.len; i += char_len((unsigned char)m.text[i]))
        n++;
    m.start = malloc(n * sizeof *m.start);
    m.next = malloc(n * 3 * sizeof *m.next);
    m.heap = malloc(n * 3 * sizeof *m.heap);
    if (!m.start || !m.next || !m.heap)
        goto out;
    m.prev = m.next + n;
    m.key = m.prev + n;
    size_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        m.start[i] = at;
        m.next[i] = i + 1 < n ? i + 1 : NONE;
        m.prev[i] = i ? i - 1 : NONE;
        at += char_len((unsigned char)m.text[at]);
    }
    status = merge_all(&m, (uint32_t)n, pace);
    if (status == SL_OK)
        status = emit_all(&m, out);
out:
    free(m.text);
    free(m.start);
    free(m.next);
    free(m.heap);
    return status;
}
