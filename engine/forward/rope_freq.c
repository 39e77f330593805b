#include "engine/forward/rope_freq.h"

#include <math.h>

/* The pair index whose wavelength makes `turns` full turns over the original context. */
static double pair_of_turns(const struct sl_hparams *hp, double turns) {
    double n_rot = hp->n_rot;
    return n_rot * log((double)hp->yarn_ctx_orig / (turns * 2.0 * M_PI)) /
           (2.0 * log((double)hp->rope_base));
}

void sl_rope_inv_freq(const struct sl_hparams *hp, const float *divisors, float *out_inv_freq,
                      float *out_mscale) {
    uint32_t n = hp->n_rot / 2;
    bool yarn = hp->yarn_factor > 0;
    /* Both kinds of scaling squeeze positions by the same factor; YaRN leaves the fast pairs,
     * which tell near positions apart, as they were. */
    double squeeze = yarn ? 1.0 / (double)hp->yarn_factor : (double)hp->rope_scale;
    double low = 0, high = 0;
    bool ramp = yarn && hp->yarn_ext != 0 && hp->yarn_ctx_orig > 0;
    if (ramp) {
        low = fmax(0, floor(pair_of_turns(hp, (double)hp->yarn_beta_fast)));
        high = fmin((double)hp->n_rot - 1, ceil(pair_of_turns(hp, (double)hp->yarn_beta_slow)));
    }
    for (uint32_t i = 0; i < n; i++) {
        double f = pow((double)hp->rope_base, -2.0 * i / hp->n_rot);
        if (divisors)
            f /= (double)divisors[i];
        double keep = 0; /* share of the unsqueezed frequency */
        if (ramp) {
            double y = ((double)i - low) / fmax(0.001, high - low);
            keep = (1.0 - fmin(1.0, fmax(0.0, y))) * (double)hp->yarn_ext;
        }
        out_inv_freq[i] = (float)(f * squeeze * (1.0 - keep) + f * keep);
    }
    *out_mscale = 1;
    if (yarn) {
        double m = (double)hp->yarn_attn;
        if (hp->yarn_ext != 0 && hp->yarn_factor > 1)
            m *= 1.0 + 0.1 * log((double)hp->yarn_factor);
        *out_mscale = (float)m;
    }
}
