/* Ops of layers whose state every row replaces, and the small ones around them.
 *
 * Whatever rows come in one call, a row's operations are the same in the same order: rows go one by
 * one, and how a sum is split depends on the width alone. */
#include "backends/kernels/device.cuh"
#include "backends/kernels/recurrent.h"

#define PAGE 64u

extern "C" __global__ void __launch_bounds__(256)
    sl_k_recurrent_mul_sigmoid(SL_KERNEL_ARGS(sl_karg_mul_sigmoid, a)) {
    sl_grid_begin();
    size_t r = blockIdx.x;
    uint32_t i = blockIdx.y * blockDim.x + threadIdx.x;
    if (i < a.n)
        a.y[r * a.n + i] *= sl_dev_sigmoid(a.gate[r * a.stride_gate + i]);
}

extern "C" __global__ void __launch_bounds__(128)
    sl_k_recurrent_l2_norm(SL_KERNEL_ARGS(sl_karg_l2_norm, a)) {
    sl_grid_begin();
    uint32_t h = blockIdx.y * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (h >= a.n_heads)
        return;
    float *x = a.x + (size_t)blockIdx.x * a.stride + (size_t)h * a.head_dim;
    float sum = 0;
    for (uint32_t i = lane; i < a.head_dim; i += 32)
        sum = fmaf(x[i], x[i], sum);
    float inv = 1.0f / sqrtf(sl_warp_sum(sum) + a.eps);
    for (uint32_t i = lane; i < a.head_dim; i += 32)
        x[i] *= inv;
}

/* ---- where the state is ---- */

/* Does row t go on from the row before it in the call? */
__device__ __forceinline__ bool follows(const struct sl_karg_state &s, uint32_t t) {
    return t && s.row_seq[t] == s.row_seq[t - 1] && s.row_len[t] == s.row_len[t - 1] + 1;
}
/* The state before row t; NULL: t is the first position. */
__device__ __forceinline__ const float *state_before(const struct sl_karg_state &s, uint32_t t) {
    uint32_t len = s.row_len[t];
    if (len < 2)
        return NULL;
    size_t page = s.page_table[(size_t)s.row_seq[t] * s.max_pages + (len - 2) / PAGE];
    return (const float *)((const char *)s.pages + page * s.page_bytes);
}
__device__ __forceinline__ float *state_behind(const struct sl_karg_state &s, uint32_t t) {
    return (float *)((char *)s.pages + (size_t)(s.slot[t] / PAGE) * s.page_bytes);
}
/* Rows of a sequence follow one another: is row t + n of the call the n-th behind row t? */
__device__ __forceinline__ bool is_same_run(const struct sl_karg_state &s, uint32_t t, uint32_t n) {
    return t + n < s.n_tok && s.row_seq[t + n] == s.row_seq[t] &&
           s.row_len[t + n] == s.row_len[t] + n;
}
/* The last row of t's sequence in this call that is in the same page. */
__device__ __forceinline__ uint32_t last_in_page(const struct sl_karg_state &s, uint32_t t) {
    uint32_t n = PAGE - 1 - s.slot[t] % PAGE;
    while (!is_same_run(s, t, n))
        n--;
    return t + n;
}

/* ---- convolution ---- */

/* A row's first n_taps - 1 successors need what the page before it holds, and that page may be the
 * one that is replaced. So all of them, and what is kept of them, are the block's that has a
 * sequence's first row in the call; nobody else reads a page. The first row in each page writes it,
 * with x of the page's last row and those before. */
template <int MAX> __device__ __forceinline__ void conv(const struct sl_karg_conv_silu &a) {
    const struct sl_karg_state &s = a.state;
    uint32_t c = blockIdx.x * SL_CONV_THREADS + threadIdx.x, n_old = a.n_taps - 1;
    uint32_t skip = MAX - a.n_taps; /* the last of MAX taps are used */
    uint32_t begin = blockIdx.y * a.rows, end = begin + a.rows, behind = 0;
    if (c >= a.n)
        return;
    float w[MAX], h[MAX], old[MAX];
#pragma unroll
    for (int k = 0; k < MAX; k++) {
        w[k] = (uint32_t)k >= skip ? a.w[(size_t)c * a.n_taps + (uint32_t)k - skip] : 0;
        h[k] = old[k] = 0;
    }
    const float *x = a.x + c;
    while (behind < n_old && follows(s, begin - behind))
        behind++;
    bool has_h = false;
    for (uint32_t t = begin; t < s.n_tok; t++) {
        if (t > begin)
            behind = follows(s, t) ? min(behind + 1, n_old) : 0;
        uint32_t owner = behind < n_old ? t - behind : t;
        if (owner >= end)
            break;
        if (owner < begin)
            continue;
        if (!behind) {
            const float *from = state_before(s, t);
#pragma unroll
            for (int k = 0; k < MAX - 1; k++)
                if ((uint32_t)k >= skip)
                    h[k] = old[k] = from ? from[(size_t)((uint32_t)k - skip) * a.n + c] : 0;
        } else if (!has_h) {
#pragma unroll
            for (int k = 0; k < MAX - 1; k++)
                if ((uint32_t)k >= skip)
                    h[k] = x[(size_t)(t - n_old + (uint32_t)k - skip) * a.n];
        }
        has_h = true;
        h[MAX - 1] = x[(size_t)t * a.n];
        float sum = 0;
#pragma unroll
        for (int k = 0; k < MAX; k++)
            if ((uint32_t)k >= skip)
                sum = fmaf(h[k], w[k], sum);
        a.y[(size_t)t * a.n + c] = sl_dev_silu(sum);
        if (!behind || s.slot[t] / PAGE != s.slot[t - 1] / PAGE) {
            float *to = state_behind(s, t) + c;
            uint32_t last = last_in_page(s, t), first = t - behind;
#pragma unroll
            for (int i = 0; i < MAX - 1; i++) {
                uint32_t back = MAX - 2 - (uint32_t)i;
                float v = 0;
                if ((uint32_t)i < skip)
                    continue;
#pragma unroll
                for (int k = i; k < MAX - 1; k++)
                    if ((uint32_t)k + back + first == MAX - 1 + last)
                        v = old[k];
                if (last >= first + back)
                    v = x[(size_t)(last - back) * a.n];
                to[(size_t)((uint32_t)i - skip) * a.n] = v;
            }
        }
#pragma unroll
        for (int k = 0; k < MAX - 1; k++)
            h[k] = h[k + 1];
    }
}

extern "C" __global__ void __launch_bounds__(SL_CONV_THREADS)
    sl_k_recurrent_conv_silu(SL_KERNEL_ARGS(sl_karg_conv_silu, a)) {
    sl_grid_begin();
    if (a.n_taps <= 4)
        conv<4>(a);
    else
        conv<8>(a);
}

/* ---- delta rule ---- */

/* What a block's consumers need of a few rows. */
template <int DIM> struct alignas(16) delta_stage {
    static constexpr int ROWS = DIM <= 64 ? 32 : 2048 / DIM;
    float k[ROWS][DIM], q[ROWS][DIM], v[ROWS][SL_DELTA_COLS];
    float g[ROWS], b[ROWS];
    uint32_t row[ROWS];
    const float *from[ROWS]; /* where the state is read, in a sequence's first row, */
    float *to[ROWS];         /* and written; NULL: not */
    bool first[ROWS];
    uint32_t n;
};

__device__ __forceinline__ void copy4(float *shared, const float *global) {
#if __CUDA_ARCH__ >= 800
    uint32_t to = (uint32_t)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(global) : "memory");
#else
    *shared = *global;
#endif
}
/* n floats by a warp; `whole`: 16 bytes at a time. */
__device__ __forceinline__ void copy_floats(float *shared, const float *global, uint32_t n,
                                            bool whole, uint32_t lane) {
    if (whole)
        for (uint32_t i = lane * 4; i < n; i += 128)
            sl_copy16(shared + i, global + i, true);
    else
        for (uint32_t i = lane; i < n; i += 32)
            copy4(shared + i, global + i);
}

/* The last warp of a block, which fetches what the others will need. Of a few rows each lane has one,
 * whose numbers it loads while the rows before are worked on. */
template <int DIM> struct delta_feed {
    static constexpr uint32_t ROWS = delta_stage<DIM>::ROWS;
    uint32_t at, end, runs, h_k;
    size_t gate, in_state;
    bool whole;
    /* Of row at + lane: */
    uint32_t seq, len, slot, seq_before, len_before, seq_behind, len_behind, slot_behind;
    float alpha, beta;

    __device__ __forceinline__ void look(const struct sl_karg_delta &a) {
        const struct sl_karg_state &s = a.state;
        uint32_t lane = threadIdx.x % 32, t = min(at + lane, s.n_tok - 1);
        uint32_t before = t ? t - 1 : 0, behind = min(t + 1, s.n_tok - 1);
        seq = s.row_seq[t], len = s.row_len[t], slot = s.slot[t];
        seq_before = s.row_seq[before], len_before = s.row_len[before];
        seq_behind = s.row_seq[behind], len_behind = s.row_len[behind];
        slot_behind = s.slot[behind];
        alpha = a.alpha[(size_t)t * a.stride_gate + gate];
        beta = a.beta[(size_t)t * a.stride_gate + gate];
    }

    __device__ __forceinline__ void begin(const struct sl_karg_delta &a) {
        uint32_t h = blockIdx.y;
        at = gridDim.z == a.state.n_tok ? blockIdx.z : 0;
        end = a.state.n_tok;
        runs = 0;
        h_k = a.grouped ? h / (a.n_heads / a.n_heads_k) : h % a.n_heads_k;
        gate = (size_t)(h / a.gate_group) * a.gate_group_stride + h % a.gate_group;
        in_state = (size_t)h * a.head_dim_k * a.head_dim_v;
        whole = (a.head_dim_k | a.head_dim_v | a.stride) % 4 == 0 &&
                ((uintptr_t)a.q | (uintptr_t)a.k | (uintptr_t)a.v) % 16 == 0;
        look(a);
    }

    /* The next rows of this block, ROWS of the call at most. */
    __device__ __forceinline__ void fill(const struct sl_karg_delta &a, struct delta_stage<DIM> &to) {
        const struct sl_karg_state &s = a.state;
        uint32_t lane = threadIdx.x % 32, h = blockIdx.y, n = 0;
        uint32_t c = blockIdx.x * SL_DELTA_COLS, n_c = min(SL_DELTA_COLS, a.head_dim_v - c);
        while (!n && at < end) {
            uint32_t t = at + lane;
            bool in = lane < ROWS && t < end;
            bool first = in && !(t && seq == seq_before && len == len_before + 1);
            bool last = t + 1 == s.n_tok || seq_behind != seq || len_behind != len + 1 ||
                        slot / PAGE != slot_behind / PAGE;
            uint32_t firsts = __ballot_sync(0xffffffffu, first);
            uint32_t run = runs + (uint32_t)__popc(firsts & (0xffffffffu >> (31 - lane)));
            bool mine = in && (gridDim.z == s.n_tok ? run == 1
                                                    : (run - 1) % gridDim.z == blockIdx.z);
            uint32_t all = __ballot_sync(0xffffffffu, mine);
            uint32_t i = (uint32_t)__popc(all & ((1u << lane) - 1));
            n = (uint32_t)__popc(all);
            if (mine)
                to.row[i] = t;
            __syncwarp();
            for (uint32_t r = 0; r < n; r++) {
                size_t in_row = (size_t)to.row[r] * a.stride, key = (size_t)h_k * a.head_dim_k;
                copy_floats(to.k[r], a.k + in_row + key, a.head_dim_k, whole, lane);
                copy_floats(to.q[r], a.q + in_row + key, a.head_dim_k, whole, lane);
                copy_floats(to.v[r], a.v + in_row + (size_t)h * a.head_dim_v + c, n_c, whole, lane);
            }
            if (mine) {
                const float *from = NULL;
                if (first && len > 1)
                    from = (const float *)((const char *)s.pages +
                                           s.page_table[(size_t)seq * s.max_pages +
                                                        (len - 2) / PAGE] *
                                               (size_t)s.page_bytes) +
                           in_state;
                to.first[i] = first;
                to.from[i] = from;
                to.to[i] = last ? (float *)((char *)s.pages + slot / PAGE * (size_t)s.page_bytes) +
                                      in_state
                                : NULL;
                to.g[i] = sl_dev_exp(a.a[h] * sl_dev_softplus(alpha + a.dt[h]));
                to.b[i] = sl_dev_sigmoid(beta);
            }
            runs += (uint32_t)__popc(firsts);
            at += ROWS;
            look(a);
        }
        if (lane == 0)
            to.n = n;
        sl_copy_wait();
    }
};

/* A quarter of a column: rows 16 * j + 4 * (lane % 4) to + 3 for each j. Sums over the rows: 16 of
 * every 16th row, ascending, one fused multiply-add each, from 0; then (0 + 1) + (2 + 3) of each
 * four, and of the four sums alike. */
template <int DIM> struct delta_column {
    static constexpr int PER = DIM / 4;
    float s[PER];
    uint32_t quarter, col; /* col: in the head */
    bool in;
    float out; /* a row's sum, not yet put together, */
    float *y;  /* and where it goes; NULL: there is none */

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
    __device__ __forceinline__ static float join(float v) {
        v += sl_shfl_xor(v, 1);
        return v + sl_shfl_xor(v, 2);
    }
    /* What is put together with the next row's sum, so that both wait at once. */
    __device__ __forceinline__ void flush(float scale) {
        float sum = join(out);
        if (y && quarter == 0)
            *y = sum * scale;
        y = NULL;
    }

    __device__ __forceinline__ void run(const struct sl_karg_delta &a,
                                        const struct delta_stage<DIM> &from, uint32_t n_rows) {
        float k[PER];
        fetch(from.k[0], k);
        for (uint32_t r = 0; r < n_rows; r++) {
            if (from.first[r])
                load(a, from.from[r]);
            float p[4] = {0, 0, 0, 0}, o[4] = {0, 0, 0, 0}, q[PER];
#pragma unroll
            for (int n = 0; n < PER; n++)
                p[n % 4] = fmaf(s[n], k[n], p[n % 4]);
            fetch(from.q[r], q);
            float g = from.g[r], v = from.v[r][threadIdx.x / 4], b = from.b[r];
            float sum = (p[0] + p[1]) + (p[2] + p[3]), before = out;
            sum += sl_shfl_xor(sum, 1);
            before += sl_shfl_xor(before, 1);
            sum += sl_shfl_xor(sum, 2);
            before += sl_shfl_xor(before, 2);
            if (y && quarter == 0)
                *y = before * a.scale;
            float d = (v - g * sum) * b;
#pragma unroll
            for (int n = 0; n < PER; n++) {
                s[n] = fmaf(k[n], d, g * s[n]);
                o[n % 4] = fmaf(s[n], q[n], o[n % 4]);
            }
            out = (o[0] + o[1]) + (o[2] + o[3]);
            y = in ? a.y + ((size_t)from.row[r] * a.n_heads + blockIdx.y) * a.head_dim_v + col : NULL;
            if (from.to[r])
                store(a, from.to[r]);
            fetch(from.k[min(r + 1, n_rows - 1)], k);
        }
    }
};

template <int DIM> __device__ __forceinline__ void delta(const struct sl_karg_delta &a) {
    __shared__ __align__(16) struct delta_stage<DIM> stage[2];
    bool feeds = threadIdx.x / 32 == SL_DELTA_THREADS / 32 - 1;
    /* Row z goes on from another: that one's block has it. */
    if (gridDim.z == a.state.n_tok && follows(a.state, blockIdx.z)) {
        sl_grid_begin();
        return;
    }
    /* What is beyond the keys stays zero. */
    if (a.head_dim_k < DIM)
        for (uint32_t i = threadIdx.x; i < 2 * delta_stage<DIM>::ROWS * DIM; i += SL_DELTA_THREADS)
            stage[i / DIM % 2].k[i / DIM / 2][i % DIM] = stage[i / DIM % 2].q[i / DIM / 2][i % DIM] = 0;
    sl_grid_begin();
    __syncthreads();
    struct delta_feed<DIM> feed;
    struct delta_column<DIM> column;
    column.quarter = threadIdx.x % 4;
    column.col = blockIdx.x * SL_DELTA_COLS + threadIdx.x / 4;
    column.in = column.col < a.head_dim_v;
    column.out = 0;
    column.y = NULL;
    if (feeds) {
        feed.begin(a);
        feed.fill(a, stage[0]);
    }
    __syncthreads();
    for (uint32_t i = 0; stage[i % 2].n; i++) {
        if (feeds)
            feed.fill(a, stage[(i + 1) % 2]);
        else
            column.run(a, stage[i % 2], stage[i % 2].n);
        __syncthreads();
    }
    if (!feeds)
        column.flush(a.scale);
}

#define DELTA(DIM)                                                                                 \
    extern "C" __global__ void __launch_bounds__(SL_DELTA_THREADS)                                 \
        sl_k_recurrent_delta_##DIM(SL_KERNEL_ARGS(sl_karg_delta, a)) {                             \
        delta<DIM>(a);                                                                             \
    }
DELTA(64)
DELTA(128)
DELTA(256)
