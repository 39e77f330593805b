/* From blocks of weights, as they lie in shared memory, to the matrix fragments that tensor cores
 * take, and the quantised input rows that they are multiplied with: mma_vec.cuh says what for. */
#ifndef SL_BACKENDS_KERNELS_MMA_FRAG_CUH
#define SL_BACKENDS_KERNELS_MMA_FRAG_CUH

#include "backends/kernels/quant.cuh"
#include "backends/kernels/quantize.cuh"

#define SL_MMA_THREADS (SL_MATVEC_WARPS * SL_WARP)

/* Quantised input rows in shared memory. Sums of 16 elements are 64 * high + low, as in
 * sl_karg_qx. */
struct sl_mma_in {
    uint8_t *sum; /* [n_groups][8] of high[16], low[16] */
    float *d;     /* [n_groups][8] */
    uint8_t *q;   /* [rows][stride] */
    uint32_t stride, n_groups, n_in;

    __device__ __forceinline__ sl_mma_in(void *shared, uint32_t n)
        : stride(n + SL_MMA_IN_PAD), n_groups(n / 256), n_in(n) {
        sum = (uint8_t *)shared;
        d = (float *)(sum + n_groups * 256);
        q = (uint8_t *)(d + n_groups * 8);
    }
    /* Row `col` of 256-group g, by one warp. */
    __device__ __forceinline__ void put(const float (&x)[8], uint32_t col, uint32_t g) const {
        uint32_t lane = threadIdx.x % SL_WARP;
        struct sl_quantized v;
        sl_quantize_values<false>(x, v);
        *(uint2 *)(q + col * stride + g * 256 + lane * 8) = make_uint2(v.q[0], v.q[1]);
        if (lane % 2 == 0) {
            int high = (v.sum + 32) >> 6;
            int8_t *to = (int8_t *)sum + (g * 8 + col) * 32 + lane / 2;
            to[0] = (int8_t)high;
            to[16] = (int8_t)(v.sum - 64 * high);
        }
        if (lane == 0)
            d[g * 8 + col] = v.d;
    }
    /* Rows from(col), col < n, as floats, by the whole block. Then a barrier. */
    template <class FROM> __device__ __forceinline__ void quantize(FROM from, uint32_t n) const {
        uint32_t lane = threadIdx.x % SL_WARP, col = 0, g = threadIdx.x / SL_WARP;
        auto settle = [&] { /* the group after a row's last is the next row's */
                            while (col < n && g >= n_groups)
                                g -= n_groups, col++;
        };
        settle();
        float ahead[8];
        if (col < n)
            sl_quantize_fetch(from(col), n_in, g, lane, ahead);
        while (col < n) {
            float x[8];
            uint32_t at_col = col, at_g = g;
#pragma unroll
            for (int i = 0; i < 8; i++)
                x[i] = ahead[i];
            g += SL_MATVEC_WARPS;
            settle();
            if (col < n)
                sl_quantize_fetch(from(col), n_in, g, lane, ahead);
            put(x, at_col, at_g);
        }
    }
    /* n rows from `row` on that are quantised already, by the whole block. Ends with a wait for
     * this thread's copies; then a barrier. */
    __device__ __forceinline__ void copy(const struct sl_karg_qx &from, size_t row,
                                         uint32_t n) const {
        for (uint32_t col = 0; col < n; col++) {
            const uint8_t *of = (const uint8_t *)from.q + (row + col) * n_in;
            for (uint32_t i = threadIdx.x; i < n_in / 16; i += SL_MMA_THREADS)
                sl_copy16(q + col * stride + i * 16, of + i * 16, true);
        }
        const uint8_t *sums = (const uint8_t *)from.sum + row * n_groups * 32;
        for (uint32_t i = threadIdx.x; i < n * n_groups * 2; i += SL_MMA_THREADS) {
            uint32_t half = i % 2, col = i / 2 / n_groups, g = i / 2 % n_groups;
            sl_copy16(sum + (g * 8 + col) * 32 + half * 16, sums + i * 16, true);
            if (half == 0)
                d[g * 8 + col] = from.d[(row + col) * n_groups + g];
        }
        sl_copy_wait();
    }
};

/* N words of shared memory; p is a multiple of 4 * N. */
template <int N>
__device__ __forceinline__ void sl_smem_words(const uint8_t *p, uint32_t (&out)[N]) {
    if (N == 4) {
        uint4 v = *(const uint4 *)p;
        out[0] = v.x, out[1 % N] = v.y, out[2 % N] = v.z, out[3 % N] = v.w;
    } else {
        uint2 v = *(const uint2 *)p;
        out[0] = v.x, out[1 % N] = v.y;
    }
}

/* What a block of 256 comes to: exact integers, and the floats that they are multiplied with. */
struct sl_mma_sums {
    int sum[4], min[4];
    float d[2], dmin[2]; /* of the lane's two rows */
};

/* sl_frag<T>: BYTES of a block; STRIDE from row to row of an item in shared memory: what an
 * unaligned block may spread over, and so that rows lie in banks of their own.
 *   dot<ONE>(rows, shift, in, kb, col, out)   block kb of the lane's two rows times all columns, or
 *                                             times the even ones; the blocks begin shift[r] bits
 * into the words at rows[r] (0 where BYTES is a multiple of 16); col: the row of `in` that the lane
 * reads */
template <int T> struct sl_frag;

/* Q4_K and Q5_K: a lane has 8 consecutive elements of each 32. */
template <int HIGH_BYTES> struct sl_frag_k45 {
    static constexpr bool HAS_MIN = true;
    static constexpr uint32_t BYTES = 144 + HIGH_BYTES;

    /* The 6-bit scales and minima of eight sub-blocks: bytes of sc, and this lane's two minima,
     * each twice, as a fragment over the sums of 16. */
    __device__ __forceinline__ static void head(const uint32_t (&w)[4], uint32_t part,
                                                uint32_t (&sc)[2], uint32_t &mins) {
        sc[0] = w[1] & 0x3f3f3f3fu;
        sc[1] = (w[3] & 0x0f0f0f0fu) | (w[1] >> 2 & 0x30303030u);
        uint32_t m0 = w[2] & 0x3f3f3f3fu;
        uint32_t m1 = (w[3] >> 4 & 0x0f0f0f0fu) | (w[2] >> 2 & 0x30303030u);
        mins = sl_perm(part < 2 ? m0 : m1, 0, part % 2 ? 0x3322 : 0x1100);
    }
    template <bool ONE>
    __device__ __forceinline__ static void dot(const uint8_t *const (&row)[2],
                                               const uint32_t (&)[2], const struct sl_mma_in &in,
                                               uint32_t kb, uint32_t col, struct sl_mma_sums &out) {
        uint32_t part = threadIdx.x % 4, sc[2][2], mins[2], high[2][2] = {{0, 0}, {0, 0}};
#pragma unroll
        for (int r = 0; r < 2; r++) {
            uint32_t w[4];
            sl_smem_words<4>(row[r], w);
            out.d[r] = sl_f16(w[0] & 0xffff), out.dmin[r] = sl_f16(w[0] >> 16);
            head(w, part, sc[r], mins[r]);
            if (HIGH_BYTES)
                sl_smem_words<2>(row[r] + 16 + part * 8, high[r]);
        }
        const uint8_t *x = in.q + col * in.stride + kb * 256 + part * 8;
        int top[4]; /* of high nibbles where they lie: 16 times their sum, below 2^28 */
#pragma unroll
        for (int i = 0; i < 4; i++)
            out.sum[i] = top[i] = 0;
#pragma unroll
        for (int c = 0; c < 4; c++) {
            uint32_t w[2][2];
#pragma unroll
            for (int r = 0; r < 2; r++)
                sl_smem_words<2>(row[r] + 16 + HIGH_BYTES + c * 32 + part * 8, w[r]);
#pragma unroll
            for (int half = 0; half < 2; half++) {
                uint32_t a[4], b[2];
                uint2 v = *(const uint2 *)(x + c * 64 + half * 32);
                b[0] = v.x, b[1] = v.y;
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    uint32_t n = w[i % 2][i / 2], h = high[i % 2][i / 2];
                    int bit = 2 * c + half;
                    if (HIGH_BYTES)
                        a[i] = (n >> (4 * half) & 0x0f0f0f0fu) |
                               ((bit < 4 ? h << (4 - bit) : h >> (bit - 4)) & 0x10101010u);
                    else
                        a[i] = n & (half ? 0xf0f0f0f0u : 0x0f0f0f0fu);
                }
                int s[4];
                sl_mma_u8_k32(s, a, b);
#pragma unroll
                for (int i = 0; i < 4; i += ONE ? 2 : 1)
                    (half && !HIGH_BYTES ? top : out.sum)[i] +=
                        sl_byte(sc[i / 2][c / 2], c % 2 * 2 + half) * s[i];
            }
        }
        const uint8_t *sums = in.sum + (kb * 8 + col) * 32 + part * 4;
        int over[4], rest[4];
        sl_mma_k16(over, mins[0], mins[1], *(const uint32_t *)sums);
        sl_mma_k16(rest, mins[0], mins[1], *(const uint32_t *)(sums + 16));
#pragma unroll
        for (int i = 0; i < 4; i++) {
            out.min[i] = 64 * over[i] + rest[i];
            if (!HIGH_BYTES)
                out.sum[i] += top[i] >> 4;
        }
    }
};
template <> struct sl_frag<SL_DTYPE_Q4_K> : sl_frag_k45<0> {
    static constexpr uint32_t STRIDE = SL_MMA_STRIDE_Q4_K;
};
template <> struct sl_frag<SL_DTYPE_Q5_K> : sl_frag_k45<32> {
    static constexpr uint32_t STRIDE = SL_MMA_STRIDE_Q5_K;
};

/* A lane has 4 consecutive elements of each 16. A byte holds 4 * (value - 32): the six bits at the
 * top, and the highest of them flipped makes the 32 less. The sums, a multiple of 4, stay below
 * 2^30. */
template <> struct sl_frag<SL_DTYPE_Q6_K> {
    static constexpr bool HAS_MIN = false;
    static constexpr uint32_t BYTES = 210, STRIDE = SL_MMA_STRIDE_Q6_K;

    template <bool ONE>
    __device__ __forceinline__ static void
    dot(const uint8_t *const (&row)[2], const uint32_t (&shift)[2], const struct sl_mma_in &in,
        uint32_t kb, uint32_t col, struct sl_mma_sums &out) {
        uint32_t part = threadIdx.x % 4, sc[2][5];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            sl_smem_words<5>(row[r] + 192, shift[r], sc[r]);
            out.d[r] = sl_f16(sc[r][4] & 0xffff);
        }
        const uint8_t *x = in.q + col * in.stride + kb * 256 + part * 4;
#pragma unroll
        for (int i = 0; i < 4; i++)
            out.sum[i] = 0;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t h[2][2];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                uint32_t w[1];
                sl_smem_words<1>(row[i % 2] + 128 + half * 32 + i / 2 * 16 + part * 4, shift[i % 2],
                                 w);
                h[i % 2][i / 2] = w[0] ^ 0xaaaaaaaau;
            }
#pragma unroll
            for (int seg = 0; seg < 4; seg++) {
                uint32_t l[2];
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    uint32_t w[1];
                    sl_smem_words<1>(row[r] + half * 64 + seg * 16 + part * 4, shift[r], w);
                    l[r] = w[0];
                }
#pragma unroll
                for (int top = 0; top < 2; top++) {
                    int group = half * 8 + top * 4 + seg, bits = seg / 2 * 2 + top * 4;
                    uint32_t a[2];
#pragma unroll
                    for (int r = 0; r < 2; r++)
                        a[r] = ((top ? l[r] >> 2 : l[r] << 2) & 0x3c3c3c3cu) |
                               (h[r][seg % 2] << (6 - bits) & 0xc0c0c0c0u);
                    int s[4];
                    sl_mma_k16(s, a[0], a[1], *(const uint32_t *)(x + group * 16));
#pragma unroll
                    for (int i = 0; i < 4; i += ONE ? 2 : 1)
                        out.sum[i] += sl_byte(sc[i / 2][group / 4], group % 4) * s[i];
                }
            }
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
            out.sum[i] >>= 2;
    }
};

#endif
