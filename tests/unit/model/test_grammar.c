/* Grammars: what they take and refuse, what of their text is refused, and that the sets of allowed
 * tokens are those that trying every token gives. */
#include "tests/support/vocab.h"

#include "common/utf8.h"
#include "model/grammar/automaton.h"

static const struct sl_tokenizer *vocabulary; /* of grammars that name tokens */

static struct sl_grammar *compile(const char *text) {
    struct sl_grammar *g = NULL;
    struct sl_err err = {""};
    if (sl_grammar_parse_for(vocabulary, text, strlen(text), "root", &g, &err) != SL_OK)
        fail_msg("%s\n%s", err.text, text);
    return g;
}

static bool matches_n(const char *grammar, const char *text, size_t len) {
    struct sl_grammar *g = compile(grammar);
    struct sl_automaton *a;
    struct sl_cursor c;
    assert_int_equal(sl_automaton_create(g, NULL, NULL, 0, &a), SL_OK);
    assert_int_equal(sl_cursor_init(&c, a, NULL), SL_OK);
    bool ok = sl_cursor_push_bytes(&c, text, len, NULL) == SL_OK && sl_cursor_complete(&c);
    sl_cursor_release(&c);
    sl_automaton_destroy(&a);
    sl_grammar_destroy(&g);
    return ok;
}
static bool matches(const char *grammar, const char *text) {
    return matches_n(grammar, text, strlen(text));
}

static void test_takes(void **state) {
    (void)state;
    static const struct {
        const char *grammar, *yes[6], *no[6];
    } cases[] = {
        {"root ::= \"abc\"", {"abc"}, {"", "ab", "abcd", "abd"}},
        {"root ::= \"a\" | \"b\" \"c\" |", {"a", "bc", ""}, {"b", "c", "abc"}},
        {"root ::= (\"a\" | \"b\")+ # comment\n \"c\"?", {"a", "bab", "abc"}, {"", "c", "acc"}},
        {"root ::= [a-c]{2,3} [^a-c]", {"abz", "abc!", "aa\xc3\xa9"}, {"az", "abca", "aaaaz"}},
        {"root ::= [0-9]{3}", {"123"}, {"12", "1234"}},
        {"root ::= [0-9]{2,}", {"12", "12345"}, {"1"}},
        {"root ::= [0-9]{,2} \"x\"", {"x", "1x", "12x"}, {"123x"}},
        {"root ::= [0-9]{0} \"x\"", {"x"}, {"1x"}},
        {"root ::= (\"ab\" [0-9] | \"verylongliteral\" \"more\"){2}",
         {"ab1ab2", "ab1verylongliteralmore"},
         {"ab1", "ab1ab2ab3"}},
        {"root ::= \"\\x41\\u00e9\\U0001F600\\n\\t\\\\\\\"\"",
         {"A\xc3\xa9\xf0\x9f\x98\x80\n\t\\\""},
         {"A"}},
        {"root ::= .{2}",
         {"ab", "\xe4\xb8\xad\n", "\xf0\x9f\x98\x80x"},
         {"a", "\xff\xff", "\xed\xa0\x80x", "\xc0\x80x"}},
        {"root ::= [\xc3\xa9-\xc3\xaf\xe4\xb8\x80-\xe9\xbf\xbf]",
         {"\xc3\xa9", "\xc3\xaf", "\xe4\xb8\x80", "\xe9\xbf\xbf", "\xe5\x80\x80"},
         {"\xc3\xa8", "\xc3\xb0", "\xe3\xbf\xbf", "\xea\x80\x80"}},
        {"root ::= [^\\U00010000-\\U0010FFFF]",
         {"a", "\xef\xbf\xbf"},
         {"\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}},
        {"root ::= [\\]\\-x-]", {"]", "-", "x"}, {"\\", "y"}},
        {"root ::= \"(\" root \")\" | \"\"", {"", "()", "((()))"}, {"(", "())", ")("}},
        {"root ::= e\ne ::= t (\"+\" t)*\nt ::= [0-9] | \"(\" e \")\"",
         {"1", "1+2", "((1+2)+3)"},
         {"1+", "(1", "()"}},
        {"root ::= \"x\" root | \"x\"", {"x", "xxxxxxxxxxxxxxx"}, {"", "xy"}},
        {"root ::= ((\"a\"?)*)* \"b\"", {"b", "aab"}, {"a"}},
        {"root ::= n n \"x\"\nn ::= | \"y\" n", {"x", "yyyx"}, {"y"}},
        {"root ::= \"a\" dead | \"b\"\ndead ::= \"x\" dead", {"b"}, {"a", "ax"}},
        {"root ::=\n  \"a\"\n  | \"b\"\nother ::= root", {"a", "b"}, {"ab"}},
        {"root-1 ::= \"a\" root ::= root-1+", {"aa"}, {""}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (size_t k = 0; k < 6 && cases[i].yes[k]; k++)
            if (!matches(cases[i].grammar, cases[i].yes[k]))
                fail_msg("'%s' should take '%s'", cases[i].grammar, cases[i].yes[k]);
        for (size_t k = 0; k < 6 && cases[i].no[k]; k++)
            if (matches(cases[i].grammar, cases[i].no[k]))
                fail_msg("'%s' should refuse '%s'", cases[i].grammar, cases[i].no[k]);
    }
    assert_true(matches_n("root ::= \"\\x00\" .", "\0\0", 2));
}

static void test_refuses(void **state) {
    (void)state;
    static const struct {
        const char *grammar, *word;
    } cases[] = {
        {"", "root"},
        {"a ::= \"x\"", "root"},
        {"root ::= b", "'b' is used"},
        {"root ::= \"a", "closing"},
        {"root ::= [a", "text ends"},
        {"root ::= [z-a]", "before it begins"},
        {"root ::= []", "matches nothing"},
        {"root ::= [\\ud800]", "not a character"},
        {"root ::= \"\\q\"", "escape"},
        {"root ::= (\"a\"", "')'"},
        {"root ::= \"a\")", "goes on"},
        {"root ::= \"a\"{3,2}", "at least"},
        {"root ::= \"a\"{99999}", "at most"},
        {"root ::= \"a\"{x}", "number"},
        {"root ::= * \"a\"", "expected"},
        {"root ::= \"a\" $", "'$'"},
        {"root ::= \"a\"\n\nroot ::= \"b\"", "line 3"},
        {"root = \"a\"", "::="},
        {"root ::= \"a\" root", "never ends"},
        {"root ::= root \"a\" | \"b\"", "left-recursive"},
        {"root ::= n root \"a\" | \"b\"\nn ::= \"x\"?", "left-recursive"},
        {"root ::= a | \"x\"\na ::= b\nb ::= \"\" a | \"y\"", "left-recursive"},
        {"root ::= ([a-z]{20000}){20} [a-z]{20000} [a-z]{20000} [a-z]{20000} [a-z]{20000} "
         "[a-z]{20000} [a-z]{20000} [a-z]{20000} [a-z]{20000} [a-z]{20000} [a-z]{20000}",
         "nodes"},
        {"root ::= \"\xff\"", "UTF-8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sl_grammar *g = NULL;
        struct sl_err err = {""};
        enum sl_status status =
            sl_grammar_parse(cases[i].grammar, strlen(cases[i].grammar), &g, &err);
        if (status != SL_ERR_INVALID || g || !strstr(err.text, cases[i].word))
            fail_msg("'%.60s': %d '%s', wanted '%s'", cases[i].grammar, status, err.text,
                     cases[i].word);
    }
    char deep[512] = "root ::= ";
    for (int i = 0; i < 200; i++)
        strcat(deep, "(");
    struct sl_grammar *g = NULL;
    struct sl_err err = {""};
    assert_int_equal(sl_grammar_parse(deep, strlen(deep), &g, &err), SL_ERR_INVALID);
    assert_non_null(strstr(err.text, "deep"));
}

/* Many ways at once: an error, soon, and not a crash. */
static void test_ambiguous(void **state) {
    (void)state;
    struct sl_grammar *g = compile("root ::= (a | a a | a a a)* \"!\"\na ::= \"x\" (a | b)? a?\n"
                                   "b ::= \"x\" a b? a");
    struct sl_automaton *a;
    struct sl_cursor c;
    struct sl_err err = {""};
    assert_int_equal(sl_automaton_create(g, NULL, NULL, 0, &a), SL_OK);
    assert_int_equal(sl_cursor_init(&c, a, NULL), SL_OK);
    enum sl_status status = SL_OK;
    for (int i = 0; i < 3000 && status == SL_OK; i++)
        status = sl_cursor_push_bytes(&c, "x", 1, &err);
    assert_int_equal(status, SL_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "ambiguous"));
    sl_cursor_release(&c);
    sl_automaton_destroy(&a);
    sl_grammar_destroy(&g);
}

/* Deep nesting and long texts outlive what there is room for; other cursors stay where they are. */
static void test_forgets(void **state) {
    (void)state;
    struct sl_grammar *g = compile("root ::= v\nv ::= \"[\" (v (\",\" v)*)? \"]\" | [a-z]{1,12}");
    struct sl_automaton *a;
    struct sl_cursor c, first, middle;
    enum { DEEP = 20000 };
    assert_int_equal(sl_automaton_create(g, NULL, NULL, 0, &a), SL_OK);
    assert_int_equal(sl_cursor_init(&first, a, NULL), SL_OK);
    sl_cursor_copy(&c, &first);
    for (int i = 0; i < DEEP; i++) {
        assert_int_equal(sl_cursor_push_bytes(&c, "[abc,", 5, NULL), SL_OK);
        if (i == DEEP / 2)
            sl_cursor_copy(&middle, &c);
    }
    assert_int_equal(sl_cursor_push_bytes(&c, "x", 1, NULL), SL_OK);
    for (int i = 0; i < DEEP; i++) {
        assert_false(sl_cursor_complete(&c));
        assert_int_equal(sl_cursor_push_bytes(&c, "]", 1, NULL), SL_OK);
    }
    assert_true(sl_cursor_complete(&c));
    assert_int_equal(sl_cursor_push_bytes(&c, "]", 1, NULL), SL_ERR_INVALID);
    assert_int_equal(sl_cursor_push_bytes(&middle, "y", 1, NULL), SL_OK);
    for (int i = 0; i <= DEEP / 2; i++)
        assert_int_equal(sl_cursor_push_bytes(&middle, "]", 1, NULL), SL_OK);
    assert_true(sl_cursor_complete(&middle));
    assert_int_equal(sl_cursor_push_bytes(&first, "abc", 3, NULL), SL_OK);
    assert_true(sl_cursor_complete(&first));
    sl_cursor_release(&c);
    sl_cursor_release(&first);
    sl_cursor_release(&middle);
    sl_automaton_destroy(&a);
    sl_grammar_destroy(&g);
}

/* ---- sets of tokens ---- */

static const char *const words[] = {
    "a",
    "b",
    "ab",
    "abc",
    "hello",
    " hello",
    " ",
    "  ",
    "\"",
    "\",",
    "\"}",
    "a\"",
    "\\",
    "\\n",
    "\\u",
    "\\\"",
    "{",
    "{\"",
    "}",
    "}}",
    "[",
    "]",
    "],",
    ",",
    ", ",
    ":",
    ": ",
    "1",
    "12",
    "123456",
    "-",
    "0.",
    ".5",
    "e",
    "true",
    "false",
    "nu",
    "ll",
    "null",
    "\n",
    "\n  ",
    "\t",
    "\xc3",
    "\xa9",
    "\xc3\xa9",
    "\xe4\xb8",
    "\xad",
    "\xe4\xb8\xad",
    "\xf0\x9f",
    "\x98\x80",
    "x\xc3",
    "\xa9y",
    "\xe4\xb8\xad\xe6\x96\x87",
    "abcdefghijklmnop",
    "abcdefghijklmnopqrstuvwxyzabcdefghijklmnop",
    "\x7f",
    "\x01",
    "name",
    "\"name\"",
    "age",
    "zzzzzzzzzzzz",
    "hell",
    "o",
    "hello world and more",
};
enum { N_WORDS = sizeof words / sizeof *words };

static struct sl_tokenizer *make_tokenizer(bool spm) {
    static struct vocab v; /* large */
    if (spm) {
        start_spm(&v);
    } else {
        start_bpe(&v, "gpt-2");
        add(&v, "<|end|>", CONTROL); /* 256 */
        merge(&v, "q u");
    }
    for (uint32_t i = 0; i < N_WORDS; i++) {
        char text[256] = "";
        size_t n = 0;
        for (const char *s = words[i]; *s; s++) {
            if (!spm)
                n += alphabet((unsigned char)*s, text + n);
            else if (*s == ' ')
                n += (size_t)sprintf(text + n, "%s", SPACE);
            else
                text[n++] = *s;
        }
        if (spm && sl_utf8_valid_prefix(words[i], strlen(words[i])) != strlen(words[i]))
            continue;
        add_n(&v, text, n, NORMAL);
    }
    return finish(&v);
}

/* The set against every token tried alone; then a token of it at random, until the end. */
static void check_sets(const char *grammar, const struct sl_vocab_trie *t, uint32_t eog,
                       uint32_t n_steps, unsigned seed) {
    struct sl_grammar *g = compile(grammar);
    struct sl_automaton *a;
    struct sl_cursor c;
    struct sl_err err = {""};
    assert_int_equal(sl_automaton_create(g, t, &eog, 1, &a), SL_OK);
    assert_int_equal(sl_cursor_init(&c, a, NULL), SL_OK);
    char text[4096] = "";
    for (uint32_t step = 0; step < n_steps && !c.ended; step++) {
        const uint64_t *set;
        enum sl_status status = sl_cursor_mask(&c, &set, &err);
        if (status != SL_OK)
            fail_msg("%s after '%s': %s", grammar, text, err.text);
        uint64_t copy[16];
        assert_true(t->n_words <= 16);
        memcpy(copy, set, t->n_words * sizeof *set);
        uint32_t allowed[1024], n = 0;
        for (uint32_t id = 0; id < t->n_vocab; id++) {
            struct sl_cursor alone;
            sl_cursor_copy(&alone, &c);
            bool can = sl_cursor_push_token(&alone, id, &err) == SL_OK;
            bool said = copy[id / 64] >> (id % 64) & 1;
            if (can != said)
                fail_msg("%s after '%s': token %u '%.*s' is %s and the set says %s", grammar, text,
                         id, (int)sl_vocab_text(t, id).len, sl_vocab_text(t, id).ptr,
                         can ? "allowed" : "forbidden", said ? "allowed" : "forbidden");
            sl_cursor_release(&alone);
            if (can)
                allowed[n++] = id;
        }
        seed = seed * 1103515245u + 12345u;
        uint32_t pick = allowed[(seed >> 8) % n];
        assert_int_equal(sl_cursor_push_token(&c, pick, &err), SL_OK);
        if (strlen(text) < 4000)
            strncat(text, sl_vocab_text(t, pick).ptr, sl_vocab_text(t, pick).len);
    }
    sl_cursor_release(&c);
    sl_automaton_destroy(&a);
    sl_grammar_destroy(&g);
}

static void test_sets(void **state) {
    (void)state;
    static const char *const grammars[] = {
        "root ::= .*",
        "root ::= \"hello world and more\"",
        "root ::= \"hello\" | \" hello\" | [a-z]{1,5} \"\xc3\xa9\"*",
        "root ::= s\ns ::= \"\\\"\" ([^\"\\\\\\x00-\\x1f] | \"\\\\\" [\"\\\\nt])* \"\\\"\"",
        "root ::= s\ns ::= \"\\\"\" ([^\"\\\\\\x00-\\x1f] | \"\\\\\" [\"\\\\nt]){2,9} \"\\\"\"",
        "root ::= \"\\\"\" [^\"\\\\\\x00-\\x1f]{40} [^\"\\\\\\x00-\\x1f]{0,3} \"a\"? [0-9]* "
        "\"\\\"\"",
        "root ::= ([^\"\\\\\\x00-\\x1f]{0,6} (\"ab\" | [^\"\\\\\\x00-\\x1f]{3}))+ \"\\\"\"",
        "root ::= [^\"\\\\\\x00-\\x1f]{0,3} x \"!\"\nx ::= [a-f]{2} | x2 | \"\"\nx2 ::= \"{\" x "
        "\"}\"",
        "root ::= v\nv ::= \"{\" ws (m (\",\" ws m)*)? \"}\" | \"[\" (v (\",\" ws v)*)? \"]\" | s "
        "| n | "
        "\"true\" | \"false\" | \"null\"\nm ::= s \":\" ws v\nws ::= | \" \" | \"\\n\" [ "
        "\\t]{0,8}\n"
        "s ::= \"\\\"\" ([^\"\\\\\\x00-\\x1f] | \"\\\\\" ([\"\\\\/bfnrt] | \"u\" [0-9a-f]{4}))* "
        "\"\\\"\"\nn ::= \"-\"? (\"0\" | [1-9] [0-9]{0,15}) (\".\" [0-9]{1,15})?",
        "root ::= !<[300]>* <[300]>",
        "root ::= \"a\" (!<[97]> | [b-z]){3} x\nx ::= !<[260]> x | !<[261]> \"!\"",
        "root ::= ([^\"\\\\\\x00-\\x1f]{0,6} | !<[270]>) (!<[97]>{2} | [a-z]*) \"\\\"\"",
    };
    for (int spm = 0; spm < 2; spm++) {
        struct sl_tokenizer *tok = make_tokenizer(spm);
        struct sl_vocab_trie *t;
        assert_int_equal(sl_vocab_trie_create(tok, &t), SL_OK);
        assert_int_equal(t->drops_first_space, spm);
        vocabulary = tok;
        for (size_t i = 0; i < sizeof grammars / sizeof *grammars; i++)
            for (unsigned seed = 0; seed < 6; seed++)
                check_sets(grammars[i], t, spm ? 2 : 256, 40, seed);
        vocabulary = NULL;
        sl_vocab_trie_destroy(&t);
        sl_tokenizer_destroy(&tok);
    }
}

/* The ids of texts, each one token. */
static uint32_t id_of(const struct sl_tokenizer *tok, const char *text) {
    uint32_t id = sl_tokenizer_find(tok, text, strlen(text));
    assert_int_not_equal(id, SL_NO_TOKEN);
    return id;
}

/* Tokens by their text and number, and any but one. */
static void test_tokens(void **state) {
    (void)state;
    struct sl_tokenizer *tok = make_tokenizer(false);
    struct sl_vocab_trie *t;
    assert_int_equal(sl_vocab_trie_create(tok, &t), SL_OK);
    uint32_t a = id_of(tok, "a"), b = id_of(tok, "b"), c = id_of(tok, "c"), end = 256;
    char numbered[128], not_b[128];
    snprintf(numbered, sizeof numbered, "root ::= <[%u]> !<[%u]>* <|end|> <[%u]>", a, end, b);
    snprintf(not_b, sizeof not_b, "root ::= (!<[%u]>){2} \"b\"", b);
    const struct {
        const char *grammar;
        uint32_t yes[6], no[6]; /* ids and a 0 */
    } cases[] = {
        {"root ::= <|end|> \"a\"", {end, a}, {a}},
        {"root ::= !<|end|>* <|end|>", {a, b, end}, {end, end}},
        {"root ::= !<|end|>{2}", {a, a}, {a, a, a}},
        {numbered, {a, c, a, end, b}, {a, end, c}},
        {not_b, {a, c, b}, {a, b}},
        {not_b, {end, c, b}, {a, c, c}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sl_automaton *au;
        vocabulary = tok;
        struct sl_grammar *g = compile(cases[i].grammar);
        vocabulary = NULL;
        assert_int_equal(sl_automaton_create(g, t, NULL, 0, &au), SL_OK);
        for (int want = 1; want >= 0; want--) {
            const uint32_t *ids = want ? cases[i].yes : cases[i].no;
            struct sl_cursor at;
            bool ok = true;
            assert_int_equal(sl_cursor_init(&at, au, NULL), SL_OK);
            for (; *ids && ok; ids++)
                ok = sl_cursor_push_token(&at, *ids, NULL) == SL_OK;
            if ((ok && sl_cursor_complete(&at)) != (bool)want)
                fail_msg("%s: %s", cases[i].grammar, want ? "refused" : "taken");
            sl_cursor_release(&at);
        }
        sl_automaton_destroy(&au);
        sl_grammar_destroy(&g);
    }
    static const char *const bad[] = {
        "root ::= <nothing>",   "root ::= !<nothing>", "root ::= !a", "root ::= <[999999]>",
        "root ::= !<[999999]>", "root ::= <|end|",     "root ::= !",  "root ::= <"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct sl_grammar *g = NULL;
        struct sl_err err = {""};
        assert_int_equal(sl_grammar_parse_for(tok, bad[i], strlen(bad[i]), "root", &g, &err),
                         SL_ERR_INVALID);
        assert_non_null(strstr(err.text, "line 1"));
    }
    sl_vocab_trie_destroy(&t);
    sl_tokenizer_destroy(&tok);
}

/* Each token's set is worked out within a call's bound, but all together would hold up others: the
 * answer fails, and not before it has taken what it may. */
static void test_debt(void **state) {
    (void)state;
    char text[512] = "root ::= x{0,75} x{0,75} \"!\"\nx ::= \"a\"";
    for (char c = 'b'; c <= 'z'; c++)
        sprintf(text + strlen(text), " | \"%c\"", c);
    struct sl_tokenizer *tok = make_tokenizer(false);
    struct sl_vocab_trie *t;
    assert_int_equal(sl_vocab_trie_create(tok, &t), SL_OK);
    struct sl_grammar *g = compile(text);
    struct sl_automaton *a;
    struct sl_cursor c;
    struct sl_err err = {""};
    uint32_t eog = 256, n = 0;
    assert_int_equal(sl_automaton_create(g, t, &eog, 1, &a), SL_OK);
    assert_int_equal(sl_cursor_init(&c, a, NULL), SL_OK);
    enum sl_status status = SL_OK;
    const uint64_t *set;
    for (; n < 150 && status == SL_OK; n++) {
        status = sl_cursor_mask(&c, &set, &err);
        if (status == SL_OK)
            status = sl_cursor_push_bytes(&c, "a", 1, &err);
    }
    assert_int_equal(status, SL_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "ambiguous"));
    assert_in_range(n, 20, 149);
    sl_cursor_release(&c);
    sl_automaton_destroy(&a);
    sl_grammar_destroy(&g);
    sl_vocab_trie_destroy(&t);
    sl_tokenizer_destroy(&tok);
}

static void test_apply(void **state) {
    (void)state;
    uint64_t seed = 99;
    for (uint32_t n = 1; n < 200; n++) {
        uint64_t set[4] = {0};
        float logits[256];
        uint32_t n_vocab = n > 70 ? n - 70 : n; /* a model may have more logits than tokens */
        for (uint32_t i = 0; i < n_vocab; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            if (seed >> 60 < (i / 64) * 7) /* words that are empty, mixed, nearly full */
                set[i / 64] |= 1ull << (i % 64);
        }
        for (uint32_t i = 0; i < 256; i++)
            logits[i] = (float)i;
        sl_token_set_apply(set, n_vocab, logits, n);
        for (uint32_t i = 0; i < 256; i++) {
            bool in = i >= n || (i < n_vocab && (set[i / 64] >> (i % 64) & 1));
            assert_true(in ? logits[i] == (float)i : logits[i] < -1e38f);
        }
    }
}

/* A text that fits the automaton's memory alone fits it too when another was followed before. */
static void test_what_ran_before(void **state) {
    (void)state;
    struct sl_grammar *g = compile("root ::= \"x\" ([ab]?){1000} | \"y\" ([cd]?){1000}");
    struct sl_automaton *a;
    char first[140], second[256];
    memset(first, 'a', sizeof first);
    memset(second, 'c', sizeof second);
    first[0] = 'x';
    second[0] = 'y';
    for (int before = 0; before < 2; before++) {
        struct sl_cursor c;
        assert_int_equal(sl_automaton_create(g, NULL, NULL, 0, &a), SL_OK);
        if (before) {
            assert_int_equal(sl_cursor_init(&c, a, NULL), SL_OK);
            assert_int_equal(sl_cursor_push_bytes(&c, first, sizeof first, NULL), SL_OK);
            sl_cursor_release(&c);
        }
        assert_int_equal(sl_cursor_init(&c, a, NULL), SL_OK);
        assert_int_equal(sl_cursor_push_bytes(&c, second, sizeof second, NULL), SL_OK);
        sl_cursor_release(&c);
        sl_automaton_destroy(&a);
    }
    sl_grammar_destroy(&g);
}

/* Control tokens in a grammar: taken by number, and by nothing that is text. */
static void test_control_tokens(void **state) {
    (void)state;
    char token[SL_GRAMMAR_TOKEN_BYTES], other[SL_GRAMMAR_TOKEN_BYTES];
    sl_grammar_token(1234, token);
    sl_grammar_token(1235, other);
    assert_true(matches_n("root ::= <[1234]>", token, sizeof token));
    assert_false(matches_n("root ::= <[1234]>", other, sizeof other));
    assert_false(matches_n("root ::= .*", token, sizeof token));
    assert_false(matches_n("root ::= [^a]*", token, sizeof token));
    assert_false(matches("root ::= <[1234]>", "<[1234]>"));
    static const char *const bad[] = {"root ::= <1234>", "root ::= <[]>", "root ::= <[12]",
                                      "root ::= <[-1]>", "root ::= <[9999999999]>"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct sl_grammar *g = NULL;
        struct sl_err err = {""};
        assert_int_equal(sl_grammar_parse(bad[i], strlen(bad[i]), &g, &err), SL_ERR_INVALID);
        assert_non_null(strstr(err.text, "line 1"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_ran_before), cmocka_unit_test(test_control_tokens),
        cmocka_unit_test(test_tokens),          cmocka_unit_test(test_takes),
        cmocka_unit_test(test_refuses),         cmocka_unit_test(test_ambiguous),
        cmocka_unit_test(test_forgets),         cmocka_unit_test(test_sets),
        cmocka_unit_test(test_apply),           cmocka_unit_test(test_debt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
