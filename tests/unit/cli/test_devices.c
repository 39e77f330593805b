/* sluice devices: what it prints for people and as JSON, and that the documents name every field.
 */
#include "backends/registry/registry.h"
#include "cli/options/commands.h"
#include "tests/support/capture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

static char said[1 << 16];

static void run(const char *option) {
    char *argv[] = {(char *)"devices", (char *)(uintptr_t)option, NULL};
    struct capture c = capture_begin(stdout);
    int rc = sl_cmd_devices(option ? 2 : 1, argv);
    FILE *kept = capture_end(&c);
    size_t n = fread(said, 1, sizeof said - 1, kept);
    said[n] = 0;
    fclose(kept);
    assert_int_equal(rc, 0);
}

static void for_people(void **state) {
    (void)state;
    run(NULL);
    assert_non_null(strstr(said, "\ncpu "));
    assert_non_null(strstr(said, " host "));
    assert_null(strstr(said, "null"));
    const struct sl_backend *b; /* of each there is a device, or why there is none */
    for (uint32_t i = 0; (b = sl_backend_at(i)); i++) {
        char line[32];
        snprintf(line, sizeof line, "\n%s", b->name);
        assert_true(b->hidden || strstr(said, line));
    }
}

/* "name": as docs/OPERATIONS.md writes of fields. */
static bool is_documented(const char *name) {
    static char text[1 << 17];
    char wanted[64];
    FILE *f = fopen("docs/OPERATIONS.md", "r");
    if (!f)
        return true; /* run from elsewhere */
    size_t n = fread(text, 1, sizeof text - 1, f);
    text[n] = 0;
    fclose(f);
    snprintf(wanted, sizeof wanted, "`%s`", name);
    return strstr(text, wanted) != NULL;
}

static void for_programs(void **state) {
    (void)state;
    run("--json");
    json_error_t e;
    json_t *j = json_loads(said, 0, &e), *devices, *missing, *value;
    const char *key;
    assert_non_null(j);
    devices = json_object_get(j, "devices");
    missing = json_object_get(j, "missing");
    assert_true(json_is_array(devices) && json_is_array(missing));
    json_t *host = json_array_get(devices, json_array_size(devices) - 1);
    assert_string_equal(json_string_value(json_object_get(host, "id")), "cpu");
    assert_string_equal(json_string_value(json_object_get(host, "kind")), "host");
    assert_true(json_is_true(json_object_get(host, "usable")));
    assert_string_equal(json_string_value(json_object_get(host, "why_not")), "");
    assert_true(json_integer_value(json_object_get(host, "memory_bytes")) > 1 << 20);
    assert_true(json_integer_value(json_object_get(host, "free_bytes")) > 1 << 20);
    assert_int_equal(json_integer_value(json_object_get(host, "subgroup_width")), 0);
    assert_int_equal(json_array_size(json_object_get(host, "fused_ops")), 0);
    json_object_foreach(host, key, value) if (!is_documented(key))
        fail_msg("docs/OPERATIONS.md says nothing of `%s`", key);
    for (size_t i = 0; i < json_array_size(missing); i++) {
        json_t *m = json_array_get(missing, i);
        assert_true(strlen(json_string_value(json_object_get(m, "backend"))) > 0);
        assert_true(strlen(json_string_value(json_object_get(m, "why"))) > 0);
    }
    json_decref(j);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(for_people),
        cmocka_unit_test(for_programs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
