/* The cache's states one by one: pins, shared and failed fills, waves, prefetch, size classes. */
#include "expert_cache/expert_cache.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

struct rig {
    struct sl_heat *heat;
    struct sl_cache *cache;
    struct sl_lease leases[64];
    struct sl_fill fills[64];
    uint32_t n_fill, n_taken;
};

static void open_rig(struct rig *r, uint32_t n_layer, uint32_t n_expert, uint32_t k,
                     uint32_t n_slots) {
    struct sl_err err = {""};
    struct sl_heat_config hc = {.n_layer = n_layer, .n_expert = n_expert, .k = k};
    memset(r, 0, sizeof *r);
    assert_int_equal(sl_heat_create(&hc, &r->heat, &err), SL_OK);
    struct sl_cache_config cc = {.heat = r->heat, .n_class = 1, .class_slots = &n_slots};
    assert_int_equal(sl_cache_create(&cc, &r->cache, &err), SL_OK);
}

static void close_rig(struct rig *r) {
    sl_cache_check(r->cache);
    sl_cache_destroy(&r->cache);
    sl_heat_destroy(&r->heat);
    assert_null(r->cache);
    assert_null(r->heat);
}

static struct sl_expert_id id(uint16_t layer, uint16_t expert) {
    return (struct sl_expert_id){layer, expert};
}

static enum sl_status acquire(struct rig *r, uint16_t layer, const uint16_t *experts, uint32_t n) {
    struct sl_expert_id ids[64];
    for (uint32_t i = 0; i < n; i++)
        ids[i] = id(layer, experts[i]);
    return sl_cache_acquire(r->cache, ids, n, 0, r->leases, r->fills, &r->n_fill);
}

static struct sl_lease acquire_one(struct rig *r, uint16_t layer, uint16_t expert) {
    assert_int_equal(acquire(r, layer, &expert, 1), SL_OK);
    return r->leases[0];
}

/* Loads an expert and lets go of it. */
static uint32_t load(struct rig *r, uint16_t layer, uint16_t expert) {
    struct sl_lease l = acquire_one(r, layer, expert);
    if (r->n_fill)
        sl_cache_filled(r->cache, l, SL_OK, 0);
    sl_cache_release(r->cache, &l, 1);
    return l.slot;
}

static const struct sl_cache_stats *stats(const struct rig *r) {
    return sl_cache_stats(r->cache);
}

static void expect_usage(const struct rig *r, uint32_t n_free, uint32_t loading, uint32_t ready,
                         uint32_t pinned, uint32_t failed) {
    struct sl_cache_usage u;
    sl_cache_usage(r->cache, &u);
    sl_cache_check(r->cache);
    assert_int_equal(u.free, n_free);
    assert_int_equal(u.loading, loading);
    assert_int_equal(u.ready, ready);
    assert_int_equal(u.pinned, pinned);
    assert_int_equal(u.failed, failed);
}

/* ---- one expert's life ---- */

static void miss_fill_hit(void **state) {
    (void)state;
    struct rig r;
    open_rig(&r, 2, 8, 2, 4);
    uint16_t two[] = {3, 5};
    assert_int_equal(acquire(&r, 1, two, 2), SL_OK);
    assert_int_equal(r.n_fill, 2);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(r.fills[i].action, SL_FILL_START);
        assert_int_equal(r.fills[i].id.layer, 1);
        assert_int_equal(r.fills[i].id.expert, two[i]);
        assert_int_equal(r.fills[i].index, i);
        assert_int_equal(r.fills[i].source, SL_TIER_DISK);
        assert_int_equal(r.fills[i].lease.slot, r.leases[i].slot);
        assert_int_equal(sl_cache_ready(r.cache, r.leases[i]), SL_AGAIN);
        assert_false(sl_cache_is_ready(r.cache, r.fills[i].id));
    }
    assert_int_not_equal(r.leases[0].slot, r.leases[1].slot);
    expect_usage(&r, 2, 2, 0, 2, 0);
    struct sl_lease a = r.leases[0], b = r.leases[1];
    sl_cache_filled(r.cache, b, SL_OK, 700); /* in any order */
    assert_int_equal(sl_cache_ready(r.cache, a), SL_AGAIN);
    assert_int_equal(sl_cache_ready(r.cache, b), SL_OK);
    sl_cache_filled(r.cache, a, SL_OK, 1000);
    assert_int_equal(sl_cache_ready(r.cache, a), SL_OK);
    assert_int_equal(stats(&r)->fill_ns, 1700);
    assert_int_equal(stats(&r)->fill_max_ns, 1000);
    assert_int_equal(acquire(&r, 1, two, 2), SL_OK); /* a hit, pinned twice */
    assert_int_equal(r.n_fill, 0);
    assert_int_equal(r.leases[0].slot, a.slot);
    assert_int_equal(r.leases[0].generation, a.generation);
    sl_cache_release(r.cache, r.leases, 2);
    expect_usage(&r, 2, 0, 2, 2, 0);
    sl_cache_release(r.cache, (struct sl_lease[]){a, b}, 2);
    expect_usage(&r, 2, 0, 2, 0, 0);
    assert_int_equal(stats(&r)->hits, 2);
    assert_int_equal(stats(&r)->misses, 2);
    assert_int_equal(stats(&r)->fills, 2);
    close_rig(&r);
}

static void second_asker_shares_the_fill(void **state) {
    (void)state;
    struct rig r;
    open_rig(&r, 2, 8, 1, 2);
    struct sl_lease a = acquire_one(&r, 0, 4), b = acquire_one(&r, 0, 4);
    assert_int_equal(r.n_fill, 1);
    assert_int_equal(r.fills[0].action, SL_FILL_WAIT);
    assert_int_equal(a.slot, b.slot);
    assert_int_equal(a.generation, b.generation);
    sl_cache_release(r.cache, &a, 1); /* the starter leaves; the fill is still owed */
    sl_cache_filled(r.cache, a, SL_OK, 0);
    assert_int_equal(sl_cache_ready(r.cache, b), SL_OK);
    sl_cache_release(r.cache, &b, 1);
    assert_int_equal(stats(&r)->waits, 1);
    assert_int_equal(stats(&r)->misses, 1);
    close_rig(&r);
}

static void released_while_loading(void **state) {
    (void)state;
    struct rig r;
    open_rig(&r, 1, 8, 1, 1);
    struct sl_lease a = acquire_one(&r, 0, 4);
    sl_cache_release(r.cache, &a, 1);
    uint16_t other = 5;
    assert_int_equal(acquire(&r, 0, &other, 1), SL_AGAIN); /* the read still writes there */
    expect_usage(&r, 0, 1, 0, 0, 0);
    sl_cache_filled(r.cache, a, SL_OK, 0);
    expect_usage(&r, 0, 0, 1, 0, 0);
    assert_int_equal(acquire(&r, 0, &other, 1), SL_OK);
    assert_int_equal(r.leases[0].slot, a.slot);
    assert_int_not_equal(r.leases[0].generation, a.generation);
    sl_cache_filled(r.cache, r.leases[0], SL_ERR_CANCELED, 0);
    sl_cache_release(r.cache, r.leases, 1);
    expect_usage(&r, 1, 0, 0, 0, 0);
    assert_int_equal(stats(&r)->fills_canceled, 1);
    assert_int_equal(stats(&r)->evictions, 1);
    assert_int_equal(stats(&r)->again, 1);
    close_rig(&r);
}

static void failed_fill_is_told_and_forgotten(void **state) {
    (void)state;
    struct rig r;
    open_rig(&r, 1, 8, 1, 2);
    struct sl_lease a = acquire_one(&r, 0, 4), b = acquire_one(&r, 0, 4);
    sl_cache_filled(r.cache, a, SL_ERR_IO, 0);
    assert_int_equal(sl_cache_ready(r.cache, a), SL_ERR_IO);
    assert_int_equal(sl_cache_ready(r.cache, b), SL_ERR_IO);
    assert_false(sl_cache_is_ready(r.cache, id(0, 4)));
    struct sl_lease c = acquire_one(&r, 0, 4); /* a new try, elsewhere */
    assert_int_equal(r.n_fill, 1);
    assert_int_equal(r.fills[0].action, SL_FILL_START);
    assert_int_not_equal(c.slot, a.slot);
    expect_usage(&r, 0, 1, 0, 2, 1);
    sl_cache_filled(r.cache, c, SL_OK, 0);
    assert_int_equal(sl_cache_ready(r.cache, a), SL_ERR_IO); /* the old try has not come back */
    sl_cache_release(r.cache, &a, 1);
    assert_int_equal(sl_cache_ready(r.cache, b), SL_ERR_IO);
    sl_cache_release(r.cache, &b, 1);
    expect_usage(&r, 1, 0, 1, 1, 0);
    assert_true(sl_cache_is_ready(r.cache, id(0, 4)));
    sl_cache_release(r.cache, &c, 1);
    assert_int_equal(stats(&r)->fills_failed, 1);
    assert_int_equal(stats(&r)->fills, 1);
    close_rig(&r);
}

/* ---- filled again with the same ---- */

static struct sl_lease refill(struct rig *r, uint32_t slot, uint16_t layer, uint16_t expert) {
    struct sl_expert_id what;
    struct sl_lease l;
    assert_true(sl_cache_refill(r->cache, slot, &what, &l));
    assert_int_equal(what.layer, layer);
    assert_int_equal(what.expert, expert);
    assert_int_equal(l.slot, slot);
    return l;
}

static void refilled_is_as_before(void **state) {
    (void)state;
    struct rig r;
    struct sl_expert_id what;
    struct sl_lease none;
    open_rig(&r, 2, 8, 2, 4);
    uint32_t a = load(&r, 0, 4), b = load(&r, 1, 5);
    struct sl_lease held = acquire_one(&r, 1, 5), ahead;
    assert_int_equal(sl_cache_prefetch(r.cache, SL_PREFETCH_LOOKAHEAD,
                                       (struct sl_expert_id[]){id(0, 6)}, 1, 0, r.fills),
                     1);
    ahead = r.fills[0].lease;
    for (uint32_t i = 0; i < 4; i++) /* leased, loading, free: left alone */
        if (i != a)
            assert_false(sl_cache_refill(r.cache, i, &what, &none));
    sl_cache_filled(r.cache, ahead, SL_OK, 7);
    struct sl_cache_stats before = *stats(&r);
    struct sl_lease l = refill(&r, a, 0, 4);
    refill(&r, ahead.slot, 0, 6);
    assert_false(sl_cache_refill(r.cache, a, &what, &none));
    assert_false(sl_cache_is_ready(r.cache, id(0, 4)));
    expect_usage(&r, 1, 2, 1, 1, 0);
    sl_cache_filled(r.cache, l, SL_OK, 1000);
    sl_cache_filled(r.cache, ahead, SL_OK, 1000);
    assert_true(sl_cache_is_ready(r.cache, id(0, 4)));
    assert_memory_equal(stats(&r), &before, sizeof before);
    expect_usage(&r, 1, 0, 3, 1, 0);
    load(&r, 0, 6); /* it was read ahead, and still is */
    assert_int_equal(stats(&r)->prefetch_used, before.prefetch_used + 1);
    sl_cache_release(r.cache, &held, 1);
    refill(&r, b, 1, 5);
    sl_cache_filled(r.cache, held, SL_OK, 0);
    close_rig(&r);
}

static void failed_refill_forgets(void **state) {
    (void)state;
    struct rig r;
    open_rig(&r, 1, 8, 1, 2);
    uint32_t a = load(&r, 0, 4);
    struct sl_lease l = refill(&r, a, 0, 4), shares = acquire_one(&r, 0, 4);
    assert_int_equal(r.fills[0].action, SL_FILL_WAIT);
    sl_cache_filled(r.cache, l, SL_ERR_IO, 0);
    assert_int_equal(sl_cache_ready(r.cache, shares), SL_ERR_IO);
    expect_usage(&r, 1, 0, 0, 1, 1);
    sl_cache_release(r.cache, &shares, 1);
    expect_usage(&r, 2, 0, 0, 0, 0);
    assert_int_equal(stats(&r)->fills_failed, 0); /* nobody had asked for it */
    acquire_one(&r, 0, 4);
    assert_int_equal(r.fills[0].action, SL_FILL_START);
    sl_cache_filled(r.cache, r.leases[0], SL_OK, 0);
    sl_cache_release(r.cache, r.leases, 1);
    close_rig(&r);
}

/* ---- too few slots ---- */

static void all_or_nothing(void **state) {
    (void)state;
    struct rig r;
    open_rig(&r, 2, 8, 2, 4);
    load(&r, 0, 0);
    load(&r, 0, 1);
    struct sl_lease a = acquire_one(&r, 1, 0);
    sl_cache_filled(r.cache, a, SL_OK, 0);
    /* One free, two evictable of which one is asked for: two can miss, three cannot. */
    uint16_t four[] = {0, 2, 3, 4};
    struct sl_cache_stats before = *stats(&r);
    assert_int_equal(acquire(&r, 0, four, 4), SL_AGAIN);
    assert_int_equal(r.n_fill, 0);
    expect_usage(&r, 1, 0, 3, 1, 0);
    assert_int_equal(stats(&r)->evictions, before.evictions);
    assert_int_equal(stats(&r)->hits, before.hits);
    assert_int_equal(acquire(&r, 0, four, 3), SL_OK);
    assert_int_equal(r.n_fill, 2);
    assert_true(sl_cache_is_ready(r.cache, id(0, 0)));
    assert_false(sl_cache_is_ready(r.cache, id(0, 1)));
    assert_true(sl_cache_is_ready(r.cache, id(1, 0)));
    close_rig(&r);
}

/* A step of 8 experts through 2 slots, with and without failures: every expert runs once. */
static void waves(void **state) {
    (void)state;
    struct rig r;
    open_rig(&r, 3, 8, 2, 2);
    load(&r, 0, 6);
    load(&r, 0, 7);
    uint32_t ran[8] = {0}, n = 8, turns = 0;
    struct sl_expert_id ids[8];
    for (uint16_t e = 0; e < 8; e++)
        ids[e] = id(0, e);
    while (n) {
        assert_true(++turns < 10);
        assert_int_equal(
            sl_cache_acquire_some(r.cache, ids, n, 2, 0, r.leases, r.fills, &r.n_fill, &r.n_taken),
            SL_OK);
        uint32_t taken = 0, left = 0;
        for (uint32_t i = 0; i < n; i++)
            taken += r.leases[i].slot != SL_SLOT_NONE;
        assert_int_equal(taken, r.n_taken);
        for (uint32_t i = 0; i < r.n_fill; i++)
            sl_cache_filled(r.cache, r.fills[i].lease, SL_OK, 0);
        for (uint32_t i = 0; i < n; i++) {
            if (r.leases[i].slot == SL_SLOT_NONE) {
                ids[left++] = ids[i];
                continue;
            }
            assert_int_equal(sl_cache_ready(r.cache, r.leases[i]), SL_OK);
            ran[ids[i].expert]++;
        }
        if (turns == 1) { /* those that are there run first and make no room for the others */
            assert_int_equal(r.n_fill, 0);
            assert_true(ran[6] && ran[7]);
        }
        sl_cache_release(r.cache, r.leases, n);
        n = left;
    }
    for (uint32_t e = 0; e < 8; e++)
        assert_int_equal(ran[e], 1);
    assert_int_equal(turns, 4);
    assert_int_equal(stats(&r)->partial, 3);
    assert_int_equal(stats(&r)->hits, 2);
    close_rig(&r);
}

static void some_of_none(void **state) {
    (void)state;
    struct rig r;
    open_rig(&r, 1, 8, 1, 1);
    struct sl_lease a = acquire_one(&r, 0, 0);
    struct sl_expert_id two[] = {id(0, 1), id(0, 2)};
    assert_int_equal(
        sl_cache_acquire_some(r.cache, two, 2, 2, 0, r.leases, r.fills, &r.n_fill, &r.n_taken),
        SL_AGAIN);
    assert_int_equal(r.n_taken, 0);
    assert_int_equal(r.leases[0].slot, SL_SLOT_NONE);
    assert_int_equal(r.leases[1].slot, SL_SLOT_NONE);
    sl_cache_release(r.cache, r.leases, 2); /* nothing to do */
    sl_cache_filled(r.cache, a, SL_OK, 0);
    sl_cache_release(r.cache, &a, 1);
    assert_int_equal(acquire(&r, 0, NULL, 0), SL_OK); /* an empty step */
    close_rig(&r);
}

static void misses_are_capped(void **state) {
    (void)state;
    struct rig r;
    open_rig(&r, 1, 8, 2, 8);
    load(&r, 0, 7);
    struct sl_expert_id ids[8];
    for (uint16_t e = 0; e < 8; e++)
        ids[e] = id(0, e);
    assert_int_equal(
        sl_cache_acquire_some(r.cache, ids, 8, 3, 0, r.leases, r.fills, &r.n_fill, &r.n_taken),
        SL_OK);
    assert_int_equal(r.n_taken, 4);
    assert_int_equal(r.n_fill, 3);
    assert_int_not_equal(r.leases[2].slot, SL_SLOT_NONE);
    assert_int_equal(r.leases[3].slot, SL_SLOT_NONE);
    assert_int_not_equal(r.leases[7].slot, SL_SLOT_NONE);
    close_rig(&r);
}

/* ---- whom to evict ---- */

static void evicts_the_farthest_turn(void **state) {
    (void)state;
    struct rig r;
    open_rig(&r, 4, 4, 1, 3);
    /* Alike but for their layers. Layer 0 has just run: its turn is the farthest away. */
    uint16_t none_of_these = 3;
    for (uint16_t l = 1; l < 4; l++)
        sl_heat_route(r.heat, l, &none_of_these, 1, 1, SL_PHASE_DECODE);
    sl_heat_route(r.heat, 0, &none_of_these, 1, 1, SL_PHASE_DECODE);
    load(&r, 1, 0);
    load(&r, 0, 0);
    load(&r, 2, 0);
    load(&r, 0, 3);
    assert_false(sl_cache_is_ready(r.cache, id(0, 0)));
    assert_true(sl_cache_is_ready(r.cache, id(1, 0)));
    assert_true(sl_cache_is_ready(r.cache, id(2, 0)));
    close_rig(&r);
}

static void keeps_the_hot_below_one_cycle(void **state) {
    (void)state;
    /* 8 layers, one expert a token, 4 slots: an LRU would never hit. Expert 0 is used by 3 of 4
     * tokens in layers 0..2 and others come and go. */
    struct rig r;
    open_rig(&r, 8, 8, 1, 4);
    uint64_t hits = 0;
    for (uint32_t t = 0; t < 400; t++) {
        if (t == 200)
            hits = stats(&r)->hits;
        for (uint16_t l = 0; l < 8; l++) {
            uint16_t e = l < 3 && t % 4 ? 0 : (uint16_t)(1 + (t * 5 + l * 3) % 7);
            sl_heat_route(r.heat, l, &e, 1, 1, SL_PHASE_DECODE);
            load(&r, l, e);
        }
    }
    hits = stats(&r)->hits - hits;
    assert_true(hits >= 3 * 150 * 95 / 100); /* of 3 * 150 that can be kept */
    close_rig(&r);
}

/* ---- prefetch and warm-up ---- */

static void prefetch_then_demand(void **state) {
    (void)state;
    struct rig r;
    open_rig(&r, 2, 8, 2, 6);
    struct sl_expert_id ids[] = {id(1, 0), id(1, 1), id(1, 2)};
    uint32_t n = sl_cache_prefetch(r.cache, SL_PREFETCH_LOOKAHEAD, ids, 3, 0, r.fills);
    assert_int_equal(n, 3);
    expect_usage(&r, 3, 3, 0, 0, 0); /* loading, and pinned by nobody */
    struct sl_lease f0 = r.fills[0].lease, f1 = r.fills[1].lease, f2 = r.fills[2].lease;
    assert_int_equal(sl_cache_prefetch(r.cache, SL_PREFETCH_LOOKAHEAD, ids, 3, 0, r.fills), 0);
    sl_cache_filled(r.cache, f0, SL_OK, 0);
    uint16_t two[] = {0, 1};
    assert_int_equal(acquire(&r, 1, two, 2), SL_OK);
    assert_int_equal(r.n_fill, 1); /* the first is there, the second under way */
    assert_int_equal(r.fills[0].action, SL_FILL_RAISE);
    assert_int_equal(r.fills[0].index, 1);
    assert_int_equal(r.fills[0].lease.slot, f1.slot);
    struct sl_lease two_leases[] = {r.leases[0], r.leases[1]};
    acquire_one(&r, 1, 1);
    assert_int_equal(r.fills[0].action, SL_FILL_WAIT); /* raised once */
    sl_cache_release(r.cache, r.leases, 1);
    sl_cache_filled(r.cache, f1, SL_OK, 0);
    sl_cache_filled(r.cache, f2, SL_ERR_CANCELED, 0);
    sl_cache_release(r.cache, two_leases, 2);
    expect_usage(&r, 4, 0, 2, 0, 0);
    assert_int_equal(stats(&r)->prefetches, 3);
    assert_int_equal(stats(&r)->prefetch_used, 1);
    assert_int_equal(stats(&r)->prefetch_late, 1);
    assert_int_equal(stats(&r)->prefetch_wasted, 1);
    assert_int_equal(stats(&r)->fills_canceled, 1);
    close_rig(&r);
}

/* Speculation may never stop demand: k slots are always left, and warm-up evicts nothing. */
static void demand_always_has_room(void **state) {
    (void)state;
    struct rig r;
    struct sl_expert_id ids[8];
    for (uint16_t e = 0; e < 8; e++)
        ids[e] = id(1, e);
    for (int kind = SL_PREFETCH_LOOKAHEAD; kind <= SL_PREFETCH_WARMUP; kind++) {
        for (uint32_t slots = 2; slots < 7; slots++) {
            open_rig(&r, 2, 8, 2, slots);
            uint32_t n = sl_cache_prefetch(r.cache, kind, ids, 8, 0, r.fills);
            assert_int_equal(n, slots - 2);
            uint16_t two[] = {0, 1};
            assert_int_equal(acquire(&r, 0, two, 2), SL_OK);
            assert_int_equal(r.n_fill, 2);
            close_rig(&r);
        }
    }
    open_rig(&r, 2, 8, 2, 4);
    for (uint16_t e = 0; e < 4; e++)
        load(&r, 0, e);
    assert_int_equal(sl_cache_prefetch(r.cache, SL_PREFETCH_WARMUP, ids, 8, 0, r.fills), 0);
    assert_int_equal(stats(&r)->prefetch_refused, 8);
    assert_int_equal(stats(&r)->evictions, 0);
    close_rig(&r);
}

/* A look-ahead evicts what is worth less and not what it has itself foretold. */
static void prefetch_evicts_the_cheaper(void **state) {
    (void)state;
    struct rig r;
    open_rig(&r, 3, 8, 1, 3);
    uint16_t hot = 0;
    for (uint32_t t = 0; t < 64; t++)
        for (uint16_t l = 0; l < 3; l++)
            sl_heat_route(r.heat, l, &hot, 1, 1, SL_PHASE_DECODE);
    load(&r, 0, 0);
    load(&r, 1, 0);
    load(&r, 0, 5); /* cold */
    sl_heat_route(r.heat, 0, &hot, 1, 1, SL_PHASE_DECODE);
    struct sl_expert_id next[] = {id(1, 6), id(1, 0)};
    assert_int_equal(sl_cache_prefetch(r.cache, SL_PREFETCH_LOOKAHEAD, next, 2, 0, r.fills), 1);
    assert_int_equal(r.fills[0].id.expert, 6);
    assert_false(sl_cache_is_ready(r.cache, id(0, 5)));
    assert_true(sl_cache_is_ready(r.cache, id(0, 0)));
    sl_cache_filled(r.cache, r.fills[0].lease, SL_OK, 0);
    /* All three are worth more than one of the layer that is farthest away. */
    struct sl_expert_id far = id(0, 7);
    assert_int_equal(sl_cache_prefetch(r.cache, SL_PREFETCH_LOOKAHEAD, &far, 1, 0, r.fills), 0);
    assert_int_equal(stats(&r)->prefetch_refused, 1);
    /* Its layer has run without it: the prefetched one has lost its claim. */
    sl_heat_route(r.heat, 1, &hot, 1, 1, SL_PHASE_DECODE);
    load(&r, 1, 0);
    load(&r, 1, 3);
    assert_false(sl_cache_is_ready(r.cache, id(1, 6)));
    assert_int_equal(stats(&r)->prefetch_wasted, 1);
    close_rig(&r);
}

/* ---- size classes ---- */

static void classes_do_not_mix(void **state) {
    (void)state;
    struct sl_err err = {""};
    struct rig r = {0};
    struct sl_heat_config hc = {.n_layer = 4, .n_expert = 8, .k = 1};
    assert_int_equal(sl_heat_create(&hc, &r.heat, &err), SL_OK);
    uint8_t class_of[] = {0, 1, 1, 0};
    uint32_t slots[] = {2, 5};
    struct sl_cache_config cc = {
        .heat = r.heat, .layer_class = class_of, .n_class = 2, .class_slots = slots};
    assert_int_equal(sl_cache_create(&cc, &r.cache, &err), SL_OK);
    for (uint16_t t = 0; t < 200; t++) {
        for (uint16_t l = 0; l < 4; l++) {
            uint16_t e = (uint16_t)((t * 3 + l) % 8);
            sl_heat_route(r.heat, l, &e, 1, 1, SL_PHASE_DECODE);
            uint32_t slot = load(&r, l, e);
            assert_true(class_of[l] == 0 ? slot < 2 : slot >= 2 && slot < 7);
        }
        sl_cache_check(r.cache);
    }
    expect_usage(&r, 0, 0, 7, 0, 0);
    close_rig(&r);
}

static void split_shares_alike(void **state) {
    (void)state;
    struct sl_err err = {""};
    struct sl_cache_class cl[] = {{1000, 8, 100}, {200, 8, 300}, {64, 8, 50}};
    uint32_t slots[3];
    for (uint64_t bytes = 0; bytes < 180000; bytes += 97) {
        uint64_t least = 8 * 450, sum = 0;
        enum sl_status status = sl_cache_split(cl, 3, bytes, slots, &err);
        if (bytes < least) {
            assert_int_equal(status, SL_ERR_CONFIG);
            assert_non_null(strstr(err.text, "3600"));
            continue;
        }
        assert_int_equal(status, SL_OK);
        uint64_t cheapest_missing = UINT64_MAX;
        for (int i = 0; i < 3; i++) {
            assert_true(slots[i] >= 8 && slots[i] <= cl[i].n_expert);
            sum += slots[i] * cl[i].slot_bytes;
            if (slots[i] < cl[i].n_expert && cl[i].slot_bytes < cheapest_missing)
                cheapest_missing = cl[i].slot_bytes;
        }
        assert_true(sum <= bytes);
        if (cheapest_missing != UINT64_MAX)
            assert_true(bytes - sum < 450); /* less than a slot of each is left over */
        double a = slots[0] / 1000.0, b = slots[1] / 200.0;
        if (slots[1] > 9) /* above the least: the same share but for rounding */
            assert_true(a - b < 0.011 && b - a < 0.011);
    }
    assert_int_equal(sl_cache_split(cl, 3, UINT64_MAX, slots, &err), SL_OK);
    assert_int_equal(slots[0], 1000);
    assert_int_equal(slots[1], 200);
    assert_int_equal(slots[2], 64);
}

/* Layers 0 and 1 have 8 and 3 experts, of which a token uses 4 and 1: a class needs as many slots
 * as its own layers do. */
static void classes_of_layers_that_differ(void **state) {
    (void)state;
    static const struct sl_heat_layer layers[] = {{8, 4}, {3, 1}};
    static const uint8_t class_of[] = {0, 1};
    uint32_t slots[] = {4, 2};
    struct rig r;
    struct sl_err err = {""};
    memset(&r, 0, sizeof r);
    struct sl_heat_config hc = {.n_layer = 2, .n_expert = 8, .k = 4, .layers = layers};
    assert_int_equal(sl_heat_create(&hc, &r.heat, &err), SL_OK);
    struct sl_cache_config cc = {
        .heat = r.heat, .layer_class = class_of, .n_class = 2, .class_slots = slots};
    slots[1] = 0;
    assert_int_equal(sl_cache_create(&cc, &r.cache, &err), SL_ERR_INVALID);
    assert_non_null(strstr(err.text, "class 1 has 0 slots, but one token needs the 1"));
    slots[1] = 2, slots[0] = 3;
    assert_int_equal(sl_cache_create(&cc, &r.cache, &err), SL_ERR_INVALID);
    assert_non_null(strstr(err.text, "class 0 has 3 slots, but one token needs the 4"));
    slots[0] = 4;
    assert_int_equal(sl_cache_create(&cc, &r.cache, &err), SL_OK);
    for (uint16_t t = 0; t < 40; t++) {
        uint16_t e = (uint16_t)(t % 3), four[] = {(uint16_t)(t % 8), (uint16_t)((t + 1) % 8),
                                                  (uint16_t)((t + 2) % 8), (uint16_t)((t + 5) % 8)};
        sl_heat_route(r.heat, 0, four, 1, 4, SL_PHASE_DECODE);
        for (uint32_t i = 0; i < 4; i++)
            assert_true(load(&r, 0, four[i]) < 4);
        sl_heat_route(r.heat, 1, &e, 1, 1, SL_PHASE_DECODE);
        uint32_t slot = load(&r, 1, e);
        assert_true(slot >= 4 && slot < 6);
        sl_cache_check(r.cache);
    }
    /* Of the second class one slot is demand's: the other can be read ahead into. */
    struct sl_fill fill;
    struct sl_expert_id absent = id(1, 0);
    while (sl_cache_has(r.cache, absent))
        absent.expert++;
    assert_true(absent.expert < 3);
    sl_heat_route(r.heat, 0, (const uint16_t[]){0, 1, 2, 3}, 1, 4, SL_PHASE_DECODE);
    assert_int_equal(sl_cache_prefetch(r.cache, SL_PREFETCH_LOOKAHEAD, &absent, 1, 0, &fill), 1);
    assert_int_equal(fill.action, SL_FILL_START);
    sl_cache_filled(r.cache, fill.lease, SL_OK, 0);
    close_rig(&r);
    const struct sl_cache_class cl[] = {{8, 4, 10}, {3, 1, 100}};
    assert_int_equal(sl_cache_split(cl, 2, 139, slots, &err), SL_ERR_CONFIG);
    assert_non_null(strstr(err.text, "140, for 5 slots"));
    assert_int_equal(sl_cache_split(cl, 2, 140, slots, &err), SL_OK);
    assert_true(slots[0] == 4 && slots[1] == 1);
    assert_int_equal(sl_cache_split(cl, 2, 380, slots, &err), SL_OK);
    assert_true(slots[0] == 8 && slots[1] == 3);
}

/* ---- our own mistakes ---- */

static void refuses_bad_configurations(void **state) {
    (void)state;
    struct rig r;
    open_rig(&r, 2, 8, 2, 4);
    struct sl_err err = {""};
    struct sl_cache *c = NULL;
    uint32_t few[] = {4, 1}, enough[] = {4, 2}, huge[] = {0x7fffffff, 0x7fffffff};
    uint8_t wrong[] = {0, 2}, right[] = {1, 0};
    struct sl_cache_config cc = {
        .heat = r.heat, .layer_class = right, .n_class = 2, .class_slots = few};
    assert_int_equal(sl_cache_create(&cc, &c, &err), SL_ERR_INVALID);
    assert_non_null(strstr(err.text, "class 1 has 1 slots"));
    cc.class_slots = huge;
    assert_int_equal(sl_cache_create(&cc, &c, &err), SL_ERR_INVALID);
    assert_non_null(strstr(err.text, "too many"));
    cc.class_slots = enough;
    cc.layer_class = wrong;
    assert_int_equal(sl_cache_create(&cc, &c, &err), SL_ERR_INVALID);
    assert_non_null(strstr(err.text, "layer 1 is of size class 2"));
    cc.n_class = 0;
    assert_int_equal(sl_cache_create(&cc, &c, &err), SL_ERR_INVALID);
    cc.n_class = SL_CACHE_CLASSES + 1;
    assert_int_equal(sl_cache_create(&cc, &c, &err), SL_ERR_INVALID);
    assert_null(c);
    close_rig(&r);
}

/* Runs f in a child that must abort. */
static void expect_abort(void (*f)(struct rig *)) {
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        signal(SIGABRT, SIG_DFL);
        if (!freopen("/dev/null", "w", stderr))
            _exit(3);
        struct rig r;
        open_rig(&r, 2, 8, 2, 2);
        f(&r);
        _exit(0); /* it was let pass */
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void stale_release(struct rig *r) {
    struct sl_lease a = acquire_one(r, 0, 0);
    sl_cache_filled(r->cache, a, SL_OK, 0);
    sl_cache_release(r->cache, &a, 1);
    uint16_t two[] = {1, 2};
    if (acquire(r, 0, two, 2) != SL_OK) /* both slots, a's too */
        _exit(4);
    sl_cache_release(r->cache, &a, 1);
}

static void double_release(struct rig *r) {
    struct sl_lease a = acquire_one(r, 0, 0);
    sl_cache_release(r->cache, &a, 1);
    sl_cache_release(r->cache, &a, 1);
}

static void filled_twice(struct rig *r) {
    struct sl_lease a = acquire_one(r, 0, 0);
    sl_cache_filled(r->cache, a, SL_OK, 0);
    sl_cache_filled(r->cache, a, SL_OK, 0);
}

static void same_expert_twice(struct rig *r) {
    uint16_t two[] = {5, 5};
    if (acquire(r, 0, two, 2) == SL_AGAIN)
        _exit(4);
}

static void ready_without_pin(struct rig *r) {
    struct sl_lease a = acquire_one(r, 0, 0);
    sl_cache_filled(r->cache, a, SL_OK, 0);
    sl_cache_release(r->cache, &a, 1);
    if (sl_cache_ready(r->cache, a) == SL_AGAIN)
        _exit(4);
}

static void stale_leases_assert(void **state) {
    (void)state;
    expect_abort(stale_release);
    expect_abort(double_release);
    expect_abort(filled_twice);
    expect_abort(same_expert_twice);
    expect_abort(ready_without_pin);
}

/* Two tiers: what is elsewhere goes first, whatever its heat; an expert moves in only for one that
 * is clearly colder, and the fill names the one that goes. */
static void tiers_move_experts(void **state) {
    (void)state;
    struct rig r;
    open_rig(&r, 2, 8, 2, 4);
    /* Layer 0: experts 0 and 1 hot, 2 less so, 3 never. */
    for (uint32_t i = 0; i < 400; i++) {
        uint16_t often[] = {0, 1}, seldom[] = {1, 2};
        sl_heat_route(r.heat, 0, i % 4 ? often : seldom, 1, 2, SL_PHASE_DECODE);
        sl_heat_route(r.heat, 1, (uint16_t[]){4, 5}, 1, 2, SL_PHASE_DECODE);
    }
    for (uint16_t e = 0; e < 4; e++)
        load(&r, 0, e);
    expect_usage(&r, 0, 0, 4, 0, 0);

    /* A cold one does not move in, a hot one takes the coldest one's slot. */
    struct sl_expert_id cold = id(0, 7), hot = id(1, 4);
    assert_int_equal(sl_cache_prefetch(r.cache, SL_PREFETCH_MOVE, &cold, 1, 0, r.fills), 0);
    assert_int_equal(sl_cache_prefetch(r.cache, SL_PREFETCH_MOVE, &hot, 1, 0, r.fills), 1);
    assert_true(r.fills[0].evicted);
    assert_int_equal(r.fills[0].victim.layer, 0);
    assert_int_equal(r.fills[0].victim.expert, 3);
    assert_true(sl_cache_has(r.cache, hot) && !sl_cache_is_ready(r.cache, hot));
    sl_cache_filled(r.cache, r.fills[0].lease, SL_OK, 0);
    assert_true(sl_cache_is_ready(r.cache, hot));
    assert_false(sl_cache_has(r.cache, id(0, 3)));

    /* The hottest is on the device too: now it goes before all others, and warming up may take it.
     */
    sl_cache_elsewhere(r.cache, id(0, 0), true);
    assert_int_equal(sl_cache_prefetch(r.cache, SL_PREFETCH_WARMUP, &cold, 1, 0, r.fills), 1);
    assert_true(r.fills[0].evicted);
    assert_int_equal(r.fills[0].victim.expert, 0);
    sl_cache_filled(r.cache, r.fills[0].lease, SL_OK, 0);
    /* Without such a one warming up takes free slots alone. */
    sl_cache_elsewhere(r.cache, id(0, 0), false);
    struct sl_expert_id other = id(0, 6);
    assert_int_equal(sl_cache_prefetch(r.cache, SL_PREFETCH_WARMUP, &other, 1, 0, r.fills), 0);
    sl_cache_forget(r.cache);
    assert_int_equal(sl_cache_prefetch(r.cache, SL_PREFETCH_MOVE, &cold, 1, 0, r.fills), 1);
    assert_false(r.fills[0].evicted); /* it was free */
    sl_cache_filled(r.cache, r.fills[0].lease, SL_OK, 0);
    close_rig(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(miss_fill_hit),
        cmocka_unit_test(second_asker_shares_the_fill),
        cmocka_unit_test(released_while_loading),
        cmocka_unit_test(failed_fill_is_told_and_forgotten),
        cmocka_unit_test(refilled_is_as_before),
        cmocka_unit_test(failed_refill_forgets),
        cmocka_unit_test(all_or_nothing),
        cmocka_unit_test(waves),
        cmocka_unit_test(some_of_none),
        cmocka_unit_test(misses_are_capped),
        cmocka_unit_test(evicts_the_farthest_turn),
        cmocka_unit_test(keeps_the_hot_below_one_cycle),
        cmocka_unit_test(prefetch_then_demand),
        cmocka_unit_test(demand_always_has_room),
        cmocka_unit_test(prefetch_evicts_the_cheaper),
        cmocka_unit_test(classes_do_not_mix),
        cmocka_unit_test(split_shares_alike),
        cmocka_unit_test(classes_of_layers_that_differ),
        cmocka_unit_test(refuses_bad_configurations),
        cmocka_unit_test(tiers_move_experts),
        cmocka_unit_test(stale_leases_assert),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
