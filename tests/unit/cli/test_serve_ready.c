/* The line that a server's start ends with. */
#include "cli/serve/serve_ready.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void urls(void **state) {
    (void)state;
    static const struct {
        const char *host, *cert, *wanted;
    } cases[] = {
        {"127.0.0.1", NULL, "http://127.0.0.1:81"},
        {"chat.example", "cert.pem", "https://chat.example:81"},
        {"0.0.0.0", NULL, "http://127.0.0.1:81"},
        {"::", NULL, "http://[::1]:81"},
        {"[::]", NULL, "http://[::1]:81"},
        {"fe80::1", NULL, "http://[fe80::1]:81"},
        {"[fe80::1]", NULL, "http://[fe80::1]:81"},
        {NULL, NULL, "unix:/run/s"},
    };
    char url[SL_SERVE_URL_BYTES];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *hosts[] = {cases[i].host, "other"};
        const struct sl_server_config c = {.hosts = hosts,
                                           .n_hosts = cases[i].host ? 2 : 0,
                                           .tls_cert = cases[i].cert,
                                           .unix_socket = "/run/s"};
        sl_serve_url(&c, 81, url);
        assert_string_equal(url, cases[i].wanted);
    }
}

static void lines(void **state) {
    (void)state;
    char line[SL_SERVE_READY_BYTES];
    struct sl_engine_info info = {.ctx_tokens = 1024, .parallel = 4, .device = "a card"};
    sl_serve_ready(&info, "http://h:1", "m", 1.26, 40.2, line);
    assert_string_equal(line, "ready after 1.3 s: http://h:1 serves m, about 40 tokens/s for one "
                              "request; 1024 tokens of context, 4 requests at once, on a card");
    info.streaming = true;
    info.parallel = 1;
    sl_serve_ready(&info, "http://h:1", "m", 0, 2.34, line);
    assert_non_null(strstr(line, "about 2.3 tokens/s for one request, more once its experts"));
    assert_non_null(strstr(line, "1 request at once"));
    sl_serve_ready(&info, "http://h:1", "m", 0, 0, line);
    assert_non_null(strstr(line, "serves m; 1024"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(urls), cmocka_unit_test(lines)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
