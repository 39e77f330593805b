/* An activation of gate times up: backends/ops/activation.h. */
float activate(uint activation, float limit, float g, float u) {
    precise float y;
    switch (activation) {
    case 1u: /* clamped */
        g = 7.0 < g ? 7.0 : g;
        u = 7.0 < u ? 7.0 : u;
        u = -7.0 > u ? -7.0 : u;
        y = divide(g, 1.0 + exp_defined(-(1.702 * g))) * (u + 1.0);
        break;
    case 2u:
        y = gelu(g) * u;
        break;
    case 3u: /* limited */
        u = u > limit ? limit : u;
        u = u < -limit ? -limit : u;
        g = silu(g);
        y = (g > limit ? limit : g) * u;
        break;
    case 4u:
        y = (g > 0.0 ? g : 0.0) * u;
        break;
    case 5u: /* cut */
        g = g > limit ? limit : g;
        u = u > limit ? limit : u;
        u = u < -limit ? -limit : u;
        y = silu(g) * u;
        break;
    default:
        y = silu(g) * u;
    }
    return y;
}
