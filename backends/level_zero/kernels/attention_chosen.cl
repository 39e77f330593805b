#define MAX_DIM SL_LZ_MAX_HEAD_DIM
#define CHOSEN  1
#include "attention.clh"

GROUP(64) kernel void attention_chosen(const struct sl_lz_attention a) {
    local struct shared own;
    attend(a, &own);
}
