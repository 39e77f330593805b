#include "server/guard.h"

#include <string.h>

/* -------------------------------------------------------------------------------------- framing */

struct framing {
    uint32_t n_host, n_length, n_encoding;
    const char *bad; /* what is wrong with a header, NULL = nothing */
};

static bool is_token(const char *s, size_t n) {
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        bool alnum = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!alnum && (!c || !strchr("!#$%&'*+-.^_`|~", c)))
            return false;
    }
    return n > 0;
}

/* White space around a header's value is not part of it; libmicrohttpd leaves what follows it. */
static size_t trimmed(const char *s, size_t n) {
    while (n && (s[n - 1] == ' ' || s[n - 1] == '\t'))
        n--;
    return n;
}

static bool is_digits(const char *s, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (s[i] < '0' || s[i] > '9')
            return false;
    return n > 0;
}

static bool has_controls(const char *s, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (((unsigned char)s[i] < ' ' && s[i] != '\t') || s[i] == 0x7f)
            return true;
    return false;
}

static bool is_named(const char *name, size_t n, const char *want) {
    return n == strlen(want) && strncasecmp(name, want, n) == 0;
}

static enum MHD_Result look_at(void *cls, enum MHD_ValueKind kind, const char *name, size_t n_name,
                               const char *value, size_t n_value) {
    (void)kind;
    struct framing *f = cls;
    n_value = value ? trimmed(value, n_value) : 0;
    if (!is_token(name, n_name)) {
        f->bad = "a header's name holds what no name may hold, such as white space";
    } else if (has_controls(value, n_value)) {
        f->bad = "a header's value holds control characters";
    } else if (is_named(name, n_name, "Host")) {
        f->n_host++;
    } else if (is_named(name, n_name, "Content-Length")) {
        f->n_length++;
        if (!is_digits(value, n_value))
            f->bad = "Content-Length is not a number";
    } else if (is_named(name, n_name, "Transfer-Encoding")) {
        f->n_encoding++;
        if (n_value != 7 || strncasecmp(value, "chunked", 7) != 0)
            f->bad = "Transfer-Encoding is not 'chunked', the only one that is known here";
    }
    return MHD_YES;
}

bool sl_guard_framing(struct sl_exchange *ex, const char *version) {
    struct framing f = {0};
    bool http10 = strcmp(version, "HTTP/1.0") == 0;
    MHD_get_connection_values_n(ex->conn, MHD_HEADER_KIND, look_at, &f);
    if (f.bad)
        ;
    else if (f.n_length > 1)
        f.bad = "there is more than one Content-Length";
    else if (f.n_encoding > 1)
        f.bad = "there is more than one Transfer-Encoding";
    else if (f.n_length && f.n_encoding)
        f.bad = "there are both Content-Length and Transfer-Encoding";
    else if (f.n_encoding && http10)
        f.bad = "HTTP/1.0 knows no Transfer-Encoding";
    else if (f.n_host > 1)
        f.bad = "there is more than one Host";
    else if (!f.n_host && !http10)
        f.bad = "there is no Host";
    if (f.bad)
        return sl_http_fail(&ex->error, 400, "bad_headers", NULL,
                            "the request's headers cannot be trusted: %s", f.bad);
    if (!http10 && strcmp(version, "HTTP/1.1") != 0)
        return sl_http_fail(&ex->error, 505, "http_version", NULL,
                            "this server speaks HTTP/1.1 and HTTP/1.0");
    return true;
}

/* ----------------------------------------------------------------------------------------- keys */

/* Looks at every byte of every key, whatever the first difference. */
static bool key_accepted(const struct sl_server_config *c, const char *given) {
    size_t n = trimmed(given, strlen(given));
    unsigned found = 0;
    for (uint32_t k = 0; k < c->n_api_keys; k++) {
        const char *key = c->api_keys[k];
        size_t len = strlen(key);
        unsigned diff = len != n;
        for (size_t i = 0; i < len; i++)
            diff |= (unsigned char)key[i] ^ (unsigned char)(n ? given[i % n] : 0);
        found |= diff == 0;
    }
    return found != 0;
}

bool sl_guard_key(const struct sl_exchange *ex) {
    const struct sl_server_config *c = &ex->server->config;
    if (c->n_api_keys == 0 || (ex->route && ex->route->is_public))
        return true;
    const char *h = MHD_lookup_connection_value(ex->conn, MHD_HEADER_KIND, "Authorization");
    if (h && strncasecmp(h, "Bearer ", 7) == 0 && key_accepted(c, h + 7))
        return true;
    h = MHD_lookup_connection_value(ex->conn, MHD_HEADER_KIND, "x-api-key");
    return h && key_accepted(c, h);
}

/* -------------------------------------------------------------------------------------- origins */

const char *sl_guard_origin(const struct sl_exchange *ex) {
    const struct sl_server_config *c = &ex->server->config;
    if (!c->n_cors_origins)
        return NULL;
    const char *origin = MHD_lookup_connection_value(ex->conn, MHD_HEADER_KIND, "Origin");
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

bool sl_guard_preflight(const struct sl_exchange *ex) {
    return strcmp(ex->method, "OPTIONS") == 0 && sl_guard_origin(ex) &&
           MHD_lookup_connection_value(ex->conn, MHD_HEADER_KIND, "Access-Control-Request-Method");
}
