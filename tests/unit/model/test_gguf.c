/* GGUF reading: what must open, from memory and from disk, and what is read from it. */
#include "tests/unit/model/gguf_open.h"

#include <errno.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

static void fill(struct gb *b) {
    uint8_t u8 = 200;
    int8_t i8 = -5;
    uint16_t u16 = 65535;
    int16_t i16 = -300;
    int32_t i32 = -70000;
    uint64_t u64 = UINT64_C(5000000000);
    int64_t i64 = -5000000000;
    double f64 = 0.5;
    gb_kv(b, "u8", SL_GGUF_U8, &u8, 1);
    gb_kv(b, "i8", SL_GGUF_I8, &i8, 1);
    gb_kv(b, "u16", SL_GGUF_U16, &u16, 2);
    gb_kv(b, "i16", SL_GGUF_I16, &i16, 2);
    gb_uint(b, "u32", 4000000000u);
    gb_kv(b, "i32", SL_GGUF_I32, &i32, 4);
    gb_float(b, "f32", 1.25f);
    gb_bool(b, "yes", true);
    gb_bool(b, "no", false);
    gb_str(b, "text", "h\xc3\xa9llo");
    gb_str(b, "nothing", "");
    gb_kv(b, "u64", SL_GGUF_U64, &u64, 8);
    gb_kv(b, "i64", SL_GGUF_I64, &i64, 8);
    gb_kv(b, "f64", SL_GGUF_F64, &f64, 8);
    gb_array(b, "ints", SL_GGUF_I16, 3, (int16_t[]){1, -2, 3}, 6);
    gb_array(b, "floats", SL_GGUF_F32, 2, (float[]){0.5f, -8.0f}, 8);
    gb_array(b, "none", SL_GGUF_U32, 0, NULL, 0);
    gb_strings(b, "words", (const char *[]){"one", "", "three"}, 3);
    gb_tensor(b, "a", SL_DTYPE_F32, 1, (uint64_t[]){3});
    gb_tensor(b, "b", SL_DTYPE_Q4_K, 3, (uint64_t[]){512, 2, 4});
}

static void check_filled(const struct sl_gguf *g, uint32_t version) {
    struct sl_err err;
    uint32_t u = 0;
    float f = 0;
    bool yes = false, no = true;
    struct sl_str s;
    assert_int_equal(sl_gguf_version(g), version);
    assert_int_equal(sl_gguf_n_kv(g), 18);
    assert_int_equal(sl_gguf_get_u32(g, "u8", &u, &err), SL_OK);
    assert_int_equal(u, 200);
    assert_int_equal(sl_gguf_get_u32(g, "u16", &u, &err), SL_OK);
    assert_int_equal(u, 65535);
    assert_int_equal(sl_gguf_get_u32(g, "u32", &u, &err), SL_OK);
    assert_int_equal(u, 4000000000u);
    assert_int_equal(sl_gguf_get_f32(g, "f32", &f, &err), SL_OK);
    assert_true(f == 1.25f);
    assert_int_equal(sl_gguf_get_f32(g, "f64", &f, &err), SL_OK);
    assert_true(f == 0.5f);
    assert_int_equal(sl_gguf_get_bool(g, "yes", &yes, &err), SL_OK);
    assert_int_equal(sl_gguf_get_bool(g, "no", &no, &err), SL_OK);
    assert_true(yes && !no);
    assert_int_equal(sl_gguf_get_str(g, "text", &s, &err), SL_OK);
    assert_int_equal(s.len, 6);
    assert_memory_equal(s.ptr, "h\xc3\xa9llo", 6);
    assert_int_equal(sl_gguf_get_str(g, "nothing", &s, &err), SL_OK);
    assert_int_equal(s.len, 0);
    assert_int_equal(sl_gguf_array_i64(sl_gguf_kv_find(g, "i8"), 0), -5);
    assert_int_equal(sl_gguf_array_i64(sl_gguf_kv_find(g, "i16"), 0), -300);
    assert_int_equal(sl_gguf_array_i64(sl_gguf_kv_find(g, "i32"), 0), -70000);
    assert_true(sl_gguf_array_i64(sl_gguf_kv_find(g, "u64"), 0) == 5000000000);
    assert_true(sl_gguf_array_i64(sl_gguf_kv_find(g, "i64"), 0) == -5000000000);

    const struct sl_gguf_kv *ints = sl_gguf_kv_find(g, "ints");
    assert_int_equal(ints->n_elems, 3);
    assert_int_equal(sl_gguf_array_i64(ints, 1), -2);
    assert_true(sl_gguf_array_f64(ints, 2) == 3.0);
    assert_true(sl_gguf_array_f64(sl_gguf_kv_find(g, "floats"), 1) == -8.0);
    assert_int_equal(sl_gguf_kv_find(g, "none")->n_elems, 0);
    struct sl_gguf_str_iter it = {.kv = sl_gguf_kv_find(g, "words")};
    const char *want[] = {"one", "", "three"};
    for (int i = 0; i < 3; i++) {
        assert_true(sl_gguf_str_next(&it, &s));
        assert_int_equal(s.len, strlen(want[i]));
        assert_memory_equal(s.ptr, want[i], s.len);
    }
    assert_false(sl_gguf_str_next(&it, &s));
    struct sl_gguf_str_iter numbers = {.kv = ints};
    assert_false(sl_gguf_str_next(&numbers, &s));

    assert_int_equal(sl_gguf_n_tensors(g), 2);
    const struct sl_gguf_tensor *a = sl_gguf_tensor_find(g, "a"), *b = sl_gguf_tensor_find(g, "b");
    assert_ptr_equal(a, sl_gguf_tensor_at(g, 0));
    assert_int_equal(a->size_bytes, 12);
    assert_int_equal(a->offset_bytes % 32, 0);
    assert_int_equal(b->dtype, SL_DTYPE_Q4_K);
    assert_int_equal(b->size_bytes, 2 * 144 * 2 * 4);
    assert_int_equal(b->offset_bytes, a->offset_bytes + 32);
    assert_int_equal(b->n_dims, 3);
    assert_int_equal(b->ne[2], 4);
    assert_int_equal(b->ne[3], 1);
    assert_null(sl_gguf_tensor_find(g, "c"));
    assert_null(sl_gguf_kv_find(g, "wor"));
}

static void test_versions_2_and_3(void **state) {
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        struct gb b = gb_new(version);
        uint8_t *file;
        fill(&b);
        struct sl_gguf *g = open_ok(&b, &file);
        check_filled(g, version);
        sl_gguf_close(&g);
        assert_null(g);
        free(file);
    }
}

static void test_from_disk(void **state) {
    const char *dir = *state;
    char path[256];
    struct gb b = gb_new(3);
    size_t n;
    struct sl_err err = {""};
    struct sl_gguf *g = NULL, *memory = NULL;
    fill(&b);
    uint8_t *file = gb_finish(&b, &n);
    snprintf(path, sizeof path, "%s/whole.gguf", dir);
    gb_write_file(path, file, n);
    assert_int_equal(sl_gguf_open(path, &g, &err), SL_OK);
    assert_int_equal(sl_gguf_open_memory(file, n, &memory, &err), SL_OK);
    /* The file may go: nothing is kept open or mapped. */
    assert_int_equal(truncate(path, 0), 0);
    check_filled(g, 3);
    assert_string_equal(sl_gguf_file_path(g, 0), path);
    assert_int_equal(sl_gguf_file_bytes(g, 0), n);
    assert_true(sl_gguf_fingerprint(g) == sl_gguf_fingerprint(memory));
    sl_gguf_close(&g);
    sl_gguf_close(&memory);

    /* Every byte of metadata, flipped, either opens or is refused with a text; never worse. */
    for (size_t i = 0; i < n && i < 2000; i++) {
        file[i] ^= 0x81;
        err.text[0] = 0;
        if (sl_gguf_open_memory(file, n, &g, &err) == SL_OK)
            sl_gguf_close(&g);
        else
            assert_true(err.text[0] != 0);
        file[i] ^= 0x81;
    }
    free(file);
}

/* A file cut at any byte is refused, from memory and, where a read could tell, from disk. */
static void test_truncated_anywhere(void **state) {
    const char *dir = *state;
    struct gb b = gb_new(3);
    size_t n;
    char path[256];
    fill(&b);
    uint8_t *file = gb_finish(&b, &n);
    snprintf(path, sizeof path, "%s/cut.gguf", dir);
    gb_write_file(path, file, n);
    for (size_t cut = n; cut-- > 0;) {
        struct sl_gguf *g = NULL;
        struct sl_err err = {""};
        uint8_t *part = malloc(cut ? cut : 1);
        memcpy(part, file, cut);
        assert_int_equal(sl_gguf_open_memory(part, cut, &g, &err), SL_ERR_CORRUPT);
        free(part);
        if (cut % 7 == 0) {
            assert_int_equal(truncate(path, (off_t)cut), 0);
            assert_int_equal(sl_gguf_open(path, &g, &err), SL_ERR_CORRUPT);
            assert_non_null(strstr(err.text, "cut.gguf"));
        }
    }
    free(file);
}

static void test_large_metadata_from_disk(void **state) {
    const char *dir = *state;
    char path[256];
    struct gb b = gb_new(3);
    size_t n, n_words = 200000;
    const char **words = calloc(n_words, sizeof *words);
    struct sl_err err = {""};
    struct sl_gguf *g = NULL;
    for (size_t i = 0; i < n_words; i++)
        words[i] = i % 3 ? "a token of some length, to pass several reads" : "";
    gb_strings(&b, "words", words, n_words);
    gb_tensor(&b, "a", SL_DTYPE_F32, 1, (uint64_t[]){3});
    uint8_t *file = gb_finish(&b, &n);
    snprintf(path, sizeof path, "%s/large.gguf", dir);
    gb_write_file(path, file, n);
    assert_int_equal(sl_gguf_open(path, &g, &err), SL_OK);
    struct sl_gguf_str_iter it = {.kv = sl_gguf_kv_find(g, "words")};
    struct sl_str s;
    size_t seen = 0;
    for (; sl_gguf_str_next(&it, &s); seen++)
        assert_int_equal(s.len, strlen(words[seen]));
    assert_int_equal(seen, n_words);
    sl_gguf_close(&g);
    free(words);
    free(file);
}

/* 256 GiB, as a hole: only the metadata may be read. */
static void test_huge_file(void **state) {
    const char *dir = *state;
    char path[256];
    struct gb b = gb_new(3);
    size_t n;
    struct sl_err err = {""};
    struct sl_gguf *g = NULL;
    const uint64_t bytes = UINT64_C(1) << 38;
    gb_tensor(&b, "w", SL_DTYPE_F16, 2, (uint64_t[]){1 << 20, 1 << 17});
    uint8_t *file = gb_finish(&b, &n);
    snprintf(path, sizeof path, "%s/huge.gguf", dir);
    gb_write_file(path, file, n);
    free(file);
    if (truncate(path, (off_t)(n + bytes)) != 0) {
        print_message("this file system has no files of 256 GiB: %s\n", strerror(errno));
        skip();
    }
    if (sl_gguf_open(path, &g, &err) != SL_OK)
        fail_msg("%s", err.text);
    assert_true(sl_gguf_tensor_at(g, 0)->size_bytes == bytes);
    sl_gguf_close(&g);
    assert_int_equal(truncate(path, (off_t)(n + bytes - 1)), 0);
    assert_int_equal(sl_gguf_open(path, &g, &err), SL_ERR_CORRUPT);
    assert_non_null(strstr(err.text, "pass the end"));
}

/* sysfs says 4096 bytes and gives a few: like a file that is cut while it is read. */
static void test_shorter_than_stated(void **state) {
    (void)state;
    const char *path = "/sys/kernel/mm/transparent_hugepage/enabled";
    struct stat sb;
    struct sl_gguf *g = NULL;
    struct sl_err err = {""};
    if (stat(path, &sb) != 0 || sb.st_size < 64) {
        print_message("%s is not there\n", path);
        skip();
    }
    assert_int_equal(sl_gguf_open(path, &g, &err), SL_ERR_IO);
    assert_non_null(strstr(err.text, "became shorter"));
}

static void test_all_types_sizes(void **state) {
    (void)state;
    /* type, elements of a row, bytes of a row: from the published block layouts */
    static const struct {
        uint32_t type, n, bytes;
    } t[] = {
        {0, 1, 4},      {1, 1, 2},      {2, 32, 18},    {3, 32, 20},    {6, 32, 22},
        {7, 32, 24},    {8, 32, 34},    {10, 256, 84},  {11, 256, 110}, {12, 256, 144},
        {13, 256, 176}, {14, 256, 210}, {16, 256, 66},  {17, 256, 74},  {18, 256, 98},
        {19, 256, 50},  {20, 32, 18},   {21, 256, 110}, {22, 256, 82},  {23, 256, 136},
        {29, 256, 56},  {30, 1, 2},     {39, 32, 17},
    };
    assert_int_equal(sizeof t / sizeof t[0], 23);
    for (size_t i = 0; i < 23; i++) {
        struct gb b = gb_new(3);
        uint8_t *file;
        gb_tensor(&b, "w", t[i].type, 2, (uint64_t[]){t[i].n * 3, 5});
        struct sl_gguf *g = open_ok(&b, &file);
        assert_int_equal(sl_gguf_tensor_at(g, 0)->size_bytes, t[i].bytes * 15);
        sl_gguf_close(&g);
        free(file);
        if (t[i].n > 1) {
            b = gb_new(3);
            gb_tensor(&b, "w", t[i].type, 2, (uint64_t[]){t[i].n + t[i].n / 2, 2});
            expect_refused(&b, SL_ERR_CORRUPT, "tensor 'w'", "whole blocks");
        }
    }
}

static void test_typed_reads(void **state) {
    (void)state;
    struct gb b = gb_new(3);
    uint8_t *file;
    float nan = NAN;
    double huge = 1e300;
    fill(&b);
    gb_kv(&b, "nan", SL_GGUF_F32, &nan, 4);
    gb_kv(&b, "huge", SL_GGUF_F64, &huge, 8);
    struct sl_gguf *g = open_ok(&b, &file);
    uint32_t u = 7;
    float f = 7;
    bool t = true;
    struct sl_str s = {"x", 1};
    struct sl_err err = {"untouched"};
    assert_int_equal(sl_gguf_get_u32(g, "absent", &u, &err), SL_AGAIN);
    assert_int_equal(sl_gguf_get_f32(g, "absent", &f, &err), SL_AGAIN);
    assert_int_equal(sl_gguf_get_bool(g, "absent", &t, &err), SL_AGAIN);
    assert_int_equal(sl_gguf_get_str(g, "absent", &s, &err), SL_AGAIN);
    assert_string_equal(err.text, "untouched");
    assert_int_equal(sl_gguf_get_u32(g, "i8", &u, &err), SL_ERR_CORRUPT);
    assert_non_null(strstr(err.text, "key 'i8'"));
    assert_non_null(strstr(err.text, "-5 is out of range"));
    assert_int_equal(sl_gguf_get_u32(g, "u64", &u, &err), SL_ERR_CORRUPT);
    assert_int_equal(sl_gguf_get_u32(g, "f32", &u, &err), SL_ERR_CORRUPT);
    assert_non_null(strstr(err.text, "not an integer"));
    assert_int_equal(sl_gguf_get_u32(g, "ints", &u, &err), SL_ERR_CORRUPT);
    assert_int_equal(sl_gguf_get_u32(g, "text", &u, &err), SL_ERR_CORRUPT);
    assert_int_equal(sl_gguf_get_f32(g, "u32", &f, &err), SL_ERR_CORRUPT);
    assert_int_equal(sl_gguf_get_f32(g, "nan", &f, &err), SL_ERR_CORRUPT);
    assert_int_equal(sl_gguf_get_f32(g, "huge", &f, &err), SL_ERR_CORRUPT);
    assert_int_equal(sl_gguf_get_bool(g, "u8", &t, &err), SL_ERR_CORRUPT);
    assert_int_equal(sl_gguf_get_str(g, "words", &s, &err), SL_ERR_CORRUPT);
    /* The offset in the text is where the value is. */
    const struct sl_gguf_kv *kv = sl_gguf_kv_find(g, "i8");
    assert_true(file[sl_gguf_kv_offset(g, kv)] == (uint8_t)-5);
    assert_true(u == 7 && f == 7 && t && s.len == 1);
    sl_gguf_close(&g);
    free(file);
}

static void test_fingerprint(void **state) {
    (void)state;
    uint64_t seen[6];
    for (int i = 0; i < 6; i++) {
        struct gb b = gb_new(3);
        uint8_t *file;
        gb_str(&b, "name", i == 1 ? "b" : "a");
        gb_uint(&b, i == 2 ? "m" : "n", i == 3 ? 2 : 1);
        gb_tensor(&b, i == 4 ? "v" : "w", i == 5 ? SL_DTYPE_BF16 : SL_DTYPE_F16, 1,
                  (uint64_t[]){16});
        struct sl_gguf *g = open_ok(&b, &file);
        seen[i] = sl_gguf_fingerprint(g);
        assert_true(seen[i] == sl_gguf_fingerprint(g));
        for (int j = 0; j < i; j++)
            assert_true(seen[i] != seen[j]);
        sl_gguf_close(&g);
        free(file);
    }
}

static void test_escape(void **state) {
    (void)state;
    char buf[16];
    assert_string_equal(sl_str_escape((struct sl_str){"plain", 5}, buf, sizeof buf), "plain");
    assert_string_equal(sl_str_escape((struct sl_str){"a\0\\\xff", 4}, buf, sizeof buf),
                        "a\\x00\\x5c...");
    assert_string_equal(sl_str_escape((struct sl_str){"0123456789abcdefghij", 20}, buf, sizeof buf),
                        "0123456789ab...");
    assert_string_equal(sl_str_escape((struct sl_str){"", 0}, buf, 8), "");
}

static void test_not_files(void **state) {
    const char *dir = *state;
    char path[512];
    struct sl_gguf *g = NULL;
    struct sl_err err;
    assert_int_equal(sl_gguf_open(dir, &g, &err), SL_ERR_IO);
    assert_non_null(strstr(err.text, "directory"));
    snprintf(path, sizeof path, "%s/absent.gguf", dir);
    assert_int_equal(sl_gguf_open(path, &g, &err), SL_ERR_IO);
    assert_non_null(strstr(err.text, "No such file"));
    snprintf(path, sizeof path, "%s/fifo", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(sl_gguf_open(path, &g, &err), SL_ERR_IO);
    assert_non_null(strstr(err.text, "not a regular file"));
    snprintf(path, sizeof path, "%s/%0400d.gguf", dir, 0);
    assert_int_equal(sl_gguf_open(path, &g, &err), SL_ERR_IO);
    assert_non_null(strstr(err.text, "...")); /* cut, so that the reason still fits */
    assert_non_null(strstr(err.text, "cannot open"));
}

/* Writes part no (from 1) of count; lies are the caller's through the numbers. */
static void write_part(const char *path, uint16_t no, uint16_t count, int32_t total,
                       const char *tensor) {
    struct gb b = gb_new(3);
    size_t n;
    uint16_t zero_based = (uint16_t)(no - 1);
    if (no == 1)
        gb_str(&b, "general.architecture", "llama");
    gb_kv(&b, "split.no", SL_GGUF_U16, &zero_based, 2);
    gb_kv(&b, "split.count", SL_GGUF_U16, &count, 2);
    gb_kv(&b, "split.tensors.count", SL_GGUF_I32, &total, 4);
    gb_tensor(&b, tensor, SL_DTYPE_F32, 1, (uint64_t[]){no * UINT64_C(10)});
    uint8_t *file = gb_finish(&b, &n);
    gb_write_file(path, file, n);
    free(file);
}

static void expect_open_fails(const char *path, enum sl_status want, const char *word) {
    struct sl_gguf *g = NULL;
    struct sl_err err = {""};
    enum sl_status status = sl_gguf_open(path, &g, &err);
    if (status != want || !strstr(err.text, word))
        fail_msg("status %d, want %d with '%s': %s", status, want, word, err.text);
}

static void test_split(void **state) {
    const char *dir = *state;
    char part[4][256], other[256];
    struct sl_err err;
    for (int i = 1; i <= 3; i++) {
        char name[8] = {'t', (char)('0' + i), 0};
        snprintf(part[i], sizeof part[i], "%s/s-%05d-of-00003.gguf", dir, i);
        write_part(part[i], (uint16_t)i, 3, 3, name);
    }
    /* Any part opens the set. */
    uint64_t fingerprint = 0;
    for (int i = 1; i <= 3; i++) {
        struct sl_gguf *g = NULL;
        assert_int_equal(sl_gguf_open(part[i], &g, &err), SL_OK);
        assert_int_equal(sl_gguf_n_files(g), 3);
        assert_int_equal(sl_gguf_n_tensors(g), 3);
        assert_non_null(sl_gguf_kv_find(g, "general.architecture"));
        for (uint32_t f = 0; f < 3; f++) {
            assert_int_equal(sl_gguf_tensor_at(g, f)->file, f);
            assert_int_equal(sl_gguf_tensor_at(g, f)->size_bytes, (f + 1) * 40);
            assert_string_equal(sl_gguf_file_path(g, f), part[f + 1]);
        }
        assert_int_equal(sl_gguf_tensor_find(g, "t3")->file, 2);
        assert_true(fingerprint == 0 || fingerprint == sl_gguf_fingerprint(g));
        fingerprint = sl_gguf_fingerprint(g);
        sl_gguf_close(&g);
    }

    write_part(part[2], 2, 3, 3, "t1");
    expect_open_fails(part[1], SL_ERR_CORRUPT, "tensor 't1' occurs twice");
    write_part(part[2], 3, 3, 3, "t2");
    expect_open_fails(part[1], SL_ERR_CORRUPT, "part 3 of 3, expected part 2 of 3");
    write_part(part[2], 2, 4, 3, "t2");
    expect_open_fails(part[1], SL_ERR_CORRUPT, "part 2 of 4");
    assert_int_equal(truncate(part[2], 100), 0);
    expect_open_fails(part[1], SL_ERR_CORRUPT, "s-00002-of-00003.gguf");
    assert_int_equal(unlink(part[2]), 0);
    expect_open_fails(part[1], SL_ERR_IO, "s-00002-of-00003.gguf: part 2 of 3 is missing");
    write_part(part[2], 2, 3, 3, "t2");
    write_part(part[1], 1, 3, 7, "t1");
    expect_open_fails(part[1], SL_ERR_CORRUPT, "'split.tensors.count' is 7");
    write_part(part[1], 1, 2, 3, "t1");
    expect_open_fails(part[1], SL_ERR_CORRUPT, "the name does not end in -00001-of-00002.gguf");
    write_part(part[1], 2, 3, 3, "t1");
    expect_open_fails(part[1], SL_ERR_CORRUPT, "expected part 1 of 3");
    write_part(part[1], 1, 60000, 3, "t1");
    expect_open_fails(part[1], SL_ERR_CORRUPT, "'split.count' is 60000");
    assert_int_equal(unlink(part[1]), 0);
    expect_open_fails(part[3], SL_ERR_IO, "part 1 of 3 is missing");

    snprintf(other, sizeof other, "%s/renamed.gguf", dir);
    write_part(other, 1, 3, 3, "t1");
    expect_open_fails(other, SL_ERR_CORRUPT, "-00001-of-00003.gguf");
    write_part(other, 1, 1, 1, "t1"); /* a "split" of one file */
    struct sl_gguf *g = NULL;
    assert_int_equal(sl_gguf_open(other, &g, &err), SL_OK);
    sl_gguf_close(&g);

    struct gb b = gb_new(3);
    gb_uint(&b, "split.count", 3);
    expect_refused(&b, SL_ERR_UNSUPPORTED, "split.count", "needs its files");
    b = gb_new(3);
    gb_float(&b, "split.count", 3);
    expect_refused(&b, SL_ERR_CORRUPT, "split.count", "not an integer");
}

static int make_dir(void **state) {
    static char dir[64];
    snprintf(dir, sizeof dir, "/tmp/sl_test_gguf_XXXXXX");
    *state = mkdtemp(dir);
    return *state ? 0 : -1;
}

static int remove_dir(void **state) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", (const char *)*state);
    return system(command);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_versions_2_and_3),
        cmocka_unit_test_setup_teardown(test_from_disk, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_truncated_anywhere, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_large_metadata_from_disk, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_huge_file, make_dir, remove_dir),
        cmocka_unit_test(test_shorter_than_stated),
        cmocka_unit_test(test_all_types_sizes),
        cmocka_unit_test(test_typed_reads),
        cmocka_unit_test(test_fingerprint),
        cmocka_unit_test(test_escape),
        cmocka_unit_test_setup_teardown(test_not_files, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_split, make_dir, remove_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
