/* Placement decides the speed, never the answer: whole runs with the types and lengths of real use,
 * compared bit for bit over schedules, threads, instruction sets and loads of the same file.
 *
 * The unit tests of the engine do the same on the smallest models; here are quantised weights of
 * every kind and texts over many KV pages and over the fixed splits of attention. */
#include "tests/unit/engine/fixture.h"

#define N_RUNS   4u
#define N_ANSWER 24u

struct setting {
    uint32_t threads, parallel, batch;
    const char *isa;
    bool park;
};

static uint32_t prompt_tokens(uint32_t i, uint32_t longest) {
    return i == 0 ? longest : i == 1 ? 1 : i == 2 ? 65 : longest / 3;
}

/* False when this machine lacks the instruction set. */
static bool run_setting(const struct test_model *m, const struct setting *s, uint32_t longest,
                        enum sl_dtype kv, struct run **out) {
    struct sl_engine_config c = {.n_threads = s->threads,
                                 .ctx_tokens = longest + N_ANSWER,
                                 .parallel = s->parallel,
                                 .batch_tokens = s->batch,
                                 .kv_dtype = kv,
                                 .cpu_isa = s->isa};
    struct sl_engine *e;
    enum sl_status status = sl_engine_create(m->model, &c, NULL, &e, &test_err);
    if (status == SL_ERR_UNSUPPORTED && s->isa)
        return false;
    assert_int_equal(status, SL_OK);
    for (uint32_t i = 0; i < N_RUNS; i++) {
        out[i] = new_run(31 + i, prompt_tokens(i, longest), m->model->hp.n_vocab, N_ANSWER);
        out[i]->req.logprobs = true;
        out[i]->req.ignore_eog = true;
        out[i]->req.sampling.temperature = i % 2 ? 1.2f : 0.7f;
        out[i]->req.sampling.top_k = i % 2 ? 0 : 50;
        out[i]->req.sampling.seed = i;
        out[i]->park_every = s->park ? 3 + i : 0;
        submit(e, out[i]);
    }
    for (uint32_t i = 0; i < N_RUNS; i++) {
        wait_run(out[i]);
        assert_int_equal(out[i]->result.status, SL_OK);
        assert_int_equal(out[i]->n, N_ANSWER);
    }
    sl_engine_destroy(&e);
    return true;
}

static void compare_settings(const struct sl_synth_config *sc, uint32_t longest, enum sl_dtype kv,
                             const struct setting *settings, uint32_t n) {
    struct test_model m;
    open_model(&m, sc);
    struct run *want[N_RUNS], *have[N_RUNS];
    assert_true(run_setting(&m, &settings[0], longest, kv, want));
    uint32_t distinct = 0;
    for (uint32_t i = 1; i < N_ANSWER; i++)
        distinct += want[1]->tokens[i].id != want[1]->tokens[i - 1].id;
    assert_true(distinct > N_ANSWER / 3); /* the answers are no constants */
    for (uint32_t s = 1; s < n; s++) {
        if (!run_setting(&m, &settings[s], longest, kv, have)) {
            print_message("not compared: this machine has no %s\n", settings[s].isa);
            continue;
        }
        for (uint32_t i = 0; i < N_RUNS; i++) {
            assert_same_tokens(want[i], have[i]);
            free_run(have[i]);
        }
    }
    for (uint32_t i = 0; i < N_RUNS; i++)
        free_run(want[i]);
    close_model(&m);
}

static struct sl_synth_config wide_config(enum sl_dtype type) {
    struct sl_synth_config c = sl_synth_default;
    c.n_layer = 2;
    c.n_embd = 256;
    c.n_head = 6;
    c.n_head_kv = 2;
    c.head_dim = 64;
    c.n_ff_expert = 256;
    c.n_expert = 7;
    c.n_expert_used = 3;
    c.n_vocab = 640;
    c.n_ctx = 4096;
    c.attn = c.ffn = c.gate = c.up = c.down = (struct sl_synth_types){{type}, 1};
    return c;
}

/* Texts over many pages; slices that end inside pages and blocks. */
static void long_texts(void **state) {
    (void)state;
    struct sl_synth_config c = wide_config(SL_DTYPE_Q4_K);
    c.down = (struct sl_synth_types){{SL_DTYPE_Q6_K, SL_DTYPE_Q8_0}, 2};
    static const struct setting settings[] = {{1, 1, 2048, NULL, false},
                                              {2, 4, 512, NULL, false},
                                              {3, 4, 37, NULL, true},
                                              {2, 2, 65, NULL, true}};
    compare_settings(&c, 1100, SL_DTYPE_F16, settings, 4);
    compare_settings(&c, 700, SL_DTYPE_Q8_0, settings, 4);
}

static void every_weight_type(void **state) {
    (void)state;
    static const struct setting settings[] = {
        {1, 1, 512, NULL, false}, {2, 4, 512, NULL, false},   {3, 3, 29, NULL, false},
        {2, 4, 64, "c", false},   {1, 4, 512, "avx2", false}, {2, 4, 100, "avx512", false}};
    for (uint32_t t = 0; t < SL_DTYPE_COUNT; t++) {
        if (!sl_dtype_info(t))
            continue;
        struct sl_synth_config c = wide_config((enum sl_dtype)t);
        compare_settings(&c, 90, SL_DTYPE_F16, settings, 6);
    }
}

int main(void) {
    sl_log_set_level(SL_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_texts),
        cmocka_unit_test(every_weight_type),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
