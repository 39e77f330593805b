/* What a request says about the form of its answer: response_format and grammar, and the engine's
 * constraint made of it. */
#ifndef SL_SERVER_CONSTRAIN_H
#define SL_SERVER_CONSTRAIN_H

#include "engine/engine.h"
#include "model/automaton.h"
#include "server/errors.h"

#include <jansson.h>

/* Reads `response_format` and `grammar`; *out_grammar is the caller's (sl_grammar_destroy), NULL
 * when any text will do. False: e names the field, and the keyword of a schema that cannot be
 * honoured. */
bool sl_constrain_read(const json_t *body, struct sl_grammar **out_grammar,
                       struct sl_http_error *e);

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
