#include "head.clh"

GROUP(64) kernel void head_float(const struct sl_lz_head a) {
    local struct parts p;
    head(a, &p);
}
