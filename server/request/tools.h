/* The tools of a request: which functions there are, which of them may or must be called, and how a
 * model and its template are told.
 * Source: OpenAI API reference, chat completions: tools, tool_choice, parallel_tool_calls. */
#ifndef SL_SERVER_TOOLS_H
#define SL_SERVER_TOOLS_H

#include "model/chat/answer_grammar.h"
#include "server/types/errors.h"

/* Zero-initialise; release even on failure. */
struct sl_tool_use {
    const json_t *shown; /* to the model: the request's array; borrowed, NULL = none */
    json_t *callable;    /* those that may be called: an array, owned; NULL = none */
    enum sl_tool_choice choice;
    bool parallel;
    bool only_some; /* not all that are shown may be called */
    bool bound;     /* calls are constrained by a grammar */
};

/* Checks `tools`, `tool_choice` and `parallel_tool_calls`. False: e names the field, and the tool.
 */
bool sl_tool_use_read(const json_t *body, struct sl_tool_use *out, struct sl_http_error *e);
void sl_tool_use_release(struct sl_tool_use *u);
/* The approximate memory of the parsed array. NULL: 0. */
uint64_t sl_tools_memory_bytes(const json_t *tools);

/* These rewrite the array of messages in place for the format's templates. False: out of
 * memory. */

/* Writes calls and their results as text, and describes the tools in a system message (or in the
 * first user message, for templates that refuse a system message): for models whose templates do
 * not support tools. */
bool sl_tools_as_text(json_t *messages, const json_t *tools, bool in_user_message);
/* Ids of nine letters and digits, which Mistral's templates insist on. */
bool sl_tools_short_ids(json_t *messages);
/* Reasoning under the name that a template has for it; NULL: before calls alone, under the name of
 * gpt-oss' template. */
bool sl_tools_thinking(json_t *messages, const char *key);

#endif
