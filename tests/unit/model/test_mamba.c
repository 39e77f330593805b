/* Layers that are Mamba-2: their shapes, and files that lie about them. */
#include "tests/unit/model/model_open.h"

#include <math.h>

enum { LAYERS = 3, EMBD = 64, HEADS = 4, DIM = 16, FF = 32, EXPERTS = 6, VOCAB = 40 };
enum { M_HEADS = 6, M_DIM = 8, GROUPS = 2, STATE = 12, TAPS = 4, INNER = M_HEADS * M_DIM };
enum { CONV = INNER + 2 * GROUPS * STATE };

struct edit {
    const char *no_tensor, *key; /* left out; another value, UINT32_MAX: left out */
    uint32_t value;
    bool no_rope;
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
    if (l == 1) {
        tensor(b, e, l, "attn_q.weight", EMBD, HEADS * DIM, 0);
        tensor(b, e, l, "attn_k.weight", EMBD, 2 * DIM, 0);
        tensor(b, e, l, "attn_v.weight", EMBD, 2 * DIM, 0);
        tensor(b, e, l, "attn_output.weight", HEADS * DIM, EMBD, 0);
    } else {
        tensor(b, e, l, "ssm_in.weight", EMBD, INNER + CONV + M_HEADS, 0);
        tensor(b, e, l, "ssm_conv1d.weight", TAPS, CONV, 0);
        tensor(b, e, l, "ssm_conv1d.bias", CONV, 0, 0);
        tensor(b, e, l, "ssm_dt.bias", M_HEADS, 0, 0);
        tensor(b, e, l, "ssm_a", 1, M_HEADS, 0);
        tensor(b, e, l, "ssm_d", 1, M_HEADS, 0);
        tensor(b, e, l, "ssm_norm.weight", INNER / GROUPS, GROUPS, 0);
        tensor(b, e, l, "ssm_out.weight", INNER, EMBD, 0);
    }
    tensor(b, e, l, "ffn_norm.weight", EMBD, 0, 0);
    tensor(b, e, l, "ffn_gate_inp.weight", EMBD, EXPERTS, 0);
    tensor(b, e, l, "ffn_gate_exps.weight", EMBD, FF, EXPERTS);
    tensor(b, e, l, "ffn_up_exps.weight", EMBD, FF, EXPERTS);
    tensor(b, e, l, "ffn_down_exps.weight", FF, EMBD, EXPERTS);
}

static struct gb build(const struct edit *e) {
    static const struct {
        const char *name;
        uint32_t value;
    } keys[] = {{"block_count", LAYERS},     {"context_length", 4096},
                {"embedding_length", EMBD},  {"attention.head_count", HEADS},
                {"feed_forward_length", FF}, {"expert_count", EXPERTS},
                {"expert_used_count", 2},    {"ssm.conv_kernel", TAPS},
                {"ssm.inner_size", INNER},   {"ssm.state_size", STATE},
                {"ssm.group_count", GROUPS}, {"ssm.time_step_rank", M_HEADS}};
    static const int32_t n_head_kv[LAYERS] = {0, 2, 0};
    struct gb b = gb_new(3);
    char name[96];
    gb_str(&b, "general.architecture", "granitehybrid");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        bool edited = e->key && strcmp(e->key, keys[i].name) == 0;
        snprintf(name, sizeof name, "granitehybrid.%s", keys[i].name);
        if (!edited || e->value != UINT32_MAX)
            gb_uint(&b, name, edited ? e->value : keys[i].value);
    }
    gb_float(&b, "granitehybrid.attention.layer_norm_rms_epsilon", 1e-5f);
    gb_float(&b, "granitehybrid.logit_scale", 8);
    gb_float(&b, "granitehybrid.residual_scale", 0.25f);
    if (e->no_rope)
        gb_bool(&b, "granitehybrid.rope.scaling.finetuned", false);
    gb_array(&b, "granitehybrid.attention.head_count_kv", SL_GGUF_I32, LAYERS, n_head_kv,
             sizeof n_head_kv);
    gb_tensor(&b, "token_embd.weight", SL_DTYPE_F32, 2, (uint64_t[]){EMBD, VOCAB});
    gb_tensor(&b, "output_norm.weight", SL_DTYPE_F32, 1, (uint64_t[]){EMBD});
    for (uint32_t l = 0; l < LAYERS; l++)
        add_layer(&b, e, l);
    return b;
}

static void refused(struct edit e, const char *word1, const char *word2) {
    model_refused(build(&e), word1, word2);
}

static void opens(void **state) {
    (void)state;
    for (int no_rope = 0; no_rope < 2; no_rope++) {
        uint8_t *file;
        struct sl_model *m = model_ok(build(&(struct edit){.no_rope = no_rope}), &file);
        for (uint32_t l = 0; l < LAYERS; l++) {
            const struct sl_layer_spec *s = &m->layers[l].spec;
            assert_int_equal(s->mixer, l == 1 ? SL_MIXER_ATTENTION : SL_MIXER_MAMBA);
            assert_int_equal(s->attention.no_rope, no_rope);
            assert_true(fabsf(s->experts.sum_scale - 0.25f) < 1e-6f);
            if (l == 1)
                continue;
            assert_int_equal(s->mamba.n_head, M_HEADS);
            assert_int_equal(s->mamba.head_dim, M_DIM);
            assert_int_equal(s->mamba.n_group, GROUPS);
            assert_int_equal(s->mamba.n_state, STATE);
            assert_int_equal(s->mamba.n_taps, TAPS);
            assert_true(fabsf(s->mamba.out_scale - 0.25f) < 1e-6f);
        }
        sl_model_close(&m);
        free(file);
    }
}

static void lies(void **state) {
    (void)state;
    static const char *const tensors[] = {
        "ssm_in.weight", "ssm_conv1d.weight", "ssm_conv1d.bias", "ssm_dt.bias", "ssm_a",
        "ssm_d",         "ssm_norm.weight",   "ssm_out.weight"};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.2.%s", tensors[i]);
        refused((struct edit){.no_tensor = name}, name, "is missing");
    }
    static const struct {
        const char *key;
        uint32_t value;
        const char *text;
    } keys[] = {
        {"ssm.conv_kernel", 1, "out of range"},
        {"ssm.conv_kernel", 9, "out of range"},
        {"ssm.conv_kernel", 5, "ssm_conv1d.weight"},
        {"ssm.state_size", 0, "out of range"},
        {"ssm.state_size", 4097, "out of range"},
        {"ssm.state_size", STATE + 1, "blk.0.ssm_in.weight"},
        {"ssm.group_count", 0, "out of range"},
        {"ssm.group_count", 4, "does not divide"},
        {"ssm.group_count", 3, "blk.0.ssm_"},
        {"ssm.time_step_rank", 0, "out of range"},
        {"ssm.time_step_rank", 5, "do not divide"},
        {"ssm.inner_size", UINT32_MAX - 1, "out of range"},
        {"ssm.inner_size", 2 * INNER, "blk.0.ssm_in.weight"},
        {"ssm.inner_size", UINT32_MAX, "is missing"},
        {"ssm.time_step_rank", UINT32_MAX, "is missing"},
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        refused((struct edit){.key = keys[i].key, .value = keys[i].value}, keys[i].text, "");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(opens), cmocka_unit_test(lies)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
