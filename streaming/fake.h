/* A reader whose disk is made up: files in memory, a virtual clock, a model of bandwidth and
 * latency, and scripted faults. The queues, cutting, retries and copies above it are the real ones,
 * so that tests and simulations of whole runs need neither a disk nor a wall clock.
 *
 * The drive: each request's first byte is ready latency_ns after the drive took it, then its bytes
 * pass one channel of bytes_per_s; the drive works at up to drive_depth requests at once, the rest
 * queue. At depth 1 it gives len / (latency + len / bandwidth), at enough depth the full bandwidth.
 *
 * The clock: waiting moves it to the next end of a request (or the timeout); whoever computes in
 * the simulation moves it by hand. What has ended by then is seen by the next poll, as with a real
 * disk.
 *
 * Threads: as reader.h. */
#ifndef SL_STREAMING_FAKE_H
#define SL_STREAMING_FAKE_H

#include "streaming/reader.h"

struct sl_fake_clock {
    uint64_t now_ns; /* the caller adds the time it computes */
};

struct sl_fake_drive {
    uint64_t bytes_per_s; /* 0: no time per byte */
    uint64_t latency_ns;
    uint32_t drive_depth; /* 0: unlimited */
};

/* Applies to requests that touch [first_byte, last_byte] of the copy of the file, times times
 * (0: always). More than one may apply: delays add up, an error goes before a short read. */
struct sl_fake_fault {
    uint32_t file, copy;
    uint64_t first_byte, last_byte;
    uint32_t times;
    int error;            /* an errno, or 0 */
    bool cut_short;       /* at most short_bytes arrive */
    uint32_t short_bytes; /* 0: as if the file ended */
    uint64_t delay_ns;
};

struct sl_fake_config {
    struct sl_reader_config reader;               /* kind and buffered are ignored */
    struct sl_fake_clock *clock;                  /* the caller's, until close */
    struct sl_fake_drive drive[SL_READER_COPIES]; /* of each copy */
    uint64_t reorder_seed; /* not 0: requests end in an order shuffled by up to reorder_ns */
    uint64_t reorder_ns;
};

enum sl_status sl_fake_open(const struct sl_fake_config *config, struct sl_reader **out_reader,
                            struct sl_err *err) SL_MUST_CHECK;
/* A file of size_bytes. data [size_bytes], borrowed until close; NULL: reads take their time and
 * write nothing. file: index of the file to add a copy of, or SL_READER_FILES for a new file. */
enum sl_status sl_fake_add_file(struct sl_reader *reader, uint32_t file, const uint8_t *data,
                                uint64_t size_bytes, uint32_t *out_file,
                                struct sl_err *err) SL_MUST_CHECK;
/* Borrowed until close or the next call; counts its times down in place. NULL: none. */
void sl_fake_set_faults(struct sl_reader *reader, struct sl_fake_fault *faults, uint32_t n);

#endif
