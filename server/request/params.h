/* The parameters of a generation request, besides its prompt. */
#ifndef SL_SERVER_PARAMS_H
#define SL_SERVER_PARAMS_H

#include "engine/engine.h"
#include "model/grammar/grammar.h"
#include "server/answer/splitter.h"
#include "server/answer/stop.h"
#include "server/request/budget.h"
#include "server/request/constrain.h"
#include "server/request/fields.h"

#define SL_MAX_CHOICES 128u

/* What a renderer needs to know of the request besides the parameters. */
struct sl_request_about {
    char *members;      /* owned; JSON members that the answer repeats: ,"a":1,"b":2; NULL = none */
    char *input;        /* owned; items to be kept with the response, JSON; NULL: nothing is kept */
    char *previous;     /* owned; the id of the response that it goes on from; NULL = none */
    json_t *fields;     /* owned; names of the members that are wanted; NULL = all */
    bool return_tokens; /* a whole answer has its ids too */
    bool carry_reasoning; /* send reasoning in a form that clients send back */
};

void sl_request_about_release(struct sl_request_about *a);

struct sl_gen_params {
    bool stream, include_usage;
    uint32_t n;          /* choices per prompt */
    uint32_t max_tokens; /* 0 = until the context is full */
    bool prompt_only;    /* no answer; max_tokens is 1 */
    bool embeds;         /* the answer is a vector of each prompt: */
    bool pools_last;     /* the last token's hidden state; else the mean of all */
    bool base64;         /* as the bytes of floats */
    bool ignore_eos;
    bool timings_per_token; /* in streams of OpenAI's and llama.cpp's APIs */
    bool return_progress;   /* of the prompt, in the same streams */
    bool raw_reasoning;     /* reasoning stays in the content, with its markers */
    uint32_t *stop_ids;     /* owned; tokens that end the answer besides the model's own */
    uint32_t n_stop_ids;
    bool cache_prompt; /* reuse cached prefixes, and leave this prompt to others */
    float timeout_s;   /* for the whole request, waiting included; 0 = the server's */
    bool logprobs;
    uint32_t n_top_logprobs;
    bool prompt_logprobs;              /* also of the prompt, which is echoed */
    struct sl_sampling sampling;       /* logit_bias points to bias */
    struct sl_logit_bias *bias;        /* owned */
    struct sl_dry_breakers *breakers;  /* owned; sampling.dry's, NULL = none */
    struct sl_stop_set stop;           /* owned */
    uint32_t n_own_stop;               /* how many of them are the request's: the first */
    struct sl_grammar *grammar;        /* owned; NULL = any text */
    struct sl_reasoning_budget budget; /* owned */
    bool splits;                       /* answers have parts: */
    struct sl_splitter_config split;
    json_t *tools; /* split's; owned */
    char *header;  /* split's; owned */
    struct sl_request_about about;
};

enum sl_api {
    SL_API_CHAT,
    SL_API_COMPLETIONS,
    SL_API_RESPONSES,
    SL_API_MESSAGES,
    SL_API_OLLAMA_CHAT,
    SL_API_OLLAMA_GENERATE,
    SL_API_NATIVE, /* llama.cpp's own */
    SL_API_EMBEDDINGS,
    SL_API_OLLAMA_EMBED,
    SL_API_OLLAMA_EMBEDDINGS, /* the older one, of one text */
};

/* Reads the fields that chat and text completions share, and those of the API; tok bounds ids and
 * reads the words of logit_bias. For every API but text completions the body is a chat's
 * (translate.h). out must be zero; release it even on failure. */
bool sl_params_read(const json_t *body, enum sl_api api, const struct sl_tokenizer *tok,
                    struct sl_gen_params *out, struct sl_http_error *e);
/* Compiles the form from this rule into p->grammar ("": none). field: the one that errors name; tok
 * has the tokens that a grammar names. */
bool sl_params_bind(struct sl_gen_params *p, const struct sl_content_form *form, const char *rule,
                    const char *field, const struct sl_tokenizer *tok, struct sl_http_error *e);
void sl_params_release(struct sl_gen_params *p);

#endif
