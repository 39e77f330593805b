/* Ling 3.0: which layers have Kimi Delta Attention and which latent attention, their tensors, and
 * files that lie about them. */
#include "tests/unit/model/model_open.h"

enum { LAYERS = 4, EMBD = 64, HEADS = 3, DIM = 20, INNER = HEADS * DIM, TAPS = 4, LOW = 28 };
enum { LATENT = 24, ROT = 8, NOPE = 12, VALUE = 14, FF = 32, EXPERTS = 6, VOCAB = 40 };

/* KDA, KDA, latent attention, KDA; the first is dense. Behind them one that drafts tokens. */
struct edit {
    const char *no_tensor, *key; /* left out; another value, UINT32_MAX: left out */
    uint32_t value;
    const char *extra;  /* a tensor [EMBD, EMBD] more */
    const float *bound; /* another; not a number: left out */
    bool unsafe, no_low_rank, multiplier;
    const float *limits; /* of the experts, [LAYERS + 1] */
    const char *narrow;  /* a tensor with one row less */
};

static void tensor(struct gb *b, const struct edit *e, uint32_t layer, const char *name,
                   uint64_t n0, uint64_t n1, uint64_t n2) {
    char full[96];
    snprintf(full, sizeof full, "blk.%u.%s", layer, name);
    if (e->no_tensor && strcmp(e->no_tensor, full) == 0)
        return;
    if (e->narrow && strcmp(e->narrow, full) == 0)
        n1--;
    gb_tensor(b, full, SL_DTYPE_F32, n2 ? 3 : n1 ? 2 : 1, (uint64_t[]){n0, n1, n2});
}

static void add_latent(struct gb *b, const struct edit *e, uint32_t l) {
    if (e->no_low_rank) {
        tensor(b, e, l, "attn_q.weight", EMBD, HEADS * (NOPE + ROT), 0);
    } else {
        tensor(b, e, l, "attn_q_a.weight", EMBD, LOW, 0);
        tensor(b, e, l, "attn_q_a_norm.weight", LOW, 0, 0);
        tensor(b, e, l, "attn_q_b.weight", LOW, HEADS * (NOPE + ROT), 0);
    }
    tensor(b, e, l, "attn_kv_a_mqa.weight", EMBD, LATENT + ROT, 0);
    tensor(b, e, l, "attn_kv_a_norm.weight", LATENT, 0, 0);
    tensor(b, e, l, "attn_k_b.weight", NOPE, LATENT, HEADS);
    tensor(b, e, l, "attn_v_b.weight", LATENT, VALUE, HEADS);
    tensor(b, e, l, "attn_gate.weight", EMBD, HEADS, 0);
    tensor(b, e, l, "attn_output.weight", HEADS * VALUE, EMBD, 0);
}

static void add_kda(struct gb *b, const struct edit *e, uint32_t l) {
    tensor(b, e, l, "attn_q.weight", EMBD, INNER, 0);
    tensor(b, e, l, "attn_k.weight", EMBD, INNER, 0);
    tensor(b, e, l, "attn_v.weight", EMBD, INNER, 0);
    tensor(b, e, l, "ssm_conv1d_q.weight", TAPS, 1, INNER);
    tensor(b, e, l, "ssm_conv1d_k.weight", TAPS, 1, INNER);
    tensor(b, e, l, "ssm_conv1d_v.weight", TAPS, 1, INNER);
    tensor(b, e, l, "ssm_f_a.weight", EMBD, INNER, 0);
    tensor(b, e, l, "ssm_beta.weight", EMBD, HEADS, 0);
    tensor(b, e, l, "ssm_a", 1, HEADS, 0);
    tensor(b, e, l, "ssm_dt.bias", INNER, 0, 0);
    tensor(b, e, l, "ssm_g_a.weight", EMBD, INNER, 0);
    tensor(b, e, l, "ssm_norm.weight", DIM, 0, 0);
    tensor(b, e, l, "attn_output.weight", INNER, EMBD, 0);
}

static void add_layer(struct gb *b, const struct edit *e, uint32_t l) {
    tensor(b, e, l, "attn_norm.weight", EMBD, 0, 0);
    if (l == 2 || l == LAYERS)
        add_latent(b, e, l);
    else
        add_kda(b, e, l);
    tensor(b, e, l, "ffn_norm.weight", EMBD, 0, 0);
    if (l == 0) {
        tensor(b, e, l, "ffn_gate.weight", EMBD, 2 * FF, 0);
        tensor(b, e, l, "ffn_up.weight", EMBD, 2 * FF, 0);
        tensor(b, e, l, "ffn_down.weight", 2 * FF, EMBD, 0);
        return;
    }
    tensor(b, e, l, "ffn_gate_inp.weight", EMBD, EXPERTS, 0);
    tensor(b, e, l, "exp_probs_b.bias", EXPERTS, 0, 0);
    tensor(b, e, l, "ffn_gate_exps.weight", EMBD, FF, EXPERTS);
    tensor(b, e, l, "ffn_up_exps.weight", EMBD, FF, EXPERTS);
    tensor(b, e, l, "ffn_down_exps.weight", FF, EMBD, EXPERTS);
    tensor(b, e, l, "ffn_gate_shexp.weight", EMBD, FF, 0);
    tensor(b, e, l, "ffn_up_shexp.weight", EMBD, FF, 0);
    tensor(b, e, l, "ffn_down_shexp.weight", FF, EMBD, 0);
}

static void write_keys(struct gb *b, const struct edit *e) {
    static const struct {
        const char *name;
        uint32_t value;
    } keys[] = {{"block_count", LAYERS + 1},
                {"nextn_predict_layers", 1},
                {"context_length", 4096},
                {"embedding_length", EMBD},
                {"attention.head_count", HEADS},
                {"feed_forward_length", 2 * FF},
                {"attention.q_lora_rank", LOW},
                {"attention.kv_lora_rank", LATENT},
                {"attention.key_length", LATENT + ROT},
                {"attention.value_length", DIM}, /* as converters write it: of KDA's heads */
                {"attention.key_length_mla", NOPE + ROT},
                {"attention.value_length_mla", VALUE},
                {"rope.dimension_count", ROT},
                {"ssm.conv_kernel", TAPS},
                {"kda.head_dim", DIM},
                {"expert_count", EXPERTS},
                {"expert_used_count", 2},
                {"expert_feed_forward_length", FF},
                {"expert_shared_feed_forward_length", FF},
                {"expert_shared_count", 1},
                {"expert_gating_func", 2},
                {"expert_group_count", 2},
                {"expert_group_used_count", 1},
                {"leading_dense_block_count", 1}};
    static const int32_t n_head_kv[LAYERS + 1] = {0, 0, 1, 0, 1};
    static const float limits[LAYERS + 1] = {0, 0, 4, 0, 7};
    char name[96];
    gb_str(b, "general.architecture", "bailingmoe3");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        bool edited = e->key && strcmp(e->key, keys[i].name) == 0;
        uint32_t value = edited ? e->value : keys[i].value;
        if (e->no_low_rank && keys[i].value == LOW)
            value = UINT32_MAX;
        snprintf(name, sizeof name, "bailingmoe3.%s", keys[i].name);
        if (value != UINT32_MAX)
            gb_uint(b, name, value);
    }
    gb_float(b, "bailingmoe3.attention.layer_norm_rms_epsilon", 1e-6f);
    gb_float(b, "bailingmoe3.expert_weights_scale", 2.5f);
    gb_bool(b, "bailingmoe3.expert_weights_norm", true);
    gb_bool(b, "bailingmoe3.kda.safe_gate", !e->unsafe);
    if (e->multiplier)
        gb_float(b, "bailingmoe3.rope.scaling.yarn_log_multiplier", 0.1f);
    float bound = e->bound ? *e->bound : -5;
    if (bound == bound)
        gb_float(b, "bailingmoe3.kda.gate_lower_bound", bound);
    gb_array(b, "bailingmoe3.attention.head_count_kv", SL_GGUF_I32, LAYERS + 1, n_head_kv,
             sizeof n_head_kv);
    gb_array(b, "bailingmoe3.swiglu_clamp_exp", SL_GGUF_F32, LAYERS + 1,
             e->limits ? e->limits : limits, sizeof limits);
    gb_float(b, "bailingmoe3.swiglu_clamp_shexp", 5);
}

static struct gb build(const struct edit *e) {
    struct gb b = gb_new(3);
    write_keys(&b, e);
    gb_tensor(&b, "token_embd.weight", SL_DTYPE_F32, 2, (uint64_t[]){EMBD, VOCAB});
    gb_tensor(&b, "output_norm.weight", SL_DTYPE_F32, 1, (uint64_t[]){EMBD});
    for (uint32_t l = 0; l <= LAYERS; l++)
        add_layer(&b, e, l);
    gb_tensor(&b, "blk.4.nextn.eh_proj.weight", SL_DTYPE_F32, 2, (uint64_t[]){2 * EMBD, EMBD});
    gb_tensor(&b, "blk.4.layer_output_norm.weight", SL_DTYPE_F32, 1, (uint64_t[]){EMBD});
    if (e->extra)
        gb_tensor(&b, e->extra, SL_DTYPE_F32, 2, (uint64_t[]){EMBD, EMBD});
    return b;
}

static void refused(struct edit e, const char *word1, const char *word2) {
    model_refused(build(&e), word1, word2);
}

static void opens(void **state) {
    (void)state;
    for (int low = 0; low < 2; low++) {
        uint8_t *file;
        struct sl_model *m = model_ok(build(&(struct edit){.no_low_rank = !low}), &file);
        assert_int_equal(m->hp.n_layer, LAYERS);
        assert_int_equal(m->hp.n_layer_nextn, 1);
        for (uint32_t l = 0; l < LAYERS; l++) {
            const struct sl_layer_spec *s = &m->layers[l].spec;
            assert_int_equal(s->mixer, l == 2 ? SL_MIXER_LATENT : SL_MIXER_KDA);
            assert_int_equal(s->ffn, l ? SL_FFN_EXPERTS : SL_FFN_DENSE);
            assert_true(s->limit == 5);
            if (l == 2) {
                assert_false(s->latent.no_rope);
                assert_int_equal(s->latent.gate, SL_GATE_HEAD);
                assert_int_equal(s->latent.n_lora_q, low ? LOW : 0);
                assert_true(s->experts.limit == 4);
                assert_int_equal(s->experts.activation, SL_EXPERT_SWIGLU_LIMITED);
            } else {
                assert_true(s->kda.full && s->kda.bound == -5);
                assert_int_equal(s->kda.n_head, HEADS);
                assert_int_equal(s->kda.head_dim, DIM);
                assert_int_equal(s->experts.activation, SL_EXPERT_SWIGLU);
            }
            if (!l)
                continue;
            assert_int_equal(s->experts.router_kind, SL_ROUTER_KIND_SIGMOID);
            assert_true(s->experts.router_normalize);
            assert_int_equal(s->experts.n_group, 2);
            assert_int_equal(s->experts.n_ff_shared, FF);
        }
        sl_model_close(&m);
        free(file);
    }
}

static void tensors_that_lie(void **state) {
    (void)state;
    static const char *const tensors[] = {"3.attn_q.weight",         "3.attn_k.weight",
                                          "3.attn_v.weight",         "3.attn_output.weight",
                                          "3.ssm_conv1d_q.weight",   "3.ssm_conv1d_k.weight",
                                          "3.ssm_conv1d_v.weight",   "3.ssm_f_a.weight",
                                          "3.ssm_beta.weight",       "3.ssm_a",
                                          "3.ssm_dt.bias",           "3.ssm_g_a.weight",
                                          "3.ssm_norm.weight",       "3.exp_probs_b.bias",
                                          "2.attn_q_a.weight",       "2.attn_q_a_norm.weight",
                                          "2.attn_q_b.weight",       "2.attn_kv_a_mqa.weight",
                                          "2.attn_kv_a_norm.weight", "2.attn_k_b.weight",
                                          "2.attn_v_b.weight",       "2.attn_gate.weight",
                                          "2.attn_output.weight"};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%s", tensors[i]);
        refused((struct edit){.no_tensor = name}, name, "is missing");
    }
    static const char *const narrow[] = {"blk.3.ssm_f_a.weight", "blk.3.ssm_g_a.weight",
                                         "blk.2.attn_gate.weight", "blk.2.attn_q_b.weight"};
    for (size_t i = 0; i < sizeof narrow / sizeof *narrow; i++)
        refused((struct edit){.narrow = narrow[i]}, narrow[i], "its shape is");
    static const char *const extra[] = {"blk.0.attn_kv_a_mqa.weight", "blk.2.ssm_f_a.weight",
                                        "blk.0.ssm_f_b.weight",       "blk.1.ssm_g_b.weight",
                                        "blk.1.attn_gate.weight",     "blk.2.attn_q.weight"};
    for (size_t i = 0; i < sizeof extra / sizeof *extra; i++)
        refused((struct edit){.extra = extra[i]}, extra[i], "no such tensor here");
}

static void keys_that_lie(void **state) {
    (void)state;
    static const struct {
        const char *key;
        uint32_t value;
        const char *text;
    } keys[] = {
        {"ssm.conv_kernel", 9, "out of range"},
        {"ssm.conv_kernel", UINT32_MAX, "is missing"},
        {"kda.head_dim", 0, "out of range"},
        {"kda.head_dim", DIM + 1, "blk.0.attn_q"},
        {"attention.head_count", HEADS + 1, "blk."},
        {"expert_shared_count", 0, "out of range"},
        {"attention.key_length", 9, "make it"},
        {"attention.q_lora_rank", 0, "attn_q"},
        {"attention.q_lora_rank", LOW + 1, "attn_q_a"},
        {"expert_group_count", 4, "out of range"},
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        refused((struct edit){.key = keys[i].key, .value = keys[i].value}, keys[i].text, "");
    static const float bounds[] = {0, 5, -1e9f, -1e-9f};
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++)
        refused((struct edit){.bound = &bounds[i]}, "kda.gate_lower_bound", "out of range");
    static const float none = __builtin_nanf("");
    refused((struct edit){.bound = &none}, "kda.gate_lower_bound", "is missing");
    refused((struct edit){.unsafe = true}, "kda.safe_gate", "without a bound");
    refused((struct edit){.multiplier = true}, "yarn_log_multiplier", "0.1");
    static const float limits[LAYERS + 1] = {0, 0, -4, 0, 0};
    refused((struct edit){.limits = limits}, "swiglu_clamp_exp", "layer 2");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(opens), cmocka_unit_test(tensors_that_lie),
                                       cmocka_unit_test(keys_that_lie)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
