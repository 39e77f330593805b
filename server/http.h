/* libmicrohttpd's side of the server, and the table of endpoints. */
#ifndef SL_SERVER_HTTP_H
#define SL_SERVER_HTTP_H

#include "server/exchange/exchange.h"

enum sl_status sl_http_start(struct sl_server *s, struct sl_err *err) SL_MUST_CHECK;
/* Takes no more connections. */
void sl_http_quiesce(struct sl_server *s);
void sl_http_stop(struct sl_server *s);

/* routes.c: the endpoints, in order. */
const struct sl_route *sl_routes(uint32_t *out_n);
/* A request's path under its one name: without doubled or trailing slashes, and with the prefix /v1
 * where clients leave it out (/chat/completions). malloc'd; NULL: out of memory. */
char *sl_route_path(const char *path);
/* The route of a request. NULL: e is set (404, 405); out_allow gets the methods for "Allow". */
const struct sl_route *sl_route_find(const char *method, const char *path, const char **out_allow,
                                     struct sl_http_error *e);

#endif
