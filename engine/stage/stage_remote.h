/* The two ends of a stage that is in another process: at one end it is spoken to as any stage, at
 * the other a stage of that process does the work. Between them go messages (stage_message.h),
 * which somebody else carries: nothing here knows of sockets.
 *
 * Both ends know the limits of the messages from the plan and from the stage's hello, which were
 * exchanged before. Neither allocates once it has been made. */
#ifndef SL_ENGINE_STAGE_REMOTE_H
#define SL_ENGINE_STAGE_REMOTE_H

#include "engine/stage/stage_message.h"

/* Takes messages to the other end, whole and in order. */
struct sl_stage_carrier {
    /* Never blocks for long; the bytes are the caller's again when it returns. Any thread. An error
     * is for good. After SL_ERR_PEER_LOST the carrier calls sl_stage_remote_lost(), if it has not
     * yet, and that answers the call. No answer gets lost on a connection that stays: where one
     * cannot be sent, the carrier of the end that works ends the connection. */
    enum sl_status (*send)(struct sl_stage_carrier *c, enum sl_message_kind kind,
                           const uint8_t *bytes, size_t n);
    /* The end that asks has been closed: no message is for it any more. NULL: nothing is to be
     * done. */
    void (*closed)(struct sl_stage_carrier *c);
    /* As sl_stage_ops.clock_offset. NULL: never known. */
    bool (*clock_offset)(struct sl_stage_carrier *c, int64_t *out_ns);
};

/* ---- the end that asks ---- */

/* A stage whose calls become messages. Hello, join, link, idle, save heat and quit are answered
 * here: the other end reads in the background and keeps its own heat file by itself, and rows
 * travel with messages. Close it with sl_stage_ops.close when nothing is under way.
 *
 * Threads: as struct sl_stage; received and lost are called by one thread, the carrier's, on which
 * calls are answered. */
struct sl_stage_remote;

/* hello: of the stage at the other end, whose name is not passed on. The carrier is borrowed. */
enum sl_status sl_stage_remote_create(const struct sl_message_limits *limits,
                                      const struct sl_stage_hello *hello,
                                      struct sl_stage_carrier *carrier,
                                      struct sl_stage_remote **out_remote,
                                      struct sl_err *err) SL_MUST_CHECK;
struct sl_stage *sl_stage_remote_stage(struct sl_stage_remote *r);
/* A message has come. SL_ERR_PROTOCOL: no answer to what was asked; the caller ends the
 * connection. */
enum sl_status sl_stage_remote_received(struct sl_stage_remote *r, const uint8_t *bytes, size_t n,
                                        struct sl_err *err) SL_MUST_CHECK;
/* The other end is gone: what is under way, and all that is asked from now on, is answered with
 * this status and text. */
void sl_stage_remote_lost(struct sl_stage_remote *r, enum sl_status status,
                          const struct sl_err *why);
/* There is another end again, without anything of what was asked before; the carrier reaches it.
 * When nothing is under way. Calls are answered as lost until resume: whoever asks must hear that
 * the state is gone, even if the other end was away while nothing was asked. SL_ERR_CONFIG: it is
 * another stage than before, has other shapes, or computes with other bits. */
enum sl_status sl_stage_remote_regain(struct sl_stage_remote *r,
                                      const struct sl_message_limits *limits,
                                      const struct sl_stage_hello *hello,
                                      struct sl_err *err) SL_MUST_CHECK;
/* Whoever asks counts on nothing of what was asked before: the end that was regained is asked from
 * now on. Nothing happens if there is none. */
void sl_stage_remote_resume(struct sl_stage_remote *r);
/* When the oldest call that is under way was sent; 0: none is. Any thread. */
uint64_t sl_stage_remote_waits_since_ns(struct sl_stage_remote *r);
/* What create allocates. */
uint64_t sl_stage_remote_bytes(const struct sl_message_limits *limits);

/* ---- the end that does the work ---- */

/* Has a stage of this process do what messages ask, one call after the other, on a thread of its
 * own. While there are none it has the stage read in the background and save its heat.
 *
 * All calls to a stage are one thread's as long as it lives: reads belong to the thread that began
 * them. So a server stays when whoever asks goes, and serves the next one. */
struct sl_stage_server;

/* stage and carrier are borrowed until destroy. */
enum sl_status sl_stage_server_create(const struct sl_message_limits *limits,
                                      struct sl_stage *stage, struct sl_stage_carrier *carrier,
                                      struct sl_stage_server **out_server,
                                      struct sl_err *err) SL_MUST_CHECK;
/* A message has come, from the carrier's thread. SL_ERR_PROTOCOL: nothing that the other end may
 * ask; the caller ends the connection. */
enum sl_status sl_stage_server_received(struct sl_stage_server *s, const uint8_t *bytes, size_t n,
                                        struct sl_err *err) SL_MUST_CHECK;
/* Whoever asked is gone, and sends nothing more: cancels what is under way, and forgets what has
 * not begun. When this returns nothing is under way and the carrier is used no more, until another
 * one asks. */
void sl_stage_server_forget(struct sl_stage_server *s);
/* Forgets likewise, has the stage quit (SL_STAGE_QUIT) and joins. */
void sl_stage_server_destroy(struct sl_stage_server **s);
uint64_t sl_stage_server_bytes(const struct sl_message_limits *limits);

#endif
