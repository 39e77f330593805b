/* How likely prompt rows are to choose an expert: from counts alone, without reads or a cache. */
#include "engine/predict/prompt_shares.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define N 6u

static uint8_t cells[N];
static const float many = 64, some = 1.5f, few = 0.5f;

static struct sl_prompt_shares fresh(void) {
    struct sl_prompt_shares s;
    sl_prompt_shares_init(&s, N, cells);
    return s;
}

static void place_all(struct sl_prompt_shares *s, uint32_t n_rows, float n_uses, bool in_slot) {
    sl_prompt_shares_begin(s, n_rows);
    for (uint32_t e = 0; e < N; e++)
        sl_prompt_shares_place(s, e, n_uses, in_slot);
}

/* How many steps of that many rows, of which each choice is the same, until the answer changes. */
static uint32_t steps_until(struct sl_prompt_shares *s, uint32_t n_rows, float n_uses, bool in_slot,
                            uint32_t chosen, uint32_t n_listed, uint32_t n_sure) {
    const uint32_t counts[N] = {chosen, chosen, chosen, chosen, chosen, chosen};
    struct sl_expert_id ids[N];
    for (uint32_t step = 0; step < 1000; step++) {
        uint32_t sure, n;
        place_all(s, n_rows, n_uses, in_slot);
        n = sl_prompt_shares_list(s, 0, ids, &sure);
        if (n == n_listed && sure == n_sure)
            return step;
        sl_prompt_shares_learn(s, counts);
    }
    return UINT32_MAX;
}

/* Nothing is known: as of rows that have nothing to do with each other. */
static void by_heat_at_first(void **state) {
    (void)state;
    struct sl_prompt_shares s = fresh();
    struct sl_expert_id ids[N];
    uint32_t n_sure;
    sl_prompt_shares_begin(&s, 100);
    const float n_uses[N] = {0, few, some, many, 1, some};
    for (uint32_t e = 0; e < N; e++)
        sl_prompt_shares_place(&s, e, n_uses[e], e == 5);
    uint32_t n = sl_prompt_shares_list(&s, 9, ids, &n_sure);
    const uint32_t expected[] = {3, 2, 5, 4}; /* 1 - exp(-uses) of at least three in five */
    assert_int_equal(n, 4);
    assert_int_equal(n_sure, 1); /* nine in ten */
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(ids[i].layer, 9);
        assert_int_equal(ids[i].expert, expected[i]);
    }
}

/* What is chosen again and again becomes likely, then sure; what is not, neither. */
static void what_is_chosen_counts(void **state) {
    (void)state;
    struct sl_prompt_shares s = fresh();
    assert_int_equal(steps_until(&s, 100, few, false, 3, 0, 0), 0);
    uint32_t up = steps_until(&s, 100, few, false, 3, N, 0);
    assert_in_range(up, 1, 20); /* six experts in each step, a 32nd each */
    uint32_t sure = steps_until(&s, 100, few, false, 3, N, N);
    assert_in_range(sure, 1, 40);
    assert_int_equal(steps_until(&s, 100, few, false, 3, N, N), 0);
    assert_in_range(steps_until(&s, 100, few, false, 0, 0, 0), 1, 10);
}

/* What one cell learns shows in no other: other rows, other heat, slot or not. */
static void cells_are_apart(void **state) {
    (void)state;
    struct sl_prompt_shares s = fresh();
    assert_in_range(steps_until(&s, 100, few, false, 1, N, N), 1, 60);
    assert_int_equal(steps_until(&s, 64, few, false, 1, N, N), 0); /* the same octave */
    assert_int_equal(steps_until(&s, 128, few, false, 1, 0, 0), 0);
    assert_int_equal(steps_until(&s, 100, few, true, 1, 0, 0), 0);
    assert_int_equal(steps_until(&s, 100, few / 2, false, 1, 0, 0), 0);
    assert_int_equal(steps_until(&s, 100, few * 1.01f, false, 1, N, N), 0);
}

static void set_all(struct sl_prompt_shares *s, float share) {
    for (uint32_t i = 0; i < SL_SHARE_OCTAVES; i++)
        for (uint32_t j = 0; j < 2 * SL_SHARE_COLUMNS; j++)
            s->chosen[i][j] = share;
}

/* Three in five are worth reading, nine in ten are as good as sure: in steps of a 32nd. */
static void levels(void **state) {
    (void)state;
    struct sl_prompt_shares s = fresh();
    set_all(&s, 0.59f);
    assert_int_equal(steps_until(&s, 100, some, false, 0, 0, 0), 0);
    set_all(&s, 0.60f);
    assert_int_equal(steps_until(&s, 100, some, false, 0, N, 0), 0);
    set_all(&s, 0.90f);
    assert_int_equal(steps_until(&s, 100, some, false, 0, N, 0), 0);
    set_all(&s, 0.91f);
    assert_int_equal(steps_until(&s, 100, some, false, 0, N, N), 0);
    set_all(&s, 1);
    assert_int_equal(steps_until(&s, 100, some, false, 0, N, N), 0);
}

/* Each column begins within half an octave of what it stands for. */
static void columns(void **state) {
    (void)state;
    struct sl_prompt_shares s = fresh();
    sl_prompt_shares_begin(&s, 100);
    for (float log2_uses = -5.9f; log2_uses < 8; log2_uses += 0.1f) {
        sl_prompt_shares_place(&s, 0, exp2f(log2_uses), false);
        float share = s.chosen[s.octave][s.cell[0]];
        assert_true(share >= 1 - expf(-exp2f(log2_uses - 0.3f)));
        assert_true(share <= 1 - expf(-exp2f(log2_uses + 0.3f)));
    }
    sl_prompt_shares_place(&s, 0, exp2f(-30), false);
    assert_int_equal(s.cell[0], 0);
}

static void what_is_left_out_is_neither_listed_nor_counted(void **state) {
    (void)state;
    struct sl_prompt_shares s = fresh();
    struct sl_expert_id ids[N];
    uint32_t n_sure;
    place_all(&s, 100, many, false);
    for (uint32_t e = 0; e < N; e++)
        sl_prompt_shares_leave_out(&s, e);
    assert_int_equal(sl_prompt_shares_list(&s, 0, ids, &n_sure), 0);
    for (uint32_t i = 0; i < 100; i++)
        sl_prompt_shares_learn(&s, (const uint32_t[N]){0});
    assert_int_equal(steps_until(&s, 100, many, false, 0, N, N), 0);
    for (uint32_t e = 0; e < N; e++)
        sl_prompt_shares_leave_out(&s, e);
    for (uint32_t i = 0; i < 100; i++)
        sl_prompt_shares_learn(&s, (const uint32_t[N]){1, 1, 1, 1, 1, 1});
    assert_int_equal(steps_until(&s, 100, 0, false, 0, 0, 0), 0);
}

/* The ends of the table: more rows and uses than it has cells for, and none. */
static void ends_of_the_table(void **state) {
    (void)state;
    struct sl_prompt_shares s = fresh();
    assert_int_equal(steps_until(&s, UINT32_MAX, 1e9f, true, 1, N, N), 0);
    assert_int_equal(steps_until(&s, 1, 0, false, 0, 0, 0), 0);
    sl_prompt_shares_begin(&s, 8192);
    assert_int_equal(s.octave, SL_SHARE_OCTAVES - 1);
    sl_prompt_shares_begin(&s, 8191);
    assert_int_equal(s.octave, SL_SHARE_OCTAVES - 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_heat_at_first),
        cmocka_unit_test(what_is_chosen_counts),
        cmocka_unit_test(cells_are_apart),
        cmocka_unit_test(levels),
        cmocka_unit_test(columns),
        cmocka_unit_test(what_is_left_out_is_neither_listed_nor_counted),
        cmocka_unit_test(ends_of_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
