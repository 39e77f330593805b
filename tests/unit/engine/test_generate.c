/* Whole runs on tiny models: what is scheduled together, how prompts are sliced and how many
 * threads compute must not show in a single bit of the output. */
#include "tests/support/slow_build.h"
#include "tests/unit/engine/fixture.h"

#include "engine/sample/sampler.h"

#include <fcntl.h>

/* One of each kind of layer first: the others bring no other threads. The last differ in their
 * attention: gates, sinks and narrow values, two numbers of heads, limits, soft caps, chunks, parts
 * side by side. */
static const char *const archs[] = {
    "gpt-oss",  "qwen35moe",    "deepseek2",  "qwen3moe",    "qwen2moe",       "llama",
    "olmoe",    "qwen3",        "qwen3next",  "qwen35",      "ernie4_5-moe",   "hunyuan-moe",
    "gemma4",   "smallthinker", "maple",      "phimoe",      "lfm2moe",        "granitehybrid",
    "jamba",    "deepseek32",   "glm-dsa",    "kimi-linear", "nemotron_h_moe", "nemotron_h",
    "grovemoe", "bailingmoe3",  "minimax-m3", "dots3note",   "deepseek4",      "afmoe",
    "mimo2",    "step35",       "dbrx",       "grok",        "llama4",         "cohere2moe",
    "arctic",   "kimi-k3",      "qwen4exp"};
#define N_ARCHS BY_BUILD(sizeof archs / sizeof *archs, sizeof archs / sizeof *archs, 3)

#define N_RUNS BY_BUILD(8u, 8u, 5u)

/* Requests with different lengths and settings, half of them sampled. */
static void make_runs(struct run **runs, uint32_t n_vocab) {
    for (uint32_t i = 0; i < N_RUNS; i++) {
        runs[i] = new_run(100 + i, 3 + 29 * i, n_vocab, 24);
        runs[i]->req.logprobs = true;
        runs[i]->req.n_top_logprobs = 3;
        struct sl_sampling *s = &runs[i]->req.sampling;
        if (i % 2) {
            s->temperature = 0.9f;
            s->seed = i;
            s->top_p = 0.95f;
            s->repeat_penalty = 1.1f;
        }
    }
}

static void free_runs(struct run **runs) {
    for (uint32_t i = 0; i < N_RUNS; i++)
        free_run(runs[i]);
}

static void run_all(const struct test_model *m, const struct sl_engine_config *c, bool together,
                    struct run **out_runs) {
    struct sl_engine *e = new_engine(m, c);
    make_runs(out_runs, m->model->hp.n_vocab);
    for (uint32_t i = 0; i < N_RUNS; i++) {
        submit(e, out_runs[i]);
        if (!together)
            wait_run(out_runs[i]);
    }
    for (uint32_t i = 0; i < N_RUNS; i++) {
        wait_run(out_runs[i]);
        assert_int_equal(out_runs[i]->n_finish, 1);
        assert_int_equal(out_runs[i]->result.reason, SL_FINISH_LENGTH);
        assert_int_equal(out_runs[i]->result.status, SL_OK);
        assert_int_equal(out_runs[i]->result.n_predicted, 24);
        assert_int_equal(out_runs[i]->n, 24);
    }
    sl_engine_destroy(&e);
    assert_null(e);
}

/* Under a sanitizer, and behind messages in bytes, one of the variants. Threads meet in the steps
 * with more rows: where each row is a step they cost most of the time, and divide it no other way.
 */
#define ONE_VARIANT (SLOW_BUILD || BEHIND_BYTES)
static void check_scheduling(const char *arch, enum sl_dtype kv, uint32_t one_variant) {
    struct sl_synth_config sc = tiny_config(arch);
    struct test_model m;
    open_model(&m, &sc);
    struct sl_engine_config c = {
        .n_threads = 1, .ctx_tokens = 300, .parallel = 1, .batch_tokens = 512, .kv_dtype = kv};
    struct run *one[8], *other[8];
    run_all(&m, &c, false, one);
    static const struct {
        uint32_t parallel, batch, threads;
    } variants[] = {{3, 17, 3}, {8, 8, 1}, {8, 512, 2}, {1, 1, 1}, {5, 64, 2}};
    uint32_t first = ONE_VARIANT ? one_variant : 0;
    for (uint32_t v = first; v < (ONE_VARIANT ? first + 1 : 5); v++) {
        c.parallel = variants[v].parallel;
        c.batch_tokens = variants[v].batch;
        c.n_threads = variants[v].threads;
        run_all(&m, &c, true, other);
        for (uint32_t i = 0; i < N_RUNS; i++)
            assert_same_tokens(one[i], other[i]);
        free_runs(other);
    }
    free_runs(one);
    close_model(&m);
}

static void scheduling_does_not_show(void **state) {
    (void)state;
    for (uint32_t i = 0; i < N_ARCHS; i++)
        check_scheduling(archs[i], SL_DTYPE_F16, UNDER_TSAN ? 0 : i % 5);
}

static void scheduling_does_not_show_with_q8_kv(void **state) {
    (void)state;
    check_scheduling("qwen3moe", SL_DTYPE_Q8_0, 0);
}

/* Every instruction set gives the tokens of the plain-C definition. */
static void instruction_sets_agree(void **state) {
    (void)state;
    struct sl_synth_config sc = tiny_config("qwen2moe");
    struct test_model m;
    open_model(&m, &sc);
    struct sl_engine_config c = {.n_threads = 2, .ctx_tokens = 300, .parallel = 8, .cpu_isa = "c"};
    struct run *plain[8], *other[8];
    run_all(&m, &c, true, plain);
    static const char *const isas[] = {"avx2", "avx512", "vnni"};
    for (uint32_t v = 0; v < 3; v++) {
        struct sl_engine *e;
        c.cpu_isa = isas[v];
        enum sl_status status = sl_engine_create(m.model, &c, NULL, &e, &test_err);
        if (status == SL_ERR_UNSUPPORTED) {
            print_message("this machine has no %s\n", isas[v]);
            continue;
        }
        assert_int_equal(status, SL_OK);
        sl_engine_destroy(&e);
        run_all(&m, &c, true, other);
        for (uint32_t i = 0; i < N_RUNS; i++)
            assert_same_tokens(plain[i], other[i]);
        free_runs(other);
    }
    free_runs(plain);
    close_model(&m);
}

struct scored {
    float *logits; /* [n, n_vocab] */
    uint32_t n, n_vocab;
};

static bool keep_logits(void *ctx, uint32_t pos, const float *logits) {
    struct scored *s = ctx;
    assert_int_equal(pos, s->n);
    memcpy(s->logits + (size_t)s->n++ * s->n_vocab, logits, s->n_vocab * sizeof(float));
    return true;
}

/* Generating token by token and scoring the whole text at once are the same computation: the
 * log-probabilities agree bit for bit. Catches wrong positions, KV pages and masks. */
static void decode_agrees_with_scoring(void **state) {
    (void)state;
    const uint32_t n_new = BY_BUILD(100, 40, 20); /* over a page end */
    for (uint32_t a = 0; a < N_ARCHS; a++) {
        struct sl_synth_config sc = tiny_config(archs[a]);
        struct test_model m;
        open_model(&m, &sc);
        uint32_t n_vocab = m.model->hp.n_vocab;
        struct sl_engine_config c = {
            .n_threads = 1, .ctx_tokens = 256, .parallel = 2, .batch_tokens = 48};
        struct sl_engine *e = new_engine(&m, &c);
        struct run *r = new_run(7, 90, n_vocab, n_new);
        r->req.logprobs = true;
        r->req.ignore_eog = true;
        r->req.sampling.temperature = 1.5f;
        r->req.sampling.seed = a;
        submit(e, r);
        wait_run(r);
        assert_int_equal(r->n, n_new);
        uint32_t ids[190];
        memcpy(ids, r->prompt, 90 * sizeof *ids);
        for (uint32_t i = 0; i < n_new; i++)
            ids[90 + i] = r->tokens[i].id;
        struct scored s = {.n_vocab = n_vocab};
        s.logits = malloc((size_t)190 * n_vocab * sizeof(float));
        assert_ok(sl_engine_score(e, ids, 90 + n_new, keep_logits, &s, &test_err));
        assert_int_equal(s.n, 90 + n_new);
        uint32_t distinct = 0;
        for (uint32_t i = 0; i < n_new; i++) {
            const float *row = s.logits + (size_t)(89 + i) * n_vocab;
            float lp = (float)((double)row[ids[90 + i]] - sl_log_sum_exp(row, NULL, n_vocab));
            assert_memory_equal(&lp, &r->tokens[i].logprob, sizeof lp);
            distinct += i && ids[90 + i] != ids[89 + i];
        }
        assert_true(distinct > n_new / 2); /* the text is no constant */
        free(s.logits);
        free_run(r);
        sl_engine_destroy(&e);
        close_model(&m);
    }
}

/* A text that the context holds but the batch does not, and the ends of the range. */
static void score_bounds(void **state) {
    (void)state;
    struct sl_synth_config sc = tiny_config("qwen3moe");
    struct test_model m;
    open_model(&m, &sc);
    struct sl_engine_config c = {
        .ctx_tokens = 64, .parallel = 1, .batch_tokens = 7, .n_threads = 1};
    struct sl_engine *e = new_engine(&m, &c);
    uint32_t ids[65] = {0};
    struct scored s = {.n_vocab = m.model->hp.n_vocab};
    s.logits = malloc((size_t)64 * s.n_vocab * sizeof(float));
    assert_ok(sl_engine_score(e, ids, 64, keep_logits, &s, &test_err));
    assert_int_equal(s.n, 64);
    assert_int_equal(sl_engine_score(e, ids, 65, keep_logits, &s, &test_err), SL_ERR_CONTEXT_FULL);
    assert_int_equal(sl_engine_score(e, ids, 0, keep_logits, &s, &test_err), SL_ERR_INVALID);
    ids[3] = m.model->hp.n_vocab;
    assert_int_equal(sl_engine_score(e, ids, 5, keep_logits, &s, &test_err), SL_ERR_INVALID);
    assert_non_null(strstr(test_err.text, "token 3"));
    free(s.logits);
    sl_engine_destroy(&e);
    close_model(&m);
}

/* A table that gives a token an expert which is not there is refused by name, wherever its layer's
 * weights are. */
static void tables_that_lie(void **state) {
    (void)state;
    static const int32_t lies[] = {6, -1, INT32_MAX};
    for (uint32_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        struct sl_synth_config sc = tiny_config("deepseek4");
        struct sl_engine_config c = {.n_threads = 1, .ctx_tokens = 64, .parallel = 1};
        struct test_model m;
        struct sl_engine *e = NULL;
        sc.n_layer_table = 2;
        open_model(&m, &sc);
        const struct sl_gguf_tensor *t = m.model->layers[1].t[SL_L_ROUTER_TABLE];
        int fd = open(m.path, O_WRONLY);
        assert_true(fd >= 0);
        assert_int_equal(pwrite(fd, &lies[i], 4, (off_t)(t->offset_bytes + 4 * (2 * 500 + 1))), 4);
        close(fd);
        assert_int_equal(sl_engine_create(m.model, &c, NULL, &e, &test_err), SL_ERR_CORRUPT);
        assert_non_null(strstr(test_err.text, "blk.1.ffn_gate_tid2eid.weight"));
        assert_non_null(strstr(test_err.text, "token 500"));
        close_model(&m);
    }
}

int main(void) {
    sl_log_set_level(SL_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decode_agrees_with_scoring),
        cmocka_unit_test(scheduling_does_not_show),
        cmocka_unit_test(scheduling_does_not_show_with_q8_kv),
        cmocka_unit_test(instruction_sets_agree),
        cmocka_unit_test(score_bounds),
        cmocka_unit_test(tables_that_lie),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
