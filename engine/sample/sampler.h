/* From logits to a token.
 *
 * Order, fixed: logit bias, penalties (repeat, then frequency and presence), the constraint, top-k,
 * typical, top-p, min-p, temperature, one draw. Filters see the distribution at temperature 1; each
 * works on what the one before left, renormalised, and leaves at least one candidate. Equal
 * candidates go by lower id. Temperature 0 takes the largest logit after bias and penalties.
 *
 * A device that has written the logits may have written the maxima and the sums of their blocks too
 * (sl_op_block_max): then what is far below the largest need not be looked at, nor, in a draw, any
 * other block than the one it falls in. With them or without, answers are the same.
 *
 * Every random number is one sl_rng_unit per token: the same seed reproduces the answer.
 * source: top-k Fan et al. 2018; top-p Holtzman et al. 2019; typical Meister et al. 2022; min-p
 * Nguyen et al. 2024; repeat penalty CTRL, Keskar et al. 2019. */
#ifndef SL_ENGINE_SAMPLER_H
#define SL_ENGINE_SAMPLER_H

#include "common/rng.h"
#include "engine/types/request.h"
#include "engine/sample/vocab_pass.h"

/* Work arrays, shared by all requests of one thread. */
struct sl_sampler_space {
    uint32_t n_vocab;
    const struct sl_vocab_pass *pass;
    float *key, *mass;    /* [n_vocab] */
    uint32_t *id, *order; /* [n_vocab] */
    float *spare;         /* [n_vocab] a row's logits as they came, or what filters left of them */
    float *block_max;     /* [SL_VOCAB_BLOCKS(n_vocab)] */
    float *block_sum;     /* the same, of exponentials at the inverse temperature */
    float sums_at;        /* that; 0: block_sum is not known */
    uint32_t *count;      /* [n_vocab], all 0 between calls */
    uint32_t *bucket_n;   /* [SL_SAMPLER_BUCKETS] */
    double *bucket_mass;  /* [SL_SAMPLER_BUCKETS] */
};
#define SL_SAMPLER_BUCKETS 1024u

enum sl_status sl_sampler_space_init(struct sl_sampler_space *space,
                                     uint32_t n_vocab) SL_MUST_CHECK;
void sl_sampler_space_release(struct sl_sampler_space *space);
uint64_t sl_sampler_space_bytes(uint32_t n_vocab);

/* Names the first setting that makes no sense. Ids in the bias list must be below n_vocab. */
enum sl_status sl_sampling_check(const struct sl_sampling *s, uint32_t n_vocab,
                                 struct sl_err *err) SL_MUST_CHECK;

struct sl_sampler {
    struct sl_sampling set; /* borrows set.logit_bias */
    struct sl_rng rng;
};
void sl_sampler_init(struct sl_sampler *s, const struct sl_sampling *set);

/* Picks a token. logits [n_vocab] are changed where there is a bias, a penalty or a constraint, and
 * else only read. blocks: what is known of theirs; NULL: nothing. history: the session's tokens so
 * far, prompt included, for the penalties. out_logit: the token's logit as it came; NULL: not
 * wanted. SL_ERR_INVALID: the logits hold NaN or +infinity, or nothing but forbidden tokens, or the
 * maxima are none of theirs. A constraint's error is passed on; when this returns it has the token.
 */
enum sl_status sl_sampler_pick(struct sl_sampler *s, struct sl_sampler_space *space, float *logits,
                               const struct sl_vocab_blocks *blocks, const uint32_t *history,
                               uint32_t n_history, uint32_t *out_id,
                               float *out_logit) SL_MUST_CHECK;

/* The inverse temperature at which these settings have use for the sums of a row's blocks; 0: none.
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
 * change the logits. known: as blocks above. lse = sl_log_sum_exp(). Top: the n_top most likely,
 * best first; fewer where the maxima are none of the logits', none where sl_sampler_pick() refuses
 * them. */
double sl_log_sum_exp(const float *logits, const struct sl_vocab_blocks *known, uint32_t n);
void sl_top_logprobs(struct sl_sampler_space *space, const float *logits,
                     const struct sl_vocab_blocks *known, double lse, uint32_t n_top,
                     struct sl_token *out_token);

#endif
