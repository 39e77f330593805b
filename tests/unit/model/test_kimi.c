/* Kimi Delta Attention between layers with latent attention: which they are, their tensors, and
 * files that lie about them. */
#include "tests/unit/model/model_open.h"

enum { LAYERS = 4, EMBD = 64, HEADS = 3, DIM = 20, INNER = HEADS * DIM, TAPS = 4 };
enum { LATENT = 24, ROT = 8, NOPE = 12, VALUE = 14, FF = 32, EXPERTS = 6, VOCAB = 40 };

/* KDA, KDA, latent attention, KDA; the first is dense. */
struct edit {
    const char *no_tensor, *key; /* left out; another value, UINT32_MAX: left out */
    uint32_t value;
    const char *extra; /* a tensor [EMBD, EMBD] more */
    const int32_t *n_head_kv;
};

static void tensor(struct gb *b, const struct edit *e, uint32_t layer, const char *name,
                   uint64_t n0, uint64_t n1, uint64_t n2) {
    char full[96];
    snprintf(full, sizeof full, "blk.%u.%s", layer, name);
    if (!e->no_tensor || strcmp(e->no_tensor, full) != 0)
        gb_tensor(b, full, SL_DTYPE_F32, n2 ? 3 : n1 ? 2 : 1, (uint64_t[]){n0, n1, n2});
}

static void add_layer(struct gb *b, const struct edit *e, uint32_t l) {
    tensor(b, e, l, "attn_norm.weight", EMBD, 0, 0);
    if (l == 2) {
        tensor(b, e, l, "attn_q.weight", EMBD, HEADS * (NOPE + ROT), 0);
        tensor(b, e, l, "attn_kv_a_mqa.weight", EMBD, LATENT + ROT, 0);
        tensor(b, e, l, "attn_kv_a_norm.weight", LATENT, 0, 0);
        tensor(b, e, l, "attn_k_b.weight", NOPE, LATENT, HEADS);
        tensor(b, e, l, "attn_v_b.weight", LATENT, VALUE, HEADS);
        tensor(b, e, l, "attn_output.weight", HEADS * VALUE, EMBD, 0);
    } else {
        tensor(b, e, l, "attn_q.weight", EMBD, INNER, 0);
        tensor(b, e, l, "attn_k.weight", EMBD, INNER, 0);
        tensor(b, e, l, "attn_v.weight", EMBD, INNER, 0);
        tensor(b, e, l, "ssm_conv1d_q.weight", TAPS, 1, INNER);
        tensor(b, e, l, "ssm_conv1d_k.weight", TAPS, 1, INNER);
        tensor(b, e, l, "ssm_conv1d_v.weight", TAPS, 1, INNER);
        tensor(b, e, l, "ssm_f_a.weight", EMBD, DIM, 0);
        tensor(b, e, l, "ssm_f_b.weight", DIM, INNER, 0);
        tensor(b, e, l, "ssm_beta.weight", EMBD, HEADS, 0);
        tensor(b, e, l, "ssm_a", 1, HEADS, 0);
        tensor(b, e, l, "ssm_dt.bias", INNER, 0, 0);
        tensor(b, e, l, "ssm_g_a.weight", EMBD, DIM, 0);
        tensor(b, e, l, "ssm_g_b.weight", DIM, INNER, 0);
        tensor(b, e, l, "ssm_norm.weight", DIM, 0, 0);
        tensor(b, e, l, "attn_output.weight", INNER, EMBD, 0);
    }
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

static struct gb build(const struct edit *e) {
    static const struct {
        const char *name;
        uint32_t value;
    } keys[] = {{"block_count", LAYERS},
                {"context_length", 4096},
                {"embedding_length", EMBD},
                {"attention.head_count", HEADS},
                {"feed_forward_length", 2 * FF},
                {"attention.kv_lora_rank", LATENT},
                {"attention.key_length", LATENT + ROT},
                {"attention.key_length_mla", NOPE + ROT},
                {"attention.value_length_mla", VALUE},
                {"rope.dimension_count", ROT},
                {"ssm.conv_kernel", TAPS},
                {"kda.head_dim", DIM},
                {"expert_count", EXPERTS},
                {"expert_used_count", 2},
                {"expert_feed_forward_length", FF},
                {"expert_shared_count", 1},
                {"expert_gating_func", 2},
                {"leading_dense_block_count", 1}};
    static const int32_t n_head_kv[LAYERS] = {0, 0, 1, 0};
    struct gb b = gb_new(3);
    char name[96];
    gb_str(&b, "general.architecture", "kimi-linear");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        bool edited = e->key && strcmp(e->key, keys[i].name) == 0;
        snprintf(name, sizeof name, "kimi-linear.%s", keys[i].name);
        if (!edited || e->value != UINT32_MAX)
            gb_uint(&b, name, edited ? e->value : keys[i].value);
    }
    gb_float(&b, "kimi-linear.attention.layer_norm_rms_epsilon", 1e-5f);
    gb_float(&b, "kimi-linear.expert_weights_scale", 2.446f);
    gb_array(&b, "kimi-linear.attention.head_count_kv", SL_GGUF_I32, LAYERS,
             e->n_head_kv ? e->n_head_kv : n_head_kv, sizeof n_head_kv);
    gb_tensor(&b, "token_embd.weight", SL_DTYPE_F32, 2, (uint64_t[]){EMBD, VOCAB});
    gb_tensor(&b, "output_norm.weight", SL_DTYPE_F32, 1, (uint64_t[]){EMBD});
    for (uint32_t l = 0; l < LAYERS; l++)
        add_layer(&b, e, l);
    if (e->extra)
        gb_tensor(&b, e->extra, SL_DTYPE_F32, 2, (uint64_t[]){EMBD, EMBD});
    return b;
}

static void refused(struct edit e, const char *word1, const char *word2) {
    model_refused(build(&e), word1, word2);
}

static void opens(void **state) {
    (void)state;
    uint8_t *file;
    struct sl_model *m = model_ok(build(&(struct edit){0}), &file);
    for (uint32_t l = 0; l < LAYERS; l++) {
        const struct sl_layer_spec *s = &m->layers[l].spec;
        assert_int_equal(s->mixer, l == 2 ? SL_MIXER_LATENT : SL_MIXER_KDA);
        assert_int_equal(s->ffn, l ? SL_FFN_EXPERTS : SL_FFN_DENSE);
        if (l == 2) {
            assert_true(s->latent.no_rope);
            assert_int_equal(s->latent.n_nope, NOPE);
            assert_int_equal(s->latent.n_head, HEADS);
            continue;
        }
        assert_int_equal(s->kda.n_head, HEADS);
        assert_int_equal(s->kda.head_dim, DIM);
        assert_int_equal(s->kda.n_taps, TAPS);
        if (!l)
            continue;
        assert_int_equal(s->experts.router_kind, SL_ROUTER_KIND_SIGMOID);
        assert_true(s->experts.router_normalize);
        assert_int_equal(s->experts.n_ff_shared, FF);
    }
    sl_model_close(&m);
    free(file);
}

static void lies(void **state) {
    (void)state;
    static const char *const tensors[] = {
        "attn_q.weight",    "attn_k.weight",       "attn_v.weight",       "attn_output.weight",
        "attn_norm.weight", "ssm_conv1d_q.weight", "ssm_conv1d_k.weight", "ssm_conv1d_v.weight",
        "ssm_f_a.weight",   "ssm_f_b.weight",      "ssm_beta.weight",     "ssm_a",
        "ssm_dt.bias",      "ssm_g_a.weight",      "ssm_g_b.weight",      "ssm_norm.weight",
        "exp_probs_b.bias"};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.3.%s", tensors[i]);
        refused((struct edit){.no_tensor = name}, name, "is missing");
    }
    static const char *const extra[] = {"blk.0.attn_kv_a_mqa.weight", "blk.2.ssm_f_a.weight",
                                        "blk.2.attn_k.weight", "blk.1.attn_qkv.weight"};
    for (size_t i = 0; i < sizeof extra / sizeof *extra; i++)
        refused((struct edit){.extra = extra[i]}, extra[i], "no such tensor here");
    static const int32_t none[LAYERS] = {0}, two[LAYERS] = {0, 0, 2, 0}, all[LAYERS] = {1, 1, 1, 1};
    refused((struct edit){.n_head_kv = none}, "attention.head_count_kv", "none has attention");
    refused((struct edit){.n_head_kv = two}, "attention.head_count_kv", "split projections");
    refused((struct edit){.n_head_kv = all}, "blk.0.", "no such tensor here");
    static const struct {
        const char *key;
        uint32_t value;
        const char *text;
    } keys[] = {
        {"ssm.conv_kernel", 1, "out of range"},      {"ssm.conv_kernel", 9, "out of range"},
        {"ssm.conv_kernel", 5, "ssm_conv1d_q"},      {"ssm.conv_kernel", UINT32_MAX, "is missing"},
        {"kda.head_dim", 0, "out of range"},         {"kda.head_dim", 1025, "out of range"},
        {"kda.head_dim", DIM + 1, "blk.0.attn_q"},   {"kda.head_dim", UINT32_MAX, "is missing"},
        {"attention.head_count", HEADS + 1, "blk."}, {"expert_shared_count", 0, "out of range"},
        {"attention.key_length", 9, "make it"},
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        refused((struct edit){.key = keys[i].key, .value = keys[i].value}, keys[i].text, "");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(opens), cmocka_unit_test(lies)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
