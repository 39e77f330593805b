/* RoPE's inverse frequencies, with linear scaling, YaRN and per-dimension divisors. */
#ifndef SL_ENGINE_ROPE_FREQ_H
#define SL_ENGINE_ROPE_FREQ_H

#include "model/arch/model.h"

/* inv_freq[i], i < n_rot/2: the angle per position of pair i; out_mscale: factor of cos and sin.
 * divisors [n_rot/2] or NULL: rope_freqs.weight (llama 3), each pair's frequency is divided by it.
 * source: RoFormer (2021); YaRN (Peng et al., 2023), section 3: by-parts interpolation and the
 * attention temperature 1 + 0.1 ln(factor). */
void sl_rope_inv_freq(const struct sl_rope_spec *r, const float *divisors, float *out_inv_freq,
                      float *out_mscale);

#endif
