/* The reader: experts from disk into slots, by io_uring, by a pool of pread threads, or faked.
 *
 * A read is one expert: up to SL_SLOT_EXTENTS extents of the model's files, each with its place in
 * the slot. The reader cuts extents into requests of about request_bytes, keeps up to depth of them
 * in flight while anything waits, urgent reads first, and says when the whole expert is there.
 *
 *     sl_reader_submit(r, chain);               starts what depth allows, one system call for all
 *     run what is there already;
 *     while (an expert is missing)
 *         sl_reader_wait(r, 1, -1);             calls done() of reads that ended, refills the queue
 *     ...
 *     sl_reader_poll(r);                        between long operations: refills, never blocks
 *
 * Who runs the ring: the thread that needs the experts (the owner), not an I/O thread. A read's end
 * is then seen by the one who waits for it, with no hand-off between threads, and reads start
 * inside submit. The price: while the owner computes, requests in flight go on but new ones are not
 * started. depth x request_bytes (64 MiB) is work for twenty milliseconds, which covers an
 * operation between two polls. docs/STREAMING.md has the measurement against an I/O thread.
 *
 * Threads: all calls on one reader by one thread, the owner: the first to submit, poll or wait.
 *   open and adding files may happen on another before. close is by the owner, or by anyone when no
 *   read is outstanding. sl_reader_stats likewise by the owner; common/metrics.h has the same
 *   counts for everybody.
 * Memory: reads are borrowed from submit to done; so is the slot, also after cancel, since a disk
 *   that has been asked still writes. Nothing is allocated after files have been added. */
#ifndef SL_STREAMING_READER_H
#define SL_STREAMING_READER_H

#include "common/status.h"
#include "streaming/slab.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_READER_FILES  256u /* files (parts of a split model) at most */
#define SL_READER_COPIES 4u   /* a file and its mirrors */

enum sl_read_priority {
    SL_READ_DEMAND,     /* somebody waits */
    SL_READ_PREFETCH,   /* somebody will */
    SL_READ_PREDICTION, /* somebody may: a few requests at a time, behind what is in flight */
    SL_READ_WARMUP,     /* somebody might */
    SL_READ_PRIORITIES
};

struct sl_extent {
    uint64_t offset_bytes; /* of the payload in the file; any alignment */
    uint32_t size_bytes;   /* of the payload, > 0 */
    uint32_t place_bytes;  /* of its place in the slot, whole 4 KiB: sl_slot_layout's */
    uint32_t file;         /* sl_reader_add_file's index */
};

struct sl_read {
    struct sl_extent extent[SL_SLOT_EXTENTS];
    uint32_t n_extents;
    enum sl_read_priority priority;
    uint8_t *slot; /* 4 KiB aligned; room for every place with its over-read */
    /* Called exactly once, inside poll, wait or close, never inside submit or cancel: SL_OK, every
     * payload byte is there; SL_ERR_CANCELED; SL_ERR_IO, and err says what, where and what to do;
     * SL_ERR_CORRUPT likewise, when a file is not what it was. The slot and the read are the
     * caller's again. It may submit, cancel and raise. */
    void (*done)(struct sl_read *read, enum sl_status status);
    void *user;           /* the caller's */
    struct sl_err *err;   /* the caller's, may be shared by reads; may be NULL */
    struct sl_read *next; /* of the chain given to submit; not used afterwards */
    /* Set by the reader, for traces: on its clock. */
    uint64_t submitted_ns, started_ns, done_ns;
    /* The reader's own until done. */
    struct sl_read *queue_prev, *queue_next;
    uint64_t cursor_bytes; /* of the extent that is being cut: first byte not yet requested */
    uint32_t cursor_extent;
    uint32_t n_flying;
    uint32_t state;
    enum sl_status status;
};

enum sl_io_kind { SL_IO_AUTO, SL_IO_URING, SL_IO_PREAD, SL_IO_FAKE };

/* 0 everywhere stands for the measured defaults. */
struct sl_reader_config {
    enum sl_io_kind kind;       /* AUTO: io_uring, or with one warning pread. A forced one that is
                                   missing is SL_ERR_UNSUPPORTED */
    const struct sl_slab *slab; /* registered as fixed buffers; borrowed until close; may be NULL */
    uint32_t depth;             /* requests in flight per copy of the files, 1..512 */
    uint32_t background_depth;  /* ... of prefetch and warm-up: what a demand may wait behind */
    uint32_t request_bytes;     /* 64 KiB..4 MiB, whole 4 KiB */
    uint32_t prediction_bytes;  /* of predictions in flight, below which one more is started */
    uint32_t n_threads;         /* of the pread pool, 1..256 */
    bool buffered;              /* never O_DIRECT */
    bool unregistered;          /* neither fixed files nor fixed buffers */
};

/* What a queue costs in memory, for the plan: control blocks and the pool's stacks. */
size_t sl_reader_size_bytes(const struct sl_reader_config *config);

struct sl_reader;

enum sl_status sl_reader_open(const struct sl_reader_config *config, struct sl_reader **out_reader,
                              struct sl_err *err) SL_MUST_CHECK;
/* For the thread that reads, before it ends and when nothing is under way: the slab's memory is
 * free as soon as it is unmapped. Else the kernel has it for a while longer, 0.1 s for a GiB on an
 * idle machine: whoever takes as much again at once would have both. */
void sl_reader_unregister(struct sl_reader *reader);
/* Cancels what is outstanding, waits for what the disk still writes, calls every done. */
void sl_reader_close(struct sl_reader **reader);

/* Opens a file of the model. With O_DIRECT, or, where the file system refuses it, buffered with
 * read-ahead and one warning. Not after the first submit.
 * SL_ERR_IO: it cannot be opened or is no regular file or block device. SL_ERR_INVALID: too many.
 */
enum sl_status sl_reader_add_file(struct sl_reader *reader, const char *path, uint32_t *out_file,
                                  struct sl_err *err) SL_MUST_CHECK;
/* A copy of a file on another drive: requests are shared out in proportion to the measured speeds.
 * It must have the file's size and, in samples spread over it, its content. SL_ERR_CORRUPT when it
 * differs, SL_ERR_IO when it cannot be read: the caller may go on without, the reader does not keep
 * it. A copy that fails later is dropped with a warning, and its requests are read again elsewhere.
 */
enum sl_status sl_reader_add_mirror(struct sl_reader *reader, uint32_t file, const char *path,
                                    struct sl_err *err) SL_MUST_CHECK;
uint32_t sl_reader_n_files(const struct sl_reader *reader);
uint64_t sl_reader_file_bytes(const struct sl_reader *reader, uint32_t file);
/* Whether the files are still what was opened (size, time of last change): one fstat each. A mirror
 * that is not is dropped with a warning. SL_ERR_CORRUPT: a file without another copy changed. */
enum sl_status sl_reader_check_files(struct sl_reader *reader, struct sl_err *err) SL_MUST_CHECK;

/* Queues a chain of reads (linked by next, in the order of need; NULL: none) and starts what depth
 * allows.
 * SL_ERR_INVALID: an extent outside its file, a place that is not 4 KiB aligned; nothing was taken.
 */
enum sl_status sl_reader_submit(struct sl_reader *reader, struct sl_read *chain,
                                struct sl_err *err) SL_MUST_CHECK;
/* As submit, but what it starts goes to the drive with the next submit (of NULL, too), poll or
 * wait: a wait that comes soon starts and waits in one system call. */
enum sl_status sl_reader_queue(struct sl_reader *reader, struct sl_read *chain,
                               struct sl_err *err) SL_MUST_CHECK;
/* Requests not yet started are dropped; done(SL_ERR_CANCELED) follows as soon as the disk has
 * finished with the slot. A read that had all its bytes by then may still end with SL_OK. */
void sl_reader_cancel(struct sl_reader *reader, struct sl_read *read);
/* Makes an outstanding read more urgent: it goes behind the others of that priority. What that
 * starts goes to the drive with the next submit (of NULL, too), poll or wait. */
void sl_reader_raise(struct sl_reader *reader, struct sl_read *read,
                     enum sl_read_priority priority);

/* Ends what has ended, starts what may start; never blocks. Returns the number of done calls.
 * Free of system calls when nothing has happened. */
uint32_t sl_reader_poll(struct sl_reader *reader);
/* Is there anything that poll could start? While there is not, and nobody needs to know what has
 * ended, polling gains nothing. */
bool sl_reader_has_unstarted(const struct sl_reader *reader);
/* As poll, and blocks until min_done reads have ended (all outstanding, if they are fewer) or
 * timeout_ns have passed (< 0: no limit). Returns the number of done calls.
 * min_done > 1 where the caller needs several: it saves system calls. */
uint32_t sl_reader_wait(struct sl_reader *reader, uint32_t min_done, int64_t timeout_ns);

/* As wait, until no more than leave requests are in flight and nothing urgent waits to be started:
 * finer than whole reads, for a caller that knows what to do while the last ones come. */
uint32_t sl_reader_wait_until(struct sl_reader *reader, uint32_t leave, int64_t timeout_ns);
/* Spins until a read has ended or ns have passed: no system call, unless something else was started
 * on the way. Returns the number of done calls. Only where can_look; ns 0 looks once. */
uint32_t sl_reader_look(struct sl_reader *reader, uint64_t ns);
/* Can ends be seen without a system call? Not with the pread pool. */
bool sl_reader_can_look(const struct sl_reader *reader);
/* Requests in flight, of all reads or, with those that were not started, of an outstanding one. */
uint32_t sl_reader_flying(const struct sl_reader *reader);
uint32_t sl_reader_requests_left(const struct sl_reader *reader, const struct sl_read *read);

struct sl_reader_stats {
    uint64_t reads; /* ended with SL_OK */
    uint64_t canceled, failed;
    uint64_t needed_bytes; /* payload of reads that ended with SL_OK */
    uint64_t read_bytes;   /* from disk, over-read and repeats included */
    uint64_t requests;     /* given to the disk */
    uint64_t syscalls; /* of the owner and of the pool: submitting, waiting, reading, advising */
    uint64_t retries;  /* requests read again in part or whole */
    uint64_t short_reads, errors; /* results of requests that were not what was asked for */
    uint64_t dropped_copies;
    uint64_t changed_copies;  /* ... of them because the file was changed or cut: what was read from
                                 them lately may be wrong */
    uint64_t waiting_reads;   /* outstanding now */
    uint32_t flying_requests; /* now */
    uint32_t max_flying;
    uint64_t wait_ns;   /* blocked in wait */
    uint64_t busy_ns;   /* with requests in flight */
    uint64_t flight_ns; /* of all ended requests added up: over busy_ns, the mean depth */
};

void sl_reader_get_stats(const struct sl_reader *reader, struct sl_reader_stats *out_stats);
/* How the file is read now, one line for the log: "io_uring, O_DIRECT, fixed buffers". */
void sl_reader_describe(const struct sl_reader *reader, char *out_text, size_t size);
/* Bytes read so far from a copy (0: the file itself) of a file; for tests and the log. */
uint64_t sl_reader_copy_bytes(const struct sl_reader *reader, uint32_t file, uint32_t copy);

#endif
