/* Addresses of peers: "host:port", "[v6]:port", "unix:PATH". */
#ifndef SL_NET_ADDRESS_H
#define SL_NET_ADDRESS_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

#define SL_NET_ADDRESSES 8u

struct sl_net_address {
    union {
        struct sockaddr any;
        struct sockaddr_storage storage;
        struct sockaddr_un un;
    };
    socklen_t n;
};

/* What a text names: up to SL_NET_ADDRESSES. listens: a host may be left out, for all addresses of
 * this machine. Asks the resolver, which may take a while. SL_ERR_CONFIG: no such address;
 * SL_ERR_PEER_LOST: the name is not known now. */
enum sl_status sl_net_resolve(const char *text, bool listens,
                              struct sl_net_address out[SL_NET_ADDRESSES], size_t *out_n,
                              struct sl_err *err) SL_MUST_CHECK;
/* The machines behind "name:port", each once: one that speaks IPv4 and IPv6 has an address of each
 * kind under the same name, and nothing tells which two belong together. So the addresses are those
 * of one kind: IPv4, which is what workers listen on unless they are told otherwise, or IPv6 where
 * the name has no other. */
enum sl_status sl_net_resolve_machines(const char *text,
                                       struct sl_net_address out[SL_NET_ADDRESSES], size_t *out_n,
                                       struct sl_err *err) SL_MUST_CHECK;
/* Does what is sent there stay on this machine? */
bool sl_net_is_local(const struct sl_net_address *a);
/* "10.0.0.7:51234", "unix:PATH". */
void sl_net_address_text(const struct sl_net_address *a, char *out, size_t size);

#endif
