#include "cli/options/args.h"
#include "cli/options/args_env.h"
#include "cli/options/help.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static struct {
    bool flag;
    const char *text;
    uint32_t u32;
    uint64_t u64, bytes;
    float f32;
    struct sl_arg_list list;
    const char *secret;
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
        {SL_ARG_LIST, 0, "--other-hosts", "H", &got.list, "", false},
        {SL_ARG_SECRET, 0, "--a-key", "K", &got.secret, "", false},
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

/* All of a table's options; the command line counts more. */
static void variables(void **state) {
    (void)state;
    static const char *const all[][2] = {{"SLUICE_QUIET", "1"},    {"SLUICE_MODEL", "env.gguf"},
                                         {"SLUICE_THREADS", "7"},  {"SLUICE_SEED", "0x11"},
                                         {"SLUICE_RAM", "2GiB"},   {"SLUICE_TEMP", "0.25"},
                                         {"SLUICE_A_KEY", "hush"}, {"SLUICE_OTHER_HOSTS", "a,b"}};
    for (uint32_t i = 0; i < SL_COUNTOF(all); i++)
        setenv(all[i][0], all[i][1], 1);
    assert_int_equal(parse((const char *const[]){NULL}), -1);
    assert_true(got.flag && got.u32 == 7 && got.u64 == 17 && got.bytes == 2ull << 30 &&
                got.f32 == 0.25f);
    assert_string_equal(got.text, "env.gguf");
    assert_int_equal(got.list.n, 1);
    assert_string_equal(got.list.items[0], "a,b");
    assert_null(got.secret);
    assert_int_equal(PARSE("--threads", "3", "--temp=1", "--other-hosts", "c", "arg.gguf"), -1);
    assert_true(got.u32 == 3 && got.f32 == 1 && got.u64 == 17);
    assert_string_equal(got.text, "arg.gguf");
    assert_int_equal(got.list.n, 1);
    assert_string_equal(got.list.items[0], "c");
    assert_int_equal(PARSE("-m", "option.gguf"), -1);
    assert_string_equal(got.text, "option.gguf");
    /* Empty is as good as unset; what is wrong is an error, but not where it does not count. */
    static const char *const bad[][2] = {{"SLUICE_QUIET", "perhaps"},
                                         {"SLUICE_THREADS", "many"},
                                         {"SLUICE_RAM", "-1"},
                                         {"SLUICE_TEMP", "nan"}};
    for (uint32_t i = 0; i < SL_COUNTOF(bad); i++) {
        setenv(bad[i][0], "", 1);
        assert_int_equal(PARSE("m"), -1);
        setenv(bad[i][0], bad[i][1], 1);
        assert_int_equal(PARSE("m"), 2);
        assert_int_equal(PARSE("m", "-q", "-t", "1", "--ram", "1G", "--temp", "1"), -1);
        unsetenv(bad[i][0]);
    }
    setenv("SLUICE_QUIET", "off", 1);
    assert_int_equal(PARSE("m"), -1);
    assert_false(got.flag);
    for (uint32_t i = 0; i < SL_COUNTOF(all); i++)
        unsetenv(all[i][0]);
}

static void names_of_variables(void **state) {
    (void)state;
    char name[SL_VARIABLE_BYTES];
    const struct sl_arg heading = {SL_ARG_HEADING, 0, "Engine", NULL, NULL, NULL, false},
                        secret = {SL_ARG_SECRET, 0, "--api-key", "K", NULL, NULL, false},
                        option = {SL_ARG_U32, 0, "--max-body-mib", "N", NULL, NULL, false};
    assert_false(sl_args_variable(&heading, name));
    assert_false(sl_args_variable(&secret, name));
    assert_true(sl_args_variable(&option, name));
    assert_string_equal(name, "SLUICE_MAX_BODY_MIB");
    setenv("SLUICE_PORT", "tcp://10.0.0.7:80", 1); /* of Kubernetes */
    assert_null(sl_args_variable_value("SLUICE_PORT"));
    setenv("SLUICE_PORT", "8081", 1);
    assert_string_equal(sl_args_variable_value("SLUICE_PORT"), "8081");
    unsetenv("SLUICE_PORT");
}

/* A refused value changes nothing. */
static void setting_one(void **state) {
    (void)state;
    static const struct sl_arg args[] = {{SL_ARG_F32, 0, "--temp", "X", &got.f32, "", false},
                                         {SL_ARG_U32, 0, "--n", "N", &got.u32, "", false}};
    static const struct sl_arg_limit limits[] = {{"--temp", 0, 2, NULL}};
    const struct sl_command c = {
        .name = "test", .args = args, .n_args = 2, .limits = limits, .n_limits = 1};
    struct sl_err err;
    got.f32 = 0.5f;
    got.u32 = 3;
    assert_false(sl_args_set(&c, "--temp", "temp", "2.5", &err));
    assert_string_equal(err.text, "temp is '2.5': must be a number from 0 to 2");
    assert_false(sl_args_set(&c, "--n", "n", "", &err));
    assert_true(got.f32 == 0.5f && got.u32 == 3);
    assert_true(sl_args_set(&c, "--temp", "temp", "2", &err));
    assert_true(got.f32 == 2);
}

/* What a text of the help becomes, from a column on. */
static void wraps(const char *text, int at, const char *wanted) {
    char said[1024] = "";
    FILE *f = tmpfile();
    assert_non_null(f);
    at < 0 ? sl_help_paragraphs(f, text) : sl_help_wrap(f, text, at);
    rewind(f);
    said[fread(said, 1, sizeof said - 1, f)] = '\0';
    fclose(f);
    assert_string_equal(said, wanted);
}

static void wrapping(void **state) {
    (void)state;
    wraps("", 5, "\n");
    wraps("a\nb  c\n", 5, "a b c\n");
    wraps("0123456789 0123456789", 60,
          "0123456789\n" /* 71 columns are too few for two */
          "                                                            "
          "0123456789\n");
    wraps("012345678 0123456789", 60, "012345678 0123456789\n"); /* 80 are enough */
    wraps("a\nb\n  sluice x\n  y\nc\n\nd\ne\n", -1, "a b\n  sluice x\n  y\nc\n\nd e\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(values),
                                       cmocka_unit_test(wrong_usage),
                                       cmocka_unit_test(one_model),
                                       cmocka_unit_test(nearest),
                                       cmocka_unit_test(sizes),
                                       cmocka_unit_test(variables),
                                       cmocka_unit_test(names_of_variables),
                                       cmocka_unit_test(setting_one),
                                       cmocka_unit_test(wrapping)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
