#include "matmul.clh"

GROUP(64) SUBGROUPS_OF_16 kernel void KERNEL(const struct sl_lz_matmul a) {
    local struct parts p;
    matmul(a, &p);
}
