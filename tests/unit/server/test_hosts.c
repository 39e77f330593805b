/* Which names are this server's, and which pages are. */
#include "server/wire/hosts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static bool known(const struct sl_known_hosts *k, const char *host) {
    struct sl_authority a;
    return sl_authority_read(host, strlen(host), &a) && sl_host_is_known(k, &a);
}

static void test_authorities(void **state) {
    (void)state;
    static const struct {
        const char *text, *host, *port;
        bool is_address, is_loopback;
    } good[] = {
        {"localhost", "localhost", "", false, false},
        {"LocalHost.:80 \t", "localhost", "80", false, false},
        {"a-b.c_d.example:", "a-b.c_d.example", "", false, false},
        {"127.0.0.1:65535", "127.0.0.1", "65535", true, true},
        {"127.200.3.4", "127.200.3.4", "", true, true},
        {"128.0.0.1", "128.0.0.1", "", true, false},
        {"[::1]:8080", "::1", "8080", true, true},
        {"[0:0:0:0:0:0:0:1]", "::1", "", true, true},
        {"[::ffff:127.0.0.1]", "::ffff:127.0.0.1", "", true, true},
        {"[FE80::1]", "fe80::1", "", true, false},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct sl_authority a;
        assert_true(sl_authority_read(good[i].text, strlen(good[i].text), &a));
        assert_string_equal(a.host, good[i].host);
        assert_string_equal(a.port, good[i].port);
        assert_int_equal(a.is_address, good[i].is_address);
        assert_int_equal(a.is_loopback, good[i].is_loopback);
    }
    static const char *const bad[] = {
        "",        ":80",         " ",           "a b",         "a:b",           "a:123456",
        "a:80:80", "::1",         "[::1",        "[::1]x",      "[::1]80",       "[localhost]",
        ".",       "u@localhost", "localhost/x", "a,localhost", "localhost\x01", "caf\xc3\xa9",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct sl_authority a;
        if (sl_authority_read(bad[i], strlen(bad[i]), &a))
            fail_msg("'%s' became '%s'", bad[i], a.host);
    }
    struct sl_authority a;
    char longest[400];
    memset(longest, 'a', sizeof longest);
    assert_true(sl_authority_read(longest, 255, &a));
    assert_false(sl_authority_read(longest, 256, &a));
    assert_false(sl_authority_read("local\0host", 10, &a));
}

static void test_known(void **state) {
    (void)state;
    static const char *const names[] = {"gateway.example", "10.0.0.7", "fd00::7"};
    static const char *const bound[] = {"0.0.0.0", "gpu.lan"};
    struct sl_known_hosts loopback = {.only_loopback = true, .host_name = "box.example"};
    struct sl_known_hosts listed = {.names = names, .n_names = 3, .only_loopback = true};
    struct sl_known_hosts open = {.bound = bound, .n_bound = 2, .host_name = "box.example"};
    struct sl_known_hosts any = {.names = (const char *const[]){"*"}, .n_names = 1};
    static const char *const always[] = {"localhost", "LOCALHOST.:1", "127.0.0.1:8080",
                                         "127.1.2.3", "[::1]",        "[::1]:8080"};
    static const char *const never[] = {"attacker.example",
                                        "attacker.example:8080",
                                        "localhost.attacker.example",
                                        "127.0.0.1.attacker.example",
                                        "xlocalhost",
                                        "x"};
    for (size_t i = 0; i < sizeof always / sizeof *always; i++)
        assert_true(known(&loopback, always[i]) && known(&listed, always[i]) &&
                    known(&open, always[i]));
    for (size_t i = 0; i < sizeof never / sizeof *never; i++) {
        assert_false(known(&loopback, never[i]) || known(&listed, never[i]) ||
                     known(&open, never[i]));
        assert_true(known(&any, never[i]));
    }
    /* Other addresses, and the machine's name, are its own where it listens on others. */
    static const char *const outside[] = {"192.168.1.2:8080", "[fd00::1]", "0.0.0.0", "box",
                                          "Box.example",      "box.local"};
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++)
        assert_true(!known(&loopback, outside[i]) && known(&open, outside[i]));
    assert_false(known(&open, "box.attacker.example") || known(&open, "bo") ||
                 known(&open, "box.local.attacker.example"));
    assert_true(known(&open, "gpu.lan:8080") && !known(&loopback, "gpu.lan"));
    assert_true(known(&listed, "Gateway.Example:443") && known(&listed, "10.0.0.7") &&
                known(&listed, "[FD00:0::7]:1"));
    assert_false(known(&listed, "a.gateway.example") || known(&listed, "10.0.0.8"));
}

static bool same(const char *origin, const char *host) {
    struct sl_authority a;
    assert_true(sl_authority_read(host, strlen(host), &a));
    return sl_origin_is_host(origin, strlen(origin), &a);
}

static void test_origins(void **state) {
    (void)state;
    assert_true(same("http://localhost:8080", "localhost:8080"));
    assert_true(same("HTTP://LOCALHOST:80", "localhost"));
    assert_true(same("http://localhost", "localhost:80"));
    assert_true(same("https://a.example", "a.example:443"));
    assert_true(same("http://[::1]:8080", "[0:0::1]:8080"));
    assert_false(same("http://localhost:3000", "localhost:8080"));
    assert_false(same("http://localhost", "localhost:8080"));
    assert_false(same("http://127.0.0.1:8080", "localhost:8080"));
    assert_false(same("http://localhost:8080.attacker.example", "localhost:8080"));
    assert_false(same("http://u@localhost:8080", "localhost:8080"));
    assert_false(same("null", "localhost"));
    assert_false(same("file://", "localhost"));
    assert_false(same("http://", "localhost"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_authorities),
        cmocka_unit_test(test_known),
        cmocka_unit_test(test_origins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
