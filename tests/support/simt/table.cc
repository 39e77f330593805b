/* The kernels that there are, by name (simt.h). One that backends/kernels/families.h lists and no source
 * has is weak here, so NULL. */
#include "backends/kernels/families.h"
#include "tests/support/simt/simt.h"

#define DECLARE(family, name, variant, args)                                                       \
    extern "C" __attribute__((weak, visibility("hidden"))) void sl_k_##name(const args);           \
    static void run_##name(const void *at) {                                                       \
        sl_k_##name(*(const args *)at);                                                            \
    }
SL_KERNELS(DECLARE)

#define ROW(family, name, variant, args)                                                           \
    {"sl_k_" #name, sl_k_##name ? run_##name : nullptr, sizeof(args)},
const struct simt_kernel simt_kernels[] = {SL_KERNELS(ROW)};
const size_t simt_n_kernels = sizeof simt_kernels / sizeof simt_kernels[0];
