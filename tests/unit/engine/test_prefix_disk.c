/* Prefixes on disk: engines that start again find them, and answer as if they had computed all. */
#include "tests/support/folder.h"
#include "tests/support/slow_build.h"
#include "tests/unit/engine/fixture.h"

#include "backends/backend_table.h"
#include "backends/cpu/cpu.h"
#include "common/metrics.h"
#include "engine/engine.h"
#include "engine/schedule/schedule.h"
#include "engine/forward/arithmetic.h"
#include "engine/prefix/model_identity.h"

#include <signal.h>
#include <sys/wait.h>

#define PAGE SL_KV_PAGE_TOKENS

static struct test_model tiny;
static struct folder folder;

static int open_tiny(void **state) {
    (void)state;
    struct sl_synth_config c = tiny_config("qwen3moe");
    open_model(&tiny, &c);
    return 0;
}

/* What else layers keep of a sequence, each with experts. */
static const char *const kinds[] = {"gpt-oss", "qwen35moe",      "deepseek2",   "granitehybrid",
                                    "lfm2moe", "nemotron_h_moe", "kimi-linear", "jamba",
                                    "glm-dsa", "minimax-m3",     "dots3note",   "deepseek4",
                                    "gemma4",  "bailingmoe3",    "grovemoe",    "mimo2",
                                    "llama4",  "smallthinker",   "kimi-k3",     "qwen4exp"};
static uint32_t of_kind;

static int open_kind(void **state) {
    (void)state;
    struct sl_synth_config c = tiny_config(kinds[of_kind]);
    if (strcmp(kinds[of_kind], "gpt-oss") == 0 || strcmp(kinds[of_kind], "mimo2") == 0)
        c.window = 130;
    if (strcmp(kinds[of_kind], "mimo2") == 0) /* values narrower than keys */
        c.head_dim_v = c.head_dim / 2;
    if (strcmp(kinds[of_kind], "llama4") == 0)
        c.n_expert_used = 1, c.chunk = 100;
    if (strcmp(kinds[of_kind], "gemma4") == 0) { /* whose last layers keep nothing */
        c.n_layer = 4;
        c.n_embd_layer = 32;
        c.n_shared_kv = 2;
    }
    if (strcmp(kinds[of_kind], "grovemoe") == 0) {
        c.n_per_adjugate = 3;
        c.n_ff_adjugate = 32;
    }
    open_model(&tiny, &c);
    return 0;
}

static int close_tiny(void **state) {
    (void)state;
    close_model(&tiny);
    return 0;
}

static int setup(void **state) {
    (void)state;
    open_folder(&folder);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    close_folder(&folder);
    return 0;
}

static struct sl_engine_config config(uint32_t parallel) {
    return (struct sl_engine_config){.n_threads = 1,
                                     .ctx_tokens = 600,
                                     .parallel = parallel,
                                     .batch_tokens = 64,
                                     .cache_dir = folder.path,
                                     .cache_disk_bytes = 64 << 20,
                                     .cache_read_always = true};
}

static struct sl_engine *start(uint32_t parallel) {
    struct sl_engine_config c = config(parallel);
    return new_engine(&tiny, &c);
}

static struct run *make(uint32_t seed, uint32_t n_prompt, uint32_t max_tokens) {
    struct run *r = new_run(seed, n_prompt, tiny.model->hp.n_vocab, max_tokens);
    r->req.logprobs = true;
    r->req.ignore_eog = true;
    r->req.sampling.temperature = 0.9f;
    return r;
}

static struct run *answer(struct sl_engine *e, struct run *r) {
    submit(e, r);
    wait_run(r);
    assert_int_equal(r->result.status, SL_OK);
    return r;
}

/* What an engine without any cache answers. */
static struct run *plain(uint32_t seed, uint32_t n_prompt, uint32_t max_tokens) {
    struct sl_engine_config c = config(1);
    c.cache_dir = NULL;
    struct sl_engine *e = new_engine(&tiny, &c);
    struct run *r = make(seed, n_prompt, max_tokens);
    r->req.no_cache = true;
    answer(e, r);
    sl_engine_destroy(&e);
    return r;
}

static void wait_blocks(int64_t n) {
    for (uint32_t i = 0; i < 12000 && sl_metric(prefix_disk_blocks) < n; i++)
        usleep(5000);
    assert_true(sl_metric(prefix_disk_blocks) >= n);
}

static void a_restart_finds_what_was_computed(void **state) {
    (void)state;
    struct run *want = plain(1, 400, 100);
    struct sl_engine *e = start(2);
    struct run *r = answer(e, make(1, 400, 100));
    assert_same_tokens(want, r);
    free_run(r);
    sl_engine_destroy(&e); /* writes the rest: 499 positions are known, 7 pages */
    static char names[64][256];
    assert_int_equal(list_folder(&folder, ".kv", names, 64), 7);
    for (uint32_t pass = 0; pass < 2; pass++) {
        e = start(2);
        int64_t computed = sl_metric(prompt_tokens_total);
        int64_t hits = sl_metric(prefix_disk_hit_tokens_total);
        r = answer(e, make(1, 400, 100));
        assert_same_tokens(want, r);
        assert_int_equal(r->result.n_cached, 384);
        assert_int_equal(sl_metric(prompt_tokens_total) - computed, 16);
        assert_int_equal(sl_metric(prefix_disk_hit_tokens_total) - hits, 384);
        free_run(r);
        r = answer(e, make(1, 400, 100)); /* from memory now */
        assert_same_tokens(want, r);
        assert_int_equal(sl_metric(prefix_disk_hit_tokens_total) - hits, 384);
        free_run(r);
        sl_engine_destroy(&e);
    }
    free_run(want);
}

/* What memory had to give up comes back from disk, for several at once. */
static void eviction_and_back(void **state) {
    (void)state;
    struct sl_engine *e = start(3);
    struct run *want[8];
    for (uint32_t i = 0; i < 8; i++) { /* 8 x 7 pages, of which 30 fit */
        want[i] = answer(e, make(10 + i, 400, 60));
        wait_blocks(7 * (i + 1));
    }
    int64_t hits = sl_metric(prefix_disk_hit_tokens_total);
    for (uint32_t i = 0; i < 8; i += 2) {
        struct run *r[4];
        for (uint32_t k = 0; k < 4; k++) { /* two texts, each twice */
            r[k] = make(10 + i + k % 2, 400, 60);
            submit(e, r[k]);
        }
        for (uint32_t k = 0; k < 4; k++) {
            wait_run(r[k]);
            assert_same_tokens(want[i + k % 2], r[k]);
            assert_int_equal(r[k]->result.n_cached, 384);
            free_run(r[k]);
        }
    }
    assert_true(sl_metric(prefix_disk_hit_tokens_total) - hits >= 4 * 384);
    for (uint32_t i = 0; i < 8; i++)
        free_run(want[i]);
    assert_int_equal(sl_metric(kv_pages_used), 0);
    sl_engine_destroy(&e);
}

/* Damaged, cut and exchanged files are passed over, and what they held is computed. */
static void damaged_files_do_not_show(void **state) {
    (void)state;
    static char names[64][256];
    char path[512], other[512];
    struct run *want = plain(2, 400, 40);
    for (uint32_t kind = 0; kind < 4; kind++) {
        struct sl_engine *e = start(1);
        free_run(answer(e, make(2, 400, 40)));
        sl_engine_destroy(&e);
        uint32_t n = list_folder(&folder, ".kv", names, 64);
        assert_int_equal(n, 6);
        for (uint32_t i = 0; i < n; i++) {
            path_in(&folder, names[i], path);
            path_in(&folder, names[(i + 1) % n], other);
            if (kind == 0)
                flip_bit(&folder, names[i], 900 + 77 * i);
            else if (kind == 1)
                assert_int_equal(truncate(path, 512 + 100 * i), 0);
            else if (kind == 2 && i % 2 == 0)
                assert_int_equal(rename(path, other), 0);
            else if (kind == 3 && i == 3)
                flip_bit(&folder, names[i], 2000); /* one alone */
        }
        int64_t bad = sl_metric(prefix_disk_bad_total);
        e = start(1);
        struct run *r = answer(e, make(2, 400, 40));
        assert_same_tokens(want, r);
        assert_true(kind == 3 ? r->result.n_cached < 384 : r->result.n_cached == 0 || kind == 2);
        free_run(r);
        assert_true(sl_metric(prefix_disk_bad_total) > bad || kind == 2);
        sl_engine_destroy(&e); /* and writes them again */
    }
    free_run(want);
}

static void cancel_at_once(struct run *r) {
    sl_engine_cancel(r->engine, &r->req);
}

/* Clients that leave while their text is read. */
static void leaving_while_loading(void **state) {
    (void)state;
    struct run *want = plain(3, 500, 30);
    struct sl_engine *e = start(2);
    free_run(answer(e, make(3, 500, 30)));
    sl_engine_destroy(&e);
    for (uint32_t i = 0; i < 20; i++) {
        e = start(2);
        struct run *gone = make(3, 500, 30), *stays = make(3, 500, 30);
        gone->on_progress = cancel_at_once;
        submit(e, gone);
        submit(e, stays);
        usleep(i * 100);
        sl_engine_cancel(e, &gone->req);
        wait_run(gone);
        if (i % 4 == 3) {
            sl_engine_destroy(&e); /* in the middle of it */
            assert_int_equal(stays->n_finish, 1);
        } else {
            wait_run(stays);
            assert_same_tokens(want, stays);
            assert_int_equal(sl_metric(kv_pages_used), 0);
            sl_engine_destroy(&e);
        }
        free_run(gone);
        free_run(stays);
    }
    free_run(want);
}

/* Killed at any moment, the next process finds a sound folder. */
static void killed_at_any_moment(void **state) {
    (void)state;
#ifdef __SANITIZE_THREAD__
    print_message("not run: TSan allows no threads in a child\n");
    skip();
#endif
    struct run *want = plain(4, 500, 60);
    uint32_t found = 0;
    for (uint32_t i = 0; i < 8; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            struct sl_engine *e = start(1);
            struct run *r = make(4, 500, 0);
            submit(e, r);
            pause();
            _exit(1);
        }
        usleep(10000 + 15000 * i);
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        int64_t bad = sl_metric(prefix_disk_bad_total);
        struct sl_engine_config c = config(1);
        c.cache_disk_bytes = 64 << 20;
        struct sl_engine *e = new_engine(&tiny, &c);
        struct run *r = answer(e, make(4, 500, 60));
        assert_same_tokens(want, r);
        found += r->result.n_cached > 0;
        assert_int_equal(sl_metric(prefix_disk_bad_total), bad);
        free_run(r);
        if (i == 7) { /* from memory now */
            r = answer(e, make(4, 500, 60));
            assert_same_tokens(want, r);
            assert_int_equal(r->result.n_cached, 448);
            free_run(r);
        }
        sl_engine_destroy(&e);
        if (i < 4) { /* from nothing again, at first */
            close_folder(&folder);
            assert_int_equal(mkdir(folder.path, 0700), 0);
        }
    }
    assert_true(found >= 3);
    free_run(want);
}

static struct sl_hash128 of(const struct sl_engine *e) {
    return sl_arithmetic_hash(e->stages->dev);
}

/* Another type, another file, another arithmetic: another text. */
static void what_bits_depend_on_parts_texts(void **state) {
    (void)state;
    struct sl_engine *e = start(1);
    free_run(answer(e, make(5, 300, 5)));
    struct sl_hash128 id[6];
    const struct sl_seq_config kept = {.kv_dtype = SL_DTYPE_F16}, *f16 = &kept;
    const struct sl_seq_config small = {.kv_dtype = SL_DTYPE_Q8_0}, *q8_0 = &small;
    assert_ok(sl_model_identity(tiny.model, f16, of(e), &id[0], &test_err));
    assert_ok(sl_model_identity(tiny.model, q8_0, of(e), &id[1], &test_err));
    e->stages->dev->caps.arithmetic++;
    assert_ok(sl_model_identity(tiny.model, f16, of(e), &id[2], &test_err));
    e->stages->dev->caps.arithmetic = 0;
    assert_ok(sl_model_identity(tiny.model, f16, of(e), &id[3], &test_err));
    sl_engine_destroy(&e);

    struct sl_engine_config c = config(1);
    c.kv_dtype = SL_DTYPE_Q8_0;
    e = new_engine(&tiny, &c);
    struct run *r = answer(e, make(5, 300, 5));
    assert_int_equal(r->result.n_cached, 0);
    free_run(r);
    sl_engine_destroy(&e);

    struct test_model other; /* the same shape and size, other weights */
    struct sl_synth_config sc = tiny_config("qwen3moe");
    sc.seed++;
    open_model(&other, &sc);
    c = config(1);
    e = new_engine(&other, &c);
    assert_ok(sl_model_identity(other.model, f16, of(e), &id[4], &test_err));
    r = answer(e, make(5, 300, 5));
    assert_int_equal(r->result.n_cached, 0);
    free_run(r);
    sl_engine_destroy(&e);
    close_model(&other);

    e = start(1);
    assert_ok(sl_model_identity(tiny.model, f16, of(e), &id[5], &test_err));
    r = answer(e, make(5, 300, 5));
    assert_int_equal(r->result.n_cached, 256);
    free_run(r);
    sl_engine_destroy(&e);
    assert_memory_equal(&id[0], &id[5], sizeof id[0]);
    for (uint32_t i = 0; i < 5; i++)
        for (uint32_t k = 0; k < i; k++)
            assert_memory_not_equal(&id[i], &id[k], sizeof id[0]);
}

#ifndef STAGES_BEHIND_BYTES /* which puts another source in place of this one */
/* A stage that says that another arithmetic than its device's computes its layers, as one of
 * another machine may. */
struct foreign {
    struct sl_stage base; /* first */
    struct sl_stage_owner owner;
    struct sl_stage *behind;
    struct sl_stage_owner *asked_by;
};
static uint64_t foreign_arithmetic;

static void foreign_answered(struct sl_stage_owner *o, struct sl_stage_call *c) {
    struct foreign *f = (struct foreign *)((char *)o - offsetof(struct foreign, owner));
    if (c->ask.what == SL_STAGE_HELLO)
        c->answer.hello.arithmetic.lo ^= foreign_arithmetic;
    c->owner = f->asked_by;
    c->owner->answered(c->owner, c);
}

static void foreign_send(struct sl_stage *s, struct sl_stage_call *c) {
    struct foreign *f = (struct foreign *)s;
    f->asked_by = c->owner;
    c->owner = &f->owner;
    f->behind->ops->send(f->behind, c);
}

static void foreign_close(struct sl_stage *s) {
    free(s);
}

static enum sl_status foreign_wrap(const struct sl_stage_source *source, uint32_t index,
                                   struct sl_stage *behind, struct sl_stage **out_stage,
                                   struct sl_err *err) {
    static const struct sl_stage_ops ops = {.send = foreign_send, .close = foreign_close};
    (void)source, (void)index, (void)err;
    struct foreign *f = calloc(1, sizeof *f);
    assert_non_null(f);
    *f =
        (struct foreign){.base = {&ops}, .owner = {.answered = foreign_answered}, .behind = behind};
    *out_stage = &f->base;
    return SL_OK;
}

/* The stages are asked what their bits depend on, not the devices that this process sees. */
static void stages_say_what_bits_depend_on(void **state) {
    (void)state;
    static const struct sl_stage_source elsewhere = {foreign_wrap};
    static const uint64_t arithmetic[] = {0, 0, 1, 2, 1};
    static const uint32_t cached[] = {0, 256, 0, 0, 256};
    for (uint32_t i = 0; i < 5; i++) {
        struct sl_engine_config c = config(1);
        c.stage_source = &elsewhere;
        foreign_arithmetic = arithmetic[i];
        struct sl_engine *e = new_engine(&tiny, &c);
        struct run *r = answer(e, make(5, 300, 5));
        assert_int_equal(r->result.n_cached, cached[i]);
        free_run(r);
        sl_engine_destroy(&e);
    }
}

#endif

/* Layers on another card: another text, unless the card is of the same kind. */
static void what_other_devices_add(void **state) {
    (void)state;
    static const struct sl_backend_ops ops = {.name = "cards"};
    struct sl_device one = {.ops = &ops}, two = one, three = one;
    snprintf(one.caps.arithmetic_id, sizeof one.caps.arithmetic_id, "cards: fast, sm_90");
    snprintf(two.caps.arithmetic_id, sizeof two.caps.arithmetic_id, "cards: fast, sm_90");
    snprintf(three.caps.arithmetic_id, sizeof three.caps.arithmetic_id, "cards: slow, sm_75");
    const struct sl_hash128 before = {5, 7};
    struct sl_hash128 id[4] = {before, before, before, before};
    sl_model_identity_add(sl_arithmetic_hash(&one), sl_arithmetic_hash(&two), 1, 3, &id[0]);
    assert_memory_equal(&id[0], &before, sizeof before);
    sl_model_identity_add(sl_arithmetic_hash(&one), sl_arithmetic_hash(&three), 1, 3, &id[1]);
    sl_model_identity_add(sl_arithmetic_hash(&one), sl_arithmetic_hash(&three), 2, 2, &id[2]);
    three.caps.arithmetic = 1;
    sl_model_identity_add(sl_arithmetic_hash(&one), sl_arithmetic_hash(&three), 1, 3, &id[3]);
    for (uint32_t i = 0; i < 4; i++)
        for (uint32_t k = 0; k < i; k++)
            assert_memory_not_equal(&id[i], &id[k], sizeof before);
    /* Of one id and version, whatever else they are. */
    memcpy(three.caps.arithmetic_id, one.caps.arithmetic_id, sizeof one.caps.arithmetic_id);
    snprintf(three.caps.name, sizeof three.caps.name, "another");
    one.caps.arithmetic = 1;
    id[3] = before;
    sl_model_identity_add(sl_arithmetic_hash(&one), sl_arithmetic_hash(&three), 1, 3, &id[3]);
    assert_memory_equal(&id[3], &before, sizeof before);
}

/* The bits of a page, as this version of the arithmetic makes them: when this fails because an op's
 * result has changed, raise SL_CPU_ARITHMETIC (backends/cpu/cpu.h) and set the new value here, so
 * that nobody is given pages of the old kind. */
static void the_version_stands_for_the_bits(void **state) {
    (void)state;
    static char names[4][256];
    static uint8_t block[1 << 20];
    char path[512];
    struct sl_engine *e = start(1);
    free_run(answer(e, make(9, 65, 1)));
    sl_engine_destroy(&e);
    assert_int_equal(list_folder(&folder, ".kv", names, 4), 1);
    path_in(&folder, names[0], path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = read(fd, block, sizeof block);
    close(fd);
    assert_int_equal(n, SL_BLOCK_HEAD_BYTES + 3 * 2 * 64 * 2 * 32 * 2);
    struct sl_hash128 bits = sl_siphash128((struct sl_hash128){0, 0}, block + SL_BLOCK_HEAD_BYTES,
                                           (size_t)n - SL_BLOCK_HEAD_BYTES);
    assert_int_equal(SL_CPU_ARITHMETIC, 2);
    if (bits.lo != UINT64_C(0xa0d851329da0b7f5))
        fail_msg("the bits are %#llx", (unsigned long long)bits.lo);
}

/* A second process on the folder works, with its memory alone. */
static void a_taken_folder_is_left_alone(void **state) {
    (void)state;
    struct sl_engine *e = start(1), *second = start(1);
    assert_non_null(e->disk);
    assert_null(second->disk);
    struct run *a = answer(e, make(6, 300, 20)), *b = answer(second, make(6, 300, 20));
    assert_same_tokens(a, b);
    free_run(a);
    free_run(b);
    sl_engine_destroy(&second);
    sl_engine_destroy(&e);
    struct sl_engine_config c = config(1);
    c.cache_dir = "/proc/none";
    assert_int_equal(sl_engine_create(tiny.model, &c, NULL, &e, &test_err), SL_ERR_CONFIG);
    assert_non_null(strstr(test_err.text, "/proc/none"));
}

static void reading_must_pay(void **state) {
    (void)state;
    assert_true(sl_prefix_disk_pays(0, 0, 5)); /* nothing is known */
    assert_true(sl_prefix_disk_pays(1e6, 0, 5));
    assert_true(sl_prefix_disk_pays(0, 1e6, 5));
    assert_true(sl_prefix_disk_pays(1e6, 1e6, 1));
    assert_true(sl_prefix_disk_pays(50e6, 1e6, 5));
    assert_false(sl_prefix_disk_pays(60e6, 1e6, 5));
}

int main(void) {
    sl_log_set_level(SL_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_restart_finds_what_was_computed, setup, teardown),
        cmocka_unit_test_setup_teardown(eviction_and_back, setup, teardown),
        cmocka_unit_test_setup_teardown(damaged_files_do_not_show, setup, teardown),
        cmocka_unit_test_setup_teardown(leaving_while_loading, setup, teardown),
        cmocka_unit_test_setup_teardown(killed_at_any_moment, setup, teardown),
        cmocka_unit_test_setup_teardown(what_bits_depend_on_parts_texts, setup, teardown),
#ifndef STAGES_BEHIND_BYTES
        cmocka_unit_test_setup_teardown(stages_say_what_bits_depend_on, setup, teardown),
#endif
        cmocka_unit_test(what_other_devices_add),
        cmocka_unit_test_setup_teardown(the_version_stands_for_the_bits, setup, teardown),
        cmocka_unit_test_setup_teardown(a_taken_folder_is_left_alone, setup, teardown),
        cmocka_unit_test(reading_must_pay),
    };
    int failed = cmocka_run_group_tests(tests, open_tiny, close_tiny);
    const struct CMUnitTest killed[] = {
        cmocka_unit_test_setup_teardown(killed_at_any_moment, setup, teardown)};
    for (of_kind = 0; of_kind < sizeof kinds / sizeof *kinds && !UNDER_TSAN;
         of_kind += BY_BUILD(1, 3, 1))
        failed += cmocka_run_group_tests(killed, open_kind, close_tiny);
    return failed;
}
