/* kimi-k3: the specs of its layers and streams, and what is refused. */
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
    c.arch = "kimi-k3";
    c.n_layer = 7;
    c.n_layer_dense = 1;
    c.n_embd = 64;
    c.n_head = 3;
    c.head_dim = 40;
    c.n_rot = 16;
    c.head_dim_v = 24;
    c.n_latent = 48;
    c.n_lora_q = 20;
    c.delta_dim = 24;
    c.attn_every = 3;
    c.n_expert_latent = 36;
    c.n_ff_expert = c.n_ff_shared = 32;
    c.keep_every = 3;
    c.headers_only = true;
    return c;
}

/* A number of the file, or the first of an array, is another; so are the last letters of a tensor's
 * name. */
struct edit {
    const char *key;
    uint32_t value;
    const char *tensor, *name;
};

static enum sl_status open_edited(const struct sl_synth_config *c, const struct edit *e,
                                  struct sl_model **out, struct sl_err *err) {
    static char head[1 << 16];
    char path[] = "/tmp/sluice-test-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(sl_synth_write(c, path, NULL, NULL, err), SL_OK);
    ssize_t n = pread(fd, head, sizeof head, 0);
    const char *what = e->key ? e->key : e->tensor;
    char *at = what && n > 0 ? memmem(head, (size_t)n, what, strlen(what)) : head;
    assert_non_null(at);
    if (e->key) {
        uint32_t type;
        memcpy(&type, at + strlen(what), sizeof type);
        at += strlen(what) + (type == 9 ? 16 : 4);
        assert_int_equal(pwrite(fd, &e->value, sizeof e->value, at - head), sizeof e->value);
    } else if (e->tensor) {
        assert_int_equal(strlen(e->name), strlen(e->tensor));
        assert_int_equal(pwrite(fd, e->name, strlen(e->name), at - head), strlen(e->name));
    }
    close(fd);
    enum sl_status status = sl_model_open(path, out, err);
    unlink(path);
    return status;
}

static struct sl_model *opened(const struct sl_synth_config *c) {
    struct sl_err err = {""};
    struct sl_model *m = NULL;
    if (open_edited(c, &(struct edit){0}, &m, &err) != SL_OK)
        fail_msg("%s", err.text);
    return m;
}

static void layers(void **state) {
    (void)state;
    struct sl_synth_config c = config();
    struct sl_model *m = opened(&c);
    assert_int_equal(m->hp.keep_every, 3);
    assert_int_equal(m->hp.n_stream, 4); /* layers 0, 3 and 6 keep what there is */
    assert_int_equal(sl_row_elems(&m->hp), 4 * 64);
    static const uint32_t kept[] = {0, 1, 1, 1, 2, 2, 2, 3};
    for (uint32_t l = 0; l < 8; l++)
        assert_int_equal(sl_kept_streams(&m->hp, l), kept[l]);
    assert_non_null(m->global[SL_G_STREAMS_SCORE]);
    for (uint32_t l = 0; l < 7; l++) {
        const struct sl_layer *layer = &m->layers[l];
        const struct sl_layer_spec *s = &layer->spec;
        bool latent = l == 2 || l == 5 || l == 6;
        assert_int_equal(s->mixer, latent ? SL_MIXER_LATENT : SL_MIXER_KDA);
        assert_int_equal(s->ffn, l ? SL_FFN_EXPERTS : SL_FFN_DENSE);
        assert_true(s->situ && s->limit == 1.25f && s->limit_up == 2);
        assert_non_null(layer->t[SL_L_STREAMS_MIX_BASE]);
        assert_non_null(layer->t[SL_L_STREAMS_FFN_BASE]);
        if (latent) {
            assert_true(s->latent.no_rope);
            assert_int_equal(s->latent.gate, SL_GATE_ELEMENT);
            assert_int_equal(layer->t[SL_L_ATTN_GATE]->ne[1], 3 * 24);
        } else {
            assert_true(!s->kda.full && s->kda.full_gate && s->kda.flat && s->kda.bound == -5);
            assert_int_equal(layer->t[SL_L_KDA_A]->ne[0], 3);
            assert_int_equal(layer->t[SL_L_KDA_GATE_A]->ne[1], 3 * 24);
            assert_non_null(layer->t[SL_L_KDA_DECAY_B]);
        }
        if (!l)
            continue;
        assert_int_equal(s->experts.activation, SL_EXPERT_SITU);
        assert_true(s->experts.limit == 1.25f && s->experts.limit_up == 2);
        assert_int_equal(s->experts.n_latent, 36);
        assert_int_equal(layer->t[SL_L_EXPERTS_POST_NORM]->ne[0], 36);
    }
    struct sl_model slice;
    struct sl_err err;
    assert_int_equal(sl_model_slice(m, 0, 4, &slice, &err), SL_OK);
    assert_null(slice.global[SL_G_STREAMS_SCORE]);
    assert_int_equal(sl_row_elems(&slice.hp), 4 * 64);
    sl_model_slice_release(&slice);
    sl_model_close(&m);
    c.keep_every = 0;
    c.n_expert_latent = 0;
    m = opened(&c);
    assert_int_equal(m->hp.n_stream, 0);
    assert_null(m->global[SL_G_STREAMS_SCORE]);
    sl_model_close(&m);
    c.keep_every = 500; /* one block */
    m = opened(&c);
    assert_int_equal(m->hp.n_stream, 2);
    assert_int_equal(sl_kept_streams(&m->hp, 7), 1);
    sl_model_close(&m);
}

static void refuse(const struct sl_synth_config *c, const struct edit *e, const char *word) {
    struct sl_err err = {""};
    struct sl_model *m = NULL;
    enum sl_status status = open_edited(c, e, &m, &err);
    if (status == SL_OK || !strstr(err.text, word))
        fail_msg("%s: status %d, '%s'", word, status, err.text);
}

static void refused(void **state) {
    (void)state;
    static const struct edit lies[] = {
        {.key = "kimi-k3.attn_res.block_size", .value = 1},            /* tensors or not: wider */
        {.key = "kimi-k3.activation.situ_beta", .value = 0},           /* 0.0 */
        {.key = "kimi-k3.activation.situ_beta", .value = 0x7fc00000u}, /* not a number */
        {.key = "kimi-k3.activation.situ_linear_beta", .value = 0x38d1b717u}, /* 1e-4 */
        {.key = "kimi-k3.activation.situ_linear_beta", .value = 0x7f800000u}, /* infinite */
        {.key = "kimi-k3.kda.gate_lower_bound", .value = 0x40a00000u},        /* 5 */
        {.key = "kimi-k3.kda.head_dim", .value = 1025},
        {.key = "kimi-k3.ssm.conv_kernel", .value = 9},
        {.key = "kimi-k3.expert_latent_length", .value = 65},
        {.key = "kimi-k3.expert_shared_count", .value = 0},
        {.key = "kimi-k3.attention.head_count_kv", .value = 2},
        {.key = "kimi-k3.attention.q_lora_rank", .value = 1u << 31}};
    for (size_t i = 1; i < sizeof lies / sizeof *lies; i++) {
        struct sl_synth_config c = config();
        refuse(&c, &lies[i], lies[i].key);
    }
    struct sl_synth_config c = config();
    c.n_layer = 70; /* of which all are kept, more than a row has room for */
    refuse(&c, &lies[0], "kimi-k3.attn_res.block_size");
    c = config();
    c.n_embd = 1u << 16;
    c.n_layer = 20;
    refuse(&c, &lies[0], "kimi-k3.attn_res.block_size");
    /* Tensors of other names; what is there without the key for it. */
    static const struct edit lacks[] = {
        {.tensor = "blk.3.attn_res_score.weight", .name = "blk.3.attn_res_score.wrongs"},
        {.tensor = "blk.3.ffn_res_score.weight", .name = "blk.3.ffn_res_score.wrongs"},
        {.tensor = "output_res_score.weight", .name = "output_res_score.wrongs"},
        {.tensor = "blk.3.ssm_g.weight", .name = "blk.3.ssm_g.wrongs"},
        {.tensor = "blk.2.ffn_routed_down.weight", .name = "blk.2.ffn_routed_down.wrongs"}};
    for (size_t i = 0; i < sizeof lacks / sizeof *lacks; i++) {
        c = config();
        refuse(&c, &lacks[i], lacks[i].name);
    }
    c = config();
    c.keep_every = 0;
    struct edit there = {.key = "kimi-k3.expert_latent_length", .value = 0};
    refuse(&c, &there, "ffn_routed_down.weight");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(layers), cmocka_unit_test(refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
