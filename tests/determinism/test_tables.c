/* Tables that are read by row: whole runs with all tables resident, compared bit for bit with runs
 * that read the rows of their tokens when they need them, over sizes of the row cache, ways of
 * reading, threads, batches, sessions at once, experts in slots, devices, mirrors, and steps that
 * are given up. Compared are ids, log-probabilities and every logit of a scored text. */
#include "tests/support/budget.h"
#include "tests/support/slow_build.h"

#include "common/crc.h"
#include "common/metrics.h"
#include "engine/engine.h"

#define N_RUNS   5u
#define N_SCORE  40u
#define N_ANSWER BY_BUILD(16u, 8u, 8u)

struct outcome {
    struct run *run[N_RUNS];
    uint32_t logits_crc[N_SCORE];
};

struct setting {
    bool streamed;
    uint64_t cache_bytes; /* 0: the plan's choice; 1: none */
    enum sl_experts_io io;
    bool buffered;
    uint32_t threads, parallel, batch;
    bool experts; /* in slots, as few as can be */
    bool mirror;
    const char *split; /* over stages, each with a CPU of its own; NULL: one */
    bool cancel;       /* another request is canceled again and again meanwhile */
};

static const char *describe(const struct setting *t) {
    static char text[200];
    snprintf(text, sizeof text,
             "%s, cache %llu, io %d%s, %u threads, %u at once, batch %u%s%s%s%s%s",
             t->streamed ? "streamed" : "resident", (unsigned long long)t->cache_bytes, (int)t->io,
             t->buffered ? " buffered" : "", t->threads, t->parallel, t->batch,
             t->experts ? ", experts in slots" : "", t->mirror ? ", mirror" : "",
             t->split ? ", over " : "", t->split ? t->split : "", t->cancel ? ", cancels" : "");
    return text;
}

static bool on_logits(void *ctx, uint32_t pos, const float *logits) {
    struct outcome *o = ctx;
    o->logits_crc[pos] = sl_crc32c(0, logits, 512 * sizeof *logits);
    return true;
}

static struct run *make_run(uint32_t i) {
    static const uint32_t n_prompt[N_RUNS] = {1, 40, 130, 65, 17};
    struct run *r = new_run(31 + i, n_prompt[i], 512, N_ANSWER);
    r->req.logprobs = true;
    r->req.ignore_eog = true;
    if (i % 2) {
        r->req.sampling.temperature = 1.1f;
        r->req.sampling.seed = i;
    }
    return r;
}

static void leave(struct run *r) {
    if (r->n == 3)
        sl_engine_cancel(r->engine, &r->req);
}

static enum sl_status open_cpu(const struct sl_device_source *source, uint32_t index,
                               struct sl_device **out_device, struct sl_err *err) {
    (void)source, (void)index;
    return sl_cpu_open(&(struct sl_cpu_config){.n_threads = 1, .isa = SL_CPU_BEST}, out_device,
                       err);
}

static uint64_t looked_up(void) {
    return (uint64_t)sl_metric(table_hits_total) + (uint64_t)sl_metric(table_misses_total);
}

static void run_setting(struct test_model *m, const struct setting *t, struct outcome *out) {
    const char *mirrors[] = {m->path};
    struct sl_device_source cpus = {open_cpu, 1};
    for (const char *at = t->split; at && (at = strchr(at, ',')) != NULL; at++)
        cpus.n_devices++;
    struct sl_engine_config c = {.n_threads = t->threads,
                                 .ctx_tokens = 300,
                                 .parallel = t->parallel,
                                 .batch_tokens = t->batch,
                                 .tables = t->streamed ? SL_TABLES_STREAMED : SL_TABLES_RESIDENT,
                                 .table_cache_bytes = t->cache_bytes,
                                 .io = t->io,
                                 .io_buffered = t->buffered,
                                 .device_source = t->split ? &cpus : NULL,
                                 .split = t->split,
                                 .mirrors = mirrors,
                                 .n_mirrors = t->mirror,
                                 .no_warm_up = true,
                                 .experts = SL_EXPERTS_RESIDENT,
                                 .ram_bytes = AMPLE_BYTES};
    if (t->experts)
        set_budget(m->model, &c, 0);
    uint64_t before = looked_up(), misses = (uint64_t)sl_metric(table_misses_total);
    struct sl_engine *e;
    enum sl_status status = sl_engine_create(m->model, &c, NULL, &e, &test_err);
    if (status != SL_OK)
        fail_msg("%s: %s", describe(t), test_err.text);
    /* Each stage has its layers' part, where these end as blocks do. */
    const struct sl_gguf_tensor *table = m->model->global[SL_G_LAYER_EMBD];
    if (!table)
        table = m->model->global[SL_G_NGRAMS];
    uint64_t kept = t->streamed || !table ? 0 : table->size_bytes, shown = sl_metric(table_bytes);
    assert_true(m->model->hp.n_embd_layer % 32 && t->split ? shown >= kept : shown == kept);
    struct run *left = NULL;
    for (uint32_t i = 0; i < N_RUNS; i++) {
        out->run[i] = make_run(i);
        if (t->cancel) {
            left = make_run(2);
            left->on_token = leave;
            submit(e, left);
        }
        submit(e, out->run[i]);
        if (t->cancel) {
            wait_run(left);
            free_run(left);
        }
    }
    for (uint32_t i = 0; i < N_RUNS; i++) {
        struct run *r = out->run[i];
        wait_run(r);
        if (r->result.status != SL_OK || r->n != N_ANSWER)
            fail_msg("%s: %u tokens: %s", describe(t), r->n, r->result.err.text);
    }
    assert_ok(sl_engine_score(e, out->run[2]->prompt, N_SCORE, on_logits, out, &test_err));
    if (t->streamed)
        assert_true((uint64_t)sl_metric(table_misses_total) > misses);
    else
        assert_int_equal(looked_up(), before);
    sl_engine_destroy(&e);
}

static void check(struct test_model *m, const struct setting *t, const struct outcome *want) {
    struct outcome have;
    run_setting(m, t, &have);
    for (uint32_t i = 0; i < N_RUNS; i++) {
        for (uint32_t j = 0; j < N_ANSWER; j++) {
            const struct sl_token *a = &want->run[i]->tokens[j], *b = &have.run[i]->tokens[j];
            if (a->id != b->id || memcmp(&a->logprob, &b->logprob, sizeof a->logprob) != 0)
                fail_msg("%s: request %u differs at token %u: %u, not %u", describe(t), i, j, b->id,
                         a->id);
        }
        free_run(have.run[i]);
    }
    for (uint32_t i = 0; i < N_SCORE; i++)
        if (want->logits_crc[i] != have.logits_crc[i])
            fail_msg("%s: the logits of position %u differ", describe(t), i);
}

static void compare_all(const struct sl_synth_config *sc, bool has_experts,
                        const char *const splits[2]) {
    static const uint64_t caches[] = {0, 1, 3000, (uint64_t)1 << 20};
    struct test_model m;
    struct outcome want;
    open_model(&m, sc);
    run_setting(&m, &(struct setting){.threads = 1, .parallel = 1, .batch = 512}, &want);
    uint32_t distinct = 0;
    for (uint32_t j = 1; j < N_ANSWER; j++)
        distinct += want.run[1]->tokens[j].id != want.run[1]->tokens[j - 1].id;
    assert_true(distinct > N_ANSWER / 3);
    for (uint32_t k = 0; k < 4; k++)
        for (uint32_t io = 0; io < 3; io++) {
            if (UNDER_ASAN && io != k % 3)
                continue;
            struct setting t = {.streamed = true,
                                .cache_bytes = caches[k],
                                .io = io == 1 ? SL_EXPERTS_IO_PREAD : SL_EXPERTS_IO_AUTO,
                                .buffered = io == 2,
                                .threads = 1 + (k + io) % 3,
                                .parallel = (k + io) % 2 ? 4 : 1,
                                .batch = k % 2 ? 37 : 512,
                                .experts = has_experts && (k + io) % 3 == 0,
                                .mirror = (k + io) % 3 == 1};
            check(&m, &t, &want);
        }
    check(&m,
          &(struct setting){.streamed = true,
                            .cache_bytes = 3000,
                            .threads = 2,
                            .parallel = 4,
                            .batch = 48,
                            .cancel = true},
          &want);
    for (uint32_t i = 0; i < 2; i++)
        for (uint32_t streamed = 0; streamed < 2; streamed++)
            check(&m,
                  &(struct setting){.streamed = streamed,
                                    .cache_bytes = 3000,
                                    .threads = 1,
                                    .parallel = 4,
                                    .batch = 48,
                                    .split = splits[i]},
                  &want);
    for (uint32_t i = 0; i < N_RUNS; i++)
        free_run(want.run[i]);
    close_model(&m);
}

/* Embeddings of layers, of a dense model. The output is the tokens' embedding: that stays. */
static void layers_embeddings(void **state) {
    (void)state;
    struct sl_synth_config c = tiny_config("gemma4");
    c.n_layer = 5;
    c.window_period = 2;
    c.window = 40;
    c.n_embd_layer = 32;
    c.n_shared_kv = 1;
    c.n_expert = c.n_expert_used = 0;
    c.tied = true;
    compare_all(&c, false, (const char *[]){"1,4", "1,1,3"});
}

/* Of one with experts, whose output is a matrix of its own: two tables. */
static void both_embeddings(void **state) {
    (void)state;
    struct sl_synth_config c = tiny_config("gemma4");
    c.n_layer = 4;
    c.n_embd_layer = 32;
    c.embd = SL_DTYPE_Q8_0;
    compare_all(&c, true, (const char *[]){"1,3", "1,1,1,1"});
}

/* Blocks of the type that end within a layer's: stages keep some of others'. */
static void layers_within_blocks(void **state) {
    (void)state;
    struct sl_synth_config c = tiny_config("gemma4");
    c.n_layer = 8;
    c.n_embd_layer = 40;
    c.embd = SL_DTYPE_Q8_0;
    c.n_expert = c.n_expert_used = 0;
    compare_all(&c, false, (const char *[]){"3,5", "1,2,2,3"});
}

/* Embeddings of n-grams, of which a token has several rows, and the tokens' own. */
static void ngrams(void **state) {
    (void)state;
    struct sl_synth_config c = tiny_config("qwen4exp");
    c.n_layer = 4;
    c.n_ngram_head = 4;
    c.n_ngram_rows = 900;
    c.index_block = 4;
    c.n_index_top = 16;
    compare_all(&c, true, (const char *[]){"1,3", "1,1,1,1"});
}

/* The tokens' embeddings alone, of stages too. */
static void tokens_embeddings(void **state) {
    (void)state;
    struct sl_synth_config c = tiny_config("qwen3moe");
    c.n_layer = 4;
    compare_all(&c, true, (const char *[]){"2,2", "1,2,1"});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_embeddings),    cmocka_unit_test(both_embeddings),
        cmocka_unit_test(layers_within_blocks), cmocka_unit_test(ngrams),
        cmocka_unit_test(tokens_embeddings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
