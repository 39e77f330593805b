/* Kimi K3: Kimi Delta Attention, whose decays may have a bound and whose output's gate is one
 * matrix; in the other layers latent attention that is not rotated, with a gate of each element;
 * experts that read and give narrower rows, whose sum may be normed, behind a sigmoid router with a
 * bias for the choice; shared ones; SiTU in place of SwiGLU. Layers are joined by residual
 * attention: a part reads a weighted sum of the residual stream and of what it was before some
 * layers. Source: Kimi Team 2026, "Kimi K3", and its configuration; names of llama.cpp's GGUF. */
#include "model/arch/arch_internal.h"

#include <inttypes.h>
#include <stdio.h>

static const char bound_key[] = "kda.gate_lower_bound", limit_key[] = "activation.situ_beta",
                  up_key[] = "activation.situ_linear_beta", block_key[] = "attn_res.block_size",
                  latent_key[] = "expert_latent_length";
static const char *const keys[] = {"ssm.conv_kernel", "kda.head_dim", bound_key, limit_key, up_key,
                                   block_key,         latent_key,     NULL};
static const struct sl_arch_name names[] = {
    {SL_L_KDA_GATE_A, "ssm_g.weight", false},
    {SL_L_STREAMS_MIX_BASE, "attn_res_score.weight", false},
    {SL_L_STREAMS_FFN_BASE, "ffn_res_score.weight", false},
    {SL_L_EXPERTS_LATENT_DOWN, "ffn_routed_down.weight", false},
    {SL_L_EXPERTS_LATENT_UP, "ffn_routed_up.weight", false},
    {SL_L_EXPERTS_POST_NORM, "ffn_routed_norm.weight", false},
    {SL_L_COUNT, NULL, false}};

static enum sl_status read_f32(struct sl_keys *k, const char *key, float min, float max,
                               float *out) {
    if (!sl_keys_find(k, key))
        return sl_keys_fail(k, SL_ERR_CORRUPT, key, "is missing");
    return sl_keys_f32(k, key, min, max, out);
}

/* A block of 0 layers: there is no residual attention. */
static enum sl_status read_streams(struct sl_keys *k, struct sl_hparams *hp) {
    SL_TRY(sl_keys_u32(k, block_key, true, 0, UINT32_MAX, &hp->keep_every));
    if (!hp->keep_every)
        return SL_OK;
    if (hp->keep_every > hp->n_layer)
        hp->keep_every = hp->n_layer;
    hp->n_stream = 1 + sl_kept_streams(hp, hp->n_layer);
    if (hp->n_stream > SL_MAX_ATTENDED)
        return sl_keys_fail(k, SL_ERR_UNSUPPORTED, block_key,
                            "%" PRIu32 " of %" PRIu32 " layers: at most %u blocks are supported",
                            hp->keep_every, hp->n_layer, SL_MAX_ATTENDED - 1);
    if ((uint64_t)hp->n_stream * hp->n_embd > SL_ARCH_MAX_WIDTH)
        return sl_keys_fail(k, SL_ERR_CORRUPT, block_key,
                            "%" PRIu32 " streams of %" PRIu32 " elements are wider than %u",
                            hp->n_stream, hp->n_embd, SL_ARCH_MAX_WIDTH);
    return SL_OK;
}

static enum sl_status read_own(struct sl_keys *k, struct sl_hparams *hp, struct sl_layer *layers) {
    float bound = 0, limit = 0, limit_up = 0;
    SL_TRY(sl_keys_f32(k, bound_key, -1e3f, -1e-3f, &bound));
    SL_TRY(read_f32(k, limit_key, 1e-3f, 1e6f, &limit));
    SL_TRY(read_f32(k, up_key, -1e6f, 1e6f, &limit_up));
    if (limit_up <= 0)
        limit_up = 0;
    else if (limit_up < 1e-3f)
        return sl_keys_fail(k, SL_ERR_CORRUPT, up_key, "%g leaves nothing", (double)limit_up);
    SL_TRY(sl_arch_read_kda(k, hp, layers));
    for (uint32_t l = 0; l < hp->n_layer; l++) {
        struct sl_layer_spec *s = &layers[l].spec;
        char gate[64];
        snprintf(gate, sizeof gate, "blk.%" PRIu32 ".attn_gate.weight", l);
        s->kda.full_gate = s->kda.flat = true;
        s->kda.bound = bound;
        s->latent.no_rope = true;
        s->latent.gate = sl_gguf_tensor_find(k->g, gate) ? SL_GATE_ELEMENT : SL_GATE_NONE;
        s->situ = true;
        s->limit = s->experts.limit = limit;
        s->limit_up = s->experts.limit_up = limit_up;
    }
    return read_streams(k, hp);
}

const struct sl_arch sl_arch_kimi_k3 = {
    .name = "kimi-k3",
    .experts = SL_ARCH_MOE,
    .rope_kind = SL_ROPE_KIND_NORM,
    .latent = true,
    .latent_unscaled = true,
    .latent_experts = latent_key,
    .keyless = SL_MIXER_KDA,
    .shared = SL_ARCH_SHARED_COUNT,
    .dense_lead = true,
    .router_sigmoid = true,
    .activation = SL_EXPERT_SITU,
    .keys = keys,
    .names = names,
    .read_own = read_own,
    .needs = SL_ROLE(SL_L_ROUTER_BIAS),
    .optional = SL_ROLE(SL_L_EXPERTS_POST_NORM),
};
