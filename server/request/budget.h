/* A limit on an answer's reasoning, in tokens: when they are spent, the tokens of the closing
 * marker are forced, and the answer goes on behind it.
 *
 * Only what was chosen before decides it, so that an answer stays the same wherever it is made. */
#ifndef SL_SERVER_BUDGET_H
#define SL_SERVER_BUDGET_H

#include "engine/types/request.h"
#include "model/tokenizer/tokenizer.h"

#define SL_BUDGET_TAIL_BYTES 128u /* of the answer's text, more than any marker has */

struct sl_reasoning_budget {
    bool asked; /* the request says something: a limit, or that there is none */
    bool given;
    uint32_t tokens;
    bool open;                /* the answer begins inside the reasoning */
    const char *opens, *ends; /* markers; opens may be NULL if open; borrowed */
    struct sl_ids close;      /* the tokens of `ends`; owned */
    const struct sl_tokenizer *tok;
};

enum sl_budget_state { SL_BUDGET_BEFORE, SL_BUDGET_INSIDE, SL_BUDGET_CLOSING, SL_BUDGET_BEHIND };

/* A choice's constraint. */
struct sl_budgeted {
    struct sl_constraint base; /* first: the engine's pointer is ours */
    const struct sl_reasoning_budget *budget;
    struct sl_constraint *inner; /* the form of the answer; NULL = none */
    enum sl_budget_state state;
    uint32_t n_tokens; /* in this state */
    uint32_t n_forced; /* tokens of the closing marker so far */
    char tail[SL_BUDGET_TAIL_BYTES];
    uint32_t n_tail;
};
/* Everything given is borrowed until the request finishes. */
void sl_budgeted_init(struct sl_budgeted *c, const struct sl_reasoning_budget *budget,
                      struct sl_constraint *inner);

#endif
