/* Ollama's API: shared by its files and http.c. */
#ifndef SL_SERVER_OLLAMA_H
#define SL_SERVER_OLLAMA_H

#include "server/types/errors.h"

#include <jansson.h>
#include <stdbool.h>

struct sl_exchange;

/* The version of Ollama's API that is followed here: clients refuse servers that they think old. */
#define SL_OLLAMA_VERSION "0.12.0"

/* Whether the request is of this API, whose errors have their own shape: decided by the path. */
bool sl_ollama_client(const struct sl_exchange *ex);
/* {"error":"text"} */
void sl_ollama_error(struct sl_buf *b, const struct sl_http_error *e);

/* `model` (or `name`), with or without a tag, must be a name of the one served. */
bool sl_ollama_check_model(struct sl_exchange *ex, const json_t *body);

/* An answer's first members, {"model":...,"created_at":"...", without the closing brace. */
void sl_ollama_head(struct sl_buf *b, const char *model);
/* The answer to a request without messages or prompt, which asks that the model be loaded, or, with
 * reason "unload", given up (it is not). chat: of /api/chat. */
void sl_ollama_loaded(struct sl_exchange *ex, bool chat, const char *reason);

/* The body of /api/show. */
void sl_ollama_put_show(struct sl_exchange *ex);

/* GET: of what is served. */
void sl_ollama_version_handle(struct sl_exchange *ex);
void sl_ollama_tags_handle(struct sl_exchange *ex);
void sl_ollama_ps_handle(struct sl_exchange *ex);

#endif
