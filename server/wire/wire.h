/* A filter between the socket and libmicrohttpd.
 *
 * libmicrohttpd is more lenient than RFC 9112 in some places (bare line feeds, bare carriage
 * returns, folded lines, values cut at a NUL byte) and stricter in others (white space after a
 * length, absolute URLs). Both lead to requests that a proxy in front and this server read
 * differently. So every byte of a connection passes through here first. Legal requests go on in one
 * canonical form. An illegal one ends as a complete request without a body, or with a shorter one,
 * marked as bad for the server to refuse; nothing after it is read as a request.
 *
 * Canonical: an absolute URL becomes a path and the only Host; one framing header, written last;
 * chunks without extensions or leading zeros; no trailers.
 * Source: RFC 9112, sections 2.2, 3, 5, 6 and 7.1. */
#ifndef SL_SERVER_WIRE_H
#define SL_SERVER_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_WIRE_AUTHORITY_MAX 255u
#define SL_WIRE_FEED_MAX      8192u
#define SL_WIRE_SPILL_MAX     1024u

/* One direction of one connection. Zero-initialise. One thread at a time. */
struct sl_wire {
    bool is_tls; /* the owner's: what is fed comes from gnutls_record_recv */
    uint8_t state;
    uint8_t n_version, n_name, n_encoding, n_empty;
    bool http10, absolute, host_sent, has_length, has_encoding;
    uint32_t n_hosts;
    uint32_t n_line; /* bytes of a method, of digits, or of a chunk's extension */
    uint32_t n_head; /* bytes of the head, or of the trailers */
    uint32_t n_authority;
    uint32_t n_dropped; /* bytes of the head's values that do not go on as they are */
    uint64_t length;    /* of the body, from its header */
    uint64_t left;      /* of the body, or of the chunk */
    char version[8], name[20];
    char authority[SL_WIRE_AUTHORITY_MAX + 1];

    uint32_t n_requests;  /* begun so far */
    uint32_t bad_request; /* the number of the one to refuse, from 1; 0 = none */
    const char *bad;      /* what is wrong with it; static */

    uint32_t spill_at, n_spill; /* output that found no room */
    char spill[SL_WIRE_SPILL_MAX];
};

/* Takes all n bytes of in and gives what libmicrohttpd may read of them, at most cap bytes: the
 * return value is their number, and what there is no room for is kept for sl_wire_drain. n is at
 * most cap and SL_WIRE_FEED_MAX, and nothing is kept from before. How the bytes are cut into calls
 * changes nothing. */
size_t sl_wire_feed(struct sl_wire *w, const char *in, size_t n, char *out, size_t cap);
/* A request was bad: nothing that is fed from now on gives anything. */
bool sl_wire_is_over(const struct sl_wire *w);
/* What was kept. */
size_t sl_wire_drain(struct sl_wire *w, char *out, size_t cap);

/* wire_recv.c: from now on, whoever reads this descriptor (libmicrohttpd, with recv or
 * gnutls_record_recv) gets what w lets through. Borrows w until detach, which comes before the
 * descriptor is closed. attach gives false without memory. */
bool sl_wire_attach(int fd, struct sl_wire *w);
void sl_wire_detach(int fd);

#endif
