/* qwen4exp: the specs of its layers, its streams and n-grams, and what is refused. */
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
    c.arch = "qwen4exp";
    c.n_layer = 10;
    c.n_embd = 72;
    c.n_head = 6;
    c.head_dim = 40;
    c.n_rot = 8;
    c.n_lora_out = 20;
    c.n_index_head = 5;
    c.index_dim = 48;
    c.n_index_top = 72;
    c.index_block = 4;
    c.n_ngram_head = 3;
    c.n_ngram_rows = 101;
    c.headers_only = true;
    return c;
}

/* The value of a key, or an element of an array of so many bytes each, or a tensor's dimension
 * (behind its name and their number). */
static enum sl_status open_edited(const struct sl_synth_config *c, const char *key, uint32_t skip,
                                  uint32_t value, struct sl_model **out, struct sl_err *err) {
    char path[] = "/tmp/sluice-test-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(sl_synth_write(c, path, NULL, NULL, err), SL_OK);
    if (key) {
        static char head[1 << 20];
        ssize_t n = pread(fd, head, sizeof head, 0);
        char *at = n > 0 ? memmem(head, (size_t)n, key, strlen(key)) : NULL;
        assert_non_null(at);
        uint32_t type;
        memcpy(&type, at + strlen(key), sizeof type);
        at += strlen(key) + (type == 9 ? 16 : 4) + skip;
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
    if (open_edited(&c, NULL, 0, 0, &m, &err) != SL_OK)
        fail_msg("%s", err.text);
    assert_int_equal(m->hp.n_stream, 4);
    assert_int_equal(m->hp.stream_rank, 20);
    assert_int_equal(sl_row_elems(&m->hp), 4 * 72);
    assert_null(m->global[SL_G_OUTPUT_NORM]);
    assert_non_null(m->global[SL_G_STREAMS_UP]);
    const struct sl_ngram_spec *g = &m->hp.ngram;
    assert_int_equal(g->n_gram, 3);
    assert_int_equal(g->n_head, 6);
    assert_int_equal(g->dim, 12);
    assert_int_equal(g->n_rows, 6 * 101);
    assert_true(g->mul[0] == 0x1d3f5a7b9c1d && g->mul[2] == 0x15f0c9e3774f);
    for (uint32_t h = 0; h < 6; h++)
        assert_true(g->offset[h] == 101 * h && g->size[h] == 101 - h % 2);
    for (uint32_t l = 0; l < 10; l++) {
        const struct sl_layer *layer = &m->layers[l];
        const struct sl_attention_spec *a = &layer->spec.attention;
        bool attends = l % 4 == 3;
        assert_int_equal(layer->spec.mixer, attends ? SL_MIXER_ATTENTION : SL_MIXER_DELTA);
        assert_null(layer->t[SL_L_ATTN_NORM]);
        assert_null(layer->t[SL_L_FFN_NORM]);
        for (unsigned r = SL_L_LOW_MIX_NORM; r <= SL_L_LOW_FFN_INJECT; r++)
            assert_non_null(layer->t[r]);
        assert_int_equal(layer->t[SL_L_NGRAM_CONV] != NULL, l == 1);
        assert_int_equal(layer->spec.ngram.n_taps, l == 1 ? 4 : 0);
        assert_int_equal(layer->spec.ngram.step, l == 1 ? 3 : 0);
        assert_true(attends || layer->spec.delta.gate_sigmoid);
        if (attends) {
            assert_true(a->gated && a->pool == 4 && a->n_pool_head == 5 && a->n_pool_top == 18);
            assert_int_equal(a->index_dim, 48);
            assert_non_null(layer->t[SL_L_INDEX_Q]);
        }
    }
    struct sl_model slice;
    assert_int_equal(sl_model_slice(m, 0, 4, &slice, &err), SL_OK);
    assert_true(slice.global[SL_G_NGRAMS] && slice.hp.ngram.n_head &&
                !slice.global[SL_G_STREAMS_UP]);
    sl_model_slice_release(&slice);
    assert_int_equal(sl_model_slice(m, 2, 8, &slice, &err), SL_OK);
    assert_true(!slice.global[SL_G_NGRAMS] && !slice.hp.ngram.n_head &&
                slice.global[SL_G_STREAMS_UP]);
    sl_model_slice_release(&slice);
    sl_model_close(&m);
}

static void refused(void **state) {
    (void)state;
    static const struct {
        const char *key;
        uint32_t skip, value;
    } lies[] = {
        {"qwen4exp.hyper_connection.count", 0, 1},
        {"qwen4exp.hyper_connection.count", 0, 9},
        {"qwen4exp.hyper_connection.low_rank", 0, 0},
        {"qwen4exp.attention.indexer.head_count", 0, 0},
        {"qwen4exp.attention.indexer.head_count", 0, 1u << 31},
        {"qwen4exp.attention.indexer.key_length", 0, 7},
        {"qwen4exp.attention.indexer.top_k", 0, 0},
        {"qwen4exp.attention.compress_ratios", 12, 0},
        {"qwen4exp.attention.compress_ratios", 12, 3},
        {"qwen4exp.attention.compress_ratios", 12, 128},
        {"qwen4exp.attention.compress_ratios", 12, 16}, /* is no part of 72 */
        {"qwen4exp.ple.layers", 0, 3},
        {"qwen4exp.ple.layers", 0, 10},
        {"qwen4exp.ple.layers", 0, UINT32_MAX},
        {"qwen4exp.ple.ngram_size", 0, 4},
        {"qwen4exp.ple.ngram_size", 0, 1},
        {"qwen4exp.ple.heads_per_ngram", 0, 0},
        {"qwen4exp.ple.heads_per_ngram", 0, 33},
        {"qwen4exp.ple.conv_kernel", 0, 1},
        {"qwen4exp.ple.conv_kernel", 0, 9},
        {"qwen4exp.embedding_length_per_layer_input", 0, 13},
        {"qwen4exp.ple.layer_multipliers", 12, 0xffffffff}, /* of the second, its upper half */
        {"qwen4exp.ple.head_offsets", 0, 0x80000000},
        {"qwen4exp.ple.head_vocab_sizes", 8, 0},
        {"qwen4exp.ple.head_vocab_sizes", 0, 0x80000000},
        {"per_layer_token_embd.weight", 8, 604}};
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        struct sl_synth_config c = config();
        struct sl_err err = {""};
        struct sl_model *m = NULL;
        enum sl_status status = open_edited(&c, lies[i].key, lies[i].skip, lies[i].value, &m, &err);
        if (status == SL_OK || !strstr(err.text, strchr(lies[i].key, '.') + 1))
            fail_msg("%s = %u: status %d, '%s'", lies[i].key, lies[i].value, status, err.text);
    }
    /* A missing tensor, by another name; none of another family. */
    static const char *const tensors[] = {"blk.1.ple_conv1d.weight",     "blk.0.hc_attn_up.weight",
                                          "blk.9.hc_ffn_inject.weight",  "output_hc_down.weight",
                                          "blk.3.indexer.q_norm.weight", "blk.2.ssm_alpha.weight"};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        struct sl_synth_config c = config();
        struct sl_err err = {""};
        struct sl_model *m = NULL;
        char cut[64];
        snprintf(cut, sizeof cut, "%.*s", (int)(strlen(tensors[i]) - 8), tensors[i]);
        /* The last letters of its name become others. */
        uint32_t other;
        memcpy(&other, "xxxx", sizeof other);
        enum sl_status status = open_edited(&c, cut, 0, other, &m, &err);
        assert_true(status == SL_ERR_CORRUPT || status == SL_ERR_UNSUPPORTED);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(layers), cmocka_unit_test(refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
