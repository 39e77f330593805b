/* Random calls, each compared with a naive reference that keeps one record per slot and looks at
 * all of them every time. What the reference cannot decide, which slot, it takes from the cache,
 * after checking that it was allowed: free, or evictable and of the least worth. */
#include "common/rng.h"
#include "expert_cache/expert_cache.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MAX_SLOTS  64u
#define MAX_LEASES 256u
#define NO_WISH    0u

enum ref_state { REF_FREE, REF_LOADING, REF_READY, REF_FAILED };

struct ref_slot {
    enum ref_state state;
    struct sl_expert_id id;
    uint32_t generation, pins;
    enum sl_status failure;
    bool lookahead, warmup; /* nobody has leased it since */
    uint32_t wished;        /* the layer's version for which a look-ahead wanted it */
    bool again;             /* loading what it held; then it was: */
    bool lookahead_before, warmup_before;
};

struct model {
    struct sl_rng rng;
    struct sl_heat *heat;
    struct sl_cache *cache;
    uint32_t n_layer, n_expert, k, n_class;
    uint8_t class_of[16];
    uint32_t class_slots[4], first[5];
    struct ref_slot slots[MAX_SLOTS];
    struct sl_lease held[MAX_LEASES];
    uint32_t n_held;
    struct sl_cache_stats stats;
};

static uint64_t seen_evictions, seen_again, seen_failed, seen_late, seen_used, seen_refused,
    seen_refills;

static uint32_t below(struct model *m, uint32_t n) {
    return sl_rng_below(&m->rng, n);
}

static bool same(struct sl_expert_id a, struct sl_expert_id b) {
    return a.layer == b.layer && a.expert == b.expert;
}

static uint32_t n_slots(const struct model *m) {
    return m->first[m->n_class];
}

/* The slot in which the expert is loading or ready, or SL_SLOT_NONE. */
static uint32_t find(const struct model *m, struct sl_expert_id id) {
    for (uint32_t i = 0; i < n_slots(m); i++)
        if ((m->slots[i].state == REF_LOADING || m->slots[i].state == REF_READY) &&
            same(m->slots[i].id, id))
            return i;
    return SL_SLOT_NONE;
}

static bool evictable(const struct ref_slot *s) {
    return s->state == REF_READY && s->pins == 0;
}

static float score(const struct model *m, const struct ref_slot *s) {
    float p = sl_heat_probability(m->heat, s->id);
    if (s->wished == sl_heat_version(m->heat, s->id.layer) && p < 0.5f)
        p = 0.5f;
    uint32_t at = sl_heat_position(m->heat);
    uint32_t d = (s->id.layer + m->n_layer - at - 1) % m->n_layer + 1;
    return p / (float)d;
}

static void count(const struct model *m, uint32_t class, uint32_t *out_free,
                  uint32_t *out_evictable, uint32_t *out_speculative) {
    *out_free = *out_evictable = *out_speculative = 0;
    for (uint32_t i = m->first[class]; i < m->first[class + 1]; i++) {
        const struct ref_slot *s = &m->slots[i];
        *out_free += s->state == REF_FREE;
        *out_evictable += evictable(s);
        *out_speculative += s->state == REF_LOADING && (s->lookahead || s->warmup);
    }
}

/* The cache started a fill of id in lease: was that slot its to take? */
static void expect_claim(struct model *m, struct sl_expert_id id, struct sl_lease lease) {
    uint32_t class = m->class_of[id.layer], n_free, n_evictable, n_speculative;
    count(m, class, &n_free, &n_evictable, &n_speculative);
    assert_true(lease.slot >= m->first[class] && lease.slot < m->first[class + 1]);
    struct ref_slot *s = &m->slots[lease.slot];
    if (s->state != REF_FREE) {
        assert_int_equal(n_free, 0); /* nothing is evicted while there is room */
        assert_true(evictable(s));
        float worth = score(m, s);
        for (uint32_t i = m->first[class]; i < m->first[class + 1]; i++)
            if (evictable(&m->slots[i]))
                assert_true(worth <= score(m, &m->slots[i]));
        m->stats.evictions++;
        m->stats.prefetch_wasted += s->lookahead;
    }
    assert_true(lease.generation != s->generation);
    *s = (struct ref_slot){.state = REF_LOADING, .id = id, .generation = lease.generation};
}

static void expect_present(struct model *m, struct sl_expert_id id, struct sl_lease lease,
                           const struct sl_fill *fill) {
    struct ref_slot *s = &m->slots[find(m, id)];
    assert_int_equal(lease.slot, s - m->slots);
    assert_int_equal(lease.generation, s->generation);
    s->pins++;
    if (s->state == REF_READY) {
        assert_null(fill);
        m->stats.hits++;
        m->stats.prefetch_used += s->lookahead;
    } else {
        assert_non_null(fill);
        assert_int_equal(fill->action, s->lookahead || s->warmup ? SL_FILL_RAISE : SL_FILL_WAIT);
        m->stats.waits++;
        m->stats.prefetch_late += s->lookahead;
    }
    s->lookahead = s->warmup = s->lookahead_before = s->warmup_before = false;
}

static const struct sl_fill *fill_of(const struct sl_fill *fills, uint32_t n, uint32_t index) {
    const struct sl_fill *found = NULL;
    for (uint32_t i = 0; i < n; i++) {
        if (fills[i].index != index)
            continue;
        assert_null(found);
        found = &fills[i];
    }
    return found;
}

static uint32_t pick_ids(struct model *m, uint16_t layer, uint32_t max, struct sl_expert_id *out) {
    uint32_t n = 1 + below(m, max), got = 0;
    bool taken[64] = {false};
    while (got < n) {
        /* The square makes some experts hot. */
        uint32_t e = below(m, 1 + below(m, m->n_expert));
        if (taken[e] && below(m, 4))
            continue;
        while (taken[e])
            e = (e + 1) % m->n_expert;
        taken[e] = true;
        out[got++] = (struct sl_expert_id){layer, (uint16_t)e};
    }
    return n;
}

static void do_acquire(struct model *m, bool some) {
    struct sl_expert_id ids[64];
    struct sl_lease leases[64];
    struct sl_fill fills[64];
    uint16_t layer = (uint16_t)below(m, m->n_layer);
    uint32_t n = pick_ids(m, layer, below(m, 3) ? m->k : m->n_expert, ids), n_fill, n_taken = n;
    if (m->n_held + n > MAX_LEASES)
        return;
    uint32_t n_free, n_evictable, n_speculative, n_present = 0, n_hits_evictable = 0;
    count(m, m->class_of[layer], &n_free, &n_evictable, &n_speculative);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = find(m, ids[i]);
        n_present += at != SL_SLOT_NONE;
        n_hits_evictable += at != SL_SLOT_NONE && evictable(&m->slots[at]);
    }
    uint32_t room = n_free + n_evictable - n_hits_evictable, misses = n - n_present;
    enum sl_status status;
    if (some) {
        uint32_t cap = below(m, n + 1);
        uint32_t expected = misses < cap ? misses : cap;
        if (expected > room)
            expected = room;
        status = sl_cache_acquire_some(m->cache, ids, n, cap, 0, leases, fills, &n_fill, &n_taken);
        assert_int_equal(n_taken, n_present + expected);
        assert_int_equal(status, n_taken ? SL_OK : SL_AGAIN);
        m->stats.partial += n_taken < n;
    } else {
        status = sl_cache_acquire(m->cache, ids, n, 0, leases, fills, &n_fill);
        assert_int_equal(status, misses > room ? SL_AGAIN : SL_OK);
    }
    m->stats.again += status == SL_AGAIN;
    if (status == SL_AGAIN) {
        assert_int_equal(n_fill, 0);
        return;
    }
    bool miss[64];
    for (uint32_t i = 0; i < n; i++) {
        miss[i] = find(m, ids[i]) == SL_SLOT_NONE;
        if (!miss[i])
            expect_present(m, ids[i], leases[i], fill_of(fills, n_fill, i));
    }
    for (uint32_t i = 0; i < n; i++) {
        if (leases[i].slot == SL_SLOT_NONE) {
            assert_true(some && miss[i]);
            assert_null(fill_of(fills, n_fill, i));
            continue;
        }
        if (miss[i]) {
            const struct sl_fill *f = fill_of(fills, n_fill, i);
            assert_non_null(f);
            assert_int_equal(f->action, SL_FILL_START);
            assert_true(same(f->id, ids[i]));
            assert_int_equal(f->lease.slot, leases[i].slot);
            expect_claim(m, ids[i], leases[i]);
            m->slots[leases[i].slot].pins = 1;
            m->stats.misses++;
        }
        m->held[m->n_held++] = leases[i];
    }
}

static void do_prefetch(struct model *m) {
    struct sl_expert_id ids[64];
    struct sl_fill fills[64];
    bool warm = below(m, 2);
    uint16_t layer = (uint16_t)below(m, m->n_layer);
    uint32_t n = pick_ids(m, layer, m->n_expert, ids), at_fill = 0;
    uint32_t n_fill = sl_cache_prefetch(m->cache, warm ? SL_PREFETCH_WARMUP : SL_PREFETCH_LOOKAHEAD,
                                        ids, n, 0, fills);
    uint32_t version = sl_heat_version(m->heat, layer), class = m->class_of[layer];
    for (uint32_t i = 0; i < n && !warm; i++)
        if (find(m, ids[i]) != SL_SLOT_NONE)
            m->slots[find(m, ids[i])].wished = version;
    for (uint32_t i = 0; i < n; i++) {
        if (find(m, ids[i]) != SL_SLOT_NONE)
            continue;
        uint32_t n_free, n_evictable, n_speculative;
        count(m, class, &n_free, &n_evictable, &n_speculative);
        float least = 10;
        for (uint32_t j = m->first[class]; j < m->first[class + 1]; j++)
            if (evictable(&m->slots[j]) && score(m, &m->slots[j]) < least)
                least = score(m, &m->slots[j]);
        struct ref_slot fresh = {.id = ids[i], .wished = version};
        float own = sl_heat_probability(m->heat, ids[i]) > 0.5f
                        ? 0.5f * score(m, &fresh) / sl_heat_probability(m->heat, ids[i])
                        : score(m, &fresh);
        bool room = n_free || (!warm && n_evictable && least < own);
        if (n_speculative + m->k >= m->class_slots[class] || !room) {
            m->stats.prefetch_refused++;
            continue;
        }
        assert_true(at_fill < n_fill);
        const struct sl_fill *f = &fills[at_fill++];
        assert_int_equal(f->index, i);
        assert_int_equal(f->action, SL_FILL_START);
        assert_true(same(f->id, ids[i]));
        expect_claim(m, ids[i], f->lease);
        struct ref_slot *s = &m->slots[f->lease.slot];
        s->lookahead = !warm;
        s->warmup = warm;
        s->wished = warm ? NO_WISH : version;
        m->stats.prefetches += !warm;
        m->stats.warmups += warm;
    }
    assert_int_equal(at_fill, n_fill);
}

static void do_filled(struct model *m) {
    uint32_t i = below(m, n_slots(m));
    struct ref_slot *s = &m->slots[i];
    if (s->state != REF_LOADING)
        return;
    static const enum sl_status ends[] = {SL_OK, SL_OK,     SL_OK,          SL_OK,
                                          SL_OK, SL_ERR_IO, SL_ERR_CORRUPT, SL_ERR_CANCELED};
    enum sl_status end = ends[below(m, 8)];
    bool again = s->again;
    sl_cache_filled(m->cache, (struct sl_lease){i, s->generation}, end, 0);
    if (again) {
        s->again = false;
        s->lookahead = s->lookahead_before;
        s->warmup = s->warmup_before;
    }
    if (end == SL_OK) {
        s->state = REF_READY;
        m->stats.fills += !again;
        return;
    }
    m->stats.fills_canceled += !again && end == SL_ERR_CANCELED;
    m->stats.fills_failed += !again && end != SL_ERR_CANCELED;
    m->stats.prefetch_wasted += s->lookahead;
    s->failure = end;
    s->state = s->pins ? REF_FAILED : REF_FREE;
}

static void do_refill(struct model *m) {
    uint32_t i = below(m, n_slots(m));
    struct ref_slot *s = &m->slots[i];
    struct sl_expert_id id;
    struct sl_lease lease;
    assert_int_equal(sl_cache_refill(m->cache, i, &id, &lease), evictable(s));
    if (!evictable(s))
        return;
    assert_true(same(id, s->id));
    assert_int_equal(lease.slot, i);
    assert_int_equal(lease.generation, s->generation);
    s->state = REF_LOADING;
    s->again = true;
    s->lookahead_before = s->lookahead;
    s->warmup_before = s->warmup;
    s->lookahead = s->warmup = false;
    seen_refills++;
}

static void do_release(struct model *m) {
    if (m->n_held == 0)
        return;
    uint32_t n = 1 + below(m, m->n_held < 4 ? m->n_held : 4);
    struct sl_lease out[8];
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = below(m, m->n_held);
        out[i] = m->held[at];
        m->held[at] = m->held[--m->n_held];
        struct ref_slot *s = &m->slots[out[i].slot];
        s->pins--;
        if (s->pins == 0 && s->state == REF_FAILED)
            s->state = REF_FREE;
    }
    out[n] = (struct sl_lease){SL_SLOT_NONE, 0};
    sl_cache_release(m->cache, out, n + 1);
}

static void do_route(struct model *m) {
    struct sl_expert_id ids[64];
    uint16_t e[64];
    uint16_t layer = below(m, 4) ? (uint16_t)((sl_heat_position(m->heat) + 1) % m->n_layer)
                                 : (uint16_t)below(m, m->n_layer);
    uint32_t n = pick_ids(m, layer, m->k, ids);
    for (uint32_t i = 0; i < n; i++)
        e[i] = ids[i].expert;
    sl_heat_route(m->heat, layer, e, 1, n, below(m, 8) ? SL_PHASE_DECODE : SL_PHASE_PREFILL);
}

static void compare(struct model *m) {
    struct sl_cache_usage u, want = {0};
    sl_cache_check(m->cache);
    sl_cache_usage(m->cache, &u);
    for (uint32_t i = 0; i < n_slots(m); i++) {
        const struct ref_slot *s = &m->slots[i];
        want.free += s->state == REF_FREE;
        want.loading += s->state == REF_LOADING;
        want.ready += s->state == REF_READY;
        want.failed += s->state == REF_FAILED;
        want.pinned += s->pins > 0;
    }
    assert_memory_equal(&u, &want, sizeof u);
    assert_memory_equal(sl_cache_stats(m->cache), &m->stats, sizeof m->stats);
    for (uint16_t l = 0; l < m->n_layer; l++) {
        for (uint16_t e = 0; e < m->n_expert; e++) {
            uint32_t at = find(m, (struct sl_expert_id){l, e});
            assert_int_equal(sl_cache_is_ready(m->cache, (struct sl_expert_id){l, e}),
                             at != SL_SLOT_NONE && m->slots[at].state == REF_READY);
        }
    }
    for (uint32_t i = 0; i < m->n_held; i++) {
        const struct ref_slot *s = &m->slots[m->held[i].slot];
        assert_int_equal(s->generation, m->held[i].generation); /* leased was never evicted */
        assert_int_equal(sl_cache_ready(m->cache, m->held[i]), s->state == REF_READY ? SL_OK
                                                               : s->state == REF_LOADING
                                                                   ? SL_AGAIN
                                                                   : s->failure);
    }
}

static void run_seed(uint64_t seed) {
    struct sl_err err = {""};
    struct model *m = calloc(1, sizeof *m);
    assert_non_null(m);
    m->rng.state = seed;
    m->n_layer = 1 + below(m, 6);
    m->n_expert = 2 + below(m, 11);
    m->k = 1 + below(m, m->n_expert < 4 ? m->n_expert : 4);
    m->n_class = 1 + below(m, 3);
    for (uint32_t i = 0; i < m->n_class; i++) {
        m->class_slots[i] = m->k + below(m, 12);
        m->first[i + 1] = m->first[i] + m->class_slots[i];
    }
    for (uint32_t l = 0; l < m->n_layer; l++)
        m->class_of[l] = (uint8_t)below(m, m->n_class);
    struct sl_heat_config hc = {.n_layer = m->n_layer, .n_expert = m->n_expert, .k = m->k};
    assert_int_equal(sl_heat_create(&hc, &m->heat, &err), SL_OK);
    struct sl_cache_config cc = {.heat = m->heat,
                                 .layer_class = m->class_of,
                                 .n_class = m->n_class,
                                 .class_slots = m->class_slots};
    assert_int_equal(sl_cache_create(&cc, &m->cache, &err), SL_OK);
    for (uint32_t step = 0; step < 1500; step++) {
        switch (below(m, 11)) {
        case 0:
            do_prefetch(m);
            break;
        case 1:
            do_acquire(m, false);
            break;
        case 2:
            do_acquire(m, true);
            break;
        case 3:
            do_route(m);
            break;
        case 4:
        case 5:
        case 6:
            do_release(m);
            break;
        case 7:
            do_refill(m);
            break;
        default:
            do_filled(m);
        }
        if (step % 4 == 0)
            compare(m);
    }
    seen_evictions += m->stats.evictions;
    seen_again += m->stats.again;
    seen_failed += m->stats.fills_failed;
    seen_late += m->stats.prefetch_late;
    seen_used += m->stats.prefetch_used;
    seen_refused += m->stats.prefetch_refused;
    sl_cache_destroy(&m->cache);
    sl_heat_destroy(&m->heat);
    free(m);
}

static void random_calls_match_the_reference(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 120; seed++)
        run_seed(seed);
    /* The calls must have reached what they are meant to reach. */
    assert_true(seen_evictions > 5000 && seen_again > 1000 && seen_failed > 1000);
    assert_true(seen_late > 100 && seen_used > 100 && seen_refused > 1000 && seen_refills > 1000);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_calls_match_the_reference)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
