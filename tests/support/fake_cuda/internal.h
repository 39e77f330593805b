/* Inside the CUDA driver for tests (fake_cuda.h): state.c has what tests set and what every call
 * goes through, queues.c runs what streams have queued; the driver's symbols are in the file of
 * their subject. Nothing here leaves the shared object. */
#ifndef SL_TESTS_SUPPORT_FAKE_CUDA_INTERNAL_H
#define SL_TESTS_SUPPORT_FAKE_CUDA_INTERNAL_H

#include "backends/gpu/driver.h"
#include "tests/support/fake_cuda.h"

#include <stdio.h>

#pragma GCC visibility push(hidden)

#ifdef FAKE_CUDA_SIMT
#define ADDRESS_BIAS 0 /* kernels follow addresses */
#else
#define ADDRESS_BIAS 0x1000000000000000ull
#endif
#define ILLEGAL       700
#define BLOCKED       (-1) /* no result of the driver's: nothing more can run by now */
#define ASKED_MOST    16
#define DEVICE_SHARED 232448

struct CUctx_st {
    int refs;
    int stuck;                         /* what every further call in it gives, after a fault */
    int fault;                         /* what a kernel that is still running will end with */
    uint64_t until_ns;                 /* and when */
    int n_streams;                     /* made so far */
    int64_t live_bytes;                /* of its device's memory */
    bool reads[FAKE_CUDA_MAX_DEVICES]; /* memory of these other devices */
};
struct run;
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
    /* SEND, RECEIVE: dst and src are those of channel 0. */
    uint32_t *raised;
    const uint32_t *released, *channel, *seqno;
    uint32_t stride;
    struct run *run; /* the kernel that does it; NULL: it is done here */
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
/* Captured operations. */
struct CUgraph_st {
    struct operations kept;
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

/* state.c */
extern struct fake_cuda fake;
extern struct CUctx_st fake_contexts[FAKE_CUDA_MAX_DEVICES];
extern _Thread_local struct CUctx_st *fake_current;
extern int fake_stuck; /* of the whole driver */
int fake_lock(void);
void fake_unlock(const int *guard);
/* Lets other threads call while this one has to wait. */
void fake_pause_unlocked(void);
/* Counts a call and decides whether it fails. */
int fake_enter(const char *symbol);
int fake_wrong(void);

#define LOCKED int guard __attribute__((cleanup(fake_unlock), unused)) = fake_lock()
#define ENTER(symbol)                                                                              \
    LOCKED;                                                                                        \
    do {                                                                                           \
        int enter_result = fake_enter(symbol);                                                     \
        if (enter_result)                                                                          \
            return enter_result;                                                                   \
    } while (0)
#define ENTER_CONTEXT(symbol)                                                                      \
    ENTER(symbol);                                                                                 \
    if (!fake_current)                                                                             \
        return fake.misused = true, 201;                                                           \
    if (fake_current->stuck)                                                                       \
    return fake_current->stuck
/* Of a stream: its context must be the current one. */
#define ENTER_STREAM(symbol, stream)                                                               \
    ENTER_CONTEXT(symbol);                                                                         \
    if (!(stream) || (stream)->ctx != fake_current)                                                \
    return fake_wrong()

/* memory.c */
extern struct memory *fake_memories;
/* Where the device's address of a range of device memory, or of mapped host memory, points; NULL
 * when the range is not within one allocation. */
char *fake_device_range(uint64_t addr, size_t bytes);
/* The same for copies, whose host side is given by the host's own address. */
char *fake_any_range(uint64_t addr, size_t bytes);
void fake_forget_memory(void);

/* queues.c */
extern struct CUstream_st *fake_streams;
void fake_append(struct operations *list, struct operation o);
void fake_drop(struct operations *list);
int fake_enqueue(struct CUstream_st *stream, struct operation o);
/* Runs what was queued on a stream until `upto` operations have run in all; what it waits for runs
 * first. That may lead back to it: then it is at the operation that waits. */
int fake_run(struct CUstream_st *stream, uint64_t upto);
/* The same, however long it takes. */
int fake_wait_for(struct CUstream_st *stream, uint64_t upto);
/* All streams of the current context. */
int fake_wait_for_all(void);
void fake_forget_streams(void);

/* emulated.c: kernels that run, with FAKE_CUDA_SIMT */
bool fake_has_kernel(const char *name);
uint32_t fake_wave_lanes(void);
/* A launch, args behind it; NULL: it is not to run. The first to hold it owns it. */
struct run *fake_run_of(const struct fake_cuda_launch *l, const void *args);
void fake_run_kernel(const struct run *r);
void fake_hold(struct run *r);
void fake_let_go(struct run *r);
/* Memory of a device's; NULL: there is none. */
void *fake_get(size_t bytes);
void fake_put_back(void *host, size_t bytes);

/* launches.c */
extern FILE *fake_trace; /* NULL: none */
void fake_forget_functions(void);

#pragma GCC visibility pop

#endif
