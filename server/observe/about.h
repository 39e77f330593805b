/* Endpoints about the server itself. */
#ifndef SL_SERVER_ABOUT_H
#define SL_SERVER_ABOUT_H

#include "server/exchange/exchange.h"

/* GET /props, /slots, /metrics */
void sl_props_handle(struct sl_exchange *ex);
void sl_slots_handle(struct sl_exchange *ex);
void sl_metrics_handle(struct sl_exchange *ex);
/* Counts an answer with this status; route is NULL if the request had none. Any
 * thread. */
void sl_answers_count(const struct sl_server *s, const struct sl_route *route, unsigned status);

#endif
