/* Architectures with gated delta nets: which layers have one, its shape, the layers that draft
 * tokens, and each way in which their keys and tensors can be wrong. */
#include "model/arch/model.h"
#include "tests/support/gguf_builder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

enum { EMBD = 32, VOCAB = 12, LAYERS = 5, HEADS = 2, KV = 1, DIM = 12, ROT = 4 };
enum { V_HEADS = 6, K_HEADS = 2, STATE = 8, TAPS = 4, FF = 16, EXPERTS = 4, USED = 2 };

/* What differs from a well-formed file: a key's value or a tensor's first dimension; 0 leaves the
 * key or the tensor out. */
struct edit {
    const char *key, *tensor, *extra;
    uint32_t value;
    const int32_t *array; /* of the key, in place of the value */
    uint32_t n_array;
    uint32_t n_nextn;
};

static struct gb *file_now;
static const struct edit *edit_now;
static const char *arch_now;

static void key(const char *name, uint32_t v) {
    char full[96];
    bool edited = edit_now->key && strcmp(edit_now->key, name) == 0;
    if (edited && edit_now->array)
        return;
    v = edited ? edit_now->value : v;
    snprintf(full, sizeof full, "%s.%s", arch_now, name);
    if (v || !edited)
        gb_uint(file_now, full, v);
}

static void ints(const char *name, const int32_t *v, uint32_t n) {
    char full[96];
    snprintf(full, sizeof full, "%s.%s", arch_now, name);
    gb_array(file_now, full, SL_GGUF_I32, n, v, n * sizeof *v);
}

static void tensor(int l, const char *name, uint64_t a, uint64_t b, uint64_t c) {
    char full[80];
    if (l < 0)
        snprintf(full, sizeof full, "%s", name);
    else
        snprintf(full, sizeof full, "blk.%d.%s", l, name);
    bool edited = edit_now->tensor && strcmp(edit_now->tensor, full) == 0;
    uint64_t ne[3] = {edited ? edit_now->value : a, b, c};
    if (ne[0])
        gb_tensor(file_now, full, SL_DTYPE_F32, c ? 3 : b ? 2 : 1, ne);
}

static void mixer(int l, bool delta) {
    bool next = strcmp(arch_now, "qwen3next") == 0;
    uint64_t qkv = (2 * K_HEADS + V_HEADS) * STATE, v = V_HEADS * STATE;
    tensor(l, "attn_norm.weight", EMBD, 0, 0);
    tensor(l, "post_attention_norm.weight", EMBD, 0, 0);
    if (!delta) {
        tensor(l, "attn_q.weight", EMBD, 2 * HEADS * DIM, 0);
        tensor(l, "attn_k.weight", EMBD, KV * DIM, 0);
        tensor(l, "attn_v.weight", EMBD, KV * DIM, 0);
        tensor(l, "attn_output.weight", HEADS * DIM, EMBD, 0);
        tensor(l, "attn_q_norm.weight", DIM, 0, 0);
        tensor(l, "attn_k_norm.weight", DIM, 0, 0);
        return;
    }
    tensor(l, "attn_qkv.weight", EMBD, qkv, 0);
    tensor(l, "attn_gate.weight", EMBD, v, 0);
    tensor(l, "ssm_conv1d.weight", TAPS, qkv, 0);
    tensor(l, "ssm_dt.bias", V_HEADS, 0, 0);
    tensor(l, "ssm_a", V_HEADS, 0, 0);
    tensor(l, "ssm_norm.weight", STATE, 0, 0);
    tensor(l, "ssm_out.weight", v, EMBD, 0);
    if (next) {
        tensor(l, "ssm_ba.weight", EMBD, 2 * V_HEADS, 0);
    } else {
        tensor(l, "ssm_beta.weight", EMBD, V_HEADS, 0);
        tensor(l, "ssm_alpha.weight", EMBD, V_HEADS, 0);
    }
}

static void ffn(int l, bool moe) {
    if (!moe) {
        tensor(l, "ffn_gate.weight", EMBD, FF, 0);
        tensor(l, "ffn_up.weight", EMBD, FF, 0);
        tensor(l, "ffn_down.weight", FF, EMBD, 0);
        return;
    }
    tensor(l, "ffn_gate_inp.weight", EMBD, EXPERTS, 0);
    tensor(l, "ffn_gate_exps.weight", EMBD, FF, EXPERTS);
    tensor(l, "ffn_up_exps.weight", EMBD, FF, EXPERTS);
    tensor(l, "ffn_down_exps.weight", FF, EMBD, EXPERTS);
    tensor(l, "ffn_gate_inp_shexp.weight", EMBD, 0, 0);
    tensor(l, "ffn_gate_shexp.weight", EMBD, FF, 0);
    tensor(l, "ffn_up_shexp.weight", EMBD, FF, 0);
    tensor(l, "ffn_down_shexp.weight", FF, EMBD, 0);
}

static uint8_t *build(const char *arch, const struct edit *edit, size_t *out_n) {
    static const struct edit none;
    struct gb b = gb_new(3);
    file_now = &b;
    arch_now = arch;
    edit_now = edit ? edit : &none;
    bool moe = strcmp(arch, "qwen35") != 0;
    int n = LAYERS + (int)edit_now->n_nextn;
    char eps[64];
    gb_str(&b, "general.architecture", arch);
    key("block_count", (uint32_t)n);
    key("context_length", 256);
    key("embedding_length", EMBD);
    key("attention.head_count", HEADS);
    key("attention.head_count_kv", KV);
    key("attention.key_length", DIM);
    key("attention.value_length", DIM);
    key("rope.dimension_count", ROT);
    key("feed_forward_length", FF);
    key("ssm.conv_kernel", TAPS);
    key("ssm.state_size", STATE);
    key("ssm.group_count", K_HEADS);
    key("ssm.time_step_rank", V_HEADS);
    key("ssm.inner_size", V_HEADS * STATE);
    if (moe) {
        key("expert_count", EXPERTS);
        key("expert_used_count", USED);
        key("expert_feed_forward_length", FF);
        key("expert_shared_feed_forward_length", FF);
    }
    if (edit_now->n_nextn)
        key("nextn_predict_layers", edit_now->n_nextn);
    if (edit_now->array)
        ints(edit_now->key, edit_now->array, edit_now->n_array);
    else if (edit_now->key && (strcmp(edit_now->key, "full_attention_interval") == 0 ||
                               strcmp(edit_now->key, "rope.dimension_sections") == 0))
        key(edit_now->key, 0);
    snprintf(eps, sizeof eps, "%s.attention.layer_norm_rms_epsilon", arch);
    gb_float(&b, eps, 1e-6f);
    tensor(-1, "token_embd.weight", EMBD, VOCAB, 0);
    tensor(-1, "output_norm.weight", EMBD, 0, 0);
    uint32_t every = edit_now->key && strcmp(edit_now->key, "full_attention_interval") == 0
                         ? edit_now->value
                         : 4;
    bool listed = edit_now->key && strcmp(edit_now->key, "attention.recurrent_layers") == 0;
    for (int l = 0; l < n; l++) {
        bool attends = (l + 1) % (int)(every ? every : 4) == 0;
        if (listed && l < (int)edit_now->n_array)
            attends = !edit_now->array[l];
        mixer(l, !attends && l < LAYERS);
        ffn(l, moe);
        if (l >= LAYERS) {
            tensor(l, "nextn.eh_proj.weight", 2 * EMBD, EMBD, 0);
            tensor(l, "nextn.enorm.weight", EMBD, 0, 0);
            tensor(l, "nextn.hnorm.weight", EMBD, 0, 0);
        }
    }
    if (edit_now->extra)
        tensor(-1, edit_now->extra, EMBD, 0, 0);
    return gb_finish(&b, out_n);
}

static enum sl_status open_file(uint8_t *file, size_t n, struct sl_model **out,
                                struct sl_err *err) {
    struct sl_gguf *g = NULL;
    *out = NULL;
    if (sl_gguf_open_memory(file, n, &g, err) != SL_OK)
        fail_msg("the container was refused: %s", err->text);
    return sl_model_from_gguf(g, out, err);
}

static struct sl_model *open_model(const char *arch, const struct edit *edit, uint8_t **out_file) {
    size_t n;
    struct sl_model *m;
    struct sl_err err = {""};
    *out_file = build(arch, edit, &n);
    if (open_file(*out_file, n, &m, &err) != SL_OK)
        fail_msg("%s: %s", arch, err.text);
    return m;
}

static void refused(const char *arch, const struct edit *edit, enum sl_status want,
                    const char *word1, const char *word2) {
    size_t n;
    struct sl_model *m;
    struct sl_err err = {""};
    uint8_t *file = build(arch, edit, &n);
    enum sl_status status = open_file(file, n, &m, &err);
    if (status != want || !strstr(err.text, word1) || !strstr(err.text, word2))
        fail_msg("status %d, want %d with '%s' and '%s': %s", status, want, word1, word2, err.text);
    assert_null(m);
    free(file);
}

static const char *const archs[] = {"qwen3next", "qwen35moe", "qwen35"};

static void specs(void **state) {
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        uint8_t *file;
        struct sl_model *m = open_model(archs[i], NULL, &file);
        assert_int_equal(m->hp.n_layer, LAYERS);
        assert_int_equal(m->hp.n_layer_nextn, 0);
        assert_int_equal(m->hp.rope[0].n_rot, ROT);
        for (uint32_t l = 0; l < LAYERS; l++) {
            const struct sl_layer *layer = &m->layers[l];
            const struct sl_layer_spec *s = &layer->spec;
            assert_int_equal(s->mixer, l == 3 ? SL_MIXER_ATTENTION : SL_MIXER_DELTA);
            assert_int_equal(s->ffn, i == 2 ? SL_FFN_DENSE : SL_FFN_EXPERTS);
            assert_int_equal(layer->t[SL_L_ATTN_Q] != NULL, l == 3);
            assert_int_equal(layer->t[SL_L_DELTA_QKV] != NULL, l != 3);
            assert_int_equal(layer->t[SL_L_DELTA_BA] != NULL, l != 3 && i == 0);
            assert_int_equal(layer->t[SL_L_DELTA_ALPHA] != NULL, l != 3 && i != 0);
            assert_int_equal(layer->t[SL_L_SHARED_ROUTER] != NULL, i != 2);
            if (l == 3) {
                assert_true(s->attention.gated && s->attention.qk_norm == SL_QK_NORM_HEAD);
                assert_int_equal(s->attention.n_head, HEADS);
                assert_int_equal(s->delta.n_head, 0);
                continue;
            }
            assert_int_equal(s->delta.n_head, V_HEADS);
            assert_int_equal(s->delta.n_head_k, K_HEADS);
            assert_int_equal(s->delta.head_dim, STATE);
            assert_int_equal(s->delta.n_taps, TAPS);
            assert_int_equal(s->delta.grouped, i == 0);
            if (i != 2)
                assert_true(s->experts.router_normalize && s->experts.n_ff_shared == FF);
        }
        sl_model_close(&m);
        free(file);
    }
}

/* By an interval, or one by one, with a value for each draft layer, too. */
static void which_layers(void **state) {
    (void)state;
    static const int32_t recurrent[] = {0, 1, 1, 0, 1, 0};
    uint8_t *file;
    struct sl_model *m = open_model(
        "qwen35moe", &(struct edit){.key = "full_attention_interval", .value = 2}, &file);
    for (uint32_t l = 0; l < LAYERS; l++)
        assert_int_equal(m->layers[l].spec.mixer, l % 2 ? SL_MIXER_ATTENTION : SL_MIXER_DELTA);
    sl_model_close(&m);
    free(file);
    m = open_model(
        "qwen3next",
        &(struct edit){
            .key = "attention.recurrent_layers", .array = recurrent, .n_array = 6, .n_nextn = 1},
        &file);
    for (uint32_t l = 0; l < LAYERS; l++)
        assert_int_equal(m->layers[l].spec.mixer,
                         recurrent[l] ? SL_MIXER_DELTA : SL_MIXER_ATTENTION);
    sl_model_close(&m);
    free(file);
    refused("qwen3next",
            &(struct edit){
                .key = "attention.recurrent_layers", .array = recurrent, .n_array = LAYERS - 1},
            SL_ERR_CORRUPT, "attention.recurrent_layers", "4 values for 5 layers");
    refused("qwen35", &(struct edit){.key = "full_attention_interval", .value = 513},
            SL_ERR_CORRUPT, "full_attention_interval", "out of range");
}

/* Layers behind the last are there, whatever they hold, and no part of the model. */
static void draft_layer(void **state) {
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        uint8_t *file;
        struct sl_model *m = open_model(
            archs[i], &(struct edit){.n_nextn = 2, .extra = "blk.6.nextn.shared_head_norm.weight"},
            &file);
        assert_int_equal(m->hp.n_layer, LAYERS);
        assert_int_equal(m->hp.n_layer_nextn, 2);
        sl_model_close(&m);
        free(file);
        refused(archs[i], &(struct edit){.n_nextn = 1, .extra = "blk.6.attn_norm.weight"},
                SL_ERR_CORRUPT, "blk.6.attn_norm.weight", "declares 6 layers, 0 to 5");
        refused(archs[i],
                &(struct edit){.n_nextn = 1, .key = "nextn_predict_layers", .value = LAYERS + 1},
                SL_ERR_CORRUPT, "nextn_predict_layers", "6 is out of range, 0 to 5");
    }
}

/* The first of them attends, whatever is said of the layer at its place; it may have a norm of its
 * own. */
static void drafts(void **state) {
    (void)state;
    static const int32_t recurrent[] = {0, 1, 1, 0, 1, 1, 1};
    struct edit edits[] = {
        {.n_nextn = 2},
        {.n_nextn = 2, .extra = "blk.5.nextn.shared_head_norm.weight"},
        {.key = "attention.recurrent_layers", .array = recurrent, .n_array = 7, .n_nextn = 2},
    };
    for (size_t i = 0; i < 9; i++) {
        uint8_t *file;
        struct sl_err err = {""};
        struct sl_model *m = open_model(archs[i / 3], &edits[i % 3], &file);
        assert_true(sl_model_has_drafts(m));
        if (sl_model_add_drafts(m, &err) != SL_OK)
            fail_msg("%s", err.text);
        const struct sl_layer *layer = &m->layers[LAYERS];
        assert_int_equal(m->hp.n_layer, LAYERS + 1);
        assert_int_equal(sl_answer_layers(&m->hp), LAYERS);
        assert_int_equal(m->layers[LAYERS - 1].spec.mixer, SL_MIXER_DELTA);
        assert_true(layer->spec.draft && layer->spec.mixer == SL_MIXER_ATTENTION);
        assert_true(layer->spec.attention.gated);
        assert_non_null(layer->t[SL_L_DRAFT_JOIN]);
        assert_int_equal(layer->t[SL_L_DRAFT_NORM] != NULL, i % 3 == 1);
        sl_model_close(&m);
        free(file);
        m = open_model(archs[i / 3],
                       &(struct edit){.n_nextn = 1, .tensor = "blk.5.nextn.hnorm.weight"}, &file);
        assert_int_equal(sl_model_add_drafts(m, &err), SL_ERR_CORRUPT);
        assert_non_null(strstr(err.text, "blk.5.nextn.hnorm.weight"));
        assert_int_equal(m->hp.n_layer, LAYERS);
        sl_model_close(&m);
        free(file);
    }
}

static void lies(void **state) {
    (void)state;
    static const struct {
        const char *key;
        uint32_t value;
        const char *text;
    } keys[] = {
        {"attention.value_length", DIM + 8, "is not the keys'"},
        {"ssm.conv_kernel", 0, "is missing"},
        {"ssm.conv_kernel", 1, "1 is out of range, 2 to 8"},
        {"ssm.conv_kernel", 9, "9 is out of range, 2 to 8"},
        {"ssm.state_size", 0, "is missing"},
        {"ssm.state_size", 4097, "out of range"},
        {"ssm.group_count", 0, "is missing"},
        {"ssm.group_count", 4, "4 does not divide the 6 heads"},
        {"ssm.group_count", 4000000000u, "out of range"},
        {"ssm.time_step_rank", 0, "is missing"},
        {"ssm.time_step_rank", 1u << 21, "out of range"},
        {"ssm.inner_size", 0, "is missing"},
        {"ssm.inner_size", 47, "47 is not 6 heads of 8 elements"},
    };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        refused(archs[i % 3], &(struct edit){.key = keys[i].key, .value = keys[i].value},
                SL_ERR_CORRUPT, keys[i].key, keys[i].text);
    static const char *const tensors[] = {"attn_qkv.weight",
                                          "attn_gate.weight",
                                          "ssm_conv1d.weight",
                                          "ssm_dt.bias",
                                          "ssm_a",
                                          "ssm_norm.weight",
                                          "ssm_out.weight",
                                          "ssm_beta.weight",
                                          "ssm_alpha.weight",
                                          "attn_norm.weight"};
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.1.%s", tensors[i]);
        refused("qwen35", &(struct edit){.tensor = name}, SL_ERR_CORRUPT, name, "is missing");
        refused("qwen35", &(struct edit){.tensor = name, .value = 7}, SL_ERR_CORRUPT, name,
                "its shape is [7");
    }
    refused("qwen3next", &(struct edit){.tensor = "blk.0.ssm_ba.weight"}, SL_ERR_CORRUPT,
            "blk.0.ssm_ba.weight", "is missing");
    refused("qwen35moe", &(struct edit){.tensor = "blk.3.attn_q_norm.weight"}, SL_ERR_CORRUPT,
            "blk.3.attn_q_norm.weight", "is missing");
    refused("qwen3next", &(struct edit){.extra = "blk.0.ssm_in.weight"}, SL_ERR_UNSUPPORTED,
            "blk.0.ssm_in.weight", "early conversions");
    refused("qwen3next", &(struct edit){.extra = "blk.0.attn_q.weight"}, SL_ERR_UNSUPPORTED,
            "blk.0.attn_q.weight", "no such tensor here");
    refused("qwen35moe", &(struct edit){.extra = "blk.0.ssm_ba.weight"}, SL_ERR_UNSUPPORTED,
            "blk.0.ssm_ba.weight", "no such tensor here");
}

static void sections(void **state) {
    (void)state;
    static const char key_name[] = "rope.dimension_sections";
    static const struct {
        int32_t v[5];
        uint32_t n;
        enum sl_status status;
        const char *text;
    } cases[] = {
        {{1, 1, 0, 0}, 4, SL_OK, ""},
        {{2, 0, 0}, 3, SL_OK, ""},
        {{1, 1, 1, 1}, 4, SL_OK, ""},
        {{2, 2, 1, 0}, 4, SL_ERR_CORRUPT, "5 frequencies in all sections, of a rotation of 4"},
        {{0, 0, 0, 0}, 4, SL_ERR_CORRUPT, "0 frequencies in all sections"},
        {{1, 1, -1, 0}, 4, SL_ERR_CORRUPT, "-1 is out of range"},
        {{1, 1}, 2, SL_ERR_CORRUPT, "not three or four integers"},
        {{1, 1, 0, 0, 0}, 5, SL_ERR_CORRUPT, "not three or four integers"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct edit e = {.key = key_name, .array = cases[i].v, .n_array = cases[i].n};
        uint8_t *file;
        if (cases[i].status != SL_OK) {
            refused("qwen35moe", &e, cases[i].status, key_name, cases[i].text);
            continue;
        }
        struct sl_model *m = open_model("qwen35moe", &e, &file);
        sl_model_close(&m);
        free(file);
        refused("qwen3next", &e, SL_ERR_UNSUPPORTED, key_name, "unknown hyperparameter");
    }
    refused("qwen35", &(struct edit){.key = key_name, .value = 3}, SL_ERR_CORRUPT, key_name,
            "not three or four integers");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(specs),  cmocka_unit_test(which_layers), cmocka_unit_test(draft_layer),
        cmocka_unit_test(drafts), cmocka_unit_test(lies),         cmocka_unit_test(sections),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
