/* A grammar at work: where a text stands in it, and which tokens may come next.
 *
 * The grammar's pushdown automaton is made deterministic as far as it is used: a state is the set
 * of all places where the text may stand, each with its stack of calls, and gets a number; steps
 * from state to state and the sets of tokens that a state allows are kept. When the memory for that
 * (fixed at creation) is full, all is forgotten but where the cursors stand. What is kept never
 * shows in the answers.
 *
 * An automaton and its cursors are for one thread at a time. Nothing is allocated after creation.
 */
#ifndef SL_MODEL_AUTOMATON_H
#define SL_MODEL_AUTOMATON_H

#include "model/grammar/grammar.h"
#include "model/grammar/vocab_trie.h"

struct sl_automaton;

/* Borrows g and vocab (NULL: only bytes will be pushed) until destroy. eog [n_eog]: the tokens that
 * end an answer, copied; allowed where the grammar's text is complete, and nowhere else.
 * Errors: SL_ERR_NOMEM. */
enum sl_status sl_automaton_create(const struct sl_grammar *g, const struct sl_vocab_trie *vocab,
                                   const uint32_t *eog, uint32_t n_eog,
                                   struct sl_automaton **out_automaton) SL_MUST_CHECK;
/* After its cursors. */
void sl_automaton_destroy(struct sl_automaton **a);
/* The most that it comes to hold, without the grammar and the vocabulary; does not change. */
uint64_t sl_automaton_memory_bytes(const struct sl_automaton *a);

/* A place in the grammar. Cheap to copy with sl_cursor_copy. */
struct sl_cursor {
    struct sl_automaton *a;
    struct sl_cursor *prev, *next; /* of the automaton */
    uint32_t state;
    bool started; /* a token was taken */
    bool ended;   /* an end-of-generation token was taken */
};
/* At the start of the grammar. Errors: as push. */
enum sl_status sl_cursor_init(struct sl_cursor *c, struct sl_automaton *a,
                              struct sl_err *err) SL_MUST_CHECK;
void sl_cursor_copy(struct sl_cursor *to, const struct sl_cursor *from);
void sl_cursor_release(struct sl_cursor *c);

uint32_t sl_cursor_n_vocab(const struct sl_cursor *c);

/* Moves on. SL_ERR_INVALID: not allowed here, the cursor stays where it was. SL_ERR_UNSUPPORTED:
 * the grammar is too ambiguous to be followed within the bounds. */
enum sl_status sl_cursor_push_bytes(struct sl_cursor *c, const char *bytes, size_t len,
                                    struct sl_err *err) SL_MUST_CHECK;
enum sl_status sl_cursor_push_token(struct sl_cursor *c, uint32_t id,
                                    struct sl_err *err) SL_MUST_CHECK;
/* The text may end here. */
bool sl_cursor_complete(const struct sl_cursor *c);
/* The set of tokens that may come next: bit id % 64 of word id / 64, [(n_vocab + 63) / 64], valid
 * until the next call. SL_ERR_UNSUPPORTED: as above, or no token of the vocabulary can go on. */
enum sl_status sl_cursor_mask(struct sl_cursor *c, const uint64_t **out_set,
                              struct sl_err *err) SL_MUST_CHECK;

/* Sets the logits [n_logits] that are not in a set of n_vocab tokens to -INFINITY. */
void sl_token_set_apply(const uint64_t *set, uint32_t n_vocab, float *logits, uint32_t n_logits);

#endif
