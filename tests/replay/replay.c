#include "tests/replay/replay.h"

#include "expert_cache/expert_cache.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *array(size_t n, size_t each) {
    void *p = calloc(n ? n : 1, each);
    if (!p) {
        perror("replay");
        exit(1);
    }
    return p;
}

/* ---- the trace ---- */

static void find_distinct(struct replay_trace *t) {
    uint32_t n = t->shape.n_expert, k = t->shape.k;
    uint32_t *seen = array(n, sizeof *seen);
    uint64_t at = 0;
    for (uint32_t i = 0; i < t->n_steps; i++) {
        struct replay_step *s = &t->steps[i];
        s->distinct_at = at;
        for (uint64_t j = s->rows_at; j < s->rows_at + (uint64_t)s->n_rows * k; j++) {
            if (seen[t->ids[j]] == i + 1)
                continue;
            seen[t->ids[j]] = i + 1;
            t->distinct[at++] = t->ids[j];
        }
        s->n_distinct = (uint32_t)(at - s->distinct_at);
    }
    free(seen);
    uint32_t *next = array((size_t)t->shape.n_layer * n, sizeof *next);
    memset(next, 0xff, (size_t)t->shape.n_layer * n * sizeof *next);
    for (uint32_t i = t->n_steps; i-- > 0;) {
        const struct replay_step *s = &t->steps[i];
        for (uint64_t j = s->distinct_at; j < s->distinct_at + s->n_distinct; j++) {
            uint32_t *at_expert = &next[(size_t)s->layer * n + t->distinct[j]];
            t->next_use[j] = *at_expert;
            *at_expert = i;
        }
    }
    free(next);
}

enum sl_status replay_open(const uint8_t *image, size_t size_bytes, struct replay_trace *out_trace,
                           struct sl_err *err) {
    struct sl_trace_reader r;
    SL_TRY(sl_trace_open(&r, image, size_bytes, err));
    uint32_t k = r.shape.k;
    struct replay_trace t = {.shape = r.shape};
    t.steps = array(r.n_records, sizeof *t.steps);
    t.ids = array(r.n_records * k, sizeof *t.ids);
    t.distinct = array(r.n_records * k, sizeof *t.distinct);
    t.next_use = array(r.n_records * k, sizeof *t.next_use);
    struct sl_trace_record rec;
    bool end = false;
    enum sl_status status;
    for (uint64_t at = 0;; at += k) {
        status = sl_trace_next(&r, &rec, &end, err);
        if (status != SL_OK || end)
            break;
        if (rec.first_of_step)
            t.steps[t.n_steps++] =
                (struct replay_step){.layer = rec.layer, .phase = rec.phase, .rows_at = at};
        t.steps[t.n_steps - 1].n_rows++;
        memcpy(t.ids + at, rec.ids, k * sizeof *t.ids);
    }
    if (status != SL_OK) {
        replay_close(&t);
        return status;
    }
    find_distinct(&t);
    t.measure_from = t.n_steps / 4;
    *out_trace = t;
    return SL_OK;
}

void replay_close(struct replay_trace *t) {
    free(t->steps);
    free(t->ids);
    free(t->distinct);
    free(t->next_use);
    *t = (struct replay_trace){0};
}

double replay_repeat_share(const struct replay_trace *t) {
    uint64_t same = 0, all = 0;
    uint32_t *last = array((size_t)t->shape.n_layer * t->shape.n_expert, sizeof *last);
    uint32_t *turn = array(t->shape.n_layer, sizeof *turn);
    for (uint32_t i = 0; i < t->n_steps; i++) {
        const struct replay_step *s = &t->steps[i];
        uint32_t now = ++turn[s->layer];
        for (uint64_t j = s->distinct_at; j < s->distinct_at + s->n_distinct; j++) {
            uint32_t *l = &last[(size_t)s->layer * t->shape.n_expert + t->distinct[j]];
            same += now > 1 && *l == now - 1;
            all += now > 1;
            *l = now;
        }
    }
    free(last);
    free(turn);
    return all ? (double)same / (double)all : 0;
}

/* ---- policies that keep an order of the evictable: a heap of experts, least key first ---- */

struct order {
    double *key;    /* [experts] */
    uint32_t *heap; /* [experts] */
    uint32_t *at;   /* [experts] place in the heap + 1, 0 when not in it */
    uint32_t n;
};

static void put(struct order *o, uint32_t at, uint32_t e) {
    o->heap[at] = e;
    o->at[e] = at + 1;
}

static void sift(struct order *o, uint32_t at) {
    uint32_t e = o->heap[at];
    while (at > 0 && o->key[e] < o->key[o->heap[(at - 1) / 2]]) {
        put(o, at, o->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= o->n)
            break;
        if (child + 1 < o->n && o->key[o->heap[child + 1]] < o->key[o->heap[child]])
            child++;
        if (o->key[o->heap[child]] >= o->key[e])
            break;
        put(o, at, o->heap[child]);
        at = child;
    }
    put(o, at, e);
}

static void add(struct order *o, uint32_t e) {
    put(o, o->n++, e);
    sift(o, o->n - 1);
}

static void take_out(struct order *o, uint32_t e) {
    uint32_t at = o->at[e] - 1, last = o->heap[--o->n];
    o->at[e] = 0;
    if (last == e)
        return;
    put(o, at, last);
    sift(o, at);
}

struct baseline {
    const struct replay_trace *t;
    enum replay_policy policy;
    uint32_t n_slots, n_used;
    struct order order;
    uint8_t *resident;
    uint8_t *fixed; /* of the static choice */
    double *count;
    uint32_t *wave; /* pinned now */
    uint32_t n_wave;
};

static double *sort_counts;
static int by_count(const void *a, const void *b) {
    double x = sort_counts[*(const uint32_t *)a], y = sort_counts[*(const uint32_t *)b];
    return x > y ? -1 : x < y;
}

/* Fills all but k slots with the most used experts of the measured part. */
static void choose_static(struct baseline *b) {
    const struct replay_trace *t = b->t;
    uint32_t n = t->shape.n_layer * t->shape.n_expert;
    double *count = array(n, sizeof *count);
    uint32_t *by = array(n, sizeof *by);
    for (uint32_t i = t->measure_from; i < t->n_steps; i++)
        for (uint64_t j = 0; j < t->steps[i].n_distinct; j++)
            count[t->steps[i].layer * t->shape.n_expert +
                  t->distinct[t->steps[i].distinct_at + j]]++;
    for (uint32_t e = 0; e < n; e++)
        by[e] = e;
    sort_counts = count;
    qsort(by, n, sizeof *by, by_count);
    for (uint32_t i = 0; i < n && i + t->shape.k < b->n_slots; i++) {
        b->fixed[by[i]] = b->resident[by[i]] = 1;
        b->n_used++;
    }
    free(by);
    free(count);
}

static void use(struct baseline *b, uint32_t e, uint32_t step, uint32_t next_use) {
    double turn = (double)step / b->t->shape.n_layer, *key = &b->order.key[e];
    switch (b->policy) {
    case REPLAY_LRU:
    case REPLAY_STATIC:
        *key = step;
        break;
    case REPLAY_LFU:
        *key = ++b->count[e] + (double)step * 1e-9; /* the older of two that are equal goes */
        break;
    case REPLAY_LFU_DECAYED: {
        /* log2 of the decayed count, as of the trace's start: the order is the same at any time. */
        double now = turn / 256.0;
        *key = b->count[e]++ > 0 ? fmax(*key, now) + log2(1.0 + exp2(-fabs(*key - now))) : now;
        break;
    }
    default:
        *key = -(double)next_use;
    }
}

static void end_wave(struct baseline *b) {
    for (uint32_t i = 0; i < b->n_wave; i++)
        add(&b->order, b->wave[i]);
    b->n_wave = 0;
}

static uint32_t run_step(struct baseline *b, uint32_t i) {
    const struct replay_trace *t = b->t;
    const struct replay_step *s = &t->steps[i];
    uint32_t base = (uint32_t)s->layer * t->shape.n_expert, hits = 0;
    uint32_t n_misses = 0;
    uint8_t hit[4096];
    for (uint32_t j = 0; j < s->n_distinct; j++) { /* all that are there are pinned first */
        uint32_t e = base + t->distinct[s->distinct_at + j];
        hit[j] = b->resident[e];
        if (!hit[j])
            continue;
        hits++;
        if (b->fixed[e])
            continue;
        take_out(&b->order, e);
        use(b, e, i, t->next_use[s->distinct_at + j]);
        b->wave[b->n_wave++] = e;
    }
    for (uint32_t j = 0; j < s->n_distinct; j++) {
        uint32_t e = base + t->distinct[s->distinct_at + j];
        if (hit[j])
            continue;
        if (n_misses++ == t->shape.k) {
            end_wave(b);
            n_misses = 1;
        }
        if (b->n_used == b->n_slots) {
            if (b->order.n == 0)
                end_wave(b);
            uint32_t victim = b->order.heap[0];
            take_out(&b->order, victim);
            b->resident[victim] = 0;
            b->n_used--;
        }
        use(b, e, i, t->next_use[s->distinct_at + j]);
        b->resident[e] = 1;
        b->n_used++;
        b->wave[b->n_wave++] = e;
    }
    end_wave(b);
    return hits;
}

static double run_baseline(const struct replay_trace *t, enum replay_policy policy,
                           uint32_t n_slots) {
    uint32_t n = t->shape.n_layer * t->shape.n_expert;
    struct baseline b = {.t = t, .policy = policy, .n_slots = n_slots};
    b.order.key = array(n, sizeof *b.order.key);
    b.order.heap = array(n, sizeof *b.order.heap);
    b.order.at = array(n, sizeof *b.order.at);
    b.resident = array(n, 1);
    b.fixed = array(n, 1);
    b.count = array(n, sizeof *b.count);
    b.wave = array(n, sizeof *b.wave);
    if (policy == REPLAY_STATIC)
        choose_static(&b);
    uint64_t hits = 0, all = 0;
    for (uint32_t i = 0; i < t->n_steps; i++) {
        uint32_t h = run_step(&b, i);
        assert(b.n_used <= n_slots);
        if (i < t->measure_from)
            continue;
        hits += h;
        all += t->steps[i].n_distinct;
    }
    free(b.order.key);
    free(b.order.heap);
    free(b.order.at);
    free(b.resident);
    free(b.fixed);
    free(b.count);
    free(b.wave);
    return (double)hits / (double)all;
}

/* ---- ours ---- */

static void run_ours_step(struct sl_cache *c, const struct replay_trace *t,
                          const struct replay_step *s) {
    struct sl_expert_id ids[4096];
    struct sl_lease leases[4096];
    struct sl_fill fills[4096];
    uint32_t n = s->n_distinct, n_fill, n_taken;
    for (uint32_t j = 0; j < n; j++)
        ids[j] = (struct sl_expert_id){s->layer, t->distinct[s->distinct_at + j]};
    while (n > 0) {
        enum sl_status status =
            sl_cache_acquire_some(c, ids, n, t->shape.k, 0, leases, fills, &n_fill, &n_taken);
        assert(status == SL_OK);
        for (uint32_t j = 0; j < n_fill; j++)
            sl_cache_filled(c, fills[j].lease, SL_OK, 0);
        sl_cache_release(c, leases, n);
        uint32_t left = 0;
        for (uint32_t j = 0; j < n; j++)
            if (leases[j].slot == SL_SLOT_NONE)
                ids[left++] = ids[j];
        n = left;
    }
}

static double run_ours(const struct replay_trace *t, uint32_t n_slots) {
    struct sl_err err;
    struct sl_heat *heat = NULL;
    struct sl_cache *cache = NULL;
    struct sl_heat_config hc = {
        .n_layer = t->shape.n_layer, .n_expert = t->shape.n_expert, .k = t->shape.k};
    struct sl_cache_config cc = {.n_class = 1, .class_slots = &n_slots, .source = SL_TIER_DISK};
    if (sl_heat_create(&hc, &heat, &err) != SL_OK ||
        (cc.heat = heat, sl_cache_create(&cc, &cache, &err)) != SL_OK) {
        fprintf(stderr, "replay: %s\n", err.text);
        exit(1);
    }
    uint64_t hits_before = 0, all = 0;
    for (uint32_t i = 0; i < t->n_steps; i++) {
        const struct replay_step *s = &t->steps[i];
        if (i == t->measure_from)
            hits_before = sl_cache_stats(cache)->hits;
        if (i >= t->measure_from)
            all += s->n_distinct;
        sl_heat_route(heat, s->layer, t->ids + s->rows_at, s->n_rows, t->shape.k, s->phase);
        run_ours_step(cache, t, s);
    }
    sl_cache_check(cache);
    double share = (double)(sl_cache_stats(cache)->hits - hits_before) / (double)all;
    sl_cache_destroy(&cache);
    sl_heat_destroy(&heat);
    return share;
}

double replay_run(const struct replay_trace *t, enum replay_policy policy, uint32_t n_slots) {
    return policy == REPLAY_OURS ? run_ours(t, n_slots) : run_baseline(t, policy, n_slots);
}
