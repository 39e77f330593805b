/* deepseek4: the specs of its layers, its rotations and streams, and what is refused. */
#include "model/arch/model_slice.h"
#include "model/synth/synth.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct sl_synth_config config(void) {
    struct sl_synth_config c = sl_synth_default;
    c.arch = "deepseek4";
    c.n_layer = 10;
    c.n_embd = 64;
    c.n_head = 6;
    c.head_dim = 40;
    c.n_rot = 8;
    c.n_lora_q = 24;
    c.n_group_out = 3;
    c.n_lora_out = 20;
    c.n_layer_table = 3;
    c.n_index_head = 5;
    c.index_dim = 48;
    c.n_index_top = 70;
    c.window = 100;
    c.yarn_factor = 16;
    c.rope_base = 1000;
    c.headers_only = true;
    return c;
}

static enum sl_status open_edited(const struct sl_synth_config *c, const char *key, uint32_t value,
                                  struct sl_model **out, struct sl_err *err) {
    char path[] = "/tmp/sluice-test-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(sl_synth_write(c, path, NULL, NULL, err), SL_OK);
    if (key) { /* a number, or the first of an array */
        char head[8192];
        ssize_t n = pread(fd, head, sizeof head, 0);
        char *at = n > 0 ? memmem(head, (size_t)n, key, strlen(key)) : NULL;
        assert_non_null(at);
        uint32_t type;
        memcpy(&type, at + strlen(key), sizeof type);
        at += strlen(key) + (type == 9 ? 16 : 4);
        assert_int_equal(pwrite(fd, &value, sizeof value, at - head), sizeof value);
    }
    close(fd);
    enum sl_status status = sl_model_open(path, out, err);
    unlink(path);
    return status;
}

static void layers(void **state) {
    (void)state;
    struct sl_synth_config c = config();
    struct sl_err err = {""};
    struct sl_model *m = NULL;
    if (open_edited(&c, NULL, 0, &m, &err) != SL_OK)
        fail_msg("%s", err.text);
    assert_int_equal(m->hp.n_stream, 4);
    assert_int_equal(m->hp.stream_iters, 20);
    assert_int_equal(sl_row_elems(&m->hp), 4 * 64);
    assert_int_equal(m->hp.n_rope, 4);
    for (uint32_t i = 0; i < 4; i++) {
        const struct sl_rope_spec *r = &m->hp.rope[i];
        assert_int_equal(r->n_rot, 8);
        assert_true(r->base == (i % 2 ? 1000 : 16000));
        assert_true(r->yarn_factor == (i % 2 ? 0 : 16));
        assert_int_equal(r->back, i >= 2);
    }
    assert_true(m->hp.rope[0].yarn_attn < 0.79f && m->hp.rope[1].yarn_attn == 1);
    for (uint32_t l = 0; l < 10; l++) {
        const struct sl_layer *layer = &m->layers[l];
        const struct sl_compressed_spec *s = &layer->spec.compressed;
        uint32_t ratio = l < 2 ? 0 : l % 2 ? 128 : 4;
        assert_int_equal(layer->spec.mixer, SL_MIXER_COMPRESSED);
        assert_int_equal(s->ratio, ratio);
        assert_int_equal(s->overlap, ratio == 4);
        assert_int_equal(s->rope, ratio ? 0 : 1);
        assert_int_equal(s->rope_back, ratio ? 2 : 3);
        assert_int_equal(s->window, 100);
        assert_int_equal(s->n_index_top, ratio == 4 ? 70 : 0);
        assert_int_equal(sl_compressed_width(s), ratio == 4 ? 80 : ratio ? 40 : 0);
        assert_int_equal(sl_compressed_index_width(s), ratio == 4 ? 96 : 0);
        assert_int_equal(layer->t[SL_L_BLOCK_KV] != NULL, ratio != 0);
        assert_int_equal(layer->t[SL_L_INDEX_GATE] != NULL, ratio == 4);
        assert_int_equal(layer->spec.experts.by_token, l < 3);
        assert_int_equal(layer->t[SL_L_ROUTER_TABLE] != NULL, l < 3);
        assert_int_equal(layer->t[SL_L_ROUTER_BIAS] != NULL, l >= 3);
        assert_int_equal(layer->spec.experts.router_kind, SL_ROUTER_KIND_SQRT_SOFTPLUS);
        assert_int_equal(layer->spec.experts.activation, SL_EXPERT_SWIGLU_CUT);
        assert_true(layer->spec.cut && layer->spec.limit > layer->spec.experts.limit);
        assert_int_equal(sl_model_cut(m, l, &err), SL_OK);
    }
    struct sl_model slice;
    assert_int_equal(sl_model_slice(m, 0, 4, &slice, &err), SL_OK);
    assert_null(slice.global[SL_G_STREAMS]);
    sl_model_slice_release(&slice);
    sl_model_close(&m);
}

static void refused(void **state) {
    (void)state;
    static const struct {
        const char *key;
        uint32_t value;
    } lies[] = {{"deepseek4.attention.compress_ratios", 8},
                {"deepseek4.attention.head_count_kv", 2},
                {"deepseek4.attention.q_lora_rank", 0},
                {"deepseek4.attention.output_group_count", 4},
                {"deepseek4.attention.output_lora_rank", 1u << 31},
                {"deepseek4.attention.sliding_window", 0},
                {"deepseek4.attention.indexer.head_count", 1u << 31},
                {"deepseek4.attention.indexer.key_length", 7},
                {"deepseek4.attention.indexer.top_k", 0},
                {"deepseek4.attention.compress_rope_freq_base", 0},
                {"deepseek4.hyper_connection.count", 3},
                {"deepseek4.hyper_connection.sinkhorn_iterations", 0},
                {"deepseek4.hyper_connection.epsilon", 0xbf800000u}, /* -1 */
                {"deepseek4.hash_layer_count", 11},
                {"deepseek4.embedding_length_out", 64},
                {"deepseek4.expert_gating_func", 2},
                {"deepseek4.swiglu_clamp_exp", 0x7fc00000u}}; /* not a number */
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        struct sl_synth_config c = config();
        struct sl_err err = {""};
        struct sl_model *m = NULL;
        enum sl_status status = open_edited(&c, lies[i].key, lies[i].value, &m, &err);
        if (status == SL_OK || !strstr(err.text, lies[i].key))
            fail_msg("%s = %u: status %d, '%s'", lies[i].key, lies[i].value, status, err.text);
    }
    /* Its router is no other family's. */
    struct sl_synth_config c = sl_synth_default;
    struct sl_err err = {""};
    struct sl_model *m = NULL;
    c.arch = "dots1";
    c.headers_only = true;
    assert_int_equal(open_edited(&c, "dots1.expert_gating_func", 4, &m, &err), SL_ERR_UNSUPPORTED);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(layers), cmocka_unit_test(refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
