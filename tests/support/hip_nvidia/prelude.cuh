/* Before each kernel source that NVRTC compiles in hipRTC's place (hiprtc.c): what HIP's compiler
 * knows and NVIDIA's does not, so that backends/kernels/machine_hip.cuh compiles as it is. AMD's
 * builtins become what NVIDIA's cards have for them; matrix fragments stay shuffles and dot
 * products, copies plain ones, and parts of a block meet by counting.
 *
 * With HIP_NVIDIA_AS_CUDA the kernels are CUDA's instead, with NVIDIA's instructions, and all that
 * is HIP's is the host side. */
#include <cuda_fp16.h>

#define __INT8_TYPE__        signed char
#define __INT16_TYPE__       short
#define __INT32_TYPE__       int
#define __INT64_TYPE__       long
#define __INTPTR_TYPE__      long
#define __UINT8_TYPE__       unsigned char
#define __UINT16_TYPE__      unsigned short
#define __UINT32_TYPE__      unsigned
#define __UINT64_TYPE__      unsigned long
#define __UINTPTR_TYPE__     unsigned long
#define __INT32_MAX__        0x7fffffff
#define __UINT32_MAX__       0xffffffffu
#define __UINT64_MAX__       0xffffffffffffffffu
#define __builtin_memcpy     memcpy
#define __builtin_inff()     __int_as_float(0x7f800000)
#define __builtin_nanf(text) __int_as_float(0x7fffffff)

#ifndef HIP_NVIDIA_AS_CUDA
#define __HIP__       1
#define __HIPCC_RTC__ 1

#undef __ATOMIC_RELAXED
#undef __ATOMIC_ACQUIRE
#undef __ATOMIC_RELEASE
#define __ATOMIC_RELAXED             0
#define __ATOMIC_ACQUIRE             2
#define __ATOMIC_RELEASE             3
#define __HIP_MEMORY_SCOPE_WORKGROUP 3
#define __HIP_MEMORY_SCOPE_SYSTEM    5

/* Lanes do not go on together here, so where HIP's waits for what its compiler may move alone,
 * lanes wait for one another. */
__device__ __forceinline__ void hip_wave_barrier(void) {
    __syncwarp();
}
#define __builtin_amdgcn_wave_barrier()      hip_wave_barrier()
#define __builtin_amdgcn_fence(order, scope) __threadfence_block()
#define __builtin_amdgcn_s_sleep(n)          __nanosleep(32 * (n))
#define __syncwarp                           hip_syncwarp

#define __shfl(v, lane, width)       __shfl_sync(0xffffffffu, v, lane, width)
#define __shfl_xor(v, mask, width)   __shfl_xor_sync(0xffffffffu, v, mask, width)
#define __shfl_up(v, lanes, width)   __shfl_up_sync(0xffffffffu, v, lanes, width)
#define __shfl_down(v, lanes, width) __shfl_down_sync(0xffffffffu, v, lanes, width)
#define __ballot(is)                 ((unsigned long long)__ballot_sync(0xffffffffu, is))
__device__ __forceinline__ unsigned hip_lane_id(void) {
    unsigned lane;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
}
#define __lane_id() hip_lane_id()

#define __builtin_amdgcn_sdot4(a, b, c, clamp)   __dp4a(a, b, c)
#define __builtin_amdgcn_alignbit(hi, lo, shift) __funnelshift_r(lo, hi, shift)
/* The bytes of sel are 0..7. */
__device__ __forceinline__ unsigned hip_perm(unsigned hi, unsigned lo, unsigned sel) {
    return __byte_perm(
        lo, hi, (sel & 7u) | (sel >> 4 & 0x70u) | (sel >> 8 & 0x700u) | (sel >> 12 & 0x7000u));
}
#define __builtin_amdgcn_perm(hi, lo, sel) hip_perm(hi, lo, sel)

__device__ __forceinline__ void hip_store(unsigned *word, unsigned value) {
    asm volatile("st.release.sys.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}
__device__ __forceinline__ unsigned hip_load(const unsigned *word, int order) {
    unsigned value;
    if (order == __ATOMIC_RELAXED)
        asm volatile("ld.relaxed.sys.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    else
        asm volatile("ld.acquire.sys.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}
#define __hip_atomic_store(word, value, order, scope) hip_store(word, value)
#define __hip_atomic_load(word, order, scope)         hip_load(word, order)

/* Address spaces are no attributes of pointers here. */
#define SL_MACHINE_SHARED
__device__ __forceinline__ unsigned sl_shared_address(const void *shared) {
    return (unsigned)__cvta_generic_to_shared(shared);
}
template <class T> __device__ __forceinline__ T *sl_shared_at(unsigned address) {
    return (T *)__cvta_shared_to_generic(address);
}
#endif
