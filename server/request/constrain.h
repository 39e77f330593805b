/* The constraints of a request on the form of its answer, response_format and alike, and the
 * engine's constraint made from them. */
#ifndef SL_SERVER_CONSTRAIN_H
#define SL_SERVER_CONSTRAIN_H

#include "engine/engine.h"
#include "model/grammar/automaton.h"
#include "model/grammar/json_schema.h"
#include "server/types/errors.h"

#include <jansson.h>

/* The requested form of the answer's content, as grammar rules that others may join.
 * Zero-initialise; release even on failure. */
struct sl_content_form {
    struct sl_buf text;
    struct sl_schema_rules rules; /* of text; unused if a grammar was given */
    const char *field;            /* the field that asked for it; NULL: any text will do */
    bool is_grammar;
    char rule[24]; /* to start from */
};
/* Reads the fields that ask for a form under OpenAI's names and those of other servers:
 * docs/STRUCTURED.md has the list. At most one of them may be given. False: e names the field, and
 * in a schema the keyword that is not supported. */
bool sl_content_form_read(const json_t *body, struct sl_content_form *out, struct sl_http_error *e);
void sl_content_form_release(struct sl_content_form *f);
/* *out_grammar is the caller's (sl_grammar_destroy); NULL if any text will do. field: the one that
 * errors name. */
bool sl_content_form_compile(const struct sl_content_form *f, const char *rule, const char *field,
                             const struct sl_tokenizer *tok, struct sl_grammar **out_grammar,
                             struct sl_http_error *e);

/* A choice's constraint. The choices of a request share the automaton, since the engine runs them
 * on one thread. */
struct sl_constrained {
    struct sl_constraint base; /* first: the engine's pointer is ours */
    struct sl_cursor cursor;
    enum sl_status status; /* of the start; if it failed, so does the first mask */
};
void sl_constrained_init(struct sl_constrained *c, struct sl_automaton *a);
void sl_constrained_release(struct sl_constrained *c);

#endif
