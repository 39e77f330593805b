/* The tensors of a model: missing, unexpected, of other shapes and types; slices of its layers. */
#include "model/arch/model_slice.h"
#include "tests/unit/model/model_builder.h"

static void test_missing_tensors(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"qwen3moe", "token_embd.weight"},         {"qwen3moe", "output_norm.weight"},
        {"qwen3moe", "blk.0.attn_norm.weight"},    {"qwen3moe", "blk.1.attn_k_norm.weight"},
        {"qwen3moe", "blk.2.ffn_gate_inp.weight"}, {"qwen3moe", "blk.2.ffn_down_exps.weight"},
        {"mixtral", "blk.0.ffn_gate_exps.weight"}, {"qwen2moe", "blk.0.ffn_gate_inp_shexp.weight"},
        {"qwen2moe", "blk.1.ffn_up_shexp.weight"}, {"llama", "blk.0.ffn_down.weight"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[96];
        snprintf(text, sizeof text, "tensor '%s' is missing", cases[i][1]);
        expect_refused(cases[i][0], &(struct edit){.no_tensor = cases[i][1]}, SL_ERR_CORRUPT, text,
                       "");
    }
}

static void test_unexpected_tensors(void **state) {
    (void)state;
    static const struct {
        const char *arch, *tensor, *text;
    } bad[] = {
        {"qwen3moe", "surprise.weight", "architecture 'qwen3moe' has no such tensor"},
        {"qwen3moe", "blk.0.surprise.weight", "architecture 'qwen3moe' has no such tensor"},
        {"qwen3moe", "blk.0.ffn_gate.weight", "no such tensor"},
        {"qwen3moe", "blk.0.exp_probs_b.bias", "no such tensor"},
        {"qwen3moe", "rope_freqs.weight", "no such tensor"},
        {"llama", "blk.0.ffn_gate.bias", "no such tensor"},
        {"llama", "blk.0.attn_gate.weight", "no such tensor"},
        {"llama", "blk.01.attn_q.bias", "no such tensor"},
        {"llama", "blk.x.attn_q.bias", "no such tensor"},
        {"llama", "blk.9999999999.attn_q.bias", "no such tensor"},
        {"gpt-oss", "blk.0.ffn_gate_up_exps.weight", "no such tensor"},
        {"mixtral", "blk.0.ffn_gate.3.weight", "newer conversion"},
        {"mixtral", "blk.0.ffn_down.0.weight", "newer conversion"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char name[96];
        snprintf(name, sizeof name, "tensor '%s'", bad[i].tensor);
        expect_refused(bad[i].arch, &(struct edit){.extra = bad[i].tensor}, SL_ERR_UNSUPPORTED,
                       name, bad[i].text);
    }
    expect_refused("olmoe", &(struct edit){.extra = "blk.0.ffn_gate_up_exps.weight"},
                   SL_ERR_CORRUPT, "tensor 'blk.0.ffn_gate_up_exps.weight'",
                   "ffn_gate_exps.weight is there too");
    expect_refused("llama", &(struct edit){.extra = "blk.3.attn_norm.weight"}, SL_ERR_CORRUPT,
                   "tensor 'blk.3.attn_norm.weight'", "declares 3 layers");
    static const char *const fine[] = {"blk.0.attn_rot_embd", "blk.0.rope_freqs.weight",
                                       "blk.0.ffn_up.weight.in_sum2"};
    for (size_t i = 0; i < sizeof fine / sizeof fine[0]; i++) {
        uint8_t *file;
        struct sl_model *m = open_model("llama", &(struct edit){.extra = fine[i]}, &file);
        sl_model_close(&m);
        free(file);
    }
}

static void test_fused_experts(void **state) {
    (void)state;
    struct sl_expert_matrix apart[SL_EXPERT_MATRICES], fused[SL_EXPERT_MATRICES];
    uint64_t bytes[2];
    for (int i = 0; i < 2; i++) {
        uint8_t *file;
        struct edit e = {.fused = i};
        struct sl_model *m = open_model("qwen3moe", &e, &file);
        for (uint32_t k = 0; k < SL_EXPERT_MATRICES; k++)
            (i ? fused : apart)[k] = sl_layer_expert_matrix(&m->layers[1], k);
        assert_true((m->layers[1].t[SL_L_EXPERTS_UP] != NULL) == !i);
        bytes[i] = sl_model_expert_bytes(m, 1);
        sl_model_close(&m);
        free(file);
    }
    assert_int_equal(bytes[0], bytes[1]);
    for (uint32_t k = 0; k < SL_EXPERT_MATRICES; k++) {
        bool half = k < 2;
        assert_int_equal(fused[k].part_bytes, apart[k].part_bytes);
        assert_int_equal(fused[k].stride_bytes, apart[k].part_bytes * (half ? 2 : 1));
        assert_int_equal(fused[k].first_bytes, k == 1 ? apart[k].part_bytes : 0);
        assert_int_equal(apart[k].first_bytes, 0);
    }
    struct edit wide = {.fused = true,
                        .tensor = "blk.1.ffn_gate_up_exps.weight",
                        .dtype = SL_DTYPE_F16,
                        .n_dims = 3,
                        .ne = {EMBD, 2 * FF_EXP + 1, EXPERTS}};
    expect_refused("qwen3moe", &wide, SL_ERR_CORRUPT, "ffn_gate_up_exps.weight", "its shape is");
    struct edit none = {.fused = true, .no_tensor = "blk.2.ffn_gate_up_exps.weight"};
    expect_refused("qwen3moe", &none, SL_ERR_CORRUPT, "blk.2.ffn_gate_exps.weight", "is missing");
}

static void test_shapes_and_types(void **state) {
    (void)state;
    struct edit e = {.tensor = "blk.1.attn_v.weight", .n_dims = 2, .ne = {EMBD, KV * DIM + 1}};
    expect_refused("llama", &e, SL_ERR_CORRUPT, "tensor 'blk.1.attn_v.weight'",
                   "[64, 49, 1, 1], the hyperparameters ask for [64, 48, 1]");
    e = (struct edit){
        .tensor = "blk.1.ffn_up_exps.weight", .n_dims = 3, .ne = {EMBD, FF_EXP, EXPERTS - 1}};
    expect_refused("mixtral", &e, SL_ERR_CORRUPT, "blk.1.ffn_up_exps.weight", "[64, 32, 6]");
    e = (struct edit){
        .tensor = "blk.0.attn_norm.weight", .n_dims = 1, .dtype = SL_DTYPE_F16, .ne = {EMBD}};
    expect_refused("llama", &e, SL_ERR_UNSUPPORTED, "blk.0.attn_norm.weight",
                   "its type is F16, only F32");
    e = (struct edit){.tensor = "output.weight", .n_dims = 2, .ne = {EMBD, VOCAB + 1}};
    expect_refused("llama", &e, SL_ERR_CORRUPT, "tensor 'output.weight'", "[64, 40, 1]");
    e = (struct edit){
        .tensor = "token_embd.weight", .n_dims = 2, .dtype = SL_DTYPE_IQ1_S, .ne = {256, 1u << 25}};
    /* 1<<25 rows do not fit the file: the container is refused already. */
    size_t n;
    struct sl_gguf *g = NULL;
    struct sl_err err;
    uint8_t *file = build("llama", &e, &n);
    assert_int_equal(sl_gguf_open_memory(file, n, &g, &err), SL_ERR_CORRUPT);
    free(file);

    /* A 2-d [64, 1] gate of the shared expert is as good as a 1-d one. */
    e = (struct edit){.tensor = "blk.0.ffn_gate_inp_shexp.weight", .n_dims = 2, .ne = {EMBD, 1}};
    struct sl_model *m = open_model("qwen2moe", &e, &file);
    sl_model_close(&m);
    free(file);
}

static uint64_t n_tokens;
static void add_tokens(struct gb *b) {
    const char *tokens[VOCAB + 1];
    for (size_t i = 0; i <= VOCAB; i++)
        tokens[i] = "t";
    gb_strings(b, "tokenizer.ggml.tokens", tokens, n_tokens);
}

static void test_vocabulary(void **state) {
    (void)state;
    struct edit e = {.keys = add_tokens};
    uint8_t *file;
    n_tokens = VOCAB;
    struct sl_model *m = open_model("llama", &e, &file);
    assert_int_equal(m->hp.n_vocab, VOCAB);
    sl_model_close(&m);
    free(file);
    n_tokens = VOCAB + 1;
    expect_refused("llama", &e, SL_ERR_CORRUPT, "key 'tokenizer.ggml.tokens'",
                   "41 tokens, but tensor 'token_embd.weight' has 40 rows");
}

static void test_rope_freqs(void **state) {
    (void)state;
    uint8_t *file;
    struct edit e = {.extra = "rope_freqs.weight"};
    expect_refused("llama", &e, SL_ERR_CORRUPT, "tensor 'rope_freqs.weight'", "[12, 1, 1]");
    /* 64 divisors need heads of 128 */
    size_t n;
    struct gb b = gb_new(3);
    static const struct edit none;
    struct sl_gguf *g = NULL;
    struct sl_model *m = NULL;
    struct sl_err err = {""};
    gb_now = &b;
    edit_now = &none;
    arch_now = "llama";
    gb_str(&b, "general.architecture", "llama");
    key_u32("block_count", 1);
    key_u32("context_length", 512);
    key_u32("embedding_length", 128);
    key_u32("attention.head_count", 1);
    key_u32("feed_forward_length", 32);
    key_f32("attention.layer_norm_rms_epsilon", 1e-5f);
    tensor(-1, "token_embd.weight", 0, 128, 10, 0);
    tensor(-1, "output_norm.weight", 0, 128, 0, 0);
    tensor(-1, "rope_freqs.weight", 0, 64, 0, 0);
    tensor(0, "attn_norm.weight", 0, 128, 0, 0);
    tensor(0, "attn_q.weight", 0, 128, 128, 0);
    tensor(0, "attn_k.weight", 0, 128, 128, 0);
    tensor(0, "attn_v.weight", 0, 128, 128, 0);
    tensor(0, "attn_output.weight", 0, 128, 128, 0);
    tensor(0, "ffn_norm.weight", 0, 128, 0, 0);
    tensor(0, "ffn_gate.weight", 0, 128, 32, 0);
    tensor(0, "ffn_up.weight", 0, 128, 32, 0);
    tensor(0, "ffn_down.weight", 0, 32, 128, 0);
    file = gb_finish(&b, &n);
    assert_int_equal(sl_gguf_open_memory(file, n, &g, &err), SL_OK);
    if (sl_model_from_gguf(g, &m, &err) != SL_OK)
        fail_msg("%s", err.text);
    assert_non_null(m->global[SL_G_ROPE_FREQS]);
    assert_int_equal(m->layers[0].spec.attention.n_head_kv, 1);
    assert_int_equal(m->layers[0].spec.attention.head_dim_k, 128);
    sl_model_close(&m);
    free(file);
}

static void test_slices(void **state) {
    (void)state;
    for (uint32_t tied = 0; tied < 2; tied++) {
        uint8_t *file;
        struct sl_err err;
        struct sl_model *m = open_model("qwen3moe", &(struct edit){.tied = tied}, &file), s, part;
        assert_true(sl_model_has_input(m) && sl_model_has_output(m));
        for (uint32_t first = 0; first <= LAYERS; first++)
            for (uint32_t n = 0; n <= LAYERS + 1; n++) {
                enum sl_status status = sl_model_slice(m, first, n, &s, &err);
                if ((!n && first) || first + n > LAYERS) {
                    assert_int_equal(status, SL_ERR_INVALID);
                    assert_non_null(strstr(err.text, "there are 3"));
                    continue;
                }
                assert_int_equal(status, SL_OK);
                assert_int_equal(s.hp.n_layer, n);
                assert_int_equal(s.hp.first_layer, first);
                assert_int_equal(sl_model_has_input(&s), first == 0);
                assert_int_equal(sl_model_has_output(&s), first + n == LAYERS);
                assert_ptr_equal(s.global[SL_G_OUTPUT],
                                 first + n == LAYERS ? m->global[SL_G_OUTPUT] : NULL);
                assert_int_equal(s.global[SL_G_OUTPUT_NORM] != NULL, first + n == LAYERS);
                for (uint32_t l = 0; l < n; l++)
                    assert_ptr_equal(&s.layers[l], &m->layers[first + l]); /* spec and tensors */
                assert_true(sl_model_fingerprint(&s) == sl_model_fingerprint(m));
                if (!n) { /* the embedding alone; layer 0 is then a slice's without one */
                    assert_int_equal(sl_model_slice(m, 0, 1, &part, &err), SL_OK);
                    sl_model_slice_drop_input(&part);
                    assert_false(sl_model_has_input(&part));
                    continue;
                }
                /* The last layer of a slice, once more a slice. */
                assert_int_equal(sl_model_slice(&s, n - 1, 1, &part, &err), SL_OK);
                assert_int_equal(part.hp.first_layer, first + n - 1);
                assert_int_equal(sl_model_has_output(&part), first + n == LAYERS);
                assert_int_equal(sl_model_has_input(&part), first == 0 && n == 1);
                sl_model_slice_release(&s);
                assert_null(s.layers);
            }
        assert_int_equal(sl_model_slice(m, UINT32_MAX, 2, &s, &err), SL_ERR_INVALID);
        assert_int_equal(sl_model_slice(m, 1, UINT32_MAX, &s, &err), SL_ERR_INVALID);
        sl_model_close(&m);
        free(file);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_missing_tensors), cmocka_unit_test(test_unexpected_tensors),
        cmocka_unit_test(test_fused_experts),   cmocka_unit_test(test_shapes_and_types),
        cmocka_unit_test(test_vocabulary),      cmocka_unit_test(test_rope_freqs),
        cmocka_unit_test(test_slices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
