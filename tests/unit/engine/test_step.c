/* A step's tables as a device gets them: all that ops read, in no more room than its rows need. */
#include "tests/unit/engine/fixture.h"

#include "engine/step/step.h"

#define MAX_ROWS 200u

static uint32_t tables[(8 + SL_STEP_BEFORE) * MAX_ROWS + SL_STEP_SEQNOS];
static uint32_t packed[(8 + SL_STEP_BEFORE) * MAX_ROWS + SL_STEP_SEQNOS];
static uint8_t failed[MAX_ROWS];

/* Every element has a number of its own. */
static struct sl_step make(uint32_t n_rows, uint32_t n_out) {
    struct sl_step s = sl_step_lay(tables, MAX_ROWS, MAX_ROWS);
    s.failed = failed;
    sl_step_begin(&s);
    for (uint32_t i = 0; i < n_rows; i++)
        sl_step_add(&s, 7000 + i, 300 + i, 40 + i, 240 + i, 1000 + i);
    for (uint32_t i = 0; i < SL_STEP_SEQNOS; i++)
        s.seqno[i] = 8000 + i;
    for (uint32_t i = 0; i < n_out; i++) {
        sl_step_add_out(&s, 0.5f + (float)i);
        assert_int_equal(s.out_rows[i], n_rows - 1);
        s.out_rows[i] = 9000 + i;
    }
    return s;
}

static void packs(void **state) {
    (void)state;
    static const uint32_t rows[] = {1, 2, 15, 16, 17, 130, MAX_ROWS};
    for (uint32_t k = 0; k < sizeof rows / sizeof *rows; k++)
        for (uint32_t spare = 0; rows[k] + spare <= MAX_ROWS && spare < 40; spare += 13) {
            uint32_t n = rows[k], room = n + spare, n_out = n < 9 ? n : 9;
            struct sl_step s = make(n, n_out);
            memset(packed, 0xee, sizeof packed);
            uint32_t used = sl_step_pack(&s, room, n_out, packed);
            assert_int_equal(used, 6 * room + SL_STEP_SEQNOS + 2 * n_out);
            assert_true(n > 2 || spare || used < 24);
            struct sl_step p = sl_step_lay(packed, room, n_out);
            assert_memory_equal(p.ids, s.ids, n * sizeof *s.ids);
            assert_memory_equal(p.pos, s.pos, n * sizeof *s.pos);
            assert_memory_equal(p.slot, s.slot, n * sizeof *s.slot);
            assert_memory_equal(p.row_seq, s.row_seq, n * sizeof *s.row_seq);
            assert_memory_equal(p.row_len, s.row_len, n * sizeof *s.row_len);
            assert_memory_equal(p.tail_slot, s.tail_slot, n * sizeof *s.tail_slot);
            assert_memory_equal(p.seqno, s.seqno, SL_STEP_SEQNOS * sizeof *s.seqno);
            assert_memory_equal(p.out_rows, s.out_rows, n_out * sizeof *s.out_rows);
            assert_memory_equal(p.sums_at, s.sums_at, n_out * sizeof *s.sums_at);
            for (uint32_t i = used; i < sizeof packed / sizeof *packed; i++)
                assert_int_equal(packed[i], 0xeeeeeeee);
        }
}

/* A slice without output has no room for rows that go on to logits. */
static void without_outputs(void **state) {
    (void)state;
    struct sl_step s = make(MAX_ROWS, 30);
    memset(packed, 0xee, sizeof packed);
    assert_int_equal(sl_step_pack(&s, MAX_ROWS, 0, packed), 6 * MAX_ROWS + SL_STEP_SEQNOS);
    assert_int_equal(packed[6 * MAX_ROWS + SL_STEP_SEQNOS], 0xeeeeeeee);
}

/* The tokens before a row's own, as far as there are any. */
static void before(void **state) {
    (void)state;
    static const uint32_t text[] = {50, 51, 52, 53};
    struct sl_step s = sl_step_lay(tables, MAX_ROWS, MAX_ROWS);
    s.failed = failed;
    sl_step_begin(&s);
    for (uint32_t pos = 0; pos < 4; pos++) {
        sl_step_add(&s, 0, pos, 0, 0, text[pos]);
        assert_true(s.before[pos * SL_STEP_BEFORE] == SL_NO_TOKEN);
        sl_step_add_before(&s, text, pos);
    }
    for (uint32_t pos = 0; pos < 4; pos++)
        for (uint32_t j = 0; j < SL_STEP_BEFORE; j++)
            assert_int_equal(s.before[pos * SL_STEP_BEFORE + j],
                             j < pos ? text[pos - 1 - j] : SL_NO_TOKEN);
    assert_true(s.before + 4 * SL_STEP_BEFORE <= tables + sl_step_elems(MAX_ROWS, MAX_ROWS));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packs),
        cmocka_unit_test(before),
        cmocka_unit_test(without_outputs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
