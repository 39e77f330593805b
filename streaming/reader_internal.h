/* Between the reader's files: the core (queues, cutting, retries, copies) and the engines below it
 * that only move bytes. */
#ifndef SL_STREAMING_READER_INTERNAL_H
#define SL_STREAMING_READER_INTERNAL_H

#include "streaming/reader.h"

#include <time.h>

#define SL_READER_MAX_DEPTH 512u

/* One transfer. The core fills it in, an engine sets result. */
struct sl_io_request {
    uint8_t *buf; /* 4 KiB aligned, as are offset_bytes and len_bytes */
    uint64_t offset_bytes;
    uint32_t len_bytes;
    int32_t result; /* bytes, or -errno */
    int fd;
    int32_t fixed_file;   /* index of the registered file; < 0: use fd */
    int32_t fixed_region; /* index of the slab's region that holds all of buf; < 0: none */

    /* the core's */
    struct sl_read *read;
    uint32_t
        need_bytes; /* of len_bytes, the rest is over-read that may lie behind the file's end */
    uint32_t file, copy;
    uint32_t tries, interrupts;
    uint32_t tried_copies; /* bits */
    uint64_t started_ns;
    bool prediction;      /* when it was started */
    uint64_t ahead_bytes; /* in flight on the same copy when it was started, itself included */
    struct sl_io_request *next; /* free list; the pread pool's queues */
};

struct sl_io;

struct sl_io_ops {
    const char *name;
    /* Takes a request, borrowed until reap gives it back; may put it off until flush or reap. */
    void (*start)(struct sl_io *io, struct sl_io_request *request);
    void (*flush)(struct sl_io *io);
    /* Up to max ended requests. Blocks until wait_n (<= those in flight; 0: does not block) have
     * ended or timeout_ns (< 0: no limit) have passed. When it blocks, it flushes too, in the same
     * call. */
    uint32_t (*reap)(struct sl_io *io, struct sl_io_request **out, uint32_t max, uint32_t wait_n,
                     int64_t timeout_ns);
    uint64_t (*now_ns)(struct sl_io *io);
    /* Lets time pass until a request has ended, which the next reap with wait_n 0 gives back, or
     * until_ns, without a system call. NULL: that cannot be seen without one. */
    void (*look)(struct sl_io *io, uint64_t until_ns);
    /* Registers a file. < 0: use its descriptor. NULL: never registered. */
    int32_t (*add_file)(struct sl_io *io, int fd);
    void (*describe)(const struct sl_io *io, char *out_text, size_t size);
    /* Gives back what was registered. Nothing is in flight; what is started afterwards does
     * without. NULL: nothing is ever registered. */
    void (*unregister)(struct sl_io *io);
    void (*destroy)(struct sl_io *io); /* nothing is in flight */
};

struct sl_io {
    const struct sl_io_ops *ops;
    uint64_t syscalls;
    uint32_t n_held; /* started, but put off until flush or reap */
};

/* SL_ERR_UNSUPPORTED: refused by the kernel or too old, err says why. */
enum sl_status sl_io_uring_create(const struct sl_reader_config *config, struct sl_io **out_io,
                                  struct sl_err *err) SL_MUST_CHECK;
enum sl_status sl_io_pread_create(const struct sl_reader_config *config, struct sl_io **out_io,
                                  struct sl_err *err) SL_MUST_CHECK;

struct sl_file_copy {
    char *path; /* owned; NULL: no such copy */
    int fd;
    int32_t fixed_file;
    bool alive, direct;
    uint64_t size_bytes;
    struct timespec mtime;
    uint64_t read_bytes;
    uint32_t errors;
};

struct sl_file {
    uint64_t size_bytes;
    uint32_t n_copies;
    struct sl_file_copy copy[SL_READER_COPIES];
};

/* One copy of all files; each is assumed to be on a drive of its own. */
struct sl_reader_copy {
    uint32_t flying;
    uint64_t flying_bytes;
    double bytes_per_ns; /* 0: not measured yet */
    uint32_t idle_picks; /* requests since it last took one */
};

struct sl_read_list {
    struct sl_read *first, *last;
};

struct sl_reader {
    struct sl_io *io;
    struct sl_reader_config config; /* every 0 replaced */
    uint32_t n_files, n_drives;
    struct sl_file *files; /* [SL_READER_FILES] */
    struct sl_reader_copy drive[SL_READER_COPIES];
    struct sl_io_request *requests; /* [depth * SL_READER_COPIES] */
    struct sl_io_request *free_requests;
    struct sl_read_list queue[SL_READ_PRIORITIES]; /* reads with something left to start */
    struct sl_read_list finished;                  /* whose done is due */
    uint32_t n_outstanding, n_flying;
    uint64_t prediction_bytes; /* of predictions in flight */
    bool started;              /* a read was submitted: no more files */
    bool delivering;
    uint64_t busy_since_ns;
    struct sl_reader_stats stats;
    uint64_t seen_syscalls; /* already in the metrics */
};

/* reader.c */
struct sl_reader *sl_reader_alloc(struct sl_io *io, const struct sl_reader_config *config);
void sl_reader_defaults(struct sl_reader_config *config);
/* reader_request.c: starts what depth allows; does not flush. */
void sl_reader_fill(struct sl_reader *reader);
/* An ended request: counts, retries or ends its part of the read. */
void sl_reader_complete(struct sl_reader *reader, struct sl_io_request *request);
/* A read's end, whatever the reason: no more requests are started for it; done is due when none is
 * in flight. */
void sl_reader_end(struct sl_reader *reader, struct sl_read *read, enum sl_status status);
bool sl_reader_has_queued(const struct sl_reader *reader);
/* reader_file.c */
void sl_reader_close_files(struct sl_reader *reader);
/* The copy to read the next len_bytes of a file from; SL_READER_COPIES: the best one is full. */
uint32_t sl_reader_pick_copy(struct sl_reader *reader, uint32_t file, uint32_t len_bytes);
/* A request on this copy failed for good or too often: drops the copy when another is left. */
void sl_reader_copy_failed(struct sl_reader *reader, uint32_t file, uint32_t copy, bool for_good,
                           const char *why);
enum sl_status sl_reader_adopt_file(struct sl_reader *reader, uint32_t file,
                                    const struct sl_file_copy *copy, struct sl_err *err);

static inline void sl_read_push(struct sl_read_list *list, struct sl_read *read) {
    read->queue_next = NULL;
    read->queue_prev = list->last;
    if (list->last)
        list->last->queue_next = read;
    else
        list->first = read;
    list->last = read;
}

static inline void sl_read_unlink(struct sl_read_list *list, struct sl_read *read) {
    if (read->queue_prev)
        read->queue_prev->queue_next = read->queue_next;
    else
        list->first = read->queue_next;
    if (read->queue_next)
        read->queue_next->queue_prev = read->queue_prev;
    else
        list->last = read->queue_prev;
    read->queue_prev = read->queue_next = NULL;
}

/* sl_read.state */
enum sl_read_state {
    SL_READ_IDLE = 0,
    SL_READ_QUEUED,   /* in queue[priority] */
    SL_READ_FLYING,   /* everything was started */
    SL_READ_ENDING,   /* failed or canceled, requests still in flight */
    SL_READ_FINISHED, /* in finished */
};

#endif
