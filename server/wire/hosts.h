/* Names of this server in Host and Origin headers. */
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
/* False: not a host (a name or an address) with an optional port. */
bool sl_authority_read(const char *text, size_t n, struct sl_authority *out);

/* The names of this server. A web page whose own name is made to resolve to this machine (DNS
 * rebinding) sends that name; it cannot send an address or another name. */
struct sl_known_hosts {
    const char *const *names; /* [n_names] further allowed names; "*" = any */
    uint32_t n_names;
    const char *const *bound; /* [n_bound] names or addresses it listens on */
    uint32_t n_bound;
    bool only_loopback;    /* it listens only on loopback addresses: no others are its own */
    const char *host_name; /* of the machine; NULL or empty = not known */
};
/* localhost and loopback addresses are always known. If the server listens on others, so are all
 * addresses and the machine's name: in full, without its domain, and with ".local". */
bool sl_host_is_known(const struct sl_known_hosts *k, const struct sl_authority *a);

/* Whether a page of this origin ("http://localhost:8080") came from the server that it calls
 * `host`. The scheme's default port may be given or not. */
bool sl_origin_is_host(const char *origin, size_t n, const struct sl_authority *host);

#endif
