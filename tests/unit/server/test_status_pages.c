/* The pages of a worker: what is answered, and that nobody who says nothing is in the way. */
#include "server/wire/status_pages.h"

#include <netinet/in.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

enum { SILENT = 200 };

static struct sl_status_pages *served;
static unsigned status_now;

static unsigned write_health(void *ctx, FILE *out) {
    fprintf(out, "hello %s\n", (const char *)ctx);
    return status_now;
}

static const struct sl_status_page pages[] = {{"/health", "text/plain", write_health}};

static int start(void **state) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sl_err err;
    (void)state;
    status_now = 200;
    return sl_status_pages_start((struct sockaddr *)&at, sizeof at, pages, 1, "you", &served,
                                 &err) == SL_OK
               ? 0
               : -1;
}

static int stop(void **state) {
    (void)state;
    sl_status_pages_stop(&served);
    assert_null(served);
    return 0;
}

static int dial(void) {
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                             .sin_port = htons(sl_status_pages_port(served))};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    return fd;
}

/* Sends, and reads until the other side closes. */
static const char *ask(const char *request) {
    static char text[4096];
    int fd = dial();
    size_t n = 0;
    ssize_t got;
    assert_int_equal(send(fd, request, strlen(request), MSG_NOSIGNAL), strlen(request));
    while ((got = recv(fd, text + n, sizeof text - 1 - n, 0)) > 0)
        n += (size_t)got;
    text[n] = '\0';
    close(fd);
    return text;
}

#define CLOSE " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"

static void test_pages(void **state) {
    (void)state;
    const char *text = ask("GET /health" CLOSE);
    assert_memory_equal(text, "HTTP/1.1 200 ", 13);
    assert_non_null(strstr(text, "Content-Type: text/plain\r\n"));
    assert_non_null(strstr(text, "\r\n\r\nhello you\n"));
    text = ask("HEAD /health" CLOSE);
    assert_memory_equal(text, "HTTP/1.1 200 ", 13);
    assert_non_null(strstr(text, "Content-Length: 10\r\n"));
    assert_null(strstr(text, "hello"));
    status_now = 503;
    assert_memory_equal(ask("GET /health" CLOSE), "HTTP/1.1 503 ", 13);
    assert_memory_equal(ask("GET /healthz" CLOSE), "HTTP/1.1 404 ", 13);
    assert_memory_equal(ask("GET /" CLOSE), "HTTP/1.1 404 ", 13);
    assert_memory_equal(ask("DELETE /health" CLOSE), "HTTP/1.1 405 ", 13);
}

static void test_bodies_and_nonsense(void **state) {
    (void)state;
    const char *text =
        ask("POST /health HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n123456789");
    assert_string_equal(text, "");
    text = ask("\x16\x03\x01\xff\xff\r\n\r\n");
    assert_null(strstr(text, "hello"));
    char request[16384] = "GET /health HTTP/1.1\r\nHost: x\r\nX: ";
    memset(request + strlen(request), 'a', sizeof request - 1 - strlen(request));
    text = ask(request);
    assert_null(strstr(text, "hello"));
    assert_memory_equal(ask("GET /health" CLOSE), "HTTP/1.1 200 ", 13);
}

/* Each of these would hold a place for seconds; the oldest make room at once. */
static void test_silent_connections(void **state) {
    int fds[SILENT];
    char byte;
    (void)state;
    for (int i = 0; i < SILENT; i++) {
        fds[i] = dial();
        assert_int_equal(send(fds[i], "GET /hea", 8, MSG_NOSIGNAL), 8);
        /* Half of them ask while the others are silent. */
        if (i % 2)
            assert_memory_equal(ask("GET /health" CLOSE), "HTTP/1.1 200 ", 13);
    }
    assert_true(recv(fds[0], &byte, 1, 0) <= 0);
    for (int i = 0; i < SILENT; i++)
        close(fds[i]);
    assert_memory_equal(ask("GET /health" CLOSE), "HTTP/1.1 200 ", 13);
}

static void test_address_in_use(void **state) {
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                             .sin_port = htons(sl_status_pages_port(served))};
    struct sl_status_pages *second = NULL;
    struct sl_err err;
    (void)state;
    assert_int_equal(
        sl_status_pages_start((struct sockaddr *)&at, sizeof at, pages, 1, "you", &second, &err),
        SL_ERR_CONFIG);
    assert_null(second);
    assert_non_null(strstr(err.text, "in use"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_pages, start, stop),
        cmocka_unit_test_setup_teardown(test_bodies_and_nonsense, start, stop),
        cmocka_unit_test_setup_teardown(test_silent_connections, start, stop),
        cmocka_unit_test_setup_teardown(test_address_in_use, start, stop),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
