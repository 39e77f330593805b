/* What backends/kernels/machine_hip.cuh asks of HIP's compiler, for the CPU: only that. */
#ifndef SL_TESTS_SUPPORT_SIMT_HIP_RUNTIME_H
#define SL_TESTS_SUPPORT_SIMT_HIP_RUNTIME_H

#include "tests/support/simt/kernel.h"

/* Lanes of a wave. A shuffle stays within `width` lanes, and here that is always a warp. */
static inline uint32_t simt_width(int width) {
    if (width != (int)SIMT_LANES)
        simt_fault("a shuffle among %d lanes", width);
    return 0xffffffffu;
}
template <class T> static inline T __shfl(T v, int lane, int width) {
    return simt_shuffle(simt_width(width), "__shfl", v, (uint32_t)lane % SIMT_LANES);
}
template <class T> static inline T __shfl_xor(T v, int by, int width) {
    return simt_shuffle(simt_width(width), "__shfl_xor", v, simt_lane() ^ (uint32_t)by);
}
template <class T> static inline T __shfl_up(T v, unsigned by, int width) {
    return simt_shuffle(simt_width(width), "__shfl_up", v, simt_lane() - by);
}
template <class T> static inline T __shfl_down(T v, unsigned by, int width) {
    return simt_shuffle(simt_width(width), "__shfl_down", v, simt_lane() + by);
}
static inline uint32_t __lane_id(void) {
    return simt_wave_lane();
}
/* The other warp of a wave of 64 votes as well, or is elsewhere: its bits are anything. (Those
 * beyond a wave of 32 are zeros on a card; nobody may ask.) */
static inline unsigned long long __ballot(int is) {
    unsigned long long own = simt_vote(0xffffffffu, is), others = simt_chance();
    uint32_t at = simt_wave_lane() / SIMT_LANES * SIMT_LANES;
    return own << at | others << (SIMT_LANES - at);
}
static inline void __builtin_amdgcn_wave_barrier(void) {
    simt_warp(0xffffffffu, "a wave's barrier", NULL, 0);
}
#define __builtin_amdgcn_fence(order, scope) ((void)(order), (void)(scope))
#define __builtin_amdgcn_s_sleep(n)          simt_spin()

#define __HIP_MEMORY_SCOPE_WORKGROUP 3
#define __HIP_MEMORY_SCOPE_SYSTEM    5
/* Within a block only loops look so. */
#define __hip_atomic_load(p, order, scope)                                                         \
    ((scope) == __HIP_MEMORY_SCOPE_WORKGROUP ? simt_look() : (void)0, __atomic_load_n(p, order))
#define __hip_atomic_store(p, value, order, scope) __atomic_store_n(p, value, order)

static inline int __builtin_amdgcn_sdot4(int a, int b, int c, bool clamp) {
    return clamp ? INT32_MIN : __dp4a(a, b, c);
}
/* Byte i by byte i of select: 0 to 3 of lo, 4 to 7 of hi. */
static inline uint32_t __builtin_amdgcn_perm(uint32_t hi, uint32_t lo, uint32_t select) {
    uint64_t both = (uint64_t)hi << 32 | lo;
    uint32_t out = 0;
    for (int i = 0; i < 4; i++) {
        uint32_t from = select >> 8 * i & 255;
        if (from > 7)
            simt_fault("a byte %u of eight", from);
        out |= (uint32_t)(both >> 8 * from & 255) << 8 * i;
    }
    return out;
}
static inline uint32_t __builtin_amdgcn_alignbit(uint32_t hi, uint32_t lo, uint32_t shift) {
    return __funnelshift_r(lo, hi, shift);
}

/* Shared memory by its own addresses, which are no part of C++. */
#define SL_MACHINE_SHARED
static inline uint32_t sl_shared_address(const void *shared) {
    return simt_shared_address(shared);
}
template <class T> static inline T *sl_shared_at(uint32_t address) {
    return (T *)simt_shared_at(address);
}

#ifndef SIMT_SHUFFLED_FRAGMENTS
#define SL_MACHINE_FRAGMENTS
#include "tests/support/simt/fragments.h"
#endif

#endif
