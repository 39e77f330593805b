/* A card that runs out of memory, fails a copy or is lost: the engine says so, gives everything
 * back and hangs nowhere. */
#include "tests/support/card.h"
#include "tests/unit/engine/fixture.h"

#include "common/metrics.h"
#include "engine/engine.h"
#include "engine/schedule/schedule.h"
#include "engine/experts/expert_tiers.h"

#if defined(__SANITIZE_THREAD__)
#define ALARM_SECONDS 1200
#else
#define ALARM_SECONDS 300
#endif
#define MIB      ((uint64_t)1 << 20)
#define N_RUNS   3u
#define N_ANSWER 6u

static struct test_model model;
static uint32_t n_cards = 1; /* that the layers are divided over */
static bool with_lane;       /* the CPU computes experts too */
static uint32_t faulty;      /* the one that faults hit, from 1; 0 = each */

static int open_subject(void **state) {
    (void)state;
    struct sl_synth_config c = tiny_config("qwen3moe");
    c.n_embd = c.n_ff_expert = 256; /* so that experts are most of it */
    open_model(&model, &c);
    return 0;
}

static int close_subject(void **state) {
    (void)state;
    close_model(&model);
    return 0;
}

static struct sl_engine_config config_for(struct card_source *source, bool streamed) {
    struct sl_engine_config c = {.n_threads = 1,
                                 .ctx_tokens = 128,
                                 .parallel = 2,
                                 .batch_tokens = 32,
                                 .queue_max = 8,
                                 .ram_bytes = 1024 * MIB,
                                 .vram_bytes = 1024 * MIB,
                                 .io = SL_EXPERTS_IO_PREAD,
                                 .no_warm_up = true,
                                 .device_source = &source->source,
                                 .experts = streamed ? SL_EXPERTS_STREAMED : SL_EXPERTS_RESIDENT,
                                 .lane_forced = true,
                                 .lane_percent = 60};
    source->config.lane = with_lane;
    if (n_cards > 1) {
        struct sl_memory_plan p;
        c.split = "1,2";
        assert_ok(sl_engine_plan(model.model, &c, &p, NULL, &test_err));
        for (uint32_t i = 0; i < n_cards && streamed; i++)
            c.vram_each[c.n_vram++] = p.stages[i].vram_least_bytes + MIB;
        if (streamed)
            assert_ok(sl_engine_plan(model.model, &c, &p, NULL, &test_err));
        assert_true(!streamed || p.n_device_slots < p.n_experts);
        return c;
    }
    if (!streamed)
        return c;
    /* Slots for a half of the experts on the card. */
    struct sl_device *d;
    struct sl_memory_plan p;
    assert_ok(source->source.open(&source->source, 0, &d, &test_err));
    assert_ok(sl_memory_plan_make(model.model, &c, d, &p, &test_err));
    assert_int_equal(p.n_device_slots, p.n_experts);
    c.vram_bytes = p.vram_total_bytes - p.device_slot_bytes / 2;
    assert_ok(sl_memory_plan_make(model.model, &c, d, &p, &test_err));
    assert_true(p.n_device_slots < p.n_experts);
    sl_device_close(&d);
    return c;
}

static void all_given_back(const struct card_source *source) {
    assert_int_equal(source->n_open, 0);
    assert_int_equal(source->stats.used_bytes, 0);
}

/* Who reads of a failure must know which of the cards it is. */
static void assert_names_card(const char *text) {
    char name[24] = "card:";
    if (faulty && n_cards > 1)
        snprintf(name, sizeof name, "card:%u:", faulty - 1);
    if (!strstr(text, name))
        fail_msg("\"%s\" does not name %s", text, name);
}

/* Every allocation in turn. */
static void no_device_memory(void **state) {
    (void)state;
    for (uint32_t streamed = 0; streamed < 2; streamed++) {
        uint32_t refused = 0;
        for (uint64_t at = 1;; at++) {
            struct card_source source;
            card_source_init(&source, &(struct card_config){.n_threads = 1, .n_cards = n_cards});
            struct sl_engine_config c = config_for(&source, streamed);
            source.config.fail_alloc = at;
            source.config.fail_card = faulty;
            struct sl_engine *e;
            enum sl_status status = sl_engine_create(model.model, &c, NULL, &e, &test_err);
            if (status == SL_OK) {
                assert_true(faulty || source.stats.n_allocs < at);
                sl_engine_destroy(&e);
                all_given_back(&source);
                break;
            }
            assert_int_equal(status, SL_ERR_DEVICE_OOM);
            assert_non_null(strstr(test_err.text, "no memory for"));
            assert_names_card(test_err.text);
            all_given_back(&source);
            refused++;
        }
        assert_true(refused >= 3); /* KV, weights, activations */
    }
}

static uint64_t op_bits(const enum sl_op *ops, size_t n) {
    uint64_t bits = 0;
    for (size_t i = 0; i < n; i++)
        bits |= UINT64_C(1) << ops[i];
    return bits;
}

/* An op that the card lacks is named before anything is loaded, and so is who lacks it. */
static void missing_op(void **state) {
    (void)state;
    /* What this model needs. */
    static const enum sl_op used[] = {SL_OP_embed,       SL_OP_rms_norm,    SL_OP_matmul,
                                      SL_OP_rope,        SL_OP_rope_table,  SL_OP_kv_write,
                                      SL_OP_router,      SL_OP_attention,   SL_OP_moe,
                                      SL_OP_moe_combine, SL_OP_gather_rows, SL_OP_block_max};
    for (uint32_t op = 0; op < SL_OP_COUNT; op++) {
        struct card_source source;
        card_source_init(&source,
                         &(struct card_config){.n_threads = 1, .lacks_ops = UINT64_C(1) << op});
        struct sl_engine_config c = config_for(&source, false);
        struct sl_engine *e = NULL;
        char text[64];
        snprintf(text, sizeof text, "device card has no op '%s'", sl_op_name((enum sl_op)op));
        bool unused = !(op_bits(used, sizeof used / sizeof *used) >> op & 1);
        enum sl_status status = sl_engine_create(model.model, &c, NULL, &e, &test_err);
        assert_int_equal(status, unused ? SL_OK : SL_ERR_UNSUPPORTED);
        if (!unused) {
            assert_non_null(strstr(test_err.text, text));
            assert_int_equal(source.stats.n_allocs, 0);
        }
        if (e)
            sl_engine_destroy(&e);
        all_given_back(&source);
    }
}

/* What the card has is less than what is needed: refused before anything is allocated. */
static void small_card(void **state) {
    (void)state;
    struct card_source source;
    card_source_init(&source,
                     &(struct card_config){.n_threads = 1, .memory_bytes = 512 * MIB + 4096});
    struct sl_engine_config c = config_for(&source, false);
    struct sl_engine *e;
    c.vram_bytes = 0;
    assert_int_equal(sl_engine_create(model.model, &c, NULL, &e, &test_err), SL_ERR_CONFIG);
    assert_non_null(strstr(test_err.text, "--vram "));
    assert_int_equal(source.stats.n_allocs, 0);
    c.vram_reserve_bytes = 16 * MIB;
    assert_ok(sl_engine_create(model.model, &c, NULL, &e, &test_err));
    sl_engine_destroy(&e);
    all_given_back(&source);
}

/* Without the overflow all must fit the card. */
static void no_overflow(void **state) {
    (void)state;
    struct card_source source;
    card_source_init(&source, &(struct card_config){.n_threads = 1, .n_cards = n_cards});
    struct sl_engine_config c = config_for(&source, true);
    struct sl_engine *e;
    c.no_overflow = true;
    assert_int_equal(sl_engine_create(model.model, &c, NULL, &e, &test_err), SL_ERR_CONFIG);
    assert_non_null(strstr(test_err.text, "--overflow off"));
    c.experts = SL_EXPERTS_AUTO;
    assert_int_equal(sl_engine_create(model.model, &c, NULL, &e, &test_err), SL_ERR_CONFIG);
    assert_non_null(strstr(test_err.text, "--overflow off"));
    assert_int_equal(source.stats.n_allocs, 0);
    c.vram_bytes = 1024 * MIB;
    assert_ok(sl_engine_create(model.model, &c, NULL, &e, &test_err));
    struct sl_engine_info info;
    sl_engine_info(e, &info);
    assert_true(info.discrete && !info.streaming);
    sl_engine_destroy(&e);
}

/* Runs until the card is lost at the call that config says; every request is answered. */
static void lose(const struct card_config *config, bool streamed, uint32_t *n_lost) {
    struct card_source source;
    card_source_init(&source, &(struct card_config){.n_threads = 1, .n_cards = n_cards});
    struct sl_engine_config c = config_for(&source, streamed);
    source.config = *config;
    source.config.n_cards = n_cards;
    source.config.fail_card = faulty;
    struct sl_engine *e;
    enum sl_status status = sl_engine_create(model.model, &c, NULL, &e, &test_err);
    if (status != SL_OK) { /* while the weights were loaded */
        assert_int_equal(status, SL_ERR_DEVICE_LOST);
        all_given_back(&source);
        ++*n_lost;
        return;
    }
    struct run *run[N_RUNS];
    struct sl_err why = {{0}};
    bool submitted[N_RUNS];
    for (uint32_t i = 0; i < N_RUNS; i++) {
        run[i] = new_run(5 + i, 3 + 20 * i, model.model->hp.n_vocab, N_ANSWER);
        run[i]->req.ignore_eog = true;
        run[i]->engine = e;
        submitted[i] = sl_engine_submit(e, &run[i]->req, &test_err) == SL_OK;
    }
    uint32_t n_failed = 0;
    for (uint32_t i = 0; i < N_RUNS; i++) {
        if (submitted[i]) {
            wait_run(run[i]);
            n_failed += run[i]->result.status == SL_ERR_DEVICE_LOST;
            assert_true(run[i]->result.status == SL_OK ||
                        run[i]->result.status == SL_ERR_DEVICE_LOST);
        }
        free_run(run[i]);
    }
    if (n_failed) {
        assert_true(sl_engine_failed(e, &why));
        assert_names_card(why.text);
        struct run *late = new_run(9, 4, model.model->hp.n_vocab, N_ANSWER);
        assert_int_equal(sl_engine_submit(e, &late->req, &test_err), SL_ERR_DEVICE_LOST);
        free_run(late);
    }
    *n_lost += n_failed > 0;
    sl_engine_destroy(&e);
    all_given_back(&source);
}

static void lost_card(void **state) {
    (void)state;
    static const uint64_t at[] = {1, 2, 3, 5, 8, 13, 21, 34, 55, 89};
    uint32_t n_lost = 0;
    for (uint32_t streamed = 0; streamed < 2; streamed++)
        for (uint32_t i = 0; i < sizeof at / sizeof at[0]; i++) {
            lose(&(struct card_config){.n_threads = 1, .fail_copy = at[i]}, streamed, &n_lost);
            lose(&(struct card_config){.n_threads = 1, .fail_wait = at[i]}, streamed, &n_lost);
        }
    print_message("figure: lost in %u of %u runs\n", n_lost, 40u);
    assert_true(n_lost >= 28);
}

static void run_all(struct sl_engine *e, struct run *run[N_RUNS]) {
    for (uint32_t i = 0; i < N_RUNS; i++) {
        run[i] = new_run(5 + i, 3 + 20 * i, model.model->hp.n_vocab, N_ANSWER);
        run[i]->req.ignore_eog = run[i]->req.logprobs = true;
        submit(e, run[i]);
    }
    for (uint32_t i = 0; i < N_RUNS; i++)
        wait_run(run[i]);
}

static void free_all(struct run *run[N_RUNS]) {
    for (uint32_t i = 0; i < N_RUNS; i++)
        free_run(run[i]);
}

/* A copy or a call that is refused costs its step: all other answers are what they would be. */
static void refused_call(void **state) {
    (void)state;
    struct run *plain[N_RUNS], *run[N_RUNS];
    uint32_t n_refused = 0;
    for (uint64_t at = 0; at < 260; at += at < 60 ? 1 : 7) {
        struct card_source source;
        card_source_init(&source, &(struct card_config){.n_threads = 1, .n_cards = n_cards});
        struct sl_engine_config c = config_for(&source, true);
        source.config.refuse = at;
        source.config.fail_card = faulty;
        struct sl_engine *e;
        assert_ok(sl_engine_create(model.model, &c, NULL, &e, &test_err));
        uint32_t n_rounds = 0;
        for (uint32_t round = 0; round < 2; round++) {
            uint32_t n_failed = 0;
            run_all(e, run);
            for (uint32_t i = 0; i < N_RUNS; i++) {
                n_failed += run[i]->result.status != SL_OK;
                if (run[i]->result.status != SL_OK)
                    assert_int_equal(run[i]->result.status, SL_ERR_DEVICE_OOM);
                else if (at)
                    assert_same_tokens(plain[i], run[i]);
            }
            n_rounds += n_failed > 0;
            if (at || round)
                free_all(run);
            else
                memcpy(plain, run, sizeof plain);
        }
        assert_true(n_rounds <= (at > 0));
        n_refused += n_rounds;
        sl_engine_destroy(&e);
        all_given_back(&source);
    }
    free_all(plain);
    print_message("figure: refused in %u runs\n", n_refused);
    assert_true(n_refused >= 59);
}

/* Measuring the disk waits for copies that were under way, and hears of it first. */
static void lost_before_a_measurement(void **state) {
    (void)state;
    struct card_source source;
    struct run *run[N_RUNS];
    card_source_init(&source, &(struct card_config){.n_threads = 1});
    struct sl_engine_config c = config_for(&source, true);
    source.stats = (struct card_stats){0};
    struct sl_engine *e;
    assert_ok(sl_engine_create(model.model, &c, NULL, &e, &test_err));
    run_all(e, run);
    free_all(run);
    source.config.fail_wait = source.stats.n_waits + 1;
    double rate = -1;
    assert_int_equal(sl_engine_disk_speed(e, 0.01, &rate, &test_err), SL_ERR_DEVICE_LOST);
    assert_names_card(test_err.text);
    assert_true(rate < 0);
    struct sl_err why;
    assert_true(sl_engine_failed(e, &why));
    assert_string_equal(why.text, test_err.text);
    assert_int_equal(sl_engine_disk_speed(e, 0.01, &rate, &test_err), SL_ERR_DEVICE_LOST);
    sl_engine_destroy(&e);
    all_given_back(&source);
}

/* The same where the layers are divided over two cards and one of them fails. */
static void of_two(void (*test)(void **state)) {
    n_cards = 2;
    for (faulty = 1; faulty <= 2; faulty++)
        test(NULL);
    n_cards = 1;
    faulty = 0;
}

static void no_device_memory_of_two(void **state) {
    (void)state;
    of_two(no_device_memory);
}

static void lost_card_of_two(void **state) {
    (void)state;
    of_two(lost_card);
}

static void refused_call_of_two(void **state) {
    (void)state;
    of_two(refused_call);
}

/* Copies from card to card, and rows that one hands and the other waits for. */
static void with_the_lane(void **state) {
    uint64_t before = (uint64_t)sl_metric(lane_experts_total);
    with_lane = true;
    lost_card(state);
    refused_call(state);
    with_lane = false;
    assert_true((uint64_t)sl_metric(lane_experts_total) > before + 100);
}

static void lost_between_cards(void **state) {
    (void)state;
    uint32_t n_lost = 0, n_lost_sending = 0;
    n_cards = faulty = 2;
    for (uint32_t i = 1; i < 20; i++)
        lose(&(struct card_config){.n_threads = 1, .fail_peer = i, .no_sends = true}, i % 2,
             &n_lost);
    for (uint32_t i = 1; i < 20; i++) {
        faulty = 1 + i % 2;
        lose(&(struct card_config){.n_threads = 1, .fail_send = i}, i % 4 < 2, &n_lost_sending);
    }
    assert_true(n_lost >= 10 && n_lost_sending >= 10);
    n_cards = 1;
    faulty = 0;
}

int main(void) {
    alarm(ALARM_SECONDS); /* what hangs is a failure */
    sl_log_set_level(SL_LOG_ERROR + 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_device_memory),   cmocka_unit_test(missing_op),
        cmocka_unit_test(small_card),         cmocka_unit_test(no_overflow),
        cmocka_unit_test(lost_card),          cmocka_unit_test(refused_call),
        cmocka_unit_test(with_the_lane),      cmocka_unit_test(no_device_memory_of_two),
        cmocka_unit_test(lost_card_of_two),   cmocka_unit_test(refused_call_of_two),
        cmocka_unit_test(lost_between_cards), cmocka_unit_test(lost_before_a_measurement),
    };
    return cmocka_run_group_tests(tests, open_subject, close_subject);
}
