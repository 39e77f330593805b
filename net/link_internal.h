/* Inside net/: a link as it is made. */
#ifndef SL_NET_LINK_INTERNAL_H
#define SL_NET_LINK_INTERNAL_H

#include "net/address.h"
#include "net/link.h"
#include "net/transport.h"

/* Of a transport that has proven itself, taken over also on failure. */
enum sl_status sl_link_create(struct sl_transport *t, const struct sl_net_address *peer,
                              const struct sl_link_config *config, struct sl_link **out,
                              struct sl_err *err) SL_MUST_CHECK;
/* A socket that does not block and sends without delay; -1 with errno. */
int sl_net_socket(const struct sl_net_address *a);
void sl_net_no_delay(int fd, const struct sl_net_address *a);

#endif
