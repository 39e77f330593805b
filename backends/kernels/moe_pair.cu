/* Decode: experts of single (row, expert) pairs, for few rows. PLAIN ones have no biases and
 * SwiGLU; others have kernels of their own (_any), so that plain ones get no longer. */
#include "backends/kernels/block_vec.cuh"
#include "backends/kernels/moe.cuh"

/* Groups of an input row that a warp asks for before it quantises the first. */
template <int T>
__device__ __forceinline__ void put(const float (&x)[8], struct sl_block_group *to) {
    if constexpr (sl_block<T>::ELEMS == 32)
        sl_block_put32(x, (struct sl_block_group32 *)to);
    else
        sl_block_put<sl_block<T>::HAS_MIN>(x, to);
}
template <int AHEAD, int T>
__device__ __forceinline__ void quantize(const float (&first)[AHEAD][8], const float *x,
                                         uint32_t n_in, uint32_t g, uint32_t step, uint32_t end,
                                         struct sl_block_group *to) {
#pragma unroll
    for (int i = 0; i < AHEAD; i++, g += step)
        if (g < end)
            put<T>(first[i], to + g);
    for (; g < end; g += step) {
        float v[8];
        sl_quantize_fetch(x, n_in, g, threadIdx.x % SL_WARP, v);
        put<T>(v, to + g);
    }
}

/* Rows of gate and the same of up, for one pair: a thread has the same block of both. */
template <int T, bool PLAIN>
__device__ __forceinline__ void moe_pair_up(const struct sl_karg_moe &a) {
    using block = sl_block<T>;
    constexpr uint32_t THREADS = SL_MOE_UP_THREADS, WARPS = THREADS / SL_WARP;
    extern __shared__ uint4 shared[];
    uint32_t warp = threadIdx.x / SL_WARP, lane = threadIdx.x % SL_WARP, rows = a.rows_per_block;
    uint32_t n_blocks = a.n_in / block::ELEMS, row_bytes = n_blocks * block::BYTES;
    uint32_t n_groups = block::ELEMS == 256 ? n_blocks : (a.n_in + 255) / 256;
    uint32_t bytes = rows * row_bytes, i = blockIdx.x, begin = blockIdx.y * rows;
    uint8_t *gate = (uint8_t *)shared, *up = gate + ((bytes + 15) & ~15u);
    struct sl_block_group *in = (struct sl_block_group *)(gate + a.in_at);
    const void **table = (const void **)(in + n_groups);
    /* Where experts are, no kernel writes: it is looked up before the choice is known. */
    for (uint32_t e = threadIdx.x; e < a.n_table; e += THREADS) {
        table[2 * e] = a.refs[e].gate;
        table[2 * e + 1] = a.refs[e].up;
    }
    __syncthreads();
    sl_grid_wait();

    uint32_t pair = a.n_placed ? a.placed[i].pair : a.pairs ? a.pairs[i] : i, tok = pair / a.k;
    if (tok < a.tok_begin || tok >= a.tok_end) {
        sl_grid_next();
        return;
    }
    uint32_t id = a.n_placed ? 0 : a.ids[pair];
    const float *x = a.x + (size_t)tok * a.n_in;
    float ahead[2][8];
#pragma unroll
    for (uint32_t g = 0; g < 2; g++)
        sl_quantize_fetch(x, a.n_in, warp + g * WARPS, lane, ahead[g]);
    const void *w[2];
    if (a.n_placed)
        w[0] = a.placed[i].ref.gate, w[1] = a.placed[i].ref.up;
    else if (a.n_table)
        w[0] = table[2 * id], w[1] = table[2 * id + 1];
    else
        w[0] = a.refs[id].gate, w[1] = a.refs[id].up;
    size_t skip = (size_t)begin * row_bytes;
    sl_block_copy(gate, (const uint8_t *)w[0] + skip, bytes, threadIdx.x, THREADS);
    sl_block_copy(up, (const uint8_t *)w[1] + skip, bytes, threadIdx.x, THREADS);
    sl_grid_next();
    quantize<2, T>(ahead, x, a.n_in, warp, WARPS, n_groups, in);
    sl_copy_wait();
    __syncthreads();

    for (uint32_t j = threadIdx.x; j < rows * n_blocks; j += THREADS) {
        uint32_t row = j / n_blocks, at = j * block::BYTES;
        const uint8_t *const of[2] = {gate + at, up + at};
        struct sl_block_sums v[2];
        sl_block_dot<T>(of, in, j - row * n_blocks, v);
        sl_block_store<T>(gate + at, row, v[0]);
        sl_block_store<T>(up + at, row, v[1]);
    }
    __syncthreads();
    if (warp)
        return;
    static_assert(SL_MOE_UP_ROWS <= 16, "a lane a row of both");
    uint32_t row = lane % 16;
    float total = 0;
    if (row < rows)
        total = sl_block_join<T>((lane < 16 ? gate : up) + row * row_bytes, row, n_blocks);
    float other = sl_shfl(total, (int)(lane + 16) & (SL_WARP - 1));
    if (lane < rows)
        a.h[(size_t)i * a.n_out + begin + lane] = sl_moe_gated<PLAIN>(
            a.expert, [&] { return a.ids[pair]; }, a.n_out, begin + lane, total, other);
}

/* The down products of all experts of a row, and their weighted sum in router order. PLAIN ones
 * have no biases and add to what is there. */
template <int T, bool PLAIN>
__device__ __forceinline__ void moe_pair_sum(const struct sl_karg_moe &a) {
    using block = sl_block<T>;
    constexpr uint32_t THREADS = SL_MOE_SUM_THREADS, WARPS = THREADS / SL_WARP, AHEAD = 2;
    extern __shared__ uint4 shared[];
    __shared__ float product[SL_MOE_DOWN_MAX_K * SL_MOE_SUM_ROWS], weight[SL_MOE_DOWN_MAX_K];
    uint32_t warp = threadIdx.x / SL_WARP, lane = threadIdx.x % SL_WARP, rows = a.rows_per_block;
    uint32_t n_blocks = a.n_in / block::ELEMS, row_bytes = n_blocks * block::BYTES;
    uint32_t tok = blockIdx.x, begin = blockIdx.y * rows, bytes = rows * row_bytes;
    uint32_t groups = block::ELEMS == 256 ? a.k * n_blocks : (a.k * a.n_in + 255) / 256;
    uint32_t n_h = block::ELEMS == 256 ? groups * 256 : a.k * a.n_in;
    uint8_t *w = (uint8_t *)shared;
    struct sl_block_group *in = (struct sl_block_group *)(w + a.in_at);
    static_assert(SL_MOE_SUM_ROWS % 8 == 0, "an expert's rows end where 16 bytes do");
    static_assert(SL_MOE_DOWN_MAX_K <= WARPS, "a warp or more an expert");

    /* The choice was made two kernels ago and the kernel before this one has seen it, so its
     * experts are very likely in place. What is begun with them is dropped if they turn out to be
     * others. `share` warps copy an expert's rows. */
    uint32_t share = WARPS / a.k, e_copy = warp % a.k, begun = UINT32_MAX;
    const uint32_t *choice = &a.ids[tok * a.k + e_copy];
    auto copy = [&](const uint8_t *from) {
        sl_block_copy(w + e_copy * bytes, from + (size_t)begin * row_bytes, bytes,
                      warp / a.k * SL_WARP + lane, share * SL_WARP);
    };
    bool copies = warp < share * a.k;
    if (copies) {
        uint32_t id = *(volatile const uint32_t *)choice;
        const uint8_t *from = (const uint8_t *)a.refs[min(id, a.n_expert - 1)].down;
        if (from) {
            copy(from);
            begun = id;
        }
    }
    sl_grid_begin();
    uint32_t id = *choice;
    const float *h = a.h + (size_t)tok * a.k * a.n_in; /* all k rows are one */
    float ahead[AHEAD][8];
#pragma unroll
    for (uint32_t g = 0; g < AHEAD; g++)
        sl_quantize_fetch(h, n_h, warp + g * WARPS, lane, ahead[g]);
    uint32_t o = begin + threadIdx.x;
    bool adds = true;
    if constexpr (!PLAIN)
        adds = !a.set;
    float y = adds && threadIdx.x < rows ? a.sum_y[(size_t)tok * a.n_out + o] : 0.0f;
    if (threadIdx.x < a.k)
        weight[threadIdx.x] = a.weights[tok * a.k + threadIdx.x];
    if (copies && id != begun) {
        sl_copy_wait();
        __syncwarp();
        copy((const uint8_t *)a.refs[id].down);
    }
    quantize<AHEAD, T>(ahead, h, n_h, warp, WARPS, groups, in);
    sl_copy_wait();
    __syncthreads();

    uint32_t all_blocks = block::ELEMS == 256 ? groups : a.k * n_blocks;
    for (uint32_t j = threadIdx.x; j < all_blocks * rows; j += THREADS) {
        uint32_t row = j / n_blocks, e = row / rows; /* row: of all experts' */
        const uint8_t *const of[1] = {w + j * block::BYTES};
        struct sl_block_sums v[1];
        sl_block_dot<T>(of, in, e * n_blocks + j - row * n_blocks, v);
        sl_block_store<T>(w + j * block::BYTES, row, v[0]);
    }
    __syncthreads();
    static_assert(SL_MOE_DOWN_MAX_K * SL_MOE_SUM_ROWS <= THREADS, "a thread a product");
    if (threadIdx.x < a.k * rows) {
        uint32_t row = threadIdx.x, e = row / rows;
        float total = sl_block_join<T>(w + row * row_bytes, row, n_blocks);
        if constexpr (!PLAIN)
            total = sl_moe_biased(
                a.expert.down_bias, [&] { return a.ids[tok * a.k + e]; }, a.n_out,
                begin + row - e * rows, total);
        product[row] = total;
        a.y[((size_t)tok * a.k + e) * a.n_out + begin + row - e * rows] = total;
    }
    __syncthreads();
    if (threadIdx.x >= rows)
        return;
    for (uint32_t e = 0; e < a.k; e++)
        y = fmaf(product[e * rows + threadIdx.x], weight[e], y);
    a.sum_y[(size_t)tok * a.n_out + o] = y;
}

#define KERNEL_OF(NAME, SUFFIX, PLAIN)                                                             \
    extern "C" __global__ void __launch_bounds__(SL_MOE_UP_THREADS, 6)                             \
        sl_k_moe_pair_up##SUFFIX##_##NAME(SL_KERNEL_ARGS(sl_karg_moe, a)) {                        \
        moe_pair_up<SL_DTYPE_##NAME, PLAIN>(a);                                                    \
    }                                                                                              \
    extern "C" __global__ void __launch_bounds__(SL_MOE_SUM_THREADS, 2)                            \
        sl_k_moe_pair_sum##SUFFIX##_##NAME(SL_KERNEL_ARGS(sl_karg_moe, a)) {                       \
        moe_pair_sum<SL_DTYPE_##NAME, PLAIN>(a);                                                   \
    }
#define KERNEL(NAME)                                                                               \
    KERNEL_OF(NAME, , true)                                                                        \
    KERNEL_OF(NAME, _any, false)
KERNEL(Q4_K)
KERNEL(Q5_K)
KERNEL(Q6_K)
KERNEL(MXFP4)
