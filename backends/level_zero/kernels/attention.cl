#define MAX_DIM SL_LZ_NARROW_DIM
#include "attention.clh"

GROUP(64) kernel void attention(const struct sl_lz_attention a) {
    local struct shared own;
    attend(a, &own);
}
