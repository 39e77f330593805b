/* Layers that are a state space with one decay a head (Mamba-2), between layers with attention.
 * Source: Dao and Gu 2024, "Transformers are SSMs"; key names of ggml's GGUF. */
#include "model/arch/arch_internal.h"

#include <inttypes.h>

#define MAX_TAPS 8u /* models have 4 */

enum sl_status sl_arch_read_mamba(struct sl_keys *k, const struct sl_hparams *hp,
                                  struct sl_layer *layers) {
    struct sl_mamba_spec m = {0};
    uint32_t inner = 0;
    SL_TRY(sl_keys_u32(k, "ssm.conv_kernel", true, 2, MAX_TAPS, &m.n_taps));
    SL_TRY(sl_keys_u32(k, "ssm.state_size", true, 1, SL_ARCH_MAX_HEAD_DIM, &m.n_state));
    SL_TRY(sl_keys_u32(k, "ssm.group_count", true, 1, SL_ARCH_MAX_WIDTH, &m.n_group));
    SL_TRY(sl_keys_u32(k, "ssm.time_step_rank", true, 1, SL_ARCH_MAX_WIDTH, &m.n_head));
    SL_TRY(sl_keys_u32(k, "ssm.inner_size", true, 1, SL_ARCH_MAX_WIDTH, &inner));
    if (inner % m.n_head != 0)
        return sl_keys_fail(k, SL_ERR_CORRUPT, "ssm.time_step_rank",
                            "%" PRIu32 " heads do not divide ssm.inner_size, %" PRIu32, m.n_head,
                            inner);
    if (m.n_head % m.n_group != 0)
        return sl_keys_fail(k, SL_ERR_CORRUPT, "ssm.group_count",
                            "%" PRIu32 " does not divide the %" PRIu32 " heads of "
                            "ssm.time_step_rank",
                            m.n_group, m.n_head);
    if ((uint64_t)m.n_group * m.n_state > SL_ARCH_MAX_WIDTH)
        return sl_keys_fail(k, SL_ERR_CORRUPT, "ssm.state_size",
                            "%" PRIu32 " groups of %" PRIu32 " are wider than %u", m.n_group,
                            m.n_state, SL_ARCH_MAX_WIDTH);
    m.head_dim = inner / m.n_head;
    for (uint32_t l = 0; l < hp->n_layer; l++)
        if (layers[l].spec.mixer == SL_MIXER_MAMBA)
            layers[l].spec.mamba = m;
    return SL_OK;
}
