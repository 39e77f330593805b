/* The block formats: dequantisation, grids, quantised input rows. */
#include "backends/cpu/matmul/formats.h"
#include "backends/cpu/matmul.h"
#include "tests/conformance/weights.h"
#include "tests/peer/dequant_hash.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

/* What ggml's dequantisation gives for the same blocks: tests/peer/dequant.c prints it. */
static const struct {
    enum sl_dtype dtype;
    uint64_t hash;
} known[] = {
    {SL_DTYPE_Q4_0, 0x94a9715cbc9832a2u},
    {SL_DTYPE_Q4_1, 0x16ed039e3b49548au},
    {SL_DTYPE_Q5_0, 0x04c14b78265e02ffu},
    {SL_DTYPE_Q5_1, 0xece3bf758780d535u},
    {SL_DTYPE_Q8_0, 0x3fabc4b87c3f29dbu},
    {SL_DTYPE_Q2_K, 0x18a92a85e509a09du},
    {SL_DTYPE_Q3_K, 0xfde29a228b027ac7u},
    {SL_DTYPE_Q4_K, 0x9aac17e3700fa292u},
    {SL_DTYPE_Q5_K, 0xc7c1bfd82142a8cau},
    {SL_DTYPE_Q6_K, 0x5cd6c6dbcb7d4e2bu},
    {SL_DTYPE_IQ2_XXS, 0x244d6bf3938244d5u},
    {SL_DTYPE_IQ2_XS, 0xbc6bc79997731efeu},
    {SL_DTYPE_IQ3_XXS, 0x4bf1df9af5bb2546u},
    {SL_DTYPE_IQ1_S, 0xb95aef311b0873b6u},
    {SL_DTYPE_IQ4_NL, 0x123e46c62cdb6eaau},
    {SL_DTYPE_IQ3_S, 0x54536af8afddd57eu},
    {SL_DTYPE_IQ2_S, 0xed05ce5a984efb0fu},
    {SL_DTYPE_IQ4_XS, 0x0df178a6004f9896u},
    {SL_DTYPE_IQ1_M, 0xe21674f446cc9e21u},
    {SL_DTYPE_MXFP4, 0xa4d76850057a3626u},
    {SL_DTYPE_TQ1_0, 0x8ddcf89748299045u},
    {SL_DTYPE_TQ2_0, 0x238e3203955c0bd4u},
    /* ik_llama.cpp's, IQ6_K with its table. */
    {SL_DTYPE_IQ2_K, 0x9028f1e5817dac79u},
    {SL_DTYPE_IQ3_K, 0x8dd0a7f9c7411e7eu},
    {SL_DTYPE_IQ4_K, 0x9210acc37c510946u},
    {SL_DTYPE_IQ5_K, 0x6f21f6038d8a0bddu},
    {SL_DTYPE_IQ6_K, 0x10717ac0436036bbu},
};

static void test_dequantisation(void **state) {
    (void)state;
    size_t n_known = sizeof known / sizeof known[0], n_types = 0;
    for (uint32_t t = 0; t < SL_DTYPE_COUNT; t++)
        n_types += sl_dtype_info(t) && sl_dtype_info(t)->block_elems > 1;
    assert_int_equal(n_known, n_types); /* a new type comes with its hash */
    for (size_t i = 0; i < n_known; i++) {
        const struct sl_dtype_info *info = sl_dtype_info(known[i].dtype);
        uint32_t n = DEQUANT_HASH_BLOCKS * info->block_elems;
        uint8_t *blocks = malloc((size_t)DEQUANT_HASH_BLOCKS * info->block_bytes);
        float *y = malloc((size_t)n * 4);
        struct sl_rng rng = {known[i].dtype};
        assert_true(blocks && y);
        weights_fill(&rng, known[i].dtype, WEIGHTS_PLAIN, blocks, n);
        sl_dequantize_row(known[i].dtype, blocks, n, y);
        if (dequant_hash(y, n) != known[i].hash)
            fail_msg("%s: hash 0x%016llx", info->name, (unsigned long long)dequant_hash(y, n));
        free(blocks);
        free(y);
    }
}

static void test_floats(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 0x10000; h++) {
        uint16_t in = (uint16_t)h;
        float f16, bf16;
        sl_dequantize_row(SL_DTYPE_F16, &in, 1, &f16);
        sl_dequantize_row(SL_DTYPE_BF16, &in, 1, &bf16);
        uint32_t bits;
        memcpy(&bits, &bf16, 4);
        assert_int_equal(bits, h << 16);
        int e = (int)(h >> 10 & 31), m = (int)(h & 1023);
        double want = e == 31 ? (m ? NAN : INFINITY) : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
        want = h >> 15 ? -want : want;
        assert_true(isnan(want) ? isnan(f16) : (double)f16 == want);
    }
}

/* Every value of q and scale stays within what the kernels' int16 and int32 sums allow. */
static void test_ranges(void **state) {
    (void)state;
    struct sl_rng rng = {11};
    for (uint32_t t = 0; t < SL_DTYPE_COUNT; t++) {
        const struct sl_dtype_info *info = sl_dtype_info(t);
        if (!info || info->block_elems == 1)
            continue;
        for (int i = 0; i < 3000; i++) {
            uint8_t block[256];
            struct sl_unpacked u;
            weights_fill(&rng, (enum sl_dtype)t, i % 3 ? WEIGHTS_PLAIN : WEIGHTS_MAX, block,
                         info->block_elems);
            sl_unpack_block((enum sl_dtype)t, block, &u);
            int64_t isum = 0, imin = 0;
            for (uint32_t j = 0; j < info->block_elems; j++) {
                isum += llabs((long long)u.scale[j / 16] * u.q[j]) * 127;
                imin += llabs((long long)u.min[j / 16]) * 127;
                assert_true(abs(u.scale[j / 16]) <= 128 && abs(u.min[j / 16]) <= 63);
                assert_true(sl_dtype_has_min((enum sl_dtype)t) || u.min[j / 16] == 0);
            }
            assert_true(isum < INT64_C(1) << 29 && imin < INT64_C(1) << 22);
        }
    }
}

static void test_iq_signs(void **state) {
    (void)state;
    for (uint32_t b = 0; b < 128; b++) {
        assert_int_equal(sl_iq_signs(b) & 127, b);
        assert_int_equal(__builtin_popcount(sl_iq_signs(b)) % 2, 0);
    }
}

static void check_quantised(enum sl_x_kind kind, const float *x, uint32_t n,
                            const struct sl_qx *q) {
    uint32_t block = kind == SL_X_Q32 ? 32 : 256;
    for (uint32_t i = 0; i < n; i++) {
        const struct sl_qx *g = &q[i / 256];
        float d = kind == SL_X_Q32 ? g->q32.d[i % 256 / 32] : g->q256.d;
        float amax = 0;
        for (uint32_t j = i / block * block; j < i / block * block + block; j++)
            amax = fmaxf(amax, fabsf(x[j]));
        if (amax < SL_QX_TINY) {
            assert_true(d == 0 && g->q[i % 256] == 0);
            continue;
        }
        assert_true(d == amax / 127.0f && abs(g->q[i % 256]) <= 127);
        assert_true(fabs((double)x[i] - (double)d * g->q[i % 256]) <= 0.50001 * (double)d);
    }
    for (uint32_t i = 0; i < n; i += 16) {
        int sum = 0;
        for (uint32_t j = i; j < i + 16; j++)
            sum += q[j / 256].q[j % 256];
        if (kind == SL_X_Q256)
            assert_int_equal(q[i / 256].q256.sum[i % 256 / 16], sum);
    }
}

/* The definition against the header's words, and every instruction set against the definition. */
static void test_quantise(void **state) {
    (void)state;
    struct sl_rng rng = {12};
    enum { N = 512 };
    static float x[N];
    static struct sl_qx a[2], b[2];
    for (int c = 0; c < 200; c++) {
        float scale = ldexpf(1.0f, (int)sl_rng_below(&rng, 250) - 145);
        uint32_t n = c % 4 ? N : 288 - 256 * (uint32_t)(c % 8 == 0);
        for (uint32_t i = 0; i < n; i++)
            x[i] = scale * (float)(sl_rng_unit(&rng) * 2 - 1) * (sl_rng_below(&rng, 9) ? 1 : 0);
        for (enum sl_x_kind kind = SL_X_Q32; kind <= SL_X_Q256; kind++) {
            if (kind == SL_X_Q256 && n % 256)
                continue;
            memset(a, 0, sizeof a);
            sl_mm_kernels(SL_CPU_C)->quantize[kind](x, n, a);
            check_quantised(kind, x, n, a);
            for (int isa = SL_CPU_AVX2; isa <= (int)sl_cpu_best_isa(); isa++) {
                memset(b, 0, sizeof b);
                sl_mm_kernels((enum sl_cpu_isa)isa)->quantize[kind](x, n, b);
                assert_memory_equal(a, b, sizeof a);
            }
        }
    }
    x[3] = -INFINITY;
    x[300] = NAN;
    sl_quantize_q256(x, N, a);
    assert_true(isnan(a[0].q256.d) && isnan(a[1].q256.d) && a[0].q[0] == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dequantisation), cmocka_unit_test(test_floats),
        cmocka_unit_test(test_ranges),         cmocka_unit_test(test_iq_signs),
        cmocka_unit_test(test_quantise),
    };
    return cmocka_run_group_tests_name("formats", tests, NULL, NULL);
}
