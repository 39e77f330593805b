/* One input row times weight rows that lie in shared memory as in the file, a thread a block: what
 * experts of a few pairs are made of. A block of threads asks for all of its weights at once, so
 * that as many bytes are on their way as it has shared memory, with no registers that wait for them
 * and no work for each but the copying; the kernel after it has room for copies that overlap these.
 * No lane has to add what others have, and scales are unpacked once.
 *
 * The bits are those of vec.cuh: a block's integer sums are exact, and what they come to joins the
 * float sum block by block in ascending order. */
#ifndef SL_BACKENDS_KERNELS_BLOCK_VEC_CUH
#define SL_BACKENDS_KERNELS_BLOCK_VEC_CUH

#include "backends/kernels/quant.cuh"
#include "backends/kernels/quantize.cuh"

/* 256 elements of a quantised input row in shared memory: SL_BLOCK_GROUP_BYTES, which puts
 * consecutive groups into banks of their own. */
struct alignas(16) sl_block_group {
    int8_t q[256];
    int16_t sum[16]; /* of 16 each; where SUM32, the first 8 of 32 each */
    float d;
    uint32_t spread[3];
};
/* The same 256 for 32-element types: the first halves of eight blocks, then the second ones, so
 * that threads with a block each read consecutive 16 bytes. */
struct alignas(16) sl_block_group32 {
    int8_t q[2][8][16];
    float d[8];
    uint32_t spread[4];
};
static_assert(sizeof(struct sl_block_group) == SL_BLOCK_GROUP_BYTES &&
                  sizeof(struct sl_block_group32) == SL_BLOCK_GROUP_BYTES,
              "the host reckons with it");

/* x: what sl_quantize_fetch() gave; by one warp. */
template <bool SUM32>
__device__ __forceinline__ void sl_block_put(const float (&x)[8], struct sl_block_group *to) {
    uint32_t lane = threadIdx.x % SL_WARP;
    struct sl_quantized v;
    sl_quantize_values<false>(x, v);
    *(uint2 *)(to->q + lane * 8) = make_uint2(v.q[0], v.q[1]);
    if (SUM32)
        v.sum += sl_shfl_xor(v.sum, 2);
    if (lane % (SUM32 ? 4 : 2) == 0)
        to->sum[lane / (SUM32 ? 4 : 2)] = (int16_t)v.sum;
    if (lane == 0)
        to->d = v.d;
}

__device__ __forceinline__ void sl_block_put32(const float (&x)[8], struct sl_block_group32 *to) {
    uint32_t lane = threadIdx.x % SL_WARP;
    struct sl_quantized v;
    sl_quantize_values<true>(x, v);
    *(uint2 *)(to->q[lane % 4 / 2][lane / 4] + lane % 2 * 8) = make_uint2(v.q[0], v.q[1]);
    if (lane % 4 == 0)
        to->d[lane / 4] = v.d;
}

/* Copies `bytes` bytes, a multiple of 2, from anywhere to a 16-byte boundary of shared memory by
 * threads `thread` of n_threads; then sl_copy_wait() and a barrier. Up to 14 bytes more are
 * written. What is read stays within the aligned 16 bytes that hold the source's. */
__device__ __forceinline__ void sl_block_copy(void *shared, const uint8_t *from, uint32_t bytes,
                                              uint32_t thread, uint32_t n_threads) {
    uintptr_t src = (uintptr_t)from;
    if ((src & 15) == 0) {
        uint32_t to = sl_shared_address(shared);
#pragma unroll 4
        for (uint32_t at = thread * 16; at < bytes; at += n_threads * 16)
            sl_copy16_at(to + at, src + at);
        return;
    }
    uintptr_t last = (src + bytes - 1) & ~(uintptr_t)3;
    uint32_t shift = (uint32_t)(src & 3) * 8;
#pragma unroll 1
    for (uint32_t at = thread * 4; at < bytes; at += n_threads * 4) {
        uintptr_t lo = (src + at) & ~(uintptr_t)3, hi = lo + 4 < last ? lo + 4 : last;
        *(uint32_t *)((uint8_t *)shared + at) =
            sl_funnel(__ldg((const uint32_t *)lo), __ldg((const uint32_t *)hi), shift);
    }
}

/* What a block comes to: exact integers, and the floats that they are multiplied with. */
struct sl_block_sums {
    int sum, min;
    float d, dmin;
};

/* sl_block<T>: ELEMS and BYTES of a block, HAS_MIN, and
 *   dot<N>(w, x, out)         N blocks of 256 in shared memory times one group
 *   dot<N>(w, x, part, out)   N blocks of 32 times the part-th of a group's
 * Blocks lie one after the other from a 16-byte boundary on. */
template <int T> struct sl_block;

__device__ __forceinline__ uint4 sl_smem16(const void *p) {
    return *(const uint4 *)p;
}
/* 16 bytes of weights, unsigned, with 16 of input. */
__device__ __forceinline__ int sl_dot16(const uint32_t (&w)[4], const uint4 &x, int c) {
    c = sl_dp4a_u8(w[0], x.x, c);
    c = sl_dp4a_u8(w[1], x.y, c);
    c = sl_dp4a_u8(w[2], x.z, c);
    return sl_dp4a_u8(w[3], x.w, c);
}

/* Q4_K and Q5_K: d dmin scales[12] (high bits [32]) qs[128]. */
template <int HIGH_BYTES> struct sl_block_k45 {
    static constexpr bool HAS_MIN = true;
    static constexpr uint32_t ELEMS = 256, BYTES = 144 + HIGH_BYTES;

    /* 16 bytes: low nibbles, high ones, with their fifth bits where there are any; else high ones
     * stay where they lie, 16 times as large. */
    __device__ __forceinline__ static void unpack(const uint8_t *w, uint32_t c, uint32_t seg,
                                                  uint32_t (&lo)[4], uint32_t (&hi)[4]) {
        uint4 q = sl_smem16(w + 16 + HIGH_BYTES + c * 32 + seg * 16);
        uint4 f = HIGH_BYTES ? sl_smem16(w + 16 + seg * 16) : q;
        uint32_t n[4] = {q.x, q.y, q.z, q.w}, h[4] = {f.x, f.y, f.z, f.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            lo[i] = n[i] & 0x0f0f0f0fu;
            hi[i] = n[i] & 0xf0f0f0f0u;
            if (HIGH_BYTES) {
                lo[i] |= (h[i] >> (2 * c) & 0x01010101u) << 4;
                hi[i] = hi[i] >> 4 | (h[i] >> (2 * c + 1) & 0x01010101u) << 4;
            }
        }
    }
    template <int N>
    __device__ __forceinline__ static void dot(const uint8_t *const (&w)[N],
                                               const struct sl_block_group *x,
                                               struct sl_block_sums (&out)[N]) {
        uint4 head[N];
        int top[N]; /* of high nibbles where they lie: 16 times their sum, below 2^29 */
#pragma unroll
        for (int m = 0; m < N; m++) {
            head[m] = sl_smem16(w[m]);
            out[m].d = sl_f16(head[m].x & 0xffff) * x->d;
            out[m].dmin = -(sl_f16(head[m].x >> 16) * x->d);
            out[m].sum = out[m].min = top[m] = 0;
        }
#pragma unroll
        for (uint32_t half = 0; half < 2; half++) {
            uint2 s = *(const uint2 *)(x->sum + half * 4);
            uint32_t sc[N];
#pragma unroll
            for (int m = 0; m < N; m++) {
                uint32_t mins =
                    half ? (head[m].w >> 4 & 0x0f0f0f0fu) | (head[m].z >> 2 & 0x30303030u)
                         : head[m].z & 0x3f3f3f3fu;
                sc[m] = half ? (head[m].w & 0x0f0f0f0fu) | (head[m].y >> 2 & 0x30303030u)
                             : head[m].y & 0x3f3f3f3fu;
                out[m].min = sl_dp2a_hi(s.y, mins, sl_dp2a_lo(s.x, mins, out[m].min));
            }
#pragma unroll
            for (uint32_t i = 0; i < 2; i++) {
                uint32_t c = half * 2 + i;
                int a[N], b[N];
#pragma unroll
                for (uint32_t seg = 0; seg < 2; seg++) {
                    uint4 xa = sl_smem16(x->q + c * 64 + seg * 16);
                    uint4 xb = sl_smem16(x->q + c * 64 + 32 + seg * 16);
#pragma unroll
                    for (int m = 0; m < N; m++) {
                        uint32_t lo[4], hi[4];
                        unpack(w[m], c, seg, lo, hi);
                        a[m] = sl_dot16(lo, xa, seg ? a[m] : 0);
                        b[m] = sl_dot16(hi, xb, seg ? b[m] : 0);
                    }
                }
#pragma unroll
                for (int m = 0; m < N; m++) {
                    out[m].sum += sl_byte_u(sc[m], i * 2) * a[m];
                    (HIGH_BYTES ? out[m].sum : top[m]) += sl_byte_u(sc[m], i * 2 + 1) * b[m];
                }
            }
        }
#pragma unroll
        for (int m = 0; m < N; m++)
            out[m].sum += top[m] >> 4;
    }
};
template <> struct sl_block<SL_DTYPE_Q4_K> : sl_block_k45<0> {};
template <> struct sl_block<SL_DTYPE_Q5_K> : sl_block_k45<32> {};

/* ql[128] qh[64] scales[16] d; blocks begin at even addresses. Low and high bits are multiplied
 * where they lie, and the 32 that every element is too large by comes off through the input's sums.
 */
template <> struct sl_block<SL_DTYPE_Q6_K> {
    static constexpr bool HAS_MIN = false;
    static constexpr uint32_t ELEMS = 256, BYTES = 210;

    /* 16 elements, their high bits in field FIELD of h; low bits are in the high nibbles of l for
     * fields 2 and 3. */
    template <int FIELD>
    __device__ __forceinline__ static int group(const uint32_t (&l)[4], const uint32_t (&h)[4],
                                                const uint4 &x) {
        constexpr int UP = FIELD < 3 ? 4 - 2 * FIELD : 0;
        uint32_t a[4], b[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            a[i] = l[i] & (FIELD < 2 ? 0x0f0f0f0fu : 0xf0f0f0f0u);
            b[i] = h[i] & 0x03030303u << (2 * FIELD);
        }
        int low = sl_dot16(a, x, 0), high = sl_dot16(b, x, 0);
        return (FIELD < 2 ? low : low >> 4) + (FIELD < 3 ? high * (1 << UP) : high >> 2);
    }
    template <int N>
    __device__ __forceinline__ static void dot(const uint8_t *const (&w)[N],
                                               const struct sl_block_group *x,
                                               struct sl_block_sums (&out)[N]) {
        const uint8_t *at[N];
        uint32_t shift[N];
#pragma unroll
        for (int m = 0; m < N; m++) {
            at[m] = (const uint8_t *)((uintptr_t)w[m] & ~(uintptr_t)3);
            shift[m] = (uint32_t)((uintptr_t)w[m] & 2) * 8;
            out[m].d = sl_f16(*(const uint16_t *)(w[m] + 208)) * x->d;
            out[m].sum = out[m].min = 0;
        }
#pragma unroll
        for (uint32_t half = 0; half < 2; half++) {
            uint32_t sc[N][2];
            uint4 s = sl_smem16(x->sum + half * 8);
#pragma unroll
            for (int m = 0; m < N; m++) {
                sl_smem_words<2>(at[m] + 192 + half * 8, shift[m], sc[m]);
                int over = sl_dp2a_hi(s.y, sc[m][0], sl_dp2a_lo(s.x, sc[m][0], 0));
                over = sl_dp2a_hi(s.w, sc[m][1], sl_dp2a_lo(s.z, sc[m][1], over));
                out[m].sum -= 32 * over;
            }
#pragma unroll
            for (int seg = 0; seg < 2; seg++) {
                uint4 e[4];
#pragma unroll
                for (int f = 0; f < 4; f++)
                    e[f] = sl_smem16(x->q + half * 128 + f * 32 + seg * 16);
#pragma unroll
                for (int m = 0; m < N; m++) {
                    uint32_t h[4], l0[4], l1[4];
                    sl_smem_words<4>(at[m] + 128 + half * 32 + seg * 16, shift[m], h);
                    sl_smem_words<4>(at[m] + half * 64 + seg * 16, shift[m], l0);
                    sl_smem_words<4>(at[m] + half * 64 + 32 + seg * 16, shift[m], l1);
                    out[m].sum += sl_byte(sc[m][0], seg) * group<0>(l0, h, e[0]);
                    out[m].sum += sl_byte(sc[m][0], seg + 2) * group<1>(l1, h, e[1]);
                    out[m].sum += sl_byte(sc[m][1], seg) * group<2>(l0, h, e[2]);
                    out[m].sum += sl_byte(sc[m][1], seg + 2) * group<3>(l1, h, e[3]);
                }
            }
        }
    }
};

/* e qs[16]: five words hold a block's bytes, wherever it begins. */
template <> struct sl_block<SL_DTYPE_MXFP4> {
    static constexpr bool HAS_MIN = false;
    static constexpr uint32_t ELEMS = 32, BYTES = 17;

    template <int N>
    __device__ __forceinline__ static void dot(const uint8_t *const (&w)[N],
                                               const struct sl_block_group32 *x, uint32_t part,
                                               struct sl_block_sums (&out)[N]) {
        const uint32_t table[4] = SL_FP4_TABLE;
        uint4 a = sl_smem16(x->q[0][part]), b = sl_smem16(x->q[1][part]);
        const uint32_t xa[4] = {a.x, a.y, a.z, a.w}, xb[4] = {b.x, b.y, b.z, b.w};
        float dx = x->d[part];
#pragma unroll
        for (int m = 0; m < N; m++) {
            const uint32_t *at = (const uint32_t *)((uintptr_t)w[m] & ~(uintptr_t)3);
            uint32_t into = (uint32_t)(uintptr_t)w[m] & 3, select = 0x4321 + into * 0x1111;
            uint32_t v[5];
#pragma unroll
            for (int i = 0; i < 5; i++)
                v[i] = at[i];
            uint32_t e = v[0] >> (into * 8) & 255;
            int sum = 0;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                uint32_t low, high;
                sl_nibble_values(sl_perm(v[i], v[i + 1], select), table, low, high);
                sum = sl_dp4a((int)low, (int)xa[i], sum);
                sum = sl_dp4a((int)high, (int)xb[i], sum);
            }
            out[m].d = sl_e8m0(e) * dx;
            out[m].sum = sum;
        }
    }
};

/* d qs[32]; blocks begin at even addresses, nine words hold them. */
template <> struct sl_block<SL_DTYPE_Q8_0> {
    static constexpr bool HAS_MIN = false;
    static constexpr uint32_t ELEMS = 32, BYTES = 34;

    template <int N>
    __device__ __forceinline__ static void dot(const uint8_t *const (&w)[N],
                                               const struct sl_block_group32 *x, uint32_t part,
                                               struct sl_block_sums (&out)[N]) {
        uint4 a = sl_smem16(x->q[0][part]), b = sl_smem16(x->q[1][part]);
        const uint32_t in[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
        float dx = x->d[part];
#pragma unroll
        for (int m = 0; m < N; m++) {
            const uint32_t *at = (const uint32_t *)((uintptr_t)w[m] & ~(uintptr_t)3);
            uint32_t odd = (uint32_t)(uintptr_t)w[m] & 2, select = odd ? 0x7654 : 0x5432;
            uint32_t v[9];
            int sum = 0;
#pragma unroll
            for (int i = 0; i < 9; i++)
                v[i] = at[i];
#pragma unroll
            for (int i = 0; i < 8; i++)
                sum = sl_dp4a((int)sl_perm(v[i], v[i + 1], select), (int)in[i], sum);
            out[m].d = sl_f16(v[0] >> (odd * 8) & 0xffff) * dx;
            out[m].sum = sum;
        }
    }
};

/* N blocks, each the i-th of its row, times that of the input. */
template <int T, int N>
__device__ __forceinline__ void sl_block_dot(const uint8_t *const (&w)[N],
                                             const struct sl_block_group *in, uint32_t i,
                                             struct sl_block_sums (&out)[N]) {
    if constexpr (sl_block<T>::ELEMS == 32)
        sl_block<T>::dot(w, (const struct sl_block_group32 *)in + i / 8, i % 8, out);
    else
        sl_block<T>::dot(w, in + i, out);
}

/* A block's term waits in the block's own bytes, which nobody else needs; where in them, by the
 * row, so that reading a column of rows meets different banks. */
template <int T> __device__ __forceinline__ void *sl_block_slot(uint8_t *w, uint32_t row) {
    return sl_block<T>::HAS_MIN ? w + row % 8 * 16
                                : (uint8_t *)(((uintptr_t)w + 7) & ~(uintptr_t)7);
}
template <int T>
__device__ __forceinline__ void sl_block_store(uint8_t *w, uint32_t row,
                                               const struct sl_block_sums &v) {
    if (sl_block<T>::HAS_MIN)
        *(float4 *)sl_block_slot<T>(w, row) = make_float4(v.d, (float)v.sum, v.dmin, (float)v.min);
    else
        *(float2 *)sl_block_slot<T>(w, row) = make_float2(v.d, (float)v.sum);
}
/* A row's product from the terms of its n blocks, the first at w. */
template <int T>
__device__ __forceinline__ float sl_block_join(uint8_t *w, uint32_t row, uint32_t n) {
    float total = 0;
#pragma unroll 8
    for (uint32_t b = 0; b < n; b++, w += sl_block<T>::BYTES) {
        if (sl_block<T>::HAS_MIN) {
            float4 v = *(const float4 *)sl_block_slot<T>(w, row);
            total = fmaf(v.x, v.y, total);
            total = fmaf(v.z, v.w, total);
        } else {
            float2 v = *(const float2 *)sl_block_slot<T>(w, row);
            total = fmaf(v.x, v.y, total);
        }
    }
    return total;
}

#endif
