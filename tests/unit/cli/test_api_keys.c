/* What is a key that clients can send, and what is said of those that are not. */
#include "cli/serve/api_keys.h"
#include "common/log.h"
#include "tests/support/capture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static char said[4096];

static void keep(struct capture *c) {
    FILE *kept = capture_end(c);
    size_t n = fread(said, 1, sizeof said - 1, kept);
    said[n] = '\0';
    fclose(kept);
}

static bool read_file(struct sl_api_keys *k, const char *text, size_t len) {
    char path[] = "/tmp/sluice-keys-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, text, len) == (ssize_t)len);
    close(fd);
    struct capture c = capture_begin(stderr);
    bool ok = sl_api_keys_read(k, path);
    keep(&c);
    unlink(path);
    return ok;
}
#define READ(k, text) read_file(k, text, sizeof(text) - 1)

static void test_files(void **state) {
    (void)state;
    struct sl_api_keys k = {.n = 0};
    assert_true(READ(&k, "# keys\none\n\n  \ntwo"));
    assert_string_equal(said, "");
    assert_int_equal(k.n, 2);
    assert_string_equal(k.key[1], "two");
    sl_api_keys_release(&k);

    /* White space around a key: left out, with a warning that names the line and shows no key. */
    assert_true(READ(&k, "one\r\n\tsecret-2 \r\nsecret-3 \n  # no key\nfour\r\n"));
    assert_int_equal(k.n, 4);
    assert_string_equal(k.key[0], "one");
    assert_string_equal(k.key[1], "secret-2");
    assert_string_equal(k.key[2], "secret-3");
    assert_string_equal(k.key[3], "four");
    assert_non_null(strstr(said, "line 2"));
    assert_non_null(strstr(said, "line 3"));
    assert_null(strstr(said, "line 1"));
    assert_null(strstr(said, "line 5"));
    assert_null(strstr(said, "secret"));
    sl_api_keys_release(&k);

    assert_true(READ(&k, "\xef\xbb\xbfone\r\n"));
    assert_string_equal(k.key[0], "one");
    sl_api_keys_release(&k);

    static const struct {
        const char *text;
        size_t len;
        const char *says;
    } bad[] = {
        {"", 0, "holds no key"},
        {" \r\n#\n", 5, "holds no key"},
        {"good\nsecret a\n", 14, "line 2 has white space in the middle"},
        {"secret\ra", 8, "line 1 has white space in the middle"},
        {"secret\x01", 7, "line 1 holds a control character"},
        {"secret\0a", 8, "line 1 holds a control character"},
        {"secr\xc3\xa9t", 7, "line 1 holds a character that is not ASCII"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (read_file(&k, bad[i].text, bad[i].len) || !strstr(said, bad[i].says))
            fail_msg("%zu: %s", i, said);
        assert_null(strstr(said, "secr"));
        sl_api_keys_release(&k);
    }
    char line[600];
    memset(line, 'a', sizeof line);
    assert_false(read_file(&k, line, 513));
    assert_non_null(strstr(said, "more than 510 bytes"));
    assert_true(read_file(&k, line, 510));
    sl_api_keys_release(&k);
}

static int take(struct sl_api_keys *k, char *word) {
    struct capture c = capture_begin(stderr);
    int rc = sl_api_keys_take(k, word);
    keep(&c);
    return rc;
}

static void test_words(void **state) {
    (void)state;
    struct sl_api_keys k = {.n = 0};
    char plain[] = "secret", padded[] = " secret\t", blank[] = "  ", inner[] = "secr et",
         accent[] = "secr\xc3\xa9t";
    assert_int_equal(take(&k, plain), 0);
    assert_string_equal(said, "");
    assert_string_equal(plain, "******");
    assert_int_equal(take(&k, padded), 0);
    assert_non_null(strstr(said, "white space around the key"));
    assert_string_equal(k.key[1], "secret");
    assert_string_equal(padded, "********");
    assert_int_equal(take(&k, blank), 2);
    assert_non_null(strstr(said, "--api-key is empty"));
    assert_int_equal(take(&k, inner), 2);
    assert_non_null(strstr(said, "white space in the middle"));
    assert_int_equal(take(&k, accent), 2);
    assert_null(strstr(said, "secr"));
    assert_int_equal(k.n, 2);
    sl_api_keys_release(&k);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_words),
    };
    sl_log_set_level(SL_LOG_WARN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
