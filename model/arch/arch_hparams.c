/* Reads "<arch>.*": the keys, their defaults and their meaning as the converters of Hugging Face
 * checkpoints write them (ggml docs/gguf.md, "Standardized key-value pairs"). */
#include "model/arch/arch_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CTX  (1u << 30)
#define MIN_BASE 1.001f
#define MAX_BASE 1e30f

/* Keys that every architecture here may carry. */
enum key_use {
    KEY_READ,    /* read below */
    KEY_IGNORED, /* says nothing that changes the answer, or is implied by the tensors */
    KEY_NEUTRAL, /* would change the answer in a way that is not implemented: only 0, 1 or false,
                    which mean "none" in these, pass */
    KEY_LEAD,    /* read where the architecture has dense layers among those with experts, else
                    neutral */
    KEY_NEXTN,   /* the same where it has draft layers */
    /* Read where the architecture has a gated delta net, or multi-section RoPE; else not known: */
    KEY_DELTA,
    KEY_SECTIONS,
    KEY_LATENT, /* where it has latent attention; else not known */
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
    {"attention.sliding_window_pattern", KEY_READ},
    {"rope.dimension_count", KEY_READ},
    {"rope.freq_base", KEY_READ},
    {"rope.freq_base_swa", KEY_READ},
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
    {"leading_dense_block_count", KEY_LEAD},
    {"moe_every_n_layers", KEY_NEUTRAL},
    {"interleave_moe_layer_step", KEY_LEAD},
    {"nextn_predict_layers", KEY_NEXTN},
    {"full_attention_interval", KEY_DELTA},
    {"attention.recurrent_layers", KEY_DELTA},
    {"ssm.conv_kernel", KEY_DELTA},
    {"ssm.inner_size", KEY_DELTA},
    {"ssm.state_size", KEY_DELTA},
    {"ssm.time_step_rank", KEY_DELTA},
    {"ssm.group_count", KEY_DELTA},
    {"rope.dimension_sections", KEY_SECTIONS},
    {"n_deepstack_layers", KEY_SECTIONS}, /* of pictures: text passes none */
    {"attention.q_lora_rank", KEY_LATENT},
    {"attention.kv_lora_rank", KEY_LATENT},
    {"attention.key_length_mla", KEY_LATENT},
    {"attention.value_length_mla", KEY_LATENT},
    {"expert_group_count", KEY_READ},
    {"expert_group_used_count", KEY_READ},
    {"logit_scale", KEY_NEUTRAL},
    {"embedding_scale", KEY_NEUTRAL},
    {"residual_scale", KEY_NEUTRAL},
    {"attn_logit_softcapping", KEY_NEUTRAL},
    {"final_logit_softcapping", KEY_NEUTRAL},
    {"router_logit_softcapping", KEY_NEUTRAL},
    {"attention.max_alibi_bias", KEY_NEUTRAL},
    {"attention.clamp_kqv", KEY_NEUTRAL},
    {"attention.shared_kv_layers", KEY_NEUTRAL},
    {"embedding_length_per_layer_input", KEY_NEUTRAL},
};

/* These keys mean "none" by 0 alone: one layer is not none. */
static bool one_is_neutral(const char *key) {
    static const char *const zero_only[] = {
        "leading_dense_block_count",  "nextn_predict_layers",
        "attn_logit_softcapping",     "final_logit_softcapping",
        "router_logit_softcapping",   "attention.max_alibi_bias",
        "attention.clamp_kqv",        "use_parallel_residual",
        "attention.shared_kv_layers", "embedding_length_per_layer_input",
    };
    for (size_t i = 0; i < sizeof zero_only / sizeof zero_only[0]; i++)
        if (strcmp(key, zero_only[i]) == 0)
            return false;
    return true;
}

bool sl_arch_reads(const struct sl_arch *arch, const char *key, size_t len) {
    for (const char *const *k = arch->keys; k && *k; k++)
        if (strlen(*k) == len && memcmp(*k, key, len) == 0)
            return true;
    return false;
}

static bool is_known(enum key_use use, const struct sl_arch *arch) {
    return use == KEY_DELTA      ? arch->delta
           : use == KEY_LATENT   ? arch->latent
           : use == KEY_SECTIONS ? arch->sections
                                 : true;
}

/* Is it one of which only values that mean "none" pass? */
static bool is_neutral(enum key_use use, const struct sl_arch *arch) {
    return use == KEY_NEUTRAL || (use == KEY_LEAD && !arch->dense_lead) ||
           (use == KEY_NEXTN && !arch->nextn);
}

static enum sl_status refuse_unknown(struct sl_keys *k, const struct sl_arch *arch) {
    size_t prefix = strlen(k->arch);
    for (uint64_t i = 0; i < sl_gguf_n_kv(k->g); i++) {
        const struct sl_gguf_kv *kv = sl_gguf_kv_at(k->g, i);
        if (kv->key.len <= prefix || memcmp(kv->key.ptr, k->arch, prefix) != 0 ||
            kv->key.ptr[prefix] != '.')
            continue;
        const char *key = kv->key.ptr + prefix + 1;
        size_t len = kv->key.len - prefix - 1, j = 0, n = sizeof known / sizeof known[0];
        if (sl_arch_reads(arch, key, len))
            continue;
        while (j < n && (strlen(known[j].key) != len || memcmp(known[j].key, key, len) != 0))
            j++;
        if (j == n || !is_known(known[j].use, arch))
            return sl_gguf_kv_fail(k->g, kv, SL_ERR_UNSUPPORTED, k->err,
                                   "unknown hyperparameter of architecture '%s'", k->arch);
        if (!is_neutral(known[j].use, arch))
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

/* Elements of the smallest heads that a table rotates; 0: it rotates none. */
static uint32_t least_head_dim(const struct sl_hparams *hp, const struct sl_layer *layers,
                               uint32_t rope) {
    uint32_t head_dim = 0;
    for (uint32_t l = 0; l < hp->n_layer; l++) {
        const struct sl_attention_spec *a = &layers[l].spec.attention;
        if (a->rope == rope && (!head_dim || a->head_dim_k < head_dim))
            head_dim = a->head_dim_k;
    }
    return head_dim;
}

/* The second table: as the first, but for what the file says of layers with a window. */
static enum sl_status read_window_rope(struct sl_keys *k, const struct sl_arch *arch,
                                       const struct sl_layer *layers, struct sl_hparams *hp) {
    struct sl_rope_spec *r = &hp->rope[1];
    uint32_t head_dim = least_head_dim(hp, layers, 1);
    *r = hp->rope[0];
    r->undivided = !arch->window_freqs;
    if (arch->window_rope_base > 0)
        r->base = arch->window_rope_base;
    if (arch->window_rope_plain)
        r->scale = 1, r->yarn_factor = 0, r->yarn_attn = 1;
    SL_TRY(sl_keys_f32(k, "rope.freq_base_swa", MIN_BASE, MAX_BASE, &r->base));
    if (head_dim && head_dim < r->n_rot)
        r->n_rot = head_dim;
    if (r->n_rot % 2 != 0)
        return sl_keys_fail(k, SL_ERR_CORRUPT, "attention.head_count",
                            "heads of %" PRIu32 " elements cannot be rotated in pairs", r->n_rot);
    if (!sl_arch_reads(arch, "rope.dimension_count_swa", sizeof "rope.dimension_count_swa" - 1))
        return SL_OK;
    if (head_dim)
        SL_TRY(sl_keys_u32(k, "rope.dimension_count_swa", false, 2, head_dim, &r->n_rot));
    if (r->n_rot % 2 != 0)
        return sl_keys_fail(k, SL_ERR_CORRUPT, "rope.dimension_count_swa", "%" PRIu32 " is odd",
                            r->n_rot);
    return SL_OK;
}

/* The table for heads of at least head_dim elements. */
static enum sl_status read_rope(struct sl_keys *k, uint32_t n_ctx_train, uint32_t head_dim,
                                struct sl_rope_spec *r) {
    r->n_rot = head_dim;
    SL_TRY(sl_keys_u32(k, "rope.dimension_count", false, 2, head_dim, &r->n_rot));
    if (r->n_rot % 2 != 0)
        return sl_keys_fail(k, SL_ERR_CORRUPT, "rope.dimension_count", "%" PRIu32 " is odd",
                            r->n_rot);
    r->base = 10000.0f;
    SL_TRY(sl_keys_f32(k, "rope.freq_base", MIN_BASE, MAX_BASE, &r->base));
    float factor = 0;
    SL_TRY(sl_keys_f32(k, "rope.scale_linear", 0.0f, 1e6f, &factor)); /* the older name */
    SL_TRY(sl_keys_f32(k, "rope.scaling.factor", 0.0f, 1e6f, &factor));
    if (factor == 0)
        factor = 1;
    r->scale = 1;
    r->yarn_ctx_orig = n_ctx_train;
    r->yarn_ext = 1;
    r->yarn_attn = 1;
    r->yarn_beta_fast = 32;
    r->yarn_beta_slow = 1;
    float attn = 1, log_mul = 0, amplitude = 0;
    SL_TRY(sl_keys_u32(k, "rope.scaling.original_context_length", false, 1, MAX_CTX,
                       &r->yarn_ctx_orig));
    SL_TRY(sl_keys_f32(k, "rope.scaling.yarn_ext_factor", 0.0f, 1.0f, &r->yarn_ext));
    SL_TRY(sl_keys_f32(k, "rope.scaling.yarn_attn_factor", 0.0f, 1e3f, &amplitude));
    SL_TRY(sl_keys_f32(k, "rope.scaling.attn_factor", 0.0f, 1e3f, &attn));
    SL_TRY(sl_keys_f32(k, "rope.scaling.yarn_beta_fast", 0.0f, 1e6f, &r->yarn_beta_fast));
    SL_TRY(sl_keys_f32(k, "rope.scaling.yarn_beta_slow", 0.0f, 1e6f, &r->yarn_beta_slow));
    SL_TRY(sl_keys_f32(k, "rope.scaling.yarn_log_multiplier", 0.0f, 1e3f, &log_mul));
    struct sl_str type = {"linear", 6};
    enum sl_status status =
        sl_gguf_get_str(k->g, sl_keys_name(k, "rope.scaling.type"), &type, k->err);
    if (status != SL_OK && status != SL_AGAIN)
        return status;
    bool none = type.len == 4 && memcmp(type.ptr, "none", 4) == 0;
    bool linear = type.len == 6 && memcmp(type.ptr, "linear", 6) == 0;
    if (type.len == 4 && memcmp(type.ptr, "yarn", 4) == 0) {
        if (factor < 1)
            return sl_keys_fail(k, SL_ERR_CORRUPT, "rope.scaling.factor", "%g is below 1",
                                (double)factor);
        if (r->yarn_ext > 0) {
            if (factor > 1)
                r->yarn_factor = factor;
            float usual = 1.0f + 0.1f * logf(factor);
            r->yarn_attn = attn;
            if (amplitude > 0) /* checkpoints' attention_factor replaces the usual amplitude */
                r->yarn_attn *= amplitude / usual;
            else if (log_mul > 0) /* the amplitude is then relative to this multiplier's */
                r->yarn_attn /= 1.0f + 0.1f * log_mul * logf(factor);
            return SL_OK;
        }
        linear = true; /* nothing extrapolated: positions are only scaled */
    }
    if (none || linear) {
        r->yarn_attn = attn;
        if (linear)
            r->scale = 1.0f / factor;
        return SL_OK;
    }
    char text[64];
    return sl_keys_fail(k, SL_ERR_UNSUPPORTED, "rope.scaling.type", "'%s' is not supported",
                        sl_str_escape(type, text, sizeof text));
}

enum sl_status sl_arch_read_hparams(const struct sl_gguf *g, const struct sl_arch *arch,
                                    bool drafts, struct sl_hparams *out_hp,
                                    struct sl_layer **out_layers, struct sl_err *err) {
    struct sl_keys k = {.g = g, .arch = arch->name, .err = err};
    struct sl_hparams hp = {.rope = {{.kind = arch->rope_kind}}};
    SL_TRY(refuse_unknown(&k, arch));
    SL_TRY(sl_keys_u32(&k, "block_count", true, 1, SL_MAX_LAYERS, &hp.n_layer));
    k.n_layer = hp.n_layer; /* arrays have a value for draft layers, too */
    if (arch->nextn)
        SL_TRY(
            sl_keys_u32(&k, "nextn_predict_layers", false, 0, hp.n_layer - 1, &hp.n_layer_nextn));
    hp.n_layer -= k.n_nextn = hp.n_layer_nextn;
    if (drafts && hp.n_layer_nextn) {
        hp.n_draft = 1;
        hp.draft_plain = arch->draft_plain;
        hp.n_layer++;
        hp.n_layer_nextn--;
    }
    SL_TRY(sl_keys_u32(&k, "context_length", true, 1, MAX_CTX, &hp.n_ctx_train));
    SL_TRY(sl_keys_u32(&k, "embedding_length", true, 1, SL_ARCH_MAX_WIDTH, &hp.n_embd));
    hp.norm_eps = -1;
    static const char rms_eps[] = "attention.layer_norm_rms_epsilon";
    static const char mean_eps[] = "attention.layer_norm_epsilon";
    hp.layer_norm = arch->norm == SL_ARCH_NORM_LAYER ||
                    (arch->norm == SL_ARCH_NORM_EITHER && !sl_keys_find(&k, rms_eps));
    bool mean = hp.layer_norm || (arch->any_epsilon && !sl_keys_find(&k, rms_eps));
    const char *eps = mean ? mean_eps : rms_eps;
    SL_TRY(sl_keys_f32(&k, eps, 0.0f, 1.0f, &hp.norm_eps));
    if (hp.norm_eps < 0)
        return sl_fail(err, SL_ERR_CORRUPT, "%.160s: key '%s' is missing", sl_gguf_file_path(g, 0),
                       sl_keys_name(&k, eps));
    struct sl_layer *layers = calloc(hp.n_layer, sizeof *layers);
    if (!layers)
        return sl_fail(err, SL_ERR_NOMEM, "out of memory for %u layers", hp.n_layer);
    /* Layers with a window may have a rotation of their own. */
    hp.n_rope = sl_keys_find(&k, "rope.freq_base_swa") ||
                        sl_keys_find(&k, "rope.dimension_count_swa") ||
                        sl_keys_find(&k, "attention.key_length_swa") ||
                        ((arch->window_rope_plain || arch->window_rope_base > 0) &&
                         sl_keys_find(&k, "attention.sliding_window"))
                    ? 2
                    : 1;
    enum sl_status status = sl_arch_read_layers(&k, arch, &hp, layers);
    if (status == SL_OK) {
        uint32_t head_dim =
            arch->latent ? layers[0].spec.latent.n_rot : least_head_dim(&hp, layers, 0);
        /* Where all layers have a window the first table rotates none, and is there all the same.
         */
        head_dim = head_dim ? head_dim : least_head_dim(&hp, layers, 1);
        status = read_rope(&k, hp.n_ctx_train, head_dim, &hp.rope[0]);
    }
    if (status == SL_OK && arch->latent)
        status = sl_arch_scale_latent(&k, arch, &hp, layers);
    if (status == SL_OK && arch->sections) {
        status = sl_arch_check_sections(&k, hp.rope[0].n_rot);
    }
    if (status == SL_OK && hp.n_rope > 1)
        status = read_window_rope(&k, arch, layers, &hp);
    hp.embd_scale = arch->embd_sqrt ? sqrtf((float)hp.n_embd) : 1;
    hp.logit_scale = 1;
    if (status == SL_OK && sl_arch_reads(arch, "logit_scale", sizeof "logit_scale" - 1))
        status = sl_keys_f32(&k, "logit_scale", 1e-6f, 1e6f, &hp.logit_scale);
    if (status == SL_OK && arch->read_own)
        status = arch->read_own(&k, &hp, layers);
    if (status == SL_OK &&
        sl_arch_reads(arch, "final_logit_softcapping", sizeof "final_logit_softcapping" - 1))
        status = sl_keys_f32(&k, "final_logit_softcapping", 0.0f, 1e6f, &hp.logit_softcap);
    if (status != SL_OK) {
        free(layers);
        return status;
    }
    for (uint32_t l = sl_answer_layers(&hp); l < hp.n_layer; l++)
        layers[l].spec.draft = true;
    *out_hp = hp;
    *out_layers = layers;
    return SL_OK;
}
