/* What clients of chat completions write about reasoning under other names than `reasoning_effort`
 * and `reasoning_budget`:
 *
 *   reasoning        {effort, max_tokens, enabled, exclude: false} (OpenRouter, OpenAI's Responses)
 *   thinking         {type: enabled, adaptive, auto or disabled, budget_tokens} (Anthropic, and
 *                    those who follow it)
 *   enable_thinking  true or false (Qwen)
 *
 * They become variables of the template (enable_thinking, thinking) and reasoning_budget; what the
 * request says in chat_template_kwargs or reasoning_budget itself comes first. An effort of "none"
 * turns thinking off. */
#ifndef SL_SERVER_THINKING_H
#define SL_SERVER_THINKING_H

#include "server/types/errors.h"

#include <jansson.h>

/* Changes the body of a chat completion. False: e names the field. */
bool sl_thinking_read(json_t *body, struct sl_http_error *e);

#endif
