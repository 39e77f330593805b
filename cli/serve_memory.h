/* How a budget is divided between the engine and the server: for `serve`, and for `plan`, which
 * predicts it. */
#ifndef SL_CLI_SERVE_MEMORY_H
#define SL_CLI_SERVE_MEMORY_H

#include "cli/process_memory.h"
#include "engine/plan/memory_plan.h"
#include "server/server.h"

/* Call it when model and tokenizer are open. Fills the limits of server that are 0, config's
 * process_* (rows in m, borrowed) and ram_bytes (what is free, if it was 0), and the plan. The
 * server gets SL_SERVER_LEAST_BYTES and a share of what is not needed: little if experts could use
 * it, more if they are all resident. If it does not fit: SL_ERR_CONFIG, and out_plan->least_bytes
 * would. */
enum sl_status sl_serve_plan(const struct sl_model *model, const struct sl_tokenizer *tok,
                             struct sl_engine_config *config, struct sl_server_config *server,
                             struct sl_process_memory *m, struct sl_memory_plan *out_plan,
                             char out_device[64], struct sl_err *err) SL_MUST_CHECK;

#endif
