/* A request as its caller states it: prompt, sampling, constraint, and where its tokens go. */
#ifndef SL_ENGINE_TYPES_REQUEST_H
#define SL_ENGINE_TYPES_REQUEST_H

#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Restricts an answer, token by token. Called on the scheduler thread, between a request's submit
 * and its finish: must not block. */
struct sl_constraint {
    /* Sets every logit [n_vocab] whose token may not come next to -INFINITY. */
    enum sl_status (*mask)(struct sl_constraint *c, float *logits, uint32_t n_vocab);
    /* The token that was chosen, which was allowed. */
    enum sl_status (*accept)(struct sl_constraint *c, uint32_t token);
    struct sl_err err; /* why one of them failed; the request fails with it */
};

/* Texts that end a repetition for DRY (engine/sample/dry.h). */
#define SL_DRY_MAX_BREAKERS      32u
#define SL_DRY_MAX_BREAKER_BYTES 64u
struct sl_dry_breakers {
    /* A token's text, as the bytes that the vocabulary has for it; called on the scheduler thread:
     * must not block. */
    const char *(*text)(const void *ctx, uint32_t token, uint32_t *out_len);
    const void *ctx;
    uint32_t n;
    struct {
        char bytes[SL_DRY_MAX_BREAKER_BYTES];
        uint32_t len; /* at least 1 */
    } breaker[SL_DRY_MAX_BREAKERS];
};

#define SL_DRY_MAX_LENGTH 4096u /* of a repetition; longer ones count as this long */
struct sl_dry {
    float multiplier;        /* 0 = off */
    float base;              /* from 1 */
    uint32_t allowed_length; /* at most SL_DRY_MAX_LENGTH */
    uint32_t last_n; /* how many tokens back it looks, prompt included; 0 = off, UINT32_MAX = all */
    const struct sl_dry_breakers *breakers; /* NULL = none; borrowed until finish */
};

struct sl_sampling {
    float temperature;                    /* 0 = greedy */
    float top_p, min_p, typical_p;        /* 1, 0, 1 = off */
    uint32_t top_k;                       /* 0 = off */
    float top_n_sigma;                    /* 0 = off */
    float xtc_probability, xtc_threshold; /* 0 = off; above 0.5 = off */
    float repeat_penalty; /* 1 = off; divides positive, multiplies negative logits of tokens seen */
    uint32_t repeat_last_n; /* how many tokens back the three penalties look, prompt included;
                               UINT32_MAX = all */
    float presence_penalty, frequency_penalty; /* 0 = off */
    struct sl_dry dry;
    uint64_t seed;                    /* the same seed reproduces the answer */
    struct sl_constraint *constraint; /* NULL = none; borrowed until finish */
    uint32_t min_tokens; /* none of `held` is chosen before so many tokens have been; 0 = off */
    uint32_t n_held;
    const uint32_t *held; /* borrowed until finish */
    uint32_t n_logit_bias;
    const struct sl_logit_bias {
        uint32_t token;
        float bias; /* added to the logit; -INFINITY forbids */
    } * logit_bias; /* borrowed until finish */
};
/* temperature 1, everything else off; what is off has the settings that it is usually used with. */
extern const struct sl_sampling sl_sampling_default;

#define SL_MAX_TOP_LOGPROBS 20u

/* What a request's routed experts cost. The cost of a step of several sessions is divided by their
 * rows. */
struct sl_expert_use {
    uint64_t hits;       /* asked for and present, each once a layer and step */
    uint64_t late;       /* ... being prefetched */
    uint64_t misses;     /* ... on disk */
    uint64_t read_bytes; /* from disk while its steps ran */
    uint64_t stall_ns;   /* time its steps waited for experts */
};

struct sl_token {
    uint32_t id;
    bool eog;      /* the model ended its turn with this token; nothing follows */
    float logprob; /* natural logarithm, of the distribution before temperature and filters;
                      valid when the request asked for log-probabilities */
    uint32_t n_top;
    struct {
        uint32_t id;
        float logprob;
    } top[SL_MAX_TOP_LOGPROBS];
    const struct sl_expert_use *use; /* of the request so far; only while push runs */
    uint32_t n_cached;               /* prompt tokens found in the prefix cache */
};

enum sl_finish_reason {
    SL_FINISH_STOP,   /* end-of-generation token */
    SL_FINISH_LENGTH, /* max_tokens or the context is reached */
    SL_FINISH_CANCELED,
    SL_FINISH_ERROR,
};

struct sl_gen_result {
    enum sl_finish_reason reason;
    enum sl_status status; /* SL_OK unless canceled or error */
    struct sl_err err;
    uint32_t n_prompt, n_predicted;
    uint32_t n_cached;                        /* of n_prompt: those found in the prefix cache */
    uint32_t n_draft, n_draft_accepted;       /* tokens that were drafted; of them: in the answer */
    uint64_t queue_ns, prefill_ns, decode_ns; /* wall clock of this request */
    struct sl_expert_use experts;
};

/* How far the engine is with a prompt. */
struct sl_prompt_progress {
    uint32_t n_done;   /* tokens that are computed or were cached */
    uint32_t n_cached; /* of them: found in the prefix cache */
    uint32_t n_prompt;
    uint64_t ns; /* since the request left the queue */
};

/* Where a request's tokens go. Called on the scheduler thread: must not block. */
struct sl_token_sink {
    /* SL_AGAIN parks the request: the same token is offered again after sl_engine_resume. */
    enum sl_status (*push)(struct sl_token_sink *s, const struct sl_token *token);
    /* After each step that computed some of the prompt; may be NULL. */
    void (*progress)(struct sl_token_sink *s, const struct sl_prompt_progress *p);
    /* Called exactly once, last; the request is the caller's again, and neither the gauges nor
     * sl_engine_slots show it any more. */
    void (*finish)(struct sl_token_sink *s, const struct sl_gen_result *result);
};

struct sl_gen_request {
    const uint32_t *prompt; /* borrowed until finish */
    uint32_t n_prompt;      /* at least 1 */
    uint32_t max_tokens;    /* 0 = until the context is full */
    bool prompt_only;       /* compute the prompt and leave it in the prefix cache; no answer */
    bool ignore_eog;        /* benchmarks: generate on */
    bool no_cache;          /* reuse nothing of other requests, and leave nothing to them */
    /* NULL = not wanted; else called on the scheduler thread before the first token, in order, with
     * each token of the prompt but the first and its log-probability, or with the hidden state
     * [n_embd] of each after the output norm: must not block. All of the prompt is computed, in
     * steps of such requests alone; nothing comes from the prefix cache or goes there. */
    void (*scored)(struct sl_token_sink *s, uint32_t pos, const struct sl_token *token);
    void (*hidden)(struct sl_token_sink *s, uint32_t pos, const float *row);
    uint64_t deadline_ns; /* monotonic clock (common/clock.h): if not finished by then, it fails
                             with SL_ERR_TIMEOUT; 0 = none */
    /* NULL, or max_tokens ids that the answer shall have, whatever the model says (benchmarks,
     * comparisons): computed and pushed as if they had been sampled, including the time that takes.
     * Borrowed until finish. */
    const uint32_t *forced;
    struct sl_sampling sampling;
    bool logprobs;
    uint32_t n_top_logprobs; /* at most SL_MAX_TOP_LOGPROBS */
    const uint32_t *eog;     /* ids that end the answer; borrowed until finish */
    uint32_t n_eog;
    struct sl_token_sink *sink;
    void *engine_private; /* the engine's; zero at submit */
};

#endif
