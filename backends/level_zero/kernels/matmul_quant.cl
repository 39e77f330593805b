#include "matmul.clh"

GROUP(64) kernel void matmul_quant(const struct sl_lz_matmul a) {
    local struct parts p;
    matmul(a, &p);
}
