/* What libmicrohttpd gets to read of what a client sends. */
#include "server/wire/wire.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

struct passed {
    char text[65536];
    size_t n;
    uint32_t n_requests, bad_request;
    const char *bad;
};

/* In pieces of so many bytes, read into buffers of so many. */
static void pass(const char *in, size_t len, size_t piece, size_t cap, struct passed *p) {
    struct sl_wire w = {0};
    char buf[SL_WIRE_FEED_MAX];
    p->n = 0;
    while (len || w.n_spill) {
        size_t n = sl_wire_drain(&w, buf, cap), take = piece < len ? piece : len;
        if (take > cap - n)
            take = cap - n;
        n += sl_wire_feed(&w, in, take, buf + n, cap - n);
        in += take;
        len -= take;
        assert_true(n <= cap && p->n + n < sizeof p->text);
        memcpy(p->text + p->n, buf, n);
        p->n += n;
    }
    p->text[p->n] = '\0';
    p->n_requests = w.n_requests;
    p->bad_request = w.bad_request;
    p->bad = w.bad;
}

/* Whatever the pieces, and what comes out is canonical: it passes unchanged. */
static struct passed *pass_all_ways(const char *in, size_t len) {
    static struct passed whole, other;
    static const size_t ways[][2] = {{1, 8192}, {1, 1}, {8192, 1}, {3, 7}, {7, 3}, {64, 2}};
    pass(in, len, 8192, 8192, &whole);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        pass(in, len, ways[i][0], ways[i][1], &other);
        assert_int_equal(other.n, whole.n);
        assert_memory_equal(other.text, whole.text, whole.n);
        assert_int_equal(other.bad_request, whole.bad_request);
    }
    pass(whole.text, whole.n, 8192, 8192, &other);
    assert_null(other.bad);
    assert_string_equal(other.text, whole.text);
    assert_int_equal(other.n_requests, whole.n_requests);
    return &whole;
}

static void expect(const char *in, const char *out) {
    struct passed *p = pass_all_ways(in, strlen(in));
    if (p->bad)
        fail_msg("refused (%s):\n%s", p->bad, in);
    assert_string_equal(p->text, out);
}

static void expect_bad_bytes(const char *in, size_t len, uint32_t request, const char *why,
                             const char *out) {
    struct passed *p = pass_all_ways(in, len);
    if (!p->bad)
        fail_msg("not refused:\n%s\nbecame\n%s", in, p->text);
    if (!strstr(p->bad, why))
        fail_msg("'%s' does not say '%s':\n%s", p->bad, why, in);
    assert_int_equal(p->bad_request, request);
    if (out)
        assert_string_equal(p->text, out);
}
#define HEAD    "POST /a HTTP/1.1\r\nHost:x\r\n"
#define GET     "GET /a HTTP/1.1\r\nHost:x\r\n"
#define CHUNKED HEAD "Transfer-Encoding:chunked\r\n\r\n"
#define BAD_HEAD(in, why)                                                                          \
    expect_bad_bytes(in "\r\n\r\nGET /hidden HTTP/1.1\r\n",                                        \
                     sizeof(in "\r\n\r\nGET /hidden HTTP/1.1\r\n") - 1, 1, why, NULL)
#define BAD_BODY(in, why, out)                                                                     \
    expect_bad_bytes(CHUNKED in, sizeof(CHUNKED in) - 1, 1, why, CHUNKED out)

static void test_legal(void **state) {
    (void)state;
    expect(GET "\r\n", GET "\r\n");
    expect("\r\n\r\n" GET "\r\n\r\n" GET "\r\n", GET "\r\n" GET "\r\n");
    expect("GET /a HTTP/1.0\r\n\r\n", "GET /a HTTP/1.0\r\n\r\n");
    expect(GET "X: \ta\tb \xe9 \r\nY:\r\n\r\n", GET "X: \ta\tb \xe9 \r\nY:\r\n\r\n");
    expect(GET "A-name-longer-than-those-looked-at: 1\r\n\r\n",
           GET "A-name-longer-than-those-looked-at: 1\r\n\r\n");
    /* Lengths: white space around the number is legal. */
    expect(HEAD "Content-Length: 2 \r\n\r\nab" GET "\r\n",
           HEAD "Content-Length:2\r\n\r\nab" GET "\r\n");
    expect(HEAD "content-length:\t 0002 \t \r\nX: y\r\n\r\nab",
           HEAD "X: y\r\nContent-Length:2\r\n\r\nab");
    expect(HEAD "Content-Length:0\r\n\r\n" GET "\r\n", HEAD "Content-Length:0\r\n\r\n" GET "\r\n");
    expect(GET "Content-Length: 3\r\n\r\n\n\r\n" GET "\r\n",
           GET "Content-Length:3\r\n\r\n\n\r\n" GET "\r\n");
    /* Chunks: extensions, trailers and leading zeros are legal, and dropped. */
    expect(HEAD
           "Transfer-Encoding: Chunked \r\n\r\n0a;x=\"y z\";\xe9\r\n0123456789\r\n1 \t;z\r\n\n\r\n"
           "000;a\r\nTrailer: a\r\nB:\r\n\r\n" GET "\r\n",
           CHUNKED "a\r\n0123456789\r\n1\r\n\n\r\n0\r\n\r\n" GET "\r\n");
    /* An absolute URL: its authority is the Host. */
    expect("GET http://a.example:80/b?c HTTP/1.1\r\nHost: x\r\nY: z\r\n\r\n",
           "GET /b?c HTTP/1.1\r\nHost:a.example:80\r\nY: z\r\n\r\n");
    expect("GET HTTPS://[::1] HTTP/1.1\r\nhost: x\r\n\r\n", "GET / HTTP/1.1\r\nHost:[::1]\r\n\r\n");
    expect("GET http://a?b HTTP/1.0\r\n\r\n", "GET /?b HTTP/1.0\r\nHost:a\r\n\r\n");
    /* Not URLs of that kind: the server has no such endpoint, and says so. */
    expect("GET httpx://a/b HTTP/1.1\r\nHost:x\r\n\r\n",
           "GET httpx://a/b HTTP/1.1\r\nHost:x\r\n\r\n");
    expect("OPTIONS * HTTP/1.1\r\nHost:x\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost:x\r\n\r\n");
    expect("GET h HTTP/1.1\r\nHost:x\r\n\r\n", "GET h HTTP/1.1\r\nHost:x\r\n\r\n");
}

static void test_bad_heads(void **state) {
    (void)state;
    BAD_HEAD("(GET / HTTP/1.1", "begin with a method");
    BAD_HEAD("\x16\x03\x01", "control");
    BAD_HEAD("\rGET / HTTP/1.1", "carriage return");
    BAD_HEAD("\nGET / HTTP/1.1", "bare line feed");
    BAD_HEAD("GET", "carriage return");
    BAD_HEAD("GET /a", "carriage return");
    BAD_HEAD("GET /a ", "carriage return");
    BAD_HEAD("GET /a b HTTP/1.1", "version");
    BAD_HEAD("GET  /a HTTP/1.1", "more than one space");
    BAD_HEAD("GET /a HTTP/1.11", "version");
    BAD_HEAD("GET /a http/1.1", "version");
    BAD_HEAD("GET /a\tHTTP/1.1", "control");
    BAD_HEAD("GET /a\x7f HTTP/1.1", "control");
    BAD_HEAD("GET /a HTTP/1.1\nHost: x", "bare line feed");
    BAD_HEAD("G(T /a HTTP/1.1\r\nHost: x", "method");
    BAD_HEAD("GET http:///a HTTP/1.1\r\nHost: x", "no host");
    BAD_HEAD("GET http://u@h/a HTTP/1.1\r\nHost: x", "user");
    BAD_HEAD("GET http://h\r/a HTTP/1.1\r\nHost: x", "carriage return");
    BAD_HEAD("GET /a HTTP/1.1\r\nX: y", "no Host");
    BAD_HEAD("GET http://h/a HTTP/1.1\r\nX: y", "no Host");
    BAD_HEAD(GET "Host: x", "more than one Host");
    BAD_HEAD(GET " X: y", "second line");
    BAD_HEAD(GET "X: y\r\n\tz", "second line");
    BAD_HEAD(GET ": y", "name");
    BAD_HEAD(GET "X", "carriage return");
    BAD_HEAD(GET "X : y", "white space");
    BAD_HEAD(GET "A-name-longer-than-those-looked-at : y", "white space");
    BAD_HEAD(GET "X: a\rb", "carriage return");
    BAD_HEAD(GET "X: a\nY: b", "bare line feed");
    BAD_HEAD(GET "X: a\x0b", "control");
    BAD_HEAD(HEAD "Content-Length", "carriage return");
    BAD_HEAD(HEAD "Content-Length:", "not a number");
    BAD_HEAD(HEAD "Content-Length: 1 1", "not a number");
    BAD_HEAD(HEAD "Content-Length: +1", "not a number");
    BAD_HEAD(HEAD "Content-Length: 1\n", "not a number");
    BAD_HEAD(HEAD "Content-Length: 9223372036854775808", "not a number");
    BAD_HEAD(HEAD "Content-Length: 000000000000000000001", "not a number");
    BAD_HEAD(HEAD "Content-Length: 1\r\nContent-Length: 1", "more than one Content-Length");
    BAD_HEAD(HEAD "Content-Length: 1\r\nTransfer-Encoding: chunked", "both");
    BAD_HEAD(HEAD "Transfer-Encoding: chu nked", "chunked");
    BAD_HEAD(HEAD "Transfer-Encoding: chunked, chunked", "chunked");
    BAD_HEAD(HEAD "Transfer-Encoding: gzip", "chunked");
    BAD_HEAD(HEAD "Transfer-Encoding:", "chunked");
    BAD_HEAD(HEAD "Transfer-Encoding: chunked\r\nTransfer-Encoding: x", "more than one");
    BAD_HEAD("POST /a HTTP/1.0\r\nTransfer-Encoding: chunked", "HTTP/1.0");
    static const char nul[] = GET "X: a\0b\r\n\r\n", nul_name[] = GET "X\0: a\r\n\r\n",
                      nul_path[] = "GET /a\0 HTTP/1.1\r\nHost: x\r\n\r\n";
    expect_bad_bytes(nul, sizeof nul - 1, 1, "control", GET "X: a\r\n\r\n");
    expect_bad_bytes(nul_name, sizeof nul_name - 1, 1, "control", NULL);
    expect_bad_bytes(nul_path, sizeof nul_path - 1, 1, "control",
                     "GET /a HTTP/1.1\r\nHost: -\r\n\r\n");
    /* What the request in front of it had says nothing of it. */
    static const char garbage[] = GET "\r\n{}";
    expect_bad_bytes(garbage, sizeof garbage - 1, 2, "method",
                     GET "\r\nGET / HTTP/1.1\r\nHost: -\r\n\r\n");
    /* The one in front of it is as good as it was. */
    static const char second[] = HEAD "Content-Length:1\r\n\r\nx" GET "Host: y\r\n\r\n";
    expect_bad_bytes(second, sizeof second - 1, 2, "more than one Host", NULL);
}

static void test_bad_chunks(void **state) {
    (void)state;
    BAD_BODY("1\nx\r\n0\r\n\r\n", "bare line feed", "0\r\n\r\n");
    BAD_BODY("1\r\nx\r\n0\n\r\n", "bare line feed", "1\r\nx\r\n0\r\n\r\n");
    BAD_BODY("1\rx\r\n0\r\n\r\n", "carriage return", "0\r\n\r\n");
    BAD_BODY("1;a=\rb\r\nx\r\n0\r\n\r\n", "carriage return", "0\r\n\r\n");
    BAD_BODY("1;a=\nb\r\nx\r\n0\r\n\r\n", "bare line feed", "0\r\n\r\n");
    BAD_BODY("1;a\n\r\nx\r\n0\r\n\r\n", "bare line feed", "0\r\n\r\n");
    BAD_BODY("1;a\x01\r\nx\r\n0\r\n\r\n", "control", "0\r\n\r\n");
    BAD_BODY("1\r\nx\n0\r\n\r\n", "does not end", "1\r\nx\r\n0\r\n\r\n");
    BAD_BODY("1\r\nx\rz0\r\n\r\n", "does not end", "1\r\nx\r\n0\r\n\r\n");
    BAD_BODY("1\r\nxy\r\n0\r\n\r\n", "does not end", "1\r\nx\r\n0\r\n\r\n");
    BAD_BODY("\r\n", "not a number", "0\r\n\r\n");
    BAD_BODY(" 1\r\nx\r\n", "not a number", "0\r\n\r\n");
    BAD_BODY("1 \r\nx\r\n", "carriage return", "0\r\n\r\n");
    BAD_BODY("1 2\r\nx\r\n", "not a number", "0\r\n\r\n");
    BAD_BODY("0x1\r\nx\r\n", "not a number", "0\r\n\r\n");
    BAD_BODY("-1\r\nx\r\n", "not a number", "0\r\n\r\n");
    BAD_BODY("8000000000000000\r\nx", "too large", "0\r\n\r\n");
    BAD_BODY("00000000000000001\r\nx", "too large", "0\r\n\r\n");
    BAD_BODY("0\r\nX: a\nY: b\r\n\r\n", "bare line feed", "0\r\n\r\n");
    BAD_BODY("0\r\nX: a\rb\r\n\r\n", "carriage return", "0\r\n\r\n");
    BAD_BODY("0\r\n folded: a\r\n\r\n", "trailer", "0\r\n\r\n");
    BAD_BODY("0\r\nno colon\r\n\r\n", "trailer", "0\r\n\r\n");
    BAD_BODY("0\r\n\rx", "carriage return", "0\r\n\r\n");
}

/* A head, an extension or trailers without an end. */
static void test_bounds(void **state) {
    (void)state;
    static struct passed p;
    static char text[200000];
    const char *starts[] = {"",           "GET http://",
                            GET "X: ",    "GET http://h/ HTTP/1.1\r\nHost: ",
                            CHUNKED "1;", CHUNKED "0\r\nX: "};
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        memset(text, 'a', sizeof text);
        memcpy(text, starts[i], strlen(starts[i]));
        struct sl_wire w = {0};
        char buf[4096];
        for (size_t at = 0; at < sizeof text && !w.bad; at += 4000)
            sl_wire_feed(&w, text + at, 4000, buf, sizeof buf);
        assert_non_null(w.bad);
    }
    /* Nor can what goes no further go on for long. */
    memset(text, ' ', sizeof text);
    memcpy(text, HEAD "Content-Length:", strlen(HEAD "Content-Length:"));
    text[5000] = 0;
    expect_bad_bytes(text, 5000, 1, "white space", NULL);
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = "\r\n"[i % 2];
    text[40] = 0;
    expect_bad_bytes(text, 40, 1, "empty lines", NULL);
    /* What is kept never fills up, however many requests one piece holds. */
    static const char shortest[] = "G http://a HTTP/1.0\r\n\r\n";
    size_t n = 0;
    while (n + sizeof shortest < SL_WIRE_FEED_MAX) {
        memcpy(text + n, shortest, sizeof shortest - 1);
        n += sizeof shortest - 1;
    }
    pass(text, n, n, n, &p);
    assert_null(p.bad);
    assert_int_equal(p.n_requests, n / (sizeof shortest - 1));
}

/* One read serves a client that floods for a while only, whatever it sends. */
static void test_floods(void **state) {
    (void)state;
    static const char *const starts[] = {"(", "\r\n", GET "Content-Length:"};
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        static char text[400000], buf[32768];
        size_t n = strlen(starts[i]);
        for (size_t at = 0; at < sizeof text; at++)
            text[at] = i == 1 ? "\r\n"[at % 2] : at < n ? starts[i][at] : ' ';
        struct sl_wire w = {0};
        int pair[2], room = 4 << 20, left = 0;
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
        assert_int_equal(setsockopt(pair[1], SOL_SOCKET, SO_SNDBUF, &room, sizeof room), 0);
        size_t sent = 0;
        for (ssize_t put; sent < sizeof text; sent += (size_t)put)
            if ((put = send(pair[1], text + sent, sizeof text - sent, 0)) <= 0)
                break;
        assert_true(sent > 131072); /* as much as a socket takes by default */
        assert_true(sl_wire_attach(pair[0], &w));
        assert_true(recv(pair[0], buf, sizeof buf, 0) > 0); /* the request that is refused */
        assert_int_equal(ioctl(pair[0], FIONREAD, &left), 0);
        assert_true((size_t)left >= sent - 81920);
        for (int reads = 0; left; reads++) { /* and the rest goes nowhere */
            assert_int_equal(recv(pair[0], buf, sizeof buf, 0), -1);
            assert_int_equal(errno, EAGAIN);
            assert_int_equal(ioctl(pair[0], FIONREAD, &left), 0);
            assert_true(reads < 100);
        }
        close(pair[1]);
        assert_int_equal(recv(pair[0], buf, sizeof buf, 0), 0);
        sl_wire_detach(pair[0]);
        close(pair[0]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_legal),      cmocka_unit_test(test_bad_heads),
        cmocka_unit_test(test_bad_chunks), cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_floods),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
