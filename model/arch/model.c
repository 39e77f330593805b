#include "model/arch/arch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct sl_arch *const arches[] = {
#define SL_ARCH(name) &sl_arch_##name,
#include "model/arch/arches.def"
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
        status = sl_arch_read_hparams(gguf, m->arch, false, &m->hp, &m->layers, err);
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

enum sl_status sl_model_add_drafts(struct sl_model *m, struct sl_err *err) {
    if (!m->hp.n_layer_nextn)
        return sl_fail(err, SL_ERR_UNSUPPORTED, "%.160s: the file has no layers that draft tokens",
                       sl_gguf_file_path(m->gguf, 0));
    if (!m->arch->drafts)
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "%.160s: how layers of '%s' draft tokens is not known here",
                       sl_gguf_file_path(m->gguf, 0), m->arch->name);
    struct sl_model with = {.gguf = m->gguf, .arch = m->arch};
    enum sl_status status =
        sl_arch_read_hparams(m->gguf, m->arch, true, &with.hp, &with.layers, err);
    if (status == SL_OK)
        status = sl_arch_bind(&with, err);
    if (status != SL_OK) {
        free(with.layers);
        return status;
    }
    free(m->layers);
    *m = with;
    return SL_OK;
}

bool sl_model_has_drafts(const struct sl_model *m) {
    return m->hp.n_layer_nextn && m->arch->drafts;
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
