#include "server/exchange/gen.h"

#include "common/clock.h"
#include "common/histograms.h"
#include "server/exchange/renderer.h"
#include "server/request/tools.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#define EOG_BIT 0x80000000u

#define TOKEN_TEXT_BYTES      4u          /* of text that a token is expected to be */
#define VECTOR_NUMBER_BYTES   16u         /* of a number of a vector, as JSON */
#define ID_BYTES              16u         /* of a token whose id is kept: twice that, and as JSON */
#define STREAM_LOGPROBS_BYTES (32u << 10) /* that a stream's text usually waits for */

/* Unique in this process by the counter, and among processes by the random part. */
static void make_id(char *out, size_t size) {
    static _Atomic uint64_t counter;
    uint64_t r[2] = {0, 0};
    if (getrandom(r, sizeof r, 0) < 0)
        r[0] = sl_now_ns();
    r[1] ^= atomic_fetch_add(&counter, 1);
    snprintf(out, size, "%016llx%08llx", (unsigned long long)r[0],
             (unsigned long long)(r[1] & 0xffffffffu));
}

/* ------------------------------------------------------------- the scheduler's thread: sinks */

static enum sl_status sink_push(struct sl_token_sink *s, const struct sl_token *token) {
    struct sl_choice *c = (struct sl_choice *)s;
    struct sl_gen *g = c->gen;
    struct sl_exchange *ex = g->ex;
    enum sl_status status = SL_OK;
    pthread_mutex_lock(&ex->lock);
    if (c->canceled) {
        status = SL_ERR_CANCELED;
    } else {
        uint64_t now = sl_now_ns();
        if (!c->first_ns) {
            c->first_ns = now;
            sl_observe(first_token, now - ex->started_ns);
        } else if (!c->refused) {
            sl_observe(between_tokens, now - c->last_ns);
        }
        c->last_ns = now;
        c->refused = c->ring_count == g->ring_tokens;
        if (token->use)
            c->use = *token->use;
        c->n_cached = token->n_cached;
        if (c->refused) {
            c->parked = true;
            status = SL_AGAIN;
        } else {
            uint32_t at = (c->ring_head + c->ring_count++) % g->ring_tokens;
            if (c->ring)
                c->ring[at] = *token;
            else
                c->ring_ids[at] = token->id | (token->eog ? EOG_BIT : 0);
        }
        /* A whole answer is looked at when it is worth it: its text is shown at the end. With stop
         * strings each token may be the last. */
        if (g->params.stream || g->params.stop.n || c->ring_count > g->ring_tokens / 2)
            sl_exchange_wake_locked(ex);
    }
    pthread_mutex_unlock(&ex->lock);
    return status;
}

static void sink_progress(struct sl_token_sink *s, const struct sl_prompt_progress *p) {
    struct sl_choice *c = (struct sl_choice *)s;
    struct sl_gen *g = c->gen;
    if (c->index)
        return;
    pthread_mutex_lock(&g->ex->lock);
    g->progress = *p;
    if (g->params.return_progress)
        sl_exchange_wake_locked(g->ex);
    pthread_mutex_unlock(&g->ex->lock);
}

static void sink_scored(struct sl_token_sink *s, uint32_t pos, const struct sl_token *token) {
    struct sl_choice *c = (struct sl_choice *)s;
    c->prompt_tokens[pos] = *token;
}

/* In the order of the positions, so that the sum does not depend on slices. */
static void sink_hidden(struct sl_token_sink *s, uint32_t pos, const float *row) {
    struct sl_choice *c = (struct sl_choice *)s;
    uint32_t n = c->gen->served->info.n_embd;
    bool last = c->gen->params.pools_last;
    if (last && pos + 1 < c->req.n_prompt)
        return;
    for (uint32_t i = 0; i < n; i++)
        c->pooled[i] += row[i];
}

static void sink_finish(struct sl_token_sink *s, const struct sl_gen_result *result) {
    struct sl_choice *c = (struct sl_choice *)s;
    struct sl_exchange *ex = c->gen->ex;
    pthread_mutex_lock(&ex->lock);
    c->result = *result;
    sl_choice_state_become(&c->state, SL_CHOICE_FINISHED);
    sl_exchange_wake_locked(ex);
    pthread_mutex_unlock(&ex->lock);
    sl_exchange_unref(ex); /* the choice's; may free all of this */
}

/* ------------------------------------------------------------------------- birth and death */

static bool choice_init(struct sl_gen *g, struct sl_choice *c, uint32_t index) {
    const struct sl_gen_params *p = &g->params;
    c->sink = (struct sl_token_sink){sink_push, sink_progress, sink_finish};
    c->gen = g;
    c->index = index;
    const struct sl_ids *prompt = &g->prompts[index / p->n];
    c->req = (struct sl_gen_request){
        .prompt = prompt->ids,
        .n_prompt = (uint32_t)prompt->n,
        .max_tokens = p->max_tokens,
        .prompt_only = p->prompt_only,
        .ignore_eog = p->ignore_eos && !p->n_stop_ids,
        .no_cache = !p->cache_prompt,
        .sampling = p->sampling,
        .scored = p->prompt_logprobs ? sink_scored : NULL,
        .hidden = p->embeds ? sink_hidden : NULL,
        .logprobs = p->logprobs,
        .n_top_logprobs = p->n_top_logprobs,
        .eog = g->eog,
        .n_eog = g->n_eog,
        .sink = &c->sink,
    };
    if (p->grammar) {
        sl_constrained_init(&c->constrained, g->automaton);
        c->req.sampling.constraint = &c->constrained.base;
    }
    if (p->budget.given) {
        sl_budgeted_init(&c->budgeted, &g->params.budget, c->req.sampling.constraint);
        c->req.sampling.constraint = &c->budgeted.base;
    }
    if (p->sampling.min_tokens && !p->ignore_eos) {
        c->req.sampling.held = g->eog;
        c->req.sampling.n_held = g->n_eog;
    }
    c->req.sampling.seed = p->sampling.seed + index % p->n;
    if (p->splits && sl_splitter_create(&p->split, sl_choice_part, c, &c->splitter) != SL_OK)
        return false;
    if (p->embeds) {
        c->pooled = calloc(g->served->info.n_embd, sizeof *c->pooled);
        if (!c->pooled)
            return false;
    }
    if (p->prompt_logprobs) {
        c->prompt_tokens = calloc(prompt->n, sizeof *c->prompt_tokens);
        if (!c->prompt_tokens)
            return false;
        c->prompt_tokens[0].id = prompt->ids[0];
    }
    if (p->logprobs)
        c->ring = malloc(g->ring_tokens * sizeof *c->ring);
    else
        c->ring_ids = malloc(g->ring_tokens * sizeof *c->ring_ids);
    return c->ring || c->ring_ids;
}

/* What ends the answer: the model's own tokens, unless they are to be ignored, and the request's.
 */
static bool list_ends(struct sl_gen *g) {
    const struct sl_chat *chat = &g->served->chat;
    const struct sl_gen_params *p = &g->params;
    uint32_t n_own = p->ignore_eos && p->n_stop_ids ? 0 : chat->n_eog;
    g->n_eog = n_own + p->n_stop_ids;
    g->eog = calloc(g->n_eog ? g->n_eog : 1, sizeof *g->eog);
    if (!g->eog)
        return false;
    memcpy(g->eog, chat->eog, n_own * sizeof *g->eog);
    if (p->n_stop_ids)
        memcpy(g->eog + n_own, p->stop_ids, p->n_stop_ids * sizeof *g->eog);
    return true;
}

struct sl_gen *sl_gen_create(struct sl_exchange *ex, enum sl_api api,
                             const struct sl_renderer *renderer, struct sl_gen_params *params,
                             struct sl_ids *prompts, char **echo, uint32_t n_prompts) {
    struct sl_server *s = ex->server;
    struct sl_gen *g = calloc(1, sizeof *g);
    if (!g) {
        sl_params_release(params);
        for (uint32_t i = 0; i < n_prompts; i++) {
            sl_ids_release(&prompts[i]);
            if (echo)
                free(echo[i]);
        }
        free(prompts);
        free(echo);
        return NULL;
    }
    g->ex = ex;
    g->served = s->served;
    g->api = api;
    g->renderer = renderer;
    g->keeps_parts = !params->stream || g->renderer->keeps_parts;
    g->keeps_ids = params->stream ? renderer->streams_ids : params->about.return_tokens;
    g->params = *params;
    *params = (struct sl_gen_params){0};
    g->prompts = prompts;
    g->n_prompts = n_prompts;
    g->echo = echo;
    g->n_choices = n_prompts * g->params.n;
    g->created_s = (int64_t)time(NULL);
    make_id(g->id, sizeof g->id);

    uint32_t n = s->config.buffer_tokens;
    if (g->params.logprobs) /* a token is forty times as large with them */
        n = n / 16 ? n / 16 : 1;
    if (g->params.max_tokens && n > g->params.max_tokens + 1)
        n = g->params.max_tokens + 1;
    if (n > g->served->info.ctx_tokens) /* no answer is longer */
        n = g->served->info.ctx_tokens;
    g->ring_tokens = n;

    g->choices = calloc(g->n_choices, sizeof *g->choices);
    bool ok = g->choices && list_ends(g);
    if (ok && g->params.grammar)
        ok = sl_automaton_create(g->params.grammar, g->served->vocab, g->served->chat.eog,
                                 g->served->chat.n_eog, &g->automaton) == SL_OK;
    for (uint32_t i = 0; ok && i < g->n_choices; i++)
        ok = choice_init(g, &g->choices[i], i);
    if (!ok) {
        sl_gen_destroy(g);
        return NULL;
    }
    return g;
}

uint64_t sl_gen_memory_bytes(struct sl_gen *g) {
    bool logprobs = g->params.logprobs;
    /* What an answer repeats of its request is in three events at most before they are sent. */
    uint64_t about = g->params.about.members ? 4 * strlen(g->params.about.members) : 0;
    if (g->params.about.input) /* and the answer, to be kept */
        about += strlen(g->params.about.input);
    uint64_t n = sizeof *g + about + sl_tools_memory_bytes(g->params.tools),
             element = logprobs ? sizeof(struct sl_token) : sizeof(uint32_t);
    uint64_t repeated = g->renderer->repeats_prompt ? 2 * TOKEN_TEXT_BYTES : 0;
    for (uint32_t i = 0; i < g->n_prompts; i++)
        n += g->prompts[i].n * (sizeof(uint32_t) + repeated * g->params.n) +
             (g->echo ? strlen(g->echo[i]) : 0);
    for (uint32_t i = 0; i < g->n_choices; i++) {
        uint64_t room = g->served->info.ctx_tokens - g->prompts[i / g->params.n].n;
        uint64_t tokens =
            g->params.max_tokens && g->params.max_tokens < room ? g->params.max_tokens : room;
        n += sizeof *g->choices + g->ring_tokens * element;
        struct sl_choice *c = &g->choices[i];
        if (g->params.splits)
            c->split_room = sl_splitter_memory_bytes(&g->params.split, tokens);
        c->text_room = tokens * TOKEN_TEXT_BYTES;
        c->logprobs_room = !logprobs        ? 0
                           : g->keeps_parts ? tokens * 3 * sizeof(struct sl_logprob_entry)
                                            : STREAM_LOGPROBS_BYTES;
        if (g->keeps_parts) /* else what is shown goes at once */
            n += c->text_room * sl_gen_text_cost(g);
        if (g->keeps_ids && !g->params.stream)
            n += tokens * ID_BYTES;
        if (g->params.prompt_logprobs) {
            uint64_t echoed = g->prompts[i / g->params.n].n;
            c->logprobs_room += echoed * 3 * sizeof(struct sl_logprob_entry);
            n += echoed * sizeof *c->prompt_tokens;
        }
        if (g->params.embeds) /* its JSON grows by doubling */
            n += g->served->info.n_embd * (sizeof *c->pooled + 2 * VECTOR_NUMBER_BYTES);
        n += c->split_room + c->logprobs_room;
    }
    if (g->automaton) {
        /* Where memory is short, one grammar may be larger than the room for answers: it counts as
         * half of that, so that it can be had at all, and plain answers as well. */
        uint64_t grammar =
            sl_grammar_memory_bytes(g->params.grammar) + sl_automaton_memory_bytes(g->automaton);
        uint64_t most = g->ex->server->config.max_replies_bytes / 2;
        n += grammar < most ? grammar : most;
    }
    return n;
}

void sl_gen_destroy(struct sl_gen *g) {
    if (!g)
        return;
    for (uint32_t i = 0; g->choices && i < g->n_choices; i++) {
        struct sl_choice *c = &g->choices[i];
        free(c->ring);
        free(c->ring_ids);
        free(c->logprobs);
        free(c->prompt_tokens);
        free(c->pooled);
        sl_detok_release(&c->detok);
        sl_stop_state_release(&c->stop);
        sl_constrained_release(&c->constrained);
        sl_splitter_destroy(&c->splitter);
        sl_segments_release(&c->segments);
        sl_ids_release(&c->ids);
    }
    free(g->choices);
    free(g->eog);
    sl_automaton_destroy(&g->automaton);
    for (uint32_t i = 0; i < g->n_prompts; i++) {
        sl_ids_release(&g->prompts[i]);
        if (g->echo)
            free(g->echo[i]);
    }
    free(g->prompts);
    free(g->echo);
    sl_params_release(&g->params);
    sl_buf_release(&g->out);
    free(g);
}

static void cancel_choice_locked(struct sl_choice *c) {
    if (c->canceled)
        return;
    c->canceled = true;
    if (c->state == SL_CHOICE_RUNNING) /* else submit_choice looks at `canceled` itself */
        sl_engine_cancel(c->gen->served->engine, &c->req);
}

void sl_choice_cancel(struct sl_choice *c) {
    pthread_mutex_lock(&c->gen->ex->lock);
    if (c->state != SL_CHOICE_FINISHED)
        cancel_choice_locked(c);
    pthread_mutex_unlock(&c->gen->ex->lock);
}

void sl_gen_cancel_locked(struct sl_gen *g) {
    for (uint32_t i = 0; i < g->n_choices; i++)
        if (g->choices[i].state != SL_CHOICE_FINISHED)
            cancel_choice_locked(&g->choices[i]);
}

static bool submit_choice(struct sl_gen *g, struct sl_choice *c, struct sl_http_error *e) {
    struct sl_exchange *ex = g->ex;
    pthread_mutex_lock(&ex->lock);
    bool gone = atomic_load(&ex->canceled) || c->canceled;
    if (!gone) {
        sl_choice_state_become(&c->state, SL_CHOICE_SUBMITTING);
        c->submit_ns = sl_now_ns();
        c->req.deadline_ns = ex->deadline_ns;
        sl_exchange_ref_locked(ex);
    }
    pthread_mutex_unlock(&ex->lock);

    struct sl_err err = {0};
    enum sl_status status =
        gone ? SL_ERR_CANCELED : sl_engine_submit(g->served->engine, &c->req, &err);
    pthread_mutex_lock(&ex->lock);
    if (status != SL_OK) {
        if (!gone)
            sl_choice_state_become(&c->state, SL_CHOICE_NEW);
        sl_gen_cancel_locked(g);
    } else if (c->state == SL_CHOICE_SUBMITTING) { /* it has not finished meanwhile */
        sl_choice_state_become(&c->state, SL_CHOICE_RUNNING);
        if (c->canceled)
            sl_engine_cancel(g->served->engine, &c->req);
    }
    pthread_mutex_unlock(&ex->lock);
    if (status == SL_OK)
        return true;
    if (!gone)
        sl_exchange_unref(ex); /* the choice's; the caller's is still there */
    return sl_http_from_status(e, status, &err);
}

/* Of a batch of texts that become vectors, twice as many as run at once: a long one does not take
 * all of the engine's queue, and the engine never waits for the next. */
static uint32_t most_at_once(const struct sl_gen *g) {
    return g->params.embeds ? 2 * g->served->info.parallel : g->n_choices;
}

bool sl_gen_submit_more(struct sl_gen *g, uint32_t n_done, struct sl_http_error *e) {
    uint32_t most = most_at_once(g);
    while (g->n_submitted < g->n_choices && g->n_submitted - n_done < most)
        if (!submit_choice(g, &g->choices[g->n_submitted++], e))
            return false;
    return true;
}

bool sl_gen_submit(struct sl_gen *g) {
    sl_exchange_limit(g->ex, g->params.timeout_s);
    return sl_gen_submit_more(g, 0, &g->ex->error);
}

/* ------------------------------------------------------------------- the connection's thread */

bool sl_choice_take(struct sl_choice *c, struct sl_token *out_token, bool *out_end) {
    struct sl_gen *g = c->gen;
    bool have = false;
    *out_end = false;
    pthread_mutex_lock(&g->ex->lock);
    if (c->ring_count > 0) {
        have = true;
        if (c->ring) {
            *out_token = c->ring[c->ring_head];
        } else {
            uint32_t id = c->ring_ids[c->ring_head];
            *out_token = (struct sl_token){.id = id & ~EOG_BIT, .eog = (id & EOG_BIT) != 0};
        }
        c->ring_head = (c->ring_head + 1) % g->ring_tokens;
        c->ring_count--;
        /* Half empty before it goes on, so that a slow reader does not wake it for every token. */
        if (c->parked && c->ring_count <= g->ring_tokens / 2) {
            c->parked = false;
            if (sl_choice_state_runs(c->state))
                sl_engine_resume(g->served->engine, &c->req);
        }
    } else {
        *out_end = c->state == SL_CHOICE_FINISHED;
    }
    pthread_mutex_unlock(&g->ex->lock);
    return have;
}

void sl_choice_times(const struct sl_choice *c, struct sl_choice_times *out) {
    pthread_mutex_lock(&c->gen->ex->lock);
    if (c->state == SL_CHOICE_FINISHED)
        *out = (struct sl_choice_times){(double)c->result.queue_ns, (double)c->result.prefill_ns,
                                        (double)c->result.decode_ns, c->result.experts,
                                        c->result.n_cached};
    else
        *out = (struct sl_choice_times){0, (double)(c->first_ns - c->submit_ns),
                                        (double)(c->last_ns - c->first_ns), c->use, c->n_cached};
    pthread_mutex_unlock(&c->gen->ex->lock);
}

void sl_gen_usage(const struct sl_gen *g, struct sl_usage *out) {
    *out = (struct sl_usage){0};
    for (uint32_t i = 0; i < g->n_prompts; i++) {
        /* A prompt is counted once, however many choices it has: what its first needed. */
        uint32_t least = UINT32_MAX;
        for (uint32_t k = 0; k < g->params.n; k++) {
            struct sl_choice_times t;
            sl_choice_times(&g->choices[i * g->params.n + k], &t);
            least = t.n_cached < least ? t.n_cached : least;
        }
        out->prompt += g->prompts[i].n;
        out->cached += least;
    }
    for (uint32_t i = 0; i < g->n_choices; i++) {
        out->predicted += g->choices[i].n_predicted;
        out->reasoning += g->choices[i].n_reasoning;
    }
}

void sl_call_id(struct sl_buf *b, const struct sl_choice *c, const char *prefix, uint32_t call) {
    sl_buf_printf(b, "%s%s%02x%02x", prefix, c->gen->id, c->index, call);
}
