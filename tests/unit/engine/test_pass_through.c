/* Pass-through slots: who may have one, and when. */
#include "engine/experts/pass_through.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define N 4u

static struct sl_pass_slot slots[N];
static struct sl_buffer memory = {.bytes = N * 64};
static struct sl_buffer_part part = {.bytes = N * 64, .buffer = &memory};
static const struct sl_buffer_pool pool = {.parts = &part, .n_parts = 1};

static struct sl_pass_slots four_slots(void) {
    for (uint32_t i = 0; i < N; i++)
        slots[i] = (struct sl_pass_slot){.state = SL_PASS_FREE};
    return (struct sl_pass_slots){
        .pool = &pool, .items = {.bytes = 64, .n = N, .n_first = N}, .slots = slots, .n = N};
}

static struct sl_pass_slot *take(struct sl_pass_slots *w) {
    struct sl_pass_slot *s = sl_pass_room(w);
    assert_non_null(s);
    s->state = SL_PASS_TAKEN;
    return s;
}

/* Free slots come in turn, so that the one whose last use is oldest comes first. */
static void in_turn(void **state) {
    (void)state;
    struct sl_pass_slots w = four_slots();
    for (uint32_t i = 0; i < N; i++) {
        struct sl_pass_slot *s = take(&w);
        assert_ptr_equal(s, &slots[i]);
        struct sl_span at = sl_pass_at(&w, s);
        assert_ptr_equal(at.buffer, &memory);
        assert_int_equal(at.offset, 64 * i);
        assert_int_equal(at.bytes, 64);
    }
    assert_null(sl_pass_room(&w));
    sl_pass_used(&w, 7);
    for (uint32_t i = 0; i < 2 * N; i++) {
        struct sl_pass_slot *s = sl_pass_room(&w);
        assert_ptr_equal(s, &slots[i % N]);
        assert_true(s->used == 7);
    }
}

/* Calls whose end nobody has marked keep their slots until all has run. */
static void until_settled(void **state) {
    (void)state;
    struct sl_pass_slots w = four_slots();
    take(&w);
    take(&w);
    sl_pass_used(&w, 0);
    take(&w);
    take(&w);
    assert_null(sl_pass_room(&w));
    sl_pass_settle(&w);
    for (uint32_t i = 0; i < N; i++) {
        struct sl_pass_slot *s = take(&w);
        assert_true(s->used == 0);
    }
}

/* What is early stays through all of that, and is found by its whole name alone. */
static void early(void **state) {
    (void)state;
    struct sl_pass_slots w = four_slots();
    const struct sl_expert_id id = {3, 5}, other_layer = {2, 5}, other = {3, 6};
    struct sl_pass_slot *s = sl_pass_room(&w);
    s->state = SL_PASS_EARLY;
    s->id = id;
    w.n_early = 1;
    for (uint32_t i = 0; i < 2 * N; i++) {
        struct sl_pass_slot *t = take(&w);
        assert_ptr_not_equal(t, s);
        if (i % 3 == 2)
            sl_pass_used(&w, i);
    }
    sl_pass_settle(&w);
    assert_ptr_equal(sl_pass_find(&w, id), s);
    assert_null(sl_pass_find(&w, other_layer));
    assert_null(sl_pass_find(&w, other));
    s->state = SL_PASS_TAKEN;
    w.n_early = 0;
    assert_null(sl_pass_find(&w, id));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_turn),
        cmocka_unit_test(until_settled),
        cmocka_unit_test(early),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
