/* Models with a state in place of keys and values: what an engine does with sequences (slices,
 * batch mates, known beginnings, parking, canceled and repeated steps, stages, copies in the host's
 * memory and on disk, restarts) shows in no bit of an answer. */
#include "tests/support/card.h"
#include "tests/support/folder.h"
#include "tests/support/slow_build.h"
#include "tests/unit/engine/fixture.h"

#include "common/metrics.h"
#include "engine/engine.h"
#include "engine/schedule/schedule.h"
#include "engine/plan/memory_plan.h"

#include <fcntl.h>

#define PAGE     SL_KV_PAGE_TOKENS
#define N_TEXTS  BY_BUILD(6u, 6u, 4u)
#define N_ANSWER BY_BUILD(40u, 24u, 12u)

static struct test_model tiny;
static struct card_source source;
static struct run *want[6]; /* computed alone, in one slice, with nothing known */
static bool drafting;       /* with drafts of these answers, most of them right */

/* Texts 0 and 1 begin alike for five pages, 2 and 3 for 20 positions. */
static struct run *make(uint32_t i) {
    static const uint32_t n[] = {400, 530, 64, 200, 1, 650}, common[] = {330, 330, 20, 20};
    struct run *r = new_run(i / 2, n[i], tiny.model->hp.n_vocab, N_ANSWER);
    struct sl_rng rng = {77 + i};
    for (uint32_t t = i < 4 ? common[i] : 0; t < n[i]; t++)
        r->prompt[t] = sl_rng_below(&rng, tiny.model->hp.n_vocab);
    r->req.logprobs = true;
    r->req.ignore_eog = true;
    r->req.sampling.temperature = i % 2 ? 0.8f : 0;
    r->req.sampling.seed = i;
    return r;
}

/* What follows in the text whose beginning is known, with errors; another text's, or nothing, where
 * there is none. */
static uint32_t propose(const struct sl_draft_source *s, const uint32_t *history,
                        uint32_t n_history, uint32_t most, uint32_t *out_ids) {
    (void)s;
    for (uint32_t i = 0; i < N_TEXTS; i++) {
        const struct run *w = want[i];
        uint32_t n = n_history - w->req.n_prompt;
        if (n_history < w->req.n_prompt || n >= w->n ||
            memcmp(history, w->prompt, w->req.n_prompt * sizeof *history) != 0)
            continue;
        struct sl_rng rng = {n_history};
        uint32_t wrong = sl_rng_below(&rng, 2 * most);
        for (uint32_t j = 0; j < most; j++)
            out_ids[j] = j == wrong || n + j >= w->n ? 7 : w->tokens[n + j].id;
        return most;
    }
    return 0;
}

static const struct sl_draft_source drafts = {propose};

static void finish(struct run *r, uint32_t i) {
    wait_run(r);
    assert_int_equal(r->result.status, SL_OK);
    assert_int_equal(r->n, N_ANSWER);
    assert_same_tokens(want[i], r);
    if (drafting && !r->park_every)
        assert_true(r->result.n_draft_accepted > N_ANSWER / 4);
    free_run(r);
}

static int open_arch(const char *arch) {
    struct sl_synth_config sc = tiny_config(arch);
    sc.n_layer = 5;
    sc.attn_every = 3;
    sc.n_expert = sc.n_expert ? 24 : 0;
    sc.n_ff_expert = 256; /* so that few of them fit a MiB */
    open_model(&tiny, &sc);
    struct sl_engine_config c = {
        .n_threads = 2, .ctx_tokens = 1000, .parallel = 1, .batch_tokens = 1000};
    for (uint32_t i = 0; i < N_TEXTS; i++) {
        struct sl_engine *e = new_engine(&tiny, &c);
        want[i] = make(i);
        submit(e, want[i]);
        wait_run(want[i]);
        assert_int_equal(want[i]->n, N_ANSWER);
        sl_engine_destroy(&e);
    }
    /* Answers are of their own text. */
    assert_true(want[0]->tokens[9].logprob != want[1]->tokens[9].logprob);
    return 0;
}

static int setup_moe(void **state) {
    (void)state;
    return open_arch("qwen35moe");
}

static int setup_drafts(void **state) {
    drafting = true;
    return setup_moe(state);
}

static int setup_next(void **state) {
    (void)state;
    return open_arch("qwen3next");
}

static int setup_dense(void **state) {
    (void)state;
    return open_arch("qwen35");
}

static int teardown(void **state) {
    (void)state;
    for (uint32_t i = 0; i < N_TEXTS; i++)
        free_run(want[i]);
    close_model(&tiny);
    drafting = false;
    return 0;
}

static struct sl_engine_config config(uint32_t parallel, uint32_t batch) {
    return (struct sl_engine_config){.n_threads = 1,
                                     .ctx_tokens = 1000,
                                     .parallel = parallel,
                                     .batch_tokens = batch,
                                     .queue_max = 64,
                                     .draft_source = drafting ? &drafts : NULL,
                                     .draft_tokens = drafting ? 3 : 0,
                                     .no_warm_up = true};
}

static struct sl_engine *start(const struct sl_engine_config *c) {
    struct sl_engine *e = new_engine(&tiny, c);
    assert_true(e->plan.n_tails);
    assert_int_equal(e->plan.tail_pages, 1);
    return e;
}

static void stop(struct sl_engine **e) {
    const struct sl_memory_plan *p = &(*e)->plan;
    assert_int_equal(sl_tail_n_unused((*e)->tails) + p->config.parallel * p->draft_tails,
                     p->n_tails);
    sl_engine_destroy(e);
}

/* All texts at once; the second time their beginnings are known. Those that are read slowly lose
 * their slot to others meanwhile. */
static void ask_all(struct sl_engine *e, bool park) {
    for (uint32_t pass = 0; pass < BY_BUILD(3, 2, 2); pass++) {
        struct run *r[6];
        for (uint32_t i = 0; i < N_TEXTS; i++) {
            r[i] = make(i);
            r[i]->park_every = park && i % 2 == pass % 2 ? 7 : 0;
            submit(e, r[i]);
        }
        for (uint32_t i = 0; i < N_TEXTS; i++)
            finish(r[i], i);
    }
}

static void slices_and_batches(void **state) {
    (void)state;
    static const uint32_t batch[] = {7, 64, 96, 600};
    for (uint32_t i = BY_BUILD(0, 0, 2); i < BY_BUILD(4, 4, 3); i++) {
        struct sl_engine_config c = config(1 + i, batch[i]);
        c.n_threads = 1 + i % 3;
        struct sl_engine *e = new_engine(&tiny, &c);
        int64_t hits = sl_metric(prefix_hit_tokens_total);
        ask_all(e, i % 2);
        assert_true(sl_metric(prefix_hit_tokens_total) > hits);
        sl_engine_destroy(&e);
    }
}

static void cancel_in_prompt(struct run *r) {
    if (r->n_progress == 2)
        sl_engine_cancel(r->engine, &r->req);
}

static void cancel_in_answer(struct run *r) {
    if (r->n == 9)
        sl_engine_cancel(r->engine, &r->req);
}

/* What is left of a step that nobody waits for any more is of no one's text. */
static void canceled(void **state) {
    (void)state;
    struct sl_engine_config c = config(2, 70);
    struct sl_engine *e = start(&c);
    for (uint32_t turn = 0; turn < BY_BUILD(4, 4, 2); turn++)
        for (uint32_t i = 0; i < N_TEXTS; i++) {
            struct run *gone = make(i), *r = make(i);
            gone->on_progress = turn % 2 ? cancel_in_prompt : NULL;
            gone->on_token = turn % 2 ? NULL : cancel_in_answer;
            submit(e, gone);
            if (turn / 2)
                wait_run(gone);
            submit(e, r);
            wait_run(gone);
            finish(r, i);
            free_run(gone);
        }
    stop(&e);
}

/* Cards with memory of their own, one and two, and the CPU behind one. Pages that they give up are
 * kept in the host's memory. */
static void stages(void **state) {
    (void)state;
    static const struct {
        uint32_t n_cards, plain;
        const char *split;
    } over[] = {{1, 0, NULL}, {2, 0, "1,4"}, {2, 3, "3,2"}, {2, 2, "2,3"}};
    for (uint32_t i = BY_BUILD(0, 0, 1); i < BY_BUILD(4, 4, 2); i++) {
        struct sl_engine_config c = config(i % 2 ? 3 : 1, i % 2 ? 96 : 64);
        card_source_init(&source, &(struct card_config){.n_threads = 1,
                                                        .n_cards = over[i].n_cards,
                                                        .plain = over[i].plain});
        c.device_source = &source.source;
        c.split = over[i].split;
        c.experts = SL_EXPERTS_RESIDENT;
        c.cache_ram_bytes = 16 << 20;
        c.ram_bytes = (uint64_t)1 << 40;
        struct sl_engine *e = start(&c);
        assert_int_equal(e->n_stages, over[i].n_cards);
        ask_all(e, i / 2);
        stop(&e);
    }
}

/* Every answer goes on from a state that was read from disk. */
static void restarts(void **state) {
    (void)state;
    static struct folder folder;
    open_folder(&folder);
    for (uint32_t pass = 0; pass < BY_BUILD(3, 3, 2); pass++) {
        struct sl_engine_config c = config(1 + pass, 90);
        c.cache_dir = folder.path;
        c.cache_disk_bytes = 256 << 20;
        c.cache_read_always = true;
        struct sl_engine *e = start(&c);
        int64_t from_disk = sl_metric(prefix_disk_hit_tokens_total);
        for (uint32_t i = 0; i < N_TEXTS; i++) {
            struct run *r = make(i);
            submit(e, r);
            wait_run(r);
            if (pass && r->req.n_prompt > 2 * PAGE) /* ends of texts have their state */
                assert_true(r->result.n_cached + 2 * PAGE > r->req.n_prompt);
            finish(r, i);
        }
        assert_true(!pass || sl_metric(prefix_disk_hit_tokens_total) > from_disk);
        stop(&e);
    }
    close_folder(&folder);
}

/* ---- which states are kept ---- */

static struct run *ask(struct sl_engine *e, uint32_t own, bool no_cache) {
    struct run *r = make(1);
    struct sl_rng rng = {1000 + own};
    for (uint32_t t = 330; t < r->req.n_prompt; t++)
        r->prompt[t] = sl_rng_below(&rng, tiny.model->hp.n_vocab);
    r->req.no_cache = no_cache;
    submit(e, r);
    wait_run(r);
    assert_int_equal(r->result.status, SL_OK);
    return r;
}

/* A slice passes page ends without leaving a state, but for its last one and the one where the text
 * parts from what is known: who begins so next goes on from there. */
static void partings(void **state) {
    (void)state;
    static const uint32_t n_cached[] = {0, 0, 320, 320};
    struct sl_engine_config c = config(4, 600); /* room for the pages of all */
    struct sl_engine *e = start(&c);
    assert_true(e->plan.tail_gaps);
    for (uint32_t i = 0; i < 4; i++) {
        struct run *r = ask(e, i, false), *alone = ask(e, i, true);
        assert_int_equal(r->result.n_cached, n_cached[i]);
        assert_int_equal(alone->result.n_cached, 0);
        assert_same_tokens(alone, r);
        free_run(r);
        free_run(alone);
    }
    struct run *again = ask(e, 3, false); /* to the last page end before the prompt's last token */
    assert_int_equal(again->result.n_cached, 512);
    free_run(again);
    stop(&e);
}

/* However long the slices, a session holds few states; and of those that stay for others it has no
 * more bytes than of keys and values, but two states. */
static void planned(void **state) {
    (void)state;
    struct sl_engine_config c = config(3, 512);
    struct sl_memory_plan p, large;
    c.ctx_tokens = 8192;
    assert_ok(sl_memory_plan_make(tiny.model, &c, NULL, &p, &test_err));
    assert_true(p.tail_gaps && p.tail_page_bytes > 0);
    uint64_t like = p.session_pages * p.page_bytes / p.tail_page_bytes, kept = 128 / 16;
    kept = like < kept ? like : kept;
    uint32_t few = 2 + SL_TAILS_A_STEP + (kept < 2 ? 2 : (uint32_t)kept);
    assert_int_equal(p.n_tails, 3 * (few + c.draft_tokens));
    c.batch_tokens = 4096;
    assert_ok(sl_memory_plan_make(tiny.model, &c, NULL, &large, &test_err));
    assert_int_equal(large.n_tails, p.n_tails);
    /* In few pages every page has its state, unless drafts need states that are pages alone. */
    c.ctx_tokens = 300;
    assert_ok(sl_memory_plan_make(tiny.model, &c, NULL, &p, &test_err));
    assert_int_equal(p.n_tails, drafting ? 3 * (5 + 3) : 0);
    assert_int_equal(p.tail_gaps, drafting);
}

/* ---- experts that are read ---- */

static struct sl_engine_config streamed(uint32_t parallel) {
    struct sl_engine_config c = config(parallel, 80);
    struct sl_memory_plan p;
    c.experts = SL_EXPERTS_STREAMED;
    c.ram_bytes = 1;
    assert_int_equal(sl_engine_plan(tiny.model, &c, &p, NULL, &test_err), SL_ERR_CONFIG);
    c.ram_bytes = p.least_bytes; /* some slots: the least is named in whole MiB */
    return c;
}

static void waves(void **state) {
    (void)state;
    if (!tiny.model->hp.n_expert)
        skip();
    struct sl_engine_config c = streamed(2);
    struct sl_engine *e = start(&c);
    assert_true(e->plan.n_slots < e->plan.n_experts);
    ask_all(e, true);
    stop(&e);
}

static char mirror[96];

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

/* The same bytes, but another file by its times: what was read of it is not to be used. */
static void touch_mirror(struct run *r) {
    uint8_t byte;
    if (r->n != 3)
        return;
    int fd = open(mirror, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, 100), 1);
    assert_int_equal(pwrite(fd, &byte, 1, 100), 1);
    close(fd);
}

/* A copy of the model changes under a step, which begins again from the state before it. */
static void begun_again(void **state) {
    (void)state;
    if (!tiny.model->hp.n_expert)
        skip();
    for (uint32_t turn = 0; turn < BY_BUILD(N_TEXTS, 4, 2); turn++) {
        copy_model();
        struct sl_engine_config c = streamed(2);
        c.mirrors = (const char *const[]){mirror};
        c.n_mirrors = 1;
        struct sl_engine *e = start(&c);
        int64_t dropped = sl_metric(disk_dropped_copies_total);
        struct run *r = make(turn), *other = make((turn + 1) % N_TEXTS);
        r->on_token = touch_mirror;
        submit(e, r);
        if (turn % 2)
            submit(e, other);
        finish(r, turn);
        if (turn % 2)
            finish(other, (turn + 1) % N_TEXTS);
        else
            free_run(other);
        assert_int_equal(sl_metric(disk_dropped_copies_total), dropped + 1);
        stop(&e);
        unlink(mirror);
    }
}

int main(void) {
    sl_log_set_level(SL_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(partings),
        cmocka_unit_test(planned),
        cmocka_unit_test(slices_and_batches),
        cmocka_unit_test(canceled),
        cmocka_unit_test(stages),
        cmocka_unit_test(restarts),
        cmocka_unit_test(waves),
        cmocka_unit_test(begun_again),
    };
    int failed = cmocka_run_group_tests(tests, setup_moe, teardown);
    if (UNDER_TSAN) /* the same threads */
        return failed;
    failed += cmocka_run_group_tests(tests, setup_drafts, teardown);
    failed += cmocka_run_group_tests(tests, setup_dense, teardown);
    if (UNDER_ASAN || BEHIND_BYTES) /* the same layers as qwen35moe */
        return failed;
    return failed + cmocka_run_group_tests(tests, setup_next, teardown);
}
