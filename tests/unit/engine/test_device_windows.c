/* Layers with a window keep the end of a text alone: how much memory that takes, planned and really
 * allocated; and the copies of their pages in the host's memory and on disk, from a card. */
#include "tests/support/card.h"
#include "tests/support/folder.h"
#include "tests/support/slow_build.h"
#include "tests/unit/engine/fixture.h"

#include "common/metrics.h"
#include "engine/engine.h"
#include "engine/schedule/schedule.h"
#include "engine/plan/memory_plan.h"

#define PAGE SL_KV_PAGE_TOKENS

static struct card_source source;

/* gpt-oss-20b's layers, as far as KV goes, with heads so much smaller. */
static struct sl_synth_config like_gpt_oss_20b(uint32_t smaller) {
    struct sl_synth_config c = tiny_config("gpt-oss");
    c.n_layer = 24;
    c.n_head = c.n_head_kv = 8 / smaller;
    c.head_dim = 64;
    c.window = 128;
    c.n_ctx = 131072;
    return c;
}

static uint64_t full_bytes(const struct sl_synth_config *sc, const struct sl_memory_plan *p) {
    return (uint64_t)sc->n_layer * sc->n_head_kv * sc->head_dim * 2 * 2 * p->config.parallel *
           p->config.ctx_tokens;
}

static void planned(void **state) {
    (void)state;
    struct sl_synth_config sc = like_gpt_oss_20b(1);
    struct test_model m;
    open_model(&m, &sc);
    for (uint32_t parallel = 1; parallel <= 64; parallel *= 4) {
        struct sl_engine_config c = {.ctx_tokens = 32768, .parallel = parallel};
        struct sl_memory_plan p;
        assert_ok(sl_memory_plan_make(m.model, &c, NULL, &p, &test_err));
        uint64_t full = full_bytes(&sc, &p), shown = 0;
        for (uint32_t i = 0; i < p.n_rows; i++)
            shown += strcmp(p.rows[i].what, "KV cache") == 0 ? p.rows[i].bytes : 0;
        assert_in_range(p.kv_bytes, full / 2, full / 100 * 55);
        assert_int_equal(shown, p.kv_bytes);
        printf("figure: gpt-oss-20b's layers, 32,768 positions, --parallel %u: %.1f %% of full "
               "caches' bytes planned\n",
               parallel, 100.0 * (double)p.kv_bytes / (double)full);
        c.cache_ram_bytes = full; /* pages kept for reuse do not go beyond that */
        assert_ok(sl_memory_plan_make(m.model, &c, NULL, &p, &test_err));
        assert_true(p.cache_pages && p.kv_bytes <= full / 100 * 55 + full);
        c.cache_ram_bytes = 0;
        /* Where nothing would be saved every layer keeps all pages. */
        c.ctx_tokens = 500;
        assert_ok(sl_memory_plan_make(m.model, &c, NULL, &p, &test_err));
        assert_true(!p.n_tails && !p.tail_pages && !p.tail_page_bytes);
        assert_true(p.kv_bytes >= full_bytes(&sc, &p));
    }
    close_model(&m);
}

static void allocated(void **state) {
    (void)state;
    struct sl_synth_config sc = like_gpt_oss_20b(8);
    struct test_model m;
    open_model(&m, &sc);
    for (uint32_t n_cards = 1; n_cards <= 2; n_cards++) {
        card_source_init(&source, &(struct card_config){.n_threads = 1, .n_cards = n_cards});
        struct sl_engine_config c = {.n_threads = 1,
                                     .ctx_tokens = 32768,
                                     .parallel = 1,
                                     .batch_tokens = 512,
                                     .experts = SL_EXPERTS_RESIDENT,
                                     .ram_bytes = (uint64_t)1 << 40,
                                     .device_source = &source.source};
        struct sl_engine *e = new_engine(&m, &c);
        uint64_t full = full_bytes(&sc, &e->plan), kv = source.stats.used_bytes;
        for (uint32_t i = 0; i < e->n_stages; i++) {
            const struct sl_memory_plan *p = e->stages[i].plan;
            assert_int_equal(p->n_tails, e->plan.n_tails);
            kv -= p->weight_bytes + p->activation_bytes + p->scratch_bytes;
        }
        /* Weights and scratch are planned generously: by what they do not take, kv is too small. */
        assert_in_range(kv, full / 100 * 45, full / 100 * 55);
        assert_int_equal(e->plan.kv_bytes, e->stages[0].kv.data_bytes +
                                               (n_cards > 1 ? e->stages[1].kv.data_bytes : 0));
        assert_in_range(e->plan.kv_bytes, full / 2, full / 100 * 55);
        printf("figure: the same with smaller heads, allocated on %u device%s: %.1f %%\n", n_cards,
               n_cards > 1 ? "s" : "", 100.0 * (double)e->plan.kv_bytes / (double)full);
        sl_engine_destroy(&e);
    }
    close_model(&m);
}

/* ---- copies of pages ---- */

static struct run *ask(struct sl_engine *e, const struct test_model *m, uint32_t seed, uint32_t n) {
    struct run *r = new_run(seed, n, m->model->hp.n_vocab, 40);
    r->req.logprobs = r->req.ignore_eog = true;
    submit(e, r);
    wait_run(r);
    assert_int_equal(r->result.status, SL_OK);
    return r;
}

/* What the CPU answers that keeps all pages of every layer, and computes all. */
static void ask_plain(const struct test_model *m, struct run **out, uint32_t n, uint32_t n_prompt) {
    struct sl_engine_config c = {
        .n_threads = 1, .ctx_tokens = 800, .parallel = 1, .batch_tokens = 800};
    struct sl_engine *e = new_engine(m, &c);
    assert_int_equal(e->plan.n_tails, 0);
    for (uint32_t i = 0; i < n; i++)
        out[i] = ask(e, m, 300 + i, n_prompt);
    sl_engine_destroy(&e);
}

/* By way of the host's memory and of files, over one card and two, with windows that need one tail
 * page and three. */
static void copies(void **state) {
    (void)state;
    for (uint32_t turn = BY_BUILD(0, 0, 3); turn < 4; turn++) {
        struct sl_synth_config sc = tiny_config("gpt-oss");
        struct test_model m;
        struct folder folder;
        struct run *want[4];
        sc.window = turn % 2 ? 150 : 40;
        sc.n_layer = 4;
        open_model(&m, &sc);
        open_folder(&folder);
        ask_plain(&m, want, 4, 600);
        card_source_init(&source, &(struct card_config){.n_threads = 1, .n_cards = 1 + turn / 2});
        struct sl_engine_config c = {.n_threads = 1,
                                     .ctx_tokens = 800,
                                     .parallel = 1,
                                     .batch_tokens = 64,
                                     .cache_ram_bytes = 8 << 20,
                                     .experts = SL_EXPERTS_RESIDENT,
                                     .ram_bytes = (uint64_t)1 << 40,
                                     .device_source = &source.source};
        struct sl_engine *e = new_engine(&m, &c);
        assert_true(e->plan.n_tails && e->plan.ram_pages >= 40);
        assert_int_equal(e->plan.tail_pages, turn % 2 ? 3 : 1);
        for (uint32_t i = 0; i < 12; i++) { /* 10 pages each, of which 13 fit the cards */
            int64_t hits = sl_metric(prefix_ram_hit_tokens_total);
            struct run *r = ask(e, &m, 300 + i % 4, 600);
            assert_same_tokens(want[i % 4], r);
            assert_int_equal(r->result.n_cached, i < 4 ? 0 : 576);
            assert_true(i < 4 || sl_metric(prefix_ram_hit_tokens_total) > hits);
            free_run(r);
        }
        sl_engine_destroy(&e);
        c.cache_ram_bytes = 0;
        c.cache_dir = folder.path;
        c.cache_disk_bytes = 64 << 20;
        c.cache_read_always = true;
        for (uint32_t i = 0; i < 8; i++) { /* a restart before each */
            e = new_engine(&m, &c);
            struct run *r = ask(e, &m, 300 + i % 4, 600);
            assert_same_tokens(want[i % 4], r);
            assert_int_equal(r->result.n_cached, i < 4 ? 0 : 576);
            assert_int_equal(sl_tail_n_unused(e->tails), e->plan.n_tails);
            free_run(r);
            sl_engine_destroy(&e);
        }
        for (uint32_t i = 0; i < 4; i++)
            free_run(want[i]);
        close_folder(&folder);
        close_model(&m);
    }
}

/* ---- whose tail pages are ---- */

static void who_goes_first(void **state) {
    (void)state;
    struct sl_tail_pages *t;
    assert_ok(sl_tail_pages_create(4, 10, &t, &test_err));
    uint32_t page[4];
    for (uint32_t i = 0; i < 4; i++) {
        page[i] = sl_tail_take(t);
        sl_tail_attach(t, page[i], i);
        assert_int_equal(sl_tail_of(t, i), page[i]);
    }
    assert_int_equal(sl_tail_take(t), SL_KV_NO_PAGE);
    sl_tail_release(t, page[0], SL_TAIL_END);
    sl_tail_release(t, page[1], SL_TAIL_LIKELY);
    sl_tail_release(t, page[2], SL_TAIL_PASSED);
    sl_tail_release(t, page[3], SL_TAIL_PASSED);
    assert_int_equal(sl_tail_n_unused(t), 4);
    sl_tail_use(t, page[2]); /* used last, and once worth more */
    sl_tail_release(t, page[2], SL_TAIL_LIKELY);
    static const uint32_t order[] = {3, 1, 2, 0};
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(sl_tail_take(t), page[order[i]]);
        assert_int_equal(sl_tail_of(t, order[i]), SL_KV_NO_PAGE);
        assert_false(sl_tail_is_shared(t, page[order[i]]));
    }
    sl_tail_attach(t, page[0], 7);
    sl_tail_release(t, page[0], SL_TAIL_END);
    sl_tail_drop(t, 7); /* free, and taken before others are asked for theirs */
    sl_tail_drop(t, 8); /* has none */
    assert_int_equal(sl_tail_of(t, 7), SL_KV_NO_PAGE);
    assert_int_equal(sl_tail_n_unused(t), 1);
    assert_int_equal(sl_tail_take(t), page[0]);
    sl_tail_pages_destroy(&t);

    /* Ends 1, 2, 3, 4, 6, 8, 12, 16, 24, 32: of them the page before each. */
    static const uint32_t before[] = {0, 1, 2, 3, 5, 7, 11, 15, 23, 31};
    for (uint32_t i = 0, n = 0; i < 32; i++) {
        assert_int_equal(sl_tail_is_likely(i, 1), i == before[n]);
        n += i == before[n];
    }
    assert_true(sl_tail_is_likely(22, 2) && !sl_tail_is_likely(21, 2) && sl_tail_is_likely(0, 64));
}

int main(void) {
    sl_log_set_level(SL_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(planned),
        cmocka_unit_test(allocated),
        cmocka_unit_test(copies),
        cmocka_unit_test(who_goes_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
