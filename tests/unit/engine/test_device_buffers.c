/* Buffers, spans of them, and pools of several, on the CPU and on a card: one whose addresses are
 * none of the host's, and one that knows everything by the host's own. */
#include "tests/unit/engine/fixture.h"

#include "backends/buffer_pool.h"
#include "backends/cpu/cpu.h"
#include "tests/support/card.h"

#define MIB ((uint64_t)1 << 20)

static struct card_source source;

static struct sl_device *open_card(struct card_config config) {
    struct sl_device *d;
    config.n_threads = 1;
    card_source_init(&source, &config);
    assert_ok(source.source.open(&source.source, 0, &d, &test_err));
    return d;
}

static void *pages(size_t bytes) {
    void *p = aligned_alloc(4096, bytes);
    assert_non_null(p);
    return p;
}

/* ---- spans ---- */

/* What does not lie within its buffer, or is another device's, is refused by every call. */
static void bounds(void **state) {
    (void)state;
    struct sl_device *d = open_card((struct card_config){.n_cards = 2}), *other;
    struct sl_buffer *a = NULL, *b = NULL, *there = NULL, *mapped = NULL, *none = NULL;
    char *host = pages(8192), bytes[256] = "";
    assert_ok(source.source.open(&source.source, 1, &other, &test_err));
    assert_int_equal(sl_device_alloc(d, 100, &a), SL_OK);
    assert_int_equal(sl_device_alloc(d, 100, &b), SL_OK);
    assert_int_equal(sl_device_alloc(other, 100, &there), SL_OK);
    assert_int_equal(sl_device_map_host(d, host, 8192, &mapped), SL_OK);
    assert_true(mapped->host == host && mapped->kind == SL_BUFFER_MAPPED && !a->host);
    const struct sl_span wrong[] = {
        sl_span(a, 0, 101),        sl_span(a, 100, 1),      sl_span(a, 101, 0),
        sl_span(a, SIZE_MAX, 2),   sl_span(a, 2, SIZE_MAX), sl_span_at(a, (char *)a->addr - 1, 1),
        sl_span_at(a, b->addr, 1), sl_span_all(there),      {NULL, 0, 1}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct sl_span s = wrong[i], right = sl_span(b, 0, s.bytes <= 100 ? s.bytes : 1);
        assert_int_equal(sl_device_upload(d, s, bytes), SL_ERR_INVALID);
        assert_int_equal(sl_device_download(d, bytes, s), SL_ERR_INVALID);
        assert_int_equal(sl_device_copy(d, SL_QUEUE_OPS, s, right), SL_ERR_INVALID);
        assert_int_equal(sl_device_copy(d, SL_QUEUE_OPS, right, s), SL_ERR_INVALID);
        assert_int_equal(sl_device_copy_from(d, s, other, sl_span_all(there)), SL_ERR_INVALID);
    }
    const struct sl_span outside[] = {sl_span(mapped, 8192, 1), sl_span(mapped, 1, 8192)};
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(sl_device_copy(d, SL_QUEUE_UP, sl_span(a, 0, 1), outside[i]),
                         SL_ERR_INVALID);
    /* Lengths that differ, the host's to the host's, and another device's memory that is its
     * host's. */
    assert_int_equal(sl_device_copy(d, SL_QUEUE_OPS, sl_span(a, 0, 4), sl_span(b, 0, 5)),
                     SL_ERR_INVALID);
    assert_int_equal(sl_device_copy(d, SL_QUEUE_OPS, sl_span(mapped, 0, 4), sl_span(mapped, 8, 4)),
                     SL_ERR_INVALID);
    assert_int_equal(sl_device_copy_from(other, sl_span(there, 0, 4), d, sl_span(mapped, 0, 4)),
                     SL_ERR_INVALID);
    /* To the last byte, and of none. */
    assert_int_equal(sl_device_upload(d, sl_span(a, 99, 1), bytes), SL_OK);
    assert_int_equal(sl_device_upload(d, sl_span(a, 100, 0), bytes), SL_OK);
    assert_int_equal(sl_device_copy(d, SL_QUEUE_UP, sl_span(a, 0, 100), sl_span(mapped, 8092, 100)),
                     SL_OK);
    assert_int_equal(sl_device_sync(d), SL_OK);
    sl_device_free(d, &none);
    sl_device_unmap_host(d, &none);
    sl_device_free(d, &a);
    assert_null(a);
    sl_device_free(d, &b);
    sl_device_free(other, &there);
    sl_device_unmap_host(d, &mapped);
    assert_null(mapped);
    sl_device_close(&other);
    sl_device_close(&d);
    free(host);
}

/* The kinds of two buffers say which way a copy goes, also where one address names both sides: the
 * card's copy of what is mapped begins where the host's does. */
static void directions(void **state) {
    (void)state;
    for (int same = 0; same < 2; same++)
        for (int recorded = 0; recorded < 2; recorded++) {
            struct sl_device *d = open_card((struct card_config){.same_addresses = same});
            struct sl_buffer *a = NULL, *b = NULL, *mapped = NULL;
            struct sl_graph *graph = NULL;
            char *host = pages(4096), got[8];
            assert_int_equal(sl_device_alloc(d, 64, &a), SL_OK);
            assert_int_equal(sl_device_alloc(d, 64, &b), SL_OK);
            assert_int_equal(sl_device_map_host(d, host, 4096, &mapped), SL_OK);
            assert_int_equal(mapped->addr == mapped->host, same);
            assert_null(a->host); /* nobody may follow it all the same */
            memset(host, 0, 4096);
            strcpy(host, "up");
            if (recorded)
                assert_int_equal(sl_device_record(d), SL_OK);
            assert_int_equal(
                sl_device_copy(d, SL_QUEUE_OPS, sl_span(a, 8, 8), sl_span(mapped, 0, 8)), SL_OK);
            assert_int_equal(sl_device_copy(d, SL_QUEUE_OPS, sl_span(b, 0, 8), sl_span(a, 8, 8)),
                             SL_OK);
            assert_int_equal(
                sl_device_copy(d, SL_QUEUE_OPS, sl_span(mapped, 100, 8), sl_span(b, 0, 8)), SL_OK);
            if (recorded) {
                assert_int_equal(sl_device_recorded(d, &graph), SL_OK);
                assert_int_equal(sl_device_replay(d, graph), SL_OK);
            }
            assert_int_equal(host[100], 0);
            assert_int_equal(sl_device_download(d, got, sl_span(b, 0, 8)), SL_OK);
            assert_string_equal(got, "up");
            assert_string_equal(host + 100, "up");
            assert_int_equal(source.stats.back_bytes, 8);
            sl_graph_free(d, &graph);
            sl_device_free(d, &a);
            sl_device_free(d, &b);
            sl_device_unmap_host(d, &mapped);
            sl_device_close(&d);
            free(host);
        }
}

/* ---- the largest buffer ---- */

static void largest(void **state) {
    (void)state;
    struct sl_buffer *b = NULL;
    struct sl_device *d = open_card((struct card_config){.n_threads = 1});
    assert_int_equal(sl_device_alloc(d, 64 * MIB + 1, &b), SL_ERR_UNSUPPORTED);
    sl_device_close(&d);
    d = open_card((struct card_config){.max_alloc_bytes = MIB});
    void *host = pages(2 * MIB);
    assert_int_equal(sl_device_alloc(d, MIB + 1, &b), SL_ERR_UNSUPPORTED);
    assert_int_equal(sl_device_map_host(d, host, MIB + 4096, &b), SL_ERR_UNSUPPORTED);
    assert_null(b);
    assert_int_equal(sl_device_alloc(d, MIB, &b), SL_OK);
    sl_device_free(d, &b);
    sl_device_close(&d);
    free(host);
}

/* ---- pools ---- */

/* Every item lies within one buffer, on its alignment, and none on another. */
static void check_pool(const struct sl_buffer_pool *p, const struct sl_buffer_items *items,
                       uint32_t n_items, uint64_t most) {
    for (uint32_t k = 0; k < n_items; k++)
        for (uint32_t i = 0; i < items[k].n; i++) {
            struct sl_span s = sl_buffer_pool_at(p, &items[k], i);
            assert_int_equal(s.bytes, items[k].bytes);
            assert_true(s.offset + s.bytes <= s.buffer->bytes);
            assert_true(!most || s.buffer->bytes <= most);
            if (!i)
                assert_int_equal((uintptr_t)sl_span_addr(s) % p->align_bytes, 0);
            for (uint32_t m = 0; m <= k; m++)
                for (uint32_t j = 0; j < (m == k ? i : items[m].n); j++) {
                    struct sl_span o = sl_buffer_pool_at(p, &items[m], j);
                    assert_true(o.buffer != s.buffer || o.offset + o.bytes <= s.offset ||
                                s.offset + s.bytes <= o.offset);
                }
        }
}

static void pools(void **state) {
    (void)state;
    static const struct {
        uint64_t max;
        size_t align;
        uint32_t n_parts;
        uint64_t bytes; /* of all buffers */
    } cases[] = {
        {MIB * 64, 0, 1, 10 * 4096 + 3 * 10000 + 16 + 7 * 64},
        {20000, 0, 4, 0},
        {12352, 0, 6, 0},
        {10048, 64, 8, 0},
        {MIB * 64, 4096, 1, 0},
        {20480, 4096, 5, 0},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct sl_device *d = open_card((struct card_config){.max_alloc_bytes = cases[c].max});
        struct sl_buffer_pool p;
        struct sl_buffer_items items[4];
        sl_buffer_pool_init(&p, d, cases[c].align);
        assert_int_equal(sl_buffer_pool_add(&p, 10, 4096, &items[0]), SL_OK);
        assert_int_equal(sl_buffer_pool_add(&p, 3, 10000, &items[1]), SL_OK);
        assert_int_equal(sl_buffer_pool_add(&p, 0, 1 << 30, &items[2]), SL_OK);
        assert_int_equal(sl_buffer_pool_add(&p, 7, 64, &items[3]), SL_OK);
        uint64_t bytes = sl_buffer_pool_bytes(&p);
        if (cases[c].bytes)
            assert_int_equal(bytes, cases[c].bytes);
        assert_true(p.n_parts >= cases[c].n_parts);
        assert_int_equal(source.stats.n_allocs, 0);
        assert_int_equal(sl_buffer_pool_alloc(&p, d), SL_OK);
        assert_int_equal(source.stats.used_bytes, bytes);
        assert_int_equal(source.stats.n_allocs, p.n_parts);
        check_pool(&p, items, 4, cases[c].max);
        sl_buffer_pool_release(&p);
        sl_buffer_pool_release(&p);
        assert_int_equal(source.stats.used_bytes, 0);
        sl_device_close(&d);
    }
}

/* An item that no buffer holds; sizes that overflow; a device that runs out of memory half way. */
static void pools_refused(void **state) {
    (void)state;
    struct sl_device *d = open_card((struct card_config){.max_alloc_bytes = MIB, .fail_alloc = 3});
    struct sl_buffer_pool p;
    struct sl_buffer_items items;
    sl_buffer_pool_init(&p, d, 4096);
    assert_int_equal(sl_buffer_pool_add(&p, 1, MIB - 4095, &items), SL_ERR_UNSUPPORTED);
    assert_int_equal(sl_buffer_pool_refuse(d, "a thing", 3 * MIB, "do less", &test_err),
                     SL_ERR_UNSUPPORTED);
    assert_string_equal(
        test_err.text,
        "card: a thing takes 3.0 MiB, and the largest buffer there has 1.0 MiB: do less");
    sl_buffer_pool_release(&p);
    sl_buffer_pool_init(&p, NULL, 0);
    assert_int_equal(sl_buffer_pool_add(&p, 1, SIZE_MAX, &items), SL_ERR_NOMEM);
    sl_buffer_pool_release(&p);
    sl_buffer_pool_init(&p, d, 0);
    assert_int_equal(sl_buffer_pool_add(&p, 4, MIB, &items), SL_OK);
    assert_int_equal(sl_buffer_pool_alloc(&p, d), SL_ERR_DEVICE_OOM);
    assert_int_equal(source.stats.used_bytes, 0);
    sl_buffer_pool_release(&p);
    sl_device_close(&d);
}

/* Memory of the host in buffers of its own, none of which an item crosses. */
static void pools_mapped(void **state) {
    (void)state;
    struct sl_device *d = open_card((struct card_config){.max_alloc_bytes = 5 * 4096});
    struct sl_buffer_pool p;
    struct sl_buffer_items items[2];
    char *host = pages(16 * 4096);
    sl_buffer_pool_init(&p, d, 0);
    assert_int_equal(sl_buffer_pool_add(&p, 4, 8192, &items[0]), SL_OK);
    assert_int_equal(sl_buffer_pool_add(&p, 2, 16384, &items[1]), SL_OK);
    assert_int_equal(sl_buffer_pool_map(&p, d, host), SL_OK);
    assert_int_equal(p.n_parts, 4);
    for (uint32_t i = 0; i < 4; i++)
        assert_ptr_equal(sl_span_host(sl_buffer_pool_at(&p, &items[0], i)), host + i * 8192);
    for (uint32_t i = 0; i < 2; i++)
        assert_ptr_equal(sl_span_host(sl_buffer_pool_at(&p, &items[1], i)),
                         host + 32768 + i * 16384);
    check_pool(&p, items, 2, 5 * 4096);
    sl_buffer_pool_release(&p);
    sl_device_close(&d);
    free(host);
}

int main(void) {
    sl_log_set_level(SL_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounds), cmocka_unit_test(directions),    cmocka_unit_test(largest),
        cmocka_unit_test(pools),  cmocka_unit_test(pools_refused), cmocka_unit_test(pools_mapped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
