/* MiniMax-M3: q and k are normed by heads, and a part of each head is rotated; the first layers are
 * dense, the others have experts, a router of sigmoids with a bias for the choice, and a shared
 * expert; all of them with gpt-oss's SwiGLU. Layers with experts attend to blocks of positions that
 * an indexer chooses, for each KV head its own. Source: MiniMax 2026, "MiniMax-M3", model card and
 * configuration; names of llama.cpp's GGUF. */
#include "model/arch/arch_internal.h"

#include <inttypes.h>

static const char *const keys[] = {"attention.indexer.head_count",   "attention.indexer.key_length",
                                   "attention.indexer.top_k",        "attention.indexer.block_size",
                                   "attention.indexer.local_blocks", NULL};
static const struct sl_arch_name names[] = {{SL_L_INDEX_Q, "indexer.q_proj.weight", false},
                                            {SL_L_INDEX_K, "indexer.k_proj.weight", false},
                                            {SL_L_COUNT, NULL, false}};

static enum sl_status read_own(struct sl_keys *k, struct sl_hparams *hp, struct sl_layer *layers) {
    uint32_t n_head = 0, dim = 0, n_top = 0, block = 0, n_local = 0;
    SL_TRY(sl_keys_u32(k, keys[0], true, 1, SL_ARCH_MAX_WIDTH, &n_head));
    SL_TRY(sl_keys_u32(k, keys[1], true, 1, SL_ARCH_MAX_HEAD_DIM, &dim));
    SL_TRY(sl_keys_u32(k, keys[2], true, 1, SL_ARCH_MAX_WIDTH, &n_top));
    SL_TRY(sl_keys_u32(k, keys[3], true, 1, SL_ARCH_MAX_WIDTH, &block));
    SL_TRY(sl_keys_u32(k, keys[4], true, 1, n_top, &n_local));
    if (dim < hp->rope[0].n_rot)
        return sl_keys_fail(k, SL_ERR_CORRUPT, keys[1],
                            "%" PRIu32 " is less than the %" PRIu32 " elements that are rotated",
                            dim, hp->rope[0].n_rot);
    for (uint32_t l = 0; l < hp->n_layer; l++) {
        struct sl_attention_spec *a = &layers[l].spec.attention;
        if (a->window)
            return sl_keys_fail(k, SL_ERR_UNSUPPORTED, "attention.sliding_window",
                                "%" PRIu32 ", and blocks are chosen of all positions", a->window);
        if (layers[l].spec.ffn != SL_FFN_EXPERTS)
            continue;
        if (a->n_head_kv != n_head || (uint64_t)n_head * dim > SL_ARCH_MAX_WIDTH ||
            (uint64_t)n_head * n_top > SL_ARCH_MAX_WIDTH)
            return sl_keys_fail(k, SL_ERR_CORRUPT, keys[0],
                                "%" PRIu32 " heads of %" PRIu32 " choose %" PRIu32
                                " blocks: must be as many as those of keys, %" PRIu32
                                ", and at most %u elements and blocks",
                                n_head, dim, n_top, a->n_head_kv, SL_ARCH_MAX_WIDTH);
        a->index_dim = dim, a->index_block = block;
        a->n_index_top = n_top, a->n_index_local = n_local;
    }
    return SL_OK;
}

const struct sl_arch sl_arch_minimax_m3 = {
    .name = "minimax-m3",
    .experts = SL_ARCH_MOE,
    .rope_kind = SL_ROPE_KIND_NEOX,
    .qk_norm = SL_QK_NORM_HEAD,
    .dense_lead = true,
    .shared = SL_ARCH_SHARED_COUNT,
    .activation = SL_EXPERT_SWIGLU_CLAMPED,
    .clamped = true,
    .router_sigmoid = true,
    .keys = keys,
    .names = names,
    .needs = SL_ROLES_QK_NORM | SL_ROLE(SL_L_ROUTER_BIAS),
    .optional = SL_ROLES_ATTN_BIAS,
    .read_own = read_own,
};
