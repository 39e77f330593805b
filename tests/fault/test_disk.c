/* Disks that err, seen by requests: the engine over the fake reader, whose faults are scripted.
 * What can be read again is; what cannot fails the requests that need it, with a text that says
 * what and where, and no others; and when the disk is sound again, so is everything. */
#include "tests/fault/faulty_disk.h"

#define SECOND_NS 1000000000u
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define N_STORMS    10u /* slow, and looking for other mistakes */
#define EXPERT_STEP 4u
#else
#define N_STORMS    40u
#define EXPERT_STEP 2u
#endif

/* ---- what is read again ---- */

static void passing_faults_do_not_show(void **state) {
    (void)state;
    static const uint32_t percents[] = {100, 50, 0};
    for (uint32_t p = 0; p < 3; p++)
        for (uint32_t kind = 0; kind < 6; kind++) {
            struct disk d = new_disk();
            struct sl_fake_fault *f = &d.faults[d.n_faults++];
            *f = everywhere();
            switch (kind) {
            case 0: /* an error once, or twice in a row */
                f->error = EIO;
                f->times = 1 + p % 2;
                break;
            case 1: /* a few bytes, then the rest */
                f->cut_short = true;
                f->short_bytes = 1000;
                f->times = 2;
                break;
            case 2: /* never more than two blocks at once */
                f->cut_short = true;
                f->short_bytes = 8192 + 100;
                break;
            case 3: /* slow starts */
                f->delay_ns = 2ull * SECOND_NS;
                f->times = 5;
                break;
            case 4: /* in any order, with a slow one and one that errs among them */
                d.reorder_seed = 7 + p;
                *f = at_expert(1, 3, 2);
                f->delay_ns = 2ull * SECOND_NS;
                d.faults[d.n_faults] = at_expert(2, 1, 0);
                d.faults[d.n_faults].error = EIO;
                d.faults[d.n_faults++].times = 2;
                break;
            case 5: /* interrupted */
                f->error = EINTR;
                f->times = 20;
                break;
            }
            uint64_t retries = (uint64_t)sl_metric(disk_retries_total);
            struct sl_engine *e = engine_on(&d, percents[p]);
            expect_clean(e);
            if (kind != 3)
                assert_true((uint64_t)sl_metric(disk_retries_total) > retries);
            else
                assert_true(d.faults[0].times == UINT32_MAX); /* used up */
            expect_clean(e);
            sl_engine_destroy(&e);
        }
}

/* A drive with a second copy beside it: errors that stay cost the copy, not the requests. */
static void the_other_copy_serves(void **state) {
    (void)state;
    for (uint32_t bad = 0; bad < 2; bad++) {
        struct disk d = new_disk();
        d.n_copies = 2;
        d.faults[0] = everywhere();
        d.faults[0].copy = bad;
        d.faults[0].error = EIO;
        d.n_faults = 1;
        uint64_t dropped = (uint64_t)sl_metric(disk_dropped_copies_total);
        struct sl_engine *e = engine_on(&d, 0);
        expect_clean(e);
        assert_int_equal(sl_metric(disk_dropped_copies_total), dropped + 1);
        sl_engine_destroy(&e);
    }
}

/* ---- what cannot be read ---- */

struct tally {
    uint32_t n_failed, n_clean;
};

/* The four requests together, then each alone: what fails alone fails together, at the same token,
 * and nothing else does. Then the disk is sound again. */
static void check_hard_fault(struct disk *d, uint32_t percent, const char *says,
                             struct tally *tally) {
    struct run *r[N_RUNS];
    struct sl_engine *e = engine_on(d, percent);
    for (uint32_t i = 0; i < N_RUNS; i++) {
        r[i] = make_run(i);
        submit(e, r[i]);
    }
    for (uint32_t i = 0; i < N_RUNS; i++) {
        wait_run(r[i]);
        if (r[i]->result.status == SL_OK) {
            assert_clean(r[i], i);
            tally->n_clean++;
            continue;
        }
        assert_failed(r[i], i, SL_ERR_IO, says);
        assert_non_null(strstr(r[i]->result.err.text, "layer "));
        assert_non_null(strstr(r[i]->result.err.text, "fake0"));
        tally->n_failed++;
    }
    struct sl_err why;
    assert_false(sl_engine_failed(e, &why)); /* a disk may come to itself */
    sl_engine_destroy(&e);

    e = engine_on(d, percent);
    for (uint32_t i = 0; i < N_RUNS; i++) {
        struct run *alone = make_run(i);
        alone->user = d;
        alone->on_finish = i + 1 == N_RUNS ? heal : NULL;
        submit(e, alone);
        wait_run(alone);
        assert_no_wrong_token(alone, i);
        assert_int_equal(alone->result.status, r[i]->result.status);
        assert_int_equal(alone->n, r[i]->n);
        free_run(alone);
        free_run(r[i]);
    }
    expect_clean(e);
    sl_engine_destroy(&e);
}

static void lost_experts_fail_who_needs_them(void **state) {
    (void)state;
    struct tally t = {0, 0};
    for (uint32_t layer = 0; layer < layout.n_layer; layer++)
        for (uint32_t expert = layer % 2; expert < layout.n_expert; expert += EXPERT_STEP) {
            struct disk d = new_disk();
            d.faults[0] = at_expert(layer, expert, expert % 3);
            d.faults[0].error = EIO;
            d.n_faults = 1;
            check_hard_fault(&d, expert % 4 < 2 ? 0 : 50, "Input/output error", &t);
        }
    /* Else it was not tested. */
    assert_true(t.n_failed >= 4 && t.n_clean >= 4);
}

static void a_cut_file_fails_who_needs_its_end(void **state) {
    (void)state;
    struct tally t = {0, 0};
    for (uint32_t layer = 1; layer < layout.n_layer; layer++) {
        struct disk d = new_disk();
        d.faults[0] = at_expert(layer, 5, 2);
        d.faults[0].cut_short = true; /* as if the file ended there */
        d.n_faults = 1;
        check_hard_fault(&d, 0, "ended before its data", &t);
    }
    assert_true(t.n_failed && t.n_clean);
}

/* Everything fails from some token on, for all. */
static void a_dead_disk_fails_all_and_comes_back(void **state) {
    (void)state;
    struct disk d = new_disk();
    d.faults[0] = everywhere();
    d.faults[0].error = EIO;
    struct sl_engine *e = engine_on(&d, 0);
    struct run *r[N_RUNS];
    d.n_faults = 1;
    for (uint32_t i = 0; i < N_RUNS; i++) {
        r[i] = make_run(i);
        r[i]->user = &d;
        r[i]->on_token = inject;
        submit(e, r[i]);
    }
    for (uint32_t i = 0; i < N_RUNS; i++) {
        wait_run(r[i]);
        if (r[i]->result.status != SL_OK)
            assert_failed(r[i], i, SL_ERR_IO, "check the drive");
        assert_true(r[i]->n < N_ANSWER);
        free_run(r[i]);
    }
    /* The next fails too, and heals the disk as it ends; then all is well. */
    struct run *next = make_run(0);
    next->user = &d;
    next->on_finish = heal;
    submit(e, next);
    wait_run(next);
    assert_failed(next, 0, SL_ERR_IO, "check the drive");
    assert_int_equal(next->n, 0);
    free_run(next);
    expect_clean(e);
    sl_engine_destroy(&e);

    /* A prompt of more rows than have logits, all of them lost in the first layer. */
    e = engine_on(&d, 0);
    next = make_run(2);
    next->user = &d;
    next->on_finish = heal;
    submit(e, next);
    wait_run(next);
    assert_failed(next, 2, SL_ERR_IO, "layer 0, expert ");
    free_run(next);
    expect_clean(e);
    sl_engine_destroy(&e);
}

/* ---- cancellation ---- */

static void cancel_now(struct run *r) {
    sl_engine_cancel(r->engine, &r->req);
}

static void cancel_at_4(struct run *r) {
    if (r->n == 4)
        cancel_now(r);
}

/* Canceled in all kinds of moments of loading: by itself after some tokens or in its prompt, and
 * from outside, over many seeds of the disk's order. */
static void cancels_in_mid_load(void **state) {
    (void)state;
    struct disk d = new_disk();
    d.reorder_seed = 3;
    struct sl_engine *e = engine_on(&d, 0);
    for (uint32_t turn = 0; turn < N_STORMS; turn++) {
        struct run *r[N_RUNS];
        for (uint32_t i = 0; i < N_RUNS; i++) {
            r[i] = make_run(i);
            if ((turn + i) % 4 == 1)
                r[i]->on_token = cancel_at_4;
            if ((turn + i) % 4 == 2)
                r[i]->on_progress = cancel_now;
            submit(e, r[i]);
        }
        for (uint32_t i = 0; i < N_RUNS; i++)
            if ((turn + i) % 4 == 3) {
                if (turn % 3)
                    usleep(turn * 50);
                sl_engine_cancel(e, &r[i]->req);
            }
        for (uint32_t i = 0; i < N_RUNS; i++) {
            wait_run(r[i]);
            if ((turn + i) % 4 == 0)
                assert_clean(r[i], i);
            else
                assert_no_wrong_token(r[i], i);
            free_run(r[i]);
        }
    }
    expect_clean(e);
    sl_engine_destroy(&e);
}

/* ---- the rest ---- */

static bool count_positions(void *ctx, uint32_t pos, const float *logits) {
    (void)pos, (void)logits;
    ++*(uint32_t *)ctx;
    return true;
}

static void scoring_says_why(void **state) {
    (void)state;
    struct disk d = new_disk();
    d.faults[0] = everywhere();
    d.faults[0].error = EIO;
    d.n_faults = 1;
    struct sl_engine *e = engine_on(&d, 0);
    uint32_t n = 0, ids[3] = {1, 2, 3};
    assert_int_equal(sl_engine_score(e, ids, 3, count_positions, &n, &test_err), SL_ERR_IO);
    assert_int_equal(n, 0);
    assert_non_null(strstr(test_err.text, "check the drive"));
    struct run *r = make_run(0);
    r->user = &d;
    r->on_finish = heal;
    submit(e, r);
    wait_run(r);
    assert_failed(r, 0, SL_ERR_IO, "check the drive");
    free_run(r);
    assert_ok(sl_engine_score(e, ids, 3, count_positions, &n, &test_err));
    assert_int_equal(n, 3);
    expect_clean(e);
    sl_engine_destroy(&e);
}

static void no_disk_no_engine(void **state) {
    (void)state;
    struct disk d = new_disk();
    d.absent = true;
    struct sl_engine_config c = streamed_config(50);
    c.reader_source = &d.base;
    struct sl_engine *e = NULL;
    assert_int_equal(sl_engine_create(model.model, &c, NULL, &e, &test_err), SL_ERR_IO);
    assert_null(e);
    assert_non_null(strstr(test_err.text, "absent"));
}

/* Random faults, many times: what ends well is right, what fails says why, and afterwards all is
 * well. */
static void storms(void **state) {
    (void)state;
    struct tally t = {0, 0};
    for (uint32_t seed = 1; seed <= N_STORMS; seed++) {
        struct sl_rng rng = {seed};
        struct disk d = new_disk();
        d.reorder_seed = seed;
        d.n_copies = 1 + sl_rng_below(&rng, 2);
        d.n_faults = 4;
        for (uint32_t i = 0; i < 4; i++) {
            struct sl_fake_fault *f = &d.faults[i];
            *f = sl_rng_below(&rng, 4)
                     ? at_expert(sl_rng_below(&rng, layout.n_layer),
                                 sl_rng_below(&rng, layout.n_expert), sl_rng_below(&rng, 3))
                     : everywhere();
            f->copy = sl_rng_below(&rng, d.n_copies);
            f->times = 1 + sl_rng_below(&rng, 12);
            switch (sl_rng_below(&rng, 3)) {
            case 0:
                f->error = EIO;
                break;
            case 1:
                f->cut_short = true;
                f->short_bytes = sl_rng_below(&rng, 40000);
                break;
            default:
                f->delay_ns = sl_rng_u64(&rng) % (2ull * SECOND_NS);
            }
        }
        struct sl_engine *e = engine_on(&d, seed % 3 * 30);
        struct run *r[N_RUNS];
        for (uint32_t i = 0; i < N_RUNS; i++) {
            r[i] = make_run(i);
            submit(e, r[i]);
        }
        for (uint32_t i = 0; i < N_RUNS; i++) {
            wait_run(r[i]);
            assert_no_wrong_token(r[i], i);
            if (r[i]->result.status == SL_OK) {
                assert_clean(r[i], i);
                t.n_clean++;
            } else {
                assert_failed(r[i], i, SL_ERR_IO, "cannot read");
                t.n_failed++;
            }
            free_run(r[i]);
        }
        /* Every fault is used up after a while. */
        uint32_t left = 0;
        for (uint32_t turn = 0; turn < 40; turn++) {
            struct run *one = run_one(e, turn % N_RUNS);
            assert_no_wrong_token(one, turn % N_RUNS);
            left = one->result.status == SL_OK ? left + 1 : 0;
            free_run(one);
            if (left == N_RUNS)
                break;
        }
        assert_int_equal(left, N_RUNS);
        sl_engine_destroy(&e);
    }
    assert_true(t.n_clean > N_STORMS && t.n_failed > 0);
}

int main(void) {
    sl_log_set_level(SL_LOG_ERROR);
    alarm(500); /* a hang is a failure */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passing_faults_do_not_show),
        cmocka_unit_test(the_other_copy_serves),
        cmocka_unit_test(lost_experts_fail_who_needs_them),
        cmocka_unit_test(a_cut_file_fails_who_needs_its_end),
        cmocka_unit_test(a_dead_disk_fails_all_and_comes_back),
        cmocka_unit_test(cancels_in_mid_load),
        cmocka_unit_test(scoring_says_why),
        cmocka_unit_test(no_disk_no_engine),
        cmocka_unit_test(storms),
    };
    return cmocka_run_group_tests(tests, setup_model, teardown_model);
}
