/* One generation: the choices of one request, between the engine's sinks and the connection.
 *
 * Tokens cross in a ring per choice, under the exchange's lock (gen.c). On the connection's side
 * they become text, which is cut at stop strings and divided into parts (gen_text.c); the API's
 * renderer turns these into events or a body (renderer.h). A full ring parks the session until its
 * client reads on. */
#ifndef SL_SERVER_GEN_H
#define SL_SERVER_GEN_H

#include "server/answer/answer_parts.h"
#include "server/exchange/choice_state.h"
#include "server/exchange/exchange.h"
#include "server/request/constrain.h"
#include "server/request/params.h"

/* A token's log-probabilities, kept until its text is shown. */
struct sl_logprob_entry {
    struct sl_token token;
    uint64_t start_byte, end_byte; /* in the choice's text */
    uint64_t start_char;           /* in the text with the echo */
    uint32_t json_bytes;           /* of its JSON, at most */
    bool first;                    /* of the prompt: it has no probability */
};

enum sl_answer_end {
    SL_END_STOP,        /* the model ended it */
    SL_END_STOP_STRING, /* c->stop.which */
    SL_END_LENGTH,      /* max_tokens, or the context is full */
};

/* A renderer's position in a choice's stream. Initially zero. */
struct sl_render_state {
    bool in_block;          /* a block (an output item) is open */
    enum sl_part_kind kind; /* of it: CONTENT, REASONING or CALL */
    uint32_t block;         /* its number; when none is open, the next one's */
    bool has_line_break;    /* the text so far has one */
    uint32_t n_logprobs;    /* entries that are out */
};

struct sl_choice {
    struct sl_token_sink sink; /* first: the engine's pointer is ours */
    struct sl_gen *gen;
    uint32_t index;
    struct sl_gen_request req;
    struct sl_constrained constrained; /* with params.grammar */
    struct sl_budgeted budgeted;       /* with a limit on reasoning */

    /* under the exchange's lock */
    struct sl_token *ring; /* [gen->ring_tokens]; NULL without log-probabilities, then ring_ids */
    uint32_t *ring_ids;    /* id, top bit: end of generation */
    uint32_t ring_head, ring_count;
    enum sl_choice_state state; /* set by sl_choice_state_become() alone */
    bool refused;               /* the token offered last, which will be offered again */
    bool parked;                /* push returned SL_AGAIN and the engine was not told to go on */
    bool canceled;
    struct sl_gen_result result;           /* once it is FINISHED */
    uint32_t n_cached;                     /* of its prompt, up to the last token */
    uint64_t submit_ns, first_ns, last_ns; /* of submit and of the first and last token */
    struct sl_expert_use use;              /* up to the last token */

    double *pooled; /* [n_embd] with params.embeds: a sum, or the last; the scheduler's until the
                       end */
    struct sl_token *prompt_tokens; /* [req.n_prompt] with params.prompt_logprobs; the scheduler's
                                       until the first token, or the end */

    /* the connection's thread */
    struct sl_detok detok;
    struct sl_stop_state stop;
    uint32_t n_predicted;
    uint64_t text_bytes;           /* that the model made */
    uint64_t text_chars;           /* and those of the echo, if it has log-probabilities */
    uint64_t text_json, text_room; /* its size as JSON; how much of that is counted as held */
    uint64_t split_room;           /* bytes of the splitter that are counted as held */
    uint64_t shown_bytes;          /* after the stop strings */
    struct sl_logprob_entry *logprobs;
    uint32_t n_logprobs, cap_logprobs;
    uint32_t n_shown_logprobs;    /* the first of them belong to shown text */
    uint32_t n_content_logprobs;  /* and the first of those to content: the others are unsorted */
    uint64_t logprobs_json;       /* size of all of them as JSON */
    uint64_t logprobs_room;       /* how much of that is counted as held */
    struct sl_splitter *splitter; /* NULL: all is content */
    struct sl_segments segments;  /* where kept */
    bool opened;                  /* the first event, or the echo, is out */
    bool prompt_told;             /* the echo's tokens are among logprobs */
    uint32_t n_calls;             /* tool calls begun */
    uint32_t n_unsorted;          /* tokens since the last part */
    struct sl_ids ids;            /* where kept; of a stream those since its last event */
    uint32_t n_reasoning;         /* tokens that became reasoning */
    struct sl_render_state render;
    bool done;
    enum sl_answer_end end; /* valid when done and not failed */
};

struct sl_gen {
    struct sl_exchange *ex;
    const struct sl_served *served;
    enum sl_api api;
    const struct sl_renderer *renderer;
    bool keeps_parts; /* its choices keep their segments */
    bool keeps_ids;   /* and the ids of their tokens */
    struct sl_gen_params params;
    struct sl_ids *prompts; /* [n_prompts] */
    uint32_t n_prompts;
    struct sl_automaton *automaton; /* of params.grammar */
    uint32_t *eog;                  /* [n_eog] tokens that end an answer */
    uint32_t n_eog;
    char **echo;        /* [n_prompts] text shown before the answer, NULL = none */
    uint32_t n_choices; /* n_prompts * params.n; choice i answers prompt i / params.n */
    struct sl_choice *choices;
    uint32_t n_submitted; /* the first of them; embeddings: a few at a time */
    uint32_t ring_tokens;
    char id[48];
    int64_t created_s;
    struct sl_prompt_progress progress; /* of the first choice; under the exchange's lock */

    /* the connection's thread */
    struct sl_buf out; /* streams: events not sent yet, from out_sent on */
    size_t out_sent;
    bool begun;        /* renderer->begin is in out */
    uint32_t n_told;   /* with params.return_progress: as far as the last event said; 0 = none */
    bool ended;        /* the last event is in out */
    uint64_t n_events; /* the renderer's count */
    struct sl_http_error failure;
};

/* Takes over params and prompts (even on failure: then they are released and NULL is returned). */
struct sl_gen *sl_gen_create(struct sl_exchange *ex, enum sl_api api,
                             const struct sl_renderer *renderer, struct sl_gen_params *params,
                             struct sl_ids *prompts, char **echo, uint32_t n_prompts);
void sl_gen_destroy(struct sl_gen *g);
/* The bytes it is expected to hold until its client has read the answer; tells each choice its part
 * of that. Text counts four bytes a token, times sl_gen_text_cost. A grammar counts with its
 * automaton, which is at most half of the room for answers. Anything beyond that (long tokens,
 * log-probabilities of text that is held back) is added as it grows (gen_text.c), and ends the
 * answer with 503 when there is no room for it. */
uint64_t sl_gen_memory_bytes(struct sl_gen *g);
/* Bytes held for each byte of an answer's text that is kept: the text and its JSON, which grows by
 * doubling; a stream's last event repeats all of it. */
static inline uint32_t sl_gen_text_cost(const struct sl_gen *g) {
    return g->params.stream ? 8 : 4;
}

/* Submits the choices to the engine, or as many as may be there at once. False: ex->error is set,
 * and those already submitted are canceled. The caller holds a reference to the exchange. */
bool sl_gen_submit(struct sl_gen *g);
/* The connection's thread, when n_done have ended: submits some more. False: *e is set. */
bool sl_gen_submit_more(struct sl_gen *g, uint32_t n_done, struct sl_http_error *e);
/* Cancels what runs. The exchange's lock is held. */
void sl_gen_cancel_locked(struct sl_gen *g);

/* What the request calls the model. */
static inline const char *sl_gen_model(const struct sl_gen *g) {
    return g->ex->model_name ? g->ex->model_name : g->served->names[0];
}

struct sl_choice_times {
    double queue_ns, prefill_ns, decode_ns;
    struct sl_expert_use use;
    uint32_t n_cached; /* tokens of its prompt found in the prefix cache */
};
/* The engine's account of a choice; if a stop string has just ended it, our own. */
void sl_choice_times(const struct sl_choice *c, struct sl_choice_times *out);

struct sl_usage {
    uint64_t prompt, cached; /* tokens of all prompts; how many of them were in the KV cache */
    uint64_t predicted, reasoning;
};
/* All choices so far. */
void sl_gen_usage(const struct sl_gen *g, struct sl_usage *out);

/* A unique id for tool call number `call` of a choice, with this prefix. The same at every call. */
void sl_call_id(struct sl_buf *b, const struct sl_choice *c, const char *prefix, uint32_t call);

/* The splitter's sink, ctx is a choice. The connection's thread, gen_text.c. */
void sl_choice_part(void *ctx, const struct sl_part *part);

/* The connection's thread, gen_text.c. Whole answers: takes what there is; true when every choice
 * is done. */
bool sl_gen_collect(struct sl_gen *g);
/* Streams: fills g->out with some events. False: there is nothing now, and it is not the end. */
bool sl_gen_stream(struct sl_gen *g);
/* Streams: shows a client that has heard nothing for a while that the server is alive. */
void sl_gen_keepalive(struct sl_gen *g);

/* gen.c, for gen_text.c: takes a token from a choice's ring, and wakes its session when the ring
 * has room again. False: there is none; *out_end says whether one may still come. */
bool sl_choice_take(struct sl_choice *c, struct sl_token *out_token, bool *out_end);
/* Cancels what still runs of the choice. Takes the exchange's lock. */
void sl_choice_cancel(struct sl_choice *c);

#endif
