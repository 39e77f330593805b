/* DeepSeek V3.2 and GLM-5: latent attention, dense first layers and experts as DeepSeek V3 has
 * them, over the positions that an indexer chooses. Of GLM-5.2's layers most have no indexer and
 * attend to what the last one before them has chosen. The two rotate the indexer's heads in
 * different pairs. Perhaps draft layers, with an indexer. Source: DeepSeek-AI 2025,
 * "DeepSeek-V3.2", section 2.1; Z.ai's GLM-5 as in Hugging Face Transformers,
 * "modeling_glm_moe_dsa". */
#include "model/arch/arch_internal.h"

#include <inttypes.h>

/* Read below. Sections are of pictures: text does not need them. */
static const char *const keys[] = {"attention.indexer.head_count", "attention.indexer.key_length",
                                   "attention.indexer.top_k", "rope.dimension_sections", NULL};
static const char *const glm_keys[] = {
    "attention.indexer.head_count", "attention.indexer.key_length", "attention.indexer.top_k",
    "attention.indexer.types",      "rope.dimension_sections",      NULL};

enum sl_status sl_arch_read_indexer(struct sl_keys *k, const struct sl_hparams *hp, bool neox,
                                    struct sl_layer *layers) {
    const struct sl_latent_spec *first = &layers[0].spec.latent;
    uint32_t n_head = 0, dim = 0, n_top = 0;
    SL_TRY(sl_keys_u32(k, "attention.indexer.head_count", true, 1, SL_ARCH_MAX_WIDTH, &n_head));
    SL_TRY(sl_keys_u32(k, "attention.indexer.key_length", true, 1, SL_ARCH_MAX_HEAD_DIM, &dim));
    SL_TRY(sl_keys_u32(k, "attention.indexer.top_k", true, 1, SL_ARCH_MAX_WIDTH, &n_top));
    if (dim < first->n_rot)
        return sl_keys_fail(k, SL_ERR_CORRUPT, "attention.indexer.key_length",
                            "%" PRIu32 " is less than the %" PRIu32
                            " elements of rope.dimension_count",
                            dim, first->n_rot);
    if ((uint64_t)n_head * dim > SL_ARCH_MAX_WIDTH)
        return sl_keys_fail(k, SL_ERR_CORRUPT, "attention.indexer.head_count",
                            "%" PRIu32 " heads of %" PRIu32 " elements are wider than %u", n_head,
                            dim, SL_ARCH_MAX_WIDTH);
    if (!first->n_lora_q)
        return sl_keys_fail(k, SL_ERR_CORRUPT, "attention.q_lora_rank",
                            "is missing or 0: the indexer's queries are made of these");
    for (uint32_t l = 0; l < hp->n_layer; l++) {
        struct sl_latent_spec *c = &layers[l].spec.latent;
        c->n_index_head = n_head, c->index_dim = dim, c->n_index_top = n_top;
        c->index_neox = neox;
    }
    return SL_OK;
}

static enum sl_status read_deepseek(struct sl_keys *k, struct sl_hparams *hp,
                                    struct sl_layer *layers) {
    return sl_arch_read_indexer(k, hp, true, layers);
}

/* The context that GLM-5.2 is made for, and none before it. Its first files do not say which layers
 * have an indexer. */
#define GLM_5_2_CTX (1u << 20)

static enum sl_status read_glm(struct sl_keys *k, struct sl_hparams *hp, struct sl_layer *layers) {
    static const char types[] = "attention.indexer.types";
    bool own[SL_MAX_LAYERS];
    for (uint32_t l = 0; l < hp->n_layer; l++)
        own[l] = hp->n_ctx_train < GLM_5_2_CTX || l < 2 || (l - 2) % 4 == 0;
    const struct sl_gguf_kv *kv = sl_keys_find(k, types);
    if (kv && kv->type == SL_GGUF_ARRAY) {
        SL_TRY(sl_keys_pattern(k, types, own));
    } else if (kv) {
        uint32_t all = 1;
        SL_TRY(sl_keys_u32(k, types, true, 0, 1, &all));
        for (uint32_t l = 0; l < hp->n_layer; l++)
            own[l] = all;
    }
    if (!own[0])
        return sl_keys_fail(k, SL_ERR_CORRUPT, types,
                            "layer 0 has no indexer, and no layer before it has one");
    SL_TRY(sl_arch_read_indexer(k, hp, false, layers));
    /* A draft layer has one of its own: no layer before it has chosen for its rows. */
    for (uint32_t l = sl_answer_layers(hp); l < hp->n_layer; l++)
        own[l] = true;
    for (uint32_t l = 1; l < hp->n_layer; l++)
        layers[l].spec.latent.choice_back = own[l] ? 0 : layers[l - 1].spec.latent.choice_back + 1;
    return SL_OK;
}

const struct sl_arch sl_arch_deepseek32 = {
    .name = "deepseek32",
    .experts = SL_ARCH_MOE,
    .rope_kind = SL_ROPE_KIND_NORM,
    .latent = true,
    .shared = SL_ARCH_SHARED_COUNT,
    .dense_lead = true,
    .nextn = true,
    .drafts = true,
    .keys = keys,
    .optional = SL_ROLE(SL_L_ROUTER_BIAS),
    .read_own = read_deepseek,
};

const struct sl_arch sl_arch_glm_dsa = {
    .name = "glm-dsa",
    .experts = SL_ARCH_MOE,
    .rope_kind = SL_ROPE_KIND_NORM,
    .latent = true,
    .shared = SL_ARCH_SHARED_COUNT,
    .dense_lead = true,
    .nextn = true,
    .drafts = true,
    .router_sigmoid = true,
    .keys = glm_keys,
    .optional = SL_ROLE(SL_L_ROUTER_BIAS),
    .read_own = read_glm,
};
