/* A request while the engine has it, and the lists that hold such sessions.
 *
 * Owned by the scheduler thread from the queue on; only the two flags are touched by others. */
#ifndef SL_ENGINE_SESSION_H
#define SL_ENGINE_SESSION_H

#include "common/siphash.h"
#include "engine/types/config.h"
#include "engine/types/request.h"
#include "engine/sample/sampler.h"
#include "engine/session/session_state.h"

#include <stdatomic.h>

#define SL_NO_SLOT UINT32_MAX

struct sl_session_list;

/* The pages that a slot has, counted from the start of its text: pages [0, n), and tail pages
 * [tail_first, tail_end) where some of the model's layers keep the end of a sequence alone. Where
 * the plan has tail_gaps, several in a row may be one and the same: that of the last of them. */
struct sl_held_pages {
    uint32_t n;
    uint32_t tail_first, tail_end;
    uint32_t known_end; /* pages of the text that others had before: with gaps, this page end has a
                           tail page of its own when it is passed */
};
/* With gaps, tail pages that a step's rows of a session take at most: before known_end, before the
 * last page end, behind it. */
#define SL_TAILS_A_STEP 3u

struct sl_session {
    struct sl_gen_request *req; /* borrowed until finish */
    struct sl_session *prev, *next;
    struct sl_session_list *in; /* the list that it is in, NULL in a slot */

    atomic_bool cancel; /* asked to stop */
    atomic_bool resume; /* the sink has room again */

    enum sl_session_state state; /* set by sl_session_become() alone */
    uint64_t task;               /* its number among all requests, from 1 */
    uint32_t slot;               /* row of the page table, SL_NO_SLOT = no KV */
    uint32_t n_prompt, n_max;    /* n_max: prompt and answer at most */
    uint32_t n_history;          /* prompt and accepted tokens */
    uint32_t n_kv;               /* positions of the history whose KV is written */
    uint32_t n_fed;              /* those and the ones that steps under way are about to write */
    struct sl_held_pages held;
    uint32_t n_shared; /* the first of its pages, in the prefix tree: others may hold them too */
    uint32_t n_cached; /* tokens of the prompt that were not computed */
    uint32_t n_told;   /* rows of the prompt that its sink has been told of (sl_session_tells) */
    /* LOADING: pages [n_shared, load_end) come from disk. */
    uint32_t load_next; /* the first that has not been asked for */
    uint32_t load_end;
    uint32_t n_loading;         /* asked for and not there yet */
    struct sl_hash128 load_key; /* of the text before load_next */
    bool load_failed;           /* a page could not be copied in: no more are asked for */
    enum sl_status page_status; /* not SL_OK: its pages are uncertain, it ends before the step */
    /* While a step is being built; nothing reads these once its rows are laid out. chosen is no
     * state: a session stays READY whether the step takes it or not. */
    bool chosen;
    uint32_t step_rows;   /* rows in it, of the history */
    uint32_t step_drafts; /* rows in it behind those, of draft */
    uint32_t n_draft;     /* tokens that are drafted to follow the history of draft_at tokens */
    uint32_t draft_at;
    uint32_t draft[SL_MAX_DRAFT];
    uint32_t n_drafted, n_draft_accepted; /* verified so far; of them: they did follow */
    uint32_t n_draft_seen; /* positions that the draft layer has seen (draft_layer.c) */
    bool unseen;           /* it has missed some */
    uint64_t parked_ns;    /* since when: PARKED, SWAPPED */
    bool first_done;       /* the prompt has been processed once */
    /* Losses of a machine since it came to interrupted_at, tokens and rows that its sink knew then:
     * what it asks could be their reason. */
    uint32_t n_interrupted;
    uint64_t interrupted_at;

    struct sl_sampler sampler;
    struct sl_token pending; /* sampled, offered, not yet accepted */
    struct sl_expert_use use;

    uint64_t submit_ns, start_ns, prompt_ns; /* points in time; 0 = not yet */
    uint32_t history[];                      /* [n_max] */
};

struct sl_session_list {
    struct sl_session *head, *tail;
    uint32_t n;
};

void sl_session_push_back(struct sl_session_list *l, struct sl_session *s);
void sl_session_push_front(struct sl_session_list *l, struct sl_session *s);
/* Out of the list that it is in, if any. */
void sl_session_unlink(struct sl_session *s);
/* Moves all of from to the end of to. */
void sl_session_splice(struct sl_session_list *to, struct sl_session_list *from);

/* Checks the request against the engine's bounds and copies what changes with every token. */
enum sl_status sl_session_create(struct sl_gen_request *r, uint32_t n_vocab, uint32_t ctx_tokens,
                                 struct sl_session **out_session, struct sl_err *err) SL_MUST_CHECK;

/* Rows still to be fed. */
static inline uint32_t sl_session_todo(const struct sl_session *s) {
    return s->n_history - s->n_fed;
}
/* Are the next rows generated ones? (A session never feeds both kinds in one step.) */
static inline bool sl_session_decodes(const struct sl_session *s) {
    return s->n_fed >= s->n_prompt;
}
/* Are there rows of the prompt that the request wants something of and has not got? */
static inline bool sl_session_tells(const struct sl_session *s) {
    return (s->req->scored || s->req->hidden) && s->n_told < s->n_prompt;
}
/* Does it go on, in the next step or in one that is under way? False for NULL. */
static inline bool sl_session_runs(const struct sl_session *s) {
    return s && s->state == SL_SESSION_READY;
}
static inline uint32_t sl_session_predicted(const struct sl_session *s) {
    return s->n_history - s->n_prompt;
}
/* Changes the state. A change that the table lacks is our mistake: it aborts where SL_STRICT is
 * defined (every mode but release); a release logs an error and makes the change. */
void sl_session_become(struct sl_session *s, enum sl_session_state state);
/* False for NULL. */
static inline bool sl_session_is(const struct sl_session *s, enum sl_session_state state) {
    return s && s->state == state;
}
bool sl_session_is_eog(const struct sl_session *s, uint32_t id);

#endif
