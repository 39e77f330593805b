/* machine.cuh for AMD's cards, by HIP's compiler. What each function is for stands there. The
 * tests' emulator compiles this as it is, but for what SL_MACHINE_SHARED and SL_MACHINE_FRAGMENTS
 * say that it has itself.
 *
 * A warp is 32 lanes here as well. Where a wave has 64 of them it is two warps, which go on
 * together but for what either of them skips: shuffles stay within 32 lanes, and a vote takes its
 * own half of the wave's.
 *
 * Plain: matrix fragments are put together by shuffles and dot products, so that every kernel is
 * right on every card. Kernels that live by fragments are slower so than those which do without. */
#ifndef SL_BACKENDS_KERNELS_MACHINE_HIP_CUH
#define SL_BACKENDS_KERNELS_MACHINE_HIP_CUH

#ifndef __HIPCC_RTC__ /* hipRTC has both without asking, and must not be given others */
#include <hip/hip_runtime.h>

#include <hip/hip_fp16.h>
#endif
#include <stdint.h>

#define __grid_constant__

/* What CUDA has and HIP lacks. The lanes of a wave go on together, so that meeting is a matter of
 * what the compiler may move. */
__device__ __forceinline__ void __syncwarp(void) {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
    __builtin_amdgcn_wave_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}
template <class T> __device__ __forceinline__ T __ldcg(const T *p) {
    return *p;
}

__device__ __forceinline__ float sl_shfl_xor(float v, int mask) {
    return __shfl_xor(v, mask, SL_WARP);
}
__device__ __forceinline__ int sl_shfl_xor(int v, int mask) {
    return __shfl_xor(v, mask, SL_WARP);
}
__device__ __forceinline__ float sl_shfl_down(float v, int lanes) {
    return __shfl_down(v, (unsigned)lanes, SL_WARP);
}
__device__ __forceinline__ int sl_shfl(int v, int lane) {
    return __shfl(v, lane, SL_WARP);
}
__device__ __forceinline__ float sl_shfl(float v, int lane) {
    return __shfl(v, lane, SL_WARP);
}
__device__ __forceinline__ uint32_t sl_shfl_up(uint32_t v, int lanes) {
    return __shfl_up(v, (unsigned)lanes, SL_WARP);
}
__device__ __forceinline__ uint32_t sl_ballot(bool is) {
    return (uint32_t)(__ballot(is) >> (__lane_id() & SL_WARP));
}
__device__ __forceinline__ bool sl_warp_any(bool is) {
    return sl_ballot(is) != 0;
}
__device__ __forceinline__ uint32_t sl_warp_first(bool is) {
    return (uint32_t)__ffs((int)sl_ballot(is)) - 1u;
}
__device__ __forceinline__ int sl_warp_max_int(int v) {
#pragma unroll
    for (int m = SL_WARP / 2; m; m /= 2)
        v = max(v, sl_shfl_xor(v, m));
    return v;
}

/* Instructions for it came and went with architectures. Where none is known, as on gfx900 and on
 * what is newer than this list, it is added up. Source: LLVM's AMDGPU usage, dot1 and dot8. */
#if defined(__GFX11__) || defined(__GFX12__) || defined(__gfx1100__) || defined(__gfx1101__) ||    \
    defined(__gfx1102__) || defined(__gfx1103__)
#define SL_DOT_WITH_SIGNS
#elif defined(__gfx906__) || defined(__gfx908__) || defined(__gfx90a__) || defined(__gfx940__) ||  \
    defined(__gfx941__) || defined(__gfx942__) || defined(__gfx950__) || defined(__gfx1011__) ||   \
    defined(__gfx1012__) || defined(__gfx1030__) || defined(__gfx1031__) ||                        \
    defined(__gfx1032__) || defined(__gfx1033__) || defined(__gfx1034__) ||                        \
    defined(__gfx1035__) || defined(__gfx1036__) || !defined(__HIP_DEVICE_COMPILE__)
#define SL_DOT
#endif
__device__ __forceinline__ int sl_dp4a(int a, int b, int c) {
#if defined(SL_DOT_WITH_SIGNS)
    return __builtin_amdgcn_sudot4(true, a, true, b, c, false);
#elif defined(SL_DOT)
    return __builtin_amdgcn_sdot4(a, b, c, false);
#else
#pragma unroll
    for (int i = 0; i < 32; i += 8)
        c += (int)(int8_t)(a >> i) * (int8_t)(b >> i);
    return c;
#endif
}
/* a - 128 is signed, and b's sum times 128 comes back. */
__device__ __forceinline__ int sl_dp4a_u8(uint32_t a, uint32_t b, int c) {
    return sl_dp4a((int)(a ^ 0x80808080u), (int)b, c) + (sl_dp4a((int)b, 0x01010101, 0) << 7);
}
__device__ __forceinline__ int sl_dp2a_lo(uint32_t a, uint32_t b, int c) {
    return c + (int)(int16_t)a * (int8_t)b + (int)(int16_t)(a >> 16) * (int8_t)(b >> 8);
}
__device__ __forceinline__ int sl_dp2a_hi(uint32_t a, uint32_t b, int c) {
    return sl_dp2a_lo(a, b >> 16, c);
}
__device__ __forceinline__ uint32_t sl_pack_s8(int v0, int v1, int v2, int v3) {
    uint32_t lo = ((uint32_t)v0 & 255u) | ((uint32_t)v1 & 255u) << 8;
    return lo | ((uint32_t)v2 & 255u) << 16 | (uint32_t)v3 << 24;
}
__device__ __forceinline__ uint32_t sl_perm(uint32_t lo, uint32_t hi, uint32_t sel) {
    uint32_t bytes = (sel & 7u) | (sel & 0x70u) << 4 | (sel & 0x700u) << 8 | (sel & 0x7000u) << 12;
    return __builtin_amdgcn_perm(hi, lo, bytes);
}
__device__ __forceinline__ uint32_t sl_funnel(uint32_t lo, uint32_t hi, uint32_t shift) {
    return __builtin_amdgcn_alignbit(hi, lo, shift);
}
__device__ __forceinline__ float sl_f16(uint32_t bits) {
    return __half2float(__ushort_as_half((unsigned short)bits));
}

/* How many warps have come to each meeting of a part of the block. */
__device__ __forceinline__ uint32_t *sl_meet_words(void) {
    __shared__ uint32_t met[16];
    return met;
}
/* A kernel starts when those before it have ended. Each thread of each kernel calls this once,
 * before it meets others. */
__device__ __forceinline__ void sl_grid_wait(void) {
    if (threadIdx.x < 16)
        sl_meet_words()[threadIdx.x] = 0;
    __syncthreads();
}
__device__ __forceinline__ void sl_grid_next(void) {}

__device__ __forceinline__ void sl_raise_word(uint32_t *word, uint32_t value) {
    __threadfence_system();
    __hip_atomic_store(word, value, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_SYSTEM);
}
__device__ __forceinline__ uint32_t sl_see_word(const uint32_t *word) {
    return __hip_atomic_load(word, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_SYSTEM);
}

/* A part of a block: its warps count themselves, and wait until as many have come as there are. */
__device__ __forceinline__ void sl_meet(uint32_t id, uint32_t threads) {
    uint32_t *met = sl_meet_words() + id, warps = threads / SL_WARP;
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_wave_barrier(); /* one lane counts for all: they are here */
    if (threadIdx.x % SL_WARP == 0) {
        uint32_t all = (atomicAdd(met, 1u) / warps + 1) * warps;
        while ((int32_t)(__hip_atomic_load(met, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP) -
                         all) < 0)
            __builtin_amdgcn_s_sleep(1);
    }
    __builtin_amdgcn_wave_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

/* Shared memory by its own addresses. */
#ifndef SL_MACHINE_SHARED
__device__ __forceinline__ uint32_t sl_shared_address(const void *shared) {
    return (uint32_t)(uintptr_t)(const __attribute__((address_space(3))) uint8_t *)shared;
}
template <class T> __device__ __forceinline__ T *sl_shared_at(uint32_t address) {
    return (T *)(__attribute__((address_space(3))) T *)(uintptr_t)address;
}
#endif

__device__ __forceinline__ void sl_copy16(void *shared, const void *global, bool valid) {
    *(uint4 *)shared = valid ? *(const uint4 *)global : make_uint4(0, 0, 0, 0);
}
__device__ __forceinline__ void sl_copy16_at(uint32_t shared, uintptr_t global) {
    *sl_shared_at<uint4>(shared) = *(const uint4 *)global;
}
__device__ __forceinline__ void sl_copy4(float *shared, const float *global) {
    *shared = *global;
}
__device__ __forceinline__ void sl_copy_wait(void) {}
__device__ __forceinline__ void sl_copy_commit(void) {}
__device__ __forceinline__ void sl_copy_wait_but_one(void) {}
__device__ __forceinline__ void sl_prefetch(const void *) {}

#ifndef SL_MACHINE_FRAGMENTS
/* Where row `row` of a lane's address is: lane `lane` of the warp says. */
__device__ __forceinline__ const uint8_t *sl_row_at(uint32_t mine, uint32_t lane) {
    return sl_shared_at<const uint8_t>((uint32_t)sl_shfl((int)mine, (int)lane));
}
template <int N> __device__ __forceinline__ void sl_ldmatrix(uint32_t *r, const void *shared) {
    uint32_t mine = sl_shared_address(shared), lane = threadIdx.x % SL_WARP;
#pragma unroll
    for (int i = 0; i < N; i++)
        r[i] = *(const uint32_t *)(sl_row_at(mine, 8 * i + lane / 4) + 4 * (lane % 4));
}
__device__ __forceinline__ void sl_ldmatrix4(uint32_t r[4], const void *shared) {
    sl_ldmatrix<4>(r, shared);
}
__device__ __forceinline__ void sl_ldmatrix2(uint32_t r[2], const void *shared) {
    sl_ldmatrix<2>(r, shared);
}
__device__ __forceinline__ void sl_ldmatrix4_trans(uint32_t r[4], const void *shared) {
    uint32_t mine = sl_shared_address(shared), lane = threadIdx.x % SL_WARP;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t at = 8 * i + 2 * (lane % 4);
        uint32_t lo = *(const uint16_t *)(sl_row_at(mine, at) + 2 * (lane / 4));
        r[i] = lo | (uint32_t) * (const uint16_t *)(sl_row_at(mine, at + 1) + 2 * (lane / 4)) << 16;
    }
}

/* each(i, a, b) for what of a row of A and a column of B makes c[i]: those lanes' registers. */
template <int HALVES, class F>
__device__ __forceinline__ void sl_mma_each(const uint32_t *a, const uint32_t *b, const F &each) {
    uint32_t lane = threadIdx.x % SL_WARP;
#pragma unroll
    for (uint32_t quarter = 0; quarter < 4; quarter++)
#pragma unroll
        for (int half = 0; half < HALVES; half++) {
            int row = (int)(lane / 4 * 4 + quarter), col = (int)(lane % 4 * 8 + quarter);
            uint32_t x0 = (uint32_t)sl_shfl((int)a[2 * half], row);
            uint32_t x1 = (uint32_t)sl_shfl((int)a[2 * half + 1], row);
            uint32_t y0 = (uint32_t)sl_shfl((int)b[half], col);
            uint32_t y1 = (uint32_t)sl_shfl((int)b[half], col + 4);
            each(0, x0, y0);
            each(1, x0, y1);
            each(2, x1, y0);
            each(3, x1, y1);
        }
}
template <int HALVES>
__device__ __forceinline__ void sl_mma_s8(int c[4], const uint32_t *a, const uint32_t *b) {
    int sum[4] = {0, 0, 0, 0};
    sl_mma_each<HALVES>(
        a, b, [&](int i, uint32_t x, uint32_t y) { sum[i] = sl_dp4a((int)x, (int)y, sum[i]); });
#pragma unroll
    for (int i = 0; i < 4; i++)
        c[i] = sum[i];
}
__device__ __forceinline__ void sl_mma_k16(int c[4], uint32_t a0, uint32_t a1, uint32_t b) {
    const uint32_t a[2] = {a0, a1};
    sl_mma_s8<1>(c, a, &b);
}
__device__ __forceinline__ void sl_mma_k32(int c[4], const uint32_t a[4], const uint32_t b[2]) {
    sl_mma_s8<2>(c, a, b);
}
__device__ __forceinline__ void sl_mma_u8_k32(int c[4], const uint32_t a[4], const uint32_t b[2]) {
    int sum[4] = {0, 0, 0, 0};
    sl_mma_each<2>(a, b, [&](int i, uint32_t x, uint32_t y) { sum[i] = sl_dp4a_u8(x, y, sum[i]); });
#pragma unroll
    for (int i = 0; i < 4; i++)
        c[i] = sum[i];
}
__device__ __forceinline__ void sl_mma_f16(float c[4], const uint32_t a[4], uint32_t b0,
                                           uint32_t b1) {
    const uint32_t b[2] = {b0, b1};
    sl_mma_each<2>(a, b, [&](int i, uint32_t x, uint32_t y) {
        c[i] = fmaf(sl_f16(x & 0xffff), sl_f16(y & 0xffff), c[i]);
        c[i] = fmaf(sl_f16(x >> 16), sl_f16(y >> 16), c[i]);
    });
}

#endif

#endif
