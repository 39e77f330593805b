/* What strangers send: bytes through a socket to a real server, which has the tests' engine behind
 * it. PAUSE in the input parts what is sent in pieces. The server must end each connection in time,
 * answer with HTTP if it answers, and serve the next client. */
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct sl_server *server;
static struct sl_tokenizer tok;

static const char template[] =
    "{%- for m in messages -%}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' -}}"
    "{%- endfor -%}{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}";

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
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a) != 0) {
        perror("connect");
        abort();
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

/* Reads what has come, at most until `until`; false: the connection has ended. */
static bool receive(int fd, char head[16], size_t *n, uint64_t until) {
    char buf[4096];
    for (;;) {
        uint64_t now = sl_now_ns();
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int ready = poll(&p, 1, now < until ? (int)((until - now) / 1000000u) + 1 : 0);
        if (ready < 0 && errno == EINTR) /* libFuzzer's timer */
            continue;
        if (ready <= 0)
            return true;
        ssize_t got = recv(fd, buf, sizeof buf, 0);
        if (got <= 0)
            return false;
        for (ssize_t i = 0; i < got && *n < 15; i++)
            head[(*n)++] = buf[i];
    }
}

static void must_answer(const uint8_t *data, size_t size, const char *want) {
    char head[16] = "";
    size_t n = 0;
    int fd = connect_to_server();
    uint64_t start_ns = sl_now_ns(), until = start_ns + (uint64_t)MOST_MS * 1000000u;
    bool open = true;
    for (int piece = 0; open && size; piece++) {
        const uint8_t *end =
            piece < MAX_PIECES - 1 ? memmem(data, size, PAUSE, sizeof PAUSE - 1) : NULL;
        size_t len = end ? (size_t)(end - data) : size;
        for (size_t sent = 0; open && sent < len;) {
            ssize_t s = send(fd, data + sent, len - sent, MSG_NOSIGNAL);
            open = s > 0;
            sent += s > 0 ? (size_t)s : 0;
        }
        len += end ? sizeof PAUSE - 1 : 0;
        data += len;
        size -= len;
        if (open && size)
            open = receive(fd, head, &n, sl_now_ns() + 300000);
    }
    shutdown(fd, SHUT_WR);
    if (open && receive(fd, head, &n, until)) {
        fprintf(stderr, "the connection is still open after %d ms\n", MOST_MS);
        abort();
    }
    close(fd);
    if (n && strncmp(head, "HTTP/1.", n < 7 ? n : 7) != 0) {
        fprintf(stderr, "the answer begins with '%s'\n", head);
        abort();
    }
    if (want && !strstr(head, want)) {
        fprintf(stderr, "the answer begins with '%s', not with %s\n", head, want);
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char health[] = "GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    static uint32_t n_runs;
    if (!server)
        start();
    must_answer(data, size, NULL);
    if (n_runs++ % HEALTH_EVERY == 0)
        must_answer((const uint8_t *)health, sizeof health - 1, " 200");
    return 0;
}
