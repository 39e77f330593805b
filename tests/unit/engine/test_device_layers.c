/* Layers that differ from one another: what a file says layer by layer is what is computed. */
#include "tests/support/card.h"
#include "tests/support/slow_build.h"
#include "tests/unit/engine/fixture.h"

#include "backends/cpu/cpu.h"
#include "engine/plan/memory_plan.h"
#include "model/arch/model_slice.h"
#include "model/gguf/gguf_write.h"

#include <fcntl.h>

enum { N_TEXT = 200, N_VOCAB = 512, DIM = 32, HEADS = 4, LAYERS = 3 };

/* ---- the logits of a text ---- */

static bool keep_logits(void *ctx, uint32_t pos, const float *logits) {
    memcpy((float *)ctx + (size_t)pos * N_VOCAB, logits, N_VOCAB * sizeof *logits);
    return true;
}

static float *score(const struct test_model *m, enum sl_dtype kv) {
    struct sl_engine_config c = {.n_threads = 2,
                                 .ctx_tokens = 256,
                                 .parallel = 1,
                                 .batch_tokens = 48, /* several steps, across pages */
                                 .kv_dtype = kv};
    struct sl_engine *e = new_engine(m, &c);
    float *logits = calloc((size_t)N_TEXT * N_VOCAB, sizeof *logits);
    uint32_t ids[N_TEXT];
    struct sl_rng rng = {7};
    assert_non_null(logits);
    for (uint32_t i = 0; i < N_TEXT; i++)
        ids[i] = sl_rng_below(&rng, N_VOCAB);
    assert_ok(sl_engine_score(e, ids, N_TEXT, keep_logits, logits, &test_err));
    sl_engine_destroy(&e);
    return logits;
}

/* ---- the same model with every KV head written as often as it is used ---- */

static bool is_kv(struct sl_str name) {
    static const char *const ends[] = {".attn_k.weight", ".attn_v.weight"};
    for (int i = 0; i < 2; i++) {
        size_t n = strlen(ends[i]);
        if (name.len > n && memcmp(name.ptr + name.len - n, ends[i], n) == 0)
            return true;
    }
    return false;
}

/* Writes from, an F32 model of architecture llama, with HEADS KV heads in every layer. */
static void write_repeated(const struct sl_model *from, const char *path) {
    struct sl_gguf_writer w;
    uint64_t n_tensors = sl_gguf_n_tensors(from->gguf), offset[64];
    uint8_t *header;
    size_t n;
    assert_true(n_tensors <= 64);
    sl_gguf_writer_init(&w);
    sl_gguf_write_str(&w, "general.architecture", "llama");
    sl_gguf_write_u32(&w, "llama.block_count", LAYERS);
    sl_gguf_write_u32(&w, "llama.context_length", from->hp.n_ctx_train);
    sl_gguf_write_u32(&w, "llama.embedding_length", from->hp.n_embd);
    sl_gguf_write_u32(&w, "llama.feed_forward_length", from->layers[0].spec.n_ff);
    sl_gguf_write_u32(&w, "llama.attention.head_count", HEADS);
    sl_gguf_write_u32(&w, "llama.attention.key_length", DIM);
    sl_gguf_write_u32(&w, "llama.attention.value_length", DIM);
    sl_gguf_write_f32(&w, "llama.attention.layer_norm_rms_epsilon", from->hp.norm_eps);
    sl_gguf_write_f32(&w, "llama.rope.freq_base", from->hp.rope[0].base);
    for (uint64_t i = 0; i < n_tensors; i++) {
        const struct sl_gguf_tensor *t = sl_gguf_tensor_at(from->gguf, i);
        char name[64];
        uint64_t ne[4] = {t->ne[0], t->ne[1], t->ne[2], t->ne[3]};
        assert_int_equal(t->dtype, SL_DTYPE_F32);
        snprintf(name, sizeof name, "%.*s", (int)t->name.len, t->name.ptr);
        if (is_kv(t->name))
            ne[1] = HEADS * DIM;
        offset[i] = sl_gguf_write_tensor(&w, name, SL_DTYPE_F32, ne[1] > 1 ? 2 : 1, ne);
    }
    assert_ok(sl_gguf_writer_finish(&w, &header, &n));
    sl_gguf_writer_release(&w);
    int in = open(sl_gguf_file_path(from->gguf, 0), O_RDONLY), out = open(path, O_WRONLY);
    assert_true(in >= 0 && out >= 0);
    assert_int_equal(pwrite(out, header, n, 0), n);
    for (uint64_t i = 0; i < n_tensors; i++) {
        const struct sl_gguf_tensor *t = sl_gguf_tensor_at(from->gguf, i);
        char *data = malloc(t->size_bytes);
        assert_non_null(data);
        assert_int_equal(pread(in, data, t->size_bytes, (off_t)t->offset_bytes), t->size_bytes);
        size_t head_bytes = t->ne[0] * DIM * sizeof(float);
        uint64_t n_kv = t->ne[1] / DIM;
        off_t at = (off_t)(n + offset[i]);
        if (is_kv(t->name))
            for (uint64_t h = 0; h < HEADS; h++)
                assert_int_equal(pwrite(out, data + h / (HEADS / n_kv) * head_bytes, head_bytes,
                                        at + (off_t)(h * head_bytes)),
                                 head_bytes);
        else
            assert_int_equal(pwrite(out, data, t->size_bytes, at), t->size_bytes);
        free(data);
    }
    close(in);
    close(out);
    free(header);
}

/* Layers with 2, 1 and 2 KV heads: each head reads its own layer's pages, which are of several
 * sizes, as if it had a KV head to itself. */
static void kv_heads_by_layer(void **state) {
    (void)state;
    struct sl_synth_config sc = tiny_config("llama");
    const struct sl_synth_types f32 = {{SL_DTYPE_F32}, 1};
    sc.n_layer = LAYERS;
    sc.n_expert = sc.n_expert_used = 0;
    sc.attn = sc.ffn = f32;
    sc.embd = sc.output = SL_DTYPE_F32;
    sc.n_head_kv_odd = 1;
    struct test_model shared, repeated = {.model = NULL};
    open_model(&shared, &sc);
    for (uint32_t l = 0; l < LAYERS; l++)
        assert_int_equal(shared.model->layers[l].spec.attention.n_head_kv, l % 2 ? 1 : 2);
    strcpy(repeated.path, "/tmp/sluice-test-XXXXXX");
    int fd = mkstemp(repeated.path);
    assert_true(fd >= 0);
    close(fd);
    write_repeated(shared.model, repeated.path);
    assert_ok(sl_model_open(repeated.path, &repeated.model, &test_err));
    for (int i = 0; i < 2; i++) {
        enum sl_dtype kv = i ? SL_DTYPE_Q8_0 : SL_DTYPE_F16;
        float *a = score(&shared, kv), *b = score(&repeated, kv);
        assert_memory_equal(a, b, (size_t)N_TEXT * N_VOCAB * sizeof *a);
        free(a);
        free(b);
    }
    close_model(&shared);
    close_model(&repeated);
}

/* ---- divided over devices ---- */

static struct run *answer(const struct test_model *m, const struct sl_engine_config *c) {
    struct sl_engine *e = new_engine(m, c);
    struct run *r = new_run(3, 150, N_VOCAB, 16);
    r->req.logprobs = r->req.ignore_eog = true;
    submit(e, r);
    wait_run(r);
    assert_int_equal(r->result.status, SL_OK);
    sl_engine_destroy(&e);
    return r;
}

/* Wherever the cut is, the answer is that of one device: between layers of two kinds (a slice
 * without experts), with pages of two sizes, between windows and none; with experts resident, and
 * in slots, where generated rows go in parts that are cut behind each router. */
static void slices_of_layers_that_differ(void **state) {
    (void)state;
    static const char *const archs[] = {
        "ernie4_5-moe",   "hunyuan-moe", "gpt-oss",       "qwen35moe",    "qwen3next",
        "deepseek2",      "gemma4",      "granitemoe",    "smallthinker", "maple",
        "phimoe",         "lfm2moe",     "granitehybrid", "jamba",        "deepseek32",
        "nemotron_h_moe", "kimi-linear", "bailingmoe3",   "minimax-m3",   "dots3note",
        "deepseek4",      "grovemoe",    "llama4",        "mimo2",        "kimi-k3"};
    const size_t first = BY_BUILD(0, 0, 2),
                 end = BY_BUILD(sizeof archs / sizeof *archs, sizeof archs / sizeof *archs, 3);
    static const char *const splits[] = {NULL, "1,4", "2,3", "4,1", "1,2,1,1"};
    for (size_t i = first; i < end; i++) {
        struct sl_synth_config sc = tiny_config(archs[i]);
        struct test_model m;
        sc.n_layer = 5;
        sc.n_layer_dense = i == 0 ? 2 : 0;
        sc.n_head_kv_odd = i < 3;
        open_model(&m, &sc);
        struct sl_engine_config c = {
            .n_threads = 1, .ctx_tokens = 256, .parallel = 2, .batch_tokens = 48};
        struct run *want = answer(&m, &c);
        for (uint32_t s = 0; s < 2 * BY_BUILD(sizeof splits / sizeof *splits, 5, 2); s++) {
            struct card_source source;
            const char *split = splits[s / 2];
            card_source_init(&source, &(struct card_config){.n_threads = 1,
                                                            .n_cards = !split  ? 1
                                                                       : s < 8 ? 2
                                                                               : 4});
            c.ram_bytes = c.vram_bytes = (uint64_t)1 << 34;
            c.io = SL_EXPERTS_IO_PREAD;
            c.experts = s % 2 ? SL_EXPERTS_STREAMED : SL_EXPERTS_RESIDENT;
            c.device_source = &source.source;
            c.split = split;
            struct run *got = answer(&m, &c);
            assert_same_tokens(want, got);
            free_run(got);
        }
        free_run(want);
        close_model(&m);
    }
}

/* What a device lacks is said when the plan is made, before anything is loaded, with the first
 * layer that needs it: of the whole model, where only a part of it is planned. */
static void devices_that_lack(void **state) {
    (void)state;
    struct sl_synth_config sc = tiny_config("gpt-oss");
    struct sl_engine_config c = {.ctx_tokens = 100, .parallel = 1, .batch_tokens = 8};
    struct sl_cpu_config cpu = {.n_threads = 1, .isa = SL_CPU_C};
    struct sl_memory_plan p = {.n_stages = 0};
    struct sl_device *d;
    struct sl_model slice;
    struct test_model m;
    open_model(&m, &sc);
    assert_ok(sl_cpu_open(&cpu, &d, &test_err));
    assert_ok(sl_memory_plan_make(m.model, &c, d, &p, &test_err));
    d->caps.swiglu_clamped = false;
    assert_int_equal(sl_memory_plan_make(m.model, &c, d, &p, &test_err), SL_ERR_UNSUPPORTED);
    assert_non_null(strstr(
        test_err.text, "layer 0 (routed experts): device cpu has no op 'moe' with clamped SwiGLU"));
    d->caps.swiglu_clamped = true;
    d->caps.moe_bias = false;
    assert_ok(sl_model_slice(m.model, 1, 2, &slice, &test_err));
    assert_int_equal(sl_memory_plan_make(&slice, &c, d, &p, &test_err), SL_ERR_UNSUPPORTED);
    assert_non_null(
        strstr(test_err.text, "layer 1 (routed experts): device cpu has no op 'moe' with biases"));
    sl_model_slice_release(&slice);
    close_model(&m);

    sc = tiny_config("qwen35moe"); /* layer 1 has attention */
    open_model(&m, &sc);
    d->caps.lacks_ops = UINT64_C(1) << SL_OP_delta_rule;
    assert_int_equal(sl_memory_plan_make(m.model, &c, d, &p, &test_err), SL_ERR_UNSUPPORTED);
    assert_non_null(
        strstr(test_err.text, "layer 0 (gated delta net): device cpu has no op 'delta_rule'"));
    d->caps.lacks_ops = UINT64_C(1) << SL_OP_mul_sigmoid;
    assert_int_equal(sl_memory_plan_make(m.model, &c, d, &p, &test_err), SL_ERR_UNSUPPORTED);
    assert_non_null(strstr(test_err.text, "layer 1 (grouped-query attention): device cpu has no op "
                                          "'mul_sigmoid'"));
    d->caps.lacks_ops = 0;
    close_model(&m);

    /* A device such as a GPU whose kernels take no more than what most models need. */
    sc = tiny_config("gemma4");
    open_model(&m, &sc);
    assert_ok(sl_memory_plan_make(m.model, &c, d, &p, &test_err));
    d->caps.moe_bias = true;
    d->caps.extra_args = false;
    assert_int_equal(sl_memory_plan_make(m.model, &c, d, &p, &test_err), SL_ERR_UNSUPPORTED);
    assert_non_null(strstr(test_err.text, "layer 0 (routed experts): device cpu has no op 'router' "
                                          "with a scale for each expert"));
    d->caps.extra_args = true;
    d->caps.geglu = false;
    assert_int_equal(sl_memory_plan_make(m.model, &c, d, &p, &test_err), SL_ERR_UNSUPPORTED);
    assert_non_null(
        strstr(test_err.text, "layer 0 (routed experts): device cpu has no op 'moe' with GEGLU"));
    sl_device_close(&d);
    close_model(&m);
}

int main(void) {
    sl_log_set_level(SL_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kv_heads_by_layer),
        cmocka_unit_test(slices_of_layers_that_differ),
        cmocka_unit_test(devices_that_lack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
