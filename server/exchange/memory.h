/* How much memory the server may take besides the engine, for the memory plan, and the limits that
 * follow from a given sum.
 *
 * Four things grow with what clients send: bodies being received, what a worker makes of one
 * (values, template, tokens), answers waiting for their clients, and connections. Each has a limit;
 * requests beyond it are refused with 413, 400 or 503. Responses that are kept have one too: for a
 * new one, old ones go. */
#ifndef SL_SERVER_MEMORY_H
#define SL_SERVER_MEMORY_H

#include "model/jinja/chat_template.h"
#include "server/types/config.h"

/* With less, the limits would refuse ordinary requests; with this, bodies of 300 KiB still pass. */
#define SL_SERVER_LEAST_BYTES ((uint64_t)32 << 20)

/* Replaces every 0 by its default. */
void sl_server_defaults(struct sl_server_config *c);
/* Replaces every 0 so that sl_server_memory_bytes is at most bytes, or as close as the fields that
 * are set, and SL_SERVER_LEAST_BYTES, allow. */
void sl_server_fit(struct sl_server_config *c, uint64_t bytes);
/* The most memory that a server of this configuration can hold. */
uint64_t sl_server_memory_bytes(const struct sl_server_config *config);

/* The limits within a worker; the configuration must have no zeros. */
uint32_t sl_server_json_units(const struct sl_server_config *c);
uint64_t sl_server_tokenize_bytes(const struct sl_server_config *c);
struct sl_template_limits sl_server_template_limits(const struct sl_server_config *c);

#endif
