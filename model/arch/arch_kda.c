/* Kimi Delta Attention: a delta net whose decay is of each element.
 * Source: Kimi Team 2025, "Kimi Linear: An Expressive, Efficient Attention Architecture"; key names
 * of ggml's GGUF. */
#include "model/arch/arch_internal.h"

#include <inttypes.h>

#define MAX_TAPS 8u    /* models have 4 */
#define MAX_DIM  1024u /* SL_CHANNEL_DELTA_MAX; models have 128 */

enum sl_status sl_arch_read_kda(struct sl_keys *k, const struct sl_hparams *hp,
                                struct sl_layer *layers) {
    struct sl_kda_spec s = {.n_head = layers[0].spec.latent.n_head};
    SL_TRY(sl_keys_u32(k, "ssm.conv_kernel", true, 2, MAX_TAPS, &s.n_taps));
    SL_TRY(sl_keys_u32(k, "kda.head_dim", true, 1, MAX_DIM, &s.head_dim));
    if ((uint64_t)s.n_head * s.head_dim > SL_ARCH_MAX_WIDTH)
        return sl_keys_fail(k, SL_ERR_CORRUPT, "kda.head_dim",
                            "%" PRIu32 " heads of %" PRIu32 " are wider than %u", s.n_head,
                            s.head_dim, SL_ARCH_MAX_WIDTH);
    for (uint32_t l = 0; l < hp->n_layer; l++)
        if (layers[l].spec.mixer == SL_MIXER_KDA)
            layers[l].spec.kda = s;
    return SL_OK;
}
