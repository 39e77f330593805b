/* Prefill: many rows times weights, on the integer tensor cores for quantised types.
 *
 * A block makes SL_GEMM_M output rows for a tile of N input rows: plain rows, or sorted pairs of
 * one expert. Per 256 inputs the weights' blocks are unpacked to int8 in shared memory (each once
 * for all N rows), the quantised inputs are copied beside them, and eight warps multiply: exact
 * integer sums, with the sub-scales, per block; then blocks join the float sums in ascending order,
 * the very operations of backends/cpu/cpu.h. So the bits are those of the decode kernels and of the
 * CPU, whatever the tile.
 *
 * Shared memory: weights [M][STRIDE] int8, inputs [N][STRIDE] int8, then 64 bytes for each weight
 * row and each input row:
 *   256-element types   weights: scale[16], min[16] (int8), d, dmin      inputs: sums (32 int8), d
 *   32-element types    weights: d[8], dmin[8]                           inputs: d[8], sum[8] */
#ifndef SL_BACKENDS_KERNELS_GEMM_CUH
#define SL_BACKENDS_KERNELS_GEMM_CUH

#include "backends/kernels/moe.cuh"
#include "backends/kernels/quant.cuh"

/* What a block works on. */
struct sl_gemm_tile {
    const uint8_t *w0,
        *w1; /* matrices of even and odd groups of 16 rows; the same but for GATE_UP */
    const float *bias;
    float *y;
    uint32_t o0, n_out; /* first output row */
    uint32_t begin, n;  /* input rows (positions) */
    bool add, both;
};

/* False: the block has nothing to do. */
__device__ __forceinline__ bool sl_gemm_start(const struct sl_karg_gemm &a, uint32_t tile_n,
                                              struct sl_gemm_tile &t) {
    t.both = false;
    if (!a.refs) {
        uint32_t m = 0;
        for (uint32_t i = 1; i < a.n_mat; i++)
            m = blockIdx.y >= a.first[i] ? i : m;
        const struct sl_karg_mat mat = a.mat[m];
        t.w0 = t.w1 = (const uint8_t *)mat.w;
        t.bias = mat.bias;
        t.y = mat.y;
        t.add = mat.add;
        t.n_out = mat.n_out;
        t.o0 = (blockIdx.y - a.first[m]) * SL_GEMM_M;
        t.begin = blockIdx.x * tile_n;
        t.n = min(tile_n, a.n_tok - t.begin);
        return true;
    }
    if (blockIdx.x >= *a.n_tiles)
        return false;
    const struct sl_karg_tile tile = a.tiles[blockIdx.x];
    const struct sl_karg_ref ref = a.refs[tile.expert];
    t.both = a.mode == SL_MOE_GATE_UP;
    t.w0 = (const uint8_t *)(a.mode == SL_MOE_DOWN ? ref.down
                             : a.mode == SL_MOE_UP ? ref.up
                                                   : ref.gate);
    t.w1 = t.both ? (const uint8_t *)ref.up : t.w0;
    t.n_out = a.n_out;
    t.o0 = blockIdx.y * (t.both ? SL_GEMM_M / 2 : SL_GEMM_M);
    t.begin = tile.begin;
    t.n = tile.n;
    return true;
}

/* The matrix and the output row of tile row r: with GATE_UP, 16 rows of gate and the same of up in
 * turn, so that a thread holds both. */
__device__ __forceinline__ const uint8_t *sl_gemm_row(const struct sl_gemm_tile &t, uint32_t r,
                                                      size_t row_bytes) {
    uint32_t o = t.o0 + (t.both ? r / 32 * 16 + r % 16 : r);
    o = min(o, t.n_out - 1);
    return (r / 16 % 2 ? t.w1 : t.w0) + o * row_bytes;
}

__device__ __forceinline__ bool sl_gemm_is_plain(const struct sl_karg_gemm &a) {
    return !a.refs || a.expert.is_plain;
}

/* Which row of x (or of h, by position) belongs to position pos. */
__device__ __forceinline__ uint32_t sl_gemm_source(const struct sl_karg_gemm &a, uint32_t pos) {
    if (!a.refs || a.mode == SL_MOE_DOWN)
        return pos;
    uint32_t i = a.order[pos];
    return (a.pairs ? a.pairs[i] : i) / a.k;
}

/* One result: output row o of position pos; up only with GATE_UP. PLAIN: there are no biases of
 * experts, and their activation is SwiGLU. What the others need would make the unrolled ends of all
 * products longer, 2 to 4 % of a prompt's. */
template <bool PLAIN>
__device__ __forceinline__ void sl_gemm_store(const struct sl_karg_gemm &a,
                                              const struct sl_gemm_tile &t, uint32_t pos,
                                              uint32_t o, float v, float up) {
    if (!a.refs) {
        float *y = t.y + (size_t)pos * t.n_out + o;
        if (t.bias)
            v = v + t.bias[o];
        *y = t.add ? *y + v : v;
        return;
    }
    auto expert = [&] { return a.tiles[blockIdx.x].expert; };
    const struct sl_karg_experts &of = a.expert;
    float *h = a.h + (size_t)pos * t.n_out + o;
    if (a.mode == SL_MOE_DOWN) {
        uint32_t i = a.order[pos];
        a.y[(size_t)(a.pairs ? a.pairs[i] : i) * t.n_out + o] =
            PLAIN ? v : sl_moe_biased(of.down_bias, expert, t.n_out, o, v);
    } else if (PLAIN) {
        *h = a.mode == SL_MOE_GATE_UP ? sl_dev_silu(v) * up
             : a.mode == SL_MOE_GATE  ? v
                                      : sl_dev_silu(*h) * v;
    } else if (a.mode == SL_MOE_GATE_UP) {
        *h = sl_moe_gated(of, expert, t.n_out, o, v, up);
    } else if (a.mode == SL_MOE_GATE) {
        *h = sl_moe_biased(of.gate_bias, expert, t.n_out, o, v);
    } else {
        *h = sl_moe_activated(of, sl_moe_gate(of, h),
                              sl_moe_biased(of.up_bias, expert, t.n_out, o, v));
    }
}

template <int T, int N> struct sl_gemm {
    using quant = sl_quant<T>;
    static constexpr bool B32 = quant::ELEMS == 32;
    static constexpr int M = (int)SL_GEMM_M, STRIDE = (int)SL_GEMM_STRIDE, META = (int)SL_GEMM_META;
    static constexpr int NT = N / 32; /* column tiles of 8 of a warp; warps stand 2 x 4 */

    uint8_t *ws, *xs, *wm, *xm;
    float acc[2][NT][4];

    __device__ __forceinline__ void load_weights(const uint8_t *const (&row)[2], uint32_t kb,
                                                 uint32_t n_in) const {
        uint32_t u = threadIdx.x % 8;
#pragma unroll
        for (uint32_t j = 0; j < 2; j++) {
            uint32_t r = threadIdx.x / 8 + 32 * j;
            struct sl_unit v;
            float d, dmin;
            uint8_t *to = ws + r * STRIDE, *meta = wm + r * META;
            if (B32) {
                uint32_t blk = kb * 8 + u;
                if (blk >= n_in / 32)
                    continue;
                const uint8_t *b = row[j] + (size_t)blk * quant::BYTES;
                quant::unit(b, 0, v);
                quant::scales(b, d, dmin);
                to += u * 32;
                ((float *)meta)[u] = d;
                if (quant::HAS_MIN)
                    ((float *)meta)[8 + u] = dmin;
            } else {
                const uint8_t *b = row[j] + (size_t)kb * quant::BYTES;
                quant::unit(b, (int)u, v);
                meta[v.group_a] = (uint8_t)v.scale_a;
                meta[v.group_b] = (uint8_t)v.scale_b;
                if (quant::HAS_MIN) {
                    meta[16 + v.group_a] = (uint8_t)v.min_a;
                    meta[16 + v.group_b] = (uint8_t)v.min_b;
                }
                if (u == 0) {
                    quant::scales(b, d, dmin);
                    *(float2 *)(meta + 32) = make_float2(d, dmin);
                }
            }
            *(uint4 *)(to + v.group_a * 16) = make_uint4(v.a[0], v.a[1], v.a[2], v.a[3]);
            *(uint4 *)(to + v.group_b * 16) = make_uint4(v.b[0], v.b[1], v.b[2], v.b[3]);
        }
    }

    /* Asks for the next blocks of weights: they are on their way while this one is multiplied. */
    __device__ __forceinline__ void look_ahead(const uint8_t *const (&row)[2], uint32_t kb,
                                               size_t row_bytes) const {
        constexpr uint32_t BYTES = quant::BYTES * (256 / quant::ELEMS);
        size_t at = (size_t)kb * BYTES + threadIdx.x % 8 * 32;
        if (threadIdx.x % 8 * 32 < BYTES && at < row_bytes)
#pragma unroll
            for (int j = 0; j < 2; j++)
                sl_prefetch(row[j] + at);
    }

    template <class ARGS>
    __device__ __forceinline__ void load_inputs(const ARGS &a, const int *source, uint32_t kb,
                                                uint32_t n_groups) const {
#pragma unroll
        for (uint32_t i = threadIdx.x; i < N * 16; i += 256) {
            uint32_t r = i / 16, c = i % 16;
            int from = source[r];
            size_t group = (size_t)max(from, 0) * n_groups + kb;
            sl_copy16(xs + r * STRIDE + c * 16, a.qx.q + group * 256 + c * 16, from >= 0);
        }
        for (uint32_t i = threadIdx.x; i < N * 4; i += 256) {
            uint32_t r = i / 4, c = i % 4;
            int from = source[r];
            size_t group = (size_t)max(from, 0) * n_groups + kb;
            const uint8_t *sum = (const uint8_t *)a.qx.sum + group * 32;
            uint8_t *to = xm + r * META;
            if (B32) {
                const uint8_t *d = (const uint8_t *)(a.qx.d + group * 8);
                sl_copy16(to + c * 16, c < 2 ? d + c * 16 : sum + (c - 2) * 16, from >= 0);
            } else if (c < 2) {
                sl_copy16(to + c * 16, sum + c * 16, from >= 0);
            } else if (c == 2) {
                *(float *)(to + 32) = from >= 0 ? a.qx.d[group] : 0.0f;
            }
        }
    }

    __device__ __forceinline__ void multiply(uint32_t n32) {
        uint32_t lane = threadIdx.x % SL_WARP, warp = threadIdx.x / SL_WARP;
        uint32_t m0 = warp % 2 * 32, n0 = warp / 2 * (N / 4), g = lane / 4, q = lane % 4;
        uint32_t tile = lane / 8, in = lane % 8;
        const uint8_t *pa = ws + (m0 + (tile & 1) * 8 + in) * STRIDE + (tile >> 1) * 16;
        const uint8_t *pb =
            xs + (n0 + (NT > 1 ? tile >> 1 : 0) * 8 + in) * STRIDE + (tile & 1) * 16;
        int isum[2][NT][4];
#pragma unroll
        for (int i = 0; i < 2 * NT * 4; i++)
            isum[i / (NT * 4)][i / 4 % NT][i % 4] = 0;
            /* Partly unrolled: whole, it would compile for a minute and take all registers. */
#pragma unroll 2
        for (uint32_t kk = 0; kk < n32; kk++) {
            uint32_t b[NT][2];
            if (NT > 1) {
#pragma unroll
                for (int nt = 0; nt < NT; nt += 2) {
                    uint32_t v[4];
                    sl_ldmatrix4(v, pb + nt * 8 * STRIDE + kk * 32);
                    b[nt][0] = v[0], b[nt][1] = v[1];
                    b[(nt + 1) % NT][0] = v[2], b[(nt + 1) % NT][1] = v[3];
                }
            } else {
                sl_ldmatrix2(b[0], pb + kk * 32);
            }
#pragma unroll
            for (int mt = 0; mt < 2; mt++) {
                uint32_t w[4];
                sl_ldmatrix4(w, pa + mt * 16 * STRIDE + kk * 32);
                float dw[2] = {0, 0}, dmin[2] = {0, 0};
                int scale[2][2]; /* by row half, by 16 elements */
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const uint8_t *meta = wm + (m0 + mt * 16 + h * 8 + g) * META;
                    if (B32) {
                        dw[h] = ((const float *)meta)[kk];
                        if (quant::HAS_MIN)
                            dmin[h] = ((const float *)meta)[8 + kk];
                    } else {
                        int both = ((const int16_t *)meta)[kk];
                        scale[h][0] = (int8_t)both;
                        scale[h][1] = both >> 8;
                    }
                }
#pragma unroll
                for (int nt = 0; nt < NT; nt++) {
                    int c[4];
                    if (B32) {
                        sl_mma_k32(c, w, b[nt]);
#pragma unroll
                        for (int i = 0; i < 4; i++) {
                            const float *meta =
                                (const float *)(xm + (n0 + nt * 8 + q * 2 + (i & 1)) * META);
                            float dx = meta[kk], &s = acc[mt][nt][i];
                            s = fmaf(dw[i / 2] * dx, (float)c[i], s);
                            if (quant::HAS_MIN)
                                s = fmaf(-(dmin[i / 2] * dx), meta[8 + kk], s);
                        }
                    } else if (quant::SUB16) {
#pragma unroll
                        for (int half = 0; half < 2; half++) {
                            sl_mma_k16(c, w[2 * half], w[2 * half + 1], b[nt][half]);
#pragma unroll
                            for (int i = 0; i < 4; i++)
                                isum[mt][nt][i] += scale[i / 2][half] * c[i];
                        }
                    } else {
                        sl_mma_k32(c, w, b[nt]);
#pragma unroll
                        for (int i = 0; i < 4; i++)
                            isum[mt][nt][i] += scale[i / 2][0] * c[i];
                    }
                }
            }
        }
        if constexpr (!B32)
            join(isum);
    }

    /* A 256-element block's integer sums join the float sums. */
    __device__ __forceinline__ void join(const int (&isum)[2][NT][4]) {
        uint32_t lane = threadIdx.x % SL_WARP, warp = threadIdx.x / SL_WARP;
        uint32_t m0 = warp % 2 * 32, n0 = warp / 2 * (N / 4), g = lane / 4, q = lane % 4;
#pragma unroll
        for (int mt = 0; mt < 2; mt++) {
            const uint8_t *meta = wm + (m0 + mt * 16 + g) * META;
            float2 d0 = *(const float2 *)(meta + 32), d1 = *(const float2 *)(meta + 8 * META + 32);
            uint32_t a0 = 0, a1 = 0;
            if (quant::HAS_MIN) {
                a0 = *(const uint32_t *)(meta + 16 + 4 * q);
                a1 = *(const uint32_t *)(meta + 8 * META + 16 + 4 * q);
            }
#pragma unroll
            for (int nt = 0; nt < NT; nt++) {
                int high[4] = {0, 0, 0, 0}, low[4] = {0, 0, 0, 0};
                if (quant::HAS_MIN) {
                    const uint8_t *sums = xm + (n0 + nt * 8 + g) * META + 4 * q;
                    sl_mma_k16(high, a0, a1, *(const uint32_t *)sums);
                    sl_mma_k16(low, a0, a1, *(const uint32_t *)(sums + 16));
                }
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    float dx = *(const float *)(xm + (n0 + nt * 8 + q * 2 + (i & 1)) * META + 32);
                    float2 d = i / 2 ? d1 : d0;
                    float &s = acc[mt][nt][i];
                    s = fmaf(d.x * dx, (float)isum[mt][nt][i], s);
                    if (quant::HAS_MIN)
                        s = fmaf(-(d.y * dx), (float)(64 * high[i] + low[i]), s);
                }
            }
        }
    }

    /* ARGS: struct sl_karg_gemm, or others for which sl_gemm_start, _source, _store and _is_plain
     * are there. */
    template <class ARGS> __device__ __forceinline__ void run(const ARGS &a) {
        extern __shared__ uint4 shared[];
        __shared__ int source[N];
        struct sl_gemm_tile t;
        if (!sl_gemm_start(a, N, t))
            return;
        ws = (uint8_t *)shared, xs = ws + M * STRIDE, wm = xs + N * STRIDE, xm = wm + M * META;
        for (uint32_t r = threadIdx.x; r < N; r += 256)
            source[r] = r < t.n ? (int)sl_gemm_source(a, t.begin + r) : -1;
#pragma unroll
        for (int i = 0; i < 2 * NT * 4; i++)
            acc[i / (NT * 4)][i / 4 % NT][i % 4] = 0;
        size_t row_bytes = (size_t)(a.n_in / quant::ELEMS) * quant::BYTES;
        const uint8_t *row[2];
#pragma unroll
        for (uint32_t j = 0; j < 2; j++)
            row[j] = sl_gemm_row(t, threadIdx.x / 8 + 32 * j, row_bytes);
        uint32_t n_groups = (a.n_in + 255) / 256;
        __syncthreads();
        for (uint32_t kb = 0; kb < n_groups; kb++) {
            load_inputs(a, source, kb, n_groups);
            look_ahead(row, kb + 1, row_bytes);
            load_weights(row, kb, a.n_in);
            sl_copy_wait();
            __syncthreads();
            multiply(min(8u, a.n_in / 32 - kb * 8));
            __syncthreads();
        }
        if (sl_gemm_is_plain(a))
            store<true>(a, t);
        else
            store<false>(a, t);
    }

    template <bool PLAIN, class ARGS>
    __device__ __forceinline__ void store(const ARGS &a, const struct sl_gemm_tile &t) const {
        uint32_t lane = threadIdx.x % SL_WARP, warp = threadIdx.x / SL_WARP;
        uint32_t m0 = warp % 2 * 32, n0 = warp / 2 * (N / 4), g = lane / 4, q = lane % 4;
#pragma unroll
        for (int mt = 0; mt < 2; mt++)
#pragma unroll
            for (int nt = 0; nt < NT; nt++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    uint32_t at = n0 + (uint32_t)nt * 8 + q * 2 + (i & 1);
                    uint32_t in = (uint32_t)(i / 2) * 8 + g;
                    uint32_t o = t.o0 + (t.both ? m0 / 2 + in : m0 + (uint32_t)mt * 16 + in);
                    if (at < t.n && o < t.n_out && !(t.both && mt))
                        sl_gemm_store<PLAIN>(a, t, t.begin + at, o, acc[mt][nt][i], acc[1][nt][i]);
                }
    }
};

/* Float types: f32 arithmetic, each sum in ascending k. */
template <int T, int N> struct sl_gemm_float {
    static constexpr int M = (int)SL_GEMM_M, K = 16, TN = N / 16;

    __device__ __forceinline__ void run(const struct sl_karg_gemm &a) {
        constexpr int SIZE = T == SL_DTYPE_F32 ? 4 : 2;
        __shared__ float ws[K][M + 4], xs[K][N + 4];
        __shared__ const float *source[N];
        struct sl_gemm_tile t;
        if (!sl_gemm_start(a, N, t))
            return;
        const float *x = a.refs && a.mode == SL_MOE_DOWN ? a.h : a.x;
        for (uint32_t r = threadIdx.x; r < N; r += 256)
            source[r] = r < t.n ? x + (size_t)sl_gemm_source(a, t.begin + r) * a.n_in : nullptr;
        /* A thread's 4 rows are 16 apart: with GATE_UP the first and the third are gate's, the
         * second and the fourth up's. */
        float acc[4][TN];
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < TN; j++)
                acc[i][j] = 0;
        uint32_t tm = threadIdx.x % 16, tn = threadIdx.x / 16;
        size_t row_bytes = (size_t)a.n_in * SIZE;
        __syncthreads();
        for (uint32_t k0 = 0; k0 < a.n_in; k0 += K) {
            uint32_t k = k0 + threadIdx.x % K;
#pragma unroll
            for (uint32_t r = threadIdx.x / K; r < M; r += 256 / K)
                ws[k % K][r] =
                    k < a.n_in ? sl_load_float<T>(sl_gemm_row(t, r, row_bytes), k) : 0.0f;
#pragma unroll
            for (uint32_t r = threadIdx.x / K; r < N; r += 256 / K)
                xs[k % K][r] = k < a.n_in && source[r] ? source[r][k] : 0.0f;
            __syncthreads();
            uint32_t n = min((uint32_t)K, a.n_in - k0);
            for (uint32_t i = 0; i < n; i++) {
                float w[4];
#pragma unroll
                for (int r = 0; r < 4; r++)
                    w[r] = ws[i][tm + 16 * r];
#pragma unroll
                for (int j = 0; j < TN; j++) {
                    float v = xs[i][tn + 16 * j];
#pragma unroll
                    for (int r = 0; r < 4; r++)
                        acc[r][j] = fmaf(w[r], v, acc[r][j]);
                }
            }
            __syncthreads();
        }
        if (!a.refs || a.expert.is_plain)
            store<true>(a, t, acc);
        else
            store<false>(a, t, acc);
    }

    template <bool PLAIN>
    __device__ __forceinline__ static void
    store(const struct sl_karg_gemm &a, const struct sl_gemm_tile &t, const float (&acc)[4][TN]) {
        uint32_t tm = threadIdx.x % 16, tn = threadIdx.x / 16;
#pragma unroll
        for (int r = 0; r < 4; r++)
#pragma unroll
            for (int j = 0; j < TN; j++) {
                uint32_t at = tn + 16 * (uint32_t)j;
                uint32_t o = t.o0 + (t.both ? (uint32_t)r / 2 * 16 + tm : tm + 16 * (uint32_t)r);
                if (at < t.n && o < t.n_out && !(t.both && r % 2))
                    sl_gemm_store<PLAIN>(a, t, t.begin + at, o, acc[r][j], acc[(r + 1) % 4][j]);
            }
    }
};

template <int N> struct sl_gemm<SL_DTYPE_F32, N> : sl_gemm_float<SL_DTYPE_F32, N> {};
template <int N> struct sl_gemm<SL_DTYPE_F16, N> : sl_gemm_float<SL_DTYPE_F16, N> {};
template <int N> struct sl_gemm<SL_DTYPE_BF16, N> : sl_gemm_float<SL_DTYPE_BF16, N> {};

#define SL_GEMM_KERNEL(size, N, NAME)                                                              \
    extern "C" __global__ void __launch_bounds__(256, (N) == SL_GEMM_N_LARGE ? 2 : 3)              \
        sl_k_gemm_##size##_##NAME(SL_KERNEL_ARGS(sl_karg_gemm, a)) {                               \
        sl_grid_begin();                                                                           \
        sl_gemm<SL_DTYPE_##NAME, (int)(N)> g;                                                      \
        g.run(a);                                                                                  \
    }

#endif
