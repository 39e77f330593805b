/* Grouped-query families with parts of their own: what their files say becomes their layers' specs,
 * and files that lie about it are refused by name. */
#include "model/arch/model.h"
#include "tests/support/gguf_builder.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { EMBD = 64, HEADS = 4, KV = 2, DIM = 16, VDIM = 8, FF = 96, FF_EXP = 32, EXPERTS = 6 };
enum { VOCAB = 40, LAYERS = 6, NO_LAYER = 1000 };

/* keys: "name=12 name=1.5 name=true name=[1,0,1]", of the architecture. dense, layer, experts:
 * tensors of dense layers alone, of all, and of those with experts: "name:AB" with a letter for
 * each dimension. */
struct family {
    const char *arch, *keys, *dense, *layer, *experts;
    const char *global; /* of no layer */
    uint32_t n_dense, step;
    bool wide_values; /* VDIM elements of a head's value, not DIM */
};
struct edit {
    const char *no_key, *keys;      /* left out; added */
    const char *no_tensor, *tensor; /* the same of tensors; the latter of layer 4 */
    const char *global;             /* added, of no layer */
};

#define FFN "ffn_gate.weight:EF ffn_up.weight:EF ffn_down.weight:FE "
#define EXPERTS3                                                                                   \
    "ffn_gate_inp.weight:EN ffn_gate_exps.weight:EXN ffn_up_exps.weight:EXN "                      \
    "ffn_down_exps.weight:XEN "
#define SHARED   "ffn_gate_shexp.weight:EX ffn_up_shexp.weight:EX ffn_down_shexp.weight:XE "
#define ATTN     "attn_norm.weight:E attn_q.weight:EQ attn_k.weight:EK attn_v.weight:EV " ATTN_OUT
#define ATTN_OUT "attn_output.weight:OE "
#define QK_NORM  "attn_q_norm.weight:D attn_k_norm.weight:D "
#define RMS      "attention.layer_norm_rms_epsilon=0.00001 "
#define WIDTH    "expert_feed_forward_length=32 "
#define WINDOW   "attention.sliding_window=100 "

static const struct family families[] = {
    {.arch = "llama4",
     .keys = RMS WIDTH "interleave_moe_layer_step=2 expert_used_count=1",
     .dense = FFN,
     .layer = ATTN "ffn_norm.weight:E ",
     .experts = EXPERTS3 SHARED,
     .step = 2},
    {.arch = "afmoe",
     .keys =
         RMS WIDTH WINDOW "leading_dense_block_count=1 expert_shared_count=1 expert_used_count=2",
     .dense = FFN,
     .layer = ATTN QK_NORM "ffn_norm.weight:E attn_gate.weight:EO post_attention_norm.weight:E "
                           "post_ffw_norm.weight:E ",
     .experts = EXPERTS3 SHARED "exp_probs_b.bias:N ",
     .n_dense = 1},
    {.arch = "laguna",
     .keys = RMS WIDTH WINDOW "leading_dense_block_count=1 expert_used_count=2 "
                              "rope.scaling.factor=8.0 rope.scaling.type='yarn' "
                              "rope.dimension_count=8 rope.dimension_count_swa=16",
     .dense = FFN,
     .layer = ATTN QK_NORM "ffn_norm.weight:E attn_gate.weight:EH ",
     .experts = EXPERTS3 SHARED "exp_probs_b.bias:N ",
     .n_dense = 1},
    {.arch = "cohere2moe",
     .keys = WIDTH WINDOW "attention.layer_norm_epsilon=0.00001 leading_dense_block_count=1 "
                          "expert_used_count=2 logit_scale=0.5 expert_shared_count=1",
     .dense = FFN,
     .layer = ATTN,
     .experts = EXPERTS3 SHARED,
     .n_dense = 1},
    {.arch = "dbrx",
     .keys = "attention.layer_norm_epsilon=0.00001 expert_used_count=2 attention.clamp_kqv=8.0 "
             "expert_feed_forward_length=32",
     .layer = "attn_norm.weight:E attn_qkv.weight:EJ attn_output_norm.weight:E " ATTN_OUT,
     .experts = EXPERTS3},
    {.arch = "grok",
     .keys = RMS WIDTH "expert_used_count=2 router_logit_softcapping=30.0",
     .layer = ATTN "ffn_norm.weight:E attn_output_norm.weight:E layer_output_norm.weight:E ",
     .experts = EXPERTS3},
    {.arch = "mimo2",
     .keys = RMS WIDTH WINDOW "expert_used_count=2 attention.value_scale=0.5 "
                              "attention.sliding_window_pattern=[1,0,1,0,1,0]",
     .dense = FFN,
     .layer = ATTN "ffn_norm.weight:E ",
     .experts = EXPERTS3 "exp_probs_b.bias:N ",
     .n_dense = 2,
     .wide_values = true},
    {.arch = "mistral3",
     .keys = RMS WIDTH "expert_used_count=2 attention.temperature_scale=0.25 "
                       "rope.scaling.original_context_length=1024",
     .layer = ATTN "ffn_norm.weight:E ",
     .experts = EXPERTS3},
    {.arch = "gemma4",
     .keys = RMS WIDTH WINDOW "attention.sliding_window_pattern=[1,0,1,0,1,0] expert_used_count=2 "
                              "attention.shared_kv_layers=2 embedding_length_per_layer_input=16",
     .layer = ATTN QK_NORM "ffn_norm.weight:E post_attention_norm.weight:E post_ffw_norm.weight:E "
                           "inp_gate.weight:ED proj.weight:DE post_norm.weight:E ",
     .experts = EXPERTS3 FFN "post_ffw_norm_1.weight:E post_ffw_norm_2.weight:E "
                             "pre_ffw_norm_2.weight:E ffn_gate_inp.scale:E ",
     .global = "per_layer_token_embd.weight:WU per_layer_model_proj.weight:EW "
               "per_layer_proj_norm.weight:D "},
    {.arch = "maple",
     .keys = RMS WIDTH WINDOW "expert_used_count=2 swiglu_clamp_exp=[7.0,0.0,0.5,0.5,0.0,7.0] "
                              "attention.sliding_window_pattern=[1,1,0,1,1,0]",
     .layer = ATTN QK_NORM "ffn_norm.weight:E ",
     .experts = EXPERTS3},
    {.arch = "phimoe",
     .keys = RMS WIDTH "expert_used_count=2 rope.scaling.original_context_length=512 "
                       "rope.scaling.attn_factor=1.25",
     .layer = ATTN "ffn_norm.weight:E attn_norm.bias:E ffn_norm.bias:E attn_output.bias:E ",
     .global = "output_norm.bias:E output.bias:U ",
     .experts = EXPERTS3},
    {.arch = "arctic",
     .keys = RMS WIDTH "expert_used_count=2",
     .layer = ATTN "ffn_norm.weight:E ffn_norm_exps.weight:E ffn_gate.weight:EE ffn_up.weight:EE "
                   "ffn_down.weight:EE ",
     .experts = EXPERTS3},
    {.arch = "step35",
     .keys = RMS WIDTH WINDOW "expert_used_count=2 expert_shared_feed_forward_length=32 "
                              "attention.sliding_window_pattern=[0,1,1,0,1,1] "
                              "swiglu_clamp_exp=[0.0,0.0,0.5,0.5,0.0,7.0] swiglu_clamp_shexp=3.0",
     .dense = FFN,
     .layer = ATTN "ffn_norm.weight:E ",
     .experts = EXPERTS3 SHARED,
     .n_dense = 2},
};

static const struct family *find(const char *arch) {
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strcmp(families[i].arch, arch) == 0)
            return &families[i];
    fail_msg("no family '%s'", arch);
    return NULL;
}

static bool has_experts(const struct family *f, uint32_t layer) {
    return layer >= f->n_dense && (!f->step || (layer + 1) % f->step == 0);
}

static void put_key(struct gb *b, const char *arch, char *pair) {
    char name[96], *value = strchr(pair, '=');
    assert_non_null(value);
    *value++ = 0;
    snprintf(name, sizeof name, "%s.%s", arch, pair);
    if (*value == '[' && strchr(value, '.')) {
        float list[LAYERS] = {0};
        uint32_t n = 0;
        for (char *at = value + 1; n < LAYERS && *at && *at != ']'; at += strcspn(at, ",]"), at++)
            list[n++] = strtof(at, NULL);
        gb_array(b, name, SL_GGUF_F32, n, list, n * sizeof *list);
    } else if (*value == '[') {
        int32_t list[LAYERS] = {0};
        uint32_t n = 0;
        for (char *at = value + 1; n < LAYERS && *at && *at != ']'; at += strcspn(at, ",]"), at++)
            list[n++] = atoi(at);
        gb_array(b, name, SL_GGUF_I32, n, list, n * sizeof *list);
    } else if (*value == '\'') {
        value[strlen(value) - 1] = 0;
        gb_str(b, name, value + 1);
    } else if (strcmp(value, "true") == 0) {
        gb_bool(b, name, true);
    } else if (strchr(value, '.')) {
        gb_float(b, name, strtof(value, NULL));
    } else {
        gb_uint(b, name, (uint32_t)strtoul(value, NULL, 10));
    }
}

static void put_keys(struct gb *b, const char *arch, const char *keys, const char *but) {
    char text[600], *save = NULL;
    snprintf(text, sizeof text, "%s", keys ? keys : "");
    for (char *pair = strtok_r(text, " ", &save); pair; pair = strtok_r(NULL, " ", &save)) {
        size_t n = strcspn(pair, "=");
        if (!but || strlen(but) != n || strncmp(but, pair, n) != 0)
            put_key(b, arch, pair);
    }
}

static uint64_t dim(const struct family *f, char letter) {
    uint64_t v = f->wide_values ? VDIM : DIM;
    switch (letter) {
    case 'E':
        return EMBD;
    case 'Q':
        return HEADS * DIM;
    case 'K':
        return KV * DIM;
    case 'V':
        return KV * v;
    case 'O':
        return HEADS * v;
    case 'J':
        return HEADS * DIM + KV * DIM + KV * v;
    case 'H':
        return HEADS;
    case 'D':
        return DIM;
    case 'F':
        return FF;
    case 'X':
        return FF_EXP;
    case 'U':
        return VOCAB;
    case 'W': /* DIM of each layer */
        return LAYERS * DIM;
    case 'R':
        return DIM / 2;
    default:
        return EXPERTS;
    }
}

static void put_tensors(struct gb *b, const struct family *f, uint32_t layer, const char *list,
                        const char *but) {
    char text[600], *save = NULL, name[96];
    snprintf(text, sizeof text, "%s", list ? list : "");
    for (char *t = strtok_r(text, " ", &save); t; t = strtok_r(NULL, " ", &save)) {
        char *dims = strchr(t, ':');
        uint64_t ne[4];
        uint32_t n = 0;
        *dims++ = 0;
        for (; dims[n]; n++)
            ne[n] = dim(f, dims[n]);
        if (layer == NO_LAYER)
            snprintf(name, sizeof name, "%s", t);
        else
            snprintf(name, sizeof name, "blk.%u.%s", layer, t);
        if (!but || strcmp(but, name) != 0)
            gb_tensor(b, name, SL_DTYPE_F32, n, ne);
    }
}

static uint8_t *build(const struct family *f, const struct edit *e, size_t *out_n) {
    struct gb b = gb_new(3);
    char common[400];
    gb_str(&b, "general.architecture", f->arch);
    snprintf(common, sizeof common,
             "block_count=%d context_length=4096 embedding_length=%d attention.head_count=%d "
             "attention.head_count_kv=%d attention.key_length=%d attention.value_length=%d "
             "feed_forward_length=%d expert_count=%d",
             LAYERS, EMBD, HEADS, KV, DIM, f->wide_values ? VDIM : DIM, FF, EXPERTS);
    put_keys(&b, f->arch, common, e->no_key);
    put_keys(&b, f->arch, f->keys, e->no_key);
    put_keys(&b, f->arch, e->keys, NULL);
    gb_tensor(&b, "token_embd.weight", SL_DTYPE_F32, 2, (uint64_t[]){EMBD, VOCAB});
    gb_tensor(&b, "output_norm.weight", SL_DTYPE_F32, 1, (uint64_t[]){EMBD});
    put_tensors(&b, f, NO_LAYER, f->global, e->no_tensor);
    put_tensors(&b, f, NO_LAYER, e->global, NULL);
    for (uint32_t l = 0; l < LAYERS; l++) {
        put_tensors(&b, f, l, f->layer, e->no_tensor);
        put_tensors(&b, f, l, has_experts(f, l) ? f->experts : f->dense, e->no_tensor);
        put_tensors(&b, f, l, l == 4 ? e->tensor : NULL, NULL);
    }
    return gb_finish(&b, out_n);
}

static enum sl_status open_built(const char *arch, const struct edit *e, struct sl_model **out,
                                 uint8_t **out_file, struct sl_err *err) {
    size_t n;
    struct sl_gguf *g = NULL;
    *out_file = build(find(arch), e, &n);
    *out = NULL;
    if (sl_gguf_open_memory(*out_file, n, &g, err) != SL_OK)
        fail_msg("%s: the container: %s", arch, err->text);
    return sl_model_from_gguf(g, out, err);
}

static uint8_t *file_now;

static struct sl_model *opened(const char *arch, struct edit e) {
    struct sl_err err = {""};
    struct sl_model *m;
    if (open_built(arch, &e, &m, &file_now, &err) != SL_OK)
        fail_msg("%s: %s", arch, err.text);
    return m;
}

static void done(struct sl_model *m) {
    sl_model_close(&m);
    free(file_now);
}

static void refused(const char *arch, struct edit e, const char *word1, const char *word2) {
    struct sl_err err = {""};
    struct sl_model *m;
    uint8_t *file;
    enum sl_status status = open_built(arch, &e, &m, &file, &err);
    if (status == SL_OK || !strstr(err.text, word1) || !strstr(err.text, word2))
        fail_msg("%s: want '%s' and '%s', got %d: %s", arch, word1, word2, status, err.text);
    assert_null(m);
    free(file);
}

/* Without any of its tensors, or with one twice, none opens. */
static void every_tensor_counts(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        const struct family *f = &families[i];
        done(opened(f->arch, (struct edit){0}));
        char text[1200], name[96], *save = NULL;
        snprintf(text, sizeof text, "%s%s", f->layer, f->experts);
        for (char *t = strtok_r(text, " ", &save); t; t = strtok_r(NULL, " ", &save)) {
            *strchr(t, ':') = 0;
            bool optional = strcmp(f->arch, "mimo2") == 0 && strcmp(t, "exp_probs_b.bias") == 0;
            /* Which layers have experts is told by this one there. */
            bool tells = (strcmp(f->arch, "mimo2") == 0 || strcmp(f->arch, "step35") == 0) &&
                         strcmp(t, "ffn_gate_inp.weight") == 0;
            snprintf(name, sizeof name, "blk.5.%s", t);
            bool idle = strcmp(f->arch, "gemma4") == 0 && /* layer 5 reads another's */
                        (strncmp(t, "attn_k", 6) == 0 || strncmp(t, "attn_v", 6) == 0);
            if (optional || idle)
                done(opened(f->arch, (struct edit){.no_tensor = name}));
            else if (tells)
                refused(f->arch, (struct edit){.no_tensor = name}, "blk.5.", "");
            else if (strcmp(t, "attn_qkv.weight") == 0)
                refused(f->arch, (struct edit){.no_tensor = name}, "blk.5.attn_q.weight",
                        "missing");
            else if (strcmp(t, "layer_output_norm.weight") == 0)
                refused(f->arch, (struct edit){.no_tensor = name}, "post_ffw_norm", "is missing");
            else
                refused(f->arch, (struct edit){.no_tensor = name}, name, "is missing");
        }
        refused(f->arch, (struct edit){.keys = "surprise=1"}, "surprise", "unknown");
        refused(f->arch, (struct edit){.tensor = "surprise.weight:E"}, "surprise", f->arch);
    }
}

static void llama4(void **state) {
    (void)state;
    struct sl_model *m = opened("llama4", (struct edit){.keys = "attention.sliding_window=64"});
    for (uint32_t l = 0; l < LAYERS; l++) {
        const struct sl_attention_spec *a = &m->layers[l].spec.attention;
        const struct sl_experts_spec *x = &m->layers[l].spec.experts;
        bool all = l % 4 == 3;
        assert_true(a->no_rope == all && a->qk_norm_plain == !all && !a->window);
        assert_int_equal(a->chunk, all ? 0 : 64);
        assert_int_equal(a->temper_span, all ? 8192 : 0);
        assert_int_equal(m->layers[l].spec.ffn, l % 2 ? SL_FFN_EXPERTS : SL_FFN_DENSE);
        if (l % 2 == 0)
            continue;
        assert_true(x->weights_in && x->router_softmax_topk && !x->router_normalize);
        assert_int_equal(x->router_kind, SL_ROUTER_KIND_SIGMOID);
        assert_int_equal(x->n_ff_shared, FF_EXP);
    }
    done(m);
    m = opened("llama4", (struct edit){0}); /* not reached by so short a context */
    assert_int_equal(m->layers[0].spec.attention.chunk, 0);
    done(m);
    m = opened("llama4", (struct edit){.no_key = "context_length", .keys = "context_length=9000"});
    assert_int_equal(m->layers[0].spec.attention.chunk, 8192);
    done(m);
    refused("llama4", (struct edit){.no_key = "expert_used_count", .keys = "expert_used_count=2"},
            "expert_used_count", "one a token, not 2");
    refused("llama4", (struct edit){.keys = "attention.sliding_window=0"}, "sliding_window",
            "out of range");
    refused(
        "llama4",
        (struct edit){.no_key = "interleave_moe_layer_step", .keys = "interleave_moe_layer_step=7"},
        "interleave_moe_layer_step", "");
}

static void gates(void **state) {
    (void)state;
    struct sl_model *m = opened("afmoe", (struct edit){0});
    for (uint32_t l = 0; l < LAYERS; l++) {
        const struct sl_attention_spec *a = &m->layers[l].spec.attention;
        assert_true(a->no_rope == (l == 3) && a->window == (l == 3 ? 0 : 100));
        assert_true(a->gate == SL_GATE_ELEMENT && !a->gate_softplus);
    }
    assert_int_equal(m->layers[1].spec.experts.router_kind, SL_ROUTER_KIND_SIGMOID);
    assert_int_equal(m->layers[1].spec.experts.n_ff_shared, FF_EXP);
    assert_true(m->hp.embd_scale == sqrtf(EMBD));
    done(m);
    refused("afmoe",
            (struct edit){.no_key = "expert_shared_count", .keys = "expert_shared_count=3"},
            "ffn_gate_shexp.weight", "its shape is");
    m = opened("afmoe", (struct edit){.keys = "expert_gating_func=1"});
    assert_int_equal(m->layers[1].spec.experts.router_kind, SL_ROUTER_KIND_SOFTMAX);
    done(m);

    m = opened("laguna", (struct edit){0});
    for (uint32_t l = 0; l < LAYERS; l++) {
        const struct sl_attention_spec *a = &m->layers[l].spec.attention;
        assert_true(a->window == (l % 4 ? 100 : 0) && a->rope == (l % 4 != 0) && !a->no_rope);
        assert_true(a->gate == SL_GATE_HEAD && a->gate_softplus);
    }
    assert_true(m->hp.n_rope == 2 && m->hp.rope[0].n_rot == 8 && m->hp.rope[1].n_rot == 16);
    assert_true(m->hp.rope[0].yarn_factor == 8 && m->hp.rope[1].yarn_factor == 0);
    assert_int_equal(m->layers[1].spec.experts.n_ff_shared, FF_EXP);
    done(m);
    refused("laguna", (struct edit){.keys = "expert_shared_feed_forward_length=33"},
            "ffn_gate_shexp.weight", "its shape is");
    refused("laguna",
            (struct edit){.no_key = "expert_shared_count", .keys = "expert_shared_count=0"},
            "expert_shared_count", "out of range");
    refused(
        "laguna",
        (struct edit){.no_key = "rope.dimension_count_swa", .keys = "rope.dimension_count_swa=7"},
        "rope.dimension_count_swa", "odd");
    /* Neither of heads nor of elements. */
    refused("laguna",
            (struct edit){.no_tensor = "blk.4.attn_gate.weight", .tensor = "attn_gate.weight:EN"},
            "blk.4.attn_gate.weight", "its shape is");
}

static void cohere(void **state) {
    (void)state;
    struct sl_model *m = opened("cohere2moe", (struct edit){0});
    assert_true(m->hp.layer_norm && m->hp.logit_scale == 0.5f);
    for (uint32_t l = 0; l < LAYERS; l++) {
        const struct sl_layer_spec *s = &m->layers[l].spec;
        assert_true(s->parallel && s->attention.window == (l % 4 ? 100 : 0));
        assert_true(s->attention.no_rope == (l == 4)); /* layer 0 is dense */
        assert_true(s->experts.sum_scale == (l ? 0.5f : 0));
    }
    done(m);
    m = opened("cohere2moe", (struct edit){.no_key = "attention.layer_norm_epsilon", .keys = RMS});
    assert_false(m->hp.layer_norm);
    done(m);
    refused("cohere2moe", (struct edit){.no_key = "logit_scale"}, "logit_scale", "is missing");
    refused("cohere2moe", (struct edit){.no_key = "attention.layer_norm_epsilon"},
            "attention.layer_norm_epsilon", "is missing");
    refused("cohere2moe", (struct edit){.no_key = "expert_shared_count"}, "ffn_gate_shexp",
            "no such tensor");
}

static void others(void **state) {
    (void)state;
    struct sl_model *m = opened("dbrx", (struct edit){0});
    assert_true(m->hp.layer_norm && m->layers[5].spec.attention.clamp == 8);
    assert_false(m->layers[0].spec.attention.v_of_k);
    done(m);
    refused("dbrx", (struct edit){.tensor = "attn_q.weight:EQ"}, "blk.4.attn_qkv.weight",
            "blk.4.attn_q.weight is there too");
    refused("dbrx",
            (struct edit){.no_tensor = "blk.4.attn_qkv.weight", .tensor = "attn_qkv.weight:EQ"},
            "blk.4.attn_qkv.weight", "its shape is");

    m = opened("grok", (struct edit){0});
    assert_true(m->hp.embd_scale > 78 && m->hp.logit_scale < 0.58f && m->hp.logit_softcap == 0);
    assert_true(m->layers[0].spec.attention.softcap == 30 && m->layers[0].spec.gelu);
    assert_true(m->hp.rope[0].yarn_beta_fast == 8 && !m->layers[4].spec.experts.with_dense);
    done(m);
    m = opened("grok", (struct edit){.tensor = FFN, .keys = "final_logit_softcapping=50.0"});
    assert_true(m->layers[4].spec.experts.with_dense && m->layers[4].spec.n_ff == FF);
    assert_true(m->layers[4].spec.experts.sum_scale > 0.7f && m->hp.logit_softcap == 50);
    done(m);
    refused("grok", (struct edit){.tensor = "ffn_up.weight:EF"}, "blk.4.ffn_gate.weight",
            "missing");
    refused("grok", (struct edit){.tensor = "post_ffw_norm.weight:E"}, "blk.4.post_ffw_norm.weight",
            "the same tensor");
    refused("grok", (struct edit){.keys = "attn_logit_softcapping=0.0"}, "attn_logit_softcapping",
            "out of range");

    m = opened("mimo2", (struct edit){.tensor = "attn_sinks.weight:H"});
    for (uint32_t l = 0; l < LAYERS; l++) {
        const struct sl_attention_spec *a = &m->layers[l].spec.attention;
        assert_true(a->window == (l % 2 ? 0 : 100) && a->rope == (l % 2 == 0));
        assert_true(a->sinks == (l == 4) && a->value_scale == 0.5f && a->head_dim_v == VDIM);
        assert_int_equal(m->layers[l].spec.ffn, l < 2 ? SL_FFN_DENSE : SL_FFN_EXPERTS);
    }
    assert_true(m->hp.rope[1].base == 10000 && m->layers[2].spec.experts.router_normalize);
    done(m);
    refused("mimo2", (struct edit){.no_key = "attention.sliding_window_pattern"},
            "sliding_window_pattern", "is missing");
    refused("mimo2",
            (struct edit){.no_key = "attention.sliding_window_pattern",
                          .keys = "attention.sliding_window_pattern=[1,0]"},
            "sliding_window_pattern", "2 values for 6 layers");
}

static void maple(void **state) {
    (void)state;
    static const float limit[LAYERS] = {7, 0, 0.5f, 0.5f, 0, 7};
    struct sl_model *m = opened("maple", (struct edit){0});
    for (uint32_t l = 0; l < LAYERS; l++) {
        const struct sl_layer_spec *s = &m->layers[l].spec;
        assert_true(s->attention.window == (l % 3 == 2 ? 0 : 100));
        assert_true(s->attention.no_rope == (l % 3 == 2));
        assert_true(s->experts.limit == limit[l] && s->experts.router_normalize);
        assert_int_equal(s->experts.activation,
                         limit[l] > 0 ? SL_EXPERT_SWIGLU_CUT : SL_EXPERT_SWIGLU);
    }
    done(m);
    static const char *const needed[] = {"attention.sliding_window",
                                         "attention.sliding_window_pattern", "swiglu_clamp_exp"};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        refused("maple", (struct edit){.no_key = needed[i]}, needed[i], "is missing");
    refused("maple",
            (struct edit){.no_key = "swiglu_clamp_exp", .keys = "swiglu_clamp_exp=[1.0,2.0]"},
            "swiglu_clamp_exp", "2 values for 6 layers");
}

static void phi(void **state) {
    (void)state;
    static const char factors[] = "rope_factors_long.weight:R rope_factors_short.weight:R";
    struct sl_model *m = opened("phimoe", (struct edit){0});
    assert_null(m->global[SL_G_ROPE_FREQS]);
    assert_true(m->hp.rope[0].yarn_attn == 1.25f && m->hp.rope[0].yarn_factor == 0);
    done(m);
    for (int within = 0; within < 2; within++) {
        struct edit e = {.global = factors};
        if (within) {
            e.no_key = "rope.scaling.original_context_length";
            e.keys = "rope.scaling.original_context_length=4096";
        }
        m = opened("phimoe", e);
        assert_ptr_equal(m->global[SL_G_ROPE_FREQS],
                         sl_gguf_tensor_find(m->gguf, within ? "rope_factors_short.weight"
                                                             : "rope_factors_long.weight"));
        assert_null(m->global[SL_G_ROPE_LONG]);
        assert_null(m->global[SL_G_ROPE_SHORT]);
        done(m);
    }
    refused("phimoe", (struct edit){.global = "rope_factors_long.weight:R"},
            "rope_factors_short.weight", "is missing");
    refused("phimoe",
            (struct edit){.global = "rope_factors_long.weight:D rope_factors_short.weight:R"},
            "rope_factors_long.weight", "its shape is");
    static const char *const needed[] = {"output_norm.bias", "output.bias", "blk.5.attn_norm.bias",
                                         "blk.0.ffn_norm.bias", "blk.2.attn_output.bias"};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        refused("phimoe", (struct edit){.no_tensor = needed[i]}, needed[i], "is missing");
    refused("grok", (struct edit){.global = "output.bias:U"}, "output.bias", "no such tensor");
    refused("grok", (struct edit){.global = factors}, "rope_factors_long.weight", "no such tensor");
}

/* The small models of Gemma 4: layers 4 and 5 read those before them of their kind. */
static void small_gemma(void **state) {
    (void)state;
    struct sl_model *m = opened("gemma4", (struct edit){0});
    assert_int_equal(m->hp.n_embd_layer, 16);
    for (uint32_t l = 0; l < LAYERS; l++) {
        assert_int_equal(m->layers[l].spec.attention.kv_back, l < 4 ? 0 : 2);
        assert_true((m->layers[l].t[SL_L_ATTN_K] == NULL) == (l >= 4));
    }
    done(m);
    refused("gemma4", (struct edit){.no_key = "embedding_length_per_layer_input"},
            "per_layer_token_embd", "no such tensor");
    refused("gemma4", (struct edit){.no_tensor = "per_layer_model_proj.weight"},
            "per_layer_model_proj.weight", "is missing");
    refused("gemma4", (struct edit){.no_tensor = "blk.5.inp_gate.weight"}, "blk.5.inp_gate.weight",
            "is missing");
    refused("gemma4",
            (struct edit){.no_key = "attention.shared_kv_layers",
                          .keys = "attention.shared_kv_layers=5"},
            "shared_kv_layers", "no layer before them");
    refused("gemma4",
            (struct edit){.no_key = "attention.shared_kv_layers",
                          .keys = "attention.shared_kv_layers=6"},
            "shared_kv_layers", "out of range");
}

static void arctic_and_step(void **state) {
    (void)state;
    struct sl_model *t = opened("mistral3", (struct edit){0});
    assert_true(t->layers[3].spec.attention.temper_scale == 0.25f);
    assert_int_equal(t->layers[3].spec.attention.temper_span, 1024);
    assert_false(t->layers[3].spec.attention.temper_ahead);
    done(t);
    refused("mistral3",
            (struct edit){.no_key = "attention.temperature_scale",
                          .keys = "attention.temperature_scale=-1.0"},
            "temperature_scale", "out of range");
    struct sl_model *m = opened("arctic", (struct edit){0});
    assert_true(m->layers[0].spec.experts.early && m->layers[0].spec.experts.with_dense);
    assert_true(m->layers[0].spec.n_ff == EMBD && m->layers[0].spec.experts.n_ff == FF_EXP);
    assert_non_null(m->layers[0].t[SL_L_EXPERTS_NORM]);
    done(m);

    struct edit e = {.tensor = "attn_gate.weight:EH exp_probs_b.bias:N " QK_NORM};
    m = opened("step35", e);
    for (uint32_t l = 0; l < LAYERS; l++) {
        const struct sl_layer_spec *s = &m->layers[l].spec;
        static const float limit[LAYERS] = {0, 0, 0.5f, 0.5f, 0, 7};
        assert_true(s->attention.window == (l % 3 ? 100 : 0) && s->attention.rope == (l % 3 != 0));
        assert_int_equal(s->attention.gate, l == 4 ? SL_GATE_HEAD : SL_GATE_NONE);
        assert_int_equal(s->ffn, l < 2 ? SL_FFN_DENSE : SL_FFN_EXPERTS);
        assert_true(s->limit == 3 && s->experts.limit == limit[l]);
        assert_true((s->experts.activation == SL_EXPERT_SWIGLU_LIMITED) == (limit[l] > 0));
    }
    assert_true(m->hp.rope[0].n_rot == DIM / 2 && m->hp.rope[1].n_rot == DIM);
    assert_int_equal(m->hp.n_rope_freqs, DIM / 2);
    done(m);
    static const struct {
        const char *key, *instead, *why;
    } lies[] = {
        {"swiglu_clamp_exp", "swiglu_clamp_exp=[0.0,1.0]", "2 values for 6 layers"},
        {"swiglu_clamp_exp", "swiglu_clamp_exp=[1,1,1,1,1,1]", "not floats"},
        {"swiglu_clamp_exp", "swiglu_clamp_exp=[0.0,0.0,0.0,0.0,-1.0,0.0]", "-1 of layer 4"},
        {"swiglu_clamp_shexp", "swiglu_clamp_shexp=-0.5", "out of range"},
        {"attention.sliding_window", NULL, "is missing"},
        {"attention.sliding_window_pattern", NULL, "is missing"},
        {"rope.dimension_count", "rope.dimension_count=6", "half of 6"},
    };
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++)
        refused("step35", (struct edit){.no_key = lies[i].key, .keys = lies[i].instead},
                lies[i].key, lies[i].why);
    refused("step35", (struct edit){.tensor = "attn_gate.weight:EO"}, "blk.4.attn_gate.weight",
            "its shape is");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_tensor_counts),
                                       cmocka_unit_test(llama4),
                                       cmocka_unit_test(gates),
                                       cmocka_unit_test(cohere),
                                       cmocka_unit_test(others),
                                       cmocka_unit_test(maple),
                                       cmocka_unit_test(phi),
                                       cmocka_unit_test(small_gemma),
                                       cmocka_unit_test(arctic_and_step)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
