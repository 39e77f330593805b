/* Recurrences whose state is a matrix a head, and whose columns do not depend on one another: the
 * delta rule, the one with a decay of each element of the key, and the scan of Mamba-2. Four lanes
 * share a column, which stays in their registers while a block goes through rows, one by one; the
 * block's last warp fetches what the next rows need. The scan's b, c and x are k, q and v here. */
#ifndef SL_BACKENDS_KERNELS_STATE_COLUMNS_CUH
#define SL_BACKENDS_KERNELS_STATE_COLUMNS_CUH

#include "backends/kernels/state.cuh"

enum sl_columns_kind { SL_COLUMNS_DELTA, SL_COLUMNS_CHANNEL_DELTA, SL_COLUMNS_SCAN };

#define SL_COLUMNS_CONSUMERS (SL_DELTA_THREADS - SL_WARP)

/* What a block's consumers need of a few rows. */
template <sl_columns_kind KIND, int DIM> struct alignas(16) sl_columns_stage {
    static constexpr bool DECAYS = KIND == SL_COLUMNS_CHANNEL_DELTA;
    /* Two stages fit in what a block may have without asking. */
    static constexpr int ROWS = (DIM <= 64 ? 32 : 2048 / DIM) / (DECAYS ? 2 : 1);
    float k[ROWS][DIM], q[ROWS][DIM], v[ROWS][SL_DELTA_COLS];
    float decay[DECAYS ? ROWS : 1]
               [DECAYS ? DIM : 4]; /* alpha, until the consumers have been there */
    float g[ROWS], b[ROWS];
    uint32_t row[ROWS];
    const float *from[ROWS]; /* where the state is read, in a sequence's first row, */
    float *to[ROWS];         /* and written; NULL: not */
    bool first[ROWS];
    uint32_t n;
};

/* n floats by a warp; `whole`: 16 bytes at a time. */
__device__ __forceinline__ void sl_columns_copy(float *shared, const float *global, uint32_t n,
                                                bool whole) {
    uint32_t lane = threadIdx.x % SL_WARP;
    if (whole)
        for (uint32_t i = lane * 4; i < n; i += 128)
            sl_copy16(shared + i, global + i, true);
    else
        for (uint32_t i = lane; i < n; i += SL_WARP)
            sl_copy4(shared + i, global + i);
}

/* The last warp of a block. */
template <sl_columns_kind KIND, int DIM> struct sl_columns_feed {
    using stage = sl_columns_stage<KIND, DIM>;
    static constexpr uint32_t ROWS = stage::ROWS;
    struct sl_state_rows rows;
    uint32_t h_k;
    size_t gate, in_state;
    bool whole;
    float alpha, beta; /* of row rows.at + lane */

    __device__ __forceinline__ void look(const struct sl_karg_delta &a) {
        size_t in_gates = (size_t)rows.row(a.state) * a.stride_gate + gate;
        if constexpr (KIND != SL_COLUMNS_CHANNEL_DELTA)
            alpha = a.alpha[in_gates];
        if constexpr (KIND != SL_COLUMNS_SCAN)
            beta = a.beta[in_gates];
    }

    __device__ __forceinline__ void begin(const struct sl_karg_delta &a) {
        uint32_t h = blockIdx.y;
        uintptr_t addresses = (uintptr_t)a.q | (uintptr_t)a.k | (uintptr_t)a.v;
        h_k = a.grouped ? h / (a.n_heads / a.n_heads_k) : h % a.n_heads_k;
        gate = (size_t)(h / a.gate_group) * a.gate_group_stride + h % a.gate_group;
        in_state = (size_t)h * a.head_dim_k * a.head_dim_v;
        if constexpr (stage::DECAYS)
            addresses |= (uintptr_t)a.alpha;
        whole =
            (a.head_dim_k | a.head_dim_v | a.stride | a.stride_v) % 4 == 0 && addresses % 16 == 0;
        rows.begin(a.state, blockIdx.z, gridDim.z);
        look(a);
    }

    /* The next rows of this block, ROWS of the call at most. */
    __device__ __forceinline__ void fill(const struct sl_karg_delta &a, stage &to) {
        uint32_t h = blockIdx.y, n = 0;
        uint32_t c = blockIdx.x * SL_DELTA_COLS, n_c = min(SL_DELTA_COLS, a.head_dim_v - c);
        while (!n && rows.at < rows.end) {
            n = rows.next(a.state, ROWS, in_state);
            uint32_t i = rows.place();
            if (rows.mine)
                to.row[i] = rows.t;
            __syncwarp();
            for (uint32_t r = 0; r < n; r++) {
                size_t in_row = (size_t)to.row[r] * a.stride + (size_t)h_k * a.head_dim_k;
                sl_columns_copy(to.k[r], a.k + in_row, a.head_dim_k, whole);
                sl_columns_copy(to.q[r], a.q + in_row, a.head_dim_k, whole);
                sl_columns_copy(to.v[r],
                                a.v + (size_t)to.row[r] * a.stride_v + (size_t)h * a.head_dim_v + c,
                                n_c, whole);
                if constexpr (stage::DECAYS)
                    sl_columns_copy(to.decay[r], a.alpha + in_row, a.head_dim_k, whole);
            }
            if (rows.mine) {
                to.first[i] = rows.first;
                to.from[i] = rows.from;
                to.to[i] = rows.to;
                if constexpr (KIND == SL_COLUMNS_DELTA)
                    to.g[i] = sl_dev_exp(a.a[h] * sl_dev_softplus(alpha + a.dt[h]));
                if constexpr (KIND == SL_COLUMNS_SCAN) {
                    float d = sl_dev_softplus(alpha + a.dt[h]);
                    to.g[i] = sl_dev_exp(a.a[h] * d);
                    to.b[i] = d;
                } else {
                    to.b[i] = sl_dev_sigmoid(beta);
                }
            }
            rows.advance(a.state, ROWS);
            look(a);
        }
        if (threadIdx.x % SL_WARP == 0)
            to.n = n;
        sl_copy_wait();
    }
};

/* A quarter of a column: rows 16 * j + 4 * (lane % 4) to + 3 for each j. Sums over the rows: 16 of
 * every 16th row, ascending, one fused multiply-add each, from 0; then (0 + 1) + (2 + 3) of each
 * four, and of the four sums alike. */
template <sl_columns_kind KIND, int DIM> struct sl_column {
    using stage = sl_columns_stage<KIND, DIM>;
    static constexpr int PER = DIM / 4;
    float s[PER];
    uint32_t quarter, col; /* col: in the head */
    bool in;
    float out; /* a row's sum, not yet put together, */
    float x;   /* the scan's input there, */
    float *y;  /* and where it goes; NULL: there is none */
    float skip;

    __device__ __forceinline__ explicit sl_column(const struct sl_karg_delta &a) {
        quarter = threadIdx.x % 4;
        col = blockIdx.x * SL_DELTA_COLS + threadIdx.x / 4;
        in = col < a.head_dim_v;
        out = x = skip = 0;
        y = NULL;
    }
    __device__ __forceinline__ void load(const struct sl_karg_delta &a, const float *from) {
#pragma unroll
        for (int n = 0; n < PER; n++) {
            uint32_t i = (uint32_t)(n / 4) * 16 + quarter * 4 + n % 4;
            s[n] = from && in && i < a.head_dim_k ? from[(size_t)i * a.head_dim_v + col] : 0;
        }
    }
    __device__ __forceinline__ void store(const struct sl_karg_delta &a, float *to) const {
#pragma unroll
        for (int n = 0; n < PER; n++) {
            uint32_t i = (uint32_t)(n / 4) * 16 + quarter * 4 + n % 4;
            if (in && i < a.head_dim_k)
                to[(size_t)i * a.head_dim_v + col] = s[n];
        }
    }
    __device__ __forceinline__ void fetch(const float *from, float (&to)[PER]) const {
#pragma unroll
        for (int j = 0; j < PER / 4; j++) {
            float4 v = *(const float4 *)(from + j * 16 + quarter * 4);
            to[4 * j] = v.x, to[4 * j + 1] = v.y, to[4 * j + 2] = v.z, to[4 * j + 3] = v.w;
        }
    }
    /* A row's sum goes out with the next row's, so that both wait for their lanes at once. */
    __device__ __forceinline__ void put(const struct sl_karg_delta &a, float sum) {
        if (y && quarter == 0)
            *y = KIND == SL_COLUMNS_SCAN ? fmaf(skip, x, sum) : sum * a.scale;
    }
    __device__ __forceinline__ void flush(const struct sl_karg_delta &a) {
        float sum = out;
        sum += sl_shfl_xor(sum, 1);
        sum += sl_shfl_xor(sum, 2);
        put(a, sum);
        y = NULL;
    }

    /* Alpha becomes the decay: each element once for all columns of the block. The feeding warp
     * does not wait for it; racecheck loses track of __syncthreads() there (perf-cuda-history.md).
     */
    __device__ __forceinline__ void decays(const struct sl_karg_delta &a, stage &from) {
        uint32_t n = from.n * a.head_dim_k;
        for (uint32_t i = threadIdx.x; i < n; i += SL_COLUMNS_CONSUMERS) {
            uint32_t r = i / a.head_dim_k, e = i - r * a.head_dim_k;
            float *at = &from.decay[r][e];
            float x = *at + a.dt[(size_t)blockIdx.y * a.head_dim_k + e], of = a.a[blockIdx.y];
            *at = sl_dev_exp(a.bound < 0 ? a.bound * sl_dev_sigmoid(fabsf(of) * x)
                                         : of * sl_dev_softplus(x));
        }
        sl_meet(1, SL_COLUMNS_CONSUMERS);
    }

    __device__ __forceinline__ void run(const struct sl_karg_delta &a, stage &from) {
        uint32_t n_rows = from.n;
        if constexpr (stage::DECAYS)
            decays(a, from);
        float k[PER];
        fetch(from.k[0], k);
        for (uint32_t r = 0; r < n_rows; r++) {
            if (from.first[r])
                load(a, from.from[r]);
            float p[4] = {0, 0, 0, 0}, o[4] = {0, 0, 0, 0}, q[PER];
            if constexpr (stage::DECAYS) {
#pragma unroll
                for (int j = 0; j < PER / 4; j++) {
                    float4 g = *(const float4 *)(from.decay[r] + j * 16 + quarter * 4);
                    s[4 * j] *= g.x, s[4 * j + 1] *= g.y, s[4 * j + 2] *= g.z, s[4 * j + 3] *= g.w;
                }
            }
            if constexpr (KIND != SL_COLUMNS_SCAN) {
#pragma unroll
                for (int n = 0; n < PER; n++)
                    p[n % 4] = fmaf(s[n], k[n], p[n % 4]);
            }
            fetch(from.q[r], q);
            float g = stage::DECAYS ? 1.0f : from.g[r], v = from.v[r][threadIdx.x / 4],
                  b = from.b[r];
            float sum = (p[0] + p[1]) + (p[2] + p[3]), before = out;
            sum += sl_shfl_xor(sum, 1);
            before += sl_shfl_xor(before, 1);
            sum += sl_shfl_xor(sum, 2);
            before += sl_shfl_xor(before, 2);
            put(a, before);
            float d = KIND == SL_COLUMNS_SCAN ? b * v
                      : stage::DECAYS         ? (v - sum) * b
                                              : (v - g * sum) * b;
#pragma unroll
            for (int n = 0; n < PER; n++) {
                s[n] = fmaf(k[n], d, stage::DECAYS ? s[n] : g * s[n]);
                o[n % 4] = fmaf(s[n], q[n], o[n % 4]);
            }
            out = (o[0] + o[1]) + (o[2] + o[3]);
            x = v;
            y = in ? a.y + ((size_t)from.row[r] * a.n_heads + blockIdx.y) * a.head_dim_v + col
                   : NULL;
            if (from.to[r])
                store(a, from.to[r]);
            fetch(from.k[min(r + 1, n_rows - 1)], k);
        }
    }
};

template <sl_columns_kind KIND, int DIM>
__device__ __forceinline__ void sl_columns(const struct sl_karg_delta &a) {
    using stage_of = sl_columns_stage<KIND, DIM>;
    __shared__ __align__(16) stage_of stage[2];
    bool feeds = threadIdx.x >= SL_COLUMNS_CONSUMERS;
    /* Row z goes on from another: that one's block has it. */
    if (gridDim.z == a.state.n_tok && sl_state_follows(a.state, blockIdx.z)) {
        sl_grid_begin();
        return;
    }
    /* What is beyond the keys stays zero. */
    if (a.head_dim_k < DIM)
        for (uint32_t i = threadIdx.x; i < 2 * stage_of::ROWS * DIM; i += SL_DELTA_THREADS) {
            uint32_t r = i / DIM / 2, e = i % DIM;
            stage_of &of = stage[i / DIM % 2];
            of.k[r][e] = of.q[r][e] = 0;
            if constexpr (stage_of::DECAYS)
                of.decay[r][e] = 0;
        }
    sl_grid_begin();
    __syncthreads();
    sl_columns_feed<KIND, DIM> feed;
    sl_column<KIND, DIM> column(a);
    if (feeds) {
        feed.begin(a);
        feed.fill(a, stage[0]);
    } else if (KIND == SL_COLUMNS_SCAN) {
        column.skip = a.skip[blockIdx.y];
    }
    __syncthreads();
    for (uint32_t i = 0; stage[i % 2].n; i++) {
        if (feeds)
            feed.fill(a, stage[(i + 1) % 2]);
        else
            column.run(a, stage[i % 2]);
        __syncthreads();
    }
    if (!feeds)
        column.flush(a);
}

#define SL_COLUMNS_KERNEL(NAME, KIND, DIM)                                                         \
    extern "C" __global__ void __launch_bounds__(SL_DELTA_THREADS)                                 \
        sl_k_##NAME##_##DIM(SL_KERNEL_ARGS(sl_karg_delta, a)) {                                    \
        sl_columns<KIND, DIM>(a);                                                                  \
    }
#define SL_COLUMNS_KERNELS(NAME, KIND)                                                             \
    SL_COLUMNS_KERNEL(NAME, KIND, 64)                                                              \
    SL_COLUMNS_KERNEL(NAME, KIND, 128)                                                             \
    SL_COLUMNS_KERNEL(NAME, KIND, 256)

#endif
