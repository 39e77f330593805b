/* How far early routers are trusted: by ids and counts alone, without a cache. */
#include "engine/predict/prediction_score.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define N       2u
#define REACH   3u
#define ROWS    2u
#define K       2u
#define EXPERTS 8u

struct score {
    struct sl_prediction_score s;
    void *memory;
};

static const struct sl_prediction_shape shape = {N, REACH, ROWS, K};

static int set_up(void **state) {
    struct score *c = calloc(1, sizeof *c);
    assert_non_null(c);
    /* Exactly as large as it says: a sanitizer sees what is beyond. */
    c->memory = calloc(1, sl_prediction_score_bytes(&shape));
    assert_non_null(c->memory);
    sl_prediction_score_init(&c->s, &shape, c->memory);
    *state = c;
    return 0;
}

static int tear_down(void **state) {
    struct score *c = *state;
    free(c->memory);
    free(c);
    return 0;
}

static void note(struct sl_prediction_score *s, uint32_t which, uint32_t layer, const uint32_t *ids,
                 uint32_t n, uint8_t absent) {
    memset(sl_prediction_score_note(s, which, layer, ids, n, K)->absent, absent, n);
}

static void judged(struct sl_prediction_score *s, uint32_t which, uint32_t layer,
                   const uint32_t *chosen, uint32_t expect_named, uint32_t expect_right) {
    uint32_t named = 77, right = 77;
    sl_prediction_score_judge(s, which, layer, chosen, &named, &right);
    assert_int_equal(named, expect_named);
    assert_int_equal(right, expect_right);
}

/* One row that names experts 1 and 2, n times, of which the first is right so often and the second
 * never. */
static void run(struct sl_prediction_score *s, uint32_t which, uint32_t n, uint32_t n_right) {
    const uint32_t ids[] = {1, 2};
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t chosen[EXPERTS] = {[1] = i < n_right, [7] = 3};
        note(s, which, i, ids, 2, 1);
        judged(s, which, i, chosen, 2, i < n_right);
    }
}

static void trusted_after_twelve(void **state) {
    struct score *c = *state;
    assert_false(sl_prediction_score_trusts(&c->s, 0, 0));
    run(&c->s, 0, 11, 11);
    assert_false(sl_prediction_score_trusts(&c->s, 0, 0));
    run(&c->s, 0, 1, 1);
    assert_true(sl_prediction_score_trusts(&c->s, 0, 0));
    assert_false(sl_prediction_score_trusts(&c->s, 0, 1)); /* by rank */
    assert_false(sl_prediction_score_trusts(&c->s, 1, 0)); /* by number */
}

/* Four in five: of 20, exactly the mean. */
static void four_in_five(void **state) {
    struct score *c = *state;
    run(&c->s, 0, 20, 15);
    assert_false(sl_prediction_score_trusts(&c->s, 0, 0));
    run(&c->s, 1, 20, 17);
    assert_true(sl_prediction_score_trusts(&c->s, 1, 0));
    assert_true(c->s.rank[0].right > 0.7499f && c->s.rank[0].right < 0.7501f);
}

/* The mean forgets: after very many right ones some thirty wrong ones are enough. */
static void trust_is_lost(void **state) {
    struct score *c = *state;
    run(&c->s, 0, 10000, 10000);
    run(&c->s, 0, 14, 0);
    assert_true(sl_prediction_score_trusts(&c->s, 0, 0));
    run(&c->s, 0, 1, 0); /* (63/64)^15 < 4/5 */
    assert_false(sl_prediction_score_trusts(&c->s, 0, 0));
}

/* What was in a slot is not counted, right or wrong. */
static void only_absent_ones_count(void **state) {
    struct score *c = *state;
    const uint32_t ids[] = {1, 2, 3, 4}; /* two rows */
    const uint32_t chosen[EXPERTS] = {[1] = 1, [2] = 1, [4] = 2};
    struct sl_prediction *made = sl_prediction_score_note(&c->s, 0, 5, ids, 4, K);
    memcpy(made->absent, (const uint8_t[]){0, 1, 1, 1}, 4);
    judged(&c->s, 0, 5, chosen, 3, 2);
    assert_int_equal(c->s.rank[0].n, 1); /* of the second row, wrong */
    assert_int_equal(c->s.rank[1].n, 2);
    assert_true(c->s.rank[0].right == 0 && c->s.rank[1].right == 1);
}

/* A layer whose rows choose fewer: the second id is another row's first choice. */
static void ranks_of_a_narrower_layer(void **state) {
    struct score *c = *state;
    const uint32_t ids[] = {1, 2};
    const uint32_t chosen[EXPERTS] = {[1] = 1};
    struct sl_prediction *made = sl_prediction_score_note(&c->s, 1, 5, ids, 2, 1);
    assert_int_equal(made->n_rows, 2);
    memset(made->absent, 1, 2);
    judged(&c->s, 1, 5, chosen, 2, 1);
    assert_int_equal(c->s.rank[K].n, 2); /* of number 1, rank 0 */
    assert_int_equal(c->s.rank[K + 1].n, 0);
}

/* Each is judged once, by its own layer, and by nothing that was noted for another. */
static void by_its_layer_once(void **state) {
    struct score *c = *state;
    const uint32_t a[] = {1, 2}, b[] = {3, 4};
    const uint32_t all[EXPERTS] = {1, 1, 1, 1, 1, 1, 1, 1};
    note(&c->s, 0, 5, a, 2, 1);
    note(&c->s, 0, 6, b, 2, 1);
    note(&c->s, 1, 5, b, 2, 1);
    judged(&c->s, 0, 4, all, 0, 0);
    judged(&c->s, 0, 5 + REACH, all, 0, 0); /* the same place, another layer */
    judged(&c->s, 0, 5, (const uint32_t[EXPERTS]){[1] = 1}, 2, 1);
    judged(&c->s, 0, 5, all, 0, 0);
    judged(&c->s, 1, 5, (const uint32_t[EXPERTS]){[4] = 1}, 2, 1);
    note(&c->s, 0, 6, a, 2, 1); /* a newer one for the same layer */
    judged(&c->s, 0, 6, (const uint32_t[EXPERTS]){[3] = 1, [4] = 1}, 2, 0);
}

static void forgotten(void **state) {
    struct score *c = *state;
    const uint32_t ids[] = {1, 2};
    const uint32_t all[EXPERTS] = {1, 1, 1, 1, 1, 1, 1, 1};
    run(&c->s, 0, 20, 20);
    for (uint32_t which = 0; which < N; which++)
        for (uint32_t l = 0; l < REACH; l++)
            note(&c->s, which, l, ids, 2, 1);
    sl_prediction_score_forget(&c->s);
    for (uint32_t which = 0; which < N; which++)
        for (uint32_t l = 0; l < REACH; l++)
            judged(&c->s, which, l, all, 0, 0);
    assert_true(sl_prediction_score_trusts(&c->s, 0, 0)); /* what was learned stays */
}

/* The largest predictions of all numbers and layers do not touch each other. */
static void full(void **state) {
    struct score *c = *state;
    for (uint32_t which = 0; which < N; which++)
        for (uint32_t l = 0; l < REACH; l++) {
            const uint32_t ids[] = {which, 2 + l, which, 2 + l};
            note(&c->s, which, l, ids, ROWS * K, 1);
        }
    for (uint32_t which = 0; which < N; which++)
        for (uint32_t l = 0; l < REACH; l++) {
            uint32_t chosen[EXPERTS] = {0};
            chosen[which] = chosen[2 + l] = 1;
            judged(&c->s, which, l, chosen, ROWS * K, ROWS * K);
        }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(trusted_after_twelve),
        TEST(four_in_five),
        TEST(trust_is_lost),
        TEST(only_absent_ones_count),
        TEST(ranks_of_a_narrower_layer),
        TEST(by_its_layer_once),
        TEST(forgotten),
        TEST(full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
