/* What can be seen of streamed experts adds up, and keeps to what the design promises: hardly a
 * byte read in vain, few system calls, nothing allocated and no payload copied while tokens come.
 */
#include "tests/unit/engine/fixture.h"

#include "backends/cpu/cpu.h"
#include "common/metrics.h"
#include "engine/observe/activity.h"
#include "engine/engine.h"
#include "engine/schedule/schedule.h"
#include "engine/plan/memory_plan.h"

#include <stdatomic.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif

/* ---- allocations and large copies, while armed ---- */

static atomic_bool armed;
static atomic_uint n_allocs, n_copies;

#if !defined(SANITIZED) && defined(__x86_64__)
#define WATCHED     1
#define LARGE_BYTES 16384u

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);

static void note(atomic_uint *counter) {
    if (atomic_load_explicit(&armed, memory_order_relaxed))
        atomic_fetch_add(counter, 1);
}
void *malloc(size_t n) {
    note(&n_allocs);
    return __libc_malloc(n);
}
void *calloc(size_t n, size_t size) {
    note(&n_allocs);
    return __libc_calloc(n, size);
}
void *realloc(void *p, size_t n) {
    note(&n_allocs);
    return __libc_realloc(p, n);
}
void *aligned_alloc(size_t align, size_t n) {
    note(&n_allocs);
    return __libc_memalign(align, n);
}
int posix_memalign(void **out, size_t align, size_t n) {
    note(&n_allocs);
    *out = __libc_memalign(align, n);
    return *out ? 0 : 12;
}
/* In place of the library's: a copy of a matrix of an expert would pass here. */
void *memcpy(void *restrict to, const void *restrict from, size_t n) {
    void *d = to;
    if (n >= LARGE_BYTES)
        note(&n_copies);
    __asm__ volatile("rep movsb" : "+D"(d), "+S"(from), "+c"(n) : : "memory");
    return to;
}
#endif

/* ---- models and engines ---- */

/* Experts of 3 x 0.84 MiB: a block of 4 KiB too much at either end is half a per cent. */
static struct sl_synth_config wide_config(void) {
    struct sl_synth_config c = tiny_config("qwen3moe");
    c.n_layer = 3;
    c.n_embd = 1024;
    c.n_ff_expert = 1536;
    c.n_expert = 12;
    c.n_expert_used = 6;
    c.skew = c.locality = c.stay = 0; /* nothing to learn: the disk is what counts */
    c.gate = c.up = c.down = (struct sl_synth_types){{SL_DTYPE_Q4_K}, 1};
    return c;
}

/* A budget with room for this share of the experts. */
static struct sl_engine_config streamed(const struct test_model *m, double share) {
    struct sl_engine_config c = {.n_threads = 2,
                                 .ctx_tokens = 512,
                                 .parallel = 2,
                                 .batch_tokens = 64,
                                 .experts = SL_EXPERTS_STREAMED,
                                 .no_warm_up = true,
                                 .ram_bytes = UINT64_MAX / 2};
    struct sl_device *d;
    assert_ok(
        sl_cpu_open(&(struct sl_cpu_config){.n_threads = 2, .isa = SL_CPU_BEST}, &d, &test_err));
    struct sl_memory_plan p;
    assert_ok(sl_memory_plan_make(m->model, &c, d, &p, &test_err));
    sl_device_close(&d);
    c.ram_bytes = p.total_bytes - (uint64_t)((1 - share) * (double)p.slot_bytes);
    if (c.ram_bytes < p.least_bytes)
        c.ram_bytes = p.least_bytes;
    /* The next plan has the slots that were meant, or the least has a few more. */
    assert_ok(sl_memory_plan_make(m->model, &c, NULL, &p, &test_err));
    assert_true(share == 1 || p.n_slots <= p.n_experts * (share + 0.4));
    return c;
}

/* ---- metrics add up ---- */

struct counts {
    int64_t reads, read_bytes, hits, host, late, misses, demand, late_ns, slot_ns;
    int64_t disk, needed, prefill, decode, idle, evictions, busy, flight;
};

static struct counts count_now(void) {
    return (struct counts){
        .reads = sl_metric(expert_reads_total),
        .read_bytes = sl_metric(expert_read_bytes_total),
        .hits = sl_metric(expert_hits_total),
        .host = sl_metric(expert_host_hits_total),
        .late = sl_metric(expert_late_total),
        .misses = sl_metric(expert_misses_total),
        .demand = sl_metric(expert_stall_demand_ns_total),
        .late_ns = sl_metric(expert_stall_late_ns_total),
        .slot_ns = sl_metric(expert_stall_slot_ns_total),
        .disk = sl_metric(disk_read_bytes_total),
        .needed = sl_metric(disk_needed_bytes_total),
        .prefill = sl_metric(disk_prefill_bytes_total),
        .decode = sl_metric(disk_decode_bytes_total),
        .idle = sl_metric(disk_idle_bytes_total),
        .evictions = sl_metric(expert_evictions_total),
        .busy = sl_metric(disk_busy_ns_total),
        .flight = sl_metric(disk_flight_ns_total),
    };
}

/* Two requests at once, prompts longer than a step. Their results, and what the process counted. */
static struct counts run_two(const struct test_model *m, const struct sl_engine_config *c,
                             struct sl_expert_use *out_use) {
    struct counts was = count_now();
    struct sl_engine *e = new_engine(m, c);
    struct run *r[2];
    *out_use = (struct sl_expert_use){0};
    for (uint32_t i = 0; i < 2; i++) {
        r[i] = new_run(i + 1, 90 + 50 * i, 512, 20);
        submit(e, r[i]);
    }
    for (uint32_t i = 0; i < 2; i++) {
        wait_run(r[i]);
        assert_int_equal(r[i]->result.status, SL_OK);
        const struct sl_expert_use *u = &r[i]->result.experts;
        assert_true(u->hits + u->late + u->misses > 0);
        out_use->hits += u->hits;
        out_use->late += u->late;
        out_use->misses += u->misses;
        out_use->read_bytes += u->read_bytes;
        out_use->stall_ns += u->stall_ns;
        free_run(r[i]);
    }
    sl_engine_destroy(&e);
    struct counts now = count_now();
    return (struct counts){.reads = now.reads - was.reads,
                           .read_bytes = now.read_bytes - was.read_bytes,
                           .hits = now.hits - was.hits,
                           .host = now.host - was.host,
                           .late = now.late - was.late,
                           .misses = now.misses - was.misses,
                           .demand = now.demand - was.demand,
                           .late_ns = now.late_ns - was.late_ns,
                           .slot_ns = now.slot_ns - was.slot_ns,
                           .disk = now.disk - was.disk,
                           .needed = now.needed - was.needed,
                           .prefill = now.prefill - was.prefill,
                           .decode = now.decode - was.decode,
                           .idle = now.idle - was.idle,
                           .evictions = now.evictions - was.evictions,
                           .busy = now.busy - was.busy,
                           .flight = now.flight - was.flight};
}

/* A row uses as many experts as each layer's spec says. One row a step, so all of a step's differ.
 */
static void experts_by_layer(void **state) {
    (void)state;
    struct sl_synth_config sc = tiny_config("qwen3moe");
    sc.n_layer = 5;
    sc.n_expert_used = 4;
    sc.n_expert_used_odd = 1;
    struct test_model m;
    open_model(&m, &sc);
    struct sl_engine_config c = {.n_threads = 1, .ctx_tokens = 64, .parallel = 1};
    struct sl_engine *e = new_engine(&m, &c);
    int64_t before = sl_metric(expert_reads_total);
    struct run *r = new_run(1, 1, 64, 9);
    submit(e, r);
    wait_run(r);
    assert_int_equal(r->result.status, SL_OK);
    assert_int_equal(r->n, 9);
    free_run(r);
    sl_engine_destroy(&e);
    assert_int_equal(sl_metric(expert_reads_total) - before, 9 * (4 + 1 + 4 + 1 + 4));
    close_model(&m);
}

static void streamed_counts_add_up(void **state) {
    (void)state;
    struct sl_synth_config sc = tiny_config("qwen2moe");
    sc.n_embd = 256;
    sc.n_ff_expert = 256;
    sc.n_expert = 16;
    struct test_model m;
    open_model(&m, &sc);
    static const double shares[] = {0.13, 0.4, 1};
    for (uint32_t i = 0; i < 3; i++) {
        struct sl_engine_config c = streamed(&m, shares[i]);
        struct sl_expert_use use;
        struct counts n = run_two(&m, &c, &use);
        assert_true(n.reads > 0);
        assert_int_equal(n.hits + n.late + n.misses, n.reads);
        assert_int_equal(n.host, 0);
        /* The two requests had all the steps between them. */
        assert_int_equal(use.hits, n.hits);
        assert_int_equal(use.late, n.late);
        assert_int_equal(use.misses, n.misses);
        assert_int_equal(use.read_bytes, n.prefill + n.decode);
        assert_int_equal(use.stall_ns, n.demand + n.late_ns + n.slot_ns);
        /* Every byte has its phase, but for reads that the engine's end cut off. */
        assert_true(n.prefill + n.decode + n.idle <= n.disk);
        assert_true(n.prefill > 0 && n.disk >= n.needed && n.needed > 0);
        int64_t expert = n.read_bytes / n.reads; /* one size in this model */
        assert_true(n.needed >= (n.misses + n.late) * expert);
        assert_true(n.misses > 0 && n.busy > 0 && n.flight >= n.busy / 2);
        if (shares[i] == 1) { /* each expert is read once at most, and none has to go */
            assert_true(n.needed <= 3 * 16 * expert);
            assert_int_equal(n.evictions, 0);
        } else {
            assert_true(n.evictions > 0);
        }
    }
    close_model(&m);
}

static void resident_counts_add_up(void **state) {
    (void)state;
    struct sl_synth_config sc = tiny_config("qwen3moe");
    struct test_model m;
    open_model(&m, &sc);
    struct sl_engine_config c = {
        .n_threads = 2, .ctx_tokens = 512, .parallel = 2, .batch_tokens = 64};
    struct sl_expert_use use;
    struct counts n = run_two(&m, &c, &use);
    assert_true(n.reads > 0);
    assert_int_equal(n.hits, n.reads);
    assert_int_equal(n.late + n.misses + n.disk, 0);
    assert_int_equal(use.hits, n.reads);
    assert_int_equal(use.read_bytes + use.stall_ns, 0);
    close_model(&m);
}

static void shares_add_up(void **state) {
    (void)state;
    struct sl_rng rng = {7};
    for (uint32_t round = 0; round < 1000; round++) {
        uint32_t n_rows = 1 + sl_rng_below(&rng, 512), at = 0;
        struct sl_expert_use use = {sl_rng_below(&rng, 100), sl_rng_below(&rng, 10),
                                    sl_rng_below(&rng, 5000), sl_rng_u64(&rng) >> 24,
                                    sl_rng_u64(&rng) >> 28};
        struct sl_expert_use sum = {0};
        while (at < n_rows) {
            uint32_t rows = 1 + sl_rng_below(&rng, n_rows - at);
            sl_expert_use_share(&use, at, rows, n_rows, &sum);
            at += rows;
        }
        assert_memory_equal(&sum, &use, sizeof use);
    }
}

/* ---- promises ---- */

#define ARM_FROM 4u
#ifdef SANITIZED /* slow, and nothing is counted there but reads */
#define N_TOKENS   10u
#define FIRST_TURN 2
#else
#define N_TOKENS   40u
#define FIRST_TURN 0
#endif

static struct { int64_t read, needed, reads, syscalls; } from, to;

static void look(struct run *r) {
    if (r->n == ARM_FROM) {
        from.read = sl_metric(disk_read_bytes_total);
        from.needed = sl_metric(disk_needed_bytes_total);
        from.reads = sl_metric(disk_reads_total);
        from.syscalls = sl_metric(disk_syscalls_total);
        atomic_store(&armed, true);
    } else if (r->n == N_TOKENS) {
        atomic_store(&armed, false);
        to.read = sl_metric(disk_read_bytes_total);
        to.needed = sl_metric(disk_needed_bytes_total);
        to.reads = sl_metric(disk_reads_total);
        to.syscalls = sl_metric(disk_syscalls_total);
    }
}

static void decode(const struct test_model *m, const struct sl_engine_config *c) {
    struct sl_engine *e = new_engine(m, c);
    struct run *r = new_run(3, 12, 512, N_TOKENS);
    r->on_token = look;
    n_allocs = n_copies = 0;
    submit(e, r);
    wait_run(r);
    assert_int_equal(r->result.status, SL_OK);
    free_run(r);
    sl_engine_destroy(&e);
}

static void promises(void **state) {
    (void)state;
    struct sl_synth_config sc = wide_config();
    struct test_model m;
    open_model(&m, &sc);
    for (int turn = FIRST_TURN; turn < 3; turn++) {
        struct sl_engine_config c = streamed(&m, 0.5);
        bool no_lookahead = c.no_lookahead = turn == 1;
        c.trace_file = turn == 2 ? "/dev/null" : NULL;
        decode(&m, &c);
        double reads = (double)(to.reads - from.reads);
        assert_true(reads > N_TOKENS);
        double amplification = (double)(to.read - from.read) / (double)(to.needed - from.needed);
        print_message(
            "look-ahead %s%s: %.0f experts read, amplification %.4f, %.3f system calls an "
            "expert, %u allocations, %u large copies\n",
            no_lookahead ? "off" : "on", c.trace_file ? ", traced" : "", reads, amplification,
            (double)(to.syscalls - from.syscalls) / reads, n_allocs, n_copies);
        assert_true(amplification >= 1 && amplification <= 1.02);
        assert_int_equal(n_allocs, 0);
        assert_int_equal(n_copies, 0);
    }
    close_model(&m);
#ifndef WATCHED
    print_message("allocations and copies are not counted in this build\n");
#endif
}

/* The counters above can count. */
static void watching_works(void **state) {
    (void)state;
#ifndef WATCHED
    skip();
#else
    static uint8_t a[1 << 16], b[1 << 16];
    void *(*volatile take)(size_t) = malloc;
    void *(*volatile copy)(void *, const void *, size_t) = memcpy;
    n_allocs = n_copies = 0;
    atomic_store(&armed, true);
    free(take(10));
    copy(a, b, sizeof a);
    copy(a, b, 100);
    atomic_store(&armed, false);
    assert_int_equal(n_allocs, 1);
    assert_int_equal(n_copies, 1);
#endif
}

int main(void) {
    sl_log_set_level(SL_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_add_up),          cmocka_unit_test(experts_by_layer),
        cmocka_unit_test(streamed_counts_add_up), cmocka_unit_test(resident_counts_add_up),
        cmocka_unit_test(watching_works),         cmocka_unit_test(promises),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
