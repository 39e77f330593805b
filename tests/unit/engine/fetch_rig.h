/* A fetch over the fake disk, with real bytes and a virtual clock, and a device whose only op
 * compares what it is given with the file. */
#ifndef TESTS_ENGINE_FETCH_RIG_H
#define TESTS_ENGINE_FETCH_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backends/backend_table.h"
#include "backends/ops/moe.h"
#include "common/log.h"
#include "common/rng.h"
#include "engine/experts/expert_fetch.h"
#include "streaming/fake.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ROWS 40u
#define N_EMBD   32u
#define FAULTS   6u

static struct sl_err test_err __attribute__((unused));

#define assert_ok(call)                                                                            \
    do {                                                                                           \
        enum sl_status ok_st = (call);                                                             \
        if (ok_st != SL_OK)                                                                        \
            fail_msg("%s: %d: %s", #call, (int)ok_st, test_err.text);                              \
    } while (0)

struct shape {
    uint32_t n_layer, n_expert, k;
    uint32_t slots[2]; /* of even and odd layers; the second 0: one class for all */
};

struct rig {
    struct sl_device dev; /* first: the op finds the rig by it */
    struct sl_expert_layout layout;
    struct sl_slab slab;
    struct sl_slots slots;
    struct sl_fake_clock clock;
    struct sl_reader *reader;
    struct sl_fetch *fetch;
    struct sl_fake_fault faults[FAULTS];
    uint8_t *data;
    uint64_t data_bytes;
    uint32_t layer;
    uint32_t ids[MAX_ROWS * 8];
    uint8_t failed[MAX_ROWS];
    uint32_t n_computed[MAX_ROWS * 8];
    float x[MAX_ROWS * 8 * N_EMBD];
    uint64_t moe_ns;
    enum sl_status moe_status;
    uint32_t n_calls, asked, stop_at; /* the give-up is said at this question; 0: never */
};

static inline enum sl_status rig_moe(struct sl_device *d, const struct sl_op_moe *a) {
    struct rig *g = (struct rig *)d;
    const struct sl_routed_layer *l = &g->layout.layers[g->layer];
    g->n_calls++;
    uint64_t start = g->clock.now_ns;
    if (a->overlap && d->caps.overlap)
        a->overlap(a->overlap_ctx);
    if (g->clock.now_ns < start + g->moe_ns)
        g->clock.now_ns = start + g->moe_ns;
    if (g->moe_status != SL_OK)
        return g->moe_status;
    for (uint32_t i = 0; i < a->n_pairs; i++) {
        uint32_t p = a->pairs ? a->pairs[i] : i, e = a->ids[p];
        const void *at[3] = {a->refs[e].gate, a->refs[e].up, a->refs[e].down};
        for (uint32_t x = 0; x < 3; x++) {
            uint32_t n = l->extent[x].size_bytes;
            assert_memory_equal(at[x], g->data + l->extent[x].offset_bytes + (uint64_t)e * n, n);
        }
        g->n_computed[p]++;
    }
    return SL_OK;
}

static inline enum sl_status rig_configure(struct sl_device *d,
                                           const struct sl_device_limits *limits) {
    (void)d;
    (void)limits;
    return SL_OK;
}

static const struct sl_backend_ops rig_ops = {
    .name = "rig", .configure = rig_configure, .moe = rig_moe};

static inline uint64_t rig_now(void *clock) {
    return ((struct sl_fake_clock *)clock)->now_ns;
}

static const uint32_t extents[2][3] = {{20000, 3001, 4097}, {2000, 9000, 2048}};

static inline void make_layout(struct rig *g, const struct shape *s) {
    struct sl_expert_layout *l = &g->layout;
    *l = (struct sl_expert_layout){
        .n_layer = s->n_layer, .n_expert = s->n_expert, .k = s->k, .n_class = s->slots[1] ? 2 : 1};
    l->layers = calloc(s->n_layer, sizeof *l->layers);
    l->layer_class = calloc(s->n_layer, 1);
    assert_true(l->layers && l->layer_class);
    for (uint32_t c = 0; c < l->n_class; c++)
        assert_ok(sl_slot_layout_init(&l->classes[c].slot, extents[c], 3, 1, &test_err));
    uint64_t at = 77;
    for (uint32_t i = 0; i < s->n_layer; i++) {
        uint32_t c = l->n_class == 2 ? i % 2 : 0;
        l->layer_class[i] = (uint8_t)c;
        l->layers[i] = (struct sl_routed_layer){
            .model_layer = i + 1, .size_class = c, .n_expert = s->n_expert, .k = s->k};
        l->n_all += s->n_expert;
        for (uint32_t x = 0; x < 3; x++) {
            l->layers[i].extent[x].offset_bytes = at;
            l->layers[i].extent[x].size_bytes = extents[c][x];
            l->layers[i].extent[x].stride_bytes = extents[c][x];
            l->layers[i].expert_bytes += extents[c][x];
            at += (uint64_t)s->n_expert * extents[c][x];
        }
    }
    g->data_bytes = at;
    g->data = malloc(at + 8);
    assert_non_null(g->data);
    struct sl_rng rng = {.state = 9};
    for (uint64_t i = 0; i < at; i += 8) {
        uint64_t x = sl_rng_u64(&rng);
        memcpy(g->data + i, &x, 8);
    }
}

struct rig_config {
    struct shape shape;
    uint64_t latency_ns, reorder_seed;
    uint64_t file_bytes; /* 0: all of it */
    bool no_lookahead;
    uint32_t depth; /* 0: 8, with which queues are always full */
};

static inline struct rig *rig_open(const struct rig_config *c) {
    struct rig *g = calloc(1, sizeof *g);
    assert_non_null(g);
    make_layout(g, &c->shape);
    uint32_t slot_bytes[2] = {g->layout.classes[0].slot.slot_bytes,
                              g->layout.classes[1].slot.slot_bytes};
    size_t bytes = sl_slots_size_bytes(slot_bytes, c->shape.slots, g->layout.n_class);
    assert_ok(sl_slab_init(&g->slab, bytes, false, &test_err));
    assert_ok(sl_slots_init(&g->slots, &g->slab, 0, slot_bytes, c->shape.slots, g->layout.n_class,
                            &test_err));
    g->clock.now_ns = 1;
    g->moe_ns = 1000;
    assert_ok(sl_fake_open(
        &(struct sl_fake_config){
            .clock = &g->clock,
            .reader = {.slab = &g->slab, .depth = c->depth ? c->depth : 8, .background_depth = 4},
            .reorder_seed = c->reorder_seed,
            .reorder_ns = 300000,
            .drive[0] = {.bytes_per_s = 1000000000,
                         .latency_ns = c->latency_ns ? c->latency_ns : 50000,
                         .drive_depth = 4}},
        &g->reader, &test_err));
    uint32_t file;
    assert_ok(sl_fake_add_file(g->reader, SL_READER_FILES, g->data,
                               c->file_bytes ? c->file_bytes : g->data_bytes, &file, &test_err));
    assert_ok(sl_fetch_create(&(struct sl_fetch_config){.layout = &g->layout,
                                                        .slots = &g->slots,
                                                        .reader = g->reader,
                                                        .max_rows = MAX_ROWS,
                                                        .no_lookahead = c->no_lookahead,
                                                        .now_ns = rig_now,
                                                        .clock = &g->clock},
                              &g->fetch, &test_err));
    g->dev.ops = &rig_ops;
    g->dev.caps.host_visible = true;
    g->dev.caps.weight_dtype[SL_DTYPE_F32] = true;
    assert_ok(sl_device_configure(&g->dev,
                                  &(struct sl_device_limits){.max_tok = MAX_ROWS,
                                                             .max_n_in = N_EMBD,
                                                             .max_pairs = MAX_ROWS * 8,
                                                             .max_n_embd = N_EMBD,
                                                             .max_n_ff = N_EMBD,
                                                             .max_expert = 64,
                                                             .max_heads = 1,
                                                             .max_head_dim = N_EMBD},
                                  &test_err));
    return g;
}

static inline void rig_close(struct rig *g) {
    sl_fetch_quit(g->fetch);
    sl_cache_check(sl_fetch_cache(g->fetch));
    struct sl_cache_usage u;
    sl_cache_usage(sl_fetch_cache(g->fetch), &u);
    assert_int_equal(u.loading, 0);
    assert_int_equal(u.pinned, 0);
    sl_fetch_destroy(&g->fetch);
    assert_null(g->fetch);
    sl_reader_close(&g->reader);
    sl_slab_release(&g->slab);
    sl_expert_layout_release(&g->layout);
    free(g->data);
    free(g);
}

/* An error on every read of this expert: of its extent x. */
static inline struct sl_fake_fault fault_on(const struct rig *g, uint32_t layer, uint32_t expert,
                                            uint32_t x) {
    uint64_t n = g->layout.layers[layer].extent[x].size_bytes;
    uint64_t first = g->layout.layers[layer].extent[x].offset_bytes + expert * n;
    /* Its middle: of the first extent of even layers no neighbour reads that block too. */
    return (struct sl_fake_fault){
        .first_byte = first + n / 2, .last_byte = first + n / 2, .error = EIO};
}

static inline bool rig_asked(void *ctx) {
    struct rig *g = ctx;
    return ++g->asked == g->stop_at;
}

static inline void rig_begin(struct rig *g, uint32_t layer, uint32_t n, uint32_t n_decode) {
    g->layer = layer;
    sl_fetch_begin(g->fetch, layer,
                   &(struct sl_fetch_rows){g->ids, n, n_decode, g->failed, n - n_decode});
    sl_cache_check(sl_fetch_cache(g->fetch));
}

static inline enum sl_status rig_finish(struct rig *g, uint32_t n, uint32_t n_decode,
                                        uint32_t *out_n_failed) {
    uint32_t k = g->layout.k;
    struct sl_op_moe op = {.x = g->x,
                           .ids = g->ids,
                           .pair_y = g->x,
                           .n_tok = n,
                           .n_decode = n_decode,
                           .k = k,
                           .n_expert = g->layout.n_expert,
                           .n_embd = N_EMBD,
                           .n_ff = N_EMBD};
    op.gate_dtype = op.up_dtype = op.down_dtype = SL_DTYPE_F32;
    memset(g->n_computed, 0, sizeof g->n_computed);
    g->asked = 0;
    struct sl_fetch_abort give_up = {rig_asked, g};
    test_err.text[0] = 0;
    enum sl_status status =
        sl_fetch_run(g->fetch, &g->dev, &op, g->stop_at ? &give_up : NULL, out_n_failed, &test_err);
    sl_cache_check(sl_fetch_cache(g->fetch));
    struct sl_cache_usage u;
    sl_cache_usage(sl_fetch_cache(g->fetch), &u);
    assert_int_equal(u.pinned, 0);
    for (uint32_t p = 0; p < n * k; p++) {
        assert_true(g->n_computed[p] <= 1);
        if (status == SL_OK && !g->failed[p / k])
            assert_int_equal(g->n_computed[p], 1);
    }
    return status;
}

static inline enum sl_status rig_step(struct rig *g, uint32_t layer, uint32_t n, uint32_t n_decode,
                                      uint32_t *out_n_failed) {
    rig_begin(g, layer, n, n_decode);
    return rig_finish(g, n, n_decode, out_n_failed);
}

/* k distinct experts per row. */
static inline void choose(struct rig *g, struct sl_rng *rng, uint32_t n) {
    uint32_t k = g->layout.k;
    for (uint32_t t = 0; t < n; t++)
        for (uint32_t j = 0; j < k;) {
            uint32_t e = sl_rng_below(rng, g->layout.n_expert), i = 0;
            while (i < j && g->ids[t * k + i] != e)
                i++;
            if (i == j)
                g->ids[t * k + j++] = e;
        }
}

/* Row t: the experts 3t, 3t + 1, 3t + 2 ... */
static inline void choose_in_turn(struct rig *g, uint32_t n) {
    for (uint32_t p = 0; p < n * g->layout.k; p++)
        g->ids[p] = p % g->layout.n_expert;
    memset(g->failed, 0, sizeof g->failed);
}

#endif
