/* What is assembly in backends/kernels/machine.cuh, for the CPU. */
#ifndef SL_TESTS_SUPPORT_SIMT_MACHINE_H
#define SL_TESTS_SUPPORT_SIMT_MACHINE_H

static inline void sl_grid_wait(void) {
    simt_grid_wait();
}
static inline void sl_grid_next(void) {}

static inline void sl_raise_word(uint32_t *word, uint32_t value) {
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}
static inline uint32_t sl_see_word(const uint32_t *word) {
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}
static inline void sl_meet(uint32_t id, uint32_t threads) {
    simt_meet(id, threads);
}

static inline int sl_dp4a_u8(uint32_t a, uint32_t b, int c) {
    return simt_dp4a_u8(a, b, c);
}
static inline uint32_t sl_pack_s8(int v0, int v1, int v2, int v3) {
    const int v[4] = {v0, v1, v2, v3};
    uint32_t out = 0;
    for (int i = 0; i < 4; i++)
        out |= (uint32_t)(uint8_t)(v[i] > 127 ? 127 : v[i] < -128 ? -128 : v[i]) << 8 * i;
    return out;
}

static inline void sl_copy16(void *shared, const void *global, bool valid) {
    simt_copy(shared, global, valid ? 16 : 0, 16);
}
static inline uint32_t sl_shared_address(const void *shared) {
    return simt_shared_address(shared);
}
static inline void sl_copy16_at(uint32_t shared, uintptr_t global) {
    simt_copy(simt_shared_at(shared), (const void *)global, 16, 16);
}
static inline void sl_copy4(float *shared, const float *global) {
    simt_copy(shared, global, 4, 4);
}
static inline void sl_copy_commit(void) {
    simt_copy_commit();
}
static inline void sl_copy_wait(void) {
    simt_copy_commit();
    simt_copy_wait(0);
}
static inline void sl_copy_wait_but_one(void) {
    simt_copy_wait(1);
}
static inline void sl_prefetch(const void *global) {
    (void)global;
}

#include "tests/support/simt/fragments.h"

#endif
