/* exp and what is made of it: against libm in double, over floats a prime apart, and at the ends.
 * That SIMD gives the same bits is for the conformance programs. */
#include "backends/cpu/math.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>

static float from_bits(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* The distance in units of the last place of the float nearest to ref. */
static double ulps(float y, double ref) {
    if (ref > 0x1.fffffep127) /* rounds to infinity, or to the largest float */
        return isinf(y) || y >= 0x1.fffffep127f ? 0 : INFINITY;
    int e;
    frexp(ref, &e);
    double unit = ldexp(1, (e < -125 ? -125 : e) - 24);
    return fabs((double)y - ref) / unit;
}

static void exp_everywhere(void **state) {
    (void)state;
    double worst = 0;
    float at = 0;
    for (uint64_t u = 0; u < 0x100000000u; u += 509) {
        float x = from_bits((uint32_t)u);
        if (!(fabsf(x) < 110))
            continue;
        double d = ulps(sl_expf(x), exp((double)x));
        if (d > worst)
            worst = d, at = x;
    }
    print_message("sl_expf: at most %.3f ulp, at %a\n", worst, (double)at);
    assert_true(worst < 1.0);
}

static void exp_ends(void **state) {
    (void)state;
    assert_true(sl_expf(0.0f) == 1.0f && sl_expf(-0.0f) == 1.0f);
    assert_true(sl_expf(INFINITY) == INFINITY && sl_expf(1e30f) == INFINITY);
    assert_true(sl_expf(88.73f) == INFINITY && isfinite(sl_expf(88.72f)));
    assert_true(sl_expf(-INFINITY) == 0 && sl_expf(-1e30f) == 0 && sl_expf(-104.0f) == 0);
    assert_true(!signbit(sl_expf(-INFINITY)));
    assert_true(sl_expf(-103.0f) > 0 && sl_expf(-103.0f) < 0x1p-147f); /* denormal */
    assert_true(isnan(sl_expf(NAN)) && isnan(sl_expf(-NAN)));
}

static void exp_falls_by_an_ulp_at_most(void **state) {
    (void)state;
    /* From one float to the next it may fall by an ulp, not more. */
    for (float x = -104; x < 89; x += 0.37f) {
        float y = sl_expf(x), next = x;
        for (int i = 0; i < 64; i++) {
            next = nextafterf(next, INFINITY);
            float z = sl_expf(next);
            assert_true(z >= y * (1 - 0x1p-23f));
            y = z;
        }
    }
}

static void derived(void **state) {
    (void)state;
    double worst_sigmoid = 0, worst_silu = 0;
    for (float x = -87; x < 100; x += 0.00173f) {
        double s = 1 / (1 + exp(-(double)x));
        worst_sigmoid = fmax(worst_sigmoid, ulps(sl_sigmoidf(x), s));
        worst_silu = fmax(worst_silu, ulps(fabsf(sl_siluf(x)), fabs(x * s)));
    }
    print_message("sigmoid: at most %.3f ulp, silu: %.3f\n", worst_sigmoid, worst_silu);
    assert_true(worst_sigmoid < 3 && worst_silu < 3);
    assert_true(sl_sigmoidf(INFINITY) == 1 && sl_sigmoidf(-INFINITY) == 0);
    assert_true(sl_sigmoidf(0) == 0.5f && sl_siluf(0) == 0);
    assert_true(sl_siluf(INFINITY) == INFINITY && sl_siluf(-200) == 0);
    assert_true(isnan(sl_siluf(NAN)) && isnan(sl_sigmoidf(NAN)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_everywhere),
        cmocka_unit_test(exp_ends),
        cmocka_unit_test(exp_falls_by_an_ulp_at_most),
        cmocka_unit_test(derived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
