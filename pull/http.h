/* Handles of libcurl as all requests here need them, and what a response's headers said.
 *
 * https alone is followed, unless the user wrote http. A token goes to the host that it was given
 * for and to no other that this one redirects to.
 *
 * Threads: a handle belongs to one thread. */
#ifndef SL_PULL_HTTP_H
#define SL_PULL_HTTP_H

#include "pull/source.h"

#include <curl/curl.h>

#define SL_PULL_MAX_REDIRECTS 10
#define SL_PULL_MAX_RETRIES   1000u

struct sl_pull_http {
    const char *token;  /* NULL = none */
    uint32_t timeout_s; /* without a byte */
    uint32_t retries;   /* in a row, without a byte between them */
};

/* Of the last response in a chain of redirects; linked_* of any in it. */
struct sl_pull_headers {
    char etag[160];         /* "" = none, or a weak one */
    char modified[64];      /* Last-Modified */
    uint64_t range_begin;   /* Content-Range */
    uint64_t total_bytes;   /* of the whole file; 0 = not said */
    uint64_t content_bytes; /* Content-Length, with a 200 the same */
    uint32_t retry_after_s; /* at most SL_PULL_MAX_RETRY_AFTER_S */
    char linked_sha256[SL_PULL_HASH_BYTES];
    uint64_t linked_bytes;
};
#define SL_PULL_MAX_RETRY_AFTER_S 60u

/* A handle for url whose headers go to *headers, which outlives it; *out_list is freed by the
 * caller after it. NULL: no memory. */
CURL *sl_pull_http_open(const struct sl_pull_http *http, const char *url,
                        struct sl_pull_headers *headers, char error[CURL_ERROR_SIZE],
                        struct curl_slist **out_list) SL_MUST_CHECK;

/* Is it of use to try again? Network errors, 408, 429, and the server's own (5xx). */
bool sl_pull_http_transient(CURLcode code, long http_status);
/* How long to wait before attempt n (from 1), in ns. */
uint64_t sl_pull_http_pause_ns(const struct sl_pull_headers *headers, uint32_t n);
/* Waits, and looks for signals; false: one came. */
bool sl_pull_http_wait(uint64_t ns);
/* What a failed request is reported as. */
enum sl_status sl_pull_http_fail(const struct sl_pull_http *http, const char *url, CURLcode code,
                                 long http_status, const char *error, struct sl_err *err);

/* The body of url, of at most max_bytes, in *out with a zero after it: release with free(). */
enum sl_status sl_pull_http_get(const struct sl_pull_http *http, const char *url, size_t max_bytes,
                                char **out, size_t *out_bytes, struct sl_err *err) SL_MUST_CHECK;
/* Asks for the first byte of url: what its headers say. *out_ranges: the server sends ranges.
 * SL_ERR_PROTOCOL: it does not say how long the file is. */
enum sl_status sl_pull_http_probe(const struct sl_pull_http *http, const char *url,
                                  struct sl_pull_headers *out, bool *out_ranges,
                                  struct sl_err *err) SL_MUST_CHECK;

/* May a token be sent there: https, or this machine itself. */
bool sl_pull_http_may_have_token(const char *url);

#endif
