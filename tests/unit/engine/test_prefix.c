/* Requests that begin alike: what is computed once, and that nobody can tell by the answer. */
#include "tests/support/hello.h"
#include "tests/support/slow_build.h"
#include "tests/unit/engine/fixture.h"

#include "common/metrics.h"
#include "engine/engine.h"
#include "engine/schedule/schedule.h"
#include "engine/plan/memory_plan.h"

#define PAGE SL_KV_PAGE_TOKENS

static struct test_model tiny;

static int setup(void **state) {
    (void)state;
    struct sl_synth_config c = tiny_config("qwen3moe");
    open_model(&tiny, &c);
    return 0;
}

/* Every other layer keeps the end of a text alone: of one page before a page end, or of three. */
static int setup_window(uint32_t window) {
    struct sl_synth_config c = tiny_config("gpt-oss");
    c.window = window;
    open_model(&tiny, &c);
    struct sl_engine_config config = {.ctx_tokens = 600, .parallel = 2, .batch_tokens = 64};
    struct sl_memory_plan p;
    char name[64];
    assert_ok(sl_engine_plan(tiny.model, &config, &p, name, &test_err));
    assert_true(p.n_tails && p.tail_pages == (window + PAGE - 2) / PAGE);
    return 0;
}

static int setup_short(void **state) {
    (void)state;
    return setup_window(40);
}

static int setup_long(void **state) {
    (void)state;
    return setup_window(130);
}

/* Two layers of three keep a state alone, which lies before one page end. */
static int setup_delta(void **state) {
    (void)state;
    struct sl_synth_config c = tiny_config("qwen35moe");
    open_model(&tiny, &c);
    return 0;
}

/* The same with the inputs of a convolution. */
static int setup_conv(void **state) {
    (void)state;
    struct sl_synth_config c = tiny_config("lfm2moe");
    open_model(&tiny, &c);
    return 0;
}

static int setup_mamba(void **state) {
    (void)state;
    struct sl_synth_config c = tiny_config("granitehybrid");
    open_model(&tiny, &c);
    return 0;
}

static int setup_mamba1(void **state) {
    (void)state;
    struct sl_synth_config c = tiny_config("jamba");
    open_model(&tiny, &c);
    return 0;
}

/* Layers that keep nothing, beside these. */
static int setup_one_part(void **state) {
    (void)state;
    struct sl_synth_config c = tiny_config("nemotron_h_moe");
    open_model(&tiny, &c);
    return 0;
}

/* Three convolutions and the heads' states, beside latents. */
static int setup_kda(void **state) {
    (void)state;
    struct sl_synth_config c = tiny_config("kimi-linear");
    open_model(&tiny, &c);
    return 0;
}

/* Decays with a bound, and latents that are rotated. */
static int setup_bound(void **state) {
    (void)state;
    struct sl_synth_config c = tiny_config("bailingmoe3");
    open_model(&tiny, &c);
    return 0;
}

/* The same behind residual attention, and latents that are not. */
static int setup_kept(void **state) {
    (void)state;
    struct sl_synth_config c = tiny_config("kimi-k3");
    open_model(&tiny, &c);
    return 0;
}

/* Latents in place of keys and values. */
static int setup_latent(void **state) {
    (void)state;
    struct sl_synth_config c = tiny_config("deepseek2");
    open_model(&tiny, &c);
    return 0;
}

/* An indexer's keys beside these, of every second layer. */
static int setup_index(void **state) {
    (void)state;
    struct sl_synth_config c = tiny_config("glm-dsa");
    open_model(&tiny, &c);
    return 0;
}

/* The same beside keys and values, for blocks of positions. */
static int setup_blocks(void **state) {
    (void)state;
    struct sl_synth_config c = tiny_config("minimax-m3");
    open_model(&tiny, &c);
    return 0;
}

/* Latents of a window, and others with an indexer. */
static int setup_note(void **state) {
    (void)state;
    struct sl_synth_config c = tiny_config("dots3note");
    open_model(&tiny, &c);
    return 0;
}

/* Rows of a window, what blocks are made of, and the blocks. */
static int setup_compressed(void **state) {
    (void)state;
    struct sl_synth_config c = tiny_config("deepseek4");
    open_model(&tiny, &c);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    close_model(&tiny);
    return 0;
}

static struct sl_engine *engine_of(uint32_t parallel, uint32_t ctx, uint32_t batch) {
    struct sl_engine_config c = {
        .n_threads = 1, .ctx_tokens = ctx, .parallel = parallel, .batch_tokens = batch};
    return new_engine(&tiny, &c);
}

/* The first `common` tokens are those of every prompt with this seed; own decides the rest. */
static struct run *make(uint32_t seed, uint32_t common, uint32_t own, uint32_t n_prompt,
                        uint32_t max_tokens) {
    struct run *r = new_run(seed, n_prompt, tiny.model->hp.n_vocab, max_tokens);
    struct sl_rng rng = {1000003 * own + 17};
    for (uint32_t i = common; i < n_prompt; i++)
        r->prompt[i] = sl_rng_below(&rng, tiny.model->hp.n_vocab);
    r->req.logprobs = true;
    r->req.ignore_eog = true;
    r->req.sampling.temperature = 0.9f;
    r->req.sampling.seed = own;
    return r;
}

static struct run *answer(struct sl_engine *e, struct run *r) {
    submit(e, r);
    wait_run(r);
    assert_int_equal(r->result.status, SL_OK);
    return r;
}

/* The same request, everything computed. */
static struct run *plain_of(struct sl_engine *e, const struct run *r) {
    struct run *p = new_run(0, 0, tiny.model->hp.n_vocab, r->req.max_tokens);
    memcpy(p->prompt, r->prompt, sizeof p->prompt);
    struct sl_gen_request req = r->req;
    req.prompt = p->prompt;
    req.sink = &p->sink;
    req.engine_private = NULL;
    req.no_cache = true;
    p->req = req;
    return answer(e, p);
}

static void assert_as_plain(struct sl_engine *e, struct run *r) {
    struct run *plain = plain_of(e, r);
    assert_int_equal(plain->result.n_cached, 0);
    assert_same_tokens(plain, r);
    free_run(plain);
}

static void a_prompt_is_computed_once(void **state) {
    (void)state;
    struct sl_engine *e = engine_of(2, 600, 64);
    static const uint32_t lengths[] = {1, 63, 64, 65, 128, 129, 300};
    for (uint32_t i = 0; i < 7; i++) {
        uint32_t n = lengths[i];
        struct run *first = answer(e, make(10 + i, n, i, n, 20));
        assert_int_equal(first->result.n_cached, 0);
        int64_t computed = sl_metric(prompt_tokens_total);
        int64_t hits = sl_metric(prefix_hit_tokens_total);
        struct run *again = answer(e, make(10 + i, n, i, n, 20));
        uint32_t cached = (n - 1) / PAGE * PAGE; /* the last token is always computed */
        assert_int_equal(again->result.n_cached, cached);
        assert_int_equal(again->tokens[0].n_cached, cached);
        assert_int_equal(sl_metric(prompt_tokens_total) - computed, n - cached);
        assert_int_equal(sl_metric(prefix_hit_tokens_total) - hits, cached);
        assert_same_tokens(first, again);
        assert_as_plain(e, again);
        free_run(first);
        free_run(again);
    }
    assert_int_equal(sl_metric(kv_pages_used), 0);
    assert_true(sl_metric(kv_pages_cached) > 0);
    sl_engine_destroy(&e);
}

/* The next turn of a conversation begins with the last answer: its generated rows serve too. */
static void an_answer_is_part_of_the_next_prompt(void **state) {
    (void)state;
    struct sl_engine *e = engine_of(2, 600, 64);
    struct run *first = answer(e, make(30, 100, 1, 100, 150));
    struct run *next = make(30, 100, 1, 300, 10);
    for (uint32_t i = 0; i < 150; i++)
        next->prompt[100 + i] = first->tokens[i].id;
    answer(e, next);
    /* The last generated token was never fed: 249 positions are known, three whole pages. */
    assert_int_equal(next->result.n_cached, 192);
    assert_as_plain(e, next);
    free_run(next);
    free_run(first);
    sl_engine_destroy(&e);
}

/* On a device whose two kinds of rows round differently only prompt rows are handed on. */
static void generated_rows_are_not_handed_on_where_they_differ(void **state) {
    (void)state;
    struct sl_engine *e = engine_of(2, 600, 64);
    set_rows_alike(e, 0, false);
    struct run *first = answer(e, make(31, 100, 1, 100, 150));
    struct run *next = make(31, 100, 1, 300, 10);
    for (uint32_t i = 0; i < 150; i++)
        next->prompt[100 + i] = first->tokens[i].id;
    answer(e, next);
    assert_int_equal(next->result.n_cached, 64);
    struct run *third = answer(e, make(31, 100, 1, 300, 10));
    assert_int_equal(third->result.n_cached, 64);
    free_run(third);
    free_run(next);
    free_run(first);
    sl_engine_destroy(&e);
}

static void texts_part_where_they_differ(void **state) {
    (void)state;
    struct sl_engine *e = engine_of(8, 600, 64);
    free_run(answer(e, make(32, 400, 1, 400, 5)));
    static const uint32_t common[] = {0, 63, 64, 200, 256, 399};
    for (uint32_t i = 0; i < 6; i++) {
        struct run *r = answer(e, make(32, common[i], 50 + i, 400, 20));
        assert_int_equal(r->result.n_cached, common[i] / PAGE * PAGE);
        assert_as_plain(e, r);
        free_run(r);
    }
    sl_engine_destroy(&e);
}

static void no_cache_takes_and_leaves_nothing(void **state) {
    (void)state;
    struct sl_engine *e = engine_of(2, 600, 64);
    int64_t kept = sl_metric(kv_pages_cached);
    struct run *r = make(33, 300, 1, 300, 80);
    r->req.no_cache = true;
    answer(e, r);
    assert_int_equal(sl_metric(kv_pages_cached), kept);
    free_run(r);
    r = answer(e, make(33, 300, 1, 300, 8));
    assert_int_equal(r->result.n_cached, 0);
    free_run(r);
    r = make(33, 300, 1, 300, 8);
    r->req.no_cache = true;
    answer(e, r);
    assert_int_equal(r->result.n_cached, 0);
    free_run(r);
    sl_engine_destroy(&e);
}

/* Choices of one prompt come together: one computes it, the others take over page by page. */
static void choices_share_their_prompt(void **state) {
    (void)state;
    struct sl_engine *e = engine_of(6, 600, 64);
    int64_t computed = sl_metric(prompt_tokens_total);
    struct run *r[6], *slow = make(34, 10, 9, 10, 200);
    submit(e, slow); /* so that the six are seen together, beside one that generates */
    for (uint32_t i = 0; i < 5; i++) {
        r[i] = make(35, 400, 1, 400, 30);
        r[i]->req.sampling.seed = i;
        submit(e, r[i]);
    }
    uint32_t whole = 0;
    for (uint32_t i = 0; i < 5; i++) {
        wait_run(r[i]);
        assert_int_equal(r[i]->result.status, SL_OK);
        whole += r[i]->result.n_cached < 384;
    }
    assert_int_equal(whole, 1);
    wait_run(slow);
    assert_int_equal(sl_metric(prompt_tokens_total) - computed, 10 + 400 + 4 * 16);
    for (uint32_t i = 0; i < 5; i++) {
        assert_as_plain(e, r[i]);
        free_run(r[i]);
    }
    free_run(slow);
    sl_engine_destroy(&e);
}

static void cancel_at_second_slice(struct run *r) {
    if (r->n_progress == 2)
        sl_engine_cancel(r->engine, &r->req);
}

/* Who leads leaves in the middle of its prompt: the others go on from there. */
static void a_leader_that_leaves(void **state) {
    (void)state;
    struct sl_engine *e = engine_of(4, 600, 50);
    struct run *lead = make(36, 500, 1, 500, 20), *r[3];
    lead->on_progress = cancel_at_second_slice;
    submit(e, lead);
    for (uint32_t i = 0; i < 3; i++) {
        r[i] = make(36, 500, 1, 500, 20);
        submit(e, r[i]);
    }
    wait_run(lead);
    assert_int_equal(lead->result.reason, SL_FINISH_CANCELED);
    for (uint32_t i = 0; i < 3; i++) {
        wait_run(r[i]);
        assert_as_plain(e, r[i]);
        free_run(r[i]);
    }
    free_run(lead);
    assert_int_equal(sl_metric(kv_pages_used), 0);
    sl_engine_destroy(&e);
}

/* Within half a minute, so that a run that nobody goes on with is a failure and not a hang. */
static bool finishes(struct run *r) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 30;
    int rc = 0;
    pthread_mutex_lock(&r->lock);
    while (!r->n_finish && rc == 0)
        rc = pthread_cond_timedwait(&r->changed, &r->lock, &until);
    bool finished = r->n_finish > 0;
    pthread_mutex_unlock(&r->lock);
    return finished;
}

/* Its two are submitted between two steps, so that they are admitted together. */
static void submit_both(struct run *first) {
    struct run **r = first->user;
    submit(first->engine, r[0]);
    submit(first->engine, r[1]);
}

/* Who follows goes on when who led has nothing left to do after that step, and nobody else stirs
 * the scheduler: it has had all its tokens, or its client does not read. */
static void a_leader_that_needs_no_other_step(void **state) {
    (void)state;
    for (uint32_t parks = 0; parks < 2; parks++) {
        struct sl_engine *e = engine_of(2, 600, 256);
        struct run *r[2] = {make(37, 200, 1, 200, 1 + 4 * parks), make(37, 200, 1, 200, 5)};
        struct run *first = make(38, 10, 1, 10, 1);
        first->user = r;
        first->on_finish = submit_both;
        r[0]->hold_at = parks;
        submit(e, first);
        assert_true(finishes(r[1]));
        assert_int_equal(r[1]->result.n_cached, 192);
        if (parks) {
            r[0]->hold_at = 0;
            sl_engine_resume(e, &r[0]->req);
        }
        wait_run(r[0]);
        wait_run(first);
        assert_as_plain(e, r[0]);
        assert_as_plain(e, r[1]);
        free_run(r[0]);
        free_run(r[1]);
        free_run(first);
        sl_engine_destroy(&e);
    }
}

/* A pool of little more than what runs: old texts give way, and come back right. */
static void old_texts_give_way(void **state) {
    (void)state;
    struct sl_engine *e = engine_of(2, 300, 64); /* 10 pages */
    int64_t evicted = sl_metric(prefix_evictions_total);
    for (uint32_t round = 0; round < 3; round++)
        for (uint32_t i = 0; i < 5; i++) {
            struct run *r = answer(e, make(40 + i, 200, i, 270, 20));
            assert_as_plain(e, r);
            free_run(r);
        }
    assert_true(sl_metric(prefix_evictions_total) - evicted > 20);
    /* What was used last is still there. */
    struct run *r = answer(e, make(44, 200, 4, 270, 20));
    assert_int_equal(r->result.n_cached, 256);
    free_run(r);
    sl_engine_destroy(&e);
}

/* Pages beyond the sessions' keep more. */
static void more_pages_keep_more(void **state) {
    (void)state;
    struct sl_engine_config c = {
        .n_threads = 1, .ctx_tokens = 300, .parallel = 1, .batch_tokens = 64};
    c.cache_ram_bytes = 4u << 20;
    struct sl_engine *e = new_engine(&tiny, &c);
    assert_true(e->plan.cache_pages > 30);
    for (uint32_t round = 0; round < 2; round++)
        for (uint32_t i = 0; i < 6; i++) {
            struct run *r = answer(e, make(50 + i, 200, i, 270, 5));
            assert_int_equal(r->result.n_cached, round ? 256 : 0);
            free_run(r);
        }
    sl_engine_destroy(&e);
}

/* Readers that stop take their pages back when they go on. */
static void parked_sessions_find_their_text_again(void **state) {
    (void)state;
    struct sl_engine *e = engine_of(1, 600, 64);
    struct run *slow = make(60, 200, 1, 200, 200);
    slow->hold_at = 150;
    submit(e, slow);
    wait_parked(slow);
    struct run *quick = answer(e, make(61, 100, 1, 100, 5)); /* takes the slot */
    int64_t rows = sl_metric(step_rows_total);
    pthread_mutex_lock(&slow->lock);
    slow->hold_at = 0;
    slow->parked = false;
    pthread_mutex_unlock(&slow->lock);
    sl_engine_resume(e, &slow->req);
    wait_run(slow);
    /* 51 more tokens, and of the 348 positions before less than a page again. */
    assert_true(sl_metric(step_rows_total) - rows < 51 + (int)PAGE);
    assert_int_equal(slow->result.n_cached, 0);
    assert_as_plain(e, slow);
    free_run(slow);
    free_run(quick);
    sl_engine_destroy(&e);
}

/* Many texts with common beginnings on few pages, with cancels and slow readers among them. */
static void crowds_agree_with_loners(void **state) {
    (void)state;
    struct sl_engine *e = engine_of(4, 320, 48);
    struct sl_rng rng = {5};
    for (uint32_t round = 0; round < BY_BUILD(8, 4, 2); round++) {
        struct run *r[8];
        bool cancel[8];
        for (uint32_t i = 0; i < 8; i++) {
            uint32_t n = 1 + sl_rng_below(&rng, 280);
            r[i] = make(70 + sl_rng_below(&rng, 2), sl_rng_below(&rng, n + 1),
                        sl_rng_below(&rng, 3), n, 1 + sl_rng_below(&rng, 39));
            r[i]->park_every = sl_rng_below(&rng, 3) ? 0 : 5;
            cancel[i] = sl_rng_below(&rng, 4) == 0;
            r[i]->on_progress = cancel[i] ? cancel_at_second_slice : NULL;
            submit(e, r[i]);
        }
        for (uint32_t i = 0; i < 8; i++)
            wait_run(r[i]);
        for (uint32_t i = 0; i < 8; i++) {
            r[i]->on_progress = NULL;
            if (r[i]->result.status == SL_OK)
                assert_as_plain(e, r[i]);
            else
                assert_true(cancel[i]);
            free_run(r[i]);
        }
    }
    assert_int_equal(sl_metric(kv_pages_used), 0);
    sl_engine_destroy(&e);
}

static const struct CMUnitTest all[] = {
    cmocka_unit_test(a_prompt_is_computed_once),
    cmocka_unit_test(an_answer_is_part_of_the_next_prompt),
    cmocka_unit_test(generated_rows_are_not_handed_on_where_they_differ),
    cmocka_unit_test(texts_part_where_they_differ),
    cmocka_unit_test(no_cache_takes_and_leaves_nothing),
    cmocka_unit_test(choices_share_their_prompt),
    cmocka_unit_test(a_leader_that_leaves),
    cmocka_unit_test(a_leader_that_needs_no_other_step),
    cmocka_unit_test(old_texts_give_way),
    cmocka_unit_test(more_pages_keep_more),
    cmocka_unit_test(parked_sessions_find_their_text_again),
    cmocka_unit_test(crowds_agree_with_loners),
};
/* What goes through a state's own sizes. */
static const struct CMUnitTest by_kind[] = {
    cmocka_unit_test(a_prompt_is_computed_once),
    cmocka_unit_test(an_answer_is_part_of_the_next_prompt),
    cmocka_unit_test(parked_sessions_find_their_text_again),
};

static int run_kind(CMFixtureFunction setup_kind) {
    return UNDER_ASAN || BEHIND_BYTES ? cmocka_run_group_tests(by_kind, setup_kind, teardown)
                                      : cmocka_run_group_tests(all, setup_kind, teardown);
}

int main(void) {
    sl_log_set_level(SL_LOG_ERROR);
    int failed = cmocka_run_group_tests(all, setup_short, teardown);
    if (UNDER_TSAN) /* the same threads */
        return failed;
    failed += cmocka_run_group_tests(all, setup, teardown);
    failed += run_kind(setup_long);
    failed += cmocka_run_group_tests(all, setup_delta, teardown);
    failed += run_kind(setup_conv);
    failed += run_kind(setup_mamba);
    failed += run_kind(setup_mamba1);
    failed += run_kind(setup_one_part);
    failed += run_kind(setup_kda);
    failed += run_kind(setup_bound);
    failed += run_kind(setup_kept);
    failed += run_kind(setup_latent);
    failed += run_kind(setup_index);
    failed += run_kind(setup_blocks);
    failed += run_kind(setup_note);
    failed += run_kind(setup_compressed);
    return failed;
}
