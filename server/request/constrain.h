/* What a request says about the form of its answer: response_format and grammar, and the engine's
 * constraint made of it. */
#ifndef SL_SERVER_CONSTRAIN_H
#define SL_SERVER_CONSTRAIN_H

#include "engine/engine.h"
#include "model/grammar/automaton.h"
#include "model/grammar/json_schema.h"
#include "server/types/errors.h"

#include <jansson.h>

/* The form that a request asks of its answer's content, as rules of a grammar that others may join.
 * Zero-initialise; release also after a failure. */
struct sl_content_form {
    struct sl_buf text;
    struct sl_schema_rules rules; /* of text; not begun where a grammar was given */
    const char *field;            /* that asked for it; NULL: any text will do */
    bool is_grammar;
    char rule[24]; /* to start from */
};
/* Reads `response_format` and `grammar`. False: e names the field, and the keyword of a schema that
 * cannot be honoured. */
bool sl_content_form_read(const json_t *body, struct sl_content_form *out, struct sl_http_error *e);
void sl_content_form_release(struct sl_content_form *f);
/* *out_grammar is the caller's (sl_grammar_destroy); NULL when any text will do. field: the one to
 * blame. */
bool sl_content_form_compile(const struct sl_content_form *f, const char *rule, const char *field,
                             struct sl_grammar **out_grammar, struct sl_http_error *e);

/* The answers to one request: choices share the automaton, for the engine runs them on one thread.
 */
struct sl_constrained {
    struct sl_constraint base; /* first: the engine's pointer is ours */
    struct sl_cursor cursor;
    enum sl_status status; /* of the start; the first mask fails with it */
};
void sl_constrained_init(struct sl_constrained *c, struct sl_automaton *a);
void sl_constrained_release(struct sl_constrained *c);

#endif
