/* Budgets for runs whose experts are streamed: by the share of the experts that get slots. */
#ifndef TESTS_SUPPORT_BUDGET_H
#define TESTS_SUPPORT_BUDGET_H

#include "tests/unit/engine/fixture.h"

#include "backends/cpu/cpu.h"
#include "engine/memory_plan.h"

#define AMPLE_BYTES ((uint64_t)1 << 50)

static inline void plan_for(const struct sl_model *model, const struct sl_engine_config *c,
                            struct sl_memory_plan *out_plan) {
    struct sl_device *d;
    struct sl_cpu_config dc = {.n_threads = c->n_threads, .isa = SL_CPU_BEST};
    assert_ok(sl_cpu_open(&dc, &d, &test_err));
    assert_ok(sl_memory_plan_make(model, c, d, out_plan, &test_err));
    sl_device_close(&d);
}

/* Sets the budget under which percent of the experts have slots; 0: as few as can be. Returns the
 * number of slots. */
static inline uint32_t set_budget(const struct sl_model *model, struct sl_engine_config *c,
                                  uint32_t percent) {
    struct sl_memory_plan p;
    c->experts = SL_EXPERTS_STREAMED;
    c->ram_bytes = AMPLE_BYTES;
    plan_for(model, c, &p);
    assert_true(p.streaming && p.n_slots == p.n_experts);
    uint64_t fixed = p.total_bytes - p.slot_bytes;
    c->ram_bytes = fixed + p.slot_bytes / 100 * percent + percent * 64;
    if (c->ram_bytes < p.least_bytes || percent == 0)
        c->ram_bytes = p.least_bytes;
    uint32_t all = p.n_slots;
    plan_for(model, c, &p);
    assert_true(p.streaming);
    if (percent == 0)
        assert_int_equal(p.n_slots, p.n_class * model->hp.n_expert_used);
    else if (c->ram_bytes > p.least_bytes)
        assert_true(p.n_slots * 100 <= all * (percent + 1) &&
                    p.n_slots * 100 >= all * (percent > 6 ? percent - 6 : 0));
    return p.n_slots;
}

#endif
