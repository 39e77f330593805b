/* Pre-splitting by name. tests/peer/tokenizer_splits.py compares far more text with an oracle. */
#include "model/tokenizer/pretokenize.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct joined {
    char *text;
    size_t len, n_words;
};
static enum sl_status join(void *user, const char *word, size_t len) {
    struct joined *j = user;
    assert_true(len > 0);
    memcpy(j->text + j->len, word, len);
    j->len += len;
    j->n_words++;
    return SL_OK;
}

/* Every known name compiles here, and its words make up the text again. */
static void test_pretokenize_all(void **state) {
    (void)state;
    static const char text[] = "It's WE'LL 1234567 don't\n\n  \t x  \xc2\xb2\xe2\x85\xa7 "
                               "\xd9\xa3\xd9\xa4 e\xcc\x81\xe4\xb8\xad"
                               "\xe6\x96\x87\xe3\x80\x82\xe3\x81\x82 \xf0\x9f\x98\x80!? "
                               "<|x|>\r\n\xe1\xa0\x8e \xe3\x80\x80 end ";
    static char copy[sizeof text];
    size_t len;
    uint32_t n = 0;
    for (const char *name; (name = sl_pretok_name_at(n, &len)); n++) {
        struct sl_pretok *p = NULL;
        struct sl_err err = {""};
        if (sl_pretok_create(name, len, &p, &err) != SL_OK)
            fail_msg("%s", err.text);
        struct joined j = {.text = copy};
        assert_int_equal(sl_pretok_split(p, text, sizeof text - 1, join, &j), SL_OK);
        assert_int_equal(j.len, sizeof text - 1);
        assert_memory_equal(copy, text, sizeof text - 1);
        assert_true(sl_pretok_traits(p)->raw ? j.n_words == 5 : j.n_words > 8); /* lines alone */
        sl_pretok_destroy(&p);
    }
    assert_true(n > 60);
}

struct words {
    char text[256];
};
static enum sl_status list(void *user, const char *word, size_t len) {
    struct words *w = user;
    size_t n = strlen(w->text);
    snprintf(w->text + n, sizeof w->text - n, "[%.*s]", (int)len, word);
    return SL_OK;
}

static void test_pretokenize_words(void **state) {
    (void)state;
    static const struct {
        const char *name, *text, *words;
    } cases[] = {
        {"gpt-2", "Hello world's  x 123!", "[Hello][ world]['s][ ][ x][ 123][!]"},
        {"gpt-2", "it'S", "[it]['][S]"},
        {"llama-bpe", "it'S 12345", "[it]['S][ ][123][45]"},
        {"qwen2", "a 123\n\n b", "[a][ ][1][2][3][\n\n][ b]"},
        {"qwen2", "e\xcc\x81t", "[e][\xcc\x81t]"},
        {"qwen35", "e\xcc\x81t", "[e\xcc\x81t]"},
        {"gpt-4o", "HTTPServer's camelCase", "[HTTPServer's][ camel][Case]"},
        {"tekken", "fooBar's", "[foo][Bar]['s]"},
        {"kimi-k2",
         "abc\xe4\xb8\xad\xe6\x96\x87"
         "def",
         "[abc][\xe4\xb8\xad\xe6\x96\x87][def]"},
        {"gpt-4o",
         "abc\xe4\xb8\xad\xe6\x96\x87"
         "def",
         "[abc\xe4\xb8\xad\xe6\x96\x87"
         "def]"},
        {"deepseek-v3", "x1234 #if", "[x][123][4][ #][if]"},
        {"deepseek-llm", "a  \nb12", "[a][  ][\n][b][12]"},
        {"deepseek-coder", "a12", "[a][1][2]"},
        {"afmoe", "1234567", "[1][234][567]"},
        {"tiny_aya", "1234567 1234x", "[1][234][567][ ][123][4][x]"},
        {"superbpe", "ab12345", "[ab][12][345]"},
        {"falcon", "12345", "[123][45]"},
        /* U+180E is no white space: it binds to the punctuation after it */
        {"qwen2", "a \xe1\xa0\x8e!", "[a][ \xe1\xa0\x8e!]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sl_pretok *p;
        struct sl_err err;
        struct words w = {""};
        assert_int_equal(sl_pretok_create(cases[i].name, strlen(cases[i].name), &p, &err), SL_OK);
        assert_int_equal(sl_pretok_split(p, cases[i].text, strlen(cases[i].text), list, &w), SL_OK);
        if (strcmp(w.text, cases[i].words) != 0)
            fail_msg("%s: '%s' is cut as %s, not %s", cases[i].name, cases[i].text, w.text,
                     cases[i].words);
        sl_pretok_destroy(&p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pretokenize_all),
        cmocka_unit_test(test_pretokenize_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
