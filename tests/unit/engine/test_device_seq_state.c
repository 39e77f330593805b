/* What layers keep of sequences, proved by a store that does not forgive: a running hash over a
 * layer's rows (tests/support/seq_hash.h), beside keys and values, through all that an engine does
 * with sequences. */
#include "tests/support/card.h"
#include "tests/support/folder.h"
#include "tests/support/seq_hash.h"
#include "tests/support/slow_build.h"
#include "tests/unit/engine/fixture.h"

#include "common/metrics.h"
#include "engine/engine.h"
#include "engine/schedule/schedule.h"
#include "engine/plan/memory_plan.h"

#define PAGE    SL_KV_PAGE_TOKENS
#define LAYERS  4u
#define EXPERTS 24u
#define N_RUNS  8u

static struct test_model tiny;
static struct folder folder;
static struct seq_hash hash;
static struct card_source source;

static int open_arch(const char *arch, uint32_t window) {
    struct sl_synth_config c = tiny_config(arch);
    c.n_layer = LAYERS;
    c.n_expert = EXPERTS;
    c.n_ff_expert = c.n_ff_shared = 256; /* so that few of them fit a MiB */
    c.window = window;
    open_model(&tiny, &c);
    return 0;
}

/* Keys and values of all positions; or of a window in every other layer, so that the hash shares
 * its tail pages with those and three of them are needed. */
static int setup_full(void **state) {
    (void)state;
    return open_arch("qwen3moe", 0);
}

static int setup_window(void **state) {
    (void)state;
    return open_arch("gpt-oss", 150);
}

/* A real state beside the hash, in tail pages with it. */
static int setup_delta(void **state) {
    (void)state;
    return open_arch("qwen35moe", 0);
}

static int setup_conv(void **state) {
    (void)state;
    return open_arch("lfm2moe", 0);
}

static int setup_mamba(void **state) {
    (void)state;
    return open_arch("granitehybrid", 0);
}

static int setup_mamba1(void **state) {
    (void)state;
    return open_arch("jamba", 0);
}

static int setup_kda(void **state) {
    (void)state;
    return open_arch("kimi-linear", 0);
}

static int setup_bound(void **state) {
    (void)state;
    return open_arch("bailingmoe3", 0);
}

static int setup_kept(void **state) {
    (void)state;
    return open_arch("kimi-k3", 0);
}

/* Latents in place of keys and values. */
static int setup_latent(void **state) {
    (void)state;
    return open_arch("deepseek2", 0);
}

/* An indexer's keys beside these. */
static int setup_index(void **state) {
    (void)state;
    return open_arch("deepseek32", 0);
}

static int teardown(void **state) {
    (void)state;
    close_model(&tiny);
    return 0;
}

static struct sl_engine_config config(uint32_t parallel) {
    return (struct sl_engine_config){.n_threads = 1,
                                     .ctx_tokens = 1000,
                                     .parallel = parallel,
                                     .batch_tokens = 96,
                                     .queue_max = 32,
                                     .no_warm_up = true,
                                     .seq_source = &hash.source};
}

static struct sl_engine *start(const struct sl_engine_config *c) {
    struct sl_engine *e = new_engine(&tiny, c);
    assert_true(e->plan.n_tails);
    for (uint32_t i = 0; i < e->n_stages; i++)
        assert_true(e->stages[i].kv.saves);
    return e;
}

/* The first `common` tokens are those of every prompt with this seed; own decides the rest. */
static struct run *make(uint32_t seed, uint32_t common, uint32_t own, uint32_t n_prompt,
                        uint32_t n_answer) {
    struct run *r = new_run(seed, n_prompt, tiny.model->hp.n_vocab, n_answer);
    struct sl_rng rng = {1000003 * own + 17};
    for (uint32_t i = common; i < n_prompt; i++)
        r->prompt[i] = sl_rng_below(&rng, tiny.model->hp.n_vocab);
    r->req.ignore_eog = true;
    r->req.sampling.temperature = 0.9f;
    r->req.sampling.seed = own;
    return r;
}

/* Its text was asked for. */
static void tell(struct run *r) {
    static uint32_t ids[2 * MAX_TOKENS];
    memcpy(ids, r->prompt, r->req.n_prompt * sizeof *ids);
    for (uint32_t i = 0; i < r->n; i++)
        ids[r->req.n_prompt + i] = r->tokens[i].id;
    seq_hash_text(&hash, ids, r->req.n_prompt + r->n, r->result.status == SL_OK,
                  r->result.n_cached);
    free_run(r);
}

static struct run *answer(struct sl_engine *e, struct run *r) {
    submit(e, r);
    wait_run(r);
    assert_int_equal(r->result.status, SL_OK);
    return r;
}

static void cancel_at_second_slice(struct run *r) {
    if (r->n_progress == 2)
        sl_engine_cancel(r->engine, &r->req);
}

static void cancel_at_7(struct run *r) {
    if (r->n == 7)
        sl_engine_cancel(r->engine, &r->req);
}

/* Texts with common beginnings, slow readers that lose their slot, requests that leave in their
 * prompt and in their answer. */
static void crowd(struct sl_engine *e, uint32_t seed, uint32_t n_rounds) {
    struct sl_rng rng = {seed};
    int64_t hits = sl_metric(prefix_hit_tokens_total);
    for (uint32_t round = 0; round < n_rounds; round++) {
        struct run *r[N_RUNS];
        for (uint32_t i = 0; i < N_RUNS; i++) {
            uint32_t n = 1 + sl_rng_below(&rng, 600), kind = sl_rng_below(&rng, 6);
            r[i] = make(seed + sl_rng_below(&rng, 2), sl_rng_below(&rng, n + 1),
                        sl_rng_below(&rng, 3), n, 1 + sl_rng_below(&rng, 90));
            r[i]->park_every = kind == 0 ? 5 : 0;
            r[i]->on_progress = kind == 1 ? cancel_at_second_slice : NULL;
            r[i]->on_token = kind == 2 ? cancel_at_7 : NULL;
            submit(e, r[i]);
        }
        for (uint32_t i = 0; i < N_RUNS; i++) {
            wait_run(r[i]);
            tell(r[i]);
        }
    }
    assert_true(sl_metric(prefix_hit_tokens_total) > hits);
    assert_int_equal(sl_metric(kv_pages_used), 0);
}

/* No tail page is lost or in use when nobody runs. */
static void assert_unused(const struct sl_engine *e) {
    assert_int_equal(sl_tail_n_unused(e->tails), e->plan.n_tails);
}

static void crowds(void **state) {
    (void)state;
    seq_hash_init(&hash, LAYERS);
    struct sl_engine_config c = config(3);
    struct sl_engine *e = start(&c);
    crowd(e, 11, BY_BUILD(4, 2, 1));
    assert_unused(e);
    sl_engine_destroy(&e);
    seq_hash_end(&hash);
}

/* A reader that stops loses its slot to another, and its text is found again. */
static void parked(void **state) {
    (void)state;
    seq_hash_init(&hash, LAYERS);
    struct sl_engine_config c = config(1);
    struct sl_engine *e = start(&c);
    struct run *slow = make(60, 300, 1, 300, 200);
    slow->hold_at = 150;
    submit(e, slow);
    wait_parked(slow);
    struct run *quick = answer(e, make(61, 500, 2, 500, 5)); /* takes the slot */
    int64_t rows = sl_metric(step_rows_total);
    pthread_mutex_lock(&slow->lock);
    slow->hold_at = 0;
    slow->parked = false;
    pthread_mutex_unlock(&slow->lock);
    sl_engine_resume(e, &slow->req);
    wait_run(slow);
    /* 51 more tokens, and of the 449 positions before less than a page again. */
    assert_true(sl_metric(step_rows_total) - rows < 51 + (int)PAGE);
    tell(slow);
    tell(quick);
    assert_unused(e);
    sl_engine_destroy(&e);
    seq_hash_end(&hash);
}

/* Two stages, each with a thread and its own layers' states, and two steps under way. */
static void stages(void **state) {
    (void)state;
    seq_hash_init(&hash, LAYERS);
    card_source_init(&source, &(struct card_config){.n_threads = 1, .n_cards = 2, .plain = 3});
    struct sl_engine_config c = config(3);
    c.device_source = &source.source;
    c.split = "1,3";
    c.ram_bytes = (uint64_t)1 << 34;
    struct sl_engine *e = start(&c);
    assert_int_equal(e->n_stages, 2);
    crowd(e, 21, BY_BUILD(4, 2, 1));
    assert_unused(e);
    sl_engine_destroy(&e);
    seq_hash_end(&hash);
}

static struct sl_engine_config streamed(void) {
    struct sl_engine_config c = config(2);
    struct sl_memory_plan p;
    c.experts = SL_EXPERTS_STREAMED;
    c.ram_bytes = 1;
    assert_int_equal(sl_engine_plan(tiny.model, &c, &p, NULL, &test_err), SL_ERR_CONFIG);
    c.ram_bytes = p.least_bytes; /* some slots: the least is named in whole MiB */
    return c;
}

/* A few slots for experts: layers run in waves, and each is given its rows once. */
static void waves(void **state) {
    (void)state;
    seq_hash_init(&hash, LAYERS);
    struct sl_engine_config c = streamed();
    struct sl_engine *e = start(&c);
    assert_true(e->plan.n_slots < e->plan.n_experts);
    crowd(e, 31, 1);
    sl_engine_destroy(&e);
    seq_hash_end(&hash);
}

/* What is read from disk is the state that was written, however little of it comes. */
static void restarts(void **state) {
    (void)state;
    static char names[512][256];
    seq_hash_init(&hash, LAYERS);
    open_folder(&folder);
    struct sl_engine_config c = config(2);
    c.cache_dir = folder.path;
    c.cache_disk_bytes = 256 << 20;
    c.cache_read_always = true;
    for (uint32_t pass = 0; pass < BY_BUILD(4, 3, 2); pass++) {
        struct sl_engine *e = start(&c);
        int64_t from_disk = sl_metric(prefix_disk_hit_tokens_total);
        for (uint32_t i = 0; i < 3; i++) {
            struct run *r = answer(e, make(40 + i, 700, i, 700, 30));
            if (pass == 1)
                assert_int_equal(r->result.n_cached, 640);
            tell(r);
        }
        crowd(e, 41, 1);
        assert_true(!pass || sl_metric(prefix_disk_hit_tokens_total) > from_disk);
        assert_unused(e);
        sl_engine_destroy(&e);
        /* Others each time are damaged: what follows them has to start from an earlier state. */
        uint32_t n = list_folder(&folder, ".kv", names, 512);
        for (uint32_t i = pass; pass && i < n && i < 512; i += 7)
            flip_bit(&folder, names[i], 600);
    }
    close_folder(&folder);
    seq_hash_end(&hash);
}

/* ---- steps that begin again ---- */

static char mirror[96];

/* The same bytes, but another file by its times: what was read of it is not to be used. */
static void touch_at_token(struct run *r) {
    uint8_t byte;
    if (r->n != 3)
        return;
    int fd = open(r->user, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, 100), 1);
    assert_int_equal(pwrite(fd, &byte, 1, 100), 1);
    close(fd);
}

static void copy_model(void) {
    static uint8_t bytes[1 << 16];
    snprintf(mirror, sizeof mirror, "%s-mirror.gguf", tiny.path);
    int from = open(tiny.path, O_RDONLY | O_CLOEXEC);
    int to = open(mirror, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(from >= 0 && to >= 0);
    for (ssize_t n; (n = read(from, bytes, sizeof bytes)) > 0;)
        assert_int_equal(write(to, bytes, (size_t)n), n);
    close(from);
    close(to);
    usleep(20000); /* a change is told from what was there by its time, which goes in ticks */
}

/* A copy of the model changes under a step: the step begins again, from the state before it. */
static void begun_again(void **state) {
    (void)state;
    uint64_t n_again = 0;
    for (uint32_t turn = 0; turn < BY_BUILD(6, 4, 2); turn++) {
        seq_hash_init(&hash, LAYERS);
        copy_model();
        struct sl_engine_config c = streamed();
        c.mirrors = (const char *const[]){mirror};
        c.n_mirrors = 1;
        struct sl_engine *e = start(&c);
        struct run *r = make(50, 70 + turn, 1, 70 + turn, 30), *other = make(51, 99, 2, 99, 30);
        int64_t dropped = sl_metric(disk_dropped_copies_total);
        r->on_token = touch_at_token;
        r->user = mirror;
        submit(e, r);
        if (turn % 2)
            submit(e, other);
        wait_run(r);
        if (turn % 2)
            wait_run(other);
        assert_int_equal(r->result.status, SL_OK);
        assert_int_equal(sl_metric(disk_dropped_copies_total), dropped + 1);
        sl_engine_destroy(&e);
        tell(r);
        if (turn % 2)
            tell(other);
        else
            free_run(other);
        n_again += hash.n_again;
        seq_hash_end(&hash);
        unlink(mirror);
    }
    assert_true(n_again > 0);
}

/* Whose memory it cannot follow is refused. */
static void cards_are_refused(void **state) {
    (void)state;
    struct sl_engine *e = NULL;
    seq_hash_init(&hash, LAYERS);
    card_source_init(&source, &(struct card_config){.n_threads = 1});
    struct sl_engine_config c = config(2);
    c.device_source = &source.source;
    assert_int_equal(sl_engine_create(tiny.model, &c, NULL, &e, &test_err), SL_ERR_UNSUPPORTED);
    assert_null(e);
    seq_hash_end(&hash);
}

static const struct CMUnitTest all[] = {
    cmocka_unit_test(crowds),
    cmocka_unit_test(parked),
    cmocka_unit_test(stages),
    cmocka_unit_test(waves),
    cmocka_unit_test(restarts),
    cmocka_unit_test(begun_again),
    cmocka_unit_test(cards_are_refused),
};
/* What goes through a state's own sizes. */
static const struct CMUnitTest by_kind[] = {
    cmocka_unit_test(crowds),
    cmocka_unit_test(parked),
};

static int run_kind(CMFixtureFunction setup_kind) {
    return UNDER_ASAN ? cmocka_run_group_tests(by_kind, setup_kind, teardown)
                      : cmocka_run_group_tests(all, setup_kind, teardown);
}

int main(void) {
    sl_log_set_level(SL_LOG_ERROR);
    int failed = cmocka_run_group_tests(all, setup_window, teardown);
    if (UNDER_TSAN) /* the same threads */
        return failed;
    failed += run_kind(setup_full);
    failed += cmocka_run_group_tests(all, setup_delta, teardown);
    failed += run_kind(setup_conv);
    failed += run_kind(setup_mamba);
    failed += run_kind(setup_mamba1);
    failed += run_kind(setup_kda);
    failed += run_kind(setup_bound);
    failed += run_kind(setup_kept);
    failed += run_kind(setup_latent);
    return failed + run_kind(setup_index);
}
