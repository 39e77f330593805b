#include "conv.clh"

GROUP(64) kernel void conv_silu(const struct sl_lz_conv a) {
    convolve(a, false);
}
