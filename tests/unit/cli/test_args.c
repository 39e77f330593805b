#include "cli/args.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static struct {
    bool flag;
    const char *text;
    uint32_t u32;
    uint64_t u64, bytes;
    float f32;
} got;

static bool model_optional;

static int parse(const char *const *words) {
    memset(&got, 0, sizeof got);
    const struct sl_arg args[] = {
        {SL_ARG_FLAG, 'q', "--quiet", NULL, &got.flag, "", false},
        {SL_ARG_HEADING, 0, "numbers:", NULL, NULL, NULL, false},
        {SL_ARG_STRING, 'm', "--model", "FILE", &got.text, "", false},
        {SL_ARG_U32, 't', "--threads", "N", &got.u32, "", false},
        {SL_ARG_U64, 0, "--seed", "N", &got.u64, "", false},
        {SL_ARG_BYTES, 0, "--ram", "SIZE", &got.bytes, "", false},
        {SL_ARG_F32, 0, "--temp", "X", &got.f32, "", false},
    };
    const struct sl_command c = {.name = "test",
                                 .about = "",
                                 .usage = "",
                                 .args = args,
                                 .n_args = SL_COUNTOF(args),
                                 .model = &got.text,
                                 .model_optional = model_optional};
    char *argv[16] = {(char *)"test"};
    int argc = 1;
    while (words[argc - 1]) {
        argv[argc] = (char *)words[argc - 1];
        argc++;
    }
    return sl_args_parse(&c, argc, argv);
}
#define PARSE(...) parse((const char *const[]){__VA_ARGS__, NULL})

static void values(void **state) {
    (void)state;
    assert_int_equal(PARSE("-m", "a.gguf", "--threads=3", "--seed", "0x10", "--ram", "1.5GiB",
                           "--temp", "-0.5", "-q"),
                     -1);
    assert_string_equal(got.text, "a.gguf");
    assert_int_equal(got.u32, 3);
    assert_int_equal(got.u64, 16);
    assert_true(got.bytes == 3ull << 29);
    assert_true(got.f32 == -0.5f);
    assert_true(got.flag);
    assert_int_equal(PARSE("-m", "x", "--threads", "010", "--seed", "010"), -1); /* not octal */
    assert_int_equal(got.u32, 10);
    assert_int_equal(got.u64, 10);
}

static void wrong_usage(void **state) {
    (void)state;
    assert_int_equal(PARSE("-q"), 2); /* no model */
    assert_int_equal(PARSE("-m"), 2);
    assert_int_equal(PARSE("-m", "x", "--threads", "many"), 2);
    assert_int_equal(PARSE("-m", "x", "--threads", "-1"), 2);
    assert_int_equal(PARSE("-m", "x", "--threads", "0x10"), 2);
    assert_int_equal(PARSE("-m", ""), 2);
    assert_int_equal(PARSE("-m", "x", ""), 2);
    assert_int_equal(PARSE("-m", "x", "--threads", "4294967296"), 2);
    assert_int_equal(PARSE("-m", "x", "--temp", "nan"), 2);
    assert_int_equal(PARSE("-m", "x", "--quiet=yes"), 2);
    assert_int_equal(PARSE("-m", "x", "--thread", "2"), 2);
    assert_int_equal(PARSE("-m", "x", "a", "b"), 2);
    assert_int_equal(PARSE("--help"), 0);
}

static void one_model(void **state) {
    (void)state;
    assert_int_equal(PARSE("-m", "a"), -1);
    assert_string_equal(got.text, "a");
    assert_int_equal(PARSE("b"), -1);
    assert_string_equal(got.text, "b");
    assert_int_equal(PARSE("--", "-q"), -1);
    assert_string_equal(got.text, "-q");
    assert_false(got.flag);
    model_optional = true;
    assert_int_equal(PARSE("-q"), -1);
    assert_null(got.text);
    model_optional = false;
    assert_int_equal(PARSE("-m", "a", "b"), 2);
    assert_int_equal(PARSE("a", "b"), 2);
}

static void nearest(void **state) {
    (void)state;
    const char *const names[] = {"--threads", "--temp", "--model"};
    assert_string_equal(sl_args_nearest("--thread", names, 3), "--threads");
    assert_string_equal(sl_args_nearest("--modle", names, 3), "--model");
    assert_null(sl_args_nearest("--completely-else", names, 3));
    char longer[200];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    assert_null(sl_args_nearest(longer, names, 3));
}

static void sizes(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {{"0", 0},          {"512", 512},         {"1K", 1024},       {"1KiB", 1024},
                {"2MB", 2u << 20}, {"1.5g", 3ull << 29}, {"1T", 1ull << 40}, {"7B", 7}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        uint64_t b = 99;
        assert_true(sl_parse_bytes(good[i].text, &b));
        assert_true(b == good[i].bytes);
    }
    static const char *const bad[] = {"", "x", "-1", "1X", "1GiBs", "nan", "inf", "1e30", "1 G"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        uint64_t b;
        if (sl_parse_bytes(bad[i], &b))
            fail_msg("'%s' was taken for a size", bad[i]);
    }
    char buf[16];
    assert_string_equal(sl_format_bytes(1023, buf), "1023 B");
    assert_string_equal(sl_format_bytes(3ull << 29, buf), "1.50 GiB");
    assert_string_equal(sl_format_bytes(UINT64_MAX, buf), "16777216.00 TiB");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(values), cmocka_unit_test(wrong_usage),
                                       cmocka_unit_test(one_model), cmocka_unit_test(nearest),
                                       cmocka_unit_test(sizes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
