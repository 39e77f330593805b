/* The server's limits for a given sum, and the sum for given limits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "server/request/fields.h"
#include "server/exchange/memory.h"

#define MIB ((uint64_t)1 << 20)

static void fits_the_sum(void **state) {
    (void)state;
    for (uint64_t bytes = SL_SERVER_LEAST_BYTES; bytes < 16384 * MIB; bytes += bytes / 3) {
        struct sl_server_config c = {0};
        sl_server_fit(&c, bytes);
        assert_true(sl_server_memory_bytes(&c) <= bytes);
        assert_true(c.max_body_bytes >= 256 * 1024 && c.max_body_bytes <= 64 * MIB);
        assert_true(c.max_connections >= 16 && c.max_connections <= 1024);
        assert_true(c.max_bodies_bytes >= c.max_body_bytes);
        assert_true(sl_server_json_units(&c) >= 10000);
        assert_true(sl_server_template_limits(&c).max_memory_bytes >= 2 * MIB);
        assert_true(c.response_store_bytes >= 1 * MIB / 2 && c.response_store_bytes <= 64 * MIB);
        /* What a worker may do at once is within what it is given. */
        assert_true(4 * c.max_body_bytes + 52ull * sl_server_json_units(&c) +
                        sl_server_template_limits(&c).max_memory_bytes +
                        10 * sl_server_template_limits(&c).max_output_bytes <=
                    c.worker_bytes);
    }
}

static void the_most_is_the_default(void **state) {
    (void)state;
    struct sl_server_config c = {0}, d = {0};
    sl_server_fit(&c, 1ull << 40);
    sl_server_defaults(&d);
    assert_int_equal(c.max_body_bytes, d.max_body_bytes);
    assert_int_equal(c.worker_bytes, d.worker_bytes);
    assert_int_equal(c.max_connections, d.max_connections);
    assert_int_equal(c.response_store_bytes, d.response_store_bytes);
    assert_int_equal(sl_server_json_units(&c), SL_JSON_MAX_UNITS);
    assert_int_equal(sl_server_tokenize_bytes(&c), 8 * MIB);
}

static void what_is_set_stays(void **state) {
    (void)state;
    struct sl_server_config c = {.max_body_bytes = 8 * MIB, .max_connections = 500};
    c.response_store_bytes = SL_NO_RESPONSE_STORE;
    uint64_t before = sl_server_memory_bytes(&c);
    c.response_store_bytes = 9 * MIB;
    assert_int_equal(sl_server_memory_bytes(&c), before + 9 * MIB);
    c.response_store_bytes = SL_NO_RESPONSE_STORE;
    sl_server_fit(&c, SL_SERVER_LEAST_BYTES);
    assert_true(c.response_store_bytes == SL_NO_RESPONSE_STORE);
    assert_int_equal(c.max_body_bytes, 8 * MIB);
    assert_int_equal(c.max_connections, 500);
    assert_true(c.worker_bytes >= 32 * 8 * MIB); /* room to parse such a body */
    assert_true(sl_server_memory_bytes(&c) > 500 * MIB);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fits_the_sum),
        cmocka_unit_test(the_most_is_the_default),
        cmocka_unit_test(what_is_set_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
