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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values),
        cmocka_unit_test(labels_share_one_head),
        cmocka_unit_test(every_name_has_one_head),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
