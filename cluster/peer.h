/* A worker as its coordinator sees it: the link, the worker's last messages, and what the
 * coordinator waits for.
 *
 * Threads: what comes is taken on the link's thread, or on that of a stage's caller who attends it,
 * under the peer's lock; the rest is one thread's at a time. */
#ifndef SL_CLUSTER_PEER_H
#define SL_CLUSTER_PEER_H

#include "cluster/setup.h"
#include "engine/stage/stage_remote.h"
#include "model/arch/model.h"
#include "net/link.h"

#include <pthread.h>

struct sl_peer;

/* In front of each message: which of the worker's stages it is for. */
#define SL_PEER_STAGE_BYTES 4u

enum sl_peer_asked { SL_PEER_ASKED_OFFER, SL_PEER_ASKED_LOAD, SL_PEER_ASKED_NOTHING };

/* A stage of a worker: how messages get there. */
struct sl_peer_port {
    struct sl_stage_carrier carrier; /* first */
    struct sl_peer *peer;
    uint32_t at;                    /* which of the worker's */
    struct sl_stage_remote *remote; /* under the peer's lock; NULL: not open */
};

struct sl_peer {
    struct sl_link_owner owner; /* first */
    const char *address;        /* borrowed; changed under the lock */
    const struct sl_model *model;
    const struct sl_setup_model *files; /* what there is to fetch of it */
    const struct sl_net_key *key;
    const atomic_bool *cancel;
    pthread_mutex_t link_lock;
    pthread_cond_t left; /* nobody attends the link any more */
    /* Under link_lock. */
    struct sl_link *link; /* NULL: there is none */
    bool carries;         /* calls may go out on it: what was asked of a link before may not */
    bool attended;        /* a stage's caller receives, and has the link until it leaves */
    struct sl_setup_offer offer;
    struct sl_setup_load load; /* what it has been asked to load; changed under the lock */
    uint32_t first;            /* of the cluster's devices, which is its first */
    uint32_t epoch;            /* of the connection; answers of others are dropped */
    struct sl_peer_port ports[SL_MAX_STAGES];
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Under the lock. */
    enum sl_peer_asked asked; /* what is waited for */
    bool has_hello, wants_model;
    bool there; /* its stages can be asked */
    struct sl_setup_ready ready;
    uint64_t n_lost;                  /* how often its stages were */
    uint64_t done_bytes, total_bytes; /* of loading */
    uint64_t news_ns;                 /* when that last changed, or loading was asked for */
    enum sl_status lost;              /* not SL_OK: it is gone, or has refused */
    bool cut;                         /* ... and it was the connection: nobody has said no */
    struct sl_err why;
};

/* All is borrowed until release. *cancel is looked at several times a second. */
void sl_peer_init(struct sl_peer *p, const char *address, const struct sl_model *model,
                  const struct sl_setup_model *files, const struct sl_net_key *key,
                  const atomic_bool *cancel);
void sl_peer_release(struct sl_peer *p);

/* Connects, within wait_ns if nobody answers at first or the connection is cut, and learns what the
 * worker has: p->offer. SL_ERR_CONFIG: it has another model or version, or refuses, and says why;
 * SL_ERR_PROTOCOL: it has another key. */
enum sl_status sl_peer_meet(struct sl_peer *p, uint64_t wait_ns, struct sl_err *err) SL_MUST_CHECK;
/* Closes the link and forgets what arrived on it, so that the worker can be connected to again. */
void sl_peer_leave(struct sl_peer *p);
/* What sending the model to one without a copy takes. */
uint64_t sl_peer_fetch_bytes(void);
/* Sends p->load. */
enum sl_status sl_peer_send_load(struct sl_peer *p, struct sl_err *err) SL_MUST_CHECK;
/* Waits until it is ready: p->ready. progress may be NULL. SL_ERR_PEER_LOST, also if its loading
 * makes no progress for stuck_ns although the link is alive. */
enum sl_status sl_peer_watch_load(struct sl_peer *p, uint64_t stuck_ns,
                                  struct sl_progress *progress, struct sl_err *err) SL_MUST_CHECK;
/* Opens the port to the i-th of its stages, which is p->ports[at].remote's carrier. */
struct sl_stage_carrier *sl_peer_port(struct sl_peer *p, uint32_t at);
/* The next of its stages that is open, from *inout_at on; NULL: there is none. Under the lock. */
struct sl_stage_remote *sl_peer_next_open(struct sl_peer *p, uint32_t *inout_at);
/* All of its stages are open. Under the lock. */
bool sl_peer_is_open(struct sl_peer *p);
/* From now on calls go out on the current link, since nothing requested before is still in flight.
 * Also under the lock. */
void sl_peer_carry(struct sl_peer *p);
/* What is shown of it. Any thread. */
void sl_peer_look(struct sl_peer *p, struct sl_remote_look *out);
/* Tells the worker, for its log, why this side leaves it. A link that is lost already tells nobody.
 */
void sl_peer_tell(struct sl_peer *p, enum sl_status status, const struct sl_err *why);
/* Marks it as lost, its stages too. Any thread. */
void sl_peer_lose(struct sl_peer *p, enum sl_status status, const struct sl_err *why);
/* Loses it if one of its stages owes an answer for most_ns, however alive its link is. */
void sl_peer_watch_calls(struct sl_peer *p, uint64_t most_ns);

#endif
