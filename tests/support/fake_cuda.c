#include "tests/support/fake_cuda.h"

#include "backends/cuda/driver.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ADDRESS_BIAS  0x1000000000000000ull
#define ILLEGAL       700
#define LAUNCH_FAILED 719
#define COPY_LASTS_MS 300
#define WORDS_BYTES   2048
#define BLOCKED       (-1) /* no result of the driver's: nothing more can run by now */
#define ASKED_MOST    16
#define PAUSE_NS      200000
#define DEVICE_SHARED 232448

static struct fake_cuda fake;

struct CUctx_st {
    int refs;
    int stuck;                         /* what every further call in it gives, after a fault */
    int fault;                         /* what a kernel that is still running will end with */
    uint64_t until_ns;                 /* and when */
    int n_streams;                     /* made so far */
    int64_t live_bytes;                /* of its device's memory */
    bool reads[FAKE_CUDA_MAX_DEVICES]; /* memory of these other devices */
};
struct operation {
    enum { NOTHING, COPY, FILL, WAIT, SET, UNTIL, SEND, RECEIVE, OTHER } kind;
    void *dst;
    const void *src;
    size_t bytes;
    uint64_t number; /* in the order of enqueuing, everywhere */
    uint32_t value;
    bool to_other;              /* COPY: to another device's memory */
    int fault;                  /* OTHER: ends with this */
    struct CUstream_st *stream; /* WAIT: until this stream */
    uint64_t after;             /* has done so many operations */
    /* HAND, TAKE: dst and src are those of channel 0. */
    uint32_t *raised;
    const uint32_t *released, *channel, *seqno;
    uint32_t stride;
    struct operation *next;
};
struct operations {
    struct operation *first, **end;
};
struct CUstream_st {
    struct CUctx_st *ctx;
    struct operations queue;
    uint64_t n_queued, n_done;
    int line;  /* the context's that it goes through; -1: one of its own */
    int asked; /* whether all that has run, how many times in a row it had not */
    bool running;
    struct CUgraph_st *capture;
    struct CUstream_st *next;
};
struct CUevent_st {
    struct CUctx_st *ctx;
    struct CUstream_st *stream; /* NULL: never recorded */
    uint64_t after;             /* passed once this many of its operations have run */
    int asked;                  /* whether it has, how many times since it was recorded */
};
/* Captured operations; an executable graph is a copy of them. */
struct CUgraph_st {
    struct operations kept;
};
struct CUgraphExec_st {
    struct operations kept;
};
struct CUmod_st {
    int unused;
};
struct CUfunc_st {
    char name[64];
    struct CUfunc_st *next;
    int smem_bytes;
};

enum kind { DEVICE, PINNED, MAPPED };
struct memory {
    char *host;
    struct CUctx_st *ctx; /* whose */
    size_t bytes;
    enum kind kind;
    uint32_t number; /* in the order of allocating */
    struct memory *next;
};

static struct CUctx_st contexts[FAKE_CUDA_MAX_DEVICES];
static _Thread_local struct CUctx_st *current;
static struct memory *memories;
static struct CUfunc_st *functions;
static struct CUstream_st *streams;
static uint32_t n_memories; /* that there have been */
static FILE *trace;         /* NULL: none */
static int stuck;           /* of the whole driver */

/* Any thread may call, as with the real one: one call at a time. */
static pthread_mutex_t big_lock = PTHREAD_MUTEX_INITIALIZER;
static __thread unsigned lock_depth; /* symbols call one another */
static int lock(void) {
    if (!lock_depth++)
        pthread_mutex_lock(&big_lock);
    return 0;
}
static void unlock(const int *guard) {
    (void)guard;
    if (!--lock_depth)
        pthread_mutex_unlock(&big_lock);
}
#define LOCKED int guard __attribute__((cleanup(unlock), unused)) = lock()

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Lets other threads call while this one has to wait. */
static void pause_unlocked(void) {
    unsigned depth = lock_depth;
    lock_depth = 0;
    pthread_mutex_unlock(&big_lock);
    nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    pthread_mutex_lock(&big_lock);
    lock_depth = depth;
}

static void drop(struct operations *list) {
    while (list->first) {
        struct operation *o = list->first;
        list->first = o->next;
        free(o);
    }
    list->end = &list->first;
}

static void append(struct operations *list, struct operation o) {
    struct operation *q = malloc(sizeof *q);
    if (!q)
        abort();
    *q = o;
    q->next = NULL;
    *list->end = q;
    list->end = &q->next;
}

static void clear(void) {
    while (memories) {
        struct memory *m = memories;
        memories = m->next;
        if (m->kind != MAPPED)
            free(m->host);
        free(m);
    }
    while (functions) {
        struct CUfunc_st *f = functions;
        functions = f->next;
        free(f);
    }
    while (streams) {
        struct CUstream_st *stream = streams;
        streams = stream->next;
        drop(&stream->queue);
        free(stream);
    }
    stuck = 0;
    current = NULL;
    memset(contexts, 0, sizeof contexts);
}

struct fake_cuda *fake_cuda_reset(void) {
    clear();
    const char *devices = getenv("FAKE_CUDA_DEVICES"), *lost = getenv("FAKE_CUDA_LOST"),
               *mib = getenv("FAKE_CUDA_MIB");
    const char *peers = getenv("FAKE_CUDA_PEERS");
    const char *queues = getenv("FAKE_CUDA_QUEUES");
    int n = devices ? atoi(devices) : 1;
    fake = (struct fake_cuda){.n_queues = queues ? atoi(queues) : 0,
                              .n_devices = n < FAKE_CUDA_MAX_DEVICES ? n : FAKE_CUDA_MAX_DEVICES,
                              .no_peer_access = peers && strcmp(peers, "0") == 0,
                              .fault_device = -1,
                              .faults_spread = lost && strcmp(lost, "spread") == 0};
    if (lost && strncmp(lost, "copying:", 8) == 0) {
        fake.copies_fault = true;
        fake.fault_device = atoi(lost + 8);
        fake.fault_after_ms = COPY_LASTS_MS;
        fake.kernel_fault = LAUNCH_FAILED;
    }
    for (int i = 0; i < FAKE_CUDA_MAX_DEVICES; i++) {
        fake.cc[i] = 90;
        fake.memory_bytes[i] = (size_t)(mib ? strtoul(mib, NULL, 10) : 1024) << 20;
        const char *comma = mib ? strchr(mib, ',') : NULL;
        mib = comma ? comma + 1 : mib; /* the last one is that of all that follow */
    }
    return &fake;
}

void fake_cuda_fault(int device, int result, int after_ms) {
    LOCKED;
    if (after_ms < 0) {
        contexts[device].stuck = result;
        return;
    }
    fake.fault_device = device;
    fake.fault_after_ms = after_ms;
    fake.kernel_fault = result;
}

/* Opened as the real one would be, by a program that knows nothing of it. */
__attribute__((constructor)) static void stand_alone(void) {
    const char *path = getenv("FAKE_CUDA_TRACE");
    trace = path ? fopen(path, "w") : NULL;
    fake_cuda_reset();
    fake.zeroed = getenv("FAKE_CUDA_DEVICES") != NULL;
}

/* Counts a call and decides whether it fails. */
static int enter(const char *symbol) {
    fake.n_calls++;
    if (stuck)
        return stuck;
    bool now =
        fake.fail_at == fake.n_calls || (fake.fail_symbol && strcmp(fake.fail_symbol, symbol) == 0);
    if (!now)
        return 0;
    fake.fail_symbol = NULL;
    if (fake.sticky)
        *(current ? &current->stuck : &stuck) = fake.fail_result;
    return fake.fail_result;
}
#define ENTER(symbol)                                                                              \
    LOCKED;                                                                                        \
    do {                                                                                           \
        int enter_result = enter(symbol);                                                          \
        if (enter_result)                                                                          \
            return enter_result;                                                                   \
    } while (0)
#define ENTER_CONTEXT(symbol)                                                                      \
    ENTER(symbol);                                                                                 \
    if (!current)                                                                                  \
        return fake.misused = true, 201;                                                           \
    if (current->stuck)                                                                            \
    return current->stuck
/* Of a stream: its context must be the current one. */
#define ENTER_STREAM(symbol, stream)                                                               \
    ENTER_CONTEXT(symbol);                                                                         \
    if (!(stream) || (stream)->ctx != current)                                                     \
    return wrong()

static int wrong(void) {
    fake.misused = true;
    return SL_CU_INVALID_VALUE;
}

/* Can the current context's kernels and copies get at it? */
static bool within_reach(const struct memory *m) {
    return m->kind != DEVICE || m->ctx == current || current->reads[m->ctx - contexts];
}

/* Where the device's address of a range of device memory, or of mapped host memory, points; NULL
 * when the range is not within one allocation. */
static char *device_range(uint64_t addr, size_t bytes) {
    for (struct memory *m = memories; m; m = m->next) {
        uint64_t base = (uint64_t)(uintptr_t)m->host + ADDRESS_BIAS;
        if (within_reach(m) && addr >= base && addr - base <= m->bytes &&
            bytes <= m->bytes - (addr - base))
            return m->host + (addr - base);
    }
    return NULL;
}

/* The same for copies, whose host side is given by the host's own address. */
static char *any_range(uint64_t addr, size_t bytes) {
    for (struct memory *m = memories; m; m = m->next) {
        uint64_t base = (uint64_t)(uintptr_t)m->host + (m->kind == DEVICE ? ADDRESS_BIAS : 0);
        if (within_reach(m) && addr >= base && addr - base <= m->bytes &&
            bytes <= m->bytes - (addr - base))
            return m->host + (addr - base);
    }
    return NULL;
}

/* Is it the memory of a device that is not the current one? */
static bool is_anothers(uint64_t addr) {
    for (const struct memory *m = memories; m; m = m->next) {
        uint64_t base = (uint64_t)(uintptr_t)m->host + ADDRESS_BIAS;
        if (m->kind == DEVICE && m->ctx != current && addr >= base && addr - base < m->bytes)
            return true;
    }
    return false;
}

static int enqueue(struct CUstream_st *stream, struct operation o) {
    if (stream->capture) {
        append(&stream->capture->kept, o);
        return 0;
    }
    o.number = fake.n_queued++;
    append(&stream->queue, o);
    stream->n_queued++;
    return 0;
}

/* What the next of a context that may fault ends with; BLOCKED: it is still running. */
static int ends(struct CUctx_st *ctx, int fault) {
    bool here = fake.fault_device < 0 || ctx == &contexts[fake.fault_device];
    if (fake.kernel_fault && here && !fault) {
        fault = fake.kernel_fault;
        fake.kernel_fault = 0;
    }
    if (fault && !ctx->fault) {
        ctx->fault = fault;
        ctx->until_ns = now_ns() + (uint64_t)fake.fault_after_ms * 1000000u;
    }
    if (ctx->fault && now_ns() < ctx->until_ns)
        return BLOCKED;
    return ctx->stuck = ctx->fault;
}

static int kernel_ends(struct CUctx_st *ctx, int fault) {
    return fault || !fake.copies_fault ? ends(ctx, fault) : 0;
}

static int run(struct CUstream_st *stream, uint64_t upto);

/* An event of a context that has failed never passes: who waits for it there waits for good,
 * unless the failure spreads. */
static int follow(struct CUstream_st *stream, const struct operation *o) {
    int result = o->stream ? run(o->stream, o->after) : BLOCKED;
    if (result == 0 || result == BLOCKED || o->stream->ctx == stream->ctx)
        return result;
    if (!fake.faults_spread)
        return BLOCKED;
    return stream->ctx->stuck = result;
}

static bool is_at_least(const uint32_t *word, uint32_t value) {
    return (int32_t)(__atomic_load_n(word, __ATOMIC_ACQUIRE) - value) >= 0;
}

static bool reached(const struct operation *o) {
    if (o->kind == UNTIL)
        return is_at_least(o->src, o->value);
    return is_at_least(&o->raised[*o->channel], *o->seqno) ||
           is_at_least(&o->released[*o->channel], *o->seqno);
}

/* A word may be written by any stream, and by the host. */
static int until(struct CUstream_st *stream, const struct operation *o) {
    int failed = 0;
    for (struct CUstream_st *s = streams; s && !reached(o); s = s->next) {
        int result = run(s, UINT64_MAX);
        failed = result && result != BLOCKED ? result : failed;
    }
    if (reached(o))
        return 0;
    return failed && fake.faults_spread ? stream->ctx->stuck = failed : BLOCKED;
}

static int run_next(struct CUstream_st *stream, const struct operation *o) {
    switch (o->kind) {
    case FILL:
    case OTHER:
        return kernel_ends(stream->ctx, o->fault);
    case COPY:
        return fake.copies_fault && o->to_other ? ends(stream->ctx, 0) : 0;
    case WAIT:
        return follow(stream, o);
    case UNTIL:
        return until(stream, o);
    case SEND:
        return kernel_ends(stream->ctx, 0);
    case RECEIVE: {
        int result = until(stream, o);
        return result ? result : kernel_ends(stream->ctx, 0);
    }
    default:
        return 0;
    }
}

static void hand_over(const struct operation *o) {
    size_t at = (size_t)*o->channel * o->stride * sizeof(float);
    size_t from = o->kind == RECEIVE ? at : 0, to = o->kind == SEND ? at : 0;
    memcpy((char *)o->dst + to, (const char *)o->src + from, o->bytes);
    if (o->kind == SEND)
        __atomic_store_n(&o->raised[*o->channel], *o->seqno, __ATOMIC_RELEASE);
}

/* Words of the host's are seen one by one, by whoever looks at them meanwhile. */
static void copy_bytes(char *dst, const char *src, size_t bytes) {
    bool words = ((uintptr_t)dst | (uintptr_t)src | bytes) % sizeof(uint32_t) == 0;
    if (!words || bytes > WORDS_BYTES) {
        memmove(dst, src, bytes);
        return;
    }
    for (size_t i = 0; i < bytes; i += sizeof(uint32_t)) {
        uint32_t value;
        memcpy(&value, src + i, sizeof value);
        __atomic_store_n((uint32_t *)(void *)(dst + i), value, __ATOMIC_RELEASE);
    }
}

/* What other streams have put before it into the line that they share. */
static int run_line(const struct CUstream_st *stream, uint64_t number) {
    int result = 0;
    for (struct CUstream_st *s = streams; s && stream->line >= 0; s = s->next)
        while (s != stream && s->ctx == stream->ctx && s->line == stream->line && !result &&
               s->queue.first && s->queue.first->number < number)
            result = run(s, s->n_done + 1);
    return result;
}

/* Runs what was queued on a stream until `upto` operations have run in all; what it waits for runs
 * first. That may lead back to it: then it is at the operation that waits. */
static int run(struct CUstream_st *stream, uint64_t upto) {
    int result = 0;
    while (stream->queue.first && stream->n_done < upto) {
        struct operation *o = stream->queue.first;
        if (stuck || stream->ctx->stuck)
            return stuck ? stuck : stream->ctx->stuck;
        if (stream->running)
            return BLOCKED;
        stream->running = true;
        result = run_line(stream, o->number);
        if (!result)
            result = run_next(stream, o);
        stream->running = false;
        if (result)
            return result;
        if (o->kind == FILL)
            for (size_t i = 0; i < o->bytes / 4; i++)
                memcpy((char *)o->dst + 4 * i, &o->value, 4);
        else if (o->kind == COPY)
            copy_bytes(o->dst, o->src, o->bytes);
        else if (o->kind == SET)
            __atomic_store_n((uint32_t *)o->dst, o->value, __ATOMIC_RELEASE);
        else if (o->kind == SEND || o->kind == RECEIVE)
            hand_over(o);
        stream->queue.first = o->next;
        if (!stream->queue.first)
            stream->queue.end = &stream->queue.first;
        free(o);
        stream->n_done++;
    }
    return 0;
}

/* The same, however long it takes. */
static int wait_for(struct CUstream_st *stream, uint64_t upto) {
    int result;
    while ((result = run(stream, upto)) == BLOCKED)
        pause_unlocked();
    return result;
}

/* All streams of the current context. */
static int wait_for_all(void) {
    int result = 0;
    for (struct CUstream_st *s = streams; s && !result; s = s->next)
        result = s->ctx == current ? wait_for(s, UINT64_MAX) : 0;
    return result;
}

/* The driver's symbols. */
int cuInit(unsigned flags);
int cuInit(unsigned flags) {
    (void)flags;
    ENTER("cuInit");
    return fake.init_result;
}

int cuDriverGetVersion(int *version);
int cuDriverGetVersion(int *version) {
    ENTER("cuDriverGetVersion");
    *version = 13000;
    return 0;
}

int cuGetErrorName(int result, const char **text);
int cuGetErrorName(int result, const char **text) {
    static _Thread_local char name[32];
    if (result == 999)
        return SL_CU_INVALID_VALUE; /* one that it cannot name */
    snprintf(name, sizeof name, "FAKE_ERROR_%d", result);
    *text = name;
    return 0;
}

int cuGetErrorString(int result, const char **text);
int cuGetErrorString(int result, const char **text) {
    (void)result;
    *text = "as the test asked";
    return 0;
}

int cuDeviceGetCount(int *n);
int cuDeviceGetCount(int *n) {
    ENTER("cuDeviceGetCount");
    *n = fake.n_devices;
    return 0;
}

int cuDeviceGet(int *device, int ordinal);
int cuDeviceGet(int *device, int ordinal) {
    ENTER("cuDeviceGet");
    if (ordinal < 0 || ordinal >= fake.n_devices)
        return SL_CU_INVALID_DEVICE;
    *device = ordinal;
    return 0;
}

int cuDeviceGetName(char *name, int len, int device);
int cuDeviceGetName(char *name, int len, int device) {
    ENTER("cuDeviceGetName");
    const char *same = getenv("FAKE_CUDA_NAME"); /* of all of them */
    if (same)
        snprintf(name, (size_t)len, "%s", same);
    else
        snprintf(name, (size_t)len, "Fake GPU %d", device);
    return 0;
}

int cuDeviceTotalMem_v2(size_t *bytes, int device);
int cuDeviceTotalMem_v2(size_t *bytes, int device) {
    ENTER("cuDeviceTotalMem_v2");
    *bytes = fake.memory_bytes[device];
    return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, int device);
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    ENTER("cuDeviceGetAttribute");
    switch (attribute) {
    case SL_CU_ATTR_CC_MAJOR:
        *value = fake.cc[device] / 10;
        return 0;
    case SL_CU_ATTR_CC_MINOR:
        *value = fake.cc[device] % 10;
        return 0;
    case SL_CU_ATTR_INTEGRATED:
        *value = fake.integrated[device];
        return 0;
    case SL_CU_ATTR_WARP_SIZE:
        *value = 32;
        return 0;
    case SL_CU_ATTR_MULTIPROCESSORS:
        *value = 132;
        return 0;
    case SL_CU_ATTR_MAX_SHARED_OPTIN:
        *value = DEVICE_SHARED;
        return 0;
    case SL_CU_ATTR_CAN_MAP_HOST:
        *value = !fake.cannot_map;
        return 0;
    case SL_CU_ATTR_MEMORY_KHZ:
        *value = 1000000;
        return fake.no_memory_rate ? SL_CU_INVALID_VALUE : 0;
    case SL_CU_ATTR_MEMORY_BITS:
        *value = 4096;
        return 0;
    default:
        return SL_CU_INVALID_VALUE;
    }
}

int cuDeviceCanAccessPeer(int *can, int device, int peer);
int cuDeviceCanAccessPeer(int *can, int device, int peer) {
    ENTER("cuDeviceCanAccessPeer");
    *can = !fake.no_peer_access && device != peer;
    return 0;
}

int cuDeviceGetP2PAttribute(int *value, int attribute, int from, int to);
int cuDeviceGetP2PAttribute(int *value, int attribute, int from, int to) {
    ENTER("cuDeviceGetP2PAttribute");
    if (attribute != SL_CU_P2P_NATIVE_ATOMICS || from == to)
        return SL_CU_INVALID_VALUE;
    *value = !fake.no_peer_access && !fake.no_direct_link;
    return 0;
}

int cuCtxEnablePeerAccess(struct CUctx_st *peer, unsigned flags);
int cuCtxEnablePeerAccess(struct CUctx_st *peer, unsigned flags) {
    ENTER_CONTEXT("cuCtxEnablePeerAccess");
    if (fake.no_peer_access || !peer || peer == current || flags)
        return SL_CU_PEER_ACCESS_UNSUPPORTED;
    bool *reads = &current->reads[peer - contexts];
    if (*reads)
        return SL_CU_PEER_ACCESS_ALREADY_ENABLED;
    *reads = true;
    return 0;
}

int cuDevicePrimaryCtxRetain(struct CUctx_st **ctx, int device);
int cuDevicePrimaryCtxRetain(struct CUctx_st **ctx, int device) {
    ENTER("cuDevicePrimaryCtxRetain");
    if (contexts[device].stuck)
        return contexts[device].stuck;
    contexts[device].refs++;
    fake.live_objects++;
    *ctx = &contexts[device];
    return 0;
}

int cuDevicePrimaryCtxRelease_v2(int device);
int cuDevicePrimaryCtxRelease_v2(int device) {
    LOCKED;
    fake.n_calls++;
    if (contexts[device].refs-- <= 0)
        return wrong();
    if (!contexts[device].refs) /* the next one is another */
        contexts[device].stuck = contexts[device].fault = 0;
    fake.live_objects--;
    return 0;
}

int cuCtxSetCurrent(struct CUctx_st *ctx);
int cuCtxSetCurrent(struct CUctx_st *ctx) {
    ENTER("cuCtxSetCurrent");
    current = ctx;
    return 0;
}

int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes);
int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
    ENTER_CONTEXT("cuMemGetInfo_v2");
    *total_bytes = fake.memory_bytes[current - contexts];
    *free_bytes = *total_bytes - (size_t)current->live_bytes;
    return 0;
}

static int64_t *live(enum kind kind) {
    return kind == DEVICE   ? &fake.live_device_bytes
           : kind == PINNED ? &fake.live_pinned_bytes
                            : &fake.live_mapped_bytes;
}

static void *add(void *host, size_t bytes, enum kind kind) {
    struct memory *m = calloc(1, sizeof *m);
    if (!m)
        abort();
    *m = (struct memory){host, current, bytes, kind, n_memories++, memories};
    if (kind == DEVICE)
        current->live_bytes += (int64_t)bytes;
    memories = m;
    *live(kind) += (int64_t)bytes;
    return host;
}

static void *allocate(size_t bytes, enum kind kind) {
    void *host = aligned_alloc(512, (bytes + 511) / 512 * 512);
    if (!host)
        abort();
    memset(host, fake.zeroed ? 0 : 0xee, bytes);
    return add(host, bytes, kind);
}

static int release(const void *host, enum kind kind) {
    for (struct memory **at = &memories; *at; at = &(*at)->next) {
        struct memory *m = *at;
        if (m->host != host || m->kind != kind)
            continue;
        *live(kind) -= (int64_t)m->bytes;
        if (kind == DEVICE)
            m->ctx->live_bytes -= (int64_t)m->bytes;
        *at = m->next;
        if (kind != MAPPED)
            free(m->host);
        free(m);
        return 0;
    }
    return wrong();
}

int cuMemAlloc_v2(uint64_t *addr, size_t bytes);
int cuMemAlloc_v2(uint64_t *addr, size_t bytes) {
    ENTER_CONTEXT("cuMemAlloc_v2");
    if (!bytes)
        return SL_CU_INVALID_VALUE;
    if (bytes > fake.memory_bytes[current - contexts] - (size_t)current->live_bytes)
        return SL_CU_OUT_OF_MEMORY;
    *addr = (uint64_t)(uintptr_t)allocate(bytes, DEVICE) + ADDRESS_BIAS;
    return 0;
}

int cuMemFree_v2(uint64_t addr);
int cuMemFree_v2(uint64_t addr) {
    ENTER_CONTEXT("cuMemFree_v2");
    int result = wait_for_all(); /* as the real one, it waits */
    return result ? result : release((void *)(uintptr_t)(addr - ADDRESS_BIAS), DEVICE);
}

int cuMemHostAlloc(void **addr, size_t bytes, unsigned flags);
int cuMemHostAlloc(void **addr, size_t bytes, unsigned flags) {
    ENTER_CONTEXT("cuMemHostAlloc");
    if (!(flags & SL_CU_HOST_ALLOC_MAPPED) || flags > 3)
        return wrong();
    *addr = allocate(bytes, PINNED);
    return 0;
}

int cuMemFreeHost(void *addr);
int cuMemFreeHost(void *addr) {
    ENTER_CONTEXT("cuMemFreeHost");
    const struct memory *m = memories;
    while (m && m->host != addr)
        m = m->next;
    for (const struct CUstream_st *s = streams; s && m; s = s->next)
        for (const struct operation *o = s->queue.first; o && !s->ctx->stuck; o = o->next)
            if (o->kind == UNTIL && (const char *)o->src - m->host >= 0 &&
                (size_t)((const char *)o->src - m->host) < m->bytes)
                return wrong(); /* a word that a stream still waits for */
    return release(addr, PINNED);
}

int cuMemcpyHtoDAsync_v2(uint64_t dst, const void *src, size_t bytes, struct CUstream_st *stream);
int cuMemcpyHtoDAsync_v2(uint64_t dst, const void *src, size_t bytes, struct CUstream_st *stream) {
    ENTER_STREAM("cuMemcpyHtoDAsync_v2", stream);
    char *to = device_range(dst, bytes);
    if (!to || !any_range((uint64_t)(uintptr_t)src, bytes) || !stream)
        return wrong(); /* the backend gives pinned memory alone */
    fake.n_to_device++;
    return enqueue(stream, (struct operation){.kind = COPY, .dst = to, .src = src, .bytes = bytes});
}

int cuMemcpyDtoHAsync_v2(void *dst, uint64_t src, size_t bytes, struct CUstream_st *stream);
int cuMemcpyDtoHAsync_v2(void *dst, uint64_t src, size_t bytes, struct CUstream_st *stream) {
    ENTER_STREAM("cuMemcpyDtoHAsync_v2", stream);
    const char *from = device_range(src, bytes);
    if (!from || !any_range((uint64_t)(uintptr_t)dst, bytes) || !stream)
        return wrong();
    return enqueue(stream,
                   (struct operation){.kind = COPY, .dst = dst, .src = from, .bytes = bytes});
}

int cuMemcpyAsync(uint64_t dst, uint64_t src, size_t bytes, struct CUstream_st *stream);
int cuMemcpyAsync(uint64_t dst, uint64_t src, size_t bytes, struct CUstream_st *stream) {
    ENTER_STREAM("cuMemcpyAsync", stream);
    char *to = any_range(dst, bytes), *from = any_range(src, bytes);
    if (!to || !from || !stream)
        return wrong();
    return enqueue(
        stream,
        (struct operation){
            .kind = COPY, .dst = to, .src = from, .bytes = bytes, .to_other = is_anothers(dst)});
}

int cuMemcpyPeerAsync(uint64_t dst, struct CUctx_st *dst_ctx, uint64_t src,
                      struct CUctx_st *src_ctx, size_t bytes, struct CUstream_st *stream);
int cuMemcpyPeerAsync(uint64_t dst, struct CUctx_st *dst_ctx, uint64_t src,
                      struct CUctx_st *src_ctx, size_t bytes, struct CUstream_st *stream) {
    ENTER_STREAM("cuMemcpyPeerAsync", stream);
    struct CUctx_st *caller = current;
    char *to, *from;
    current = dst_ctx; /* with or without access: without, it goes through the host */
    to = any_range(dst, bytes);
    current = src_ctx;
    from = any_range(src, bytes);
    current = caller;
    if (!to || !from || dst_ctx == src_ctx || stream->capture)
        return wrong();
    fake.n_peer_copies++;
    return enqueue(stream,
                   (struct operation){.kind = COPY, .dst = to, .src = from, .bytes = bytes});
}

int cuMemHostRegister_v2(void *addr, size_t bytes, unsigned flags);
int cuMemHostRegister_v2(void *addr, size_t bytes, unsigned flags) {
    ENTER_CONTEXT("cuMemHostRegister_v2");
    if (!addr || (uintptr_t)addr % 4096 || bytes % 4096 || bytes > (size_t)1 << 30 ||
        !(flags & SL_CU_HOST_REGISTER_MAPPED))
        return wrong();
    if (any_range((uint64_t)(uintptr_t)addr, 1))
        return SL_CU_HOST_MEMORY_ALREADY_REGISTERED;
    add(addr, bytes, MAPPED);
    fake.n_mapped++;
    return 0;
}

int cuMemHostUnregister(void *addr);
int cuMemHostUnregister(void *addr) {
    ENTER_CONTEXT("cuMemHostUnregister");
    return release(addr, MAPPED);
}

int cuMemHostGetDevicePointer_v2(uint64_t *device_addr, void *addr, unsigned flags);
int cuMemHostGetDevicePointer_v2(uint64_t *device_addr, void *addr, unsigned flags) {
    ENTER_CONTEXT("cuMemHostGetDevicePointer_v2");
    if (flags || !any_range((uint64_t)(uintptr_t)addr, 1))
        return wrong();
    *device_addr = (uint64_t)(uintptr_t)addr + ADDRESS_BIAS;
    return 0;
}

int cuStreamCreate(struct CUstream_st **stream, unsigned flags);
int cuStreamCreate(struct CUstream_st **stream, unsigned flags) {
    (void)flags;
    ENTER_CONTEXT("cuStreamCreate");
    if (!(*stream = calloc(1, sizeof **stream)))
        abort();
    (*stream)->ctx = current;
    (*stream)->line = fake.n_queues ? current->n_streams++ % fake.n_queues : -1;
    (*stream)->queue.end = &(*stream)->queue.first;
    (*stream)->next = streams;
    streams = *stream;
    fake.live_objects++;
    return 0;
}

/* Who still waits for what it has not done waits for good. */
static void forget(const struct CUstream_st *gone) {
    for (struct CUstream_st *s = streams; s; s = s->next)
        for (struct operation *o = s->queue.first; o; o = o->next)
            if (o->kind == WAIT && o->stream == gone) {
                o->kind = gone->n_done >= o->after ? NOTHING : WAIT;
                o->stream = NULL;
            }
}

int cuStreamDestroy_v2(struct CUstream_st *stream);
int cuStreamDestroy_v2(struct CUstream_st *stream) {
    LOCKED;
    fake.n_calls++;
    for (struct CUstream_st **at = &streams; *at; at = &(*at)->next)
        if (*at == stream) {
            if (!stream->ctx->stuck && run(stream, UINT64_MAX) == BLOCKED)
                fake.misused = true; /* it is gone when that has run: never */
            *at = stream->next;
            forget(stream);
            drop(&stream->queue);
            free(stream);
            fake.live_objects--;
            return 0;
        }
    return wrong();
}

int cuStreamWaitEvent(struct CUstream_st *stream, struct CUevent_st *event, unsigned flags);
int cuStreamWaitEvent(struct CUstream_st *stream, struct CUevent_st *event, unsigned flags) {
    ENTER_STREAM("cuStreamWaitEvent", stream);
    if (!stream || !event || !event->stream || flags || stream->capture)
        return wrong();
    return enqueue(
        stream, (struct operation){.kind = WAIT, .stream = event->stream, .after = event->after});
}

int cuStreamBeginCapture_v2(struct CUstream_st *stream, int mode);
int cuStreamBeginCapture_v2(struct CUstream_st *stream, int mode) {
    ENTER_STREAM("cuStreamBeginCapture_v2", stream);
    if (!stream || stream->capture || mode != SL_CU_CAPTURE_RELAXED)
        return wrong();
    if (!(stream->capture = calloc(1, sizeof *stream->capture)))
        abort();
    stream->capture->kept.end = &stream->capture->kept.first;
    fake.live_objects++;
    return 0;
}

int cuGraphDestroy(struct CUgraph_st *graph);
int cuGraphDestroy(struct CUgraph_st *graph) {
    LOCKED;
    fake.n_calls++;
    drop(&graph->kept);
    free(graph);
    fake.live_objects--;
    return 0;
}

int cuStreamEndCapture(struct CUstream_st *stream, struct CUgraph_st **graph);
int cuStreamEndCapture(struct CUstream_st *stream, struct CUgraph_st **graph) {
    LOCKED;
    struct CUgraph_st *captured = stream->capture;
    stream->capture = NULL; /* ended, also when it fails */
    int result = captured ? enter("cuStreamEndCapture") : wrong();
    if (result && captured)
        cuGraphDestroy(captured);
    *graph = result ? NULL : captured;
    return result;
}

int cuGraphInstantiateWithFlags(struct CUgraphExec_st **exec, struct CUgraph_st *graph,
                                unsigned long long flags);
int cuGraphInstantiateWithFlags(struct CUgraphExec_st **exec, struct CUgraph_st *graph,
                                unsigned long long flags) {
    ENTER_CONTEXT("cuGraphInstantiateWithFlags");
    if (!graph || flags)
        return wrong();
    if (!(*exec = calloc(1, sizeof **exec)))
        abort();
    (*exec)->kept.end = &(*exec)->kept.first;
    for (const struct operation *o = graph->kept.first; o; o = o->next)
        append(&(*exec)->kept, *o);
    fake.live_objects++;
    return 0;
}

int cuGraphExecDestroy(struct CUgraphExec_st *exec);
int cuGraphExecDestroy(struct CUgraphExec_st *exec) {
    LOCKED;
    fake.n_calls++;
    drop(&exec->kept);
    free(exec);
    fake.live_objects--;
    return 0;
}

int cuGraphLaunch(struct CUgraphExec_st *exec, struct CUstream_st *stream);
int cuGraphLaunch(struct CUgraphExec_st *exec, struct CUstream_st *stream) {
    ENTER_STREAM("cuGraphLaunch", stream);
    if (!exec || !stream || stream->capture)
        return wrong();
    for (const struct operation *o = exec->kept.first; o; o = o->next)
        enqueue(stream, *o);
    return 0;
}

int cuStreamSynchronize(struct CUstream_st *stream);
int cuStreamSynchronize(struct CUstream_st *stream) {
    ENTER_STREAM("cuStreamSynchronize", stream);
    if (!stream || stream->capture)
        return wrong();
    fake.n_waits++;
    return wait_for(stream, UINT64_MAX);
}

int cuStreamQuery(struct CUstream_st *stream);
int cuStreamQuery(struct CUstream_st *stream) {
    ENTER_STREAM("cuStreamQuery", stream);
    if (stream->n_done < stream->n_queued && ++stream->asked < ASKED_MOST)
        return SL_CU_NOT_READY;
    int result = run(stream, UINT64_MAX); /* who asks so often is waiting */
    if (result == BLOCKED)
        return SL_CU_NOT_READY;
    stream->asked = 0;
    return result;
}

int cuEventCreate(struct CUevent_st **event, unsigned flags);
int cuEventCreate(struct CUevent_st **event, unsigned flags) {
    (void)flags;
    ENTER_CONTEXT("cuEventCreate");
    if (!(*event = calloc(1, sizeof **event)))
        abort();
    (*event)->ctx = current;
    fake.live_objects++;
    return 0;
}

int cuEventDestroy_v2(struct CUevent_st *event);
int cuEventDestroy_v2(struct CUevent_st *event) {
    LOCKED;
    fake.n_calls++;
    free(event);
    fake.live_objects--;
    return 0;
}

int cuEventRecord(struct CUevent_st *event, struct CUstream_st *stream);
int cuEventRecord(struct CUevent_st *event, struct CUstream_st *stream) {
    ENTER_STREAM("cuEventRecord", stream);
    if (!event || event->ctx != current || stream->capture)
        return wrong();
    event->stream = stream;
    event->after = stream->n_queued;
    event->asked = 0;
    return 0;
}

int cuEventSynchronize(struct CUevent_st *event);
int cuEventSynchronize(struct CUevent_st *event) {
    ENTER_CONTEXT("cuEventSynchronize");
    fake.n_waits++;
    return event->stream ? wait_for(event->stream, event->after) : 0;
}

int cuEventQuery(struct CUevent_st *event);
int cuEventQuery(struct CUevent_st *event) {
    ENTER_CONTEXT("cuEventQuery");
    if (!event->stream || event->stream->n_done >= event->after)
        return 0;
    if (++event->asked < ASKED_MOST)
        return SL_CU_NOT_READY;
    int result = run(event->stream, event->after); /* who asks so often is waiting */
    return result == BLOCKED ? SL_CU_NOT_READY : result;
}

int cuStreamWriteValue32_v2(struct CUstream_st *stream, uint64_t addr, uint32_t value,
                            unsigned flags);
int cuStreamWriteValue32_v2(struct CUstream_st *stream, uint64_t addr, uint32_t value,
                            unsigned flags) {
    ENTER_STREAM("cuStreamWriteValue32_v2", stream);
    char *word = any_range(addr, sizeof value);
    if (flags || !word)
        return wrong();
    return enqueue(stream, (struct operation){.kind = SET, .dst = word, .value = value});
}

int cuStreamWaitValue32_v2(struct CUstream_st *stream, uint64_t addr, uint32_t value,
                           unsigned flags);
int cuStreamWaitValue32_v2(struct CUstream_st *stream, uint64_t addr, uint32_t value,
                           unsigned flags) {
    ENTER_STREAM("cuStreamWaitValue32_v2", stream);
    char *word = any_range(addr, sizeof value);
    if (flags != SL_CU_WAIT_FOR_AT_LEAST || !word)
        return wrong();
    return enqueue(stream, (struct operation){.kind = UNTIL, .src = word, .value = value});
}

int cuModuleLoadData(struct CUmod_st **module, const void *image);
int cuModuleLoadData(struct CUmod_st **module, const void *image) {
    static const unsigned char magic[4] = {0x50, 0xed, 0x55, 0xba}; /* of a fatbin */
    ENTER_CONTEXT("cuModuleLoadData");
    if (fake.module_result)
        return fake.module_result;
    if (memcmp(image, magic, sizeof magic) != 0)
        return SL_CU_INVALID_IMAGE;
    if (!(*module = calloc(1, sizeof **module)))
        abort();
    fake.live_objects++;
    return 0;
}

int cuModuleUnload(struct CUmod_st *module);
int cuModuleUnload(struct CUmod_st *module) {
    LOCKED;
    fake.n_calls++;
    free(module);
    fake.live_objects--;
    return 0;
}

int cuModuleGetFunction(struct CUfunc_st **function, struct CUmod_st *module, const char *name);
int cuModuleGetFunction(struct CUfunc_st **function, struct CUmod_st *module, const char *name) {
    ENTER_CONTEXT("cuModuleGetFunction");
    if (!module)
        return wrong();
    if (fake.missing_kernel && strcmp(fake.missing_kernel, name) == 0)
        return SL_CU_NOT_FOUND;
    struct CUfunc_st *f = calloc(1, sizeof *f);
    if (!f)
        abort();
    snprintf(f->name, sizeof f->name, "%s", name);
    f->smem_bytes = (48 - 8) << 10; /* the kernels declare some themselves */
    f->next = functions;
    functions = f;
    *function = f;
    return 0;
}

int cuFuncSetAttribute(struct CUfunc_st *function, int attribute, int value);
int cuFuncSetAttribute(struct CUfunc_st *function, int attribute, int value) {
    ENTER_CONTEXT("cuFuncSetAttribute");
    if (attribute == SL_CU_FUNC_SHARED_CARVEOUT)
        return value >= -1 && value <= 100 ? 0 : SL_CU_INVALID_VALUE;
    if (attribute != SL_CU_FUNC_MAX_DYNAMIC_SHARED || value > DEVICE_SHARED)
        return SL_CU_INVALID_VALUE;
    function->smem_bytes = value;
    return 0;
}

/* As struct sl_karg_fill. */
struct fill_args {
    uint64_t dst, n;
    uint32_t value;
};

/* As struct sl_karg_words. */
struct words_args {
    uint64_t src, dst;
    uint32_t n;
};

static int copy_words(struct CUstream_st *stream, const void *args) {
    struct words_args a;
    memcpy(&a, args, sizeof a);
    size_t bytes = a.n * sizeof(uint32_t);
    char *from = device_range(a.src, bytes), *to = device_range(a.dst, bytes);
    if (!from || !to)
        return enqueue(stream, (struct operation){.kind = OTHER, .fault = ILLEGAL});
    return enqueue(stream,
                   (struct operation){.kind = COPY, .dst = to, .src = from, .bytes = bytes});
}

/* As struct sl_karg_send and struct sl_karg_receive. */
struct send_args {
    uint64_t x, to, raised, channel, seqno;
    uint32_t n, stride;
};
struct receive_args {
    uint64_t from, x, raised, released, channel, seqno;
    uint32_t n, stride, alone;
};

/* Each needs what it uses of channel 0. */
static int enqueue_transfer(struct CUstream_st *stream, struct operation o) {
    bool all = o.dst && o.src && o.raised && o.channel && o.seqno && (o.released || o.kind == SEND);
    return enqueue(stream, all ? o : (struct operation){.kind = OTHER, .fault = ILLEGAL});
}

static uint32_t *word_at(uint64_t addr) {
    return (uint32_t *)(void *)device_range(addr, sizeof(uint32_t));
}

static int enqueue_send(struct CUstream_st *stream, const void *args) {
    struct send_args a;
    memcpy(&a, args, sizeof a);
    size_t bytes = a.n * sizeof(float);
    return enqueue_transfer(stream, (struct operation){.kind = SEND,
                                                       .dst = device_range(a.to, bytes),
                                                       .src = device_range(a.x, bytes),
                                                       .bytes = bytes,
                                                       .raised = word_at(a.raised),
                                                       .channel = word_at(a.channel),
                                                       .seqno = word_at(a.seqno),
                                                       .stride = a.stride});
}

static int enqueue_receive(struct CUstream_st *stream, const void *args) {
    struct receive_args a;
    memcpy(&a, args, sizeof a);
    size_t bytes = a.n * sizeof(float);
    return enqueue_transfer(stream, (struct operation){.kind = RECEIVE,
                                                       .dst = device_range(a.x, bytes),
                                                       .src = device_range(a.from, bytes),
                                                       .bytes = bytes,
                                                       .raised = word_at(a.raised),
                                                       .released = word_at(a.released),
                                                       .channel = word_at(a.channel),
                                                       .seqno = word_at(a.seqno),
                                                       .stride = a.stride});
}

/* A word of arguments: an address by its allocation, so that two runs can be compared. */
static void trace_word(uint64_t word) {
    for (const struct memory *m = memories; m; m = m->next) {
        uint64_t base = (uint64_t)(uintptr_t)m->host + ADDRESS_BIAS;
        if (word >= base && word - base < m->bytes) {
            fprintf(trace, " m%u+%llx", m->number, (unsigned long long)(word - base));
            return;
        }
    }
    fprintf(trace, " %llx", (unsigned long long)word);
}

static void trace_launch(const struct fake_cuda_launch *l, const char *args, bool captured) {
    fprintf(trace, "%s%s %u,%u,%u %u,%u,%u %u:", captured ? "" : "now ", l->kernel, l->grid[0],
            l->grid[1], l->grid[2], l->block[0], l->block[1], l->block[2], l->smem_bytes);
    for (size_t i = 0; i < l->args_bytes; i += sizeof(uint64_t)) {
        uint64_t word = 0;
        memcpy(&word, args + i, l->args_bytes - i < sizeof word ? l->args_bytes - i : sizeof word);
        trace_word(word);
    }
    fputc('\n', trace);
    fflush(trace);
}

int cuLaunchKernel(struct CUfunc_st *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned smem_bytes,
                   struct CUstream_st *stream, void **params, void **extra);
int cuLaunchKernel(struct CUfunc_st *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned smem_bytes,
                   struct CUstream_st *stream, void **params, void **extra) {
    ENTER_STREAM("cuLaunchKernel", stream);
    if (!function || !stream || params || !extra || extra[0] != SL_CU_PARAM_POINTER ||
        extra[2] != SL_CU_PARAM_SIZE || extra[4] != SL_CU_PARAM_END)
        return wrong();
    if (!grid_x || !grid_y || !grid_z || (uint64_t)block_x * block_y * block_z > 1024 ||
        (!block_x || !block_y || !block_z) || (int)smem_bytes > function->smem_bytes)
        return SL_CU_INVALID_VALUE;
    struct fake_cuda_launch *l = &fake.launch[fake.n_launches++ % FAKE_CUDA_MAX_LAUNCHES];
    *l = (struct fake_cuda_launch){.grid = {grid_x, grid_y, grid_z},
                                   .block = {block_x, block_y, block_z},
                                   .smem_bytes = smem_bytes};
    snprintf(l->kernel, sizeof l->kernel, "%s", function->name);
    memcpy(&l->args_bytes, extra[3], sizeof l->args_bytes);
    memcpy(l->args, extra[1], l->args_bytes < sizeof l->args ? l->args_bytes : sizeof l->args);
    if (trace)
        trace_launch(l, extra[1], stream->capture != NULL);
    if (strcmp(function->name, "sl_k_words") == 0)
        return copy_words(stream, extra[1]);
    if (strcmp(function->name, "sl_k_send") == 0)
        return enqueue_send(stream, extra[1]);
    if (strcmp(function->name, "sl_k_receive") == 0)
        return enqueue_receive(stream, extra[1]);
    if (strcmp(function->name, "sl_k_fill") != 0)
        return enqueue(stream, (struct operation){.kind = OTHER});
    struct fill_args a;
    memcpy(&a, extra[1], sizeof a);
    char *to = device_range(a.dst, a.n * 4);
    if (!to) /* a bad address in a kernel: seen by whoever waits, and by all after that */
        return enqueue(stream, (struct operation){.kind = OTHER, .fault = ILLEGAL});
    return enqueue(stream,
                   (struct operation){.kind = FILL, .dst = to, .bytes = a.n * 4, .value = a.value});
}

int cuLaunchKernelEx(const struct sl_cu_launch_config *config, struct CUfunc_st *function,
                     void **params, void **extra);
int cuLaunchKernelEx(const struct sl_cu_launch_config *config, struct CUfunc_st *function,
                     void **params, void **extra) {
    if (config->n_attributes != 1 ||
        config->attributes->id != SL_CU_LAUNCH_PROGRAMMATIC_SERIALIZATION ||
        config->attributes->value.flag != 1)
        return wrong();
    LOCKED;
    uint64_t at = fake.n_launches;
    int result = cuLaunchKernel(function, config->grid_x, config->grid_y, config->grid_z,
                                config->block_x, config->block_y, config->block_z,
                                config->smem_bytes, config->stream, params, extra);
    if (fake.n_launches > at)
        fake.launch[at % FAKE_CUDA_MAX_LAUNCHES].early = true;
    return result;
}
