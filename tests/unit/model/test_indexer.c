/* Files with an indexer: which layers have one, what the others attend to, where a model with such
 * layers can be cut, and tensors that are missing. That keys are refused by name: test_corpus.c. */
#include "model/arch/model_slice.h"
#include "model/synth/synth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct sl_synth_config config(const char *arch) {
    struct sl_synth_config c = sl_synth_default;
    c.arch = arch;
    c.n_layer = 11;
    c.n_embd = 64;
    c.n_lora_q = 32;
    c.n_ff_shared = c.n_ff_expert;
    c.n_layer_dense = 2;
    c.n_index_head = 3;
    c.index_dim = 96;
    c.n_index_top = 70;
    c.headers_only = true;
    return c;
}

static struct sl_model *open_model(const struct sl_synth_config *c) {
    char path[] = "/tmp/sluice-test-XXXXXX";
    struct sl_err err = {""};
    struct sl_model *m = NULL;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    enum sl_status status = sl_synth_write(c, path, NULL, NULL, &err);
    if (status == SL_OK)
        status = sl_model_open(path, &m, &err);
    unlink(path);
    if (status != SL_OK)
        fail_msg("%s: %s", c->arch, err.text);
    return m;
}

/* own: a letter for each layer, x where it has an indexer. */
static void check_layers(const struct sl_model *m, const char *own, bool neox) {
    uint32_t back = 0;
    assert_int_equal(m->hp.n_layer, strlen(own));
    for (uint32_t l = 0; l < m->hp.n_layer; l++) {
        const struct sl_layer *layer = &m->layers[l];
        const struct sl_latent_spec *c = &layer->spec.latent;
        bool has = own[l] == 'x';
        back = has ? 0 : back + 1;
        assert_int_equal(layer->spec.mixer, SL_MIXER_LATENT);
        assert_int_equal(c->n_index_head, 3);
        assert_int_equal(c->index_dim, 96);
        assert_int_equal(c->n_index_top, 70);
        assert_int_equal(c->index_neox, neox);
        assert_int_equal(c->choice_back, back);
        assert_int_equal(sl_latent_chooses(c), has);
        for (unsigned role = SL_L_INDEX_Q; role <= SL_L_INDEX_WEIGHTS; role++)
            assert_int_equal(layer->t[role] != NULL, has);
    }
}

static void which_layers(void **state) {
    (void)state;
    struct sl_synth_config c = config("deepseek32");
    struct sl_model *m = open_model(&c);
    check_layers(m, "xxxxxxxxxxx", true);
    sl_model_close(&m);
    c = config("glm-dsa");
    m = open_model(&c); /* of a model before 5.2, as its context says */
    check_layers(m, "xxxxxxxxxxx", false);
    sl_model_close(&m);
    c.n_ctx = 1u << 20;
    m = open_model(&c); /* of 5.2 */
    check_layers(m, "xxx---x---x", false);
    sl_model_close(&m);
    c.index_every = 4; /* which the file says */
    c.n_nextn = 1;
    m = open_model(&c);
    check_layers(m, "x---x---x--", false);
    /* What drafts tokens has its own, whatever the layers before it have. */
    assert_int_equal(sl_model_add_drafts(m, &(struct sl_err){""}), SL_OK);
    assert_true(m->layers[11].spec.draft && m->layers[11].t[SL_L_INDEX_Q]);
    assert_int_equal(m->layers[11].spec.latent.choice_back, 0);
    sl_model_close(&m);
}

/* MiniMax-M3's, in layers with experts alone. */
static void of_blocks(void **state) {
    (void)state;
    static const enum sl_layer_role own[] = {SL_L_INDEX_Q, SL_L_INDEX_Q_NORM, SL_L_INDEX_K,
                                             SL_L_INDEX_K_NORM};
    struct sl_synth_config c = config("minimax-m3");
    c.n_lora_q = 0;
    c.n_rot = 32;
    c.index_block = 24;
    c.n_index_local = 3;
    struct sl_model *m = open_model(&c);
    for (uint32_t l = 0; l < 11; l++) {
        const struct sl_layer *layer = &m->layers[l];
        const struct sl_attention_spec *a = &layer->spec.attention;
        bool has = l >= 2;
        assert_int_equal(layer->spec.mixer, SL_MIXER_ATTENTION);
        assert_int_equal(layer->spec.ffn, has ? SL_FFN_EXPERTS : SL_FFN_DENSE);
        assert_true(layer->spec.clamped);
        assert_int_equal(a->qk_norm, SL_QK_NORM_HEAD);
        assert_int_equal(a->n_index_top, has ? 70 : 0);
        assert_int_equal(a->n_index_local, has ? 3 : 0);
        assert_int_equal(a->index_block, has ? 24 : 0);
        assert_int_equal(a->index_dim, has ? 96 : 0);
        for (uint32_t i = 0; i < sizeof own / sizeof own[0]; i++)
            assert_int_equal(layer->t[own[i]] != NULL, has);
        assert_null(layer->t[SL_L_INDEX_WEIGHTS]);
        if (!has)
            continue;
        assert_int_equal(layer->spec.experts.activation, SL_EXPERT_SWIGLU_CLAMPED);
        assert_int_equal(layer->spec.experts.router_kind, SL_ROUTER_KIND_SIGMOID);
        assert_int_equal(layer->spec.experts.n_ff_shared, c.n_ff_shared);
        assert_int_equal(sl_model_cut(m, l, &(struct sl_err){""}), SL_OK);
    }
    sl_model_close(&m);
}

/* dots3-note's, in layers without a window; the others have a shape of their own. */
static void with_windows(void **state) {
    (void)state;
    struct sl_synth_config c = config("dots3note");
    c.n_head_kv = 1;
    c.window = 100;
    c.window_period = 3;
    c.n_head_window = 6;
    c.head_dim_window = 80;
    c.head_dim_v_window = 48;
    c.n_latent_window = 40;
    c.rope_base_window = 5000;
    c.router_sigmoid = true;
    c.n_nextn = 1;
    struct sl_model *m = open_model(&c);
    assert_int_equal(m->hp.n_layer, 11);
    assert_int_equal(m->hp.n_layer_nextn, 1);
    assert_int_equal(m->hp.n_rope, 2);
    assert_true(m->hp.rope[1].base == 5000);
    assert_int_equal(m->hp.rope[1].n_rot, m->hp.rope[0].n_rot);
    for (uint32_t l = 0; l < 11; l++) {
        const struct sl_layer *layer = &m->layers[l];
        const struct sl_latent_spec *s = &layer->spec.latent;
        bool windowed = l % 3 < 2;
        assert_int_equal(layer->spec.mixer, SL_MIXER_LATENT);
        assert_int_equal(s->window, windowed ? 100 : 0);
        assert_int_equal(s->n_head, windowed ? 6 : 4);
        assert_int_equal(s->n_nope + s->n_rot, windowed ? 80 : 64);
        assert_int_equal(s->head_dim_v, windowed ? 48 : 64);
        assert_int_equal(s->n_latent, windowed ? 40 : 64);
        assert_int_equal(s->rope, windowed);
        assert_int_equal(s->n_index_top, windowed ? 0 : 70);
        assert_int_equal(s->gate, SL_GATE_HEAD);
        assert_true(s->k_norm && s->index_neox);
        float dim = windowed ? 80 : 64;
        assert_true(s->scale * s->scale * dim > 0.999f && s->scale * s->scale * dim < 1.001f);
        assert_int_equal(sl_latent_chooses(s), !windowed);
        assert_non_null(layer->t[SL_L_ATTN_GATE]);
        assert_non_null(layer->t[SL_L_ATTN_K_NORM]);
        for (unsigned role = SL_L_INDEX_Q; role <= SL_L_INDEX_WEIGHTS; role++)
            assert_int_equal(layer->t[role] != NULL, !windowed);
        assert_int_equal(sl_model_cut(m, l, &(struct sl_err){""}), SL_OK);
    }
    sl_model_close(&m);
}

static void cuts(void **state) {
    (void)state;
    struct sl_synth_config c = config("glm-dsa");
    c.index_every = 4;
    struct sl_model *m = open_model(&c), slice;
    for (uint32_t l = 0; l < 11; l++) {
        struct sl_err err = {""};
        enum sl_status want = l % 4 ? SL_ERR_UNSUPPORTED : SL_OK;
        assert_int_equal(sl_model_cut(m, l, &err), want);
        if (l % 4)
            assert_non_null(strstr(err.text, l < 4   ? "of layer 0: a split must not be between"
                                             : l < 8 ? "of layer 4: a split must not be between"
                                                     : "of layer 8: a split must not be between"));
        assert_int_equal(sl_model_slice(m, l, 11 - l, &slice, &err), want);
        if (l)
            assert_int_equal(sl_model_slice(m, 0, l, &slice, &err), want);
        assert_int_equal(sl_model_slice_alone(m, l, 1, &slice, &err), SL_OK);
        assert_int_equal(slice.hp.first_layer, l);
    }
    assert_int_equal(sl_model_slice(m, 4, 4, &slice, &(struct sl_err){""}), SL_OK);
    sl_model_close(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(which_layers), cmocka_unit_test(of_blocks),
                                       cmocka_unit_test(with_windows), cmocka_unit_test(cuts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
