/* A link: frames between two peers that have proven themselves to each other.
 *
 * Frames have a type, an epoch, and a payload whose length is bounded by its type before anything
 * is allocated for it (net/frame.h, docs/WIRE.md). A link knows nothing of what they say. It is
 * made by sl_link_connect(), or given to a listener's owner once the handshake has succeeded.
 *
 * Threads: each link has a thread of its own, which receives, calls its owner, and writes what
 * could not be written at once. Sending never blocks: a frame is written by the caller as far as
 * the socket takes it, and the rest is queued, in a queue of bounded size. Any thread may send.
 * A thread that would only wait for what comes may receive in the link's place (sl_link_attend):
 * then what comes wakes one thread instead of two.
 *
 * While nothing else is sent, links exchange heartbeats by themselves. A peer from which nothing
 * has come for silence_ns is lost. */
#ifndef SL_NET_LINK_H
#define SL_NET_LINK_H

#include "common/status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sl_link;
struct sl_listener;
struct sl_net_key; /* net/key.h */

struct sl_frame {
    uint16_t type; /* enum sl_frame_type */
    uint32_t epoch;
    const uint8_t *bytes; /* the payload: the link's, during the call */
    size_t n;
};

struct sl_link_owner {
    /* A frame has come. Nothing else is received before this returns. An error ends the link with
     * it: what came makes no sense to the owner. From the link's thread, or who attends it. */
    enum sl_status (*received)(struct sl_link_owner *o, struct sl_link *l, const struct sl_frame *f,
                               struct sl_err *err);
    /* Once, last: the peer is gone, silent, or has sent what no peer may send; not after
     * sl_link_close(). */
    void (*lost)(struct sl_link_owner *o, struct sl_link *l, enum sl_status status,
                 const struct sl_err *why);
};

struct sl_link_config {
    const struct sl_net_key *key; /* NULL: plain text, on loopback and UNIX sockets alone */
    uint64_t connect_ns;          /* for connection and handshake together */
    uint64_t heartbeat_ns, silence_ns;
    size_t max_payload_bytes; /* of any frame, besides the limit of its type */
    size_t queue_bytes;       /* of frames that wait to be written, with their heads */
};

/* Room in a queue for so many frames of the most payload, and for what links say by themselves. */
#define SL_LINK_OWN_BYTES 4096u
size_t sl_link_queue_bytes(size_t n_frames, size_t payload_bytes);
/* What a link takes at most besides that queue, its payload and its thread's stack, and what a
 * listener does, with all that have not proven themselves. keyed: has it a key? */
size_t sl_link_bytes(bool keyed);
size_t sl_listener_bytes(bool keyed);

struct sl_link_stats {
    uint64_t sent_bytes, received_bytes, sent_frames, received_frames;
    uint64_t queued_bytes;   /* now */
    uint64_t queue_bytes;    /* room for them */
    uint64_t round_trip_ns;  /* of the last heartbeat; 0: none yet */
    int64_t clock_offset_ns; /* the peer's monotonic clock minus ours, by the heartbeat with the
                              * shortest round trip of late */
};

/* address: "host:port", "[v6]:port", "unix:PATH". Blocks for connect_ns at most; canceled as soon
 * as *cancel is true (NULL: cannot be). SL_ERR_PEER_LOST: nobody answers, or the connection
 * was cut in the handshake; SL_ERR_PROTOCOL: who answers is no peer, has another version, or
 * another key. */
enum sl_status sl_link_connect(const char *address, const struct sl_link_config *config,
                               struct sl_link_owner *owner, const atomic_bool *cancel,
                               struct sl_link **out, struct sl_err *err) SL_MUST_CHECK;
/* Begins to receive: calls to the owner come only after this. SL_ERR_NOMEM: no thread. */
enum sl_status sl_link_start(struct sl_link *l, struct sl_err *err) SL_MUST_CHECK;
/* The payload is the parts one behind the other; they are the caller's again when this returns.
 * SL_AGAIN: the queue is full, nothing was sent. SL_ERR_PEER_LOST: the link has ended. */
struct sl_bytes_part {
    const void *bytes;
    size_t n;
};
enum sl_status sl_link_send(struct sl_link *l, uint16_t type, uint32_t epoch,
                            const struct sl_bytes_part *parts, size_t n_parts) SL_MUST_CHECK;
/* From now on frames may have so much payload, besides the limits of their types (after the two
 * have agreed on the shapes that they exchange); never less than before. Any thread. */
enum sl_status sl_link_set_max_payload(struct sl_link *l, size_t max_payload_bytes,
                                       size_t queue_bytes) SL_MUST_CHECK;
/* From now on the link's thread looks for what comes next for a moment before it sleeps
 * (SL_LOOK_OUT_NS), while others are at work: where there are CPUs to spare. Any thread. */
void sl_link_look_out(struct sl_link *l, bool looks_out);
/* The caller's thread receives until a frame of the owner's has come, the link is nudged, or
 * until_ns (UINT64_MAX: without end). Heartbeats, and what the socket had no room for, remain the
 * link's thread's. ready (NULL: never) is asked once, when no frame can come any more without
 * ending this: true for what has come since the caller looked. False: the link has ended, or
 * somebody else attends it. Once it is started; not from the owner's calls. */
bool sl_link_attend(struct sl_link *l, bool (*ready)(void *what), void *what, uint64_t until_ns);
/* Whoever attends it returns; if nobody does, the next one at once. Any thread. */
void sl_link_nudge(struct sl_link *l);
struct sl_link_stats sl_link_stats(struct sl_link *l);
/* "10.0.0.7:51234", "unix"; for logs. */
const char *sl_link_peer(const struct sl_link *l);
/* Sends what is queued for at most linger_ns, ends the link and frees it. Not from its owner's
 * calls, nor while somebody attends it. */
void sl_link_close(struct sl_link *l, uint64_t linger_ns);

struct sl_listener_owner {
    /* A peer has proven itself. The link is the owner's, which sets its own calls with
     * sl_link_own() and starts it, or closes it. From the listener's thread. */
    void (*accepted)(struct sl_listener_owner *o, struct sl_link *l);
};
void sl_link_own(struct sl_link *l, struct sl_link_owner *owner);

/* Accepts peers on address until it is closed. Connections that have not proven themselves are
 * few at most, short-lived, and cost no thread each. */
enum sl_status sl_listener_open(const char *address, const struct sl_link_config *config,
                                struct sl_listener_owner *owner, struct sl_listener **out,
                                struct sl_err *err) SL_MUST_CHECK;
/* "0.0.0.0:7070", with the port that was taken when 0 was asked for. */
const char *sl_listener_address(const struct sl_listener *l);
void sl_listener_close(struct sl_listener *l);

#endif
