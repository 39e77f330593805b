#include "common/crc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* RFC 3720, appendix B.4, and the polynomial's usual check value. */
static void known_values(void **state) {
    (void)state;
    uint8_t b[32];
    assert_int_equal(sl_crc32c(0, "123456789", 9), 0xe3069283u);
    assert_int_equal(sl_crc32c(0, "", 0), 0);
    memset(b, 0, sizeof b);
    assert_int_equal(sl_crc32c(0, b, 32), 0x8a9136aau);
    memset(b, 0xff, sizeof b);
    assert_int_equal(sl_crc32c(0, b, 32), 0x62a8ab43u);
    for (uint32_t i = 0; i < 32; i++)
        b[i] = (uint8_t)i;
    assert_int_equal(sl_crc32c(0, b, 32), 0x46dd794eu);
}

static void continues(void **state) {
    (void)state;
    for (size_t cut = 0; cut <= 9; cut++)
        assert_int_equal(sl_crc32c(sl_crc32c(0, "123456789", cut), &"123456789"[cut], 9 - cut),
                         0xe3069283u);
}

/* Words go another way than single bytes. */
static void the_same_in_words_and_bytes(void **state) {
    (void)state;
    uint8_t b[64];
    for (uint32_t i = 0; i < sizeof b; i++)
        b[i] = (uint8_t)(i * 151 + 7);
    for (size_t from = 0; from < 9; from++)
        for (size_t n = 0; n <= sizeof b - from; n++) {
            uint32_t bytes = 0;
            for (size_t i = 0; i < n; i++)
                bytes = sl_crc32c(bytes, b + from + i, 1);
            assert_int_equal(sl_crc32c(0, b + from, n), bytes);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(known_values), cmocka_unit_test(continues),
                                       cmocka_unit_test(the_same_in_words_and_bytes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
