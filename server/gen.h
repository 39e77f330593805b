/* One generation: the choices of one request, between the engine's sinks and the connection.
 *
 * Tokens cross in a ring per choice, under the exchange's lock; text, stop strings and JSON are
 * made on the connection's side. A full ring parks the session until its client reads on. */
#ifndef SL_SERVER_GEN_H
#define SL_SERVER_GEN_H

#include "server/constrain.h"
#include "server/internal.h"
#include "server/params.h"

/* A token's log-probabilities, kept until its text is shown. */
struct sl_logprob_entry {
    struct sl_token token;
    uint64_t start_byte, end_byte; /* in the choice's text */
    uint64_t start_char;
};

struct sl_choice {
    struct sl_token_sink sink; /* first: the engine's pointer is ours */
    struct sl_gen *gen;
    uint32_t index;
    struct sl_gen_request req;
    struct sl_constrained constrained; /* with params.grammar */

    /* under the exchange's lock */
    struct sl_token *ring; /* [gen->ring_tokens]; NULL without log-probabilities, then ring_ids */
    uint32_t *ring_ids;    /* id, top bit: end of generation */
    uint32_t ring_head, ring_count;
    bool parked;    /* push said SL_AGAIN and the engine was not told to go on */
    bool running;   /* submitted and not finished */
    bool submitted; /* submit returned SL_OK */
    bool canceled;
    bool finished;
    struct sl_gen_result result;
    uint64_t submit_ns, first_ns, last_ns; /* of submit and of the first and last token */
    struct sl_expert_use use;              /* up to the last token */

    /* the connection's thread */
    struct sl_detok detok;
    struct sl_stop_state stop;
    uint32_t n_predicted;
    uint64_t text_bytes, text_chars; /* that the model made */
    uint64_t shown_bytes;            /* that passed the stop strings */
    struct sl_logprob_entry *logprobs;
    uint32_t n_logprobs, cap_logprobs;
    uint32_t n_shown_logprobs; /* the first of them belong to shown text */
    struct sl_buf text;        /* whole answers: all of it */
    bool opened;               /* the first event, or the echo, is out */
    bool done;
    const char *finish_reason; /* valid when done and not failed */
};

struct sl_gen {
    struct sl_exchange *ex;
    const struct sl_served *served;
    enum sl_api api;
    struct sl_gen_params params;
    struct sl_ids *prompts; /* [n_prompts] */
    uint32_t n_prompts;
    struct sl_automaton *automaton; /* of params.grammar */
    char **echo;                    /* [n_prompts] text shown before the answer, NULL = none */
    uint32_t n_choices;             /* n_prompts * params.n; choice i answers prompt i / params.n */
    struct sl_choice *choices;
    uint32_t ring_tokens;
    char id[48];
    int64_t created_s;
    _Atomic uint32_t prefill_done, prefill_total; /* of the first choice */

    /* the connection's thread */
    struct sl_buf out; /* streams: events not sent yet, from out_sent on */
    size_t out_sent;
    bool ended; /* the last event is in out */
    struct sl_http_error failure;
};

/* Takes params and prompts over (also when it fails: then they are released and NULL returned). */
struct sl_gen *sl_gen_create(struct sl_exchange *ex, enum sl_api api, struct sl_gen_params *params,
                             struct sl_ids *prompts, char **echo, uint32_t n_prompts);
void sl_gen_destroy(struct sl_gen *g);
/* What it may come to hold until its client has read the answer. Text counts 16 bytes a token: some
 * four for the text, and its JSON beside it while it is made. A grammar counts with its automaton,
 * as half of the room for answers at most. */
uint64_t sl_gen_memory_bytes(const struct sl_gen *g);

/* Hands the choices to the engine. False: ex->error is set; those already handed over are
 * canceled. The caller holds a reference to the exchange. */
bool sl_gen_submit(struct sl_gen *g);
/* Cancels what runs. The exchange's lock is held. */
void sl_gen_cancel_locked(struct sl_gen *g);

/* The connection's thread. Takes one token or the end of a choice; false: there is nothing now.
 * out_text: what can be shown, valid until the next call. A failed choice sets g->failure. */
bool sl_choice_step(struct sl_choice *c, struct sl_str *out_text);

struct sl_choice_times {
    double queue_ns, prefill_ns, decode_ns;
    struct sl_expert_use use;
};
/* The engine's account of a choice; of one that a stop string ended a moment ago, ours. */
void sl_choice_times(const struct sl_choice *c, struct sl_choice_times *out);

/* Whole answers: takes what there is; true when every choice is done. */
bool sl_gen_collect(struct sl_gen *g);
/* Streams: fills g->out with some events; false: there is nothing now and the end is not reached.
 */
bool sl_gen_stream(struct sl_gen *g);

#endif
