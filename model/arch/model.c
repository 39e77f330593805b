#include "model/arch/arch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct sl_arch *const arches[] = {
    &sl_arch_dots1,         &sl_arch_deepseek,       &sl_arch_bailingmoe,  &sl_arch_bailingmoe2,
    &sl_arch_hy_v3,         &sl_arch_mellum,         &sl_arch_granitemoe,  &sl_arch_exaone_moe,
    &sl_arch_minimax_m2,    &sl_arch_glm4moe,        &sl_arch_qwen3moe,    &sl_arch_qwen2moe,
    &sl_arch_olmoe,         &sl_arch_llama,          &sl_arch_qwen3,       &sl_arch_qwen2,
    &sl_arch_ernie4_5_moe,  &sl_arch_hunyuan_moe,    &sl_arch_gpt_oss,     &sl_arch_qwen3next,
    &sl_arch_qwen35moe,     &sl_arch_qwen35,         &sl_arch_qwen3vlmoe,  &sl_arch_deepseek2,
    &sl_arch_gemma4,        &sl_arch_llama4,         &sl_arch_afmoe,       &sl_arch_laguna,
    &sl_arch_cohere2moe,    &sl_arch_dbrx,           &sl_arch_grok,        &sl_arch_mimo2,
    &sl_arch_mistral4,      &sl_arch_arctic,         &sl_arch_step35,      &sl_arch_mistral3,
    &sl_arch_smallthinker,  &sl_arch_maple,          &sl_arch_phimoe,      &sl_arch_lfm2moe,
    &sl_arch_granitehybrid, &sl_arch_jamba,          &sl_arch_deepseek32,  &sl_arch_glm_dsa,
    &sl_arch_nemotron_h,    &sl_arch_nemotron_h_moe, &sl_arch_kimi_linear,
};
#define N_ARCHES (sizeof arches / sizeof arches[0])

const char *sl_model_arch_at(uint32_t i) {
    return i < N_ARCHES ? arches[i]->name : NULL;
}

static enum sl_status find_arch(const struct sl_gguf *g, const struct sl_arch **out_arch,
                                struct sl_err *err) {
    struct sl_str name;
    enum sl_status status = sl_gguf_get_str(g, "general.architecture", &name, err);
    if (status == SL_AGAIN)
        return sl_fail(err, SL_ERR_CORRUPT, "%.160s: key 'general.architecture' is missing",
                       sl_gguf_file_path(g, 0));
    if (status != SL_OK)
        return status;
    char text[64];
    for (size_t i = 0; i < N_ARCHES; i++) {
        if (strlen(arches[i]->name) == name.len &&
            memcmp(arches[i]->name, name.ptr, name.len) == 0) {
            *out_arch = arches[i];
            return SL_OK;
        }
    }
    return sl_fail(err, SL_ERR_UNSUPPORTED,
                   "%.160s: architecture '%s' is not supported: docs/MODELS.md lists the %zu that "
                   "are",
                   sl_gguf_file_path(g, 0), sl_str_escape(name, text, sizeof text), N_ARCHES);
}

enum sl_status sl_model_from_gguf(struct sl_gguf *gguf, struct sl_model **out_model,
                                  struct sl_err *err) {
    struct sl_model *m = calloc(1, sizeof *m);
    enum sl_status status;
    if (!m) {
        sl_gguf_close(&gguf);
        return sl_fail(err, SL_ERR_NOMEM, "out of memory");
    }
    m->gguf = gguf;
    status = find_arch(gguf, &m->arch, err);
    if (status == SL_OK && sl_gguf_n_tensors(gguf) == 0)
        status =
            sl_fail(err, SL_ERR_INVALID,
                    "%.160s: the file holds a vocabulary and no weights: it can be tokenized with "
                    "and inspected, not run",
                    sl_gguf_file_path(gguf, 0));
    if (status == SL_OK)
        status = sl_arch_read_hparams(gguf, m->arch, &m->hp, &m->layers, err);
    if (status == SL_OK)
        status = sl_arch_bind(m, err);
    if (status != SL_OK) {
        sl_model_close(&m);
        return status;
    }
    *out_model = m;
    return SL_OK;
}

enum sl_status sl_model_open(const char *path, struct sl_model **out_model, struct sl_err *err) {
    struct sl_gguf *gguf;
    enum sl_status status = sl_gguf_open(path, &gguf, err);
    return status == SL_OK ? sl_model_from_gguf(gguf, out_model, err) : status;
}

void sl_model_close(struct sl_model **m) {
    if (!*m)
        return;
    sl_gguf_close(&(*m)->gguf);
    free((*m)->layers);
    free(*m);
    *m = NULL;
}

const char *sl_model_arch_name(const struct sl_model *m) {
    return m->arch->name;
}

struct sl_expert_matrix sl_layer_expert_matrix(const struct sl_layer *layer, uint32_t which) {
    static const enum sl_layer_role roles[SL_EXPERT_MATRICES] = {SL_L_EXPERTS_GATE, SL_L_EXPERTS_UP,
                                                                 SL_L_EXPERTS_DOWN};
    if (which == 0 && !sl_experts_gated(&layer->spec.experts))
        which = 1;
    const struct sl_gguf_tensor *fused = layer->t[SL_L_EXPERTS_GATE_UP],
                                *t = layer->t[roles[which]];
    if (fused && roles[which] != SL_L_EXPERTS_DOWN) {
        uint64_t expert_bytes = fused->size_bytes / fused->ne[2], half = expert_bytes / 2;
        return (struct sl_expert_matrix){fused, which * half, expert_bytes, half};
    }
    uint64_t expert_bytes = t->size_bytes / t->ne[2];
    return (struct sl_expert_matrix){t, 0, expert_bytes, expert_bytes};
}

uint64_t sl_model_expert_bytes(const struct sl_model *m, uint32_t layer) {
    uint64_t bytes = 0;
    bool gated = sl_experts_gated(&m->layers[layer].spec.experts);
    for (uint32_t i = !gated; sl_model_layer_is_moe(m, layer) && i < SL_EXPERT_MATRICES; i++)
        bytes += sl_layer_expert_matrix(&m->layers[layer], i).part_bytes;
    return bytes;
}

uint64_t sl_model_fingerprint(const struct sl_model *m) {
    return sl_gguf_fingerprint(m->gguf);
}
