/* Which machines take part, as the program that started them all says: Slurm, a Kubernetes
 * LeaderWorkerSet, or a name with several addresses. */
#ifndef SL_CLI_CLUSTER_MEMBERS_H
#define SL_CLI_CLUSTER_MEMBERS_H

#include "common/status.h"

/* Where workers listen unless --workers says otherwise. */
#define SL_WORKER_PORT "7070"

/* The value of a variable of the environment, or NULL. */
typedef const char *sl_variable_fn(const char *name);

/* What --workers means, as a list of addresses: *out "a:7070,b:7070", for free().
 *
 *   slurm[:PORT]    the nodes of the job (SLURM_JOB_NODELIST) but this one (SLURMD_NODENAME), in
 * the order of the list. Source: Slurm, "scontrol(1)", hostlist expressions lws[:PORT]      the
 * workers of the group whose leader this pod is (LWS_LEADER_ADDRESS, LWS_GROUP_SIZE,
 * LWS_WORKER_INDEX). Source: Kubernetes SIGs, LeaderWorkerSet, "Labels, annotations and environment
 * variables" dns:NAME:PORT   every machine that NAME names now (sl_net_resolve_machines), in the
 * order of their addresses; asks the resolver
 *
 * Anything else is the list itself. SL_ERR_CONFIG: a variable is missing or makes no sense, or
 * there are no other machines, or too many; SL_ERR_PEER_LOST: NAME has no address now. */
enum sl_status sl_cluster_members(const char *text, sl_variable_fn *variable, char **out,
                                  struct sl_err *err) SL_MUST_CHECK;

#endif
