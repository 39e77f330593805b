/* LFM2: which layers have a short convolution, and files that lie about it. */
#include "tests/unit/model/model_open.h"

enum { LAYERS = 4, EMBD = 64, HEADS = 4, DIM = 16, FF = 96, FF_EXP = 32, EXPERTS = 6, VOCAB = 40 };

struct edit {
    const char *no_key, *no_tensor, *extra; /* left out; added, of EMBD elements */
    uint32_t n_taps, conv_taps;             /* 0 = 3: the key's, the tensor's */
    const int32_t *n_head_kv;               /* [LAYERS] */
};

static const int32_t usual[LAYERS] = {0, 2, 0, 1};

static void tensor(struct gb *b, const struct edit *e, uint32_t layer, const char *name,
                   uint64_t n0, uint64_t n1, uint64_t n2) {
    char full[96];
    snprintf(full, sizeof full, "blk.%u.%s", layer, name);
    if (!e->no_tensor || strcmp(e->no_tensor, full) != 0)
        gb_tensor(b, full, SL_DTYPE_F32, n2 ? 3 : n1 ? 2 : 1, (uint64_t[]){n0, n1, n2});
}

static void attention(struct gb *b, const struct edit *e, uint32_t l) {
    uint64_t kv = (uint64_t)usual[l] * DIM;
    tensor(b, e, l, "attn_q.weight", EMBD, HEADS * DIM, 0);
    tensor(b, e, l, "attn_k.weight", EMBD, kv, 0);
    tensor(b, e, l, "attn_v.weight", EMBD, kv, 0);
    tensor(b, e, l, "attn_output.weight", HEADS * DIM, EMBD, 0);
    tensor(b, e, l, "attn_q_norm.weight", DIM, 0, 0);
    tensor(b, e, l, "attn_k_norm.weight", DIM, 0, 0);
}

static void feed_forward(struct gb *b, const struct edit *e, uint32_t l) {
    tensor(b, e, l, "ffn_norm.weight", EMBD, 0, 0);
    if (!l) {
        tensor(b, e, l, "ffn_gate.weight", EMBD, FF, 0);
        tensor(b, e, l, "ffn_up.weight", EMBD, FF, 0);
        tensor(b, e, l, "ffn_down.weight", FF, EMBD, 0);
        return;
    }
    tensor(b, e, l, "ffn_gate_inp.weight", EMBD, EXPERTS, 0);
    tensor(b, e, l, "exp_probs_b.bias", EXPERTS, 0, 0);
    tensor(b, e, l, "ffn_gate_exps.weight", EMBD, FF_EXP, EXPERTS);
    tensor(b, e, l, "ffn_up_exps.weight", EMBD, FF_EXP, EXPERTS);
    tensor(b, e, l, "ffn_down_exps.weight", FF_EXP, EMBD, EXPERTS);
}

static struct gb build(const struct edit *e) {
    static const struct {
        const char *name;
        uint32_t value;
    } keys[] = {{"block_count", LAYERS},         {"context_length", 4096},
                {"embedding_length", EMBD},      {"attention.head_count", HEADS},
                {"feed_forward_length", FF},     {"expert_feed_forward_length", FF_EXP},
                {"expert_count", EXPERTS},       {"expert_used_count", 2},
                {"leading_dense_block_count", 1}};
    struct gb b = gb_new(3);
    char name[96];
    gb_str(&b, "general.architecture", "lfm2moe");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        snprintf(name, sizeof name, "lfm2moe.%s", keys[i].name);
        gb_uint(&b, name, keys[i].value);
    }
    gb_float(&b, "lfm2moe.attention.layer_norm_rms_epsilon", 1e-5f);
    if (!e->no_key || strcmp(e->no_key, "shortconv.l_cache") != 0)
        gb_uint(&b, "lfm2moe.shortconv.l_cache", e->n_taps ? e->n_taps : 3);
    gb_array(&b, "lfm2moe.attention.head_count_kv", SL_GGUF_I32, LAYERS,
             e->n_head_kv ? e->n_head_kv : usual, LAYERS * sizeof *usual);
    gb_tensor(&b, "token_embd.weight", SL_DTYPE_F32, 2, (uint64_t[]){EMBD, VOCAB});
    if (!e->no_tensor || strcmp(e->no_tensor, "token_embd_norm.weight") != 0)
        gb_tensor(&b, "token_embd_norm.weight", SL_DTYPE_F32, 1, (uint64_t[]){EMBD});
    if (e->extra)
        gb_tensor(&b, e->extra, SL_DTYPE_F32, 1, (uint64_t[]){EMBD});
    for (uint32_t l = 0; l < LAYERS; l++) {
        tensor(&b, e, l, "attn_norm.weight", EMBD, 0, 0);
        if (usual[l]) {
            attention(&b, e, l);
        } else {
            tensor(&b, e, l, "shortconv.in_proj.weight", EMBD, 3 * EMBD, 0);
            tensor(&b, e, l, "shortconv.conv.weight", e->conv_taps ? e->conv_taps : 3, EMBD, 0);
            tensor(&b, e, l, "shortconv.out_proj.weight", EMBD, EMBD, 0);
        }
        feed_forward(&b, e, l);
    }
    return b;
}

static void refused(struct edit e, const char *word1, const char *word2) {
    model_refused(build(&e), word1, word2);
}

static void opens(void **state) {
    (void)state;
    uint8_t *file;
    struct sl_model *m = model_ok(build(&(struct edit){.n_taps = 5, .conv_taps = 5}), &file);
    for (uint32_t l = 0; l < LAYERS; l++) {
        const struct sl_layer_spec *s = &m->layers[l].spec;
        assert_int_equal(s->mixer, usual[l] ? SL_MIXER_ATTENTION : SL_MIXER_CONV);
        assert_int_equal(s->conv.n_taps, usual[l] ? 0 : 5);
        assert_int_equal(s->conv.n, usual[l] ? 0 : EMBD);
        assert_int_equal(s->attention.n_head_kv, usual[l]);
        assert_int_equal(s->ffn, l ? SL_FFN_EXPERTS : SL_FFN_DENSE);
    }
    assert_int_equal(m->layers[1].spec.experts.router_kind, SL_ROUTER_KIND_SIGMOID);
    assert_true(m->layers[1].spec.experts.router_normalize);
    assert_ptr_equal(m->global[SL_G_OUTPUT], m->global[SL_G_TOKEN_EMBD]);
    sl_model_close(&m);
    free(file);
}

static void lies(void **state) {
    (void)state;
    static const char *const needed[] = {
        "blk.2.attn_norm.weight",      "blk.2.shortconv.in_proj.weight",
        "blk.2.shortconv.conv.weight", "blk.2.shortconv.out_proj.weight",
        "blk.1.attn_q_norm.weight",    "blk.2.exp_probs_b.bias",
        "token_embd_norm.weight",
    };
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        refused((struct edit){.no_tensor = needed[i]}, needed[i], "is missing");
    refused((struct edit){.no_key = "shortconv.l_cache"}, "shortconv.l_cache", "is missing");
    refused((struct edit){.n_taps = 1}, "shortconv.l_cache", "out of range");
    refused((struct edit){.n_taps = 9, .conv_taps = 9}, "shortconv.l_cache", "out of range");
    refused((struct edit){.conv_taps = 4}, "blk.0.shortconv.conv.weight", "[4, 64");
    refused((struct edit){.extra = "output_norm.weight"}, "output_norm.weight", "no such tensor");
    refused((struct edit){.extra = "blk.1.shortconv.conv.weight"}, "blk.1.shortconv.conv.weight",
            "no such tensor here");
    /* Attention where the file has a convolution, and the other way round. */
    refused((struct edit){.n_head_kv = (const int32_t[]){2, 2, 0, 1}}, "blk.0.shortconv", "here");
    refused((struct edit){.n_head_kv = (const int32_t[]){0, 2, 0, 0}}, "blk.3.attn_", "here");
    refused((struct edit){.n_head_kv = (const int32_t[]){0, 3, 0, 1}}, "head_count_kv", "divide");
    refused((struct edit){.n_head_kv = (const int32_t[]){0, -1, 0, 1}}, "head_count_kv", "range");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(opens), cmocka_unit_test(lies)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
