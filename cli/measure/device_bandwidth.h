/* How fast a discrete device reads its own memory, and how fast data reaches it from the host. */
#ifndef SL_CLI_DEVICE_BANDWIDTH_H
#define SL_CLI_DEVICE_BANDWIDTH_H

#include "engine/engine.h"

struct sl_device_bandwidth {
    double
        memory;  /* bytes/s, counting both what a copy within the device reads and what it writes */
    double link; /* bytes/s from pinned host memory to the device */
};

/* Measures for some 0.3 s, in its own memory: 64 MiB to 1 GiB of the device, 32 MiB of the host.
 * id: of a discrete device; an engine may have it open, idle. If a rate cannot be measured both are
 * 0, and why says so. */
void sl_device_bandwidth(const char *id, struct sl_device_bandwidth *out, struct sl_err *why);
/* The same for all devices that the layers are divided over: the rates for the bytes of one
 * sequence, of which each device has a part by its layers. A device that computes in host memory
 * has that memory's rate, ram_rate, and no link. */
void sl_stages_bandwidth(const struct sl_engine_info *info, double ram_rate,
                         struct sl_device_bandwidth *out, struct sl_err *why);

#endif
