/* Inside of answer grammars: shared by model/answer_grammar*.c alone. */
#ifndef SL_MODEL_ANSWER_GRAMMAR_INTERNAL_H
#define SL_MODEL_ANSWER_GRAMMAR_INTERNAL_H

#include "model/chat/answer_grammar.h"

struct sl_answer_rules {
    const struct sl_answer_grammar *g;
    const struct sl_answer_format *f;
    struct sl_schema_rules *r;
    struct sl_buf *b;     /* r->out */
    struct sl_ids tokens; /* the format's control tokens */
    uint32_t n_texts;
    struct sl_err *err;
};

/* answer_grammar_text.c */

/* A marker: literals, and tokens for what are control tokens in it. NULL: nothing. */
void sl_answer_put_marker(struct sl_answer_rules *c, struct sl_buf *b, const char *text);
/* The rule "sl-t<*out_rule>-0": any text in which none of markers [n] (NULL: none) occurs. */
enum sl_status sl_answer_free_text(struct sl_answer_rules *c, const char *const *markers,
                                   uint32_t n, uint32_t *out_rule) SL_MUST_CHECK;

/* answer_grammar_calls.c: the rule "sl-calls". */
enum sl_status sl_answer_calls(struct sl_answer_rules *c) SL_MUST_CHECK;
/* The rule "sl-call<i>-arguments": JSON. */
enum sl_status sl_answer_arguments(struct sl_answer_rules *c, uint32_t i) SL_MUST_CHECK;
const json_t *sl_answer_function(const struct sl_answer_rules *c, uint32_t i);
const char *sl_answer_function_name(const struct sl_answer_rules *c, uint32_t i);
bool sl_answer_is_strict(const struct sl_answer_rules *c, uint32_t i);
/* Of a strict function's schema: err names the function. */
enum sl_status sl_answer_blame(struct sl_answer_rules *c, uint32_t i,
                               enum sl_status status) SL_MUST_CHECK;
/* Text alone, whatever tokens there are. */
void sl_answer_put_text(struct sl_buf *b, const char *text);

/* answer_grammar_params.c: the rule "sl-call<i>"; text_rule is that of values. */
enum sl_status sl_answer_tagged_call(struct sl_answer_rules *c, uint32_t i,
                                     uint32_t text_rule) SL_MUST_CHECK;
enum sl_status sl_answer_literal_call(struct sl_answer_rules *c, uint32_t i,
                                      uint32_t text_rule) SL_MUST_CHECK;

#endif
