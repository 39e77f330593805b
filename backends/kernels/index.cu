/* The indexer: the rotation of its queries and keys, the scores of positions, and the choice of the
 * best of them. Scores have the bits of the CPU's definition, so that the choice is the same too.
 */
#include "backends/kernels/device.cuh"
#include "backends/kernels/index.h"

#define PAGE 64u

/* ---- rotation ---- */

extern "C" __global__ void __launch_bounds__(256)
    sl_k_index_hadamard(SL_KERNEL_ARGS(sl_karg_hadamard, a)) {
    extern __shared__ float shared[];
    sl_grid_begin();
    float *v = shared, *x = a.x + (size_t)blockIdx.x * a.n;
    for (uint32_t i = threadIdx.x; i < a.n; i += blockDim.x)
        v[i] = x[i];
    for (uint32_t step = 1; step < a.n; step *= 2) {
        __syncthreads();
        for (uint32_t p = threadIdx.x; p < a.n / 2; p += blockDim.x) {
            uint32_t i = (p & ~(step - 1)) * 2 + (p & (step - 1));
            float u = v[i], w = v[i + step];
            v[i] = u + w;
            v[i + step] = u - w;
        }
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < a.n; i += blockDim.x)
        x[i] = v[i] * a.by;
}

/* ---- scores ---- */

/* A block takes pages of one row. Four lanes share a position, which stays in their registers while
 * all heads go by: of the 16 sums that the definition splits a product into, lane l has 4 l to 4 l
 * + 3. */
template <int DIM> struct score {
    static constexpr int PER = DIM / 4;            /* elements of a key that a lane has */
    static constexpr int POS = DIM <= 128 ? 2 : 1; /* positions that it has at once */
    static constexpr uint32_t HEADS = 8192u / DIM; /* whose queries are in shared memory at once */
    static constexpr uint32_t QUADS = SL_INDEX_SCORE_THREADS / 4;
    static_assert(PAGE % (QUADS * POS) == 0, "whole pages");
    static_assert(HEADS % 4 == 0, "four heads at a time");

    const struct sl_karg_index &a;
    float k[POS][PER], y[POS];
    uint32_t lane, quad;

    __device__ __forceinline__ explicit score(const struct sl_karg_index &args) : a(args) {
        lane = threadIdx.x % 4, quad = threadIdx.x / 4;
    }
    /* Element n of the lane's is this one of the key. */
    __device__ __forceinline__ uint32_t element(int n) const {
        return (uint32_t)(n / 4) * 16 + lane * 4 + (uint32_t)(n % 4);
    }
    __device__ __forceinline__ void load(const uint8_t *row, float (&to)[PER]) const {
#pragma unroll
        for (int n = 0; n < PER; n++) {
            uint32_t i = element(n);
            to[n] = 0;
            if (i >= a.dim)
                continue;
            if (a.q8) {
                const uint8_t *b = row + i / 32 * 34;
                to[n] = __half2float(*(const __half *)b) * (float)(int8_t)b[2 + i % 32];
            } else {
                to[n] = __half2float(((const __half *)row)[i]);
            }
        }
    }
    /* part[i] += part[i + 8], then 4, 2 and 1. Lane l of the four gets the product of head l. */
    __device__ __forceinline__ float join(const float (&part)[4][4]) const {
        float half[2][4], own[4];
        bool upper = lane & 2, odd = lane & 1;
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float keep = upper ? part[h + 2][i] : part[h][i];
                float give = upper ? part[h][i] : part[h + 2][i];
                half[h][i] = keep + sl_shfl_xor(give, 2);
            }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float keep = odd ? half[1][i] : half[0][i];
            float give = odd ? half[0][i] : half[1][i];
            own[i] = keep + sl_shfl_xor(give, 1);
        }
        return (own[0] + own[2]) + (own[1] + own[3]);
    }
    /* Four heads from the one on whose query is at q. */
    __device__ __forceinline__ void heads(const float *q, const float *w) {
        float part[POS][4][4];
#pragma unroll
        for (int i = 0; i < POS * 16; i++)
            part[i / 16][i / 4 % 4][i % 4] = 0;
#pragma unroll
        for (int j = 0; j < PER / 4; j++)
#pragma unroll
            for (int h = 0; h < 4; h++) {
                float4 v = *(const float4 *)(q + h * DIM + j * 16 + lane * 4);
#pragma unroll
                for (int p = 0; p < POS; p++) {
                    part[p][h][0] = fmaf(v.x, k[p][4 * j], part[p][h][0]);
                    part[p][h][1] = fmaf(v.y, k[p][4 * j + 1], part[p][h][1]);
                    part[p][h][2] = fmaf(v.z, k[p][4 * j + 2], part[p][h][2]);
                    part[p][h][3] = fmaf(v.w, k[p][4 * j + 3], part[p][h][3]);
                }
            }
#pragma unroll
        for (int p = 0; p < POS; p++) {
            float dot = join(part[p]);
#pragma unroll
            for (int h = 0; h < 4; h++) {
                float v = sl_shfl(dot, (int)(threadIdx.x & 28u) + h);
                y[p] = fmaf(w[h], v > 0.0f ? v : 0.0f, y[p]);
            }
        }
    }
};

template <int DIM> __device__ __forceinline__ void index_score(const struct sl_karg_index &a) {
    using of = score<DIM>;
    __shared__ __align__(16) float q[of::HEADS][DIM];
    __shared__ float w[of::HEADS];
    sl_grid_begin();
    uint32_t row = a.row0 + blockIdx.y, len = a.row_len[row];
    uint32_t page0 = blockIdx.x * a.pages_per_block;
    uint32_t page1 = min(page0 + a.pages_per_block, (len + PAGE - 1) / PAGE);
    if (len <= a.n_top || page0 >= page1)
        return;
    const uint32_t *pages = a.page_table + (size_t)a.row_seq[row] * a.max_pages;
    uint32_t row_bytes = a.q8 ? a.dim / 32 * 34 : a.dim * 2;
    float *scores = a.scores + (size_t)blockIdx.y * a.stride;
    of s(a);
    for (uint32_t h0 = 0; h0 < a.n_heads; h0 += of::HEADS) {
        uint32_t n = min(of::HEADS, a.n_heads - h0), whole = (n + 3) & ~3u;
        __syncthreads();
        /* Heads beyond the last have zeros: they add nothing. */
        for (uint32_t i = threadIdx.x; i < whole * DIM; i += SL_INDEX_SCORE_THREADS) {
            uint32_t h = i / DIM, e = i % DIM;
            q[h][e] =
                h < n && e < a.dim ? a.q[((size_t)row * a.n_heads + h0 + h) * a.dim + e] : 0.0f;
        }
        for (uint32_t h = threadIdx.x; h < whole; h += SL_INDEX_SCORE_THREADS)
            w[h] = h < n ? a.w[(size_t)row * a.n_heads + h0 + h] : 0.0f;
        __syncthreads();
        for (uint32_t page = page0; page < page1; page++) {
            const uint8_t *keys = (const uint8_t *)a.keys + pages[page] * a.page_bytes;
            for (uint32_t first = 0; first < PAGE; first += of::QUADS * of::POS) {
                uint32_t at[of::POS];
#pragma unroll
                for (int p = 0; p < of::POS; p++) {
                    at[p] = first + s.quad + of::QUADS * (uint32_t)p;
                    uint32_t pos = page * PAGE + at[p];
                    /* What nobody has written may be anything, and is not stored. */
                    s.load(keys + (size_t)(pos < len ? at[p] : 0) * row_bytes, s.k[p]);
                    s.y[p] = h0 && pos < len ? scores[pos] : 0.0f;
                }
                for (uint32_t h = 0; h < n; h += 4)
                    s.heads(q[h], w + h);
#pragma unroll
                for (int p = 0; p < of::POS; p++)
                    if (s.lane == 0 && page * PAGE + at[p] < len)
                        scores[page * PAGE + at[p]] = s.y[p];
                __syncwarp();
            }
        }
    }
}

#define SCORE(DIM)                                                                                 \
    extern "C" __global__ void __launch_bounds__(SL_INDEX_SCORE_THREADS)                           \
        sl_k_index_score_##DIM(SL_KERNEL_ARGS(sl_karg_index, a)) {                                 \
        index_score<DIM>(a);                                                                       \
    }
SCORE(64)
SCORE(128)
SCORE(256)

/* ---- choice ---- */

/* Ascending as scores do: a NaN is below all, and zeros of both signs are one. */
__device__ __forceinline__ uint32_t key_of(float score) {
    if (score != score)
        return 0;
    uint32_t bits = (uint32_t)__float_as_int(score + 0.0f);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

#define THREADS SL_INDEX_CHOOSE_THREADS
#define WARPS   (THREADS / SL_WARP)
#define DIGITS  2048u

struct choice_shared {
    uint32_t count[DIGITS];
    uint32_t found, above; /* of the least key that is in: its digits so far, how many are larger */
    uint32_t larger[WARPS], equal[WARPS];
};

/* The digit of the n_top-th largest key, by one warp, which takes the counts from the highest on.
 */
__device__ __forceinline__ void find_digit(struct choice_shared &s, uint32_t n_top,
                                           uint32_t shift) {
    constexpr uint32_t PER = DIGITS / SL_WARP;
    uint32_t lane = threadIdx.x, top = DIGITS - 1 - lane * PER, sum = 0;
    for (uint32_t i = 0; i < PER; i++)
        sum += s.count[top - i];
    uint32_t up_to = sum;
#pragma unroll
    for (int d = 1; d < SL_WARP; d *= 2) {
        uint32_t other = sl_shfl_up(up_to, (int)d);
        up_to += lane >= (uint32_t)d ? other : 0;
    }
    uint32_t above = s.above, before = above + up_to - sum;
    __syncwarp();
    /* One lane's digits have it: those before it are too few, and with its own there are enough. */
    if (before < n_top && before + sum >= n_top) {
        uint32_t digit = top;
        while (before + s.count[digit] < n_top)
            before += s.count[digit--];
        s.found |= digit << shift;
        s.above = before;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    sl_k_index_choose(SL_KERNEL_ARGS(sl_karg_index, a)) {
    __shared__ struct choice_shared s;
    sl_grid_begin();
    uint32_t row = a.row0 + blockIdx.x, len = a.row_len[row];
    uint32_t *chosen = a.chosen + (size_t)row * a.n_top;
    const float *scores = a.scores + (size_t)blockIdx.x * a.stride;
    if (len <= a.n_top) {
        for (uint32_t j = threadIdx.x; j < len; j += THREADS)
            chosen[j] = j;
        return;
    }
    if (threadIdx.x == 0)
        s.found = s.above = 0;
    uint32_t known = 0; /* the digits that are found */
    for (uint32_t pass = 0; pass < 3; pass++) {
        uint32_t shift = pass == 0 ? 21 : pass == 1 ? 10 : 0, width = pass == 2 ? 10 : 11;
        for (uint32_t i = threadIdx.x; i < DIGITS; i += THREADS)
            s.count[i] = 0;
        __syncthreads();
        uint32_t found = s.found;
        for (uint32_t j = threadIdx.x; j < len; j += THREADS) {
            uint32_t key = key_of(scores[j]);
            if ((key & known) == found)
                atomicAdd(&s.count[key >> shift & ((1u << width) - 1)], 1u);
        }
        __syncthreads();
        if (threadIdx.x < SL_WARP)
            find_digit(s, a.n_top, shift);
        __syncthreads();
        known = 0xffffffffu << shift;
    }
    /* Those above it, and of those that equal it the first; in the order of their positions. */
    uint32_t least = s.found, equals = a.n_top - s.above, n_larger = 0, n_equal = 0;
    uint32_t warp = threadIdx.x / SL_WARP, lane = threadIdx.x % SL_WARP, below = (1u << lane) - 1;
    for (uint32_t base = 0; base < len && n_larger + min(n_equal, equals) < a.n_top;
         base += THREADS) {
        uint32_t j = base + threadIdx.x, key = j < len ? key_of(scores[j]) : 0;
        bool is_larger = j < len && key > least, is_equal = j < len && key == least;
        uint32_t larger = sl_ballot(is_larger);
        uint32_t equal = sl_ballot(is_equal);
        if (lane == 0)
            s.larger[warp] = (uint32_t)__popc(larger), s.equal[warp] = (uint32_t)__popc(equal);
        __syncthreads();
        uint32_t larger_before = n_larger + (uint32_t)__popc(larger & below);
        uint32_t equal_before = n_equal + (uint32_t)__popc(equal & below);
        for (uint32_t i = 0; i < WARPS; i++) {
            larger_before += i < warp ? s.larger[i] : 0;
            equal_before += i < warp ? s.equal[i] : 0;
            n_larger += s.larger[i];
            n_equal += s.equal[i];
        }
        if (is_larger || (is_equal && equal_before < equals))
            chosen[larger_before + min(equal_before, equals)] = j;
        __syncthreads();
    }
}
