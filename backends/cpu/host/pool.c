/* The pool's three meeting points (start, barrier, end) share one pattern: an atomic word that the
 * last one changes, waiters that spin on it for a bounded time, then yield, then sleep on it as a
 * futex. The waker makes the system call only when somebody sleeps.
 *
 * On a busy machine the kernel may put two of our threads on one CPU, and as they wait for one
 * another in turn, both look content: its balancer left them there for seconds (a run then took 33
 * us instead of 0.3). So a helper that waits long and finds itself on another's CPU moves away. */
#include "backends/cpu/host/pool.h"

#include "common/clock.h"
#include "common/cpus.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LINE 64u

/* Between two ops of a layer the engine needs a few microseconds, between two steps more than it
 * pays to spin. */
#define SPIN_NS  60000u
#define YIELD_NS 15000u   /* from here on each round of spinning also yields */
#define MOVE_NS  5000000u /* a thread moves to another CPU at most this often */

/* A yield that takes CROWDED_NS gave another program a whole time slice. The kernel runs a thread
 * that it wakes sooner than one that has yielded, so waiters sleep at once for CROWDED_KEEPS_NS. */
#define CROWDED_NS       300000u
#define CROWDED_KEEPS_NS 100000000u

/* A word to wait on. It only ever counts up, so that a waiter that wakes late sees the change. */
struct gate {
    _Alignas(LINE) _Atomic uint32_t word;
    _Atomic uint32_t n_sleeping;
};

struct helper {
    struct sl_pool *pool;
    pthread_t tid;
    uint32_t thread;
    uint64_t end_ns; /* of its part of a run whose end is asked for */
};

struct sl_pool {
    struct gate start;                         /* counts runs */
    struct gate phase;                         /* counts barriers passed */
    struct gate done;                          /* counts helpers that returned, over all runs */
    _Alignas(LINE) _Atomic uint32_t n_arrived; /* at the barrier */
    _Alignas(LINE) _Atomic uint32_t chunk;
    _Alignas(LINE) void (*fn)(void *ctx, uint32_t thread, uint32_t n_threads);
    void *ctx;
    bool stop;
    uint32_t n_threads;
    uint32_t n_in_run; /* threads of this run */
    bool timed;        /* somebody asks when it ended */
    uint64_t spin_ns;
    _Atomic uint64_t awake_ns; /* how long helpers that have nothing to do spin */
    uint32_t n_started;        /* helpers */
    struct helper *helpers;
    bool spread;         /* there is a CPU for each thread */
    _Atomic int *on_cpu; /* [n_threads] where each last began a run; -1 unknown */
};

static _Thread_local uint32_t my_thread; /* 0 in whoever calls sl_pool_run */
static _Thread_local uint64_t moved_ns;
static _Thread_local uint64_t crowded_until_ns;

static void note_cpu(struct sl_pool *p, uint32_t thread) {
    int cpu = sched_getcpu();
    if (atomic_load_explicit(&p->on_cpu[thread], memory_order_relaxed) != cpu)
        atomic_store_explicit(&p->on_cpu[thread], cpu, memory_order_relaxed);
}

/* Only helpers move: the caller's thread is not ours. Its CPUs are taken away for a moment, which
 * migrates at once, and given back. */
static void move_apart(struct sl_pool *p, uint64_t now_ns) {
    if (!my_thread || !p->spread || now_ns - moved_ns < MOVE_NS)
        return;
    int mine = sched_getcpu();
    bool shared = false;
    cpu_set_t allowed, others;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return;
    others = allowed;
    for (uint32_t i = 0; i < p->n_threads; i++) {
        int cpu = atomic_load_explicit(&p->on_cpu[i], memory_order_relaxed);
        if (i == my_thread || cpu < 0 || cpu >= CPU_SETSIZE)
            continue;
        shared = shared || cpu == mine;
        CPU_CLR((size_t)cpu, &others);
    }
    if (!shared || CPU_COUNT(&others) == 0)
        return;
    moved_ns = now_ns;
    if (sched_setaffinity(0, sizeof others, &others) == 0) {
        note_cpu(p, my_thread);
        sched_setaffinity(0, sizeof allowed, &allowed);
    }
}

/* Whether the word has changed within so long. */
static bool spin(struct sl_pool *p, struct gate *g, uint32_t old, uint64_t most_ns) {
    uint64_t start_ns = 0;
    for (;;) {
        for (int i = 0; i < 32; i++) {
            if (atomic_load_explicit(&g->word, memory_order_acquire) != old)
                return true;
            sl_cpu_relax();
        }
        uint64_t now_ns = sl_now_ns();
        if (!start_ns)
            start_ns = now_ns;
        if (now_ns - start_ns >= most_ns)
            return false;
        if (now_ns - start_ns >= YIELD_NS) {
            if (now_ns < crowded_until_ns)
                return false;
            move_apart(p, now_ns);
            sched_yield();
            uint64_t back_ns = sl_now_ns();
            if (back_ns - now_ns >= CROWDED_NS)
                crowded_until_ns = back_ns + CROWDED_KEEPS_NS;
        }
    }
}

/* Who is woken while the word is as it was spins again: work comes soon (sl_pool_wake). */
static void gate_wait_while(struct sl_pool *p, struct gate *g, uint32_t old) {
    const _Atomic uint64_t *awake_ns = &p->awake_ns;
    while (
        !spin(p, g, old,
              g == &p->start ? atomic_load_explicit(awake_ns, memory_order_relaxed) : p->spin_ns)) {
        /* Sequentially consistent on both sides: either the waker sees the sleeper, or the sleeper
         * (in the kernel's check of the word) sees the new word. */
        atomic_fetch_add(&g->n_sleeping, 1);
        if (atomic_load(&g->word) == old)
            syscall(SYS_futex, &g->word, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
        atomic_fetch_sub(&g->n_sleeping, 1);
    }
}

static void gate_add(struct gate *g, uint32_t n) {
    atomic_fetch_add(&g->word, n);
    if (atomic_load(&g->n_sleeping))
        syscall(SYS_futex, &g->word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

static void *helper_main(void *arg) {
    struct helper *h = arg;
    struct sl_pool *p = h->pool;
    uint32_t run = 0;
    my_thread = h->thread;
    for (;;) {
        gate_wait_while(p, &p->start, run);
        run++;
        note_cpu(p, h->thread);
        if (p->stop)
            return NULL;
        p->fn(p->ctx, h->thread, p->n_threads);
        if (p->timed)
            h->end_ns = sl_now_ns();
        gate_add(&p->done, 1);
    }
}

static void stop_helpers(struct sl_pool *p) {
    p->stop = true;
    gate_add(&p->start, 1);
    for (uint32_t i = 0; i < p->n_started; i++)
        pthread_join(p->helpers[i].tid, NULL);
}

enum sl_status sl_pool_create(uint32_t n_threads, struct sl_pool **out_pool) {
    struct sl_pool *p = aligned_alloc(LINE, sizeof *p);
    if (!p)
        return SL_ERR_NOMEM;
    *p = (struct sl_pool){.n_threads = n_threads};
    /* With more threads than CPUs, whoever spins holds up whom it waits for. */
    p->spread = n_threads <= sl_cpus_allowed();
    p->spin_ns = p->spread ? SPIN_NS : 1000;
    atomic_init(&p->awake_ns, p->spin_ns);
    p->helpers = calloc(n_threads, sizeof *p->helpers);
    p->on_cpu = calloc(n_threads, sizeof *p->on_cpu);
    if (!p->helpers || !p->on_cpu) {
        free(p->helpers);
        free(p->on_cpu);
        free(p);
        return SL_ERR_NOMEM;
    }
    for (uint32_t i = 0; i < n_threads; i++)
        atomic_init(&p->on_cpu[i], -1);
    /* Signals are the process's main thread's business. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool ok = true;
    for (uint32_t i = 0; i + 1 < n_threads && ok; i++) {
        struct helper *h = &p->helpers[i];
        *h = (struct helper){.pool = p, .thread = i + 1};
        ok = pthread_create(&h->tid, NULL, helper_main, h) == 0;
        if (ok) {
            p->n_started++;
            char name[16];
            snprintf(name, sizeof name, "sl-cpu-%u", (i + 1) % 1000);
            pthread_setname_np(h->tid, name);
        }
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!ok) {
        sl_pool_destroy(&p);
        return SL_ERR_NOMEM;
    }
    *out_pool = p;
    return SL_OK;
}

void sl_pool_destroy(struct sl_pool **pool) {
    struct sl_pool *p = *pool;
    if (!p)
        return;
    stop_helpers(p);
    free(p->on_cpu);
    free(p->helpers);
    free(p);
    *pool = NULL;
}

void sl_pool_stay_awake(struct sl_pool *p, uint64_t ns) {
    if (p->spread && ns > p->spin_ns)
        atomic_store_explicit(&p->awake_ns, ns, memory_order_relaxed);
}

void sl_pool_wake(struct sl_pool *p) {
    if (atomic_load(&p->start.n_sleeping))
        syscall(SYS_futex, &p->start.word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

uint32_t sl_pool_n_threads(const struct sl_pool *p) {
    return p->n_threads;
}

/* Starts the helpers. Returns the word of done when all have returned. */
static uint32_t start_helpers(struct sl_pool *p,
                              void (*fn)(void *ctx, uint32_t thread, uint32_t n_threads), void *ctx,
                              uint32_t n_in_run, bool timed) {
    note_cpu(p, 0);
    p->timed = timed;
    p->fn = fn;
    p->ctx = ctx;
    p->n_in_run = n_in_run;
    uint32_t done = atomic_load_explicit(&p->done.word, memory_order_relaxed);
    gate_add(&p->start, 1);
    return done + p->n_threads - 1;
}

static void await_helpers(struct sl_pool *p, uint32_t target) {
    for (;;) {
        uint32_t now = atomic_load_explicit(&p->done.word, memory_order_acquire);
        if (now == target)
            return;
        gate_wait_while(p, &p->done, now);
    }
}

void sl_pool_run(struct sl_pool *p, void (*fn)(void *ctx, uint32_t thread, uint32_t n_threads),
                 void *ctx) {
    atomic_store_explicit(&p->chunk, 0, memory_order_relaxed);
    if (p->n_threads == 1) {
        fn(ctx, 0, 1);
        return;
    }
    uint32_t target = start_helpers(p, fn, ctx, p->n_threads, false);
    fn(ctx, 0, p->n_threads);
    await_helpers(p, target);
}

void sl_pool_run_overlap(struct sl_pool *p,
                         void (*fn)(void *ctx, uint32_t thread, uint32_t n_threads), void *ctx,
                         void (*overlap)(void *ctx), void *overlap_ctx, uint64_t *out_end_ns) {
    atomic_store_explicit(&p->chunk, 0, memory_order_relaxed);
    if (p->n_threads == 1) {
        fn(ctx, 0, 1);
        overlap(overlap_ctx);
        return;
    }
    uint32_t target = start_helpers(p, fn, ctx, p->n_threads - 1, out_end_ns != NULL);
    overlap(overlap_ctx);
    await_helpers(p, target);
    for (uint32_t i = 0; out_end_ns && i < p->n_started; i++)
        if (i == 0 || p->helpers[i].end_ns > *out_end_ns)
            *out_end_ns = p->helpers[i].end_ns;
}

void sl_pool_barrier(struct sl_pool *p) {
    if (p->n_threads == 1) {
        atomic_store_explicit(&p->chunk, 0, memory_order_relaxed);
        return;
    }
    uint32_t phase = atomic_load_explicit(&p->phase.word, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&p->n_arrived, 1, memory_order_acq_rel) + 1 == p->n_in_run) {
        /* Nobody else is between barriers now: the next phase starts with fresh counters. */
        atomic_store_explicit(&p->n_arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&p->chunk, 0, memory_order_relaxed);
        gate_add(&p->phase, 1);
    } else {
        gate_wait_while(p, &p->phase, phase);
    }
}

uint32_t sl_pool_next(struct sl_pool *p, uint32_t n_chunks) {
    uint32_t c = atomic_fetch_add_explicit(&p->chunk, 1, memory_order_relaxed);
    return c < n_chunks ? c : UINT32_MAX;
}
