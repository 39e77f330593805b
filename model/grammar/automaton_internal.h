/* Inside of the automaton: automaton.c (states and steps), automaton_mask.c (sets of tokens). */
#ifndef SL_MODEL_AUTOMATON_INTERNAL_H
#define SL_MODEL_AUTOMATON_INTERNAL_H

#include "model/grammar/automaton.h"
#include "model/grammar/grammar_internal.h"

#define SL_A_DEAD    0u         /* the state of no text */
#define SL_A_UNKNOWN UINT32_MAX /* in a row: not worked out */

/* All memory is taken at creation and touched only as it is used. */
#define SL_A_MAX_STATES  (1u << 13)
#define SL_A_MAX_PLACES  (1u << 18) /* of all states */
#define SL_A_MAX_FRAMES  (1u << 17)
#define SL_A_STATE_SLOTS (1u << 14)
#define SL_A_FRAME_SLOTS (1u << 18)
#define SL_A_SEEN_SLOTS  (1u << 14)
#define SL_A_SET_PLACES  4096u /* places of one state at most */
/* Work of one call, in places looked at (about 30 ns each). */
#define SL_A_MAX_WORK 3000000u
/* Of all calls together: what each may take without being counted, and how much more there may be.
 * A grammar that needs much for every token would hold up everybody else's answers again and again;
 * so it may a few times (some 0.2 s), then its answer fails. Usual ones stay far below. */
#define SL_A_FREE_WORK 10000u
#define SL_A_MAX_DEBT  6000000u
#define SL_A_MASKS     32u

/* A place: the node to come, the step within its character, the stack. */
#define SL_A_PLACE(frame, node, sub)                                                               \
    ((uint64_t)(frame) << 32 | (uint64_t)(node) << 14 | (uint64_t)(sub))
#define SL_A_FRAME(place) ((uint32_t)((place) >> 32))
#define SL_A_NODE(place)  ((uint32_t)((place) >> 14) & (SL_GRAMMAR_MAX_NODES - 1))
#define SL_A_SUB(place)   ((uint32_t)(place) & (SL_G_MAX_SUBS - 1))
/* sub of a character not begun: no sub table is numbered so high, see SL_G_MAX_SUBS's use */
#define SL_A_FRESH (SL_G_MAX_SUBS - 1)
/* sub of an OTHER: it is waiting for the token before to end; its own token has begun. FRESH: its
 * token begins with the next byte. */
#define SL_A_WAITS  (SL_G_MAX_SUBS - 2)
#define SL_A_INSIDE (SL_G_MAX_SUBS - 3)

struct sl_a_state {
    uint32_t first, n; /* places[], ascending */
    uint32_t hash;
    uint16_t mask; /* index of its set of tokens, SL_A_MASKS = none */
    bool complete;
    bool token; /* has an OTHER that waits or is inside: the end of a token changes it */
};

/* A return: to node, then to the frame below. Frame 0 is the bottom. */
struct sl_a_frame {
    uint32_t node, below;
};

struct sl_automaton {
    const struct sl_grammar *g;
    const struct sl_vocab_trie *vocab;
    uint32_t *eog;
    uint32_t n_eog;
    struct sl_cursor *cursors;
    uint32_t n_cls;

    struct sl_a_state *states;
    uint32_t n_states;
    uint32_t *row; /* [n_states][n_cls] */
    uint64_t *places;
    uint32_t n_places;
    struct sl_a_frame *frames;
    uint32_t n_frames;
    uint32_t *state_slots, *frame_slots; /* number, 0 = free */
    uint32_t start;                      /* SL_A_UNKNOWN = not worked out */

    /* A set of places in the making. */
    uint64_t *set;
    uint32_t n_set;
    bool set_complete;
    bool in_token;  /* the set is of a place within or at the end of a token, before sl_a_token */
    uint64_t *seen; /* places that were entered, open addressing; 0 = free */
    uint32_t *seen_used;
    uint32_t n_seen;
    uint64_t *todo;
    uint32_t work, max_work; /* of the call */
    uint32_t debt;           /* of the calls before it */
    bool failed;

    /* Sets of tokens. */
    uint64_t *masks; /* [SL_A_MASKS][vocab->n_words] */
    uint32_t mask_state[SL_A_MASKS];
    uint32_t next_mask;
    uint32_t *path; /* [max_depth + 1] states of a walk */
};

/* The state after a byte; SL_A_UNKNOWN: a bound is reached, a->failed is set. */
uint32_t sl_a_step(struct sl_automaton *a, uint32_t state, uint32_t cls);
/* The state after the token id has ended; SL_A_DEAD: it was not allowed. Errors as sl_a_step. */
uint32_t sl_a_token(struct sl_automaton *a, uint32_t state, uint32_t id);
/* Would that be another state than SL_A_DEAD? */
bool sl_a_may_be(const struct sl_automaton *a, uint32_t state, uint32_t id);
/* Makes room for a call's work: forgets when half of some memory is used. */
void sl_a_begin(struct sl_automaton *a);
/* A call has failed. True: there was something kept that another attempt does without, and now it
 * is forgotten, so that what ran before does not decide. States get other numbers. */
bool sl_a_again(struct sl_automaton *a);
enum sl_status sl_a_too_much(struct sl_err *err);

#endif
