/* The engine's state, which engine.c builds and the scheduler's thread works on, and what the files
 * of this room offer to each other and to engine.c. */
#ifndef SL_ENGINE_SCHEDULE_H
#define SL_ENGINE_SCHEDULE_H

#include "engine/observe/activity.h"
#include "engine/stage/joint_heat.h"
#include "engine/schedule/prefix_disk.h"
#include "engine/schedule/prefix_ram.h"
#include "engine/prefix/prefix_tails.h"
#include "engine/prefix/prefix_tree.h"
#include "engine/plan/stage_plan.h"
#include "engine/session/session.h"
#include "engine/types/slot_info.h"
#include "model/arch/model.h"
#include "engine/observe/expert_map.h"
#include "engine/stage/micro_batch.h"
#include "engine/stage/stage_local.h"
#include "engine/schedule/prompt_slices.h"
#include "engine/schedule/step_share.h"
#include "engine/trace/timeline.h"

#include <pthread.h>

/* Work for the scheduler's thread while no session is alive, whose caller waits for it: job.c. The
 * first member of what it takes. */
struct sl_job {
    enum sl_status (*run)(struct sl_engine *e, struct sl_job *job); /* on that thread */
    const char *what;                                               /* "score" */
    struct sl_err *err;                                             /* the caller's */
    enum sl_status status;
    bool done;
};

struct sl_engine {
    const struct sl_model *model;
    struct sl_stage_plans plans;
    struct sl_memory_plan plan;            /* of all stages together */
    struct sl_timeline *timeline;          /* NULL: no trace */
    struct sl_route_recorder *routes;      /* NULL = none */
    struct sl_stage_local *stages;         /* [n_local] of this process, as they are opened */
    struct sl_stage *ports[SL_MAX_STAGES]; /* [n_stages] how they are spoken to from then on */
    struct sl_stage_metrics shown[SL_MAX_STAGES]; /* of each, as it said last */
    bool reads_rows[SL_MAX_STAGES]; /* a stage takes rows from the memory of the one before it */
    uint32_t n_stages, n_local;     /* behind those of this process come other machines' */
    struct sl_joint_heat *heat;     /* NULL: not kept, or there is one stage */
    struct sl_expert_map *map;
    struct sl_kv_pages kv;
    struct sl_page_table pages;      /* of the slots */
    struct sl_page_table tail_table; /* the same, of tail pages; empty where there are none */
    struct sl_tail_pages *tails;     /* NULL: there are none */
    uint32_t *draft_tails; /* [parallel, plan.draft_tails] for states behind drafts; else NULL */
    struct sl_prefix_tree *prefixes;
    struct sl_prefix_ram *ram; /* NULL: the pool's pages are in RAM themselves, or none was given */
    struct sl_prefix_disk *disk;        /* NULL: prefixes are kept in memory only */
    bool drafts;                        /* tokens are drafted and verified: drafts.c */
    struct sl_draft_layer *draft_layer; /* NULL: the model's own layer does not draft them */
    struct sl_sampler_space space;
    struct sl_pipeline *pipeline;
    struct sl_micro_batch *micro_batches; /* [n_micro_batches] */
    uint32_t n_micro_batches;

    /* The scheduler thread's own. */
    struct sl_session **slots;      /* [parallel], NULL = free */
    struct sl_session_list waiting; /* for a slot, in the order of their turns */
    struct sl_session_list swapped; /* parked without KV */
    struct sl_micro_batch **flying; /* [n_micro_batches] under way, the first sent first */
    uint32_t n_flying;
    struct sl_expert_show *show; /* a snapshot of where experts are: scheduler.c */
    struct sl_err pages_lost;    /* what a page's copy said of a device that is lost, or empty */
    uint32_t next_slot;          /* the slot that comes first in the next step */
    uint32_t n_since_kept;       /* steps since the last one that kept its rows */
    uint64_t ended_ns;           /* when the last step ended */
    struct sl_activity activity;
    struct sl_pace pace;
    struct sl_prompt_slices slices;
    uint64_t away_since_ns;       /* a machine has been lost since then */
    bool away_left;               /* and the sessions have left their slots */
    uint64_t next_deadline_ns;    /* the first of all sessions', UINT64_MAX = none */
    uint64_t idle_ns;             /* since when nothing has been running */
    uint64_t n_ended, n_gathered; /* steps that have ended; when the heat was gathered last */
    uint64_t heat_saved_ns;       /* when the heat was last given to its file; 0 = not yet */
    uint64_t heat_busy_ns;        /* how often it is while requests run */

    pthread_t thread;
    bool thread_started;
    pthread_mutex_t lock;
    pthread_cond_t wake;     /* the scheduler's */
    pthread_cond_t job_done; /* jobs' callers' */
    /* Under lock. */
    struct sl_session_list inbox; /* submitted, not yet seen by the scheduler */
    uint32_t n_waiting;           /* inbox and waiting together */
    uint32_t n_alive;             /* submitted and not finished, wherever they are */
    uint64_t n_tasks;             /* submitted ever */
    bool poked;                   /* something changed since the scheduler last looked */
    bool attends;        /* the scheduler takes what comes from another machine, and waits there */
    pthread_t attendant; /* ... its thread */
    enum sl_status dead; /* not SL_OK: nothing can run any more, dead_err says why */
    struct sl_err dead_err;
    bool away; /* a machine with some of the layers is lost, away_err says which; written by the
                  scheduler alone */
    struct sl_err away_err;
    struct sl_job *job; /* NULL: none */
    pthread_mutex_t published_lock;
    struct sl_slot_info *published; /* [parallel], under published_lock: slots.c */
    atomic_bool stop;               /* written under lock, read between layers without */
    atomic_bool cancel_asked; /* likewise: some session's cancel flag was set since the last look */
};

/* scheduler.c: the thread's body; arg is the engine. */
void *sl_scheduler_main(void *arg);
/* poke.c: something has changed, and the scheduler looks. Under the lock. */
void sl_engine_poke(struct sl_engine *e);
/* For the scheduler: if the first step under way is at another machine, waits for its answer where
 * that arrives, till it is poked, or until_ns. Under the lock, which is open meanwhile. False: it
 * cannot. */
bool sl_engine_attend(struct sl_engine *e, uint64_t until_ns);
/* Makes e->show, when stages and map are there. */
enum sl_status sl_show_create(struct sl_engine *e, struct sl_err *err) SL_MUST_CHECK;
/* Whether a failure takes the engine down, and not only the work that failed. */
static inline bool sl_is_fatal(enum sl_status status) {
    return sl_stage_is_broken(status);
}
/* slot_pages.c: takes pages for a slot until it has those of n_ahead positions, and tail pages of
 * as many; where these hold states, of n_tokens, since a draft layer, which writes the positions
 * behind them, has none. `held` is kept up to date, also on a failure. SL_ERR_DEVICE_OOM cannot
 * happen while every slot keeps to ctx_tokens and gives back, before each step, the tail pages that
 * it no longer needs. */
enum sl_status sl_slot_reserve(struct sl_engine *e, uint32_t slot, struct sl_held_pages *held,
                               uint32_t n_tokens, uint32_t n_ahead) SL_MUST_CHECK;
/* Of a slot that shares none: gives back the tail pages that rows from position n_done on do not
 * need; all pages. */
void sl_slot_pass(struct sl_engine *e, uint32_t slot, struct sl_held_pages *held, uint32_t n_done);
void sl_slot_release(struct sl_engine *e, uint32_t slot, struct sl_held_pages *held);
/* The same for a session, whose passed tail pages stay for their text if they may be of use. */
void sl_session_pass(struct sl_engine *e, struct sl_session *s);
/* The next page of the session's text is known elsewhere: takes a page for it, and a tail page if
 * rows behind what follows will need it. */
enum sl_status sl_session_reserve_page(struct sl_engine *e, struct sl_session *s,
                                       bool tail) SL_MUST_CHECK;
/* Then: fills it from a copy in the host's memory, and shares it. Not SL_OK: it is to be computed.
 */
enum sl_status sl_session_fill_page(struct sl_engine *e, struct sl_session *s, uint8_t *host,
                                    bool holds_tail) SL_MUST_CHECK;
/* Of pages [n_shared, end) that would be taken from elsewhere, the first whose tail page is needed
 * behind them. */
static inline bool sl_needs_tail(const struct sl_engine *e, uint32_t page, uint32_t end) {
    return page + e->plan.tail_pages >= end;
}
/* After pages were taken: goes back to the last page end from which the session can go on, if the
 * tail pages before the one that it stands at are not there. */
void sl_session_step_back(struct sl_engine *e, struct sl_session *s);
/* Gives all of a session's pages back; the shared ones stay in the prefix tree. It then has no KV.
 */
void sl_session_leave_pages(struct sl_engine *e, struct sl_session *s);
/* After a step: shares the pages that have become full. */
void sl_session_publish(struct sl_engine *e, struct sl_session *s);
/* Before a step: takes what others have computed of the text that comes next. */
void sl_session_adopt(struct sl_engine *e, struct sl_session *s);
/* Pages of the session's text that it may take from others, counted from its start. */
uint32_t sl_session_adoptable(const struct sl_engine *e, const struct sl_session *s);
/* Is the session's next page one of them? */
bool sl_session_before_page(const struct sl_engine *e, const struct sl_session *s);
/* The node of its last shared page, or SL_PREFIX_ROOT. */
uint32_t sl_session_shared_end(const struct sl_engine *e, const struct sl_session *s);
/* Counts tokens that did not have to be computed. */
void sl_session_count_cached(struct sl_session *s, uint32_t n_tokens);
/* Is leader, another session in a slot, about to compute the page that s needs next? */
bool sl_session_follows(const struct sl_engine *e, const struct sl_session *s,
                        const struct sl_session *leader);
/* sessions.c. Ends a session wherever it is and tells its sink; the session is gone then. */
void sl_session_finish(struct sl_engine *e, struct sl_session *s, enum sl_finish_reason reason,
                       enum sl_status status, const char *text);
/* Ends all sessions. */
void sl_sessions_finish_all(struct sl_engine *e, enum sl_finish_reason reason,
                            enum sl_status status, const char *text);
/* Ends sessions that were canceled or are out of time. */
void sl_sessions_sweep(struct sl_engine *e);
/* Nothing can run any more. */
void sl_engine_break_down(struct sl_engine *e, enum sl_status status, const struct sl_err *err);
/* Picks the next token from a row of logits and offers it to the sink. False: the session has ended
 * and is gone. */
bool sl_session_sample(struct sl_engine *e, struct sl_session *s, const struct sl_logits *row);
/* Offers the pending token. False: the session has ended and is gone. */
bool sl_session_offer(struct sl_engine *e, struct sl_session *s);
/* Takes the session out of its slot and gives its pages back. */
void sl_session_leave_slot(struct sl_engine *e, struct sl_session *s);
/* Puts the session in front of those that wait. */
void sl_session_wait_first(struct sl_engine *e, struct sl_session *s);
/* Adds to the count of waiting sessions, or subtracts from it. */
void sl_sessions_set_waiting(struct sl_engine *e, int change);
/* The session in a slot that was submitted last; NULL: all slots are free. */
struct sl_session *sl_slots_last_come(const struct sl_engine *e);
/* page_copy.c. Copies a page of all layers to or from the host, after all steps that are under way,
 * and waits for it. A failure that is not fatal leaves a page with anything in it. */
enum sl_status sl_page_copy(struct sl_engine *e, const struct sl_kv_copy *copy,
                            uint8_t *host) SL_MUST_CHECK;
/* Writes what went wrong with pages, and on which device if a copy found that lost; returns status.
 */
enum sl_status sl_pages_fail(const struct sl_engine *e, struct sl_err *err, enum sl_status status,
                             const char *what);
/* slot_pages.c: on all devices a row has the same bits in a prompt, however that is cut, and
 * generated. */
bool sl_rows_alike(const struct sl_engine *e);
/* slot_pages.c: no page of any text is known any more, but for copies elsewhere; no slot has one.
 */
void sl_prefixes_forget(struct sl_engine *e);
/* away.c. Is this the loss of another machine, after which sessions wait for it? Notes it then. */
bool sl_engine_is_away(struct sl_engine *e, enum sl_status status, const struct sl_err *why);
/* While one is lost, when no step is under way: has the sessions wait, looks whether all are there
 * again, and ends the sessions when that has taken too long. */
void sl_engine_tend_away(struct sl_engine *e);
/* flight.c. Adds the row of position pos of a slot to the step. */
void sl_step_add_row(struct sl_engine *e, struct sl_step *step, uint32_t slot, uint32_t pos,
                     uint32_t id);
/* Sends the micro-batch's step, with what has changed in the page table; with one stage it has been
 * computed on return. */
void sl_step_send(struct sl_engine *e, struct sl_micro_batch *l);
/* A session leaves its slot: what steps in flight still compute for it is dropped. */
void sl_steps_forget(struct sl_engine *e, const struct sl_session *s);
/* Cancels the steps in flight and waits for their end. */
void sl_steps_drain(struct sl_engine *e);
/* steps.c. Between layers of a step on the scheduler's own thread. */
void sl_steps_look_after(struct sl_engine *e);
/* Could a step be built now? */
bool sl_steps_wanted(const struct sl_engine *e);
/* Builds a step of what can run and sends it; with one stage it has been computed on return. False:
 * nothing can run, or no micro-batch is free. */
bool sl_steps_start(struct sl_engine *e);
/* Completes steps that have finished. False: none had. */
bool sl_steps_end(struct sl_engine *e);
/* draft_layer.c: drafts by the model's own layer, where config asks for it and the model has it. */
enum sl_status sl_draft_layer_create(struct sl_engine *e, struct sl_err *err) SL_MUST_CHECK;
void sl_draft_layer_destroy(struct sl_draft_layer **d);
/* Are its drafts to be verified in the next step? */
bool sl_draft_layer_verifies(const struct sl_engine *e);
/* Positions that a session's slot must have pages for, when a step writes the first `end`. */
uint32_t sl_draft_layer_positions(const struct sl_engine *e, const struct sl_session *s,
                                  uint32_t end);
/* Behind a step that went well: runs the layer over all positions of its sessions whose tokens and
 * states are known and that it has not seen. With chosen, when the sessions have their next tokens,
 * also drafts those that follow. What goes wrong with drafts alone is passed over. */
enum sl_status sl_draft_layer_step(struct sl_engine *e, const struct sl_micro_batch *l, bool chosen,
                                   struct sl_err *err) SL_MUST_CHECK;
/* drafts.c: which sessions' drafts go into the step being built, after sl_share_rows(); none where
 * rows are kept. */
void sl_drafts_share(struct sl_engine *e, bool keep_all);
/* Adds the row of the token at i of a session's draft, at position pos, to the step. */
void sl_draft_add_row(struct sl_engine *e, struct sl_step *step, const struct sl_session *s,
                      uint32_t i, uint32_t pos);
/* Was the session's latest token the one at i of its draft, and does the session go on? Then the
 * draft's row becomes part of its history. */
bool sl_draft_take(struct sl_engine *e, struct sl_session *s, uint32_t i);
/* prompt_rows.c. Rows [first, first + n) of the micro-batch's step, which kept all and is the last
 * that was sent: logits [n, n_vocab] or hidden states [n, n_embd], until the next call. n is at
 * most sl_kept_rows_most(). */
uint32_t sl_kept_rows_most(const struct sl_engine *e);
enum sl_status sl_kept_logits(struct sl_engine *e, const struct sl_micro_batch *l, uint32_t first,
                              uint32_t n, float **out_logits, struct sl_err *err) SL_MUST_CHECK;
/* After such a step: gives a session's request what it wants of the rows of its prompt. */
enum sl_status sl_session_tell(struct sl_engine *e, const struct sl_micro_batch *l, uint32_t slot,
                               struct sl_err *err) SL_MUST_CHECK;
/* slots.c: what the slots are doing now, for sl_engine_slots. */
void sl_slots_publish(struct sl_engine *e);
/* Sets the gauges of running, parked and waiting sessions. Returns how many run. */
uint32_t sl_slots_update_gauges(struct sl_engine *e);
/* job.c. The caller's side: has it done and waits. SL_AGAIN: requests run, or another job. Else the
 * job's own errors; err has the text. */
enum sl_status sl_job_do(struct sl_engine *e, struct sl_job *job) SL_MUST_CHECK;
/* On the scheduler's thread: does it, unless sessions are alive; ends it undone. */
void sl_job_run(struct sl_engine *e, struct sl_job *job);
void sl_job_end(struct sl_engine *e, struct sl_job *job, enum sl_status status);

#endif
