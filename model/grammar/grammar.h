/* Grammars that bound what a model may write: GBNF text, compiled to a pushdown automaton over
 * bytes.
 *
 * The notation: rules `name ::= alternatives`, "literals", [classes] of characters, `.` for any
 * character, <[1234]> for the token of that number, <text> for the token of that text, !<[1234]>
 * and
 * !<text> for any one token but that, (groups), the repetitions * + ? {m} {m,} {m,n}, # comments;
 * the rule `root` is the start. Escapes: \n \r \t \\ \" \[ \] \- \^ \xHH \uHHHH \UHHHHHHHH. Classes
 * match characters, so what comes out is well-formed UTF-8 but where a token is negated.
 *
 * Text from strangers is safe here: size, nesting, repetition and the number of nodes are bounded,
 * left recursion is refused, alternatives that can never end are dropped.
 *
 * An immutable sl_grammar may be shared by threads. */
#ifndef SL_MODEL_GRAMMAR_H
#define SL_MODEL_GRAMMAR_H

#include "common/status.h"
#include "model/tokenizer/tokenizer.h"

#include <stddef.h>
#include <stdint.h>

struct sl_grammar;

#define SL_GRAMMAR_MAX_TEXT_BYTES (4u << 20)
#define SL_GRAMMAR_MAX_NODES      (1u << 18) /* about one per byte of a literal or per repetition */
#define SL_GRAMMAR_MAX_REPEAT     20000u     /* in {m,n} */
#define SL_GRAMMAR_MAX_DEPTH      100u       /* of groups */

/* Errors: SL_ERR_INVALID with the line and what to do; SL_ERR_NOMEM. text is not kept. */
enum sl_status sl_grammar_parse(const char *text, size_t len, struct sl_grammar **out_grammar,
                                struct sl_err *err) SL_MUST_CHECK;
/* The same from another rule. */
enum sl_status sl_grammar_parse_from(const char *text, size_t len, const char *start,
                                     struct sl_grammar **out_grammar,
                                     struct sl_err *err) SL_MUST_CHECK;
/* The same for a vocabulary. Without one a token is known by its number alone, and must be a
 * control token. */
enum sl_status sl_grammar_parse_for(const struct sl_tokenizer *tok, const char *text, size_t len,
                                    const char *start, struct sl_grammar **out_grammar,
                                    struct sl_err *err) SL_MUST_CHECK;
void sl_grammar_destroy(struct sl_grammar **g);
/* What it holds; does not change. */
uint64_t sl_grammar_memory_bytes(const struct sl_grammar *g);

/* A control token has no text that a grammar could match: in its place stand these bytes, which no
 * text has (0xff is in no UTF-8). */
#define SL_GRAMMAR_TOKEN_BYTES 5u
#define SL_GRAMMAR_MAX_TOKEN   ((1u << 28) - 1)
void sl_grammar_token(uint32_t id, char out_bytes[SL_GRAMMAR_TOKEN_BYTES]);
/* What stands for a token of a vocabulary in grammars: its text, or those bytes, in buf. Empty: no
 * grammar can ask for it. */
struct sl_str sl_grammar_token_text(const struct sl_tokenizer *tok, uint32_t id,
                                    char buf[SL_GRAMMAR_TOKEN_BYTES]);

#endif
