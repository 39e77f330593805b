/* The bookkeeping of a layer, from ids and leases alone: no cache, no reader, no device. */
#include "engine/experts/layer_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define EXPERTS 6u
#define K       2u
#define ROWS    4u

static uint8_t failed[ROWS];
/* Row 0: 5, 1; row 1: 1, 2; row 2: 4, 5; row 3: 2, 1. */
static const uint32_t ids[ROWS * K] = {5, 1, 1, 2, 4, 5, 2, 1};

static struct sl_layer_run begun(uint32_t lost_row) {
    struct sl_layer_run r;
    assert_int_equal(sl_layer_run_init(&r, EXPERTS, K, ROWS), SL_OK);
    memset(failed, 0, sizeof failed);
    if (lost_row < ROWS)
        failed[lost_row] = 1;
    sl_layer_run_begin(&r, 7, K, &(struct sl_fetch_rows){ids, ROWS, 1, failed, 3});
    return r;
}

/* Leases in these slots for what is wanted; SL_SLOT_NONE: none. */
static void lease(struct sl_layer_run *r, uint32_t a, uint32_t b, uint32_t c, uint32_t d,
                  uint32_t n_loading) {
    const struct sl_lease leases[] = {{a, 1}, {b, 1}, {c, 1}, {d, 1}};
    sl_layer_run_leased(r, leases, n_loading);
}

static void assert_wanted(const struct sl_layer_run *r, const uint32_t *experts, uint32_t n) {
    assert_int_equal(r->n_wanted, n);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(r->wanted[i].layer, r->layer);
        assert_int_equal(r->wanted[i].expert, experts[i]);
    }
}

/* Each as slot * 10 + expert. */
static void assert_held(const struct sl_layer_run *r, const uint32_t *at, uint32_t n) {
    assert_int_equal(r->n_held, n);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(r->held[i].lease.slot * 10 + r->held[i].id.expert, at[i]);
}
#define LIST(...)                                                                                  \
    (const uint32_t[]){__VA_ARGS__}, sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t)

static void assert_pairs(const struct sl_layer_run *r, uint32_t n_listed, const uint32_t *pairs,
                         uint32_t n) {
    assert_int_equal(n_listed, n);
    assert_memory_equal(r->pairs, pairs, n * sizeof *pairs);
}

static void distinct_experts_in_order(void **state) {
    (void)state;
    struct sl_layer_run r = begun(ROWS);
    assert_int_equal(r.layer, 7);
    assert_int_equal(r.rows.n_next_prompt, 3);
    assert_wanted(&r, LIST(1, 2, 4, 5));
    const uint32_t counts[EXPERTS] = {0, 3, 2, 0, 1, 2};
    assert_memory_equal(r.pair_count, counts, sizeof counts);
    assert_true(r.dense_call);
    sl_layer_run_release(&r);
}

static void lost_rows_need_nothing(void **state) {
    (void)state;
    struct sl_layer_run r = begun(2);
    assert_wanted(&r, LIST(1, 2, 5));
    assert_int_equal(r.pair_count[5], 1);
    assert_false(r.dense_call);
    r.n_loading = 5;
    sl_layer_run_give_up(&r);
    assert_int_equal(r.n_loading, 0);
    r.n_loading = 5; /* the next layer begins anew, whatever was left */
    memset(failed, 0, sizeof failed);
    sl_layer_run_begin(&r, 8, K, &(struct sl_fetch_rows){ids, 1, 1, failed, 0});
    assert_wanted(&r, LIST(1, 5));
    assert_int_equal(r.n_loading, 0);
    assert_int_equal(r.pair_count[1], 1);
    assert_true(r.dense_call);
    sl_layer_run_release(&r);
}

/* Rows of the next layer may choose fewer: ids 5, 1, 1, 2 are four rows'. */
static void a_layer_with_fewer_a_row(void **state) {
    (void)state;
    struct sl_layer_run r = begun(ROWS);
    sl_layer_run_give_up(&r);
    sl_layer_run_begin(&r, 8, 1, &(struct sl_fetch_rows){ids, ROWS, 1, failed, 0});
    assert_wanted(&r, LIST(1, 2, 5));
    assert_int_equal(r.pair_count[1], 2);
    lease(&r, 0, 1, 2, 3, 0);
    assert_pairs(&r, sl_layer_run_list(&r, 1), LIST(1, 2));
    assert_int_equal(sl_layer_run_fail(&r, 2), 1);
    assert_memory_equal(failed, ((const uint8_t[]){0, 0, 0, 1}), ROWS);
    sl_layer_run_release(&r);
}

static void from_wanted_to_held(void **state) {
    (void)state;
    struct sl_layer_run r = begun(ROWS);
    lease(&r, 3, SL_SLOT_NONE, 2, SL_SLOT_NONE, 1);
    assert_held(&r, LIST(31, 24));
    assert_wanted(&r, LIST(2, 5));
    assert_int_equal(r.n_loading, 1);
    lease(&r, SL_SLOT_NONE, 9, 0, 0, 1);
    assert_held(&r, LIST(31, 24, 95));
    assert_wanted(&r, LIST(2));
    assert_int_equal(r.n_loading, 2);
    sl_layer_run_release(&r);
}

static void moves_among_held(void **state) {
    (void)state;
    struct sl_layer_run r = begun(ROWS);
    lease(&r, 0, 1, 2, 3, 0);
    assert_held(&r, LIST(1, 12, 24, 35));
    sl_layer_run_swap(&r, 0, 2);
    assert_held(&r, LIST(24, 12, 1, 35));
    sl_layer_run_ran(&r, 1);
    assert_held(&r, LIST(12, 1, 35));
    assert_false(r.dense_call);
    sl_layer_run_drop(&r, 0);
    assert_held(&r, LIST(35, 1));
    sl_layer_run_want_again(&r, 0);
    assert_held(&r, LIST(1));
    assert_wanted(&r, LIST(5));
    lease(&r, 4, 0, 0, 0, 0);
    assert_held(&r, LIST(1, 45));
    sl_layer_run_ran(&r, 2);
    sl_layer_run_give_up(&r);
    assert_int_equal(r.n_wanted + r.n_held + r.n_loading, 0);
    sl_layer_run_release(&r);
}

static void several_have_run(void **state) {
    (void)state;
    struct sl_layer_run r = begun(ROWS);
    lease(&r, 0, 1, 2, 3, 0);
    sl_layer_run_ran(&r, 2);
    assert_held(&r, LIST(24, 35));
    sl_layer_run_ran(&r, 0);
    assert_held(&r, LIST(24, 35));
    sl_layer_run_release(&r);
}

static void pairs_of_held(void **state) {
    (void)state;
    struct sl_layer_run r = begun(ROWS);
    lease(&r, 0, 1, 2, 3, 0);
    assert_pairs(&r, sl_layer_run_list(&r, 4), LIST(0, 1, 2, 3, 4, 5, 6, 7));
    assert_pairs(&r, sl_layer_run_list(&r, 1), LIST(1, 2, 7));
    assert_pairs(&r, sl_layer_run_list(&r, 2), LIST(1, 2, 3, 6, 7));
    assert_int_equal(sl_layer_run_list(&r, 0), 0);
    for (uint32_t e = 0; e < EXPERTS; e++)
        assert_int_equal(r.in_call[e], 0);
    r.in_call[4] = 1;
    assert_pairs(&r, sl_layer_run_list_marked(&r), LIST(4));
    r.in_call[4] = 0;
    sl_layer_run_release(&r);
}

/* An expert that cannot be read takes the rows that need it, and their other pairs. */
static void an_expert_is_lost(void **state) {
    (void)state;
    struct sl_layer_run r = begun(ROWS);
    lease(&r, 0, 1, 2, 3, 0);
    assert_int_equal(sl_layer_run_fail(&r, 2), 2);
    assert_memory_equal(failed, ((const uint8_t[]){0, 1, 0, 1}), ROWS);
    assert_false(r.dense_call);
    assert_pairs(&r, sl_layer_run_list(&r, 4), LIST(0, 1, 4, 5));
    assert_int_equal(sl_layer_run_fail(&r, 1), 1); /* the others are lost already */
    assert_int_equal(sl_layer_run_fail(&r, 0), 0);
    assert_pairs(&r, sl_layer_run_list(&r, 4), LIST(4, 5));
    sl_layer_run_release(&r);
}

/* What is wanted and could be on its way waits for slots. */
static void waves(void **state) {
    (void)state;
    struct sl_layer_run r = begun(ROWS);
    r.max_loading = 3;
    lease(&r, 0, 1, SL_SLOT_NONE, SL_SLOT_NONE, 2);
    assert_true(sl_layer_run_is_wave(&r));
    lease(&r, 2, SL_SLOT_NONE, 0, 0, 1);
    assert_false(sl_layer_run_is_wave(&r)); /* the queue is full */
    r.n_loading = 0;
    assert_true(sl_layer_run_is_wave(&r));
    lease(&r, 3, 0, 0, 0, 0);
    assert_false(sl_layer_run_is_wave(&r)); /* nothing is wanted */
    sl_layer_run_release(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(distinct_experts_in_order),
        cmocka_unit_test(lost_rows_need_nothing),
        cmocka_unit_test(a_layer_with_fewer_a_row),
        cmocka_unit_test(from_wanted_to_held),
        cmocka_unit_test(moves_among_held),
        cmocka_unit_test(several_have_run),
        cmocka_unit_test(pairs_of_held),
        cmocka_unit_test(an_expert_is_lost),
        cmocka_unit_test(waves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
