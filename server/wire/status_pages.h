/* A few read-only pages about a process, over HTTP: what a worker says of itself to probes and to
 * Prometheus. No TLS, no keys, no requests with bodies; for a private network.
 *
 * Bounded: 32 connections, of which the oldest gives way to a new one, 8 KiB each; a connection
 * that says nothing is closed after five seconds. One thread serves all. */
#ifndef SL_SERVER_STATUS_PAGES_H
#define SL_SERVER_STATUS_PAGES_H

#include "common/status.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>

struct sl_status_pages;

struct sl_status_page {
    const char *path, *content_type;
    /* Writes the body and returns the HTTP status. On the server's thread. */
    unsigned (*write)(void *ctx, FILE *out);
};

/* pages is borrowed until stop. SL_ERR_CONFIG: the address cannot be listened on. */
enum sl_status sl_status_pages_start(const struct sockaddr *at, socklen_t n_at,
                                     const struct sl_status_page *pages, size_t n_pages, void *ctx,
                                     struct sl_status_pages **out_pages,
                                     struct sl_err *err) SL_MUST_CHECK;
/* The port that was taken. */
uint16_t sl_status_pages_port(const struct sl_status_pages *p);
void sl_status_pages_stop(struct sl_status_pages **p);

#endif
