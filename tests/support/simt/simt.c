#include "tests/support/simt/simt.h"

#include <link.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#define MAX_WARPS   (SIMT_MAX_THREADS / SIMT_LANES)
#define N_BARRIERS  16u
#define STACK_BYTES (128u << 10)
#define POISON      0xff /* a NaN in every float type, and an index that leads nowhere */
#ifdef SIMT_HIP
#define IS_HIP true
#else
#define IS_HIP false
#endif
#define BEYOND 1024u /* bytes behind dynamic shared memory that must stay as they are */
#define PART   1024u /* of shared memory, of which is known whether a kernel writes to it */

/* Kernels declare it as an array of what they like. */
_Thread_local _Alignas(1024) unsigned char shared[SIMT_DYNAMIC_SHARED + BEYOND]
    __attribute__((visibility("hidden")));

struct simt_place simt_place;

struct copy {
    void *to;
    const void *from;
    uint32_t bytes, room, batch;
};
struct lane {
#if defined(__x86_64__)
    void *sp;
#else
    ucontext_t context;
#endif
    char *stack;
    struct simt_dim thread;
    uint32_t index;
    bool ended, has_waited;
    const char *waits; /* where, for messages; NULL: it does not */
    bool spins;
    bool parts; /* of one that its wave's other warp holds: what it comes to is not where the other
                   is */
    const char *comes_to;
    const void *loop; /* the last that it came to */
    struct copy *copies;
    uint32_t n_copies, room_copies, batch;
};
struct warp {
    uint32_t exist, arrived, ended;
    const char *what;
    uint32_t phase;
    _Alignas(32) char values[2][SIMT_LANES][SIMT_VALUE_BYTES];
};
/* Of HIP's kernels. */
struct wave {
    const char *file; /* where those of its lanes are that are at the block's barrier; NULL: none */
    int line;
    uint32_t spinning[2]; /* lanes of each warp that are in a loop, at `loop` */
    const void *loop;
    bool catches_up; /* the other warp runs, which cannot be behind for long */
};
struct barrier {
    uint32_t n, threads;
    int any, all;
    int any_of[2], all_of[2];
    const char *what; /* barrier 0: which of those that meet there */
    uint32_t phase;
    uint16_t lanes[SIMT_MAX_THREADS];
};

struct parts {
    uint32_t *part;
    uint32_t n;
};

static struct {
    const struct simt_kernel *kernel;
    const void *args;
    struct lane *now;
    struct lane lane[SIMT_MAX_THREADS];
    struct warp warp[MAX_WARPS];
    struct wave wave[MAX_WARPS];
    uint16_t spinner[SIMT_MAX_THREADS], held[SIMT_MAX_THREADS];
    uint32_t n_spinners, n_held, wave_lanes;
    bool moved; /* something else than loops has run since they were last looked at */
    struct barrier barrier[N_BARRIERS];
    uint16_t bag[SIMT_MAX_THREADS]; /* the lanes that can go on */
    uint32_t n_bag, n_threads, n_live;
    uint64_t random;
    char *tls; /* the calling thread's __shared__ variables */
    size_t tls_bytes;
    bool *ran;          /* by kernel */
    struct parts *uses; /* by kernel: what it has ever written to */
    bool meets_to_wait;
#if defined(__x86_64__)
    void *main_sp;
#else
    ucontext_t main_context;
#endif
} s;

static uint64_t next_random(void) {
    s.random ^= s.random << 13;
    s.random ^= s.random >> 7;
    s.random ^= s.random << 17;
    return s.random;
}
static uint32_t below(uint32_t n) {
    return (uint32_t)((next_random() >> 32) * n >> 32);
}

void simt_fault(const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "simt: %s, block %u,%u,%u, thread %u,%u,%u: %s\n", s.kernel->name,
            simt_place.block.x, simt_place.block.y, simt_place.block.z, simt_place.thread.x,
            simt_place.thread.y, simt_place.thread.z, text);
    fflush(stderr);
    abort();
}

/* An address that is none, or not one of the alignment that its type needs (SIGILL: the kernels are
 * compiled to check it). */
static void on_signal(int number, siginfo_t *info, void *context) {
    (void)context;
    signal(number, SIG_DFL);
    if (!s.now)
        return; /* not ours: it comes again */
    char text[256];
    int n = snprintf(text, sizeof text,
                     "simt: %s, block %u,%u,%u, thread %u,%u,%u: %s, at %p (SIMT_TRACE=1 shows the "
                     "launches)\n",
                     s.kernel->name, simt_place.block.x, simt_place.block.y, simt_place.block.z,
                     simt_place.thread.x, simt_place.thread.y, simt_place.thread.z,
                     number == SIGILL ? "a misaligned address, or an impossible place"
                                      : "an address that is no memory of the device's",
                     info->si_addr);
    if (write(2, text, (size_t)n) != n)
        _exit(1);
}

/* Fibers. */
#if defined(__x86_64__)
void simt_switch(void **save, void *to);
__asm__(".text\n.globl simt_switch\n.hidden simt_switch\n.type simt_switch, @function\n"
        "simt_switch:\n"
        "    push %rbp\n    push %rbx\n    push %r12\n    push %r13\n    push %r14\n    push %r15\n"
        "    mov %rsp, (%rdi)\n    mov %rsi, %rsp\n"
        "    pop %r15\n    pop %r14\n    pop %r13\n    pop %r12\n    pop %rbx\n    pop %rbp\n"
        "    ret\n.size simt_switch, .-simt_switch\n");
#define SWITCH_LANES(from, to) simt_switch(&(from)->sp, (to)->sp)
#define SWITCH_TO_MAIN(from)   simt_switch(&(from)->sp, s.main_sp)
#define SWITCH_FROM_MAIN(to)   simt_switch(&s.main_sp, (to)->sp)
#else
#define SWITCH_LANES(from, to) swapcontext(&(from)->context, &(to)->context)
#define SWITCH_TO_MAIN(from)   swapcontext(&(from)->context, &s.main_context)
#define SWITCH_FROM_MAIN(to)   swapcontext(&s.main_context, &(to)->context)
#endif

static void lane_main(void);

static void start(struct lane *l) {
    if (!l->stack) {
        char *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stack == MAP_FAILED || mprotect(stack, 4096, PROT_NONE) != 0) {
            perror("simt: a lane's stack");
            abort();
        }
        l->stack = stack;
    }
#if defined(__x86_64__)
    /* Not all at the same distance from a page's beginning, or they share a few lines of cache. */
    void **top = (void **)(void *)(l->stack + STACK_BYTES - l->index % 61 * 64);
    *--top = NULL; /* where a caller would be */
    void (*entry)(void) = lane_main;
    memcpy(--top, &entry, sizeof entry);
    for (int i = 0; i < 6; i++)
        *--top = NULL;
    l->sp = top;
#else
    getcontext(&l->context);
    l->context.uc_stack.ss_sp = l->stack + 4096;
    l->context.uc_stack.ss_size = STACK_BYTES - 4096;
    l->context.uc_link = NULL;
    makecontext(&l->context, lane_main, 0);
#endif
}

/* Takes a lane out of the bag. */
static struct lane *take(void) {
    uint32_t i = below(s.n_bag);
    struct lane *l = &s.lane[s.bag[i]];
    s.bag[i] = s.bag[--s.n_bag];
    s.now = l;
    simt_place.thread = l->thread;
    l->waits = NULL;
    return l;
}

static void put(uint32_t index) {
    s.bag[s.n_bag++] = (uint16_t)index;
}

static struct wave *wave_of(const struct lane *l) {
    return &s.wave[l->index / s.wave_lanes];
}

static void fault_of_parting(const struct lane *l) {
    simt_place.thread = l->thread;
    simt_fault("it comes to %s, and the other warp of its wave waits in a loop until it has",
               l->comes_to);
}

/* Nobody is left but lanes that look at memory again and again, and those that they hold. */
static void look_again(void) {
    if (s.moved) {
        for (uint32_t i = 0; i < s.n_spinners; i++)
            put(s.spinner[i]);
        s.n_spinners = 0;
        s.moved = false;
        return;
    }
    /* What they wait for can only come of a warp that is behind its wave's other one, which was
     * here first. */
    uint32_t kept = 0, first = 0;
    while (first < s.n_held && s.lane[s.held[first]].parts)
        first++;
    if (first == s.n_held) {
        if (s.n_held)
            fault_of_parting(&s.lane[s.held[0]]);
        return;
    }
    struct wave *behind = wave_of(&s.lane[s.held[first]]);
    for (uint32_t i = 0; i < s.n_held; i++)
        if (wave_of(&s.lane[s.held[i]]) == behind && !s.lane[s.held[i]].parts)
            put(s.held[i]);
        else
            s.held[kept++] = s.held[i];
    s.n_held = kept;
    behind->catches_up = true;
}

/* The current lane waits, or has ended: another one goes on. */
static void pass(void) {
    struct lane *from = s.now;
    if (!s.n_bag)
        look_again();
    if (s.n_bag) {
        struct lane *to = take();
        if (to != from)
            SWITCH_LANES(from, to);
    } else if (!s.n_live) {
        SWITCH_TO_MAIN(from);
    } else {
        char text[400] = "";
        size_t n = 0;
        for (uint32_t i = 0; i < s.n_threads && n < 300; i++)
            if (!s.lane[i].ended && (!i || s.lane[i].waits != s.lane[i - 1].waits))
                n += (size_t)snprintf(text + n, sizeof text - n, "; from thread %u on at %s", i,
                                      s.lane[i].waits);
        simt_fault("nobody can go on: %u of %u threads have not ended%s", s.n_live, s.n_threads,
                   text);
    }
}

/* The current lane goes on when the other warp of its wave is in no loop, or waits there for what
 * is behind: this. */
static void hold(const char *what, bool parts, const void *loop) {
    if (s.wave_lanes == SIMT_LANES)
        return; /* a wave has no other warp */
    struct lane *l = s.now;
    struct wave *w = wave_of(l);
    uint32_t half = l->index % s.wave_lanes / SIMT_LANES;
    while (w->spinning[!half] && w->loop != loop) {
        l->comes_to = what;
        l->parts = parts;
        if (w->catches_up && parts)
            fault_of_parting(l);
        if (w->catches_up)
            return;
        l->waits = "what the other warp of its wave waits for";
        s.held[s.n_held++] = (uint16_t)l->index;
        pass();
        s.moved = true;
    }
}

/* It is in no loop any more. */
static void leave_loop(struct lane *l) {
    struct wave *w = wave_of(l);
    uint32_t half = l->index % s.wave_lanes / SIMT_LANES, kept = 0;
    l->spins = false;
    w->spinning[half] &= ~(1u << l->index % SIMT_LANES);
    for (uint32_t i = 0; i < s.n_held; i++)
        if (!w->spinning[half] && wave_of(&s.lane[s.held[i]]) == w)
            put(s.held[i]);
        else
            s.held[kept++] = s.held[i];
    s.n_held = kept;
    if (!w->spinning[0] && !w->spinning[1])
        w->catches_up = false;
}

/* Before a lane waits, or ends. parts: no warp that is behind comes here on its way to a loop. */
static void keep_together(const char *what, bool parts) {
    s.moved = true;
    if (s.now->spins)
        leave_loop(s.now);
    hold(what, parts, NULL);
}

void simt_atomic(void) {
    keep_together("an atomic operation", false);
}

void simt_look(void) {
    struct lane *l = s.now;
    if (l->spins)
        return;
    l->loop = __builtin_return_address(0);
    hold("another loop", true, l->loop);
    wave_of(l)->catches_up = false; /* it is there */
    s.moved = true;
}

void simt_spin(void) {
    struct lane *l = s.now;
    struct wave *w = wave_of(l);
    l->spins = true;
    w->spinning[l->index % s.wave_lanes / SIMT_LANES] |= 1u << l->index % SIMT_LANES;
    w->loop = l->loop;
    s.spinner[s.n_spinners++] = (uint16_t)l->index;
    l->waits = "a loop";
    pass();
}

uint32_t simt_wave_lanes(void) {
    const char *wave = getenv("SIMT_WAVE");
    return IS_HIP && !(wave && strcmp(wave, "32") == 0) ? 2 * SIMT_LANES : SIMT_LANES;
}
uint32_t simt_wave_lane(void) {
    return s.now->index % s.wave_lanes;
}
uint32_t simt_chance(void) {
    return (uint32_t)(next_random() >> 32);
}

static void wait_at(const char *what) {
    s.now->waits = what;
    pass();
}

static void release(struct barrier *b) {
    b->any_of[b->phase] = b->any;
    b->all_of[b->phase] = b->all;
    for (uint32_t i = 0; i < b->n; i++)
        put(b->lanes[i]);
    if (b == s.barrier)
        for (uint32_t i = 0; i * s.wave_lanes < s.n_threads; i++)
            s.wave[i].file = NULL;
    b->n = 0;
    b->any = 0;
    b->all = 1;
    b->phase ^= 1;
}

static void lane_main(void) {
    s.kernel->run(s.args);
    struct lane *l = s.now;
    keep_together("its end", true);
    if (!l->has_waited && !IS_HIP)
        simt_fault("it ended without sl_grid_wait()");
    struct warp *w = &s.warp[l->index / SIMT_LANES];
    w->ended |= 1u << l->index % SIMT_LANES;
    if (w->arrived)
        simt_fault("it ended while lanes of its warp (%08x) wait for it at %s", w->arrived,
                   w->what);
    l->ended = true;
    s.n_live--;
    if (s.barrier[0].n && s.barrier[0].n == s.n_live)
        release(&s.barrier[0]);
    pass();
    abort();
}

/* All lanes of a wave that have not ended are at the block's barrier together. */
static void come_together(const char *file, int line) {
    struct wave *w = wave_of(s.now);
    if (w->file && (w->line != line || strcmp(w->file, file) != 0))
        simt_fault(
            "it is at a barrier in line %d of %s, and others of its wave at one in line %d of %s",
            line, file, w->line, w->file);
    w->file = file;
    w->line = line;
}

static void meet_block(const char *what, int value, int *any, int *all, const char *file,
                       int line) {
    struct barrier *b = &s.barrier[0];
    keep_together(what, true);
    if (IS_HIP)
        come_together(file, line);
    uint32_t phase = b->phase;
    if (b->n && b->what != what)
        simt_fault("it is at %s, and %u threads of its block at %s", what, b->n, b->what);
    b->what = what;
    b->any |= value != 0;
    b->all &= value != 0;
    b->lanes[b->n++] = (uint16_t)s.now->index;
    if (b->n == s.n_live)
        release(b);
    wait_at(what);
    *any = b->any_of[phase];
    *all = b->all_of[phase];
}

void simt_block(int value, int *any, int *all, const char *file, int line) {
    meet_block("__syncthreads", value, any, all, file, line);
}

void simt_meet(uint32_t id, uint32_t threads) {
    if (!id || id >= N_BARRIERS || !threads || threads % SIMT_LANES)
        simt_fault("barrier %u for %u threads", id, threads);
    struct barrier *b = &s.barrier[id];
    if (b->n && b->threads != threads)
        simt_fault("barrier %u for %u threads, and for %u", id, threads, b->threads);
    b->threads = threads;
    b->lanes[b->n++] = (uint16_t)s.now->index;
    if (b->n == threads)
        release(b);
    wait_at("bar.sync");
}

uint32_t simt_lane(void) {
    return s.now->index % SIMT_LANES;
}

const void *simt_warp(uint32_t mask, const char *what, const void *value, size_t bytes) {
    keep_together(what, false);
    uint32_t lane = simt_lane(), bit = 1u << lane;
    struct warp *w = &s.warp[s.now->index / SIMT_LANES];
    if ((mask & w->exist) != w->exist)
        simt_fault("%s of some lanes only (%08x of %08x) is not emulated", what, mask, w->exist);
    if (w->ended)
        simt_fault("%s: lanes %08x of its warp have ended", what, w->ended);
    if (w->arrived && w->what != what && strcmp(w->what, what) != 0)
        simt_fault("it is at %s, lanes %08x of its warp at %s", what, w->arrived, w->what);
    uint32_t phase = w->phase;
    if (bytes)
        memcpy(w->values[phase][lane], value, bytes);
    w->what = what;
    w->arrived |= bit;
    if (w->arrived == w->exist) {
        w->arrived = 0;
        w->phase ^= 1;
        uint32_t first = s.now->index - lane;
        for (uint32_t i = 0; i < SIMT_LANES; i++)
            if (w->exist >> i & 1)
                put(first + i);
    }
    wait_at(what);
    return w->values[phase];
}

void simt_grid_wait(void) {
    int any, all;
    if (s.meets_to_wait) {
        if (s.now->has_waited)
            simt_fault("sl_grid_wait() a second time");
        meet_block("sl_grid_wait", 0, &any, &all, "", 0);
    }
    s.now->has_waited = true;
}

static void copy_now(const struct copy *c) {
    memcpy(c->to, c->from, c->bytes);
    memset((char *)c->to + c->bytes, 0, c->room - c->bytes);
}

static bool is_shared(const void *p) {
    return (const char *)p >= s.tls && (const char *)p < s.tls + s.tls_bytes;
}

void simt_copy(void *to, const void *from, uint32_t bytes, uint32_t room) {
    struct copy c = {to, from, bytes, room, s.now->batch};
    if ((uintptr_t)to % room || (bytes && (uintptr_t)from % room))
        simt_fault("a copy of %u bytes from %p to %p, which are not aligned", room, from, to);
    if (!is_shared(to) || is_shared(from))
        simt_fault("a copy from %p to %p, which is not to shared memory", from, to);
    struct lane *l = s.now;
    if (next_random() >> 63) {
        copy_now(&c);
        return;
    }
    if (l->n_copies == l->room_copies) {
        l->room_copies = l->room_copies ? 2 * l->room_copies : 16;
        l->copies = realloc(l->copies, l->room_copies * sizeof *l->copies);
        if (!l->copies)
            abort();
    }
    l->copies[l->n_copies++] = c;
}

void simt_copy_commit(void) {
    s.now->batch++;
}

void simt_copy_wait(uint32_t but) {
    struct lane *l = s.now;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < l->n_copies; i++)
        if (l->copies[i].batch + but < l->batch)
            copy_now(&l->copies[i]);
        else
            l->copies[kept++] = l->copies[i];
    l->n_copies = kept;
}

uint32_t simt_shared_address(const void *p) {
    if (!is_shared(p))
        simt_fault("%p is not in shared memory", p);
    return (uint32_t)((const char *)p - s.tls);
}

void *simt_shared_at(uint32_t address) {
    if (address >= s.tls_bytes)
        simt_fault("%08x is not in shared memory", address);
    return s.tls + address;
}

/* This object's part of the calling thread's static memory, where all __shared__ is. */
static int find_tls(struct dl_phdr_info *info, size_t bytes, void *unused) {
    (void)unused;
    (void)bytes;
    const char *tls = info->dlpi_tls_data, *own = (const char *)shared;
    for (int i = 0; tls && i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_TLS && own >= tls &&
            own < tls + info->dlpi_phdr[i].p_memsz) {
            s.tls = info->dlpi_tls_data;
            s.tls_bytes = info->dlpi_phdr[i].p_memsz;
            return 1;
        }
    return 0;
}

/* Shared memory but for what is dynamic is a megabyte, all kernels' together, and a kernel's own
 * some KiB of it: to fill all of it for every block takes longer than most blocks. Between launches
 * all is poison. */
static size_t part_bytes(uint32_t part) {
    size_t left = s.tls_bytes - (size_t)part * PART;
    return left < PART ? left : PART;
}
static bool is_poison(uint32_t part) {
    const char *p = s.tls + (size_t)part * PART;
    return *(const unsigned char *)p == POISON && memcmp(p, p + 1, part_bytes(part) - 1) == 0;
}
static void poison_part(uint32_t part) {
    memset(s.tls + (size_t)part * PART, POISON, part_bytes(part));
}
_Static_assert(sizeof shared % PART == 0, "and it begins where a part does");
static bool is_dynamic(uint32_t part) {
    return (size_t)part * PART - (size_t)((char *)shared - s.tls) < sizeof shared;
}

/* What this kernel has written to for the first time. */
static void find_used(void) {
    struct parts *uses = &s.uses[s.kernel - simt_kernels];
    for (uint32_t part = 0; (size_t)part * PART < s.tls_bytes; part++) {
        if (is_dynamic(part) || is_poison(part))
            continue;
        uses->part = realloc(uses->part, (uses->n + 1) * sizeof *uses->part);
        if (!uses->part)
            abort();
        uses->part[uses->n++] = part;
        poison_part(part);
    }
}

static void poison_used(void) {
    const struct parts *uses = &s.uses[s.kernel - simt_kernels];
    for (uint32_t i = 0; i < uses->n; i++)
        poison_part(uses->part[i]);
}

static void run_block(size_t shared_bytes) {
    memset(shared, POISON, shared_bytes + BEYOND);
    s.n_bag = s.n_spinners = s.n_held = 0;
    s.n_live = s.n_threads;
    memset(s.wave, 0, (s.n_threads + SIMT_LANES - 1) / SIMT_LANES * sizeof s.wave[0]);
    memset(s.warp, 0, (s.n_threads + SIMT_LANES - 1) / SIMT_LANES * sizeof s.warp[0]);
    for (uint32_t i = 0; i < N_BARRIERS; i++) {
        s.barrier[i].n = s.barrier[i].phase = 0;
        s.barrier[i].any = 0;
        s.barrier[i].all = 1;
    }
    struct simt_dim dim = simt_place.block_dim;
    for (uint32_t i = 0; i < s.n_threads; i++) {
        struct lane *l = &s.lane[i];
        l->index = i;
        l->thread = (struct simt_dim){i % dim.x, i / dim.x % dim.y, i / dim.x / dim.y};
        l->ended = l->has_waited = l->spins = false;
        l->n_copies = l->batch = 0;
        s.warp[i / SIMT_LANES].exist |= 1u << i % SIMT_LANES;
        start(l);
        put(i);
    }
    SWITCH_FROM_MAIN(take());
    for (size_t i = 0; i < BEYOND; i++)
        if (shared[shared_bytes + i] != POISON)
            simt_fault("it wrote to byte %zu of shared memory, and has %zu", shared_bytes + i,
                       shared_bytes);
    s.now = NULL;
    poison_used();
}

void simt_launch(const struct simt_kernel *kernel, struct simt_dim grid, struct simt_dim block,
                 size_t shared_bytes, const void *args) {
    static bool begun;
    if (!begun) {
        const char *seed = getenv("SIMT_SEED");
        s.random = 0x9e3779b97f4a7c15u * (seed ? strtoul(seed, NULL, 10) + 1 : 1);
        s.ran = calloc(simt_n_kernels, sizeof *s.ran);
        s.uses = calloc(simt_n_kernels, sizeof *s.uses);
        begun = true;
    }
    /* Each time: the stack is a thread's, and a test program may have handlers of its own. */
    static char signal_stack[64 << 10];
    stack_t other = {.ss_sp = signal_stack, .ss_size = sizeof signal_stack};
    sigaltstack(&other, NULL);
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    sigaction(SIGILL, &action, NULL);
    s.meets_to_wait = getenv("SIMT_MEET") != NULL;
    s.wave_lanes = simt_wave_lanes();
    if (getenv("SIMT_TRACE"))
        fprintf(stderr, "simt: %s %u,%u,%u %u,%u,%u %zu\n", kernel->name, grid.x, grid.y, grid.z,
                block.x, block.y, block.z, shared_bytes);
    s.kernel = kernel;
    s.args = args;
    s.ran[kernel - simt_kernels] = true;
    s.n_threads = block.x * block.y * block.z;
    *(volatile unsigned char *)shared = POISON; /* so that this thread has it */
    s.tls = NULL;
    dl_iterate_phdr(find_tls, NULL);
    if (!s.tls || !s.n_threads || s.n_threads > SIMT_MAX_THREADS ||
        shared_bytes > SIMT_DYNAMIC_SHARED) {
        fprintf(stderr, "simt: %s cannot be launched with %u threads and %zu bytes\n", kernel->name,
                s.n_threads, shared_bytes);
        abort();
    }
    if (shared[sizeof shared - 1] != POISON) /* this thread's first launch */
        memset(s.tls, POISON, s.tls_bytes);
    simt_place.grid_dim = grid;
    simt_place.block_dim = block;
    /* All blocks, from one of them in steps that meet each once. */
    uint64_t n = (uint64_t)grid.x * grid.y * grid.z, at = next_random() % n, step;
    do {
        step = next_random() % n + 1;
        uint64_t a = step, b = n;
        while (b) {
            uint64_t rest = a % b;
            a = b;
            b = rest;
        }
        if (a != 1)
            step = 0;
    } while (!step);
    for (uint64_t i = 0; i < n; i++) {
        if (i == 1)
            find_used();
        at = (at + step) % n;
        simt_place.block =
            (struct simt_dim){(unsigned)(at % grid.x), (unsigned)(at / grid.x % grid.y),
                              (unsigned)(at / grid.x / grid.y)};
        run_block(shared_bytes);
    }
    find_used();
}

/* SIMT_RAN=FILE: the names of the kernels that ran are added to it. */
__attribute__((destructor)) static void tell(void) {
    const char *path = getenv("SIMT_RAN");
    FILE *f = path && s.ran ? fopen(path, "a") : NULL;
    if (!f)
        return;
    for (size_t i = 0; i < simt_n_kernels; i++)
        if (s.ran[i])
            fprintf(f, "%s\n", simt_kernels[i].name);
    fclose(f);
}
