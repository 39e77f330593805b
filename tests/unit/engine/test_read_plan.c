/* The order in which planned experts are read, without a reader. */
#include "engine/reads/read_plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define MOST 6u

static struct sl_expert_id ids[MOST + 1];

static struct sl_read_plan fresh(void) {
    struct sl_read_plan p;
    sl_read_plan_init(&p, ids, MOST);
    ids[MOST] = (struct sl_expert_id){99, 99};
    return p;
}

static void add(struct sl_read_plan *p, uint32_t layer, uint32_t expert) {
    sl_read_plan_add(p, (struct sl_expert_id){(uint16_t)layer, (uint16_t)expert});
}

/* Each as layer * 10 + expert. */
static void expect(const struct sl_read_plan *p, const uint32_t *at, uint32_t n) {
    assert_int_equal(p->n, n);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(p->ids[i].layer * 10 + p->ids[i].expert, at[i]);
    assert_int_equal(ids[MOST].layer, 99); /* nothing beyond its room */
}
#define EXPECT(p, ...)                                                                             \
    expect(p, (const uint32_t[]){__VA_ARGS__},                                                     \
           sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))

static void nearest_layer_first(void **state) {
    (void)state;
    struct sl_read_plan p = fresh();
    add(&p, 5, 3);
    add(&p, 3, 9);
    add(&p, 4, 1);
    add(&p, 3, 2); /* behind the other of its layer */
    add(&p, 5, 0);
    EXPECT(&p, 39, 32, 41, 53, 50);
}

static void once_each_and_no_more_than_fit(void **state) {
    (void)state;
    struct sl_read_plan p = fresh();
    add(&p, 1, 1);
    add(&p, 1, 1);
    add(&p, 2, 1); /* another layer's */
    add(&p, 1, 2);
    EXPECT(&p, 11, 12, 21);
    add(&p, 2, 2);
    add(&p, 2, 3);
    add(&p, 2, 4);
    add(&p, 0, 5); /* no room */
    EXPECT(&p, 11, 12, 21, 22, 23, 24);
}

static void dropped(void **state) {
    (void)state;
    struct sl_read_plan p = fresh();
    for (uint32_t i = 0; i < MOST; i++)
        add(&p, 1 + i % 3, i);
    EXPECT(&p, 10, 13, 21, 24, 32, 35);
    sl_read_plan_drop_layer(&p, 2);
    EXPECT(&p, 10, 13, 32, 35);
    sl_read_plan_drop_layer(&p, 7);
    sl_read_plan_drop_first(&p, 0);
    EXPECT(&p, 10, 13, 32, 35);
    sl_read_plan_drop_first(&p, 1);
    EXPECT(&p, 13, 32, 35);
    add(&p, 2, 8);
    EXPECT(&p, 13, 28, 32, 35);
    sl_read_plan_drop_first(&p, 4);
    assert_int_equal(p.n, 0);
    add(&p, 2, 8);
    sl_read_plan_drop_all(&p);
    assert_int_equal(p.n, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nearest_layer_first),
        cmocka_unit_test(once_each_and_no_more_than_fit),
        cmocka_unit_test(dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
