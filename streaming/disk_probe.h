/* How fast a model's disk gives experts: a short measurement for the memory plan. */
#ifndef SL_STREAMING_DISK_PROBE_H
#define SL_STREAMING_DISK_PROBE_H

#include "streaming/reader.h"

struct sl_disk_speed {
    double bytes_per_s;    /* of payload, queue full all the time */
    double expert_ns;      /* one expert alone, disk idle before: the median */
    uint32_t expert_bytes; /* that it was measured with */
};

/* Reads experts (three extents of extent_bytes, 0: 1 MiB, far apart, at odd offsets) from random
 * places of the file, with the reader's own defaults, for about seconds; the first third of it one
 * by one. Takes about 100 MiB of memory meanwhile. O_DIRECT: what the page cache holds does not
 * count, unless the file system refuses it. SL_ERR_INVALID: a file below 16 extents. SL_ERR_IO,
 * SL_ERR_NOMEM. */
enum sl_status sl_disk_bandwidth(const char *path, enum sl_io_kind kind, uint32_t extent_bytes,
                                 double seconds, struct sl_disk_speed *out_speed,
                                 struct sl_err *err) SL_MUST_CHECK;
/* The memory that a measurement with these extents takes for what it reads. */
size_t sl_disk_probe_bytes(uint32_t extent_bytes);

#endif
