/* How fast a model's disk gives experts: a short measurement for the memory plan. */
#ifndef SL_STREAMING_DISK_PROBE_H
#define SL_STREAMING_DISK_PROBE_H

#include "streaming/reader.h"

struct sl_disk_speed {
    double bytes_per_s;    /* of payload, queue full all the time */
    double expert_ns;      /* one expert alone, disk idle before: the median */
    uint32_t expert_bytes; /* that it was measured with */
};

/* What is read, and how. */
struct sl_disk_files {
    struct sl_reader_config reader; /* as it will be; the slab is the probe's own */
    /* Adds files, and their mirrors. */
    enum sl_status (*add)(void *ctx, struct sl_reader *reader, struct sl_err *err);
    void *ctx;
};

/* Reads experts (three extents of extent_bytes, 0: 1 MiB, far apart, at odd offsets) from random
 * places of the files, each file by its share of the bytes, for about seconds; the first third of
 * it one by one. Files below 16 extents are left out. Takes about 100 MiB of memory meanwhile.
 * O_DIRECT: what the page cache holds does not count, unless the file system refuses it.
 * SL_ERR_INVALID: no other files. SL_ERR_IO, SL_ERR_NOMEM; add's. */
enum sl_status sl_disk_bandwidth(const struct sl_disk_files *files, uint32_t extent_bytes,
                                 double seconds, struct sl_disk_speed *out_speed,
                                 struct sl_err *err) SL_MUST_CHECK;

#endif
