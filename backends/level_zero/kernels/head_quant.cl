#include "head.clh"

GROUP(64) SUBGROUPS_OF_16 kernel void KERNEL(const struct sl_lz_head a) {
    local struct parts p;
    head(a, &p);
}
