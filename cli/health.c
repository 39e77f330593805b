/* sluice health: asks a server on this machine how it is, over its UNIX socket, which needs no
 * port, no certificate and no key. */
#include "cli/options/args.h"
#include "cli/options/commands.h"
#include "common/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define MAX_REPLY_BYTES 8192u
/* The same limit as the server's --timeout-s, since both may read it from one SLUICE_TIMEOUT_S. */
#define MAX_TIMEOUT_S 31536000
#define MAX_POLL_MS   3600000
#define REQUEST       "GET /health HTTP/1.0\r\n\r\n"

struct probe {
    const char *path;
    uint64_t until_ns;
    char reply[MAX_REPLY_BYTES + 1]; /* ended by a zero */
    size_t n;
};

static int failed(const struct probe *p, const char *what) {
    fprintf(stderr, "sluice health: %s: %s\n", p->path, what);
    return 1;
}

/* Whether it can be read from or written to before the time is up; errno says why not. */
static bool wait_for(const struct probe *p, int fd, short events) {
    for (;;) {
        uint64_t now_ns = sl_now_ns();
        uint64_t left_ns = p->until_ns > now_ns ? p->until_ns - now_ns : 0;
        int left_ms = !left_ns                            ? 0
                      : left_ns / 1000000u >= MAX_POLL_MS ? MAX_POLL_MS
                                                          : (int)(left_ns / 1000000u) + 1;
        struct pollfd one = {.fd = fd, .events = events};
        int n = left_ms ? poll(&one, 1, left_ms) : 0;
        if (n > 0)
            return true;
        if ((n < 0 && errno == EINTR) || (n == 0 && left_ms == MAX_POLL_MS))
            continue;
        if (n == 0)
            errno = ETIMEDOUT;
        return false;
    }
}

/* EAGAIN: a server that has as many connections waiting as the kernel keeps. */
static bool reach(const struct probe *p, int fd, const struct sockaddr_un *a) {
    while (connect(fd, (const struct sockaddr *)a, sizeof *a) != 0) {
        if (errno != EAGAIN && errno != EINTR)
            return false;
        if (sl_now_ns() >= p->until_ns) {
            errno = ETIMEDOUT;
            return false;
        }
        poll(NULL, 0, 20);
    }
    return true;
}

/* The request fits the socket's buffer. */
static bool ask(struct probe *p, int fd) {
    if (send(fd, REQUEST, sizeof REQUEST - 1, MSG_NOSIGNAL) != (ssize_t)sizeof REQUEST - 1)
        return false;
    while (p->n < MAX_REPLY_BYTES) {
        if (!wait_for(p, fd, POLLIN))
            return false;
        ssize_t got = recv(fd, p->reply + p->n, MAX_REPLY_BYTES - p->n, 0);
        if (got < 0 && errno != EINTR && errno != EAGAIN)
            return false;
        if (got == 0)
            break;
        p->n += got > 0 ? (size_t)got : 0;
    }
    p->reply[p->n] = '\0';
    return true;
}

static int report(const struct probe *p) {
    unsigned status;
    if (sscanf(p->reply, "HTTP/1.%*1[01] %3u ", &status) != 1)
        return failed(p, "what answered is not an HTTP server");
    const char *body = strstr(p->reply, "\r\n\r\n");
    printf("%u %s\n", status, body ? body + 4 : "");
    return fflush(stdout) == 0 && status == 200 ? 0 : 1;
}

static int probe(struct probe *p) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    memcpy(a.sun_path, p->path, strlen(p->path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return failed(p, strerror(errno));
    bool answered = reach(p, fd, &a) && ask(p, fd);
    int rc = answered ? report(p) : failed(p, strerror(errno));
    close(fd);
    return rc;
}

int sl_cmd_health(int argc, char **argv) {
    static struct probe p;
    uint32_t timeout_s = 3;
    const struct sl_arg args[] = {
        {SL_ARG_STRING, 0, "--unix-socket", "PATH", &p.path, "the socket that the server was given",
         true},
        {SL_ARG_U32, 0, "--timeout-s", "S", &timeout_s,
         "longest time to wait for an answer (default 3)", false},
    };
    static const struct sl_arg_limit limits[] = {{"--timeout-s", 1, MAX_TIMEOUT_S, NULL}};
    const struct sl_command command = {
        .name = "health",
        .about = "Asks a server on this machine for its /health, over its UNIX socket.",
        .usage = "sluice health --unix-socket PATH",
        .notes = "Exits with 0 if the server is ready to answer, else with 1. Needs no key and no "
                 "certificate: for the health checks of containers and service managers.\n",
        .args = args,
        .n_args = SL_COUNTOF(args),
        .limits = limits,
        .n_limits = SL_COUNTOF(limits),
    };
    int rc = sl_args_parse(&command, argc, argv);
    if (rc >= 0)
        return rc;
    if (strlen(p.path) >= sizeof(struct sockaddr_un){0}.sun_path)
        return sl_usage_error("health",
                              "--unix-socket is '%s': must be a path of at most %zu bytes", p.path,
                              sizeof(struct sockaddr_un){0}.sun_path - 1);
    p.until_ns = sl_now_ns() + (uint64_t)timeout_s * 1000000000u;
    return probe(&p);
}
