#include "engine/sample/vocab_pass_impl.h"

const struct sl_vocab_pass sl_vocab_pass_avx2 = {pass_max, pass_exp, pass_exp_sum, pass_block_sums,
                                                 pass_weigh};
