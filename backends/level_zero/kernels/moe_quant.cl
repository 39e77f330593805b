#include "moe.clh"

GROUP(64) SUBGROUPS_OF_16 kernel void KERNEL(const struct sl_lz_moe a) {
    local struct parts p;
    moe(a, &p);
}
