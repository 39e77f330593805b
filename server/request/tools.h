/* What a request says about tools: which functions there are, which of them may or must be called,
 * and how that is told to a model and its template.
 * Source: OpenAI API reference, chat completions: tools, tool_choice, parallel_tool_calls. */
#ifndef SL_SERVER_TOOLS_H
#define SL_SERVER_TOOLS_H

#include "model/chat/answer_grammar.h"
#include "server/types/errors.h"

/* Zero-initialise; release also after a failure. */
struct sl_tool_use {
    const json_t *shown; /* to the model: the request's array; borrowed, NULL = none */
    json_t *callable;    /* of it what may be called: an array, owned; NULL = none */
    enum sl_tool_choice choice;
    bool parallel;
    bool only_some; /* not all that are shown may be called */
    bool bound;     /* calls are held to a grammar */
};

/* Checks `tools`, `tool_choice` and `parallel_tool_calls`. False: e names the field, and the tool.
 */
bool sl_tool_use_read(const json_t *body, struct sl_tool_use *out, struct sl_http_error *e);
void sl_tool_use_release(struct sl_tool_use *u);
/* What the parsed array holds, about. NULL: nothing. */
uint64_t sl_tools_memory_bytes(const json_t *tools);

/* Messages as the format's templates take them; all change the array in place. False: out of
 * memory. */

/* Calls and their results as text, and the tools described in a system message (or in the user's
 * first, for templates that refuse a system message): for models whose templates know nothing of
 * tools. */
bool sl_tools_as_text(json_t *messages, const json_t *tools, bool in_user_message);
/* Ids of nine letters and digits, which Mistral's templates insist on. */
bool sl_tools_short_ids(json_t *messages);
/* What was thought before a call, under the name that gpt-oss' template has for it. */
bool sl_tools_thinking(json_t *messages);

#endif
