/* What may be named, what a list may say, and which files are meant. */
#include "pull/source.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define HASH "0123456789abcdef0123456789abcdef0123456789abcdef0123456789ABCDEF"

static void sources(void **state) {
    static const char *const good[] = {
        "a/b",
        "hf:A.b/c-d_e",
        "a/b:Q4_K_M",
        "a/b:x/y/M,(1).gguf",
        "https://h/x.gguf?a=/../b",
        "http://127.0.0.1:8000/a/b%2Ec.gguf",
    };
    static const char *const bad[] = {
        "",
        "a",
        "a/",
        "/b",
        "a/b/c",
        "a/b:",
        "a/b:.",
        "a/b:../c",
        "a/b:c/../d",
        "a/b:c//d",
        "a/b:/c",
        "a/.b",
        "-a/b",
        "a/b:-c",
        "a/b:c\n",
        "a/b:c\\d",
        "a b/c",
        "https://h",
        "https://",
        "https:///x",
        "https://h/",
        "https://h/..",
        "https://h/%2e%2e",
        "https://h/a%00",
        "https://h/a%2Fb",
        "https://u:p@h/x",
        "https://h/x y",
        "ftp://h/x",
        "https://h?x",
    };
    struct sl_pull_source s;
    struct sl_err err;
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (sl_pull_source_parse(good[i], &s, &err) != SL_OK)
            fail_msg("%s: %s", good[i], err.text);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        err.text[0] = '\0';
        if (sl_pull_source_parse(bad[i], &s, &err) != SL_ERR_INVALID || !err.text[0])
            fail_msg("'%s' passed", bad[i]);
    }
    char *longer = malloc(5000);
    for (size_t n = 1; n < 4999; n++) {
        memset(longer, 'a', n);
        longer[n] = '\0';
        memcpy(longer, "a/b:", n < 4 ? n : 4);
        assert_int_equal(sl_pull_source_parse(longer, &s, &err) == SL_OK,
                         n == 3 || (n > 4 && n < 4 + SL_PULL_NAME_BYTES));
    }
    free(longer);
    assert_int_equal(sl_pull_source_parse("https://h/p/b%2Ec.gguf?x#y", &s, &err), SL_OK);
    assert_string_equal(s.url_name, "b.c.gguf");
    assert_string_equal(s.url, "https://h/p/b%2Ec.gguf?x");
}

static void part_names(void **state) {
    static const struct {
        const char *name;
        bool is_part;
    } cases[] = {
        {"a-00001-of-00003.gguf", true},  {"a-00003-of-00003.gguf", true},
        {"a-00000-of-00003.gguf", false}, {"a-00004-of-00003.gguf", false},
        {"-00001-of-00003.gguf", false},  {"a-0001-of-0003.gguf", false},
        {"a-00001-of-99999.gguf", false}, {"a-00001-of-00003.ggufx", false},
    };
    size_t stem;
    uint32_t index, count;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(sl_pull_part_name(cases[i].name, &stem, &index, &count), cases[i].is_part);
}

static struct sl_pull_list list_of(const char *names) {
    char copy[1024];
    struct sl_pull_list list = {0};
    snprintf(copy, sizeof copy, "%s", names);
    for (char *w = strtok(copy, " "); w; w = strtok(NULL, " ")) {
        struct sl_pull_file f = {.size_bytes = 1};
        snprintf(f.path, sizeof f.path, "%s", w);
        assert_true(sl_pull_list_add(&list, &f));
    }
    sl_pull_list_sort(&list);
    return list;
}

/* first: what is chosen, and how many; NULL: nothing. */
static void chosen(const char *names, const char *wanted, const char *first, uint32_t n) {
    struct sl_pull_list list = list_of(names);
    struct sl_err err = {""};
    uint32_t at = 0, got = 0;
    enum sl_status status = sl_pull_choose(&list, wanted, &at, &got, &err);
    if (first ? status != SL_OK || strcmp(list.files[at].path, first) != 0 || got != n
              : status != SL_ERR_INVALID || !err.text[0])
        fail_msg("'%s' of %s: %d, %s", wanted, names, status, err.text);
    sl_pull_list_release(&list);
}

static void choices(void **state) {
    static const char four[] = "M-Q4_K_M.gguf M-Q4_K_S.gguf M-IQ4_XS.gguf mmproj-Q8_0.gguf "
                               "q8/M-Q8_0-00002-of-00002.gguf q8/M-Q8_0-00001-of-00002.gguf";
    (void)state;
    chosen(four, "", "M-Q4_K_M.gguf", 1);
    chosen(four, "q4_k_s", "M-Q4_K_S.gguf", 1);
    chosen(four, "Q8_0", "q8/M-Q8_0-00001-of-00002.gguf", 2);
    chosen(four, "M-Q8_0-00002-of-00002.gguf", "q8/M-Q8_0-00001-of-00002.gguf", 2);
    chosen(four, "mmproj-Q8_0.gguf", "mmproj-Q8_0.gguf", 1);
    chosen(four, "Q4_K", NULL, 0);
    chosen(four, "Q4_XS", NULL, 0);
    chosen(four, "M", NULL, 0);
    chosen("a.gguf", "", "a.gguf", 1);
    chosen("a.gguf b.gguf", "", NULL, 0);
    chosen("", "", NULL, 0);
    chosen("mmproj-a.gguf", "", NULL, 0);
    chosen("a-00001-of-00003.gguf a-00003-of-00003.gguf", "", NULL, 0);
    chosen("a-00002-of-00002.gguf", "", NULL, 0);
    chosen("a-00001-of-00002.gguf a-00001-of-00002.gguf", "", NULL, 0);
    chosen("a-00001-of-00002.gguf a-00002-of-00002.gguf a-00002-of-00002.gguf", "",
           "a-00001-of-00002.gguf", 2);
    chosen("a-00001-of-00002.gguf b-00002-of-00002.gguf", "", NULL, 0);
}

static void lists(void **state) {
    static const char good[] =
        "{\"sha\": \"0123456789abcdef0123456789abcdef01234567\", \"siblings\": ["
        "{\"rfilename\": \"b.gguf\", \"size\": 3, \"lfs\": {\"sha256\": \"" HASH
        "\", \"size\": 7}},"
        "{\"rfilename\": \"../c.gguf\", \"size\": 3}, {\"rfilename\": \"a.gguf\"},"
        "{\"rfilename\": \"x.bin\", \"size\": -1}]}";
    struct sl_pull_list list;
    struct sl_err err;
    (void)state;
    assert_int_equal(sl_pull_list_parse(good, sizeof good - 1, &list, &err), SL_OK);
    assert_int_equal(list.n, 2);
    assert_string_equal(list.files[0].path, "a.gguf");
    assert_string_equal(list.files[1].path, "b.gguf");
    assert_true(list.files[1].size_bytes == 7);
    assert_string_equal(list.files[1].sha256, HASH);
    sl_pull_list_release(&list);
    for (size_t n = 0; n < sizeof good - 1; n++)
        assert_int_equal(sl_pull_list_parse(good, n, &list, &err), SL_ERR_PROTOCOL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sources),
        cmocka_unit_test(part_names),
        cmocka_unit_test(choices),
        cmocka_unit_test(lists),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
