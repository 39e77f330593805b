/* Layers of one part: which they are, their tensors, and files that lie about them. */
#include "tests/unit/model/model_open.h"

enum { LAYERS = 4, EMBD = 64, HEADS = 4, DIM = 16, FF = 32, SHARED = 48, EXPERTS = 6, VOCAB = 40 };
enum { M_HEADS = 6, M_DIM = 8, GROUPS = 2, STATE = 12, TAPS = 4, INNER = M_HEADS * M_DIM };
enum { CONV = INNER + 2 * GROUPS * STATE, LATENT = 24, NEXTN = 1 };

/* Experts, attention, experts, Mamba-2; a layer behind them that drafts tokens. */
struct edit {
    const char *no_tensor, *key; /* left out; another value, UINT32_MAX: left out */
    uint32_t value;
    const char *extra; /* a tensor [EMBD, FF] more */
    bool dense, latent, mean_epsilon, no_widths, both;
};

static void tensor(struct gb *b, const struct edit *e, uint32_t layer, const char *name,
                   uint64_t n0, uint64_t n1, uint64_t n2) {
    char full[96];
    snprintf(full, sizeof full, "blk.%u.%s", layer, name);
    if (!e->no_tensor || strcmp(e->no_tensor, full) != 0)
        gb_tensor(b, full, SL_DTYPE_F32, n2 ? 3 : n1 ? 2 : 1, (uint64_t[]){n0, n1, n2});
}

static void add_ffn(struct gb *b, const struct edit *e, uint32_t l) {
    uint64_t in = e->latent ? LATENT : EMBD;
    if (e->dense) {
        tensor(b, e, l, "ffn_up.weight", EMBD, FF, 0);
        tensor(b, e, l, "ffn_down.weight", FF, EMBD, 0);
        return;
    }
    tensor(b, e, l, "ffn_gate_inp.weight", EMBD, EXPERTS, 0);
    tensor(b, e, l, "exp_probs_b.bias", EXPERTS, 0, 0);
    tensor(b, e, l, "ffn_up_exps.weight", in, FF, EXPERTS);
    tensor(b, e, l, "ffn_down_exps.weight", FF, in, EXPERTS);
    tensor(b, e, l, "ffn_up_shexp.weight", EMBD, SHARED, 0);
    tensor(b, e, l, "ffn_down_shexp.weight", SHARED, EMBD, 0);
    if (e->latent) {
        tensor(b, e, l, "ffn_latent_down.weight", EMBD, LATENT, 0);
        tensor(b, e, l, "ffn_latent_up.weight", LATENT, EMBD, 0);
    }
}

static void add_layer(struct gb *b, const struct edit *e, uint32_t l) {
    tensor(b, e, l, "attn_norm.weight", EMBD, 0, 0);
    if (l == 1) {
        tensor(b, e, l, "attn_q.weight", EMBD, HEADS * DIM, 0);
        tensor(b, e, l, "attn_k.weight", EMBD, 2 * DIM, 0);
        tensor(b, e, l, "attn_v.weight", EMBD, 2 * DIM, 0);
        tensor(b, e, l, "attn_output.weight", HEADS * DIM, EMBD, 0);
    } else if (l == 3) {
        tensor(b, e, l, "ssm_in.weight", EMBD, INNER + CONV + M_HEADS, 0);
        tensor(b, e, l, "ssm_conv1d.weight", TAPS, CONV, 0);
        tensor(b, e, l, "ssm_conv1d.bias", CONV, 0, 0);
        tensor(b, e, l, "ssm_dt.bias", M_HEADS, 0, 0);
        tensor(b, e, l, "ssm_a", 1, M_HEADS, 0);
        tensor(b, e, l, "ssm_d", 1, M_HEADS, 0);
        tensor(b, e, l, "ssm_norm.weight", INNER / GROUPS, GROUPS, 0);
        tensor(b, e, l, "ssm_out.weight", INNER, EMBD, 0);
    } else {
        add_ffn(b, e, l);
    }
}

static void add_arrays(struct gb *b, const struct edit *e, const char *arch) {
    static const int32_t n_head_kv[LAYERS + NEXTN] = {0, 2, 0, 0, 2};
    static const int32_t all_heads[LAYERS + NEXTN] = {2, 2, 2, 0, 2};
    static const int32_t ff[LAYERS + NEXTN] = {FF, 0, FF, 0, FF};
    uint32_t n = LAYERS + (e->dense ? 0 : NEXTN);
    char name[96];
    snprintf(name, sizeof name, "%s.attention.head_count_kv", arch);
    gb_array(b, name, SL_GGUF_I32, n, e->both ? all_heads : n_head_kv, n * sizeof *n_head_kv);
    snprintf(name, sizeof name, "%s.feed_forward_length", arch);
    if (!e->no_widths)
        gb_array(b, name, SL_GGUF_I32, n, ff, n * sizeof *ff);
}

static struct gb build(const struct edit *e) {
    static const struct {
        const char *name;
        uint32_t value;
        bool moe;
    } keys[] = {{"block_count", LAYERS, false},
                {"context_length", 4096, false},
                {"embedding_length", EMBD, false},
                {"attention.head_count", HEADS, false},
                {"ssm.conv_kernel", TAPS, false},
                {"ssm.inner_size", INNER, false},
                {"ssm.state_size", STATE, false},
                {"ssm.group_count", GROUPS, false},
                {"ssm.time_step_rank", M_HEADS, false},
                {"expert_count", EXPERTS, true},
                {"expert_used_count", 2, true},
                {"expert_feed_forward_length", FF, true},
                {"expert_shared_feed_forward_length", SHARED, true},
                {"expert_group_count", 1, true},
                {"nextn_predict_layers", NEXTN, true},
                {"moe_latent_size", LATENT, true}};
    const char *arch = e->dense ? "nemotron_h" : "nemotron_h_moe";
    struct gb b = gb_new(3);
    char name[96];
    gb_str(&b, "general.architecture", arch);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        bool edited = e->key && strcmp(e->key, keys[i].name) == 0;
        uint32_t value = keys[i].value;
        if ((keys[i].moe && e->dense) ||
            (strcmp(keys[i].name, "moe_latent_size") == 0 && !e->latent))
            continue;
        if (i == 0 && !e->dense)
            value += NEXTN;
        snprintf(name, sizeof name, "%s.%s", arch, keys[i].name);
        if (!edited || e->value != UINT32_MAX)
            gb_uint(&b, name, edited ? e->value : value);
    }
    snprintf(name, sizeof name, "%s.attention.layer_norm_%sepsilon", arch,
             e->mean_epsilon ? "" : "rms_");
    gb_float(&b, name, 1e-5f);
    add_arrays(&b, e, arch);
    gb_tensor(&b, "token_embd.weight", SL_DTYPE_F32, 2, (uint64_t[]){EMBD, VOCAB});
    gb_tensor(&b, "output_norm.weight", SL_DTYPE_F32, 1, (uint64_t[]){EMBD});
    for (uint32_t l = 0; l < LAYERS; l++)
        add_layer(&b, e, l);
    if (!e->dense)
        tensor(&b, e, LAYERS, "nextn.eh_proj.weight", 2 * EMBD, EMBD, 0);
    if (e->extra)
        gb_tensor(&b, e->extra, SL_DTYPE_F32, 2, (uint64_t[]){EMBD, FF});
    return b;
}

static void refused(struct edit e, const char *word1, const char *word2) {
    model_refused(build(&e), word1, word2);
}

static void opens(void **state) {
    (void)state;
    for (int i = 0; i < 16; i++) {
        const struct edit e = {
            .dense = i & 1, .latent = i & 2 && !(i & 1), .mean_epsilon = i & 4, .both = i & 8};
        uint8_t *file;
        struct sl_model *m = model_ok(build(&e), &file);
        assert_int_equal(m->hp.n_layer, LAYERS);
        assert_int_equal(m->hp.n_layer_nextn, e.dense ? 0 : NEXTN);
        assert_true(m->hp.norm_eps > 0.9e-5f && !m->hp.layer_norm);
        for (uint32_t l = 0; l < LAYERS; l++) {
            const struct sl_layer *layer = &m->layers[l];
            const struct sl_layer_spec *s = &layer->spec;
            assert_int_equal(s->mixer, l == 1   ? SL_MIXER_ATTENTION
                                       : l == 3 ? SL_MIXER_MAMBA
                                                : SL_MIXER_NONE);
            assert_int_equal(s->ffn, l % 2 ? SL_FFN_NONE : e.dense ? SL_FFN_DENSE : SL_FFN_EXPERTS);
            assert_true(s->attention.no_rope && s->relu_squared);
            /* One norm, of whichever part there is, under one name. */
            assert_true((layer->t[SL_L_ATTN_NORM] != NULL) == (l % 2 != 0));
            assert_true((layer->t[SL_L_FFN_NORM] != NULL) == (l % 2 == 0));
            if (l % 2 || e.dense)
                continue;
            assert_false(sl_experts_gated(&s->experts));
            assert_int_equal(s->experts.router_kind, SL_ROUTER_KIND_SIGMOID);
            assert_int_equal(s->experts.n_latent, e.latent ? LATENT : 0);
            assert_int_equal(s->experts.n_ff_shared, SHARED);
            assert_int_equal(sl_model_expert_bytes(m, l),
                             2 * sizeof(float) * FF * (e.latent ? LATENT : EMBD));
            assert_ptr_equal(sl_layer_expert_matrix(layer, 0).t, layer->t[SL_L_EXPERTS_UP]);
        }
        sl_model_close(&m);
        free(file);
    }
}

static void lies(void **state) {
    (void)state;
    static const char *const missing[] = {
        "blk.0.attn_norm.weight",     "blk.1.attn_norm.weight",       "blk.3.attn_norm.weight",
        "blk.0.ffn_gate_inp.weight",  "blk.0.exp_probs_b.bias",       "blk.2.ffn_up_exps.weight",
        "blk.2.ffn_down_exps.weight", "blk.0.ffn_up_shexp.weight",    "blk.0.ffn_down_shexp.weight",
        "blk.1.attn_q.weight",        "blk.0.ffn_latent_down.weight", "blk.2.ffn_latent_up.weight",
        "blk.3.ssm_in.weight"};
    for (size_t i = 0; i < sizeof missing / sizeof *missing; i++)
        refused((struct edit){.no_tensor = missing[i], .latent = true}, missing[i], "is missing");
    refused((struct edit){.no_tensor = "blk.2.ffn_up.weight", .dense = true}, "blk.2.ffn_up.weight",
            "is missing");
    /* What a layer's part does not have: gates, another part. */
    static const char *const extra[] = {
        "blk.0.ffn_gate_exps.weight",    "blk.0.ffn_gate_shexp.weight",
        "blk.0.ffn_gate_up_exps.weight", "blk.0.ffn_norm.weight",
        "blk.0.attn_q.weight",           "blk.1.ssm_in.weight",
        "blk.1.ffn_up.weight",           "blk.3.ffn_up_exps.weight",
        "blk.0.ffn_latent_down.weight"};
    for (size_t i = 0; i < sizeof extra / sizeof *extra; i++)
        refused((struct edit){.extra = extra[i]}, extra[i], "no such tensor here");
    refused((struct edit){.no_widths = true}, "feed_forward_length", "is missing");
    static const struct {
        const char *key;
        uint32_t value;
        const char *text;
    } keys[] = {
        {"moe_latent_size", EMBD + 1, "out of range"},
        {"moe_latent_size", LATENT - 1, "blk.0.ffn_"},
        {"moe_latent_size", 0, "no such tensor"},
        {"expert_feed_forward_length", FF + 1, "blk.0.ffn_up_exps.weight"},
        {"expert_shared_feed_forward_length", 0, "no such tensor here"},
        {"expert_count", 0, "expert_count"},
        {"ssm.group_count", 4, "does not divide"},
        {"ssm.inner_size", UINT32_MAX, "is missing"},
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        refused((struct edit){.key = keys[i].key, .value = keys[i].value, .latent = true},
                keys[i].text, "");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(opens), cmocka_unit_test(lies)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
