/* A device whose ops do nothing, at once: what is left of a run's time on it is the engine's own.
 * Memory is the host's, zeroed, so that what is read back is the same each time. Op results are
 * whatever lay there, with one exception: routers choose experts 0 to k - 1 with equal weights,
 * since ids that are read back must be in range. */
#ifndef SL_BACKENDS_NULL_NULL_H
#define SL_BACKENDS_NULL_NULL_H

#include "backends/backend_entry.h"

/* Hidden: --device null opens it. */
extern const struct sl_backend sl_null_backend;

enum sl_status sl_null_open(struct sl_device **out_device, struct sl_err *err) SL_MUST_CHECK;

#endif
