#include "conv.clh"

GROUP(64) kernel void short_conv(const struct sl_lz_conv a) {
    convolve(a, true);
}
