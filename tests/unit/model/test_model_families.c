/* Grouped-query families that differ in where norms are, in their routers and shared experts: what
 * each reads of a file, what it must have, and the lies that it refuses. */
#include "tests/unit/model/model_builder.h"

#include <math.h>

enum { FF_ADJUGATE = 32 };
enum norm { NO_NORM, HEAD_NORM, ROW_NORM };

static void windows(void) {
    key_u32("attention.sliding_window", 100);
}
static void adjugates(void) {
    key_u32("expert_chunk_feed_forward_length", FF_ADJUGATE);
    key_u32("experts_per_group", 3);
    key_f32("expert_group_scale", 0.05f);
}
static void scales(void) {
    key_f32("embedding_scale", 12);
    key_f32("residual_scale", 0.25f);
    key_f32("attention.scale", 0.015625f);
    key_f32("logit_scale", 8);
}

/* A family as its files are; the specs that they give. */
static const struct family {
    const char *arch;
    enum sl_rope_kind rope;
    enum norm norm;
    const char *ffn_norm;    /* NULL: ffn_norm.weight */
    const char *router_bias; /* NULL: none */
    uint32_t n_dense;        /* of LAYERS */
    uint32_t n_shared;       /* expert_shared_count */
    uint32_t ff_shared;      /* of the spec */
    bool counted;            /* the count gives the width, and so must be there */
    bool sigmoid, normalize; /* where the file says nothing of them */
    bool norm_optional, bias_optional;
    bool adjugate; /* a second set of experts */
    bool no_lead;  /* tensors say which layers are dense */
    void (*keys)(void);
} families[] = {
    {.arch = "glm4moe",
     .rope = SL_ROPE_KIND_NEOX,
     .norm = HEAD_NORM,
     .norm_optional = true,
     .ffn_norm = "post_attention_norm.weight",
     .router_bias = "exp_probs_b.bias",
     .n_dense = 1,
     .n_shared = 2,
     .ff_shared = 2 * FF_EXP,
     .counted = true,
     .sigmoid = true},
    {.arch = "minimax-m2",
     .rope = SL_ROPE_KIND_NEOX,
     .norm = ROW_NORM,
     .router_bias = "exp_probs_b.bias",
     .sigmoid = true,
     .normalize = true},
    {.arch = "hy_v3",
     .rope = SL_ROPE_KIND_NEOX,
     .norm = HEAD_NORM,
     .router_bias = "exp_probs_b",
     .n_dense = 1,
     .ff_shared = FF_EXP,
     .sigmoid = true,
     .bias_optional = true,
     .no_lead = true},
    {.arch = "mellum",
     .rope = SL_ROPE_KIND_NEOX,
     .norm = HEAD_NORM,
     .normalize = true,
     .keys = windows},
    {.arch = "granitemoe", .rope = SL_ROPE_KIND_NORM, .normalize = true, .keys = scales},
    {.arch = "exaone-moe",
     .rope = SL_ROPE_KIND_NEOX,
     .norm = HEAD_NORM,
     .router_bias = "exp_probs_b.bias",
     .n_dense = 1,
     .ff_shared = FF_EXP,
     .sigmoid = true,
     .bias_optional = true,
     .keys = windows},
    {.arch = "grovemoe",
     .rope = SL_ROPE_KIND_NEOX,
     .norm = HEAD_NORM,
     .normalize = true,
     .adjugate = true,
     .keys = adjugates},
    {.arch = "smallthinker",
     .rope = SL_ROPE_KIND_NEOX,
     .sigmoid = true,
     .normalize = true,
     .keys = windows},
    {.arch = "dots1",
     .rope = SL_ROPE_KIND_NEOX,
     .norm = HEAD_NORM,
     .router_bias = "exp_probs_b.bias",
     .n_dense = 2,
     .n_shared = 1,
     .ff_shared = FF_EXP,
     .counted = true,
     .sigmoid = true,
     .bias_optional = true},
    {.arch = "deepseek",
     .rope = SL_ROPE_KIND_NORM,
     .n_dense = 1,
     .n_shared = 2,
     .ff_shared = 2 * FF_EXP,
     .counted = true},
    {.arch = "bailingmoe",
     .rope = SL_ROPE_KIND_NORM,
     .n_shared = 2,
     .ff_shared = 2 * FF_EXP,
     .counted = true},
    {.arch = "bailingmoe2",
     .rope = SL_ROPE_KIND_NEOX,
     .norm = HEAD_NORM,
     .router_bias = "exp_probs_b.bias",
     .n_dense = 1,
     .n_shared = 2,
     .ff_shared = 2 * FF_EXP,
     .counted = true,
     .sigmoid = true,
     .bias_optional = true},
};
#define N_FAMILIES (sizeof families / sizeof *families)

/* Apart from its callers: gcc would compare the names that it knows, and warn. */
__attribute__((noinline)) static const struct family *find(const char *arch) {
    for (size_t i = 0; i < N_FAMILIES; i++)
        if (strcmp(families[i].arch, arch) == 0)
            return &families[i];
    fail_msg("no family %s", arch);
    return NULL;
}

static void family_layer(const struct family *f, int l) {
    const char *ffn_norm = f->ffn_norm ? f->ffn_norm : "ffn_norm.weight";
    uint64_t q = HEADS * DIM, kv = KV * DIM;
    bool row = f->norm == ROW_NORM;
    tensor(l, "attn_norm.weight", SL_DTYPE_F32, EMBD, 0, 0);
    tensor(l, "attn_q.weight", SL_DTYPE_F16, EMBD, q, 0);
    tensor(l, "attn_k.weight", SL_DTYPE_F16, EMBD, kv, 0);
    tensor(l, "attn_v.weight", SL_DTYPE_F16, EMBD, kv, 0);
    tensor(l, "attn_output.weight", SL_DTYPE_F16, q, EMBD, 0);
    if (f->norm) {
        tensor(l, "attn_q_norm.weight", SL_DTYPE_F32, row ? q : DIM, 0, 0);
        tensor(l, "attn_k_norm.weight", SL_DTYPE_F32, row ? kv : DIM, 0, 0);
    }
    tensor(l, ffn_norm, SL_DTYPE_F32, EMBD, 0, 0);
    if ((uint32_t)l < f->n_dense) {
        tensor(l, "ffn_gate.weight", SL_DTYPE_Q4_0, EMBD, FF, 0);
        tensor(l, "ffn_up.weight", SL_DTYPE_Q4_0, EMBD, FF, 0);
        tensor(l, "ffn_down.weight", SL_DTYPE_Q4_0, FF, EMBD, 0);
        return;
    }
    tensor(l, "ffn_gate_inp.weight", SL_DTYPE_F32, EMBD, EXPERTS, 0);
    if (f->router_bias)
        tensor(l, f->router_bias, SL_DTYPE_F32, EXPERTS, 0, 0);
    tensor(l, "ffn_gate_exps.weight", SL_DTYPE_Q8_0, EMBD, FF_EXP, EXPERTS);
    tensor(l, "ffn_up_exps.weight", SL_DTYPE_Q8_0, EMBD, FF_EXP, EXPERTS);
    tensor(l, "ffn_down_exps.weight", SL_DTYPE_Q5_1, FF_EXP, EMBD, EXPERTS);
    if (f->adjugate) {
        tensor(l, "ffn_gate_chexps.weight", SL_DTYPE_Q8_0, EMBD, FF_ADJUGATE, EXPERTS / 3);
        tensor(l, "ffn_up_chexps.weight", SL_DTYPE_Q8_0, EMBD, FF_ADJUGATE, EXPERTS / 3);
        tensor(l, "ffn_down_chexps.weight", SL_DTYPE_Q5_1, FF_ADJUGATE, EMBD, EXPERTS / 3);
    }
    if (!f->ff_shared)
        return;
    tensor(l, "ffn_gate_shexp.weight", SL_DTYPE_Q8_0, EMBD, f->ff_shared, 0);
    tensor(l, "ffn_up_shexp.weight", SL_DTYPE_Q8_0, EMBD, f->ff_shared, 0);
    tensor(l, "ffn_down_shexp.weight", SL_DTYPE_Q8_0, f->ff_shared, EMBD, 0);
}

static uint8_t *family_file(const struct family *f, const struct edit *edit, size_t *out_n) {
    static const struct edit none;
    struct gb b = gb_new(3);
    gb_now = &b;
    arch_now = f->arch;
    edit_now = edit ? edit : &none;
    gb_str(&b, "general.architecture", f->arch);
    key_u32("block_count", LAYERS);
    key_u32("context_length", 2048);
    key_u32("embedding_length", EMBD);
    key_u32("attention.head_count", HEADS);
    key_u32("attention.head_count_kv", KV);
    key_u32("attention.key_length", DIM);
    key_u32("attention.value_length", DIM);
    key_u32("rope.dimension_count", DIM / 2);
    key_f32("attention.layer_norm_rms_epsilon", 1e-5f);
    key_u32("feed_forward_length", f->n_dense ? FF : FF_EXP);
    key_u32("expert_count", EXPERTS);
    key_u32("expert_used_count", USED);
    key_u32("expert_feed_forward_length", FF_EXP);
    if (f->keys)
        f->keys();
    if (f->n_dense && !f->no_lead)
        key_u32("leading_dense_block_count", f->n_dense);
    if (f->n_shared)
        key_u32("expert_shared_count", f->n_shared);
    if (edit_now->keys)
        edit_now->keys(&b);
    tensor(-1, "token_embd.weight", SL_DTYPE_Q8_0, EMBD, VOCAB, 0);
    tensor(-1, "output_norm.weight", SL_DTYPE_F32, EMBD, 0, 0);
    tensor(-1, "output.weight", SL_DTYPE_Q8_0, EMBD, VOCAB, 0);
    for (int l = 0; l < LAYERS; l++)
        family_layer(f, l);
    if (edit_now->extra)
        gb_tensor(&b, edit_now->extra, SL_DTYPE_F32, 1, (uint64_t[]){64});
    return gb_finish(&b, out_n);
}

static enum sl_status try(const struct family *f, const struct edit *edit, struct sl_model **out_m,
                          uint8_t **out_file, struct sl_err *err) {
    size_t n;
    struct sl_gguf *g = NULL;
    *out_m = NULL;
    *out_file = family_file(f, edit, &n);
    enum sl_status status = sl_gguf_open_memory(*out_file, n, &g, err);
    return status == SL_OK ? sl_model_from_gguf(g, out_m, err) : status;
}

static struct sl_model *family_model(const struct family *f, const struct edit *edit,
                                     uint8_t **out_file) {
    struct sl_err err = {""};
    struct sl_model *m;
    if (try(f, edit, &m, out_file, &err) != SL_OK)
        fail_msg("%s: %s", f->arch, err.text);
    return m;
}

static void refused(const struct family *f, const struct edit *edit, enum sl_status want,
                    const char *word1, const char *word2) {
    struct sl_err err = {""};
    struct sl_model *m;
    uint8_t *file;
    enum sl_status status = try(f, edit, &m, &file, &err);
    if (status != want || !strstr(err.text, word1) || !strstr(err.text, word2))
        fail_msg("%s: status %d, want %d with '%s' and '%s': %s", f->arch, status, want, word1,
                 word2, err.text);
    assert_null(m);
    free(file);
}

static void specs(void **state) {
    (void)state;
    for (size_t i = 0; i < N_FAMILIES; i++) {
        const struct family *f = &families[i];
        uint8_t *file;
        struct sl_model *m = family_model(f, NULL, &file);
        assert_string_equal(sl_model_arch_name(m), f->arch);
        assert_int_equal(m->hp.rope[0].kind, f->rope);
        assert_int_equal(m->hp.rope[0].n_rot, DIM / 2);
        for (uint32_t l = 0; l < LAYERS; l++) {
            const struct sl_layer_spec *s = &m->layers[l].spec;
            assert_int_equal(s->ffn, l < f->n_dense ? SL_FFN_DENSE : SL_FFN_EXPERTS);
            assert_int_equal(s->attention.qk_norm, f->norm == ROW_NORM    ? SL_QK_NORM_ROW
                                                   : f->norm == HEAD_NORM ? SL_QK_NORM_HEAD
                                                                          : SL_QK_NORM_NONE);
            if (l < f->n_dense) {
                assert_int_equal(s->n_ff, FF);
                continue;
            }
            assert_int_equal(s->experts.n_ff, FF_EXP);
            assert_int_equal(s->experts.n_ff_shared, f->ff_shared);
            assert_int_equal(s->experts.router_kind,
                             f->sigmoid ? SL_ROUTER_KIND_SIGMOID : SL_ROUTER_KIND_SOFTMAX);
            assert_int_equal(s->experts.router_normalize, f->normalize);
            assert_int_equal(sl_experts_adjugate(&s->experts), f->adjugate ? EXPERTS / 3 : 0);
            assert_int_equal(s->experts.n_ff_adjugate, f->adjugate ? FF_ADJUGATE : 0);
            assert_int_equal(m->layers[l].t[SL_L_ROUTER_BIAS] != NULL, f->router_bias != NULL);
        }
        sl_model_close(&m);
        free(file);
    }
}

/* What a family may lack is not asked for; what it must have is named. */
static void needs(void **state) {
    (void)state;
    for (size_t i = 0; i < N_FAMILIES; i++) {
        const struct family *f = &families[i];
        const struct {
            const char *name;
            bool optional;
        } tensors[] = {{f->ffn_norm ? f->ffn_norm : "ffn_norm.weight", false},
                       {f->norm ? "attn_q_norm.weight" : NULL, f->norm_optional},
                       {f->router_bias, f->bias_optional},
                       {f->ff_shared ? "ffn_down_shexp.weight" : NULL, false},
                       {f->adjugate ? "ffn_gate_chexps.weight" : NULL, false},
                       {f->adjugate ? "ffn_up_chexps.weight" : NULL, false},
                       {f->adjugate ? "ffn_down_chexps.weight" : NULL, false}};
        for (size_t j = 0; j < sizeof tensors / sizeof *tensors; j++) {
            char name[64];
            if (!tensors[j].name)
                continue;
            snprintf(name, sizeof name, "blk.%d.%s", LAYERS - 1, tensors[j].name);
            struct edit without = {.no_tensor = name};
            if (!tensors[j].optional) {
                refused(f, &without, SL_ERR_CORRUPT, name, "is missing");
                continue;
            }
            uint8_t *file;
            struct sl_model *m = family_model(f, &without, &file);
            sl_model_close(&m);
            free(file);
        }
        struct edit more = {.extra = "blk.2.attn_sinks.weight"};
        refused(f, &more, SL_ERR_UNSUPPORTED, more.extra, "no such tensor here");
        static const char *const of_adjugate[] = {"expert_chunk_feed_forward_length",
                                                  "experts_per_group", "expert_group_scale"};
        for (size_t j = 0; f->adjugate && j < 3; j++)
            refused(f, &(struct edit){.no_key = of_adjugate[j]}, SL_ERR_CORRUPT, of_adjugate[j],
                    "is missing");
        if (f->counted)
            refused(f, &(struct edit){.no_key = "expert_shared_count"}, SL_ERR_CORRUPT,
                    "expert_shared_count", "is missing");
    }
}

/* One key as the file has it, in place of what it should be. */
static struct {
    char name[96];
    bool is_float;
    uint32_t value;
    float real;
} lie;

static void tell(struct gb *b) {
    if (lie.is_float)
        gb_float(b, lie.name, lie.real);
    else
        gb_uint(b, lie.name, lie.value);
}

static void lies(void **state) {
    (void)state;
    static const struct {
        const char *arch, *key;
        bool is_float;
        uint32_t value;
        float real;
        enum sl_status status;
        const char *word;
    } told[] = {
        {"glm4moe", "expert_shared_count", false, 0, 0, SL_ERR_CORRUPT, "out of range"},
        {"glm4moe", "expert_shared_count", false, 3, 0, SL_ERR_CORRUPT, "ffn_gate_shexp.weight"},
        {"glm4moe", "expert_shared_count", false, 1u << 20, 0, SL_ERR_CORRUPT, "out of range"},
        {"glm4moe", "leading_dense_block_count", false, 3, 0, SL_ERR_CORRUPT, "out of range"},
        {"glm4moe", "rope.dimension_count", false, DIM + 2, 0, SL_ERR_CORRUPT, "out of range"},
        {"glm4moe", "nextn_predict_layers", false, LAYERS, 0, SL_ERR_CORRUPT, "out of range"},
        {"glm4moe", "expert_gating_func", false, 9, 0, SL_ERR_UNSUPPORTED, "not known"},
        {"glm4moe", "rope.dimension_sections", false, 8, 0, SL_ERR_CORRUPT, "not three or four"},
        {"minimax-m2", "expert_count", false, EXPERTS + 1, 0, SL_ERR_CORRUPT,
         "ffn_gate_inp.weight"},
        {"minimax-m2", "nextn_predict_layers", false, 1, 0, SL_ERR_UNSUPPORTED, "not supported"},
        {"minimax-m2", "attention.head_count", false, 2 * HEADS, 0, SL_ERR_CORRUPT,
         "attn_q.weight"},
        {"bailingmoe", "leading_dense_block_count", false, 1, 0, SL_ERR_UNSUPPORTED,
         "not supported"},
        {"bailingmoe2", "expert_shared_feed_forward_length", false, 2 * FF_EXP, 0, SL_ERR_CORRUPT,
         "ffn_gate_shexp.weight"}, /* it is the width of each */
        {"bailingmoe2", "expert_shared_feed_forward_length", false, 1u << 20, 0, SL_ERR_CORRUPT,
         "wider than"},
        {"bailingmoe2", "expert_group_count", false, 5, 0, SL_ERR_CORRUPT, "out of range"},
        {"hy_v3", "leading_dense_block_count", false, 1, 0, SL_ERR_UNSUPPORTED, "not supported"},
        {"hy_v3", "expert_shared_feed_forward_length", false, 2 * FF_EXP, 0, SL_ERR_CORRUPT,
         "ffn_gate_shexp.weight"},
        {"mellum", "leading_dense_block_count", false, 1, 0, SL_ERR_UNSUPPORTED, "not supported"},
        {"granitemoe", "logit_scale", true, 0, 0, SL_ERR_CORRUPT, "out of range"},
        {"granitemoe", "logit_scale", true, 0, -1, SL_ERR_CORRUPT, "out of range"},
        {"granitemoe", "residual_scale", true, 0, 1e9f, SL_ERR_CORRUPT, "out of range"},
        {"granitemoe", "embedding_scale", true, 0, NAN, SL_ERR_CORRUPT, "not a finite"},
        {"granitemoe", "expert_shared_feed_forward_length", false, 1u << 21, 0, SL_ERR_CORRUPT,
         "out of range"},
        {"exaone-moe", "attention.sliding_window_pattern", true, 0, 2, SL_ERR_CORRUPT,
         "not an integer"},
        {"exaone-moe", "expert_shared_feed_forward_length", false, 2 * FF_EXP, 0, SL_ERR_CORRUPT,
         "ffn_gate_shexp.weight"},
        {"grovemoe", "experts_per_group", false, 4, 0, SL_ERR_CORRUPT, "does not divide"},
        {"grovemoe", "experts_per_group", false, 0, 0, SL_ERR_CORRUPT, "out of range"},
        {"grovemoe", "experts_per_group", false, 2, 0, SL_ERR_CORRUPT, "ffn_gate_chexps.weight"},
        {"grovemoe", "expert_chunk_feed_forward_length", false, 0, 0, SL_ERR_CORRUPT,
         "out of range"},
        {"grovemoe", "expert_chunk_feed_forward_length", false, 64, 0, SL_ERR_CORRUPT,
         "ffn_gate_chexps.weight"},
        {"grovemoe", "expert_group_scale", true, 0, NAN, SL_ERR_CORRUPT, "not a finite"},
        {"grovemoe", "expert_gating_func", false, 3, 0, SL_ERR_UNSUPPORTED, "adjugate"},
        {"mellum", "experts_per_group", false, 2, 0, SL_ERR_UNSUPPORTED, "unknown"},
        {"smallthinker", "leading_dense_block_count", false, 1, 0, SL_ERR_UNSUPPORTED,
         "not supported"},
        {"dots1", "residual_scale", true, 0, 0.5f, SL_ERR_UNSUPPORTED, "not supported"},
        {"mellum", "embedding_scale", true, 0, 12, SL_ERR_UNSUPPORTED, "not supported"},
        {"glm4moe", "full_attention_interval", false, 2, 0, SL_ERR_UNSUPPORTED, "unknown"},
    };
    for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
        snprintf(lie.name, sizeof lie.name, "%s.%s", told[i].arch, told[i].key);
        lie.is_float = told[i].is_float;
        lie.value = told[i].value;
        lie.real = told[i].real;
        struct edit e = {.keys = tell, .no_key = told[i].key};
        const char *named = told[i].status == SL_ERR_CORRUPT && strstr(told[i].word, "weight")
                                ? told[i].word
                                : told[i].key;
        refused(find(told[i].arch), &e, told[i].status, named,
                strstr(told[i].word, "weight") ? "its shape is" : told[i].word);
    }
}

/* A sigmoid or a softmax, as the file says; the weights' norm and scale. */
static void add_router(struct gb *b) {
    char key[96];
    snprintf(key, sizeof key, "%s.expert_gating_func", arch_now);
    gb_uint(b, key, find(arch_now)->sigmoid ? 1 : 2);
    snprintf(key, sizeof key, "%s.expert_weights_norm", arch_now);
    gb_bool(b, key, !find(arch_now)->normalize);
    snprintf(key, sizeof key, "%s.expert_weights_scale", arch_now);
    gb_float(b, key, 2.5f);
}

static void routers_as_stated(void **state) {
    (void)state;
    for (size_t i = 0; i < N_FAMILIES; i++) {
        const struct family *f = &families[i];
        uint8_t *file;
        struct edit e = {.keys = add_router};
        struct sl_model *m = family_model(f, &e, &file);
        const struct sl_experts_spec *x = &m->layers[LAYERS - 1].spec.experts;
        assert_int_equal(x->router_kind,
                         f->sigmoid ? SL_ROUTER_KIND_SOFTMAX : SL_ROUTER_KIND_SIGMOID);
        assert_int_equal(x->router_normalize, !f->normalize);
        assert_true(x->router_scale == 2.5f);
        sl_model_close(&m);
        free(file);
    }
}

/* Layers with a window, and what they and the others rotate. */
static bool pattern[LAYERS];
static uint32_t n_pattern, n_nextn;
static void add_pattern(struct gb *b) {
    char key[96];
    if (n_pattern) {
        snprintf(key, sizeof key, "%s.attention.sliding_window_pattern", arch_now);
        gb_array(b, key, SL_GGUF_BOOL, n_pattern, pattern, n_pattern);
    }
    if (n_nextn) {
        snprintf(key, sizeof key, "%s.nextn_predict_layers", arch_now);
        gb_uint(b, key, n_nextn);
    }
    if (strcmp(arch_now, "mellum") == 0) {
        gb_str(b, "mellum.rope.scaling.type", "yarn");
        gb_float(b, "mellum.rope.scaling.factor", 16);
    }
}

static void windows_and_rotations(void **state) {
    (void)state;
    struct edit e = {.keys = add_pattern};
    for (uint32_t n = 0; n <= LAYERS; n++) {
        bool exaone =
            n != 1; /* with and without a pattern, with the one that drafts tokens left out */
        const struct family *f = find(exaone ? "exaone-moe" : "mellum");
        uint8_t *file;
        n_nextn = exaone && n == LAYERS - 1;
        n_pattern = n == 1 ? LAYERS : n;
        for (uint32_t l = 0; l < LAYERS; l++)
            pattern[l] = l == 1;
        struct sl_model *m = family_model(f, &e, &file);
        assert_int_equal(m->hp.n_layer, LAYERS - n_nextn);
        assert_int_equal(m->hp.n_rope, exaone ? 1 : 2);
        if (!exaone) /* in windows without YaRN */
            assert_true(m->hp.rope[0].yarn_factor == 16 && m->hp.rope[1].yarn_factor == 0);
        for (uint32_t l = 0; l < m->hp.n_layer; l++) {
            const struct sl_attention_spec *a = &m->layers[l].spec.attention;
            bool windowed = n_pattern ? l == 1 : l % 4 < 3;
            assert_int_equal(a->window, windowed ? 100 : 0);
            assert_int_equal(a->no_rope, exaone && !windowed);
            assert_int_equal(a->rope, !exaone && windowed);
        }
        sl_model_close(&m);
        free(file);
    }
    n_pattern = LAYERS - 1; /* neither of all layers nor of those that run */
    n_nextn = 0;
    refused(find("exaone-moe"), &e, SL_ERR_CORRUPT, "sliding_window_pattern",
            "2 values for 3 layers");
    refused(find("exaone-moe"), &(struct edit){.no_key = "attention.sliding_window"},
            SL_ERR_CORRUPT, "attention.sliding_window", "is missing");
}

/* The first of four layers sees all and rotates nothing; without windows all rotate. */
static void routers_first(void **state) {
    (void)state;
    for (int windowed = 0; windowed < 2; windowed++) {
        struct edit e = {.no_key = windowed ? NULL : "attention.sliding_window"};
        uint8_t *file;
        struct sl_model *m = family_model(find("smallthinker"), &e, &file);
        for (uint32_t l = 0; l < LAYERS; l++) {
            const struct sl_layer_spec *s = &m->layers[l].spec;
            assert_true(s->experts.router_first);
            assert_int_equal(s->experts.activation, SL_EXPERT_REGLU);
            assert_int_equal(s->attention.window, windowed && l ? 100 : 0);
            assert_int_equal(s->attention.no_rope, windowed && !l);
        }
        sl_model_close(&m);
        free(file);
    }
}

static void scaled(void **state) {
    (void)state;
    uint8_t *file;
    struct sl_model *m = family_model(find("granitemoe"), NULL, &file);
    assert_true(m->hp.embd_scale == 12 && m->hp.logit_scale == 0.125f);
    for (uint32_t l = 0; l < LAYERS; l++) {
        const struct sl_layer_spec *s = &m->layers[l].spec;
        assert_true(s->attention.scale == 0.015625f && s->attention.out_scale == 0.25f);
        assert_true(s->experts.sum_scale == 0.25f && s->experts.n_ff_shared == 0);
    }
    sl_model_close(&m);
    free(file);
    refused(find("granitemoe"), &(struct edit){.no_key = "logit_scale"}, SL_ERR_CORRUPT,
            "logit_scale", "is missing");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(specs),
                                       cmocka_unit_test(needs),
                                       cmocka_unit_test(lies),
                                       cmocka_unit_test(routers_as_stated),
                                       cmocka_unit_test(windows_and_rotations),
                                       cmocka_unit_test(scaled),
                                       cmocka_unit_test(routers_first)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
