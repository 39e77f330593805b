/* What a step tells a stage before the stage before has done with it, and how many steps there may
 * be at once. */
#include "tests/unit/engine/fixture.h"

#include "engine/plan/memory_plan.h"
#include "engine/stage/micro_batch.h"

/* Two rows of a step of generated rows, at the second of three stages. */
static void make_step(struct sl_micro_batch *l) {
    static const struct sl_memory_plan plan = {
        .config = {.batch_tokens = 8, .parallel = 2}, .n_logit_rows = 2, .session_pages = 1};
    assert_int_equal(sl_micro_batch_init(l, 0, &plan), SL_OK);
    sl_micro_batch_begin(l);
    l->step.n_rows = l->step.n_decode = l->step.n_out = 2;
}

static bool goes_ahead(struct sl_micro_batch *l, uint32_t stage) {
    return l->item.ask_ahead(&l->item, stage, &l->calls[stage]);
}

/* The third stage gets a step ahead of its rows only if the first lost none of them: the second,
 * which begins with it, cannot. */
static void rows_lost_two_stages_before(void **state) {
    (void)state;
    struct sl_micro_batch l;
    make_step(&l);
    struct sl_stage_answer *first = &l.calls[0].answer;
    for (int passed_on = 0; passed_on < 2; passed_on++) {
        l.calls[0].passed_on = passed_on;
        first->step.sent = SL_SENT_ROWS;
        first->step.n_failed = 0;
        assert_true(goes_ahead(&l, 1));
        assert_true(goes_ahead(&l, 2));
        assert_int_equal(l.calls[2].ask.step.sent, SL_SENT_LATER);
        for (uint32_t n_failed = 1; n_failed <= 2; n_failed++) {
            first->step.n_failed = n_failed;
            assert_true(goes_ahead(&l, 1)); /* nothing is before it but the first itself */
            assert_false(goes_ahead(&l, 2));
        }
    }
    first->step.n_failed = 0;
    l.calls[0].passed_on = false;
    first->status = SL_ERR_IO;
    assert_false(goes_ahead(&l, 2));
    sl_micro_batch_release(&l);
}

/* One more than there are stages where one is elsewhere, and never more than the SL_MAX_STAGES
 * that arrays of them hold. */
static void steps_at_once(void **state) {
    (void)state;
    struct sl_synth_config sc = tiny_config("qwen3moe");
    struct test_model m;
    open_model(&m, &sc);
    const struct sl_engine_config c = {
        .ctx_tokens = 128, .parallel = 2, .queue_max = 4, .batch_tokens = 32, .n_threads = 1};
    for (uint32_t n = 1; n <= SL_MAX_STAGES; n++)
        for (int remote = 0; remote < 2; remote++) {
            const struct sl_plan_place place = {
                .whole = m.model, .n_stages = n, .first_on_host = true, .remote = remote};
            struct sl_memory_plan p;
            assert_ok(sl_memory_plan_make_stage(m.model, &place, &c, NULL, &p, &test_err));
            assert_int_equal(p.n_micro_batches, remote && n < SL_MAX_STAGES ? n + 1 : n);
        }
    close_model(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_lost_two_stages_before),
                                       cmocka_unit_test(steps_at_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
