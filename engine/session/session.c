#include "engine/session/session.h"

#include "common/clock.h"

#include <stdlib.h>
#include <string.h>

void sl_session_become(struct sl_session *s, enum sl_session_state state) {
    sl_states_check(&sl_session_states, s->state, state, s->task);
    s->state = state;
}

void sl_session_push_back(struct sl_session_list *l, struct sl_session *s) {
    s->in = l;
    s->next = NULL;
    s->prev = l->tail;
    if (l->tail)
        l->tail->next = s;
    else
        l->head = s;
    l->tail = s;
    l->n++;
}

void sl_session_push_front(struct sl_session_list *l, struct sl_session *s) {
    s->in = l;
    s->prev = NULL;
    s->next = l->head;
    if (l->head)
        l->head->prev = s;
    else
        l->tail = s;
    l->head = s;
    l->n++;
}

void sl_session_unlink(struct sl_session *s) {
    struct sl_session_list *l = s->in;
    if (!l)
        return;
    if (s->prev)
        s->prev->next = s->next;
    else
        l->head = s->next;
    if (s->next)
        s->next->prev = s->prev;
    else
        l->tail = s->prev;
    s->prev = s->next = NULL;
    s->in = NULL;
    l->n--;
}

void sl_session_splice(struct sl_session_list *to, struct sl_session_list *from) {
    while (from->head) {
        struct sl_session *s = from->head;
        sl_session_unlink(s);
        sl_session_push_back(to, s);
    }
}

enum sl_status sl_session_create(struct sl_gen_request *r, uint32_t n_vocab, uint32_t ctx_tokens,
                                 struct sl_session **out_session, struct sl_err *err) {
    if (!r->n_prompt || !r->prompt)
        return sl_fail(err, SL_ERR_INVALID, "the prompt is empty");
    if (!r->sink || !r->sink->push || !r->sink->finish)
        return sl_fail(err, SL_ERR_INVALID, "the request has no sink");
    if (r->n_prompt >= ctx_tokens)
        return sl_fail(err, SL_ERR_CONTEXT_FULL,
                       "the prompt has %u tokens; with a context of %u tokens there is room for %u "
                       "and an answer of at least one",
                       r->n_prompt, ctx_tokens, ctx_tokens - 1);
    if (r->n_top_logprobs > SL_MAX_TOP_LOGPROBS)
        return sl_fail(err, SL_ERR_INVALID, "top_logprobs is %u: at most %u", r->n_top_logprobs,
                       SL_MAX_TOP_LOGPROBS);
    for (uint32_t i = 0; i < r->n_prompt; i++)
        if (r->prompt[i] >= n_vocab)
            return sl_fail(err, SL_ERR_INVALID,
                           "prompt token %u is %u, outside the vocabulary of %u", i, r->prompt[i],
                           n_vocab);
    for (uint32_t i = 0; r->forced && i < r->max_tokens; i++)
        if (r->forced[i] >= n_vocab)
            return sl_fail(err, SL_ERR_INVALID, "forced token %u is %u, outside the vocabulary", i,
                           r->forced[i]);
    if (r->forced && !r->max_tokens)
        return sl_fail(err, SL_ERR_INVALID, "forced tokens without max_tokens");
    SL_TRY(sl_sampling_check(&r->sampling, n_vocab, err));

    uint32_t room = ctx_tokens - r->n_prompt;
    uint32_t n_answer = r->max_tokens && r->max_tokens < room ? r->max_tokens : room;
    struct sl_session *s =
        calloc(1, sizeof *s + ((size_t)r->n_prompt + n_answer) * sizeof s->history[0]);
    if (!s)
        return sl_fail(err, SL_ERR_NOMEM, "no memory for a request of %u tokens",
                       r->n_prompt + n_answer);
    s->req = r;
    s->slot = SL_NO_SLOT;
    s->n_prompt = s->n_history = r->n_prompt;
    s->n_max = r->n_prompt + n_answer;
    memcpy(s->history, r->prompt, r->n_prompt * sizeof s->history[0]);
    sl_sampler_init(&s->sampler, &r->sampling);
    s->submit_ns = sl_now_ns();
    *out_session = s;
    return SL_OK;
}

bool sl_session_is_eog(const struct sl_session *s, uint32_t id) {
    if (s->req->ignore_eog)
        return false;
    for (uint32_t i = 0; i < s->req->n_eog; i++)
        if (s->req->eog[i] == id)
            return true;
    return false;
}
