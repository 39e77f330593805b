#define MAX_DIM SL_LZ_MAX_HEAD_DIM
#include "attention.clh"

GROUP(64) kernel void attention_wide(const struct sl_lz_attention a) {
    local struct shared own;
    attend(a, &own);
}
