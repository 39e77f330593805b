/* The io_uring engine: fixed files, fixed buffers, and one system call to start a batch and wait
 * for the last one.
 *
 * The ring belongs to the thread that first uses it (SINGLE_ISSUER, where the kernel has it). The
 * kernel puts completions into it while that thread computes or looks, by interrupting it for a
 * microsecond: then seeing them is no system call. DEFER_TASKRUN and COOP_TASKRUN would spare the
 * interruptions, but with them nothing is to be seen before the thread has asked the kernel.
 *
 * ThreadSanitizer sees neither the kernel's writes nor the ring's ordering. Nothing here needs it
 * to: the ring and the slots' publication stay with one thread. */
#include "streaming/reader_internal.h"

#include "common/clock.h"
#include "common/cpus.h"
#include "common/log.h"
#include "common/metrics.h"

#include <assert.h>
#include <errno.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

struct uring {
    struct sl_io base;
    struct io_uring ring;
    uint32_t n_files, max_files; /* registered; 0 of max: registration was refused */
    uint32_t n_regions;          /* registered */
    bool enabled;
};

static void die(const char *what, int rc) {
    /* Only our own mistakes come here: a ring used by two threads, a bad argument. Requests that
     * are in flight could write memory at any time, so there is no going on. */
    sl_error("io_uring: %s: %s; this is an error in Sluice, please report it", what, strerror(-rc));
    abort();
}

/* Owner-bound setup waits for the owner's first call. */
static void enable(struct uring *u) {
    if (u->enabled)
        return;
    u->enabled = true;
    if (u->ring.flags & IORING_SETUP_R_DISABLED) {
        /* By number: liburing 2.3 declares io_uring_enable_rings but does not export it. */
        if (syscall(__NR_io_uring_register, u->ring.ring_fd, IORING_REGISTER_ENABLE_RINGS, NULL,
                    0) != 0)
            die("cannot be enabled", -errno);
        u->ring.flags &= ~IORING_SETUP_R_DISABLED;
    }
    (void)io_uring_register_ring_fd(&u->ring); /* saves a lookup per call; optional */
}

static void entered(struct uring *u, int rc, const char *what) {
    u->base.syscalls++;
    u->base.n_held = io_uring_sq_ready(&u->ring);
    if (rc < 0 && rc != -EINTR && rc != -EAGAIN && rc != -EBUSY && rc != -ETIME)
        die(what, rc);
}

static void uring_flush(struct sl_io *io) {
    struct uring *u = (struct uring *)io;
    if (u->base.n_held > 0)
        entered(u, io_uring_submit(&u->ring), "submitting");
}

static void uring_start(struct sl_io *io, struct sl_io_request *q) {
    struct uring *u = (struct uring *)io;
    enable(u);
    struct io_uring_sqe *sqe;
    while ((sqe = io_uring_get_sqe(&u->ring)) == NULL)
        entered(u, io_uring_submit(&u->ring), "submitting");
    int fd = q->fixed_file >= 0 ? q->fixed_file : q->fd;
    if (q->fixed_region >= 0 && (uint32_t)q->fixed_region < u->n_regions)
        io_uring_prep_read_fixed(sqe, fd, q->buf, q->len_bytes, q->offset_bytes, q->fixed_region);
    else
        io_uring_prep_read(sqe, fd, q->buf, q->len_bytes, q->offset_bytes);
    if (q->fixed_file >= 0)
        sqe->flags |= IOSQE_FIXED_FILE;
    io_uring_sqe_set_data(sqe, q);
    u->base.n_held++;
}

static uint32_t take(struct uring *u, struct sl_io_request **out, uint32_t max) {
    struct io_uring_cqe *cqe;
    unsigned head;
    uint32_t n = 0;
    io_uring_for_each_cqe(&u->ring, head, cqe) {
        if (n == max)
            break;
        out[n] = io_uring_cqe_get_data(cqe);
        out[n++]->result = cqe->res;
    }
    io_uring_cq_advance(&u->ring, n);
    return n;
}

/* Looks between two readings of the clock. */
#define LOOKS 16u

static void uring_look(struct sl_io *io, uint64_t until_ns) {
    struct uring *u = (struct uring *)io;
    do {
        for (uint32_t i = 0; i < LOOKS; i++) {
            if (io_uring_cq_ready(&u->ring) > 0)
                return;
            sl_cpu_relax();
        }
    } while (sl_now_ns() < until_ns);
}

static uint32_t uring_reap(struct sl_io *io, struct sl_io_request **out, uint32_t max,
                           uint32_t wait_n, int64_t timeout_ns) {
    struct uring *u = (struct uring *)io;
    enable(u);
    if (wait_n == 0) {
        if (IO_URING_READ_ONCE(*u->ring.sq.kflags) & IORING_SQ_CQ_OVERFLOW)
            entered(u, io_uring_get_events(&u->ring), "reaping");
        return take(u, out, max);
    }
    if (io_uring_cq_ready(&u->ring) >= wait_n)
        return take(u, out, max);
    /* A loop: a batch that was cut short by EAGAIN or a signal waits again by the caller's turn. */
    struct __kernel_timespec ts = {.tv_sec = timeout_ns / 1000000000,
                                   .tv_nsec = timeout_ns % 1000000000};
    struct io_uring_cqe *cqe;
    entered(
        u,
        io_uring_submit_and_wait_timeout(&u->ring, &cqe, wait_n, timeout_ns < 0 ? NULL : &ts, NULL),
        "waiting");
    return take(u, out, max);
}

static uint64_t uring_now_ns(struct sl_io *io) {
    (void)io;
    return sl_now_ns();
}

static int32_t uring_add_file(struct sl_io *io, int fd) {
    struct uring *u = (struct uring *)io;
    if (u->n_files == u->max_files)
        return -1;
    int rc = io_uring_register_files_update(&u->ring, u->n_files, &fd, 1);
    if (rc < 0) {
        sl_debug("io_uring: files stay unregistered: %s", strerror(-rc));
        u->max_files = u->n_files;
        return -1;
    }
    return (int32_t)u->n_files++;
}

static void uring_describe(const struct sl_io *io, char *out_text, size_t size) {
    const struct uring *u = (const struct uring *)io;
    snprintf(out_text, size, "io_uring, %s files, %s buffers", u->n_files ? "fixed" : "plain",
             u->n_regions ? "fixed" : "plain");
}

static void uring_unregister(struct sl_io *io) {
    struct uring *u = (struct uring *)io;
    int rc = u->n_regions ? io_uring_unregister_buffers(&u->ring) : 0;
    if (rc < 0) /* another thread reads */
        sl_debug("io_uring: slots stay registered for a while: %s", strerror(-rc));
    else
        u->n_regions = 0;
}

static void uring_destroy(struct sl_io *io) {
    struct uring *u = (struct uring *)io;
    io_uring_queue_exit(&u->ring);
    free(u);
}

static const struct sl_io_ops uring_ops = {
    .name = "io_uring",
    .start = uring_start,
    .flush = uring_flush,
    .reap = uring_reap,
    .now_ns = uring_now_ns,
    .look = uring_look,
    .add_file = uring_add_file,
    .describe = uring_describe,
    .unregister = uring_unregister,
    .destroy = uring_destroy,
};

static void register_regions(struct uring *u, const struct sl_slab *slab) {
    uint32_t n = sl_slab_n_regions(slab);
    struct iovec *iov = calloc(n, sizeof *iov);
    if (!iov)
        return;
    for (uint32_t i = 0; i < n; i++)
        iov[i].iov_base = sl_slab_region(slab, i, &iov[i].iov_len);
    int rc = io_uring_register_buffers(&u->ring, iov, n);
    free(iov);
    if (rc == 0)
        u->n_regions = n;
    else
        sl_debug("io_uring: %zu MiB of slots stay unregistered: %s (see ulimit -l)",
                 slab->size_bytes >> 20, strerror(-rc));
    sl_gauge(disk_fixed_buffers, rc == 0);
}

enum sl_status sl_io_uring_create(const struct sl_reader_config *config, struct sl_io **out_io,
                                  struct sl_err *err) {
    struct uring *u = calloc(1, sizeof *u);
    if (!u)
        return sl_fail(err, SL_ERR_NOMEM, "no memory for an io_uring");
    u->base.ops = &uring_ops;
    /* The best first; each kernel refuses what it does not know with EINVAL. */
    static const unsigned tries[] = {
        IORING_SETUP_R_DISABLED | IORING_SETUP_SINGLE_ISSUER,
        0,
    };
    int rc = -EINVAL;
    for (size_t i = 0; i < sizeof tries / sizeof *tries && rc == -EINVAL; i++) {
        struct io_uring_params p = {.flags = tries[i]};
        rc = io_uring_queue_init_params(config->depth * SL_READER_COPIES, &u->ring, &p);
    }
    if (rc < 0) {
        free(u);
        if (rc == -ENOMEM)
            return sl_fail(err, SL_ERR_UNSUPPORTED,
                           "io_uring: no memory, or ulimit -l is too low for its queue");
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "io_uring is refused here (%s): an old kernel, kernel.io_uring_disabled, or "
                       "a container's seccomp profile",
                       strerror(-rc));
    }
    if (!(u->ring.features & IORING_FEAT_EXT_ARG) || !(u->ring.features & IORING_FEAT_NODROP)) {
        uring_destroy(&u->base);
        return sl_fail(err, SL_ERR_UNSUPPORTED, "io_uring: this kernel is older than 5.11");
    }
    if (!config->unregistered) {
        uint32_t n = SL_READER_FILES;
        rc = io_uring_register_files_sparse(&u->ring, n);
        if (rc == 0)
            u->max_files = n;
        else
            sl_debug("io_uring: files stay unregistered: %s", strerror(-rc));
        if (config->slab && config->slab->size_bytes > 0)
            register_regions(u, config->slab);
    }
    *out_io = &u->base;
    return SL_OK;
}
