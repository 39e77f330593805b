#include "engine/sample/vocab_pass_impl.h"

const struct sl_vocab_pass sl_vocab_pass_c = {pass_max, pass_exp, pass_exp_sum, pass_block_sums,
                                              pass_weigh};

const struct sl_vocab_pass *sl_vocab_pass_best(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return &sl_vocab_pass_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("bmi2"))
        return &sl_vocab_pass_avx2;
#endif
    return &sl_vocab_pass_c;
}
