/* Models whose layers have embeddings of their own, in slices: which part of them a slice keeps,
 * that it is the file's bytes however these come, what plans say of it, how layers are divided
 * where it counts, and prefixes. */
#include "tests/unit/engine/fixture.h"

#include "backends/cpu/cpu.h"
#include "engine/layers/layer_kind.h"
#include "engine/weights/weights.h"
#include "engine/plan/stage_costs.h"
#include "engine/tables/table_layout.h"
#include "model/arch/model_slice.h"
#include "tests/support/card.h"
#include "tests/support/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>

#define AMPLE_BYTES ((uint64_t)1 << 50)
#define LAYERS      8u

static const struct sl_weights_part all = {.experts = true};

static struct sl_synth_config dense(uint32_t n_embd_layer, enum sl_dtype embd) {
    struct sl_synth_config c = tiny_config("gemma4");
    c.n_layer = LAYERS;
    c.n_embd_layer = n_embd_layer;
    c.embd = embd;
    c.n_expert = c.n_expert_used = 0;
    return c;
}

static struct sl_model slice_of(const struct sl_model *m, uint32_t first, uint32_t n) {
    struct sl_model s;
    assert_ok(sl_model_slice_alone(m, first, n, &s, &test_err));
    return s;
}

/* ---- which part ---- */

static void whole_blocks_of_its_own_layers(void **state) {
    (void)state;
    static const struct {
        uint32_t n_embd_layer;
        enum sl_dtype dtype;
        uint32_t first, n, keeps, n_keeps;
    } cases[] = {{32, SL_DTYPE_Q8_0, 3, 2, 3, 2}, {32, SL_DTYPE_Q8_0, 0, 1, 0, 1},
                 {32, SL_DTYPE_Q8_0, 7, 1, 7, 1}, {40, SL_DTYPE_Q8_0, 3, 2, 0, 8},
                 {40, SL_DTYPE_Q8_0, 4, 3, 4, 4}, {40, SL_DTYPE_Q8_0, 1, 3, 0, 4},
                 {40, SL_DTYPE_F32, 3, 2, 3, 2},  {128, SL_DTYPE_Q4_K, 5, 1, 4, 2},
                 {128, SL_DTYPE_Q4_K, 6, 2, 6, 2}};
    for (uint32_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sl_synth_config c = dense(cases[i].n_embd_layer, cases[i].dtype);
        struct test_model m;
        c.n_embd = 256;
        open_model(&m, &c);
        const struct sl_gguf_tensor *table = m.model->global[SL_G_LAYER_EMBD];
        struct sl_model s = slice_of(m.model, cases[i].first, cases[i].n);
        struct sl_kept_layers keeps = sl_table_layers(&s), of_all = sl_table_layers(m.model);
        struct sl_tensor_cut cut;
        assert_int_equal(keeps.first, cases[i].keeps);
        assert_int_equal(keeps.n, cases[i].n_keeps);
        assert_int_equal(of_all.first, 0);
        assert_int_equal(of_all.n, LAYERS);
        assert_false(sl_table_cut(m.model, table, &cut));
        assert_false(sl_table_cut(&s, s.global[SL_G_LAYER_TOKENS], &cut));
        assert_false(sl_table_cut(&s, NULL, &cut));
        assert_int_equal(sl_table_cut(&s, table, &cut), keeps.n < LAYERS);
        /* So it is of what is read by row. */
        uint64_t row = table->size_bytes / table->ne[1];
        assert_int_equal(sl_table_row_bytes(&s, SL_TABLE_LAYERS), row * keeps.n / LAYERS);
        assert_int_equal(sl_tables_bytes(&s, 1u << SL_TABLE_LAYERS),
                         table->size_bytes * keeps.n / LAYERS);
        close_model(&m);
    }
}

/* The tokens' embeddings are with every layer, and are the input of none but the first. */
static void slices_have_what_theirs_are_made_of(void **state) {
    (void)state;
    for (uint32_t tied = 0; tied < 2; tied++) {
        struct sl_synth_config c = dense(32, SL_DTYPE_Q8_0);
        struct test_model m;
        c.tied = tied;
        open_model(&m, &c);
        const struct sl_gguf_tensor *tokens = m.model->global[SL_G_TOKEN_EMBD];
        for (uint32_t first = 0; first < LAYERS; first++)
            for (uint32_t n = !!first; first + n <= LAYERS; n++) {
                struct sl_model s = slice_of(m.model, first, n);
                bool last = first + n == LAYERS;
                assert_ptr_equal(s.global[SL_G_LAYER_TOKENS], n ? tokens : NULL);
                assert_int_equal(s.global[SL_G_LAYER_EMBD] != NULL, n > 0);
                assert_int_equal(s.global[SL_G_LAYER_PROJ] != NULL, n > 0);
                assert_int_equal(s.global[SL_G_LAYER_PROJ_NORM] != NULL, n > 0);
                assert_int_equal(s.hp.n_embd_layer, n ? 32 : 0);
                assert_int_equal(sl_model_has_input(&s), !first);
                assert_ptr_equal(sl_model_layer_tokens(&s),
                                 !first || (last && tied) ? NULL : tokens);
                /* They are read by row where they are no output matrix. */
                assert_ptr_equal(sl_table_tensor(&s, SL_TABLE_TOKENS),
                                 last && tied ? NULL
                                 : first || n ? tokens
                                              : m.model->global[SL_G_TOKEN_EMBD]);
                sl_model_slice_drop_input(&s);
                assert_false(sl_model_has_input(&s));
                assert_ptr_equal(s.global[SL_G_LAYER_TOKENS], n ? tokens : NULL);
            }
        close_model(&m);
    }
}

/* A layer that reads another's keys is named. */
static void cuts_keep_shared_keys_together(void **state) {
    (void)state;
    struct sl_synth_config c = dense(32, SL_DTYPE_Q8_0);
    struct test_model m;
    struct sl_model s;
    c.n_shared_kv = 3;
    c.window_period = 2;
    open_model(&m, &c);
    for (uint32_t first = 1; first < LAYERS; first++) {
        bool can = first <= 3;
        assert_int_equal(sl_model_slice(m.model, 0, first, &s, &test_err),
                         can ? SL_OK : SL_ERR_UNSUPPORTED);
        assert_int_equal(sl_model_slice(m.model, first, LAYERS - first, &s, &test_err),
                         can ? SL_OK : SL_ERR_UNSUPPORTED);
        if (!can)
            assert_non_null(strstr(test_err.text, "reads the keys and values of layer"));
    }
    struct card_source source;
    card_source_init(&source, &(struct card_config){.n_threads = 1, .n_cards = 2});
    struct sl_memory_plan p;
    struct sl_engine_config config = {.n_threads = 1,
                                      .ctx_tokens = 128,
                                      .parallel = 1,
                                      .batch_tokens = 16,
                                      .ram_bytes = AMPLE_BYTES,
                                      .device_source = &source.source,
                                      .split = "5,3"};
    assert_int_equal(sl_engine_plan(m.model, &config, &p, NULL, &test_err), SL_ERR_UNSUPPORTED);
    assert_non_null(strstr(test_err.text, "layer 5 reads the keys and values of layer 3"));
    config.split = NULL;
    assert_ok(sl_engine_plan(m.model, &config, &p, NULL, &test_err));
    assert_true(p.stages[1].first_layer <= 3);
    close_model(&m);
}

/* ---- its bytes ---- */

struct odd_io {
    struct sl_weights_io base;
    off_t fail_at; /* -1: never */
    bool odd;
    atomic_uint calls;
};

static ssize_t odd_pread(const struct sl_weights_io *io, int fd, void *buf, size_t n, off_t at) {
    struct odd_io *b = (struct odd_io *)(uintptr_t)io;
    uint32_t call = atomic_fetch_add(&b->calls, 1);
    if (fcntl(fd, F_GETFL) & O_DIRECT) /* what is not aligned would be read through the cache */
        assert_int_equal(((uintptr_t)buf | n | (uint64_t)at) % SL_IO_ALIGN_BYTES, 0);
    if (b->odd && call % 5 == 1) {
        errno = EINTR;
        return -1;
    }
    if (b->fail_at >= 0 && at <= b->fail_at && at + (off_t)n > b->fail_at) {
        errno = EIO;
        return -1;
    }
    size_t some = call % 3 == 0 ? 1237 : call % 3 == 1 ? 4096 : 100000;
    return pread(fd, buf, b->odd && n > some ? some : n, at);
}

static bool never_cached(const struct sl_weights_io *io, int fd, off_t offset, size_t n) {
    return (void)io, (void)fd, (void)offset, (void)n, false;
}

static uint8_t *bytes_of(const struct sl_model *m, const struct sl_gguf_tensor *t) {
    uint8_t *b = malloc(t->size_bytes);
    FILE *f = fopen(sl_gguf_file_path(m->gguf, t->file), "rb");
    assert_true(b && f);
    assert_int_equal(fseek(f, (long)t->offset_bytes, SEEK_SET), 0);
    assert_int_equal(fread(b, 1, t->size_bytes, f), t->size_bytes);
    fclose(f);
    return b;
}

static uint8_t *loaded(struct sl_device *d, const struct sl_weights *w,
                       const struct sl_gguf_tensor *t, size_t bytes) {
    struct sl_span at = sl_weights_span(w, t);
    uint8_t *b = malloc(bytes);
    assert_non_null(b);
    assert_int_equal(at.bytes, bytes);
    assert_ok(sl_device_download(d, b, at));
    assert_ok(sl_device_sync(d));
    return b;
}

static void check_bytes(const struct sl_model *m, const struct sl_model *s, struct sl_device *d,
                        const struct sl_weights *w) {
    const struct sl_gguf_tensor *table = s->global[SL_G_LAYER_EMBD];
    const struct sl_gguf_tensor *proj = s->global[SL_G_LAYER_PROJ];
    const struct sl_gguf_tensor *tokens = s->global[SL_G_LAYER_TOKENS];
    struct sl_kept_layers keeps = sl_table_layers(s);
    size_t row = table->size_bytes / table->ne[1], part = row * keeps.n / LAYERS;
    uint8_t *want = bytes_of(m, table), *have = loaded(d, w, table, part * table->ne[1]);
    for (uint64_t i = 0; i < table->ne[1]; i++)
        assert_memory_equal(have + i * part, want + i * row + row * keeps.first / LAYERS, part);
    free(want);
    free(have);
    size_t some = proj->size_bytes / LAYERS;
    want = bytes_of(m, proj);
    have = loaded(d, w, proj, some * keeps.n);
    assert_memory_equal(have, want + some * keeps.first, some * keeps.n);
    free(want);
    free(have);
    want = bytes_of(m, tokens);
    have = loaded(d, w, tokens, tokens->size_bytes);
    assert_memory_equal(have, want, tokens->size_bytes);
    free(want);
    free(have);
}

static void parts_are_the_files_bytes(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 8; i++) {
        /* Some MiB; less than the gaps that are read along. */
        static const uint32_t n_embd_layer[] = {8, 16, 40, 96};
        struct sl_synth_config c = dense(n_embd_layer[i % 4], SL_DTYPE_Q8_0);
        struct test_model m;
        c.n_vocab = i & 2 ? 6000 : 300;
        open_model(&m, &c);
        struct sl_model s = slice_of(m.model, 4, i & 2 ? 3 : 4);
        struct card_source source;
        struct sl_device *d;
        struct sl_weights *w = NULL;
        card_source_init(&source, &(struct card_config){.n_threads = 1, .n_cards = 1});
        if (i & 4)
            assert_ok(source.source.open(&source.source, 0, &d, &test_err));
        else
            assert_ok(sl_cpu_open(&(struct sl_cpu_config){.n_threads = 1, .isa = SL_CPU_BEST}, &d,
                                  &test_err));
        assert_ok(sl_weights_load(&s, all, d, &sl_weights_system_io, NULL, &w, &test_err));
        check_bytes(m.model, &s, d, w);
        sl_weights_destroy(&w);
        struct odd_io io = {.base = {odd_pread, never_cached}, .fail_at = -1, .odd = true};
        assert_ok(sl_weights_load(&s, all, d, &io.base, NULL, &w, &test_err));
        check_bytes(m.model, &s, d, w);
        sl_weights_destroy(&w);
        /* What is not kept of the table does no harm, and what cannot be read is named. */
        const struct sl_gguf_tensor *table = s.global[SL_G_LAYER_EMBD];
        struct sl_tensor_cut cut;
        assert_true(sl_table_cut(&s, table, &cut));
        io.odd = false;
        io.fail_at = (off_t)(table->offset_bytes + table->size_bytes / 2);
        assert_int_equal(sl_weights_load(&s, all, d, &io.base, NULL, &w, &test_err), SL_ERR_IO);
        if (i & 2) /* else it is in the middle of another read too */
            assert_non_null(strstr(test_err.text, "per_layer_token_embd.weight"));
        /* One of the whole model has all of it. */
        assert_ok(sl_weights_load(m.model, all, d, &sl_weights_system_io, NULL, &w, &test_err));
        assert_int_equal(sl_weights_span(w, table).bytes, table->size_bytes);
        sl_weights_destroy(&w);
        sl_device_close(&d);
        close_model(&m);
    }
}

static struct run *answer(struct sl_engine *e, const struct test_model *m) {
    struct run *r = new_run(5, 200, m->model->hp.n_vocab, 20);
    r->req.logprobs = r->req.ignore_eog = true;
    submit(e, r);
    wait_run(r);
    assert_int_equal(r->result.status, SL_OK);
    return r;
}

/* Over this split of CPUs the tokens are those of one. */
static void check_split(const struct test_model *m, const char *split) {
    struct card_source source;
    struct run *r[2];
    for (uint32_t i = 0; i < 2; i++) {
        card_source_init(&source, &(struct card_config){.n_threads = 1, .n_cards = 2, .plain = 3});
        struct sl_engine_config c = {.n_threads = 1,
                                     .ctx_tokens = 400,
                                     .parallel = 1,
                                     .batch_tokens = 48,
                                     .ram_bytes = AMPLE_BYTES,
                                     .device_source = i ? &source.source : NULL,
                                     .split = i ? split : NULL};
        struct sl_engine *e = new_engine(m, &c);
        r[i] = answer(e, m);
        sl_engine_destroy(&e);
    }
    assert_same_tokens(r[0], r[1]);
    free_run(r[0]);
    free_run(r[1]);
}

/* Rows that are too large to be read one by one: each slice has all of the table, or of the
 * projection, and computes with what is its. */
static void large_rows_are_not_cut(void **state) {
    (void)state;
    for (uint32_t of_table = 0; of_table < 2; of_table++) {
        struct sl_synth_config c = dense(of_table ? 2080 : 32, SL_DTYPE_F32);
        struct test_model m;
        struct sl_tensor_cut cut;
        c.n_vocab = 512;
        if (!of_table) {
            c.n_layer = 3;
            c.n_embd = 16416;
            c.n_ff = 32;
            c.embd = SL_DTYPE_Q8_0;
            c.ffn = (struct sl_synth_types){{SL_DTYPE_F32}, 1};
        }
        open_model(&m, &c);
        struct sl_model s = slice_of(m.model, 1, 2);
        assert_int_equal(sl_table_layers(&s).first, of_table ? 0 : 1);
        assert_int_equal(sl_table_layers(&s).n, of_table ? LAYERS : 2);
        assert_int_equal(sl_table_cut(&s, s.global[SL_G_LAYER_EMBD], &cut), !of_table);
        assert_false(sl_table_cut(&s, s.global[SL_G_LAYER_PROJ], &cut));
        assert_int_equal(sl_table_tensor(&s, SL_TABLE_LAYERS) != NULL, !of_table);
        check_split(&m, of_table ? "3,5" : "1,2");
        close_model(&m);
    }
}

/* A device must be able to read the tokens' embeddings wherever layers are. */
static void what_devices_must_do(void **state) {
    (void)state;
    struct sl_synth_config c = dense(32, SL_DTYPE_Q8_0);
    struct test_model m;
    struct sl_device *d;
    open_model(&m, &c);
    struct sl_model s = slice_of(m.model, 2, 3);
    struct sl_gguf_tensor tokens = *s.global[SL_G_LAYER_TOKENS];
    assert_ok(
        sl_cpu_open(&(struct sl_cpu_config){.n_threads = 1, .isa = SL_CPU_BEST}, &d, &test_err));
    d->caps.weight_dtype[SL_DTYPE_Q2_K] = false;
    assert_ok(sl_layers_check(&s, SL_DTYPE_F16, d, &test_err));
    tokens.dtype = SL_DTYPE_Q2_K;
    s.global[SL_G_LAYER_TOKENS] = &tokens;
    assert_int_equal(sl_layers_check(&s, SL_DTYPE_F16, d, &test_err), SL_ERR_UNSUPPORTED);
    sl_device_close(&d);
    close_model(&m);
}

/* ---- plans ---- */

static const struct sl_plan_row *row_of(const struct sl_memory_plan *p, const char *what,
                                        uint32_t stage) {
    for (uint32_t i = 0; i < p->n_rows; i++)
        if (strcmp(p->rows[i].what, what) == 0 && p->rows[i].stage == stage)
            return &p->rows[i];
    return NULL;
}

static struct sl_engine_config over(struct card_source *source, const char *split) {
    return (struct sl_engine_config){.n_threads = 1,
                                     .ctx_tokens = 128,
                                     .parallel = 1,
                                     .batch_tokens = 16,
                                     .ram_bytes = AMPLE_BYTES,
                                     .device_source = &source->source,
                                     .split = split};
}

/* Each stage has its layers' part of the table; the tokens' embeddings are in each, but for the
 * last, whose output they are. */
static void each_stage_counts_its_part(void **state) {
    (void)state;
    struct sl_synth_config c = dense(96, SL_DTYPE_Q8_0);
    struct test_model m;
    struct card_source source;
    struct sl_memory_plan p;
    c.tied = true;
    c.n_vocab = 20000;
    open_model(&m, &c);
    card_source_init(&source, &(struct card_config){.n_threads = 1, .n_cards = 3});
    struct sl_engine_config config = over(&source, "1,3,4");
    static const uint32_t n[] = {1, 3, 4};
    static const char *const which[] = {"its layers, embedding", "its layers, embedding",
                                        "its layers, output"};
    uint64_t table = m.model->global[SL_G_LAYER_EMBD]->size_bytes;
    uint64_t tokens = m.model->global[SL_G_TOKEN_EMBD]->size_bytes;
    assert_ok(sl_engine_plan(m.model, &config, &p, NULL, &test_err));
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(row_of(&p, "tables", i + 1)->bytes, table / LAYERS * n[i]);
        const struct sl_plan_row *weights = row_of(&p, "dense weights", i + 1);
        assert_string_equal(weights->detail, which[i]);
        assert_true(weights->bytes > tokens && weights->bytes < 2 * tokens);
    }
    config.tables = SL_TABLES_STREAMED;
    assert_ok(sl_engine_plan(m.model, &config, &p, NULL, &test_err));
    for (uint32_t i = 0; i < 3; i++) {
        assert_null(row_of(&p, "tables", i + 1));
        assert_true((row_of(&p, "dense weights", i + 1)->bytes > tokens) == (i == 2));
    }
    /* Where the host computes, its rows pass through buffers on their way, too. */
    card_source_init(&source, &(struct card_config){.n_threads = 1, .n_cards = 3, .plain = 7});
    config = over(&source, "1,3,4");
    assert_ok(sl_engine_plan(m.model, &config, &p, NULL, &test_err));
    assert_int_equal(p.load_bytes, SL_WEIGHTS_CUT_BYTES);
    /* Not those of one stage, nor of another model. */
    source.source.n_devices = 1;
    config = over(&source, NULL);
    assert_ok(sl_engine_plan(m.model, &config, &p, NULL, &test_err));
    assert_int_equal(p.load_bytes, 0);
    close_model(&m);
    c = tiny_config("qwen3moe");
    open_model(&m, &c);
    source.source.n_devices = 2;
    config = over(&source, "1,2");
    assert_ok(sl_engine_plan(m.model, &config, &p, NULL, &test_err));
    assert_int_equal(p.load_bytes, 0);
    close_model(&m);
}

/* Tokens' embeddings take most; with experts or without. */
static struct sl_synth_config of_tokens(bool tied, bool experts) {
    struct sl_synth_config c = dense(8, SL_DTYPE_F16);
    c.n_embd = 512;
    c.n_vocab = 20000;
    c.tied = tied;
    if (experts)
        c.n_expert = 4, c.n_expert_used = 2, c.n_ff_expert = 32;
    return c;
}

/* What a stage has once is not counted with each of its layers. */
static void layers_are_divided_by_it(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        bool tied = i % 2;
        struct sl_synth_config c = of_tokens(tied, i > 1);
        struct test_model m;
        struct card_source source;
        struct sl_memory_plan p;
        open_model(&m, &c);
        card_source_init(&source, &(struct card_config){.n_threads = 1, .n_cards = 3});
        struct sl_engine_config config = over(&source, NULL);
        uint64_t table = m.model->global[SL_G_LAYER_EMBD]->size_bytes, least, most = 0;
        uint64_t tokens = m.model->global[SL_G_TOKEN_EMBD]->size_bytes;
        config.vram_bytes = 1 << 20;
        config.tables = SL_TABLES_RESIDENT;
        assert_int_equal(sl_engine_plan(m.model, &config, &p, NULL, &test_err), SL_ERR_CONFIG);
        const char *said = strstr(test_err.text, "--vram ");
        assert_non_null(said);
        least = (uint64_t)strtoul(said + 7, NULL, 10) << 20;
        /* The last stage's most: where they are not its output, that beside them. */
        uint64_t last = tokens + (tied ? 0 : m.model->global[SL_G_OUTPUT]->size_bytes);
        assert_true(least > last && least < last + tokens / 2);
        config.vram_bytes = least;
        assert_ok(sl_engine_plan(m.model, &config, &p, NULL, &test_err));
        for (uint32_t k = 0; k < 3; k++)
            most = p.stages[k].n_layer > most ? p.stages[k].n_layer : most;
        assert_true(most < LAYERS - 1);
        close_model(&m);
        if (i > 1)
            continue;
        /* Without the tables it is less, if they are nobody's choice. */
        c = dense(512, SL_DTYPE_F16);
        c.tied = tied;
        c.n_vocab = 20000;
        open_model(&m, &c);
        table = m.model->global[SL_G_LAYER_EMBD]->size_bytes;
        config.vram_bytes = table / 8;
        assert_int_equal(sl_engine_plan(m.model, &config, &p, NULL, &test_err), SL_ERR_CONFIG);
        config.tables = SL_TABLES_AUTO;
        assert_ok(sl_engine_plan(m.model, &config, &p, NULL, &test_err));
        assert_true(p.streamed_tables == 1u << SL_TABLE_LAYERS);
        close_model(&m);
    }
}

/* ... nor forgotten: by stages that are neither the first nor have it as their output. */
static void stages_cost_it(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 8; i++) {
        bool tied = i % 2, streamed = i & 2, experts = i & 4;
        struct sl_synth_config c = of_tokens(tied, experts);
        struct test_model m;
        struct card_source source;
        struct sl_stage_plans plans;
        struct sl_stage_costs costs;
        open_model(&m, &c);
        card_source_init(&source, &(struct card_config){.n_threads = 1, .n_cards = 3});
        struct sl_engine_config config = over(&source, "2,2,4");
        uint64_t tokens = m.model->global[SL_G_TOKEN_EMBD]->size_bytes, of_layers = 0;
        config.vram_bytes = AMPLE_BYTES;
        config.tables = streamed ? SL_TABLES_STREAMED : SL_TABLES_RESIDENT;
        assert_ok(sl_stage_plans_open(m.model, &config, &plans, &test_err));
        assert_ok(sl_stage_costs_make(m.model, &config, &plans, &costs, &test_err));
        uint64_t more = streamed ? 0 : tokens, plain = costs.cards[0].stage_bytes;
        assert_int_equal(costs.cards[1].stage_bytes - plain, more);
        assert_int_equal(costs.cards[2].stage_bytes - plain, tied ? 0 : more);
        struct sl_stage_costs other;
        config.split = "0,auto"; /* the second one has the first layer, and them with it */
        assert_ok(sl_stage_costs_make(m.model, &config, &plans, &other, &test_err));
        assert_int_equal(other.cards[1].stage_bytes, plain);
        assert_int_equal(other.cards[2].stage_bytes, costs.cards[2].stage_bytes);
        sl_stage_costs_release(&other);
        for (uint32_t l = 1; l + 1 < LAYERS; l++)
            of_layers += costs.layers[l].fixed_bytes;
        assert_true(of_layers < tokens);
        sl_stage_costs_release(&costs);
        sl_stage_plans_release(&plans);
        close_model(&m);
    }
}

/* ---- prefixes ---- */

/* Pages that are known, from the devices and, of an engine that is started anew, from the disk:
 * with the tokens of one stage. */
static void known_pages(void **state) {
    (void)state;
    struct sl_synth_config sc = dense(40, SL_DTYPE_Q8_0);
    struct test_model m;
    struct card_source source;
    sc.n_shared_kv = 2;
    sc.window_period = 2;
    open_model(&m, &sc);
    struct sl_engine_config c = {.n_threads = 1,
                                 .ctx_tokens = 400,
                                 .parallel = 2,
                                 .batch_tokens = 48,
                                 .ram_bytes = AMPLE_BYTES};
    struct sl_engine *e = new_engine(&m, &c);
    struct run *want = answer(e, &m);
    sl_engine_destroy(&e);
    for (uint32_t i = 0; i < 4; i++) {
        struct folder folder;
        open_folder(&folder);
        card_source_init(&source, &(struct card_config){.n_threads = 1, .n_cards = 3, .plain = i});
        c.device_source = &source.source;
        c.split = "1,2,5";
        c.cache_dir = folder.path;
        c.cache_disk_bytes = 64 << 20;
        c.cache_read_always = true;
        c.tables = i % 2 ? SL_TABLES_STREAMED : SL_TABLES_RESIDENT;
        for (uint32_t again = 0; again < 4; again++) {
            if (again % 2 == 0)
                e = new_engine(&m, &c);
            struct run *r = answer(e, &m);
            assert_same_tokens(want, r);
            assert_int_equal(r->result.n_cached >= 128, again > 0);
            free_run(r);
            if (again % 2)
                sl_engine_destroy(&e);
        }
        close_folder(&folder);
    }
    free_run(want);
    close_model(&m);
}

int main(void) {
    sl_log_set_level(SL_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_blocks_of_its_own_layers),
        cmocka_unit_test(slices_have_what_theirs_are_made_of),
        cmocka_unit_test(cuts_keep_shared_keys_together),
        cmocka_unit_test(parts_are_the_files_bytes),
        cmocka_unit_test(large_rows_are_not_cut),
        cmocka_unit_test(what_devices_must_do),
        cmocka_unit_test(each_stage_counts_its_part),
        cmocka_unit_test(layers_are_divided_by_it),
        cmocka_unit_test(stages_cost_it),
        cmocka_unit_test(known_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
