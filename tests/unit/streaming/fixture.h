/* What the reader's tests share: files with known bytes, experts laid out into slots, and a record
 * of how each read ended. */
#ifndef SL_TESTS_UNIT_STREAMING_FIXTURE_H
#define SL_TESTS_UNIT_STREAMING_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/rng.h"
#include "streaming/fake.h"
#include "streaming/reader.h"
#include "streaming/slab.h"
#include "tests/support/quiet_fill.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_TEST_READS 64u

static struct sl_err test_err;

#define assert_ok(call)                                                                            \
    do {                                                                                           \
        test_err.text[0] = 0;                                                                      \
        enum sl_status st_ = (call);                                                               \
        if (st_ != SL_OK)                                                                          \
            fail_msg("%s: %d: %s", #call, (int)st_, test_err.text);                                \
    } while (0)

static inline uint8_t *make_data(size_t n, uint64_t seed) {
    uint8_t *d = malloc(n + 8);
    assert_non_null(d);
    struct sl_rng r = {.state = seed};
    for (size_t i = 0; i < n; i += 8) {
        uint64_t x = sl_rng_u64(&r);
        memcpy(d + i, &x, 8);
    }
    return d;
}

/* Experts in a slab, and what became of them. */
struct rig {
    struct sl_reader *reader;
    struct sl_slab slab;
    struct sl_slot_layout layout;
    struct sl_read read[N_TEST_READS];
    enum sl_status status[N_TEST_READS];
    uint32_t n_done[N_TEST_READS];
    uint32_t order[N_TEST_READS * 4], n_order; /* reads in the order of their ends */
    struct sl_err err[N_TEST_READS];
    void (*then)(struct rig *rig, uint32_t i, enum sl_status status);
};

static inline void rig_done(struct sl_read *read, enum sl_status status) {
    struct rig *g = read->user;
    uint32_t i = (uint32_t)(read - g->read);
    g->status[i] = status;
    g->n_done[i]++;
    g->order[g->n_order++] = i;
    if (g->then)
        g->then(g, i, status);
}

/* Slots for n experts of three extents of these sizes. */
static inline void rig_init(struct rig *g, uint32_t n, const uint32_t size_bytes[3]) {
    memset(g, 0, sizeof *g);
    assert_true(n <= N_TEST_READS);
    assert_ok(sl_slot_layout_init(&g->layout, size_bytes, 3, 1, &test_err));
    assert_ok(sl_slab_init(&g->slab, (size_t)n * g->layout.slot_bytes, false, &test_err));
    quiet_fill(g->slab.base, 0xee, g->slab.size_bytes);
    for (uint32_t i = 0; i < n; i++) {
        g->read[i].n_extents = 3;
        g->read[i].slot = g->slab.base + (size_t)i * g->layout.slot_bytes;
        g->read[i].done = rig_done;
        g->read[i].user = g;
        g->read[i].err = &g->err[i];
        for (uint32_t e = 0; e < 3; e++) {
            g->read[i].extent[e].size_bytes = size_bytes[e];
            g->read[i].extent[e].place_bytes = g->layout.place_bytes[e];
        }
    }
}

static inline void rig_release(struct rig *g) {
    sl_reader_close(&g->reader);
    sl_slab_release(&g->slab);
}

/* Puts read i's extents at random places of the file. */
static inline void rig_scatter(struct rig *g, uint32_t i, uint32_t file, uint64_t file_bytes,
                               struct sl_rng *rng) {
    for (uint32_t e = 0; e < g->read[i].n_extents; e++) {
        struct sl_extent *x = &g->read[i].extent[e];
        x->file = file;
        x->offset_bytes = sl_rng_u64(rng) % (file_bytes - x->size_bytes + 1);
    }
}

static inline void rig_submit(struct rig *g, uint32_t first, uint32_t n) {
    for (uint32_t i = first; i < first + n; i++)
        g->read[i].next = i + 1 < first + n ? &g->read[i + 1] : NULL;
    assert_ok(sl_reader_submit(g->reader, &g->read[first], &test_err));
}

static inline void rig_wait_all(struct rig *g) {
    struct sl_reader_stats s;
    sl_reader_wait(g->reader, UINT32_MAX, -1);
    sl_reader_get_stats(g->reader, &s);
    assert_int_equal(s.waiting_reads, 0);
    assert_int_equal(s.flying_requests, 0);
}

static inline void rig_check_bytes(const struct rig *g, uint32_t i, const uint8_t *data) {
    for (uint32_t e = 0; e < g->read[i].n_extents; e++) {
        const struct sl_extent *x = &g->read[i].extent[e];
        const uint8_t *p = g->read[i].slot + sl_slot_payload_bytes(&g->layout, e, x->offset_bytes);
        assert_memory_equal(p, data + x->offset_bytes, x->size_bytes);
    }
}

static inline void rig_check_ok(const struct rig *g, uint32_t first, uint32_t n,
                                const uint8_t *data) {
    for (uint32_t i = first; i < first + n; i++) {
        assert_int_equal(g->n_done[i], 1);
        if (g->status[i] != SL_OK)
            fail_msg("read %u: %s", i, g->err[i].text);
        rig_check_bytes(g, i, data);
    }
}

#endif
