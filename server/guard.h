/* The checks before a request's body is read: whether it can be framed in one way only, who sends
 * it, and from which web page. Runs on the connection's thread, with the headers in. */
#ifndef SL_SERVER_GUARD_H
#define SL_SERVER_GUARD_H

#include "server/exchange/exchange.h"

/* False, with ex->error: another program on the way could read the request differently
 * (server/wire/wire.h). Checks the head, and the body if called again when that is in. The
 * connection must end with the answer. */
bool sl_guard_wire(struct sl_exchange *ex);
/* The same for the head, including its version. */
bool sl_guard_framing(struct sl_exchange *ex, const char *version);

/* Without keys: the Host header must be a name of this server. Otherwise, with ex->error, the
 * client may be a web page whose name was made to resolve here (DNS rebinding). A client without
 * Host (HTTP/1.0) is no browser, and no browser uses a UNIX socket. */
bool sl_guard_host(struct sl_exchange *ex);

/* Has a valid API key, or the server has none. */
bool sl_guard_has_key(const struct sl_exchange *ex);
/* Whose the request is, for what is kept of it: the number of its key from 1 on; 0 where there are
 * no keys, or it has none. */
uint32_t sl_guard_owner(const struct sl_exchange *ex);
/* The endpoint needs no API key, or the request has a valid one. */
bool sl_guard_key(const struct sl_exchange *ex);

/* Without keys: false, with ex->error, for a request with an effect that another site's page sends
 * through a browser (which sends a preflight only for some of them). */
bool sl_guard_page(struct sl_exchange *ex);

/* The web page's origin if --cors-origin allows it, for Access-Control-Allow-Origin; else NULL.
 * Valid while the connection is. */
const char *sl_guard_origin(const struct sl_exchange *ex);
/* Is it a CORS preflight? These carry no key. */
bool sl_guard_preflight(const struct sl_exchange *ex);

#endif
