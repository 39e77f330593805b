/* What a kernel of backends/kernels/ finds instead of CUDA's headers when it is compiled as C++ for
 * the CPU (-include; simt.h says how it runs). Only what kernels use: another is a compiler's
 * error. With SIMT_HIP it is compiled as HIP's compiler would, with machine_hip.cuh as it is, and
 * hip/hip_runtime.h beside this has what it asks of that compiler.
 *
 * __shared__ is thread_local: a declaration of it may be extern, as that of dynamic shared memory
 * is, and the emulator finds all of them at once, as the thread's part of this shared object. */
#ifndef SL_TESTS_SUPPORT_SIMT_KERNEL_H
#define SL_TESTS_SUPPORT_SIMT_KERNEL_H

#include "tests/support/simt/simt.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef SIMT_HIP
#define __HIP__ 1
#else
#define SL_MACHINE    "tests/support/simt/machine.h"
#define __CUDA_ARCH__ 900
#endif

#define __global__ __attribute__((visibility("default")))
#define __device__
#define __host__
#define __shared__      thread_local
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__    __attribute__((noinline))
#define __align__(n)    __attribute__((aligned(n)))
#define __grid_constant__
#define __launch_bounds__(...)

#define threadIdx simt_place.thread
#define blockIdx  simt_place.block
#define blockDim  simt_place.block_dim
#define gridDim   simt_place.grid_dim

struct alignas(8) uint2 {
    uint32_t x, y;
};
struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};
struct alignas(8) int2 {
    int x, y;
};
struct alignas(16) int4 {
    int x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
static inline uint2 make_uint2(uint32_t x, uint32_t y) {
    return {x, y};
}
static inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) {
    return {x, y, z, w};
}
static inline int4 make_int4(int x, int y, int z, int w) {
    return {x, y, z, w};
}
static inline float2 make_float2(float x, float y) {
    return {x, y};
}
static inline float4 make_float4(float x, float y, float z, float w) {
    return {x, y, z, w};
}

#include "tests/support/simt/half.h"

/* Barriers, and where in the source a thread comes to one. */
#define SIMT_PLACE const char *file = __builtin_FILE(), int line = __builtin_LINE()
static inline void __syncthreads(SIMT_PLACE) {
    int any, all;
    simt_block(0, &any, &all, file, line);
}
static inline int __syncthreads_or(int is, SIMT_PLACE) {
    int any, all;
    simt_block(is, &any, &all, file, line);
    return any;
}
static inline int __syncthreads_and(int is, SIMT_PLACE) {
    int any, all;
    simt_block(is, &any, &all, file, line);
    return all;
}
static inline void __threadfence(void) {}
static inline void __threadfence_block(void) {}
static inline void __threadfence_system(void) {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/* Lanes of a warp. A lane of which there is none gives the caller's own value. */
template <class T>
static inline T simt_shuffle(uint32_t mask, const char *what, T v, uint32_t from) {
    static_assert(sizeof(T) <= SIMT_VALUE_BYTES, "a value of a lane");
    const char *all = (const char *)simt_warp(mask, what, &v, sizeof v);
    T got;
    memcpy(&got, all + (from < SIMT_LANES ? from : simt_lane()) * SIMT_VALUE_BYTES, sizeof got);
    return got;
}
static inline uint32_t simt_vote(uint32_t mask, int is) {
    const char *all = (const char *)simt_warp(mask, "a vote", &is, sizeof is);
    uint32_t bits = 0;
    for (uint32_t i = 0; i < SIMT_LANES; i++) {
        int of;
        memcpy(&of, all + i * SIMT_VALUE_BYTES, sizeof of);
        bits |= (uint32_t)(of != 0) << i;
    }
    return bits;
}

#ifndef SIMT_HIP
static inline void __syncwarp(uint32_t mask = 0xffffffffu) {
    simt_warp(mask, "__syncwarp", NULL, 0);
}
template <class T> static inline T __shfl_sync(uint32_t mask, T v, int lane) {
    return simt_shuffle(mask, "__shfl_sync", v, (uint32_t)lane % SIMT_LANES);
}
template <class T> static inline T __shfl_xor_sync(uint32_t mask, T v, int by) {
    return simt_shuffle(mask, "__shfl_xor_sync", v, simt_lane() ^ (uint32_t)by);
}
template <class T> static inline T __shfl_up_sync(uint32_t mask, T v, unsigned by) {
    return simt_shuffle(mask, "__shfl_up_sync", v, simt_lane() - by);
}
template <class T> static inline T __shfl_down_sync(uint32_t mask, T v, unsigned by) {
    return simt_shuffle(mask, "__shfl_down_sync", v, simt_lane() + by);
}
static inline uint32_t __ballot_sync(uint32_t mask, int is) {
    return simt_vote(mask, is);
}
static inline int __any_sync(uint32_t mask, int is) {
    return simt_vote(mask, is) != 0;
}
static inline int __all_sync(uint32_t mask, int is) {
    return simt_vote(mask, !is) == 0;
}
static inline int __reduce_max_sync(uint32_t mask, int v) {
    const char *all = (const char *)simt_warp(mask, "__reduce_max_sync", &v, sizeof v);
    for (uint32_t i = 0; i < SIMT_LANES; i++) {
        int of;
        memcpy(&of, all + i * SIMT_VALUE_BYTES, sizeof of);
        v = of > v ? of : v;
    }
    return v;
}
template <class T> static inline T __ldcg(const T *p) {
    return *p;
}
#endif

/* Memory. */
template <class T> static inline T __ldg(const T *p) {
    return *p;
}
template <class T> static inline T __ldcs(const T *p) {
    return *p;
}
/* One lane runs at a time. */
template <class T> static inline T atomicAdd(T *p, T v) {
#ifdef SIMT_HIP
    simt_atomic();
#endif
    T was = *p;
    *p = was + v;
    return was;
}
template <class T> static inline T atomicMax(T *p, T v) {
#ifdef SIMT_HIP
    simt_atomic();
#endif
    T was = *p;
    *p = was < v ? v : was;
    return was;
}

/* Arithmetic. */
static inline int __float_as_int(float f) {
    return (int)simt_as_bits(f);
}
static inline uint32_t __float_as_uint(float f) {
    return simt_as_bits(f);
}
static inline float __int_as_float(int bits) {
    return simt_as_float((uint32_t)bits);
}
static inline float __uint_as_float(uint32_t bits) {
    return simt_as_float(bits);
}
static inline long long __double_as_longlong(double d) {
    long long bits;
    memcpy(&bits, &d, sizeof bits);
    return bits;
}
static inline double __longlong_as_double(long long bits) {
    double d;
    memcpy(&d, &bits, sizeof d);
    return d;
}
static inline int __float2int_rn(float f) {
    if (f != f)
        return 0;
    return f >= 0x1p31f ? INT32_MAX : f <= -0x1p31f ? INT32_MIN : (int)rintf(f);
}
static inline int __popc(uint32_t v) {
    return __builtin_popcount(v);
}
static inline int __popcll(unsigned long long v) {
    return __builtin_popcountll(v);
}
static inline int __clz(int v) {
    return v ? __builtin_clz((uint32_t)v) : 32;
}
static inline int __ffs(int v) {
    return __builtin_ffs(v);
}
static inline int __dp4a(int a, int b, int c) {
    for (int i = 0; i < 4; i++)
        c += (int)(int8_t)((uint32_t)a >> 8 * i) * (int8_t)((uint32_t)b >> 8 * i);
    return c;
}
static inline int simt_dp4a_u8(uint32_t a, uint32_t b, int c) {
    for (int i = 0; i < 4; i++)
        c += (int)(uint8_t)(a >> 8 * i) * (int8_t)(b >> 8 * i);
    return c;
}
static inline int simt_dp2a(int a, int b, int c, int at) {
    for (int i = 0; i < 2; i++)
        c += (int)(int16_t)((uint32_t)a >> 16 * i) * (int8_t)((uint32_t)b >> 8 * (at + i));
    return c;
}
static inline int __dp2a_lo(int a, int b, int c) {
    return simt_dp2a(a, b, c, 0);
}
static inline int __dp2a_hi(int a, int b, int c) {
    return simt_dp2a(a, b, c, 2);
}
static inline uint32_t __byte_perm(uint32_t lo, uint32_t hi, uint32_t select) {
    uint64_t both = (uint64_t)hi << 32 | lo;
    uint32_t out = 0;
    for (int i = 0; i < 4; i++) {
        uint32_t s = select >> 4 * i & 15, byte = (uint32_t)(both >> 8 * (s & 7)) & 255;
        if (s & 8)
            byte = byte & 128 ? 255 : 0;
        out |= byte << 8 * i;
    }
    return out;
}
static inline uint32_t __funnelshift_r(uint32_t lo, uint32_t hi, uint32_t shift) {
    return (uint32_t)(((uint64_t)hi << 32 | lo) >> (shift & 31));
}

#define SIMT_MIN_MAX(result, a_type, b_type)                                                       \
    static inline result min(a_type a, b_type b) {                                                 \
        return (result)a < (result)b ? (result)a : (result)b;                                      \
    }                                                                                              \
    static inline result max(a_type a, b_type b) {                                                 \
        return (result)a > (result)b ? (result)a : (result)b;                                      \
    }
SIMT_MIN_MAX(int, int, int)
SIMT_MIN_MAX(unsigned, unsigned, unsigned)
SIMT_MIN_MAX(unsigned, int, unsigned)
SIMT_MIN_MAX(unsigned, unsigned, int)
SIMT_MIN_MAX(unsigned long, unsigned long, unsigned long)
SIMT_MIN_MAX(float, float, float)

#endif
