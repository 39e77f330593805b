/* bench_reader: what the disk gives, and what of it the reader passes on.
 *
 * raw      io_uring by hand, O_DIRECT, depth by request size: the drive's own limits
 * modes    the same at one point, by how the ring is set up and what is registered
 * pread    by number of threads
 * reader   the reader under load: experts of three extents, the queue never empty
 * layer    turns of a layer's 8 experts, "computed" as they come: the owner runs the ring, or a
 *          thread of its own does and hands over
 *
 * Usage: bench_reader FILE [--only raw,modes,...] [--seconds S per line] [--extent KIB]
 * FILE should exceed what the drive caches (4 GiB or more). Disks are noisy: lines of one section
 * are measured by turns, and only figures of one run may be compared. CPU: seconds of both user and
 * system time of the process per GB; kernel threads are not in it. */
#include "common/clock.h"
#include "common/rng.h"
#include "streaming/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define MAX_SAMPLES 100000u
#define TURNS       4u

static const char *path;
static int fd;
static uint64_t file_bytes;
static double seconds = 0.3;
static uint32_t extent_bytes = 1u << 20;
static struct sl_slab slab;
static struct sl_rng rng;
static struct sl_err err;

static void die(const char *what) {
    fprintf(stderr, "bench_reader: %s: %s\n", what, err.text[0] ? err.text : strerror(errno));
    exit(1);
}

static double cpu_s(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

/* What a line shows; sums over its turns. */
struct result {
    double bytes, ns, cpu, syscalls, reads, needed;
    double best; /* GB/s of the best turn */
    uint64_t *sample;
    uint32_t n_samples;
};

static void sample(struct result *r, uint64_t ns) {
    if (!r->sample)
        r->sample = malloc(MAX_SAMPLES * sizeof *r->sample);
    if (r->sample && r->n_samples < MAX_SAMPLES)
        r->sample[r->n_samples++] = ns;
}

static void turn_done(struct result *r, double bytes, double ns, double cpu) {
    r->bytes += bytes;
    r->ns += ns;
    r->cpu += cpu;
    if (bytes / ns > r->best)
        r->best = bytes / ns;
}

static int by_size(const void *a, const void *b) {
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static double percentile_us(struct result *r, double p) {
    if (r->n_samples == 0)
        return 0;
    qsort(r->sample, r->n_samples, sizeof *r->sample, by_size);
    return (double)r->sample[(uint32_t)((double)(r->n_samples - 1) * p)] * 1e-3;
}

static void print(struct result *r, const char *name) {
    printf("  %-34s %5.2f GB/s (best %4.2f)  CPU %.3f s/GB", name, r->bytes / r->ns, r->best,
           r->cpu / (r->bytes * 1e-9));
    if (r->n_samples)
        printf("  p50 %6.0f  p99 %6.0f us", percentile_us(r, 0.5), percentile_us(r, 0.99));
    if (r->reads > 0)
        printf("  %.3f syscalls/expert  x%.4f read", r->syscalls / r->reads, r->bytes / r->needed);
    printf("\n");
    fflush(stdout);
    free(r->sample);
    *r = (struct result){0};
}

/* ---- by hand ---- */

struct raw {
    uint32_t depth, size_bytes;
    unsigned flags;
    bool plain_buffers, plain_file;
    const char *name;
};

static void raw_start(struct io_uring *ring, const struct raw *c, uint32_t i, uint64_t *start_ns) {
    struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
    uint64_t at = sl_rng_u64(&rng) % (file_bytes / 4096 - c->size_bytes / 4096) * 4096;
    /* All of the slab in turn: buffers that stay in the processor's caches would flatter. */
    uint32_t places = (uint32_t)(slab.size_bytes / c->size_bytes / c->depth);
    uint32_t turn = (uint32_t)sl_rng_u64(&rng) % places;
    uint8_t *buf = slab.base + ((size_t)turn * c->depth + i) * c->size_bytes;
    int f = c->plain_file ? fd : 0;
    if (c->plain_buffers)
        io_uring_prep_read(sqe, f, buf, c->size_bytes, at);
    else
        io_uring_prep_read_fixed(sqe, f, buf, c->size_bytes, at, 0);
    if (!c->plain_file)
        sqe->flags |= IOSQE_FIXED_FILE;
    io_uring_sqe_set_data64(sqe, i);
    start_ns[i] = sl_now_ns();
}

static void raw_turn(const struct raw *c, struct result *r) {
    struct io_uring ring;
    struct io_uring_params p = {.flags = c->flags};
    uint64_t start_ns[512];
    int rc = io_uring_queue_init_params(c->depth, &ring, &p);
    if (rc < 0) {
        errno = -rc;
        die("io_uring");
    }
    struct iovec iov = {.iov_base = slab.base, .iov_len = slab.size_bytes};
    if (!c->plain_buffers && io_uring_register_buffers(&ring, &iov, 1) != 0)
        die("registering buffers");
    if (!c->plain_file && io_uring_register_files(&ring, &fd, 1) != 0)
        die("registering the file");
    double cpu = cpu_s(), bytes = 0;
    uint64_t t = sl_now_ns(), now = t;
    uint32_t flying = 0;
    for (uint32_t i = 0; i < c->depth; i++, flying++)
        raw_start(&ring, c, i, start_ns);
    while (flying > 0) {
        io_uring_submit_and_wait(&ring, flying >= 8 ? flying / 4 : 1);
        now = sl_now_ns();
        bool more = (double)(now - t) < seconds * 1e9;
        struct io_uring_cqe *cqe;
        while (io_uring_peek_cqe(&ring, &cqe) == 0) {
            uint32_t i = (uint32_t)io_uring_cqe_get_data64(cqe);
            if (cqe->res != (int)c->size_bytes)
                die("a read");
            sample(r, now - start_ns[i]);
            bytes += c->size_bytes;
            io_uring_cqe_seen(&ring, cqe);
            flying--;
            if (more) {
                raw_start(&ring, c, i, start_ns);
                flying++;
            }
        }
    }
    turn_done(r, bytes, (double)(now - t), cpu_s() - cpu);
    io_uring_queue_exit(&ring);
}

#define DEFER (IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN)

static void bench_raw(void) {
    static const uint32_t depths[] = {1, 4, 16, 32, 64, 128}, kib[] = {128, 256, 512, 1024};
    printf("raw: io_uring, O_DIRECT, GB/s (p50 latency, us)\n  depth ");
    for (size_t k = 0; k < 4; k++)
        printf("%12u KiB", kib[k]);
    printf("\n");
    struct result r[6][4] = {0};
    double s = seconds;
    seconds /= TURNS; /* a table of many cells */
    /* Backwards every other turn: drives slow down while they are used. */
    for (uint32_t turn = 0; turn < TURNS; turn++)
        for (size_t i = 0; i < 24; i++) {
            size_t cell = turn % 2 ? 23 - i : i, d = cell / 4, k = cell % 4;
            struct raw c = {.depth = depths[d], .size_bytes = kib[k] << 10, .flags = DEFER};
            raw_turn(&c, &r[d][k]);
        }
    seconds = s;
    for (size_t d = 0; d < 6; d++) {
        printf("  %5u ", depths[d]);
        for (size_t k = 0; k < 4; k++) {
            printf("  %5.2f (%6.0f)", r[d][k].bytes / r[d][k].ns, percentile_us(&r[d][k], 0.5));
            free(r[d][k].sample);
        }
        printf("\n");
    }
}

static void bench_modes(void) {
    const struct raw modes[] = {
        {.flags = DEFER, .name = "deferred, fixed"},
        {.flags = DEFER, .depth = 16, .name = "deferred, fixed, depth 16"},
        {.flags = IORING_SETUP_COOP_TASKRUN, .name = "cooperative, fixed"},
        {.flags = 0, .name = "default, fixed"},
        {.flags = DEFER, .plain_buffers = true, .name = "deferred, plain buffers"},
        {.flags = DEFER, .plain_buffers = true, .plain_file = true, .name = "deferred, all plain"},
    };
    struct result r[6] = {0};
    printf("modes: 64 requests of 512 KiB unless said\n");
    for (uint32_t turn = 0; turn < TURNS; turn++)
        for (size_t i = 0; i < 6; i++) {
            size_t m = turn % 2 ? 5 - i : i;
            struct raw c = modes[m];
            c.depth = c.depth ? c.depth : 64;
            c.size_bytes = 512 << 10;
            raw_turn(&c, &r[m]);
        }
    for (size_t m = 0; m < 6; m++)
        print(&r[m], modes[m].name);
}

/* ---- the reader ---- */

#define MAX_EXPERTS 48u

struct load {
    struct sl_reader *reader;
    struct sl_slot_layout layout;
    struct sl_read read[MAX_EXPERTS];
    bool refill;
    struct result *r;
    uint32_t n_done;
    uint32_t done_order[MAX_EXPERTS];
};

static void place(struct load *l, struct sl_read *d) {
    for (uint32_t i = 0; i < 3; i++)
        d->extent[i] = (struct sl_extent){.offset_bytes = sl_rng_u64(&rng) %
                                                          ((file_bytes - extent_bytes) / 32) * 32,
                                          .size_bytes = extent_bytes,
                                          .place_bytes = l->layout.place_bytes[i]};
    d->n_extents = 3;
    d->next = NULL;
}

static void load_done(struct sl_read *d, enum sl_status status) {
    struct load *l = d->user;
    if (status != SL_OK)
        die("an expert");
    sample(l->r, d->done_ns - d->submitted_ns);
    l->done_order[l->n_done++ % MAX_EXPERTS] = (uint32_t)(d - l->read);
    if (l->refill) {
        place(l, d);
        if (sl_reader_submit(l->reader, d, &err) != SL_OK)
            die("submitting");
    }
}

static void load_open(struct load *l, const struct sl_reader_config *config) {
    memset(l, 0, sizeof *l);
    const uint32_t sizes[3] = {extent_bytes, extent_bytes, extent_bytes};
    struct sl_reader_config c = *config;
    c.slab = &slab;
    uint32_t file;
    if (sl_slot_layout_init(&l->layout, sizes, 3, 32, &err) != SL_OK ||
        sl_reader_open(&c, &l->reader, &err) != SL_OK ||
        sl_reader_add_file(l->reader, path, &file, &err) != SL_OK)
        die("opening");
    for (uint32_t i = 0; i < MAX_EXPERTS; i++) {
        l->read[i].slot = slab.base + (size_t)i * l->layout.slot_bytes;
        l->read[i].done = load_done;
        l->read[i].user = l;
        l->read[i].err = &err;
    }
}

static void reader_turn(const struct sl_reader_config *config, uint32_t experts, uint32_t min_done,
                        struct result *r) {
    struct load l;
    load_open(&l, config);
    l.r = r;
    l.refill = true;
    double cpu = cpu_s();
    uint64_t t = sl_now_ns();
    for (uint32_t i = 0; i < experts; i++) {
        place(&l, &l.read[i]);
        l.read[i].next = i > 0 ? &l.read[i - 1] : NULL;
    }
    if (sl_reader_submit(l.reader, &l.read[experts - 1], &err) != SL_OK)
        die("submitting");
    while ((double)(sl_now_ns() - t) < seconds * 1e9)
        sl_reader_wait(l.reader, min_done, -1);
    l.refill = false;
    sl_reader_wait(l.reader, experts, -1);
    struct sl_reader_stats s;
    sl_reader_get_stats(l.reader, &s);
    turn_done(r, (double)s.read_bytes, (double)(sl_now_ns() - t), cpu_s() - cpu);
    r->syscalls += (double)s.syscalls;
    r->reads += (double)s.reads;
    r->needed += (double)s.needed_bytes;
    sl_reader_close(&l.reader);
}

static void bench_reader(void) {
    const struct {
        const char *name;
        struct sl_reader_config config;
        uint32_t experts, min_done;
    } line[] = {
        {"1 expert at a time", {.kind = SL_IO_URING}, 1, 1},
        {"8 experts, wait for 1", {.kind = SL_IO_URING}, 8, 1},
        {"24 experts, wait for 1", {.kind = SL_IO_URING}, 24, 1},
        {"24 experts, wait for 4", {.kind = SL_IO_URING}, 24, 4},
        {"24 experts, wait for 8", {.kind = SL_IO_URING}, 24, 8},
        {"24 experts, depth 64", {.kind = SL_IO_URING, .depth = 64}, 24, 4},
        {"24 experts, depth 32", {.kind = SL_IO_URING, .depth = 32}, 24, 4},
        {"24, requests of 256 KiB", {.kind = SL_IO_URING, .request_bytes = 256 << 10}, 24, 4},
        {"24, requests of 1 MiB", {.kind = SL_IO_URING, .request_bytes = 1 << 20}, 24, 4},
        {"48 experts, wait for 4", {.kind = SL_IO_URING}, 48, 4},
        {"24, nothing registered", {.kind = SL_IO_URING, .unregistered = true}, 24, 4},
        {"24, 32 pread threads", {.kind = SL_IO_PREAD}, 24, 4},
    };
    enum { N = sizeof line / sizeof *line };
    struct result r[N] = {0};
    printf("reader: experts of 3 x %u KiB; latency of an expert from submit\n", extent_bytes >> 10);
    for (uint32_t turn = 0; turn < TURNS; turn++)
        for (size_t k = 0; k < N; k++)
            reader_turn(&line[k].config, line[k].experts, line[k].min_done, &r[k]);
    for (size_t k = 0; k < N; k++)
        print(&r[k], line[k].name);
}

static void bench_pread(void) {
    const uint32_t threads[] = {1, 4, 8, 16, 32, 64};
    struct result r[6] = {0};
    printf("pread: the reader's pool, 24 experts\n");
    for (uint32_t turn = 0; turn < TURNS; turn++)
        for (size_t k = 0; k < 6; k++) {
            struct sl_reader_config c = {.kind = SL_IO_PREAD, .n_threads = threads[k]};
            reader_turn(&c, 24, 4, &r[k]);
        }
    for (size_t k = 0; k < 6; k++) {
        char name[32];
        snprintf(name, sizeof name, "%u threads", threads[k]);
        print(&r[k], name);
    }
}

/* ---- who runs the ring ---- */

/* An I/O thread: takes chains from the owner, hands each end back through a mutex and a condition.
 */
struct handoff {
    struct load load;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work, ended;
    struct sl_read *chain; /* under lock */
    uint32_t n_ended;      /* under lock */
    bool stop;             /* under lock */
};

static struct handoff *current;

static void handoff_done(struct sl_read *d, enum sl_status status) {
    (void)d;
    if (status != SL_OK)
        die("an expert");
    pthread_mutex_lock(&current->lock);
    current->n_ended++;
    pthread_cond_signal(&current->ended);
    pthread_mutex_unlock(&current->lock);
}

static void *io_thread(void *arg) {
    struct handoff *h = arg;
    struct sl_reader_stats s;
    pthread_mutex_lock(&h->lock);
    for (;;) {
        while (!h->chain && !h->stop)
            pthread_cond_wait(&h->work, &h->lock);
        if (h->stop)
            break;
        struct sl_read *chain = h->chain;
        h->chain = NULL;
        pthread_mutex_unlock(&h->lock);
        if (sl_reader_submit(h->load.reader, chain, &err) != SL_OK)
            die("submitting");
        do {
            sl_reader_wait(h->load.reader, 1, -1);
            sl_reader_get_stats(h->load.reader, &s);
        } while (s.waiting_reads > 0);
        pthread_mutex_lock(&h->lock);
    }
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

static void compute(uint64_t ns) {
    uint64_t t = sl_now_ns();
    while (sl_now_ns() - t < ns)
        ;
}

enum who { OWNER, OWNER_4, THREAD };

/* The reads of a turn, to the reader or to the thread that has it. */
static void hand_over(struct handoff *h, enum who who, struct sl_read *chain) {
    h->load.n_done = h->n_ended = 0;
    if (who == THREAD) {
        pthread_mutex_lock(&h->lock);
        h->chain = chain;
        pthread_cond_signal(&h->work);
        pthread_mutex_unlock(&h->lock);
    } else if (sl_reader_submit(h->load.reader, chain, &err) != SL_OK) {
        die("submitting");
    }
}

/* Waits until more than these have ended; how many that are. */
static uint32_t await_more(struct handoff *h, enum who who, uint32_t computed) {
    if (who != THREAD) {
        if (h->load.n_done == computed)
            sl_reader_wait(h->load.reader, who == OWNER ? 1 : 4, -1);
        return h->load.n_done;
    }
    pthread_mutex_lock(&h->lock);
    while (h->n_ended == computed)
        pthread_cond_wait(&h->ended, &h->lock);
    uint32_t ready = h->n_ended;
    pthread_mutex_unlock(&h->lock);
    return ready;
}

/* Turns of a layer: n experts are wanted, each costs compute_ns once it is there. */
static void layer_turn(enum who who, uint32_t n, uint64_t compute_ns, struct result *r) {
    static struct handoff h;
    memset(&h, 0, sizeof h);
    current = &h;
    struct sl_reader_config c = {.kind = SL_IO_URING};
    struct result unused = {0};
    load_open(&h.load, &c);
    h.load.r = &unused;
    pthread_mutex_init(&h.lock, NULL);
    pthread_cond_init(&h.work, NULL);
    pthread_cond_init(&h.ended, NULL);
    if (who == THREAD) {
        for (uint32_t i = 0; i < 8; i++)
            h.load.read[i].done = handoff_done;
        if (pthread_create(&h.thread, NULL, io_thread, &h) != 0)
            die("a thread");
    }
    double cpu = cpu_s();
    uint64_t begin = sl_now_ns();
    while ((double)(sl_now_ns() - begin) < seconds * 1e9) {
        uint64_t t = sl_now_ns();
        for (uint32_t i = 0; i < n; i++) {
            place(&h.load, &h.load.read[i]);
            h.load.read[i].next = i > 0 ? &h.load.read[i - 1] : NULL;
        }
        uint32_t computed = 0;
        hand_over(&h, who, &h.load.read[n - 1]);
        while (computed < n) {
            uint32_t ready = await_more(&h, who, computed);
            for (; computed < ready; computed++) {
                compute(compute_ns);
                if (who != THREAD)
                    sl_reader_poll(h.load.reader);
            }
        }
        sample(r, sl_now_ns() - t);
    }
    if (who == THREAD) {
        pthread_mutex_lock(&h.lock);
        h.stop = true;
        pthread_cond_signal(&h.work);
        pthread_mutex_unlock(&h.lock);
        pthread_join(h.thread, NULL);
    }
    struct sl_reader_stats s;
    sl_reader_get_stats(h.load.reader, &s);
    turn_done(r, (double)s.read_bytes, (double)(sl_now_ns() - begin), cpu_s() - cpu);
    r->syscalls += (double)s.syscalls;
    r->reads += (double)s.reads;
    r->needed += (double)s.needed_bytes;
    sl_reader_close(&h.load.reader);
    free(unused.sample);
}

static void bench_layer(void) {
    const struct { uint32_t n, us; } work[] = {{1, 0}, {8, 0}, {8, 200}, {8, 3000}};
    const char *const names[] = {"owner, wait for 1", "owner, wait for 4", "I/O thread"};
    printf("layer: turns of n experts of 3 x %u KiB; latency of a turn\n", extent_bytes >> 10);
    struct result r[4][3] = {0};
    for (uint32_t turn = 0; turn < TURNS; turn++)
        for (size_t k = 0; k < 4; k++)
            for (uint32_t w = 0; w < 3; w++)
                layer_turn((enum who)w, work[k].n, work[k].us * 1000, &r[k][w]);
    for (size_t k = 0; k < 4; k++)
        for (uint32_t w = 0; w < 3; w++) {
            char name[64];
            snprintf(name, sizeof name, "%u x %u us, %s", work[k].n, work[k].us, names[w]);
            print(&r[k][w], name);
        }
}

int main(int argc, char **argv) {
    const char *only = "raw,modes,pread,reader,layer";
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--only") && i + 1 < argc)
            only = argv[++i];
        else if (!strcmp(argv[i], "--seconds") && i + 1 < argc)
            seconds = strtod(argv[++i], NULL) / TURNS;
        else if (!strcmp(argv[i], "--extent") && i + 1 < argc)
            extent_bytes = (uint32_t)strtoul(argv[++i], NULL, 10) << 10;
        else
            path = argv[i];
    }
    if (!path || seconds <= 0 || extent_bytes == 0) {
        fprintf(stderr, "usage: bench_reader FILE [--only raw,modes,pread,reader,layer] "
                        "[--seconds S] [--extent KIB]\n");
        return 2;
    }
    fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (fd < 0)
        die(path);
    file_bytes = (uint64_t)lseek(fd, 0, SEEK_END);
    size_t most = 4 * (size_t)MAX_EXPERTS * 3 * (extent_bytes + 8192);
    if (sl_slab_init(&slab, most < (512u << 20) ? 512u << 20 : most, false, &err) != SL_OK)
        die("memory");
    rng.state = sl_now_ns();
    printf("%s: %.2f GB\n", path, (double)file_bytes * 1e-9);
    if (strstr(only, "raw"))
        bench_raw();
    if (strstr(only, "modes"))
        bench_modes();
    if (strstr(only, "pread"))
        bench_pread();
    if (strstr(only, "reader"))
        bench_reader();
    if (strstr(only, "layer"))
        bench_layer();
    sl_slab_release(&slab);
    close(fd);
    return 0;
}
