/* What is looked at before a request's body is read: is it framed in one way only, who sends it,
 * from which web page. On the connection's thread, with the headers in. */
#ifndef SL_SERVER_GUARD_H
#define SL_SERVER_GUARD_H

#include "server/exchange/exchange.h"

/* False, with ex->error: a request that another program on the way could read differently
 * (server/wire/wire.h), in its head, or, asked when the body is in, in that. The connection must
 * end with the answer. */
bool sl_guard_wire(struct sl_exchange *ex);
/* The same of the head, and its version. */
bool sl_guard_framing(struct sl_exchange *ex, const char *version);

/* Without keys: the client calls this server by a name that is its own. Else, with ex->error, it
 * may be a web page whose name was made to point here (DNS rebinding). A client that gives no name
 * (HTTP/1.0) is no browser, and none comes by a UNIX socket. */
bool sl_guard_host(struct sl_exchange *ex);

/* Sends a right API key, or none is asked for. */
bool sl_guard_has_key(const struct sl_exchange *ex);
/* Needs no API key, or has a right one. */
bool sl_guard_key(const struct sl_exchange *ex);

/* Without keys: not a request with an effect that another site's page sends through a browser,
 * which asks first for some of them only. Else ex->error is set. */
bool sl_guard_page(struct sl_exchange *ex);

/* The web page's origin if --cors-origin allows it, for Access-Control-Allow-Origin; else NULL.
 * Valid while the connection is. */
const char *sl_guard_origin(const struct sl_exchange *ex);
/* A browser's question whether its page may send a request: it carries no key. */
bool sl_guard_preflight(const struct sl_exchange *ex);

#endif
