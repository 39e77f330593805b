/* A small blocking HTTP client for the tests: every byte under control. */
#ifndef TESTS_UNIT_SERVER_CLIENT_H
#define TESTS_UNIT_SERVER_CLIENT_H

#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

static uint16_t client_port;

static int client_connect(int receive_buffer_bytes) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(client_port)};
    struct timeval limit = {20, 0};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (receive_buffer_bytes)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof receive_buffer_bytes);
    if (connect(fd, (struct sockaddr *)&a, sizeof a) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static void client_send(int fd, const char *data, size_t len) {
    while (len) {
        ssize_t n = send(fd, data, len, MSG_NOSIGNAL);
        if (n <= 0)
            return;
        data += n;
        len -= (size_t)n;
    }
}

struct reply {
    int status; /* 0: the connection ended without an answer */
    char *head, *body;
    size_t body_len;
};

static void reply_free(struct reply *r) {
    free(r->head);
    free(r->body);
    *r = (struct reply){0};
}

/* Reads to the connection's end. */
static char *client_read_all(int fd, size_t *len) {
    size_t cap = 65536, n = 0;
    char *p = malloc(cap + 1);
    for (;;) {
        if (n == cap)
            p = realloc(p, (cap *= 2) + 1);
        ssize_t got = recv(fd, p + n, cap - n, 0);
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    p[n] = '\0';
    *len = n;
    return p;
}

/* Splits head and body; a chunked body is joined in place. */
static struct reply reply_parse(char *all, size_t len) {
    struct reply r = {0};
    char *end = strstr(all, "\r\n\r\n");
    if (len < 12 || !end) {
        free(all);
        return r;
    }
    r.status = atoi(all + 9);
    r.head = strndup(all, (size_t)(end - all) + 2);
    char *from = end + 4;
    size_t left = len - (size_t)(from - all);
    r.body = calloc(1, left + 1);
    if (strcasestr(r.head, "Transfer-Encoding: chunked")) {
        while (left) {
            char *line = strstr(from, "\r\n");
            size_t n = strtoul(from, NULL, 16);
            if (!line || n == 0)
                break;
            from = line + 2;
            memcpy(r.body + r.body_len, from, n);
            r.body_len += n;
            from += n + 2;
            left = len - (size_t)(from - all);
        }
    } else {
        memcpy(r.body, from, left);
        r.body_len = left;
    }
    free(all);
    return r;
}

__attribute__((unused)) static struct reply client_raw(const char *data, size_t len) {
    int fd = client_connect(0);
    if (fd < 0)
        return (struct reply){0};
    client_send(fd, data, len);
    size_t n;
    char *all = client_read_all(fd, &n);
    close(fd);
    return reply_parse(all, n);
}

/* Sends a request that asks the server to close afterwards; returns the socket. */
static int client_begin_on(int fd, const char *method, const char *path, const char *headers,
                           const char *body) {
    size_t len = body ? strlen(body) : 0;
    char *text = malloc(len + strlen(headers) + strlen(path) + 200);
    int n = sprintf(text, "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s", method,
                    path, headers);
    if (body)
        n += sprintf(text + n, "Content-Length: %zu\r\n\r\n%s", len, body);
    else
        n += sprintf(text + n, "\r\n");
    client_send(fd, text, (size_t)n);
    free(text);
    return fd;
}

__attribute__((unused)) static int client_begin(const char *path, const char *body) {
    return client_begin_on(client_connect(0), "POST", path, "", body);
}

static struct reply client_end(int fd) {
    size_t n;
    char *all = client_read_all(fd, &n);
    close(fd);
    return reply_parse(all, n);
}

static struct reply client_request(const char *method, const char *path, const char *headers,
                                   const char *body) {
    int fd = client_connect(0);
    if (fd < 0)
        return (struct reply){0};
    return client_end(client_begin_on(fd, method, path, headers, body));
}

__attribute__((unused)) static struct reply client_get(const char *path) {
    return client_request("GET", path, "", NULL);
}
__attribute__((unused)) static struct reply client_post(const char *path, const char *body) {
    return client_request("POST", path, "", body);
}

#endif
