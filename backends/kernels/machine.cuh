/* What differs between the machines that kernels are compiled for: CUDA's and HIP's compilers, and
 * the tests' emulator. All else in this folder is common to them: no kernel has assembly, or a
 * number of lanes, of its own.
 *
 * SL_MACHINE, where it is defined, names a header that has what is assembly for CUDA. */
#ifndef SL_BACKENDS_KERNELS_MACHINE_CUH
#define SL_BACKENDS_KERNELS_MACHINE_CUH

#include "backends/kernels/kernels.h"

#include <stdint.h>

#define SL_KERNEL_ARGS(type, name) const __grid_constant__ struct type name

#ifdef __HIP__
#include "backends/kernels/machine_hip.cuh"
#else

#include <cuda_fp16.h>

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
__device__ __forceinline__ uint32_t sl_shfl_up(uint32_t v, int lanes) {
    return __shfl_up_sync(0xffffffffu, v, (unsigned)lanes);
}

/* A bit for each lane of a warp in which it is so. */
__device__ __forceinline__ uint32_t sl_ballot(bool is) {
    return __ballot_sync(0xffffffffu, is);
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
    for (int m = SL_WARP / 2; m; m /= 2)
        v = max(v, sl_shfl_xor(v, m));
    return v;
#endif
}

/* sum of four products of signed bytes, plus c */
__device__ __forceinline__ int sl_dp4a(int a, int b, int c) {
    return __dp4a(a, b, c);
}
/* sum of two products of signed halves of a with signed bytes of b, its lower or its upper two,
 * plus c */
__device__ __forceinline__ int sl_dp2a_lo(uint32_t a, uint32_t b, int c) {
    return __dp2a_lo((int)a, (int)b, c);
}
__device__ __forceinline__ int sl_dp2a_hi(uint32_t a, uint32_t b, int c) {
    return __dp2a_hi((int)a, (int)b, c);
}

/* Bytes of (hi:lo) by the nibbles of sel (0..7). */
__device__ __forceinline__ uint32_t sl_perm(uint32_t lo, uint32_t hi, uint32_t sel) {
    return __byte_perm(lo, hi, sel);
}
/* The low word of (hi:lo) >> (shift & 31). */
__device__ __forceinline__ uint32_t sl_funnel(uint32_t lo, uint32_t hi, uint32_t shift) {
    return __funnelshift_r(lo, hi, shift);
}
__device__ __forceinline__ float sl_f16(uint32_t bits) {
    return __half2float(__ushort_as_half((unsigned short)bits));
}

#ifdef SL_MACHINE
#include SL_MACHINE
#else

/* Programmatic dependent launch: a kernel may be started while the one before it on its stream
 * still runs. Before sl_grid_wait() returns nothing may be written, and nothing that earlier
 * kernels write may be read but what was uploaded (whose next kernel is launched to start after
 * it); every kernel calls it, on every path, so that what has waited for one has waited for all.
 * sl_grid_next() lets the next kernel start as soon as all blocks of this one have called it. */
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

/* `threads` threads of a block, whole warps, meet at its barrier `id` (1 to 15). */
__device__ __forceinline__ void sl_meet(uint32_t id, uint32_t threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* sl_dp4a with unsigned bytes in a. */
__device__ __forceinline__ int sl_dp4a_u8(uint32_t a, uint32_t b, int c) {
    int out;
    asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(c));
    return out;
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
/* The same by addresses, shared memory's as sl_shared_address() gives it: no conversion each time.
 */
__device__ __forceinline__ uint32_t sl_shared_address(const void *shared) {
    return (uint32_t)__cvta_generic_to_shared(shared);
}
__device__ __forceinline__ void sl_copy16_at(uint32_t shared, uintptr_t global) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(global) : "memory");
#else
    uint4 v = *(const uint4 *)global;
    asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(shared), "r"(v.x), "r"(v.y),
                 "r"(v.z), "r"(v.w)
                 : "memory");
#endif
}
__device__ __forceinline__ void sl_copy_wait(void) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;\n cp.async.wait_group 0;" ::: "memory");
#endif
}

/* 4 bytes, likewise. */
__device__ __forceinline__ void sl_copy4(float *shared, const float *global) {
#if __CUDA_ARCH__ >= 800
    uint32_t to = (uint32_t)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(global) : "memory");
#else
    *shared = *global;
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

/* c += A [16, 16] * B [16, 8] of f16; the layout is sl_mma_k16's with pairs of f16 for bytes. */
__device__ __forceinline__ void sl_mma_f16(float c[4], const uint32_t a[4], uint32_t b0,
                                           uint32_t b1) {
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(b0));
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[2]), "r"(a[3]), "r"(b1));
#endif
}
/* sl_ldmatrix4 with each tile turned: rows of shared memory are the fragment's k. */
__device__ __forceinline__ void sl_ldmatrix4_trans(uint32_t r[4], const void *shared) {
    uint32_t at = (uint32_t)__cvta_generic_to_shared(shared);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

#endif

#endif

#endif
