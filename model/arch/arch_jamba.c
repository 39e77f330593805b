/* Jamba: layers without key heads are Mamba-1 with norms of time steps, b and c, the others
 * attention that is not rotated; layers with a router have experts, the others are dense. Source:
 * AI21 Labs 2024, "Jamba: A Hybrid Transformer-Mamba Language Model"; Gu and Dao 2023, "Mamba". */
#include "model/arch/arch_internal.h"

#define MAX_TAPS  8u  /* models have 4 */
#define MAX_STATE 64u /* models have 16 */

static const char *const keys[] = {"ssm.conv_kernel", "ssm.inner_size", "ssm.state_size",
                                   "ssm.time_step_rank", NULL};

static enum sl_status read_own(struct sl_keys *k, struct sl_hparams *hp, struct sl_layer *layers) {
    struct sl_mamba1_spec m = {0};
    SL_TRY(sl_keys_u32(k, "ssm.conv_kernel", true, 2, MAX_TAPS, &m.n_taps));
    SL_TRY(sl_keys_u32(k, "ssm.inner_size", true, 1, SL_ARCH_MAX_WIDTH, &m.n_inner));
    SL_TRY(sl_keys_u32(k, "ssm.state_size", true, 1, MAX_STATE, &m.n_state));
    SL_TRY(sl_keys_u32(k, "ssm.time_step_rank", true, 1, SL_ARCH_MAX_WIDTH, &m.n_rank));
    for (uint32_t l = 0; l < hp->n_layer; l++) {
        layers[l].spec.attention.no_rope = true;
        if (layers[l].spec.mixer == SL_MIXER_MAMBA1)
            layers[l].spec.mamba1 = m;
    }
    return SL_OK;
}

const struct sl_arch sl_arch_jamba = {
    .name = "jamba",
    .experts = SL_ARCH_MOE,
    .rope_kind = SL_ROPE_KIND_NORM,
    .keyless = SL_MIXER_MAMBA1,
    .experts_by_tensor = true,
    .keys = keys,
    .read_own = read_own,
};
