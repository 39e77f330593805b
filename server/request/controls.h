/* Fields of llama.cpp's and vLLM's APIs that steer sampling and the shape of an answer. */
#ifndef SL_SERVER_CONTROLS_H
#define SL_SERVER_CONTROLS_H

#include "server/request/params.h"

#define SL_MAX_STOP_IDS 256u

/* Reads logit_bias, stop_token_ids, reasoning_format, budgets, DRY's fields and samplers, and
 * refuses what this server does not do where a request turns it on. False: e names the field. */
bool sl_controls_read(const json_t *body, const struct sl_tokenizer *tok, struct sl_gen_params *p,
                      struct sl_http_error *e);

/* The names of what is refused unless it is off, from 0 up; NULL behind the last. */
const char *sl_controls_refused(size_t i);

#endif
