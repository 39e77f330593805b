/* Names of this server, as Host headers and Origin headers give them. */
#ifndef SL_SERVER_HOSTS_H
#define SL_SERVER_HOSTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* "Example.org.:8080" is host "example.org", port "8080"; addresses are in their shortest form. */
struct sl_authority {
    char host[256];
    char port[6]; /* empty: not given */
    bool is_address, is_loopback;
};
/* False: no host, or not a name or an address, with or without a port. */
bool sl_authority_read(const char *text, size_t n, struct sl_authority *out);

/* Which names are this server's. A web page whose own name is made to point to this machine (DNS
 * rebinding) sends that name; it cannot send an address or another's name. */
struct sl_known_hosts {
    const char *const *names; /* [n_names] allowed besides; "*" = any */
    uint32_t n_names;
    const char *const *bound; /* [n_bound] names or addresses it listens on */
    uint32_t n_bound;
    bool only_loopback;    /* it listens on nothing else: other addresses are not its own */
    const char *host_name; /* of the machine; NULL or empty = not known */
};
/* localhost and loopback addresses are always known. If it listens on others, all addresses are,
 * and the machine's name, as it is, without its domain, and with ".local" instead. */
bool sl_host_is_known(const struct sl_known_hosts *k, const struct sl_authority *a);

/* Whether a page of this origin ("http://localhost:8080") came from the server that it asks as
 * `host`. A port that is the scheme's own may be given or not. */
bool sl_origin_is_host(const char *origin, size_t n, const struct sl_authority *host);

#endif
