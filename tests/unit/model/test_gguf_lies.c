/* GGUF reading: one test per way in which a file can lie. */
#include "tests/unit/model/gguf_open.h"

static void test_unknown_types(void **state) {
    (void)state;
    static const struct {
        uint32_t type;
        const char *text;
    } t[] = {
        {40, "tensor 'blk.0.x': type 40 (NVFP4) is not supported"},
        {33, "type 33 (Q4_0_8_8)"},
        {144, "type 144 (IQ4_KS) is not supported"},
        {4, "type 4 (Q4_2)"},
        {27, "type 27 (I64)"},
        {999, "type 999 is unknown"},
        {0x80000001u, "type 2147483649 is unknown"},
    };
    for (size_t i = 0; i < sizeof t / sizeof t[0]; i++) {
        struct gb b = gb_new(3);
        gb_tensor(&b, "blk.0.x", t[i].type, 1, (uint64_t[]){32});
        expect_refused(&b, SL_ERR_UNSUPPORTED, t[i].text, "byte ");
    }
}

static void test_bad_header(void **state) {
    (void)state;
    struct gb b = gb_new(1);
    expect_refused(&b, SL_ERR_UNSUPPORTED, "version 1", "convert");
    b = gb_new(4);
    expect_refused(&b, SL_ERR_UNSUPPORTED, "version 4", "byte 4");
    b = gb_new(0);
    expect_refused(&b, SL_ERR_UNSUPPORTED, "version 0", "");
    b = gb_new(0x03000000);
    expect_refused(&b, SL_ERR_UNSUPPORTED, "big-endian", "");
    b = gb_new(3);
    b.fake_n_kv = 1;
    expect_refused(&b, SL_ERR_CORRUPT, "1 keys", "byte 16");
    b = gb_new(3);
    b.fake_n_kv = UINT64_MAX - 1;
    expect_refused(&b, SL_ERR_CORRUPT, "keys", "");
    b = gb_new(3);
    b.fake_n_tensors = UINT64_C(1) << 60;
    expect_refused(&b, SL_ERR_CORRUPT, "tensors", "byte 8");

    struct sl_gguf *g = NULL;
    struct sl_err err;
    assert_int_equal(sl_gguf_open_memory("", 0, &g, &err), SL_ERR_CORRUPT);
    assert_int_equal(sl_gguf_open_memory("GG", 2, &g, &err), SL_ERR_CORRUPT);
    assert_int_equal(sl_gguf_open_memory("version https://git-lfs", 23, &g, &err), SL_ERR_CORRUPT);
    assert_non_null(strstr(err.text, "git lfs pull"));
    assert_int_equal(sl_gguf_open_memory("tjgg\1\0\0\0", 8, &g, &err), SL_ERR_CORRUPT);
    assert_non_null(strstr(err.text, "old GGML"));
}

static void test_counts_beyond_limits(void **state) {
    (void)state;
    /* Large enough that the size alone would allow the counts. */
    struct gb b = gb_new(3);
    b.fake_n_kv = SL_GGUF_MAX_KV + 1;
    b.fake_file_bytes = 4 << 20;
    expect_refused(&b, SL_ERR_CORRUPT, "65537 keys", "limit 65536");
    b = gb_new(3);
    b.fake_n_tensors = SL_GGUF_MAX_TENSORS + 1;
    b.fake_file_bytes = 16 << 20;
    expect_refused(&b, SL_ERR_CORRUPT, "262145 tensors", "limit 262144");
}

static void test_bad_keys(void **state) {
    (void)state;
    struct gb b = gb_new(3);
    gb_uint(&b, "good", 1);
    gb_uint(&b, "twice", 1);
    gb_uint(&b, "twice", 2);
    expect_refused(&b, SL_ERR_CORRUPT, "key 'twice'", "occurs twice");
    b = gb_new(3);
    gb_uint(&b, "", 1);
    expect_refused(&b, SL_ERR_CORRUPT, "key 1 of 1", "empty");
    b = gb_new(3);
    gb_kv(&b, "odd", 13, "\0\0\0\0", 4);
    expect_refused(&b, SL_ERR_CORRUPT, "key 'odd'", "value type 13");
    b = gb_new(3);
    gb_kv(&b, "flag", SL_GGUF_BOOL, "\2", 1);
    expect_refused(&b, SL_ERR_CORRUPT, "key 'flag'", "boolean of value 2");
    b = gb_new(3);
    gb_array(&b, "nested", SL_GGUF_ARRAY, 1, "\0\0\0\0\0\0\0\0\0\0\0\0", 12);
    expect_refused(&b, SL_ERR_UNSUPPORTED, "key 'nested'", "array of arrays");
    b = gb_new(3);
    gb_array(&b, "odd", 99, 1, "\0\0\0\0", 4);
    expect_refused(&b, SL_ERR_CORRUPT, "key 'odd'", "value type 99");
    b = gb_new(3);
    gb_array(&b, "long", SL_GGUF_U64, UINT64_C(0x2000000000000001), "12345678", 8);
    expect_refused(&b, SL_ERR_CORRUPT, "key 'long'", "does not fit the file");
    b = gb_new(3);
    gb_array(&b, "long", SL_GGUF_STRING, 100, "\0\0\0\0\0\0\0\0", 8);
    expect_refused(&b, SL_ERR_CORRUPT, "key 'long'", "does not fit the file");
    /* A string whose length runs past the end, by a little and by the whole range. */
    b = gb_new(3);
    gb_kv(&b, "s", SL_GGUF_STRING, "\7\0\0\0\0\0\0\0abc", 11);
    expect_refused(&b, SL_ERR_CORRUPT, "key 's'", "7 bytes");
    b = gb_new(3);
    gb_kv(&b, "s", SL_GGUF_STRING, "\377\377\377\377\377\377\377\377abc", 11);
    expect_refused(&b, SL_ERR_CORRUPT, "key 's'", "18446744073709551615 bytes");
    /* The name of a key is data too. */
    b = gb_new(3);
    gb_kv(&b, "bad\n\x1b[31mred", 77, "", 0);
    expect_refused(&b, SL_ERR_CORRUPT, "key 'bad\\x0a\\x1b[31mred'", "value type 77");

    char *longest = malloc(65537);
    memset(longest, 'k', 65536);
    longest[65536] = 0;
    b = gb_new(3);
    gb_uint(&b, longest, 1);
    expect_refused(&b, SL_ERR_CORRUPT, "key 1 of 1", "65536 bytes");
    b = gb_new(3);
    gb_uint(&b, longest + 1, 1);
    uint8_t *file;
    struct sl_gguf *g = open_ok(&b, &file);
    assert_non_null(sl_gguf_kv_find(g, longest + 1));
    sl_gguf_close(&g);
    free(file);
    free(longest);
}

static void test_alignment(void **state) {
    (void)state;
    static const uint32_t bad[] = {0, 1, 4, 24, 48, 2u << 20, 0x80000000u, 0xffffffffu};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct gb b = gb_new(3);
        gb_uint(&b, "general.alignment", bad[i]);
        expect_refused(&b, SL_ERR_CORRUPT, "key 'general.alignment'", "power of two");
    }
    struct gb b = gb_new(3);
    gb_kv(&b, "general.alignment", SL_GGUF_U64, "\40\0\0\0\0\0\0\0", 8);
    expect_refused(&b, SL_ERR_CORRUPT, "general.alignment", "not a u32");
    for (uint32_t a = 8; a <= 1u << 20; a *= 2) {
        uint8_t *file;
        b = gb_new(3);
        b.alignment = a;
        gb_uint(&b, "general.alignment", a);
        gb_tensor(&b, "a", SL_DTYPE_F16, 1, (uint64_t[]){3});
        gb_tensor(&b, "b", SL_DTYPE_F16, 1, (uint64_t[]){3});
        struct sl_gguf *g = open_ok(&b, &file);
        assert_int_equal(sl_gguf_tensor_at(g, 0)->offset_bytes % a, 0);
        assert_int_equal(sl_gguf_tensor_at(g, 1)->offset_bytes % a, 0);
        sl_gguf_close(&g);
        free(file);
    }
}

static void test_bad_tensors(void **state) {
    (void)state;
    struct gb b = gb_new(3);
    gb_tensor(&b, "w", SL_DTYPE_F32, 0, NULL);
    expect_refused(&b, SL_ERR_CORRUPT, "tensor 'w'", "0 dimensions");
    b = gb_new(3);
    gb_tensor(&b, "w", SL_DTYPE_F32, 5, (uint64_t[]){1, 1, 1, 1, 1});
    expect_refused(&b, SL_ERR_CORRUPT, "tensor 'w'", "5 dimensions");
    b = gb_new(3);
    gb_tensor(&b, "w", SL_DTYPE_F32, 2, (uint64_t[]){4, 0});
    expect_refused(&b, SL_ERR_CORRUPT, "tensor 'w'", "dimension 1 is 0");
    b = gb_new(3);
    gb_tensor(&b, "w", SL_DTYPE_F32, 2, (uint64_t[]){UINT64_C(1) << 33, UINT64_C(1) << 33});
    expect_refused(&b, SL_ERR_CORRUPT, "tensor 'w'", "2^60");
    b = gb_new(3); /* the product wraps to a small number */
    gb_tensor(&b, "w", SL_DTYPE_F32, 3, (uint64_t[]){UINT64_C(1) << 32, UINT64_C(1) << 32, 4});
    expect_refused(&b, SL_ERR_CORRUPT, "tensor 'w'", "2^60");
    b = gb_new(3); /* bytes, not elements, would wrap */
    gb_tensor(&b, "w", SL_DTYPE_F32, 1, (uint64_t[]){UINT64_C(1) << 62});
    expect_refused(&b, SL_ERR_CORRUPT, "tensor 'w'", "2^60");
    b = gb_new(3);
    gb_tensor(&b, "", SL_DTYPE_F32, 1, (uint64_t[]){4});
    expect_refused(&b, SL_ERR_CORRUPT, "tensor 1 of 1", "empty");
    b = gb_new(3);
    gb_tensor(&b, "0123456789012345678901234567890123456789012345678901234567890123x", 0, 1,
              (uint64_t[]){4});
    expect_refused(&b, SL_ERR_CORRUPT, "tensor 1 of 1", "65 bytes");
    b = gb_new(3);
    gb_tensor(&b, "w", SL_DTYPE_F32, 1, (uint64_t[]){4});
    gb_tensor(&b, "v", SL_DTYPE_F32, 1, (uint64_t[]){4});
    gb_tensor(&b, "w", SL_DTYPE_F32, 1, (uint64_t[]){4});
    expect_refused(&b, SL_ERR_CORRUPT, "tensor 'w'", "occurs twice");
    b = gb_new(3);
    b.next_offset = 16;
    gb_tensor(&b, "w", SL_DTYPE_F32, 1, (uint64_t[]){4});
    expect_refused(&b, SL_ERR_CORRUPT, "tensor 'w'", "not a multiple of the alignment");
    b = gb_new(3);
    b.next_offset = 64;
    gb_tensor(&b, "w", SL_DTYPE_F32, 1, (uint64_t[]){4});
    expect_refused(&b, SL_ERR_CORRUPT, "tensor 'w'", "pass the end");
    b = gb_new(3);
    b.next_offset = UINT64_MAX - 31; /* plus the start of the data it wraps */
    gb_tensor(&b, "w", SL_DTYPE_F32, 1, (uint64_t[]){4});
    expect_refused(&b, SL_ERR_CORRUPT, "tensor 'w'", "pass the end");
    b = gb_new(3);
    gb_tensor(&b, "w", SL_DTYPE_F32, 1, (uint64_t[]){UINT64_C(1) << 50});
    expect_refused(&b, SL_ERR_CORRUPT, "tensor 'w'", "pass the end");
}

static void test_overlap(void **state) {
    (void)state;
    struct gb b = gb_new(3);
    gb_tensor(&b, "large", SL_DTYPE_F32, 1, (uint64_t[]){100});
    b.next_offset = 384; /* inside large's last bytes */
    gb_tensor(&b, "small", SL_DTYPE_F32, 1, (uint64_t[]){1});
    expect_refused(&b, SL_ERR_CORRUPT, "'large' and 'small' overlap", "byte ");
    b = gb_new(3);
    gb_tensor(&b, "x", SL_DTYPE_F32, 1, (uint64_t[]){8});
    b.next_offset = 0;
    gb_tensor(&b, "y", SL_DTYPE_F32, 1, (uint64_t[]){8});
    expect_refused(&b, SL_ERR_CORRUPT, "overlap", "");
    /* Any order in the file is fine, and so are gaps. */
    b = gb_new(3);
    b.next_offset = 128;
    gb_tensor(&b, "x", SL_DTYPE_F32, 1, (uint64_t[]){8});
    b.next_offset = 0;
    gb_tensor(&b, "y", SL_DTYPE_F32, 1, (uint64_t[]){8});
    gb_tensor(&b, "z", SL_DTYPE_F32, 1, (uint64_t[]){16});
    b.data_bytes += 64; /* x lies behind what the builder counted */
    uint8_t *file;
    struct sl_gguf *g = open_ok(&b, &file);
    sl_gguf_close(&g);
    free(file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unknown_types),
        cmocka_unit_test(test_bad_header),
        cmocka_unit_test(test_counts_beyond_limits),
        cmocka_unit_test(test_bad_keys),
        cmocka_unit_test(test_alignment),
        cmocka_unit_test(test_bad_tensors),
        cmocka_unit_test(test_overlap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
