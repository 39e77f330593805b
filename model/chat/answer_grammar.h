/* Grammars of whole answers: reasoning, then calls of a request's tools in the family's own form,
 * or content.
 *
 * What they hold an answer to is what server/answer/splitter.h reads: a complete text of the
 * grammar gives calls of the functions allowed, with arguments that their schemas take. */
#ifndef SL_MODEL_ANSWER_GRAMMAR_H
#define SL_MODEL_ANSWER_GRAMMAR_H

#include "model/chat/answer_format.h"
#include "model/grammar/json_schema.h"

enum sl_tool_choice {
    SL_TOOLS_NONE,     /* content */
    SL_TOOLS_AUTO,     /* content, calls, or calls behind content */
    SL_TOOLS_REQUIRED, /* calls */
};

struct sl_answer_grammar {
    const struct sl_answer_format *format;
    const struct sl_tokenizer *tok;
    const json_t *tools; /* those that may be called; checked by sl_tools_check */
    enum sl_tool_choice choice;
    bool parallel; /* more than one call */
    bool thinks;
    enum sl_answer_place place;
    const char *content; /* the rule of the content; NULL: any text */
};

#define SL_MAX_TOOLS       256u
#define SL_MAX_CALLS       32u /* of one answer that a grammar binds */
#define SL_TOOL_NAME_BYTES 128u

/* Names, descriptions and the shape of schemas. Errors: SL_ERR_INVALID, the text says which tool;
 * out_index is its place, SL_MAX_TOOLS and more for the array itself. */
enum sl_status sl_tools_check(const json_t *tools, size_t *out_index,
                              struct sl_err *err) SL_MUST_CHECK;

/* Appends the rules behind those of r; the start is "sl-answer", and other names begin with "sl-"
 * too. A function whose `strict` is true has its schema kept to the letter or is an error that
 * names it; of another whose schema cannot be followed the arguments are any JSON object. Errors:
 * SL_ERR_INVALID, SL_ERR_NOMEM. */
enum sl_status sl_answer_grammar(const struct sl_answer_grammar *g, struct sl_schema_rules *r,
                                 struct sl_err *err) SL_MUST_CHECK;

#endif
