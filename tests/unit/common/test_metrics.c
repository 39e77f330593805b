#include "common/histograms.h"
#include "common/metrics.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char *written(void) {
    char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);
    assert_non_null(f);
    sl_metrics_write(f);
    assert_int_equal(fclose(f), 0);
    return text;
}

static uint32_t occurrences(const char *text, const char *what) {
    uint32_t n = 0;
    for (const char *p = text; (p = strstr(p, what)) != NULL; p++)
        n++;
    return n;
}

static void values(void **state) {
    (void)state;
    sl_count(requests_total, 3);
    sl_count(prefill_ns_total, 1500000001);
    sl_gauge(kv_pages_used, 7);
    char *text = written();
    assert_non_null(
        strstr(text, "# TYPE sluice_requests_total counter\nsluice_requests_total 3\n"));
    assert_non_null(strstr(text, "\nsluice_prefill_seconds_total 1.500000001\n"));
    assert_non_null(strstr(text, "# TYPE sluice_kv_pages_used gauge\nsluice_kv_pages_used 7\n"));
    free(text);
}

static void labels_share_one_head(void **state) {
    (void)state;
    sl_count(expert_hits_total, 5);
    sl_count(expert_misses_total, 2);
    char *text = written();
    assert_int_equal(occurrences(text, "# TYPE sluice_expert_lookups_total counter\n"), 1);
    assert_int_equal(occurrences(text, "# HELP sluice_expert_lookups_total "), 1);
    assert_non_null(strstr(text, "\nsluice_expert_lookups_total{found=\"device\"} 5\n"));
    assert_non_null(strstr(text, "\nsluice_expert_lookups_total{found=\"disk\"} 2\n"));
    free(text);
}

/* Prometheus refuses a name whose head comes twice, and a head without its samples. */
static void every_name_has_one_head(void **state) {
    (void)state;
    char *text = written(), *save = NULL, head[128] = "";
    uint32_t n_samples = 0;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        if (strncmp(line, "# HELP ", 7) == 0) {
            size_t n = strcspn(line + 7, " ");
            assert_true(line[7 + n] == ' ' && line[8 + n] != 0);
            assert_true(n < sizeof head);
            memcpy(head, line + 7, n);
            head[n] = 0;
        } else if (strncmp(line, "# TYPE ", 7) == 0) {
            assert_int_equal(strncmp(line + 7, head, strlen(head)), 0);
        } else {
            size_t n = strcspn(line, "{ ");
            assert_int_equal(n, strlen(head));
            assert_int_equal(strncmp(line, head, n), 0);
            n_samples++;
        }
    }
    free(text);
    uint32_t n_metrics = 0;
#define SL_METRIC(kind, field, name, help) n_metrics++;
#include "common/metrics.def"
#undef SL_METRIC
    assert_int_equal(n_samples, n_metrics);
    text = written();
#define SL_METRIC(kind, field, name, help)                                                         \
    do {                                                                                           \
        char mark[160];                                                                            \
        int len = (int)strcspn(name, "{");                                                         \
        snprintf(mark, sizeof mark, "# TYPE %.*s ", len, name);                                    \
        assert_int_equal(occurrences(text, mark), 1);                                              \
    } while (0);
#include "common/metrics.def"
#undef SL_METRIC
    free(text);
}

/* Of all stages under one head, with labels of their own in front. */
static void stages(void **state) {
    (void)state;
    static struct sl_stage_metrics of[2];
    sl_stage_gauge(&of[0], layers, 3);
    sl_stage_gauge(&of[1], memory_bytes, 1ll << 40);
    sl_stage_count(&of[0], expert_misses_total, 2);
    sl_stage_count(&of[0], expert_misses_total, 5);
    sl_stage_count(&of[1], busy_ns_total, 2500000000);
    const struct sl_stage_shown shown[] = {{1, "cuda:0: A \"GPU\", sm_90", &of[0]},
                                           {2, "a\"b\\c\nd", &of[1]}};
    char *text = NULL;
    size_t len;
    for (uint32_t n = 0; n <= 2; n++) {
        FILE *f = open_memstream(&text, &len);
        assert_non_null(f);
        sl_stage_metrics_write(f, shown, n);
        assert_int_equal(fclose(f), 0);
        uint32_t n_metrics = 0, n_heads = 0;
#define SL_STAGE_METRIC(kind, field, name, help)                                                   \
    n_metrics++;                                                                                   \
    n_heads += *help != 0;
#include "common/stage_metrics.def"
#undef SL_STAGE_METRIC
        assert_int_equal(occurrences(text, "# TYPE "), n_heads);
        assert_int_equal(occurrences(text, "{stage=\""), n * n_metrics);
        assert_int_equal(occurrences(text, "\n"), 2 * n_heads + n * n_metrics);
        if (n < 2)
            free(text);
    }
    static const char *const lines[] = {
        "# TYPE sluice_stage_layers gauge\nsluice_stage_layers{stage=\"1\",device=\"cuda:0\"} 3\n"
        "sluice_stage_layers{stage=\"2\",device=\"a\\\"b\\\\c\\nd\"} 0\n",
        "\nsluice_stage_memory_bytes{stage=\"2\",device=\"a\\\"b\\\\c\\nd\"} 1099511627776\n",
        "\nsluice_stage_expert_lookups_total{stage=\"1\",device=\"cuda:0\",found=\"disk\"} 7\n",
        "\nsluice_stage_busy_seconds_total{stage=\"2\",device=\"a\\\"b\\\\c\\nd\"} 2.500000000\n"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (!strstr(text, lines[i]))
            fail_msg("%s is not in\n%s", lines[i], text);
    free(text);
}

/* Buckets add up, each value is in the first that is not below it, and the sum is exact. */
static void histograms(void **state) {
    (void)state;
    static const struct {
        uint64_t ns;
        const char *first_in;
    } values[] = {{0, "0.0001"},        {100000, "0.0001"},        {100001, "0.00025"},
                  {30000000, "0.05"},   {1000000000, "1"},         {100000000000, "100"},
                  {100000000001, NULL}, {7000000000000000u, NULL}, {2500000, "0.0025"}};
    uint64_t sum = 0;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        sl_observe(queue_wait, values[i].ns);
        sum += values[i].ns;
    }
    char *text = NULL, want[128];
    size_t len;
    FILE *f = open_memstream(&text, &len);
    assert_non_null(f);
    sl_histograms_write(f);
    assert_int_equal(fclose(f), 0);
    uint64_t before = 0;
    const char *p = strstr(text, "# TYPE sluice_queue_wait_seconds histogram\n");
    assert_non_null(p);
    for (uint32_t i = 0; i <= SL_HISTOGRAM_BOUNDS; i++) {
        char bound[16];
        unsigned long long n;
        p = strstr(p, "_bucket{le=\"");
        assert_int_equal(sscanf(p, "_bucket{le=\"%15[^\"]\"} %llu", bound, &n), 2);
        for (size_t v = 0; v < sizeof values / sizeof *values; v++)
            before += values[v].first_in ? strcmp(values[v].first_in, bound) == 0
                                         : strcmp(bound, "+Inf") == 0;
        assert_int_equal(n, before);
        p++;
    }
    assert_int_equal(before, sizeof values / sizeof *values);
    snprintf(want, sizeof want, "\nsluice_queue_wait_seconds_sum %llu.%09llu\n",
             (unsigned long long)(sum / 1000000000u), (unsigned long long)(sum % 1000000000u));
    assert_non_null(strstr(text, want));
    assert_non_null(strstr(text, "\nsluice_queue_wait_seconds_count 9\n"));
    assert_int_equal(occurrences(text, "# HELP "), occurrences(text, "_count "));
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values),
        cmocka_unit_test(labels_share_one_head),
        cmocka_unit_test(every_name_has_one_head),
        cmocka_unit_test(stages),
        cmocka_unit_test(histograms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
