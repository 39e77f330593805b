/* Kernels, each with one mistake: tests/simt/test_simt.c says which, and that the emulator finds
 * it. Those named right_* have none. */
#include "backends/kernels/device.cuh"

struct wrong_args {
    float *y;
    const float *x;
    uint32_t n;
};
#define KERNEL(name) extern "C" __global__ void sl_k_##name(SL_KERNEL_ARGS(wrong_args, a))

/* y[i] = x[n - 1 - i], by way of shared memory. */
KERNEL(right_reverse) {
    __shared__ float shared[256];
    sl_grid_begin();
    shared[threadIdx.x] = a.x[threadIdx.x];
    __syncthreads();
    a.y[threadIdx.x] = shared[a.n - 1 - threadIdx.x];
}
KERNEL(no_barrier) {
    __shared__ float shared[256];
    sl_grid_begin();
    shared[threadIdx.x] = a.x[threadIdx.x];
    a.y[threadIdx.x] = shared[a.n - 1 - threadIdx.x];
}
/* The second round may overwrite what a lane has not read yet. */
KERNEL(no_second_barrier) {
    __shared__ float shared[256];
    sl_grid_begin();
    for (int round = 0; round < 4; round++) {
        shared[threadIdx.x] = a.x[threadIdx.x] + (float)round;
        __syncthreads();
        if (round == 2)
            a.y[threadIdx.x] = shared[a.n - 1 - threadIdx.x] - (float)round;
    }
}
KERNEL(right_copies) {
    extern __shared__ float shared[];
    sl_grid_begin();
    sl_copy4(shared + threadIdx.x, a.x + threadIdx.x);
    sl_copy_wait();
    __syncthreads();
    a.y[threadIdx.x] = shared[a.n - 1 - threadIdx.x];
}
KERNEL(copies_not_waited_for) {
    extern __shared__ float shared[];
    sl_grid_begin();
    sl_copy4(shared + threadIdx.x, a.x + threadIdx.x);
    sl_copy_commit();
    sl_copy_wait_but_one();
    __syncthreads();
    a.y[threadIdx.x] = shared[a.n - 1 - threadIdx.x];
}
/* Only as many lanes as others will wait for. */
KERNEL(ended_lanes) {
    sl_grid_begin();
    if (threadIdx.x >= 40)
        return;
    a.y[threadIdx.x] = sl_warp_sum(a.x[threadIdx.x]);
}
KERNEL(one_half_elsewhere) {
    sl_grid_begin();
    float v = a.x[threadIdx.x];
    if (threadIdx.x % 32 < 16)
        v = sl_shfl_xor(v, 1);
    else
        __syncwarp();
    a.y[threadIdx.x] = v;
}
KERNEL(barrier_for_more) {
    sl_grid_begin();
    sl_meet(1, 512);
    a.y[threadIdx.x] = a.x[threadIdx.x];
}
KERNEL(reads_beyond) {
    sl_grid_begin();
    a.y[threadIdx.x] = a.x[a.n + threadIdx.x];
}
KERNEL(misaligned) {
    sl_grid_begin();
    float2 v = *(const float2 *)(a.x + 1);
    a.y[threadIdx.x] = v.x + v.y;
}
KERNEL(more_shared_than_asked) {
    extern __shared__ float shared[];
    sl_grid_begin();
    shared[a.n] = 1;
    a.y[threadIdx.x] = a.x[threadIdx.x];
}
KERNEL(never_waits) {
    a.y[threadIdx.x] = a.x[threadIdx.x];
}
/* Some meet before they wait, others behind it: wrong with SIMT_MEET alone. */
KERNEL(waits_apart) {
    if (threadIdx.x < 64)
        __syncthreads();
    sl_grid_begin();
    if (threadIdx.x >= 64)
        __syncthreads();
    a.y[threadIdx.x] = a.x[a.n - 1 - threadIdx.x];
}
/* Which block is last rests on the order of blocks. */
KERNEL(last_block_wins) {
    sl_grid_begin();
    a.y[threadIdx.x] = (float)blockIdx.x;
}
/* What a block finds in shared memory is no other block's. */
KERNEL(reads_what_others_wrote) {
    __shared__ float shared[256];
    sl_grid_begin();
    if (blockIdx.x % 2)
        shared[threadIdx.x] = a.x[threadIdx.x];
    else
        a.y[threadIdx.x] = shared[threadIdx.x];
}
/* Fragments by their published layout, on HIP by shuffles: A [16, 32] has row * 32 + k as its bytes
 * modulo 7, B [32, 8] k + 3 * column modulo 5. y [16, 8]. */
KERNEL(right_mma) {
    sl_grid_begin();
    uint32_t lane = threadIdx.x, g = lane / 4, quad = lane % 4, ra[4] = {}, rb[2] = {};
    for (uint32_t i = 0; i < 4; i++) {
        for (uint32_t h = 0; h < 4; h++) {
            uint32_t row = g + h % 2 * 8, k = h / 2 * 16 + quad * 4 + i;
            ra[h] |= (row * 32 + k) % 7 << 8 * i;
        }
        for (uint32_t h = 0; h < 2; h++)
            rb[h] |= (h * 16 + quad * 4 + i + 3 * g) % 5 << 8 * i;
    }
    int c[4];
    sl_mma_k32(c, ra, rb);
    for (uint32_t i = 0; i < 4; i++)
        a.y[(g + i / 2 * 8) * 8 + quad * 2 + i % 2] = (float)c[i];
}
/* All of a block meet, again and again, and parts of it. */
KERNEL(right_meets) {
    __shared__ float shared[256];
    sl_grid_begin();
    for (int round = 0; round < 3; round++) {
        shared[threadIdx.x] = a.x[threadIdx.x] + (float)round;
        sl_meet(1, 256);
        float v = shared[a.n - 1 - threadIdx.x] - (float)round;
        sl_meet(2 + threadIdx.x / 128, 128);
        a.y[threadIdx.x] = v;
        sl_meet(1, 256);
    }
}
/* A warp's own bits, whatever the other one of its wave votes. */
KERNEL(right_votes) {
    sl_grid_begin();
    uint32_t lane = threadIdx.x % SL_WARP, warp = threadIdx.x / SL_WARP;
    bool right = sl_ballot(lane % 8 == warp) == 0x01010101u << warp &&
                 sl_warp_first(lane > warp) == warp + 1 && sl_warp_any(lane == warp) &&
                 !sl_warp_any(lane == SL_WARP);
    a.y[threadIdx.x] = right ? a.x[a.n - 1 - threadIdx.x] : 0;
}
/* The warps of a wave of 64 come to a barrier of the block apart. */
KERNEL(barrier_in_each_half) {
    __shared__ float shared[256];
    sl_grid_begin();
    shared[threadIdx.x] = a.x[threadIdx.x];
    if (threadIdx.x / SL_WARP % 2)
        __syncthreads();
    else
        __syncthreads();
    a.y[threadIdx.x] = shared[a.n - 1 - threadIdx.x];
}
/* They wait for each other, in two places. */
KERNEL(half_waits_for_half) {
    __shared__ float shared[256];
    sl_grid_begin();
    shared[threadIdx.x] = a.x[threadIdx.x];
    if (threadIdx.x / SL_WARP % 2) {
        sl_meet(1, 256);
        sl_meet(2, 128);
    } else {
        sl_meet(1, 256);
        sl_meet(3, 128);
    }
    a.y[threadIdx.x] = shared[a.n - 1 - threadIdx.x];
}
