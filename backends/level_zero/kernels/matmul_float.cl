#include "matmul.clh"

GROUP(64) kernel void matmul_float(const struct sl_lz_matmul a) {
    local struct parts p;
    matmul(a, &p);
}
