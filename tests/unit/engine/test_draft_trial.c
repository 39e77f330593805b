/* Whether drafts pay is found out at little cost, and again when it changes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "common/rng.h"
#include "engine/schedule/draft_trial.h"

/* A machine where a step takes step_ns, one with drafts so much more, the layer layer_ns, and so
 * many of 100 drafts are right. */
struct machine {
    uint64_t step_ns, more_ns, layer_ns;
    uint32_t right;
};

struct outcome {
    uint64_t tokens, ns, n_with;
};

static struct outcome simulate(struct sl_draft_trial *t, const struct machine *m, uint32_t n_steps,
                               struct sl_rng *rng) {
    struct outcome o = {0};
    for (uint32_t i = 0; i < n_steps; i++) {
        bool with = sl_draft_trial_verifies(t), drafts = sl_draft_trial_drafts(t);
        struct sl_draft_step s = {1, 1, m->step_ns, drafts ? m->layer_ns : 0, drafts};
        s.step_ns += sl_rng_below(rng, (uint32_t)m->step_ns / 10); /* no two steps are alike */
        if (with) {
            s.step_ns += m->more_ns;
            s.n_tokens += sl_rng_below(rng, 100) < m->right;
        }
        o.tokens += s.n_tokens;
        o.ns += s.step_ns + s.layer_ns;
        o.n_with += with;
        sl_draft_trial_step(t, &s);
    }
    return o;
}

/* Tokens a second, relative to never or always drafting. */
static double relative(const struct machine *m, bool with, const struct outcome *o) {
    double step = 1.05 * (double)m->step_ns, tokens = 1;
    if (with) {
        step += (double)(m->more_ns + m->layer_ns);
        tokens += m->right / 100.0;
    }
    return (double)o->tokens / (double)o->ns * step / tokens;
}

static void pays_and_does_not(void **state) {
    (void)state;
    static const struct machine resident = {10000, 1500, 300, 70}, disk = {10000, 9000, 500, 70},
                                wrong = {10000, 1000, 300, 5};
    struct sl_rng rng = {3};
    struct sl_draft_trial t;
    sl_draft_trial_init(&t, true);
    struct outcome o = simulate(&t, &resident, 20000, &rng);
    assert_true(relative(&resident, true, &o) > 0.985);
    assert_int_equal(t.phase != SL_DRAFT_RESTS, true);
    static const struct machine *const losing[] = {&disk, &wrong};
    for (uint32_t i = 0; i < 2; i++) {
        sl_draft_trial_init(&t, true);
        o = simulate(&t, losing[i], 20000, &rng);
        assert_true(relative(losing[i], false, &o) > 0.985);
        assert_true(o.n_with > 0 && o.n_with < 300);
    }
    /* Short runs, too, when the first trial is all that there is. */
    sl_draft_trial_init(&t, true);
    o = simulate(&t, &disk, 500, &rng);
    assert_true(relative(&disk, false, &o) > 0.97);
}

static void changes(void **state) {
    (void)state;
    static const struct machine slow = {10000, 9000, 500, 50}, fast = {10000, 1000, 300, 70};
    struct sl_rng rng = {4};
    struct sl_draft_trial t;
    sl_draft_trial_init(&t, true);
    (void)simulate(&t, &slow, 3000, &rng);
    assert_false(sl_draft_trial_verifies(&t));
    struct outcome o = simulate(&t, &fast, 20000, &rng);
    assert_true(o.n_with > 10000);
    o = simulate(&t, &slow, 20000, &rng);
    assert_true(o.n_with < 4000);
}

/* The first steps fill experts' slots and take the longest: that is not what drafts cost. */
static void a_cold_start(void **state) {
    (void)state;
    struct sl_draft_trial t;
    uint32_t right = 0, n_with = 0;
    sl_draft_trial_init(&t, true);
    for (uint32_t i = 0; i < 200; i++) {
        bool with = sl_draft_trial_verifies(&t);
        struct sl_draft_step s = {1, 1, 10000 + (i < 60 ? (60 - i) * 500 : 0), 300, true};
        if (with) {
            s.step_ns += 1500;
            s.n_tokens += (right = (right + 65) % 100) < 65;
        }
        n_with += with;
        sl_draft_trial_step(&t, &s);
    }
    assert_int_equal(t.phase, SL_DRAFT_PAYS);
    assert_in_range(n_with, 60, 136);
}

static void always(void **state) {
    (void)state;
    static const struct machine disk = {10000, 9000, 500, 5};
    struct sl_rng rng = {5};
    struct sl_draft_trial t;
    sl_draft_trial_init(&t, false);
    struct outcome o = simulate(&t, &disk, 5000, &rng);
    assert_int_equal(o.n_with, 5000);
    assert_true(sl_draft_trial_drafts(&t));
}

/* Nothing is concluded from steps of other sessions, or of texts that the layer has not seen. */
static void company(void **state) {
    (void)state;
    struct sl_draft_trial t;
    sl_draft_trial_init(&t, true);
    for (uint32_t i = 0; i < 1000; i++)
        sl_draft_trial_step(&t, &(struct sl_draft_step){1, 1, 100, 0, false});
    assert_int_equal(t.phase, SL_DRAFT_WAITS);
    assert_false(sl_draft_trial_verifies(&t));
    for (uint32_t i = 0; i < 1000; i++)
        sl_draft_trial_step(&t, &(struct sl_draft_step){1 + i % 3, 1, 100, 10, true});
    assert_int_equal(t.phase, SL_DRAFT_TRIED);
    sl_draft_trial_step(&t, &(struct sl_draft_step){1, 1, 100, 10, false});
    assert_int_equal(t.phase, SL_DRAFT_WAITS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pays_and_does_not), cmocka_unit_test(changes),
        cmocka_unit_test(a_cold_start),      cmocka_unit_test(always),
        cmocka_unit_test(company),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
