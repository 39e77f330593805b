/* Where the experts are when some are in a card's own memory. */
#include "tests/unit/engine/fixture.h"

#include "engine/engine.h"
#include "engine/schedule/schedule.h"
#include "tests/support/card.h"

#define LAYERS  3u
#define EXPERTS 12u

static void shows_three_tiers(void **state) {
    (void)state;
    struct sl_synth_config sc = tiny_config("qwen3moe");
    sc.n_expert = EXPERTS;
    struct test_model m;
    open_model(&m, &sc);
    struct card_source source;
    card_source_init(&source, &(struct card_config){0});
    struct sl_engine_config c = {.n_threads = 2,
                                 .ctx_tokens = 256,
                                 .parallel = 1,
                                 .batch_tokens = 64,
                                 .experts = SL_EXPERTS_STREAMED,
                                 .io = SL_EXPERTS_IO_PREAD,
                                 .no_warm_up = true,
                                 .ram_bytes = UINT64_MAX / 4,
                                 .vram_bytes = UINT64_MAX / 4,
                                 .device_source = &source.source};
    /* A third of the experts fit the card. */
    struct sl_device *d;
    struct sl_memory_plan plan;
    assert_ok(source.source.open(&source.source, 0, &d, &test_err));
    assert_ok(sl_memory_plan_make(m.model, &c, d, &plan, &test_err));
    c.vram_bytes = plan.vram_total_bytes - plan.device_slot_bytes * 2 / 3;
    sl_device_close(&d);

    struct sl_engine *e = new_engine(&m, &c);
    struct sl_engine_info info;
    sl_engine_info(e, &info);
    assert_true(info.discrete && info.n_device_slots > 0 && info.n_device_slots < LAYERS * EXPERTS);
    assert_int_equal(sl_engine_expert_shape(e)->computing, SL_TIER_DEVICE);
    struct run *r = new_run(1, 100, 512, 40);
    r->req.ignore_eog = true;
    submit(e, r);
    wait_run(r);
    assert_int_equal(r->result.status, SL_OK);
    free_run(r);

    uint8_t cells[LAYERS * EXPERTS];
    uint64_t start = sl_now_ns();
    while (sl_engine_expert_cells(e, cells) < start)
        usleep(500);
    uint32_t n[3] = {0};
    for (uint32_t i = 0; i < LAYERS * EXPERTS; i++)
        n[sl_expert_cell_tier(cells[i])]++;
    assert_true(n[SL_TIER_DEVICE] > 0 && n[SL_TIER_DEVICE] <= info.n_device_slots);
    assert_true(n[SL_TIER_HOST] > 0);
    sl_engine_destroy(&e);
    close_model(&m);
}

int main(void) {
    sl_log_set_level(SL_LOG_ERROR);
    const struct CMUnitTest tests[] = {cmocka_unit_test(shows_three_tiers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
