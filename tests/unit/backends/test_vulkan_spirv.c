/* Modules as they go to Vulkan's drivers: matrices of NVIDIA's extension become Khronos'. */
#include "backends/vulkan/spirv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include <cmocka.h>

#include <string.h>

#define OP(op, length) ((length) << 16 | (op))

enum {
    UINT = 1,
    CHAR,
    INT,
    FLOAT,
    FLOAT_A,
    FLOAT_B,
    BOOL,
    TRUE_,
    FALSE_,
    DIM,
    A,
    B,
    C,
    PTR,
    BOUND = 40
};

/* Header, capability, extension, types; int8 matrices A and B, C of int32; then what a body does
 * with them. Ids from 20 on are results. */
static const uint32_t module[] = {
    0x07230203,  0x10600,     0,           BOUND,       0,           OP(17, 2),   5357,
    OP(10, 8),   0x5f565053,  0x635f564e,  0x65706f6f,  0x69746172,  0x6d5f6576,  0x69727461,
    0x78,        OP(21, 4),   UINT,        32,          0,           OP(21, 4),   CHAR,
    8,           1,           OP(21, 4),   INT,         32,          1,           OP(22, 3),
    FLOAT,       32,          OP(20, 2),   BOOL,        OP(41, 3),   BOOL,        TRUE_,
    OP(42, 3),   BOOL,        FALSE_,      OP(43, 4),   UINT,        DIM,         16,
    OP(5358, 6), A,           CHAR,        DIM,         DIM,         DIM,         OP(5358, 6),
    B,           CHAR,        DIM,         DIM,         DIM,         OP(5358, 6), C,
    INT,         DIM,         DIM,         DIM,         OP(5358, 6), FLOAT_A,     FLOAT,
    DIM,         DIM,         DIM,         OP(5358, 6), FLOAT_B,     FLOAT,       DIM,
    DIM,         DIM,         OP(5359, 6), A,           20,          PTR,         DIM,
    FALSE_,      OP(5359, 8), B,           21,          PTR,         DIM,         TRUE_,
    0x2,         DIM,         OP(61, 4),   C,           22,          PTR,         OP(5361, 6),
    C,           23,          20,          21,          22,          OP(61, 4),   FLOAT_A,
    24,          PTR,         OP(61, 4),   FLOAT_B,     25,          PTR,         OP(5361, 6),
    FLOAT_A,     26,          24,          25,          24,          OP(5360, 5), PTR,
    23,          DIM,         TRUE_,       OP(52, 5),   UINT,        27,          5362,
    C,           OP(5362, 4), UINT,        28,          C,
};
static const uint32_t wanted[] = {
    0x07230203,
    0x10600,
    0,
    BOUND + 3,
    0,
    OP(17, 2),
    6022,
    OP(10, 8),
    0x5f565053,
    0x5f52484b,
    0x706f6f63,
    0x74617265,
    0x5f657669,
    0x7274616d,
    0x7869,
    OP(21, 4),
    UINT,
    32,
    0,
    OP(21, 4),
    CHAR,
    8,
    1,
    OP(21, 4),
    INT,
    32,
    1,
    OP(22, 3),
    FLOAT,
    32,
    OP(20, 2),
    BOOL,
    OP(41, 3),
    BOOL,
    TRUE_,
    OP(42, 3),
    BOOL,
    FALSE_,
    OP(43, 4),
    UINT,
    DIM,
    16,
    OP(43, 4),
    UINT,
    BOUND,
    0,
    OP(43, 4),
    UINT,
    BOUND + 1,
    1,
    OP(43, 4),
    UINT,
    BOUND + 2,
    2,
    OP(4456, 7),
    A,
    CHAR,
    DIM,
    DIM,
    DIM,
    BOUND,
    OP(4456, 7),
    B,
    CHAR,
    DIM,
    DIM,
    DIM,
    BOUND + 1,
    OP(4456, 7),
    C,
    INT,
    DIM,
    DIM,
    DIM,
    BOUND + 2,
    /* the first and the third of one product: the later is what it is */
    OP(4456, 7),
    FLOAT_A,
    FLOAT,
    DIM,
    DIM,
    DIM,
    BOUND + 2,
    OP(4456, 7),
    FLOAT_B,
    FLOAT,
    DIM,
    DIM,
    DIM,
    BOUND + 1,
    OP(4457, 6),
    A,
    20,
    PTR,
    BOUND,
    DIM,
    OP(4457, 8),
    B,
    21,
    PTR,
    BOUND + 1,
    DIM,
    0x2,
    DIM,
    OP(61, 4),
    C,
    22,
    PTR,
    OP(4459, 7),
    C,
    23,
    20,
    21,
    22,
    15,
    OP(61, 4),
    FLOAT_A,
    24,
    PTR,
    OP(61, 4),
    FLOAT_B,
    25,
    PTR,
    OP(4459, 6),
    FLOAT_A,
    26,
    24,
    25,
    24,
    OP(4458, 5),
    PTR,
    23,
    BOUND + 1,
    DIM,
    OP(52, 5),
    UINT,
    27,
    4460,
    C,
    OP(4460, 4),
    UINT,
    28,
    C,
};
#define COUNT(a) (sizeof(a) / sizeof *(a))

static void becomes_khronos(void **state) {
    (void)state;
    uint32_t out[2 * COUNT(module)];
    assert_true(sl_vk_spirv_khr_words(COUNT(module)) <= COUNT(out));
    assert_int_equal(sl_vk_spirv_khr_matrices(module, COUNT(module), out), COUNT(wanted));
    for (size_t i = 0; i < COUNT(wanted); i++)
        if (out[i] != wanted[i])
            fail_msg("word %zu is %u, not %u", i, out[i], wanted[i]);
}

static void others_stay(void **state) {
    (void)state;
    const uint32_t plain[] = {0x07230203, 0x10600,   0,    BOUND, 0, OP(17, 2),
                              1,          OP(21, 4), UINT, 32,    0};
    uint32_t out[64];
    assert_int_equal(sl_vk_spirv_khr_matrices(plain, COUNT(plain), out), COUNT(plain));
    assert_memory_equal(out, plain, sizeof plain);
}

static void broken_modules(void **state) {
    (void)state;
    uint32_t out[2 * COUNT(module)], bad[COUNT(module)];
    assert_int_equal(sl_vk_spirv_khr_matrices(module, 4, out), 0);
    /* Cut within an instruction, or between two. */
    for (size_t n = 5; n < COUNT(module); n++)
        assert_true(sl_vk_spirv_khr_matrices(module, n, out) <= sl_vk_spirv_khr_words(n));
    for (size_t i = 5; i < COUNT(module); i++) {
        memcpy(bad, module, sizeof bad);
        bad[i] = 0xffffffff;
        assert_true(sl_vk_spirv_khr_matrices(bad, COUNT(bad), out) <=
                    sl_vk_spirv_khr_words(COUNT(bad)));
        bad[i] = 0;
        assert_true(sl_vk_spirv_khr_matrices(bad, COUNT(bad), out) <=
                    sl_vk_spirv_khr_words(COUNT(bad)));
    }
    memcpy(bad, module, sizeof bad);
    bad[0] = 1;
    assert_int_equal(sl_vk_spirv_khr_matrices(bad, COUNT(bad), out), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(becomes_khronos),
                                       cmocka_unit_test(others_stay),
                                       cmocka_unit_test(broken_modules)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
