/* A worker: loads stages for a coordinator and does what it asks of them.
 *
 * One coordinator at a time. When it goes, its sessions are forgotten, and what was loaded stays
 * for the next one: if that asks for the same, it starts at once. */
#ifndef SL_CLUSTER_WORKER_H
#define SL_CLUSTER_WORKER_H

#include "engine/types/config.h"
#include "model/arch/model.h"

#include <stdatomic.h>

struct sl_net_key;

struct sl_worker_config {
    const struct sl_model *model; /* NULL: it has no copy of its own, and fetches what it needs */
    const char *model_name;       /* for messages; NULL without a copy */
    const char *cache;            /* without one: the folder for what is fetched */
    /* Looks at the process's memory again, once a model is open; for engine.process_bytes. */
    uint64_t (*process_bytes)(void);
    const char *address;          /* to listen on (net/link.h) */
    const struct sl_net_key *key; /* NULL: plain text, on this machine alone */
    /* What computes and with which memory: device, budgets, threads, I/O, mirrors, process_*. The
     * rest is the coordinator's to say. */
    struct sl_engine_config engine;
    double disk_bytes_per_s, ram_bytes_per_s; /* 0: not known */
    /* Measures a discrete device's memory and its link, 0 where that fails. NULL: not known. */
    void (*measure)(const char *id, double *out_memory_bytes_per_s, double *out_link_bytes_per_s);
    const atomic_bool *stop; /* looked at several times a second */
    /* The worker listens, at this address. NULL: nobody wants to know. */
    void (*listening)(void *ctx, const char *address);
    void *ctx;
};

/* Serves until *stop. SL_ERR_CONFIG: an address, a device or a budget that cannot be. */
enum sl_status sl_worker_run(const struct sl_worker_config *config,
                             struct sl_err *err) SL_MUST_CHECK;

#endif
