#include "engine/forward/rope_freq.h"

#include <math.h>

/* The pair index whose wavelength makes `turns` full turns over the original context. */
static double pair_of_turns(const struct sl_rope_spec *r, double turns) {
    double n_rot = r->n_rot;
    return n_rot * log((double)r->yarn_ctx_orig / (turns * 2.0 * M_PI)) /
           (2.0 * log((double)r->base));
}

void sl_rope_inv_freq(const struct sl_rope_spec *r, const float *divisors, float *out_inv_freq,
                      float *out_mscale) {
    uint32_t n = r->n_rot / 2;
    bool yarn = r->yarn_factor > 0;
    /* Both kinds of scaling squeeze positions by the same factor; YaRN leaves the fast pairs,
     * which tell near positions apart, as they were. */
    double squeeze = yarn ? 1.0 / (double)r->yarn_factor : (double)r->scale;
    double low = 0, high = 0;
    bool ramp = yarn && r->yarn_ext != 0 && r->yarn_ctx_orig > 0;
    if (ramp) {
        low = fmax(0, floor(pair_of_turns(r, (double)r->yarn_beta_fast)));
        high = fmin((double)r->n_rot - 1, ceil(pair_of_turns(r, (double)r->yarn_beta_slow)));
    }
    for (uint32_t i = 0; i < n; i++) {
        double f = pow((double)r->base, -2.0 * i / r->n_rot);
        if (divisors)
            f /= (double)divisors[i];
        double keep = 0; /* share of the unsqueezed frequency */
        if (ramp) {
            double y = ((double)i - low) / fmax(0.001, high - low);
            keep = (1.0 - fmin(1.0, fmax(0.0, y))) * (double)r->yarn_ext;
        }
        float freq = (float)(f * squeeze * (1.0 - keep) + f * keep);
        out_inv_freq[i] = r->back ? -freq : freq;
    }
    double m = (double)r->yarn_attn;
    if (yarn && r->yarn_ext != 0 && r->yarn_factor > 1)
        m *= 1.0 + 0.1 * log((double)r->yarn_factor);
    *out_mscale = (float)m;
}
