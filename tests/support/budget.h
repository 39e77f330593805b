/* Budgets for runs whose experts are streamed: by the share of the experts that get slots. */
#ifndef TESTS_SUPPORT_BUDGET_H
#define TESTS_SUPPORT_BUDGET_H

#include "tests/unit/engine/fixture.h"

#include "backends/cpu/cpu.h"
#include "engine/plan/memory_plan.h"

#define AMPLE_BYTES ((uint64_t)1 << 50)

/* Sets the smallest budget under which percent of the experts have slots; 0: the smallest that is
 * accepted. Returns the number of slots. Everything else in c that takes memory must be set. */
static inline uint32_t set_budget(const struct sl_model *model, struct sl_engine_config *c,
                                  uint32_t percent) {
    struct sl_device *d;
    struct sl_cpu_config dc = {.n_threads = c->n_threads, .isa = SL_CPU_BEST};
    struct sl_memory_plan p;
    assert_ok(sl_cpu_open(&dc, &d, &test_err));
    c->experts = SL_EXPERTS_STREAMED;
    c->ram_bytes = AMPLE_BYTES;
    assert_ok(sl_memory_plan_make(model, c, d, &p, &test_err));
    assert_true(p.streaming && p.n_slots == p.n_experts);
    uint64_t too_small = 0, enough = 2 * p.total_bytes;
    while (enough - too_small > 1) {
        c->ram_bytes = too_small + (enough - too_small) / 2;
        bool fits = sl_memory_plan_make(model, c, d, &p, &test_err) == SL_OK &&
                    (uint64_t)p.n_slots * 100 >= (uint64_t)p.n_experts * percent;
        *(fits ? &enough : &too_small) = c->ram_bytes;
    }
    c->ram_bytes = enough;
    assert_ok(sl_memory_plan_make(model, c, d, &p, &test_err));
    if (percent == 0)
        assert_int_equal(p.n_slots, p.n_class * model->hp.n_expert_used);
    sl_device_close(&d);
    return p.n_slots;
}

#endif
