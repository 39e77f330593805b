#include "pull/http.h"

#include "common/clock.h"
#include "common/interrupt.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

/* "name: value" of a header, without the white space around the value; NULL: another header. */
static const char *value_of(const char *line, size_t n, const char *name, char *buf, size_t size) {
    size_t n_name = strlen(name);
    if (n <= n_name || strncasecmp(line, name, n_name) != 0 || line[n_name] != ':')
        return NULL;
    line += n_name + 1;
    n -= n_name + 1;
    while (n && isspace((unsigned char)*line)) {
        line++;
        n--;
    }
    while (n && isspace((unsigned char)line[n - 1]))
        n--;
    if (n >= size)
        return NULL;
    memcpy(buf, line, n);
    buf[n] = '\0';
    return buf;
}

/* Decimal digits alone, at most SL_PULL_MAX_BYTES; *end is moved. */
static bool number(const char **p, uint64_t *out) {
    uint64_t v = 0;
    const char *c = *p;
    for (; isdigit((unsigned char)*c); c++)
        if ((v = 10 * v + (uint64_t)(*c - '0')) > SL_PULL_MAX_BYTES)
            return false;
    if (c == *p)
        return false;
    *p = c;
    *out = v;
    return true;
}

/* "bytes 100-199/1000" */
static void read_range(struct sl_pull_headers *h, const char *v) {
    uint64_t begin, last, total;
    if (strncasecmp(v, "bytes ", 6) != 0)
        return;
    v += 6;
    if (!number(&v, &begin) || *v++ != '-' || !number(&v, &last) || *v++ != '/' ||
        !number(&v, &total) || *v || begin > last || last >= total)
        return;
    h->range_begin = begin;
    h->total_bytes = total;
}

/* The sum of an LFS file is its ETag, in quotes. */
static void read_hash(char out[SL_PULL_HASH_BYTES], const char *v) {
    size_t n = strlen(v);
    if (n != 66 || v[0] != '"' || v[65] != '"')
        return;
    memcpy(out, v + 1, 64);
    out[64] = '\0';
    if (!sl_pull_is_hex(out, 64))
        out[0] = '\0';
}

static size_t on_header(char *line, size_t one, size_t n, void *ctx) {
    struct sl_pull_headers *h = ctx;
    char buf[512];
    const char *v;
    uint64_t x;
    if (n * one > 5 && strncmp(line, "HTTP/", 5) == 0) { /* the next response of a chain */
        struct sl_pull_headers fresh = {.linked_bytes = h->linked_bytes};
        memcpy(fresh.linked_sha256, h->linked_sha256, sizeof fresh.linked_sha256);
        *h = fresh;
    } else if ((v = value_of(line, n, "ETag", buf, sizeof h->etag))) {
        if (v[0] == '"')
            memcpy(h->etag, v, strlen(v) + 1);
    } else if ((v = value_of(line, n, "Last-Modified", buf, sizeof h->modified))) {
        memcpy(h->modified, v, strlen(v) + 1);
    } else if ((v = value_of(line, n, "Content-Range", buf, sizeof buf))) {
        read_range(h, v);
    } else if ((v = value_of(line, n, "Content-Length", buf, sizeof buf))) {
        if (number(&v, &x) && !*v)
            h->content_bytes = x;
    } else if ((v = value_of(line, n, "Retry-After", buf, sizeof buf))) {
        if (number(&v, &x) && !*v)
            h->retry_after_s =
                x < SL_PULL_MAX_RETRY_AFTER_S ? (uint32_t)x : SL_PULL_MAX_RETRY_AFTER_S;
    } else if ((v = value_of(line, n, "X-Linked-Size", buf, sizeof buf))) {
        if (number(&v, &x) && !*v)
            h->linked_bytes = x;
    } else if ((v = value_of(line, n, "X-Linked-ETag", buf, sizeof buf))) {
        read_hash(h->linked_sha256, v);
    }
    return n * one;
}

static int on_progress(void *ctx, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d) {
    (void)ctx, (void)a, (void)b, (void)c, (void)d;
    return sl_interrupt_pending();
}

bool sl_pull_http_may_have_token(const char *url) {
    if (strncmp(url, "https://", 8) == 0)
        return true;
    static const char *const here[] = {"http://127.0.0.1", "http://localhost", "http://[::1]"};
    for (size_t i = 0; i < sizeof here / sizeof *here; i++) {
        size_t n = strlen(here[i]);
        if (strncmp(url, here[i], n) == 0 && (!url[n] || strchr(":/?#", url[n])))
            return true;
    }
    return false;
}

CURL *sl_pull_http_open(const struct sl_pull_http *http, const char *url,
                        struct sl_pull_headers *headers, char error[CURL_ERROR_SIZE],
                        struct curl_slist **out_list) {
    const char *protocols = strncmp(url, "https:", 6) == 0 ? "https" : "http,https";
    CURL *c = curl_easy_init();
    struct curl_slist *list = NULL;
    char line[1024];
    *out_list = NULL;
    error[0] = '\0';
    *headers = (struct sl_pull_headers){0};
    if (!c)
        return NULL;
    bool ok = curl_easy_setopt(c, CURLOPT_URL, url) == CURLE_OK;
    ok &= curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, protocols) == CURLE_OK;
    ok &= curl_easy_setopt(c, CURLOPT_REDIR_PROTOCOLS_STR, protocols) == CURLE_OK;
    ok &= curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 1L) == CURLE_OK;
    ok &= curl_easy_setopt(c, CURLOPT_MAXREDIRS, (long)SL_PULL_MAX_REDIRECTS) == CURLE_OK;
    ok &= curl_easy_setopt(c, CURLOPT_ERRORBUFFER, error) == CURLE_OK;
    ok &= curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L) == CURLE_OK;
    ok &= curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, (long)http->timeout_s) == CURLE_OK;
    ok &= curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, 1L) == CURLE_OK;
    ok &= curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, (long)http->timeout_s) == CURLE_OK;
    ok &= curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header) == CURLE_OK;
    ok &= curl_easy_setopt(c, CURLOPT_HEADERDATA, headers) == CURLE_OK;
    ok &= curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, on_progress) == CURLE_OK;
    ok &= curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L) == CURLE_OK;
    ok &= curl_easy_setopt(c, CURLOPT_BUFFERSIZE, 256L * 1024) == CURLE_OK;
    ok &= curl_easy_setopt(c, CURLOPT_USERAGENT, "sluice") == CURLE_OK;
    if (ok && http->token && sl_pull_http_may_have_token(url)) {
        snprintf(line, sizeof line, "Authorization: Bearer %s", http->token);
        list = curl_slist_append(NULL, line);
        explicit_bzero(line, sizeof line);
        ok = list && curl_easy_setopt(c, CURLOPT_HTTPHEADER, list) == CURLE_OK;
    }
    if (!ok) {
        curl_easy_cleanup(c);
        curl_slist_free_all(list);
        return NULL;
    }
    *out_list = list;
    return c;
}

bool sl_pull_http_transient(CURLcode code, long http_status) {
    switch (code) {
    case CURLE_OK:
    case CURLE_WRITE_ERROR:
        return http_status == 408 || http_status == 429 || http_status >= 500;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
    case CURLE_PARTIAL_FILE:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_AGAIN:
        return true;
    default:
        return false;
    }
}

uint64_t sl_pull_http_pause_ns(const struct sl_pull_headers *h, uint32_t n) {
    uint64_t ms = 50ull << (n < 9 ? n : 9);
    if (ms > 20000)
        ms = 20000;
    uint64_t asked_ms = 1000ull * h->retry_after_s;
    return (asked_ms > ms ? asked_ms : ms) * 1000000u;
}

bool sl_pull_http_wait(uint64_t ns) {
    const struct timespec poll = {.tv_nsec = SL_INTERRUPT_POLL_MS * 1000000};
    uint64_t until_ns = sl_now_ns() + ns;
    while (!sl_interrupt_pending()) {
        if (sl_now_ns() >= until_ns)
            return true;
        nanosleep(&poll, NULL);
    }
    return false;
}

enum sl_status sl_pull_http_fail(const struct sl_pull_http *http, const char *url, CURLcode code,
                                 long http_status, const char *error, struct sl_err *err) {
    if (code == CURLE_ABORTED_BY_CALLBACK || sl_interrupt_pending())
        return sl_fail(err, SL_ERR_CANCELED, "interrupted");
    if (code != CURLE_OK && !(code == CURLE_WRITE_ERROR && http_status >= 400))
        return sl_fail(err, SL_ERR_IO, "%.200s: %s", url,
                       error[0] ? error : curl_easy_strerror(code));
    if (http_status == 401 || http_status == 403)
        return sl_fail(err, SL_ERR_INVALID, "%.200s: the server answered %ld: %s", url, http_status,
                       http->token ? "the token may not read this"
                                   : "it may need a token: --token-file or SLUICE_HF_TOKEN");
    return sl_fail(err, SL_ERR_IO, "%.200s: the server answered %ld%s", url, http_status,
                   http_status == 404 ? ": there is no such repository or file" : "");
}

struct body {
    CURL *c;
    char *bytes;
    size_t n, max;
    bool over;
};

static size_t on_body(char *bytes, size_t one, size_t n, void *ctx) {
    struct body *b = ctx;
    n *= one;
    if (n > b->max - b->n) {
        b->over = true;
        return 0;
    }
    char *more = realloc(b->bytes, b->n + n + 1);
    if (!more)
        return 0;
    b->bytes = more;
    memcpy(b->bytes + b->n, bytes, n);
    b->n += n;
    b->bytes[b->n] = '\0';
    return n;
}

enum sl_status sl_pull_http_get(const struct sl_pull_http *http, const char *url, size_t max_bytes,
                                char **out, size_t *out_bytes, struct sl_err *err) {
    for (uint32_t attempt = 1;; attempt++) {
        struct sl_pull_headers headers;
        char error[CURL_ERROR_SIZE];
        struct curl_slist *list;
        struct body b = {.max = max_bytes};
        long status = 0;
        CURL *c = sl_pull_http_open(http, url, &headers, error, &list);
        if (!c)
            return sl_fail(err, SL_ERR_NOMEM, "out of memory");
        curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
        curl_easy_setopt(c, CURLOPT_WRITEDATA, &b);
        CURLcode code = curl_easy_perform(c);
        curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &status);
        curl_easy_cleanup(c);
        curl_slist_free_all(list);
        if (code == CURLE_OK && status == 200 && b.bytes) {
            *out = b.bytes;
            *out_bytes = b.n;
            return SL_OK;
        }
        free(b.bytes);
        if (b.over)
            return sl_fail(err, SL_ERR_PROTOCOL, "%.200s: the answer has more than %zu bytes", url,
                           max_bytes);
        if (!sl_pull_http_transient(code, status) || attempt > http->retries ||
            !sl_pull_http_wait(sl_pull_http_pause_ns(&headers, attempt)))
            return sl_pull_http_fail(http, url, code, status, error, err);
    }
}

/* The headers are all that a probe is for. */
static size_t no_body(char *bytes, size_t one, size_t n, void *ctx) {
    (void)bytes, (void)ctx;
    return one * n > 1 ? 0 : one * n;
}

enum sl_status sl_pull_http_probe(const struct sl_pull_http *http, const char *url,
                                  struct sl_pull_headers *out, bool *out_ranges,
                                  struct sl_err *err) {
    for (uint32_t attempt = 1;; attempt++) {
        char error[CURL_ERROR_SIZE];
        struct curl_slist *list;
        long status = 0;
        CURL *c = sl_pull_http_open(http, url, out, error, &list);
        if (!c)
            return sl_fail(err, SL_ERR_NOMEM, "out of memory");
        curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, no_body);
        curl_easy_setopt(c, CURLOPT_RANGE, "0-0");
        CURLcode code = curl_easy_perform(c);
        curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &status);
        curl_easy_cleanup(c);
        curl_slist_free_all(list);
        if ((code == CURLE_OK || code == CURLE_WRITE_ERROR) && (status == 200 || status == 206)) {
            *out_ranges = status == 206;
            if (status == 200)
                out->total_bytes = out->content_bytes;
            if (!out->total_bytes)
                return sl_fail(err, SL_ERR_PROTOCOL,
                               "%.200s: the server does not say how long the file is, or it is "
                               "empty or above 16 TiB",
                               url);
            if (!out->linked_sha256[0])
                read_hash(out->linked_sha256, out->etag);
            return SL_OK;
        }
        if (!sl_pull_http_transient(code, status) || attempt > http->retries ||
            !sl_pull_http_wait(sl_pull_http_pause_ns(out, attempt)))
            return sl_pull_http_fail(http, url, code, status, error, err);
    }
}
