/* Fetch and look-ahead over the fake disk with real bytes: every expert that is computed is
 * compared with the file, every pair is counted, and after each step no lease may be left. */
#include "tests/unit/engine/fetch_rig.h"

static const struct rig_config roomy = {.shape = {4, 12, 3, {48, 0}}};
static const struct rig_config tight = {.shape = {4, 12, 3, {3, 3}}};

/* ---- one path after the other ---- */

static void misses_then_hits(void **state) {
    (void)state;
    struct rig *g = rig_open(&roomy);
    uint32_t n_failed;
    choose_in_turn(g, 2);
    assert_ok(rig_step(g, 1, 2, 2, &n_failed));
    assert_int_equal(n_failed, 0);
    const struct sl_fetch_stats *s = sl_fetch_stats(g->fetch);
    assert_int_equal(s->misses, 6);
    assert_int_equal(s->hits, 0);
    assert_true(s->stall_ns > 0);
    uint64_t stall = s->stall_ns, calls = s->calls;
    assert_ok(rig_step(g, 1, 2, 2, &n_failed));
    assert_int_equal(s->misses, 6);
    assert_int_equal(s->hits, 6);
    assert_int_equal(s->stall_ns, stall); /* all there: nothing waits, one call */
    assert_int_equal(s->calls, calls + 1);
    assert_int_equal(s->needed_bytes, 6 * g->layout.layers[1].expert_bytes);
    rig_close(g);
}

/* The hits are computed while the misses are read, not after. */
static void hits_run_at_once(void **state) {
    (void)state;
    struct rig *g = rig_open(&roomy);
    uint32_t n_failed;
    choose_in_turn(g, 1);
    g->moe_ns = 10000000; /* longer than reading: the read may not wait for the wait */
    assert_ok(rig_step(g, 0, 1, 1, &n_failed));
    g->ids[2] = 7; /* two hits, one miss */
    uint64_t stall = sl_fetch_stats(g->fetch)->stall_ns, start = g->clock.now_ns;
    assert_ok(rig_step(g, 0, 1, 1, &n_failed));
    assert_int_equal(sl_fetch_stats(g->fetch)->stall_ns, stall);
    assert_int_equal(g->clock.now_ns - start, 2 * g->moe_ns);
    rig_close(g);
}

/* Steps of one sequence that miss five or six experts of eight: one system call a layer, whether
 * the device's work overlaps it or not, with the hits computed behind the reads. */
static void few_system_calls(void **state) {
    (void)state;
    for (uint32_t overlap = 0; overlap < 2; overlap++) {
        struct rig *g = rig_open(&(struct rig_config){.shape = {6, 32, 8, {80, 0}}, .depth = 64});
        struct sl_rng rng = {.state = 12};
        struct sl_reader_stats from = {0}, to;
        uint32_t n_failed;
        g->dev.caps.overlap = overlap;
        g->moe_ns = 50000; /* an expert is read in 40 */
        uint64_t start = 0;
        for (uint32_t token = 0; token < 60; token++) {
            if (token == 10) {
                sl_reader_get_stats(g->reader, &from);
                start = g->clock.now_ns;
            }
            for (uint32_t layer = 0; layer < 6; layer++) {
                choose(g, &rng, 1);
                assert_ok(rig_step(g, layer, 1, 1, &n_failed));
            }
        }
        sl_reader_get_stats(g->reader, &to);
        double reads = (double)(to.reads - from.reads), layers = 50 * 6;
        double calls = (double)(to.syscalls - from.syscalls);
        if (reads < 3.5 * layers || calls > 0.25 * reads)
            fail_msg("%.0f system calls for %.0f reads of %.0f layers", calls, reads, layers);
        double busy = (double)(to.busy_ns - from.busy_ns);
        /* What is not hidden behind reading is the last call of each layer, and a little. */
        double took = (double)(g->clock.now_ns - start);
        if (took > busy + layers * 1.5 * (double)g->moe_ns)
            fail_msg("%.0f ns, of which the disk read %.0f", took, busy);
        rig_close(g);
    }
}

static void waves_with_the_least_slots(void **state) {
    (void)state;
    struct rig *g = rig_open(&tight);
    uint32_t n_failed;
    for (uint32_t layer = 0; layer < 4; layer++) {
        choose_in_turn(g, MAX_ROWS); /* all 12 experts over 3 slots */
        assert_ok(rig_step(g, layer, MAX_ROWS, layer % 2 ? MAX_ROWS : 2, &n_failed));
        assert_int_equal(n_failed, 0);
    }
    assert_int_equal(sl_fetch_stats(g->fetch)->misses, 48);
    assert_true(sl_fetch_stats(g->fetch)->waves > 0);
    rig_close(g);
}

static void a_failing_read_fails_its_rows_alone(void **state) {
    (void)state;
    for (uint32_t tightly = 0; tightly < 2; tightly++) {
        struct rig *g = rig_open(tightly ? &tight : &roomy);
        uint32_t n_failed;
        choose_in_turn(g, 4); /* row 1 needs 3, 4, 5 */
        g->faults[0] = fault_on(g, 2, 4, 0);
        sl_fake_set_faults(g->reader, g->faults, 1);
        assert_ok(rig_step(g, 2, 4, 4, &n_failed));
        assert_int_equal(n_failed, 1);
        for (uint32_t t = 0; t < 4; t++)
            assert_int_equal(g->failed[t], t == 1);
        assert_non_null(strstr(test_err.text, "layer 3, expert 4")); /* the model's layer */
        assert_int_equal(sl_fetch_stats(g->fetch)->failed, 1);
        /* The drive is well again: so is the expert. */
        sl_fake_set_faults(g->reader, NULL, 0);
        choose_in_turn(g, 4);
        assert_ok(rig_step(g, 2, 4, 4, &n_failed));
        assert_int_equal(n_failed, 0);
        rig_close(g);
    }
}

static void one_error_is_read_over(void **state) {
    (void)state;
    struct rig *g = rig_open(&roomy);
    uint32_t n_failed;
    choose_in_turn(g, 4);
    g->faults[0] = fault_on(g, 0, 4, 1);
    g->faults[0].times = 1;
    g->faults[1] = fault_on(g, 0, 7, 0);
    g->faults[1].error = 0;
    g->faults[1].times = 1;
    g->faults[1].cut_short = true;
    g->faults[1].short_bytes = 4096;
    sl_fake_set_faults(g->reader, g->faults, 2);
    assert_ok(rig_step(g, 0, 4, 0, &n_failed));
    assert_int_equal(n_failed, 0);
    rig_close(g);
}

static void rows_lost_before_read_nothing(void **state) {
    (void)state;
    struct rig *g = rig_open(&roomy);
    uint32_t n_failed;
    choose_in_turn(g, 4);
    g->failed[0] = g->failed[2] = 1;
    assert_ok(rig_step(g, 0, 4, 4, &n_failed));
    assert_int_equal(n_failed, 0);
    assert_int_equal(sl_fetch_stats(g->fetch)->misses, 6);
    for (uint32_t p = 0; p < 12; p++)
        assert_int_equal(g->n_computed[p], p / 3 % 2);
    memset(g->failed, 1, 4);
    assert_ok(rig_step(g, 1, 4, 4, &n_failed));
    assert_int_equal(sl_fetch_stats(g->fetch)->misses, 6);
    rig_close(g);
}

/* The file is shorter than the layout says: the reader takes none of the chain. */
static void reads_that_cannot_start(void **state) {
    (void)state;
    struct rig_config c = roomy;
    c.file_bytes = 9000;
    struct rig *g = rig_open(&c);
    uint32_t n_failed;
    choose_in_turn(g, 4);
    assert_ok(rig_step(g, 3, 4, 4, &n_failed));
    assert_int_equal(n_failed, 4);
    assert_true(test_err.text[0]);
    sl_fetch_warm_up(g->fetch); /* nor can these; and nobody waits for ever */
    for (uint32_t i = 0; i < 200 && sl_fetch_has_background(g->fetch); i++)
        sl_fetch_idle(g->fetch, 1000000);
    assert_false(sl_fetch_has_background(g->fetch));
    rig_close(g);
}

static void canceled_in_mid_load(void **state) {
    (void)state;
    for (uint32_t tightly = 0; tightly < 2; tightly++)
        for (uint32_t at = 1; at < 5; at++) {
            struct rig *g = rig_open(tightly ? &tight : &roomy);
            uint32_t n_failed;
            choose_in_turn(g, 8);
            g->stop_at = at;
            enum sl_status status = rig_step(g, 1, 8, 8, &n_failed);
            if (status != SL_OK)
                assert_int_equal(status, SL_ERR_CANCELED);
            assert_true(status != SL_OK || g->asked < at);
            /* At once again, with reads that the disk has not let go of yet. */
            g->stop_at = 0;
            assert_ok(rig_step(g, 1, 8, 8, &n_failed));
            assert_int_equal(n_failed, 0);
            rig_close(g);
        }
}

static void an_op_that_fails_gives_the_leases_back(void **state) {
    (void)state;
    struct rig *g = rig_open(&tight);
    uint32_t n_failed;
    choose_in_turn(g, 8);
    g->moe_status = SL_ERR_DEVICE_LOST;
    assert_int_equal(rig_step(g, 1, 8, 8, &n_failed), SL_ERR_DEVICE_LOST);
    g->moe_status = SL_OK;
    assert_ok(rig_step(g, 1, 8, 8, &n_failed));
    rig_close(g);
}

static void quit_with_reads_under_way(void **state) {
    (void)state;
    struct rig_config c = roomy;
    c.latency_ns = 5000000;
    for (uint32_t i = 0; i < 3; i++) {
        struct rig *g = rig_open(&c);
        uint32_t n_failed;
        choose_in_turn(g, 4);
        if (i == 0)
            sl_fetch_warm_up(g->fetch);
        if (i < 2)
            sl_fetch_idle(g->fetch, 1);
        if (i > 0) {
            g->stop_at = 1;
            assert_int_equal(rig_step(g, 1, 4, 4, &n_failed), SL_ERR_CANCELED);
        }
        rig_close(g);
    }
}

/* ---- looking ahead ---- */

static void ahead_is_there_in_time(void **state) {
    (void)state;
    struct rig *g = rig_open(&roomy);
    uint32_t n_failed, next[6] = {9, 10, 11, 9, 10, 11};
    const struct sl_fetch_stats *s = sl_fetch_stats(g->fetch);
    choose_in_turn(g, 2);
    rig_begin(g, 0, 2, 2);
    sl_fetch_ahead(g->fetch, 1, next, 6);
    for (uint32_t i = 0; i < 9; i++) { /* other work, and polls between */
        g->clock.now_ns += 1000000;
        sl_fetch_poll(g->fetch);
    }
    assert_ok(rig_finish(g, 2, 2, &n_failed));
    assert_int_equal(s->ahead_read, 3);
    memcpy(g->ids, next, sizeof next);
    uint64_t misses = s->misses;
    assert_ok(rig_step(g, 1, 2, 2, &n_failed));
    assert_int_equal(s->misses, misses);
    assert_int_equal(s->hits, 3);
    assert_int_equal(s->ahead_used, 3);
    /* Two of three are predicted wrong. */
    rig_begin(g, 1, 2, 2);
    sl_fetch_ahead(g->fetch, 2, (uint32_t[]){0, 1, 2}, 3);
    assert_ok(rig_finish(g, 2, 2, &n_failed));
    for (uint32_t p = 0; p < 6; p++)
        g->ids[p] = 2 + p % 3;
    assert_ok(rig_step(g, 2, 2, 2, &n_failed));
    assert_int_equal(s->ahead_read, 6);
    assert_int_equal(s->ahead_used, 4);
    rig_close(g);
}

/* What is read ahead and late is raised and waited for, once. */
static void ahead_comes_late(void **state) {
    (void)state;
    struct rig_config c = roomy;
    c.latency_ns = 50000000;
    struct rig *g = rig_open(&c);
    uint32_t n_failed;
    const struct sl_fetch_stats *s = sl_fetch_stats(g->fetch);
    choose_in_turn(g, 1);
    rig_begin(g, 0, 1, 1);
    assert_ok(rig_finish(g, 1, 1, &n_failed));
    rig_begin(g, 0, 1, 1);
    sl_fetch_ahead(g->fetch, 1, g->ids, 3);
    assert_ok(rig_finish(g, 1, 1, &n_failed));
    assert_int_equal(s->ahead_read, 3);
    uint64_t misses = s->misses;
    assert_ok(rig_step(g, 1, 1, 1, &n_failed));
    assert_int_equal(s->late, 3);
    assert_int_equal(s->misses, misses);
    rig_close(g);
}

static void prompts_read_the_next_layer(void **state) {
    (void)state;
    for (uint32_t next = 0; next < 2; next++) {
        struct rig *g = rig_open(&roomy);
        struct sl_rng rng = {.state = 4};
        uint32_t n_failed;
        choose(g, &rng, MAX_ROWS);
        g->layer = 0;
        sl_fetch_begin(g->fetch, 0,
                       &(struct sl_fetch_rows){g->ids, MAX_ROWS, 0, g->failed, next * MAX_ROWS});
        assert_ok(rig_finish(g, MAX_ROWS, 0, &n_failed));
        const struct sl_fetch_stats *s = sl_fetch_stats(g->fetch);
        assert_int_equal(s->ahead_read, next ? 12 : 0);
        uint64_t misses = s->misses;
        assert_ok(rig_step(g, 1, MAX_ROWS, 0, &n_failed));
        assert_int_equal(s->misses - misses, next ? 0 : 12);
        rig_close(g);
    }
}

/* All rows choose the same three. */
static void choose_three(struct rig *g, uint32_t first) {
    for (uint32_t p = 0; p < MAX_ROWS * 3; p++)
        g->ids[p] = first + p % 3;
}

/* On a disk that takes its time; the rows have chosen the first three. */
static struct rig *slow_prompts(void) {
    struct rig_config c = roomy;
    c.latency_ns = 5000000;
    struct rig *g = rig_open(&c);
    choose_three(g, 0);
    return g;
}

/* A plan for prompts of which the layer wants little: what has not begun is not read. */
static void prompts_give_up_what_is_not_wanted(void **state) {
    (void)state;
    struct rig *g = slow_prompts();
    struct sl_reader_stats disk;
    uint32_t n_failed;
    assert_ok(rig_step(g, 0, MAX_ROWS, 0, &n_failed));
    const struct sl_fetch_stats *s = sl_fetch_stats(g->fetch);
    assert_int_equal(s->ahead_read, 12); /* rows that nothing is known of */
    choose_three(g, 9);
    assert_ok(rig_step(g, 1, MAX_ROWS, 0, &n_failed));
    sl_fetch_forget(g->fetch);
    assert_int_equal(s->ahead_used, 3);
    sl_reader_get_stats(g->reader, &disk);
    assert_true(disk.canceled >= 6 && disk.reads <= 3 + 12 - 6);
    assert_int_equal(disk.failed, 0);
    rig_close(g);
}

/* A step that was given up leaves its plan behind: the next one's reads do not wait for it. */
static void prompts_give_up_with_their_step(void **state) {
    (void)state;
    struct rig *g = slow_prompts();
    struct sl_reader_stats disk;
    uint32_t n_failed;
    assert_ok(rig_step(g, 1, MAX_ROWS, 0, &n_failed));
    assert_int_equal(sl_fetch_stats(g->fetch)->ahead_read, 12);
    assert_ok(rig_step(g, 0, 1, 1, &n_failed));
    sl_reader_get_stats(g->reader, &disk);
    assert_true(disk.canceled >= 8);
    rig_close(g);
}

/* Nor is more of it read while nothing runs. */
static void idle_gives_up_what_a_step_left(void **state) {
    (void)state;
    for (uint32_t generated = 0; generated < 2; generated++) {
        struct rig *g = slow_prompts();
        struct sl_reader_stats from, to;
        uint32_t n_failed;
        g->stop_at = 1;
        assert_int_equal(rig_step(g, 1, MAX_ROWS, generated, &n_failed), SL_ERR_CANCELED);
        sl_reader_get_stats(g->reader, &from);
        uint64_t ahead = sl_fetch_stats(g->fetch)->ahead_read;
        while (sl_fetch_has_background(g->fetch))
            sl_fetch_idle(g->fetch, 1000000);
        sl_reader_get_stats(g->reader, &to);
        assert_int_equal(sl_fetch_stats(g->fetch)->ahead_read, ahead);
        assert_true(to.canceled >= from.canceled + 8);
        assert_true(to.reads <= 3 + 12 - 8);
        g->stop_at = 0;
        assert_ok(rig_step(g, 0, MAX_ROWS, generated, &n_failed));
        assert_int_equal(n_failed, 0);
        rig_close(g);
    }
}

/* Texts of different subjects by turns: by its heat each expert is chosen by some of so many rows,
 * but a text's rows all choose among a quarter of them. */
static void prompts_learn_how_alike_rows_are(void **state) {
    (void)state;
    struct rig *g = rig_open(&(struct rig_config){.shape = {4, 32, 4, {24, 0}}, .depth = 64});
    struct sl_rng rng = {.state = 8};
    const struct sl_fetch_stats *s = sl_fetch_stats(g->fetch);
    uint64_t read = 0, used = 0;
    g->moe_ns = 2000000;
    for (uint32_t text = 0; text < 60; text++) {
        uint32_t n_failed, first = sl_rng_below(&rng, 4) * 8;
        if (text == 30) {
            read = s->ahead_read;
            used = s->ahead_used;
        }
        for (uint32_t layer = 0; layer < 4; layer++) {
            for (uint32_t p = 0; p < MAX_ROWS * 4; p++)
                g->ids[p] = first + (p + p / 4) % 8;
            assert_ok(rig_step(g, layer, MAX_ROWS, 0, &n_failed));
        }
    }
    read = s->ahead_read - read;
    used = s->ahead_used - used;
    assert_true(read < 30 * 3 * 8 && 2 * used > read); /* all of the quarter, were all absent */
    rig_close(g);
}

static void reads_ahead_may_fail(void **state) {
    (void)state;
    struct rig *g = rig_open(&roomy);
    uint32_t n_failed;
    choose_in_turn(g, 1);
    g->faults[0] = fault_on(g, 1, 1, 2);
    sl_fake_set_faults(g->reader, g->faults, 1);
    rig_begin(g, 0, 1, 1);
    sl_fetch_ahead(g->fetch, 1, g->ids, 3);
    assert_ok(rig_finish(g, 1, 1, &n_failed));
    g->clock.now_ns += 100000000;
    sl_fetch_poll(g->fetch); /* it has failed by now, and nobody had asked for it */
    assert_int_equal(n_failed, 0);
    sl_fake_set_faults(g->reader, NULL, 0);
    assert_ok(rig_step(g, 1, 1, 1, &n_failed));
    assert_int_equal(n_failed, 0);
    rig_close(g);
}

/* Steps of one row; the prediction is right or it is not. Returns how often running the next router
 * was wanted in the last steps, of 3 * 100. */
static uint32_t wanted_ahead(const struct rig_config *c, bool right, bool same_each_time) {
    struct rig *g = rig_open(c);
    struct sl_rng rng = {.state = 8};
    uint32_t n_failed, wanted = 0, next[8];
    choose(g, &rng, 2);
    for (uint32_t step = 0; step < 200; step++)
        for (uint32_t layer = 0; layer < 4; layer++) {
            memcpy(next, g->ids + 3, sizeof *next * 3);
            rig_begin(g, layer, 1, 1);
            if (sl_fetch_wants_ahead(g->fetch)) {
                wanted += step >= 100;
                for (uint32_t j = 0; j < 3 && !right; j++)
                    next[j] = (next[j] + 5) % 12;
                sl_fetch_ahead(g->fetch, layer + 1, next, 3);
                for (uint32_t j = 0; j < 3 && !right; j++)
                    next[j] = (next[j] + 7) % 12;
            }
            g->clock.now_ns += 200000;
            sl_fetch_poll(g->fetch);
            assert_ok(rig_finish(g, 1, 1, &n_failed));
            g->clock.now_ns += 200000;
            sl_fetch_poll(g->fetch);
            if (!same_each_time) {
                choose(g, &rng, 2); /* row 1 is what comes next */
                memcpy(g->ids, next, sizeof *next * 3);
            }
        }
    rig_close(g);
    return wanted;
}

/* Steps of one row through four layers; the predictions that each layer makes are right, or wrong.
 */
static void predicted_steps(struct rig *g, struct sl_rng *rng, uint32_t n, bool right) {
    uint32_t ids[4][3], prediction[3], n_failed;
    for (uint32_t step = 0; step < n; step++) {
        for (uint32_t layer = 0; layer < 4; layer++) {
            choose(g, rng, 1);
            memcpy(ids[layer], g->ids, sizeof ids[layer]);
        }
        for (uint32_t layer = 0; layer < 4; layer++) {
            memcpy(g->ids, ids[layer], sizeof ids[layer]);
            rig_begin(g, layer, 1, 1);
            for (uint32_t w = 0; w < sl_fetch_predictions(g->fetch, 1); w++) {
                uint32_t to = layer + sl_fetch_prediction_ahead[w];
                for (uint32_t j = 0, e = 0; j < 3 && to < 4; j++, e++) {
                    while (!right && (e == ids[to][0] || e == ids[to][1] || e == ids[to][2]))
                        e++;
                    prediction[j] = right ? ids[to][j] : (e + step) % 12;
                }
                if (to < 4)
                    sl_fetch_predict(g->fetch, w, to, prediction, 3);
            }
            assert_ok(rig_finish(g, 1, 1, &n_failed));
            g->clock.now_ns += 100000;
            sl_fetch_poll(g->fetch);
        }
    }
}

static void predictions_are_followed_while_they_are_right(void **state) {
    (void)state;
    struct rig_config c = {.shape = {4, 12, 3, {16, 0}}};
    struct rig *g = rig_open(&c);
    struct sl_rng rng = {.state = 12};
    const struct sl_fetch_stats *s = sl_fetch_stats(g->fetch);
    struct sl_reader_stats r;
    predicted_steps(g, &rng, 60, true);
    assert_true(s->ahead_read > 100 && s->ahead_used == s->ahead_read);
    /* They turn wrong: what has not come when its layer begins is given up, and soon nothing is
     * read for them. */
    struct sl_fetch_stats before = *s;
    predicted_steps(g, &rng, 60, false);
    sl_reader_get_stats(g->reader, &r);
    assert_true(r.canceled > 0 && s->failed == 0);
    uint64_t wrong = s->ahead_read - before.ahead_read;
    assert_true(wrong > 0 && s->ahead_used - before.ahead_used < wrong);
    before = *s;
    predicted_steps(g, &rng, 30, false);
    assert_true(s->ahead_read - before.ahead_read < 30);
    /* And right again. */
    predicted_steps(g, &rng, 60, true);
    before = *s;
    predicted_steps(g, &rng, 30, true);
    assert_true(s->ahead_read - before.ahead_read > 50);
    sl_fetch_forget(g->fetch);
    rig_close(g);
}

static void predictions_that_were_never_right_are_not_read(void **state) {
    (void)state;
    struct rig_config c = {.shape = {4, 12, 3, {16, 0}}};
    struct rig *g = rig_open(&c);
    struct sl_rng rng = {.state = 13};
    assert_int_equal(sl_fetch_predictions(g->fetch, SL_FETCH_AHEAD_ROWS + 1), 0);
    predicted_steps(g, &rng, 100, false);
    assert_true(sl_fetch_stats(g->fetch)->ahead_read < 60);
    assert_int_equal(sl_fetch_predictions(g->fetch, 1), SL_FETCH_PREDICTIONS);
    rig_close(g);
    /* Nothing comes from disk any more: farther routers are not run early. */
    g = rig_open(&roomy);
    predicted_steps(g, &rng, 100, true);
    assert_int_equal(sl_fetch_predictions(g->fetch, 1), 0);
    rig_close(g);
    c.no_lookahead = true;
    g = rig_open(&c);
    assert_int_equal(sl_fetch_predictions(g->fetch, 1), 0);
    rig_close(g);
}

static void looking_ahead_goes_on_while_it_pays(void **state) {
    (void)state;
    struct rig_config c = {.shape = {4, 12, 3, {16, 0}}};
    assert_true(wanted_ahead(&c, true, false) >= 290);
    assert_true(wanted_ahead(&c, false, false) < 60);
    /* Nothing is read: nothing to look ahead for. */
    assert_int_equal(wanted_ahead(&roomy, true, true), 0);
    c.no_lookahead = true;
    assert_int_equal(wanted_ahead(&c, true, false), 0);
}

/* ---- warming up ---- */

static void warm_up_fills_free_slots(void **state) {
    (void)state;
    struct rig *g = rig_open(&roomy);
    uint32_t n_failed;
    sl_fetch_warm_up(g->fetch);
    assert_true(sl_fetch_has_background(g->fetch));
    for (uint32_t i = 0; i < 1000 && sl_fetch_has_background(g->fetch); i++)
        sl_fetch_idle(g->fetch, 1000000);
    assert_false(sl_fetch_has_background(g->fetch));
    choose_in_turn(g, 4);
    for (uint32_t layer = 0; layer < 4; layer++)
        assert_ok(rig_step(g, layer, 4, 4, &n_failed));
    assert_int_equal(sl_fetch_stats(g->fetch)->misses, 0);
    rig_close(g);
}

/* Demand comes while warm-up holds every slot that it may. */
static void demand_overtakes_warm_up(void **state) {
    (void)state;
    for (uint32_t slots = 3; slots < 16; slots++) {
        struct rig_config c = {.shape = {4, 12, 3, {slots, slots}}, .latency_ns = 3000000};
        struct rig *g = rig_open(&c);
        uint32_t n_failed;
        sl_fetch_warm_up(g->fetch);
        sl_fetch_idle(g->fetch, 1);
        for (uint32_t layer = 0; layer < 4; layer++) {
            choose_in_turn(g, 4);
            assert_ok(rig_step(g, layer, 4, 1, &n_failed));
        }
        rig_close(g);
    }
}

/* ---- storms ---- */

static void storm(uint64_t seed) {
    struct sl_rng rng = {.state = seed};
    struct rig_config c = {.reorder_seed = sl_rng_below(&rng, 2) * seed,
                           .latency_ns = 1 + sl_rng_below(&rng, 3000000),
                           .no_lookahead = sl_rng_below(&rng, 8) == 0};
    struct shape *s = &c.shape;
    s->n_layer = 2 + sl_rng_below(&rng, 4);
    s->k = 1 + sl_rng_below(&rng, 4);
    s->n_expert = s->k + sl_rng_below(&rng, 16);
    uint32_t all = s->n_layer * s->n_expert;
    s->slots[0] = s->k + sl_rng_below(&rng, sl_rng_below(&rng, 3) ? all : 3);
    if (sl_rng_below(&rng, 2))
        s->slots[1] = s->k + sl_rng_below(&rng, all);
    struct rig *g = rig_open(&c);
    if (sl_rng_below(&rng, 2))
        sl_fetch_warm_up(g->fetch);
    bool faulty = false; /* a fault may show long after it was set */
    for (uint32_t step = 0; step < 60; step++) {
        uint32_t layer = step % s->n_layer, n_faults = sl_rng_below(&rng, 3) ? 0 : FAULTS;
        for (uint32_t i = 0; i < n_faults; i++) {
            g->faults[i] = fault_on(g, sl_rng_below(&rng, s->n_layer),
                                    sl_rng_below(&rng, s->n_expert), sl_rng_below(&rng, 3));
            g->faults[i].times = sl_rng_below(&rng, 4);
            if (sl_rng_below(&rng, 2)) {
                g->faults[i].error = 0;
                g->faults[i].cut_short = sl_rng_below(&rng, 2);
                g->faults[i].delay_ns = sl_rng_below(&rng, 2) ? 2000000000 : 100000;
            }
        }
        sl_fake_set_faults(g->reader, g->faults, n_faults);
        faulty |= n_faults > 0;
        uint32_t n = 1 + sl_rng_below(&rng, sl_rng_below(&rng, 2) ? 3 : MAX_ROWS), n_failed;
        uint32_t n_decode = sl_rng_below(&rng, 2) ? n : sl_rng_below(&rng, n + 1);
        choose(g, &rng, n);
        uint32_t lost = 0;
        for (uint32_t t = 0; t < n; t++)
            lost += g->failed[t] = sl_rng_below(&rng, 10) == 0;
        g->moe_ns = sl_rng_below(&rng, 500000);
        g->moe_status = sl_rng_below(&rng, 30) ? SL_OK : SL_ERR_DEVICE_LOST;
        g->stop_at = sl_rng_below(&rng, 5) ? 0 : 1 + sl_rng_below(&rng, 6);
        rig_begin(g, layer, n, n_decode);
        if (layer + 1 < s->n_layer && n == n_decode && sl_rng_below(&rng, 2)) {
            uint32_t prediction[4];
            for (uint32_t i = 0; i < s->k; i++)
                prediction[i] = sl_rng_below(&rng, s->n_expert);
            sl_fetch_ahead(g->fetch, layer + 1, prediction, s->k);
        }
        g->clock.now_ns += sl_rng_below(&rng, 1000000);
        sl_fetch_poll(g->fetch);
        sl_cache_check(sl_fetch_cache(g->fetch));
        enum sl_status status = rig_finish(g, n, n_decode, &n_failed);
        if (status == SL_OK) {
            uint32_t lost_now = 0;
            for (uint32_t t = 0; t < n; t++)
                lost_now += g->failed[t] != 0;
            assert_int_equal(lost_now, lost + n_failed);
            assert_true(n_failed == 0 || faulty);
        } else
            assert_true(status == SL_ERR_CANCELED || status == SL_ERR_DEVICE_LOST);
        memset(g->failed, 0, sizeof g->failed);
        if (sl_rng_below(&rng, 4) == 0)
            sl_fetch_idle(g->fetch, sl_rng_below(&rng, 3000000));
        sl_cache_check(sl_fetch_cache(g->fetch));
    }
    /* After all that, a healthy drive serves everything. */
    uint32_t n_failed;
    g->stop_at = 0;
    g->moe_status = SL_OK;
    sl_fake_set_faults(g->reader, NULL, 0);
    g->clock.now_ns += 3000000000;
    sl_fetch_poll(g->fetch);
    for (uint32_t layer = 0; layer < s->n_layer; layer++) {
        choose(g, &rng, 9);
        assert_ok(rig_step(g, layer, 9, 9, &n_failed));
        assert_int_equal(n_failed, 0);
    }
    rig_close(g);
}

static void storms(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 150; seed++)
        storm(seed);
}

int main(void) {
    sl_log_set_level(SL_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(misses_then_hits),
        cmocka_unit_test(hits_run_at_once),
        cmocka_unit_test(few_system_calls),
        cmocka_unit_test(waves_with_the_least_slots),
        cmocka_unit_test(a_failing_read_fails_its_rows_alone),
        cmocka_unit_test(one_error_is_read_over),
        cmocka_unit_test(rows_lost_before_read_nothing),
        cmocka_unit_test(reads_that_cannot_start),
        cmocka_unit_test(canceled_in_mid_load),
        cmocka_unit_test(an_op_that_fails_gives_the_leases_back),
        cmocka_unit_test(quit_with_reads_under_way),
        cmocka_unit_test(ahead_is_there_in_time),
        cmocka_unit_test(ahead_comes_late),
        cmocka_unit_test(prompts_read_the_next_layer),
        cmocka_unit_test(prompts_give_up_what_is_not_wanted),
        cmocka_unit_test(prompts_give_up_with_their_step),
        cmocka_unit_test(idle_gives_up_what_a_step_left),
        cmocka_unit_test(prompts_learn_how_alike_rows_are),
        cmocka_unit_test(reads_ahead_may_fail),
        cmocka_unit_test(looking_ahead_goes_on_while_it_pays),
        cmocka_unit_test(predictions_are_followed_while_they_are_right),
        cmocka_unit_test(predictions_that_were_never_right_are_not_read),
        cmocka_unit_test(warm_up_fills_free_slots),
        cmocka_unit_test(demand_overtakes_warm_up),
        cmocka_unit_test(storms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
