/* What the kernels take from the compiler and the GPU: everything that differs between CUDA and HIP
 * goes through a wrapper here.
 *
 * Results are fixed to the bit: fused multiply-adds are written out (compiled with -fmad=false),
 * divisions and roots round correctly, exp is the polynomial of backends/cpu/math.h. */
#ifndef SL_BACKENDS_KERNELS_DEVICE_CUH
#define SL_BACKENDS_KERNELS_DEVICE_CUH

#include "backends/kernels/kernels.h"

#include <cuda_fp16.h>
#include <stdint.h>

#define SL_KERNEL_ARGS(type, name) const __grid_constant__ struct type name

/* Programmatic dependent launch: a kernel may be started while the one before it on its stream still
 * runs. Before sl_grid_wait() returns nothing may be written, and nothing that earlier kernels write
 * may be read but what was uploaded (whose next kernel is launched to start after it); every kernel
 * calls it, on every path, so that what has waited for one has waited for all. sl_grid_next() lets
 * the next kernel start as soon as all blocks of this one have called it. */
__device__ __forceinline__ void sl_grid_wait(void) {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void sl_grid_next(void) {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ __forceinline__ void sl_grid_begin(void) {
    sl_grid_wait();
    sl_grid_next();
}

/* A word between devices, or a device and the host. What this thread wrote before, and the threads
 * that it has met at a barrier, is there for who has seen the word. */
__device__ __forceinline__ void sl_raise_word(uint32_t *word, uint32_t value) {
    __threadfence_system();
    *(volatile uint32_t *)word = value;
}
__device__ __forceinline__ uint32_t sl_see_word(const uint32_t *word) {
    uint32_t value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}

__device__ __forceinline__ float sl_shfl_xor(float v, int mask) {
    return __shfl_xor_sync(0xffffffffu, v, mask);
}
__device__ __forceinline__ int sl_shfl_xor(int v, int mask) {
    return __shfl_xor_sync(0xffffffffu, v, mask);
}
__device__ __forceinline__ float sl_shfl_down(float v, int lanes) {
    return __shfl_down_sync(0xffffffffu, v, lanes);
}
__device__ __forceinline__ int sl_shfl(int v, int lane) {
    return __shfl_sync(0xffffffffu, v, lane);
}
__device__ __forceinline__ float sl_shfl(float v, int lane) {
    return __shfl_sync(0xffffffffu, v, lane);
}

/* sum of four products of signed bytes, plus c */
__device__ __forceinline__ int sl_dp4a(int a, int b, int c) {
    return __dp4a(a, b, c);
}
/* The same with unsigned bytes in a. */
__device__ __forceinline__ int sl_dp4a_u8(uint32_t a, uint32_t b, int c) {
    int out;
    asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(c));
    return out;
}
/* sum of two products of signed halves of a with signed bytes of b, its lower or its upper two, plus c */
__device__ __forceinline__ int sl_dp2a_lo(uint32_t a, uint32_t b, int c) {
    return __dp2a_lo((int)a, (int)b, c);
}
__device__ __forceinline__ int sl_dp2a_hi(uint32_t a, uint32_t b, int c) {
    return __dp2a_hi((int)a, (int)b, c);
}
/* Four numbers of -128 to 127 as signed bytes, v[0] the lowest. */
__device__ __forceinline__ uint32_t sl_pack_s8(int v0, int v1, int v2, int v3) {
    uint32_t out;
    asm("{\n .reg .b32 t;\n cvt.pack.sat.s8.s32.b32 t, %4, %3, 0;\n"
        " cvt.pack.sat.s8.s32.b32 %0, %2, %1, t;\n}"
        : "=r"(out)
        : "r"(v0), "r"(v1), "r"(v2), "r"(v3));
    return out;
}
/* Bytes of (hi:lo) by the nibbles of sel (0..7). */
__device__ __forceinline__ uint32_t sl_perm(uint32_t lo, uint32_t hi, uint32_t sel) {
    return __byte_perm(lo, hi, sel);
}
/* The low word of (hi:lo) >> (shift & 31). */
__device__ __forceinline__ uint32_t sl_funnel(uint32_t lo, uint32_t hi, uint32_t shift) {
    return __funnelshift_r(lo, hi, shift);
}
/* Byte i of v, signed and unsigned. */
__device__ __forceinline__ int sl_byte(uint32_t v, int i) {
    return (int)(int8_t)(v >> (8 * i));
}
__device__ __forceinline__ int sl_byte_u(uint32_t v, int i) {
    return (int)(v >> (8 * i) & 255);
}
/* N words of shared memory that begin `shift` bits into the word at p. One more is read. */
template <int N>
__device__ __forceinline__ void sl_smem_words(const uint8_t *p, uint32_t shift,
                                              uint32_t (&out)[N]) {
    const uint32_t *w = (const uint32_t *)p;
    uint32_t lo = w[0];
#pragma unroll
    for (int i = 0; i < N; i++) {
        uint32_t hi = w[i + 1];
        out[i] = sl_funnel(lo, hi, shift);
        lo = hi;
    }
}

/* 16 bytes from device to shared memory, behind the threads' back where the GPU can; zeros when
 * !valid. Then commit_and_wait, then a barrier. */
__device__ __forceinline__ void sl_copy16(void *shared, const void *global, bool valid) {
#if __CUDA_ARCH__ >= 800
    uint32_t to = (uint32_t)__cvta_generic_to_shared(shared);
    int bytes = valid ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(bytes)
                 : "memory");
#else
    *(uint4 *)shared = valid ? *(const uint4 *)global : make_uint4(0, 0, 0, 0);
#endif
}
/* The same by addresses, shared memory's as sl_shared_address() gives it: no conversion each time. */
__device__ __forceinline__ uint32_t sl_shared_address(const void *shared) {
    return (uint32_t)__cvta_generic_to_shared(shared);
}
__device__ __forceinline__ void sl_copy16_at(uint32_t shared, uintptr_t global) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(global) : "memory");
#else
    uint4 v = *(const uint4 *)global;
    asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(shared), "r"(v.x), "r"(v.y), "r"(v.z),
                 "r"(v.w)
                 : "memory");
#endif
}
__device__ __forceinline__ void sl_copy_wait(void) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;\n cp.async.wait_group 0;" ::: "memory");
#endif
}

/* Asks for the sector at this address to come to the L2 cache. */
__device__ __forceinline__ void sl_prefetch(const void *global) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(global));
}

/* Ends a batch of copies; waits for all batches but the one begun last. */
__device__ __forceinline__ void sl_copy_commit(void) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
__device__ __forceinline__ void sl_copy_wait_but_one(void) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group 1;" ::: "memory");
#endif
}

/* Matrix fragments: four (two) 8x16-byte tiles; lane l gives the address of row l % 8 of tile l /
 * 8, and receives bytes 4 * (l % 4) .. + 3 of row l / 4 of each. */
__device__ __forceinline__ void sl_ldmatrix4(uint32_t r[4], const void *shared) {
    uint32_t at = (uint32_t)__cvta_generic_to_shared(shared);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}
__device__ __forceinline__ void sl_ldmatrix2(uint32_t r[2], const void *shared) {
    uint32_t at = (uint32_t)__cvta_generic_to_shared(shared);
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(at)
                 : "memory");
}

/* c = A [16, 16] * B [16, 8] of int8. a[0]: row l/4, k 4*(l%4)..; a[1]: row l/4 + 8; b: column l/4,
 * the same k. c: row l/4, columns 2*(l%4), + 1; then row l/4 + 8. */
__device__ __forceinline__ void sl_mma_k16(int c[4], uint32_t a0, uint32_t a1, uint32_t b) {
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
        "{%7,%7,%7,%7};"
        : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
        : "r"(a0), "r"(a1), "r"(b), "r"(0));
#else
    asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%4,%4};"
        : "=r"(c[0]), "=r"(c[1])
        : "r"(a0), "r"(b), "r"(0));
    asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%4,%4};"
        : "=r"(c[2]), "=r"(c[3])
        : "r"(a1), "r"(b), "r"(0));
#endif
}
/* The same for k = 32: a[2], a[3] and b[1] are k + 16. */
__device__ __forceinline__ void sl_mma_k32(int c[4], const uint32_t a[4], const uint32_t b[2]) {
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%10,%10,%10,%10};"
        : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(0));
#else
    int e[4];
    sl_mma_k16(c, a[0], a[1], b[0]);
    sl_mma_k16(e, a[2], a[3], b[1]);
    for (int i = 0; i < 4; i++)
        c[i] += e[i];
#endif
}

/* The same with a of unsigned bytes. */
__device__ __forceinline__ void sl_mma_u8_k32(int c[4], const uint32_t a[4], const uint32_t b[2]) {
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%10,%10,%10,%10};"
        : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(0));
#else
    for (int h = 0; h < 2; h++) {
        int e[2] = {0, 0};
        for (int k = 0; k < 2; k++)
            asm("mma.sync.aligned.m8n8k16.row.col.s32.u8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};"
                : "+r"(e[0]), "+r"(e[1])
                : "r"(a[2 * k + h]), "r"(b[k]));
        c[2 * h] = e[0], c[2 * h + 1] = e[1];
    }
#endif
}

__device__ __forceinline__ float sl_f16(uint32_t bits) {
    return __half2float(__ushort_as_half((unsigned short)bits));
}

/* As sl_expf in backends/cpu/math.h, the same operations. */
__device__ __forceinline__ float sl_dev_exp(float x) {
    x = 89.0f < x ? 89.0f : x;
    x = -104.0f > x ? -104.0f : x;
    float t = fmaf(x, 0x1.715476p0f, 0x1.8p23f);
    float n = t - 0x1.8p23f;
    float r = fmaf(n, -0x1.62e4p-1f, x);
    r = fmaf(n, -0x1.7f7d1cp-20f, r);
    float p = fmaf(0x1.6a2342p-10f, r, 0x1.123a6cp-7f);
    p = fmaf(p, r, 0x1.5558f4p-5f);
    p = fmaf(p, r, 0x1.55549p-3f);
    p = fmaf(p, r, 0x1.fffffcp-2f);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    int ni = __float_as_int(t) - __float_as_int(0x1.8p23f);
    int half = ni >> 1;
    float s1 = __int_as_float((half + 127) << 23), s2 = __int_as_float((ni - half + 127) << 23);
    return p * s1 * s2;
}
/* common/fast_exp.h */
__device__ __forceinline__ float sl_dev_exp_neg(float x) {
    float clamped = x < -87.0f ? -87.0f : x;
    float shifted = clamped * 1.44269504f + 12582912.0f;
    float n = shifted - 12582912.0f;
    float r = clamped - n * 0.693359375f + n * 2.12194440e-4f;
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    return x < -87.0f ? 0.0f : p * __int_as_float((__float_as_int(shifted) + 127) << 23);
}
__device__ __forceinline__ float sl_dev_sigmoid(float x) {
    return 1.0f / (1.0f + sl_dev_exp(-x));
}
__device__ __forceinline__ float sl_dev_silu(float x) {
    return x / (1.0f + sl_dev_exp(-x));
}

/* As sl_geluf and sl_softcapf in backends/cpu/math.h, the same operations. */
__device__ __forceinline__ float sl_dev_gelu(float x) {
    float p = fmaf(x * x, 0.044715f, 1.0f);
    return x / (1.0f + sl_dev_exp(-1.5957691216f * (x * p)));
}
__device__ __forceinline__ float sl_dev_softcap(float x, float cap) {
    float e = sl_dev_exp(2.0f * (x / cap));
    return cap * (1.0f - 2.0f / (1.0f + e));
}

/* As sl_op_limited_glu. A NaN stays. */
__device__ __forceinline__ float sl_dev_limited_glu(float gate, float up, float limit) {
    float g = sl_dev_silu(gate);
    up = up > limit ? limit : up;
    up = up < -limit ? -limit : up;
    return (g > limit ? limit : g) * up;
}

/* SL_SWIGLU_CUT. A NaN stays. */
__device__ __forceinline__ float sl_dev_cut_glu(float gate, float up, float limit) {
    up = up > limit ? limit : up;
    up = up < -limit ? -limit : up;
    return sl_dev_silu(gate > limit ? limit : gate) * up;
}

/* As ln in backends/cpu/recurrent.c, the same operations, for x >= 1. */
__device__ __forceinline__ double sl_dev_ln(double x) {
    uint64_t bits = (uint64_t)__double_as_longlong(x);
    int e = (int)(bits >> 52) - 1022;
    double m = __longlong_as_double(
        (long long)((bits & 0xfffffffffffffull) | 0x3fe0000000000000ull));
    if (m < 0x1.6a09e667f3bcdp-1) {
        m *= 2;
        e--;
    }
    double s = (m - 1) / (m + 1), s2 = s * s, p = 1.0 / 15;
#pragma unroll
    for (int i = 13; i > 0; i -= 2)
        p = p * s2 + 1.0 / i;
    return 2 * s * p + e * 0x1.62e42fefa39efp-1;
}
__device__ __forceinline__ float sl_dev_softplus(float x) {
    return x > 20.0f ? x : (float)sl_dev_ln(1.0 + (double)sl_dev_exp(x));
}

/* `threads` threads of a block, whole warps, meet at its barrier `id` (1 to 15). */
__device__ __forceinline__ void sl_meet(uint32_t id, uint32_t threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* Sum over the lanes of a warp; every lane gets the same bits. */
__device__ __forceinline__ float sl_warp_sum(float v) {
#pragma unroll
    for (int m = 16; m; m /= 2)
        v += sl_shfl_xor(v, m);
    return v;
}
__device__ __forceinline__ float sl_warp_max(float v) {
#pragma unroll
    for (int m = 16; m; m /= 2)
        v = fmaxf(v, sl_shfl_xor(v, m));
    return v;
}
/* Whether it is so in any lane of a warp. */
__device__ __forceinline__ bool sl_warp_any(bool is) {
    return __any_sync(0xffffffffu, is) != 0;
}
/* The first lane of a warp in which it is so; UINT32_MAX: none. */
__device__ __forceinline__ uint32_t sl_warp_first(bool is) {
    return (uint32_t)__ffs((int)__ballot_sync(0xffffffffu, is)) - 1u;
}
/* The largest of the lanes' numbers; every lane gets it. */
__device__ __forceinline__ int sl_warp_max_int(int v) {
#if __CUDA_ARCH__ >= 800
    return __reduce_max_sync(0xffffffffu, v);
#else
#pragma unroll
    for (int m = 16; m; m /= 2)
        v = max(v, sl_shfl_xor(v, m));
    return v;
#endif
}

#endif
