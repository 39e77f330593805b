#include "model/grammar/vocab_trie.h"

#include "common/utf8.h"
#include "model/grammar/grammar.h"

#include <stdlib.h>
#include <string.h>

#define TOKEN_MAX_BYTES 1024u

/* Characters of a plain text, 0 when it is none. */
static uint32_t plain_chars(struct sl_str s) {
    uint32_t n = 0;
    for (size_t i = 0; i < s.len; n++) {
        unsigned char c = (unsigned char)s.ptr[i];
        uint32_t len = sl_utf8_len((const unsigned char *)s.ptr + i, s.len - i);
        if (len == 0 || c < 0x20 || c == '"' || c == '\\')
            return 0;
        i += len;
    }
    return n;
}

static int by_text(const void *a, const void *b, void *ctx) {
    const struct sl_vocab_trie *t = ctx;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    struct sl_str s = sl_vocab_text(t, x), u = sl_vocab_text(t, y);
    int c = memcmp(s.ptr, u.ptr, s.len < u.len ? s.len : u.len);
    if (c)
        return c;
    if (s.len != u.len)
        return s.len < u.len ? -1 : 1;
    return (x > y) - (x < y);
}

/* part->tokens [n_tokens] are its tokens; sorts them, and the nodes follow in that order. */
static bool build_part(struct sl_vocab_trie *t, struct sl_vocab_part *part) {
    uint32_t cap = 0;
    qsort_r(part->tokens, part->n_tokens, sizeof *part->tokens, by_text, t);
    struct sl_str before = {"", 0};
    for (int fill = 0; fill < 2; fill++) {
        if (fill) {
            part->nodes = malloc((cap + 1) * sizeof *part->nodes);
            if (!part->nodes)
                return false;
        }
        uint32_t at[TOKEN_MAX_BYTES + 1], n = 0; /* the open node of each depth */
        before = (struct sl_str){"", 0};
        for (uint32_t i = 0; i < part->n_tokens; i++) {
            struct sl_str s = sl_vocab_text(t, part->tokens[i]);
            size_t same = 0;
            while (same < before.len && same < s.len && before.ptr[same] == s.ptr[same])
                same++;
            for (size_t d = before.len; fill && d > same; d--)
                part->nodes[at[d]].skip = n;
            for (size_t d = same + 1; d <= s.len; d++, n++) {
                if (!fill)
                    continue;
                at[d] = n;
                /* A node on the way to its first token has none of its own: first is where the
                 * node after it starts as well. */
                part->nodes[n] = (struct sl_vocab_node){
                    .first = i, .depth = (uint16_t)d, .byte = (uint8_t)s.ptr[d - 1]};
            }
            if (s.len > t->max_depth)
                t->max_depth = (uint32_t)s.len;
            before = s;
        }
        cap = n;
        if (fill) {
            for (size_t d = before.len; d > 0; d--)
                part->nodes[at[d]].skip = n;
            part->nodes[n] = (struct sl_vocab_node){.skip = n, .first = part->n_tokens};
        }
    }
    part->n_nodes = cap;
    return true;
}

/* An answer's first token loses a leading space where the detokenizer says so. */
static bool drops_first_space(const struct sl_tokenizer *tok, const struct sl_vocab_trie *t) {
    for (uint32_t id = 0; id < t->n_vocab; id++) {
        struct sl_str s = sl_vocab_text(t, id), out;
        if (s.len < 2 || s.ptr[0] != ' ' || !plain_chars(s))
            continue;
        struct sl_detok d = {0};
        bool drops = sl_detok_push(&d, tok, id, false, &out) == SL_OK && out.len < s.len;
        sl_detok_release(&d);
        return drops;
    }
    return false;
}

struct sl_str sl_grammar_token_text(const struct sl_tokenizer *tok, uint32_t id,
                                    char buf[SL_GRAMMAR_TOKEN_BYTES]) {
    struct sl_str s = sl_tokenizer_piece(tok, id, false);
    if (s.len == 0 && sl_tokenizer_is_control(tok, id) && id <= SL_GRAMMAR_MAX_TOKEN) {
        sl_grammar_token(id, buf);
        return (struct sl_str){buf, SL_GRAMMAR_TOKEN_BYTES};
    }
    if (s.len > TOKEN_MAX_BYTES || (s.len && memchr(s.ptr, 0xff, s.len)))
        s.len = 0;
    return s;
}

static bool copy_texts(struct sl_vocab_trie *t, const struct sl_tokenizer *tok) {
    char buf[SL_GRAMMAR_TOKEN_BYTES];
    size_t total = 0;
    for (uint32_t id = 0; id < t->n_vocab; id++)
        total += sl_grammar_token_text(tok, id, buf).len;
    t->offset = calloc((size_t)t->n_vocab + 1, sizeof *t->offset);
    t->bytes = malloc(total + 1);
    if (total > UINT32_MAX || !t->offset || !t->bytes)
        return false;
    uint32_t at = 0;
    for (uint32_t id = 0; id < t->n_vocab; id++) {
        struct sl_str s = sl_grammar_token_text(tok, id, buf);
        if (s.len) {
            memcpy(t->bytes + at, s.ptr, s.len);
            at += (uint32_t)s.len;
        }
        t->offset[id + 1] = at;
    }
    return true;
}

uint64_t sl_vocab_trie_most_bytes(const struct sl_tokenizer *tok) {
    char buf[SL_GRAMMAR_TOKEN_BYTES];
    uint64_t n_vocab = sl_tokenizer_n_vocab(tok), text = 0;
    for (uint32_t id = 0; id < n_vocab; id++)
        text += sl_grammar_token_text(tok, id, buf).len;
    return sizeof(struct sl_vocab_trie) + text * (1 + sizeof(struct sl_vocab_node)) +
           2 * sizeof(struct sl_vocab_node) + (n_vocab + 1) * 3 * sizeof(uint32_t) +
           (SL_VOCAB_PLAIN_MAX * ((n_vocab + 63) / 64) + 1) * sizeof(uint64_t);
}

enum sl_status sl_vocab_trie_create(const struct sl_tokenizer *tok,
                                    struct sl_vocab_trie **out_trie) {
    struct sl_vocab_trie *t = calloc(1, sizeof *t);
    if (!t)
        return SL_ERR_NOMEM;
    t->n_vocab = sl_tokenizer_n_vocab(tok);
    t->n_words = (t->n_vocab + 63) / 64;
    t->plain_upto = calloc((size_t)SL_VOCAB_PLAIN_MAX * t->n_words + 1, sizeof *t->plain_upto);
    t->plain.tokens = malloc(((size_t)t->n_vocab + 1) * sizeof(uint32_t));
    t->rest.tokens = malloc(((size_t)t->n_vocab + 1) * sizeof(uint32_t));
    if (!t->plain_upto || !t->plain.tokens || !t->rest.tokens || !copy_texts(t, tok))
        goto fail;
    t->drops_first_space = drops_first_space(tok, t);
    for (uint32_t id = 0; id < t->n_vocab; id++) {
        struct sl_str s = sl_vocab_text(t, id);
        uint32_t n = plain_chars(s);
        struct sl_vocab_part *part = n && n <= SL_VOCAB_PLAIN_MAX ? &t->plain : &t->rest;
        if (s.len == 0)
            continue;
        part->tokens[part->n_tokens++] = id;
        for (uint32_t k = n; part == &t->plain && k <= SL_VOCAB_PLAIN_MAX; k++)
            t->plain_upto[(size_t)(k - 1) * t->n_words + id / 64] |= 1ull << (id % 64);
    }
    if (!build_part(t, &t->plain) || !build_part(t, &t->rest))
        goto fail;
    *out_trie = t;
    return SL_OK;
fail:
    sl_vocab_trie_destroy(&t);
    return SL_ERR_NOMEM;
}

void sl_vocab_trie_destroy(struct sl_vocab_trie **p) {
    struct sl_vocab_trie *t = *p;
    if (!t)
        return;
    free(t->plain.nodes);
    free(t->plain.tokens);
    free(t->rest.nodes);
    free(t->rest.tokens);
    free(t->plain_upto);
    free(t->bytes);
    free(t->offset);
    free(t);
    *p = NULL;
}
