#include "server/wire/hosts.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static bool read_v4(struct sl_authority *a) {
    struct in_addr v4;
    if (inet_pton(AF_INET, a->host, &v4) != 1)
        return false;
    a->is_address = true;
    a->is_loopback = ntohl(v4.s_addr) >> 24 == 127;
    return true;
}

static bool read_v6(struct sl_authority *a) {
    struct in6_addr v6;
    if (inet_pton(AF_INET6, a->host, &v6) != 1)
        return false;
    inet_ntop(AF_INET6, &v6, a->host, sizeof a->host);
    a->is_address = true;
    a->is_loopback =
        IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
    return true;
}

static bool is_name(const char *s) {
    static const char chars[] = "abcdefghijklmnopqrstuvwxyz0123456789-._";
    return *s && *s != '.' && s[strspn(s, chars)] == '\0';
}

bool sl_authority_read(const char *text, size_t n, struct sl_authority *a) {
    *a = (struct sl_authority){0};
    while (n && (text[n - 1] == ' ' || text[n - 1] == '\t'))
        n--;
    bool bracketed = n && text[0] == '[';
    const char *close = bracketed ? memchr(text, ']', n) : NULL;
    if (bracketed && !close)
        return false;
    const char *host = text + bracketed, *end = text + n;
    const char *host_end = close ? close : memchr(text, ':', n);
    const char *behind = close ? close + 1 : host_end;
    host_end = host_end ? host_end : end;
    if (behind && behind < end) {
        size_t digits = (size_t)(end - behind) - 1;
        if (*behind != ':' || digits >= sizeof a->port)
            return false;
        memcpy(a->port, behind + 1, digits);
        if (a->port[strspn(a->port, "0123456789")])
            return false;
    }
    size_t len = (size_t)(host_end - host);
    if (!len || len >= sizeof a->host || memchr(host, '\0', len))
        return false;
    for (size_t i = 0; i < len; i++)
        a->host[i] = (char)(host[i] >= 'A' && host[i] <= 'Z' ? host[i] | 0x20 : host[i]);
    if (bracketed)
        return read_v6(a);
    if (read_v4(a))
        return true;
    if (a->host[len - 1] == '.') /* the root's own name, which browsers keep */
        a->host[len - 1] = '\0';
    return is_name(a->host);
}

/* An entry of a list: what stands in an option, where IPv6 needs no brackets. */
static bool names(const char *entry, const struct sl_authority *a) {
    struct sl_authority e = {0};
    if (strchr(entry, ':') && entry[0] != '[') {
        snprintf(e.host, sizeof e.host, "%s", entry);
        return read_v6(&e) && strcmp(e.host, a->host) == 0;
    }
    return sl_authority_read(entry, strlen(entry), &e) && strcmp(e.host, a->host) == 0;
}

static bool is_machine(const char *name, const char *host) {
    size_t label = strcspn(name, ".");
    return label && (strcasecmp(name, host) == 0 ||
                     (strncasecmp(name, host, label) == 0 &&
                      (host[label] == '\0' || strcmp(host + label, ".local") == 0)));
}

bool sl_host_is_known(const struct sl_known_hosts *k, const struct sl_authority *a) {
    if (a->is_loopback || strcmp(a->host, "localhost") == 0 || (a->is_address && !k->only_loopback))
        return true;
    for (uint32_t i = 0; i < k->n_names; i++)
        if (strcmp(k->names[i], "*") == 0 || names(k->names[i], a))
            return true;
    for (uint32_t i = 0; i < k->n_bound; i++)
        if (names(k->bound[i], a))
            return true;
    return !k->only_loopback && k->host_name && is_machine(k->host_name, a->host);
}

bool sl_origin_is_host(const char *origin, size_t n, const struct sl_authority *host) {
    static const struct {
        const char *scheme, *port;
    } schemes[] = {{"http://", "80"}, {"https://", "443"}};
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        size_t len = strlen(schemes[i].scheme);
        struct sl_authority o;
        if (n <= len || strncasecmp(origin, schemes[i].scheme, len) != 0)
            continue;
        if (!sl_authority_read(origin + len, n - len, &o))
            return false;
        const char *own = schemes[i].port;
        return strcmp(o.host, host->host) == 0 &&
               strcmp(*o.port ? o.port : own, *host->port ? host->port : own) == 0;
    }
    return false;
}
