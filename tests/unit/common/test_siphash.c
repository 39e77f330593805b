#include "common/siphash.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct sl_hash128 counting_key(void) {
    struct sl_hash128 key;
    uint8_t bytes[16];
    for (uint8_t i = 0; i < 16; i++)
        bytes[i] = i;
    memcpy(&key, bytes, sizeof key);
    return key;
}

/* The paper's key 00..0f and messages 00, 00 01, ...: values published with the reference. */
static void known_values(void **state) {
    (void)state;
    static const uint8_t want[3][16] = {{0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6, 0x6d, 0xf6,
                                         0x72, 0x14, 0xc7, 0x55, 0x02, 0x93},
                                        {0xda, 0x87, 0xc1, 0xd8, 0x6b, 0x99, 0xaf, 0x44, 0x34, 0x76,
                                         0x59, 0x11, 0x9b, 0x22, 0xfc, 0x45},
                                        {0x81, 0x77, 0x22, 0x8d, 0xa4, 0xa4, 0x5d, 0xc7, 0xfc, 0xa3,
                                         0x8b, 0xde, 0xf6, 0x0a, 0xff, 0xe4}};
    uint8_t message[3] = {0, 1, 2};
    for (size_t n = 0; n < 3; n++) {
        struct sl_hash128 h = sl_siphash128(counting_key(), message, n);
        assert_memory_equal(&h, want[n], 16);
    }
}

static void pieces_make_the_whole(void **state) {
    (void)state;
    uint8_t data[67];
    for (uint8_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(i * 7);
    struct sl_hash128 whole = sl_siphash128(counting_key(), data, sizeof data);
    for (size_t a = 0; a <= sizeof data; a++)
        for (size_t b = a; b <= sizeof data; b++) {
            struct sl_siphash s;
            sl_siphash_init(&s, counting_key());
            sl_siphash_add(&s, data, a);
            sl_siphash_add(&s, data + a, b - a);
            sl_siphash_add(&s, data + b, sizeof data - b);
            struct sl_hash128 h = sl_siphash_end(&s);
            assert_memory_equal(&h, &whole, 16);
        }
}

static void every_bit_counts(void **state) {
    (void)state;
    uint8_t data[40] = {0};
    struct sl_hash128 before = sl_siphash128(counting_key(), data, sizeof data);
    for (size_t bit = 0; bit < 8 * sizeof data; bit++) {
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        struct sl_hash128 h = sl_siphash128(counting_key(), data, sizeof data);
        assert_memory_not_equal(&h, &before, 16);
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    struct sl_hash128 h = sl_siphash128((struct sl_hash128){1, 2}, data, sizeof data);
    assert_memory_not_equal(&h, &before, 16);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_values),
        cmocka_unit_test(pieces_make_the_whole),
        cmocka_unit_test(every_bit_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
