/* A worker: loads stages for a coordinator and runs them at its request.
 *
 * One coordinator at a time. When it goes, its sessions are forgotten, and what was loaded stays
 * for the next one: if that asks for the same, it starts at once. */
#ifndef SL_CLUSTER_WORKER_H
#define SL_CLUSTER_WORKER_H

#include "backends/backend.h"
#include "common/metrics.h"
#include "engine/types/config.h"
#include "model/arch/model.h"
#include "net/link.h"

#include <stdatomic.h>

struct sl_net_key;
struct sl_worker;

/* What its link and its listener take besides the queue of messages. */
uint64_t sl_worker_link_bytes(const struct sl_net_key *key);

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
    /* Measures the rates of a discrete device's memory and of its link, 0 where that fails. NULL:
     * they stay unknown. */
    void (*measure)(const char *id, double *out_memory_bytes_per_s, double *out_link_bytes_per_s);
    const atomic_bool *stop; /* looked at several times a second */
    /* Called when the worker listens, with its address. NULL: not called. */
    void (*listening)(void *ctx, const char *address);
    void *ctx;
};

/* Opens the devices briefly, to learn what there is to offer. SL_ERR_CONFIG: a device or a budget
 * that cannot be used. config is copied; what it points to is borrowed until destroy. */
enum sl_status sl_worker_create(const struct sl_worker_config *config,
                                struct sl_worker **out_worker, struct sl_err *err) SL_MUST_CHECK;
/* Listens, and serves until *stop. SL_ERR_CONFIG: an address that cannot be used. Another error: a
 * device was lost and cannot be opened again in this process. */
enum sl_status sl_worker_run(struct sl_worker *w, struct sl_err *err) SL_MUST_CHECK;
void sl_worker_destroy(struct sl_worker **w);

enum sl_worker_state {
    SL_WORKER_STARTING, /* it does not listen yet */
    SL_WORKER_WAITING,  /* for a coordinator */
    SL_WORKER_LOADING,  /* a coordinator is connected; its layers are not all there */
    SL_WORKER_SERVING,  /* the coordinator can use its layers, or is parting */
    SL_WORKER_STATES
};
/* "waiting" */
const char *sl_worker_state_name(enum sl_worker_state state);

/* A stage that is loaded. */
struct sl_worker_stage_look {
    uint32_t stage; /* from 0, of those on all machines */
    uint32_t first_layer, n_layer;
    char device[SL_DEVICE_ID_BYTES];
    struct sl_stage_metrics metrics;
};

struct sl_worker_look {
    enum sl_worker_state state;
    uint64_t n_coordinators;          /* that have connected, one after the other */
    uint64_t done_bytes, total_bytes; /* of loading; 0, 0: it has not begun */
    struct sl_link_stats link;        /* to the coordinator; zero without one */
    uint32_t n_stages;                /* loaded stages, whether a coordinator uses them or not */
    struct sl_worker_stage_look stages[SL_MAX_STAGES];
};
/* What it does now. Any thread, between create and destroy. */
void sl_worker_look(struct sl_worker *w, struct sl_worker_look *out);

#endif
