/* Models from files: each architecture as it should be, and each way in which keys can be wrong. */
#include "tests/unit/model/model_builder.h"

#include <math.h>

static void test_qwen3moe(void **state) {
    (void)state;
    uint8_t *file;
    struct sl_model *m = open_model("qwen3moe", NULL, &file);
    const struct sl_hparams *hp = &m->hp;
    const struct sl_rope_spec *rope = &hp->rope[0];
    assert_string_equal(sl_model_arch_name(m), "qwen3moe");
    assert_int_equal(hp->n_layer, LAYERS);
    assert_int_equal(hp->n_ctx_train, 2048);
    assert_int_equal(hp->n_embd, EMBD);
    assert_int_equal(hp->n_vocab, VOCAB);
    assert_int_equal(hp->n_expert, EXPERTS);
    assert_int_equal(hp->n_expert_used, USED);
    assert_true(hp->norm_eps == 1e-6f);
    assert_int_equal(rope->kind, SL_ROPE_KIND_NEOX);
    assert_int_equal(rope->n_rot, DIM);
    assert_true(rope->base == 1e6f && rope->scale == 1.0f && rope->yarn_factor == 0.0f);
    assert_int_equal(hp->n_rope, 1);
    for (uint32_t l = 0; l < LAYERS; l++) {
        const struct sl_layer_spec *s = &m->layers[l].spec;
        const struct sl_attention_spec *at = &s->attention;
        const struct sl_experts_spec *x = &s->experts;
        assert_true(s->mixer == SL_MIXER_ATTENTION && s->ffn == SL_FFN_EXPERTS);
        assert_int_equal(at->n_head, HEADS);
        assert_int_equal(at->n_head_kv, KV);
        assert_int_equal(at->head_dim_k, DIM);
        assert_int_equal(at->head_dim_v, DIM);
        assert_int_equal(at->window, 0);
        assert_int_equal(at->rope, 0);
        assert_true(fabsf(at->scale - 1.0f / sqrtf(DIM)) < 1e-7f);
        assert_int_equal(at->qk_norm, SL_QK_NORM_HEAD);
        assert_false(at->norm_after_rope);
        assert_int_equal(s->n_ff, 0);
        assert_int_equal(x->n_ff, FF_EXP);
        assert_int_equal(x->n_ff_shared, 0);
        assert_int_equal(x->router_kind, SL_ROUTER_KIND_SOFTMAX);
        assert_true(x->router_normalize && !x->router_softmax_topk && x->router_scale == 1.0f);
        assert_true(sl_model_layer_is_moe(m, l));
        /* gate and up Q8_0 rows of 64, down Q5_1 rows of 32 */
        assert_int_equal(sl_model_expert_bytes(m, l), 2 * FF_EXP * 2 * 34 + EMBD * 24);
        assert_null(m->layers[l].t[SL_L_FFN_GATE]);
        assert_null(m->layers[l].t[SL_L_ATTN_Q_BIAS]);
        assert_non_null(m->layers[l].t[SL_L_ATTN_Q_NORM]);
        assert_non_null(m->layers[l].t[SL_L_ROUTER]);
    }
    assert_ptr_equal(m->layers[1].t[SL_L_ATTN_K],
                     sl_gguf_tensor_find(m->gguf, "blk.1.attn_k.weight"));
    assert_ptr_equal(m->global[SL_G_OUTPUT], sl_gguf_tensor_find(m->gguf, "output.weight"));
    assert_null(m->global[SL_G_ROPE_FREQS]);
    assert_true(sl_model_fingerprint(m) == sl_gguf_fingerprint(m->gguf));
    sl_model_close(&m);
    assert_null(m);
    free(file);
}

static void test_other_archs(void **state) {
    (void)state;
    static const struct {
        const char *arch;
        enum sl_rope_kind rope;
        bool moe, normalize, bias, qk_norm, shared, gated;
    } want[] = {
        {"qwen2moe", SL_ROPE_KIND_NEOX, true, false, true, false, true, true},
        {"olmoe", SL_ROPE_KIND_NEOX, true, false, false, true, false, false},
        {"mixtral", SL_ROPE_KIND_NORM, true, true, false, false, false, false},
        {"llama", SL_ROPE_KIND_NORM, false, false, false, false, false, false},
        {"qwen3", SL_ROPE_KIND_NEOX, false, false, false, true, false, false},
        {"qwen2", SL_ROPE_KIND_NEOX, false, false, true, false, false, false},
        {"ernie4_5-moe", SL_ROPE_KIND_NORM, true, true, false, false, true, false},
        {"hunyuan-moe", SL_ROPE_KIND_NEOX, true, true, false, true, true, false},
    };
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        uint8_t *file;
        struct sl_model *m = open_model(want[i].arch, NULL, &file);
        const struct sl_hparams *hp = &m->hp;
        const struct sl_layer *l = &m->layers[LAYERS - 1];
        const struct sl_layer_spec *spec = &l->spec;
        assert_int_equal(hp->rope[0].kind, want[i].rope);
        assert_int_equal(sl_model_layer_is_moe(m, 0), want[i].moe);
        assert_int_equal(spec->experts.router_normalize, want[i].normalize);
        assert_int_equal(spec->n_ff, want[i].moe ? 0 : FF);
        assert_int_equal(spec->experts.n_ff, want[i].moe ? FF_EXP : 0);
        assert_int_equal(spec->experts.n_ff_shared, want[i].shared ? FF_SHARED : 0);
        assert_int_equal(l->t[SL_L_ATTN_Q_BIAS] != NULL, want[i].bias);
        assert_int_equal(l->t[SL_L_ATTN_Q_NORM] != NULL, want[i].qk_norm);
        assert_int_equal(l->t[SL_L_SHARED_ROUTER] != NULL, want[i].gated);
        assert_int_equal(l->t[SL_L_SHARED_DOWN] != NULL, want[i].shared);
        assert_int_equal(l->t[SL_L_FFN_DOWN] != NULL, !want[i].moe);
        assert_int_equal(sl_model_expert_bytes(m, 0) != 0, want[i].moe);
        assert_int_equal(spec->attention.norm_after_rope, strcmp(want[i].arch, "hunyuan-moe") == 0);
        if (strcmp(want[i].arch, "olmoe") == 0) {
            assert_int_equal(spec->attention.qk_norm, SL_QK_NORM_ROW);
            assert_int_equal(l->t[SL_L_ATTN_Q_NORM]->ne[0], HEADS * DIM);
            assert_int_equal(l->t[SL_L_ATTN_K_NORM]->ne[0], KV * DIM);
        }
        sl_model_close(&m);
        free(file);
    }
}

static uint32_t lead_now, step_now, shared_now;
static void add_lead(struct gb *b) {
    gb_uint(b, "ernie4_5-moe.leading_dense_block_count", lead_now);
    gb_uint(b, "ernie4_5-moe.interleave_moe_layer_step", step_now);
    if (shared_now)
        gb_uint(b, "ernie4_5-moe.expert_shared_feed_forward_length", shared_now);
}

/* Which layers have experts decides which tensors they must have. */
static void test_dense_layers(void **state) {
    (void)state;
    uint8_t *file;
    struct edit e = {.keys = add_lead, .no_key = "expert_shared_feed_forward_length"};
    lead_now = 1;
    step_now = 1;
    expect_refused("ernie4_5-moe", &e, SL_ERR_UNSUPPORTED, "blk.0.ffn_gate_inp.weight",
                   "no such tensor here");
    lead_now = 0;
    step_now = 2; /* layer 1 alone */
    expect_refused("ernie4_5-moe", &e, SL_ERR_UNSUPPORTED, "blk.0.ffn_gate_inp.weight",
                   "no such tensor here");
    lead_now = LAYERS;
    expect_refused("ernie4_5-moe", &e, SL_ERR_CORRUPT, "leading_dense_block_count",
                   "3 is out of range, 0 to 2");
    lead_now = LAYERS - 1;
    step_now = 2;
    expect_refused("ernie4_5-moe", &e, SL_ERR_CORRUPT, "interleave_moe_layer_step",
                   "of 3 layers none has experts");
    /* Without the shared expert's width there is none, and its tensors are too many. */
    lead_now = 0;
    step_now = 1;
    expect_refused("ernie4_5-moe", &e, SL_ERR_UNSUPPORTED, "ffn_gate_shexp.weight",
                   "no such tensor here");
    shared_now = FF_SHARED;
    e.n_dense = lead_now = 2;
    struct sl_model *m = open_model("ernie4_5-moe", &e, &file);
    for (uint32_t l = 0; l < LAYERS; l++) {
        const struct sl_layer_spec *s = &m->layers[l].spec;
        assert_int_equal(s->ffn, l < 2 ? SL_FFN_DENSE : SL_FFN_EXPERTS);
        assert_int_equal(s->n_ff, l < 2 ? FF : 0);
        assert_int_equal(s->experts.n_ff, l < 2 ? 0 : FF_EXP);
        assert_int_equal(s->experts.n_ff_shared, l < 2 ? 0 : FF_SHARED);
        assert_int_equal(sl_model_expert_bytes(m, l) != 0, l == 2);
    }
    sl_model_close(&m);
    free(file);
}

static float swa_base;
static void add_gpt_oss(struct gb *b) {
    gb_uint(b, "gpt-oss.attention.sliding_window", 100);
    if (swa_base > 0)
        gb_float(b, "gpt-oss.rope.freq_base_swa", swa_base);
}

static void test_gpt_oss(void **state) {
    (void)state;
    uint8_t *file;
    struct edit e = {.keys = add_gpt_oss};
    for (int i = 0; i < 2; i++) {
        swa_base = i ? 5000.0f : 0;
        struct sl_model *m = open_model("gpt-oss", &e, &file);
        assert_int_equal(m->hp.n_rope, i ? 2 : 1);
        assert_true(m->hp.rope[0].base == 1e6f);
        if (i)
            assert_true(m->hp.rope[1].base == 5000.0f && m->hp.rope[1].n_rot == DIM);
        for (uint32_t l = 0; l < LAYERS; l++) {
            const struct sl_attention_spec *a = &m->layers[l].spec.attention;
            const struct sl_experts_spec *x = &m->layers[l].spec.experts;
            assert_int_equal(a->window, l % 2 ? 0 : 100);
            assert_int_equal(a->rope, i && l % 2 == 0);
            assert_true(a->sinks && a->qk_norm == SL_QK_NORM_NONE);
            assert_true(x->biases && x->activation == SL_EXPERT_SWIGLU_CLAMPED);
            assert_true(x->router_softmax_topk && !x->router_normalize);
            assert_ptr_equal(m->layers[l].t[SL_L_ATTN_Q_BIAS], NULL); /* may be absent */
        }
        assert_ptr_equal(m->layers[1].t[SL_L_FFN_NORM],
                         sl_gguf_tensor_find(m->gguf, "blk.1.post_attention_norm.weight"));
        sl_model_close(&m);
        free(file);
    }
    static const char *const needed[] = {"attn_sinks.weight",         "attn_output.bias",
                                         "ffn_gate_inp.bias",         "ffn_gate_exps.bias",
                                         "ffn_up_exps.bias",          "ffn_down_exps.bias",
                                         "post_attention_norm.weight"};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.1.%s", needed[i]);
        struct edit without = {.no_tensor = name};
        expect_refused("gpt-oss", &without, SL_ERR_CORRUPT, name, "is missing");
    }
    struct edit other = {.extra = "blk.0.ffn_norm.weight"}; /* not its name here */
    expect_refused("gpt-oss", &other, SL_ERR_UNSUPPORTED, "blk.0.ffn_norm.weight",
                   "no such tensor here");
    swa_base = 0.5f;
    expect_refused("gpt-oss", &e, SL_ERR_CORRUPT, "rope.freq_base_swa", "out of range");
    /* Others have no such tensors. */
    other.extra = "blk.0.attn_sinks.weight";
    expect_refused("qwen3moe", &other, SL_ERR_UNSUPPORTED, "attn_sinks", "no such tensor here");
}

static void test_arch_list(void **state) {
    (void)state;
    const char *want[] = {
        "smallthinker", "maple",        "phimoe",         "hy_v3",       "mellum",
        "granitemoe",   "exaone-moe",   "dots1",          "deepseek",    "bailingmoe",
        "bailingmoe2",  "minimax-m2",   "minimax-m3",     "dots3note",   "glm4moe",
        "qwen3moe",     "qwen2moe",     "olmoe",          "llama",       "qwen3",
        "qwen2",        "ernie4_5-moe", "hunyuan-moe",    "gpt-oss",     "qwen3next",
        "qwen35moe",    "qwen35",       "qwen3vlmoe",     "deepseek2",   "gemma4",
        "llama4",       "afmoe",        "laguna",         "cohere2moe",  "dbrx",
        "grok",         "mimo2",        "mistral4",       "arctic",      "step35",
        "mistral3",     "lfm2moe",      "granitehybrid",  "jamba",       "deepseek32",
        "glm-dsa",      "nemotron_h",   "nemotron_h_moe", "kimi-linear", "grovemoe",
        "bailingmoe3",  "deepseek4",    "kimi-k3",        "qwen4exp"};
    uint32_t n_want = sizeof want / sizeof want[0];
    uint32_t n = 0;
    for (; sl_model_arch_at(n); n++) {
        bool found = false;
        for (uint32_t i = 0; i < n_want; i++)
            found = found || strcmp(sl_model_arch_at(n), want[i]) == 0;
        assert_true(found);
    }
    assert_int_equal(n, n_want);
}

static void test_defaults(void **state) {
    (void)state;
    static const char *const optional[] = {"attention.head_count_kv", "rope.freq_base"};
    uint8_t *file;
    /* Without head_count_kv K has as many heads as Q: the shapes then disagree. */
    expect_refused("qwen3moe", &(struct edit){.no_key = optional[0]}, SL_ERR_CORRUPT,
                   "blk.0.attn_k.weight", "[64, 96");
    struct sl_model *m = open_model("qwen3moe", &(struct edit){.no_key = optional[1]}, &file);
    assert_true(m->hp.rope[0].base == 10000.0f);
    sl_model_close(&m);
    free(file);
    /* Without key_length a head has n_embd / heads: 16, not 24. */
    expect_refused("qwen3moe", &(struct edit){.no_key = "attention.key_length"}, SL_ERR_CORRUPT,
                   "blk.0.attn_q.weight", "[64, 64");
    /* feed_forward_length stands in for the experts' width, divided by k in the Qwen family. */
    expect_refused("qwen3moe", &(struct edit){.no_key = "expert_feed_forward_length"},
                   SL_ERR_CORRUPT, "blk.0.ffn_gate_exps.weight", "[64, 16, 6]");
    m = open_model("qwen3moe", &(struct edit){.no_key = "feed_forward_length"}, &file);
    assert_int_equal(m->layers[0].spec.experts.n_ff, FF_EXP);
    sl_model_close(&m);
    free(file);
    m = open_model("llama", &(struct edit){.tied = true}, &file);
    assert_ptr_equal(m->global[SL_G_OUTPUT], m->global[SL_G_TOKEN_EMBD]);
    sl_model_close(&m);
    free(file);
}

static void test_missing_keys(void **state) {
    (void)state;
    static const char *const needed[] = {
        "block_count",          "context_length",    "embedding_length",
        "attention.head_count", "expert_used_count", "attention.layer_norm_rms_epsilon",
    };
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++) {
        char name[80];
        snprintf(name, sizeof name, "key 'olmoe.%s' is missing", needed[i]);
        expect_refused("olmoe", &(struct edit){.no_key = needed[i]}, SL_ERR_CORRUPT, name, "");
    }
    expect_refused("olmoe", &(struct edit){.no_key = "expert_count"}, SL_ERR_CORRUPT,
                   "olmoe.expert_count", "declares none");
    expect_refused("olmoe", &(struct edit){.no_key = "feed_forward_length"}, SL_ERR_CORRUPT,
                   "expert_feed_forward_length", "missing");
    expect_refused("llama", &(struct edit){.no_key = "feed_forward_length"}, SL_ERR_CORRUPT,
                   "llama.feed_forward_length", "missing");
}

/* One key replaced by a bad value. */
static const char *bad_key;
static uint32_t bad_type;
static uint64_t bad_bits;
static void add_bad_key(struct gb *b) {
    char name[96];
    static const uint8_t bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    snprintf(name, sizeof name, "%s.%s", arch_now, bad_key);
    gb_kv(b, name, bad_type, &bad_bits, bytes[bad_type]);
}

static uint64_t float_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

static void test_absurd_keys(void **state) {
    (void)state;
    static const struct {
        const char *key;
        uint32_t type;
        uint64_t bits;
        const char *text;
    } bad[] = {
        {"block_count", SL_GGUF_U32, 0, "out of range"},
        {"block_count", SL_GGUF_U32, 513, "out of range"},
        {"block_count", SL_GGUF_F32, 3, "not an integer"},
        {"context_length", SL_GGUF_U32, 0, "out of range"},
        {"context_length", SL_GGUF_U32, 0xffffffff, "out of range"},
        {"embedding_length", SL_GGUF_U32, 0, "out of range"},
        {"embedding_length", SL_GGUF_U32, 1u << 21, "out of range"},
        {"embedding_length", SL_GGUF_U64, UINT64_MAX, "out of range"},
        {"attention.head_count", SL_GGUF_U32, 0, "out of range"},
        {"attention.head_count", SL_GGUF_I32, 0xffffffff, "-1 is out of range"},
        {"attention.head_count", SL_GGUF_U32, 1 << 20, "wider than"},
        {"attention.head_count_kv", SL_GGUF_U32, 0, "out of range"},
        {"attention.head_count_kv", SL_GGUF_U32, 3, "does not divide"},
        {"attention.head_count_kv", SL_GGUF_U32, 8, "out of range"},
        {"attention.key_length", SL_GGUF_U32, 100000, "out of range"},
        {"expert_count", SL_GGUF_U32, 1025, "out of range"},
        {"expert_used_count", SL_GGUF_U32, 0, "out of range"},
        {"expert_used_count", SL_GGUF_U32, 7, "out of range, 1 to 6"},
        {"expert_gating_func", SL_GGUF_U32, 9, "function 9 is not known"},
        {"rope.dimension_count", SL_GGUF_U32, 23, "is odd"},
        {"rope.dimension_count", SL_GGUF_U32, 26, "out of range"},
        {"rope.freq_base", SL_GGUF_F32, 0, "out of range"},
        {"rope.scaling.factor", SL_GGUF_F32, 0x7f800000, "not a finite float"},
        {"rope.scaling.attn_factor", SL_GGUF_F32, 0x45000000, "out of range"},
        {"attention.layer_norm_rms_epsilon", SL_GGUF_F32, 0x40000000, "out of range"},
        {"attention.layer_norm_rms_epsilon", SL_GGUF_F32, 0x7fc00000, "not a finite float"},
        {"attention.causal", SL_GGUF_BOOL, 0, "not causal"},
        {"attention.clamp_kqv", SL_GGUF_F32, 0x3f800000, "value of 1 is not supported"},
        {"final_logit_softcapping", SL_GGUF_F32, 0x41f00000, "value of 30 is not supported"},
        {"expert_group_count", SL_GGUF_U32, 1000, "expert_group_count"},
        {"leading_dense_block_count", SL_GGUF_U32, 1, "value of 1 is not supported"},
        {"attention.q_lora_rank", SL_GGUF_U32, 1, "unknown hyperparameter"},
        {"something.new", SL_GGUF_BOOL, 1, "unknown hyperparameter"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char key[96];
        bad_key = bad[i].key;
        bad_type = bad[i].type;
        bad_bits = bad[i].bits;
        snprintf(key, sizeof key, "key 'qwen3moe.%s'", bad_key);
        struct edit e = {.no_key = bad_key, .keys = add_bad_key};
        bool unsupported = strstr(bad[i].text, "supported") || strstr(bad[i].text, "known") ||
                           strstr(bad[i].text, "YaRN only") || strstr(bad[i].text, "causal");
        expect_refused("qwen3moe", &e, unsupported ? SL_ERR_UNSUPPORTED : SL_ERR_CORRUPT, key,
                       bad[i].text);
    }
    /* Values that say "none" pass. */
    static const struct {
        const char *key;
        uint32_t type;
        uint64_t bits;
    } fine[] = {
        {"attention.clamp_kqv", SL_GGUF_F32, 0},    {"expert_group_count", SL_GGUF_U32, 1},
        {"logit_scale", SL_GGUF_F32, 0x3f800000},   {"expert_weights_scale", SL_GGUF_F32, 0},
        {"vocab_size", SL_GGUF_U32, VOCAB},         {"attention.causal", SL_GGUF_BOOL, 1},
        {"rope.dimension_count", SL_GGUF_U32, DIM}, {"block_count", SL_GGUF_U64, LAYERS},
    };
    for (size_t i = 0; i < sizeof fine / sizeof fine[0]; i++) {
        uint8_t *file;
        bad_key = fine[i].key;
        bad_type = fine[i].type;
        bad_bits = fine[i].bits;
        struct sl_model *m =
            open_model("qwen3moe", &(struct edit){.no_key = bad_key, .keys = add_bad_key}, &file);
        sl_model_close(&m);
        free(file);
    }
}

static void test_router_keys(void **state) {
    (void)state;
    uint8_t *file;
    struct edit e = {.keys = add_bad_key};
    bad_key = "expert_weights_norm";
    bad_type = SL_GGUF_BOOL;
    bad_bits = 1;
    struct sl_model *m = open_model("qwen2moe", &e, &file);
    assert_true(m->layers[0].spec.experts.router_normalize);
    sl_model_close(&m);
    free(file);
    bad_key = "expert_weights_scale";
    bad_type = SL_GGUF_F32;
    bad_bits = float_bits(2.5f);
    m = open_model("olmoe", &e, &file);
    assert_true(m->layers[0].spec.experts.router_scale == 2.5f);
    sl_model_close(&m);
    free(file);
    bad_key = "expert_gating_func";
    bad_type = SL_GGUF_U32;
    for (bad_bits = 1; bad_bits <= 3; bad_bits++) {
        m = open_model("qwen3moe", &e, &file);
        assert_int_equal(m->layers[0].spec.experts.router_kind,
                         bad_bits == 2 ? SL_ROUTER_KIND_SIGMOID : SL_ROUTER_KIND_SOFTMAX);
        assert_int_equal(m->layers[0].spec.experts.router_softmax_topk, bad_bits == 3);
        sl_model_close(&m);
        free(file);
    }
}

static const char *rope_type;
static float rope_factor, rope_attn, rope_log_mul, rope_amplitude;
static void add_rope_keys(struct gb *b) {
    gb_str(b, "qwen3moe.rope.scaling.type", rope_type);
    gb_float(b, "qwen3moe.rope.scaling.factor", rope_factor);
    if (rope_attn > 0)
        gb_float(b, "qwen3moe.rope.scaling.attn_factor", rope_attn);
    if (rope_log_mul > 0)
        gb_float(b, "qwen3moe.rope.scaling.yarn_log_multiplier", rope_log_mul);
    if (rope_amplitude > 0)
        gb_float(b, "qwen3moe.rope.scaling.yarn_attn_factor", rope_amplitude);
    gb_uint(b, "qwen3moe.rope.scaling.original_context_length", 512);
}

static void test_rope_scaling(void **state) {
    (void)state;
    uint8_t *file;
    struct edit e = {.keys = add_rope_keys};
    rope_type = "linear";
    rope_factor = 4;
    struct sl_model *m = open_model("qwen3moe", &e, &file);
    assert_true(m->hp.rope[0].scale == 0.25f && m->hp.rope[0].yarn_factor == 0.0f);
    assert_true(m->hp.rope[0].yarn_attn == 1);
    sl_model_close(&m);
    free(file);
    rope_type = "none";
    rope_attn = 1.5f;
    m = open_model("qwen3moe", &e, &file);
    assert_true(m->hp.rope[0].scale == 1.0f && m->hp.rope[0].yarn_factor == 0.0f);
    assert_true(m->hp.rope[0].yarn_attn == 1.5f);
    rope_attn = 0;
    sl_model_close(&m);
    free(file);
    rope_type = "yarn";
    m = open_model("qwen3moe", &e, &file);
    assert_true(m->hp.rope[0].scale == 1.0f && m->hp.rope[0].yarn_factor == 4.0f);
    assert_true(m->hp.rope[0].yarn_ext == 1.0f && m->hp.rope[0].yarn_attn == 1.0f);
    assert_true(m->hp.rope[0].yarn_beta_fast == 32.0f && m->hp.rope[0].yarn_beta_slow == 1.0f);
    assert_int_equal(m->hp.rope[0].yarn_ctx_orig, 512);
    sl_model_close(&m);
    free(file);
    rope_attn = 0.5f;
    rope_log_mul = 1.0f; /* the amplitude is then 1, times attn_factor */
    m = open_model("qwen3moe", &e, &file);
    assert_true(fabsf(m->hp.rope[0].yarn_attn * (1 + 0.1f * logf(4)) - 0.5f) < 1e-6f);
    sl_model_close(&m);
    free(file);
    rope_attn = rope_log_mul = 0;
    rope_amplitude = 1.25f;
    m = open_model("qwen3moe", &e, &file);
    assert_true(fabsf(m->hp.rope[0].yarn_attn * (1 + 0.1f * logf(4)) - 1.25f) < 1e-6f);
    sl_model_close(&m);
    free(file);
    rope_amplitude = 0;
    rope_type = "longrope";
    expect_refused("qwen3moe", &e, SL_ERR_UNSUPPORTED, "rope.scaling.type", "'longrope'");
    rope_type = "yarn";
    rope_factor = 0.5f;
    expect_refused("qwen3moe", &e, SL_ERR_CORRUPT, "rope.scaling.factor", "below 1");
}

/* One key as an array of n 32-bit integers or, of type BOOL, bytes. */
static const char *array_key;
static int32_t array_values[4];
static uint64_t n_array_values;
static uint32_t array_type = SL_GGUF_I32;
static void add_array(struct gb *b) {
    char name[96];
    uint8_t truth[4];
    for (int i = 0; i < 4; i++)
        truth[i] = (uint8_t)array_values[i];
    snprintf(name, sizeof name, "%s.%s", arch_now, array_key);
    bool is_bool = array_type == SL_GGUF_BOOL;
    gb_array(b, name, array_type, n_array_values, is_bool ? (const void *)truth : array_values,
             n_array_values * (is_bool ? 1 : 4));
}

static struct edit with_array(const char *key, int32_t a, int32_t b, int32_t c) {
    array_key = key;
    array_values[0] = a;
    array_values[1] = b;
    array_values[2] = c;
    n_array_values = LAYERS;
    array_type = SL_GGUF_I32;
    return (struct edit){.no_key = key, .keys = add_array};
}

/* Keys whose value is one for the model: an array passes when all layers agree. */
static void test_arrays_of_one_value(void **state) {
    (void)state;
    uint8_t *file;
    struct edit e = with_array("embedding_length", EMBD, EMBD, EMBD);
    struct sl_model *m = open_model("mixtral", &e, &file);
    assert_int_equal(m->hp.n_embd, EMBD);
    sl_model_close(&m);
    free(file);
    n_array_values = LAYERS + 1;
    expect_refused("mixtral", &e, SL_ERR_CORRUPT, "llama.embedding_length",
                   "4 values for 3 layers");
    n_array_values = 0;
    expect_refused("mixtral", &e, SL_ERR_CORRUPT, "llama.embedding_length", "0 values");
    e = with_array("embedding_length", EMBD, EMBD, EMBD / 2);
    expect_refused("mixtral", &e, SL_ERR_UNSUPPORTED, "llama.embedding_length",
                   "differs between layers");
}

/* How many experts a row uses may differ; what is as wide as the most of them knows the most. */
static void test_experts_used_per_layer(void **state) {
    (void)state;
    uint8_t *file;
    struct edit e = with_array("expert_used_count", 1, USED + 1, USED);
    struct sl_model *m = open_model("mixtral", &e, &file);
    assert_int_equal(m->hp.n_expert_used, USED + 1);
    assert_int_equal(m->layers[0].spec.experts.n_used, 1);
    assert_int_equal(m->layers[1].spec.experts.n_used, USED + 1);
    assert_int_equal(m->layers[2].spec.experts.n_used, USED);
    assert_int_equal(m->layers[1].spec.experts.n_expert, EXPERTS);
    sl_model_close(&m);
    free(file);
    e = with_array("expert_used_count", USED, 0, 1);
    expect_refused("mixtral", &e, SL_ERR_CORRUPT, "llama.expert_used_count", "0 in layer 1");
    e = with_array("expert_used_count", 0, 0, 0);
    expect_refused("mixtral", &e, SL_ERR_CORRUPT, "llama.expert_used_count", "0 in every layer");
    e = with_array("expert_used_count", USED, EXPERTS + 1, 1);
    expect_refused("mixtral", &e, SL_ERR_CORRUPT, "llama.expert_used_count",
                   "7 of layer 1 is out of range");
    n_array_values = LAYERS + 1;
    expect_refused("mixtral", &e, SL_ERR_CORRUPT, "llama.expert_used_count",
                   "4 values for 3 layers");
}

static void add_array_and_lead(struct gb *b) {
    add_array(b);
    gb_uint(b, "ernie4_5-moe.leading_dense_block_count", lead_now);
}

/* How many experts a layer has may differ too; 0 is of a dense one. Tensors must be as many. */
static void test_experts_per_layer(void **state) {
    (void)state;
    uint8_t *file;
    const uint32_t n[LAYERS] = {4, 6, 2};
    struct edit e = with_array("expert_count", 4, 6, 2);
    e.experts = n;
    struct sl_model *m = open_model("mixtral", &e, &file);
    assert_int_equal(m->hp.n_expert, 6);
    for (uint32_t l = 0; l < LAYERS; l++) {
        assert_int_equal(m->layers[l].spec.experts.n_expert, n[l]);
        assert_int_equal(m->layers[l].t[SL_L_EXPERTS_UP]->ne[2], n[l]);
        assert_int_equal(m->layers[l].spec.experts.n_used, USED);
    }
    sl_model_close(&m);
    free(file);

    const uint32_t dense[LAYERS] = {6, 0, 3};
    e = with_array("expert_count", 6, 0, 3);
    e.experts = dense;
    expect_refused("mixtral", &e, SL_ERR_CORRUPT, "blk.0.ffn_gate_exps.weight", "[64, 96, 6");
    m = open_model("qwen3moe", &e, &file);
    assert_int_equal(m->layers[0].spec.ffn, SL_FFN_EXPERTS);
    assert_int_equal(m->layers[1].spec.ffn, SL_FFN_DENSE);
    assert_int_equal(m->layers[1].spec.n_ff, FF);
    assert_int_equal(m->layers[1].spec.experts.n_expert, 0);
    assert_int_equal(m->layers[2].spec.experts.n_expert, 3);
    sl_model_close(&m);
    free(file);

    /* A tensor of another number, a row that uses more than there are, dense ones with some. */
    e = with_array("expert_count", 4, 6, 3);
    e.experts = n;
    expect_refused("mixtral", &e, SL_ERR_CORRUPT, "blk.2.ffn_gate_inp.weight", "[64, 3, 1]");
    uint64_t ne[4] = {EMBD, FF_EXP, 5};
    e = with_array("expert_count", 4, 6, 2);
    e.experts = n;
    e.tensor = "blk.1.ffn_up_exps.weight";
    e.n_dims = 3;
    e.dtype = SL_DTYPE_Q8_0;
    memcpy(e.ne, ne, sizeof ne);
    expect_refused("mixtral", &e, SL_ERR_CORRUPT, "blk.1.ffn_up_exps.weight", ", 6]");
    e = with_array("expert_count", 4, 1, 6);
    e.experts = (const uint32_t[LAYERS]){4, 1, 6};
    expect_refused("mixtral", &e, SL_ERR_CORRUPT, "llama.expert_used_count",
                   "2 in layer 1, which has 1 experts");
    e = with_array("expert_count", 4, 1025, 6);
    expect_refused("mixtral", &e, SL_ERR_CORRUPT, "llama.expert_count",
                   "1025 of layer 1 is out of range");
    e = with_array("expert_count", 0, 0, 0);
    expect_refused("olmoe", &e, SL_ERR_CORRUPT, "olmoe.expert_count", "declares none");
    e = with_array("expert_count", 4, 6, 2);
    e.experts = n;
    n_array_values = LAYERS - 1;
    expect_refused("mixtral", &e, SL_ERR_CORRUPT, "llama.expert_count", "2 values for 3 layers");
    e = with_array("expert_count", 4, 6, 2);
    lead_now = 1, step_now = 1;
    e.keys = add_array_and_lead;
    expect_refused("ernie4_5-moe", &e, SL_ERR_CORRUPT, "ernie4_5-moe.expert_count",
                   "4 in layer 0, which has none");
}

/* Keys with a value for each layer. Tensors must have the shapes that follow. */
static void test_per_layer_arrays(void **state) {
    (void)state;
    uint8_t *file;
    struct edit e = with_array("attention.head_count", HEADS, HEADS, HEADS);
    struct sl_model *m = open_model("llama", &e, &file);
    assert_int_equal(m->layers[2].spec.attention.n_head, HEADS);
    sl_model_close(&m);
    free(file);
    n_array_values = LAYERS + 1;
    expect_refused("llama", &e, SL_ERR_CORRUPT, "llama.attention.head_count",
                   "4 values for 3 layers");
    e = with_array("attention.head_count", HEADS, 8, HEADS);
    expect_refused("llama", &e, SL_ERR_CORRUPT, "blk.1.attn_q.weight", "[64, 192");
    e = with_array("attention.head_count", HEADS, -1, HEADS);
    expect_refused("llama", &e, SL_ERR_CORRUPT, "llama.attention.head_count",
                   "-1 of layer 1 is out of range");
    e = with_array("attention.head_count_kv", KV, KV, 1);
    expect_refused("llama", &e, SL_ERR_CORRUPT, "blk.2.attn_k.weight", "[64, 24");
    e = with_array("attention.head_count_kv", KV, 3, KV);
    expect_refused("llama", &e, SL_ERR_CORRUPT, "llama.attention.head_count_kv",
                   "3 does not divide the 4 heads");
    e = with_array("feed_forward_length", FF, 2 * FF, FF);
    expect_refused("llama", &e, SL_ERR_CORRUPT, "blk.1.ffn_gate.weight", "[64, 192");
    e = with_array("feed_forward_length", FF, FF, 0);
    expect_refused("llama", &e, SL_ERR_CORRUPT, "llama.feed_forward_length", "of layer 2");
    e = with_array("expert_feed_forward_length", FF_EXP, FF_EXP, 2 * FF_EXP);
    expect_refused("qwen3moe", &e, SL_ERR_CORRUPT, "blk.2.ffn_gate_exps.weight", "[64, 64, 6]");

    e = with_array("attention.head_count_kv", KV, 1, KV);
    e.tensor = "blk.1.attn_k.weight";
    e.tensor2 = "blk.1.attn_v.weight";
    e.dtype = SL_DTYPE_F16;
    e.n_dims = 2;
    e.ne[0] = EMBD;
    e.ne[1] = DIM;
    m = open_model("llama", &e, &file);
    assert_int_equal(m->layers[0].spec.attention.n_head_kv, KV);
    assert_int_equal(m->layers[1].spec.attention.n_head_kv, 1);
    sl_model_close(&m);
    free(file);
}

static uint32_t window_now, pattern_now;
static void add_window(struct gb *b) {
    gb_uint(b, "qwen3moe.attention.sliding_window", window_now);
    if (array_key)
        add_array(b);
    else if (pattern_now)
        gb_uint(b, "qwen3moe.attention.sliding_window_pattern", pattern_now);
}

static void test_windows(void **state) {
    (void)state;
    static const struct {
        uint32_t window, pattern, want[LAYERS];
    } cases[] = {
        {100, 0, {100, 100, 100}}, {100, 1, {0, 0, 0}},  {100, 2, {100, 0, 100}},
        {100, 3, {100, 100, 0}},   {2048, 0, {0, 0, 0}}, /* the whole context */
    };
    uint8_t *file;
    struct edit e = {.keys = add_window};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        array_key = NULL;
        window_now = cases[i].window;
        pattern_now = cases[i].pattern;
        struct sl_model *m = open_model("qwen3moe", &e, &file);
        for (uint32_t l = 0; l < LAYERS; l++)
            assert_int_equal(m->layers[l].spec.attention.window, cases[i].want[l]);
        sl_model_close(&m);
        free(file);
    }
    with_array("attention.sliding_window_pattern", 0, 1, 1);
    window_now = 7;
    array_type = SL_GGUF_BOOL;
    struct sl_model *m = open_model("qwen3moe", &e, &file);
    for (uint32_t l = 0; l < LAYERS; l++)
        assert_int_equal(m->layers[l].spec.attention.window, l ? 7 : 0);
    sl_model_close(&m);
    free(file);
    n_array_values = 2;
    expect_refused("qwen3moe", &e, SL_ERR_CORRUPT, "attention.sliding_window_pattern",
                   "2 values for 3 layers");
}

static void test_not_a_model(void **state) {
    (void)state;
    struct sl_gguf *g = NULL;
    struct sl_model *m = NULL;
    struct sl_err err;
    size_t n;
    struct gb b = gb_new(3);
    gb_str(&b, "general.architecture", "mamba\n");
    uint8_t *file = gb_finish(&b, &n);
    assert_int_equal(sl_gguf_open_memory(file, n, &g, &err), SL_OK);
    assert_int_equal(sl_model_from_gguf(g, &m, &err), SL_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "architecture 'mamba\\x0a' is not supported"));
    assert_non_null(strstr(err.text, "docs/MODELS.md"));
    free(file);
    b = gb_new(3);
    gb_str(&b, "general.architecture", "llama");
    file = gb_finish(&b, &n);
    assert_int_equal(sl_gguf_open_memory(file, n, &g, &err), SL_OK);
    assert_int_equal(sl_model_from_gguf(g, &m, &err), SL_ERR_INVALID);
    assert_non_null(strstr(err.text, "no weights"));
    free(file);
    b = gb_new(3);
    gb_uint(&b, "general.architecture", 3);
    file = gb_finish(&b, &n);
    assert_int_equal(sl_gguf_open_memory(file, n, &g, &err), SL_OK);
    assert_int_equal(sl_model_from_gguf(g, &m, &err), SL_ERR_CORRUPT);
    free(file);
    b = gb_new(3);
    file = gb_finish(&b, &n);
    assert_int_equal(sl_gguf_open_memory(file, n, &g, &err), SL_OK);
    assert_int_equal(sl_model_from_gguf(g, &m, &err), SL_ERR_CORRUPT);
    assert_non_null(strstr(err.text, "general.architecture"));
    free(file);
    assert_int_equal(sl_model_open("/nonexistent.gguf", &m, &err), SL_ERR_IO);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_qwen3moe),
        cmocka_unit_test(test_other_archs),
        cmocka_unit_test(test_dense_layers),
        cmocka_unit_test(test_gpt_oss),
        cmocka_unit_test(test_arch_list),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_missing_keys),
        cmocka_unit_test(test_absurd_keys),
        cmocka_unit_test(test_router_keys),
        cmocka_unit_test(test_rope_scaling),
        cmocka_unit_test(test_arrays_of_one_value),
        cmocka_unit_test(test_experts_used_per_layer),
        cmocka_unit_test(test_experts_per_layer),
        cmocka_unit_test(test_per_layer_arrays),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_not_a_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
