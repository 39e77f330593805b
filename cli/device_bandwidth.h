/* How fast a device that is apart reads its own memory, and how fast the host's reaches it. */
#ifndef SL_CLI_DEVICE_BANDWIDTH_H
#define SL_CLI_DEVICE_BANDWIDTH_H

#include "engine/engine.h"

struct sl_device_bandwidth {
    double memory; /* bytes/s, counting what a copy within the device reads and what it writes */
    double link;   /* bytes/s from pinned host memory to the device */
};

/* Measures over some 0.3 s, in memory of its own: 64 MiB to 1 GiB of the device, 32 MiB of the
 * host. id: of the device, which has memory of its own; an engine may have it open, idle. Both
 * rates are 0, and why says so, where they cannot be measured. */
void sl_device_bandwidth(const char *id, struct sl_device_bandwidth *out, struct sl_err *why);
/* The same of all devices that the layers are divided over: rates at which one sequence's bytes
 * come, a part of them from each by its layers. One that computes in the host's memory has that
 * one's rate, ram_rate, and no link. */
void sl_stages_bandwidth(const struct sl_engine_info *info, double ram_rate,
                         struct sl_device_bandwidth *out, struct sl_err *why);

#endif
