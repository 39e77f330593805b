/* Qwen3.8-Flash-Next: layers as Qwen3.5's, whose gated attention goes over the blocks that an
 * indexer chooses by the mean of their keys. Layers are joined by hyper-connections of low rank,
 * which stand for all norms of rows, and one layer adds embeddings of n-grams. All have experts and
 * a shared one. Source: Qwen Team 2026, "Qwen3.8-Flash-Next", its configuration; names of
 * llama.cpp's GGUF. */
#include "model/arch/arch_internal.h"

#include <inttypes.h>

static const char n_heads[] = "attention.indexer.head_count",
                  key_length[] = "attention.indexer.key_length",
                  top_k[] = "attention.indexer.top_k", ratios[] = "attention.compress_ratios",
                  count[] = "hyper_connection.count", low_rank[] = "hyper_connection.low_rank",
                  ngram_layers[] = "ple.layers", ngram_size[] = "ple.ngram_size",
                  per_ngram[] = "ple.heads_per_ngram", taps[] = "ple.conv_kernel",
                  multipliers[] = "ple.layer_multipliers", offsets[] = "ple.head_offsets",
                  sizes[] = "ple.head_vocab_sizes", eos[] = "ple.eos_token_id",
                  row_length[] = "embedding_length_per_layer_input";
/* The token that stands for pictures is not needed. */
static const char *const keys[] = {n_heads,   key_length, top_k,        ratios,
                                   count,     low_rank,   ngram_layers, ngram_size,
                                   per_ngram, taps,       multipliers,  offsets,
                                   sizes,     eos,        row_length,   "ple.image_token_id",
                                   NULL};
static const struct sl_arch_name names[] = {{SL_L_INDEX_Q, "indexer.q_proj.weight", false},
                                            {SL_L_INDEX_K, "indexer.k_proj.weight", false},
                                            {SL_L_COUNT, NULL, false}};

#define MAX_STREAMS 8u  /* of backends/ops/streams.h */
#define MAX_TAPS    8u  /* ... recurrent.h */
#define PAGE_TOKENS 64u /* SL_KV_PAGE_TOKENS, of which blocks are a part */

static enum sl_status read_streams(struct sl_keys *k, struct sl_hparams *hp) {
    SL_TRY(sl_keys_u32(k, count, true, 2, MAX_STREAMS, &hp->n_stream));
    SL_TRY(sl_keys_u32(k, low_rank, true, 1, SL_ARCH_MAX_WIDTH, &hp->stream_rank));
    return (uint64_t)hp->n_stream * hp->n_embd <= SL_ARCH_MAX_WIDTH
               ? SL_OK
               : sl_keys_fail(k, SL_ERR_CORRUPT, count,
                              "%" PRIu32 " streams of %" PRIu32 " elements are wider than %u",
                              hp->n_stream, hp->n_embd, SL_ARCH_MAX_WIDTH);
}

/* An array of whole numbers with a value for each of at least n. */
static enum sl_status find_array(struct sl_keys *k, const char *key, uint64_t n,
                                 const struct sl_gguf_kv **out) {
    const struct sl_gguf_kv *kv = sl_keys_find(k, key);
    if (!kv || kv->type != SL_GGUF_ARRAY || kv->elem_type == SL_GGUF_STRING || kv->n_elems < n)
        return sl_keys_fail(k, SL_ERR_CORRUPT, key,
                            "is missing, or has fewer than %" PRIu64 " numbers", n);
    *out = kv;
    return SL_OK;
}

static enum sl_status read_indexer(struct sl_keys *k, const struct sl_hparams *hp,
                                   struct sl_layer *layers) {
    uint32_t n_head = 0, dim = 0, n_top = 0;
    const struct sl_gguf_kv *kv = NULL;
    SL_TRY(sl_keys_u32(k, n_heads, true, 1, SL_ARCH_MAX_WIDTH, &n_head));
    SL_TRY(sl_keys_u32(k, key_length, true, hp->rope[0].n_rot, SL_ARCH_MAX_HEAD_DIM, &dim));
    SL_TRY(sl_keys_u32(k, top_k, true, 1, SL_ARCH_MAX_WIDTH, &n_top));
    SL_TRY(find_array(k, ratios, hp->n_layer, &kv));
    if ((uint64_t)n_head * dim > SL_ARCH_MAX_WIDTH)
        return sl_keys_fail(k, SL_ERR_CORRUPT, n_heads,
                            "%" PRIu32 " heads of %" PRIu32 " elements are wider than %u", n_head,
                            dim, SL_ARCH_MAX_WIDTH);
    for (uint32_t l = 0; l < hp->n_layer; l++) {
        int64_t ratio = sl_gguf_array_i64(kv, l);
        struct sl_attention_spec *a = &layers[l].spec.attention;
        if (layers[l].spec.mixer != SL_MIXER_ATTENTION)
            continue;
        if (ratio < 1 || ratio > PAGE_TOKENS || PAGE_TOKENS % ratio || n_top % ratio)
            return sl_keys_fail(k, SL_ERR_UNSUPPORTED, ratios,
                                "%" PRId64 " in layer %" PRIu32 ": must divide %u and the %" PRIu32
                                " of %s",
                                ratio, l, PAGE_TOKENS, n_top, top_k);
        if (a->window)
            return sl_keys_fail(k, SL_ERR_UNSUPPORTED, "attention.sliding_window",
                                "%" PRIu32 ", and blocks are chosen of all positions", a->window);
        a->pool = (uint32_t)ratio, a->n_pool_head = n_head, a->index_dim = dim;
        a->n_pool_top = n_top / a->pool;
    }
    return SL_OK;
}

/* Which rows of the table each head chooses among. */
static enum sl_status read_heads(struct sl_keys *k, struct sl_ngram_spec *n) {
    const struct sl_gguf_kv *mul = NULL, *offset = NULL, *size = NULL;
    SL_TRY(find_array(k, multipliers, n->n_gram, &mul));
    SL_TRY(find_array(k, offsets, n->n_head, &offset));
    SL_TRY(find_array(k, sizes, n->n_head, &size));
    for (uint32_t i = 0; i < n->n_gram; i++) {
        int64_t v = sl_gguf_array_i64(mul, i);
        if (v < 0 || v == INT64_MAX)
            return sl_keys_fail(k, SL_ERR_UNSUPPORTED, multipliers,
                                "number %" PRIu32 " is none of 63 bits", i);
        n->mul[i] = (uint64_t)v;
    }
    for (uint32_t h = 0; h < n->n_head; h++) {
        int64_t at = sl_gguf_array_i64(offset, h), rows = sl_gguf_array_i64(size, h);
        if (at < 0 || at > INT32_MAX || rows < 1 || rows > INT32_MAX - at)
            return sl_keys_fail(
                k, SL_ERR_CORRUPT, at < 0 || at > INT32_MAX ? offsets : sizes,
                "head %" PRIu32 " chooses among %" PRId64 " rows from %" PRId64 " on", h, rows, at);
        n->offset[h] = (uint32_t)at, n->size[h] = (uint32_t)rows;
    }
    return SL_OK;
}

static enum sl_status read_ngrams(struct sl_keys *k, struct sl_hparams *hp,
                                  struct sl_layer *layers) {
    struct sl_ngram_spec *n = &hp->ngram;
    const struct sl_gguf_kv *kv = sl_keys_find(k, ngram_layers);
    uint32_t n_taps = 0;
    if (!kv || (kv->type == SL_GGUF_ARRAY && !kv->n_elems))
        return SL_OK;
    int64_t l = sl_gguf_array_i64(kv, 0);
    if (kv->type != SL_GGUF_ARRAY || kv->n_elems != 1 || l < 0 || l >= hp->n_layer ||
        layers[l].spec.mixer != SL_MIXER_DELTA)
        return sl_keys_fail(k, SL_ERR_UNSUPPORTED, ngram_layers,
                            "must name one layer, which has a gated delta net");
    SL_TRY(sl_keys_u32(k, ngram_size, true, 2, SL_MAX_NGRAM, &n->n_gram));
    SL_TRY(sl_keys_u32(k, per_ngram, true, 1, SL_MAX_NGRAM_HEADS / (n->n_gram - 1), &n->per_gram));
    SL_TRY(sl_keys_u32(k, taps, true, 2, MAX_TAPS, &n_taps));
    SL_TRY(sl_keys_u32(k, eos, true, 0, SL_MAX_VOCAB, &n->eos));
    SL_TRY(sl_keys_u32(k, row_length, true, 1, SL_ARCH_MAX_WIDTH, &n->dim));
    n->n_head = (n->n_gram - 1) * n->per_gram;
    if ((uint64_t)n->n_head * n->dim != hp->n_embd)
        return sl_keys_fail(k, SL_ERR_CORRUPT, row_length,
                            "%" PRIu32 " heads of %" PRIu32 " elements are not the %" PRIu32
                            " of embedding_length",
                            n->n_head, n->dim, hp->n_embd);
    layers[l].spec.ngram = (struct sl_ngram_layer_spec){
        .n_taps = n_taps, .step = n->n_gram, .n = hp->n_stream * hp->n_embd};
    return read_heads(k, n);
}

static enum sl_status read_own(struct sl_keys *k, struct sl_hparams *hp, struct sl_layer *layers) {
    SL_TRY(read_streams(k, hp));
    SL_TRY(read_indexer(k, hp, layers));
    SL_TRY(read_ngrams(k, hp, layers));
    for (uint32_t l = 0; l < hp->n_layer; l++)
        layers[l].spec.delta.gate_sigmoid = true;
    return SL_OK;
}

const struct sl_arch sl_arch_qwen4exp = {
    .name = "qwen4exp",
    .experts = SL_ARCH_MOE,
    .rope_kind = SL_ROPE_KIND_NEOX,
    .qk_norm = SL_QK_NORM_HEAD,
    .shared = SL_ARCH_SHARED,
    .split_ff = true,
    .router_normalize = true,
    .delta = true,
    .gated = true,
    .sections = true,
    .nextn = true,
    .keys = keys,
    .names = names,
    .needs = SL_ROLES_QK_NORM | SL_ROLE(SL_L_SHARED_ROUTER) | SL_ROLE(SL_L_DELTA_BETA) |
             SL_ROLE(SL_L_DELTA_ALPHA),
    .read_own = read_own,
};
