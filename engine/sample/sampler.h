/* From logits to a token.
 *
 * The order is fixed: logit bias, tokens held back (min_tokens), penalties (repeat, then frequency
 * and presence), DRY (dry.h), the constraint, top-n-sigma, top-k, typical, top-p, min-p, XTC,
 * temperature, one draw. Filters see the distribution at temperature 1; each works on what the one
 * before left, renormalised, and leaves at least one candidate. Ties go to the lower id.
 * Temperature 0 takes the largest logit after bias and penalties, whatever the filters.
 *
 * Top-n-sigma keeps the logits that are at most so many standard deviations below the largest;
 * forbidden tokens count in neither. XTC, at a token with its probability, drops all candidates at
 * or above its threshold but the least likely of them (of equal ones the highest id), if there are
 * two.
 *
 * A device that has written the logits may also have written the maxima and sums of their blocks
 * (sl_op_block_max). Then blocks far below the largest logit need not be read, nor, in a draw, any
 * other block than the one it falls in. Answers are the same with and without them.
 *
 * Every random number is one sl_rng_unit per token, or with XTC two: the same seed reproduces the
 * answer. source: top-k Fan et al. 2018; top-p Holtzman et al. 2019; typical Meister et al. 2022;
 * min-p Nguyen et al. 2024; top-n-sigma Tang et al. 2024; XTC: p-e-w, text-generation-webui 2024;
 * DRY: see dry.h; repeat penalty CTRL, Keskar et al. 2019. */
#ifndef SL_ENGINE_SAMPLER_H
#define SL_ENGINE_SAMPLER_H

#include "common/rng.h"
#include "engine/sample/dry.h"
#include "engine/types/request.h"
#include "engine/sample/vocab_pass.h"

/* Work arrays, shared by all requests of one thread. */
struct sl_sampler_space {
    uint32_t n_vocab;
    const struct sl_vocab_pass *pass;
    float *key, *mass;    /* [n_vocab] */
    uint32_t *id, *order; /* [n_vocab] */
    float *spare;         /* [n_vocab] a row's original logits, or what filters left of them */
    float *block_max;     /* [SL_VOCAB_BLOCKS(n_vocab)] */
    float *block_sum;     /* the same, of exponentials at the inverse temperature */
    float sums_at;        /* that inverse temperature; 0: block_sum is not known */
    uint32_t *count;      /* [n_vocab], all 0 between calls */
    uint32_t *matches;    /* [SL_DRY_MAX_LENGTH] for DRY */
    uint32_t *bucket_n;   /* [SL_SAMPLER_BUCKETS] */
    double *bucket_mass;  /* [SL_SAMPLER_BUCKETS] */
};
#define SL_SAMPLER_BUCKETS 1024u

enum sl_status sl_sampler_space_init(struct sl_sampler_space *space,
                                     uint32_t n_vocab) SL_MUST_CHECK;
void sl_sampler_space_release(struct sl_sampler_space *space);
uint64_t sl_sampler_space_bytes(uint32_t n_vocab);

/* The error names the first invalid setting. Ids in the bias list must be below n_vocab. */
enum sl_status sl_sampling_check(const struct sl_sampling *s, uint32_t n_vocab,
                                 struct sl_err *err) SL_MUST_CHECK;

struct sl_sampler {
    struct sl_sampling set; /* borrows set.logit_bias */
    struct sl_rng rng;
    uint32_t n_picked; /* for min_tokens */
    struct sl_dry_clear clear;
};
void sl_sampler_init(struct sl_sampler *s, const struct sl_sampling *set);

/* Picks a token. logits [n_vocab] are changed if there is a bias, a penalty or a constraint, and
 * otherwise only read. blocks: what is known of their blocks; NULL: nothing. history: the session's
 * tokens so far, prompt included, for the penalties and DRY. out_logit: the token's original logit;
 * NULL: not wanted. SL_ERR_INVALID: the logits hold NaN or +infinity, or all tokens are forbidden,
 * or the maxima do not match them. A constraint's error is passed on; on return it has accepted the
 * token. */
enum sl_status sl_sampler_pick(struct sl_sampler *s, struct sl_sampler_space *space, float *logits,
                               const struct sl_vocab_blocks *blocks, const uint32_t *history,
                               uint32_t n_history, uint32_t *out_id,
                               float *out_logit) SL_MUST_CHECK;

/* The inverse temperature at which these settings can use the sums of a row's blocks; 0: none.
 * logprobs: log-probabilities are wanted too. */
float sl_sampling_sums_at(const struct sl_sampling *set, bool logprobs);

/* Do these settings take the largest logit, whatever came before? */
bool sl_sampling_is_largest(const struct sl_sampling *set);
/* Picks it, as sl_sampler_pick() would, from the maxima of the row's blocks and where they are.
 * SL_ERR_INVALID as there. */
enum sl_status sl_sampler_largest(struct sl_sampler_space *space,
                                  const struct sl_vocab_blocks *known,
                                  uint32_t *out_id) SL_MUST_CHECK;

/* Log-probabilities at temperature 1 without any filter. Not after sl_sampler_pick, which may
 * change the logits. known: like blocks above. lse = sl_log_sum_exp(). Top: the n_top most likely,
 * best first; fewer if the maxima do not match the logits, none if sl_sampler_pick() refuses them.
 */
double sl_log_sum_exp(const float *logits, const struct sl_vocab_blocks *known, uint32_t n);
void sl_top_logprobs(struct sl_sampler_space *space, const float *logits,
                     const struct sl_vocab_blocks *known, double lse, uint32_t n_top,
                     struct sl_token *out_token);

#endif
