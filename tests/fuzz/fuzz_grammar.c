/* Grammars from strangers. The text up to a zero byte is compiled, with a vocabulary where its
 * length is odd, and followed: the bytes behind it choose among the allowed tokens, and every set
 * of tokens is compared with trying some alone. */
#include "tests/unit/server/fake_engine.c"

#include "model/grammar/automaton.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct sl_tokenizer tok;
static struct sl_vocab_trie *trie;

static void init(void) {
    static const char *const words[] = {"ab",  "abc",      "\"a",       "\",", "}]",  "  ",
                                        "\\n", "\xc3\xa9", "x\xe4\xb8", "12",  "true"};
    fake_tokenizer_init(&tok);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        fake_word(&tok, words[i]);
    if (sl_vocab_trie_create(&tok, &trie) != SL_OK)
        abort();
}

static void follow(struct sl_automaton *a, const uint8_t *choice, size_t n) {
    struct sl_cursor c;
    struct sl_err err = {{0}};
    if (sl_cursor_init(&c, a, &err) != SL_OK)
        return;
    for (size_t i = 0; i < n && !c.ended; i++) {
        const uint64_t *set;
        enum sl_status status = sl_cursor_mask(&c, &set, &err);
        if (status != SL_OK) {
            if (!err.text[0])
                abort();
            break;
        }
        uint64_t copy[8];
        if (trie->n_words > 8)
            abort();
        memcpy(copy, set, trie->n_words * sizeof *set);
        uint32_t pick = UINT32_MAX;
        for (uint32_t k = 0; k < trie->n_vocab && pick == UINT32_MAX; k++) {
            uint32_t id = (choice[i] + k) % trie->n_vocab;
            bool said = copy[id / 64] >> (id % 64) & 1;
            if (said)
                pick = id;
            struct sl_cursor alone;
            sl_cursor_copy(&alone, &c);
            status = k % 8 ? SL_ERR_UNSUPPORTED : sl_cursor_push_token(&alone, id, NULL);
            sl_cursor_release(&alone);
            if (status != SL_ERR_UNSUPPORTED && (status == SL_OK) != said)
                abort();
        }
        if (pick == UINT32_MAX)
            abort(); /* an empty set is an error, never an answer */
        if (sl_cursor_push_token(&c, pick, NULL) == SL_ERR_INVALID)
            abort();
    }
    sl_cursor_release(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!trie)
        init();
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    size_t len = zero ? (size_t)(zero - data) : size;
    static const uint8_t usual[16] = {'a', '"', '0', ' ', '}', 200, 'x', 1};
    struct sl_grammar *g = NULL;
    struct sl_automaton *a = NULL;
    struct sl_err err = {{0}};
    const uint32_t eog = FAKE_EOS;
    const struct sl_tokenizer *named = len % 2 ? &tok : NULL;
    if (sl_grammar_parse_for(named, (const char *)data, len, "root", &g, &err) != SL_OK) {
        if (!err.text[0] || g)
            abort();
        return 0;
    }
    if (sl_automaton_create(g, trie, &eog, 1, &a) != SL_OK)
        abort();
    size_t n = zero ? size - len - 1 : sizeof usual;
    follow(a, zero ? zero + 1 : usual, n < 48 ? n : 48);
    sl_automaton_destroy(&a);
    sl_grammar_destroy(&g);
    return 0;
}
