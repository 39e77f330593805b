/* Gemma 4: heads of two sizes, norms behind parts, values that are keys. */
#include "tests/unit/model/model_builder.h"

#include <math.h>

static uint32_t window_dim, window_rot;
static bool windowed[LAYERS];
static const char *more_key;
static uint32_t more_value;

static void add_keys(struct gb *b) {
    gb_uint(b, "gemma4.attention.sliding_window", 100);
    gb_float(b, "gemma4.rope.freq_base_swa", 10000.0f);
    gb_float(b, "gemma4.final_logit_softcapping", 30.0f);
    gb_uint(b, "gemma4.embedding_length_per_layer_input", 0);
    gb_uint(b, "gemma4.attention.shared_kv_layers", 0);
    if (window_dim) {
        gb_uint(b, "gemma4.attention.key_length_swa", window_dim);
        gb_uint(b, "gemma4.attention.value_length_swa", window_dim);
    }
    if (window_rot)
        gb_uint(b, "gemma4.rope.dimension_count_swa", window_rot);
    gb_array(b, "gemma4.attention.sliding_window_pattern", SL_GGUF_BOOL, LAYERS, windowed, LAYERS);
    if (more_key)
        gb_uint(b, more_key, more_value);
}

static void reset(void) {
    window_dim = window_rot = 0;
    for (uint32_t l = 0; l < LAYERS; l++)
        windowed[l] = l % 2 == 0;
    more_key = NULL;
    more_value = 0;
}

static void spec(void **state) {
    (void)state;
    uint8_t *file;
    struct edit e = {.keys = add_keys, .no_tensor = "blk.1.attn_v.weight"};
    reset();
    struct sl_model *m = open_model("gemma4", &e, &file);
    assert_true(m->hp.embd_scale == sqrtf((float)EMBD) && m->hp.logit_softcap == 30);
    assert_int_equal(m->hp.n_rope, 2);
    assert_true(m->hp.rope[0].base == 1e6f && m->hp.rope[1].base == 10000);
    assert_true(!m->hp.rope[0].undivided && m->hp.rope[1].undivided);
    for (uint32_t l = 0; l < LAYERS; l++) {
        const struct sl_layer_spec *s = &m->layers[l].spec;
        assert_int_equal(s->attention.window, l % 2 ? 0 : 100);
        assert_int_equal(s->attention.rope, l % 2 == 0);
        assert_true(s->attention.scale == 1 && s->attention.v_norm);
        assert_int_equal(s->attention.v_of_k, l == 1);
        assert_true(s->gelu && s->experts.with_dense && s->experts.router_norm);
        assert_int_equal(s->n_ff, FF);
        assert_int_equal(s->experts.n_ff_shared, FF);
        assert_int_equal(s->experts.n_ff, FF_EXP);
        assert_int_equal(s->experts.activation, SL_EXPERT_GEGLU);
        assert_true(s->experts.router_logit_scale == 1 / sqrtf((float)EMBD));
    }
    sl_model_close(&m);
    free(file);
}

static void refused(void **state) {
    (void)state;
    struct edit e = {.keys = add_keys};
    static const char *const needed[] = {"post_attention_norm.weight",
                                         "post_ffw_norm.weight",
                                         "post_ffw_norm_1.weight",
                                         "post_ffw_norm_2.weight",
                                         "pre_ffw_norm_2.weight",
                                         "ffn_gate_inp.scale",
                                         "ffn_down.weight"};
    reset();
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.2.%s", needed[i]);
        struct edit without = {.keys = add_keys, .no_tensor = name};
        expect_refused("gemma4", &without, SL_ERR_CORRUPT, name, "is missing");
    }
    /* Other heads than the tensors have, in layers with a window alone. */
    window_dim = 2 * DIM;
    expect_refused("gemma4", &e, SL_ERR_CORRUPT, "blk.0.attn_q.weight", "its shape is");
    window_dim = 0;
    window_rot = DIM + 2;
    expect_refused("gemma4", &e, SL_ERR_CORRUPT, "rope.dimension_count_swa", "out of range");
    window_rot = 3;
    expect_refused("gemma4", &e, SL_ERR_CORRUPT, "rope.dimension_count_swa", "3 is odd");
    window_rot = 0;
    /* What small Gemma 4 models have. */
    more_value = 2;
    more_key = "gemma4.nextn_predict_layers";
    expect_refused("gemma4", &e, SL_ERR_UNSUPPORTED, "nextn_predict_layers", "not supported");
    /* Keys of this family alone. */
    more_key = "qwen3moe.attention.key_length_swa";
    struct edit qwen = {.keys = add_keys};
    expect_refused("qwen3moe", &qwen, SL_ERR_UNSUPPORTED, "key_length_swa",
                   "unknown hyperparameter");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(spec), cmocka_unit_test(refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
