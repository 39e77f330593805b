/* What a backend tells of itself and of its devices (struct sl_backend), and the names that devices
 * have. backends/registry/ lists the backends.
 *
 * An id is a backend's name and the device's number, "cuda:0", or just the name if the backend has
 * a single device, "cpu". */
#ifndef SL_BACKENDS_BACKEND_ENTRY_H
#define SL_BACKENDS_BACKEND_ENTRY_H

#include "backends/backend.h"

/* The highest number of a device, and the most threads of a host's. */
#define SL_DEVICE_MAX_NUMBER  63u
#define SL_DEVICE_MAX_THREADS 256u

/* A device that a backend has found. It has not been opened. */
struct sl_device_found {
    char id[SL_DEVICE_ID_BYTES], model[SL_DEVICE_NAME_BYTES];
    enum sl_device_kind kind;
    uint64_t memory_bytes; /* 0 = unknown */
    struct sl_err why_not; /* why it cannot be used; empty: no reason known */
    bool software; /* behind a GPU's interface it computes on the host's CPU: used only by number */
};

/* How to open a device. A backend uses what applies to it and ignores the rest. */
struct sl_device_options {
    uint32_t n_threads;  /* of the host's CPU; 0 = all that the process may run on */
    const char *cpu_isa; /* NULL or "" = the best; one of the host backend's isas */
    uint64_t awake_ns;   /* how long threads of the host's CPU wait for an op before they sleep; 0 =
                            as long as the backend thinks usual */
};

/* A device that need not be here, as plans are to count with it; 0 = as the backend thinks usual.
 */
struct sl_device_offer {
    uint64_t memory_bytes;
    uint64_t memory_bytes_per_s;
    uint32_t n_threads; /* of a host's CPU */
    /* As in its struct sl_device_caps. */
    uint64_t max_alloc_bytes, held_bytes, lacks_ops;
};

struct sl_backend {
    const char *name;         /* "cuda": ids begin with it */
    const char *devices;      /* what they are, for help: "NVIDIA GPUs" */
    const char *const *isas;  /* the values of cpu_isa, ends with NULL; NULL: there is no choice */
    enum sl_device_kind kind; /* SL_DEVICE_HOST: its one device is the host; else 0 */
    bool hidden;              /* only opened when named; neither listed nor chosen otherwise */
    bool named_only;          /* listed, but "auto" does not look at it */
    /* Whether a device may be here at all, by what the system shows: asked before a driver is
     * started that nobody named. NULL: enumerating costs little where there is none. */
    bool (*may_be_here)(struct sl_err *why_not);
    /* Fills at most max entries; *out_n: how many devices there are. SL_ERR_UNSUPPORTED: none can
     * be used, with the reason. */
    enum sl_status (*enumerate)(struct sl_device_found *out, uint32_t max, uint32_t *out_n,
                                struct sl_err *err);
    /* SL_ERR_UNSUPPORTED: there is no such device, or it cannot be used, with the reason. */
    enum sl_status (*open)(const struct sl_device_options *options, uint32_t number,
                           struct sl_device **out_device, struct sl_err *err);
    /* A device that need not be here, for plans: it has capabilities and answers what planning
     * asks; nothing can be allocated on it. NULL: there is none. */
    enum sl_status (*planned)(const struct sl_device_offer *offer, uint32_t number,
                              struct sl_device **out_device, struct sl_err *err);
};

/* A device, which need not exist. */
struct sl_device_ref {
    const struct sl_backend *backend;
    uint32_t number;
};
void sl_device_ref_id(struct sl_device_ref ref, char out_id[SL_DEVICE_ID_BYTES]);

/* Sets caps->id, and caps->name from it and caps->model. only: the backend has just
 * one device, whose id has no number. */
void sl_device_caps_set_id(struct sl_device_caps *caps, const char *backend, uint32_t number,
                           bool only);

const char *sl_device_kind_name(enum sl_device_kind kind); /* "discrete"; "" for none */
const char *sl_device_found_kind_name(const struct sl_device_found *found); /* "software", too */
/* The i-th of enum sl_fused, from 0: "norm_router"; NULL beyond the last. */
const char *sl_fused_name(uint32_t i);

#endif
