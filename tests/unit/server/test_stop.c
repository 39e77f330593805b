/* Stop strings against the plain definition, cut at every possible token boundary. */
#include "server/answer/stop.h"

#include "common/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void add(struct sl_stop_set *set, const char *text) {
    struct sl_err err;
    assert_int_equal(sl_stop_add(set, text, strlen(text), &err), SL_OK);
}

/* The definition: the first byte that completes any string ends the text before the longest. */
static size_t reference(const struct sl_stop_set *set, const char *text, size_t len,
                        bool *stopped) {
    for (size_t end = 1; end <= len; end++) {
        size_t longest = 0;
        for (uint32_t i = 0; i < set->n; i++) {
            size_t n = set->strings[i].len;
            if (n <= end && memcmp(text + end - n, set->strings[i].text, n) == 0 && n > longest)
                longest = n;
        }
        if (longest) {
            *stopped = true;
            return end - longest;
        }
    }
    *stopped = false;
    return len;
}

/* Feeds text in pieces that end where the bits of cuts say, or of random size when rng is given. */
static void check(const struct sl_stop_set *set, const char *text, size_t len, uint64_t cuts,
                  struct sl_rng *rng) {
    struct sl_stop_state st = {0};
    char got[512];
    size_t n_got = 0, from = 0;
    bool want_stop, stopped = false;
    size_t want = reference(set, text, len, &want_stop);
    struct sl_str out;
    for (size_t i = 0; i < len && !stopped; i++) {
        bool cut = rng ? sl_rng_below(rng, 3) == 0 : (cuts >> i & 1) != 0;
        if (!cut && i + 1 < len)
            continue;
        stopped = sl_stop_push(&st, set, text + from, i + 1 - from, &out);
        memcpy(got + n_got, out.ptr, out.len);
        n_got += out.len;
        from = i + 1;
        assert_true(n_got <= want); /* nothing of a stop string is ever out */
    }
    if (!stopped) {
        stopped = sl_stop_finish(&st, set, "", 0, &out);
        memcpy(got + n_got, out.ptr, out.len);
        n_got += out.len;
    }
    assert_int_equal(stopped, want_stop);
    assert_int_equal(n_got, want);
    assert_memory_equal(got, text, want);
    if (stopped) { /* and nothing comes after */
        assert_true(sl_stop_push(&st, set, "more", 4, &out));
        assert_int_equal(out.len, 0);
    }
    sl_stop_state_release(&st);
}

static void test_every_cut(void **state) {
    (void)state;
    static const char *const texts[] = {
        "hello STOP me", "hello STO",         "SSTOPP", "STSTOP", "abababc",
        "aaaaab",        "x<|im_en<|im_end|>"};
    static const char *const stops[] = {"STOP", "ababc", "aab", "<|im_end|>", "TOP me"};
    for (size_t t = 0; t < sizeof texts / sizeof *texts; t++) {
        struct sl_stop_set set = {0};
        for (size_t s = 0; s < sizeof stops / sizeof *stops; s++)
            add(&set, stops[s]);
        size_t len = strlen(texts[t]);
        for (uint64_t cuts = 0; cuts < (uint64_t)1 << (len < 13 ? len : 13); cuts++)
            check(&set, texts[t], len, cuts, NULL);
        sl_stop_set_release(&set);
    }
}

static void test_random(void **state) {
    (void)state;
    struct sl_rng rng = {1};
    for (int round = 0; round < 20000; round++) {
        struct sl_stop_set set = {0};
        char text[64], stop[8];
        uint32_t n = 1 + sl_rng_below(&rng, 4);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t len = 1 + sl_rng_below(&rng, 6);
            for (uint32_t k = 0; k < len; k++)
                stop[k] = (char)('a' + sl_rng_below(&rng, 2));
            stop[len] = '\0';
            add(&set, stop);
        }
        uint32_t len = 1 + sl_rng_below(&rng, 60);
        for (uint32_t k = 0; k < len; k++)
            text[k] = (char)('a' + sl_rng_below(&rng, 3));
        check(&set, text, len, 0, &rng);
        sl_stop_set_release(&set);
    }
}

static void test_overlapping_ends(void **state) {
    (void)state;
    struct sl_stop_set set = {0};
    struct sl_stop_state st = {0};
    struct sl_str out;
    add(&set, "d");
    add(&set, "bcd"); /* the longest that ends there hides most */
    assert_true(sl_stop_push(&st, &set, "abcd", 4, &out));
    assert_int_equal(out.len, 1);
    sl_stop_state_release(&st);
    sl_stop_set_release(&set);
}

static void test_limits(void **state) {
    (void)state;
    struct sl_stop_set set = {0};
    struct sl_err err = {""};
    char big[SL_STOP_MAX_BYTES + 1];
    memset(big, 'x', sizeof big);
    assert_int_equal(sl_stop_add(&set, "", 0, &err), SL_ERR_INVALID);
    assert_int_equal(sl_stop_add(&set, big, sizeof big, &err), SL_ERR_INVALID);
    for (uint32_t i = 0; i < SL_STOP_MAX; i++)
        assert_int_equal(sl_stop_add(&set, big, SL_STOP_MAX_BYTES, &err), SL_OK);
    assert_int_equal(sl_stop_add(&set, "x", 1, &err), SL_ERR_INVALID);
    sl_stop_set_release(&set);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_cut),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_overlapping_ends),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests_name("stop strings", tests, NULL, NULL);
}
