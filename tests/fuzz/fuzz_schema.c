/* JSON schemas from strangers. Up to a zero byte: the schema. It is refused with a reason, or its
 * grammar compiles and every whole text of it is JSON; the bytes behind the zero choose the text;
 * the first of them, strict and open as well.
 */
#include "tests/unit/server/fake_engine.c"

#include "model/grammar/automaton.h"
#include "model/grammar/json_schema.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct sl_tokenizer tok;
static struct sl_vocab_trie *trie;

static void follow(struct sl_automaton *a, const uint8_t *choice, size_t n) {
    char text[512];
    size_t len = 0;
    struct sl_cursor c;
    struct sl_err err = {{0}};
    if (sl_cursor_init(&c, a, &err) != SL_OK)
        return;
    for (size_t i = 0; i < sizeof text; i++) {
        const uint64_t *set;
        if (sl_cursor_mask(&c, &set, &err) != SL_OK)
            break; /* too ambiguous */
        uint32_t id = n ? choice[i % n] : 'a';
        for (uint32_t k = 0; !(set[id / 64] >> (id % 64) & 1); k++) {
            if (k > trie->n_vocab)
                abort();
            id = (id + 1) % trie->n_vocab;
        }
        enum sl_status status = sl_cursor_push_token(&c, id, &err);
        if (status == SL_ERR_INVALID)
            abort();
        if (status != SL_OK)
            break;
        if (c.ended)
            break;
        text[len++] = (char)id;
        if (sl_cursor_complete(&c)) {
            /* The limits of jansson's numbers are not ours: 16 digits and two of an exponent fit.
             */
            json_t *v = json_loadb(text, len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
            if (!v)
                abort();
            json_decref(v);
        }
    }
    sl_cursor_release(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!trie) {
        fake_tokenizer_init(&tok);
        json_object_seed(1);
        if (sl_vocab_trie_create(&tok, &trie) != SL_OK)
            abort();
    }
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    size_t len = zero ? (size_t)(zero - data) : size;
    json_t *schema = json_loadb((const char *)data, len, JSON_DECODE_ANY, NULL);
    if (!schema)
        return 0;
    struct sl_buf text = {0};
    struct sl_grammar *g = NULL;
    struct sl_automaton *a = NULL;
    struct sl_err err = {{0}};
    struct sl_schema_rules rules;
    uint32_t rule = 0;
    char start[24];
    sl_json_schema_rules_begin(&rules, &text);
    rules.strict = zero && zero + 1 < data + size && (zero[1] & 1);
    rules.open = zero && zero + 1 < data + size && (zero[1] & 2);
    enum sl_status status = sl_json_schema_rules_add(&rules, schema, schema, &rule, &err);
    snprintf(start, sizeof start, "r%u", rule);
    if (status == SL_OK)
        status = sl_grammar_parse_from(text.ptr, text.len, start, &g, &err);
    if (status != SL_OK && !err.text[0])
        abort();
    const uint32_t eog = FAKE_EOS;
    if (status == SL_OK) {
        if (sl_automaton_create(g, trie, &eog, 1, &a) != SL_OK)
            abort();
        follow(a, zero ? zero + 1 : NULL, zero ? size - len - 1 : 0);
    }
    sl_automaton_destroy(&a);
    sl_grammar_destroy(&g);
    sl_buf_release(&text);
    json_decref(schema);
    return 0;
}
