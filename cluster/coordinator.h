/* The coordinator's side: the workers that it has connected to, as devices and stages of the engine
 * (struct sl_remote_stages).
 *
 * Threads: open, the calls of sl_remote_stages and close are one thread's at a time. What comes
 * from a worker is received on its link's thread. */
#ifndef SL_CLUSTER_COORDINATOR_H
#define SL_CLUSTER_COORDINATOR_H

#include "engine/types/config.h"
#include "model/arch/model.h"

#define SL_CLUSTER_MAX_WORKERS (SL_MAX_STAGES - 1)

struct sl_net_key;
struct sl_cluster;

struct sl_cluster_config {
    const char *const *workers; /* [n_workers] addresses (net/link.h), in the order of layers */
    uint32_t n_workers;
    /* [n_spares] Machines that take the place of a worker that does not answer in time, or is lost,
     * whichever is there first. */
    const char *const *spares;
    uint32_t n_spares;
    const struct sl_net_key *key; /* NULL: plain text, on this machine alone */
    uint64_t wait_ns; /* how long to wait for a worker that does not answer yet, or is lost */
    /* A worker that has not answered for this long, or makes no progress with loading, is lost. */
    uint64_t answer_ns;
};

/* Connects to every worker, or a spare in its place, and learns what each has. SL_ERR_PEER_LOST:
 * one cannot be reached, nor a spare;
 * SL_ERR_CONFIG: one has another model or another version, or serves somebody else; the text names
 * it. model, config's strings and key are borrowed until close. */
enum sl_status sl_cluster_open(const struct sl_cluster_config *config, const struct sl_model *model,
                               struct sl_cluster **out_cluster, struct sl_err *err) SL_MUST_CHECK;
/* The cluster's, until close. */
const struct sl_remote_stages *sl_cluster_stages(const struct sl_cluster *c);
/* What its links take in this process besides the queues of their messages: for
 * sl_engine_config.link_bytes. */
uint64_t sl_cluster_link_bytes(const struct sl_cluster *c);
/* A lost worker is sought in the background until it, or a spare, is back with the same layers; the
 * engine's requests wait for it as long as config says. The address of a worker whose place was
 * taken is a spare's from then on. */

/* Tells every worker, for its log, why this coordinator leaves: it has refused what one of them
 * offered, or could not plan or load. Before close. NULL is allowed. */
void sl_cluster_tell(struct sl_cluster *c, enum sl_status status, const struct sl_err *why);
/* After the engine that used its stages has been destroyed. NULL is allowed. */
void sl_cluster_close(struct sl_cluster **c);

#endif
