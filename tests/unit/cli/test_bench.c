/* What bench says of memory: the engine's own peak, within the budget, not what its measurement of
 * RAM takes; and of the disk: its rate, measured where experts are streamed and slots hold some. */
#include "cli/options/args.h"
#include "cli/options/commands.h"
#include "tests/support/capture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

/* Within 400 MiB RAM is read through a buffer of 256 MiB. */
#define BUDGET     "400MiB"
#define BUDGET_MIB 400
#define PEAK_MIB   200 /* of a small model and this program, by far */
/* Within this it is not read: that takes seconds, and one test is about it. */
#define UNMEASURED "240MiB"

static char model[64];

static int write_model(void **state) {
    (void)state;
    snprintf(model, sizeof model, "/tmp/sluice-bench-XXXXXX");
    int fd = mkstemp(model);
    if (fd < 0)
        return -1;
    close(fd);
    char *argv[] = {(char *)"synth", (char *)"-q", (char *)"--vocab",
                    (char *)"300",   (char *)"-o", model};
    return sl_cmd_synth(SL_COUNTOF(argv), argv);
}

static int remove_model(void **state) {
    (void)state;
    return unlink(model);
}

static json_t *measured(char **argv, int argc) {
    struct capture c = capture_begin(stdout);
    int rc = sl_cmd_bench(argc, argv);
    FILE *kept = capture_end(&c);
    assert_int_equal(rc, 0);
    json_t *j = json_loadf(kept, 0, NULL);
    fclose(kept);
    assert_non_null(j);
    return j;
}

static void peak_without_the_measurement(void **state) {
    (void)state;
    if (SANITIZED) {
        print_message("a sanitizer's own memory is part of the peak\n");
        skip();
    }
    char *argv[] = {(char *)"bench",    (char *)"-m",   model,
                    (char *)"--ram",    (char *)BUDGET, (char *)"-p",
                    (char *)"8",        (char *)"-n",   (char *)"4",
                    (char *)"-r",       (char *)"1",    (char *)"--json",
                    (char *)"--device", (char *)"cpu",  (char *)"--experts",
                    (char *)"streamed", (char *)"--io", (char *)"pread"};
    json_t *list = measured(argv, SL_COUNTOF(argv));
    assert_int_equal(json_array_size(list), 2);
    json_t *test = json_array_get(list, 1);
    json_int_t peak = json_integer_value(json_object_get(test, "peak_rss_bytes"));
    json_int_t budget = json_integer_value(json_object_get(test, "budget_bytes"));
    assert_int_equal(budget, (json_int_t)BUDGET_MIB << 20);
    assert_true(json_real_value(json_object_get(test, "ram_read_bytes_per_s")) > 0);
    if (peak < 1 << 20 || peak > (json_int_t)PEAK_MIB << 20)
        fail_msg("peak of %lld bytes", (long long)peak);
    json_decref(list);
}

static double disk_rate(json_t *list, uint32_t test) {
    return json_real_value(json_object_get(json_array_get(list, test), "disk_bytes_per_s"));
}

static void disk_where_experts_are_streamed(void **state) {
    (void)state;
    static const char *const where[] = {"streamed", "resident"};
    for (uint32_t i = 0; i < 2; i++) {
        char *argv[] = {(char *)"bench",     (char *)"-m",       model,
                        (char *)"--ram",     (char *)UNMEASURED, (char *)"-p",
                        (char *)"8",         (char *)"-n",       (char *)"2",
                        (char *)"-r",        (char *)"1",        (char *)"--json",
                        (char *)"--device",  (char *)"cpu",      (char *)"--no-warmup",
                        (char *)"--experts", (char *)where[i]};
        json_t *list = measured(argv, SL_COUNTOF(argv));
        assert_int_equal(json_array_size(list), 2);
        for (uint32_t t = 0; t < 2; t++) {
            if (i == 0)
                assert_true(disk_rate(list, t) > 0);
            else
                assert_null(json_object_get(json_array_get(list, t), "disk_bytes_per_s"));
            /* What the measurement read is no run's. */
            double per_token =
                json_real_value(json_object_get(json_array_get(list, t), "disk_bytes_per_token"));
            assert_true(per_token < 64e6);
        }
        json_decref(list);
    }
}

/* A layer that knows every successor is mostly right with what the model chooses; with random
 * tokens none could be. */
static void drafts_are_counted(void **state) {
    (void)state;
    char file[] = "/tmp/sluice-bench-XXXXXX";
    int fd = mkstemp(file);
    assert_true(fd >= 0);
    close(fd);
    char *synth[] = {(char *)"synth",         (char *)"-q",      (char *)"--vocab",  (char *)"300",
                     (char *)"--arch",        (char *)"glm4moe", (char *)"--layers", (char *)"2",
                     (char *)"--nextn",       (char *)"1",       (char *)"-o",       file,
                     (char *)"--nextn-right", (char *)"100"};
    assert_int_equal(sl_cmd_synth(SL_COUNTOF(synth), synth), 0);
    for (int drafting = 0; drafting < 2; drafting++) {
        char *argv[] = {(char *)"bench",
                        (char *)"-m",
                        file,
                        (char *)"--device",
                        (char *)"cpu",
                        (char *)"--ram",
                        (char *)UNMEASURED,
                        (char *)"-p",
                        (char *)"0",
                        (char *)"-n",
                        (char *)"16",
                        (char *)"-r",
                        (char *)"1",
                        (char *)"--no-warmup",
                        (char *)"--json",
                        (char *)"--own-answers",
                        (char *)"--draft",
                        (char *)(drafting ? "1" : "off")};
        json_t *list = measured(argv, SL_COUNTOF(argv)), *test = json_array_get(list, 0);
        json_t *n = json_object_get(test, "drafts");
        assert_int_equal(n != NULL, drafting);
        if (drafting) {
            assert_true(json_integer_value(n) >= 7);
            assert_true(2 * json_integer_value(json_object_get(test, "drafts_accepted")) >=
                        json_integer_value(n));
        }
        json_decref(list);
    }
    unlink(file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(peak_without_the_measurement, write_model, remove_model),
        cmocka_unit_test_setup_teardown(disk_where_experts_are_streamed, write_model, remove_model),
        cmocka_unit_test(drafts_are_counted)}; /* last: it measures RAM through a large buffer */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
