#include "server/guard.h"

#include "server/wire/hosts.h"

#include <string.h>

/* -------------------------------------------------------------------------------------- framing */

/* White space around a header's value is not part of it; libmicrohttpd leaves what follows it. */
static size_t trimmed(const char *s, size_t n) {
    while (n && (s[n - 1] == ' ' || s[n - 1] == '\t'))
        n--;
    return n;
}

bool sl_guard_wire(struct sl_exchange *ex) {
    const struct sl_link *l = ex->link;
    if (!l || l->wire.n_requests < ex->number)
        return sl_http_fail(&ex->error, 503, "overloaded", NULL,
                            "there is no memory to check this connection's requests; try again "
                            "later");
    if (l->wire.bad_request == ex->number)
        return sl_http_fail(&ex->error, 400, "bad_request", NULL,
                            "the request is ambiguous or malformed: %s", l->wire.bad);
    return true;
}

bool sl_guard_framing(struct sl_exchange *ex, const char *version) {
    if (!sl_guard_wire(ex))
        return false;
    if (strcmp(version, "HTTP/1.0") != 0 && strcmp(version, "HTTP/1.1") != 0)
        return sl_http_fail(&ex->error, 505, "http_version", NULL,
                            "this server speaks HTTP/1.1 and HTTP/1.0");
    return true;
}

static const char *header(const struct sl_exchange *ex, const char *name) {
    return MHD_lookup_connection_value(ex->conn, MHD_HEADER_KIND, name);
}

/* ---------------------------------------------------------------------------------------- hosts */

bool sl_guard_host(struct sl_exchange *ex) {
    const struct sl_server *s = ex->server;
    const struct sl_server_config *c = &s->config;
    struct sl_known_hosts known = {.names = c->allowed_hosts,
                                   .n_names = c->n_allowed_hosts,
                                   .bound = c->hosts,
                                   .n_bound = c->n_hosts,
                                   .only_loopback = s->only_loopback,
                                   .host_name = s->host_name};
    if (ex->link->is_unix || (c->n_api_keys && !c->n_allowed_hosts))
        return true;
    for (uint32_t i = 0; i < c->n_allowed_hosts; i++)
        if (strcmp(c->allowed_hosts[i], "*") == 0)
            return true;
    const char *host = header(ex, "Host");
    struct sl_authority a;
    if (!host || (sl_authority_read(host, strlen(host), &a) && sl_host_is_known(&known, &a)))
        return true;
    return sl_http_fail(&ex->error, 421, "host_not_allowed", NULL,
                        "'%.100s' is not a name of this server: ask it as localhost or by its "
                        "address, or, if the name is right, start it with --allowed-hosts NAME",
                        host);
}

/* ----------------------------------------------------------------------------------------- keys */

/* The number of the key, from 1 on; 0: it is none. Looks at every byte of every key, whatever the
 * first difference. */
static uint32_t key_number(const struct sl_server_config *c, const char *given) {
    given += strspn(given, " \t");
    size_t n = trimmed(given, strlen(given));
    uint32_t found = 0;
    for (uint32_t k = 0; k < c->n_api_keys; k++) {
        const char *key = c->api_keys[k];
        size_t len = strlen(key);
        unsigned diff = len != n;
        for (size_t i = 0; i < len; i++)
            diff |= (unsigned char)key[i] ^ (unsigned char)(n ? given[i % n] : 0);
        uint32_t mask = 0u - (uint32_t)(diff == 0 && found == 0);
        found |= mask & (k + 1);
    }
    return found;
}

bool sl_guard_key(const struct sl_exchange *ex) {
    return (ex->route && ex->route->is_public) || sl_guard_has_key(ex);
}

uint32_t sl_guard_owner(const struct sl_exchange *ex) {
    const struct sl_server_config *c = &ex->server->config;
    const char *h = header(ex, "Authorization");
    uint32_t number = h && strncasecmp(h, "Bearer ", 7) == 0 ? key_number(c, h + 7) : 0;
    h = header(ex, "x-api-key");
    return !number && h ? key_number(c, h) : number;
}

bool sl_guard_has_key(const struct sl_exchange *ex) {
    return ex->server->config.n_api_keys == 0 || sl_guard_owner(ex) != 0;
}

/* -------------------------------------------------------------------------------------- origins */

const char *sl_guard_origin(const struct sl_exchange *ex) {
    const struct sl_server_config *c = &ex->server->config;
    if (!c->n_cors_origins)
        return NULL;
    const char *origin = header(ex, "Origin");
    if (!origin)
        return NULL;
    for (uint32_t i = 0; i < c->n_cors_origins; i++) {
        if (strcmp(c->cors_origins[i], "*") == 0)
            return "*";
        if (strcasecmp(c->cors_origins[i], origin) == 0)
            return c->cors_origins[i];
    }
    return NULL;
}

bool sl_guard_page(struct sl_exchange *ex) {
    static const char *const harmless[] = {"GET", "HEAD", "OPTIONS"};
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
        if (strcmp(ex->method, harmless[i]) == 0)
            return true;
    /* Where a key is asked for, the page had to know it. */
    const char *origin = header(ex, "Origin"), *site = header(ex, "Sec-Fetch-Site");
    if (ex->server->config.n_api_keys || (!origin && !site) || sl_guard_origin(ex))
        return true;
    if (site) { /* newer browsers say it themselves, also where a proxy has changed the Host */
        if (strcmp(site, "same-origin") == 0 || strcmp(site, "none") == 0)
            return true;
    } else {
        const char *host = header(ex, "Host");
        struct sl_authority a;
        if (host && sl_authority_read(host, strlen(host), &a) &&
            sl_origin_is_host(origin, trimmed(origin, strlen(origin)), &a))
            return true;
    }
    return sl_http_fail(&ex->error, 403, "origin_not_allowed", NULL,
                        "a web page of another origin (%.100s) may not send this: if that page is "
                        "yours, start the server with --cors-origin ORIGIN",
                        origin ? origin : "not given");
}

bool sl_guard_preflight(const struct sl_exchange *ex) {
    return strcmp(ex->method, "OPTIONS") == 0 && sl_guard_origin(ex) &&
           MHD_lookup_connection_value(ex->conn, MHD_HEADER_KIND, "Access-Control-Request-Method");
}
