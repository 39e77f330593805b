/* Reads "<arch>.*": the keys, their defaults and their meaning as the converters of Hugging Face
 * checkpoints write them (ggml docs/gguf.md, "Standardized key-value pairs"). */
#include "model/arch/arch.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Limits far above any model, so that later products fit 32 bits and buffers stay sane. */
#define MAX_WIDTH    (1u << 20) /* n_embd, n_ff, heads * head_dim */
#define MAX_HEAD_DIM 4096u
#define MAX_CTX      (1u << 30)

struct keys {
    const struct sl_gguf *g;
    const char *arch;
    struct sl_err *err;
    uint32_t n_layer; /* 0 until known */
    char name[128];   /* of the key last asked for */
};

static const char *full(struct keys *k, const char *key) {
    snprintf(k->name, sizeof k->name, "%s.%s", k->arch, key);
    return k->name;
}

static const struct sl_gguf_kv *find(struct keys *k, const char *key) {
    return sl_gguf_kv_find(k->g, full(k, key));
}

SL_PRINTF(4, 5)
static enum sl_status bad(struct keys *k, enum sl_status status, const char *key, const char *fmt,
                          ...) {
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const struct sl_gguf_kv *kv = find(k, key);
    if (kv)
        return sl_gguf_kv_fail(k->g, kv, status, k->err, "%s", text);
    return sl_fail(k->err, status, "%.160s: key '%s': %s", sl_gguf_file_path(k->g, 0), full(k, key),
                   text);
}

/* An integer in [min, max]; a per-layer array is taken when all layers agree. Absent: *out is kept;
 * needed tells whether that is an error. */
static enum sl_status get_u32(struct keys *k, const char *key, bool needed, uint32_t min,
                              uint32_t max, uint32_t *out) {
    const struct sl_gguf_kv *kv = find(k, key);
    if (!kv && needed)
        return sl_fail(k->err, SL_ERR_CORRUPT, "%.160s: key '%s' is missing",
                       sl_gguf_file_path(k->g, 0), k->name);
    if (!kv)
        return SL_OK;
    uint32_t v;
    if (kv->type == SL_GGUF_ARRAY) {
        if (kv->elem_type == SL_GGUF_STRING || kv->elem_type == SL_GGUF_F32 ||
            kv->elem_type == SL_GGUF_F64 || kv->elem_type == SL_GGUF_BOOL)
            return bad(k, SL_ERR_CORRUPT, key, "not integers");
        if (kv->n_elems == 0 || (k->n_layer && kv->n_elems != k->n_layer))
            return bad(k, SL_ERR_CORRUPT, key, "%" PRIu64 " values for %" PRIu32 " layers",
                       kv->n_elems, k->n_layer);
        int64_t first = sl_gguf_array_i64(kv, 0);
        for (uint64_t i = 1; i < kv->n_elems; i++)
            if (sl_gguf_array_i64(kv, i) != first)
                return bad(k, SL_ERR_UNSUPPORTED, key,
                           "differs between layers (%" PRId64 " in layer 0, %" PRId64
                           " in layer %" PRIu64 "), which is not supported",
                           first, sl_gguf_array_i64(kv, i), i);
        if (first < 0 || first > UINT32_MAX)
            return bad(k, SL_ERR_CORRUPT, key, "%" PRId64 " is out of range", first);
        v = (uint32_t)first;
    } else {
        enum sl_status st = sl_gguf_get_u32(k->g, k->name, &v, k->err);
        if (st != SL_OK)
            return st;
    }
    if (v < min || v > max)
        return bad(k, SL_ERR_CORRUPT, key,
                   "%" PRIu32 " is out of range, %" PRIu32 " to %" PRIu32 " are allowed", v, min,
                   max);
    *out = v;
    return SL_OK;
}

static enum sl_status get_f32(struct keys *k, const char *key, float min, float max, float *out) {
    float v;
    enum sl_status st = sl_gguf_get_f32(k->g, full(k, key), &v, k->err);
    if (st == SL_AGAIN)
        return SL_OK;
    if (st != SL_OK)
        return st;
    if (!(v >= min && v <= max))
        return bad(k, SL_ERR_CORRUPT, key, "%g is out of range, %g to %g are allowed", (double)v,
                   (double)min, (double)max);
    *out = v;
    return SL_OK;
}

/* Keys that every architecture here may carry. */
enum key_use {
    KEY_READ,    /* read below */
    KEY_IGNORED, /* says nothing that changes the answer, or is implied by the tensors */
    KEY_NEUTRAL, /* would change the answer in a way that is not implemented: only 0, 1 or false,
                    which mean "none" in these, pass */
};
static const struct {
    const char *key;
    enum key_use use;
} known[] = {
    {"block_count", KEY_READ},
    {"context_length", KEY_READ},
    {"embedding_length", KEY_READ},
    {"feed_forward_length", KEY_READ},
    {"expert_feed_forward_length", KEY_READ},
    {"expert_shared_feed_forward_length", KEY_READ},
    {"expert_count", KEY_READ},
    {"expert_used_count", KEY_READ},
    {"expert_weights_norm", KEY_READ},
    {"expert_weights_scale", KEY_READ},
    {"expert_gating_func", KEY_READ},
    {"attention.head_count", KEY_READ},
    {"attention.head_count_kv", KEY_READ},
    {"attention.key_length", KEY_READ},
    {"attention.value_length", KEY_READ},
    {"attention.layer_norm_rms_epsilon", KEY_READ},
    {"attention.scale", KEY_READ},
    {"attention.sliding_window", KEY_READ},
    {"rope.dimension_count", KEY_READ},
    {"rope.freq_base", KEY_READ},
    {"rope.scale_linear", KEY_READ},
    {"rope.scaling.type", KEY_READ},
    {"rope.scaling.factor", KEY_READ},
    {"rope.scaling.attn_factor", KEY_READ},
    {"rope.scaling.original_context_length", KEY_READ},
    {"rope.scaling.yarn_log_multiplier", KEY_READ},
    {"rope.scaling.yarn_ext_factor", KEY_READ},
    {"rope.scaling.yarn_attn_factor", KEY_READ},
    {"rope.scaling.yarn_beta_fast", KEY_READ},
    {"rope.scaling.yarn_beta_slow", KEY_READ},
    {"vocab_size", KEY_IGNORED},
    {"tensor_data_layout", KEY_IGNORED},
    {"rope.scaling.finetuned", KEY_IGNORED},
    {"attention.layer_norm_epsilon", KEY_IGNORED},
    {"expert_shared_count", KEY_IGNORED},
    {"pooling_type", KEY_IGNORED},
    {"attention.causal", KEY_IGNORED}, /* checked below: false is refused */
    {"use_parallel_residual", KEY_NEUTRAL},
    {"leading_dense_block_count", KEY_NEUTRAL},
    {"moe_every_n_layers", KEY_NEUTRAL},
    {"interleave_moe_layer_step", KEY_NEUTRAL},
    {"nextn_predict_layers", KEY_NEUTRAL},
    {"expert_group_count", KEY_NEUTRAL},
    {"expert_group_used_count", KEY_NEUTRAL},
    {"logit_scale", KEY_NEUTRAL},
    {"embedding_scale", KEY_NEUTRAL},
    {"residual_scale", KEY_NEUTRAL},
    {"attn_logit_softcapping", KEY_NEUTRAL},
    {"final_logit_softcapping", KEY_NEUTRAL},
    {"router_logit_softcapping", KEY_NEUTRAL},
    {"attention.max_alibi_bias", KEY_NEUTRAL},
    {"attention.clamp_kqv", KEY_NEUTRAL},
};

/* These keys mean "none" by 0 alone: one layer is not none. */
static bool one_is_neutral(const char *key) {
    static const char *const zero_only[] = {
        "leading_dense_block_count", "nextn_predict_layers",     "attn_logit_softcapping",
        "final_logit_softcapping",   "router_logit_softcapping", "attention.max_alibi_bias",
        "attention.clamp_kqv",       "use_parallel_residual",
    };
    for (size_t i = 0; i < sizeof zero_only / sizeof zero_only[0]; i++)
        if (strcmp(key, zero_only[i]) == 0)
            return false;
    return true;
}

static enum sl_status refuse_unknown(struct keys *k) {
    size_t prefix = strlen(k->arch);
    for (uint64_t i = 0; i < sl_gguf_n_kv(k->g); i++) {
        const struct sl_gguf_kv *kv = sl_gguf_kv_at(k->g, i);
        if (kv->key.len <= prefix || memcmp(kv->key.ptr, k->arch, prefix) != 0 ||
            kv->key.ptr[prefix] != '.')
            continue;
        const char *key = kv->key.ptr + prefix + 1;
        size_t len = kv->key.len - prefix - 1, j = 0, n = sizeof known / sizeof known[0];
        while (j < n && (strlen(known[j].key) != len || memcmp(known[j].key, key, len) != 0))
            j++;
        if (j == n)
            return sl_gguf_kv_fail(k->g, kv, SL_ERR_UNSUPPORTED, k->err,
                                   "unknown hyperparameter of architecture '%s'", k->arch);
        if (known[j].use != KEY_NEUTRAL)
            continue;
        double v = sl_gguf_array_f64(kv, 0);
        bool scalar = kv->type != SL_GGUF_ARRAY && kv->type != SL_GGUF_STRING;
        if (!scalar || (v != 0.0 && !(v == 1.0 && one_is_neutral(known[j].key))))
            return sl_gguf_kv_fail(k->g, kv, SL_ERR_UNSUPPORTED, k->err,
                                   "a value of %g is not supported for architecture '%s'",
                                   scalar ? v : NAN, k->arch);
    }
    return SL_OK;
}

#define TRY(call)                                                                                  \
    do {                                                                                           \
        enum sl_status st_ = (call);                                                               \
        if (st_ != SL_OK)                                                                          \
            return st_;                                                                            \
    } while (0)

static enum sl_status read_attention(struct keys *k, struct sl_hparams *hp) {
    TRY(get_u32(k, "attention.head_count", true, 1, MAX_WIDTH, &hp->n_head));
    hp->n_head_kv = hp->n_head;
    TRY(get_u32(k, "attention.head_count_kv", false, 1, hp->n_head, &hp->n_head_kv));
    if (hp->n_head % hp->n_head_kv != 0)
        return bad(k, SL_ERR_CORRUPT, "attention.head_count_kv",
                   "%" PRIu32 " does not divide the %" PRIu32 " heads", hp->n_head_kv, hp->n_head);
    TRY(get_u32(k, "attention.key_length", false, 1, MAX_HEAD_DIM, &hp->head_dim_k));
    TRY(get_u32(k, "attention.value_length", false, 1, MAX_HEAD_DIM, &hp->head_dim_v));
    if (hp->head_dim_k == 0 || hp->head_dim_v == 0) {
        uint32_t dim = hp->n_embd / hp->n_head;
        if (hp->n_embd % hp->n_head != 0 || dim > MAX_HEAD_DIM)
            return bad(k, SL_ERR_CORRUPT, "attention.head_count",
                       "%" PRIu32 " heads do not divide the embedding of %" PRIu32
                       ", and there is no attention.key_length",
                       hp->n_head, hp->n_embd);
        if (hp->head_dim_k == 0)
            hp->head_dim_k = dim;
        if (hp->head_dim_v == 0)
            hp->head_dim_v = dim;
    }
    if ((uint64_t)hp->n_head * hp->head_dim_k > MAX_WIDTH ||
        (uint64_t)hp->n_head * hp->head_dim_v > MAX_WIDTH)
        return bad(k, SL_ERR_CORRUPT, "attention.head_count",
                   "%" PRIu32 " heads of %" PRIu32 " and %" PRIu32 " are wider than %u", hp->n_head,
                   hp->head_dim_k, hp->head_dim_v, MAX_WIDTH);
    hp->attn_scale = 0;
    TRY(get_f32(k, "attention.scale", 0.0f, 1e6f, &hp->attn_scale));
    if (hp->attn_scale == 0)
        hp->attn_scale = 1.0f / sqrtf((float)hp->head_dim_k);
    TRY(get_u32(k, "attention.sliding_window", false, 0, UINT32_MAX, &hp->window));
    if (hp->window >= hp->n_ctx_train)
        hp->window = 0; /* never reached */
    bool causal = true;
    enum sl_status st = sl_gguf_get_bool(k->g, full(k, "attention.causal"), &causal, k->err);
    if (st != SL_OK && st != SL_AGAIN)
        return st;
    if (!causal)
        return bad(k, SL_ERR_UNSUPPORTED, "attention.causal",
                   "attention that is not causal is not supported");
    return SL_OK;
}

static enum sl_status read_rope(struct keys *k, struct sl_hparams *hp) {
    hp->n_rot = hp->head_dim_k;
    TRY(get_u32(k, "rope.dimension_count", false, 2, hp->head_dim_k, &hp->n_rot));
    if (hp->n_rot % 2 != 0)
        return bad(k, SL_ERR_CORRUPT, "rope.dimension_count", "%" PRIu32 " is odd", hp->n_rot);
    hp->rope_base = 10000.0f;
    TRY(get_f32(k, "rope.freq_base", 1.001f, 1e30f, &hp->rope_base));
    float factor = 0;
    TRY(get_f32(k, "rope.scale_linear", 0.0f, 1e6f, &factor)); /* the older name */
    TRY(get_f32(k, "rope.scaling.factor", 0.0f, 1e6f, &factor));
    if (factor == 0)
        factor = 1;
    hp->rope_scale = 1;
    hp->yarn_ctx_orig = hp->n_ctx_train;
    hp->yarn_ext = 1;
    hp->yarn_attn = 1;
    hp->yarn_beta_fast = 32;
    hp->yarn_beta_slow = 1;
    float attn = 1, log_mul = 0, amplitude = 0;
    TRY(get_u32(k, "rope.scaling.original_context_length", false, 1, MAX_CTX, &hp->yarn_ctx_orig));
    TRY(get_f32(k, "rope.scaling.yarn_ext_factor", 0.0f, 1.0f, &hp->yarn_ext));
    TRY(get_f32(k, "rope.scaling.yarn_attn_factor", 0.0f, 1e3f, &amplitude));
    TRY(get_f32(k, "rope.scaling.attn_factor", 0.0f, 1e3f, &attn));
    TRY(get_f32(k, "rope.scaling.yarn_beta_fast", 0.0f, 1e6f, &hp->yarn_beta_fast));
    TRY(get_f32(k, "rope.scaling.yarn_beta_slow", 0.0f, 1e6f, &hp->yarn_beta_slow));
    TRY(get_f32(k, "rope.scaling.yarn_log_multiplier", 0.0f, 1e3f, &log_mul));
    struct sl_str type = {"linear", 6};
    enum sl_status st = sl_gguf_get_str(k->g, full(k, "rope.scaling.type"), &type, k->err);
    if (st != SL_OK && st != SL_AGAIN)
        return st;
    bool none = type.len == 4 && memcmp(type.ptr, "none", 4) == 0;
    bool linear = type.len == 6 && memcmp(type.ptr, "linear", 6) == 0;
    if (type.len == 4 && memcmp(type.ptr, "yarn", 4) == 0) {
        if (factor < 1)
            return bad(k, SL_ERR_CORRUPT, "rope.scaling.factor", "%g is below 1", (double)factor);
        if (hp->yarn_ext > 0) {
            if (factor > 1)
                hp->yarn_factor = factor;
            float usual = 1.0f + 0.1f * logf(factor);
            hp->yarn_attn = attn;
            if (amplitude > 0) /* checkpoints' attention_factor replaces the usual amplitude */
                hp->yarn_attn *= amplitude / usual;
            else if (log_mul > 0) /* the amplitude is then relative to this multiplier's */
                hp->yarn_attn /= 1.0f + 0.1f * log_mul * logf(factor);
            return SL_OK;
        }
        linear = true; /* nothing extrapolated: positions are only scaled */
    }
    if (none || linear) {
        if (attn != 1.0f)
            return bad(k, SL_ERR_UNSUPPORTED, "rope.scaling.attn_factor",
                       "%g is supported with YaRN only", (double)attn);
        if (linear)
            hp->rope_scale = 1.0f / factor;
        return SL_OK;
    }
    char text[64];
    return bad(k, SL_ERR_UNSUPPORTED, "rope.scaling.type", "'%s' is not supported",
               sl_str_escape(type, text, sizeof text));
}

static enum sl_status read_router(struct keys *k, const struct sl_arch *arch,
                                  struct sl_hparams *hp) {
    if (hp->n_expert == 0) {
        if (arch->experts == SL_ARCH_MOE)
            return bad(k, SL_ERR_CORRUPT, "expert_count", "%s has experts, the file declares none",
                       arch->name);
        return SL_OK;
    }
    if (arch->experts == SL_ARCH_DENSE)
        return bad(k, SL_ERR_UNSUPPORTED, "expert_count", "experts in dense architecture '%s'",
                   arch->name);
    uint32_t max = hp->n_expert < SL_MAX_EXPERTS_USED ? hp->n_expert : SL_MAX_EXPERTS_USED;
    TRY(get_u32(k, "expert_used_count", true, 1, max, &hp->n_expert_used));
    hp->router_normalize = arch->router_normalize;
    enum sl_status st =
        sl_gguf_get_bool(k->g, full(k, "expert_weights_norm"), &hp->router_normalize, k->err);
    if (st != SL_OK && st != SL_AGAIN)
        return st;
    hp->router_scale = 0;
    TRY(get_f32(k, "expert_weights_scale", 0.0f, 1e6f, &hp->router_scale));
    if (hp->router_scale == 0) /* 0 is written for "none" */
        hp->router_scale = 1;
    uint32_t gate = 0;
    TRY(get_u32(k, "expert_gating_func", false, 0, UINT32_MAX, &gate));
    switch (gate) {
    case 0: /* not stated: softmax */
    case 1:
        hp->router_kind = SL_ROUTER_KIND_SOFTMAX;
        return SL_OK;
    case 2:
        hp->router_kind = SL_ROUTER_KIND_SIGMOID;
        return SL_OK;
    case 3:
        hp->router_kind = SL_ROUTER_KIND_SOFTMAX;
        hp->router_softmax_topk = true;
        return SL_OK;
    default:
        return bad(k, SL_ERR_UNSUPPORTED, "expert_gating_func", "function %" PRIu32 " is not known",
                   gate);
    }
}

static enum sl_status read_ffn(struct keys *k, const struct sl_arch *arch, struct sl_hparams *hp) {
    uint32_t ff = 0;
    TRY(get_u32(k, "feed_forward_length", hp->n_expert == 0, 0, MAX_WIDTH, &ff));
    if (hp->n_expert == 0) {
        hp->n_ff = ff;
        if (ff == 0)
            return bad(k, SL_ERR_CORRUPT, "feed_forward_length", "it is 0");
        return SL_OK;
    }
    TRY(get_u32(k, "expert_feed_forward_length", false, 0, MAX_WIDTH, &hp->n_ff_expert));
    if (hp->n_ff_expert == 0)
        hp->n_ff_expert = arch->split_ff ? ff / hp->n_expert_used : ff;
    if (hp->n_ff_expert == 0)
        return bad(k, SL_ERR_CORRUPT, "expert_feed_forward_length",
                   "the experts' width is 0 or missing");
    if (arch->shared_expert) {
        TRY(get_u32(k, "expert_shared_feed_forward_length", false, 0, MAX_WIDTH, &hp->n_ff_shared));
        if (hp->n_ff_shared == 0)
            hp->n_ff_shared = ff;
        if (hp->n_ff_shared == 0)
            return bad(k, SL_ERR_CORRUPT, "expert_shared_feed_forward_length",
                       "the shared expert's width is 0 or missing");
    }
    return SL_OK;
}

enum sl_status sl_arch_read_hparams(const struct sl_gguf *g, const struct sl_arch *arch,
                                    struct sl_hparams *out_hp, struct sl_err *err) {
    struct keys k = {.g = g, .arch = arch->name, .err = err};
    struct sl_hparams hp = {.rope_kind = arch->rope_kind, .router_scale = 1};
    TRY(refuse_unknown(&k));
    TRY(get_u32(&k, "block_count", true, 1, SL_MAX_LAYERS, &hp.n_layer));
    k.n_layer = hp.n_layer;
    TRY(get_u32(&k, "context_length", true, 1, MAX_CTX, &hp.n_ctx_train));
    TRY(get_u32(&k, "embedding_length", true, 1, MAX_WIDTH, &hp.n_embd));
    hp.norm_eps = -1;
    TRY(get_f32(&k, "attention.layer_norm_rms_epsilon", 0.0f, 1.0f, &hp.norm_eps));
    if (hp.norm_eps < 0)
        return sl_fail(err, SL_ERR_CORRUPT, "%.160s: key '%s' is missing", sl_gguf_file_path(g, 0),
                       full(&k, "attention.layer_norm_rms_epsilon"));
    TRY(get_u32(&k, "expert_count", false, 0, SL_MAX_EXPERTS, &hp.n_expert));
    TRY(read_attention(&k, &hp));
    TRY(read_rope(&k, &hp));
    TRY(read_router(&k, arch, &hp));
    TRY(read_ffn(&k, arch, &hp));
    *out_hp = hp;
    return SL_OK;
}
