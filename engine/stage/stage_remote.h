/* The two ends of a stage in another process: one looks like any stage, behind the other a stage of
 * that process does the work. They exchange messages (stage_message.h) through a carrier: nothing
 * here knows of sockets.
 *
 * Both ends know the limits of the messages from the plan and the stage's hello, which were
 * exchanged before. Neither end allocates after it has been created. */
#ifndef SL_ENGINE_STAGE_REMOTE_H
#define SL_ENGINE_STAGE_REMOTE_H

#include "engine/stage/stage_message.h"

/* Takes messages to the other end, whole and in order. */
struct sl_stage_carrier {
    /* Never blocks for long, and does not keep the bytes. Any thread. Errors are final. After
     * SL_ERR_PEER_LOST the carrier calls sl_stage_remote_lost(), unless it has already, and that
     * answers the call. If an answer cannot be sent, the carrier at the working end closes the
     * connection: no answer is lost on one that stays open. */
    enum sl_status (*send)(struct sl_stage_carrier *c, enum sl_message_kind kind,
                           const uint8_t *bytes, size_t n);
    /* The asking end has been closed and takes no more messages. NULL: not called. */
    void (*closed)(struct sl_stage_carrier *c);
    /* As sl_stage_ops.clock_offset. NULL: never known. */
    bool (*clock_offset)(struct sl_stage_carrier *c, int64_t *out_ns);
    /* Has the caller's thread take what comes, in place of the carrier's, until something has come,
     * it is nudged, or until_ns (UINT64_MAX: without end). ready (NULL: never) is asked once, when
     * nothing can come any more without ending this: has it come already? False: there is nothing
     * that it could come from, or somebody else attends. NULL: that is always so. */
    bool (*attend)(struct sl_stage_carrier *c, bool (*ready)(void *what), void *what,
                   uint64_t until_ns);
    /* Whoever attends returns, or the next one at once. Any thread. For the end that asks. */
    void (*nudge)(struct sl_stage_carrier *c);
};

/* ---- the end that asks ---- */

/* A stage whose calls become messages. Steps may go ahead of their rows if the other end allows it.
 * Hello, join, link, idle, save heat and quit are answered here, since the other end reads in the
 * background and keeps its heat file on its own, and rows travel with messages. Close it with
 * sl_stage_ops.close when nothing is under way.
 *
 * Threads: as struct sl_stage. received and lost are for one thread at a time, the carrier's or who
 * attends it, which also answers the calls. */
struct sl_stage_remote;

/* hello: of the stage at the other end, whose name is not passed on. The carrier is borrowed. */
enum sl_status sl_stage_remote_create(const struct sl_message_limits *limits,
                                      const struct sl_stage_hello *hello,
                                      struct sl_stage_carrier *carrier,
                                      struct sl_stage_remote **out_remote,
                                      struct sl_err *err) SL_MUST_CHECK;
struct sl_stage *sl_stage_remote_stage(struct sl_stage_remote *r);
/* Takes a message. SL_ERR_PROTOCOL: it does not answer what was asked; SL_ERR_PEER_LOST: the stage
 * at the other end has broken down, as its device is lost. In both cases the caller closes the
 * connection and calls sl_stage_remote_lost(). */
enum sl_status sl_stage_remote_received(struct sl_stage_remote *r, const uint8_t *bytes, size_t n,
                                        struct sl_err *err) SL_MUST_CHECK;
/* The other end is gone: all calls, under way or to come, are answered with this status and text.
 */
void sl_stage_remote_lost(struct sl_stage_remote *r, enum sl_status status,
                          const struct sl_err *why);
/* The carrier reaches an end again, which has none of the earlier state. Only when nothing is under
 * way. Calls are still answered as lost until resume: the caller must learn that the state is gone,
 * even if the loss fell between two calls. SL_ERR_CONFIG: it is not the same stage, has other
 * shapes, or computes with other bits. */
enum sl_status sl_stage_remote_regain(struct sl_stage_remote *r,
                                      const struct sl_message_limits *limits,
                                      const struct sl_stage_hello *hello,
                                      struct sl_err *err) SL_MUST_CHECK;
/* The caller relies on none of the earlier state any more: from now on calls go to the end that was
 * regained. Does nothing if there is none. */
void sl_stage_remote_resume(struct sl_stage_remote *r);
/* When the oldest call under way was sent, or its rows if it went ahead of them; 0: none is under
 * way. Any thread. */
uint64_t sl_stage_remote_waits_since_ns(struct sl_stage_remote *r);
/* The number of calls sent to the other end, and the time during which at least one of them was
 * unanswered, counted from its rows likewise. Any thread. */
void sl_stage_remote_waits(struct sl_stage_remote *r, uint64_t *out_n_calls,
                           uint64_t *out_waited_ns);
/* What create allocates. */
uint64_t sl_stage_remote_bytes(const struct sl_message_limits *limits);

/* ---- the end that does the work ---- */

/* Passes the calls that arrive as messages to a stage of this process, one at a time, on a thread
 * of its own. Between calls it has the stage read in the background and save its heat.
 *
 * While it has nothing to do that thread attends the carrier, if it can: then a request wakes only
 * that one.
 *
 * One thread makes all calls of a stage during its life, since reads belong to the thread that
 * began them. So the server stays when the asking end goes, and serves the next one. */
struct sl_stage_server;

/* stage and carrier are borrowed until destroy. looks_out: there are CPUs to spare
 * (sl_cpus_spare). */
enum sl_status sl_stage_server_create(const struct sl_message_limits *limits,
                                      struct sl_stage *stage, struct sl_stage_carrier *carrier,
                                      bool looks_out, struct sl_stage_server **out_server,
                                      struct sl_err *err) SL_MUST_CHECK;
/* Takes a message, on the carrier's thread, or on its own that attends. SL_ERR_PROTOCOL: the other
 * end may not ask this; the caller closes the connection. */
enum sl_status sl_stage_server_received(struct sl_stage_server *s, const uint8_t *bytes, size_t n,
                                        struct sl_err *err) SL_MUST_CHECK;
/* The asking end is gone and sends nothing more: cancels the call under way and drops those that
 * have not begun. When this returns, nothing is under way, and the carrier is not used until the
 * next call. */
void sl_stage_server_forget(struct sl_stage_server *s);
/* Whether the stage has broken down (sl_stage_is_broken), and can only be closed. */
bool sl_stage_server_is_broken(const struct sl_stage_server *s);
/* As forget; then has the stage quit (SL_STAGE_QUIT), and joins the thread. Not while the carrier
 * can be attended. */
void sl_stage_server_destroy(struct sl_stage_server **s);
uint64_t sl_stage_server_bytes(const struct sl_message_limits *limits);

#endif
