#include "server/request/budget.h"

#include <math.h>
#include <string.h>

/* An answer that has not opened its reasoning within so many tokens has none. */
#define MAX_BEFORE 8u

static void go_to(struct sl_budgeted *c, enum sl_budget_state state) {
    c->state = state;
    c->n_tokens = c->n_forced = c->n_tail = 0;
}

static void spend(struct sl_budgeted *c) {
    if (c->state == SL_BUDGET_INSIDE && c->n_tokens >= c->budget->tokens)
        go_to(c, SL_BUDGET_CLOSING);
}

static enum sl_status mask(struct sl_constraint *base, float *logits, uint32_t n_vocab) {
    struct sl_budgeted *c = (struct sl_budgeted *)base;
    if (c->inner) {
        enum sl_status status = c->inner->mask(c->inner, logits, n_vocab);
        if (status != SL_OK) {
            base->err = c->inner->err;
            return status;
        }
    }
    if (c->state != SL_BUDGET_CLOSING)
        return SL_OK;
    uint32_t id = c->budget->close.ids[c->n_forced];
    if (c->inner && logits[id] == -INFINITY)
        return SL_OK; /* the form does not allow it here: later */
    for (uint32_t i = 0; i < n_vocab; i++)
        logits[i] = i == id ? 0 : -INFINITY;
    return SL_OK;
}

/* Has the text of this state come to the marker? */
static bool reaches(struct sl_budgeted *c, uint32_t token, const char *marker) {
    struct sl_str piece = sl_tokenizer_piece(c->budget->tok, token, true);
    uint32_t most = sizeof c->tail;
    size_t n = piece.len < most ? piece.len : most;
    if (c->n_tail + n > most) {
        uint32_t keep = most - (uint32_t)n;
        memmove(c->tail, c->tail + c->n_tail - keep, keep);
        c->n_tail = keep;
    }
    if (n)
        memcpy(c->tail + c->n_tail, piece.ptr + piece.len - n, n);
    c->n_tail += (uint32_t)n;
    return marker && memmem(c->tail, c->n_tail, marker, strlen(marker));
}

static enum sl_status accept_token(struct sl_constraint *base, uint32_t token) {
    struct sl_budgeted *c = (struct sl_budgeted *)base;
    const struct sl_reasoning_budget *b = c->budget;
    if (c->inner) {
        enum sl_status status = c->inner->accept(c->inner, token);
        if (status != SL_OK) {
            base->err = c->inner->err;
            return status;
        }
    }
    c->n_tokens++;
    switch (c->state) {
    case SL_BUDGET_BEFORE:
        if (reaches(c, token, b->opens))
            go_to(c, SL_BUDGET_INSIDE);
        else if (c->n_tokens == MAX_BEFORE)
            go_to(c, SL_BUDGET_BEHIND);
        break;
    case SL_BUDGET_INSIDE:
        if (reaches(c, token, b->ends))
            go_to(c, SL_BUDGET_BEHIND);
        break;
    case SL_BUDGET_CLOSING:
        c->n_forced = token == b->close.ids[c->n_forced] ? c->n_forced + 1 : 0;
        if (c->n_forced == b->close.n || reaches(c, token, b->ends))
            go_to(c, SL_BUDGET_BEHIND);
        break;
    case SL_BUDGET_BEHIND:
        break;
    }
    spend(c);
    return SL_OK;
}

void sl_budgeted_init(struct sl_budgeted *c, const struct sl_reasoning_budget *budget,
                      struct sl_constraint *inner) {
    *c = (struct sl_budgeted){.base = {.mask = mask, .accept = accept_token},
                              .budget = budget,
                              .inner = inner,
                              .state = budget->open ? SL_BUDGET_INSIDE : SL_BUDGET_BEFORE};
    spend(c);
}
