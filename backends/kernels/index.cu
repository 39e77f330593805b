/* The indexer: the rotation of its queries and keys, the scores of positions or of blocks of them,
 * and the choice of the best. Scores have the bits of the CPU's definition, so that the choice is
 * the same too. */
#include "backends/kernels/blocks.cuh"
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

    float k[POS][PER];
    uint32_t lane, quad, dim;
    bool q8;

    /* Keys of n elements, in Q8_0 or in F16. */
    __device__ __forceinline__ score(uint32_t n, bool in_q8) {
        lane = threadIdx.x % 4, quad = threadIdx.x / 4;
        dim = n, q8 = in_q8;
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
            if (i >= dim)
                continue;
            if (q8) {
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
    /* The products of four heads, from the one on whose query is at q: lane l gets those of head l.
     */
    __device__ __forceinline__ void products(const float *q, float (&dot)[POS]) const {
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
        for (int p = 0; p < POS; p++)
            dot[p] = join(part[p]);
    }
    /* What they add to the scores y of positions. */
    __device__ __forceinline__ void heads(const float *q, const float *w, float (&y)[POS]) const {
        float dot[POS];
        products(q, dot);
#pragma unroll
        for (int p = 0; p < POS; p++)
#pragma unroll
            for (int h = 0; h < 4; h++) {
                float v = sl_shfl(dot[p], (int)(threadIdx.x & 28u) + h);
                y[p] = fmaf(w[h], v > 0.0f ? v : 0.0f, y[p]);
            }
    }
};

/* COMPRESSED: of complete blocks, which have a row each. */
template <int DIM, bool COMPRESSED>
__device__ __forceinline__ void index_score(const struct sl_karg_index &a) {
    using of = score<DIM>;
    __shared__ __align__(16) float q[of::HEADS][DIM];
    __shared__ float w[of::HEADS];
    sl_grid_begin();
    uint32_t row = a.row0 + blockIdx.y,
             len = COMPRESSED ? a.row_len[row] / a.of.ratio : a.row_len[row];
    uint32_t page0 = blockIdx.x * a.pages_per_block;
    uint32_t page1 = min(page0 + a.pages_per_block, (len + PAGE - 1) / PAGE);
    if (len <= a.n_top || page0 >= page1)
        return;
    const uint32_t *pages = a.page_table + (size_t)a.row_seq[row] * a.max_pages;
    uint32_t row_bytes = a.q8 ? a.dim / 32 * 34 : a.dim * 2;
    float *scores = a.scores + (size_t)blockIdx.y * a.stride;
    of s(a.dim, a.q8);
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
            const uint8_t *keys =
                (const uint8_t *)a.keys + (COMPRESSED ? 0 : pages[page] * a.page_bytes);
            for (uint32_t first = 0; first < PAGE; first += of::QUADS * of::POS) {
                uint32_t at[of::POS];
                float y[of::POS];
#pragma unroll
                for (int p = 0; p < of::POS; p++) {
                    at[p] = first + s.quad + of::QUADS * (uint32_t)p;
                    uint32_t pos = page * PAGE + at[p];
                    /* What nobody has written may be anything, and is not stored. */
                    if constexpr (COMPRESSED) {
                        uint32_t own, of = sl_block_at(a.of, min(pos, len - 1), own);
                        s.load(keys + pages[of] * a.page_bytes + (size_t)own * row_bytes, s.k[p]);
                    } else {
                        s.load(keys + (size_t)(pos < len ? at[p] : 0) * row_bytes, s.k[p]);
                    }
                    y[p] = h0 && pos < len ? scores[pos] : 0.0f;
                }
                for (uint32_t h = 0; h < n; h += 4)
                    s.heads(q[h], w + h, y);
#pragma unroll
                for (int p = 0; p < of::POS; p++)
                    if (s.lane == 0 && page * PAGE + at[p] < len)
                        scores[page * PAGE + at[p]] = y[p];
                __syncwarp();
            }
        }
    }
}

#define SCORE(DIM)                                                                                 \
    extern "C" __global__ void __launch_bounds__(SL_INDEX_SCORE_THREADS)                           \
        sl_k_index_score_##DIM(SL_KERNEL_ARGS(sl_karg_index, a)) {                                 \
        index_score<DIM, false>(a);                                                                \
    }                                                                                              \
    extern "C" __global__ void __launch_bounds__(SL_INDEX_SCORE_THREADS)                           \
        sl_k_index_compressed_##DIM(SL_KERNEL_ARGS(sl_karg_index, a)) {                            \
        index_score<DIM, true>(a);                                                                 \
    }
SCORE(64)
SCORE(128)
SCORE(256)

/* Ascending as scores do: a NaN is below all, and zeros of both signs are one. */
__device__ __forceinline__ uint32_t key_of(float score) {
    if (score != score)
        return 0;
    uint32_t bits = (uint32_t)__float_as_int(score + 0.0f);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}
#define KEY_OF_MINUS_INFINITY 0x007fffffu

/* ---- scores of blocks ---- */

__device__ __forceinline__ uint32_t n_blocks(const struct sl_karg_blocks &a, uint32_t row) {
    return (a.row_len[row] - 1) / a.block + 1;
}

/* Each thread's position and head raise what `best` has for the position's block: [4, span], where
 * blocks begin at lo. Positions of a warp that are a multiple of 8 together are of one block where
 * its size is such a multiple. */
__device__ __forceinline__ void raise(const struct sl_karg_blocks &a, uint32_t *best, uint32_t lo,
                                      uint32_t pos, bool valid, float product) {
    uint32_t key = valid ? key_of(product) : 0, lane = threadIdx.x % SL_WARP;
    bool together = a.block % 8 == 0;
    if (together)
#pragma unroll
        for (int m = 4; m < SL_WARP; m *= 2)
            key = max(key, (uint32_t)sl_shfl_xor((int)key, m));
    if (key && (!together || lane < 4)) /* not of a NaN */
        atomicMax(best + lane % 4 * SL_BLOCK_SPAN + (pos - lo) / a.block, key);
}

/* A block of threads takes whole blocks of positions, of a few rows, for four heads. Keys stay in
 * registers while the rows of their sequence go by. */
template <int DIM> __device__ __forceinline__ void block_score(const struct sl_karg_blocks &a) {
    using of = score<DIM>;
    constexpr uint32_t STEP = of::QUADS * of::POS;
    __shared__ __align__(16) float q[SL_BLOCK_ROWS][4][DIM];
    __shared__ uint32_t best[SL_BLOCK_ROWS][4 * SL_BLOCK_SPAN];
    __shared__ uint32_t seq_of[SL_BLOCK_ROWS], len_of[SL_BLOCK_ROWS];
    sl_grid_begin();
    uint32_t t0 = blockIdx.y * a.rows_per_block, n = min(a.rows_per_block, a.n_rows - t0);
    uint32_t h0 = blockIdx.z * 4, n_heads = min(4u, a.some_heads - h0);
    uint32_t first = blockIdx.x * a.unit, lo = first * a.block;
    uint32_t row_bytes = a.q8 ? a.dim / 32 * 34 : a.dim * 2;
    bool wanted = false; /* rows that see all of their blocks have no scores */
    for (uint32_t r = 0; r < n; r++) {
        uint32_t row = a.row0 + t0 + r, blocks = n_blocks(a, row);
        bool has = blocks > a.n_top && first < blocks;
        wanted |= has;
        if (threadIdx.x == 0)
            seq_of[r] = a.row_seq[row], len_of[r] = has ? a.row_len[row] : 0;
    }
    if (!wanted)
        return;
    for (uint32_t i = threadIdx.x; i < n * 4 * DIM; i += SL_INDEX_SCORE_THREADS) {
        uint32_t r = i / (4 * DIM), h = i / DIM % 4, e = i % DIM;
        size_t head = (size_t)(a.row0 + t0 + r) * a.n_heads + a.head0 + h0 + h;
        q[r][h][e] = h < n_heads && e < a.dim ? a.q[head * a.dim + e] : 0.0f;
    }
    for (uint32_t i = threadIdx.x; i < n * 4 * SL_BLOCK_SPAN; i += SL_INDEX_SCORE_THREADS)
        best[i / (4 * SL_BLOCK_SPAN)][i % (4 * SL_BLOCK_SPAN)] = KEY_OF_MINUS_INFINITY;
    __syncthreads();
    of s(a.dim, a.q8);
    for (uint32_t r0 = 0, next; r0 < n; r0 = next) { /* the rows of one sequence */
        uint32_t len = 0;
        for (next = r0; next < n && seq_of[next] == seq_of[r0]; next++)
            len = max(len, len_of[next]);
        uint32_t hi = min(len, lo + a.unit * a.block);
        const uint32_t *pages = a.page_table + (size_t)seq_of[r0] * a.max_pages;
        for (uint32_t from = lo; from < hi; from += STEP) {
            uint32_t pos[of::POS];
#pragma unroll
            for (int p = 0; p < of::POS; p++) {
                pos[p] = from + s.quad + of::QUADS * (uint32_t)p;
                uint32_t at = min(pos[p], hi - 1);
                s.load((const uint8_t *)a.keys + pages[at / PAGE] * a.page_bytes +
                           (size_t)(at % PAGE) * row_bytes,
                       s.k[p]);
            }
            for (uint32_t r = r0; r < next; r++) {
                float dot[of::POS];
                s.products(q[r][0], dot);
#pragma unroll
                for (int p = 0; p < of::POS; p++)
                    raise(a, best[r], lo, pos[p], pos[p] < min(hi, len_of[r]), dot[p]);
            }
        }
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < n * n_heads * a.unit; i += SL_INDEX_SCORE_THREADS) {
        uint32_t r = i / (n_heads * a.unit), h = i / a.unit % n_heads, b = i % a.unit;
        if (len_of[r] && first + b <= (len_of[r] - 1) / a.block)
            a.scores[((size_t)(t0 + r) * a.some_heads + h0 + h) * a.stride + first + b] =
                best[r][h * SL_BLOCK_SPAN + b];
    }
}

#define BLOCK_SCORE(DIM)                                                                           \
    extern "C" __global__ void __launch_bounds__(SL_INDEX_SCORE_THREADS)                           \
        sl_k_index_block_score_##DIM(SL_KERNEL_ARGS(sl_karg_blocks, a)) {                          \
        block_score<DIM>(a);                                                                       \
    }
BLOCK_SCORE(64)
BLOCK_SCORE(128)
BLOCK_SCORE(256)

/* ---- choice ---- */

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

/* Of len things, whose keys key_at() has, the n_top with the largest; all of them where there are
 * no more, whose keys are not asked for. */
template <class KEY_AT>
__device__ __forceinline__ void choose(struct choice_shared &s, KEY_AT key_at, uint32_t len,
                                       uint32_t n_top, uint32_t *chosen) {
    if (len <= n_top) {
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
            uint32_t key = key_at(j);
            if ((key & known) == found)
                atomicAdd(&s.count[key >> shift & ((1u << width) - 1)], 1u);
        }
        __syncthreads();
        if (threadIdx.x < SL_WARP)
            find_digit(s, n_top, shift);
        __syncthreads();
        known = 0xffffffffu << shift;
    }
    /* Those above it, and of those that equal it the first; in the order of their positions. */
    uint32_t least = s.found, equals = n_top - s.above, n_larger = 0, n_equal = 0;
    uint32_t warp = threadIdx.x / SL_WARP, lane = threadIdx.x % SL_WARP, below = (1u << lane) - 1;
    for (uint32_t base = 0; base < len && n_larger + min(n_equal, equals) < n_top;
         base += THREADS) {
        uint32_t j = base + threadIdx.x, key = j < len ? key_at(j) : 0;
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

extern "C" __global__ void __launch_bounds__(THREADS)
    sl_k_index_choose(SL_KERNEL_ARGS(sl_karg_index, a)) {
    __shared__ struct choice_shared s;
    sl_grid_begin();
    uint32_t row = a.row0 + blockIdx.x;
    const float *scores = a.scores + (size_t)blockIdx.x * a.stride;
    choose(
        s, [&](uint32_t j) { return key_of(scores[j]); }, a.row_len[row] / a.of.ratio, a.n_top,
        a.chosen + (size_t)row * a.n_top);
}

/* The last n_local blocks are in whatever their scores. */
extern "C" __global__ void __launch_bounds__(THREADS)
    sl_k_index_block_choose(SL_KERNEL_ARGS(sl_karg_blocks, a)) {
    __shared__ struct choice_shared s;
    sl_grid_begin();
    uint32_t row = a.row0 + blockIdx.y, head = blockIdx.x, blocks = n_blocks(a, row);
    const uint32_t *scores = a.scores + ((size_t)blockIdx.y * a.some_heads + head) * a.stride;
    choose(
        s, [&](uint32_t j) { return j + a.n_local < blocks ? scores[j] : UINT32_MAX; }, blocks,
        a.n_top, a.chosen + ((size_t)row * a.n_heads + a.head0 + head) * a.n_top);
}
