/* Layers with a gated delta net, between layers with attention.
 * Source: Yang, Kautz and Hatamizadeh 2024, "Gated Delta Networks"; key names of ggml's GGUF. */
#include "model/arch/arch_internal.h"

#include <inttypes.h>

/* More would not fit the convolution's window of registers; models have 4. */
#define MAX_TAPS 8u

static enum sl_status read_kinds(struct sl_keys *k, const struct sl_hparams *hp,
                                 struct sl_layer *layers) {
    bool recurrent[SL_MAX_LAYERS];
    uint32_t interval = 4;
    SL_TRY(sl_keys_u32(k, "full_attention_interval", false, 1, SL_MAX_LAYERS, &interval));
    for (uint32_t l = 0; l < hp->n_layer; l++)
        recurrent[l] = (l + 1) % interval != 0;
    SL_TRY(sl_keys_pattern(k, "attention.recurrent_layers", recurrent));
    /* A draft layer attends, whatever the keys say of it. */
    for (uint32_t l = 0; l < hp->n_layer; l++)
        layers[l].spec.mixer =
            recurrent[l] && l < sl_answer_layers(hp) ? SL_MIXER_DELTA : SL_MIXER_ATTENTION;
    return SL_OK;
}

enum sl_status sl_arch_read_delta(struct sl_keys *k, const struct sl_arch *arch,
                                  const struct sl_hparams *hp, struct sl_layer *layers) {
    struct sl_delta_spec d = {.grouped = arch->delta_grouped};
    uint32_t inner = 0;
    SL_TRY(read_kinds(k, hp, layers));
    SL_TRY(sl_keys_u32(k, "ssm.conv_kernel", true, 2, MAX_TAPS, &d.n_taps));
    SL_TRY(sl_keys_u32(k, "ssm.state_size", true, 1, SL_ARCH_MAX_HEAD_DIM, &d.head_dim));
    SL_TRY(sl_keys_u32(k, "ssm.group_count", true, 1, SL_ARCH_MAX_WIDTH, &d.n_head_k));
    SL_TRY(sl_keys_u32(k, "ssm.time_step_rank", true, 1, SL_ARCH_MAX_WIDTH, &d.n_head));
    SL_TRY(sl_keys_u32(k, "ssm.inner_size", true, 1, SL_ARCH_MAX_WIDTH, &inner));
    if (d.n_head % d.n_head_k != 0)
        return sl_keys_fail(k, SL_ERR_CORRUPT, "ssm.group_count",
                            "%" PRIu32 " does not divide the %" PRIu32 " heads of "
                            "ssm.time_step_rank",
                            d.n_head_k, d.n_head);
    if ((uint64_t)d.n_head * d.head_dim != inner)
        return sl_keys_fail(k, SL_ERR_CORRUPT, "ssm.inner_size",
                            "%" PRIu32 " is not %" PRIu32 " heads of %" PRIu32 " elements", inner,
                            d.n_head, d.head_dim);
    for (uint32_t l = 0; l < hp->n_layer; l++)
        if (layers[l].spec.mixer == SL_MIXER_DELTA)
            layers[l].spec.delta = d;
    return SL_OK;
}

enum sl_status sl_arch_check_sections(struct sl_keys *k, uint32_t n_rot) {
    static const char key[] = "rope.dimension_sections";
    const struct sl_gguf_kv *kv = sl_keys_find(k, key);
    uint32_t sum = 0;
    if (!kv)
        return SL_OK;
    if (kv->type != SL_GGUF_ARRAY || kv->elem_type == SL_GGUF_STRING ||
        kv->elem_type == SL_GGUF_F32 || kv->elem_type == SL_GGUF_F64 ||
        kv->elem_type == SL_GGUF_BOOL || kv->n_elems < 3 || kv->n_elems > 4)
        return sl_keys_fail(k, SL_ERR_CORRUPT, key, "not three or four integers");
    for (uint32_t i = 0; i < kv->n_elems; i++) {
        int64_t v = sl_gguf_array_i64(kv, i);
        if (v < 0 || v > SL_ARCH_MAX_HEAD_DIM)
            return sl_keys_fail(k, SL_ERR_CORRUPT, key,
                                "%" PRId64 " is out of range, 0 to %u are allowed", v,
                                SL_ARCH_MAX_HEAD_DIM);
        sum += (uint32_t)v;
    }
    if (!sum || sum > n_rot)
        return sl_keys_fail(k, SL_ERR_CORRUPT, key,
                            "%" PRIu32 " frequencies in all sections, of a rotation of %" PRIu32
                            " elements",
                            sum, n_rot);
    return SL_OK;
}
