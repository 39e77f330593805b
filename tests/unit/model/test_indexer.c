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
    enum sl_status st = sl_synth_write(c, path, NULL, NULL, &err);
    if (st == SL_OK)
        st = sl_model_open(path, &m, &err);
    unlink(path);
    if (st != SL_OK)
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(which_layers), cmocka_unit_test(cuts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
