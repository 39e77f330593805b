/* DRY ("don't repeat yourself"): the penalty on tokens that would lengthen a repetition.
 *
 * The history is the last `last_n` tokens, prompt included, h[0..N). For a token t, n is the length
 * of the longest suffix of the history that t has followed before: the largest n with
 * h[p-n..p) = h[N-n..N) for some p < N with h[p] = t. It is counted up to SL_DRY_MAX_LENGTH. If t
 * has been seen in h[1..N) and n >= allowed_length, its logit is lowered by
 *
 *     min(multiplier * base^(n - allowed_length), SL_DRY_MAX_PENALTY)
 *
 * The bound keeps the logit finite, so that a token which a grammar demands can still come.
 *
 * Sequences do not reach across breakers. A breaker is a text, and is found wherever its bytes
 * stand in the text of the history, however they are divided into tokens, over at most as many
 * tokens as it has bytes: within one token, at the end of one and the beginning of the next, or in
 * several. Control tokens have the text of their names. n is at most the number of tokens behind
 * the last one in which a breaker ends. A token whose own text contains a breaker is never
 * penalised; one that only completes a breaker is. (llama.cpp looks for the breaker's first token
 * and one way to encode the rest; by text, the other ways are found too.)
 *
 * Time is linear in N: the Z algorithm on the reversed history, with a pattern of at most
 * SL_DRY_MAX_LENGTH tokens, whose table is all the memory it needs. Breakers are looked for only
 * when some n is large enough, only in the n last tokens, and once in each: a text of breakers that
 * nearly match would take longer than the model.
 *
 * source: p-e-w, text-generation-webui, pull request 5677 (2024); semantics of llama.cpp. */
#ifndef SL_ENGINE_DRY_H
#define SL_ENGINE_DRY_H

#include "engine/types/request.h"

#define SL_DRY_MAX_PENALTY 1e6f

static inline bool sl_dry_is_on(const struct sl_dry *d) {
    return d->multiplier > 0 && d->last_n > 0;
}

/* Tokens [from, to) of a history in which no breaker ends: what is known of them. Initially zero,
 * for a history that only grows. */
struct sl_dry_clear {
    uint32_t from, to;
};

/* Finds the tokens that are penalised. table: [SL_DRY_MAX_LENGTH]; count: [vocabulary], all 0, and
 * again so on return; out_id and out_penalty: [vocabulary]. Tokens of the history are below the
 * vocabulary's size. Returns how many. Nothing is allocated. */
uint32_t sl_dry_find(const struct sl_dry *d, const uint32_t *history, uint32_t n_history,
                     struct sl_dry_clear *clear, uint32_t *table, uint32_t *count, uint32_t *out_id,
                     float *out_penalty);

enum sl_status sl_dry_check(const struct sl_dry *d, struct sl_err *err) SL_MUST_CHECK;

#endif
