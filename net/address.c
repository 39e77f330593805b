#include "net/address.h"

#include <netdb.h>
#include <netinet/in.h>
#include <arpa/inet.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define UNIX_PREFIX "unix:"

static enum sl_status resolve_unix(const char *path, struct sl_net_address *out,
                                   struct sl_err *err) {
    memset(out, 0, sizeof *out);
    out->un.sun_family = AF_UNIX;
    if (!*path || strlen(path) >= sizeof out->un.sun_path)
        return sl_fail(err, SL_ERR_CONFIG, "'%.200s': a socket's path has 1 to %zu bytes", path,
                       sizeof out->un.sun_path - 1);
    memcpy(out->un.sun_path, path, strlen(path));
    out->n = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path) + 1);
    return SL_OK;
}

/* "a:7070" to "a" and "7070". */
static bool divide(const char *text, char *host, size_t host_size, const char **out_port) {
    const char *colon = strrchr(text, ':');
    size_t n = colon ? (size_t)(colon - text) : 0;
    bool v6 = n > 2 && text[0] == '[' && text[n - 1] == ']';
    if (!colon || !colon[1] || strlen(colon + 1) > 5 ||
        strspn(colon + 1, "0123456789") != strlen(colon + 1) || n >= host_size ||
        (!v6 && memchr(text, ':', n)))
        return false;
    snprintf(host, host_size, "%.*s", (int)(v6 ? n - 2 : n), text + v6);
    *out_port = colon + 1;
    return true;
}

/* family: of those that are wanted. */
static size_t take(const struct addrinfo *list, int family,
                   struct sl_net_address out[SL_NET_ADDRESSES]) {
    size_t n = 0;
    for (const struct addrinfo *a = list; a && n < SL_NET_ADDRESSES; a = a->ai_next) {
        if (family != AF_UNSPEC && a->ai_family != family)
            continue;
        struct sl_net_address *to = &out[n++];
        memset(to, 0, sizeof *to);
        memcpy(&to->storage, a->ai_addr, a->ai_addrlen);
        to->n = a->ai_addrlen;
    }
    return n;
}

static enum sl_status ask(const char *text, bool listens, struct addrinfo **out,
                          struct sl_err *err) {
    char host[256];
    const char *port;
    if (!divide(text, host, sizeof host, &port) || (!*host && !listens))
        return sl_fail(err, SL_ERR_CONFIG,
                       "'%.200s' is no address: it must be HOST:PORT, [V6]:PORT or unix:PATH",
                       text);
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_NUMERICSERV | (listens ? AI_PASSIVE : 0)};
    int rc = getaddrinfo(*host ? host : NULL, port, &hints, out);
    return rc == 0 ? SL_OK
                   : sl_fail(err, SL_ERR_PEER_LOST, "'%.200s' cannot be resolved: %s", text,
                             gai_strerror(rc));
}

enum sl_status sl_net_resolve(const char *text, bool listens,
                              struct sl_net_address out[SL_NET_ADDRESSES], size_t *out_n,
                              struct sl_err *err) {
    struct addrinfo *list;
    if (strncmp(text, UNIX_PREFIX, strlen(UNIX_PREFIX)) == 0) {
        *out_n = 1;
        return resolve_unix(text + strlen(UNIX_PREFIX), out, err);
    }
    SL_TRY(ask(text, listens, &list, err));
    *out_n = take(list, AF_UNSPEC, out);
    freeaddrinfo(list);
    return SL_OK;
}

enum sl_status sl_net_resolve_machines(const char *text,
                                       struct sl_net_address out[SL_NET_ADDRESSES], size_t *out_n,
                                       struct sl_err *err) {
    struct addrinfo *list;
    SL_TRY(ask(text, false, &list, err));
    *out_n = take(list, AF_INET, out);
    if (!*out_n)
        *out_n = take(list, AF_INET6, out);
    freeaddrinfo(list);
    return SL_OK;
}

bool sl_net_is_local(const struct sl_net_address *a) {
    if (a->any.sa_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, &a->storage, sizeof in);
        return ntohl(in.sin_addr.s_addr) >> 24 == 127;
    }
    if (a->any.sa_family == AF_INET6) {
        struct sockaddr_in6 in;
        memcpy(&in, &a->storage, sizeof in);
        return IN6_IS_ADDR_LOOPBACK(&in.sin6_addr);
    }
    return a->any.sa_family == AF_UNIX;
}

void sl_net_address_text(const struct sl_net_address *a, char *out, size_t size) {
    char host[INET6_ADDRSTRLEN] = "?", port[8] = "?";
    if (a->any.sa_family == AF_UNIX) {
        snprintf(out, size, UNIX_PREFIX "%s", a->un.sun_path);
        return;
    }
    (void)!getnameinfo(&a->any, a->n, host, sizeof host, port, sizeof port,
                       NI_NUMERICHOST | NI_NUMERICSERV);
    snprintf(out, size, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
}
