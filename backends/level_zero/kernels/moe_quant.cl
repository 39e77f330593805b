#include "moe.clh"

GROUP(64) kernel void moe_quant(const struct sl_lz_moe a) {
    local struct parts p;
    moe(a, &p);
}
