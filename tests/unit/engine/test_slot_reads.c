/* Reads of experts into slots, over a made-up disk and a real cache: no fetch, no device. */
#include "engine/reads/slot_reads.h"

#include "common/rng.h"
#include "streaming/fake.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LAYERS  2u
#define EXPERTS 8u
#define SLOTS   6u
#define US      1000u

static struct sl_err err;
#define ok(call)                                                                                   \
    do {                                                                                           \
        enum sl_status ok_st = (call);                                                             \
        if (ok_st != SL_OK)                                                                        \
            fail_msg("%s: %d: %s", #call, (int)ok_st, err.text);                                   \
    } while (0)

static const uint32_t sizes[SL_EXPERT_EXTENTS] = {5000, 3001, 4096};

struct bench {
    struct sl_expert_layout layout;
    struct sl_routed_layer layers[LAYERS];
    uint8_t layer_class[LAYERS];
    struct sl_slab slab;
    struct sl_slots slots;
    struct sl_fake_clock clock;
    struct sl_fake_fault fault;
    struct sl_reader *reader;
    struct sl_heat *heat;
    struct sl_cache *cache;
    uint8_t *data;
    struct sl_slot_reads r;
};

static uint64_t now(void *clock) {
    return ((struct sl_fake_clock *)clock)->now_ns;
}

/* depth: requests in flight at once; an expert is read by three. */
static struct bench *open_bench(uint32_t depth, bool short_file) {
    struct bench *b = calloc(1, sizeof *b);
    assert_non_null(b);
    b->layout = (struct sl_expert_layout){.n_layer = LAYERS,
                                          .n_expert = EXPERTS,
                                          .k = 2,
                                          .n_class = 1,
                                          .layers = b->layers,
                                          .layer_class = b->layer_class};
    ok(sl_slot_layout_init(&b->layout.classes[0].slot, sizes, SL_EXPERT_EXTENTS, 1, &err));
    uint64_t at = 0;
    for (uint32_t i = 0; i < LAYERS; i++) {
        b->layers[i].n_expert = EXPERTS;
        b->layers[i].k = 2;
        for (uint32_t x = 0; x < SL_EXPERT_EXTENTS; x++) {
            b->layers[i].extent[x].offset_bytes = at;
            b->layers[i].extent[x].size_bytes = sizes[x];
            b->layers[i].extent[x].stride_bytes = sizes[x];
            b->layers[i].expert_bytes += sizes[x];
            at += (uint64_t)EXPERTS * sizes[x];
        }
    }
    b->data = malloc(at + 8);
    assert_non_null(b->data);
    struct sl_rng rng = {.state = 4};
    for (uint64_t i = 0; i < at; i++)
        b->data[i] = (uint8_t)sl_rng_below(&rng, 256);
    const uint32_t slot_bytes = b->layout.classes[0].slot.slot_bytes, n_slots = SLOTS;
    ok(sl_slab_init(&b->slab, sl_slots_size_bytes(&slot_bytes, &n_slots, 1), false, &err));
    ok(sl_slots_init(&b->slots, &b->slab, 0, &slot_bytes, &n_slots, 1, &err));
    b->clock.now_ns = 1;
    ok(sl_fake_open(&(struct sl_fake_config){.clock = &b->clock,
                                             .reader = {.slab = &b->slab, .depth = depth},
                                             .drive[0] = {.latency_ns = 100 * US}},
                    &b->reader, &err));
    uint32_t file;
    ok(sl_fake_add_file(b->reader, SL_READER_FILES, b->data, short_file ? at - 10 : at, &file,
                        &err));
    ok(sl_heat_create(&(struct sl_heat_config){.n_layer = LAYERS, .n_expert = EXPERTS, .k = 2},
                      &b->heat, &err));
    ok(sl_cache_create(&(struct sl_cache_config){.heat = b->heat,
                                                 .layer_class = b->layer_class,
                                                 .n_class = 1,
                                                 .class_slots = &n_slots,
                                                 .source = SL_TIER_DISK},
                       &b->cache, &err));
    ok(sl_slot_reads_init(&b->r, &(struct sl_slot_reads_config){.layout = &b->layout,
                                                                .slots = &b->slots,
                                                                .reader = b->reader,
                                                                .cache = b->cache,
                                                                .now_ns = now,
                                                                .clock = &b->clock}));
    assert_int_equal(b->r.n_slots, SLOTS);
    return b;
}

static void close_bench(struct bench *b) {
    sl_slot_reads_end(&b->r);
    sl_slot_reads_release(&b->r);
    sl_reader_close(&b->reader);
    struct sl_cache_usage u;
    sl_cache_usage(b->cache, &u);
    assert_int_equal(u.loading, 0);
    sl_cache_destroy(&b->cache);
    sl_heat_destroy(&b->heat);
    sl_slab_release(&b->slab);
    free(b->data);
    free(b);
}

static struct sl_expert_id expert(uint32_t layer, uint32_t e) {
    return (struct sl_expert_id){(uint16_t)layer, (uint16_t)e};
}

static struct sl_fill fill_of(struct bench *b, struct sl_expert_id id) {
    struct sl_fill fill;
    assert_int_equal(sl_cache_prefetch(b->cache, SL_PREFETCH_WARMUP, &id, 1, now(&b->clock), &fill),
                     1);
    return fill;
}

static struct sl_fill start(struct bench *b, struct sl_expert_id id, bool background) {
    struct sl_fill fill = fill_of(b, id);
    sl_slot_reads_start(&b->r, &fill, 1, SL_READ_DEMAND, background);
    return fill;
}

static void wait_all(struct bench *b) {
    while (b->r.n)
        sl_reader_wait(b->reader, b->r.n, -1);
}

static void assert_bytes(const struct bench *b, const struct sl_fill *fill) {
    const uint8_t *slot = sl_slots_at(&b->slots, fill->lease.slot);
    assert_true(sl_cache_is_ready(b->cache, fill->id));
    for (uint32_t x = 0; x < SL_EXPERT_EXTENTS; x++)
        assert_memory_equal(
            slot + sl_expert_layout_place(&b->layout, fill->id.layer, fill->id.expert, x),
            b->data + b->layers[fill->id.layer].extent[x].offset_bytes + fill->id.expert * sizes[x],
            sizes[x]);
}

static void into_slots(void **state) {
    (void)state;
    struct bench *b = open_bench(8, false);
    struct sl_fill a = start(b, expert(0, 3), false), c = start(b, expert(1, 7), true);
    assert_int_equal(b->r.n, 2);
    assert_int_equal(b->r.n_background, 1);
    assert_int_equal(sl_slot_reads_left(&b->r, a.lease.slot), 3);
    assert_false(sl_cache_is_ready(b->cache, a.id));
    wait_all(b);
    assert_int_equal(b->r.n_background, 0);
    assert_bytes(b, &a);
    assert_bytes(b, &c);
    close_bench(b);
}

/* Of what an acquire lacks only what nobody reads is read. */
static void only_what_is_to_be_started(void **state) {
    (void)state;
    struct bench *b = open_bench(1, false);
    start(b, expert(0, 0), true);
    struct sl_fill late = start(b, expert(0, 1), true);
    const struct sl_expert_id ids[] = {expert(0, 1), expert(0, 2)};
    struct sl_lease leases[2];
    struct sl_fill fills[2];
    uint32_t n_fill, n_taken;
    ok(sl_cache_acquire_some(b->cache, ids, 2, 2, now(&b->clock), leases, fills, &n_fill,
                             &n_taken));
    assert_int_equal(n_fill, 2);
    assert_int_equal(fills[0].action, SL_FILL_RAISE);
    sl_slot_reads_start(&b->r, fills, n_fill, SL_READ_DEMAND, false);
    assert_int_equal(b->r.n, 3);
    assert_int_equal(b->r.n_background, 2);
    sl_slot_reads_raise(&b->r, fills[0].lease.slot);
    sl_slot_reads_submit(&b->r);
    wait_all(b);
    assert_bytes(b, &late);
    assert_bytes(b, &fills[1]);
    sl_cache_release(b->cache, leases, 2);
    close_bench(b);
}

/* A raised read goes before those that were started ahead. */
static void raised(void **state) {
    (void)state;
    struct bench *b = open_bench(1, false);
    struct sl_fill fills[3];
    for (uint32_t i = 0; i < 3; i++) {
        fills[i] = fill_of(b, expert(0, i));
        sl_slot_reads_start(&b->r, &fills[i], 1, SL_READ_PREFETCH, true);
    }
    sl_slot_reads_raise(&b->r, fills[2].lease.slot);
    sl_slot_reads_submit(&b->r);
    while (!sl_cache_is_ready(b->cache, fills[2].id))
        sl_reader_wait(b->reader, 1, -1);
    assert_false(sl_cache_is_ready(b->cache, fills[1].id));
    close_bench(b);
}

/* The cache forgets the expert, and what failed, and where, is kept; a cancel is no failure. */
static void failures(void **state) {
    (void)state;
    struct bench *b = open_bench(8, false);
    b->fault = (struct sl_fake_fault){.first_byte = b->layers[0].extent[0].offset_bytes + 5 * 5000,
                                      .last_byte = b->layers[0].extent[0].offset_bytes + 5 * 5000,
                                      .error = EIO};
    sl_fake_set_faults(b->reader, &b->fault, 1);
    struct sl_fill good = start(b, expert(1, 1), false), bad = start(b, expert(0, 5), true);
    wait_all(b);
    assert_bytes(b, &good);
    assert_false(sl_cache_has(b->cache, bad.id));
    assert_int_equal(b->r.failed_slot, bad.lease.slot);
    assert_int_equal(b->r.n_background, 0);
    assert_int_not_equal(strlen(b->r.failed_err.text), 0);
    uint32_t slot = b->r.failed_slot;
    struct sl_fill others[2];
    for (uint32_t i = 0; i < 2; i++) { /* one of them, at least, into another slot */
        others[i] = start(b, expert(1, 2 + i), false);
        sl_slot_reads_cancel(&b->r, others[i].lease.slot);
    }
    wait_all(b);
    assert_false(sl_cache_has(b->cache, others[0].id) || sl_cache_has(b->cache, others[1].id));
    assert_int_equal(b->r.failed_slot, slot);
    close_bench(b);
}

/* Reads that the reader refuses, since they lie behind the file's end, end their fills at once. */
static void refused(void **state) {
    (void)state;
    struct bench *b = open_bench(8, true);
    struct sl_fill fills[2] = {fill_of(b, expert(0, 0)), fill_of(b, expert(1, 7))};
    sl_slot_reads_start(&b->r, fills, 2, SL_READ_DEMAND, true);
    assert_int_equal(b->r.n, 0);
    assert_int_equal(b->r.n_background, 0);
    for (uint32_t i = 0; i < 2; i++)
        assert_false(sl_cache_has(b->cache, fills[i].id));
    close_bench(b);
}

static void given_up(void **state) {
    (void)state;
    struct bench *b = open_bench(3, false);
    struct sl_fill flying = start(b, expert(0, 0), true), waits = start(b, expert(0, 1), true);
    assert_false(sl_slot_reads_give_up(&b->r, flying.id, flying.lease)); /* all of it is coming */
    struct sl_lease stale = waits.lease;
    stale.generation--;
    assert_false(sl_slot_reads_give_up(&b->r, waits.id, stale));
    assert_true(sl_slot_reads_give_up(&b->r, waits.id, waits.lease));
    wait_all(b);
    assert_bytes(b, &flying);
    assert_false(sl_cache_has(b->cache, waits.id));
    assert_false(sl_slot_reads_give_up(&b->r, flying.id, flying.lease)); /* it has come */
    assert_false(sl_slot_reads_give_up(&b->r, waits.id, waits.lease));   /* it is gone */
    close_bench(b);
}

/* What is held is with the drive from the submit on, not from its start. */
static void held(void **state) {
    (void)state;
    for (uint32_t hold = 0; hold <= 1; hold++) {
        struct bench *b = open_bench(8, false);
        b->r.hold = hold;
        struct sl_fill fill = start(b, expert(0, 0), false);
        b->clock.now_ns += 1000 * US;
        sl_slot_reads_submit(&b->r);
        uint64_t before = b->clock.now_ns;
        wait_all(b);
        assert_int_equal(b->clock.now_ns - before, hold ? 100 * US : 0);
        assert_bytes(b, &fill);
        close_bench(b);
    }
}

static void ended(void **state) {
    (void)state;
    struct bench *b = open_bench(2, false);
    struct sl_fill fills[4];
    for (uint32_t i = 0; i < 4; i++)
        fills[i] = start(b, expert(0, i), i & 1);
    sl_slot_reads_end(&b->r);
    assert_int_equal(b->r.n, 0);
    assert_int_equal(b->r.n_background, 0);
    assert_false(sl_cache_has(b->cache, fills[3].id));
    assert_true(b->clock.now_ns < 400 * US); /* not all of it was read first */
    sl_slot_reads_end(&b->r);
    close_bench(b);
}

static uint32_t n_own;
static struct bench *own_bench;

static void own_done(struct sl_read *read, enum sl_status status) {
    uint32_t slot = (uint32_t)(read - own_bench->r.reads);
    assert_int_equal(status, SL_OK);
    n_own++;
    sl_cache_filled(own_bench->cache, own_bench->r.fills[slot], status, 0);
}

/* A read that its user starts and ends himself: the same bytes, not counted here. */
static void prepared(void **state) {
    (void)state;
    struct bench *b = own_bench = open_bench(8, false);
    struct sl_fill fill = fill_of(b, expert(1, 4));
    struct sl_read *read = sl_slot_reads_prepare(&b->r, fill.id, fill.lease, SL_READ_DEMAND);
    read->done = own_done;
    ok(sl_reader_submit(b->reader, read, &err));
    assert_int_equal(b->r.n, 0);
    sl_reader_wait(b->reader, 1, -1);
    assert_int_equal(n_own, 1);
    assert_bytes(b, &fill);
    close_bench(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(into_slots), cmocka_unit_test(only_what_is_to_be_started),
        cmocka_unit_test(raised),     cmocka_unit_test(failures),
        cmocka_unit_test(refused),    cmocka_unit_test(given_up),
        cmocka_unit_test(held),       cmocka_unit_test(ended),
        cmocka_unit_test(prepared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
