/* How a budget is divided between the engine and the server: for `serve`, and for `plan`, which
 * predicts it. */
#ifndef SL_CLI_SERVE_MEMORY_H
#define SL_CLI_SERVE_MEMORY_H

#include "cli/process/process_memory.h"
#include "engine/plan/memory_plan.h"
#include "server/server.h"

#define SL_CTX_NOTE_BYTES 256u

/* Call it when model and tokenizer are open. Fills the limits of server that are 0, config's
 * process_* (rows in m, borrowed), ram_bytes (what is free, if it was 0) and ctx_tokens, and the
 * plan. A context that was 0 becomes as large as the model says and memory allows, at least the
 * engine's own default: a quarter of what is not needed may go to it, or an eighth of the experts'
 * slots. out_note then says what was chosen and why not more, and in any case when coding agents
 * need more; else it is empty. The server gets
 * SL_SERVER_LEAST_BYTES and a share of what is not needed: little if experts could use it, more if
 * they are all resident. If it does not fit: SL_ERR_CONFIG, and out_plan->least_bytes would. */
enum sl_status sl_serve_plan(const struct sl_model *model, const struct sl_tokenizer *tok,
                             struct sl_engine_config *config, struct sl_server_config *server,
                             struct sl_process_memory *m, struct sl_memory_plan *out_plan,
                             char out_device[64], char out_note[SL_CTX_NOTE_BYTES],
                             struct sl_err *err) SL_MUST_CHECK;

#endif
