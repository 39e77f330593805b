/* The grids of the IQ types, widened from their codes to bytes before main(). */
#include "backends/cpu/matmul/formats.h"
#include "backends/iq_codes.h"

uint64_t sl_iq2xxs_grid[256], sl_iq2xs_grid[512], sl_iq2s_grid[1024];
uint32_t sl_iq3xxs_grid[256], sl_iq3s_grid[512];
uint64_t sl_iq1_grid[2048], sl_iq1_bytes[4096];

static uint64_t widen(uint32_t code, int n, int bits, const uint8_t *values) {
    uint64_t out = 0;
    for (int j = 0; j < n; j++)
        out |= (uint64_t)values[(code >> (bits * j)) & ((1u << bits) - 1)] << (8 * j);
    return out;
}

__attribute__((constructor)) static void fill_grids(void) {
    static const uint8_t iq2[4] = {8, 25, 43, 0}, iq1[4] = {0xff, 0, 1, 0};
    static const uint8_t iq3xxs[8] = {4, 12, 20, 28, 36, 44, 52, 62};
    static const uint8_t iq3s[8] = {1, 3, 5, 7, 9, 11, 13, 15};
    for (int i = 0; i < 256; i++) {
        sl_iq2xxs_grid[i] = widen(sl_code_iq2xxs[i], 8, 2, iq2);
        sl_iq3xxs_grid[i] = (uint32_t)widen(sl_code_iq3xxs[i], 4, 3, iq3xxs);
    }
    for (int i = 0; i < 512; i++) {
        sl_iq2xs_grid[i] = widen(sl_code_iq2xs[i], 8, 2, iq2);
        sl_iq3s_grid[i] = (uint32_t)widen(sl_code_iq3s[i], 4, 3, iq3s);
    }
    for (int i = 0; i < 1024; i++)
        sl_iq2s_grid[i] = widen(sl_code_iq2s[i], 8, 2, iq2);
    for (int i = 0; i < 2048; i++)
        sl_iq1_grid[i] = widen(sl_code_iq1[i], 8, 2, iq1);
    static const uint8_t plus[4] = {2, 10, 18, 0}, minus[4] = {0, 8, 16, 0};
    for (int i = 0; i < 2048; i++) {
        sl_iq1_bytes[i] = widen(sl_code_iq1[i], 8, 2, plus);
        sl_iq1_bytes[i + 2048] = widen(sl_code_iq1[i], 8, 2, minus);
    }
}
