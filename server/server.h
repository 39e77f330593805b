/* The HTTP server: OpenAI's, Anthropic's and Ollama's APIs, whole and streamed, and endpoints for
 * operators, over one engine.
 *
 * Lifetime: create binds the port and answers at once (/health says "loading"); attach or fail
 * follows when the model has loaded; drain stops accepting; destroy ends everything.
 * Threads: libmicrohttpd's pool moves bytes and never waits; a few workers parse, render templates
 * and tokenize; a watcher notices disconnected clients; the engine's scheduler calls the sinks. */
#ifndef SL_SERVER_SERVER_H
#define SL_SERVER_SERVER_H

#include "engine/engine.h"
#include "model/tokenizer/tokenizer.h"
#include "server/types/config.h"

struct sl_server;

/* Binds and listens. SL_ERR_CONFIG with a text for a port in use, a bad certificate, etc. */
enum sl_status sl_server_create(const struct sl_server_config *config,
                                struct sl_server **out_server, struct sl_err *err) SL_MUST_CHECK;
/* The bound port; 0 = none. */
uint16_t sl_server_port(const struct sl_server *s);
/* Reads tls_cert and tls_key again, for the next handshakes; on an error the old ones stay. One
 * thread at a time. */
enum sl_status sl_server_reload_tls(struct sl_server *s, struct sl_err *err) SL_MUST_CHECK;

/* For /health while the model loads. Any thread. */
void sl_server_progress(struct sl_server *s, uint64_t done_bytes, uint64_t total_bytes);

/* Starts serving the model. Call once, and not after sl_server_fail. A template that does not
 * compile is logged and refused at each chat request; the other endpoints work. SL_ERR_CANCELED:
 * sl_server_drain was called meanwhile. */
enum sl_status sl_server_attach(struct sl_server *s, const struct sl_server_model *model,
                                struct sl_err *err) SL_MUST_CHECK;
/* The model did not load: /health and every request say why. */
void sl_server_fail(struct sl_server *s, const struct sl_err *err);

/* Closes the port; requests on connections still open get 503. Running answers go on. */
void sl_server_drain(struct sl_server *s);
/* The number of requests not answered yet. */
uint32_t sl_server_active(struct sl_server *s);
/* Cancels every generation and rendering; the clients get an error. */
void sl_server_cancel(struct sl_server *s);
/* Drains, cancels, waits for the last answer, frees. The engine must still exist. */
void sl_server_destroy(struct sl_server **s);

#endif
