/* Models from small GGUFs built in memory: well formed, or with one thing edited. */
#ifndef TESTS_UNIT_MODEL_MODEL_BUILDER_H
#define TESTS_UNIT_MODEL_MODEL_BUILDER_H

#include "model/arch/model.h"
#include "tests/support/gguf_builder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

enum { EMBD = 64, HEADS = 4, KV = 2, DIM = 24, FF = 96, FF_EXP = 32, FF_SHARED = 128, EXPERTS = 6 };
enum { USED = 2, VOCAB = 40, LAYERS = 3 };

/* What differs from a well-formed file. */
struct edit {
    const char *no_key, *no_tensor;
    void (*keys)(struct gb *b);   /* more keys */
    const char *tensor, *tensor2; /* these get another shape or type ... */
    uint32_t n_dims, dtype;
    uint64_t ne[4];
    const char *extra; /* ... and this one is added, F32 [64] */
    bool tied;
    uint32_t expert_dtype;
    bool fused;              /* gate and up of experts are one tensor */
    uint32_t n_dense;        /* first layers without experts; feed_forward_length is then theirs */
    const uint32_t *experts; /* [LAYERS] of each layer, in its tensors; NULL: EXPERTS */
};

static const char *arch_now; /* for the helpers below */
static struct gb *gb_now;
static const struct edit *edit_now;

static inline void key_u32(const char *key, uint32_t v) {
    char name[96];
    if (edit_now->no_key && strcmp(edit_now->no_key, key) == 0)
        return;
    snprintf(name, sizeof name, "%s.%s", arch_now, key);
    gb_uint(gb_now, name, v);
}

static inline void key_f32(const char *key, float v) {
    char name[96];
    if (edit_now->no_key && strcmp(edit_now->no_key, key) == 0)
        return;
    snprintf(name, sizeof name, "%s.%s", arch_now, key);
    gb_float(gb_now, name, v);
}

static inline void tensor(int layer, const char *name, uint32_t dtype, uint64_t a, uint64_t b,
                          uint64_t c) {
    char full[80];
    const struct edit *e = edit_now;
    uint64_t ne[3] = {a, b, c};
    if (layer < 0)
        snprintf(full, sizeof full, "%s", name);
    else
        snprintf(full, sizeof full, "blk.%d.%s", layer, name);
    if (e->no_tensor && strcmp(e->no_tensor, full) == 0)
        return;
    if ((e->tensor && strcmp(e->tensor, full) == 0) ||
        (e->tensor2 && strcmp(e->tensor2, full) == 0))
        gb_tensor(gb_now, full, e->dtype, e->n_dims, e->ne);
    else
        gb_tensor(gb_now, full, dtype, c ? 3 : b ? 2 : 1, ne);
}

static inline void layer(int l, bool moe) {
    uint32_t x = edit_now->expert_dtype ? edit_now->expert_dtype : SL_DTYPE_Q8_0;
    bool qwen3 = strncmp(arch_now, "qwen3", 5) == 0, olmoe = strcmp(arch_now, "olmoe") == 0;
    bool qwen2moe = strcmp(arch_now, "qwen2moe") == 0, hunyuan = strstr(arch_now, "hunyuan");
    bool gemma4 = strcmp(arch_now, "gemma4") == 0;
    uint32_t n = edit_now->experts ? edit_now->experts[l] : EXPERTS;
    moe = moe && n;
    tensor(l, "attn_norm.weight", SL_DTYPE_F32, EMBD, 0, 0);
    tensor(l, "attn_q.weight", SL_DTYPE_F16, EMBD, HEADS * DIM, 0);
    tensor(l, "attn_k.weight", SL_DTYPE_F16, EMBD, KV * DIM, 0);
    tensor(l, "attn_v.weight", SL_DTYPE_F16, EMBD, KV * DIM, 0);
    tensor(l, "attn_output.weight", SL_DTYPE_F16, HEADS * DIM, EMBD, 0);
    if (qwen3 || olmoe || hunyuan || gemma4) {
        tensor(l, "attn_q_norm.weight", SL_DTYPE_F32, olmoe ? HEADS * DIM : DIM, 0, 0);
        tensor(l, "attn_k_norm.weight", SL_DTYPE_F32, olmoe ? KV * DIM : DIM, 0, 0);
    }
    if (strncmp(arch_now, "qwen2", 5) == 0) {
        tensor(l, "attn_q.bias", SL_DTYPE_F32, HEADS * DIM, 0, 0);
        tensor(l, "attn_k.bias", SL_DTYPE_F32, KV * DIM, 0, 0);
        tensor(l, "attn_v.bias", SL_DTYPE_F32, KV * DIM, 0, 0);
    }
    bool gpt_oss = strcmp(arch_now, "gpt-oss") == 0;
    if (gpt_oss) {
        tensor(l, "attn_output.bias", SL_DTYPE_F32, EMBD, 0, 0);
        tensor(l, "attn_sinks.weight", SL_DTYPE_F32, HEADS, 0, 0);
        tensor(l, "ffn_gate_inp.bias", SL_DTYPE_F32, n, 0, 0);
        tensor(l, "ffn_gate_exps.bias", SL_DTYPE_F32, FF_EXP, n, 0);
        tensor(l, "ffn_up_exps.bias", SL_DTYPE_F32, FF_EXP, n, 0);
        tensor(l, "ffn_down_exps.bias", SL_DTYPE_F32, EMBD, n, 0);
    }
    tensor(l, gpt_oss ? "post_attention_norm.weight" : "ffn_norm.weight", SL_DTYPE_F32, EMBD, 0, 0);
    static const char *const gemma4_norms[] = {
        "post_attention_norm.weight", "post_ffw_norm.weight",  "post_ffw_norm_1.weight",
        "post_ffw_norm_2.weight",     "pre_ffw_norm_2.weight", "ffn_gate_inp.scale"};
    for (size_t i = 0; gemma4 && i < sizeof gemma4_norms / sizeof *gemma4_norms; i++)
        tensor(l, gemma4_norms[i], SL_DTYPE_F32, EMBD, 0, 0);
    if (gemma4) {
        tensor(l, "layer_output_scale.weight", SL_DTYPE_F32, 1, 0, 0);
        tensor(l, "ffn_down_exps.scale", SL_DTYPE_F32, n, 0, 0);
        tensor(l, "ffn_gate.weight", SL_DTYPE_Q4_0, EMBD, FF, 0);
        tensor(l, "ffn_up.weight", SL_DTYPE_Q4_0, EMBD, FF, 0);
        tensor(l, "ffn_down.weight", SL_DTYPE_Q4_0, FF, EMBD, 0);
    }
    if (!moe) {
        tensor(l, "ffn_gate.weight", SL_DTYPE_Q4_0, EMBD, FF, 0);
        tensor(l, "ffn_up.weight", SL_DTYPE_Q4_0, EMBD, FF, 0);
        tensor(l, "ffn_down.weight", SL_DTYPE_Q4_0, FF, EMBD, 0);
        return;
    }
    tensor(l, "ffn_gate_inp.weight", SL_DTYPE_F32, EMBD, n, 0);
    if (edit_now->fused) {
        tensor(l, "ffn_gate_up_exps.weight", x, EMBD, 2 * FF_EXP, n);
    } else {
        tensor(l, "ffn_gate_exps.weight", x, EMBD, FF_EXP, n);
        tensor(l, "ffn_up_exps.weight", x, EMBD, FF_EXP, n);
    }
    tensor(l, "ffn_down_exps.weight", SL_DTYPE_Q5_1, FF_EXP, EMBD, n);
    if (qwen2moe)
        tensor(l, "ffn_gate_inp_shexp.weight", SL_DTYPE_F32, EMBD, 0, 0);
    if (qwen2moe || hunyuan || strstr(arch_now, "ernie")) {
        tensor(l, "ffn_gate_shexp.weight", SL_DTYPE_Q8_0, EMBD, FF_SHARED, 0);
        tensor(l, "ffn_up_shexp.weight", SL_DTYPE_Q8_0, EMBD, FF_SHARED, 0);
        tensor(l, "ffn_down_shexp.weight", SL_DTYPE_Q8_0, FF_SHARED, EMBD, 0);
    }
}

static inline bool some_dense(void) {
    for (uint32_t l = 0; edit_now->experts && l < LAYERS; l++)
        if (!edit_now->experts[l])
            return true;
    return false;
}

/* arch "mixtral" is llama with experts. */
static inline uint8_t *build(const char *arch, const struct edit *edit, size_t *out_n) {
    static const struct edit none;
    struct gb b = gb_new(3);
    bool mixtral = strcmp(arch, "mixtral") == 0;
    bool moe = mixtral || strcmp(arch, "gpt-oss") == 0 || strcmp(arch, "gemma4") == 0 ||
               strstr(arch, "moe");
    gb_now = &b;
    arch_now = mixtral ? "llama" : arch;
    edit_now = edit ? edit : &none;
    gb_str(&b, "general.architecture", arch_now);
    key_u32("block_count", LAYERS);
    key_u32("context_length", 2048);
    key_u32("embedding_length", EMBD);
    key_u32("attention.head_count", HEADS);
    key_u32("attention.head_count_kv", KV);
    key_u32("attention.key_length", DIM);
    key_u32("attention.value_length", DIM);
    key_f32("attention.layer_norm_rms_epsilon", 1e-6f);
    key_f32("rope.freq_base", 1e6f);
    key_u32("feed_forward_length",
            moe && !edit_now->n_dense && !some_dense() && strcmp(arch, "gemma4") != 0 ? FF_EXP
                                                                                      : FF);
    if (moe) {
        key_u32("expert_count", EXPERTS);
        key_u32("expert_used_count", USED);
    }
    if (moe && strcmp(arch_now, "llama") != 0 && strcmp(arch_now, "olmoe") != 0)
        key_u32("expert_feed_forward_length", FF_EXP);
    if (moe && strstr("qwen2moe ernie4_5-moe hunyuan-moe", arch_now))
        key_u32("expert_shared_feed_forward_length", FF_SHARED);
    if (edit_now->keys)
        edit_now->keys(&b);
    tensor(-1, "token_embd.weight", SL_DTYPE_Q8_0, EMBD, VOCAB, 0);
    tensor(-1, "output_norm.weight", SL_DTYPE_F32, EMBD, 0, 0);
    if (!edit_now->tied)
        tensor(-1, "output.weight", SL_DTYPE_Q8_0, EMBD, VOCAB, 0);
    for (int l = 0; l < LAYERS; l++)
        layer(l, moe && l >= (int)edit_now->n_dense);
    if (edit_now->extra)
        gb_tensor(&b, edit_now->extra, SL_DTYPE_F32, 1, (uint64_t[]){64});
    return gb_finish(&b, out_n);
}

static inline struct sl_model *open_model(const char *arch, const struct edit *edit,
                                          uint8_t **out_file) {
    size_t n;
    struct sl_gguf *g = NULL;
    struct sl_model *m = NULL;
    struct sl_err err = {""};
    *out_file = build(arch, edit, &n);
    if (sl_gguf_open_memory(*out_file, n, &g, &err) != SL_OK ||
        sl_model_from_gguf(g, &m, &err) != SL_OK)
        fail_msg("%s: %s", arch, err.text);
    return m;
}

static inline void expect_refused(const char *arch, const struct edit *edit, enum sl_status want,
                                  const char *word1, const char *word2) {
    size_t n;
    struct sl_gguf *g = NULL;
    struct sl_model *m = NULL;
    struct sl_err err = {""};
    uint8_t *file = build(arch, edit, &n);
    if (sl_gguf_open_memory(file, n, &g, &err) != SL_OK)
        fail_msg("the container was refused: %s", err.text);
    enum sl_status status = sl_model_from_gguf(g, &m, &err);
    if (status != want || !strstr(err.text, word1) || !strstr(err.text, word2))
        fail_msg("status %d, want %d with '%s' and '%s': %s", status, want, word1, word2, err.text);
    assert_null(m);
    free(file);
}

#endif
