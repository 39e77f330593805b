/* Files with latent attention: both forms of their keys and tensors, the scale of scores, and keys
 * that contradict one another. */
#include "model/arch/model.h"
#include "tests/support/gguf_builder.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LAYERS = 3, EMBD = 64, HEADS = 3, LORA = 40, LATENT = 32, NOPE = 24, ROT = 8, V = 20 };
enum { EXPERTS = 4, FF = 48, FF_EXP = 32, VOCAB = 100 };

struct change {
    const char *key; /* below "deepseek2.": this value, or with drop none */
    double value;
    bool drop;
};
struct form {
    bool joined, plain_q, bias;
    uint32_t n_nextn;
    struct change change[2];
    const char *no_tensor, *extra; /* is left out; is added, F32 [64] */
};

static const struct change *change_of(const struct form *f, const char *key) {
    for (uint32_t i = 0; i < 2; i++)
        if (f->change[i].key && strcmp(f->change[i].key, key) == 0)
            return &f->change[i];
    return NULL;
}

static void number(struct gb *b, const struct form *f, const char *key, uint32_t v) {
    char name[96];
    const struct change *c = change_of(f, key);
    if (c && c->drop)
        return;
    snprintf(name, sizeof name, "deepseek2.%s", key);
    gb_uint(b, name, c ? (uint32_t)c->value : v);
}

static void tensor(struct gb *b, const struct form *f, int layer, const char *name, uint64_t n0,
                   uint64_t n1, uint64_t n2) {
    char full[80];
    uint64_t ne[3] = {n0, n1, n2};
    if (layer < 0)
        snprintf(full, sizeof full, "%s", name);
    else
        snprintf(full, sizeof full, "blk.%d.%s", layer, name);
    if (!f->no_tensor || strcmp(full, f->no_tensor) != 0)
        gb_tensor(b, full, SL_DTYPE_F32, n2 ? 3 : n1 ? 2 : 1, ne);
}

static void layer(struct gb *b, const struct form *f, int l) {
    tensor(b, f, l, "attn_norm.weight", EMBD, 0, 0);
    if (f->plain_q) {
        tensor(b, f, l, "attn_q.weight", EMBD, HEADS * (NOPE + ROT), 0);
    } else {
        tensor(b, f, l, "attn_q_a.weight", EMBD, LORA, 0);
        tensor(b, f, l, "attn_q_a_norm.weight", LORA, 0, 0);
        tensor(b, f, l, "attn_q_b.weight", LORA, HEADS * (NOPE + ROT), 0);
    }
    tensor(b, f, l, "attn_kv_a_mqa.weight", EMBD, LATENT + ROT, 0);
    tensor(b, f, l, "attn_kv_a_norm.weight", LATENT, 0, 0);
    if (f->joined) {
        tensor(b, f, l, "attn_kv_b.weight", LATENT, HEADS * (NOPE + V), 0);
    } else {
        tensor(b, f, l, "attn_k_b.weight", NOPE, LATENT, HEADS);
        tensor(b, f, l, "attn_v_b.weight", LATENT, V, HEADS);
    }
    tensor(b, f, l, "attn_output.weight", HEADS * V, EMBD, 0);
    tensor(b, f, l, "ffn_norm.weight", EMBD, 0, 0);
    if (l == 0) {
        tensor(b, f, l, "ffn_gate.weight", EMBD, FF, 0);
        tensor(b, f, l, "ffn_up.weight", EMBD, FF, 0);
        tensor(b, f, l, "ffn_down.weight", FF, EMBD, 0);
        return;
    }
    tensor(b, f, l, "ffn_gate_inp.weight", EMBD, EXPERTS, 0);
    if (f->bias)
        tensor(b, f, l, "exp_probs_b.bias", EXPERTS, 0, 0);
    tensor(b, f, l, "ffn_gate_exps.weight", EMBD, FF_EXP, EXPERTS);
    tensor(b, f, l, "ffn_up_exps.weight", EMBD, FF_EXP, EXPERTS);
    tensor(b, f, l, "ffn_down_exps.weight", FF_EXP, EMBD, EXPERTS);
    tensor(b, f, l, "ffn_gate_shexp.weight", EMBD, 2 * FF_EXP, 0);
    tensor(b, f, l, "ffn_up_shexp.weight", EMBD, 2 * FF_EXP, 0);
    tensor(b, f, l, "ffn_down_shexp.weight", 2 * FF_EXP, EMBD, 0);
}

static uint8_t *build(const struct form *f, size_t *out_n) {
    struct gb b = gb_new(3);
    gb_str(&b, "general.architecture", "deepseek2");
    number(&b, f, "block_count", LAYERS + f->n_nextn);
    if (f->n_nextn)
        number(&b, f, "nextn_predict_layers", f->n_nextn);
    number(&b, f, "context_length", 4096);
    number(&b, f, "embedding_length", EMBD);
    number(&b, f, "feed_forward_length", FF);
    number(&b, f, "leading_dense_block_count", 1);
    number(&b, f, "attention.head_count", HEADS);
    number(&b, f, "attention.head_count_kv", f->joined ? HEADS : 1);
    if (!f->plain_q)
        number(&b, f, "attention.q_lora_rank", LORA);
    number(&b, f, "attention.kv_lora_rank", LATENT);
    number(&b, f, "attention.key_length", f->joined ? NOPE + ROT : LATENT + ROT);
    number(&b, f, "attention.value_length", f->joined ? V : LATENT);
    if (!f->joined) {
        number(&b, f, "attention.key_length_mla", NOPE + ROT);
        number(&b, f, "attention.value_length_mla", V);
    }
    number(&b, f, "rope.dimension_count", ROT);
    gb_float(&b, "deepseek2.attention.layer_norm_rms_epsilon", 1e-6f);
    number(&b, f, "expert_count", EXPERTS);
    number(&b, f, "expert_used_count", 2);
    number(&b, f, "expert_feed_forward_length", FF_EXP);
    number(&b, f, "expert_shared_count", 2);
    number(&b, f, "expert_group_count", 1);
    number(&b, f, "expert_group_used_count", 1);
    for (uint32_t i = 0; i < 2; i++) {
        const struct change *c = &f->change[i];
        char name[96];
        snprintf(name, sizeof name, "deepseek2.%s", c->key ? c->key : "");
        if (c->key && strncmp(c->key, "rope.scaling.", 13) == 0) {
            gb_float(&b, name, (float)c->value);
            if (strcmp(c->key, "rope.scaling.factor") == 0)
                gb_str(&b, "deepseek2.rope.scaling.type", "yarn");
        } else if (c->key && strcmp(c->key, "attention.temperature_scale") == 0) {
            gb_float(&b, name, (float)c->value);
        } else if (c->key && (strcmp(c->key, "expert_gating_func") == 0 ||
                              strcmp(c->key, "attention.temperature_length") == 0)) {
            gb_uint(&b, name, (uint32_t)c->value);
        }
    }
    tensor(&b, f, -1, "token_embd.weight", EMBD, VOCAB, 0);
    tensor(&b, f, -1, "output_norm.weight", EMBD, 0, 0);
    for (int l = 0; l < LAYERS + (int)f->n_nextn; l++)
        layer(&b, f, l);
    if (f->n_nextn)
        tensor(&b, f, LAYERS, "nextn.eh_proj.weight", 2 * EMBD, EMBD, 0);
    if (f->extra)
        tensor(&b, f, -1, f->extra, 64, 0, 0);
    return gb_finish(&b, out_n);
}

static enum sl_status open_form(const struct form *f, struct sl_model **out_model,
                                uint8_t **out_file, struct sl_err *err) {
    size_t n;
    struct sl_gguf *g = NULL;
    *out_file = build(f, &n);
    if (sl_gguf_open_memory(*out_file, n, &g, err) != SL_OK)
        fail_msg("the container was refused: %s", err->text);
    return sl_model_from_gguf(g, out_model, err);
}

static struct sl_model *must_open(const struct form *f, uint8_t **out_file) {
    struct sl_model *m = NULL;
    struct sl_err err = {""};
    if (open_form(f, &m, out_file, &err) != SL_OK)
        fail_msg("%s", err.text);
    return m;
}

static void must_refuse(const struct form *f, enum sl_status want, const char *name,
                        const char *why) {
    struct sl_model *m = NULL;
    struct sl_err err = {""};
    uint8_t *file;
    enum sl_status status = open_form(f, &m, &file, &err);
    if (status != want || !strstr(err.text, name) || !strstr(err.text, why))
        fail_msg("status %d, want %d with '%s' and '%s': %s", status, want, name, why, err.text);
    assert_null(m);
    free(file);
}

static void both_forms(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 8; i++) {
        struct form f = {.joined = i & 1, .plain_q = i & 2, .bias = i & 4, .n_nextn = i >> 2};
        uint8_t *file;
        struct sl_model *m = must_open(&f, &file);
        assert_int_equal(m->hp.n_layer, LAYERS);
        assert_int_equal(m->hp.n_layer_nextn, f.n_nextn);
        assert_int_equal(m->hp.rope[0].n_rot, ROT);
        assert_int_equal(m->hp.rope[0].kind, SL_ROPE_KIND_NORM);
        for (uint32_t l = 0; l < LAYERS; l++) {
            const struct sl_layer *layer_of = &m->layers[l];
            const struct sl_latent_spec *c = &layer_of->spec.latent;
            assert_int_equal(layer_of->spec.mixer, SL_MIXER_LATENT);
            assert_int_equal(layer_of->spec.ffn, l ? SL_FFN_EXPERTS : SL_FFN_DENSE);
            assert_int_equal(c->n_head, HEADS);
            assert_int_equal(c->n_lora_q, f.plain_q ? 0 : LORA);
            assert_int_equal(c->n_latent, LATENT);
            assert_int_equal(c->n_nope, NOPE);
            assert_int_equal(c->n_rot, ROT);
            assert_int_equal(c->head_dim_v, V);
            assert_int_equal(c->joined, f.joined);
            assert_true(c->scale == 1.0f / sqrtf(NOPE + ROT));
            assert_int_equal(layer_of->t[SL_L_LATENT_KV_B] != NULL, f.joined);
            assert_int_equal(layer_of->t[SL_L_LATENT_K_B] != NULL, !f.joined);
            assert_int_equal(layer_of->t[SL_L_ATTN_Q] != NULL, f.plain_q);
            assert_int_equal(layer_of->t[SL_L_ROUTER_BIAS] != NULL, l && f.bias);
            assert_int_equal(layer_of->spec.experts.n_ff_shared, l ? 2 * FF_EXP : 0);
            assert_int_equal(layer_of->spec.experts.router_kind, SL_ROUTER_KIND_SOFTMAX);
            assert_false(layer_of->spec.experts.router_normalize);
        }
        sl_model_close(&m);
        free(file);
    }
}

/* With the multiplier the scores alone grow; without it cos and sin do, and the scores by that. */
static void yarn(void **state) {
    (void)state;
    const float base = 1.0f / sqrtf(NOPE + ROT), usual = 1.0f + 0.1f * logf(40.0f);
    for (uint32_t i = 0; i < 3; i++) {
        float multiplier = i == 0 ? 0.0707f : i == 1 ? 0.1f : 0;
        struct form f = {.change = {{"rope.scaling.factor", 40, false},
                                    {i == 2 ? NULL : "rope.scaling.yarn_log_multiplier",
                                     (double)multiplier, false}}};
        float grown = i == 2 ? usual : 1.0f + multiplier * logf(40.0f);
        uint8_t *file;
        struct sl_model *m = must_open(&f, &file);
        const struct sl_rope_spec *r = &m->hp.rope[0];
        assert_true(r->yarn_factor == 40.0f);
        assert_true(fabsf(r->yarn_attn * usual - (i == 2 ? usual : 1.0f)) < 1e-6f);
        assert_true(fabsf(m->layers[1].spec.latent.scale / (base * grown * grown) - 1) < 1e-6f);
        sl_model_close(&m);
        free(file);
    }
}

static void gating(void **state) {
    (void)state;
    struct form f = {.bias = true, .change = {{"expert_gating_func", 2, false}}};
    uint8_t *file;
    struct sl_model *m = must_open(&f, &file);
    assert_int_equal(m->layers[1].spec.experts.router_kind, SL_ROUTER_KIND_SIGMOID);
    sl_model_close(&m);
    free(file);
}

static void temperature(void **state) {
    (void)state;
    static const char scale[] = "attention.temperature_scale";
    static const char length[] = "attention.temperature_length";
    struct form f = {.change = {{scale, 0.25, false}, {length, 2048, false}}};
    uint8_t *file;
    struct sl_model *m = must_open(&f, &file);
    assert_true(m->layers[1].spec.latent.temper_scale == 0.25f);
    assert_int_equal(m->layers[1].spec.latent.temper_span, 2048);
    sl_model_close(&m);
    free(file);
    f.change[0].value = 0; /* none */
    m = must_open(&f, &file);
    assert_int_equal(m->layers[1].spec.latent.temper_span, 0);
    sl_model_close(&m);
    free(file);
    f.change[0].value = 0.25;
    f.change[1].value = 0;
    must_refuse(&f, SL_ERR_CORRUPT, length, "0 beside a scale");
    f.change[1] = (struct change){NULL, 0, false};
    must_refuse(&f, SL_ERR_CORRUPT, length, "is missing");
}

static void lies(void **state) {
    (void)state;
    static const struct {
        bool joined;
        struct change change[2];
        const char *name, *why;
        enum sl_status status;
    } cases[] = {
        {false,
         {{"attention.kv_lora_rank", 0, true}},
         "attention.kv_lora_rank",
         "missing",
         SL_ERR_CORRUPT},
        {false,
         {{"attention.kv_lora_rank", 0, false}},
         "attention.kv_lora_rank",
         "out of range",
         SL_ERR_CORRUPT},
        {false,
         {{"attention.kv_lora_rank", 1e9, false}},
         "attention.kv_lora_rank",
         "out of range",
         SL_ERR_CORRUPT},
        {false,
         {{"attention.key_length", 41, false}},
         "attention.key_length",
         "make it 40",
         SL_ERR_CORRUPT},
        {false,
         {{"attention.value_length", 31, false}},
         "attention.value_length",
         "make it 32",
         SL_ERR_CORRUPT},
        {false,
         {{"attention.value_length_mla", 0, true}},
         "attention.value_length_mla",
         "is missing",
         SL_ERR_CORRUPT},
        {false,
         {{"attention.key_length_mla", 0, true}},
         "attention.key_length_mla",
         "is missing",
         SL_ERR_CORRUPT},
        {false,
         {{"attention.key_length_mla", ROT, false}},
         "attention.key_length_mla",
         "leaves nothing",
         SL_ERR_CORRUPT},
        {true,
         {{"attention.key_length", ROT, false}},
         "attention.key_length",
         "leaves nothing",
         SL_ERR_CORRUPT},
        {false,
         {{"attention.head_count_kv", 3, false}},
         "attention.head_count_kv",
         "make it 1",
         SL_ERR_CORRUPT},
        {true,
         {{"attention.head_count_kv", 1, false}},
         "attention.head_count_kv",
         "make it 3",
         SL_ERR_CORRUPT},
        {false,
         {{"attention.head_count", 1 << 20, false}},
         "attention.head_count",
         "wider than",
         SL_ERR_CORRUPT},
        {false, {{"attention.q_lora_rank", 39, false}}, "attn_q_a", "shape", SL_ERR_CORRUPT},
        {false,
         {{"rope.dimension_count", 7, false}},
         "attention.key_length",
         "make it 39",
         SL_ERR_CORRUPT},
        {true, {{"rope.dimension_count", 7, false}}, "rope.dimension_count", "odd", SL_ERR_CORRUPT},
        {false,
         {{"rope.dimension_count", 0, true}},
         "rope.dimension_count",
         "missing",
         SL_ERR_CORRUPT},
        {false,
         {{"expert_shared_count", 0, true}},
         "expert_shared_count",
         "missing",
         SL_ERR_CORRUPT},
        {false,
         {{"expert_shared_count", 1e6, false}},
         "expert_shared_count",
         "out of range",
         SL_ERR_CORRUPT},
        {false, {{"expert_shared_count", 3, false}}, "ffn_gate_shexp", "shape", SL_ERR_CORRUPT},
        {false,
         {{"leading_dense_block_count", LAYERS, false}},
         "leading_dense_block_count",
         "out of range",
         SL_ERR_CORRUPT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct form f = {.joined = cases[i].joined};
        memcpy(f.change, cases[i].change, sizeof f.change);
        must_refuse(&f, cases[i].status, cases[i].name, cases[i].why);
    }
    must_refuse(&(struct form){.n_nextn = 1, .change = {{"nextn_predict_layers", 4, false}}},
                SL_ERR_CORRUPT, "nextn_predict_layers", "out of range");
    must_refuse(&(struct form){.no_tensor = "blk.1.attn_v_b.weight"}, SL_ERR_CORRUPT,
                "blk.1.attn_v_b.weight", "is missing");
    must_refuse(&(struct form){.joined = true, .no_tensor = "blk.2.attn_kv_b.weight"},
                SL_ERR_CORRUPT, "blk.2.attn_kv_b.weight", "is missing");
    must_refuse(&(struct form){.extra = "blk.1.attn_kv_b.weight"}, SL_ERR_UNSUPPORTED,
                "blk.1.attn_kv_b.weight", "no such tensor here");
    must_refuse(&(struct form){.extra = "blk.3.attn_norm.weight"}, SL_ERR_CORRUPT,
                "blk.3.attn_norm.weight", "block_count");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_forms),  cmocka_unit_test(yarn), cmocka_unit_test(gating),
        cmocka_unit_test(temperature), cmocka_unit_test(lies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
