/* dequant LIBGGML_BASE.SO: the dequantisation of every quantised type that ggml has against ggml's
 * own, bit for bit, on random blocks. Prints TAP and, after each type, a hash of the results of the
 * first blocks, which tests/unit/backends/test_formats.c knows. */
#include "backends/cpu/matmul/formats.h"
#include "tests/conformance/weights.h"
#include "tests/peer/dequant_hash.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#define N_BLOCKS 20000u

typedef void dequantize_function(const void *x, float *y, int64_t n);

int main(int argc, char **argv) {
    void *lib = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!lib) {
        printf("1..0 # SKIP cannot open libggml-base: %s\n", argc == 2 ? dlerror() : "not given");
        return 77;
    }
    int n_tests = 0, n_bad = 0;
    for (uint32_t t = 0; t < SL_DTYPE_COUNT; t++) {
        const struct sl_dtype_info *info = sl_dtype_info(t);
        if (!info || info->block_elems == 1 || sl_dtype_is_iqk((enum sl_dtype)t))
            continue;
        char symbol[64], *p = symbol;
        p += snprintf(symbol, sizeof symbol, "dequantize_row_%s", info->name);
        for (char *c = symbol + strlen("dequantize_row_"); c < p; c++)
            *c = (char)(*c >= 'A' && *c <= 'Z' && *c != 'K' ? *c + 32 : *c);
        void *address = dlsym(lib, symbol);
        dequantize_function *theirs;
        memcpy(&theirs, &address, sizeof theirs);
        size_t bytes = (size_t)N_BLOCKS * info->block_bytes;
        uint32_t n = N_BLOCKS * info->block_elems;
        uint8_t *blocks = malloc(bytes);
        float *a = malloc((size_t)n * 4), *b = malloc((size_t)n * 4);
        struct sl_rng rng = {t};
        size_t differ = n;
        if (!blocks || !a || !b)
            return 1;
        weights_fill(&rng, (enum sl_dtype)t, WEIGHTS_PLAIN, blocks, n);
        if (theirs) {
            theirs(blocks, a, n);
            sl_dequantize_row((enum sl_dtype)t, blocks, n, b);
            differ = 0;
            for (uint32_t i = 0; i < n; i++)
                differ += memcmp(&a[i], &b[i], 4) != 0;
        }
        n_bad += differ != 0;
        printf("%sok %d - %s: %zu of %u differ, hash 0x%016llx\n", differ ? "not " : "", ++n_tests,
               info->name, differ, n,
               (unsigned long long)dequant_hash(a, DEQUANT_HASH_BLOCKS * info->block_elems));
        free(blocks);
        free(a);
        free(b);
    }
    printf("1..%d\n", n_tests);
    return n_bad != 0;
}
