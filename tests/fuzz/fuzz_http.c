/* What strangers send: bytes through a socket to a real server, which has the tests' engine behind
 * it. PAUSE in the input parts what is sent in pieces. The server must end each connection in time,
 * answer with HTTP if it answers, and serve the next client. Since an end may take it a moment,
 * some connections are open at a time: what libFuzzer calls the fault's input may be one sent
 * shortly before. */
#include "tests/unit/server/fake_engine.c"

#include "common/clock.h"
#include "common/log.h"
#include "server/server.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#define PAUSE        "\xff\xfe"
#define MAX_PIECES   8
#define MOST_MS      20000 /* of a connection; the server's own time-outs are far shorter */
#define HEALTH_EVERY 64u
#define IN_FLIGHT    32u /* connections that are still looked after while the next inputs go out */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct conversation {
    int fd;
    bool open;
    uint64_t until_ns;
    char head[16]; /* of what came back */
    size_t n;
};
static struct conversation in_flight[IN_FLIGHT];
static uint32_t n_runs;

static struct sl_server *server;
static struct sl_tokenizer tok;

static const char template[] =
    "{%- for m in messages -%}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' -}}"
    "{%- endfor -%}{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}";

static void finish_all(void);

static void start(void) {
    static const char *const keys[] = {"key"};
    struct sl_err err;
    struct sl_server_config config = {.max_body_bytes = 1 << 16,
                                      .timeout_s = 2,
                                      .stall_s = 2,
                                      .keepalive_s = 1,
                                      .buffer_tokens = 16,
                                      .max_connections = 64,
                                      .cors_origins = keys,
                                      .n_cors_origins = 1};
    signal(SIGPIPE, SIG_IGN);
    atexit(finish_all);
    sl_log_set_level(SL_LOG_ERROR);
    fake_tokenizer_init(&tok);
    struct sl_engine *engine = fake_engine_create();
    engine->ctx_tokens = 256;
    engine->step_us = 20;
    struct sl_server_model m = {.engine = engine,
                                .tokenizer = &tok,
                                .id = "m",
                                .path = "m.gguf",
                                .arch = "fake",
                                .chat_template = template,
                                .chat_template_bytes = sizeof template - 1,
                                .n_ctx_train = 256};
    if (sl_server_create(&config, &server, &err) != SL_OK ||
        sl_server_attach(server, &m, &err) != SL_OK) {
        fprintf(stderr, "%s\n", err.text);
        abort();
    }
}

static int connect_to_server(void) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(sl_server_port(server))};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int rc = fd < 0 ? -1 : connect(fd, (struct sockaddr *)&a, sizeof a);
    if (rc != 0 && errno == EINTR) { /* libFuzzer's timer; the connection comes all the same */
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        while ((rc = poll(&p, 1, MOST_MS)) < 0 && errno == EINTR)
            ;
        rc = rc == 1 && p.revents == POLLOUT ? 0 : -1;
    }
    if (rc != 0) {
        perror("connect");
        abort();
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

/* Reads what comes until then, or to the connection's end. */
static void receive(struct conversation *c, uint64_t until_ns) {
    char buf[4096];
    while (c->open) {
        uint64_t now = sl_now_ns();
        struct pollfd p = {.fd = c->fd, .events = POLLIN};
        int ready = poll(&p, 1, now < until_ns ? (int)((until_ns - now) / 1000000u) + 1 : 0);
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0)
            return;
        ssize_t got = recv(c->fd, buf, sizeof buf, 0);
        if (got < 0 && errno == EINTR)
            continue;
        c->open = got > 0;
        for (ssize_t i = 0; i < got && c->n < sizeof c->head - 1; i++)
            c->head[c->n++] = buf[i];
    }
}

static void send_piece(struct conversation *c, const uint8_t *data, size_t len) {
    for (size_t sent = 0; c->open && sent < len;) {
        ssize_t n = send(c->fd, data + sent, len - sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        c->open = n > 0;
        sent += n > 0 ? (size_t)n : 0;
    }
}

static void begin(struct conversation *c, const uint8_t *data, size_t size) {
    *c = (struct conversation){.fd = connect_to_server(), .open = true};
    c->until_ns = sl_now_ns() + (uint64_t)MOST_MS * 1000000u;
    for (int piece = 0; c->open && size; piece++) {
        const uint8_t *end =
            piece < MAX_PIECES - 1 ? memmem(data, size, PAUSE, sizeof PAUSE - 1) : NULL;
        size_t len = end ? (size_t)(end - data) : size;
        send_piece(c, data, len);
        len += end ? sizeof PAUSE - 1 : 0;
        data += len;
        size -= len;
        if (size)
            receive(c, sl_now_ns() + 300000);
    }
    shutdown(c->fd, SHUT_WR);
    receive(c, 0);
}

static void finish(struct conversation *c, const char *want) {
    if (!c->until_ns)
        return;
    receive(c, c->until_ns);
    if (c->open) {
        fprintf(stderr, "a connection is still open after %d ms\n", MOST_MS);
        abort();
    }
    close(c->fd);
    c->until_ns = 0;
    if ((c->n && strncmp(c->head, "HTTP/1.", c->n < 7 ? c->n : 7) != 0) ||
        (want && !strstr(c->head, want))) {
        fprintf(stderr, "an answer begins with '%s'\n", c->head);
        abort();
    }
}

static void finish_all(void) {
    for (uint32_t i = 0; i < IN_FLIGHT; i++)
        finish(&in_flight[i], NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char health[] =
        "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    if (!server)
        start();
    struct conversation *c = &in_flight[n_runs % IN_FLIGHT];
    finish(c, NULL);
    begin(c, data, size);
    if (n_runs++ % HEALTH_EVERY == 0) {
        struct conversation asked;
        begin(&asked, (const uint8_t *)health, sizeof health - 1);
        finish(&asked, " 200");
    }
    return 0;
}
