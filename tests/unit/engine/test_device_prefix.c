/* Prefixes on a device whose memory the host cannot follow: pages go to the folder and come back by
 * copies, and answers are the CPU's. */
#include "tests/support/card.h"
#include "tests/support/folder.h"
#include "tests/support/hello.h"
#include "tests/unit/engine/fixture.h"

#include "common/metrics.h"
#include "engine/engine.h"
#include "engine/schedule/schedule.h"

static struct test_model tiny;
static struct folder folder;
static struct card_source source;

static int setup(void **state) {
    (void)state;
    struct sl_synth_config c = tiny_config("qwen3moe");
    open_model(&tiny, &c);
    open_folder(&folder);
    card_source_init(&source, &(struct card_config){.n_threads = 1});
    return 0;
}

static int teardown(void **state) {
    (void)state;
    close_folder(&folder);
    close_model(&tiny);
    return 0;
}

static struct sl_engine *start(bool on_card, bool rows_alike) {
    struct sl_engine_config c = {.n_threads = 1,
                                 .ctx_tokens = 600,
                                 .parallel = 3,
                                 .batch_tokens = 64,
                                 .cache_dir = on_card ? folder.path : NULL,
                                 .cache_disk_bytes = 64 << 20,
                                 .cache_read_always = true,
                                 .experts = SL_EXPERTS_RESIDENT,
                                 .ram_bytes = (uint64_t)1 << 40,
                                 .device_source = on_card ? &source.source : NULL};
    struct sl_engine *e = new_engine(&tiny, &c);
    set_rows_alike(e, 0, rows_alike);
    return e;
}

static struct run *ask(struct sl_engine *e, const struct run *before, uint32_t n_prompt,
                       uint32_t n_answer) {
    struct run *r = new_run(77, n_prompt, tiny.model->hp.n_vocab, n_answer);
    for (uint32_t i = 0; before && i < before->n && 150 + i < n_prompt; i++)
        r->prompt[150 + i] = before->tokens[i].id;
    r->req.logprobs = r->req.ignore_eog = true;
    submit(e, r);
    wait_run(r);
    assert_int_equal(r->result.status, SL_OK);
    return r;
}

static void pages_of_a_card(void **state) {
    (void)state;
    struct sl_engine *cpu = start(false, true);
    struct run *want = ask(cpu, NULL, 150, 120), *want_next = ask(cpu, want, 400, 20);
    sl_engine_destroy(&cpu);
    for (uint32_t alike = 0; alike < 2; alike++) {
        /* Of the first answer's text, only its prompt's pages where the rows are not alike. */
        uint32_t known = alike ? 256 : 128;
        for (uint32_t pass = 0; pass < 3; pass++) {
            struct sl_engine *e = start(true, alike);
            int64_t disk = sl_metric(prefix_disk_hit_tokens_total);
            struct run *r = ask(e, NULL, 150, 120);
            assert_same_tokens(want, r);
            assert_int_equal(r->result.n_cached, pass ? 128 : 0);
            free_run(r);
            r = ask(e, want, 400, 20);
            assert_same_tokens(want_next, r);
            assert_int_equal(r->result.n_cached, pass ? 384 : known);
            free_run(r);
            disk = sl_metric(prefix_disk_hit_tokens_total) - disk;
            assert_true(pass ? disk > 0 : disk == 0);
            assert_int_equal(sl_metric(kv_pages_used), 0);
            sl_engine_destroy(&e);
        }
        close_folder(&folder);
        assert_int_equal(mkdir(folder.path, 0700), 0);
    }
    free_run(want);
    free_run(want_next);
}

/* What the card gives up for others stays in the host's memory, as far as that goes. */
static void pages_of_a_card_in_ram(void **state) {
    (void)state;
    struct sl_engine_config c = {.n_threads = 1,
                                 .ctx_tokens = 300,
                                 .parallel = 1,
                                 .batch_tokens = 64,
                                 .cache_ram_bytes = 2 << 20,
                                 .experts = SL_EXPERTS_RESIDENT,
                                 .ram_bytes = (uint64_t)1 << 40,
                                 .device_source = &source.source};
    struct sl_engine *e = new_engine(&tiny, &c);
    uint32_t room = e->plan.ram_pages;
    assert_true(!e->plan.cache_pages && room >= 20 && e->plan.prefix_ram_bytes <= 2 << 20);
    struct run *want[6];
    for (uint32_t i = 0; i < 6; i++) { /* 4 pages each, of which 5 fit the card */
        want[i] = new_run(500 + i, 270, tiny.model->hp.n_vocab, 20);
        want[i]->req.logprobs = want[i]->req.ignore_eog = true;
        submit(e, want[i]);
        wait_run(want[i]);
    }
    int64_t hits = sl_metric(prefix_ram_hit_tokens_total);
    for (uint32_t round = 0; round < 3; round++)
        for (uint32_t i = 0; i < 6; i++) {
            struct run *r = new_run(500 + i, 270, tiny.model->hp.n_vocab, 20);
            r->req.logprobs = r->req.ignore_eog = true;
            submit(e, r);
            wait_run(r);
            assert_same_tokens(want[i], r);
            if (room >= 24)
                assert_int_equal(r->result.n_cached, 256);
            free_run(r);
        }
    assert_true(sl_metric(prefix_ram_hit_tokens_total) - hits >= 6 * 256);
    assert_int_equal(sl_metric(kv_pages_used), 0);
    for (uint32_t i = 0; i < 6; i++)
        free_run(want[i]);
    sl_engine_destroy(&e);
    c.cache_ram_bytes =
        60000; /* room for one or two: nothing goes wrong when they are pushed out */
    e = new_engine(&tiny, &c);
    assert_in_range(e->plan.ram_pages, 1, 2);
    for (uint32_t i = 0; i < 12; i++) {
        struct run *r = new_run(500 + i % 3, 270, tiny.model->hp.n_vocab, 20);
        submit(e, r);
        wait_run(r);
        assert_int_equal(r->result.status, SL_OK);
        free_run(r);
    }
    sl_engine_destroy(&e);
}

/* A card that is short of memory for a moment refuses copies of pages: what was to be copied is
 * computed, or not kept, and nobody's answer ends. Where an entry of the page table does not
 * arrive, that session ends and the others go on. */
static void refused_copies(void **state) {
    (void)state;
    struct sl_engine *e = start(true, true);
    uint64_t page = e->stages->kv.layers[0].k_page_bytes;
    struct run *want = ask(e, NULL, 150, 120);
    sl_engine_destroy(&e); /* written on the way */

    source.config.refuse_up_bytes = page;
    e = start(true, true);
    struct run *r = ask(e, NULL, 150, 120);
    assert_same_tokens(want, r);
    assert_int_equal(r->result.n_cached, 0);
    free_run(r);
    source.config.refuse_up_bytes = 0;
    sl_engine_destroy(&e);

    close_folder(&folder);
    assert_int_equal(mkdir(folder.path, 0700), 0);
    source.config.refuse_down_bytes = page;
    e = start(true, true);
    int64_t dropped = sl_metric(prefix_disk_dropped_total);
    r = ask(e, NULL, 150, 120);
    assert_same_tokens(want, r);
    free_run(r);
    r = ask(e, NULL, 150, 120); /* they are in the tree all the same */
    assert_int_equal(r->result.n_cached, 128);
    free_run(r);
    sl_engine_destroy(&e);
    assert_true(sl_metric(prefix_disk_dropped_total) > dropped);
    source.config.refuse_down_bytes = 0;

    /* One is in mid-answer; another's beginning is known, but its entries are refused. */
    e = start(true, true);
    free_run(ask(e, NULL, 150, 2));
    struct run *first = new_run(900, 70, tiny.model->hp.n_vocab, 200);
    struct run *second = new_run(77, 150, tiny.model->hp.n_vocab, 20);
    first->req.ignore_eog = true;
    first->hold_at = 5;
    submit(e, first);
    wait_parked(first);
    source.config.refuse_up_bytes = 3 * sizeof(uint32_t);
    submit(e, second);
    wait_run(second);
    assert_int_equal(second->result.status, SL_ERR_DEVICE_OOM);
    assert_non_null(strstr(second->result.err.text, "page table"));
    source.config.refuse_up_bytes = 0;
    free_run(second);
    first->hold_at = 0;
    wait_run(first);
    assert_int_equal(first->result.status, SL_OK);
    assert_int_equal(first->n, 200);
    free_run(first);
    free_run(ask(e, NULL, 150, 20));
    assert_int_equal(sl_metric(kv_pages_used), 0);
    sl_engine_destroy(&e);
    free_run(want);
}

int main(void) {
    sl_log_set_level(SL_LOG_ERROR);
    const struct CMUnitTest tests[] = {cmocka_unit_test(pages_of_a_card),
                                       cmocka_unit_test(pages_of_a_card_in_ram),
                                       cmocka_unit_test(refused_copies)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
