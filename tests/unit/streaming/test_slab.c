/* The slab, its regions, slots and the places of an expert's extents. */
#include "tests/unit/streaming/fixture.h"

static void slab_is_aligned_memory(void **state) {
    (void)state;
    struct sl_slab s;
    assert_ok(sl_slab_init(&s, 5 * 1000 * 1000, true, &test_err));
    assert_int_equal((uintptr_t)s.base % SL_HUGE_PAGE_BYTES, 0);
    assert_int_equal(s.size_bytes % SL_IO_BLOCK_BYTES, 0);
    assert_true(s.size_bytes >= 5 * 1000 * 1000 && s.size_bytes < 5 * 1000 * 1000 + 4096);
    s.base[0] = 1;
    s.base[s.size_bytes - 1] = 2;
    assert_int_equal(sl_slab_n_regions(&s), 1);
    size_t n;
    assert_ptr_equal(sl_slab_region(&s, 0, &n), s.base);
    assert_int_equal(n, s.size_bytes);
    sl_slab_release(&s);
    assert_null(s.base);
    assert_int_equal(sl_slab_init(&s, 0, false, &test_err), SL_ERR_INVALID);
    assert_int_equal(sl_slab_init(&s, (size_t)1 << 46, false, &test_err), SL_ERR_NOMEM);
    assert_non_null(strstr(test_err.text, "--ram"));
}

static void regions_cover_the_slab(void **state) {
    (void)state;
    struct sl_slab s = {.base = (uint8_t *)0x200000, .size_bytes = 2 * SL_REGION_BYTES + 8192};
    assert_int_equal(sl_slab_n_regions(&s), 3);
    uint8_t *at = s.base;
    for (uint32_t i = 0; i < 3; i++) {
        size_t n;
        assert_ptr_equal(sl_slab_region(&s, i, &n), at);
        assert_true(n <= SL_REGION_BYTES);
        at += n;
    }
    assert_ptr_equal(at, s.base + s.size_bytes);
}

/* Every possible begin of an extent in the file: its blocks stay inside its place. */
static void places_hold_the_over_read(void **state) {
    (void)state;
    struct sl_rng rng = {.state = 7};
    for (uint32_t turn = 0; turn < 200; turn++) {
        uint32_t size[SL_SLOT_EXTENTS], n = 1 + sl_rng_below(&rng, SL_SLOT_EXTENTS);
        uint32_t align = 1u << sl_rng_below(&rng, 13);
        for (uint32_t i = 0; i < n; i++)
            size[i] = 1 + sl_rng_below(&rng, i % 2 ? 20000 : 4200);
        struct sl_slot_layout l;
        assert_ok(sl_slot_layout_init(&l, size, n, align, &test_err));
        assert_int_equal(l.slot_bytes % SL_IO_BLOCK_BYTES, 0);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t end = i + 1 < n ? l.place_bytes[i + 1] : l.slot_bytes;
            bool full = false;
            for (uint64_t at = 0; at < SL_IO_BLOCK_BYTES; at += align) {
                size_t payload = sl_slot_payload_bytes(&l, i, 3 * SL_IO_BLOCK_BYTES + at);
                assert_int_equal(payload, l.place_bytes[i] + at);
                size_t blocks = (payload + size[i] + 4095) / 4096 * 4096;
                assert_true(blocks <= end);
                full |= blocks == end;
            }
            assert_true(full); /* and no room is wasted */
        }
    }
    struct sl_slot_layout l;
    uint32_t big[4] = {1u << 30, 1u << 30, 1u << 30, 1u << 30}, none = 0;
    assert_int_equal(sl_slot_layout_init(&l, big, 4, 32, &test_err), SL_ERR_INVALID);
    assert_int_equal(sl_slot_layout_init(&l, &none, 1, 32, &test_err), SL_ERR_INVALID);
    assert_int_equal(sl_slot_layout_init(&l, big, 0, 32, &test_err), SL_ERR_INVALID);
    assert_int_equal(sl_slot_layout_init(&l, big, 1, 48, &test_err), SL_ERR_INVALID);
    assert_int_equal(sl_slot_layout_init(&l, big, SL_SLOT_EXTENTS + 1, 32, &test_err),
                     SL_ERR_INVALID);
}

static void slots_of_classes_do_not_overlap(void **state) {
    (void)state;
    const uint32_t bytes[3] = {8192, 4096, 12288}, n[3] = {3, 0, 2};
    struct sl_slab s;
    struct sl_slots slots;
    size_t all = sl_slots_size_bytes(bytes, n, 3);
    assert_int_equal(all, 3 * 8192 + 2 * 12288);
    assert_ok(sl_slab_init(&s, all + 4096, false, &test_err));
    assert_ok(sl_slots_init(&slots, &s, 4096, bytes, n, 3, &test_err));
    uint8_t *at = s.base + 4096;
    for (uint32_t i = 0; i < 5; i++) {
        assert_ptr_equal(sl_slots_at(&slots, i), at);
        at += i < 3 ? 8192 : 12288;
    }
    assert_ptr_equal(at, s.base + s.size_bytes);
    assert_int_equal(sl_slots_init(&slots, &s, 8192, bytes, n, 3, &test_err), SL_ERR_INVALID);
    assert_int_equal(sl_slots_init(&slots, &s, 100, bytes, n, 3, &test_err), SL_ERR_INVALID);
    const uint32_t odd[1] = {5000}, one[1] = {1}, many[2] = {4096, 4096},
                   huge[2] = {UINT32_MAX, UINT32_MAX};
    assert_int_equal(sl_slots_init(&slots, &s, 0, odd, one, 1, &test_err), SL_ERR_INVALID);
    assert_int_equal(sl_slots_init(&slots, &s, 0, many, huge, 2, &test_err), SL_ERR_INVALID);
    assert_int_equal(sl_slots_init(&slots, &s, 0, bytes, n, 0, &test_err), SL_ERR_INVALID);
    sl_slab_release(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slab_is_aligned_memory),
        cmocka_unit_test(regions_cover_the_slab),
        cmocka_unit_test(places_hold_the_over_read),
        cmocka_unit_test(slots_of_classes_do_not_overlap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
