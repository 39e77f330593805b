/* Drafts decide the speed, never the answer: whole runs with tokens that are drafted, rightly
 * and wrongly, compared bit for bit with runs without. Drafts come from a source that knows the
 * answer and errs as often as it is told to. */
#include "tests/support/card.h"
#include "tests/support/folder.h"
#include "tests/support/seq_hash.h"
#include "tests/support/slow_build.h"
#include "tests/unit/engine/draft_requests.h"

#include "common/metrics.h"

/* ---- the source ---- */

struct source {
    struct sl_draft_source base; /* first */
    struct run *const *answers;  /* [N_RUNS] as they will be */
    uint32_t right_percent, n_vocab;
    uint32_t n_asked;
};

static const struct run *whose(const struct source *source, const uint32_t *history, uint32_t n) {
    for (uint32_t i = 0; i < N_RUNS; i++) {
        const struct run *r = source->answers[i];
        if (r->req.n_prompt <= n &&
            memcmp(r->prompt, history, r->req.n_prompt * sizeof *history) == 0)
            return r;
    }
    return NULL;
}

static uint32_t propose(const struct sl_draft_source *s, const uint32_t *history,
                        uint32_t n_history, uint32_t most, uint32_t *out_ids) {
    struct source *source = (struct source *)(uintptr_t)s;
    const struct run *r = whose(source, history, n_history);
    source->n_asked++;
    assert_non_null(r);
    for (uint32_t i = 0; i < most; i++) {
        uint32_t at = n_history - r->req.n_prompt + i;
        struct sl_rng rng = {n_history * 31 + i};
        bool right = at < r->n && sl_rng_below(&rng, 100) < source->right_percent;
        out_ids[i] = right ? r->tokens[at].id : sl_rng_below(&rng, source->n_vocab);
    }
    return most;
}

/* Runs all requests with drafts and compares. Returns how many drafts were right. */
static uint32_t compare(const struct test_model *m, struct sl_engine_config c, uint32_t right,
                        struct run *const *want, uint32_t park_every) {
    struct source source = {{propose}, want, right, m->model->hp.n_vocab, 0};
    struct run *have[N_RUNS];
    uint32_t n_accepted = 0;
    c.draft_source = &source.base;
    make_all(have, source.n_vocab);
    for (uint32_t i = 0; i < N_RUNS; i++)
        have[i]->park_every = park_every ? park_every + i : 0;
    struct sl_engine *e = new_engine(m, &c);
    finish_all(e, have);
    sl_engine_destroy(&e);
    for (uint32_t i = 0; i < N_RUNS; i++) {
        assert_same_tokens(want[i], have[i]);
        assert_int_equal(want[i]->result.reason, have[i]->result.reason);
        assert_int_equal(want[i]->result.n_predicted, have[i]->result.n_predicted);
        assert_true(have[i]->result.n_draft_accepted <= have[i]->result.n_draft);
        assert_true(have[i]->result.n_draft_accepted < have[i]->n);
        n_accepted += have[i]->result.n_draft_accepted;
    }
    free_all(have);
    return n_accepted;
}

/* How often, how many at once, in which company. */
static void compare_ways(const struct sl_synth_config *sc, struct sl_engine_config c, bool drafts) {
    struct test_model m;
    struct run *want[N_RUNS];
    open_model(&m, sc);
    make_all(want, m.model->hp.n_vocab);
    struct sl_engine *e = new_engine(&m, &c);
    finish_all(e, want);
    sl_engine_destroy(&e);
    uint32_t n_tokens = 0;
    for (uint32_t i = 0; i < N_RUNS; i++)
        n_tokens += want[i]->n;
    c.draft_tokens = 1;
    uint32_t some = compare(&m, c, 70, want, 0);
    c.draft_tokens = 2;
    uint32_t none = compare(&m, c, 0, want, 0);
    uint32_t all = compare(&m, c, 100, want, 0);
    (void)compare(&m, c, 70, want, 3);
    c.draft_tokens = SL_MAX_DRAFT;
    c.parallel = 1;
    uint32_t many = compare(&m, c, 100, want, 0);
    c.parallel = 5;
    c.batch_tokens = 8; /* less room than there are drafts */
    (void)compare(&m, c, 90, want, 5);
    if (drafts) {
        assert_true(some > n_tokens / 5 && some < n_tokens / 2);
        assert_true(all > n_tokens / 2 && many > all);
        assert_true(none < n_tokens / 10);
    } else {
        assert_int_equal(some + none + all + many, 0);
    }
    free_all(want);
    close_model(&m);
}

static void every_kind(void **state) {
    (void)state;
    static const char *const archs[] = {"qwen3moe", "glm4moe", "deepseek2", "gpt-oss",
                                        "gemma4",   "afmoe",   "qwen3",     "mimo2"};
    for (size_t i = 0; i < BY_BUILD(sizeof archs / sizeof *archs, 3, 3); i++) {
        struct sl_synth_config sc = tiny_config(archs[i]);
        compare_ways(&sc, config(), true);
    }
}

/* States that every row replaces: delta nets of three kinds, state spaces of two, convolutions. In
 * contexts that are short enough for a state a page, and longer ones. */
static void every_state(void **state) {
    (void)state;
    static const char *const archs[] = {"qwen35moe",     "kimi-linear", "lfm2moe",
                                        "granitehybrid", "jamba",       "qwen3next",
                                        "bailingmoe3",   "qwen35",      "nemotron_h_moe"};
    for (size_t i = 0; i < BY_BUILD(sizeof archs / sizeof *archs, 3, 2); i++) {
        struct sl_synth_config sc = tiny_config(archs[i]);
        struct sl_engine_config c = config();
        c.ctx_tokens = i % 2 ? 1000 : c.ctx_tokens;
        compare_ways(&sc, c, true);
    }
}

static struct seq_hash hash;

/* A running hash over the rows beside keys and values of all positions finds the row before each.
 * Beside those of a window, which are in the same pages, no draft goes into a step. */
static void states_beside(void **state) {
    (void)state;
    static const char *const archs[] = {"qwen3moe", "gpt-oss"};
    for (uint32_t i = 0; i < 2; i++) {
        struct sl_synth_config sc = tiny_config(archs[i]);
        struct sl_engine_config c = config();
        seq_hash_init(&hash, sc.n_layer);
        c.ctx_tokens = 1000;
        c.seq_source = &hash.source;
        compare_ways(&sc, c, !i);
        seq_hash_release(&hash);
    }
}

static void quantised(void **state) {
    (void)state;
    struct sl_synth_config sc = tiny_config("qwen3moe");
    sc.n_embd = 256;
    sc.n_ff_expert = 256;
    sc.attn = sc.ffn = sc.gate = sc.up = (struct sl_synth_types){{SL_DTYPE_Q4_K}, 1};
    sc.down = (struct sl_synth_types){{SL_DTYPE_Q6_K}, 1};
    struct sl_engine_config c = config();
    c.n_threads = 2;
    c.kv_dtype = SL_DTYPE_Q8_0;
    compare_ways(&sc, c, true);
}

/* Experts that pass through slots. */
static void streamed(void **state) {
    (void)state;
    struct sl_synth_config sc = tiny_config("glm4moe");
    struct sl_engine_config c = config();
    c.experts = SL_EXPERTS_STREAMED;
    compare_ways(&sc, c, true);
}

/* On a card whose memory the host cannot follow, and over two of them. */
static void cards(void **state) {
    (void)state;
    static const char *const archs[] = {"gpt-oss", "qwen3moe"};
    for (uint32_t n = 1; n < 3; n++) {
        struct sl_synth_config sc = tiny_config(archs[n - 1]);
        struct sl_engine_config c = config();
        static struct card_source source;
        card_source_init(&source, &(struct card_config){.n_threads = 1, .n_cards = n});
        c.ram_bytes = c.vram_bytes = (uint64_t)1 << 34;
        c.io = SL_EXPERTS_IO_PREAD;
        c.experts = SL_EXPERTS_STREAMED;
        c.device_source = &source.source;
        c.split = n > 1 ? "1,2" : NULL;
        compare_ways(&sc, c, true);
    }
}

/* ---- what a draft must not touch ---- */

/* Answers end where they end: at a token that ends them, in the midst of what was drafted. */
static void ends(void **state) {
    (void)state;
    struct test_model m;
    struct sl_synth_config sc = tiny_config("qwen3moe");
    open_model(&m, &sc);
    struct run *want[N_RUNS];
    struct sl_engine_config c = config();
    make_all(want, sc.n_vocab);
    struct sl_engine *e = new_engine(&m, &c);
    finish_all(e, want);
    sl_engine_destroy(&e);
    struct source source = {{propose}, want, 100, sc.n_vocab, 0};
    c.draft_tokens = 3;
    c.draft_source = &source.base;
    e = new_engine(&m, &c);
    for (uint32_t at = 1; at < 12; at++) {
        uint32_t first = at; /* where that token stands first */
        for (uint32_t i = 0; i < at; i++)
            if (want[2]->tokens[i].id == want[2]->tokens[at].id && i < first)
                first = i;
        struct run *r = make(2, sc.n_vocab);
        r->req.ignore_eog = false;
        r->req.eog = &want[2]->tokens[at].id;
        r->req.n_eog = 1;
        submit(e, r);
        wait_run(r);
        assert_int_equal(r->result.reason, SL_FINISH_STOP);
        assert_int_equal(r->n, first + 1);
        free_run(r);
        r = make(2, sc.n_vocab);
        r->req.max_tokens = at;
        submit(e, r);
        wait_run(r);
        assert_int_equal(r->result.reason, SL_FINISH_LENGTH);
        assert_int_equal(r->n, at);
        free_run(r);
    }
    sl_engine_destroy(&e);
    free_all(want);
    close_model(&m);
}

static void cancel_at_six(struct run *r) {
    if (r->n == 6)
        sl_engine_cancel(r->engine, &r->req);
}

/* Nothing is offered to who has canceled, though it was drafted and is right. */
static void canceled(void **state) {
    (void)state;
    struct test_model m;
    struct sl_synth_config sc = tiny_config("qwen3moe");
    open_model(&m, &sc);
    struct run *want[N_RUNS];
    struct sl_engine_config c = config();
    make_all(want, sc.n_vocab);
    struct sl_engine *e = new_engine(&m, &c);
    finish_all(e, want);
    sl_engine_destroy(&e);
    struct source source = {{propose}, want, 100, sc.n_vocab, 0};
    c.draft_tokens = 4;
    c.draft_source = &source.base;
    e = new_engine(&m, &c);
    struct run *r = make(2, sc.n_vocab);
    r->on_token = cancel_at_six;
    submit(e, r);
    wait_run(r);
    assert_int_equal(r->result.reason, SL_FINISH_CANCELED);
    assert_int_equal(r->n, 6);
    free_run(r);
    sl_engine_destroy(&e);
    free_all(want);
    close_model(&m);
}

/* What draft rows have left behind is in no page that others take: texts that go on from an
 * answer, from memory and from disk, with drafts and without. */
static void pages(void **state) {
    (void)state;
    struct test_model m;
    struct folder folder;
    struct sl_synth_config sc = tiny_config("qwen3moe");
    open_model(&m, &sc);
    open_folder(&folder);
    struct run *want[N_RUNS], *had[N_RUNS];
    struct sl_engine_config c = config();
    make_all(want, sc.n_vocab);
    struct sl_engine *e = new_engine(&m, &c);
    finish_all(e, want);
    sl_engine_destroy(&e);
    /* A second turn after each of the first three answers, by an engine without any cache. */
    struct run *turn[3];
    e = new_engine(&m, &c);
    for (uint32_t i = 0; i < 3; i++) {
        const struct run *w = want[i];
        turn[i] = new_run(5, w->req.n_prompt + w->n + 3, sc.n_vocab, 12);
        memcpy(turn[i]->prompt, w->prompt, w->req.n_prompt * sizeof w->prompt[0]);
        for (uint32_t j = 0; j < w->n; j++)
            turn[i]->prompt[w->req.n_prompt + j] = w->tokens[j].id;
        turn[i]->req.logprobs = turn[i]->req.ignore_eog = turn[i]->req.no_cache = true;
        submit(e, turn[i]);
        wait_run(turn[i]);
        assert_int_equal(turn[i]->result.status, SL_OK);
    }
    sl_engine_destroy(&e);
    for (uint32_t right = 0; right <= 100; right += 50) {
        struct source source = {{propose}, want, right, sc.n_vocab, 0};
        c.draft_tokens = 3;
        c.draft_source = &source.base;
        c.cache_dir = folder.path;
        c.cache_read_always = true;
        for (uint32_t again = 0; again < 2; again++) { /* the second time from disk */
            e = new_engine(&m, &c);
            if (!again) {
                make_all(had, sc.n_vocab);
                finish_all(e, had);
                free_all(had);
            }
            for (uint32_t i = 0; i < 3; i++) {
                struct run *r = new_run(5, turn[i]->req.n_prompt, sc.n_vocab, 12);
                memcpy(r->prompt, turn[i]->prompt, sizeof r->prompt);
                r->req.logprobs = r->req.ignore_eog = true;
                submit(e, r);
                wait_run(r);
                assert_int_equal(r->result.status, SL_OK);
                if (r->req.n_prompt > 65)
                    assert_true(r->result.n_cached >= 64);
                assert_same_tokens(turn[i], r);
                free_run(r);
            }
            sl_engine_destroy(&e);
        }
        close_folder(&folder);
        open_folder(&folder);
    }
    for (uint32_t i = 0; i < 3; i++)
        free_run(turn[i]);
    free_all(want);
    close_folder(&folder);
    close_model(&m);
}

/* Every draft is counted, and every one that was right. */
static void counted(void **state) {
    (void)state;
    struct test_model m;
    struct sl_synth_config sc = tiny_config("qwen3moe");
    open_model(&m, &sc);
    struct run *want[N_RUNS], *have[N_RUNS];
    struct sl_engine_config c = config();
    make_all(want, sc.n_vocab);
    struct sl_engine *e = new_engine(&m, &c);
    finish_all(e, want);
    sl_engine_destroy(&e);
    struct source source = {{propose}, want, 60, sc.n_vocab, 0};
    c.draft_tokens = 2;
    c.draft_source = &source.base;
    make_all(have, sc.n_vocab);
    int64_t drafted = sl_metric(draft_tokens_total), accepted = sl_metric(draft_accepted_total);
    e = new_engine(&m, &c);
    finish_all(e, have);
    sl_engine_destroy(&e);
    for (uint32_t i = 0; i < N_RUNS; i++) {
        drafted += have[i]->result.n_draft;
        accepted += have[i]->result.n_draft_accepted;
    }
    assert_int_equal(sl_metric(draft_tokens_total), drafted);
    assert_int_equal(sl_metric(draft_accepted_total), accepted);
    free_all(have);
    free_all(want);
    close_model(&m);
}

int main(void) {
    sl_log_set_level(SL_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind),    cmocka_unit_test(every_state),
        cmocka_unit_test(states_beside), cmocka_unit_test(quantised),
        cmocka_unit_test(streamed),      cmocka_unit_test(cards),
        cmocka_unit_test(ends),          cmocka_unit_test(canceled),
        cmocka_unit_test(pages),         cmocka_unit_test(counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
